! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
! Two-sided calls and calls that make communicators from Fortran, each at least once with a small and a large
! message; compiled three times: with mpif.h (USE_MPIFH), use mpi (USE_MPI) and use mpi_f08 (USE_F08). MPI4: the
! library has the calls of MPI 4.
#include "f_harness.h"

program f_p2p
  use harness
  implicit none
  integer, parameter :: small = 25, large = 200000
  integer, parameter :: lens(2) = [small, large]
  integer, asynchronous, target, save :: s(large), r(large), s2(large), r2(large)
  integer, asynchronous, target, save :: room(3 * large)
  integer :: ierr, tag = 0

  call start('f_p2p.F90')

  if (begin('blocking')) call blocking()
  if (begin('non_blocking')) call non_blocking()
  if (begin('buffered')) call buffered()
  if (begin('sendrecv')) call both_ways()
  if (begin('probes')) call probes()
  if (begin('matched_probes')) call matched_probes()
  if (begin('status_error')) call status_error()
  if (begin('persistent')) call persistent()
  if (begin('completion')) call completion()
  if (begin('cancel')) call cancel()
  if (begin('freed')) call freed()
  if (begin('null_and_any')) call null_and_any()
  if (begin('types')) call types()
  if (begin('intracomms')) call intracomms()
  if (begin('topologies')) call topologies()
  if (begin('intercomms')) call intercomms()
  if (begin('large_counts')) call large_counts()

  call end_all()

contains

  ! what rank `from' sends as its message `k'
  subroutine fill(a, n, from, k)
    integer, intent(inout) :: a(:)
    integer, intent(in) :: n, from, k
    integer :: i
    do i = 1, n
      a(i) = ieor(i * 7 + k * 1000003, from * 65537)
    end do
  end subroutine fill

  subroutine holds(line, a, n, from, k)
    integer, intent(in) :: line, n, from, k, a(:)
    integer :: i
    do i = 1, n
      if (a(i) == ieor(i * 7 + k * 1000003, from * 65537)) cycle
      call eq(line, 'element', a(i), ieor(i * 7 + k * 1000003, from * 65537))
      exit
    end do
    do i = n + 1, min(n + 8, size(a))
      call eq(line, 'element behind the message', a(i), -1)
    end do
  end subroutine holds

  subroutine status_is(line, st, source, want_tag, n)
    integer, intent(in) :: line, source, want_tag, n
    STAT_T :: st
    integer :: count
    call eq(line, 'source', ST_SOURCE(st), source)
    call eq(line, 'tag', ST_TAG(st), want_tag)
    call MPI_Get_count(st, MPI_INTEGER, count, ierr)
    call eq(line, 'count', count, n)
  end subroutine status_is

  subroutine ok(line, what)
    integer, intent(in) :: line
    character(len=*), intent(in) :: what
    call eq(line, what, ierr, MPI_SUCCESS)
  end subroutine ok

  subroutine next(k)
    integer, intent(in) :: k
    tag = tag + 1
    r = -1
    r2 = -1
    call fill(s, lens(k), me, tag)
    call fill(s2, lens(k), me, tag + 1000)
  end subroutine next

  ! ranks 0 and 1 by turns; the receive of a ready send is there before it
  subroutine blocking()
    integer :: k, mode, from
    STAT_T :: st
    REQ_T :: q
    do k = 1, 2
      do mode = 1, 3
        do from = 0, 1
          call next(k)
          if (me == 1 - from .and. mode == 3) &
               call MPI_Irecv(r, large, MPI_INTEGER, from, tag, MPI_COMM_WORLD, q, ierr)
          if (mode == 3) call MPI_Barrier(MPI_COMM_WORLD, ierr)
          if (me == from) then
            if (mode == 1) call MPI_Send(s, lens(k), MPI_INTEGER, 1 - me, tag, MPI_COMM_WORLD, ierr)
            if (mode == 2) call MPI_Ssend(s, lens(k), MPI_INTEGER, 1 - me, tag, MPI_COMM_WORLD, ierr)
            if (mode == 3) call MPI_Rsend(s, lens(k), MPI_INTEGER, 1 - me, tag, MPI_COMM_WORLD, ierr)
            call ok(__LINE__, 'send')
          else if (me == 1 - from) then
            if (mode == 3) then
              call MPI_Wait(q, st, ierr)
            else
              call MPI_Recv(r, large, MPI_INTEGER, from, tag, MPI_COMM_WORLD, st, ierr)
            end if
            call ok(__LINE__, 'receive')
            call status_is(__LINE__, st, from, tag, lens(k))
            call holds(__LINE__, r, lens(k), from, tag)
          end if
        end do
      end do
    end do
    call finish()
  end subroutine blocking

  subroutine non_blocking()
    integer :: k, mode
    STATS_T(2) :: sts
    REQ_T :: q(2)
    do k = 1, 2
      do mode = 1, 3
        call next(k)
        call MPI_Irecv(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, q(1), ierr)
        call ok(__LINE__, 'MPI_Irecv')
        call MPI_Barrier(MPI_COMM_WORLD, ierr)
        if (mode == 1) call MPI_Isend(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q(2), ierr)
        if (mode == 2) call MPI_Issend(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q(2), ierr)
        if (mode == 3) call MPI_Irsend(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q(2), ierr)
        call ok(__LINE__, 'send')
        call MPI_Waitall(2, q, sts, ierr)
        call ok(__LINE__, 'MPI_Waitall')
        call eq(__LINE__, 'source', STS_SOURCE(sts, 1), left)
        call check(q(1) == MPI_REQUEST_NULL .and. q(2) == MPI_REQUEST_NULL, __LINE__, 'null requests', 0, 2)
        call holds(__LINE__, r, lens(k), left, tag)
      end do
    end do
    call finish()
  end subroutine non_blocking

  subroutine buffered()
    integer :: k, bytes
    STAT_T :: st
    REQ_T :: q
    bytes = 4 * 3 * large
    call MPI_Buffer_attach(room, bytes, ierr)
    do k = 1, 2
      call next(k)
      call MPI_Bsend(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, ierr)
      call ok(__LINE__, 'MPI_Bsend')
      call MPI_Ibsend(s2, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q, ierr)
      call ok(__LINE__, 'MPI_Ibsend')
      call MPI_Wait(q, MPI_STATUS_IGNORE, ierr)
      s = 0
      s2 = 0
      call MPI_Recv(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, st, ierr)
      call status_is(__LINE__, st, left, tag, lens(k))
      call holds(__LINE__, r, lens(k), left, tag)
      call MPI_Recv(r2, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, st, ierr)
      call holds(__LINE__, r2, lens(k), left, tag + 1000)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
    end do
    call detach()
    call finish()
  end subroutine buffered

  subroutine both_ways()
    integer :: k
    STAT_T :: st
#ifdef MPI4
    REQ_T :: q
#endif
    do k = 1, 2
      call next(k)
      call MPI_Sendrecv(s, lens(k), MPI_INTEGER, right, tag, r, large, MPI_INTEGER, left, tag, &
           MPI_COMM_WORLD, st, ierr)
      call ok(__LINE__, 'MPI_Sendrecv')
      call status_is(__LINE__, st, left, tag, lens(k))
      call holds(__LINE__, r, lens(k), left, tag)
      call MPI_Sendrecv_replace(s2, lens(k), MPI_INTEGER, right, tag, left, tag, MPI_COMM_WORLD, st, ierr)
      call ok(__LINE__, 'MPI_Sendrecv_replace')
      call status_is(__LINE__, st, left, tag, lens(k))
      call holds(__LINE__, s2(1:lens(k)), lens(k), left, tag + 1000)
#ifdef MPI4
      call next(k)
      call MPI_Isendrecv(s, lens(k), MPI_INTEGER, right, tag, r, large, MPI_INTEGER, left, tag, &
           MPI_COMM_WORLD, q, ierr)
      call ok(__LINE__, 'MPI_Isendrecv')
      call MPI_Wait(q, st, ierr)
      call holds(__LINE__, r, lens(k), left, tag)
      call MPI_Isendrecv_replace(s2, lens(k), MPI_INTEGER, right, tag, left, tag, MPI_COMM_WORLD, q, ierr)
      call ok(__LINE__, 'MPI_Isendrecv_replace')
      call MPI_Wait(q, st, ierr)
      call holds(__LINE__, s2(1:lens(k)), lens(k), left, tag + 1000)
#endif
    end do
    call finish()
  end subroutine both_ways

  subroutine probes()
    integer :: k, round
    logical :: flag
    STAT_T :: st
    REQ_T :: q
    do k = 1, 2
      do round = 1, 2
        call next(k)
        call MPI_Isend(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q, ierr)
        if (round == 1) then
          call MPI_Probe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, st, ierr)
          call ok(__LINE__, 'MPI_Probe')
        else
          flag = .false.
          do while (.not. flag)
            call MPI_Iprobe(left, MPI_ANY_TAG, MPI_COMM_WORLD, flag, st, ierr)
          end do
        end if
        call status_is(__LINE__, st, left, tag, lens(k))
        call MPI_Recv(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
        call holds(__LINE__, r, lens(k), left, tag)
        call MPI_Wait(q, st, ierr)
        call MPI_Barrier(MPI_COMM_WORLD, ierr)
        call MPI_Iprobe(left, tag, MPI_COMM_WORLD, flag, st, ierr)
        call check(.not. flag, __LINE__, 'a message that was received', 1, 0)
        call MPI_Barrier(MPI_COMM_WORLD, ierr)
      end do
    end do
    call finish()
  end subroutine probes

  subroutine matched_probes()
    integer :: k
    logical :: flag
    STAT_T :: st
    REQ_T :: q, q2
    MSG_T :: m
    do k = 1, 2
      call next(k)
      call MPI_Isend(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q, ierr)
      call MPI_Isend(s2, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q2, ierr)
      call MPI_Mprobe(left, MPI_ANY_TAG, MPI_COMM_WORLD, m, st, ierr)
      call ok(__LINE__, 'MPI_Mprobe')
      call status_is(__LINE__, st, left, tag, lens(k))
      call MPI_Mrecv(r, large, MPI_INTEGER, m, st, ierr)
      call ok(__LINE__, 'MPI_Mrecv')
      call check(m == MPI_MESSAGE_NULL, __LINE__, 'null messages', 0, 1)
      call status_is(__LINE__, st, left, tag, lens(k))
      call holds(__LINE__, r, lens(k), left, tag)
      call MPI_Wait(q, st, ierr)
      flag = .false.
      do while (.not. flag)
        call MPI_Improbe(left, tag, MPI_COMM_WORLD, flag, m, st, ierr)
      end do
      call status_is(__LINE__, st, left, tag, lens(k))
      call MPI_Imrecv(r2, large, MPI_INTEGER, m, q, ierr)
      call ok(__LINE__, 'MPI_Imrecv')
      call MPI_Wait(q, st, ierr)
      call holds(__LINE__, r2, lens(k), left, tag + 1000)
      call MPI_Wait(q2, st, ierr)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
      call MPI_Improbe(left, tag, MPI_COMM_WORLD, flag, m, st, ierr)
      call check(.not. flag, __LINE__, 'a message that was received', 1, 0)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
    end do
    call MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, m, st, ierr)
    call check(m == MPI_MESSAGE_NO_PROC, __LINE__, 'messages of nobody', 0, 1)
    call MPI_Mrecv(r, large, MPI_INTEGER, m, st, ierr)
    call eq(__LINE__, 'source', ST_SOURCE(st), MPI_PROC_NULL)
    call finish()
  end subroutine matched_probes

  ! MPI_ERROR of a status belongs to calls that return several: the others leave it alone, and the whole status where
  ! their flag is false.  `own': the library's own function may do otherwise.  MPICH's MPI_Probe, MPI_Iprobe and
  ! MPI_Sendrecv_replace say MPI_SUCCESS; Open MPI's Fortran functions, which receive ordinary messages of handles, anything.
  subroutine status_error()
    integer, parameter :: mark = 424242
    character(len=16), parameter :: names(12) = [character(len=16) :: 'Sendrecv', 'Sendrecv_replace', 'Wait', 'Waitany', &
         'get_status', 'Mrecv', 'Wait of Imrecv', 'Probe', 'Iprobe', 'Test', 'Testany', 'Recv']
    integer :: k, call_no, index, got
    logical :: flag, own
    STAT_T :: st
    REQ_T :: q, qs(1), p
    MSG_T :: m
    do k = 1, 2
      do call_no = 1, 12
        call next(k)
        ST_SOURCE(st) = -mark
        ST_TAG(st) = -mark
        ST_ERROR(st) = mark
        own = .false.
        flag = .false.
        if (call_no == 10 .or. call_no == 11) then
          call MPI_Irecv(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, q, ierr)
          qs(1) = q
          if (call_no == 10) call MPI_Test(q, flag, st, ierr)
          if (call_no == 11) call MPI_Testany(1, qs, index, flag, st, ierr)
          call MPI_Barrier(MPI_COMM_WORLD, ierr)
          call eq(__LINE__, 'flag', merge(1, 0, flag), 0)
          ! MPICH's own MPI_Testany says that it is empty
          if (call_no == 10) call eq(__LINE__, 'source of nothing', ST_SOURCE(st), -mark)
        end if
        if (call_no == 12) then
          call MPI_Iprobe(left, tag, MPI_COMM_WORLD, flag, st, ierr)
          call eq(__LINE__, 'source of nothing', ST_SOURCE(st), -mark)
          call MPI_Improbe(left, tag, MPI_COMM_WORLD, flag, m, st, ierr)
          call MPI_Barrier(MPI_COMM_WORLD, ierr)
          call eq(__LINE__, 'source of nothing', ST_SOURCE(st), -mark)
          call eq(__LINE__, 'tag of nothing', ST_TAG(st), -mark)
        end if
        if (call_no > 2) call MPI_Isend(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, p, ierr)
        if (call_no >= 3 .and. call_no <= 5) &
             call MPI_Irecv(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, q, ierr)
        select case (call_no)
        case (1)
          call MPI_Sendrecv(s, lens(k), MPI_INTEGER, right, tag, r, large, MPI_INTEGER, left, tag, &
               MPI_COMM_WORLD, st, ierr)
        case (2)
          own = .true.
          call MPI_Sendrecv_replace(s, lens(k), MPI_INTEGER, right, tag, left, tag, MPI_COMM_WORLD, st, ierr)
        case (3)
          call MPI_Wait(q, st, ierr)
        case (4)
          qs(1) = q
          call MPI_Waitany(1, qs, index, st, ierr)
        case (5)
          do while (.not. flag)
            call MPI_Request_get_status(q, flag, st, ierr)
          end do
          call MPI_Wait(q, MPI_STATUS_IGNORE, ierr)
        case (6)
          call MPI_Mprobe(left, MPI_ANY_TAG, MPI_COMM_WORLD, m, st, ierr)
          call eq(__LINE__, 'MPI_ERROR of MPI_Mprobe', ST_ERROR(st), mark)
          call MPI_Mrecv(r, large, MPI_INTEGER, m, st, ierr)
          own = .true.
        case (7)
          do while (.not. flag)
            call MPI_Improbe(left, tag, MPI_COMM_WORLD, flag, m, st, ierr)
          end do
          call eq(__LINE__, 'MPI_ERROR of MPI_Improbe', ST_ERROR(st), mark)
          call MPI_Imrecv(r, large, MPI_INTEGER, m, q, ierr)
          call MPI_Wait(q, st, ierr)
          own = .true.
        case (8, 9)
          own = .true.
          if (call_no == 8) then
            call MPI_Probe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, st, ierr)
          else
            do while (.not. flag)
              call MPI_Iprobe(left, tag, MPI_COMM_WORLD, flag, st, ierr)
            end do
          end if
          call MPI_Recv(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
        case (10)
          do while (.not. flag)
            call MPI_Test(q, flag, st, ierr)
          end do
        case (11)
          do while (.not. flag)
            call MPI_Testany(1, qs, index, flag, st, ierr)
          end do
        case (12)
          call MPI_Recv(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, st, ierr)
        end select
        call ok(__LINE__, 'call')
        call status_is(__LINE__, st, left, tag, lens(k))
        got = ST_ERROR(st)
#ifdef MPI4
        if (own .and. got == MPI_SUCCESS) got = mark
#else
        if (own .and. (call_no == 6 .or. call_no == 7)) got = mark
#endif
        call eq(__LINE__, 'MPI_ERROR of ' // trim(names(call_no)), got, mark)
        if (call_no > 2) call MPI_Wait(p, MPI_STATUS_IGNORE, ierr)
      end do
    end do
    call finish()
  end subroutine status_error

  subroutine persistent()
    integer :: k, mode, round, bytes
    STAT_T :: st
    REQ_T :: q(2)
    bytes = 4 * 3 * large
    call MPI_Buffer_attach(room, bytes, ierr)
    do k = 1, 2
      do mode = 1, 4
        tag = tag + 1
        call MPI_Recv_init(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, q(1), ierr)
        call ok(__LINE__, 'MPI_Recv_init')
        if (mode == 1) call MPI_Send_init(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q(2), ierr)
        if (mode == 2) call MPI_Ssend_init(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q(2), ierr)
        if (mode == 3) call MPI_Bsend_init(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q(2), ierr)
        if (mode == 4) call MPI_Rsend_init(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q(2), ierr)
        call ok(__LINE__, 'MPI_Send_init')
        do round = 1, 3
#ifndef MPI4
          ! Open MPI 4.1 sends zeros when it starts a buffered one again
          if (mode == 3 .and. round > 1) cycle
#endif
          r = -1
          call fill(s, lens(k), me, tag + 100 * round)
          if (round == 1 .and. mode < 4) then
            call MPI_Startall(2, q, ierr)
            call ok(__LINE__, 'MPI_Startall')
          else
            call MPI_Start(q(1), ierr)
            if (mode == 4) call MPI_Barrier(MPI_COMM_WORLD, ierr)
            call MPI_Start(q(2), ierr)
            call ok(__LINE__, 'MPI_Start')
          end if
          call MPI_Wait(q(1), st, ierr)
          call status_is(__LINE__, st, left, tag, lens(k))
          call MPI_Wait(q(2), st, ierr)
          call check(q(1) /= MPI_REQUEST_NULL .and. q(2) /= MPI_REQUEST_NULL, __LINE__, 'requests', 0, 2)
          call holds(__LINE__, r, lens(k), left, tag + 100 * round)
          call MPI_Barrier(MPI_COMM_WORLD, ierr)
        end do
        call MPI_Request_free(q(1), ierr)
        call ok(__LINE__, 'MPI_Request_free')
        call MPI_Request_free(q(2), ierr)
        call check(q(1) == MPI_REQUEST_NULL .and. q(2) == MPI_REQUEST_NULL, __LINE__, 'null requests', 0, 2)
      end do
    end do
    call detach()
    call finish()
  end subroutine persistent

  subroutine detach()
    integer :: bytes
#ifdef USE_F08
    block
      use, intrinsic :: iso_c_binding, only: c_ptr
      type(c_ptr) :: base
      call MPI_Buffer_detach(base, bytes, ierr)
    end block
#elif defined(USE_MPI) || defined(USE_MPIFH)
    integer(kind=MPI_ADDRESS_KIND) :: base(4)
    call MPI_Buffer_detach(base, bytes, ierr)
#endif
    call ok(__LINE__, 'MPI_Buffer_detach')
  end subroutine detach

  ! every way to wait for one of two receives and two sends
  subroutine completion()
    integer :: k, way, n, i, done, idx(4), index
    logical :: flag
    STAT_T :: st
    STATS_T(4) :: sts
    REQ_T :: q(4)
    do k = 1, 2
      do way = 1, 7
        call next(k)
        call MPI_Irecv(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, q(1), ierr)
        call MPI_Irecv(r2, large, MPI_INTEGER, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, q(2), ierr)
        call MPI_Isend(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q(3), ierr)
        call MPI_Isend(s2, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q(4), ierr)
        n = 0
        flag = .false.
        select case (way)
        case (1)
          call MPI_Waitall(4, q, MPI_STATUSES_IGNORE, ierr)
        case (2)
          do while (.not. flag)
            call MPI_Testall(4, q, flag, sts, ierr)
          end do
          call eq(__LINE__, 'source', STS_SOURCE(sts, 2), left)
        case (3)
          do i = 1, 4
            call MPI_Waitany(4, q, index, st, ierr)
          end do
          ! nothing is left; MPICH adds 1 to MPI_UNDEFINED, as to every index
          call MPI_Waitany(4, q, index, st, ierr)
        case (4)
          do while (n < 4)
            call MPI_Testany(4, q, index, flag, st, ierr)
            if (flag) n = n + 1
          end do
        case (5)
          do while (n < 4)
            call MPI_Waitsome(4, q, done, idx, sts, ierr)
            n = n + done
          end do
        case (6)
          do while (n < 4)
            call MPI_Testsome(4, q, done, idx, sts, ierr)
            n = n + done
          end do
        case (7)
          do i = 1, 4
            flag = .false.
            do while (.not. flag)
              call MPI_Request_get_status(q(i), flag, st, ierr)
            end do
            flag = .false.
            call MPI_Test(q(i), flag, st, ierr)
            call check(flag, __LINE__, 'tested', 0, 1)
            if (i < 3) call status_is(__LINE__, st, left, tag, lens(k))
          end do
        end select
        call ok(__LINE__, 'completion')
        do i = 1, 4
          call check(q(i) == MPI_REQUEST_NULL, __LINE__, 'null request', i, way)
        end do
        call holds(__LINE__, r, lens(k), left, tag)
        call holds(__LINE__, r2, lens(k), left, tag + 1000)
        call MPI_Barrier(MPI_COMM_WORLD, ierr)
      end do
    end do
    call finish()
  end subroutine completion

  subroutine cancel()
    integer :: k
    logical :: flag
    STAT_T :: st
    REQ_T :: q
    do k = 1, 2
      call next(k)
      call MPI_Irecv(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, q, ierr)
      call MPI_Cancel(q, ierr)
      call ok(__LINE__, 'MPI_Cancel')
      call MPI_Wait(q, st, ierr)
      call MPI_Test_cancelled(st, flag, ierr)
      call check(flag, __LINE__, 'cancelled', 0, 1)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
      call MPI_Sendrecv(s, lens(k), MPI_INTEGER, right, tag, r, large, MPI_INTEGER, left, tag, &
           MPI_COMM_WORLD, st, ierr)
      call holds(__LINE__, r, lens(k), left, tag)
    end do
    call finish()
  end subroutine cancel

  subroutine freed()
    integer :: k
    STAT_T :: st
    REQ_T :: q
    do k = 1, 2
      call next(k)
      call MPI_Isend(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q, ierr)
      call MPI_Request_free(q, ierr)
      call ok(__LINE__, 'MPI_Request_free')
      call check(q == MPI_REQUEST_NULL, __LINE__, 'null request', 0, 1)
      call MPI_Recv(r, large, MPI_INTEGER, left, tag, MPI_COMM_WORLD, st, ierr)
      call holds(__LINE__, r, lens(k), left, tag)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
    end do
    call finish()
  end subroutine freed

  subroutine null_and_any()
    integer :: k
    STAT_T :: st
    REQ_T :: q
    call next(2)
    call MPI_Send(s, large, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, ierr)
    call MPI_Recv(r, large, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, st, ierr)
    call eq(__LINE__, 'source', ST_SOURCE(st), MPI_PROC_NULL)
    call eq(__LINE__, 'tag', ST_TAG(st), MPI_ANY_TAG)
    do k = 1, 2
      call next(k)
      call MPI_Isend(s, lens(k), MPI_INTEGER, right, tag, MPI_COMM_WORLD, q, ierr)
      call MPI_Recv(r, large, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, st, ierr)
      call status_is(__LINE__, st, left, tag, lens(k))
      call holds(__LINE__, r, lens(k), left, tag)
      call MPI_Wait(q, MPI_STATUS_IGNORE, ierr)
      call next(k) ! to itself
      call MPI_Isend(s, lens(k), MPI_INTEGER, me, tag, MPI_COMM_WORLD, q, ierr)
      call MPI_Recv(r, large, MPI_INTEGER, me, tag, MPI_COMM_WORLD, st, ierr)
      call holds(__LINE__, r, lens(k), me, tag)
      call MPI_Wait(q, MPI_STATUS_IGNORE, ierr)
    end do
    call finish()
  end subroutine null_and_any

  ! every other element, and a buffer named by its address alone
  subroutine types()
    integer :: k, i, n, blocks(1)
    integer(kind=MPI_ADDRESS_KIND) :: where(1)
    TYPE_T :: every, absolute, one(1)
    STAT_T :: st
    do k = 1, 2
      call next(k)
      n = lens(k) / 2
      call MPI_Type_vector(n, 1, 2, MPI_INTEGER, every, ierr)
      call MPI_Type_commit(every, ierr)
      call MPI_Sendrecv(s, 1, every, right, tag, r, 1, every, left, tag, MPI_COMM_WORLD, st, ierr)
      call ok(__LINE__, 'MPI_Sendrecv')
      call fill(s2, lens(k), left, tag)
      do i = 1, 2 * n, 2
        if (r(i) == s2(i) .and. r(i + 1) == -1) cycle
        call eq(__LINE__, 'element', r(i), s2(i))
        call eq(__LINE__, 'element between', r(i + 1), -1)
        exit
      end do
      call MPI_Get_address(r2, where(1), ierr)
      blocks(1) = lens(k)
      one(1) = MPI_INTEGER
      call MPI_Type_create_struct(1, blocks, where, one, absolute, ierr)
      call MPI_Type_commit(absolute, ierr)
      call MPI_Sendrecv(s, lens(k), MPI_INTEGER, right, tag, MPI_BOTTOM, 1, absolute, left, tag, &
           MPI_COMM_WORLD, st, ierr)
      call ok(__LINE__, 'MPI_Sendrecv to MPI_BOTTOM')
      call touch(r2)
      call holds(__LINE__, r2, lens(k), left, tag)
      call MPI_Type_free(every, ierr)
      call MPI_Type_free(absolute, ierr)
    end do
    call finish()
  end subroutine types

  ! the compiler does not see that a message was received there
  subroutine touch(a)
    integer, asynchronous, intent(inout) :: a(:)
    if (me < 0) a(1) = 0
  end subroutine touch

  ! small and large messages around the ring of `c', which is freed
  subroutine use_comm(line, c)
    integer, intent(in) :: line
    COMM_T :: c
    STAT_T :: st
    integer :: k, rank, n, from
    call ok(line, 'creation')
    if (c == MPI_COMM_NULL) return
    call MPI_Comm_rank(c, rank, ierr)
    call MPI_Comm_size(c, n, ierr)
    from = mod(rank + n - 1, n)
    do k = 1, 2
      r = -1
      call fill(s, lens(k), rank, k)
      call MPI_Sendrecv(s, lens(k), MPI_INTEGER, mod(rank + 1, n), k, r, large, MPI_INTEGER, from, k, c, &
           st, ierr)
      call status_is(line, st, from, k, lens(k))
      call holds(line, r, lens(k), from, k)
    end do
    call MPI_Comm_free(c, ierr)
    call check(c == MPI_COMM_NULL, line, 'null communicators', 0, 1)
  end subroutine use_comm

  subroutine intracomms()
    COMM_T :: c, d
    GROUP_T :: all, some
    REQ_T :: q
    INFO_T :: info
    integer :: ranks(1)
    call MPI_Comm_dup(MPI_COMM_WORLD, d, ierr)
    call MPI_Comm_dup(d, c, ierr)
    call use_comm(__LINE__, c)
    call MPI_Info_create(info, ierr)
    call MPI_Info_set(info, 'mpi_assert_no_any_tag', 'true', ierr)
    call MPI_Comm_dup_with_info(d, info, c, ierr)
    call MPI_Comm_set_info(c, info, ierr)
    call use_comm(__LINE__, c)
    call MPI_Info_free(info, ierr)
    call MPI_Comm_idup(d, c, q, ierr)
    call MPI_Wait(q, MPI_STATUS_IGNORE, ierr)
    call use_comm(__LINE__, c)
#ifdef MPI4
    call MPI_Comm_idup_with_info(d, MPI_INFO_NULL, c, q, ierr)
    call MPI_Wait(q, MPI_STATUS_IGNORE, ierr)
    call use_comm(__LINE__, c)
#endif
    call MPI_Comm_split(d, 0, -me, c, ierr)
    call use_comm(__LINE__, c)
    call MPI_Comm_split(d, merge(MPI_UNDEFINED, 1, me == 0), 0, c, ierr)
    call use_comm(__LINE__, c)
    call MPI_Comm_split_type(d, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, c, ierr)
    call use_comm(__LINE__, c)
    call MPI_Comm_group(d, all, ierr)
    ranks(1) = 0
    call MPI_Group_excl(all, 1, ranks, some, ierr)
    call MPI_Comm_create(d, some, c, ierr)
    call check((c == MPI_COMM_NULL) .eqv. (me == 0), __LINE__, 'null communicator on rank', me, 0)
    call use_comm(__LINE__, c)
    call MPI_Comm_create_group(d, all, 5, c, ierr)
    call use_comm(__LINE__, c)
    call MPI_Group_free(all, ierr)
    call MPI_Group_free(some, ierr)
    call use_comm(__LINE__, d)
    call MPI_Comm_dup(MPI_COMM_WORLD, d, ierr)
    call MPI_Comm_disconnect(d, ierr)
    call ok(__LINE__, 'MPI_Comm_disconnect')
    call check(d == MPI_COMM_NULL, __LINE__, 'null communicators', 0, 1)
    call finish()
  end subroutine intracomms

  subroutine topologies()
    COMM_T :: c, d
    integer :: dims(2), i, edges(2 * np), ends(np), one(1), to(1), from(1)
    logical :: periods(2), keep(2)
    dims = [np, 1]
    periods = [.true., .false.]
    keep = [.true., .false.]
    call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, .true., c, ierr)
    call MPI_Cart_sub(c, keep, d, ierr)
    call use_comm(__LINE__, d)
    call use_comm(__LINE__, c)
    ends = [(2 * i, i = 1, np)]
    edges(1::2) = [(mod(i + np - 1, np), i = 0, np - 1)]
    edges(2::2) = [(mod(i + 1, np), i = 0, np - 1)]
    call MPI_Graph_create(MPI_COMM_WORLD, np, ends, edges, .false., c, ierr)
    call use_comm(__LINE__, c)
    one = 1
    to = right
    from = left
    call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [me], one, to, MPI_UNWEIGHTED, MPI_INFO_NULL, .false., c, &
         ierr)
    call use_comm(__LINE__, c)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, from, MPI_UNWEIGHTED, 1, to, MPI_UNWEIGHTED, &
         MPI_INFO_NULL, .false., c, ierr)
    call use_comm(__LINE__, c)
    call finish()
  end subroutine topologies

  subroutine intercomms()
    COMM_T :: mine, inter, c
    STAT_T :: st
    integer :: k, rank, n
    call MPI_Comm_split(MPI_COMM_WORLD, mod(me, 2), 0, mine, ierr)
    call MPI_Intercomm_create(mine, 0, MPI_COMM_WORLD, 1 - mod(me, 2), 6, inter, ierr)
    call ok(__LINE__, 'MPI_Intercomm_create')
    call MPI_Comm_rank(inter, rank, ierr)
    call MPI_Comm_remote_size(inter, n, ierr)
    do k = 1, 2
      if (rank >= n) exit
      call next(k)
      call MPI_Sendrecv(s, lens(k), MPI_INTEGER, rank, k, r, large, MPI_INTEGER, rank, k, inter, st, ierr)
      call status_is(__LINE__, st, rank, k, lens(k))
      call holds(__LINE__, r, lens(k), ieor(me, 1), tag)
    end do
    call MPI_Intercomm_merge(inter, mod(me, 2) == 1, c, ierr)
    call use_comm(__LINE__, c)
    call MPI_Comm_free(inter, ierr)
    call use_comm(__LINE__, mine)
    call finish()
  end subroutine intercomms

  ! calls with counts of kind MPI_COUNT_KIND
  subroutine large_counts()
#if defined(MPI4) && defined(USE_F08)
    integer(kind=MPI_COUNT_KIND) :: n, most
    integer :: k
    STAT_T :: st
    REQ_T :: q, p
    MSG_T :: m
    most = large
    do k = 1, 2
      n = lens(k)
      call next(k)
      call MPI_Irecv(r, most, MPI_INTEGER, left, tag, MPI_COMM_WORLD, q, ierr)
      call MPI_Send(s, n, MPI_INTEGER, right, tag, MPI_COMM_WORLD, ierr)
      call MPI_Wait(q, st, ierr)
      call holds(__LINE__, r, lens(k), left, tag)
      call next(k)
      call MPI_Isend(s, n, MPI_INTEGER, right, tag, MPI_COMM_WORLD, q, ierr)
      call MPI_Recv(r, most, MPI_INTEGER, left, tag, MPI_COMM_WORLD, st, ierr)
      call status_is(__LINE__, st, left, tag, lens(k))
      call MPI_Wait(q, st, ierr)
      call holds(__LINE__, r, lens(k), left, tag)
      call next(k)
      call MPI_Sendrecv(s, n, MPI_INTEGER, right, tag, r, most, MPI_INTEGER, left, tag, MPI_COMM_WORLD, &
           st, ierr)
      call holds(__LINE__, r, lens(k), left, tag)
      call next(k)
      call MPI_Send_init(s, n, MPI_INTEGER, right, tag, MPI_COMM_WORLD, q, ierr)
      call MPI_Start(q, ierr)
      call MPI_Mprobe(left, tag, MPI_COMM_WORLD, m, st, ierr)
      call MPI_Imrecv(r, most, MPI_INTEGER, m, p, ierr)
      call MPI_Wait(p, st, ierr)
      call holds(__LINE__, r, lens(k), left, tag)
      call MPI_Wait(q, st, ierr)
      call MPI_Request_free(q, ierr)
    end do
#endif
    call finish()
  end subroutine large_counts
end program f_p2p

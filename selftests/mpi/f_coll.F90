! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
! Non-blocking collectives from Fortran, each at least once with small and with large blocks, and persistent ones where the library
! has them (MPI4); compiled three times: with mpif.h (USE_MPIFH), use mpi (USE_MPI) and use mpi_f08 (USE_F08).
#include "f_harness.h"

program f_coll
  use harness
  implicit none
  integer, parameter :: small = 3, large = 20000, ranks = 8
  integer, parameter :: lens(2) = [small, large]
  integer, asynchronous, target, save :: s(ranks * large), r(ranks * large)
  integer :: ierr, n, k
  COMM_T :: ring

  call start('f_coll.F90')
  if (np > ranks) stop 2
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [np], [.true.], .false., ring, ierr)

  if (begin('barrier')) call barrier()
  if (begin('bcast')) call bcast()
  if (begin('gather')) call gather()
  if (begin('gatherv')) call gatherv()
  if (begin('scatter')) call scatter()
  if (begin('scatterv')) call scatterv()
  if (begin('allgather')) call allgather()
  if (begin('alltoall')) call alltoall()
  if (begin('alltoallw')) call alltoallw()
  if (begin('reduce')) call reduce()
  if (begin('in_place')) call in_place()
  if (begin('reduce_scatter')) call reduce_scatter()
  if (begin('scan')) call scan()
  if (begin('pairs')) call pairs()
  if (begin('neighbours')) call neighbours()
  if (begin('neighboursw')) call neighboursw()
  if (begin('completion')) call completion()
  if (begin('errors')) call errors()
#ifdef MPI4
  if (begin('persistent')) call persistent()
#endif

  call MPI_Comm_free(ring, ierr)
  call end_all()

contains

  ! element i of what `from' sends to `to'
  integer function val(i, from, to)
    integer, intent(in) :: i, from, to
    val = ieor(i * 7 + to * 4099, from * 65537)
  end function val

  subroutine ok(line, what)
    integer, intent(in) :: line
    character(len=*), intent(in) :: what
    call eq(line, what, ierr, MPI_SUCCESS)
  end subroutine ok

  subroutine next()
    n = lens(k)
    r = -1
    s = -2
  end subroutine next

  ! puts a block into the send buffer, behind `at' elements
  subroutine put(at, from, to)
    integer, intent(in) :: at, from, to
    integer :: i
    do i = 1, n
      s(at + i) = val(i, from, to)
    end do
  end subroutine put

  ! the receive buffer has it there
  subroutine has(line, at, from, to)
    integer, intent(in) :: line, at, from, to
    integer :: i
    do i = 1, n
      if (r(at + i) == val(i, from, to)) cycle
      call eq(line, 'element', r(at + i), val(i, from, to))
      exit
    end do
  end subroutine has

  subroutine done(line, q)
    integer, intent(in) :: line
    REQ_T, intent(inout) :: q
    STAT_T :: st
    call ok(line, 'start')
    call MPI_Wait(q, st, ierr)
    call ok(line, 'wait')
    call check(q == MPI_REQUEST_NULL, line, 'request after MPI_Wait', 1, 0)
  end subroutine done

  subroutine barrier()
    REQ_T :: q
    call MPI_Ibarrier(MPI_COMM_WORLD, q, ierr)
    call done(__LINE__, q)
    call finish()
  end subroutine barrier

  subroutine bcast()
    REQ_T :: q
    integer :: root, i
    do k = 1, 2
      do root = 0, np - 1
        call next()
        if (me == root) then
          do i = 1, n
            r(i) = val(i, root, 1)
          end do
        end if
        call MPI_Ibcast(r, n, MPI_INTEGER, root, MPI_COMM_WORLD, q, ierr)
        call done(__LINE__, q)
        call has(__LINE__, 0, root, 1)
        call eq(__LINE__, 'behind', r(n + 1), -1)
      end do
    end do
    call finish()
  end subroutine bcast

  subroutine gather()
    REQ_T :: q
    integer :: p
    do k = 1, 2
      call next()
      call put(0, me, 0)
      call MPI_Igather(s, n, MPI_INTEGER, r, n, MPI_INTEGER, np - 1, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      do p = 0, np - 1
        if (me == np - 1) call has(__LINE__, p * n, p, 0)
      end do
    end do
    call finish()
  end subroutine gather

  ! blocks in the opposite order
  subroutine gatherv()
    REQ_T :: q
    integer :: p, displs(0:ranks - 1), counts(0:ranks - 1)
    do k = 1, 2
      call next()
      call put(0, me, 0)
      counts = n
      do p = 0, np - 1
        displs(p) = (np - 1 - p) * n
      end do
      call MPI_Igatherv(s, n, MPI_INTEGER, r, counts, displs, MPI_INTEGER, 0, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      do p = 0, np - 1
        if (me == 0) call has(__LINE__, displs(p), p, 0)
      end do
    end do
    call finish()
  end subroutine gatherv

  subroutine scatter()
    REQ_T :: q
    integer :: p
    do k = 1, 2
      call next()
      do p = 0, np - 1
        call put(p * n, 0, p)
      end do
      call MPI_Iscatter(s, n, MPI_INTEGER, r, n, MPI_INTEGER, 0, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      call has(__LINE__, 0, 0, me)
    end do
    call finish()
  end subroutine scatter

  subroutine scatterv()
    REQ_T :: q
    integer :: p, displs(0:ranks - 1), counts(0:ranks - 1)
    do k = 1, 2
      call next()
      counts = n
      do p = 0, np - 1
        displs(p) = (np - 1 - p) * n
        call put(displs(p), 0, p)
      end do
      call MPI_Iscatterv(s, counts, displs, MPI_INTEGER, r, n, MPI_INTEGER, 0, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      call has(__LINE__, 0, 0, me)
    end do
    call finish()
  end subroutine scatterv

  ! and with vectors
  subroutine allgather()
    REQ_T :: q
    integer :: p, v, displs(0:ranks - 1), counts(0:ranks - 1)
    do k = 1, 2
      do v = 0, 1
        call next()
        call put(0, me, 0)
        counts = n
        do p = 0, np - 1
          displs(p) = p * n
          if (v == 1) displs(p) = (np - 1 - p) * n
        end do
        if (v == 0) then
          call MPI_Iallgather(s, n, MPI_INTEGER, r, n, MPI_INTEGER, MPI_COMM_WORLD, q, ierr)
        else
          call MPI_Iallgatherv(s, n, MPI_INTEGER, r, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, q, ierr)
        end if
        call done(__LINE__, q)
        do p = 0, np - 1
          call has(__LINE__, displs(p), p, 0)
        end do
      end do
    end do
    call finish()
  end subroutine allgather

  subroutine alltoall()
    REQ_T :: q
    integer :: p, v, displs(0:ranks - 1), counts(0:ranks - 1)
    do k = 1, 2
      do v = 0, 1
        call next()
        counts = n
        do p = 0, np - 1
          displs(p) = p * n
          if (v == 1) displs(p) = (np - 1 - p) * n
          call put(displs(p), me, p)
        end do
        if (v == 0) then
          call MPI_Ialltoall(s, n, MPI_INTEGER, r, n, MPI_INTEGER, MPI_COMM_WORLD, q, ierr)
        else
          call MPI_Ialltoallv(s, counts, displs, MPI_INTEGER, r, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, q, ierr)
        end if
        call done(__LINE__, q)
        do p = 0, np - 1
          call has(__LINE__, displs(p), p, me)
        end do
      end do
    end do
    call finish()
  end subroutine alltoall

  ! two kinds of types, displacements in bytes
  subroutine alltoallw()
    REQ_T :: q
    TYPE_T :: block, types(0:ranks - 1), ints(0:ranks - 1)
    integer :: p, displs(0:ranks - 1), counts(0:ranks - 1), ones(0:ranks - 1)
    do k = 1, 2
      call next()
      call MPI_Type_contiguous(n, MPI_INTEGER, block, ierr)
      call MPI_Type_commit(block, ierr)
      counts = n
      ones = 1
      do p = 0, np - 1
        types(p) = block
        ints(p) = MPI_INTEGER
        displs(p) = 4 * p * n
        call put(p * n, me, p)
      end do
      call MPI_Ialltoallw(s, ones, displs, types, r, counts, displs, ints, MPI_COMM_WORLD, q, ierr)
      call MPI_Type_free(block, ierr)
      call done(__LINE__, q)
      do p = 0, np - 1
        call has(__LINE__, p * n, p, me)
      end do
    end do
    call finish()
  end subroutine alltoallw

  ! what all ranks from 0 to `last' have in element i, in sum
  integer function total(i, last)
    integer, intent(in) :: i, last
    integer :: p
    total = 0
    do p = 0, last
      total = total + mod(i * 3 + p * 5, 1000)
    end do
  end function total

  subroutine contribute()
    integer :: i
    do i = 1, size(s)
      s(i) = mod(i * 3 + me * 5, 1000)
    end do
  end subroutine contribute

  subroutine sums(line, m, first, last)
    integer, intent(in) :: line, m, first, last
    integer :: i
    do i = 1, m
      if (r(i) == total(first + i, last)) cycle
      call eq(line, 'sum', r(i), total(first + i, last))
      exit
    end do
  end subroutine sums

  subroutine reduce()
    REQ_T :: q, q2
    do k = 1, 2
      call next()
      call contribute()
      call MPI_Ireduce(s, r, n, MPI_INTEGER, MPI_SUM, np - 1, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      if (me == np - 1) call sums(__LINE__, n, 0, np - 1)
      r = -1
      call MPI_Iallreduce(s, r, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, q, ierr)
      call MPI_Ibarrier(MPI_COMM_WORLD, q2, ierr)
      call done(__LINE__, q2)
      call done(__LINE__, q)
      call sums(__LINE__, n, 0, np - 1)
      call eq(__LINE__, 'behind', r(n + 1), -1)
    end do
    call finish()
  end subroutine reduce

  subroutine in_place()
    REQ_T :: q
    integer :: p, i
    do k = 1, 2
      call next()
      call contribute()
      r = s
      call MPI_Iallreduce(MPI_IN_PLACE, r, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      call sums(__LINE__, n, 0, np - 1)
      r = -1
      do i = 1, n
        r(me * n + i) = val(i, me, 0)
      end do
      call MPI_Iallgather(MPI_IN_PLACE, 0, MPI_INTEGER, r, n, MPI_INTEGER, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      do p = 0, np - 1
        call has(__LINE__, p * n, p, 0)
      end do
    end do
    call finish()
  end subroutine in_place

  subroutine reduce_scatter()
    REQ_T :: q
    integer :: p, counts(0:ranks - 1)
    do k = 1, 2
      call next()
      call contribute()
      call MPI_Ireduce_scatter_block(s, r, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      call sums(__LINE__, n, me * n, np - 1)
      do p = 0, np - 1
        counts(p) = n - p
      end do
      r = -1
      call MPI_Ireduce_scatter(s, r, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      call sums(__LINE__, n - me, sum(counts(0:me - 1)), np - 1)
      call eq(__LINE__, 'behind', r(n - me + 1), -1)
    end do
    call finish()
  end subroutine reduce_scatter

  subroutine scan()
    REQ_T :: q
    do k = 1, 2
      call next()
      call contribute()
      call MPI_Iscan(s, r, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      call sums(__LINE__, n, 0, me)
      call MPI_Iexscan(s, r, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, q, ierr)
      call done(__LINE__, q)
      if (me > 0) call sums(__LINE__, n, 0, me - 1)
    end do
    call finish()
  end subroutine scan

  ! types that only Fortran has
  subroutine pairs()
    REQ_T :: q
    integer, asynchronous, save :: a(2), b(2)
    double precision, asynchronous, save :: c(4), d(4)
    complex, asynchronous, save :: e(2), f(2)
    logical, asynchronous, save :: g, h
    a = [me, 10 + me]
    call MPI_Iallreduce(a, b, 1, MPI_2INTEGER, MPI_MAXLOC, MPI_COMM_WORLD, q, ierr)
    call done(__LINE__, q)
    call eq(__LINE__, 'largest', b(1), np - 1)
    call eq(__LINE__, 'where', b(2), 10 + np - 1)
    c = [-1d0 * me, 1d0 + me, 2d0 * me, 7d0]
    call MPI_Iallreduce(c, d, 2, MPI_2DOUBLE_PRECISION, MPI_MINLOC, MPI_COMM_WORLD, q, ierr)
    call done(__LINE__, q)
    call eq(__LINE__, 'smallest', int(d(1)), 1 - np)
    call eq(__LINE__, 'where', int(d(2)), np)
    call eq(__LINE__, 'smallest', int(d(3)), 0)
    call eq(__LINE__, 'where', int(d(4)), 7)
    e = [cmplx(me, 1), cmplx(2, me)]
    call MPI_Iallreduce(e, f, 2, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, q, ierr)
    call done(__LINE__, q)
    call eq(__LINE__, 'real part', int(real(f(1))), np * (np - 1) / 2)
    call eq(__LINE__, 'imaginary part', int(aimag(f(1))), np)
    call eq(__LINE__, 'imaginary part', int(aimag(f(2))), np * (np - 1) / 2)
    g = me == 1
    call MPI_Iallreduce(g, h, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, q, ierr)
    call done(__LINE__, q)
    call check(h .eqv. np > 1, __LINE__, 'or', 0, 1)
    call MPI_Iallreduce(g, h, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, q, ierr)
    call done(__LINE__, q)
    call check(.not. h, __LINE__, 'and', 1, 0)
    call finish()
  end subroutine pairs

  ! on a ring, of three or more: what comes from the left, then from the right
  subroutine neighbours()
    REQ_T :: q
    integer :: counts(2), displs(2)
    if (np > 2) then
      do k = 1, 2
        call next()
        counts = n
        displs = [n, 0]
        call put(0, me, left)
        call put(n, me, right)
        call MPI_Ineighbor_allgather(s, n, MPI_INTEGER, r, n, MPI_INTEGER, ring, q, ierr)
        call done(__LINE__, q)
        call has(__LINE__, 0, left, modulo(left - 1, np))
        call has(__LINE__, n, right, modulo(right - 1, np))
        call MPI_Ineighbor_allgatherv(s, n, MPI_INTEGER, r, counts, displs, MPI_INTEGER, ring, q, ierr)
        call done(__LINE__, q)
        call has(__LINE__, n, left, modulo(left - 1, np))
        call has(__LINE__, 0, right, modulo(right - 1, np))
        call MPI_Ineighbor_alltoall(s, n, MPI_INTEGER, r, n, MPI_INTEGER, ring, q, ierr)
        call done(__LINE__, q)
        call has(__LINE__, 0, left, me)
        call has(__LINE__, n, right, me)
        call MPI_Ineighbor_alltoallv(s, counts, [0, n], MPI_INTEGER, r, counts, displs, MPI_INTEGER, ring, q, ierr)
        call done(__LINE__, q)
        call has(__LINE__, n, left, me)
        call has(__LINE__, 0, right, me)
      end do
    end if
    call finish()
  end subroutine neighbours

  ! the same ring as a graph: MPICH's mpi_f08 asks any topology as if it were one
  subroutine neighboursw()
    COMM_T :: graph
    REQ_T :: q
    integer :: counts(2)
    TYPE_T :: types(2)
    integer(MPI_ADDRESS_KIND) :: displs(2), bytes(2)
    if (np > 2) then
      call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, [left, right], [1, 1], 2, [left, right], [1, 1], &
           MPI_INFO_NULL, .false., graph, ierr)
      do k = 1, 2
        call next()
        counts = n
        types = [MPI_INTEGER, MPI_INTEGER]
        displs = [0, 4 * n]
        bytes = [4 * n, 0]
        call put(0, me, left)
        call put(n, me, right)
        call MPI_Ineighbor_alltoallw(s, counts, displs, types, r, counts, bytes, types, graph, q, ierr)
        call done(__LINE__, q)
        call has(__LINE__, n, left, me)
        call has(__LINE__, 0, right, me)
      end do
      call MPI_Comm_free(graph, ierr)
    end if
    call finish()
  end subroutine neighboursw

  subroutine completion()
    integer, parameter :: many = 9
    REQ_T :: q(many)
    STATS_T(many) :: sts
    STAT_T :: st
    integer, asynchronous, save :: v(many), w(many)
    integer :: i, how, which(many), some, left_over
    logical :: flag
    do how = 1, 5
      v = [(me + i, i = 1, many)]
      w = -1
      do i = 1, many
        call MPI_Iallreduce(v(i), w(i), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, q(i), ierr)
        call ok(__LINE__, 'start')
      end do
      left_over = many
      do while (left_over > 0)
        flag = .false.
        some = 1
        if (how == 1) then
          call MPI_Waitall(many, q, sts, ierr)
          left_over = 0
        else if (how == 2) then
          call MPI_Waitany(many, q, i, st, ierr)
        else if (how == 3) then
          call MPI_Testsome(many, q, some, which, sts, ierr)
        else if (how == 4) then
          call MPI_Testany(many, q, i, flag, st, ierr)
          if (.not. flag) some = 0
        else
          call MPI_Testall(many, q, flag, MPI_STATUSES_IGNORE, ierr)
          some = 0
          if (flag) left_over = 0
        end if
        call ok(__LINE__, 'completion')
        left_over = left_over - some
      end do
      do i = 1, many
        call eq(__LINE__, 'sum', w(i), np * i + np * (np - 1) / 2)
        call check(q(i) == MPI_REQUEST_NULL, __LINE__, 'request', 1, 0)
      end do
    end do
    call finish()
  end subroutine completion

  subroutine errors()
    REQ_T :: q
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
    call MPI_Ibcast(r, 1, MPI_INTEGER, np, MPI_COMM_WORLD, q, ierr)
    call class_is(__LINE__, 'root', ierr, MPI_ERR_ROOT)
    call MPI_Ibcast(r, -1, MPI_INTEGER, 0, MPI_COMM_WORLD, q, ierr)
    call class_is(__LINE__, 'count', ierr, MPI_ERR_COUNT)
    call MPI_Iallreduce(s, r, 1, MPI_INTEGER, MPI_OP_NULL, MPI_COMM_WORLD, q, ierr)
    call class_is(__LINE__, 'operation', ierr, MPI_ERR_OP)
    call MPI_Ibarrier(MPI_COMM_WORLD, q, ierr)
    call done(__LINE__, q)
    call finish()
  end subroutine errors

#ifdef MPI4
  subroutine persistent()
    REQ_T :: q(4)
    integer :: run, i, p
    integer, asynchronous, save :: b(5), g(5 * ranks)
    n = small
    call MPI_Allreduce_init(s, r, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, q(1), ierr)
    call ok(__LINE__, 'allreduce_init')
    call MPI_Bcast_init(b, 5, MPI_INTEGER, np - 1, MPI_COMM_WORLD, MPI_INFO_NULL, q(2), ierr)
    call ok(__LINE__, 'bcast_init')
    call MPI_Alltoall_init(s, n, MPI_INTEGER, g, n, MPI_INTEGER, MPI_COMM_WORLD, MPI_INFO_NULL, q(3), ierr)
    call ok(__LINE__, 'alltoall_init')
    call MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, q(4), ierr)
    call ok(__LINE__, 'barrier_init')
    do run = 1, 3
      r = -1
      g = -1
      call contribute()
      b = -1
      if (me == np - 1) b = run
      if (run == 2) then
        call MPI_Startall(4, q, ierr)
      else
        do i = 1, 4
          call MPI_Start(q(i), ierr)
          call ok(__LINE__, 'start')
        end do
      end if
      call MPI_Waitall(4, q, MPI_STATUSES_IGNORE, ierr)
      call ok(__LINE__, 'waitall')
      call sums(__LINE__, n, 0, np - 1)
      call eq(__LINE__, 'broadcast', b(5), run)
      do p = 0, np - 1
        call eq(__LINE__, 'block', g(p * n + n), mod((me * n + n) * 3 + p * 5, 1000))
      end do
    end do
    do i = 1, 4
      call MPI_Request_free(q(i), ierr)
      call ok(__LINE__, 'request_free')
    end do
    call finish()
  end subroutine persistent
#endif
end program f_coll

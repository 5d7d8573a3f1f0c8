! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
! One-sided calls from Fortran, compiled three times: with mpif.h (USE_MPIFH), use mpi (USE_MPI) and
! use mpi_f08 (USE_F08).
#include "f_harness.h"

#ifdef USE_F08
subroutine on_error(w, err)
#else
subroutine on_error(w, err)
#endif
  use harness
  implicit none
  WIN_T :: w
  integer :: err
  integer :: ierr
  eh_calls = eh_calls + 1
  call MPI_Error_class(err, eh_class, ierr)
end subroutine on_error

subroutine on_delete(w, key, val, extra, ierr)
  use harness
  implicit none
  WIN_T :: w
  integer :: key, ierr
  integer(kind=MPI_ADDRESS_KIND) :: val, extra
  delete_calls = delete_calls + 1
  ierr = MPI_SUCCESS
  if (val /= 4711_MPI_ADDRESS_KIND .or. extra /= 99_MPI_ADDRESS_KIND) delete_calls = -1000
end subroutine on_delete

program f_rma
  use harness
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: ierr

  call start('f_rma.F90')

  if (begin('fence_put_get')) call fence_put_get()
  if (begin('allocate')) call allocate_win()
  if (begin('shared')) call shared_win()
  if (begin('dynamic')) call dynamic_win()
  if (begin('attributes')) call attributes()
  if (begin('keyvals')) call keyvals()
  if (begin('error_return')) call error_return()
  if (begin('error_handler')) call error_handler()
  if (begin('passive')) call passive()
  if (begin('pscw')) call pscw()
  if (begin('accumulates')) call accumulates()
  if (begin('fetching')) call fetching()
  if (begin('requests')) call requests()
  if (begin('request_index')) call request_index()
  if (begin('derived')) call derived()
  if (begin('bottom')) call bottom()
  if (begin('alloc_mem')) call alloc_mem()
  if (begin('name')) call name()
  if (begin('info_group')) call info_group()

  call end_all()

contains

  ! window over a Fortran array, displacement unit 4, made by every test that needs just one
  subroutine make(w, a)
    WIN_T, intent(out) :: w
    integer, intent(inout), asynchronous, target :: a(:)
    integer(kind=MPI_ADDRESS_KIND) :: bytes
    bytes = size(a) * 4
    a = 0
    call MPI_Win_create(a, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, w, ierr)
    call eq(__LINE__, 'MPI_Win_create', ierr, MPI_SUCCESS)
    call MPI_Win_set_errhandler(w, MPI_ERRORS_RETURN, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end subroutine make

  subroutine fence_put_get()
    integer, asynchronous, target :: a(100), v(10), g(10)
    WIN_T :: w
    integer :: i
    integer(kind=MPI_ADDRESS_KIND) :: d
    call make(w, a)
    v = [(1000 * me + i, i = 1, 10)]
    g = -1
    d = 20
    call MPI_Win_fence(MPI_MODE_NOPRECEDE, w, ierr)
    call MPI_Put(v, 10, MPI_INTEGER, right, d, 10, MPI_INTEGER, w, ierr)
    call eq(__LINE__, 'MPI_Put', ierr, MPI_SUCCESS)
    call MPI_Win_fence(0, w, ierr)
    do i = 1, 10
      call eq(__LINE__, 'a(20+i)', a(20 + i), 1000 * left + i)
    end do
    call MPI_Get(g, 10, MPI_INTEGER, right, d, 10, MPI_INTEGER, w, ierr)
    call MPI_Win_fence(MPI_MODE_NOSUCCEED, w, ierr)
    do i = 1, 10
      call eq(__LINE__, 'g(i)', g(i), 1000 * me + i)
    end do
    call MPI_Win_free(w, ierr)
    call eq(__LINE__, 'MPI_Win_free', ierr, MPI_SUCCESS)
    call finish()
  end subroutine fence_put_get

  subroutine allocate_win()
#ifdef USE_F08
    type(c_ptr) :: base
#else
    integer(kind=MPI_ADDRESS_KIND) :: base
#endif
    real(8), pointer :: p(:)
    real(8), asynchronous :: v
    integer(kind=MPI_ADDRESS_KIND) :: bytes, d
    WIN_T :: w
    bytes = 64 * 8
    call MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, base, w, ierr)
    call eq(__LINE__, 'MPI_Win_allocate', ierr, MPI_SUCCESS)
#ifdef USE_F08
    call c_f_pointer(base, p, [64])
#else
    call c_f_pointer(transfer(base, c_null_ptr), p, [64])
#endif
    p = 0
    d = 63
    v = 2.5d0 * (me + 1)
    call MPI_Win_fence(0, w, ierr)
    call MPI_Put(v, 1, MPI_DOUBLE_PRECISION, right, d, 1, MPI_DOUBLE_PRECISION, w, ierr)
    call MPI_Win_fence(0, w, ierr)
    call check(p(64) == 2.5d0 * (left + 1), __LINE__, 'p(64)', int(p(64) * 10), 25 * (left + 1))
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine allocate_win

  subroutine shared_win()
#ifdef USE_F08
    type(c_ptr) :: base, other
#else
    integer(kind=MPI_ADDRESS_KIND) :: base, other
#endif
    integer, pointer :: p(:), q(:)
    integer(kind=MPI_ADDRESS_KIND) :: bytes
    integer :: unit, nr, nn
    COMM_T :: node
    WIN_T :: w
    call MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, node, ierr)
    call MPI_Comm_rank(node, nr, ierr)
    call MPI_Comm_size(node, nn, ierr)
    bytes = 64
    call MPI_Win_allocate_shared(bytes, 4, MPI_INFO_NULL, node, base, w, ierr)
    call eq(__LINE__, 'MPI_Win_allocate_shared', ierr, MPI_SUCCESS)
    call MPI_Win_shared_query(w, mod(nr + 1, nn), bytes, unit, other, ierr)
    call eq(__LINE__, 'size', int(bytes), 64)
    call eq(__LINE__, 'unit', unit, 4)
#ifdef USE_F08
    call c_f_pointer(base, p, [16])
    call c_f_pointer(other, q, [16])
#else
    call c_f_pointer(transfer(base, c_null_ptr), p, [16])
    call c_f_pointer(transfer(other, c_null_ptr), q, [16])
#endif
    call MPI_Win_fence(0, w, ierr)
    p = 70 + nr
    call MPI_Win_fence(0, w, ierr)
    call eq(__LINE__, 'q(16)', q(16), 70 + mod(nr + 1, nn))
    call MPI_Win_fence(0, w, ierr)
    call MPI_Win_free(w, ierr)
    call MPI_Comm_free(node, ierr)
    call finish()
  end subroutine shared_win

  subroutine dynamic_win()
    integer, asynchronous, target :: a(32), v
    integer(kind=MPI_ADDRESS_KIND) :: mine, theirs, bytes
    WIN_T :: w
    STAT_T :: st
    a = 0
    v = 5 + me
    call MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, w, ierr)
    call eq(__LINE__, 'MPI_Win_create_dynamic', ierr, MPI_SUCCESS)
    bytes = 128
    call MPI_Win_attach(w, a, bytes, ierr)
    call eq(__LINE__, 'MPI_Win_attach', ierr, MPI_SUCCESS)
    call MPI_Get_address(a(32), mine, ierr)
    call MPI_Sendrecv(mine, 1, MPI_AINT, left, 1, theirs, 1, MPI_AINT, right, 1, MPI_COMM_WORLD, st, &
         ierr)
    call MPI_Win_fence(0, w, ierr)
    call MPI_Put(v, 1, MPI_INTEGER, right, theirs, 1, MPI_INTEGER, w, ierr)
    call MPI_Win_fence(0, w, ierr)
    call eq(__LINE__, 'a(32)', a(32), 5 + left)
    call MPI_Win_detach(w, a, ierr)
    call eq(__LINE__, 'MPI_Win_detach', ierr, MPI_SUCCESS)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine dynamic_win

  subroutine attributes()
    integer, asynchronous, target :: a(16)
    integer(kind=MPI_ADDRESS_KIND) :: v, addr
    logical :: flag
    WIN_T :: w
    call make(w, a)
    call MPI_Win_get_attr(w, MPI_WIN_SIZE, v, flag, ierr)
    call check(flag, __LINE__, 'flag of MPI_WIN_SIZE', 0, 1)
    call eq(__LINE__, 'MPI_WIN_SIZE', int(v), 64)
    call MPI_Win_get_attr(w, MPI_WIN_DISP_UNIT, v, flag, ierr)
    call eq(__LINE__, 'MPI_WIN_DISP_UNIT', int(v), 4)
    call MPI_Win_get_attr(w, MPI_WIN_BASE, v, flag, ierr)
    call MPI_Get_address(a, addr, ierr)
    call check(v == addr, __LINE__, 'MPI_WIN_BASE, low bits', int(iand(v, 65535_8)), &
         int(iand(addr, 65535_8)))
    call MPI_Win_get_attr(w, MPI_WIN_CREATE_FLAVOR, v, flag, ierr)
    call eq(__LINE__, 'MPI_WIN_CREATE_FLAVOR', int(v), MPI_WIN_FLAVOR_CREATE)
    call MPI_Win_get_attr(w, MPI_WIN_MODEL, v, flag, ierr)
    call check(v == MPI_WIN_UNIFIED .or. v == MPI_WIN_SEPARATE, __LINE__, 'MPI_WIN_MODEL', int(v), &
         MPI_WIN_UNIFIED)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine attributes

  subroutine keyvals()
    integer, asynchronous, target :: a(16)
    integer :: key
    integer(kind=MPI_ADDRESS_KIND) :: v, extra
    logical :: flag
    WIN_T :: w
#ifdef USE_F08
    procedure(MPI_Win_delete_attr_function) :: on_delete
#else
    external :: on_delete
#endif
    call make(w, a)
    extra = 99
    delete_calls = 0
    call MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete, key, extra, ierr)
    v = 4711
    call MPI_Win_set_attr(w, key, v, ierr)
    v = 0
    call MPI_Win_get_attr(w, key, v, flag, ierr)
    call check(flag, __LINE__, 'flag', 0, 1)
    call eq(__LINE__, 'value', int(v), 4711)
    call MPI_Win_free_keyval(key, ierr)
    call MPI_Win_free(w, ierr)
    call eq(__LINE__, 'delete callbacks', delete_calls, 1)
    call finish()
  end subroutine keyvals

  subroutine error_return()
    integer, asynchronous, target :: a(16), v
    integer :: err, e2
    integer(kind=MPI_ADDRESS_KIND) :: d
    WIN_T :: w
    call make(w, a)
    d = 0
    v = 3
    call MPI_Win_fence(0, w, ierr)
    call MPI_Put(v, 1, MPI_INTEGER, np, d, 1, MPI_INTEGER, w, err)
    call class_is(__LINE__, 'put to a rank that is not there', err, MPI_ERR_RANK)
    call MPI_Get(v, -1, MPI_INTEGER, right, d, 1, MPI_INTEGER, w, err)
    call class_is(__LINE__, 'get with a negative count', err, MPI_ERR_COUNT)
    call MPI_Put(v, 1, MPI_DATATYPE_NULL, right, d, 1, MPI_INTEGER, w, err)
    call class_is(__LINE__, 'put without a type', err, MPI_ERR_TYPE)
    call MPI_Win_fence(MPI_MODE_NOSUCCEED, w, ierr)
    call MPI_Win_unlock(right, w, err)
    call class_is(__LINE__, 'unlock without lock', err, MPI_ERR_RMA_SYNC)
    call MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w, e2)
    call MPI_Put(v, 1, MPI_INTEGER, right, d, 1, MPI_INTEGER, w, e2)
    call MPI_Win_unlock(right, w, e2)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w, ierr)
    call eq(__LINE__, 'a(1)', a(1), 3)
    call MPI_Win_unlock(me, w, ierr)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine error_return

  subroutine error_handler()
    integer, asynchronous, target :: a(16), v
    integer :: err
    integer(kind=MPI_ADDRESS_KIND) :: d
    WIN_T :: w
    ERRH_T :: eh
#ifdef USE_F08
    procedure(MPI_Win_errhandler_function) :: on_error
#else
    external :: on_error
#endif
    call make(w, a)
    call MPI_Win_create_errhandler(on_error, eh, ierr)
    call MPI_Win_set_errhandler(w, eh, ierr)
    call MPI_Errhandler_free(eh, ierr)
    d = 0
    v = 1
    eh_calls = 0
    call MPI_Win_fence(0, w, ierr)
    call MPI_Put(v, 1, MPI_INTEGER, np + 5, d, 1, MPI_INTEGER, w, err)
    call class_is(__LINE__, 'put', err, MPI_ERR_RANK)
    call eq(__LINE__, 'calls of the handler', eh_calls, 1)
    call eq(__LINE__, 'class in the handler', eh_class, MPI_ERR_RANK)
    call MPI_Win_fence(0, w, ierr)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine error_handler

  subroutine passive()
    integer, asynchronous, target :: a(16), v, g
    integer :: i
    integer(kind=MPI_ADDRESS_KIND) :: d
    WIN_T :: w
    call make(w, a)
    d = 7
    do i = 1, 50
      call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w, ierr)
      call MPI_Get(g, 1, MPI_INTEGER, 0, d, 1, MPI_INTEGER, w, ierr)
      call MPI_Win_flush(0, w, ierr)
      v = g + 1
      call MPI_Put(v, 1, MPI_INTEGER, 0, d, 1, MPI_INTEGER, w, ierr)
      call MPI_Win_unlock(0, w, ierr)
    end do
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_lock_all(0, w, ierr)
    call MPI_Get(g, 1, MPI_INTEGER, 0, d, 1, MPI_INTEGER, w, ierr)
    call MPI_Win_flush_local(0, w, ierr)
    call eq(__LINE__, 'counter', g, 50 * np)
    call MPI_Win_flush_all(w, ierr)
    call MPI_Win_flush_local_all(w, ierr)
    call MPI_Win_sync(w, ierr)
    call eq(__LINE__, 'MPI_Win_sync', ierr, MPI_SUCCESS)
    call MPI_Win_unlock_all(w, ierr)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine passive

  subroutine pscw()
    integer, asynchronous, target :: a(16), v
    integer(kind=MPI_ADDRESS_KIND) :: d
    logical :: flag
    integer :: i
    WIN_T :: w
    GROUP_T :: g
    call make(w, a)
    call MPI_Win_get_group(w, g, ierr)
    do i = 1, 10
      v = i * 10 + me
      d = 2
      call MPI_Win_post(g, 0, w, ierr)
      call MPI_Win_start(g, 0, w, ierr)
      call MPI_Put(v, 1, MPI_INTEGER, right, d, 1, MPI_INTEGER, w, ierr)
      call MPI_Win_complete(w, ierr)
      if (mod(i, 2) == 0) then
        call MPI_Win_wait(w, ierr)
      else
        flag = .false.
        do while (.not. flag)
          call MPI_Win_test(w, flag, ierr)
        end do
      end if
      call eq(__LINE__, 'a(3)', a(3), i * 10 + left)
    end do
    call MPI_Group_free(g, ierr)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine pscw

  subroutine accumulates()
    double complex, asynchronous, target :: c(4), z(4)
    logical, asynchronous, target :: lg(4), lt
    integer(kind=MPI_ADDRESS_KIND) :: d, bytes
    WIN_T :: w, w2
    integer :: i
    c = (0d0, 0d0)
    lg = .false.
    bytes = 64
    call MPI_Win_create(c, bytes, 16, MPI_INFO_NULL, MPI_COMM_WORLD, w, ierr)
    bytes = 16
    call MPI_Win_create(lg, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, w2, ierr)
    z = (1d0, -2d0)
    lt = .true.
    d = 0
    call MPI_Win_fence(0, w, ierr)
    call MPI_Win_fence(0, w2, ierr)
    do i = 0, np - 1
      call MPI_Accumulate(z, 4, MPI_DOUBLE_COMPLEX, i, d, 4, MPI_DOUBLE_COMPLEX, MPI_SUM, w, ierr)
    end do
    d = 2
    call MPI_Accumulate(lt, 1, MPI_LOGICAL, right, d, 1, MPI_LOGICAL, MPI_LOR, w2, ierr)
    call eq(__LINE__, 'MPI_Accumulate', ierr, MPI_SUCCESS)
    call MPI_Win_fence(0, w, ierr)
    call MPI_Win_fence(0, w2, ierr)
    do i = 1, 4
      call check(c(i) == np * (1d0, -2d0), __LINE__, 'real part', int(dble(c(i))), np)
    end do
    call check(lg(3) .and. .not. lg(1), __LINE__, 'logical', merge(1, 0, lg(3)), 1)
    call MPI_Win_free(w, ierr)
    call MPI_Win_free(w2, ierr)
    call finish()
  end subroutine accumulates

  subroutine fetching()
    integer, asynchronous, target :: a(16), one, old, was, cmp, new
    integer(kind=MPI_ADDRESS_KIND) :: d
    WIN_T :: w
    call make(w, a)
    one = 1
    old = -1
    d = 4
    call MPI_Win_lock_all(0, w, ierr)
    call MPI_Fetch_and_op(one, old, MPI_INTEGER, 0, d, MPI_SUM, w, ierr)
    call MPI_Win_flush(0, w, ierr)
    call check(old >= 0 .and. old < np, __LINE__, 'ticket', old, np)
    d = 5
    cmp = 0
    new = 7 + me
    was = -1
    call MPI_Compare_and_swap(new, cmp, was, MPI_INTEGER, right, d, w, ierr)
    call MPI_Win_flush(right, w, ierr)
    call eq(__LINE__, 'CAS result', was, 0)
    d = 6
    old = -1
    call MPI_Get_accumulate(new, 1, MPI_INTEGER, old, 1, MPI_INTEGER, right, d, 1, MPI_INTEGER, &
         MPI_REPLACE, w, ierr)
    call MPI_Win_unlock_all(w, ierr)
    call eq(__LINE__, 'fetched', old, 0)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w, ierr)
    call eq(__LINE__, 'a(6)', a(6), 7 + left)
    call eq(__LINE__, 'a(7)', a(7), 7 + left)
    if (me == 0) call eq(__LINE__, 'a(5)', a(5), np)
    call MPI_Win_unlock(me, w, ierr)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine fetching

  subroutine requests()
    integer, asynchronous, target :: a(64), v(4), g(4), msg, inmsg
    integer(kind=MPI_ADDRESS_KIND) :: d
    integer :: i
    logical :: flag
    WIN_T :: w
    REQ_T :: q(6)
    STATS_T(6) :: sts
    STAT_T :: st
    call make(w, a)
    call MPI_Win_lock_all(0, w, ierr)
    v = [(me * 100 + i, i = 1, 4)]
    d = 8
    call MPI_Rput(v, 4, MPI_INTEGER, right, d, 4, MPI_INTEGER, w, q(1), ierr)
    call MPI_Wait(q(1), st, ierr)
    call eq(__LINE__, 'MPI_Wait', ierr, MPI_SUCCESS)
    call check(q(1) == MPI_REQUEST_NULL, __LINE__, 'request after MPI_Wait', 0, 1)
    call MPI_Win_flush(right, w, ierr)
    g = -1
    call MPI_Rget(g, 4, MPI_INTEGER, right, d, 4, MPI_INTEGER, w, q(1), ierr)
    flag = .false.
    do while (.not. flag)
      call MPI_Test(q(1), flag, MPI_STATUS_IGNORE, ierr)
    end do
    do i = 1, 4
      call eq(__LINE__, 'g(i)', g(i), me * 100 + i)
    end do
    ! one- and two-sided requests and a null one in one array
    msg = 900 + me
    inmsg = -1
    g = -1
    call MPI_Irecv(inmsg, 1, MPI_INTEGER, left, 3, MPI_COMM_WORLD, q(1), ierr)
    call MPI_Rget(g, 2, MPI_INTEGER, right, d, 2, MPI_INTEGER, w, q(2), ierr)
    q(3) = MPI_REQUEST_NULL
    call MPI_Isend(msg, 1, MPI_INTEGER, right, 3, MPI_COMM_WORLD, q(4), ierr)
    d = 20
    call MPI_Raccumulate(msg, 1, MPI_INTEGER, right, d, 1, MPI_INTEGER, MPI_SUM, w, q(5), ierr)
    call MPI_Rget_accumulate(msg, 1, MPI_INTEGER, g(4), 1, MPI_INTEGER, right, d + 1, 1, MPI_INTEGER, &
         MPI_SUM, w, q(6), ierr)
    call MPI_Waitall(6, q, sts, ierr)
    call eq(__LINE__, 'source of the message', STS_SOURCE(sts, 1), left)
    call eq(__LINE__, 'source of the null request', STS_SOURCE(sts, 3), MPI_ANY_SOURCE)
    call eq(__LINE__, 'inmsg', inmsg, 900 + left)
    call eq(__LINE__, 'g(2)', g(2), me * 100 + 2)
    call eq(__LINE__, 'g(4)', g(4), 0)
    call MPI_Testall(6, q, flag, MPI_STATUSES_IGNORE, ierr)
    call check(flag, __LINE__, 'MPI_Testall of null requests', 0, 1)
    call MPI_Win_unlock_all(w, ierr)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine requests

  ! indices count from one, except with MPICH's mpi_f08 binding, which passes on those of C: then ours
  ! are as its own
  subroutine request_index()
    integer, asynchronous, target :: a(64), g(4)
    integer(kind=MPI_ADDRESS_KIND) :: d
    integer :: i, idx, n, idxs(6), first
    WIN_T :: w
    REQ_T :: q(6)
    STAT_T :: st
    call MPI_Irecv(g(1), 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, q(1), ierr)
    call MPI_Waitany(1, q, first, st, ierr)
#ifndef USE_F08
    call eq(__LINE__, 'index of a native request', first, 1)
#endif
    call make(w, a)
    call MPI_Win_lock_all(0, w, ierr)
    d = 8
    do i = 1, 6
      call MPI_Rget(g(1), 1, MPI_INTEGER, right, d, 1, MPI_INTEGER, w, q(i), ierr)
      if (i < 6) call MPI_Wait(q(i), MPI_STATUS_IGNORE, ierr)
    end do
    call MPI_Waitany(6, q, idx, st, ierr)
    call eq(__LINE__, 'index of MPI_Waitany', idx, first + 5)
    call MPI_Rget(g(1), 1, MPI_INTEGER, right, d, 1, MPI_INTEGER, w, q(2), ierr)
    call MPI_Waitsome(6, q, n, idxs, MPI_STATUSES_IGNORE, ierr)
    call eq(__LINE__, 'count of MPI_Waitsome', n, 1)
    call eq(__LINE__, 'index of MPI_Waitsome', idxs(1), first + 1)
    call MPI_Win_unlock_all(w, ierr)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine request_index

  subroutine derived()
    integer, asynchronous, target :: a(20), v(4)
    integer(kind=MPI_ADDRESS_KIND) :: d
    integer :: i, j, want
    TYPE_T :: block
    WIN_T :: w
    call make(w, a)
    ! rows 2..3, columns 3..4 of a(4,5) in Fortran order
    call MPI_Type_create_subarray(2, [4, 5], [2, 2], [1, 2], MPI_ORDER_FORTRAN, MPI_INTEGER, block, &
         ierr)
    call MPI_Type_commit(block, ierr)
    v = [(me * 10 + i, i = 1, 4)]
    d = 0
    call MPI_Win_fence(0, w, ierr)
    call MPI_Put(v, 4, MPI_INTEGER, right, d, 1, block, w, ierr)
    call MPI_Type_free(block, ierr)
    call MPI_Win_fence(0, w, ierr)
    do j = 1, 5
      do i = 1, 4
        want = 0
        if (i >= 2 .and. i <= 3 .and. j >= 3 .and. j <= 4) want = left * 10 + (j - 3) * 2 + i - 1
        call eq(__LINE__, 'element', a((j - 1) * 4 + i), want)
      end do
    end do
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine derived

  subroutine bottom()
    integer, asynchronous, target :: a(16), x, y
    integer(kind=MPI_ADDRESS_KIND) :: d, addr(2)
    TYPE_T :: abs_type
    WIN_T :: w
    call make(w, a)
    x = 31 + me
    y = 41 + me
    call MPI_Get_address(x, addr(1), ierr)
    call MPI_Get_address(y, addr(2), ierr)
    call MPI_Type_create_hindexed(2, [1, 1], addr, MPI_INTEGER, abs_type, ierr)
    call MPI_Type_commit(abs_type, ierr)
    d = 10
    call MPI_Win_fence(0, w, ierr)
    call MPI_Put(MPI_BOTTOM, 1, abs_type, right, d, 2, MPI_INTEGER, w, ierr)
    call MPI_Win_fence(0, w, ierr)
    call eq(__LINE__, 'a(11)', a(11), 31 + left)
    call eq(__LINE__, 'a(12)', a(12), 41 + left)
    call MPI_Get(MPI_BOTTOM, 1, abs_type, me, d, 2, MPI_INTEGER, w, ierr)
    call MPI_Win_fence(0, w, ierr)
    call MPI_F_sync_values(x, y)
    call eq(__LINE__, 'x', x, 31 + left)
    call eq(__LINE__, 'y', y, 41 + left)
    call MPI_Type_free(abs_type, ierr)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine bottom

  ! keeps the compiler from holding the values in registers
  subroutine MPI_F_sync_values(x, y)
    integer, volatile :: x, y
    x = x
    y = y
  end subroutine MPI_F_sync_values

  subroutine alloc_mem()
#ifdef USE_F08
    type(c_ptr) :: base
#else
    integer(kind=MPI_ADDRESS_KIND) :: base
#endif
    integer, pointer, asynchronous :: p(:)
    integer(kind=MPI_ADDRESS_KIND) :: bytes, d
    WIN_T :: w
    bytes = 4000
    call MPI_Alloc_mem(bytes, MPI_INFO_NULL, base, ierr)
    call eq(__LINE__, 'MPI_Alloc_mem', ierr, MPI_SUCCESS)
#ifdef USE_F08
    call c_f_pointer(base, p, [1000])
#else
    call c_f_pointer(transfer(base, c_null_ptr), p, [1000])
#endif
    p = me
    call MPI_Win_create(p, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, w, ierr)
    d = 500
    call MPI_Win_fence(0, w, ierr)
    call MPI_Put(p, 500, MPI_INTEGER, right, d, 500, MPI_INTEGER, w, ierr)
    call MPI_Win_fence(0, w, ierr)
    call eq(__LINE__, 'p(1000)', p(1000), left)
    call eq(__LINE__, 'p(500)', p(500), me)
    call MPI_Win_free(w, ierr)
    call MPI_Free_mem(p, ierr)
    call eq(__LINE__, 'MPI_Free_mem', ierr, MPI_SUCCESS)
    call finish()
  end subroutine alloc_mem

  subroutine name()
    integer, asynchronous, target :: a(16)
    character(len=MPI_MAX_OBJECT_NAME) :: s
    integer :: n
    WIN_T :: w
    call make(w, a)
    call MPI_Win_set_name(w, 'green', ierr)
#ifdef USE_F08
    s = ' '  ! Open MPI's binding sets the first character only
#endif
    call MPI_Win_get_name(w, s, n, ierr)
    call eq(__LINE__, 'length of the name', n, 5)
#ifdef USE_F08
    call check(s == 'green' .or. s == 'g', __LINE__, 'name', 0, 1)
#else
    call check(s == 'green', __LINE__, 'name', 0, 1)
#endif
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine name

  subroutine info_group()
    integer, asynchronous, target :: a(16)
    integer :: n, r
    WIN_T :: w
    INFO_T :: info
    GROUP_T :: g
    call make(w, a)
    call MPI_Win_get_info(w, info, ierr)
    call eq(__LINE__, 'MPI_Win_get_info', ierr, MPI_SUCCESS)
    call MPI_Win_set_info(w, info, ierr)
    call MPI_Info_free(info, ierr)
    call MPI_Win_get_group(w, g, ierr)
    call MPI_Group_size(g, n, ierr)
    call MPI_Group_rank(g, r, ierr)
    call eq(__LINE__, 'group size', n, np)
    call eq(__LINE__, 'group rank', r, me)
    call MPI_Group_free(g, ierr)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine info_group
end program f_rma

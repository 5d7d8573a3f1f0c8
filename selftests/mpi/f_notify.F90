! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
! Notified access from Fortran, compiled for each binding with the modules beside asyncprog/notify.h: with the hooks, and
! natively, where each call must say that it is not there.
#include "f_harness.h"

program f_notify
  use harness
#ifdef USE_F08
  use asyncprog_notify_f08
#else
  use asyncprog_notify
#endif
  implicit none
  integer :: ierr
  logical :: hooked

  call start('f_notify.F90')
  call find_hooks()
  if (begin('ring')) call ring()
  if (begin('any')) call any()
  if (begin('accumulate_get')) call accumulate_get()
  if (begin('refusals')) call refusals()
  if (begin('by_itself')) call by_itself()
  call end_all()

contains

  subroutine find_hooks()
    character(len=8) :: text
    integer :: length
    call get_environment_variable('TEST_EXPECT_PROGRESS', text, length)
    hooked = length > 0
    call MPI_Bcast(hooked, 1, MPI_LOGICAL, 0, MPI_COMM_WORLD, ierr)
  end subroutine find_hooks

  subroutine make(w, a)
    WIN_T, intent(out) :: w
    integer, asynchronous, target :: a(:)
    integer(kind=MPI_ADDRESS_KIND) :: bytes
    bytes = 4 * size(a)
    call MPI_Win_create(a, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, w, ierr)
    call MPI_Win_set_errhandler(w, MPI_ERRORS_RETURN, ierr)
    call MPI_Win_lock_all(0, w, ierr)
  end subroutine make

  subroutine drop(w)
    WIN_T, intent(inout) :: w
    call MPI_Win_unlock_all(w, ierr)
    call MPI_Win_free(w, ierr)
    call finish()
  end subroutine drop

  ! What it is without hooks.
  integer function fine()
    fine = MPI_SUCCESS
    if (.not. hooked) fine = MPI_ERR_UNSUPPORTED_OPERATION
  end function fine

  subroutine ring()
    integer, asynchronous, target :: a(16)
    integer, asynchronous :: v(2, 2)
    integer :: got(2)
    integer(kind=MPI_ADDRESS_KIND) :: d
    logical :: flag
    WIN_T :: w
    a = -1
    call make(w, a)
    v = reshape([me, me + 1, me + 2, me + 3], [2, 2])
    d = 4
    got = [-5, -5]
    flag = .true.
    call asyncprog_put_notify(v, 4, MPI_INTEGER, right, d, 4, MPI_INTEGER, 17, w, ierr)
    call eq(__LINE__, 'put', ierr, fine())
    call asyncprog_notify_wait(left, MPI_ANY_TAG, w, got, ierr)
    call eq(__LINE__, 'wait', ierr, fine())
    if (hooked) then
      call eq(__LINE__, 'source', got(1), left)
      call eq(__LINE__, 'tag', got(2), 17)
      call eq(__LINE__, 'a(5)', a(5), left)
      call eq(__LINE__, 'a(8)', a(8), left + 3)
    else
      call eq(__LINE__, 'source', got(1), -5)
    end if
    call asyncprog_notify_test(MPI_ANY_SOURCE, MPI_ANY_TAG, w, flag, got, ierr)
    call eq(__LINE__, 'test', ierr, fine())
    call check(flag .neqv. hooked, __LINE__, 'flag', 0, 1)
    call drop(w)
  end subroutine ring

  subroutine any()
    integer, asynchronous, target :: a(16)
    integer, asynchronous :: v
    integer :: got(2), want(2, 3), index, i
    integer(kind=MPI_ADDRESS_KIND) :: d
    logical :: flag
    WIN_T :: w
    a = 0
    call make(w, a)
    v = 5
    d = 0
    do i = 0, 3
      call asyncprog_put_notify(v, 1, MPI_INTEGER, right, d, 1, MPI_INTEGER, i, w, ierr)
    end do
    want = reshape([left, 9, left, 2, MPI_ANY_SOURCE, 3], [2, 3])
    index = -1
    call asyncprog_notify_waitany(3, want, w, index, got, ierr)
    call eq(__LINE__, 'waitany', ierr, fine())
    if (hooked) then
      call eq(__LINE__, 'index', index, 2)
      call eq(__LINE__, 'tag', got(2), 2)
      flag = .false.
      do while (.not. flag)
        call asyncprog_notify_testany(3, want, w, index, flag, got, ierr)
      end do
      call eq(__LINE__, 'index', index, 3)
      call eq(__LINE__, 'tag', got(2), 3)
      call asyncprog_notify_probe(left, MPI_ANY_TAG, w, flag, got, ierr)
      call check(flag, __LINE__, 'flag', 0, 1)
      call eq(__LINE__, 'tag', got(2), 0)
      call asyncprog_notify_wait(left, 1, w, got, ierr)
      call asyncprog_notify_wait(left, 0, w, got, ierr)
      call eq(__LINE__, 'tag', got(2), 0)
    end if
    call drop(w)
  end subroutine any

  subroutine accumulate_get()
    integer, asynchronous, target :: a(16)
    integer, asynchronous :: v
    integer :: got(2)
    integer(kind=MPI_ADDRESS_KIND) :: d
    WIN_T :: w
    a = 10 * me
    call make(w, a)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    v = 3
    d = 2
    call asyncprog_accumulate_notify(v, 1, MPI_INTEGER, right, d, 1, MPI_INTEGER, MPI_SUM, 1, w, ierr)
    call eq(__LINE__, 'accumulate', ierr, fine())
    if (hooked) then
      call asyncprog_notify_wait(left, 1, w, got, ierr)
      call eq(__LINE__, 'a(3)', a(3), 10 * me + 3)
    end if
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    v = 0
    call asyncprog_get_notify(v, 1, MPI_INTEGER, right, d, 1, MPI_INTEGER, 2, w, ierr)
    call eq(__LINE__, 'get', ierr, fine())
    if (hooked) then
      call MPI_Win_flush(right, w, ierr)
      call eq(__LINE__, 'v', v, 10 * right + 3)
      call asyncprog_notify_wait(left, 2, w, got, ierr)
    end if
    call drop(w)
  end subroutine accumulate_get

  subroutine refusals()
    integer, asynchronous, target :: a(16)
    integer, asynchronous :: v
    integer :: got(2)
    integer(kind=MPI_ADDRESS_KIND) :: d
    WIN_T :: w
    call make(w, a)
    d = 0
    v = 0
    if (hooked) then
      call asyncprog_put_notify(v, 1, MPI_INTEGER, right, d, 1, MPI_INTEGER, -3, w, ierr)
      call class_is(__LINE__, 'tag', ierr, MPI_ERR_TAG)
      call asyncprog_put_notify(v, 1, MPI_INTEGER, np, d, 1, MPI_INTEGER, 3, w, ierr)
      call class_is(__LINE__, 'rank', ierr, MPI_ERR_RANK)
      call asyncprog_notify_wait(np, 3, w, got, ierr)
      call class_is(__LINE__, 'source', ierr, MPI_ERR_RANK)
    end if
    call asyncprog_notify_wait(0, 3, MPI_WIN_NULL, got, ierr)
    call class_is(__LINE__, 'window', ierr, merge(MPI_ERR_WIN, MPI_ERR_UNSUPPORTED_OPERATION, hooked))
    call drop(w)
  end subroutine refusals

  subroutine by_itself()
    integer, asynchronous, target :: a(16)
    integer(kind=MPI_ADDRESS_KIND) :: v
    character(len=16) :: text
    integer :: key
    logical :: flag
    INFO_T :: info
    WIN_T :: w
    call make(w, a)
    call asyncprog_win_progress_keyval(key)
    call check((key /= MPI_KEYVAL_INVALID) .eqv. hooked, __LINE__, 'keyval', key, MPI_KEYVAL_INVALID)
    if (hooked) then
      v = 7
      call MPI_Win_get_attr(w, key, v, flag, ierr)
      call check(flag, __LINE__, 'flag', 0, 1)
      call eq(__LINE__, 'value', int(v), 1)
    end if
    call MPI_Win_get_info(w, info, ierr)
    text = ' '
    call MPI_Info_get(info, 'asyncprog_progress', 15, text, flag, ierr)
    call check(flag .eqv. hooked, __LINE__, 'info flag', 0, 1)
    if (hooked) call check(text == 'true', __LINE__, 'info value', 0, 1)
    call MPI_Info_free(info, ierr)
    call drop(w)
  end subroutine by_itself
end program f_notify

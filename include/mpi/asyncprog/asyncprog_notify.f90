! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
!
! Notified access for Fortran programs; asyncprog/notify.h says what its subroutines do, and what their errors are.
! Programs that say "use mpi" or include mpif.h compile this file with their own, with their MPI library's compiler; those that
! say "use mpi_f08" compile asyncprog_notify_f08.f90 as well, whose module has the same names.
!
! The hooks are looked for at the first call (dlsym(), of libc): without them ierror is MPI_ERR_UNSUPPORTED_OPERATION.
! Notifications are pairs of integers: source, tag.  Origins are contiguous, and not MPI_BOTTOM.
module asyncprog_notify
  use, intrinsic :: iso_c_binding
  use mpi, only: MPI_ADDRESS_KIND, MPI_SUCCESS, MPI_ERR_UNSUPPORTED_OPERATION, MPI_KEYVAL_INVALID
  implicit none
  private
  public :: asyncprog_put_notify, asyncprog_get_notify, asyncprog_accumulate_notify
  public :: asyncprog_notify_test, asyncprog_notify_probe, asyncprog_notify_wait
  public :: asyncprog_notify_testany, asyncprog_notify_waitany, asyncprog_win_progress_keyval

  interface
     function dlsym(handle, name) bind(c, name='dlsym') result(f)
       import :: c_ptr, c_char, c_funptr
       type(c_ptr), value :: handle
       character(kind=c_char), intent(in) :: name(*)
       type(c_funptr) :: f
     end function dlsym
  end interface

  abstract interface
     function put_fn(origin, ocount, otype, rank, disp, tcount, ttype, tag, win) bind(c) result(rc)
       import :: c_int, c_intptr_t
       !GCC$ ATTRIBUTES NO_ARG_CHECK :: origin
       !DIR$ IGNORE_TKR origin
       type(*), dimension(*) :: origin
       integer(c_int), value :: ocount, otype, rank, tcount, ttype, tag, win
       integer(c_intptr_t), value :: disp
       integer(c_int) :: rc
     end function put_fn
     function acc_fn(origin, ocount, otype, rank, disp, tcount, ttype, op, tag, win) bind(c) result(rc)
       import :: c_int, c_intptr_t
       !GCC$ ATTRIBUTES NO_ARG_CHECK :: origin
       !DIR$ IGNORE_TKR origin
       type(*), dimension(*) :: origin
       integer(c_int), value :: ocount, otype, rank, tcount, ttype, op, tag, win
       integer(c_intptr_t), value :: disp
       integer(c_int) :: rc
     end function acc_fn
     function test_fn(n, want, win, take, flag, which, got) bind(c) result(rc)
       import :: c_int
       integer(c_int), value :: n, win, take
       integer(c_int), intent(in) :: want(*)
       integer(c_int), intent(inout) :: flag, which, got(2)
       integer(c_int) :: rc
     end function test_fn
     function wait_fn(n, want, win, which, got) bind(c) result(rc)
       import :: c_int
       integer(c_int), value :: n, win
       integer(c_int), intent(in) :: want(*)
       integer(c_int), intent(inout) :: which, got(2)
       integer(c_int) :: rc
     end function wait_fn
     function keyval_fn() bind(c) result(keyval)
       import :: c_int
       integer(c_int) :: keyval
     end function keyval_fn
  end interface

contains

  logical function found(name, f)
    character(len=*), intent(in) :: name
    type(c_funptr), intent(out) :: f

    ! 0: RTLD_DEFAULT
    f = dlsym(c_null_ptr, 'asyncprog_f_' // name // c_null_char)
    found = c_associated(f)
  end function found

  subroutine asyncprog_put_notify(origin, origin_count, origin_type, rank, disp, target_count, target_type, tag, win, ierror)
    !GCC$ ATTRIBUTES NO_ARG_CHECK :: origin
    !DIR$ IGNORE_TKR origin
    type(*), dimension(*) :: origin
    integer, intent(in) :: origin_count, origin_type, rank, target_count, target_type, tag, win
    integer(MPI_ADDRESS_KIND), intent(in) :: disp
    integer, intent(out) :: ierror
    procedure(put_fn), pointer :: call_
    type(c_funptr) :: f

    ierror = MPI_ERR_UNSUPPORTED_OPERATION
    if (.not. found('put_notify', f)) return
    call c_f_procpointer(f, call_)
    ierror = call_(origin, origin_count, origin_type, rank, disp, target_count, target_type, tag, win)
  end subroutine asyncprog_put_notify

  subroutine asyncprog_get_notify(origin, origin_count, origin_type, rank, disp, target_count, target_type, tag, win, ierror)
    !GCC$ ATTRIBUTES NO_ARG_CHECK :: origin
    !DIR$ IGNORE_TKR origin
    type(*), dimension(*) :: origin
    integer, intent(in) :: origin_count, origin_type, rank, target_count, target_type, tag, win
    integer(MPI_ADDRESS_KIND), intent(in) :: disp
    integer, intent(out) :: ierror
    procedure(put_fn), pointer :: call_
    type(c_funptr) :: f

    ierror = MPI_ERR_UNSUPPORTED_OPERATION
    if (.not. found('get_notify', f)) return
    call c_f_procpointer(f, call_)
    ierror = call_(origin, origin_count, origin_type, rank, disp, target_count, target_type, tag, win)
  end subroutine asyncprog_get_notify

  subroutine asyncprog_accumulate_notify(origin, origin_count, origin_type, rank, disp, target_count, target_type, op, tag, &
                                         win, ierror)
    !GCC$ ATTRIBUTES NO_ARG_CHECK :: origin
    !DIR$ IGNORE_TKR origin
    type(*), dimension(*) :: origin
    integer, intent(in) :: origin_count, origin_type, rank, target_count, target_type, op, tag, win
    integer(MPI_ADDRESS_KIND), intent(in) :: disp
    integer, intent(out) :: ierror
    procedure(acc_fn), pointer :: call_
    type(c_funptr) :: f

    ierror = MPI_ERR_UNSUPPORTED_OPERATION
    if (.not. found('accumulate_notify', f)) return
    call c_f_procpointer(f, call_)
    ierror = call_(origin, origin_count, origin_type, rank, disp, target_count, target_type, op, tag, win)
  end subroutine asyncprog_accumulate_notify

  subroutine look(n, want, win, take, which, flag, got, ierror)
    integer, intent(in) :: n, want(*), win, take
    integer, intent(inout) :: which, got(2)
    logical, intent(inout) :: flag
    integer, intent(out) :: ierror
    procedure(test_fn), pointer :: call_
    type(c_funptr) :: f
    integer(c_int) :: is

    ierror = MPI_ERR_UNSUPPORTED_OPERATION
    if (.not. found('notify_test', f)) return
    call c_f_procpointer(f, call_)
    is = 0
    ierror = call_(n, want, win, take, is, which, got)
    if (ierror == MPI_SUCCESS) flag = is /= 0
  end subroutine look

  subroutine asyncprog_notify_test(source, tag, win, flag, got, ierror)
    integer, intent(in) :: source, tag, win
    logical, intent(inout) :: flag
    integer, intent(inout) :: got(2)
    integer, intent(out) :: ierror
    integer :: which

    call look(1, [source, tag], win, 1, which, flag, got, ierror)
  end subroutine asyncprog_notify_test

  subroutine asyncprog_notify_probe(source, tag, win, flag, got, ierror)
    integer, intent(in) :: source, tag, win
    logical, intent(inout) :: flag
    integer, intent(inout) :: got(2)
    integer, intent(out) :: ierror
    integer :: which

    call look(1, [source, tag], win, 0, which, flag, got, ierror)
  end subroutine asyncprog_notify_probe

  ! The index counts from 1.
  subroutine asyncprog_notify_testany(n, want, win, index, flag, got, ierror)
    integer, intent(in) :: n, want(2, *), win
    integer, intent(inout) :: index, got(2)
    logical, intent(inout) :: flag
    integer, intent(out) :: ierror
    integer :: which

    which = -1
    call look(n, want, win, 1, which, flag, got, ierror)
    if (which >= 0) index = which + 1
  end subroutine asyncprog_notify_testany

  subroutine asyncprog_notify_waitany(n, want, win, index, got, ierror)
    integer, intent(in) :: n, want(2, *), win
    integer, intent(inout) :: index, got(2)
    integer, intent(out) :: ierror
    procedure(wait_fn), pointer :: call_
    type(c_funptr) :: f
    integer :: which

    ierror = MPI_ERR_UNSUPPORTED_OPERATION
    if (.not. found('notify_wait', f)) return
    call c_f_procpointer(f, call_)
    which = -1
    ierror = call_(n, want, win, which, got)
    if (which >= 0) index = which + 1
  end subroutine asyncprog_notify_waitany

  subroutine asyncprog_notify_wait(source, tag, win, got, ierror)
    integer, intent(in) :: source, tag, win
    integer, intent(inout) :: got(2)
    integer, intent(out) :: ierror
    integer :: index, want(2, 1)

    want(:, 1) = [source, tag]
    call asyncprog_notify_waitany(1, want, win, index, got, ierror)
  end subroutine asyncprog_notify_wait

  subroutine asyncprog_win_progress_keyval(keyval)
    integer, intent(out) :: keyval
    procedure(keyval_fn), pointer :: call_
    type(c_funptr) :: f

    keyval = MPI_KEYVAL_INVALID
    if (.not. found('win_progress_keyval', f)) return
    call c_f_procpointer(f, call_)
    keyval = call_()
  end subroutine asyncprog_win_progress_keyval
end module asyncprog_notify

! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
!
! asyncprog_notify.f90 for programs that say "use mpi_f08": the same names, handles are of its types, ierror may be left out.
module asyncprog_notify_f08
  use mpi_f08, only: MPI_ADDRESS_KIND, MPI_Datatype, MPI_Op, MPI_Win
  use asyncprog_notify, only: put_ => asyncprog_put_notify, get_ => asyncprog_get_notify, &
       accumulate_ => asyncprog_accumulate_notify, test_ => asyncprog_notify_test, probe_ => asyncprog_notify_probe, &
       wait_ => asyncprog_notify_wait, testany_ => asyncprog_notify_testany, waitany_ => asyncprog_notify_waitany, &
       asyncprog_win_progress_keyval
  implicit none
  private
  public :: asyncprog_put_notify, asyncprog_get_notify, asyncprog_accumulate_notify
  public :: asyncprog_notify_test, asyncprog_notify_probe, asyncprog_notify_wait
  public :: asyncprog_notify_testany, asyncprog_notify_waitany, asyncprog_win_progress_keyval

contains

  subroutine asyncprog_put_notify(origin, origin_count, origin_type, rank, disp, target_count, target_type, tag, win, ierror)
    !GCC$ ATTRIBUTES NO_ARG_CHECK :: origin
    !DIR$ IGNORE_TKR origin
    type(*), dimension(*) :: origin
    integer, intent(in) :: origin_count, rank, target_count, tag
    type(MPI_Datatype), intent(in) :: origin_type, target_type
    type(MPI_Win), intent(in) :: win
    integer(MPI_ADDRESS_KIND), intent(in) :: disp
    integer, optional, intent(out) :: ierror
    integer :: rc

    call put_(origin, origin_count, origin_type%MPI_VAL, rank, disp, target_count, target_type%MPI_VAL, tag, win%MPI_VAL, rc)
    if (present(ierror)) ierror = rc
  end subroutine asyncprog_put_notify

  subroutine asyncprog_get_notify(origin, origin_count, origin_type, rank, disp, target_count, target_type, tag, win, ierror)
    !GCC$ ATTRIBUTES NO_ARG_CHECK :: origin
    !DIR$ IGNORE_TKR origin
    type(*), dimension(*) :: origin
    integer, intent(in) :: origin_count, rank, target_count, tag
    type(MPI_Datatype), intent(in) :: origin_type, target_type
    type(MPI_Win), intent(in) :: win
    integer(MPI_ADDRESS_KIND), intent(in) :: disp
    integer, optional, intent(out) :: ierror
    integer :: rc

    call get_(origin, origin_count, origin_type%MPI_VAL, rank, disp, target_count, target_type%MPI_VAL, tag, win%MPI_VAL, rc)
    if (present(ierror)) ierror = rc
  end subroutine asyncprog_get_notify

  subroutine asyncprog_accumulate_notify(origin, origin_count, origin_type, rank, disp, target_count, target_type, op, tag, &
                                         win, ierror)
    !GCC$ ATTRIBUTES NO_ARG_CHECK :: origin
    !DIR$ IGNORE_TKR origin
    type(*), dimension(*) :: origin
    integer, intent(in) :: origin_count, rank, target_count, tag
    type(MPI_Datatype), intent(in) :: origin_type, target_type
    type(MPI_Op), intent(in) :: op
    type(MPI_Win), intent(in) :: win
    integer(MPI_ADDRESS_KIND), intent(in) :: disp
    integer, optional, intent(out) :: ierror
    integer :: rc

    call accumulate_(origin, origin_count, origin_type%MPI_VAL, rank, disp, target_count, target_type%MPI_VAL, op%MPI_VAL, &
                     tag, win%MPI_VAL, rc)
    if (present(ierror)) ierror = rc
  end subroutine asyncprog_accumulate_notify

  subroutine asyncprog_notify_test(source, tag, win, flag, got, ierror)
    integer, intent(in) :: source, tag
    type(MPI_Win), intent(in) :: win
    logical, intent(inout) :: flag
    integer, intent(inout) :: got(2)
    integer, optional, intent(out) :: ierror
    integer :: rc

    call test_(source, tag, win%MPI_VAL, flag, got, rc)
    if (present(ierror)) ierror = rc
  end subroutine asyncprog_notify_test

  subroutine asyncprog_notify_probe(source, tag, win, flag, got, ierror)
    integer, intent(in) :: source, tag
    type(MPI_Win), intent(in) :: win
    logical, intent(inout) :: flag
    integer, intent(inout) :: got(2)
    integer, optional, intent(out) :: ierror
    integer :: rc

    call probe_(source, tag, win%MPI_VAL, flag, got, rc)
    if (present(ierror)) ierror = rc
  end subroutine asyncprog_notify_probe

  subroutine asyncprog_notify_wait(source, tag, win, got, ierror)
    integer, intent(in) :: source, tag
    type(MPI_Win), intent(in) :: win
    integer, intent(inout) :: got(2)
    integer, optional, intent(out) :: ierror
    integer :: rc

    call wait_(source, tag, win%MPI_VAL, got, rc)
    if (present(ierror)) ierror = rc
  end subroutine asyncprog_notify_wait

  subroutine asyncprog_notify_testany(n, want, win, index, flag, got, ierror)
    integer, intent(in) :: n, want(2, *)
    type(MPI_Win), intent(in) :: win
    integer, intent(inout) :: index, got(2)
    logical, intent(inout) :: flag
    integer, optional, intent(out) :: ierror
    integer :: rc

    call testany_(n, want, win%MPI_VAL, index, flag, got, rc)
    if (present(ierror)) ierror = rc
  end subroutine asyncprog_notify_testany

  subroutine asyncprog_notify_waitany(n, want, win, index, got, ierror)
    integer, intent(in) :: n, want(2, *)
    type(MPI_Win), intent(in) :: win
    integer, intent(inout) :: index, got(2)
    integer, optional, intent(out) :: ierror
    integer :: rc

    call waitany_(n, want, win%MPI_VAL, index, got, rc)
    if (present(ierror)) ierror = rc
  end subroutine asyncprog_notify_waitany
end module asyncprog_notify_f08

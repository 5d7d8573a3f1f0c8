! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
! What the Fortran programs share: names that differ between mpif.h (USE_MPIFH), use mpi (USE_MPI) and
! use mpi_f08 (USE_F08), and TAP from rank 0 after gathering all ranks' verdicts; environment variables
! TEST_SKIP and TEST_DONE_FILE as in mpitest.h.
#ifdef USE_F08
#define WIN_T type(MPI_Win)
#define COMM_T type(MPI_Comm)
#define REQ_T type(MPI_Request)
#define TYPE_T type(MPI_Datatype)
#define GROUP_T type(MPI_Group)
#define INFO_T type(MPI_Info)
#define ERRH_T type(MPI_Errhandler)
#define MSG_T type(MPI_Message)
#define STAT_T type(MPI_Status)
#define STATS_T(n) type(MPI_Status), dimension(n)
#define ST_SOURCE(s) s%MPI_SOURCE
#define ST_TAG(s) s%MPI_TAG
#define ST_ERROR(s) s%MPI_ERROR
#define STS_SOURCE(s, i) s(i)%MPI_SOURCE
#define STS_ERROR(s, i) s(i)%MPI_ERROR
#else
#define WIN_T integer
#define COMM_T integer
#define REQ_T integer
#define TYPE_T integer
#define GROUP_T integer
#define INFO_T integer
#define ERRH_T integer
#define MSG_T integer
#define STAT_T integer, dimension(MPI_STATUS_SIZE)
#define STATS_T(n) integer, dimension(MPI_STATUS_SIZE, n)
#define ST_SOURCE(s) s(MPI_SOURCE)
#define ST_TAG(s) s(MPI_TAG)
#define ST_ERROR(s) s(MPI_ERROR)
#define STS_SOURCE(s, i) s(MPI_SOURCE, i)
#define STS_ERROR(s, i) s(MPI_ERROR, i)
#endif

#ifdef USE_MPIFH
#define MPI_MODULE
#define MPI_INCLUDE include 'mpif.h'
#elif defined(USE_MPI)
#define MPI_MODULE use mpi
#define MPI_INCLUDE
#else
#define MPI_MODULE use mpi_f08
#define MPI_INCLUDE
#endif

module harness
  MPI_MODULE
  implicit none
  MPI_INCLUDE
  integer :: me, np, right, left, points = 0, failures, failed_points = 0
  integer :: eh_calls = 0, eh_class = 0, delete_calls = 0
  character(len=64) :: point
  character(len=16) :: source
  character(len=2048) :: skip_list
contains
  subroutine check(ok, line, what, got, want)
    logical, intent(in) :: ok
    integer, intent(in) :: line, got, want
    character(len=*), intent(in) :: what
    if (ok) return
    failures = failures + 1
    if (failures > 8) return
    write (0, '(a,i0,a,a,a,i0,a,a,a,i0,a,i0)') '# rank ', me, ' ', trim(source), ':', line, ': ', &
         what, ' is ', got, ', expected ', want
  end subroutine check

  subroutine eq(line, what, got, want)
    integer, intent(in) :: line, got, want
    character(len=*), intent(in) :: what
    call check(got == want, line, what, got, want)
  end subroutine eq

  ! the class of a call that must fail
  subroutine class_is(line, what, err, want)
    integer, intent(in) :: line, err, want
    character(len=*), intent(in) :: what
    integer :: class, ierr
    class = MPI_SUCCESS
    if (err /= MPI_SUCCESS) call MPI_Error_class(err, class, ierr)
    call eq(line, what, class, want)
  end subroutine class_is

  logical function begin(name)
    character(len=*), intent(in) :: name
    point = name
    failures = 0
    begin = index(',' // trim(skip_list) // ',', ',' // name // ',') == 0
    if (.not. begin) then
      points = points + 1
      if (me == 0) write (*, '(a,i0,a,a,a)') 'ok ', points, ' - ', name, ' # SKIP TEST_SKIP'
    end if
  end function begin

  subroutine finish()
    integer :: total, ierr
    call MPI_Reduce(failures, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
    points = points + 1
    if (me == 0) then
      if (total > 0) failed_points = failed_points + 1
      if (total > 0) write (*, '(a)', advance='no') 'not '
      write (*, '(a,i0,a,a)') 'ok ', points, ' - ', trim(point)
      flush (6)
    end if
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end subroutine finish

  subroutine start(name)
    character(len=*), intent(in) :: name
    integer :: ierr
    source = name
    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, np, ierr)
    right = mod(me + 1, np)
    left = mod(me + np - 1, np)
    skip_list = ' '
    if (me == 0) call get_environment_variable('TEST_SKIP', skip_list)
    call MPI_Bcast(skip_list, len(skip_list), MPI_CHARACTER, 0, MPI_COMM_WORLD, ierr)
  end subroutine start

  subroutine end_all()
    external :: done_arm
    integer :: ierr
    call MPI_Bcast(failed_points, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    if (me == 0) then
      write (*, '(a,i0)') '1..', points
      flush (6)
    end if
    call done_arm()
    call MPI_Finalize(ierr)
    if (failed_points > 0) stop 1
  end subroutine end_all
end module harness

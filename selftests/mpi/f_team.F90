! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
! Packing and one-sided operations of a hybrid program, compiled three times as f_rma.F90: before its first parallel
! region, after one, and in one.
#include "f_harness.h"

program f_team
  use harness
  implicit none
  integer, parameter :: n = 50000
  integer(kind=8), dimension(2 * n) :: source_cells, cells
  integer(kind=8), dimension(n) :: first, packed
  TYPE_T :: every_other
  integer :: ierr, threads

  call start('f_team.F90')
  call fill()
  call MPI_Type_vector(n, 1, 2, MPI_INTEGER8, every_other, ierr)
  call MPI_Type_commit(every_other, ierr)

  if (begin('before_a_region')) call pack_before()
  if (begin('after_a_region')) call pack_after()
  if (begin('in_a_region')) call pack_within()
  if (begin('to_the_other')) call to_the_other()
  if (begin('window')) call through_a_window()

  call MPI_Type_free(every_other, ierr)
  call end_all()

contains
  subroutine fill()
    integer :: i
    do i = 1, 2 * n
      source_cells(i) = 1000003_8 * i
    end do
  end subroutine fill

  subroutine region()
    threads = 0
    !$omp parallel num_threads(3) reduction(+ : threads)
    threads = threads + 1
    !$omp end parallel
    call eq(__LINE__, 'threads', threads, 3)
  end subroutine region

  subroutine pack_it()
    integer :: position, err
    position = 0
    packed = 0
    call MPI_Pack(source_cells, 1, every_other, packed, 8 * n, position, MPI_COMM_WORLD, err)
    call eq(__LINE__, 'MPI_Pack', err, MPI_SUCCESS)
    call eq(__LINE__, 'position', position, 8 * n)
    call check(all(packed == source_cells(1::2)), __LINE__, 'packed', 0, 1)
    position = 0
    cells = -1
    call MPI_Unpack(packed, 8 * n, position, cells, 1, every_other, MPI_COMM_WORLD, err)
    call eq(__LINE__, 'MPI_Unpack', err, MPI_SUCCESS)
    call eq(__LINE__, 'position', position, 8 * n)
    call check(all(cells(1::2) == source_cells(1::2)), __LINE__, 'unpacked', 0, 1)
    call check(all(cells(2::2) == -1), __LINE__, 'between', 0, 1)
  end subroutine pack_it

  subroutine pack_before()
    call pack_it()
    first = packed
    call finish()
  end subroutine pack_before

  subroutine pack_after()
    call region()
    call pack_it()
    call check(all(packed == first), __LINE__, 'as before', 0, 1)
    call finish()
  end subroutine pack_after

  subroutine pack_within()
    !$omp parallel num_threads(3)
    !$omp single
    call pack_it()
    !$omp end single
    !$omp masked
    call pack_it()
    !$omp end masked
    !$omp end parallel
    call finish()
  end subroutine pack_within

  subroutine to_the_other()
    integer :: position, err
    STAT_T :: st
    if (me == 0) call region()
    call pack_it()
    call MPI_Sendrecv_replace(packed, 8 * n, MPI_PACKED, right, 1, left, 1, MPI_COMM_WORLD, st, err)
    position = 0
    cells = 0
    call MPI_Unpack(packed, 8 * n, position, cells, 1, every_other, MPI_COMM_WORLD, err)
    call check(all(cells(1::2) == source_cells(1::2)), __LINE__, 'unpacked', 0, 1)
    call finish()
  end subroutine to_the_other

  subroutine through_a_window()
    integer(kind=8), dimension(2 * n), asynchronous, save :: memory
    integer(kind=MPI_ADDRESS_KIND) :: bytes = 16 * n, zero = 0
    integer :: err
    WIN_T :: win
    memory = 0
    call MPI_Win_create(memory, bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, win, err)
    call region()
    call MPI_Win_fence(0, win, err)
    call MPI_Put(source_cells, 1, every_other, right, zero, 1, every_other, win, err)
    call MPI_Win_fence(0, win, err)
    call MPI_Accumulate(source_cells, 1, every_other, right, zero, 1, every_other, MPI_SUM, win, err)
    call MPI_Win_fence(0, win, err)
    call check(all(memory(1::2) == 2 * source_cells(1::2)), __LINE__, 'sums', 0, 1)
    call check(all(memory(2::2) == 0), __LINE__, 'between', 0, 1)
    call MPI_Win_free(win, err)
    call finish()
  end subroutine through_a_window
end program f_team

! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
! An error in MPI_Put, from Fortran.
program wrongf
  use mpi
  implicit none
  integer :: rank, win, ierr, one = 1, base(16)
  integer(kind=MPI_ADDRESS_KIND) :: far = 1000, bytes = 64

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Win_create(base, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
  call MPI_Win_lock_all(0, win, ierr)
  if (rank == 0) call MPI_Put(one, 1, MPI_INTEGER, 0, far, 1, MPI_INTEGER, win, ierr)
  call MPI_Win_unlock_all(win, ierr)
  call MPI_Finalize(ierr)
end program wrongf

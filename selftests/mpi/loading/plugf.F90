! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
! What load and linked load, in Fortran.
subroutine fwork() bind(c)
	use mpi
	implicit none
	integer :: rank, n, ierr, win, buf(50000), req, whole = -1, st(MPI_STATUS_SIZE)
	integer, save, asynchronous :: from = -1
	integer(MPI_ADDRESS_KIND) :: zero = 0, four = 4

	call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
	call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
	buf = rank
	call MPI_Isend(buf, 50000, MPI_INTEGER, mod(rank + 1, n), 0, MPI_COMM_WORLD, req, ierr)
	call MPI_Probe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, st, ierr)
	call take(st(MPI_SOURCE))
	call MPI_Wait(req, MPI_STATUS_IGNORE, ierr)
	call MPI_Win_create(from, four, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
	call MPI_Win_fence(0, win, ierr)
	call MPI_Put(rank, 1, MPI_INTEGER, mod(rank + 1, n), zero, 1, MPI_INTEGER, win, ierr)
	call MPI_Win_fence(0, win, ierr)
	if (rank == 0) print '(A,I0/A,I0)', 'fortran: ', whole, 'window: ', from
	flush(6)
	call MPI_Win_free(win, ierr)
contains
	! to an absolute address: MPI_BOTTOM has to be known for what it is
	subroutine take(source)
		integer, intent(in) :: source
		integer :: dt, into(50000)
		integer(MPI_ADDRESS_KIND) :: at(1)

		call MPI_Get_address(into, at(1), ierr)
		call MPI_Type_create_hindexed(1, [50000], at, MPI_INTEGER, dt, ierr)
		call MPI_Type_commit(dt, ierr)
		call MPI_Recv(MPI_BOTTOM, 1, dt, source, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
		if (all(into == source)) whole = source
		call MPI_Type_free(dt, ierr)
	end subroutine
end subroutine

subroutine fall() bind(c)
	use mpi
	implicit none
	interface
		subroutine fwork() bind(c)
		end subroutine
	end interface
	integer :: ierr

	call MPI_Init(ierr)
	call fwork()
	call MPI_Finalize(ierr)
end subroutine

! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
! What sessions.c does, in Fortran: use mpi_f08 with USE_f08, else use mpi.
#ifdef USE_f08
#define HANDLE(kind) type(kind)
#else
#define HANDLE(kind) integer
#endif
program sessions
#ifdef USE_f08
	use mpi_f08
#else
	use mpi
#endif
	implicit none
	integer, parameter :: length = 100000
	integer, asynchronous :: out(length), in(length)
	integer, asynchronous, save :: from(4) = -1, rank, total = 0
	integer :: n, next, prev, ok, ierr
	integer(MPI_ADDRESS_KIND) :: zero = 0, room = 16
	HANDLE(MPI_Session) :: session
	HANDLE(MPI_Group) :: group
	HANDLE(MPI_Comm) :: comm, other
	HANDLE(MPI_Request) :: req(2)
	HANDLE(MPI_Win) :: win

	call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, session, ierr)
	call MPI_Group_from_session_pset(session, 'mpi://WORLD', group, ierr)
	call MPI_Comm_create_from_group(group, 'sessions', MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, comm, ierr)
	call MPI_Group_free(group, ierr)
	call MPI_Comm_rank(comm, rank, ierr)
	call MPI_Comm_size(comm, n, ierr)
	next = mod(rank + 1, n)
	prev = mod(rank + n - 1, n)
	call MPI_Comm_dup(comm, other, ierr)
	out = rank
	in = -1
	call MPI_Irecv(in, length, MPI_INTEGER, prev, 0, other, req(1), ierr)
	call MPI_Isend(out, length, MPI_INTEGER, next, 0, other, req(2), ierr)
	call MPI_Waitall(2, req, MPI_STATUSES_IGNORE, ierr)
	call MPI_Iallreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, comm, req(1), ierr)
	call MPI_Wait(req(1), MPI_STATUS_IGNORE, ierr)
	call MPI_Win_create(from, room, 4, MPI_INFO_NULL, comm, win, ierr)
	call MPI_Win_fence(0, win, ierr)
	call MPI_Put(rank, 1, MPI_INTEGER, next, zero, 1, MPI_INTEGER, win, ierr)
	call MPI_Win_fence(0, win, ierr)
	ok = 0
	if (all(in == prev) .and. total == n * (n - 1) / 2 .and. from(1) == prev) ok = 1
	call MPI_Win_free(win, ierr)
	call MPI_Comm_free(other, ierr)
	call MPI_Comm_free(comm, ierr)
	call MPI_Session_finalize(session, ierr)
	if (rank == 0) print '(I0,A,I0)', n, ' ranks: ', ok
end program

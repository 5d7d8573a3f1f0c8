! SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
!
! workqueue: a coarray program without one MPI call; the coarray runtime (OpenCoarrays) turns its
! remote accesses into MPI one-sided operations.
!
! Images share a queue of tasks: an atomic counter on image 1 says which is next. The data of task
! t lies on image mod(t, n) + 1. An image reads them from there, computes (no communication for
! some milliseconds) and writes the result to image mod(t + 1, n) + 1, a whole column; another
! atomic counter there says how many results have arrived. In the end every image compares every
! element it got with what the formula gives.
!
! Prints the lines that bench/run reads: time of the whole, time in remote accesses and
! synchronisation (maximum over images), and what a single remote read and a remote atomic took.
program workqueue
  use, intrinsic :: iso_fortran_env, only : int64, real64, atomic_int_kind, output_unit, error_unit
  implicit none

  integer, parameter :: ntasks = 240      ! tasks in all
  integer, parameter :: nwords = 4096     ! words per task: 32 KiB
  integer, parameter :: nsteps = 8000     ! passes over the data: some ms of computing

  integer(atomic_int_kind) :: next[*]     ! on image 1: the next task
  integer(atomic_int_kind) :: arrived[*]  ! results that have come here
  real(real64), allocatable :: input(:, :)[:], output(:, :)[:]
  integer(int64) :: in_remote[*]          ! this image's time in communication
  integer(int64) :: total[*]
  integer(int64), allocatable :: get_ns(:), atom_ns(:)[:], theirs(:)
  integer :: natoms[*]                    ! how many of atom_ns are set
  real(real64) :: work(nwords), want(nwords)
  integer :: me, n, t, src, dst, col, done, ngets, i, expected
  integer(int64) :: t0, t1, start, rate
  integer(atomic_int_kind) :: ticket, guess

  me = this_image()
  n = num_images()
  call system_clock(count_rate = rate)
  allocate (input(nwords, ntasks / n + 1)[*], output(nwords, ntasks / n + 1)[*])
  allocate (get_ns(ntasks + 1), atom_ns(8 * ntasks)[*], theirs(8 * ntasks))
  guess = 0
  ngets = 0
  natoms = 0
  done = 0
  in_remote = 0
  total = 0
  output = -1
  do t = 0, ntasks - 1
    if (mod(t, n) + 1 == me) call task_input(t, input(:, t / n + 1))
  end do
  call atomic_define(next, 0)
  call atomic_define(arrived, 0)
  sync all

  start = now()
  do
    call take_ticket(ticket)
    if (ticket >= ntasks) exit
    t = int(ticket)
    src = mod(t, n) + 1
    dst = mod(t + 1, n) + 1
    col = t / n + 1

    t0 = now()
    work(:) = input(:, col)[src]
    t1 = now()
    in_remote = in_remote + t1 - t0
    if (src /= me) then
      ngets = ngets + 1
      get_ns(ngets) = t1 - t0
    end if

    call compute(work)

    t0 = now()
    output(:, col)[dst] = work(:)
    call atomic_add(arrived[dst], 1)
    t1 = now()
    in_remote = in_remote + t1 - t0
    done = done + 1
  end do
  t0 = now()
  sync all
  in_remote = in_remote + now() - t0
  total = now() - start

  ! every element of every result that belongs here, and their number
  expected = 0
  do t = 0, ntasks - 1
    if (mod(t + 1, n) + 1 /= me) cycle
    expected = expected + 1
    call task_input(t, want)
    call compute(want)
    if (.not. all(abs(output(:, t / n + 1) - want) <= 0)) then
      write (error_unit, '(a,i0,a,i0)') 'workqueue: wrong result of task ', t, ' on image ', me
      error stop 1
    end if
  end do
  call atomic_ref(ticket, arrived)
  if (ticket /= expected) then
    write (error_unit, '(a,i0,a,i0,a,i0)') 'workqueue: image ', me, ' counted ', ticket, &
      ' results, not ', expected
    error stop 1
  end if
  sync all

  if (me == 1) then
    do i = 2, n
      total = max(total, total[i])
      in_remote = max(in_remote, in_remote[i])
    end do
    call emit('time', 'ns', [total])
    call emit('mpi_time', 'ns', [in_remote])
    call emit('remote_get', 'ns', get_ns(:ngets))
    if (n > 1) then
      i = natoms[2]
      theirs(:) = atom_ns(:)[2]
      call emit('remote_atomic', 'ns', theirs(:i))
    end if
    call emit('checked', 'elements', [int(ntasks, int64) * nwords])
    flush (output_unit)
  end if
  sync all
  if (me == 1) call tell_done()

contains

  ! Everything is out and checked: what is left is the end of the MPI library (see bench.h).
  subroutine tell_done()
    character (4096) :: path
    integer :: length, unit

    call get_environment_variable('BENCH_DONE', path, length)
    if (length == 0) return
    open (newunit=unit, file=path(:length), status='replace')
    close (unit)
  end subroutine

  ! The next number of the counter on image 1. Compare-and-swap, because atomic_fetch_add of the
  ! OpenCoarrays in Debian 12 (2.10.1) does not give the fetched value back.
  subroutine take_ticket(number)
    integer(atomic_int_kind), intent(out) :: number
    integer(atomic_int_kind) :: old
    integer(int64) :: from, to

    do
      from = now()
      call atomic_cas(next[1], old, guess, guess + 1)
      to = now()
      in_remote = in_remote + to - from
      if (me /= 1 .and. natoms < size(atom_ns)) then
        natoms = natoms + 1
        atom_ns(natoms) = to - from
      end if
      number = old
      if (old == guess) exit
      guess = old
      if (guess >= ntasks) exit
    end do
    guess = number + 1
  end subroutine take_ticket

  integer(int64) function now()
    integer(int64) :: c

    call system_clock(c)
    now = c * (1000000000_int64 / rate)
  end function now

  subroutine task_input(task, x)
    integer, intent(in) :: task
    real(real64), intent(out) :: x(nwords)
    integer :: k

    do k = 1, nwords
      x(k) = real(mod(task * 31 + k * 17, 1009), real64)
    end do
  end subroutine task_input

  ! a fixed amount of work without communication; exact in double precision
  subroutine compute(x)
    real(real64), intent(inout) :: x(nwords)
    integer :: s, k

    do s = 1, nsteps
      do k = 1, nwords
        x(k) = x(k) * 0.5_real64 + real(s, real64)
      end do
    end do
  end subroutine compute

  subroutine emit(key, unit, values)
    character(*), intent(in) :: key, unit
    integer(int64), intent(in) :: values(:)
    integer :: k

    write (output_unit, '(5a)', advance = 'no') 'BENCH {"key":"', key, '","unit":"', unit, &
      '","samples":['
    do k = 1, size(values)
      if (k > 1) write (output_unit, '(a)', advance = 'no') ','
      write (output_unit, '(i0)', advance = 'no') values(k)
    end do
    write (output_unit, '(a)') ']}'
  end subroutine emit

end program workqueue

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Memory whose pages change while MPI knows it: windows, attached ranges, origin buffers and message
 * buffers that are discarded, mapped anew or moved away between two uses, at the same address.  An
 * operation has to reach the memory that is there, not what was.
 *
 * Needs private memory of the program, so windows are those of MPI_Win_create and MPI_Win_attach.
 */
#include "mpitest.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PAGES	12
#define ODD	40			/* windows neither begin nor end at a page */

static size_t page;

static char *anon(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

/* ways to have other pages at the same address; what was there may be lost */
enum { KEEP, DISCARD, REPLACE, MOVE, UNMAP, WAYS };
static const char *const way_names[] = { "keep", "discard", "replace", "move", "unmap" };

/* @old: what was moved away, to be looked at by the caller, and unmapped; NULL: nothing was */
static void change(char *p, size_t len, int way, char **old)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	char *to;

	*old = NULL;
	switch (way) {
	case DISCARD:
		T_EQ(madvise(p, len, MADV_DONTNEED), 0);
		break;
	case REPLACE:
		T_OK(mmap(p, len, prot, flags, -1, 0) == p, "%m");
		break;
	case MOVE:
		to = anon(len);
		/* UCX replaces mremap() by one that forgets the address */
		T_OK(syscall(SYS_mremap, p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) == (long)to,
		     "%m");
		T_OK(mmap(p, len, prot, flags, -1, 0) == p, "%m");
		*old = to;
		break;
	case UNMAP:
		T_EQ(munmap(p, len), 0);
		T_OK(mmap(p, len, prot, flags, -1, 0) == p, "%m");
		break;
	}
}

/* Put, accumulate and get all of rank 1's window (@disp is where it begins), then let rank 1 look. */
static void use(MPI_Win win, MPI_Aint disp, char *mem, size_t size, uint64_t seed)
{
	size_t n = size / 8, i, half = n / 2;
	uint64_t *want = malloc(size), *got = malloc(size), *one = malloc(size);

	t_fill(want, size, seed);
	for (i = 0; i < n; i++)
		one[i] = 1;
	if (t_rank == 0) {
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
		/* a few bytes alone, then all: short and long ways */
		M(MPI_Put(want, 8, MPI_BYTE, 1, disp, 8, MPI_BYTE, win));
		M(MPI_Win_flush(1, win));
		M(MPI_Put(want, (int)size, MPI_BYTE, 1, disp, (int)size, MPI_BYTE, win));
		M(MPI_Win_flush(1, win));
		M(MPI_Accumulate(one, (int)half, MPI_UINT64_T, 1, disp, (int)half, MPI_UINT64_T, MPI_SUM,
				 win));
		M(MPI_Win_flush(1, win));
		M(MPI_Get(got, (int)size, MPI_BYTE, 1, disp, (int)size, MPI_BYTE, win));
		M(MPI_Win_unlock(1, win));
	}
	for (i = 0; i < half; i++)
		want[i]++;
	t_barrier();
	if (t_rank == 0)
		T_BYTES("what was read back", got, want, size);
	if (t_rank == 1) {
		M(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
		T_BYTES("the window", mem, want, size);
		M(MPI_Win_unlock(1, win));
	}
	t_barrier();
	free(want);
	free(got);
	free(one);
}

/* Change all pages of @raw at rank 1; what was moved away must stay as it is while others are used. */
static void change_and_use(MPI_Win win, MPI_Aint disp, char *raw, char *mem, size_t size, int way,
			   uint64_t seed)
{
	size_t len = PAGES * page;
	char *old = NULL, *copy = NULL;

	if (t_rank == 1) {
		change(raw, len, way, &old);
		if (old) {
			copy = malloc(len);
			memcpy(copy, old, len);
		}
	}
	t_barrier();
	use(win, disp, mem, size, seed);
	if (old) {
		T_BYTES("what was moved away", old, copy, len);
		munmap(old, len);
		free(copy);
	}
}

static void window(void)
{
	size_t len = PAGES * page, size = len - 2 * ODD;
	char *raw = anon(len), *mem = raw + ODD;
	MPI_Win win;

	M(MPI_Win_create(mem, (MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	for (int i = 0; i < 2 * WAYS; i++)
		change_and_use(win, 0, raw, mem, size, i % WAYS, t_seed + i);
	M(MPI_Win_free(&win));
	munmap(raw, len);
}

/* only a part of the window changes: what is in the rest stays */
static void window_part(void)
{
	size_t len = PAGES * page, at = 3 * page, n = 2 * page;
	char *raw = anon(len), *want = malloc(len), *old;
	MPI_Win win;

	M(MPI_Win_create(raw, (MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	use(win, 0, raw, len, t_seed);
	for (int way = DISCARD; way < WAYS; way++) {
		t_fill(want, len, t_seed + way);
		if (t_rank == 1) {
			memcpy(raw, want, len);
			change(raw + at, n, way, &old);
			if (old)
				munmap(old, n);
		}
		memset(want + at, 0, n);
		t_barrier();
		if (t_rank == 0) {
			char *got = malloc(len);

			memset(got, 0xee, len);
			M(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
			M(MPI_Get(got, (int)len, MPI_BYTE, 1, 0, (int)len, MPI_BYTE, win));
			M(MPI_Win_unlock(1, win));
			T_BYTES(way_names[way], got, want, len);
			free(got);
		}
		t_barrier();
	}
	M(MPI_Win_free(&win));
	free(want);
	munmap(raw, len);
}

/* detached, unmapped, mapped at the same address, attached again */
static void dynamic(void)
{
	size_t len = PAGES * page, size = len - 2 * ODD;
	char *raw = anon(len), *mem = raw + ODD, *old;
	MPI_Aint disp;
	MPI_Win win;

	M(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	for (int i = 0; i < 2 * WAYS; i++) {
		M(MPI_Win_attach(win, mem, (MPI_Aint)size));
		M(MPI_Get_address(mem, &disp));
		M(MPI_Bcast(&disp, 1, MPI_AINT, 1, MPI_COMM_WORLD));
		use(win, disp, mem, size, t_seed + i);
		/* as it should not be done, but works */
		change_and_use(win, disp, raw, mem, size, i % WAYS, t_seed + 100 + i);
		M(MPI_Win_detach(win, mem));
		change(raw, len, (i + 1) % WAYS, &old);
		if (old)
			munmap(old, len);
		t_barrier();
	}
	M(MPI_Win_free(&win));
	munmap(raw, len);
}

/* a child has the pages, too, while the window is used */
static void forked(void)
{
	size_t len = PAGES * page;
	char *raw = anon(len), c = 0;
	int fd[2], status;
	MPI_Win win;
	pid_t child = 0;

	t_fill(raw, len, t_seed);
	M(MPI_Win_create(raw, (MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	use(win, 0, raw, len, t_seed + 1);
	if (t_rank == 1) {
		T_EQ(pipe(fd), 0);
		child = fork();
		if (!child) {
			char *want = malloc(len);

			/* until the parent says that it has been used again: our copy is what it was */
			close(fd[1]);
			status = read(fd[0], &c, 1) != 1;
			t_fill(want, len, t_seed + 1);
			_exit(status || memcmp(raw + len / 2, want + len / 2, len / 2));
		}
	}
	t_barrier();
	use(win, 0, raw, len, t_seed + 2);
	use(win, 0, raw, len, t_seed + 3);
	if (t_rank == 1) {
		T_EQ(write(fd[1], &c, 1), 1);
		T_EQ(waitpid(child, &status, 0), child);
		T_EQ(status, 0);
		close(fd[0]);
		close(fd[1]);
	}
	t_barrier();
	use(win, 0, raw, len, t_seed + 4);
	M(MPI_Win_free(&win));
	munmap(raw, len);
}

/* memory for reading: read it can be, and written it is not */
static void read_only(void)
{
	size_t len = PAGES * page;
	char *raw = anon(len), *want = malloc(len), *got = malloc(len);
	MPI_Win win;
	int err;

	if (!t_expect_progress) {
		t_skip("a put to such memory ends the target natively");
		free(want);
		free(got);
		munmap(raw, len);
		return;
	}
	t_fill(want, len, t_seed);
	memcpy(raw, want, len);
	T_EQ(mprotect(raw, len, PROT_READ), 0);
	M(MPI_Win_create(raw, (MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	if (t_rank == 0) {
		memset(got, 0x11, len);
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
		M(MPI_Get(got, (int)len, MPI_BYTE, 1, 0, (int)len, MPI_BYTE, win));
		M(MPI_Win_unlock(1, win));
		T_BYTES("what was read", got, want, len);
		memset(got, 0x11, len);
		for (size_t n = 8; n <= len; n = n == 8 ? len : len + 1) {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
			err = MPI_Put(got, (int)n, MPI_BYTE, 1, 0, (int)n, MPI_BYTE, win);
			if (!err)
				err = MPI_Win_flush(1, win);
			T_OK(err != MPI_SUCCESS, "a put of %zu bytes", n);
			MPI_Win_unlock(1, win);
		}
	}
	t_barrier();
	T_BYTES("memory for reading", raw, want, len);
	t_barrier();
	M(MPI_Win_free(&win));
	free(want);
	free(got);
	munmap(raw, len);
}

/* Rank 0: all of @buf to rank 1. */
static void put_all(MPI_Win win, const char *buf, size_t len)
{
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
	M(MPI_Put(buf, (int)len, MPI_BYTE, 1, 0, (int)len, MPI_BYTE, win));
	M(MPI_Win_unlock(1, win));
}

/* Collective: rank 1 has it. */
static void has_come(MPI_Win win, const char *mem, const char *want, size_t len)
{
	t_barrier();
	if (t_rank == 1) {
		M(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
		T_BYTES("the window", mem, want, len);
		M(MPI_Win_unlock(1, win));
	}
	t_barrier();
}

/* large origin buffers, used several times before they change */
static void origin(void)
{
	size_t len = 64 * page;
	char *buf = anon(len), *mem, *want = malloc(len), *old;
	MPI_Win win;

	M(MPI_Win_allocate((MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	for (int i = 0; i < 4 * WAYS; i++) {
		int round = i % 4;

		t_fill(want, len, t_seed + i);
		if (t_rank == 0) {
			memcpy(buf, want, len);
			put_all(win, buf, len);
			memset(buf, 0x55, len);
			M(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
			M(MPI_Get(buf, (int)len, MPI_BYTE, 1, 0, (int)len, MPI_BYTE, win));
			M(MPI_Win_unlock(1, win));
			T_BYTES("what was read back", buf, want, len);
			if (round == 3) {
				change(buf, len, i / 4, &old);
				if (old)
					munmap(old, len);
			}
		}
		has_come(win, mem, want, len);
	}
	M(MPI_Win_free(&win));
	free(want);
	munmap(buf, len);
}

/* origin buffers that cannot be written */
static void origin_read_only(void)
{
	size_t len = 64 * page;
	char *buf = anon(len), *mem, *want = malloc(len);
	MPI_Win win;

	M(MPI_Win_allocate((MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	t_fill(want, len, t_seed);
	memcpy(buf, want, len);
	T_EQ(mprotect(buf, len, PROT_READ), 0);
	for (int i = 0; i < 4; i++) {
		if (t_rank == 1) {
			M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
			memset(mem, i, len);
			M(MPI_Win_unlock(1, win));
		}
		t_barrier();
		if (t_rank == 0)
			put_all(win, buf, len);
		has_come(win, mem, want, len);
	}
	M(MPI_Win_free(&win));
	free(want);
	munmap(buf, len);
}

static void messages(void)
{
	size_t len = 256 * page;
	char *buf = anon(len), *want = malloc(len), *old;

	for (int i = 0; i < 4 * WAYS; i++) {
		t_fill(want, len, t_seed + i);
		if (t_rank == 0) {
			memcpy(buf, want, len);
			M(MPI_Send(buf, (int)len, MPI_BYTE, 1, i, MPI_COMM_WORLD));
		} else if (t_rank == 1) {
			M(MPI_Recv(buf, (int)len, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
			T_BYTES("what was received", buf, want, len);
		}
		if (i % 4 == 3) {
			change(buf, len, i / 4, &old);
			if (old)
				munmap(old, len);
		}
	}
	t_barrier();
	free(want);
	munmap(buf, len);
}

int main(int argc, char **argv)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(window, 2);
	T_RUN(window_part, 2);
	T_RUN(dynamic, 2);
	T_RUN(forked, 2);
	T_RUN(read_only, 2);
	T_RUN(origin, 2);
	T_RUN(origin_read_only, 2);
	T_RUN(messages, 2);
	return t_fini();
}

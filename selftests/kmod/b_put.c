// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a put costs the target's daemon, by the kind of the window's memory: a memory file, malloc'ed memory that
 * is pinned and mapped, and malloc'ed memory reached by process_vm_writev.  Measured are finding out where the
 * window is and applying the put, in which alone they differ.
 *
 *	KMOD_ICOUNT=1 selftests/kmod/run 6.12 b_put	time is the number of instructions
 */
#include <fcntl.h>
#include <sys/mman.h>

#include <libprogbase/apply.h>

#include "kmodtest.h"
#include "win/win.h"

#define SIZE	(2ul << 20)
#define ROUNDS	101

enum { FILE_MEM, PINNED, BY_ADDRESS, KINDS };
static const char * const kind_names[] = { "memory file", "pinned", "by address" };

static struct win_job *job;

static int memfd_of(size_t size, void **p)
{
	int fd = memfd_create("b_put", MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, size) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		exit(1);
	*p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return fd;
}

static struct win *window(int kind, uint8_t *mem, struct win_map *map, const char **why)
{
	struct { struct prog_win_table t; struct prog_win_node n[1]; uint32_t of[1]; } t = {
		.t = { .nranks = 1, .nnodes = 1 },
	};
	struct win_create c = {
		.job = job, .key = 1 + kind, .nranks = 1, .session = 1, .pid = getpid(), .size = SIZE,
		.mem = kind == FILE_MEM ? PROG_MEM_SHARED : PROG_MEM_VA, .cma = true, .mem_fd = -1,
		.base = kind == FILE_MEM ? 0 : (uintptr_t)mem, .mem_map = map,
	};
	struct win *w;
	void *p;

	c.ctl_fd = memfd_of(winctl_size(1, 0), &p);
	winctl_format(p, c.key, 0, 1, 0);
	c.table_fd = memfd_of(PAGE, &p);
	memcpy(p, &t, sizeof(t));
	if (kind == FILE_MEM)
		c.mem_fd = memfd_of(SIZE, &p);
	return win_new(&c, &w, why) ? NULL : w;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static int put(struct win *w, const void *src, size_t n)
{
	struct win_where where;
	struct apply_win aw;
	int err = win_where(w, 0, n, &where);

	if (err)
		return err;
	aw = (struct apply_win){ .mem = where.ref, .lo = where.lo, .hi = where.hi };
	return apply_put(&aw, 0, NULL, n, 0, src, n);
}

TEST(put_by_memory)
{
	static const uint8_t id[PROG_JOBID_SIZE] = { 1 }, key[PROG_JOBKEY_SIZE] = { 1 };
	static const size_t sizes[] = { 8, 4096, 1 << 20 };
	uint8_t *mem = malloc(SIZE), *src = malloc(SIZE);
	struct win_map *map = NULL;
	struct win_device *dev;
	struct win *w[KINDS];
	struct pin_region r;
	const char *why = "";
	int i, k, s;

	memset(mem, 1, SIZE);
	memset(src, 2, SIZE);
	ASSERT_EQ(0, win_job_join(id, key, getuid(), &job, &why));
	ASSERT_EQ(0, win_device_new(-1, &dev, &why));
	ASSERT_EQ(0, pin_register(&dev->dev, mem, SIZE, true, &r));
	ASSERT_EQ(0, win_map_pin(job->user, dev, r.handle, (uintptr_t)mem, SIZE, &map, &why));
	for (k = 0; k < KINDS; k++) {
		w[k] = window(k, mem, k == PINNED ? map : NULL, &why);
		ASSERT_NE(NULL, w[k]);
		ASSERT_EQ(0, put(w[k], src, SIZE));
	}
	ASSERT_EQ(0, memcmp(mem, src, SIZE));
	for (s = 0; s < 3; s++) {
		double t[KINDS][ROUNDS];
		/* short ones many at a time: the clock costs as much as they do */
		int each = sizes[s] < PAGE ? 100 : sizes[s] < SIZE / 2 ? 10 : 1;

		for (i = 0; i < ROUNDS; i++) {
			for (k = 0; k < KINDS; k++) {
				double start = now();
				int n;

				for (n = 0; n < each; n++)
					if (put(w[k], src, sizes[s]))
						exit(1);
				t[k][i] = (now() - start) / each;
			}
		}
		for (k = 0; k < KINDS; k++)
			qsort(t[k], ROUNDS, sizeof(double), by_value);
		for (k = 0; k < KINDS; k++)
			TH_LOG("%zu bytes, %s: %.0f ns, %.3f of a memory file", sizes[s], kind_names[k],
			       t[k][ROUNDS / 2], t[k][ROUNDS / 2] / t[FILE_MEM][ROUNDS / 2]);
		EXPECT_LE(t[PINNED][ROUNDS / 2], 1.1 * t[FILE_MEM][ROUNDS / 2]);
	}
	for (k = 0; k < KINDS; k++)
		win_free(w[k]);
	win_map_put(map);
	pin_unregister(&dev->dev, r.handle);
	win_device_put(dev);
}

TEST_HARNESS_MAIN

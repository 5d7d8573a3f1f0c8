// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Memory files that are refused; pinned memory: mapped, counted, used while it is fresh, and by its address after. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <kit/kit.h>

#include <kit/pin_fake.h>
#include <libprogbase/apply.h>

#include "win/win.h"

#define PAGE	4096
#define SIZE	(64 * PAGE)
#define KEY	77

static const uint8_t jobid[PROG_JOBID_SIZE] = { 1 }, jobkey[PROG_JOBKEY_SIZE] = { 2 };
static struct win_job *job;
static struct pin_dev mine;		/* the client's end of the context */
static struct win_device *device;	/* ours */
static char *mem;

static void open_both(void)
{
	const char *why = "";

	assert_int_equal(pin_dev_open(&mine), 0);
	assert_int_equal(win_device_new(dup(mine.fd), &device, &why), 0);
}

static void close_both(void)
{
	win_device_put(device);
	pin_dev_close(&mine);
}

static struct win_pins counted(void)
{
	struct win_pins p;

	win_pins(&p);
	return p;
}

static struct win_map *pin(char *addr, size_t len, bool write, struct pin_region *r)
{
	struct win_map *m = NULL;
	const char *why = "";

	assert_int_equal(pin_register(&mine, addr, len, write, r), 0);
	if (win_map_pin(job->user, device, r->handle, (uintptr_t)addr, len, &m, &why))
		fail_msg("%s", why);
	return m;
}

static void test_device(void **state)
{
	const char *why = "";

	assert_int_equal(win_device_new(memfd_create("other", 0), &device, &why), -EINVAL);
	assert_string_not_equal(why, "");
	pin_fake.open_err = -EACCES;
	assert_int_equal(win_device_new(-1, &device, &why), -EACCES);
	pin_fake.open_err = 0;
	assert_int_equal(win_device_new(-1, &device, &why), 0);
	win_device_put(device);
	win_device_put(NULL);
}

static void test_map(void **state)
{
	struct win_limits lim, old;
	struct pin_region r;
	struct win_map *m;
	const char *why = "";

	open_both();
	m = pin(mem + 100, 2 * PAGE, true, &r);
	assert_int_equal(m->size, 2 * PAGE);
	assert_int_equal(counted().regions, 1);
	assert_int_equal(counted().bytes, 3 * PAGE);
	assert_true(win_map_usable(m) && m->writable);
	mem[100] = 1;
	assert_int_equal(*(char *)m->mem, 1);
	((char *)m->mem)[2 * PAGE - 1] = 5;
	assert_int_equal(mem[100 + 2 * PAGE - 1], 5);
	pin_fake_stale(r.handle);
	assert_true(win_map_alive(m));
	assert_false(win_map_usable(m));
	/* the marks are there as long as somebody may look at one */
	win_map_get(m);
	win_map_put(m);
	close_both();
	assert_false(win_map_usable(m));
	win_map_put(m);
	assert_int_equal(counted().regions, 0);
	assert_int_equal(counted().bytes, 0);

	open_both();
	assert_int_equal(win_map_pin(job->user, device, 1234, 0, PAGE, &m, &why), -ESTALE);
	assert_int_equal(pin_register(&mine, mem, PAGE, true, &r), 0);
	assert_int_equal(win_map_pin(job->user, device, r.handle, UINT64_MAX - 10, PAGE, &m, &why), -ERANGE);
	assert_int_equal(win_map_pin(job->user, device, r.handle, 0, PAGE + 1, &m, &why), -ERANGE);
	assert_int_equal(win_map_pin(job->user, device, r.handle, 0, 0, &m, &why), -ERANGE);
	pin_fake_stale(r.handle);
	assert_int_equal(win_map_pin(job->user, device, r.handle, 0, PAGE, &m, &why), -ESTALE);

	/* what is mapped counts, and is given back */
	win_limits_get(&old);
	lim = old;
	lim.bytes = 4 * PAGE;
	win_limits_set(&lim);
	for (int i = 0; i < 5; i++) {
		m = pin(mem, 4 * PAGE, true, &r);
		assert_int_equal(win_map_pin(job->user, device, r.handle, 0, 4 * PAGE, &m, &why), -EDQUOT);
		win_map_put(m);
	}
	win_limits_set(&old);
	close_both();
	assert_int_equal(counted().bytes, 0);
}

/* The registration ends under us (its owner exits): SIGBUS, and the daemon lives. */
static void test_gone(void **state)
{
	struct pin_region r;
	struct win_map *m;

	/* cmocka has put a handler of its own there */
	assert_int_equal(win_sigbus_init(), 0);
	open_both();
	m = pin(mem, 4 * PAGE, true, &r);
	assert_ptr_not_equal(mmap(m->start, m->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
				  memfd_create("empty", 0), 0), MAP_FAILED);
	memset(m->mem, 1, m->size);
	assert_false(win_map_alive(m));
	assert_false(win_map_usable(m));
	win_map_put(m);
	close_both();
}

static int memfd(size_t size, void **p)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	*p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(*p != MAP_FAILED);
	return fd;
}

/* What a client gives us to map: nothing that it can take away under us, and all of what it says. */
static void test_files(void **state)
{
	static const struct { int seals; size_t size; int err; } list[] = {
		{ F_SEAL_SHRINK, SIZE, 0 },
		{ F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, SIZE, 0 },
		{ 0, SIZE, -EINVAL },
		{ F_SEAL_GROW, SIZE, -EINVAL },
		{ F_SEAL_SHRINK | F_SEAL_WRITE, SIZE, -EPERM },
		{ F_SEAL_SHRINK, PAGE - 1, -EINVAL },
		{ F_SEAL_SHRINK, 0, -EINVAL },
	};
	struct win_limits lim, old;
	struct win_map *m;
	const char *why = "";
	unsigned int i, k;
	int fd;

	win_limits_get(&old);
	lim = old;
	lim.bytes = SIZE;
	win_limits_set(&lim);
	/* twice, as what is refused is not charged either */
	for (i = 0; i < 2; i++) {
		for (k = 0; k < sizeof(list) / sizeof(list[0]); k++) {
			fd = memfd_create("test", MFD_ALLOW_SEALING);
			assert_int_equal(ftruncate(fd, (off_t)list[k].size), 0);
			assert_int_equal(fcntl(fd, F_ADD_SEALS, list[k].seals), 0);
			assert_int_equal(win_map_fd(job->user, fd, PAGE, false, &m, &why), list[k].err);
			/* ours in any case */
			assert_int_equal(fcntl(fd, F_GETFD), -1);
			if (!list[k].err)
				win_map_put(m);
		}
		assert_int_equal(win_map_fd(job->user, open("/proc/self/exe", O_RDONLY), PAGE, false, &m, &why),
				 -EINVAL);
	}
	win_limits_set(&old);
}

static _Atomic(struct win_map *) regions[2];
static const struct win_regions all_regions = { regions, 2 };

static int window(uint32_t kind, char *base, size_t size, struct win_map *m, struct win **w,
		  struct winctl *wc)
{
	struct { struct prog_win_table t; struct prog_win_node n[1]; uint32_t of[1]; } t = {
		.t = { .nranks = 1, .nnodes = 1 },
	};
	struct win_create c = {
		.job = job, .key = KEY, .nranks = 1, .session = 1, .pid = getpid(), .mem = kind,
		.base = (uintptr_t)base, .size = size, .cma = true, .mem_fd = -1, .mem_map = m,
		.regions = &all_regions,
	};
	size_t ctl_size = winctl_size(1, 4);
	const char *why = "";
	void *p;

	c.ctl_fd = memfd(ctl_size, &p);
	winctl_format(p, KEY, 0, 1, 4);
	assert_int_equal(winctl_attach(wc, p, ctl_size, KEY, 0, 1, &why), 0);
	c.table_fd = memfd(PAGE, &p);
	memcpy(p, &t, sizeof(t));
	munmap(p, PAGE);
	return win_new(&c, w, &why);
}

static void put(struct win *w, int64_t at, char value, bool direct, bool stale)
{
	struct win_where where;
	struct apply_win aw;

	assert_int_equal(win_where(w, at, at + 1, &where), 0);
	assert_int_equal(mem_is_direct(&where.ref), direct);
	assert_int_equal(where.stale, stale);
	assert_int_equal(where.map != NULL, direct);
	aw = (struct apply_win){ .mem = where.ref, .lo = where.lo, .hi = where.hi };
	assert_int_equal(apply_put(&aw, at, NULL, 1, 0, &value, 1), 0);
}

static void test_window(void **state)
{
	char *base = mem + PAGE + 8;
	uint64_t calls = mem_vm_calls();
	struct pin_region r;
	struct win_map *m, *ro;
	struct winctl wc;
	struct win *w;

	open_both();
	m = pin(mem + PAGE, 4 * PAGE, true, &r);
	/* it must be whole within what is pinned, and that for writing */
	assert_int_equal(window(PROG_MEM_VA, base, 4 * PAGE, m, &w, &wc), -ERANGE);
	assert_int_equal(window(PROG_MEM_VA, mem, 8, m, &w, &wc), -ERANGE);
	ro = pin(mem + PAGE, 4 * PAGE, false, &r);
	assert_int_equal(window(PROG_MEM_VA, base, 100, ro, &w, &wc), -ERANGE);
	win_map_put(ro);
	/* a window of shared memory is given to peers, which could not map this one */
	assert_int_equal(window(PROG_MEM_SHARED, NULL, 100, m, &w, &wc), -EINVAL);

	assert_int_equal(window(PROG_MEM_VA, base, 2 * PAGE, m, &w, &wc), 0);
	put(w, 0, 'a', true, false);
	put(w, 2 * PAGE - 1, 'b', true, false);
	assert_int_equal(base[0], 'a');
	assert_int_equal(base[2 * PAGE - 1], 'b');
	/* no system call for that */
	assert_int_equal(mem_vm_calls(), calls);
	assert_int_equal(win_where(w, 0, 2 * PAGE + 1, &(struct win_where){ 0 }), -ERANGE);

	/* other memory is at the address now: that is where data have to go */
	pin_fake_stale(m->handle);
	assert_ptr_equal(mmap(mem + PAGE, 4 * PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), mem + PAGE);
	put(w, 0, 'c', false, true);
	assert_int_equal(base[0], 'c');
	assert_int_equal(*((char *)m->mem + 8), 'a');
	assert_true(mem_vm_calls() > calls);
	win_free(w);
	munmap(wc.ctl, wc.size);
	win_map_put(m);
	close_both();
}

static void test_dynamic(void **state)
{
	char *base = mem + 8 * PAGE;
	uint64_t calls = mem_vm_calls();
	struct pin_region r[2];
	struct winctl wc;
	struct win *w;

	open_both();
	regions[0] = pin(base, 2 * PAGE, true, &r[0]);
	regions[1] = pin(base + 4 * PAGE, PAGE, false, &r[1]);
	assert_int_equal(window(PROG_MEM_DYNAMIC, NULL, 0, NULL, &w, &wc), 0);
	wc.ranges[0] = (struct prog_win_range){ .region = 1, .base = (uintptr_t)base, .len = 2 * PAGE };
	wc.ranges[1] = (struct prog_win_range){
		.region = 2, .base = (uintptr_t)base + 4 * PAGE, .len = PAGE,
	};
	put(w, (intptr_t)base + 17, 'x', true, false);
	assert_int_equal(base[17], 'x');
	assert_int_equal(mem_vm_calls(), calls);
	/* pinned for reading: as if it were not pinned, and the process decides */
	put(w, (intptr_t)base + 4 * PAGE, 'y', false, true);
	pin_fake_stale(r[0].handle);
	put(w, (intptr_t)base + 18, 'z', false, true);
	assert_int_equal(base[18], 'z');
	/* beyond what the client says is there */
	wc.ranges[0].len = 3 * PAGE;
	assert_int_equal(win_where(w, (intptr_t)base, (intptr_t)base + 1, &(struct win_where){ 0 }), -EFAULT);
	win_free(w);
	munmap(wc.ctl, wc.size);
	win_map_put(regions[0]);
	win_map_put(regions[1]);
	close_both();
}

static void test_ranks(void **state)
{
	static const uint32_t list[][2] = {		/* rank, of so many */
		{ 0, 0 }, { 1, 1 }, { UINT32_MAX, 1 }, { 0, WIN_MAX_RANKS + 1 }, { 0, UINT32_MAX },
	};
	size_t ctl_size = winctl_size(1, 4);
	struct win_limits lim, old;
	const char *why = "";
	struct win *w;
	void *p;

	win_limits_get(&old);
	lim = old;
	lim.windows = 1;
	win_limits_set(&lim);
	for (unsigned int i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		struct win_create c = {
			.job = job, .key = KEY, .rank = list[i][0], .nranks = list[i][1], .session = 1,
			.mem = PROG_MEM_NONE, .mem_fd = -1, .regions = &all_regions,
		};

		c.ctl_fd = memfd(ctl_size, &p);
		winctl_format(p, KEY, 0, 1, 4);
		munmap(p, ctl_size);
		c.table_fd = memfd(PAGE, &p);
		munmap(p, PAGE);
		/* before anything of it is looked at, which would be -EPROTO */
		assert_int_equal(win_new(&c, &w, &why), -EINVAL);
		assert_int_equal(fcntl(c.ctl_fd, F_GETFD), -1);
		assert_int_equal(fcntl(c.table_fd, F_GETFD), -1);
	}
	win_limits_set(&old);
}

/* A window of @nranks ranks on as many nodes, or of a table in which one of them is on none. */
static int wide_window(uint64_t key, uint32_t nranks, bool right, struct win **w, const char **why)
{
	size_t ctl_size = winctl_size(nranks, 4), nodes = nranks * sizeof(struct prog_win_node);
	struct win_create c = {
		.job = job, .key = key, .nranks = nranks, .session = 1, .mem = PROG_MEM_NONE, .mem_fd = -1,
		.regions = &all_regions,
	};
	size_t size = sizeof(struct prog_win_table) + nodes + nranks * sizeof(uint32_t);
	struct prog_win_table *t;
	uint32_t *of;
	void *p;

	c.ctl_fd = memfd(ctl_size, &p);
	winctl_format(p, key, 0, nranks, 4);
	munmap(p, ctl_size);
	c.table_fd = memfd(size, &p);
	t = p;
	*t = (struct prog_win_table){ .nranks = nranks, .nnodes = nranks };
	of = (uint32_t *)((char *)(t + 1) + nodes);
	for (uint32_t i = 0; i < nranks; i++)
		of[i] = right ? i : i + 1;
	munmap(p, size);
	return win_new(&c, w, why);
}

/* What a window's table takes of ours is its user's, as long as somebody has the window. */
static void test_tables(void **state)
{
	const uint32_t n = 8;
	struct win_limits lim, old;
	const char *why = "";
	struct win *w[2], *none;

	win_limits_get(&old);
	lim = old;
	lim.tables = 2 * n * (sizeof(struct prog_win_node) + sizeof(uint32_t));
	win_limits_set(&lim);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(wide_window(KEY, n, true, &w[0], &why), 0);
		/* what is refused is not charged */
		assert_int_equal(wide_window(KEY + 1, n, false, &none, &why), -EPROTO);
		assert_int_equal(wide_window(KEY, n, true, &none, &why), -EEXIST);
		assert_int_equal(wide_window(KEY + 1, n, true, &w[1], &why), 0);
		assert_int_equal(wide_window(KEY + 2, 1, true, &none, &why), -EDQUOT);
		assert_non_null(strstr(why, "quota_tables"));
		win_get(w[1]);
		win_free(w[1]);
		assert_int_equal(wide_window(KEY + 2, 1, true, &none, &why), -EDQUOT);
		win_put(w[1]);
		win_free(w[0]);
	}
	assert_int_equal(job->user->used[USER_TABLES], 0);
	win_limits_set(&old);
}

static int setup(void **state)
{
	const char *why = "";

	pin_fake_on();
	mem = pin_fake_mem(SIZE);
	return !mem || win_job_join(jobid, jobkey, getuid(), &job, &why);
}

static int teardown(void **state)
{
	win_job_leave(job);
	return 0;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_files),
	cmocka_unit_test(test_ranks),
	cmocka_unit_test(test_tables),
	cmocka_unit_test(test_device),
	cmocka_unit_test(test_map),
	cmocka_unit_test(test_window),
	cmocka_unit_test(test_dynamic),
	cmocka_unit_test(test_gone),
};

KIT_SUITE(tests, .setup = setup, .teardown = teardown);

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Memory of this and of another process: whole, in pieces, through datatypes, and missing. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/kit.h>

#include "mem.h"
#include "procfs.h"

#define SIZE	(1 << 20)

struct other {
	pid_t pid;
	int go;
	unsigned char *mem;	/* the same address in the child: a private copy of its own */
};

static unsigned char pattern(size_t i)
{
	return i * 31 + (i >> 8) + 5;
}

/* A process whose memory at `mem` holds the pattern; it checks nothing and sleeps. */
static int other_start(void **state)
{
	static struct other o;
	int go[2], ready[2];
	char c = 0;

	o.mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (o.mem == MAP_FAILED || pipe(go) || pipe(ready))
		return -1;
	o.pid = fork();
	if (!o.pid) {
		close(go[1]);
		close(ready[0]);
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
		for (size_t i = 0; i < SIZE; i++)
			o.mem[i] = pattern(i);
		/* a hole in the last page */
		if (munmap(o.mem + SIZE - 4096, 4096) || write(ready[1], &c, 1) != 1)
			_exit(1);
		_exit(read(go[0], &c, 1) ? 1 : 0);
	}
	close(go[0]);
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		return -1;
	close(ready[0]);
	o.go = go[1];
	*state = &o;
	return 0;
}

static int other_stop(void **state)
{
	struct other *o = *state;
	int status;

	close(o->go);
	if (waitpid(o->pid, &status, 0) != o->pid || status)
		return -1;
	return munmap(o->mem, SIZE);
}

static struct memref remote(const struct other *o)
{
	struct memref m = mem_remote(o->pid, (uintptr_t)o->mem);
	unsigned char c;
	int ret = mem_read(&m, 0, &c, 1);

	if (ret == -EPERM || ret == -ENOSYS) {
		print_message("# no CMA here: %s\n", strerror(-ret));
		skip();
	}
	return m;
}

static void test_linear(void **state)
{
	const struct other *o = *state;
	struct memref m = remote(o);
	static unsigned char buf[SIZE];
	size_t n = SIZE - 4096;

	assert_int_equal(mem_read(&m, 0, buf, n), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(buf[i], pattern(i));
	assert_int_equal(mem_write(&m, 1000, "hello", 5), 0);
	assert_int_equal(mem_read(&m, 999, buf, 7), 0);
	assert_memory_equal(buf + 1, "hello", 5);
	assert_int_equal(buf[0], pattern(999));
	assert_int_equal(buf[6], pattern(1005));
	for (int i = 0; i < 5; i++)
		buf[i] = pattern(1000 + i);
	assert_int_equal(mem_write(&m, 1000, buf, 5), 0);
	/* ours is another copy */
	assert_int_equal(o->mem[1000], 0);
	assert_int_equal(mem_read(&m, 0, NULL, 0), 0);
	assert_int_equal(mem_read(&m, n - 4, buf, 8), -EFAULT);
	assert_int_equal(mem_write(&m, n, buf, 8), -EFAULT);
}

static void test_dtype(void **state)
{
	const struct other *o = *state;
	struct memref far = remote(o), near = mem_direct(o->mem);
	static unsigned char a[60000], b[60000];
	struct dtype *byte, *dt;
	unsigned int seed = 8;

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_BYTE, &byte), 0);
	/* 20000 blocks: many system calls */
	assert_int_equal(prog_dtype_new_hvector(20000, 3, 37, byte, &dt), 0);
	for (size_t i = 0; i < SIZE; i++)
		o->mem[i] = pattern(i);
	for (int k = 0; k < 30; k++) {
		uint64_t off = rand_r(&seed) % 60000, len = rand_r(&seed) % (60000 - off + 1);

		if (!k)
			off = 0, len = 60000;
		memset(a, 0, sizeof(a));
		memset(b, 0, sizeof(b));
		assert_int_equal(mem_read_dtype(&far, 11, dt, 1, off, a, len), 0);
		assert_int_equal(mem_read_dtype(&near, 11, dt, 1, off, b, len), 0);
		assert_memory_equal(a, b, sizeof(a));
		assert_true(!len || a[0] == pattern(11 + off / 3 * 37 + off % 3));
		for (uint64_t i = 0; i < len; i++)
			a[i] ^= 0xff;
		assert_int_equal(mem_write_dtype(&far, 11, dt, 1, off, a, len), 0);
		assert_int_equal(mem_read(&far, 11, b, 37), 0);
		assert_int_equal(b[3], pattern(14));
		memset(b, 0, sizeof(b));
		assert_int_equal(mem_read_dtype(&far, 11, dt, 1, off, b, len), 0);
		assert_memory_equal(a, b, len);
		for (uint64_t i = 0; i < len; i++)
			a[i] ^= 0xff;
		assert_int_equal(mem_write_dtype(&far, 11, dt, 1, off, a, len), 0);
	}
	assert_int_equal(mem_read_dtype(&far, 0, dt, 1, 1, a, 60000), -ERANGE);
	/* the hole is met in the middle of a batch */
	assert_int_equal(mem_read_dtype(&far, SIZE - 4096 - 500 * 37, dt, 1, 0, a, 6000), -EFAULT);
	assert_int_equal(mem_read_dtype(&far, SIZE - 4096 - 500 * 37, dt, 1, 0, a, 1500), 0);
	prog_dtype_put(dt);
	prog_dtype_put(byte);
}

static void test_pieces(void **state)
{
	const struct other *o = *state;
	struct memref m = remote(o), near = mem_direct(o->mem);
	struct iovec v[3] = {
		{ o->mem + 5000, 4 }, { o->mem + 10, 1 }, { o->mem + 8190, 5 },
	};
	unsigned char got[10], back[10];

	assert_int_equal(mem_readv(&m, v, 3, got, 10), 0);
	for (int i = 0, k = 0; i < 3; i++)
		for (size_t b = 0; b < v[i].iov_len; b++, k++)
			assert_int_equal(got[k], pattern((unsigned char *)v[i].iov_base - o->mem + b));
	assert_int_equal(mem_writev(&near, v, 3, got, 10), 0);
	assert_int_equal(mem_readv(&near, v, 3, back, 10), 0);
	assert_memory_equal(got, back, 10);
	assert_int_equal(mem_writev(&m, v, 3, got, 10), 0);
	v[1].iov_base = o->mem + SIZE - 1;
	assert_int_equal(mem_readv(&m, v, 3, got, 10), -EFAULT);
	/* no memory below page 0 either */
	m.addr = 0;
	assert_int_equal(mem_read(&m, 0, got, 1), -EFAULT);
	assert_int_equal(mem_read(&m, -1, got, 1), -EFAULT);
}

static void test_gone(void **state)
{
	struct memref m;
	unsigned char c = 1;
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	m = mem_remote(pid, (uintptr_t)&c);
	errno = 3;
	assert_int_equal(mem_read(&m, 0, &c, 1), -ESRCH);
	assert_int_equal(mem_write(&m, 0, &c, 1), -ESRCH);
	assert_int_equal(errno, 3);
}

struct last {
	int go, ready;
	unsigned char mem[64];
};

static void *last_thread(void *arg)
{
	struct last *l = arg;
	struct memref self = mem_remote(getpid(), (uintptr_t)l->mem);
	struct procfs_stat st;
	unsigned char c = 0;
	bool good;

	/* not by pthread_join(), which ThreadSanitizer refuses */
	while (procfs_stat(getpid(), getpid(), &st) && st.state != 'Z')
		usleep(1000);
	good = !mem_read(&self, 1, &c, 1) && c == pattern(1);
	if (write(l->ready, &good, 1) != 1 || read(l->go, &c, 1) != 1)
		_exit(1);
	_exit(l->mem[2] == 77 ? 0 : 1);
}

/* The first thread of a process, whose number is the process's, has ended, and another one goes on. */
static void test_first_thread_gone(void **state)
{
	const struct other *o = *state;
	static struct last l;
	int go[2], ready[2], status;
	unsigned char got[2] = { 0 };
	struct memref m = remote(o);
	uint64_t value, calls;
	pthread_t t;
	pid_t pid;

	assert_int_equal(pipe(go) || pipe(ready), 0);
	for (size_t i = 0; i < sizeof(l.mem); i++)
		l.mem[i] = pattern(i);
	pid = fork();
	if (!pid) {
		/* it ends when we do, and so does the other one when it is stopped */
		close(o->go);
		close(go[1]);
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
		l.go = go[0];
		l.ready = ready[1];
		if (pthread_create(&t, NULL, last_thread, &l))
			_exit(1);
		pthread_exit(NULL);
	}
	assert_int_equal(read(ready[0], got, 1), 1);
	assert_int_equal(got[0], 1);
	m = mem_remote(pid, (uintptr_t)l.mem);
	errno = 3;
	assert_int_equal(mem_read(&m, 5, got, 2), 0);
	assert_int_equal(got[0], pattern(5));
	assert_int_equal(got[1], pattern(6));
	got[0] = 77;
	assert_int_equal(mem_write(&m, 2, got, 1), 0);
	assert_int_equal(errno, 3);
	assert_int_equal(mem_read(&m, -(int64_t)(uintptr_t)l.mem, got, 1), -EFAULT);
	memcpy(&value, &l.mem[8], sizeof(value));
	calls = mem_vm_calls();
	assert_true(mem_holds(pid, (uintptr_t)&l.mem[8], value));
	assert_false(mem_holds(pid, (uintptr_t)&l.mem[8], value + 1));
	assert_false(mem_holds(pid, 0, value));
	assert_int_equal(errno, 3);
	assert_int_equal(mem_vm_calls(), calls);
	assert_int_equal(write(go[1], got, 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(mem_read(&m, 0, got, 1), -ESRCH);
	assert_false(mem_holds(pid, (uintptr_t)&l.mem[8], value));
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(ready[i]);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_linear),
	cmocka_unit_test(test_dtype),
	cmocka_unit_test(test_pieces),
	cmocka_unit_test(test_gone),
	cmocka_unit_test(test_first_thread_gone),
};

KIT_SUITE(tests, .setup = other_start, .teardown = other_stop);

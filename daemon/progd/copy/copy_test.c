/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "copy/copy.h"

static void test_cpu(void **state)
{
	uint8_t a[1000], b[1000] = { 0 };
	struct memref ma = mem_direct(a), mb = mem_direct(b);
	struct copy_stats st;
	int i;

	for (i = 0; i < 1000; i++)
		a[i] = i * 7;
	assert_string_equal(copy_select(&mb, &ma, 1000)->name, "cpu");
	assert_int_equal(copy_run(&mb, 10, &ma, 20, 900), 0);
	assert_memory_equal(b + 10, a + 20, 900);
	assert_int_equal(b[9] | b[910], 0);
	assert_int_equal(copy_run(&mb, 0, &ma, 0, 0), 0);
	assert_int_equal(b[0], 0);
	assert_true(copy_stats(0, &st));
	assert_int_equal(st.ops, 1);
	assert_int_equal(st.bytes, 900);
	assert_false(copy_stats(99, &st));
}

static void test_cma(void **state)
{
	const size_t len = 300000;
	/* the same address in the child, with contents of its own */
	uint8_t *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *mine = malloc(len);
	int fds[2], ret;
	struct memref r, l = mem_direct(mine);
	char c;
	size_t i;
	pid_t pid;

	assert_ptr_not_equal(mem, MAP_FAILED);
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		/* Yama may ask for it */
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
		memset(mem, 0x5a, len);
		if (write(fds[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(fds[0], &c, 1), 1);
	r = mem_remote(pid, (uintptr_t)mem);
	ret = copy_run(&l, 0, &r, 0, len);
	if (ret == -EPERM || ret == -ENOSYS) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		print_message("# process_vm_readv is not permitted here\n");
		skip();
	}
	assert_int_equal(ret, 0);
	for (i = 0; i < len; i++)
		assert_int_equal(mine[i], 0x5a);
	for (i = 0; i < len; i++)
		mine[i] = i * 3;
	assert_int_equal(copy_run(&r, 100, &l, 50, 5000), 0);
	memset(mine, 0, len);
	assert_int_equal(copy_run(&l, 0, &r, 0, len), 0);
	for (i = 0; i < 5000; i++)
		assert_int_equal(mine[100 + i], (uint8_t)((50 + i) * 3));
	assert_int_equal(mine[99], 0x5a);
	assert_int_equal(mine[5100], 0x5a);
	/* an address that is not there, no engine between two others, a process that is gone */
	assert_int_equal(copy_run(&l, 0, &(struct memref){ 4096, pid }, 0, 8), -EFAULT);
	assert_int_equal(copy_run(&r, 0, &r, 0, 8), -EOPNOTSUPP);
	assert_null(copy_select(&r, &r, 8));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(copy_run(&l, 0, &r, 0, 8), -ESRCH);
	free(mine);
	munmap(mem, len);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cpu),
		cmocka_unit_test(test_cma),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

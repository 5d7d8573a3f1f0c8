// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Contexts, registrations and what is made of a handle that somebody sent. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kit/kit.h>

#include <kit/pin_fake.h>

#define SIZE	(64 * 4096)

static char *mem;

static void test_attach(void **state)
{
	struct pin_dev d;
	int fd[2];

	/* whatever else a client may send, with the real system calls below: refused and closed */
	assert_int_equal(pin_dev_attach(&d, open("/dev/null", O_RDWR)), -EINVAL);
	assert_int_equal(d.fd, -1);
	assert_int_equal(pin_dev_attach(&d, memfd_create("x", 0)), -EINVAL);
	assert_int_equal(pipe(fd), 0);
	assert_int_equal(pin_dev_attach(&d, fd[0]), -EINVAL);
	assert_int_equal(fcntl(fd[0], F_GETFD), -1);
	close(fd[1]);
	assert_int_equal(pin_dev_attach(&d, open("/", O_PATH)), -EINVAL);
	assert_int_equal(pin_register(&d, mem, 1, true, NULL), -ENODEV);
	pin_dev_close(&d);
}

static void test_register(void **state)
{
	struct pin_dev d;
	struct pin_region r, q;
	void *p, *at;

	pin_fake.open_err = -EACCES;
	assert_int_equal(pin_dev_open(&d), -EACCES);
	assert_int_equal(d.fd, -1);
	pin_fake.open_err = 0;
	assert_int_equal(pin_dev_open(&d), 0);
	assert_int_equal(pin_register(&d, mem + 100, 5000, true, &r), 0);
	assert_true(pin_fresh(r.mark, r.handle));
	assert_int_equal(r.skip, 100);
	assert_int_equal(pin_query(&d, r.handle, &q), 0);
	assert_true(q.writable);
	assert_int_equal(q.len, 5000);
	assert_int_equal(q.map_len, 2 * 4096);
	p = pin_map(&d, &q, &at);
	assert_non_null(p);
	assert_ptr_equal((char *)p + 100, at);
	mem[100] = 7;
	assert_int_equal(*(char *)at, 7);
	((char *)at)[4999] = 9;
	assert_int_equal(mem[5099], 9);
	munmap(p, q.map_len);

	pin_fake_stale(r.handle);
	assert_false(pin_fresh(r.mark, r.handle));
	assert_int_equal(pin_query(&d, r.handle, &q), -ESTALE);
	assert_int_equal(pin_unregister(&d, r.handle), 0);
	assert_int_equal(pin_unregister(&d, r.handle), -ENOENT);
	assert_int_equal(pin_query(&d, r.handle, &q), -ESTALE);
	assert_int_equal(pin_query(&d, 0, &q), -ESTALE);

	/* for reading only */
	assert_int_equal(pin_register(&d, mem, 4096, false, &r), 0);
	assert_int_equal(pin_query(&d, r.handle, &q), 0);
	assert_false(q.writable);
	pin_unregister(&d, r.handle);
	pin_fake.register_err = -ENOMEM;
	assert_int_equal(pin_register(&d, mem, 4096, true, &r), -ENOMEM);
	pin_dev_close(&d);
	pin_dev_close(&d);
}

/* A handle of somebody else's context is none of this one, though the device knows it. */
static void test_other_context(void **state)
{
	struct pin_dev a, b;
	struct pin_region r, q;

	assert_int_equal(pin_dev_open(&a), 0);
	assert_int_equal(pin_dev_open(&b), 0);
	assert_int_equal(pin_register(&a, mem, 4096, true, &r), 0);
	assert_int_equal(pin_query(&a, r.handle, &q), 0);
	assert_int_equal(pin_query(&b, r.handle, &q), -ESTALE);
	pin_unregister(&a, r.handle);
	pin_dev_close(&a);
	pin_dev_close(&b);
}

static void test_why(void **state)
{
	static const int errors[] = { -ENOMEM, -EDQUOT, -ENOSPC, -EOPNOTSUPP, -EFAULT, -EAGAIN, -ENODEV };

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(pin_why(errors[i]), pin_why(errors[k]));
	assert_string_equal(pin_why(-EINTR), strerror(EINTR));
}

static int fake(void **state)
{
	pin_fake_on();
	return 0;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_attach),
	cmocka_unit_test_setup(test_register, fake),
	cmocka_unit_test(test_other_context),
	cmocka_unit_test(test_why),
};

static int setup_all(void **state)
{
	mem = pin_fake_mem(SIZE);
	return mem ? 0 : -1;
}

KIT_SUITE(tests, .setup = setup_all);

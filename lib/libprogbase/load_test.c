// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kit/kit.h>

#include <libprogbase/load.h>

static int running_in(const char *text)
{
	int fd = memfd_create("load", MFD_CLOEXEC), n;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	n = load_running(fd);
	assert_int_equal(load_running(fd), n);
	close(fd);
	return n;
}

static void test_texts(void **state)
{
	assert_int_equal(running_in("0.20 0.18 0.12 1/80 11206\n"), 1);
	assert_int_equal(running_in("120.00 99.18 0.12 317/4080 11206\n"), 317);
	assert_int_equal(running_in(""), -1);
	assert_int_equal(running_in("0.20 0.18"), -1);
	assert_int_equal(running_in("a b c d/e"), -1);
}

static void test_here(void **state)
{
	int fd = load_open();

	assert_true(fd >= 0);
	errno = EXDEV;
	assert_true(load_running(fd) >= 1);
	close(fd);
	assert_int_equal(load_running(-1), -1);
	assert_int_equal(errno, EXDEV);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_texts),
	cmocka_unit_test(test_here),
};

KIT_SUITE(tests);

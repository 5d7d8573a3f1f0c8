// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Which files are taken as a key of lanes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kit/kit.h>

#include "node/lane_key.h"

static char dir[] = "/tmp/lane_key.XXXXXX";
static char path[64], err[256];

static void make(size_t len, mode_t mode, char fill)
{
	static char bytes[LANE_KEY_MAX + 10];
	int fd;

	memset(bytes, fill, sizeof(bytes));
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static int lane_key(uint8_t *key)
{
	int ret = node_lane_key_read(path, key, err, sizeof(err));

	if (ret)
		assert_non_null(strstr(err, path));
	return ret;
}

static void test_files(void **state)
{
	uint8_t key[3][PROG_JOBKEY_SIZE];

	make(LANE_KEY_MIN, 0600, 'a');
	assert_int_equal(lane_key(key[0]), 0);
	make(LANE_KEY_MIN, 0400, 'a');
	assert_int_equal(lane_key(key[1]), 0);
	assert_memory_equal(key[0], key[1], PROG_JOBKEY_SIZE);
	make(LANE_KEY_MIN + 1, 0600, 'a');
	assert_int_equal(lane_key(key[2]), 0);
	assert_memory_not_equal(key[0], key[2], PROG_JOBKEY_SIZE);
	make(LANE_KEY_MAX, 0600, 'b');
	assert_int_equal(lane_key(key[2]), 0);

	for (mode_t mode = 001; mode <= 040; mode <<= 1) {
		make(LANE_KEY_MIN, 0600 | mode, 'a');
		assert_int_equal(lane_key(key[0]), -EPERM);
	}
	make(LANE_KEY_MIN - 1, 0600, 'a');
	assert_int_equal(lane_key(key[0]), -EINVAL);
	make(LANE_KEY_MAX + 1, 0600, 'a');
	assert_int_equal(lane_key(key[0]), -EINVAL);
	unlink(path);
	assert_int_equal(lane_key(key[0]), -ENOENT);
	/* nobody writes it */
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(lane_key(key[0]), -EINVAL);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(lane_key(key[0]), -EINVAL);
	rmdir(path);
	assert_int_equal(node_lane_key_read("~/no such file as this", key[0], err, sizeof(err)), -ENOENT);
}

static void test_others(void **state)
{
	uint8_t key[PROG_JOBKEY_SIZE];

	if (geteuid()) {
		print_message("# not root: no files of others\n");
		skip();
	}
	make(LANE_KEY_MIN, 0600, 'a');
	assert_int_equal(chown(path, 65534, 65534), 0);
	assert_int_equal(lane_key(key), -EPERM);
	unlink(path);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_files),
	cmocka_unit_test(test_others),
};

static int setup(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/key", dir);
	return 0;
}

static int teardown(void **state)
{
	return rmdir(dir);
}

KIT_SUITE(tests, .setup = setup, .teardown = teardown);

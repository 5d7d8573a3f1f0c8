// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <kit/kit.h>
#include <libprogbase/usock.h>

static char dir[] = "/tmp/usock-XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static int try_connect(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), r;

	strcpy(sa.sun_path, path);
	r = connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ? -errno : 0;
	close(fd);
	return r;
}

/* One serves; the next one does so when it has gone, and who knows the path never finds nothing there. */
static void test_place(void **state)
{
	const char *path = in_dir("s");
	struct stat st;
	int fd, next;

	fd = usock_listen(path, 0640, 8);
	assert_true(fd >= 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(try_connect(path), 0);
	assert_int_equal(usock_listen(path, 0640, 8), -EADDRINUSE);
	assert_int_equal(try_connect(path), 0);
	close(fd);
	assert_int_equal(try_connect(path), -ECONNREFUSED);
	next = usock_listen(path, 0600, 8);
	assert_true(next >= 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(try_connect(path), 0);
	/* what was there for a moment is not left */
	assert_int_equal(access(in_dir("~"), F_OK), -1);
	close(next);
	unlink(in_dir("s"));
}

/* A socket stands there, be it served or not; of another user than root and us it does not count. */
static void test_stands(void **state)
{
	const char *path = in_dir("s");
	int fd;

	assert_false(usock_stands(path));
	fd = usock_listen(path, 0600, 8);
	assert_true(fd >= 0);
	assert_true(usock_stands(path));
	close(fd);
	assert_true(usock_stands(path));
	if (!geteuid()) {
		assert_int_equal(chown(path, 65532, 65532), 0);
		assert_false(usock_stands(path));
	}
	unlink(path);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	assert_false(usock_stands(path));
	close(fd);
	unlink(path);
}

static void test_errors(void **state)
{
	char path[200];
	int fd;

	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(usock_listen(path, 0600, 8), -ENAMETOOLONG);
	assert_int_equal(usock_listen("", 0600, 8), -ENOENT);
	assert_int_equal(usock_listen(in_dir("no/s"), 0600, 8), -ENOENT);
	/* somebody's file stays what it is */
	fd = open(in_dir("f"), O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	assert_int_equal(usock_listen(in_dir("f"), 0600, 8), -EEXIST);
	assert_int_equal(access(in_dir("~"), F_OK), -1);
	assert_int_equal(access(in_dir("f"), F_OK), 0);
	close(fd);
	unlink(in_dir("f"));
}

static int setup(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	return rmdir(dir);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_place),
	cmocka_unit_test(test_stands),
	cmocka_unit_test(test_errors),
};

KIT_SUITE(tests, .setup = setup, .teardown = teardown);

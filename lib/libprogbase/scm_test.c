// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <dirent.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kit/kit.h>

#include <libprogbase/scm.h>

#define MANY	9

static int pair[2], file[MANY];

static int setup(void **state)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (int i = 0; i < MANY; i++)
		assert_true((file[i] = memfd_create("scm", MFD_CLOEXEC)) >= 0);
	return 0;
}

static int teardown(void **state)
{
	close(pair[0]);
	close(pair[1]);
	for (int i = 0; i < MANY; i++)
		close(file[i]);
	return 0;
}

static unsigned int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void send_with(const int *fds, unsigned int n)
{
	SCM_BUF(MANY) ctl;
	struct iovec iov = { "x", 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

	/* whatever was there before */
	memset(&ctl, 0xa5, sizeof(ctl));
	mh.msg_control = &mh;
	mh.msg_controllen = 1;
	scm_attach(&mh, ctl.buf, fds, n);
	assert_int_equal(sendmsg(pair[0], &mh, MSG_NOSIGNAL), 1);
}

/* Receives what was sent, with at most @max of its descriptors. */
static unsigned int receive(int *fds, unsigned int max)
{
	SCM_BUF(MANY) ctl;
	char c;
	struct iovec iov = { &c, 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			     .msg_controllen = sizeof(ctl.buf) };

	assert_int_equal(recvmsg(pair[1], &mh, MSG_CMSG_CLOEXEC), 1);
	assert_int_equal(mh.msg_flags & MSG_CTRUNC, 0);
	return scm_take(&mh, fds, max);
}

static void test_all(void **state)
{
	unsigned int before = open_files();

	/* odd and even numbers: one is padded */
	for (unsigned int n = 0; n <= MANY; n++) {
		int got[MANY + 1];

		send_with(file, n);
		assert_int_equal(receive(got, MANY + 1), n);
		for (unsigned int i = 0; i < n; i++) {
			struct stat sent, came;

			assert_int_equal(fstat(file[i], &sent), 0);
			assert_int_equal(fstat(got[i], &came), 0);
			assert_int_equal(came.st_ino, sent.st_ino);
			assert_int_not_equal(got[i], file[i]);
			close(got[i]);
		}
	}
	assert_int_equal(open_files(), before);
}

static void test_more_than_wanted(void **state)
{
	unsigned int before = open_files();
	int got[3] = { -1, -1, -1 };

	send_with(file, MANY);
	assert_int_equal(receive(got, 2), 2);
	assert_int_equal(got[2], -1);
	assert_int_equal(open_files(), before + 2);
	close(got[0]);
	close(got[1]);
	send_with(file, MANY);
	assert_int_equal(receive(NULL, 0), 0);
	assert_int_equal(open_files(), before);
}

static void test_other_control_data(void **state)
{
	SCM_BUF(1) ctl = { 0 };
	struct msghdr mh = { .msg_control = ctl.buf, .msg_controllen = sizeof(ctl.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
	int fd = -1;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_CREDENTIALS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &file[0], sizeof(int));
	assert_int_equal(scm_take(&mh, &fd, 1), 0);
	assert_int_equal(fd, -1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_all),
	cmocka_unit_test(test_more_than_wanted),
	cmocka_unit_test(test_other_control_data),
};

KIT_SUITE(tests, .setup = setup, .teardown = teardown);

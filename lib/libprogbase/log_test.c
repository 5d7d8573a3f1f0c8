// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kit/kit.h>

#include "log.h"

static int fd;
static char text[1 << 20];

/* What was written since the last call. */
static const char *logged(void)
{
	ssize_t n;

	lseek(fd, 0, SEEK_SET);
	n = read(fd, text, sizeof(text) - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	assert_int_equal(ftruncate(fd, 0), 0);
	lseek(fd, 0, SEEK_SET);
	return text;
}

static void expect(const char *fmt, ...)
{
	char want[2000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(want, sizeof(want), fmt, ap);
	va_end(ap);
	assert_string_equal(logged(), want);
}

static void test_level(void **state)
{
	int pid = getpid();

	/* main set PROG_LOG=info */
	assert_int_equal(log_level(), PROG_LOG_INFO);
	prog_log(PROG_LOG_DEBUG, "no");
	expect("");
	prog_log(PROG_LOG_INFO, "session %u: %s", 7, "up");
	expect("asyncprog[%d]: info: session 7: up\n", pid);
	log_set_prefix("progd");
	log_set_level(PROG_LOG_ERROR);
	prog_log(PROG_LOG_WARN, "no");
	prog_log(PROG_LOG_ERROR, "yes");
	expect("progd[%d]: error: yes\n", pid);
	log_set_level(99);
	assert_int_equal(log_level(), PROG_LOG_DEBUG);
	log_set_journal(true);
	prog_log(PROG_LOG_WARN, "x");
	expect("<4>progd[%d]: warn: x\n", pid);
	log_set_journal(false);
	for (int i = 0; i < 4; i++)
		assert_int_equal(log_parse_level(log_level_name(i)), i);
	assert_int_equal(log_parse_level("2"), 2);
	assert_int_equal(log_parse_level("WARN"), PROG_LOG_WARN);
	assert_int_equal(log_parse_level("4"), -EINVAL);
	assert_int_equal(log_parse_level(""), -EINVAL);
	assert_int_equal(log_parse_level("-1"), -EINVAL);
}

static void test_line(void **state)
{
	char big[3000];
	const char *line;

	errno = ENOENT;
	prog_log(PROG_LOG_WARN, "file: %m");
	assert_int_equal(errno, ENOENT);
	expect("progd[%d]: warn: file: %s\n", getpid(), strerror(ENOENT));
	/* one line, whatever a peer calls itself */
	prog_log(PROG_LOG_WARN, "peer %s", "a\nprogd: error: forged\x1b[2J\r");
	expect("progd[%d]: warn: peer a?progd: error: forged?[2J?\n", getpid());
	memset(big, 'x', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	prog_log(PROG_LOG_WARN, "%s", big);
	line = logged();
	assert_int_equal(strlen(line), 1023);
	assert_int_equal(line[1022], '\n');
	assert_int_equal(line[1021], 'x');
}

static void test_limit(void **state)
{
	struct log_ratelimit rl = { 0 };
	uint32_t missed = 9;

	for (int i = 0; i < 3; i++) {
		assert_true(log_ratelimit_ok(&rl, 3, 1ull << 62, &missed));
		assert_int_equal(missed, 0);
	}
	for (int i = 0; i < 5; i++)
		assert_false(log_ratelimit_ok(&rl, 3, 1ull << 62, &missed));
	/* the next interval has come (every one is over at once) */
	assert_true(log_ratelimit_ok(&rl, 3, 0, &missed));
	assert_int_equal(missed, 5);
	assert_true(log_ratelimit_ok(&rl, 3, 0, &missed));
	assert_int_equal(missed, 0);

	for (int i = 0; i < 100; i++)
		prog_log_limited(PROG_LOG_WARN, "frame %d bad", i);
	logged();
	assert_non_null(strstr(text, "frame 9 bad\n"));
	assert_null(strstr(text, "frame 99 bad"));
}

static void *many(void *arg)
{
	for (int i = 0; i < 500; i++)
		prog_log(PROG_LOG_INFO, "thread %d line %d end", (int)(intptr_t)arg, i);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t t[4];
	int lines = 0, id, line, end;

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, many, (void *)(intptr_t)i), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	logged();
	for (char *p = strtok(text, "\n"); p; p = strtok(NULL, "\n"), lines++) {
		end = 0;
		assert_int_equal(sscanf(p, "progd[%*d]: info: thread %d line %d end%n", &id, &line,
					&end), 2);
		assert_int_equal(p[end], '\0');
	}
	assert_int_equal(lines, 2000);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_level),
	cmocka_unit_test(test_line),
	cmocka_unit_test(test_limit),
	cmocka_unit_test(test_threads),
};

static int begin(int argc, char **argv)
{
	setenv("PROG_LOG", "info", 1);
	fd = memfd_create("log", 0);
	/* O_APPEND as on a terminal or a pipe: writers do not share an offset problem */
	if (fd < 0 || fcntl(fd, F_SETFL, O_APPEND))
		return 1;
	log_set_fd(fd);
	return 0;
}

KIT_SUITE(tests, .begin = begin);

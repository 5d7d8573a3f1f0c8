// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Which daemon a process takes, and why it gets none: what may be at the places of a private daemon, who may serve a
 * socket, and programs that are no daemon.  As a user of its own, for whom nobody else makes these places; needs root.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/users.h>
#include <libprogbase/usock.h>
#include <progclient.h>

#define USER	65531u
#define OTHER	65530u

static char dir[64], home[128], lock[256], others[160];

/* A job's first process. */
static int open_session(const char *progd, const char *socket, const char **why)
{
	struct prog_session_cfg cfg = {
		.flags = PROG_SESSION_EMBEDDED | PROG_SESSION_NO_HELPER, .progd = progd, .socket = socket,
	};
	struct prog_session *s = NULL;
	char job[2 * sizeof(cfg.jobid) + 1];
	int err;

	memset(cfg.jobid, 7, sizeof(cfg.jobid));
	memset(cfg.jobkey, 8, sizeof(cfg.jobkey));
	for (size_t i = 0; i < sizeof(cfg.jobid); i++)
		sprintf(job + 2 * i, "%02x", cfg.jobid[i]);
	snprintf(lock, sizeof(lock), "%s/%s.lock", dir, job);
	*why = "";
	err = prog_session_open(&cfg, &s, why);
	if (!err) {
		assert_int_equal(prog_session_ping(s), 0);
		prog_session_close(s);
	}
	return err;
}

static void assert_refused(const char *progd, int want, const char *word)
{
	const char *why;
	int err = open_session(progd, NULL, &why);

	if (err != want || !strstr(why, word))
		fail_msg("%d, \"%s\" instead of %d, \"%s\"", err, why, want, word);
}

static void test_arguments(void **state)
{
	struct prog_session *s;
	const char *why;

	assert_int_equal(prog_session_open(NULL, &s, &why), -EINVAL);
	assert_string_equal(why, "no configuration given");
	setenv("PROG_EMBEDDED", "0", 1);
	assert_refused(users_progd, -ENOENT, "PROG_EMBEDDED=0 forbids a private one");
	unsetenv("PROG_EMBEDDED");
}

/* What others could have put where the daemon's socket will be. */
static void test_folder(void **state)
{
	int fd;

	fd = open(dir, O_CREAT | O_WRONLY, 0600);
	close(fd);
	assert_refused(users_progd, -EPERM, "must be a directory");
	unlink(dir);
	assert_int_equal(symlink(home, dir), 0);
	assert_refused(users_progd, -EPERM, "must be a directory");
	unlink(dir);
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_refused(users_progd, -EPERM, "mode 0755");
	assert_int_equal(chmod(dir, 0700), 0);
}

static void test_lock(void **state)
{
	assert_int_equal(mkdir(lock, 0700), 0);
	assert_refused(users_progd, -EISDIR, "Is a directory");
	assert_int_equal(rmdir(lock), 0);
	assert_int_equal(mkfifo(lock, 0600), 0);
	assert_refused(users_progd, -EPERM, "is not a file of uid");
	assert_int_equal(unlink(lock), 0);
	assert_int_equal(symlink("/etc/passwd", lock), 0);
	assert_refused(users_progd, -ELOOP, "symbolic links");
	assert_int_equal(unlink(lock), 0);
}

static void test_program(void **state)
{
	char path[256];
	const char *why;

	assert_refused("/nonexistent/progd", -ENOENT, "is not a program");
	assert_refused(home, -ENOENT, "is not a program");
	assert_refused("/bin/false", -ENOENT, "ended at once, 3 times");
	setenv("PATH", "/nonexistent", 1);
	assert_refused(NULL, -ENOENT, "no progd to start");
	snprintf(path, sizeof(path), "::/nonexistent:%s", home);
	setenv("PATH", path, 1);
	assert_int_equal(open_session(NULL, NULL, &why), 0);
	/* who was refused leaves nothing at which the next one would wait */
	assert_int_equal(open_session(users_progd, NULL, &why), 0);
}

/* A socket of another user, who could read all that goes through it. */
static void test_served_by_another(void **state)
{
	const char *why;

	assert_int_equal(open_session(users_progd, others, &why), -EPERM);
	assert_non_null(strstr(why, "which is neither root nor uid"));
}

/*
 * The job has a daemon, and somebody else has made the place of its private one, with a lock there that is the user's: another name
 * of a file of his, say.  That is no private daemon.
 */
static void test_lock_of_others(void **state)
{
	const char *why;
	char own[160];
	pid_t pid;
	int st;

	snprintf(own, sizeof(own), "%s/own", home);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(users_progd, "progd", "--socket", own, "--set", "listen=127.0.0.1", (char *)NULL);
		_exit(127);
	}
	while (open_session(users_progd, own, &why)) {
		assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
		usleep(10000);
	}
	assert_int_equal(mkdir(dir, 0700) && errno != EEXIST, 0);
	assert_int_equal(chmod(dir, 0777), 0);
	st = open(lock, O_CREAT | O_WRONLY, 0666);
	assert_true(st >= 0);
	close(st);
	if (open_session(users_progd, own, &why))
		fail_msg("refused: %s", why);
	assert_int_equal(unlink(lock) | chmod(dir, 0700), 0);
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
}

/* Whoever has the socket does not accept, and others wait there already: that is not waited for for ever. */
static void test_full_door(void **state)
{
	const char *why;
	char own[160];
	int fd, n = 0;

	snprintf(own, sizeof(own), "%s/full", home);
	fd = usock_listen(own, 0600, 0);
	assert_true(fd >= 0);
	while (nodes_connect(own, SOCK_SEQPACKET | SOCK_NONBLOCK) >= 0)
		assert_true(++n < 100);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(open_session(users_progd, own, &why), -ETIMEDOUT);
	assert_non_null(strstr(why, "takes no connections"));
	close(fd);
}

/* Serves at @others until it is killed. */
static pid_t another_begin(void)
{
	int ready[2], fd;
	char byte;
	pid_t pid;

	if (pipe(ready))
		return -1;
	pid = fork();
	if (!pid) {
		user_become(OTHER);
		fd = usock_listen(others, 0666, 8);
		if (fd < 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		pid = -1;
	close(ready[0]);
	return pid;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_arguments),
	cmocka_unit_test(test_folder),
	cmocka_unit_test(test_lock),
	cmocka_unit_test(test_program),
	cmocka_unit_test(test_served_by_another),
	cmocka_unit_test(test_lock_of_others),
	cmocka_unit_test(test_full_door),
};

/* The tests are a user's; the rest of this process waits for him. */
static int begin(int argc, char **argv)
{
	int st, failed = 1;
	pid_t another, pid;
	char cmd[128];

	if (geteuid() || !access("/run/progd/progd.sock", F_OK))
		kit_skip("needs root, and no daemon of the system");
	if (users_begin())
		return 1;
	snprintf(home, sizeof(home), "%.*s", (int)(strrchr(users_progd, '/') - users_progd), users_progd);
	snprintf(others, sizeof(others), "%s/other", home);
	snprintf(dir, sizeof(dir), "/tmp/asyncprog-%u", USER);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	unsetenv("PROGD");
	unsetenv("PROGD_SOCKET");
	if (chmod(home, 01777) || system(cmd))
		return 1;
	another = another_begin();
	if (another <= 0)
		return 1;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		user_become(USER);
		return 0;
	}
	if (pid > 0 && waitpid(pid, &st, 0) == pid)
		failed = st;
	kill(another, SIGKILL);
	waitpid(another, &st, 0);
	exit(system(cmd) || users_end() || failed);
}

KIT_SUITE(tests, .begin = begin);

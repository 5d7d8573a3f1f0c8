// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The private daemon of a job on a node, started by whichever process needs it first.
 *
 * /tmp/asyncprog-UID (0700, ours) holds JOBID.sock and JOBID.lock.  Who has the flock starts the
 * daemon and hands the locked descriptor on; the daemon keeps it until it has exited, so there is at
 * most one, and between "it goes" and "it is gone" nobody starts another.  The daemon unlinks
 * socket and lock file while it still holds the lock; therefore a lock counts only when the file
 * locked is the one that the name still stands for.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <libprogbase/futex.h>

#include "client.h"

#define LOCK_FD		3		/* in the daemon */
#define MAX_STARTS	3
#define RETRY_FIRST_NS	500000u
#define RETRY_MAX_NS	20000000u

extern char **environ;

struct embed {
	char dir[64];
	char sock[128];
	char lock[128];
	char log[128];
	char progd[PATH_MAX];
};

/* Nobody else has made, or makes, what is in it. */
static bool is_ours(const struct stat *st)
{
	return S_ISDIR(st->st_mode) && st->st_uid == geteuid() && !(st->st_mode & 077);
}

static int make_dir(const struct embed *e, const char **reason)
{
	struct stat st;

	if (mkdir(e->dir, 0700) && errno != EEXIST) {
		int err = -errno;

		*reason = client_reason("%s: cannot make it: %s", e->dir, strerror(-err));
		return err;
	}
	if (lstat(e->dir, &st)) {
		int err = -errno;

		*reason = client_reason("%s: %s", e->dir, strerror(-err));
		return err;
	}
	if (!is_ours(&st)) {
		*reason = client_reason("%s must be a directory of uid %u that nobody else may enter "
					"(it is of uid %u, mode %04o)", e->dir, (unsigned int)geteuid(),
					(unsigned int)st.st_uid, (unsigned int)st.st_mode & 07777);
		return -EPERM;
	}
	return 0;
}

static bool is_program(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

static int find_progd(const struct prog_session_cfg *cfg, struct embed *e, const char **reason)
{
	const char *env = getenv("PROGD"), *path = getenv("PATH");
	const char *named = cfg->progd ? cfg->progd : env && *env ? env : NULL;
	Dl_info info;

	if (named) {
		if (snprintf(e->progd, sizeof(e->progd), "%s", named) < (int)sizeof(e->progd) &&
		    is_program(e->progd))
			return 0;
		*reason = client_reason("%s is not a program", named);
		return -ENOENT;
	}
	if (dladdr((void *)(uintptr_t)find_progd, &info) && info.dli_fname) {
		const char *slash = strrchr(info.dli_fname, '/');
		int dir = slash ? (int)(slash - info.dli_fname) : 1;

		if (snprintf(e->progd, sizeof(e->progd), "%.*s/../bin/progd", dir,
			     slash ? info.dli_fname : ".") < (int)sizeof(e->progd) &&
		    is_program(e->progd))
			return 0;
	}
	while (path && *path) {
		size_t len = strcspn(path, ":");

		if (len && len < sizeof(e->progd) - 8 &&
		    snprintf(e->progd, sizeof(e->progd), "%.*s/progd", (int)len, path) > 0 &&
		    is_program(e->progd))
			return 0;
		path += len + (path[len] == ':');
	}
	*reason = "no progd to start: not in $PROGD, ../bin beside the library, or $PATH";
	return -ENOENT;
}

/* The lock, or -EAGAIN when somebody else has it (a daemon that starts, runs or ends). */
static int take_lock(const struct embed *e, const char **reason)
{
	struct stat mine, named;
	int fd, err;

	fd = open(e->lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fstat(fd, &mine)) {
		err = -errno;
		*reason = client_reason("%s: %s", e->lock, strerror(-err));
		goto out;
	}
	if (!S_ISREG(mine.st_mode) || mine.st_uid != geteuid()) {
		*reason = client_reason("%s is not a file of uid %u", e->lock,
					(unsigned int)geteuid());
		err = -EPERM;
		goto out;
	}
	err = -EAGAIN;
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR) {
			err = -errno;
			*reason = client_reason("%s: cannot lock it: %s", e->lock, strerror(-err));
		}
		goto out;
	}
	if (lstat(e->lock, &named) || named.st_ino != mine.st_ino || named.st_dev != mine.st_dev)
		goto out;
	return fd;
out:
	if (fd >= 0)
		close(fd);
	return err;
}

/* Our environment without what was preloaded into us. */
static char **daemon_environ(void)
{
	size_t n = 0, i;
	char **env;

	while (environ && environ[n])
		n++;
	env = malloc((n + 1) * sizeof(*env));
	if (!env)
		return NULL;
	for (i = n = 0; environ && environ[i]; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11))
			env[n++] = environ[i];
	env[n] = NULL;
	return env;
}

/*
 * The shell between us and the daemon ends at once, so that the daemon is nobody's child here: a
 * program that waits for its own children never sees it.  The new process inherits the affinity of
 * the thread that starts it, hence the detour.
 */
static int spawn(const struct embed *e, int lock_fd)
{
	static char script[] = "exec </dev/null; \"$0\" \"$@\" &", sh[] = "/bin/sh", dash_c[] = "-c",
		    embedded[] = "--embedded", socket_opt[] = "--socket", lock_opt[] = "--lock-fd",
		    lock_no[] = "3";
	char *argv[] = { sh, dash_c, script, (char *)(uintptr_t)e->progd, embedded, socket_opt,
			 (char *)(uintptr_t)e->sock, lock_opt, lock_no, NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	cpu_set_t mine, all;
	char **env = daemon_environ();
	sigset_t none, every;
	bool bound;
	pid_t pid;
	int err;

	if (!env)
		return -ENOMEM;
	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&attr);
	sigemptyset(&none);
	sigfillset(&every);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &every);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
				 POSIX_SPAWN_SETSIGDEF);
	/* lock_fd first: it may be one of 0..2 when the program closed those */
	err = posix_spawn_file_actions_adddup2(&fa, lock_fd, LOCK_FD);
	err = err ? err : posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	err = err ? err : posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	err = err ? err : posix_spawn_file_actions_addopen(&fa, 2, e->log, O_WRONLY | O_CREAT |
							   O_APPEND | O_NOFOLLOW, 0600);
	err = err ? err : posix_spawn_file_actions_addclosefrom_np(&fa, LOCK_FD + 1);
	bound = !sched_getaffinity(0, sizeof(mine), &mine);
	memset(&all, 0xff, sizeof(all));
	if (bound)
		sched_setaffinity(0, sizeof(all), &all);
	err = err ? err : posix_spawn(&pid, sh, &fa, &attr, argv, env);
	if (bound)
		sched_setaffinity(0, sizeof(mine), &mine);
	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&attr);
	free(env);
	if (err)
		return -err;
	/* ECHILD when the program ignores its children or reaps them itself: as good */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

static void name_files(const struct prog_session_cfg *cfg, struct embed *e)
{
	char job[2 * PROG_JOBID_SIZE + 1];
	size_t i;

	for (i = 0; i < PROG_JOBID_SIZE; i++)
		sprintf(job + 2 * i, "%02x", cfg->jobid[i]);
	snprintf(e->dir, sizeof(e->dir), "/tmp/asyncprog-%u", (unsigned int)geteuid());
	snprintf(e->sock, sizeof(e->sock), "%s/%s.sock", e->dir, job);
	snprintf(e->lock, sizeof(e->lock), "%s/%s.lock", e->dir, job);
	snprintf(e->log, sizeof(e->log), "%s/progd.log", e->dir);
}

bool embed_exists(const struct prog_session_cfg *cfg)
{
	struct embed e;
	struct stat st;

	name_files(cfg, &e);
	return !lstat(e.dir, &st) && is_ours(&st) && !lstat(e.lock, &st) && st.st_uid == geteuid();
}

int embed_connect(const struct prog_session_cfg *cfg, uint64_t deadline_ns,
		  int (*ask)(void *arg, const char **reason), void *arg, const char **reason)
{
	uint64_t slice = RETRY_FIRST_NS;
	int starts = 0, sock, err;
	struct embed *e;

	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	name_files(cfg, e);
	err = make_dir(e, reason);
	while (!err) {
		struct timespec ts;
		int lock;

		sock = session_connect(e->sock, reason);
		if (sock != -ENOENT && sock != -ECONNREFUSED && sock != -EAGAIN) {
			err = sock;
			break;
		}
		if (clock_ns() > deadline_ns) {
			*reason = client_reason("the private daemon at %s did not come up in time; see %s",
						e->sock, e->log);
			err = -ETIMEDOUT;
			break;
		}
		lock = take_lock(e, reason);
		if (lock >= 0) {
			if (ask && !ask(arg, reason)) {
				err = -EALREADY;
			} else if (starts++ == MAX_STARTS) {
				*reason = client_reason("%s ended at once, %d times; see %s", e->progd,
							MAX_STARTS, e->log);
				err = -ENOENT;
			} else {
				err = find_progd(cfg, e, reason);
			}
			if (!err) {
				/* of a daemon that was killed: its lock is free, so it is dead */
				unlink(e->sock);
				err = spawn(e, lock);
				if (err)
					*reason = client_reason("cannot start %s: %s", e->progd,
								strerror(-err));
			}
			if (err)
				unlink(e->lock);
			close(lock);
		} else if (lock != -EAGAIN) {
			err = lock;
		}
		/* the daemon is coming up, or another one is going down */
		ts.tv_sec = 0;
		ts.tv_nsec = (long)slice;
		nanosleep(&ts, NULL);
		if (slice < RETRY_MAX_NS)
			slice *= 2;
	}
	free(e);
	return err;
}

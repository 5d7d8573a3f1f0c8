// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <wire/super.h>

#include "cgroup.h"

#define DEVICE_GROUP "progd"	/* may open /dev/asyncprog and /dev/ioat_copy (60-asyncprog.rules) */

/*
 * What its workers may ask for (priority), as they have no capability for it; nothing, if our own limit were higher.  Where we may not
 * raise a limit, the process begins with that priority: threads inherit it, and may keep it.
 */
static void let_be_realtime(const struct spawn_opts *o)
{
	struct rlimit rt = { .rlim_cur = o->realtime, .rlim_max = o->realtime };
	struct sched_param sp = { .sched_priority = o->realtime };

	if (setrlimit(RLIMIT_RTPRIO, &rt) && o->realtime && sched_setscheduler(0, SCHED_RR, &sp))
		prog_log(PROG_LOG_INFO, "engine of uid %u: no real-time priority: %m", (unsigned int)o->uid);
}

/*
 * Without any capability, also for uid 0: the bounding set is what a program of root gets.  The group is that of
 * the user database, which may take long to ask: this is the child.  One group more lets it open the devices, as its user:
 * what a file of the module permits goes by who opened it.
 */
static int become(const struct spawn_opts *o)
{
	struct passwd *pw = geteuid() ? NULL : getpwuid(o->uid);
	struct group *devices = geteuid() ? NULL : getgrnam(DEVICE_GROUP);
	gid_t gid = pw ? pw->pw_gid : o->gid;

	if (geteuid())
		return geteuid() == o->uid ? 0 : -EPERM;
	for (int cap = 0; !prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); cap++)
		;
	if (prctl(PR_CAPBSET_READ, 0, 0, 0, 0))
		return -EPERM;
	if (setgroups(devices ? 1 : 0, devices ? &devices->gr_gid : NULL) || setresgid(gid, gid, gid) || setresuid(o->uid, o->uid, o->uid))
		return -errno;
	return 0;
}

/* The kernel may end it before us when there is no memory. */
static void may_be_ended(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "0", 1) != 1)
		prog_log(PROG_LOG_INFO, "oom_score_adj: %m");
	if (fd >= 0)
		close(fd);
}

/*
 * Where the engine looks for them; they may be at the others' places now.  @done is closed when no connection is ours as well any more: as
 * long as our parent has them, closing them is nothing.
 */
static int place(const struct spawn_opts *o, int done)
{
	int from[SUPER_FD_LISTENERS + PROG_MAX_ADDRS + 1] = { [SUPER_FD_SOCK] = o->sock, [SUPER_FD_PIPE] = o->pipe };
	unsigned int n = SUPER_FD_LISTENERS;

	for (unsigned int i = 0; i < o->ports->n; i++)
		from[n++] = o->ports->l[i].fd;
	from[n++] = done;
	for (unsigned int i = SUPER_FD_SOCK; i < n; i++) {
		from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, n);
		if (from[i] < 0)
			return -errno;
	}
	for (unsigned int i = SUPER_FD_SOCK; i < n; i++)
		if (dup2(from[i], (int)i) < 0)
			return -errno;
	close_range(n, ~0u, 0);
	close((int)n - 1);
	return 0;
}

static void child_main(const struct spawn_opts *o, int done)
{
	static char path[] = "PATH=/usr/bin:/bin", engine[] = "--engine", listeners[] = "--listeners", count[8], journal[128];
	char *argv[SPAWN_ARGS + 5] = { (char *)(uintptr_t)o->progd, engine, listeners, count }, *env[] = { path, NULL, NULL };
	const char *stream = getenv("JOURNAL_STREAM");
	int argc = 4, null, r;
	sigset_t none;

	snprintf(count, sizeof(count), "%u", o->ports->n);
	for (char *const *a = o->args; *a && a < o->args + SPAWN_ARGS; a++)
		argv[argc++] = *a;
	if (stream) {
		snprintf(journal, sizeof(journal), "JOURNAL_STREAM=%s", stream);
		env[1] = journal;
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setsid();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	r = cgroup_enter(o->cgroups, o->uid);
	if (r)
		prog_log(PROG_LOG_WARN, "engine of uid %u: in no cgroup of its own: %s", (unsigned int)o->uid, strerror(-r));
	r = null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ? -errno : place(o, done);
	may_be_ended();
	setpriority(PRIO_PROCESS, 0, 0);
	let_be_realtime(o);
	if (!r)
		r = become(o);
	if (!r && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		r = -errno;
	if (!r) {
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
		execve(o->progd, argv, env);
		r = -errno;
	}
	prog_log(PROG_LOG_ERROR, "engine of uid %u: %s cannot be run: %s", (unsigned int)o->uid, o->progd, strerror(-r));
	_exit(127);
}

pid_t spawn_engine(const struct spawn_opts *o)
{
	int done[2], err = 0;
	pid_t pid;
	char byte;

	if (pipe2(done, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (!pid)
		child_main(o, done[1]);
	if (pid < 0)
		err = -errno;
	close(done[1]);
	/* else it could be left with the last reference to a connection, and closing that may take as long as somebody likes */
	while (pid > 0 && read(done[0], &byte, 1) < 0 && errno == EINTR)
		;
	close(done[0]);
	return err ? err : pid;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TRIES	8u	/* a thread that starts while we look has its starter's priority */

struct stat_line {
	uint64_t user, sys;	/* in clock ticks */
	uint64_t began;
};

/* Of a process or thread; false: it has ended. */
static bool read_stat(const char *path, struct stat_line *st)
{
	char buf[1024], state, *p;
	ssize_t n = -1;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		n = read(fd, buf, sizeof(buf) - 1);
		close(fd);
	}
	buf[n > 0 ? n : 0] = '\0';
	/* the second field is a name in parentheses that can have any bytes; then 3 state, 14 utime, 15 stime, 22 starttime */
	p = strrchr(buf, ')');
	return p && sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64
			   " %*d %*d %*d %*d %*d %*d %" SCNu64, &state, &st->user, &st->sys, &st->began) == 4 &&
	       state != 'Z' && state != 'X';
}

uint64_t proc_began(pid_t pid)
{
	struct stat_line st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return pid > 0 && read_stat(path, &st) ? st.began : 0;
}

/* Calls @fn for each thread with real-time priority; how many there were. */
static unsigned int each_realtime(pid_t pid, void (*fn)(pid_t pid, pid_t tid, uint64_t *sum), uint64_t *sum)
{
	unsigned int n = 0;
	struct dirent *e;
	char path[64];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		pid_t tid = atoi(e->d_name);
		int policy = tid > 0 ? sched_getscheduler(tid) : -1;

		if (policy < 0 || ((policy & ~SCHED_RESET_ON_FORK) != SCHED_RR && (policy & ~SCHED_RESET_ON_FORK) != SCHED_FIFO))
			continue;
		fn(pid, tid, sum);
		n++;
	}
	if (d)
		closedir(d);
	return n;
}

static void add_time(pid_t pid, pid_t tid, uint64_t *sum)
{
	struct stat_line st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	if (read_stat(path, &st))
		*sum += (st.user + st.sys) * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

uint64_t proc_realtime_ns(pid_t pid)
{
	uint64_t sum = 0;

	each_realtime(pid, add_time, &sum);
	return sum;
}

static void make_normal(pid_t pid, pid_t tid, uint64_t *sum)
{
	sched_setscheduler(tid, SCHED_OTHER, &(struct sched_param){ 0 });
}

unsigned int proc_no_realtime(pid_t pid)
{
	struct rlimit none = { 0, 0 };
	unsigned int had = 0, now = 1;

	/* first, so that its user cannot give it back */
	prlimit(pid, RLIMIT_RTPRIO, &none, NULL);
	for (unsigned int i = 0; now && i < TRIES; i++) {
		now = each_realtime(pid, make_normal, NULL);
		had = now > had ? now : had;
	}
	return had;
}

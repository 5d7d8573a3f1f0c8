// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "proc.h"

#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <libprogbase/procfs.h>

#define TRIES	8u	/* a thread that starts while we look has its starter's priority */

/* Of a process or thread that has not ended. */
static bool read_stat(pid_t pid, pid_t tid, struct procfs_stat *st)
{
	return procfs_stat(pid, tid, st) && st->state != 'Z' && st->state != 'X';
}

uint64_t proc_began(pid_t pid)
{
	struct procfs_stat st;

	return read_stat(pid, 0, &st) ? st.began : 0;
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
	struct procfs_stat st;

	if (read_stat(pid, tid, &st))
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

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "proc.h"

#include <sched.h>
#include <stdbool.h>
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

static bool is_realtime(pid_t tid)
{
	int policy = sched_getscheduler(tid);

	return policy >= 0 && ((policy & ~SCHED_RESET_ON_FORK) == SCHED_RR || (policy & ~SCHED_RESET_ON_FORK) == SCHED_FIFO);
}

struct sum {
	pid_t pid;
	uint64_t ns;
};

static bool add_time(void *ctx, pid_t tid)
{
	struct procfs_stat st;
	struct sum *sum = ctx;

	if (is_realtime(tid) && read_stat(sum->pid, tid, &st))
		sum->ns += (st.user + st.sys) * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
	return true;
}

uint64_t proc_realtime_ns(pid_t pid)
{
	struct sum sum = { .pid = pid };

	procfs_threads(pid, add_time, &sum);
	return sum.ns;
}

static bool make_normal(void *ctx, pid_t tid)
{
	unsigned int *n = ctx;

	if (is_realtime(tid)) {
		sched_setscheduler(tid, SCHED_OTHER, &(struct sched_param){ 0 });
		++*n;
	}
	return true;
}

unsigned int proc_no_realtime(pid_t pid)
{
	struct rlimit none = { 0, 0 };
	unsigned int had = 0, now = 1;

	/* first, so that its user cannot give it back */
	prlimit(pid, RLIMIT_RTPRIO, &none, NULL);
	for (unsigned int i = 0; now && i < TRIES; i++) {
		now = 0;
		procfs_threads(pid, make_normal, &now);
		had = now > had ? now : had;
	}
	return had;
}

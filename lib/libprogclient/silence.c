// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "silence.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <libprogbase/procfs.h>

#include "client.h"

/* Does any of its threads wait for a processor, or have one? */
static bool is_runnable(pid_t pid)
{
	struct procfs_stat st;
	bool runnable = false;
	struct dirent *d;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return false;
	while (!runnable && (d = readdir(dir))) {
		pid_t tid = atoi(d->d_name);

		runnable = tid > 0 && procfs_stat(pid, tid, &st) && st.state == 'R';
	}
	closedir(dir);
	return runnable;
}

/* The time of processors that it has got so far; 0 as well when that cannot be seen. */
static uint64_t time_of(pid_t pid)
{
	struct procfs_stat st;

	return procfs_stat(pid, 0, &st) ? st.user + st.sys : 0;
}

/* Has it got less than a twentieth of a processor, and would have more? */
static bool is_starved(const struct silence *q)
{
	uint64_t ran = time_of(q->daemon) - q->ran;

	return q->daemon > 0 && ran * 1000 * 20 / (uint64_t)sysconf(_SC_CLK_TCK) < CLIENT_CTRL_TIMEOUT_MS && is_runnable(q->daemon);
}

void silence_begin(struct silence *q, pid_t daemon, uint64_t now)
{
	*q = (struct silence){ .daemon = daemon, .looked = now };
}

/* From now on it is seen what the daemon gets: not from the beginning, as most answers are there at once. */
static void watch(struct silence *q)
{
	q->ran = time_of(q->daemon);
	q->watched = true;
}

bool silence_ends_it(struct silence *q, uint64_t now)
{
	/* @now may be older than another thread's */
	uint64_t ns = now > q->looked ? now - q->looked : 0;

	if (!q->watched)
		watch(q);
	q->waited += ns < CLIENT_LOOK_NS ? ns : CLIENT_LOOK_NS;
	q->looked += ns;
	if (q->waited < CLIENT_CTRL_TIMEOUT_MS * 1000000ull)
		return false;
	if (!is_starved(q))
		return true;
	prog_log(PROG_LOG_WARN, "the daemon, pid %d, has been given no processor for %d s: it is waited for", (int)q->daemon,
		 CLIENT_CTRL_TIMEOUT_MS / 1000);
	silence_begin(q, q->daemon, now);
	watch(q);
	return false;
}

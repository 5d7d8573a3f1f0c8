// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "silence.h"

#include <sys/socket.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <libprogbase/procfs.h>

#include "client.h"

/* Does the thread wait for a processor, or have one? */
static bool is_runnable(pid_t pid, pid_t tid)
{
	struct procfs_stat st;

	return procfs_stat(pid, tid, &st) && st.state == 'R';
}

struct asked {
	pid_t pid;
	bool runnable;
};

static bool ask_thread(void *ctx, pid_t tid)
{
	struct asked *a = ctx;

	a->runnable = is_runnable(a->pid, tid);
	return !a->runnable;
}

/* Does any of its threads? */
static bool any_runnable(pid_t pid)
{
	struct asked a = { .pid = pid };

	procfs_threads(pid, ask_thread, &a);
	return a.runnable;
}

/* The time of processors that it, or one of its threads, has got so far; 0 as well when that cannot be seen. */
static uint64_t time_of(pid_t pid, pid_t tid)
{
	struct procfs_stat st;

	return procfs_stat(pid, tid, &st) ? st.user + st.sys : 0;
}

/* Is it less than a twentieth of a processor? */
static bool is_little(uint64_t ticks)
{
	return ticks * 1000 * 20 / (uint64_t)sysconf(_SC_CLK_TCK) < CLIENT_CTRL_TIMEOUT_MS;
}

/*
 * Would it have more?  The first thread is the one that answers, and its workers may have real-time priority: they get processors where
 * that one gets none.
 */
static bool is_starved(const struct silence *q)
{
	pid_t pid = q->daemon;

	return pid > 0 && ((is_little(time_of(pid, pid) - q->main_ran) && is_runnable(pid, pid)) ||
			   (is_little(time_of(pid, 0) - q->ran) && any_runnable(pid)));
}

/*
 * A daemon that got its processor at last sleeps when it has answered: where both have little, that may be between the caller's look at
 * the socket and ours at the daemon.
 */
static bool has_answered(const struct silence *q)
{
	char c;

	return recv(q->sock, &c, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void silence_begin(struct silence *q, int sock, pid_t daemon, uint64_t now)
{
	*q = (struct silence){ .sock = sock, .daemon = daemon, .looked = now };
}

/* From now on it is seen what the daemon gets: not from the beginning, as most answers are there at once. */
static void watch(struct silence *q)
{
	q->ran = time_of(q->daemon, 0);
	q->main_ran = time_of(q->daemon, q->daemon);
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
		return !has_answered(q);
	prog_log(PROG_LOG_WARN, "the daemon, pid %d, has been given no processor for %d s: it is waited for", (int)q->daemon,
		 CLIENT_CTRL_TIMEOUT_MS / 1000);
	silence_begin(q, q->sock, q->daemon, now);
	watch(q);
	return false;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "silence.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/log.h>

#include "client.h"

#define PATH	64

/* The state of a process or thread, and the time of processors that it has got; 0: there is none, or none to be seen. */
static char look(const char *path, uint64_t *ran)
{
	FILE *f = fopen(path, "re");
	uint64_t user = 0, sys = 0;
	char line[512], state = 0;
	const char *at;

	if (!f)
		return 0;
	/* after the name, in which anything may stand */
	at = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	if (!at || sscanf(at, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64 " %" SCNu64, &state, &user, &sys) != 3)
		state = 0;
	fclose(f);
	*ran = user + sys;
	return state;
}

/* Does any of its threads wait for a processor, or have one? */
static bool is_runnable(pid_t pid)
{
	char path[PATH];
	bool runnable = false;
	struct dirent *d;
	uint64_t ran;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return false;
	while (!runnable && (d = readdir(dir)))
		if (d->d_name[0] != '.' && snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, d->d_name) < PATH)
			runnable = look(path, &ran) == 'R';
	closedir(dir);
	return runnable;
}

/* The time that it has got so far; 0 as well when that cannot be seen. */
static uint64_t time_of(pid_t pid)
{
	char path[PATH];
	uint64_t ran = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return pid > 0 && look(path, &ran) ? ran : 0;
}

/* Has it got less than a twentieth of a processor, and would have more? */
static bool is_starved(const struct silence *q)
{
	uint64_t ran = time_of(q->daemon) - q->ran;

	return q->daemon > 0 && ran * 1000 * 20 / (uint64_t)sysconf(_SC_CLK_TCK) < CLIENT_CTRL_TIMEOUT_MS && is_runnable(q->daemon);
}

void silence_begin(struct silence *q, pid_t daemon, uint64_t now)
{
	*q = (struct silence){ .daemon = daemon, .looked = now, .ran = time_of(daemon) };
}

bool silence_ends_it(struct silence *q, uint64_t now)
{
	/* @now may be older than another thread's */
	uint64_t ns = now > q->looked ? now - q->looked : 0;

	q->waited += ns < CLIENT_LOOK_NS ? ns : CLIENT_LOOK_NS;
	q->looked += ns;
	if (q->waited < CLIENT_CTRL_TIMEOUT_MS * 1000000ull)
		return false;
	if (!is_starved(q))
		return true;
	prog_log(PROG_LOG_WARN, "the daemon, pid %d, has been given no processor for %d s: it is waited for", (int)q->daemon,
		 CLIENT_CTRL_TIMEOUT_MS / 1000);
	silence_begin(q, q->daemon, now);
	return false;
}

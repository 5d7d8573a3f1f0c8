// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

#define LINE_MAX_BYTES	1024

static const struct {
	const char *name;
	int priority;		/* of syslog(3) */
} levels[] = {
	[PROG_LOG_ERROR] = { "error", 3 },
	[PROG_LOG_WARN] = { "warn", 4 },
	[PROG_LOG_INFO] = { "info", 6 },
	[PROG_LOG_DEBUG] = { "debug", 7 },
};

#define N_LEVELS ((int)(sizeof(levels) / sizeof(levels[0])))

/* All written with atomics: anybody may log at any time. -1: not yet read from PROG_LOG. */
static int current = -1;
static int out_fd = STDERR_FILENO;
static bool journal;
/* Set at start, before other threads log. */
static char prefix[32] = "asyncprog";

int log_parse_level(const char *text)
{
	for (int i = 0; i < N_LEVELS; i++) {
		if (!strcasecmp(text, levels[i].name) ||
		    (text[0] == '0' + i && !text[1]))
			return i;
	}
	return -EINVAL;
}

const char *log_level_name(int level)
{
	return level >= 0 && level < N_LEVELS ? levels[level].name : "?";
}

void log_set_level(int level)
{
	if (level < 0)
		level = 0;
	else if (level >= N_LEVELS)
		level = N_LEVELS - 1;
	__atomic_store_n(&current, level, __ATOMIC_RELAXED);
}

int log_level(void)
{
	int level = __atomic_load_n(&current, __ATOMIC_RELAXED), unset = -1;
	const char *env;

	if (level >= 0)
		return level;
	env = getenv("PROG_LOG");
	level = env ? log_parse_level(env) : PROG_LOG_WARN;
	if (level < 0)
		level = PROG_LOG_WARN;
	/* not over a log_set_level() that came in between */
	if (!__atomic_compare_exchange_n(&current, &unset, level, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		level = unset;
	return level;
}

bool log_enabled(int level)
{
	return level <= log_level();
}

void log_set_prefix(const char *text)
{
	snprintf(prefix, sizeof(prefix), "%s", text);
}

void log_set_fd(int fd)
{
	__atomic_store_n(&out_fd, fd, __ATOMIC_RELAXED);
}

void log_set_journal(bool on)
{
	__atomic_store_n(&journal, on, __ATOMIC_RELAXED);
}

void log_print(int level, const char *fmt, ...)
{
	int saved = errno, fd = __atomic_load_n(&out_fd, __ATOMIC_RELAXED), n = 0, body;
	char line[LINE_MAX_BYTES];
	va_list ap;

	if (level < 0 || level >= N_LEVELS)
		level = PROG_LOG_ERROR;
	if (__atomic_load_n(&journal, __ATOMIC_RELAXED))
		n = snprintf(line, sizeof(line), "<%d>", levels[level].priority);
	n += snprintf(line + n, sizeof(line) - n, "%s[%d]: %s: ", prefix, (int)getpid(),
		      levels[level].name);
	va_start(ap, fmt);
	errno = saved;		/* for %m */
	body = vsnprintf(line + n, sizeof(line) - 1 - n, fmt, ap);
	va_end(ap);
	if (body < 0)
		body = 0;
	if (body > (int)sizeof(line) - 2 - n)
		body = sizeof(line) - 2 - n;
	for (int i = n; i < n + body; i++) {
		if (iscntrl((unsigned char)line[i]))
			line[i] = '?';
	}
	n += body;
	line[n++] = '\n';
	/* nowhere to report that the log cannot be written */
	while (write(fd, line, n) < 0 && errno == EINTR)
		;
	errno = saved;
}

bool log_ratelimit_ok(struct log_ratelimit *rl, uint32_t burst, uint64_t interval_ns,
		      uint32_t *missed)
{
	struct timespec ts;
	uint64_t now, start;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = ts.tv_sec * 1000000000ull + ts.tv_nsec;
	start = __atomic_load_n(&rl->window, __ATOMIC_RELAXED);
	/* one thread opens the next interval; a line more or less at the border does not matter */
	if ((!start || now - start >= interval_ns) &&
	    __atomic_compare_exchange_n(&rl->window, &start, now, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED))
		__atomic_store_n(&rl->printed, 0, __ATOMIC_RELAXED);
	if (__atomic_fetch_add(&rl->printed, 1, __ATOMIC_RELAXED) >= burst) {
		__atomic_fetch_add(&rl->missed, 1, __ATOMIC_RELAXED);
		return false;
	}
	*missed = __atomic_exchange_n(&rl->missed, 0, __ATOMIC_RELAXED);
	return true;
}

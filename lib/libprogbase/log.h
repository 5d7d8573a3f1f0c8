/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * log: one line per event on stderr (or another descriptor), for the library and the daemon.
 *
 *	prog_log(PROG_LOG_WARN, "session %u: ring corrupt, entry %u: closing", id, i);
 *
 * prints "progd[812]: warn: session 7: ring corrupt, entry 3: closing". Lowercase, subject
 * named, %m for errno, no newline. Control characters (a hostile peer's
 * string) come out as '?'. A line goes out in one write. Thread-safe, keeps errno.
 *
 * The level that is printed comes from PROG_LOG in the environment (error, warn, info,
 * debug, or 0..3) at first use, unless log_set_level() was called; default: warn.
 */
#ifndef PROGBASE_LOG_H
#define PROGBASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#define PROG_LOG_ERROR	0	/* something was refused or lost */
#define PROG_LOG_WARN	1	/* works, but not as the user would expect */
#define PROG_LOG_INFO	2	/* start, stop, attach, configuration */
#define PROG_LOG_DEBUG	3	/* every decision */

/* Print up to @level from now on. */
void log_set_level(int level);
int log_level(void);
/* Number of a level's name or number as text; -EINVAL. */
int log_parse_level(const char *text);
const char *log_level_name(int level);

/* Name that starts each line (copied, at most 31 bytes); default "asyncprog". */
void log_set_prefix(const char *prefix);
/* Write to @fd (not taken over); default 2. */
void log_set_fd(int fd);
/* Start lines with "<priority>" for the service manager's journal; default: no. */
void log_set_journal(bool on);

/* Would a line of @level be printed? Cheap. */
bool log_enabled(int level);

/* Use the macros. */
void log_print(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define prog_log(level, ...) \
	do { \
		if (log_enabled(level)) \
			log_print(level, __VA_ARGS__); \
	} while (0)

/* State of one rate limit: @burst lines per @interval; the rest are counted. */
struct log_ratelimit {
	uint64_t window;	/* start of the interval, ns of CLOCK_MONOTONIC */
	uint32_t printed;
	uint32_t missed;
};

/* May a line go out now? Sets *@missed to the lines dropped before it. */
bool log_ratelimit_ok(struct log_ratelimit *rl, uint32_t burst, uint64_t interval_ns,
		      uint32_t *missed);

/* prog_log for what others can cause at will: at most @burst lines in 5 seconds from this place. */
#define prog_log_at_most(burst, level, ...) \
	do { \
		static struct log_ratelimit rl_; \
		uint32_t missed_; \
		if (log_enabled(level) && \
		    log_ratelimit_ok(&rl_, (burst), 5000000000ull, &missed_)) { \
			if (missed_) \
				log_print(level, "%u more lines like the next were dropped", \
					  missed_); \
			log_print(level, __VA_ARGS__); \
		} \
	} while (0)

/* The same for data paths. */
#define prog_log_limited(level, ...) prog_log_at_most(10, level, __VA_ARGS__)

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_report.h - what is shown of collectives outside of the process: struct prog_coll_area, which the daemon reads.
 *
 * All of it is called with the lock of collectives held, but coll_report_cpu().  In a forked child, and without a daemon, nothing
 * is shown.
 */
#ifndef CLIENT_COLL_REPORT_H
#define CLIENT_COLL_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct prog_coll_cfg;
struct prog_session;

#define COLL_REPORT_NS	90000000u	/* between two looks at what costs more than some stores; a tick less than 0.1 s */

/* Part of a collective. */
struct coll_mark {
	struct coll_mark *next, *prev;
	const struct prog_coll_cfg *cfg;
	uint64_t since;			/* ns */
	uint32_t row;			/* of the area; PROG_COLL_ROWS: it has none */
};

struct coll_report {
	struct prog_session *s;
	struct coll_mark *marks;	/* under way, oldest first */
	struct coll_mark *unlisted;	/* the first that has no row, as none behind it has; NULL: all have one */
	uint32_t used;			/* bits: rows */
	uint64_t looked;		/* ns: when coll_report_due() last said so */
	uint64_t cpu_looked;		/* ns; the thread's own */
};

void coll_report_init(struct coll_report *r, struct prog_session *s);
/* One that is described by @cfg, which stays, is started; and has ended, with 0 or a negative errno. */
void coll_report_start(struct coll_report *r, struct coll_mark *m, const struct prog_coll_cfg *cfg);
void coll_report_end(struct coll_report *r, struct coll_mark *m, int status);
/* A message with @bytes of payload was posted, or has come. */
void coll_report_sent(struct coll_report *r, uint64_t bytes);
void coll_report_received(struct coll_report *r, uint64_t bytes);
/* Is it COLL_REPORT_NS since it last said so?  Then the caller looks who is awaited, by those that have rows. */
bool coll_report_due(struct coll_report *r);
bool coll_report_has_row(const struct coll_mark *m);
/* @n messages are; the lowest rank that one of these comes from is @from (PROG_COLL_NO_RANK: none). */
void coll_report_awaited(struct coll_report *r, const struct coll_mark *m, uint32_t n, uint32_t from);
/* By the thread of collectives, without a lock: its processor time, if @now, or if it was not told lately. */
void coll_report_cpu(struct coll_report *r, bool now);

#endif

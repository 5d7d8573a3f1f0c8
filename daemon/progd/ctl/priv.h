/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* priv.h - what the files of ctl/ share: ctl.c the socket, json.c what replies consist of, and the commands. */
#ifndef PROGD_CTL_PRIV_H
#define PROGD_CTL_PRIV_H

#include <jansson.h>

#include "ctl/ctl.h"
#include "node/node.h"

struct ctl_conn;

struct ctl {
	struct ctl_opts o;
	char path[108];
	int fd;
	struct loop_watch *watch;
	struct ctl_conn *conns;
	unsigned int nconns;
	uint64_t started;		/* ns, CLOCK_MONOTONIC */
	char *buf;			/* CTL_MAX_REQUEST */
	bool root;			/* who asks now is */
};

/* ---- json.c ---- */

json_t *ctl_hex(const uint8_t *p, size_t n);
/* Text that may be cut within a character, or in another encoding: with "?" where it is not ASCII if it is not UTF-8. */
json_t *ctl_text(const char *s);
void ctl_put_u64(json_t *o, const char *key, uint64_t v);
/* Who copied so much; @copies and @bytes by STATS_COPY_*. */
json_t *ctl_copiers(const uint64_t *copies, const uint64_t *bytes);
uint64_t ctl_cpu_ns(void);
/* Of a program that knows an older schema: that has what it had, for one release. */
bool ctl_asks_old(const json_t *req);
/* Give members that have a new name their old one as well, in all of @j. */
void ctl_old_names(json_t *j);

/* ---- colls.c ---- */

/* Counters of collectives; NULL: there was none. */
json_t *ctl_colls(const struct stats_colls *c);
/* The same of @job, with those of its sessions; after sessions_count_colls(). */
json_t *ctl_job_colls(struct ctl *c, const struct win_job *job);
/* What the names mean of why some are left to the library. */
json_t *ctl_colls_texts(void);

/* ---- commands: the result, or NULL and a sentence in *@why (NULL: out of memory) ---- */

typedef json_t *ctl_command_fn(struct ctl *c, json_t *req, const char **why);

ctl_command_fn ctl_do_status;					/* status.c */
ctl_command_fn ctl_do_stats;					/* stats.c */
ctl_command_fn ctl_do_windows, ctl_do_sessions;			/* windows.c */
ctl_command_fn ctl_do_colls, ctl_do_coll;			/* colls.c */
ctl_command_fn ctl_do_conf_get, ctl_do_conf_set;		/* conf.c */
ctl_command_fn ctl_do_thresh, ctl_do_thresh_set, ctl_do_thresh_unset;	/* thresh.c */

#endif

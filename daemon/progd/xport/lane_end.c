/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The end of a lane, or of its connection only, and how it goes on with another one. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/log.h>
#include <utlist.h>

#include "xport/lane.h"

#define ANSWER_NS	1000000000ull	/* for the first answer when a lane is resumed */

/* Before its connection goes. */
static void drop_rdma(struct lane *l)
{
	if (l->xw->rdma)
		l->xw->rdma->drop(l);
}

void lane_finish(void *arg)
{
	struct lane *l = arg;
	struct xport_worker *xw = l->xw;
	int err = l->err ? l->err : -ECANCELED;
	uint32_t i;

	loop_timer_cancel(&l->timer);
	loop_timer_cancel(&l->rdma.timer);
	auth_wipe(l->secret, sizeof(l->secret));
	hello_free(l->next_conn);
	if (l->dirty)
		LL_DELETE2(xw->dirty, l, dirty_next);
	auth_wipe(l->private, sizeof(l->private));
	seal_fini(&l->seal);
	rx_fini(&l->rx);
	tx_fini(&l->tx, err);
	for (i = 0; i < l->njobs; i++) {
		struct lane_job *j = &l->job[i];

		auth_wipe(j->key, sizeof(j->key));
		if ((j->state == JOB_OPENING || j->state == JOB_PROVING) && !j->abandoned)
			j->cb(j->ctx, l, i + 1, err);
		else if (j->state == JOB_PROVEN && !l->opener && lane_handlers(l)->job_closed)
			lane_handlers(l)->job_closed(xw->ctx, l, i + 1);
	}
	if (l->ping_cb)
		l->ping_cb(l->ping_ctx, err);
	if (l->announced)
		lane_handlers(l)->lane_down(xw->ctx, l, l->err, l->why);
	DL_DELETE(xw->lanes, l);
	if (!l->opener)
		xw->naccepted--;
	free(l->job);
	free(l);
}

void lane_sock_closed(void *arg)
{
	struct lane *l = arg;

	l->sock = NULL;
	l->rx_pending = l->tx_pending = false;
	if (l->state == LANE_CLOSING)
		lane_finish(l);
	else
		l->connect->closed(l);
}

void lane_kill(struct lane *l)
{
	l->draining = false;
	if (l->state != LANE_CLOSING)
		lane_set_state(l, LANE_CLOSING);
	drop_rdma(l);
	loop_connect_cancel(l->conn);
	l->conn = NULL;
	if (l->sock) {
		loop_timer_cancel(&l->timer);
		loop_sock_close(l->sock, lane_sock_closed);
	} else {
		loop_timer_set(l->xw->loop, &l->timer, 0, lane_finish, l);
	}
}

void lane_fail(struct lane *l, int err, const char *fmt, ...)
{
	va_list ap;

	if (l->state == LANE_CLOSING)
		return;
	l->err = err;
	va_start(ap, fmt);
	vsnprintf(l->why, sizeof(l->why), fmt, ap);
	va_end(ap);
	prog_log_limited(PROG_LOG_WARN, "lane %s: %s", l->name, l->why);
	lane_kill(l);
}

void lane_drop_sock(struct lane *l)
{
	const struct linger now = { .l_onoff = 1 };

	setsockopt(loop_sock_fd(l->sock), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	loop_sock_close(l->sock, lane_sock_closed);
}

bool lane_may_come_again(struct lane *l)
{
	if (l->again >= AGAIN_MAX && loop_now() - l->begun_at >= l->xw->x->o.connect_timeout_ns)
		return false;
	l->again++;
	return true;
}

void lane_break(struct lane *l, int err, const char *fmt, ...)
{
	va_list ap;

	if (l->state != LANE_UP)
		return;
	l->err = err;
	va_start(ap, fmt);
	vsnprintf(l->why, sizeof(l->why), fmt, ap);
	va_end(ap);
	if ((!l->has_secret && (!l->opener || !lane_may_come_again(l))) || l->xw->detaching) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: %s", l->name, l->why);
		lane_kill(l);
		return;
	}
	prog_log_limited(PROG_LOG_WARN, "lane %s: %s: to be %s", l->name, l->why, l->has_secret ? "resumed" : "begun anew");
	lane_set_state(l, LANE_BROKEN);
	drop_rdma(l);
	l->broken_at = loop_now();
	l->dialled_at = l->broken_at;
	l->redial_ns = 0;
	l->answer_ns = ANSWER_NS;
	l->refused = 0;
	l->failing = false;
	lane_drop_sock(l);
}

/* The connection is good. */
static void go_on(struct lane *l)
{
	l->confirmed = l->rx.pos;
	l->confirm_now = l->ref_ended = false;
	l->err = 0;
	l->why[0] = '\0';
	lane_count(&l->st.resumes, 1);
	prog_log_limited(PROG_LOG_INFO, "lane %s: goes on after %llu ms", l->name,
			 (unsigned long long)((loop_now() - l->broken_at) / 1000000));
	lane_set_state(l, LANE_UP);
	lane_mark_dirty(l);
}

bool lane_attach(struct lane *l, uint64_t pos)
{
	if (tx_resume(&l->tx, pos)) {
		lane_fail(l, -EPROTO, "cannot go on at byte %llu", (unsigned long long)pos);
		return false;
	}
	/* the engine has heard of payloads that are over, and may have closed it */
	if (l->state != LANE_BROKEN)
		return false;
	rx_resume(&l->rx);
	go_on(l);
	return true;
}

void lane_begin_anew(struct lane *l)
{
	void (*ping_cb)(void *ctx, int64_t rtt_ns) = l->ping_cb;

	tx_restart(&l->tx);
	rx_restart(&l->rx);
	l->heard_at = 0;
	l->strange = 0;
	l->pong_due = false;
	l->ping_cb = NULL;
	if (ping_cb)
		ping_cb(l->ping_ctx, -ECONNRESET);
	if (!lane_jobs_anew(l))
		lane_fail(l, -ENOBUFS, "no room for its jobs");
	else
		go_on(l);
}

void lane_redial(struct lane *l, int err, const char *why)
{
	lane_break(l, err, "%s", why);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What targets say: acknowledgements to the client's counters, data to its memory, and to stop and to go on. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/mem.h>
#include <libprogbase/probe.h>

#include "rma/origin.h"

int origin_ack(struct rma_peer *p, struct win_job *job, const struct wire_ackrec *a)
{
	struct stream *s = origin_stream_find(p->r, job, a->win, a->origin, a->target);

	if (!s || s->peer != p)
		return 0;		/* freed meanwhile */
	if (a->seq > s->seq_sent)
		return -EPROTO;
	if (a->seq <= s->ack_to)
		return 0;		/* an old lane's operations: failed already */
	for (uint32_t i = s->first; i != SLOT_NONE && op_of(s, i)->seq <= a->seq;
	     i = op_of(s, i)->next) {
		struct op *op = op_of(s, i);

		if (op->seq == a->seq && a->status && !op->status)
			op->status = -(int)a->status;
		else if (op->got < op->want && !op->status)
			return -EPROTO;		/* acknowledged without its data */
	}
	s->ack_to = a->seq;
	PROG_PROBE(ack, a->win, a->origin, a->target, a->seq, a->status);
	origin_stream_advance(s);
	return 0;
}

void origin_stop(struct rma_peer *p, struct win_job *job, const struct wire_frame *f)
{
	struct stream *s = origin_stream_find(p->r, job, f->win, f->origin, f->target);

	if (!s || s->peer != p)
		return;
	s->stopped = f->type == WIRE_RMA_STOP;
	if (s->stopped) {
		stats_add(&s->conn->lc.stats->stops, 1);
		deactivate(s);
		return;
	}
	activate(s);
	if (p->lp && !p->full)
		origin_pump(p);
}

/* Operation the DATA frame belongs to; NULL with *err 0: drop it. */
static struct op *data_op(struct rma_peer *p, struct win_job *job, const struct wire_frame *f,
			  struct stream **sp, int *err)
{
	struct stream *s = origin_stream_find(p->r, job, f->win, f->origin, f->target);
	struct op *op;

	*err = 0;
	if (!s || s->peer != p || f->seq <= s->ack_to)
		return NULL;
	*sp = s;
	if (s->data == SLOT_NONE) {
		*err = -EPROTO;
		return NULL;
	}
	op = op_of(s, s->data);
	/* one that failed at the target after part of its data leaves the rest out */
	while (op->seq != f->seq) {
		if (op->seq > f->seq || op->next == SLOT_NONE) {
			*err = -EPROTO;
			return NULL;
		}
		op = op_of(s, op->next);
	}
	if (f->off < op->off || f->off - op->off != op->got || f->len > op->want - op->got) {
		*err = -EPROTO;
		return NULL;
	}
	return op;
}

/* Memory of the client that byte op->got of the result goes to; NULL: not mapped here. */
static uint8_t *data_place(const struct stream *s, struct op *op)
{
	const struct rma_client *c = s->conn->c;

	return rma_opcodes[op->opcode].result ? c->view.arena + op->result + op->got : op_memory(c, op, op->got);
}

bool origin_place(struct rma_peer *p, struct win_job *job, const struct wire_frame *f,
		  struct iovec *iov, struct win_map **map)
{
	struct stream *s;
	uint8_t *to;
	int err;
	struct op *op = data_op(p, job, f, &s, &err);

	if (!op)
		return false;
	to = data_place(s, op);
	if (!to)
		return false;
	iov->iov_base = to;
	iov->iov_len = f->len;
	*map = win_map_get(op->map && op->opcode == PROG_SQE_OP_GET ? op->map : s->conn->c->view.seg);
	return true;
}

static void owrite_done(void *arg, int status, void *bounce)
{
	struct ojob *j = arg;
	struct stream *s = j->s;
	struct op *op = op_of(s, j->slot);

	op->pending--;
	s->jobs--;
	if (status && !op->status)
		op->status = status;
	free(j);
	if (s->zombie)
		origin_stream_put(s);
	else
		origin_stream_advance(s);
}

static void owrite_fill(void *arg, void *mem)
{
	struct ojob *j = arg;

	memcpy(mem, j->payload, j->len);
}

static int owrite_post(struct rma *r, struct ojob *j)
{
	struct helper *h = j->s->conn->c->view.helper;
	struct prog_helper_job job = {
		.kind = PROG_HELP_WRITE, .va = j->va, .len = j->len, .dtype = ~0ull,
	};
	int err = helper_post(h, r->index, &job, j->len, owrite_fill, owrite_done, j);

	if (!err)
		link_helper_watch(r->link, h);
	return err;
}

void origin_writes_poll(struct conn *c)
{
	struct ojob *j;

	while ((j = c->owrites)) {
		int err = owrite_post(c->r, j);

		if (err == -EAGAIN) {
			/* full of other workers' jobs perhaps, whose end does not wake this one */
			link_retry_arm(&c->r->retry);
			break;
		}
		c->owrites = j->next;
		c->owrite_bytes -= j->len;
		if (err)
			owrite_done(j, err, NULL);
	}
}

void origin_writes_end(struct conn *c)
{
	struct ojob *j;

	while ((j = c->owrites)) {
		c->owrites = j->next;
		owrite_done(j, -ESRCH, NULL);
	}
	c->owrite_bytes = 0;
}

/* Client memory that is only reached by its helper thread: result bytes of a get. */
static int data_by_helper(struct stream *s, struct op *op, const uint8_t *payload, uint64_t len)
{
	struct conn *c = s->conn;
	struct helper *h = c->c->view.helper;
	struct rma *r = c->r;
	uint64_t done = 0;

	if (!h || !helper_max(h))
		return -EPERM;
	if (c->owrite_bytes + len > OWRITE_MAX) {
		prog_log_limited(PROG_LOG_WARN,
				 "session %u: its helper thread is %u bytes behind: results lost",
				 c->c->view.session, OWRITE_MAX);
		return -ENOMEM;
	}
	while (done < len) {
		uint64_t n = len - done < helper_max(h) ? len - done : helper_max(h);
		struct ojob *j = calloc(1, sizeof(*j) + n);
		int err;

		if (!j)
			return -ENOMEM;
		j->s = s;
		j->slot = op - c->ops;
		j->write = true;
		j->va = op->addr + op->got + done;
		j->len = n;
		memcpy(j->payload, payload + done, n);
		err = c->owrites ? -EAGAIN : owrite_post(r, j);
		if (err && err != -EAGAIN) {
			free(j);
			return err;
		}
		if (err) {
			if (c->owrites)
				c->owrites_last->next = j;
			else
				c->owrites = j;
			c->owrites_last = j;
			c->owrite_bytes += n;
			link_retry_arm(&r->retry);
		}
		op->pending++;
		s->jobs++;
		stats_add(&c->lc.stats->helper_jobs, 1);
		done += n;
	}
	stats_add(&c->lc.stats->helper_bytes, len);
	return 0;
}

/* Does the target wait to hear that all data of @op has come, for a fence or for what follows? */
static bool is_awaited(const struct stream *s, const struct op *op)
{
	if (op->next == SLOT_NONE)
		return op->flags & PROG_SQE_FENCE;
	return op_of(s, op->next)->opcode != PROG_SQE_OP_GET;
}

int origin_data(struct rma_peer *p, struct win_job *job, const struct wire_frame *f,
		const void *payload)
{
	struct stream *s;
	uint8_t *to;
	int err;
	struct op *op = data_op(p, job, f, &s, &err);

	if (!op)
		return err;
	if (payload && f->len && !op->status) {
		to = data_place(s, op);
		if (to) {
			memcpy(to, payload, f->len);
			stats_add(&s->conn->lc.stats->mapped_bytes, f->len);
		} else if (s->conn->c->view.cma) {
			struct memref m = mem_remote(s->conn->c->view.pid, op->addr);

			err = mem_write(&m, op->got, payload, f->len);
			if (err)
				op->status = err;
			stats_add(&s->conn->lc.stats->cma_bytes, f->len);
		} else {
			err = data_by_helper(s, op, payload, f->len);
			if (err)
				op->status = err;
		}
	} else if (f->len) {
		stats_add(&s->conn->lc.stats->direct_bytes, f->len);
	}
	if (op->map && op->map->device)
		stats_add(&s->conn->lc.stats->pinned_bytes, f->len);
	if (op->map && !win_map_alive(op->map) && !op->status)
		op->status = -EFAULT;
	op->got += f->len;
	if (op->got == op->want) {
		if (!data_place(s, op) && f->len)
			stats_add(&s->conn->lc.stats->fallback[s->conn->c->view.cma ? STATS_FB_ORIGIN_CMA :
							    STATS_FB_ORIGIN_HELPER], 1);
		origin_stream_data_over(s, op);
		if (p->lp && is_awaited(s, op))
			lane_confirm(p->lp->lane, op->want > REPLY_COPIES ? 1 : REPLY_COPIES / 2);
	}
	return 0;
}

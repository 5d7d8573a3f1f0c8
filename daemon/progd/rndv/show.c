// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Memory of SENDs that other nodes read by RDMA: the bytes of the message and no others, and to be read only, for the job's ways.
 *
 * Before its memory is the sender's again, which is when its SEND ends, nobody can read there: ATS, a GET_REQ, the end of its
 * client and that of who asked take the registration back first.  A SEND that fails for another reason may do so on another worker:
 * `failed' is set before `shown' is looked at there, and here `shown' before `failed', so one of both sees the other.
 */
#include <errno.h>
#include <stdlib.h>

#include "rndv/priv.h"

#define SHOWN_MAX	(16ull << 20)	/* bytes of a message at a time: so long a worker may register memory */

static void shown_over(struct send_xfer *s)
{
	struct rndv_space *sp = s->on->sp;

	atomic_store(&sp->shown[s->slot], 0);
	if (atomic_load(&sp->failed[s->slot]) == s->serial)
		rndv_slot_end_send(s->on, s->slot, s->serial, -ECONNRESET);
}

void rndv_hide(struct send_xfer *s)
{
	if (!s->shown)
		return;
	xport_mem_del(s->rl->r->link->xw, s->mem);
	s->shown = false;
	shown_over(s);
}

static void hide_all(struct link_from *from)
{
	struct send_xfer *s;

	DL_FOREACH(from->rndv->rl->sends, s)
		if (s->from_job == from)
			rndv_hide(s);
}

/* ---- the way ---- */

static void way_gone(void *ctx, const char *why)
{
	struct link_from *from = ctx;

	from->rndv->end.way = NULL;
	hide_all(from);
	prog_log_limited(PROG_LOG_INFO, "lane %s: reads of messages end: %s", lane_name(from->rndv->rl->lane), why);
}

static const struct lane_way_ops way_ops = { .gone = way_gone };

static void way_end(struct link_from *from)
{
	struct link_end *e = &from->rndv->end;

	hide_all(from);
	lane_way_close(e->way);
	e->way = NULL;
}

/* The way to @theirs; one to an end that the peer had before is over. */
static int way_to(struct link_from *from, uint32_t job, const struct wire_wayrec *theirs)
{
	if (!from->rndv) {
		from->rndv = calloc(1, sizeof(*from->rndv));
		if (!from->rndv)
			return -ENOMEM;
		from->rndv->rl = from->lane->rndv;
	}
	if (link_end_is(&from->rndv->end, theirs))
		return 0;
	way_end(from);
	return link_end_accept(&from->rndv->end, from->lane->lane, job, VERBS_WAY_SHOWS, &way_ops, from, theirs);
}

void rndv_show_end(struct link_from *from)
{
	if (!from->rndv)
		return;
	way_end(from);
	free(from->rndv);
	from->rndv = NULL;
}

/* ---- showing ---- */

static int show(struct link_from *from, struct send_xfer *s, void *mem, uint64_t len, uint32_t *rkey)
{
	struct rndv_space *sp = s->on->sp;
	char why[VERBS_WHY];
	int err = -ESTALE;

	atomic_store(&sp->shown[s->slot], s->serial);
	if (atomic_load(&sp->failed[s->slot]) != s->serial && atomic_load(&sp->ended[s->slot]) != s->serial) {
		err = lane_way_mem_add(from->rndv->end.way, mem, len, VERBS_MEM_SHOWN, &s->mem, rkey, why);
		if (err)
			prog_log_limited(PROG_LOG_INFO, "lane %s: %s: a message goes by frames", lane_name(from->lane->lane), why);
	}
	s->shown = !err;
	if (err)
		shown_over(s);
	return err;
}

int rndv_show(struct link_from *from, struct send_xfer *s, const struct wire_frame *f, const struct wire_wayrec *theirs,
	      struct wire_keyrec *k)
{
	uint8_t *mem = rndv_side_ptr(&s->from, f->off);
	uint64_t len = f->total - f->off;
	int err;

	rndv_hide(s);
	if (!mem || s->from.map->device || !win_map_alive(s->from.map))
		return -EOPNOTSUPP;
	err = way_to(from, f->job, theirs);
	if (err)
		return err;
	if (len > SHOWN_MAX)
		len = SHOWN_MAX;
	*k = (struct wire_keyrec){ .way = from->rndv->end.mine, .lo = f->off, .hi = f->off + len, .addr = (uintptr_t)mem };
	err = show(from, s, mem, len, &k->rkey);
	if (!err)
		s->shown_to = k->hi;
	return err;
}

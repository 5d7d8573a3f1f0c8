// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * What other nodes ask: SENDs they announce, payload they pull from SENDs of this node's clients, the ends
 * they tell.  Pulls of a lane take turns piece by piece, and fill a part of its queue only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

static void serve_end(struct serve *s);
static void pump(struct rndv_lane *rl);

/* ---- lanes ---- */

struct lost {
	uint64_t id;
	struct rsend *list;
};

static bool came_from(void *arg, void *send, bool early)
{
	const struct lost *l = arg;

	/* what is in the pool needs its sender no more */
	return !early && ((struct rsend *)send)->from == l->id;
}

static void forget(void *arg, void *send)
{
	struct lost *l = arg;
	struct rsend *s = send;

	s->next = l->list;
	l->list = s;
}

/* Its SENDs have failed at their node, or will. */
void rlane_lost(struct rndv_lane *rl, struct link_from *from)
{
	struct lost l = { .id = from->id };
	struct serve *sv, *tmp;
	struct rsend *s;
	struct conn *c;

	DL_FOREACH(rl->r->list, c)
		match_drop_from(c->sp->match, came_from, forget, &l);
	while ((s = l.list)) {
		l.list = s->next;
		rsend_forget(s);
	}
	DL_FOREACH_SAFE(rl->serves, sv, tmp)
		if (sv->from_job == from)
			serve_end(sv);
}

struct rndv_lane *rlane_new(struct rndv *r, struct lane *l)
{
	struct rndv_lane *rl = calloc(1, sizeof(*rl));

	if (!rl)
		return NULL;
	rl->r = r;
	rl->lane = l;
	DL_APPEND(r->lanes, rl);
	return rl;
}

void rlane_free(struct rndv_lane *rl)
{
	DL_DELETE(rl->r->lanes, rl);
	free(rl->notes);
	free(rl);
}

/* Answer with a frame without payload; kept while the lane is full. */
static void note(struct rndv_lane *rl, const struct wire_frame *f)
{
	int err = rl->nnotes ? -EAGAIN : lane_send(rl->lane, f, NULL, NULL, NULL);

	if (err != -EAGAIN)
		return;
	if (rl->nnotes == rl->max_notes) {
		uint32_t n = rl->max_notes ? 2 * rl->max_notes : 16;
		struct wire_frame *p = realloc(rl->notes, n * sizeof(*p));

		if (!p) {
			lane_close(rl->lane, -ENOMEM, "no memory for answers");
			return;
		}
		rl->notes = p;
		rl->max_notes = n;
	}
	rl->notes[rl->nnotes++] = *f;
}

void serve_writable(struct rndv_lane *rl)
{
	uint32_t n = 0;

	while (n < rl->nnotes && lane_send(rl->lane, &rl->notes[n], NULL, NULL, NULL) != -EAGAIN)
		n++;
	if (n) {
		rl->nnotes -= n;
		memmove(rl->notes, rl->notes + n, rl->nnotes * sizeof(*rl->notes));
	}
	pump(rl);
}

/* Does rank @rank of @c's window live on the lane's node? */
static bool is_peer(const struct rndv_lane *rl, const struct conn *c, uint32_t rank)
{
	return rank < c->sp->win->nranks &&
	       !memcmp(node_of(c, rank)->guid, lane_guid(rl->lane), PROG_GUID_SIZE);
}

/* ---- pieces ---- */

static void serve_free(struct serve *s)
{
	if (s->rl || s->jobs || s->refs)
		return;
	side_fini(&s->from);
	free(s->stash);
	free(s);
}

static void turn_off(struct serve *s)
{
	if (!s->turning)
		return;
	s->turning = false;
	DL_DELETE2(s->rl->turn, s, turn_prev, turn_next);
}

static void turn_on(struct serve *s)
{
	if (s->turning || s->jobs || (s->off == s->end && !s->stash))
		return;
	s->turning = true;
	DL_APPEND2(s->rl->turn, s, turn_prev, turn_next);
}

static void serve_end(struct serve *s)
{
	turn_off(s);
	s->rl->r->nserves--;
	DL_DELETE(s->rl->serves, s);
	DL_DELETE2(s->on->serves, s, on_prev, on_next);
	s->rl = NULL;
	s->on = NULL;
	serve_free(s);
}

static void refuse(struct rndv_lane *rl, uint32_t job, uint64_t token, int err)
{
	struct wire_frame f = { .type = WIRE_RNDV_REFUSE, .job = job, .seq = token, .error = -err };

	note(rl, &f);
}

/* No more of it: its memory cannot be read, or its client goes. */
void serve_refuse(struct serve *s, int err)
{
	refuse(s->rl, s->job, s->token, err);
	serve_end(s);
}

static void sent(void *arg, int err)
{
	struct ref *ref = arg;
	struct serve *s = ref->s;

	win_map_put(ref->map);
	free(ref);
	s->refs--;
	if (s->rl)
		s->rl->refs--;
	else
		serve_free(s);
}

static struct wire_frame piece_frame(const struct serve *s, uint64_t len)
{
	return (struct wire_frame){
		.type = WIRE_RNDV_DATA, .flags = s->off + len == s->end ? WIRE_F_LAST : 0, .job = s->job,
		.seq = s->token, .off = s->off, .len = len, .total = s->end,
	};
}

static void read_by_helper(void *arg, int status, void *bounce)
{
	struct serve *s = arg;
	struct wire_frame f;
	int err;

	s->jobs--;
	if (!s->rl) {
		serve_free(s);
		return;
	}
	if (status) {
		serve_refuse(s, status);
		return;
	}
	f = piece_frame(s, s->job_len);
	err = lane_send(s->rl->lane, &f, bounce, NULL, NULL);
	if (err == -EAGAIN) {
		s->stash = malloc(s->job_len);
		if (!s->stash) {
			serve_refuse(s, -ENOMEM);
			return;
		}
		memcpy(s->stash, bounce, s->job_len);
	} else {
		s->off += s->job_len;
		stats_add(&s->on->stats->served_bytes, s->job_len);
	}
	turn_on(s);
}

enum { SENT, LATER, WAIT };

/* One piece: SENT, LATER: the lane is full, WAIT: for a job, or a negative errno. */
static int serve_one(struct serve *s)
{
	struct rndv_lane *rl = s->rl;
	struct rndv *r = rl->r;
	uint64_t left = s->end - s->off, len = left < s->piece ? left : s->piece;
	struct wire_frame f;
	const void *src;
	void *room;
	int err;

	if (s->stash) {
		f = piece_frame(s, s->job_len);
		err = lane_send(rl->lane, &f, s->stash, NULL, NULL);
		if (err)
			return LATER;
		s->off += s->job_len;
		stats_add(&s->on->stats->served_bytes, s->job_len);
		free(s->stash);
		s->stash = NULL;
		return SENT;
	}
	if (s->from.helper) {
		uint64_t max = side_helper_max(&s->from);

		s->job_len = len < max ? len : max;
		err = side_post(&s->from, s->on, s->off, s->job_len, NULL, read_by_helper, s);
		if (err == -EAGAIN || err == -ENOMEM) {
			link_retry_arm(&r->retry);
			return WAIT;
		}
		if (err)
			return err;
		s->jobs++;
		return WAIT;
	}
	f = piece_frame(s, len);
	src = side_ptr(&s->from, s->off);
	if (src && len >= REF_MIN) {
		struct ref *ref = malloc(sizeof(*ref));

		if (ref) {
			*ref = (struct ref){ .map = win_map_get(s->from.map), .s = s };
			err = lane_send(rl->lane, &f, src, sent, ref);
			if (err) {
				win_map_put(ref->map);
				free(ref);
				return LATER;
			}
			s->refs++;
			rl->refs++;
			s->off += len;
			stats_add(&s->on->stats->served_bytes, len);
			return win_map_alive(s->from.map) ? SENT : -EFAULT;
		}
	}
	room = lane_reserve(rl->lane, len);
	if (!room)
		return LATER;
	err = side_read(&s->from, s->off, room, len);
	if (err) {
		lane_cancel(rl->lane);
		return err;
	}
	if (lane_commit(rl->lane, &f))
		return LATER;
	s->off += len;
	stats_add(&s->on->stats->served_bytes, len);
	return SENT;
}

static void pump(struct rndv_lane *rl)
{
	/* an idle lane gets one piece only, which travels while serve_poll() has the next one read */
	bool idle = !lane_queued(rl->lane);

	while (rl->turn && lane_state(rl->lane) == LANE_UP && !rl->nnotes) {
		struct serve *s = rl->turn;
		int ret;

		if (lane_queued(rl->lane) + s->piece > LANE_QUEUED)
			return;			/* serve_poll() looks again when something was sent */
		place(s->on, s->end, s->waits);
		ret = serve_one(s);
		if (ret == LATER)
			return;
		if (ret < 0) {
			serve_refuse(s, ret);
			continue;
		}
		turn_off(s);
		if (ret != SENT)
			continue;
		turn_on(s);
		if (idle)
			return;
	}
}

int serve_poll(struct rndv *r)
{
	struct rndv_lane *rl;
	struct serve *s;
	int n = 0;

	DL_FOREACH(r->lanes, rl) {
		uint64_t before = lane_queued(rl->lane);

		if (r->retry.now)
			DL_FOREACH(rl->serves, s)
				turn_on(s);
		if (!rl->turn)
			continue;
		pump(rl);
		n += lane_queued(rl->lane) != before;
	}
	return n;
}

/* ---- frames ---- */

static struct serve *serve_find(const struct conn *c, uint32_t slot, uint32_t serial)
{
	struct serve *s;

	DL_FOREACH2(c->serves, s, on_next)
		if (s->slot == slot && s->serial == serial)
			return s;
	return NULL;
}

static uint32_t piece_size(uint64_t len)
{
	uint64_t n = (len / PIECE_PARTS + 4095) & ~4095ull;

	return n < PIECE_MIN ? PIECE_MIN : n < PIECE ? n : PIECE;
}

static int start(struct link_from *from, const struct wire_frame *f, struct conn *c, uint32_t slot,
		 uint32_t serial)
{
	struct rndv_lane *rl = from->lane->rndv;
	struct prog_p2p_slot sl;
	const char *why = "";
	struct serve *s;
	int err;

	if (slot >= PROG_P2P_SLOTS || f->off)
		return -EINVAL;
	if (!slot_read(c, slot, &sl) || sl.serial != serial || sl.kind != PROG_P2P_SEND)
		return -ESTALE;
	if (sl.key.dst != f->target || !is_peer(rl, c, f->target))
		return -EACCES;
	if (f->total > sl.len)
		return -ERANGE;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	err = side_init(&s->from, c->sp, &sl, &why);
	if (err) {
		free(s);
		if (err != -EPROTO)
			return err;
		link_client_bad(&c->lc, "message slot %u: %s", slot, why);
		return -EINVAL;
	}
	if (atomic_exchange(&c->sp->served[slot], serial) == serial) {
		side_fini(&s->from);
		free(s);
		return -EBUSY;
	}
	s->rl = rl;
	s->from_job = from;
	s->on = c;
	s->job = f->job;
	s->slot = slot;
	s->serial = serial;
	s->waits = sl.hints & PROG_P2PH_BLOCKING;
	s->dst = f->target;
	s->token = f->seq;
	s->since = loop_now();
	s->end = f->total;
	s->piece = piece_size(sl.len);
	DL_APPEND(rl->serves, s);
	DL_APPEND2(c->serves, s, on_prev, on_next);
	rl->r->nserves++;
	turn_on(s);
	return 0;
}

static void on_pull(struct link_from *from, const struct wire_frame *f, struct conn *c)
{
	struct rndv_lane *rl = from->lane->rndv;
	uint32_t slot = (uint32_t)f->disp, serial = f->disp >> 32;
	struct serve *s = c ? serve_find(c, slot, serial) : NULL;
	int err = 0;

	if (!c) {
		err = -ESRCH;
	} else if (!s) {
		err = start(from, f, c, slot, serial);
	} else if (s->rl != rl || s->token != f->seq || f->off != s->end || f->total <= s->end ||
		   f->total > s->from.len) {
		err = -EINVAL;
	} else {
		s->end = f->total;
		turn_on(s);
	}
	if (err)
		refuse(rl, f->job, f->seq, err);
	else
		pump(rl);
}

static int on_fin(struct rndv_lane *rl, const struct wire_frame *f, struct conn *c, const void *payload)
{
	uint32_t slot = (uint32_t)f->disp, serial = f->disp >> 32;
	struct wire_frame a = { .type = WIRE_RNDV_ATS_ACK, .job = f->job, .seq = f->seq };
	struct wire_atsrec rec;
	struct prog_p2p_slot sl;
	struct serve *s;

	if (wire_ats_get(payload, &rec))
		return -EPROTO;
	s = c ? serve_find(c, slot, serial) : NULL;
	if (s && s->dst == f->target && is_peer(rl, c, f->target)) {
		if (!rec.status && s->off == s->end)
			thresh_moved(c->sp->thresh, f->target, s->end, loop_now() - s->since);
		serve_end(s);
	}
	if (c && slot < PROG_P2P_SLOTS && slot_read(c, slot, &sl) && sl.serial == serial &&
	    sl.key.dst == f->target && is_peer(rl, c, f->target)) {
		/* before the client sees the end, and sends the next one */
		thresh_left(c->sp->thresh, f->target, rec.blocking);
		if (slot_end_send(c, slot, serial, -(int)rec.status))
			thresh_fin(c->sp->thresh, f->target, (int64_t)rec.eager, loop_now());
	}
	note(rl, &a);
	return 0;
}

static int on_send(struct link_from *from, const struct wire_frame *f, struct conn *c, const void *payload)
{
	struct rndv_lane *rl = from->lane->rndv;
	struct wire_frame a = {
		.type = WIRE_RNDV_RTS_RETRY, .job = f->job, .win = f->win, .origin = f->origin,
		.target = f->target, .disp = f->disp, .error = ENOENT,
	};
	struct wire_rtsrec rec;
	struct rsend *s;
	int err;

	if (wire_rts_get(payload, &rec))
		return -EPROTO;
	if (!c) {
		note(rl, &a);
		return 0;
	}
	if (!is_peer(rl, c, f->origin)) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: rank %u of window %llx is not of that node",
				 lane_name(rl->lane), f->origin, (unsigned long long)f->win);
		return 0;
	}
	s = calloc(1, sizeof(*s));
	err = -ENOMEM;
	if (s) {
		s->name = (struct match_id){ .src = f->origin, .slot = (uint32_t)f->disp,
					       .serial = f->disp >> 32 };
		s->key = (struct prog_p2p_key){
			.comm = rec.comm, .src = f->origin, .dst = f->target, .tag = rec.tag,
			.gen = rec.gen, .ord = rec.ord,
		};
		s->win = f->win;
		s->len = rec.len;
		s->flags = rec.flags;
		s->early = rec.eager;
		s->from = from->id;
		err = send_arrived(c, s);
	}
	if (!err)
		return 0;
	free(s);
	if (err == -ESTALE)
		return 0;			/* taken by name before it came */
	a.error = -err;
	note(rl, &a);
	return 0;
}

int serve_frame(struct link_from *from, const struct wire_frame *f, const void *payload)
{
	struct rndv_lane *rl = from->lane->rndv;
	struct win_job *job = link_from_job(from);
	struct conn *c = job ? conn_find(rl->r, job, f->win, f->type == WIRE_RNDV_RTS ? f->target : f->origin) : NULL;

	switch (f->type) {
	case WIRE_RNDV_RTS:
		return on_send(from, f, c, payload);
	case WIRE_RNDV_ATS:
		return on_fin(rl, f, c, payload);
	default:
		on_pull(from, f, c);
		return 0;
	}
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * SENDs of this node's clients of which other nodes want the payload: GET_REQ comes, DATA goes; or READ_REQ, and KEY (show.c).
 * Those of a lane take turns part by part, and fill a part of its queue only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

#define PART_MAX	WIRE_MAX_PAYLOAD
#define PARTS		4		/* so many of a message keep both nodes busy */
#define PART_MIN	65536u
#define LANE_QUEUED	(480u << 10)	/* bytes of a lane's queue that DATA may fill: others send too */

static void release(struct send_xfer *s)
{
	if (s->rl || s->jobs || s->refs)
		return;
	rndv_side_fini(&s->from);
	free(s->stash);
	free(s);
}

static void turn_off(struct send_xfer *s)
{
	if (!s->turning)
		return;
	s->turning = false;
	DL_DELETE2(s->rl->turn, s, turn_prev, turn_next);
}

static void turn_on(struct send_xfer *s)
{
	if (s->turning || s->jobs || (s->off == s->end && !s->stash))
		return;
	s->turning = true;
	DL_APPEND2(s->rl->turn, s, turn_prev, turn_next);
}

static void end(struct send_xfer *s)
{
	turn_off(s);
	rndv_hide(s);
	s->rl->r->nsends--;
	DL_DELETE(s->rl->sends, s);
	DL_DELETE2(s->on->sends, s, on_prev, on_next);
	s->rl = NULL;
	s->on = NULL;
	release(s);
}

static void refuse(struct rndv_lane *rl, uint32_t job, uint64_t token, int err)
{
	struct wire_frame f = { .type = WIRE_RNDV_REFUSE, .job = job, .seq = token, .error = -err };

	rndv_ctrl_reply(rl, &f);
}

/* No more of it: its memory cannot be read, or its client goes. */
void send_xfer_refuse(struct send_xfer *s, int err)
{
	refuse(s->rl, s->job, s->token, err);
	end(s);
}

static struct wire_frame data_frame(const struct send_xfer *s, uint64_t len)
{
	return (struct wire_frame){
		.type = WIRE_RNDV_DATA, .flags = s->off + len == s->end ? WIRE_F_LAST : 0, .job = s->job,
		.seq = s->token, .off = s->off, .len = len, .total = s->end,
	};
}

static void went(struct send_xfer *s, uint64_t len)
{
	s->off += len;
	stats_add(&s->on->stats->served_bytes, len);
}

enum { PART_SENT, PART_NO_ROOM, PART_WAITS };

/* ---- the ways of one part: sent, the lane is full, a helper thread has a job for it, or a negative errno ---- */

static int send_stash(struct send_xfer *s)
{
	struct wire_frame f = data_frame(s, s->job_len);

	if (lane_send(s->rl->lane, &f, s->stash, NULL, NULL))
		return PART_NO_ROOM;
	went(s, s->job_len);
	free(s->stash);
	s->stash = NULL;
	return PART_SENT;
}

static void read_by_helper(void *arg, int status, void *bounce)
{
	struct send_xfer *s = arg;
	struct wire_frame f;

	s->jobs--;
	if (!s->rl) {
		release(s);
		return;
	}
	if (status) {
		send_xfer_refuse(s, status);
		return;
	}
	f = data_frame(s, s->job_len);
	if (lane_send(s->rl->lane, &f, bounce, NULL, NULL) == -EAGAIN) {
		s->stash = malloc(s->job_len);
		if (!s->stash) {
			send_xfer_refuse(s, -ENOMEM);
			return;
		}
		memcpy(s->stash, bounce, s->job_len);
	} else {
		went(s, s->job_len);
	}
	turn_on(s);
}

static int ask_helper(struct send_xfer *s, uint64_t len)
{
	uint64_t max = rndv_side_helper_max(&s->from);
	int err;

	s->job_len = len < max ? len : max;
	err = rndv_side_post(&s->from, s->on, s->off, s->job_len, NULL, read_by_helper, s);
	if (!err)
		s->jobs++;
	else if (err == -EAGAIN || err == -ENOMEM)
		link_retry_arm(&s->rl->r->retry);
	else
		return err;
	return PART_WAITS;
}

static void ref_over(void *arg, int err)
{
	struct ref *ref = arg;
	struct send_xfer *s = ref->s;

	win_map_put(ref->map);
	free(ref);
	s->refs--;
	release(s);
}

/* The bytes are the sender's until ATS: the peer has all of them then, or does not want them. */
static const struct lane_ref payload_ref = { .over = ref_over };

/* From where it is. */
static int send_ref(struct send_xfer *s, struct ref *ref, const void *src, uint64_t len)
{
	struct wire_frame f = data_frame(s, len);

	*ref = (struct ref){ .map = win_map_get(s->from.map), .s = s };
	if (lane_send(s->rl->lane, &f, src, &payload_ref, ref)) {
		win_map_put(ref->map);
		free(ref);
		return PART_NO_ROOM;
	}
	s->refs++;
	went(s, len);
	return win_map_alive(s->from.map) ? PART_SENT : -EFAULT;
}

static int send_copy(struct send_xfer *s, uint64_t len)
{
	struct lane *lane = s->rl->lane;
	struct wire_frame f = data_frame(s, len);
	void *room = lane_reserve(lane, len);
	int err;

	if (!room)
		return PART_NO_ROOM;
	err = rndv_side_read(&s->from, s->off, room, len);
	if (err) {
		lane_cancel(lane);
		return err;
	}
	if (lane_commit(lane, &f))
		return PART_NO_ROOM;
	went(s, len);
	return PART_SENT;
}

static int send_part(struct send_xfer *s)
{
	uint64_t left = s->end - s->off, len = left < s->part ? left : s->part;
	const void *src = len >= LANE_REF_MIN ? rndv_side_ptr(&s->from, s->off) : NULL;
	struct ref *ref;

	if (s->stash)
		return send_stash(s);
	if (s->from.helper)
		return ask_helper(s, len);
	ref = src ? malloc(sizeof(*ref)) : NULL;
	return ref ? send_ref(s, ref, src, len) : send_copy(s, len);
}

/* ---- their turn ---- */

void send_xfer_pump(struct rndv_lane *rl)
{
	/* an idle lane gets one part only, which travels while send_xfer_poll() has the next one read */
	bool idle = !lane_queued(rl->lane);

	while (rl->turn && lane_state(rl->lane) == LANE_UP && !rl->nreplies) {
		struct send_xfer *s = rl->turn;
		int ret;

		if (lane_queued(rl->lane) + s->part > LANE_QUEUED)
			return;			/* send_xfer_poll() looks again when something was sent */
		rndv_conn_place(s->on, s->end, s->blocking);
		ret = send_part(s);
		if (ret == PART_NO_ROOM)
			return;
		if (ret < 0) {
			send_xfer_refuse(s, ret);
			continue;
		}
		turn_off(s);
		if (ret != PART_SENT)
			continue;
		turn_on(s);
		if (idle)
			return;
	}
}

int send_xfer_poll(struct rndv *r)
{
	struct rndv_lane *rl;
	struct send_xfer *s;
	int n = 0;

	DL_FOREACH(r->lanes, rl) {
		uint64_t before = lane_queued(rl->lane);

		if (r->retry.now)
			DL_FOREACH(rl->sends, s)
				turn_on(s);
		if (!rl->turn)
			continue;
		send_xfer_pump(rl);
		n += lane_queued(rl->lane) != before;
	}
	return n;
}

/* ---- what is asked ---- */

struct send_xfer *send_xfer_find(const struct conn *c, uint32_t slot, uint32_t serial)
{
	struct send_xfer *s;

	DL_FOREACH2(c->sends, s, on_next)
		if (s->slot == slot && s->serial == serial)
			return s;
	return NULL;
}

static uint32_t part_size(uint64_t len)
{
	uint64_t n = (len / PARTS + 4095) & ~4095ull;

	return n < PART_MIN ? PART_MIN : n < PART_MAX ? n : PART_MAX;
}

/* @by_read: nothing is to be sent until GET_REQ comes. */
static int start(struct link_from *from, const struct wire_frame *f, struct conn *c, uint32_t slot,
		 uint32_t serial, bool by_read)
{
	struct rndv_lane *rl = from->lane->rndv;
	struct prog_p2p_slot sl;
	const char *why = "";
	struct send_xfer *s;
	int err;

	if (slot >= PROG_P2P_SLOTS || f->off)
		return -EINVAL;
	if (!rndv_slot_read(c, slot, &sl) || sl.serial != serial || sl.kind != PROG_P2P_SEND)
		return -ESTALE;
	if (sl.key.dst != f->target || !rndv_lane_has(rl, c, f->target))
		return -EACCES;
	if (f->total > sl.len)
		return -ERANGE;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	err = rndv_side_init(&s->from, c->sp, &sl, &why);
	if (err) {
		free(s);
		if (err != -EPROTO)
			return err;
		link_client_bad(&c->lc, "message slot %u: %s", slot, why);
		return -EINVAL;
	}
	if (atomic_exchange(&c->sp->wanted[slot], serial) == serial) {
		rndv_side_fini(&s->from);
		free(s);
		return -EBUSY;
	}
	s->rl = rl;
	s->from_job = from;
	s->on = c;
	s->job = f->job;
	s->slot = slot;
	s->serial = serial;
	s->blocking = sl.hints & PROG_P2PH_BLOCKING;
	s->dst = f->target;
	s->token = f->seq;
	s->since = loop_now();
	s->by_read = by_read;
	s->end = by_read ? 0 : f->total;
	s->part = part_size(sl.len);
	DL_APPEND(rl->sends, s);
	DL_APPEND2(c->sends, s, on_prev, on_next);
	rl->r->nsends++;
	turn_on(s);
	return 0;
}

int send_xfer_read(struct link_from *from, const struct wire_frame *f, struct conn *c, const void *payload)
{
	struct rndv_lane *rl = from->lane->rndv;
	uint32_t slot = (uint32_t)f->disp, serial = f->disp >> 32;
	struct send_xfer *s = c ? send_xfer_find(c, slot, serial) : NULL;
	struct wire_frame a = { .type = WIRE_RNDV_KEY, .job = f->job, .seq = f->seq, .len = sizeof(struct wire_key) };
	uint8_t answer[sizeof(struct wire_key)];
	struct wire_keyrec k = { 0 };
	struct wire_wayrec theirs;
	int err = 0;

	if (wire_way_get(payload, &theirs))
		return -EPROTO;
	if (!c) {
		err = -ESRCH;
	} else if (!s) {
		err = start(from, f, c, slot, serial, true);
		s = err ? NULL : send_xfer_find(c, slot, serial);
	} else if (s->rl != rl || s->token != f->seq || !s->by_read || f->off != s->shown_to || f->total > s->from.len) {
		err = -EINVAL;
	}
	if (err) {
		refuse(rl, f->job, f->seq, err);
		return 0;
	}
	err = rndv_show(from, s, f, &theirs, &k);
	if (err)
		k = (struct wire_keyrec){ .status = -err };
	wire_key_put(answer, &k);
	rndv_ctrl_reply_with(rl, &a, answer);
	return 0;
}

/* What was read of it, or could have been, is to come as frames from byte @off on. */
static void by_frames(struct send_xfer *s, uint64_t off)
{
	rndv_hide(s);
	s->by_read = false;
	s->off = off;
	s->end = off;
	stats_add(&s->on->stats->served_bytes, off);
}

void send_xfer_get(struct link_from *from, const struct wire_frame *f, struct conn *c)
{
	struct rndv_lane *rl = from->lane->rndv;
	uint32_t slot = (uint32_t)f->disp, serial = f->disp >> 32;
	struct send_xfer *s = c ? send_xfer_find(c, slot, serial) : NULL;
	int err = 0;

	if (s && s->by_read && s->rl == rl && s->token == f->seq && f->off <= s->shown_to)
		by_frames(s, f->off);
	if (!c) {
		err = -ESRCH;
	} else if (!s) {
		err = start(from, f, c, slot, serial, false);
	} else if (s->rl != rl || s->token != f->seq || s->by_read || f->off != s->end || f->total <= s->end ||
		   f->total > s->from.len) {
		err = -EINVAL;
	} else {
		s->end = f->total;
		turn_on(s);
	}
	if (err)
		refuse(rl, f->job, f->seq, err);
	else
		send_xfer_pump(rl);
}

void send_xfer_ats(struct send_xfer *s, bool ok)
{
	uint64_t len = s->by_read ? s->shown_to : s->end;

	if (ok && s->by_read) {
		stats_add(&s->on->stats->served_bytes, len);
		stats_add(&s->on->stats->served_read_bytes, len);
	}
	if (ok && (s->by_read || s->off == s->end))
		thresh_moved(s->on->sp->thresh, s->dst, len, loop_now() - s->since);
	end(s);
}

void send_xfer_lost(struct rndv_lane *rl, const struct link_from *from)
{
	struct send_xfer *s, *tmp;

	DL_FOREACH_SAFE(rl->sends, s, tmp)
		if (s->from_job == from)
			end(s);
}

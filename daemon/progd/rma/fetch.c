// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * GETs that are read by RDMA from the target's memory, and PUTs that are written there, without its worker.  What may be is asked
 * for once (KEY_ASK), by window and place; until the answer is there, and when it is no, they go as frames.
 *
 * A GET is read when all before it is acknowledged, so also the lock that it is behind, or is a GET that is read, and nothing
 * behind it is sent before its bytes are here.  So order, locks and flushes are what they are with frames.  Then it takes its place
 * in the stream: with an empty GET if the target counts it for a fence; if not, nobody there need hear of it.  What is not read,
 * for whatever reason, goes the usual way from its beginning: it has changed nothing.
 *
 * PUTs likewise, with PUTs alone: nothing behind one is sent before its bytes are seen there, which is known when a READ behind the
 * last WRITE has been answered.  One that fails may have been written, in part or whole, and what was sent may still arrive.  So
 * its way is over: the target ends it when it is told, before the same bytes come in frames, and before it hears anything else
 * (WAY_GONE).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/mem.h>

#include "rma/origin.h"

#define FETCHES		8u		/* operations of a stream that are read at a time */
#define WAIT_MIN	65536u		/* so long it is worth to wait for what is before it */
#define ASK_MIN		16384u		/* so long it is worth to ask for a key */
#define ASK_OFTEN	32u		/* so many shorter ones were sent: it is worth it, too */
#define KEY_REST_NS	1000000000ull	/* a target that refuses is not asked again for so long */
#define LAND_MIN	16384u		/* of shorter ones the bytes are copied */
#define WAY_REST_NS	2000000000ull	/* when a way has failed there is none for so long */

static struct op *op_at(const struct stream *s, uint32_t slot)
{
	return slot == SLOT_NONE ? NULL : &s->conn->ops[slot];
}

/* ---- what was read and written ---- */

static bool is_put(const struct op *op)
{
	return op->opcode == PROG_SQE_OP_PUT;
}

/* The operation goes on, or goes the usual way. */
static void over(struct fetch_way *w, struct fetch *f, bool fine)
{
	struct stream *s = f->s;
	struct op *op = f->op;

	DL_DELETE(w->fetches, f);
	if (w->spare)
		free(f);
	else
		w->spare = f;
	w->lw.used = engine_now(w->p->r);
	if (!op)
		return;
	op->fetch = NULL;
	op->move = fine ? MOVE_DONE : MOVE_NOT;
	op->pending--;
	s->fetching--;
	if (!fine && is_put(op) && op->status)
		op->failed_nop = true;
	else if (!fine)
		stats_add(&s->conn->lc.stats->fallback[is_put(op) ? STATS_FB_WRITE_FAILED : STATS_FB_READ_FAILED], 1);
	if (!s->zombie)
		origin_stream_advance(s);
}

static void deliver(const struct fetch *f, const void *bytes, uint32_t n)
{
	struct rma_client *c = f->s->conn->c;
	struct stats_block *st = f->s->conn->lc.stats;
	struct op *op = f->op;
	uint8_t *to = op_memory(c, op, f->done);
	struct memref m;
	int err;

	stats_add(&st->rdma_read_bytes, n);
	if (!bytes) {
		stats_add(&st->direct_bytes, n);
		return;
	}
	if (op->status)
		return;
	if (to) {
		memcpy(to, bytes, n);
		stats_add(&st->mapped_bytes, n);
		return;
	}
	m = mem_remote(c->view.pid, op->addr);
	err = mem_write(&m, f->done, bytes, n);
	if (err)
		op->status = err;
	stats_add(&st->cma_bytes, n);
}

/* ---- ways ---- */

static struct fetch_way *find_way(const struct rma_peer *p, const struct link_job *j)
{
	struct fetch_way *w;

	LL_FOREACH(p->ways, w)
		if (w->lw.j == j)
			return w;
	return NULL;
}

/* The keys of its streams are worth nothing without it. */
static void way_end(struct fetch_way *w)
{
	struct rma_peer *p = w->p;
	struct stream *s;

	rma_way_over(w);
	LL_DELETE(p->ways, w);
	link_way_gone(&w->lw);
	DL_FOREACH2(p->streams, s, peer_next) {
		if (s->lj != w->lw.j)
			continue;
		s->key_asked = false;
		if (s->keys)
			s->keys->n = 0;
	}
	while (w->fetches)
		over(w, w->fetches, false);
	free(w->spare);
	free(w->farewell);
	free(w);
	/* streams that go on are looked at soon */
	link_retry_arm(&p->r->retry);
}

/* There is no way for a while. */
static void rest(struct rma_peer *p, const struct link_job *j, const char *why)
{
	p->way_rest = loop_now() + WAY_REST_NS;
	prog_log_limited(PROG_LOG_INFO, "job %u: no reads and writes by RDMA: %s", j->job->number, why);
}

static void way_gone(void *ctx, const char *why)
{
	struct fetch_way *w = ctx;

	rest(w->p, w->lw.j, why);
	way_end(w);
}

static void way_close(struct fetch_way *w)
{
	lane_way_close(w->lw.way);
	way_end(w);
}

void rma_fetch_end(struct rma_peer *p, const struct win_job *job)
{
	struct fetch_way *w, *tmp;

	LL_FOREACH_SAFE(p->ways, w, tmp)
		if (!job || w->lw.j->job == job)
			way_close(w);
}

void rma_fetch_poll(struct rma *r)
{
	struct link_peer *lp, *next;
	struct fetch_way *w, *tmp;

	r->ways_over = false;
	HASH_ITER(hh, r->link->peers, lp, next) {
		if (!lp->rma)
			continue;
		LL_FOREACH_SAFE(lp->rma->ways, w, tmp)
			if (w->over)
				way_close(w);
	}
	r->ways_over = false;
}

/* How many begin up to displacement @at: the last one of these may be that of @at. */
static uint32_t keys_up_to(const struct stream *s, uint64_t at)
{
	uint32_t from = 0, to = s->keys ? s->keys->n : 0;

	while (from < to) {
		uint32_t mid = (from + to) / 2;

		if (s->keys->key[mid].lo <= at)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

/* The key for displacement @at, if there is one. */
static const struct fetch_key *key_at(const struct stream *s, uint64_t at)
{
	uint32_t n = keys_up_to(s, at);

	return n && at < s->keys->key[n - 1].hi ? &s->keys->key[n - 1] : NULL;
}

/* Where the next part, of *@n bytes and perhaps fewer then, is read to or written from; NULL: the way's buffer. */
static void *place(const struct fetch_way *w, const struct fetch *f, uint64_t *n, uint32_t *key)
{
	struct op *op = f->op;
	uint64_t most = *n < LANE_LAND_MAX ? *n : LANE_LAND_MAX;
	struct link_memory m = { .c = &f->s->conn->c->view, .map = op->map, .hi = op->map ? op->map->size : 0 };

	if ((op->flags & PROG_SQE_LOC_MASK) == PROG_SQE_REGION && !op->map->device && op->len >= LAND_MIN && !op->status &&
	    link_landing(w->p->r->link, w->lw.way, &m, op->addr + f->issued, &most, key)) {
		*n = most;
		return op_memory(f->s->conn->c, op, f->issued);
	}
	if (*n > LANE_READ_MAX)
		*n = LANE_READ_MAX;
	return NULL;
}

/* The next @n bytes of a PUT; 0, -EAGAIN, or why not. */
static int write_part(struct fetch_way *w, struct fetch *f, uint64_t addr, uint32_t rkey, uint64_t n, const void *from,
		      uint32_t from_key)
{
	struct op *op = f->op;
	struct rma_client *c = f->s->conn->c;
	struct stats_block *st = f->s->conn->lc.stats;
	const uint8_t *mapped = op_memory(c, op, f->issued);
	struct memref m = mem_remote(c->view.pid, op->addr);
	void *room = from ? NULL : lane_way_room(w->lw.way);

	if (!from && !room)
		return -EAGAIN;
	if (room && mapped)
		memcpy(room, mapped, n);
	else if (room)
		op->status = mem_read(&m, f->issued, room, n);
	if (op->status)
		return op->status;
	stats_add(from ? &st->direct_bytes : mapped ? &st->mapped_bytes : &st->cma_bytes, n);
	f->writes = true;
	return lane_way_write(w->lw.way, addr, rkey, n, from, from_key, f->issued + n == op->len, f);
}

/* No further part of it is begun; what was written may arrive until its way has ended. */
static void fail(struct fetch_way *w, struct fetch *f)
{
	f->failed = true;
	if (f->writes)
		rma_way_over(w);
}

/* One part more of @f; false: none now. */
static bool issue_part(struct fetch_way *w, struct fetch *f)
{
	uint64_t at, n = f->op->len - f->issued;
	const struct fetch_key *k;
	uint32_t to_key = 0;
	void *to;
	int err;

	at = f->op->disp + f->op->off + f->issued;
	k = key_at(f->s, at);
	if (!k) {
		fail(w, f);
		return true;
	}
	if (n > k->hi - at)
		n = k->hi - at;
	to = place(w, f, &n, &to_key);
	if (is_put(f->op))
		err = write_part(w, f, k->addr + (at - k->lo), k->rkey, n, to, to_key);
	else
		err = lane_way_read(w->lw.way, k->addr + (at - k->lo), k->rkey, n, to, to_key, f);
	if (err && err != -EAGAIN)
		fail(w, f);
	if (err)
		return err != -EAGAIN;
	f->issued += n;
	f->lands |= to != NULL;
	f->out++;
	return true;
}

static void issue(struct fetch_way *w)
{
	struct fetch *f, *tmp;

	DL_FOREACH_SAFE(w->fetches, f, tmp) {
		while (f->op && !f->failed && f->issued < f->op->len)
			if (w->over || !issue_part(w, f))
				return;
		if ((f->failed || !f->op) && !f->out)
			over(w, f, false);
	}
}

/* A part of @f has gone: the next one, or its end. */
static void part_done(struct fetch_way *w, struct fetch *f, uint32_t n)
{
	struct rma_peer *p = w->p;

	f->out--;
	if (f->op && !f->failed) {
		f->done += n;
		if (f->done == f->op->len)
			over(w, f, true);
	}
	issue(w);
	if (p->active && !p->full)
		origin_pump(p);
}

static void read_done(void *ctx, void *cookie, const void *bytes, uint32_t n)
{
	struct fetch *f = cookie;

	if (f->op && !f->failed)
		deliver(f, bytes, n);
	part_done(ctx, f, n);
}

static void write_done(void *ctx, void *cookie, uint32_t n)
{
	struct fetch *f = cookie;

	if (f->op && !f->failed)
		stats_add(&f->s->conn->lc.stats->rdma_write_bytes, n);
	part_done(ctx, f, n);
}

static const struct lane_way_ops way_ops = { .read_done = read_done, .write_done = write_done, .gone = way_gone };

static bool way_busy(const void *ctx)
{
	const struct fetch_way *w = ctx;

	return w->fetches;
}

static void end_idle(void *ctx)
{
	rma_way_over(ctx);
}

static const struct link_way_idle way_idle = { .busy = way_busy, .end = end_idle };

/* The way of the stream's job, made if need be; NULL: there is none now. */
static struct fetch_way *way_get(struct stream *s)
{
	struct rma_peer *p = s->peer;
	struct fetch_way *w = find_way(p, s->lj);
	char why[VERBS_WHY];

	if (w)
		return w->over ? NULL : w;
	/* the peer hears first of those before it */
	if (engine_now(p->r) < p->way_rest || p->gone)
		return NULL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->p = p;
	w->writes = lane_takes_writes(p->lp->lane);
	w->farewell = calloc(1, sizeof(*w->farewell));
	if (!w->farewell) {
		free(w);
		return NULL;
	}
	/* who would not hear of it has its end of it as long as the job */
	if (link_way_open(&w->lw, s->lj, &way_ops, w->writes ? &way_idle : NULL, w, why)) {
		rest(p, s->lj, why);
		free(w->farewell);
		free(w);
		return NULL;
	}
	LL_PREPEND(p->ways, w);
	return w;
}

/* ---- keys ---- */

/* May the bytes from @at on be read or written? */
static void ask(struct stream *s, const struct op *op, uint64_t at)
{
	struct wire_frame f = {
		.type = WIRE_RMA_KEY_ASK, .flags = s->sub ? WIRE_F_SUB : 0, .job = s->lj->index, .win = s->key.win,
		.origin = s->key.origin, .target = s->key.target, .disp = at, .total = op->disp + op->off + op->len - at,
		.len = sizeof(struct wire_way),
	};
	uint8_t payload[sizeof(struct wire_way)];
	struct fetch_way *w;

	if (op->len < ASK_MIN && ++s->unkeyed < ASK_OFTEN)
		return;
	if (s->key_asked)
		return;
	if (engine_now(s->peer->r) < s->key_rest) {
		stats_add(&s->conn->lc.stats->fallback[is_put(op) ? STATS_FB_WRITE_REFUSED : STATS_FB_READ_REFUSED], 1);
		return;
	}
	w = way_get(s);
	if (!w)
		return;
	wire_way_put(payload, &w->lw.mine);
	/* if there is no room, the next one asks */
	if (lane_send(s->peer->lp->lane, &f, payload, NULL, NULL))
		return;
	w->asked = true;
	s->unkeyed = 0;
	s->key_asked = true;
	s->ask_at = at;
	s->sent_any = true;
}

/* Is all of it covered by keys?  If not *@at is what lacks one. */
static bool is_keyed(const struct stream *s, const struct op *op, uint64_t *at)
{
	uint64_t end = op->disp + op->off + op->len;
	const struct fetch_key *k;

	for (*at = op->disp + op->off; *at < end; *at = k->hi) {
		k = key_at(s, *at);
		if (!k)
			return false;
	}
	return true;
}

static bool make_room(struct stream *s)
{
	struct fetch_keys *k = s->keys;
	uint32_t room = k ? 2 * k->room : 4;

	if (k && k->n < k->room)
		return true;
	if (room > FETCH_KEYS_MAX)
		return false;
	k = realloc(k, sizeof(*k) + room * sizeof(k->key[0]));
	if (!k)
		return false;
	if (!s->keys)
		k->n = 0;
	k->room = room;
	s->keys = k;
	return true;
}

/* What @k has around the place that was asked for, and that no other one has.  Without it the place is asked for again. */
static void keep_key(struct stream *s, const struct wire_keyrec *k)
{
	struct fetch_key new = { .lo = k->lo, .hi = k->hi, .addr = k->addr, .rkey = k->rkey }, *to;
	uint64_t before;
	uint32_t at;

	if (s->ask_at < k->lo || s->ask_at >= k->hi || key_at(s, s->ask_at) || !make_room(s))
		return;
	at = keys_up_to(s, s->ask_at);
	to = &s->keys->key[at];
	before = at ? to[-1].hi : 0;
	if (new.lo < before) {
		new.addr += before - new.lo;
		new.lo = before;
	}
	if (at < s->keys->n && new.hi > to->lo)
		new.hi = to->lo;
	memmove(to + 1, to, (s->keys->n - at) * sizeof(*to));
	*to = new;
	s->keys->n++;
}

/* Is this, told with a key, the other end of @w?  If it is the first that is heard of it, it is connected. */
static bool is_end_of(struct fetch_way *w, const struct wire_wayrec *theirs)
{
	char why[VERBS_WHY];
	int err = link_way_meet(&w->lw, theirs, why);

	if (err && err != -ESTALE) {
		rest(w->p, w->lw.j, why);
		way_close(w);
	}
	return !err;
}

int rma_fetch_key(struct rma_peer *p, struct link_job *j, const struct wire_frame *f, const void *payload)
{
	struct stream *s = origin_stream_find(p->r, j->job, f->win, f->origin, f->target);
	struct fetch_way *w = find_way(p, j);
	struct wire_keyrec k;
	bool asked;

	if (wire_key_get(payload, &k))
		return -EPROTO;
	if (s && s->peer != p)
		s = NULL;
	asked = s && s->key_asked;
	if (s)
		s->key_asked = false;
	if (k.status) {
		if (s)
			s->key_rest = loop_now() + KEY_REST_NS;
		return 0;
	}
	if (w && !w->over && is_end_of(w, &k.way) && asked)
		keep_key(s, &k);
	return 0;
}

void rma_fetch_keys_gone(struct rma_peer *p, struct link_job *j, const struct wire_frame *f)
{
	struct stream *s = origin_stream_find(p->r, j->job, f->win, f->origin, f->target);

	if (s && s->peer == p && s->keys)
		s->keys->n = 0;
}

/* ---- which ones ---- */

static bool candidate(const struct stream *s, const struct op *op)
{
	uint8_t where = op->flags & PROG_SQE_LOC_MASK;
	bool get = op->opcode == PROG_SQE_OP_GET, put = is_put(op) && lane_takes_writes(s->peer->lp->lane);

	return (get || put) && op->move == MOVE_NONE && !op->dtype && op->len && !op->sent && !op->got &&
	       !op->status && !op->failed_nop && op->disp <= INT64_MAX && op->len <= PROG_DTYPE_MAX_BYTES &&
	       op->off <= PROG_DTYPE_MAX_BYTES && op->disp + op->off + op->len <= INT64_MAX &&
	       (where == PROG_SQE_ARENA || where == PROG_SQE_REGION || (where == PROG_SQE_INLINE ? put : s->conn->c->view.cma));
}

/* All that was sent is acknowledged, but for GETs whose bytes are here, and PUTs whose bytes are there. */
static bool is_settled(const struct stream *s)
{
	for (uint32_t i = s->first; i != s->unsent; i = op_of(s, i)->next)
		if (op_of(s, i)->seq > s->ack_to && op_of(s, i)->move != MOVE_DONE)
			return false;
	return true;
}

static bool begin(struct fetch_way *w, struct stream *s, struct op *op)
{
	struct fetch *f = w->spare ? w->spare : malloc(sizeof(*f));

	if (!f)
		return false;
	w->spare = NULL;
	*f = (struct fetch){ .w = w, .s = s, .op = op };
	op->fetch = f;
	op->move = MOVE_UNDER_WAY;
	op->pending++;
	s->fetching++;
	DL_APPEND(w->fetches, f);
	return true;
}

/*
 * The first unsent operation, and what may go together with it.  True: the first one had better wait until what was sent is
 * acknowledged.
 */
static bool look(struct stream *s)
{
	struct op *first = op_at(s, s->unsent), *op;
	struct fetch_way *w = NULL;
	uint8_t kind = first->opcode;
	uint64_t at;

	for (op = first; op && s->fetching < FETCHES; op = op_at(s, op->next)) {
		/* a WRITE may overtake a READ that it is behind */
		if (op->opcode != kind)
			break;
		if (op->move == MOVE_UNDER_WAY || op->move == MOVE_DONE)
			continue;
		if (!candidate(s, op))
			break;
		if (!is_keyed(s, op, &at)) {
			ask(s, op, at);
			break;
		}
		w = find_way(s->peer, s->lj);
		if (!w || !w->lw.ready || w->over)
			break;
		/* a short one would hold up what is behind it, and a fence needs a frame anyway */
		if (op->len < WAIT_MIN && (op->next != SLOT_NONE || op->flags & PROG_SQE_FENCE))
			break;
		if (!is_settled(s))
			return op == first && op->len >= WAIT_MIN;
		if (!begin(w, s, op))
			break;
	}
	if (w)
		issue(w);
	return false;
}

/* The target counts it for a fence, or acknowledges what is before it, too. */
static int send_covered(struct stream *s, const struct op *op)
{
	struct wire_frame f = {
		.type = is_put(op) ? WIRE_RMA_PUT : WIRE_RMA_GET, .flags = WIRE_F_LAST, .job = s->lj->index, .win = s->key.win,
		.origin = s->key.origin, .target = s->key.target, .seq = op->seq, .disp = op->disp, .off = op->off + op->len,
		.total = op->off + op->len,
	};

	if (s->sub)
		f.flags |= WIRE_F_SUB;
	if (op->flags & PROG_SQE_FENCE)
		f.flags |= WIRE_F_FENCE | (op->flags & PROG_SQE_PARITY ? WIRE_F_PARITY : 0);
	s->sent_any = true;
	return lane_send(s->peer->lp->lane, &f, NULL, NULL, NULL);
}

int rma_fetch_next(struct stream *s)
{
	struct op *op = op_at(s, s->unsent);
	bool wait = false;
	int err;

	if (op->opcode != PROG_SQE_OP_GET && !is_put(op))
		return MOVE_USUAL;
	/* what is over, and has nothing behind it, begins nothing */
	if ((op->move != MOVE_DONE || op->next != SLOT_NONE) && lane_can_read(s->peer->lp->lane))
		wait = look(s);
	if (wait || op->move == MOVE_UNDER_WAY) {
		s->blocked = true;
		return MOVE_WAIT;
	}
	if (op->move != MOVE_DONE)
		return MOVE_USUAL;
	/* alone it is nobody's but ours */
	err = op->flags & PROG_SQE_FENCE || s->first != s->unsent ? send_covered(s, op) : MOVE_ACKED;
	if (err < 0)
		return err;
	op->sent = op->len;
	op->got = op->want;
	return err ? err : MOVE_OVER;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* One worker's engine of messages: what it is attached to, what the transport tells it, one round of work. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/futex.h>

#include "rndv/priv.h"

/* ---- small things ---- */

static void on_retry(void *ctx)
{
	struct rndv *r = ctx;

	r->retry_now = true;
	r->retry_ns = r->retry_ns < RETRY_MAX_NS / 2 ? 2 * r->retry_ns : RETRY_MAX_NS;
}

void later_arm(struct rndv *r)
{
	if (!loop_timer_running(&r->retry))
		loop_timer_set(r->loop, &r->retry, r->retry_ns, on_retry, r);
}

void conn_dirty(struct conn *c)
{
	if (c->dirty)
		return;
	c->dirty = true;
	c->dirty_next = c->r->dirty;
	c->r->dirty = c;
}

void conn_bad(struct conn *c, const char *fmt, ...)
{
	char why[PROG_REASON_SIZE];
	va_list ap;

	if (c->bad)
		return;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	c->bad = true;
	c->r->o.client_bad(c->r->o.ctx, c->sp->c.owner, why);
}

const struct prog_win_node *node_of(const struct conn *c, uint32_t rank)
{
	return &c->sp->win->nodes[c->sp->win->node_of_rank[rank]];
}

bool is_here(const struct rndv *r, const struct prog_win_node *node)
{
	return !memcmp(node->guid, r->o.guid, PROG_GUID_SIZE);
}

struct conn *conn_find(struct rndv *r, struct win_job *job, uint64_t win, uint32_t rank)
{
	struct conn_key key = { .job = job, .win = win, .rank = rank };
	struct conn *c;

	HASH_FIND(hh, r->conns, &key, sizeof(key), c);
	return c;
}

bool conn_rests(const struct conn *c)
{
	return __atomic_load_n(c->sp->c.resting, __ATOMIC_RELAXED);
}

/*
 * A message of @len bytes, or a piece of it, is about to be moved to or from the memory of @on, which @waits for it as far as is
 * known: it may not have come to rest yet, as we may be on its processor.
 */
void place(const struct conn *on, uint64_t len, bool waits)
{
	struct rndv *r = on->r;
	cpu_set_t idle, busy;
	struct conn *c;

	if (!r->o.place || len < PLACE_MIN)
		return;
	CPU_ZERO(&idle);
	CPU_ZERO(&busy);
	DL_FOREACH(r->list, c) {
		uint32_t cpu = __atomic_load_n(c->sp->c.cpu, __ATOMIC_RELAXED) - 1;
		bool rests = conn_rests(c) || (c == on && waits);

		if (cpu < CPU_SETSIZE)	/* it is only what the client says */
			CPU_SET(cpu, rests ? &idle : &busy);
	}
	r->o.place(r->o.ctx, r->o.index, &idle, &busy);
}

/* ---- spaces ---- */

int rndv_space_new(const struct rndv_client *c, struct win *w, struct rndv_space **out)
{
	struct rndv_space *sp = calloc(1, sizeof(*sp));
	struct thresh_opts to = {
		.job = w->job->number, .rank = w->rank, .nranks = w->nranks, .area = c->area,
		/* a control segment has one of these for each rank, and so has a SPACE window's */
		.peers = (struct prog_p2p_peer *)w->ctl.peers,
	};

	struct pool_conf pc;

	_Static_assert(sizeof(struct prog_p2p_peer) == sizeof(struct prog_win_peer), "same place");
	if (!sp)
		return -ENOMEM;
	if (match_new(0, &c->area->unmatched, &sp->match)) {
		free(sp);
		return -ENOMEM;
	}
	if (thresh_new(&to, &sp->thresh)) {
		match_free(sp->match);
		free(sp);
		return -ENOMEM;
	}
	pool_conf_get(&pc);
	__atomic_store_n(&c->area->pool_size, pool_span(pc.bytes), __ATOMIC_RELEASE);
	sp->c = *c;
	win_map_get(c->seg);
	if (c->helper)
		helper_get(c->helper);
	sp->win = win_get(w);
	atomic_init(&sp->refs, 1);
	*out = sp;
	return 0;
}

/* What uses the client's memory. */
static void space_fini(struct rndv_space *sp)
{
	match_free(sp->match);
	thresh_free(sp->thresh);
	pool_free(sp->pool);
	win_map_put(sp->pool_map);
	sp->match = NULL;
	sp->thresh = NULL;
	sp->pool = NULL;
	sp->pool_map = NULL;
}

void rndv_space_put(struct rndv_space *sp)
{
	if (!sp || atomic_fetch_sub(&sp->refs, 1) != 1)
		return;
	space_fini(sp);
	helper_put(sp->c.helper);
	win_map_put(sp->c.seg);
	win_put(sp->win);
	free(sp);
}

int rndv_attach(struct rndv *r, struct rndv_space *sp)
{
	struct prog_sq *sq = &sp->c.sq[r->o.index];
	struct conn *c = calloc(1, sizeof(*c));
	struct stats *st = sp->win->job->stats;

	if (!c)
		return -ENOMEM;
	c->told = calloc(PROG_P2P_SLOTS, sizeof(*c->told));
	if (!c->told) {
		free(c);
		return -ENOMEM;
	}
	c->r = r;
	c->sp = sp;
	c->key.job = sp->win->job;
	c->key.win = sp->win->key;
	c->key.rank = sp->win->rank;
	c->block = st && r->o.index < st->workers ? &st->block[r->o.index] : &r->nostats;
	c->stats = &c->block->msgs;
	HASH_ADD(hh, r->conns, key, sizeof(c->key), c);
	if (!c->hh.tbl) {
		free(c->told);
		free(c);
		return -ENOMEM;
	}
	/* what is in the ring is of a window before this one */
	c->head = __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE);
	__atomic_store_n(&sq->head, c->head, __ATOMIC_RELEASE);
	atomic_fetch_add(&sp->refs, 1);
	atomic_fetch_add(&sp->attached, 1);
	DL_APPEND(r->list, c);
	return 0;
}

static void collect_recv(void *arg, int what, void *user)
{
	struct pull **list = arg, *p = user;

	if (what != MATCH_RECV)
		return;
	p->list = *list;
	*list = p;
}

static bool any(void *arg, void *send, bool early)
{
	return true;
}

static void collect_send(void *arg, void *send)
{
	struct rsend **list = arg, *s = send;

	s->next = *list;
	*list = s;
}

/* The last worker: what is kept ends, and the senders' sides are told. */
static void space_end(struct conn *c)
{
	struct rsend *sends = NULL, *s;
	struct pull *recvs = NULL, *p;

	match_drop_from(c->sp->match, any, collect_send, &sends);
	while ((s = sends)) {
		struct pjob *pj = NULL;

		sends = s->next;
		s->next = NULL;
		if (s->pooled) {
			rsend_forget(s);
			continue;
		}
		if (s->lane) {
			pj = peer_job(c, s->name.src);
			if (!pj) {
				prog_log_limited(PROG_LOG_WARN,
						 "session %u: no memory to tell that it does not receive",
						 c->sp->c.session);
				free(s);
				continue;
			}
		}
		fin_send(c->r, c, pj, s, -ESRCH);
	}
	match_each(c->sp->match, collect_recv, &recvs);
	while ((p = recvs)) {
		recvs = p->list;
		pull_free(p);
	}
	space_fini(c->sp);
}

static void conn_free(struct conn *c)
{
	struct rndv_space *sp = c->sp;

	free(c->told);
	free(c);
	rndv_space_put(sp);
}

void conn_job_done(struct conn *c)
{
	c->jobs--;
}

void rndv_detach(struct rndv *r, struct rndv_space *sp)
{
	struct prog_sq *sq = &sp->c.sq[r->o.index];
	struct conn *c, **d;
	bool left;

	DL_SEARCH_SCALAR(r->list, c, sp, sp);
	if (!c)
		return;
	ring_drain(c);
	while (c->pulls)
		pull_abort(c->pulls, -ESRCH);
	while (c->copies)
		pull_end(c->copies, -ESRCH);
	while (c->serves)
		serve_refuse(c->serves, -ESRCH);
	if (atomic_fetch_sub(&sp->attached, 1) == 1)
		space_end(c);
	__atomic_store_n(&sq->head, __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
	DL_DELETE(r->list, c);
	HASH_DEL(r->conns, c);
	for (d = &r->dirty; *d; d = &(*d)->dirty_next) {
		if (*d == c) {
			*d = c->dirty_next;
			break;
		}
	}
	if (c->jobs)
		helper_reap(sp->c.helper, r->o.index, &left);
	if (c->jobs)
		DL_APPEND(r->zombies, c);
	else
		conn_free(c);
}

void rndv_job_gone(struct rndv *r, struct win_job *job)
{
	peer_job_gone(r, job);
}

/* ---- one round ---- */

/* Something in the slots changed: tell who waits. */
static void wake_clients(struct rndv *r)
{
	while (r->dirty) {
		struct conn *c = r->dirty;

		r->dirty = c->dirty_next;
		c->dirty = false;
		futex_post(c->sp->c.event, c->sp->c.waiters);
	}
}

static int jobs_poll(struct rndv *r)
{
	struct conn *c, *tmp;
	bool left;
	int n = 0;

	DL_FOREACH(r->list, c) {
		if (!c->jobs)
			continue;
		n += helper_reap(c->sp->c.helper, r->o.index, &left);
		if (helper_corrupt(c->sp->c.helper))
			conn_bad(c, "helper ring: impossible done");
	}
	DL_FOREACH_SAFE(r->zombies, c, tmp) {
		if (c->jobs)
			n += helper_reap(c->sp->c.helper, r->o.index, &left);
		if (c->jobs)
			continue;
		DL_DELETE(r->zombies, c);
		conn_free(c);
	}
	return n;
}

static void retry(struct rndv *r)
{
	struct conn *c;

	DL_FOREACH(r->list, c) {
		struct pull *p, *tmp;

		ring_again(c);
		DL_FOREACH_SAFE(c->pulls, p, tmp) {
			if (p->again)
				copy_retry(p);
			else if (p->landing)
				pull_retry(p);
		}
	}
}

int rndv_poll(void *ctx)
{
	struct rndv *r = ctx;
	bool leave = r->o.leave && !r->look && r->o.leave(r->o.ctx, r->o.index);
	struct conn *c;
	int n = 0;

	if (!leave) {
		r->look = false;
		DL_FOREACH(r->list, c)
			n += ring_poll(c);
		if (n && r->o.posted)
			r->o.posted(r->o.ctx, r->o.index, n);
	}
	n += jobs_poll(r);
	if (r->retry_now)
		retry(r);
	n += copy_poll(r);
	n += serve_poll(r);
	if (n)
		r->retry_ns = RETRY_NS;
	if (r->retry_now) {
		r->retry_now = false;
		n++;
	}
	if (r->dirty) {
		wake_clients(r);
		n++;
	}
	return n;
}

/* ---- transport ---- */

bool rndv_takes(uint8_t type)
{
	return type >= WIRE_SEND && type <= WIRE_LATER;
}

/* The pull that is asked for on lane @l, for which a frame came. */
static struct pull *pull_of(struct rndv *r, struct lane *l, const struct wire_frame *f)
{
	struct pull *p = pull_find(r, f->seq);

	return p && p->pj && p->pj->peer->lane == l && p->pj->index == f->job ? p : NULL;
}

static int on_begin(void *ctx, struct lane *l, const struct wire_frame *f, struct lane_sink *sink)
{
	struct rndv *r = ctx;
	struct peer *pe;
	struct pull *p;

	sink->niov = 0;
	sink->token = NULL;
	if (f->type != WIRE_PIECE)
		return 0;
	p = pull_of(r, l, f);
	pe = p ? p->pj->peer : NULL;
	if (!p || !pull_place(pe, p, f, sink))
		return 0;
	p->rx++;
	atomic_fetch_add(&p->sp->refs, 1);
	sink->token = p;
	return 0;
}

static void rx_over(struct pull *p)
{
	struct rndv_space *sp = p->sp;

	pull_rx_done(p);
	rndv_space_put(sp);
}

static int opener_frame(struct rndv *r, struct lane *l, const struct wire_frame *f, const void *payload,
			struct pull *p)
{
	struct peer *pe = peer_of_lane(r, l);
	struct pjob *pj = pe ? peer_job_at(pe, f->job) : NULL;
	struct conn *c;
	int err = 0;

	switch (f->type) {
	case WIRE_PIECE:
		if (p) {
			bool direct = side_ptr(&p->to, 0);

			if (!p->over)
				err = pull_piece(p, f, direct ? NULL : p->pj->peer->buf, direct);
			rx_over(p);
			return err;
		}
		p = pull_of(r, l, f);
		/* it may have ended meanwhile */
		return p ? pull_piece(p, f, payload, false) : 0;
	case WIRE_REFUSE:
		p = pull_of(r, l, f);
		if (!f->disp || f->disp > 4095)
			return -EPROTO;
		if (p)
			pull_end(p, -(int)f->disp);
		return 0;
	case WIRE_FINED:
		if (pj)
			fin_done(pj, f->seq);
		return 0;
	default:
		c = pj ? conn_find(r, pj->job, f->win, f->origin) : NULL;
		if (!f->seq || f->seq > 4095)
			return -EPROTO;
		if (c)
			ring_later(c, (uint32_t)f->disp, f->disp >> 32, -(int)f->seq);
		return 0;
	}
}

static int on_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload,
		  void *token)
{
	struct rndv *r = ctx;
	struct rlane *rl;

	if (lane_is_opener(l))
		return opener_frame(r, l, f, payload, token);
	rl = rlane_get(r, l);
	return rl ? serve_frame(rl, f, payload) : -ENOMEM;
}

static void on_abort(void *ctx, struct lane *l, const struct wire_frame *f, void *token)
{
	if (token)
		rx_over(token);
}

static void on_up(void *ctx, struct lane *l)
{
	struct peer *p = lane_is_opener(l) ? peer_of_lane(ctx, l) : NULL;

	if (p)
		peer_up(p);
}

static void on_down(void *ctx, struct lane *l, int err, const char *why)
{
	struct rndv *r = ctx;
	struct rlane *rl;
	struct peer *p;

	if (lane_is_opener(l)) {
		p = peer_of_lane(r, l);
		if (p)
			peer_down(p, err ? err : -ECONNRESET);
		return;
	}
	rl = rlane_find(r, l);
	if (rl)
		rlane_free(rl);
}

static void on_writable(void *ctx, struct lane *l)
{
	struct rndv *r = ctx;
	struct rlane *rl;
	struct peer *p;

	if (lane_is_opener(l)) {
		p = peer_of_lane(r, l);
		if (p)
			peer_writable(p);
		return;
	}
	rl = rlane_find(r, l);
	if (rl)
		serve_writable(rl);
}

static void on_job_closed(void *ctx, struct lane *l, uint32_t job)
{
	struct rlane *rl = rlane_find(ctx, l);

	if (rl)
		rlane_job_closed(rl, job);
}

const struct xport_handlers rndv_handlers = {
	.frame_begin = on_begin,
	.frame_end = on_end,
	.frame_abort = on_abort,
	.lane_up = on_up,
	.lane_down = on_down,
	.lane_writable = on_writable,
	.job_key = win_job_key,
	.job_closed = on_job_closed,
};

/* ---- life ---- */

int rndv_new(const struct rndv_opts *o, struct rndv **out)
{
	struct rndv *r = aligned_alloc(64, (sizeof(*r) + 63) & ~(size_t)63);

	if (!r)
		return -ENOMEM;
	memset(r, 0, sizeof(*r));
	r->scratch = malloc(CHUNK);
	if (!r->scratch) {
		free(r);
		return -ENOMEM;
	}
	r->o = *o;
	r->loop = o->loop;
	r->retry_ns = RETRY_NS;
	*out = r;
	return 0;
}

void rndv_set_xport(struct rndv *r, struct xport_worker *xw)
{
	r->xw = xw;
}

void rndv_free(struct rndv *r)
{
	if (!r)
		return;
	loop_timer_cancel(&r->retry);
	loop_timer_cancel(&r->trim);
	peers_free(r);
	jobs_poll(r);
	free(r->scratch);
	free(r);
}

void rndv_info(const struct rndv *r, struct rndv_info *i)
{
	struct conn *c;

	memset(i, 0, sizeof(*i));
	DL_COUNT(r->list, c, i->clients);
	DL_FOREACH(r->list, c) {
		struct pull *p;
		uint32_t n;

		DL_COUNT(c->pulls, p, n);
		i->pulls += n;
	}
	i->serves = r->nserves;
	i->fins = r->nfins;
	i->peers = HASH_COUNT(r->peers);
}

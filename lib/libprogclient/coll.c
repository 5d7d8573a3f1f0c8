// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Collectives: the calls, from the start to the end of one, and the end of all (coll_run.h). */
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>
#include <libprogbase/reduce.h>

#include "coll_run.h"
#include "colls.h"

#define RESERVE_TMP	1024u		/* bytes of COLL_TMP that may be the reserve's */
#define WARN_NS		10000000000u	/* an end that takes so long is said */

static struct colls *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- calls ------------------------------------------------------------------------------------- */

static struct colls *colls_get(struct prog_win *w)
{
	struct msgs *ms = w->msgs;
	struct colls *cs;

	pthread_mutex_lock(&all_lock);
	cs = ms->colls;
	if (!cs) {
		cs = prog_coll_mem_get(sizeof(*cs));
		if (cs) {
			pthread_mutex_init(&cs->lock, NULL);
			cs->s = w->s;
			cs->w = w;
			cs->room_wait = COLL_RETRY_NS;
			coll_report_init(&cs->report, w->s);
			coll_peers_init(&cs->peers, colls_judge, cs);
			DL_APPEND(all, cs);
		}
		ms->colls = cs;
	}
	pthread_mutex_unlock(&all_lock);
	return cs;
}

const uint32_t *prog_win_nodes(const struct prog_win *w)
{
	return w->node;
}

static int check_cfg(const struct prog_win *w, const struct prog_coll_cfg *cfg)
{
	const struct prog_coll_desc *d = &cfg->desc;
	const struct reduce_type *t = reduce_type(cfg->type);

	if (!w->msgs)
		return msgs_unusable(w);
	if (d->kind >= PROG_COLL_KINDS || !d->size || d->rank >= d->size || d->root >= d->size || !cfg->world)
		return -EINVAL;
	/* others are looked at when messages go to them, as there may be very many */
	if (cfg->world[d->rank] != w->msgs->self)
		return -EINVAL;
	if (d->kind >= PROG_COLL_REDUCE && (!reduce_valid(cfg->op, cfg->type) || d->elem != t->extent ||
					    (reduce_type_has_gap(t) && !reduce_loop_wide(cfg->op, cfg->type))))
		return -EINVAL;
	return 0;
}

void prog_coll_costs_get(const struct prog_session *s, struct prog_coll_costs *c)
{
	*c = s->node_costs;
}

void prog_coll_costs_set(struct prog_session *s, const struct prog_coll_costs *c)
{
	s->costs = *c;
	coll_costs_bound(&s->costs);
}

static struct tmp *tmp_new(uint64_t bytes)
{
	struct tmp *t = bytes < PTRDIFF_MAX - sizeof(*t) ? malloc(sizeof(*t) + bytes) : NULL;

	return t || bytes > RESERVE_TMP ? t : prog_coll_mem_get(sizeof(*t) + bytes);
}

int prog_coll_start(struct prog_win *w, const struct prog_coll_cfg *cfg, prog_coll **out)
{
	int err = check_cfg(w, cfg);
	struct prog_coll *c;
	struct prog_coll_desc d = cfg->desc;
	struct coll_limits limits;
	struct colls *cs;
	uint64_t tmp, run;
	uint32_t n;

	if (err)
		return err;
	limits = coll_cost_limits(&w->s->costs, d.kind, d.nodes->n, d.size, coll_most(&d));
	d.limits = &limits;
	cs = colls_get(w);
	n = coll_strands(&d);
	run = cfg->desc.kind != PROG_COLL_NEIGHBOR || n < COLL_STRANDS ? COLL_STRANDS : cfg->desc.order && n > COLL_EDGES ? COLL_EDGES : n;
	c = cs ? prog_coll_mem_get(sizeof(*c) + run * sizeof(c->strand[0])) : NULL;
	if (!c)
		return -ENOMEM;
	c->nstrands = n;
	c->nrun = run;
	c->cfg = *cfg;
	c->limits = limits;
	c->cfg.desc.limits = &c->limits;
	c->same = coll_call(cfg);
	c->kind = coll_call_kind(cfg);
	c->buf[COLL_IN] = (unsigned char *)(uintptr_t)cfg->in;
	c->buf[COLL_OUT] = cfg->out;
	c->status = cfg->status;
	if (cfg->desc.kind >= PROG_COLL_REDUCE && reduce_type_has_gap(reduce_type(cfg->type)))
		c->wide = reduce_loop_wide(cfg->op, cfg->type);
	tmp = coll_tmp_bytes(&c->cfg.desc);
	if (tmp && !c->status) {
		c->tmp = tmp_new(tmp);
		if (c->tmp)
			c->buf[COLL_TMP] = c->tmp->mem;
		else
			c->status = -ENOMEM;
	}
	*out = c;
	pthread_mutex_lock(&cs->lock);
	DL_APPEND(cs->queued, c);
	cs->fresh = true;
	if (cfg->held)
		coll_hold(cs, c);
	coll_report_start(&cs->report, &c->mark, &c->cfg);
	coll_orders_started(&cs->peers.orders, cfg->comm, cfg->number);
	colls_move(cs);
	/* also if it has ended: the others may ask */
	if (d.size > 1 && !cs->running)
		colls_start_thread(cs);
	else if (cs->running && cs->loose_new && colls_idle(cs) && cs->patience > COLL_CHECK_NS)
		colls_wake(cs);	/* once: from then on it looks, until they have been received */
	if (c->held_until && !cs->running) {
		coll_let_go(cs, c);	/* nobody else would see to it */
		colls_move(cs);
	}
	colls_go_on(cs);
	pthread_mutex_unlock(&cs->lock);
	return 0;
}

int prog_coll_give(struct prog_win *w, prog_coll *c, const void *in)
{
	struct colls *cs = w->msgs->colls;
	int rc = -EALREADY;

	pthread_mutex_lock(&cs->lock);
	if (c->held_until) {
		rc = 0;
		c->buf[COLL_IN] = (unsigned char *)(uintptr_t)in;
		coll_let_go(cs, c);
		colls_move(cs);
		colls_go_on(cs);
	}
	pthread_mutex_unlock(&cs->lock);
	return rc;
}

int prog_coll_test(struct prog_win *w, prog_coll *c, int *status)
{
	struct colls *cs = w->msgs->colls;

	if (!__atomic_load_n(&c->ended, __ATOMIC_ACQUIRE) && !pthread_mutex_trylock(&cs->lock)) {
		if (!cs->running) {
			session_quiet(cs->s);
			colls_look_at_peers(cs);
		}
		colls_move(cs);
		colls_go_on(cs);
		pthread_mutex_unlock(&cs->lock);
	}
	if (!__atomic_load_n(&c->ended, __ATOMIC_ACQUIRE))
		return 0;
	carried_acquire();
	if (status)
		*status = c->status;
	return 1;
}

struct patience {
	struct colls *cs;
	struct prog_coll *c;
	uint64_t end;			/* ns */
};

static bool ended_or_waited(void *arg)
{
	const struct patience *p = arg;

	if (__atomic_load_n(&p->c->ended, __ATOMIC_ACQUIRE))
		return true;
	pthread_mutex_lock(&p->cs->lock);
	colls_move(p->cs);
	colls_look_at_peers(p->cs);
	pthread_mutex_unlock(&p->cs->lock);
	return __atomic_load_n(&p->c->ended, __ATOMIC_ACQUIRE) || clock_ns() >= p->end;
}

void prog_coll_attend(struct prog_win *w)
{
	struct colls *cs = w->msgs->colls;

	pthread_mutex_lock(&cs->lock);
	cs->lent++;
	colls_rest(cs);
	pthread_mutex_unlock(&cs->lock);
}

void prog_coll_attend_once(struct prog_win *w)
{
	struct colls *cs = w->msgs->colls;

	pthread_mutex_lock(&cs->lock);
	colls_move(cs);
	colls_look_at_peers(cs);
	colls_say_awaited(cs);
	pthread_mutex_unlock(&cs->lock);
}

void prog_coll_attend_end(struct prog_win *w)
{
	struct colls *cs = w->msgs->colls;

	pthread_mutex_lock(&cs->lock);
	cs->lent--;
	colls_say_awaited(cs);
	colls_go_on(cs);
	pthread_mutex_unlock(&cs->lock);
}

int prog_coll_wait_for(struct prog_win *w, prog_coll *c, int *status, uint64_t timeout_ns)
{
	struct patience p = { .cs = w->msgs->colls, .c = c, .end = clock_ns() + timeout_ns };
	struct prog_session *s = w->s;

	if (prog_coll_test(w, c, status))
		return 0;
	prog_coll_attend(w);
	/* lost: the next look ends them all */
	wait_until(s, &s->hdr->event, &s->hdr->waiters, ended_or_waited, &p);
	prog_coll_attend_end(w);
	return prog_coll_test(w, c, status) ? 0 : -ETIMEDOUT;
}

void prog_coll_free(prog_coll *c)
{
	prog_coll_mem_put(c);
}

/* ---- the end ----------------------------------------------------------------------------------- */

static struct colls *colls_of(const struct prog_win *w)
{
	return w->s->msgs && w->s->msgs->w == w ? w->s->msgs->colls : NULL;
}

struct closing {
	struct colls *cs;
	uint64_t warn_at;		/* ns; 0: somebody was */
};

/* What collectives have sent that have ended themselves: whoever is still there will receive it. */
static bool are_sent(void *arg)
{
	struct closing *g = arg;
	const struct loose *l;

	if (coll_peers_due(&g->cs->peers, g->cs->w))
		colls_look_at_loose(g->cs);
	for (l = g->cs->loose; l < g->cs->loose + COLL_LOOSE_MAX; l++)
		if (l->m && msg_state(l->m) < PROG_P2P_DONE && !coll_peers_gone(&g->cs->peers, l->to))
			break;
	if (l == g->cs->loose + COLL_LOOSE_MAX)
		return true;
	if (g->warn_at && clock_ns() >= g->warn_at) {
		g->warn_at = 0;
		prog_log(PROG_LOG_WARN, "session %u: its end waits for rank %u to receive what a collective has sent: is that late, or were "
			 "roots or lengths not the same?", g->cs->s->id, l->to);
	}
	return false;
}

void colls_close(struct prog_win *w)
{
	struct colls *cs = colls_of(w);
	struct closing closing = { .cs = cs, .warn_at = clock_ns() + WARN_NS };
	struct prog_coll *c, *next;

	if (!cs)
		return;
	if (cs->running) {
		pthread_mutex_lock(&cs->lock);
		cs->exit = true;
		colls_wake(cs);
		pthread_mutex_unlock(&cs->lock);
		futex_post(&cs->s->hdr->event, &cs->s->hdr->waiters);
		pthread_join(cs->thread, NULL);
	}
	DL_CONCAT(cs->active, cs->queued);
	DL_FOREACH_SAFE(cs->active, c, next) {
		DL_DELETE(cs->active, c);
		coll_abandon(cs, c);
		coll_end(cs, c);
	}
	/* lost: they never will be */
	wait_until(cs->s, &cs->s->hdr->event, &cs->s->hdr->waiters, are_sent, &closing);
	for (uint32_t i = 0; i < COLL_LOOSE_MAX; i++)
		prog_msg_free(w, cs->loose[i].m);
	coll_peers_end(&cs->peers, w);
}

void colls_free(struct prog_win *w)
{
	struct colls *cs = colls_of(w);
	struct tmp *t, *next;

	if (!cs)
		return;
	LL_FOREACH_SAFE(cs->kept, t, next)
		prog_coll_mem_put(t);
	pthread_mutex_lock(&all_lock);
	DL_DELETE(all, cs);
	w->s->msgs->colls = NULL;
	pthread_mutex_unlock(&all_lock);
	coll_peers_free(&cs->peers);
	pthread_mutex_destroy(&cs->lock);
	prog_coll_mem_put(cs);
}

static void fork_prepare(void) GUARD_UNCHECKED
{
	struct colls *cs;

	pthread_mutex_lock(&all_lock);
	DL_FOREACH(all, cs)
		pthread_mutex_lock(&cs->lock);
}

/* The child has no thread, and its session is lost. */
static void fork_done(bool child) GUARD_UNCHECKED
{
	struct colls *cs;

	DL_FOREACH(all, cs) {
		if (child)
			cs->running = cs->on_event = false;
		pthread_mutex_unlock(&cs->lock);
	}
	pthread_mutex_unlock(&all_lock);
}

const struct fork_ops coll_fork_ops = { .prepare = fork_prepare, .done = fork_done };

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A copy is cut into pieces, of which few are with the engine at a time and the copies take turns: so no copy
 * waits for all of a long one, a call that hands pieces over does not wait for the engine's descriptors, and half
 * of them are handed over again while the engine is busy with the others.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utlist.h>

#include <libprogbase/log.h>

#include "copy_engine/copy_engine.h"

#define PIECE		(256u << 10)
#define DEPTH		4u		/* pieces with the engine */
#define BACKLOG		(16ull << 20)	/* bytes that wait for it: from here on the CPU is faster */
#define LARGE		4		/* times the least: worth it for a worker that has nothing else to do */
#define IDLE_NS		2000000000ull	/* without copies: the devices are closed */
#define AGAIN_NS	5000000000ull	/* it could not be opened: tried again after this */
#define BROKEN_NS	60000000000ull	/* it did not do what it should: likewise */
#define ERRORS		8u		/* failures in a row that are too many */

struct copy_req {
	copy_engine_done_fn *done;	/* NULL: cancelled */
	void *arg;
	struct stats_block *stats;	/* with done */
	struct win_map *src, *dst;	/* held */
	uint64_t src_off, dst_off, len;
	uint64_t pos;			/* bytes handed over */
	unsigned int flying;		/* pieces with the engine */
	int status;
	bool dma;			/* an engine copied, as the completions say */
	bool queued;			/* on m->queue */
	struct copy_req *next, *prev;	/* m->queue or m->late */
};

struct copy_engine {
	unsigned int worker;
	struct loop *loop;
	int eventfd;
	struct loop_watch *watch;
	struct copier c;
	uint64_t serial;		/* of c, of all copy engines: who is attached to it */
	bool open;
	bool closing;			/* as soon as nothing is with the engine */
	enum copier_kind kind;
	bool engine;
	char name[IOAT_COPY_NAME_SIZE];
	int why;
	uint64_t until;			/* not opened before, ns */
	unsigned int errors;		/* failed pieces in a row */
	struct copy_req *piece[DEPTH];	/* by cookie; NULL: free */
	unsigned int flying;
	struct copy_req *queue;		/* to be handed over, in turn */
	uint64_t backlog;		/* bytes of them */
	struct copy_req *late;		/* given up by the module: end when the devices are closed */
	struct loop_timer idle;
	uint64_t copies, copies_then;	/* accepted; ... when the timer was set */
};

static _Atomic int conf_engine = COPY_ENGINE_AUTO;
static _Atomic uint64_t conf_min = 256u << 10;
static _Atomic uint64_t serials;
static _Atomic uint64_t total_copies[STATS_COPIERS], total_bytes[STATS_COPIERS], total_fallbacks;

void copy_engine_conf_set(const struct copy_engine_conf *c)
{
	atomic_store(&conf_engine, c->engine);
	atomic_store(&conf_min, c->min);
}

void copy_engine_conf_get(struct copy_engine_conf *c)
{
	*c = (struct copy_engine_conf){ .engine = atomic_load(&conf_engine), .min = atomic_load(&conf_min) };
}

static enum copier_kind kind_of(int engine)
{
	return engine == COPY_ENGINE_KERNEL ? COPIER_KERNEL : COPIER_DMA;
}

/* ---- the end of a copy ---- */

static void count(struct stats_block *st, unsigned int by, uint64_t len)
{
	stats_add(&st->copies[by], 1);
	stats_add(&st->copy_bytes[by], len);
	atomic_fetch_add_explicit(&total_copies[by], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&total_bytes[by], len, memory_order_relaxed);
}

void copy_engine_totals(struct copy_engine_totals *t)
{
	for (unsigned int i = 0; i < STATS_COPIERS; i++) {
		t->copies[i] = atomic_load_explicit(&total_copies[i], memory_order_relaxed);
		t->bytes[i] = atomic_load_explicit(&total_bytes[i], memory_order_relaxed);
	}
	t->fallbacks = atomic_load_explicit(&total_fallbacks, memory_order_relaxed);
}

/* Nothing of it is with the engine or waits. */
static void req_end(struct copy_req *r)
{
	win_map_put(r->src);
	win_map_put(r->dst);
	if (r->done) {
		if (r->status) {
			stats_add(&r->stats->fallback[STATS_FB_ENGINE], 1);
			atomic_fetch_add_explicit(&total_fallbacks, 1, memory_order_relaxed);
			count(r->stats, STATS_COPY_CPU, r->len);
		} else {
			count(r->stats, r->dma ? STATS_COPY_DMA : STATS_COPY_KERNEL, r->len);
		}
		r->done(r->arg, r->status);
	}
	free(r);
}

static void dequeue(struct copy_engine *m, struct copy_req *r)
{
	if (!r->queued)
		return;
	r->queued = false;
	m->backlog -= r->len - r->pos;
	DL_DELETE(m->queue, r);
}

/* Nothing more of it is handed over. */
static void req_fail(struct copy_engine *m, struct copy_req *r, int err)
{
	/* whatever else it was: see below */
	if (!r->status || err == -ETIMEDOUT)
		r->status = err;
	dequeue(m, r);
	if (r->flying)
		return;
	/*
	 * The engine may still write, as far as the module knows.  When the last open file of the module is closed
	 * it stops the engine: the caller's own copy must come after that.
	 */
	if (r->status == -ETIMEDOUT)
		DL_APPEND(m->late, r);
	else
		req_end(r);
}

/* ---- open and close ---- */

static void close_now(struct copy_engine *m)
{
	struct copy_req *r;

	copier_close(&m->c);
	m->open = false;
	m->closing = false;
	loop_timer_cancel(&m->idle);
	while ((r = m->late)) {
		DL_DELETE(m->late, r);
		req_end(r);
	}
}

/* From copy_engine_poll() and what the loop calls only: callers are told. */
static void close_soon(struct copy_engine *m)
{
	m->closing = true;
	while (m->queue)
		req_fail(m, m->queue, -ECANCELED);
	if (!m->flying)
		close_now(m);
}

/* Not again for a while. */
static void give_up(struct copy_engine *m, int err)
{
	if (m->until > loop_now())
		return;
	prog_log_limited(PROG_LOG_WARN, "copy engine %s: %s: not used for %llu s",
			 m->name[0] ? m->name : m->c.kind == COPIER_DMA ? COPIER_DEVICE : PIN_DEVICE,
			 copy_engine_why(err), BROKEN_NS / 1000000000ull);
	m->why = err;
	m->until = loop_now() + BROKEN_NS;
	close_soon(m);
}

static void on_idle(void *ctx)
{
	struct copy_engine *m = ctx;

	if (!m->flying && !m->queue && m->copies == m->copies_then)
		close_now(m);
}

static void idle_arm(struct copy_engine *m)
{
	if (!m->open || m->flying || m->queue || loop_timer_running(&m->idle))
		return;
	m->copies_then = m->copies;
	loop_timer_set(m->loop, &m->idle, IDLE_NS, on_idle, m);
}

static int open_now(struct copy_engine *m, int engine)
{
	int err = copier_present(kind_of(engine)) ?
		  copier_open(&m->c, kind_of(engine), DEPTH, m->eventfd) : -ENOENT;

	if (!err && engine == COPY_ENGINE_AUTO && !m->c.engine) {
		copier_close(&m->c);
		err = -ENXIO;
	}
	m->kind = kind_of(engine);
	m->why = err;
	if (err) {
		m->until = loop_now() + AGAIN_NS;
		/* auto asks for nothing that has to be there */
		if (engine != COPY_ENGINE_AUTO || (err != -ENOENT && err != -ENXIO))
			prog_log_limited(PROG_LOG_WARN, "copy engine: %s", copy_engine_why(err));
		return err;
	}
	m->engine = m->c.engine;
	memcpy(m->name, m->c.name, sizeof(m->name));
	m->errors = 0;
	m->serial = 1 + atomic_fetch_add(&serials, 1);
	m->open = true;
	return 0;
}

static bool ready(struct copy_engine *m, int engine)
{
	if (m->closing)
		return false;
	/* copy_engine_poll() closes it */
	m->closing = m->open && m->c.kind != kind_of(engine);
	if (m->open)
		return !m->closing;
	return loop_now() >= m->until && !open_now(m, engine);
}

static bool attached(struct copy_engine *m, struct win_device *d)
{
	int err;

	if (d->attached[m->worker] == m->serial)
		return true;
	err = copier_attach(&m->c, &d->dev);
	if (err) {
		prog_log_limited(PROG_LOG_WARN, "copy engine: the context of a client cannot be used: %s",
				 strerror(-err));
		return false;
	}
	d->attached[m->worker] = m->serial;
	return true;
}

/* ---- copies ---- */

static bool worth(const struct copy_engine *m, int engine, uint64_t len, bool busy)
{
	uint64_t min = atomic_load(&conf_min);

	if (engine == COPY_ENGINE_CPU || len < min || m->backlog > BACKLOG)
		return false;
	return engine != COPY_ENGINE_AUTO || busy || len / LARGE >= min;
}

struct copy_req *copy_engine_submit(struct copy_engine *m, struct win_map *dst, uint64_t dst_off, struct win_map *src,
			     uint64_t src_off, uint64_t len, bool busy, struct stats_block *st,
			     copy_engine_done_fn *done, void *arg)
{
	int engine = atomic_load(&conf_engine);
	struct copy_req *r;

	if (m)
		LOOP_ASSERT(m->loop);
	if (!m || !src || !dst || !src->device || !dst->device || !len)
		return NULL;
	if (!worth(m, engine, len, busy) || !win_map_serves(src, false) || !win_map_serves(dst, true) ||
	    !ready(m, engine) || !attached(m, src->device) || !attached(m, dst->device))
		goto cpu;
	r = malloc(sizeof(*r));
	if (!r)
		goto cpu;
	*r = (struct copy_req){
		.done = done, .arg = arg, .stats = st, .src = win_map_get(src), .dst = win_map_get(dst),
		.src_off = src_off, .dst_off = dst_off, .len = len, .queued = true,
	};
	DL_APPEND(m->queue, r);
	m->backlog += len;
	m->copies++;
	return r;
cpu:
	count(st, STATS_COPY_CPU, len);
	return NULL;
}

void copy_engine_cancel(struct copy_engine *m, struct copy_req *r)
{
	bool late = !r->queued && !r->flying;

	LOOP_ASSERT(m->loop);
	r->done = NULL;
	r->stats = NULL;
	dequeue(m, r);
	if (!late && !r->flying)
		req_end(r);
}

/* Else it is the client's memory that is not what it was. */
static bool engines_fault(int err)
{
	return err == -EIO || err == -ETIMEDOUT || err == -ECANCELED || err == -ENODEV || err == -ENXIO ||
	       err == -EBADF || err == -ENOTTY || err == -EBUSY;
}

/* A piece has ended, or was not taken. */
static void piece_end(struct copy_engine *m, unsigned int i, int err)
{
	struct copy_req *r = m->piece[i];

	m->piece[i] = NULL;
	m->flying--;
	r->flying--;
	if (!err)
		m->errors = 0;
	else if (engines_fault(err))
		m->errors++;
	if (err || r->status || !r->done)
		req_fail(m, r, err ? err : -ECANCELED);
	else if (!r->flying && r->pos == r->len)
		req_end(r);
	if (err == -ETIMEDOUT || (err && m->errors >= ERRORS))
		give_up(m, err);
}

static int reap(struct copy_engine *m)
{
	struct asyncprog_cqe cqe;
	int n = 0;

	while (m->open && copier_next(&m->c, &cqe)) {
		n++;
		if (cqe.cookie >= DEPTH || !m->piece[cqe.cookie]) {
			prog_log_limited(PROG_LOG_ERROR, "copy engine: a completion of nothing (%llu)",
					 (unsigned long long)cqe.cookie);
			continue;
		}
		if (cqe.flags & ASYNCPROG_CQE_DMA)
			m->piece[cqe.cookie]->dma = true;
		piece_end(m, (unsigned int)cqe.cookie, cqe.status > 0 ? -EIO : cqe.status);
	}
	if (m->closing)
		close_soon(m);
	return n;
}

/* Pieces for all that is free; returns how many. */
static unsigned int gather(struct copy_engine *m, struct asyncprog_copy *op)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < DEPTH && m->queue; i++) {
		struct copy_req *r = m->queue;
		uint64_t left = r->len - r->pos, len = left < PIECE ? left : PIECE;

		if (m->piece[i])
			continue;
		dequeue(m, r);
		op[n++] = (struct asyncprog_copy){
			.src = r->src->handle, .src_off = r->src_off + r->pos,
			.dst = r->dst->handle, .dst_off = r->dst_off + r->pos, .len = len, .cookie = i,
		};
		m->piece[i] = r;
		m->flying++;
		r->flying++;
		r->pos += len;
		if (r->pos == r->len)
			continue;
		r->queued = true;
		m->backlog += r->len - r->pos;
		DL_APPEND(m->queue, r);
	}
	return n;
}

static int submit(struct copy_engine *m)
{
	struct asyncprog_copy op[DEPTH];
	int handed = 0;

	while (m->queue && !m->closing && DEPTH - m->flying >= DEPTH / 2) {
		unsigned int n = gather(m, op);
		int err = copier_submit(&m->c, op, n);

		handed += n;
		if (!err)
			continue;
		/* all or none: which of them is it? */
		for (unsigned int i = 0; i < n; i++) {
			if (m->closing)
				err = -ECANCELED;
			else if (n > 1)
				err = copier_submit(&m->c, &op[i], 1);
			if (err)
				piece_end(m, (unsigned int)op[i].cookie, err);
		}
	}
	if (m->closing)
		close_soon(m);
	return handed;
}

static void on_event(void *ctx)
{
	reap(ctx);
}

int copy_engine_poll(void *ctx)
{
	struct copy_engine *m = ctx;
	int n;

	if (!m->open)
		return 0;
	n = reap(m);
	if (m->queue)
		n += submit(m);
	idle_arm(m);
	return n;
}

/* ---- life ---- */

int copy_engine_new(unsigned int worker, struct loop *loop, struct copy_engine **out)
{
	struct copy_engine *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->worker = worker;
	m->loop = loop;
	m->c = (struct copier)COPIER_NONE;
	m->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	m->watch = m->eventfd < 0 ? NULL : loop_fd_watch(loop, m->eventfd, LOOP_EDGE, on_event, m);
	if (!m->watch) {
		if (m->eventfd >= 0)
			close(m->eventfd);
		free(m);
		return -ENOMEM;
	}
	*out = m;
	return 0;
}

void copy_engine_detach(struct copy_engine *m)
{
	if (!m)
		return;
	loop_unwatch(m->watch);
	m->watch = NULL;
}

void copy_engine_free(struct copy_engine *m)
{
	struct copy_req *r;

	if (!m)
		return;
	copy_engine_detach(m);
	/* the devices first: what is with them may write until then */
	copier_close(&m->c);
	m->closing = true;
	while (m->queue)
		req_fail(m, m->queue, -ECANCELED);
	for (unsigned int i = 0; i < DEPTH; i++)
		if (m->piece[i])
			piece_end(m, i, -ECANCELED);
	while ((r = m->late)) {
		DL_DELETE(m->late, r);
		req_end(r);
	}
	loop_timer_cancel(&m->idle);
	close(m->eventfd);
	free(m);
}

void copy_engine_info(const struct copy_engine *m, struct copy_engine_info *i)
{
	const struct copy_req *r;

	*i = (struct copy_engine_info){
		.open = m->open, .kind = m->kind, .engine = m->engine, .why = m->open ? 0 : m->why,
		.flying = m->flying,
	};
	memcpy(i->name, m->name, sizeof(i->name));
	DL_COUNT(m->queue, r, i->queued);
}

int copy_engine_probe(char name[IOAT_COPY_NAME_SIZE])
{
	int engine = atomic_load(&conf_engine), err;
	struct copier c;

	name[0] = '\0';
	if (engine == COPY_ENGINE_CPU)
		return 0;
	err = copier_open(&c, kind_of(engine), 1, -1);
	if (err)
		return err;
	memcpy(name, c.name, sizeof(c.name));
	if (c.kind == COPIER_DMA && !c.engine)
		err = -ENXIO;
	copier_close(&c);
	return err;
}

uint64_t copy_engine_least(void)
{
	static uint64_t until;
	static int of = -1, err;
	int engine = atomic_load(&conf_engine);
	char name[IOAT_COPY_NAME_SIZE];

	if (engine == COPY_ENGINE_CPU || !copier_present(kind_of(engine)))
		return 0;
	/* many clients come at the same time */
	if (engine != of || loop_now() >= until) {
		err = copy_engine_probe(name);
		of = engine;
		until = loop_now() + AGAIN_NS;
	}
	if (engine == COPY_ENGINE_AUTO)
		return err ? 0 : LARGE * atomic_load(&conf_min);
	return err && err != -ENXIO ? 0 : atomic_load(&conf_min);
}

const char *copy_engine_why(int err)
{
	switch (err) {
	case 0:
		return "nothing is wrong";
	case -ENOENT:
	case -ENODEV:
		return "the kernel module is not loaded";
	case -EACCES:
	case -EPERM:
		return "the daemon may not open the device (group progd)";
	case -EOPNOTSUPP:
	case -EPROTO:
	case -ENOTTY:
		return "the kernel module is of another version";
	case -ENXIO:
		return "the kernel has no DMA engine that copies memory";
	case -ETIMEDOUT:
		return "a copy was never completed";
	case -EIO:
		return "copies fail";
	default:
		return strerror(-err);
	}
}

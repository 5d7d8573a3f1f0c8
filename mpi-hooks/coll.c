/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Collectives from the start to the end.  An instance is its communicator and the ordinal of the call there, which all members
 * make in the same order; of persistent ones, the ordinal of the call that made it and of the start.
 *
 * The request is a record of kind REC_COLL with a handle that the library does not complete: a generalized request, or, as those
 * cannot be started again, a persistent one to nobody.
 */
#include <stdlib.h>

#include "coll.h"
#include "hooks_gen.h"

#define NODE_MIN	(128u << 10)	/* bytes from which on collectives within a node gain, see HCOLL_AUTO */
#define SLICE_NS	1000000u	/* that a wait lasts before it looks at the library */
#define PERSISTENT	(1ull << 63)	/* in numbers of instances */

enum hcoll_mode hcoll_mode;

struct hcoll *hcoll_new(struct hcomm *c, enum prog_coll_kind kind)
{
	struct hcoll *h = hcoll_mem(sizeof(*h));
	struct hcoll_topo *t;

	hooks_lock(&c->lock);
	t = htopo_get(c);
	hooks_unlock(&c->lock);
	h->c = c;
	h->in.one.opaque = h->out.one.opaque = MPI_DATATYPE_NULL;
	h->cfg.comm = c->id;
	h->cfg.world = c->world;
	h->cfg.desc = (struct prog_coll_desc){
		.kind = (uint8_t)kind,
		.rank = (uint32_t)c->self,
		.size = c->npeers,
		.nodes = &t->nodes,
	};
	return h;
}

/* By whatever thread.  Opaque types are the library's, and so for hcoll_poll(). */
static void ended(void *arg, int status)
{
	struct hcoll *h = arg;

	if (!status && !h->out.opaque)
		hside_unpack(&h->out);
	atomic_fetch_sub_explicit(&h->c->colls_active, 1, memory_order_release);
}

/* An MPI class.  Whatever is wrong here: the others learn of it. */
static int start(struct hcoll *h, uint64_t number)
{
	struct prog_coll_cfg *cfg = &h->cfg;
	int rc;

	cfg->status = h->status ? h->status : h->in.err ? h->in.err : h->out.err;
	if (!cfg->status)
		cfg->status = hside_begin(&h->in, true);
	if (!cfg->status)
		cfg->status = hside_begin(&h->out, h->fill_out);
	cfg->in = hside_mem(&h->in);
	cfg->out = hside_mem(&h->out);
	cfg->number = number;
	cfg->ended = ended;
	cfg->arg = h;
	atomic_fetch_add_explicit(&h->c->colls_active, 1, memory_order_relaxed);
	while ((rc = prog_coll_start(p2p_context, cfg, &h->pc)) == -ENOMEM)
		hcoll_mem_wait();
	if (!rc)
		return MPI_SUCCESS;
	atomic_fetch_sub_explicit(&h->c->colls_active, 1, memory_order_relaxed);
	hside_end(&h->in);
	hside_end(&h->out);
	return herror_class(rc);
}

/* The handle of a persistent one. */
static int idle_handle(struct hcomm *c, MPI_Request *req)
{
	return PMPI_Send_init(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, c->handle, req);
}

static bool left_to_library(const struct hcoll *h)
{
	const struct prog_coll_desc *d = &h->cfg.desc;

	return hcoll_mode == HCOLL_AUTO && d->nodes->n == 1 && hcoll_length(d) < NODE_MIN;
}

static int leave(enum prog_coll_left why)
{
	if (hooks.session)
		prog_coll_left(hooks.session, why);
	return HOOK_LEAVE;
}

int hcoll_left(const struct hcomm *c)
{
	return leave(!hcoll_mode ? PROG_COLL_LEFT_OFF : c ? PROG_COLL_LEFT_INTER : PROG_COLL_LEFT_COMM);
}

/*
 * The library has given no handle for one that counts.  The others learn of it from what goes on here without a request; of a
 * persistent one they wait, as for a member that does not start it.
 */
static int no_handle(struct hcomm *c, struct rec *r, uint64_t number, int rc, const char *call)
{
	r->req = MPI_REQUEST_NULL;
	if (!r->persistent) {
		r->coll->status = -ENOMEM;
		/* its record stays: nobody would ever ask for it */
		if (!start(r->coll, number))
			return hcomm_raise(c, rc, call);
	}
	r->persistent = false;
	rec_free(r);
	return hcomm_raise(c, rc, call);
}

int hcoll_go(struct hcomm *c, struct hcoll *h, int rc, bool persistent, MPI_Request *req, const char *call)
{
	uint64_t number = 0;
	struct rec *r;
	bool native;

	if (rc == HOOK_LEAVE || (!rc && left_to_library(h))) {
		bool op = h->cfg.desc.kind >= PROG_COLL_REDUCE;

		hcoll_free(h);
		return leave(!rc ? PROG_COLL_LEFT_SHORT : op ? PROG_COLL_LEFT_OP : PROG_COLL_LEFT_COMM);
	}
	if (rc) {
		hcoll_free(h);
		return hcomm_raise(c, rc, call);
	}
	hooks_lock(&c->lock);
	native = !persistent && hballot_next(h);
	if (!native)
		number = persistent ? PERSISTENT | c->colls_made++ << 32 : c->colls_started++;
	hooks_unlock(&c->lock);
	if (native) {
		hcoll_free(h);
		return leave(PROG_COLL_LEFT_VOTE);
	}
	r = rec_new_sure(c, REC_COLL);
	r->coll = h;
	r->cap = UINT64_MAX;	/* nothing about it is usual */
	r->persistent = persistent;
	rec_transition(r, persistent ? REC_IDLE : REC_MOVING);
	rc = persistent ? idle_handle(c, &r->req) : proxy_req_new(&r->req);
	if (rc)
		return no_handle(c, r, number, rc, call);
	h->cfg.number = number;
	if (!persistent) {
		r->proxy_req = true;
		rc = start(h, number);
		if (rc) {
			MPI_Request none = r->req;

			proxy_req_end(r, &none);
			rec_free(r);
			/* the handler may not come back */
			return hcomm_raise(c, rc, call);
		}
	}
	*req = r->req;
	rec_show(r);
	hballot_started(h);
	return MPI_SUCCESS;
}

int hcoll_restart(struct rec *r)
{
	struct hcoll *h = r->coll;
	int rc = start(h, (h->cfg.number & ~(uint64_t)UINT32_MAX) | h->run++);

	if (rc)
		return hcomm_raise(r->c, rc, "MPI_Start");
	r->proxy_req = true;
	rec_transition(r, REC_MOVING);
	return MPI_SUCCESS;
}

static int class_of(int status)
{
	switch (status) {
	case -EMSGSIZE:
		return MPI_ERR_TRUNCATE;
	case -EPROTO:		/* members have not called the same */
		return MPI_ERR_ARG;
	default:
		return herror_class(status);
	}
}

bool hcoll_poll(struct rec *r)
{
	struct hcoll *h = r->coll;
	int status;

	if (r->state != REC_MOVING)
		return r->state == REC_READY;
	if (h->watched)
		hballot_looked(h, false);
	if (h->voted && !hballot_over(h))
		return false;
	if (!prog_coll_test(p2p_context, h->pc, &status))
		return false;
	if (!status && h->out.opaque)
		hside_unpack(&h->out);
	prog_coll_free(h->pc);
	h->pc = NULL;
	hside_end(&h->in);
	hside_end(&h->out);
	r->err = status ? class_of(status) : MPI_SUCCESS;
	rec_transition(r, REC_READY);
	return true;
}

void hcoll_idle(struct rec *r)
{
	struct hcoll *h = r->coll;

	if (r->state != REC_MOVING)
		return;
	if (h->voted && prog_coll_test(p2p_context, h->pc, NULL))
		hballot_idle(h);
	else
		prog_coll_wait_for(p2p_context, h->pc, NULL, SLICE_NS);
}

void hcoll_waited_for(struct rec *r)
{
	if (r->coll->watched)
		hballot_looked(r->coll, true);
}

void hcoll_attend(void)
{
	prog_coll_attend(p2p_context);
}

void hcoll_attend_once(void)
{
	prog_coll_attend_once(p2p_context);
}

void hcoll_attend_end(void)
{
	prog_coll_attend_end(p2p_context);
}

void hcoll_drain(struct hcomm *c)
{
	while (atomic_load_explicit(&c->colls_active, memory_order_acquire)) {
		hooks_sleep_slice();
		hooks_progress(NULL);
	}
}

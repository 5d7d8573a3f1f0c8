/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Votes on who does the short collectives of a communicator (coll_vote.h): what counts as short and as waited for at once, and the
 * votes themselves.  Those are collectives of ours of one byte, beside the collective that is the place.  Of them nobody but
 * this has a request.
 *
 * With MPI_THREAD_MULTIPLE this member always votes no: while a thread waits for the votes of others another one could start the
 * next collective.
 */
#include <libprogbase/futex.h>

#include "coll.h"
#include "hooks_gen.h"

#define BRIEF_MAX	(32u << 10)	/* bytes of a member */
#define AT_ONCE_NS	50000u		/* less than what ours takes more than the library's */
#define SLICE_NS	1000000u
#define SERIES		(1ull << 62)	/* in numbers of instances */

struct hballot {
	struct hballot *next;
	struct hcomm *c;		/* referenced: the collective refers to its arrays */
	prog_coll *pc;
	bool settled;			/* its outcome is known here, or of no interest */
	uint8_t all;			/* VOTED_* that all have said */
};

uint32_t hballot_window = HBALLOT_WINDOW;
int hballot_watched;
static struct hballot *ballots;		/* that may go on; under lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const uint8_t votes[] = { 0, 1, 2, 3 };	/* VOTED_*; what is given stays the giver's until it is over */

uint64_t hcoll_length(const struct prog_coll_desc *d)
{
	uint64_t all = 0;

	switch (d->kind) {
	case PROG_COLL_BCAST:
	case PROG_COLL_GATHER:
	case PROG_COLL_SCATTER:
	case PROG_COLL_ALLGATHER:
	case PROG_COLL_ALLTOALL:
		return d->bytes;
	case PROG_COLL_ALLGATHERV:
		for (uint32_t i = 0; i < d->size; i++)
			all = d->out_len[i] > all ? d->out_len[i] : all;
		return all;
	default:
		return d->kind >= PROG_COLL_REDUCE ? d->count * d->elem : 0;
	}
}

/*
 * Has the library the same bits, in whatever order it reduces?  Of what else there is not all libraries have all, and some
 * of it is wrong in some of them (selftests/mpi/native-gaps).
 */
static bool is_plain(const struct hcoll *h)
{
	const struct prog_coll_cfg *cfg = &h->cfg;

	if (h->odd)
		return false;
	switch (cfg->type) {
	case PROG_TYPE_I8:
	case PROG_TYPE_I16:
	case PROG_TYPE_I32:
	case PROG_TYPE_I64:
	case PROG_TYPE_U16:
	case PROG_TYPE_U32:
	case PROG_TYPE_U64:
	case PROG_TYPE_FLOAT_INT:
	case PROG_TYPE_DOUBLE_INT:
	case PROG_TYPE_LONG_INT:
	case PROG_TYPE_2INT:
		return true;
	case PROG_TYPE_F32:
	case PROG_TYPE_F64:
	case PROG_TYPE_LDOUBLE:
		if (cfg->op == PROG_OP_SUM || cfg->op == PROG_OP_PROD)
			return cfg->desc.size <= 2;
		return cfg->op == PROG_OP_MIN || cfg->op == PROG_OP_MAX;
	default:
		return false;
	}
}

/* The same at all members. */
static enum vote_size size_of(const struct hcoll *h)
{
	const struct prog_coll_desc *d = &h->cfg.desc;
	uint64_t most = BRIEF_MAX;

	switch (d->kind) {
	case PROG_COLL_BARRIER:
		return VOTE_SHORT;
	case PROG_COLL_NEIGHBOR:
		return VOTE_LONG;	/* libraries differ in what matches what */
	case PROG_COLL_ALLTOALLV:
		/* all are, or none; not all libraries do it right */
		return d->in_place ? VOTE_LONG : VOTE_PARTS;
	case PROG_COLL_GATHERV:
	case PROG_COLL_SCATTERV:
		return VOTE_PARTS;
	case PROG_COLL_GATHER:
	case PROG_COLL_SCATTER:
	case PROG_COLL_ALLGATHER:
	case PROG_COLL_ALLGATHERV:
	case PROG_COLL_ALLTOALL:
		most /= d->size;
		break;
	}
	return hcoll_length(d) <= most && (d->kind < PROG_COLL_REDUCE || is_plain(h)) ? VOTE_SHORT : VOTE_LONG;
}

/* As far as this member sees. */
static bool is_brief(const struct hcoll *h, enum vote_size size)
{
	return size == VOTE_SHORT || (size == VOTE_PARTS && h->in.bytes <= BRIEF_MAX && h->out.bytes <= BRIEF_MAX);
}

/* Is no member through it before all have started it?  It is only for politeness that votes are taken nowhere else. */
static bool joins(const struct prog_coll_desc *d)
{
	switch (d->kind) {
	case PROG_COLL_BARRIER:
	case PROG_COLL_ALLTOALLV:	/* but for members that have nothing for each other, which nobody knows */
		return true;
	case PROG_COLL_ALLGATHER:
	case PROG_COLL_ALLGATHERV:
	case PROG_COLL_ALLTOALL:
	case PROG_COLL_ALLREDUCE:
	case PROG_COLL_REDUCE_SCATTER:
		return hcoll_length(d);
	default:
		return false;
	}
}

/* Those that have ended, and that nobody asks for. */
static void sweep(void)
{
	struct hballot **p, *b, *done = NULL;

	hooks_lock(&lock);
	for (p = &ballots; (b = *p);) {
		if (!b->settled || !prog_coll_test(p2p_context, b->pc, NULL)) {
			p = &b->next;
			continue;
		}
		*p = b->next;
		b->next = done;
		done = b;
	}
	hooks_unlock(&lock);
	while ((b = done)) {
		done = b->next;
		prog_coll_free(b->pc);
		hcomm_put(b->c);
		prog_coll_mem_put(b);
	}
}

/* The ballot of @c's last place is of no interest any more. */
static void settle(struct hcomm *c)
{
	c->ballot->settled = true;
	c->ballot = NULL;
}

/* True: it was yes, and the others' are waited for. */
static bool cast(struct hcomm *c, bool yes)
{
	/* it may have been no already: this member came too late */
	bool in = !prog_coll_give(p2p_context, c->ballot->pc, &votes[yes ? c->vote.yes : 0]) && yes;

	vote_cast(&c->vote, in);
	if (!in)
		settle(c);
	return in;
}

/* A vote of @c that is yes: are all of them known? */
static bool is_known(struct hcomm *c)
{
	struct hballot *b = c->ballot;
	int status;

	if (!prog_coll_test(p2p_context, b->pc, &status))
		return false;
	vote_end(&c->vote, status ? 0 : b->all);
	settle(c);
	return true;
}

/* At a place; held if this member may still vote. */
static void begin(const struct hcoll *h)
{
	struct hballot *b = hcoll_mem(sizeof(*b));
	struct hcomm *c = h->c;
	bool open = c->vote.ballot == VOTE_OPEN;
	struct prog_coll_cfg cfg = {
		.comm = c->id,
		.number = SERIES | c->vote.places,
		.world = c->world,
		.desc = {
			.kind = PROG_COLL_ALLREDUCE,
			.rank = h->cfg.desc.rank,
			.size = h->cfg.desc.size,
			.count = 1,
			.elem = 1,
			.nodes = h->cfg.desc.nodes,
		},
		.in = &votes[0],
		.out = &b->all,
		.op = PROG_OP_BAND,
		.type = PROG_TYPE_U8,
		.held = open,
	};
	int rc;

	while ((rc = prog_coll_start(p2p_context, &cfg, &b->pc)) == -ENOMEM)
		hcoll_mem_wait();
	if (rc) {			/* nothing will come of the others' either */
		prog_coll_mem_put(b);
		vote_cast(&c->vote, false);
		return;
	}
	b->c = hcomm_get(c);
	b->settled = !open;
	if (open)
		c->ballot = b;
	hooks_lock(&lock);
	b->next = ballots;
	ballots = b;
	hooks_unlock(&lock);
}

static bool is_voted_on(const struct hcoll *h)
{
	return hballot_window && hcoll_mode == HCOLL_AUTO && h->cfg.desc.nodes->n > 1;
}

bool hballot_next(struct hcoll *h)
{
	struct hcomm *c = h->c;
	struct vote *v = &c->vote;
	enum vote_size size;
	bool brief;

	if (!is_voted_on(h))
		return false;
	if (v->ballot == VOTE_OPEN)	/* the last place is not waited for */
		cast(c, false);
	/* only a function that the library calls within a completion call gets here before all is known */
	while (v->ballot == VOTE_YES && !is_known(c))
		prog_coll_wait_for(p2p_context, c->ballot->pc, NULL, SLICE_NS);
	if (!v->calls)
		vote_begin(v, hballot_window);
	size = size_of(h);
	brief = is_brief(h, size);
	switch (vote_next(v, hballot_window, size, joins(&h->cfg.desc), brief, !hooks.mt)) {
	case VOTE_NATIVE:
		return true;
	case VOTE_PLACE:
		begin(h);
		h->place = true;
		break;
	case VOTE_OURS:
		break;
	}
	h->places = v->places;
	if ((brief || h->place) && !hooks.mt) {
		h->watched = true;
		hballot_watched++;
	}
	return false;
}

void hballot_started(struct hcoll *h)
{
	if (h->place)
		sweep();
	if (h->watched)
		h->at = clock_ns();
}

void hballot_looked(struct hcoll *h, bool waits)
{
	struct vote *v = &h->c->vote;
	bool prompt = waits && clock_ns() - h->at <= AT_ONCE_NS;

	hballot_forget(h);
	if (!h->place)
		vote_saw(v, h->places, prompt);
	else if (v->ballot == VOTE_OPEN && v->places == h->places)
		h->voted = cast(h->c, prompt);
}

void hballot_forget(struct hcoll *h)
{
	if (!h->watched)
		return;
	h->watched = false;
	hballot_watched--;
}

bool hballot_over(struct hcoll *h)
{
	const struct vote *v = &h->c->vote;

	h->voted = v->ballot == VOTE_YES && v->places == h->places && !is_known(h->c);
	return !h->voted;
}

void hballot_idle(const struct hcoll *h)
{
	if (h->c->ballot)
		prog_coll_wait_for(p2p_context, h->c->ballot->pc, NULL, SLICE_NS);
}

void hballot_end(void)
{
	for (struct hballot *b = ballots; b; b = b->next) {
		if (!b->settled)
			prog_coll_give(p2p_context, b->pc, &votes[0]);
		b->settled = true;
		/* who votes yes waits for this member's part */
		while (prog_coll_wait_for(p2p_context, b->pc, NULL, SLICE_NS))
			;
	}
	sweep();
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The calls: what each means for libprogclient.  Operations of the program's own, and those that a type does not have, are left to
 * the library: all members see that alike.  A call with arguments that are no good counts for nothing.
 */
#include <stdlib.h>
#include <string.h>

#include <libprogbase/reduce.h>

#include "coll.h"
#include "hooks_gen.h"

static const struct hook_array none;

/* What is sent has another length than what is received of it: the others learn of it. */
static void check_length(struct hcoll *h, uint64_t bytes)
{
	if (h->cfg.desc.bytes != bytes)
		h->status = -EMSGSIZE;
}

static bool is_root(const struct hcoll *h)
{
	return h->cfg.desc.rank == h->cfg.desc.root;
}

static int set_root(struct hcoll *h, int root)
{
	if (root < 0 || (uint32_t)root >= h->cfg.desc.size)
		return MPI_ERR_ROOT;
	h->cfg.desc.root = (uint32_t)root;
	return MPI_SUCCESS;
}

/* @blocks neighbouring ones of @count items. */
static int set_blocks(struct hcoll_side *s, const void *buf, int64_t count, MPI_Datatype type, uint32_t blocks)
{
	int64_t all;

	return __builtin_mul_overflow(count, (int64_t)blocks, &all) ? MPI_ERR_COUNT : hside_set(s, buf, all, type);
}

/* What is sent is one block of @bytes, unless it stands in the out buffer. */
static int set_in(struct hcoll *h, const void *buf, int64_t count, MPI_Datatype type, uint64_t blocks)
{
	int rc;

	if (buf == MPI_IN_PLACE) {
		h->cfg.desc.in_place = h->fill_out = true;
		return MPI_SUCCESS;
	}
	rc = set_blocks(&h->in, buf, count, type, (uint32_t)blocks);
	if (!rc)
		check_length(h, h->in.bytes / blocks);
	return rc;
}

/* ---- one buffer for both --------------------------------------------------------------------------- */

/*
 * MPICH refuses what is sent from where it is received to, unless it is told not to look; Open MPI does not look.  Where types
 * or lengths differ it does not look either, and places are counted in bytes of data there.
 */
static bool looks_for_aliases(void)
{
	static _Atomic(uint8_t) known;		/* 0: not yet, 1: no, 2: yes */
	uint8_t k = atomic_load_explicit(&known, memory_order_relaxed);

	if (unlikely(!k)) {
		const char *v = getenv("MPIR_CVAR_COLL_ALIAS_CHECK");	/* a number: it takes nothing else */

		k = IS_OMPI || (v && !atoi(v)) ? 1 : 2;
		atomic_store_explicit(&known, k, memory_order_relaxed);
	}
	return k == 2;
}

static int check_alias(const void *one, const void *other)
{
	return unlikely(one == other) && looks_for_aliases() ? MPI_ERR_BUFFER : MPI_SUCCESS;
}

/* @own: this member's block of @bytes of what all have, at @at. */
static int check_block(const struct hcoll *h, const void *own, int64_t count, MPI_Datatype type, const void *at, int64_t count_all,
		       MPI_Datatype type_all)
{
	if (own == MPI_IN_PLACE || type != type_all || count != count_all || !count)
		return MPI_SUCCESS;
	return check_alias(own, (const char *)at + h->cfg.desc.rank * h->cfg.desc.bytes);
}

/* The same where each member has a length and a place. */
static int check_part(const struct hcoll *h, const void *own, int64_t count, MPI_Datatype type, const void *at,
		      struct hook_array counts, struct hook_array displs, MPI_Datatype type_all)
{
	int64_t n = hook_array_at(counts, h->cfg.desc.rank);

	if (own == MPI_IN_PLACE || type != type_all || !count || n <= 0)
		return MPI_SUCCESS;
	return check_alias(own, (const char *)at + hook_array_at(displs, h->cfg.desc.rank) * (int64_t)(h->cfg.desc.bytes / (uint64_t)n));
}

/* ---- data ------------------------------------------------------------------------------------------ */

static void use_parts(struct hcoll *h, bool in)
{
	struct prog_coll_desc *d = &h->cfg.desc;

	if (in) {
		d->in_off = h->in.off;
		d->in_len = h->in.len;
	} else {
		d->out_off = h->out.off;
		d->out_len = h->out.len;
	}
}

/* The root, and what a member that is another one has: one block. */
static int set_rooted(struct hcoll *h, int root, struct hcoll_side *own, const void *buf, int64_t count, MPI_Datatype type)
{
	int rc = set_root(h, root);

	if (rc || is_root(h))
		return rc;
	rc = buf == MPI_IN_PLACE ? MPI_ERR_ARG : hside_set(own, buf, count, type);
	h->cfg.desc.bytes = own->bytes;
	return rc;
}

static int bcast(struct hcoll *h, void *buf, int64_t count, MPI_Datatype type, int root)
{
	int rc = set_root(h, root);
	struct hcoll_side *s = is_root(h) ? &h->in : &h->out;

	rc = rc ? rc : hside_set(s, buf, count, type);
	h->cfg.desc.bytes = s->bytes;
	return rc;
}

static int allgather(struct hcoll *h, const void *sendbuf, int64_t sendcount, MPI_Datatype sendtype, void *recvbuf,
		     int64_t recvcount, MPI_Datatype recvtype)
{
	struct prog_coll_desc *d = &h->cfg.desc;
	int rc = set_blocks(&h->out, recvbuf, recvcount, recvtype, d->size);

	d->bytes = h->out.bytes / d->size;
	rc = rc ? rc : check_block(h, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
	return rc ? rc : set_in(h, sendbuf, sendcount, sendtype, 1);
}

static int allgatherv(struct hcoll *h, const void *sendbuf, int64_t sendcount, MPI_Datatype sendtype, void *recvbuf,
		      struct hook_array recvcounts, struct hook_array displs, MPI_Datatype recvtype)
{
	struct prog_coll_desc *d = &h->cfg.desc;
	int rc = hside_set_parts(&h->out, recvbuf, d->size, recvcounts, displs, recvtype, NULL);

	if (rc)
		return rc;
	use_parts(h, false);
	d->bytes = h->out.len[d->rank];
	rc = check_part(h, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype);
	return rc ? rc : set_in(h, sendbuf, sendcount, sendtype, 1);
}

/* The root has what all have of the allgather. */
static int gather(struct hcoll *h, const void *sendbuf, int64_t sendcount, MPI_Datatype sendtype, void *recvbuf, int64_t recvcount,
		  MPI_Datatype recvtype, int root)
{
	int rc = set_rooted(h, root, &h->in, sendbuf, sendcount, sendtype);

	return rc || !is_root(h) ? rc : allgather(h, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
}

static int gatherv(struct hcoll *h, const void *sendbuf, int64_t sendcount, MPI_Datatype sendtype, void *recvbuf,
		   struct hook_array recvcounts, struct hook_array displs, MPI_Datatype recvtype, int root)
{
	int rc = set_rooted(h, root, &h->in, sendbuf, sendcount, sendtype);

	return rc || !is_root(h) ? rc : allgatherv(h, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype);
}

/* What the root keeps for itself. */
static int scatter_own(struct hcoll *h, void *recvbuf, int64_t recvcount, MPI_Datatype recvtype)
{
	int rc;

	if (recvbuf == MPI_IN_PLACE) {
		h->cfg.desc.in_place = true;
		return MPI_SUCCESS;
	}
	rc = hside_set(&h->out, recvbuf, recvcount, recvtype);
	if (!rc)
		check_length(h, h->out.bytes);
	return rc;
}

static int scatter(struct hcoll *h, const void *sendbuf, int64_t sendcount, MPI_Datatype sendtype, void *recvbuf, int64_t recvcount,
		   MPI_Datatype recvtype, int root)
{
	struct prog_coll_desc *d = &h->cfg.desc;
	int rc = set_rooted(h, root, &h->out, recvbuf, recvcount, recvtype);

	if (rc || !is_root(h))
		return rc;
	rc = set_blocks(&h->in, sendbuf, sendcount, sendtype, d->size);
	d->bytes = h->in.bytes / d->size;
	rc = rc ? rc : check_block(h, recvbuf, recvcount, recvtype, sendbuf, sendcount, sendtype);
	return rc ? rc : scatter_own(h, recvbuf, recvcount, recvtype);
}

static int scatterv(struct hcoll *h, const void *sendbuf, struct hook_array sendcounts, struct hook_array displs,
		    MPI_Datatype sendtype, void *recvbuf, int64_t recvcount, MPI_Datatype recvtype, int root)
{
	struct prog_coll_desc *d = &h->cfg.desc;
	int rc = set_rooted(h, root, &h->out, recvbuf, recvcount, recvtype);

	if (rc || !is_root(h))
		return rc;
	rc = hside_set_parts(&h->in, sendbuf, d->size, sendcounts, displs, sendtype, NULL);
	if (rc)
		return rc;
	use_parts(h, true);
	d->bytes = h->in.len[d->rank];
	rc = check_part(h, recvbuf, recvcount, recvtype, sendbuf, sendcounts, displs, sendtype);
	return rc ? rc : scatter_own(h, recvbuf, recvcount, recvtype);
}

static int alltoall(struct hcoll *h, const void *sendbuf, int64_t sendcount, MPI_Datatype sendtype, void *recvbuf,
		    int64_t recvcount, MPI_Datatype recvtype)
{
	struct prog_coll_desc *d = &h->cfg.desc;
	int rc = set_blocks(&h->out, recvbuf, recvcount, recvtype, d->size);

	d->bytes = h->out.bytes / d->size;
	if (!rc && sendtype == recvtype && sendcount == recvcount && sendcount)
		rc = check_alias(sendbuf, recvbuf);
	return rc ? rc : set_in(h, sendbuf, sendcount, sendtype, d->size);
}

/* MPI_Alltoallv with @sendtypes NULL; MPI_Alltoallw otherwise. */
static int alltoallvw(struct hcoll *h, const void *sendbuf, struct hook_array sendcounts, struct hook_array sdispls,
		      MPI_Datatype sendtype, const MPI_Datatype *sendtypes, void *recvbuf, struct hook_array recvcounts,
		      struct hook_array rdispls, MPI_Datatype recvtype, const MPI_Datatype *recvtypes)
{
	struct prog_coll_desc *d = &h->cfg.desc;
	int rc = hside_set_parts(&h->out, recvbuf, d->size, recvcounts, rdispls, recvtype, recvtypes);

	if (rc)
		return rc;
	use_parts(h, false);
	if (sendbuf == MPI_IN_PLACE) {
		d->in_place = h->fill_out = true;
		return MPI_SUCCESS;
	}
	if (sendtype == recvtype && sendtypes == recvtypes && !memcmp(&sendcounts, &recvcounts, sizeof(sendcounts)))
		rc = check_alias(sendbuf, recvbuf);
	rc = rc ? rc : hside_set_parts(&h->in, sendbuf, d->size, sendcounts, sdispls, sendtype, sendtypes);
	if (rc)
		return rc;
	use_parts(h, true);
	d->bytes = h->in.len[d->rank];
	check_length(h, h->out.len[d->rank]);
	return MPI_SUCCESS;
}

static int alltoallv(struct hcoll *h, const void *sendbuf, struct hook_array sendcounts, struct hook_array sdispls,
		     MPI_Datatype sendtype, void *recvbuf, struct hook_array recvcounts, struct hook_array rdispls,
		     MPI_Datatype recvtype)
{
	return alltoallvw(h, sendbuf, sendcounts, sdispls, sendtype, NULL, recvbuf, recvcounts, rdispls, recvtype, NULL);
}

static int alltoallw(struct hcoll *h, const void *sendbuf, struct hook_array sendcounts, struct hook_array sdispls,
		     const MPI_Datatype *sendtypes, void *recvbuf, struct hook_array recvcounts, struct hook_array rdispls,
		     const MPI_Datatype *recvtypes)
{
	if (!recvtypes || (!sendtypes && sendbuf != MPI_IN_PLACE))
		return MPI_ERR_ARG;
	return alltoallvw(h, sendbuf, sendcounts, sdispls, MPI_DATATYPE_NULL, sendtypes, recvbuf, recvcounts, rdispls,
			  MPI_DATATYPE_NULL, recvtypes);
}

/* ---- reductions ---------------------------------------------------------------------------------- */

static int set_op(struct hcoll *h, MPI_Datatype type, MPI_Op op)
{
	const struct htype *t;

	if (type == MPI_DATATYPE_NULL)
		return MPI_ERR_TYPE;
	if (htype_get(type, &t) || !t->predefined || !reduce_type(t->basic))
		return HOOK_LEAVE;
	h->cfg.op = hop_get(op);
	/* no data but for the library to unpack */
	if (type == MPI_PACKED)
		return HOOK_LEAVE;
	/* no integer to MPICH */
	if (!IS_OMPI && type == MPI_BYTE && (h->cfg.op < PROG_OP_BAND || h->cfg.op > PROG_OP_BXOR))
		return HOOK_LEAVE;
	h->cfg.type = t->basic;
	h->odd = type == MPI_OFFSET;
	if (h->cfg.op == PROG_OP_REPLACE || h->cfg.op == PROG_OP_NO_OP || !reduce_valid(h->cfg.op, h->cfg.type) ||
	    t->inert & 1u << h->cfg.op)
		return HOOK_LEAVE;
	h->cfg.desc.elem = reduce_type(t->basic)->extent;
	return MPI_SUCCESS;
}

/*
 * Elements as they stand in memory: @bytes of them are one block, also where a type has gaps.  Padding goes with the rest.
 */
static int set_elements(struct hcoll_side *s, const void *buf, uint64_t count, uint32_t elem)
{
	if (count > PROG_DTYPE_MAX_BYTES / elem)
		return MPI_ERR_COUNT;
	s->one.at = (uintptr_t)buf;
	s->one.bytes = s->bytes = count * elem;
	s->n = 1;
	s->part = &s->one;
	return MPI_SUCCESS;
}

/* Elements of its result that a member gets. */
static uint64_t elements_got(const struct hcoll *h)
{
	const struct prog_coll_desc *d = &h->cfg.desc;

	if (d->kind == PROG_COLL_REDUCE)
		return is_root(h) ? d->count : 0;
	if (d->kind == PROG_COLL_REDUCE_SCATTER && !d->in_place)
		return d->counts[d->rank];
	return d->kind == PROG_COLL_EXSCAN && !d->rank && !d->in_place ? 0 : d->count;
}

static int check_elements(const struct hcoll *h, const void *sendbuf, const void *recvbuf)
{
	if (!h->cfg.desc.in_place && h->cfg.desc.count && hcoll_check_buf(sendbuf, sendbuf))
		return MPI_ERR_BUFFER;
	/* also Open MPI says so here */
	return elements_got(h) && hcoll_check_buf(recvbuf, recvbuf) ? MPI_ERR_BUFFER : MPI_SUCCESS;
}

static int reduction(struct hcoll *h, const void *sendbuf, void *recvbuf, int64_t count, MPI_Datatype type, MPI_Op op)
{
	struct prog_coll_desc *d = &h->cfg.desc;
	int rc = count < 0 ? MPI_ERR_COUNT : set_op(h, type, op);

	if (rc)
		return rc;
	d->count = (uint64_t)count;
	d->in_place = sendbuf == MPI_IN_PLACE;
	rc = check_elements(h, sendbuf, recvbuf);
	if (rc)
		return rc;
	/* only the root of a reduce has both */
	if (!d->in_place && d->count && (d->kind != PROG_COLL_REDUCE || is_root(h)))
		rc = check_alias(sendbuf, recvbuf);
	if (!rc && !d->in_place)
		rc = set_elements(&h->in, sendbuf, d->count, d->elem);
	return rc ? rc : set_elements(&h->out, recvbuf, d->count, d->elem);
}

static int reduce(struct hcoll *h, const void *sendbuf, void *recvbuf, int64_t count, MPI_Datatype type, MPI_Op op, int root)
{
	int rc = set_root(h, root);

	if (!rc && !is_root(h) && sendbuf == MPI_IN_PLACE)
		return MPI_ERR_ARG;
	return rc ? rc : reduction(h, sendbuf, recvbuf, count, type, op);
}

static int reduce_scatter_parts(struct hcoll *h, const void *sendbuf, void *recvbuf, struct hook_array recvcounts, int64_t same,
				MPI_Datatype type, MPI_Op op)
{
	struct prog_coll_desc *d = &h->cfg.desc;
	int64_t all = 0;

	h->counts = hcoll_mem(d->size * sizeof(*h->counts));
	d->counts = h->counts;
	for (uint32_t i = 0; i < d->size; i++) {
		int64_t n = hook_array_given(recvcounts) ? hook_array_at(recvcounts, i) : same;

		if (n < 0 || __builtin_add_overflow(all, n, &all))
			return MPI_ERR_COUNT;
		h->counts[i] = (uint64_t)n;
	}
	return reduction(h, sendbuf, recvbuf, all, type, op);
}

static int reduce_scatter(struct hcoll *h, const void *sendbuf, void *recvbuf, struct hook_array recvcounts, MPI_Datatype type,
			  MPI_Op op)
{
	return hook_array_given(recvcounts) ? reduce_scatter_parts(h, sendbuf, recvbuf, recvcounts, 0, type, op) : MPI_ERR_ARG;
}

static int reduce_scatter_block(struct hcoll *h, const void *sendbuf, void *recvbuf, int64_t count, MPI_Datatype type, MPI_Op op)
{
	return reduce_scatter_parts(h, sendbuf, recvbuf, none, count, type, op);
}

/* ---- neighbours ---------------------------------------------------------------------------------- */

static int set_topo(struct hcoll *h)
{
	struct prog_coll_desc *d = &h->cfg.desc;
	struct hcomm *c = h->c;
	struct hcoll_topo *t;
	bool ok;

	hooks_lock(&c->lock);
	t = htopo_get(c);
	ok = htopo_neighbours(c, t);
	hooks_unlock(&c->lock);
	if (!ok)
		return HOOK_LEAVE;
	d->nin = t->nin;
	d->nout = t->nout;
	d->in_peer = t->in_peer;
	d->out_peer = t->out_peer;
	d->in_tag = t->in_tag;
	d->out_tag = t->out_tag;
	d->order = t->order;
	return MPI_SUCCESS;
}

/* @n blocks of one length, each at a multiple of @step. */
static int same_parts(struct hcoll_side *s, uint32_t n, uint64_t bytes, uint64_t step)
{
	s->mem = hcoll_mem(2 * ((size_t)n + 1) * sizeof(*s->off));
	s->off = s->mem;
	s->len = s->off + n + 1;
	for (uint32_t i = 0; i < n; i++) {
		s->off[i] = i * step;
		s->len[i] = bytes;
	}
	/* from where the block, or what was packed, begins */
	if (!s->scattered)
		for (uint32_t i = 0; i < n; i++)
			s->off[i] += s->one.at + (uintptr_t)s->one.first;
	return MPI_SUCCESS;
}

/* One block to all neighbours, or one to each. */
static int neighbor_in(struct hcoll *h, const void *sendbuf, int64_t sendcount, MPI_Datatype sendtype, bool each)
{
	uint32_t n = h->cfg.desc.nin;
	uint64_t bytes;
	int rc = set_blocks(&h->in, sendbuf, sendcount, sendtype, each ? n : 1);

	if (rc)
		return rc;
	bytes = each && n ? h->in.bytes / n : h->in.bytes;
	rc = same_parts(&h->in, n, bytes, each ? bytes : 0);
	use_parts(h, true);
	return rc;
}

static int neighbor_out(struct hcoll *h, void *recvbuf, int64_t recvcount, MPI_Datatype recvtype)
{
	uint32_t n = h->cfg.desc.nout;
	int rc = set_blocks(&h->out, recvbuf, recvcount, recvtype, n);

	if (rc)
		return rc;
	rc = same_parts(&h->out, n, n ? h->out.bytes / n : 0, n ? h->out.bytes / n : 0);
	use_parts(h, false);
	/* of neighbours that are nobody nothing comes */
	h->fill_out = true;
	return rc;
}

static int neighbor_parts(struct hcoll *h, bool in, const void *buf, struct hook_array counts, struct hook_array displs,
			  MPI_Datatype type, const MPI_Datatype *types)
{
	const struct prog_coll_desc *d = &h->cfg.desc;
	int rc = hside_set_parts(in ? &h->in : &h->out, buf, in ? d->nin : d->nout, counts, displs, type, types);

	use_parts(h, in);
	h->fill_out = true;
	return rc;
}

static int neighbor_allgather(struct hcoll *h, const void *sendbuf, int64_t sendcount, MPI_Datatype sendtype, void *recvbuf,
			      int64_t recvcount, MPI_Datatype recvtype)
{
	int rc = set_topo(h);

	rc = rc ? rc : neighbor_in(h, sendbuf, sendcount, sendtype, false);
	return rc ? rc : neighbor_out(h, recvbuf, recvcount, recvtype);
}

static int neighbor_allgatherv(struct hcoll *h, const void *sendbuf, int64_t sendcount, MPI_Datatype sendtype, void *recvbuf,
			       struct hook_array recvcounts, struct hook_array displs, MPI_Datatype recvtype)
{
	int rc = set_topo(h);

	rc = rc ? rc : neighbor_in(h, sendbuf, sendcount, sendtype, false);
	return rc ? rc : neighbor_parts(h, false, recvbuf, recvcounts, displs, recvtype, NULL);
}

static int neighbor_alltoall(struct hcoll *h, const void *sendbuf, int64_t sendcount, MPI_Datatype sendtype, void *recvbuf,
			     int64_t recvcount, MPI_Datatype recvtype)
{
	int rc = set_topo(h);

	rc = rc ? rc : neighbor_in(h, sendbuf, sendcount, sendtype, true);
	return rc ? rc : neighbor_out(h, recvbuf, recvcount, recvtype);
}

static int neighbor_alltoallv(struct hcoll *h, const void *sendbuf, struct hook_array sendcounts, struct hook_array sdispls,
			      MPI_Datatype sendtype, void *recvbuf, struct hook_array recvcounts, struct hook_array rdispls,
			      MPI_Datatype recvtype)
{
	int rc = set_topo(h);

	rc = rc ? rc : neighbor_parts(h, true, sendbuf, sendcounts, sdispls, sendtype, NULL);
	return rc ? rc : neighbor_parts(h, false, recvbuf, recvcounts, rdispls, recvtype, NULL);
}

static int neighbor_alltoallw(struct hcoll *h, const void *sendbuf, struct hook_array sendcounts, const MPI_Aint *sdispls,
			      const MPI_Datatype *sendtypes, void *recvbuf, struct hook_array recvcounts, const MPI_Aint *rdispls,
			      const MPI_Datatype *recvtypes)
{
	struct hook_array sd = { .a = sdispls }, rd = { .a = rdispls };
	int rc = set_topo(h);

	if (!rc && ((!sendtypes && h->cfg.desc.nin) || (!recvtypes && h->cfg.desc.nout)))
		return MPI_ERR_ARG;
	rc = rc ? rc : neighbor_parts(h, true, sendbuf, sendcounts, sd, MPI_BYTE, sendtypes);
	return rc ? rc : neighbor_parts(h, false, recvbuf, recvcounts, rd, MPI_BYTE, recvtypes);
}

/* ---- the hooks ------------------------------------------------------------------------------------ */

int hook_ibarrier(struct hcomm *c, MPI_Request *req)
{
	return hcoll_go(c, hcoll_new(c, PROG_COLL_BARRIER), MPI_SUCCESS, false, req, __func__);
}

int hook_barrier_init(struct hcomm *c, MPI_Info info, MPI_Request *req)
{
	return hcoll_go(c, hcoll_new(c, PROG_COLL_BARRIER), MPI_SUCCESS, true, req, __func__);
}

#define LIST(...) __VA_ARGS__

/* Both calls of one collective. */
#define COLL(name, set, KIND, params, args)							\
	int hook_i##name(params, struct hcomm *c, MPI_Request *req)				\
	{											\
		struct hcoll *h = hcoll_new(c, PROG_COLL_##KIND);				\
												\
		return hcoll_go(c, h, set(h, args), false, req, __func__);			\
	}											\
	int hook_##name##_init(params, struct hcomm *c, MPI_Info info, MPI_Request *req)	\
	{											\
		struct hcoll *h = hcoll_new(c, PROG_COLL_##KIND);				\
												\
		return hcoll_go(c, h, set(h, args), true, req, __func__);			\
	}

#define FROM		const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype
#define TO		void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype
#define FROM_PARTS	const void *sendbuf, struct hook_array sendcounts, struct hook_array sdispls, MPI_Datatype sendtype
#define TO_PARTS	void *recvbuf, struct hook_array recvcounts, struct hook_array rdispls, MPI_Datatype recvtype
#define FROM_TO_W(displs)									\
	const void *sendbuf, struct hook_array sendcounts, displs sdispls, const MPI_Datatype *sendtypes,	\
	void *recvbuf, struct hook_array recvcounts, displs rdispls, const MPI_Datatype *recvtypes
#define BOTH		const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op
#define GIVE		sendbuf, sendcount, sendtype
#define TAKE		recvbuf, recvcount, recvtype
#define GIVE_PARTS	sendbuf, sendcounts, sdispls, sendtype
#define TAKE_PARTS	recvbuf, recvcounts, rdispls, recvtype
#define GIVE_TAKE_W	sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes
#define GIVE_TAKE	sendbuf, recvbuf, count, type, op

COLL(bcast, bcast, BCAST, LIST(void *buf, MPI_Count count, MPI_Datatype type, int root), LIST(buf, count, type, root))
COLL(gather, gather, GATHER, LIST(FROM, TO, int root), LIST(GIVE, TAKE, root))
COLL(gatherv, gatherv, GATHERV, LIST(FROM, TO_PARTS, int root), LIST(GIVE, TAKE_PARTS, root))
COLL(scatter, scatter, SCATTER, LIST(FROM, TO, int root), LIST(GIVE, TAKE, root))
COLL(scatterv, scatterv, SCATTERV, LIST(FROM_PARTS, TO, int root), LIST(GIVE_PARTS, TAKE, root))
COLL(allgather, allgather, ALLGATHER, LIST(FROM, TO), LIST(GIVE, TAKE))
COLL(allgatherv, allgatherv, ALLGATHERV, LIST(FROM, TO_PARTS), LIST(GIVE, TAKE_PARTS))
COLL(alltoall, alltoall, ALLTOALL, LIST(FROM, TO), LIST(GIVE, TAKE))
COLL(alltoallv, alltoallv, ALLTOALLV, LIST(FROM_PARTS, TO_PARTS), LIST(GIVE_PARTS, TAKE_PARTS))
COLL(alltoallw, alltoallw, ALLTOALLV, LIST(FROM_TO_W(struct hook_array)), LIST(GIVE_TAKE_W))
COLL(reduce, reduce, REDUCE, LIST(BOTH, int root), LIST(GIVE_TAKE, root))
COLL(allreduce, reduction, ALLREDUCE, LIST(BOTH), LIST(GIVE_TAKE))
COLL(reduce_scatter, reduce_scatter, REDUCE_SCATTER,
     LIST(const void *sendbuf, void *recvbuf, struct hook_array recvcounts, MPI_Datatype type, MPI_Op op),
     LIST(sendbuf, recvbuf, recvcounts, type, op))
COLL(reduce_scatter_block, reduce_scatter_block, REDUCE_SCATTER, LIST(BOTH), LIST(GIVE_TAKE))
COLL(scan, reduction, SCAN, LIST(BOTH), LIST(GIVE_TAKE))
COLL(exscan, reduction, EXSCAN, LIST(BOTH), LIST(GIVE_TAKE))
COLL(neighbor_allgather, neighbor_allgather, NEIGHBOR, LIST(FROM, TO), LIST(GIVE, TAKE))
COLL(neighbor_allgatherv, neighbor_allgatherv, NEIGHBOR, LIST(FROM, TO_PARTS), LIST(GIVE, TAKE_PARTS))
COLL(neighbor_alltoall, neighbor_alltoall, NEIGHBOR, LIST(FROM, TO), LIST(GIVE, TAKE))
COLL(neighbor_alltoallv, neighbor_alltoallv, NEIGHBOR, LIST(FROM_PARTS, TO_PARTS), LIST(GIVE_PARTS, TAKE_PARTS))
COLL(neighbor_alltoallw, neighbor_alltoallw, NEIGHBOR, LIST(FROM_TO_W(const MPI_Aint *)), LIST(GIVE_TAKE_W))

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Communication calls: arguments and epoch are checked here, then the operation is
 * libprogclient's.  Checks come in the order count, type, rank, displacement, operation,
 * epoch, range; an erroneous call has no effect.
 */
#include <libprogbase/apply.h>

#include "hooks_gen.h"

/* One side's (address or displacement, count, type) as libprogclient takes it. */
struct side {
	const struct htype *t;
	const struct dtype *type;
	uint64_t count;
	uint64_t bytes;		/* packed */
	int64_t shift;		/* to be added to address or displacement */
};

static inline int side_get(struct side *s, MPI_Count count, MPI_Datatype type)
{
	int rc;

	if (unlikely(count < 0))
		return MPI_ERR_COUNT;
	rc = htype_get(type, &s->t);
	if (unlikely(rc))
		return rc;
	if (unlikely(__builtin_mul_overflow((uint64_t)count, s->t->size, &s->bytes) ||
		     s->bytes > PROG_DTYPE_MAX_BYTES))
		return MPI_ERR_COUNT;
	if (likely(s->t->contig)) {
		s->type = NULL;
		s->count = s->bytes;
		s->shift = s->t->first;
	} else {
		s->type = s->t->dt;
		s->count = (uint64_t)count;
		s->shift = 0;
	}
	return MPI_SUCCESS;
}

static inline struct prog_buf buf_of(const void *addr, const struct side *s)
{
	return (struct prog_buf){
		.addr = (void *)((uintptr_t)addr + (uintptr_t)s->shift),
		.type = s->type,
		.count = s->count,
	};
}

static inline int dst_of(const struct hwin *w, int rank, MPI_Aint disp, const struct side *s,
			 struct prog_dst *dst)
{
	int64_t unit = likely(w->unit) ? w->unit : w->units[rank], bytes;

	if (w->dynamic) {		/* displacements are addresses, all 64 bits */
		dst->disp = (uint64_t)disp + (uint64_t)s->shift;
	} else {
		if (unlikely(__builtin_mul_overflow((int64_t)disp, unit, &bytes) ||
			     __builtin_add_overflow(bytes, s->shift, &bytes) || bytes < 0))
			return MPI_ERR_RMA_RANGE;
		dst->disp = (uint64_t)bytes;
	}
	dst->rank = (uint32_t)rank;
	dst->type = s->type;
	dst->count = s->count;
	return MPI_SUCCESS;
}

/* Rank, displacement and epoch, for a target that is not MPI_PROC_NULL. */
static inline int target_check(struct hwin *w, int rank, MPI_Aint disp)
{
	if (unlikely((unsigned int)rank >= w->nranks))
		return MPI_ERR_RANK;
	if (unlikely(disp < 0 && !w->dynamic))
		return MPI_ERR_DISP;
	return MPI_SUCCESS;
}

static int finish(int rc)
{
	return rc < 0 ? herror_class(rc) : MPI_SUCCESS;
}

typedef int (*move_fn)(struct prog_win *, const struct prog_buf *, const struct prog_dst *,
		       unsigned int, uint64_t *);

static inline int move(struct hwin *w, move_fn fn, const void *origin, MPI_Count ocount,
		       MPI_Datatype otype, int rank, MPI_Aint disp, MPI_Count tcount,
		       MPI_Datatype ttype, bool request, uint64_t *seq)
{
	struct side o, t;
	struct prog_buf buf;
	struct prog_dst dst;
	int rc;

	*seq = 0;
	rc = side_get(&o, ocount, otype);
	if (unlikely(rc))
		return rc;
	rc = side_get(&t, tcount, ttype);
	if (unlikely(rc))
		return rc;
	if (unlikely(rank == MPI_PROC_NULL))
		return MPI_SUCCESS;
	rc = target_check(w, rank, disp);
	if (unlikely(rc))
		return rc;
	if (unlikely(request && !epoch_passive(w, (uint32_t)rank)))
		return MPI_ERR_RMA_SYNC;
	rc = epoch_target(w, (uint32_t)rank);
	if (unlikely(rc))
		return rc;
	if (unlikely(o.bytes != t.bytes))	/* type signatures differ */
		return MPI_ERR_TYPE;
	if (unlikely(!o.bytes))
		return MPI_SUCCESS;
	rc = dst_of(w, rank, disp, &t, &dst);
	if (unlikely(rc))
		return rc;
	buf = buf_of(origin, &o);
	return finish(fn(w->pw, &buf, &dst, w->opflags, seq));
}

/*
 * Accumulates work on elements: contiguous types without gaps go as bytes, pairs with a gap keep
 * their type.
 */
static inline void side_elements(struct side *s, MPI_Count count)
{
	if (unlikely(s->t->gap)) {
		s->type = s->t->dt;
		s->count = (uint64_t)count;
		s->shift = 0;
	}
}

struct acc {
	const void *origin;
	MPI_Count ocount;
	MPI_Datatype otype;
	bool fetch;
	void *result;
	MPI_Count rcount;
	MPI_Datatype rtype;
	int rank;
	MPI_Aint disp;
	MPI_Count tcount;
	MPI_Datatype ttype;
	MPI_Op op;
	bool request;
};

static int accumulate(struct hwin *w, const struct acc *a, uint64_t *seq)
{
	unsigned int op = hop_get(a->op);
	bool no_op = op == PROG_OP_NO_OP;
	struct side o, t, r = { 0 };
	struct prog_buf buf, res;
	struct prog_dst dst;
	int rc;

	*seq = 0;
	if (unlikely(!op || (no_op && !a->fetch)))
		return MPI_ERR_OP;
	rc = side_get(&t, a->tcount, a->ttype);
	if (unlikely(rc))
		return rc;
	if (likely(!no_op)) {		/* the origin arguments are ignored for MPI_NO_OP */
		rc = side_get(&o, a->ocount, a->otype);
		if (unlikely(rc))
			return rc;
		side_elements(&o, a->ocount);
	}
	if (a->fetch) {
		rc = side_get(&r, a->rcount, a->rtype);
		if (unlikely(rc))
			return rc;
		side_elements(&r, a->rcount);
	}
	side_elements(&t, a->tcount);
	if (unlikely(a->rank == MPI_PROC_NULL))
		return MPI_SUCCESS;
	rc = target_check(w, a->rank, a->disp);
	if (unlikely(rc))
		return rc;
	if (unlikely(a->request && !epoch_passive(w, (uint32_t)a->rank)))
		return MPI_ERR_RMA_SYNC;
	rc = epoch_target(w, (uint32_t)a->rank);
	if (unlikely(rc))
		return rc;
	if (unlikely((!no_op && o.bytes != t.bytes) || (a->fetch && r.bytes != t.bytes)))
		return MPI_ERR_TYPE;
	if (unlikely(!t.bytes))
		return MPI_SUCCESS;
	if (unlikely(t.t->basic == PROG_TYPE_MIXED || (!no_op && o.t->basic != t.t->basic) ||
		     (a->fetch && r.t->basic != t.t->basic)))
		return MPI_ERR_TYPE;
	if (unlikely(!reduce_valid(op, t.t->basic)))
		return MPI_ERR_OP;
	rc = dst_of(w, a->rank, a->disp, &t, &dst);
	if (unlikely(rc))
		return rc;
	if (a->fetch)
		res = buf_of(a->result, &r);
	/* with MPI_NO_OP nothing is read from the origin; its shape is the result's */
	buf = likely(!no_op) ? buf_of(a->origin, &o) : res;
	return finish(prog_accumulate(w->pw, &buf, a->fetch ? &res : NULL, &dst, (uint8_t)op,
				      t.t->basic, w->opflags, seq));
}

int hook_put(struct hwin *w, const void *origin, MPI_Count origin_count, MPI_Datatype origin_type,
	     int rank, MPI_Aint disp, MPI_Count target_count, MPI_Datatype target_type)
{
	uint64_t seq;

	return hwin_error(w, move(w, prog_put, origin, origin_count, origin_type, rank, disp,
				  target_count, target_type, false, &seq));
}

int hook_get(struct hwin *w, void *origin, MPI_Count origin_count, MPI_Datatype origin_type,
	     int rank, MPI_Aint disp, MPI_Count target_count, MPI_Datatype target_type)
{
	uint64_t seq;

	return hwin_error(w, move(w, prog_get, origin, origin_count, origin_type, rank, disp,
				  target_count, target_type, false, &seq));
}

int hook_accumulate(struct hwin *w, const void *origin, MPI_Count origin_count,
		    MPI_Datatype origin_type, int rank, MPI_Aint disp, MPI_Count target_count,
		    MPI_Datatype target_type, MPI_Op op)
{
	struct acc a = {
		.origin = origin, .ocount = origin_count, .otype = origin_type, .rank = rank,
		.disp = disp, .tcount = target_count, .ttype = target_type, .op = op,
	};
	uint64_t seq;

	return hwin_error(w, accumulate(w, &a, &seq));
}

int hook_get_accumulate(struct hwin *w, const void *origin, MPI_Count origin_count,
			MPI_Datatype origin_type, void *result, MPI_Count result_count,
			MPI_Datatype result_type, int rank, MPI_Aint disp, MPI_Count target_count,
			MPI_Datatype target_type, MPI_Op op)
{
	struct acc a = {
		.origin = origin, .ocount = origin_count, .otype = origin_type, .fetch = true,
		.result = result, .rcount = result_count, .rtype = result_type, .rank = rank,
		.disp = disp, .tcount = target_count, .ttype = target_type, .op = op,
	};
	uint64_t seq;

	return hwin_error(w, accumulate(w, &a, &seq));
}

int hook_fetch_and_op(struct hwin *w, const void *origin, void *result, MPI_Datatype type, int rank,
		      MPI_Aint disp, MPI_Op op)
{
	struct acc a = {
		.origin = origin, .ocount = 1, .otype = type, .fetch = true, .result = result,
		.rcount = 1, .rtype = type, .rank = rank, .disp = disp, .tcount = 1, .ttype = type,
		.op = op,
	};
	const struct htype *t;
	uint64_t seq;
	int rc;

	rc = htype_get(type, &t);
	if (likely(!rc) && unlikely(!t->predefined))
		rc = MPI_ERR_TYPE;
	if (likely(!rc))
		rc = accumulate(w, &a, &seq);
	return hwin_error(w, rc);
}

static int compare_and_swap(struct hwin *w, const void *origin, const void *compare, void *result,
			    MPI_Datatype type, int rank, MPI_Aint disp)
{
	struct side t;
	struct prog_dst dst;
	int rc;

	rc = side_get(&t, 1, type);
	if (unlikely(rc))
		return rc;
	if (unlikely(!t.t->predefined || !apply_cas_valid(t.t->basic)))
		return MPI_ERR_TYPE;
	if (unlikely(rank == MPI_PROC_NULL))
		return MPI_SUCCESS;
	rc = target_check(w, rank, disp);
	if (unlikely(rc))
		return rc;
	rc = epoch_target(w, (uint32_t)rank);
	if (unlikely(rc))
		return rc;
	rc = dst_of(w, rank, disp, &t, &dst);
	if (unlikely(rc))
		return rc;
	return finish(prog_compare_and_swap(w->pw, origin, compare, result, dst.rank, dst.disp,
					    t.t->basic, w->opflags));
}

int hook_compare_and_swap(struct hwin *w, const void *origin, const void *compare, void *result,
			  MPI_Datatype type, int rank, MPI_Aint disp)
{
	return hwin_error(w, compare_and_swap(w, origin, compare, result, type, rank, disp));
}

/* ---- with requests --------------------------------------------------------------------------- */

static int with_request(struct hwin *w, int rc, int rank, uint64_t seq, MPI_Request *request)
{
	if (rc)
		return hwin_error(w, rc);
	return hwin_error(w, seq ? hreq_new(w, (uint32_t)rank, seq, request) :
				   hreq_new_done(request));
}

int hook_rput(struct hwin *w, const void *origin, MPI_Count origin_count, MPI_Datatype origin_type,
	      int rank, MPI_Aint disp, MPI_Count target_count, MPI_Datatype target_type,
	      MPI_Request *request)
{
	uint64_t seq;
	int rc = move(w, prog_put, origin, origin_count, origin_type, rank, disp, target_count,
		      target_type, true, &seq);

	return with_request(w, rc, rank, seq, request);
}

int hook_rget(struct hwin *w, void *origin, MPI_Count origin_count, MPI_Datatype origin_type,
	      int rank, MPI_Aint disp, MPI_Count target_count, MPI_Datatype target_type,
	      MPI_Request *request)
{
	uint64_t seq;
	int rc = move(w, prog_get, origin, origin_count, origin_type, rank, disp, target_count,
		      target_type, true, &seq);

	return with_request(w, rc, rank, seq, request);
}

int hook_raccumulate(struct hwin *w, const void *origin, MPI_Count origin_count,
		     MPI_Datatype origin_type, int rank, MPI_Aint disp, MPI_Count target_count,
		     MPI_Datatype target_type, MPI_Op op, MPI_Request *request)
{
	struct acc a = {
		.origin = origin, .ocount = origin_count, .otype = origin_type, .rank = rank,
		.disp = disp, .tcount = target_count, .ttype = target_type, .op = op,
		.request = true,
	};
	uint64_t seq;
	int rc = accumulate(w, &a, &seq);

	return with_request(w, rc, rank, seq, request);
}

int hook_rget_accumulate(struct hwin *w, const void *origin, MPI_Count origin_count,
			 MPI_Datatype origin_type, void *result, MPI_Count result_count,
			 MPI_Datatype result_type, int rank, MPI_Aint disp, MPI_Count target_count,
			 MPI_Datatype target_type, MPI_Op op, MPI_Request *request)
{
	struct acc a = {
		.origin = origin, .ocount = origin_count, .otype = origin_type, .fetch = true,
		.result = result, .rcount = result_count, .rtype = result_type, .rank = rank,
		.disp = disp, .tcount = target_count, .ttype = target_type, .op = op,
		.request = true,
	};
	uint64_t seq;
	int rc = accumulate(w, &a, &seq);

	return with_request(w, rc, rank, seq, request);
}

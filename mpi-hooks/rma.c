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

/* Instead of a class: nothing is to be done, as there is nobody, or are no bytes. */
enum { MOVE_NOBODY = -1, MOVE_EMPTY = -2 };

static __attribute__((always_inline)) inline int
move_args(struct hwin *w, const void *origin, MPI_Count ocount, MPI_Datatype otype, int rank, MPI_Aint disp,
	  MPI_Count tcount, MPI_Datatype ttype, bool get, bool request, struct prog_buf *buf, struct prog_dst *dst)
{
	struct side o, t;
	int rc;

	rc = side_get(&o, ocount, otype);
	if (unlikely(rc))
		return rc;
	rc = side_get(&t, tcount, ttype);
	if (unlikely(rc))
		return rc;
	if (unlikely(rank == MPI_PROC_NULL))
		return MOVE_NOBODY;
	rc = target_check(w, rank, disp);
	if (unlikely(rc))
		return rc;
	if (unlikely(request && !epoch_passive(w, (uint32_t)rank)))
		return MPI_ERR_RMA_SYNC;
	rc = epoch_target(w, (uint32_t)rank);
	if (unlikely(rc))
		return rc;
	/* the libraries take that for nothing to do, whatever the other side has */
	if (unlikely(!o.bytes || !t.bytes))
		return MOVE_EMPTY;
	/* as with messages: where they go there may be room for more */
	if (unlikely(o.bytes != t.bytes) && (o.bytes > t.bytes) != get)
		return MPI_ERR_TYPE;
	rc = dst_of(w, rank, disp, &t, dst);
	if (unlikely(rc))
		return rc;
	*buf = buf_of(origin, &o);
	return MPI_SUCCESS;
}

static inline int move(struct hwin *w, move_fn fn, const void *origin, MPI_Count ocount,
		       MPI_Datatype otype, int rank, MPI_Aint disp, MPI_Count tcount,
		       MPI_Datatype ttype, bool request, uint64_t *seq)
{
	struct prog_buf buf;
	struct prog_dst dst;
	int rc;

	*seq = 0;
	rc = move_args(w, origin, ocount, otype, rank, disp, tcount, ttype, fn == prog_get, request, &buf, &dst);
	if (unlikely(rc))
		return rc < 0 ? MPI_SUCCESS : rc;
	/* a number is for requests: who does not ask lets the operation be cut */
	return finish(fn(w->pw, &buf, &dst, w->opflags, request ? seq : NULL));
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
	int tag;
};

/*
 * Logical and bitwise operations: no library has all of them for all types, and each some that the standard does not have.
 * Says how the elements of @t are seen by @op, as a basic type; PROG_TYPE_MIXED if the library refuses.
 */
static unsigned int basic_for(const struct htype *t, unsigned int op)
{
	unsigned int basic = t->basic;
	bool logical = op >= PROG_OP_LAND && op <= PROG_OP_LXOR, bits = op >= PROG_OP_BAND && op <= PROG_OP_BXOR;

	/* Open MPI has neither logical operations of reals, nor others of logicals */
	if (IS_OMPI && ((logical && basic >= PROG_TYPE_F32 && basic <= PROG_TYPE_LDOUBLE) ||
			(!logical && basic >= PROG_TYPE_L8 && basic <= PROG_TYPE_L64 && op < PROG_OP_REPLACE)))
		return PROG_TYPE_MIXED;
	if (!IS_OMPI && basic == PROG_TYPE_F128 && (logical || bits))	/* its bytes, one by one */
		basic = PROG_TYPE_U8;
	return reduce_valid(op, basic) ? basic : PROG_TYPE_MIXED;
}

/* A notification alone. */
static int notify(struct hwin *w, int rank, int tag)
{
	const struct prog_buf none = { 0 };
	const struct prog_dst dst = { .rank = (uint32_t)rank };

	return finish(prog_put_notify(w->pw, &none, &dst, w->opflags, tag, NULL));
}

static __attribute__((always_inline)) inline int acc_any(struct hwin *w, const struct acc *a, bool notified, uint64_t *seq)
{
	unsigned int op = hop_get(a->op), basic;
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
	/* as in move_args(); what fetches, and has nothing to do it with, fetches */
	if (unlikely(!t.bytes || (a->fetch ? !r.bytes : !o.bytes)))
		return notified ? notify(w, a->rank, a->tag) : MPI_SUCCESS;
	if (unlikely(!no_op && !o.bytes)) {
		no_op = true;
		op = PROG_OP_NO_OP;
	}
	if (unlikely((!no_op && (a->fetch ? o.bytes != t.bytes : o.bytes > t.bytes)) || (a->fetch && r.bytes != t.bytes)))
		return MPI_ERR_TYPE;
	if (unlikely(t.t->basic == PROG_TYPE_MIXED || (!no_op && o.t->basic != t.t->basic) ||
		     (a->fetch && r.t->basic != t.t->basic)))
		return MPI_ERR_TYPE;
	if (unlikely(t.t->inert >> op & 1)) {
		op = PROG_OP_NO_OP;
		basic = t.t->basic;
	} else {
		basic = basic_for(t.t, op);
		if (unlikely(basic == PROG_TYPE_MIXED || (t.type && basic != t.t->basic)))
			return MPI_ERR_OP;
	}
	rc = dst_of(w, a->rank, a->disp, &t, &dst);
	if (unlikely(rc))
		return rc;
	if (a->fetch)
		res = buf_of(a->result, &r);
	/* with MPI_NO_OP nothing is read from the origin; its shape is the result's */
	buf = likely(!no_op) ? buf_of(a->origin, &o) : res;
	if (notified)
		return finish(prog_accumulate_notify(w->pw, &buf, a->fetch ? &res : NULL, &dst, (uint8_t)op, (uint8_t)basic,
						     w->opflags, a->tag, seq));
	return finish(prog_accumulate(w->pw, &buf, a->fetch ? &res : NULL, &dst, (uint8_t)op,
				      (uint8_t)basic, w->opflags, seq));
}

/* Not inlined: the usual accumulate needs none of its registers and stack. */
__attribute__((noinline))
static int accumulate(struct hwin *w, const struct acc *a, uint64_t *seq)
{
	return acc_any(w, a, false, seq);
}

/*
 * The usual accumulate: the same basic type and count on all sides, and nothing wrong with the
 * arguments.  Type and operation are looked up when they change.  False: it is
 * another one, and nothing was done; accumulate() does it, or finds the error.
 */
static __attribute__((always_inline)) inline bool
acc_plain(struct hwin *w, const void *origin, void *result, MPI_Count count, MPI_Datatype type,
	  int rank, MPI_Aint disp, MPI_Op op, int *rc)
{
	static _Thread_local struct {
		MPI_Datatype type;
		MPI_Op op;
		unsigned int generation;	/* as in htype_last */
		const struct dtype *dt;		/* of elements with a gap, which are what is counted; else bytes are */
		uint8_t unit, basic, op_no;
	} last;
	unsigned int generation = atomic_load_explicit(&htype_generation, memory_order_acquire);
	const struct htype *t;
	struct prog_buf buf, res;
	struct prog_dst dst;
	int64_t bytes;
	uint64_t seq;

	if (unlikely(last.type != type || last.op != op || last.generation != generation)) {
		unsigned int op_no = hop_get(op);

		if (htype_get(type, &t) || op_no == PROG_OP_NO_OP || t->inert >> op_no & 1 || basic_for(t, op_no) != t->basic ||
		    !(t->gap ? prog_dtype_is_elements(t->dt, t->basic) : t->contig && !t->first && t->size == t->elem))
			return false;
		last.type = type;
		last.op = op;
		last.generation = generation;
		last.dt = t->gap ? t->dt : NULL;
		last.unit = t->gap ? 1 : t->elem;
		last.basic = t->basic;
		last.op_no = (uint8_t)op_no;
	}
	if (unlikely((uint64_t)count - 1 >= INT32_MAX || (unsigned int)rank >= w->nranks ||
		     disp < 0 || !w->unit || w->dynamic ||
		     __builtin_mul_overflow((int64_t)disp, (int64_t)w->unit, &bytes)))
		return false;
	*rc = epoch_target(w, (uint32_t)rank);
	if (unlikely(*rc))
		return true;
	buf = (struct prog_buf){
		.addr = (void *)(uintptr_t)origin, .type = last.dt, .count = (uint64_t)count * last.unit,
	};
	dst = (struct prog_dst){
		.rank = (uint32_t)rank, .disp = (uint64_t)bytes, .type = last.dt, .count = buf.count,
	};
	if (result)
		res = (struct prog_buf){ .addr = result, .type = last.dt, .count = buf.count };
	*rc = finish(prog_accumulate(w->pw, &buf, result ? &res : NULL, &dst, last.op_no, last.basic,
				     w->opflags, &seq));
	return true;
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
	uint64_t seq;
	int rc;

	if (unlikely(origin_type != target_type || origin_count != target_count ||
		     !acc_plain(w, origin, NULL, target_count, target_type, rank, disp, op, &rc)))
		rc = accumulate(w, &(struct acc){
			.origin = origin, .ocount = origin_count, .otype = origin_type, .rank = rank,
			.disp = disp, .tcount = target_count, .ttype = target_type, .op = op,
		}, &seq);
	return likely(!rc) ? MPI_SUCCESS : hwin_error(w, rc);
}

int hook_get_accumulate(struct hwin *w, const void *origin, MPI_Count origin_count,
			MPI_Datatype origin_type, void *result, MPI_Count result_count,
			MPI_Datatype result_type, int rank, MPI_Aint disp, MPI_Count target_count,
			MPI_Datatype target_type, MPI_Op op)
{
	uint64_t seq;
	int rc;

	if (unlikely(origin_type != target_type || origin_count != target_count ||
		     result_type != target_type || result_count != target_count || !result ||
		     !acc_plain(w, origin, result, target_count, target_type, rank, disp, op, &rc)))
		rc = accumulate(w, &(struct acc){
			.origin = origin, .ocount = origin_count, .otype = origin_type,
			.fetch = true, .result = result, .rcount = result_count,
			.rtype = result_type, .rank = rank, .disp = disp, .tcount = target_count,
			.ttype = target_type, .op = op,
		}, &seq);
	return likely(!rc) ? MPI_SUCCESS : hwin_error(w, rc);
}

/* What calls about one element take: predefined types, also unnamed ones (MPI_Type_create_f90_real), and their duplicates. */
static inline bool is_element(const struct htype *t)
{
	return likely(t->predefined) ||
	       (t->basic != PROG_TYPE_MIXED && t->contig && !t->first && t->size == t->elem);
}

/*
 * As which type elements are compared, PROG_TYPE_MIXED if they may not be.  Open MPI compares any.  (Of pairs with a gap it
 * takes as many bytes as they have without, from the start: that has no meaning for MPI_SHORT_INT, and is not done.)
 */
static inline unsigned int compared_as(const struct htype *t)
{
	unsigned int basic = t->basic;

	if (IS_OMPI && basic >= PROG_TYPE_FLOAT_INT && !t->gap)	/* a pair */
		basic = t->elem == 8 ? PROG_TYPE_U64 : PROG_TYPE_I128;
	if (!IS_OMPI && (basic == PROG_TYPE_WCHAR || basic > PROG_TYPE_L64))
		return PROG_TYPE_MIXED;
	return apply_cas_valid(basic) && is_element(t) ? basic : PROG_TYPE_MIXED;
}

int hook_fetch_and_op(struct hwin *w, const void *origin, void *result, MPI_Datatype type, int rank,
		      MPI_Aint disp, MPI_Op op)
{
	const struct htype *t;
	uint64_t seq;
	int rc;

	if (likely(result && acc_plain(w, origin, result, 1, type, rank, disp, op, &rc)))
		return likely(!rc) ? MPI_SUCCESS : hwin_error(w, rc);
	rc = htype_get(type, &t);
	if (likely(!rc) && unlikely(!is_element(t)))
		rc = MPI_ERR_TYPE;
	if (likely(!rc))
		rc = accumulate(w, &(struct acc){
			.origin = origin, .ocount = 1, .otype = type, .fetch = true,
			.result = result, .rcount = 1, .rtype = type, .rank = rank, .disp = disp,
			.tcount = 1, .ttype = type, .op = op,
		}, &seq);
	return hwin_error(w, rc);
}

static int compare_and_swap(struct hwin *w, const void *origin, const void *compare, void *result,
			    MPI_Datatype type, int rank, MPI_Aint disp)
{
	struct side t;
	struct prog_dst dst;
	unsigned int basic;
	int rc;

	rc = side_get(&t, 1, type);
	if (unlikely(rc))
		return rc;
	basic = compared_as(t.t);
	if (unlikely(basic == PROG_TYPE_MIXED))
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
					    (uint8_t)basic, w->opflags));
}

int hook_compare_and_swap(struct hwin *w, const void *origin, const void *compare, void *result,
			  MPI_Datatype type, int rank, MPI_Aint disp)
{
	return hwin_error(w, compare_and_swap(w, origin, compare, result, type, rank, disp));
}

/* ---- with notifications ------------------------------------------------------------------------ */

int rma_move_notify(struct hwin *w, bool get, const void *origin, MPI_Count ocount, MPI_Datatype otype, int rank,
		    MPI_Aint disp, MPI_Count tcount, MPI_Datatype ttype, int tag)
{
	struct prog_buf buf;
	struct prog_dst dst;
	int rc = move_args(w, origin, ocount, otype, rank, disp, tcount, ttype, get, false, &buf, &dst);

	if (rc == MOVE_NOBODY)
		return MPI_SUCCESS;
	if (rc == MOVE_EMPTY)
		return notify(w, rank, tag);
	if (rc)
		return rc;
	return finish(get ? prog_get_notify(w->pw, &buf, &dst, w->opflags, tag, NULL) :
			    prog_put_notify(w->pw, &buf, &dst, w->opflags, tag, NULL));
}

int rma_accumulate_notify(struct hwin *w, const void *origin, MPI_Count ocount, MPI_Datatype otype, int rank,
			  MPI_Aint disp, MPI_Count tcount, MPI_Datatype ttype, MPI_Op op, int tag)
{
	const struct acc a = {
		.origin = origin, .ocount = ocount, .otype = otype, .rank = rank, .disp = disp, .tcount = tcount,
		.ttype = ttype, .op = op, .tag = tag,
	};
	uint64_t seq;

	return acc_any(w, &a, true, &seq);
}

/* ---- with requests --------------------------------------------------------------------------- */

static int with_request(struct hwin *w, int rc, int rank, uint64_t seq, MPI_Request *request, const char *call)
{
	if (!rc)
		rc = seq ? hreq_new(w, (uint32_t)rank, seq, request) : hreq_new_done(request);
	return unlikely(rc) ? hwin_raise(w, rc, call) : MPI_SUCCESS;
}

int hook_rput(struct hwin *w, const void *origin, MPI_Count origin_count, MPI_Datatype origin_type,
	      int rank, MPI_Aint disp, MPI_Count target_count, MPI_Datatype target_type,
	      MPI_Request *request)
{
	uint64_t seq;
	int rc = move(w, prog_put, origin, origin_count, origin_type, rank, disp, target_count,
		      target_type, true, &seq);

	return with_request(w, rc, rank, seq, request, __func__);
}

int hook_rget(struct hwin *w, void *origin, MPI_Count origin_count, MPI_Datatype origin_type,
	      int rank, MPI_Aint disp, MPI_Count target_count, MPI_Datatype target_type,
	      MPI_Request *request)
{
	uint64_t seq;
	int rc = move(w, prog_get, origin, origin_count, origin_type, rank, disp, target_count,
		      target_type, true, &seq);

	return with_request(w, rc, rank, seq, request, __func__);
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

	return with_request(w, rc, rank, seq, request, __func__);
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

	return with_request(w, rc, rank, seq, request, __func__);
}

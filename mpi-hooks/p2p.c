/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sends and receives on managed communicators.
 *
 * A receive is in one of three ways: its message is ordinary and the library's alone; its descriptor comes
 * where the library puts a message (`land'), and says what the daemon is to pull, or confirms what the
 * daemon was told before; or, when it takes a message that a probe took out of the library, see probe.c.
 *
 * Where a descriptor would not fit, or would be cut in the middle of an element, the library is given a buffer of
 * ours: then a receive sees every descriptor whole.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libprogbase/reduce.h>

#include "hooks_gen.h"

/* bytes of a long double that are not padding */
#if __LDBL_MANT_DIG__ == 64
#define LDOUBLE_USED	10
#else
#define LDOUBLE_USED	sizeof(long double)
#endif

#define ANNOUNCED_MAX	512	/* at most so many of libprogclient's slots for announced receives .. */
#if MPI_VERSION >= 4
#define PACKED_MAX	PROG_DTYPE_MAX_BYTES
#else
#define PACKED_MAX	((uint64_t)INT_MAX)	/* counts are ints */
#endif
#define SENDS_MAX	256	/* .. and sends: named receives end by themselves, and must get one */

#define SHUN_NS		10000000000ull
#define DOUBT_NS	500000000ull

#define WAITS_SURE	2	/* so many messages in a row */
#define NEAR_BYTES_NS	2	/* bytes for a nanosecond of computation; see recv_account() */
#define FAR_BYTES_NS	8	/* between nodes: half of the time that a fast network takes */

uint64_t p2p_least = UINT64_MAX;
atomic_int p2p_nobodys;
static atomic_int announced, sends;
/*
 * Ranks of MPI_COMM_WORLD: the last large messages with them that were waited for at once, WAITS_SURE at most.
 * Approximate: threads may mix their updates.
 */
static struct partner {
	bool near;			/* of this node, and reached by CMA */
	uint8_t received, sent;		/* ..., of those sent only managed ones */
} *partners;				/* NULL: no memory */

/* Did the program wait for its last messages to @rank at once?  Then it is likely to do so again. */
static bool send_waits(uint32_t rank)
{
	return partners && partners[rank].sent == WAITS_SURE;
}

static bool recv_waits(uint32_t rank)
{
	return partners && partners[rank].received == WAITS_SURE;
}
static _Atomic(uint64_t) *shun_until;	/* [rank in MPI_COMM_WORLD]: see shun(); NULL: no memory */

/* Receives that the helper thread looks after. */
static pthread_mutex_t cand_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rec cand_list = { .cand_next = &cand_list, .cand_prev = &cand_list };
static uint32_t cand_count;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int native_class(int rc)
{
	int class = MPI_ERR_OTHER;

	if (likely(!rc))
		return MPI_SUCCESS;
	PMPI_Error_class(rc, &class);
	return class;
}

static bool type_cuts(const struct htype *t)
{
	return t->basic == PROG_TYPE_MIXED || DESC_SIZE % t->elem;
}

/* Is htype_last that of @type now?  Otherwise it is no good one, or one for htype_get(). */
static __attribute__((noinline)) bool type_look(MPI_Datatype type)
{
	unsigned int generation = atomic_load_explicit(&htype_generation, memory_order_acquire);
	const struct htype *t;

	if (htype_get(type, &t) || t->size > INT_MAX)
		return false;
	htype_last = (struct htype_last){
		.type = type, .generation = generation, .size = (uint32_t)t->size, .contig = t->contig, .cuts = type_cuts(t),
		.first = t->first,
	};
	return true;
}

static inline bool type_is_last(MPI_Datatype type)
{
	return likely(type == htype_last.type &&
		      atomic_load_explicit(&htype_generation, memory_order_relaxed) == htype_last.generation);
}

/* ---- buffers --------------------------------------------------------------------------------- */

int buf_set(struct rec *r, const void *buf, MPI_Count count, MPI_Datatype type)
{
	const struct htype *t;
	MPI_Count size;

	if (unlikely(count < 0))
		return MPI_ERR_COUNT;
	r->buf = (void *)(uintptr_t)buf;
	r->count = (uint64_t)count;
	if (likely(!htype_get(type, &t))) {
		if (unlikely(__builtin_mul_overflow((uint64_t)count, t->size, &r->cap) ||
			     r->cap > PROG_DTYPE_MAX_BYTES))
			return MPI_ERR_COUNT;
		if (likely(t->contig)) {
			r->buf = (void *)((uintptr_t)buf + (uintptr_t)t->first);
		} else {
			r->dt = dtype_get(t->dt);
			r->dt_type = type;
			r->dt_generation = atomic_load_explicit(&htype_generation, memory_order_relaxed);
		}
		return MPI_SUCCESS;
	}
	if (type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) || size < 0)
		return MPI_ERR_TYPE;
	if (__builtin_mul_overflow((uint64_t)count, (uint64_t)size, &r->cap))
		return MPI_ERR_COUNT;
	if (PMPI_Type_dup(type, &r->type))
		return MPI_ERR_NO_MEM;
	r->foreign = true;
	return MPI_SUCCESS;
}

/* Would a message of DESC_SIZE bytes end inside of an element of @type? */
static bool cuts(MPI_Datatype type)
{
	const struct htype *t;

	return htype_get(type, &t) || type_cuts(t);
}

int land_set(struct rec *r, void *buf, MPI_Count count, MPI_Datatype type)
{
	r->lib_buf = buf;
	r->lib_count = count;
	r->lib_type = type;
	r->land = NULL;
	if (likely(r->cap < DESC_SIZE)) {
		r->land = r->small;
		r->shadow = true;
		r->lib_count = DESC_SIZE;
	} else {
		if (!r->dt && !r->foreign)
			r->land = r->buf;
		if (!cuts(type) || (r->land && r->cap > INT_MAX))
			return MPI_SUCCESS;
		r->lib_count = (MPI_Count)r->cap;
		if (!r->land) {
			r->land = malloc(r->cap);
			r->shadow = true;
		}
		if (!r->land)
			return MPI_ERR_NO_MEM;
	}
	r->lib_buf = r->land;
	r->lib_type = MPI_BYTE;
	return MPI_SUCCESS;
}

static struct prog_buf buf_of(const struct rec *r)
{
	return (struct prog_buf){
		.addr = r->buf,
		.type = r->dt,
		.count = r->dt ? r->count : r->cap,
	};
}

/* Packed bytes to items of a type that only the library knows; an item that is not whole keeps its old rest. */
static void write_foreign(struct rec *r, const unsigned char *src, uint64_t len)
{
	MPI_Aint lb, extent;
	MPI_Count size = 0;
	uint64_t items;

	PMPI_Type_size_x(r->type, &size);
	if (size <= 0 || PMPI_Type_get_extent(r->type, &lb, &extent))
		return;
	items = len / (uint64_t)size;
	for (uint64_t i = 0; i <= items && i < r->count; i++) {
		char *at = (char *)r->buf + (MPI_Aint)i * extent;
		uint64_t part = i < items ? (uint64_t)size : len % (uint64_t)size;
		int pos = 0;
		char *item;

		if (!part)
			break;
		if (i < items) {
			PMPI_Unpack(src + i * (uint64_t)size, (int)size, &pos, at, 1, r->type,
				    MPI_COMM_SELF);
			continue;
		}
		item = malloc((size_t)size);
		if (!item)
			break;
		PMPI_Pack(at, 1, r->type, item, (int)size, &pos, MPI_COMM_SELF);
		memcpy(item, src + i * (uint64_t)size, part);
		pos = 0;
		PMPI_Unpack(item, (int)size, &pos, at, 1, r->type, MPI_COMM_SELF);
		free(item);
	}
}

void buf_write(struct rec *r, const void *src, uint64_t len)
{
	if (len > r->cap)
		len = r->cap;
	if (likely(!r->dt && !r->foreign))
		memcpy(r->buf, src, len);
	else if (r->dt)
		dtype_unpack(r->buf, r->dt, r->count, 0, src, len);
	else
		write_foreign(r, src, len);
}

#ifdef OPEN_MPI
/* Open MPI copies the bytes that there are. */
static bool ends_inside(const struct rec *r, uint64_t len)
{
	return false;
}
#else
static MPI_Count elements(MPI_Datatype type, uint64_t len)
{
	MPI_Count n = 0;
	MPI_Status st;

	PMPI_Status_set_elements_x(&st, MPI_BYTE, (MPI_Count)len);
	PMPI_Get_elements_x(&st, type, &n);
	return n;
}

/*
 * Does a message of @len bytes end inside of an element of the buffer's type?  MPICH refuses it then, unless the type is one
 * block, of which it copies the bytes that there are.  Where the program freed a type while the receive was under way, and
 * elements differ in size, nobody can be asked: then it is no error.
 */
static bool ends_inside(const struct rec *r, uint64_t len)
{
	const struct reduce_type *basic;

	if (likely(!r->dt) || !(len % dtype_size(r->dt)))
		return false;
	basic = reduce_type(dtype_basic(r->dt));
	if (basic)
		return len % basic->packed;
	return r->dt_generation == atomic_load_explicit(&htype_generation, memory_order_relaxed) &&
	       elements(r->dt_type, len) == elements(r->dt_type, len - 1);
}
#endif

/*
 * An ordinary message, which the library has put elsewhere.  MPICH copies the long doubles of a type that is not one block as
 * numbers: the buffer keeps their padding.
 */
static void write_ordinary(struct rec *r, const void *src, uint64_t len)
{
#ifndef OPEN_MPI
	unsigned int basic = r->dt ? dtype_basic(r->dt) : PROG_TYPE_MIXED;
	unsigned char part[64 * sizeof(long double)];
	const unsigned char *from = src;

	if (basic == PROG_TYPE_LDOUBLE || basic == PROG_TYPE_CLDOUBLE) {
		if (len > r->cap)
			len = r->cap;
		for (uint64_t off = 0, n; off < len; off += n) {
			n = len - off < sizeof(part) ? len - off : sizeof(part);
			dtype_pack(part, r->buf, r->dt, r->count, off, n);
			for (uint64_t i = 0; i < n; i++)
				if (i % sizeof(long double) < LDOUBLE_USED)
					part[i] = from[off + i];
			dtype_unpack(r->buf, r->dt, r->count, off, part, n);
		}
		return;
	}
#endif
	buf_write(r, src, len);
}

/* A message of @len bytes was copied into the buffer, not by the library: is it one that the library refuses? */
void buf_check(struct rec *r, uint64_t len)
{
	if (unlikely(len <= r->cap && ends_inside(r, len))) {
		r->err = MPI_ERR_TRUNCATE;
		r->len = 0;
		r->fix = true;
	}
}

/* All packed bytes of the buffer; NULL: no memory.  To be freed. */
static void *buf_packed(struct rec *r)
{
	char *copy = malloc(r->cap + 1);
	MPI_Aint lb, extent;
	MPI_Count size = 0;

	if (!copy)
		return NULL;
	if (!r->dt && !r->foreign) {
		memcpy(copy, r->buf, r->cap);
	} else if (r->dt) {
		dtype_pack(copy, r->buf, r->dt, r->count, 0, r->cap);
	} else {
		PMPI_Type_size_x(r->type, &size);
		PMPI_Type_get_extent(r->type, &lb, &extent);
		for (uint64_t i = 0; size && i < r->count; i++) {
			int pos = 0;

			PMPI_Pack((char *)r->buf + (MPI_Aint)i * extent, 1, r->type,
				  copy + i * (uint64_t)size, (int)size, &pos, MPI_COMM_SELF);
		}
	}
	return copy;
}

/* The descriptor that has been received by @r, if it is one. */
static bool land_desc(const struct rec *r, struct desc_says *d)
{
	unsigned char b[DESC_SIZE];

	if (r->land)
		return desc_check(r->land, r->c, d);
	return !dtype_pack(b, r->buf, r->dt, r->count, 0, sizeof(b)) && desc_check(b, r->c, d);
}

/* ---- candidates ------------------------------------------------------------------------------- */

static void cand_add(struct rec *r)
{
	pthread_mutex_lock(&cand_lock);
	r->cand = true;
	r->cand_prev = cand_list.cand_prev;
	r->cand_next = &cand_list;
	r->cand_prev->cand_next = r;
	cand_list.cand_prev = r;
	atomic_fetch_add_explicit(&p2p_nobodys, 1, memory_order_relaxed);
	prog_msg_candidates(hp2p_space, ++cand_count);
	pthread_mutex_unlock(&cand_lock);
}

static void cand_del(struct rec *r)
{
	if (likely(!r->cand))
		return;
	pthread_mutex_lock(&cand_lock);
	r->cand_prev->cand_next = r->cand_next;
	r->cand_next->cand_prev = r->cand_prev;
	r->cand = false;
	atomic_fetch_sub_explicit(&p2p_nobodys, 1, memory_order_relaxed);
	prog_msg_candidates(hp2p_space, --cand_count);
	pthread_mutex_unlock(&cand_lock);
}

/* Tell the daemon to pull the message @r->d; see prog_msg_recv_named() for @whole. */
static int pull(struct rec *r, bool whole, unsigned int flags)
{
	const struct prog_msg_name *name = &r->d.name;
	struct prog_buf b = buf_of(r);
	uint64_t len = name->len < r->cap ? name->len : r->cap;
	int rc = -E2BIG;

	if (r->cap < DESC_SIZE)
		flags |= PROG_MSG_DROP;
	if (recv_waits(name->src))
		flags |= PROG_MSG_WAITS;
	if (!r->foreign || flags & PROG_MSG_DROP)
		rc = prog_msg_recv_named(hp2p_space, name, &b, whole, flags, &r->m);
	if (rc == -E2BIG) {	/* the daemon cannot place it: we do */
		if (!r->packed)
			r->packed = malloc(len);
		if (!r->packed)
			return -ENOMEM;
		b = (struct prog_buf){ .addr = r->packed, .count = len };
		whole = true;
		rc = prog_msg_recv_named(hp2p_space, name, &b, whole, flags, &r->m);
	}
	r->whole = whole;
	return rc;
}

/* The helper thread, and whoever waits: has the descriptor of a candidate come? */
static void look_locked(void)
{
	for (struct rec *r = cand_list.cand_next; r != &cand_list; r = r->cand_next) {
		if (r->m || !land_desc(r, &r->d))
			continue;
		if (pull(r, r->shadow, 0))
			r->m = NULL;	/* later, or when the library completes it */
	}
}

static void look(void *arg)
{
	pthread_mutex_lock(&cand_lock);
	look_locked();
	pthread_mutex_unlock(&cand_lock);
}

/* ---- receives --------------------------------------------------------------------------------- */

/*
 * The daemon is lost.  What it had taken for us before is ours, and its sender was told so.  From the first byte,
 * as nobody knows what the daemon had written.
 */
static int rescue(struct rec *r, struct prog_msg_result *res)
{
	uint64_t len = r->d.name.len;
	void *copy;

	if (prog_msg_rescue(hp2p_space, &r->d.name, &copy))
		return -ECONNRESET;
	buf_write(r, copy, len);
	free(copy);
	r->whole = true;
	free(r->packed);
	r->packed = NULL;
	*res = (struct prog_msg_result){ .len = len };
	return 0;
}

/* The message that @r->m is for has ended, as @status and @res say; its descriptor is here. */
static void arrived(struct rec *r, int status, struct prog_msg_result *res)
{
	const void *head;
	size_t n;

	r->fix = true;
	if (unlikely(status == -ECONNRESET) && r->cap >= DESC_SIZE)
		status = rescue(r, res);
	if (r->cap < DESC_SIZE) {	/* dropped; nobody waits for the sender's side of that */
		r->err = MPI_ERR_TRUNCATE;
		r->len = r->cap;
	} else if (status < 0) {
		prog_log_limited(PROG_LOG_ERROR, "message from rank %d, tag %d: %s", r->source, r->tag,
				 strerror(-status));
		r->err = MPI_ERR_OTHER;
		r->len = 0;
		if (!r->shadow && !r->held) {
			static const unsigned char zero[DESC_SIZE];

			buf_write(r, zero, sizeof(zero));
		}
	} else {
		r->len = res->len;
		if (!r->whole) {
			n = prog_msg_head(hp2p_space, r->m, &head);
			buf_write(r, head, n);
		}
		if (r->packed)
			buf_write(r, r->packed, r->len);
		if (r->len > r->cap) {
			r->err = MPI_ERR_TRUNCATE;
			r->len = r->cap;
		}
		buf_check(r, res->len);
	}
	if (r->announced)
		atomic_fetch_sub_explicit(&announced, 1, memory_order_relaxed);
	r->announced = false;
	prog_msg_free(hp2p_space, r->m);
	r->m = NULL;
	prog_msg_free(hp2p_space, r->predicted);
	r->predicted = NULL;
	r->state = REC_READY;
}

/*
 * The descriptor for an announced receive is here, but the daemon does not have the message.  It may never hear of it:
 * the sender's daemon may have been lost before it could tell, and then only who asks for the message learns that.
 * So after a while it is asked for by its name as well.  One of the two at most gets it, and if it is on
 * its way for the first one already, the second one ends at once.
 */
static void doubt(struct rec *r)
{
	uint64_t now = now_ns();

	if (r->doubt_at && now >= r->doubt_at) {
		r->predicted = r->m;
		r->m = NULL;
		/* not copied by ourselves: the daemon may be at it */
		if (pull(r, true, 0)) {
			r->m = r->predicted;
			r->predicted = NULL;
			r->whole = false;
		}
	}
	if (!r->doubt_at || now >= r->doubt_at)
		r->doubt_at = now + DOUBT_NS;
}

/* The message was not to be had by its name, as @status says.  True: that was not the last word. */
static bool still_predicted(struct rec *r, int status, struct prog_msg_result *res)
{
	prog_msg_free(hp2p_space, r->m);
	r->m = r->predicted;
	r->predicted = NULL;
	r->whole = false;
	return prog_msg_test(hp2p_space, r->m, res) == 1 || status == -EBUSY || status == -EEXIST;
}

/* The payload of @r is under way: is it there? */
static bool moving(struct rec *r)
{
	struct prog_msg_result res = { 0 };
	int rc;

	if (unlikely(!r->m)) {
		rc = pull(r, true, PROG_MSG_HURRY);
		if (rc == -EAGAIN)
			return false;
		if (rc) {
			r->m = NULL;
			arrived(r, rc, &res);
			return true;
		}
	}
	rc = r->cap < DESC_SIZE ? 1 : prog_msg_test(hp2p_space, r->m, &res);
	if (!rc) {
		if (r->announced && !r->predicted)
			doubt(r);
		return false;
	}
	if (rc == 1)
		rc = res.status;
	if (unlikely(r->predicted && rc) && still_predicted(r, rc, &res)) {
		/* the next look says what became of it */
		return false;
	}
	arrived(r, rc, &res);
	return true;
}

/* The announcement of @r was for nothing. */
static void unannounce(struct rec *r)
{
	if (r->announced) {
		atomic_fetch_sub_explicit(&announced, 1, memory_order_relaxed);
		prog_msg_account_miss(hp2p_space, r->c->world[r->cr.source], false);
	}
	r->announced = false;
	prog_msg_free(hp2p_space, r->m);
	r->m = NULL;
}

static void count(struct rec *r, const struct chan_pos *pos)
{
	struct hcomm *c = r->c;

	hooks_lock(&c->lock);
	if (r->counted)
		chan_recv_done(c->chans, &r->cr, r->source, r->tag, pos);
	else if (!r->held && !r->taken)
		chan_recv_now(c->chans, r->source, r->tag, pos);
	r->counted = false;
	hooks_unlock(&c->lock);
}

/* An ordinary message of @bytes. */
static void ordinary(struct rec *r, uint64_t bytes, int class)
{
	count(r, NULL);
	if (unlikely(r->m))
		unannounce(r);
	r->len = bytes;
	r->state = REC_READY;
	if (unlikely(class))
		return;
	if (r->packed) {
		write_ordinary(r, r->packed, bytes);
		buf_check(r, bytes);
	} else if (r->shadow && bytes <= (r->land == r->small ? DESC_SIZE : r->cap)) {
		write_ordinary(r, r->land, bytes);
		buf_check(r, bytes);
	}
	if (unlikely(bytes > r->cap)) {
		r->err = MPI_ERR_TRUNCATE;
		r->len = r->cap;
		r->fix = true;
	}
}

/* A descriptor, d.  The library is through with the buffer. */
static void managed(struct rec *r, const struct desc_says *d)
{
	bool mine = r->m && (r->announced ? r->cr.exact && r->cr.pos.gen == d->pos.gen &&
					    r->cr.pos.ord == d->pos.ord :
					    r->d.name.slot == d->name.slot &&
					    r->d.name.serial == d->name.serial &&
					    r->d.name.src == d->name.src);

	count(r, &d->pos);
	r->managed = true;
	r->doubt_at = 0;
	r->state = REC_MOVING;
	r->d = *d;
	if (r->m && !mine)
		unannounce(r);
	if (r->m)
		return;
	prog_msg_account_miss(hp2p_space, d->name.src, true);
	pull(r, true, PROG_MSG_HURRY);	/* if not now, moving() tries again and says why not */
	if (r->cap < DESC_SIZE)
		moving(r);
}

/* All that follow on its channel may be for earlier messages than the daemon was told. */
static void float_one(void *arg, struct chan_recv *cr)
{
	struct rec *r = (struct rec *)(void *)((char *)cr - offsetof(struct rec, cr));

	if (!r->announced)
		return;
	atomic_fetch_sub_explicit(&announced, 1, memory_order_relaxed);
	r->announced = cr->announced = false;
	prog_msg_free(hp2p_space, r->m);
	r->m = NULL;
	if (r->posted_at)
		cand_add(r);
}

void rec_matched(struct rec *r, const MPI_Status *st, int class)
{
	struct desc_says d;

	cand_del(r);
	r->source = st->MPI_SOURCE;
	r->tag = st->MPI_TAG;
	if (unlikely(class && class != MPI_ERR_TRUNCATE) || unlikely(status_cancelled(st))) {
		hooks_lock(&r->c->lock);
		if (r->counted) {
			chan_recv_float(r->c->chans, &r->cr, float_one, NULL);
			chan_recv_undo(r->c->chans, &r->cr);
		}
		hooks_unlock(&r->c->lock);
		r->counted = false;
		if (r->m)
			unannounce(r);
		r->err = class;
		r->raised = class;
		r->state = REC_READY;
		return;
	}
	if (unlikely(status_bytes(st) == DESC_SIZE) && !class && land_desc(r, &d) &&
	    d.name.src == r->c->world[st->MPI_SOURCE]) {
		managed(r, &d);
		return;
	}
	ordinary(r, status_bytes(st), class);
	if (unlikely(class)) {
		r->err = class;
		r->raised = true;
	}
}

/*
 * What failed on the way to a rank would fail again, so its messages are the library's from then on: a process that lost
 * its daemon has none any more, and each attempt would cost a message.  A want of memory passes.
 */
static void shun(uint32_t rank, int err)
{
	if (shun_until)
		atomic_store_explicit(&shun_until[rank], err == -ENOMEM ? now_ns() + SHUN_NS : UINT64_MAX,
				      memory_order_relaxed);
}

bool rec_poll(struct rec *r)
{
	MPI_Status st;
	int flag = 0, rc;

	if (r->kind == REC_PAIR) {
		bool done = rec_poll(r->part[0]);

		return rec_poll(r->part[1]) && done;
	}
	if (r->kind == REC_SEND) {
		struct prog_msg_result res;

		if (r->m) {
			rc = prog_msg_test(hp2p_space, r->m, &res);
			if (!rc)
				return false;
			if (rc == 1)
				rc = res.status;
			if (rc) {
				prog_log_limited(PROG_LOG_ERROR, "message to rank %d: %s", r->peer,
						 strerror(-rc));
				r->err = MPI_ERR_OTHER;
				shun(r->c->world[r->peer], rc);
			}
			atomic_fetch_sub_explicit(&sends, 1, memory_order_relaxed);
			prog_msg_free(hp2p_space, r->m);
			r->m = NULL;
		}
		if (!r->native_done) {
			if (r->standin)
				PMPI_Test(&r->inner, &flag, MPI_STATUS_IGNORE);
			else
				PMPI_Request_get_status(r->req, &flag, MPI_STATUS_IGNORE);
			r->native_done = flag;
		}
		return r->native_done;
	}
	if (r->state == REC_POSTED) {
		if (r->standin)
			rc = PMPI_Test(&r->inner, &flag, &st);
		else
			rc = PMPI_Request_get_status(r->req, &flag, &st);
		if (!flag && !rc)
			return false;
		rec_matched(r, &st, native_class(rc));
	}
	if (r->state == REC_MOVING)
		moving(r);
	return r->state == REC_READY;
}

void rec_idle(struct rec *r, unsigned int *spins)
{
	if (r && r->kind == REC_RECV && r->state == REC_MOVING && r->announced)
		prog_msg_wait_for(hp2p_space, r->m, NULL, DOUBT_NS);
	else if (r && (r->kind == REC_SEND || r->state == REC_MOVING) && r->m)
		prog_msg_wait(hp2p_space, r->m, NULL);
	else if (++*spins > 100)
		sched_yield();
	hooks_progress(NULL);
	p2p_poll();
}

void rec_attended(struct rec *r)
{
	cand_del(r);
}

void rec_wait(struct rec *r)
{
	unsigned int spins = 0;

	while (!rec_poll(r))
		rec_idle(r, &spins);
}

void rec_posted(struct rec *r)
{
	r->posted_at = now_ns();
}

void rec_away(struct rec *r)
{
	r->away = now_ns() - r->posted_at + 1;
	for (int i = 0; i < 2; i++)
		if (r->part[i] && r->part[i]->posted_at)
			r->part[i]->away = r->away;
}

/*
 * A receiver that is in MPI when a message of its node comes copies it by itself, once; the daemon, which is asked
 * for it when it is announced, has to copy it twice.  So who waited at once for the last of a rank is
 * taken to do so again, and tells that rank, which leaves its messages to the library.  At once: who computes for
 * no longer than a few copies would lose by sharing its processor with the daemon.
 */
static void recv_account(const struct rec *r)
{
	uint32_t rank = r->c->world[r->source];
	struct partner *p = partners ? &partners[rank] : NULL;

	if (!p)
		return;
	if (r->away > r->len / (p->near ? NEAR_BYTES_NS : FAR_BYTES_NS))
		p->received = 0;
	else if (p->received < WAITS_SURE)
		p->received++;
	prog_msg_set_waits(hp2p_space, rank, p->received == WAITS_SURE);
}

/* A sender to another node that computes is not there to move what the library has. */
static void send_account(const struct rec *r)
{
	struct partner *p = partners ? &partners[r->c->world[r->peer]] : NULL;

	if (!p)
		return;
	if (r->away > r->cap / FAR_BYTES_NS)
		p->sent = 0;
	else if (p->sent < WAITS_SURE)
		p->sent++;
}

static bool near_waits(const struct rec *r, bool wait)
{
	uint32_t rank = r->c->world[r->cr.source];

	return partners && partners[rank].near && (wait || recv_waits(rank));
}

/* Is a message to @rank better left to the library? */
static bool is_left(uint32_t rank)
{
	return partners && (partners[rank].near || send_waits(rank)) &&
	       prog_msg_leave(hp2p_space, rank);
}

/* Large messages, for the choice of thresholds. */
static void account(struct rec *r)
{
	if (unlikely(r->kind == REC_SEND && r->managed))
		send_account(r);
	else if (unlikely(r->len >= p2p_least) && r->kind == REC_RECV && !r->err)
		recv_account(r);
	if (!r->posted_at || !r->managed)
		return;
	prog_msg_account(hp2p_space, r->c->world[r->kind == REC_SEND ? r->peer : r->source],
			 r->kind == REC_SEND, r->kind == REC_SEND ? r->cap : r->len, r->away);
	r->posted_at = 0;
}

int rec_outcome(struct rec *r, MPI_Status *st)
{
	if (r->kind == REC_PAIR) {
		struct rec *a = r->part[0], *b = r->part[1];

		rec_outcome(a, st);
		account(b);
		r->err = a->err ? a->err : b->err;
		r->raised = a->err ? a->raised : b->raised;
		return r->err;
	}
	account(r);
	if (unlikely(r->standin)) {
		bool receive = r->kind == REC_RECV;

		st->MPI_SOURCE = receive ? r->source : MPI_ANY_SOURCE;
		st->MPI_TAG = receive ? r->tag : MPI_ANY_TAG;
		PMPI_Status_set_elements_x(st, MPI_BYTE, receive ? (MPI_Count)r->len : 0);
		PMPI_Status_set_cancelled(st, 0);
	} else if (r->fix) {
		PMPI_Status_set_elements_x(st, MPI_BYTE, (MPI_Count)r->len);
	}
	return r->err;
}

/* A receive whose message's number is known goes to the daemon before the library has it. */
static bool announce(struct rec *r, bool wait)
{
	const struct prog_msg_key key = {
		.comm = r->c->id,
		.src = r->c->world[r->cr.source],
		.dst = (uint32_t)hooks.world_rank,
		.tag = r->cr.tag,
		.gen = r->cr.pos.gen,
		.ord = r->cr.pos.ord,
	};
	struct prog_buf b = buf_of(r);

	if (r->foreign ||
	    atomic_load_explicit(&announced, memory_order_relaxed) >= ANNOUNCED_MAX ||
	    prog_msg_recv(hp2p_space, &key, &b, wait || recv_waits(key.src) ? PROG_MSG_WAITS : 0, &r->m))
		return false;
	atomic_fetch_add_explicit(&announced, 1, memory_order_relaxed);
	r->announced = r->cr.announced = true;
	r->whole = false;
	return true;
}

static inline int chan_source(int source)
{
	return source == MPI_ANY_SOURCE ? CHAN_ANY : source;
}

static inline int chan_tag(int tag)
{
	return tag == MPI_ANY_TAG ? CHAN_ANY : tag;
}

int recv_post(struct rec *r, bool wait, int (*start)(struct rec *r))
{
	struct hcomm *c = r->c;
	int rc;

	if (r->cap >= p2p_least)
		chan_recv_begin(c->chans, chan_source(r->peer), chan_tag(r->peer_tag), &r->cr);
	else
		chan_recv_post(c->chans, chan_source(r->peer), chan_tag(r->peer_tag), &r->cr);
	r->counted = true;
	if (unlikely(r->cap >= p2p_least) && (c->self < 0 || (r->peer != c->self && c->npeers > 1))) {
		r->big = true;
		if (!wait)
			r->posted_at = now_ns();
		if (!(r->cr.worth && !near_waits(r, wait) && announce(r, wait)) && !wait)
			cand_add(r);
	}
	rc = start(r);
	if (unlikely(rc)) {
		cand_del(r);
		if (r->m)
			unannounce(r);
		chan_recv_undo(c->chans, &r->cr);
		r->counted = false;
	}
	if (unlikely(hooks.mt) && r->cap >= p2p_least)
		chan_recv_begun(c->chans, &r->cr);
	return rc;
}

static int start_irecv(struct rec *r)
{
	return NATIVE(Irecv, r->lib_buf, r->lib_count, r->lib_type, r->peer, r->peer_tag, r->c->handle,
		      &r->req);
}

/* What the MPI standard says of a receive that has ended, for calls that complete one: their value. */
static int recv_result(struct rec *r, int rc, MPI_Status *st, const char *call)
{
	int class = rec_outcome(r, st);

	if (unlikely(rc))
		return rc;
	return unlikely(class) && !r->raised ? hcomm_raise(r->c, class, call) : class;
}

int recv_finish(struct rec *r, int rc, MPI_Status *st, const char *call)
{
	if (r->state == REC_POSTED && likely(!r->standin))
		rec_matched(r, st, native_class(rc));
	if (unlikely(r->state != REC_READY))
		rec_wait(r);
	return recv_result(r, rc, st, call);
}

/* A receive that the library will say is a wrong one. */
static inline bool is_bad(const struct hcomm *c, int source, MPI_Count count)
{
	return unlikely(!is_source(c, source) || count < 0);
}

/* Into @r, a receive with its arguments. */
static int recv_args(struct rec *r, void *buf, MPI_Count count, MPI_Datatype type, int source, int tag)
{
	int rc = buf_set(r, buf, count, type);

	r->peer = source;
	r->peer_tag = tag;
	return likely(!rc) ? land_set(r, buf, count, type) : rc;
}

/*
 * Blocking.  With one thread nothing comes between the library's call and
 * its end: where there is nothing to announce the channel need not know of it before.
 */
static int recv_now(struct rec *r, MPI_Status *st, const char *call)
{
	struct hcomm *c = r->c;
	struct held *h;
	int rc;

	if (unlikely(hooks.mt)) {
		pthread_mutex_lock(&c->lock);
		h = held_take(c, r->peer, r->peer_tag);
		rc = h ? MPI_SUCCESS : recv_post(r, true, start_irecv);
		pthread_mutex_unlock(&c->lock);
		if (h)
			held_recv(h, r);
		else if (!rc)
			rc = PMPI_Wait(&r->req, st);
		else
			return rc;
		return recv_finish(r, rc, st, call);
	}
	h = unlikely(c->held) ? held_take(c, r->peer, r->peer_tag) : NULL;
	if (unlikely(h)) {
		held_recv(h, r);
		return recv_finish(r, MPI_SUCCESS, st, call);
	}
	if (unlikely(r->cap >= p2p_least) && r->peer != MPI_ANY_SOURCE && r->peer != c->self) {
		chan_recv_post(c->chans, r->peer, chan_tag(r->peer_tag), &r->cr);
		r->counted = true;
		if (r->cr.worth && !near_waits(r, true))
			announce(r, true);
	}
	rc = NATIVE(Recv, r->lib_buf, r->lib_count, r->lib_type, r->peer, r->peer_tag, c->handle, st);
	return recv_finish(r, rc, st, call);
}

/* A receive into one block that is too short for a managed message: nearly everything is the library's. */
struct plain {
	char *at;			/* the block */
	uint64_t cap;
	/* what the library is given; NULL: memory of ours */
	void *lib_buf;
	int lib_count;
	MPI_Datatype lib_type;
};

/*
 * Is it one?  Where the type is the last one, which may be @known; that of the hot paths, which go to slow ones with all their
 * arguments, and so save nothing, when it is false.
 */
static inline __attribute__((always_inline)) bool is_plain_of(uint32_t peers, void *buf, MPI_Count count,
							      MPI_Datatype type, bool known, int source,
							      struct plain *p)
{
	if (unlikely(!is_quick_source(peers, source) || (uint64_t)count > INT_MAX || !(known || type_is_last(type)) ||
		     !htype_last.contig))
		return false;
	p->cap = (uint64_t)count * htype_last.size;
	if (unlikely(p->cap >= p2p_least))
		return false;
	p->at = (char *)buf + htype_last.first;
	if (likely(p->cap < DESC_SIZE)) {
		p->lib_buf = NULL;
		p->lib_count = DESC_SIZE;
		p->lib_type = MPI_BYTE;
	} else if (unlikely(htype_last.cuts)) {
		if (p->cap > INT_MAX)
			return false;
		p->lib_buf = p->at;
		p->lib_count = (int)p->cap;
		p->lib_type = MPI_BYTE;
	} else {
		p->lib_buf = buf;
		p->lib_count = (int)count;
		p->lib_type = type;
	}
	return true;
}

/* With one thread. */
static inline __attribute__((always_inline)) bool is_plain(const struct hcomm *c, void *buf, MPI_Count count,
							   MPI_Datatype type, int source, struct plain *p)
{
	return is_plain_of(c->quick_peers, buf, count, type, false, source, p);
}

/*
 * A blocking one, of which the library has said @rc and @st, and that was not of an ordinary message that fits.  @taken: it is
 * counted.
 */
static __attribute__((noinline)) int plain_odd(struct hcomm *c, void *at, uint64_t cap, int rc, MPI_Status *st,
					       const unsigned char *landing, bool taken, const char *call)
{
	struct rec *r = rec_new(c, REC_RECV);

	if (!r)
		return hcomm_raise(c, MPI_ERR_NO_MEM, call);
	r->buf = at;
	r->cap = cap;
	r->land = at;
	if (cap < DESC_SIZE) {
		r->land = r->small;
		r->shadow = true;
		memcpy(r->small, landing, DESC_SIZE);
	}
	r->taken = taken;
	rc = recv_finish(r, rc, st, call);
	rec_free(r);
	return rc;
}

/* A blocking one, of which the library has said @rc and @st. */
static inline int plain_end(struct hcomm *c, void *at, uint64_t cap, int rc, MPI_Status *st, const char *call)
{
	uint64_t bytes = status_bytes(st);

	if (unlikely(rc) || unlikely(bytes > cap) || unlikely(bytes == DESC_SIZE))
		return plain_odd(c, at, cap, rc, st, rec_landing, false, call);
	if (cap < DESC_SIZE)
		copy_short(at, rec_landing, bytes);
	chan_recv_now(c->chans, st->MPI_SOURCE, st->MPI_TAG, NULL);
	p2p_poll();
	return MPI_SUCCESS;
}

static int recv_rec(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
		    MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct rec *r;
	int rc;

	r = rec_new(c, REC_RECV);
	if (!r)
		return hcomm_raise(c, MPI_ERR_NO_MEM, "MPI_Recv");
	if (unlikely(recv_args(r, buf, count, type, source, tag)))
		rc = NATIVE(Recv, buf, count, type, source, tag, c->handle, status);
	else
		rc = recv_now(r, st, "MPI_Recv");
	rec_free(r);
	return rc;
}

static __attribute__((noinline)) int recv_slow(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
					       struct hcomm *c, MPI_Status *status)
{
	if (is_bad(c, source, count))
		return NATIVE(Recv, buf, count, type, source, tag, c->handle, status);
	if (!type_is_last(type) && type_look(type))
		return hook_recv(buf, count, type, source, tag, c, status);
	return recv_rec(buf, count, type, source, tag, c, status);
}

/*
 * The end of a blocking call with several threads: the caller is in channel @ch, @landing, of a record of the
 * thread's own, is where a short message is.
 */
static inline __attribute__((always_inline)) int plain_end_threads(struct hcomm *c, const unsigned char *landing, struct chan *ch,
								   bool wild, const struct plain *p, int rc,
								   MPI_Status *st, const char *call)
{
	uint64_t bytes = status_bytes(st);
	bool odd = unlikely(rc) || unlikely(bytes > p->cap) || unlikely(bytes == DESC_SIZE);
	bool taken = !unlikely(rc) || native_class(rc) == MPI_ERR_TRUNCATE;

	if (unlikely(wild && taken))
		hcomm_took(c, st->MPI_SOURCE, st->MPI_TAG);
	chan_leave(ch, taken && !wild);
	if (unlikely(odd))
		rc = plain_odd(c, p->at, p->cap, rc, st, landing, taken, call);
	else if (p->cap < DESC_SIZE)
		copy_short(p->at, landing, bytes);
	p2p_poll();
	return rc;
}

static inline __attribute__((always_inline)) int recv_threads(void *buf, MPI_Count count, MPI_Datatype type, int source,
							      int tag, struct hcomm *c, MPI_Status *status, bool wild)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct chan *ch;
	struct plain p;
	struct rec *r;
	int rc;

	if (unlikely(!is_plain_of(c->npeers, buf, count, type, false, source, &p)))
		return recv_slow(buf, count, type, source, tag, c, status);
	r = rec_own_look();
	if (unlikely(!r))
		return recv_rec(buf, count, type, source, tag, c, status);
	ch = hcomm_recv_enter(c, source, tag, wild);
	if (unlikely(!ch))
		return recv_rec(buf, count, type, source, tag, c, status);
	rc = PMPI_Recv(p.lib_buf ? p.lib_buf : r->small, p.lib_count, p.lib_type, source, tag, c->handle, st);
	return plain_end_threads(c, r->small, ch, wild, &p, rc, st, "MPI_Recv");
}

static __attribute__((noinline)) int recv_wild_threads(void *buf, MPI_Count count, MPI_Datatype type, int source,
						       int tag, struct hcomm *c, MPI_Status *status)
{
	return recv_threads(buf, count, type, source, tag, c, status, true);
}

int hook_recv_threads(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
		      MPI_Status *status)
{
	return unlikely(is_wild(source, tag)) ? recv_wild_threads(buf, count, type, source, tag, c, status) :
	       recv_threads(buf, count, type, source, tag, c, status, false);
}

int hook_recv(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
	      MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct plain p;
	int rc;

	if (unlikely(!is_plain(c, buf, count, type, source, &p)))
		return hooks.mt ? hook_recv_threads(buf, count, type, source, tag, c, status) :
		       recv_slow(buf, count, type, source, tag, c, status);
	rc = PMPI_Recv(p.lib_buf ? p.lib_buf : rec_landing, p.lib_count, p.lib_type, source, tag, c->handle, st);
	return plain_end(c, p.at, p.cap, rc, st, __func__);
}

/* A receive whose record is not in the table: posted, or a standin without a handle. */
static int recv_begin(struct rec *r)
{
	struct hcomm *c = r->c;
	struct held *h;
	int rc = MPI_SUCCESS;

	hooks_lock(&c->lock);
	h = unlikely(c->held) ? held_take(c, r->peer, r->peer_tag) : NULL;
	if (likely(!h))
		rc = recv_post(r, false, start_irecv);
	hooks_unlock(&c->lock);
	if (unlikely(h))
		held_recv(h, r);
	return rc;
}

bool recv_plain(const struct rec *r)
{
	return r->c->quick_peers && r->cap < p2p_least && !r->dt && !r->foreign;
}

int recv_start_plain(struct rec *r, int (*start)(MPI_Request *request), MPI_Request *request)
{
	struct chan *ch = chan_plain_last(r->c->chans, r->peer, r->peer_tag);
	int rc;

	if (unlikely(!ch))
		ch = chan_plain_find(r->c->chans, chan_source(r->peer), chan_tag(r->peer_tag));
	if (unlikely(!ch))
		return hcomm_raise(r->c, MPI_ERR_NO_MEM, "MPI_Start");
	rc = start(request);
	if (unlikely(rc))
		return rc;
	chan_plain_post(r->c->chans, ch, &r->plain_seq);
	r->plain_chan = ch;
	r->plain = true;
	r->state = REC_POSTED;
	return MPI_SUCCESS;
}

/*
 * Post one that is plain, of channel @ch.  With one thread it is the same whether it is counted before or after the
 * library has it.
 */
static inline __attribute__((always_inline)) int irecv_plain(const struct plain *p, int source, int tag, struct hcomm *c,
							     MPI_Request *req, struct chan *ch, bool wild)
{
	struct rec *r = rec_spare;
	int rc;

	rec_spare = r->next;
	r->buf = p->at;
	r->cap = p->cap;
	rec_plain_set(r, c, ch, wild);
	rc = PMPI_Irecv(p->lib_buf ? p->lib_buf : r->small, p->lib_count, p->lib_type, source, tag, c->handle, req);
	if (unlikely(rc)) {
		rec_put_plain(r);
		return rc;
	}
	if (wild)
		chan_wild_posted(c->chans, r->plain_chan);
	else
		chan_plain_posted(r->plain_chan, &r->plain_seq);
	r->req = *req;
	rec_show_plain(r);
	return MPI_SUCCESS;
}

static __attribute__((noinline)) int irecv_slow(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
						struct hcomm *c, MPI_Request *req);

static __attribute__((noinline)) int irecv_rec(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
					       struct hcomm *c, MPI_Request *req);

static inline __attribute__((always_inline)) int irecv_threads(void *buf, MPI_Count count, MPI_Datatype type, int source,
							       int tag, struct hcomm *c, MPI_Request *req, bool wild)
{
	struct chan *ch;
	struct plain p;
	struct rec *r;
	int rc;

	if (unlikely(!is_plain_of(c->npeers, buf, count, type, false, source, &p)))
		return irecv_slow(buf, count, type, source, tag, c, req);
	r = rec_own_get();
	if (unlikely(!r))
		return irecv_rec(buf, count, type, source, tag, c, req);
	ch = hcomm_recv_enter(c, source, tag, wild);
	if (unlikely(!ch)) {
		rec_own_put(r);
		return irecv_rec(buf, count, type, source, tag, c, req);
	}
	r->buf = p.at;
	r->cap = p.cap;
	rec_plain_set(r, c, ch, wild);
	rc = PMPI_Irecv(p.lib_buf ? p.lib_buf : r->small, p.lib_count, p.lib_type, source, tag, c->handle, req);
	if (unlikely(rc)) {
		chan_leave(ch, false);
		rec_own_put(r);
		return rc;
	}
	chan_plain_begin(ch);
	r->plain_seq = chan_leave(ch, !wild);
	r->req = *req;
	rec_insert(r);
	return MPI_SUCCESS;
}

static __attribute__((noinline)) int irecv_wild_threads(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
							struct hcomm *c, MPI_Request *req)
{
	return irecv_threads(buf, count, type, source, tag, c, req, true);
}

int hook_irecv_threads(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
		       MPI_Request *req)
{
	return unlikely(is_wild(source, tag)) ? irecv_wild_threads(buf, count, type, source, tag, c, req) :
	       irecv_threads(buf, count, type, source, tag, c, req, false);
}

/* On another channel than the last one, or of wildcards. */
static __attribute__((noinline)) int irecv_channel(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
						   struct hcomm *c, MPI_Request *req)
{
	struct chan *ch;
	struct plain p;

	if (unlikely(hooks.mt))
		return hook_irecv_threads(buf, count, type, source, tag, c, req);
	if (unlikely(!rec_spare || !is_plain(c, buf, count, type, source, &p)))
		return irecv_slow(buf, count, type, source, tag, c, req);
	ch = chan_plain_find(c->chans, chan_source(source), chan_tag(tag));
	if (unlikely(!ch))
		return irecv_slow(buf, count, type, source, tag, c, req);
	return irecv_plain(&p, source, tag, c, req, ch, source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG);
}

static __attribute__((noinline)) int irecv_wild(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
						struct hcomm *c, MPI_Request *req)
{
	struct chan *ch = chan_wild_last(c->chans, chan_source(source), chan_tag(tag));
	struct plain p;

	if (unlikely(!ch || !rec_spare || !is_plain(c, buf, count, type, source, &p)))
		return irecv_channel(buf, count, type, source, tag, c, req);
	return irecv_plain(&p, source, tag, c, req, ch, true);
}

int hook_irecv(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
	       MPI_Request *req)
{
	struct chan *ch = chan_plain_last(c->chans, source, tag);
	struct plain p;

	if (source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG)
		return irecv_wild(buf, count, type, source, tag, c, req);
	if (unlikely(!ch || !rec_spare || !is_plain(c, buf, count, type, source, &p)))
		return irecv_channel(buf, count, type, source, tag, c, req);
	return irecv_plain(&p, source, tag, c, req, ch, false);
}

static __attribute__((noinline)) int irecv_slow(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
						struct hcomm *c, MPI_Request *req)
{
	if (is_bad(c, source, count))
		return NATIVE(Irecv, buf, count, type, source, tag, c->handle, req);
	if ((rec_spare || hooks.mt) && !type_is_last(type) && type_look(type))
		return irecv_channel(buf, count, type, source, tag, c, req);
	return irecv_rec(buf, count, type, source, tag, c, req);
}

static int irecv_rec(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c, MPI_Request *req)
{
	struct rec *r;
	int rc;

	r = rec_new(c, REC_RECV);
	if (unlikely(!r))
		return hcomm_raise(c, MPI_ERR_NO_MEM, "MPI_Irecv");
	rc = recv_args(r, buf, count, type, source, tag);
	if (unlikely(rc)) {
		rec_free(r);
		return rc == MPI_ERR_NO_MEM ? hcomm_raise(c, rc, "MPI_Irecv") :
		       NATIVE(Irecv, buf, count, type, source, tag, c->handle, req);
	}
	rc = recv_begin(r);
	if (!rc && unlikely(r->standin)) {
		rc = standin_new(&r->req);
		if (rc) {
			rec_wait(r);
			hcomm_raise(c, rc, "MPI_Irecv");
		}
	}
	if (unlikely(rc)) {
		rec_free(r);
		return rc;
	}
	*req = r->req;
	rec_show(r);
	return MPI_SUCCESS;
}

static _Thread_local bool polling;

int recv_cancel(struct rec *r)
{
	struct hcomm *c = r->c;
	struct chan_recv *cr;
	int rc = 0;

	if (r->held || r->state != REC_POSTED)
		return MPI_SUCCESS;
	hooks_lock(&c->lock);
	if (r->counted) {
		/* the first that was announced takes the later ones with it */
		for (cr = &r->cr; cr; cr = cr->next) {
			struct rec *a = (struct rec *)(void *)((char *)cr - offsetof(struct rec, cr));

			if (!a->announced)
				continue;
			polling = true;
			rc = prog_msg_withdraw(hp2p_space, a->m);
			polling = false;
			if (rc == -ECONNRESET)	/* nobody is going to match it any more */
				rc = 0;
			break;
		}
		if (!rc)
			chan_recv_float(c->chans, &r->cr, float_one, NULL);
	}
	hooks_unlock(&c->lock);
	return rc ? MPI_SUCCESS : PMPI_Cancel(&r->req);
}

/* ---- handles that the library does not complete ----------------------------------------------- */

static int standin_query(void *extra, MPI_Status *status)
{
	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	return MPI_SUCCESS;
}

static int standin_free(void *extra)
{
	return MPI_SUCCESS;
}

static int standin_cancel(void *extra, int complete)
{
	return MPI_SUCCESS;
}

int standin_new(MPI_Request *req)
{
	return PMPI_Grequest_start(standin_query, standin_free, standin_cancel, NULL, req);
}

void standin_end(struct rec *r, MPI_Request *req)
{
	MPI_Request h = r->req;

	if (r->persistent)
		return;
	PMPI_Grequest_complete(h);
	PMPI_Wait(&h, MPI_STATUS_IGNORE);
	*req = MPI_REQUEST_NULL;
}

/* ---- nobody's --------------------------------------------------------------------------------- */

static pthread_mutex_t orphan_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rec *orphans;
static atomic_int orphan_count;

void orphan_add(struct rec *r)
{
	pthread_mutex_lock(&orphan_lock);
	r->next = orphans;
	orphans = r;
	atomic_fetch_add_explicit(&orphan_count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&p2p_nobodys, 1, memory_order_relaxed);
	pthread_mutex_unlock(&orphan_lock);
}

/* An orphan that has ended. */
static void bury(struct rec *r)
{
	MPI_Status st;

	rec_outcome(r, &st);
	if (r->standin)
		standin_end(r, &r->req);
	else
		PMPI_Wait(&r->req, MPI_STATUS_IGNORE);
	if (r->persistent && r->req != MPI_REQUEST_NULL)
		PMPI_Request_free(&r->req);
	rec_free(r);
}

static void orphans_poll(void)
{
	struct rec **p, *r;

	if (pthread_mutex_trylock(&orphan_lock))
		return;
	for (p = &orphans; (r = *p);) {
		if (!rec_poll(r)) {
			p = &r->next;
			continue;
		}
		*p = r->next;
		atomic_fetch_sub_explicit(&orphan_count, 1, memory_order_relaxed);
		atomic_fetch_sub_explicit(&p2p_nobodys, 1, memory_order_relaxed);
		bury(r);
	}
	pthread_mutex_unlock(&orphan_lock);
}

void p2p_look_after(void)
{
	if (polling)
		return;
	polling = true;
	if (unlikely(atomic_load_explicit(&orphan_count, memory_order_relaxed)))
		orphans_poll();
	if (__atomic_load_n(&cand_count, __ATOMIC_RELAXED) && !pthread_mutex_trylock(&cand_lock)) {
		look_locked();
		pthread_mutex_unlock(&cand_lock);
	}
	polling = false;
}

/* ---- sends ------------------------------------------------------------------------------------ */

/* Did a message to @rank, in MPI_COMM_WORLD, fail? */
static bool shunned(uint32_t rank)
{
	uint64_t until = shun_until ? atomic_load_explicit(&shun_until[rank], memory_order_relaxed) : 0;

	return unlikely(until) && now_ns() < until;
}

bool send_managed(const struct hcomm *c, uint64_t bytes, int dest)
{
	return bytes >= p2p_least && dest != c->self &&
	       bytes >= prog_msg_threshold(hp2p_space, c->world[dest]) && !shunned(c->world[dest]) &&
	       !is_left(c->world[dest]);
}

int send_post(struct rec *r, int mode, const struct chan_pos *pos, MPI_Request *req)
{
	struct hcomm *c = r->c;
	const struct prog_msg_key key = {
		.comm = c->id,
		.src = (uint32_t)hooks.world_rank,
		.dst = c->world[r->peer],
		.tag = r->peer_tag,
		.gen = pos->gen,
		.ord = pos->ord,
	};
	struct prog_buf b = buf_of(r);
	struct prog_msg_name name;
	int rc;

	if (atomic_load_explicit(&sends, memory_order_relaxed) >= SENDS_MAX ||
	    prog_msg_send(hp2p_space, &key, &b, (mode == SEND_SYNC ? PROG_MSG_SYNC : PROG_MSG_EARLY) |
			  (send_waits(key.dst) ? PROG_MSG_WAITS : 0), &name, &r->m))
		return -EAGAIN;
	desc_make((struct desc *)(void *)r->small, c, key.dst, &name, pos);
	rc = PMPI_Isend(r->small, DESC_SIZE, MPI_BYTE, r->peer, r->peer_tag, c->handle, req);
	if (rc) {
		prog_msg_free(hp2p_space, r->m);
		r->m = NULL;
		return rc;
	}
	atomic_fetch_add_explicit(&sends, 1, memory_order_relaxed);
	r->managed = true;
	r->state = REC_MOVING;
	r->native_done = false;
	return 0;
}

static inline int isend_native(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type,
			int dest, int tag, MPI_Request *req)
{
	switch (mode) {
	case SEND_SYNC:
		return NATIVE(Issend, buf, count, type, dest, tag, c->handle, req);
	case SEND_READY:
		return NATIVE(Irsend, buf, count, type, dest, tag, c->handle, req);
	case SEND_BUF:
		return NATIVE(Ibsend, buf, count, type, dest, tag, c->handle, req);
	default:
		return NATIVE(Isend, buf, count, type, dest, tag, c->handle, req);
	}
}

static inline int send_native(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type,
		       int dest, int tag)
{
	switch (mode) {
	case SEND_SYNC:
		return NATIVE(Ssend, buf, count, type, dest, tag, c->handle);
	case SEND_READY:
		return NATIVE(Rsend, buf, count, type, dest, tag, c->handle);
	case SEND_BUF:
		return NATIVE(Bsend, buf, count, type, dest, tag, c->handle);
	default:
		return NATIVE(Send, buf, count, type, dest, tag, c->handle);
	}
}

/* Packed bytes of a message; 0 also for arguments that are wrong. */
static inline uint64_t send_bytes(MPI_Count count, MPI_Datatype type)
{
	const struct htype *t;
	uint64_t bytes;

	if (unlikely(count <= 0 || htype_get(type, &t) ||
		     __builtin_mul_overflow((uint64_t)count, t->size, &bytes) ||
		     bytes > PROG_DTYPE_MAX_BYTES))
		return 0;
	return bytes;
}

/* A record for a send that is to be managed; NULL: leave it to the library. */
static struct rec *send_rec(struct hcomm *c, const void *buf, MPI_Count count, MPI_Datatype type, int dest,
			    int tag)
{
	struct rec *r = rec_new(c, REC_SEND);

	if (!r)
		return NULL;
	if (buf_set(r, buf, count, type)) {
		rec_free(r);
		return NULL;
	}
	r->peer = dest;
	r->peer_tag = tag;
	return r;
}

int send_post_threads(struct rec *r, int mode, MPI_Request *req)
{
	struct hcomm *c = r->c;
	struct chan_pos pos;
	struct chan *ch;
	int rc = -EAGAIN;

	pthread_mutex_lock(&c->lock);
	ch = chan_send_own(c->chans, r->peer, r->peer_tag, &pos);
	if (ch)
		rc = send_post(r, mode, &pos, req);
	if (ch && rc)
		chan_send_undo(c->chans, r->peer, r->peer_tag);
	else if (ch)
		chan_send_done(ch);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

/* With several threads, one that is the library's alone. */
static inline int isend_entered(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest,
				int tag, MPI_Request *req)
{
	struct chan *ch = hcomm_send_enter(c, dest, tag);
	int rc = isend_native(c, mode, buf, count, type, dest, tag, req);

	if (likely(ch))
		chan_leave(ch, !rc);
	return rc;
}

/*
 * A message is on its way: behind *@req is the library's part, and in *@rec ours, NULL if it is the library's alone.
 */
static int send_begin(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type,
		      int dest, int tag, MPI_Request *req, struct rec **rec)
{
	uint64_t bytes = send_bytes(count, type);
	struct rec *r = NULL;
	struct chan_pos pos;
	int rc = -EAGAIN;
	bool counted;

	*rec = NULL;
	if (unlikely((unsigned int)dest >= c->npeers))
		return isend_native(c, mode, buf, count, type, dest, tag, req);
	if (unlikely(bytes >= p2p_least) && mode != SEND_BUF && send_managed(c, bytes, dest))
		r = send_rec(c, buf, count, type, dest, tag);
	if (unlikely(hooks.mt)) {
		if (r)
			rc = send_post_threads(r, mode, req);
		if (rc != -EAGAIN)
			*rec = r;
		else
			rc = isend_entered(c, mode, buf, count, type, dest, tag, req);
	} else {
		counted = !chan_send(c->chans, dest, tag, &pos);
		if (unlikely(r) && counted)
			rc = send_post(r, mode, &pos, req);
		if (rc != -EAGAIN)
			*rec = r;
		else
			rc = isend_native(c, mode, buf, count, type, dest, tag, req);
		if (unlikely(rc) && counted)
			chan_send_undo(c->chans, dest, tag);
	}
	if (unlikely(r) && (rc || !*rec)) {
		rec_free(r);
		*rec = NULL;
	}
	return rc;
}

static const char *const send_call[] = {
	[SEND_STD] = "MPI_Send", [SEND_SYNC] = "MPI_Ssend", [SEND_READY] = "MPI_Rsend", [SEND_BUF] = "MPI_Bsend"
};
static const char *const isend_call[] = {
	[SEND_STD] = "MPI_Isend", [SEND_SYNC] = "MPI_Issend", [SEND_READY] = "MPI_Irsend", [SEND_BUF] = "MPI_Ibsend"
};

/* What became of a managed send, for calls that complete one. */
static int send_result(struct rec *r, const char *call)
{
	MPI_Status st;
	int class = rec_outcome(r, &st);

	return class ? hcomm_raise(r->c, class, call) : MPI_SUCCESS;
}

/* A message that is the library's alone, of the last type. */
static inline bool send_is_plain_of(uint32_t peers, MPI_Count count, MPI_Datatype type, int dest)
{
	return likely((unsigned int)dest < peers && (uint64_t)count <= INT_MAX && type_is_last(type) &&
		      (uint64_t)count * htype_last.size < p2p_least);
}

static inline bool send_is_plain(const struct hcomm *c, MPI_Count count, MPI_Datatype type, int dest)
{
	return send_is_plain_of(c->quick_peers, count, type, dest);
}

static int send_begun(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest, int tag)
{
	MPI_Request req;
	struct rec *r;
	int rc = send_begin(c, mode, buf, count, type, dest, tag, &req, &r);

	if (rc)
		return rc;
	if (r) {
		r->req = req;
		rec_wait(r);
	}
	rc = PMPI_Wait(&req, MPI_STATUS_IGNORE);
	if (r) {
		int class = send_result(r, send_call[mode]);

		rc = rc ? rc : class;
		rec_free(r);
	}
	return rc;
}

/* Is it the library's alone, whoever it goes to?  With several threads. */
static inline bool send_is_plain_threads(int mode, MPI_Count count, MPI_Datatype type)
{
	if (likely((uint64_t)count <= INT_MAX && (type_is_last(type) || type_look(type)) &&
		   (uint64_t)count * htype_last.size < p2p_least))
		return true;
	return mode == SEND_BUF || send_bytes(count, type) < p2p_least;
}

static int send_threads(struct hcomm *c, int mode, const void *buf,
			MPI_Count count, MPI_Datatype type, int dest, int tag)
{
	struct chan *ch;
	int rc;

	if (unlikely((unsigned int)dest >= c->npeers))
		return send_native(c, mode, buf, count, type, dest, tag);
	if (unlikely(!send_is_plain_threads(mode, count, type)))
		return send_begun(c, mode, buf, count, type, dest, tag);
	ch = hcomm_send_enter(c, dest, tag);
	rc = send_native(c, mode, buf, count, type, dest, tag);
	if (likely(ch))
		chan_leave(ch, !rc);
	return rc;
}

/* Of another channel or type than the last ones, or managed. */
static int send_other(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest, int tag)
{
	struct chan_pos pos;
	int rc, bad;

	if ((unsigned int)dest >= c->npeers)
		return send_native(c, mode, buf, count, type, dest, tag);
	if (!type_is_last(type))
		type_look(type);
	if (!send_is_plain(c, count, type, dest) && mode != SEND_BUF)
		return send_begun(c, mode, buf, count, type, dest, tag);
	bad = chan_send(c->chans, dest, tag, &pos);
	rc = send_native(c, mode, buf, count, type, dest, tag);
	if (unlikely(rc) && !bad)
		chan_send_undo(c->chans, dest, tag);
	return rc;
}

static int isend_begun(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest,
		       int tag, MPI_Request *req)
{
	struct rec *r;
	int rc = send_begin(c, mode, buf, count, type, dest, tag, req, &r);

	if (!r)
		return rc;
	/* the library may have one handle for all sends that are complete at once, so the program gets another */
	rec_posted(r);
	r->inner = *req;
	r->standin = true;
	rc = standin_new(&r->req);
	if (rc) {
		rec_wait(r);
		rec_free(r);
		return hcomm_raise(c, native_class(rc), isend_call[mode]);
	}
	*req = r->req;
	rec_show(r);
	return MPI_SUCCESS;
}

static int isend_threads(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest,
			 int tag, MPI_Request *req)
{
	if (likely((unsigned int)dest < c->npeers) && likely(send_is_plain_threads(mode, count, type)))
		return isend_entered(c, mode, buf, count, type, dest, tag, req);
	return isend_begun(c, mode, buf, count, type, dest, tag, req);
}

static int isend_other(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest,
		      int tag, MPI_Request *req)
{
	struct chan_pos pos;
	int rc, bad;

	if (!type_is_last(type))
		type_look(type);
	if (!send_is_plain(c, count, type, dest))
		return isend_begun(c, mode, buf, count, type, dest, tag, req);
	bad = chan_send(c->chans, dest, tag, &pos);
	rc = isend_native(c, mode, buf, count, type, dest, tag, req);
	if (unlikely(rc) && !bad)
		chan_send_undo(c->chans, dest, tag);
	return rc;
}

/*
 * The ways of most small messages: when anything is not as it was with the last one they go elsewhere with all their
 * arguments, so they have nothing to save.  With one thread it is the same whether a message is counted before or after
 * the library has it.
 */
#define SEND(low, Name, mode)							\
	static __attribute__((noinline)) int						\
	low##_slow(const void *buf, MPI_Count count, MPI_Datatype type,		\
		   int dest, int tag, struct hcomm *c)				\
	{									\
		return hooks.mt ? send_threads(c, mode, buf, count, type, dest, tag) : \
		       send_other(c, mode, buf, count, type, dest, tag);	\
	}									\
	int hook_##low##_threads(const void *buf, MPI_Count count, MPI_Datatype type, \
				 int dest, int tag, struct hcomm *c)		\
	{									\
		struct chan *ch;						\
		int rc;								\
										\
		if (unlikely(!send_is_plain_of(c->npeers, count, type, dest)))	\
			return low##_slow(buf, count, type, dest, tag, c);	\
		ch = chan_send_enter(c->chans, dest, tag);			\
		if (unlikely(!ch))						\
			return low##_slow(buf, count, type, dest, tag, c);	\
		rc = PMPI_##Name(buf, (int)count, type, dest, tag, c->handle);	\
		chan_leave(ch, !rc);						\
		return rc;							\
	}									\
	int hook_##low(const void *buf, MPI_Count count, MPI_Datatype type,	\
		       int dest, int tag, struct hcomm *c)			\
	{									\
		struct chan *ch = chan_send_last(c->chans, dest, tag);		\
		int rc;								\
										\
		if (unlikely(!ch || !send_is_plain(c, count, type, dest)))	\
			return low##_slow(buf, count, type, dest, tag, c);	\
		rc = PMPI_##Name(buf, (int)count, type, dest, tag, c->handle);	\
		if (likely(!rc))						\
			chan_sent(ch);						\
		return rc;							\
	}
#define ISEND(low, Name, mode)							\
	static __attribute__((noinline)) int						\
	low##_slow(const void *buf, MPI_Count count, MPI_Datatype type,		\
		   int dest, int tag, struct hcomm *c, MPI_Request *req)	\
	{									\
		return hooks.mt ? isend_threads(c, mode, buf, count, type, dest, tag, req) : \
		       isend_other(c, mode, buf, count, type, dest, tag, req);	\
	}									\
	int hook_##low##_threads(const void *buf, MPI_Count count, MPI_Datatype type, \
				 int dest, int tag, struct hcomm *c, MPI_Request *req) \
	{									\
		struct chan *ch;						\
		int rc;								\
										\
		if (unlikely(!send_is_plain_of(c->npeers, count, type, dest)))	\
			return low##_slow(buf, count, type, dest, tag, c, req);	\
		ch = chan_send_enter(c->chans, dest, tag);			\
		if (unlikely(!ch))						\
			return low##_slow(buf, count, type, dest, tag, c, req);	\
		rc = PMPI_##Name(buf, (int)count, type, dest, tag, c->handle,	\
				 req);						\
		chan_leave(ch, !rc);						\
		return rc;							\
	}									\
	int hook_##low(const void *buf, MPI_Count count, MPI_Datatype type,	\
		       int dest, int tag, struct hcomm *c, MPI_Request *req)	\
	{									\
		struct chan *ch = chan_send_last(c->chans, dest, tag);		\
		int rc;								\
										\
		if (unlikely(!ch || !send_is_plain(c, count, type, dest)))	\
			return low##_slow(buf, count, type, dest, tag, c, req);	\
		rc = PMPI_##Name(buf, (int)count, type, dest, tag, c->handle,	\
				 req);						\
		if (likely(!rc))						\
			chan_sent(ch);						\
		return rc;							\
	}

SEND(send, Send, SEND_STD)
SEND(ssend, Ssend, SEND_SYNC)
SEND(rsend, Rsend, SEND_READY)
SEND(bsend, Bsend, SEND_BUF)
ISEND(isend, Isend, SEND_STD)
ISEND(issend, Issend, SEND_SYNC)
ISEND(irsend, Irsend, SEND_READY)
ISEND(ibsend, Ibsend, SEND_BUF)

/* ---- both at once ----------------------------------------------------------------------------- */

/*
 * Small ones, one thread: the library's own call.  @r has the receive.
 */
static int sendrecv_native(struct rec *r, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
			   int dest, int sendtag, MPI_Status *st)
{
	struct hcomm *c = r->c;
	struct chan_pos pos;
	bool counted = !chan_send(c->chans, dest, sendtag, &pos);
	int rc;

#if MPI_VERSION >= 4
	if (unlikely(sendcount > INT_MAX || r->lib_count > INT_MAX))
		rc = PMPI_Sendrecv_c(sendbuf, sendcount, sendtype, dest, sendtag, r->lib_buf,
				     r->lib_count, r->lib_type, r->peer, r->peer_tag, c->handle, st);
	else
#endif
		rc = PMPI_Sendrecv(sendbuf, (int)sendcount, sendtype, dest, sendtag, r->lib_buf,
				   (int)r->lib_count, r->lib_type, r->peer, r->peer_tag, c->handle, st);
	if (unlikely(rc) && counted && native_class(rc) != MPI_ERR_TRUNCATE)
		chan_send_undo(c->chans, dest, sendtag);
	return recv_finish(r, rc, st, "MPI_Sendrecv");
}

/* ... into one block. */
static inline int sendrecv_plain(struct hcomm *c, const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest,
				 int sendtag, const struct plain *p, int source, int recvtag, MPI_Status *st)
{
	struct chan_pos pos;
	bool counted = !chan_send(c->chans, dest, sendtag, &pos);
	int rc = PMPI_Sendrecv(sendbuf, sendcount, sendtype, dest, sendtag, p->lib_buf ? p->lib_buf : rec_landing,
			       p->lib_count, p->lib_type, source, recvtag, c->handle, st);

	if (unlikely(rc) && counted && native_class(rc) != MPI_ERR_TRUNCATE)
		chan_send_undo(c->chans, dest, sendtag);
	return rc;
}

static void wait_both(struct rec *s, struct rec *r)
{
	unsigned int spins = 0;

	for (;;) {
		bool received = rec_poll(r);

		if (rec_poll(s)) {
			if (received)
				return;
			rec_idle(r, &spins);
		} else {
			rec_idle(received || r->announced ? s : NULL, &spins);
		}
	}
}

static int sendrecv(struct hcomm *c, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
		    int dest, int sendtag, struct rec *r, MPI_Status *st)
{
	uint64_t bytes = send_bytes(sendcount, sendtype);
	MPI_Request req;
	struct rec *s;
	int rc, src;

	if (likely(!hooks.mt && bytes < p2p_least && r->cap < p2p_least && !c->held))
		return sendrecv_native(r, sendbuf, sendcount, sendtype, dest, sendtag, st);
	rc = recv_begin(r);
	if (rc)
		return rc;
	src = send_begin(c, SEND_STD, sendbuf, sendcount, sendtype, dest, sendtag, &req, &s);
	if (src)
		recv_cancel(r);
	if (s) {
		s->req = req;
		wait_both(s, r);
	}
	if (!src)
		src = PMPI_Wait(&req, MPI_STATUS_IGNORE);
	rc = r->standin ? MPI_SUCCESS : PMPI_Wait(&r->req, st);
	rc = recv_finish(r, rc, st, "MPI_Sendrecv");
	if (s) {
		int class = send_result(s, "MPI_Sendrecv");

		src = src ? src : class;
		rec_free(s);
	}
	return rc ? rc : src;
}

static __attribute__((noinline)) int sendrecv_slow(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
						   int dest, int sendtag, void *recvbuf, MPI_Count recvcount,
						   MPI_Datatype recvtype, int source, int recvtag, struct hcomm *c,
						   MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct plain p;
	struct rec *r;
	int rc;

	if (source == MPI_PROC_NULL) {
		rc = hook_send(sendbuf, sendcount, sendtype, dest, sendtag, c);
		return rc ? rc : NATIVE(Recv, recvbuf, recvcount, recvtype, source, recvtag, c->handle,
					status);
	}
	if (dest == MPI_PROC_NULL) {
		rc = NATIVE(Send, sendbuf, sendcount, sendtype, dest, sendtag, c->handle);
		return rc ? rc : hook_recv(recvbuf, recvcount, recvtype, source, recvtag, c, status);
	}
	if ((type_is_last(recvtype) || type_look(recvtype)) &&
	    is_plain(c, recvbuf, recvcount, recvtype, source, &p) &&
	    (type_is_last(sendtype) || type_look(sendtype)) && send_is_plain(c, sendcount, sendtype, dest)) {
		rc = sendrecv_plain(c, sendbuf, (int)sendcount, sendtype, dest, sendtag, &p, source, recvtag, st);
		return plain_end(c, p.at, p.cap, rc, st, "MPI_Sendrecv");
	}
	r = rec_new(c, REC_RECV);
	if (!r)
		return hcomm_raise(c, MPI_ERR_NO_MEM, "MPI_Sendrecv");
	if ((unsigned int)dest >= c->npeers || sendcount < 0 || is_bad(c, source, recvcount) ||
	    recv_args(r, recvbuf, recvcount, recvtype, source, recvtag)) {
#if MPI_VERSION >= 4
		rc = PMPI_Sendrecv_c(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
				     recvtype, source, recvtag, c->handle, status);
#else
		rc = PMPI_Sendrecv(sendbuf, (int)sendcount, sendtype, dest, sendtag, recvbuf,
				   (int)recvcount, recvtype, source, recvtag, c->handle, status);
#endif
	} else {
		rc = sendrecv(c, sendbuf, sendcount, sendtype, dest, sendtag, r, st);
	}
	rec_free(r);
	return rc;
}

/* Small ones of one type, on the channel of the last message sent, with one thread. */
int hook_sendrecv(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
		  void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag,
		  struct hcomm *c, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct chan *ch = chan_send_last(c->chans, dest, sendtag);
	struct plain p;
	int rc;

	if (unlikely(!ch || sendtype != recvtype || !send_is_plain(c, sendcount, sendtype, dest) ||
		     !is_plain_of(c->quick_peers, recvbuf, recvcount, recvtype, true, source, &p)))
		return sendrecv_slow(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype,
				     source, recvtag, c, status);
	rc = PMPI_Sendrecv(sendbuf, (int)sendcount, sendtype, dest, sendtag, p.lib_buf ? p.lib_buf : rec_landing,
			   p.lib_count, p.lib_type, source, recvtag, c->handle, st);
	if (likely(!rc) || native_class(rc) == MPI_ERR_TRUNCATE)
		chan_sent(ch);
	return plain_end(c, p.at, p.cap, rc, st, __func__);
}

/* Both the library's alone. */
int hook_sendrecv_threads(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
			  void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag,
			  struct hcomm *c, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	bool wild = is_wild(source, recvtag);
	struct chan *from, *to;
	struct plain p;
	struct rec *r;
	int rc;

	if (unlikely((unsigned int)dest >= c->npeers || (uint64_t)sendcount > INT_MAX ||
		     !send_is_plain_threads(SEND_STD, sendcount, sendtype) ||
		     !(type_is_last(recvtype) || type_look(recvtype)) ||
		     !is_plain_of(c->npeers, recvbuf, recvcount, recvtype, true, source, &p)))
		goto slow;
	r = rec_own_look();
	from = likely(r) ? hcomm_recv_enter(c, source, recvtag, wild) : NULL;
	if (unlikely(!from))
		goto slow;
	to = hcomm_send_enter(c, dest, sendtag);
	rc = PMPI_Sendrecv(sendbuf, (int)sendcount, sendtype, dest, sendtag, p.lib_buf ? p.lib_buf : r->small,
			   p.lib_count, p.lib_type, source, recvtag, c->handle, st);
	if (likely(to))
		chan_leave(to, likely(!rc) || native_class(rc) == MPI_ERR_TRUNCATE);
	return plain_end_threads(c, r->small, from, wild, &p, rc, st, __func__);
slow:
	return sendrecv_slow(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag, c,
			     status);
}

/* A packed copy of what is to be sent; the library says what is wrong with the arguments if there is none. */
static void *packed_copy(struct hcomm *c, const void *buf, MPI_Count count, MPI_Datatype type,
			 uint64_t *bytes)
{
	struct rec *r = rec_new(c, REC_SEND);
	void *copy = NULL;

	if (!r)
		return NULL;
	if (!buf_set(r, buf, count, type) && r->cap <= PACKED_MAX)
		copy = buf_packed(r);
	*bytes = r->cap;
	rec_free(r);
	return copy;
}

int hook_sendrecv_replace(void *buf, MPI_Count count, MPI_Datatype type, int dest, int sendtag, int source,
			  int recvtag, struct hcomm *c, MPI_Status *status)
{
	uint64_t bytes;
	void *copy = NULL;
	int rc;

	if (dest == MPI_PROC_NULL || source == MPI_PROC_NULL)
		return hook_sendrecv(buf, count, type, dest, sendtag, buf, count, type, source, recvtag, c,
				     status);
	if ((unsigned int)dest < c->npeers && !is_bad(c, source, count))
		copy = packed_copy(c, buf, count, type, &bytes);
	if (!copy)
		return NATIVE(Sendrecv_replace, buf, count, type, dest, sendtag, source, recvtag,
			      c->handle, status);
	rc = hook_sendrecv(copy, (MPI_Count)bytes, MPI_BYTE, dest, sendtag, buf, count, type, source,
			   recvtag, c, status);
	free(copy);
	return rc;
}

#if MPI_VERSION >= 4
/* One half of a pair: the library's part is its `inner'. */
static int half_recv(struct rec *r, void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
		     const char *call)
{
	int rc;

	if (source == MPI_PROC_NULL) {
		r->source = source;
		r->tag = MPI_ANY_TAG;
		r->standin = true;
		r->state = REC_READY;
		return MPI_SUCCESS;
	}
	if (!is_source(r->c, source))
		return hcomm_raise(r->c, MPI_ERR_RANK, call);
	rc = recv_args(r, buf, count, type, source, tag);
	if (rc)
		return hcomm_raise(r->c, rc, call);
	rc = recv_begin(r);
	if (!rc && !r->standin) {
		r->inner = r->req;
		r->standin = true;
	}
	return rc;
}

static int half_send(struct rec **s, const void *buf, MPI_Count count, MPI_Datatype type, int dest, int tag)
{
	struct rec *managed;
	MPI_Request req;
	int rc = send_begin((*s)->c, SEND_STD, buf, count, type, dest, tag, &req, &managed);

	if (rc)
		return rc;
	if (managed) {
		rec_free(*s);
		*s = managed;
		rec_posted(managed);
	}
	(*s)->standin = true;
	(*s)->inner = req;
	return MPI_SUCCESS;
}

/* One handle for both.  @copy, if any, is what is sent; it is the record's from here on. */
static int isendrecv(struct hcomm *c, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
		     int dest, int sendtag, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
		     int source, int recvtag, void *copy, MPI_Request *request, const char *call)
{
	struct rec *pair = rec_new(c, REC_PAIR), *r = rec_new(c, REC_RECV), *s = rec_new(c, REC_SEND);
	int rc;

	if (!pair || !r || !s) {
		rc = hcomm_raise(c, MPI_ERR_NO_MEM, call);
		goto free_all;
	}
	pair->packed = copy;
	copy = NULL;
	rc = standin_new(&pair->req);
	if (rc)
		goto free_all;
	rc = half_recv(r, recvbuf, recvcount, recvtype, source, recvtag, call);
	if (rc)
		goto free_handle;
	pair->standin = true;
	pair->part[0] = r;
	pair->part[1] = s;
	rc = half_send(&pair->part[1], sendbuf, sendcount, sendtype, dest, sendtag);
	if (rc) {	/* what is under way ends without the program */
		recv_cancel(r);
		s->native_done = true;
		orphan_add(pair);
		return rc;
	}
	if (r->posted_at || pair->part[1]->posted_at)
		rec_posted(pair);
	*request = pair->req;
	rec_show(pair);
	return MPI_SUCCESS;
free_handle:
	standin_end(pair, &pair->req);
free_all:
	if (pair)
		rec_free(pair);
	if (r)
		rec_free(r);
	if (s)
		rec_free(s);
	free(copy);
	return rc;
}

int hook_isendrecv(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
		   void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag,
		   struct hcomm *c, MPI_Request *request)
{
	return isendrecv(c, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype,
			 source, recvtag, NULL, request, __func__);
}

int hook_isendrecv_replace(void *buf, MPI_Count count, MPI_Datatype type, int dest, int sendtag, int source,
			   int recvtag, struct hcomm *c, MPI_Request *request)
{
	uint64_t bytes;
	void *copy = packed_copy(c, buf, count, type, &bytes);

	if (!copy)
		return NATIVE(Isendrecv_replace, buf, count, type, dest, sendtag, source, recvtag,
			      c->handle, request);
	return isendrecv(c, copy, (MPI_Count)bytes, MPI_BYTE, dest, sendtag, buf, count, type, source,
			 recvtag, copy, request, __func__);
}
#endif

/* ---- begin and end ---------------------------------------------------------------------------- */

static void ranks_begin(const struct prog_win *space)
{
	int n;

	if (PMPI_Comm_size(MPI_COMM_WORLD, &n))
		return;
	shun_until = calloc((size_t)n, sizeof(*shun_until));
	partners = calloc((size_t)n, sizeof(*partners));
	for (int i = 0; partners && i < n; i++)
		partners[i].near = prog_msg_near(space, (uint32_t)i);
}

int p2p_begin(struct prog_win *space)
{
	/* what is shorter would not cover its descriptor */
	uint64_t own = prog_msg_min(space) < DESC_SIZE ? DESC_SIZE : prog_msg_min(space), all;

	if (desc_init() || rec_begin())
		own = UINT64_MAX;
	/* a receiver must not take a buffer for too small that a sender finds large enough */
	if (PMPI_Allreduce(&own, &all, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD) || all == UINT64_MAX)
		return -EIO;
	p2p_least = all;
	prog_msg_set_look(space, look, NULL);
	ranks_begin(space);
	return 0;
}

#define END_NS	2000000000ull	/* that freed receives which nothing was sent to are waited for */

void p2p_end(void)
{
	uint64_t end = now_ns() + END_NS;

	/* sends end when somebody has received them, as they do in the library */
	while (atomic_load_explicit(&orphan_count, memory_order_relaxed) &&
	       (atomic_load_explicit(&sends, memory_order_relaxed) > 0 || now_ns() < end)) {
		hooks_progress(NULL);
		p2p_poll();
		sched_yield();
	}
	free(partners);
	partners = NULL;
	free(shun_until);
	shun_until = NULL;
}

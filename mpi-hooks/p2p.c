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

#include "hooks_gen.h"

#define ANNOUNCED_MAX	512	/* at most so many of libprogclient's slots for announced receives .. */
#if MPI_VERSION >= 4
#define PACKED_MAX	PROG_DTYPE_MAX_BYTES
#else
#define PACKED_MAX	((uint64_t)INT_MAX)	/* counts are ints */
#endif
#define SENDS_MAX	256	/* .. and sends: named receives end by themselves, and must get one */

#define SHUN_NS		10000000000ull

#define NEAR_NOT	255	/* near_quick: not of this node, or no CMA */
#define NEAR_SURE	2	/* so many in a row */
#define NEAR_BYTES_NS	8	/* copied in a nanosecond, about */

uint64_t p2p_least = UINT64_MAX;
atomic_int p2p_nobodys;
static atomic_int announced, sends;
static uint8_t *near_quick;		/* [rank in MPI_COMM_WORLD]: see near_account() */
static _Atomic(uint64_t) *shun_until;	/* [rank in MPI_COMM_WORLD]: when to try again; NULL: no memory */

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

/* htype_get(), with a shorter way for one thread that goes on with the same type. */
static inline int type_get(MPI_Datatype type, const struct htype **out)
{
	static struct {
		MPI_Datatype type;
		unsigned int gen;
		const struct htype *t;
	} last;
	unsigned int gen = atomic_load_explicit(&htype_generation, memory_order_relaxed);
	int rc;

	if (likely(!hooks.mt && last.type == type && last.gen == gen && last.t)) {
		*out = last.t;
		return MPI_SUCCESS;
	}
	rc = htype_get(type, out);
	if (!rc && !hooks.mt) {
		last.type = type;
		last.gen = gen;
		last.t = *out;
	}
	return rc;
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
	if (likely(!type_get(type, &t))) {
		if (unlikely(__builtin_mul_overflow((uint64_t)count, t->size, &r->cap) ||
			     r->cap > PROG_DTYPE_MAX_BYTES))
			return MPI_ERR_COUNT;
		if (likely(t->contig))
			r->buf = (void *)((uintptr_t)buf + (uintptr_t)t->first);
		else
			r->dt = dtype_get(t->dt);
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

	return type_get(type, &t) || t->basic == PROG_TYPE_MIXED || DESC_SIZE % t->elem;
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

/* The message that @r->m is for has ended, as @status and @res say. */
static void arrived(struct rec *r, int status, const struct prog_msg_result *res)
{
	const void *head;
	size_t n;

	r->fix = true;
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
			buf_write(r, r->packed, r->len < r->cap ? r->len : r->cap);
		if (r->len > r->cap) {
			r->err = MPI_ERR_TRUNCATE;
			r->len = r->cap;
		}
	}
	if (r->announced)
		atomic_fetch_sub_explicit(&announced, 1, memory_order_relaxed);
	r->announced = false;
	prog_msg_free(hp2p_space, r->m);
	r->m = NULL;
	r->state = REC_READY;
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
	if (!rc)
		return false;
	arrived(r, rc < 0 ? rc : res.status, &res);
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
	else if (!r->held)
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
		buf_write(r, r->packed, bytes);
	} else if (r->shadow && bytes <= (r->land == r->small ? DESC_SIZE : r->cap)) {
		buf_write(r, r->land, bytes);
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

/* What failed on the way to a rank would fail again, so for a while its messages are the library's. */
static void shun(uint32_t rank)
{
	if (shun_until)
		atomic_store_explicit(&shun_until[rank], now_ns() + SHUN_NS, memory_order_relaxed);
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
				shun(r->c->world[r->peer]);
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
	if (r && (r->kind == REC_SEND || r->state == REC_MOVING) && r->m)
		prog_msg_wait(hp2p_space, r->m, NULL);
	else if (++*spins > 100)
		sched_yield();
	hooks_progress(NULL);
	p2p_poll();
}

void rec_wait(struct rec *r)
{
	unsigned int spins = 0;

	while (!rec_poll(r))
		rec_idle(r, &spins);
}

void rec_away(struct rec *r)
{
	r->away = now_ns() - r->posted_at + 1;
}

/*
 * A receiver that is in MPI when a message of its node comes copies it by itself, once; the daemon, which is asked
 * for it when it is announced, has to copy it twice.  So who waited at once for the last of a rank is
 * taken to do so again.  Approximate: threads may mix their updates.
 */
static void near_account(struct rec *r)
{
	uint8_t *n = near_quick ? &near_quick[r->c->world[r->source]] : NULL;

	if (!n || *n == NEAR_NOT)
		return;
	if (r->away > r->len / NEAR_BYTES_NS)
		*n = 0;
	else if (*n < NEAR_SURE)
		++*n;
}

static bool near_waits(const struct rec *r, bool wait)
{
	uint8_t n = near_quick ? near_quick[r->c->world[r->cr.source]] : NEAR_NOT;

	return n != NEAR_NOT && (wait || n == NEAR_SURE);
}

/* Non-blocking large messages, for the choice of thresholds. */
static void account(struct rec *r)
{
	if (!r->posted_at || !r->managed)
		return;
	if (r->kind == REC_RECV)
		near_account(r);
	prog_msg_account(hp2p_space, r->c->world[r->kind == REC_SEND ? r->peer : r->source],
			 r->kind == REC_SEND, r->kind == REC_SEND ? r->cap : r->len, r->away);
	r->posted_at = 0;
}

int rec_outcome(struct rec *r, MPI_Status *st)
{
	if (r->kind == REC_PAIR) {
		struct rec *a = r->part[0], *b = r->part[1];

		rec_outcome(a, st);
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
static bool announce(struct rec *r)
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
	    prog_msg_recv(hp2p_space, &key, &b, 0, &r->m))
		return false;
	atomic_fetch_add_explicit(&announced, 1, memory_order_relaxed);
	r->announced = r->cr.announced = true;
	r->whole = false;
	return true;
}

int recv_post(struct rec *r, bool wait, int (*start)(struct rec *r))
{
	struct hcomm *c = r->c;
	int rc;

	chan_recv_post(c->chans, r->peer == MPI_ANY_SOURCE ? CHAN_ANY : r->peer,
		       r->peer_tag == MPI_ANY_TAG ? CHAN_ANY : r->peer_tag, &r->cr);
	r->counted = true;
	if (unlikely(r->cap >= p2p_least) && (c->self < 0 || (r->peer != c->self && c->npeers > 1))) {
		r->big = true;
		if (!wait)
			r->posted_at = now_ns();
		if (!(r->cr.worth && !near_waits(r, wait) && announce(r)) && !wait)
			cand_add(r);
	}
	rc = start(r);
	if (likely(!rc))
		return rc;
	cand_del(r);
	if (r->m)
		unannounce(r);
	chan_recv_undo(c->chans, &r->cr);
	r->counted = false;
	return rc;
}


static int start_irecv(struct rec *r)
{
	return NATIVE(Irecv, r->lib_buf, r->lib_count, r->lib_type, r->peer, r->peer_tag, r->c->handle,
		      &r->req);
}

/* What the MPI standard says of a receive that has ended, for calls that complete one: their value. */
static int recv_result(struct rec *r, int rc, MPI_Status *st)
{
	int class = rec_outcome(r, st);

	if (unlikely(rc))
		return rc;
	return unlikely(class) && !r->raised ? hcomm_error(r->c, class) : class;
}

int recv_finish(struct rec *r, int rc, MPI_Status *st)
{
	if (r->state == REC_POSTED && likely(!r->standin))
		rec_matched(r, st, native_class(rc));
	if (unlikely(r->state != REC_READY))
		rec_wait(r);
	return recv_result(r, rc, st);
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
static int recv_now(struct rec *r, MPI_Status *st)
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
		return recv_finish(r, rc, st);
	}
	h = unlikely(c->held) ? held_take(c, r->peer, r->peer_tag) : NULL;
	if (unlikely(h)) {
		held_recv(h, r);
		return recv_finish(r, MPI_SUCCESS, st);
	}
	if (unlikely(r->cap >= p2p_least) && r->peer != MPI_ANY_SOURCE && r->peer != c->self) {
		chan_recv_post(c->chans, r->peer, r->peer_tag == MPI_ANY_TAG ? CHAN_ANY : r->peer_tag,
			       &r->cr);
		r->counted = true;
		if (r->cr.worth && !near_waits(r, true))
			announce(r);
	}
	rc = NATIVE(Recv, r->lib_buf, r->lib_count, r->lib_type, r->peer, r->peer_tag, c->handle, st);
	return recv_finish(r, rc, st);
}

/* A short message into one block, with one thread: nearly everything is the library's.  @at: where it goes. */
static inline bool is_plain(const struct hcomm *c, void *buf, MPI_Count count, MPI_Datatype type, int source,
			    char **at, uint64_t *cap)
{
	const struct htype *t;

	if (unlikely(hooks.mt || c->held || (uint64_t)count >= DESC_SIZE || !is_source(c, source) ||
		     type_get(type, &t) || t->size >= DESC_SIZE || !t->contig))
		return false;
	*at = (char *)buf + t->first;
	*cap = (uint64_t)count * t->size;
	return likely(*cap < DESC_SIZE);
}

static void plain_set(struct rec *r, void *at, uint64_t cap, int source, int tag)
{
	r->buf = at;
	r->cap = cap;
	r->peer = source;
	r->peer_tag = tag;
	r->land = r->small;
	r->shadow = true;
}

int hook_recv(struct hcomm *c, void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
	      MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	uint64_t cap, bytes;
	struct rec *r;
	char *at;
	int rc;

	if (likely(is_plain(c, buf, count, type, source, &at, &cap))) {
		rc = PMPI_Recv(rec_landing, DESC_SIZE, MPI_BYTE, source, tag, c->handle, st);
		bytes = status_bytes(st);
		if (likely(!rc && bytes <= cap)) {
			memcpy(at, rec_landing, bytes);
			chan_recv_now(c->chans, st->MPI_SOURCE, st->MPI_TAG, NULL);
			p2p_poll();
			return MPI_SUCCESS;
		}
		r = rec_new(c, REC_RECV);
		if (!r)
			return hcomm_error(c, MPI_ERR_NO_MEM);
		plain_set(r, at, cap, source, tag);
		memcpy(r->small, rec_landing, DESC_SIZE);
		rc = recv_finish(r, rc, st);
		rec_free(r);
		return rc;
	}
	r = rec_new(c, REC_RECV);
	if (!r)
		return hcomm_error(c, MPI_ERR_NO_MEM);
	if (is_bad(c, source, count) || unlikely(recv_args(r, buf, count, type, source, tag)))
		rc = NATIVE(Recv, buf, count, type, source, tag, c->handle, status);
	else
		rc = recv_now(r, st);
	rec_free(r);
	return rc;
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

int hook_irecv(struct hcomm *c, void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
	       MPI_Request *req)
{
	uint64_t cap;
	struct rec *r;
	char *at;
	int rc;

	if (likely(is_plain(c, buf, count, type, source, &at, &cap)) && (r = rec_new(c, REC_RECV))) {
		plain_set(r, at, cap, source, tag);
		chan_recv_post(c->chans, source == MPI_ANY_SOURCE ? CHAN_ANY : source,
			       tag == MPI_ANY_TAG ? CHAN_ANY : tag, &r->cr);
		r->counted = r->plain = true;
		rc = PMPI_Irecv(r->small, DESC_SIZE, MPI_BYTE, source, tag, c->handle, &r->req);
		if (unlikely(rc)) {
			chan_recv_undo(c->chans, &r->cr);
			rec_free(r);
			return rc;
		}
		*req = r->req;
		rec_show(r);
		return MPI_SUCCESS;
	}
	if (is_bad(c, source, count))
		return NATIVE(Irecv, buf, count, type, source, tag, c->handle, req);
	r = rec_new(c, REC_RECV);
	if (unlikely(!r))
		return hcomm_error(c, MPI_ERR_NO_MEM);
	rc = recv_args(r, buf, count, type, source, tag);
	if (unlikely(rc)) {
		rec_free(r);
		return rc == MPI_ERR_NO_MEM ? hcomm_error(c, rc) :
		       NATIVE(Irecv, buf, count, type, source, tag, c->handle, req);
	}
	rc = recv_begin(r);
	if (!rc && unlikely(r->standin)) {
		rc = standin_new(&r->req);
		if (rc) {
			rec_wait(r);
			hcomm_error(c, rc);
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

	if (r->standin || r->state != REC_POSTED)
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

/* Did a message to @rank, in MPI_COMM_WORLD, fail lately? */
static bool shunned(uint32_t rank)
{
	uint64_t until = shun_until ? atomic_load_explicit(&shun_until[rank], memory_order_relaxed) : 0;

	return unlikely(until) && now_ns() < until;
}

bool send_managed(const struct hcomm *c, uint64_t bytes, int dest)
{
	return bytes >= p2p_least && dest != c->self &&
	       bytes >= prog_msg_threshold(hp2p_space, c->world[dest]) && !shunned(c->world[dest]);
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
	    prog_msg_send(hp2p_space, &key, &b, mode == SEND_SYNC ? PROG_MSG_SYNC : PROG_MSG_EARLY, &name,
			  &r->m))
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

	if (unlikely(count <= 0 || type_get(type, &t) ||
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
	hooks_lock(&c->lock);
	counted = !chan_send(c->chans, dest, tag, &pos);
	if (unlikely(r) && counted)
		rc = send_post(r, mode, &pos, req);
	if (rc != -EAGAIN) {
		*rec = r;
	} else {
		rc = isend_native(c, mode, buf, count, type, dest, tag, req);
	}
	if (unlikely(rc) && counted)
		chan_send_undo(c->chans, dest, tag);
	hooks_unlock(&c->lock);
	if (unlikely(r) && (rc || !*rec)) {
		rec_free(r);
		*rec = NULL;
	}
	return rc;
}

/* What became of a managed send, for calls that complete one. */
static int send_result(struct rec *r)
{
	MPI_Status st;
	int class = rec_outcome(r, &st);

	return class ? hcomm_error(r->c, class) : MPI_SUCCESS;
}

/* A message that is the library's alone, with one thread. */
static inline bool send_is_plain(const struct hcomm *c, MPI_Count count, MPI_Datatype type, int dest)
{
	const struct htype *t;
	uint64_t bytes;

	return likely(!hooks.mt && (unsigned int)dest < c->npeers && count >= 0 && !type_get(type, &t) &&
		      !__builtin_mul_overflow((uint64_t)count, t->size, &bytes) && bytes < p2p_least);
}

static int send_slow(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type,
		     int dest, int tag)
{
	MPI_Request req;
	struct rec *r;
	int rc;

	if ((unsigned int)dest >= c->npeers)
		return send_native(c, mode, buf, count, type, dest, tag);
	rc = send_begin(c, mode, buf, count, type, dest, tag, &req, &r);
	if (rc)
		return rc;
	if (r) {
		r->req = req;
		rec_wait(r);
	}
	rc = PMPI_Wait(&req, MPI_STATUS_IGNORE);
	if (r) {
		int class = send_result(r);

		rc = rc ? rc : class;
		rec_free(r);
	}
	return rc;
}

static inline __attribute__((always_inline)) int send(struct hcomm *c, int mode, const void *buf,
						      MPI_Count count, MPI_Datatype type, int dest, int tag)
{
	struct chan_pos pos;
	int rc, bad;

	/* a buffered one does not wait, with or without the lock */
	if (unlikely(!send_is_plain(c, count, type, dest)) &&
	    (mode != SEND_BUF || (unsigned int)dest >= c->npeers))
		return send_slow(c, mode, buf, count, type, dest, tag);
	hooks_lock(&c->lock);
	bad = chan_send(c->chans, dest, tag, &pos);
	rc = send_native(c, mode, buf, count, type, dest, tag);
	if (unlikely(rc) && !bad)
		chan_send_undo(c->chans, dest, tag);
	hooks_unlock(&c->lock);
	return rc;
}

static int isend_slow(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type,
		      int dest, int tag, MPI_Request *req)
{
	struct rec *r;
	int rc = send_begin(c, mode, buf, count, type, dest, tag, req, &r);

	if (!r)
		return rc;
	/* the library may have one handle for all sends that are complete at once, so the program gets another */
	r->posted_at = now_ns();
	r->inner = *req;
	r->standin = true;
	rc = standin_new(&r->req);
	if (rc) {
		rec_wait(r);
		rec_free(r);
		return hcomm_error(c, native_class(rc));
	}
	*req = r->req;
	rec_show(r);
	return MPI_SUCCESS;
}

static inline __attribute__((always_inline)) int isend(struct hcomm *c, int mode, const void *buf,
						       MPI_Count count, MPI_Datatype type, int dest, int tag,
						       MPI_Request *req)
{
	struct chan_pos pos;
	int rc, bad;

	if (unlikely(!send_is_plain(c, count, type, dest)))
		return isend_slow(c, mode, buf, count, type, dest, tag, req);
	bad = chan_send(c->chans, dest, tag, &pos);
	rc = isend_native(c, mode, buf, count, type, dest, tag, req);
	if (unlikely(rc) && !bad)
		chan_send_undo(c->chans, dest, tag);
	return rc;
}

#define SEND(low, mode)								\
	int hook_##low(struct hcomm *c, const void *buf, MPI_Count count,	\
		       MPI_Datatype type, int dest, int tag)			\
	{									\
		return send(c, mode, buf, count, type, dest, tag);		\
	}
#define ISEND(low, mode)							\
	int hook_##low(struct hcomm *c, const void *buf, MPI_Count count,	\
		       MPI_Datatype type, int dest, int tag, MPI_Request *req)	\
	{									\
		return isend(c, mode, buf, count, type, dest, tag, req);	\
	}

SEND(send, SEND_STD)
SEND(ssend, SEND_SYNC)
SEND(rsend, SEND_READY)
SEND(bsend, SEND_BUF)
ISEND(isend, SEND_STD)
ISEND(issend, SEND_SYNC)
ISEND(irsend, SEND_READY)
ISEND(ibsend, SEND_BUF)

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
	return recv_finish(r, rc, st);
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
	rc = recv_finish(r, rc, st);
	if (s) {
		int class = send_result(s);

		src = src ? src : class;
		rec_free(s);
	}
	return rc ? rc : src;
}

int hook_sendrecv(struct hcomm *c, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
		  int dest, int sendtag, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
		  int source, int recvtag, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct rec *r;
	int rc;

	if (source == MPI_PROC_NULL) {
		rc = hook_send(c, sendbuf, sendcount, sendtype, dest, sendtag);
		return rc ? rc : NATIVE(Recv, recvbuf, recvcount, recvtype, source, recvtag, c->handle,
					status);
	}
	if (dest == MPI_PROC_NULL) {
		rc = NATIVE(Send, sendbuf, sendcount, sendtype, dest, sendtag, c->handle);
		return rc ? rc : hook_recv(c, recvbuf, recvcount, recvtype, source, recvtag, status);
	}
	r = rec_new(c, REC_RECV);
	if (!r)
		return hcomm_error(c, MPI_ERR_NO_MEM);
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

int hook_sendrecv_replace(struct hcomm *c, void *buf, MPI_Count count, MPI_Datatype type, int dest,
			  int sendtag, int source, int recvtag, MPI_Status *status)
{
	uint64_t bytes;
	void *copy = NULL;
	int rc;

	if (dest == MPI_PROC_NULL || source == MPI_PROC_NULL)
		return hook_sendrecv(c, buf, count, type, dest, sendtag, buf, count, type, source,
				     recvtag, status);
	if ((unsigned int)dest < c->npeers && !is_bad(c, source, count))
		copy = packed_copy(c, buf, count, type, &bytes);
	if (!copy)
		return NATIVE(Sendrecv_replace, buf, count, type, dest, sendtag, source, recvtag,
			      c->handle, status);
	rc = hook_sendrecv(c, copy, (MPI_Count)bytes, MPI_BYTE, dest, sendtag, buf, count, type, source,
			   recvtag, status);
	free(copy);
	return rc;
}

#if MPI_VERSION >= 4
/* One half of a pair: the library's part is its `inner'. */
static int half_recv(struct rec *r, void *buf, MPI_Count count, MPI_Datatype type, int source, int tag)
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
		return hcomm_error(r->c, MPI_ERR_RANK);
	rc = recv_args(r, buf, count, type, source, tag);
	if (rc)
		return hcomm_error(r->c, rc);
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
	}
	(*s)->standin = true;
	(*s)->inner = req;
	return MPI_SUCCESS;
}

/* One handle for both.  @copy, if any, is what is sent; it is the record's from here on. */
static int isendrecv(struct hcomm *c, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
		     int dest, int sendtag, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
		     int source, int recvtag, void *copy, MPI_Request *request)
{
	struct rec *pair = rec_new(c, REC_PAIR), *r = rec_new(c, REC_RECV), *s = rec_new(c, REC_SEND);
	int rc;

	if (!pair || !r || !s) {
		rc = hcomm_error(c, MPI_ERR_NO_MEM);
		goto free_all;
	}
	pair->packed = copy;
	copy = NULL;
	rc = standin_new(&pair->req);
	if (rc)
		goto free_all;
	rc = half_recv(r, recvbuf, recvcount, recvtype, source, recvtag);
	if (rc)
		goto free_handle;
	rc = half_send(&s, sendbuf, sendcount, sendtype, dest, sendtag);
	if (rc) {
		if (r->state == REC_POSTED)
			PMPI_Cancel(&r->inner);
		orphan_add(r);
		r = NULL;
		goto free_handle;
	}
	pair->standin = true;
	pair->part[0] = r;
	pair->part[1] = s;
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

int hook_isendrecv(struct hcomm *c, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
		   int dest, int sendtag, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
		   int source, int recvtag, MPI_Request *request)
{
	return isendrecv(c, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype,
			 source, recvtag, NULL, request);
}

int hook_isendrecv_replace(struct hcomm *c, void *buf, MPI_Count count, MPI_Datatype type, int dest,
			   int sendtag, int source, int recvtag, MPI_Request *request)
{
	uint64_t bytes;
	void *copy = packed_copy(c, buf, count, type, &bytes);

	if (!copy)
		return NATIVE(Isendrecv_replace, buf, count, type, dest, sendtag, source, recvtag,
			      c->handle, request);
	return isendrecv(c, copy, (MPI_Count)bytes, MPI_BYTE, dest, sendtag, buf, count, type, source,
			 recvtag, copy, request);
}
#endif

/* ---- begin and end ---------------------------------------------------------------------------- */

static void ranks_begin(const struct prog_win *space)
{
	int n;

	if (PMPI_Comm_size(MPI_COMM_WORLD, &n))
		return;
	shun_until = calloc((size_t)n, sizeof(*shun_until));
	near_quick = malloc((size_t)n);	/* NULL: everything is announced */
	for (int i = 0; near_quick && i < n; i++)
		near_quick[i] = prog_msg_near(space, (uint32_t)i) ? 0 : NEAR_NOT;
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
	free(near_quick);
	near_quick = NULL;
	free(shun_until);
	shun_until = NULL;
}

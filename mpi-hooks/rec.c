/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Records of messages under way: a free list, and the table that finds them by the library's request.  A handle
 * may be used again by the library as soon as it has completed it: so who completes a request claims its
 * record first, and a claimed one is not found.
 *
 * With several threads each has a few free ones of its own for plain receives, and a bucket is locked for some instructions.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "coll.h"
#include "hooks_gen.h"

#define CHUNK	64u		/* records allocated at once; never given back */
#define SMALL	256u		/* DESC_SIZE, aligned */
#define BUCKET_LOOKS	100u	/* .. before who has the bucket is given the processor */

/*
 * Open MPI 4.1 writes all of a message that is longer than some KiB, however short the buffer: it overruns what the program
 * gave it, and so it must not overrun what we did.  What lies behind our short buffers is memory for nothing else.
 */
#if defined(OPEN_MPI) || defined(HOOK_ABI)
#define SMALL_ALL	(32u << 20)
#define BEHIND		((size_t)1 << 30)
#else
#define SMALL_ALL	0u
#define BEHIND		(size_t)0
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct rec *rec_spare;
struct rec *rec_bucket[1u << REC_BITS];
int rec_possible;
int rec_others_possible;

/* @n times SMALL bytes; NULL: no memory. */
static unsigned char *smalls(size_t n)
{
	static unsigned char *at, *end;
	unsigned char *p;

	if (SMALL_ALL > 0 && !at) {
		p = mmap(NULL, SMALL_ALL + BEHIND, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p != MAP_FAILED) {
			at = p;
			end = p + SMALL_ALL;
		}
	}
	if ((size_t)(end - at) < n * SMALL)
		return aligned_alloc(SMALL, n * SMALL);
	p = at;
	at += n * SMALL;
	return p;
}

unsigned char *rec_landing;

/* ---- those of a thread of its own -------------------------------------------------------------- */

_Thread_local struct rec_own rec_own;
static pthread_key_t own_key;		/* its value is not NULL where a thread has some */

#define OWN_MOST	128u		/* a thread keeps at most */
#define OWN_FEW		64u		/* .. and gets, or gives back, at a time */

/* Until there are @left. */
static void own_give(unsigned int left)
{
	struct rec *r;

	hooks_lock(&lock);
	while (OWN_MOST - rec_own.room > left) {
		r = rec_own.spare;
		rec_own.spare = r->next;
		rec_own.room++;
		r->next = rec_spare;
		rec_spare = r;
	}
	hooks_unlock(&lock);
}

/* A thread ends. */
static void own_end(void *arg)
{
	own_give(0);
	rec_own.room = 0;
}

static bool own_begin(void)
{
	if (pthread_getspecific(own_key))
		return true;
	if (pthread_setspecific(own_key, &rec_own))
		return false;
	rec_own.room = OWN_MOST;
	return true;
}

int rec_begin(void)
{
	rec_landing = smalls(1);
	if (!rec_landing || (hooks.mt && pthread_key_create(&own_key, own_end)))
		return -ENOMEM;
	rec_possible = rec_others_possible = hooks.mt;
	return 0;
}

static void add_spare(struct rec *r, unsigned char *small)
{
	memset(r, 0, CHUNK * sizeof(*r));
	for (unsigned int i = 0; i < CHUNK; i++) {
		r[i].req = r[i].inner = MPI_REQUEST_NULL;
		r[i].small = small + (size_t)i * SMALL;
		r[i].next = rec_spare;
		rec_spare = &r[i];
	}
}

static bool refill(void)
{
	struct rec *r = aligned_alloc(64, CHUNK * sizeof(*r));
	unsigned char *small = r ? smalls(CHUNK) : NULL;

	if (small)
		add_spare(r, small);
	else
		free(r);
	return small;
}

struct rec *rec_new_sure(struct hcomm *c, enum rec_kind kind)
{
	struct rec *r;
	uintptr_t mem;

	while (!(r = rec_new(c, kind))) {
		mem = (uintptr_t)hcoll_mem(CHUNK * (sizeof(*r) + SMALL) + SMALL);
		mem += -mem % SMALL;
		hooks_lock(&lock);
		add_spare((struct rec *)(mem + CHUNK * SMALL), (unsigned char *)mem);
		hooks_unlock(&lock);
	}
	return r;
}

#define FLAGS_ARE(all, last, is) _Static_assert(offsetof(struct rec, last) < offsetof(struct rec, all) + is, "struct rec: a flag too many")

FLAGS_ARE(flags, raised, 8);
FLAGS_ARE(recv.flags, recv.user_bounce, 8);
FLAGS_ARE(more_flags, freed, 4);
_Static_assert(offsetof(struct rec, recv.seq) == 64, "struct rec: plain receives use more than a line");

struct rec *rec_new_slow(struct hcomm *c)
{
	struct rec *r;

	hooks_lock(&lock);
	r = rec_spare || refill() ? rec_spare : NULL;
	if (r)
		rec_spare = r->next;
	hooks_unlock(&lock);
	if (r)
		hcomm_get(c);
	return r;
}

static void rec_clear(struct rec *r)
{
	if (unlikely(r->m)) {
		prog_msg_free(p2p_context, r->m);
		r->m = NULL;
	}
	if (unlikely(r->packed)) {
		free(r->packed);
		r->packed = NULL;
	}
	if (r->persistent)
		return;
	if (unlikely(r->dt))
		prog_dtype_put(r->dt);
	if (unlikely(r->opaque_type))
		PMPI_Type_free(&r->type);
	if (unlikely(r->kind == REC_RECV && r->recv.user_bounce && r->recv.land != r->small)) {
		free(r->recv.land);
		htype_bytes_free(&r->recv.lib_type);
	}
}

struct rec *rec_own_more(void)
{
	struct rec *r;

	if (!own_begin())
		return NULL;
	hooks_lock(&lock);
	for (unsigned int i = 0; i < OWN_FEW && (rec_spare || refill()); i++) {
		r = rec_spare;
		rec_spare = r->next;
		r->next = rec_own.spare;
		rec_own.spare = r;
		rec_own.room--;
	}
	hooks_unlock(&lock);
	return rec_own.spare ? rec_own_get() : NULL;
}

bool rec_own_less(struct rec *r)
{
	if (own_begin()) {
		if (!rec_own.room)
			own_give(OWN_FEW);
		return true;
	}
	hooks_lock(&lock);
	r->next = rec_spare;
	rec_spare = r;
	hooks_unlock(&lock);
	return false;
}

static inline void put(struct rec *r)
{
	__atomic_store_n(&r->req, MPI_REQUEST_NULL, __ATOMIC_RELAXED);
	r->next = rec_spare;
	rec_spare = r;
}

static inline void drop_comm(struct hcomm *c)
{
	if (unlikely(hooks.mt) || atomic_load_explicit(&c->refs, memory_order_relaxed) == 1)
		hcomm_put(c);
	else
		atomic_store_explicit(&c->refs, atomic_load_explicit(&c->refs, memory_order_relaxed) - 1,
				      memory_order_relaxed);
}

void rec_free(struct rec *r)
{
	struct hcomm *c = r->c;

	if (unlikely(r->kind == REC_PAIR)) {
		if (r->pair.recv)
			rec_free(r->pair.recv);
		if (r->pair.send)
			rec_free(r->pair.send);
	}
	if (unlikely(r->kind == REC_COLL))
		hcoll_free(r->coll);
	r->persistent = false;
	rec_clear(r);
	r->inner = MPI_REQUEST_NULL;
	r->err = MPI_SUCCESS;
	r->dt = NULL;
	r->len = r->posted_at = r->overlap = 0;
	hooks_lock(&lock);
	put(r);
	hooks_unlock(&lock);
	drop_comm(c);
}

/* Here, as a look at the length costs an instruction of each call where it is inline. */
void rec_copy(void *to, const void *from, uint64_t bytes)
{
	if (bytes && to != from)
		memcpy(to, from, bytes);
}

void rec_show(struct rec *r)
{
	struct rec **b;

	if (hooks.mt) {
		rec_insert(r);
		return;
	}
	b = rec_bucket_of(r->req);
	r->next = *b;
	*b = r;
	rec_others_possible++;
	rec_possible++;
}

struct rec *rec_bucket_wait(struct rec **b)
{
	struct rec *first;
	unsigned int looks = 0;

	do {
		while (__atomic_load_n(b, __ATOMIC_RELAXED) == REC_LOCKED)
			if (++looks > BUCKET_LOOKS)
				sched_yield();
		first = __atomic_exchange_n(b, REC_LOCKED, __ATOMIC_ACQUIRE);
	} while (first == REC_LOCKED);
	return first;
}

void rec_remove_inner(struct rec *r, struct rec **b, struct rec *first)
{
	struct rec **p;

	for (p = &first; *p != r; p = &(*p)->next)
		;
	*p = r->next;
	rec_bucket_set(b, first);
}

struct rec *rec_claim_locked(struct rec **b, struct rec *first, MPI_Request req, bool *elsewhere)
{
	struct rec *r;
	bool claimed = false;

	for (r = first; r && !(r->req == req && !__atomic_load_n(&r->claimed, __ATOMIC_ACQUIRE)); r = r->next)
		claimed |= r->req == req;
	*elsewhere = claimed && !r;
	if (r && r->state == REC_IDLE)
		r = NULL;
	if (r)
		rec_set_claimed(r, true);
	rec_bucket_set(b, first);
	return r;
}

struct rec *rec_claim_found(struct rec **b, MPI_Request req)
{
	bool elsewhere;

	return rec_claim_locked(b, rec_bucket_take(b), req, &elsewhere);
}

void rec_hide(struct rec *r)
{
	struct rec **p;

	if (hooks.mt) {
		rec_remove(r);
		return;
	}
	for (p = rec_bucket_of(r->req); *p != r; p = &(*p)->next)
		;
	*p = r->next;
	rec_others_possible--;
	rec_possible--;
}

void rec_rename(struct rec *r, MPI_Request req)
{
	rec_hide(r);
	r->req = req;
	rec_show(r);
}

void rec_whole(struct rec *r)
{
	const struct chan *ch = r->recv.chan;

	/* with several threads the caller has claimed it, or nobody else may ask for it */
	r->plain = r->wild = false;
	if (r->persistent) {
		rec_restart(r);
		rec_transition(r, REC_POSTED);
	} else {
		r->more_flags = 0;
		r->recv.flags = 0;
		r->recv.pre_matched = NULL;
		r->recv.user_bounce = r->cap < DESC_SIZE;
		r->recv.land = r->recv.user_bounce ? r->small : r->buf;
		r->peer = ch->peer == CHAN_ANY ? MPI_ANY_SOURCE : ch->peer;
		r->peer_tag = ch->tag == CHAN_ANY ? MPI_ANY_TAG : ch->tag;
		hcomm_get(r->c);
		if (!hooks.mt)
			rec_others_possible++;
	}
	r->recv.counted = true;
	hooks_lock(&r->c->lock);
	chan_plain_whole(r->c->chans, r->recv.chan, r->recv.seq, &r->recv.cr);
	hooks_unlock(&r->c->lock);
}

void rec_plain_done_unusual(struct rec *r, const MPI_Status *st)
{
	if (r->wild)
		hcomm_took(r->c, st->MPI_SOURCE, st->MPI_TAG);
	chan_plain_end(r->recv.chan);
	if (likely(!r->persistent)) {
		rec_own_put(r);
		return;
	}
	r->plain = r->wild = false;
	rec_transition(r, REC_IDLE);
	rec_unclaim(r);
}

bool rec_plain_unusual(struct rec *r, const MPI_Status *st)
{
	chan_plain_done(r->c->chans, r->recv.chan, st->MPI_SOURCE, st->MPI_TAG);
	if (!r->persistent)
		return false;
	r->plain = r->wild = false;
	rec_transition(r, REC_IDLE);
	return true;
}

void rec_all_whole(const struct hcomm *c)
{
	for (size_t i = 0; i < sizeof(rec_bucket) / sizeof(rec_bucket[0]); i++)
		for (struct rec *r = rec_bucket[i]; r; r = r->next)
			if (r->plain && (!c || r->c == c))
				rec_whole(r);
}

static inline struct rec *find(MPI_Request req)
{
	struct rec *r = *rec_bucket_of(req);

	while (unlikely(r) && r->req != req)
		r = r->next;
	if (r && unlikely(r->plain))
		rec_whole(r);
	return r;
}

/* With several threads; claimed by nobody. */
static struct rec *find_any(MPI_Request req)
{
	struct rec **b = rec_bucket_of(req), *first = rec_bucket_take(b), *r = first;

	while (r && (r->req != req || __atomic_load_n(&r->claimed, __ATOMIC_ACQUIRE)))
		r = r->next;
	rec_bucket_set(b, first);
	/* the communicator's lock comes before that of a bucket */
	if (r && r->plain)
		rec_whole(r);
	return r;
}

struct rec *rec_find(MPI_Request req)
{
	return hooks.mt ? find_any(req) : find(req);
}

struct rec *rec_claim_look(MPI_Request req, bool *elsewhere)
{
	struct rec *r;

	*elsewhere = false;
	if (hooks.mt) {
		r = rec_look_claim(req, elsewhere);
		if (r && r->plain)
			rec_whole(r);
		return r;
	}
	r = find(req);
	return r && r->state == REC_IDLE ? NULL : r;
}

struct rec *rec_claim(MPI_Request req)
{
	bool elsewhere;

	return rec_claim_look(req, &elsewhere);
}

void rec_unclaim(struct rec *r)
{
	rec_set_claimed(r, false);
}

void rec_end(struct rec *r)
{
	if (r->persistent) {
		rec_clear(r);
		rec_transition(r, REC_IDLE);
		r->proxy_req = false;
		if (r->kind == REC_RECV)
			r->recv.held = false;
		r->inner = MPI_REQUEST_NULL;
		rec_unclaim(r);
		return;
	}
	rec_hide(r);
	rec_free(r);
}

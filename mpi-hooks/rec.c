/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Records of messages under way: a free list, and the table that finds them by the library's request.  A handle
 * may be used again by the library as soon as it has completed it: so who completes a request claims its
 * record first, and a claimed one is not found.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "hooks_gen.h"

#define CHUNK	64u		/* records allocated at once; never given back */
#define SMALL	256u		/* DESC_SIZE, aligned */

/*
 * Open MPI 4.1 writes all of a message that is longer than some KiB, however short the buffer: it overruns what the program
 * gave it, and so it must not overrun what we did.  What lies behind our short buffers is memory for nothing else.
 */
#ifdef OPEN_MPI
#define SMALL_ALL	(32u << 20)
#define BEHIND		((size_t)1 << 30)
#else
#define SMALL_ALL	0u
#define BEHIND		(size_t)0
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct rec *rec_spare;
static struct rec *first[1u << 8];		/* buckets of the start */
struct rec **rec_bucket = first;
unsigned int rec_shift = 64 - 8;
long rec_room = 2 << 8;

/* @n times SMALL bytes; NULL: no memory. */
static unsigned char *smalls(size_t n)
{
	static unsigned char *at, *end;
	unsigned char *p;

	if (SMALL_ALL && !at) {
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

int rec_begin(void)
{
	rec_landing = smalls(1);
	return rec_landing ? 0 : -ENOMEM;
}

static bool refill(void)
{
	struct rec *r = calloc(CHUNK, sizeof(*r));
	unsigned char *small = r ? smalls(CHUNK) : NULL;

	if (!small) {
		free(r);
		return false;
	}
	for (unsigned int i = 0; i < CHUNK; i++) {
		r[i].req = r[i].inner = MPI_REQUEST_NULL;
		r[i].small = small + (size_t)i * SMALL;
		r[i].next = rec_spare;
		rec_spare = &r[i];
	}
	return true;
}

_Static_assert(offsetof(struct rec, err) == offsetof(struct rec, flags) + sizeof(((struct rec *)0)->flags),
	       "struct rec: a flag is not among `flags'");

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
		prog_msg_free(hp2p_space, r->m);
		r->m = NULL;
	}
	if (unlikely(r->packed)) {
		free(r->packed);
		r->packed = NULL;
	}
	if (r->persistent)
		return;
	if (unlikely(r->dt))
		dtype_put(r->dt);
	if (unlikely(r->foreign))
		PMPI_Type_free(&r->type);
	if (unlikely(r->shadow && r->land != r->small))
		free(r->land);
}

static inline void put(struct rec *r)
{
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

	if (unlikely(r->kind == REC_PAIR))
		for (int i = 0; i < 2; i++)
			if (r->part[i])
				rec_free(r->part[i]);
	r->persistent = false;
	rec_clear(r);
	r->inner = MPI_REQUEST_NULL;
	r->err = MPI_SUCCESS;
	r->dt = NULL;
	r->land = NULL;
	r->len = r->posted_at = r->away = 0;
	r->part[0] = r->part[1] = NULL;
	hooks_lock(&lock);
	put(r);
	hooks_unlock(&lock);
	drop_comm(c);
}

/* Twice as many buckets; without memory chains get longer. */
static void grow(void)
{
	size_t n = (size_t)1 << (64 - rec_shift);
	struct rec **old = rec_bucket, **new = calloc(2 * n, sizeof(*new));

	rec_room += 2 * (long)n;
	if (!new)
		return;
	rec_bucket = new;
	rec_shift--;
	for (size_t i = 0; i < n; i++) {
		struct rec *r, *next;

		for (r = old[i]; r; r = next) {
			struct rec **b = rec_bucket_of(r->req);

			next = r->next;
			r->next = *b;
			*b = r;
		}
	}
	if (old != first)
		free(old);
}

void rec_show_slow(struct rec *r)
{
	struct rec **b;

	hooks_lock(&lock);
	if (rec_room-- <= 0)
		grow();
	b = rec_bucket_of(r->req);
	r->next = *b;
	*b = r;
	hooks_unlock(&lock);
}

void rec_hide(struct rec *r)
{
	struct rec **p;

	hooks_lock(&lock);
	for (p = rec_bucket_of(r->req); *p != r; p = &(*p)->next)
		;
	*p = r->next;
	rec_room++;
	hooks_unlock(&lock);
}

static inline struct rec *find(MPI_Request req)
{
	struct rec *r = *rec_bucket_of(req);

	while (unlikely(r) && (r->req != req || r->claimed))
		r = r->next;
	return r;
}

struct rec *rec_find(MPI_Request req)
{
	struct rec *r;

	hooks_lock(&lock);
	r = find(req);
	hooks_unlock(&lock);
	return r;
}

struct rec *rec_claim_mt(MPI_Request req)
{
	struct rec *r;

	hooks_lock(&lock);
	r = find(req);
	if (r && r->state == REC_IDLE)
		r = NULL;
	if (r)
		r->claimed = true;
	hooks_unlock(&lock);
	return r;
}

void rec_unclaim(struct rec *r)
{
	hooks_lock(&lock);
	r->claimed = false;
	hooks_unlock(&lock);
}

void rec_end(struct rec *r)
{
	if (r->persistent) {
		rec_clear(r);
		r->state = REC_IDLE;
		r->standin = r->held = false;
		r->inner = MPI_REQUEST_NULL;
		rec_unclaim(r);
		return;
	}
	rec_hide(r);
	rec_free(r);
}

bool rec_plain_end(struct rec *r, const MPI_Status *st)
{
	uint64_t bytes = status_bytes(st);
	struct rec **p;

	if (unlikely(bytes > r->cap || status_cancelled(st)))	/* cap < DESC_SIZE */
		return false;
	memcpy(r->buf, r->small, bytes);
	chan_recv_done(r->c->chans, &r->cr, st->MPI_SOURCE, st->MPI_TAG, NULL);
	for (p = rec_bucket_of(r->req); *p != r; p = &(*p)->next)
		;
	*p = r->next;
	rec_room++;
	put(r);
	drop_comm(r->c);
	return true;
}

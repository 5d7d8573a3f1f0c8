/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Records of managed communicators: found by the handle, kept while messages refer to them.
 */
#include <stdlib.h>

#include "coll.h"
#include "hooks_gen.h"

static struct hmap hcomm_map = { .lock = PTHREAD_MUTEX_INITIALIZER };
static struct hcomm no_comm = { .shown = HCOMM_NO_HANDLE };
_Thread_local struct hcomm *hcomm_last = &no_comm, *hcomm_last_threads = &no_comm;
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;	/* who is in the map */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hcomm *unused;		/* under pool_lock */
static struct hcomm *waiting;		/* .. not referenced, but plain receives may be outstanding */

static void held_free(struct held *h)
{
	struct held *next;

	for (; h; h = next) {
		next = h->next;
		prog_coll_mem_put(h);
	}
}

/* Nothing refers to @c any more. */
static void record_end(struct hcomm *c)
{
	held_free(c->held);
	c->held = NULL;
	htopo_free(c->topo);
	c->topo = NULL;
	chans_free(c->chans);
	c->chans = NULL;
	free(c->world);
	c->world = NULL;
	c->next = unused;
	unused = c;
}

/* Those end of which the last plain receive has.  A record that becomes a whole one takes its reference first. */
static void records_poll(void)
{
	struct hcomm **p, *c;
	bool idle;

	for (p = &waiting; (c = *p);) {
		pthread_mutex_lock(&c->lock);
		idle = chans_idle(c->chans) && !atomic_load_explicit(&c->refs, memory_order_acquire);
		pthread_mutex_unlock(&c->lock);
		if (!idle) {
			p = &c->next;
			continue;
		}
		*p = c->next;
		record_end(c);
	}
}

static struct hcomm *record_take(void)
{
	struct hcomm *c;

	pthread_mutex_lock(&pool_lock);
	records_poll();
	c = unused;
	if (c)
		unused = c->next;
	pthread_mutex_unlock(&pool_lock);
	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (c) {
		pthread_mutex_init(&c->lock, NULL);
		c->shown = HCOMM_NO_HANDLE;
	}
	return c;
}

struct hcomm *hcomm_new(MPI_Comm handle, uint64_t id, uint32_t npeers)
{
	struct hcomm *c = record_take();

	if (!c)
		return NULL;
	atomic_store_explicit(&c->freed, false, memory_order_relaxed);
	c->quiet = c->unordered = c->waits = false;
	c->id = id;
	c->npeers = npeers;
	c->rank = 0;
	c->self = -1;
	c->children = c->colls_started = c->colls_made = 0;
	c->vote = (struct vote){ 0 };
	c->ballot = NULL;
	c->world = calloc((size_t)npeers + 1, sizeof(*c->world));
	c->chans = chans_new(CHAN_MAX);
	atomic_store_explicit(&c->refs, 1, memory_order_relaxed);
	if (!c->world || !c->chans) {
		pthread_mutex_lock(&pool_lock);
		record_end(c);
		pthread_mutex_unlock(&pool_lock);
		return NULL;
	}
	if (hooks.mt)
		chans_threads(c->chans);
	hcomm_set_plain(c);
	c->handle = handle;
	return c;
}

void hcomm_set_plain(struct hcomm *c)
{
	c->plain_peers = hooks.mt || c->held ? 0 : c->npeers;
	if (!hooks.mt)
		return;
	if (c->held)
		chans_hold(c->chans);
	else
		chans_unhold(c->chans);
}

void hcomm_put(struct hcomm *c)
{
	if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
		return;
	pthread_mutex_lock(&pool_lock);
	if (!hooks.mt) {
		record_end(c);
	} else if (!c->waits) {
		c->waits = true;
		c->next = waiting;
		waiting = c;
	}
	records_poll();
	pthread_mutex_unlock(&pool_lock);
}

struct chan *hcomm_send_enter_slow(struct hcomm *c, int dest, int tag)
{
	struct chan *ch;

	pthread_mutex_lock(&c->lock);
	ch = chan_send_enter_locked(c->chans, dest, tag);
	pthread_mutex_unlock(&c->lock);
	return ch;
}

struct chan *hcomm_recv_enter_slow(struct hcomm *c, int source, int tag)
{
	struct chan *ch;

	pthread_mutex_lock(&c->lock);
	ch = chan_recv_enter_locked(c->chans, source, tag);
	pthread_mutex_unlock(&c->lock);
	return ch;
}

void hcomm_took(struct hcomm *c, int source, int tag)
{
	if (likely(chan_took(c->chans, source, tag)))
		return;
	pthread_mutex_lock(&c->lock);
	chan_took_locked(c->chans, source, tag);
	pthread_mutex_unlock(&c->lock);
}

struct hcomm *hcomm_find_slow(MPI_Comm comm)
{
	struct hcomm *c = hcomm_last_threads;

	if (comm == hcomm_handle(c))
		return c;
	if (!p2p_context) {
		hooks_note_call();
		return NULL;
	}
	c = hmap_find(&hcomm_map, HMAP_KEY(comm));
	if (c && hooks.mt)
		hcomm_last_threads = c;
	else if (c)
		hcomm_last = c;
	return c;
}

static void set_shown(struct hcomm *c, MPI_Comm handle)
{
	__atomic_store_n(&c->shown, handle, __ATOMIC_RELAXED);
}

static void unshow(struct hcomm *c, uint64_t key)
{
	hmap_del(&hcomm_map, key);
	set_shown(c, HCOMM_NO_HANDLE);
}

int hcomm_show(struct hcomm *c)
{
	uint64_t key = HMAP_KEY(c->handle);
	struct hcomm *old;
	int rc;

	pthread_mutex_lock(&map_lock);
	/* the handle of one that another thread has freed but not yet taken out */
	old = hmap_find(&hcomm_map, key);
	if (old)
		unshow(old, key);
	rc = hmap_add(&hcomm_map, key, c);
	if (!rc)
		set_shown(c, c->handle);
	pthread_mutex_unlock(&map_lock);
	if (rc)
		hcomm_put(c);
	return rc;
}

void hcomm_hide(struct hcomm *c)
{
	uint64_t key = HMAP_KEY(c->handle);

	pthread_mutex_lock(&map_lock);
	if (hmap_find(&hcomm_map, key) == c)
		unshow(c, key);
	pthread_mutex_unlock(&map_lock);
	hcomm_put(c);
}

int hcomm_raise(struct hcomm *c, int class, const char *call)
{
	if (!atomic_load_explicit(&c->freed, memory_order_acquire))
		herror_comm(c->handle, class, call);
	else if (!c->quiet)
		herror_nobodys(class, call);
	return class;
}

void hcomm_drop_all(void)
{
	for (size_t i = 0; i < sizeof(hcomm_map.bucket) / sizeof(hcomm_map.bucket[0]); i++) {
		struct hmap_node *n = &hcomm_map.bucket[i];

		for (; n; n = n->next) {
			if (!n->key)
				continue;
			n->key = 0;
			set_shown(n->val, HCOMM_NO_HANDLE);
			hcomm_put(n->val);
		}
	}
}

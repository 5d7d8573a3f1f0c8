// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Windows: opening with control segment and memory, closing, queries. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>

#include "colls.h"
#include "bind.h"
#include "defer.h"
#include "msgs.h"
#include "stream.h"

#define MAX_RANGES		(1u << 20)
#define MAX_RANKS		(1u << 20)
#define COPIES_RANKS		8192u		/* ranks of all windows made together */
#define COPIES_SHARE		256u		/* of the quota of windows: one such part at most */

/* ---- open ------------------------------------------------------------------------------------ */

static int open_memory(struct prog_win *w, const struct prog_win_cfg *cfg)
{
	uint64_t off;
	uint32_t id;
	int err;

	switch (cfg->kind) {
	case PROG_WIN_ALLOCATE:
		w->size = cfg->size;
		w->mem = PROG_MEM_SHARED;
		err = region_new(cfg->size, &w->region, &w->base);
		return err ? err : region_lookup(w->s, w->base, w->size, &w->mem_region, &w->mem_off);
	case PROG_WIN_CREATE:
		w->base = cfg->base;
		w->size = cfg->size;
		if (!w->size) {
			w->mem = PROG_MEM_NONE;
			return 0;
		}
		if (!w->base)
			return -EINVAL;
		w->mem = PROG_MEM_VA;
		/* a region that the daemon refuses is as good as other memory */
		if (!region_lookup(w->s, w->base, w->size, &id, &off)) {
			w->mem = PROG_MEM_SHARED;
			w->mem_region = id;
			w->mem_off = off;
		}
		return 0;
	case PROG_WIN_DYNAMIC:
		w->mem = PROG_MEM_DYNAMIC;
		return 0;
	case PROG_WIN_MSG_CONTEXT:
		w->mem = PROG_MEM_MSG_CONTEXT;
		return msgs_open(w);
	}
	return -EINVAL;
}

static void own_apply(struct prog_win *w)
{
	w->aw = (struct apply_win){
		.mem = mem_direct(w->kind == PROG_WIN_DYNAMIC ? NULL : w->base),
		.lo = 0,
		.hi = (int64_t)w->size,
		.stripes = w->wc.stripes,
		.stripe_mask = w->wc.stripe_mask,
		.owner = w->s->id,
		.timeout_ns = CLIENT_STRIPE_NS,
	};
}

/* A window without control segment and memory. */
static int win_alloc(struct prog_session *s, const struct prog_win_cfg *cfg, uint64_t key, struct prog_win **out)
{
	struct prog_win *w = calloc(1, sizeof(*w));
	uint32_t i;

	if (!w)
		return -ENOMEM;
	w->s = s;
	w->kind = cfg->kind;
	w->by_address = cfg->kind == PROG_WIN_DYNAMIC;
	w->binding = bind_of(s, cfg->binding);
	w->key = key;
	w->rank = cfg->rank;
	w->nranks = cfg->nranks;
	w->ntargets = cfg->kind == PROG_WIN_MSG_CONTEXT ? 0 : cfg->nranks;
	w->ctl_fd = -1;
	w->defer_mode = w->defer_min = PROG_DEFER_OFF;
	pthread_mutex_init(&w->range_lock, NULL);
	pthread_mutex_init(&w->defer_lock, NULL);
	pthread_mutex_init(&w->notes_lock, NULL);
	w->streams = aligned_alloc(PROG_CACHELINE, ((size_t)w->nranks * sizeof(*w->streams) +
				   PROG_CACHELINE - 1) & ~(size_t)(PROG_CACHELINE - 1));
	w->node_here = calloc(w->nranks, 1);
	if (cfg->kind == PROG_WIN_MSG_CONTEXT)
		w->node = calloc(w->nranks, sizeof(*w->node));
	*out = w;
	if (!w->streams || !w->node_here || (cfg->kind == PROG_WIN_MSG_CONTEXT && !w->node))
		return -ENOMEM;
	memset(w->streams, 0, (size_t)w->nranks * sizeof(*w->streams));
	for (i = 0; i < w->nranks; i++) {
		struct stream *st = &w->streams[i];

		st->win = w;
		st->rank = i;
		st->worker = i % s->workers;
		st->head = st->tail = CLIENT_NO_SLOT;
	}
	return 0;
}

/* Its control segment: the @i-th of @size bytes in @map. */
static int win_format(struct prog_win *w, struct ctl_map *map, uint32_t i, size_t size, uint32_t nranges)
{
	char *mem = (char *)map->mem + i * size;
	const char *why = "";
	int err;

	winctl_format(mem, w->key, w->rank, w->nranks, nranges);
	winctl_format_subs(mem, bind_subs(w->s));
	err = winctl_attach(&w->wc, mem, size, w->key, w->rank, w->nranks, &why);
	if (err)
		return err;
	w->wc.ctl->range_end = 1;	/* there are none; 0 would mean that it is not known */
	w->ctl_map = ctl_map_get(map);
	for (i = 0; i < w->nranks; i++)
		w->streams[i].shared = &w->wc.streams[i];
	return 0;
}

static void win_publish(struct prog_win *w)
{
	own_apply(w);
	pthread_mutex_lock(&w->s->helper_lock);
	w->next = w->s->wins;
	w->s->wins = w;
	pthread_mutex_unlock(&w->s->helper_lock);
}

int prog_win_open(struct prog_session *s, const struct prog_win_cfg *cfg, struct prog_win **out)
{
	uint32_t nranges = 0, i;
	struct ctl_map *map = NULL;
	struct prog_win *w = NULL;
	size_t each;
	void *mem;
	int err;

	if (!s || !cfg || !out || !cfg->nranks || cfg->rank >= cfg->nranks ||
	    cfg->nranks > MAX_RANKS || cfg->size > PROG_DTYPE_MAX_BYTES || cfg->binding > PROG_BIND_CONFIGURED)
		return -EINVAL;
	if (cfg->copies && (cfg->kind != PROG_WIN_DYNAMIC ||
			    cfg->copies > prog_win_most_copies(s, cfg->nranks)))
		return -EINVAL;
	if (cfg->kind == PROG_WIN_DYNAMIC)
		/* what is not used of their table takes no memory */
		nranges = cfg->max_ranges ? cfg->max_ranges : PROG_WIN_RANGES;
	if (nranges > MAX_RANGES)
		return -EINVAL;
	if (session_lost(s))
		return -ECONNRESET;
	err = win_alloc(s, cfg, cfg->key, &w);
	if (err)
		goto fail;
	each = winctl_size(w->nranks, nranges) + winctl_subs_size(w->nranks, bind_subs(s));
	err = client_memfd("asyncprog-window", each * (1 + cfg->copies), &w->ctl_fd, &mem);
	if (err)
		goto fail;
	map = calloc(1, sizeof(*map));
	if (!map) {
		munmap(mem, each * (1 + cfg->copies));
		err = -ENOMEM;
		goto fail;
	}
	*map = (struct ctl_map){ .mem = mem, .size = each * (1 + cfg->copies), .refs = 1 };
	err = win_format(w, map, 0, each, nranges);
	if (!err && cfg->copies) {
		w->copy = calloc(cfg->copies, sizeof(*w->copy));
		err = w->copy ? 0 : -ENOMEM;
	}
	for (i = 0; !err && i < cfg->copies; i++) {
		w->ncopies = i + 1;
		err = win_alloc(s, cfg, cfg->key + i + 1, &w->copy[i]);
		if (!err)
			err = win_format(w->copy[i], map, i + 1, each, nranges);
	}
	if (!err)
		err = open_memory(w, cfg);
	if (err)
		goto fail;
	for (i = 0; i < w->ncopies; i++) {
		w->copy[i]->mem = w->mem;
		win_publish(w->copy[i]);
	}
	win_publish(w);
	ctl_map_put(map);
	*out = w;
	return 0;
fail:
	ctl_map_put(map);
	prog_win_close(w);
	return err;
}

uint32_t prog_win_most_copies(const struct prog_session *s, uint32_t nranks)
{
	uint64_t most = COPIES_RANKS / nranks;

	/* no more than a small part of the user's quota */
	if (most > s->limits[1] / COPIES_SHARE)
		most = s->limits[1] / COPIES_SHARE;
	if (s->abi_minor < 6 || !most)
		return 0;
	return (uint32_t)(most < PROG_WIN_COPIES_MAX ? most : PROG_WIN_COPIES_MAX) - 1;
}

struct prog_win *prog_win_copy(struct prog_win *w, uint32_t i)
{
	struct prog_win *copy = i && i <= w->ncopies ? w->copy[i - 1] : NULL;

	if (copy)
		w->copy[i - 1] = NULL;
	return copy;
}

/* ---- close -------------------------------------------------------------------------------------- */

void prog_win_close(struct prog_win *w)
{
	struct prog_session *s;
	struct prog_win **p;
	uint32_t i;

	if (!w)
		return;
	s = w->s;
	if (w->kind == PROG_WIN_MSG_CONTEXT)
		colls_close(w);
	pthread_mutex_lock(&s->helper_lock);
	for (p = &s->wins; *p && *p != w; p = &(*p)->next)
		;
	if (*p)
		*p = w->next;
	pthread_mutex_unlock(&s->helper_lock);
	if (w->kind == PROG_WIN_MSG_CONTEXT)
		msgs_quiesce(w);
	if (w->connected && !rings_settle(s) && !session_lost(s)) {
		struct prog_ctrl_slot req = { .slot = w->slot }, rep;
		int err = session_request(s, PROG_CTRL_WIN_FREE, &req, sizeof(req), NULL, 0, &rep,
					  sizeof(rep), NULL, NULL);

		if (err && err != -ECONNRESET)
			prog_log(PROG_LOG_WARN, "window %llx: the daemon did not free it: %s",
				 (unsigned long long)w->key, strerror(-err));
	}
	defer_end(w);
	pin_put(s, w->pin);
	for (i = 0; w->range_pin && i < w->wc.nranges; i++)
		pin_put(s, w->range_pin[i]);
	free(w->range_pin);
	if (w->kind == PROG_WIN_MSG_CONTEXT) {
		colls_free(w);
		msgs_close(w);
	}
	for (i = 0; w->streams && i < w->nranks; i++) {
		if (w->streams[i].win)
			stream_drop(&w->streams[i]);
		win_peer_free(w->streams[i].local);
		free(w->streams[i].dtype_gen);
		bind_free(&w->streams[i]);
	}
	for (i = 0; w->dtypes && i < CLIENT_DTYPES; i++)
		prog_dtype_put(w->dtypes[i].dt);
	free(w->dtypes);
	notify_forget(w);
	for (i = 0; i < w->ncopies; i++)
		prog_win_close(w->copy[i]);
	free(w->copy);
	ctl_map_put(w->ctl_map);
	if (w->ctl_fd >= 0)
		close(w->ctl_fd);
	region_free(w->region);
	free(w->peers);
	free(w->node_here);
	free(w->node);
	free(w->streams);
	free(w->empty_range);
	pthread_mutex_destroy(&w->notes_lock);
	pthread_mutex_destroy(&w->range_lock);
	pthread_mutex_destroy(&w->defer_lock);
	free(w);
}

/* ---- queries ---------------------------------------------------------------------------------- */

void *prog_win_base(const struct prog_win *w)
{
	return w->base;
}

size_t prog_win_size(const struct prog_win *w, uint32_t rank)
{
	if (rank >= w->nranks)
		return 0;
	return rank == w->rank ? w->size : w->streams[rank].size;
}

bool prog_win_is_local(const struct prog_win *w, uint32_t rank)
{
	return rank < w->nranks && w->streams[rank].reach != REACH_RING;
}

bool prog_win_multinode(const struct prog_win *w)
{
	return w->multinode;
}

void prog_win_sync(struct prog_win *w)
{
	defer_run(w, DEFER_ANY);
	full_barrier();
	carried_acquire();
}

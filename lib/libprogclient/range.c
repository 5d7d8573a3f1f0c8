// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Ranges of dynamic windows: attaching and detaching. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/log.h>

#include "defer.h"

static void write_range(struct prog_win_range *r, uint64_t base, uint64_t len, uint32_t region,
			uint64_t region_off)
{
	uint32_t gen = r->gen;

	__atomic_store_n(&r->gen, gen + 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&r->base, base, __ATOMIC_RELEASE);
	__atomic_store_n(&r->region, region, __ATOMIC_RELEASE);
	__atomic_store_n(&r->region_off, region_off, __ATOMIC_RELEASE);
	__atomic_store_n(&r->len, len, __ATOMIC_RELEASE);
	__atomic_store_n(&r->gen, gen + 2, __ATOMIC_RELEASE);
}

/* Nobody looks at entries from @end on; under range_lock. */
static void set_end(struct prog_win *w, uint32_t end)
{
	w->range_end = end;
	/* 0 would mean that it is not known */
	__atomic_store_n(&w->wc.ctl->range_end, end ? end : 1, __ATOMIC_RELEASE);
}

int range_attach(struct prog_win *w, void *base, size_t size, bool tell)
{
	uint64_t lo = (uintptr_t)base, region_off = 0;
	struct prog_win_range *slot = NULL;
	struct pin *pin = NULL;
	uint32_t id, region = 0, i;
	int err = 0;

	if (tell && !region_lookup(w->s, base, size, &id, &region_off))
		region = id + 1;
	else if (tell && w->connected && win_pins_useful(w) && !pin_get(w->s, base, size, &pin))
		region = pin->id + 1;
	pthread_mutex_lock(&w->range_lock);
	if (pin && !w->range_pin) {
		w->range_pin = calloc(w->wc.nranges, sizeof(*w->range_pin));
		if (!w->range_pin)
			err = -ENOMEM;
	}
	for (i = 0; i < w->range_end && w->live_ranges && !err; i++) {
		struct prog_win_range *r = &w->wc.ranges[i];

		if (!r->len)
			slot = slot ? slot : r;
		else if (lo < r->base + r->len && r->base < lo + size)
			err = -EEXIST;
	}
	if (!err && !w->live_ranges)
		set_end(w, 0);
	if (!err && !slot && w->range_end == w->wc.nranges)
		err = -ENOSPC;
	if (!err) {
		if (!slot) {
			slot = &w->wc.ranges[w->range_end];
			set_end(w, w->range_end + 1);
		}
		write_range(slot, lo, size, region, region_off);
		w->live_ranges++;
		if (pin)
			w->range_pin[slot - w->wc.ranges] = pin;
	}
	pthread_mutex_unlock(&w->range_lock);
	if (err)
		pin_put(w->s, pin);
	return err;
}

/* Of no bytes: nothing can be accessed there, and it takes no entry; but it can be detached, as often as it was attached. */
static int empty_attach(struct prog_win *w, uint64_t base)
{
	int err = 0;

	pthread_mutex_lock(&w->range_lock);
	if (w->nempty == w->wc.nranges) {
		err = -ENOSPC;
	} else if (w->nempty == w->max_empty) {
		uint32_t max = w->max_empty ? 2 * w->max_empty : 8;
		uint64_t *more = realloc(w->empty_range, max * sizeof(*more));

		err = more ? 0 : -ENOMEM;
		if (more) {
			w->empty_range = more;
			w->max_empty = max;
		}
	}
	if (!err)
		w->empty_range[w->nempty++] = base;
	pthread_mutex_unlock(&w->range_lock);
	return err;
}

/* Under range_lock. */
static int empty_detach(struct prog_win *w, uint64_t base)
{
	for (uint32_t i = 0; i < w->nempty; i++) {
		if (w->empty_range[i] == base) {
			w->empty_range[i] = w->empty_range[--w->nempty];
			return 0;
		}
	}
	return -ENOENT;
}

int prog_win_attach(struct prog_win *w, void *base, size_t size)
{
	uint64_t lo = (uintptr_t)base;

	if (w->kind != PROG_WIN_DYNAMIC || size > PROG_DTYPE_MAX_BYTES || lo + size < lo)
		return -EINVAL;
	if (!size)
		return empty_attach(w, lo);
	return range_attach(w, base, size, true);
}

/* End of the live range @i; under range_lock.  Returns its pin, which is the caller's then. */
static struct pin *clear_range(struct prog_win *w, uint32_t i)
{
	struct pin *pin = w->range_pin ? w->range_pin[i] : NULL;

	write_range(&w->wc.ranges[i], 0, 0, 0, 0);
	w->live_ranges--;
	if (w->range_pin)
		w->range_pin[i] = NULL;
	return pin;
}

/*
 * What was detached is the process's own again: other nodes do not read it by RDMA any more.  It was cleared before, so that the
 * daemon, which counts up first, gives out nothing of it later.
 */
static void take_back(struct prog_win *w)
{
	struct prog_ctrl_slot req = { .slot = w->slot }, rep;
	int err;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&w->wc.ctl->given_out, __ATOMIC_RELAXED) || !w->connected || w->s->abi_minor < 11 || session_lost(w->s))
		return;
	err = session_request(w->s, PROG_CTRL_WIN_KEYS, &req, sizeof(req), NULL, 0, &rep, sizeof(rep), NULL, NULL);
	if (err && err != -ECONNRESET)
		prog_log(PROG_LOG_WARN, "window %llx: the daemon did not take back what other nodes may read: %s",
			 (unsigned long long)w->key, strerror(-err));
}

void range_detach_all(struct prog_win *w)
{
	bool any = w->live_ranges;
	struct pin *pin;
	uint32_t i;

	for (i = 0; i < w->range_end && w->live_ranges; i++) {
		if (!w->wc.ranges[i].len)
			continue;
		pthread_mutex_lock(&w->range_lock);
		pin = clear_range(w, i);
		pthread_mutex_unlock(&w->range_lock);
		pin_put(w->s, pin);
	}
	if (any)
		take_back(w);
	pthread_mutex_lock(&w->range_lock);
	free(w->empty_range);
	w->empty_range = NULL;
	w->nempty = w->max_empty = 0;
	pthread_mutex_unlock(&w->range_lock);
}

int prog_win_detach(struct prog_win *w, void *base)
{
	struct pin *pin = NULL;
	int err = -ENOENT;
	uint32_t i;

	if (w->kind != PROG_WIN_DYNAMIC)
		return -EINVAL;
	/* MPI has them completed before; what was put off must not find the memory gone */
	defer_run(w, w->rank);
	pthread_mutex_lock(&w->range_lock);
	for (i = 0; i < w->range_end && err; i++) {
		struct prog_win_range *r = &w->wc.ranges[i];

		if (r->len && r->base == (uintptr_t)base) {
			pin = clear_range(w, i);
			err = 0;
		}
	}
	if (err)
		err = empty_detach(w, (uintptr_t)base);
	pthread_mutex_unlock(&w->range_lock);
	if (!err)
		take_back(w);
	pin_put(w->s, pin);
	return err;
}

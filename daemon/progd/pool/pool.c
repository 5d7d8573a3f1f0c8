// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Each class has a stack of warm buffers: taken from and put back on top, given back from the bottom, where the
 * ones are that were not used for longest.  Buffers that hold no memory are on a stack of their own.
 */
#include <utlist.h>

#include "pool/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <asyncprog/ring.h>

#define DIR_ALIGN	4096u		/* buffers are whole pages */

struct cls {
	uint64_t start;			/* in the region */
	uint32_t size;			/* of a buffer */
	uint32_t count;			/* buffers that there is room for */
	uint32_t fresh;			/* from here on they were never used */
	uint32_t used, warm, cold;
	uint32_t *buf;			/* [count]: numbers of warm ones from the start, of cold ones from the end */
	uint32_t peak_now, peak_last;	/* most in use in this span, in the one before */
	uint32_t peak;
	uint64_t gets;
};

struct pool {
	uint32_t job;
	struct pool *next, *prev;	/* all_lock */
	pthread_mutex_t lock;		/* everything below */
	uint8_t *mem;
	struct prog_pool_dir *dir;	/* at its start; an entry for each of `count' buffers */
	uint32_t count;
	bool has_dir;			/* there has been one */
	uint64_t limit, max;
	uint64_t used, used_peak, warm;	/* bytes */
	uint64_t refused, given_back;
	uint64_t span_end;		/* ns; 0: no span has begun */
	void (*giving)(void *ctx, uint64_t off, uint64_t len);	/* may be NULL */
	void *giving_ctx;
	struct cls cls[POOL_CLASSES];
	uint32_t numbers[];
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;	/* taken before a pool's */
static struct pool *all;
static struct ended {
	uint32_t job;			/* 0: free */
	struct pool_sum sum;
} ended[POOL_ENDED];
static unsigned int next_ended;

uint32_t pool_class_size(unsigned int cls)
{
	uint32_t base = POOL_MIN << cls / 2;

	return cls % 2 ? base + base / 2 : base;
}

static unsigned int class_of(uint64_t len)
{
	unsigned int c = 0;

	while (pool_class_size(c) < len)
		c++;
	return c;
}

static uint64_t class_span(unsigned int cls, uint64_t bytes)
{
	uint32_t size = pool_class_size(cls);

	return bytes / size * size;
}

/* Buffers of all classes. */
static uint32_t count_of(uint64_t bytes)
{
	uint64_t n = 0;

	for (unsigned int c = 0; c < POOL_CLASSES; c++)
		n += bytes / pool_class_size(c);
	return n;
}

static uint64_t dir_size(uint64_t bytes)
{
	uint64_t size = sizeof(struct prog_pool_dir) + count_of(bytes) * sizeof(struct prog_pool_entry);

	return (size + DIR_ALIGN - 1) & ~(uint64_t)(DIR_ALIGN - 1);
}

uint64_t pool_span(uint64_t bytes)
{
	uint64_t sum = 0;

	for (unsigned int c = 0; c < POOL_CLASSES; c++)
		sum += class_span(c, bytes);
	return sum ? dir_size(bytes) + sum : 0;
}

int pool_new(uint32_t job, void *mem, uint64_t size, uint64_t bytes, struct pool **out)
{
	struct pool *p;
	uint32_t *num;
	uint64_t off;

	/* a region that is smaller than it should be: a bound for which it suffices */
	while (pool_span(bytes) > size)
		bytes -= bytes / 16 + 1;
	if (!pool_span(bytes))
		return -EINVAL;
	p = calloc(1, sizeof(*p) + count_of(bytes) * sizeof(uint32_t));
	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	p->job = job;
	p->mem = mem;
	p->limit = p->max = bytes;
	p->dir = mem;
	off = dir_size(bytes);
	p->count = count_of(bytes);
	num = p->numbers;
	for (unsigned int c = 0; c < POOL_CLASSES; c++) {
		struct cls *k = &p->cls[c];

		k->size = pool_class_size(c);
		k->count = bytes / k->size;
		k->start = off;
		k->buf = num;
		off += class_span(c, bytes);
		num += k->count;
	}
	pthread_mutex_lock(&all_lock);
	DL_APPEND(all, p);
	pthread_mutex_unlock(&all_lock);
	*out = p;
	return 0;
}

static struct ended *ended_of(uint32_t job)
{
	for (unsigned int i = 0; i < POOL_ENDED; i++)
		if (ended[i].job == job)
			return &ended[i];
	return NULL;
}

void pool_free(struct pool *p)
{
	struct pool_info i;
	struct ended *e;

	if (!p)
		return;
	pool_info(p, &i);
	pthread_mutex_lock(&all_lock);
	DL_DELETE(all, p);
	e = ended_of(p->job);
	if (!e) {
		e = &ended[next_ended++ % POOL_ENDED];
		*e = (struct ended){ .job = p->job };
	}
	e->sum.used_peak += i.used_peak;
	e->sum.gets += i.gets;
	e->sum.refused += i.refused;
	e->sum.given_back += i.given_back;
	pthread_mutex_unlock(&all_lock);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* The @n lowest warm buffers of a class hold no memory any more. */
static void cool(struct pool *p, struct cls *k, uint32_t n)
{
	uint32_t some[64];

	while (n) {
		uint32_t part = n < 64 ? n : 64;

		for (uint32_t i = 0; i < part; i++) {
			uint64_t off = k->start + (uint64_t)k->buf[i] * k->size;

			some[i] = k->buf[i];
			if (p->giving)
				p->giving(p->giving_ctx, off, k->size);
			/* should it fail the pages stay, which costs memory only */
			madvise(p->mem + off, k->size, MADV_REMOVE);
		}
		k->warm -= part;
		memmove(k->buf, k->buf + part, k->warm * sizeof(*k->buf));
		for (uint32_t i = 0; i < part; i++)
			k->buf[k->count - ++k->cold] = some[i];
		p->warm -= (uint64_t)part * k->size;
		p->given_back += (uint64_t)part * k->size;
		n -= part;
	}
}

void pool_watch(struct pool *p, void (*fn)(void *ctx, uint64_t off, uint64_t len), void *ctx)
{
	pthread_mutex_lock(&p->lock);
	p->giving = fn;
	p->giving_ctx = ctx;
	pthread_mutex_unlock(&p->lock);
}

/* Warm buffers of other sizes give way to one of @need bytes; false: too little. */
static bool make_room(struct pool *p, uint64_t need)
{
	for (unsigned int c = POOL_CLASSES; c-- && p->used + p->warm + need > p->limit; ) {
		struct cls *k = &p->cls[c];
		uint64_t over = p->used + p->warm + need - p->limit;
		uint32_t n = (over + k->size - 1) / k->size;

		cool(p, k, n < k->warm ? n : k->warm);
	}
	return p->used + p->warm + need <= p->limit;
}

static struct prog_pool_entry *entry_of(struct pool *p, const struct pool_buf *b)
{
	struct cls *k = &p->cls[b->cls];

	return &p->dir->entry[(k->buf - p->numbers) + (b->off - k->start) / k->size];
}

/* There are entries from now on; what an earlier pool in this region has left is none. */
static void begin_dir(struct pool *p)
{
	if (p->has_dir)
		return;
	p->has_dir = true;
	if (p->dir->magic == PROG_POOL_MAGIC)
		memset(p->dir->entry, 0, p->count * sizeof(p->dir->entry[0]));
	p->dir->count = p->count;
	__atomic_store_n(&p->dir->magic, PROG_POOL_MAGIC, __ATOMIC_RELEASE);
}

void pool_note(struct pool *p, const struct pool_buf *b, uint32_t src, uint32_t slot, uint32_t serial,
	       uint64_t len)
{
	struct prog_pool_entry *e = entry_of(p, b);

	pthread_mutex_lock(&p->lock);
	begin_dir(p);
	e->src = src;
	e->slot = slot;
	e->off = b->off;
	e->len = len;
	__atomic_store_n(&e->serial, serial, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&p->lock);
}

int pool_get(struct pool *p, uint64_t len, struct pool_buf *out)
{
	struct cls *k;
	uint32_t b;
	int r = -ENOBUFS;

	if (len > POOL_MAX)
		return -EMSGSIZE;
	out->cls = class_of(len);
	k = &p->cls[out->cls];
	out->size = k->size;
	pthread_mutex_lock(&p->lock);
	if (p->used + k->size > p->limit)
		goto refused;
	if (k->warm) {
		b = k->buf[--k->warm];
		p->warm -= k->size;
	} else {
		if (!make_room(p, k->size))
			goto refused;
		if (k->cold)
			b = k->buf[k->count - k->cold--];
		else
			b = k->fresh++;
	}
	out->off = k->start + (uint64_t)b * k->size;
	p->used += k->size;
	if (p->used > p->used_peak)
		p->used_peak = p->used;
	k->gets++;
	if (++k->used > k->peak_now)
		k->peak_now = k->used;
	if (k->used > k->peak)
		k->peak = k->used;
	r = 0;
refused:
	if (r)
		p->refused++;
	pthread_mutex_unlock(&p->lock);
	return r;
}

void pool_put(struct pool *p, const struct pool_buf *b)
{
	struct cls *k = &p->cls[b->cls];

	pthread_mutex_lock(&p->lock);
	if (p->has_dir) {
		/* before anything else is written to the buffer */
		__atomic_store_n(&entry_of(p, b)->serial, 0, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	}
	k->buf[k->warm++] = (b->off - k->start) / k->size;
	k->used--;
	p->used -= k->size;
	p->warm += k->size;
	make_room(p, 0);
	pthread_mutex_unlock(&p->lock);
}

uint64_t pool_trim(struct pool *p, uint64_t now, uint64_t idle_ns)
{
	uint64_t left;

	pthread_mutex_lock(&p->lock);
	if (!p->span_end)
		p->span_end = now + idle_ns;
	if (now >= p->span_end) {
		for (unsigned int c = 0; c < POOL_CLASSES; c++) {
			struct cls *k = &p->cls[c];
			uint32_t peak = k->peak_now > k->peak_last ? k->peak_now : k->peak_last;
			uint32_t keep = peak - k->used;

			if (k->warm > keep)
				cool(p, k, k->warm - keep);
			k->peak_last = k->peak_now;
			k->peak_now = k->used;
		}
		p->span_end = now + idle_ns;
	}
	left = p->used + p->warm;
	pthread_mutex_unlock(&p->lock);
	return left;
}

void pool_limit(struct pool *p, uint64_t bytes)
{
	pthread_mutex_lock(&p->lock);
	p->limit = bytes < p->max ? bytes : p->max;
	make_room(p, 0);
	pthread_mutex_unlock(&p->lock);
}

void pool_info(struct pool *p, struct pool_info *i)
{
	memset(i, 0, sizeof(*i));
	pthread_mutex_lock(&p->lock);
	i->limit = p->limit;
	i->used = p->used;
	i->used_peak = p->used_peak;
	i->warm = p->warm;
	i->refused = p->refused;
	i->given_back = p->given_back;
	for (unsigned int c = 0; c < POOL_CLASSES; c++) {
		const struct cls *k = &p->cls[c];

		i->cls[c].used = k->used;
		i->cls[c].peak = k->peak;
		i->cls[c].warm = k->warm;
		i->cls[c].gets = k->gets;
		i->gets += k->gets;
	}
	pthread_mutex_unlock(&p->lock);
}

void pool_sum(uint32_t job, struct pool_sum *s)
{
	const struct ended *e;
	struct pool_info i;
	struct pool *p;

	pthread_mutex_lock(&all_lock);
	e = ended_of(job);
	*s = e ? e->sum : (struct pool_sum){ 0 };
	DL_FOREACH(all, p) {
		if (p->job != job)
			continue;
		pool_info(p, &i);
		s->pools++;
		s->limit += i.limit;
		s->used += i.used;
		s->warm += i.warm;
		s->used_peak += i.used_peak;
		s->gets += i.gets;
		s->refused += i.refused;
		s->given_back += i.given_back;
	}
	pthread_mutex_unlock(&all_lock);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Registered memory: buffers that peers send into, and those that we send from. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "verbs.h"

const uint32_t buf_sizes[VERBS_CLASSES] = { SMALL_SIZE, LARGE_SIZE };
const uint32_t buf_lent[VERBS_CLASSES] = { SMALL_LENT, LARGE_LENT };
static const uint32_t out[VERBS_CLASSES] = { SMALL_OUT, LARGE_OUT };

int buf_cannot_register(const struct device *d, char why[VERBS_WHY], size_t bytes)
{
	int err = errno ? errno : EIO;

	snprintf(why, VERBS_WHY, "%s: %zu KiB cannot be registered: %s%s", d->name, bytes / 1024, strerror(err),
		 err == ENOMEM ? " (RLIMIT_MEMLOCK is too small)" : "");
	return -err;
}

static void slab_free(struct slab *s)
{
	if (s->mr)
		ibv_dereg_mr(s->mr);
	free(s->mem);
	free(s);
}

/* @n[class] buffers, written by the device if @access says so. */
static struct slab *slab_new(struct device *d, const uint32_t n[VERBS_CLASSES], int access, char why[VERBS_WHY])
{
	size_t bytes = (size_t)n[SMALL] * SMALL_SIZE + (size_t)n[LARGE] * LARGE_SIZE;
	struct slab *s = calloc(1, sizeof(*s) + (n[SMALL] + n[LARGE]) * sizeof(s->buf[0]));
	uint8_t *p;
	uint32_t at = 0;

	if (s)
		s->mem = aligned_alloc(SMALL_SIZE, bytes);
	if (!s || !s->mem) {
		free(s);
		snprintf(why, VERBS_WHY, "%s: no memory for buffers", d->name);
		return NULL;
	}
	memset(s->mem, 0, bytes);
	s->mr = ibv_reg_mr(d->pd, s->mem, bytes, access);
	if (!s->mr) {
		buf_cannot_register(d, why, bytes);
		slab_free(s);
		return NULL;
	}
	p = s->mem;
	for (int class = 0; class < VERBS_CLASSES; class++) {
		for (uint32_t i = 0; i < n[class]; i++, p += buf_sizes[class])
			s->buf[at++] = (struct buf){ .d = d, .p = p, .lkey = s->mr->lkey, .class = class };
	}
	s->next = d->slabs;
	d->slabs = s;
	return s;
}

bool buf_post(struct buf *b)
{
	struct ibv_sge sge = { .addr = (uintptr_t)b->p, .length = buf_sizes[b->class], .lkey = b->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)b, .sg_list = &sge, .num_sge = 1 }, *bad;

	return !ibv_post_srq_recv(b->d->srq[b->class], &wr, &bad);
}

int buf_lend(struct device *d, char why[VERBS_WHY])
{
	struct slab *s = slab_new(d, buf_lent, IBV_ACCESS_LOCAL_WRITE, why);

	if (!s)
		return -ENOMEM;
	d->lent_slabs++;
	for (uint32_t i = 0; i < SMALL_LENT + LARGE_LENT; i++) {
		if (buf_post(&s->buf[i]))
			continue;
		snprintf(why, VERBS_WHY, "%s: does not take receive buffers", d->name);
		return -EIO;
	}
	return 0;
}

int buf_make_out(struct device *d, char why[VERBS_WHY])
{
	struct slab *s = slab_new(d, out, 0, why);

	if (!s)
		return -ENOMEM;
	for (uint32_t i = 0; i < SMALL_OUT + LARGE_OUT; i++)
		buf_put(&s->buf[i]);
	return 0;
}

struct buf *buf_take(struct device *d, int class)
{
	struct buf *b = d->out[class];

	if (b) {
		LL_DELETE(d->out[class], b);
		d->left[class]--;
	}
	return b;
}

void buf_put(struct buf *b)
{
	LL_PREPEND(b->d->out[b->class], b);
	b->d->left[b->class]++;
}

bool buf_is_scarce(const struct device *d, int class)
{
	return d->left[class] < out[class] / 2;
}

void buf_free_all(struct device *d)
{
	while (d->slabs) {
		struct slab *s = d->slabs;

		d->slabs = s->next;
		slab_free(s);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The table from handles to records: its writers.  The reader stands in hooks.h. */
#include <stdlib.h>

#include "hooks.h"

int hmap_add(struct hmap *m, uint64_t key, void *val)
{
	struct hmap_node *i = hmap_bucket(m, key), *last = i, *n = NULL;
	int rc = 0;

	pthread_mutex_lock(&m->lock);
	for (; i && (!n || n->key != key); i = i->next) {
		if (i->key == key || (!i->key && !n))
			n = i;
		last = i;
	}
	if (!n) {
		n = calloc(1, sizeof(*n));
		if (!n) {
			rc = -ENOMEM;
			goto out;
		}
		atomic_store_explicit(&last->next, n, memory_order_release);
	}
	atomic_store_explicit(&n->val, val, memory_order_relaxed);
	atomic_store_explicit(&n->key, key, memory_order_release);
out:
	pthread_mutex_unlock(&m->lock);
	return rc;
}

static void del(struct hmap *m, uint64_t key, const void *val)
{
	struct hmap_node *n = hmap_bucket(m, key);

	pthread_mutex_lock(&m->lock);
	for (; n; n = n->next)
		if (n->key == key)
			break;
	if (n && (!val || n->val == val))
		atomic_store_explicit(&n->key, 0, memory_order_release);
	pthread_mutex_unlock(&m->lock);
}

void hmap_del(struct hmap *m, uint64_t key)
{
	del(m, key, NULL);
}

void hmap_del_val(struct hmap *m, uint64_t key, const void *val)
{
	del(m, key, val);
}

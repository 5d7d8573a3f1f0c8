// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Payloads that are sent from where they are. */
#include <stdlib.h>

#include "rma/priv.h"

struct sendref *rma_ref_new(struct rma *r, struct win_map *map)
{
	struct sendref *ref = r->free_refs;

	if (ref)
		r->free_refs = ref->next;
	else
		ref = malloc(sizeof(*ref));
	if (!ref)
		return NULL;
	*ref = (struct sendref){ .r = r, .map = map ? win_map_get(map) : NULL };
	return ref;
}

void rma_ref_free(struct sendref *ref)
{
	struct rma *r = ref->r;

	win_map_put(ref->map);
	ref->next = r->free_refs;
	r->free_refs = ref;
}

void rma_refs_free(struct rma *r)
{
	while (r->free_refs) {
		struct sendref *ref = r->free_refs;

		r->free_refs = ref->next;
		free(ref);
	}
}

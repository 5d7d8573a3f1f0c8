/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Which members of a communicator share a node, and who is whose neighbour in its topology. */
#include <stdlib.h>

#include "coll.h"
#include "hooks_gen.h"

struct hcoll_topo *htopo_get(struct hcomm *c)
{
	const uint32_t *of = prog_win_nodes(p2p_context);
	uint32_t size = c->npeers, *number, *node, *start, *member, *fill;
	uint32_t n = 0, nworld = 0;
	struct hcoll_topo *t = c->topo;

	if (t)
		return t;
	for (uint32_t i = 0; i < size; i++)
		nworld = of[c->world[i]] >= nworld ? of[c->world[i]] + 1 : nworld;
	number = hcoll_mem(nworld * sizeof(*number));
	t = hcoll_mem(sizeof(*t));
	t->mem = hcoll_mem((4 * (size_t)size + 2) * sizeof(*t->mem));
	node = t->mem;
	member = node + size;
	start = member + size;		/* [n + 1] */
	fill = start + size + 1;
	for (uint32_t i = 0; i < nworld; i++)
		number[i] = UINT32_MAX;
	for (uint32_t i = 0; i < size; i++) {
		uint32_t *k = &number[of[c->world[i]]];

		if (*k == UINT32_MAX)
			*k = n++;
		node[i] = *k;
		start[*k + 1]++;
	}
	for (uint32_t i = 0; i < n; i++)
		fill[i] = start[i + 1] += start[i];
	for (uint32_t i = size; i--;)
		member[--fill[node[i]]] = i;
	prog_coll_mem_put(number);
	t->nodes = (struct prog_coll_nodes){ .n = n, .node = node, .start = start, .member = member };
	c->topo = t;
	return t;
}

void htopo_free(struct hcoll_topo *t)
{
	if (!t)
		return;
	prog_coll_mem_put(t->mem);
	prog_coll_mem_put(t->edges);
	prog_coll_mem_put(t);
}

/* Room for edges: @nin that are sent on, @nout that are received on. */
static void edges_new(struct hcoll_topo *t, int nin, int nout)
{
	t->edges = hcoll_mem((3 * ((size_t)nin + (size_t)nout) + 1) * sizeof(*t->edges));
	t->nin = (uint32_t)nin;
	t->nout = (uint32_t)nout;
	t->in_peer = t->edges;
	t->in_tag = t->in_peer + nin;
	t->out_peer = t->in_tag + nin;
	t->out_tag = t->out_peer + nout;
	t->order = t->out_tag + nout;
}

static uint32_t peer_of(int rank)
{
	return rank < 0 ? PROG_COLL_NOBODY : (uint32_t)rank;
}

/* What goes in one direction of a dimension comes from the other one (MPI-4.0, 8.6), which matters where both are one neighbour. */
static bool cart_edges(struct hcomm *c, struct hcoll_topo *t)
{
	int ndims;

	if (PMPI_Cartdim_get(c->handle, &ndims))
		return false;
	edges_new(t, 2 * ndims, 2 * ndims);
	for (int d = 0; d < ndims; d++) {
		int peer[2];

		if (PMPI_Cart_shift(c->handle, d, 1, &peer[0], &peer[1]))
			return false;
		for (int i = 0; i < 2; i++) {
			uint32_t e = 2 * (uint32_t)d + (uint32_t)i;

			t->in_peer[e] = t->out_peer[e] = peer_of(peer[i]);
			t->in_tag[e] = e;
			t->out_tag[e] = e ^ 1;
		}
	}
	return true;
}

static bool graph_edges(struct hcomm *c, struct hcoll_topo *t)
{
	int n;

	if (PMPI_Graph_neighbors_count(c->handle, c->rank, &n))
		return false;
	edges_new(t, n, n);
	if (n && PMPI_Graph_neighbors(c->handle, c->rank, n, (int *)(void *)t->in_peer))
		return false;
	for (int i = 0; i < n; i++)
		t->out_peer[i] = t->in_peer[i];
	return true;
}

static bool dist_graph_edges(struct hcomm *c, struct hcoll_topo *t)
{
	int nin, nout, weighted;
	int *weights;
	bool ok;

	/* MPI's sources are who we receive from */
	if (PMPI_Dist_graph_neighbors_count(c->handle, &nout, &nin, &weighted))
		return false;
	edges_new(t, nin, nout);
	weights = hcoll_mem(((size_t)nin + (size_t)nout + 1) * sizeof(*weights));
	ok = !PMPI_Dist_graph_neighbors(c->handle, nout, (int *)(void *)t->out_peer, weights, nin, (int *)(void *)t->in_peer,
					weights + nout);
	prog_coll_mem_put(weights);
	return ok;
}

static bool ask(struct hcomm *c, struct hcoll_topo *t)
{
	int kind;

	if (PMPI_Topo_test(c->handle, &kind))
		return false;
	if (kind == MPI_CART)
		return cart_edges(c, t);
	if (kind != MPI_GRAPH && kind != MPI_DIST_GRAPH)
		return false;
	if (!(kind == MPI_GRAPH ? graph_edges(c, t) : dist_graph_edges(c, t)))
		return false;
	/* the k-th edge to a neighbour is its k-th from here */
	prog_coll_number(t->in_peer, t->nin, t->order, t->in_tag);
	prog_coll_number(t->out_peer, t->nout, t->order, t->out_tag);
	return true;
}

bool htopo_neighbours(struct hcomm *c, struct hcoll_topo *t)
{
	if (!t->asked && !ask(c, t)) {
		prog_coll_mem_put(t->edges);
		t->edges = t->in_peer = NULL;
	} else if (!t->asked) {
		struct prog_coll_desc d = {
			.rank = (uint32_t)c->self, .size = c->npeers, .nin = t->nin, .nout = t->nout,
			.in_peer = t->in_peer, .out_peer = t->out_peer, .in_tag = t->in_tag, .out_tag = t->out_tag,
		};

		prog_coll_order(&d, t->order);
	}
	t->asked = true;
	return t->in_peer;
}

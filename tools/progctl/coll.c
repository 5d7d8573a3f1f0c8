// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Which algorithms collectives have: the daemon says what messages cost, the client library what follows from it. */
#include <progclient.h>
#include <stdio.h>
#include <string.h>

#include "progctl.h"

#define NODES_DEFAULT	4
#define RANKS_DEFAULT	2
#define RANKS_MAX	(1u << 30)	/* of all nodes */
#define CHOICES_MAX	8

/* What the lengths are of that choices begin with. */
static const struct {
	const char *name, *of;
} kinds[PROG_COLL_KINDS] = {
	[PROG_COLL_BARRIER] = { "barrier", "-" },
	[PROG_COLL_BCAST] = { "bcast", "message" },
	[PROG_COLL_GATHER] = { "gather", "all blocks" },
	[PROG_COLL_SCATTER] = { "scatter", "all blocks" },
	[PROG_COLL_ALLGATHER] = { "allgather", "all blocks" },
	[PROG_COLL_ALLTOALL] = { "alltoall", "block" },
	[PROG_COLL_GATHERV] = { "gatherv", "-" },
	[PROG_COLL_SCATTERV] = { "scatterv", "-" },
	[PROG_COLL_ALLGATHERV] = { "allgatherv", "all blocks" },
	[PROG_COLL_ALLTOALLV] = { "alltoallv", "-" },
	[PROG_COLL_NEIGHBOR] = { "neighbor", "-" },
	[PROG_COLL_REDUCE] = { "reduce", "operand" },
	[PROG_COLL_ALLREDUCE] = { "allreduce", "operand" },
	[PROG_COLL_REDUCE_SCATTER] = { "reduce_scatter", "all operands" },
	[PROG_COLL_SCAN] = { "scan", "operand" },
	[PROG_COLL_EXSCAN] = { "exscan", "operand" },
};

static uint64_t constant(json_t *res, const char *name)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(res, "constants"), i, row) {
		const char *is = json_string_value(json_object_get(row, "constant"));
		json_int_t v = json_integer_value(json_object_get(row, "value"));

		if (is && !strcmp(is, name))
			return v > 0 ? (uint64_t)v : 0;
	}
	return 0;
}

static json_t *algorithms(json_t *res, uint32_t nodes, uint32_t ranks)
{
	const struct prog_coll_costs c = {
		.net_ns = constant(res, "net_ns"), .node_ns = constant(res, "node_ns"), .net_ps = constant(res, "net_ps"),
		.node_ps = constant(res, "node_ps"), .reduce_ps = constant(res, "reduce_ps"),
		.steady_net_ns = constant(res, "steady_net_ns"), .steady_net_ps = constant(res, "steady_net_ps"),
	};
	struct prog_coll_choice choice[CHOICES_MAX];
	json_t *rows = json_array();

	for (int k = 0; k < PROG_COLL_KINDS; k++) {
		uint32_t n = prog_coll_choices(&c, k, nodes, ranks, choice, CHOICES_MAX);

		for (uint32_t i = 0; i < n && i < CHOICES_MAX; i++)
			json_array_append_new(rows, json_pack("{s:s,s:I,s:s,s:s}", "kind", kinds[k].name, "from_bytes",
							      (json_int_t)choice[i].from, "of", kinds[k].of, "algorithm",
							      choice[i].algorithm));
	}
	return rows;
}

/* A number from 1 to @most; false after a line on stderr. */
static bool number(const char *what, const char *text, uint64_t most, uint32_t *out)
{
	uint64_t v;

	if (!parse_number(text, "", &v) || !v || v > most) {
		fprintf(stderr, "progctl: coll: %s: no number of %s from 1 to %llu\n", text, what, (unsigned long long)most);
		return false;
	}
	*out = (uint32_t)v;
	return true;
}

int cmd_coll(int argc, char **argv)
{
	static const char *const constant_cols[] = { "constant", "value", "source", NULL };
	static const char *const algorithm_cols[] = { "kind", "from_bytes", "of", "algorithm", NULL };
	uint32_t nodes = NODES_DEFAULT, ranks = RANKS_DEFAULT;
	json_t *res;

	if (argc > 2) {
		fprintf(stderr, "usage: progctl coll [NODES [RANKS]]\n");
		return 2;
	}
	if ((argc > 0 && !number("nodes", argv[0], RANKS_MAX / RANKS_DEFAULT, &nodes)) ||
	    (argc > 1 && !number("ranks of each node", argv[1], RANKS_MAX / nodes, &ranks)))
		return 2;
	res = ask(json_pack("{s:s}", "cmd", "coll"));
	if (!res)
		return print_result(res);
	json_object_set_new(res, "nodes", json_integer(nodes));
	json_object_set_new(res, "ranks_of_each", json_integer(ranks));
	json_object_set_new(res, "algorithms", algorithms(res, nodes, ranks));
	if (opt.json)
		return print_result(res);
	print_table(json_object_get(res, "constants"), constant_cols);
	printf("\non %u node%s with %u rank%s each:\n", nodes, nodes == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
	print_table(json_object_get(res, "algorithms"), algorithm_cols);
	json_decref(res);
	return 0;
}

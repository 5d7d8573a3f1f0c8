// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Members of a collective that do not agree.  The standard calls such a program wrong, and libraries do what they like; with the
 * hooks, whoever gets a message of another length than he expects, or none as others have called something else, has an error,
 * nobody waits for ever, and nothing is written beyond any buffer.  Without them there is nothing to be tested.
 */
#include "mpitest.h"

#define COUNT	500
#define MORE	8		/* that one member has more */
#define GUARD	0x5a

static MPI_Comm comm;

struct buffers {
	unsigned char *in, *out;
	size_t n;			/* bytes that a call may write */
};

enum call { BCAST, GATHER, SCATTER, ALLGATHER, ALLTOALL, REDUCE, ALLREDUCE, SCAN, REDUCE_SCATTER, CALLS };
static const char *const names[CALLS] = {
	"bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan", "reduce_scatter_block",
};

/* What members have to call alike, besides the call and the communicator. */
struct args {
	int count;
	MPI_Datatype type;
	MPI_Op op;
	int root;
};

/* count items of type at each rank, or for each rank */
static void start(enum call call, const struct buffers *b, const struct args *a, MPI_Request *q)
{
	int count = a->count, root = a->root;
	MPI_Datatype type = a->type;
	MPI_Op op = a->op;

	switch (call) {
	case BCAST:
		M(MPI_Ibcast(b->out, count, type, root, comm, q));
		break;
	case GATHER:
		M(MPI_Igather(b->in, count, type, b->out, count, type, root, comm, q));
		break;
	case SCATTER:
		M(MPI_Iscatter(b->in, count, type, b->out, count, type, root, comm, q));
		break;
	case ALLGATHER:
		M(MPI_Iallgather(b->in, count, type, b->out, count, type, comm, q));
		break;
	case ALLTOALL:
		M(MPI_Ialltoall(b->in, count, type, b->out, count, type, comm, q));
		break;
	case REDUCE:
		M(MPI_Ireduce(b->in, b->out, count, type, op, root, comm, q));
		break;
	case ALLREDUCE:
		M(MPI_Iallreduce(b->in, b->out, count, type, op, comm, q));
		break;
	case SCAN:
		M(MPI_Iscan(b->in, b->out, count, type, op, comm, q));
		break;
	default:
		M(MPI_Ireduce_scatter_block(b->in, b->out, count, type, op, comm, q));
	}
}

/* One call with other arguments, @as, at rank @who, which calls @whose, and then one that is well.  @noticed: somebody has an error. */
static void one(enum call call, enum call whose, int who, const struct args *all_others, const struct args *as, bool noticed)
{
	const struct args *a = t_rank == who ? as : all_others;
	struct buffers b;
	int mine = 0, all = 0, sum = 0, err, class = MPI_SUCCESS, size;
	MPI_Request q;

	MPI_Type_size(a->type, &size);
	b.n = (size_t)a->count * (size_t)size * (size_t)t_size;
	b.in = calloc(1, b.n);
	b.out = malloc(b.n + 4096);
	memset(b.out, GUARD, b.n + 4096);
	start(t_rank == who ? whose : call, &b, a, &q);
	err = MPI_Wait(&q, MPI_STATUS_IGNORE);
	if (err)
		MPI_Error_class(err, &class);
	T_OK(class == MPI_SUCCESS || class == MPI_ERR_TRUNCATE || class == MPI_ERR_ARG, "class %d", class);
	T_OK(q == MPI_REQUEST_NULL, "the request is still there");
	mine = class != MPI_SUCCESS;
	for (size_t i = 0; i < 4096; i++)
		if (b.out[b.n + i] != GUARD) {
			T_OK(false, "byte %zu behind the buffer was written", i);
			break;
		}
	M(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
	T_OK(all > 0 || !noticed, "nobody has noticed");
	mine = 1;
	M(MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	T_EQ(sum, t_size);
	free(b.in);
	free(b.out);
}

static const struct args usual = { .count = COUNT, .type = MPI_DOUBLE, .op = MPI_SUM };

static void everywhere(enum call call, const struct args *as)
{
	for (int who = 0; who < t_size; who++)
		one(call, call, who, &usual, as, true);
}

/*
 * Another root, operation or type of the same length, or another call: messages do not meet, and members ask each other.  Each lasts for
 * seconds: of long messages there are few.
 */
static void not_the_same(void)
{
	static const int counts[] = { 3, 40000 };

	for (int i = 0; i < ARRAY_SIZE(counts); i++) {
		struct args a = { .count = counts[i], .type = MPI_INT, .op = MPI_SUM }, root = a, op = a, type = a;

		root.root = t_size - 1;
		op.op = MPI_BOR;
		type.type = MPI_FLOAT;
		if (t_begin("root.%d", counts[i])) {
			one(BCAST, BCAST, 1, &a, &root, true);
			if (!i) {
				/* who sends only may not learn of it but by a line */
				one(BCAST, BCAST, t_size - 1, &a, &root, false);
				one(SCATTER, SCATTER, 1, &a, &root, true);
				one(GATHER, GATHER, t_size - 1, &a, &root, true);
				one(REDUCE, REDUCE, 0, &a, &root, true);
			}
			t_end();
		}
		if (t_begin("op.%d", counts[i])) {
			one(ALLREDUCE, ALLREDUCE, 1, &a, &op, true);
			if (!i) {
				one(REDUCE, REDUCE, 1, &a, &op, true);
				one(SCAN, SCAN, 0, &a, &op, true);
			}
			t_end();
		}
		if (t_begin("element.%d", counts[i])) {
			one(REDUCE_SCATTER, REDUCE_SCATTER, 1, &a, &type, true);
			if (!i)
				one(ALLREDUCE, ALLREDUCE, 0, &a, &type, true);
			t_end();
		}
		if (t_begin("call.%d", counts[i])) {
			one(ALLTOALL, ALLGATHER, 2 % t_size, &a, &a, true);
			if (!i)
				one(ALLREDUCE, BCAST, 1, &a, &a, true);
			t_end();
		}
	}
}

/*
 * Lengths that only two members know, of which one says that it is nothing: the last rank sends nothing to rank 0, which expects something.
 * All at once, each on a communicator of its own, and in another order at the last rank.
 */
enum { ALLTOALLV, ALLTOALLW, GATHERV, SCATTERV, NEIGHBOR, NEIGHBOR_W, VARIABLE };

static void start_variable(int call, MPI_Comm on, int *in, int *out, int *counts[2], MPI_Request *q)
{
	static int displs[16], ones[16];
	static MPI_Aint at[16];
	static MPI_Datatype types[16];
	int last = t_size - 1, mine = t_rank == last ? 0 : 1, n = mine;

	for (int i = 0; i < t_size; i++) {
		displs[i] = i;
		ones[i] = counts[0][i] = counts[1][i] = 1;
		at[i] = displs[i] * (MPI_Aint)sizeof(int);
		types[i] = MPI_INT;
	}
	counts[0][0] = mine;
	if (call == ALLTOALLW)
		for (int i = 0; i < t_size; i++)
			displs[i] *= (int)sizeof(int);
	switch (call) {
	case ALLTOALLV:
		M(MPI_Ialltoallv(in, counts[0], displs, MPI_INT, out, counts[1], displs, MPI_INT, on, q));
		break;
	case ALLTOALLW:
		M(MPI_Ialltoallw(in, counts[0], displs, types, out, counts[1], displs, types, on, q));
		break;
	case GATHERV:
		M(MPI_Igatherv(in, n, MPI_INT, out, ones, displs, MPI_INT, 0, on, q));
		break;
	case SCATTERV:
		M(MPI_Iscatterv(in, counts[0], displs, MPI_INT, out, 1, MPI_INT, last, on, q));
		break;
	case NEIGHBOR:
		M(MPI_Ineighbor_alltoallv(in, counts[0], displs, MPI_INT, out, counts[1], displs, MPI_INT, on, q));
		break;
	default:
		M(MPI_Ineighbor_alltoallw(in, counts[0], at, types, out, counts[1], at, types, on, q));
	}
}

static void zero(void)
{
	static int in[VARIABLE][16], out[VARIABLE][16], counts[VARIABLE][2][16];
	int all[16], ones[16];
	MPI_Request q[VARIABLE];
	MPI_Comm on[VARIABLE];

	for (int i = 0; i < t_size; i++) {
		all[i] = i;
		ones[i] = 1;
	}
	for (int k = 0; k < VARIABLE; k++) {
		if (k < NEIGHBOR)
			M(MPI_Comm_dup(MPI_COMM_WORLD, &on[k]));
		else
			M(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, t_size, all, ones, t_size, all, ones, MPI_INFO_NULL, 0, &on[k]));
		M(MPI_Comm_set_errhandler(on[k], MPI_ERRORS_RETURN));
	}
	for (int i = 0; i < VARIABLE; i++) {
		int k = t_rank == t_size - 1 ? VARIABLE - 1 - i : i;
		int *c[2] = { counts[k][0], counts[k][1] };

		start_variable(k, on[k], in[k], out[k], c, &q[k]);
	}
	for (int k = 0; k < VARIABLE; k++) {
		int err = MPI_Wait(&q[k], MPI_STATUS_IGNORE), class = MPI_SUCCESS;

		if (err)
			MPI_Error_class(err, &class);
		T_OK(class == (t_rank ? MPI_SUCCESS : MPI_ERR_ARG), "call %d: class %d", k, class);
		M(MPI_Comm_free(&on[k]));
	}
}

int main(int argc, char **argv)
{
	struct args more = usual, shorter = usual;

	more.count += MORE;
	shorter.type = MPI_FLOAT;
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	for (int c = 0; t_expect_progress && c < CALLS; c++) {
		if (t_begin("count.%s", names[c])) {
			everywhere((enum call)c, &more);
			t_end();
		}
		if (t_begin("type.%s", names[c])) {
			everywhere((enum call)c, &shorter);
			t_end();
		}
	}
	if (t_expect_progress) {
		not_the_same();
		T_RUN(zero, 2);
	}
	MPI_Comm_free(&comm);
	return t_fini();
}

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
	if (t_expect_progress)
		not_the_same();
	MPI_Comm_free(&comm);
	return t_fini();
}

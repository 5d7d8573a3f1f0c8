// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Members of a collective that do not agree.  The standard calls such a program wrong, and libraries do what they like; with the
 * hooks, whoever gets a message of another length than he expects has an error, nobody waits for ever, and nothing is written beyond
 * any buffer.  Without them there is nothing to be tested.
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

/* @count items of @type at each rank, or for each rank */
static void start(enum call call, const struct buffers *b, int count, MPI_Datatype type, MPI_Request *q)
{
	switch (call) {
	case BCAST:
		M(MPI_Ibcast(b->out, count, type, 0, comm, q));
		break;
	case GATHER:
		M(MPI_Igather(b->in, count, type, b->out, count, type, 0, comm, q));
		break;
	case SCATTER:
		M(MPI_Iscatter(b->in, count, type, b->out, count, type, 0, comm, q));
		break;
	case ALLGATHER:
		M(MPI_Iallgather(b->in, count, type, b->out, count, type, comm, q));
		break;
	case ALLTOALL:
		M(MPI_Ialltoall(b->in, count, type, b->out, count, type, comm, q));
		break;
	case REDUCE:
		M(MPI_Ireduce(b->in, b->out, count, type, MPI_SUM, 0, comm, q));
		break;
	case ALLREDUCE:
		M(MPI_Iallreduce(b->in, b->out, count, type, MPI_SUM, comm, q));
		break;
	case SCAN:
		M(MPI_Iscan(b->in, b->out, count, type, MPI_SUM, comm, q));
		break;
	default:
		M(MPI_Ireduce_scatter_block(b->in, b->out, count, type, MPI_SUM, comm, q));
	}
}

/* One call with other arguments at rank @who, and then one that is well. */
static void one(enum call call, int who, int count, MPI_Datatype type)
{
	struct buffers b;
	int mine = 0, all = 0, sum = 0, err, class = MPI_SUCCESS, size;
	MPI_Request q;

	if (t_rank != who) {
		count = COUNT;
		type = MPI_DOUBLE;
	}
	MPI_Type_size(type, &size);
	b.n = (size_t)count * (size_t)size * (size_t)t_size;
	b.in = calloc(1, b.n);
	b.out = malloc(b.n + 4096);
	memset(b.out, GUARD, b.n + 4096);
	start(call, &b, count, type, &q);
	err = MPI_Wait(&q, MPI_STATUS_IGNORE);
	if (err)
		MPI_Error_class(err, &class);
	T_OK(class == MPI_SUCCESS || class == MPI_ERR_TRUNCATE, "class %d", class);
	T_OK(q == MPI_REQUEST_NULL, "the request is still there");
	mine = class != MPI_SUCCESS;
	for (size_t i = 0; i < 4096; i++)
		if (b.out[b.n + i] != GUARD) {
			T_OK(false, "byte %zu behind the buffer was written", i);
			break;
		}
	M(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
	T_OK(all > 0, "nobody has noticed");
	mine = 1;
	M(MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	T_EQ(sum, t_size);
	free(b.in);
	free(b.out);
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	for (int c = 0; t_expect_progress && c < CALLS; c++) {
		if (t_begin("count.%s", names[c])) {
			for (int who = 0; who < t_size; who++)
				one((enum call)c, who, COUNT + MORE, MPI_DOUBLE);
			t_end();
		}
		if (t_begin("type.%s", names[c])) {
			for (int who = 0; who < t_size; who++)
				one((enum call)c, who, COUNT, MPI_FLOAT);
			t_end();
		}
	}
	MPI_Comm_free(&comm);
	return t_fini();
}

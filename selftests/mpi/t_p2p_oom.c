// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A rank has no memory when it receives or probes: the call says so and the message is still there, or it is received all the same.
 * Either way it is counted once, or not at all: what follows on its channel is well.  Without the hooks nothing fails.
 */
#include "mpitest.h"
#include "oomtest.h"

#define BIG	300000
#define TAG	5

static unsigned char *sbuf, *rbuf, *want;
static MPI_Comm comm;

static void setup(void)
{
	sbuf = calloc(1, BIG);
	rbuf = calloc(1, BIG);
	want = calloc(1, BIG);
	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	M(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
}

static void finish(void)
{
	M(MPI_Comm_free(&comm));
	free(sbuf);
	free(rbuf);
	free(want);
}

/* Receives that are there before their messages, which are moved. */
static void after(void)
{
	enum { MANY = 8 };
	unsigned char *all = malloc((size_t)MANY * BIG);
	MPI_Request q[MANY];

	for (int i = 0; i < MANY && !t_rank; i++)
		M(MPI_Irecv(all + (size_t)i * BIG, BIG, MPI_BYTE, 1, TAG, comm, &q[i]));
	t_barrier();
	for (int i = 0; i < MANY && t_rank == 1; i++) {
		t_fill(all + (size_t)i * BIG, BIG, i);
		M(MPI_Isend(all + (size_t)i * BIG, BIG, MPI_BYTE, 0, TAG, comm, &q[i]));
	}
	if (t_rank < 2)
		M(MPI_Waitall(MANY, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < MANY && !t_rank; i++) {
		t_fill(want, BIG, i);
		T_BYTES("a message behind it", all + (size_t)i * BIG, want, BIG);
	}
	free(all);
}

/* In this type a message may end inside of an element, and in the middle of a descriptor. */
static MPI_Datatype mixed(void)
{
	const int ones[] = { 1, 1 };
	const MPI_Aint at[] = { 0, 8 };
	const MPI_Datatype types[] = { MPI_CHAR, MPI_INT };
	MPI_Datatype t;

	M(MPI_Type_create_struct(2, ones, at, types, &t));
	M(MPI_Type_commit(&t));
	return t;
}

static int class_of(int err)
{
	int class = MPI_SUCCESS;

	if (err)
		M(MPI_Error_class(err, &class));
	return class;
}

enum way { RECV, IRECV, SENDRECV, REPLACE, MRECV, PROBE, WAYS };
static const char *const way_names[WAYS] = { "recv", "irecv", "sendrecv", "sendrecv_replace", "mrecv", "probe" };

static int receive(enum way way, int count, MPI_Datatype type, MPI_Status *st)
{
	int one = 1, rc;
	MPI_Message msg;
	MPI_Request q;

	switch (way) {
	case IRECV:
		rc = MPI_Irecv(rbuf, count, type, 1, TAG, comm, &q);
		return rc ? rc : MPI_Wait(&q, st);
	case SENDRECV:
		return MPI_Sendrecv(&one, 1, MPI_INT, 2, TAG, rbuf, count, type, 1, TAG, comm, st);
	case REPLACE:
		return MPI_Sendrecv_replace(rbuf, count, type, 2, TAG, 1, TAG, comm, st);
	case MRECV:
		rc = MPI_Mprobe(1, TAG, comm, &msg, st);
		return rc ? rc : MPI_Mrecv(rbuf, count, type, &msg, st);
	case PROBE:
		rc = MPI_Probe(MPI_ANY_SOURCE, TAG, comm, st);
		return rc ? rc : MPI_Recv(rbuf, count, type, 1, TAG, comm, st);
	default:
		return MPI_Recv(rbuf, count, type, 1, TAG, comm, st);
	}
}

/* Takes all records that there are, for receives that nothing is sent to. */
static int take_records(MPI_Request *q, int most)
{
	int n = 0;

	fail_on = true;
	fail_in = 0;
	while (n < most && !MPI_Irecv(NULL, 0, MPI_BYTE, 1, TAG + 1, comm, &q[n]))
		n++;
	return n;
}

/* One message of @n bytes, into @count of @type, which are @room bytes; allocation @k fails, and with @on all others. */
static bool one(enum way way, int n, int count, MPI_Datatype type, int room, int k, bool on, bool no_records)
{
	enum { MOST = 4096 };
	static MPI_Request q[MOST];
	int class, there = 1, nq = 0, more = 0;
	MPI_Status st;

	if (t_rank == 1) {
		t_fill(sbuf, n, n + k);
		M(MPI_Send(sbuf, n, MPI_BYTE, 0, TAG, comm));
	} else if (t_rank == 2 && (way == SENDRECV || way == REPLACE)) {
		M(MPI_Recv(rbuf, BIG, MPI_BYTE, 0, TAG, comm, MPI_STATUS_IGNORE));
	} else if (!t_rank) {
		failed = false;
		if (no_records)
			nq = take_records(q, hooks_lo ? MOST : 1);
		fail_on = on;
		fail_in = k;
		class = class_of(receive(way, count, type, &st));
		fail_in = -1;
		if (class == MPI_ERR_NO_MEM) {
			T_OK(failed, "no reason");
			/* what was matched may be lost */
			if (way == MRECV || way == PROBE)
				M(MPI_Iprobe(1, TAG, comm, &there, &st));
			if (there)
				class = class_of(receive(way == MRECV || way == PROBE ? RECV : way, count, type, &st));
		}
		if (there)
			T_EQ(class, n > room ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
		for (int i = 0; i < nq; i++) {
			M(MPI_Cancel(&q[i]));
			M(MPI_Wait(&q[i], MPI_STATUS_IGNORE));
		}
		more = failed;
	}
	M(MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD));
	after();
	return more;
}

static void buffers(enum way way)
{
	static const int sizes[] = { 95, 240, 3000, 60000 };
	MPI_Datatype t = mixed();

	setup();
	for (int i = 0; i < ARRAY_SIZE(sizes); i++)
		for (int on = 0; on < 2; on++)
			for (int k = 0; k < 6; k++)
				if (!one(way, sizes[i], sizes[i] / 5, t, sizes[i], k, on, false))
					break;
	M(MPI_Type_free(&t));
	finish();
}

/* Messages that are as long as a descriptor, or do not fit, when all records are under way. */
static void records(enum way way)
{
	static const int sizes[] = { 240, 1000, 64000 };

	setup();
	for (int i = 0; i < ARRAY_SIZE(sizes); i++)
		for (int room = 0; room <= 240; room += 80)
			one(way, sizes[i], room, MPI_BYTE, room, 0, true, true);
	finish();
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	dl_iterate_phdr(find_hooks, NULL);
	for (int way = 0; way < WAYS; way++) {
		if (t_begin("buffers.%s", way_names[way])) {
			buffers(way);
			t_end();
		}
		if (way != REPLACE && t_begin("records.%s", way_names[way])) {
			records(way);
			t_end();
		}
	}
	return t_fini();
}

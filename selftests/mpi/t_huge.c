// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Messages of more bytes than an int counts. What a rank only reads of memory that it never wrote costs none, so a point needs
 * twice the length of its message, for a copy and for where it is received.
 *
 * recv_with_gaps is about messages that are the library's, which takes minutes on a busy machine, so it is not in the list:
 * tools/vnodes/vnodes run --mpi ompi -n 2 --hook --env TEST_ONLY=recv_with_gaps --set p2p_offload=1T -- build/selftests/mpi/ompi/huge
 */
#include "mpitest.h"

#define TAG 7
#define ITEMS ((1 << 28) + 1)	/* of 8 bytes */
#define MARKS 9
#define SMALL 65536
#define BEHIND 8

/* places around each GiB, and the last one */
static size_t mark(int i)
{
	return i == MARKS - 1 ? ITEMS - 1 : (size_t)ITEMS / (MARKS - 1) * i;
}

static bool enough_memory(void)
{
	unsigned long kib = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "r");
	int all;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "MemAvailable: %lu", &kib);
	if (f)
		fclose(f);
	all = kib >> 20 >= 7;
	MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (!all)
		t_skip("less than 7 GiB of memory");
	return all;
}

/* what comes behind it on the same channel is what was sent behind it; receives are posted first, so that the daemon is told of them */
static void behind(void)
{
	unsigned char *buf = malloc(BEHIND * SMALL), *want = malloc(SMALL);
	MPI_Request q[BEHIND];

	memset(buf, 0, BEHIND * SMALL);
	for (int i = 0; i < BEHIND && t_rank == 1; i++)
		M(MPI_Irecv(buf + i * SMALL, SMALL, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &q[i]));
	t_barrier();
	for (int i = 0; i < BEHIND && t_rank == 0; i++) {
		t_fill(buf + i * SMALL, SMALL, i);
		M(MPI_Isend(buf + i * SMALL, SMALL, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &q[i]));
	}
	if (t_rank < 2)
		M(MPI_Waitall(BEHIND, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < BEHIND && t_rank == 1; i++) {
		t_fill(want, SMALL, i);
		T_BYTES("behind it", buf + i * SMALL, want, SMALL);
	}
	free(want);
	free(buf);
}

static void sendrecv_replace(void)
{
	int64_t *buf = NULL, bad = 0;
	MPI_Status st;
	int n;

	if (!enough_memory())
		return;
	if (t_rank < 2)
		buf = calloc(ITEMS, 8);
	if (t_rank == 0) {
		for (int i = 0; i < MARKS; i++)
			buf[mark(i)] = i + 1;
		M(MPI_Sendrecv_replace(buf, ITEMS, MPI_INT64_T, 1, TAG, 1, TAG, MPI_COMM_WORLD, &st));
		M(MPI_Get_count(&st, MPI_INT64_T, &n));
		T_EQ(n, 1);
		T_EQ(buf[0], -1);
		T_EQ(buf[mark(1)], 2);
	} else if (t_rank == 1) {
		buf[0] = -1;
		M(MPI_Send(buf, 1, MPI_INT64_T, 0, TAG, MPI_COMM_WORLD));
		M(MPI_Recv(buf, ITEMS, MPI_INT64_T, 0, TAG, MPI_COMM_WORLD, &st));
		M(MPI_Get_count(&st, MPI_INT64_T, &n));
		T_EQ(n, ITEMS);
		for (int i = 0; i < MARKS; i++) {
			T_EQ(buf[mark(i)], i + 1);
			buf[mark(i)] = 0;
		}
		for (size_t i = 0; i < ITEMS; i++)
			bad += buf[i] != 0;
		T_EQ(bad, 0);
	}
	free(buf);
	behind();
}

/* numbers and bytes, and a byte between them that stays */
struct gapped {
	int64_t number;
	char bytes[7], gap;
};

static MPI_Datatype gapped_type(void)
{
	int n[2] = { 1, 7 };
	MPI_Aint at[2] = { 0, offsetof(struct gapped, bytes) };
	MPI_Datatype parts[2] = { MPI_INT64_T, MPI_CHAR }, all, type;

	M(MPI_Type_create_struct(2, n, at, parts, &all));
	M(MPI_Type_create_resized(all, 0, sizeof(struct gapped), &type));
	M(MPI_Type_commit(&type));
	M(MPI_Type_free(&all));
	return type;
}

static void recv_with_gaps(void)
{
	const int items = INT32_MAX / 15 + 2;
	MPI_Datatype type = gapped_type();
	struct gapped *buf;
	int64_t bad = 0;
	MPI_Status st;
	int n;

	if (enough_memory() && t_rank < 2) {
		buf = calloc(items, sizeof(*buf));
		if (t_rank == 0) {
			buf[items / 2].number = 4711;
			buf[items - 1].bytes[6] = 'z';
			buf[items - 1].gap = 'g';
			M(MPI_Send(buf, items, type, 1, TAG, MPI_COMM_WORLD));
		} else {
			buf[0].gap = 'h';
			M(MPI_Recv(buf, items, type, 0, TAG, MPI_COMM_WORLD, &st));
			M(MPI_Get_count(&st, type, &n));
			T_EQ(n, items);
			T_EQ(buf[items / 2].number, 4711);
			T_EQ(buf[items - 1].bytes[6], 'z');
			T_EQ(buf[0].gap, 'h');
			buf[items / 2].number = buf[items - 1].bytes[6] = buf[0].gap = 0;
			for (size_t i = 0; i < sizeof(*buf) / 8 * items; i++)
				bad += ((int64_t *)buf)[i] != 0;
			T_EQ(bad, 0);
		}
		free(buf);
	}
	M(MPI_Type_free(&type));
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(sendrecv_replace, 2);
	T_RUN(recv_with_gaps, 2);
	return t_fini();
}

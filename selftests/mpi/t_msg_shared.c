// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Messages from memory of MPI_Alloc_mem, which daemons with RDMA read there, to such memory and to other one, both ways at a time:
 * lengths about those at which another way or another part begins, places that are aligned in another way than those they come from.
 */
#include "mpitest.h"

#define MAX	((4 << 20) + 12345)
#define PAD	64
#define AT_ONCE	2

static const int sizes[] = { 16383, 16384, 16385, 20480, 65536, 65537, 524287, 524288, 528385, 1 << 20, MAX };

static uint64_t seed_of(int rank, int i, int k)
{
	return (uint64_t)rank * 1000000 + (uint64_t)i * 100 + (uint64_t)k;
}

static void swap(unsigned char *out, unsigned char *in, unsigned char *want, int i, int shift)
{
	int peer = 1 - t_rank, n = sizes[i];
	MPI_Request q[2 * AT_ONCE];

	/* of a large one there is one at a time */
	int many = n > 1 << 20 ? 1 : AT_ONCE, room = n + PAD;

	memset(in, 0xa5, (size_t)many * (size_t)room + PAD);
	for (int k = 0; k < many; k++)
		M(MPI_Irecv(in + k * room + shift, n, MPI_BYTE, peer, k, MPI_COMM_WORLD, &q[k]));
	for (int k = 0; k < many; k++) {
		t_fill(out + k * room, n, seed_of(t_rank, i, k));
		M(MPI_Isend(out + k * room, n, MPI_BYTE, peer, k, MPI_COMM_WORLD, &q[many + k]));
	}
	M(MPI_Waitall(2 * many, q, MPI_STATUSES_IGNORE));
	memset(want, 0xa5, (size_t)many * (size_t)room + PAD);
	for (int k = 0; k < many; k++)
		t_fill(want + k * room + shift, n, seed_of(peer, i, k));
	T_BYTES("receive buffers", in, want, (size_t)many * (size_t)room + PAD);
}

static void swap_all(bool shared)
{
	size_t room = MAX + (size_t)AT_ONCE * ((1 << 20) + PAD) + 2 * PAD;
	unsigned char *out = NULL, *in = NULL, *want = malloc(room);

	M(MPI_Alloc_mem((MPI_Aint)room, MPI_INFO_NULL, &out));
	if (shared)
		M(MPI_Alloc_mem((MPI_Aint)room, MPI_INFO_NULL, &in));
	else
		in = malloc(room);
	if (!out || !in || !want)
		abort();
	for (int i = 0; t_rank < 2 && i < ARRAY_SIZE(sizes); i++)
		swap(out, in, want, i, i * 7 % 16);
	t_barrier();
	M(MPI_Free_mem(out));
	if (shared)
		M(MPI_Free_mem(in));
	else
		free(in);
	free(want);
}

static void to_shared(void)
{
	swap_all(true);
}

static void to_private(void)
{
	swap_all(false);
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(to_shared, 2);
	T_RUN(to_private, 2);
	return t_fini();
}

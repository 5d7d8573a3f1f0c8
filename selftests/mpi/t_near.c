// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Large messages to a receiver that waits for them at once: left to the MPI library, all of them within a node,
 * three of four between nodes; when it computes the daemon moves them.  What the library itself carries is seen by
 * its own MPI_Probe: the message, or the 240 bytes that stand for it.
 *
 *	rank 0 -- one node, or the network -- rank 1
 */
#include "mpitest.h"

#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BIG	(1 << 20)
#define STAND	240

static unsigned char *buf, *want;
static bool direct;		/* each process can read the other's memory */

static void setup(void)
{
	struct {
		long pid;
		void *at;
	} mine = { getpid(), &mine }, peer;
	struct iovec here = { &peer, sizeof(peer) }, there;
	int can, both, n;
	MPI_Comm node;

	M(MPI_Sendrecv(&mine, sizeof(mine), MPI_BYTE, 1 - t_rank, 1, &peer, sizeof(peer), MPI_BYTE, 1 - t_rank,
		       1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
	M(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
	M(MPI_Comm_size(node, &n));
	M(MPI_Comm_free(&node));
	there = (struct iovec){ peer.at, sizeof(mine) };
	can = n == 2 && process_vm_readv((pid_t)peer.pid, &here, 1, &there, 1, 0) == sizeof(mine);
	M(MPI_Allreduce(&can, &both, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD));
	direct = both;
	buf = malloc(BIG);
	want = malloc(BIG);
	if (!buf || !want)
		abort();
}

static void finish(void)
{
	t_barrier();
	free(buf);
	free(want);
}

/* One message of seed @k; the receiver computes @ms after posting. Returns what the library carried, at rank 1. */
static int message(uint64_t k, long ms)
{
	struct timespec ts = { .tv_nsec = ms * 1000000 };
	MPI_Request q;
	MPI_Status st;
	int n = 0, count = -1;

	t_barrier();
	if (!t_rank) {
		t_fill(buf, BIG, k);
		M(MPI_Send(buf, BIG, MPI_BYTE, 1, 5, MPI_COMM_WORLD));
		return 0;
	}
	memset(buf, 0, BIG);
	if (ms) {
		M(MPI_Irecv(buf, BIG, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &q));
		nanosleep(&ts, NULL);
		M(MPI_Wait(&q, &st));
	} else {
		M(T_LIBRARY(MPI_Probe)(0, 5, MPI_COMM_WORLD, &st));
		M(T_LIBRARY(MPI_Get_count)(&st, MPI_BYTE, &n));
		M(MPI_Recv(buf, BIG, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &st));
	}
	t_fill(want, BIG, k);
	T_BYTES("message", buf, want, BIG);
	M(MPI_Get_count(&st, MPI_BYTE, &count));
	T_EQ(count, BIG);
	return n;
}

/* How many of @n messages to a receiver that waits went through the daemon, at rank 1. */
static int moved(uint64_t *k, int n)
{
	int sum = 0;

	while (n--)
		sum += message(++*k, 0) == STAND;
	return sum;
}

static void adapts(void)
{
	int n;
	uint64_t k = 0;

	setup();
	for (int round = 0; round < 3; round++) {
		/* the sender learns of it */
		moved(&k, 8);
		n = moved(&k, 8);
		if (t_rank)
			T_EQ(n, !t_expect_progress || direct ? 0 : 2);
		/* and of this, from one that the daemon moves */
		for (int i = 0; i < 5; i++)
			message(++k, 30);
		n = moved(&k, 1);
		if (t_rank)
			T_EQ(n, t_expect_progress);
	}
	finish();
}

enum way { ISEND, PERSISTENT, ISENDRECV, WAYS };

/* A message of seed @k of a sender that computes, to a receiver that waits. Returns what the library carried, at rank 1. */
static int posted(enum way way, uint64_t k)
{
	struct timespec ts = { .tv_nsec = 20000000 };
	MPI_Request q;
	MPI_Status st;
	int n = 0;

	t_barrier();
	if (t_rank) {
		M(T_LIBRARY(MPI_Probe)(0, 5, MPI_COMM_WORLD, &st));
		M(T_LIBRARY(MPI_Get_count)(&st, MPI_BYTE, &n));
		M(MPI_Recv(buf, BIG, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &st));
		t_fill(want, BIG, k);
		T_BYTES("message", buf, want, BIG);
		return n;
	}
	t_fill(buf, BIG, k);
	if (way == PERSISTENT) {
		M(MPI_Send_init(buf, BIG, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &q));
		M(MPI_Start(&q));
#if T_HAS_ISENDRECV
	} else if (way == ISENDRECV) {
		M(MPI_Isendrecv(buf, BIG, MPI_BYTE, 1, 5, NULL, 0, MPI_BYTE, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &q));
#endif
	} else {
		M(MPI_Isend(buf, BIG, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &q));
	}
	nanosleep(&ts, NULL);
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	if (way == PERSISTENT)
		M(MPI_Request_free(&q));
	return 0;
}

/* Between nodes nobody but the daemon moves what a sender has posted that computes, by whichever call. */
static void sender_computes(void)
{
	uint64_t k = 1000;
	int n;

	setup();
	for (enum way way = ISEND; way < WAYS; way++) {
		moved(&k, 8);
		for (int i = 0; i < 4; i++)
			posted(way, ++k);
		n = 0;
		for (int i = 0; i < 8; i++)
			n += posted(way, ++k) == STAND;
		if (t_rank)
			T_OK(n == (!t_expect_progress || direct ? 0 : 8), "way %d: %d moved", way, n);
	}
	finish();
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(adapts, 2);
	T_RUN(sender_computes, 2);
	return t_fini();
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * What asking for the status of requests says, and that it changes nothing: of one, and with MPI 4.1 of several. Each rank
 * exchanges messages with the other one, small and large. And what functions that tell a status may do.
 */
#include "mpitest.h"

#define LARGE 300000
#define MANY 4

static const int lens[] = { 0, 1, 8, 239, 240, 241, 5000, LARGE };
static char in[MANY][LARGE], out[LARGE], want[LARGE];
static int peer;

static void check(const MPI_Status *st, int tag, int n)
{
	int count;

	T_EQ(st->MPI_SOURCE, peer);
	T_EQ(st->MPI_TAG, tag);
	M(MPI_Get_count(st, MPI_BYTE, &count));
	T_EQ(count, n);
}

static void complete(MPI_Request *q, int how, MPI_Status *st)
{
	int flag = 0, i = -1;

	switch (how) {
	case 0:
		M(MPI_Wait(q, st));
		break;
	case 1:
		while (!flag)
			M(MPI_Test(q, &flag, st));
		break;
	case 2:
		M(MPI_Waitany(1, q, &i, st));
		T_EQ(i, 0);
		break;
	case 3:
		M(MPI_Waitsome(1, q, &flag, &i, st));
		T_EQ(flag, 1);
		T_EQ(i, 0);
		break;
	case 4:
		while (!flag) {
			i = 7;
			M(MPI_Testany(1, q, &i, &flag, st));
			T_EQ(i, flag ? 0 : MPI_UNDEFINED);
		}
		break;
	case 5:
		while (!flag)
			M(MPI_Testsome(1, q, &flag, &i, st));
		T_EQ(i, 0);
		break;
	default:
		M(MPI_Waitall(1, q, st));
	}
}

/* A receive that is asked until it is complete, and some times after that, and a send: completed in each way. */
static void ask_and_complete(bool persistent)
{
	for (int k = 0; k < ARRAY_SIZE(lens); k++) {
		const int n = lens[k];
		MPI_Request q[2];
		MPI_Status st;

		t_fill(out, (size_t)n, (uint64_t)(100 * k + t_rank));
		t_fill(want, (size_t)n, (uint64_t)(100 * k + peer));
		if (persistent) {
			M(MPI_Recv_init(in[0], LARGE, MPI_BYTE, peer, k, MPI_COMM_WORLD, &q[0]));
			M(MPI_Send_init(out, n, MPI_BYTE, peer, k, MPI_COMM_WORLD, &q[1]));
		}
		for (int how = 0; how < 7; how++) {
			int flag = 0;

			memset(in[0], 0x5a, (size_t)n);
			if (persistent) {
				M(MPI_Startall(2, q));
			} else {
				M(MPI_Irecv(in[0], LARGE, MPI_BYTE, peer, k, MPI_COMM_WORLD, &q[0]));
				M(MPI_Isend(out, n, MPI_BYTE, peer, k, MPI_COMM_WORLD, &q[1]));
			}
			while (!flag)
				M(MPI_Request_get_status(q[0], &flag, MPI_STATUS_IGNORE));
			for (int i = 0; i < 2; i++) {
				M(MPI_Request_get_status(q[0], &flag, &st));
				T_EQ(flag, 1);
				check(&st, k, n);
			}
			/* MPICH 4.2 takes a persistent send that was asked for inactive, and of small ones the hooks know nothing */
			for (flag = persistent; !flag;)
				M(MPI_Request_get_status(q[1], &flag, MPI_STATUS_IGNORE));
			complete(&q[0], how, &st);
			check(&st, k, n);
			T_OK(!memcmp(in[0], want, (size_t)n), "%d bytes, way %d: wrong", n, how);
			complete(&q[1], how, &st);
			if (!persistent)
				T_OK(q[0] == MPI_REQUEST_NULL && q[1] == MPI_REQUEST_NULL, "way %d: not completed", how);
		}
		for (int i = 0; persistent && i < 2; i++)
			M(MPI_Request_free(&q[i]));
		t_barrier();
	}
}

static void asked(void)
{
	ask_and_complete(false);
}

static void asked_persistent(void)
{
	ask_and_complete(true);
}

/*
 * What is said to be complete is there, in a buffer with as much room as the message has or with more, and the buffer is the
 * program's from then on.
 */
static void asked_is_there(void)
{
	for (int k = 0; k < ARRAY_SIZE(lens); k++)
		for (int way = 0; way < 4 * 7; way++) {
			const int n = lens[k], room = n + (way & 1 ? 7 : 0), persistent = way & 2, how = way / 4;
			int flag = 0;
			MPI_Request q;
			MPI_Status st;

			t_fill(out, (size_t)n, (uint64_t)(100 * k + t_rank));
			t_fill(want, (size_t)n, (uint64_t)(100 * k + peer));
			memset(in[0], 0x5a, (size_t)n);
			if (persistent) {
				M(MPI_Recv_init(in[0], room < LARGE ? room : LARGE, MPI_BYTE, peer, k, MPI_COMM_WORLD, &q));
				M(MPI_Start(&q));
			} else {
				M(MPI_Irecv(in[0], room < LARGE ? room : LARGE, MPI_BYTE, peer, k, MPI_COMM_WORLD, &q));
			}
			M(MPI_Send(out, n, MPI_BYTE, peer, k, MPI_COMM_WORLD));
			while (!flag)
				M(MPI_Request_get_status(q, &flag, &st));
			check(&st, k, n);
			T_OK(!memcmp(in[0], want, (size_t)n), "%d bytes for %d: not there", n, room);
			memset(in[0], 0x77, (size_t)n);
			memset(want, 0x77, (size_t)n);
			complete(&q, how, &st);
			check(&st, k, n);
			T_OK(!memcmp(in[0], want, (size_t)n), "%d bytes for %d, way %d: written again", n, room, how);
			if (persistent)
				M(MPI_Request_free(&q));
		}
}

/*
 * MPI_Testany of one request: none, an inactive one, and beside others under way a large message that does not fit, short ones that
 * do, and a send.
 */
static void testany_one(void)
{
	MPI_Request q = MPI_REQUEST_NULL, other, away;
	MPI_Status st;
	int i = 7, flag = 0;

	M(MPI_Irecv(in[1], LARGE, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &other));
	M(MPI_Testany(1, &q, &i, &flag, &st));
	T_EQ(flag, 1);
	T_EQ(i, MPI_UNDEFINED);
	M(MPI_Recv_init(in[0], LARGE, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &q));
	i = 7;
	flag = 0;
	M(MPI_Testany(1, &q, &i, &flag, MPI_STATUS_IGNORE));
	T_EQ(flag, 1);
	T_EQ(i, MPI_UNDEFINED);
	M(MPI_Request_free(&q));

	for (int k = 0; k < 3; k++) {
		static const int rooms[] = { LARGE / 2, 100, LARGE }, sizes[] = { LARGE, 90, 90 };
		int rc, class = MPI_SUCCESS;

		M(MPI_Irecv(in[0], rooms[k], MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &q));
		M(MPI_Testany(1, &q, &i, &flag, &st));
		T_EQ(flag, 0);
		T_EQ(i, MPI_UNDEFINED);
		t_barrier();
		M(MPI_Isend(out, sizes[k], MPI_BYTE, peer, 1, MPI_COMM_WORLD, &away));
		do {
			rc = MPI_Testany(1, &q, &i, &flag, &st);
		} while (!rc && !flag);
		if (rc)
			MPI_Error_class(rc, &class);
		T_EQ(class, k ? MPI_SUCCESS : MPI_ERR_TRUNCATE);
		T_EQ(i, 0);
		T_OK(q == MPI_REQUEST_NULL, "message %d: not completed", k);
		if (!class)
			check(&st, 1, sizes[k]);
		for (flag = 0; !flag;)
			M(MPI_Testany(1, &away, &i, &flag, &st));
		T_EQ(i, 0);
	}
	M(MPI_Send(out, 1, MPI_BYTE, peer, 2, MPI_COMM_WORLD));
	M(MPI_Wait(&other, &st));
	check(&st, 2, 1);
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
/* None, and an inactive one, are complete, and not active. */
static void none_active(void)
{
	MPI_Request q[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
	int flag = 0, index = 0, n = 0, indices[2];
	MPI_Status st[2];

	M(MPI_Recv_init(in[0], 1, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &q[1]));
	M(MPI_Request_get_status_all(2, q, &flag, st));
	T_EQ(flag, 1);
	flag = 0;
	M(MPI_Request_get_status_any(2, q, &index, &flag, st));
	T_EQ(flag, 1);
	T_EQ(index, MPI_UNDEFINED);
	T_EQ(st[0].MPI_SOURCE, MPI_ANY_SOURCE);
	M(MPI_Request_get_status_some(2, q, &n, indices, st));
	T_EQ(n, MPI_UNDEFINED);
	M(MPI_Request_free(&q[1]));
}

/* Of some receives the last one is complete, then all; none is completed by being asked. */
static void several(void)
{
	for (int k = 0; k < ARRAY_SIZE(lens); k++) {
		MPI_Request q[MANY + 1];
		MPI_Status st[MANY + 1];
		int indices[MANY + 1], index = -1, flag = 0, n = 0;

		t_fill(out, (size_t)lens[k], (uint64_t)(100 * k + t_rank));
		t_fill(want, (size_t)lens[k], (uint64_t)(100 * k + peer));
		for (int i = 0; i < MANY; i++)
			M(MPI_Irecv(in[i], LARGE, MPI_BYTE, peer, i, MPI_COMM_WORLD, &q[i]));
		q[MANY] = MPI_REQUEST_NULL;
		M(MPI_Request_get_status_any(MANY + 1, q, &index, &flag, st));
		T_EQ(flag, 0);
		M(MPI_Request_get_status_some(MANY + 1, q, &n, indices, st));
		T_EQ(n, 0);
		t_barrier();
		M(MPI_Send(out, lens[k], MPI_BYTE, peer, MANY - 1, MPI_COMM_WORLD));
		while (!flag)
			M(MPI_Request_get_status_any(MANY + 1, q, &index, &flag, st));
		T_EQ(index, MANY - 1);
		check(st, MANY - 1, lens[k]);
		M(MPI_Request_get_status_some(MANY + 1, q, &n, indices, st));
		T_EQ(n, 1);
		T_EQ(indices[0], MANY - 1);
		check(st, MANY - 1, lens[k]);
		M(MPI_Request_get_status_all(MANY + 1, q, &flag, MPI_STATUSES_IGNORE));
		T_EQ(flag, 0);
		t_barrier();
		for (int i = 0; i < MANY - 1; i++)
			M(MPI_Send(out, lens[k], MPI_BYTE, peer, i, MPI_COMM_WORLD));
		while (!flag)
			M(MPI_Request_get_status_all(MANY + 1, q, &flag, st));
		M(MPI_Request_get_status_some(MANY + 1, q, &n, indices, MPI_STATUSES_IGNORE));
		T_EQ(n, MANY);
		for (int i = 0; i < MANY; i++)
			check(&st[i], i, lens[k]);
		M(MPI_Waitall(MANY + 1, q, st));
		for (int i = 0; i < MANY; i++) {
			check(&st[i], i, lens[k]);
			T_OK(!memcmp(in[i], want, (size_t)lens[k]), "receive %d: wrong", i);
		}
	}
}
#endif

#define INNER 8

/* of a generalized request: what its function is to receive, and has begun to */
static struct {
	int n;
	bool begun;
	char in[INNER][LARGE];
	MPI_Request q[INNER];
} general;

static int general_query(void *extra, MPI_Status *st)
{
	MPI_Request q;

	for (int i = 0; !general.begun && i < INNER; i++)
		M(MPI_Irecv(general.in[i], general.n, MPI_BYTE, peer, 100 + i, MPI_COMM_WORLD, &general.q[i]));
	if (!general.begun) {
		M(MPI_Isend(NULL, 0, MPI_BYTE, peer, 99, MPI_COMM_WORLD, &q));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		M(MPI_Recv(NULL, 0, MPI_BYTE, peer, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
	}
	general.begun = true;
	M(MPI_Status_set_elements(st, MPI_BYTE, 0));
	M(MPI_Status_set_cancelled(st, 0));
	return MPI_SUCCESS;
}

static int general_free(void *extra)
{
	return MPI_SUCCESS;
}

static int general_cancel(void *extra, int complete)
{
	return MPI_SUCCESS;
}

static void complete_all(int how, int n, MPI_Request *q)
{
	int done = 0, count, index[4];

	switch (how) {
	case 0:
		M(MPI_Waitall(n, q, MPI_STATUSES_IGNORE));
		return;
	case 1:
		while (!done)
			M(MPI_Testall(n, q, &done, MPI_STATUSES_IGNORE));
		return;
	}
	while (done < n) {
		count = 0;
		if (how == 2)
			M(MPI_Waitsome(n, q, &count, index, MPI_STATUSES_IGNORE));
		else if (how == 3)
			M(MPI_Testsome(n, q, &count, index, MPI_STATUSES_IGNORE));
		else if (how == 4 && M(MPI_Waitany(n, q, index, MPI_STATUS_IGNORE)))
			count = 1;
		else if (how == 5)
			M(MPI_Testany(n, q, index, &count, MPI_STATUS_IGNORE));
		done += count;
	}
}

/*
 * The function that a call for several requests calls of a generalized one sends and receives, and what it begins has the handles of
 * what the call has completed just before.
 */
static void functions_communicate(void)
{
	static char second[LARGE];
	MPI_Request q[3], s[INNER];

	t_fill(out, LARGE, t_rank);
	t_fill(want, LARGE, peer);
	for (int how = 0; how < 6 * ARRAY_SIZE(lens); how++) {
		int n = lens[how / 6];

		general.n = n;
		general.begun = false;
		memset(in[0], 0, sizeof(in[0]));
		memset(second, 0, sizeof(second));
		memset(general.in, 0, sizeof(general.in));
		M(MPI_Irecv(in[0], n, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &q[0]));
		M(MPI_Grequest_start(general_query, general_free, general_cancel, NULL, &q[1]));
		M(MPI_Irecv(second, n, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &q[2]));
		M(MPI_Grequest_complete(q[1]));
		for (int i = 0; i < 2; i++)
			M(MPI_Isend(out, n, MPI_BYTE, peer, 1 + i, MPI_COMM_WORLD, &s[i]));
		t_barrier();
		complete_all(how % 6, 3, q);
		M(MPI_Waitall(2, s, MPI_STATUSES_IGNORE));
		T_BYTES("first", in[0], want, n);
		T_BYTES("second", second, want, n);
		for (int i = 0; i < INNER; i++)
			M(MPI_Isend(out, n, MPI_BYTE, peer, 100 + i, MPI_COMM_WORLD, &s[i]));
		M(MPI_Waitall(INNER, general.q, MPI_STATUSES_IGNORE));
		M(MPI_Waitall(INNER, s, MPI_STATUSES_IGNORE));
		for (int i = 0; i < INNER; i++)
			T_BYTES("inner", general.in[i], want, n);
		t_barrier();
	}
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	peer = !t_rank;
	T_RUN(asked, 2);
	T_RUN(asked_persistent, 2);
	T_RUN(asked_is_there, 2);
	T_RUN(testany_one, 2);
	T_RUN(functions_communicate, 2);
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
	T_RUN(none_active, 2);
	T_RUN(several, 2);
#endif
	return t_fini();
}

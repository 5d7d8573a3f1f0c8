// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Programs without MPI_Init that have more than one communicator from sessions: several sessions, which end in any order, groups of
 * some processes and of one, and MPI_Init after all.  The harness has a session of its own, to the end.
 */
#include "mpitest.h"

#if T_HAS_SESSIONS

#include <pthread.h>

#define BIG (1 << 20)

static unsigned char *out, *in, *want;

static MPI_Session begin(void)
{
	MPI_Session s;

	M(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &s));
	return s;
}

/* Of @s the processes whose rank is a multiple of @step; MPI_COMM_NULL for the others. */
static MPI_Comm make(MPI_Session s, int step, const char *tag)
{
	int n, rank, range[1][3] = { { 0, t_size - 1, step } };
	MPI_Group world, some;
	MPI_Comm c = MPI_COMM_NULL;

	M(MPI_Group_from_session_pset(s, "mpi://WORLD", &world));
	M(MPI_Group_range_incl(world, 1, range, &some));
	M(MPI_Group_rank(some, &rank));
	M(MPI_Group_size(some, &n));
	T_EQ(n, (t_size + step - 1) / step);
	if (rank != MPI_UNDEFINED)
		M(MPI_Comm_create_from_group(some, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &c));
	M(MPI_Group_free(&some));
	M(MPI_Group_free(&world));
	return c;
}

static void end(MPI_Session *s)
{
	M(MPI_Session_finalize(s));
	T_OK(*s == MPI_SESSION_NULL, "the handle is left");
}

/*
 * From the one before and to the next one of @c, @n bytes: the requests are @q[2].  @expected: all receives are there before
 * anything is sent.
 */
static void send_round(MPI_Comm c, int n, int tag, uint64_t seed, bool expected, MPI_Request *q)
{
	int rank, size;

	MPI_Comm_rank(c, &rank);
	MPI_Comm_size(c, &size);
	memset(in, 0, BIG);
	t_fill(out, (size_t)n, seed + (uint64_t)rank);
	t_fill(want, (size_t)n, seed + (uint64_t)((rank + size - 1) % size));
	M(MPI_Irecv(in, n, MPI_BYTE, (rank + size - 1) % size, tag, c, &q[0]));
	if (expected)
		t_barrier();
	M(MPI_Isend(out, n, MPI_BYTE, (rank + 1) % size, tag, c, &q[1]));
}

/* Messages, a collective and a window on @c. */
static void use(MPI_Comm c, uint64_t seed)
{
	static const int lens[] = { 0, 8, 240, 5000, BIG };
	int rank, size, sum = -1, *base;
	MPI_Request q[2];
	MPI_Win win;

	if (c == MPI_COMM_NULL)
		return;
	MPI_Comm_rank(c, &rank);
	MPI_Comm_size(c, &size);
	for (int i = 0; i < ARRAY_SIZE(lens); i++) {
		send_round(c, lens[i], 5, seed + 100 * (uint64_t)i, false, q);
		M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
		T_BYTES("message", in, want, (size_t)lens[i]);
	}
	M(MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, c, q));
	M(MPI_Wait(q, MPI_STATUS_IGNORE));
	T_EQ(sum, size * (size - 1) / 2);
	/* of a size with which MPICH 4.0 finds the others' memory, too */
	M(MPI_Win_allocate(4 * sizeof(*base), sizeof(*base), MPI_INFO_NULL, c, &base, &win));
	*base = -1;
	M(MPI_Win_fence(0, win));
	M(MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win));
	M(MPI_Win_fence(0, win));
	T_EQ(*base, (rank + size - 1) % size);
	M(MPI_Win_free(&win));
}

/* A large message comes to a rank of @c that makes no call: only a daemon brings it.  After others it may take some to see that. */
static void moves(MPI_Comm c)
{
	MPI_Request q[2];
	bool there = false;

	for (int i = 0; i < 6 && !there; i++) {
		int wait = 2000;

		send_round(c, BIG, 6, 77 + (uint64_t)i, true, q);
		while (wait-- && ((volatile unsigned char *)in)[BIG - 1] != want[BIG - 1])
			usleep(1000);
		/* its beginning is where the library puts what announces it */
		there = !memcmp(in + 240, want + 240, BIG - 240);
		M(MPI_Allreduce(MPI_IN_PLACE, &there, 1, MPI_C_BOOL, MPI_LAND, t_world));
		M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
		T_BYTES("message", in, want, BIG);
	}
	T_OK(there, "the messages have not moved");
}

/* A put comes to one that makes no call either. */
static void puts_arrive(MPI_Comm c)
{
	int rank, size, wait = 5000;
	volatile unsigned char *base;
	MPI_Win win;

	MPI_Comm_rank(c, &rank);
	MPI_Comm_size(c, &size);
	M(MPI_Win_allocate(BIG, 1, MPI_INFO_NULL, c, (void *)&base, &win));
	base[BIG - 1] = 0;
	M(MPI_Win_lock_all(0, win));
	MPI_Barrier(c);
	memset(out, 1 + rank, BIG);
	M(MPI_Put(out, BIG, MPI_BYTE, (rank + 1) % size, 0, BIG, MPI_BYTE, win));
	while (wait-- && !base[BIG - 1])
		usleep(1000);
	T_OK(base[BIG - 1], "the put has not come");
	M(MPI_Win_unlock_all(win));
	MPI_Barrier(c);
	M(MPI_Win_free(&win));
}

static void daemons_do_it(void)
{
	if (!t_expect_progress) {
		t_skip("not what the MPI standard asks for");
		return;
	}
	moves(t_world);
	puts_arrive(t_world);
}

static void another_session(void)
{
	MPI_Session s = begin();
	MPI_Comm c = make(s, 1, "another");

	use(c, 1);
	if (t_expect_progress) {
		moves(c);
		puts_arrive(c);
	}
	use(t_world, 2);
	M(MPI_Comm_free(&c));
	end(&s);
	use(t_world, 3);
}

static void orders(void)
{
	for (int i = 0; i < 2; i++) {
		MPI_Session s[2];
		MPI_Comm c[2];

		for (int k = 0; k < 2; k++) {
			s[k] = begin();
			c[k] = make(s[k], 1, k ? "orders b" : "orders a");
			use(c[k], 10 + (uint64_t)k);
		}
		M(MPI_Comm_free(&c[i]));
		end(&s[i]);
		use(c[!i], 20);
		M(MPI_Comm_free(&c[!i]));
		end(&s[!i]);
	}
}

static void some(void)
{
	MPI_Session s = begin();
	MPI_Comm c = make(s, 2, "some");

	use(c, 30);
	if (c != MPI_COMM_NULL)
		M(MPI_Comm_free(&c));
	end(&s);
}

static void one(void)
{
	MPI_Session s = begin();
	MPI_Comm c = MPI_COMM_NULL;
	MPI_Group self;

	M(MPI_Group_from_session_pset(s, "mpi://SELF", &self));
	M(MPI_Comm_create_from_group(self, "one", MPI_INFO_NULL, MPI_ERRORS_RETURN, &c));
	M(MPI_Group_free(&self));
	use(c, 40);
	M(MPI_Comm_free(&c));
	end(&s);
}

/* A send that is freed is received after the session of its communicator has ended here. */
static void freed(void)
{
	MPI_Session s = begin();
	MPI_Comm c = make(s, 1, "freed");
	MPI_Request q[2];

	send_round(c, BIG, 5, 50, false, q);
	M(MPI_Request_free(&q[1]));
	M(MPI_Wait(&q[0], MPI_STATUS_IGNORE));
	T_BYTES("message", in, want, BIG);
	M(MPI_Comm_free(&c));
	end(&s);
	t_barrier();
}

static void *beside(void *arg)
{
	MPI_Session *s = arg;

	for (int i = 0; i < 20; i++) {
		*s = begin();
		end(s);
	}
	return NULL;
}

/* Sessions of another thread come and go. */
static void threads(void)
{
	MPI_Session s;
	pthread_t t;

	if (t_provided < MPI_THREAD_MULTIPLE) {
		t_skip("no MPI_THREAD_MULTIPLE");
		return;
	}
	pthread_create(&t, NULL, beside, &s);
	use(t_world, 60);
	pthread_join(t, NULL);
}

static bool inited, ended;	/* the library: by MPI_Init, and by whatever comes last */

static int at_end(MPI_Comm c, int key, void *value, void *extra)
{
	ended = true;
	return MPI_SUCCESS;
}

/* The world is the library's, and what has come before it stays what it was. */
static void init_and_finalize(void)
{
	int provided, key;

	M(MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &provided));
	M(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_end, &key, NULL));
	M(MPI_Comm_set_attr(t_real_self(), key, NULL));
	M(MPI_Comm_free_keyval(&key));
	inited = true;
	use(t_real_world(), 70);
	use(t_world, 80);
	M(MPI_Finalize());
	use(t_world, 90);
	if (t_expect_progress)
		moves(t_world);
}

int main(int argc, char **argv)
{
	int ret;

	t_init(&argc, &argv, MPI_THREAD_MULTIPLE);
	out = malloc(BIG);
	in = malloc(BIG);
	want = malloc(BIG);
	T_RUN(daemons_do_it, 2);
	T_RUN(another_session, 2);
	T_RUN(orders, 2);
	T_RUN(some, 3);
	T_RUN(one, 1);
	T_RUN(freed, 2);
	T_RUN(threads, 2);
	T_RUN(init_and_finalize, 2);
	free(out);
	free(in);
	free(want);
	ret = t_fini();
	/* no session is left: not even one of the hooks */
	if (inited && !ended) {
		fprintf(stderr, "the library has not ended with the last session\n");
		return 1;
	}
	return ret;
}

#else

int main(void)
{
	printf("Bail out! the library has no sessions\n");
	return 1;
}

#endif

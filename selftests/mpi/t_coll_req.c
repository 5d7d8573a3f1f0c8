// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Requests of non-blocking collectives: every completion call, many at once, communicators used in different orders, what may
 * be freed meanwhile and what not, errors, and what is the MPI library's (operations of the program, intercommunicators).
 */
#include <dirent.h>
#include <limits.h>

#include "colltest.h"

#ifdef OPEN_MPI
#define IS_OMPI 1
#else
#define IS_OMPI 0
#endif

#define MANY	1100
#define SOME	24

/* ---- completion ---- */

/* Completes some of @n in some way; the value is how many, their numbers in @which. */
static int complete(int how, int n, MPI_Request *q, int *which)
{
	MPI_Status st[SOME];
	int k = 0, flag = 0;

	switch (how) {
	case 0:
		M(MPI_Waitany(n, q, which, st));
		return 1;
	case 1:
		while (!flag)
			M(MPI_Testany(n, q, which, &flag, st));
		return 1;
	case 2:
		M(MPI_Waitsome(n, q, &k, which, st));
		return k;
	case 3:
		while (!k)
			M(MPI_Testsome(n, q, &k, which, st));
		return k;
	case 4:
		while (!flag)
			M(MPI_Testall(n, q, &flag, st));
		break;
	default:
		M(MPI_Waitall(n, q, how == 5 ? st : MPI_STATUSES_IGNORE));
	}
	for (int i = 0; i < n; i++)
		which[i] = i;
	return n;
}

static void completions(void)
{
	struct t_rng r = t_rng_common();

	for (int how = 0; how < 7; how++) {
		MPI_Request q[SOME];
		struct coll c[SOME];
		bool done[SOME] = { false };
		int which[SOME], left = SOME;

		for (int i = 0; i < SOME; i++)
			coll_begin(&c[i], &r, MPI_COMM_WORLD, 300, &q[i]);
		while (left > 0) {
			int k = complete(how, SOME, q, which);

			if (!T_OK(k > 0, "way %d: %d of %d complete, but %d left", how, k, SOME, left))
				return;
			left -= k;
			for (int i = 0; i < k; i++) {
				T_OK(which[i] >= 0 && which[i] < SOME && !done[which[i]], "way %d: index %d", how, which[i]);
				done[which[i]] = true;
				T_OK(q[which[i]] == MPI_REQUEST_NULL, "way %d: not completed", how);
			}
		}
		for (int i = 0; i < SOME; i++)
			coll_end(&c[i]);
	}
}

/* Asking is no completion, also when it says so several times. */
static void get_status(void)
{
	struct t_rng r = t_rng_common();

	for (int k = 0; k < SOME; k++) {
		MPI_Request q;
		struct coll c;
		int flag = 0;

		coll_begin(&c, &r, MPI_COMM_WORLD, 3000, &q);
		while (!flag)
			M(MPI_Request_get_status(q, &flag, MPI_STATUS_IGNORE));
		M(MPI_Request_get_status(q, &flag, MPI_STATUS_IGNORE));
		T_EQ(flag, 1);
		T_OK(q != MPI_REQUEST_NULL, "asking has freed the request");
		M(MPI_Test(&q, &flag, MPI_STATUS_IGNORE));
		T_EQ(flag, 1);
		T_OK(q == MPI_REQUEST_NULL, "after MPI_Test");
		coll_end(&c);
	}
}

/* More than a thousand of one communicator at once, completed from the last to the first. */
static void many(void)
{
	static MPI_Request q[MANY];
	static struct coll c[MANY];
	struct t_rng r = t_rng_common();

	for (int i = 0; i < MANY; i++)
		coll_begin(&c[i], &r, MPI_COMM_WORLD, 12, &q[i]);
	for (int i = MANY - 1; i >= 0; i--) {
		M(MPI_Wait(&q[i], MPI_STATUS_IGNORE));
		coll_end(&c[i]);
	}
}

#define COMMS	4
#define EACH	12

/* Each rank uses the communicators in an order of its own, and completes in another one. */
static void orders(void)
{
	struct t_rng mine = t_rng_own(), common[COMMS];
	MPI_Comm comm[COMMS];
	MPI_Request q[COMMS * EACH];
	struct coll c[COMMS * EACH];
	int n[COMMS] = { 0 };

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm[0]));
	M(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &comm[1]));
	M(MPI_Comm_split(MPI_COMM_WORLD, t_rank / 2, t_rank, &comm[2]));
	M(MPI_Comm_split(MPI_COMM_WORLD, t_rank % 2, -t_rank, &comm[3]));
	for (int k = 0; k < COMMS; k++) {
		common[k] = t_rng_common();
		common[k].s += (uint64_t)k;
	}
	for (int left = COMMS * EACH; left; left--) {
		int k = t_rndn(&mine, COMMS), i;

		while (n[k] == EACH)
			k = (k + 1) % COMMS;
		i = k * EACH + n[k]++;
		coll_begin(&c[i], &common[k], comm[k], 1000, &q[i]);
	}
	for (int left = COMMS * EACH; left; left--) {
		int i = t_rndn(&mine, COMMS * EACH);

		while (q[i] == MPI_REQUEST_NULL)
			i = (i + 1) % (COMMS * EACH);
		M(MPI_Wait(&q[i], MPI_STATUS_IGNORE));
		coll_end(&c[i]);
	}
	for (int k = 0; k < COMMS; k++)
		M(MPI_Comm_free(&comm[k]));
}

/* ---- who moves them on ---- */

/* How often the thread of collectives has gone to sleep. */
static long thread_slept(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	long n = 0, k;

	while (dir && (e = readdir(dir))) {
		char path[400], line[200];
		bool is = false;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f)) {
			is |= !strcmp(line, "Name:\tasyncprog-coll\n");
			if (is && sscanf(line, "voluntary_ctxt_switches: %ld", &k) == 1)
				n += k;
		}
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return n;
}

#define LONG	(1 << 16)	/* integers, which nobody leaves to the library */
#define LONG_N	32
#define TRIES	8
#define SLEPT	60		/* of all ranks' threads: a call finds them at work */

static int long_in[LONG], long_out[LONG_N][LONG];

/*
 * Who waits for several moves them on, so the thread of collectives sleeps meanwhile.  Before the call has begun it may be at work, however
 * long the machine has others to run: the best tries count, those of all ranks together.  Calls that return with the first ones give the
 * thread its work back each time, as often as it happens.
 */
static void caller_moves(void)
{
	long mine = LONG_MAX, all;

	for (int try = 0; try < TRIES; try++) {
		MPI_Request q[LONG_N];
		long before = thread_slept();

		for (int i = 0; i < LONG_N; i++)
			M(MPI_Iallreduce(long_in, long_out[i], LONG, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q[i]));
		M(MPI_Waitall(LONG_N, q, MPI_STATUSES_IGNORE));
		before = thread_slept() - before;
		if (before < mine)
			mine = before;
	}
	M(MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
	T_OK(all <= SLEPT, "the threads went to sleep %ld times, this rank's %ld", all, mine);
}

/* ---- what is freed meanwhile ---- */

static void freed_comm(void)
{
	struct t_rng r = t_rng_common();
	MPI_Request q[SOME];
	struct coll c[SOME];

	for (int i = 0; i < SOME; i++) {
		MPI_Comm comm;

		M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
		coll_begin(&c[i], &r, comm, 2000, &q[i]);
		M(MPI_Comm_free(&comm));
	}
	M(MPI_Waitall(SOME, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < SOME; i++)
		coll_end(&c[i]);
}

static void freed_types(void)
{
	struct t_rng r = t_rng_common();
	MPI_Request q[SOME];
	struct coll c[SOME];

	for (int i = 0; i < SOME; i++) {
		coll_begin(&c[i], &r, MPI_COMM_WORLD, 3000, &q[i]);
		coll_free_types(&c[i]);
	}
	M(MPI_Waitall(SOME, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < SOME; i++)
		coll_end(&c[i]);
}

/* Neither is possible while it is active, and it goes on. */
static void free_or_cancel(void)
{
	struct t_rng r = t_rng_common();

	M(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
	for (int i = 0; i < SOME; i++) {
		MPI_Request q, same;
		struct coll c;

		coll_begin(&c, &r, MPI_COMM_WORLD, 2000, &q);
		same = q;
		T_CLASS(MPI_Request_free(&q), MPI_ERR_REQUEST);
		T_OK(q == same, "MPI_Request_free changed the request");
		T_CLASS(MPI_Cancel(&q), MPI_ERR_REQUEST);
		M(MPI_Wait(&same, MPI_STATUS_IGNORE));
		coll_end(&c);
	}
}

/* ---- what is the library's ---- */

/* x -> a x + b by the left operand, then by the right one: not commutative */
static void compose(void *in, void *inout, int *n, MPI_Datatype *t)
{
	const int *l = in;
	int *r = inout;

	(void)t;
	for (int i = 0; i < *n; i++, l += 2, r += 2) {
		r[1] = (r[0] * l[1] + r[1]) % 9973;
		r[0] = r[0] * l[0] % 9973;
	}
}

static void element_of(int rank, int i, int *v)
{
	v[0] = 2 + (rank * 31 + i) % 50;
	v[1] = 3 + (rank * 17 + i * 5) % 70;
}

static void composed(int last, int i, int *v)
{
	int w[2], one = 1;
	MPI_Datatype none = MPI_DATATYPE_NULL;

	element_of(0, i, v);
	for (int r = 1; r <= last; r++) {
		int left[2] = { v[0], v[1] };

		element_of(r, i, w);
		compose(left, w, &one, &none);
		memcpy(v, w, sizeof(w));
	}
}

#define ELEMENTS 500

static void user_op(void)
{
	int all[2 * ELEMENTS], scan[2 * ELEMENTS], at_root[2 * ELEMENTS], mine[2 * ELEMENTS], v[2];
	struct t_rng r = t_rng_common();
	MPI_Request q[5];
	struct coll c[2];
	MPI_Datatype t;
	MPI_Op op;

	M(MPI_Type_contiguous(2, MPI_INT, &t));
	M(MPI_Type_commit(&t));
	M(MPI_Op_create(compose, 0, &op));
	for (int i = 0; i < ELEMENTS; i++)
		element_of(t_rank, i, mine + 2 * i);
	/* among others that need not be the library's */
	coll_begin(&c[0], &r, MPI_COMM_WORLD, 1000, &q[0]);
	M(MPI_Iallreduce(mine, all, ELEMENTS, t, op, MPI_COMM_WORLD, &q[1]));
	M(MPI_Iscan(mine, scan, ELEMENTS, t, op, MPI_COMM_WORLD, &q[2]));
	coll_begin(&c[1], &r, MPI_COMM_WORLD, 1000, &q[3]);
	M(MPI_Ireduce(mine, at_root, ELEMENTS, t, op, t_size - 1, MPI_COMM_WORLD, &q[4]));
	M(MPI_Waitall(5, q, MPI_STATUSES_IGNORE));
	coll_end(&c[0]);
	coll_end(&c[1]);
	for (int i = 0; i < ELEMENTS; i++) {
		composed(t_size - 1, i, v);
		if (!T_EQ(all[2 * i], v[0]) || !T_EQ(all[2 * i + 1], v[1]))
			break;
		if (t_rank == t_size - 1 && (!T_EQ(at_root[2 * i], v[0]) || !T_EQ(at_root[2 * i + 1], v[1])))
			break;
		composed(t_rank, i, v);
		if (!T_EQ(scan[2 * i], v[0]) || !T_EQ(scan[2 * i + 1], v[1]))
			break;
	}
	M(MPI_Op_free(&op));
	M(MPI_Type_free(&t));
}

static void intercomm(void)
{
	int side = t_rank % 2, local, remote, sum = -1, root = MPI_PROC_NULL, v = 100 + t_rank, got[t_size], b;
	MPI_Comm half, inter;
	MPI_Request q[4];

	M(MPI_Comm_split(MPI_COMM_WORLD, side, t_rank, &half));
	M(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 5, &inter));
	M(MPI_Comm_rank(half, &local));
	M(MPI_Comm_remote_size(inter, &remote));
	b = side ? -1 : 4711;
	if (!side)
		root = local ? MPI_PROC_NULL : MPI_ROOT;
	else
		root = 0;
	M(MPI_Ibarrier(inter, &q[0]));
	M(MPI_Ibcast(&b, 1, MPI_INT, root, inter, &q[1]));
	M(MPI_Iallreduce(&v, &sum, 1, MPI_INT, MPI_SUM, inter, &q[2]));
	M(MPI_Iallgather(&v, 1, MPI_INT, got, 1, MPI_INT, inter, &q[3]));
	M(MPI_Waitall(4, q, MPI_STATUSES_IGNORE));
	T_EQ(b, 4711);
	for (int i = 0; i < remote; i++) {
		T_EQ(got[i], 100 + 2 * i + 1 - side);
		sum -= got[i];
	}
	T_EQ(sum, 0);
	M(MPI_Comm_free(&inter));
	M(MPI_Comm_free(&half));
}

/* ---- errors ---- */

/* What is sent from where it is received to, and bytes as integers: Open MPI takes both. */
static void refused_by_mpich(int *a, int *b)
{
#ifndef OPEN_MPI
	int one[64], at[64];
	MPI_Request q = MPI_REQUEST_NULL;
	MPI_Datatype types[64];

	for (int i = 0; i < 64; i++) {
		one[i] = 1;
		at[i] = i;
		types[i] = MPI_INT;
	}
	T_CLASS(MPI_Iallreduce(a, a, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Iscan(a, a, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Iexscan(a, a, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Ireduce_scatter(a, a, one, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Ireduce_scatter_block(a, a, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Iallgather(b + t_rank, 1, MPI_INT, b, 1, MPI_INT, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Iallgatherv(b + t_rank, 1, MPI_INT, b, one, at, MPI_INT, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Ialltoall(b, 1, MPI_INT, b, 1, MPI_INT, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Ialltoallv(b, one, at, MPI_INT, b, one, at, MPI_INT, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	for (int i = 0; i < 64; i++)
		at[i] = i * (int)sizeof(int);
	T_CLASS(MPI_Ialltoallw(b, one, at, types, b, one, at, types, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	for (int i = 0; i < 64; i++)
		at[i] = i;
	/* one member alone: nobody waits for it */
	if (!t_rank) {
		T_CLASS(MPI_Ireduce(a, a, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
		T_CLASS(MPI_Igather(b, 1, MPI_INT, b, 1, MPI_INT, 0, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
		T_CLASS(MPI_Igatherv(b, 1, MPI_INT, b, one, at, MPI_INT, 0, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
		T_CLASS(MPI_Iscatter(b, 1, MPI_INT, b, 1, MPI_INT, 0, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
		T_CLASS(MPI_Iscatterv(b, one, at, MPI_INT, b, 1, MPI_INT, 0, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	}
	T_CLASS(MPI_Iallreduce(a, b, 1, MPI_BYTE, MPI_MAX, MPI_COMM_WORLD, &q), MPI_ERR_OP);
	T_CLASS(MPI_Iscan(a, b, 1, MPI_BYTE, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_OP);
	/* of nothing it is no fault */
	M(MPI_Iallreduce(a, a, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
#endif
}

/*
 * Buffers that are none, and types that were not committed.  Open MPI looks at no buffer, and crashes; with us it has an error.  All
 * members make these calls, of which none counts.
 */
static void no_buffers(int *a, int *b)
{
	int none[64] = { 0 }, one[64], at[64];
	MPI_Request q = MPI_REQUEST_NULL;
	MPI_Datatype u, types[64];

	M(MPI_Type_vector(2, 1, 2, MPI_INT, &u));
	for (int i = 0; i < 64; i++) {
		one[i] = 1;
		at[i] = i * (int)sizeof(int);
		types[i] = u;
	}
	T_CLASS(MPI_Ibcast(a, 1, u, 0, MPI_COMM_WORLD, &q), MPI_ERR_TYPE);
	T_CLASS(MPI_Ialltoallw(a, one, at, types, b, one, at, types, MPI_COMM_WORLD, &q), MPI_ERR_TYPE);
	T_CLASS(MPI_Iallreduce(a, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Iallreduce(a, b, 1, MPI_PACKED, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_OP);
	M(MPI_Type_free(&u));
	if (IS_OMPI && !t_expect_progress)
		return;
	T_CLASS(MPI_Ibcast(NULL, 1, MPI_INT, 0, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Ialltoallv(NULL, one, at, MPI_INT, b, one, at, MPI_INT, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Iallreduce(NULL, b, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	T_CLASS(MPI_Iallreduce(a, NULL, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_BUFFER);
	if (t_expect_progress)
		T_CLASS(MPI_Ibcast(MPI_IN_PLACE, 1, MPI_INT, 0, MPI_COMM_WORLD, &q), IS_OMPI ? MPI_ERR_ARG : MPI_ERR_BUFFER);
	/* where nothing is read or written there need not be any */
	M(MPI_Ibcast(NULL, 0, MPI_INT, 0, MPI_COMM_WORLD, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	M(MPI_Ireduce(a, t_rank ? NULL : b, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	none[0] = 1;
	M(MPI_Ireduce_scatter(a, t_rank ? NULL : b, none, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
#ifndef OPEN_MPI
	/* of nothing it looks at no type */
	for (int i = 0; i < 64; i++)
		types[i] = MPI_DATATYPE_NULL;
	none[0] = 0;
	M(MPI_Ialltoallw(a, none, at, types, b, none, at, types, MPI_COMM_WORLD, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
#endif
}

/* Wrong arguments raise the class, and the next call works at once. */
static void errors(void)
{
	struct t_rng r = t_rng_common();
	MPI_Request q = MPI_REQUEST_NULL, good;
	MPI_Comm none = MPI_COMM_NULL;
	int a[8] = { 0 }, b[64] = { 0 };
	struct coll c;

	M(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
	T_CLASS(MPI_Ibcast(a, 1, MPI_INT, t_size, MPI_COMM_WORLD, &q), MPI_ERR_ROOT);
	T_CLASS(MPI_Ibcast(a, 1, MPI_INT, -7, MPI_COMM_WORLD, &q), MPI_ERR_ROOT);
	T_CLASS(MPI_Ireduce(a, b, 1, MPI_INT, MPI_SUM, t_size, MPI_COMM_WORLD, &q), MPI_ERR_ROOT);
	T_CLASS(MPI_Igather(a, 1, MPI_INT, b, 1, MPI_INT, -9, MPI_COMM_WORLD, &q), MPI_ERR_ROOT);
	T_CLASS(MPI_Ibcast(a, -1, MPI_INT, 0, MPI_COMM_WORLD, &q), MPI_ERR_COUNT);
	T_CLASS(MPI_Ialltoall(a, -1, MPI_INT, b, 1, MPI_INT, MPI_COMM_WORLD, &q), MPI_ERR_COUNT);
	T_CLASS(MPI_Ibcast(a, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD, &q), MPI_ERR_TYPE);
	T_CLASS(MPI_Iallgather(a, 1, MPI_INT, b, 1, MPI_DATATYPE_NULL, MPI_COMM_WORLD, &q), MPI_ERR_TYPE);
	T_CLASS(MPI_Iallreduce(a, b, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD, &q), MPI_ERR_OP);
	T_CLASS(MPI_Ibarrier(none, &q), MPI_ERR_COMM);
	refused_by_mpich(a, b);
	no_buffers(a, b);
	/* the libraries differ */
	if (t_expect_progress) {
		T_CLASS(MPI_Iallreduce(a, b, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_COUNT);
		T_CLASS(MPI_Iallreduce(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD, &q), MPI_ERR_TYPE);
		T_CLASS(MPI_Iallreduce(a, b, 1, MPI_INT, MPI_REPLACE, MPI_COMM_WORLD, &q), MPI_ERR_OP);
		T_CLASS(MPI_Iscan(a, b, 1, MPI_INT, MPI_NO_OP, MPI_COMM_WORLD, &q), MPI_ERR_OP);
		T_CLASS(MPI_Iallreduce(a, b, 1, MPI_INT, MPI_MINLOC, MPI_COMM_WORLD, &q), MPI_ERR_OP);
		T_CLASS(MPI_Ireduce(a, b, 1, MPI_FLOAT, MPI_BAND, 0, MPI_COMM_WORLD, &q), MPI_ERR_OP);
		/* also at one member only: no call of the others' waits for it */
		if (!t_rank)
			T_CLASS(MPI_Ibcast(a, -1, MPI_INT, 0, MPI_COMM_WORLD, &q), MPI_ERR_COUNT);
	}
	for (int i = 0; i < 5; i++) {
		coll_begin(&c, &r, MPI_COMM_WORLD, 100, &good);
		M(MPI_Wait(&good, MPI_STATUS_IGNORE));
		coll_end(&c);
	}
}

static int raised, raised_comm_is_ours;
static MPI_Comm handled;

static void on_error(MPI_Comm *comm, int *code, ...)
{
	(void)code;
	raised++;
	raised_comm_is_ours += *comm == handled;
}

/* The communicator's own handler is the one that is called. */
static void handler(void)
{
	MPI_Errhandler eh;
	MPI_Request q = MPI_REQUEST_NULL;
	int v = 0;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &handled));
	M(MPI_Comm_create_errhandler(on_error, &eh));
	M(MPI_Comm_set_errhandler(handled, eh));
	raised = raised_comm_is_ours = 0;
	MPI_Ibcast(&v, 1, MPI_INT, t_size + 3, handled, &q);
	T_EQ(raised, 1);
	T_EQ(raised_comm_is_ours, 1);
	M(MPI_Ibarrier(handled, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	T_EQ(raised, 1);
	M(MPI_Errhandler_free(&eh));
	M(MPI_Comm_free(&handled));
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(completions, 1);
	T_RUN(get_status, 1);
	T_RUN(many, 1);
	T_RUN(orders, 1);
	if (t_expect_progress)
		T_RUN(caller_moves, 2);
	T_RUN(freed_comm, 1);
	T_RUN(freed_types, 1);
	/* the libraries free some and end with others */
	if (t_expect_progress)
		T_RUN(free_or_cancel, 1);
	T_RUN(user_op, 1);
	T_RUN(intercomm, 2);
	T_RUN(errors, 1);
	T_RUN(handler, 1);
	return t_fini();
}

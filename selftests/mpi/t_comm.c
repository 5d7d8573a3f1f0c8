// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Two-sided messages on communicators made by every call that makes one: small and large ones between all
 * members, at the same time on the communicators that one call made, before and after the parents are freed. Those that join
 * jobs are the library's, beside.
 */
#include "mpitest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static const int sizes[] = { 3, 240, 300000 };
#define NSIZES ARRAY_SIZE(sizes)

static uint64_t seed_of(int from, int to, int i, int salt)
{
	return ((uint64_t)salt << 32) + (uint64_t)(from * 64 + to) * 16 + (uint64_t)i;
}

/* Every member to every peer, all sizes, receives by name or by wildcard. */
static void traffic(MPI_Comm comm, int salt)
{
	int inter, rank, peers, want_from, n = 0, lens[2 * NSIZES * 8];
	unsigned char *buf[2 * NSIZES * 8], *want = malloc(sizes[NSIZES - 1]);
	MPI_Request q[2 * NSIZES * 8];
	MPI_Status st[2 * NSIZES * 8];

	M(MPI_Comm_test_inter(comm, &inter));
	M(MPI_Comm_rank(comm, &rank));
	M(inter ? MPI_Comm_remote_size(comm, &peers) : MPI_Comm_size(comm, &peers));
	if (!T_OK(peers <= 8, "%d", peers))
		return;
	for (int p = 0; p < peers; p++) {
		for (int i = 0; i < NSIZES; i++, n++) {
			lens[n] = sizes[i];
			buf[n] = malloc(lens[n]);
			memset(buf[n], 0, lens[n]);
			M(MPI_Irecv(buf[n], lens[n], MPI_BYTE, salt % 2 ? p : MPI_ANY_SOURCE, p * 16 + i, comm,
				    &q[n]));
		}
	}
	want_from = n;
	for (int p = 0; p < peers; p++) {
		for (int i = 0; i < NSIZES; i++, n++) {
			lens[n] = sizes[i];
			buf[n] = malloc(lens[n]);
			t_fill(buf[n], lens[n], seed_of(rank, p, i, salt));
			M(MPI_Isend(buf[n], lens[n], MPI_BYTE, p, rank * 16 + i, comm, &q[n]));
		}
	}
	M(MPI_Waitall(n, q, st));
	for (int k = 0; k < want_from; k++) {
		int p = k / NSIZES, i = k % NSIZES, count;

		T_EQ(st[k].MPI_SOURCE, p);
		T_EQ(st[k].MPI_TAG, p * 16 + i);
		M(MPI_Get_count(&st[k], MPI_BYTE, &count));
		T_EQ(count, lens[k]);
		t_fill(want, lens[k], seed_of(p, rank, i, salt));
		T_BYTES("message", buf[k], want, lens[k]);
	}
	for (int k = 0; k < n; k++)
		free(buf[k]);
	free(want);
}

/* Twice, so that the second time is on channels that are known. */
static void both(MPI_Comm comm)
{
	if (comm == MPI_COMM_NULL)
		return;
	traffic(comm, 1);
	traffic(comm, 2);
	traffic(comm, 3);
}

static void use(MPI_Comm *comm)
{
	both(*comm);
	if (*comm != MPI_COMM_NULL)
		M(MPI_Comm_free(comm));
	T_EQ(*comm == MPI_COMM_NULL, 1);
}

static void world(void)
{
	both(MPI_COMM_WORLD);
}

static void self(void)
{
	MPI_Comm c;

	both(MPI_COMM_SELF);
	M(MPI_Comm_dup(MPI_COMM_SELF, &c));
	use(&c);
}

static void dup_of_dup(void)
{
	MPI_Comm a, b, c;
	MPI_Info info;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &a));
	M(MPI_Comm_dup(a, &b));
	both(a);
	M(MPI_Comm_free(&a));
	M(MPI_Info_create(&info));
	M(MPI_Info_set(info, "mpi_assert_no_any_tag", "true"));
	M(MPI_Comm_dup_with_info(b, info, &c));
	M(MPI_Info_free(&info));
	both(b);
	use(&c);
	use(&b);
}

/* Messages of the same ranks and tags on several communicators at once must not be mixed up. */
static void dups_at_once(void)
{
	enum { N = 3 };
	int peer = t_rank ^ 1, len = 200000;
	unsigned char *in[N], *out[N], *want = malloc(len);
	MPI_Request q[2 * N];
	MPI_Comm c[N];

	for (int i = 0; i < N; i++)
		M(MPI_Comm_dup(MPI_COMM_WORLD, &c[i]));
	for (int i = 0; i < N; i++) {
		in[i] = malloc(len);
		out[i] = malloc(len);
		t_fill(out[i], len, seed_of(t_rank, peer, i, 9));
		if (peer < t_size)
			M(MPI_Irecv(in[i], len, MPI_BYTE, peer, 5, c[i], &q[i]));
	}
	for (int i = N - 1; i >= 0 && peer < t_size; i--)
		M(MPI_Isend(out[i], len, MPI_BYTE, peer, 5, c[i], &q[N + i]));
	if (peer < t_size)
		M(MPI_Waitall(2 * N, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < N; i++) {
		t_fill(want, len, seed_of(peer, t_rank, i, 9));
		if (peer < t_size)
			T_BYTES("message", in[i], want, len);
		free(in[i]);
		free(out[i]);
		M(MPI_Comm_free(&c[i]));
	}
	free(want);
}

static void idup(void)
{
	MPI_Request q[3], w;
	MPI_Comm c[3], d;

	for (int i = 0; i < 3; i++)
		M(MPI_Comm_idup(MPI_COMM_WORLD, &c[i], &q[i]));
	both(MPI_COMM_WORLD);
	M(MPI_Waitall(3, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < 3; i++)
		use(&c[i]);
#if T_HAS_ISENDRECV
	M(MPI_Comm_idup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &d, &w));
#else
	M(MPI_Comm_idup(MPI_COMM_WORLD, &d, &w));
#endif
	M(MPI_Wait(&w, MPI_STATUS_IGNORE));
	use(&d);
}

static void split(void)
{
	MPI_Comm halves, odd, reversed, again;

	M(MPI_Comm_split(MPI_COMM_WORLD, t_rank % 2, -t_rank, &halves));
	M(MPI_Comm_split(MPI_COMM_WORLD, t_rank ? 0 : MPI_UNDEFINED, 0, &odd));
	M(MPI_Comm_split(MPI_COMM_WORLD, 0, t_size - t_rank, &reversed));
	M(MPI_Comm_split(halves, 0, t_rank, &again));
	both(halves);
	both(again);
	use(&odd);
	use(&halves);
	use(&reversed);
	use(&again);
}

static void split_type(void)
{
	MPI_Comm c, none;

	M(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &c));
	M(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_UNDEFINED, 0, MPI_INFO_NULL, &none));
	T_EQ(none == MPI_COMM_NULL, 1);
	use(&c);
}

static MPI_Group group_of(MPI_Comm comm, int first, int step, int n)
{
	int range[1][3] = { { first, first + step * (n - 1), step } };
	MPI_Group all, part;

	M(MPI_Comm_group(comm, &all));
	M(MPI_Group_range_incl(all, 1, range, &part));
	M(MPI_Group_free(&all));
	return part;
}

static void create(void)
{
	MPI_Group g = group_of(MPI_COMM_WORLD, t_size - 1, -1, t_size - 1);	/* not rank 0 */
	MPI_Group half = group_of(MPI_COMM_WORLD, t_rank % 2, 2, (t_size + 1 - t_rank % 2) / 2);
	MPI_Comm c, d, e;

	M(MPI_Comm_create(MPI_COMM_WORLD, g, &c));
	T_EQ(c == MPI_COMM_NULL, t_rank == 0);
	/* the one that got none must not be behind */
	M(MPI_Comm_dup(MPI_COMM_WORLD, &d));
	M(MPI_Comm_create(d, half, &e));
	use(&c);
	both(d);
	use(&e);
	use(&d);
	M(MPI_Group_free(&g));
	M(MPI_Group_free(&half));
}

static void create_group(void)
{
	MPI_Group half = group_of(MPI_COMM_WORLD, t_rank % 2, 2, (t_size + 1 - t_rank % 2) / 2);
	MPI_Group last = group_of(MPI_COMM_WORLD, t_size - 1, -1, t_size - 1);
	MPI_Comm a, b, c, d;

	M(MPI_Comm_create_group(MPI_COMM_WORLD, half, 7, &a));
	/* only some of the parent's members make this one, and all of them another one then */
	if (t_rank)
		M(MPI_Comm_create_group(MPI_COMM_WORLD, last, 8, &b));
	M(MPI_Comm_dup(MPI_COMM_WORLD, &c));
	M(MPI_Comm_create_group(a, half, 7, &d));
	use(&a);
	if (t_rank)
		use(&b);
	use(&c);
	use(&d);
	M(MPI_Group_free(&half));
	M(MPI_Group_free(&last));
}

static void topologies(void)
{
	int dims[2] = { 0, 0 }, periods[2] = { 1, 0 }, keep[2] = { 0, 1 }, n = t_size - t_size % 2;
	int left = (t_rank + t_size - 1) % t_size, right = (t_rank + 1) % t_size, one = 1;
	int index[8], edges[16];
	int *volatile unweighted = MPI_UNWEIGHTED;	/* gcc would look into it */
	MPI_Comm cart, rows, graph, dist, adjacent;

	M(MPI_Dims_create(n, 2, dims));
	M(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &cart));
	if (cart != MPI_COMM_NULL) {
		M(MPI_Cart_sub(cart, keep, &rows));
		both(cart);
		use(&rows);
	}
	for (int i = 0; i < n; i++) {
		index[i] = 2 * (i + 1);
		edges[2 * i] = (i + n - 1) % n;
		edges[2 * i + 1] = (i + 1) % n;
	}
	M(MPI_Graph_create(MPI_COMM_WORLD, n, index, edges, 1, &graph));
	/* Open MPI's treematch ends the job when it is asked to reorder over two nodes */
	M(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &t_rank, &one, &right, unweighted, MPI_INFO_NULL, 0,
				&dist));
	M(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, unweighted, 1, &right, unweighted,
					 MPI_INFO_NULL, 0, &adjacent));
	use(&graph);
	use(&adjacent);
	use(&dist);
	use(&cart);
}

/* Odd and even ranks of the world. */
static MPI_Comm make_inter(MPI_Comm *halves)
{
	MPI_Comm inter;

	M(MPI_Comm_split(MPI_COMM_WORLD, t_rank % 2, 0, halves));
	M(MPI_Intercomm_create(*halves, 0, MPI_COMM_WORLD, 1 - t_rank % 2, 3, &inter));
	return inter;
}

static void intercomm(void)
{
	MPI_Comm halves, inter = make_inter(&halves), dup, merged, again;

	both(inter);
	M(MPI_Comm_dup(inter, &dup));
	M(MPI_Intercomm_merge(inter, t_rank % 2, &merged));
	M(MPI_Comm_free(&inter));
	both(dup);
	both(merged);
	M(MPI_Intercomm_create(halves, 0, merged, t_rank % 2 ? 0 : (t_size + 1) / 2, 3, &again));
	use(&again);
	use(&merged);
	use(&dup);
	use(&halves);
}

static void intercomm_parts(void)
{
	MPI_Comm halves, inter = make_inter(&halves), part, created;
	MPI_Group first = group_of(halves, 0, 1, 1);
	MPI_Request q;

	M(MPI_Comm_create(inter, first, &created));
	T_EQ(created != MPI_COMM_NULL, t_rank < 2);
	use(&created);
	/* pairs: (0, 1), (2, 3) */
	if (t_size % 2 == 0) {
		M(MPI_Comm_split(inter, t_rank / 2, 0, &part));
		use(&part);
	}
	M(MPI_Comm_idup(inter, &part, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	use(&part);
	M(MPI_Group_free(&first));
	use(&inter);
	use(&halves);
}

/* Both sides are single processes, and their local communicators nobody else's. */
static void intercomm_of_self(void)
{
	MPI_Comm inter, merged;

	if (t_rank >= 2)
		return;
	M(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - t_rank, 4, &inter));
	both(inter);
	M(MPI_Intercomm_merge(inter, 0, &merged));
	use(&merged);
	use(&inter);
}

/* One process by itself, and all others, who have a communicator in common; each side is the first one once. */
static void intercomm_of_self_and_others(void)
{
	MPI_Comm others, inter, merged;

	M(MPI_Comm_split(MPI_COMM_WORLD, !t_rank, 0, &others));
	M(MPI_Intercomm_create(t_rank ? others : MPI_COMM_SELF, 0, MPI_COMM_WORLD, t_rank ? 0 : 1, 4, &inter));
	both(inter);
	M(MPI_Intercomm_merge(inter, !t_rank, &merged));
	both(merged);
	M(MPI_Comm_free(&inter));
	M(MPI_Intercomm_create(t_rank ? others : MPI_COMM_SELF, 0, merged, t_rank ? t_size - 1 : 0, 4, &inter));
	use(&inter);
	use(&merged);
	M(MPI_Comm_free(&others));
}

/* The handle is gone, the messages are not. */
static void freed_under_way(void)
{
	int peer = t_rank ^ 1, len = 1 << 20;
	unsigned char *in = malloc(len), *out = malloc(len), *want = malloc(len);
	MPI_Request q[3];
	MPI_Status st;
	MPI_Comm c;

	for (int round = 0; round < 4; round++) {
		M(MPI_Comm_dup(MPI_COMM_WORLD, &c));
		t_fill(out, len, seed_of(t_rank, peer, round, 77));
		if (peer < t_size) {
			M(MPI_Irecv(in, len, MPI_BYTE, round % 2 ? peer : MPI_ANY_SOURCE, 900, c, &q[0]));
			M(MPI_Isend(out, len, MPI_BYTE, peer, 900, c, &q[1]));
		}
		if (round < 2)
			M(MPI_Comm_free(&c));
		/* the handle may be used again */
		if (round < 2)
			M(MPI_Comm_dup(MPI_COMM_WORLD, &c));
		traffic(c, round);
		if (peer < t_size) {
			M(MPI_Wait(&q[0], &st));
			T_EQ(st.MPI_SOURCE, peer);
			M(MPI_Wait(&q[1], MPI_STATUS_IGNORE));
			t_fill(want, len, seed_of(peer, t_rank, round, 77));
			T_BYTES("message", in, want, len);
		}
		M(MPI_Comm_disconnect(&c));
	}
	free(in);
	free(out);
	free(want);
}

static void many(void)
{
	MPI_Comm c;

	for (int i = 0; i < t_iters(30); i++) {
		M(MPI_Comm_split(MPI_COMM_WORLD, i % 3 ? t_rank % 2 : 0, i % 2 ? t_rank : -t_rank, &c));
		traffic(c, i);
		M(MPI_Comm_free(&c));
	}
}

/* Attribute callbacks are inside of the calls that make and free communicators, and may communicate. */
static int talk(MPI_Comm comm)
{
	int peer = t_rank ^ 1, got = -1;

	if (peer >= t_size)
		return MPI_SUCCESS;
	M(MPI_Sendrecv(&t_rank, 1, MPI_INT, peer, 2, &got, 1, MPI_INT, peer, 2, comm, MPI_STATUS_IGNORE));
	T_EQ(got, peer);
	return MPI_SUCCESS;
}

static int copy_fn(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
	*(void **)out = in;
	*flag = 1;
	++*(int *)extra;
	return talk(comm);
}

static int delete_fn(MPI_Comm comm, int keyval, void *val, void *extra)
{
	++*(int *)extra;
	return talk(comm);
}

static void attributes(void)
{
	int keyval, calls = 0;
	MPI_Comm a, b;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &a));
	M(MPI_Comm_create_keyval(copy_fn, delete_fn, &keyval, &calls));
	M(MPI_Comm_set_attr(a, keyval, &calls));
	M(MPI_Comm_dup(a, &b));
	T_EQ(calls, 1);
	both(b);
	M(MPI_Comm_free(&b));
	T_EQ(calls, 2);
	use(&a);
	T_EQ(calls, 3);
	M(MPI_Comm_free_keyval(&keyval));
}

/* A creation that fails everywhere leaves everything in step. */
static void failed_creation(void)
{
	int dims[1] = { t_size + 1 }, periods[1] = { 0 }, rc;
	MPI_Comm a, b, bad = MPI_COMM_NULL;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &a));
	M(MPI_Comm_set_errhandler(a, MPI_ERRORS_RETURN));
	rc = MPI_Cart_create(a, 1, dims, periods, 0, &bad);
	T_OK(rc != MPI_SUCCESS, "more processes than there are");
	M(MPI_Comm_dup(a, &b));
	both(b);
	M(MPI_Comm_free(&b));
	/* a mistake of one only, before it makes the call that all make */
	if (!t_rank)
		T_OK(MPI_Comm_split(a, 0, 0, NULL) != MPI_SUCCESS, "nowhere to put it");
	M(MPI_Comm_split(a, t_rank % 2, 0, &b));
	use(&b);
	use(&a);
}

/* What hints promise does not change what is received. */
static void hints(void)
{
	MPI_Info info;
	MPI_Comm c, d;

	M(MPI_Info_create(&info));
#ifndef OPEN_MPI	/* 4.1 loses messages then */
	M(MPI_Info_set(info, "mpi_assert_allow_overtaking", "true"));
#endif
	M(MPI_Info_set(info, "mpi_assert_exact_length", "true"));
	M(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &c));
	M(MPI_Info_free(&info));
	both(c);
	M(MPI_Comm_dup(c, &d));
	use(&c);
	use(&d);
	/* a hint that comes later */
	M(MPI_Info_create(&info));
	M(MPI_Info_set(info, "mpi_assert_no_any_tag", "true"));
	M(MPI_Comm_dup(MPI_COMM_WORLD, &c));
	M(MPI_Comm_set_info(c, info));
	M(MPI_Info_free(&info));
	use(&c);
}

/*
 * Debian's MPICH 4.0.2 has neither MPI_Open_port, and so no MPI_Comm_join, nor MPI_Comm_spawn: they fail with MPI_ERR_OTHER, natively
 * as well.
 */
#ifdef OPEN_MPI
/* Large and small messages both ways between this process and rank @peer of @inter. */
static void exchange(MPI_Comm inter, int peer, uint64_t mine, uint64_t theirs)
{
	static unsigned char out[1 << 20], in[1 << 20], want[1 << 20];
	static const int bytes[] = { 8, 240, 100000, 1 << 20 };
	MPI_Request q[2];
	MPI_Status st;
	int n;

	for (int k = 0; k < ARRAY_SIZE(bytes); k++) {
		t_fill(out, (size_t)bytes[k], mine + (uint64_t)k);
		M(MPI_Irecv(in, bytes[k], MPI_BYTE, peer, k, inter, &q[0]));
		M(MPI_Isend(out, bytes[k], MPI_BYTE, peer, k, inter, &q[1]));
		M(MPI_Wait(&q[1], MPI_STATUS_IGNORE));
		M(MPI_Wait(&q[0], &st));
		M(MPI_Get_count(&st, MPI_BYTE, &n));
		T_EQ(n, bytes[k]);
		t_fill(want, (size_t)n, theirs + (uint64_t)k);
		T_BYTES("message", in, want, (size_t)n);
	}
}

/* What joins two jobs, even a job with itself, is not ours, nor what is made of it: @inter of two of this one. */
static void use_joined(MPI_Comm inter)
{
	MPI_Comm both;
	int rank;

	exchange(inter, 0, 10 * (uint64_t)t_rank, 10 * (uint64_t)!t_rank);
	M(MPI_Intercomm_merge(inter, t_rank, &both));
	M(MPI_Comm_rank(both, &rank));
	T_EQ(rank, t_rank);
	exchange(both, !rank, 10 * (uint64_t)t_rank, 10 * (uint64_t)!t_rank);
	M(MPI_Comm_free(&both));
	M(MPI_Comm_disconnect(&inter));
}

/* An address of this node that others reach. */
static struct sockaddr_in own_address(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all))
		abort();
	for (const struct ifaddrs *i = all; i; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && i->ifa_flags & IFF_UP &&
		    !(i->ifa_flags & IFF_LOOPBACK))
			a.sin_addr = ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
	freeifaddrs(all);
	return a;
}

/* over a TCP connection of the program's */
static void joined(void)
{
	struct sockaddr_in a = own_address();
	socklen_t len = sizeof(a);
	MPI_Comm inter;
	int s, fd = -1;

	s = socket(AF_INET, SOCK_STREAM, 0);
	if (!t_rank)
		T_OK(!bind(s, (struct sockaddr *)&a, len) && !listen(s, 1) &&
		     !getsockname(s, (struct sockaddr *)&a, &len), "listening: %s", strerror(errno));
	M(MPI_Bcast(&a, sizeof(a), MPI_BYTE, 0, MPI_COMM_WORLD));
	if (!t_rank)
		fd = accept(s, NULL, NULL);
	else if (t_rank == 1 && !connect(s, (struct sockaddr *)&a, len))
		fd = s;
	if (t_rank < 2 && T_OK(fd >= 0, "connecting: %s", strerror(errno))) {
		if (M(MPI_Comm_join(fd, &inter)))
			use_joined(inter);
		if (fd != s)
			close(fd);
	}
	close(s);
	t_barrier();
}

static void connected(void)
{
	char port[MPI_MAX_PORT_NAME] = "";
	MPI_Comm inter;

	if (!t_rank)
		M(MPI_Open_port(MPI_INFO_NULL, port));
	M(MPI_Bcast(port, sizeof(port), MPI_CHAR, 0, MPI_COMM_WORLD));
	if (!t_rank)
		M(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
	else if (t_rank == 1)
		M(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
	if (t_rank < 2)
		use_joined(inter);
	if (!t_rank)
		M(MPI_Close_port(port));
	t_barrier();
}

static char *program;

#define CHILDREN 2

/* Started by spawned(), whose rank 0 talks to each of us; our own MPI_COMM_WORLD is one like any other. */
static int child(MPI_Comm parent)
{
	int rank, failures;

	M(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
	exchange(parent, 0, 100 + 10 * (uint64_t)rank, 200 + 10 * (uint64_t)rank);
	exchange(MPI_COMM_WORLD, !rank, 300 + 10 * (uint64_t)rank, 300 + 10 * (uint64_t)!rank);
	failures = t_failures();
	M(MPI_Send(&failures, 1, MPI_INT, 0, 99, parent));
	M(MPI_Comm_disconnect(&parent));
	MPI_Finalize();
	return failures != 0;
}

static void spawn(bool multiple)
{
	char *programs[] = { program, program };
	int counts[] = { 1, 1 }, failures = -1;
	MPI_Info infos[] = { MPI_INFO_NULL, MPI_INFO_NULL };
	MPI_Comm inter;

	if (multiple)
		M(MPI_Comm_spawn_multiple(CHILDREN, programs, MPI_ARGVS_NULL, counts, infos, 0, MPI_COMM_WORLD, &inter,
					  MPI_ERRCODES_IGNORE));
	else
		M(MPI_Comm_spawn(program, MPI_ARGV_NULL, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
				 MPI_ERRCODES_IGNORE));
	for (int i = 0; !t_rank && i < CHILDREN; i++)
		exchange(inter, i, 200 + 10 * (uint64_t)i, 100 + 10 * (uint64_t)i);
	for (int i = 0; !t_rank && i < CHILDREN; i++) {
		M(MPI_Recv(&failures, 1, MPI_INT, i, 99, inter, MPI_STATUS_IGNORE));
		T_EQ(failures, 0);
	}
	M(MPI_Comm_disconnect(&inter));
	t_barrier();
}

static void spawned(void)
{
	spawn(false);
}

static void spawned_multiple(void)
{
	spawn(true);
}
#endif

int main(int argc, char **argv)
{
#ifdef OPEN_MPI
	MPI_Comm parent;

	program = argv[0];
#endif
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
#ifdef OPEN_MPI
	parent = MPI_COMM_NULL;
	if (!t_sessions)
		MPI_Comm_get_parent(&parent);
	if (parent != MPI_COMM_NULL)
		return child(parent);
#endif
	T_RUN(world, 2);
	T_RUN(self, 1);
	T_RUN(dup_of_dup, 2);
	T_RUN(dups_at_once, 2);
	T_RUN(idup, 2);
	T_RUN(split, 2);
	T_RUN(split_type, 2);
	T_RUN(create, 2);
	T_RUN(create_group, 2);
	T_RUN(topologies, 2);
	T_RUN(intercomm, 2);
	T_RUN(intercomm_parts, 2);
	T_RUN(intercomm_of_self, 2);
	T_RUN(intercomm_of_self_and_others, 2);
	T_RUN(freed_under_way, 2);
	T_RUN(many, 2);
	T_RUN(attributes, 2);
	T_RUN(failed_creation, 2);
	T_RUN(hints, 2);
#ifdef OPEN_MPI
	if (!t_sessions) {
		T_RUN(joined, 2);
		T_RUN(connected, 2);
		T_RUN(spawned, 2);
		T_RUN(spawned_multiple, 2);
	}
#endif
	return t_fini();
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * MPI_THREAD_MULTIPLE: threads that send and receive on the same communicator, with the same tag, messages of all sizes, by all
 * calls that there are; and requests, communicators and datatypes that one thread makes and another one uses or ends.
 *
 * Every message says who sent it, which of his it is, and how long it is; the rest of it follows from that. Threads that receive
 * take whatever comes: each message must come once, whole, and those of one sender in order as far as one thread can see it.
 */
#include "mpitest.h"

#include <pthread.h>
#include <stdatomic.h>

#define TALKERS	2		/* threads that send, and as many that receive */
#define MOST	70000		/* bytes */
#define TAG	5

struct head {
	uint32_t who, which, len;
};

struct talker {
	int no;
	pthread_t id;
	int messages;
	struct t_rng rng;
	int last[TALKERS];	/* of each sender, received by this thread */
};

static atomic_int seen[TALKERS][4000];
static MPI_Comm comm;
static int to, from;

static int length(struct t_rng *rng)
{
	static const int sizes[] = { 12, 16, 239, 240, 241, 1000, 1023, 1024, 1025, 5000, 32767, 32768, MOST };

	return t_rndn(rng, 3) ? sizes[t_rndn(rng, ARRAY_SIZE(sizes) - 6)] : sizes[t_rndn(rng, ARRAY_SIZE(sizes))];
}

static void make(unsigned char *buf, int who, int which, int len)
{
	struct head h = { (uint32_t)who, (uint32_t)which, (uint32_t)len };

	t_fill(buf, (size_t)len, (uint64_t)(1000003 * which + who));
	memcpy(buf, &h, sizeof(h));
}

/* A message has come. @order: others of this thread that were posted before it have been looked at. */
static void take(struct talker *t, const unsigned char *buf, const MPI_Status *st, bool order)
{
	static _Thread_local unsigned char want[MOST];
	struct head h;
	int len;

	M(MPI_Get_count(st, MPI_BYTE, &len));
	T_EQ(st->MPI_SOURCE, from);
	T_EQ(st->MPI_TAG, TAG);
	if (!T_OK(len >= (int)sizeof(h), "%d bytes", len))
		return;
	memcpy(&h, buf, sizeof(h));
	if (!T_OK(h.who < TALKERS && h.which < ARRAY_SIZE(seen[0]) && (int)h.len == len, "%u/%u of %u bytes, %d came",
		  h.who, h.which, h.len, len))
		return;
	make(want, (int)h.who, (int)h.which, len);
	T_BYTES("message", buf, want, (size_t)len);
	T_EQ(atomic_fetch_add(&seen[h.who][h.which], 1), 0);
	if (order) {
		T_OK((int)h.which > t->last[h.who], "%u of %u after %d", h.which, h.who, t->last[h.who]);
		t->last[h.who] = (int)h.which;
	}
}

static void *send_all(void *arg)
{
	static _Thread_local unsigned char out[4][MOST];
	struct talker *t = arg;
	MPI_Request q[4];

	for (int i = 0; i < t->messages;) {
		int n = 1 + t_rndn(&t->rng, 4), len[4], how = t_rndn(&t->rng, 5), index;

		if (n > t->messages - i)
			n = t->messages - i;
		for (int k = 0; k < n; k++) {
			len[k] = length(&t->rng);
			make(out[k], t->no, i + k, len[k]);
		}
		for (int k = 0; k < n; k++) {
			if (how == 0)
				M(MPI_Send(out[k], len[k], MPI_BYTE, to, TAG, comm));
			else if (how == 1)
				M(MPI_Ssend(out[k], len[k], MPI_BYTE, to, TAG, comm));
			else if (how == 2)
				M(MPI_Issend(out[k], len[k], MPI_BYTE, to, TAG, comm, &q[k]));
			else
				M(MPI_Isend(out[k], len[k], MPI_BYTE, to, TAG, comm, &q[k]));
		}
		if (how == 2)
			M(MPI_Waitall(n, q, MPI_STATUSES_IGNORE));
		for (int k = 0; k < n && how > 2; k++)
			if (how == 3)
				M(MPI_Wait(&q[k], MPI_STATUS_IGNORE));
			else
				M(MPI_Waitany(n, q, &index, MPI_STATUS_IGNORE));
		i += n;
	}
	return NULL;
}

static int source(struct t_rng *rng, bool wild)
{
	return wild && !t_rndn(rng, 6) ? MPI_ANY_SOURCE : from;
}

static int tag(struct t_rng *rng, bool wild)
{
	return wild && !t_rndn(rng, 6) ? MPI_ANY_TAG : TAG;
}

static atomic_bool wild, probes;

/* @n at once, ended by one of the calls that end several. */
static void receive_many(struct talker *t, unsigned char (*in)[MOST], int n)
{
	MPI_Request q[4];
	MPI_Status st[4], own[4];
	int index[4], count, flag;

	for (int k = 0; k < n; k++)
		M(MPI_Irecv(in[k], MOST, MPI_BYTE, source(&t->rng, wild), tag(&t->rng, wild), comm, &q[k]));
	switch (t_rndn(&t->rng, 5)) {
	case 0:
		M(MPI_Waitall(n, q, st));
		break;
	case 1:
		for (flag = 0; !flag;)
			M(MPI_Testall(n, q, &flag, st));
		break;
	case 2:
		for (int k = 0; k < n; k++) {
			M(MPI_Waitany(n, q, &index[0], &own[0]));
			st[index[0]] = own[0];
		}
		break;
	case 3:
		for (int k = 0; k < n; k += count) {
			M(MPI_Testsome(n, q, &count, index, own));
			for (int i = 0; i < count; i++)
				st[index[i]] = own[i];
		}
		break;
	default:
		for (int k = n - 1; k >= 0; k--)
			M(MPI_Wait(&q[k], &st[k]));
	}
	for (int k = 0; k < n; k++)
		take(t, in[k], &st[k], true);
}

static void receive_one(struct talker *t, unsigned char *in)
{
	int src = source(&t->rng, wild), tg = tag(&t->rng, wild), flag = 0, how = t_rndn(&t->rng, probes ? 7 : 5);
	MPI_Message msg;
	MPI_Request q;
	MPI_Status st;

	switch (how) {
	case 0:
		M(MPI_Irecv(in, MOST, MPI_BYTE, src, tg, comm, &q));
		while (!flag)
			M(MPI_Test(&q, &flag, &st));
		break;
	case 1:
		M(MPI_Irecv(in, MOST, MPI_BYTE, src, tg, comm, &q));
		while (!flag)
			M(MPI_Request_get_status(q, &flag, &st));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		break;
	case 2:
		M(MPI_Recv_init(in, MOST, MPI_BYTE, src, tg, comm, &q));
		M(MPI_Start(&q));
		M(MPI_Wait(&q, &st));
		M(MPI_Request_free(&q));
		break;
	case 5:
		M(MPI_Mprobe(src, tg, comm, &msg, &st));
		M(MPI_Mrecv(in, MOST, MPI_BYTE, &msg, &st));
		break;
	case 6:
		while (!flag)
			M(MPI_Improbe(src, tg, comm, &flag, &msg, &st));
		M(MPI_Imrecv(in, MOST, MPI_BYTE, &msg, &q));
		M(MPI_Wait(&q, &st));
		break;
	default:
		M(MPI_Recv(in, MOST, MPI_BYTE, src, tg, comm, &st));
	}
	take(t, in, &st, true);
}

static void *receive_all(void *arg)
{
	static _Thread_local unsigned char in[4][MOST];
	struct talker *t = arg;
	MPI_Status st;
	int flag, len;

	for (int i = 0; i < t->messages;) {
		int n = 1 + t_rndn(&t->rng, 4);

		if (n > t->messages - i)
			n = t->messages - i;
		if (probes && !t_rndn(&t->rng, 4)) {
			M(MPI_Iprobe(source(&t->rng, wild), tag(&t->rng, wild), comm, &flag, &st));
			if (flag) {
				M(MPI_Get_count(&st, MPI_BYTE, &len));
				T_OK(len >= (int)sizeof(struct head) && len <= MOST, "%d bytes", len);
			}
		}
		if (n == 1)
			receive_one(t, in[0]);
		else
			receive_many(t, in, n);
		i += n;
	}
	return NULL;
}

static atomic_int lost;			/* messages that were cut */

#ifndef OPEN_MPI
/* Many of the buffers are too small for many of the messages. */
static void *receive_mixed(void *arg)
{
	static _Thread_local unsigned char in[MOST];
	struct talker *t = arg;
	MPI_Request q;
	MPI_Status st;
	int rc, class = MPI_SUCCESS;

	for (int i = 0; i < t->messages; i++) {
		int cap = t_rndn(&t->rng, 2) ? 239 : MOST;

		if (t_rndn(&t->rng, 2)) {
			rc = MPI_Recv(in, cap, MPI_BYTE, from, TAG, comm, &st);
		} else {
			M(MPI_Irecv(in, cap, MPI_BYTE, from, TAG, comm, &q));
			rc = MPI_Wait(&q, &st);
		}
		MPI_Error_class(rc, &class);
		if (cap < MOST && class == MPI_ERR_TRUNCATE)
			atomic_fetch_add(&lost, 1);
		else if (T_EQ(class, MPI_SUCCESS))
			take(t, in, &st, true);
	}
	return NULL;
}
#endif

static void *(*receiver)(void *arg) = receive_all;

static bool threads(void)
{
	if (t_provided == MPI_THREAD_MULTIPLE)
		return true;
	t_skip("MPI_THREAD_MULTIPLE is not provided (level %d)", t_provided);
	return false;
}

static void talk(int messages)
{
	struct talker t[2 * TALKERS];
	int n = 0;

	if (!threads())
		return;
	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	M(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
	to = (t_rank + 1) % t_size;
	from = (t_rank + t_size - 1) % t_size;
	memset(seen, 0, sizeof(seen));
	lost = 0;
	for (int i = 0; i < ARRAY_SIZE(t); i++) {
		t[i] = (struct talker){ .no = i % TALKERS, .messages = messages, .rng = t_rng_own() };
		t[i].rng.s += (uint64_t)i * 7919;
		memset(t[i].last, -1, sizeof(t[i].last));
		if (pthread_create(&t[i].id, NULL, i < TALKERS ? send_all : receiver, &t[i]))
			abort();
	}
	for (int i = 0; i < ARRAY_SIZE(t); i++)
		pthread_join(t[i].id, NULL);
	for (int i = 0; i < TALKERS; i++)
		for (int k = 0; k < messages; k++)
			n += seen[i][k];
	T_EQ(n, TALKERS * messages - lost);
	M(MPI_Comm_free(&comm));
}

static void named(void)
{
	wild = probes = false;
	talk(t_iters(40));
}

static void wildcards(void)
{
	wild = true;
	probes = false;
	talk(t_iters(40));
}

static void probed(void)
{
	wild = probes = true;
	talk(t_iters(30));
}

#ifndef OPEN_MPI
/* Open MPI 4.1 writes all of a message that is longer than some KiB, however short the buffer. */
static void mixed(void)
{
	receiver = receive_mixed;
	talk(t_iters(80));
	receiver = receive_all;
}
#endif

/*
 * Each pair of threads has a tag; one thread in two posts what takes only small messages, the others what takes large ones.
 * Handles are used again by other threads as soon as they are free.
 */
static void *own_tag(void *arg)
{
	static _Thread_local unsigned char out[MOST], in[8][MOST], want[MOST];
	struct talker *t = arg;
	bool small = t->no % 2;
	MPI_Request q[16];
	int index, first = t->no % 4 == 0;

	for (int i = 0; i < t->messages; i++) {
		int n = small ? 8 + t_rndn(&t->rng, 200) : 1000 + t_rndn(&t->rng, MOST - 1000), cap = small ? 208 : MOST, count;
		MPI_Status st;

		t_fill(out, (size_t)n, (uint64_t)(100 * i + t->no));
		for (int k = 0; k < 8; k++)
			M(MPI_Irecv(in[k], cap, MPI_BYTE, from, 100 + t->no, comm, &q[k]));
		for (int k = 0; k < 8; k++)
			M(MPI_Isend(out, n, MPI_BYTE, to, 100 + t->no, comm, &q[8 + k]));
		for (int k = 0; k < 16; k++) {
			if (first)
				M(MPI_Waitany(16, q, &index, &st));
			else
				M(MPI_Wait(&q[index = k], &st));
			if (index >= 8)
				continue;
			M(MPI_Get_count(&st, MPI_BYTE, &count));
			T_OK(count > 0 && count <= cap, "%d bytes", count);
			t_fill(want, (size_t)count, (uint64_t)(100 * i + t->no));
			T_BYTES("message", in[index], want, (size_t)count);
		}
	}
	return NULL;
}

static void handles(void)
{
	struct talker t[4];

	if (!threads())
		return;
	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	to = (t_rank + 1) % t_size;
	from = (t_rank + t_size - 1) % t_size;
	for (int i = 0; i < ARRAY_SIZE(t); i++) {
		t[i] = (struct talker){ .no = i, .messages = t_iters(10), .rng = t_rng_own() };
		t[i].rng.s += (uint64_t)i * 7919;
		if (pthread_create(&t[i].id, NULL, own_tag, &t[i]))
			abort();
	}
	for (int i = 0; i < ARRAY_SIZE(t); i++)
		pthread_join(t[i].id, NULL);
	M(MPI_Comm_free(&comm));
}

/* Requests posted by one thread, on a communicator and of a type that it then frees, completed by another one. */
struct posted {
	MPI_Request q[6];
	unsigned char in[6][4000];
};

static void *post(void *arg)
{
	struct posted *p = arg;
	MPI_Datatype type;

	M(MPI_Type_contiguous(4, MPI_BYTE, &type));
	M(MPI_Type_commit(&type));
	for (int k = 0; k < ARRAY_SIZE(p->q); k++)
		M(MPI_Irecv(p->in[k], k % 2 ? 1000 : 2, type, k == 4 ? MPI_ANY_SOURCE : from, k == 5 ? MPI_ANY_TAG : k,
			    comm, &p->q[k]));
	M(MPI_Type_free(&type));
	return NULL;
}

static void *complete(void *arg)
{
	struct posted *p = arg;

	M(MPI_Waitall(ARRAY_SIZE(p->q), p->q, MPI_STATUSES_IGNORE));
	return NULL;
}

static void in_thread(void *(*fn)(void *arg), void *arg)
{
	pthread_t id;

	if (pthread_create(&id, NULL, fn, arg))
		abort();
	pthread_join(id, NULL);
}

static void freed_under_way(void)
{
	unsigned char out[6][4000], want[4000];
	static struct posted p;
	MPI_Request q[6];

	if (!threads())
		return;
	to = (t_rank + 1) % t_size;
	from = (t_rank + t_size - 1) % t_size;
	for (int i = 0; i < t_iters(10); i++) {
		M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
		in_thread(post, &p);
		t_barrier();
		for (int k = 0; k < ARRAY_SIZE(q); k++) {
			t_fill(out[k], sizeof(out[k]), (uint64_t)(i * 10 + k));
			M(MPI_Isend(out[k], k % 2 ? 4000 : 8, MPI_BYTE, to, k, comm, &q[k]));
		}
		M(MPI_Comm_free(&comm));
		in_thread(complete, &p);
		M(MPI_Waitall(ARRAY_SIZE(q), q, MPI_STATUSES_IGNORE));
		for (int k = 0; k < ARRAY_SIZE(q); k++) {
			t_fill(want, sizeof(want), (uint64_t)(i * 10 + k));
			T_BYTES("message", p.in[k], want, k % 2 ? 4000 : 8);
		}
	}
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_MULTIPLE);
	T_RUN(named, 2);
	T_RUN(wildcards, 2);
	T_RUN(probed, 2);
#ifndef OPEN_MPI
	T_RUN(mixed, 2);
#endif
	T_RUN(handles, 2);
	T_RUN(freed_under_way, 2);
	return t_fini();
}

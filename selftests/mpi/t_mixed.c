// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Requests of every kind in one array, for every call that completes some or asks about one: those of messages, small and large,
 * of matched ones, persistent ones started together, inactive ones, one-sided ones, collective ones, and the program's own.
 *
 * Two ranks do the same. What to do is random, and the same on both; the order of the array is each rank's own.
 */
#include "mpitest.h"

#define BIG (1 << 17)
#define PAD 64
#define MESSAGES 14
#define MAX_ITEMS 64

enum kind {
	NO_REQUEST, IDLE_SEND, IDLE_RECV, IDLE_NULL,
	NULL_ISEND, NULL_IRECV, NULL_START,
	RPUT, RGET, GENERAL, IBARRIER, IALLREDUCE,
	LAST_OTHER = IALLREDUCE,
	ISEND, ISSEND, SEND_START, SSEND_START,
	IRECV, IRECV_ANY, RECV_START, RECV_START_ANY, IMRECV,
	ISENDRECV, ISENDRECV_REPLACE,
};

struct item {
	enum kind kind;
	int n, tag, no;
	MPI_Comm comm;
	unsigned char *in, *out;
	MPI_Request q, was;
	MPI_Message msg;
	int value, sum;
	bool done;
};

static const int sizes[] = { 0, 1, 8, 239, 240, 241, 1024, 4096, 8193, 65536, BIG };
static struct twin w;
static int peer, *mem, round_no, general_freed;
static MPI_Comm coll;
static struct item item[MAX_ITEMS];
static int items;

static uint64_t seed_of(int rank, const struct item *it)
{
	return (uint64_t)round_no * 100000 + (uint64_t)it->no * 10 + (uint64_t)rank;
}

/* Whose message a receive gets; and its rank in the communicator. */
static int sender_of(const struct item *it)
{
	return it->comm == MPI_COMM_SELF ? t_rank : peer;
}

static int rank_of(const struct item *it)
{
	return it->comm == MPI_COMM_SELF ? 0 : peer;
}

static bool is_persistent(const struct item *it)
{
	switch (it->kind) {
	case IDLE_SEND: case IDLE_RECV: case IDLE_NULL: case NULL_START:
	case SEND_START: case SSEND_START: case RECV_START: case RECV_START_ANY:
		return true;
	default:
		return false;
	}
}

static bool is_started(const struct item *it)
{
	return is_persistent(it) && it->kind != IDLE_SEND && it->kind != IDLE_RECV && it->kind != IDLE_NULL;
}

static bool is_active(const struct item *it)
{
#ifndef OPEN_MPI	/* MPICH 4.0 takes it for inactive even when it is started */
	if (it->kind == NULL_START)
		return false;
#endif
	return it->kind != NO_REQUEST && (!is_persistent(it) || is_started(it));
}

static bool is_receive(const struct item *it)
{
	return it->kind >= IRECV;
}

static struct item *add(enum kind kind, int no, int n, MPI_Comm comm)
{
	struct item *it = &item[items++];

	memset(it, 0, sizeof(*it));
	it->kind = kind;
	it->no = no;
	it->tag = no;
	it->n = n;
	it->comm = comm;
	it->q = MPI_REQUEST_NULL;
	it->in = malloc(BIG + PAD);
	it->out = malloc(BIG + PAD);
	if (!it->in || !it->out)
		abort();
	memset(it->in, 0xa5, BIG + PAD);
	t_fill(it->out, (size_t)n, seed_of(t_rank, it));
	return it;
}

static void plan(struct t_rng *r)
{
	static const enum kind sends[] = { ISEND, ISSEND, SEND_START, SSEND_START };
	static const enum kind recvs[] = { IRECV, IRECV_ANY, RECV_START, RECV_START_ANY, IMRECV };

	items = 0;
	for (int i = 0; i < MESSAGES; i++) {
		int n = sizes[t_rndn(r, ARRAY_SIZE(sizes))], how = t_rndn(r, 8);
		MPI_Comm c = how ? MPI_COMM_WORLD : MPI_COMM_SELF;
		enum kind kind;

		/* without the hooks MPICH 4.0 leaves the status of MPI_Isendrecv unset */
		if (T_HAS_ISENDRECV && t_expect_progress && how > 5) {
			add(how == 6 ? ISENDRECV : ISENDRECV_REPLACE, i, n, c);
			continue;
		}
		add(sends[t_rndn(r, ARRAY_SIZE(sends))], i, n, c);
		kind = recvs[t_rndn(r, ARRAY_SIZE(recvs))];
		add(kind, i, n, c);
	}
	for (enum kind k = NO_REQUEST; k <= LAST_OTHER; k++)
		for (int i = t_rndn(r, 3); i > 0; i--)
			add(k, items, sizes[t_rndn(r, ARRAY_SIZE(sizes))], MPI_COMM_WORLD);
}

static int general_query(void *extra, MPI_Status *st)
{
	(void)extra;
	MPI_Status_set_elements(st, MPI_BYTE, 7);
	MPI_Status_set_cancelled(st, 0);
	st->MPI_SOURCE = 3;
	st->MPI_TAG = 4;
	return MPI_SUCCESS;
}

static int general_free(void *extra)
{
	(void)extra;
	general_freed++;
	return MPI_SUCCESS;
}

static int general_cancel(void *extra, int complete)
{
	(void)extra;
	(void)complete;
	return MPI_SUCCESS;
}

static void begin(struct item *it)
{
	int any = it->kind == IRECV_ANY || it->kind == RECV_START_ANY ? MPI_ANY_SOURCE : rank_of(it);

	switch (it->kind) {
	case NO_REQUEST:
	case IMRECV:
		break;
	case IDLE_SEND:
	case SEND_START:
		M(MPI_Send_init(it->out, it->n, MPI_BYTE, rank_of(it), it->tag, it->comm, &it->q));
		break;
	case SSEND_START:
		M(MPI_Ssend_init(it->out, it->n, MPI_BYTE, rank_of(it), it->tag, it->comm, &it->q));
		break;
	case IDLE_RECV:
	case RECV_START:
	case RECV_START_ANY:
		M(MPI_Recv_init(it->in, BIG, MPI_BYTE, any, it->tag, it->comm, &it->q));
		break;
	case IDLE_NULL:
	case NULL_START:
		M(MPI_Send_init(it->out, it->n, MPI_BYTE, MPI_PROC_NULL, it->tag, it->comm, &it->q));
		break;
	case NULL_ISEND:
		M(MPI_Isend(it->out, it->n, MPI_BYTE, MPI_PROC_NULL, it->tag, it->comm, &it->q));
		break;
	case NULL_IRECV:
		M(MPI_Irecv(it->in, it->n, MPI_BYTE, MPI_PROC_NULL, it->tag, it->comm, &it->q));
		break;
	case ISEND:
		M(MPI_Isend(it->out, it->n, MPI_BYTE, rank_of(it), it->tag, it->comm, &it->q));
		break;
	case ISSEND:
		M(MPI_Issend(it->out, it->n, MPI_BYTE, rank_of(it), it->tag, it->comm, &it->q));
		break;
	case IRECV:
	case IRECV_ANY:
		M(MPI_Irecv(it->in, BIG, MPI_BYTE, any, it->tag, it->comm, &it->q));
		break;
	case RPUT:
		it->value = round_no * 1000 + it->no;
		M(MPI_Rput(&it->value, 1, MPI_INT, peer, it->no, 1, MPI_INT, w.win, &it->q));
		break;
	case RGET:
		it->value = -1;
		M(MPI_Rget(&it->value, 1, MPI_INT, peer, MAX_ITEMS + it->no, 1, MPI_INT, w.win, &it->q));
		break;
	case GENERAL:
		M(MPI_Grequest_start(general_query, general_free, general_cancel, NULL, &it->q));
		break;
	case IBARRIER:
		M(MPI_Ibarrier(coll, &it->q));
		break;
	case IALLREDUCE:
		it->value = 10 * t_rank + 1;
		M(MPI_Iallreduce(&it->value, &it->sum, 1, MPI_INT, MPI_SUM, coll, &it->q));
		break;
#if T_HAS_ISENDRECV
	case ISENDRECV:
		M(MPI_Isendrecv(it->out, it->n, MPI_BYTE, rank_of(it), it->tag, it->in, BIG, MPI_BYTE, MPI_ANY_SOURCE,
				it->tag, it->comm, &it->q));
		break;
	case ISENDRECV_REPLACE:
		memcpy(it->in, it->out, (size_t)it->n);
		M(MPI_Isendrecv_replace(it->in, it->n, MPI_BYTE, rank_of(it), it->tag, rank_of(it), it->tag, it->comm,
					&it->q));
		break;
#endif
	default:
		T_OK(false, "kind %d", it->kind);
	}
}

/* All that are persistent and to be active, with one call. */
static void start_all(void)
{
	MPI_Request q[MAX_ITEMS];
	int n = 0;

	for (int i = 0; i < items; i++)
		if (is_started(&item[i]))
			q[n++] = item[i].q;
	M(MPI_Startall(n, q));
	for (int i = 0, k = 0; i < items; i++)
		if (is_started(&item[i]))
			T_OK(q[k++] == item[i].q, "MPI_Startall has changed a handle");
}

/* Matched first, and received in the other order. */
static void take_matched(void)
{
	MPI_Status st;
	int n;

	for (int i = 0; i < items; i++) {
		struct item *it = &item[i];

		if (it->kind != IMRECV)
			continue;
		M(MPI_Mprobe(it->no % 2 ? MPI_ANY_SOURCE : rank_of(it), it->tag, it->comm, &it->msg, &st));
		M(MPI_Get_count(&st, MPI_BYTE, &n));
		T_EQ(n, it->n);
	}
	for (int i = items - 1; i >= 0; i--)
		if (item[i].kind == IMRECV)
			M(MPI_Imrecv(item[i].in, BIG, MPI_BYTE, &item[i].msg, &item[i].q));
}

static void check_status(const MPI_Status *st, int source, int tag, int n)
{
	int count, flag;

	T_EQ(st->MPI_SOURCE, source);
	T_EQ(st->MPI_TAG, tag);
	M(MPI_Get_count(st, MPI_BYTE, &count));
	T_EQ(count, n);
	M(MPI_Test_cancelled(st, &flag));
	T_EQ(flag, 0);
}

static void check_empty(const MPI_Status *st)
{
	check_status(st, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
}

static void check_in(const struct item *it)
{
	unsigned char *want = malloc(BIG + PAD);

	memset(want, 0xa5, BIG + PAD);
	t_fill(want, (size_t)it->n, seed_of(sender_of(it), it));
	T_BYTES("receive buffer", it->in, want, BIG + PAD);
	free(want);
}

/* What is known of @it when it has ended; @st may be NULL. */
static void check_item(const struct item *it, const MPI_Status *st)
{
	int flag;

	switch (it->kind) {
	case NO_REQUEST: case IDLE_SEND: case IDLE_RECV: case IDLE_NULL:
		if (st)
			check_empty(st);
		return;
	case NULL_IRECV:
#ifdef OPEN_MPI	/* MPICH 4.0 leaves the status unset */
		if (st)
			check_status(st, MPI_PROC_NULL, MPI_ANY_TAG, 0);
#endif
		return;
	case GENERAL:
		if (st)
			check_status(st, 3, 4, 7);
		return;
	case RGET:
		T_EQ(it->value, 1000 * peer + it->no);
		return;
	case IALLREDUCE:
		T_EQ(it->sum, 12);
		return;
	case NULL_START: case RPUT: case IBARRIER:
		return;
	default:
		break;
	}
	if (is_receive(it)) {
		if (st)
			check_status(st, rank_of(it), it->tag, it->n);
		check_in(it);
	} else if (st) {
		M(MPI_Test_cancelled(st, &flag));
		T_EQ(flag, 0);
	}
}

static void item_done(struct item *it, const MPI_Status *st)
{
	T_OK(is_active(it), "kind %d was completed", it->kind);
	T_OK(!it->done, "kind %d was completed twice", it->kind);
	it->done = true;
	check_item(it, st);
}

/*
 * In MPICH 4.2 asking for the status of a persistent request makes it inactive.  The hooks mend that, but not of MPI_COMM_SELF, nor of
 * small sends, of which they have no record.
 */
static bool is_ended_by_asking(const struct item *it)
{
#if (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40200000) || (defined(TEST_ABI) && !defined(OPEN_MPI))
	return is_persistent(it) && (it->comm == MPI_COMM_SELF || it->kind == SEND_START || it->kind == SSEND_START);
#else
	return false;
#endif
}

/* Asking changes nothing, however often. */
static void ask_all(void)
{
	MPI_Status st;
	int flag;

	for (int i = 0; i < items; i++) {
		struct item *it = &item[i];

		for (int k = is_ended_by_asking(it) ? 3 : 0; k < 3; k++) {
			memset(&st, 0x55, sizeof(st));
			M(MPI_Request_get_status(it->q, &flag, &st));
			if (!is_active(it))
				T_OK(flag, "kind %d is not complete", it->kind);
			if (it->kind == GENERAL)
				T_EQ(flag, 0);
			if (flag)
				check_item(it, &st);
			M(MPI_Request_get_status(it->q, &flag, MPI_STATUS_IGNORE));
		}
	}
}

static void complete_general(void)
{
	for (int i = 0; i < items; i++)
		if (item[i].kind == GENERAL)
			M(MPI_Grequest_complete(item[i].q));
}

enum { WAITALL, WAITALL_IGNORE, TESTALL, WAITANY, TESTANY, WAITSOME, TESTSOME, WAIT, TEST, WAYS };

static void complete(int how, struct t_rng *own)
{
	MPI_Status st[MAX_ITEMS], *stp = how == WAITALL_IGNORE ? MPI_STATUSES_IGNORE : st;
	int order[MAX_ITEMS], idx[MAX_ITEMS], at, n, flag = 0, active = 0, left;
	bool late = how == TESTALL || how == TESTANY || how == TESTSOME || how == TEST;
	MPI_Request q[MAX_ITEMS];

	for (int i = 0; i < items; i++)
		order[i] = i;
	for (int i = items - 1; i > 0; i--) {
		int k = t_rndn(own, i + 1), x = order[i];

		order[i] = order[k];
		order[k] = x;
	}
	for (int i = 0; i < items; i++) {
		q[i] = item[order[i]].was = item[order[i]].q;
		active += is_active(&item[i]);
	}
	left = active;
	memset(st, 0x55, sizeof(st));
	if (!late)
		complete_general();
	switch (how) {
	case WAITALL:
	case WAITALL_IGNORE:
		M(MPI_Waitall(items, q, stp));
		break;
	case TESTALL:
		for (bool first = true; !flag; first = false) {
			M(MPI_Testall(items, q, &flag, st));
			if (first)
				complete_general();
		}
		break;
	case WAITANY:
	case TESTANY:
		while (left > 0) {
			at = -2;
			if (how == WAITANY) {
				M(MPI_Waitany(items, q, &at, &st[0]));
			} else {
				for (flag = 0; !flag; late = false) {
					M(MPI_Testany(items, q, &at, &flag, &st[0]));
					if (late)
						complete_general();
				}
			}
			if (!T_OK(at >= 0 && at < items, "index %d, %d active", at, left))
				return;
			item_done(&item[order[at]], &st[0]);
			left--;
		}
		memset(&st[0], 0x55, sizeof(st[0]));
		M(MPI_Waitany(items, q, &at, &st[0]));
		T_EQ(at, MPI_UNDEFINED);
		check_empty(&st[0]);
		M(MPI_Testany(items, q, &at, &flag, &st[0]));
		T_EQ(flag, 1);
		T_EQ(at, MPI_UNDEFINED);
		break;
	case WAITSOME:
	case TESTSOME:
		while (left > 0) {
			if (how == WAITSOME)
				M(MPI_Waitsome(items, q, &n, idx, st));
			else
				M(MPI_Testsome(items, q, &n, idx, st));
			if (late)
				complete_general();
			late = false;
			if (!T_OK(n >= (how == WAITSOME) && n <= left, "%d of %d", n, left))
				return;
			for (int i = 0; i < n; i++)
				item_done(&item[order[idx[i]]], &st[i]);
			left -= n;
		}
		M(MPI_Waitsome(items, q, &n, idx, st));
		T_EQ(n, MPI_UNDEFINED);
		M(MPI_Testsome(items, q, &n, idx, st));
		T_EQ(n, MPI_UNDEFINED);
		break;
	case WAIT:
		for (int i = 0; i < items; i++)
			M(MPI_Wait(&q[i], &st[i]));
		break;
	case TEST:
		complete_general();
		for (int i = 0; i < items; i++)
			do
				M(MPI_Test(&q[i], &flag, &st[i]));
			while (!flag);
		break;
	}
	for (int i = 0; i < items; i++) {
		struct item *it = &item[order[i]];

		if (how == WAITALL || how == WAITALL_IGNORE || how == TESTALL || how == WAIT || how == TEST) {
			if (is_active(it))
				item_done(it, stp == MPI_STATUSES_IGNORE ? NULL : &st[i]);
			else
				check_item(it, stp == MPI_STATUSES_IGNORE ? NULL : &st[i]);
		}
		T_OK(it->done == is_active(it), "kind %d, call %d: not completed", it->kind, how);
		T_OK(q[i] == (is_persistent(it) ? it->was : MPI_REQUEST_NULL), "kind %d, call %d: handle", it->kind, how);
		it->q = q[i];
	}
}

/* Persistent ones that have ended are inactive: complete, and that without a status. */
static void check_inactive(void)
{
	MPI_Status st;
	int flag;

	for (int i = 0; i < items; i++) {
		struct item *it = &item[i];

		if (!is_persistent(it) && it->q != MPI_REQUEST_NULL)
			continue;
		for (int k = 0; k < 2; k++) {
			flag = 0;
			memset(&st, 0x55, sizeof(st));
			if (k)
				M(MPI_Test(&it->q, &flag, &st));
			else
				M(MPI_Request_get_status(it->q, &flag, &st));
			T_OK(flag, "kind %d: an inactive request is not complete", it->kind);
			check_empty(&st);
		}
	}
}

static bool is_there(const struct item *it, const unsigned char *want)
{
	const volatile unsigned char *got = it->in;

	for (int i = 0; i < it->n; i++)
		if (got[i] != want[i])
			return false;
	return true;
}

/*
 * All messages once more, and each persistent request is freed: sends while they are active, half of the receives, too, so that
 * only their memory tells when they have ended.
 */
static void start_and_free(void)
{
	unsigned char *want = malloc(BIG);
	MPI_Status st;
	int flag;

	round_no++;
	for (int i = 0; i < items; i++) {
		struct item *it = &item[i];

		memset(it->in, 0xa5, BIG + PAD);
		t_fill(it->out, (size_t)it->n, seed_of(t_rank, it));
	}
	t_barrier();
	start_all();
	for (int i = 0; i < items; i++) {
		struct item *it = &item[i];

		if (it->kind < ISEND || is_persistent(it))
			continue;
		if (is_receive(it))
			M(MPI_Irecv(it->in, BIG, MPI_BYTE, rank_of(it), it->tag, it->comm, &it->q));
		if (!is_receive(it) || it->kind >= ISENDRECV)
			M(MPI_Isend(it->out, it->n, MPI_BYTE, rank_of(it), it->tag, it->comm, &it->was));
	}
	for (int i = 0; i < items; i++) {
		struct item *it = &item[i];

		if (is_persistent(it) && (!is_receive(it) || it->no % 2)) {
			M(MPI_Request_free(&it->q));
			T_OK(it->q == MPI_REQUEST_NULL, "kind %d: the handle is left", it->kind);
		}
	}
	for (int i = 0; i < items; i++) {
		struct item *it = &item[i];

		if (!is_receive(it))
			continue;
		if (is_persistent(it) && it->no % 2) {
			t_fill(want, (size_t)it->n, seed_of(sender_of(it), it));
			while (!is_there(it, want))
				M(MPI_Iprobe(peer, 77, MPI_COMM_WORLD, &flag, &st));
		} else {
			M(MPI_Wait(&it->q, &st));
			check_status(&st, rank_of(it), it->tag, it->n);
		}
		check_in(it);
		if (is_persistent(it) && it->q != MPI_REQUEST_NULL)
			M(MPI_Request_free(&it->q));
	}
	for (int i = 0; i < items; i++)
		if (item[i].kind >= ISEND && !is_persistent(&item[i]) &&
		    (!is_receive(&item[i]) || item[i].kind >= ISENDRECV))
			M(MPI_Wait(&item[i].was, MPI_STATUS_IGNORE));
	free(want);
	/* the buffers of freed sends are free when their messages have been received */
	t_barrier();
}

static void check_puts(void)
{
	int back;

	M(MPI_Win_flush(peer, w.win));
	for (int i = 0; i < items; i++) {
		if (item[i].kind != RPUT)
			continue;
		M(MPI_Get(&back, 1, MPI_INT, peer, item[i].no, 1, MPI_INT, w.win));
		M(MPI_Win_flush(peer, w.win));
		T_EQ(back, item[i].value);
	}
}

static void mixed(int how)
{
	struct t_rng r = t_rng_common(), own = t_rng_own();
	int generals;

	for (int k = t_iters(12); k > 0; k--) {
		round_no++;
		general_freed = generals = 0;
		plan(&r);
		for (int i = 0; i < items; i++) {
			begin(&item[i]);
			generals += item[i].kind == GENERAL;
		}
		start_all();
		take_matched();
		if (t_rndn(&r, 2))
			ask_all();
		complete(how, &own);
		T_EQ(general_freed, generals);
		check_puts();
		check_inactive();
		start_and_free();
		for (int i = 0; i < items; i++) {
			free(item[i].in);
			free(item[i].out);
		}
	}
}

int main(int argc, char **argv)
{
	static const char *const names[WAYS] = {
		"waitall", "waitall_ignore", "testall", "waitany", "testany", "waitsome", "testsome", "wait", "test",
	};

	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	peer = !t_rank;
	M(MPI_Comm_dup(MPI_COMM_WORLD, &coll));
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 2 * MAX_ITEMS * sizeof(int), sizeof(int), MPI_INFO_NULL);
	mem = (int *)(void *)w.mem;
	for (int i = 0; i < MAX_ITEMS; i++)
		mem[MAX_ITEMS + i] = 1000 * t_rank + i;
	t_barrier();
	M(MPI_Win_lock_all(0, w.win));
	for (int how = 0; how < WAYS; how++)
		if (t_begin("%s", names[how])) {
			mixed(how);
			t_end();
		}
	M(MPI_Win_unlock_all(w.win));
	tw_free(&w);
	M(MPI_Comm_free(&coll));
	return t_fini();
}

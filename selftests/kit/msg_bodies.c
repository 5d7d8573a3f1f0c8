// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <libprogbase/apply.h>
#include <libprogbase/dtype.h>
#include <wire/optype.h>

#include "msg_bodies.h"

uint32_t msg_count = KIT_MANY(40);
uint64_t msg_max = 8u << 20;

struct prog_win *msg_space(struct prog_session *s)
{
	return rank_window(s, PROG_WIN_MSG_CONTEXT, MSG_KEY, NULL, 0);
}

/* ---- repeatable randomness: both ranks of a message know what it is to be --------------------------- */

uint64_t dice_roll(struct dice *d, uint64_t sides)
{
	/* splitmix64 */
	uint64_t z = d->x += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % sides;
}

struct dice dice_for(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
	struct dice d = { seed };

	d.x = dice_roll(&d, UINT64_MAX) + a;
	d.x = dice_roll(&d, UINT64_MAX) + b;
	d.x = dice_roll(&d, UINT64_MAX) + c;
	return d;
}

void fill_random(char *p, uint64_t n, struct dice d)
{
	uint64_t i, v;

	for (i = 0; i < n; i += 8) {
		v = dice_roll(&d, UINT64_MAX);
		memcpy(p + i, &v, n - i < 8 ? n - i : 8);
	}
}

/* ---- buffers ------------------------------------------------------------------------------------------ */

struct mbuf {
	struct prog_buf b;
	struct dtype *dt;
	char *mem;
	size_t size;
	uint64_t total;
	bool region;
};

/* A type of @total bytes: contiguous, a vector, or blocks of odd lengths in any order. */
static void mbuf_new(struct mbuf *m, uint64_t total, struct dice *d, struct prog_session *s)
{
	int64_t lens[24], disps[24], at = 0, left = (int64_t)total;
	uint32_t i, n, kind = (uint32_t)dice_roll(d, 3);
	struct dtype *byte;

	*m = (struct mbuf){ .total = total, .size = total, .b.count = total };
	CHECK_INT(prog_dtype_new_basic(PROG_TYPE_BYTE, &byte), 0);
	if (kind == 1 && total && total % 48 == 0) {
		CHECK_INT(prog_dtype_new_hvector(3, 16, 16 + (int64_t)dice_roll(d, 40), byte, &m->dt), 0);
		m->b.count = total / 48;
		m->size = (size_t)prog_dtype_extent(m->dt) * m->b.count;
	} else if (kind == 2 && total) {
		n = 2 + (uint32_t)dice_roll(d, 22);
		for (i = 0; i < n; i++) {
			lens[i] = i == n - 1 ? left : (int64_t)dice_roll(d, (uint64_t)left + 1);
			left -= lens[i];
			disps[i] = at += (int64_t)dice_roll(d, 100);
			at += lens[i];
		}
		/* the blocks trade places: packed order is not that of addresses */
		for (i = 1; i < n; i++) {
			uint32_t j = (uint32_t)dice_roll(d, i + 1);
			int64_t t = disps[i];

			disps[i] = disps[j];
			disps[j] = t;
			t = lens[i];
			lens[i] = lens[j];
			lens[j] = t;
		}
		CHECK_INT(prog_dtype_new_hindexed(n, lens, disps, byte, &m->dt), 0);
		m->b.count = 1;
		m->size = (size_t)at;
	}
	prog_dtype_put(byte);
	m->region = dice_roll(d, 2);
	if (m->region)
		CHECK_INT(prog_mem_alloc(s, m->size, (void **)&m->mem), 0);
	else
		CHECK((m->mem = malloc(m->size + 1)));
	m->b.addr = m->mem;
	m->b.type = m->dt;
}

static void mbuf_free(struct mbuf *m, struct prog_session *s)
{
	if (m->region)
		CHECK_INT(prog_mem_free(s, m->mem), 0);
	else
		free(m->mem);
	prog_dtype_put(m->dt);
}

/* Packed [@off, @off + @n) of the buffer become @packed. */
static void mbuf_put(struct mbuf *m, uint64_t off, const char *packed, uint64_t n)
{
	if (m->dt)
		CHECK_INT(prog_dtype_unpack(m->mem, m->dt, m->b.count, off, packed, n), 0);
	else
		memcpy(m->mem + off, packed, n);
}

void expect_same(const char *got, const char *want, uint64_t n, const char *what)
{
	uint64_t i;

	if (!memcmp(got, want, n))
		return;
	for (i = 0; got[i] == want[i]; i++)
		;
	fprintf(stderr, "rank %u: %s: byte %llu of %llu is %02x, not %02x\n", my_rank, what,
		(unsigned long long)i, (unsigned long long)n, (unsigned char)got[i], (unsigned char)want[i]);
	_exit(1);
}

/* ---- random messages ------------------------------------------------------------------------------------ */

enum how { BY_KEY, BY_KEY_HURRY, BY_NAME, BY_NAME_HEAD, DROP_BY_KEY, DROP_BY_NAME, HOWS };

struct plan {			/* the n-th message from src to dst */
	uint64_t len;
	uint64_t room;		/* of the receiver, packed */
	unsigned int flags;	/* of the send */
	enum how how;
	struct dice content, sbuf, rbuf;
};

static struct plan plan_for(uint64_t seed, uint32_t src, uint32_t dst, uint32_t n)
{
	struct dice d = dice_for(seed, src, dst, n);
	static const uint64_t edges[] = { 0, 1, 8, 239, 240, 241, 480, 4095, 4096, 4097, 65536, 131072,
					  (1u << 20) - 1, 1u << 20, (1u << 20) + 3, 8u << 20 };
	struct plan p = { 0 };

	switch (dice_roll(&d, 8)) {
	case 0:
	case 1:
		p.len = edges[dice_roll(&d, sizeof(edges) / sizeof(*edges))];
		break;
	case 2:
		p.len = dice_roll(&d, 1u << 20);
		break;
	case 3:
		p.len = 48 * dice_roll(&d, 4000);
		break;
	default:
		p.len = dice_roll(&d, 40000);
	}
	if (p.len > msg_max)
		p.len = msg_max;
	p.how = dice_roll(&d, 4) ? (enum how)dice_roll(&d, BY_NAME_HEAD + 1) : (enum how)dice_roll(&d, HOWS);
	p.flags = (dice_roll(&d, 4) ? 0 : PROG_MSGF_SYNC) | (dice_roll(&d, 3) ? 0 : PROG_MSGF_EAGER);
	p.room = p.len;
	if (!dice_roll(&d, 6))
		p.room = dice_roll(&d, p.len + 1);
	else if (!dice_roll(&d, 6))
		p.room += dice_roll(&d, 1000);
	p.content = (struct dice){ dice_roll(&d, UINT64_MAX) };
	p.sbuf = (struct dice){ dice_roll(&d, UINT64_MAX) };
	p.rbuf = (struct dice){ dice_roll(&d, UINT64_MAX) };
	return p;
}

struct one {			/* a message under way, at one side */
	struct plan p;
	struct mbuf buf;
	prog_msg *m;
};

/* Names of the sends, for receivers; one per channel and place in the pipeline. */
struct mailbox {
	uint32_t full;
	struct prog_msg_id name;
};

static struct mailbox *mailbox_of(uint32_t src, uint32_t dst, uint32_t n)
{
	struct mailbox *all = (struct mailbox *)(void *)rs->data;

	return &all[(src * FAKE_RANKS + dst) * MSG_AHEAD + n % MSG_AHEAD];
}

static void random_send(struct prog_session *s, struct prog_win *w, uint64_t seed, uint32_t to, uint32_t n,
			struct one *o)
{
	struct prog_msg_key key = { .comm = 77, .src = my_rank, .dst = to, .tag = -5, .gen = 1, .ord = n };
	struct mailbox *box = mailbox_of(my_rank, to, n);
	struct prog_msg_id name;
	char *packed;
	int err;

	o->p = plan_for(seed, my_rank, to, n);
	mbuf_new(&o->buf, o->p.len, &o->p.sbuf, s);
	packed = malloc(o->p.len + 1);
	fill_random(packed, o->p.len, o->p.content);
	mbuf_put(&o->buf, 0, packed, o->p.len);
	free(packed);
	err = prog_msg_send(w, &key, &o->buf.b, o->p.flags, &name, &o->m);
	CHECK_INT(err, 0);
	CHECK_INT(name.len, o->p.len);
	CHECK_INT(name.src, my_rank);
	if (o->p.how != BY_NAME && o->p.how != BY_NAME_HEAD && o->p.how != DROP_BY_NAME)
		return;
	box->name = name;
	__atomic_store_n(&box->full, 1, __ATOMIC_RELEASE);
}

static void random_recv(struct prog_session *s, struct prog_win *w, uint64_t seed, uint32_t from, uint32_t n,
			struct one *o)
{
	struct prog_msg_key key = { .comm = 77, .src = from, .dst = my_rank, .tag = -5, .gen = 1, .ord = n };
	struct mailbox *box = mailbox_of(from, my_rank, n);
	struct prog_msg_id name;
	unsigned int flags = 0;
	int err;

	o->p = plan_for(seed, from, my_rank, n);
	mbuf_new(&o->buf, o->p.room, &o->p.rbuf, s);
	memset(o->buf.mem, 0x5a, o->buf.size);
	switch (o->p.how) {
	case BY_KEY_HURRY:
		flags = PROG_MSGF_URGENT;
		/* fallthrough */
	case BY_KEY:
		err = prog_msg_recv(w, &key, &o->buf.b, flags, &o->m);
		break;
	case DROP_BY_KEY:
		err = prog_msg_recv(w, &key, &o->buf.b, PROG_MSGF_DROP, &o->m);
		break;
	default:
		while (!__atomic_load_n(&box->full, __ATOMIC_ACQUIRE))
			sched_yield();
		name = box->name;
		/* before the send can end, after which the place is used again */
		__atomic_store_n(&box->full, 0, __ATOMIC_RELEASE);
		err = prog_msg_recv_by_id(w, &name, &o->buf.b, o->p.how != BY_NAME_HEAD,
					  o->p.how == DROP_BY_NAME ? PROG_MSGF_DROP :
					  o->p.content.x & 2 ? PROG_MSGF_URGENT : 0, &o->m);
	}
	CHECK_INT(err, 0);
}

static bool by_key(uint64_t seed, uint32_t from, uint32_t n)
{
	enum how how = plan_for(seed, from, my_rank, n).how;

	return how == BY_KEY || how == BY_KEY_HURRY || how == DROP_BY_KEY;
}

static void finish(struct prog_session *s, struct prog_win *w, prog_msg *m, bool wait,
		   struct prog_msg_result *r)
{
	int res;

	if (wait) {
		CHECK_INT(prog_msg_wait(w, m, r), 0);
		return;
	}
	while (!(res = prog_msg_test(w, m, r)))
		prog_session_wait(s, 1000000);
	CHECK_INT(res, 1);
}

static void random_sent(struct prog_session *s, struct prog_win *w, struct one *o)
{
	struct prog_msg_result r;

	finish(s, w, o->m, o->p.content.x & 1, &r);
	CHECK_INT(r.status, 0);
	prog_msg_free(w, o->m);
	mbuf_free(&o->buf, s);
}

static void random_received(struct prog_session *s, struct prog_win *w, struct one *o)
{
	uint64_t fits = o->p.len < o->p.room ? o->p.len : o->p.room, head;
	bool whole = o->p.how == BY_NAME;
	struct prog_msg_result r;
	struct mbuf want = o->buf;
	char *packed = malloc(o->p.len + 1);
	const void *kept;

	fill_random(packed, o->p.len, o->p.content);
	finish(s, w, o->m, o->p.content.x & 1, &r);
	CHECK_INT(r.status, 0);
	if (o->p.how >= DROP_BY_KEY) {
		fits = 0;
	} else {
		CHECK_INT(r.len, o->p.len);
		CHECK_INT(r.moved, fits);
	}
	head = whole ? 0 : fits < MSG_HEAD ? fits : MSG_HEAD;
	CHECK_INT(prog_msg_head(w, o->m, &kept), head);
	expect_same(kept, packed, head, "head");
	/* nothing else than the message's bytes has changed, and the head's are left alone */
	want.mem = malloc(want.size + 1);
	memset(want.mem, 0x5a, want.size);
	if (fits > head)
		mbuf_put(&want, head, packed + head, fits - head);
	expect_same(o->buf.mem, want.mem, want.size, "buffer");
	free(want.mem);
	free(packed);
	prog_msg_free(w, o->m);
	mbuf_free(&o->buf, s);
}

/* All ranks send to all, themselves too, some messages of each channel under way at any time. */
void body_msg_random(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = msg_space(s);
	struct one *sent = calloc(my_ranks * MSG_AHEAD, sizeof(*sent));
	struct one *recvd = calloc(my_ranks * MSG_AHEAD, sizeof(*recvd));
	const char *given = getenv("MSG_SEED");
	uint64_t seed;
	uint32_t n, p;

	if (!my_rank) {
		rs->value[63] = given ? strtoull(given, NULL, 0) : (uint64_t)getpid();
		printf("# MSG_SEED=%llu\n", (unsigned long long)rs->value[63]);
		fflush(stdout);
	}
	rank_barrier();
	seed = rs->value[63];
	for (n = 0; n < msg_count + MSG_AHEAD; n++) {
		/* half of the time receives are there first, but for those that need the send's name */
		bool early = (n + my_rank) % 2;

		for (p = 0; n >= MSG_AHEAD && p < my_ranks; p++) {
			random_received(s, w, &recvd[p * MSG_AHEAD + n % MSG_AHEAD]);
			random_sent(s, w, &sent[p * MSG_AHEAD + n % MSG_AHEAD]);
		}
		if (n >= msg_count)
			continue;
		for (p = 0; early && p < my_ranks; p++)
			if (by_key(seed, p, n))
				random_recv(s, w, seed, p, n, &recvd[p * MSG_AHEAD + n % MSG_AHEAD]);
		for (p = 0; p < my_ranks; p++)
			random_send(s, w, seed, p, n, &sent[p * MSG_AHEAD + n % MSG_AHEAD]);
		for (p = 0; p < my_ranks; p++)
			if (!early || !by_key(seed, p, n))
				random_recv(s, w, seed, p, n, &recvd[p * MSG_AHEAD + n % MSG_AHEAD]);
	}
	free(sent);
	free(recvd);
	rank_finish(s, w);
}

/* ---- threads ---------------------------------------------------------------------------------------- */

#define MT_THREADS	4
#define MT_ROUNDS	KIT_MANY(400u)
#define MT_LEN		500u

static struct prog_session *mt_session;
static struct prog_win *mt_win;
static uint32_t mt_looks;

static void mt_look(void *arg)
{
	__atomic_fetch_add(&mt_looks, 1, __ATOMIC_RELAXED);
}

/* Threads of two ranks in pairs, each with a channel; withdrawing and looking go on beside. */
static void *mt_main(void *arg)
{
	int32_t tag = (int32_t)(intptr_t)arg;
	uint32_t peer = 1 - my_rank, i, j;
	char out[MT_LEN], in[MT_LEN];

	for (i = 0; i < MT_ROUNDS; i++) {
		struct prog_msg_key to = { .comm = 5, .src = my_rank, .dst = peer, .tag = tag, .ord = i };
		struct prog_msg_key from = { .comm = 5, .src = peer, .dst = my_rank, .tag = tag, .ord = i };
		struct prog_msg_key none = { .comm = 6, .src = peer, .dst = my_rank, .tag = tag, .ord = i };
		struct prog_buf bi = { .addr = in, .count = MT_LEN }, bo = { .addr = out, .count = MT_LEN };
		struct prog_msg_result r;
		struct prog_msg_id name;
		prog_msg *s, *m, *n;
		const void *head;

		memset(out, (int)(i + my_rank + (uint32_t)tag), MT_LEN);
		CHECK_INT(prog_msg_recv(mt_win, &from, &bi, 0, &m), 0);
		CHECK_INT(prog_msg_recv(mt_win, &none, &bo, 0, &n), 0);
		CHECK_INT(prog_msg_send(mt_win, &to, &bo, i % 7 ? 0 : PROG_MSGF_SYNC, &name, &s), 0);
		prog_msg_candidates(mt_win, i % 2);
		if (i % 3)
			CHECK_INT(prog_msg_wait(mt_win, m, &r), 0);
		else
			while (!prog_msg_test(mt_win, m, &r))
				prog_session_wait(mt_session, 100000);
		CHECK_INT(r.status, 0);
		CHECK_INT(r.len, MT_LEN);
		CHECK_INT(prog_msg_head(mt_win, m, &head), MSG_HEAD);
		memcpy(in, head, MSG_HEAD);
		for (j = 0; j < MT_LEN; j++)
			CHECK_INT((unsigned char)in[j], (i + peer + (uint32_t)tag) & 255);
		prog_msg_free(mt_win, m);
		if (i % 5 == 0)
			CHECK_INT(prog_msg_withdraw(mt_win, n), 0);
		prog_msg_free(mt_win, n);
		if (i % 2)
			CHECK_INT(prog_msg_wait(mt_win, s, NULL), 0);
		else
			while (!prog_msg_test(mt_win, s, NULL))
				sched_yield();
		prog_msg_free(mt_win, s);
	}
	return NULL;
}

/* In sessions that promise one thread, too. */
void body_msg_threads(void)
{
	pthread_t th[MT_THREADS];
	intptr_t i;

	mt_session = rank_session(NULL);
	mt_win = msg_space(mt_session);
	prog_msg_set_look(mt_win, mt_look, NULL);
	rank_barrier();
	for (i = 0; i < MT_THREADS; i++)
		CHECK_INT(pthread_create(&th[i], NULL, mt_main, (void *)i), 0);
	for (i = 0; i < MT_THREADS; i++)
		pthread_join(th[i], NULL);
	rank_finish(mt_session, mt_win);
}

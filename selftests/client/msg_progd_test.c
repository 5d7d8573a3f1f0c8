// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Two-sided messages of libprogclient and progd together, without MPI: one node with a private daemon, and two
 * nodes that are two daemons on this host.
 *
 *	rank 0, 2 --- progd A <== TCP 127.0.0.1 ==> progd B --- rank 1, 3
 *
 * MSG_SEED=N repeats the random messages of an earlier run.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <kit/fake.h>
#include <kit/msg_bodies.h>
#include <kit/progd.h>
#include <libprogbase/dtype.h>
#include <libprogbase/futex.h>
#include <wire/optype.h>

#define BIG	(8u << 20)

/* @b_workers: of progd B; progd A has @workers. */
static void on_two_uneven(void (*body)(void), uint32_t ranks, const char *workers, const char *b_workers,
			  const char *loop, const char *more)
{
	rank_flags = 0;
	if (!run_ranks_on_two(ranks, body, workers, b_workers, loop, more))
		fail_msg("%u ranks on two nodes, %s and %s workers, %s, %s", ranks, workers, b_workers, loop,
			 more);
}

static void on_two_with(void (*body)(void), uint32_t ranks, const char *workers, const char *loop,
			const char *more)
{
	on_two_uneven(body, ranks, workers, workers, loop, more);
}

static void on_two(void (*body)(void), uint32_t ranks)
{
	on_two_with(body, ranks, "2", "auto", NULL);
}

static void on_one(void (*body)(void), uint32_t ranks)
{
	rank_flags = PROG_SESSION_EMBEDDED;
	if (!run_ranks(ranks, body))
		fail_msg("%u ranks, private daemon", ranks);
}

static void test_one_random(void **state)
{
	on_one(body_msg_random, 3);
}

static void test_two_random(void **state)
{
	on_two_with(body_msg_random, 2, "1", "auto", NULL);
	on_two_with(body_msg_random, 3, "2", "epoll", NULL);
}

/* By the helper threads, which are slower. */
static void test_two_random_nocma(void **state)
{
	uint32_t count = msg_count;

	msg_count = KIT_MANY(15);
	on_two_with(body_msg_random, 2, "1", "auto", "cma=no");
	msg_count = count;
}

/* Nearly all messages that come before their receives are refused at first, and announced again. */
static void test_two_random_quota(void **state)
{
	uint32_t count = msg_count;

	msg_count = KIT_MANY(15);
	on_two_with(body_msg_random, 3, "1", "auto", "quota_messages=1");
	msg_count = count;
}

static void test_one_threads(void **state)
{
	on_one(body_msg_threads, 2);
}

static void test_two_threads(void **state)
{
	on_two_with(body_msg_threads, 2, "1", "auto", NULL);
	on_two_with(body_msg_threads, 2, "3", "auto", "cma=no");
}

/* ---- small pieces ---------------------------------------------------------------------------------- */

static struct prog_session *ses;
static struct prog_win *win;

static void space_open(void)
{
	ses = rank_session(NULL);
	win = msg_space(ses);
}

static struct prog_msg_key key_of(uint32_t src, uint32_t dst, int32_t tag, uint64_t ord)
{
	return (struct prog_msg_key){ .comm = 3, .src = src, .dst = dst, .tag = tag, .ord = ord };
}

static prog_msg *send_to(uint32_t dst, int32_t tag, uint64_t ord, void *buf, uint64_t n,
			 struct prog_msg_id *name)
{
	struct prog_msg_key key = key_of(my_rank, dst, tag, ord);
	struct prog_buf b = { .addr = buf, .count = n };
	struct prog_msg_id unused;
	prog_msg *m;

	CHECK_INT(prog_msg_send(win, &key, &b, 0, name ? name : &unused, &m), 0);
	return m;
}

static prog_msg *recv_from(uint32_t src, int32_t tag, uint64_t ord, void *buf, uint64_t n, unsigned int flags)
{
	struct prog_msg_key key = key_of(src, my_rank, tag, ord);
	struct prog_buf b = { .addr = buf, .count = n };
	prog_msg *m;

	CHECK_INT(prog_msg_recv(win, &key, &b, flags, &m), 0);
	return m;
}

static prog_msg *recv_name(const struct prog_msg_id *name, void *buf, uint64_t n, bool whole)
{
	struct prog_buf b = { .addr = buf, .count = n };
	prog_msg *m;

	CHECK_INT(prog_msg_recv_by_id(win, name, &b, whole, 0, &m), 0);
	return m;
}

static int32_t ended(prog_msg *m)
{
	struct prog_msg_result r;

	CHECK_INT(prog_msg_wait(win, m, &r), 0);
	prog_msg_free(win, m);
	return r.status;
}

/* The payload of message @ord of a tag, and whether @buf holds it but for the head. */
static void make(char *buf, uint64_t n, int32_t tag, uint64_t ord)
{
	fill_random(buf, n, dice_for(5, (uint64_t)tag, ord, n));
}

static void expect_made(const char *buf, uint64_t from, uint64_t n, int32_t tag, uint64_t ord)
{
	char *want = malloc(n);

	make(want, n, tag, ord);
	expect_same(buf + from, want + from, n - from, "payload");
	free(want);
}

static void pause_ms(long ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

/* ---- while nobody is in a call ------------------------------------------------------------------------- */

/* Announced: all but the head arrives in memory that both sides only look at; the sender is done, too. */
static void body_away(void)
{
	char *buf = malloc(BIG);
	volatile char *last = buf + BIG - 1;
	int32_t round;

	space_open();
	for (round = 0; round < 6; round++) {
		prog_msg *m = NULL;

		/* announced before the send, or some time after it */
		memset(buf, 0, BIG);
		if (my_rank) {
			if (round % 2) {
				rank_barrier();
				pause_ms(20);
			}
			m = recv_from(0, round, 0, buf, BIG, 0);
			if (round % 2 == 0)
				rank_barrier();
			while (!*last)
				sched_yield();
		} else {
			make(buf, BIG, round, 0);
			buf[BIG - 1] = 1;
			if (round % 2 == 0)
				rank_barrier();
			m = send_to(1, round, 0, buf, BIG, NULL);
			if (round % 2)
				rank_barrier();
		}
		rank_barrier();
		if (my_rank) {
			struct prog_msg_result r;
			const void *head;

			CHECK_INT(prog_msg_wait(win, m, &r), 0);
			CHECK_INT(r.status, 0);
			CHECK_INT(r.moved, BIG);
			CHECK_INT(prog_msg_head(win, m, &head), MSG_HEAD);
			prog_msg_free(win, m);
		} else {
			CHECK_INT(ended(m), 0);
		}
		rank_barrier();
	}
	free(buf);
	rank_finish(ses, win);
}

static void test_one_away(void **state)
{
	on_one(body_away, 2);
}

static void test_two_away(void **state)
{
	on_two(body_away, 2);
}

/* The SEND comes to another worker than the one that takes the receiver's RECVs, which may sleep. */
static void test_uneven_away(void **state)
{
	on_two_uneven(body_away, 2, "1", "3", "auto", NULL);
	on_two_uneven(body_away, 2, "3", "2", "auto", NULL);
}

static void test_uneven_random(void **state)
{
	on_two_uneven(body_msg_random, 3, "3", "1", "auto", NULL);
	on_two_uneven(body_msg_random, 4, "2", "3", "auto", "p2p_eager=256K");
}

/* Not announced: the helper thread finds the message, while the receiver's own thread sleeps elsewhere. */
struct look_for {
	struct prog_msg_id name;
	uint32_t full;
};

static char *look_buf;
static prog_msg *look_found;

static void look(void *arg)
{
	struct look_for *lf = (struct look_for *)(void *)rs->data;

	if (!look_found && __atomic_load_n(&lf->full, __ATOMIC_ACQUIRE))
		look_found = recv_name(&lf->name, look_buf, 1u << 20, false);
}

static void body_look(void)
{
	struct look_for *lf = (struct look_for *)(void *)rs->data;

	space_open();
	look_buf = malloc(1u << 20);
	if (my_rank) {
		prog_msg_set_look(win, look, NULL);
		prog_msg_candidates(win, 1);
		rank_barrier();
		/* until the sender is done, which needs our helper thread only */
		rank_barrier();
		prog_msg_candidates(win, 0);
		prog_msg_set_look(win, NULL, NULL);
		CHECK(look_found);
		CHECK_INT(ended(look_found), 0);
		expect_made(look_buf, MSG_HEAD, 1u << 20, 1, 1);
	} else {
		prog_msg *m;

		make(look_buf, 1u << 20, 1, 1);
		rank_barrier();
		m = send_to(1, 1, 1, look_buf, 1u << 20, &lf->name);
		__atomic_store_n(&lf->full, 1, __ATOMIC_RELEASE);
		CHECK_INT(ended(m), 0);
		rank_barrier();
	}
	rank_barrier();
	free(look_buf);
	rank_finish(ses, win);
}

static void test_one_look(void **state)
{
	on_one(body_look, 2);
}

static void test_two_look(void **state)
{
	on_two(body_look, 2);
}

/* ---- before it is received ------------------------------------------------------------------------------ */

#define EARLY_LEN	(256u << 10)

/*
 * The receiver is away when messages come; once both sides have said so for a while, they are taken to its memory
 * before it receives them, and the sender is done.
 */
static void body_eager(void)
{
	uint32_t *done = &((uint32_t *)(void *)rs->data)[0], round, eager = 0;
	char *buf = malloc(EARLY_LEN);
	uint64_t away = 5000000;

	space_open();
	for (round = 0; round < 300 && eager < 10; round++) {
		struct prog_msg_key key = key_of(0, 1, 1, round);
		struct prog_buf b = { .addr = buf, .count = EARLY_LEN };
		struct prog_msg_id name;
		prog_msg *m;

		rank_barrier();
		if (!my_rank) {
			make(buf, EARLY_LEN, 1, round);
			CHECK_INT(prog_msg_send(win, &key, &b, PROG_MSGF_EAGER, &name, &m), 0);
			/* the receive comes when this is over */
			pause_ms(1);
			*done = (uint32_t)prog_msg_test(win, m, NULL);
			rank_barrier();
			CHECK_INT(ended(m), 0);
		} else {
			rank_barrier();
			m = recv_from(0, 1, round, buf, EARLY_LEN, 0);
			CHECK_INT(ended(m), 0);
			expect_made(buf, MSG_HEAD, EARLY_LEN, 1, round);
		}
		eager += *done;
		prog_msg_account(win, 1 - my_rank, !my_rank, EARLY_LEN, away);
	}
	CHECK_INT(eager, 10);
	if (!my_rank)
		printf("# eager from message %u on, about\n", round - 10);
	fflush(stdout);
	free(buf);
	rank_finish(ses, win);
}

static void test_two_eager(void **state)
{
	on_two(body_eager, 2);
}

/* ---- withdrawing while messages arrive --------------------------------------------------------------------- */

#define RACE_MSGS	8u
#define RACE_LEN	40000u

/*
 * A channel's receives are announced; from a random one on they are taken back while the sends arrive.
 * Either all of them are cancelled, and the messages are received by name, or none.  No message is lost, none
 * arrives twice.
 */
static void body_race(void)
{
	static const char zeros[RACE_LEN];
	struct prog_msg_id *names = (struct prog_msg_id *)(void *)rs->data;
	struct dice d = dice_for(rs->value[63], my_rank, 3, 4);
	uint32_t round, i, cancelled = 0, refused = 0;
	char *buf = malloc(RACE_MSGS * RACE_LEN);
	prog_msg *m[RACE_MSGS];

	space_open();
	for (round = 0; round < 300; round++) {
		int32_t tag = (int32_t)round;

		rank_barrier();
		if (!my_rank) {
			for (i = 0; i < RACE_MSGS; i++) {
				uint32_t spin = (uint32_t)dice_roll(&d, 3000);

				make(buf + i * RACE_LEN, RACE_LEN, tag, i);
				while (spin--)
					cpu_relax();
				m[i] = send_to(1, tag, i, buf + i * RACE_LEN, RACE_LEN, &names[i]);
			}
			rank_barrier();
			for (i = 0; i < RACE_MSGS; i++)
				CHECK_INT(ended(m[i]), 0);
		} else {
			uint32_t from = (uint32_t)dice_roll(&d, RACE_MSGS), spin = (uint32_t)dice_roll(&d, 40000);
			struct prog_msg_result r;
			int err;

			memset(buf, 0, RACE_MSGS * RACE_LEN);
			for (i = 0; i < RACE_MSGS; i++)
				m[i] = recv_from(0, tag, i, buf + i * RACE_LEN, RACE_LEN, 0);
			while (spin--)
				cpu_relax();
			err = prog_msg_withdraw(win, m[from]);
			CHECK(!err || err == -EBUSY);
			if (err)
				refused++;
			else
				cancelled++;
			/* all names are known */
			rank_barrier();
			for (i = 0; i < RACE_MSGS; i++) {
				if (!err && i >= from) {
					CHECK_INT(prog_msg_test(win, m[i], &r), 1);
					CHECK_INT(r.status, -ECANCELED);
					prog_msg_free(win, m[i]);
					expect_same(buf + i * RACE_LEN, zeros, RACE_LEN, "cancelled");
					m[i] = recv_name(&names[i], buf + i * RACE_LEN, RACE_LEN, i % 2);
				}
				CHECK_INT(ended(m[i]), 0);
				expect_made(buf + i * RACE_LEN, MSG_HEAD, RACE_LEN, tag, i);
			}
		}
	}
	if (my_rank)
		printf("# withdrawn %u, refused %u\n", cancelled, refused);
	fflush(stdout);
	rank_barrier();
	free(buf);
	rank_finish(ses, win);
}

static void test_one_race(void **state)
{
	on_one(body_race, 2);
}

static void test_two_race(void **state)
{
	on_two(body_race, 2);
}

/* ---- as many as there are slots ------------------------------------------------------------------------------- */

static void body_full(void)
{
	prog_msg *m[PROG_MSG_MOST];
	struct prog_msg_id name;
	uint32_t round, i;
	char *buf = calloc(PROG_MSG_MOST, 64);

	space_open();
	for (round = 0; round < 4; round++) {
		struct prog_msg_key key = key_of(0, 1, 1, 9999);
		struct prog_buf b = { .addr = buf, .count = 64 };

		/* no receive yet, or no send */
		if (my_rank != round % 2)
			rank_barrier();
		for (i = 0; i < PROG_MSG_MOST; i++) {
			uint64_t ord = round * PROG_MSG_MOST + (my_rank ? i : PROG_MSG_MOST - 1 - i);

			m[i] = my_rank ? recv_from(0, 1, ord, buf + 64 * i, 64, 0) :
					 send_to(1, 1, ord, buf + 64 * i, 64, NULL);
		}
		if (my_rank == round % 2) {
			prog_msg *none;

			CHECK_INT(my_rank ? prog_msg_recv(win, &key, &b, 0, &none) :
				  prog_msg_send(win, &key, &b, 0, &name, &none), -EAGAIN);
			rank_barrier();
		}
		for (i = 0; i < PROG_MSG_MOST; i++)
			CHECK_INT(ended(m[i]), 0);
		rank_barrier();
	}
	free(buf);
	rank_finish(ses, win);
}

static void test_one_full(void **state)
{
	on_one(body_full, 2);
}

static void test_two_full(void **state)
{
	on_two(body_full, 2);
}

/* ---- somebody dies ------------------------------------------------------------------------------------------------ */

#define DEATH_MSGS	8u

/* Not a death of the test: others are not told by exit status. */
static void die_now(void)
{
	_exit(0);
}

/* The last of three ranks is dead: the first two send to each other. */
static void others_go_on(void)
{
	char in[500], out[500];
	prog_msg *r, *s;

	if (my_ranks != 3)
		return;
	my_ranks = 2;
	make(out, sizeof(out), 2, my_rank);
	rank_barrier();
	r = recv_from(1 - my_rank, 2, 0, in, sizeof(in), 0);
	s = send_to(1 - my_rank, 2, 0, out, sizeof(out), NULL);
	CHECK_INT(ended(r), 0);
	CHECK_INT(ended(s), 0);
	expect_made(in, MSG_HEAD, sizeof(in), 2, 1 - my_rank);
	rank_barrier();
}

/* What is under way from a rank that dies ends, well or not; what it had finished is right. */
static void body_sender_dies(void)
{
	struct prog_msg_id *names = (struct prog_msg_id *)(void *)rs->data;
	char *buf = malloc((size_t)BIG * DEATH_MSGS);
	uint32_t victim = my_ranks - 1, i, good = 0;
	prog_msg *m[DEATH_MSGS];

	space_open();
	if (my_rank == victim) {
		rank_barrier();
		for (i = 0; i < DEATH_MSGS; i++) {
			make(buf + (size_t)i * BIG, BIG, 1, i);
			m[i] = send_to(0, 1, i, buf + (size_t)i * BIG, BIG, &names[i]);
		}
		rank_barrier();
		CHECK_INT(ended(m[0]), 0);
		rs->value[0] = 1;
		die_now();
	}
	if (!my_rank)
		for (i = 0; i < DEATH_MSGS / 2; i++)
			m[i] = recv_from(victim, 1, i, buf + (size_t)i * BIG, BIG, 0);
	rank_barrier();
	rank_barrier();
	if (!my_rank) {
		for (; i < DEATH_MSGS; i++)
			m[i] = recv_name(&names[i], buf + (size_t)i * BIG, BIG, false);
		for (i = 0; i < DEATH_MSGS; i++) {
			int32_t st = ended(m[i]);

			CHECK(st <= 0);
			if (st)
				continue;
			good++;
			expect_made(buf + (size_t)i * BIG, MSG_HEAD, BIG, 1, i);
		}
		CHECK(good);
		/* what names a message of the dead is refused */
		while (!rs->value[0] || good)
			good = ended(recv_name(&names[7], buf, BIG, false)) == 0;
		CHECK(prog_session_alive(ses));
	}
	others_go_on();
	prog_win_close(win);
	prog_session_close(ses);
	free(buf);
}

static void test_one_sender_dies(void **state)
{
	on_one(body_sender_dies, 3);
}

static void test_two_sender_dies(void **state)
{
	on_two(body_sender_dies, 2);
	on_two(body_sender_dies, 3);
}

/* What is under way to a rank that dies ends; its other receivers get their messages. */
static void body_receiver_dies(void)
{
	char *buf = malloc((size_t)BIG * DEATH_MSGS);
	uint32_t victim = my_ranks - 1, i;
	prog_msg *m[DEATH_MSGS];

	space_open();
	if (my_rank == victim) {
		for (i = 0; i < DEATH_MSGS; i++)
			m[i] = recv_from(0, 1, i, buf + (size_t)i * BIG, BIG, 0);
		rank_barrier();
		CHECK_INT(ended(m[0]), 0);
		die_now();
	}
	rank_barrier();
	if (!my_rank) {
		for (i = 0; i < DEATH_MSGS; i++)
			m[i] = send_to(victim, 1, i, buf, BIG, NULL);
		CHECK_INT(ended(m[0]), 0);
		for (i = 1; i < DEATH_MSGS; i++)
			CHECK(ended(m[i]) <= 0);
		/* one that is never received does not keep us */
		prog_msg_free(win, send_to(victim, 2, 0, buf, BIG, NULL));
	}
	others_go_on();
	prog_win_close(win);
	prog_session_close(ses);
	free(buf);
}

static void test_one_receiver_dies(void **state)
{
	on_one(body_receiver_dies, 3);
}

static void test_two_receiver_dies(void **state)
{
	on_two(body_receiver_dies, 2);
	on_two(body_receiver_dies, 3);
}

/* The daemon of rank 1 is killed while messages go both ways. */
static void body_daemon_dies(void)
{
	struct prog_msg_id *names = (struct prog_msg_id *)(void *)rs->data, *mine = names + my_rank * DEATH_MSGS;
	char *out = malloc((size_t)BIG), *in = malloc((size_t)BIG * DEATH_MSGS);
	prog_msg *s[DEATH_MSGS], *r[DEATH_MSGS];
	uint32_t peer = 1 - my_rank, i;
	int res;

	space_open();
	make(out, BIG, 1, 0);
	for (i = 0; i < DEATH_MSGS; i++)
		r[i] = i % 2 ? NULL : recv_from(peer, 1, i, in + (size_t)i * BIG, BIG, 0);
	rank_barrier();
	for (i = 0; i < DEATH_MSGS; i++)
		s[i] = send_to(peer, 1, i, out, BIG, &mine[i]);
	rank_barrier();
	for (i = 1; i < DEATH_MSGS; i += 2)
		r[i] = recv_name(&names[peer * DEATH_MSGS + i], in + (size_t)i * BIG, BIG, false);
	while (!(res = prog_msg_test(win, r[0], NULL)))
		prog_session_wait(ses, 1000000);
	CHECK_INT(res, 1);
	rank_barrier();
	if (my_rank)
		kill((pid_t)rs->value[9], SIGKILL);
	for (i = 0; i < DEATH_MSGS; i++) {
		struct prog_msg_result rr = { 0 }, sr = { 0 };
		int re = prog_msg_wait(win, r[i], &rr), se = prog_msg_wait(win, s[i], &sr);

		if (my_rank) {
			CHECK(re == 0 || re == -ECONNRESET);
			CHECK(se == 0 || se == -ECONNRESET);
		} else {
			CHECK_INT(re, 0);
			CHECK_INT(se, 0);
		}
		CHECK(rr.status <= 0 && sr.status <= 0);
		if (!re && !rr.status)
			expect_same(in + (size_t)i * BIG + MSG_HEAD, out + MSG_HEAD, BIG - MSG_HEAD, "payload");
		prog_msg_free(win, r[i]);
		prog_msg_free(win, s[i]);
	}
	/* all may have been over before it was dead */
	while (my_rank && prog_session_alive(ses))
		sched_yield();
	CHECK_INT(prog_session_alive(ses), !my_rank);
	prog_win_close(win);
	prog_session_close(ses);
	free(out);
	free(in);
}

/* Rank 1 is to kill its daemon. */
static void on_two_dying(void (*body)(void), const char *more)
{
	rank_flags = 0;
	assert_true(run_ranks_killing(body, more));
}

static void test_two_daemon_dies(void **state)
{
	on_two_dying(body_daemon_dies, NULL);
}

/* What was in the pool of a session that loses its daemon, and nothing else. */
static void body_rescue(void)
{
	enum { N = 3 };
	static const uint64_t len[N] = { 100000, BIG / 2, 50000 };
	struct prog_msg_id *names = (struct prog_msg_id *)(void *)rs->data, bad;
	char *buf = malloc(BIG);
	void *copy;

	space_open();
	for (uint32_t i = 0; !my_rank && i < N; i++) {
		struct prog_msg_key key = key_of(0, 1, 1, i);
		struct prog_buf b = { .addr = buf, .count = len[i] };
		prog_msg *m;

		make(buf, len[i], 1, i);
		CHECK_INT(prog_msg_send(win, &key, &b, PROG_MSGF_EAGER, &names[i], &m), 0);
		CHECK_INT(ended(m), 0);
	}
	rank_barrier();
	if (my_rank) {
		CHECK_INT(ended(recv_name(&names[2], buf, len[2], false)), 0);
		CHECK_INT(prog_msg_rescue(win, &names[0], &copy), -EINVAL);
		CHECK(!copy);
		kill((pid_t)rs->value[9], SIGKILL);
		while (prog_session_alive(ses))
			sched_yield();
		for (uint32_t i = 0; i < 2; i++) {
			CHECK_INT(prog_msg_rescue(win, &names[i], &copy), 0);
			expect_made(copy, 0, len[i], 1, i);
			free(copy);
		}
		CHECK_INT(prog_msg_rescue(win, &names[2], &copy), -ENOENT);
		bad = names[0];
		bad.serial++;
		CHECK_INT(prog_msg_rescue(win, &bad, &copy), -ENOENT);
		bad = names[0];
		bad.len++;
		CHECK_INT(prog_msg_rescue(win, &bad, &copy), -ENOENT);
		bad = names[0];
		bad.src = 1;
		CHECK_INT(prog_msg_rescue(win, &bad, &copy), -ENOENT);
		bad.serial = 0;
		CHECK_INT(prog_msg_rescue(win, &bad, &copy), -EINVAL);
		CHECK(!copy);
	}
	prog_win_close(win);
	prog_session_close(ses);
	free(buf);
}

static void test_two_rescue(void **state)
{
	on_two_dying(body_rescue, "p2p_eager=8M");
}

/* ---- it can be off ------------------------------------------------------------------------------------------------- */

/* The thresholds say so, and may say something else later; what is sent all the same moves. */
static void body_off(void)
{
	char buf[2000] = "";
	prog_msg *m;

	space_open();
	CHECK(prog_msg_threshold(win, 0) == UINT64_MAX);
	CHECK(prog_msg_threshold(win, 1) == UINT64_MAX);
	m = recv_from(1 - my_rank, 1, 0, buf, 1000, 0);
	CHECK_INT(ended(send_to(1 - my_rank, 1, 0, buf + 1000, 1000, NULL)), 0);
	CHECK_INT(ended(m), 0);
	rank_finish(ses, win);
}

static void test_two_off(void **state)
{
	on_two_with(body_off, 2, "1", "auto", "two_sided=no");
}

/* ---- receivers that wait ------------------------------------------------------------------------------------------ */

static bool told;		/* ranks of one node learn of each other whether they wait */

static void body_waits(void)
{
	uint32_t peer = 1 - my_rank;

	space_open();
	/* where CMA is forbidden nobody can ask */
	told = told && prog_msg_same_node(win, peer);
	CHECK(!prog_msg_leave(win, peer));
	rank_barrier();
	if (!my_rank) {
		prog_msg_set_blocking(win, 1, true);
		prog_msg_set_blocking(win, 99, true);
	}
	rank_barrier();
	CHECK_INT(prog_msg_leave(win, peer), my_rank && told);
	CHECK(!prog_msg_leave(win, my_rank));
	CHECK(!prog_msg_leave(win, 99));
	rank_barrier();
	if (!my_rank)
		prog_msg_set_blocking(win, 1, false);
	rank_barrier();
	CHECK(!prog_msg_leave(win, peer));
	rank_finish(ses, win);
}

static bool always;		/* nothing is left all the same */

/* Between nodes the end of a message tells; one of four is not left. */
static void body_far_waits(void)
{
	char buf[4096];
	int i, n;

	space_open();
	for (uint64_t ord = 0; ord < 6; ord++) {
		bool yes = ord % 3 != 2;

		if (my_rank)
			prog_msg_set_blocking(win, 0, yes);
		rank_barrier();
		if (my_rank)
			CHECK_INT(ended(recv_from(0, 1, ord, buf, sizeof(buf), PROG_MSGF_URGENT)), 0);
		else
			CHECK_INT(ended(send_to(1, 1, ord, buf, sizeof(buf), NULL)), 0);
		for (i = n = 0; i < 40; i++)
			n += prog_msg_leave(win, 1 - my_rank);
		CHECK_INT(n, !my_rank && yes && !always ? 30 : 0);
		rank_barrier();
	}
	rank_finish(ses, win);
}

static void test_one_waits(void **state)
{
	told = true;
	on_one(body_waits, 2);
}

static void test_one_waits_always(void **state)
{
	bool ok;

	told = false;
	rank_flags = 0;
	start_daemon(0, "1", "auto", "p2p_waiting=always");
	rank_paths = 1;
	ok = run_ranks(2, body_waits);
	rank_paths = 0;
	stop_daemon(0);
	assert_true(ok);
}

static void test_two_waits(void **state)
{
	told = false;
	on_two(body_waits, 2);
	always = false;
	on_two(body_far_waits, 2);
	always = true;
	on_two_with(body_far_waits, 2, "1", "auto", "p2p_waiting=always");
}

/* ---- beside one-sided operations ---------------------------------------------------------------------- */

enum { BESIDE = 1 << 20, BESIDE_PUTS = 16, BESIDE_AHEAD = 8, BESIDE_MSGS = 48, BESIDE_MOST = 8 * BESIDE_PUTS };

/* A stream of puts to rank 1: as many under way as go, and how many have been applied. */
struct stream {
	struct prog_win *w;
	char *buf;
	uint64_t seq[BESIDE_PUTS], issued, applied;
};

static void stream_put(struct stream *st)
{
	struct prog_buf b = { .addr = st->buf, .count = BESIDE };
	struct prog_dst d = { .rank = 1, .count = BESIDE };

	CHECK_INT(prog_put(st->w, &b, &d, 0, &st->seq[st->issued++ % BESIDE_PUTS]), 0);
}

static bool stream_look(struct stream *st)
{
	bool any = false;

	while (st->applied < st->issued && prog_test(st->w, 1, st->seq[st->applied % BESIDE_PUTS], true) == 1) {
		st->applied++;
		any = true;
	}
	return any;
}

/*
 * One lane carries both: a message ends although puts never do, and a put although messages do not.  How many overtake
 * it is the scheduler's affair as well: the sender's process is stopped for as long as it likes, and what it finds then
 * has all been in time.  So puts count that it posted since the message.  The lane back, which asks for the payload, takes as
 * long to be made as the processors are busy: a message makes it before.
 */
static void body_beside(void)
{
	char *buf = malloc(BESIDE), *in = malloc((size_t)BESIDE_AHEAD * BESIDE), *mem = NULL;
	struct prog_msg_result res;
	prog_msg *m[BESIDE_AHEAD];
	uint64_t ord, most = 0, base;
	struct stream st = { .buf = buf };

	space_open();
	st.w = rank_window(ses, PROG_WIN_ALLOCATE, 77, mem, BESIDE);
	memset(buf, 1, BESIDE);
	m[0] = my_rank ? recv_from(0, 0, 0, in, BESIDE, 0) : send_to(1, 0, 0, buf, BESIDE, NULL);
	CHECK_INT(ended(m[0]), 0);
	/* all before the first message: nothing waits for the receiver's process */
	for (ord = 0; my_rank && ord < BESIDE_AHEAD; ord++)
		m[ord] = recv_from(0, 1, ord, in + (size_t)ord * BESIDE, BESIDE, 0);
	rank_barrier();
	for (ord = 0; ord < BESIDE_AHEAD; ord++) {
		if (my_rank) {
			CHECK_INT(ended(m[ord]), 0);
			continue;
		}
		m[0] = send_to(1, 1, ord, buf, BESIDE, NULL);
		base = st.issued;
		while (!prog_msg_test(win, m[0], &res)) {
			while (st.issued - st.applied < BESIDE_PUTS)
				stream_put(&st);
			if (!stream_look(&st))
				prog_session_wait(ses, 1000000);
			if (st.issued - base > BESIDE_MOST)
				break;
		}
		if (st.issued - base > most)
			most = st.issued - base;
		CHECK(st.issued - base <= BESIDE_MOST);
		CHECK_INT(ended(m[0]), 0);
	}
	if (!my_rank) {
		printf("# a message was overtaken by at most %llu puts of its size\n", (unsigned long long)most);
		CHECK(most > 0);
		CHECK_INT(prog_flush_all(st.w), 0);
		stream_look(&st);
	}
	rank_barrier();

	base = most = 0;
	for (ord = 0; ord < BESIDE_MSGS + BESIDE_AHEAD; ord++) {
		unsigned int k = ord % BESIDE_AHEAD;

		if (ord >= BESIDE_AHEAD)
			CHECK_INT(ended(m[k]), 0);
		if (ord < BESIDE_MSGS)
			m[k] = my_rank ? recv_from(0, 2, ord, in + (size_t)k * BESIDE, BESIDE, 0) :
					 send_to(1, 2, ord, buf, BESIDE, NULL);
		if (my_rank || ord >= BESIDE_MSGS)
			continue;
		if (stream_look(&st) || !ord) {
			if (ord - base > most)
				most = ord - base;
			base = ord;
			stream_put(&st);
		}
	}
	if (!my_rank) {
		printf("# a put was overtaken by at most %llu messages of its size\n", (unsigned long long)most);
		CHECK(most > 0 && most < BESIDE_MSGS / 2);
		CHECK_INT(prog_flush_all(st.w), 0);
	}
	rank_barrier();
	prog_win_close(st.w);
	rank_finish(ses, win);
	free(in);
	free(buf);
}

static void test_two_beside(void **state)
{
	on_two_with(body_beside, 2, "1", "auto", NULL);
	on_two_with(body_beside, 2, "1", "epoll", NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_one_random),
	cmocka_unit_test(test_two_random),
	cmocka_unit_test(test_two_random_nocma),
	cmocka_unit_test(test_two_random_quota),
	cmocka_unit_test(test_one_threads),
	cmocka_unit_test(test_two_threads),
	cmocka_unit_test(test_one_away),
	cmocka_unit_test(test_two_away),
	cmocka_unit_test(test_uneven_away),
	cmocka_unit_test(test_uneven_random),
	cmocka_unit_test(test_one_look),
	cmocka_unit_test(test_two_look),
	cmocka_unit_test(test_two_eager),
	cmocka_unit_test(test_one_race),
	cmocka_unit_test(test_two_race),
	cmocka_unit_test(test_one_full),
	cmocka_unit_test(test_two_full),
	cmocka_unit_test(test_one_sender_dies),
	cmocka_unit_test(test_two_sender_dies),
	cmocka_unit_test(test_one_receiver_dies),
	cmocka_unit_test(test_two_receiver_dies),
	cmocka_unit_test(test_two_daemon_dies),
	cmocka_unit_test(test_two_rescue),
	cmocka_unit_test(test_two_off),
	cmocka_unit_test(test_one_waits),
	cmocka_unit_test(test_one_waits_always),
	cmocka_unit_test(test_two_waits),
	cmocka_unit_test(test_two_beside),
};

KIT_SUITE(tests, .begin = find_progd);

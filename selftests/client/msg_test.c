// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Two-sided messages of libprogclient against a double of the daemon: every function and error, slots and
 * rings that fill and wrap, all answers to a withdrawal, looking, threads, fork, the daemon's death.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <kit/fake.h>
#include <kit/msg_bodies.h>
#include <libprogbase/dtype.h>
#include <wire/optype.h>

static uint32_t pass;			/* PROG_HELP_PULL or _PUSH, or 0 */
static uint32_t passes;			/* messages that were copied so */

static void run(uint32_t ranks, uint32_t nodes, uint32_t workers, bool cma, void (*body)(void))
{
	bool ok;

	fake_start(nodes, workers, cma);
	fk->pass = pass;
	fk->offload = 65536;
	fk->offload_min = 4096;
	ok = run_ranks(ranks, body);
	passes += fk->passes;
	fake_stop();
	if (!ok)
		fail_msg("ranks failed: %u ranks, %u nodes, %u workers, cma %d", ranks, nodes, workers, cma);
}

static void test_random(void **state)
{
	msg_max = 1u << 20;
	run(3, 1, 1, true, body_msg_random);
	run(3, 3, 2, true, body_msg_random);
	msg_count = KIT_MANY(12);
	run(2, 2, 1, false, body_msg_random);
}

/* The payload is copied by the receivers' helper threads, then by the senders', from process to process. */
static void test_passed(void **state)
{
	msg_max = 1u << 20;
	msg_count = KIT_MANY(40);
	for (pass = PROG_HELP_PULL; pass <= PROG_HELP_PUSH; pass++) {
		passes = 0;
		run(3, 1, 1, true, body_msg_random);
		run(2, 1, 2, false, body_msg_random);
		assert_true(passes > 0);
	}
	pass = 0;
}

/* ---- one process, messages to itself ---------------------------------------------------------------- */

static struct prog_session *self_s;
static struct prog_win *self_w;

static void self_open(unsigned int flags)
{
	struct prog_session_cfg cfg = { .flags = flags };

	self_s = rank_session(&cfg);
	self_w = msg_space(self_s);
}

static void self_close(void)
{
	prog_win_close(self_w);
	prog_session_close(self_s);
}

static struct prog_msg_key self_key(int32_t tag, uint64_t ord)
{
	return (struct prog_msg_key){ .comm = 1, .tag = tag, .ord = ord };
}

static prog_msg *self_send(int32_t tag, uint64_t ord, const void *buf, uint64_t n, struct prog_msg_id *name)
{
	struct prog_msg_key key = self_key(tag, ord);
	struct prog_buf b = { .addr = (void *)(uintptr_t)buf, .count = n };
	struct prog_msg_id unused;
	prog_msg *m;

	CHECK_INT(prog_msg_send(self_w, &key, &b, 0, name ? name : &unused, &m), 0);
	return m;
}

static prog_msg *self_recv(int32_t tag, uint64_t ord, void *buf, uint64_t n, unsigned int flags)
{
	struct prog_msg_key key = self_key(tag, ord);
	struct prog_buf b = { .addr = buf, .count = n };
	prog_msg *m;

	CHECK_INT(prog_msg_recv(self_w, &key, &b, flags, &m), 0);
	return m;
}

static int32_t ended(prog_msg *m)
{
	struct prog_msg_result r;

	CHECK_INT(prog_msg_wait(self_w, m, &r), 0);
	CHECK_INT(prog_msg_test(self_w, m, NULL), 1);
	prog_msg_free(self_w, m);
	return r.status;
}

static void until(const uint32_t *count, uint32_t value)
{
	while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < value)
		sched_yield();
}

/* ---- message contexts ---------------------------------------------------------------------------------- */

static void body_window(void)
{
	struct prog_win_cfg cfg = { .kind = PROG_WIN_MSG_CONTEXT, .key = 9, .nranks = 1 };
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w, *other;
	struct prog_endpoint ep;
	uint64_t v = 0;
	uint32_t zero = 0, counts = 7, i;
	struct prog_buf b = { .addr = &v, .count = 8 };
	struct prog_dst d = { .count = 8 };
	struct prog_msg_key key = { .comm = 1 };
	struct prog_msg_id name = { .serial = 1 };
	const char *why = "";
	prog_msg *m;

	/* closed and opened again, at every stage of opening */
	for (i = 0; i < 6; i++) {
		CHECK_INT(prog_win_open(s, &cfg, &w), 0);
		CHECK_INT(prog_win_open(s, &cfg, &other), -EEXIST);
		CHECK_INT(prog_msg_send(w, &key, &b, 0, &name, &m), -EINVAL);
		if (i > 0) {
			prog_win_endpoint(w, &ep);
			CHECK_INT(prog_win_connect(w, &ep, &why), 0);
			CHECK_INT(prog_msg_recv(w, &key, &b, 0, &m), -EINVAL);
		}
		if (i > 1)
			CHECK_INT(prog_win_map(w, NULL), 0);
		if (i > 2) {
			/* a message of the window before is not mixed up with this one's */
			CHECK_INT(prog_msg_recv(w, &key, &b, 0, &m), 0);
			CHECK_INT(prog_msg_test(w, m, NULL), 0);
		}
		if (i < 5)
			prog_win_close(w);
	}
	/* it has no memory, and no operation touches it */
	CHECK_INT(prog_win_size(w, 0), 0);
	CHECK(!prog_win_base(w));
	CHECK_INT(prog_put(w, &b, &d, 0, NULL), -EINVAL);
	CHECK_INT(prog_get(w, &b, &d, 0, NULL), -EINVAL);
	CHECK_INT(prog_accumulate(w, &b, NULL, &d, PROG_OP_SUM, PROG_TYPE_I64, 0, NULL), -EINVAL);
	CHECK_INT(prog_compare_and_swap(w, &v, &v, &v, 0, 0, PROG_TYPE_I64, 0), -EINVAL);
	CHECK_INT(prog_lock(w, 0, 0), -EINVAL);
	CHECK_INT(prog_unlock(w, 0), -EINVAL);
	CHECK_INT(prog_post(w, &zero, 1, NULL), -EINVAL);
	CHECK_INT(prog_complete(w, &zero, 1, NULL), -EINVAL);
	CHECK_INT(prog_flush(w, 0), -EINVAL);
	CHECK_INT(prog_flush_all(w), 0);
	prog_fence_issued(w, &counts);
	CHECK_INT(prog_win_attach(w, &v, 8), -EINVAL);
	CHECK_INT(prog_win_error(w, 0), -EINVAL);
	/* other windows beside it; and those carry no messages */
	cfg.kind = PROG_WIN_CREATE;
	cfg.key = 10;
	cfg.base = &v;
	cfg.size = 8;
	CHECK_INT(prog_win_open(s, &cfg, &other), 0);
	prog_win_endpoint(other, &ep);
	CHECK_INT(prog_win_connect(other, &ep, &why), 0);
	CHECK_INT(prog_win_map(other, NULL), 0);
	CHECK_INT(prog_msg_send(other, &key, &b, 0, &name, &m), -EINVAL);
	CHECK_INT(prog_msg_recv(other, &key, &b, 0, &m), -EINVAL);
	CHECK_INT(prog_msg_recv_by_id(other, &name, &b, true, 0, &m), -EINVAL);
	CHECK(prog_msg_threshold(other, 0) == UINT64_MAX);
	CHECK(prog_msg_min(other) == UINT64_MAX);
	prog_msg_candidates(other, 5);
	CHECK_INT(prog_put(other, &b, &d, 0, NULL), 0);
	/* with the session, whatever is under way */
	prog_session_close(s);
}

static void test_window(void **state)
{
	run(1, 1, 2, true, body_window);
}

static void body_old(void)
{
	struct prog_win_cfg cfg = { .kind = PROG_WIN_MSG_CONTEXT, .key = 9, .nranks = 1 };
	struct prog_session *s = rank_session(NULL);
	struct prog_msg_key key = { .comm = 1 };
	struct prog_endpoint ep;
	struct prog_win *w;
	const char *why = "";
	prog_msg *m;
	char c;
	struct prog_buf b = { .addr = &c, .count = 1 };

	if (fk->old) {
		CHECK_INT(prog_win_open(s, &cfg, &w), -EOPNOTSUPP);
		cfg.kind = PROG_WIN_CREATE;
		CHECK_INT(prog_win_open(s, &cfg, &w), 0);
		CHECK_INT(prog_msg_recv(w, &key, &b, 0, &m), -EOPNOTSUPP);
	} else {
		CHECK_INT(prog_win_open(s, &cfg, &w), 0);
		prog_win_endpoint(w, &ep);
		CHECK_INT(prog_win_connect(w, &ep, &why), -EPERM);
		CHECK(strstr(why, "two_sided is off"));
	}
	prog_win_close(w);
	CHECK(prog_session_alive(s));
	prog_session_close(s);
}

static void test_old(void **state)
{
	fake_start(1, 1, true);
	fk->old = 1;
	assert_true(run_ranks(1, body_old));
	fk->old = 0;
	fk->msg_off = 1;
	assert_true(run_ranks(1, body_old));
	fake_stop();
}

/* The region for eager messages: as large as asked for, announced, given back. */
static void body_pool(void)
{
	uint32_t before = fk->regions;

	self_open(0);
	CHECK_INT(fk->regions, before + 1);
	prog_win_close(self_w);
	self_w = msg_space(self_s);
	CHECK_INT(fk->regions, before + 2);
	/* refused: messages go all the same */
	prog_win_close(self_w);
	fk->fault_msg = PROG_CTRL_REGION_ADD;
	fk->fault = FAULT_REFUSE;
	self_w = msg_space(self_s);
	prog_msg_free(self_w, self_recv(0, 0, NULL, 0, 0));
	fk->fault_msg = 0;
	self_close();
}

static void test_pool(void **state)
{
	fake_start(1, 1, true);
	fk->pool = 1ull << 36;
	assert_true(run_ranks(1, body_pool));
	fake_stop();
}

/* ---- wrong calls --------------------------------------------------------------------------------------- */

static void body_errors(void)
{
	struct prog_msg_key key = self_key(0, 0);
	struct prog_msg_id name = { .serial = 1 };
	int64_t *lens = calloc(40000, sizeof(*lens)), *disps = calloc(40000, sizeof(*disps));
	struct prog_buf b = { .count = 8 };
	struct prog_msg_result r;
	struct dtype *byte, *many;
	unsigned int dice = 1;
	const void *head;
	prog_msg *m;
	uint64_t v;
	int i;

	self_open(0);
	b.addr = &v;
	key.dst = 1;
	CHECK_INT(prog_msg_send(self_w, &key, &b, 0, &name, &m), -EINVAL);
	CHECK_INT(prog_msg_recv(self_w, &key, &b, 0, &m), -EINVAL);
	key.dst = 0;
	key.src = 1;
	CHECK_INT(prog_msg_send(self_w, &key, &b, 0, &name, &m), -EINVAL);
	CHECK_INT(prog_msg_recv(self_w, &key, &b, 0, &m), -EINVAL);
	key.src = 0;
	CHECK_INT(prog_msg_send(self_w, &key, &b, PROG_MSGF_DROP, &name, &m), -EINVAL);
	CHECK_INT(prog_msg_recv(self_w, &key, &b, PROG_MSGF_SYNC, &m), -EINVAL);
	CHECK_INT(prog_msg_recv_by_id(self_w, &name, &b, true, PROG_MSGF_EAGER, &m), -EINVAL);
	name.src = 1;
	CHECK_INT(prog_msg_recv_by_id(self_w, &name, &b, true, 0, &m), -EINVAL);
	name = (struct prog_msg_id){ 0 };
	CHECK_INT(prog_msg_recv_by_id(self_w, &name, &b, true, 0, &m), -EINVAL);
	b.count = UINT64_MAX;
	CHECK_INT(prog_msg_recv(self_w, &key, &b, 0, &m), -EOVERFLOW);
	/* a program of 40000 blocks of different lengths */
	for (i = 0; i < 40000; i++) {
		lens[i] = 1 + rand_r(&dice) % 7;
		disps[i] = 16 * (int64_t)i + rand_r(&dice) % 8;
	}
	CHECK_INT(prog_dtype_new_basic(PROG_TYPE_BYTE, &byte), 0);
	CHECK_INT(prog_dtype_new_hindexed(40000, lens, disps, byte, &many), 0);
	CHECK(prog_dtype_encoded_size(many) > PROG_DTYPE_PROGRAM_MAX);
	b = (struct prog_buf){ .addr = lens, .type = many, .count = 1 };
	CHECK_INT(prog_msg_send(self_w, &key, &b, 0, &name, &m), -E2BIG);
	b.count = UINT64_MAX / 2;
	CHECK_INT(prog_msg_send(self_w, &key, &b, 0, &name, &m), -EOVERFLOW);
	prog_dtype_put(many);
	/* programs of 128 KiB: the arena has room for some */
	CHECK_INT(prog_dtype_new_hindexed(7000, lens, disps, byte, &many), 0);
	b.count = 1;
	b.type = many;
	fk->msg_hold = 1;
	{
		prog_msg *held[1024];
		int n = 0, res;

		while (!(res = prog_msg_recv(self_w, &key, &b, 0, &held[n]))) {
			key.ord++;
			CHECK(++n < 1000);
		}
		CHECK_INT(res, -EAGAIN);
		CHECK(n >= 16);
		/* contiguous ones need none */
		self_recv(8, 0, &v, 8, 0);
		for (i = 0; i < n; i++)
			prog_msg_free(self_w, held[i]);
		fk->msg_hold = 0;
		until(&fk->msg_ends, (uint32_t)n);
		/* what was withdrawn gives its room back */
		for (i = 0; i < n; i++) {
			CHECK_INT(prog_msg_recv(self_w, &key, &b, 0, &held[i]), 0);
			key.ord++;
		}
	}
	prog_dtype_put(many);
	prog_dtype_put(byte);
	/* a send cannot be withdrawn, a receive by id neither; what ended is refused */
	m = self_send(1, 0, &v, 8, &name);
	CHECK_INT(prog_msg_withdraw(self_w, m), -EINVAL);
	prog_msg_free(self_w, m);
	fk->msg_status = -EPERM;
	b = (struct prog_buf){ .addr = &v, .count = 8 };
	CHECK_INT(prog_msg_recv_by_id(self_w, &name, &b, true, 0, &m), 0);
	CHECK_INT(prog_msg_wait(self_w, m, &r), 0);
	CHECK_INT(r.status, -EPERM);
	CHECK_INT(prog_msg_withdraw(self_w, m), -EINVAL);
	prog_msg_free(self_w, m);
	/* statuses and lengths that the daemon may not give */
	fk->msg_status = 5;
	fk->msg_head_len = 100000;
	prog_msg_free(self_w, self_send(2, 0, &v, 8, NULL));
	m = self_recv(2, 0, &v, 8, PROG_MSGF_URGENT);
	CHECK_INT(prog_msg_wait(self_w, m, &r), 0);
	CHECK_INT(r.status, -EIO);
	CHECK(prog_msg_head(self_w, m, &head) <= 240);
	CHECK_INT(prog_msg_withdraw(self_w, m), -EBUSY);
	prog_msg_free(self_w, m);
	prog_msg_free(self_w, NULL);
	self_close();
	free(lens);
	free(disps);
}

static void test_errors(void **state)
{
	run(1, 1, 1, true, body_errors);
}

/* Neither CMA nor a helper thread nor a region: left to others. */
static void body_unreachable(void)
{
	struct prog_msg_key key = self_key(0, 0);
	struct prog_msg_id name;
	char c[300] = "abc", *region;
	struct prog_buf b = { .addr = c, .count = 300 };
	prog_msg *m;

	self_open(PROG_SESSION_NO_HELPER);
	CHECK_INT(prog_msg_recv(self_w, &key, &b, 0, &m), -EAGAIN);
	CHECK_INT(prog_msg_send(self_w, &key, &b, 0, &name, &m), -EAGAIN);
	CHECK_INT(prog_mem_alloc(self_s, 600, (void **)&region), 0);
	memcpy(region, c, 300);
	m = self_recv(0, 0, region + 300, 300, 0);
	CHECK_INT(ended(self_send(0, 0, region, 300, NULL)), 0);
	CHECK_INT(ended(m), 0);
	CHECK(!memcmp(region + 300 + 240, region + 240, 60));
	/* empty ones need no memory, and dropping neither */
	m = self_recv(0, 1, NULL, 0, 0);
	CHECK_INT(ended(self_send(0, 1, NULL, 0, NULL)), 0);
	CHECK_INT(ended(m), 0);
	m = self_recv(0, 2, c, 300, PROG_MSGF_DROP);
	CHECK_INT(ended(self_send(0, 2, region, 300, NULL)), 0);
	CHECK_INT(ended(m), 0);
	CHECK_INT(prog_mem_free(self_s, region), 0);
	self_close();
}

static void test_unreachable(void **state)
{
	run(1, 1, 1, false, body_unreachable);
}

/* ---- slots and rings ------------------------------------------------------------------------------------- */

static void body_full(void)
{
	static prog_msg *m[PROG_MSG_MOST + 1];
	struct prog_msg_key key = self_key(3, PROG_MSG_MOST);
	struct prog_msg_id name;
	char c = 1;
	struct prog_buf b = { .addr = &c, .count = 1 };
	uint32_t i, round;

	self_open(0);
	for (round = 0; round < 3; round++) {
		__atomic_store_n(&fk->msg_hold, 1, __ATOMIC_RELEASE);
		for (i = 0; i < PROG_MSG_MOST; i++)
			m[i] = i % 2 ? self_recv(3, i, &c, 1, 0) : self_send(4, i, &c, 1, NULL);
		CHECK_INT(prog_msg_recv(self_w, &key, &b, 0, &m[i]), -EAGAIN);
		CHECK_INT(prog_msg_send(self_w, &key, &b, 0, &name, &m[i]), -EAGAIN);
		/* given back unfinished: the slots are still the daemon's */
		for (i = 0; i < PROG_MSG_MOST; i++)
			if (i % 2)
				prog_msg_free(self_w, m[i]);
		CHECK_INT(prog_msg_recv(self_w, &key, &b, 0, &m[1]), -EAGAIN);
		__atomic_store_n(&fk->msg_hold, 0, __ATOMIC_RELEASE);
		/* withdrawn, and free again */
		for (i = 0; i < PROG_MSG_MOST; i += 2) {
			while (prog_msg_recv(self_w, &(struct prog_msg_key){ .comm = 1, .tag = 4, .ord = i },
					     &b, 0, &m[i + 1]))
				sched_yield();
		}
		for (i = 0; i < PROG_MSG_MOST; i++)
			CHECK_INT(ended(m[i]), 0);
	}
	self_close();
}

static void test_full(void **state)
{
	run(1, 1, 1, true, body_full);
}

/* Names differ for a slot's uses; rings wrap. */
static void body_wrap(void)
{
	struct prog_msg_id name, last = { 0 };
	char in[4] = "abc", out[4];
	struct prog_buf b = { .addr = out, .count = 4 };
	prog_msg *sent, *m;
	uint32_t i;

	self_open(0);
	for (i = 0; i < 20 * PROG_P2P_SLOTS; i++) {
		memset(out, 0, 4);
		switch (i % 4) {
		case 0:
			m = self_recv(5, i, out, 4, 0);
			sent = self_send(5, i, in, 4, &name);
			break;
		case 1:
			sent = self_send(5, i, in, 4, &name);
			CHECK_INT(prog_msg_recv_by_id(self_w, &name, &b, true, 0, &m), 0);
			break;
		case 2:
			/* not the message it was announced for: withdrawn */
			prog_msg_free(self_w, self_recv(5, i, out, 4, 0));
			sent = self_send(6, i, in, 4, &name);
			m = self_recv(6, i, NULL, 0, PROG_MSGF_DROP);
			break;
		default:
			sent = self_send(5, i, in, 4, &name);
			/* both left to themselves */
			prog_msg_free(self_w, sent);
			prog_msg_free(self_w, self_recv(5, i, NULL, 0, PROG_MSGF_DROP));
			continue;
		}
		CHECK(name.serial && (name.slot != last.slot || name.serial != last.serial));
		last = name;
		CHECK_INT(ended(m), 0);
		CHECK_INT(ended(sent), 0);
		if (i % 4 == 1)
			CHECK(!memcmp(in, out, 4));
	}
	self_close();
}

static void test_wrap(void **state)
{
	run(1, 1, 1, true, body_wrap);
	run(1, 1, 3, true, body_wrap);
}

/* ---- withdrawing -------------------------------------------------------------------------------------------- */

static void body_withdraw(void)
{
	char buf[8][300], c[300];
	struct prog_msg_result r;
	prog_msg *m[8], *sent, *other;
	uint32_t i, n;

	memset(c, 3, sizeof(c));
	self_open(PROG_SESSION_MT);
	/* the third and all behind it, not those of another channel */
	for (i = 0; i < 8; i++)
		m[i] = self_recv(1, i, buf[i], 300, 0);
	other = self_recv(2, 7, buf[0], 300, 0);
	CHECK_INT(prog_msg_withdraw(self_w, m[2]), 0);
	for (i = 0; i < 8; i++) {
		CHECK_INT(prog_msg_test(self_w, m[i], &r), i >= 2);
		if (i >= 2) {
			CHECK_INT(r.status, -ECANCELED);
			CHECK_INT(r.len + r.moved, 0);
		}
	}
	CHECK_INT(prog_msg_withdraw(self_w, m[2]), 0);
	CHECK_INT(prog_msg_test(self_w, other, &r), 0);
	/* 1 is matched: what it is behind stays, too */
	for (i = 2; i < 8; i++)
		prog_msg_free(self_w, m[i]);
	__atomic_store_n(&fk->msg_stall, 1, __ATOMIC_RELEASE);
	n = fk->msg_entries;
	sent = self_send(1, 1, c, 300, NULL);
	until(&fk->msg_entries, n + 1);
	while (prog_msg_withdraw(self_w, m[0]) != -EBUSY)
		;
	CHECK_INT(prog_msg_withdraw(self_w, m[1]), -EBUSY);
	CHECK_INT(prog_msg_test(self_w, m[0], &r), 0);
	CHECK_INT(prog_msg_test(self_w, m[1], &r), 0);
	/* the first one alone can go: its message came another way */
	n = fk->msg_ends;
	prog_msg_free(self_w, m[0]);
	until(&fk->msg_ends, n + 1);
	/* one that is matched is given back: it ends by itself */
	prog_msg_free(self_w, m[1]);
	n = fk->msg_ends;
	__atomic_store_n(&fk->msg_stall, 0, __ATOMIC_RELEASE);
	CHECK_INT(ended(sent), 0);
	until(&fk->msg_ends, n + 2);
	prog_msg_free(self_w, other);
	/* a WITHDRAW that arrives for a slot that is done already hits nobody else */
	for (i = 0; i < 3000; i++) {
		prog_msg *a = self_recv(3, 2 * i, buf[0], 300, 0), *b, *again;

		sent = self_send(3, 2 * i, c, 300, NULL);
		prog_msg_free(self_w, a);
		b = self_recv(3, 2 * i + 1, buf[1], 300, 0);
		/* matched with the first, or with this one */
		again = self_recv(3, 2 * i, buf[0], 300, PROG_MSGF_URGENT);
		CHECK_INT(ended(sent), 0);
		prog_msg_free(self_w, again);
		CHECK_INT(prog_msg_test(self_w, b, &r), 0);
		if (i % 3 == 2)
			CHECK_INT(prog_msg_withdraw(self_w, b), 0);
		prog_msg_free(self_w, b);
	}
	self_close();
}

static void test_withdraw(void **state)
{
	run(1, 1, 1, true, body_withdraw);
}

/* ---- doorbell ------------------------------------------------------------------------------------------------ */

static void body_doorbell(void)
{
	char *big = calloc(1, 65536), c[8] = "1234567";
	uint32_t kicks, i;
	prog_msg *m[64], *sent;

	self_open(0);
	__atomic_store_n(&fk->wakeup, PROG_WAKEUP_COALESCED, __ATOMIC_RELEASE);
	kicks = fake_until_asleep();
	/* announced, nothing waits for it: no system call */
	for (i = 0; i < 64; i++)
		m[i] = self_recv(1, i, big, 65536, 0);
	CHECK_INT(__atomic_load_n(&fk->kicks, __ATOMIC_ACQUIRE), kicks);
	CHECK_INT(fk->msg_entries, 0);
	/* a large send wakes, and all are taken */
	sent = self_send(2, 0, big, 65536, NULL);
	until(&fk->kicks, kicks + 1);
	until(&fk->msg_entries, 65);
	/* a message waits: now every announcement may be what it waits for */
	kicks = fake_until_asleep();
	prog_msg_free(self_w, self_recv(3, 0, big, 65536, 0));
	until(&fk->kicks, kicks + 1);
	kicks = fake_until_asleep();
	CHECK_INT(ended(self_recv(2, 0, c, 8, PROG_MSGF_URGENT)), 0);
	CHECK_INT(ended(sent), 0);
	CHECK(__atomic_load_n(&fk->kicks, __ATOMIC_ACQUIRE) > kicks);
	/* a small one is not worth it, but for who waits */
	for (i = 0; i < 64; i++) {
		kicks = fake_until_asleep();
		sent = self_send(1, i, c, 8, NULL);
		CHECK_INT(__atomic_load_n(&fk->kicks, __ATOMIC_ACQUIRE), kicks);
		CHECK_INT(ended(m[i]), 0);
		CHECK_INT(__atomic_load_n(&fk->kicks, __ATOMIC_ACQUIRE), kicks + 1);
		CHECK_INT(ended(sent), 0);
	}
	/* so is asking for an answer */
	fake_until_asleep();
	m[0] = self_recv(1, 64, big, 8, 0);
	CHECK_INT(prog_msg_withdraw(self_w, m[0]), 0);
	prog_msg_free(self_w, m[0]);
	/* many left behind, and few slots free: the worker is told before there are none */
	kicks = fake_until_asleep();
	for (i = 0; i < 10 * PROG_P2P_SLOTS; i++) {
		struct prog_msg_key key = self_key(1, i);
		struct prog_buf b = { .addr = big, .count = 8 };
		int res;

		while ((res = prog_msg_recv(self_w, &key, &b, 0, &m[0])) == -EAGAIN)
			sched_yield();
		CHECK_INT(res, 0);
		prog_msg_free(self_w, m[0]);
	}
	CHECK(__atomic_load_n(&fk->kicks, __ATOMIC_ACQUIRE) > kicks);
	__atomic_store_n(&fk->wakeup, 0, __ATOMIC_RELEASE);
	self_close();
	free(big);
}

static void test_doorbell(void **state)
{
	run(1, 1, 1, true, body_doorbell);
}

/* ---- thresholds ------------------------------------------------------------------------------------------------ */

static void body_threshold(void)
{
	self_open(0);
	CHECK_INT(prog_msg_threshold(self_w, 0), 65536);
	CHECK_INT(prog_msg_min(self_w), 4096);
	CHECK(prog_msg_threshold(self_w, 1) == UINT64_MAX);
	prog_msg_account(self_w, 0, true, 1000, 50);
	prog_msg_account(self_w, 0, false, 2000, 70);
	prog_msg_account(self_w, 0, false, 2000, 70);
	prog_msg_account(self_w, 7, false, 2000, 70);
	prog_msg_account_miss(self_w, 0, true);
	prog_msg_account_miss(self_w, 0, false);
	prog_msg_account_miss(self_w, 0, false);
	prog_msg_account_miss(self_w, 7, false);
	/* the double looks at our counts, and sets the threshold, when it is pinged */
	CHECK_INT(prog_session_ping(self_s), 0);
	CHECK_INT(fk->peer.sends, 1);
	CHECK_INT(fk->peer.recvs, 2);
	CHECK_INT(fk->peer.bytes, 5000);
	CHECK_INT(fk->peer.idle_ns, 190);
	CHECK_INT(fk->peer.late, 1);
	CHECK_INT(fk->peer.withdrawn, 2);
	fk->peer.offload = 1u << 20;
	CHECK_INT(prog_session_ping(self_s), 0);
	CHECK_INT(prog_msg_threshold(self_w, 0), 1u << 20);
	fk->peer.offload = 100;
	CHECK_INT(prog_session_ping(self_s), 0);
	CHECK_INT(prog_msg_threshold(self_w, 0), 4096);
	fk->peer.offload = UINT64_MAX;
	CHECK_INT(prog_session_ping(self_s), 0);
	CHECK(prog_msg_threshold(self_w, 0) == UINT64_MAX);
	self_close();
}

static void test_threshold(void **state)
{
	run(1, 1, 1, true, body_threshold);
}

/* ---- hints ------------------------------------------------------------------------------------------------------- */

static prog_msg *hint_post(uint32_t ord, unsigned int flags)
{
	static uint64_t v;
	uint32_t entries = fk->msg_entries;
	prog_msg *m = self_recv(4, ord, &v, 8, flags | PROG_MSGF_URGENT);

	until(&fk->msg_entries, entries + 1);
	return m;
}

static void *hint_wait(void *arg)
{
	struct prog_msg_result r;

	CHECK_INT(prog_msg_wait(self_w, arg, &r), 0);
	return NULL;
}

/* The daemon is told where the client runs, whether it is likely to wait, and while it does. */
static void body_hints(void)
{
	uint64_t v = 0;
	uint32_t ord = 2;
	prog_msg *waited, *sent;
	cpu_set_t here;
	pthread_t id;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	CHECK_INT(sched_setaffinity(0, sizeof(here), &here), 0);
	self_open(PROG_SESSION_MT);
	waited = hint_post(0, PROG_MSGF_HINT_BLOCKING);
	CHECK_INT(fk->msg_hints, PROG_P2PH_BLOCKING);
	CHECK_INT(fk->cpu, sched_getcpu() + 1);
	CHECK_INT(fk->blocked, 0);
	prog_msg_free(self_w, hint_post(1, 0));
	CHECK_INT(fk->msg_hints, 0);
	CHECK_INT(pthread_create(&id, NULL, hint_wait, waited), 0);
	do
		prog_msg_free(self_w, hint_post(ord++, 0));
	while (!fk->blocked);
	CHECK_INT(fk->blocked, 1);
	sent = self_send(4, 0, &v, 8, NULL);
	CHECK_INT(pthread_join(id, NULL), 0);
	prog_msg_free(self_w, waited);
	CHECK_INT(ended(sent), 0);
	prog_msg_free(self_w, hint_post(ord, 0));
	CHECK_INT(fk->blocked, 0);
	self_close();
}

static void test_hints(void **state)
{
	run(1, 1, 1, true, body_hints);
}

/* ---- looking ------------------------------------------------------------------------------------------------------ */

static uint32_t looks, look_closed, look_arrived;
static char look_buf[300];
static struct prog_msg_id look_name;
static prog_msg *look_found;

/* What the hooks do: give the daemon the receive that the message names. */
static void look_take(void *arg)
{
	struct prog_buf b = { .addr = look_buf, .count = 300 };

	CHECK(arg == look_buf);
	CHECK(!__atomic_load_n(&look_closed, __ATOMIC_ACQUIRE));
	CHECK(pthread_self() != *(pthread_t *)(void *)rs->data);
	if (__atomic_add_fetch(&looks, 1, __ATOMIC_ACQ_REL) < 3 || look_found ||
	    !__atomic_load_n(&look_arrived, __ATOMIC_ACQUIRE))
		return;
	CHECK_INT(prog_msg_recv_by_id(self_w, &look_name, &b, false, 0, &look_found), 0);
}

static void look_count(void *arg)
{
	CHECK(!__atomic_load_n(&look_closed, __ATOMIC_ACQUIRE));
	__atomic_add_fetch(&looks, 1, __ATOMIC_ACQ_REL);
}

static void body_look(void)
{
	struct timespec ts = { .tv_nsec = 30000000 };
	uint32_t before, ends;
	prog_msg *sent, *other;
	char c[300];

	*(pthread_t *)(void *)rs->data = pthread_self();
	memset(c, 9, sizeof(c));
	self_open(0);
	prog_msg_set_look(self_w, look_take, look_buf);
	/* no message waits: nobody looks */
	prog_msg_candidates(self_w, 1);
	nanosleep(&ts, NULL);
	CHECK_INT(__atomic_load_n(&looks, __ATOMIC_ACQUIRE), 0);
	/* the third look finds it, and the sender gets on with nobody in a call */
	ends = fk->msg_ends;
	sent = self_send(1, 0, c, 300, &look_name);
	__atomic_store_n(&look_arrived, 1, __ATOMIC_RELEASE);
	until(&fk->msg_ends, ends + 2);
	CHECK_INT(ended(sent), 0);
	prog_msg_candidates(self_w, 0);
	CHECK_INT(ended(look_found), 0);
	CHECK(!memcmp(look_buf + 240, c + 240, 60));
	/* none left that waits: nobody looks any more */
	nanosleep(&ts, NULL);
	before = __atomic_load_n(&looks, __ATOMIC_ACQUIRE);
	nanosleep(&ts, NULL);
	CHECK_INT(__atomic_load_n(&looks, __ATOMIC_ACQUIRE), before);
	/* a message that waits without candidates: nobody looks; with one: at growing intervals */
	prog_msg_set_look(self_w, look_count, NULL);
	ends = fk->msg_entries;
	sent = self_send(1, 1, c, 300, NULL);
	until(&fk->msg_entries, ends + 1);
	nanosleep(&ts, NULL);
	CHECK_INT(__atomic_load_n(&looks, __ATOMIC_ACQUIRE), before);
	prog_msg_candidates(self_w, 1);
	until(&looks, before + 7);
	ts.tv_nsec = 100000000;
	nanosleep(&ts, NULL);
	before = __atomic_load_n(&looks, __ATOMIC_ACQUIRE);
	nanosleep(&ts, NULL);
	/* 5 ms each by now; fewer on a busy machine */
	CHECK(__atomic_load_n(&looks, __ATOMIC_ACQUIRE) - before <= 22);
	/* another message: soon again */
	other = self_send(1, 2, c, 300, NULL);
	until(&looks, before + 25);
	prog_msg_free(self_w, sent);
	prog_msg_free(self_w, other);
	prog_win_close(self_w);
	__atomic_store_n(&look_closed, 1, __ATOMIC_RELEASE);
	nanosleep(&ts, NULL);
	prog_session_close(self_s);
}

static void test_look(void **state)
{
	run(1, 1, 1, true, body_look);
}

/* ---- threads ---------------------------------------------------------------------------------------------------------- */

static void test_threads(void **state)
{
	run(2, 2, 2, true, body_msg_threads);
	run(2, 2, 1, false, body_msg_threads);
}

/* ---- fork --------------------------------------------------------------------------------------------------------------- */

static bool fork_stop;

static void *fork_busy(void *arg)
{
	char a[300], b[300];
	uint32_t i;

	for (i = 0; !__atomic_load_n(&fork_stop, __ATOMIC_ACQUIRE); i++) {
		prog_msg *m = self_recv(8, i, a, 300, 0), *s = self_send(8, i, b, 300, NULL);

		CHECK_INT(ended(m), 0);
		CHECK_INT(ended(s), 0);
		prog_msg_free(self_w, self_recv(9, i, a, 300, 0));
	}
	return NULL;
}

static void body_fork(void)
{
	struct prog_msg_key key = self_key(1, 1);
	char c[300] = "x";
	struct prog_buf b = { .addr = c, .count = 300 };
	struct prog_msg_id name;
	prog_msg *sent, *posted, *done, *m;
	pthread_t th;
	int i, st;

	self_open(PROG_SESSION_MT);
	prog_msg_set_look(self_w, look_count, NULL);
	done = self_recv(1, 0, c, 300, 0);
	CHECK_INT(ended(self_send(1, 0, c, 300, NULL)), 0);
	CHECK_INT(prog_msg_wait(self_w, done, NULL), 0);
	sent = self_send(2, 0, c, 300, &name);
	posted = self_recv(3, 0, c, 300, 0);
	prog_msg_candidates(self_w, 1);
	pthread_create(&th, NULL, fork_busy, NULL);
	for (i = 0; i < 100; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid) {
			alarm(20);
			CHECK_INT(prog_msg_test(self_w, sent, NULL), -ECONNRESET);
			CHECK_INT(prog_msg_test(self_w, done, NULL), 1);
			CHECK_INT(prog_msg_wait(self_w, posted, NULL), -ECONNRESET);
			CHECK_INT(prog_msg_withdraw(self_w, posted), -ECONNRESET);
			CHECK_INT(prog_msg_send(self_w, &key, &b, 0, &name, &m), -ECONNRESET);
			CHECK_INT(prog_msg_recv(self_w, &key, &b, 0, &m), -ECONNRESET);
			CHECK(prog_msg_threshold(self_w, 0) == UINT64_MAX);
			prog_msg_candidates(self_w, 0);
			prog_msg_account(self_w, 0, true, 1, 1);
			prog_msg_set_look(self_w, NULL, NULL);
			prog_msg_free(self_w, posted);
			prog_msg_free(self_w, sent);
			prog_msg_free(self_w, done);
			if (i % 2)
				prog_win_close(self_w);
			prog_session_close(self_s);
			_exit(0);
		}
		waitpid(pid, &st, 0);
		CHECK_INT(st, 0);
	}
	__atomic_store_n(&fork_stop, true, __ATOMIC_RELEASE);
	pthread_join(th, NULL);
	/* what the children did to theirs did nothing to ours */
	CHECK_INT(prog_msg_test(self_w, posted, NULL), 0);
	CHECK_INT(ended(self_send(3, 0, c, 300, NULL)), 0);
	CHECK_INT(ended(posted), 0);
	CHECK_INT(prog_msg_recv_by_id(self_w, &name, &b, true, 0, &m), 0);
	CHECK_INT(ended(m), 0);
	CHECK_INT(ended(sent), 0);
	prog_msg_free(self_w, done);
	self_close();
}

static void test_fork(void **state)
{
	run(1, 1, 1, true, body_fork);
}

/* ---- death of the daemon --------------------------------------------------------------------------------------------- */

static uint32_t death_wait;

static void body_death(void)
{
	struct prog_msg_key key = self_key(9, 9);
	char c[300] = "x", d[300];
	struct prog_buf b = { .addr = c, .count = 300 };
	prog_msg *done, *sent, *posted, *matched, *m;
	struct prog_msg_id name;
	uint32_t n;
	int err;

	self_open(0);
	prog_msg_set_look(self_w, look_count, NULL);
	/* one of each state: ended, posted and not taken, waiting, matched, given back */
	done = self_recv(1, 0, d, 300, 0);
	CHECK_INT(ended(self_send(1, 0, c, 300, NULL)), 0);
	CHECK_INT(prog_msg_wait(self_w, done, NULL), 0);
	__atomic_store_n(&fk->msg_stall, 1, __ATOMIC_RELEASE);
	n = fk->msg_entries;
	matched = self_recv(2, 0, d, 300, 0);
	prog_msg_free(self_w, self_send(2, 0, c, 300, NULL));
	posted = self_recv(3, 0, d, 300, 0);
	sent = self_send(4, 0, c, 300, NULL);
	until(&fk->msg_entries, n + 4);
	__atomic_store_n(&fk->msg_silent, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&fk->msg_hold, death_wait % 2, __ATOMIC_RELEASE);
	prog_msg_free(self_w, self_recv(5, 0, d, 300, 0));
	prog_msg_candidates(self_w, 1);
	if (!fork()) {
		/* the daemon dies while we wait; how long after does not matter */
		kill(fk->pid, SIGKILL);
		_exit(0);
	}
	switch (death_wait) {
	case 0:
		err = prog_msg_wait(self_w, sent, NULL);
		break;
	case 1:
		err = prog_msg_wait(self_w, matched, NULL);
		break;
	case 2:
		err = prog_msg_withdraw(self_w, posted);
		break;
	case 3:
		while (!(err = prog_msg_test(self_w, posted, NULL)))
			prog_session_wait(self_s, 1000000);
		break;
	default:
		/* who only polls */
		while (!(err = prog_msg_test(self_w, sent, NULL)))
			prog_session_alive(self_s);
	}
	CHECK_INT(err, -ECONNRESET);
	CHECK(!prog_session_alive(self_s));
	CHECK_INT(prog_msg_test(self_w, posted, NULL), -ECONNRESET);
	CHECK_INT(prog_msg_test(self_w, matched, NULL), -ECONNRESET);
	CHECK_INT(prog_msg_wait(self_w, sent, NULL), -ECONNRESET);
	CHECK_INT(prog_msg_withdraw(self_w, posted), -ECONNRESET);
	CHECK_INT(prog_msg_send(self_w, &key, &b, 0, &name, &m), -ECONNRESET);
	CHECK_INT(prog_msg_recv(self_w, &key, &b, 0, &m), -ECONNRESET);
	CHECK(prog_msg_threshold(self_w, 0) == UINT64_MAX);
	/* what had ended, had ended */
	CHECK_INT(prog_msg_test(self_w, done, NULL), 1);
	prog_msg_candidates(self_w, 2);
	prog_msg_free(self_w, sent);
	prog_msg_free(self_w, posted);
	prog_msg_free(self_w, matched);
	prog_msg_free(self_w, done);
	self_close();
}

static void test_death(void **state)
{
	for (death_wait = 0; death_wait < 5; death_wait++) {
		int st, i;

		fake_start(1, 1, true);
		/* the daemon is to die, which run_ranks() would take for a failure */
		assert_true(run_ranks(0, NULL));
		my_rank = 0;
		my_ranks = 1;
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			alarm(60);
			body_death();
			exit(0);
		}
		for (i = 0; i < 2; i++) {
			if (wait(&st) == fk->pid)
				assert_true(WIFSIGNALED(st));
			else
				assert_int_equal(st, 0);
		}
		unlink(fk->path);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_window),
	cmocka_unit_test(test_old),
	cmocka_unit_test(test_pool),
	cmocka_unit_test(test_errors),
	cmocka_unit_test(test_unreachable),
	cmocka_unit_test(test_full),
	cmocka_unit_test(test_wrap),
	cmocka_unit_test(test_withdraw),
	cmocka_unit_test(test_doorbell),
	cmocka_unit_test(test_threshold),
	cmocka_unit_test(test_hints),
	cmocka_unit_test(test_look),
	cmocka_unit_test(test_threads),
	cmocka_unit_test(test_fork),
	cmocka_unit_test(test_death),
	cmocka_unit_test(test_random),
	cmocka_unit_test(test_passed),
};

KIT_SUITE(tests);

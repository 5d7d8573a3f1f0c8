// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Thresholds of a running job, by progctl: shown, pinned and released at both ends, and what they do.
 *
 *	rank 0 --- progd A <== TCP 127.0.0.1 ==> progd B --- rank 1
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <jansson.h>

#include <kit/fake.h>
#include <kit/progd.h>

#define KIB	1024u
#define MIB	(1024u * KIB)

static struct prog_session *ses;
static struct prog_win *win;
static uint64_t ord;			/* of the only channel's next message */
static char *buf;

/* ---- progctl ---- */

static char output[65536];

/* progctl ARGS on node @node; its exit status, output is in `output'. */
static int ctl(int node, const char *args)
{
	char cmd[8192], dir[4096];
	size_t n;
	FILE *f;

	snprintf(dir, sizeof(dir), "%s", progd);
	*strrchr(dir, '/') = '\0';
	snprintf(cmd, sizeof(cmd), "%s/progctl --socket %s %s 2>&1", dir, rank_path[node], args);
	f = popen(cmd, "r");
	CHECK(f);
	n = fread(output, 1, sizeof(output) - 1, f);
	output[n] = '\0';
	return WEXITSTATUS(pclose(f));
}

/* Refused, with a line that holds @words. */
static void refused(int node, const char *args, const char *words)
{
	int st = ctl(node, args);

	if (st == 1 && strstr(output, words))
		return;
	fprintf(stderr, "progctl %s: status %d, not 1 with \"%s\":\n%s\n", args, st, words, output);
	_exit(1);
}

static json_t *ctl_json(int node, const char *args)
{
	char all[512];
	json_error_t je;
	json_t *j;

	snprintf(all, sizeof(all), "--json %s", args);
	CHECK_INT(ctl(node, all), 0);
	j = json_loads(output, 0, &je);
	CHECK(j);
	return j;
}

/* The line 0 -> 1 of `progctl thresh' on @node. */
static json_t *row(int node)
{
	json_t *all = ctl_json(node, "thresh"), *r;
	size_t i;

	json_array_foreach(all, i, r)
		if (!json_integer_value(json_object_get(r, "from")) &&
		    json_integer_value(json_object_get(r, "to")) == 1) {
			json_incref(r);
			json_decref(all);
			return r;
		}
	fprintf(stderr, "node %d: no line for 0 to 1:\n%s\n", node, output);
	_exit(1);
}

static long long number(json_t *r, const char *name)
{
	json_t *v = json_object_get(r, name);

	if (!json_is_integer(v)) {
		fprintf(stderr, "%s is no number:\n%s\n", name, output);
		_exit(1);
	}
	return json_integer_value(v);
}

static long long number_of(int node, const char *name)
{
	json_t *r = row(node);
	long long v = number(r, name);

	json_decref(r);
	return v;
}

static int pinned(int node, const char *name)
{
	json_t *r = row(node);
	int v = json_is_true(json_object_get(r, name));

	json_decref(r);
	return v;
}

/* What `progctl stats' says of the job's messages on @node. */
static json_t *messages(int node)
{
	json_t *all = ctl_json(node, "stats");
	json_t *m = json_object_get(json_array_get(json_object_get(all, "jobs"), 0), "messages");

	CHECK(m);
	json_incref(m);
	json_decref(all);
	return m;
}

/* Bytes that came by the lane which @node has opened. */
static long long came(int node)
{
	json_t *all = ctl_json(node, "stats"), *p;
	long long sum = 0;
	int lanes = 0;
	size_t i;

	json_array_foreach(json_object_get(all, "peers"), i, p) {
		if (strcmp(json_string_value(json_object_get(p, "direction")), "out"))
			continue;
		sum += number(p, "rx_bytes");
		lanes++;
	}
	CHECK_INT(lanes, 1);
	json_decref(all);
	return sum;
}

/* ---- messages ---- */

static void space_open(void)
{
	ses = rank_session(NULL);
	win = rank_window(ses, PROG_WIN_MSG_CONTEXT, 0x5ace, NULL, 0);
	buf = malloc(4 * MIB);
	CHECK(buf);
}

static prog_msg *post(uint64_t n)
{
	struct prog_msg_key key = { .comm = 9, .src = 0, .dst = 1, .tag = 4, .ord = ord++ };
	struct prog_buf b = { .addr = buf, .count = n };
	struct prog_msg_id name;
	prog_msg *m;

	if (my_rank)
		CHECK_INT(prog_msg_recv(win, &key, &b, 0, &m), 0);
	else
		CHECK_INT(prog_msg_send(win, &key, &b, PROG_MSGF_EAGER, &name, &m), 0);
	return m;
}

static void finish(prog_msg *m)
{
	struct prog_msg_result r;

	CHECK_INT(prog_msg_wait(win, m, &r), 0);
	CHECK_INT(r.status, 0);
	prog_msg_free(win, m);
}

/* A message of which both sides say that they were away for @away ns. */
static void message(uint64_t n, uint64_t away)
{
	finish(post(n));
	prog_msg_account(win, 1 - my_rank, !my_rank, n, away);
}

/* A message that is received only when the sender is done, which it must be before. */
static void eager_message(uint64_t n)
{
	if (!my_rank)
		finish(post(n));
	rank_barrier();
	if (my_rank)
		finish(post(n));
	rank_barrier();
}

/* One that the sender cannot get rid of before it is received. */
static void waiting_message(uint64_t n)
{
	prog_msg *m = NULL;

	if (!my_rank) {
		m = post(n);
		for (int i = 0; i < 20; i++) {
			CHECK_INT(prog_msg_test(win, m, NULL), 0);
			usleep(1000);
		}
	}
	rank_barrier();
	if (my_rank)
		m = post(n);
	finish(m);
	rank_barrier();
}

static void body_pins(void)
{
	char args[256];
	long long job;
	json_t *r;

	space_open();
	for (int i = 0; i < 3; i++)
		message(256 * KIB, 0);
	rank_barrier();
	waiting_message(256 * KIB);
	if (my_rank) {
		/* the rest is rank 0's, but for the messages */
		rank_barrier();
		eager_message(2 * MIB);
		waiting_message(2 * MIB + 1);
		rank_barrier();
		waiting_message(2 * MIB);
		free(buf);
		rank_finish(ses, win);
		return;
	}

	/* each node knows its side */
	r = row(0);
	job = number(r, "job");
	CHECK_INT(number(r, "offload"), 512 * KIB);
	CHECK_INT(number(r, "messages"), 4);
	CHECK_INT(number(r, "mean_bytes"), 256 * KIB);
	CHECK(json_is_number(json_object_get(r, "sender_overlap")));
	CHECK(json_is_null(json_object_get(r, "receiver_overlap")));
	/* under their old names, too */
	CHECK(json_equal(json_object_get(r, "sender_overlap"), json_object_get(r, "sender_away")));
	CHECK(json_equal(json_object_get(r, "receiver_overlap"), json_object_get(r, "receiver_away")));
	json_decref(r);
	r = row(1);
	CHECK_INT(number(r, "eager"), 0);
	CHECK_INT(number(r, "messages"), 4);
	CHECK(json_is_null(json_object_get(r, "offload")));
	CHECK(json_is_number(json_object_get(r, "receiver_overlap")));
	CHECK(json_is_number(json_object_get(r, "bandwidth")));
	json_decref(r);
	snprintf(args, sizeof(args), "thresh --job %lld", job + 1);
	r = ctl_json(0, args);
	CHECK_INT(json_array_size(r), 0);
	json_decref(r);
	CHECK_INT(ctl(0, "thresh"), 0);
	CHECK(strstr(output, "sender_overlap") && !strstr(output, "sender_away"));

	/* offload is pinned where the sender is */
	CHECK_INT(prog_msg_threshold(win, 1), 512 * KIB);
#define THRESH(what, more) (snprintf(args, sizeof(args), "thresh %s --job %lld --from 0 --to 1 %s", what, \
				     job, more), args)
	CHECK_INT(ctl(0, THRESH("set", "--offload 64K")), 0);
	CHECK_INT(prog_msg_threshold(win, 1), 64 * KIB);
	CHECK_INT(prog_msg_threshold(win, 0), 512 * KIB);
	CHECK_INT(pinned(0, "offload_pinned"), 1);
	CHECK_INT(pinned(1, "offload_pinned"), 0);
	CHECK_INT(ctl(0, THRESH("set", "--offload none")), 0);
	CHECK(prog_msg_threshold(win, 1) == UINT64_MAX);
	refused(0, THRESH("set", "--offload 1K"), "offload 1024: less than p2p_offload_min, which is 32768");
	CHECK(prog_msg_threshold(win, 1) == UINT64_MAX);
	CHECK_INT(ctl(0, THRESH("unset", "eager")), 1);
	CHECK(prog_msg_threshold(win, 1) == UINT64_MAX);
	CHECK_INT(ctl(0, THRESH("unset", "offload")), 0);
	CHECK_INT(prog_msg_threshold(win, 1), 512 * KIB);
	CHECK_INT(pinned(0, "offload_pinned"), 0);
	/* the configuration is for all that are not pinned */
	CHECK_INT(ctl(0, "conf set p2p_offload 1M"), 0);
	CHECK_INT(prog_msg_threshold(win, 1), MIB);
	CHECK_INT(ctl(0, "conf set two_sided no"), 0);
	CHECK(prog_msg_threshold(win, 1) == UINT64_MAX);
	CHECK_INT(ctl(0, "conf unset two_sided"), 0);
	CHECK_INT(ctl(0, "conf unset p2p_offload"), 0);
	CHECK_INT(prog_msg_threshold(win, 1), 512 * KIB);

	/* eager where the receiver is */
	snprintf(args, sizeof(args), "rank 1 of job %lld runs, which is not on this node", job);
	char *words = strdup(args);

	refused(0, THRESH("set", "--eager 1M"), words);
	free(words);
	refused(1, THRESH("set", "--eager 100M"), "eager 104857600: more than p2p_eager_max, which is 6291456");
	snprintf(args, sizeof(args), "thresh set --job %lld --from 2 --to 1 --eager 1M", job);
	refused(1, args, "has no rank 2");
	CHECK_INT(ctl(1, THRESH("set", "--eager 2M")), 0);
	CHECK_INT(number_of(1, "eager"), 2 * MIB);
	CHECK_INT(pinned(1, "eager_pinned"), 1);
	/* by its old name, too */
	CHECK_INT(ctl(1, THRESH("unset", "early")), 0);
	CHECK_INT(pinned(1, "early_pinned"), 0);
	CHECK_INT(ctl(1, THRESH("set", "--early 2M")), 0);
	CHECK_INT(pinned(1, "early_pinned"), 1);
	CHECK_INT(number_of(1, "early"), 2 * MIB);
	/* both or none */
	refused(1, THRESH("set", "--offload 64K --eager 1M"), "rank 0 of job");
	CHECK_INT(number_of(1, "eager"), 2 * MIB);
	rank_barrier();
	eager_message(2 * MIB);
	waiting_message(2 * MIB + 1);
	/* the sender's node has heard of it */
	CHECK_INT(number_of(0, "eager"), 2 * MIB);
	CHECK_INT(ctl(1, THRESH("set", "--eager 0")), 0);
	rank_barrier();
	waiting_message(2 * MIB);
	free(buf);
	rank_finish(ses, win);
}

/* Both programs compute for long, in overlap time: the eager value rises to what the messages need, by itself. */
static void body_adapts(void)
{
	json_t *r, *pool;
	int rounds = 0;

	space_open();
	for (; rounds < 20; rounds++)
		message(256 * KIB, 1000000000);
	rank_barrier();
	eager_message(256 * KIB);
	eager_message(512 * KIB + 1024);
	waiting_message(512 * KIB + 1025);
	if (!my_rank) {
		CHECK_INT(number_of(1, "eager"), 512 * KIB + 1024);
		CHECK(number_of(1, "switches") > 0);
		CHECK_INT(pinned(1, "eager_pinned"), 0);
		r = messages(0);
		CHECK_INT(number(r, "sent"), 23);
		CHECK_INT(number(r, "sent_bytes"), 21ll * 256 * KIB + 2 * (512 * KIB + 1024) + 1);
		CHECK_INT(number(r, "served_bytes"), number(r, "sent_bytes"));
		CHECK_INT(number(r, "pre_matched"), 0);
		json_decref(r);
		r = messages(1);
		CHECK_INT(number(r, "sent"), 0);
		CHECK_INT(number(r, "pre_matched"), 23);
		CHECK_INT(number(r, "by_id"), 0);
		CHECK(number(r, "late") >= 3);
		CHECK(number(r, "eager") >= 2);
		CHECK_INT(number(r, "eager") + number(r, "rendezvous"), 23);
		CHECK_INT(number(r, "bytes"), 21ll * 256 * KIB + 2 * (512 * KIB + 1024) + 1);
		CHECK_INT(number(r, "errors"), 0);
		CHECK(number(r, "threshold_switches") > 0);
		pool = json_object_get(r, "pool");
		CHECK_INT(number(pool, "used_bytes"), 0);
		CHECK(number(pool, "peak_bytes") >= 768 * KIB);
		/* there are lanes that nothing one-sided goes by */
		CHECK(came(1) >= number(r, "bytes"));
		json_decref(r);
	}
	rank_barrier();
	free(buf);
	rank_finish(ses, win);
}

/* Messages between private memories of one node are copied by a helper thread, with CMA and without. */
static void body_passed(void)
{
	enum { ROUNDS = 6 };
	uint64_t n = 3 * MIB + 5;

	space_open();
	for (int round = 0; round < ROUNDS; round++) {
		const void *head;
		prog_msg *m;

		memset(buf, my_rank ? 0 : 'a' + round, n);
		rank_barrier();
		m = post(n);
		/* now the sender is blocked, now the receiver */
		while (round % 2 == (int)my_rank && !prog_msg_test(win, m, NULL))
			;
		CHECK_INT(prog_msg_wait(win, m, NULL), 0);
		if (my_rank) {
			CHECK_INT(prog_msg_head(win, m, &head), PROG_P2P_HEAD);
			memcpy(buf, head, PROG_P2P_HEAD);
			for (uint64_t i = 0; i < n; i++)
				CHECK(buf[i] == 'a' + round);
		}
		prog_msg_free(win, m);
	}
	rank_barrier();
	if (!my_rank) {
		json_t *r = messages(0);

		CHECK_INT(number(r, "on_this_node"), ROUNDS);
		CHECK_INT(number(r, "copied_by_helper"), prog_msg_same_node(win, 1) ? ROUNDS : 0);
		CHECK_INT(number(r, "bytes"), (long long)(ROUNDS * n));
		json_decref(r);
	}
	rank_barrier();
	free(buf);
	rank_finish(ses, win);
}

static void run(void (*body)(void))
{
	rank_flags = 0;
	assert_true(run_ranks_on_two(2, body, "1", "1", "auto", NULL));
}

static void test_pins(void **state)
{
	run(body_pins);
}

static void test_adapts(void **state)
{
	run(body_adapts);
}

static void test_passed(void **state)
{
	static const char *const more[] = { NULL, "cma=no" };
	bool ok;

	rank_flags = 0;
	for (int i = 0; i < 2; i++) {
		start_daemon(0, "1", "auto", more[i]);
		rank_paths = 1;
		ok = run_ranks(2, body_passed);
		rank_paths = 0;
		stop_daemon(0);
		assert_true(ok);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_pins),
	cmocka_unit_test(test_adapts),
	cmocka_unit_test(test_passed),
};

KIT_SUITE(tests, .begin = find_progd);

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * What progctl says of collectives: those under way, who is missing, and the counters of living and ended jobs.
 *
 *	rank 0, 2 --- progd A <== TCP 127.0.0.1 ==> progd B --- rank 1, 3
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <jansson.h>

#include <kit/fake.h>
#include <kit/msg_bodies.h>
#include <kit/progd.h>

#define COMM	0xc0ffee
#define MANY	(PROG_COLL_ROWS + 4)
#define BYTES	100000u

static const uint32_t world[] = { 0, 1, 2, 3 };
static const uint32_t node_of[] = { 0, 1, 0, 1 }, start4[] = { 0, 2, 4 }, member4[] = { 0, 2, 1, 3 };
static const uint32_t start2[] = { 0, 1, 2 }, member2[] = { 0, 1 };

static const struct prog_coll_nodes nodes4 = { .n = 2, .node = node_of, .start = start4, .member = member4 };
static const struct prog_coll_nodes nodes2 = { .n = 2, .node = node_of, .start = start2, .member = member2 };

static struct prog_session *ses;
static struct prog_win *win;

/* ---- progctl ---- */

static json_t *ask(const char *what)
{
	char cmd[8192], dir[4096];
	json_error_t je;
	json_t *j;
	FILE *f;

	snprintf(dir, sizeof(dir), "%s", progd);
	*strrchr(dir, '/') = '\0';
	snprintf(cmd, sizeof(cmd), "%s/progctl --socket %s --json %s", dir, rank_path[my_rank % 2], what);
	f = popen(cmd, "r");
	CHECK(f);
	j = json_loadf(f, 0, &je);
	CHECK_INT(pclose(f), 0);
	CHECK(j);
	return j;
}

/* Until drop_kept(). */
static json_t *kept;

static json_t *keep(json_t *j)
{
	if (!kept)
		kept = json_array();
	json_array_append_new(kept, j);
	return j;
}

static void drop_kept(void)
{
	json_decref(kept);
	kept = NULL;
}

static long long number(json_t *o, const char *name)
{
	json_t *v = json_object_get(o, name);

	if (!json_is_integer(v)) {
		fprintf(stderr, "no number %s in %s\n", name, json_dumps(o, JSON_ENCODE_ANY) ?: "nothing");
		_exit(1);
	}
	return json_integer_value(v);
}

static bool is(json_t *o, const char *name, const char *text)
{
	json_t *v = json_object_get(o, name);

	return text ? json_is_string(v) && !strcmp(json_string_value(v), text) : json_is_null(v);
}

/* What @rank of this node has under way, as far as it is listed; oldest first. */
static json_t *rows(uint32_t rank)
{
	json_t *all = ask("colls"), *mine = json_array(), *r;
	size_t i;

	json_array_foreach(all, i, r)
		if (number(r, "rank") == rank)
			json_array_append(mine, r);
	json_decref(all);
	return mine;
}

/* The only one of @rank, when it says that a rank of the other node, or of its own, is missing; it looks now and then only. */
static json_t *missing(uint32_t rank, uint32_t node)
{
	for (;;) {
		json_t *all = rows(rank), *r = json_incref(json_array_get(all, 0));

		CHECK_INT(json_array_size(all), 1);
		json_decref(all);
		if (!is(r, "missing", NULL) && number(r, "missing") % 2 == node && number(r, "missing") != rank)
			return r;
		json_decref(r);
	}
}

/* Counters of the job that lives here. */
static json_t *counters(void)
{
	json_t *all = ask("stats"), *job = json_array_get(json_object_get(all, "jobs"), 0);
	json_t *c = json_incref(json_object_get(job, "collectives"));

	json_decref(all);
	return keep(c);
}

/* ---- collectives ---- */

static prog_coll *start_with(uint64_t number, enum prog_coll_kind kind, void *buf, int status)
{
	bool two = my_ranks == 2;
	struct prog_coll_cfg cfg = {
		.comm = COMM, .number = number, .world = world, .in = buf, .out = buf, .status = status,
		.desc = { .kind = kind, .rank = my_rank, .size = my_ranks, .bytes = buf ? BYTES : 0,
			  .nodes = two ? &nodes2 : &nodes4 },
	};
	prog_coll *c;

	CHECK_INT(prog_coll_start(win, &cfg, &c), 0);
	return c;
}

static prog_coll *barrier(uint64_t number)
{
	return start_with(number, PROG_COLL_BARRIER, NULL, 0);
}

static int end_of(prog_coll *c)
{
	int status;

	while (prog_coll_wait_for(win, c, &status, 1000000))
		;
	prog_coll_free(c);
	return status;
}

/* Rank 3 is late: rank 1 of its node says so; rank 0 that it is somebody of the other node. */
static void body_missing(void)
{
	prog_coll *c = NULL;
	json_t *r;

	ses = rank_session(NULL);
	win = msg_space(ses);
	if (my_rank != 3)
		c = barrier(7);
	rank_barrier();
	if (my_rank == 1) {
		r = missing(1, 1);
		CHECK_INT(number(r, "missing"), 3);
		CHECK(number(r, "awaited") > 0);
		CHECK(is(r, "missing_is", "not started") && is(r, "kind", "barrier") && is(r, "comm", "c0ffee") && is(r, "number", "7"));
		CHECK_INT(number(r, "members"), 4);
		CHECK_INT(number(r, "pid"), getpid());
		json_decref(r);
	}
	if (my_rank == 0) {
		r = missing(0, 1);
		CHECK(is(r, "missing_is", "on another node"));
		json_decref(r);
	}
	rank_barrier();
	if (my_rank == 3)
		c = barrier(7);
	CHECK_INT(end_of(c), 0);
	rank_barrier();
	CHECK_INT(json_array_size(keep(ask("colls"))), 0);
	r = counters();
	CHECK_INT(number(r, "started"), 2);
	CHECK_INT(number(r, "ended"), 2);
	CHECK_INT(number(r, "failed"), 0);
	CHECK_INT(number(r, "under_way"), 0);
	CHECK_INT(json_array_size(json_object_get(r, "sessions")), 2);
	drop_kept();
	rank_finish(ses, win);
}

static void test_missing(void **state)
{
	rank_flags = 0;
	assert_true(run_ranks_on_two(4, body_missing, "1", "1", "auto", NULL));
}

/* More than there are rows: the oldest are listed, and others when these have ended. */
static void body_many(void)
{
	prog_coll *c[MANY];
	uint32_t half = MANY / 2;
	json_t *all, *r;
	size_t i;

	ses = rank_session(NULL);
	win = msg_space(ses);
	for (uint32_t n = 0; my_rank == 0 && n < MANY; n++)
		c[n] = barrier(n);
	rank_barrier();
	if (my_rank == 0) {
		all = keep(rows(0));
		CHECK_INT(json_array_size(all), PROG_COLL_ROWS);
		json_array_foreach(all, i, r)
			CHECK_INT(strtoul(json_string_value(json_object_get(r, "number")), NULL, 16), i);
		r = counters();
		CHECK_INT(number(r, "started"), MANY);
		CHECK_INT(number(r, "under_way"), MANY);
	}
	rank_barrier();
	for (uint32_t n = 0; n < half; n++)
		CHECK_INT(end_of(my_rank ? barrier(n) : c[n]), 0);
	rank_barrier();
	if (my_rank == 0) {
		all = keep(rows(0));
		CHECK_INT(json_array_size(all), MANY - half);
		json_array_foreach(all, i, r)
			CHECK_INT(strtoul(json_string_value(json_object_get(r, "number")), NULL, 16), half + i);
	}
	rank_barrier();
	for (uint32_t n = half; n < MANY; n++)
		CHECK_INT(end_of(my_rank ? barrier(n) : c[n]), 0);
	CHECK_INT(json_array_size(keep(rows(my_rank))), 0);
	drop_kept();
	rank_finish(ses, win);
}

static char buf[BYTES];

/* Bytes, failures, what was left, and all of that when the job has ended. */
static void body_counts(void)
{
	json_t *r;

	ses = rank_session(NULL);
	win = msg_space(ses);
	rank_barrier();
	CHECK_INT(end_of(start_with(0, PROG_COLL_BCAST, buf, 0)), 0);
	CHECK(end_of(start_with(1, PROG_COLL_BCAST, buf, my_rank ? 0 : -ENOMEM)) < 0);
	for (int i = 0; i < 3; i++)
		prog_coll_left(ses, PROG_COLL_LEFT_OP);
	prog_coll_left(ses, PROG_COLL_LEFT_VOTE);
	prog_coll_left(ses, PROG_COLL_LEFTS);
	r = counters();
	CHECK_INT(number(r, "started"), 2);
	CHECK_INT(number(r, "failed"), 1);
	CHECK_INT(number(r, "sent_bytes"), my_rank ? 0 : BYTES);
	CHECK_INT(number(r, "received_bytes"), my_rank ? BYTES : 0);
	r = json_object_get(r, "left_to_library");
	CHECK_INT(json_object_size(r), 2);
	CHECK_INT(number(r, "operation"), 3);
	CHECK_INT(number(r, "waited_for"), 1);
	rank_finish(ses, win);
	do {
		r = json_array_get(json_object_get(keep(ask("stats")), "ended_jobs"), 0);
	} while (!r);
	r = json_object_get(r, "collectives");
	CHECK_INT(number(r, "ended"), 2);
	CHECK_INT(number(json_object_get(r, "left_to_library"), "operation"), 3);
	/* the receiver has waited: it has a thread */
	CHECK(!my_rank || number(r, "cpu_ns") > 0);
	drop_kept();
}

static void run_two(void (*body)(void))
{
	rank_flags = 0;
	assert_true(run_ranks_on_two(2, body, "1", "1", "auto", NULL));
}

static void test_many(void **state)
{
	run_two(body_many);
}

static void test_counts(void **state)
{
	run_two(body_counts);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_missing),
	cmocka_unit_test(test_many),
	cmocka_unit_test(test_counts),
};

KIT_SUITE(tests, .begin = find_progd);

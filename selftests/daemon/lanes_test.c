// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A job of thousands of nodes begins: all of them open a lane to the same engine, which is as it is shipped, at the same moment.
 *
 *	node 1 ---\
 *	node 2 ----+--- progd -- a session of the job, and one of another
 *	node N ---/
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <kit/loop.h>
#include <kit/nodes.h>
#include <libprogclient/client.h>
#include <progclient.h>

#include "xport/lane.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NODES	500u
#else
#define NODES	4000u
#endif

#define OF_LOOP	5u	/* nodes: a loop has no more hooks than it takes for 8 */

static struct node node;
static struct loop *loops[NODES / OF_LOOP];
static unsigned int ups, downs, proven, refused;
static char last_why[256];

static void up(void *ctx, struct lane *l)
{
	ups++;
}

static void down(void *ctx, struct lane *l, int err, const char *why)
{
	downs++;
	snprintf(last_why, sizeof(last_why), "%s", why);
}

static int nothing(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload, void *token)
{
	return 0;
}

static const struct xport_handlers handlers = { .frame_end = nothing, .lane_up = up, .lane_down = down };

static int post(void *ctx, unsigned int worker, void (*fn)(void *arg), void *arg)
{
	fn(arg);
	return 0;
}

static void job_done(void *ctx, struct lane *l, uint32_t job, int err)
{
	proven += !err;
	refused += !!err;
}

/* Another node. */
struct other {
	struct xport *x;
	struct xport_worker *xw;
	struct lane *lane;
};

static void other_new(struct other *o, struct loop *loop, const struct prog_session *s, const uint8_t *jobid, const uint8_t *key)
{
	struct xport_opts opts = {
		.workers = 1, .handlers = &handlers, .post = post,
		/* they are all one thread, on a machine that has other things to do */
		.connect_timeout_ns = 600000000000ull,
	};
	char err[XPORT_ERR];

	auth_id(opts.guid);
	assert_int_equal(xport_new(&opts, &o->x, err), 0);
	assert_int_equal(xport_attach(o->x, 0, loop, NULL, &o->xw), 0);
	o->lane = lane_open(o->xw, s->guid, s->addr, s->naddrs);
	assert_non_null(o->lane);
	assert_int_equal(lane_job_open(o->lane, jobid, key, job_done, NULL), 1);
}

static void step(void)
{
	for (unsigned int i = 0; i < NODES / OF_LOOP; i++)
		assert_true(loop_run_once(loops[i], 0) >= 0);
}

static bool all_dialled(const struct other *o)
{
	for (unsigned int i = 0; i < NODES; i++)
		if (!o[i].lane->conn && !o[i].lane->sock)
			return false;
	return true;
}

static void session(struct prog_session_cfg *c, struct prog_session **s)
{
	const char *why = "";

	c->socket = node.sock;
	assert_int_equal(prog_job_key_make(c->jobid, c->jobkey), 0);
	if (prog_session_open(c, s, &why))
		fail_msg("session: %s", why);
}

static void test_at_once(void **state)
{
	static const char *const sets[] = { "workers=1", NULL };
	struct other *o = calloc(NODES, sizeof(*o));
	struct prog_session_cfg c = { 0 }, c2 = { 0 };
	struct prog_session *s, *other;
	struct rlimit old;
	uint64_t start;

	assert_non_null(o);
	/* lanes have half of a daemon's */
	old = kit_files(3 * NODES);
	assert_int_equal(node_start(&node, sets), 0);
	session(&c, &s);
	session(&c2, &other);
	assert_int_equal(auth_init(), 0);
	for (unsigned int i = 0; i < NODES / OF_LOOP; i++)
		loops[i] = kit_loop(LOOP_EPOLL);
	/* none is served before all have come */
	assert_int_equal(kill(node.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(node.pid, NULL, WUNTRACED), node.pid);
	for (unsigned int i = 0; i < NODES; i++)
		other_new(&o[i], loops[i / OF_LOOP], s, c.jobid, c.jobkey);
	RUN_FOR(step, 120, all_dialled(o));
	assert_int_equal(ups, 0);
	start = nodes_now();
	assert_int_equal(kill(node.pid, SIGCONT), 0);
	/* others are served meanwhile */
	assert_int_equal(prog_session_ping(other), 0);
	for (unsigned int last = 0; proven < NODES; last = ups + proven + downs + refused) {
		RUN_FOR(step, 60, ups + proven + downs + refused > last);
		if (downs || refused)
			fail_msg("%u lanes went, the last: %s; %u jobs were refused", downs, last_why, refused);
	}
	print_message("# %u lanes: %llu ms\n", NODES, (unsigned long long)(nodes_now() - start) / 1000000);
	assert_int_equal(ups, NODES);
	for (unsigned int i = 0; i < NODES; i++)
		assert_int_equal(lane_state(o[i].lane), LANE_UP);
	assert_int_equal(prog_session_ping(s) ?: prog_session_ping(other), 0);
	for (unsigned int i = 0; i < NODES; i++) {
		xport_detach(o[i].xw, 0);
		xport_free(o[i].x);
	}
	prog_session_close(other);
	prog_session_close(s);
	for (unsigned int i = 0; i < NODES / OF_LOOP; i++)
		loop_free(loops[i]);
	free(o);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_at_once),
};

KIT_SUITE(tests);

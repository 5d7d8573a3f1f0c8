// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Two engines on one lane that has room again.  The first one to be told can take all of it, each time: operations do
 * as long as there are any, so messages have to come first.  And lanes of one node that follow each other.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <kit/link.h>
#include <xport/lane.h>

#define ROOM	4u		/* frames that fit each time */

struct engine {
	struct link_ops ops;
	unsigned int waiting, sent;
};

static struct engine rma, rndv;
static unsigned int room;

static void take(struct engine *e)
{
	while (room && e->waiting) {
		room--;
		e->waiting--;
		e->sent++;
	}
}

static void rma_room(struct link_peer *p)
{
	take(&rma);
}

static void rndv_room(struct link_peer *p)
{
	take(&rndv);
}

static void rma_lane_room(struct link_lane *in)
{
	take(&rma);
}

static void rndv_lane_room(struct link_lane *in)
{
	take(&rndv);
}

/* The lane has room again and again, with more operations each time than it holds, and one message. */
static void message_among_operations(struct link *l, struct lane *lane)
{
	rma.waiting = rma.sent = rndv.waiting = rndv.sent = 0;
	for (unsigned int i = 0; i < 10; i++) {
		rma.waiting += ROOM;
		rndv.waiting += i == 3;
		room = ROOM;
		link_handlers.lane_writable(l, lane);
		assert_int_equal(room, 0);
		assert_int_equal(rndv.waiting, 0);
	}
	assert_int_equal(rndv.sent, 1);
	assert_int_equal(rma.sent, 10 * ROOM - 1);
}

static void test_room(void **state)
{
	static const uint8_t guid[PROG_GUID_SIZE] = { 1 };
	struct link_host host = { 0 };
	struct lane lane = { 0 };
	struct link_peer peer = { 0 };
	struct link_lane in = { 0 };
	struct kit_link k;

	kit_link_new(&k, guid, 1, &host);
	rma.ops = (struct link_ops){
		.first = WIRE_RMA_DTYPE, .last = WIRE_RMA_DTYPE, .writable = rma_room, .lane_writable = rma_lane_room,
	};
	rndv.ops = (struct link_ops){
		.first = WIRE_RNDV_RTS_RETRY, .last = WIRE_RNDV_RTS_RETRY, .writable = rndv_room,
		.lane_writable = rndv_lane_room,
	};
	link_engine_add(k.link, LINK_RMA, &rma.ops);
	link_engine_add(k.link, LINK_RNDV, &rndv.ops);
	peer.link = in.link = k.link;
	lane.opener = true;
	lane_set_peer(&lane, &peer);
	message_among_operations(k.link, &lane);
	lane.opener = false;
	lane_set_in(&lane, &in);
	message_among_operations(k.link, &lane);
	link_engine_del(k.link, LINK_RMA);
	link_engine_del(k.link, LINK_RNDV);
	kit_link_free(&k);
}

static unsigned int lost;

static int begun(struct link_lane *in)
{
	return 0;
}

static void ended(struct link_lane *in)
{
}

static void from_lost(struct link_from *from)
{
	lost++;
}

/* Job @id is proven on @lane, at index @id. */
static void prove(struct link *l, struct lane *lane, uint8_t id)
{
	struct lane_job *j = &lane->job[id - 1];

	j->state = JOB_PROVEN;
	memset(j->jobid, id, sizeof(j->jobid));
	link_handlers.job_proven(l, lane, id);
}

/* A later lane that says to be of the same node ends what was of the jobs that are proven there, and of no other. */
static void test_other_job(void **state)
{
	static const uint8_t guid[PROG_GUID_SIZE] = { 1 };
	struct lane_job jobs[2][3] = { 0 };
	struct lane lane[2] = { { .guid = { 7 }, .njobs = 3, .job = jobs[0] }, { .guid = { 7 }, .njobs = 3, .job = jobs[1] } };
	struct link_host host = { 0 };
	struct kit_link k;
	struct link_from *first[3];

	kit_link_new(&k, guid, 1, &host);
	rma.ops = (struct link_ops){
		.first = WIRE_RMA_DTYPE, .last = WIRE_RMA_DTYPE, .lane_new = begun, .lane_free = ended, .lost = from_lost,
	};
	link_engine_add(k.link, LINK_RMA, &rma.ops);
	for (int i = 0; i < 2; i++)
		link_handlers.lane_up(k.link, &lane[i]);
	for (uint8_t id = 1; id <= 2; id++) {
		prove(k.link, &lane[0], id);
		first[id] = lane_job_from(&lane[0], id);
		assert_non_null(first[id]);
	}
	prove(k.link, &lane[1], 3);
	assert_int_equal(lost, 0);
	for (uint8_t id = 1; id <= 2; id++)
		assert_ptr_equal(lane_job_from(&lane[0], id), first[id]);
	/* the same job: what still comes on the lane before is nobody's */
	prove(k.link, &lane[1], 1);
	assert_int_equal(lost, 1);
	assert_null(lane_job_from(&lane[0], 1));
	assert_ptr_equal(lane_job_from(&lane[1], 1), first[1]);
	assert_ptr_equal(lane_job_from(&lane[0], 2), first[2]);
	/* and the lane before cannot take it back */
	prove(k.link, &lane[0], 3);
	assert_int_equal(lost, 1);
	assert_null(lane_job_from(&lane[0], 3));
	assert_non_null(lane_job_from(&lane[1], 3));
	for (int i = 0; i < 2; i++) {
		for (uint32_t id = 1; id <= 3; id++)
			link_handlers.job_closed(k.link, &lane[i], id);
		link_handlers.lane_down(k.link, &lane[i], 0, NULL);
	}
	assert_int_equal(lost, 4);
	link_engine_del(k.link, LINK_RMA);
	kit_link_free(&k);
}

/* A node that a job names is its user's until the job is over, and as long as there is anything of it. */
static void test_charged(void **state)
{
	static const uint8_t guid[PROG_GUID_SIZE] = { 1 }, id[PROG_JOBID_SIZE] = { 1 }, key[PROG_JOBKEY_SIZE] = { 1 };
	struct prog_win_node node[2] = { { .guid = { 2 } }, { .guid = { 3 } } };
	struct link_host host = { 0 };
	struct win_limits lim, few;
	struct link_job *first;
	struct win_user *user;
	struct win_job *job;
	struct kit_link k;
	const char *why = "";
	uint64_t one, *used;
	int err = 0;

	kit_link_new(&k, guid, 1, &host);
	assert_int_equal(win_job_join(id, key, getuid(), &job, &why), 0);
	user = win_user_ref(job->user);
	used = &user->used[USER_TABLES];
	assert_int_equal(*used, 0);
	first = link_job_get(k.link, job, &node[0], &err);
	assert_non_null(first);
	one = *used;
	assert_true(one >= sizeof(struct link_peer) + sizeof(struct link_job));
	assert_ptr_equal(link_job_get(k.link, job, &node[0], &err), first);
	assert_int_equal(*used, one);
	win_limits_get(&lim);
	few = lim;
	few.tables = one;
	win_limits_set(&few);
	assert_null(link_job_get(k.link, job, &node[1], &err));
	assert_int_equal(err, -EDQUOT);
	assert_ptr_equal(link_job_get(k.link, job, &node[0], &err), first);
	win_limits_set(&lim);
	assert_non_null(link_job_get(k.link, job, &node[1], &err));
	assert_int_equal(*used, 2 * one);
	win_job_get(job);
	assert_true(win_job_leave(job));
	link_job_gone(k.link, job);
	win_job_put(job);
	assert_true(*used < 2 * one);
	kit_link_free(&k);
	assert_int_equal(*used, 0);
	win_user_put(user);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_room),
	cmocka_unit_test(test_other_job),
	cmocka_unit_test(test_charged),
};

KIT_SUITE(tests);

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Lanes between two daemons in one thread, over both event loops, both transports and RDMA (a double of it), and
 * against a hand-made peer that breaks every rule. PROG_SEED=N repeats a run.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include <kit/loop.h>
#include <kit/verbs_double.h>
#include <libprogbase/log.h>

#include "xport/lane.h"

static int loop_kind_used;
static const char *transport;
static bool sealed;
static bool rdma;
static unsigned int seed;
static uint64_t giveup_ns;		/* 0: as it is by default */

/* WIRE_MAX_PAYLOAD bytes that a frame of this number carries: a piece of a table, which sanitizers check as a whole. */
static const uint8_t *pattern(uint64_t frame)
{
	static uint8_t table[65536 + WIRE_MAX_PAYLOAD];
	size_t i;

	for (i = 0; !table[1] && i < sizeof(table); i++)
		table[i] = i * 7 + (i >> 8);
	return table + frame * 131 % 65536;
}

/* ---- a node ------------------------------------------------------------------------------- */

#define KEY_A	1
#define KEY_B	2

struct node {
	struct loop *loop;
	struct xport *x;
	struct xport_worker *xw;
	struct xport_handlers h;
	uint8_t guid[16];
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs;
	/* what the handlers saw */
	int begins, begin_ends, aborts, frames, ups, downs, writables, jobs_closed;
	int last_err;
	char last_why[256];
	struct lane *lane;		/* last one up */
	bool direct;			/* frame_begin names memory */
	uint8_t *area;			/* 256 KiB of it */
	uint64_t expect;		/* number of the next frame: gives content and length */
	uint32_t (*len_of)(uint64_t frame);
	int (*on_frame)(struct node *n, struct lane *l, const struct wire_frame *f);
	uint64_t got_bytes;
	int jobs;			/* proven callbacks */
	int job_err;
	uint32_t job;
	int refs, dones, done_errs;
	int due;			/* replies that found no room */
};

static int begin(void *ctx, struct lane *l, const struct wire_frame *f, struct lane_sink *sink)
{
	struct node *n = ctx;
	uint32_t cut;

	n->begins++;
	assert_true(f->len >= XPORT_DIRECT_MIN);
	sink->token = n;
	if (!n->direct || rand_r(&seed) % 4 == 0)
		return 0;
	memset(n->area, 0, f->len);
	cut = rand_r(&seed) % (f->len - 1) + 1;
	sink->iov[0] = (struct iovec){ n->area, cut };
	sink->iov[1] = (struct iovec){ n->area + cut, f->len - cut };
	sink->niov = 2;
	return 0;
}

static int end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload,
	       void *token)
{
	struct node *n = ctx;
	const uint8_t *p = payload ? payload : n->area;

	if (token) {
		assert_ptr_equal(token, n);
		n->begin_ends++;
	}
	n->frames++;
	if (n->len_of) {
		assert_int_equal(f->seq, n->expect + 1);
		assert_int_equal(f->len, n->len_of(n->expect));
		if (f->len)
			assert_memory_equal(p, pattern(n->expect), f->len);
		n->expect++;
	}
	n->got_bytes += f->len;
	return n->on_frame ? n->on_frame(n, l, f) : 0;
}

static void aborted(void *ctx, struct lane *l, const struct wire_frame *f, void *token)
{
	struct node *n = ctx;

	assert_ptr_equal(token, n);
	n->aborts++;
}

static void up(void *ctx, struct lane *l)
{
	struct node *n = ctx;

	n->ups++;
	n->lane = l;
}

static void down(void *ctx, struct lane *l, int err, const char *why)
{
	struct node *n = ctx;

	n->downs++;
	n->last_err = err;
	snprintf(n->last_why, sizeof(n->last_why), "%s", why);
	if (n->lane == l)
		n->lane = NULL;
}

/* Replies to the latest `due' frames, as many as have room. */
static void reply_due(struct node *n, struct lane *l)
{
	while (n->due) {
		struct wire_frame d = {
			.type = WIRE_RMA_DATA, .job = 1, .seq = n->frames - n->due + 1, .len = 60000, .total = 60000,
			.flags = WIRE_F_LAST, .origin = 1, .target = 2, .win = 3,
		};

		assert_true(lane_queued(l) <= 1 << 20);
		if (lane_send(l, &d, n->area, NULL, NULL))
			return;
		n->due--;
	}
}

static void writable(void *ctx, struct lane *l)
{
	((struct node *)ctx)->writables++;
	reply_due(ctx, l);
}

/* Every job but 0xff... is known; its key is its id's first byte, and B has another for 0x77. */
static bool job_key(void *ctx, const uint8_t *jobid, uint8_t *key)
{
	if (jobid[0] == 0xff)
		return false;
	memset(key, jobid[0] == 0x77 ? 0x78 : jobid[0], PROG_JOBKEY_SIZE);
	return true;
}

static void job_closed(void *ctx, struct lane *l, uint32_t job)
{
	((struct node *)ctx)->jobs_closed++;
}

static int post(void *ctx, unsigned int worker, void (*fn)(void *arg), void *arg)
{
	fn(arg);
	return 0;
}

static void node_start(struct node *n, uint8_t id)
{
	struct xport_opts o = {
		.workers = 1, .transport = transport, .listen = "127.0.0.1",
		.handlers = &n->h, .post = post, .connect_timeout_ns = 20000000000ull,
		.peer_giveup_ns = giveup_ns, .encrypt = sealed, .verbs = rdma ? &progd_verbs_api : NULL,
		.verbs_opts = { .devices = "", .gid_index = -1, .quiet_s = 5 },
	};
	char err[XPORT_ERR];

	memset(n, 0, sizeof(*n));
	n->loop = kit_loop(loop_kind_used);
	n->h = (struct xport_handlers){
		.frame_begin = begin, .frame_end = end, .frame_abort = aborted, .lane_up = up,
		.lane_down = down, .lane_writable = writable, .job_key = job_key,
		.job_closed = job_closed,
	};
	memset(n->guid, id, sizeof(n->guid));
	memcpy(o.guid, n->guid, sizeof(o.guid));
	n->area = malloc(WIRE_MAX_PAYLOAD);
	assert_non_null(n->area);
	n->direct = true;
	n->job_err = 1;
	assert_int_equal(xport_new(&o, &n->x, err), 0);
	assert_int_equal(xport_attach(n->x, 0, n->loop, n, &n->xw), 0);
	assert_int_equal(xport_listen(n->x, n->loop, err), 0);
	n->naddrs = xport_addrs(n->x, n->addr);
	assert_int_equal(n->naddrs, 1);
}

static void node_stop(struct node *n)
{
	xport_unlisten(n->x);
	xport_detach(n->xw, 0);
	xport_free(n->x);
	loop_free(n->loop);
	free(n->area);
	assert_int_equal(n->begins, n->begin_ends + n->aborts);
}

/* Run both until @cond; a lane that hangs must not hang the test. */
#define RUN(a, b, cond) do { \
	time_t limit_ = time(NULL) + 40; \
	while (!(cond)) { \
		struct node *a_ = (a), *b_ = (b); \
		assert_true(loop_run_once(a_->loop, b_ ? 0 : 1000000) >= 0); \
		if (b_) \
			assert_true(loop_run_once(b_->loop, 0) >= 0); \
		if (time(NULL) > limit_) \
			fail_msg("did not happen: %s", #cond); \
	} \
} while (0)

static void job_done(void *ctx, struct lane *l, uint32_t job, int err)
{
	struct node *n = ctx;

	n->jobs++;
	n->job_err = err;
	n->job = job;
}

static struct lane *open_lane(struct node *a, struct node *b)
{
	struct lane *l = lane_open(a->xw, b->guid, b->addr, b->naddrs);

	assert_non_null(l);
	return l;
}

static uint32_t open_job(struct node *a, struct node *b, struct lane *l, uint8_t id)
{
	uint8_t jobid[WIRE_JOBID_SIZE], key[PROG_JOBKEY_SIZE];
	int job, jobs = a->jobs;

	memset(jobid, id, sizeof(jobid));
	memset(key, id, sizeof(key));
	job = lane_job_open(l, jobid, key, job_done, a);
	assert_true(job > 0);
	RUN(a, b, a->jobs > jobs);
	assert_int_equal(a->job, job);
	return job;
}

static struct wire_frame frame(uint8_t type, uint32_t job, uint64_t seq, uint32_t len)
{
	return (struct wire_frame){
		.type = type, .job = job, .seq = seq, .len = len, .total = len,
		.flags = WIRE_F_LAST, .origin = 1, .target = 2, .win = 3,
	};
}

/* ---- two daemons -------------------------------------------------------------------------- */

static uint32_t random_len(uint64_t n)
{
	uint32_t h = n * 2654435761u;

	h ^= h >> 15;
	switch (h % 8) {
	case 0: return 0;
	case 1: return WIRE_MAX_PAYLOAD;
	case 2: return h % WIRE_MAX_PAYLOAD;
	case 3: return XPORT_DIRECT_MIN - 1 + h / 8 % 3;
	case 4: return h % 20000;
	default: return h % 100;
	}
}

struct ref {
	struct node *n;
	bool sent;
	uint8_t data[];
};

static void ref_sent(void *arg, int err)
{
	struct ref *r = arg;

	assert_false(r->sent);
	r->sent = true;
}

static void ref_over(void *arg, int err)
{
	struct ref *r = arg;

	assert_true(r->sent);
	r->n->dones++;
	r->n->done_errs += err != 0;
	free(r);
}

static const struct lane_ref test_ref = { .sent = ref_sent, .over = ref_over };

/* Send frame @number in a random way; false: queue full. */
static bool send_numbered(struct node *n, struct lane *l, uint8_t type, uint32_t job,
			  uint64_t number)
{
	struct wire_frame f = frame(type, job, number + 1, n->len_of(number));
	struct ref *ref = NULL;
	uint8_t *p;
	int ret;

	switch (rand_r(&seed) % (f.len < LANE_REF_MIN ? 2 : 3)) {
	case 0:
		/* a reservation may be larger than what is used in the end */
		p = lane_reserve(l, f.len < WIRE_MAX_PAYLOAD / 2 ? f.len * 2 : f.len);
		if (!p)
			return false;
		if (rand_r(&seed) % 8 == 0) {
			memset(p, 0xee, f.len);
			lane_cancel(l);
			return false;
		}
		memcpy(p, pattern(number), f.len);
		assert_int_equal(lane_commit(l, &f), 0);
		return true;
	case 1:
		p = malloc(f.len + 1);
		memcpy(p, pattern(number), f.len);
		ret = lane_send(l, &f, p, NULL, NULL);
		free(p);
		break;
	default:
		ref = malloc(sizeof(*ref) + f.len + 1);
		assert_non_null(ref);
		ref->n = n;
		ref->sent = false;
		memcpy(ref->data, pattern(number), f.len);
		ret = lane_send(l, &f, ref->data, &test_ref, ref);
		if (ret)
			free(ref);
	}
	if (ret)
		assert_int_equal(ret, -EAGAIN);
	else if (f.len >= LANE_REF_MIN && ref)
		n->refs++;
	return !ret;
}

static void test_frames(void **state)
{
	struct node a, b;
	struct lane *l;
	uint64_t to_b = 0, to_a = 0;
	const uint64_t n = 700;
	uint32_t job;

	node_start(&a, 1);
	node_start(&b, 2);
	l = open_lane(&a, &b);
	job = open_job(&a, &b, l, 0x11);
	assert_int_equal(a.job_err, 0);
	assert_int_equal(a.ups, 1);
	assert_int_equal(b.ups, 1);
	assert_true(lane_is_opener(a.lane) && !lane_is_opener(b.lane));
	assert_memory_equal(lane_guid(b.lane), a.guid, 16);
	assert_memory_equal(lane_jobid(b.lane, job), lane_jobid(a.lane, job), 16);
	a.len_of = b.len_of = random_len;
	while (a.expect < n || b.expect < n) {
		while (to_b < n && rand_r(&seed) % 8 && send_numbered(&a, l, WIRE_RMA_PUT, job, to_b))
			to_b++;
		while (to_a < n && rand_r(&seed) % 8 &&
		       send_numbered(&b, b.lane, WIRE_RMA_DATA, job, to_a))
			to_a++;
		assert_true(lane_queued(l) < (1 << 20) + (4 << 20) + (1 << 18));
		RUN(&a, &b, true);
		assert_true(loop_run_once(a.loop, 0) >= 0);
		assert_true(loop_run_once(b.loop, 0) >= 0);
	}
	assert_int_equal(a.aborts + b.aborts, 0);
	assert_true(lane_stats(b.lane)->rx_direct > (rdma ? 0 : 1000000));
	if (rdma) {
		assert_string_equal(lane_carrier(l), "verbs");
		assert_string_equal(lane_carrier_why(l), "double0:1");
		assert_true(lane_stats(l)->rdma_tx_bytes > 1000000 && lane_stats(b.lane)->rdma_tx_bytes > 1000000);
	}
	RUN(&a, &b, !lane_queued(l) && !lane_queued(b.lane) && a.dones == a.refs && b.dones == b.refs);
	RUN(&a, &b, lane_stats(l)->tx_bytes == lane_stats(b.lane)->rx_bytes &&
		    lane_stats(l)->rx_bytes == lane_stats(b.lane)->tx_bytes);
	node_stop(&a);
	node_stop(&b);
	assert_int_equal(a.done_errs + b.done_errs, 0);
	assert_int_equal(a.downs, 1);
	assert_int_equal(b.downs, 1);
}

/* Frames that nobody waits for go with others, or when there are enough of them, or in the end by themselves. */
static void test_later(void **state)
{
	struct node a, b;
	uint64_t calls;
	int number = 0;
	struct lane *l;
	uint32_t job;

	node_start(&a, 1);
	node_start(&b, 2);
	l = open_lane(&a, &b);
	job = open_job(&a, &b, l, 0x11);
	for (unsigned int ahead = 3; ahead <= LATER_MOST; ahead += LATER_MOST - 3) {
		RUN(&a, &b, !lane_queued(l));
		calls = lane_stats(l)->tx_calls;
		for (unsigned int i = 0; i < ahead || i < 4; i++, number++) {
			struct wire_frame f = frame(WIRE_RMA_PUT, job, number + 1, random_len(number) % 1000);

			if (i < ahead)
				assert_int_equal(lane_send_later(l, &f, pattern(number)), 0);
			else
				assert_int_equal(lane_send(l, &f, pattern(number), NULL, NULL), 0);
		}
		RUN(&a, &b, b.frames == number);
		assert_int_equal(lane_stats(l)->tx_calls, calls + 1);
	}
	for (int round = 0; round < 2; round++, number++) {
		struct wire_frame f = frame(WIRE_RMA_PUT, job, number + 1, 100);

		assert_int_equal(lane_send_later(l, &f, pattern(number)), 0);
		RUN(&a, &b, b.frames == number + 1);
	}
	node_stop(&a);
	node_stop(&b);
}

/* What was queued before an orderly end arrives; both sides end without an error. */
static void test_close(void **state)
{
	struct node a, b;
	struct lane *l;
	uint64_t n = 0;
	uint32_t job;

	node_start(&a, 1);
	node_start(&b, 2);
	l = open_lane(&a, &b);
	job = open_job(&a, &b, l, 0x11);
	a.len_of = b.len_of = random_len;
	while (n < 300 && lane_queued(l) < 900000)
		n += send_numbered(&a, l, WIRE_RMA_PUT, job, n);
	lane_close(l, 0, NULL);
	assert_int_equal(lane_state(l), LANE_CLOSING);
	assert_int_equal(lane_send(l, &(struct wire_frame){ .type = WIRE_RMA_PUT, .job = job }, NULL,
				   NULL, NULL), -ENOTCONN);
	RUN(&a, &b, a.downs && b.downs);
	assert_int_equal(b.expect, n);
	assert_int_equal(a.last_err, 0);
	assert_int_equal(b.last_err, 0);
	assert_int_equal(b.jobs_closed, 1);
	/* a new lane to the same node afterwards */
	l = open_lane(&a, &b);
	open_job(&a, &b, l, 0x11);
	assert_int_equal(a.job_err, 0);
	/* and one that is dropped */
	lane_close(l, -EIO, "test");
	RUN(&a, &b, a.downs == 2 && b.downs == 2);
	assert_int_equal(a.last_err, -EIO);
	assert_string_equal(a.last_why, "test");
	assert_int_equal(b.last_err, -ECONNRESET);
	node_stop(&a);
	node_stop(&b);
}

static void test_jobs(void **state)
{
	struct wire_frame f;
	struct node a, b;
	struct lane *l;
	uint32_t job, k;

	node_start(&a, 1);
	node_start(&b, 2);
	l = open_lane(&a, &b);
	open_job(&a, &b, l, 0xff);
	assert_int_equal(a.job_err, -ENOENT);
	open_job(&a, &b, l, 0x77);
	assert_int_equal(a.job_err, -EACCES);
	f = frame(WIRE_RMA_PUT, a.job, 1, 0);
	assert_int_equal(lane_send(l, &f, NULL, NULL, NULL), -EPERM);
	job = open_job(&a, &b, l, 0x11);
	assert_int_equal(a.job_err, 0);
	lane_job_set_to(l, job, (void *)&a);
	assert_ptr_equal(lane_job_to(l, job), &a);

	/* replies that come after the job was closed are dropped, large ones too */
	f = frame(WIRE_RMA_DATA, job, 1, 100000);
	assert_int_equal(lane_send(b.lane, &f, b.area, NULL, NULL), 0);
	f = frame(WIRE_RMA_DATA, job, 2, 10);
	assert_int_equal(lane_send(b.lane, &f, b.area, NULL, NULL), 0);
	lane_job_close(l, job);
	assert_null(lane_jobid(l, job));
	k = open_job(&a, &b, l, 0x12);
	assert_int_not_equal(k, job);
	assert_int_equal(a.job_err, 0);
	assert_int_equal(a.frames, 0);
	/* given up while being proven: no callback, and the index comes back */
	lane_job_close(l, lane_job_open(l, a.guid, (uint8_t[32]){ 1 }, job_done, &a));
	k = a.jobs;
	open_job(&a, &b, l, 0x13);
	assert_int_equal(a.jobs, k + 1);
	/* more jobs than there are indices, one after the other: they are used again */
	for (k = 0; k < XPORT_MAX_JOBS + 100; k++) {
		job = open_job(&a, &b, l, 0x20 + k % 16);
		assert_int_equal(a.job_err, 0);
		f = frame(WIRE_RMA_DATA, job, k + 1, 10);
		assert_int_equal(lane_send(b.lane, &f, b.area, NULL, NULL), 0);
		lane_job_close(l, job);
	}
	assert_true(b.jobs_closed >= 100);
	assert_int_equal(a.downs + b.downs, 0);
	node_stop(&a);
	node_stop(&b);
}

static void ponged(void *ctx, int64_t rtt)
{
	*(int64_t *)ctx = rtt;
}

static void test_hold_and_ping(void **state)
{
	struct node a, b;
	struct wire_frame f;
	struct lane *l;
	int64_t rtt = 0;
	uint32_t job, i;

	node_start(&a, 1);
	node_start(&b, 2);
	l = open_lane(&a, &b);
	job = open_job(&a, &b, l, 0x11);
	assert_int_equal(lane_ping(l, ponged, &rtt), 0);
	assert_int_equal(lane_ping(l, ponged, &rtt), -EBUSY);
	RUN(&a, &b, rtt);
	assert_true(rtt > 0);

	lane_hold(b.lane);
	lane_hold(b.lane);
	for (i = 0; i < 1000; i++) {
		f = frame(WIRE_RMA_PUT, job, i + 1, 16);
		assert_int_equal(lane_send(l, &f, a.area, NULL, NULL), 0);
	}
	RUN(&a, &b, !lane_queued(l));
	lane_release(b.lane);
	for (i = 0; i < 50; i++)
		RUN(&a, &b, (loop_run_once(b.loop, 0), true));
	assert_int_equal(b.frames, 0);
	lane_release(b.lane);
	RUN(&a, &b, b.frames == 1000);
	node_stop(&a);
	node_stop(&b);
}

/* Frames held back are delivered before the loop waits: it must come back for the engine. */
static void test_hold_then_sleep(void **state)
{
	struct node a, b;
	struct wire_frame f;
	struct lane *l;
	uint32_t job, i;

	node_start(&a, 1);
	node_start(&b, 2);
	l = open_lane(&a, &b);
	job = open_job(&a, &b, l, 0x11);
	lane_hold(b.lane);
	for (i = 0; i < 10; i++) {
		f = frame(WIRE_RMA_PUT, job, i + 1, 16);
		assert_int_equal(lane_send(l, &f, a.area, NULL, NULL), 0);
	}
	RUN(&a, &b, !lane_queued(l));
	for (i = 0; i < 50; i++)
		assert_true(loop_run_once(b.loop, 1000000) >= 0);
	assert_int_equal(b.frames, 0);
	lane_release(b.lane);
	assert_true(loop_run_once(b.loop, 3000000000) > 0);
	assert_int_equal(b.frames, 10);
	node_stop(&a);
	node_stop(&b);
}

static void test_connect(void **state)
{
	struct node a, b;
	struct prog_addr addr[3];
	struct lane *l;

	node_start(&a, 1);
	node_start(&b, 2);
	/* a closed port, another node (a itself), then the right one */
	memcpy(addr, b.addr, sizeof(addr[0]));
	if (!strcmp(transport, "tcp"))
		addr[0].port = htons(1);
	else
		addr[0].ip[1] = 'z';
	addr[1] = a.addr[0];
	addr[2] = b.addr[0];
	l = lane_open(a.xw, b.guid, addr, 3);
	assert_non_null(l);
	RUN(&a, &b, a.ups && b.ups);
	lane_close(l, 0, NULL);
	RUN(&a, &b, a.downs && b.downs);

	/* nobody there */
	l = lane_open(a.xw, b.guid, addr, 1);
	RUN(&a, &b, a.downs == 2);
	assert_int_equal(a.last_err, -ECONNREFUSED);
	assert_non_null(strstr(a.last_why, "refused"));
	/* only another node */
	l = lane_open(a.xw, b.guid, addr + 1, 1);
	open_job(&a, &b, l, 0x11);
	assert_int_equal(a.job_err, -EHOSTUNREACH);
	RUN(&a, &b, a.downs == 3);
	assert_non_null(strstr(a.last_why, "another node"));
	/* an address of no transport */
	memset(addr, 0, sizeof(addr));
	l = lane_open(a.xw, b.guid, addr, 1);
	RUN(&a, &b, a.downs == 4);
	assert_int_equal(a.last_err, -EADDRNOTAVAIL);
	/* given up at once */
	l = lane_open(a.xw, b.guid, b.addr, 1);
	lane_close(l, 0, NULL);
	RUN(&a, &b, a.downs == 5);
	assert_null(lane_open(a.xw, b.guid, b.addr, 0));
	assert_int_equal(a.ups, 1);
	node_stop(&a);
	node_stop(&b);
}

/* ---- a hand-made peer against node b ------------------------------------------------------ */

struct raw {
	int fd;
	uint8_t guid[16], id[16], nonce[32], greeting[32];
	struct wire_job_auth challenge, proof;
};

static void raw_connect(struct raw *r, struct node *b)
{
	const struct xport_ops *ops = strcmp(transport, "tcp") ? &xport_inproc : &xport_tcp;
	struct sockaddr_storage ss;
	socklen_t len;

	memset(r, 0, sizeof(*r));
	memset(r->guid, 9, sizeof(r->guid));
	auth_id(r->id);
	assert_true(ops->sockaddr(&b->addr[0], &ss, &len));
	r->fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(r->fd >= 0);
	assert_int_equal(connect(r->fd, (struct sockaddr *)&ss, len), 0);
}

/* From another of this machine's addresses. */
static int raw_from(const char *address, const struct node *n)
{
	struct sockaddr_in from = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_storage ss;
	socklen_t len;

	assert_true(fd >= 0);
	assert_int_equal(inet_pton(AF_INET, address, &from.sin_addr), 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_true(n->x->ops->sockaddr(&n->addr[0], &ss, &len));
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, len), 0);
	return fd;
}

static void raw_put(struct raw *r, const struct wire_frame *f, const void *payload)
{
	uint8_t buf[WIRE_HDR_SIZE + 4096];

	wire_encode(f, buf);
	assert_true(f->len <= 4096);
	if (f->len)
		memcpy(buf + WIRE_HDR_SIZE, payload, f->len);
	assert_int_equal(send(r->fd, buf, WIRE_HDR_SIZE + f->len, MSG_NOSIGNAL),
			 WIRE_HDR_SIZE + f->len);
}

/* Exactly @len bytes, while b runs; false: b closed. */
static bool raw_read(struct raw *r, struct node *b, void *buf, size_t len)
{
	size_t got = 0;
	ssize_t n = -1;

	while (got < len) {
		RUN(b, NULL, (n = recv(r->fd, (char *)buf + got, len - got, MSG_DONTWAIT)) >= 0 ||
		    errno != EAGAIN);
		if (n <= 0)
			return false;
		got += n;
	}
	return true;
}

/* But for what is confirmed. */
static bool raw_get(struct raw *r, struct node *b, struct wire_frame *f, void *payload)
{
	uint8_t h[WIRE_HDR_SIZE];

	do {
		if (!raw_read(r, b, h, sizeof(h)))
			return false;
		assert_int_equal(wire_decode(h, WIRE_FROM_ACCEPTOR, f, NULL), 0);
	} while (f->type == WIRE_CONFIRM);
	return !f->len || raw_read(r, b, payload, f->len);
}

static void raw_closed(struct raw *r, struct node *b)
{
	uint8_t buf[4096];
	ssize_t n = -1;

	RUN(b, NULL, (n = recv(r->fd, buf, sizeof(buf), MSG_DONTWAIT)) == 0 ||
	    (n < 0 && errno != EAGAIN));
	close(r->fd);
	RUN(b, NULL, b->downs == b->ups);
}

/* An other version's HELLO may be shorter. */
static void raw_hello(struct raw *r, struct node *b, uint16_t version, const uint8_t *dest)
{
	struct wire_frame f = { .type = WIRE_HELLO, .len = version == WIRE_VERSION ? WIRE_HELLO_SIZE : 48 };
	struct wire_lane_info i = { .kind = WIRE_LANE_NEW, .generation = 1 };
	struct wire_hello_info h = { .version = version };
	uint8_t buf[WIRE_HELLO_SIZE], hello[WIRE_HELLO_SIZE];
	struct auth_keys k;

	memcpy(h.guid, r->guid, 16);
	memcpy(h.dest_guid, dest, 16);
	memcpy(i.id, r->id, 16);
	memcpy(i.dialled, b->addr[0].ip, 16);
	i.dialled_port = ntohs(b->addr[0].port);
	wire_hello_put(buf, &h);
	wire_hello_lane_put(buf + 48, &i);
	memcpy(hello, buf, sizeof(hello));
	raw_put(r, &f, buf);
	assert_true(raw_get(r, b, &f, buf));
	assert_int_equal(f.type, WIRE_HELLO_ACK);
	assert_int_equal(wire_hello_get(buf, &h), 0);
	assert_int_equal(h.version, WIRE_VERSION);
	assert_memory_equal(h.guid, b->guid, 16);
	auth_connection(&k, NULL, NULL, hello, buf);
	memcpy(r->greeting, k.greeting, sizeof(r->greeting));
}

static void raw_open(struct raw *r, struct node *b, uint32_t job, uint8_t id)
{
	struct wire_frame f = { .type = WIRE_JOB_OPEN, .job = job,
				.len = sizeof(struct wire_job_open) };
	struct wire_job_open o;
	struct auth_input in = { .jobid = o.jobid, .nonce_opener = r->nonce,
				 .nonce_acceptor = r->challenge.nonce, .guid_opener = r->guid,
				 .guid_acceptor = b->guid, .greeting = r->greeting };
	uint8_t key[32], mac[32], buf[256];

	memset(key, id, 32);
	memset(o.jobid, id, 16);
	auth_nonce(r->nonce);
	memcpy(o.nonce, r->nonce, 32);
	raw_put(r, &f, &o);
	assert_true(raw_get(r, b, &f, buf));
	assert_int_equal(f.type, WIRE_JOB_CHALLENGE);
	assert_int_equal(f.job, job);
	memcpy(&r->challenge, buf, sizeof(r->challenge));
	auth_mac(mac, AUTH_ACCEPTOR, &in, key);
	assert_memory_equal(mac, r->challenge.mac, 32);
	memcpy(r->proof.nonce, r->challenge.nonce, 32);
	auth_mac(r->proof.mac, AUTH_OPENER, &in, key);
}

static uint8_t raw_prove(struct raw *r, struct node *b, uint32_t job)
{
	struct wire_frame f = { .type = WIRE_JOB_PROOF, .job = job, .len = sizeof(r->proof) };
	uint8_t buf[256];

	raw_put(r, &f, &r->proof);
	return raw_get(r, b, &f, buf) ? f.type : 0;
}

static void raw_ready(struct raw *r, struct node *b)
{
	raw_connect(r, b);
	raw_hello(r, b, WIRE_VERSION, b->guid);
	raw_open(r, b, 1, 0x11);
	assert_int_equal(raw_prove(r, b, 1), WIRE_JOB_ACCEPT);
}

static void test_bad_hello(void **state)
{
	uint8_t zero[4096] = { 0 }, other[16] = { 1, 2, 3 }, hello[48] = { 0 };
	struct wire_frame f = { .type = WIRE_HELLO, .len = 48 };
	struct node b;
	struct raw r;
	int i;

	node_start(&b, 2);
	raw_connect(&r, &b);
	raw_hello(&r, &b, WIRE_VERSION + 1, b.guid);
	raw_closed(&r, &b);
	raw_connect(&r, &b);
	raw_hello(&r, &b, WIRE_VERSION, other);
	raw_closed(&r, &b);
	raw_connect(&r, &b);
	raw_put(&r, &f, hello);
	raw_closed(&r, &b);
	f.type = WIRE_PING;
	f.len = 0;
	raw_connect(&r, &b);
	raw_put(&r, &f, NULL);
	raw_closed(&r, &b);
	for (i = 0; i < 64; i++) {
		raw_connect(&r, &b);
		zero[0] = rand_r(&seed);
		assert_true(send(r.fd, zero, sizeof(zero), MSG_NOSIGNAL) > 0);
		raw_closed(&r, &b);
	}
	/* gone in the middle of it, and still there when b stops */
	raw_connect(&r, &b);
	assert_int_equal(send(r.fd, zero, 10, MSG_NOSIGNAL), 10);
	RUN(&b, NULL, b.x->npending == 1);
	close(r.fd);
	RUN(&b, NULL, !b.x->npending);
	raw_connect(&r, &b);
	RUN(&b, NULL, b.x->npending == 1);
	node_stop(&b);
	close(r.fd);
	assert_int_equal(b.ups, 0);
}

/* Connections that say nothing do not keep others out. */
static void test_silent_crowd(void **state)
{
	struct raw crowd[300], r;
	struct node b;
	char c;
	int i;

	giveup_ns = 1;		/* the peer cannot be asked, and does not come back */
	node_start(&b, 1);
	b.x->crowd.max = b.xw->crowd.max = 256;
	b.x->crowd.grace_ns = 0;
	for (i = 0; i < 300; i++) {
		raw_connect(&crowd[i], &b);
		if (i < 256)
			RUN(&b, NULL, b.x->npending == (unsigned int)i + 1);
	}
	raw_ready(&r, &b);
	/* the first ones went for the last ones */
	RUN(&b, NULL, recv(crowd[0].fd, &c, 1, MSG_DONTWAIT) == 0);
	close(crowd[0].fd);
	assert_int_equal(recv(crowd[299].fd, &c, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	for (i = 1; i < 300; i++)
		close(crowd[i].fd);
	close(r.fd);
	node_stop(&b);
}

/* Nor do those that say HELLO and prove nothing, however many lanes there may be: the oldest goes. */
static void test_unproven_crowd(void **state)
{
	struct raw crowd[20], proven[4], r;
	struct node b;
	char c;
	int i;

	node_start(&b, 1);
	b.x->crowd.max = b.xw->crowd.max = 8;
	b.xw->crowd.grace_ns = 0;
	for (i = 0; i < 4; i++)
		raw_ready(&proven[i], &b);
	for (i = 0; i < 20; i++) {
		raw_connect(&crowd[i], &b);
		raw_hello(&crowd[i], &b, WIRE_VERSION, b.guid);
	}
	assert_int_equal(b.xw->crowd.n, 8);
	for (i = 0; i < 12; i++)
		RUN(&b, NULL, recv(crowd[i].fd, &c, 1, MSG_DONTWAIT) == 0);
	RUN(&b, NULL, b.downs == 12);
	assert_int_equal(recv(crowd[12].fd, &c, 1, MSG_DONTWAIT), -1);
	/* as many as there may be: one more for each that goes, and none for those that have proven a job */
	b.x->max_accepted = b.xw->naccepted;
	raw_ready(&r, &b);
	RUN(&b, NULL, b.downs == 13);
	close(r.fd);
	for (i = 0; i < 20; i++)
		close(crowd[i].fd);
	RUN(&b, NULL, b.xw->naccepted == 4);
	assert_int_equal(b.xw->crowd.n, 0);
	b.x->max_accepted = 4;
	raw_connect(&r, &b);
	struct wire_frame f = { .type = WIRE_HELLO, .len = 48 };
	struct wire_hello_info h = { .version = WIRE_VERSION };
	uint8_t buf[48];

	memcpy(h.dest_guid, b.guid, 16);
	wire_hello_put(buf, &h);
	raw_put(&r, &f, buf);
	RUN(&b, NULL, recv(r.fd, &c, 1, MSG_DONTWAIT) == 0);
	close(r.fd);
	for (i = 0; i < 4; i++) {
		assert_int_equal(recv(proven[i].fd, &c, 1, MSG_DONTWAIT), -1);
		close(proven[i].fd);
	}
	node_stop(&b);
}

/* Strangers make room for strangers of the same address only. */
static void test_crowd_of_one(void **state)
{
	int crowd[40], other, late[2], i;
	struct node b;
	struct raw r;
	char c;

	node_start(&b, 1);
	b.x->crowd.max = b.xw->crowd.max = 16;
	other = raw_from("127.0.0.2", &b);
	RUN(&b, NULL, b.x->npending == 1);
	for (i = 0; i < 40; i++) {
		crowd[i] = raw_from("127.0.0.3", &b);
		if (i < 15)
			RUN(&b, NULL, b.x->npending == i + 2u);
	}
	/* they had no time to say hello yet: who comes later comes again, but for another address one goes at once */
	assert_int_equal(recv(crowd[0], &c, 1, MSG_DONTWAIT), -1);
	RUN(&b, NULL, recv(crowd[39], &c, 1, MSG_DONTWAIT) == 0);
	raw_ready(&r, &b);
	RUN(&b, NULL, recv(crowd[0], &c, 1, MSG_DONTWAIT) == 0);
	b.x->crowd.grace_ns = 0;
	late[0] = raw_from("127.0.0.3", &b);
	late[1] = raw_from("127.0.0.3", &b);
	RUN(&b, NULL, recv(crowd[1], &c, 1, MSG_DONTWAIT) == 0);
	assert_int_equal(recv(other, &c, 1, MSG_DONTWAIT), -1);
	close(late[0]);
	close(late[1]);
	close(r.fd);
	for (i = 0; i < 40; i++)
		close(crowd[i]);
	close(other);
	node_stop(&b);
}

/* A connection from @address that has said nothing yet. */
static void raw_come(struct raw *r, const char *address, const struct node *b)
{
	unsigned int before = b->x->npending;

	memset(r, 0, sizeof(*r));
	memset(r->guid, 9, sizeof(r->guid));
	auth_id(r->id);
	r->fd = raw_from(address, b);
	RUN((struct node *)b, NULL, b->x->npending == before + 1);
}

static void raw_proves(struct raw *r, struct node *b)
{
	raw_hello(r, b, WIRE_VERSION, b->guid);
	raw_open(r, b, 1, 0x11);
	assert_int_equal(raw_prove(r, b, 1), WIRE_JOB_ACCEPT);
}

/* Whoever has proven nothing is kept little of, whatever it asks for: jobs that there are, or not, read or not. */
static void test_little_kept(void **state)
{
	struct wire_frame f = { .type = WIRE_JOB_OPEN, .job = XPORT_MAX_JOBS, .len = sizeof(struct wire_job_open) };
	struct wire_job_open o = { .jobid = { 0 } };
	uint8_t buf[256];
	struct node b;
	struct raw r;

	node_start(&b, 1);
	for (int known = 0; known < 2; known++) {
		memset(o.jobid, known ? 0x11 : 0x77, sizeof(o.jobid));
		raw_connect(&r, &b);
		raw_hello(&r, &b, WIRE_VERSION, b.guid);
		f.job = XPORT_MAX_JOBS;
		raw_put(&r, &f, &o);
		assert_true(raw_get(&r, &b, &f, buf));
		assert_int_equal(f.type, WIRE_JOB_REFUSE);
		assert_int_equal(f.error, EMFILE);
		assert_int_equal(b.lane->njobs, 0);
		/* read, and never confirmed */
		f = (struct wire_frame){ .type = WIRE_JOB_OPEN, .len = sizeof(o) };
		for (int i = 0; i < 4096 && b.lane; i++) {
			f.job = i % 100 + 1;
			raw_put(&r, &f, &o);
			RUN(&b, NULL, !b.lane || recv(r.fd, buf, sizeof(buf), MSG_DONTWAIT) > 0);
			assert_true(!b.lane || b.lane->tx.head - b.lane->tx.tail <= 33 * 1024);
		}
		assert_null(b.lane);
		assert_non_null(strstr(b.last_why, "JOB_OPEN"));
		close(r.fd);
	}
	/* with a job that is proven as many may follow as there may be */
	raw_ready(&r, &b);
	raw_open(&r, &b, XPORT_MAX_JOBS, 0x11);
	assert_int_equal(raw_prove(&r, &b, XPORT_MAX_JOBS), WIRE_JOB_ACCEPT);
	close(r.fd);
	node_stop(&b);
}

/* How many have passed @b's gate, through which none passes but at once. */
static unsigned int passed(struct node *b)
{
	return (b->x->gate.free_at + b->x->gate.each_ns / 2 - loop_now()) / b->x->gate.each_ns;
}

static void gate_for(struct node *b, unsigned int at_once)
{
	b->x->gate.free_at = 0;
	b->x->gate.each_ns = 3600000000000ull;
	b->x->gate.all_ns = at_once * b->x->gate.each_ns;
}

/* What may be said on a lane before a proof. */
static struct wire_frame talk(unsigned int kind, unsigned int i, uint64_t heard)
{
	switch (kind) {
	case 0:
		return (struct wire_frame){ .type = WIRE_PING, .seq = i };
	case 1:
		return (struct wire_frame){ .type = WIRE_CONFIRM };
	default:
		/* an answer to each, which is read and confirmed */
		return i % 2 ? (struct wire_frame){ .type = WIRE_CONFIRM, .seq = heard } :
			       (struct wire_frame){ .type = WIRE_JOB_OPEN, .job = 1, .len = sizeof(struct wire_job_open) };
	}
}

/* Nor does who has proven nothing get the processors by what he says, however little: it is counted as more lanes are, and has an end. */
static void test_talk(void **state)
{
	struct wire_job_open o = { .jobid = { 0 } };
	uint8_t buf[4096];
	struct node b;
	struct raw r;
	unsigned int i;

	memset(o.jobid, 0x11, sizeof(o.jobid));
	for (unsigned int kind = 0; kind < 3; kind++) {
		node_start(&b, 1);
		gate_for(&b, 1000);
		raw_connect(&r, &b);
		raw_hello(&r, &b, WIRE_VERSION, b.guid);
		assert_int_equal(passed(&b), 1);
		for (i = 0; i < 4096 && b.lane; i++) {
			uint64_t frames = b.lane->rx.frames;
			struct wire_frame f = talk(kind, i, b.lane->tx.sent);

			raw_put(&r, &f, &o);
			RUN(&b, NULL, !b.lane || (b.lane->rx.frames > frames && !tx_queued(&b.lane->tx)));
			recv(r.fd, buf, sizeof(buf), MSG_DONTWAIT);
		}
		assert_null(b.lane);
		assert_in_range(i, 200, 512);
		assert_in_range(passed(&b), 12, 17);
		close(r.fd);
		node_stop(&b);
	}
	/* where others have it all nobody says much */
	node_start(&b, 1);
	gate_for(&b, 1);
	raw_connect(&r, &b);
	raw_hello(&r, &b, WIRE_VERSION, b.guid);
	for (i = 0; i < 4096 && b.lane; i++) {
		uint64_t frames = b.lane->rx.frames;
		struct wire_frame f = talk(0, i, 0);

		raw_put(&r, &f, NULL);
		RUN(&b, NULL, !b.lane || b.lane->rx.frames > frames);
	}
	assert_null(b.lane);
	assert_in_range(i, 10, 32);
	close(r.fd);
	node_stop(&b);
}

/* A lane is not kept by a HELLO that comes byte by byte. */
static void test_dribble(void **state)
{
	struct wire_frame f = { .type = WIRE_HELLO, .len = WIRE_HELLO_SIZE };
	uint8_t hello[WIRE_HDR_SIZE + WIRE_HELLO_SIZE] = { 0 };
	struct node b;
	struct raw r;
	unsigned int i;

	node_start(&b, 1);
	gate_for(&b, 1);
	raw_connect(&r, &b);
	wire_encode(&f, hello);
	for (i = 0; i < sizeof(hello) - 1; i++) {
		if (i && !b.x->npending)
			break;
		if (send(r.fd, &hello[i], 1, MSG_NOSIGNAL) != 1)
			break;
		assert_true(loop_run_once(b.loop, 100000000) >= 0);
	}
	assert_in_range(i, 10, sizeof(hello) - 10);
	RUN(&b, NULL, !b.x->npending);
	assert_int_equal(passed(&b), 1);
	close(r.fd);
	node_stop(&b);
}

/* Only so many strangers are served; who proves a job is none, and those from there come before other strangers. */
static void test_bounded(void **state)
{
	struct raw proven, stranger[3], late, gone, peer;
	struct node b;

	node_start(&b, 1);
	raw_ready(&proven, &b);
	/* three at once, and then one an hour */
	b.x->gate.free_at = 0;
	b.x->gate.each_ns = 3600000000000ull;
	b.x->gate.all_ns = 3 * b.x->gate.each_ns;
	for (int i = 0; i < 3; i++)
		raw_come(&stranger[i], "127.0.0.9", &b);
	assert_false(crowd_waits(&b.x->crowd));
	raw_come(&late, "127.0.0.9", &b);
	raw_come(&gone, "127.0.0.8", &b);
	close(gone.fd);
	raw_come(&peer, "127.0.0.1", &b);
	assert_true(crowd_waits(&b.x->crowd));
	/* lanes that are there do not notice, and take nothing */
	raw_open(&proven, &b, 2, 0x11);
	assert_int_equal(raw_prove(&proven, &b, 2), WIRE_JOB_ACCEPT);
	assert_int_equal(b.x->npending, 6);
	/* for each that proves a job another one is served: from a peer's address first, and who has left does not count */
	raw_proves(&stranger[0], &b);
	raw_proves(&peer, &b);
	assert_true(crowd_waits(&b.x->crowd));
	raw_proves(&late, &b);
	RUN(&b, NULL, !crowd_waits(&b.x->crowd));
	assert_int_equal(b.x->npending, 2);
	raw_come(&gone, "127.0.0.8", &b);
	assert_false(crowd_waits(&b.x->crowd));
	close(gone.fd);
	for (int i = 0; i < 3; i++)
		close(stranger[i].fd);
	close(late.fd);
	close(peer.fd);
	close(proven.fd);
	node_stop(&b);
}

/* Nor are more accepted than so many; those before go on. */
static void test_door(void **state)
{
	struct raw first, second;
	struct node b;

	node_start(&b, 1);
	b.x->door.free_at = 0;
	b.x->door.each_ns = 3600000000000ull;
	b.x->door.all_ns = b.x->door.each_ns;
	raw_connect(&first, &b);
	RUN(&b, NULL, b.x->npending == 1);
	raw_connect(&second, &b);
	raw_proves(&first, &b);
	assert_int_equal(b.x->npending, 0);
	b.x->door.all_ns *= 100;
	raw_proves(&second, &b);
	close(first.fd);
	close(second.fd);
	node_stop(&b);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LANES	500u
#else
#define LANES	4000u
#endif

/* Lanes that come at once all come up; some have to come again where there is room for a few only. */
static void come_up(unsigned int lanes, unsigned int room)
{
	uint8_t jobid[WIRE_JOBID_SIZE], key[PROG_JOBKEY_SIZE];
	struct rlimit old;
	struct node a, b;

	old = kit_files(3 * lanes);
	node_start(&a, 1);
	node_start(&b, 2);
	/* both are one thread, on a machine that has other things to do */
	a.x->o.connect_timeout_ns = b.x->o.proof_timeout_ns = 600000000000ull;
	if (room)
		b.x->crowd.max = b.xw->crowd.max = room;
	memset(jobid, 0x11, sizeof(jobid));
	memset(key, 0x11, sizeof(key));
	for (unsigned int i = 0; i < lanes; i++)
		assert_int_equal(lane_job_open(open_lane(&a, &b), jobid, key, job_done, &a), 1);
	/* the first job is proven when most of the work is done */
	for (int last = 0; a.jobs < (int)lanes; last = a.ups + b.ups + a.jobs)
		RUN(&a, &b, a.ups + b.ups + a.jobs > last);
	assert_int_equal(a.job_err, 0);
	assert_int_equal(a.ups, lanes);
	/* who was up may have to go too where there is little room, and comes again */
	if (a.downs || (b.downs && !room))
		fail_msg("%d lanes went: %s; %d: %s", a.downs, a.last_why, b.downs, b.last_why);
	RUN(&a, &b, b.ups - b.downs == (int)lanes);
	assert_int_equal(b.xw->crowd.n, 0);
	node_stop(&a);
	node_stop(&b);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

static void test_many(void **state)
{
	uint64_t start = loop_now();

	come_up(LANES, 0);
	print_message("# %u lanes: %llu ms\n", LANES, (unsigned long long)(loop_now() - start) / 1000000);
	start = loop_now();
	come_up(400, 48);
	print_message("# 400 lanes, room for 48: %llu ms\n", (unsigned long long)(loop_now() - start) / 1000000);
}

static void test_bad_proof(void **state)
{
	struct wire_frame put = frame(WIRE_RMA_PUT, 1, 1, 4);
	struct wire_job_auth old;
	struct node b;
	struct raw r;

	giveup_ns = 1;		/* the peer cannot be asked, and does not come back */
	node_start(&b, 2);
	/* frames without a proof; with one for another job; before the proof */
	raw_connect(&r, &b);
	raw_hello(&r, &b, WIRE_VERSION, b.guid);
	raw_put(&r, &put, "abcd");
	raw_closed(&r, &b);
	assert_int_equal(b.last_err, -EPROTO);
	assert_non_null(strstr(b.last_why, "PUT"));
	raw_ready(&r, &b);
	put.job = 2;
	raw_put(&r, &put, "abcd");
	raw_closed(&r, &b);
	put.job = 1;
	raw_connect(&r, &b);
	raw_hello(&r, &b, WIRE_VERSION, b.guid);
	raw_open(&r, &b, 1, 0x11);
	raw_put(&r, &put, "abcd");
	raw_closed(&r, &b);
	/* a proof nobody asked for */
	raw_connect(&r, &b);
	raw_hello(&r, &b, WIRE_VERSION, b.guid);
	assert_int_equal(raw_prove(&r, &b, 1), 0);
	close(r.fd);
	/* wrong: refused, and the frames after it too */
	raw_connect(&r, &b);
	raw_hello(&r, &b, WIRE_VERSION, b.guid);
	raw_open(&r, &b, 1, 0x11);
	r.proof.mac[31] ^= 1;
	assert_int_equal(raw_prove(&r, &b, 1), WIRE_JOB_REFUSE);
	raw_put(&r, &put, "abcd");
	raw_closed(&r, &b);
	/* the acceptor's own mac sent back */
	raw_connect(&r, &b);
	raw_hello(&r, &b, WIRE_VERSION, b.guid);
	raw_open(&r, &b, 1, 0x11);
	memcpy(r.proof.mac, r.challenge.mac, 32);
	assert_int_equal(raw_prove(&r, &b, 1), WIRE_JOB_REFUSE);
	close(r.fd);
	/* a good proof of an earlier lane, again */
	raw_ready(&r, &b);
	old = r.proof;
	close(r.fd);
	raw_connect(&r, &b);
	raw_hello(&r, &b, WIRE_VERSION, b.guid);
	raw_open(&r, &b, 1, 0x11);
	r.proof = old;
	assert_int_equal(raw_prove(&r, &b, 1), WIRE_JOB_REFUSE);
	close(r.fd);
	/* twice on the same lane */
	raw_ready(&r, &b);
	assert_int_equal(raw_prove(&r, &b, 1), 0);
	close(r.fd);
	assert_int_equal(b.frames, 0);
	RUN(&b, NULL, b.downs == b.ups);
	node_stop(&b);
}

static void test_bad_frames(void **state)
{
	uint8_t buf[WIRE_HDR_SIZE];
	struct wire_frame f, g;
	struct node b;
	struct raw r;
	int i;

	giveup_ns = 1;		/* the peer cannot be asked, and does not come back */
	node_start(&b, 2);
	for (i = 0; i < 200; i++) {
		raw_ready(&r, &b);
		f = frame(WIRE_RMA_PUT, 1, 1, 0);
		wire_encode(&f, buf);
		do
			buf[rand_r(&seed) % WIRE_HDR_SIZE] ^= 1 << rand_r(&seed) % 8;
		while (!wire_decode(buf, WIRE_FROM_OPENER, &g, NULL));
		assert_int_equal(send(r.fd, buf, sizeof(buf), MSG_NOSIGNAL), sizeof(buf));
		raw_closed(&r, &b);
		assert_int_equal(b.last_err, -EPROTO);
	}
	assert_int_equal(b.frames, 0);
	/* frames of the other direction */
	raw_ready(&r, &b);
	f = frame(WIRE_RMA_DATA, 1, 1, 4);
	raw_put(&r, &f, "abcd");
	raw_closed(&r, &b);
	if (!strstr(b.last_why, "DATA") || !strstr(b.last_why, "direction"))
		fail_msg("lane_down says: %s", b.last_why);
	/* goodbye */
	raw_ready(&r, &b);
	f = (struct wire_frame){ .type = WIRE_BYE };
	raw_put(&r, &f, NULL);
	raw_closed(&r, &b);
	RUN(&b, NULL, b.downs == b.ups);
	assert_int_equal(b.last_err, 0);
	node_stop(&b);
}

/* About RDMA, from a peer that has proven a job and lies; and to a daemon that has none. */
static void test_bad_rdma(void **state)
{
	static const struct wire_rdmarec offer = {
		.kind = WIRE_RDMA_OFFER, .link = 1, .mtu = 3, .lid = 7, .round = 1, .gid = { 0xfe, [15] = 1 },
		.qp = { { 999, 1, 32, 4096 }, { 998, 1, 8, 65536 } },
	};
	/* kind 0: without payload; offered: behind an offer */
	static const struct { uint8_t type, kind; bool offered; } lie[] = {
		{ WIRE_RDMA_SWITCH, 0, false },
		{ WIRE_RDMA_END, WIRE_RDMA_ANSWER, false },
		{ WIRE_RDMA_END, WIRE_RDMA_WITHDRAW, false },
		{ WIRE_RDMA_END, 77, false },
		{ WIRE_RDMA_END, WIRE_RDMA_OFFER, true },
		{ WIRE_RDMA_END, WIRE_RDMA_ANSWER, true },
	};
	uint8_t buf[sizeof(struct wire_rdma_end)];
	struct wire_frame f;
	struct node b;
	struct raw r;

	giveup_ns = 1;
	node_start(&b, 2);
	for (size_t i = 0; i < sizeof(lie) / sizeof(lie[0]); i++) {
		struct wire_rdmarec rec = offer;

		raw_ready(&r, &b);
		f = (struct wire_frame){ .type = WIRE_RDMA_END, .len = sizeof(buf) };
		wire_rdma_put(buf, &rec);
		if (lie[i].offered)
			raw_put(&r, &f, buf);
		rec.kind = lie[i].kind;
		wire_rdma_put(buf, &rec);
		f = (struct wire_frame){ .type = lie[i].type, .len = lie[i].kind ? sizeof(buf) : 0 };
		raw_put(&r, &f, buf);
		raw_closed(&r, &b);
		assert_int_equal(b.last_err, -EPROTO);
	}
	/* bytes behind RDMA_SWITCH */
	if (rdma) {
		raw_ready(&r, &b);
		f = (struct wire_frame){ .type = WIRE_RDMA_END, .len = sizeof(buf) };
		wire_rdma_put(buf, &offer);
		raw_put(&r, &f, buf);
		f = (struct wire_frame){ .type = WIRE_RDMA_SWITCH };
		raw_put(&r, &f, NULL);
		f = (struct wire_frame){ .type = WIRE_PING };
		raw_put(&r, &f, NULL);
		raw_closed(&r, &b);
		assert_int_equal(b.last_err, -EPROTO);
	}
	RUN(&b, NULL, b.downs == b.ups);
	node_stop(&b);
}

/* The peer dies at every byte of a stream of two small frames and a large one between them. */
static void test_death(void **state)
{
	const uint32_t big = 9000;
	const size_t total = 3 * WIRE_HDR_SIZE + 8 + big + 8;
	uint8_t *stream = calloc(1, total);
	struct wire_frame f;
	struct node b;
	struct raw r;
	size_t k;
	int expect;

	giveup_ns = 1;		/* the peer cannot be asked, and does not come back */
	node_start(&b, 2);
	f = frame(WIRE_RMA_PUT, 1, 1, 8);
	wire_encode(&f, stream);
	f = frame(WIRE_RMA_PUT, 1, 2, big);
	wire_encode(&f, stream + WIRE_HDR_SIZE + 8);
	f = frame(WIRE_RMA_PUT, 1, 3, 8);
	wire_encode(&f, stream + 2 * WIRE_HDR_SIZE + 8 + big);
	for (k = 0; k <= total; k += k < 200 || k > total - 200 ? 1 : 97) {
		b.frames = b.downs = b.ups = 0;
		raw_ready(&r, &b);
		assert_int_equal(send(r.fd, stream, k, MSG_NOSIGNAL), k);
		close(r.fd);
		RUN(&b, NULL, b.downs == 1);
		expect = (k >= WIRE_HDR_SIZE + 8) + (k >= 2 * WIRE_HDR_SIZE + 8 + big) +
			 (k == total);
		assert_int_equal(b.frames, expect);
		assert_int_equal(b.begins, b.begin_ends + b.aborts);
	}
	assert_true(b.aborts > 0);
	assert_true(b.begins > 50);
	node_stop(&b);
	free(stream);
}

/*
 * A peer that sends requests and does not read the replies: b's queue stays within its limit
 * and b stops reading; when the peer reads, all comes.
 */
static int reply_big(struct node *n, struct lane *l, const struct wire_frame *f)
{
	n->due++;
	reply_due(n, l);
	return 0;
}

static void test_slow_peer(void **state)
{
	struct wire_frame f;
	/* with some payload: fewer requests, and answers, fill the buffers */
	uint8_t buf[WIRE_HDR_SIZE + 1000] = { 0 }, *in = malloc(WIRE_MAX_PAYLOAD);
	struct node b;
	struct raw r;
	size_t off = sizeof(buf);
	uint64_t seq = 0, replies = 0;
	ssize_t n = 0;
	int quiet = 0;

	giveup_ns = 1;		/* the peer cannot be asked, and does not come back */
	node_start(&b, 2);
	b.on_frame = reply_big;
	raw_ready(&r, &b);
	/* until b has taken nothing for a long while */
	while (quiet < 200) {
		if (off == sizeof(buf)) {
			f = frame(WIRE_RMA_PUT, 1, ++seq, sizeof(buf) - WIRE_HDR_SIZE);
			wire_encode(&f, buf);
			off = 0;
		}
		n = send(r.fd, buf + off, sizeof(buf) - off, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			off += n;
		quiet = n > 0 ? 0 : quiet + 1;
		assert_true(loop_run_once(b.loop, n > 0 ? 0 : 1000000) >= 0);
		assert_int_equal(b.downs, 0);
		/* as if it had confirmed them */
		assert_int_equal(tx_confirm(&b.lane->tx, b.lane->tx.sent), 0);
		lane_mark_dirty(b.lane);
		assert_true(lane_queued(b.lane) <= 1 << 20);
		assert_true(seq < 10000000);
	}
	assert_true((uint64_t)b.frames + 20 < seq);
	/* it reads now: every request that was sent whole is answered, in order */
	while (replies < seq) {
		if (off < sizeof(buf)) {
			n = send(r.fd, buf + off, sizeof(buf) - off, MSG_NOSIGNAL | MSG_DONTWAIT);
			if (n > 0)
				off += n;
			if (replies == seq - 1)
				continue;
		}
		assert_true(raw_get(&r, &b, &f, in));
		assert_int_equal(f.type, WIRE_RMA_DATA);
		assert_int_equal(f.seq, ++replies);
		assert_int_equal(tx_confirm(&b.lane->tx, b.lane->tx.sent), 0);
		lane_mark_dirty(b.lane);
	}
	close(r.fd);
	RUN(&b, NULL, b.downs == 1);
	node_stop(&b);
	free(in);
}

/* The sender's side: refused when full, told when there is room. */
static void test_full_queue(void **state)
{
	struct node a, b;
	struct wire_frame f;
	struct lane *l;
	struct ref *ref;
	uint32_t job;
	int ret, quiet, n = 0;

	node_start(&a, 1);
	node_start(&b, 2);
	l = open_lane(&a, &b);
	job = open_job(&a, &b, l, 0x11);
	lane_hold(b.lane);
	/* the sockets take some at first */
	for (quiet = 0; quiet < 200; ) {
		f = frame(WIRE_RMA_PUT, job, n + 1, 50000);
		ret = lane_send(l, &f, a.area, NULL, NULL);
		n += !ret;
		quiet = ret ? quiet + 1 : 0;
		if (ret) {
			assert_int_equal(ret, -EAGAIN);
			assert_null(lane_reserve(l, 50000));
			assert_true(loop_run_once(a.loop, 0) >= 0);
			assert_true(loop_run_once(b.loop, 100000) >= 0);
		}
		assert_true(lane_queued(l) <= 1 << 20);
	}
	/* two frames' worth may be lost to the ring's end */
	assert_true(l->tx.end - l->tx.kept > (1 << 20) - 150000);
	assert_int_equal(b.frames, 0);
	a.writables = 0;
	lane_release(b.lane);
	RUN(&a, &b, a.writables == 1);
	RUN(&a, &b, b.frames == n);
	/* by reference: dropped ones are given back with an error */
	f = frame(WIRE_RMA_PUT, job, n + 1, LANE_REF_MIN);
	ref = calloc(1, sizeof(*ref) + f.len);
	ref->n = &a;
	assert_int_equal(lane_send(l, &f, ref->data, &test_ref, ref), 0);
	f.len = f.total = LANE_REF_MIN - 1;
	assert_int_equal(lane_send(l, &f, ref->data, &test_ref, ref), -EMSGSIZE);
	lane_close(l, -EIO, NULL);
	RUN(&a, &b, a.downs == 1);
	assert_int_equal(a.dones, 1);
	assert_int_equal(a.done_errs, 1);
	node_stop(&a);
	node_stop(&b);
}

/* ---- reassembly alone --------------------------------------------------------------------- */

static bool always(void *ctx)
{
	return true;
}

static int rx_begin_test(void *ctx, const struct wire_frame *f, struct lane_sink *sink)
{
	return begin(ctx, NULL, f, sink);
}

static int rx_end_test(void *ctx, const struct wire_frame *f, const void *payload, void *token)
{
	return end(ctx, NULL, f, payload, token);
}

static void rx_abort_test(void *ctx, const struct wire_frame *f, void *token)
{
	aborted(ctx, NULL, f, token);
}

static void test_chunks(void **state)
{
	static const struct rx_ops ops = { rx_begin_test, rx_end_test, rx_abort_test, always };
	struct node n = { .len_of = random_len, .direct = true };
	const uint64_t frames = 200;
	size_t total = 0, at = 0, want, chunk, part;
	struct wire_frame f;
	struct iovec *iov;
	const char *why;
	uint8_t *stream;
	struct rx rx;
	uint64_t i;
	int round, k, cnt;

	n.area = malloc(WIRE_MAX_PAYLOAD);
	for (i = 0; i < frames; i++)
		total += WIRE_HDR_SIZE + random_len(i);
	stream = malloc(total);
	for (i = 0; i < frames; i++) {
		f = frame(WIRE_RMA_PUT, 1, i + 1, random_len(i));
		wire_encode(&f, stream + at);
		memcpy(stream + at + WIRE_HDR_SIZE, pattern(i), f.len);
		at += WIRE_HDR_SIZE + f.len;
	}
	for (round = 0; round < 12; round++) {
		assert_int_equal(rx_init(&rx, WIRE_FROM_OPENER, &ops, &n), 0);
		n.expect = 0;
		for (at = 0; at < total; ) {
			cnt = rx_iov(&rx, &iov);
			chunk = round < 4 ? rand_r(&seed) % 100 + 1 :
				round < 8 ? rand_r(&seed) % 5000 + 1 : rand_r(&seed) % 400000 + 1;
			if (chunk > total - at)
				chunk = total - at;
			for (k = 0, want = 0; k < cnt && want < chunk; k++) {
				part = chunk - want;
				if (part > iov[k].iov_len)
					part = iov[k].iov_len;
				memcpy(iov[k].iov_base, stream + at + want, part);
				want += part;
			}
			assert_true(want > 0);
			at += want;
			assert_int_equal(rx_input(&rx, want, &why), 0);
		}
		assert_int_equal(n.expect, frames);
		rx_fini(&rx);
	}
	assert_int_equal(n.aborts, 0);
	assert_int_equal(n.begins, n.begin_ends);
	free(stream);
	free(n.area);
}

/* The proof's bytes are part of the protocol; the expected value comes from another HMAC. */
static void test_mac(void **state)
{
	static const uint8_t expect[32] = {
		0x1e, 0xb6, 0x54, 0x4e, 0x0e, 0x7e, 0xe3, 0xc3,
		0xc1, 0x04, 0x42, 0xb3, 0x60, 0x02, 0xe9, 0x1c,
		0x35, 0x22, 0x24, 0x8e, 0x18, 0xdc, 0x2a, 0x3f,
		0xe4, 0xcf, 0x0f, 0x4a, 0x5a, 0x86, 0xb8, 0xa7,
	};
	uint8_t id[16], no[32], na[32], go[16], ga[16], greeting[32], key[32], mac[32];
	struct auth_input in = { id, no, na, go, ga, 0x0102, greeting };

	memset(id, 1, 16);
	memset(no, 2, 32);
	memset(na, 3, 32);
	memset(go, 4, 16);
	memset(ga, 5, 16);
	memset(key, 6, 32);
	memset(greeting, 7, 32);
	auth_mac(mac, AUTH_OPENER, &in, key);
	assert_memory_equal(mac, expect, 32);
	auth_mac(mac, AUTH_ACCEPTOR, &in, key);
	assert_false(auth_equal(mac, expect));
}

static void test_listen_errors(void **state)
{
	struct xport_handlers h = { .frame_end = end, .lane_down = down, .job_key = job_key };
	struct xport_opts o = { .workers = 1, .handlers = &h, .post = post };
	char err[XPORT_ERR];
	struct loop *l;
	struct xport *x;

	assert_int_equal(loop_new(LOOP_EPOLL, &l), 0);
	o.transport = "pigeon";
	assert_int_equal(xport_new(&o, &x, err), -EINVAL);
	assert_non_null(strstr(err, "pigeon"));
	o.transport = "tcp";
	o.workers = PROG_MAX_WORKERS + 1;
	assert_int_equal(xport_new(&o, &x, err), -EINVAL);
	o.workers = 1;
	o.listen = "127.0.0.1, nosuchif0";
	assert_int_equal(xport_new(&o, &x, err), 0);
	assert_int_equal(xport_listen(x, l, err), -EADDRNOTAVAIL);
	assert_non_null(strstr(err, "nosuchif0"));
	xport_free(x);
	o.listen = "192.0.2.77";
	assert_int_equal(xport_new(&o, &x, err), 0);
	assert_int_equal(xport_listen(x, l, err), -EADDRNOTAVAIL);
	assert_non_null(strstr(err, "192.0.2.77"));
	xport_free(x);
	o.listen = "lo";
	assert_int_equal(xport_new(&o, &x, err), 0);
	assert_int_equal(xport_listen(x, l, err), 0);
	assert_true(xport_addrs(x, (struct prog_addr[PROG_MAX_ADDRS]){}) >= 1);
	xport_unlisten(x);
	xport_free(x);
	loop_free(l);
}

static int setup(int kind, const char *t)
{
	loop_kind_used = kind;
	transport = t;
	giveup_ns = 0;
	sealed = rdma = false;
	return 0;
}

static int on_uring_tcp(void **state)
{
	return setup(LOOP_IO_URING, "tcp");
}

static int on_uring_loop(void **state)
{
	return setup(LOOP_IO_URING, "loop");
}

static int on_epoll_tcp(void **state)
{
	return setup(LOOP_EPOLL, "tcp");
}

static int on_epoll_loop(void **state)
{
	return setup(LOOP_EPOLL, "loop");
}

static int on_uring_sealed(void **state)
{
	setup(LOOP_IO_URING, "tcp");
	sealed = true;
	return 0;
}

static int on_epoll_sealed(void **state)
{
	setup(LOOP_EPOLL, "loop");
	sealed = true;
	return 0;
}

static int on_uring_verbs(void **state)
{
	setup(LOOP_IO_URING, "tcp");
	verbs_double_reset();
	rdma = true;
	return 0;
}

static int on_epoll_verbs(void **state)
{
	setup(LOOP_EPOLL, "loop");
	verbs_double_reset();
	rdma = true;
	return 0;
}

/* Nothing of a lane is left with the device. */
static int off_verbs(void **state)
{
	assert_int_equal(verbs_double_open(), 0);
	return 0;
}

/* those without a hand-made peer: sealed as well */
#define PAIR_TESTS(s, off) \
	{ "frames " #s, test_frames, on_##s, off, NULL }, \
	{ "later " #s, test_later, on_##s, off, NULL }, \
	{ "close " #s, test_close, on_##s, off, NULL }, \
	{ "jobs " #s, test_jobs, on_##s, off, NULL }, \
	{ "hold and ping " #s, test_hold_and_ping, on_##s, off, NULL }, \
	{ "hold then sleep " #s, test_hold_then_sleep, on_##s, off, NULL }, \
	{ "connect " #s, test_connect, on_##s, off, NULL }, \
	{ "full queue " #s, test_full_queue, on_##s, off, NULL }

#define TESTS(s) \
	PAIR_TESTS(s, NULL), \
	{ "bad hello " #s, test_bad_hello, on_##s, NULL, NULL }, \
	{ "silent crowd " #s, test_silent_crowd, on_##s, NULL, NULL }, \
	{ "unproven crowd " #s, test_unproven_crowd, on_##s, NULL, NULL }, \
	{ "bad proof " #s, test_bad_proof, on_##s, NULL, NULL }, \
	{ "bad frames " #s, test_bad_frames, on_##s, NULL, NULL }, \
	{ "bad RDMA " #s, test_bad_rdma, on_##s, NULL, NULL }, \
	{ "death " #s, test_death, on_##s, NULL, NULL }, \
	{ "slow peer " #s, test_slow_peer, on_##s, NULL, NULL }

/* they count addresses and descriptors */
#define TCP_TESTS(s) \
	{ "crowd of one " #s, test_crowd_of_one, on_##s, NULL, NULL }, \
	{ "little kept " #s, test_little_kept, on_##s, NULL, NULL }, \
	{ "bounded " #s, test_bounded, on_##s, NULL, NULL }, \
	{ "talk " #s, test_talk, on_##s, NULL, NULL }, \
	{ "dribble " #s, test_dribble, on_##s, NULL, NULL }, \
	{ "door " #s, test_door, on_##s, NULL, NULL }, \
	{ "many " #s, test_many, on_##s, NULL, NULL }

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_chunks),
	cmocka_unit_test(test_mac),
	cmocka_unit_test(test_listen_errors),
	TESTS(epoll_tcp),
	TCP_TESTS(epoll_tcp),
	TESTS(epoll_loop),
	TESTS(uring_tcp),
	TCP_TESTS(uring_tcp),
	TESTS(uring_loop),
	PAIR_TESTS(epoll_sealed, NULL),
	PAIR_TESTS(uring_sealed, NULL),
	PAIR_TESTS(epoll_verbs, off_verbs),
	{ "bad RDMA epoll_verbs", test_bad_rdma, on_epoll_verbs, off_verbs, NULL },
	{ "bad RDMA uring_verbs", test_bad_rdma, on_uring_verbs, off_verbs, NULL },
	PAIR_TESTS(uring_verbs, off_verbs),
};

static int setup_all(void **state)
{
	seed = kit_seed();
	log_set_level(getenv("PROG_LOG") ? log_level() : -1);
	return auth_init();
}

KIT_SUITE(tests, .setup = setup_all);

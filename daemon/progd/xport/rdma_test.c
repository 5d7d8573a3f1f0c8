// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Lanes by RDMA when something fails, between two daemons in one thread, over a double of libibverbs: what comes out of a lane
 * is what went in, once and in order, and it goes by RDMA again afterwards.  PROG_SEED=N repeats a run.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kit/kit.h>

#include <kit/loop.h>
#include <kit/verbs_double.h>
#include <libprogbase/log.h>

#include "xport/lane.h"

#define LIMIT_S	60

static unsigned int seed;
static int loop_kind_used;
static bool sealed;
static const struct verbs_api *plugin = &progd_verbs_api;

struct side {
	struct loop *loop;
	struct xport *x;
	struct xport_worker *xw;
	uint8_t guid[16];
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs;
	struct lane *lane;
	uint64_t sent, got;		/* frames */
	int downs, job_err;
	uint8_t area[WIRE_MAX_PAYLOAD];
};

static struct side a, b;

static uint32_t len_of(uint64_t frame)
{
	uint32_t h = frame * 2654435761u;

	h ^= h >> 15;
	switch (h % 8) {
	case 0: return 0;
	case 1: return h % WIRE_MAX_PAYLOAD;
	case 2: return h % 20000;
	default: return h % 200;
	}
}

/* WIRE_MAX_PAYLOAD bytes of a frame. */
static const uint8_t *pattern(uint64_t frame)
{
	static uint8_t table[65536 + WIRE_MAX_PAYLOAD];

	for (size_t i = 0; !table[1] && i < sizeof(table); i++)
		table[i] = i * 7 + (i >> 8);
	return table + frame * 131 % 65536;
}

static int begin(void *ctx, struct lane *l, const struct wire_frame *f, struct lane_sink *sink)
{
	struct side *s = ctx;

	sink->token = s;
	sink->iov[0] = (struct iovec){ s->area, f->len };
	sink->niov = 1;
	return 0;
}

static int end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload, void *token)
{
	struct side *s = ctx;

	assert_int_equal(f->seq, s->got + 1);
	assert_int_equal(f->len, len_of(s->got));
	if (f->len)
		assert_memory_equal(payload ? payload : s->area, pattern(s->got), f->len);
	s->got++;
	return 0;
}

static void aborted(void *ctx, struct lane *l, const struct wire_frame *f, void *token)
{
}

static void up(void *ctx, struct lane *l)
{
	((struct side *)ctx)->lane = l;
}

static void down(void *ctx, struct lane *l, int err, const char *why)
{
	((struct side *)ctx)->downs++;
	((struct side *)ctx)->lane = NULL;
}

static bool job_key(void *ctx, const uint8_t *jobid, uint8_t *key)
{
	memset(key, 1, PROG_JOBKEY_SIZE);
	return true;
}

static const struct xport_handlers handlers = {
	.frame_begin = begin, .frame_end = end, .frame_abort = aborted, .lane_up = up, .lane_down = down, .job_key = job_key,
};

static int post(void *ctx, unsigned int worker, void (*fn)(void *arg), void *arg)
{
	fn(arg);
	return 0;
}

static void side_start(struct side *s, uint8_t id, bool rdma)
{
	struct xport_opts o = {
		.workers = 1, .transport = "tcp", .listen = "127.0.0.1", .handlers = &handlers, .post = post,
		.encrypt = sealed, .verbs = rdma ? plugin : NULL,
		.verbs_opts = { .devices = "", .gid_index = -1, .quiet_s = 1 }, .rdma_retry_ns = 50000000,
	};
	char err[XPORT_ERR];

	memset(s, 0, sizeof(*s));
	s->loop = kit_loop(loop_kind_used);
	memset(s->guid, id, sizeof(s->guid));
	memcpy(o.guid, s->guid, sizeof(o.guid));
	s->job_err = 1;
	assert_int_equal(xport_new(&o, &s->x, err), 0);
	assert_int_equal(xport_attach(s->x, 0, s->loop, s, &s->xw), 0);
	assert_int_equal(xport_listen(s->x, s->loop, err), 0);
	s->naddrs = xport_addrs(s->x, s->addr);
}

static void side_stop(struct side *s)
{
	xport_unlisten(s->x);
	xport_detach(s->xw, 0);
	xport_free(s->x);
	loop_free(s->loop);
}

static void job_done(void *ctx, struct lane *l, uint32_t job, int err)
{
	((struct side *)ctx)->job_err = err;
}

static void send_to(struct side *s, uint8_t type, uint64_t total)
{
	while (s->lane && s->sent < total && rand_r(&seed) % 16) {
		struct wire_frame f = {
			.type = type, .job = 1, .seq = s->sent + 1, .len = len_of(s->sent), .total = len_of(s->sent),
			.flags = WIRE_F_LAST, .origin = 1, .target = 2, .win = 3,
		};

		if (lane_send(s->lane, &f, pattern(s->sent), NULL, NULL))
			return;
		s->sent++;
	}
}

static void turn(void)
{
	assert_true(loop_run_once(a.loop, 100000) >= 0);
	assert_true(loop_run_once(b.loop, 100000) >= 0);
}

#define UNTIL(cond) do { \
	time_t limit_ = time(NULL) + LIMIT_S; \
	while (!(cond)) { \
		turn(); \
		if (time(NULL) > limit_) \
			fail_msg("did not happen: %s", #cond); \
	} \
} while (0)

static void meet(bool rdma_a, bool rdma_b)
{
	uint8_t jobid[WIRE_JOBID_SIZE] = { 1 }, key[PROG_JOBKEY_SIZE];

	memset(key, 1, sizeof(key));
	side_start(&a, 1, rdma_a);
	side_start(&b, 2, rdma_b);
	a.lane = lane_open(a.xw, b.guid, b.addr, b.naddrs);
	assert_non_null(a.lane);
	assert_int_equal(lane_job_open(a.lane, jobid, key, job_done, &a), 1);
	UNTIL(!a.job_err);
}

static void part(void)
{
	assert_int_equal(a.downs + b.downs, 0);
	side_stop(&a);
	side_stop(&b);
	assert_int_equal(verbs_double_open(), 0);
}

static bool both_by(const char *name)
{
	return a.lane && b.lane && lane_state(a.lane) == LANE_UP && lane_state(b.lane) == LANE_UP &&
	       !strcmp(lane_carrier(a.lane), name) && !strcmp(lane_carrier(b.lane), name);
}

/* @n more frames in each direction, all of which arrive. */
static void exchange(uint64_t n)
{
	uint64_t to_b = a.sent + n, to_a = b.sent + n;
	time_t limit = time(NULL) + LIMIT_S;

	while (b.got < to_b || a.got < to_a) {
		send_to(&a, WIRE_RMA_PUT, to_b);
		send_to(&b, WIRE_RMA_DATA, to_a);
		turn();
		if (time(NULL) > limit)
			fail_msg("%llu of %llu and %llu of %llu frames have come", (unsigned long long)b.got,
				 (unsigned long long)to_b, (unsigned long long)a.got, (unsigned long long)to_a);
	}
	assert_int_equal(b.got, to_b);
	assert_int_equal(a.got, to_a);
}

/* Frames until the fault happens, and some more; then RDMA again. */
static void survive(void)
{
	uint64_t resumes = lane_stats(a.lane)->resumes;
	time_t limit = time(NULL) + LIMIT_S;

	while (!verbs_double_happened()) {
		exchange(20);
		assert_true(time(NULL) <= limit);
	}
	exchange(100);
	UNTIL(lane_stats(a.lane)->resumes > resumes);
	assert_true(lane_stats(b.lane)->resumes > 0);
	verbs_double_port(true);
	UNTIL(both_by("verbs"));
	exchange(100);
	assert_true(both_by("verbs"));
}

static void test_fault(int fault)
{
	meet(true, true);
	UNTIL(both_by("verbs"));
	verbs_double_at(rand_r(&seed) % 100 + 1, fault);
	survive();
	part();
}

static void test_retry(void **state)
{
	test_fault(DOUBLE_RETRY);
}

static void test_rnr(void **state)
{
	test_fault(DOUBLE_RNR);
}

static void test_lost_ack(void **state)
{
	test_fault(DOUBLE_LOST_ACK);
}

static void test_qp_fatal(void **state)
{
	test_fault(DOUBLE_QP_FATAL);
}

static void test_port_down(void **state)
{
	test_fault(DOUBLE_PORT_DOWN);
}

static void test_removed(void **state)
{
	test_fault(DOUBLE_FATAL);
}

/* The driver tells nobody, and waits until the device is closed.  It is, and what was under way comes by TCP. */
static void test_removed_quietly(void **state)
{
	time_t limit = time(NULL) + LIMIT_S;

	meet(true, true);
	UNTIL(both_by("verbs"));
	exchange(100);
	verbs_double_removed(true);
	while (verbs_double_open()) {
		exchange(20);
		assert_true(time(NULL) <= limit);
	}
	assert_true(lane_stats(a.lane)->resumes > 0 && lane_stats(b.lane)->resumes > 0);
	exchange(100);
	assert_true(both_by("tcp"));
	assert_non_null(strstr(lane_carrier_why(a.lane), "double0"));
	verbs_double_removed(false);
	UNTIL(both_by("verbs"));
	exchange(100);
	part();
}

/* While the first messages are under way, some of the lane still is on the connection. */
static void test_early(void **state)
{
	for (int fault = 0; fault <= DOUBLE_QP_FATAL; fault++) {
		verbs_double_reset();
		verbs_double_at(1 + fault % 3, fault);
		meet(true, true);
		exchange(200);
		UNTIL(verbs_double_happened());
		exchange(50);
		part();
	}
}

/* What no honest peer says. */
static void test_lies(void **state)
{
	static const uint32_t bits[] = { 0x8000u << 16, 0x40u << 16, 0xffu << 8, 0xffu };

	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
		verbs_double_reset();
		meet(true, true);
		UNTIL(both_by("verbs"));
		verbs_double_alter(rand_r(&seed) % 50 + 1, bits[i]);
		while (!verbs_double_happened())
			exchange(20);
		exchange(100);
		part();
	}
}

/* What cannot be had: the lane goes by TCP, and says why. */
static void test_scarce(void **state)
{
	for (int what = 0; what < 12; what++) {
		int n = what % 2 + 1;
		struct verbs_double_fails f = { -1, -1, -1, -1, -1, -1 };
		int *const each[] = { &f.reg_mr, &f.create_cq, &f.create_srq, &f.create_qp, &f.modify_qp, &f.post_recv };

		verbs_double_reset();
		*each[what / 2] = n * (what / 2 == 5 ? 30 : what / 2 == 4 ? 3 : 1);
		verbs_double_fail(&f);
		meet(true, true);
		exchange(100);
		UNTIL(*lane_carrier_why(a.lane));
		part();
	}
}

/* Queues that are short, and no inline data: it goes by RDMA all the same, or says why not. */
static void test_short(void **state)
{
	static const int cqe[] = { 128, 100 };

	for (int i = 0; i < 2; i++) {
		verbs_double_reset();
		verbs_double_limits(cqe[i], 64, false);
		meet(true, true);
		if (!i)
			UNTIL(both_by("verbs"));
		else
			UNTIL(strstr(lane_carrier_why(a.lane), "too short"));
		exchange(300);
		assert_true(both_by(i ? "tcp" : "verbs"));
		part();
	}
}

/* Who has none, and who must not. */
static void test_without(void **state)
{
	for (int i = 0; i < 4; i++) {
		verbs_double_reset();
		sealed = i == 3;
		meet(i != 0, i != 1);
		if (i == 2) {
			UNTIL(both_by("verbs"));
		} else {
			exchange(50);
			assert_true(both_by("tcp"));
			assert_int_equal(verbs_double_messages(), 0);
		}
		part();
	}
	sealed = false;
}

/* RoCE: the port that has the connection's address. */
static void test_roce(void **state)
{
	static const uint8_t own[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 }, another[16] = { [10] = 0xff, 0xff, 127, 0, 0, 9 };

	verbs_double_ethernet(own);
	meet(true, true);
	UNTIL(both_by("verbs"));
	exchange(50);
	part();
	verbs_double_reset();
	verbs_double_ethernet(another);
	meet(true, true);
	UNTIL(strstr(lane_carrier_why(a.lane), "no RoCE v2 address"));
	exchange(50);
	assert_true(both_by("tcp"));
	part();
}

/* Nothing is sent: what has to be said is, and buffers do not run out. */
static void test_quiet(void **state)
{
	uint64_t n;

	meet(true, true);
	UNTIL(both_by("verbs"));
	exchange(10);
	n = verbs_double_messages();
	UNTIL(verbs_double_messages() >= n + 4);
	exchange(10);
	assert_true(both_by("verbs"));
	assert_int_equal(lane_stats(a.lane)->resumes, 0);
	part();
}

static unsigned int ticks;

static bool count_tick(struct verbs *v)
{
	ticks++;
	return false;
}

/* Lanes that end look at what has come: no second has passed by that, for which endpoints wait that end or were quiet. */
static void test_end_is_no_tick(void **state)
{
	struct verbs_api counted = progd_verbs_api;
	unsigned int n;

	counted.tick = count_tick;
	plugin = &counted;
	ticks = 0;
	meet(true, true);
	UNTIL(both_by("verbs"));
	/* the clocks of both have asked, and do not any more */
	UNTIL(ticks >= 2);
	exchange(10);
	n = ticks;
	lane_close(a.lane, 0, NULL);
	UNTIL(a.downs && b.downs);
	assert_int_equal(ticks, n);
	side_stop(&a);
	side_stop(&b);
	assert_int_equal(verbs_double_open(), 0);
	plugin = &progd_verbs_api;
}

/* ---- the plug-in alone ---- */

static void *no_watch(void *ctx, int fd, void (*cb)(void *arg), void *arg)
{
	return ctx;
}

static void no_unwatch(void *ctx, void *w)
{
}

static void nothing(void *ep_ctx)
{
}

static void no_failure(void *ep_ctx, const char *why)
{
	fail_msg("%s", why);
}

static const struct verbs_host no_host = {
	.watch = no_watch, .unwatch = no_unwatch, .input = nothing, .room = nothing, .failed = no_failure,
	.way_failed = no_failure,
};

static void test_bad_ends(void **state)
{
	static const struct verbs_opts o = { .devices = "", .gid_index = -1, .quiet_s = 1 };
	static const uint8_t local[16];
	const struct verbs_api *api = &progd_verbs_api;
	struct verbs_end mine, bad[12];
	char why[VERBS_WHY];
	struct verbs_ep *e;
	struct verbs *v;
	int ctx;

	assert_int_equal(api->open(&o, &no_host, &ctx, &v), 0);
	assert_int_equal(api->ep_new(v, local, &ctx, &mine, &e, why), 0);
	for (size_t i = 0; i < 12; i++)
		bad[i] = mine;
	bad[0].link = VERBS_LINK_ETH;
	bad[1].link = 0;
	bad[2].mtu = 0;
	bad[3].mtu = 6;
	bad[4].lid = 0;
	bad[5].gid[3] ^= 1;
	bad[6].qp[0].qpn = 0;
	bad[7].qp[1].qpn = 1 << 24;
	bad[8].qp[0].psn = 1 << 24;
	bad[9].qp[1].buffers = 0;
	bad[10].qp[0].buffers = VERBS_BUFFERS_MAX + 1;
	bad[11].qp[1].size = 1;
	for (size_t i = 0; i < 12; i++) {
		why[0] = '\0';
		if (!api->ep_connect(e, &bad[i], why))
			fail_msg("end %zu was taken", i);
		assert_true(why[0]);
	}
	assert_int_equal(api->ep_connect(e, &mine, why), 0);
	assert_int_equal(api->ep_connect(e, &mine, why), -EISCONN);
	api->ep_free(e);
	while (api->tick(v))
		;
	assert_int_equal(verbs_double_open(), 0);
	api->close(v);
}

/* One end is connected long before the other one, on a busy machine: nothing is sent to where nobody is yet. */
static void test_late_end(void **state)
{
	static const struct verbs_opts o = { .devices = "", .gid_index = -1, .quiet_s = 1 };
	static const uint8_t local[16];
	const struct verbs_api *api = &progd_verbs_api;
	struct verbs_end first_end, late_end;
	struct verbs_ep *first, *late;
	char why[VERBS_WHY], got = 0;
	struct iovec out = { "x", 1 }, in = { &got, 1 };
	uint64_t sent = verbs_double_messages();
	struct verbs *v;
	int ctx;

	assert_int_equal(api->open(&o, &no_host, &ctx, &v), 0);
	assert_int_equal(api->ep_new(v, local, &ctx, &first_end, &first, why), 0);
	assert_int_equal(api->ep_new(v, local, &ctx, &late_end, &late, why), 0);
	assert_int_equal(api->ep_connect(first, &late_end, why), 0);
	for (int i = 0; i < 5; i++) {
		api->tick(v);
		assert_true(api->ep_quiet(first));
	}
	assert_int_equal(api->ep_connect(late, &first_end, why), 0);
	assert_int_equal(api->ep_send(late, &out, 1), 1);
	while (!api->ep_recv(first, &in, 1))
		api->tick(v);
	assert_int_equal(got, 'x');
	/* and from now on each asks for the other */
	while (verbs_double_messages() < sent + 4)
		api->tick(v);
	api->ep_free(first);
	api->ep_free(late);
	while (api->tick(v))
		;
	assert_int_equal(verbs_double_open(), 0);
	api->close(v);
}

#define MAPPED(a, b)	{ [10] = 0xff, 0xff, 10, 0, a, b }

/* Which port of which device, and which GID of it; or all reasons why none. */
static void test_which(void **state)
{
	static const struct verbs_double_port ports[] = {
		{ "eth0", .ethernet = true,
		  .gid = { { { 0xfe, 0x80, [15] = 1 }, true }, { MAPPED(0, 1), false }, { MAPPED(0, 1), true } } },
		{ "eth0", .ethernet = true, .gid = { { MAPPED(1, 1), true } } },
		{ "eth00", .ethernet = true, .gid = { { MAPPED(2, 1), false } } },
		{ "ib0", .gid = { { { 0xfe, 0x80, [15] = 2 } }, { { 0xfe, 0x80, [15] = 3 } } } },
		{ "ib1", .down = true },
		{ "iw0", .iwarp = true },
	};
	static const struct {
		const char *devices;
		int gid_index;
		uint8_t local[16];
		const char *port;	/* NULL: none */
		uint8_t gid[16];
		const char *why;
	} t[] = {
		/* the one with the connection's address, and its entry of version 2 */
		{ "", -1, MAPPED(0, 1), .port = "eth0:1", .gid = MAPPED(0, 1) },
		{ "", -1, MAPPED(1, 1), .port = "eth0:2", .gid = MAPPED(1, 1) },
		/* else InfiniBand: RoCE with another address has to be named */
		{ "", -1, MAPPED(7, 7), .port = "ib0:1", .gid = { 0xfe, 0x80, [15] = 2 } },
		{ "", 1, MAPPED(7, 7), .port = "ib0:1", .gid = { 0xfe, 0x80, [15] = 3 } },
		{ "eth0", -1, MAPPED(7, 7), .port = "eth0:1", .gid = { 0xfe, 0x80, [15] = 1 } },
		{ "eth0:2", -1, MAPPED(7, 7), .port = "eth0:2", .gid = MAPPED(1, 1) },
		{ "eth0:2", -1, MAPPED(0, 1), .port = "eth0:2", .gid = MAPPED(1, 1) },
		{ "iw0,eth0:1 ib0", -1, MAPPED(7, 7), .port = "ib0:1", .gid = { 0xfe, 0x80, [15] = 2 } },
		{ "iw0,eth0:1 ib0", -1, MAPPED(0, 1), .port = "eth0:1", .gid = MAPPED(0, 1) },
		/* an entry that is told is taken, of whatever version */
		{ "eth0:1", 1, MAPPED(7, 7), .port = "eth0:1", .gid = MAPPED(0, 1) },
		{ "eth0", 2, MAPPED(7, 7), .port = "eth0:1", .gid = MAPPED(0, 1) },
		/* none: why not, of those that are named */
		{ "eth", -1, MAPPED(0, 1), .why = "no RDMA device of those in net_devices" },
		{ "eth0:3", -1, MAPPED(0, 1), .why = "no RDMA device of those in net_devices" },
		{ "eth0:1x, eth0:", -1, MAPPED(0, 1), .why = "no RDMA device of those in net_devices" },
		{ "ib1", -1, MAPPED(0, 1), .why = "ib1:1: the port is down" },
		{ "ib1 eth00 iw0", -1, MAPPED(2, 1),
		  .why = "eth00:1: no RoCE v2 address; ib1:1: the port is down; iw0: is no InfiniBand or RoCE device" },
		{ "eth0:2", 1, MAPPED(1, 1), .why = "eth0:2: no GID 1" },
		{ "ib0", 3, MAPPED(1, 1), .why = "ib0:1: no GID 3" },
	};
	const struct verbs_api *api = &progd_verbs_api;

	verbs_double_ports(ports, sizeof(ports) / sizeof(ports[0]));
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct verbs_opts o = { .devices = t[i].devices, .gid_index = t[i].gid_index, .quiet_s = 1 };
		char why[VERBS_WHY] = "";
		struct verbs_end mine;
		struct verbs_ep *e;
		struct verbs *v;
		int ctx, ret;

		assert_int_equal(api->open(&o, &no_host, &ctx, &v), 0);
		ret = api->ep_new(v, t[i].local, &ctx, &mine, &e, why);
		if (ret && t[i].port)
			fail_msg("%zu: %s", i, why);
		if (ret) {
			assert_string_equal(why, t[i].why);
		} else {
			assert_non_null(t[i].port);
			assert_string_equal(api->ep_name(e), t[i].port);
			assert_memory_equal(mine.gid, t[i].gid, 16);
			assert_int_equal(mine.link, t[i].port[0] == 'e' ? VERBS_LINK_ETH : VERBS_LINK_IB);
			api->ep_free(e);
			while (api->tick(v))
				;
		}
		/* none of those that were looked at stays open */
		assert_int_equal(verbs_double_open(), 0);
		api->close(v);
	}
	verbs_double_reset();
}

/* Packets are as long as the port takes (1024 bytes), or what was told if that is less: the next shorter one that there is. */
static void test_mtu(void **state)
{
	static const struct {
		unsigned int told;
		uint8_t mtu;
	} t[] = { { 0, 3 }, { 4096, 3 }, { 1024, 3 }, { 1023, 2 }, { 512, 2 }, { 257, 1 }, { 256, 1 }, { 1, 1 } };
	static const uint8_t local[16];
	const struct verbs_api *api = &progd_verbs_api;

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct verbs_opts o = { .devices = "", .gid_index = -1, .mtu = t[i].told, .quiet_s = 1 };
		char why[VERBS_WHY];
		struct verbs_end mine;
		struct verbs_ep *e;
		struct verbs *v;
		int ctx;

		assert_int_equal(api->open(&o, &no_host, &ctx, &v), 0);
		assert_int_equal(api->ep_new(v, local, &ctx, &mine, &e, why), 0);
		assert_int_equal(mine.mtu, t[i].mtu);
		api->ep_free(e);
		while (api->tick(v))
			;
		api->close(v);
	}
}

static int on_epoll(void **state)
{
	verbs_double_reset();
	loop_kind_used = LOOP_EPOLL;
	return 0;
}

static int on_uring(void **state)
{
	verbs_double_reset();
	loop_kind_used = LOOP_IO_URING;
	return 0;
}

#define BOTH(name) \
	{ #name " epoll", test_##name, on_epoll, NULL, NULL }, \
	{ #name " uring", test_##name, on_uring, NULL, NULL }

static const struct CMUnitTest tests[] = {
	{ "bad ends", test_bad_ends, on_epoll, NULL, NULL },
	{ "a late end", test_late_end, on_epoll, NULL, NULL },
	{ "which", test_which, on_epoll, NULL, NULL },
	{ "mtu", test_mtu, on_epoll, NULL, NULL },
	BOTH(retry), BOTH(rnr), BOTH(lost_ack), BOTH(qp_fatal), BOTH(port_down), BOTH(removed), BOTH(removed_quietly), BOTH(early),
	BOTH(lies), BOTH(scarce), BOTH(short), BOTH(without), BOTH(roce), BOTH(quiet),
	BOTH(end_is_no_tick),
};

static int setup_all(void **state)
{
	seed = kit_seed();
	log_set_level(getenv("PROG_LOG") ? log_level() : -1);
	return auth_init();
}

KIT_SUITE(tests, .setup = setup_all);

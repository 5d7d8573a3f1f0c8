// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The message engine of node B against hand-made frames of a peer that is this test: what a well-behaved one
 * never sends, and what may come too late.
 *
 *	ranks 0, 1: "node A", this test ==== in-process lanes ==== node B, ranks 2, 3
 */
#include <kit/rndv.h>

static struct {
	struct loop *loop;
	struct xport *x;
	struct xport_worker *xw;
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs;
	struct lane *lane;		/* opened by this test */
	struct lane *in;		/* opened by node B */
	uint32_t job;
	bool ready;
	unsigned int downs;
	struct wire_frame got[64];	/* but for DATA */
	unsigned int ngot;
	uint64_t data_bytes;
	uint8_t last[WIRE_MAX_PAYLOAD];	/* payload of the last frame */
} t;

static int on_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload, void *token)
{
	if (f->type == WIRE_RNDV_DATA)
		t.data_bytes += f->len;
	if (t.ngot < 64)
		t.got[t.ngot++] = *f;
	if (payload)
		memcpy(t.last, payload, f->len);
	return 0;
}

static void on_up(void *ctx, struct lane *l)
{
	if (!lane_is_opener(l))
		t.in = l;
}

static void on_down(void *ctx, struct lane *l, int err, const char *why)
{
	t.downs++;
	if (l == t.lane)
		t.lane = NULL;
	if (l == t.in)
		t.in = NULL;
}

static bool key_of(void *ctx, const uint8_t *id, uint8_t *key)
{
	memcpy(key, jobkey, sizeof(jobkey));
	return true;
}

static const struct xport_handlers handlers = {
	.frame_end = on_end, .lane_up = on_up, .lane_down = on_down, .job_key = key_of,
};

static void go(void)
{
	loop_run_once(t.loop, 0);
	loop_run_once(node_b.k.loop, 0);
	link_poll(node_b.k.link);
}

#define UNTIL(cond) RUN_FOR(go, 20, cond)

static void rest(void)
{
	for (int i = 0; i < 200; i++)
		go();
}

static void job_ready(void *ctx, struct lane *l, uint32_t index, int err)
{
	assert_int_equal(err, 0);
	t.ready = true;
}

static void job_answered(void *ctx, struct lane *l, uint32_t index, int err)
{
	t.ready = !err;
}

static void open_lane(void)
{
	t.ready = false;
	t.lane = lane_open(t.xw, node_b.guid, node_b.k.addr, node_b.k.naddrs);
	assert_non_null(t.lane);
	t.job = lane_job_open(t.lane, jobid, jobkey, job_ready, NULL);
	UNTIL(t.ready);
}

static int setup(void **state)
{
	struct xport_opts xo = { .workers = 1, .transport = "loop", .handlers = &handlers,
				 .post = kit_post };
	char err[XPORT_ERR];
	const char *why;

	memset(&t, 0, sizeof(t));
	log_set_level(PROG_LOG_ERROR - 1);
	make_node(&node_b);
	memcpy(xo.guid, node_a.guid, 16);
	assert_int_equal(loop_new(LOOP_EPOLL, &t.loop), 0);
	assert_int_equal(xport_new(&xo, &t.x, err), 0);
	assert_int_equal(xport_attach(t.x, 0, t.loop, NULL, &t.xw), 0);
	assert_int_equal(xport_listen(t.x, t.loop, err), 0);
	node_a.k.naddrs = xport_addrs(t.x, node_a.k.addr);
	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &job, &why), 0);
	make_client(&clients[2], 2, true);
	make_client(&clients[3], 3, false);
	open_lane();
	return 0;
}

static int teardown(void **state)
{
	free_client(&clients[2]);
	free_client(&clients[3]);
	win_job_get(job);
	if (win_job_leave(job))
		link_job_gone(node_b.k.link, job);
	win_job_put(job);
	rest();
	xport_unlisten(t.x);
	xport_detach(t.xw, 0);
	xport_free(t.x);
	loop_free(t.loop);
	free_node(&node_b);
	return 0;
}

static void send_frame(struct lane *l, struct wire_frame *f, const void *payload)
{
	assert_int_equal(lane_send(l, f, payload, NULL, NULL), 0);
}

static struct wire_frame frame(uint8_t type, uint32_t origin, uint32_t target, uint32_t slot,
			       uint32_t serial)
{
	return (struct wire_frame){
		.type = type, .job = t.job, .win = KEY, .origin = origin, .target = target,
		.disp = WIRE_RNDV_ID(slot, serial),
	};
}

static void say_rts(uint32_t src, uint32_t dst, uint32_t slot, uint32_t serial, uint64_t ord, uint64_t len)
{
	struct wire_frame f = frame(WIRE_RNDV_RTS, src, dst, slot, serial);
	struct wire_rtsrec rec = { .comm = 9, .ord = ord, .tag = -3, .gen = 1, .len = len };
	uint8_t buf[sizeof(struct wire_rts)];

	wire_rts_put(buf, &rec);
	f.len = sizeof(buf);
	send_frame(t.lane, &f, buf);
}

/* .. whose bytes come with it: @n of them. */
static void say_short(uint32_t src, uint32_t dst, uint32_t slot, uint32_t serial, uint64_t ord, uint64_t len, const uint8_t *data,
		      uint32_t n)
{
	struct wire_frame f = frame(WIRE_RNDV_RTS, src, dst, slot, serial);
	struct wire_rtsrec rec = { .comm = 9, .ord = ord, .tag = -3, .gen = 1, .len = len };
	uint8_t buf[sizeof(struct wire_rts) + WIRE_RTS_DATA_MAX];

	wire_rts_put(buf, &rec);
	memcpy(buf + sizeof(struct wire_rts), data, n);
	f.len = (uint32_t)sizeof(struct wire_rts) + n;
	send_frame(t.lane, &f, buf);
}

static void get(uint32_t src, uint32_t dst, uint32_t slot, uint32_t serial, uint64_t token, uint64_t off,
		 uint64_t end)
{
	struct wire_frame f = frame(WIRE_RNDV_GET_REQ, src, dst, slot, serial);

	f.seq = token;
	f.off = off;
	f.total = end;
	send_frame(t.lane, &f, NULL);
}

static void ats(uint32_t src, uint32_t dst, uint32_t slot, uint32_t serial, uint64_t token, int status)
{
	struct wire_frame f = frame(WIRE_RNDV_ATS, src, dst, slot, serial);
	struct wire_atsrec rec = { .status = -status };
	uint8_t buf[sizeof(struct wire_ats)];

	wire_ats_put(buf, &rec);
	f.len = sizeof(buf);
	f.seq = token;
	send_frame(t.lane, &f, buf);
}

/* The frame of @type that came last; fails if there is none. */
static struct wire_frame *got(uint8_t type)
{
	for (unsigned int i = t.ngot; i--;)
		if (t.got[i].type == type)
			return &t.got[i];
	fail_msg("no %s frame", wire_type_name(type));
	return NULL;
}

static unsigned int count(uint8_t type)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < t.ngot; i++)
		n += t.got[i].type == type;
	return n;
}

/* ---- what the sender's side is asked ---- */

static void expect_refusal(uint64_t token, int err)
{
	unsigned int before = count(WIRE_RNDV_REFUSE);

	UNTIL(count(WIRE_RNDV_REFUSE) > before);
	assert_int_equal(got(WIRE_RNDV_REFUSE)->seq, token);
	assert_int_equal(got(WIRE_RNDV_REFUSE)->error, -err);
	assert_int_equal(t.data_bytes, 0);
}

static void test_get_refused(void **state)
{
	static uint8_t mem[5000];
	struct buf b = { .place = PRIVATE, .mem = mem, .count = 5000, .len = 5000 };
	uint32_t s = post_slot(&clients[2], PROG_P2P_SEND, 0, kit_key(2, 0, 1), &b, false);
	uint32_t here = post_slot(&clients[2], PROG_P2P_SEND, 0, kit_key(2, 3, 1), &b, false);
	uint32_t r = post_slot(&clients[2], PROG_P2P_RECV, 0, kit_key(0, 2, 1), &b, false);
	uint32_t serial = slot_of(2, s)->serial;

	get(2, 0, s, serial + 1, 1, 0, 5000);
	expect_refusal(1, -ESTALE);
	get(2, 0, PROG_P2P_SLOTS, serial, 2, 0, 5000);
	expect_refusal(2, -EINVAL);
	get(2, 0, r, slot_of(2, r)->serial, 3, 0, 5000);
	expect_refusal(3, -ESTALE);
	get(2, 0, s, serial, 4, 0, 5001);
	expect_refusal(4, -ERANGE);
	get(2, 0, s, serial, 5, 1, 5000);
	expect_refusal(5, -EINVAL);
	/* a SEND for another rank, and one for a rank that is not of this node */
	get(2, 1, s, serial, 6, 0, 5000);
	expect_refusal(6, -EACCES);
	get(2, 3, here, slot_of(2, here)->serial, 7, 0, 5000);
	expect_refusal(7, -EACCES);
	/* no such rank here, no such window */
	get(1, 0, s, serial, 8, 0, 5000);
	expect_refusal(8, -ESRCH);
	slot_of(2, s)->dtype_len = 64;
	slot_of(2, s)->dtype = ARENA;
	get(2, 0, s, serial, 9, 0, 5000);
	expect_refusal(9, -EINVAL);
	assert_true(strstr(clients[2].bad, "outside the arena"));
	slot_of(2, s)->dtype = ~0ull;
	/* and it is served all the same when all is right; once */
	get(2, 0, s, serial, 10, 0, 3000);
	UNTIL(t.data_bytes == 3000);
	get(2, 0, s, serial, 11, 0, 3000);
	UNTIL(count(WIRE_RNDV_REFUSE) == 10);
	get(2, 0, s, serial, 10, 2000, 5000);
	UNTIL(count(WIRE_RNDV_REFUSE) == 11);
	get(2, 0, s, serial, 10, 3000, 5000);
	UNTIL(t.data_bytes == 5000);
	ats(2, 0, s, serial, 77, 0);
	UNTIL(DONE(2, s));
	assert_int_equal(slot_of(2, s)->status, 0);
	UNTIL(count(WIRE_RNDV_ATS_ACK) == 1);
	assert_int_equal(got(WIRE_RNDV_ATS_ACK)->seq, 77);
}

/* Nobody is woken for the end of a SEND that nobody waits for, but for an error. */
static void test_quiet(void **state)
{
	static uint8_t mem[100];
	struct buf b = { .place = PRIVATE, .mem = mem, .count = 100, .len = 100 };

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t s = post_slot(&clients[2], PROG_P2P_SEND, 0, kit_key(2, 0, i + 1), &b, false), event;

		slot_of(2, s)->hints = i % 2 ? PROG_P2PH_QUIET : 0;
		rest();
		event = __atomic_load_n(&clients[2].seg->event, __ATOMIC_RELAXED);
		ats(2, 0, s, slot_of(2, s)->serial, i + 1, i < 2 ? 0 : -EFAULT);
		UNTIL(DONE(2, s));
		UNTIL(count(WIRE_RNDV_ATS_ACK) == i + 1);
		rest();
		assert_int_equal(__atomic_load_n(&clients[2].seg->event, __ATOMIC_RELAXED) - event, i != 1);
	}
}

static void test_ats_refused(void **state)
{
	static uint8_t mem[100];
	struct buf b = { .place = PRIVATE, .mem = mem, .count = 100, .len = 100 };
	uint32_t s = post_slot(&clients[2], PROG_P2P_SEND, 0, kit_key(2, 0, 1), &b, false);
	uint32_t here = post_slot(&clients[2], PROG_P2P_SEND, 0, kit_key(2, 3, 1), &b, false);
	uint32_t serial = slot_of(2, s)->serial;

	/* all are answered, none but the right one counts */
	ats(2, 0, s, serial - 1, 1, 0);
	ats(2, 1, s, serial, 2, 0);
	ats(2, 3, here, slot_of(2, here)->serial, 3, 0);
	ats(2, 0, 5000, serial, 4, 0);
	ats(1, 0, s, serial, 5, 0);
	UNTIL(count(WIRE_RNDV_ATS_ACK) == 5);
	assert_int_equal(state_of(2, s), PROG_P2P_POSTED);
	assert_int_equal(state_of(2, here), PROG_P2P_POSTED);
	ats(2, 0, s, serial, 6, -EFAULT);
	UNTIL(DONE(2, s));
	assert_int_equal(slot_of(2, s)->status, -EFAULT);
	/* again: from a lane that was thought lost */
	ats(2, 0, s, serial, 6, 0);
	UNTIL(count(WIRE_RNDV_ATS_ACK) == 7);
	assert_int_equal(slot_of(2, s)->status, -EFAULT);
	assert_int_equal(t.downs, 0);
}

/* ---- what the receiver's side is told ---- */

static void test_rts_refused(void **state)
{
	static uint8_t mem[1000];
	struct buf b = { .place = PRIVATE, .mem = mem, .count = 1000, .len = 1000 };
	struct wire_frame f = frame(WIRE_RNDV_RTS, 0, 2, 1, 1);
	uint8_t bytes[sizeof(struct wire_rts)];
	uint32_t r;

	/* from a rank that is not that node's, or is none at all: nothing */
	say_rts(3, 2, 1, 1, 1, 1000);
	say_rts(99, 2, 1, 1, 1, 1000);
	rest();
	assert_int_equal(clients[2].seg->area.unmatched, 0);
	assert_int_equal(t.ngot, 0);
	/* for a rank that is not here: later */
	say_rts(0, 1, 4, 9, 1, 1000);
	UNTIL(count(WIRE_RNDV_RTS_RETRY) == 1);
	assert_int_equal(got(WIRE_RNDV_RTS_RETRY)->error, ENOENT);
	assert_int_equal(got(WIRE_RNDV_RTS_RETRY)->disp, WIRE_RNDV_ID(4, 9));
	/* twice, and an older one of the slot */
	say_rts(0, 2, 1, 5, 1, 1000);
	say_rts(0, 2, 1, 5, 1, 1000);
	rest();
	assert_int_equal(count(WIRE_RNDV_RTS_RETRY), 1);
	say_rts(0, 2, 1, 4, 2, 1000);
	UNTIL(count(WIRE_RNDV_RTS_RETRY) == 2);
	assert_int_equal(got(WIRE_RNDV_RTS_RETRY)->error, ESTALE);
	assert_int_equal(got(WIRE_RNDV_RTS_RETRY)->disp, WIRE_RNDV_ID(1, 4));
	assert_int_equal(clients[2].seg->area.unmatched, 1);
	/* another one of the same key */
	say_rts(0, 2, 2, 6, 1, 1000);
	UNTIL(count(WIRE_RNDV_RTS_RETRY) == 3);
	assert_int_equal(got(WIRE_RNDV_RTS_RETRY)->error, EEXIST);
	/* the slot is used again: that message is over */
	say_rts(0, 2, 1, 6, 3, 1000);
	rest();
	assert_int_equal(clients[2].seg->area.unmatched, 1);
	r = post_recv(0, 2, 3, 0, &b);
	UNTIL(t.in);
	UNTIL(count(WIRE_RNDV_GET_REQ) == 1);
	assert_int_equal(got(WIRE_RNDV_GET_REQ)->disp, WIRE_RNDV_ID(1, 6));
	assert_int_equal(got(WIRE_RNDV_GET_REQ)->total, 1000);
	assert_int_equal(state_of(2, r), PROG_P2P_POSTED);
	/* a payload that is none */
	memset(bytes, 0xff, sizeof(bytes));
	f.len = sizeof(bytes);
	send_frame(t.lane, &f, bytes);
	UNTIL(!t.lane);
}

/* A short message comes with its RTS: nothing is asked for, whoever comes first, and wherever the buffer is. */
static void test_rts_data(void **state)
{
	static uint8_t mem[2][WIRE_RTS_DATA_MAX], data[WIRE_RTS_DATA_MAX];
	uint32_t lens[] = { 1, PROG_P2P_HEAD, PROG_P2P_HEAD + 1, WIRE_RTS_DATA_MAX };

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + 1);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t len = lens[i], head = len < PROG_P2P_HEAD ? len : PROG_P2P_HEAD, r[2];

		for (uint32_t first = 0; first < 2; first++) {
			struct buf b = { .place = PRIVATE, .mem = mem[first], .count = len, .len = len };

			memset(mem, 0, sizeof(mem));
			if (first)
				r[1] = post_recv(0, 2, 2 * i + first, 0, &b);
			say_short(0, 2, 5, 2 * i + first + 1, 2 * i + first, len, data, len);
			rest();
			if (!first)
				r[0] = post_recv(0, 2, 2 * i + first, 0, &b);
			UNTIL(state_of(2, r[first]) == PROG_P2P_DONE);
			assert_int_equal(slot_of(2, r[first])->status, 0);
			assert_int_equal(slot_of(2, r[first])->msg_len, len);
			assert_memory_equal(slot_of(2, r[first])->head, data, head);
			assert_memory_equal(mem[first] + head, data + head, len - head);
			UNTIL(count(WIRE_RNDV_ATS) == 2 * i + first + 1);
		}
	}
	assert_int_equal(count(WIRE_RNDV_GET_REQ), 0);
	assert_non_null(t.lane);
	/* not all of them, or more */
	say_short(0, 2, 6, 1, 99, 100, data, 99);
	UNTIL(!t.lane);
}

/* More SENDs than a receiver's unexpected queue takes are to be announced again later. */
static void test_rts_quota(void **state)
{
	free_client(&clients[2]);
	kit_conf.max_sends = 50;
	make_client(&clients[2], 2, true);
	kit_conf.max_sends = 1000;
	for (uint32_t i = 0; i < 60; i++)
		say_rts(i % 2, 2, i, 1, i, 1000);
	UNTIL(count(WIRE_RNDV_RTS_RETRY) == 10);
	assert_int_equal(got(WIRE_RNDV_RTS_RETRY)->error, EDQUOT);
	assert_int_equal(clients[2].seg->area.unmatched, 50);
}

/* A node of which its user's quota has no room is not known: its SEND is refused for good, and so is one of ours there. */
static void test_rts_no_room(void **state)
{
	static uint8_t mem[1000];
	struct buf b = { .place = PRIVATE, .mem = mem, .count = 1000, .len = 1000 };
	struct win_limits lim, none;
	struct wire_frame f = {
		.type = WIRE_RNDV_RTS_RETRY, .win = KEY, .origin = 2, .target = 0, .error = ENOSPC,
	};
	uint32_t s;

	win_limits_get(&lim);
	none = lim;
	none.tables = 0;
	win_limits_set(&none);
	say_rts(0, 2, 1, 1, 1, 1000);
	UNTIL(count(WIRE_RNDV_RTS_RETRY) == 1);
	assert_int_equal(got(WIRE_RNDV_RTS_RETRY)->error, ENOSPC);
	assert_int_equal(clients[2].seg->area.unmatched, 0);
	win_limits_set(&lim);
	say_rts(0, 2, 1, 2, 2, 1000);
	UNTIL(clients[2].seg->area.unmatched == 1);
	s = post_send(2, 0, 1, 0, &b);
	UNTIL(t.in && count(WIRE_RNDV_RTS) == 1);
	f.job = got(WIRE_RNDV_RTS)->job;
	f.disp = WIRE_RNDV_ID(s, slot_of(2, s)->serial);
	send_frame(t.in, &f, NULL);
	UNTIL(DONE(2, s));
	assert_int_equal(slot_of(2, s)->status, -EDQUOT);
	assert_int_equal(count(WIRE_RNDV_RTS), 1);
}

static uint32_t start_get(uint64_t len)
{
	static uint8_t mem[600000];
	struct buf b = { .place = PRIVATE, .mem = mem, .count = len, .len = len };
	uint32_t r = post_recv(0, 2, 1, 0, &b);

	say_rts(0, 2, 1, 1, 1, len);
	UNTIL(count(WIRE_RNDV_GET_REQ) == 1);
	return r;
}

static void data(uint64_t token, uint64_t off, uint32_t len, uint64_t total)
{
	static uint8_t bytes[WIRE_MAX_PAYLOAD];
	struct wire_frame f = {
		.type = WIRE_RNDV_DATA, .job = got(WIRE_RNDV_GET_REQ)->job, .seq = token, .off = off, .len = len,
		.total = total, .flags = off + len == total ? WIRE_F_LAST : 0,
	};

	send_frame(t.in, &f, bytes);
}

static void test_data(void **state)
{
	uint32_t r = start_get(500000);
	uint64_t token = got(WIRE_RNDV_GET_REQ)->seq;

	/* for nobody: an answer that comes too late */
	data(token + 100, 0, 100, 500000);
	rest();
	assert_non_null(t.in);
	data(token, 0, 200000, 500000);
	UNTIL(slot_of(2, r)->moved == 200000 - PROG_P2P_HEAD);
	/* a gap */
	data(token, 200001, 1000, 500000);
	UNTIL(!t.in);
	UNTIL(DONE(2, r));
	assert_true(slot_of(2, r)->status < 0);
	assert_int_equal(slot_of(2, r)->moved, 200000 - PROG_P2P_HEAD);
	assert_int_equal(slot_of(2, r)->head_len, PROG_P2P_HEAD);
	/* its sender is told on the next lane */
	UNTIL(count(WIRE_RNDV_ATS) == 1);
}

static void test_data_beyond(void **state)
{
	uint32_t r = start_get(1000);

	data(got(WIRE_RNDV_GET_REQ)->seq, 0, 1001, 1001);
	UNTIL(!t.in && DONE(2, r));
	assert_true(slot_of(2, r)->status < 0);
}

static void answer(uint8_t type, uint64_t seq, uint64_t error)
{
	struct wire_frame f = { .type = type, .job = got(WIRE_RNDV_GET_REQ)->job, .seq = seq, .error = error };

	send_frame(t.in, &f, NULL);
}

/*
 * The receiver's node knows a newer SEND of the slot: this one will not be matched, and fails.  Nobody can say so of one that was
 * announced to somebody else, or has another serial.
 */
static void test_rts_stale(void **state)
{
	static uint8_t mem[1000];
	struct buf b = { .place = PRIVATE, .mem = mem, .count = 1000, .len = 1000 };
	uint32_t there = post_send(2, 0, 1, 0, &b), here = post_send(2, 3, 1, 0, &b);
	struct wire_frame f = {
		.type = WIRE_RNDV_RTS_RETRY, .win = KEY, .origin = 2, .target = 0, .error = ESTALE,
	};

	UNTIL(t.in && count(WIRE_RNDV_RTS) == 1);
	f.job = got(WIRE_RNDV_RTS)->job;
	f.disp = WIRE_RNDV_ID(here, slot_of(2, here)->serial);
	send_frame(t.in, &f, NULL);
	f.disp = WIRE_RNDV_ID(there, slot_of(2, there)->serial - 1);
	send_frame(t.in, &f, NULL);
	f.disp = WIRE_RNDV_ID(PROG_P2P_SLOTS, 1);
	send_frame(t.in, &f, NULL);
	rest();
	assert_int_equal(state_of(2, here), PROG_P2P_POSTED);
	assert_int_equal(state_of(2, there), PROG_P2P_POSTED);
	f.disp = WIRE_RNDV_ID(there, slot_of(2, there)->serial);
	send_frame(t.in, &f, NULL);
	UNTIL(DONE(2, there));
	assert_int_equal(slot_of(2, there)->status, -ESTALE);
	/* again: it has ended */
	send_frame(t.in, &f, NULL);
	rest();
	assert_int_equal(slot_of(2, there)->status, -ESTALE);
	assert_int_equal(count(WIRE_RNDV_RTS), 1);
	assert_int_equal(t.downs, 0);
}

/* A peer that does not read, and asks for a SEND again and again: it waits once for room, not each time. */
static void test_rts_full(void **state)
{
	static uint8_t mem[1000];
	struct buf b = { .place = PRIVATE, .mem = mem, .count = 1000, .len = 1000 };
	uint32_t s = post_send(2, 0, 1, 0, &b);
	struct wire_frame f = {
		.type = WIRE_RNDV_RTS_RETRY, .win = KEY, .origin = 2, .target = 0, .error = EDQUOT,
	};
	struct rndv_peer *p;
	struct ctrl_tx *tx;
	unsigned int n;

	UNTIL(t.in && count(WIRE_RNDV_RTS) == 1);
	f.job = got(WIRE_RNDV_RTS)->job;
	f.disp = WIRE_RNDV_ID(s, slot_of(2, s)->serial);
	p = node_b.k.link->peers->rndv;
	p->full = true;
	for (uint64_t begin = loop_now(); loop_now() - begin < 100000000; go()) {
		lane_send(t.in, &f, NULL, NULL, NULL);
		DL_COUNT(p->lp->jobs->rndv->txs, tx, n);
		assert_true(n <= 1);
	}
	assert_int_equal(count(WIRE_RNDV_RTS), 1);
	/* then it is announced */
	rndv_peer_writable(p->lp);
	UNTIL(count(WIRE_RNDV_RTS) > 1);
}

static void test_refusal(void **state)
{
	uint32_t r = start_get(1000);

	answer(WIRE_RNDV_REFUSE, got(WIRE_RNDV_GET_REQ)->seq + 5, EIO);
	answer(WIRE_RNDV_ATS_ACK, 12345, 0);
	rest();
	assert_int_equal(state_of(2, r), PROG_P2P_POSTED);
	answer(WIRE_RNDV_REFUSE, got(WIRE_RNDV_GET_REQ)->seq, EIO);
	UNTIL(DONE(2, r));
	assert_int_equal(slot_of(2, r)->status, -EIO);
	UNTIL(count(WIRE_RNDV_ATS) == 1);
	answer(WIRE_RNDV_ATS_ACK, got(WIRE_RNDV_ATS)->seq, 0);
	rest();
	/* an errno that is none */
	answer(WIRE_RNDV_REFUSE, 1, 5000);
	UNTIL(!t.in);
}

/* ATS is sent again on the next lane, until it is answered. */
static void test_ats_again(void **state)
{
	uint32_t r = start_get(1000);
	struct wire_atsrec rec;
	struct rndv_info i;

	data(got(WIRE_RNDV_GET_REQ)->seq, 0, 1000, 1000);
	UNTIL(DONE(2, r) && count(WIRE_RNDV_ATS) == 1);
	assert_int_equal(slot_of(2, r)->status, 0);
	lane_close(t.in, -ECONNRESET, "test");
	UNTIL(count(WIRE_RNDV_ATS) == 2);
	assert_int_equal(got(WIRE_RNDV_ATS)->disp, WIRE_RNDV_ID(1, 1));
	assert_int_equal(wire_ats_get(t.last, &rec), 0);
	assert_int_equal(rec.status, 0);
	rndv_info(node_b.rndv, &i);
	assert_int_equal(i.ats, 1);
	answer(WIRE_RNDV_ATS_ACK, got(WIRE_RNDV_ATS)->seq, 0);
	for (i.ats = 1; i.ats; rndv_info(node_b.rndv, &i))
		go();
}

/* ATS of a worker that was detached and still runs, as others are not detached yet: it asks for a lane again and again, in vain. */
static void test_ats_ended(void **state)
{
	uint32_t r = start_get(1000);
	const struct loop_timer *retry;
	struct link_peer *p;
	uint64_t first;

	data(got(WIRE_RNDV_GET_REQ)->seq, 0, 1000, 1000);
	UNTIL(DONE(2, r) && count(WIRE_RNDV_ATS) == 1);
	p = node_b.k.link->peers;
	retry = &p->rndv->retry;
	assert_false(loop_timer_running(retry));
	xport_detach(node_b.k.xw, 0);
	assert_true(loop_timer_running(retry));
	first = retry->when;
	UNTIL(retry->when != first);
	assert_true(loop_timer_running(retry));
	assert_null(p->lane);
	assert_null(lane_open(node_b.k.xw, node_a.guid, node_a.k.addr, node_a.k.naddrs));
	assert_int_equal(errno, ESHUTDOWN);
	node_b.k.xw = NULL;
}

/* A peer that never confirms what it is told: it ends, and nothing more is kept for it. */
static void test_ats_unconfirmed(void **state)
{
	struct buf b = { .place = PRIVATE };
	struct rndv_info i;
	uint64_t most = 0;

	for (uint64_t n = 1; t.lane && n < 8ull * RANKS * PROG_P2P_SLOTS; n++) {
		uint32_t r = post_recv(0, 2, n, 0, &b);

		say_rts(0, 2, 1, (uint32_t)n, n, 0);
		UNTIL(DONE(2, r) || !t.lane);
		__atomic_store_n(&slot_of(2, r)->state, PROG_P2P_FREE, __ATOMIC_RELAXED);
		rndv_info(node_b.rndv, &i);
		most = i.ats > most ? i.ats : most;
	}
	assert_null(t.lane);
	assert_true(most <= 4ull * RANKS * PROG_P2P_SLOTS + 1);
	rest();
	rndv_info(node_b.rndv, &i);
	assert_true(i.ats <= 1);
}

/* A lane that follows another one of the same worker: what came on the one before is over. */
static void test_lanes_follow(void **state)
{
	struct xport_opts xo = { .workers = 1, .transport = "loop", .handlers = &handlers,
				 .post = kit_post };
	struct lane *first = t.lane;
	struct xport_worker *xw = t.xw;
	struct xport *x2;
	char err[XPORT_ERR];

	say_rts(0, 2, 1, 1, 1, 1000);
	UNTIL(clients[2].seg->area.unmatched == 1);
	memcpy(xo.guid, node_a.guid, 16);
	assert_int_equal(xport_new(&xo, &x2, err), 0);
	assert_int_equal(xport_attach(x2, 0, t.loop, NULL, &t.xw), 0);
	open_lane();
	assert_ptr_not_equal(t.lane, first);
	say_rts(1, 2, 7, 1, 1, 1000);
	UNTIL(count(WIRE_RNDV_RTS_RETRY) || clients[2].seg->area.unmatched == 1);
	rest();
	assert_int_equal(clients[2].seg->area.unmatched, 1);
	/* late frames of the first are nobody's, its end changes nothing */
	t.lane = first;
	say_rts(0, 2, 1, 2, 2, 1000);
	rest();
	assert_int_equal(clients[2].seg->area.unmatched, 1);
	lane_close(first, -ECONNRESET, "test");
	rest();
	assert_int_equal(clients[2].seg->area.unmatched, 1);
	xport_detach(t.xw, 0);
	xport_free(x2);
	t.xw = xw;
	UNTIL(!clients[2].seg->area.unmatched);
}

/*
 * A peer that proves the job and says that it is this very node: what ranks of this node send is not its to announce.  Their slots
 * are read here, and what a peer says of slots is not a number of one.
 */
static void test_own_guid(void **state)
{
	struct xport_opts xo = { .workers = 1, .transport = "loop", .handlers = &handlers, .post = kit_post };
	struct xport_worker *xw = t.xw;
	struct lane *first = t.lane;
	uint32_t job_index = t.job;
	unsigned int downs = t.downs;
	struct xport *x2;
	char err[XPORT_ERR];
	struct buf b = { .place = PRIVATE, .mem = (uint8_t[100]){ 0 }, .count = 100, .len = 100 };
	uint32_t r;

	memcpy(xo.guid, node_b.guid, 16);
	assert_int_equal(xport_new(&xo, &x2, err), 0);
	assert_int_equal(xport_attach(x2, 0, t.loop, NULL, &t.xw), 0);
	t.ready = false;
	t.lane = lane_open(t.xw, node_b.guid, node_b.k.addr, node_b.k.naddrs);
	assert_non_null(t.lane);
	t.job = lane_job_open(t.lane, jobid, jobkey, job_answered, NULL);
	UNTIL(t.ready || t.downs > downs);
	if (t.lane && t.ready)
		say_rts(2, 3, UINT32_MAX, 1, 1, 100);
	rest();
	assert_int_equal(clients[3].seg->area.unmatched, 0);
	r = post_recv(2, 3, 1, 0, &b);
	rest();
	assert_false(DONE(3, r));
	xport_detach(t.xw, 0);
	xport_free(x2);
	t.xw = xw;
	t.lane = first;
	t.job = job_index;
	/* others are served as before */
	say_rts(0, 2, 1, 1, 1, 1000);
	UNTIL(clients[2].seg->area.unmatched == 1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_get_refused, setup, teardown),
	cmocka_unit_test_setup_teardown(test_quiet, setup, teardown),
	cmocka_unit_test_setup_teardown(test_ats_refused, setup, teardown),
	cmocka_unit_test_setup_teardown(test_rts_refused, setup, teardown),
	cmocka_unit_test_setup_teardown(test_rts_data, setup, teardown),
	cmocka_unit_test_setup_teardown(test_rts_quota, setup, teardown),
	cmocka_unit_test_setup_teardown(test_rts_no_room, setup, teardown),
	cmocka_unit_test_setup_teardown(test_data, setup, teardown),
	cmocka_unit_test_setup_teardown(test_data_beyond, setup, teardown),
	cmocka_unit_test_setup_teardown(test_rts_stale, setup, teardown),
	cmocka_unit_test_setup_teardown(test_rts_full, setup, teardown),
	cmocka_unit_test_setup_teardown(test_refusal, setup, teardown),
	cmocka_unit_test_setup_teardown(test_ats_again, setup, teardown),
	cmocka_unit_test_setup_teardown(test_ats_ended, setup, teardown),
	cmocka_unit_test_setup_teardown(test_ats_unconfirmed, setup, teardown),
	cmocka_unit_test_setup_teardown(test_lanes_follow, setup, teardown),
	cmocka_unit_test_setup_teardown(test_own_guid, setup, teardown),
};

KIT_SUITE(tests);

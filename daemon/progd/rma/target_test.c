// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The target's half against hand-made frames: what a well-behaved origin never sends.  Node A is
 * this test with handlers of its own, node B the engine with one window; between them an
 * in-process lane.  Everything is one thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include <libprogbase/notifyq.h>

#include <kit/rma.h>
#include "rma/priv.h"
#include "xport/lane.h"

#define KEY	0x1122334455667788ull
#define SIZE	65536u
#define LARGE	(4 * WIRE_MAX_PAYLOAD)
#define RANKS	3u			/* 0, 1: node A; 2: node B */

static struct {			/* node A */
	struct loop *loop;
	struct xport *x, *x2;
	struct xport_worker *xw, *xw2;
	struct lane *lane;
	uint32_t job;
	int downs, job_ready;
	struct wire_ackrec ack[4096];
	unsigned int acks, stops, gos;
	bool busy;			/* as the last acknowledgement said */
	uint8_t data[1 << 20];
	uint64_t got;
} a;

static struct {			/* node B */
	struct kit_link k;
	struct rma *rma;
	struct win_job *job;
	struct win *win;
	uint8_t *mem;
	struct winctl wc;
	uint32_t kicked;
} b;

static uint8_t guid_a[16] = { 1 }, guid_b[16] = { 2 }, jobid[16] = { 3 }, jobkey[32] = { 4 };

static int on_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload,
		  void *token)
{
	if (f->type == WIRE_RMA_DATA) {
		assert_true(f->off + f->len <= sizeof(a.data));
		memcpy(a.data + f->off, payload, f->len);
		a.got += f->len;
		return 0;
	}
	if (f->type == WIRE_RMA_STOP || f->type == WIRE_RMA_GO) {
		assert_int_equal(f->origin, 0);
		assert_int_equal(f->target, 2);
		a.stops += f->type == WIRE_RMA_STOP;
		a.gos += f->type == WIRE_RMA_GO;
		return 0;
	}
	a.busy = f->flags & WIRE_F_BUSY;
	for (uint32_t i = 0; i < wire_ack_count(f); i++) {
		assert_true(a.acks < 4096);
		assert_int_equal(wire_ack_get(payload, i, &a.ack[a.acks++]), 0);
	}
	return 0;
}

static void on_down(void *ctx, struct lane *l, int err, const char *why)
{
	a.downs++;
	if (a.lane == l)
		a.lane = NULL;
}

static bool no_key(void *ctx, const uint8_t *id, uint8_t *key)
{
	return false;
}

static const struct xport_handlers handlers_a = {
	.frame_end = on_end, .lane_down = on_down, .job_key = no_key,
};

static void kick(struct link_host *h, uint32_t mask)
{
	b.kicked |= mask;
}

static struct link_host host_b = { .kick = kick };

static void step(void)
{
	assert_true(loop_run_once(a.loop, 0) >= 0);
	assert_true(loop_run_once(b.k.loop, 0) >= 0);
	link_poll(b.k.link);
}

#define RUN(cond) RUN_FOR(step, 40, cond)

/* Let everything that is under way arrive. */
static void settle(void)
{
	for (int i = 0; i < 200; i++)
		step();
}

static void job_cb(void *ctx, struct lane *l, uint32_t job, int err)
{
	assert_int_equal(err, 0);
	a.job_ready = 1;
}

static void make_window(size_t size)
{
	struct win_create c = {
		.job = b.job, .key = KEY, .rank = 2, .nranks = RANKS, .mem = PROG_MEM_SHARED,
		.size = size, .session = 1, .pid = getpid(),
	};
	struct prog_win_node nodes[KIT_NODES] = { kit_node(guid_a, NULL, 0), kit_node(guid_b, NULL, 0) };
	const char *why = "";
	void *mem;
	int r;

	c.ctl_fd = kit_ctl(&b.wc, KEY, 2, RANKS);
	c.table_fd = kit_table(nodes, RANKS, 2);
	c.mem_fd = kit_memfd(size, &mem);
	munmap(mem, size);
	r = win_new(&c, &b.win, &why);
	if (r)
		fail_msg("win_new: %s", why);
	b.mem = b.win->mem_map->mem;
}

static void open_lane_of(struct xport_worker *xw)
{
	a.job_ready = 0;
	a.lane = lane_open(xw, guid_b, b.k.addr, b.k.naddrs);
	assert_non_null(a.lane);
	a.job = lane_job_open(a.lane, jobid, jobkey, job_cb, NULL);
	RUN(a.job_ready);
}

static void open_lane(void)
{
	open_lane_of(a.xw);
}

static int setup_size(size_t size)
{
	struct xport_opts oa = { .workers = 1, .transport = "loop", .handlers = &handlers_a, .post = kit_post };
	char err[XPORT_ERR];
	const char *why;

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	log_set_level(PROG_LOG_ERROR);
	memcpy(oa.guid, guid_a, 16);
	assert_int_equal(loop_new(LOOP_EPOLL, &a.loop), 0);
	kit_link_new(&b.k, guid_b, 1, &host_b);
	assert_int_equal(rma_new(b.k.link, NULL, &b.rma), 0);
	kit_link_listen(&b.k);
	assert_int_equal(xport_new(&oa, &a.x, err), 0);
	assert_int_equal(xport_attach(a.x, 0, a.loop, NULL, &a.xw), 0);
	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &b.job, &why), 0);
	make_window(size);
	open_lane();
	return 0;
}

static int setup(void **state)
{
	return setup_size(SIZE);
}

static int setup_large(void **state)
{
	return setup_size(LARGE);
}

static int teardown(void **state)
{
	struct win_user *user;

	if (b.win) {
		struct win *w = win_get(b.win);

		win_free(b.win);
		rma_win_gone(b.rma, w);
		win_put(w);
	}
	if (a.lane)
		lane_close(a.lane, 0, NULL);
	settle();
	xport_detach(a.xw, 0);
	xport_detach(a.xw2, 0);
	kit_link_close(&b.k);
	xport_free(a.x);
	xport_free(a.x2);
	user = win_user_ref(b.job->user);
	win_job_get(b.job);
	if (win_job_leave(b.job))
		link_job_gone(b.k.link, b.job);
	win_job_put(b.job);
	rma_free(b.rma);
	assert_int_equal(user->used[USER_TYPES], 0);
	win_user_put(user);
	loop_free(a.loop);
	kit_link_free(&b.k);
	kit_ctl_free(&b.wc, RANKS);
	return 0;
}

/* The window's pages cannot be provided any more: as if they lay behind the end of a file. */
static void break_memory(void)
{
	int fd = memfd_create("empty", MFD_CLOEXEC);

	/* cmocka has set its own handler, and will take this one away */
	assert_int_equal(win_sigbus_init(), 0);
	assert_true(mmap(b.mem, b.win->mem_map->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			 fd, 0) == b.mem);
	close(fd);
}

static struct wire_frame op(uint8_t type, uint32_t origin, uint64_t seq, uint64_t disp, uint64_t len)
{
	const struct wire_type *t = wire_type(type);
	struct wire_frame f = {
		.type = type, .flags = WIRE_F_LAST, .job = a.job, .win = KEY, .origin = origin,
		.target = 2, .seq = seq,
	};

	if (t->fields & WIRE_HAS_DISP)
		f.disp = disp;
	if (t->fields & (WIRE_HAS_RANGE | WIRE_HAS_WANT))
		f.total = len;
	if (t->max_len && type != WIRE_RMA_GET)
		f.len = len;
	return f;
}

static void send_frame(const struct wire_frame *f, const void *payload)
{
	assert_int_equal(lane_send(a.lane, f, payload, NULL, NULL), 0);
}

static void put(uint32_t origin, uint64_t seq, uint64_t disp, uint64_t value)
{
	struct wire_frame f = op(WIRE_RMA_PUT, origin, seq, disp, 8);

	send_frame(&f, &value);
}

/* Latest number acknowledged for @origin; *status of @seq. */
static uint64_t acked(uint32_t origin)
{
	uint64_t max = 0;

	for (unsigned int i = 0; i < a.acks; i++)
		if (a.ack[i].origin == origin && a.ack[i].seq > max)
			max = a.ack[i].seq;
	return max;
}

static int status_of(uint32_t origin, uint64_t seq)
{
	for (unsigned int i = 0; i < a.acks; i++)
		if (a.ack[i].origin == origin && a.ack[i].seq == seq && a.ack[i].status)
			return -(int)a.ack[i].status;
	return 0;
}

static uint64_t word(uint64_t disp)
{
	return __atomic_load_n((uint64_t *)(b.mem + disp), __ATOMIC_RELAXED);
}

static void test_batch(void **state)
{
	for (uint64_t i = 1; i <= 500; i++)
		put(0, i, 8 * i, i);
	RUN(acked(0) == 500);
	for (uint64_t i = 1; i <= 500; i++)
		assert_int_equal(word(8 * i), i);
	assert_int_equal(b.wc.peers[0].applied, 500);
	/* cumulative: far fewer acknowledgements than operations */
	assert_true(a.acks < 100);
}

static void test_replay(void **state)
{
	int64_t one = 1;
	struct wire_frame f = op(WIRE_RMA_ACC, 0, 1, 0, 8);

	f.op = PROG_OP_SUM;
	f.etype = PROG_TYPE_I64;
	for (int i = 0; i < 5; i++)
		send_frame(&f, &one);
	RUN(acked(0) == 1);
	settle();
	assert_int_equal(word(0), 1);
	/* also on a new lane: the window remembers */
	lane_close(a.lane, 0, NULL);
	RUN(!a.lane);
	open_lane();
	a.acks = 0;
	f.job = a.job;
	send_frame(&f, &one);
	RUN(acked(0) == 1);
	assert_int_equal(word(0), 1);
	f.seq = 2;
	send_frame(&f, &one);
	RUN(acked(0) == 2);
	assert_int_equal(word(0), 2);
}

static void test_refusals(void **state)
{
	uint8_t buf[256] = { 0 };
	struct wire_frame f;
	uint64_t seq = 0;

#define REFUSED(frame, err) do { \
		f = frame; \
		f.seq = ++seq; \
		send_frame(&f, f.len ? buf : NULL); \
		RUN(acked(0) == seq); \
		assert_int_equal(status_of(0, seq), err); \
	} while (0)
	REFUSED(op(WIRE_RMA_PUT, 0, 0, SIZE - 7, 8), -ERANGE);
	REFUSED(op(WIRE_RMA_PUT, 0, 0, ~0ull, 8), -ERANGE);
	REFUSED(op(WIRE_RMA_PUT, 0, 0, INT64_MAX, 8), -ERANGE);
	REFUSED(op(WIRE_RMA_GET, 0, 0, SIZE, 1), -ERANGE);
	REFUSED(op(WIRE_RMA_GET, 0, 0, 0, ~0ull), -ERANGE);
	REFUSED(op(WIRE_RMA_UNLOCK, 0, 0, 0, 0), -EPERM);
	f = op(WIRE_RMA_PUT, 0, 0, 0, 8);
	f.dtype = 9;
	REFUSED(f, -EINVAL);
	f = op(WIRE_RMA_ACC, 0, 0, 0, 8);
	f.op = PROG_OP_MAXLOC;
	f.etype = PROG_TYPE_I64;
	REFUSED(f, -EINVAL);
	f = op(WIRE_RMA_ACC, 0, 0, SIZE, 8);
	f.op = PROG_OP_SUM;
	f.etype = PROG_TYPE_I64;
	REFUSED(f, -ERANGE);
	f = op(WIRE_RMA_CAS, 0, 0, 0, 12);
	f.etype = PROG_TYPE_DOUBLE_INT;
	f.len = 24;
	REFUSED(f, -EINVAL);
	f = op(WIRE_RMA_CAS, 0, 0, 0, 4);
	f.etype = PROG_TYPE_I64;
	REFUSED(f, -EINVAL);
	f = op(WIRE_RMA_DTYPE, 0, 0, 0, 100);
	f.dtype = 1;
	REFUSED(f, -EINVAL);
	/* the stream goes on */
	put(0, ++seq, 0, 77);
	RUN(acked(0) == seq);
	assert_int_equal(status_of(0, seq), 0);
	assert_int_equal(word(0), 77);
	/* a rank that lives on the target's node, a rank that is none, a window that is none */
	put(2, 1, 0, 1);
	RUN(acked(2) == 1);
	assert_int_equal(status_of(2, 1), -ENOENT);
	put(100, 1, 0, 1);
	RUN(acked(100) == 1);
	assert_int_equal(status_of(100, 1), -ENOENT);
	f = op(WIRE_RMA_PUT, 1, 1, 0, 8);
	f.win++;
	send_frame(&f, buf);
	RUN(acked(1) == 1);
	assert_int_equal(status_of(1, 1), -ENOENT);
	assert_int_equal(word(0), 77);
	assert_int_equal(a.downs, 0);
}

/* Operations on windows that are not here are answered and leave nothing behind. */
static void test_unknown_windows(void **state)
{
	uint64_t v = 1;
	struct rma_info i;

	put(0, 1, 0, 1);
	for (uint32_t n = 1; n <= 1000; n++) {
		struct wire_frame f = op(WIRE_RMA_PUT, 1, 1, 0, 8);

		f.win += n;
		send_frame(&f, &v);
	}
	RUN(a.acks == 1001);
	for (unsigned int n = 0; n < a.acks; n++)
		assert_int_equal(a.ack[n].status, a.ack[n].win == KEY ? 0 : ENOENT);
	rma_info(b.rma, &i);
	assert_int_equal(i.target_streams, 1);
	put(0, 2, 0, 2);
	RUN(acked(0) == 2);
	assert_int_equal(word(0), 2);
}

static void test_fragments(void **state)
{
	struct wire_frame f = op(WIRE_RMA_PUT, 0, 1, 0, 300);
	uint8_t buf[300];

	for (int i = 0; i < 300; i++)
		buf[i] = i;
	f.flags = 0;
	f.len = 100;
	send_frame(&f, buf);
	f.off = 100;
	send_frame(&f, buf + 100);
	settle();
	assert_int_equal(acked(0), 0);
	f.off = 200;
	f.flags = WIRE_F_LAST;
	send_frame(&f, buf + 200);
	RUN(acked(0) == 1);
	assert_memory_equal(b.mem, buf, 300);
	/* one with a hole: the peer breaks the protocol */
	f.seq = 2;
	f.flags = 0;
	f.off = 0;
	send_frame(&f, buf);
	f.off = 200;
	f.flags = WIRE_F_LAST;
	send_frame(&f, buf + 200);
	RUN(a.downs == 1);
}

/* Fragments of a datatype that do not agree on its length must not be believed. */
static void test_dtype_grows(void **state)
{
	static uint8_t buf[WIRE_MAX_PAYLOAD];
	struct wire_frame f = op(WIRE_RMA_DTYPE, 0, 1, 0, 100);

	f.dtype = 1;
	f.flags = 0;
	f.len = 50;
	send_frame(&f, buf);
	f.off = 50;
	f.total = 50 + sizeof(buf) + 1;
	f.len = sizeof(buf);
	send_frame(&f, buf);
	f.off += f.len;
	f.len = 1;
	f.flags = WIRE_F_LAST;
	send_frame(&f, buf);
	RUN(acked(0) == 1);
	assert_int_equal(status_of(0, 1), -EINVAL);
	put(0, 2, 0, 5);
	RUN(acked(0) == 2);
	assert_int_equal(word(0), 5);
}

static void test_get_large(void **state)
{
	struct wire_frame f = op(WIRE_RMA_GET, 0, 1, 0, SIZE);

	for (unsigned int i = 0; i < SIZE; i++)
		b.mem[i] = i * 7 + i / 256;
	send_frame(&f, NULL);
	RUN(acked(0) == 1);
	assert_int_equal(a.got, SIZE);
	assert_memory_equal(a.data, b.mem, SIZE);
}

static void lock(uint32_t origin, uint64_t seq, bool excl)
{
	struct wire_frame f = op(WIRE_RMA_LOCK, origin, seq, 0, 0);

	if (excl)
		f.flags |= WIRE_F_EXCL;
	send_frame(&f, NULL);
}

static void unlock(uint32_t origin, uint64_t seq)
{
	struct wire_frame f = op(WIRE_RMA_UNLOCK, origin, seq, 0, 0);

	send_frame(&f, NULL);
}

static void test_lock_order(void **state)
{
	int err;

	lock(0, 1, true);
	RUN(acked(0) == 1);
	lock(1, 1, true);
	put(1, 2, 0, 5);
	unlock(1, 3);
	put(0, 2, 0, 4);
	RUN(acked(0) == 2);
	settle();
	/* what stands behind the lock waits, other streams go on */
	assert_int_equal(acked(1), 0);
	assert_int_equal(word(0), 4);
	unlock(0, 3);
	RUN(acked(1) == 3);
	assert_int_equal(word(0), 5);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_NONE);
	assert_int_equal(b.wc.peers[1].lock_state, PROG_LOCK_NONE);
	/* granted by a process of the target's node: the worker is kicked and finds it */
	assert_true(winlock_request(&b.wc, 2, true, 1));
	lock(0, 4, false);
	settle();
	assert_int_equal(acked(0), 3);
	assert_int_equal(winlock_release(&b.wc, 2, 1, &err), 1);
	RUN(acked(0) == 4);
	/* twice without unlock */
	lock(0, 5, false);
	RUN(acked(0) == 5);
	assert_int_equal(status_of(0, 5), -EALREADY);
}

static void test_credit(void **state)
{
	uint8_t buf[1024] = { 9 };
	uint64_t seq = 1;
	int err;

	assert_true(winlock_request(&b.wc, 2, true, 1));
	lock(0, seq++, true);
	/* all that the credit allows */
	for (unsigned int used = 0; used + WIRE_HDR_SIZE + 1024 <= WIRE_CREDIT;
	     used += WIRE_HDR_SIZE + 1024) {
		struct wire_frame f = op(WIRE_RMA_PUT, 0, seq++, 0, 1024);

		send_frame(&f, buf);
	}
	settle();
	assert_int_equal(a.downs, 0);
	assert_int_equal(acked(0), 0);
	/* and one more */
	for (int i = 0; i < 2 && a.lane; i++) {
		struct wire_frame f = op(WIRE_RMA_PUT, 0, seq++, 0, 1024);

		send_frame(&f, buf);
		settle();
	}
	assert_int_equal(a.downs, 1);
	/* the wait was withdrawn with the lane, nothing was applied */
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_NONE);
	assert_int_equal(b.mem[0], 0);
	assert_int_equal(winlock_release(&b.wc, 2, 1, &err), 0);
	assert_int_equal(err, 0);
}

/* Two streams with more replies than the lane takes at once: each goes on when there is room. */
static void test_replies_full(void **state)
{
	enum { GETS = 300, LEN = 8000 };
	int err;

	assert_true(winlock_request(&b.wc, 2, true, 1));
	lock(0, 1, false);
	lock(1, 1, false);
	for (uint64_t seq = 2; seq < 2 + GETS; seq++) {
		for (uint32_t origin = 0; origin < 2; origin++) {
			struct wire_frame f = op(WIRE_RMA_GET, origin, seq, 0, LEN);

			send_frame(&f, NULL);
		}
	}
	settle();
	assert_int_equal(acked(0), 0);
	assert_int_equal(winlock_release(&b.wc, 2, 1, &err), 1);
	/* a walk over the waiting streams that does not end would not come back to RUN's limit */
	alarm(60);
	RUN(acked(0) == 1 + GETS && acked(1) == 1 + GETS);
	alarm(0);
	assert_int_equal(a.got, 2ull * GETS * LEN);
}

static void free_window(void)
{
	struct win *w = b.win;

	win_get(w);
	win_free(w);
	b.win = NULL;
	rma_win_gone(b.rma, w);
	win_put(w);
}

enum { NOBODY = 99 };			/* owner id of no process that is here */

static uint32_t *stripe_of(uint64_t disp)
{
	return &b.wc.stripes[stripe_index(disp, b.wc.stripe_mask)];
}

/* An accumulate comes for which the stripe is not free; the stream that waits. */
static struct tstream *blocked(uint64_t seq)
{
	struct wire_frame f = op(WIRE_RMA_ACC, 0, seq, 0, 8);
	int64_t one = 1;
	struct tstream *ts;

	f.op = PROG_OP_SUM;
	f.etype = PROG_TYPE_I64;
	send_frame(&f, &one);
	RUN(b.rma->waiting);
	ts = b.rma->waiting;
	RUN(ts->blocked_since);
	return ts;
}

/* So much more time has passed since it was looked who has it: that is looked at again. */
static void look(struct tstream *ts, uint64_t ns)
{
	uint64_t was = ts->asked -= ns;

	RUN(ts->asked != was || ts->state == TS_RUN);
}

/* A stripe that a process which is here keeps, or a worker, is waited for; what nobody has is not. */
static void test_stripe_kept(void **state)
{
	uint32_t *stripe = stripe_of(0);
	struct tstream *ts;

	*stripe = b.win->session;
	ts = blocked(1);
	for (int i = 0; i < 3; i++)
		look(ts, STRIPE_ASK_NS);
	*stripe = PROG_OWNER_WORKER;
	look(ts, STRIPE_ASK_NS);
	put(1, 1, 64, 7);
	RUN(acked(1) == 1);
	assert_int_equal(acked(0), 0);
	*stripe = 0;
	RUN(acked(0) == 1);
	assert_int_equal(status_of(0, 1), 0);
	assert_int_equal(word(0), 1);

	/* it may be released just then */
	*stripe = NOBODY;
	ts = blocked(2);
	look(ts, STRIPE_ASK_NS);
	assert_int_equal(acked(0), 1);
	*stripe = 0;
	RUN(acked(0) == 2);
	assert_int_equal(status_of(0, 2), 0);

	for (uint32_t owner = NOBODY; owner; owner = owner == NOBODY ? PROG_OWNER_WORKER | 1 : 0) {
		uint64_t seq = owner == NOBODY ? 3 : 4;

		*stripe = owner;
		ts = blocked(seq);
		look(ts, STRIPE_ASK_NS);
		look(ts, STRIPE_GONE_NS);
		RUN(acked(0) == seq);
		assert_int_equal(status_of(0, seq), -EDEADLK);
		*stripe = 0;
	}
	assert_int_equal(word(0), 2);
}

/*
 * A process of this node takes the guard word and never gives it back: who needs the lock waits, until
 * it is taken from there, but others are served meanwhile.
 */
static void test_guard_kept(void **state)
{
	uint32_t *guard = &b.wc.ctl->lock.guard;

	*guard = NOBODY;
	lock(0, 1, true);
	put(1, 1, 64, 7);
	RUN(acked(1) == 1);
	assert_int_equal(*guard, NOBODY);
	assert_int_equal(acked(0), 0);
	put(0, 2, 0, 5);
	RUN(acked(0) == 2);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_EXCL);
	*guard = NOBODY;
	unlock(0, 3);
	put(1, 2, 64, 8);
	RUN(acked(1) == 2);
	assert_int_equal(*guard, NOBODY);
	assert_int_equal(acked(0), 2);
	RUN(acked(0) == 3);
	assert_int_equal(status_of(0, 3), 0);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_NONE);
}

/* A process that lives keeps it for as long as it likes, or is stopped. */
static void test_guard_stopped(void **state)
{
	uint32_t *guard = &b.wc.ctl->lock.guard;

	*guard = b.win->session;
	lock(0, 1, true);
	RUN(b.rma->waiting);
	/* longer than between two looks */
	for (uint64_t begin = loop_now(); loop_now() - begin < 5 * RETRY_MAX_NS; step()) {
		assert_non_null(b.rma->waiting);
		b.rma->waiting->blocked_since = 1;
	}
	assert_int_equal(*guard, b.win->session);
	assert_int_equal(acked(0), 0);
	*guard = 0;
	RUN(acked(0) == 1);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_EXCL);
}

/* The same when the lock is to be released because its holder is gone. */
static void test_guard_kept_gone(void **state)
{
	struct wire_frame f = op(WIRE_RMA_GONE, 0, 0, 0, 0);
	uint32_t *guard = &b.wc.ctl->lock.guard;

	f.flags = 0;
	lock(0, 1, true);
	RUN(acked(0) == 1);
	*guard = NOBODY;
	send_frame(&f, NULL);
	put(1, 1, 64, 7);
	RUN(acked(1) == 1);
	assert_int_equal(*guard, NOBODY);
	/* a new stream of that origin waits for what the old one left */
	lock(0, 2, false);
	lock(1, 2, false);
	RUN(acked(0) == 2 && acked(1) == 2);
	assert_int_equal(status_of(0, 2), 0);
	assert_int_equal(b.wc.ctl->lock.nshared, 2);
	assert_int_equal(b.wc.ctl->lock.excl, 0);
	/* the window goes before it can be released */
	*guard = NOBODY;
	send_frame(&f, NULL);
	put(1, 3, 64, 7);
	RUN(acked(1) == 3);
	free_window();
	for (int i = 0; i < 20; i++)
		step();
}

static void test_gone(void **state)
{
	struct wire_frame f = op(WIRE_RMA_GONE, 0, 0, 0, 0);

	f.flags = 0;
	lock(0, 1, true);
	RUN(acked(0) == 1);
	lock(1, 1, true);
	put(1, 2, 8, 3);
	settle();
	assert_int_equal(acked(1), 0);
	send_frame(&f, NULL);
	RUN(acked(1) == 2);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_NONE);
	assert_int_equal(b.wc.peers[1].lock_state, PROG_LOCK_EXCL);
	/* the lane's end releases what is left */
	lane_close(a.lane, -EIO, "test");
	RUN(a.downs);
	settle();
	assert_int_equal(b.wc.peers[1].lock_state, PROG_LOCK_NONE);
}

/*
 * Node A has lost its lane and made a new one, which node B knows nothing of yet: the old one still
 * stands, and bytes of it may be on their way. Returns the old one; a.lane is the new one.
 */
static struct lane *second_lane(void)
{
	struct xport_opts oa = { .workers = 1, .transport = "loop", .handlers = &handlers_a, .post = kit_post };
	struct lane *old = a.lane;
	char err[XPORT_ERR];

	memcpy(oa.guid, guid_a, 16);
	assert_int_equal(xport_new(&oa, &a.x2, err), 0);
	assert_int_equal(xport_attach(a.x2, 0, a.loop, NULL, &a.xw2), 0);
	open_lane_of(a.xw2);
	a.acks = 0;
	return old;
}

static void send_old(struct lane *old, uint32_t job, struct wire_frame f, const void *payload)
{
	f.job = job;
	assert_int_equal(lane_send(old, &f, payload, NULL, NULL), 0);
}

/* Locks held and asked for on the old lane are over, and what still comes there counts no more. */
static void test_reopened(void **state)
{
	struct wire_frame gone = op(WIRE_RMA_GONE, 0, 0, 0, 0);
	uint32_t job = a.job;
	struct lane *old;
	uint64_t v = 9;
	int err;

	lock(0, 1, false);
	put(0, 2, 0, 1);
	RUN(acked(0) == 2);
	old = second_lane();
	lock(0, 3, false);
	put(0, 4, 0, 2);
	RUN(acked(0) == 4);
	assert_int_equal(status_of(0, 3), 0);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_SHARED);
	assert_int_equal(b.wc.ctl->lock.nshared, 1);
	/* late frames: of a number that was not taken there, and of one that was */
	send_old(old, job, op(WIRE_RMA_PUT, 0, 3, 0, 8), &v);
	send_old(old, job, op(WIRE_RMA_PUT, 0, 5, 0, 8), &v);
	send_old(old, job, op(WIRE_RMA_LOCK, 1, 1, 0, 0), NULL);
	gone.flags = 0;
	send_old(old, job, gone, NULL);
	settle();
	assert_int_equal(word(0), 2);
	assert_int_equal(b.wc.peers[0].applied, 4);
	assert_int_equal(b.wc.peers[1].lock_state, PROG_LOCK_NONE);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_SHARED);
	lane_close(old, -EIO, "test");
	RUN(a.downs == 1);
	settle();
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_SHARED);
	unlock(0, 5);
	RUN(acked(0) == 5);
	assert_int_equal(status_of(0, 5), 0);
	assert_true(winlock_request(&b.wc, 2, true, 1));
	winlock_release(&b.wc, 2, 1, &err);
	assert_int_equal(err, 0);
}

/* A job that was proven twice on the old lane, as by two engines that do not share the proof: all of it is over. */
static void test_reopened_proven_twice(void **state)
{
	put(0, 1, 0, 1);
	RUN(acked(0) == 1);
	a.job_ready = 0;
	a.job = lane_job_open(a.lane, jobid, jobkey, job_cb, NULL);
	RUN(a.job_ready);
	lock(1, 1, true);
	RUN(acked(1) == 1);
	second_lane();
	lock(1, 2, true);
	RUN(acked(1) == 2);
	assert_int_equal(status_of(1, 2), 0);
	assert_int_equal(b.wc.peers[1].lock_state, PROG_LOCK_EXCL);
}

static void test_reopened_waiting(void **state)
{
	struct lane *old;
	uint64_t big[1024] = { 0 };
	struct wire_frame f = op(WIRE_RMA_PUT, 1, 1, 0, 2 * sizeof(big));
	uint32_t job = a.job;
	int err;

	assert_true(winlock_request(&b.wc, 2, true, 1));
	lock(0, 1, true);
	put(0, 2, 0, 1);
	/* and a stream in the middle of an operation */
	f.flags = 0;
	f.len = sizeof(big);
	send_frame(&f, big);
	settle();
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_WAIT_EXCL);
	old = second_lane();
	lock(0, 3, true);
	put(0, 4, 0, 2);
	put(1, 2, 64, 3);
	RUN(acked(1) == 2);
	settle();
	assert_int_equal(acked(0), 0);
	f.off = f.len;
	f.flags = WIRE_F_LAST;
	send_old(old, job, f, big);
	lane_close(old, -EIO, "test");
	RUN(a.downs == 1);
	settle();
	assert_int_equal(winlock_release(&b.wc, 2, 1, &err), 1);
	RUN(acked(0) == 4);
	assert_int_equal(word(0), 2);
	assert_int_equal(word(64), 3);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_EXCL);
	unlock(0, 5);
	RUN(acked(0) == 5);
	assert_int_equal(b.wc.ctl->lock.excl, 0);
}

static void test_window_freed(void **state)
{
	struct win *w = b.win;
	struct wire_frame f = op(WIRE_RMA_PUT, 0, 2, 0, 8);
	uint64_t v = 1;

	put(0, 1, 0, 1);
	RUN(acked(0) == 1);
	win_get(w);
	win_free(w);
	b.win = NULL;
	rma_win_gone(b.rma, w);
	assert_int_equal(atomic_load(&w->refs), 1);
	win_put(w);
	send_frame(&f, &v);
	RUN(acked(0) == 2);
	assert_int_equal(status_of(0, 2), -ENOENT);
}

/* The window goes while a lock and what stands behind it wait: all of it is answered. */
static void test_freed_while_waiting(void **state)
{
	struct wire_frame f;
	uint64_t v = 1;
	int err;

	assert_true(winlock_request(&b.wc, 2, true, 1));
	put(0, 1, 0, 1);
	lock(0, 2, true);
	put(0, 3, 0, 5);
	f = op(WIRE_RMA_GET, 0, 4, 0, 64);
	send_frame(&f, NULL);
	/* half of an operation: the rest comes later */
	f = op(WIRE_RMA_PUT, 0, 5, 0, 16);
	f.flags = 0;
	f.len = 8;
	send_frame(&f, &v);
	lock(1, 1, false);
	RUN(acked(0) == 1);
	settle();
	assert_int_equal(acked(0), 1);
	assert_int_equal(acked(1), 0);
	free_window();
	RUN(acked(0) == 4 && acked(1) == 1);
	for (uint64_t seq = 2; seq <= 4; seq++)
		assert_int_equal(status_of(0, seq), -ENOENT);
	assert_int_equal(status_of(0, 1), 0);
	assert_int_equal(status_of(1, 1), -ENOENT);
	f.off = 8;
	f.flags = WIRE_F_LAST;
	send_frame(&f, &v);
	put(0, 6, 0, 1);
	unlock(0, 7);
	RUN(acked(0) == 7);
	for (uint64_t seq = 5; seq <= 7; seq++)
		assert_int_equal(status_of(0, seq), -ENOENT);
	assert_int_equal(a.got, 0);
	assert_int_equal(a.downs, 0);
	/* nobody waits for the lock any more */
	assert_int_equal(winlock_release(&b.wc, 2, 1, &err), 0);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_NONE);
	assert_int_equal(b.wc.peers[1].lock_state, PROG_LOCK_NONE);
}

/* The window's memory is reached by a helper only, whose ring and bounce area lie at its end. */
static struct helper *only_helper(struct win_map *seg, struct prog_helper_ring **ring)
{
	enum { RING = 16384, BOUNCE = 32768 };
	struct helper *h;

	*ring = (void *)(b.mem + RING);
	h = helper_new(seg, *ring, b.mem + BOUNCE, SIZE - BOUNCE);
	assert_non_null(h);
	b.win->access.mem = PROG_MEM_VA;
	b.win->access.ref = mem_remote(getpid(), 0);
	b.win->access.helper = h;
	return h;
}

/* The same with operations that the client's helper thread has and does not get done. */
static void test_freed_with_jobs(void **state)
{
	struct win_map *seg = win_map_get(b.win->mem_map);
	struct prog_helper_ring *ring;
	struct helper *h = only_helper(seg, &ring);
	struct wire_frame f = op(WIRE_RMA_GET, 1, 2, 0, 64);

	put(0, 1, 0, 1);
	put(0, 2, 8, 1);
	put(1, 1, 16, 1);
	send_frame(&f, NULL);		/* waits for the put */
	f = op(WIRE_RMA_GET, 0, 3, 0, 64);
	send_frame(&f, NULL);
	RUN(ring->tail == 3);
	settle();
	assert_int_equal(acked(0), 0);
	/* a get that the helper has */
	ring->job[0].status = ring->job[1].status = 0;
	__atomic_store_n(&ring->done, 2, __ATOMIC_RELEASE);
	RUN(acked(0) == 2 && ring->tail == 4);
	assert_int_equal(acked(1), 0);
	free_window();
	RUN(acked(0) == 3 && acked(1) == 2);
	assert_int_equal(status_of(0, 3), -ENOENT);
	assert_int_equal(status_of(1, 1), -ENOENT);
	assert_int_equal(status_of(1, 2), -ENOENT);
	/* what the helper still finishes changes nothing */
	__atomic_store_n(&ring->done, 4, __ATOMIC_RELEASE);
	settle();
	assert_int_equal(a.got, 0);
	assert_int_equal(a.acks, 4);
	assert_int_equal(a.downs, 0);
	helper_put(h);
	win_map_put(seg);
}

/* Puts of origin 0 that the helper does not do, until it is told to stop; the last number. */
static uint64_t put_until_stop(void)
{
	static uint8_t buf[8192];
	uint64_t seq = 0;

	while (!a.stops) {
		struct wire_frame f = op(WIRE_RMA_PUT, 0, ++seq, 0, sizeof(buf));

		assert_true(seq < 2 * HELD_STOP / sizeof(buf));
		send_frame(&f, buf);
		settle();
	}
	assert_true(seq > HELD_STOP / 2 / sizeof(buf));
	assert_int_equal(a.stops, 1);
	assert_int_equal(a.gos, 0);
	return seq;
}

/* One stream cannot go on: it is told to stop, and everybody else goes on. */
static void test_stop(void **state)
{
	struct win_map *seg = win_map_get(b.win->mem_map);
	struct prog_helper_ring *ring;
	struct helper *h = only_helper(seg, &ring);
	uint64_t last = put_until_stop();
	struct rma_info i;

	lock(1, 1, true);
	unlock(1, 2);
	RUN(acked(1) == 2);
	assert_true(acked(0) < last);
	assert_int_equal(a.downs, 0);
	while (acked(0) < last) {
		for (uint32_t k = ring->done; k != ring->tail; k++)
			ring->job[k % PROG_HELPER_SLOTS].status = 0;
		__atomic_store_n(&ring->done, ring->tail, __ATOMIC_RELEASE);
		step();
	}
	RUN(a.gos == 1);
	rma_info(b.rma, &i);
	assert_int_equal(i.held_bytes, 0);
	assert_int_equal(a.stops, 1);
	helper_put(h);
	win_map_put(seg);
}

/* Its window goes meanwhile: it may send again, to learn that. */
static void test_stop_freed(void **state)
{
	struct win_map *seg = win_map_get(b.win->mem_map);
	struct prog_helper_ring *ring;
	struct helper *h = only_helper(seg, &ring);
	uint64_t last = put_until_stop();
	struct wire_frame f = op(WIRE_RMA_PUT, 0, last + 1, 0, 8);

	free_window();
	RUN(a.gos == 1);
	send_frame(&f, &last);
	RUN(acked(0) == last + 1);
	assert_int_equal(status_of(0, last + 1), -ENOENT);
	helper_kill(h);
	settle();
	helper_put(h);
	win_map_put(seg);
}

static void notify(uint32_t origin, uint64_t seq, uint32_t tag, uint32_t covers)
{
	struct wire_frame f = op(WIRE_RMA_NOTIFY, origin, seq, PROG_NOTIFY_DISP(tag, covers), 0);

	send_frame(&f, NULL);
}

static void take(uint32_t origin, uint32_t want)
{
	uint32_t tag;

	assert_true(notifyq_peek(&b.wc, origin, &tag));
	assert_int_equal(tag, want);
	notifyq_drop(&b.wc, origin);
}

/* Notifications come behind their operations, or not at all; a full queue stops its stream alone. */
static void test_notify(void **state)
{
	uint64_t seq = 0;
	uint32_t tag, i;

	put(0, ++seq, 8, 5);
	notify(0, ++seq, 40, 1);
	RUN(acked(0) == seq);
	assert_int_equal(word(8), 5);
	take(0, 40);
	/* again, as after a lost answer: once is enough */
	notify(0, seq, 40, 1);
	settle();
	assert_false(notifyq_peek(&b.wc, 0, &tag));
	notify(0, ++seq, 1u << 31, 0);
	RUN(acked(0) == seq);
	assert_int_equal(status_of(0, seq), -EINVAL);
	/* of a put that failed, one of two; of another one after that */
	put(0, ++seq, SIZE, 1);
	put(0, ++seq, 0, 1);
	notify(0, ++seq, 41, 2);
	RUN(acked(0) == seq);
	assert_int_equal(status_of(0, seq), -ECANCELED);
	assert_false(notifyq_peek(&b.wc, 0, &tag));
	put(0, ++seq, 0, 2);
	notify(0, ++seq, 42, 1);
	RUN(acked(0) == seq);
	assert_int_equal(status_of(0, seq), 0);
	take(0, 42);
	for (i = 0; i < PROG_NOTIFY_SLOTS + 3; i++)
		notify(0, ++seq, i, 0);
	put(0, ++seq, 16, 9);
	put(1, 1, 24, 7);
	notify(1, 2, 3, 1);
	RUN(a.stops == 1 && acked(1) == 2);
	take(1, 3);
	settle();
	assert_int_equal(acked(0), seq - 4);
	assert_int_equal(word(16), 0);
	assert_int_equal(a.gos, 0);
	assert_int_equal(link_stats(b.k.link, b.job)->notify_stops, 1);
	for (i = 0; i < PROG_NOTIFY_SLOTS / 2; i++)
		take(0, i);
	assert_int_equal(notifyq_resume(&b.wc, 0), 1);
	RUN(acked(0) == seq && a.gos == 1);
	assert_int_equal(word(16), 9);
	for (; i < PROG_NOTIFY_SLOTS + 3; i++)
		take(0, i);
	assert_false(notifyq_peek(&b.wc, 0, &tag));
	assert_int_equal(a.downs, 0);
}

/* The window goes while a stream waits for its process to take some; the origin's end takes nothing back. */
static void test_notify_freed(void **state)
{
	uint64_t seq = 0;

	while (seq < PROG_NOTIFY_SLOTS)
		notify(1, ++seq, 1, 0);
	RUN(acked(1) == seq);
	send_frame(&(struct wire_frame){ .type = WIRE_RMA_GONE, .job = a.job, .win = KEY, .origin = 1, .target = 2 }, NULL);
	for (seq = 0; seq < PROG_NOTIFY_SLOTS + 2;)
		notify(0, ++seq, 1, 0);
	RUN(a.stops == 1);
	assert_int_equal(notifyq_left(&b.wc), 2 * PROG_NOTIFY_SLOTS);
	free_window();
	RUN(acked(0) == seq && a.gos == 1);
	assert_int_equal(status_of(0, seq - 1), -ENOENT);
	assert_int_equal(status_of(0, seq), -ENOENT);
	assert_int_equal(a.downs, 0);
}

/* Streams to the user's windows count, too. */
static void test_quota(void **state)
{
	struct win_limits lim, one;

	win_limits_get(&lim);
	one = lim;
	one.streams = 1;
	win_limits_set(&one);
	put(0, 1, 0, 1);
	put(1, 1, 8, 2);
	RUN(acked(0) == 1 && acked(1) == 1);
	assert_int_equal(status_of(0, 1), 0);
	assert_int_equal(status_of(1, 1), -EDQUOT);
	win_limits_set(&lim);
	put(1, 2, 8, 3);
	RUN(acked(1) == 2);
	assert_int_equal(status_of(1, 2), 0);
	assert_int_equal(word(8), 3);
}

/* A type of @n blocks without a pattern, as the @id-th of a stream; its last operation is number @seq. */
static int define(uint32_t origin, uint64_t seq, unsigned int id, unsigned int n, bool parts)
{
	int64_t disp[1000];
	struct wire_frame f;
	struct dtype *dt, *basic;
	uint32_t len;
	uint8_t *enc;

	assert_true(n <= 1000);
	for (unsigned int i = 0; i < n; i++)
		disp[i] = 8 * (int64_t)i * (i + 1);
	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_I64, &basic), 0);
	assert_int_equal(prog_dtype_new_hindexed_block(n, 1, disp, basic, &dt), 0);
	prog_dtype_put(basic);
	len = prog_dtype_encoded_size(dt);
	enc = malloc(len);
	assert_non_null(enc);
	prog_dtype_encode(dt, enc, len);
	prog_dtype_put(dt);
	f = op(WIRE_RMA_DTYPE, origin, seq, 0, len);
	f.dtype = id;
	if (parts) {
		f.flags = 0;
		f.len = 64;
		send_frame(&f, enc);
		f.off = 64;
		f.len = len - 64;
		f.flags = WIRE_F_LAST;
	}
	send_frame(&f, enc + f.off);
	RUN(acked(origin) == seq);
	free(enc);
	return status_of(origin, seq);
}

/* Datatypes count against their user's quota, in parts or not, until another takes their number or the stream ends. */
static void test_types_quota(void **state)
{
	struct win_limits lim, few;
	struct wire_frame f;
	uint64_t seq = 0;
	unsigned int n = 0;
	int st;

	win_limits_get(&lim);
	few = lim;
	few.types = 1 << 20;
	win_limits_set(&few);
	while (!(st = define(0, ++seq, 1 + n, 1000, n & 1)) && n < 100)
		n++;
	assert_int_equal(st, -EDQUOT);
	assert_true(n > 3 && n < 100);
	/* of the same user, on another stream */
	assert_int_equal(define(1, 1, 1, 1000, false), -EDQUOT);
	assert_int_equal(define(1, 2, 1, 1000, true), -EDQUOT);
	/* in place of another one, and however often */
	for (unsigned int i = 0; i < 50; i++)
		assert_int_equal(define(0, ++seq, 1 + i % n, 1000, i & 1), 0);
	assert_int_equal(define(1, 3, 1, 1000, false), -EDQUOT);
	/* whose number it was to get is of no type */
	few.types = 0;
	win_limits_set(&few);
	assert_int_equal(define(0, ++seq, 1, 1000, false), -EDQUOT);
	f = op(WIRE_RMA_PUT, 0, ++seq, 0, 8);
	f.dtype = 1;
	send_frame(&f, &seq);
	RUN(acked(0) == seq);
	assert_int_equal(status_of(0, seq), -EINVAL);
	assert_true(b.job->user->used[USER_TYPES]);
	win_limits_set(&lim);
}

static void test_fence_count(void **state)
{
	uint64_t v = 1;

	for (uint64_t seq = 1; seq <= 10; seq++) {
		struct wire_frame f = op(WIRE_RMA_PUT, 0, seq, seq == 4 ? SIZE : 0, 8);

		f.flags |= WIRE_F_FENCE | (seq % 2 ? WIRE_F_PARITY : 0);
		send_frame(&f, &v);
	}
	RUN(acked(0) == 10);
	/* one that fails counts too, or the fence would never end */
	assert_int_equal(b.wc.ctl->applied[0], 5);
	assert_int_equal(b.wc.ctl->applied[1], 5);
	assert_int_equal(status_of(0, 4), -ERANGE);
}

/* The window's memory gives way: its operations fail, everything else goes on. */
static void test_memory_gone(void **state)
{
	struct wire_frame f;

	put(0, 1, 64, 5);
	RUN(acked(0) == 1);
	assert_int_equal(word(64), 5);
	break_memory();
	put(0, 2, 64, 6);
	RUN(acked(0) == 2);
	assert_int_equal(status_of(0, 2), -EFAULT);
	f = op(WIRE_RMA_GET, 0, 3, 64, 8);
	send_frame(&f, NULL);
	lock(0, 4, true);
	RUN(acked(0) == 4);
	assert_int_equal(status_of(0, 1), 0);
	assert_int_equal(status_of(0, 3), -EFAULT);
	assert_int_equal(status_of(0, 4), 0);
	assert_int_equal(a.got, 0);
	assert_int_equal(a.downs, 0);
}

/* The same while the kernel receives into it: the lane, which others share, stays. */
static void test_memory_gone_receiving(void **state)
{
	static uint8_t buf[WIRE_MAX_PAYLOAD];
	struct wire_frame f = op(WIRE_RMA_PUT, 0, 1, 0, sizeof(buf));

	send_frame(&f, buf);
	RUN(b.rma->tlanes->next && b.rma->tlanes->next->rx_placed);
	assert_int_equal(acked(0), 0);
	break_memory();
	RUN(acked(0) == 1);
	assert_int_equal(status_of(0, 1), -EFAULT);
	assert_int_equal(a.downs, 0);
}

/* The same while it sends from there. */
static void test_memory_gone_sending(void **state)
{
	struct wire_frame f = op(WIRE_RMA_GET, 0, 1, 0, LARGE);

	break_memory();
	send_frame(&f, NULL);
	RUN(acked(0) == 1);
	assert_int_equal(status_of(0, 1), -EFAULT);
	assert_int_equal(a.downs, 0);
}

/* Node B runs, and A does not: what B sent is not confirmed. */
static void step_b(void)
{
	for (int i = 0; i < 200; i++) {
		assert_true(loop_run_once(b.k.loop, 0) >= 0);
		link_poll(b.k.link);
	}
}

/* Sends what is queued, and nothing more of node A. */
static void flush_a(void)
{
	while (lane_queued(a.lane))
		assert_true(loop_run_once(a.loop, 0) >= 0);
}

/* The lane of node B has as many copies as it may. */
static void copies_full(void)
{
	b.rma->tlanes->next->lane->tx.copies += TX_COPIES_MAX;
}

/*
 * The bytes of a reply may have to be sent again until the origin has them all, from the window: nobody may be let in who
 * changes it, nor the operations behind, but for gets.
 */
static void test_reply_not_over(void **state)
{
	struct wire_frame f;

	copies_full();
	lock(0, 1, true);
	RUN(acked(0) == 1);
	lock(1, 1, true);
	put(1, 2, 0, 77);
	settle();
	f = op(WIRE_RMA_GET, 0, 2, 0, LANE_REF_MIN);
	send_frame(&f, NULL);
	f = op(WIRE_RMA_GET, 0, 3, LANE_REF_MIN, LANE_REF_MIN);
	send_frame(&f, NULL);
	unlock(0, 4);
	f = op(WIRE_RMA_GET, 0, 5, 0, LANE_REF_MIN);
	send_frame(&f, NULL);
	lock(0, 6, false);
	flush_a();
	step_b();
	/* both are done, and sent; so is the unlock as far as its origin can see, and nothing of what follows */
	assert_int_equal(b.wc.peers[0].applied, 4);
	assert_int_equal(lane_queued(b.rma->tlanes->next->lane), 0);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_EXCL);
	assert_int_equal(word(0), 0);
	RUN(acked(1) == 2);
	assert_int_equal(word(0), 77);
	assert_int_equal(a.got, 3 * LANE_REF_MIN);
	unlock(1, 3);
	RUN(acked(0) == 6);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_SHARED);
}

/* The lock's guard is taken when what was acknowledged can be done at last; or its origin is gone; or the window. */
static void test_unlock_due(void **state)
{
	struct wire_frame f = op(WIRE_RMA_GET, 0, 2, 0, LANE_REF_MIN), gone = op(WIRE_RMA_GONE, 0, 0, 0, 0);
	uint32_t *guard = &b.wc.ctl->lock.guard;

	copies_full();
	lock(0, 1, true);
	RUN(acked(0) == 1);
	send_frame(&f, NULL);
	unlock(0, 3);
	lock(0, 4, true);
	flush_a();
	step_b();
	assert_int_equal(b.wc.peers[0].applied, 3);
	*guard = NOBODY;
	RUN(acked(0) == 3);
	put(1, 1, 64, 7);
	RUN(acked(1) == 1);
	assert_int_equal(*guard, NOBODY);
	assert_int_equal(b.wc.peers[0].applied, 3);
	RUN(acked(0) == 4);
	assert_int_equal(status_of(0, 4), 0);
	gone.flags = 0;
	for (uint64_t seq = 5; seq < 12; seq += 3) {
		f.seq = seq;
		send_frame(&f, NULL);
		unlock(0, seq + 1);
		flush_a();
		step_b();
		assert_int_equal(b.wc.peers[0].applied, seq + 1);
		assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_EXCL);
		if (seq == 11) {
			free_window();
			settle();
			break;
		}
		send_frame(&gone, NULL);
		flush_a();
		step_b();
		assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_NONE);
		lock(0, seq + 2, true);
		RUN(acked(0) == seq + 2);
	}
	assert_int_equal(a.got, 4 * LANE_REF_MIN);
}

/* The end of an access epoch is told to the window's process when the replies are over. */
static void test_complete_due(void **state)
{
	struct wire_frame f = op(WIRE_RMA_GET, 0, 1, 0, LANE_REF_MIN);

	copies_full();
	send_frame(&f, NULL);
	f = op(WIRE_RMA_COMPLETE, 0, 2, 0, 0);
	send_frame(&f, NULL);
	f.seq = 3;
	send_frame(&f, NULL);
	flush_a();
	step_b();
	assert_int_equal(b.wc.peers[0].applied, 2);
	assert_int_equal(b.wc.peers[0].completed, 0);
	RUN(acked(0) == 3);
	assert_int_equal(b.wc.peers[0].completed, 2);
}

/* Copies of it are as good: the window changes, and the origin gets what was there. */
static void test_reply_copied(void **state)
{
	struct wire_frame f;

	put(0, 1, 0, 5);
	put(0, 2, LANE_REF_MIN, 6);
	RUN(acked(0) == 2);
	lock(0, 3, true);
	RUN(acked(0) == 3);
	lock(1, 1, true);
	put(1, 2, 0, 77);
	settle();
	f = op(WIRE_RMA_GET, 0, 4, 0, LANE_REF_MIN);
	send_frame(&f, NULL);
	f = op(WIRE_RMA_GET, 0, 5, LANE_REF_MIN, LANE_REF_MIN);
	f.flags |= WIRE_F_FENCE;
	send_frame(&f, NULL);
	unlock(0, 6);
	flush_a();
	step_b();
	/* nobody waits for node A, which has read nothing */
	assert_int_equal(a.got, 0);
	assert_int_equal(b.wc.peers[0].applied, 6);
	assert_int_equal(b.wc.ctl->applied[0], 1);
	assert_int_equal(b.wc.peers[0].lock_state, PROG_LOCK_NONE);
	assert_int_equal(word(0), 77);
	assert_int_equal(b.rma->tlanes->next->lane->tx.copies, 2 * LANE_REF_MIN);
	RUN(acked(0) == 6);
	assert_int_equal(a.got, 2 * LANE_REF_MIN);
	assert_int_equal(a.data[0], 6);
	RUN(!b.rma->tlanes->next->lane->tx.copies);
}

/* A put behind it waits, whether it is short or received in place, and so does the fence that counts the get. */
static void test_reply_not_over_fence(void **state)
{
	static uint8_t buf[WIRE_MAX_PAYLOAD];
	struct wire_frame f = op(WIRE_RMA_GET, 0, 1, 0, LANE_REF_MIN);

	copies_full();
	put(0, 1, 0, 5);
	RUN(acked(0) == 1);
	f.seq = 2;
	f.flags |= WIRE_F_FENCE;
	send_frame(&f, NULL);
	put(0, 3, 0, 6);
	memset(buf, 9, sizeof(buf));
	f = op(WIRE_RMA_PUT, 0, 4, 0, 40000);
	send_frame(&f, buf);
	flush_a();
	step_b();
	assert_int_equal(b.wc.peers[0].applied, 2);
	assert_int_equal(b.wc.ctl->applied[0], 0);
	assert_int_equal(word(0), 5);
	RUN(acked(0) == 4);
	assert_int_equal(b.wc.ctl->applied[0], 1);
	assert_int_equal(word(0), 0x0909090909090909);
	assert_int_equal(a.data[0], 5);
}

static struct {			/* what node B's worker was told */
	unsigned int follows, spreads;
	cpu_set_t best;
} told;

static void follow(struct link_host *h, unsigned int worker, const cpu_set_t *best)
{
	told.follows++;
	told.best = *best;
}

static void spread(struct link_host *h, unsigned int worker)
{
	told.spreads++;
}

/* Puts come until the worker has been told where to run, as it is not for each. */
static void until_told(uint64_t *seq)
{
	time_t limit = time(NULL) + 30;

	told.follows = 0;
	while (!told.follows && time(NULL) < limit) {
		put(0, ++*seq, 0, 1);
		settle();
	}
	assert_true(told.follows);
}

static int runs_on;			/* what the kernel says of the client's first thread; -1: it sleeps */

static int client_runs(struct link_host *h, const struct client_view *c)
{
	return runs_on;
}

/* The worker is to keep off @cpu, and nothing else, as it finds out sooner or later. */
static void until_off(uint64_t *seq, int cpu)
{
	time_t limit = time(NULL) + 30;

	do
		until_told(seq);
	while ((CPU_COUNT(&told.best) != CPU_SETSIZE - 1 || CPU_ISSET(cpu, &told.best)) && time(NULL) < limit);
	assert_int_equal(CPU_COUNT(&told.best), CPU_SETSIZE - 1);
	assert_false(CPU_ISSET(cpu, &told.best));
}

/* Small operations are applied on no processor where a client computes; for large ones it may be any. */
static void test_follow(void **state)
{
	struct rma_client c;
	struct segment *seg = kit_client(&c, b.job, sizeof(*seg));
	struct wire_frame large;
	uint64_t seq = 0;

	memset(&told, 0, sizeof(told));
	host_b.follow = follow;
	host_b.spread = spread;
	assert_int_equal(rma_client_attach(b.rma, &c), 0);
	until_told(&seq);
	assert_int_equal(CPU_COUNT(&told.best), CPU_SETSIZE);
	seg->cpu = 1 + 5;
	until_told(&seq);
	assert_int_equal(CPU_COUNT(&told.best), CPU_SETSIZE - 1);
	assert_false(CPU_ISSET(5, &told.best));
	seg->blocked = 1;
	until_told(&seq);
	assert_int_equal(CPU_COUNT(&told.best), CPU_SETSIZE);
	seg->blocked = 0;
	seg->cpu = UINT32_MAX;
	until_told(&seq);
	assert_int_equal(CPU_COUNT(&told.best), CPU_SETSIZE);
	/* where it runs now counts, and not where it ran when it posted */
	seg->cpu = 1 + 5;
	host_b.client_runs = client_runs;
	runs_on = 7;
	until_off(&seq, 7);
	runs_on = 8;
	until_off(&seq, 8);
	runs_on = -1;
	until_off(&seq, 5);
	host_b.client_runs = NULL;
	assert_int_equal(told.spreads, 0);
	large = op(WIRE_RMA_GET, 0, ++seq, 0, 2u << 20);
	send_frame(&large, NULL);
	settle();
	assert_int_equal(told.spreads, 1);
	host_b.follow = NULL;
	host_b.spread = NULL;
	rma_client_detach(b.rma, &c);
	win_map_put(c.view.seg);
}

static void put_sub(uint32_t origin, uint64_t seq, uint64_t disp, uint64_t value)
{
	struct wire_frame f = op(WIRE_RMA_PUT, origin, seq, disp, 8);

	f.flags |= WIRE_F_SUB;
	send_frame(&f, &value);
}

/* A sub-stream's numbers are not those of the pair's stream, which the window remembers, and they leave these alone. */
static void test_sub(void **state)
{
	for (uint64_t i = 1; i <= 5; i++)
		put(0, i, 8 * i, i);
	RUN(acked(0) == 5);
	lane_close(a.lane, 0, NULL);
	RUN(!a.lane);
	open_lane();
	a.acks = 0;
	put_sub(0, 1, 8, 101);
	put_sub(0, 2, 16, 102);
	RUN(acked(0) == 2);
	assert_int_equal(word(8), 101);
	assert_int_equal(word(16), 102);
	assert_int_equal(b.wc.peers[0].applied, 5);
	/* what was done is not done again */
	b.mem[8] = 7;
	put_sub(0, 1, 8, 101);
	put_sub(0, 3, 24, 103);
	RUN(acked(0) == 3);
	assert_int_equal(b.mem[8], 7);
	assert_int_equal(word(24), 103);
	assert_int_equal(b.wc.peers[0].applied, 5);
}

/* It is counted in a fence as all are; what it refers to is its own. */
static void test_sub_fence(void **state)
{
	struct wire_frame f = op(WIRE_RMA_PUT, 0, 1, 8, 8);
	uint64_t value = 9;

	f.flags |= WIRE_F_SUB | WIRE_F_FENCE | WIRE_F_PARITY;
	send_frame(&f, &value);
	put(1, 1, 16, 10);
	RUN(acked(0) == 1 && acked(1) == 1);
	assert_int_equal(b.wc.ctl->applied[1], 1);
	/* a type that only another stream knows */
	f = op(WIRE_RMA_PUT, 0, 2, 8, 8);
	f.flags |= WIRE_F_SUB;
	f.dtype = 1;
	send_frame(&f, &value);
	RUN(acked(0) == 2);
	assert_int_equal(status_of(0, 2), -EINVAL);
}

static bool is_busy(struct link_host *h, unsigned int worker)
{
	assert_int_equal(worker, 0);
	return true;
}

/* Origins hear that the worker has no time left, if their daemon knows what that means. */
static void test_busy(void **state)
{
	put(0, 1, 8, 1);
	RUN(acked(0) == 1);
	assert_false(a.busy);
	host_b.busy = is_busy;
	put(0, 2, 8, 1);
	RUN(acked(0) == 2);
	assert_true(a.busy);
	assert_true(b.k.link->lanes->lane->hears_busy);
	b.k.link->lanes->lane->hears_busy = false;
	put(0, 3, 8, 1);
	RUN(acked(0) == 3);
	assert_false(a.busy);
	host_b.busy = NULL;
}

/* One lane has one stream of a pair; and of a sub-stream there are no locks, notices and accumulates. */
static void test_sub_mixed(void **state)
{
	static const uint8_t types[] = { WIRE_RMA_ACC, WIRE_RMA_GET_ACC, WIRE_RMA_CAS, WIRE_RMA_LOCK, WIRE_RMA_UNLOCK,
					 WIRE_RMA_POST, WIRE_RMA_COMPLETE };
	uint8_t bytes[16] = { 0 };

	put(0, 1, 8, 1);
	RUN(acked(0) == 1);
	put_sub(0, 2, 8, 2);
	RUN(a.downs == 1);
	assert_int_equal(word(8), 1);
	open_lane();
	a.acks = 0;
	put_sub(0, 1, 8, 3);
	RUN(acked(0) == 1);
	put(0, 2, 8, 4);
	RUN(a.downs == 2);
	assert_int_equal(word(8), 3);
	for (size_t i = 0; i < sizeof(types); i++) {
		struct wire_frame f = op(types[i], 1, 1, 8, types[i] == WIRE_RMA_CAS ? 16 : 8);

		open_lane();
		f.flags |= WIRE_F_SUB;
		if (wire_type(f.type)->fields & WIRE_HAS_OP)
			f.op = PROG_OP_SUM;
		if (wire_type(f.type)->fields & WIRE_HAS_ETYPE)
			f.etype = PROG_TYPE_I64;
		if (f.type == WIRE_RMA_CAS)
			f.total = 8;
		send_frame(&f, bytes);
		RUN(a.downs == 3 + (int)i);
	}
	assert_int_equal(word(8), 3);
	assert_int_equal(b.wc.peers[1].lock_state, PROG_LOCK_NONE);
}

#define L(name) cmocka_unit_test_setup_teardown(name, setup_large, teardown)
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
static const struct CMUnitTest tests[] = {
	T(test_batch), T(test_replay), T(test_refusals), T(test_unknown_windows), T(test_fragments),
	T(test_dtype_grows), T(test_types_quota), T(test_get_large),
	T(test_lock_order), T(test_credit), T(test_replies_full), T(test_gone), T(test_stripe_kept), T(test_guard_kept),
	T(test_guard_stopped),
	T(test_guard_kept_gone), T(test_reopened), T(test_reopened_proven_twice),
	T(test_reopened_waiting), T(test_window_freed),
	T(test_freed_while_waiting), T(test_freed_with_jobs), T(test_stop),
	T(test_stop_freed), T(test_notify), T(test_notify_freed), T(test_quota), T(test_fence_count),
	T(test_reply_not_over), T(test_reply_copied), T(test_reply_not_over_fence), T(test_unlock_due),
	T(test_complete_due), T(test_follow), T(test_busy), T(test_sub), T(test_sub_fence),
	T(test_sub_mixed),
	T(test_memory_gone), L(test_memory_gone_receiving), L(test_memory_gone_sending),
};

KIT_SUITE(tests);

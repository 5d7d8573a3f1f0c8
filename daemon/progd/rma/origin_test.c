/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The origin's half: node A is the engine with one client whose ring this test fills, node B is
 * this test with handlers of its own; between them an in-process lane.  Everything is one thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include <kit/rma.h>
#include "rma/origin.h"
#include "rma/target.h"
#include "xport/lane.h"

#define KEY	0x8877665544332211ull
#define RANKS	3u
#define OTHER	77			/* first byte of the other job's id */

static struct {				/* node A */
	struct kit_link k;
	struct rma *rma;
	struct rma_client c;
	struct segment *seg;
	struct win *win;
	struct winctl wc;
	_Atomic(struct win *) wins[4];
	_Atomic(struct win_map *) regions[4];
} a;

static struct {				/* node B */
	struct loop *loop;
	struct xport *x;
	struct xport_worker *xw;
	struct lane *lane;
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs;
	bool busy;			/* acknowledges so */
	unsigned int puts, subs, notices, others, ups, downs;	/* subs: of puts, those of sub-streams */
	uint64_t data_end;		/* position behind the last DATA */
	uint32_t job;
} b;

static uint8_t guid_a[16] = { 1 }, guid_b[16] = { 2 }, jobid[16] = { 3 }, jobkey[32] = { 4 };
static uint8_t other_id[16] = { OTHER };

static void answer(struct lane *l, const struct wire_frame *f)
{
	static uint8_t bytes[WIRE_MAX_PAYLOAD];
	struct wire_frame d = {
		.type = WIRE_RMA_DATA, .flags = WIRE_F_LAST, .job = f->job, .win = f->win,
		.origin = f->origin, .target = f->target, .seq = f->seq, .off = f->off,
		.len = f->total - f->off, .total = f->total,
	};

	memset(bytes, 9, sizeof(bytes));
	assert_int_equal(lane_send(l, &d, bytes, NULL, NULL), 0);
	b.data_end = l->tx.end;
}

static int on_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload,
		  void *token)
{
	struct wire_ackrec rec = { .win = f->win, .origin = f->origin, .target = f->target,
				   .seq = f->seq };
	struct wire_frame ack = { .type = WIRE_RMA_ACK, .flags = b.busy ? WIRE_F_BUSY : 0, .job = f->job,
				  .len = WIRE_ACK_SIZE };
	uint8_t buf[WIRE_ACK_SIZE];

	if (f->win != KEY) {
		b.others++;
		return 0;
	}
	b.job = f->job;
	b.puts += f->type == WIRE_RMA_PUT;
	b.notices += f->type == WIRE_RMA_NOTIFY;
	b.subs += f->type == WIRE_RMA_PUT && f->flags & WIRE_F_SUB;
	if (!(f->flags & WIRE_F_LAST))
		return 0;
	if (f->type == WIRE_RMA_GET)
		answer(l, f);
	wire_ack_put(buf, 0, &rec);
	assert_int_equal(lane_send(l, &ack, buf, NULL, NULL), 0);
	return 0;
}

static void on_up(void *ctx, struct lane *l)
{
	b.lane = l;
	b.ups++;
}

static void on_down(void *ctx, struct lane *l, int err, const char *why)
{
	b.lane = NULL;
	b.downs++;
}

static bool key_of(void *ctx, const uint8_t *id, uint8_t *key)
{
	memcpy(key, jobkey, sizeof(jobkey));
	return true;
}

static const struct xport_handlers handlers_b = {
	.frame_end = on_end, .lane_up = on_up, .lane_down = on_down, .job_key = key_of,
};

static void step(void)
{
	assert_true(loop_run_once(a.k.loop, 0) >= 0);
	link_poll(a.k.link);
	assert_true(loop_run_once(b.loop, 0) >= 0);
}

#define RUN(cond) RUN_FOR(step, 40, cond)

/* Rank 0 is the client's, ranks 1 and 2 live on node B. */
static void make_window(struct win_job *job)
{
	struct prog_win_node nodes[KIT_NODES] = { kit_node(guid_a, NULL, 0), kit_node(guid_b, b.addr, b.naddrs) };
	struct win_create c = {
		.job = job, .key = KEY, .nranks = RANKS, .mem = PROG_MEM_NONE, .session = 1,
		.pid = getpid(), .mem_fd = -1,
	};
	const char *why = "";

	c.ctl_fd = kit_ctl(&a.wc, KEY, 0, RANKS);
	c.table_fd = kit_table(nodes, RANKS, 1);
	if (win_new(&c, &a.win, &why))
		fail_msg("win_new: %s", why);
	a.wins[0] = a.win;
}

static void make_client(void)
{
	struct win_job *job;
	const char *why = "";

	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &job, &why), 0);
	job->stats = stats_new(1);
	a.seg = kit_client(&a.c, job, sizeof(*a.seg));
	a.c.wins = a.wins;
	a.c.max_wins = 4;
	a.c.view.regions.map = a.regions;
	a.c.view.regions.max = 4;
	assert_int_equal(rma_client_attach(a.rma, &a.c), 0);
}

static int setup_workers(unsigned int workers)
{
	struct xport_opts ob = { .workers = 1, .transport = "loop", .handlers = &handlers_b,
				 .post = kit_post };
	char err[XPORT_ERR];

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	log_set_level(PROG_LOG_ERROR);
	memcpy(ob.guid, guid_b, 16);
	kit_link_new(&a.k, guid_a, workers, &kit_host);
	assert_int_equal(rma_new(a.k.link, NULL, &a.rma), 0);
	kit_link_listen(&a.k);
	assert_int_equal(loop_new(LOOP_EPOLL, &b.loop), 0);
	assert_int_equal(xport_new(&ob, &b.x, err), 0);
	assert_int_equal(xport_attach(b.x, 0, b.loop, NULL, &b.xw), 0);
	assert_int_equal(xport_listen(b.x, b.loop, err), 0);
	b.naddrs = xport_addrs(b.x, b.addr);
	make_client();
	make_window(a.c.view.job);
	return 0;
}

static int setup(void **state)
{
	return setup_workers(1);
}

/* The engine is the first of two: the stream of rank 1 is the other's, and what this one has is a sub-stream. */
static int setup_two(void **state)
{
	return setup_workers(2);
}

static int teardown(void **state)
{
	struct win *w = win_get(a.win);
	struct win_job *job = win_job_get(a.c.view.job);

	rma_client_detach(a.rma, &a.c);
	for (int i = 0; i < 4; i++)
		win_map_put(a.regions[i]);
	a.wins[0] = NULL;
	win_free(a.win);
	rma_win_gone(a.rma, w);
	win_put(w);
	if (win_job_leave(job))
		link_job_gone(a.k.link, job);
	win_job_put(job);
	win_map_put(a.c.view.seg);
	xport_unlisten(b.x);
	kit_link_close(&a.k);
	xport_detach(b.xw, 0);
	xport_free(b.x);
	rma_free(a.rma);
	kit_link_free(&a.k);
	loop_free(b.loop);
	kit_ctl_free(&a.wc, RANKS);
	return 0;
}

static void submit(struct prog_sqe e)
{
	kit_submit(a.seg, &e);
}

static struct prog_sqe put(uint64_t seq)
{
	return (struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .target = 1, .seq = seq, .len = 8 };
}

static uint64_t acked(void)
{
	return __atomic_load_n(&a.wc.streams[1].acked, __ATOMIC_ACQUIRE);
}

static void test_put(void **state)
{
	for (uint64_t seq = 1; seq <= KIT_SLOTS; seq++)
		submit(put(seq));
	RUN(acked() == KIT_SLOTS);
	assert_int_equal(b.puts, KIT_SLOTS);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
}

static void step_untimed(void)
{
	step();
	loop_timer_cancel(&a.k.xw->confirm);
}

/* Has node B heard that all of its last data has come, without time passing? */
static bool is_confirmed(uint64_t seq)
{
	RUN_FOR(step_untimed, 40, acked() == seq);
	for (int i = 0; i < 20; i++)
		step_untimed();
	return b.lane->tx.confirmed >= b.data_end;
}

/* A target that may wait for it hears at once that data has come; else nobody is woken for that. */
static void test_confirm(void **state)
{
	struct prog_sqe e = {
		.opcode = PROG_SQE_OP_GET, .flags = PROG_SQE_REGION, .target = 1, .len = 2 * REPLY_COPIES,
	};

	assert_true(e.len > REPLY_COPIES);
	a.regions[0] = kit_map(e.len);
	e.seq = 1;
	submit(e);
	assert_false(is_confirmed(1));
	e.seq = 2;
	e.flags |= PROG_SQE_FENCE;
	submit(e);
	assert_true(is_confirmed(2));
	e.seq = 3;
	e.flags &= ~PROG_SQE_FENCE;
	submit(e);
	submit(put(4));
	assert_true(is_confirmed(4));
	/* further gets need not wait */
	e.len = REPLY_COPIES;
	e.seq = 5;
	submit(e);
	e.seq = 6;
	submit(e);
	assert_false(is_confirmed(6));
	/* small ones are copied there, many are not */
	e.len = REPLY_COPIES / 4;
	for (e.seq = 7; e.seq < 9; e.seq++)
		submit(e);
	submit(put(9));
	assert_true(is_confirmed(9));
	e.seq = 10;
	submit(e);
	submit(put(11));
	assert_false(is_confirmed(11));
}

static struct {			/* what the worker was told */
	unsigned int follows, spreads, expects, awaits;
	bool awaited;
	cpu_set_t best;
} told;

static void expect(struct link_host *h, unsigned int worker)
{
	assert_int_equal(worker, 0);
	told.expects++;
}

static void follow(struct link_host *h, unsigned int worker, const cpu_set_t *best)
{
	assert_int_equal(worker, 0);
	told.follows++;
	told.best = *best;
}

static void spread(struct link_host *h, unsigned int worker)
{
	assert_int_equal(worker, 0);
	told.spreads++;
}

static void await(struct link_host *h, unsigned int worker, bool waits)
{
	assert_int_equal(worker, 0);
	told.awaits += waits;
	told.awaited = waits;
}

/* @n puts, after which the client waits or not, @times times. */
static void post(unsigned int times, unsigned int n, bool waits)
{
	static uint64_t seq;

	if (!acked())
		seq = 0;
	while (times--) {
		for (unsigned int i = 0; i < n; i++)
			submit(put(++seq));
		a.seg->waits += waits;
		RUN(acked() == seq);
	}
}

static void pass(uint64_t ns)
{
	uint64_t begin = loop_now();

	while (loop_now() - begin < ns)
		;
}

/* What the client says of copies that it put off is counted when the worker looks, and when it leaves; not less, if it counts back. */
static void test_deferred(void **state)
{
	struct win_job *job = win_job_get(a.c.view.job);
	const struct stats_block *st = job->stats->block;

	a.seg->deferred = 3;
	a.seg->deferred_bytes = 5000;
	post(1, 1, true);
	assert_int_equal(st->deferred, 3);
	assert_int_equal(st->deferred_bytes, 5000);
	a.seg->deferred = 1;
	post(1, 1, true);
	assert_int_equal(st->deferred, 3);
	a.seg->deferred = 2;
	a.seg->deferred_bytes = 7000;
	rma_client_detach(a.rma, &a.c);
	assert_int_equal(st->deferred, 4);
	assert_int_equal(st->deferred_bytes, 7000);
	win_job_put(job);
}

static struct {			/* what the kernel says of clients, and how often it was asked */
	cpu_set_t first, all;
	unsigned int asked, asked_all;
	int err;
} kernel;

static int client_cpus(struct link_host *h, const struct client_view *c, bool threads, cpu_set_t *out)
{
	kernel.asked += !threads;
	kernel.asked_all += threads;
	*out = threads ? kernel.all : kernel.first;
	return kernel.err;
}

/* The worker is told to go to @cpu, sooner or later, or, -1, nowhere for longer than the kernel's answers count; for how long, ns. */
static uint64_t expect_told(int cpu)
{
	time_t limit = time(NULL) + 30;
	uint64_t begin = loop_now();
	cpu_set_t want;

	CPU_ZERO(&want);
	if (cpu >= 0)
		CPU_SET(cpu, &want);
	told.follows = 0;
	memset(&told.best, 0, sizeof(told.best));
	do
		post(1, 1, true);
	while (cpu < 0 ? loop_now() - begin < 250000000 : !CPU_EQUAL(&told.best, &want) && time(NULL) < limit);
	assert_true(CPU_EQUAL(&told.best, &want));
	return loop_now() - begin;
}

/* Clients are believed where the kernel lets them run, and the kernel is not asked for each of their words. */
static void test_follow_allowed(void **state)
{
	uint64_t most;

	memset(&told, 0, sizeof(told));
	memset(&kernel, 0, sizeof(kernel));
	CPU_SET(3, &kernel.first);
	CPU_SET(3, &kernel.all);
	CPU_SET(4, &kernel.all);
	kit_host.follow = follow;
	kit_host.spread = spread;
	kit_host.client_cpus = client_cpus;
	a.seg->cpu = 1 + 3;
	post(20, 1, true);
	expect_told(3);
	assert_true(kernel.asked);
	assert_int_equal(kernel.asked_all, 0);
	/* another thread's */
	a.seg->cpu = 1 + 4;
	expect_told(4);
	assert_true(kernel.asked_all);
	/* somebody else's */
	kernel.asked = kernel.asked_all = 0;
	a.seg->cpu = 1 + 5;
	most = expect_told(-1) / 100000000 + 2;
	assert_in_range(kernel.asked, 1, most);
	assert_in_range(kernel.asked_all, 1, most);
	/* it was moved */
	CPU_SET(5, &kernel.first);
	expect_told(5);
	CPU_CLR(5, &kernel.first);
	a.seg->cpu = 1 + 3;
	expect_told(3);
	kernel.err = -ESRCH;
	a.seg->cpu = 1 + 4;
	expect_told(-1);
	kit_host.follow = NULL;
	kit_host.spread = NULL;
	kit_host.client_cpus = NULL;
}

/* Who waits after each operation or two has the worker where it has posted; not who posts many, nor for much at once. */
static void test_follow(void **state)
{
	struct prog_sqe e = {
		.opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_REGION, .target = 1, .len = 2u << 20,
	};
	time_t limit = time(NULL) + 30;
	cpu_set_t want;

	memset(&told, 0, sizeof(told));
	kit_host.follow = follow;
	kit_host.spread = spread;
	kit_host.expect = expect;
	kit_host.await = await;
	a.seg->cpu = 1 + 3;
	post(20, 1, false);
	assert_int_equal(told.follows, 0);
	post(20, 1, true);
	assert_true(told.follows);
	assert_int_equal(told.expects, 0);
	/* it does nothing else */
	while (!told.awaits && time(NULL) < limit)
		post(20, 1, true);
	assert_true(told.awaits);
	assert_false(told.awaited);
	/* it does, before each of them */
	told.awaits = 0;
	for (int i = 0; i < 20; i++) {
		pass(200000);
		post(1, 1, true);
	}
	assert_int_equal(told.awaits, 0);
	/* some together, again and again */
	told.follows = 0;
	while ((!told.follows || !told.expects) && time(NULL) < limit)
		post(20, 8, true);
	assert_true(told.follows && told.expects);
	/* something is computed between them: not more than was on its way */
	told.expects = 0;
	for (int i = 0; i < 20; i++) {
		post(1, 1, false);
		pass(200000);
		post(1, 1, true);
		pass(200000);
	}
	assert_in_range(told.expects, 0, 1);
	CPU_ZERO(&want);
	CPU_SET(3, &want);
	assert_true(CPU_EQUAL(&told.best, &want));
	/* elsewhere */
	a.seg->cpu = 1 + 7;
	post(1, 1, true);
	CPU_ZERO(&want);
	CPU_SET(7, &want);
	assert_true(CPU_EQUAL(&told.best, &want));
	/* again and again, as the worker forgets */
	told.follows = 0;
	while (!told.follows && time(NULL) < limit)
		post(1, 1, true);
	assert_true(told.follows);
	/* nonsense, and nothing */
	told.follows = 0;
	a.seg->cpu = UINT32_MAX;
	post(1, 1, true);
	a.seg->cpu = 1 + CPU_SETSIZE;
	post(1, 1, true);
	a.seg->cpu = 0;
	post(1, 1, true);
	assert_int_equal(told.follows, 0);
	/* many at once */
	a.seg->cpu = 1 + 2;
	post(8, KIT_SLOTS / 2, true);
	told.follows = 0;
	post(8, KIT_SLOTS / 2, true);
	assert_int_equal(told.follows, 0);
	assert_int_equal(told.spreads, 0);
	/* much */
	a.regions[0] = kit_map(e.len);
	e.seq = acked() + 1;
	submit(e);
	RUN(acked() == e.seq);
	assert_true(told.spreads);
	kit_host.follow = NULL;
	kit_host.spread = NULL;
	kit_host.expect = NULL;
	kit_host.await = NULL;
}

static struct win_map *make_region(uint32_t i, size_t size)
{
	struct win_map *m = kit_map(size);

	a.regions[i] = m;
	return m;
}

/* The region's pages cannot be provided any more: as if they lay behind the end of a file. */
static void break_region(struct win_map *m)
{
	int fd = memfd_create("empty", MFD_CLOEXEC);

	/* cmocka has set its own handler, and will take this one away */
	assert_int_equal(win_sigbus_init(), 0);
	assert_true(mmap(m->mem, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		    m->mem);
	close(fd);
}

/* A client's memory gives way while the kernel sends from it, or receives: only that fails. */
static void test_region_gone(void **state)
{
	enum { LEN = 100000 };
	struct prog_win_stream *st = &a.wc.streams[1];
	struct prog_sqe e = {
		.opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_REGION, .target = 1, .seq = 1, .len = LEN,
	};

	break_region(make_region(0, LEN));
	submit(e);
	RUN(acked() == 1);
	assert_int_equal(b.puts, 1);
	assert_int_equal(st->err_seq, 1);
	assert_int_equal(st->err, -EFAULT);
	st->err_seq = 0;
	e = (struct prog_sqe){
		.opcode = PROG_SQE_OP_GET, .flags = PROG_SQE_REGION, .target = 1, .seq = 2, .len = LEN,
		.region = 1,
	};
	break_region(make_region(1, LEN));
	submit(e);
	submit(put(3));
	RUN(acked() == 3);
	assert_int_equal(st->err_seq, 2);
	assert_int_equal(st->err, -EFAULT);
	st->err_seq = 0;
	/* whole memory behind it all */
	e.seq = 4;
	e.region = 2;
	make_region(2, LEN);
	submit(e);
	RUN(acked() == 4);
	assert_int_equal(st->err_seq, 0);
	for (size_t i = 0; i < LEN; i++)
		assert_int_equal(((uint8_t *)a.regions[2]->mem)[i], 9);
	assert_int_equal(b.downs, 0);
}

static void tell(uint8_t type)
{
	struct wire_frame f = { .type = type, .job = b.job, .win = KEY, .target = 1 };

	assert_int_equal(lane_send(b.lane, &f, NULL, NULL, NULL), 0);
}

/* A stream that is told to stop waits until it may go on; others do not. */
static void test_stop(void **state)
{
	struct prog_sqe e = put(1);
	struct win_job *job = a.c.view.job;

	submit(e);
	RUN(acked() == 1);
	tell(WIRE_RMA_STOP);
	for (int i = 0; i < 20; i++)
		step();
	for (uint64_t seq = 2; seq <= 10; seq++)
		submit(put(seq));
	for (uint64_t seq = 1; seq <= 10; seq++) {
		e.target = 2;
		e.seq = seq;
		submit(e);
	}
	RUN(a.wc.streams[2].acked == 10);
	for (int i = 0; i < 20; i++)
		step();
	assert_int_equal(acked(), 1);
	assert_int_equal(b.puts, 11);
	assert_int_equal(job->stats->block[0].stops, 1);
	tell(WIRE_RMA_GO);
	RUN(acked() == 10);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
	/* the lane's end is the end of that, too */
	tell(WIRE_RMA_STOP);
	for (int i = 0; i < 20; i++)
		step();
	submit(put(11));
	lane_close(b.lane, -EIO, "test");
	RUN(acked() == 11);
	assert_int_equal(a.wc.streams[1].err_seq, 11);
	a.wc.streams[1].err_seq = 0;
	usleep(PEER_BACKOFF_MIN_NS / 1000);
	submit(put(12));
	RUN(acked() == 12);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
}

/* A notification goes to a daemon that knows what it is, and not behind an operation that could not be read. */
static void test_notify(void **state)
{
	struct prog_sqe e = { .opcode = PROG_SQE_OP_NOTIFY, .target = 1, .disp = PROG_NOTIFY_DISP(3, 1) }, unread = put(3);
	struct link_peer *lp, *tmp;

	submit(put(1));
	e.seq = 2;
	submit(e);
	RUN(acked() == 2);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
	assert_int_equal(b.notices, 1);
	/* no CMA, no helper: the daemon cannot read it */
	unread.flags = PROG_SQE_VA;
	submit(unread);
	e.seq = 4;
	submit(e);
	RUN(acked() == 4);
	assert_int_equal(a.wc.streams[1].err_seq, 3);
	a.wc.streams[1].err_seq = 0;
	e.seq = 5;
	e.disp = PROG_NOTIFY_DISP(3, 0);
	submit(e);
	RUN(acked() == 5);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
	assert_int_equal(b.notices, 2);
	/* an older daemon: the stream goes on */
	HASH_ITER(hh, a.k.link->peers, lp, tmp)
		lp->lane->notify = false;
	e.seq = 6;
	submit(e);
	submit(put(7));
	RUN(acked() == 7);
	assert_int_equal(a.wc.streams[1].err_seq, 6);
	assert_int_equal(a.wc.streams[1].err, -EOPNOTSUPP);
	assert_int_equal(b.notices, 2);
}

/* No more streams than the user may have: an operation that needs one more fails, alone. */
static void test_quota(void **state)
{
	struct prog_win_stream *st = &a.wc.streams[2];
	struct prog_sqe e = put(1);
	struct win_limits lim, one;

	win_limits_get(&lim);
	one = lim;
	one.streams = 1;
	win_limits_set(&one);
	submit(put(1));
	e.target = 2;
	submit(e);
	submit(put(2));
	RUN(acked() == 2);
	assert_int_equal(st->acked, 1);
	assert_int_equal(st->err_seq, 1);
	assert_int_equal(st->err, -EDQUOT);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
	assert_int_equal(b.puts, 2);
	st->err_seq = 0;
	win_limits_set(&lim);
	e.seq = 2;
	submit(e);
	RUN(st->acked == 2);
	assert_int_equal(st->err_seq, 0);
	assert_int_equal(b.puts, 3);
}

/* No node more than the user may have: an operation that is the first to one fails. */
static void test_nodes_quota(void **state)
{
	struct prog_win_stream *st = &a.wc.streams[1];
	struct win_limits lim, none;

	win_limits_get(&lim);
	none = lim;
	none.tables = 0;
	win_limits_set(&none);
	submit(put(1));
	RUN(acked() == 1);
	assert_int_equal(st->err_seq, 1);
	assert_int_equal(st->err, -EDQUOT);
	assert_int_equal(b.puts, 0);
	st->err_seq = 0;
	win_limits_set(&lim);
	submit(put(2));
	RUN(acked() == 2);
	assert_int_equal(st->err_seq, 0);
	assert_int_equal(b.puts, 1);
}

/* Another job of the same user with node B, which another engine might have; its lane is up. */
static struct link_job *other_job(void)
{
	struct prog_win_node node = kit_node(guid_b, b.addr, b.naddrs);
	struct win_job *job;
	struct link_job *j;
	const char *why = "";
	int err;

	assert_int_equal(win_job_join(other_id, jobkey, getuid(), &job, &why), 0);
	j = link_job_get(a.k.link, job, &node, &err);
	assert_non_null(j);
	assert_int_equal(link_job_connect(j), 0);
	RUN(j->state == LINK_OPEN);
	return j;
}

static void end_other(struct link_job *j)
{
	struct win_job *job = win_job_get(j->job);

	assert_true(win_job_leave(job));
	link_job_gone(a.k.link, job);
	win_job_put(job);
}

/* A lane goes when no job has used it for a while; the next job has one at once. */
static void test_idle_lane(void **state)
{
	struct link_job *j = other_job();
	struct link_peer *p = j->peer;
	uint64_t end;

	a.k.link->o.lane_idle_ns = 300000000;
	end_other(j);
	RUN(b.downs == 1);
	assert_null(p->lane);
	assert_int_equal(p->downs, 0);
	j = other_job();
	assert_ptr_equal(j->peer, p);
	assert_int_equal(b.ups, 2);
	/* a job that comes in time keeps it */
	end_other(j);
	j = other_job();
	for (end = loop_now() + 2 * a.k.link->o.lane_idle_ns; loop_now() < end; )
		step();
	assert_int_equal(b.ups, 2);
	assert_int_equal(b.downs, 1);
	end_other(j);
}

/* Another job fills the lane before this one could ask for its proof: wait, do not fail. */
static void test_open_on_full_lane(void **state)
{
	static uint8_t bytes[50000];
	struct wire_frame f = {
		.type = WIRE_RMA_PUT, .flags = WIRE_F_LAST, .win = 1, .target = 1, .len = sizeof(bytes),
		.total = sizeof(bytes),
	};
	struct link_job *j = other_job();
	struct lane *l = j->peer->lane;
	unsigned int sent = 0, quiet = 0;

	f.job = j->index;
	lane_hold(b.lane);
	/* large frames do not fit any more, then small ones */
	while (quiet < 200) {
		int ret;

		f.seq = sent + 1;
		ret = lane_send(l, &f, bytes, NULL, NULL);
		sent += !ret;
		quiet = ret ? quiet + 1 : 0;
		if (!ret)
			continue;
		assert_int_equal(ret, -EAGAIN);
		if (f.len != WIRE_HDR_SIZE) {
			f.len = f.total = f.len / 2 > WIRE_HDR_SIZE ? f.len / 2 : WIRE_HDR_SIZE;
			quiet = 0;
		}
		step();
	}
	for (uint64_t seq = 1; seq <= 5; seq++)
		submit(put(seq));
	for (int i = 0; i < 100; i++)
		step();
	assert_int_equal(acked(), 0);
	lane_release(b.lane);
	RUN(acked() == 5);
	assert_int_equal(b.puts, 5);
	assert_int_equal(b.others, sent);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
	end_other(j);
}

/*
 * A lane that was made for other frames is up before this engine uses it.  When it ends after a good while, the next
 * one is made at once: no operation fails for that.
 */
static void test_lane_of_others(void **state)
{
	struct link_job *j = other_job();

	submit(put(1));
	RUN(acked() == 1);
	assert_int_equal(b.ups, 1);
	usleep(PEER_BACKOFF_MAX_NS / 1000);
	lane_close(b.lane, -EIO, "test");
	RUN(!j->peer->lane);
	submit(put(2));
	RUN(acked() == 2);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
	assert_int_equal(b.puts, 2);
	end_other(j);
}

/* Node B said to be elsewhere, or by another user, is reached by a lane of its own. */
static void test_lanes_apart(void **state)
{
	struct link_job *j = other_job(), *k;
	struct prog_win_node node = kit_node(guid_b, b.addr, b.naddrs);
	int err;

	node.addr[0].ip[0] ^= 1;
	k = link_job_get(a.k.link, j->job, &node, &err);
	assert_non_null(k);
	assert_ptr_not_equal(k->peer, j->peer);
	assert_int_equal(link_job_connect(k), 0);
	RUN(!k->peer->lane);
	/* one that leads nowhere is nobody else's trouble */
	submit(put(1));
	RUN(acked() == 1);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
	assert_int_equal(b.ups, 1);
	end_other(j);
}

static unsigned int bad;
static char bad_why[128];

static void client_bad(struct link_host *h, const struct client_view *c, const char *why)
{
	bad++;
	snprintf(bad_why, sizeof(bad_why), "%s", why);
}

/* Its numbers, acknowledgements and errors are its own, and its frames say what they are. */
static void test_sub(void **state)
{
	struct prog_win_stream *sub = &a.wc.subs[0 * RANKS + 1];
	struct prog_sqe e = put(1);

	e.flags = PROG_SQE_SUB;
	for (e.seq = 1; e.seq <= 5; e.seq++)
		submit(e);
	/* the stream of rank 2 is this engine's */
	e = put(1);
	e.target = 2;
	submit(e);
	RUN(sub->acked == 5 && a.wc.streams[2].acked == 1);
	assert_int_equal(b.puts, 6);
	assert_int_equal(b.subs, 5);
	assert_int_equal(a.wc.streams[1].acked, 0);
	/* one whose bytes cannot be read */
	break_region(make_region(0, 100000));
	e = put(6);
	e.flags = PROG_SQE_SUB | PROG_SQE_REGION;
	e.len = 100000;
	submit(e);
	RUN(sub->acked == 6);
	assert_int_equal(sub->err_seq, 6);
	assert_int_equal(sub->err, -EFAULT);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
	/* nothing of it is lost with the lane but what was under way */
	lane_close(b.lane, -EIO, "test");
	RUN(!b.lane);
	sub->err_seq = 0;
	e = put(7);
	e.flags = PROG_SQE_SUB;
	submit(e);
	RUN(sub->acked == 7);
	e.seq = 8;
	submit(e);
	RUN(sub->acked == 8);
}

static bool worker_busy;

static bool is_busy(struct link_host *h, unsigned int worker)
{
	assert_int_equal(worker, 0);
	return worker_busy;
}

/* The client hears that the worker, here or there, has no time left. */
static void test_busy(void **state)
{
	struct prog_win_stream *st = &a.wc.streams[1];

	kit_host.busy = is_busy;
	submit(put(1));
	RUN(acked() == 1);
	assert_int_equal(st->busy, 0);
	worker_busy = true;
	submit(put(2));
	RUN(acked() == 2);
	assert_int_equal(st->busy, 1);
	worker_busy = false;
	submit(put(3));
	RUN(acked() == 3);
	assert_int_equal(st->busy, 0);
	b.busy = true;
	submit(put(4));
	RUN(acked() == 4);
	assert_int_equal(st->busy, 1);
	b.busy = false;
	submit(put(5));
	RUN(acked() == 5);
	assert_int_equal(st->busy, 0);
	kit_host.busy = NULL;
}

/* Each of these ends the session. */
static void test_sub_bad(void **state)
{
	static const struct {
		uint8_t opcode, flags;
		uint32_t target;
		bool no_subs;
		const char *why;
	} cases[] = {
		{ PROG_SQE_OP_PUT, 0, 1, false, "target 1 in ring 0 of 2" },
		{ PROG_SQE_OP_PUT, PROG_SQE_SUB, 2, false, "no sub-stream of target 2 in ring 0 of 2" },
		{ PROG_SQE_OP_PUT, PROG_SQE_SUB, 1, true, "no sub-stream of target 1 in ring 0 of 2" },
		{ PROG_SQE_OP_ACC, PROG_SQE_SUB, 1, false, "opcode 4 in a sub-stream" },
		{ PROG_SQE_OP_GET_ACC, PROG_SQE_SUB, 1, false, "opcode 5 in a sub-stream" },
		{ PROG_SQE_OP_CAS, PROG_SQE_SUB, 1, false, "opcode 6 in a sub-stream" },
		{ PROG_SQE_OP_LOCK, PROG_SQE_SUB, 1, false, "opcode 7 in a sub-stream" },
		{ PROG_SQE_OP_UNLOCK, PROG_SQE_SUB, 1, false, "opcode 8 in a sub-stream" },
		{ PROG_SQE_OP_POST, PROG_SQE_SUB, 1, false, "opcode 9 in a sub-stream" },
		{ PROG_SQE_OP_COMPLETE, PROG_SQE_SUB, 1, false, "opcode 10 in a sub-stream" },
	};
	struct prog_win_stream *subs = a.win->ctl.subs;

	void (*fails)(struct link_host *h, const struct client_view *c, const char *why) = kit_host.client_bad;

	kit_host.client_bad = client_bad;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct prog_sqe e = {
			.opcode = cases[i].opcode, .flags = cases[i].flags, .target = cases[i].target, .seq = 1,
		};

		a.win->ctl.subs = cases[i].no_subs ? NULL : subs;
		bad = 0;
		submit(e);
		step();
		assert_int_equal(bad, 1);
		if (!strstr(bad_why, cases[i].why))
			fail_msg("\"%s\" does not say \"%s\"", bad_why, cases[i].why);
		/* the session is over: the engine looks at its ring no more, and the next one has a new one */
		rma_client_detach(a.rma, &a.c);
		a.seg->sq.tail = a.seg->sq.head = 0;
		assert_int_equal(rma_client_attach(a.rma, &a.c), 0);
	}
	a.win->ctl.subs = subs;
	kit_host.client_bad = fails;
	assert_int_equal(b.puts, 0);
}

/* The end of a window takes no time for streams that are not its own: looking at all of them each time would take hours. */
static void test_many_streams(void **state)
{
	const uint32_t n = KIT_MANY(100000);
	struct prog_win_node nodes[KIT_NODES] = { kit_node(guid_a, NULL, 0), kit_node(guid_b, b.addr, b.naddrs) };
	struct win_job *job = a.c.view.job;
	struct win_create c = {
		.job = job, .key = KEY + 1, .nranks = n, .mem = PROG_MEM_NONE, .session = 1, .slot = 1, .pid = getpid(), .mem_fd = -1,
	};
	struct rma_from *from = target_from(a.rma, NULL, job);
	const char *why = "";
	struct winctl wc;
	struct win *w;
	int err;

	assert_non_null(from);
	c.ctl_fd = kit_ctl(&wc, KEY + 1, 0, n);
	c.table_fd = kit_table(nodes, n, 1);
	if (win_new(&c, &w, &why))
		fail_msg("win_new: %s", why);
	for (uint32_t i = 1; i < n; i++) {
		struct wire_frame f = { .type = WIRE_RMA_PUT, .win = KEY + 2, .origin = i };

		assert_non_null(origin_stream_open(a.rma->conns, w, 1, i, &err));
		assert_non_null(ts_get(from, &f));
	}
	for (int i = 0; i < 300000; i++)
		rma_win_gone(a.rma, a.win);
	assert_int_equal(HASH_COUNT(a.rma->streams), n - 1);
	assert_int_equal(HASH_COUNT(from->streams), n - 1);
	assert_int_equal(HASH_COUNT(a.rma->wins), 1);
	win_get(w);
	win_free(w);
	rma_win_gone(a.rma, w);
	win_put(w);
	assert_int_equal(HASH_COUNT(a.rma->streams), 0);
	assert_null(a.rma->wins);
	kit_ctl_free(&wc, n);
}

/* What happens to a peer's lane is looked up in its own streams: another peer's, made to look like one of them, is not met. */
static void test_streams_of_peer(void **state)
{
	struct stream *s[RANKS], *other;
	struct link_job *j;
	struct rma_peer *p;
	int n, err;

	assert_non_null(origin_stream_open(a.rma->conns, a.win, 0, 0, &err));
	for (uint32_t i = 1; i < RANKS; i++) {
		struct prog_sqe e = put(1);

		e.target = i;
		submit(e);
	}
	RUN(acked() == 1 && a.wc.streams[2].acked == 1);
	for (uint32_t i = 1; i < RANKS; i++)
		s[i] = origin_stream_find(a.rma, a.win->job, KEY, 0, i);
	p = s[1]->peer;
	j = s[1]->lj;
	assert_ptr_equal(p, s[2]->peer);
	DL_COUNT2(p->streams, other, n, peer_next);
	assert_int_equal(n, 2);
	DL_COUNT2(a.rma->local.streams, other, n, peer_next);
	assert_int_equal(n, 1);
	other = a.rma->local.streams;
	assert_int_equal(other->key.target, 0);
	other->peer = p;
	other->lj = j;

	other->unsent = 0;
	other->locks_out = 1;
	other->sent_any = true;

	j->state = LINK_OPENING;
	for (uint32_t i = 1; i < RANKS; i++) {
		struct prog_sqe e = put(2);

		e.target = i;
		submit(e);
	}
	RUN(s[1]->unsent != SLOT_NONE && s[2]->unsent != SLOT_NONE);
	j->state = LINK_OPEN;
	origin_opened(j);
	assert_true(s[1]->unsent == SLOT_NONE && s[2]->unsent == SLOT_NONE);
	assert_int_equal(other->unsent, 0);
	RUN(acked() == 2 && a.wc.streams[2].acked == 2);

	s[1]->locks_out = s[2]->locks_out = 1;
	origin_refused(j, -EACCES);
	assert_int_equal(s[1]->locks_out + s[2]->locks_out, 0);
	assert_int_equal(other->locks_out, 1);

	assert_true(s[1]->sent_any && s[2]->sent_any);
	origin_down(p->lp, -EIO);
	assert_false(s[1]->sent_any || s[2]->sent_any);
	assert_true(other->sent_any);

	other->peer = &a.rma->local;
	other->lj = NULL;
	other->unsent = SLOT_NONE;
	other->locks_out = 0;
	other->sent_any = false;
	/* a stream that ends is on no list */
	rma_win_gone(a.rma, a.win);
	assert_null(p->streams);
	assert_null(a.rma->local.streams);
}

/* ---- what could not go on for want of what nobody tells of ---- */

#define BOUNCE	65536u

struct helped {
	struct prog_helper_ring ring;
	uint8_t bounce[BOUNCE] __attribute__((aligned(64)));
};

static struct helped *helped;

static void other_done(void *arg, int status, void *bounce)
{
}

/* The helper thread does all that it was asked for, of which the jobs of the other worker are over then. */
static void play_helper(void)
{
	struct helper *h = a.c.view.helper;
	bool left;

	for (uint32_t i = helped->ring.done; i != helped->ring.tail; i++)
		helped->ring.job[i % PROG_HELPER_SLOTS].status = 0;
	__atomic_store_n(&helped->ring.done, helped->ring.tail, __ATOMIC_RELEASE);
	helper_reap(h, 1, &left);
}

static void step_helped(void)
{
	play_helper();
	step();
}

/*
 * A stream that found its client's helper busy is looked at again until it gets on, also if the helper was doing something else for it
 * the first time; and no other stream is.
 */
static void test_later(void **state)
{
	struct prog_helper_job job = { .kind = PROG_HELP_READ, .dtype = ~0ull };
	struct prog_sqe get = { .opcode = PROG_SQE_OP_GET, .flags = PROG_SQE_VA, .target = 1, .seq = 1, .len = 8 };
	struct prog_sqe va = put(2), e = put(1);
	struct win_map *map = kit_map(sizeof(*helped));
	struct stream *s, *other;

	helped = map->mem;
	a.c.view.helper = helper_new(map, &helped->ring, helped->bounce, BOUNCE);
	assert_non_null(a.c.view.helper);
	e.target = 2;
	submit(e);
	RUN(a.wc.streams[2].acked == 1);
	other = origin_stream_find(a.rma, a.win->job, KEY, 0, 2);
	/* it would be sent if it were looked at */
	other->unsent = 0;
	/* but for one place all are another worker's, and that one takes what the GET brings */
	for (int i = 0; i < PROG_HELPER_SLOTS - 1; i++)
		assert_int_equal(helper_post(a.c.view.helper, 1, &job, 0, NULL, other_done, NULL), 0);
	submit(get);
	RUN((s = origin_stream_find(a.rma, a.win->job, KEY, 0, 1)) && s->jobs);
	va.flags = PROG_SQE_VA;
	submit(va);
	RUN(s->seq_in == 2 && a.rma->retry.ns > RETRY_NS && !a.rma->retry.now);
	assert_int_equal(s->jobs, 1);
	assert_true(s->later);
	assert_false(other->active);
	RUN_FOR(step_helped, 40, acked() == 2);
	assert_null(a.rma->later);
	assert_int_equal(a.wc.streams[1].err_seq, 0);
	assert_int_equal(b.puts, 2);
	assert_int_equal(a.wc.streams[2].acked, 1);
	other->unsent = SLOT_NONE;
	/* one that ends waits no more */
	for (int i = 0; i < PROG_HELPER_SLOTS; i++)
		assert_int_equal(helper_post(a.c.view.helper, 1, &job, 0, NULL, other_done, NULL), 0);
	va.seq = 3;
	submit(va);
	RUN(s->later);
	rma_win_gone(a.rma, a.win);
	assert_null(a.rma->later);
	helper_kill(a.c.view.helper);
	helper_put(a.c.view.helper);
	a.c.view.helper = NULL;
	win_map_put(map);
}

#define W(name) cmocka_unit_test_setup_teardown(name, setup_two, teardown)
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
static const struct CMUnitTest tests[] = {
	T(test_put), T(test_follow), T(test_follow_allowed), T(test_deferred), T(test_confirm), T(test_region_gone), T(test_stop),
	T(test_notify), T(test_quota), T(test_nodes_quota),
	T(test_idle_lane), T(test_open_on_full_lane), T(test_lane_of_others), T(test_lanes_apart),
	T(test_busy), W(test_sub), W(test_sub_bad),
	T(test_many_streams), T(test_streams_of_peer), T(test_later),
};

KIT_SUITE(tests);

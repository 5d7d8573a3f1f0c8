/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include <asyncprog/ring.h>

#include "worker/worker.h"

static int kind;
static int64_t poll_ns;

/* A machine with other processors than this one, as far as workers ask and tell; online is empty: this one. */
static pthread_mutex_t machine_lock = PTHREAD_MUTEX_INITIALIZER;
static cpu_set_t online, allowed;
static atomic_bool slow;		/* threads ask late */

int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *out)
{
	bool made_up;

	if (slow)
		usleep(100000);
	pthread_mutex_lock(&machine_lock);
	made_up = CPU_COUNT(&online);
	if (made_up)
		CPU_AND(out, &online, &allowed);
	pthread_mutex_unlock(&machine_lock);
	assert(pthread_equal(thread, pthread_self()));
	return made_up || !sched_getaffinity(0, size, out) ? 0 : errno;
}

int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set)
{
	cpu_set_t both;
	bool made_up;
	int ret = 0;

	pthread_mutex_lock(&machine_lock);
	made_up = CPU_COUNT(&online);
	CPU_AND(&both, &online, set);
	if (made_up && CPU_COUNT(&both))
		allowed = *set;
	else if (made_up)
		ret = EINVAL;
	pthread_mutex_unlock(&machine_lock);
	assert(pthread_equal(thread, pthread_self()));
	return made_up || !sched_setaffinity(0, size, set) ? ret : errno;
}

/* The first @n processors, 0: those that there are; the worker that is started next may run on all of them. */
static void machine(int n)
{
	pthread_mutex_lock(&machine_lock);
	CPU_ZERO(&online);
	for (int i = 0; i < n; i++)
		CPU_SET(i, &online);
	allowed = online;
	pthread_mutex_unlock(&machine_lock);
}

static void machine_lacks(int cpu, bool lacks)
{
	pthread_mutex_lock(&machine_lock);
	if (lacks)
		CPU_CLR(cpu, &online);
	else
		CPU_SET(cpu, &online);
	pthread_mutex_unlock(&machine_lock);
}

static void only(int cpu, cpu_set_t *set)
{
	CPU_ZERO(set);
	CPU_SET(cpu, set);
}

static int setup(int k, int64_t poll)
{
	kind = k;
	poll_ns = poll;
	return 0;
}

static int epoll_sleep(void **state)
{
	return setup(LOOP_EPOLL, 0);
}

static int epoll_spin(void **state)
{
	return setup(LOOP_EPOLL, 20000);
}

static int uring_sleep(void **state)
{
	return setup(LOOP_IO_URING, 0);
}

static int uring_auto(void **state)
{
	return setup(LOOP_IO_URING, WORKER_POLL_AUTO);
}

static struct worker *make_with(const struct worker_opts *o)
{
	struct worker *w;
	int ret = worker_new(o, &w);

	if (ret && kind == LOOP_IO_URING) {
		print_message("# io_uring is not permitted here\n");
		skip();
	}
	assert_int_equal(ret, 0);
	return w;
}

static struct worker *make(uint32_t *sleeping)
{
	struct worker_opts o = { .loop = kind, .poll_ns = poll_ns, .need_wakeup = sleeping,
				 .prio = WORKER_PRIO_NONE };

	return make_with(&o);
}

/* What a client of @w, which does not run yet, writes to. */
static int client_of(struct worker *w)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	assert_true(fd >= 0);
	assert_non_null(worker_wake_by(w, fd));
	return fd;
}

static bool wait_sleeping(uint32_t *sleeping)
{
	time_t limit = time(NULL) + 30;

	while (!__atomic_load_n(sleeping, __ATOMIC_ACQUIRE))
		if (time(NULL) > limit)
			return false;
	return true;
}

/* A counter that clients publish, as a ring's tail. */
struct tail {
	uint32_t published, pad[15], consumed;
	struct worker *w;
	uint32_t *need_wakeup;
};

static int consume(void *ctx)
{
	struct tail *t = ctx;
	uint32_t p = __atomic_load_n(&t->published, __ATOMIC_ACQUIRE);
	int n = p - t->consumed;

	__atomic_store_n(&t->consumed, p, __ATOMIC_RELEASE);
	return n;
}

/*
 * No wake-up is lost: publish one, ring the bell as a client does, wait until it is consumed.
 * Random pauses put the publication before, into and behind the worker's way to sleep.  On a machine that has much else to do
 * there are as many rounds as the time is enough for.
 */
static void test_doorbell(void **state)
{
	uint32_t sleeping = 0;
	struct tail t = { .need_wakeup = &sleeping };
	struct worker *w = make(&sleeping);
	unsigned int seed = 7, i, k;
	uint64_t one = 1;
	time_t end = time(NULL) + 30, limit;
	int efd = client_of(w);

	assert_int_equal(worker_add_source(w, consume, &t), 0);
	assert_int_equal(worker_start(w), 0);
	for (i = 1; i <= 20000 && time(NULL) < end; i++) {
		for (k = rand_r(&seed) % 4 ? rand_r(&seed) % 3000 : 0; k; k--)
			__asm__ volatile("");
		__atomic_store_n(&t.published, i, __ATOMIC_RELEASE);
		__sync_synchronize();
		if (__atomic_load_n(&sleeping, __ATOMIC_RELAXED))
			assert_int_equal(write(efd, &one, sizeof(one)), 8);
		limit = time(NULL) + 40;
		while (__atomic_load_n(&t.consumed, __ATOMIC_ACQUIRE) != i)
			if (time(NULL) > limit)
				fail_msg("entry %u was never seen", i);
	}
	worker_stop(w);
	worker_free(w);
	close(efd);
}

/* It has come to rest, and nothing wakes it; a worker that polls does so only after something came. */
static void sleeps_on(const struct worker *w)
{
	struct timespec quiet = { .tv_nsec = 100000000 };
	struct worker_stats before, after;

	nanosleep(&quiet, NULL);
	worker_stats(w, &before);
	nanosleep(&quiet, NULL);
	worker_stats(w, &after);
	assert_int_equal(after.sleeps, before.sleeps);
	assert_int_equal(after.spin_ns, before.spin_ns);
}

static int consume_posted(void *ctx)
{
	struct tail *t = ctx;
	int n = worker_coalesces(t->w) ? 0 : consume(t);

	if (n)
		worker_posted(t->w, n);
	return n;
}

/*
 * Entries at short intervals from the worker's own processor: most of them need no kick, all are
 * seen although none is given to a worker that coalesces them, and afterwards it sleeps in earnest.
 */
static void test_coalesce(void **state)
{
	enum { N = 50000 };
	uint32_t sleeping = 0, s;
	struct tail t = { .need_wakeup = &sleeping };
	unsigned int i, n, kicks = 0, kicked = 0, coalescing = 0;
	struct worker *w;
	cpu_set_t old, here;
	uint64_t one = 1;
	time_t limit = time(NULL) + 20;
	int efd;

	assert_int_equal(sched_getaffinity(0, sizeof(old), &old), 0);
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
	w = t.w = make(&sleeping);
	efd = client_of(w);
	assert_int_equal(worker_add_source(w, consume_posted, &t), 0);
	assert_int_equal(worker_start(w), 0);
	assert_true(wait_sleeping(&sleeping));
	/*
	 * Whether a thread that is woken runs before its waker's slice ends is the scheduler's affair:
	 * this one gives way to the worker until it has seen it coalesce, for as long as that takes.
	 */
	for (i = 1; i <= N || (!coalescing && poll_ns <= 0 && time(NULL) < limit); i++) {
		for (unsigned int k = 500; k; k--)
			__asm__ volatile("");
		__atomic_store_n(&t.published, i, __ATOMIC_RELEASE);
		__sync_synchronize();
		s = __atomic_load_n(&sleeping, __ATOMIC_RELAXED);
		assert_true(s <= PROG_WAKEUP_COALESCED);
		if (s == PROG_WAKEUP_COALESCED)
			coalescing++;
		/* a kick stands until its entry is consumed */
		if (s != PROG_WAKEUP_NEEDED || __atomic_load_n(&t.consumed, __ATOMIC_ACQUIRE) < kicked)
			continue;
		kicks++;
		kicked = i;
		assert_int_equal(write(efd, &one, sizeof(one)), 8);
		while (!coalescing && poll_ns <= 0 &&
		       __atomic_load_n(&t.consumed, __ATOMIC_ACQUIRE) != i && time(NULL) < limit)
			sched_yield();
	}
	n = i - 1;
	while (__atomic_load_n(&t.consumed, __ATOMIC_ACQUIRE) != n)
		if (time(NULL) > limit + 10)
			fail_msg("%u of %u entries seen", t.consumed, n);
	if (!kicks || kicks > n / 10)
		fail_msg("%u kicks for %u entries", kicks, n);
	while (__atomic_load_n(&sleeping, __ATOMIC_ACQUIRE) != PROG_WAKEUP_NEEDED)
		if (time(NULL) > limit + 10)
			fail_msg("state %u, for ever", sleeping);
	sleeps_on(w);
	/* one that polls first for longer than entries are apart need not */
	assert_true(coalescing || poll_ns > 0);

	/* one that coalesces wake-ups can be woken like one that sleeps */
	for (i = n + 1; i <= n + 1000; i++) {
		__atomic_store_n(&t.published, i, __ATOMIC_RELEASE);
		__sync_synchronize();
		if (__atomic_load_n(&sleeping, __ATOMIC_RELAXED))
			assert_int_equal(write(efd, &one, sizeof(one)), 8);
		while (__atomic_load_n(&t.consumed, __ATOMIC_ACQUIRE) != i)
			if (time(NULL) > limit + 10)
				fail_msg("entry %u was never seen", i);
	}
	worker_stop(w);
	worker_free(w);
	close(efd);
	sched_setaffinity(0, sizeof(old), &old);
}

struct burst {
	struct tail t;
	struct worker *w;
	bool more;			/* atomic: likely to be posted */
};

static int consume_burst(void *ctx)
{
	struct burst *b = ctx;
	int n = consume(&b->t);

	if (n && __atomic_load_n(&b->more, __ATOMIC_RELAXED))
		worker_expect(b->w);
	return n;
}

/* While entries are expected the worker finds them by itself, and afterwards it sleeps in earnest. */
static void test_ticking(void **state)
{
	uint32_t sleeping = 0, s;
	struct burst b = { .t = { .need_wakeup = &sleeping }, .more = true };
	unsigned int i, found = 0;
	uint64_t one = 1;
	time_t limit = time(NULL) + 30;
	int efd;

	b.w = make(&sleeping);
	efd = client_of(b.w);
	assert_int_equal(worker_add_source(b.w, consume_burst, &b), 0);
	assert_int_equal(worker_start(b.w), 0);
	assert_true(wait_sleeping(&sleeping));
	for (i = 1; found < 20; i++) {
		__atomic_store_n(&b.t.published, i, __ATOMIC_RELEASE);
		__sync_synchronize();
		s = __atomic_load_n(&sleeping, __ATOMIC_RELAXED);
		found += s == PROG_WAKEUP_TICKING;
		if (s == PROG_WAKEUP_NEEDED)
			assert_int_equal(write(efd, &one, sizeof(one)), 8);
		while (__atomic_load_n(&b.t.consumed, __ATOMIC_ACQUIRE) != i ||
		       !__atomic_load_n(&sleeping, __ATOMIC_RELAXED))
			if (time(NULL) > limit)
				fail_msg("entry %u, posted in state %u: %u seen", i, s, b.t.consumed);
	}
	__atomic_store_n(&b.more, false, __ATOMIC_RELAXED);
	while (__atomic_load_n(&sleeping, __ATOMIC_ACQUIRE) != PROG_WAKEUP_NEEDED)
		if (time(NULL) > limit)
			fail_msg("state %u, for ever", sleeping);
	sleeps_on(b.w);
	worker_stop(b.w);
	worker_free(b.w);
	close(efd);
}

static void await(void *arg)
{
	worker_await(arg, true);
}

static void await_no_more(void *arg)
{
	worker_await(arg, false);
}

/* A worker that looks for an answer sleeps when it does not come, and where it is not waited for. */
static void test_await(void **state)
{
	uint32_t sleeping = 0;
	struct worker *w = make(&sleeping);

	assert_int_equal(worker_start(w), 0);
	for (int i = 0; i < 200; i++) {
		assert_int_equal(worker_call(w, await, w), 0);
		if (i % 2)
			assert_int_equal(worker_call(w, await_no_more, w), 0);
		assert_true(wait_sleeping(&sleeping));
	}
	sleeps_on(w);
	worker_stop(w);
	worker_free(w);
}

struct placing {
	struct worker *w;
	cpu_set_t idle, busy, is;
};

static void place(void *arg)
{
	struct placing *p = arg;

	worker_place(p->w, &p->idle, &p->busy);
	pthread_getaffinity_np(pthread_self(), sizeof(p->is), &p->is);
}

static void where(void *arg)
{
	struct placing *p = arg;

	pthread_getaffinity_np(pthread_self(), sizeof(p->is), &p->is);
}

static void follow(void *arg)
{
	struct placing *p = arg;

	worker_follow(p->w, &p->idle);
	pthread_getaffinity_np(pthread_self(), sizeof(p->is), &p->is);
}

static void spread(void *arg)
{
	struct placing *p = arg;

	worker_spread(p->w);
	pthread_getaffinity_np(pthread_self(), sizeof(p->is), &p->is);
}

/* A worker that hears nothing for so long, as the test does not run, goes by itself. */
#define ALONE_NS	50000000

/* Sooner or later the worker runs on @want, when it is told again and again that one of @best is. */
static void expect_follow(struct worker *w, const cpu_set_t *best, const cpu_set_t *want)
{
	struct placing p = { .w = w, .idle = *best };
	time_t limit = time(NULL) + 30;

	do
		assert_int_equal(worker_call(w, follow, &p), 0);
	while (!CPU_EQUAL(&p.is, want) && time(NULL) < limit);
	assert_true(CPU_EQUAL(&p.is, want));
}

static void on_first(const cpu_set_t *may, cpu_set_t *first, cpu_set_t *rest)
{
	int a = 0;

	while (!CPU_ISSET(a, may))
		a++;
	CPU_ZERO(first);
	CPU_SET(a, first);
	CPU_XOR(rest, may, first);
	if (!CPU_COUNT(rest))
		*rest = *may;	/* one processor: nowhere to go */
}

/* For small operations a worker goes where it is told to, within where it may run, and stays when it is there; large work goes first. */
static void test_follow(void **state)
{
	struct worker_opts o = { .loop = kind, .prio = WORKER_PRIO_NONE };
	struct worker *w = make_with(&o), *spinning;
	cpu_set_t may, first, rest, all, none;
	struct placing p = { .w = w };
	struct worker_stats st, before;
	uint64_t at;

	assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
	on_first(&may, &first, &rest);
	memset(&all, 0xff, sizeof(all));
	CPU_ZERO(&none);
	CPU_SET(CPU_SETSIZE - 1, &none);
	assert_int_equal(worker_start(w), 0);
	do {
		at = loop_now();
		expect_follow(w, &first, &first);
		worker_stats(w, &before);
		/* it is there */
		expect_follow(w, &all, &first);
		expect_follow(w, &may, &first);
		/* it may not be there */
		expect_follow(w, &none, &first);
		worker_stats(w, &st);
	} while (loop_now() - at >= ALONE_NS);
	assert_int_equal(st.moves, before.moves);
	expect_follow(w, &rest, &rest);
	expect_follow(w, &first, &first);
	/* much is to be done: anywhere, and not back at once */
	at = loop_now();
	assert_int_equal(worker_call(w, spread, &p), 0);
	assert_true(CPU_EQUAL(&p.is, &may));
	p.idle = first;
	assert_int_equal(worker_call(w, follow, &p), 0);
	if (loop_now() - at < ALONE_NS)
		assert_true(CPU_EQUAL(&p.is, &may));
	expect_follow(w, &first, &first);
	/* a message, twice */
	CPU_ZERO(&p.busy);
	p.idle = rest;
	do {
		at = loop_now();
		assert_int_equal(worker_call(w, place, &p), 0);
		assert_int_equal(worker_call(w, place, &p), 0);
		assert_true(CPU_EQUAL(&p.is, &rest));
		assert_int_equal(worker_call(w, spread, &p), 0);
	} while (loop_now() - at >= ALONE_NS);
	assert_true(CPU_EQUAL(&p.is, &rest));
	expect_follow(w, &first, &first);
	worker_stop(w);
	worker_free(w);

	/* who spins stays where it is */
	o.poll_ns = 1000;
	spinning = make_with(&o);
	assert_int_equal(worker_start(spinning), 0);
	p = (struct placing){ .w = spinning, .idle = first };
	assert_int_equal(worker_call(spinning, follow, &p), 0);
	assert_true(CPU_EQUAL(&p.is, &may));
	worker_stop(spinning);
	worker_free(spinning);
}

static struct worker *start_on(int n)
{
	struct worker_opts o = { .loop = kind, .prio = WORKER_PRIO_NONE };
	struct worker *w = make_with(&o);

	machine(n);
	assert_int_equal(worker_start(w), 0);
	return w;
}

/* Who has started a worker may give up rights that its thread needs to begin: it has begun. */
static void test_started(void **state)
{
	struct worker *w = make(NULL);

	assert_non_null(strstr(worker_describe(w), "not started"));
	slow = true;
	assert_int_equal(worker_start(w), 0);
	assert_null(strstr(worker_describe(w), "not started"));
	slow = false;
	worker_stop(w);
	worker_free(w);
}

/* Wherever clients wait or compute, the worker is on one of the processors that it was given, one of them or many. */
static void test_follow_cpusets(void **state)
{
	static const int sizes[] = { 1, 2, 3, 8 };
	cpu_set_t best, want;

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int n = sizes[i];
		struct worker *w = start_on(n);

		for (int cpu = 0; cpu < n; cpu++) {
			only(cpu, &best);
			expect_follow(w, &best, &best);
			/* one of others' */
			only(n, &want);
			expect_follow(w, &want, &best);
		}
		/* a client computes on the last one, where the worker is */
		memset(&best, 0xff, sizeof(best));
		CPU_CLR(n - 1, &best);
		only(n - 1, &want);
		if (n > 1) {
			CPU_ZERO(&want);
			for (int cpu = 0; cpu < n - 1; cpu++)
				CPU_SET(cpu, &want);
		}
		expect_follow(w, &best, &want);
		worker_stop(w);
		worker_free(w);
		machine(0);
	}
}

/* A processor that has gone is not followed to, until it is there again. */
static void test_follow_offline(void **state)
{
	cpu_set_t at[3], both;
	struct worker *w = start_on(3);
	struct placing p = { .w = w };
	struct worker_stats st, before;
	uint64_t begin;

	for (int i = 0; i < 3; i++)
		only(i, &at[i]);
	do {
		begin = loop_now();
		expect_follow(w, &at[0], &at[0]);
		machine_lacks(1, true);
		worker_stats(w, &before);
		p.idle = at[1];
		do
			assert_int_equal(worker_call(w, follow, &p), 0);
		while (loop_now() - begin < 10000000);
		worker_stats(w, &st);
	} while (loop_now() - begin >= ALONE_NS);
	assert_true(CPU_EQUAL(&p.is, &at[0]));
	assert_int_equal(st.moves, before.moves);
	/* two, of which one has gone */
	CPU_OR(&both, &at[1], &at[2]);
	expect_follow(w, &both, &at[2]);
	machine_lacks(1, false);
	expect_follow(w, &at[1], &at[1]);
	/* it is not held where one went that was said once: anywhere again after a while */
	machine_lacks(2, true);
	p.idle = at[2];
	begin = loop_now();
	do
		assert_int_equal(worker_call(w, follow, &p), 0);
	while (!CPU_ISSET(0, &p.is) && loop_now() - begin < 30000000000);
	CPU_OR(&both, &at[0], &at[1]);
	assert_true(CPU_EQUAL(&p.is, &both));
	worker_stop(w);
	worker_free(w);
	machine(0);
}

/* @idle and @busy, -1: none, are seen twice; the worker runs on @want then.  Before it runs on @old, or after a while anywhere. */
static void expect_place(struct worker *w, int idle, int busy, const cpu_set_t *old, const cpu_set_t *want)
{
	struct placing p = { .w = w };
	cpu_set_t may;

	CPU_ZERO(&p.idle);
	CPU_ZERO(&p.busy);
	if (idle >= 0)
		CPU_SET(idle, &p.idle);
	if (busy >= 0)
		CPU_SET(busy, &p.busy);
	assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
	assert_int_equal(worker_call(w, place, &p), 0);
	assert_true(CPU_EQUAL(&p.is, old) || CPU_EQUAL(&p.is, &may));
	assert_int_equal(worker_call(w, place, &p), 0);
	assert_true(CPU_EQUAL(&p.is, want));
}

/*
 * A worker goes where clients are blocked, or at least away from where they compute, when it was seen twice, and only within where it may
 * run; when nothing more comes it may run anywhere again.
 */
static void test_place(void **state)
{
	struct worker *w = make(NULL);
	time_t limit = time(NULL) + 30;
	cpu_set_t may, first, rest;
	struct worker_stats st;
	struct placing p;
	int a = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
	on_first(&may, &first, &rest);
	while (!CPU_ISSET(a, &first))
		a++;
	assert_int_equal(worker_start(w), 0);
	expect_place(w, -1, a, &may, &rest);
	expect_place(w, a, -1, &rest, &first);
	expect_place(w, a, a, &first, &rest);
	expect_place(w, CPU_SETSIZE - 1, -1, &rest, &may);
	expect_place(w, a, -1, &may, &first);
	worker_stats(w, &st);
	assert_true(st.moves >= (CPU_COUNT(&may) > 1 ? 5 : 0));
	do
		assert_int_equal(worker_call(w, where, &p), 0);
	while (!CPU_EQUAL(&p.is, &may) && time(NULL) < limit);
	assert_true(CPU_EQUAL(&p.is, &may));
	worker_stop(w);
	worker_free(w);
}

/* ---- two workers of one processor ---- */

enum { ROUNDS = 200 };		/* of each */

struct turns {
	struct worker *w;
	struct turns *other;
	atomic_int left;
	atomic_int *next;	/* place in `order' */
	unsigned char *order;	/* in which the two had rounds: [2 * ROUNDS] */
	unsigned char id;
};

/* A long round: more than a turn, far less than what the scheduler gives. */
static int long_round(void *ctx)
{
	struct turns *t = ctx;
	uint64_t end = loop_now() + 200000;

	if (!atomic_load(&t->left))
		return 0;
	if (atomic_load(&t->left) == ROUNDS)
		worker_kick(t->other->w);
	t->order[atomic_fetch_add(t->next, 1)] = t->id;
	while (loop_now() < end)
		;
	atomic_fetch_sub(&t->left, 1);
	return 1;
}

static void set_up(void *arg)
{
}

/* The longest run of one of them before one is through. */
static int longest_run(const unsigned char *order)
{
	int done[2] = { 0 }, run = 0, longest = 0;

	for (int i = 0; done[0] < ROUNDS && done[1] < ROUNDS; i++) {
		run = i && order[i] == order[i - 1] ? run + 1 : 1;
		if (run > longest)
			longest = run;
		done[order[i]]++;
	}
	return longest;
}

/* Real-time workers of one processor that have much to do take turns. */
static void test_turns(void **state)
{
	struct worker_opts o = { .loop = kind, .poll_ns = poll_ns, .prio = WORKER_PRIO_AUTO };
	unsigned char order[2 * ROUNDS];
	time_t limit = time(NULL) + 30;
	bool realtime = true;
	struct turns t[2];
	atomic_int next = 0;
	cpu_set_t may;
	int a = 0, i;

	assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
	while (!CPU_ISSET(a, &may))
		a++;
	CPU_ZERO(&may);
	CPU_SET(a, &may);
	o.cpus = &may;
	for (i = 0; i < 2; i++) {
		o.index = i;
		t[i] = (struct turns){ .other = &t[!i], .next = &next, .order = order, .id = i };
		t[i].w = make_with(&o);
		assert_int_equal(worker_add_source(t[i].w, long_round, &t[i]), 0);
		assert_int_equal(worker_start(t[i].w), 0);
		assert_int_equal(worker_call(t[i].w, set_up, NULL), 0);
		realtime = realtime && strstr(worker_describe(t[i].w), ", rr ");
	}
	for (i = 0; i < 2; i++)
		atomic_store(&t[i].left, realtime ? ROUNDS : 0);
	/* who begins wakes the other one */
	worker_kick(t[0].w);
	while (atomic_load(&t[0].left) || atomic_load(&t[1].left)) {
		if (time(NULL) > limit)
			fail_msg("rounds left: %d and %d", t[0].left, t[1].left);
		usleep(1000);
	}
	for (i = 0; i < 2; i++) {
		worker_stop(t[i].w);
		worker_free(t[i].w);
	}
	if (!realtime) {
		print_message("# real-time priority is not permitted here\n");
		skip();
	}
	if (longest_run(order) > 2)
		fail_msg("%d rounds of 200 us in a row", longest_run(order));
}

/* A read() that waits for what is written: whoever reads is stopped in it. */
static void *drain(void *arg)
{
	const int *efd = arg;
	uint64_t n;

	while (read(*efd, &n, sizeof(n)) == sizeof(n) && n < 1u << 30)
		;
	return NULL;
}

/*
 * A client that fills its eventfd's counter, or makes the file one that blocks and empties it all the time, does not
 * stop the worker, nor keep others from waking it.
 */
static void test_doorbell_abused(void **state)
{
	uint64_t one = 1, most = UINT64_MAX - 1;
	uint32_t sleeping = 0, i;
	struct tail t = { .need_wakeup = &sleeping };
	struct worker *w = make(&sleeping);
	int full = client_of(w), blocks = client_of(w), other = client_of(w);
	time_t limit = time(NULL) + 30;
	pthread_t drainer;

	assert_int_equal(fcntl(blocks, F_SETFL, 0), 0);
	assert_int_equal(pthread_create(&drainer, NULL, drain, &blocks), 0);
	assert_int_equal(worker_add_source(w, consume, &t), 0);
	assert_int_equal(worker_start(w), 0);
	assert_int_equal(write(full, &most, sizeof(most)), 8);
	for (i = 1; i <= 1000; i++) {
		assert_true(wait_sleeping(&sleeping));
		assert_int_equal(write(full, &one, sizeof(one)), -1);
		assert_int_equal(write(blocks, &one, sizeof(one)), 8);
		__atomic_store_n(&t.published, i, __ATOMIC_RELEASE);
		__sync_synchronize();
		if (__atomic_load_n(&sleeping, __ATOMIC_RELAXED))
			assert_int_equal(write(other, &one, sizeof(one)), 8);
		while (__atomic_load_n(&t.consumed, __ATOMIC_ACQUIRE) != i)
			if (time(NULL) > limit)
				fail_msg("round %u: not seen", i);
	}
	one = 1u << 30;
	assert_int_equal(write(blocks, &one, sizeof(one)), 8);
	pthread_join(drainer, NULL);
	worker_stop(w);
	worker_free(w);
	close(full);
	close(blocks);
	close(other);
}

static void none(void *arg)
{
}

/* Idle: it sleeps, and nothing wakes it. */
static void test_idle(void **state)
{
	struct worker_stats before, after;
	uint32_t sleeping = 0;
	struct worker *w = make(&sleeping);
	struct timespec ts = { .tv_nsec = 300000000 };

	assert_int_equal(worker_start(w), 0);
	assert_int_equal(worker_call(w, none, NULL), 0);
	assert_true(wait_sleeping(&sleeping));
	/* it announced itself; it blocks when it has looked once more */
	do {
		worker_stats(w, &before);
		sched_yield();
		worker_stats(w, &after);
	} while (!after.sleeps || before.sleeps != after.sleeps);
	worker_stats(w, &before);
	nanosleep(&ts, NULL);
	worker_stats(w, &after);
	assert_int_equal(after.iterations, before.iterations);
	assert_int_equal(after.sleeps, before.sleeps);
	worker_stop(w);
	worker_free(w);
}

struct order {
	struct worker *w;
	unsigned int next[4];
	atomic_uint total;
};

struct letter {
	struct order *o;
	unsigned int from, number;
};

static void read_letter(void *arg)
{
	struct letter *l = arg;

	assert_true(worker_is_self(l->o->w));
	/* in the order one thread posted them */
	if (l->number != l->o->next[l->from])
		abort();
	l->o->next[l->from]++;
	atomic_fetch_add(&l->o->total, 1);
	free(l);
}

struct writer {
	struct order *o;
	unsigned int id;
};

static void *write_letters(void *arg)
{
	struct writer *wr = arg;
	unsigned int i;

	for (i = 0; i < 5000; i++) {
		struct letter *l = malloc(sizeof(*l));

		*l = (struct letter){ wr->o, wr->id, i };
		if (worker_post(wr->o->w, read_letter, l))
			abort();
		if (i % 64 == 0 && worker_call(wr->o->w, none, NULL))
			abort();
	}
	return NULL;
}

static void call_self(void *arg)
{
	struct order *o = arg;
	unsigned int before = atomic_load(&o->total);

	/* from the worker itself: at once, no deadlock */
	worker_call(o->w, none, NULL);
	atomic_store(&o->total, before + 1000000);
}

static void test_mailbox(void **state)
{
	struct order o = { .w = make(NULL) };
	struct writer wr[4];
	pthread_t t[4];
	unsigned int i;

	assert_int_equal(worker_call(o.w, none, NULL), -ESRCH);
	assert_int_equal(worker_start(o.w), 0);
	assert_false(worker_is_self(o.w));
	for (i = 0; i < 4; i++) {
		wr[i] = (struct writer){ &o, i };
		assert_int_equal(pthread_create(&t[i], NULL, write_letters, &wr[i]), 0);
	}
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(worker_call(o.w, none, NULL), 0);
	assert_int_equal(atomic_load(&o.total), 20000);
	assert_int_equal(worker_call(o.w, call_self, &o), 0);
	assert_int_equal(atomic_load(&o.total), 1020000);
	/* what is posted before the end is still delivered */
	assert_int_equal(worker_post(o.w, call_self, &o), 0);
	worker_stop(o.w);
	worker_stop(o.w);
	assert_int_equal(atomic_load(&o.total), 2020000);
	worker_free(o.w);
}

static int zero(void *ctx)
{
	return 0;
}

static void test_setup(void **state)
{
	struct worker *w = make(NULL);
	int i;

	for (i = 0; i < 16; i++)
		assert_int_equal(worker_add_source(w, zero, w), 0);
	assert_int_equal(worker_add_source(w, zero, w), -ENOSPC);
	worker_del_source(w, zero, w);
	assert_int_equal(worker_add_source(w, zero, w), 0);
	assert_int_equal(worker_index(w), 0);
	assert_non_null(worker_loop(w));
	assert_non_null(strstr(worker_describe(w), "not started"));
	worker_free(w);		/* never started */
	worker_free(NULL);
	worker_stop(NULL);
}

static void test_cpus(void **state)
{
	cpu_set_t s;

	if (!worker_cpus_numa(0, &s))
		assert_true(CPU_COUNT(&s) > 0);
}

static void *pinned(void *arg)
{
	cpu_set_t first;
	int *ends = arg;

	only(ends[2], &first);
	if (sched_setaffinity(0, sizeof(first), &first) || write(ends[1], "", 1) != 1)
		_exit(1);
	pause();
	return NULL;
}

/* A child whose first thread is pinned to processor @a, and another to @b; it is killed by its pid. */
static pid_t child_on(int a, int b)
{
	int ends[3];
	cpu_set_t first;
	pthread_t t;
	pid_t pid;
	char c;

	ends[2] = b;
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60);		/* if nobody kills it */
		only(a, &first);
		if (pthread_create(&t, NULL, pinned, ends) || sched_setaffinity(0, sizeof(first), &first) ||
		    write(ends[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(read(ends[0], &c, 1), 1);
	close(ends[0]);
	close(ends[1]);
	return pid;
}

/* Where the kernel lets a process run. */
static void test_cpus_process(void **state)
{
	cpu_set_t mine, s;
	int a = 0, b;
	pid_t pid;

	assert_int_equal(worker_cpus_process(-1, true, &s), -ESRCH);
	assert_int_equal(worker_cpus_process(0, true, &s), -ESRCH);
	assert_int_equal(CPU_COUNT(&s), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
	assert_int_equal(worker_cpus_process(getpid(), false, &s), 0);
	assert_true(CPU_EQUAL(&s, &mine));
	while (!CPU_ISSET(a, &mine))
		a++;
	for (b = CPU_SETSIZE - 1; !CPU_ISSET(b, &mine); b--)
		;
	pid = child_on(a, b);
	assert_int_equal(worker_cpus_process(pid, false, &s), 0);
	assert_int_equal(CPU_COUNT(&s), 1);
	assert_true(CPU_ISSET(a, &s));
	assert_int_equal(worker_cpus_process(pid, true, &s), 0);
	assert_int_equal(CPU_COUNT(&s), a == b ? 1 : 2);
	assert_true(CPU_ISSET(a, &s) && CPU_ISSET(b, &s));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(worker_cpus_process(pid, true, &s), -ESRCH);
}

/* Where a process runs. */
static void test_cpu_process(void **state)
{
	cpu_set_t mine, one;
	time_t limit = time(NULL) + 30;
	int a = 0, ends[2];
	pid_t pid;
	char c;

	assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
	while (!CPU_ISSET(a, &mine))
		a++;
	assert_int_equal(worker_cpu_process(-1), -1);
	assert_int_equal(worker_cpu_process(0), -1);
	pid = child_on(a, a);
	while (worker_cpu_process(pid) != -1)	/* it is about to sleep */
		assert_true(time(NULL) < limit);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(worker_cpu_process(pid), -1);
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60);		/* if nobody kills it */
		only(a, &one);
		if (sched_setaffinity(0, sizeof(one), &one) || write(ends[1], "", 1) != 1)
			_exit(1);
		for (;;)
			__asm__ volatile("");
	}
	assert_int_equal(read(ends[0], &c, 1), 1);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(worker_cpu_process(pid), a);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#define ALL(t) \
	{ #t " epoll", t, epoll_sleep, NULL, NULL }, \
	{ #t " epoll spinning", t, epoll_spin, NULL, NULL }, \
	{ #t " io_uring", t, uring_sleep, NULL, NULL }, \
	{ #t " io_uring auto", t, uring_auto, NULL, NULL }

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_cpus), cmocka_unit_test(test_cpus_process),
	cmocka_unit_test(test_cpu_process),
	cmocka_unit_test_setup(test_setup, epoll_sleep),
	ALL(test_started), ALL(test_doorbell), ALL(test_coalesce), ALL(test_ticking), ALL(test_await),
	ALL(test_doorbell_abused), ALL(test_idle),
	ALL(test_mailbox), ALL(test_place), ALL(test_follow), ALL(test_follow_cpusets),
	ALL(test_follow_offline), ALL(test_turns),
};

KIT_SUITE(tests);

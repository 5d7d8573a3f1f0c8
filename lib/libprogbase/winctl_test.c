// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* winctl: layout and its checks, the lock among threads and processes, deaths, fairness. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/kit.h>

#include <libprogbase/futex.h>
#include <libprogbase/winctl.h>

#define KEY 0x1122334455667788ull
#define SUBS 3u

static struct winctl make(uint32_t nranks, uint32_t nranges)
{
	size_t size = winctl_size(nranks, nranges) + winctl_subs_size(nranks, SUBS);
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const char *why = "";
	struct winctl wc;

	assert_ptr_not_equal(mem, MAP_FAILED);
	winctl_format(mem, KEY, 0, nranks, nranges);
	winctl_format_subs(mem, SUBS);
	assert_int_equal(winctl_attach(&wc, mem, size, KEY, 0, nranks, &why), 0);
	return wc;
}

static void drop(struct winctl *wc)
{
	munmap(wc->ctl, wc->size);
}

static void test_layout(void **state)
{
	static const uint32_t nranks[] = { 1, 2, 3, 7, 64, 65, 1000 };
	size_t i;

	for (i = 0; i < sizeof(nranks) / sizeof(*nranks); i++) {
		struct winctl wc = make(nranks[i], 16);
		char *base = (char *)wc.ctl;

		assert_true(wc.qmask + 1 >= nranks[i]);
		assert_int_equal((uintptr_t)wc.peers % PROG_CACHELINE, 0);
		assert_true((char *)(wc.peers + nranks[i]) <= (char *)wc.streams);
		assert_true((char *)(wc.streams + nranks[i]) <= (char *)wc.queue);
		assert_true((char *)(wc.queue + wc.qmask + 1) <= (char *)wc.stripes);
		assert_true((char *)(wc.stripes + wc.stripe_mask + 1) <= (char *)wc.ranges);
		assert_true((char *)(wc.ranges + wc.nranges) <= base + wc.ctl->redo_off);
		assert_true(wc.ctl->redo_off + PROG_MAX_WORKERS * wc.ctl->redo_size <= wc.ctl->notify_off);
		assert_true((char *)wc.notices == base + wc.ctl->notify_off);
		assert_true((char *)(wc.notify_some + (nranks[i] + 63) / 64) <= (char *)wc.notify);
		assert_int_equal((uintptr_t)wc.notify % PROG_CACHELINE, 0);
		assert_true((char *)(wc.notify + nranks[i]) <= (char *)wc.subs);
		assert_true((char *)(wc.subs + (size_t)SUBS * nranks[i]) <= base + wc.size);
		assert_int_equal(wc.nsubs, SUBS);
		drop(&wc);
	}
}

/* Every field of the header that is used, set to nonsense, is refused with its name. */
static void test_hostile(void **state)
{
	struct winctl wc = make(4, 8), out;
	const struct {
		size_t off, size;
		uint64_t bad;
		const char *word;
	} cases[] = {
#define CASE(field, value, word) \
	{ offsetof(struct prog_win_ctl, field), sizeof(((struct prog_win_ctl *)0)->field), value, word }
		CASE(magic, 1, "magic"),
		CASE(abi_major, 99, "ABI"),
		CASE(seg_size, 1ull << 40, "seg_size"),
		CASE(seg_size, 0, "seg_size"),
		CASE(key, 5, "key"),
		CASE(rank, 1, "rank"),
		CASE(nranks, 5, "nranks"),
		CASE(nstripes, 3, "stripes"),
		CASE(nstripes, 0, "stripes"),
		CASE(nstripes, 1u << 31, "stripes"),
		CASE(nstripes, 2 * PROG_WIN_STRIPES_MAX, "stripes"),	/* for which there is room */
		CASE(stripe_off, ~0ull, "stripes"),
		CASE(stripe_off, 257, "stripes"),
		CASE(peer_off, ~0ull << 6, "peers"),
		CASE(peer_off, 0, "peers"),
		CASE(stream_off, 1ull << 63, "streams"),
		CASE(sub_off, ~7ull, "sub-streams"),
		CASE(sub_off, 8, "sub-streams"),
		CASE(sub_off, 4097, "sub-streams"),
		CASE(nsubs, 0, "sub-streams"),
		CASE(nsubs, 17, "sub-streams"),
		CASE(nsubs, ~0u, "sub-streams"),
		CASE(ranges_off, ~7ull, "ranges"),
		CASE(nranges, ~0u, "ranges"),
		CASE(redo_off, ~7ull, "redo"),
		CASE(redo_size, 1ull << 62, "redo"),
		CASE(lock.qmask, ~0u, "queue"),
		CASE(lock.qmask, 5, "queue"),
		CASE(lock.qmask, 1, "queue"),
		CASE(lock.qmask, 15, "queue"),
		CASE(lock.queue_off, ~3ull, "queue"),
		CASE(notify_off, ~63ull, "notifications"),
		CASE(notify_off, 64, "notifications"),
		CASE(notify_off, wc.ctl->notify_off + 8, "notifications"),
		CASE(notify_off, wc.ctl->seg_size - PROG_CACHELINE, "notifications"),
#undef CASE
	};
	char *saved = malloc(sizeof(struct prog_win_ctl));
	size_t i;

	memcpy(saved, wc.ctl, sizeof(struct prog_win_ctl));
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *why = "";

		memcpy((char *)wc.ctl + cases[i].off, &cases[i].bad, cases[i].size);
		assert_int_equal(winctl_attach(&out, wc.ctl, wc.size, KEY, 0, 4, &why), -EPROTO);
		if (!strstr(why, cases[i].word))
			fail_msg("case %zu: '%s' does not name '%s'", i, why, cases[i].word);
		memcpy(wc.ctl, saved, sizeof(struct prog_win_ctl));
	}
	for (i = 0; i < sizeof(struct prog_win_ctl); i += 8) {
		const char *why = "";

		assert_int_equal(winctl_attach(&out, wc.ctl, i, KEY, 0, 4, &why), -EPROTO);
	}
	free(saved);
	drop(&wc);
}

/* Strict order, shared runs together, withdrawal, errors. One thread plays all origins. */
static void test_fifo(void **state)
{
	struct winctl wc = make(8, 0);
	int err;

	assert_true(winlock_request(&wc, 0, true, 10));
	assert_false(winlock_request(&wc, 1, false, 11));
	assert_false(winlock_request(&wc, 2, false, PROG_OWNER_WORKER | 3));
	assert_false(winlock_request(&wc, 3, true, 13));
	assert_false(winlock_request(&wc, 4, false, 14));
	assert_false(winlock_try(&wc, 5, false, 15));
	assert_int_equal(wc.peers[5].lock_state, PROG_LOCK_NONE);

	assert_int_equal(winlock_release(&wc, 0, 10, &err), 1u << 3);
	assert_int_equal(err, 0);
	assert_true(winlock_granted(&wc, 1) && winlock_granted(&wc, 2));
	assert_int_equal(wc.peers[2].lock_kick, 1);
	assert_int_equal(wc.peers[1].lock_kick, 0);
	assert_false(winlock_granted(&wc, 3));
	/* a shared request behind a waiting exclusive one waits too */
	assert_false(winlock_granted(&wc, 4));
	assert_false(winlock_request(&wc, 6, false, 16));

	winlock_release(&wc, 3, 13, &err);	/* withdraws: both sharers behind it come in */
	assert_int_equal(err, 0);
	assert_true(winlock_granted(&wc, 4) && winlock_granted(&wc, 6));
	assert_int_equal(wc.ctl->lock.nshared, 4);
	winlock_release(&wc, 3, 13, &err);
	assert_int_equal(err, -EPERM);

	assert_false(winlock_request(&wc, 3, true, 13));
	winlock_release(&wc, 1, 11, &err);
	winlock_release(&wc, 2, PROG_OWNER_WORKER | 3, &err);
	winlock_release(&wc, 4, 14, &err);
	assert_false(winlock_granted(&wc, 3));
	winlock_release(&wc, 6, 16, &err);
	assert_true(winlock_granted(&wc, 3));
	assert_int_equal(wc.ctl->lock.excl, 4);
	winlock_release(&wc, 3, 13, &err);
	assert_int_equal(wc.ctl->lock.excl, 0);
	assert_int_equal(wc.ctl->lock.nshared, 0);
	drop(&wc);
}

static void test_withdraw_loses_place(void **state)
{
	struct winctl wc = make(3, 0);
	int err;

	assert_true(winlock_request(&wc, 0, true, 1));
	assert_false(winlock_request(&wc, 1, true, 2));
	assert_false(winlock_request(&wc, 2, true, 3));
	winlock_release(&wc, 1, 2, &err);
	assert_false(winlock_request(&wc, 1, true, 2));
	winlock_release(&wc, 0, 1, &err);
	assert_true(winlock_granted(&wc, 2));
	assert_false(winlock_granted(&wc, 1));
	winlock_release(&wc, 2, 3, &err);
	assert_true(winlock_granted(&wc, 1));
	drop(&wc);
}

/* What the daemon does until it gets the guard; was there a record? */
static bool recover(struct winctl *wc, uint32_t dead, uint32_t origin, uint32_t *mask)
{
	uint64_t since = 0;
	bool dropped;

	while (winlock_recover_soon(wc, dead, true, origin, &since, mask, &dropped))
		sched_yield();
	return dropped;
}

static void test_recover(void **state)
{
	struct winctl wc = make(6, 0);
	uint32_t mask;
	int err;

	assert_true(winlock_request(&wc, 0, true, 10));
	assert_false(winlock_request(&wc, 1, true, 11));
	assert_false(winlock_request(&wc, 2, false, PROG_OWNER_WORKER | 1));
	/* another's record is left alone */
	assert_false(recover(&wc, 11, 2, &mask));
	assert_false(recover(&wc, 12, 1, &mask));
	assert_int_equal(wc.ctl->lock.tail - wc.ctl->lock.head, 2);
	assert_true(recover(&wc, 11, 1, &mask));
	assert_int_equal(mask, 0);
	assert_int_equal(wc.ctl->lock.tail - wc.ctl->lock.head, 1);
	assert_true(recover(&wc, 10, 0, &mask));
	assert_int_equal(mask, 1u << 1);
	assert_true(winlock_granted(&wc, 2));
	assert_int_equal(wc.peers[1].lock_state, PROG_LOCK_NONE);

	/* dies inside the guard, record written, neither queued nor counted */
	wc.peers[4].lock_owner = 12;
	wc.peers[4].lock_state = PROG_LOCK_SHARED;
	wc.ctl->lock.guard = 12;
	wc.ctl->lock.nshared = 77;
	assert_true(recover(&wc, 12, 4, &mask));
	assert_int_equal(wc.ctl->lock.guard, 0);
	assert_int_equal(wc.ctl->lock.nshared, 1);
	winlock_release(&wc, 2, PROG_OWNER_WORKER | 1, &err);
	assert_true(winlock_try(&wc, 5, true, 15));
	drop(&wc);
}

/* All of a million ranks wait, as far as who dies inside the guard says.  In time that grows with its square it would take hours. */
static void test_recover_crowd(void **state)
{
	enum { RANKS = 1 << 20, DEAD = 77 };
	struct winctl wc = make(RANKS, 0);
	uint32_t mask;

	for (uint32_t i = 0; i < RANKS; i++)
		wc.peers[i].lock_state = PROG_LOCK_WAIT_EXCL;
	/* in the queue are some of them, one twice, one who does not wait, and one who does not exist */
	wc.peers[8].lock_state = PROG_LOCK_NONE;
	for (uint32_t i = 0; i < 6; i++)
		wc.queue[i] = (const uint32_t[]){ 9, 7, 9, 8, RANKS, 0 }[i];
	wc.ctl->lock.tail = 6;
	wc.ctl->lock.guard = DEAD;
	assert_false(recover(&wc, DEAD, 1, &mask));
	assert_int_equal(wc.ctl->lock.excl, 9 + 1);
	assert_int_equal(wc.ctl->lock.head, 1);
	assert_int_equal(wc.ctl->lock.tail, RANKS - 1);
	assert_int_equal(wc.queue[1], 7);
	assert_int_equal(wc.queue[2], 0);
	for (uint32_t i = 3; i < RANKS - 1; i++) {
		uint32_t want = i - 2;	/* but for 7, 8 and 9 */

		if (wc.queue[i] != want + (want > 6 ? 3 : 0))
			fail_msg("place %u has rank %u", i, wc.queue[i]);
	}
	drop(&wc);
}

/* Nothing is read or written of those whose record it is not, however many there are. */
static void test_recover_cost(void **state)
{
	enum { RANKS = 100000, ORIGIN = 77777 };
	struct winctl wc = make(RANKS, 0);
	size_t page = (size_t)sysconf(_SC_PAGESIZE), peers = RANKS * sizeof(wc.peers[0]);
	uint8_t *from = (uint8_t *)(((uintptr_t)wc.peers + page - 1) & ~(page - 1)), *at = (uint8_t *)&wc.peers[ORIGIN];
	uint32_t mask;
	int err;

	at -= (uintptr_t)at % page;
	assert_false(winlock_request(&wc, 5, true, 10) && winlock_request(&wc, ORIGIN, true, 11));
	assert_int_equal(mprotect(from, at - from, PROT_NONE), 0);
	assert_int_equal(mprotect(at + page, peers - page - (at + page - from), PROT_NONE), 0);
	assert_true(recover(&wc, 11, ORIGIN, &mask));
	assert_int_equal(mprotect(from, peers - page, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(wc.ctl->lock.tail, wc.ctl->lock.head);
	winlock_release(&wc, 5, 10, &err);
	assert_int_equal(err, 0);
	assert_true(winlock_try(&wc, 7, true, 12));
	drop(&wc);
}

/* Anything in the queue, the counts and the records: calls return and touch nothing outside. */
static void test_corrupt(void **state)
{
	struct winctl wc = make(5, 0);
	uint32_t mask, seed = 12345, i, j;
	int err;

	for (i = 0; i < 20000; i++) {
		seed = seed * 1664525 + 1013904223;
		for (j = 0; j <= wc.qmask; j++)
			wc.queue[j] = seed >> (j + 3);
		wc.ctl->lock.head = seed >> 5;
		wc.ctl->lock.tail = seed;
		wc.ctl->lock.nshared = seed >> 7;
		wc.ctl->lock.excl = seed >> 20;
		for (j = 0; j < 5; j++)
			wc.peers[j].lock_state = (seed >> (j * 4 + 2)) % 7;
		winlock_request(&wc, seed % 5, seed & 64, 3);
		winlock_release(&wc, (seed >> 8) % 5, 3, &err);
		recover(&wc, seed >> 30, (seed >> 11) % 5, &mask);
	}
	assert_int_equal(wc.ctl->lock.guard, 0);
	drop(&wc);
}

/* A guard that nobody gives back is seized in bounded time. */
static void test_seize(void **state)
{
	struct winctl wc = make(2, 0);
	int err;

	wc.ctl->lock.guard = 999;
	assert_true(winlock_request(&wc, 1, true, 5));
	winlock_release(&wc, 1, 5, &err);
	assert_int_equal(err, 0);
	assert_int_equal(wc.ctl->lock.guard, 0);
	drop(&wc);
}

static bool is_999(const void *ctx, uint32_t owner)
{
	++*(int *)(uintptr_t)ctx;
	return owner == 999;
}

/* Who lives, and perhaps is stopped, keeps it; if that is not known any more, others take it. */
static void test_lives(void **state)
{
	struct winctl wc = make(2, 0);
	uint64_t since = 1;
	int asked = 0;

	wc.lives = is_999;
	wc.lives_ctx = &asked;
	wc.ctl->lock.guard = 999;
	for (int i = 1; i < 4; i++) {
		assert_int_equal(winlock_request_soon(&wc, 1, true, 5, &since), -EAGAIN);
		assert_int_equal(asked, i);
	}
	assert_int_equal(wc.ctl->lock.guard, 999);
	wc.ctl->lock.guard = 998;
	assert_int_equal(winlock_request_soon(&wc, 1, true, 5, &since), 1);
	assert_int_equal(wc.ctl->lock.guard, 0);
	drop(&wc);
}

/* Those who cannot wait come again, and seize it when it has been taken for as long. */
static void test_soon(void **state)
{
	struct winctl wc = make(3, 0);
	uint64_t since = 0, first;
	uint32_t mask = 0;
	bool dropped;
	int err, r;

	assert_int_equal(winlock_request_soon(&wc, 0, true, 5, &since), 1);
	assert_int_equal(winlock_request_soon(&wc, 1, true, 6, &since), 0);
	assert_int_equal(since, 0);
	wc.ctl->lock.guard = 999;
	winlock_release_soon(&wc, 0, 5, &since, &err);
	assert_int_equal(err, -EAGAIN);
	assert_int_equal(winlock_request_soon(&wc, 2, true, 7, &since), -EAGAIN);
	assert_int_equal(winlock_recover_soon(&wc, 6, true, 1, &since, &mask, &dropped), -EAGAIN);
	first = since;
	assert_true(first);
	assert_int_equal(wc.ctl->lock.guard, 999);
	assert_true(winlock_granted(&wc, 0));
	/* who left as one rank, and lives, has it as another one */
	since = 0;
	wc.peers[2].lock_owner = 999;
	assert_int_equal(winlock_recover_soon(&wc, 999, false, 2, &since, &mask, &dropped), -EAGAIN);
	assert_int_equal(wc.ctl->lock.guard, 999);
	wc.peers[2].lock_owner = 0;
	/* who died with it is known */
	since = 0;
	assert_int_equal(winlock_recover_soon(&wc, 999, true, 2, &since, &mask, &dropped), 0);
	assert_int_equal(wc.ctl->lock.guard, 0);
	winlock_release_soon(&wc, 0, 5, &since, &err);
	assert_int_equal(err, 0);
	assert_true(winlock_granted(&wc, 1));
	wc.ctl->lock.guard = 999;
	since = first;
	while ((r = winlock_recover_soon(&wc, 6, true, 1, &since, &mask, &dropped)) == -EAGAIN)
		;
	assert_int_equal(r, 0);
	assert_true(dropped);
	assert_int_equal(wc.ctl->lock.guard, 0);
	assert_int_equal(since, first);
	drop(&wc);
}

static void lock_wait(struct winctl *wc, uint32_t origin, bool excl, uint32_t owner)
{
	if (winlock_request(wc, origin, excl, owner))
		return;
	while (!winlock_granted(wc, origin))
		winlock_sleep(wc, origin, 0);
}

#define THREADS 4
#define ROUNDS 4000

struct contest {
	struct winctl wc;
	uint32_t rank;
	uint64_t *plain;	/* changed under the exclusive lock only: a race is a wrong sum */
	uint32_t *readers, *writers, *broken;
};

static void *contestant(void *arg)
{
	struct contest *c = arg;
	uint32_t i;
	int err;

	for (i = 0; i < ROUNDS; i++) {
		bool excl = (i + c->rank) % 3 != 0;

		lock_wait(&c->wc, c->rank, excl, c->rank + 1);
		if (excl) {
			if (__atomic_fetch_add(c->writers, 1, __ATOMIC_RELAXED) ||
			    __atomic_load_n(c->readers, __ATOMIC_RELAXED))
				__atomic_fetch_add(c->broken, 1, __ATOMIC_RELAXED);
			(*c->plain)++;
			__atomic_fetch_sub(c->writers, 1, __ATOMIC_RELAXED);
		} else {
			__atomic_fetch_add(c->readers, 1, __ATOMIC_RELAXED);
			if (__atomic_load_n(c->writers, __ATOMIC_RELAXED))
				__atomic_fetch_add(c->broken, 1, __ATOMIC_RELAXED);
			__atomic_fetch_sub(c->readers, 1, __ATOMIC_RELAXED);
		}
		winlock_release(&c->wc, c->rank, c->rank + 1, &err);
		if (err)
			__atomic_fetch_add(c->broken, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static uint64_t exclusive_rounds(void)
{
	uint64_t n = 0;
	uint32_t i, r;

	for (r = 0; r < THREADS; r++)
		for (i = 0; i < ROUNDS; i++)
			n += (i + r) % 3 != 0;
	return n;
}

static void test_threads(void **state)
{
	struct winctl wc = make(THREADS, 0);
	uint64_t plain = 0;
	uint32_t readers = 0, writers = 0, broken = 0, i;
	struct contest c[THREADS];
	pthread_t t[THREADS];

	for (i = 0; i < THREADS; i++) {
		c[i] = (struct contest){ wc, i, &plain, &readers, &writers, &broken };
		assert_int_equal(pthread_create(&t[i], NULL, contestant, &c[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(broken, 0);
	assert_int_equal(plain, exclusive_rounds());
	assert_int_equal(wc.ctl->lock.head, wc.ctl->lock.tail);
	drop(&wc);
}

struct shared_area {
	uint64_t plain;
	uint32_t readers, writers, broken, go, stop, after;
	uint64_t count[THREADS];
};

static struct shared_area *share(void)
{
	void *p = mmap(NULL, sizeof(struct shared_area), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void test_processes(void **state)
{
	struct winctl wc = make(THREADS, 0);
	struct shared_area *sh = share();
	pid_t pid[THREADS];
	uint32_t i;

	for (i = 0; i < THREADS; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			struct contest c = { wc, i, &sh->plain, &sh->readers, &sh->writers,
					     &sh->broken };

			contestant(&c);
			_exit(0);
		}
	}
	for (i = 0; i < THREADS; i++) {
		int st;

		waitpid(pid[i], &st, 0);
		assert_int_equal(st, 0);
	}
	assert_int_equal(sh->broken, 0);
	assert_int_equal(sh->plain, exclusive_rounds());
	munmap(sh, sizeof(*sh));
	drop(&wc);
}

/*
 * Each of a crowd that asks again at once gets its turn: between two grants of one rank every
 * other rank that waits is granted at most once, so counts differ by at most one per waiter.
 */
static void test_fair(void **state)
{
	struct winctl wc = make(THREADS, 0);
	uint32_t i, r, last[THREADS] = { 0 };
	int err;

	for (r = 0; r < THREADS; r++)
		winlock_request(&wc, r, r & 1, r + 1);
	for (i = 1; i <= 10000; i++) {
		uint32_t holder = THREADS;

		/* all who hold let go and ask again behind everybody */
		for (r = 0; r < THREADS; r++)
			if (winlock_granted(&wc, r) && (holder == THREADS || last[r] < last[holder]))
				holder = r;
		assert_int_not_equal(holder, THREADS);
		winlock_release(&wc, holder, holder + 1, &err);
		assert_int_equal(err, 0);
		last[holder] = i;
		winlock_request(&wc, holder, (holder ^ i) & 1, holder + 1);
		for (r = 0; i > 4 * THREADS && r < THREADS; r++)
			assert_in_range(i - last[r], 0, 2 * THREADS);
	}
	drop(&wc);
}

/* Processes are killed at random instants; who survives keeps working and nothing stays held. */
static void test_kill(void **state)
{
	struct winctl wc = make(THREADS, 0);
	struct shared_area *sh = share();
	unsigned int seed = (unsigned int)getpid(), round;

	printf("# seed %u\n", seed);
	fflush(stdout);
	for (round = 0; round < 40; round++) {
		pid_t pid[THREADS];
		uint32_t i, victim, mask;
		uint64_t before;

		sh->stop = 0;
		memset(sh->count, 0, sizeof(sh->count));
		for (i = 0; i < THREADS; i++) {
			pid[i] = fork();
			if (pid[i])
				continue;
			while (!__atomic_load_n(&sh->stop, __ATOMIC_ACQUIRE)) {
				int err;

				if (!winlock_request(&wc, i, true, i + 1))
					while (!winlock_granted(&wc, i))
						winlock_sleep(&wc, i, 1000000);
				__atomic_fetch_add(&sh->count[i], 1, __ATOMIC_RELAXED);
				winlock_release(&wc, i, i + 1, &err);
			}
			_exit(0);
		}
		victim = (uint32_t)rand_r(&seed) % THREADS;
		/* the instant of the kill: after a random number of its grants */
		before = (uint64_t)rand_r(&seed) % 50 + 1;
		while (__atomic_load_n(&sh->count[victim], __ATOMIC_RELAXED) < before)
			sched_yield();
		kill(pid[victim], SIGKILL);
		waitpid(pid[victim], NULL, 0);
		recover(&wc, victim + 1, victim, &mask);
		assert_int_equal(wc.peers[victim].lock_state, PROG_LOCK_NONE);
		/* the others go on */
		i = (victim + 1) % THREADS;
		before = __atomic_load_n(&sh->count[i], __ATOMIC_RELAXED);
		while (__atomic_load_n(&sh->count[i], __ATOMIC_RELAXED) < before + 10)
			sched_yield();
		__atomic_store_n(&sh->stop, 1, __ATOMIC_RELEASE);
		for (i = 0; i < THREADS; i++)
			if (i != victim)
				waitpid(pid[i], NULL, 0);
		for (i = 0; i < THREADS; i++)
			assert_int_equal(wc.peers[i].lock_state, PROG_LOCK_NONE);
		assert_int_equal(wc.ctl->lock.excl, 0);
		assert_int_equal(wc.ctl->lock.guard, 0);
	}
	munmap(sh, sizeof(*sh));
	drop(&wc);
}

struct waker {
	struct winctl wc;
	uint32_t *flag;
};

#define WAKES 20000

static void *waker(void *arg)
{
	struct waker *w = arg;
	uint32_t i;

	for (i = 1; i <= WAKES; i++) {
		__atomic_store_n(w->flag, i, __ATOMIC_RELEASE);
		winctl_wake(w->wc.ctl);
	}
	return NULL;
}

/* No wake-up is lost: a sleep without a limit always ends. */
static void test_wake(void **state)
{
	struct winctl wc = make(1, 0);
	uint32_t flag = 0, seen = 0;
	struct waker w = { wc, &flag };
	pthread_t t;

	pthread_create(&t, NULL, waker, &w);
	while (seen < WAKES) {
		uint32_t event = winctl_prepare(wc.ctl);
		uint32_t now = __atomic_load_n(&flag, __ATOMIC_ACQUIRE);

		if (now != seen) {
			winctl_cancel(wc.ctl);
			seen = now;
			continue;
		}
		winctl_sleep(wc.ctl, event, 0);
	}
	pthread_join(t, NULL);
	assert_int_equal(wc.ctl->waiters, 0);
	drop(&wc);
}

/* ---- attached ranges ---- */

static bool attached(const struct winctl *wc, uint64_t lo, uint64_t hi)
{
	uint32_t at = 7, steps = 1000;

	return winctl_attached(wc, lo, hi, &at, &steps);
}

static void test_attached(void **state)
{
	struct winctl wc = make(2, 6), none = make(2, 0);
	uint32_t at = 0, steps = 3;
	struct prog_win_range r;

	/* [100, 300) and [400, 500), in pieces */
	wc.ranges[4] = (struct prog_win_range){ .base = 100, .len = 50 };
	wc.ranges[3] = (struct prog_win_range){ .base = 150, .len = 51 };
	wc.ranges[1] = (struct prog_win_range){ .base = 201, .len = 99 };
	wc.ranges[0] = (struct prog_win_range){ .base = 400, .len = 100 };
	wc.ranges[2] = (struct prog_win_range){ .base = INT64_MAX - 1, .len = 2 };
	assert_true(attached(&wc, 100, 300));
	assert_true(attached(&wc, 149, 202));
	assert_true(attached(&wc, 400, 500));
	assert_true(attached(&wc, 1000, 1000));
	assert_false(attached(&wc, 99, 101));
	assert_false(attached(&wc, 299, 301));
	assert_false(attached(&wc, 100, 500));
	assert_false(attached(&wc, 300, 299));
	assert_false(attached(&wc, 0, UINT64_MAX));
	assert_false(attached(&none, 0, 1));
	/* beyond INT64_MAX: as if it were not there */
	assert_false(attached(&wc, INT64_MAX - 1, INT64_MAX));
	assert_false(winctl_range(&wc, 2, &r));
	/* entries 0, 1, 2 and no further */
	assert_false(winctl_attached(&wc, 100, 101, &at, &steps));
	assert_int_equal(steps, 0);
	/* what the search begins with changes nothing, and [100, 300) is in no single one */
	for (at = 0; at < 8; at++) {
		wc.range_found = at;
		assert_true(winctl_range_find(&wc, 410, 500, &r));
		assert_int_equal(r.base, 400);
		assert_true(winctl_range_find(&wc, 201, 300, &r));
		assert_int_equal(r.base, 201);
		assert_false(winctl_range_find(&wc, 100, 300, &r));
		assert_false(winctl_range_find(&wc, 450, 440, &r));
	}
	assert_false(winctl_range_find(&none, 0, 1, &r));
	/* the owner says how far they go; one that does not know leaves 0, and a hostile one anything */
	wc.ctl->range_end = 4;
	assert_false(attached(&wc, 100, 300));
	assert_true(attached(&wc, 150, 300));
	assert_false(winctl_range_find(&wc, 100, 101, &r));
	wc.ctl->range_end = UINT32_MAX;
	assert_int_equal(winctl_range_end(&wc), 6);
	assert_true(attached(&wc, 100, 300));
	wc.ctl->range_end = 0;
	/* being changed */
	wc.ranges[3].gen = 1;
	assert_false(attached(&wc, 100, 300));
	assert_true(attached(&wc, 100, 150));
	drop(&wc);
	drop(&none);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_layout),
	cmocka_unit_test(test_hostile),
	cmocka_unit_test(test_fifo),
	cmocka_unit_test(test_withdraw_loses_place),
	cmocka_unit_test(test_recover), cmocka_unit_test(test_recover_cost),
	cmocka_unit_test(test_recover_crowd),
	cmocka_unit_test(test_corrupt),
	cmocka_unit_test(test_seize),
	cmocka_unit_test(test_lives),
	cmocka_unit_test(test_soon),
	cmocka_unit_test(test_threads),
	cmocka_unit_test(test_processes),
	cmocka_unit_test(test_fair),
	cmocka_unit_test(test_kill),
	cmocka_unit_test(test_wake),
	cmocka_unit_test(test_attached),
};

KIT_SUITE(tests);

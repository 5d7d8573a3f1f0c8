// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * What the ranks do while the drivers of this folder break something.
 *
 *   chaos work [create|allocate]    every kind of operation, checked; "WORK OK", or exit status 1
 *   chaos steady                    checked rounds until the file "stop" is there; "STEADY OK"; with $CHAOS_PAUSE so
 *                                   many milliseconds between them
 *   chaos hold | wait | acc         the last rank is to be killed: holding an exclusive lock of rank
 *                                   0, waiting for one, amid accumulates
 *   chaos messages                  large messages around the ring of ranks, checked, until the file "stop" is there;
 *                                   some may fail: "MESSAGES OK", and what failed in the files messages.RANK;
 *                                   flight.RANK, mapped, is 1 while some have been posted and have not ended
 *   chaos colls                     non-blocking collectives, checked, with the same files and the same end
 *   chaos unposted                  rank 0 sends large messages that nobody receives
 *   chaos pooled                    rank 0 sends large messages, which are done before the last rank receives them,
 *                                   when "go" is there
 *   chaos errors finish|abort|fatal [FIRST]
 *                                   pairs of ranks, the origins' half of the ranks first, doing what pair
 *                                   FIRST and those after it do; a daemon, or the network, is to be broken
 *
 * Ranks and driver meet through files in $CHAOS_DIR: put() makes one, await() waits for one. With
 * CHAOS_STAY=NAME, "work" stays where it is, window and session open, between making NAME.here and
 * finding NAME.go. With CHAOS_SURVIVE=1 the launcher does not learn of the kill: the other ranks wait
 * for "killed", must then get the lock (or go on accumulating), and make "survived.RANK".
 */
#include <errno.h>
#include <asyncprog/notify.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BIG		(4 << 20)
#define BLOCK		64
#define ADDENDS		1000
#define ROUNDS		20

static int rank, size;
static const char *dir;

static void path_of(char *buf, size_t n, const char *name)
{
	snprintf(buf, n, "%s/%s", dir, name);
}

/* Written under another name first, so that who finds the file finds it complete. */
__attribute__((format(printf, 2, 3)))
static void put(const char *name, const char *fmt, ...)
{
	char path[4096], tmp[4160];
	va_list ap;
	FILE *f;

	path_of(path, sizeof(path), name);
	snprintf(tmp, sizeof(tmp), "%s.new.%d", path, rank);
	f = fopen(tmp, "w");
	if (!f) {
		perror(tmp);
		_exit(9);
	}
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	if (fclose(f) || rename(tmp, path)) {
		perror(path);
		_exit(9);
	}
}

static void put_rank(const char *name)
{
	char file[64];

	snprintf(file, sizeof(file), "%s.%d", name, rank);
	put(file, "%d\n", (int)getpid());
}

static bool there(const char *name)
{
	char path[4096];

	path_of(path, sizeof(path), name);
	return !access(path, F_OK);
}

static void await(const char *name)
{
	while (!there(name))
		usleep(2000);
}

__attribute__((format(printf, 1, 2), noreturn))
static void broken(const char *fmt, ...)
{
	va_list ap;

	printf("rank %d: ", rank);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
	_exit(1);
}

static uint8_t byte_at(int who, size_t i)
{
	return (uint8_t)(who * 37 + i * 7 + (i >> 8) * 11 + (i >> 16) * 3);
}

static void check_bytes(const char *what, const uint8_t *got, int who, size_t n, size_t block,
			size_t stride)
{
	for (size_t i = 0; i < n; i++) {
		size_t at = i / block * stride + i % block;

		if (got[at] != byte_at(who, i))
			broken("%s: byte %zu is 0x%02x, expected 0x%02x", what, i, got[at],
			       byte_at(who, i));
	}
}

/* ---- work ------------------------------------------------------------------------------------ */

/* The window: counters, then room for BIG bytes strided twice as wide. */
struct area {
	int64_t ticket, locked, cas, pad;
	int64_t sum[ADDENDS];
	uint8_t bytes[2 * BIG];
};

static void all_kinds(MPI_Win win, struct area *mine)
{
	static const int sizes[] = { 1, 8, 4096, 65536, 1 << 20, BIG };
	int next = (rank + 1) % size, prev = (rank + size - 1) % size;
	MPI_Aint at = offsetof(struct area, bytes);
	uint8_t *buf = malloc(BIG), *back = malloc(BIG);
	int64_t one = 1, old, v[ADDENDS], seen;
	MPI_Datatype strided;

	for (size_t i = 0; i < BIG; i++)
		buf[i] = byte_at(rank, i);
	MPI_Win_lock_all(0, win);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		MPI_Put(buf, sizes[s], MPI_BYTE, next, at, sizes[s], MPI_BYTE, win);
		MPI_Win_flush(next, win);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_sync(win);
		check_bytes("put", mine->bytes, prev, (size_t)sizes[s], BIG, BIG);
		memset(back, 0, (size_t)sizes[s]);
		MPI_Get(back, sizes[s], MPI_BYTE, next, at, sizes[s], MPI_BYTE, win);
		MPI_Win_flush(next, win);
		check_bytes("get", back, rank, (size_t)sizes[s], BIG, BIG);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_sync(win);
	memset(mine->bytes, 0, sizeof(mine->bytes));
	MPI_Win_sync(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Type_vector(BIG / BLOCK, BLOCK, 2 * BLOCK, MPI_BYTE, &strided);
	MPI_Type_commit(&strided);
	MPI_Put(buf, BIG, MPI_BYTE, next, at, 1, strided, win);
	MPI_Win_flush(next, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_sync(win);
	check_bytes("strided put", mine->bytes, prev, BIG, BLOCK, 2 * BLOCK);
	for (size_t i = 0; i < 2 * BIG; i++)
		if (i / BLOCK % 2 && mine->bytes[i])
			broken("strided put: byte %zu between the blocks was written", i);
	memset(back, 0, BIG);
	MPI_Get(back, BIG, MPI_BYTE, next, at, 1, strided, win);
	MPI_Win_flush(next, win);
	check_bytes("strided get", back, rank, BIG, BIG, BIG);
	MPI_Type_free(&strided);

	for (int r = 0; r < ROUNDS; r++) {
		for (int i = 0; i < ADDENDS; i++)
			v[i] = (int64_t)(rank + 1) * (i + 1);
		for (int t = 0; t < size; t++)
			MPI_Accumulate(v, ADDENDS, MPI_INT64_T, t, offsetof(struct area, sum), ADDENDS,
				       MPI_INT64_T, MPI_SUM, win);
		MPI_Win_flush_all(win);
		MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, offsetof(struct area, ticket), MPI_SUM,
				 win);
		MPI_Win_flush(0, win);
		if (old < 0 || old >= (int64_t)ROUNDS * size)
			broken("fetch_and_op gave %lld, there are tickets 0 to %d", (long long)old,
			       ROUNDS * size - 1);
		do {	/* one more each, by compare and swap */
			MPI_Fetch_and_op(NULL, &seen, MPI_INT64_T, 0, offsetof(struct area, cas),
					 MPI_NO_OP, win);
			MPI_Win_flush(0, win);
			one = seen + 1;
			MPI_Compare_and_swap(&one, &seen, &old, MPI_INT64_T, 0,
					     offsetof(struct area, cas), win);
			MPI_Win_flush(0, win);
		} while (old != seen);
		one = 1;
	}
	MPI_Win_unlock_all(win);
	for (int r = 0; r < ROUNDS; r++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Get(&old, 1, MPI_INT64_T, 0, offsetof(struct area, locked), 1, MPI_INT64_T, win);
		MPI_Win_flush(0, win);
		old++;
		MPI_Put(&old, 1, MPI_INT64_T, 0, offsetof(struct area, locked), 1, MPI_INT64_T, win);
		MPI_Win_unlock(0, win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	for (int i = 0; i < ADDENDS; i++)
		if (mine->sum[i] != (int64_t)ROUNDS * (i + 1) * size * (size + 1) / 2)
			broken("sum[%d] is %lld, expected %lld", i, (long long)mine->sum[i],
			       (long long)ROUNDS * (i + 1) * size * (size + 1) / 2);
	if (!rank && (mine->ticket != (int64_t)ROUNDS * size || mine->locked != mine->ticket ||
		      mine->cas != mine->ticket))
		broken("counters: fetch_and_op %lld, lock %lld, compare_and_swap %lld; expected %d",
		       (long long)mine->ticket, (long long)mine->locked, (long long)mine->cas,
		       ROUNDS * size);
	MPI_Win_unlock(rank, win);
	free(buf);
	free(back);
}

static void stay(void)
{
	const char *name = getenv("CHAOS_STAY");
	char file[256];

	if (!name)
		return;
	MPI_Barrier(MPI_COMM_WORLD);
	snprintf(file, sizeof(file), "%s.here", name);
	if (!rank)
		put(file, "\n");
	snprintf(file, sizeof(file), "%s.go", name);
	await(file);
	MPI_Barrier(MPI_COMM_WORLD);
}

static MPI_Win make_window(const char *flavor, size_t bytes, void *mem_out)
{
	MPI_Win win;
	void *mem;

	if (!strcmp(flavor, "create")) {
		mem = calloc(1, bytes);
		if (!mem)
			broken("no memory");
		MPI_Win_create(mem, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	} else {
		MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
		memset(mem, 0, bytes);
		MPI_Win_unlock(rank, win);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	memcpy(mem_out, &mem, sizeof(mem));
	return win;
}

static int work(const char *flavor)
{
	struct area *mine;
	MPI_Win win = make_window(flavor, sizeof(*mine), &mine);

	all_kinds(win, mine);
	stay();
	MPI_Win_free(&win);
	if (!strcmp(flavor, "create"))
		free(mine);
	if (!rank)
		printf("WORK OK\n");
	return 0;
}

/* One window, one put: what a short job is. */
static int brief(void)
{
	int *mine, v = rank + 1;
	MPI_Win win = make_window("allocate", 4096, &mine);

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, (rank + 1) % size, 0, win);
	MPI_Put(&v, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win);
	MPI_Win_unlock((rank + 1) % size, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	if (*mine != (rank + size - 1) % size + 1)
		broken("got %d, expected %d", *mine, (rank + size - 1) % size + 1);
	MPI_Win_unlock(rank, win);
	MPI_Win_free(&win);
	if (!rank)
		printf("BRIEF OK\n");
	return 0;
}

/* The first words of the window of steady() */
enum { ADDED, FETCHED, LOCKED, SWAPPED, FENCED, POSTED, NOTIFIED };

/* Adds one under a lock, and one by compare_and_swap, at rank 0. */
static void steady_locks(MPI_Win win)
{
	int64_t old, seen, new;

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
	MPI_Get(&old, 1, MPI_INT64_T, 0, LOCKED * 8, 1, MPI_INT64_T, win);
	MPI_Win_flush(0, win);
	new = old + 1;
	MPI_Put(&new, 1, MPI_INT64_T, 0, LOCKED * 8, 1, MPI_INT64_T, win);
	MPI_Win_unlock(0, win);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	for (old = 0, seen = -1; seen != old; ) {
		seen = old;
		new = seen + 1;
		MPI_Compare_and_swap(&new, &seen, &old, MPI_INT64_T, 0, SWAPPED * 8, win);
		MPI_Win_flush(0, win);
	}
	MPI_Win_unlock(0, win);
}

/* Puts the number of the round between fences, and between start and complete. */
static void steady_epochs(MPI_Win win, int64_t round)
{
	int next = (rank + 1) % size, prev = (rank + size - 1) % size;
	MPI_Group all, to, from;

	MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
	MPI_Put(&round, 1, MPI_INT64_T, next, FENCED * 8, 1, MPI_INT64_T, win);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
	MPI_Win_get_group(win, &all);
	MPI_Group_incl(all, 1, &next, &to);
	MPI_Group_incl(all, 1, &prev, &from);
	MPI_Win_post(from, 0, win);
	MPI_Win_start(to, 0, win);
	MPI_Put(&round, 1, MPI_INT64_T, next, POSTED * 8, 1, MPI_INT64_T, win);
	MPI_Win_complete(win);
	MPI_Win_wait(win);
	MPI_Group_free(&all);
	MPI_Group_free(&to);
	MPI_Group_free(&from);
}

/* Notified puts to the next rank: each comes once, in order; more than a queue takes in the first of four rounds. */
static void steady_notified(MPI_Win win, int64_t round)
{
	int next = (rank + 1) % size, prev = (rank + size - 1) % size, n = round % 4 ? 20 : 200;
	struct asyncprog_notification got;
	int rc = MPI_SUCCESS;

	MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
	for (int i = 0; i < n; i++) {
		rc = asyncprog_put_notify(&round, 1, MPI_INT64_T, next, NOTIFIED * 8, 1, MPI_INT64_T, i, win);
		if (rc == MPI_ERR_UNSUPPORTED_OPERATION)
			break;		/* natively */
		if (rc)
			broken("round %lld: notified put %d: class %d", (long long)round, i, rc);
	}
	for (int i = 0; rc == MPI_SUCCESS && i < n; i++) {
		rc = asyncprog_notify_wait(MPI_ANY_SOURCE, MPI_ANY_TAG, win, &got);
		if (rc || got.source != prev || got.tag != i)
			broken("round %lld: notification %d: class %d, %d of rank %d", (long long)round, i, rc, got.tag, got.source);
	}
	MPI_Win_unlock_all(win);
}

static void steady_check(const int64_t *mine, int64_t round)
{
	const int64_t want[] = {
		[ADDED] = round + 1, [LOCKED] = (round + 1) * size, [SWAPPED] = (round + 1) * size,
		[FENCED] = round, [POSTED] = round,
	};
	static const char *const names[] = {
		[ADDED] = "accumulates", [LOCKED] = "puts under a lock", [SWAPPED] = "compare_and_swaps",
		[FENCED] = "put in a fence epoch", [POSTED] = "put in an exposure epoch",
	};

	for (int i = ADDED; i <= POSTED; i++)
		if (names[i] && (!rank || (i != LOCKED && i != SWAPPED)) && mine[i] != want[i])
			broken("round %lld: %s: %lld, expected %lld", (long long)round, names[i], (long long)mine[i],
			       (long long)want[i]);
}

static int steady(void)
{
	int64_t *mine, rounds = 0, one = 1, old;
	size_t bytes = 256 + 65536;
	MPI_Win win = make_window("allocate", bytes, &mine);
	int next = (rank + 1) % size, prev = (rank + size - 1) % size, stop;
	uint8_t *buf = malloc(65536);
	const char *pause = getenv("CHAOS_PAUSE");

	do {
		if (pause)
			usleep(1000 * (useconds_t)atoi(pause));
		for (size_t i = 0; i < 65536; i++)
			buf[i] = byte_at(rank + (int)rounds, i);
		MPI_Win_lock_all(0, win);
		MPI_Put(buf, 65536, MPI_BYTE, next, 256, 65536, MPI_BYTE, win);
		MPI_Accumulate(&one, 1, MPI_INT64_T, next, ADDED * 8, 1, MPI_INT64_T, MPI_SUM, win);
		MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, FETCHED * 8, MPI_SUM, win);
		MPI_Win_unlock_all(win);
		steady_locks(win);
		steady_epochs(win, rounds);
		steady_notified(win, rounds);
		if (old < rounds * size || old >= (rounds + 1) * size)
			broken("round %lld: fetch_and_op gave %lld", (long long)rounds,
			       (long long)old);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
		check_bytes("put", (uint8_t *)mine + 256, prev + (int)rounds, 65536, 65536, 65536);
		steady_check(mine, rounds);
		MPI_Win_unlock(rank, win);
		rounds++;
		if (!rank && rounds % 16 == 0)
			put("steady", "%lld\n", (long long)rounds);
		/* nobody begins the next round before all have looked */
		stop = !rank && there("stop");
		MPI_Allreduce(MPI_IN_PLACE, &stop, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	} while (!stop);
	MPI_Win_free(&win);
	free(buf);
	if (!rank)
		printf("STEADY OK\n");
	return 0;
}

/* ---- calls that may fail ---------------------------------------------------------------------- */

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static double longest;
static const char *longest_name = "", *failed_name = "";
static int failed_class;

static bool done(int rc, const char *name, double start)
{
	double t = now_ms() - start;
	int class;

	if (t > longest) {
		longest = t;
		longest_name = name;
	}
	if (rc == MPI_SUCCESS)
		return true;
	if (!failed_class) {
		MPI_Error_class(rc, &class);
		failed_class = class;
		failed_name = name;
	}
	return false;
}

/* a call that may fail; what it returned first and how long the slowest took is reported */
#define TRY(call) ({ double start_ = now_ms(); done((call), #call, start_); })

static void report(const char *what)
{
	char file[64];

	snprintf(file, sizeof(file), "%s.%d", what, rank);
	put(file, "%s %.0f %s | longest: %s\n", failed_class == MPI_ERR_OTHER ? "OTHER" :
	    failed_class ? "different" : "none", longest, failed_name, longest_name);
}

/* ---- the last rank is killed ------------------------------------------------------------------- */

/* Survivors cannot finalize: MPI wants all ranks for that. */
__attribute__((noreturn))
static void survived(void)
{
	put_rank("survived");
	await("over");
	_exit(0);
}

static int killed_at_lock(bool holds)
{
	int victim = size - 1, holder = holds ? victim : 1;
	bool survive = getenv("CHAOS_SURVIVE");
	int64_t *mine, v = rank;
	MPI_Win win = make_window("allocate", 4096, &mine);

	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == holder) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Put(&v, 1, MPI_INT64_T, 0, 8 * rank, 1, MPI_INT64_T, win);
		MPI_Win_flush(0, win);
		put_rank("holds");
		await("killed");
		if (!holds)
			MPI_Win_unlock(0, win);
	} else if (rank) {
		char file[64];

		snprintf(file, sizeof(file), "holds.%d", holder);
		await(file);
		put_rank("waits");
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Put(&v, 1, MPI_INT64_T, 0, 8 * rank, 1, MPI_INT64_T, win);
		MPI_Win_flush(0, win);
		MPI_Win_unlock(0, win);
	} else {
		await("killed");
	}
	if (survive)
		survived();
	await("never");
	return 1;
}

static int killed_at_acc(void)
{
	enum { N = 8192 };
	bool survive = getenv("CHAOS_SURVIVE"), killed = false;
	double *mine, *v = malloc(N * sizeof(*v));
	MPI_Win win = make_window("create", N * sizeof(*v), &mine);
	int more = 200;

	for (int i = 0; i < N; i++)
		v[i] = 1;
	MPI_Win_lock_all(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; more; i++) {
		for (int t = 0; t < 2; t++)
			MPI_Accumulate(v, N, MPI_DOUBLE, t, 0, N, MPI_DOUBLE, MPI_SUM, win);
		/* not in step with anybody: the signal comes anywhere */
		if (i % 3 == rank % 3)
			MPI_Win_flush_all(win);
		if (i == 20)
			put_rank("busy");
		if (i % 32 == 31 && survive && !killed)
			killed = there("killed");
		more -= killed;
	}
	MPI_Win_flush_all(win);
	/* elements are whole numbers as long as no addition was torn or lost in the middle of itself */
	MPI_Win_sync(win);
	for (int i = 0; rank < 2 && i < N; i++)
		if (mine[i] != (double)(int64_t)mine[i] || mine[i] < 200)
			broken("element %d is %g", i, mine[i]);
	/* memory that went with its process */
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	while (TRY(MPI_Get(v, N, MPI_DOUBLE, size - 1, 0, N, MPI_DOUBLE, win)) &
	       TRY(MPI_Win_flush(size - 1, win)))
		;
	report("dead");
	survived();
}

/* ---- a daemon or the network breaks --------------------------------------------------------- */

static int64_t *mem;

static bool op_mix(MPI_Win win, int i)
{
	static uint8_t buf[65536];
	static int64_t a, b, c;
	bool ok = true;

	switch (i % 6) {
	case 0:
		ok = TRY(MPI_Put(buf, 8, MPI_BYTE, 1, 64, 8, MPI_BYTE, win));
		break;
	case 1:
		ok = TRY(MPI_Get(buf, 8, MPI_BYTE, 1, 64, 8, MPI_BYTE, win));
		break;
	case 2:
		ok = TRY(MPI_Accumulate(&a, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, MPI_SUM, win));
		break;
	case 3:
		ok = TRY(MPI_Fetch_and_op(&a, &b, MPI_INT64_T, 1, 0, MPI_SUM, win));
		break;
	case 4:
		ok = TRY(MPI_Compare_and_swap(&a, &b, &c, MPI_INT64_T, 1, 0, win));
		break;
	case 5:
		ok = TRY(MPI_Put(buf, sizeof(buf), MPI_BYTE, 1, 64, sizeof(buf), MPI_BYTE, win));
		break;
	}
	return TRY(MPI_Win_flush(1, win)) && ok;
}

static void pair_flush(MPI_Comm pair, MPI_Win win, int me)
{
	if (me)
		return;
	TRY(MPI_Win_lock_all(0, win));
	for (int i = 0; op_mix(win, i); i++)
		if (i == 30)
			put_rank("running");
	report("error");
	/* what follows must not hang either */
	for (int i = 0; i < 6; i++)
		op_mix(win, i);
	TRY(MPI_Win_unlock_all(win));
}

/* Each by itself, by polling, or both together. */
static bool wait_both(MPI_Request *r, int how)
{
	MPI_Status st[2];
	bool ok = true;
	int rc, class;
	double start;

	if (how == 0)	/* without && : both must be waited for */
		return TRY(MPI_Wait(&r[0], &st[0])) & TRY(MPI_Wait(&r[1], &st[1]));
	start = now_ms();
	if (how == 1) {
		for (int k = 0; k < 2; k++) {
			int flag = 0;

			do
				rc = MPI_Test(&r[k], &flag, &st[k]);
			while (!rc && !flag);
			ok = done(rc, "MPI_Test until done", start) && ok;
		}
		return ok;
	}
	rc = MPI_Waitall(2, r, st);
	if (rc == MPI_SUCCESS)
		return done(rc, "MPI_Waitall", start);
	MPI_Error_class(rc, &class);
	if (class != MPI_ERR_IN_STATUS)
		broken("MPI_Waitall: class %d, expected MPI_ERR_IN_STATUS", class);
	if (done(st[0].MPI_ERROR, "MPI_Waitall", start) & done(st[1].MPI_ERROR, "MPI_Waitall", start))
		broken("MPI_Waitall: MPI_ERR_IN_STATUS, but no status has an error");
	return false;
}

static void pair_request(MPI_Comm pair, MPI_Win win, int me)
{
	static uint8_t buf[32768];
	bool ok = true;

	if (me)
		return;
	TRY(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
	/* after the first failure some more, so that there is one of each kind of waiting */
	for (int i = 0, after = 0; after < 6; i++) {
		MPI_Request r[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };

		ok = TRY(MPI_Rput(buf, sizeof(buf), MPI_BYTE, 1, 64, sizeof(buf), MPI_BYTE, win,
				  &r[0])) && ok;
		ok = TRY(MPI_Rget(buf, 8, MPI_BYTE, 1, 64, 8, MPI_BYTE, win, &r[1])) && ok;
		ok = wait_both(r, i % 3) && ok;
		ok = TRY(MPI_Win_flush(1, win)) && ok;
		after += !ok;
		if (i == 10)
			put_rank("running");
	}
	report("error");
	TRY(MPI_Win_unlock(1, win));
}

/* Rank 1 has its own lock; 0 queues for it. */
static void pair_lock(MPI_Comm pair, MPI_Win win, int me)
{
	int64_t v = 1;

	if (me) {
		TRY(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
		MPI_Barrier(pair);
		await("release");
		TRY(MPI_Win_unlock(1, win));
		return;
	}
	MPI_Barrier(pair);
	put_rank("running");
	/* how long it waits before the fault is the driver's choice: not measured */
	if (MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win))
		failed_class = MPI_ERR_OTHER;
	MPI_Put(&v, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, win);
	done(MPI_Win_flush(1, win), "MPI_Win_flush behind a lock", now_ms());
	report("error");
	TRY(MPI_Win_unlock(1, win));
}

/* In these the peer learns of the fault, too; both tell each other through the MPI library. */
static void pair_fence(MPI_Comm pair, MPI_Win win, int me)
{
	int64_t v = 1;
	int good = 1;

	TRY(MPI_Win_fence(0, win));
	for (int i = 0; good; i++) {
		bool ok = true;

		for (int k = 0; k < 4; k++)
			ok = TRY(MPI_Put(&v, 1, MPI_INT64_T, 1 - me, 0, 1, MPI_INT64_T, win)) && ok;
		ok = TRY(MPI_Win_fence(0, win)) && ok;
		good = ok;
		MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, pair);
		if (i == 10)
			put_rank("running");
	}
	report("error");
}

static bool end_exposure(MPI_Win win, bool poll)
{
	double start = now_ms();
	int rc, flag = 0;

	if (!poll)
		return TRY(MPI_Win_wait(win));
	do
		rc = MPI_Win_test(win, &flag);
	while (!rc && !flag);
	return done(rc, "MPI_Win_test until done", start);
}

static void pair_pscw(MPI_Comm pair, MPI_Win win, int me)
{
	int64_t v = 1;
	int good = 1, other = 1 - me;
	MPI_Group all, peer;

	MPI_Comm_group(pair, &all);
	MPI_Group_incl(all, 1, &other, &peer);
	for (int i = 0; good; i++) {
		bool ok;

		if (me) {
			ok = TRY(MPI_Win_post(peer, 0, win));
			ok = ok && end_exposure(win, i % 2);
		} else {
			ok = TRY(MPI_Win_start(peer, 0, win));
			ok = ok && TRY(MPI_Put(&v, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, win));
			ok = TRY(MPI_Win_complete(win)) && ok;
		}
		good = ok;
		MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, pair);
		if (i == 10)
			put_rank("running");
	}
	report("error");
	MPI_Group_free(&all);
	MPI_Group_free(&peer);
}

static int errors(const char *end, int first)
{
	static void (*const pairs[])(MPI_Comm pair, MPI_Win win, int me) = {
		pair_flush, pair_request, pair_lock, pair_fence, pair_pscw,
	};
	int half = size / 2, which = first + rank % half;
	MPI_Comm pair;
	MPI_Win win;

	if (which >= (int)(sizeof(pairs) / sizeof(pairs[0])))
		broken("there are 5 pairs");
	MPI_Comm_split(MPI_COMM_WORLD, which, rank, &pair);
	MPI_Win_allocate(1 << 17, 1, MPI_INFO_NULL, pair, &mem, &win);
	if (strcmp(end, "fatal"))
		MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	pairs[which](pair, win, rank >= half);
	put_rank("left");
	if (!strcmp(end, "abort")) {
		if (!rank)
			await("abort");
		else
			await("never");
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
	await("free");
	TRY(MPI_Win_free(&win));
	report("freed");
	MPI_Comm_free(&pair);
	return 0;
}

/* ---- large messages ----------------------------------------------------------------------------- */

#define FLIGHT		4
#define LARGEST		(1536 << 10)

/* Sizes on either side of what is taken eagerly; the third message of a round is a synchronous one. */
static const int msg_bytes[FLIGHT] = { 200 << 10, 500 << 10, 900 << 10, LARGEST };

/* Both sides busy, for some milliseconds, outside of MPI. */
static void compute(void)
{
	static volatile double x = 1;

	for (int i = 0; i < 2000000; i++)
		x = x * 1.0000001 + 1e-9;
}

/* What tells the driver whether messages of this rank are under way, also when it is stopped. */
static volatile int *flight_flag(void)
{
	char name[64], path[4096];
	int *p, fd;

	snprintf(name, sizeof(name), "flight.%d", rank);
	put(name, "%4d", 0);
	path_of(path, sizeof(path), name);
	fd = open(path, O_RDWR);
	p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		broken("%s: %s", path, strerror(errno));
	close(fd);
	*p = 0;
	return p;
}

/*
 * Messages to the next rank and from the one before, posted together, waited for after a while.  Half of the receives
 * name their source and tag, half do not.  What ends without an error has to be right, and each side tells the
 * other what it had: a message that was sent has to have been received.
 */
static int messages(void)
{
	int next = (rank + 1) % size, prev = (rank + size - 1) % size, stop, round, bad, failed = 0, last = -1;
	volatile int *flight = flight_flag();
	int bad_rounds = 0;
	uint8_t *in[FLIGHT], *out[FLIGHT];
	char file[64];
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	for (int k = 0; k < FLIGHT; k++) {
		in[k] = malloc(LARGEST);
		out[k] = malloc(LARGEST);
	}
	for (round = 0, stop = 0; !stop; round++) {
		MPI_Request r[2 * FLIGHT];
		MPI_Status st[2 * FLIGHT];
		int got[FLIGHT], theirs[FLIGHT], both[2], rc;
		double start;

		for (int k = 0; k < FLIGHT; k++) {
			memset(in[k], 0xee, msg_bytes[k]);
			MPI_Irecv(in[k], msg_bytes[k], MPI_BYTE, k % 2 && round % 4 == 3 ? MPI_ANY_SOURCE : prev,
				  k, comm, &r[k]);
		}
		for (int k = 0; k < FLIGHT; k++) {
			for (int i = 0; i < msg_bytes[k]; i++)
				out[k][i] = byte_at(rank + round + k, i);
			if (k == 2)
				MPI_Issend(out[k], msg_bytes[k], MPI_BYTE, next, k, comm, &r[FLIGHT + k]);
			else
				MPI_Isend(out[k], msg_bytes[k], MPI_BYTE, next, k, comm, &r[FLIGHT + k]);
		}
		*flight = 1;
		if (round == 2)
			put_rank("busy");
		compute();
		start = now_ms();
		rc = MPI_Waitall(2 * FLIGHT, r, st);
		*flight = 0;
		if (now_ms() - start > longest)
			longest = now_ms() - start;
		for (int k = 0; k < 2 * FLIGHT; k++) {
			int err = rc ? st[k].MPI_ERROR : MPI_SUCCESS, class;

			if (r[k] != MPI_REQUEST_NULL)
				broken("round %d: request %d is still there, error %d", round, k, err);
			if (k < FLIGHT)
				got[k] = err == MPI_SUCCESS;
			if (err == MPI_SUCCESS && k < FLIGHT)
				check_bytes("message", in[k], prev + round + k, msg_bytes[k], msg_bytes[k],
					    msg_bytes[k]);
			if (err == MPI_SUCCESS)
				continue;
			MPI_Error_class(err, &class);
			if (class != MPI_ERR_OTHER)
				broken("round %d, %s %d: class %d, expected MPI_ERR_OTHER", round,
				       k < FLIGHT ? "receive" : "send", k % FLIGHT, class);
			failed++;
		}
		/* small ones are the library's */
		MPI_Sendrecv(got, FLIGHT, MPI_INT, prev, FLIGHT, theirs, FLIGHT, MPI_INT, next, FLIGHT,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int k = 0; k < FLIGHT; k++)
			if (!theirs[k] && (!rc || st[FLIGHT + k].MPI_ERROR == MPI_SUCCESS))
				broken("round %d: message %d was sent, but not received", round, k);
		both[0] = !rank && there("stop");
		both[1] = rc != MPI_SUCCESS;
		MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		stop = both[0];
		bad = both[1];
		if (bad)
			last = round;
		bad_rounds += bad;
		/* how many rounds there were, how many since one of which something failed, and of how many it did */
		if (!rank && (bad || round % 4 == 0))
			put("rounds", "%d %d %d\n", round + 1, round - last, bad_rounds);
	}
	snprintf(file, sizeof(file), "messages.%d", rank);
	put(file, "%d %.0f %d\n", failed, longest, last);
	MPI_Comm_free(&comm);
	for (int k = 0; k < FLIGHT; k++) {
		free(in[k]);
		free(out[k]);
	}
	if (!rank)
		printf("MESSAGES OK\n");
	return 0;
}

/* ---- non-blocking collectives ------------------------------------------------------------------ */

#define COLLS		5
#define COLL_BYTES	(400 << 10)
#define COLL_LONGS	(COLL_BYTES / 8)

struct colls {
	uint8_t *bcast, *gather_in, *gather, *a2a_in, *a2a;
	long *sum_in, *sum;
};

static void colls_start(struct colls *c, int round, MPI_Comm comm, MPI_Request *r)
{
	int root = round % size;

	for (int i = 0; i < COLL_BYTES; i++) {
		c->bcast[i] = rank == root ? byte_at(round, i) : 0xee;
		c->gather_in[i] = byte_at(rank + round, i);
	}
	for (int d = 0; d < size; d++)
		for (int i = 0; i < COLL_BYTES; i++)
			c->a2a_in[d * COLL_BYTES + i] = byte_at(rank * size + d + round, i);
	for (int i = 0; i < COLL_LONGS; i++)
		c->sum_in[i] = (long)(rank + 1) * (i + round);
	MPI_Ibarrier(comm, &r[0]);
	MPI_Ibcast(c->bcast, COLL_BYTES, MPI_BYTE, root, comm, &r[1]);
	MPI_Iallgather(c->gather_in, COLL_BYTES, MPI_BYTE, c->gather, COLL_BYTES, MPI_BYTE, comm, &r[2]);
	MPI_Ialltoall(c->a2a_in, COLL_BYTES, MPI_BYTE, c->a2a, COLL_BYTES, MPI_BYTE, comm, &r[3]);
	MPI_Iallreduce(c->sum_in, c->sum, COLL_LONGS, MPI_LONG, MPI_SUM, comm, &r[4]);
}

static void colls_check(const struct colls *c, int round, int which)
{
	long ranks = (long)size * (size + 1) / 2;

	if (which == 1)
		check_bytes("bcast", c->bcast, round, COLL_BYTES, COLL_BYTES, COLL_BYTES);
	for (int s = 0; s < size; s++) {
		if (which == 2)
			check_bytes("allgather", c->gather + s * COLL_BYTES, s + round, COLL_BYTES, COLL_BYTES, COLL_BYTES);
		if (which == 3)
			check_bytes("alltoall", c->a2a + s * COLL_BYTES, s * size + rank + round, COLL_BYTES, COLL_BYTES, COLL_BYTES);
	}
	for (int i = 0; which == 4 && i < COLL_LONGS; i++)
		if (c->sum[i] != ranks * (i + round))
			broken("round %d: sum %d is %ld", round, i, c->sum[i]);
}

/* All of a round are under way together while the ranks compute.  What ends without an error has to be right. */
static int colls(void)
{
	struct colls c = {
		.bcast = malloc(COLL_BYTES), .gather_in = malloc(COLL_BYTES), .gather = malloc((size_t)size * COLL_BYTES),
		.a2a_in = malloc((size_t)size * COLL_BYTES), .a2a = malloc((size_t)size * COLL_BYTES),
		.sum_in = malloc(COLL_BYTES), .sum = malloc(COLL_BYTES),
	};
	int stop = 0, failed = 0, last = -1, bad_rounds = 0;
	volatile int *flight = flight_flag();
	char file[64];
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	for (int round = 0; !stop; round++) {
		MPI_Request r[COLLS];
		MPI_Status st[COLLS];
		int both[2], rc;
		double start;

		for (int k = 0; k < COLLS; k++)
			r[k] = MPI_REQUEST_NULL;
		colls_start(&c, round, comm, r);
		*flight = 1;
		compute();
		start = now_ms();
		rc = MPI_Waitall(COLLS, r, st);
		*flight = 0;
		if (now_ms() - start > longest)
			longest = now_ms() - start;
		for (int k = 0; k < COLLS; k++) {
			if (r[k] != MPI_REQUEST_NULL)
				broken("round %d: request %d is still there", round, k);
			if (rc == MPI_SUCCESS || st[k].MPI_ERROR == MPI_SUCCESS)
				colls_check(&c, round, k);
			else
				failed++;
		}
		both[0] = !rank && there("stop");
		both[1] = rc != MPI_SUCCESS;
		MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		stop = both[0];
		if (both[1])
			last = round;
		bad_rounds += both[1];
		if (!rank)
			put("rounds", "%d %d %d\n", round + 1, round - last, bad_rounds);
	}
	snprintf(file, sizeof(file), "messages.%d", rank);
	put(file, "%d %.0f %d\n", failed, longest, last);
	MPI_Comm_free(&comm);
	free(c.bcast);
	free(c.gather_in);
	free(c.gather);
	free(c.a2a_in);
	free(c.a2a);
	free(c.sum_in);
	free(c.sum);
	if (!rank)
		printf("MESSAGES OK\n");
	return 0;
}

/* Sends without receives: an erroneous program, which a library lets wait, or end. */
static int unposted(void)
{
	MPI_Request r[FLIGHT];
	MPI_Status st[FLIGHT];
	uint8_t *buf = calloc(1, LARGEST);

	MPI_Barrier(MPI_COMM_WORLD);
	for (int k = 0; !rank && k < FLIGHT; k++)
		MPI_Isend(buf, LARGEST, MPI_BYTE, size - 1, k, MPI_COMM_WORLD, &r[k]);
	put_rank("busy");
	if (!rank)
		MPI_Waitall(FLIGHT, r, st);
	await("never");
	return 1;
}

/* Receives of messages that nobody sends are taken back; by then their daemon may be lost. */
static int cancel(void)
{
	uint8_t *buf = malloc(FLIGHT * LARGEST);
	MPI_Request r[FLIGHT];
	MPI_Status st;
	int flag;

	for (int k = 0; !rank && k < FLIGHT; k++)
		MPI_Irecv(buf + k * LARGEST, LARGEST, MPI_BYTE, size - 1, k / 2, MPI_COMM_WORLD, &r[k]);
	put_rank("busy");
	await("go");
	for (int k = 0; !rank && k < FLIGHT; k++) {
		MPI_Cancel(&r[k]);
		MPI_Wait(&r[k], &st);
		MPI_Test_cancelled(&st, &flag);
		if (!flag)
			broken("receive %d was not cancelled", k);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	free(buf);
	return 0;
}

#define POOLED	100000		/* bytes */
#define POOLS	6

/* Message @k of pooled(), in all the ways in which one can be received. */
static void receive_pooled(int k, uint8_t *buf)
{
	int gap = k == 2, short_of = k == 5, rc, n = 0, want = POOLED - short_of;
	MPI_Message msg;
	MPI_Datatype v;
	MPI_Status st;

	memset(buf, 0xee, 2 * POOLED);
	switch (k) {
	case 1:
		rc = MPI_Recv(buf, POOLED, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &st);
		break;
	case 2:
		MPI_Type_vector(POOLED, 1, 2, MPI_BYTE, &v);
		MPI_Type_commit(&v);
		rc = MPI_Recv(buf, 1, v, 0, k, MPI_COMM_WORLD, &st);
		MPI_Type_free(&v);
		break;
	case 3:
		MPI_Mprobe(0, k, MPI_COMM_WORLD, &msg, &st);
		MPI_Get_count(&st, MPI_BYTE, &n);
		if (n != POOLED)
			broken("a probe of message %d sees %d bytes", k, n);
		rc = MPI_Mrecv(buf, POOLED, MPI_BYTE, &msg, &st);
		break;
	default:
		rc = MPI_Recv(buf, want, MPI_BYTE, 0, k, MPI_COMM_WORLD, &st);
	}
	if (short_of) {
		MPI_Error_class(rc, &rc);
		if (rc != MPI_ERR_TRUNCATE)
			broken("message %d, cut: error class %d", k, rc);
	} else if (rc != MPI_SUCCESS || st.MPI_TAG != k) {
		broken("message %d: error %d, tag %d", k, rc, st.MPI_TAG);
	}
	for (int i = 0; i < want; i++)
		if (buf[gap ? 2 * i : i] != byte_at(k, i))
			broken("message %d: byte %d is 0x%02x, expected 0x%02x", k, i, buf[gap ? 2 * i : i],
			       byte_at(k, i));
}

/* Sends of rank 0 that have ended, of which the last rank has received nothing yet when its daemon is killed. */
static int pooled(void)
{
	uint8_t *buf = calloc(POOLS, POOLED);
	MPI_Request r[POOLS];

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	/* the library connects at the first message, for which both have to be there */
	if (!rank)
		MPI_Send(buf, 1, MPI_BYTE, size - 1, POOLS, MPI_COMM_WORLD);
	else if (rank == size - 1)
		MPI_Recv(buf, 1, MPI_BYTE, 0, POOLS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int k = 0; !rank && k < POOLS; k++) {
		for (int i = 0; i < POOLED; i++)
			buf[k * POOLED + i] = byte_at(k, i);
		MPI_Isend(buf + k * POOLED, POOLED, MPI_BYTE, size - 1, k, MPI_COMM_WORLD, &r[k]);
	}
	for (int k = 0; !rank && k < POOLS; k++)
		MPI_Wait(&r[k], MPI_STATUS_IGNORE);
	put_rank("busy");
	await("go");
	for (int k = 0; rank == size - 1 && k < POOLS; k++)
		receive_pooled(k, buf);
	MPI_Barrier(MPI_COMM_WORLD);
	free(buf);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : "";
	const char *job = getenv("CHAOS_JOB");
	char file[128];
	int st;

	dir = getenv("CHAOS_DIR");
	if (!dir)
		dir = "/nonexistent";
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (!strcmp(mode, "work"))
		st = work(*arg ? arg : "allocate");
	else if (!strcmp(mode, "brief"))
		st = brief();
	else if (!strcmp(mode, "steady"))
		st = steady();
	else if (!strcmp(mode, "hold") || !strcmp(mode, "wait"))
		st = killed_at_lock(*mode == 'h');
	else if (!strcmp(mode, "acc"))
		st = killed_at_acc();
	else if (!strcmp(mode, "messages"))
		st = messages();
	else if (!strcmp(mode, "colls"))
		st = colls();
	else if (!strcmp(mode, "unposted"))
		st = unposted();
	else if (!strcmp(mode, "cancel"))
		st = cancel();
	else if (!strcmp(mode, "pooled"))
		st = pooled();
	else if (!strcmp(mode, "errors"))
		st = errors(arg, argc > 3 ? atoi(argv[3]) : 0);
	else
		broken("no such mode: '%s'", mode);
	/* who waits for the job knows from here on that only MPI_Finalize is left */
	snprintf(file, sizeof(file), "end.%s.%d", job ? job : "", rank);
	put(file, "%d\n", st);
	MPI_Finalize();
	return st;
}

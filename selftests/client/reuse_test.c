// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Windows that are used again, windows made together, and both after errors, against real daemons.  This process
 * has all ranks: a session for each node, two windows for the two ranks.
 *
 *	window 0 --- progd A [ <== TCP 127.0.0.1 ==> progd B ] --- window 1
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <kit/fake.h>
#include <kit/progd.h>

enum { WINDOWS = 2048, COPIES = 7 };	/* a user's windows at a daemon, and how many are made with one (win.c) */

static uint8_t jobid[PROG_JOBID_SIZE], jobkey[PROG_JOBKEY_SIZE];

struct pair {
	struct prog_session *s[2];
	struct prog_win *w[2];
	int nodes;
};

static struct prog_session *session(int node)
{
	struct prog_session_cfg cfg = { .socket = rank_path[node] };
	struct prog_session *s;
	const char *why = "";

	memcpy(cfg.jobid, jobid, sizeof(jobid));
	memcpy(cfg.jobkey, jobkey, sizeof(jobkey));
	if (prog_session_open(&cfg, &s, &why))
		fail_msg("session: %s", why);
	return s;
}

static void pair_windows(struct pair *p, uint64_t key)
{
	struct prog_endpoint ep[2];
	int i;

	for (i = 0; i < 2; i++) {
		struct prog_win_cfg cfg = {
			.kind = PROG_WIN_DYNAMIC, .key = key, .rank = (uint32_t)i, .nranks = 2,
		};

		assert_int_equal(prog_win_open(p->s[i], &cfg, &p->w[i]), 0);
		prog_win_endpoint(p->w[i], &ep[i]);
	}
	for (i = 0; i < 2; i++)
		assert_int_equal(prog_win_connect(p->w[i], ep, NULL), 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(prog_win_map(p->w[i], NULL), 0);
		assert_true(prog_win_recyclable(p->w[i]));
	}
}

static void pair_open(struct pair *p, int nodes)
{
	int i;

	prog_job_key_make(jobid, jobkey);
	p->nodes = nodes;
	for (i = 0; i < nodes; i++)
		start_daemon(i, "1", "auto", "quota_windows=2048");
	for (i = 0; i < 2; i++)
		p->s[i] = i < nodes ? session(i) : p->s[0];
	pair_windows(p, 1);
}

static void pair_close(struct pair *p)
{
	int i;

	for (i = 0; i < 2; i++)
		prog_win_close(p->w[i]);
	for (i = 0; i < p->nodes; i++) {
		prog_session_close(p->s[i]);
		stop_daemon(i);
	}
}

static void begin(struct pair *p, enum prog_win_kind kind, void *const *base, size_t size, struct prog_use *use)
{
	int i;

	for (i = 0; i < 2; i++) {
		struct prog_win_cfg cfg = {
			.kind = kind, .rank = (uint32_t)i, .nranks = 2, .base = base ? base[i] : NULL, .size = size,
		};

		assert_int_equal(prog_win_begin(p->w[i], &cfg, &use[i]), 0);
	}
}

static void ready(struct pair *p, const struct prog_use *use)
{
	int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(prog_win_ready(p->w[i], use, NULL), 0);
}

/* @disp: an address of rank 1's in dynamic windows, else an offset */
static uint64_t put(struct pair *p, uint64_t disp, uint32_t flags)
{
	static const uint64_t value = 0x1122334455667788;
	struct prog_buf o = { .addr = (void *)(uintptr_t)&value, .count = sizeof(value) };
	struct prog_dst t = { .rank = 1, .disp = disp, .count = sizeof(value) };
	uint64_t seq;

	assert_int_equal(prog_put(p->w[0], &o, &t, flags, &seq), 0);
	return seq;
}

/* ---- what a rank says of its memory -------------------------------------------------------------- */

/* As in reuse.c. */
struct use {
	uint64_t base, size, ino, dev, off;
	int32_t fd;
	uint32_t kind;
};

/* A file of @size bytes, a memory file with @seals or (-1) one on disk; *@u says so. */
static int file(int seals, uint64_t size, struct use *u)
{
	char path[] = "/tmp/asyncprog-test-XXXXXX";
	int fd = seals < 0 ? mkstemp(path) : memfd_create("test", MFD_ALLOW_SEALING);
	struct stat st;

	assert_true(fd >= 0);
	if (seals < 0)
		unlink(path);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	if (seals >= 0)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	assert_int_equal(fstat(fd, &st), 0);
	u->fd = fd;
	u->ino = st.st_ino;
	u->dev = st.st_dev;
	u->off = 0;
	return fd;
}

/* What follows of rank 0 for what rank 1 says; the window can be used again after it. */
static int told(struct pair *p, void *const *base, const struct use *u)
{
	struct prog_use use[2];
	int err;

	begin(p, PROG_WIN_CREATE, base, u->size, use);
	memcpy(use[1].bytes, u, sizeof(*u));
	err = prog_win_ready(p->w[0], use, NULL);
	assert_true(prog_win_end(p->w[0]));
	assert_true(prog_win_end(p->w[1]));
	return err;
}

static void test_files(void **state)
{
	enum { BYTES = 8192 };
	struct prog_use use[2];
	struct use u, other;
	struct pair p;
	void *base[2];
	int fd, i;

	pair_open(&p, 1);
	for (i = 0; i < 2; i++)
		assert_int_equal(prog_mem_alloc(NULL, BYTES, &base[i]), 0);
	begin(&p, PROG_WIN_CREATE, base, BYTES, use);
	assert_true(prog_win_maps(p.w[0], use));
	memcpy(&u, use[1].bytes, sizeof(u));
	assert_int_not_equal(u.ino, 0);
	assert_true(prog_win_end(p.w[0]));
	assert_true(prog_win_end(p.w[1]));
	assert_int_equal(told(&p, base, &u), 0);

	/* it is not the file that it says */
	other = u;
	other.ino++;
	assert_int_equal(told(&p, base, &other), -EPROTO);
	other = u;
	other.dev++;
	assert_int_equal(told(&p, base, &other), -EPROTO);
	/* other than it should be */
	other = u;
	fd = file(F_SEAL_SHRINK, BYTES, &other);
	assert_int_equal(told(&p, base, &other), 0);
	other.off = 4096;
	assert_int_equal(told(&p, base, &other), -EPROTO);
	close(fd);
	assert_int_equal(told(&p, base, &other), -ENOENT);
	fd = file(F_SEAL_GROW, BYTES, &other);
	assert_int_equal(told(&p, base, &other), -EPROTO);
	close(fd);
	fd = file(-1, BYTES, &other);
	assert_int_equal(told(&p, base, &other), -EPROTO);
	close(fd);

	/* and what it says makes no sense */
	other = u;
	other.kind = PROG_WIN_DYNAMIC;
	assert_int_equal(told(&p, base, &other), -EPROTO);
	other = u;
	other.base = INT64_MAX;
	assert_int_equal(told(&p, base, &other), -EPROTO);
	for (i = 0; i < 2; i++)
		assert_int_equal(prog_mem_free(NULL, base[i]), 0);
	pair_close(&p);
}

/* Memory that stays with a window is cleared, and not mapped for another's. */
static void test_memory(void **state)
{
	static const size_t sizes[] = { 64, 100000, 4096, 8, 65536 };
	struct prog_use use[2];
	struct pair p;
	size_t i;

	pair_open(&p, 1);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t *mem, value;

		begin(&p, PROG_WIN_ALLOCATE, NULL, sizes[i], use);
		ready(&p, use);
		mem = prog_win_base(p.w[1]);
		memcpy(&value, mem, sizeof(value));
		assert_int_equal(value, 0);
		put(&p, 0, 0);
		assert_int_equal(prog_flush(p.w[0], 1), 0);
		assert_int_equal(prog_win_error(p.w[0], 1), 0);
		assert_int_equal(mem[0], 0x1122334455667788);
		assert_true(prog_win_end(p.w[0]));
		assert_true(prog_win_end(p.w[1]));
	}
	pair_close(&p);
}

/* ---- after errors -------------------------------------------------------------------------------- */

static int lost_word(void *arg, uint32_t rank)
{
	return -EIO;
}

/* A window in which something went wrong, or is left, is not used again. */
static void test_window_errors(void **state)
{
	struct prog_use use[2];
	uint32_t counts[2];
	struct pair p;
	char mem[64];
	int i;

	pair_open(&p, 2);
	for (i = 0; i < 6; i++) {
		begin(&p, PROG_WIN_DYNAMIC, NULL, 0, use);
		ready(&p, use);
		assert_int_equal(prog_win_attach(p.w[1], mem, sizeof(mem)), 0);
		put(&p, (uintptr_t)mem, 0);
		assert_int_equal(prog_flush(p.w[0], 1), 0);
		switch (i) {
		case 1:		/* an error that nobody asked for */
			put(&p, (uintptr_t)mem + sizeof(mem), 0);
			assert_int_equal(prog_flush(p.w[0], 1), 0);
			break;
		case 2:		/* a lock */
			assert_int_equal(prog_lock(p.w[0], 1, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT), 0);
			break;
		case 3:		/* operations that a fence would have counted */
			put(&p, (uintptr_t)mem, PROG_OPF_FENCE);
			assert_int_equal(prog_flush(p.w[0], 1), 0);
			break;
		case 4:		/* a fence that was given up */
			prog_win_set_check(p.w[0], lost_word, NULL);
			assert_int_equal(prog_fence_wait(p.w[0], 1), -EIO);
			prog_fence_issued(p.w[0], counts);
			break;
		case 5:		/* an operation under way */
			kill(daemons[1], SIGSTOP);
			put(&p, (uintptr_t)mem, 0);
			break;
		}
		assert_int_equal(prog_win_end(p.w[0]), !i);
		if (i == 5) {
			kill(daemons[1], SIGCONT);
			assert_int_equal(prog_flush(p.w[0], 1), 0);
		}
		if (i == 2)
			assert_int_equal(prog_unlock(p.w[0], 1), 0);
		assert_true(prog_win_end(p.w[1]));
		if (!i)
			continue;
		prog_win_close(p.w[0]);
		prog_win_close(p.w[1]);
		pair_windows(&p, (uint64_t)i + 1);
	}
	pair_close(&p);
}

/* A daemon that is lost: nothing is begun, and all can be closed. */
static void test_session_lost(void **state)
{
	struct prog_win_cfg cfg = { .kind = PROG_WIN_DYNAMIC, .key = 9, .nranks = 2 };
	struct prog_win *w, *early;
	struct prog_endpoint ep[2];
	struct prog_use use[2];
	struct pair p;
	int st;

	pair_open(&p, 1);
	assert_int_equal(prog_win_open(p.s[0], &cfg, &early), 0);
	prog_win_endpoint(early, &ep[0]);
	begin(&p, PROG_WIN_ALLOCATE, NULL, 64, use);
	ready(&p, use);
	kill(daemons[0], SIGKILL);
	assert_int_equal(waitpid(daemons[0], &st, 0), daemons[0]);
	assert_int_equal(prog_session_ping(p.s[0]), -ECONNRESET);
	assert_false(prog_session_alive(p.s[0]));
	assert_false(prog_win_end(p.w[0]));
	cfg.rank = 1;
	assert_int_equal(prog_win_begin(p.w[1], &cfg, &use[1]), -ECONNRESET);
	assert_int_equal(prog_win_open(p.s[0], &cfg, &w), -ECONNRESET);
	ep[1] = ep[0];
	assert_int_equal(prog_win_connect(early, ep, NULL), -EPROTO);
	assert_int_equal(prog_win_map(early, NULL), -EINVAL);
	prog_win_close(early);
	prog_win_close(p.w[0]);
	prog_win_close(p.w[1]);
	prog_session_close(p.s[0]);
	unlink(rank_path[0]);
}

/* ---- windows made together ----------------------------------------------------------------------- */

static struct prog_win *batch_open(struct prog_session *s, uint64_t key, uint32_t copies, struct prog_endpoint *ep)
{
	struct prog_win_cfg cfg = { .kind = PROG_WIN_DYNAMIC, .key = key, .nranks = 1, .copies = copies };
	struct prog_win *w;

	assert_int_equal(prog_win_open(s, &cfg, &w), 0);
	prog_win_endpoint(w, ep);
	return w;
}

static struct prog_win *batch(struct prog_session *s, uint64_t key, uint32_t copies, int expect)
{
	struct prog_endpoint ep;
	struct prog_win *w = batch_open(s, key, copies, &ep);

	assert_int_equal(prog_win_connect(w, &ep, NULL), expect);
	if (!expect)
		assert_int_equal(prog_win_map(w, NULL), 0);
	return w;
}

/* No more than a part of a user's windows, nor of all ranks that are reasonable. */
static void test_bounds(void **state)
{
	static const uint32_t ranks[] = { 1, 2, 1000, 4096, 8192, 8193, 1u << 20 };
	struct prog_win_cfg cfg = { .kind = PROG_WIN_DYNAMIC, .key = 9 };
	struct prog_session *s;
	struct prog_win *w;
	size_t i;

	prog_job_key_make(jobid, jobkey);
	start_daemon(0, "1", "auto", NULL);
	s = session(0);
	assert_int_equal(prog_win_most_copies(s, 1), 63);
	assert_int_equal(prog_win_most_copies(s, 8192), 0);
	for (i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
		uint32_t most = prog_win_most_copies(s, ranks[i]);

		assert_in_range(most, 0, 63);
		assert_true(!most || (most + 1) * ranks[i] <= 8192);
		cfg.nranks = ranks[i];
		cfg.copies = most + 1;
		assert_int_equal(prog_win_open(s, &cfg, &w), -EINVAL);
	}
	cfg.copies = 0;
	cfg.nranks = (1u << 20) + 1;
	assert_int_equal(prog_win_open(s, &cfg, &w), -EINVAL);
	cfg.nranks = 0;
	assert_int_equal(prog_win_open(s, &cfg, &w), -EINVAL);
	cfg.nranks = cfg.rank = 2;
	assert_int_equal(prog_win_open(s, &cfg, &w), -EINVAL);
	prog_session_close(s);
	stop_daemon(0);
}

/* Of those made together each ends for itself, in any order. */
static void test_copies(void **state)
{
	struct prog_win *first, *copy[COPIES];
	struct prog_session *s;
	char mem[8];
	int i;

	prog_job_key_make(jobid, jobkey);
	start_daemon(0, "1", "auto", "quota_windows=2048");
	s = session(0);
	assert_int_equal(prog_win_most_copies(s, 1), COPIES);
	first = batch(s, 100, COPIES, 0);
	for (i = 0; i < 5; i++) {
		copy[i] = prog_win_copy(first, (uint32_t)i + 1);
		assert_non_null(copy[i]);
		assert_null(prog_win_copy(first, (uint32_t)i + 1));
	}
	prog_win_close(copy[1]);
	/* with the two that nobody took; the others stay what they are */
	prog_win_close(first);
	for (i = 0; i < 5; i++) {
		if (i == 1)
			continue;
		assert_int_equal(prog_win_attach(copy[i], mem, sizeof(mem)), 0);
		assert_int_equal(prog_lock(copy[i], 0, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT), 0);
		assert_int_equal(prog_unlock(copy[i], 0), 0);
	}
	/* the daemon has forgotten those that ended, and only those: the keys of 3, 4 and 5 are taken */
	prog_win_close(batch(s, 100, 0, 0));
	prog_win_close(batch(s, 102, 0, 0));
	prog_win_close(batch(s, 106, 1, 0));
	prog_win_close(batch(s, 103, 0, -EEXIST));
	prog_win_close(copy[0]);
	/* the session ends with four that were taken, and eight of which none was */
	batch(s, 200, COPIES, 0);
	prog_session_close(s);
	stop_daemon(0);
}

/* All windows of a user: a session that ends without a word leaves none; who is refused can try again. */
static void test_quota(void **state)
{
	enum { BATCHES = WINDOWS / (COPIES + 1) };
	struct prog_win *w[BATCHES], *more;
	struct prog_session *s;
	struct prog_endpoint ep;
	int i, st, err;
	time_t end;
	pid_t pid;

	prog_job_key_make(jobid, jobkey);
	start_daemon(0, "1", "auto", "quota_windows=2048");
	fflush(NULL);
	pid = fork();
	if (!pid) {
		s = session(0);
		for (i = 0; i < BATCHES; i++)
			batch(s, 100 * (uint64_t)(i + 1), COPIES, 0);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	s = session(0);
	/* the daemon sees the end of one socket maybe after what comes by another */
	end = time(NULL) + 20;
	do {
		w[0] = batch_open(s, 1, COPIES, &ep);
		err = prog_win_connect(w[0], &ep, NULL);
		prog_win_close(w[0]);
	} while (err == -EDQUOT && time(NULL) < end);
	for (i = 0; i < BATCHES; i++)
		w[i] = batch(s, 100 * (uint64_t)(i + 1), COPIES, 0);
	more = batch_open(s, 1, COPIES, &ep);
	assert_int_equal(prog_win_connect(more, &ep, NULL), -EDQUOT);
	assert_int_equal(prog_win_map(more, NULL), -EINVAL);
	/* one is not enough for eight */
	prog_win_close(prog_win_copy(w[3], 2));
	assert_int_equal(prog_win_connect(more, &ep, NULL), -EDQUOT);
	prog_win_close(w[3]);
	assert_int_equal(prog_win_connect(more, &ep, NULL), 0);
	assert_int_equal(prog_win_connect(more, &ep, NULL), -EALREADY);
	assert_int_equal(prog_win_map(more, NULL), 0);
	prog_session_close(s);
	stop_daemon(0);
}

static const struct CMUnitTest tests[] = {
	/* first: it forks, and ThreadSanitizer lets the child have threads only if there were none */
	cmocka_unit_test(test_quota),
	cmocka_unit_test(test_files),
	cmocka_unit_test(test_memory),
	cmocka_unit_test(test_window_errors),
	cmocka_unit_test(test_session_lost),
	cmocka_unit_test(test_bounds),
	cmocka_unit_test(test_copies),
};

KIT_SUITE(tests, .begin = find_progd);

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Data and locks between two nodes, through two real daemons (nodes.h) and the client library.
 * Both ranks live in this process; each is a session of another daemon, so they are remote to each
 * other.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kit/nodes.h>
#include <libprogbase/dtype.h>
#include <progclient.h>

static struct node node[2];
static struct prog_session *sess[2];
static uint8_t jobid[16], jobkey[32];
static uint64_t next_key = 1;

struct pair {
	struct prog_win *w[2];
	char *mem[2];
};

/* One way to run the daemons; its tests stand between one that starts them and one that ends them. */
struct variant {
	const char *name;
	const char *sets[8];
};

static void start_daemons(void **state)
{
	const struct variant *v = *state;
	const char *why = "";

	assert_int_equal(prog_job_key_make(jobid, jobkey), 0);
	for (int i = 0; i < 2; i++) {
		struct prog_session_cfg cfg = { .flags = PROG_SESSION_MT, .rank = i };
		int r = node_start(&node[i], v->sets);

		if (r)
			fail_msg("daemon %d: %s\n%s", i, strerror(-r), node_log(&node[i]));
		memcpy(cfg.jobid, jobid, 16);
		memcpy(cfg.jobkey, jobkey, 32);
		cfg.socket = node[i].sock;
		r = prog_session_open(&cfg, &sess[i], &why);
		if (r)
			fail_msg("session %d: %s", i, why);
	}
}

static void end_daemons(void **state)
{
	int st[2];

	for (int i = 0; i < 2; i++) {
		prog_session_close(sess[i]);
		sess[i] = NULL;
		st[i] = node_stop(&node[i], SIGTERM);
	}
	assert_int_equal(st[0], 0);
	assert_int_equal(st[1], 0);
}

/* Without daemons there is nothing to test. */
static int have_daemons(void **state)
{
	return sess[0] && sess[1] ? 0 : -1;
}

static void pair_open(struct pair *p, enum prog_win_kind kind, size_t size)
{
	struct prog_endpoint ep[2];
	const char *why = "";
	uint64_t key = next_key++;

	memset(p, 0, sizeof(*p));
	for (uint32_t i = 0; i < 2; i++) {
		struct prog_win_cfg cfg = { .kind = kind, .key = key, .rank = i, .nranks = 2, .size = size };

		if (kind == PROG_WIN_CREATE) {
			p->mem[i] = calloc(1, size);
			cfg.base = p->mem[i];
		}
		if (kind == PROG_WIN_DYNAMIC)
			cfg.size = 0;
		assert_int_equal(prog_win_open(sess[i], &cfg, &p->w[i]), 0);
		prog_win_endpoint(p->w[i], &ep[i]);
	}
	for (int i = 0; i < 2; i++) {
		int r = prog_win_connect(p->w[i], ep, &why);

		if (r)
			fail_msg("connect %d: %d %s", i, r, why);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(prog_win_map(p->w[i], NULL), 0);
		if (kind == PROG_WIN_DYNAMIC) {
			p->mem[i] = calloc(1, size);
			assert_int_equal(prog_win_attach(p->w[i], p->mem[i], size), 0);
		} else if (kind == PROG_WIN_ALLOCATE) {
			p->mem[i] = prog_win_base(p->w[i]);
		}
		assert_true(prog_win_multinode(p->w[i]));
		assert_false(prog_win_is_local(p->w[i], !i));
	}
}

static void pair_close(struct pair *p, enum prog_win_kind kind)
{
	for (int i = 0; i < 2; i++)
		prog_win_close(p->w[i]);
	if (kind != PROG_WIN_ALLOCATE)
		for (int i = 0; i < 2; i++)
			free(p->mem[i]);
}

static void fill(char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = rnd();
}

static uint64_t base_disp(const struct pair *p, enum prog_win_kind kind, int rank)
{
	return kind == PROG_WIN_DYNAMIC ? (uintptr_t)p->mem[rank] : 0;
}

static void put_get(enum prog_win_kind kind)
{
	static const size_t sizes[] = {
		1, 8, 16, 17, 100, 4096, 8192, 16384, 65536, 262144, 262145, 1 << 20, 4 << 20,
	};
	const size_t max = 4 << 20;
	char *src = malloc(max), *dst = malloc(max);
	struct pair p;

	pair_open(&p, kind, max + 64);
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		for (int from = 0; from < 2; from++) {
			size_t n = sizes[k], at = rnd() % 64;
			struct prog_buf o = { src, NULL, n };
			struct prog_dst t = { !from, base_disp(&p, kind, !from) + at, NULL, n };
			uint64_t seq;

			fill(src, n);
			memset(dst, 0, n);
			assert_int_equal(prog_lock(p.w[from], !from, 0), 0);
			assert_int_equal(prog_put(p.w[from], &o, &t, 0, &seq), 0);
			assert_int_equal(prog_flush(p.w[from], !from), 0);
			assert_memory_equal(p.mem[!from] + at, src, n);
			o.addr = dst;
			assert_int_equal(prog_get(p.w[from], &o, &t, 0, &seq), 0);
			assert_int_equal(prog_unlock(p.w[from], !from), 0);
			assert_memory_equal(dst, src, n);
			assert_int_equal(prog_win_error(p.w[from], !from), 0);
		}
	}
	pair_close(&p, kind);
	free(src);
	free(dst);
}

static void test_put_get_allocate(void **state)
{
	put_get(PROG_WIN_ALLOCATE);
}

static void test_put_get_create(void **state)
{
	put_get(PROG_WIN_CREATE);
}

static void test_put_get_dynamic(void **state)
{
	put_get(PROG_WIN_DYNAMIC);
}

static void strided(enum prog_win_kind kind)
{
	struct dtype *el, *vec;
	struct pair p;
	const size_t block = 64, count = 16384;
	char *src = malloc(block * count), *dst = malloc(block * count);
	struct prog_buf o = { src, NULL, block * count };
	struct prog_dst t = { 1, 0, NULL, 1 };
	uint64_t seq;

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_BYTE, &el), 0);
	assert_int_equal(prog_dtype_new_hvector(count, block, 2 * block, el, &vec), 0);
	pair_open(&p, kind, 2 * block * count);
	fill(src, block * count);
	t.type = vec;
	t.disp = base_disp(&p, kind, 1);
	assert_int_equal(prog_lock(p.w[0], 1, PROG_LOCKF_EXCL), 0);
	assert_int_equal(prog_put(p.w[0], &o, &t, 0, &seq), 0);
	assert_int_equal(prog_flush(p.w[0], 1), 0);
	for (size_t i = 0; i < count; i++) {
		assert_memory_equal(p.mem[1] + 2 * block * i, src + block * i, block);
		for (size_t k = 0; k < block && i + 1 < count; k++)
			assert_int_equal(p.mem[1][2 * block * i + block + k], 0);
	}
	o.addr = dst;
	assert_int_equal(prog_get(p.w[0], &o, &t, 0, &seq), 0);
	assert_int_equal(prog_unlock(p.w[0], 1), 0);
	assert_memory_equal(dst, src, block * count);
	pair_close(&p, kind);
	prog_dtype_put(vec);
	prog_dtype_put(el);
	free(src);
	free(dst);
}

static void test_strided(void **state)
{
	strided(PROG_WIN_ALLOCATE);
	strided(PROG_WIN_CREATE);
	strided(PROG_WIN_DYNAMIC);
}

static void atomics(enum prog_win_kind kind)
{
	enum { BIG = KIT_MANY(1 << 20) };
	struct pair p;
	int64_t one = 1, old = -1, cmp, nv;
	uint64_t seq, d;
	double *big = malloc(BIG * sizeof(double)), *res = malloc(BIG * sizeof(double));

	pair_open(&p, kind, BIG * sizeof(double));
	d = base_disp(&p, kind, 1);
	assert_int_equal(prog_lock(p.w[0], 1, 0), 0);
	for (int i = 0; i < 1000; i++) {
		struct prog_buf o = { &one, NULL, 8 }, r = { &old, NULL, 8 };
		struct prog_dst t = { 1, d, NULL, 8 };

		assert_int_equal(prog_accumulate(p.w[0], &o, i % 2 ? &r : NULL, &t, PROG_OP_SUM,
						 PROG_TYPE_I64, 0, &seq), 0);
		if (i % 2) {
			assert_int_equal(prog_flush(p.w[0], 1), 0);
			assert_int_equal(old, i);
		}
	}
	assert_int_equal(prog_flush(p.w[0], 1), 0);
	assert_int_equal(*(int64_t *)p.mem[1], 1000);
	cmp = 1000;
	nv = 7;
	assert_int_equal(prog_compare_and_swap(p.w[0], &nv, &cmp, &old, 1, d, PROG_TYPE_I64, 0), 0);
	assert_int_equal(prog_flush(p.w[0], 1), 0);
	assert_int_equal(old, 1000);
	assert_int_equal(*(int64_t *)p.mem[1], 7);
	assert_int_equal(prog_compare_and_swap(p.w[0], &nv, &cmp, &old, 1, d, PROG_TYPE_I64, 0), 0);
	assert_int_equal(prog_flush(p.w[0], 1), 0);
	assert_int_equal(old, 7);

	for (int i = 0; i < BIG; i++) {
		big[i] = i;
		((double *)p.mem[1])[i] = 0.5;
	}
	for (int round = 0; round < 2; round++) {
		struct prog_buf o = { big, NULL, BIG * sizeof(double) }, r = { res, NULL, BIG * sizeof(double) };
		struct prog_dst t = { 1, d, NULL, BIG * sizeof(double) };

		assert_int_equal(prog_accumulate(p.w[0], &o, round ? &r : NULL, &t, PROG_OP_SUM,
						 PROG_TYPE_F64, 0, &seq), 0);
		assert_int_equal(prog_flush(p.w[0], 1), 0);
		assert_int_equal(prog_win_error(p.w[0], 1), 0);
	}
	for (int i = 0; i < BIG; i++) {
		if (((double *)p.mem[1])[i] != 2.0 * i + 0.5 || res[i] != i + 0.5)
			fail_msg("element %d: memory %g, fetched %g", i, ((double *)p.mem[1])[i], res[i]);
	}
	{	/* NO_OP reads atomically */
		struct prog_buf o = { NULL, NULL, 0 }, r = { res, NULL, BIG * sizeof(double) };
		struct prog_dst t = { 1, d, NULL, BIG * sizeof(double) };

		memset(res, 0, BIG * sizeof(double));
		assert_int_equal(prog_accumulate(p.w[0], &o, &r, &t, PROG_OP_NO_OP, PROG_TYPE_F64, 0,
						 &seq), 0);
		assert_int_equal(prog_flush(p.w[0], 1), 0);
		for (int i = 0; i < BIG; i++)
			if (res[i] != 2.0 * i + 0.5)
				fail_msg("element %d: read %g", i, res[i]);
	}
	assert_int_equal(prog_unlock(p.w[0], 1), 0);
	pair_close(&p, kind);
	free(big);
	free(res);
}

static void test_atomics(void **state)
{
	atomics(PROG_WIN_ALLOCATE);
	atomics(PROG_WIN_CREATE);
	atomics(PROG_WIN_DYNAMIC);
}

/* An operation outside the window fails alone; the stream goes on. */
static void test_errors(void **state)
{
	struct pair p;
	char buf[64];
	uint64_t seq;
	struct prog_buf o = { buf, NULL, 64 };
	struct prog_dst t = { 1, 0, NULL, 64 };

	pair_open(&p, PROG_WIN_DYNAMIC, 4096);
	fill(buf, 64);
	assert_int_equal(prog_lock(p.w[0], 1, 0), 0);
	t.disp = (uintptr_t)p.mem[1] + 4096 - 32;
	assert_int_equal(prog_put(p.w[0], &o, &t, 0, &seq), 0);
	prog_flush(p.w[0], 1);
	assert_int_equal(prog_win_error(p.w[0], 1), -ERANGE);
	t.disp = (uintptr_t)p.mem[1];
	assert_int_equal(prog_put(p.w[0], &o, &t, 0, &seq), 0);
	assert_int_equal(prog_flush(p.w[0], 1), 0);
	assert_memory_equal(p.mem[1], buf, 64);
	assert_int_equal(prog_win_error(p.w[0], 1), 0);
	assert_int_equal(prog_unlock(p.w[0], 1), 0);
	pair_close(&p, PROG_WIN_DYNAMIC);
}

/* Many operations behind a lock that somebody else holds: they wait, within the credit, and come. */
static void test_lock_pipeline(void **state)
{
	struct pair p;
	char *src = malloc(1 << 20);
	struct prog_buf o = { src, NULL, 1 << 20 };
	struct prog_dst t = { 1, 0, NULL, 1 << 20 };
	uint64_t seq;

	pair_open(&p, PROG_WIN_ALLOCATE, 2 << 20);
	fill(src, 1 << 20);
	assert_int_equal(prog_lock(p.w[1], 1, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT), 0);
	assert_int_equal(prog_lock(p.w[0], 1, PROG_LOCKF_EXCL), 0);
	for (int i = 0; i < 100; i++) {
		int64_t v = i;
		struct prog_buf so = { &v, NULL, 8 };
		struct prog_dst st = { 1, (1 << 20) + 8 * i, NULL, 8 };

		assert_int_equal(prog_put(p.w[0], &so, &st, 0, &seq), 0);
	}
	assert_int_equal(prog_put(p.w[0], &o, &t, 0, &seq), 0);
	/* 0: the library has copied it */
	if (seq)
		assert_int_equal(prog_test(p.w[0], 1, seq, true), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(*(int64_t *)(p.mem[1] + (1 << 20) + 8 * i), 0);
	assert_int_equal(prog_unlock(p.w[1], 1), 0);
	assert_int_equal(prog_unlock(p.w[0], 1), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(*(int64_t *)(p.mem[1] + (1 << 20) + 8 * i), i);
	assert_memory_equal(p.mem[1], src, 1 << 20);
	pair_close(&p, PROG_WIN_ALLOCATE);
	free(src);
}

static void test_fence(void **state)
{
	struct pair p;
	uint32_t counts[2][2];
	uint64_t seq;

	pair_open(&p, PROG_WIN_ALLOCATE, 65536);
	for (int epoch = 0; epoch < 6; epoch++) {
		for (int i = 0; i < 2; i++) {
			for (int k = 0; k < 50 + epoch; k++) {
				int64_t v = epoch * 1000 + i * 100 + k;
				struct prog_buf o = { &v, NULL, 8 };
				struct prog_dst t = { !i, 8 * k, NULL, 8 };

				assert_int_equal(prog_put(p.w[i], &o, &t, PROG_OPF_FENCE, &seq), 0);
			}
		}
		for (int i = 0; i < 2; i++)
			prog_fence_issued(p.w[i], counts[i]);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(prog_fence_wait(p.w[i], counts[0][i] + counts[1][i]), 0);
			for (int k = 0; k < 50 + epoch; k++)
				assert_int_equal(((int64_t *)p.mem[i])[k], epoch * 1000 + !i * 100 + k);
		}
	}
	pair_close(&p, PROG_WIN_ALLOCATE);
}

static void test_pscw(void **state)
{
	struct pair p;
	uint32_t zero = 0, one = 1;
	uint64_t seq;

	pair_open(&p, PROG_WIN_ALLOCATE, 4096);
	for (uint32_t epoch = 1; epoch <= 5; epoch++) {
		int64_t v = epoch;
		struct prog_buf o = { &v, NULL, 8 };
		struct prog_dst t = { 1, 0, NULL, 8 };

		assert_int_equal(prog_post(p.w[1], &zero, 1, NULL), 0);
		assert_int_equal(prog_posted(p.w[0], 1, epoch, true), 1);
		assert_int_equal(prog_put(p.w[0], &o, &t, 0, &seq), 0);
		assert_int_equal(prog_complete(p.w[0], &one, 1, NULL), 0);
		assert_int_equal(prog_completed(p.w[1], 0, epoch, true), 1);
		assert_int_equal(*(int64_t *)p.mem[1], epoch);
	}
	pair_close(&p, PROG_WIN_ALLOCATE);
}

/* The ways that the operations of this variant took are counted, and doctor names them. */
static void test_fallbacks(void **state)
{
	const struct variant *v = *state;
	bool cma = true;
	const char *said;

	for (const char *const *s = v->sets; *s; s++)
		cma = cma && strcmp(*s, "cma=no");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(!!node_stat(&node[i], "origin_cma"), cma);
		assert_int_equal(!!node_stat(&node[i], "origin_helper"), !cma);
	}
	/* most goes from rank 0 to rank 1 */
	assert_int_equal(!!node_stat(&node[1], "target_cma"), cma);
	assert_int_equal(!!node_stat(&node[1], "target_helper_fine"), cma);
	assert_int_equal(!!node_stat(&node[1], "target_helper"), !cma);
	assert_int_equal(node_stat(&node[1], "copied"), 0);
	assert_int_equal(prog_session_note(sess[1], "no\nreason"), 0);
	assert_int_equal(prog_session_note(sess[1], "no\nreason"), 0);
	said = node_progctl(&node[1], "doctor");
	if (!strstr(said, "left to the MPI library: no?reason (2 times)") ||
	    !strstr(said, cma ? "accessed by CMA" : "accessed by the process's helper thread"))
		fail_msg("%s", said);
}

static struct variant variants[] = {
	{ "loop=auto", { "loop=auto" } },
	{ "loop=epoll", { "loop=epoll" } },
	{ "workers=3", { "workers=3" } },
	{ "cma=no", { "cma=no" } },		/* helper threads instead */
	{ "cma=no workers=2", { "cma=no", "workers=2", "loop=epoll" } },
};

static const struct CMUnitTest each[] = {
	cmocka_unit_test(start_daemons),
	cmocka_unit_test(test_put_get_allocate),
	cmocka_unit_test(test_put_get_create),
	cmocka_unit_test(test_put_get_dynamic),
	cmocka_unit_test(test_strided),
	cmocka_unit_test(test_atomics),
	cmocka_unit_test(test_errors),
	cmocka_unit_test(test_lock_pipeline),
	cmocka_unit_test(test_fence),
	cmocka_unit_test(test_pscw),
	cmocka_unit_test(test_fallbacks),
	cmocka_unit_test(end_daemons),
};

enum { NVARIANTS = sizeof(variants) / sizeof(variants[0]), NTESTS = sizeof(each) / sizeof(each[0]) };
static struct CMUnitTest tests[NVARIANTS * NTESTS];
static char names[NVARIANTS * NTESTS][64];

static int begin(int argc, char **argv)
{
	/* one group, and so one plan: the output is a single TAP stream */
	for (int v = 0, n = 0; v < NVARIANTS; v++) {
		for (int t = 0; t < NTESTS; t++, n++) {
			tests[n] = each[t];
			snprintf(names[n], sizeof(names[n]), "%s: %s", variants[v].name, each[t].name);
			tests[n].name = names[n];
			tests[n].initial_state = &variants[v];
			if (each[t].test_func != start_daemons && each[t].test_func != end_daemons)
				tests[n].setup_func = have_daemons;
		}
	}
	return 0;
}

KIT_SUITE(tests, .begin = begin);

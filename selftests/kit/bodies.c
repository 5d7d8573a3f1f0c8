// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <libprogbase/apply.h>
#include <libprogbase/dtype.h>
#include <wire/optype.h>

#include "bodies.h"

enum prog_win_kind body_kind = PROG_WIN_ALLOCATE;
uint32_t body_ops = KIT_MANY(160);
bool body_unordered;

struct prog_win *body_window(struct prog_session *s, uint64_t key, size_t size, char **mem,
				    uint64_t *disp)
{
	struct prog_win *w;
	uint32_t i;

	*mem = NULL;
	if (body_kind != PROG_WIN_ALLOCATE)
		*mem = calloc(1, size);
	w = rank_window(s, body_kind, key, *mem, body_kind == PROG_WIN_DYNAMIC ? 0 : size);
	if (body_kind == PROG_WIN_ALLOCATE)
		*mem = prog_win_base(w);
	if (body_kind == PROG_WIN_DYNAMIC)
		CHECK_INT(prog_win_attach(w, *mem, size), 0);
	rs->value[my_rank] = body_kind == PROG_WIN_DYNAMIC ? (uintptr_t)*mem : 0;
	rank_barrier();
	for (i = 0; i < my_ranks; i++)
		disp[i] = rs->value[i];
	rank_barrier();
	return w;
}

void body_leave(struct prog_session *s, char *mem)
{
	prog_session_close(s);
	if (body_kind != PROG_WIN_ALLOCATE)
		free(mem);
}

void body_end(struct prog_session *s, struct prog_win *w, char *mem)
{
	rank_barrier();
	prog_win_close(w);
	rank_barrier();
	body_leave(s, mem);
}

void body_end_without_one(struct prog_session *s, struct prog_win *w, char *mem)
{
	__atomic_fetch_add(&rs->value[63], 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&rs->value[63], __ATOMIC_RELAXED) < my_ranks - 1)
		sched_yield();
	prog_win_close(w);
	body_leave(s, mem);
}

/* ---- random operations against a model ----------------------------------------------------------- */

struct pending {
	char *buf, *want;
	uint64_t size;
	uint32_t target;
	uint64_t seq;
};

static struct dtype *random_vector(unsigned int *seed, unsigned int basic, uint64_t esize,
				   uint64_t room, uint64_t *items)
{
	struct dtype *b, *v;
	int64_t n = 1 + rand_r(seed) % 40, len = 1 + rand_r(seed) % 6, gap = rand_r(seed) % 5;

	/* the whole must fit */
	while ((uint64_t)(n * (len + gap)) * esize > room)
		n = n / 2 + !(n / 2), len = n == 1 ? 1 : len, gap = n == 1 ? 0 : gap;
	CHECK_INT(prog_dtype_new_basic(basic, &b), 0);
	CHECK_INT(prog_dtype_new_hvector(n, len, (len + gap) * (int64_t)esize, b, &v), 0);
	prog_dtype_put(b);
	*items = 1;
	while ((uint64_t)prog_dtype_extent(v) * (*items * 2) <= room && *items < 64)
		*items *= 2;
	return v;
}

static void pending_check(struct prog_win *w, struct pending *p)
{
	if (!p->buf)
		return;
	if (p->seq) {
		CHECK_INT(prog_flush_local(w, p->target), 0);
		CHECK_INT(prog_test(w, p->target, p->seq, false), 1);
	}
	if (p->want && memcmp(p->buf, p->want, p->size)) {
		uint64_t i;

		for (i = 0; p->buf[i] == p->want[i]; i++)
			;
		fprintf(stderr, "rank %u: byte %llu of %llu from rank %u is %02x, not %02x\n", my_rank,
			(unsigned long long)i, (unsigned long long)p->size, p->target,
			(unsigned char)p->buf[i], (unsigned char)p->want[i]);
		_exit(1);
	}
	free(p->buf);
	free(p->want);
	memset(p, 0, sizeof(*p));
}

#define PENDING	8

static void body_random_once(struct prog_session *s, bool regions)
{
	unsigned int seed = rand_r(&(unsigned int){ my_rank + 1 }) ^ (unsigned int)rs->value[63];
	uint64_t disp[FAKE_RANKS];
	struct prog_win *w;
	char *mem, *model[FAKE_RANKS], *region = NULL;
	uint32_t stripe_words[4] = { 0 };
	struct pending pend[PENDING] = { 0 };
	uint32_t i, k;

	w = body_window(s, 7, (size_t)SLICE * my_ranks, &mem, disp);
	for (i = 0; i < my_ranks; i++)
		model[i] = calloc(1, SLICE);
	if (regions)
		CHECK_INT(prog_mem_alloc(s, SLICE * PENDING, (void **)&region), 0);
	for (k = 0; k < body_ops; k++) {
		uint32_t t = (uint32_t)rand_r(&seed) % my_ranks, what = (uint32_t)rand_r(&seed) % 8;
		/* apart from what may be under way */
		uint64_t span = body_unordered ? SLICE / PENDING : SLICE, start = body_unordered ? k % PENDING * span : 0;
		uint64_t off = start + 8 * ((uint64_t)rand_r(&seed) % (span / 8)), room = start + span - off, total;
		struct apply_win aw = { .mem = mem_direct(model[t]), .hi = SLICE, .stripe_mask = 3,
					.stripes = stripe_words, .owner = 1, .timeout_ns = -1 };
		struct pending *p = &pend[k % PENDING];
		struct dtype *tdt = NULL, *odt = NULL;
		struct prog_buf o = { 0 }, res = { 0 };
		struct prog_dst d = { .rank = t, .disp = disp[t] + my_rank * (uint64_t)SLICE + off };
		bool acc = what >= 4 && what < 7, vec = rand_r(&seed) & 1;
		char *packed, *old;
		uint64_t j;

		if (body_unordered && !(k % PENDING))
			CHECK_INT(prog_flush_all(w), 0);
		pending_check(w, p);
		if (what == 7) {
			int64_t value = rand_r(&seed) % 3, compare = rand_r(&seed) % 3, want, got;

			if (room < 8)
				continue;
			CHECK_INT(apply_cas(&aw, PROG_TYPE_I64, (int64_t)off, &compare, &value, &want), 0);
			CHECK_INT(prog_compare_and_swap(w, &value, &compare, &got, t, d.disp,
							PROG_TYPE_I64, 0), 0);
			CHECK_INT(prog_flush_local(w, t), 0);
			CHECK_INT(got, want);
			continue;
		}
		/* the target */
		if (vec) {
			tdt = random_vector(&seed, acc ? PROG_TYPE_I64 : PROG_TYPE_BYTE, acc ? 8 : 1, room,
					    &d.count);
			d.type = tdt;
			CHECK_INT(prog_dtype_total(tdt, d.count, &total), 0);
		} else {
			uint64_t max = rand_r(&seed) % 8 ? 512 : room;

			total = 1 + (uint64_t)rand_r(&seed) % (max < room ? max : room);
			if (acc)
				total = total < 8 ? 8 : total & ~7ull;
			d.count = total;
		}
		/* the origin: packed reference bytes, and the buffer that is passed */
		packed = malloc(total);
		old = malloc(total);
		for (j = 0; j < total; j++)
			packed[j] = (char)rand_r(&seed);
		p->target = t;
		if (rand_r(&seed) % 3 == 0 && total % 8 == 0 && total >= 16) {
			struct dtype *b;

			/* every second 8 bytes */
			CHECK_INT(prog_dtype_new_basic(PROG_TYPE_I64, &b), 0);
			CHECK_INT(prog_dtype_new_hvector((int64_t)(total / 8), 1, 16, b, &odt), 0);
			prog_dtype_put(b);
			p->size = 2 * total;
		} else {
			p->size = total;
		}
		p->buf = region && p->size <= SLICE ? NULL : calloc(1, p->size);
		o.addr = p->buf ? p->buf : region + (k % PENDING) * (uint64_t)SLICE;
		if (!p->buf)
			memset(o.addr, 0, p->size);
		o.type = odt;
		o.count = odt ? 1 : total;
		if (what < 2 || acc) {
			if (odt)
				CHECK_INT(prog_dtype_unpack(o.addr, odt, 1, 0, packed, total), 0);
			else
				memcpy(o.addr, packed, total);
		}
		switch (what) {
		case 0:
		case 1:
			CHECK_INT(apply_put(&aw, (int64_t)off, tdt, d.count, 0, packed, total), 0);
			CHECK_INT(prog_put(w, &o, &d, 0, &p->seq), 0);
			break;
		case 2:
		case 3:
			CHECK_INT(apply_get(&aw, (int64_t)off, tdt, d.count, 0, packed, total), 0);
			p->want = calloc(1, p->size);
			if (odt)
				CHECK_INT(prog_dtype_unpack(p->want, odt, 1, 0, packed, total), 0);
			else
				memcpy(p->want, packed, total);
			CHECK_INT(prog_get(w, &o, &d, 0, &p->seq), 0);
			break;
		case 4:
			CHECK_INT(apply_acc(&aw, PROG_OP_SUM, PROG_TYPE_I64, (int64_t)off, tdt,
					    tdt ? d.count : total / 8, 0, packed, total, NULL, NULL), 0);
			CHECK_INT(prog_accumulate(w, &o, NULL, &d, PROG_OP_SUM, PROG_TYPE_I64, 0,
						  &p->seq), 0);
			break;
		default: {
			uint8_t op = what == 5 ? PROG_OP_BXOR : PROG_OP_NO_OP;
			struct prog_buf none = { 0 };
			char *into = malloc(total);
			uint64_t seq;

			CHECK_INT(apply_acc(&aw, op, PROG_TYPE_I64, (int64_t)off, tdt,
					    tdt ? d.count : total / 8, 0, packed, total, old, NULL), 0);
			res = (struct prog_buf){ .addr = into, .count = total };
			CHECK_INT(prog_accumulate(w, what == 5 ? &o : &none, &res, &d, op, PROG_TYPE_I64,
						  0, &seq), 0);
			CHECK_INT(prog_flush_local(w, t), 0);
			CHECK(!memcmp(into, old, total));
			free(into);
			break;
		}
		}
		if (!p->buf) {
			/* in the region: checked at once, its place is used again */
			p->buf = malloc(p->size);
			CHECK_INT(prog_flush_local(w, t), 0);
			memcpy(p->buf, o.addr, p->size);
		}
		if (rand_r(&seed) % 10 == 0)
			CHECK_INT(prog_flush(w, t), 0);
		prog_dtype_put(odt);
		prog_dtype_put(tdt);
		free(packed);
		free(old);
	}
	for (k = 0; k < PENDING; k++)
		pending_check(w, &pend[k]);
	CHECK_INT(prog_flush_all(w), 0);
	for (i = 0; i < my_ranks; i++) {
		char *all = malloc(SLICE);
		struct prog_buf o = { .addr = all, .count = SLICE };
		struct prog_dst d = { .rank = i, .disp = disp[i] + my_rank * (uint64_t)SLICE,
				      .count = SLICE };

		CHECK_INT(prog_get(w, &o, &d, 0, NULL), 0);
		CHECK_INT(prog_flush(w, i), 0);
		CHECK(!memcmp(all, model[i], SLICE));
		CHECK_INT(prog_win_error(w, i), 0);
		free(all);
		free(model[i]);
	}
	rank_barrier();
	prog_win_close(w);
	if (region)
		CHECK_INT(prog_mem_free(s, region), 0);
	if (body_kind != PROG_WIN_ALLOCATE)
		free(mem);
	rank_barrier();
}

void body_random(void)
{
	struct prog_session *s = rank_session(NULL);

	if (!my_rank)
		rs->value[63] = (uint64_t)getpid();
	rank_barrier();
	if (!my_rank) {
		fprintf(stdout, "# seed %llu\n", (unsigned long long)rs->value[63]);
		fflush(stdout);
	}
	body_random_once(s, false);
	body_random_once(s, true);
	prog_session_close(s);
}

/* ---- atomicity: every value of a shared counter is handed out once --------------------------------- */

void body_counter(void)
{
	struct prog_session *s = rank_session(NULL);
	uint64_t disp[FAKE_RANKS];
	uint32_t rounds = body_ops * 2, i, target;
	struct prog_win *w;
	char *mem;

	w = body_window(s, 8, 4096, &mem, disp);
	for (target = 0; target < my_ranks; target++) {
		int64_t one = 1, got, last = -1;

		memset(rs->data, 0, rounds * my_ranks);
		rank_barrier();
		for (i = 0; i < rounds; i++) {
			struct prog_buf o = { .addr = &one, .count = 8 };
			struct prog_buf r = { .addr = &got, .count = 8 };
			struct prog_dst d = { .rank = target, .disp = disp[target] + 64, .count = 8 };

			CHECK_INT(prog_accumulate(w, &o, &r, &d, PROG_OP_SUM, PROG_TYPE_I64, 0, NULL), 0);
			CHECK_INT(prog_flush(w, target), 0);
			CHECK(got > last && got < (int64_t)rounds * my_ranks);
			last = got;
			CHECK_INT(__atomic_exchange_n(&rs->data[got], 1, __ATOMIC_RELAXED), 0);
		}
		rank_barrier();
	}
	body_end(s, w, mem);
}

/* ---- locks: read, add, write back, under exclusive locks; sharers see no half-done pair -------------- */

/* Locks on all ranks, given back together: what was put under them is there, and others can lock. */
static void lock_all(struct prog_win *w, const uint64_t *disp)
{
	uint32_t ranks[FAKE_RANKS + 1], i, t;
	int errs[FAKE_RANKS + 1];

	for (t = 0; t < my_ranks; t++)
		ranks[t] = (my_rank + t) % my_ranks;
	for (i = 0; i < body_ops / 4; i++) {
		uint64_t mine = i * my_ranks + my_rank;
		struct prog_buf o = { .addr = &mine, .count = 8 };

		for (t = 0; t < my_ranks; t++) {
			struct prog_dst d = { .rank = t, .disp = disp[t] + 256 + 8 * my_rank, .count = 8 };

			/* in rank order if exclusive, or ranks wait for each other in a circle */
			CHECK_INT(prog_lock(w, t, i % 4 ? 0 : PROG_LOCKF_EXCL | PROG_LOCKF_WAIT), 0);
			CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
		}
		if (i % 5 == 1) {
			/* one that is not held, and one twice: errors for these, the others are released */
			CHECK_INT(prog_unlock(w, ranks[0]), 0);
			ranks[my_ranks] = ranks[my_ranks - 1];
			CHECK_INT(prog_unlock_all(w, ranks, my_ranks + 1, errs), -EPERM);
			CHECK_INT(errs[0], -EPERM);
			CHECK_INT(errs[my_ranks], -EPERM);
			for (t = 1; t < my_ranks; t++)
				CHECK_INT(errs[t], 0);
		} else {
			CHECK_INT(prog_unlock_all(w, ranks, my_ranks, errs), 0);
		}
		for (t = 0; t < my_ranks; t++) {
			struct prog_dst d = { .rank = t, .disp = disp[t] + 256 + 8 * my_rank, .count = 8 };
			uint64_t there = 0;

			o.addr = &there;
			CHECK_INT(prog_get(w, &o, &d, 0, NULL), 0);
			CHECK_INT(prog_flush(w, t), 0);
			CHECK_INT(there, mine);
			CHECK_INT(prog_win_error(w, t), 0);
		}
	}
	ranks[0] = my_ranks;
	CHECK_INT(prog_unlock_all(w, ranks, 1, errs), -EINVAL);
	CHECK_INT(prog_unlock_all(w, NULL, 0, NULL), 0);
}

void body_locks(void)
{
	struct prog_session *s = rank_session(NULL);
	uint64_t disp[FAKE_RANKS], pair[2], sum = 0;
	uint32_t i, t;
	struct prog_win *w;
	char *mem;

	w = body_window(s, 9, 4096, &mem, disp);
	for (i = 0; i < body_ops; i++) {
		bool excl = (i + my_rank) % 3;
		struct prog_buf o = { .addr = pair, .count = 16 };
		struct prog_dst d = { .count = 16 };

		t = i % my_ranks;
		d.rank = t;
		d.disp = disp[t] + 128;
		CHECK_INT(prog_lock(w, t, (excl ? PROG_LOCKF_EXCL : 0) |
				    (i % 7 == 0 ? PROG_LOCKF_WAIT : 0)), 0);
		CHECK_INT(prog_lock(w, t, 0), -EALREADY);
		CHECK_INT(prog_get(w, &o, &d, 0, NULL), 0);
		CHECK_INT(prog_flush_local(w, t), 0);
		CHECK_INT(prog_lock_granted(w, t), 1);
		CHECK_INT(pair[0], pair[1]);
		if (excl) {
			struct prog_buf half = { .addr = &pair[0], .count = 8 };
			struct prog_dst first = { .rank = t, .disp = d.disp, .count = 8 };

			pair[0]++;
			pair[1]++;
			sum++;
			CHECK_INT(prog_put(w, &half, &first, 0, NULL), 0);
			half.addr = &pair[1];
			first.disp += 8;
			CHECK_INT(prog_put(w, &half, &first, 0, NULL), 0);
		}
		CHECK_INT(prog_unlock(w, t), 0);
		CHECK_INT(prog_unlock(w, t), -EPERM);
	}
	__atomic_fetch_add(&rs->value[40], sum, __ATOMIC_RELAXED);
	rank_barrier();
	prog_win_sync(w);
	for (i = 0; i < my_ranks; i++)
		if (i == my_rank)
			__atomic_fetch_add(&rs->value[41], *(uint64_t *)(void *)(mem + 128),
					   __ATOMIC_RELAXED);
	rank_barrier();
	CHECK_INT(rs->value[41], rs->value[40]);
	rank_barrier();
	lock_all(w, disp);
	body_end(s, w, mem);
}

void body_killed_holder(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 70, NULL, 4096);

	if (my_rank == my_ranks - 1) {
		CHECK_INT(prog_lock(w, 0, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT), 0);
		rank_barrier();
		/* its end must not count as a failure: die by closing everything at once */
		_exit(0);
	}
	rank_barrier();
	CHECK_INT(prog_lock(w, 0, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT), 0);
	CHECK_INT(prog_unlock(w, 0), 0);
	/* the window stays until all survivors had the lock */
	body_kind = PROG_WIN_ALLOCATE;
	body_end_without_one(s, w, NULL);
}

/* ---- fence and post-start-complete-wait ---------------------------------------------------------------- */

void body_fence(void)
{
	struct prog_session *s = rank_session(NULL);
	uint64_t disp[FAKE_RANKS], round;
	uint32_t i, counts[FAKE_RANKS];
	uint32_t *table = (uint32_t *)(void *)rs->data;
	struct prog_win *w;
	char *mem;

	w = body_window(s, 10, 4096, &mem, disp);
	for (round = 1; round <= body_ops / 4; round++) {
		uint64_t expected = 0, value = round * 100 + my_rank, *mine = (uint64_t *)(void *)mem;

		for (i = 0; i < my_ranks; i++) {
			struct prog_buf o = { .addr = &value, .count = 8 };
			struct prog_dst d = { .rank = i, .disp = disp[i] + 8 * my_rank, .count = 8 };

			CHECK_INT(prog_put(w, &o, &d, PROG_OPF_FENCE, NULL), 0);
		}
		prog_fence_issued(w, counts);
		for (i = 0; i < my_ranks; i++)
			table[my_rank * FAKE_RANKS + i] = counts[i];
		rank_barrier();
		for (i = 0; i < my_ranks; i++)
			expected += table[i * FAKE_RANKS + my_rank];
		rank_barrier();
		CHECK_INT(prog_fence_wait(w, expected), 0);
		for (i = 0; i < my_ranks; i++) {
			/* a fast rank may be one round ahead, never behind */
			uint64_t v = __atomic_load_n(&mine[i], __ATOMIC_ACQUIRE);

			CHECK(v == round * 100 + i || v == (round + 1) * 100 + i);
		}
	}
	rank_barrier();
	/* a ring of neighbours: exposed to the left, accessing the right */
	for (round = 1; round <= body_ops / 4; round++) {
		uint32_t left = (my_rank + my_ranks - 1) % my_ranks, right = (my_rank + 1) % my_ranks;
		uint64_t value = round;
		struct prog_buf o = { .addr = &value, .count = 8 };
		struct prog_dst d = { .rank = right, .disp = disp[right] + 1024, .count = 8 };

		CHECK_INT(prog_post(w, &left, 1, NULL), 0);
		CHECK_INT(prog_posted(w, right, (uint32_t)round, true), 1);
		CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
		CHECK_INT(prog_complete(w, &right, 1, NULL), 0);
		CHECK_INT(prog_completed(w, left, (uint32_t)round, true), 1);
		CHECK_INT(*(uint64_t *)(void *)(mem + 1024), round);
	}
	CHECK_INT(prog_posted(w, 0, 1u << 30, false), 0);
	body_end(s, w, mem);
}

/* ---- wrong calls: clear errors, and the window stays usable ---------------------------------------------- */

/* Each is detached by its own address, as often as it was attached; many of them, amid a range and elsewhere. */
static void empty_ranges(struct prog_win *w, char *mem)
{
	enum { MANY = 100 };
	int i;

	CHECK_INT(prog_win_attach(w, mem + 8, 0), 0);
	CHECK_INT(prog_win_detach(w, mem + 16), -ENOENT);
	CHECK_INT(prog_win_detach(w, mem + 8), 0);
	CHECK_INT(prog_win_detach(w, mem + 8), -ENOENT);
	for (i = 0; i < MANY; i++)
		CHECK_INT(prog_win_attach(w, mem + i / 2 * 64 + 1, 0), 0);
	for (i = MANY - 1; i >= 0; i -= 2)
		CHECK_INT(prog_win_detach(w, mem + i / 2 * 64 + 1), 0);
	for (i = 0; i < MANY; i += 2)
		CHECK_INT(prog_win_detach(w, mem + i / 2 * 64 + 1), 0);
	for (i = 0; i < MANY; i++)
		CHECK_INT(prog_win_detach(w, mem + i / 2 * 64 + 1), -ENOENT);
	/* what is attached when the window ends goes with it */
	CHECK_INT(prog_win_attach(w, mem + 24, 0), 0);
}

void body_errors(void)
{
	struct prog_session *s = rank_session(NULL);
	uint64_t disp[FAKE_RANKS], v = 5, back = 0;
	uint32_t t = (my_rank + 1) % my_ranks;
	struct prog_buf o = { .addr = &v, .count = 8 }, r = { .addr = &back, .count = 8 };
	struct prog_dst d = { .rank = t, .count = 8 };
	struct prog_win *w;
	struct dtype *dt;
	char *mem;
	int err;

	w = body_window(s, 11, 4096, &mem, disp);
	CHECK_INT(prog_win_connect(w, rs->ep, NULL), -EALREADY);
	d.rank = my_ranks;
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), -EINVAL);
	CHECK_INT(prog_lock(w, my_ranks, 0), -EINVAL);
	CHECK_INT(prog_flush(w, my_ranks), -EINVAL);
	d.rank = t;
	d.disp = disp[t] + 4096 - 7;
	err = prog_put(w, &o, &d, 0, NULL);
	if (!err) {
		/* a dynamic window elsewhere: known when it was tried */
		CHECK_INT(body_kind, PROG_WIN_DYNAMIC);
		CHECK_INT(prog_flush(w, t), 0);
		err = prog_win_error(w, t);
		CHECK_INT(prog_win_error(w, t), 0);
	}
	CHECK_INT(err, -ERANGE);
	if (body_kind != PROG_WIN_DYNAMIC) {
		d.disp = UINT64_MAX - 3;
		CHECK_INT(prog_put(w, &o, &d, 0, NULL), -ERANGE);
		CHECK_INT(prog_accumulate(w, &o, NULL, &d, PROG_OP_SUM, PROG_TYPE_I64, 0, NULL), -ERANGE);
		CHECK_INT(prog_compare_and_swap(w, &v, &v, &back, t, 4090, PROG_TYPE_I64, 0), -ERANGE);
	}
	d.disp = disp[t];
	/* there is not room for all */
	d.count = 4;
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), -EINVAL);
	d.count = 16;
	CHECK_INT(prog_get(w, &o, &d, 0, NULL), -EINVAL);
	d.count = 7;
	o.count = 7;
	CHECK_INT(prog_accumulate(w, &o, NULL, &d, PROG_OP_SUM, PROG_TYPE_I64, 0, NULL), -EINVAL);
	d.count = o.count = 8;
	CHECK_INT(prog_accumulate(w, &o, NULL, &d, PROG_OP_BAND, PROG_TYPE_F64, 0, NULL), -EINVAL);
	CHECK_INT(prog_accumulate(w, &o, NULL, &d, 99, PROG_TYPE_F64, 0, NULL), -EINVAL);
	CHECK_INT(prog_accumulate(w, &o, NULL, &d, PROG_OP_SUM, 200, 0, NULL), -EINVAL);
	CHECK_INT(prog_compare_and_swap(w, &v, &v, &back, t, disp[t], PROG_TYPE_DOUBLE_INT, 0), -EINVAL);
	CHECK_INT(prog_dtype_new_basic(PROG_TYPE_I32, &dt), 0);
	d.type = dt;
	d.count = 2;
	CHECK_INT(prog_accumulate(w, &o, NULL, &d, PROG_OP_SUM, PROG_TYPE_I64, 0, NULL), -EINVAL);
	prog_dtype_put(dt);
	d.type = NULL;
	d.count = 0;
	o.count = 0;
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	d.count = o.count = 8;
	if (body_kind == PROG_WIN_DYNAMIC) {
		CHECK_INT(prog_win_attach(w, mem + 8, 8), -EEXIST);
		CHECK_INT(prog_win_detach(w, mem + 8), -ENOENT);
		empty_ranges(w, mem);
	} else {
		CHECK_INT(prog_win_attach(w, mem, 8), -EINVAL);
	}
	CHECK_INT(prog_unlock(w, t), -EPERM);
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	CHECK_INT(prog_flush(w, t), 0);
	CHECK_INT(prog_get(w, &r, &d, 0, NULL), 0);
	CHECK_INT(prog_flush(w, t), 0);
	CHECK_INT(back, 5);
	CHECK_INT(prog_win_error(w, t), 0);
	body_end(s, w, mem);
}

/* ---- types: pairs with gaps, programs too long to send ------------------------------------------------------ */

void body_types(void)
{
	enum { N = 17000 };
	struct prog_session *s = rank_session(NULL);
	struct pair { double v; int i; } *mine, *origin = calloc(N, sizeof(*origin));
	uint64_t disp[FAKE_RANKS];
	uint32_t t = (my_rank + 1) % my_ranks, i;
	unsigned int seed = 1;		/* the same on all ranks: the target checks by it */
	struct dtype *pair, *many;
	int64_t *disps = calloc(N / 2, sizeof(*disps));
	struct prog_win *w;
	char *mem;

	CHECK(disps && origin);
	w = body_window(s, 12, N * sizeof(*mine), &mem, disp);
	mine = (struct pair *)(void *)mem;
	for (i = 0; i < N; i++) {
		mine[i] = (struct pair){ 10, 7 };
		/* odd ones win; equal values take the lower index */
		origin[i] = (struct pair){ i % 2 ? 20 : 10, (int)(i % 4) + (int)(i % 2) * 100 };
	}
	rank_barrier();
	CHECK_INT(prog_dtype_new_basic(PROG_TYPE_DOUBLE_INT, &pair), 0);
	{
		struct prog_buf o = { .addr = origin, .type = pair, .count = N / 2 };
		struct prog_dst d = { .rank = t, .disp = disp[t], .type = pair, .count = N / 2 };

		CHECK_INT(prog_accumulate(w, &o, NULL, &d, PROG_OP_MAXLOC, PROG_TYPE_DOUBLE_INT, 0,
					  NULL), 0);
	}
	/* a shuffle: the program has one operation per element */
	for (i = 0; i < N / 2; i++) {
		uint32_t j = (uint32_t)rand_r(&seed) % (i + 1);

		disps[i] = disps[j];
		disps[j] = (int64_t)((N / 2 + i) * sizeof(struct pair));
	}
	CHECK_INT(prog_dtype_new_hindexed_block(N / 2, 1, disps, pair, &many), 0);
	CHECK(prog_dtype_encoded_size(many) > PROG_DTYPE_PROGRAM_MAX);
	{
		struct prog_buf o = { .addr = origin, .type = pair, .count = N / 2 };
		struct prog_dst d = { .rank = t, .disp = disp[t], .type = many, .count = 1 };

		CHECK_INT(prog_accumulate(w, &o, NULL, &d, PROG_OP_MAXLOC, PROG_TYPE_DOUBLE_INT, 0,
					  NULL), 0);
	}
	CHECK_INT(prog_flush(w, t), 0);
	CHECK_INT(prog_win_error(w, t), 0);
	rank_barrier();
	prog_win_sync(w);
	for (i = 0; i < N / 2; i++) {
		struct pair *p[2] = { &mine[i], &mine[disps[i] / (int64_t)sizeof(struct pair)] };
		int k;

		for (k = 0; k < 2; k++) {
			CHECK(p[k]->v == (i % 2 ? 20 : 10));
			CHECK_INT(p[k]->i, (int)(i % 4) + (i % 2 ? 100 : 0));
		}
	}
	prog_dtype_put(pair);
	prog_dtype_put(many);
	free(disps);
	free(origin);
	body_end(s, w, mem);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Accumulates are atomic for each element against all others on the location, from any origin
 * and by any call: all ranks work on the same elements of all windows at once. Results are
 * exact, because the operations commute and nothing rounds. Owners take part through the same
 * calls, so local and remote origins mix.
 */
#include "acctypes.h"

static struct twin w;
static int rounds;		/* of hammer, so that repetitions differ */

static const struct acc_type *find(const char *name)
{
	const struct acc_type *types;
	int n = acc_types(&types);

	for (int i = 0; i < n; i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}

static void clear(int byte)
{
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, w.win));
	memset(w.mem, byte, w.size);
	M(MPI_Win_unlock(t_rank, w.win));
	t_barrier();
}

#define UPDATES 16
#define LONGEST (64 * 32)

/* one update by a randomly chosen call; the buffers live until the epoch ends */
static void update(struct t_rng *r, const struct acc_type *t, enum acc_op op, const void *v, int n,
		   void *old, int target, MPI_Aint at)
{
	MPI_Request q;

	switch (t_rndn(r, n == 1 ? 4 : 3)) {
	case 0:
		M(MPI_Accumulate(v, n, t->type, target, at, n, t->type, acc_op(op), w.win));
		break;
	case 1:
		M(MPI_Get_accumulate(v, n, t->type, old, n, t->type, target, at, n, t->type,
				     acc_op(op), w.win));
		break;
	case 2:
		M(MPI_Raccumulate(v, n, t->type, target, at, n, t->type, acc_op(op), w.win, &q));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		break;
	default:
		M(MPI_Fetch_and_op(v, old, t->type, target, at, acc_op(op), w.win));
		break;
	}
	if (t_rndn(r, 4) == 0)
		M(MPI_Win_flush(target, w.win));
}

/* every rank adds value v(origin, i) at random places; all ranks can compute the sums */
static void hammer(const char *name, enum acc_op op, bool arrays)
{
	const struct acc_type *t = find(name);
	static char values[UPDATES][LONGEST], old[UPDATES][LONGEST];
	int elems = arrays ? 64 : 2, n = UPDATES;
	char *want;

	if (!t || !acc_permitted(t, op))
		return;
	rounds++;
	clear(op == O_BAND ? 0xff : 0);
	want = calloc(elems, t->size);
	memset(want, op == O_BAND ? 0xff : 0, elems * t->size);
	M(MPI_Win_lock_all(0, w.win));
	for (int o = 0; o < t_size; o++) {
		struct t_rng r = t_rng_common(), how = t_rng_own();

		r.s += 1000003ull * o + op + 7777ull * rounds;
		for (int i = 0; i < n; i++) {
			int target = t_rndn(&r, t_size);
			int len = arrays ? 1 + t_rndn(&r, elems) : 1;
			int at = t_rndn(&r, elems - len + 1);
			char mine[LONGEST], *v = o == t_rank ? values[i] : mine;

			for (int k = 0; k < len; k++)
				acc_value(t, op, &r, v + k * t->size);
			if (t->class == A_PAIR)
				for (int k = 0; k < len; k++)
					v[k * t->size + t->off2] = o;
			if (o == t_rank)
				update(&how, t, op, v, len, old[i], target,
				       (MPI_Aint)at * t->size);
			if (target == t_rank)
				for (int k = 0; k < len; k++)
					acc_apply(t, op, want + (at + k) * t->size,
						  v + k * t->size);
		}
	}
	M(MPI_Win_unlock_all(w.win));
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w.win));
	for (int k = 0; k < elems; k++)
		if (!T_OK(acc_equal(t, w.mem + k * t->size, want + k * t->size),
			  "%s %s element %d of %d, first byte 0x%02x, expected 0x%02x", name,
			  acc_op_names[op], k, elems, w.mem[k * t->size],
			  (unsigned char)want[k * t->size]))
			break;
	M(MPI_Win_unlock(t_rank, w.win));
	free(want);
	t_barrier();
}

static const char *const list[] = {
	"MPI_UNSIGNED_CHAR", "MPI_UNSIGNED_SHORT", "MPI_INT", "MPI_UNSIGNED_LONG", "MPI_FLOAT",
	"MPI_DOUBLE", "MPI_LONG_DOUBLE", "MPI_C_FLOAT_COMPLEX", "MPI_C_DOUBLE_COMPLEX",
	"MPI_C_LONG_DOUBLE_COMPLEX", "MPI_BYTE", "MPI_LOGICAL", "MPI_C_BOOL", "MPI_DOUBLE_INT",
	"MPI_2INT", "MPI_SHORT_INT", "MPI_LONG_DOUBLE_INT",
};

/* products of many factors: unsigned integers wrap, all others would overflow */
static bool exact(const struct acc_type *t, enum acc_op op)
{
	return op != O_PROD || (t->class == A_CINT && t->kind % 2);
}

/* every operation on one type: on two elements, then on overlapping arrays */
static void all_ops(const char *name)
{
	const struct acc_type *t = find(name);

	for (int round = 0; round < t_iters(1); round++)
		for (int op = 0; t && op <= O_MAXLOC; op++)
			if (exact(t, op)) {
				hammer(name, op, false);
				hammer(name, op, true);
			}
}

/* tickets are unique and none is missing, at two targets at once */
static void tickets(const char *name)
{
	const struct acc_type *t = find(name);
	int n = t_iters(100), total = n * t_size;
	long long *mine = malloc(n * sizeof(*mine)), *all = malloc(total * sizeof(*all));
	char one[32] = { 0 }, old[32], *seen = calloc(total, 1);

	clear(0);
	if (t->kind == K_F64)
		*(double *)one = 1;
	else
		one[0] = 1;
	M(MPI_Win_lock_all(0, w.win));
	for (int target = 0; target < t_size; target += t_size > 1 ? t_size - 1 : 1) {
		for (int i = 0; i < n; i++) {
			M(MPI_Fetch_and_op(one, old, t->type, target, 64, MPI_SUM, w.win));
			M(MPI_Win_flush(target, w.win));
			mine[i] = 0;
			if (t->kind == K_F64)
				mine[i] = *(double *)old;
			else
				memcpy(&mine[i], old, t->size);
			if (i)
				T_OK(mine[i] > mine[i - 1], "%lld after %lld", mine[i], mine[i - 1]);
		}
		M(MPI_Allgather(mine, n, MPI_LONG_LONG, all, n, MPI_LONG_LONG, MPI_COMM_WORLD));
		memset(seen, 0, total);
		for (int i = 0; i < total; i++)
			if (T_OK(all[i] >= 0 && all[i] < total, "ticket %lld", all[i]))
				T_OK(!seen[all[i]]++, "ticket %lld twice", all[i]);
	}
	M(MPI_Win_unlock_all(w.win));
	free(mine);
	free(all);
	free(seen);
}

static void tickets_int(void)
{
	tickets("MPI_INT");
}

static void tickets_long(void)
{
	tickets("MPI_LONG");
}

static void tickets_short(void)
{
	tickets("MPI_UNSIGNED_SHORT");
}

static void tickets_double(void)
{
	tickets("MPI_DOUBLE");
}

/* compare-and-swap as the only lock around a plain read-modify-write */
static void spin_lock(void)
{
	int n = t_iters(40), target = t_size - 1, zero = 0, me = t_rank + 1, was;
	long c;

	clear(0);
	M(MPI_Win_lock_all(0, w.win));
	for (int i = 0; i < n; i++) {
		do {
			M(MPI_Compare_and_swap(&me, &zero, &was, MPI_INT, target, 128, w.win));
			M(MPI_Win_flush(target, w.win));
		} while (was != 0);
		M(MPI_Get(&c, 1, MPI_LONG, target, 256, 1, MPI_LONG, w.win));
		M(MPI_Win_flush(target, w.win));
		c++;
		M(MPI_Put(&c, 1, MPI_LONG, target, 256, 1, MPI_LONG, w.win));
		M(MPI_Win_flush(target, w.win));
		/* released by an atomic, with a compare that must succeed */
		M(MPI_Compare_and_swap(&zero, &me, &was, MPI_INT, target, 128, w.win));
		M(MPI_Win_flush(target, w.win));
		T_EQ(was, me);
	}
	M(MPI_Win_unlock_all(w.win));
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win));
	M(MPI_Get(&c, 1, MPI_LONG, target, 256, 1, MPI_LONG, w.win));
	M(MPI_Win_unlock(target, w.win));
	T_EQ(c, (long)n * t_size);
}

/* CAS loops as an increment, on each size it is permitted for */
static void cas_increment(const char *name)
{
	const struct acc_type *t = find(name);
	int n = t_iters(30), target = 0;
	uint64_t cur = 0, next, was, fin = 0, mask = t->size == 8 ? ~0ull : (1ull << 8 * t->size) - 1;

	clear(0);
	M(MPI_Win_lock_all(0, w.win));
	for (int i = 0; i < n; i++)
		for (;;) {
			next = (cur + 1) & mask;
			was = 0;
			M(MPI_Compare_and_swap(&next, &cur, &was, t->type, target, 320, w.win));
			M(MPI_Win_flush(target, w.win));
			if (was == cur)
				break;
			cur = was;
		}
	M(MPI_Win_unlock_all(w.win));
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win));
	M(MPI_Get(&fin, t->size, MPI_BYTE, target, 320, t->size, MPI_BYTE, w.win));
	M(MPI_Win_unlock(target, w.win));
	T_EQ(fin, (uint64_t)(n * t_size) & mask);
}

static void cas_loops(void)
{
	cas_increment("MPI_UINT8_T");
	cas_increment("MPI_UINT16_T");
	cas_increment("MPI_INT");
	cas_increment("MPI_INT64_T");
}

/* an element of 16 or 32 bytes is never seen half replaced */
static void untorn(const char *name)
{
	const struct acc_type *t = find(name);
	int n = t_iters(150), target = t_size - 1, half = t->size / 2;

	clear(0);
	M(MPI_Win_lock_all(0, w.win));
	for (int i = 0; i < n; i++) {
		char v[4][32], got[4][32];

		if (t_rank % 2 == i % 2) {
			for (int k = 0; k < 4; k++) {
				long double x = i * 64 + t_rank + 1;
				double d = x;

				memset(v[k], 0, 32);
				if (half == 16) {
					memcpy(v[k], &x, 10);
					memcpy(v[k] + 16, &x, 10);
				} else {
					memcpy(v[k], &d, 8);
					memcpy(v[k] + 8, &d, 8);
				}
			}
			if (half == 8)
				for (int k = 1; k < 4; k++)
					memcpy(v[0] + 16 * k, v[k], 16);
			M(MPI_Accumulate(v, 4, t->type, target, 512, 4, t->type, MPI_REPLACE,
					 w.win));
			M(MPI_Win_flush(target, w.win));
		} else {
			M(MPI_Get_accumulate(NULL, 0, t->type, got, 4, t->type, target, 512, 4,
					     t->type, MPI_NO_OP, w.win));
			M(MPI_Win_flush(target, w.win));
			for (int k = 0; k < 4; k++) {
				char *e = (char *)got + k * t->size;

				T_OK(!memcmp(e, e + half, half == 16 ? 10 : 8),
				     "torn %s at round %d", name, i);
			}
		}
	}
	M(MPI_Win_unlock_all(w.win));
}

static void torn_elements(void)
{
	untorn("MPI_C_DOUBLE_COMPLEX");
	untorn("MPI_C_LONG_DOUBLE_COMPLEX");
}

/* large arrays, which travel in pieces, against single-element updates on the same elements */
static void large_and_small_in(int kind)
{
	int n = 40000, rounds = t_iters(4), target = 0;
	double *ones = malloc(n * 8);
	struct twin big;
	struct t_rng r = t_rng_own();
	double extra = 0, sum = 0, want, one = 1;

	tw_make(&big, kind, MPI_COMM_WORLD, n * 8, 8, MPI_INFO_NULL);
	for (int i = 0; i < n; i++)
		ones[i] = 1;
	M(MPI_Win_lock_all(0, big.win));
	for (int i = 0; i < rounds; i++) {
		M(MPI_Accumulate(ones, n, MPI_DOUBLE, target, 0, n, MPI_DOUBLE, MPI_SUM, big.win));
		for (int k = 0; k < 50; k++, extra++)
			M(MPI_Accumulate(&one, 1, MPI_DOUBLE, target, t_rndn(&r, n), 1, MPI_DOUBLE,
					 MPI_SUM, big.win));
		M(MPI_Win_flush_local(target, big.win));
	}
	M(MPI_Win_unlock_all(big.win));
	M(MPI_Allreduce(&extra, &want, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
	want += (double)n * rounds * t_size;
	t_barrier();
	if (t_rank == target) {
		M(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, big.win));
		for (int i = 0; i < n; i++)
			sum += ((double *)big.mem)[i];
		M(MPI_Win_unlock(target, big.win));
		T_OK(sum == want, "%.0f, expected %.0f", sum, want);
	}
	tw_free(&big);
	free(ones);
}

static void large_and_small(void)
{
	large_and_small_in(TW_ALLOCATE);
	large_and_small_in(TW_CREATE);
}

/* blocks of all sizes, single elements, fetches and compare-and-swap on the same integers: no update is lost */
static void all_sizes(void)
{
	int n = 1500, rounds = t_iters(60), target = 0;
	long *v = malloc(n * sizeof(*v)), *old = malloc(n * sizeof(*old));
	unsigned long added = 0, want, sum = 0;
	struct t_rng r = t_rng_own();
	struct twin big;

	tw_make(&big, TW_ALLOCATE, MPI_COMM_WORLD, n * sizeof(*v), sizeof(*v), MPI_INFO_NULL);
	M(MPI_Win_lock_all(0, big.win));
	for (int i = 0; i < rounds; i++) {
		int at = t_rndn(&r, n), len = 1 + t_rndn(&r, t_rndn(&r, 2) ? n - at : 1);
		long x = 1 + t_rndn(&r, 1000), was = 0, got, next;

		for (int k = 0; k < len; k++)
			v[k] = x;
		if (t_rndn(&r, 2))
			M(MPI_Accumulate(v, len, MPI_LONG, target, at, len, MPI_LONG, MPI_SUM, big.win));
		else
			M(MPI_Get_accumulate(v, len, MPI_LONG, old, len, MPI_LONG, target, at, len, MPI_LONG,
					     MPI_SUM, big.win));
		M(MPI_Win_flush(target, big.win));
		added += (unsigned long)x * len;
		for (int k = 0; k < 8; k++) {
			at = t_rndn(&r, n);
			M(MPI_Fetch_and_op(&x, &got, MPI_LONG, target, at, MPI_SUM, big.win));
			M(MPI_Win_flush(target, big.win));
			T_OK(got >= 0, "fetched %ld", got);
		}
		added += 8 * (unsigned long)x;
		for (;;) {
			next = was + x;
			M(MPI_Compare_and_swap(&next, &was, &got, MPI_LONG, target, at, big.win));
			M(MPI_Win_flush(target, big.win));
			if (got == was)
				break;
			was = got;
		}
		added += (unsigned long)x;
	}
	M(MPI_Win_unlock_all(big.win));
	M(MPI_Allreduce(&added, &want, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD));
	t_barrier();
	if (t_rank == target) {
		M(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, big.win));
		for (int i = 0; i < n; i++)
			sum += ((unsigned long *)big.mem)[i];
		M(MPI_Win_unlock(target, big.win));
		T_EQ(sum, want);
	}
	tw_free(&big);
	free(v);
	free(old);
}

static void hammer_all(const char *flavor)
{
	for (int i = 0; i < ARRAY_SIZE(list); i++)
		if (t_begin("hammer.%s.%s", list[i], flavor)) {
			all_ops(list[i]);
			t_end();
		}
}

static const struct t_point points[] = {
	T_POINT_OF(tickets_int), T_POINT_OF(tickets_long), T_POINT_OF(tickets_short),
	T_POINT_OF(tickets_double), T_POINT_OF(spin_lock), T_POINT_OF(cas_loops),
	T_POINT_OF(torn_elements), T_POINT_OF(large_and_small), T_POINT_OF(all_sizes),
};

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	tw_points(&w, points, ARRAY_SIZE(points), 4096, 1, 1, hammer_all);
	return t_fini();
}

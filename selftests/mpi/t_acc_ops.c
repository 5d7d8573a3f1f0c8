// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Accumulate, get_accumulate, fetch_and_op and compare_and_swap with every predefined type and
 * every operation that MPI permits on it, or that the library does all the same, against a reference
 * computed by both sides. One point for each type and call. Each rank works on its right neighbour's window.
 */
#include "acctypes.h"

#define MAXN 40
#define AREA (MAXN * 32)

static struct twin wins[2];
static int right, left;

enum call { C_ACC, C_GET_ACC, C_FETCH, C_CAS, C_CALLS };
static const char *const call_names[C_CALLS] = { "acc", "get_acc", "fetch_op", "cas" };

static void check(const struct acc_type *t, const char *what, enum acc_op op, const void *got,
		  const void *want, int n)
{
	const unsigned char *g = got, *w = want;
	char gs[100], ws[100];

	for (int i = 0; i < n; i++, g += t->size, w += t->size) {
		if (acc_equal(t, g, w))
			continue;
		for (int k = 0; k < t->size; k++) {
			sprintf(gs + 2 * k, "%02x", g[k]);
			sprintf(ws + 2 * k, "%02x", w[k]);
		}
		t_fail(__FILE__, __LINE__, "%s %s %s: element %d of %d is %s, expected %s", what,
		       t->name, op < O_OPS ? acc_op_names[op] : "cas", i, n, gs, ws);
		return;
	}
}

/* target area @op: what it held before, what the left neighbour sent, what it must hold */
static void values(const struct acc_type *t, enum acc_op op, int target, int n, uint64_t salt,
		   char *before, char *sent, char *after)
{
	struct t_rng r = t_rng_common();

	r.s += salt * 77 + op * 7919 + target * 104729;
	for (int i = 0; i < n; i++) {
		acc_value(t, op, &r, before + i * t->size);
		acc_value(t, op, &r, sent + i * t->size);
		memcpy(after + i * t->size, before + i * t->size, t->size);
		acc_apply(t, op, after + i * t->size, sent + i * t->size);
	}
}

static void do_ops(const struct acc_type *t, struct twin *w, enum call call, int n, bool fence)
{
	static char before[O_OPS][AREA], sent[O_OPS][AREA], after[O_OPS][AREA];
	static char result[O_OPS][AREA];

	for (int op = 0; op < O_OPS; op++) {
		values(t, op, t_rank, n, n, before[op], sent[op], after[op]);
		memcpy(w->mem + op * AREA, before[op], n * t->size);
		memset(result[op], 0x77, AREA);
	}
	if (fence) {
		M(MPI_Win_fence(0, w->win));
	} else {
		M(MPI_Win_lock_all(0, w->win));
		M(MPI_Win_sync(w->win));
		t_barrier();
	}
	for (int op = 0; op < O_OPS; op++)
		values(t, op, right, n, n, before[op], sent[op], after[op]);
	for (int op = 0; op < O_OPS; op++) {
		MPI_Aint d = op * AREA;

		if (!acc_permitted(t, op))
			continue;
		if (call == C_ACC && op != O_NO_OP)
			M(MPI_Accumulate(sent[op], n, t->type, right, d, n, t->type, acc_op(op),
					 w->win));
		else if (call == C_GET_ACC)
			M(MPI_Get_accumulate(op == O_NO_OP ? NULL : sent[op], op == O_NO_OP ? 0 : n,
					     t->type, result[op], n, t->type, right, d, n, t->type,
					     acc_op(op), w->win));
		else if (call == C_FETCH)
			M(MPI_Fetch_and_op(sent[op], result[op], t->type, right, d, acc_op(op),
					   w->win));
	}
	if (fence) {
		M(MPI_Win_fence(0, w->win));
	} else {
		M(MPI_Win_unlock_all(w->win));
		t_barrier();
		M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w->win));
	}
	for (int op = 0; op < O_OPS; op++) {
		if (!acc_permitted(t, op))
			continue;
		if (call != C_ACC)
			check(t, "fetched", op, result[op], before[op], n);
		values(t, op, t_rank, n, n, before[op], sent[op], after[op]);
		check(t, "window", op, w->mem + op * AREA, after[op], n);
	}
	if (!fence)
		M(MPI_Win_unlock(t_rank, w->win));
	t_barrier();
}

static void do_cas(const struct acc_type *t, struct twin *w)
{
	char before[2][32], next[2][32], result[2][32], want[2][32];
	struct t_rng r;

	/* [0] compares equal and is swapped, [1] compares unequal and is not */
	for (int who = 0; who < 2; who++) {
		r = t_rng_common();
		r.s += 13 * (who ? right : t_rank);
		for (int k = 0; k < 2; k++) {
			acc_value(t, O_REPLACE, &r, before[k]);
			acc_value(t, O_REPLACE, &r, next[k]);
		}
		if (who)
			break;
		memcpy(w->mem, before[0], t->size);
		memcpy(w->mem + 64, before[1], t->size);
		memcpy(want[0], next[0], t->size);
		memcpy(want[1], before[1], t->size);
		M(MPI_Win_lock_all(0, w->win));
		M(MPI_Win_sync(w->win));
		t_barrier();
	}
	M(MPI_Compare_and_swap(next[0], before[0], result[0], t->type, right, 0, w->win));
	/* flipping the lowest bit of the last byte makes an unequal value of any kind */
	M(MPI_Win_flush(right, w->win));
	{
		char other[32];

		memcpy(other, before[1], t->size);
		other[0] ^= 1;
		M(MPI_Compare_and_swap(next[1], other, result[1], t->type, right, 64, w->win));
		M(MPI_Win_flush(right, w->win));
	}
	M(MPI_Win_unlock_all(w->win));
	check(t, "result of equal", O_OPS, result[0], before[0], 1);
	check(t, "result of unequal", O_OPS, result[1], before[1], 1);
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w->win));
	check(t, "swapped", O_OPS, w->mem, want[0], 1);
	check(t, "not swapped", O_OPS, w->mem + 64, want[1], 1);
	M(MPI_Win_unlock(t_rank, w->win));
	t_barrier();
}

/* types without names of their own: both libraries accumulate with them, in Open MPI also the calls for one element take them */
static void unnamed(void)
{
	MPI_Datatype dup, real;
	struct acc_type t;

	M(MPI_Type_dup(MPI_INT, &dup));
	M(MPI_Type_create_f90_real(15, 300, &real));
	t = (struct acc_type){ .name = "duplicate", .type = dup, .class = A_CINT, .kind = K_I32, .size = 4 };
	for (int k = 0; k < 2; k++) {
		do_ops(&t, &wins[k], C_ACC, 3, k);
#ifdef OPEN_MPI
		do_ops(&t, &wins[k], C_FETCH, 1, k);
		do_cas(&t, &wins[k]);
#endif
	}
	t = (struct acc_type){ .name = "real(15, 300)", .type = real, .class = A_FLOAT, .kind = K_F64, .size = 8 };
	for (int k = 0; k < 2; k++) {
		do_ops(&t, &wins[k], C_ACC, 3, k);
#ifdef OPEN_MPI
		do_ops(&t, &wins[k], C_FETCH, 1, k);
#endif
	}
	M(MPI_Type_free(&dup));
}

int main(int argc, char **argv)
{
	const struct acc_type *types;
	int n, round = 0;

	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	right = (t_rank + 1) % t_size;
	left = (t_rank + t_size - 1) % t_size;
	tw_make(&wins[0], TW_ALLOCATE, MPI_COMM_WORLD, O_OPS * AREA, 1, MPI_INFO_NULL);
	tw_make(&wins[1], TW_CREATE, MPI_COMM_WORLD, O_OPS * AREA, 1, MPI_INFO_NULL);
	n = acc_types(&types);
	for (int i = 0; i < n; i++)
		for (int call = 0; call < C_CALLS; call++) {
			if (call == C_CAS && !acc_cas_permitted(&types[i]))
				continue;
			if (!t_begin("%s.%s", call_names[call], types[i].name))
				continue;
			for (int k = 0; k < 2; k++) {
				if (call == C_CAS)
					do_cas(&types[i], &wins[k]);
				else
					do_ops(&types[i], &wins[k], call, call == C_FETCH ? 1 :
					       k ? MAXN : 1 + 2 * (round % 5), round % 2);
			}
			round++;
			t_end();
		}
	T_RUN(unnamed, 2);
	tw_free(&wins[0]);
	tw_free(&wins[1]);
	return t_fini();
}

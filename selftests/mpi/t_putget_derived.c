// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Put and get with derived datatypes on either side: every constructor alone, random nests of
 * them, mixed signatures, MPI_BOTTOM, negative bounds. The whole window and the whole origin
 * buffer are compared, so a byte outside the typemap that changes is a failure.
 */
#include "dtmap.h"

#define SPAN 16384
/* Layouts stand in the middle of a larger window: some libraries check the extent of the target
 * type and not the bytes it names; "gap_at_end" below tests that rule by itself. */
#define MIDDLE 24576
#define WIN_SIZE (3 * MIDDLE)

static struct twin wins[2];
static unsigned char *obuf, *image, *expect;

static int gcd(int a, int b)
{
	return b ? gcd(b, a % b) : a;
}

/*
 * Moves the same elements with origin layout @om and target layout @tm. All ranks call it with
 * equal maps; afterwards target and origin compare everything they own.
 */
static void transfer(struct twin *w, enum te_mode mode, int origin, int target,
		     const struct dtmap *om, const struct dtmap *tm, bool get, bool bottom,
		     uint64_t seed)
{
	int g = gcd(om->n, tm->n), ocount = tm->n / g, tcount = om->n / g;
	int elems = om->n * ocount;
	MPI_Aint olo, ohi, tlo, thi;
	MPI_Datatype otype = om->type;
	unsigned char *obase, *tbase_image;
	MPI_Aint tdisp;
	char what[1000];

	if (!dt_range(om, ocount, &olo, &ohi) || !dt_range(tm, tcount, &tlo, &thi) ||
	    ohi - olo > SPAN || thi - tlo > SPAN)
		return;
	/* a displacement must not be negative, however far behind it the layout starts */
	if (tlo > MIDDLE)
		return;
	snprintf(what, sizeof(what), "%s %s %s %d x %.350s -> %d x %.350s", get ? "get" : "put",
		 tw_names[w->flavor], te_names[mode], ocount, om->desc, tcount, tm->desc);
	/* 8-aligned bases, the range starts in the middle of some guard bytes */
	obase = obuf + 512 + (-olo + 7) / 8 * 8;
	tdisp = MIDDLE + (-tlo + 7) / 8 * 8;
	if (w->rank == target)
		t_fill(w->mem, w->size, seed);
	t_fill(image, w->size, seed);
	t_fill(obuf, SPAN + 2048, seed + 1);
	tbase_image = image + tdisp;
	memcpy(expect, obuf, SPAN + 2048);
	if (get)
		dt_copy(expect + (obase - obuf), om, tbase_image, tm, elems);
	else
		dt_copy(tbase_image, tm, obase, om, elems);

	te_open(w, mode, origin, target);
	if (w->rank == origin) {
		void *addr = obase;
		int count = ocount;

		if (bottom) {
			MPI_Aint a;

			M(MPI_Get_address(obase, &a));
			M(MPI_Type_create_hindexed(1, &ocount, &a, om->type, &otype));
			M(MPI_Type_commit(&otype));
			addr = MPI_BOTTOM;
			count = 1;
		}
		if (get)
			M(MPI_Get(addr, count, otype, target, tw_disp(w, target, tdisp), tcount,
				  tm->type, w->win));
		else
			M(MPI_Put(addr, count, otype, target, tw_disp(w, target, tdisp), tcount,
				  tm->type, w->win));
		/* freed while the operation may be pending: allowed */
		if (bottom)
			M(MPI_Type_free(&otype));
	}
	te_close(w, mode, origin, target);
	if (w->rank == target)
		T_BYTES(what, w->mem, image, w->size);
	if (w->rank == origin)
		T_BYTES(what, obuf, expect, SPAN + 2048);
}

static void make(void)
{
	tw_make(&wins[0], TW_ALLOCATE, MPI_COMM_WORLD, WIN_SIZE, 1, MPI_INFO_NULL);
	tw_make(&wins[1], TW_CREATE, MPI_COMM_WORLD, WIN_SIZE, 1, MPI_INFO_NULL);
	obuf = malloc(SPAN + 2048);
	image = malloc(WIN_SIZE);
	expect = malloc(SPAN + 2048);
}

static void drop(void)
{
	tw_free(&wins[0]);
	tw_free(&wins[1]);
	free(obuf);
	free(image);
	free(expect);
}

static void one_kind(enum dt_kind kind)
{
	struct t_rng r = t_rng_common();
	struct dtmap basic = dt_basic(MPI_INT, 4, "int"), flat;
	int n = t_iters(3);

	flat = dt_wrap(&r, DT_CONTIGUOUS, dt_basic(MPI_INT, 4, "int"), 4);
	for (int i = 0; i < n; i++) {
		struct dtmap m = dt_wrap(&r, kind, dt_basic(MPI_INT, 4, "int"), 4);
		int o = t_rndn(&r, t_size), t = (o + 1) % t_size;

		for (int k = 0; k < 2; k++) {
			enum te_mode mode = t_rndn(&r, TE_MODES);

			transfer(&wins[k], mode, o, t, &m, &flat, false, false, t_rnd(&r));
			transfer(&wins[k], mode, o, t, &flat, &m, false, false, t_rnd(&r));
			transfer(&wins[k], mode, o, t, &m, &flat, true, false, t_rnd(&r));
			transfer(&wins[k], mode, o, t, &flat, &m, true, false, t_rnd(&r));
			transfer(&wins[k], mode, o, t, &m, &m, false, k, t_rnd(&r));
		}
		dt_free(&m);
	}
	dt_free(&flat);
	dt_free(&basic);
}

static void nested(const struct dtmap *ou, const struct dtmap *tu, int align, int rounds,
		   bool self)
{
	struct t_rng r = t_rng_common();

	for (int i = 0; i < t_iters(rounds); i++) {
		struct dtmap om = dt_random(&r, ou, 1 + t_rndn(&r, 4), 1, 4096, align);
		struct dtmap tm = dt_random(&r, tu, 1 + t_rndn(&r, 4), 1, 4096, align);
		int o = t_rndn(&r, t_size), t = self ? o : t_rndn(&r, t_size);
		enum te_mode mode = t_rndn(&r, TE_MODES);

		/* posting to oneself in PSCW needs post before start, which te_open does */
		transfer(&wins[i & 1], mode, o, t, &om, &tm, t_rndn(&r, 2), t_rndn(&r, 3) == 0,
			 t_rnd(&r));
		dt_free(&om);
		dt_free(&tm);
	}
}

static void nested_int(void)
{
	struct dtmap u = dt_basic(MPI_INT, 4, "int");

	nested(&u, &u, 4, 40, false);
	dt_free(&u);
}

static void nested_byte(void)
{
	struct dtmap u = dt_basic(MPI_BYTE, 1, "byte");

	nested(&u, &u, 1, 40, false);
	dt_free(&u);
}

static void nested_double_self(void)
{
	struct dtmap u = dt_basic(MPI_DOUBLE, 8, "double");

	nested(&u, &u, 8, 15, true);
	dt_free(&u);
}

/* equal signature (char, int, double, short), different places on either side */
static void nested_mixed(void)
{
	static const int sizes[4] = { 1, 4, 8, 2 };
	static const MPI_Aint od[4] = { 0, 4, 8, 16 }, td[4] = { 30, 16, 0, 24 };
	const MPI_Datatype types[4] = { MPI_CHAR, MPI_INT, MPI_DOUBLE, MPI_SHORT };
	struct dtmap ou = dt_mixed(4, types, sizes, od), tu = dt_mixed(4, types, sizes, td);

	nested(&ou, &tu, 8, 30, false);
	dt_free(&ou);
	dt_free(&tu);
}

/* an origin that reads the same bytes twice is allowed for put */
static void overlapping_origin(void)
{
	struct twin *w = &wins[0];
	int v[4] = { 11, 22, 33, 44 };
	MPI_Datatype dt;

	M(MPI_Type_vector(4, 2, 0, MPI_INT, &dt));
	M(MPI_Type_commit(&dt));
	te_open(w, TE_LOCK_SHARED, 0, t_size - 1);
	if (t_rank == 0)
		M(MPI_Put(v, 1, dt, t_size - 1, 0, 8, MPI_INT, w->win));
	te_close(w, TE_LOCK_SHARED, 0, t_size - 1);
	if (t_rank == t_size - 1)
		for (int i = 0; i < 8; i++)
			T_EQ(((int *)w->mem)[i], i % 2 ? 22 : 11);
	M(MPI_Type_free(&dt));
}

/* the extent ends beyond the window, the last byte that is accessed does not */
static void gap_at_end(void)
{
	struct twin w;
	int v[4] = { 1, 2, 3, 4 }, back[4] = { 0 }, t = t_size - 1;
	MPI_Datatype vec, dt;

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 8 * sizeof(int), sizeof(int), MPI_INFO_NULL);
	M(MPI_Type_vector(4, 1, 2, MPI_INT, &vec));
	M(MPI_Type_create_resized(vec, 0, 64, &dt));
	M(MPI_Type_commit(&dt));
	te_open(&w, TE_LOCK_SHARED, 0, t);
	if (t_rank == 0) {
		M(MPI_Put(v, 4, MPI_INT, t, 1, 1, dt, w.win));
		M(MPI_Win_flush(t, w.win));
		M(MPI_Get(back, 4, MPI_INT, t, 1, 1, dt, w.win));
		M(MPI_Win_flush(t, w.win));
		T_BYTES("read back", back, v, sizeof(v));
	}
	te_close(&w, TE_LOCK_SHARED, 0, t);
	if (t_rank == t)
		for (int i = 0; i < 8; i++)
			T_EQ(((int *)w.mem)[i], i % 2 ? i / 2 + 1 : 0);
	tw_free(&w);
	M(MPI_Type_free(&vec));
	M(MPI_Type_free(&dt));
}

/* 4096 blocks of 8 bytes, as rows of a matrix column */
static void many_blocks(void)
{
	struct twin w;
	int n = 4096, t = t_size - 1;
	MPI_Datatype dt;
	double *v = malloc(n * sizeof(*v));

	M(MPI_Type_vector(n, 1, 5, MPI_DOUBLE, &dt));
	M(MPI_Type_commit(&dt));
	tw_make(&w, TW_CREATE, MPI_COMM_WORLD, n * 5 * sizeof(double), sizeof(double),
		MPI_INFO_NULL);
	for (int col = 0; col < 5; col++) {
		for (int i = 0; i < n; i++)
			v[i] = col * 10000 + i;
		te_open(&w, TE_LOCK_SHARED, 0, t);
		if (t_rank == 0)
			M(MPI_Put(v, n, MPI_DOUBLE, t, col, 1, dt, w.win));
		te_close(&w, TE_LOCK_SHARED, 0, t);
	}
	if (t_rank == t)
		for (int i = 0; i < n * 5; i++)
			if (!T_EQ(((double *)w.mem)[i], i % 5 * 10000 + i / 5))
				break;
	for (int col = 0; col < 5; col++) {
		te_open(&w, TE_LOCK_SHARED, 0, t);
		if (t_rank == 0) {
			M(MPI_Get(v, n, MPI_DOUBLE, t, col, 1, dt, w.win));
			M(MPI_Win_flush(t, w.win));
			for (int i = 0; i < n; i++)
				if (!T_EQ(v[i], col * 10000 + i))
					break;
		}
		te_close(&w, TE_LOCK_SHARED, 0, t);
	}
	tw_free(&w);
	M(MPI_Type_free(&dt));
	free(v);
}

/* ---- room for more than comes, as for messages ---- */

#define ROOM_INTS 12000		/* of the largest layout, whose every block is described by itself */
#define ROOM_SPAN (2 * ROOM_INTS + 2)

enum room_op { ROOM_PUT, ROOM_RPUT, ROOM_ACC, ROOM_GET, ROOM_RGET };

/* Where the @i-th integer is in a layout, in integers. */
static int room_at(int layout, int i)
{
	switch (layout) {
	case 0:
		return i;
	case 1:
		return i / 3 * 5 + i % 3 * 2;
	default:
		return 2 * i + (i % 3 == 0);
	}
}

static void room_types(MPI_Datatype types[3])
{
	int *at = malloc(ROOM_INTS * sizeof(*at));

	for (int i = 0; i < ROOM_INTS; i++)
		at[i] = room_at(2, i);
	M(MPI_Type_contiguous(1, MPI_INT, &types[0]));
	M(MPI_Type_vector(3, 1, 2, MPI_INT, &types[1]));
	M(MPI_Type_create_indexed_block(ROOM_INTS, 1, at, MPI_INT, &types[2]));
	for (int k = 0; k < 3; k++)
		M(MPI_Type_commit(&types[k]));
	free(at);
}

/* @n integers one by one, or with gaps, where @layout has room for some more. */
static void room_move(struct twin *w, enum room_op op, int layout, MPI_Datatype type, int n, MPI_Datatype vec, int *buf)
{
	int items[] = { n + 5, n / 3 + 2, 1 }, few = vec == MPI_INT ? n : 1, t = (t_rank + 1) % t_size;
	MPI_Request q = MPI_REQUEST_NULL;

	M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w->win));
	switch (op) {
	case ROOM_PUT:
		M(MPI_Put(buf, few, vec, t, 0, items[layout], type, w->win));
		break;
	case ROOM_RPUT:
		M(MPI_Rput(buf, few, vec, t, 0, items[layout], type, w->win, &q));
		break;
	case ROOM_ACC:
		M(MPI_Accumulate(buf, few, vec, t, 0, items[layout], type, MPI_SUM, w->win));
		break;
	case ROOM_GET:
		M(MPI_Get(buf, items[layout], type, t, 0, few, vec, w->win));
		break;
	case ROOM_RGET:
		M(MPI_Rget(buf, items[layout], type, t, 0, few, vec, w->win, &q));
		break;
	}
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	M(MPI_Win_unlock(t, w->win));
}

/* All that the receiving side owns is compared. */
static void room_case(struct twin *w, enum room_op op, int layout, MPI_Datatype type, int n, bool gaps)
{
	bool get = op >= ROOM_GET;
	int *buf = malloc(ROOM_SPAN * sizeof(int)), *mem = (int *)w->mem, *dst = get ? buf : mem, *want, bad = 0;
	MPI_Datatype vec = MPI_INT;

	if (gaps) {
		M(MPI_Type_vector(n, 1, 2, MPI_INT, &vec));
		M(MPI_Type_commit(&vec));
	}
	want = malloc(ROOM_SPAN * sizeof(int));
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, w->win));
	for (int i = 0; i < ROOM_SPAN; i++) {
		mem[i] = get ? i : -i;
		buf[i] = get ? -i : i;
		want[i] = -i;
	}
	M(MPI_Win_unlock(t_rank, w->win));
	for (int i = 0; i < n; i++)
		want[room_at(layout, i)] = (gaps ? 2 * i : i) - (op == ROOM_ACC ? room_at(layout, i) : 0);
	t_barrier();
	room_move(w, op, layout, type, n, vec, buf);
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w->win));
	for (int i = 0; i < ROOM_SPAN; i++)
		bad += dst[i] != want[i];
	M(MPI_Win_unlock(t_rank, w->win));
	T_OK(!bad, "%s, operation %d, layout %d, %d of them%s: %d differ", tw_names[w->flavor], op, layout, n,
	     gaps ? " with gaps" : "", bad);
	if (gaps)
		M(MPI_Type_free(&vec));
	free(want);
	free(buf);
}

static void room_for_more(enum room_op op)
{
	static const int n[] = { 0, 2, 7, 3001 };
	MPI_Datatype types[3];
	struct twin w[2];
	int which = 0;

	room_types(types);
	tw_make(&w[0], TW_ALLOCATE, MPI_COMM_WORLD, ROOM_SPAN * sizeof(int), sizeof(int), MPI_INFO_NULL);
	tw_make(&w[1], TW_CREATE, MPI_COMM_WORLD, ROOM_SPAN * sizeof(int), sizeof(int), MPI_INFO_NULL);
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < ARRAY_SIZE(n); i++, which++)
			room_case(&w[which % 2], op, k, types[k], n[i], which % 3 == 0);
	for (int k = 0; k < 3; k++)
		M(MPI_Type_free(&types[k]));
	tw_free(&w[0]);
	tw_free(&w[1]);
}

static void room_at_target(void)
{
	room_for_more(ROOM_PUT);
	room_for_more(ROOM_RPUT);
}

static void room_for_sums(void)
{
	room_for_more(ROOM_ACC);
}

static void room_at_origin(void)
{
	room_for_more(ROOM_GET);
	room_for_more(ROOM_RGET);
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	make();
	for (int k = 0; k < DT_KINDS; k++)
		if (t_begin("%s", dt_kind_names[k])) {
			one_kind(k);
			t_end();
		}
	T_RUN(nested_int, 1);
	T_RUN(nested_byte, 1);
	T_RUN(nested_double_self, 1);
	T_RUN(nested_mixed, 1);
	T_RUN(overlapping_origin, 1);
	T_RUN(gap_at_end, 1);
	T_RUN(many_blocks, 1);
	T_RUN(room_at_target, 1);
	T_RUN(room_for_sums, 1);
	T_RUN(room_at_origin, 1);
	drop();
	return t_fini();
}

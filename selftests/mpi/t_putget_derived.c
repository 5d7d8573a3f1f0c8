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
	drop();
	return t_fini();
}

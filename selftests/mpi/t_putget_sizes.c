// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Put and get of every size at which an implementation may change its path, to and from odd
 * addresses, in every window flavor and by every synchronization; every byte is compared and
 * the neighbourhood must not change.
 */
#include "mpitest.h"

#define MAX (5 << 20)
#define WIN (MAX + 4096)
#define ZONE 192

static const int sizes[] = {
	0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 33, 63, 64, 65, 127, 128, 129, 239,
	240, 241, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2049, 4095, 4096, 4097,
	8191, 8192, 8193, 16384, 32768, 65535, 65536, 65537, 131073, 262143, 262144, 262145,
	(1 << 20) + 3, MAX,
};

static unsigned char *buf, *want;

static void one(struct twin *w, enum te_mode mode, int origin, int target, int size, int off,
		int skew, uint64_t seed)
{
	unsigned char *o = buf + ZONE + skew;
	int lo = off - ZONE, span = size + 2 * ZONE;
	char what[100];

	snprintf(what, sizeof(what), "%d bytes, %s, %s, %d to %d, offset %d", size,
		 tw_names[w->flavor], te_names[mode], origin, target, off);
	/* put: the target sees its old bytes around the origin's */
	if (w->rank == target)
		t_fill(w->mem + lo, span, seed);
	te_open(w, mode, origin, target);
	if (w->rank == origin) {
		t_fill(o, size, seed + 1);
		M(MPI_Put(o, size, MPI_BYTE, target, tw_disp(w, target, off), size, MPI_BYTE,
			  w->win));
	}
	te_close(w, mode, origin, target);
	if (w->rank == target) {
		t_fill(want, span, seed);
		t_fill(want + ZONE, size, seed + 1);
		T_BYTES(what, w->mem + lo, want, span);
	}
	/* get: the origin reads the zone's end too */
	te_open(w, mode, origin, target);
	if (w->rank == origin) {
		t_fill(buf, span + 64, seed + 2);
		M(MPI_Get(o, size, MPI_BYTE, target, tw_disp(w, target, off), size, MPI_BYTE,
			  w->win));
	}
	te_close(w, mode, origin, target);
	if (w->rank == origin) {
		t_fill(want, span + 64, seed + 2);
		t_fill(want + ZONE + skew, size, seed + 1);
		T_BYTES(what, buf, want, span + 64);
	}
}

static void flavor(enum tw_flavor f)
{
	struct t_rng r = t_rng_common();
	struct twin w;

	tw_make(&w, f, MPI_COMM_WORLD, WIN, 1, MPI_INFO_NULL);
	for (int i = 0; i < ARRAY_SIZE(sizes); i++) {
		int origin = t_rndn(&r, t_size), skew = t_rndn(&r, 64);
		int off = ZONE + t_rndn(&r, 2) * t_rndn(&r, 64);
		enum te_mode mode = t_rndn(&r, TE_MODES);

		one(&w, mode, origin, (origin + 1) % t_size, sizes[i], off, skew, t_rnd(&r));
		if (sizes[i] < 70000)
			one(&w, (mode + 1) % TE_MODES, origin, origin, sizes[i], off, skew,
			    t_rnd(&r));
	}
	/* the last byte of the window */
	te_open(&w, TE_LOCK_SHARED, 0, t_size - 1);
	if (t_rank == 0)
		M(MPI_Put("x", 1, MPI_CHAR, t_size - 1, tw_disp(&w, t_size - 1, WIN - 1), 1,
			  MPI_CHAR, w.win));
	te_close(&w, TE_LOCK_SHARED, 0, t_size - 1);
	if (t_rank == t_size - 1)
		T_EQ(w.mem[WIN - 1], 'x');
	tw_free(&w);
}

/* many small operations in one epoch, from every rank to every rank, each to its own place */
static void all_to_all(void)
{
	int n = t_iters(300), slot = 48;
	struct twin w;
	unsigned char *src = malloc((size_t)n * t_size * slot), expect[48];
	struct t_rng r;

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, (size_t)n * t_size * slot, 1, MPI_INFO_NULL);
	M(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
	for (int i = 0; i < n; i++)
		for (int t = 0; t < t_size; t++) {
			unsigned char *s = src + (size_t)(i * t_size + t) * slot;
			int len = 1 + (i * 7 + t * 3 + t_rank) % slot;

			t_fill(s, len, t_seed + i * 1000 + t * 10 + t_rank);
			M(MPI_Put(s, len, MPI_BYTE, t, (MPI_Aint)(i * t_size + t_rank) * slot, len,
				  MPI_BYTE, w.win));
		}
	M(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
	for (int i = 0; i < n; i++)
		for (int o = 0; o < t_size; o++) {
			int len = 1 + (i * 7 + t_rank * 3 + o) % slot;

			memset(expect, 0, slot);
			t_fill(expect, len, t_seed + i * 1000 + t_rank * 10 + o);
			if (!T_BYTES("slot", w.mem + (size_t)(i * t_size + o) * slot, expect, slot))
				goto out;
		}
out:
	t_barrier();
	/* everybody reads random slots back */
	r = t_rng_own();
	M(MPI_Win_lock_all(0, w.win));
	for (int i = 0; i < n; i++) {
		int t = t_rndn(&r, t_size), k = t_rndn(&r, n), o = t_rndn(&r, t_size);
		int len = 1 + (k * 7 + t * 3 + o) % slot;
		unsigned char got[48];

		memset(got, 0, slot);
		memset(expect, 0, slot);
		t_fill(expect, len, t_seed + k * 1000 + t * 10 + o);
		M(MPI_Get(got, slot, MPI_BYTE, t, (MPI_Aint)(k * t_size + o) * slot, slot,
			  MPI_BYTE, w.win));
		M(MPI_Win_flush(t, w.win));
		if (!T_BYTES("get", got, expect, slot))
			break;
	}
	M(MPI_Win_unlock_all(w.win));
	tw_free(&w);
	free(src);
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	buf = malloc(WIN);
	want = malloc(WIN);
	for (int f = 0; f < TW_FLAVORS; f++)
		if (t_begin("%s", tw_names[f])) {
			flavor(f);
			t_end();
		}
	T_RUN(all_to_all, 1);
	free(buf);
	free(want);
	return t_fini();
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Flattened datatypes against the MPI library: random nested types must give the bytes of
 * MPI_Pack in the order of MPI_Pack, and the bounds of the library. An MPI program of one process.
 *
 *   TEST_SEED=N  seed of all random choices (printed); TEST_ROUNDS=N
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hooks_gen.h"

struct hooks hooks;

/* The library's, counted: it begins each look into a type. */
static unsigned int looks;
#if MPI_VERSION >= 4
int PMPI_Type_get_envelope_c(MPI_Datatype type, MPI_Count *ints, MPI_Count *addrs, MPI_Count *counts, MPI_Count *types,
			     int *combiner)
{
	static __typeof__(&PMPI_Type_get_envelope_c) real;

	looks++;
	if (!real)
		real = (__typeof__(real))dlsym(RTLD_NEXT, "PMPI_Type_get_envelope_c");
	return real(type, ints, addrs, counts, types, combiner);
}
#else
int PMPI_Type_get_envelope(MPI_Datatype type, int *ints, int *addrs, int *types, int *combiner)
{
	static __typeof__(&PMPI_Type_get_envelope) real;

	looks++;
	if (!real)
		real = (__typeof__(real))dlsym(RTLD_NEXT, "PMPI_Type_get_envelope");
	return real(type, ints, addrs, types, combiner);
}
#endif

/* As real.c has it. */
const struct mpi_version *real_version(void)
{
	static struct mpi_version v;
	char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int len;

	MPI_Get_library_version(text, &len);
	mpi_version_parse(&v, text);
	return &v;
}

static uint64_t state;
static int tests, failures;

static uint64_t rnd(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static int below(int n)
{
	return (int)(rnd() % (uint64_t)n);
}

static void verdict(bool ok, const char *name, const char *detail)
{
	printf("%sok %d - %s\n", ok ? "" : "not ", ++tests, name);
	if (!ok) {
		printf("# %s\n", detail);
		failures++;
	}
}

static const MPI_Datatype *basics(int *n)
{
	static MPI_Datatype list[] = {
		MPI_BYTE, MPI_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_FLOAT, MPI_DOUBLE,
		MPI_UNSIGNED_CHAR, MPI_UINT16_T, MPI_C_BOOL, MPI_C_DOUBLE_COMPLEX, MPI_FLOAT_INT,
		MPI_DOUBLE_INT, MPI_SHORT_INT, MPI_LONG_INT, MPI_2INT, MPI_INT64_T, MPI_INTEGER,
		MPI_DOUBLE_PRECISION,
	};

	*n = sizeof(list) / sizeof(list[0]);
	return list;
}

enum {
	CONTIGUOUS, VECTOR, HVECTOR, INDEXED, HINDEXED, INDEXED_BLOCK, HINDEXED_BLOCK, STRUCT,
	SUBARRAY, DARRAY, RESIZED, DUP, KINDS
};
static const char *const kind_name[KINDS] = {
	"contiguous", "vector", "hvector", "indexed", "hindexed", "indexed_block",
	"hindexed_block", "struct", "subarray", "darray", "resized", "dup",
};

static char recipe[1000];

static void note(const char *text)
{
	strncat(recipe, text, sizeof(recipe) - strlen(recipe) - 1);
	strncat(recipe, " ", sizeof(recipe) - strlen(recipe) - 1);
}

static int make_darray(MPI_Datatype old, MPI_Datatype *out)
{
	int n = 1 + below(3), size = 1, g[3], dist[3], darg[3], ps[3], bytes = 0, rc;

	for (int i = 0; i < n; i++) {
		static const int kinds[] = { MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC,
					     MPI_DISTRIBUTE_NONE };

		g[i] = 1 + below(6);
		dist[i] = kinds[below(3)];
		ps[i] = dist[i] == MPI_DISTRIBUTE_NONE ? 1 : 1 + below(3);
		darg[i] = MPI_DISTRIBUTE_DFLT_DARG;
		if (dist[i] == MPI_DISTRIBUTE_BLOCK && below(2))
			darg[i] = (g[i] + ps[i] - 1) / ps[i] + below(2);
		if (dist[i] == MPI_DISTRIBUTE_CYCLIC && below(2))
			darg[i] = 1 + below(3);
		size *= ps[i];
	}
	rc = MPI_Type_create_darray(size, below(size), n, g, dist, darg, ps,
				    below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old, out);
	if (rc || MPI_Type_size(*out, &bytes) || bytes)
		return rc;
	/*
	 * A member of no elements. In a struct, Open MPI's MPI_Pack forgets the extent that such a
	 * type has and packs what follows as if it lay one behind the other.
	 */
	MPI_Type_free(out);
	return MPI_ERR_TYPE;
}

static int make_subarray(MPI_Datatype old, MPI_Datatype *out, bool large)
{
	int n = 1 + below(3), sizes[3], sub[3], start[3];
	int order = below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;

	for (int i = 0; i < n; i++) {
		sizes[i] = 1 + below(5);
		sub[i] = 1 + below(sizes[i]);
		start[i] = below(sizes[i] - sub[i] + 1);
	}
#if MPI_VERSION >= 4
	if (large) {
		MPI_Count a[3], b[3], c[3];

		for (int i = 0; i < n; i++) {
			a[i] = sizes[i];
			b[i] = sub[i];
			c[i] = start[i];
		}
		return MPI_Type_create_subarray_c(n, a, b, c, order, old, out);
	}
#endif
	return MPI_Type_create_subarray(n, sizes, sub, start, order, old, out);
}

#if MPI_VERSION >= 4
/* the large-count form of some constructors; false: not one of them */
static bool make_large(int kind, MPI_Datatype old, MPI_Datatype *out, int n, const int *lens,
		       const int *disps, const MPI_Aint *bytes)
{
	MPI_Count l[4], d[4];
	MPI_Datatype same[4] = { old, old, old, old };

	for (int i = 0; i < n; i++) {
		l[i] = lens[i];
		d[i] = kind == INDEXED || kind == INDEXED_BLOCK ? disps[i] : bytes[i];
	}
	switch (kind) {
	case CONTIGUOUS:
		return !MPI_Type_contiguous_c(n, old, out);
	case VECTOR:
		return !MPI_Type_vector_c(n, l[0], disps[0], old, out);
	case HVECTOR:
		return !MPI_Type_create_hvector_c(n, l[0], bytes[0], old, out);
	case INDEXED:
		return !MPI_Type_indexed_c(n, l, d, old, out);
	case HINDEXED:
		return !MPI_Type_create_hindexed_c(n, l, d, old, out);
	case INDEXED_BLOCK:
		return !MPI_Type_create_indexed_block_c(n, l[0], d, old, out);
	case HINDEXED_BLOCK:
		return !MPI_Type_create_hindexed_block_c(n, l[0], d, old, out);
	case STRUCT:
		return !MPI_Type_create_struct_c(n, l, d, same, out);
	default:
		return false;
	}
}
#endif

/* One more constructor around @old, which is freed unless predefined. */
static MPI_Datatype wrap(MPI_Datatype old, int kind, bool large)
{
	int n = 1 + below(4), lens[4], disps[4], nb, ni, na, nt, comb, rc = 0;
	const MPI_Datatype *b = basics(&nb);
	MPI_Datatype types[4], out = MPI_DATATYPE_NULL;
	MPI_Aint lb, extent, bytes[4];
	char numbers[160];

	MPI_Type_get_extent(old, &lb, &extent);
	for (int i = 0; i < n; i++) {
		/* never empty: MPI_Pack of both libraries errs on some nestings of empty types */
		lens[i] = 1 + below(3);
		disps[i] = below(12) - 4;
		bytes[i] = (below(24) - 8) * (MPI_Aint)4;
		types[i] = below(2) ? old : b[below(nb)];
	}
	if (disps[0] == -1)
		disps[0] = -2;	/* Open MPI 4.1 takes a vector of stride -1 for contiguous */
	note(kind_name[kind]);
	snprintf(numbers, sizeof(numbers), "(n %d len %d,%d,%d,%d disp %d,%d,%d,%d bytes %ld,%ld,%ld,%ld extent %ld)",
		 n, lens[0], lens[1], lens[2], lens[3], disps[0], disps[1], disps[2], disps[3],
		 (long)bytes[0], (long)bytes[1], (long)bytes[2], (long)bytes[3], (long)extent);
	note(numbers);
#if MPI_VERSION >= 4
	if (large && kind != SUBARRAY && make_large(kind, old, &out, n, lens, disps, bytes)) {
		note("(large)");
		goto made;
	}
#endif
	switch (kind) {
	case CONTIGUOUS:
		rc = MPI_Type_contiguous(n, old, &out);
		break;
	case VECTOR:
		rc = MPI_Type_vector(n, lens[0], disps[0], old, &out);
		break;
	case HVECTOR:
		rc = MPI_Type_create_hvector(n, lens[0], bytes[0], old, &out);
		break;
	case INDEXED:
		rc = MPI_Type_indexed(n, lens, disps, old, &out);
		break;
	case HINDEXED:
		rc = MPI_Type_create_hindexed(n, lens, bytes, old, &out);
		break;
	case INDEXED_BLOCK:
		rc = MPI_Type_create_indexed_block(n, lens[0], disps, old, &out);
		break;
	case HINDEXED_BLOCK:
		rc = MPI_Type_create_hindexed_block(n, lens[0], bytes, old, &out);
		break;
	case STRUCT:
		types[0] = old;
		rc = MPI_Type_create_struct(n, lens, bytes, types, &out);
		break;
	case SUBARRAY:
		rc = make_subarray(old, &out, large);
		break;
	case DARRAY:
		rc = make_darray(old, &out);
		break;
	case RESIZED:
		rc = MPI_Type_create_resized(old, lb + (below(5) - 2) * 4, extent + below(4) * 8, &out);
		break;
	default:
		rc = MPI_Type_dup(old, &out);
		break;
	}
#if MPI_VERSION >= 4
made:
#endif
	/* Open MPI refuses some of the darrays that MPI allows; nothing empty (see above) */
	if (rc) {
		note("(not made)");
		MPI_Type_dup(old, &out);
	}
	MPI_Type_get_envelope(old, &ni, &na, &nt, &comb);
	if (comb != MPI_COMBINER_NAMED)
		rc = MPI_Type_free(&old);
	return out;
}

static bool differ(char *why, size_t len, const char *what, long long got, long long want)
{
	if (got == want)
		return false;
	snprintf(why, len, "seed recipe '%s': %s is %lld, expected %lld", recipe, what, got, want);
	return true;
}

/* Compare everything that can be asked of the library. */
static bool check_type(MPI_Datatype type, int count, char *why, size_t len)
{
	MPI_Aint lb, extent;
	const struct htype *t;
	char *buf, *mine, *theirs, *back;
	int64_t lo, hi;
	int size, pos = 0, rc;
	bool bad = false;

	rc = htype_get(type, &t);
	if (differ(why, len, "htype_get", rc, MPI_SUCCESS))
		return false;
	MPI_Type_size(type, &size);
	MPI_Type_get_extent(type, &lb, &extent);
	if (differ(why, len, "size", (long long)prog_dtype_size(t->dt), size) ||
	    differ(why, len, "lb", prog_dtype_lb(t->dt), lb) ||
	    differ(why, len, "extent", prog_dtype_extent(t->dt), extent))
		return false;
	if (!size)
		return true;
	/* true bounds are not compared: both libraries count empty blocks in some nestings */
	if (differ(why, len, "prog_dtype_span", prog_dtype_span(t->dt, (uint64_t)count, &lo, &hi), 0))
		return false;

	/* room on both sides: MPI may look at what lies between blocks */
	buf = malloc((size_t)(hi - lo) + 128);
	back = malloc((size_t)(hi - lo) + 128);
	mine = malloc((size_t)size * (size_t)count + 64);
	theirs = malloc((size_t)size * (size_t)count + 64);
	for (int64_t i = 0; i < hi - lo + 128; i++)
		buf[i] = (char)rnd();
	rc = MPI_Pack(buf + 64 - lo, count, type, theirs, size * count + 64, &pos, MPI_COMM_SELF);
	bad = differ(why, len, "MPI_Pack", rc, MPI_SUCCESS);
	rc = prog_dtype_pack(mine, buf + 64 - lo, t->dt, (uint64_t)count, 0,
			     (size_t)size * (size_t)count);
	bad = bad || differ(why, len, "prog_dtype_pack", rc, 0) ||
	      differ(why, len, "packed bytes", (long long)size * count, pos);
	for (int i = 0; !bad && i < size * count; i++) {
		if (mine[i] != theirs[i]) {
			snprintf(why, len, "recipe '%s' count %d: packed byte %d of %d is %02x, expected %02x",
				 recipe, count, i, size * count, mine[i] & 255, theirs[i] & 255);
			bad = true;
		}
	}
	if (!bad) {
		/* what was packed, unpacked over something else, gives the same bytes again */
		memset(back, 0, (size_t)(hi - lo) + 128);
		rc = prog_dtype_unpack(back + 64 - lo, t->dt, (uint64_t)count, 0, theirs,
				       (size_t)size * (size_t)count);
		bad = differ(why, len, "prog_dtype_unpack", rc, 0);
		memset(theirs, 0, (size_t)size * (size_t)count);
		pos = 0;
		MPI_Pack(back + 64 - lo, count, type, theirs, size * count + 64, &pos,
			 MPI_COMM_SELF);
		/* with overlapping blocks the last one wins, so compare with the same done twice */
		prog_dtype_pack(mine, back + 64 - lo, t->dt, (uint64_t)count, 0,
				(size_t)size * (size_t)count);
		if (!bad && memcmp(mine, theirs, (size_t)size * (size_t)count)) {
			snprintf(why, len, "recipe '%s': bytes differ after unpacking", recipe);
			bad = true;
		}
	}
	free(buf);
	free(back);
	free(mine);
	free(theirs);
	return !bad;
}

static void test_random(int rounds)
{
	char why[1400] = "";
	bool ok = true;
	int i, nb;
	const MPI_Datatype *b = basics(&nb);

	for (i = 0; i < rounds && ok; i++) {
		int k = below(nb), depth = 1 + below(4);
		MPI_Datatype t = b[k];
		char name[32];

		recipe[0] = 0;
		snprintf(name, sizeof(name), "round %d: basic %d", i, k);
		note(name);
		for (int d = 0; d < depth; d++)
			t = wrap(t, i < KINDS && !d ? i : below(KINDS), below(3) == 0);
		MPI_Type_commit(&t);
		ok = check_type(t, 1 + below(3), why, sizeof(why));
		MPI_Type_free(&t);
	}
	verdict(ok, "random nested types are packed as MPI_Pack does", why);
}

static void test_basics(void)
{
	char why[1400] = "";
	bool ok = true;
	int nb;
	const MPI_Datatype *b = basics(&nb);

	for (int i = 0; i < nb && ok; i++) {
		const struct htype *t;

		snprintf(recipe, sizeof(recipe), "basic %d", i);
		ok = check_type(b[i], 3, why, sizeof(why)) && !htype_get(b[i], &t) &&
		     t->predefined && t->basic != PROG_TYPE_MIXED;
	}
	verdict(ok, "predefined types", why);
}

/* buffers named by absolute displacements from MPI_BOTTOM */
static void test_bottom(void)
{
	int a[4] = { 1, 2, 3, 4 }, out[6], len[2] = { 4, 2 }, want[6] = { 1, 2, 3, 4, 5, 6 };
	int *b = malloc(2 * sizeof(*b));
	const struct htype *t;
	MPI_Aint disp[2];
	MPI_Datatype type;
	bool ok;

	b[0] = 5;
	b[1] = 6;
	MPI_Get_address(a, &disp[0]);
	MPI_Get_address(b, &disp[1]);
	MPI_Type_create_hindexed(2, len, disp, MPI_INT, &type);
	MPI_Type_commit(&type);
	ok = !htype_get(type, &t) && !prog_dtype_pack(out, MPI_BOTTOM, t->dt, 1, 0, sizeof(out)) &&
	     !memcmp(out, want, sizeof(want));
	verdict(ok, "absolute displacements from MPI_BOTTOM", "bytes differ");
	MPI_Type_free(&type);
	free(b);
}

static void test_f90(void)
{
	const struct htype *t;
	MPI_Datatype type;
	char why[100];
	int rc;

	MPI_Type_create_f90_integer(9, &type);
	rc = htype_get(type, &t);
	snprintf(why, sizeof(why), "class %d basic %d, expected %d", rc, rc ? 0 : t->basic,
		 PROG_TYPE_I32);
	verdict(!rc && t->basic == PROG_TYPE_I32, "f90 integer", why);
	MPI_Type_create_f90_real(15, 300, &type);
	rc = htype_get(type, &t);
	snprintf(why, sizeof(why), "class %d basic %d, expected %d", rc, rc ? 0 : t->basic,
		 PROG_TYPE_F64);
	verdict(!rc && t->basic == PROG_TYPE_F64, "f90 real", why);
}

static void test_empty(void)
{
	int len[4] = { 0, 2, 0, 1 }, disp[4] = { 9, 1, -3, 5 }, a[8], out[3] = { 0 };
	const int want[3] = { 1, 2, 5 };
	MPI_Datatype empty, list[2], type;
	MPI_Aint where[2] = { -40, 0 };
	const struct htype *t;
	bool ok;

	for (int i = 0; i < 8; i++)
		a[i] = i;
	MPI_Type_contiguous(0, MPI_DOUBLE, &empty);
	MPI_Type_indexed(4, len, disp, MPI_INT, &list[1]);
	list[0] = empty;
	len[0] = 3;
	len[1] = 1;
	MPI_Type_create_struct(2, len, where, list, &type);
	MPI_Type_commit(&type);
	MPI_Type_commit(&empty);
	ok = !htype_get(type, &t) && !prog_dtype_pack(out, a, t->dt, 1, 0, sizeof(out)) &&
	     !memcmp(out, want, sizeof(want)) && !htype_get(empty, &t) && !t->size;
	verdict(ok, "empty blocks and types", "bytes differ");
	MPI_Type_free(&type);
	MPI_Type_free(&list[1]);
	MPI_Type_free(&empty);
}

/* a freed type's handle may come back as another type */
static void test_reuse(void)
{
	const struct htype *t;
	bool ok = true;

	for (int i = 1; i <= 100 && ok; i++) {
		MPI_Datatype type;

		MPI_Type_contiguous(i, MPI_INT, &type);
		MPI_Type_commit(&type);
		ok = !htype_get(type, &t) && t->size == (uint64_t)i * sizeof(int);
		MPI_Type_free(&type);
	}
	verdict(ok, "a handle used again is another type", "size of an earlier type");
}

/* What cannot be flattened is looked into once, and not where the handle is another type's later. */
static void test_refused(void)
{
	const int n = 2 * PROG_DTYPE_MAX_OPS;
	MPI_Aint *at = malloc((size_t)n * sizeof(*at));
	unsigned int before;
	const struct htype *t;
	MPI_Datatype type;
	bool ok;

	for (int i = 0; i < n; i++)
		at[i] = (MPI_Aint)i * 16 + (MPI_Aint)(rnd() % 8);
	MPI_Type_create_hindexed_block(n, 1, at, MPI_BYTE, &type);
	MPI_Type_commit(&type);
	ok = htype_get(type, &t) == MPI_ERR_TYPE;
	before = looks;
	ok &= before && htype_get(type, &t) == MPI_ERR_TYPE && looks == before;
	MPI_Type_free(&type);
	MPI_Type_contiguous(2, MPI_INT, &type);
	MPI_Type_commit(&type);
	ok &= !htype_get(type, &t) && looks > before;
	verdict(ok, "a type of too many pieces is looked into once", "again, or not refused");
	MPI_Type_free(&type);
	free(at);
}

static void test_ops(void)
{
	MPI_Op user;
	bool ok;

	MPI_Op_create((MPI_User_function *)abort, 1, &user);
	ok = hop_get(MPI_SUM) == PROG_OP_SUM && hop_get(MPI_MAXLOC) == PROG_OP_MAXLOC &&
	     hop_get(MPI_REPLACE) == PROG_OP_REPLACE && !hop_get(user) && !hop_get(MPI_OP_NULL);
	verdict(ok, "operations", "wrong number");
	MPI_Op_free(&user);
}

int main(int argc, char **argv)
{
	const char *seed = getenv("TEST_SEED"), *rounds = getenv("TEST_ROUNDS");
	const struct htype *t;

	MPI_Init(&argc, &argv);
	MPI_Comm_dup(MPI_COMM_SELF, &hooks.self);
	MPI_Comm_set_errhandler(hooks.self, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
	printf("1..10\n# seed %llu\n", (unsigned long long)state);
	if (htype_init()) {
		printf("Bail out! htype_init failed\n");
		return 1;
	}
	test_basics();
	/* not many more: after about a thousand types MPICH 4.0's MPI_Pack packs short */
	test_random(rounds ? atoi(rounds) : 600);
	test_bottom();
	test_empty();
	test_f90();
	test_reuse();
	test_refused();
	test_ops();
	verdict(htype_get(MPI_DATATYPE_NULL, &t) == MPI_ERR_TYPE, "MPI_DATATYPE_NULL is refused",
		"accepted");
	MPI_Comm_free(&hooks.self);
	MPI_Finalize();
	return failures ? 1 : 0;
}

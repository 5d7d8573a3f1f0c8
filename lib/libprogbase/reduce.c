// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <string.h>

#define REDUCE_FNS reduce_fns
#define REDUCE_WIDE_FNS reduce_wide_fns
#include "reduce_loops.h"

#define TYPE_ROW(T, NAME, PSIZE, EXT, P0, OFF1, P1) \
	[PROG_TYPE_##T] = { \
		.name = NAME, .packed = PSIZE, .extent = EXT, \
		.used = (P1) ? (OFF1) + (P1) : (P0), \
		.part0 = P0, .part1_off = OFF1, .part1 = P1, \
	},

const struct reduce_type reduce_types[PROG_TYPE_END] = { PROG_TYPE_TABLE(TYPE_ROW) };

static const char *const op_names[PROG_OP_END] = {
	[PROG_OP_SUM] = "sum", [PROG_OP_PROD] = "prod", [PROG_OP_MIN] = "min",
	[PROG_OP_MAX] = "max", [PROG_OP_LAND] = "land", [PROG_OP_LOR] = "lor",
	[PROG_OP_LXOR] = "lxor", [PROG_OP_BAND] = "band", [PROG_OP_BOR] = "bor",
	[PROG_OP_BXOR] = "bxor", [PROG_OP_MINLOC] = "minloc", [PROG_OP_MAXLOC] = "maxloc",
	[PROG_OP_REPLACE] = "replace", [PROG_OP_NO_OP] = "no_op",
};

const char *reduce_op_name(unsigned int op)
{
	return op < PROG_OP_END ? op_names[op] : NULL;
}

#if defined(__x86_64__)
/* By hand: __builtin_cpu_supports() brings a constructor, and these libraries are preloaded into everything. */
static bool has_avx2(void)
{
	unsigned int a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX))
		return false;
	/* does the kernel keep the upper halves? */
	__asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
	return (a & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_AVX2;
}
#else
#define reduce_fns_avx2		reduce_fns
#define reduce_wide_fns_avx2	reduce_wide_fns

static bool has_avx2(void)
{
	return false;
}
#endif

reduce_row *reduce_chosen;

/* Not by ifunc: resolvers run early in every program that the libraries are preloaded into. */
reduce_row *reduce_choose(void)
{
	reduce_row *rows = has_avx2() ? reduce_fns_avx2 : reduce_fns;

	__atomic_store_n(&reduce_chosen, rows, __ATOMIC_RELAXED);
	return rows;
}

reduce_fn *reduce_loop_wide(unsigned int op, unsigned int type)
{
	if (op - PROG_OP_MINLOC >= REDUCE_WIDE || type >= PROG_TYPE_END)
		return NULL;
	return (reduce_rows() == reduce_fns_avx2 ? reduce_wide_fns_avx2 : reduce_wide_fns)[type][op - PROG_OP_MINLOC];
}

bool reduce_valid(unsigned int op, unsigned int type)
{
	return reduce_loop(op, type);
}

void reduce_apply(unsigned int op, unsigned int type, void *inout, const void *in, size_t n)
{
	reduce_fn *fn = reduce_loop(op, type);

	if (fn && n)
		fn(inout, in, n);
}

/* Sizes as constants: memcpy becomes a move. */
static inline __attribute__((always_inline)) void
copy_elems(char *dst, const char *src, size_t n, size_t dpitch, size_t doff1, size_t spitch,
	   size_t soff1, size_t part0, size_t part1)
{
	for (; n; n--, dst += dpitch, src += spitch) {
		memcpy(dst, src, part0);
		memcpy(dst + doff1, src + soff1, part1);
	}
}

void reduce_pack(unsigned int type, void *packed, const void *mem, size_t n)
{
	const struct reduce_type *t = reduce_type(type);

	if (!t || !n)
		return;
	if (!reduce_type_has_gap(t))
		memcpy(packed, mem, n * t->packed);
	else if (t->part0 == 8)
		copy_elems(packed, mem, n, 12, 8, 16, 8, 8, 4);
	else if (t->part0 == 2)
		copy_elems(packed, mem, n, 6, 2, 8, 4, 2, 4);
	else
		copy_elems(packed, mem, n, 20, 16, 32, 16, 16, 4);
}

void reduce_unpack(unsigned int type, void *mem, const void *packed, size_t n)
{
	const struct reduce_type *t = reduce_type(type);

	if (!t || !n)
		return;
	if (!reduce_type_has_gap(t))
		memcpy(mem, packed, n * t->packed);
	else if (t->part0 == 8)
		copy_elems(mem, packed, n, 16, 8, 12, 8, 8, 4);
	else if (t->part0 == 2)
		copy_elems(mem, packed, n, 8, 4, 6, 2, 2, 4);
	else
		copy_elems(mem, packed, n, 32, 16, 20, 16, 16, 4);
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * reduce: arithmetic of accumulates. One loop per (operation, type), for every predefined
 * combination of MPI 3.1 (section 5.9.2 and 5.9.4) and some more. Nothing here is atomic: apply.h is.
 * All functions are thread-safe (no state) and never fail once reduce_valid() said yes.
 */
#ifndef PROGBASE_REDUCE_H
#define PROGBASE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <wire/optype.h>

/* What is known of a basic type; sizes in bytes. */
struct reduce_type {
	const char *name;
	uint8_t packed;		/* bytes of one packed element */
	uint8_t extent;		/* distance of neighbours in memory */
	uint8_t used;		/* end of the last byte that belongs to the element in memory */
	uint8_t part0;		/* bytes of the first part (which is at 0) */
	uint8_t part1_off;	/* pairs: offset of the second part in memory, else 0 */
	uint8_t part1;		/* pairs: bytes of the second part, else 0 */
};

extern const struct reduce_type reduce_types[PROG_TYPE_END];

/* The row of a type, or NULL if @type is no type number. @type may come from anywhere. */
static inline const struct reduce_type *reduce_type(unsigned int type)
{
	return type < PROG_TYPE_END && reduce_types[type].packed ? &reduce_types[type] : NULL;
}

/* Name of an operation ("sum"), or NULL if @op is no operation number. */
const char *reduce_op_name(unsigned int op);

/* Does memory layout differ from packed layout (double-int, long-int, short-int, ...)? */
static inline bool reduce_type_has_gap(const struct reduce_type *t)
{
	return t->packed != t->extent;
}

/* Bytes of memory from the first of @n neighbours to the last byte that belongs to one. */
static inline uint64_t reduce_span(const struct reduce_type *t, uint64_t n)
{
	return n ? (n - 1) * t->extent + t->used : 0;
}

/*
 * May @op be applied to @type? REPLACE and NO_OP to all; arithmetic and comparison to
 * integers and floating point; SUM and PROD also to complex; logical operations to integers
 * and logicals; bitwise ones to integers and BYTE; MINLOC and MAXLOC to pairs. Any numbers
 * may be passed in. Beyond MPI 3.1, as MPI libraries do: integers are also CHAR, BYTE and
 * Fortran's logicals; float, double and long double have LXOR.
 */
bool reduce_valid(unsigned int op, unsigned int type);

typedef void reduce_fn(void *inout, const void *in, size_t n);
typedef reduce_fn *const reduce_row[PROG_TYPE_END];
/* Loops of this processor, by operation and type; set by reduce_choose() only; atomic; NULL: not known yet. */
extern reduce_row *reduce_chosen;
reduce_row *reduce_choose(void);

static inline reduce_row *reduce_rows(void)
{
	reduce_row *rows = __atomic_load_n(&reduce_chosen, __ATOMIC_RELAXED);

	return __builtin_expect(rows != NULL, 1) ? rows : reduce_choose();
}

/* The loop that does it, NULL if it may not; see reduce_apply(). */
static inline reduce_fn *reduce_loop(unsigned int op, unsigned int type)
{
	return op < PROG_OP_END && type < PROG_TYPE_END ? reduce_rows()[op][type] : NULL;
}

/* MINLOC, MAXLOC and REPLACE of pairs with a gap, whose input is as in memory, too; NULL for all else. */
reduce_fn *reduce_loop_wide(unsigned int op, unsigned int type);

#define REDUCE_WIDE	3	/* MINLOC, MAXLOC, REPLACE: neighbouring numbers */

/* Is there such a loop? */
static inline bool reduce_has_wide(unsigned int op, const struct reduce_type *t)
{
	return op - PROG_OP_MINLOC < REDUCE_WIDE && reduce_type_has_gap(t);
}

/*
 * inout[i] = inout[i] op in[i] for i < n.
 *
 * @inout: n elements in memory layout (at the type's extent); gaps are neither read nor
 *	written. @in: n packed elements. Neither needs any alignment. They do not overlap.
 * The caller has checked reduce_valid(op, type); an invalid combination does nothing.
 *
 * Semantics: integer SUM and PROD wrap; logical results are 0 or 1 and any value but 0 is
 * true; MIN and MAX are `in < inout ? in : inout` (and >), so a NaN on either side leaves
 * inout; MINLOC and MAXLOC take the lower index of equal values; complex PROD follows C
 * (Annex G) except for float128, which is computed by the plain formula.
 */
void reduce_apply(unsigned int op, unsigned int type, void *inout, const void *in, size_t n);

/* Loops by instruction set; for reduce.c. */
extern reduce_row reduce_fns[PROG_OP_END];
extern reduce_row reduce_fns_avx2[PROG_OP_END];
extern reduce_fn *const reduce_wide_fns[PROG_TYPE_END][REDUCE_WIDE];
extern reduce_fn *const reduce_wide_fns_avx2[PROG_TYPE_END][REDUCE_WIDE];

/* Memory layout to packed and back, @n elements; no alignment needed, no overlap allowed. */
void reduce_pack(unsigned int type, void *packed, const void *mem, size_t n);
void reduce_unpack(unsigned int type, void *mem, const void *packed, size_t n);

#endif

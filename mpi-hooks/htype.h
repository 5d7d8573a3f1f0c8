/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * htype.h - what the files of datatypes share.
 *
 *   dtype_basic.c    predefined types
 *   dtype_decode.c   derived types, flattened
 *   dtype.c          looking types up; what is kept of them
 */
#ifndef HOOKS_HTYPE_H
#define HOOKS_HTYPE_H

#include "hooks.h"

#pragma GCC visibility push(hidden)

/* What a predefined type is; with its size it gives a PROG_TYPE_*. */
enum htype_family {
	HTYPE_INT, HTYPE_UINT, HTYPE_LOGICAL, HTYPE_BOOLEAN, HTYPE_REAL, HTYPE_QUAD, HTYPE_LDBL,
	HTYPE_CPLX, HTYPE_CQUAD, HTYPE_CLDBL, HTYPE_FIXED,
};

/* PROG_TYPE_* of a member of @family of @size bytes, 0 if there is none. */
unsigned int htype_basic_of(enum htype_family family, unsigned int fixed, int size);
/* The table of predefined types; once, before what follows. */
int htype_basic_init(void);
/* NULL: @type is none. */
const struct htype *htype_predefined(MPI_Datatype type);
/* The rest of @t from t->dt. */
void htype_fill(struct htype *t);

/* @ldouble becomes true when the type has long doubles, and is left alone when not. */
int htype_decode(MPI_Datatype type, struct dtype **out, bool *ldouble);

#pragma GCC visibility pop

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Datatypes together with their typemap, computed here from the text of the standard and not
 * by asking the library, so that the placement of every byte can be predicted. Only extents
 * are taken from the library (alignment padding is its choice).
 */
#ifndef DTMAP_H
#define DTMAP_H

#include "mpitest.h"

struct dt_elem {
	MPI_Aint disp;
	int size;
};

struct dtmap {
	MPI_Datatype type;	/* committed */
	bool own;		/* type is freed by dt_free */
	int n;			/* elements of one instance */
	struct dt_elem *e;	/* in typemap order */
	MPI_Aint lb, extent;
	char desc[400];
};

/* a predefined type; @size must be its size */
struct dtmap dt_basic(MPI_Datatype type, int size, const char *name);
/* struct of the @n predefined types at the given displacements */
struct dtmap dt_mixed(int n, const MPI_Datatype *types, const int *sizes, const MPI_Aint *disps);
void dt_free(struct dtmap *m);

enum dt_kind {
	DT_CONTIGUOUS,
	DT_VECTOR,
	DT_HVECTOR,
	DT_INDEXED,
	DT_HINDEXED,
	DT_INDEXED_BLOCK,
	DT_HINDEXED_BLOCK,
	DT_STRUCT,
	DT_SUBARRAY_C,
	DT_SUBARRAY_F,
	DT_DARRAY,
	DT_RESIZED,
	DT_DUP,
	DT_KINDS
};
extern const char *const dt_kind_names[DT_KINDS];

/* wraps @m (consumed: its type is freed, as MPI allows) in one more constructor with random
 * parameters; displacements stay multiples of @align bytes */
struct dtmap dt_wrap(struct t_rng *r, enum dt_kind kind, struct dtmap m, int align);
/* lowest and highest byte (exclusive) of @count instances; false if some bytes overlap */
bool dt_range(const struct dtmap *m, int count, MPI_Aint *lo, MPI_Aint *hi);
/* address of element @i of @count instances at @base */
static inline unsigned char *dt_at(const struct dtmap *m, void *base, int i)
{
	return (unsigned char *)base + (MPI_Aint)(i / m->n) * m->extent + m->e[i % m->n].disp;
}
/* what MPI does for a put: element by element in typemap order */
void dt_copy(void *dst, const struct dtmap *dm, const void *src, const struct dtmap *sm,
	     int elems);
/* random layout of @depth constructors over @unit without overlap in @count instances and
 * with a span of at most @span bytes; @unit is not consumed */
struct dtmap dt_random(struct t_rng *r, const struct dtmap *unit, int depth, int count,
		       MPI_Aint span, int align);

#endif

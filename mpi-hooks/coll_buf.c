/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The program's buffers of collectives.  What is one block is used where it is.  Anything else is packed when the collective
 * starts, and unpacked when it has ended: how a type is described differs from rank to rank, and must decide nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "coll.h"
#include "hooks_gen.h"

int hcoll_check_buf(const void *buf, const void *first)
{
	if (unlikely(buf == MPI_IN_PLACE))
		return IS_OMPI ? MPI_ERR_ARG : MPI_ERR_BUFFER;
	return unlikely(!first) ? MPI_ERR_BUFFER : MPI_SUCCESS;
}

/* An MPI class.  What only this member may not be able to do is no error: it counts, and the others learn of it. */
static int part_set(struct hcoll_side *s, struct hcoll_part *p, uintptr_t at, int64_t count, MPI_Datatype type)
{
	const struct htype *t;
	MPI_Count size;

	if (count < 0)
		return MPI_ERR_COUNT;
	p->at = at;
	p->count = (uint64_t)count;
	p->opaque = MPI_DATATYPE_NULL;
	/* MPICH does not look at the type of nothing */
	if (!IS_OMPI && !count)
		return MPI_SUCCESS;
	if (!htype_get(type, &t)) {
		if (__builtin_mul_overflow(p->count, t->size, &p->bytes) || p->bytes > PROG_DTYPE_MAX_BYTES)
			return MPI_ERR_COUNT;
		p->first = t->first;
		if (!t->contig)
			p->dt = prog_dtype_get(t->dt);
		return MPI_SUCCESS;
	}
	if (type == MPI_DATATYPE_NULL || !htype_committed(type) || PMPI_Type_size_x(type, &size) || size < 0)
		return MPI_ERR_TYPE;
	/* more than the library packs at once */
	if (size > INT_MAX)
		s->err = -E2BIG;
	if (__builtin_mul_overflow(p->count, (uint64_t)size, &p->bytes))
		return MPI_ERR_COUNT;
	if (PMPI_Type_dup(type, &p->opaque)) {
		p->opaque = MPI_DATATYPE_NULL;
		s->err = -ENOMEM;
	}
	return MPI_SUCCESS;
}

static int part_check(const void *buf, const struct hcoll_part *p)
{
	if (!p->bytes)
		return MPI_SUCCESS;
	/* of what only the library can read it says nothing here */
	return hcoll_check_buf(buf, p->opaque != MPI_DATATYPE_NULL ? p : (const void *)(p->at + (uintptr_t)p->first));
}

static bool is_block(const struct hcoll_part *p)
{
	return !p->dt && p->opaque == MPI_DATATYPE_NULL;
}

static int side_add(struct hcoll_side *s, const struct hcoll_part *p)
{
	s->scattered |= !is_block(p) && p->bytes;
	s->opaque |= p->opaque != MPI_DATATYPE_NULL;
	return __builtin_add_overflow(s->bytes, p->bytes, &s->bytes) ? MPI_ERR_COUNT : MPI_SUCCESS;
}

int hside_set(struct hcoll_side *s, const void *buf, int64_t count, MPI_Datatype type)
{
	int rc = part_set(s, &s->one, (uintptr_t)buf, count, type);

	s->part = &s->one;
	s->n = 1;
	rc = rc ? rc : part_check(buf, &s->one);
	return rc ? rc : side_add(s, &s->one);
}

int hside_set_parts(struct hcoll_side *s, const void *buf, uint32_t n, struct hook_array counts, struct hook_array displs,
		    MPI_Datatype type, const MPI_Datatype *types)
{
	MPI_Aint lb, extent = 1;
	int rc = MPI_SUCCESS;

	if (n && (!hook_array_given(counts) || !hook_array_given(displs)))
		return MPI_ERR_ARG;
	if (!types && (type == MPI_DATATYPE_NULL || PMPI_Type_get_extent(type, &lb, &extent)))
		return MPI_ERR_TYPE;
	s->mem = hcoll_mem((n + 1u) * (sizeof(*s->part) + 2 * sizeof(*s->off)));
	s->part = s->mem;
	s->off = (uint64_t *)(void *)(s->part + n + 1u);
	s->len = s->off + n + 1u;
	for (uint32_t i = 0; i < n && !rc; i++) {
		uintptr_t at = (uintptr_t)buf + (uintptr_t)(hook_array_at(displs, i) * extent);

		/* counted first: what was set is freed with the rest */
		s->n = i + 1;
		s->part[i].opaque = MPI_DATATYPE_NULL;
		rc = part_set(s, &s->part[i], at, hook_array_at(counts, i), types ? types[i] : type);
		rc = rc ? rc : part_check(buf, &s->part[i]);
		rc = rc ? rc : side_add(s, &s->part[i]);
	}
	if (rc)
		return rc;
	for (uint64_t i = 0, packed = 0; i < n; packed += s->part[i++].bytes) {
		s->off[i] = s->scattered ? packed : s->part[i].at + (uintptr_t)s->part[i].first;
		s->len[i] = s->part[i].bytes;
	}
	return MPI_SUCCESS;
}

static void pack_opaque(const struct hcoll_part *p, unsigned char *packed, bool out)
{
	MPI_Aint lb, extent;
	MPI_Count size = 0;

	PMPI_Type_size_x(p->opaque, &size);
	PMPI_Type_get_extent(p->opaque, &lb, &extent);
	for (uint64_t i = 0; size && i < p->count; i++, packed += size) {
		char *item = (char *)(p->at + (uintptr_t)((MPI_Aint)i * extent));
		int pos = 0;

		if (out)
			PMPI_Unpack(packed, (int)size, &pos, item, 1, p->opaque, hooks.self);
		else
			PMPI_Pack(item, 1, p->opaque, packed, (int)size, &pos, hooks.self);
	}
}

static void move_part(const struct hcoll_part *p, unsigned char *packed, bool out)
{
	void *block = (void *)(p->at + (uintptr_t)p->first);

	if (!p->bytes)
		return;
	if (p->opaque != MPI_DATATYPE_NULL)
		pack_opaque(p, packed, out);
	else if (!p->dt && out)
		memcpy(block, packed, p->bytes);
	else if (!p->dt)
		memcpy(packed, block, p->bytes);
	else if (out)
		prog_dtype_unpack((void *)p->at, p->dt, p->count, 0, packed, p->bytes);
	else
		prog_dtype_pack(packed, (void *)p->at, p->dt, p->count, 0, p->bytes);
}

static void move_all(const struct hcoll_side *s, bool out)
{
	unsigned char *packed = s->packed;

	for (uint32_t i = 0; i < s->n; packed += s->part[i++].bytes)
		move_part(&s->part[i], packed, out);
}

int hside_begin(struct hcoll_side *s, bool fill)
{
	if (!s->scattered)
		return 0;
	s->packed = malloc(s->bytes);
	if (!s->packed)
		return -ENOMEM;
	if (fill)
		move_all(s, false);
	return 0;
}

void *hside_mem(const struct hcoll_side *s)
{
	if (s->packed)
		return s->packed;
	/* offsets of several parts are addresses */
	return s->off || !s->n ? NULL : (void *)(s->one.at + (uintptr_t)s->one.first);
}

void hside_unpack(struct hcoll_side *s)
{
	if (s->packed)
		move_all(s, true);
}

void hside_end(struct hcoll_side *s)
{
	free(s->packed);
	s->packed = NULL;
}

void hside_free(struct hcoll_side *s)
{
	hside_end(s);
	for (uint32_t i = 0; i < s->n; i++) {
		prog_dtype_put(s->part[i].dt);
		if (s->part[i].opaque != MPI_DATATYPE_NULL)
			PMPI_Type_free(&s->part[i].opaque);
	}
	prog_coll_mem_put(s->mem);
}

void hcoll_free(struct hcoll *h)
{
	if (!h)
		return;
	hballot_forget(h);
	hside_free(&h->in);
	hside_free(&h->out);
	prog_coll_mem_put(h->counts);
	prog_coll_mem_put(h);
}

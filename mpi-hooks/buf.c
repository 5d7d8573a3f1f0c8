/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The program's buffers: how the daemon and the library see them, and bytes to and from them.
 *
 * Where a descriptor would not fit, or would be cut in the middle of an element, the library is given a buffer of
 * ours: then a receive sees every descriptor whole.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/mem.h>
#include <libprogbase/reduce.h>

#include "hooks_gen.h"

/* bytes of a long double that are not padding */
#if __LDBL_MANT_DIG__ == 64
#define LDOUBLE_USED	10
#else
#define LDOUBLE_USED	sizeof(long double)
#endif

static bool type_cuts(const struct htype *t)
{
	return t->basic == PROG_TYPE_MIXED || DESC_SIZE % t->elem;
}

/* Is htype_last that of @type now?  Otherwise it is no good one, or one for htype_get(). */
bool buf_type_look(MPI_Datatype type)
{
	unsigned int generation = atomic_load_explicit(&htype_generation, memory_order_acquire);
	const struct htype *t;

	if (htype_get(type, &t) || t->size > INT_MAX)
		return false;
	htype_last = (struct htype_last){
		.type = type, .generation = generation, .size = (uint32_t)t->size, .contig = t->contig, .cuts = type_cuts(t),
		.first = t->first,
	};
	return true;
}

int buf_set(struct rec *r, const void *buf, MPI_Count count, MPI_Datatype type)
{
	const struct htype *t;
	MPI_Count size;

	if (unlikely(count < 0))
		return MPI_ERR_COUNT;
	r->buf = (void *)(uintptr_t)buf;
	r->count = (uint64_t)count;
	if (likely(!htype_get(type, &t))) {
		if (unlikely(__builtin_mul_overflow((uint64_t)count, t->size, &r->cap) ||
			     r->cap > PROG_DTYPE_MAX_BYTES))
			return MPI_ERR_COUNT;
		/* the library may be given other memory than this */
		if (unlikely((uintptr_t)buf + (uintptr_t)t->first == 0) && r->cap)
			return MPI_ERR_BUFFER;
		if (likely(t->contig)) {
			r->buf = (void *)((uintptr_t)buf + (uintptr_t)t->first);
		} else {
			r->dt = prog_dtype_get(t->dt);
			r->dt_type = type;
			r->dt_generation = atomic_load_explicit(&htype_generation, memory_order_relaxed);
		}
		return MPI_SUCCESS;
	}
	/* whatever the library takes has to be counted: MPICH does not look at the type of nothing */
	r->cap = 0;
	if (!IS_OMPI && !count)
		return MPI_SUCCESS;
	if (type == MPI_DATATYPE_NULL || !htype_committed(type) || PMPI_Type_size_x(type, &size) || size < 0)
		return MPI_ERR_TYPE;
	if (__builtin_mul_overflow((uint64_t)count, (uint64_t)size, &r->cap))
		return MPI_ERR_COUNT;
	if (PMPI_Type_dup(type, &r->type))
		return MPI_ERR_NO_MEM;
	r->opaque_type = true;
	return MPI_SUCCESS;
}

/* Would a message of DESC_SIZE bytes end inside of an element of @type? */
static bool cuts(MPI_Datatype type)
{
	const struct htype *t;

	return htype_get(type, &t) || type_cuts(t);
}

int buf_set_land(struct rec *r, void *buf, MPI_Count count, MPI_Datatype type)
{
	r->recv.lib_buf = buf;
	r->recv.lib_count = count;
	r->recv.lib_type = type;
	r->recv.land = NULL;
	if (likely(r->cap < DESC_SIZE)) {
		r->recv.land = r->small;
		r->recv.user_bounce = true;
		r->recv.lib_count = DESC_SIZE;
	} else {
		if (!r->dt && !r->opaque_type)
			r->recv.land = r->buf;
		if (!cuts(type) || (r->recv.land && r->cap > INT_MAX))
			return MPI_SUCCESS;
		if (!r->recv.land) {
			r->recv.land = malloc(r->cap);
			r->recv.user_bounce = true;
		}
		r->recv.lib_type = MPI_BYTE;
		if (!r->recv.land || htype_bytes(r->cap, &r->recv.lib_count, &r->recv.lib_type))
			return MPI_ERR_NO_MEM;
		r->recv.lib_buf = r->recv.land;
		return MPI_SUCCESS;
	}
	r->recv.lib_buf = r->recv.land;
	r->recv.lib_type = MPI_BYTE;
	return MPI_SUCCESS;
}

struct prog_buf buf_prog(const struct rec *r)
{
	return (struct prog_buf){
		.addr = r->buf,
		.type = r->dt,
		.count = r->dt ? r->count : r->cap,
	};
}

/* Packed bytes to items of a type that only the library knows; an item that is not whole keeps its old rest. */
static void write_opaque(struct rec *r, const unsigned char *src, uint64_t len)
{
	MPI_Aint lb, extent;
	MPI_Count size = 0;
	uint64_t items;

	PMPI_Type_size_x(r->type, &size);
	if (size <= 0 || PMPI_Type_get_extent(r->type, &lb, &extent))
		return;
	items = len / (uint64_t)size;
	for (uint64_t i = 0; i <= items && i < r->count; i++) {
		char *at = (char *)r->buf + (MPI_Aint)i * extent;
		uint64_t part = i < items ? (uint64_t)size : len % (uint64_t)size;
		int pos = 0;
		char *item;

		if (!part)
			break;
		if (i < items) {
			PMPI_Unpack(src + i * (uint64_t)size, (int)size, &pos, at, 1, r->type,
				    hooks.self);
			continue;
		}
		item = malloc((size_t)size);
		if (!item)
			break;
		PMPI_Pack(at, 1, r->type, item, (int)size, &pos, hooks.self);
		memcpy(item, src + i * (uint64_t)size, part);
		pos = 0;
		PMPI_Unpack(item, (int)size, &pos, at, 1, r->type, hooks.self);
		free(item);
	}
}

/* To a buffer that may be no more: then the message is nobody's.  As desc_freed(). */
static void write_freed(const struct rec *r, const void *src, uint64_t len)
{
	struct memref self = mem_remote(getpid(), 0), plain = mem_direct(NULL);
	int64_t at = (int64_t)(uintptr_t)r->buf;
	int err;

	err = r->dt ? mem_write_dtype(&self, at, r->dt, r->count, 0, src, len) : mem_write(&self, at, src, len);
	if (err != -EPERM && err != -ENOSYS)
		return;
	if (r->dt)
		mem_write_dtype(&plain, at, r->dt, r->count, 0, src, len);
	else
		mem_write(&plain, at, src, len);
}

void buf_write(struct rec *r, const void *src, uint64_t len)
{
	if (len > r->cap)
		len = r->cap;
	if (unlikely(r->freed) && !r->opaque_type)
		write_freed(r, src, len);
	else if (likely(!r->dt && !r->opaque_type))
		rec_copy(r->buf, src, len);
	else if (r->dt)
		prog_threads_unpack(r->buf, r->dt, r->count, 0, src, len);
	else
		write_opaque(r, src, len);
}

static MPI_Count elements(MPI_Datatype type, uint64_t len)
{
	MPI_Count n = 0;
	MPI_Status st;

	PMPI_Status_set_elements_x(&st, MPI_BYTE, (MPI_Count)len);
	PMPI_Get_elements_x(&st, type, &n);
	return n;
}

/*
 * Does a message of @len bytes end inside of an element of the buffer's type?  MPICH refuses it then, unless the type is one
 * block, of which it copies the bytes that there are, as Open MPI always does.  Where the program freed a type while the receive
 * was under way, and elements differ in size, nobody can be asked: then it is no error.
 */
static bool ends_inside(const struct rec *r, uint64_t len)
{
	const struct reduce_type *basic;

	/* of a type without bytes there is no other length than 0 */
	if (IS_OMPI || likely(!r->dt) || !len || !(len % prog_dtype_size(r->dt)))
		return false;
	basic = reduce_type(prog_dtype_basic(r->dt));
	if (basic)
		return len % basic->packed;
	return r->dt_generation == atomic_load_explicit(&htype_generation, memory_order_relaxed) &&
	       elements(r->dt_type, len) == elements(r->dt_type, len - 1);
}

/*
 * An ordinary message, which the library has put elsewhere.  MPICH copies the long doubles of a type that is not one block as
 * numbers: the buffer keeps their padding.
 */
void buf_write_ordinary(struct rec *r, const void *src, uint64_t len)
{
	unsigned int basic = r->dt ? prog_dtype_basic(r->dt) : PROG_TYPE_MIXED;
	unsigned char part[64 * sizeof(long double)];
	const unsigned char *from = src;

	if (!IS_OMPI && (basic == PROG_TYPE_LDOUBLE || basic == PROG_TYPE_CLDOUBLE)) {
		if (len > r->cap)
			len = r->cap;
		for (uint64_t off = 0, n; off < len; off += n) {
			n = len - off < sizeof(part) ? len - off : sizeof(part);
			prog_dtype_pack(part, r->buf, r->dt, r->count, off, n);
			for (uint64_t i = 0; i < n; i++)
				if (i % sizeof(long double) < LDOUBLE_USED)
					part[i] = from[off + i];
			prog_dtype_unpack(r->buf, r->dt, r->count, off, part, n);
		}
		return;
	}
	buf_write(r, src, len);
}

/* A message of @len bytes was copied into the buffer, not by the library: is it one that the library refuses? */
void buf_check(struct rec *r, uint64_t len)
{
	if (unlikely(len <= r->cap && ends_inside(r, len))) {
		r->err = MPI_ERR_TRUNCATE;
		r->len = 0;
		r->fix = true;
	}
}

/* All packed bytes of the buffer; NULL: no memory.  To be freed. */
void *buf_packed(struct rec *r)
{
	char *copy = malloc(r->cap + 1);
	MPI_Aint lb, extent;
	MPI_Count size = 0;

	if (!copy)
		return NULL;
	if (!r->dt && !r->opaque_type) {
		/* nothing may be at no address */
		if (r->cap)
			memcpy(copy, r->buf, r->cap);
	} else if (r->dt) {
		prog_threads_pack(copy, r->buf, r->dt, r->count, 0, r->cap);
	} else {
		PMPI_Type_size_x(r->type, &size);
		PMPI_Type_get_extent(r->type, &lb, &extent);
		for (uint64_t i = 0; size && i < r->count; i++) {
			int pos = 0;

			PMPI_Pack((char *)r->buf + (MPI_Aint)i * extent, 1, r->type,
				  copy + i * (uint64_t)size, (int)size, &pos, hooks.self);
		}
	}
	return copy;
}

/* From a buffer that may be no more.  Where the kernel does not let us ask for it, it is taken to be there. */
static bool desc_freed(const struct rec *r, struct desc_says *d)
{
	struct memref self = mem_remote(getpid(), 0), plain = mem_direct(NULL);
	int64_t at = (int64_t)(uintptr_t)(r->recv.land ? r->recv.land : r->buf);
	struct dtype *dt = r->recv.land ? NULL : r->dt;
	unsigned char b[DESC_SIZE];
	int err;

	err = dt ? mem_read_dtype(&self, at, dt, r->count, 0, b, sizeof(b)) : mem_read(&self, at, b, sizeof(b));
	if (err == -EPERM || err == -ENOSYS)
		err = dt ? mem_read_dtype(&plain, at, dt, r->count, 0, b, sizeof(b)) : mem_read(&plain, at, b, sizeof(b));
	return !err && desc_check(b, r->c, d);
}

/* The descriptor that has been received by @r, if it is one. */
bool buf_desc(const struct rec *r, struct desc_says *d)
{
	unsigned char b[DESC_SIZE];

	if (unlikely(r->freed))
		return desc_freed(r, d);
	if (r->recv.land)
		return desc_check(r->recv.land, r->c, d);
	return !prog_dtype_pack(b, r->buf, r->dt, r->count, 0, sizeof(b)) && desc_check(b, r->c, d);
}

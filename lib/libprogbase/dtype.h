/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * dtype: flattened datatypes (see wire/dtype.h for the program they compile to): building
 * them as MPI's constructors do, sending and checking them, and walking over the bytes of
 * (type, count) from any packed offset on.
 *
 * A struct dtype is immutable once made and counted by references; all functions may be
 * called from any thread at the same time. Builders take no reference over: the caller still
 * owns each child and puts it when done (the result does not refer to it).
 *
 * Builders return 0 and set *@out, or a negative errno and leave *@out alone:
 *   -ENOMEM
 *   -EINVAL     unknown basic type, negative count or block length
 *   -EOVERFLOW  a size, bound or displacement beyond PROG_DTYPE_MAX_BYTES
 *   -E2BIG      program longer than PROG_DTYPE_MAX_OPS or deeper than PROG_DTYPE_MAX_DEPTH
 * Counts and displacements are 64 bits wide (large-count calls).
 */
#ifndef PROGBASE_DTYPE_H
#define PROGBASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <wire/dtype.h>
#include <wire/optype.h>

/* part of libprogclient's interface */
#pragma GCC visibility push(default)

struct dtype;

/* --- building ----------------------------------------------------------------------- */

/* One element of @type (PROG_TYPE_*): lb 0, extent as in memory. */
int prog_dtype_new_basic(unsigned int type, struct dtype **out);

/*
 * As MPI_Type_contiguous, _create_hvector, _create_hindexed, _create_struct and
 * _create_resized. Displacements and strides in bytes, block lengths in children.
 * lb and ub follow MPI's rules, those on explicit bounds (resized) too, but for one: a
 * struct's ub is not rounded up to an alignment, which is the MPI library's choice. Who
 * knows the library's bounds applies them with prog_dtype_new_resized.
 */
int prog_dtype_new_contiguous(int64_t count, const struct dtype *child, struct dtype **out);
int prog_dtype_new_hvector(int64_t count, int64_t blocklen, int64_t stride,
			   const struct dtype *child, struct dtype **out);
int prog_dtype_new_hindexed(int64_t n, const int64_t *blocklens, const int64_t *disps,
			    const struct dtype *child, struct dtype **out);
/* hindexed with one length for all blocks (hindexed_block) */
int prog_dtype_new_hindexed_block(int64_t n, int64_t blocklen, const int64_t *disps,
				  const struct dtype *child, struct dtype **out);
int prog_dtype_new_struct(int64_t n, const int64_t *blocklens, const int64_t *disps,
			  const struct dtype *const *children, struct dtype **out);
int prog_dtype_new_resized(int64_t lb, int64_t extent, const struct dtype *child,
			   struct dtype **out);

/* One more reference; returns @dt. */
struct dtype *prog_dtype_get(const struct dtype *dt);
/* Drop one; the last frees. NULL is allowed. */
void prog_dtype_put(struct dtype *dt);

/* --- properties --------------------------------------------------------------------- */

uint64_t prog_dtype_size(const struct dtype *dt);	/* packed bytes of one item */
int64_t prog_dtype_lb(const struct dtype *dt);
int64_t prog_dtype_extent(const struct dtype *dt);
int64_t prog_dtype_true_lb(const struct dtype *dt);
int64_t prog_dtype_true_ub(const struct dtype *dt);
/* items adjoin and each is one block, at prog_dtype_true_lb() */
bool prog_dtype_contig(const struct dtype *dt);
/* PROG_TYPE_* of every element, or PROG_TYPE_MIXED when they differ or there is none */
unsigned int prog_dtype_basic(const struct dtype *dt);
/* Is each item one element of @type, at its address, with neighbours as close as in memory? */
bool prog_dtype_is_elements(const struct dtype *dt, unsigned int type);

/* Packed bytes of @count items. -EOVERFLOW beyond PROG_DTYPE_MAX_BYTES. */
int prog_dtype_total(const struct dtype *dt, uint64_t count, uint64_t *total);

/*
 * The byte range [*lo, *hi) that @count items at offset 0 touch: first byte to one past the
 * last (empty, 0 and 0, when they touch nothing). Use it for range checks: *lo may be
 * negative. -EOVERFLOW if an end is beyond PROG_DTYPE_MAX_BYTES.
 */
int prog_dtype_span(const struct dtype *dt, uint64_t count, int64_t *lo, int64_t *hi);

/* Same program and same bounds? Types built in different ways often are. */
bool prog_dtype_equal(const struct dtype *a, const struct dtype *b);
/* Equal types have equal hashes. The same on all nodes. */
uint64_t prog_dtype_hash(const struct dtype *dt);

/* --- wire form ----------------------------------------------------------------------- */

/* Bytes that prog_dtype_encode() writes. */
size_t prog_dtype_encoded_size(const struct dtype *dt);
/* The wire form itself, prog_dtype_encoded_size() bytes; lives as long as @dt. */
const void *prog_dtype_encoded(const struct dtype *dt);
/* Copies it. -ENOSPC if @room is too small. Returns the bytes written. */
ssize_t prog_dtype_encode(const struct dtype *dt, void *buf, size_t room);

/*
 * Read a wire form of @len bytes, which may be anything: every field is checked, and the
 * header must agree with the operations. @buf needs no alignment and is read once (it may
 * be memory that somebody else writes). On error a text that names the field and
 * the limit is put in @err (@err_size bytes, may be 0).
 *   -EINVAL  not a valid program
 *   -EPROTO  a version this code does not know
 *   -E2BIG, -ENOMEM
 */
int prog_dtype_decode(const void *buf, size_t len, struct dtype **out, char *err, size_t err_size);

/* --- walking ------------------------------------------------------------------------- */

/* @count blocks of @bytes each, the first at @off from the buffer address, @stride apart. */
struct prog_dtype_run {
	int64_t off;
	uint64_t bytes;
	int64_t stride;
	uint64_t count;
};

struct prog_dtype_frame {
	const void *node;
	uint64_t iter;		/* iteration the walk is in */
	int64_t base;		/* where this iteration starts */
	uint32_t child;		/* operation of the body the walk is in */
};

/* State of a walk; holds no reference: the type must live as long. Fields are private. */
struct prog_dtype_iter {
	const struct dtype *dt;
	uint64_t count;		/* items */
	uint64_t left;		/* packed bytes not yet visited */
	uint64_t total;
	struct prog_dtype_run cur;	/* block operation the walk is in */
	uint64_t idx;		/* block of it */
	uint64_t in;		/* bytes of that block already visited */
	uint32_t depth;		/* frames in use; 0: cur is all there is */
	struct prog_dtype_frame frame[PROG_DTYPE_MAX_DEPTH + 2];
};

/*
 * Start at packed offset @packed_off of (@dt, @count). 0, -EOVERFLOW (see prog_dtype_span and
 * prog_dtype_total) or -ERANGE (offset beyond the end).
 */
int prog_dtype_iter_init(struct prog_dtype_iter *it, const struct dtype *dt, uint64_t count,
			 uint64_t packed_off);

/* Go to another packed offset: O(depth * log of the longest body). -ERANGE beyond the end. */
int prog_dtype_iter_seek(struct prog_dtype_iter *it, uint64_t packed_off);

/* Packed bytes that are left. */
static inline uint64_t prog_dtype_iter_left(const struct prog_dtype_iter *it)
{
	return it->left;
}

/*
 * The next run of contiguous bytes, at most @max of them: sets *@off (from the buffer
 * address) and *@len. False at the end (or if @max is 0).
 */
bool prog_dtype_iter_next(struct prog_dtype_iter *it, uint64_t max, int64_t *off, uint64_t *len);

/*
 * The next group of equal blocks at a constant stride, at most @max bytes in all. A block
 * that the walk is inside of, or of which @max covers a part only, comes alone (count 1).
 */
bool prog_dtype_iter_next_run(struct prog_dtype_iter *it, uint64_t max, struct prog_dtype_run *run);

/*
 * Copy the packed bytes [packed_off, packed_off + len) of (@dt, @count) from the typed
 * buffer at @base into @dst (pack), or from @src into the typed buffer (unpack). @base is
 * the address MPI calls buf; the type's lb is not added; it may be NULL (MPI_BOTTOM).
 * 0, -EOVERFLOW or -ERANGE as above; nothing is copied then. Addresses are not checked.
 */
int prog_dtype_pack(void *dst, const void *base, const struct dtype *dt, uint64_t count,
		    uint64_t packed_off, size_t len);
int prog_dtype_unpack(void *base, const struct dtype *dt, uint64_t count, uint64_t packed_off,
		      const void *src, size_t len);

/* Old names, for one release, as in progclient.h. */
#ifndef PROG_NO_OLD_NAMES
#define dtype_basic			prog_dtype_basic
#define dtype_contig			prog_dtype_contig
#define dtype_decode			prog_dtype_decode
#define dtype_encode			prog_dtype_encode
#define dtype_encoded			prog_dtype_encoded
#define dtype_encoded_size		prog_dtype_encoded_size
#define dtype_equal			prog_dtype_equal
#define dtype_extent			prog_dtype_extent
#define dtype_frame			prog_dtype_frame
#define dtype_get			prog_dtype_get
#define dtype_hash			prog_dtype_hash
#define dtype_iter			prog_dtype_iter
#define dtype_iter_init			prog_dtype_iter_init
#define dtype_iter_left			prog_dtype_iter_left
#define dtype_iter_next			prog_dtype_iter_next
#define dtype_iter_next_run		prog_dtype_iter_next_run
#define dtype_iter_seek			prog_dtype_iter_seek
#define dtype_lb			prog_dtype_lb
#define dtype_new_basic			prog_dtype_new_basic
#define dtype_new_contiguous		prog_dtype_new_contiguous
#define dtype_new_hindexed		prog_dtype_new_hindexed
#define dtype_new_hindexed_block	prog_dtype_new_hindexed_block
#define dtype_new_hvector		prog_dtype_new_hvector
#define dtype_new_resized		prog_dtype_new_resized
#define dtype_new_struct		prog_dtype_new_struct
#define dtype_pack			prog_dtype_pack
#define dtype_put			prog_dtype_put
#define dtype_run			prog_dtype_run
#define dtype_size			prog_dtype_size
#define dtype_span			prog_dtype_span
#define dtype_total			prog_dtype_total
#define dtype_true_lb			prog_dtype_true_lb
#define dtype_true_ub			prog_dtype_true_ub
#define dtype_unpack			prog_dtype_unpack
#endif

#pragma GCC visibility pop

#endif

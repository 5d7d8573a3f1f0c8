/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * apply: the one place where an operation changes or reads window memory. Used by the
 * origin itself for targets it has mapped, by the daemon (mapped or CMA) and by the client's
 * helper thread.
 *
 * Accumulate-class operations (apply_acc, apply_cas) are atomic per element against each
 * other, from any process and by any path. The method is a property of the window and of
 * the element's type and address:
 *  - window without `singles` (a daemon may write it): stripe locks for all elements;
 *  - window with `singles` (only processes that map it, and all of them with `singles`):
 *    a call for one element of up to 8 bytes at an address aligned to its size (pairs of up to
 *    8 bytes of extent too) announces it (see stripe.h) and uses an atomic instruction; a call for
 *    several such elements locks their stripes and waits for announced ones; all other elements
 *    are changed under stripe locks.
 * A lock is held for at most one STRIPE_PAGE of mapped data, or a read and a write of eight of
 * another process's. Mappings of such a window in different processes are congruent modulo 8
 * (any two mappings of one memfd are).
 *
 * No non-temporal stores are made here. memcpy may use them for large blocks but fences
 * before it returns; a release store after any call here publishes what it wrote.
 *
 * Every call checks the range and returns a negative errno without having touched anything:
 *   -ERANGE     outside [lo, hi) of the window, or fragment beyond (type, count)
 *   -EINVAL     operation and type do not go together; datatype is mixed or of another
 *               basic type; offset or length is not a multiple of the element
 *   -EOVERFLOW  count or bounds beyond the limits of dtype.h
 * and, with a part possibly done:
 *   -EFAULT, -ESRCH, -EPERM, -ENOSYS (see mem.h), -ETIMEDOUT (a stripe was not free in time).
 * All functions are thread-safe.
 */
#ifndef PROGBASE_APPLY_H
#define PROGBASE_APPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libprogbase/dtype.h>
#include <libprogbase/mem.h>
#include <libprogbase/reduce.h>
#include <libprogbase/stripe.h>

/* One rank's window as the caller reaches it. The caller owns it; never changed here. */
struct apply_win {
	struct memref mem;	/* where displacement 0 is */
	int64_t lo, hi;		/* displacements that may be touched: [lo, hi), in bytes.
				 * Dynamic windows: the attached range, base address 0 */
	uint32_t *stripes;	/* mapped here; required unless only put and get are used */
	uint32_t stripe_mask;
	uint32_t owner;		/* of the locks this caller takes */
	struct stripe_singles *singles;	/* see above; only with direct memory. NULL: a daemon may
				 * write this window */
	int64_t timeout_ns;	/* for one stripe; < 0: for ever */
	uint32_t *holder;	/* may be NULL: set with -ETIMEDOUT, to the owner of what was not free; atomic, a hint */
};

/*
 * Targets are (@disp, @dt, @count): byte displacement (already multiplied by disp_unit),
 * type and number of items. @dt NULL is contiguous memory: @count is in bytes for put and
 * get, in elements of @type for acc. An operation can be applied in fragments: a call covers
 * the packed bytes [packed_off, packed_off + len) of the whole.
 */
int apply_put(const struct apply_win *w, int64_t disp, const struct dtype *dt, uint64_t count,
	      uint64_t packed_off, const void *src, size_t len);
int apply_get(const struct apply_win *w, int64_t disp, const struct dtype *dt, uint64_t count,
	      uint64_t packed_off, void *dst, size_t len);

/*
 * target[i] = target[i] op payload[i]; with @result (not NULL) also result[i] = the old
 * target[i], in the same atomic step: Accumulate, Get_accumulate, Fetch_and_op.
 *
 * @payload, @result: packed, @len bytes, no alignment needed, not overlapping each other or
 * the target. @payload may be NULL for PROG_OP_NO_OP.
 * @done (may be NULL): packed bytes applied, whatever is returned; after -ETIMEDOUT call
 * again with packed_off, payload, result and len moved on by it, and every element is
 * applied exactly once. After a CMA error the elements of the page in which it happened may
 * or may not have been applied.
 */
int apply_acc(const struct apply_win *w, unsigned int op, unsigned int type, int64_t disp,
	      const struct dtype *dt, uint64_t count, uint64_t packed_off, const void *payload,
	      size_t len, void *result, size_t *done);

/*
 * apply_acc() of all of @count neighbouring elements, of a window that is mapped here (mem_is_direct()): with less to
 * decide.  @done must not be NULL.
 */
int apply_acc_block(const struct apply_win *w, unsigned int op, unsigned int type, int64_t disp, uint64_t count,
		    const void *payload, void *result, size_t *done);

/* The same for a single element; after -ETIMEDOUT nothing was done. */
int apply_acc_one(const struct apply_win *w, unsigned int op, unsigned int type, int64_t disp, const void *payload,
		  void *result);

/*
 * The same for MINLOC, MAXLOC and REPLACE of pairs with a gap (reduce_loop_wide(), else -EINVAL) whose @payload is as in
 * memory.
 * @done counts packed bytes, too.
 */
int apply_acc_wide(const struct apply_win *w, unsigned int op, unsigned int type, int64_t disp, uint64_t count,
		   const void *payload, size_t *done);

/*
 * *result = target; if it equals *compare bit by bit, target = *swap. One element of any type
 * but pairs, else -EINVAL. No alignment needed.
 */
int apply_cas(const struct apply_win *w, unsigned int type, int64_t disp, const void *compare,
	      const void *swap, void *result);

/* Is the element at @p handled by atomic instructions? Depends on window, type and address. */
static inline bool apply_is_native(const struct apply_win *w, const struct reduce_type *t, const void *p)
{
	return w->singles && t->extent <= 8 && !((uintptr_t)p & (t->extent - 1u));
}

/*
 * apply_acc_block() where it is short: several elements without gaps, all of one page, the old ones are not asked for, and
 * nobody is in the way.  @fn: reduce_loop() of operation and type @t; @bytes: of all elements.  False: nothing was done, and
 * apply_acc_block() does it or says what is wrong.
 */
static inline bool apply_acc_short(const struct apply_win *w, reduce_fn *fn, const struct reduce_type *t, int64_t disp,
				   uint64_t bytes, const void *payload)
{
	uint32_t idx = stripe_index((uint64_t)disp, w->stripe_mask);
	void *p = mem_ptr(&w->mem, disp);

	if (((uint64_t)disp & (STRIPE_PAGE - 1)) + bytes > STRIPE_PAGE || disp < w->lo || w->hi - disp < (int64_t)bytes ||
	    !w->stripes || !stripe_trylock(w->stripes, w->stripe_mask, idx, w->owner))
		return false;
	if (apply_is_native(w, t, p) && stripe_singles_wait(w->singles, w->stripe_mask, idx, 0)) {
		stripe_unlock(w->stripes, w->stripe_mask, idx);
		return false;
	}
	fn(p, payload, bytes >> __builtin_ctz(t->packed));
	stripe_unlock(w->stripes, w->stripe_mask, idx);
	return true;
}

/* May apply_cas be used with @type? */
bool apply_cas_valid(unsigned int type);

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* native: operations on one element of 1, 2, 4 or 8 bytes by atomic instructions; of apply.c only, which inlines them. */
#ifndef PROGBASE_NATIVE_H
#define PROGBASE_NATIVE_H

#include <string.h>

#include "apply.h"

static inline bool is_integer(unsigned int type)
{
	return type >= PROG_TYPE_I8 && type <= PROG_TYPE_U64 && type != PROG_TYPE_I128;
}

/*
 * One element of a BITS-wide word at an aligned address. @old gets the value before. The
 * words of integers are added as unsigned: it is the same addition.
 */
#define NATIVE_ONE(BITS) \
static inline void native_##BITS(unsigned int op, unsigned int type, void *p, const void *in, \
				 void *result) \
{ \
	typedef uint##BITS##_t __attribute__((may_alias)) word; \
	word *w = p, old, new, v; \
	\
	if (op == PROG_OP_NO_OP) { \
		old = __atomic_load_n(w, __ATOMIC_ACQUIRE); \
		goto out; \
	} \
	if (op == PROG_OP_REPLACE && type != PROG_TYPE_SHORT_INT) { \
		memcpy(&v, in, sizeof(v)); \
		if (!result) { \
			__atomic_store_n(w, v, __ATOMIC_RELEASE); \
			return; \
		} \
		old = __atomic_exchange_n(w, v, __ATOMIC_ACQ_REL); \
		goto out; \
	} \
	if (is_integer(type)) { \
		memcpy(&v, in, sizeof(v)); \
		switch (op) { \
		case PROG_OP_SUM: \
			old = __atomic_fetch_add(w, v, __ATOMIC_ACQ_REL); \
			goto out; \
		case PROG_OP_BAND: \
			old = __atomic_fetch_and(w, v, __ATOMIC_ACQ_REL); \
			goto out; \
		case PROG_OP_BOR: \
			old = __atomic_fetch_or(w, v, __ATOMIC_ACQ_REL); \
			goto out; \
		case PROG_OP_BXOR: \
			old = __atomic_fetch_xor(w, v, __ATOMIC_ACQ_REL); \
			goto out; \
		} \
	} \
	old = __atomic_load_n(w, __ATOMIC_RELAXED); \
	do { \
		new = old; \
		reduce_apply(op, type, &new, in, 1); \
	} while (!__atomic_compare_exchange_n(w, &old, new, true, __ATOMIC_ACQ_REL, \
					      __ATOMIC_ACQUIRE)); \
out: \
	if (result) \
		reduce_pack(type, result, &old, 1); \
}

NATIVE_ONE(8)
NATIVE_ONE(16)
NATIVE_ONE(32)
NATIVE_ONE(64)

/* Sums of floating point are the usual accumulate: without the call of reduce_apply. */
#define NATIVE_FSUM(T, BITS) \
static inline void native_sum_##T(void *p, const void *in, void *result) \
{ \
	typedef uint##BITS##_t __attribute__((may_alias)) word; \
	word *w = p, old = __atomic_load_n(w, __ATOMIC_RELAXED), new; \
	T a, b; \
	\
	memcpy(&b, in, sizeof(b)); \
	do { \
		memcpy(&a, &old, sizeof(a)); \
		a += b; \
		memcpy(&new, &a, sizeof(a)); \
	} while (!__atomic_compare_exchange_n(w, &old, new, true, __ATOMIC_ACQ_REL, \
					      __ATOMIC_ACQUIRE)); \
	if (result) \
		memcpy(result, &old, sizeof(old)); \
}

NATIVE_FSUM(float, 32)
NATIVE_FSUM(double, 64)

/* Compare and swap. */
#define CAS_NATIVE(BITS) \
static inline void cas_##BITS(void *p, const void *compare, const void *swap, void *result) \
{ \
	typedef uint##BITS##_t __attribute__((may_alias)) word; \
	word old, new; \
	\
	memcpy(&old, compare, sizeof(old)); \
	memcpy(&new, swap, sizeof(new)); \
	__atomic_compare_exchange_n((word *)p, &old, new, false, __ATOMIC_ACQ_REL, \
				    __ATOMIC_ACQUIRE); \
	memcpy(result, &old, sizeof(old)); \
}

CAS_NATIVE(8)
CAS_NATIVE(16)
CAS_NATIVE(32)
CAS_NATIVE(64)

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * MPI_Pack and MPI_Unpack of what is large, done by the program's OpenMP team where that is faster than the library.
 *
 * Both libraries pack between processes of one representation the bytes of the type map in their order, without anything
 * before or between them, so that what is packed here can be unpacked by the library elsewhere, and the other way round.  All
 * that is not plain goes to the library, which finds the errors.
 *
 * How long the library takes is learned, for each type, direction and length: from the first calls, whenever the team is not
 * used, and once in a while when it is.
 */
#include <string.h>
#include <time.h>

#include "comm.h"
#include "hooks_gen.h"

#define LIBRARY_FIRST	3	/* calls: memory may be new, caches empty */
#define LIBRARY_EVERY	64	/* of so many; early ones, whose numbers are powers of two, also */
#define SHORT_NS	10000	/* not for a team, and looking at the clock costs as well */
#define LONG_NS		100000	/* here the thread's own time is asked for, by a system call: others may have the processor */

static int64_t now(int clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static unsigned int length_class(uint64_t bytes)
{
	unsigned int c = (63 - (unsigned int)__builtin_clzll(bytes / PROG_THREADS_LEAST | 1)) / 2;

	return c < HTYPE_LENGTHS ? c : HTYPE_LENGTHS - 1;
}

void team_called(struct team_call *call, int rc)
{
	uint64_t took, ps;
	unsigned int c;
	uint32_t had;

	if (!call->speed || rc)
		return;
	c = length_class(call->bytes);
	had = atomic_load_explicit(&call->speed->ps[c], memory_order_relaxed);
	took = (uint64_t)(now(call->clock) - call->start);
	ps = took < UINT64_MAX / 1000 ? took * 1000 / call->bytes : UINT32_MAX;
	if (ps > UINT32_MAX)
		ps = UINT32_MAX;
	/* what disturbs makes it longer, never shorter */
	if (had && ps > had)
		ps = had + (ps - had) / 8;
	atomic_store_explicit(&call->speed->ps[c], (uint32_t)ps, memory_order_relaxed);
}

struct packing {
	char *packed;			/* the first of its bytes */
	char *typed;
	const struct htype *t;
	uint64_t count;
};

static int pack_part(void *arg, uint64_t off, uint64_t len)
{
	const struct packing *p = arg;

	if (!p->t->contig)
		return prog_dtype_pack(p->packed + off, p->typed, p->t->dt, p->count, off, len);
	memcpy(p->packed + off, p->typed + p->t->first + off, len);
	return 0;
}

static int unpack_part(void *arg, uint64_t off, uint64_t len)
{
	const struct packing *p = arg;

	if (!p->t->contig)
		return prog_dtype_unpack(p->typed, p->t->dt, p->count, off, p->packed + off, len);
	memcpy(p->typed + p->t->first + off, p->packed + off, len);
	return 0;
}

/*
 * A type that we describe as the library packs it.  MPICH, and Open MPI from 5.0 on, move long doubles between other bytes without
 * their padding, the latter not all of them.
 */
static bool is_described(const struct htype *t)
{
	return t->size && (t->contig || !t->ldouble);
}

/* Blocks that overlap are an error of the program in what is unpacked, which ends as the library does it. */
static bool may_overlap(const struct htype *t, uint64_t count, uint64_t bytes)
{
	int64_t lo, hi;

	return prog_dtype_span(t->dt, count, &lo, &hi) || (uint64_t)(hi - lo) < bytes;
}

/* Is call number @n the library's, so that its time is known? */
static bool is_library_turn(uint32_t n)
{
	return n < LIBRARY_FIRST || !(n & (n - 1)) || !(n % LIBRARY_EVERY);
}

/* @p's bytes, of which at most @room fit, by the team: true, and *@at moves on.  False: the library has to do it. */
static bool by_team(struct team_call *call, struct packing *p, bool unpack, MPI_Datatype type, MPI_Count count,
		    MPI_Count room, MPI_Count *at, MPI_Comm comm)
{
	uint64_t bytes;
	uint32_t calls, ps;
	unsigned int c;
	int64_t alone;

	call->speed = NULL;
	if (!hooks.on || !hooks.session || count <= 0 || *at < 0 || *at > room || !p->typed || !p->packed ||
	    type == MPI_DATATYPE_NULL ||
	    !(comm == MPI_COMM_WORLD || comm == MPI_COMM_SELF || hcomm_find(comm)))
		return false;
	if (htype_get(type, &p->t) || !is_described(p->t) || __builtin_mul_overflow((uint64_t)count, p->t->size, &bytes) ||
	    bytes < (team_always ? 1 : PROG_THREADS_LEAST) || bytes > (uint64_t)(room - *at) ||
	    may_overlap(p->t, (uint64_t)count, bytes))
		return false;
	p->packed += *at;
	p->count = (uint64_t)count;
	c = length_class(bytes);
	*call = (struct team_call){ .speed = &p->t->speed[unpack], .bytes = bytes };
	calls = atomic_fetch_add_explicit(&call->speed->calls[c], 1, memory_order_relaxed);
	ps = atomic_load_explicit(&call->speed->ps[c], memory_order_relaxed);
	alone = (int64_t)((double)ps * (double)bytes / 1000);
	if ((team_always || (alone >= SHORT_NS && !is_library_turn(calls))) &&
	    !prog_threads_run(unpack ? unpack_part : pack_part, p, bytes, prog_threads_unit(p->t->contig ? NULL : p->t->dt),
			      alone)) {
		*at += (MPI_Count)bytes;
		return true;
	}
	if (alone && alone < SHORT_NS && !is_library_turn(calls)) {
		call->speed = NULL;
	} else {
		call->clock = !alone || alone >= LONG_NS ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
		call->start = now(call->clock);
	}
	return false;
}

bool hook_pack(struct team_call *call, const void *inbuf, MPI_Count incount, MPI_Datatype datatype, void *outbuf,
	       MPI_Count outsize, MPI_Count *position, MPI_Comm comm)
{
	struct packing p = { .packed = outbuf, .typed = (char *)(uintptr_t)inbuf };

	return by_team(call, &p, false, datatype, incount, outsize, position, comm);
}

bool hook_unpack(struct team_call *call, const void *inbuf, MPI_Count insize, MPI_Count *position, void *outbuf,
		 MPI_Count outcount, MPI_Datatype datatype, MPI_Comm comm)
{
	struct packing p = { .packed = (char *)(uintptr_t)inbuf, .typed = outbuf };

	return by_team(call, &p, true, datatype, outcount, insize, position, comm);
}

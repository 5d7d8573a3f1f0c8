/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * plain.h - small messages, which are the library's alone: what their calls ask before and do after it.  Inline, as each
 * instruction counts (selftests/mpi/calls_test).
 */
#ifndef HOOKS_PLAIN_H
#define HOOKS_PLAIN_H

#include "p2p.h"

#pragma GCC visibility push(hidden)

static inline bool type_is_last(MPI_Datatype type)
{
	return likely(type == htype_last.type &&
		      atomic_load_explicit(&htype_generation, memory_order_relaxed) == htype_last.generation);
}

/* A receive into one block that is too short for a managed message: nearly everything is the library's. */
struct plain {
	char *at;			/* the block */
	uint64_t cap;
	/* what the library is given; NULL: memory of ours */
	void *lib_buf;
	int lib_count;
	MPI_Datatype lib_type;
};

/*
 * Is it one?  Where the type is the last one, which may be @known; that of the hot paths, which go to slow ones with all their
 * arguments, and so save nothing, when it is false.
 */
static inline __attribute__((always_inline)) bool is_plain_of(uint32_t peers, void *buf, MPI_Count count,
							      MPI_Datatype type, bool known, int source,
							      struct plain *p)
{
	if (unlikely(!is_plain_source(peers, source) || (uint64_t)count > INT_MAX || !(known || type_is_last(type)) ||
		     !htype_last.contig))
		return false;
	p->cap = (uint64_t)count * htype_last.size;
	if (unlikely(p->cap >= p2p_least))
		return false;
	p->at = (char *)buf + htype_last.first;
	if (likely(p->cap < DESC_SIZE)) {
		p->lib_buf = NULL;
		p->lib_count = DESC_SIZE;
		p->lib_type = MPI_BYTE;
	} else if (unlikely(htype_last.cuts)) {
		if (p->cap > INT_MAX)
			return false;
		p->lib_buf = p->at;
		p->lib_count = (int)p->cap;
		p->lib_type = MPI_BYTE;
	} else {
		p->lib_buf = buf;
		p->lib_count = (int)count;
		p->lib_type = type;
	}
	return true;
}

/* With one thread. */
static inline __attribute__((always_inline)) bool is_plain(const struct hcomm *c, void *buf, MPI_Count count,
							   MPI_Datatype type, int source, struct plain *p)
{
	return is_plain_of(c->plain_peers, buf, count, type, false, source, p);
}

/* A message that is the library's alone, of the last type. */
static inline bool send_is_plain_of(uint32_t peers, MPI_Count count, MPI_Datatype type, int dest)
{
	return likely((unsigned int)dest < peers && (uint64_t)count <= INT_MAX && type_is_last(type) &&
		      (uint64_t)count * htype_last.size < p2p_least);
}

static inline bool send_is_plain(const struct hcomm *c, MPI_Count count, MPI_Datatype type, int dest)
{
	return send_is_plain_of(c->plain_peers, count, type, dest);
}

/* Packed bytes of a message; 0 also for arguments that are wrong. */
static inline uint64_t send_bytes(MPI_Count count, MPI_Datatype type)
{
	const struct htype *t;
	uint64_t bytes;

	if (unlikely(count <= 0 || htype_get(type, &t) ||
		     __builtin_mul_overflow((uint64_t)count, t->size, &bytes) ||
		     bytes > PROG_DTYPE_MAX_BYTES))
		return 0;
	return bytes;
}

/*
 * A blocking one, of which the library has said @rc and @st, and that was not of an ordinary message that fits.  @taken: it is
 * counted.
 */
int recv_plain_odd(struct hcomm *c, void *at, uint64_t cap, int rc, MPI_Status *st, const unsigned char *landing, bool taken,
		   const char *call);

/* A blocking one, of which the library has said @rc and @st. */
static inline int plain_end(struct hcomm *c, void *at, uint64_t cap, int rc, MPI_Status *st, const char *call)
{
	uint64_t bytes = status_bytes(st);

	if (unlikely(rc) || unlikely(bytes > cap) || unlikely(bytes == DESC_SIZE))
		return recv_plain_odd(c, at, cap, rc, st, rec_landing, false, call);
	if (cap < DESC_SIZE)
		copy_short(at, rec_landing, bytes);
	chan_recv_now(c->chans, st->MPI_SOURCE, st->MPI_TAG, NULL);
	p2p_poll();
	return MPI_SUCCESS;
}

/*
 * The end of a blocking call with several threads: the caller is in channel @ch, @landing, of a record of the
 * thread's own, is where a short message is.
 */
static inline __attribute__((always_inline)) int plain_end_threads(struct hcomm *c, const unsigned char *landing, struct chan *ch,
								   bool wild, const struct plain *p, int rc,
								   MPI_Status *st, const char *call)
{
	uint64_t bytes = status_bytes(st);
	bool odd = unlikely(rc) || unlikely(bytes > p->cap) || unlikely(bytes == DESC_SIZE);
	bool taken = !unlikely(rc) || herror_native(rc) == MPI_ERR_TRUNCATE;

	if (unlikely(wild && taken))
		hcomm_took(c, st->MPI_SOURCE, st->MPI_TAG);
	chan_leave(ch, taken && !wild);
	if (unlikely(odd))
		rc = recv_plain_odd(c, p->at, p->cap, rc, st, landing, taken, call);
	else if (p->cap < DESC_SIZE)
		copy_short(p->at, landing, bytes);
	p2p_poll();
	return rc;
}

/* A receive that the library will say is a wrong one. */
static inline bool is_bad(const struct hcomm *c, int source, MPI_Count count)
{
	return unlikely(!is_source(c, source) || count < 0);
}

/* Is it the library's alone, whoever it goes to?  With several threads. */
static inline bool send_is_plain_threads(int mode, MPI_Count count, MPI_Datatype type)
{
	if (likely((uint64_t)count <= INT_MAX && (type_is_last(type) || buf_type_look(type)) &&
		   (uint64_t)count * htype_last.size < p2p_least))
		return true;
	return mode == SEND_BUF || send_bytes(count, type) < p2p_least;
}

#pragma GCC visibility pop

#endif

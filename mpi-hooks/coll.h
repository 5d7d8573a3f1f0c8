/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll.h - non-blocking and persistent collectives (Documentation/collectives.md): coll_calls.c the calls, coll_buf.c the program's
 * buffers, coll_topo.c who shares a node and who is whose neighbour, coll.c from the start to the end, coll_ballot.c which of the
 * short ones are the library's.
 */
#ifndef HOOKS_COLL_H
#define HOOKS_COLL_H

#include "comm.h"

#pragma GCC visibility push(hidden)

struct rec;
struct hcoll;

/* What a hook returns that leaves the call to the library; all members come to the same. */
#define HOOK_LEAVE	(-1)

/*
 * PROG_COLLECTIVES, the same on all ranks from MPI_Init on: are collectives of managed intracommunicators ours?  AUTO: not those
 * within a node that are short, or of which no rank knows how long they are: the library's shared memory has them done before a
 * daemon could be woken.
 */
enum hcoll_mode { HCOLL_OFF, HCOLL_AUTO, HCOLL_ALL };
extern enum hcoll_mode hcoll_mode;

/* An array of the program's, in one of its forms; the others are NULL. */
struct hook_array {
	const int *i;
	const MPI_Count *c;
	const MPI_Aint *a;
};

static inline bool hook_array_given(struct hook_array a)
{
	return a.i || a.c || a.a;
}

static inline int64_t hook_array_at(struct hook_array a, uint32_t k)
{
	return a.i ? a.i[k] : a.c ? a.c[k] : a.a[k];
}

/* ---- memory (coll_mem.c) ------------------------------------------------------------------------- */

/*
 * @n bytes of zeros, to be given back by prog_coll_mem_put(): a member that has counted a collective, or cannot tell whose it is, must not
 * fail alone.  If even the reserve is used up it waits for others to end.
 */
void *hcoll_mem(size_t n);
/* The reserve is used up: for a while. */
void hcoll_mem_wait(void);

/* ---- buffers (coll_buf.c) ----------------------------------------------------------------------- */

/* Items of one type. */
struct hcoll_part {
	uintptr_t at;			/* as MPI takes it: the type's lower bound is not added */
	uint64_t count, bytes;		/* bytes: packed */
	struct dtype *dt;		/* held; NULL: one block, at first, or opaque */
	int64_t first;
	MPI_Datatype opaque;		/* known to the library only, a duplicate; or MPI_DATATYPE_NULL */
};

/* What is sent, or what is received, by one member. */
struct hcoll_side {
	uint32_t n;
	struct hcoll_part *part, one;	/* part: [n]; &one, or allocated */
	unsigned char *packed;		/* all parts, one after the other; NULL: they are used where they are */
	uint64_t bytes;
	bool scattered;			/* not all parts are one block */
	bool opaque;			/* some are opaque */
	int err;			/* what cannot be done with it, which the others learn of when it begins: -errno */
	uint64_t *off, *len;		/* [n] for libprogclient, from mem; NULL: one block */
	void *mem;
};

/*
 * @buf, where more than no bytes are, the first of them at @first: nowhere, or MPI_IN_PLACE where that means nothing?  MPICH refuses both;
 * Open MPI the latter, and crashes otherwise.  This and those that follow return an MPI class.
 */
int hcoll_check_buf(const void *buf, const void *first);
/* @count items at @buf. */
int hside_set(struct hcoll_side *s, const void *buf, int64_t count, MPI_Datatype type);
/* @n parts: each at @displs, in extents of its type or, with @types, in bytes; of @type or of @types. */
int hside_set_parts(struct hcoll_side *s, const void *buf, uint32_t n, struct hook_array counts, struct hook_array displs,
		    MPI_Datatype type, const MPI_Datatype *types);
/* Before each start: memory for what is packed, and if @fill what is there.  -ENOMEM. */
int hside_begin(struct hcoll_side *s, bool fill);
/* Where libprogclient finds it. */
void *hside_mem(const struct hcoll_side *s);
/* What came goes to the program's buffer, if it was packed; opaque types in an MPI call only. */
void hside_unpack(struct hcoll_side *s);
void hside_end(struct hcoll_side *s);		/* of one run */
void hside_free(struct hcoll_side *s);
/* A collective that is not under way; NULL is fine. */
void hcoll_free(struct hcoll *h);

/* ---- layout and topologies (coll_topo.c) ---------------------------------------------------------- */

struct hcoll_topo {			/* of a communicator, made at its first collective; the same at all members but for neighbours */
	struct prog_coll_nodes nodes;
	uint32_t nin, nout;
	uint32_t *order;		/* for libprogclient */
	uint32_t *in_peer, *out_peer, *in_tag, *out_tag;	/* sent to, received from; NULL: not asked yet, or no topology */
	bool asked;
	uint32_t *mem, *edges;
};

/* Under the communicator's lock. */
struct hcoll_topo *htopo_get(struct hcomm *c);
/* Its neighbours too; false: it has none, or the library does not tell. */
bool htopo_neighbours(struct hcomm *c, struct hcoll_topo *t);
void htopo_free(struct hcoll_topo *t);

/* ---- from the start to the end (coll.c) ------------------------------------------------------------- */

struct hcoll {
	struct hcomm *c;
	prog_coll *pc;			/* under way */
	struct prog_coll_cfg cfg;
	struct hcoll_side in, out;
	uint64_t *counts;
	bool fill_out;			/* what is sent stands in the out buffer */
	bool odd;			/* a reduction of what not all libraries reduce */
	int status;			/* of what was found wrong before the start: -errno */
	uint32_t run;			/* persistent: the number of this run */
	/* see hballot_next() */
	bool watched;			/* nobody has looked at it yet */
	bool place, voted;		/* voted: yes, and the others' votes are not known yet */
	uint32_t places;		/* so far, with it */
	uint64_t at;			/* ns; when it was started */
};

struct hcoll *hcoll_new(struct hcomm *c, enum prog_coll_kind kind);
/* @rc of setting @h up; then start it, or make the persistent request.  Takes @h. */
int hcoll_go(struct hcomm *c, struct hcoll *h, int rc, bool persistent, MPI_Request *req, const char *call);
/* It is not ours, as is counted; @c NULL: its communicator is not managed.  HOOK_LEAVE. */
int hcoll_left(const struct hcomm *c);
/* Records of kind REC_COLL. */
int hcoll_restart(struct rec *r);
bool hcoll_poll(struct rec *r);
void hcoll_idle(struct rec *r);
/* As hcoll_idle() where several are waited for: as prog_coll_attend() and those that follow it. */
void hcoll_attend(void);
void hcoll_attend_once(void);
void hcoll_attend_end(void);
/* A call waits for @r, and does not return before it has ended. */
void hcoll_waited_for(struct rec *r);
/* Nothing of @c is under way any more when it returns. */
void hcoll_drain(struct hcomm *c);

/* ---- votes (coll_ballot.c) -------------------------------------------------------------------------- */

#define HBALLOT_WINDOW	64u
/* PROG_COLL_WINDOW, the same on all ranks from MPI_Init on: collectives from one vote to the next, at most; 0: there are none. */
extern uint32_t hballot_window;
extern int hballot_watched;		/* collectives that somebody is yet to look at; 0 with several threads */

/* How long it is, as far as all members know alike. */
uint64_t hcoll_length(const struct prog_coll_desc *d);
/*
 * @h, not persistent and else to be ours, is the next one of its communicator, whose lock is held: true if it is the library's, as
 * at all members.  Else hballot_started() follows when it is, and hballot_looked() when a completion call asks for it first:
 * @waits, as hcoll_waited_for() says.
 */
bool hballot_next(struct hcoll *h);
void hballot_started(struct hcoll *h);
void hballot_looked(struct hcoll *h, bool waits);
void hballot_forget(struct hcoll *h);
/* @h has voted yes: may it end, as all votes are known?  Until then: sleep a while. */
bool hballot_over(struct hcoll *h);
void hballot_idle(const struct hcoll *h);
/* No collective follows: wait until all votes have ended. */
void hballot_end(void);

#pragma GCC visibility pop

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * How engines read and write memory of other nodes by RDMA: the ends of ways, and memory of clients that is read to or written
 * from.  What goes by them, and what becomes of that when one fails, is the engine's matter.  Everything on the worker's thread.
 */
#ifndef PROGD_LINK_WAY_H
#define PROGD_LINK_WAY_H

#include "link/link.h"

/* ---- the opener's end: part of the engine's own structure ---- */

/* How an engine ends ways by which nothing goes. */
struct link_way_idle {
	bool (*busy)(const void *ctx);	/* something is under way by it */
	void (*end)(void *ctx);		/* closes it, or will soon */
};

struct link_way {
	struct link_way *next;		/* of the link's */
	struct link_job *j;
	const struct link_way_idle *idle;	/* NULL: it stays */
	void *ctx;			/* of the operations */
	uint64_t used;			/* last, ns: the engine's to set, from when it has been opened on */
	struct lane_way *way;		/* NULL: there is none */
	struct wire_wayrec mine, theirs;
	bool ready;			/* theirs has come */
};

/* A way of @j's to the peer; its own end is @w->mine then.  @idle: NULL, or when it ends by itself.  0, or -errno and a line in @why. */
int link_way_open(struct link_way *w, struct link_job *j, const struct lane_way_ops *ops, const struct link_way_idle *idle, void *ctx,
		  char why[VERBS_WHY]);
/*
 * @theirs was told with a key: 0: it is the other end, and connected; -ESTALE: it is of an earlier way; else a negative errno and
 * a line: the way is of no use, and to be closed.
 */
int link_way_meet(struct link_way *w, const struct wire_wayrec *theirs, char why[VERBS_WHY]);
/* It is no more, as lane_way_ops.gone said.  With the last way of a job its clients' memory is not registered any more. */
void link_way_gone(struct link_way *w);
/* The same for one that is still there: nothing of this side's memory is read or written by it any more. */
void link_way_close(struct link_way *w);
/* Those by which nothing went for link_opts.lane_idle_ns before @now end; false: there are none of which that could come to be so. */
bool link_ways_idle(struct link *l, uint64_t now);

/* ---- the acceptor's end, likewise ---- */

struct link_end {
	struct lane_way *way;		/* NULL: there is none */
	struct wire_wayrec mine, theirs;
};

/* Is it that of the opener's end @theirs? */
bool link_end_is(const struct link_end *e, const struct wire_wayrec *theirs);
/* The end of a way to @theirs, VERBS_WAY_GIVES or VERBS_WAY_SHOWS.  There is none before.  0, or -errno, and why is in the log. */
int link_end_accept(struct link_end *e, struct lane *lane, uint32_t job, int use, const struct lane_way_ops *ops, void *ctx,
		    const struct wire_wayrec *theirs);

/* ---- memory is registered in pieces ---- */

#define LINK_PIECE		(4ull << 20)
#define LINK_PIECE_MAX		(64ull << 20)	/* so long a worker may register memory */
#define LINK_PIECES		256u		/* that memory has, but for what is longer than so many of the longest */

/* Of @size bytes: pieces begin and end at multiples of this from where these begin. */
static inline uint64_t link_piece(uint64_t size)
{
	uint64_t piece = LINK_PIECE;

	while (piece < LINK_PIECE_MAX && size > LINK_PIECES * piece)
		piece *= 2;
	return piece;
}

/* ---- landing.c: memory of this node's clients ---- */

/* Bytes [lo, hi) of a region of a client's, which may be registered for what goes to some of them. */
struct link_memory {
	const struct client_view *c;
	struct win_map *map;
	uint64_t lo, hi;
};

/* May the way read *@len bytes, perhaps fewer then, to byte @at of the region, or write from there?  *@key is for that. */
bool link_landing(struct link *l, struct lane_way *way, const struct link_memory *m, uint64_t at, uint64_t *len, uint32_t *key);
/*
 * Nothing is read to what a client and a region, NULL: any, to some bytes of a region, or a job has registered, or written from
 * there, when these return.
 */
void link_landings_end(struct link *l, const struct client_view *c, const struct win_map *m);
void link_landings_end_of(struct link *l, const struct win_map *m, uint64_t lo, uint64_t hi);
void link_landings_job_end(struct link *l, const struct win_job *job);

#endif

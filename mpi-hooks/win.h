/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * win.h - what the files of windows share.
 *
 *   win_family.c   the windows of a communicator: their records, and what is kept of freed ones
 *   win_make.c     a managed window, by all ranks together
 *   win_defer.c    which of them put copies within the node off
 *   win_attach.c   what is attached to dynamic ones
 *   win.c          the calls
 */
#ifndef HOOKS_WIN_H
#define HOOKS_WIN_H

#include "hooks.h"

#pragma GCC visibility push(hidden)

/* The arguments of a call that makes a window. */
struct win_args {
	int flavor;		/* MPI_WIN_FLAVOR_* */
	void *base;
	MPI_Aint size, unit;
	MPI_Info info;
	enum prog_binding binding;	/* as info says */
	MPI_Comm comm;		/* the user's */
	void *baseptr;		/* allocate: where the pointer goes */
	MPI_Win *win;
};

/* ---- win_family.c ------------------------------------------------------------------------------ */

/* Collective when it is the first window of @comm. */
int hfamily_get(MPI_Comm comm, struct hfamily **out);
/* The program ends. */
void hfamily_end_all(void);
/* The one kept last; NULL in @only: of any communicator. */
struct hwin *hfamily_pop(struct hfamily *only);
/* False: there are enough, or the communicator is gone. */
bool hfamily_push(struct hfamily *f, struct hwin *w);
/* NULL: of all communicators. */
void hfamily_drop_idle(struct hfamily *only);
/*
 * A record; collective, alike on all ranks.  What it needs of its own is split from @comm, the user's, and not from
 * the family's: of the communicators that threads make at the same time, Open MPI lets those of younger parents wait
 * for those of older ones (ompi_comm_cid_lowest_id).  Waiting for @comm's turn is what a program has to expect; waiting
 * behind parents that are younger than @comm closes circles with other ranks.
 */
int hwin_new(struct hfamily *f, MPI_Comm comm, struct hwin **out);
void hwin_free(struct hwin *w);
/* The window is gone, its record may serve again. */
void hwin_retire(struct hwin *w);

/* ---- win_attach.c ------------------------------------------------------------------------------ */

/* The window is gone, and what was attached to it. */
void hwin_detach_all(struct hwin *w);

/* ---- win_make.c -------------------------------------------------------------------------------- */

/*
 * A managed window: *@out, the same on all ranks, or NULL and why not.  @shared: the library's window for the
 * flavor of that name.
 */
int hwin_make(struct hfamily *f, const struct win_args *c, MPI_Win shared, struct hwin **out, const char **why);
/* The library's window behind a managed one that is not shared memory; MPI_Win_free of it. */
int hwin_handle_free(MPI_Win *win);

/* ---- win_defer.c ------------------------------------------------------------------------------- */

/* "off", "auto" or a number of bytes with K, M, G: as prog_win_set_defer() takes it.  False: none of these. */
bool hdefer_parse(const char *text, uint64_t *bytes);
/* For a window that was made, or made again, with @info (MPI_INFO_NULL: without). */
void hwin_set_defer(struct hwin *w, MPI_Info info);

#pragma GCC visibility pop

#endif

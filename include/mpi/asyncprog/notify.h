/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * asyncprog/notify.h - notified access for MPI programs, and whether a window progresses by itself.
 *
 * What is here is asyncprog's, and not MPI's: it follows the proposals of the MPI Forum's RMA working group (issue 59 for
 * notifications, issue 635 for progress) and foMPI-NA (Belli and Hoefler, IPDPS 2015).  A program that includes it links
 * against its MPI library alone, and runs with or without asyncprog's hooks: they are looked for when a function is called
 * first (dlsym(), of libc), and without them each returns MPI_ERR_UNSUPPORTED_OPERATION, and asyncprog_win_progress_keyval()
 * MPI_KEYVAL_INVALID.
 *
 * All functions return an MPI error class.  MPI_ERR_UNSUPPORTED_OPERATION is also that of a window that the hooks have left
 * to the MPI library (Documentation/mpi.md says which), or that is freed, and of ranks with an older library or daemon; it is
 * returned, and calls no error handler, so that a program can do without.  MPI_ERR_WIN: MPI_WIN_NULL, likewise.  All others
 * come after the window's error handler was called: MPI_ERR_TAG, MPI_ERR_RANK, MPI_ERR_ARG, MPI_ERR_RMA_SYNC (no epoch), and
 * those of MPI_Put, MPI_Get and MPI_Accumulate.  Any thread may call them, several at once with MPI_THREAD_MULTIPLE.
 */
#ifndef ASYNCPROG_NOTIFY_H
#define ASYNCPROG_NOTIFY_H

#include <dlfcn.h>
#include <mpi.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A notification: who gave it, and the tag.  As what is wanted source may be MPI_ANY_SOURCE, tag MPI_ANY_TAG. */
struct asyncprog_notification {
	int source;		/* rank in the window's group */
	int tag;		/* 0 ... INT_MAX */
};

/* The hooks' functions, of the same names.  For them and this header alone. */
struct asyncprog_notify_calls {
	size_t size;
	int (*put_notify)(const void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint disp,
			  int target_count, MPI_Datatype target_type, int tag, MPI_Win win);
	int (*get_notify)(void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint disp,
			  int target_count, MPI_Datatype target_type, int tag, MPI_Win win);
	int (*accumulate_notify)(const void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint disp,
				 int target_count, MPI_Datatype target_type, MPI_Op op, int tag, MPI_Win win);
	int (*notify_test)(int n, const struct asyncprog_notification *want, MPI_Win win, int take, int *flag, int *index,
			   struct asyncprog_notification *got);
	int (*notify_wait)(int n, const struct asyncprog_notification *want, MPI_Win win, int *index,
			   struct asyncprog_notification *got);
	int (*win_progress_keyval)(void);
};

/* NULL: no hooks are here. */
static inline const struct asyncprog_notify_calls *asyncprog_notify_calls(void)
{
	static const struct asyncprog_notify_calls none, *found;
	const struct asyncprog_notify_calls *calls = __atomic_load_n(&found, __ATOMIC_ACQUIRE);

	if (!calls) {
		/* 0: RTLD_DEFAULT */
		calls = (const struct asyncprog_notify_calls *)dlsym((void *)0, "asyncprog_notify_v1");
		if (!calls || calls->size < sizeof(*calls))
			calls = &none;
		__atomic_store_n(&found, calls, __ATOMIC_RELEASE);
	}
	return calls->size ? calls : (const struct asyncprog_notify_calls *)0;
}

/*
 * MPI_Put, MPI_Get and MPI_Accumulate with a notification of @tag at the target.  It is given when this operation is done
 * there: a put's or accumulate's data is in the window, and visible to who has taken the notification, without a call of
 * MPI_Win_sync; what a get reads has been read.  Earlier operations are covered after an MPI_Win_flush before.  Also of
 * no elements; MPI_PROC_NULL: nothing.  At most 128 of a rank wait for a target that takes none: behind the next one the
 * operations from that rank to that target wait, and calls that complete them.  @disp in units of the target's window.
 */
static inline int asyncprog_put_notify(const void *origin, int origin_count, MPI_Datatype origin_type, int rank,
				       MPI_Aint disp, int target_count, MPI_Datatype target_type, int tag, MPI_Win win)
{
	const struct asyncprog_notify_calls *c = asyncprog_notify_calls();

	return c ? c->put_notify(origin, origin_count, origin_type, rank, disp, target_count, target_type, tag, win) :
		   MPI_ERR_UNSUPPORTED_OPERATION;
}

static inline int asyncprog_get_notify(void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint disp,
				       int target_count, MPI_Datatype target_type, int tag, MPI_Win win)
{
	const struct asyncprog_notify_calls *c = asyncprog_notify_calls();

	return c ? c->get_notify(origin, origin_count, origin_type, rank, disp, target_count, target_type, tag, win) :
		   MPI_ERR_UNSUPPORTED_OPERATION;
}

static inline int asyncprog_accumulate_notify(const void *origin, int origin_count, MPI_Datatype origin_type, int rank,
					      MPI_Aint disp, int target_count, MPI_Datatype target_type, MPI_Op op, int tag,
					      MPI_Win win)
{
	const struct asyncprog_notify_calls *c = asyncprog_notify_calls();

	return c ? c->accumulate_notify(origin, origin_count, origin_type, rank, disp, target_count, target_type, op, tag,
					win) : MPI_ERR_UNSUPPORTED_OPERATION;
}

/*
 * Take the oldest notification that was given to this rank and matches: *@flag 1 and *@got (may be NULL), or *@flag 0.  Those
 * of one rank are taken in the order in which it gave them; of several ranks none is preferred.  No epoch is needed.
 */
static inline int asyncprog_notify_test(int source, int tag, MPI_Win win, int *flag, struct asyncprog_notification *got)
{
	const struct asyncprog_notify_calls *c = asyncprog_notify_calls();
	struct asyncprog_notification want = { source, tag };

	return c ? c->notify_test(1, &want, win, 1, flag, (int *)0, got) : MPI_ERR_UNSUPPORTED_OPERATION;
}

/* The same, and leaves it. */
static inline int asyncprog_notify_probe(int source, int tag, MPI_Win win, int *flag, struct asyncprog_notification *got)
{
	const struct asyncprog_notify_calls *c = asyncprog_notify_calls();
	struct asyncprog_notification want = { source, tag };

	return c ? c->notify_test(1, &want, win, 0, flag, (int *)0, got) : MPI_ERR_UNSUPPORTED_OPERATION;
}

/* Sleeps until there is one; the MPI library progresses meanwhile. */
static inline int asyncprog_notify_wait(int source, int tag, MPI_Win win, struct asyncprog_notification *got)
{
	const struct asyncprog_notify_calls *c = asyncprog_notify_calls();
	struct asyncprog_notification want = { source, tag };

	return c ? c->notify_wait(1, &want, win, (int *)0, got) : MPI_ERR_UNSUPPORTED_OPERATION;
}

/* One that matches any of @want[@n]; *@index (may be NULL): the first of them. */
static inline int asyncprog_notify_testany(int n, const struct asyncprog_notification *want, MPI_Win win, int *index,
					   int *flag, struct asyncprog_notification *got)
{
	const struct asyncprog_notify_calls *c = asyncprog_notify_calls();

	return c ? c->notify_test(n, want, win, 1, flag, index, got) : MPI_ERR_UNSUPPORTED_OPERATION;
}

static inline int asyncprog_notify_waitany(int n, const struct asyncprog_notification *want, MPI_Win win, int *index,
					   struct asyncprog_notification *got)
{
	const struct asyncprog_notify_calls *c = asyncprog_notify_calls();

	return c ? c->notify_wait(n, want, win, index, got) : MPI_ERR_UNSUPPORTED_OPERATION;
}

/*
 * The key of a window attribute, for MPI_Win_get_attr(): an int, not 0: operations of others on this window complete while
 * this process is in no MPI call.  It is set for the windows that the hooks manage, and 0 when their daemon was lost; others
 * do not have it.  The info object of MPI_Win_get_info() says the same, key "asyncprog_progress", "true" or "false".
 */
static inline int asyncprog_win_progress_keyval(void)
{
	const struct asyncprog_notify_calls *c = asyncprog_notify_calls();

	return c ? c->win_progress_keyval() : MPI_KEYVAL_INVALID;
}

#ifdef __cplusplus
}
#endif

#endif

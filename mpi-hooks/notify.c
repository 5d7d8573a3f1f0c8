/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Notified access, and whether a window progresses by itself: what <asyncprog/notify.h> and the Fortran module beside it find
 * by name.  Windows that are not ours are left alone.
 */
#include <stdlib.h>

#include <asyncprog/notify.h>

#include "hooks.h"

/* Few wants are kept on the stack. */
#define FEW	8

/* ---- giving -------------------------------------------------------------------------------------- */

/* The record of @win; NULL: *@rc is what the call returns, without an error handler. */
static struct hwin *find(MPI_Win win, int *rc)
{
	struct hwin *w = win == MPI_WIN_NULL ? NULL : hwin_find(win);

	*rc = win == MPI_WIN_NULL ? MPI_ERR_WIN : MPI_ERR_UNSUPPORTED_OPERATION;
	return w;
}

/* The end of @call: what is not supported is the program's to handle. */
static int end(struct hwin *w, int class, const char *call)
{
	if (!class || class == MPI_ERR_UNSUPPORTED_OPERATION)
		return class;
	return hwin_raise(w, class, call);
}

static int put_notify(const void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint disp,
		      int target_count, MPI_Datatype target_type, int tag, MPI_Win win)
{
	int rc;
	struct hwin *w = find(win, &rc);

	if (!w)
		return rc;
	rc = tag < 0 ? MPI_ERR_TAG : rma_move_notify(w, false, origin, origin_count, origin_type, rank, disp, target_count,
						     target_type, tag);
	return end(w, rc, "asyncprog_put_notify");
}

static int get_notify(void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint disp,
		      int target_count, MPI_Datatype target_type, int tag, MPI_Win win)
{
	int rc;
	struct hwin *w = find(win, &rc);

	if (!w)
		return rc;
	rc = tag < 0 ? MPI_ERR_TAG : rma_move_notify(w, true, origin, origin_count, origin_type, rank, disp, target_count,
						     target_type, tag);
	return end(w, rc, "asyncprog_get_notify");
}

static int accumulate_notify(const void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint disp,
			     int target_count, MPI_Datatype target_type, MPI_Op op, int tag, MPI_Win win)
{
	int rc;
	struct hwin *w = find(win, &rc);

	if (!w)
		return rc;
	rc = tag < 0 ? MPI_ERR_TAG : rma_accumulate_notify(w, origin, origin_count, origin_type, rank, disp, target_count,
							   target_type, op, tag);
	return end(w, rc, "asyncprog_accumulate_notify");
}

/* ---- taking -------------------------------------------------------------------------------------- */

/* @want[@n] as libprogclient takes them, in @few if they fit, else to be freed. */
static int wants_of(const struct hwin *w, int n, const struct asyncprog_notification *want, struct prog_notify few[FEW],
		    struct prog_notify **out)
{
	struct prog_notify *all = few;

	if (n <= 0 || !want)
		return MPI_ERR_ARG;
	for (int i = 0; i < n; i++) {
		if (want[i].source != MPI_ANY_SOURCE && (unsigned int)want[i].source >= w->nranks)
			return MPI_ERR_RANK;
		if (want[i].tag != MPI_ANY_TAG && want[i].tag < 0)
			return MPI_ERR_TAG;
	}
	if (n > FEW)
		all = calloc((size_t)n, sizeof(*all));
	if (!all)
		return MPI_ERR_NO_MEM;
	for (int i = 0; i < n; i++)
		all[i] = (struct prog_notify){
			.size = sizeof(*all),
			.source = want[i].source == MPI_ANY_SOURCE ? PROG_NOTIFY_ANY_SOURCE : (uint32_t)want[i].source,
			.tag = want[i].tag == MPI_ANY_TAG ? PROG_NOTIFY_ANY_TAG : want[i].tag,
		};
	*out = all;
	return MPI_SUCCESS;
}

static int look(struct hwin *w, int n, const struct asyncprog_notification *want, bool wait, bool take, int *flag,
		int *index, struct asyncprog_notification *got)
{
	struct prog_notify few[FEW], *all, one = { .size = sizeof(one) };
	uint32_t which = 0;
	int rc = wants_of(w, n, want, few, &all);

	if (rc)
		return rc;
	if (wait)
		rc = prog_notify_wait(w->pw, all, (uint32_t)n, &which, &one, 0);
	else if (take)
		rc = prog_notify_test(w->pw, all, (uint32_t)n, &which, &one);
	else
		rc = prog_notify_probe(w->pw, all, (uint32_t)n, &which, &one);
	if (all != few)
		free(all);
	if (rc < 0)
		return herror_class(rc);
	if (flag)
		*flag = rc;
	if (rc && index)
		*index = (int)which;
	if (rc && got)
		*got = (struct asyncprog_notification){ .source = (int)one.source, .tag = one.tag };
	return MPI_SUCCESS;
}

static int notify_test(int n, const struct asyncprog_notification *want, MPI_Win win, int take, int *flag, int *index,
		       struct asyncprog_notification *got)
{
	int rc;
	struct hwin *w = find(win, &rc);

	if (!w)
		return rc;
	rc = look(w, n, want, false, take, flag, index, got);
	/* who tests again and again may have the library's messages wait for it */
	if (!rc && !*flag) {
		hooks_progress(NULL);
		hooks_polled();
	}
	return end(w, rc, "asyncprog_notify_test");
}

static int notify_wait(int n, const struct asyncprog_notification *want, MPI_Win win, int *index,
		       struct asyncprog_notification *got)
{
	int rc;
	struct hwin *w = find(win, &rc);

	return w ? end(w, look(w, n, want, true, true, NULL, index, got), "asyncprog_notify_wait") : rc;
}

void notify_end(struct hwin *w)
{
	prog_notify_discard(w->pw);
}

void notify_report(struct hwin *w)
{
	struct prog_notify_info info = { .size = sizeof(info) };

	if (!prog_notify_info(w->pw, &info) && info.waiting + info.discarded)
		prog_log(PROG_LOG_INFO, "window: freed with %llu notifications that were not taken",
			 (unsigned long long)(info.waiting + info.discarded));
}

/* ---- does a window progress by itself? ------------------------------------------------------------ */

static pthread_mutex_t keyval_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int progress_keyval = MPI_KEYVAL_INVALID;

static int win_progress_keyval(void)
{
	int keyval = atomic_load(&progress_keyval);

	if (keyval != MPI_KEYVAL_INVALID || !hooks.on)
		return keyval;
	pthread_mutex_lock(&keyval_lock);
	keyval = atomic_load(&progress_keyval);
	if (keyval == MPI_KEYVAL_INVALID &&
	    !PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &keyval, NULL))
		atomic_store(&progress_keyval, keyval);
	pthread_mutex_unlock(&keyval_lock);
	return keyval;
}

bool notify_progress_attr(struct hwin *w, int keyval, int **val)
{
	if (keyval == MPI_KEYVAL_INVALID || keyval != atomic_load(&progress_keyval))
		return false;
	w->progresses = prog_session_alive(hooks.session);
	*val = &w->progresses;
	return true;
}

HOOK_EXPORT const struct asyncprog_notify_calls asyncprog_notify_v1;
const struct asyncprog_notify_calls asyncprog_notify_v1 = {
	.size = sizeof(asyncprog_notify_v1),
	.put_notify = put_notify,
	.get_notify = get_notify,
	.accumulate_notify = accumulate_notify,
	.notify_test = notify_test,
	.notify_wait = notify_wait,
	.win_progress_keyval = win_progress_keyval,
};

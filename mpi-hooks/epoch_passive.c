/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Passive target synchronization: locks and flushes. */
#include "epoch.h"
#include "hooks_gen.h"

/* ---- locks ----------------------------------------------------------------------------------- */

/* Load and store may follow without a call of ours: such locks are held when the call returns. */
static unsigned int lock_wait(const struct hwin *w, uint32_t t)
{
	return t == w->rank || w->flavor == MPI_WIN_FLAVOR_SHARED ? PROG_LOCKF_WAIT : 0;
}

/*
 * Locks on several targets are taken in the order of the calls, as a program that always locks in
 * the same order relies on: the request for one waits until the one before is granted.  A single one
 * travels ahead of its operations, and does not wait.
 */
int hook_win_lock(struct hwin *w, int lock_type, int rank, int assert)
{
	unsigned int flags = PROG_LOCKF_ORDER;
	uint32_t t = (uint32_t)rank;
	bool hold;
	int rc = 0;

	if (lock_type == MPI_LOCK_EXCLUSIVE)
		flags |= PROG_LOCKF_EXCL;
	else if (lock_type != MPI_LOCK_SHARED)
		return hwin_error(w, MPI_ERR_LOCKTYPE);
	if (assert & ~MPI_MODE_NOCHECK)
		return hwin_error(w, MPI_ERR_ASSERT);
	if (rank == MPI_PROC_NULL)
		return MPI_SUCCESS;
	if (t >= w->nranks)
		return hwin_error(w, MPI_ERR_RANK);

	hold = !(assert & MPI_MODE_NOCHECK);
	hooks_lock(&w->lock);
	if (target_get(w, t) || !epoch_move(w, HWIN_ACCESS_LOCK)) {
		hooks_unlock(&w->lock);
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	}
	w->nlocked++;
	/* not MEMBER yet: nothing may be issued before the request for the lock */
	target_set(w, t, HWIN_T_TOUCHED);
	hooks_unlock(&w->lock);

	if (hold)
		rc = prog_lock(w->pw, t, flags | lock_wait(w, t));
	hooks_lock(&w->lock);
	if (rc) {
		target_set(w, t, 0);
		if (!--w->nlocked)
			epoch_move(w, HWIN_ACCESS_NONE);
	} else {
		target_set(w, t, HWIN_T_TOUCHED | HWIN_T_MEMBER | HWIN_T_READY |
			   (hold ? HWIN_T_HELD : 0));
	}
	hooks_unlock(&w->lock);
	return hwin_errno(w, rc);
}

/* Complete everything on @t and give the lock back if it is held. */
static int release(struct hwin *w, uint32_t t)
{
	int rc = target_get(w, t) & HWIN_T_HELD ? prog_unlock(w->pw, t) : prog_flush(w->pw, t);

	return worse(prog_win_error(w->pw, t), rc);
}

int hook_win_unlock(struct hwin *w, int rank)
{
	uint32_t t = (uint32_t)rank;
	int rc;

	if (rank == MPI_PROC_NULL)
		return MPI_SUCCESS;
	if (t >= w->nranks)
		return hwin_error(w, MPI_ERR_RANK);
	if (access_of(w) != HWIN_ACCESS_LOCK || !(target_get(w, t) & HWIN_T_MEMBER))
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	rc = release(w, t);
	hooks_lock(&w->lock);
	target_set(w, t, 0);
	if (!--w->nlocked)
		epoch_move(w, HWIN_ACCESS_NONE);
	hooks_unlock(&w->lock);
	return end_requests(w, rc, __func__);
}

int hook_win_lock_all(struct hwin *w, int assert)
{
	bool ok, shared = w->flavor == MPI_WIN_FLAVOR_SHARED;
	int rc = 0;

	if (assert & ~MPI_MODE_NOCHECK)
		return hwin_error(w, MPI_ERR_ASSERT);
	hooks_lock(&w->lock);
	ok = epoch_move(w, HWIN_ACCESS_LOCK_ALL);
	if (ok) {
		w->ntouched = 0;
		w->all_nocheck = assert & MPI_MODE_NOCHECK;
	}
	hooks_unlock(&w->lock);
	if (!ok)
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	/* where load and store may follow; in rank order, so that two of these cannot deadlock */
	for (uint32_t t = 0; t < w->nranks && !rc; t++)
		if (shared || t == w->rank)
			rc = epoch_lock_lazily(w, t, lock_wait(w, t));
	return hwin_errno(w, rc);
}

int hook_win_unlock_all(struct hwin *w)
{
	uint32_t n = 0;
	int rc = 0;

	if (access_of(w) != HWIN_ACCESS_LOCK_ALL)
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	for (uint32_t i = 0; i < w->ntouched; i++)
		if (target_get(w, w->touched[i]) & HWIN_T_HELD)
			w->live[n++] = w->touched[i];
	rc = prog_unlock_all(w->pw, w->live, n, w->errs);
	for (uint32_t i = 0; i < w->ntouched; i++) {
		uint32_t t = w->touched[i];

		/* only locks that were not taken are left to be flushed */
		if (!(target_get(w, t) & HWIN_T_HELD))
			rc = worse(rc, prog_flush(w->pw, t));
		rc = worse(rc, prog_win_error(w->pw, t));
	}
	hooks_lock(&w->lock);
	for (uint32_t i = 0; i < w->ntouched; i++)
		target_set(w, w->touched[i], 0);
	w->ntouched = 0;
	epoch_move(w, HWIN_ACCESS_NONE);
	hooks_unlock(&w->lock);
	return end_requests(w, rc, __func__);
}

/* ---- flush ----------------------------------------------------------------------------------- */

static bool in_passive(const struct hwin *w)
{
	enum hwin_access a = access_of(w);

	return a == HWIN_ACCESS_LOCK || a == HWIN_ACCESS_LOCK_ALL;
}

static int flush_one(struct hwin *w, int rank, int (*flush)(struct prog_win *, uint32_t), const char *call)
{
	uint32_t t = (uint32_t)rank;
	int rc;

	if (rank == MPI_PROC_NULL)
		return MPI_SUCCESS;
	if (unlikely(t >= w->nranks))
		return hwin_raise(w, MPI_ERR_RANK, call);
	if (unlikely(!epoch_passive(w, t)))
		return hwin_raise(w, MPI_ERR_RMA_SYNC, call);
	if (!(target_get(w, t) & HWIN_T_READY))
		return MPI_SUCCESS;	/* lock_all, nothing issued */
	rc = flush(w->pw, t);
	rc = worse(prog_win_error(w->pw, t), rc);
	return end_requests(w, rc, call);
}

static int flush_every(struct hwin *w, int (*flush)(struct prog_win *), const char *call)
{
	int rc;

	if (unlikely(!in_passive(w)))
		return hwin_raise(w, MPI_ERR_RMA_SYNC, call);
	rc = flush(w->pw);
	return end_requests(w, worse(epoch_stream_errors(w), rc), call);
}

int hook_win_flush(struct hwin *w, int rank)
{
	return flush_one(w, rank, prog_flush, __func__);
}

int hook_win_flush_local(struct hwin *w, int rank)
{
	return flush_one(w, rank, prog_flush_local, __func__);
}

int hook_win_flush_all(struct hwin *w)
{
	return flush_every(w, prog_flush_all, __func__);
}

int hook_win_flush_local_all(struct hwin *w)
{
	return flush_every(w, prog_flush_local_all, __func__);
}

int hook_win_sync(struct hwin *w)
{
	prog_win_sync(w->pw);
	/* programs spin on this while they wait for a peer's native traffic */
	hooks_progress(NULL);
	return MPI_SUCCESS;
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Epochs: which call is allowed when.
 *
 * hwin.access and hwin.target[] say what this process may do as an origin, hwin.exposed whether it
 * is a target of post/wait.  Both change under hwin.lock only, which is never held over a call
 * that may wait (another thread may have to make the call that ends the wait); operations read
 * hwin.target[] without it.
 *
 * Lost epochs.  A post, a complete or an operation of a fence that counts may be lost on the way,
 * and leaves a rank waiting.  Whose call it was gets an error, and tells that rank by an empty
 * message.  From then on the counts of the two differ: the pair is "broken", and whatever would count
 * fails at both.
 */
#include <sched.h>
#include <stdlib.h>

#include "epoch.h"
#include "hooks_gen.h"

/* ---- states ---------------------------------------------------------------------------------- */

bool epoch_move(struct hwin *w, enum hwin_access to)
{
	static const bool allowed[HWIN_ACCESS_STATES][HWIN_ACCESS_STATES] = {
		[HWIN_ACCESS_NONE] = {
			[HWIN_ACCESS_NONE] = true, [HWIN_ACCESS_FENCE] = true,
			[HWIN_ACCESS_START] = true, [HWIN_ACCESS_LOCK] = true,
			[HWIN_ACCESS_LOCK_ALL] = true,
		},
		/* a fence opens an epoch only if operations follow it */
		[HWIN_ACCESS_FENCE] = {
			[HWIN_ACCESS_NONE] = true, [HWIN_ACCESS_FENCE] = true,
			[HWIN_ACCESS_START] = true, [HWIN_ACCESS_LOCK] = true,
			[HWIN_ACCESS_LOCK_ALL] = true,
		},
		[HWIN_ACCESS_START] = { [HWIN_ACCESS_NONE] = true },
		[HWIN_ACCESS_LOCK] = { [HWIN_ACCESS_NONE] = true, [HWIN_ACCESS_LOCK] = true },
		[HWIN_ACCESS_LOCK_ALL] = { [HWIN_ACCESS_NONE] = true },
	};
	enum hwin_access from = access_of(w);

	if (!allowed[from][to])
		return false;
	if (from == HWIN_ACCESS_FENCE && to > HWIN_ACCESS_FENCE && w->fence_used)
		return false;
	w->opflags = to == HWIN_ACCESS_FENCE && w->fence_counts ? PROG_OPF_FENCE : 0;
	w->fence_used = false;
	atomic_store_explicit(&w->access, (uint8_t)to, memory_order_release);
	return true;
}

int epoch_init(struct hwin *w)
{
	size_t n = w->nranks;

	pthread_mutex_init(&w->lock, NULL);
	w->target = calloc(n, sizeof(*w->target));
	w->touched = calloc(n, sizeof(*w->touched));
	w->post_ranks = calloc(n, sizeof(*w->post_ranks));
	w->start_epoch = calloc(n, sizeof(*w->start_epoch));
	w->post_epoch = calloc(n, sizeof(*w->post_epoch));
	w->sum = calloc(n, sizeof(*w->sum));
	w->broken = calloc(n, sizeof(*w->broken));
	w->live = calloc(2 * n, sizeof(*w->live));
	w->errs = calloc(2 * n, sizeof(*w->errs));
	if (!w->target || !w->touched || !w->post_ranks || !w->start_epoch || !w->post_epoch ||
	    !w->sum || !w->broken || !w->live || !w->errs)
		return -ENOMEM;
	return 0;
}

void epoch_fini(struct hwin *w)
{
	free((void *)w->target);
	free(w->touched);
	free(w->post_ranks);
	free(w->start_epoch);
	free(w->post_epoch);
	free((void *)w->broken);
	free(w->live);
	free(w->errs);
}

bool epoch_reset(struct hwin *w)
{
	for (uint32_t i = 0; i < w->nranks; i++) {
		if (atomic_load_explicit(&w->broken[i], memory_order_relaxed))
			return false;
		atomic_store_explicit(&w->target[i], 0, memory_order_relaxed);
	}
	atomic_store_explicit(&w->access, HWIN_ACCESS_NONE, memory_order_relaxed);
	w->exposed = false;
	w->fence_used = false;
	w->opflags = 0;
	w->nlocked = w->ntouched = w->npost = 0;
	w->start_nocheck = w->all_nocheck = false;
	w->op_error = 0;
	return true;
}

/* ---- lost epochs ----------------------------------------------------------------------------- */

/* Did what @rc came from never arrive?  Errors of the program's making arrive all the same. */
static bool is_loss(int rc)
{
	switch (rc) {
	case -ERANGE:
	case -EFAULT:
	case -EINVAL:
	case -EPERM:
	case -EALREADY:
	case -E2BIG:
	case -EOVERFLOW:
	case -ENOMEM:
		return false;
	}
	return rc < 0;
}

int epoch_note_loss(struct hwin *w, uint32_t rank, int rc)
{
	MPI_Request req;

	if (likely(!is_loss(rc)) || atomic_exchange(&w->broken[rank], true))
		return rc;
	/* not a blocking send: the network may be down */
	if (!PMPI_Isend(NULL, 0, MPI_BYTE, (int)rank, w->tag, w->comm, &req))
		PMPI_Request_free(&req);
	return rc;
}

void epoch_drain(struct hwin *w)
{
	MPI_Status st;
	int flag;

	hooks_lock(&w->lock);
	while (!PMPI_Iprobe(MPI_ANY_SOURCE, w->tag, w->comm, &flag, &st) && flag) {
		if (PMPI_Recv(NULL, 0, MPI_BYTE, st.MPI_SOURCE, w->tag, w->comm,
			      MPI_STATUS_IGNORE))
			break;
		atomic_store(&w->broken[st.MPI_SOURCE], true);
	}
	hooks_unlock(&w->lock);
}

/* An error of @rank's stream that says nothing of the epoch is kept for the call that ends it. */
static int own_loss(struct hwin *w, uint32_t rank)
{
	int rc = prog_win_error(w->pw, rank);

	if (is_loss(rc))
		return epoch_note_loss(w, rank, rc);
	if (rc) {
		hooks_lock(&w->lock);
		w->op_error = worse(w->op_error, rc);
		hooks_unlock(&w->lock);
	}
	return 0;
}

int epoch_take_error(struct hwin *w)
{
	int rc;

	hooks_lock(&w->lock);
	rc = w->op_error;
	w->op_error = 0;
	hooks_unlock(&w->lock);
	return rc;
}

int epoch_stream_errors(const struct hwin *w)
{
	int rc = 0;

	for (uint32_t i = 0; i < w->nranks; i++)
		rc = worse(rc, prog_win_error(w->pw, i));
	return rc;
}

int epoch_check(void *arg, uint32_t rank)
{
	struct hwin *w = arg;

	if (rank == UINT32_MAX)		/* a fence that counts: two ranks */
		rank = !w->rank;
	epoch_drain(w);
	if (is_broken(w, rank))
		return -ECONNRESET;
	return own_loss(w, rank);
}

bool epoch_idle(const struct hwin *w)
{
	/* after a lost epoch a program may clean up without the calls that would have ended it */
	for (uint32_t i = 0; i < w->nranks; i++)
		if (is_broken(w, i))
			return true;
	return access_of(w) <= HWIN_ACCESS_FENCE && !w->exposed;
}

bool epoch_passive(const struct hwin *w, uint32_t target)
{
	enum hwin_access a = access_of(w);

	return a == HWIN_ACCESS_LOCK_ALL ||
	       (a == HWIN_ACCESS_LOCK && (target_get(w, target) & HWIN_T_MEMBER));
}

int epoch_lock_lazily(struct hwin *w, uint32_t t, unsigned int flags)
{
	unsigned int bits;
	int rc = 0;

	hooks_lock(&w->lock);
	bits = target_get(w, t);
	if (bits & HWIN_T_TOUCHED) {
		/* another thread is at it */
		hooks_unlock(&w->lock);
		while (!(target_get(w, t) & HWIN_T_READY)) {
			if (!(target_get(w, t) & HWIN_T_TOUCHED))
				return -EIO;	/* it failed */
			sched_yield();
		}
		return 0;
	}
	bits = HWIN_T_TOUCHED | HWIN_T_MEMBER | (w->all_nocheck ? 0 : HWIN_T_HELD);
	target_set(w, t, bits);
	hooks_unlock(&w->lock);
	if (bits & HWIN_T_HELD)
		rc = prog_lock(w->pw, t, flags);
	hooks_lock(&w->lock);
	if (rc) {
		target_set(w, t, 0);
	} else {
		w->touched[w->ntouched++] = t;
		target_set(w, t, bits | HWIN_T_READY);
	}
	hooks_unlock(&w->lock);
	return rc;
}

int epoch_prepare(struct hwin *w, uint32_t t)
{
	int rc;

	switch (access_of(w)) {
	case HWIN_ACCESS_FENCE:
		atomic_store_explicit(&w->fence_used, true, memory_order_relaxed);
		return MPI_SUCCESS;
	case HWIN_ACCESS_START:
		if (!(target_get(w, t) & HWIN_T_MEMBER))
			return MPI_ERR_RMA_SYNC;
		if (is_broken(w, t))
			return herror_class(-ECONNRESET);
		if (!w->start_nocheck) {
			rc = prog_posted(w->pw, t, w->start_epoch[t], true);
			if (rc < 0)
				return herror_class(epoch_note_loss(w, t, rc));
		}
		target_set(w, t, HWIN_T_MEMBER | HWIN_T_READY);
		return MPI_SUCCESS;
	case HWIN_ACCESS_LOCK_ALL:
		return herror_class(epoch_lock_lazily(w, t, 0));
	default:
		return MPI_ERR_RMA_SYNC;
	}
}

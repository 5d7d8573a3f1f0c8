/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Active target synchronization: the calls that open and close epochs for all ranks, or for groups of them.
 *
 * Fence.  In a window of two ranks the ranks tell each other how many operations they issued
 * and each waits for as many, while the own ones are acknowledged.  With more ranks that is not
 * enough: a rank that has all it expects goes on, and its next operations may reach a third rank before an
 * earlier one of a slower rank does.  There each rank flushes and all meet in a barrier.
 */
#include <stdlib.h>

#include <libprogbase/futex.h>

#include "epoch.h"
#include "hooks_gen.h"

#define FENCE_ASSERTS (MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED)
#define POST_ASSERTS (MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT)
#define COUNT_BROKEN 0x80000000u	/* in place of a fence's count */
#define COUNT_TAG 0			/* of the message with that; a window's own tag is not 0 */
#define LATE_NS 200000			/* a peer that runs has sent it by then */
#define SLICE_NS 100000

/* ---- fence ----------------------------------------------------------------------------------- */

/*
 * Wait for @req, from a peer.  Where processors are short, who spins until the peer has its turn has used up its own by
 * then, and gets no other soon.  Who sleeps for a slice has one when the message is there.
 */
static int await_peer(MPI_Request *req)
{
	uint64_t start = clock_ns();
	int done = 0, rc;

	for (;;) {
		rc = PMPI_Test(req, &done, MPI_STATUS_IGNORE);
		if (rc || done)
			return rc;
		if (clock_ns() - start > LATE_NS && prog_session_crowded(hooks.session))
			prog_session_wait(hooks.session, SLICE_NS);
	}
}

/* Tell @peer how many operations it will get, and be told. */
static int swap_counts(struct hwin *w, uint32_t peer, uint32_t *mine)
{
	MPI_Request req;
	int rc;

	if (PMPI_Irecv(mine, 1, MPI_UINT32_T, (int)peer, COUNT_TAG, w->comm, &req))
		return -EIO;
	rc = PMPI_Send(&w->sum[peer], 1, MPI_UINT32_T, (int)peer, COUNT_TAG, w->comm);
	if (rc)
		PMPI_Cancel(&req);
	/* copies that were put off, while the peer does the same */
	prog_win_sync(w->pw);
	return await_peer(&req) || rc ? -EIO : 0;
}

static int fence_counting(struct hwin *w)
{
	uint32_t peer = !w->rank, mine = 0;
	int rc;

	prog_fence_issued(w->pw, w->sum);
	if (is_broken(w, peer))
		w->sum[peer] = COUNT_BROKEN;
	rc = swap_counts(w, peer, &mine);
	if (rc)
		return rc;
	if (mine == COUNT_BROKEN)
		atomic_store(&w->broken[peer], true);
	if (is_broken(w, peer))
		return worse(prog_flush_all(w->pw), -ECONNRESET);
	return epoch_note_loss(w, peer, prog_fence_wait(w->pw, w->sum[w->rank] + mine));
}

static int fence_flushing(struct hwin *w)
{
	int rc = w->fence_used ? prog_flush_all(w->pw) : 0;

	prog_win_sync(w->pw);
	if (PMPI_Barrier(w->comm))
		rc = worse(rc, -EIO);
	return rc;
}

int hook_win_fence(struct hwin *w, int assert)
{
	enum hwin_access a = access_of(w);
	bool used = w->fence_used;
	int rc = 0;

	if (assert & ~FENCE_ASSERTS)
		return hwin_error(w, MPI_ERR_ASSERT);
	if (a > HWIN_ACCESS_FENCE || w->exposed)
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	/* both are given by all ranks or by none: nothing to complete, nothing to open */
	if ((assert & MPI_MODE_NOPRECEDE) && (assert & MPI_MODE_NOSUCCEED))
		;
	else if (w->fence_counts)
		rc = fence_counting(w);
	else
		rc = fence_flushing(w);
	prog_win_sync(w->pw);
	if (used)
		rc = worse(worse(epoch_stream_errors(w), epoch_take_error(w)), rc);
	if (w->fence_counts)
		epoch_note_loss(w, !w->rank, rc);
	hooks_lock(&w->lock);
	epoch_move(w, assert & MPI_MODE_NOSUCCEED ? HWIN_ACCESS_NONE : HWIN_ACCESS_FENCE);
	hooks_unlock(&w->lock);
	return end_requests(w, rc, __func__);
}

/* ---- post, start, complete, wait ------------------------------------------------------------- */

/* Window ranks of @group's members into @ranks ([nranks]). Returns an MPI class. */
static int group_ranks(struct hwin *w, MPI_Group group, uint32_t *ranks, uint32_t *n)
{
	int size, rc = MPI_SUCCESS, *in, *out;
	MPI_Group mine;

	if (group == MPI_GROUP_NULL || PMPI_Group_size(group, &size))
		return MPI_ERR_GROUP;
	if ((uint32_t)size > w->nranks)
		return MPI_ERR_GROUP;
	*n = (uint32_t)size;
	if (!size)
		return MPI_SUCCESS;
	in = calloc((size_t)size * 2, sizeof(*in));
	if (!in)
		return MPI_ERR_NO_MEM;
	out = in + size;
	for (int i = 0; i < size; i++)
		in[i] = i;
	if (PMPI_Comm_group(w->comm, &mine)) {
		rc = MPI_ERR_GROUP;
		goto out;
	}
	if (PMPI_Group_translate_ranks(group, size, in, mine, out))
		rc = MPI_ERR_GROUP;
	PMPI_Group_free(&mine);
	for (int i = 0; i < size && !rc; i++) {
		if (out[i] == MPI_UNDEFINED)
			rc = MPI_ERR_GROUP;
		else
			ranks[i] = (uint32_t)out[i];
	}
out:
	free(in);
	return rc;
}

int hook_win_start(struct hwin *w, MPI_Group group, int assert)
{
	uint32_t n;
	int rc;

	if (assert & ~MPI_MODE_NOCHECK)
		return hwin_error(w, MPI_ERR_ASSERT);
	if (access_of(w) > HWIN_ACCESS_FENCE)
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	rc = group_ranks(w, group, w->touched, &n);
	if (rc)
		return hwin_error(w, rc);
	hooks_lock(&w->lock);
	if (epoch_move(w, HWIN_ACCESS_START)) {
		w->ntouched = n;
		w->start_nocheck = assert & MPI_MODE_NOCHECK;
		for (uint32_t i = 0; i < n; i++) {
			w->start_epoch[w->touched[i]]++;
			target_set(w, w->touched[i], HWIN_T_MEMBER);
		}
	} else {
		rc = MPI_ERR_RMA_SYNC;
	}
	hooks_unlock(&w->lock);
	return hwin_error(w, rc);
}

/* Those of @n @ranks to which there is a way, into @live; *@rc gets an error for the others. */
static uint32_t living(struct hwin *w, const uint32_t *ranks, uint32_t n, uint32_t *live, int *rc)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (is_broken(w, ranks[i]))
			*rc = -ECONNRESET;
		else
			live[k++] = ranks[i];
	}
	return k;
}

int hook_win_complete(struct hwin *w)
{
	uint32_t n;
	int rc = 0;

	if (access_of(w) != HWIN_ACCESS_START)
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	/* the notice follows the operations */
	n = living(w, w->touched, w->ntouched, w->live, &rc);
	prog_complete(w->pw, w->live, n, w->errs);
	for (uint32_t i = 0; i < n; i++) {
		int err = worse(prog_win_error(w->pw, w->live[i]), w->errs[i]);

		rc = worse(rc, epoch_note_loss(w, w->live[i], err));
	}
	rc = worse(rc, epoch_take_error(w));
	hooks_lock(&w->lock);
	for (uint32_t i = 0; i < w->ntouched; i++)
		target_set(w, w->touched[i], 0);
	w->ntouched = 0;
	epoch_move(w, HWIN_ACCESS_NONE);
	hooks_unlock(&w->lock);
	return end_requests(w, rc, __func__);
}

int hook_win_post(struct hwin *w, MPI_Group group, int assert)
{
	uint32_t *live = w->live + w->nranks, n, nlive, posted;
	int *errs = w->errs + w->nranks, rc;

	if (assert & ~POST_ASSERTS)
		return hwin_error(w, MPI_ERR_ASSERT);
	if (w->exposed)
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	rc = group_ranks(w, group, w->post_ranks, &n);
	if (rc)
		return hwin_error(w, rc);
	hooks_lock(&w->lock);
	w->exposed = true;
	w->npost = n;
	for (uint32_t i = 0; i < n; i++)
		w->post_epoch[w->post_ranks[i]]++;
	hooks_unlock(&w->lock);
	prog_win_sync(w->pw);
	/* also with NOCHECK: the counts of both sides must agree in later epochs */
	nlive = posted = living(w, w->post_ranks, n, live, &rc);
	prog_post(w->pw, live, nlive, errs);
	for (uint32_t i = 0; i < nlive; i++) {
		posted -= !!errs[i];
		rc = worse(rc, epoch_note_loss(w, live[i], errs[i]));
	}
	/* to nobody: then there is nobody to wait for either */
	if (rc && !posted) {
		hooks_lock(&w->lock);
		w->exposed = false;
		hooks_unlock(&w->lock);
	}
	return hwin_errno(w, rc);
}

static int exposure_end(struct hwin *w, int rc, const char *call)
{
	hooks_lock(&w->lock);
	w->exposed = false;
	w->npost = 0;
	hooks_unlock(&w->lock);
	prog_win_sync(w->pw);
	return unlikely(rc < 0) ? hwin_raise_errno(w, rc, call) : MPI_SUCCESS;
}

int hook_win_wait(struct hwin *w)
{
	int rc = 0;

	if (!w->exposed)
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	for (uint32_t i = 0; i < w->npost; i++) {
		uint32_t o = w->post_ranks[i];

		if (is_broken(w, o))
			rc = -ECONNRESET;
		else
			rc = worse(rc, epoch_note_loss(w, o, prog_completed(w->pw, o, w->post_epoch[o],
								      true)));
	}
	return exposure_end(w, rc, __func__);
}

int hook_win_test(struct hwin *w, int *flag)
{
	*flag = 0;
	if (!w->exposed)
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	for (uint32_t i = 0; i < w->npost; i++) {
		uint32_t o = w->post_ranks[i];
		int rc = prog_completed(w->pw, o, w->post_epoch[o], false);

		if (!rc) {
			hooks_progress(NULL);	/* a program may poll nothing but this */
			rc = prog_session_alive(hooks.session) ? epoch_check(w, o) : -ECONNRESET;
			if (!rc)
				return MPI_SUCCESS;
		}
		if (rc < 0)
			return exposure_end(w, epoch_note_loss(w, o, rc), __func__);
	}
	*flag = 1;
	return exposure_end(w, 0, __func__);
}

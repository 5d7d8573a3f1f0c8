/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Epochs: which call is allowed when, and the calls that open and close them.
 *
 * hwin.access and hwin.target[] say what this process may do as an origin, hwin.exposed whether it
 * is a target of post/wait.  Both change under hwin.lock only, which is never held over a call
 * that may wait (another thread may have to make the call that ends the wait); operations read
 * hwin.target[] without it.
 *
 * Fence.  In a window of two ranks the ranks tell each other how many operations they issued
 * and each waits for as many, while the own ones are acknowledged.  With more ranks that is not
 * enough: a rank that has all it expects goes on, and its next operations may reach a third rank before an
 * earlier one of a slower rank does.  There each rank flushes and all meet in a barrier.
 *
 * Lost epochs.  A post, a complete or an operation of a fence that counts may be lost on the way,
 * and leaves a rank waiting.  Whose call it was gets an error, and tells that rank by an empty
 * message.  From then on the counts of the two differ: the pair is "broken", and whatever would count
 * fails at both.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/futex.h>

#include "hooks_gen.h"

#define FENCE_ASSERTS (MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED)
#define POST_ASSERTS (MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT)
#define COUNT_BROKEN 0x80000000u	/* in place of a fence's count */
#define COUNT_TAG 0			/* of the message with that; a window's own tag is not 0 */
#define LATE_NS 200000			/* a peer that runs has sent it by then */
#define NAP_NS 100000

/* ---- states ---------------------------------------------------------------------------------- */

static enum hwin_access access_of(const struct hwin *w)
{
	return atomic_load_explicit(&((struct hwin *)w)->access, memory_order_acquire);
}

/* The only place where the access state changes; under lock. False: the move is not allowed. */
static bool access_set(struct hwin *w, enum hwin_access to)
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

static void target_set(struct hwin *w, uint32_t t, unsigned int bits)
{
	atomic_store_explicit(&w->target[t], (uint8_t)bits, memory_order_release);
}

static unsigned int target_get(const struct hwin *w, uint32_t t)
{
	return atomic_load_explicit(&w->target[t], memory_order_acquire);
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
	w->live = calloc(n, sizeof(*w->live));
	w->errs = calloc(n, sizeof(*w->errs));
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

/* The first of two results that is an error. */
static int worse(int a, int b)
{
	return a < 0 ? a : b < 0 ? b : 0;
}

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

static bool is_broken(const struct hwin *w, uint32_t rank)
{
	return atomic_load_explicit(&((struct hwin *)w)->broken[rank], memory_order_relaxed);
}

/* Returns @rc. */
static int note_loss(struct hwin *w, uint32_t rank, int rc)
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
		return note_loss(w, rank, rc);
	if (rc) {
		hooks_lock(&w->lock);
		w->op_error = worse(w->op_error, rc);
		hooks_unlock(&w->lock);
	}
	return 0;
}

static int take_op_error(struct hwin *w)
{
	int rc;

	hooks_lock(&w->lock);
	rc = w->op_error;
	w->op_error = 0;
	hooks_unlock(&w->lock);
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

/* In a lock_all epoch: take the shared lock on @t, once. */
static int lock_lazily(struct hwin *w, uint32_t t, unsigned int flags)
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

static int target_prepare(struct hwin *w, uint32_t t)
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
				return herror_class(note_loss(w, t, rc));
		}
		target_set(w, t, HWIN_T_MEMBER | HWIN_T_READY);
		return MPI_SUCCESS;
	case HWIN_ACCESS_LOCK_ALL:
		return herror_class(lock_lazily(w, t, 0));
	default:
		return MPI_ERR_RMA_SYNC;
	}
}

int epoch_target(struct hwin *w, uint32_t target)
{
	if (likely(target_get(w, target) & HWIN_T_READY))
		return MPI_SUCCESS;
	return target_prepare(w, target);
}

static int end_requests(struct hwin *w, int rc, const char *call)
{
	if (hreq_outstanding())
		hreq_drive();
	return unlikely(rc < 0) ? hwin_raise_errno(w, rc, call) : MPI_SUCCESS;
}

/* ---- fence ----------------------------------------------------------------------------------- */

static int stream_errors(struct hwin *w)
{
	int rc = 0;

	for (uint32_t i = 0; i < w->nranks; i++)
		rc = worse(rc, prog_win_error(w->pw, i));
	return rc;
}

/*
 * Wait for @req, from a peer.  Where processors are short, who spins until the peer has its turn has used up its own by
 * then, and gets no other soon.  Who naps has one when the message is there.
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
			prog_session_wait(hooks.session, NAP_NS);
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
	return note_loss(w, peer, prog_fence_wait(w->pw, w->sum[w->rank] + mine));
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
		rc = worse(worse(stream_errors(w), take_op_error(w)), rc);
	if (w->fence_counts)
		note_loss(w, !w->rank, rc);
	hooks_lock(&w->lock);
	access_set(w, assert & MPI_MODE_NOSUCCEED ? HWIN_ACCESS_NONE : HWIN_ACCESS_FENCE);
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
	if (access_set(w, HWIN_ACCESS_START)) {
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

/* Those of @n @ranks to which there is a way, into w->live; *@rc gets an error for the others. */
static uint32_t living(struct hwin *w, const uint32_t *ranks, uint32_t n, int *rc)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (is_broken(w, ranks[i]))
			*rc = -ECONNRESET;
		else
			w->live[k++] = ranks[i];
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
	n = living(w, w->touched, w->ntouched, &rc);
	prog_complete(w->pw, w->live, n, w->errs);
	for (uint32_t i = 0; i < n; i++) {
		int err = worse(prog_win_error(w->pw, w->live[i]), w->errs[i]);

		rc = worse(rc, note_loss(w, w->live[i], err));
	}
	rc = worse(rc, take_op_error(w));
	hooks_lock(&w->lock);
	for (uint32_t i = 0; i < w->ntouched; i++)
		target_set(w, w->touched[i], 0);
	w->ntouched = 0;
	access_set(w, HWIN_ACCESS_NONE);
	hooks_unlock(&w->lock);
	return end_requests(w, rc, __func__);
}

int hook_win_post(struct hwin *w, MPI_Group group, int assert)
{
	uint32_t n, live, posted;
	int rc;

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
	live = posted = living(w, w->post_ranks, n, &rc);
	prog_post(w->pw, w->live, live, w->errs);
	for (uint32_t i = 0; i < live; i++) {
		posted -= !!w->errs[i];
		rc = worse(rc, note_loss(w, w->live[i], w->errs[i]));
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
			rc = worse(rc, note_loss(w, o, prog_completed(w->pw, o, w->post_epoch[o],
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
			return exposure_end(w, note_loss(w, o, rc), __func__);
	}
	*flag = 1;
	return exposure_end(w, 0, __func__);
}

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
	if (target_get(w, t) || !access_set(w, HWIN_ACCESS_LOCK)) {
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
			access_set(w, HWIN_ACCESS_NONE);
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
		access_set(w, HWIN_ACCESS_NONE);
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
	ok = access_set(w, HWIN_ACCESS_LOCK_ALL);
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
			rc = lock_lazily(w, t, lock_wait(w, t));
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
	access_set(w, HWIN_ACCESS_NONE);
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
	return end_requests(w, worse(stream_errors(w), rc), call);
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

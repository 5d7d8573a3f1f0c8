/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Windows.  A managed window's handle is a window of the MPI library over a private communicator
 * of this process alone, so that names, info, attributes and error handlers are the library's
 * own; for MPI_Win_allocate_shared it is the library's shared window over the user's communicator,
 * whose memory we use.  Whether a window is managed is decided by all its ranks together: any
 * failure anywhere and all of them make the library's window instead.
 */
#include <stdlib.h>
#include <string.h>

#include "hooks_gen.h"

struct hmap hwin_map = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- creation -------------------------------------------------------------------------------- */

struct create {
	int flavor;		/* MPI_WIN_FLAVOR_* */
	void *base;
	MPI_Aint size, unit;
	MPI_Info info;
	MPI_Comm comm;		/* the user's */
	void *baseptr;		/* allocate: where the pointer goes */
	MPI_Win *win;
};

/* what each rank tells the others before anything is made */
struct intent {
	uint8_t ok;
	uint8_t jobid[16];
	uint64_t key;
	int64_t size;
	int32_t unit;
	int32_t pad;
};

static atomic_bool native_logged;

static int create_native(const struct create *c)
{
#if MPI_VERSION >= 4
	switch (c->flavor) {
	case MPI_WIN_FLAVOR_CREATE:
		return PMPI_Win_create_c(c->base, c->size, c->unit, c->info, c->comm, c->win);
	case MPI_WIN_FLAVOR_ALLOCATE:
		return PMPI_Win_allocate_c(c->size, c->unit, c->info, c->comm, c->baseptr, c->win);
	case MPI_WIN_FLAVOR_SHARED:
		return PMPI_Win_allocate_shared_c(c->size, c->unit, c->info, c->comm, c->baseptr,
						  c->win);
	}
#else
	switch (c->flavor) {
	case MPI_WIN_FLAVOR_CREATE:
		return PMPI_Win_create(c->base, c->size, (int)c->unit, c->info, c->comm, c->win);
	case MPI_WIN_FLAVOR_ALLOCATE:
		return PMPI_Win_allocate(c->size, (int)c->unit, c->info, c->comm, c->baseptr,
					 c->win);
	case MPI_WIN_FLAVOR_SHARED:
		return PMPI_Win_allocate_shared(c->size, (int)c->unit, c->info, c->comm,
						c->baseptr, c->win);
	}
#endif
	return PMPI_Win_create_dynamic(c->info, c->comm, c->win);
}

/* Arguments that the library refuses make the window native, so that its errors are its own. */
static bool args_valid(const struct create *c)
{
	if (!c->win || c->size < 0 || c->unit <= 0 || c->unit > INT32_MAX)
		return false;
	if (c->flavor == MPI_WIN_FLAVOR_CREATE && !c->base && c->size)
		return false;
	return c->baseptr || (c->flavor != MPI_WIN_FLAVOR_ALLOCATE &&
			      c->flavor != MPI_WIN_FLAVOR_SHARED);
}

/* An intracommunicator? Without touching its error handler: MPI_COMM_NULL is the library's to refuse. */
static bool comm_usable(MPI_Comm comm)
{
	int inter;

	if (comm == MPI_COMM_NULL)
		return false;
	return !PMPI_Comm_test_inter(comm, &inter) && !inter;
}

/* Unique among the job's live windows if made by one process: its world rank and a count. */
static uint64_t new_key(void)
{
	static atomic_uint count;

	return (uint64_t)(uint32_t)hooks.world_rank << 32 |
	       (atomic_fetch_add(&count, 1) + 1);
}

static void hwin_free(struct hwin *w)
{
	if (!w)
		return;
	prog_win_close(w->pw);
	epoch_fini(w);
	if (w->comm != MPI_COMM_NULL)
		PMPI_Comm_free(&w->comm);
	free(w->units);
	free(w->sum);
	free(w);
}

static bool all_ok(MPI_Comm comm, bool ok)
{
	int mine = ok, all = 0;

	if (PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm))
		return false;
	return all;
}

/* The window of the library whose handle the user gets. */
static int make_handle(struct hwin *w, const struct create *c)
{
	void *base;

	if (c->flavor == MPI_WIN_FLAVOR_SHARED)
		return 0;	/* exists already */
	if (PMPI_Win_allocate(0, 1, c->info, hooks.self, &base, &w->handle))
		return -EIO;
	return 0;
}

static enum prog_win_kind kind_of(int flavor)
{
	if (flavor == MPI_WIN_FLAVOR_ALLOCATE)
		return PROG_WIN_ALLOCATE;
	return flavor == MPI_WIN_FLAVOR_DYNAMIC ? PROG_WIN_DYNAMIC : PROG_WIN_CREATE;
}

static int take_units(struct hwin *w, const struct intent *all)
{
	w->unit = all[0].unit;
	for (uint32_t i = 1; i < w->nranks; i++)
		if (all[i].unit != w->unit)
			w->unit = 0;
	if (w->unit)
		return 0;
	w->units = calloc(w->nranks, sizeof(*w->units));
	if (!w->units)
		return -ENOMEM;
	for (uint32_t i = 0; i < w->nranks; i++)
		w->units[i] = all[i].unit;
	return 0;
}

/* Pointers to everybody's part of a shared window of the library. */
static void **shared_pointers(struct hwin *w)
{
	void **direct = calloc(w->nranks, sizeof(*direct));

	for (uint32_t i = 0; direct && i < w->nranks; i++) {
		MPI_Aint size;
		int unit;

		if (PMPI_Win_shared_query(w->handle, (int)i, &size, &unit, &direct[i])) {
			free(direct);
			return NULL;
		}
	}
	return direct;
}

/*
 * Step one, local: everything this rank can do alone. Sets w->handle only when it succeeds
 * completely (or it was set before).
 */
static int open_local(struct hwin *w, const struct create *c, const struct intent *all,
		      struct prog_endpoint *ep)
{
	struct prog_win_cfg cfg = {
		.kind = kind_of(c->flavor),
		.key = all[0].key,
		.rank = w->rank,
		.nranks = w->nranks,
		.base = w->base,
		.size = (size_t)c->size,
	};
	int rc = take_units(w, all);

	if (!rc)
		rc = epoch_init(w);
	if (!rc)
		rc = prog_win_open(hooks.session, &cfg, &w->pw);
	if (rc)
		return rc;
	prog_win_set_check(w->pw, epoch_check, w);
	prog_win_endpoint(w->pw, ep);
	if (c->flavor == MPI_WIN_FLAVOR_ALLOCATE)
		w->base = prog_win_base(w->pw);
	return make_handle(w, c);
}

/*
 * Try to make a managed window.  All ranks return the same *@managed.  Returns an MPI class when the
 * library failed in what we need of it.
 */
static int create_managed(struct hwin *w, const struct create *c, bool *managed, const char **why)
{
	struct prog_endpoint *eps = calloc(w->nranks + 1, sizeof(*eps));
	struct intent *all = calloc(w->nranks, sizeof(*all)), me = { 0 };
	bool have_handle = c->flavor == MPI_WIN_FLAVOR_SHARED, ok;
	void **direct = NULL;
	int rc = 0, mpi;

	*managed = false;
	me.ok = eps && all && (!hooks_session(why));
	if (me.ok && !args_valid(c)) {
		me.ok = 0;
		*why = "its arguments are not valid";
	}
	memcpy(me.jobid, hooks.jobid, sizeof(me.jobid));
	me.key = w->rank ? 0 : new_key();
	me.size = c->size;
	me.unit = (int32_t)c->unit;
	if (!all_ok(w->comm, me.ok)) {
		if (me.ok)
			*why = "another rank cannot";
		goto out;
	}
	mpi = PMPI_Allgather(&me, sizeof(me), MPI_BYTE, all, sizeof(me), MPI_BYTE, w->comm);
	if (mpi) {
		free(eps);
		free(all);
		return mpi;
	}
	for (uint32_t i = 1; i < w->nranks; i++)
		if (memcmp(all[i].jobid, me.jobid, sizeof(me.jobid))) {
			*why = "its ranks belong to different jobs";
			goto out;
		}

	rc = open_local(w, c, all, &eps[w->nranks]);
	ok = !rc;
	have_handle = have_handle || ok;
	if (!ok)
		*why = strerror(-rc);
	if (all_ok(w->comm, ok)) {
		mpi = PMPI_Allgather(&eps[w->nranks], sizeof(*eps), MPI_BYTE, eps, sizeof(*eps),
				     MPI_BYTE, w->comm);
		rc = mpi ? -EIO : prog_win_connect(w->pw, eps, why);
		ok = !rc;
		if (all_ok(w->comm, ok)) {
			if (c->flavor == MPI_WIN_FLAVOR_SHARED) {
				direct = shared_pointers(w);
				rc = direct ? 0 : -ENOMEM;
			}
			if (!rc)
				rc = prog_win_map(w->pw, direct);
			ok = !rc;
			if (!ok)
				*why = "a peer's memory cannot be mapped";
			/* also the barrier that keeps accesses off before all are ready */
			*managed = all_ok(w->comm, ok);
		}
	}
	if (!*managed) {
		if (ok)
			*why = "another rank cannot";
		if (have_handle && c->flavor != MPI_WIN_FLAVOR_SHARED)
			PMPI_Win_free(&w->handle);
	}
out:
	free(direct);
	free(eps);
	free(all);
	return MPI_SUCCESS;
}

/* Said aloud by one process of the job, once; the others' lines are there at level info. */
static void log_native(const struct hwin *w, const char *why)
{
	if (w->rank || atomic_exchange(&native_logged, true))
		return;
	prog_log(hooks.world_rank ? PROG_LOG_INFO : PROG_LOG_WARN,
		 "window: left to the MPI library: %s", why ? why : "unknown");
}

static int create_shared_native(struct hwin *w, const struct create *c)
{
	MPI_Aint size;
	int rc, unit;

	rc = create_native(c);
	if (rc)
		return rc;
	w->handle = *c->win;
	if (PMPI_Win_shared_query(w->handle, (int)w->rank, &size, &unit, &w->base))
		w->base = NULL;
	return MPI_SUCCESS;
}

static int create(const struct create *c)
{
	bool managed = false;
	const char *why = NULL;
	struct hwin *w;
	int rc, rank, n;

	if (!hooks.on || !comm_usable(c->comm))
		return create_native(c);
	w = calloc(1, sizeof(*w));
	if (!w)
		return MPI_ERR_NO_MEM;	/* before a collective call: the others hang as natively */
	w->comm = MPI_COMM_NULL;
	PMPI_Comm_rank(c->comm, &rank);
	PMPI_Comm_size(c->comm, &n);
	w->rank = (uint32_t)rank;
	w->nranks = (uint32_t)n;
	/* split and not dup, which would run the program's attribute copy functions */
	rc = PMPI_Comm_split(c->comm, 0, rank, &w->comm);
	if (rc) {
		free(w);
		return rc;
	}
	PMPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
	w->flavor = c->flavor;
	w->model = MPI_WIN_UNIFIED;
	w->dynamic = c->flavor == MPI_WIN_FLAVOR_DYNAMIC;
	w->base = c->base;
	w->size = c->size;
	w->disp_unit = (int)c->unit;
	if (c->flavor == MPI_WIN_FLAVOR_SHARED) {
		rc = create_shared_native(w, c);
		if (rc) {
			hwin_free(w);
			return rc;
		}
	}
	rc = create_managed(w, c, &managed, &why);
	if (!rc && managed) {
		/* like the library's own: errors of a window are fatal until it is told otherwise */
		w->fence_counts = w->nranks == 2 && prog_win_multinode(w->pw);
		if (hmap_add(&hwin_map, HMAP_KEY(w->handle), w)) {
			prog_log(PROG_LOG_ERROR, "window: out of memory");
			PMPI_Abort(MPI_COMM_WORLD, 1);	/* the others have it already */
		}
		*c->win = w->handle;
		if (c->flavor == MPI_WIN_FLAVOR_ALLOCATE)
			memcpy(c->baseptr, &w->base, sizeof(w->base));
		prog_log(PROG_LOG_DEBUG, "window: managed, %u ranks", w->nranks);
		return MPI_SUCCESS;
	}
	if (!rc) {
		log_native(w, why);
		if (hooks.session)
			prog_session_note(hooks.session, why ? why : "unknown");
	}
	hwin_free(w);
	if (rc || c->flavor == MPI_WIN_FLAVOR_SHARED)
		return rc;
	return create_native(c);
}

int hook_win_create(void *base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
		    MPI_Win *win)
{
	struct create c = {
		.flavor = MPI_WIN_FLAVOR_CREATE, .base = base, .size = size, .unit = disp_unit,
		.info = info, .comm = comm, .win = win,
	};

	return create(&c);
}

int hook_win_allocate(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
		      void *baseptr, MPI_Win *win)
{
	struct create c = {
		.flavor = MPI_WIN_FLAVOR_ALLOCATE, .size = size, .unit = disp_unit, .info = info,
		.comm = comm, .baseptr = baseptr, .win = win,
	};

	return create(&c);
}

int hook_win_allocate_shared(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
			     void *baseptr, MPI_Win *win)
{
	struct create c = {
		.flavor = MPI_WIN_FLAVOR_SHARED, .size = size, .unit = disp_unit, .info = info,
		.comm = comm, .baseptr = baseptr, .win = win,
	};

	return create(&c);
}

int hook_win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	struct create c = {
		.flavor = MPI_WIN_FLAVOR_DYNAMIC, .unit = 1, .info = info, .comm = comm, .win = win,
	};

	return create(&c);
}

/* ---- freeing --------------------------------------------------------------------------------- */

int hook_win_free(MPI_Win *win)
{
	struct hwin *w = win ? hwin_find(*win) : NULL;
	int rc;

	if (!w)
		return PMPI_Win_free(win);
	if (!epoch_idle(w))
		return hwin_error(w, MPI_ERR_RMA_SYNC);
	prog_flush_all(w->pw);
	hreq_finish(w);
	/* all operations of all ranks are applied, and nobody issues any more */
	PMPI_Barrier(w->comm);
	epoch_drain(w);
	/* attribute delete functions may still use the window's memory and queries */
	rc = PMPI_Win_free(win);
	hmap_del(&hwin_map, HMAP_KEY(w->handle));
	hwin_free(w);
	return rc;
}

void hwin_drop_all(void)
{
	for (size_t i = 0; i < sizeof(hwin_map.bucket) / sizeof(hwin_map.bucket[0]); i++) {
		struct hmap_node *n = &hwin_map.bucket[i];

		for (; n; n = n->next) {
			struct hwin *w = n->key ? n->val : NULL;

			if (!w)
				continue;
			n->key = 0;
			hreq_finish(w);
			hwin_free(w);
		}
	}
}

/* ---- queries --------------------------------------------------------------------------------- */

int hook_win_get_attr(struct hwin *w, int win_keyval, void *attribute_val, int *flag)
{
	void *val;

	switch (win_keyval) {
	case MPI_WIN_BASE:
		val = w->base;
		break;
	case MPI_WIN_SIZE:
		val = &w->size;
		break;
	case MPI_WIN_DISP_UNIT:
		val = &w->disp_unit;
		break;
	case MPI_WIN_CREATE_FLAVOR:
		val = &w->flavor;
		break;
	case MPI_WIN_MODEL:
		val = &w->model;
		break;
	default:
		return PMPI_Win_get_attr(w->handle, win_keyval, attribute_val, flag);
	}
	*flag = 1;
	memcpy(attribute_val, &val, sizeof(val));
	return MPI_SUCCESS;
}

int hook_win_get_group(struct hwin *w, MPI_Group *group)
{
	return hwin_error(w, PMPI_Comm_group(w->comm, group));
}

/*
 * Address from the library; sizes are what the ranks asked for (Open MPI gives whole pages).
 * MPI_PROC_NULL stands for the first rank that has memory.
 */
int hook_win_shared_query(struct hwin *w, int rank, MPI_Aint *size, MPI_Aint *disp_unit,
			  void *baseptr)
{
	int unit, rc;

	if (w->flavor != MPI_WIN_FLAVOR_SHARED)
		return hwin_error(w, MPI_ERR_RMA_FLAVOR);
	if (rank != MPI_PROC_NULL && (unsigned int)rank >= w->nranks)
		return hwin_error(w, MPI_ERR_RANK);
	for (uint32_t i = 0; rank == MPI_PROC_NULL && i < w->nranks; i++)
		if (prog_win_size(w->pw, i))
			rank = (int)i;
	rc = PMPI_Win_shared_query(w->handle, rank, size, &unit, baseptr);
	if (rc)
		return rc;
	*disp_unit = unit;
	if (rank != MPI_PROC_NULL)
		*size = (MPI_Aint)prog_win_size(w->pw, (uint32_t)rank);
	return MPI_SUCCESS;
}

/* ---- dynamic windows ------------------------------------------------------------------------- */

int hook_win_attach(struct hwin *w, void *base, MPI_Aint size)
{
	int rc;

	if (!w->dynamic)
		return hwin_error(w, MPI_ERR_RMA_FLAVOR);
	if (size < 0)
		return hwin_error(w, MPI_ERR_SIZE);
	if (!size)
		return MPI_SUCCESS;
	rc = prog_win_attach(w->pw, base, (size_t)size);
	if (rc == -ENOSPC || rc == -EEXIST)
		return hwin_error(w, MPI_ERR_RMA_ATTACH);
	return hwin_errno(w, rc);
}

int hook_win_detach(struct hwin *w, const void *base)
{
	int rc;

	if (!w->dynamic)
		return hwin_error(w, MPI_ERR_RMA_FLAVOR);
	rc = prog_win_detach(w->pw, (void *)base);
	if (rc == -ENOENT)
		return hwin_error(w, MPI_ERR_RMA_ATTACH);
	return hwin_errno(w, rc);
}

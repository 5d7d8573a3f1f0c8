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
#include "win.h"

struct hmap hwin_map = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- creation -------------------------------------------------------------------------------- */

static atomic_bool native_logged, binding_logged;

static int create_native(const struct win_args *c)
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

/* An intracommunicator? Without touching its error handler: MPI_COMM_NULL is the library's to refuse. */
static bool comm_usable(MPI_Comm comm)
{
	int inter;

	if (comm == MPI_COMM_NULL)
		return false;
	return !PMPI_Comm_test_inter(comm, &inter) && !inter;
}

/* Said aloud by one process of the job, once; the others' lines are there at level info. */
static void log_native(const struct hfamily *f, const char *why)
{
	if (f->rank || atomic_exchange(&native_logged, true))
		return;
	prog_log(hooks.world_rank ? PROG_LOG_INFO : PROG_LOG_WARN,
		 "window: left to the MPI library: %s", why ? why : "unknown");
}

/* Which workers serve operations of this rank on the window: its own choice, so the others' may differ. */
static enum prog_binding binding_of(MPI_Info info)
{
	enum prog_binding binding = PROG_BIND_RANK;
	char value[64];		/* what is cut is none of them */
	int flag = 0;

	if (info == MPI_INFO_NULL || PMPI_Info_get(info, "asyncprog_binding", sizeof(value) - 1, value, &flag) || !flag)
		return PROG_BIND_CONFIGURED;
	if (prog_binding_parse(value, &binding) && !atomic_exchange(&binding_logged, true))
		prog_log(hooks.world_rank ? PROG_LOG_INFO : PROG_LOG_WARN,
			 "window: info asyncprog_binding \"%s\" is not rank, segment, random, ops, bytes or auto: taken as rank",
			 value);
	return binding;
}

static int create(const struct win_args *given)
{
	MPI_Win shared = MPI_WIN_NULL;
	struct win_args c = *given;
	const char *why = NULL;
	struct hfamily *f;
	struct hwin *w;
	int rc;

	if (!hooks.on || !comm_usable(c.comm) || (hooks.by_sessions && !hcomm_find(c.comm)))
		return create_native(&c);
	c.binding = binding_of(c.info);
	rc = hfamily_get(c.comm, &f);
	if (rc)
		return rc;
	if (c.flavor == MPI_WIN_FLAVOR_SHARED) {
		MPI_Aint size;
		int unit;

		rc = create_native(&c);
		if (rc)
			return rc;
		shared = *c.win;
		if (PMPI_Win_shared_query(shared, (int)f->rank, &size, &unit, &c.base))
			c.base = NULL;
	}
	rc = hwin_make(f, &c, shared, &w, &why);
	if (!rc && w) {
		w->flavor = c.flavor;
		w->dynamic = c.flavor == MPI_WIN_FLAVOR_DYNAMIC;
		w->size = c.size;
		w->disp_unit = (int)c.unit;
		/* like the library's own: errors of a window are fatal until it is told otherwise */
		w->fence_counts = w->nranks == 2 && prog_win_multinode(w->pw);
		hwin_set_defer(w, c.info);
		if (hmap_add(&hwin_map, HMAP_KEY(w->handle), w)) {
			prog_log(PROG_LOG_ERROR, "window: out of memory");
			PMPI_Abort(hooks.world, 1);	/* the others have it already */
		}
		*c.win = w->handle;
		if (c.flavor == MPI_WIN_FLAVOR_ALLOCATE)
			memcpy(c.baseptr, &w->base, sizeof(w->base));
		prog_log(PROG_LOG_DEBUG, "window: managed, %u ranks", w->nranks);
		return MPI_SUCCESS;
	}
	if (!rc) {
		log_native(f, why);
		if (hooks.session)
			prog_session_note(hooks.session, why ? why : "unknown");
	}
	if (rc || c.flavor == MPI_WIN_FLAVOR_SHARED)
		return rc;
	return create_native(&c);
}

int hook_win_create(void *base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
		    MPI_Win *win)
{
	struct win_args c = {
		.flavor = MPI_WIN_FLAVOR_CREATE, .base = base, .size = size, .unit = disp_unit,
		.info = info, .comm = comm, .win = win,
	};

	return create(&c);
}

int hook_win_allocate(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
		      void *baseptr, MPI_Win *win)
{
	struct win_args c = {
		.flavor = MPI_WIN_FLAVOR_ALLOCATE, .size = size, .unit = disp_unit, .info = info,
		.comm = comm, .baseptr = baseptr, .win = win,
	};

	return create(&c);
}

int hook_win_allocate_shared(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
			     void *baseptr, MPI_Win *win)
{
	struct win_args c = {
		.flavor = MPI_WIN_FLAVOR_SHARED, .size = size, .unit = disp_unit, .info = info,
		.comm = comm, .baseptr = baseptr, .win = win,
	};

	return create(&c);
}

int hook_win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	struct win_args c = {
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
	/* streams of others that wait for this process to take some would wait for ever */
	notify_end(w);
	prog_flush_all(w->pw);
	hreq_finish(w);
	/* all operations of all ranks are applied, and nobody issues any more */
	PMPI_Barrier(w->comm);
	epoch_drain(w);
	notify_report(w);
	/* attribute delete functions may still use the window's memory and queries */
	rc = w->flavor == MPI_WIN_FLAVOR_SHARED ? PMPI_Win_free(win) : hwin_handle_free(win);
	/* MPICH keeps a window of which a delete function has failed: it can be used, and freed later */
	if (unlikely(rc) && *win != MPI_WIN_NULL)
		return rc;
	hmap_del_val(&hwin_map, HMAP_KEY(w->handle), w);
	hwin_detach_all(w);
	hwin_retire(w);
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
			hwin_detach_all(w);
			hwin_free(w);
		}
	}
	hfamily_end_all();
}

/* ---- queries --------------------------------------------------------------------------------- */

int hook_win_get_attr(struct hwin *w, int win_keyval, void *attribute_val, int *flag)
{
	int *progresses;
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
		if (!notify_progress_attr(w, win_keyval, &progresses))
			return PMPI_Win_get_attr(w->handle, win_keyval, attribute_val, flag);
		val = progresses;
	}
	*flag = 1;
	memcpy(attribute_val, &val, sizeof(val));
	return MPI_SUCCESS;
}

/* The library's, and the answer to the MPI Forum's question in its issue 635, under a name of ours. */
int hook_win_get_info(struct hwin *w, MPI_Info *info_used)
{
	int rc = PMPI_Win_get_info(w->handle, info_used);

	if (rc)
		return rc;
	return hwin_error(w, herror_native(PMPI_Info_set(*info_used, "asyncprog_progress",
							 prog_session_alive(hooks.session) ? "true" : "false")));
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

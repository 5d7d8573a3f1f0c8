/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A managed window, by all ranks of its communicator together. */
#include <stdlib.h>
#include <string.h>

#include "hooks_gen.h"
#include "win.h"

#define MOST_AT_ONCE	64u		/* records made together */

/* what each rank tells the others before anything is made */
struct intent {
	uint8_t jobid[16];
	uint64_t key;			/* rank 0's: of a window that is made now */
	uint32_t ok;
	uint32_t number;		/* of the record that it would use again; 0: it has none */
	uint32_t copies;		/* how many more it would make at once */
	int32_t unit;
	struct prog_use use;		/* with a number */
};

/* Arguments that the library refuses make the window native, so that its errors are its own. */
static bool args_valid(const struct win_args *c)
{
	if (!c->win || c->size < 0 || c->unit <= 0 || c->unit > INT32_MAX)
		return false;
	if (c->flavor == MPI_WIN_FLAVOR_CREATE && !c->base && c->size)
		return false;
	return c->baseptr || (c->flavor != MPI_WIN_FLAVOR_ALLOCATE &&
			      c->flavor != MPI_WIN_FLAVOR_SHARED);
}

/* The first of @n, unique among the job's live windows if made by one process: its world rank and a count. */
static uint64_t new_key(uint32_t n)
{
	static atomic_uint count;

	return (uint64_t)(uint32_t)hooks.world_rank << 32 |
	       (atomic_fetch_add(&count, n) + 1);
}

static bool all_ok(MPI_Comm comm, bool ok)
{
	int mine = ok, all = 0;

	if (PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm))
		return false;
	return all;
}

/*
 * The communicator of the windows whose handles the user gets is one for all threads, and its collective calls must not overlap;
 * MPICH 4.2 aborts.  Delete functions of attributes that are called in one may make or free others.
 */
static pthread_mutex_t handles = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

int hwin_handle_free(MPI_Win *win)
{
	int rc;

	hooks_lock(&handles);
	rc = PMPI_Win_free(win);
	hooks_unlock(&handles);
	return rc;
}

/* The window of the library whose handle the user gets. */
static int make_handle(struct hwin *w, const struct win_args *c)
{
	void *base;
	int rc;

	if (c->flavor == MPI_WIN_FLAVOR_SHARED)
		return 0;	/* exists already */
	hooks_lock(&handles);
	rc = PMPI_Win_allocate(0, 1, c->info, hooks.self, &base, &w->handle);
	hooks_unlock(&handles);
	return rc ? -EIO : 0;
}

static enum prog_win_kind kind_of(int flavor)
{
	if (flavor == MPI_WIN_FLAVOR_ALLOCATE)
		return PROG_WIN_ALLOCATE;
	return flavor == MPI_WIN_FLAVOR_DYNAMIC ? PROG_WIN_DYNAMIC : PROG_WIN_CREATE;
}

/* Are the units of @all different ones?  Then take_units() may fail. */
static bool units_differ(const struct intent *all, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (all[i].unit != all[0].unit)
			return true;
	return false;
}

static int take_units(struct hwin *w, const struct intent *all)
{
	free(w->units);
	w->units = NULL;
	w->unit = all[0].unit;
	if (!units_differ(all, w->nranks))
		return 0;
	w->unit = 0;
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

static void win_cfg(const struct win_args *c, const struct hwin *w, struct prog_win_cfg *cfg)
{
	*cfg = (struct prog_win_cfg){
		.kind = kind_of(c->flavor),
		.rank = w->rank,
		.nranks = w->nranks,
		.base = c->base,
		.size = (size_t)c->size,
		.binding = c->binding,
	};
}

/* Everything that this rank can do alone.  @w->handle is only set when it succeeds, or was before. */
static int open_local(struct hwin *w, const struct win_args *c, const struct intent *all, uint32_t copies,
		      struct prog_endpoint *ep)
{
	struct prog_win_cfg cfg;
	int rc;

	win_cfg(c, w, &cfg);
	cfg.key = all[0].key;
	cfg.copies = copies;
	rc = take_units(w, all);
	if (!rc)
		rc = epoch_init(w);
	if (!rc)
		rc = prog_win_open(hooks.session, &cfg, &w->pw);
	if (rc)
		return rc;
	prog_win_set_check(w->pw, epoch_check, w);
	prog_win_endpoint(w->pw, ep);
	w->base = c->flavor == MPI_WIN_FLAVOR_ALLOCATE ? prog_win_base(w->pw) : c->base;
	return make_handle(w, c);
}

/*
 * Make the window of @w anew, by all steps.  All ranks return the same *@managed, and the same @w->recyclable.
 * Returns an MPI class when the library failed in what we need of it.
 */
static int create_managed(struct hwin *w, const struct win_args *c, const struct intent *all, uint32_t copies,
			  bool *managed, const char **why)
{
	struct greeting {
		uint64_t ok;
		struct prog_endpoint ep;
	} *them = calloc(w->nranks, sizeof(*them)), me = { 0 };
	struct prog_endpoint *eps = calloc(w->nranks, sizeof(*eps));
	int rc = them && eps ? open_local(w, c, all, copies, &me.ep) : -ENOMEM, mpi, last[2], least[2];
	bool have_handle = !rc && w->handle != MPI_WIN_NULL, ok = !rc;
	void **direct = NULL;

	*managed = false;
	if (!ok)
		*why = strerror(-rc);
	me.ok = ok;
	mpi = them ? PMPI_Allgather(&me, sizeof(me), MPI_BYTE, them, sizeof(me), MPI_BYTE, w->comm) :
		     MPI_ERR_NO_MEM;	/* the others hang as natively */
	if (mpi)
		goto out;
	for (uint32_t i = 0; i < w->nranks; i++) {
		if (!them[i].ok) {
			if (ok)
				*why = "another rank cannot";
			goto out;
		}
		eps[i] = them[i].ep;
	}
	rc = prog_win_connect(w->pw, eps, why);
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
		last[0] = ok;
		last[1] = ok && prog_win_recyclable(w->pw);
		/* also the barrier that keeps accesses off before all are ready */
		if (!PMPI_Allreduce(last, least, 2, MPI_INT, MPI_MIN, w->comm)) {
			*managed = least[0];
			w->recyclable = least[1];
		}
	}
	if (!*managed && ok)
		*why = "another rank cannot";
out:
	if (!*managed && have_handle && c->flavor != MPI_WIN_FLAVOR_SHARED)
		hwin_handle_free(&w->handle);
	free(direct);
	free(eps);
	free(them);
	return mpi;
}

/* Give @w the memory of @c, if that is all it takes.  Alone. */
static int reuse_local(struct hwin *w, const struct win_args *c, struct prog_use *use)
{
	struct prog_win_cfg cfg;
	int rc;

	win_cfg(c, w, &cfg);
	rc = prog_win_begin(w->pw, &cfg, use);
	if (rc)
		return rc;
	w->base = c->flavor == MPI_WIN_FLAVOR_ALLOCATE ? prog_win_base(w->pw) : c->base;
	return make_handle(w, c);
}

static void reuse_undo(struct hwin *w, const struct win_args *c)
{
	if (w->handle != MPI_WIN_NULL && c->flavor != MPI_WIN_FLAVOR_SHARED)
		hwin_handle_free(&w->handle);
	w->handle = MPI_WIN_NULL;
	hwin_retire(w);
}

/* Everybody has begun; collective if something of what follows can fail. */
static bool reuse_ready(struct hwin *w, const struct win_args *c, const struct intent *all, struct prog_use *uses,
			const char **why)
{
	bool shared = c->flavor == MPI_WIN_FLAVOR_SHARED, ok;
	void **direct = NULL;
	int rc;

	for (uint32_t i = 0; i < w->nranks; i++)
		uses[i] = all[i].use;
	rc = take_units(w, all);
	if (!rc && shared) {
		direct = shared_pointers(w);
		rc = direct ? 0 : -ENOMEM;
	}
	if (!rc)
		rc = prog_win_ready(w->pw, uses, direct);
	free(direct);
	ok = !rc;
	if (!ok)
		*why = strerror(-rc);
	if (!shared && !units_differ(all, w->nranks) && !prog_win_maps(w->pw, uses))
		return ok;	/* of all ranks, as it depends on what all have */
	if (all_ok(w->comm, ok))
		return true;
	if (ok)
		*why = "another rank cannot";
	return false;
}

/* What all say, exchanged; NULL in *@why: they agree that the window can be managed. */
static int agree(struct hfamily *f, struct hwin *w, const struct win_args *c, struct intent *all, const char **why)
{
	struct intent me = { .unit = (int32_t)c->unit };
	const char *mine = NULL;
	int rc;

	*why = NULL;
	me.ok = !hooks_session(&mine);
	if (me.ok && !args_valid(c)) {
		me.ok = 0;
		mine = "its arguments are not valid";
	}
	if (me.ok && w) {
		rc = reuse_local(w, c, &me.use);
		me.ok = !rc;
		me.number = w->number;
		if (rc)
			mine = strerror(-rc);
	}
	/* nobody knows which communicators come from sessions, but those are among them that are not managed */
	if (me.ok && !hooks.by_sessions && hooks.sessions && !hcomm_find(c->comm)) {
		me.ok = 0;
		mine = "its communicator may be a session's, and outlive MPI_Finalize";
	}
	memcpy(me.jobid, hooks.jobid, sizeof(me.jobid));
	if (me.ok)
		me.copies = prog_win_most_copies(hooks.session, f->nranks);
	me.key = f->rank ? 0 : new_key(me.copies + 1);
	rc = PMPI_Allgather(&me, sizeof(me), MPI_BYTE, all, sizeof(me), MPI_BYTE, f->comm);
	if (rc)
		return rc;
	if (!me.ok)
		*why = mine;
	for (uint32_t i = 0; i < f->nranks && !*why; i++) {
		if (!all[i].ok)
			*why = "another rank cannot";
		else if (memcmp(all[i].jobid, me.jobid, sizeof(me.jobid)))
			*why = "its ranks belong to different jobs";
	}
	return MPI_SUCCESS;
}

static bool same_number(const struct intent *all, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!all[i].number || all[i].number != all[0].number)
			return false;
	return true;
}

/* How many windows more to make: as many as there were, and as all can. */
static uint32_t copies_of(const struct hfamily *f, const struct intent *all)
{
	uint32_t n = f->last < MOST_AT_ONCE ? f->last : MOST_AT_ONCE - 1;

	for (uint32_t i = 0; i < f->nranks; i++)
		n = all[i].copies < n ? all[i].copies : n;
	return n;
}

/*
 * Make records that can be used again and put them with the idle ones; when it turns out that they cannot be,
 * @f is told.  Collective; *@made: the same on all ranks.
 */
static int replenish(struct hfamily *f, MPI_Comm comm, const struct intent *all, bool *made, const char **why)
{
	struct win_args anew = { .flavor = MPI_WIN_FLAVOR_DYNAMIC, .unit = 1, .info = MPI_INFO_NULL };
	struct hwin *w[MOST_AT_ONCE] = { NULL };
	uint32_t n = copies_of(f, all) + 1, i;
	int rc = 0;

	*made = false;
	for (i = 0; i < n && !rc; i++)
		rc = hwin_new(f, comm, &w[i]);
	if (!rc)
		rc = create_managed(w[0], &anew, all, n - 1, made, why);
	if (*made) {
		hwin_handle_free(&w[0]->handle);
		f->no_recycling = !w[0]->recyclable;
	}
	for (i = n; i--;) {
		bool fine = *made && w[i] && !f->no_recycling;

		if (fine && i) {
			w[i]->recyclable = true;
			w[i]->pw = prog_win_copy(w[0]->pw, i);
			fine = !epoch_init(w[i]);
			prog_win_set_check(w[i]->pw, epoch_check, w[i]);
		}
		/* who lacks one that others have is found out when it is to be used */
		if (!fine || !hfamily_push(f, w[i]))
			hwin_free(w[i]);
	}
	return rc;
}

/* A window whose record serves it alone; collective, *@out: the same on all ranks, NULL: it cannot be managed. */
static int make_once(struct hfamily *f, const struct win_args *c, MPI_Win shared, const struct intent *all,
		     struct hwin **out, const char **why)
{
	bool managed = false;
	struct hwin *w;
	int rc;

	*out = NULL;
	rc = hwin_new(f, c->comm, &w);
	if (rc)
		return rc;
	w->handle = shared;
	rc = create_managed(w, c, all, 0, &managed, why);
	w->recyclable = false;
	if (!rc && managed)
		*out = w;
	else
		hwin_free(w);
	return rc;
}

int hwin_make(struct hfamily *f, const struct win_args *c, MPI_Win shared, struct hwin **out, const char **why)
{
	struct intent *all = calloc(f->nranks, sizeof(*all));
	struct prog_use *uses = calloc(f->nranks, sizeof(*uses));
	bool managed = false, made, dropped = false;
	struct hwin *w = NULL;
	int rc = all && uses ? 0 : MPI_ERR_NO_MEM;	/* the others hang as natively */

	*out = NULL;
	while (!rc) {
		w = hfamily_pop(f);
		if (w)
			w->handle = shared;
		rc = agree(f, w, c, all, why);
		if (rc || *why)
			break;
		if (same_number(all, f->nranks)) {
			managed = reuse_ready(w, c, all, uses, why);
			if (managed)
				break;
			/* all know: somebody cannot open memory files (no /proc?), which the daemon can pass on */
			f->no_recycling = true;
		}
		if (w)
			reuse_undo(w, c);
		w = NULL;
		hfamily_drop_idle(f);
		made = false;
		if (f->no_recycling) {
			rc = make_once(f, c, shared, all, &w, why);
			managed = w;
		} else {
			rc = replenish(f, c->comm, all, &made, why);
		}
		if (rc || managed || (!made && dropped))
			break;
		/* idle records of other communicators may use a quota up; all know, and try once more */
		if (!made) {
			hfamily_drop_idle(NULL);
			dropped = true;
		}
	}
	if (!managed && w)
		reuse_undo(w, c);
	free(all);
	free(uses);
	if (managed)
		*out = w;
	return rc;
}

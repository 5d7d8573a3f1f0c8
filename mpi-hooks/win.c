/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Windows.  A managed window's handle is a window of the MPI library over a private communicator
 * of this process alone, so that names, info, attributes and error handlers are the library's
 * own; for MPI_Win_allocate_shared it is the library's shared window over the user's communicator,
 * whose memory we use.  Whether a window is managed is decided by all its ranks together: any
 * failure anywhere and all of them make the library's window instead.
 *
 * What is freed is kept for the next window of the communicator, where that can be (prog_win_recyclable()): records
 * with all that does not depend on the window's memory.  A communicator's windows are made in the same order by
 * all its ranks, so all have the same record to use; if they have not, they drop what they have and make a new one.
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
	uint8_t jobid[16];
	uint64_t key;			/* rank 0's: of a window that is made now */
	uint32_t ok;
	uint32_t number;		/* of the record that it would use again; 0: it has none */
	uint32_t copies;		/* how many more it would make at once */
	int32_t unit;
	struct prog_use use;		/* with a number */
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

/* The first of @n, unique among the job's live windows if made by one process: its world rank and a count. */
static uint64_t new_key(uint32_t n)
{
	static atomic_uint count;

	return (uint64_t)(uint32_t)hooks.world_rank << 32 |
	       (atomic_fetch_add(&count, n) + 1);
}

/* ---- what windows of a communicator share ------------------------------------------------------ */

#define MOST_IDLE	1024u		/* records kept by one communicator */
#define IDLE_RANKS	16384u		/* ranks of all of them: a part of what a user may have at the daemons */
#define MOST_AT_ONCE	64u		/* records made together */
#define MOST_TAGS	30000u		/* any library has as many */

static pthread_mutex_t family_lock = PTHREAD_MUTEX_INITIALIZER;	/* all but creating, which MPI serializes */
static struct hfamily *families;
static int family_key = MPI_KEYVAL_INVALID;

static void hwin_free(struct hwin *w);

static void family_put(struct hfamily *f)
{
	struct hfamily **p = &families;
	bool last;

	pthread_mutex_lock(&family_lock);
	last = !--f->refs;
	if (last) {
		while (*p != f)
			p = &(*p)->next;
		*p = f->next;
	}
	pthread_mutex_unlock(&family_lock);
	if (!last)
		return;
	if (f->comm != MPI_COMM_NULL)
		PMPI_Comm_free(&f->comm);
	free(f);
}

/* The one kept last; NULL in @only: of any communicator. */
static struct hwin *idle_pop(struct hfamily *only)
{
	struct hfamily *f;
	struct hwin *w;

	pthread_mutex_lock(&family_lock);
	f = only ? only : families;
	while (!only && f && !f->idle)
		f = f->next;
	w = f ? f->idle : NULL;
	if (w) {
		f->idle = w->next;
		f->nidle--;
	}
	pthread_mutex_unlock(&family_lock);
	return w;
}

/* False: there are enough, or the communicator is gone. */
static bool idle_push(struct hfamily *f, struct hwin *w)
{
	bool room;

	pthread_mutex_lock(&family_lock);
	room = !f->ended && f->nidle < MOST_IDLE && (uint64_t)f->nidle * f->nranks < IDLE_RANKS;
	if (room) {
		w->next = f->idle;
		f->idle = w;
		f->nidle++;
	}
	pthread_mutex_unlock(&family_lock);
	return room;
}

/* NULL: of all communicators. */
static void idle_drop(struct hfamily *only)
{
	struct hwin *w;

	while ((w = idle_pop(only)))
		hwin_free(w);
}

/* The communicator, or the program, ends; windows of it may live on. */
static void family_end(struct hfamily *f)
{
	bool ended;

	pthread_mutex_lock(&family_lock);
	ended = f->ended;
	f->ended = true;
	pthread_mutex_unlock(&family_lock);
	if (ended)
		return;
	idle_drop(f);
	family_put(f);
}

static int family_deleted(MPI_Comm comm, int keyval, void *val, void *extra)
{
	/* at the end of the program hwin_drop_all() was first, and nothing is left of it */
	if (hooks.on)
		family_end(val);
	return MPI_SUCCESS;
}

/* Collective when it is the first window of @comm. */
static int family_get(MPI_Comm comm, struct hfamily **out)
{
	int rc, flag = 0, rank, n;
	struct hfamily *f;

	pthread_mutex_lock(&family_lock);
	rc = family_key == MPI_KEYVAL_INVALID ?
	     PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, family_deleted, &family_key, NULL) : 0;
	pthread_mutex_unlock(&family_lock);
	if (!rc)
		rc = PMPI_Comm_get_attr(comm, family_key, out, &flag);
	if (rc || flag)
		return rc;
	f = calloc(1, sizeof(*f));
	if (!f)
		return MPI_ERR_NO_MEM;	/* before a collective call: the others hang as natively */
	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &n);
	f->rank = (uint32_t)rank;
	f->nranks = (uint32_t)n;
	f->refs = 1;
	/* split and not dup, which would run the program's attribute copy functions */
	rc = PMPI_Comm_split(comm, 0, rank, &f->comm);
	if (rc) {
		free(f);
		return rc;
	}
	PMPI_Comm_set_errhandler(f->comm, MPI_ERRORS_RETURN);
	pthread_mutex_lock(&family_lock);
	f->next = families;
	families = f;
	pthread_mutex_unlock(&family_lock);
	rc = PMPI_Comm_set_attr(comm, family_key, f);
	if (rc) {
		family_end(f);
		return rc;
	}
	*out = f;
	return MPI_SUCCESS;
}

/*
 * A record; collective, alike on all ranks.  What it needs of its own is split from @comm, the user's, and not from
 * the family's: of the communicators that threads make at the same time, Open MPI lets those of younger parents wait
 * for those of older ones (ompi_comm_cid_lowest_id).  Waiting for @comm's turn is what a program has to expect; waiting
 * behind parents that are younger than @comm closes circles with other ranks.
 */
static int hwin_new(struct hfamily *f, MPI_Comm comm, struct hwin **out)
{
	struct hwin *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return MPI_ERR_NO_MEM;	/* the others hang as natively */
	w->rank = f->rank;
	w->nranks = f->nranks;
	w->model = MPI_WIN_UNIFIED;
	w->handle = MPI_WIN_NULL;
	w->number = ++f->last;
	w->tag = (int)w->number;
	w->comm = f->comm;
	/* threads may fence several windows at once, each on its own communicator */
	if (hooks.mt || w->number > MOST_TAGS) {
		w->tag = 1;
		rc = PMPI_Comm_split(comm, 0, (int)f->rank, &w->comm);
		if (rc) {
			free(w);
			return rc;
		}
		PMPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
	}
	pthread_mutex_lock(&family_lock);
	f->refs++;
	pthread_mutex_unlock(&family_lock);
	w->family = f;
	*out = w;
	return MPI_SUCCESS;
}

static void hwin_free(struct hwin *w)
{
	if (!w)
		return;
	prog_win_close(w->pw);
	epoch_fini(w);
	if (w->comm != w->family->comm)
		PMPI_Comm_free(&w->comm);
	family_put(w->family);
	free(w->units);
	free(w->sum);
	free(w);
}

/* The window is gone, its record may serve again. */
static void hwin_retire(struct hwin *w)
{
	if (!w->recyclable || !prog_win_end(w->pw) || !epoch_reset(w) || !idle_push(w->family, w))
		hwin_free(w);
}

/* ---- managed windows --------------------------------------------------------------------------- */

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
	/* the communicator is one for all threads, and its collective calls must not overlap */
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	void *base;
	int rc;

	if (c->flavor == MPI_WIN_FLAVOR_SHARED)
		return 0;	/* exists already */
	hooks_lock(&lock);
	rc = PMPI_Win_allocate(0, 1, c->info, hooks.self, &base, &w->handle);
	hooks_unlock(&lock);
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

static void win_cfg(const struct create *c, const struct hwin *w, struct prog_win_cfg *cfg)
{
	*cfg = (struct prog_win_cfg){
		.kind = kind_of(c->flavor),
		.rank = w->rank,
		.nranks = w->nranks,
		.base = c->base,
		.size = (size_t)c->size,
	};
}

/* Everything that this rank can do alone.  @w->handle is only set when it succeeds, or was before. */
static int open_local(struct hwin *w, const struct create *c, const struct intent *all, uint32_t copies,
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
static int create_managed(struct hwin *w, const struct create *c, const struct intent *all, uint32_t copies,
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
		PMPI_Win_free(&w->handle);
	free(direct);
	free(eps);
	free(them);
	return mpi;
}

/* Give @w the memory of @c, if that is all it takes.  Alone. */
static int reuse_local(struct hwin *w, const struct create *c, struct prog_use *use)
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

static void reuse_undo(struct hwin *w, const struct create *c)
{
	if (w->handle != MPI_WIN_NULL && c->flavor != MPI_WIN_FLAVOR_SHARED)
		PMPI_Win_free(&w->handle);
	w->handle = MPI_WIN_NULL;
	hwin_retire(w);
}

/* Everybody has begun; collective if something of what follows can fail. */
static bool reuse_ready(struct hwin *w, const struct create *c, const struct intent *all, struct prog_use *uses,
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
static int agree(struct hfamily *f, struct hwin *w, const struct create *c, struct intent *all, const char **why)
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
	struct create anew = { .flavor = MPI_WIN_FLAVOR_DYNAMIC, .unit = 1, .info = MPI_INFO_NULL };
	struct hwin *w[MOST_AT_ONCE] = { NULL };
	uint32_t n = copies_of(f, all) + 1, i;
	int rc = 0;

	*made = false;
	for (i = 0; i < n && !rc; i++)
		rc = hwin_new(f, comm, &w[i]);
	if (!rc)
		rc = create_managed(w[0], &anew, all, n - 1, made, why);
	if (*made) {
		PMPI_Win_free(&w[0]->handle);
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
		if (!fine || !idle_push(f, w[i]))
			hwin_free(w[i]);
	}
	return rc;
}

/* A window whose record serves it alone; collective, *@out: the same on all ranks, NULL: it cannot be managed. */
static int make_once(struct hfamily *f, const struct create *c, MPI_Win shared, const struct intent *all,
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

/*
 * A managed window: *@out, the same on all ranks, or NULL and why not.  @shared: the library's window for the
 * flavor of that name.
 */
static int win_get(struct hfamily *f, const struct create *c, MPI_Win shared, struct hwin **out, const char **why)
{
	struct intent *all = calloc(f->nranks, sizeof(*all));
	struct prog_use *uses = calloc(f->nranks, sizeof(*uses));
	bool managed = false, made, dropped = false;
	struct hwin *w = NULL;
	int rc = all && uses ? 0 : MPI_ERR_NO_MEM;	/* the others hang as natively */

	*out = NULL;
	while (!rc) {
		w = idle_pop(f);
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
		idle_drop(f);
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
			idle_drop(NULL);
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

/* Said aloud by one process of the job, once; the others' lines are there at level info. */
static void log_native(const struct hfamily *f, const char *why)
{
	if (f->rank || atomic_exchange(&native_logged, true))
		return;
	prog_log(hooks.world_rank ? PROG_LOG_INFO : PROG_LOG_WARN,
		 "window: left to the MPI library: %s", why ? why : "unknown");
}

static int create(const struct create *given)
{
	MPI_Win shared = MPI_WIN_NULL;
	struct create c = *given;
	const char *why = NULL;
	struct hfamily *f;
	struct hwin *w;
	int rc;

	if (!hooks.on || !comm_usable(c.comm))
		return create_native(&c);
	rc = family_get(c.comm, &f);
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
	rc = win_get(f, &c, shared, &w, &why);
	if (!rc && w) {
		w->flavor = c.flavor;
		w->dynamic = c.flavor == MPI_WIN_FLAVOR_DYNAMIC;
		w->size = c.size;
		w->disp_unit = (int)c.unit;
		/* like the library's own: errors of a window are fatal until it is told otherwise */
		w->fence_counts = w->nranks == 2 && prog_win_multinode(w->pw);
		if (hmap_add(&hwin_map, HMAP_KEY(w->handle), w)) {
			prog_log(PROG_LOG_ERROR, "window: out of memory");
			PMPI_Abort(MPI_COMM_WORLD, 1);	/* the others have it already */
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
	hmap_del_val(&hwin_map, HMAP_KEY(w->handle), w);
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
			hwin_free(w);
		}
	}
	for (struct hfamily *f = families, *next; f; f = next) {
		next = f->next;
		family_end(f);
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
	rc = prog_win_attach(w->pw, base, (size_t)size);
	if (rc == -ENOSPC)
		prog_log(PROG_LOG_ERROR, "MPI_Win_attach: a window has at most %u attached ranges on a rank",
			 PROG_WIN_RANGES);
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

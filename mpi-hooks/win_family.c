/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The windows of a communicator: their records, and those of freed ones.
 *
 * What is freed is kept for the next window of the communicator, where that can be (prog_win_recyclable()): records
 * with all that does not depend on the window's memory.  A communicator's windows are made in the same order by
 * all its ranks, so all have the same record to use; if they have not, they drop what they have and make a new one.
 */
#include <stdlib.h>

#include <utlist.h>

#include "hooks_gen.h"
#include "win.h"

#define MOST_IDLE	1024u		/* records kept by one communicator */
#define IDLE_RANKS	16384u		/* ranks of all of them: a part of what a user may have at the daemons */
#define MOST_TAGS	30000u		/* any library has as many */

static pthread_mutex_t family_lock = PTHREAD_MUTEX_INITIALIZER;	/* all but creating, which MPI serializes */
static struct hfamily *families;
static int family_key = MPI_KEYVAL_INVALID;

static void family_put(struct hfamily *f)
{
	bool last;

	pthread_mutex_lock(&family_lock);
	last = !--f->refs;
	if (last)
		LL_DELETE(families, f);
	pthread_mutex_unlock(&family_lock);
	if (!last)
		return;
	if (f->comm != MPI_COMM_NULL)
		PMPI_Comm_free(&f->comm);
	free(f);
}

void hwin_free(struct hwin *w)
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

struct hwin *hfamily_pop(struct hfamily *only)
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

bool hfamily_push(struct hfamily *f, struct hwin *w)
{
	bool room;

	pthread_mutex_lock(&family_lock);
	room = !f->ended && f->nidle < MOST_IDLE && (uint64_t)f->nidle * f->nranks < IDLE_RANKS;
	if (room) {
		LL_PREPEND(f->idle, w);
		f->nidle++;
	}
	pthread_mutex_unlock(&family_lock);
	return room;
}

void hfamily_drop_idle(struct hfamily *only)
{
	struct hwin *w;

	while ((w = hfamily_pop(only)))
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
	hfamily_drop_idle(f);
	family_put(f);
}

static int family_deleted(MPI_Comm comm, int keyval, void *val, void *extra)
{
	/* at the end of the program hwin_drop_all() was first, and nothing is left of it */
	if (hooks.on)
		family_end(val);
	return MPI_SUCCESS;
}

int hfamily_get(MPI_Comm comm, struct hfamily **out)
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
	LL_PREPEND(families, f);
	pthread_mutex_unlock(&family_lock);
	rc = PMPI_Comm_set_attr(comm, family_key, f);
	if (rc) {
		family_end(f);
		return rc;
	}
	*out = f;
	return MPI_SUCCESS;
}

int hwin_new(struct hfamily *f, MPI_Comm comm, struct hwin **out)
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

void hwin_retire(struct hwin *w)
{
	if (!w->recyclable || !prog_win_end(w->pw) || !epoch_reset(w) || !hfamily_push(w->family, w))
		hwin_free(w);
}

void hfamily_end_all(void)
{
	for (struct hfamily *f = families, *next; f; f = next) {
		next = f->next;
		family_end(f);
	}
}

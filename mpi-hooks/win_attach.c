// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Attaching to dynamic windows, and detaching.
 *
 * MPI forbids ranges that overlap, and the libraries take them.  MPICH and Open MPI's pt2pt, with which all of memory can be
 * accessed anyway, take any, and let detach what is not attached: a program may do so without knowing.  Open MPI's rdma refuses
 * what lies, by pages, within one range that is attached.  Which of its components a program meets depends on where it runs, so
 * what one of them takes is taken here.  What is attached is kept in pieces that do not overlap, and a piece stays as long as a
 * range of the program touches it.
 */
#include <stdlib.h>
#include <string.h>

#include "hooks_gen.h"
#include "win.h"

static int attach(struct hwin *w, uintptr_t base, uintptr_t end)
{
	int rc = prog_win_attach(w->pw, (void *)base, end - base);

	if (rc == -ENOSPC)
		prog_log(PROG_LOG_ERROR, "MPI_Win_attach: a window has at most %u attached ranges on a rank", PROG_WIN_RANGES);
	return rc;
}

struct range {
	uintptr_t base, end;
	uint32_t touched;		/* a piece: by so many ranges of the program */
};

struct ranges {				/* by base */
	struct range *r;
	size_t n, max;
};

struct hattach {
	struct ranges program, piece;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;	/* hwin.attach of all windows */

static bool has_room(struct ranges *a)
{
	size_t max = a->max ? 2 * a->max : 8;
	struct range *r;

	if (a->n < a->max)
		return true;
	r = realloc(a->r, max * sizeof(*r));
	if (!r)
		return false;
	a->r = r;
	a->max = max;
	return true;
}

static void put(struct ranges *a, size_t i, uintptr_t base, uintptr_t end)
{
	memmove(&a->r[i + 1], &a->r[i], (a->n - i) * sizeof(*a->r));
	a->r[i] = (struct range){ .base = base, .end = end };
	a->n++;
}

static void cut(struct ranges *a, size_t i)
{
	a->n--;
	memmove(&a->r[i], &a->r[i + 1], (a->n - i) * sizeof(*a->r));
}

/* The first that begins at @base or behind it. */
static size_t first_from(const struct ranges *a, uintptr_t base)
{
	size_t lo = 0, hi = a->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (a->r[mid].base < base)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The first of @pieces that has something of what begins at @base, or is behind that. */
static size_t first_touched(const struct ranges *pieces, uintptr_t base)
{
	size_t i = first_from(pieces, base);

	return i && pieces->r[i - 1].end > base ? i - 1 : i;
}

static void drop_untouched(struct hwin *w, struct ranges *pieces, uintptr_t base, uintptr_t end)
{
	for (size_t i = first_touched(pieces, base); i < pieces->n && pieces->r[i].base < end;) {
		if (pieces->r[i].touched) {
			i++;
			continue;
		}
		prog_win_detach(w->pw, (void *)pieces->r[i].base);
		cut(pieces, i);
	}
}

static void touch(struct ranges *pieces, uintptr_t base, uintptr_t end, int by)
{
	for (size_t i = first_touched(pieces, base); i < pieces->n && pieces->r[i].base < end; i++)
		pieces->r[i].touched += (uint32_t)by;
}

/* Pieces where there are none. */
static int fill(struct hwin *w, struct ranges *pieces, uintptr_t base, uintptr_t end)
{
	for (size_t i = first_touched(pieces, base); base < end; i++) {
		uintptr_t to = i < pieces->n && pieces->r[i].base < end ? pieces->r[i].base : end;
		int rc;

		if (base < to) {
			if (!has_room(pieces))
				return -ENOMEM;
			rc = attach(w, base, to);
			if (rc)
				return rc;
			put(pieces, i, base, to);
		}
		base = pieces->r[i].end;
	}
	return 0;
}

static int add(struct hwin *w, struct hattach *a, uintptr_t base, uintptr_t end)
{
	int rc = has_room(&a->program) ? fill(w, &a->piece, base, end) : -ENOMEM;

	if (!rc) {
		touch(&a->piece, base, end, 1);
		put(&a->program, first_from(&a->program, base), base, end);
	}
	drop_untouched(w, &a->piece, base, end);
	return rc;
}

static int range_add(struct hwin *w, uintptr_t base, uintptr_t end)
{
	int rc = -ENOMEM;

	if (end < base)
		return -EINVAL;
	if (end == base)
		return 0;
	pthread_mutex_lock(&lock);
	if (!w->attach)
		w->attach = calloc(1, sizeof(*w->attach));
	if (w->attach)
		rc = add(w, w->attach, base, end);
	pthread_mutex_unlock(&lock);
	return rc;
}

static void range_del(struct hwin *w, uintptr_t base)
{
	struct hattach *a;

	pthread_mutex_lock(&lock);
	a = w->attach;
	if (a) {
		size_t i = first_from(&a->program, base);

		if (i < a->program.n && a->program.r[i].base == base) {
			uintptr_t end = a->program.r[i].end;

			cut(&a->program, i);
			touch(&a->piece, base, end, -1);
			drop_untouched(w, &a->piece, base, end);
		}
	}
	pthread_mutex_unlock(&lock);
}

void hwin_detach_all(struct hwin *w)
{
	if (!w->attach)
		return;
	free(w->attach->program.r);
	free(w->attach->piece.r);
	free(w->attach);
	w->attach = NULL;
}

int hook_win_attach(struct hwin *w, void *base, MPI_Aint size)
{
	int rc;

	if (!w->dynamic)
		return hwin_error(w, MPI_ERR_RMA_FLAVOR);
	if (size < 0)
		return hwin_error(w, MPI_ERR_SIZE);
	rc = range_add(w, (uintptr_t)base, (uintptr_t)base + (uintptr_t)size);
	return rc == -ENOSPC ? hwin_error(w, MPI_ERR_RMA_ATTACH) : hwin_errno(w, rc);
}

int hook_win_detach(struct hwin *w, const void *base)
{
	if (!w->dynamic)
		return hwin_error(w, MPI_ERR_RMA_FLAVOR);
	if (!base)
		return hwin_error(w, MPI_ERR_ARG);
	range_del(w, (uintptr_t)base);
	return MPI_SUCCESS;
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Two-sided messages begin and end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hooks_gen.h"

struct prog_win *hp2p_context;
uint64_t p2p_least = UINT64_MAX;
void (*const p2p_polled[])(void) = { orphan_poll, cand_poll, NULL };

static bool two_sided_off(void)
{
	const char *v = getenv("PROG_TWO_SIDED");

	return v && (!strcasecmp(v, "off") || !strcasecmp(v, "no") || !strcmp(v, "0"));
}

static bool all_ok(bool ok)
{
	int mine = ok, all = 0;

	if (PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD))
		return false;
	return all;
}

/*
 * @ok: @context is connected and mapped, and not shown yet.  Collective over MPI_COMM_WORLD; false on all or none.  Each of
 * these calls may cost a slice of the scheduler where processors are short, so there are few of them.
 */
static bool messages_begin(struct prog_win *context, bool ok)
{
	uint64_t own = UINT64_MAX, all;

	/* what is shorter would not cover its descriptor */
	if (ok && !desc_init() && !rec_begin())
		own = prog_msg_min(context) < DESC_SIZE ? DESC_SIZE : prog_msg_min(context);
	/* a receiver must not take a buffer for too small that a sender finds large enough */
	if (PMPI_Allreduce(&own, &all, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD) || all == UINT64_MAX)
		return false;
	p2p_least = all;
	prog_msg_set_look(context, cand_look, NULL);
	partner_begin(context);
	return true;
}

/* What this rank can do alone: NULL with *@why. */
static struct prog_win *context_open(int n, const char **why)
{
	struct prog_win_cfg cfg = {
		.kind = PROG_WIN_MSG_CONTEXT,
		.key = P2P_CONTEXT_KEY,
		.rank = (uint32_t)hooks.world_rank,
		.nranks = (uint32_t)n,
	};
	struct prog_win *w = NULL;
	const char *reason;
	int rc;

	if (!*why && hooks_session(&reason))
		*why = reason;
	if (*why)
		return NULL;
	rc = prog_win_open(hooks.session, &cfg, &w);
	if (!rc)
		return w;
	*why = strerror(-rc);
	return NULL;
}

/* The window, on all ranks or on none: NULL with *@why.  @eps: all zero. */
static struct prog_win *context_join(int n, struct prog_endpoint *eps, const char **why)
{
	struct prog_win *w = context_open(n, why);
	int rc;

	if (!all_ok(w != NULL))
		goto fail;
	prog_win_endpoint(w, &eps[hooks.world_rank]);
	/*
	 * Each adds its own.  An MPI_Allgather of MPICH connects ranks of different nodes crosswise, and its MPI_Finalize
	 * may hang at each connection that is new; a reduction goes by one rank of each node.
	 */
	rc = PMPI_Allreduce(MPI_IN_PLACE, eps, n * (int)(sizeof(*eps) / sizeof(uint64_t)), MPI_UINT64_T, MPI_BOR,
			    MPI_COMM_WORLD);
	if (!all_ok(!rc && !prog_win_connect(w, eps, why)))
		goto fail;
	rc = prog_win_map(w, NULL);
	if (!rc)
		rc = hcomm_make_world(n);
	if (rc)
		*why = strerror(-rc);
	if (messages_begin(w, !rc))
		return w;
fail:
	prog_win_close(w);
	return NULL;
}

void hp2p_start(void)
{
	const char *why = NULL;
	struct prog_endpoint *eps;
	struct prog_win *w;
	int n = 0;

	if (!hooks.on)
		return;
	PMPI_Comm_size(MPI_COMM_WORLD, &n);
	if (n < 2)
		return;
	if (two_sided_off())
		why = "PROG_TWO_SIDED is off";
	else if (hcomm_make_begin())
		why = "the MPI library gave no group";
	eps = calloc((size_t)n, sizeof(*eps));
	if (!eps && !why)
		why = strerror(ENOMEM);
	w = context_join(n, eps, &why);
	free(eps);
	if (w) {
		hp2p_context = w;
		return;
	}
	hcomm_drop_all();
	hcomm_make_end();
	if (!why)
		why = "another rank cannot";
	/* windows, which may follow, say it aloud */
	prog_log(PROG_LOG_INFO, "two-sided messages: left to the MPI library: %s", why);
	if (hooks.session && !two_sided_off()) {
		char note[160];

		snprintf(note, sizeof(note), "two-sided messages: %s", why);
		prog_session_note(hooks.session, note);
	}
}

void hp2p_end(void)
{
	struct prog_win *w = hp2p_context;

	if (!w)
		return;
	if (!hooks.mt)
		rec_all_whole(NULL);
	orphan_wait_all();
	partner_end();
	hp2p_context = NULL;
	hcomm_drop_all();
	hcomm_make_end();
	prog_win_close(w);
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Two-sided messages begin and end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "coll.h"
#include "hooks_gen.h"

struct prog_win *p2p_context;
uint64_t p2p_least = UINT64_MAX;
void (*const p2p_polled[])(void) = { orphan_poll, cand_poll, NULL };

static bool is_off(const char *name)
{
	const char *v = getenv(name);

	return v && (!strcasecmp(v, "off") || !strcasecmp(v, "no") || !strcmp(v, "0"));
}

static enum hcoll_mode collectives(void)
{
	const char *v = getenv("PROG_COLLECTIVES");

	if (is_off("PROG_COLLECTIVES"))
		return HCOLL_OFF;
	return v && (!strcasecmp(v, "on") || !strcasecmp(v, "yes") || !strcmp(v, "1")) ? HCOLL_ALL : HCOLL_AUTO;
}

static uint64_t window(void)
{
	const char *v = getenv("PROG_COLL_WINDOW");
	unsigned long n;
	char *end;

	if (!v)
		return HBALLOT_WINDOW;
	n = strtoul(v, &end, 10);
	if (end == v || *end || n > UINT32_MAX) {
		prog_log(PROG_LOG_WARN, "PROG_COLL_WINDOW: %s: no number of collectives", v);
		return HBALLOT_WINDOW;
	}
	return n;
}

/* @context is connected and mapped on all ranks. */
static void messages_begin(struct prog_win *context, uint64_t least)
{
	p2p_least = least;
	prog_msg_set_look(context, cand_look, NULL);
	partner_begin(context);
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

/* What each tells the others. */
struct introduction {
	struct prog_endpoint ep;
	uint64_t least;
	uint64_t colls;			/* enum hcoll_mode */
	uint64_t window;		/* of votes; that of rank 0 is taken */
	struct prog_coll_costs costs;	/* those of rank 0 are taken */
};
_Static_assert(sizeof(struct introduction) % sizeof(uint64_t) == 0, "meet_all()");

/* Connect and map @w; a negative errno, here or elsewhere.  Collective. */
static int context_join(struct prog_win *w, struct introduction *all, struct prog_endpoint *eps, int n, const char **why)
{
	uint64_t least = 0, colls = HCOLL_ALL;
	int rc;

	for (int i = 0; i < n; i++) {
		eps[i] = all[i].ep;
		/* a receiver must not take a buffer for too small that a sender finds large enough */
		least = all[i].least > least ? all[i].least : least;
		colls = all[i].colls < colls ? all[i].colls : colls;
	}
	if (!meet_agree(!prog_win_connect(w, eps, why)))
		return -EIO;
	rc = prog_win_map(w, NULL);
	if (!rc)
		rc = hcomm_make_world(n);
	if (!rc && (desc_init() || rec_begin()))
		rc = -ENOMEM;
	if (rc)
		*why = strerror(-rc);
	if (!meet_agree(!rc))
		return -EIO;
	prog_coll_costs_set(hooks.session, &all[0].costs);
	messages_begin(w, least);
	hcoll_mode = (enum hcoll_mode)colls;
	hballot_window = (uint32_t)all[0].window;
	return 0;
}

/* The window, on all ranks or on none: NULL with *@why. */
static struct prog_win *context_make(int n, const char **why)
{
	struct introduction *all = calloc((size_t)n, sizeof(*all));
	struct prog_endpoint *eps = calloc((size_t)n, sizeof(*eps));
	struct prog_win *w;

	if ((!all || !eps) && !*why)
		*why = strerror(ENOMEM);
	w = context_open(n, why);
	if (w) {
		struct introduction *own = &all[hooks.world_rank];

		prog_win_endpoint(w, &own->ep);
		own->colls = collectives();
		own->window = window();
		prog_coll_costs_get(hooks.session, &own->costs);
		/* what is shorter would not cover its descriptor */
		own->least = prog_msg_min(w) < DESC_SIZE ? DESC_SIZE : prog_msg_min(w);
	}
	if (!meet_all(w ? all : NULL, sizeof(*all), n) || context_join(w, all, eps, n, why)) {
		prog_win_close(w);
		w = NULL;
	}
	free(eps);
	free(all);
	return w;
}

void p2p_start(int n)
{
	const char *why = NULL;
	struct prog_win *w;

	if (n < 2)
		return;
	if (is_off("PROG_TWO_SIDED"))
		why = "PROG_TWO_SIDED is off";
	else if (hcomm_make_begin())
		why = "the MPI library gave no group";
	w = context_make(n, &why);
	if (w) {
		p2p_context = w;
		return;
	}
	hcomm_drop_all();
	hcomm_make_end();
	if (!why)
		why = "another rank cannot";
	/* windows, which may follow, say it aloud */
	prog_log(PROG_LOG_INFO, "two-sided messages: left to the MPI library: %s", why);
	if (hooks.session && !is_off("PROG_TWO_SIDED")) {
		char note[160];

		snprintf(note, sizeof(note), "two-sided messages: %s", why);
		prog_session_note(hooks.session, note);
	}
}

void p2p_end(void)
{
	struct prog_win *w = p2p_context;

	if (!w)
		return;
	if (!hooks.mt)
		rec_all_whole(NULL);
	hballot_end();
	orphan_wait(NULL);
	partner_end();
	p2p_context = NULL;
	hcoll_mode = HCOLL_OFF;
	hcomm_drop_all();
	hcomm_make_end();
	prog_win_close(w);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Collectives: counters, and those under way with who is missing, all as clients say; what their messages cost. */
#include <stdlib.h>

#include "ctl/priv.h"
#include "thresh/cost.h"

#define HOPS	64u	/* from one that waits to the one that it waits for; hostile clients make circles */

static const char *const kinds[PROG_COLL_ROW_KINDS] = {
	[PROG_COLL_ROW_BARRIER] = "barrier", [PROG_COLL_ROW_BCAST] = "bcast", [PROG_COLL_ROW_GATHER] = "gather",
	[PROG_COLL_ROW_SCATTER] = "scatter", [PROG_COLL_ROW_ALLGATHER] = "allgather",
	[PROG_COLL_ROW_ALLTOALL] = "alltoall", [PROG_COLL_ROW_GATHERV] = "gatherv",
	[PROG_COLL_ROW_SCATTERV] = "scatterv", [PROG_COLL_ROW_ALLGATHERV] = "allgatherv",
	[PROG_COLL_ROW_ALLTOALLV] = "alltoallv", [PROG_COLL_ROW_NEIGHBOR] = "neighbor",
	[PROG_COLL_ROW_REDUCE] = "reduce", [PROG_COLL_ROW_ALLREDUCE] = "allreduce",
	[PROG_COLL_ROW_REDUCE_SCATTER] = "reduce_scatter", [PROG_COLL_ROW_SCAN] = "scan",
	[PROG_COLL_ROW_EXSCAN] = "exscan",
};

/* ---- counters -------------------------------------------------------------------------------- */

static bool is_any(const struct stats_colls *c)
{
	for (unsigned int i = 0; i < PROG_COLL_WHYS; i++)
		if (c->left[i])
			return true;
	return c->started;
}

json_t *ctl_colls(const struct stats_colls *c)
{
	json_t *o, *left;

	if (!is_any(c))
		return NULL;
	o = json_object();
	left = json_object();
	ctl_put_u64(o, "started", c->started);
	ctl_put_u64(o, "ended", c->ended);
	ctl_put_u64(o, "failed", c->failed);
	ctl_put_u64(o, "sent_bytes", c->sent_bytes);
	ctl_put_u64(o, "received_bytes", c->received_bytes);
	ctl_put_u64(o, "cpu_ns", c->cpu_ns);
	for (unsigned int i = 0; i < PROG_COLL_WHYS; i++)
		if (c->left[i])
			ctl_put_u64(left, stats_colls_left[i].name, c->left[i]);
	json_object_set_new(o, "left_to_library", left);
	return o;
}

struct of_job {
	uint32_t job;
	uint64_t under_way;
	json_t *rows;
};

static void add_session(void *arg, const struct session_info *i)
{
	uint64_t n = i->colls.started > i->colls.ended ? i->colls.started - i->colls.ended : 0;
	struct of_job *j = arg;
	json_t *o = i->job == j->job ? ctl_colls(&i->colls) : NULL;

	if (!o)
		return;
	ctl_put_u64(o, "session", i->id);
	ctl_put_u64(o, "rank", i->rank);
	ctl_put_u64(o, "under_way", n);
	json_array_append_new(j->rows, o);
	j->under_way = n <= INT64_MAX - j->under_way ? j->under_way + n : INT64_MAX;
}

json_t *ctl_job_colls(struct ctl *c, const struct win_job *job)
{
	struct of_job j = { .job = job->number };
	json_t *o = ctl_colls(&job->colls);

	if (!o)
		return NULL;
	j.rows = json_array();
	sessions_each(c->o.sessions, add_session, &j);
	ctl_put_u64(o, "under_way", j.under_way);
	json_object_set_new(o, "sessions", j.rows);
	return o;
}

json_t *ctl_colls_texts(void)
{
	json_t *o = json_object();

	for (unsigned int i = 0; i < PROG_COLL_WHYS; i++)
		json_object_set_new(o, stats_colls_left[i].name, json_string(stats_colls_left[i].text));
	return o;
}

/* ---- those under way --------------------------------------------------------------------------- */

struct member {				/* a process of this node */
	uint32_t job, rank;
	bool whole;			/* all that it has under way is listed */
};

struct lists {
	struct session_coll *coll;	/* by by_key() */
	size_t ncolls, max_colls;
	struct member *member;		/* by by_rank() */
	size_t nmembers, max_members;
	bool failed;			/* no memory */
};

static int order(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_rank(const void *a, const void *b)
{
	const struct member *x = a, *y = b;
	int o = order(x->job, y->job);

	return o ? o : order(x->rank, y->rank);
}

static int by_key(const void *a, const void *b)
{
	const struct session_coll *x = a, *y = b;
	int o = order(x->job, y->job);

	o = o ? o : order(x->rank, y->rank);
	o = o ? o : order(x->comm, y->comm);
	return o ? o : order(x->number, y->number);
}

static int by_age(const void *a, const void *b)
{
	const struct session_coll *const *x = a, *const *y = b;
	int o = order((*x)->since, (*y)->since);

	return o ? o : by_key(*x, *y);
}

/* Room for one more of @each bytes; NULL: none. */
static void *grow(void *list, size_t n, size_t *max, size_t each)
{
	void *more;

	if (n < *max)
		return list;
	more = realloc(list, 2 * (n + 8) * each);
	if (more)
		*max = 2 * (n + 8);
	return more;
}

static void note_coll(void *arg, const struct session_coll *c)
{
	struct lists *l = arg;
	struct session_coll *to = grow(l->coll, l->ncolls, &l->max_colls, sizeof(*to));

	if (!to) {
		l->failed = true;
		return;
	}
	l->coll = to;
	to[l->ncolls++] = *c;
}

static void note_member(void *arg, const struct session_info *i)
{
	struct lists *l = arg;
	struct member *to = grow(l->member, l->nmembers, &l->max_members, sizeof(*to));

	if (!to) {
		l->failed = true;
		return;
	}
	l->member = to;
	to[l->nmembers++] = (struct member){
		.job = i->job, .rank = i->rank, .whole = i->colls.started - i->colls.ended < PROG_COLL_ROWS,
	};
}

/*
 * Who holds @c up: the rank that it waits for, or that this one waits for in it, and so on as far as that is known here.
 * PROG_COLL_NO_RANK: nobody known; else *@is says what is known of him.
 */
static uint32_t missing(const struct lists *l, const struct session_coll *c, const char **is)
{
	for (unsigned int i = 0; i < HOPS; i++) {
		struct session_coll key = { .job = c->job, .rank = c->from, .comm = c->comm, .number = c->number };
		struct member who = { .job = c->job, .rank = c->from };
		const struct member *m;

		if (!c->awaited || c->from == PROG_COLL_NO_RANK)
			break;
		c = l->ncolls ? bsearch(&key, l->coll, l->ncolls, sizeof(key), by_key) : NULL;
		if (c)
			continue;
		m = l->nmembers ? bsearch(&who, l->member, l->nmembers, sizeof(who), by_rank) : NULL;
		*is = !m ? "on another node" : m->whole ? "not started" : "not listed";
		return who.rank;
	}
	return PROG_COLL_NO_RANK;
}

static json_t *rank_json(uint32_t rank)
{
	return rank == PROG_COLL_NO_RANK ? json_null() : json_integer(rank);
}

static json_t *row_json(const struct lists *l, const struct session_coll *c, uint64_t now)
{
	const char *is = NULL;
	uint32_t rank = missing(l, c, &is);
	json_t *o = json_object();

	ctl_put_u64(o, "job", c->job);
	json_object_set_new(o, "comm", json_sprintf("%llx", (unsigned long long)c->comm));
	json_object_set_new(o, "number", json_sprintf("%llx", (unsigned long long)c->number));
	json_object_set_new(o, "kind", json_string(c->kind < PROG_COLL_ROW_KINDS ? kinds[c->kind] : "?"));
	ctl_put_u64(o, "members", c->size);
	ctl_put_u64(o, "rank", c->rank);
	ctl_put_u64(o, "session", c->session);
	json_object_set_new(o, "pid", json_integer(c->pid));
	ctl_put_u64(o, "age_ns", c->since < now && now - c->since <= INT64_MAX ? now - c->since : 0);
	ctl_put_u64(o, "awaited", c->awaited);
	json_object_set_new(o, "from", rank_json(c->awaited ? c->from : PROG_COLL_NO_RANK));
	json_object_set_new(o, "missing", rank_json(rank));
	json_object_set_new(o, "missing_is", is ? json_string(is) : json_null());
	return o;
}

/* Oldest first; NULL: no memory. */
static json_t *rows_json(struct lists *l)
{
	const struct session_coll **byage = calloc(l->ncolls + 1, sizeof(struct session_coll *));
	uint64_t now = loop_now();
	json_t *a;

	if (!byage)
		return NULL;
	for (size_t i = 0; i < l->ncolls; i++)
		byage[i] = &l->coll[i];
	qsort(byage, l->ncolls, sizeof(struct session_coll *), by_age);
	a = json_array();
	for (size_t i = 0; i < l->ncolls; i++)
		json_array_append_new(a, row_json(l, byage[i], now));
	free(byage);
	return a;
}

json_t *ctl_do_colls(struct ctl *c, json_t *req, const char **why)
{
	struct lists l = { 0 };
	json_t *a = NULL;

	sessions_count_colls(c->o.sessions);
	sessions_each_coll(c->o.sessions, note_coll, &l);
	sessions_each(c->o.sessions, note_member, &l);
	if (l.ncolls)
		qsort(l.coll, l.ncolls, sizeof(*l.coll), by_key);
	if (l.nmembers)
		qsort(l.member, l.nmembers, sizeof(*l.member), by_rank);
	if (!l.failed)
		a = rows_json(&l);
	free(l.coll);
	free(l.member);
	return a;
}

/* ---- what they cost ------------------------------------------------------------------------------ */

json_t *ctl_do_coll(struct ctl *c, json_t *req, const char **why)
{
	static const char *const names[PROG_COLL_COSTS] = {
		[PROG_COLL_COST_NET_NS] = "net_ns", [PROG_COLL_COST_NODE_NS] = "node_ns", [PROG_COLL_COST_NET_PS] = "net_ps",
		[PROG_COLL_COST_NODE_PS] = "node_ps", [PROG_COLL_COST_REDUCE_PS] = "reduce_ps",
		[PROG_COLL_COST_STEADY_NET_NS] = "steady_net_ns", [PROG_COLL_COST_STEADY_NET_PS] = "steady_net_ps",
	};
	struct thresh_cost cost[PROG_COLL_COSTS];
	json_t *a = json_array(), *o;

	thresh_cost_get(c->o.conf, cost);
	for (unsigned int i = 0; i < PROG_COLL_COSTS; i++) {
		o = json_object();
		json_object_set_new(o, "constant", json_string(names[i]));
		ctl_put_u64(o, "value", cost[i].value);
		json_object_set_new(o, "source", ctl_text(cost[i].source));
		json_array_append_new(a, o);
	}
	return json_pack("{s:o}", "constants", a);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Windows and sessions. */
#include "ctl/priv.h"
#include "win/win.h"

/* Bytes of the ranges of a dynamic window; *@map: what holds the first of them, NULL: its owner's memory. */
static uint64_t attached_bytes(const struct win *w, struct win_map **map)
{
	struct prog_win_range r;
	uint64_t sum = 0;

	*map = NULL;
	for (uint32_t i = 0, end = winctl_range_end(&w->ctl); i < end; i++) {
		if (!winctl_range(&w->ctl, i, &r))
			continue;
		if (!sum && r.region && w->regions)
			*map = win_region(w->regions, r.region - 1);
		sum += r.len;
	}
	return sum;
}

static void add_win(struct win *w, void *arg)
{
	static const char *const mems[] = { "none", "shared", "private", "dynamic", "messages" };
	uint32_t mem = w->access.mem;
	json_t *o = json_object(), *locks = json_array();
	struct win_map *map = w->mem_map;
	uint64_t bytes = mem == PROG_MEM_DYNAMIC ? attached_bytes(w, &map) : w->size;

	ctl_put_u64(o, "job", w->job->number);
	json_object_set_new(o, "key", json_sprintf("%llx", (unsigned long long)w->key));
	ctl_put_u64(o, "rank", w->rank);
	ctl_put_u64(o, "ranks", w->nranks);
	ctl_put_u64(o, "nodes", w->nnodes);
	ctl_put_u64(o, "session", w->session);
	ctl_put_u64(o, "pid", w->pid);
	json_object_set_new(o, "memory", json_string(mem < 5 ? mems[mem] : "?"));
	ctl_put_u64(o, "bytes", bytes);
	json_object_set_new(o, "reached_by",
			    json_string(mem == PROG_MEM_SHARED || (map && !map->device) ? "mapping" :
					mem == PROG_MEM_NONE || mem == PROG_MEM_MSG_CONTEXT ? "-" :
					map && win_map_usable(map) ? "pinned mapping" :
					w->access.cma ? "cma" : "helper"));
	/* one for messages has no locks, and something else where they would be */
	for (uint32_t i = 0; i < (mem == PROG_MEM_MSG_CONTEXT ? 0 : w->nranks); i++) {
		static const char *const st[] = {
			NULL, "waits for shared", "waits for exclusive", "shared", "exclusive",
		};
		uint32_t s = __atomic_load_n(&w->ctl.peers[i].lock_state, __ATOMIC_RELAXED);

		if (s && s < 5)
			json_array_append_new(locks, json_sprintf("rank %u: %s", i, st[s]));
	}
	json_object_set_new(o, "locks", locks);
	json_array_append_new(arg, o);
}

static void add_job_wins(struct win_job *job, void *arg)
{
	/* on the main thread, which alone changes the list */
	for (struct win *w = job->windows; w; w = w->job_next)
		add_win(w, arg);
}

json_t *ctl_do_windows(struct ctl *c, json_t *req, const char **why)
{
	json_t *a = json_array();

	win_job_each(add_job_wins, a);
	return a;
}

static void add_session(void *arg, const struct session_info *i)
{
	json_t *o = json_object();

	ctl_put_u64(o, "session", i->id);
	ctl_put_u64(o, "pid", i->pid);
	ctl_put_u64(o, "uid", i->uid);
	ctl_put_u64(o, "rank", i->rank);
	ctl_put_u64(o, "job", i->job);
	json_object_set_new(o, "cma", json_boolean(i->cma));
	json_object_set_new(o, "helper", json_boolean(i->helper));
	ctl_put_u64(o, "windows", i->windows);
	ctl_put_u64(o, "regions", i->regions);
	ctl_put_u64(o, "pinned_bytes", i->pinned);
	json_array_append_new(arg, o);
}

json_t *ctl_do_sessions(struct ctl *c, json_t *req, const char **why)
{
	json_t *a = json_array();

	sessions_each(c->o.sessions, add_session, a);
	return a;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "ctl/ctl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <utlist.h>

#include "conf/keys.h"
#include "copy_engine/copy_engine.h"
#include "pool/pool.h"
#include "stats/stats.h"
#include "thresh/thresh.h"
#include "win/win.h"

#define MAX_CONNS	32u
#define SEND_TIMEOUT_NS	1000000000ull

struct conn {
	struct ctl *ctl;
	int fd;
	struct loop_watch *watch;
	struct conn *next, *prev;
};

struct ctl {
	struct ctl_opts o;
	char path[108];
	int fd;
	struct loop_watch *watch;
	struct conn *conns;
	unsigned int nconns;
	uint64_t started;		/* ns, CLOCK_MONOTONIC */
	char *buf;			/* CTL_MAX_REQUEST */
};

static json_t *hex(const uint8_t *p, size_t n)
{
	char s[65];

	for (size_t i = 0; i < n && i < 32; i++)
		snprintf(s + 2 * i, 3, "%02x", p[i]);
	return json_string(s);
}

static void put_u64(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

/* ---- workers ---- */

struct ask {
	struct rma *rma;
	struct rma_info info;
	const struct copy_engine *engine;
	struct copy_engine_info engine_info;
	json_t *peers;
};

static void ask_info(void *arg)
{
	struct ask *a = arg;

	rma_info(a->rma, &a->info);
	copy_engine_info(a->engine, &a->engine_info);
}

static void add_peer(void *arg, const struct rma_peer_info *i)
{
	static const char *const states[] = { "none", "connecting", "up", "closing" };
	json_t *o = json_object();

	json_object_set_new(o, "node", hex(i->guid, PROG_GUID_SIZE));
	json_object_set_new(o, "lane", json_string(i->name));
	json_object_set_new(o, "direction", json_string(i->opener ? "out" : "in"));
	json_object_set_new(o, "state", json_string(states[i->state < 4 ? i->state : 0]));
	put_u64(o, "streams", i->streams);
	put_u64(o, "operations", i->ops);
	put_u64(o, "bytes", i->bytes);
	put_u64(o, "latency_ns", i->rtt_ns);
	put_u64(o, "lost_lanes", i->downs);
	put_u64(o, "tx_frames", i->lane.tx_frames);
	put_u64(o, "tx_bytes", i->lane.tx_bytes);
	put_u64(o, "tx_calls", i->lane.tx_calls);
	put_u64(o, "rx_frames", i->lane.rx_frames);
	put_u64(o, "rx_bytes", i->lane.rx_bytes);
	put_u64(o, "rx_calls", i->lane.rx_calls);
	put_u64(o, "rx_direct", i->lane.rx_direct);
	put_u64(o, "stalls", i->lane.stalls);
	json_array_append_new(arg, o);
}

static void ask_peers(void *arg)
{
	struct ask *a = arg;

	rma_each_peer(a->rma, add_peer, a->peers);
}

/* What a worker's copy engine has open. */
static const char *engine_now(const struct copy_engine_info *i)
{
	if (i->open)
		return i->kind == COPIER_KERNEL ? "kernel threads of asyncprog" :
		       i->engine ? i->name : "kernel threads of ioat_copy";
	return i->why ? copy_engine_why(i->why) : "not in use";
}

/* ---- requests ---- */

static uint64_t rss(void)
{
	unsigned long size, res = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f) {
		if (fscanf(f, "%lu %lu", &size, &res) != 2)
			res = 0;
		fclose(f);
	}
	return (uint64_t)res * sysconf(_SC_PAGESIZE);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* Version of a loaded kernel module; NULL: it is not loaded. */
static json_t *module_version(const char *name)
{
	char path[64], text[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/sys/module/%s/version", name);
	f = fopen(path, "re");
	if (!f)
		return json_null();
	if (fscanf(f, "%31s", text) != 1)
		text[0] = '\0';
	fclose(f);
	return json_string(text);
}

static json_t *pins_json(void)
{
	json_t *o = json_object();
	struct win_pins p;

	win_pins(&p);
	put_u64(o, "regions", p.regions);
	put_u64(o, "bytes", p.bytes);
	put_u64(o, "registered", p.added);
	return o;
}

/* Who copied so much; @copies and @bytes by STATS_COPY_*. */
static json_t *copiers_json(const uint64_t *copies, const uint64_t *bytes)
{
	json_t *o = json_object();

	for (unsigned int i = 0; i < STATS_COPIERS; i++) {
		json_t *p = json_object();

		put_u64(p, "copies", copies[i]);
		put_u64(p, "bytes", bytes[i]);
		json_object_set_new(o, stats_copiers[i], p);
	}
	return o;
}

/* What is configured, and what it came to; @probe: try it. */
static json_t *engine_json(struct ctl *c, bool probe)
{
	static const char *const names[] = {
		[COPY_ENGINE_AUTO] = "auto", [COPY_ENGINE_CPU] = "cpu", [COPY_ENGINE_KERNEL] = "kernel",
		[COPY_ENGINE_DMA] = "dma",
	};
	char name[IOAT_COPY_NAME_SIZE];
	struct copy_engine_totals t;
	struct copy_engine_conf mc;
	json_t *o = json_object();

	copy_engine_conf_get(&mc);
	copy_engine_totals(&t);
	json_object_set_new(o, "configured", json_string(names[mc.engine]));
	put_u64(o, "min_bytes", mc.min);
	if (probe) {
		int err = copy_engine_probe(name);

		json_object_set_new(o, "engine", name[0] ? json_string(name) : json_null());
		json_object_set_new(o, "problem", err ? json_string(copy_engine_why(err)) : json_null());
	}
	json_object_set_new(o, "done_by", copiers_json(t.copies, t.bytes));
	put_u64(o, "fallbacks", t.fallbacks);
	return o;
}

static json_t *do_status(struct ctl *c, json_t *req, const char **why)
{
	struct prog_addr addr[PROG_MAX_ADDRS];
	struct session_counts sc;
	json_t *o = json_object(), *workers = json_array(), *s;
	unsigned int naddrs;

	json_object_set_new(o, "version", json_string(PROG_VERSION));
	json_object_set_new(o, "abi", json_sprintf("%d.%d", PROG_ABI_MAJOR, PROG_ABI_MINOR));
	put_u64(o, "pid", getpid());
	put_u64(o, "uid", geteuid());
	json_object_set_new(o, "mode", json_string(c->o.embedded ? "embedded" : "system"));
	json_object_set_new(o, "socket", json_string(c->o.socket));
	json_object_set_new(o, "config", c->o.config ? json_string(c->o.config) : json_null());
	json_object_set_new(o, "node", hex(c->o.guid, PROG_GUID_SIZE));
	put_u64(o, "uptime_s", (loop_now() - c->started) / 1000000000);
	put_u64(o, "resident_bytes", rss());
	put_u64(o, "cpu_ns", cpu_ns());
	s = json_object();
	json_object_set_new(s, "asyncprog", module_version("asyncprog"));
	json_object_set_new(s, "ioat_copy", module_version("ioat_copy"));
	json_object_set_new(o, "modules", s);
	json_object_set_new(o, "pinned", pins_json());
	json_object_set_new(o, "copy_engine", engine_json(c, json_is_true(json_object_get(req, "probe"))));
	put_u64(o, "process_vm_calls", mem_vm_calls());
	naddrs = xport_addrs(c->o.xport, addr);
	s = json_array();
	for (unsigned int i = 0; i < naddrs; i++) {
		char ip[INET6_ADDRSTRLEN] = "?";

		inet_ntop(addr[i].family, addr[i].ip, ip, sizeof(ip));
		json_array_append_new(s, json_sprintf(addr[i].family == AF_INET6 ? "[%s]:%u" : "%s:%u",
						      ip, ntohs(addr[i].port)));
	}
	json_object_set_new(o, "addresses", s);
	sessions_counts(c->o.sessions, &sc);
	json_object_set_new(o, "multi_user", json_string(conf_int(c->o.conf, KEY_MULTI_USER) ?
							 "insecure" : "no"));
	json_object_set_new(o, "serves_uid", sc.now && !conf_int(c->o.conf, KEY_MULTI_USER) ?
			    json_integer(sc.uid) : json_null());
	s = json_object();
	put_u64(s, "now", sc.now);
	put_u64(s, "accepted", sc.accepted);
	put_u64(s, "refused", sc.refused);
	put_u64(s, "other_user", sc.other_user);
	put_u64(s, "renewed", sc.renewed);
	put_u64(s, "corrupt", sc.corrupt);
	put_u64(s, "ended", sc.ended);
	json_object_set_new(o, "sessions", s);
	for (unsigned int i = 0; i < c->o.workers; i++) {
		struct ask a = { .rma = c->o.rma[i], .engine = c->o.copy_engine[i] };
		struct worker_stats ws;
		json_t *w = json_object();

		worker_call(c->o.worker[i], ask_info, &a);
		worker_stats(c->o.worker[i], &ws);
		put_u64(w, "index", i);
		json_object_set_new(w, "loop", json_string(worker_describe(c->o.worker[i])));
		put_u64(w, "iterations", ws.iterations);
		put_u64(w, "events", ws.events);
		put_u64(w, "sleeps", ws.sleeps);
		put_u64(w, "spin_ns", ws.spin_ns);
		put_u64(w, "moves", ws.moves);
		put_u64(w, "clients", a.info.clients);
		put_u64(w, "streams", a.info.streams);
		put_u64(w, "target_streams", a.info.target_streams);
		put_u64(w, "lock_waits", a.info.lock_waits);
		put_u64(w, "parked_bytes", a.info.held_bytes);
		put_u64(w, "peers", a.info.peers);
		json_object_set_new(w, "copy_engine", json_string(engine_now(&a.engine_info)));
		put_u64(w, "copies_under_way", a.engine_info.flying + a.engine_info.queued);
		json_array_append_new(workers, w);
	}
	json_object_set_new(o, "workers", workers);
	return o;
}

static const char *const op_names[STATS_OPS] = {
	[PROG_SQE_OP_DTYPE] = "dtype", [PROG_SQE_OP_PUT] = "put", [PROG_SQE_OP_GET] = "get",
	[PROG_SQE_OP_ACC] = "accumulate", [PROG_SQE_OP_GET_ACC] = "get_accumulate",
	[PROG_SQE_OP_CAS] = "compare_and_swap", [PROG_SQE_OP_LOCK] = "lock", [PROG_SQE_OP_UNLOCK] = "unlock",
	[PROG_SQE_OP_POST] = "post", [PROG_SQE_OP_COMPLETE] = "complete",
};

/* Two-sided messages of a job; NULL: it had none. */
static json_t *msgs_json(uint32_t job, const struct stats_msgs *m)
{
	struct thresh_sum th;
	struct pool_sum ps;
	json_t *o, *pool;

	if (!m->sends && !m->predicted && !m->named)
		return NULL;
	o = json_object();
	thresh_sum(job, &th);
	pool_sum(job, &ps);
	put_u64(o, "sent", m->sends);
	put_u64(o, "sent_bytes", m->send_bytes);
	put_u64(o, "served_bytes", m->served_bytes);
	put_u64(o, "predicted", m->predicted);
	put_u64(o, "named", m->named);
	put_u64(o, "dropped", m->dropped);
	put_u64(o, "withdrawn", m->withdrawn);
	put_u64(o, "withdrawn_too_late", m->withdrawn_late);
	put_u64(o, "late", m->late);
	put_u64(o, "early", m->early);
	put_u64(o, "early_bytes", m->early_bytes);
	put_u64(o, "copied_by_receiver", m->copied);
	put_u64(o, "rendezvous", m->rendezvous);
	put_u64(o, "on_this_node", m->local);
	put_u64(o, "copied_by_helper", m->peer_copied);
	put_u64(o, "bytes", m->bytes);
	put_u64(o, "bytes_while_computing", m->overlap_bytes);
	put_u64(o, "not_kept", m->unkept);
	put_u64(o, "errors", m->errors);
	put_u64(o, "not_predicted", th.late);
	put_u64(o, "predicted_wrongly", th.withdrawn);
	put_u64(o, "threshold_switches", th.switches);
	put_u64(o, "threshold_refused", th.refused);
	pool = json_object();
	put_u64(pool, "limit_bytes", ps.limit);
	put_u64(pool, "used_bytes", ps.used);
	put_u64(pool, "kept_bytes", ps.warm);
	put_u64(pool, "peak_bytes", ps.used_peak);
	put_u64(pool, "given_back_bytes", ps.given_back);
	put_u64(pool, "refused", ps.refused);
	json_object_set_new(o, "pool", pool);
	return o;
}

/* The part that living and ended jobs have in common. */
static json_t *job_json(uint32_t number, const uint8_t *id, uid_t uid, const struct stats_block *b,
			const struct win_reason *reason)
{
	json_t *o = json_object(), *ops = json_object(), *ways = json_object();
	json_t *reasons = json_array(), *msgs = msgs_json(number, &b->msgs);

	put_u64(o, "job", number);
	json_object_set_new(o, "id", hex(id, PROG_JOBID_SIZE));
	put_u64(o, "uid", uid);
	for (unsigned int i = 0; i < STATS_OPS; i++) {
		json_t *p;

		if (!op_names[i] || (!b->ops[i] && !b->applied[i]))
			continue;
		p = json_object();
		put_u64(p, "issued", b->ops[i]);
		put_u64(p, "issued_bytes", b->bytes[i]);
		put_u64(p, "applied", b->applied[i]);
		put_u64(p, "applied_bytes", b->applied_bytes[i]);
		put_u64(p, "latency_p50_ns", stats_quantile(b->hist[i], 0.5));
		put_u64(p, "latency_p99_ns", stats_quantile(b->hist[i], 0.99));
		json_object_set_new(ops, op_names[i], p);
	}
	json_object_set_new(o, "operations", ops);
	if (msgs)
		json_object_set_new(o, "messages", msgs);
	put_u64(o, "errors", b->errors);
	put_u64(o, "refused", b->refused);
	put_u64(o, "through_daemon_locally", b->local);
	put_u64(o, "stops", b->stops);
	put_u64(o, "lock_waits", b->lock_waits);
	put_u64(o, "locks_dropped", b->locks_dropped);
	put_u64(o, "stripe_waits", b->stripe_waits);
	put_u64(o, "replays", b->replays);
	put_u64(o, "direct_bytes", b->direct_bytes);
	put_u64(o, "mapped_bytes", b->mapped_bytes);
	put_u64(o, "pinned_bytes", b->pinned_bytes);
	put_u64(o, "cma_bytes", b->cma_bytes);
	put_u64(o, "helper_bytes", b->helper_bytes);
	put_u64(o, "helper_jobs", b->helper_jobs);
	json_object_set_new(o, "pinned_copies", copiers_json(b->copies, b->copy_bytes));
	for (unsigned int i = 0; i < STATS_FALLBACKS; i++)
		put_u64(ways, stats_fallbacks[i].name, b->fallback[i]);
	json_object_set_new(o, "fallbacks", ways);
	for (unsigned int i = 0; i < WIN_REASONS && reason[i].count; i++) {
		json_t *p = json_object();

		put_u64(p, "count", reason[i].count);
		json_object_set_new(p, "reason", json_string(reason[i].text));
		json_array_append_new(reasons, p);
	}
	json_object_set_new(o, "refusals", reasons);
	return o;
}

static void add_job(struct win_job *job, void *arg)
{
	struct stats_block b = { 0 };
	json_t *o;

	if (job->stats)
		stats_sum(job->stats, &b);
	o = job_json(job->number, job->id, job->uid, &b, job->reason);
	put_u64(o, "sessions", job->sessions);
	put_u64(o, "windows", job->nwindows);
	json_array_append_new(arg, o);
}

static void add_ended(const struct win_ended *e, void *arg)
{
	json_array_append_new(arg, job_json(e->number, e->id, e->uid, &e->stats, e->reason));
}

static json_t *do_stats(struct ctl *c, json_t *req, const char **why)
{
	json_t *o = json_object(), *jobs = json_array(), *peers = json_array();
	json_t *ended = json_array(), *texts = json_object();

	win_job_each(add_job, jobs);
	win_ended_each(add_ended, ended);
	for (unsigned int i = 0; i < c->o.workers; i++) {
		struct ask a = { .rma = c->o.rma[i], .peers = peers };

		worker_call(c->o.worker[i], ask_peers, &a);
	}
	for (unsigned int i = 0; i < STATS_FALLBACKS; i++)
		json_object_set_new(texts, stats_fallbacks[i].name,
				    json_string(stats_fallbacks[i].text));
	json_object_set_new(o, "jobs", jobs);
	json_object_set_new(o, "ended_jobs", ended);
	json_object_set_new(o, "peers", peers);
	json_object_set_new(o, "fallback_texts", texts);
	put_u64(o, "cpu_ns", cpu_ns());
	return o;
}

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

	put_u64(o, "job", w->job->number);
	json_object_set_new(o, "key", json_sprintf("%llx", (unsigned long long)w->key));
	put_u64(o, "rank", w->rank);
	put_u64(o, "ranks", w->nranks);
	put_u64(o, "nodes", w->nnodes);
	put_u64(o, "session", w->session);
	put_u64(o, "pid", w->pid);
	json_object_set_new(o, "memory", json_string(mem < 5 ? mems[mem] : "?"));
	put_u64(o, "bytes", bytes);
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

static json_t *do_windows(struct ctl *c, json_t *req, const char **why)
{
	json_t *a = json_array();

	win_job_each(add_job_wins, a);
	return a;
}

static void add_session(void *arg, const struct session_info *i)
{
	json_t *o = json_object();

	put_u64(o, "session", i->id);
	put_u64(o, "pid", i->pid);
	put_u64(o, "uid", i->uid);
	put_u64(o, "rank", i->rank);
	put_u64(o, "job", i->job);
	json_object_set_new(o, "cma", json_boolean(i->cma));
	json_object_set_new(o, "helper", json_boolean(i->helper));
	put_u64(o, "windows", i->windows);
	put_u64(o, "regions", i->regions);
	put_u64(o, "pinned_bytes", i->pinned);
	json_array_append_new(arg, o);
}

static json_t *do_sessions(struct ctl *c, json_t *req, const char **why)
{
	json_t *a = json_array();

	sessions_each(c->o.sessions, add_session, a);
	return a;
}

static json_t *conf_row(const struct conf *conf, size_t i)
{
	const struct conf_item *it = conf_item(conf, i);
	json_t *o = json_object();
	char val[4096];

	if (conf_get(conf, it->name, val, sizeof(val)) < 0)
		val[0] = '\0';
	json_object_set_new(o, "key", json_string(it->name));
	json_object_set_new(o, "value", json_string(val));
	json_object_set_new(o, "default", json_string(it->def));
	json_object_set_new(o, "source", json_string(conf_source(conf, it->name)));
	json_object_set_new(o, "changes", json_string(it->when == CONF_RUNTIME ? "at any time" :
								       "with a restart"));
	json_object_set_new(o, "doc", json_string(it->doc));
	return o;
}

static json_t *do_conf_get(struct ctl *c, json_t *req, const char **why)
{
	const char *key = json_string_value(json_object_get(req, "key"));
	json_t *a;
	int i;

	if (key) {
		i = conf_find(c->o.conf, key);
		if (i < 0) {
			*why = "no such key";
			return NULL;
		}
		return json_pack("[o]", conf_row(c->o.conf, i));
	}
	a = json_array();
	for (size_t k = 0; k < conf_count(c->o.conf); k++)
		json_array_append_new(a, conf_row(c->o.conf, k));
	return a;
}

static json_t *do_conf_set(struct ctl *c, json_t *req, const char **why)
{
	const char *key = json_string_value(json_object_get(req, "key"));
	const char *value = json_string_value(json_object_get(req, "value"));
	static char err[CONF_ERR];
	int r;

	if (!key) {
		*why = "conf set: no key given";
		return NULL;
	}
	r = value ? conf_set(c->o.conf, key, value, "progctl", true, err) :
		    conf_unset(c->o.conf, key, true, err);
	if (r) {
		*why = err;
		return NULL;
	}
	c->o.conf_changed(c->o.ctx);
	prog_log(PROG_LOG_INFO, "progctl: %s %s", key, value ? value : "unset");
	return do_conf_get(c, req, why);
}

/* ---- thresholds ---- */

static void set_overlap(json_t *row, const char *side, const struct thresh_info *i)
{
	char key[32];

	snprintf(key, sizeof(key), "%s_away", side);
	json_object_set_new(row, key, i->overlap < 0 ? json_null() : json_real(i->overlap));
}

/* A direction is one row, also when both of its ranks are here and each tells its side of it. */
static void add_thresh(void *arg, const struct thresh_info *i)
{
	json_t *rows = arg, *row;
	bool out = i->dir == THRESH_OUT, fresh;
	char key[64];

	snprintf(key, sizeof(key), "%u %u %u", i->job, i->from, i->to);
	row = json_object_get(rows, key);
	fresh = !row;
	if (fresh) {
		row = json_pack("{s:I,s:I,s:I}", "job", (json_int_t)i->job, "from", (json_int_t)i->from,
				"to", (json_int_t)i->to);
		json_object_set_new(rows, key, row);
		for (const char *const *k = (const char *const[]){ "offload", "early", "sender_away",
		     "receiver_away", "bandwidth", "latency_ns", NULL }; *k; k++)
			json_object_set_new(row, *k, json_null());
		json_object_set_new(row, "offload_pinned", json_false());
		json_object_set_new(row, "early_pinned", json_false());
	}
	if (out) {
		json_object_set_new(row, "offload", i->offload == THRESH_NONE ? json_string("none") :
							   json_integer((json_int_t)i->offload));
		json_object_set_new(row, "offload_pinned", json_boolean(i->offload_pinned));
	} else {
		json_object_set_new(row, "early_pinned", json_boolean(i->early_pinned));
	}
	set_overlap(row, out ? "sender" : "receiver", i);
	/* the rest is the receiver's to say, if it is here */
	if (out && !fresh)
		return;
	put_u64(row, "early", i->early);
	put_u64(row, "messages", i->messages);
	put_u64(row, "bytes", i->bytes);
	put_u64(row, "mean_bytes", i->messages ? i->bytes / i->messages : 0);
	put_u64(row, "rendezvous", i->rendezvous);
	if (i->bandwidth > 0) {
		json_object_set_new(row, "bandwidth", json_real(i->bandwidth));
		json_object_set_new(row, "latency_ns", json_real(i->latency_ns));
	}
	put_u64(row, "switches", i->switches);
	put_u64(row, "refused", i->refused);
	json_object_set_new(row, "no_memory_now", json_boolean(i->marked));
}

static json_t *do_thresh(struct ctl *c, json_t *req, const char **why)
{
	json_t *rows = json_object(), *list = json_array(), *job = json_object_get(req, "job"), *row;
	const char *key;

	thresh_each(add_thresh, rows);
	json_object_foreach(rows, key, row)
		if (!job || json_equal(job, json_object_get(row, "job")))
			json_array_append(list, row);
	json_decref(rows);
	return list;
}

/* Member @name of a request as a number that fits into @max; false: it is something else. */
static bool number(json_t *req, const char *name, uint64_t max, uint64_t *out)
{
	json_t *v = json_object_get(req, name);

	if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max)
		return false;
	*out = json_integer_value(v);
	return true;
}

struct find_job {
	uint32_t number;
	bool found;
};

static void match_job(struct win_job *job, void *arg)
{
	struct find_job *f = arg;

	f->found |= job->number == f->number;
}

struct pin {
	const char *what;		/* NULL: not asked for */
	uint64_t value;
};

static int do_pin(const uint64_t *who, int dir, const struct pin *p, bool dry, char *err, size_t size)
{
	bool out = dir == THRESH_OUT;
	uint64_t rank = who[out ? 1 : 2], peer = who[out ? 2 : 1];
	struct thresh_conf tc;
	int r;

	if (!p->what)
		return 0;
	thresh_conf_get(&tc);
	r = thresh_pin(who[0], rank, peer, dir, p->value, dry);
	if (r == -ENOENT)
		snprintf(err, size, "thresh: %s is set where rank %u of job %u runs, which is not on this node",
			 p->what, (unsigned int)rank, (unsigned int)who[0]);
	else if (r == -EINVAL)
		snprintf(err, size, "thresh: job %u has no rank %u", (unsigned int)who[0], (unsigned int)peer);
	else if (r == -ERANGE && out)
		snprintf(err, size, "thresh: offload %llu: less than p2p_offload_min, which is %llu",
			 (unsigned long long)p->value, (unsigned long long)tc.offload_min);
	else if (r == -ERANGE)
		snprintf(err, size, "thresh: early %llu: more than p2p_early_max, which is %llu",
			 (unsigned long long)p->value, (unsigned long long)tc.early_max);
	else if (r)
		snprintf(err, size, "thresh: %s", strerror(-r));
	return r;
}

static json_t *thresh_change(struct ctl *c, json_t *req, const char **why, bool set)
{
	static const char *const names[] = { "job", "from", "to" };
	static char err[256];
	json_t *offload = json_object_get(req, "offload"), *early = json_object_get(req, "early");
	struct pin out = { NULL, THRESH_UNPIN }, in = { NULL, THRESH_UNPIN };
	struct find_job f;
	uint64_t who[3];

	*why = err;
	for (unsigned int i = 0; i < 3; i++)
		if (!number(req, names[i], UINT32_MAX, &who[i])) {
			snprintf(err, sizeof(err), "thresh: \"%s\" is no number from 0 to %u", names[i],
				 UINT32_MAX);
			return NULL;
		}
	f = (struct find_job){ .number = who[0] };
	win_job_each(match_job, &f);
	if (!f.found) {
		snprintf(err, sizeof(err), "thresh: no job %u on this node", f.number);
		return NULL;
	}
	if (set && !offload && !early) {
		snprintf(err, sizeof(err), "thresh: nothing to set: neither \"offload\" nor \"early\"");
		return NULL;
	}
	if (offload)
		out.what = "offload";
	if (early)
		in.what = "early";
	if (set && offload && json_is_string(offload) && !strcmp(json_string_value(offload), "none")) {
		out.value = THRESH_NONE;
	} else if (set && offload && !number(req, "offload", 1ull << 62, &out.value)) {
		snprintf(err, sizeof(err), "thresh: \"offload\" is neither a number of bytes nor \"none\"");
		return NULL;
	}
	if (set && early && !number(req, "early", 1ull << 62, &in.value)) {
		snprintf(err, sizeof(err), "thresh: \"early\" is no number of bytes");
		return NULL;
	}
	/* both or none */
	for (int dry = 1; dry >= 0; dry--)
		if (do_pin(who, THRESH_OUT, &out, dry, err, sizeof(err)) ||
		    do_pin(who, THRESH_IN, &in, dry, err, sizeof(err)))
			return NULL;
	*why = NULL;
	prog_log(PROG_LOG_INFO, "progctl: thresholds of job %u from rank %u to rank %u %s",
		 (unsigned int)who[0], (unsigned int)who[1], (unsigned int)who[2],
		 set ? "pinned" : "not pinned any more");
	return do_thresh(c, req, why);
}

static json_t *do_thresh_set(struct ctl *c, json_t *req, const char **why)
{
	return thresh_change(c, req, why, true);
}

static json_t *do_thresh_unset(struct ctl *c, json_t *req, const char **why)
{
	return thresh_change(c, req, why, false);
}

static json_t *do_ping(struct ctl *c, json_t *req, const char **why)
{
	return json_pack("{s:s}", "version", PROG_VERSION);
}

static const struct {
	const char *name;
	json_t *(*fn)(struct ctl *c, json_t *req, const char **why);
} commands[] = {
	{ "ping", do_ping },
	{ "status", do_status },
	{ "stats", do_stats },
	{ "windows", do_windows },
	{ "sessions", do_sessions },
	{ "conf-get", do_conf_get },
	{ "conf-set", do_conf_set },
	{ "thresh", do_thresh },
	{ "thresh-set", do_thresh_set },
	{ "thresh-unset", do_thresh_unset },
};

static json_t *answer(struct ctl *c, const char *text, size_t len)
{
	const char *why = NULL, *cmd;
	json_t *req, *res = NULL;
	json_error_t je;

	req = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
	cmd = json_string_value(json_object_get(req, "cmd"));
	if (!req)
		why = "request: not JSON";
	else if (!cmd)
		why = "request: no \"cmd\"";
	for (size_t i = 0; !why && !res && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(cmd, commands[i].name))
			continue;
		res = commands[i].fn(c, req, &why);
		if (!res && !why)
			why = "out of memory";
	}
	if (!res && !why)
		why = "request: unknown command";
	json_decref(req);
	return res ? json_pack("{s:b,s:o}", "ok", 1, "result", res) :
		     json_pack("{s:b,s:s}", "ok", 0, "error", why);
}

/* ---- connections ---- */

static void conn_end(struct conn *k)
{
	loop_unwatch(k->watch);
	close(k->fd);
	DL_DELETE(k->ctl->conns, k);
	k->ctl->nconns--;
	free(k);
}

static bool send_reply(int fd, json_t *j)
{
	char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	size_t len = text ? strlen(text) : 0, off = 0;
	bool ok = text;

	while (ok && off < len) {
		size_t n = len - off < CTL_CHUNK ? len - off : CTL_CHUNK;

		ok = send(fd, text + off, n, MSG_NOSIGNAL) == (ssize_t)n;
		off += n;
	}
	if (ok && len % CTL_CHUNK == 0)
		ok = send(fd, "\n", 1, MSG_NOSIGNAL) == 1;
	free(text);
	return ok;
}

static void on_request(void *ctx)
{
	struct conn *k = ctx;
	struct ctl *c = k->ctl;
	ssize_t n = recv(k->fd, c->buf, CTL_MAX_REQUEST, MSG_DONTWAIT | MSG_TRUNC);
	json_t *j;
	bool ok;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		conn_end(k);
		return;
	}
	j = (size_t)n > CTL_MAX_REQUEST ?
		json_pack("{s:b,s:s}", "ok", 0, "error", "request: too long") : answer(c, c->buf, n);
	ok = send_reply(k->fd, j);
	json_decref(j);
	if (!ok)
		conn_end(k);
}

static void on_accept(void *ctx, int fd)
{
	struct ctl *c = ctx;
	struct timeval tv = { .tv_sec = SEND_TIMEOUT_NS / 1000000000 };
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int flags = 0, size = 4 << 20;
	struct conn *k;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
	    (cred.uid && cred.uid != geteuid())) {
		prog_log_limited(PROG_LOG_WARN, "control: pid %d of uid %u refused", (int)cred.pid,
				 (unsigned int)cred.uid);
		close(fd);
		return;
	}
	if (c->nconns >= MAX_CONNS) {
		prog_log_limited(PROG_LOG_WARN, "control: more than %u connections", MAX_CONNS);
		close(fd);
		return;
	}
	/* replies may block for a moment: the peer is privileged, and cut off when it does not read */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	flags = fcntl(fd, F_GETFL);
	if (flags >= 0)
		fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
	k = calloc(1, sizeof(*k));
	if (k) {
		k->ctl = c;
		k->fd = fd;
		k->watch = loop_fd_watch(c->o.loop, fd, 0, on_request, k);
	}
	if (!k || !k->watch) {
		free(k);
		close(fd);
		return;
	}
	c->nconns++;
	DL_APPEND(c->conns, k);
}

int ctl_new(const struct ctl_opts *o, struct ctl **out, char *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct ctl *c = calloc(1, sizeof(*c));
	int r = -ENOMEM;

	if (!c)
		return -ENOMEM;
	c->o = *o;
	c->fd = -1;
	c->started = loop_now();
	c->buf = malloc(CTL_MAX_REQUEST);
	if (!c->buf)
		goto fail;
	if (snprintf(c->path, sizeof(c->path), "%s.ctl", o->socket) >= (int)sizeof(c->path)) {
		snprintf(err, 256, "control socket %.150s.ctl: longer than %zu bytes", o->socket,
			 sizeof(c->path) - 1);
		r = -ENAMETOOLONG;
		goto fail;
	}
	strcpy(sa.sun_path, c->path);
	c->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* the client socket is ours, so what stands here is an old one of ours */
	unlink(c->path);
	if (c->fd < 0 || bind(c->fd, (struct sockaddr *)&sa, sizeof(sa)) || chmod(c->path, 0600) ||
	    listen(c->fd, 128)) {
		r = -errno;
		snprintf(err, 256, "control socket %s: %s", c->path, strerror(errno));
		goto fail;
	}
	c->watch = loop_accept(o->loop, c->fd, on_accept, c);
	if (!c->watch) {
		unlink(c->path);
		r = -ENOMEM;
		goto fail;
	}
	*out = c;
	return 0;
fail:
	if (c->fd >= 0)
		close(c->fd);
	free(c->buf);
	free(c);
	return r;
}

void ctl_renewed(struct ctl *c, const struct ctl_opts *o)
{
	c->o = *o;
}

void ctl_free(struct ctl *c)
{
	struct conn *k, *tmp;

	if (!c)
		return;
	DL_FOREACH_SAFE(c->conns, k, tmp)
		conn_end(k);
	loop_unwatch(c->watch);
	close(c->fd);
	unlink(c->path);
	free(c->buf);
	free(c);
}

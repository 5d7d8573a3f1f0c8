// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The daemon, and its workers. */
#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>

#include "conf/keys.h"
#include "copy_engine/copy_engine.h"
#include "ctl/priv.h"
#include "win/win.h"

struct ask {
	struct rma *rma;
	struct rma_info info;
	const struct copy_engine *engine;
	struct copy_engine_info engine_info;
};

static void ask_info(void *arg)
{
	struct ask *a = arg;

	rma_info(a->rma, &a->info);
	copy_engine_info(a->engine, &a->engine_info);
}

/* What a worker's copy engine has open. */
static const char *engine_now(const struct copy_engine_info *i)
{
	if (i->open)
		return i->kind == COPIER_KERNEL ? "kernel threads of asyncprog" :
		       i->engine ? i->name : "kernel threads of ioat_copy";
	return i->why ? copy_engine_why(i->why) : "not in use";
}

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
	ctl_put_u64(o, "regions", p.regions);
	ctl_put_u64(o, "bytes", p.bytes);
	ctl_put_u64(o, "registered", p.added);
	return o;
}

/* Devices by which lanes can go, or why they cannot. */
static json_t *rdma_json(const struct node *n)
{
	static const char *const names[] = { [TRANSPORT_AUTO] = "auto", [TRANSPORT_TCP] = "tcp", [TRANSPORT_VERBS] = "verbs" };
	char devices[256] = "";
	json_t *o = json_object();

	if (n->verbs)
		n->verbs->describe(devices, sizeof(devices));
	json_object_set_new(o, "configured", json_string(names[conf_int(n->conf, KEY_TRANSPORT)]));
	json_object_set_new(o, "devices", n->verbs ? json_string(devices) : json_null());
	json_object_set_new(o, "problem", n->verbs ? json_null() : json_string(n->verbs_why));
	return o;
}

static json_t *addresses_json(const struct node *n)
{
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs = xport_addrs(n->xport, addr);
	json_t *s = json_array();

	for (unsigned int i = 0; i < naddrs; i++) {
		char ip[INET6_ADDRSTRLEN] = "?";

		inet_ntop(addr[i].family, addr[i].ip, ip, sizeof(ip));
		json_array_append_new(s, json_sprintf(addr[i].family == AF_INET6 ? "[%s]:%u" : "%s:%u",
						      ip, ntohs(addr[i].port)));
	}
	return s;
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
	ctl_put_u64(o, "min_bytes", mc.min);
	if (probe) {
		int err = copy_engine_probe(name);

		json_object_set_new(o, "engine", name[0] ? json_string(name) : json_null());
		json_object_set_new(o, "problem", err ? json_string(copy_engine_why(err)) : json_null());
	}
	json_object_set_new(o, "done_by", ctl_copiers(t.copies, t.bytes));
	ctl_put_u64(o, "fallbacks", t.fallbacks);
	return o;
}

json_t *ctl_do_status(struct ctl *c, json_t *req, const char **why)
{
	static const char *const mode[] = {
		[CTL_SYSTEM] = "system", [CTL_EMBEDDED] = "embedded", [CTL_ENGINE] = "engine",
	};
	struct session_counts sc;
	json_t *o = json_object(), *workers = json_array(), *s;

	ctl_put_u64(o, "schema", CTL_SCHEMA);
	json_object_set_new(o, "version", json_string(PROG_VERSION));
	json_object_set_new(o, "abi", json_sprintf("%d.%d", PROG_ABI_MAJOR, PROG_ABI_MINOR));
	ctl_put_u64(o, "pid", getpid());
	ctl_put_u64(o, "uid", geteuid());
	json_object_set_new(o, "mode", json_string(mode[c->o.mode]));
	json_object_set_new(o, "socket", ctl_text(c->o.socket));
	json_object_set_new(o, "config", c->o.config ? ctl_text(c->o.config) : json_null());
	json_object_set_new(o, "node", ctl_hex(c->o.node->guid, PROG_GUID_SIZE));
	ctl_put_u64(o, "uptime_s", (loop_now() - c->started) / 1000000000);
	ctl_put_u64(o, "resident_bytes", rss());
	ctl_put_u64(o, "cpu_ns", ctl_cpu_ns());
	s = json_object();
	json_object_set_new(s, "asyncprog", module_version("asyncprog"));
	json_object_set_new(s, "ioat_copy", module_version("ioat_copy"));
	json_object_set_new(o, "modules", s);
	json_object_set_new(o, "pinned", pins_json());
	json_object_set_new(o, "copy_engine", engine_json(c, json_is_true(json_object_get(req, "probe"))));
	json_object_set_new(o, "rdma", rdma_json(c->o.node));
	ctl_put_u64(o, "process_vm_calls", mem_vm_calls());
	json_object_set_new(o, "addresses", addresses_json(c->o.node));
	sessions_counts(c->o.sessions, &sc);
	ctl_put_u64(o, "serves_uid", geteuid());
	s = json_object();
	ctl_put_u64(s, "now", sc.now);
	ctl_put_u64(s, "accepted", sc.accepted);
	ctl_put_u64(s, "refused", sc.refused);
	ctl_put_u64(s, "corrupt", sc.corrupt);
	ctl_put_u64(s, "ended", sc.ended);
	if (ctl_asks_old(req)) {
		/* of daemons that served several users */
		json_object_set_new(o, "multi_user", json_string("no"));
		ctl_put_u64(s, "other_user", 0);
		ctl_put_u64(s, "renewed", 0);
	}
	json_object_set_new(o, "sessions", s);
	for (unsigned int i = 0; i < c->o.node->workers; i++) {
		struct ask a = { .rma = c->o.node->rma[i], .engine = c->o.node->copy_engine[i] };
		struct worker_stats ws;
		json_t *w = json_object();

		worker_call(c->o.node->worker[i], ask_info, &a);
		worker_stats(c->o.node->worker[i], &ws);
		ctl_put_u64(w, "index", i);
		json_object_set_new(w, "loop", json_string(worker_describe(c->o.node->worker[i])));
		ctl_put_u64(w, "iterations", ws.iterations);
		ctl_put_u64(w, "events", ws.events);
		ctl_put_u64(w, "sleeps", ws.sleeps);
		ctl_put_u64(w, "spin_ns", ws.spin_ns);
		ctl_put_u64(w, "moves", ws.moves);
		ctl_put_u64(w, "clients", a.info.clients);
		ctl_put_u64(w, "streams", a.info.streams);
		ctl_put_u64(w, "target_streams", a.info.target_streams);
		ctl_put_u64(w, "lock_waits", a.info.lock_waits);
		ctl_put_u64(w, "held_bytes", a.info.held_bytes);
		ctl_put_u64(w, "peers", a.info.peers);
		json_object_set_new(w, "copy_engine", json_string(engine_now(&a.engine_info)));
		ctl_put_u64(w, "copies_under_way", a.engine_info.flying + a.engine_info.queued);
		json_array_append_new(workers, w);
	}
	json_object_set_new(o, "workers", workers);
	return o;
}

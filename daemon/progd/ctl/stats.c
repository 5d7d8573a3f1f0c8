// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Counters of jobs, and of lanes to other nodes. */
#include "ctl/priv.h"
#include "pool/pool.h"
#include "stats/stats.h"
#include "thresh/thresh.h"
#include "win/win.h"

struct ask {
	struct rma *rma;
	json_t *peers;
};

static void add_peer(void *arg, const struct rma_peer_info *i)
{
	static const char *const states[] = { "none", "connecting", "up", "broken", "closing" };
	json_t *o = json_object();

	json_object_set_new(o, "node", ctl_hex(i->guid, PROG_GUID_SIZE));
	json_object_set_new(o, "lane", json_string(i->name));
	json_object_set_new(o, "direction", json_string(i->opener ? "out" : "in"));
	json_object_set_new(o, "state", json_string(states[i->state < 5 ? i->state : 0]));
	ctl_put_u64(o, "streams", i->streams);
	ctl_put_u64(o, "operations", i->ops);
	ctl_put_u64(o, "bytes", i->bytes);
	ctl_put_u64(o, "latency_ns", i->rtt_ns);
	ctl_put_u64(o, "lost_lanes", i->downs);
	ctl_put_u64(o, "resumed", i->lane.resumes);
	ctl_put_u64(o, "away_ns", i->away_ns);
	ctl_put_u64(o, "tx_frames", i->lane.tx_frames);
	ctl_put_u64(o, "tx_bytes", i->lane.tx_bytes);
	ctl_put_u64(o, "tx_calls", i->lane.tx_calls);
	ctl_put_u64(o, "rx_frames", i->lane.rx_frames);
	ctl_put_u64(o, "rx_bytes", i->lane.rx_bytes);
	ctl_put_u64(o, "rx_calls", i->lane.rx_calls);
	ctl_put_u64(o, "rx_direct", i->lane.rx_direct);
	ctl_put_u64(o, "stalls", i->lane.stalls);
	json_object_set_new(o, "carrier", i->carrier ? json_string(i->carrier) : json_null());
	json_object_set_new(o, "carrier_why", i->carrier ? json_string(i->carrier_why) : json_null());
	json_object_set_new(o, "rdma_why", i->carrier ? json_string(i->way_why) : json_null());
	ctl_put_u64(o, "rdma_tx_bytes", i->lane.rdma_tx_bytes);
	ctl_put_u64(o, "rdma_rx_bytes", i->lane.rdma_rx_bytes);
	ctl_put_u64(o, "rdma_read_bytes", i->lane.rdma_read_bytes);
	ctl_put_u64(o, "rdma_write_bytes", i->lane.rdma_write_bytes);
	json_array_append_new(arg, o);
}

static void ask_peers(void *arg)
{
	struct ask *a = arg;

	rma_each_peer(a->rma, add_peer, a->peers);
}

static const char *const op_names[STATS_OPS] = {
	[PROG_SQE_OP_DTYPE] = "dtype", [PROG_SQE_OP_PUT] = "put", [PROG_SQE_OP_GET] = "get",
	[PROG_SQE_OP_ACC] = "accumulate", [PROG_SQE_OP_GET_ACC] = "get_accumulate",
	[PROG_SQE_OP_CAS] = "compare_and_swap", [PROG_SQE_OP_LOCK] = "lock", [PROG_SQE_OP_UNLOCK] = "unlock",
	[PROG_SQE_OP_POST] = "post", [PROG_SQE_OP_COMPLETE] = "complete",
	[PROG_SQE_OP_NOTIFY] = "notify",
};

/* Two-sided messages of a job; NULL: it had none. */
static json_t *msgs_json(uint32_t job, const struct stats_msgs *m)
{
	struct thresh_sum th;
	struct pool_sum ps;
	json_t *o, *pool;

	if (!m->sends && !m->pre_matched && !m->by_id)
		return NULL;
	o = json_object();
	thresh_sum(job, &th);
	pool_sum(job, &ps);
	ctl_put_u64(o, "sent", m->sends);
	ctl_put_u64(o, "sent_bytes", m->send_bytes);
	ctl_put_u64(o, "served_bytes", m->served_bytes);
	ctl_put_u64(o, "served_rdma_read_bytes", m->served_read_bytes);
	ctl_put_u64(o, "pre_matched", m->pre_matched);
	ctl_put_u64(o, "by_id", m->by_id);
	ctl_put_u64(o, "dropped", m->dropped);
	ctl_put_u64(o, "withdrawn", m->withdrawn);
	ctl_put_u64(o, "withdrawn_too_late", m->withdrawn_late);
	ctl_put_u64(o, "late", m->late);
	ctl_put_u64(o, "eager", m->eager);
	ctl_put_u64(o, "eager_bytes", m->eager_bytes);
	ctl_put_u64(o, "copied_by_receiver", m->copied);
	ctl_put_u64(o, "rendezvous", m->rendezvous);
	ctl_put_u64(o, "on_this_node", m->local);
	ctl_put_u64(o, "copied_by_helper", m->peer_copied);
	ctl_put_u64(o, "bytes", m->bytes);
	ctl_put_u64(o, "rdma_read_bytes", m->read_bytes);
	ctl_put_u64(o, "rdma_read_copied_bytes", m->read_copied_bytes);
	ctl_put_u64(o, "bytes_while_computing", m->overlap_bytes);
	ctl_put_u64(o, "not_kept", m->unkept);
	ctl_put_u64(o, "errors", m->errors);
	ctl_put_u64(o, "not_pre_matched", th.late);
	ctl_put_u64(o, "pre_matched_wrongly", th.withdrawn);
	ctl_put_u64(o, "threshold_switches", th.switches);
	ctl_put_u64(o, "threshold_refused", th.refused);
	pool = json_object();
	ctl_put_u64(pool, "limit_bytes", ps.limit);
	ctl_put_u64(pool, "used_bytes", ps.used);
	ctl_put_u64(pool, "kept_bytes", ps.warm);
	ctl_put_u64(pool, "peak_bytes", ps.used_peak);
	ctl_put_u64(pool, "given_back_bytes", ps.given_back);
	ctl_put_u64(pool, "refused", ps.refused);
	json_object_set_new(o, "pool", pool);
	return o;
}

/* The part that living and ended jobs have in common. */
static json_t *job_json(uint32_t number, const uint8_t *id, uid_t uid, const struct stats_block *b,
			const struct win_reason *reason)
{
	json_t *o = json_object(), *ops = json_object(), *ways = json_object();
	json_t *reasons = json_array(), *msgs = msgs_json(number, &b->msgs);

	ctl_put_u64(o, "job", number);
	json_object_set_new(o, "id", ctl_hex(id, PROG_JOBID_SIZE));
	ctl_put_u64(o, "uid", uid);
	for (unsigned int i = 0; i < STATS_OPS; i++) {
		json_t *p;

		if (!op_names[i] || (!b->ops[i] && !b->applied[i]))
			continue;
		p = json_object();
		ctl_put_u64(p, "issued", b->ops[i]);
		ctl_put_u64(p, "issued_bytes", b->bytes[i]);
		ctl_put_u64(p, "applied", b->applied[i]);
		ctl_put_u64(p, "applied_bytes", b->applied_bytes[i]);
		ctl_put_u64(p, "latency_p50_ns", stats_quantile(b->hist[i], 0.5));
		ctl_put_u64(p, "latency_p99_ns", stats_quantile(b->hist[i], 0.99));
		json_object_set_new(ops, op_names[i], p);
	}
	json_object_set_new(o, "operations", ops);
	if (msgs)
		json_object_set_new(o, "messages", msgs);
	ctl_put_u64(o, "errors", b->errors);
	ctl_put_u64(o, "refused", b->refused);
	ctl_put_u64(o, "through_daemon_locally", b->local);
	ctl_put_u64(o, "deferred", b->deferred);
	ctl_put_u64(o, "deferred_bytes", b->deferred_bytes);
	ctl_put_u64(o, "stops", b->stops);
	ctl_put_u64(o, "lock_waits", b->lock_waits);
	ctl_put_u64(o, "notify_stops", b->notify_stops);
	ctl_put_u64(o, "locks_dropped", b->locks_dropped);
	ctl_put_u64(o, "stripe_waits", b->stripe_waits);
	ctl_put_u64(o, "replays", b->replays);
	ctl_put_u64(o, "direct_bytes", b->direct_bytes);
	ctl_put_u64(o, "mapped_bytes", b->mapped_bytes);
	ctl_put_u64(o, "pinned_bytes", b->pinned_bytes);
	ctl_put_u64(o, "rdma_read_bytes", b->rdma_read_bytes);
	ctl_put_u64(o, "rdma_write_bytes", b->rdma_write_bytes);
	ctl_put_u64(o, "cma_bytes", b->cma_bytes);
	ctl_put_u64(o, "helper_bytes", b->helper_bytes);
	ctl_put_u64(o, "helper_jobs", b->helper_jobs);
	json_object_set_new(o, "pinned_copies", ctl_copiers(b->copies, b->copy_bytes));
	for (unsigned int i = 0; i < STATS_FALLBACKS; i++)
		ctl_put_u64(ways, stats_fallbacks[i].name, b->fallback[i]);
	json_object_set_new(o, "fallbacks", ways);
	for (unsigned int i = 0; i < WIN_REASONS && reason[i].count; i++) {
		json_t *p = json_object();

		ctl_put_u64(p, "count", reason[i].count);
		json_object_set_new(p, "reason", json_string(reason[i].text));
		json_array_append_new(reasons, p);
	}
	json_object_set_new(o, "refusals", reasons);
	return o;
}

struct living {
	struct ctl *ctl;
	json_t *jobs;
};

static void add_job(struct win_job *job, void *arg)
{
	struct living *l = arg;
	struct stats_block b = { 0 };
	json_t *o, *colls = ctl_job_colls(l->ctl, job);

	if (job->stats)
		stats_sum(job->stats, &b);
	o = job_json(job->number, job->id, job->uid, &b, job->reason);
	ctl_put_u64(o, "sessions", job->sessions);
	ctl_put_u64(o, "windows", job->nwindows);
	if (colls)
		json_object_set_new(o, "collectives", colls);
	json_array_append_new(l->jobs, o);
}

static void add_ended(const struct win_ended *e, void *arg)
{
	json_t *o = job_json(e->number, e->id, e->uid, &e->stats, e->reason), *colls = ctl_colls(&e->colls);

	if (colls)
		json_object_set_new(o, "collectives", colls);
	json_array_append_new(arg, o);
}

json_t *ctl_do_stats(struct ctl *c, json_t *req, const char **why)
{
	json_t *o = json_object(), *jobs = json_array(), *peers = json_array();
	json_t *ended = json_array(), *texts = json_object();
	struct living l = { .ctl = c, .jobs = jobs };

	ctl_put_u64(o, "schema", CTL_SCHEMA);
	sessions_count_colls(c->o.sessions);
	win_job_each(add_job, &l);
	win_ended_each(add_ended, ended);
	for (unsigned int i = 0; i < c->o.node->workers; i++) {
		struct ask a = { .rma = c->o.node->rma[i], .peers = peers };

		worker_call(c->o.node->worker[i], ask_peers, &a);
	}
	for (unsigned int i = 0; i < STATS_FALLBACKS; i++)
		json_object_set_new(texts, stats_fallbacks[i].name,
				    json_string(stats_fallbacks[i].text));
	json_object_set_new(o, "jobs", jobs);
	json_object_set_new(o, "ended_jobs", ended);
	json_object_set_new(o, "peers", peers);
	json_object_set_new(o, "fallback_texts", texts);
	json_object_set_new(o, "left_to_library_texts", ctl_colls_texts());
	ctl_put_u64(o, "cpu_ns", ctl_cpu_ns());
	return o;
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * link: what all engines of a worker have in common.  To other nodes: which lane leads there, the proof of jobs,
 * whether the node still answers, when to connect again.  From other nodes: which job of which node a frame is of.
 * On this node: the clients that are attached (client.h), their helper threads, when to look again (retry.h).
 *
 *	engines:   rma    rndv				know each other not
 *	              \  /
 *	              link				calls them through struct link_ops
 *	               |
 *	              xport				calls it through link_handlers
 *
 * One struct link per worker; everything happens on that worker's thread, so nothing in here is locked.  An engine
 * keeps what it has of a peer, job or lane in a structure of its own, to which the pointer of its name leads.
 *
 * What an engine knows of another node's operations belongs to (job, peer), struct link_from, and not to the lane
 * they come on: a lane is exchanged for a later one.
 */
#ifndef PROGD_LINK_H
#define PROGD_LINK_H

#include <sched.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "link/client.h"
#include "link/peer_backoff.h"
#include "link/retry.h"
#include "xport/xport.h"

struct rma;
struct rma_peer;
struct rma_lane;
struct rma_from;
struct rndv;
struct rndv_peer;
struct rndv_job;
struct rndv_lane;
struct rndv_from;
struct link_way;
struct link_landing;

/* ---- to other nodes ------------------------------------------------------------------------- */

/* Lanes are one user's, and lead to one set of addresses: a node's name alone is what some client says. */
struct link_key {
	uid_t uid;
	uint32_t naddrs;
	uint8_t guid[PROG_GUID_SIZE];
	struct prog_addr addr[PROG_MAX_ADDRS];
};

#define LINK_IDLE_NS	60000000000ull	/* the next job of the user may want it */
#define LINK_PEER_BYTES	1024u		/* charged to the user as long as the node is known: what it takes with the engines' parts, about */

struct link_peer {			/* a node that engines of this worker send to */
	struct link_key key;
	UT_hash_handle hh;
	struct link *link;
	struct lane *lane;		/* NULL: down */
	struct link_job *jobs;
	bool due;			/* some of them are to be opened when the lane has room */
	struct peer_backoff backoff;
	struct loop_timer alive;	/* runs while something is awaited: does the peer still answer? */
	struct loop_timer idle;		/* runs when no job is left */
	uint64_t downs;
	struct win_user *user;		/* held; it is charged to him for as long as it is there */
	struct rma_peer *rma;		/* NULL: it does not use it (yet); as the next */
	struct rndv_peer *rndv;
};

enum link_state { LINK_CLOSED, LINK_OPENING, LINK_OPEN };

struct link_job {			/* a job with a peer */
	struct link_peer *peer;
	struct win_job *job;		/* held */
	enum link_state state;
	uint32_t index;			/* on the lane, unless closed */
	bool due;			/* closed; to be opened when the lane has room */
	bool over;			/* no sessions here: ends with the engines' parts */
	struct rndv_job *rndv;
	struct link_job *next;
};

/* @job with the node @node says; NULL: *@err is -ENOMEM, or -EDQUOT, which was logged. */
struct link_job *link_job_get(struct link *l, struct win_job *job, const struct prog_win_node *node, int *err);
/*
 * Lane and proof of the job, so that its frames can go: 0: `opened' or `refused' follows, unless it is open.  Else why it
 * cannot be now; -ENOMEM may pass.
 */
int link_job_connect(struct link_job *j);
/* An engine's part of a job that is over is gone. */
void link_job_released(struct link_job *j);
/* How long until a lane can be made, ns; not 0. */
static inline uint64_t link_wait_ns(const struct link_peer *p)
{
	return peer_backoff_wait_ns(&p->backoff);
}
/* Something is awaited of the peer: the first of it, as far as the engine knows. */
void link_await_first(struct link_peer *p);
/* Something is awaited of the peer, and perhaps was before. */
void link_await(struct link_peer *p);

/* ---- from other nodes ----------------------------------------------------------------------- */

struct link_lane {			/* a lane on which others ask */
	struct link *link;
	struct lane *lane;
	uint64_t serial;		/* later ones of this worker have higher ones */
	struct rma_lane *rma;
	struct rndv_lane *rndv;
	struct link_lane *next, *prev;
};

struct link_from {			/* a job of which a worker of another node sends */
	struct link *link;
	uint8_t jobid[WIRE_JOBID_SIZE];
	uint8_t guid[PROG_GUID_SIZE];
	uint16_t worker;		/* the lane's index */
	struct link_lane *lane;		/* the latest on which it was proven */
	unsigned int indices;		/* of that lane that stand for it */
	uint64_t id;			/* of all workers, never 0; another one on each lane */
	struct win_job *job;		/* held; see link_from_job() */
	struct rma_from *rma;
	struct rndv_from *rndv;
	struct link_from *next, *prev;
};

/* The job here; NULL: it has no process (any more). */
struct win_job *link_from_job(struct link_from *from);
/* Close the lanes from node @guid. */
void link_close_from(struct link *l, const uint8_t *guid, int err, const char *why);

/* ---- engines -------------------------------------------------------------------------------- */

/* An engine, as the link calls it.  Those without a note may be NULL. */
struct link_ops {
	uint8_t first, last;		/* types of its frames */
	/* One round of work; returns how much was done.  Not NULL. */
	int (*poll)(struct link *l);
	void (*job_gone)(struct link *l, struct win_job *job);

	/* To others.  The job's frames may go. */
	void (*opened)(struct link_job *j);
	/* The peer does not take the job, or it cannot be asked. */
	void (*refused)(struct link_job *j, int err);
	/* The lane is gone, and has given back all that was queued by reference. */
	void (*down)(struct link_peer *p, int err);
	/* The lane refused frames before, and has room now. */
	void (*writable)(struct link_peer *p);
	/* Is anything awaited from it?  Not NULL. */
	bool (*awaits)(const struct link_peer *p);
	/*
	 * Answers, as xport_handlers has it.  @j of the end is NULL when the job was closed meanwhile, and comes without
	 * token or with that of its beginning.  Not NULL.
	 */
	void (*answer_begin)(struct link_job *j, const struct wire_frame *f, struct lane_sink *sink);
	int (*answer_end)(struct link_job *j, const struct wire_frame *f, const void *payload, void *token);
	void (*answer_abort)(void *token);

	/* From others.  A lane: 0 or -ENOMEM.  Not NULL, as the next. */
	int (*lane_new)(struct link_lane *in);
	/* After `lost' of all that came on it. */
	void (*lane_free)(struct link_lane *in);
	void (*lane_writable)(struct link_lane *in);
	/* Frames, as above: @from of the end is NULL when the job is lost, and then it has a token.  Not NULL. */
	int (*begin)(struct link_from *from, const struct wire_frame *f, struct lane_sink *sink);
	int (*end)(struct link_from *from, const struct wire_frame *f, const void *payload, void *token);
	void (*abort)(void *token);
	/*
	 * All that came from there on the lane is over: the lane ends, or the peer has given it up and has proven the
	 * job on a later one.  Not NULL.
	 */
	void (*lost)(struct link_from *from);
};

enum { LINK_RMA, LINK_RNDV, LINK_ENGINES };	/* in this order they are polled */

/* Who runs the workers: part of its own structure.  Called on the worker. */
struct link_host {
	/* Entries were taken from clients' rings; leave what is in the rings for now?  Both or none. */
	void (*posted)(struct link_host *h, unsigned int worker, unsigned int n);
	bool (*leave)(struct link_host *h, unsigned int worker);
	/* A client is likely to post more at once, and to wait for all of it together.  NULL allowed. */
	void (*expect)(struct link_host *h, unsigned int worker);
	/* A client waits for an answer, and does nothing else, or it does not any more.  NULL allowed. */
	void (*await)(struct link_host *h, unsigned int worker, bool waits);
	/* Has @worker, the calling one, no time left?  May be NULL. */
	bool (*busy)(struct link_host *h, unsigned int worker);
	/* Wake other workers. */
	void (*kick)(struct link_host *h, uint32_t worker_mask);
	/*
	 * A large message is about to be moved by @worker, the calling one: it should run on one of @idle, where clients
	 * sleep until something has come, or else at least on none of @busy, where clients compute.  May be NULL.
	 */
	void (*place)(struct link_host *h, unsigned int worker, const cpu_set_t *idle, const cpu_set_t *busy);
	/*
	 * For small operations @worker, the calling one, should run on one of @best; or much is to be moved, and it may run anywhere.
	 * Both or none.
	 */
	void (*follow)(struct link_host *h, unsigned int worker, const cpu_set_t *best);
	void (*spread)(struct link_host *h, unsigned int worker);
	/*
	 * Where the client's process may run, all its @threads or the first of them: 0 or a negative errno.  NULL: it is not known,
	 * and what clients say is believed.
	 */
	int (*client_cpus)(struct link_host *h, const struct client_view *c, bool threads, cpu_set_t *out);
	/* The processor on which the first thread of the client's process runs; -1: it sleeps.  NULL: it is not known. */
	int (*client_runs)(struct link_host *h, const struct client_view *c);
	/*
	 * The client's memory is corrupt; the session must be ended (later, not from inside this call).  @why names
	 * field and value.
	 */
	void (*client_bad)(struct link_host *h, const struct client_view *c, const char *why);
};

struct link_opts {
	unsigned int index, workers;
	struct loop *loop;
	uint8_t guid[PROG_GUID_SIZE];	/* this node */
	/*
	 * A peer of which something is awaited and that has not sent a frame, not even the answer to a ping, for this
	 * long is taken for gone.  (The transport notices dead hosts and connections; this is for a daemon that hangs.)
	 * A lock that is not granted does not count: pings are answered.  0: never.
	 */
	uint64_t peer_timeout_ns;
	uint64_t lane_idle_ns;		/* a lane that no job has used for so long is closed; 0: never */
	struct link_host *host;
};

struct link {
	struct link_opts o;
	struct xport_worker *xw;
	struct link_peer *peers;
	struct link_lane *lanes;
	struct link_from *from;
	uint64_t serial;		/* of lanes so far */
	struct link_client *clients;
	struct link_client *dirty;
	struct helper_link *helpers;	/* with jobs of ours; held */
	int reaped;			/* jobs that ended in this round */
	struct link_way *ways;		/* that engines have opened: way.h */
	struct loop_timer ways_idle;	/* runs as long as some may come to be idle */
	struct link_landing *landings;	/* landing.c */
	unsigned int nlandings;
	struct link_retry retry;
	struct stats_block nostats;	/* for jobs that have none */
	const struct link_ops *ops[LINK_ENGINES];
	const struct link_ops *of_type[WIRE_RNDV_KEY + 1];	/* whose frames these are; NULL: nobody's */
	struct rma *rma;		/* NULL: not there; as the next */
	struct rndv *rndv;
};

/* Any thread; 0 or -ENOMEM. */
int link_new(const struct link_opts *o, struct link **out);
/* After xport_detach(), and after the engines.  NULL is fine. */
void link_free(struct link *l);
/* What xport_attach() gave for this worker.  Before the worker runs. */
void link_set_xport(struct link *l, struct xport_worker *xw);
/* Handlers for xport_opts; the context of xport_attach() is the struct link. */
extern const struct xport_handlers link_handlers;
/* Progress source (worker_add_source), context struct link: a round of all engines. */
int link_poll(void *ctx);
/* The job has no sessions here any more. */
void link_job_gone(struct link *l, struct win_job *job);

static inline bool link_is_here(const struct link *l, const struct prog_win_node *node)
{
	return !memcmp(node->guid, l->o.guid, PROG_GUID_SIZE);
}

/* There is something new in the client's memory: link_wake() tells it. */
static inline void link_client_mark(struct link_client *c)
{
	if (c->dirty)
		return;
	c->dirty = true;
	c->dirty_next = c->link->dirty;
	c->link->dirty = c;
}

int link_wake_marked(struct link *l);
/* Wake the clients that were marked; returns how many. */
static inline int link_wake(struct link *l)
{
	return l->dirty ? link_wake_marked(l) : 0;
}

/* An engine is there: its frames and calls come to it from now on. */
void link_engine_add(struct link *l, int engine, const struct link_ops *ops);
void link_engine_del(struct link *l, int engine);

/* @job's counters of this worker. */
struct stats_block *link_stats(struct link *l, struct win_job *job);
/* A job was posted to @h: its end is noticed. */
void link_helper_watch(struct link *l, struct helper *h);

#endif

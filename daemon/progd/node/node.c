// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Workers and what belongs to each, wired together and taken apart. */
#include "node/node.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <libprogbase/log.h>

#include "conf/check.h"
#include "conf/keys.h"
#include "listen/listen.h"
#include "node/lane_key.h"
#include "xport/plugin.h"

static int post(void *ctx, unsigned int worker, void (*fn)(void *arg), void *arg)
{
	struct node *n = ctx;

	return worker_post(n->worker[worker], fn, arg);
}

static struct node *host_of(struct link_host *h)
{
	return (struct node *)((char *)h - offsetof(struct node, host));
}

static void posted(struct link_host *h, unsigned int worker, unsigned int n)
{
	worker_posted(host_of(h)->worker[worker], n);
}

static void expect(struct link_host *h, unsigned int worker)
{
	worker_expect(host_of(h)->worker[worker]);
}

static void await(struct link_host *h, unsigned int worker, bool waits)
{
	worker_await(host_of(h)->worker[worker], waits);
}

static void place(struct link_host *h, unsigned int worker, const cpu_set_t *idle, const cpu_set_t *busy)
{
	worker_place(host_of(h)->worker[worker], idle, busy);
}

static void follow(struct link_host *h, unsigned int worker, const cpu_set_t *best)
{
	worker_follow(host_of(h)->worker[worker], best);
}

static void spread(struct link_host *h, unsigned int worker)
{
	worker_spread(host_of(h)->worker[worker]);
}

static int client_cpus(struct link_host *h, const struct client_view *c, bool threads, cpu_set_t *out)
{
	return worker_cpus_process(c->pid, threads, out);
}

static int client_runs(struct link_host *h, const struct client_view *c)
{
	return worker_cpu_process(c->pid);
}

static bool leave(struct link_host *h, unsigned int worker)
{
	return worker_coalesces(host_of(h)->worker[worker]);
}

static bool busy(struct link_host *h, unsigned int worker)
{
	return worker_is_busy(host_of(h)->worker[worker]);
}

static void kick(struct link_host *h, uint32_t mask)
{
	struct node *n = host_of(h);

	for (unsigned int i = 0; i < n->workers; i++)
		if (mask & (1u << i))
			worker_kick(n->worker[i]);
}

static void client_bad(struct link_host *h, const struct client_view *c, const char *why)
{
	host_of(h)->client_bad(host_of(h)->ctx, c, why);
}

static int make_doorbell(struct node *n)
{
	int fd = memfd_create("progd-doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct prog_doorbell)))
		goto fail;
	p = mmap(NULL, sizeof(struct prog_doorbell), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		goto fail;
	/* our mapping stays writable, those of clients cannot be */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		goto fail;
	n->doorbell = p;
	n->doorbell_fd = fd;
	return 0;
fail:
	close(fd);
	return -errno;
}

static int make_workers(struct node *n)
{
	const char *cpus = conf_str(n->conf, KEY_CPUS);
	int64_t poll = conf_int(n->conf, KEY_POLL_US);
	unsigned int workers = conf_int(n->conf, KEY_WORKERS);
	cpu_set_t set;
	int r;

	n->host = (struct link_host){
		.posted = posted, .leave = leave, .expect = expect, .await = await, .busy = workers > 1 ? busy : NULL, .kick = kick,
		.place = place, .follow = follow, .spread = spread,
		.client_cpus = client_cpus, .client_runs = client_runs, .client_bad = client_bad,
	};
	for (unsigned int i = 0; i < workers; i++) {
		struct worker_opts o = {
			.index = i, .loop = conf_int(n->conf, KEY_LOOP),
			.prio = conf_int(n->conf, KEY_PRIORITY),
			.poll_ns = poll < 0 ? WORKER_POLL_AUTO : poll * 1000,
			.need_wakeup = &n->doorbell->state[i].need_wakeup, .workers = workers,
		};
		struct link_opts lo = {
			.index = i, .workers = workers, .host = &n->host,
			.peer_timeout_ns = conf_int(n->conf, KEY_PEER_TIMEOUT), .lane_idle_ns = LINK_IDLE_NS,
		};

		if (*cpus && !conf_cpus_parse(cpus, &set))
			o.cpus = &set;
		else if (workers > 1 && !worker_cpus_numa(i, &set))
			o.cpus = &set;
		r = worker_new(&o, &n->worker[i]);
		if (r) {
			prog_log(PROG_LOG_ERROR, "worker %u: event loop %s: %s", i,
				 o.loop == LOOP_IO_URING ? "io_uring" :
				 o.loop == LOOP_EPOLL ? "epoll" : "auto", strerror(-r));
			return r;
		}
		n->workers = i + 1;
		lo.loop = worker_loop(n->worker[i]);
		memcpy(lo.guid, n->guid, sizeof(lo.guid));
		r = link_new(&lo, &n->link[i]);
		if (!r)
			r = copy_engine_new(i, lo.loop, &n->copy_engine[i]);
		if (!r)
			r = rma_new(n->link[i], n->copy_engine[i], &n->rma[i]);
		if (!r)
			r = rndv_new(n->link[i], n->copy_engine[i], &n->rndv_conf, &n->rndv[i]);
		if (!r)
			r = worker_add_source(n->worker[i], link_poll, n->link[i]);
		if (!r)
			r = worker_add_source(n->worker[i], copy_engine_poll, n->copy_engine[i]);
		if (r) {
			prog_log(PROG_LOG_ERROR, "worker %u: %s", i, strerror(-r));
			return r;
		}
	}
	return 0;
}

/* Can lanes go by RDMA?  0, or -errno and a line. */
static int load_verbs(struct node *n, char *err)
{
	int64_t transport = conf_int(n->conf, KEY_TRANSPORT);

	n->verbs_why[0] = '\0';
	if (transport == TRANSPORT_TCP)
		snprintf(n->verbs_why, sizeof(n->verbs_why), "transport is tcp");
	else if (conf_int(n->conf, KEY_LANE_SECURITY) == LANE_SECURITY_ENCRYPT)
		snprintf(n->verbs_why, sizeof(n->verbs_why), "lane_security is encrypt");
	else if (!n->verbs)
		n->verbs = verbs_load(n->verbs_why);
	if (!n->verbs_why[0])
		return 0;
	n->verbs = NULL;
	prog_log(PROG_LOG_INFO, "lanes: no RDMA: %s", n->verbs_why);
	if (transport != TRANSPORT_VERBS)
		return 0;
	snprintf(err, XPORT_ERR, "transport is verbs, but %s", n->verbs_why);
	return -ENODEV;
}

static int make_xport(struct node *n)
{
	struct xport_opts o = {
		.workers = n->workers, .transport = "tcp", .listen = conf_str(n->conf, KEY_LISTEN),
		.port = conf_int(n->conf, KEY_PORT), .listen_fd = n->listen_fd, .nlisten = n->nlisten,
		.peer_check_ns = conf_int(n->conf, KEY_PEER_TIMEOUT),
		.peer_giveup_ns = conf_int(n->conf, KEY_PEER_GIVEUP),
		.connect_timeout_ns = conf_int(n->conf, KEY_CONNECT_TIMEOUT),
		.encrypt = conf_int(n->conf, KEY_LANE_SECURITY) == LANE_SECURITY_ENCRYPT,
		.verbs_opts = {
			.devices = conf_str(n->conf, KEY_NET_DEVICES), .gid_index = conf_int(n->conf, KEY_RDMA_GID),
			.mtu = conf_int(n->conf, KEY_RDMA_MTU), .service_level = conf_int(n->conf, KEY_RDMA_SERVICE_LEVEL),
			/* devices may take four times as long */
			.patience_ms = conf_int(n->conf, KEY_PEER_TIMEOUT) / 2000000,
			.quiet_s = conf_int(n->conf, KEY_PEER_TIMEOUT) / 2000000000 + 1,
		},
		.handlers = &link_handlers, .post = post, .post_ctx = n,
	};
	const char *ports = conf_str(n->conf, KEY_PORTS);
	const char *key_file = conf_str(n->conf, KEY_LANE_KEY);
	uint8_t lane_key[PROG_JOBKEY_SIZE];
	char err[XPORT_ERR] = "";
	int r = 0;

	if (*key_file) {
		r = node_lane_key_read(key_file, lane_key, err, sizeof(err));
		o.lane_key = lane_key;
	}
	if (*ports)
		listen_ports(ports, &o.port, &o.port_high);
	memcpy(o.guid, n->guid, sizeof(o.guid));
	if (!r)
		r = load_verbs(n, err);
	o.verbs = n->verbs;
	if (!r)
		r = xport_new(&o, &n->xport, err);
	sodium_memzero(lane_key, sizeof(lane_key));
	for (unsigned int i = 0; !r && i < n->workers; i++) {
		r = xport_attach(n->xport, i, worker_loop(n->worker[i]), n->link[i],
				 &n->xw[i]);
		if (r)
			break;
		link_set_xport(n->link[i], n->xw[i]);
	}
	if (!r)
		r = xport_listen(n->xport, n->loop, err);
	if (r)
		prog_log(PROG_LOG_ERROR, "network: %s", err[0] ? err : strerror(-r));
	return r;
}

static void nothing(void *arg)
{
}

int node_begin(struct node *n)
{
	int r;

	randombytes_buf(n->guid, sizeof(n->guid));
	r = make_doorbell(n);
	if (r) {
		prog_log(PROG_LOG_ERROR, "doorbell page: %s", strerror(-r));
		return r;
	}
	r = make_workers(n);
	if (r)
		return r;
	r = make_xport(n);
	if (r)
		return r;
	n->started = true;
	for (unsigned int i = 0; i < n->workers; i++) {
		r = worker_start(n->worker[i]);
		/* once it answers, it has set itself up and can be described */
		if (!r)
			r = worker_call(n->worker[i], nothing, NULL);
		if (r) {
			prog_log(PROG_LOG_ERROR, "worker %u: %s", i, strerror(-r));
			return r;
		}
	}
	return 0;
}

struct detach {
	struct xport_worker *xw;
	struct copy_engine *copy_engine;
	uint64_t drain_ns;
};

/* What uses the worker's loop leaves it. */
static void detach(void *arg)
{
	struct detach *t = arg;

	if (t->xw)
		xport_detach(t->xw, t->drain_ns);
	copy_engine_detach(t->copy_engine);
}

void node_end(struct node *n)
{
	if (n->xport)
		xport_unlisten(n->xport);
	for (unsigned int i = 0; i < n->workers; i++) {
		struct detach t = { n->xw[i], n->copy_engine[i], conf_int(n->conf, KEY_DRAIN_TIMEOUT) };

		if (!n->started || worker_call(n->worker[i], detach, &t))
			detach(&t);
	}
	for (unsigned int i = 0; i < n->workers; i++)
		worker_stop(n->worker[i]);
	xport_free(n->xport);
	for (unsigned int i = 0; i < n->workers; i++) {
		copy_engine_free(n->copy_engine[i]);
		rma_free(n->rma[i]);
		rndv_free(n->rndv[i]);
		link_free(n->link[i]);
		worker_free(n->worker[i]);
	}
	memset(n->worker, 0, sizeof(n->worker));
	memset(n->link, 0, sizeof(n->link));
	memset(n->rma, 0, sizeof(n->rma));
	memset(n->rndv, 0, sizeof(n->rndv));
	memset(n->copy_engine, 0, sizeof(n->copy_engine));
	memset(n->xw, 0, sizeof(n->xw));
	n->xport = NULL;
	n->workers = 0;
	n->started = false;
	if (n->doorbell)
		munmap(n->doorbell, sizeof(*n->doorbell));
	n->doorbell = NULL;
	if (n->doorbell_fd >= 0)
		close(n->doorbell_fd);
	n->doorbell_fd = -1;
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <utlist.h>

#include "steps.h"
#include "verbs_double.h"

#undef ibv_query_port
#undef ibv_reg_mr

#define QPS		1024u
#define MRS		4096u
#define RNR_TRIES	3
#define PSN_MASK	0xffffffu

struct dctx {
	struct ibv_context v;
	int event_to;			/* other end of v.async_fd */
	struct dctx *next;
};

struct dchan {
	struct ibv_comp_channel v;
	int to;
};

struct dcq {
	struct ibv_cq v;
	struct ibv_wc *wc;
	unsigned int head, tail;	/* free-running */
	int armed;			/* 1: for errors, 2: for all */
};

struct recv {
	uint64_t id;
	struct ibv_sge sge;
};

struct dsrq {
	struct ibv_srq v;
	struct recv *r;
	unsigned int head, tail, max;
};

struct send {
	struct send *next;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint8_t data[256];		/* inline */
};

/* A WRITE that has come, or comes late. */
struct written {
	struct written *next;
	uint64_t addr;
	uint32_t key, len;
	uint32_t from, to;		/* numbers of queue pairs */
	uint8_t data[];
};

struct dqp {
	struct ibv_qp v;
	struct ibv_qp_attr a;		/* what was set */
	struct send *sq;
	unsigned int queued, max_send;
	unsigned int rnr;		/* tries of the first one */
	unsigned int unacked;		/* events */
	struct written *written;	/* not to be seen yet */
	bool sig_all;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work;
	bool runs;
	struct dctx *ctxs;
	struct dqp *qp[QPS];
	struct ibv_mr *mr[MRS];
	int mr_access[MRS];
	uint32_t next_qpn, next_key;
	unsigned int open;
	uint64_t messages, at, altered_at, reads, read_bytes, reads_refused, read_at;
	uint64_t writes, write_bytes, writes_refused, write_at, arms;
	int write_fault;
	struct written *late;
	bool slow_messages, slow_reads, slow_writes;
	uint32_t alter;
	int fault;
	bool happened, up, ethernet, inline_data, removed;
	bool roce_gid;
	union ibv_gid gid;
	const struct verbs_double_port *ports;	/* NULL: the one port of the one device */
	unsigned int nports;
	int max_cqe, max_srq_wr;
	struct verbs_double_fails fails;
} d = { .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER };

#define DEVICES		8u

static struct ibv_device device = { .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "double0" };
static struct ibv_device several[DEVICES];	/* of d.ports */

void verbs_double_reset(void)
{
	pthread_mutex_lock(&d.lock);
	d.at = d.altered_at = d.messages = d.reads = d.read_bytes = d.reads_refused = d.read_at = 0;
	d.writes = d.write_bytes = d.writes_refused = d.write_at = 0;
	free(d.late);
	d.late = NULL;
	d.slow_messages = d.slow_reads = d.slow_writes = false;
	d.happened = d.ethernet = d.roce_gid = d.removed = false;
	d.ports = NULL;
	d.up = d.inline_data = true;
	d.max_cqe = 1 << 20;
	d.max_srq_wr = 1 << 15;
	d.fails = (struct verbs_double_fails){ -1, -1, -1, -1, -1, -1 };
	memset(&d.gid, 0, sizeof(d.gid));
	d.gid.raw[0] = 0xfe;
	d.gid.raw[15] = 1;
	pthread_mutex_unlock(&d.lock);
}

void verbs_double_at(uint64_t n, int fault)
{
	pthread_mutex_lock(&d.lock);
	d.at = n;
	d.fault = fault;
	d.happened = false;
	pthread_mutex_unlock(&d.lock);
}

void verbs_double_alter(uint64_t n, uint32_t bits)
{
	pthread_mutex_lock(&d.lock);
	d.altered_at = n;
	d.alter = bits;
	d.happened = false;
	pthread_mutex_unlock(&d.lock);
}

bool verbs_double_happened(void)
{
	bool b;

	pthread_mutex_lock(&d.lock);
	b = d.happened;
	pthread_mutex_unlock(&d.lock);
	return b;
}

/* One of the double's counts, now. */
static uint64_t count_of(const uint64_t *count)
{
	uint64_t n;

	pthread_mutex_lock(&d.lock);
	n = *count;
	pthread_mutex_unlock(&d.lock);
	return n;
}

uint64_t verbs_double_messages(void)
{
	return count_of(&d.messages);
}

uint64_t verbs_double_reads(uint64_t *bytes, uint64_t *refused)
{
	uint64_t n;

	pthread_mutex_lock(&d.lock);
	n = d.reads;
	if (bytes)
		*bytes = d.read_bytes;
	if (refused)
		*refused = d.reads_refused;
	pthread_mutex_unlock(&d.lock);
	return n;
}

uint64_t verbs_double_arms(void)
{
	return count_of(&d.arms);
}

void verbs_double_hold_messages(bool hold)
{
	pthread_mutex_lock(&d.lock);
	d.slow_messages = hold;
	pthread_cond_signal(&d.work);
	pthread_mutex_unlock(&d.lock);
}

void verbs_double_hold_reads(bool hold)
{
	pthread_mutex_lock(&d.lock);
	d.slow_reads = hold;
	pthread_cond_signal(&d.work);
	pthread_mutex_unlock(&d.lock);
}

void verbs_double_fail_read(uint64_t n)
{
	pthread_mutex_lock(&d.lock);
	d.read_at = n;
	pthread_mutex_unlock(&d.lock);
}

uint64_t verbs_double_writes(uint64_t *bytes, uint64_t *refused)
{
	uint64_t n;

	pthread_mutex_lock(&d.lock);
	n = d.writes;
	if (bytes)
		*bytes = d.write_bytes;
	if (refused)
		*refused = d.writes_refused;
	pthread_mutex_unlock(&d.lock);
	return n;
}

void verbs_double_hold_writes(bool hold)
{
	pthread_mutex_lock(&d.lock);
	d.slow_writes = hold;
	pthread_cond_signal(&d.work);
	pthread_mutex_unlock(&d.lock);
}

void verbs_double_fail_write(uint64_t n, int how)
{
	pthread_mutex_lock(&d.lock);
	d.write_at = n;
	d.write_fault = how;
	pthread_mutex_unlock(&d.lock);
}

void verbs_double_ethernet(const uint8_t gid[16])
{
	pthread_mutex_lock(&d.lock);
	d.ethernet = true;
	d.roce_gid = gid;
	if (gid)
		memcpy(d.gid.raw, gid, 16);
	pthread_mutex_unlock(&d.lock);
}

void verbs_double_ports(const struct verbs_double_port *p, unsigned int n)
{
	pthread_mutex_lock(&d.lock);
	d.ports = p;
	d.nports = n;
	pthread_mutex_unlock(&d.lock);
}

void verbs_double_fail(const struct verbs_double_fails *f)
{
	pthread_mutex_lock(&d.lock);
	d.fails = *f;
	pthread_mutex_unlock(&d.lock);
}

void verbs_double_limits(int max_cqe, int max_srq_wr, bool inline_data)
{
	pthread_mutex_lock(&d.lock);
	d.max_cqe = max_cqe;
	d.max_srq_wr = max_srq_wr;
	d.inline_data = inline_data;
	pthread_mutex_unlock(&d.lock);
}

void verbs_double_port(bool up)
{
	pthread_mutex_lock(&d.lock);
	d.up = up;
	pthread_mutex_unlock(&d.lock);
}

/* Of a file that was deleted there is no link. */
void verbs_double_removed(bool removed)
{
	struct dctx *c;
	int fd = memfd_create("removed", MFD_CLOEXEC);

	pthread_mutex_lock(&d.lock);
	d.removed = removed;
	LL_FOREACH(d.ctxs, c)
		if (removed && dup2(fd, c->v.cmd_fd) < 0)
			abort();
	pthread_mutex_unlock(&d.lock);
	close(fd);
}

unsigned int verbs_double_open(void)
{
	unsigned int n;

	pthread_mutex_lock(&d.lock);
	n = d.open;
	pthread_mutex_unlock(&d.lock);
	return n;
}

bool verbs_double_covers(const void *p, size_t len)
{
	const uint8_t *from = p;
	bool covers = false;

	pthread_mutex_lock(&d.lock);
	for (unsigned int i = 0; i < MRS && !covers; i++) {
		const uint8_t *mem = d.mr[i] ? d.mr[i]->addr : NULL;

		covers = mem && mem < from + len && from < mem + d.mr[i]->length;
	}
	pthread_mutex_unlock(&d.lock);
	return covers;
}

static bool fails(int *countdown)
{
	if (*countdown < 0 || --*countdown)
		return false;
	*countdown = -1;
	errno = ENOMEM;
	return true;
}

/* Not by what tests make fail (kit/oom.h): a device is not short of memory when the daemon is. */
static void *zeroed(size_t size)
{
	void *p;

	return posix_memalign(&p, 16, size) ? NULL : memset(p, 0, size);
}

static void *object(size_t size)
{
	void *p = zeroed(size);

	if (!p)
		abort();
	d.open++;
	return p;
}

static int gone(void *p)
{
	free(p);
	d.open--;
	return 0;
}

/* What the plug-in must never do. */
static void __attribute__((noreturn)) wrong(const char *what)
{
	fprintf(stderr, "verbs_double: %s\n", what);
	abort();
}

/* ---- completions and events ---- */

static void complete(struct ibv_cq *cq, const struct ibv_wc *wc)
{
	struct dcq *q = (struct dcq *)cq;

	if (q->tail - q->head == (unsigned int)cq->cqe)
		wrong("completion queue overrun");
	q->wc[q->tail++ % cq->cqe] = *wc;
	if (q->armed == 2 || (q->armed && wc->status != IBV_WC_SUCCESS)) {
		q->armed = 0;
		if (write(((struct dchan *)cq->channel)->to, &cq, sizeof(cq)) != sizeof(cq))
			wrong("too many events of completion queues");
	}
}

static void tell(struct dctx *c, const struct ibv_async_event *ev)
{
	if (write(c->event_to, ev, sizeof(*ev)) != sizeof(*ev))
		wrong("too many events");
}

static void tell_qp(struct dqp *q, enum ibv_event_type type)
{
	struct ibv_async_event ev = { .element.qp = &q->v, .event_type = type };

	tell((struct dctx *)q->v.context, &ev);
}

static void tell_all(enum ibv_event_type type)
{
	struct ibv_async_event ev = { .element.port_num = 1, .event_type = type };
	struct dctx *c;

	LL_FOREACH(d.ctxs, c)
		tell(c, &ev);
}

static void sent(struct dqp *q, enum ibv_wc_status status)
{
	struct send *s = q->sq;
	struct ibv_wc wc = { .wr_id = s->wr.wr_id, .status = status, .qp_num = q->v.qp_num,
			     .opcode = s->wr.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ :
				       s->wr.opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE : IBV_WC_SEND };

	q->sq = s->next;
	q->queued--;
	q->rnr = 0;
	if (status != IBV_WC_SUCCESS || s->wr.send_flags & IBV_SEND_SIGNALED)
		complete(q->v.send_cq, &wc);
	free(s);
}

static void to_error(struct dqp *q)
{
	if (q->v.state == IBV_QPS_ERR)
		return;
	q->v.state = IBV_QPS_ERR;
	while (q->sq)
		sent(q, IBV_WC_WR_FLUSH_ERR);
	if (q->v.srq)
		tell_qp(q, IBV_EVENT_QP_LAST_WQE_REACHED);
}

/* ---- the device ---- */

static bool is_registered(const struct ibv_sge *s, const struct ibv_pd *pd, bool written)
{
	const struct ibv_mr *m = s->lkey && s->lkey < MRS ? d.mr[s->lkey] : NULL;

	return m && m->pd == pd && s->addr >= (uintptr_t)m->addr && s->addr + s->length <= (uintptr_t)m->addr + m->length &&
	       (!written || d.mr_access[s->lkey] & IBV_ACCESS_LOCAL_WRITE);
}

static void check_key(const struct ibv_sge *s, const struct ibv_pd *pd, bool written)
{
	if (!is_registered(s, pd, written))
		wrong("memory that is not registered for this");
}

static struct dqp *other(const struct dqp *q)
{
	struct dqp *to = q->a.dest_qp_num < QPS ? d.qp[q->a.dest_qp_num] : NULL;

	if (!d.up || !to || (to->v.state != IBV_QPS_RTR && to->v.state != IBV_QPS_RTS) || to->a.dest_qp_num != q->v.qp_num ||
	    to->a.rq_psn != q->a.sq_psn || to->a.path_mtu != q->a.path_mtu)
		return NULL;
	return to;
}

static void deliver(struct dqp *q, struct dqp *to)
{
	struct dsrq *srq = (struct dsrq *)to->v.srq;
	struct recv *r = &srq->r[srq->head++ % srq->max];
	struct send *s = q->sq;
	uint32_t len = s->wr.num_sge ? s->sge.length : 0;
	struct ibv_wc wc = {
		.wr_id = r->id, .opcode = IBV_WC_RECV, .byte_len = len, .qp_num = to->v.qp_num, .wc_flags = IBV_WC_WITH_IMM,
		.imm_data = s->wr.imm_data,
	};

	if (len > r->sge.length)
		wrong("a message is longer than its receive buffer");
	check_key(&r->sge, srq->v.pd, true);
	if (len && !(s->wr.send_flags & IBV_SEND_INLINE))
		check_key(&s->sge, q->v.pd, false);
	if (len)
		memcpy((void *)(uintptr_t)r->sge.addr, s->wr.send_flags & IBV_SEND_INLINE ? s->data :
		       (void *)(uintptr_t)s->sge.addr, len);
	if (d.altered_at && !--d.altered_at) {
		wc.imm_data ^= htobe32(d.alter);
		d.happened = true;
	}
	d.messages++;
	complete(to->v.recv_cq, &wc);
}

static void break_down(int fault, struct dqp *q, struct dqp *to)
{
	d.happened = true;
	switch (fault) {
	case DOUBLE_LOST_ACK:
		deliver(q, to);
		/* fall through */
	case DOUBLE_RETRY:
		sent(q, IBV_WC_RETRY_EXC_ERR);
		to_error(q);
		break;
	case DOUBLE_RNR:
		sent(q, IBV_WC_RNR_RETRY_EXC_ERR);
		to_error(q);
		break;
	case DOUBLE_QP_FATAL:
		tell_qp(to, IBV_EVENT_QP_FATAL);
		to_error(to);
		break;
	case DOUBLE_PORT_DOWN:
		d.up = false;
		tell_all(IBV_EVENT_PORT_ERR);
		break;
	default:
		d.up = false;
		tell_all(IBV_EVENT_DEVICE_FATAL);
	}
}

/* May the peer's device do so (IBV_ACCESS_*) there for @to? */
static bool is_permitted(const struct dqp *to, int access, uint64_t addr, uint32_t key, uint32_t len)
{
	const struct ibv_mr *m = key && key < MRS ? d.mr[key] : NULL;

	return m && m->rkey == key && m->pd == to->v.pd && d.mr_access[key] & access &&
	       to->a.qp_access_flags & access && addr >= (uintptr_t)m->addr && len <= m->length &&
	       addr - (uintptr_t)m->addr <= m->length - len;
}

static void refuse(struct dqp *q, struct dqp *to, uint64_t *count)
{
	++*count;
	tell_qp(to, IBV_EVENT_QP_ACCESS_ERR);
	to_error(to);
	sent(q, IBV_WC_REM_ACCESS_ERR);
	to_error(q);
}

/* What has come to @q can be seen from now on. */
static void show(struct dqp *q)
{
	while (q->written) {
		struct written *w = q->written;

		q->written = w->next;
		memcpy((void *)(uintptr_t)w->addr, w->data, w->len);
		free(w);
	}
}

static void take_write(struct dqp *to, struct written *w)
{
	LL_APPEND(to->written, w);
	d.writes++;
	d.write_bytes += w->len;
}

static struct written *written_new(const struct dqp *q)
{
	const struct send *s = q->sq;
	struct written *w = zeroed(sizeof(*w) + s->sge.length);

	if (!w)
		abort();
	w->next = NULL;
	w->addr = s->wr.wr.rdma.remote_addr;
	w->key = s->wr.wr.rdma.rkey;
	w->len = s->sge.length;
	w->from = q->v.qp_num;
	w->to = q->a.dest_qp_num;
	memcpy(w->data, (void *)(uintptr_t)s->sge.addr, w->len);
	return w;
}

static void write_it(struct dqp *q, struct dqp *to)
{
	struct send *s = q->sq;
	int fault = d.write_at && !--d.write_at ? d.write_fault : 0;

	if (!is_registered(&s->sge, q->v.pd, false)) {
		sent(q, IBV_WC_LOC_PROT_ERR);
		to_error(q);
		return;
	}
	if (fault == DOUBLE_WRITE_LATE)
		d.late = written_new(q);
	if (fault == DOUBLE_WRITE_LATE || fault == DOUBLE_WRITE_LOST) {
		sent(q, IBV_WC_RETRY_EXC_ERR);
		to_error(q);
		return;
	}
	if (!is_permitted(to, IBV_ACCESS_REMOTE_WRITE, s->wr.wr.rdma.remote_addr, s->wr.wr.rdma.rkey, s->sge.length)) {
		refuse(q, to, &d.writes_refused);
		return;
	}
	take_write(to, written_new(q));
	sent(q, fault ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
	if (fault)
		to_error(q);
}

void verbs_double_break_given(void)
{
	pthread_mutex_lock(&d.lock);
	for (unsigned int i = 0; i < QPS; i++) {
		if (!d.qp[i] || !d.qp[i]->a.qp_access_flags)
			continue;
		tell_qp(d.qp[i], IBV_EVENT_QP_FATAL);
		to_error(d.qp[i]);
	}
	pthread_mutex_unlock(&d.lock);
}

bool verbs_double_is_late(void)
{
	bool b;

	pthread_mutex_lock(&d.lock);
	b = d.late;
	pthread_mutex_unlock(&d.lock);
	return b;
}

bool verbs_double_late(void)
{
	struct written *w;
	struct dqp *to;
	bool taken;

	pthread_mutex_lock(&d.lock);
	w = d.late;
	d.late = NULL;
	to = w ? d.qp[w->to] : NULL;
	taken = to && (to->v.state == IBV_QPS_RTR || to->v.state == IBV_QPS_RTS) && to->a.dest_qp_num == w->from &&
		is_permitted(to, IBV_ACCESS_REMOTE_WRITE, w->addr, w->key, w->len);
	if (taken) {
		take_write(to, w);
		show(to);
	} else {
		free(w);
	}
	pthread_mutex_unlock(&d.lock);
	return taken;
}

static void read_it(struct dqp *q, struct dqp *to)
{
	struct send *s = q->sq;
	uint64_t addr = s->wr.wr.rdma.remote_addr;

	if (!q->a.max_rd_atomic || q->a.max_rd_atomic > to->a.max_dest_rd_atomic)
		wrong("more reads at a time than the peer's device answers");
	if (d.read_at && !--d.read_at) {
		sent(q, IBV_WC_RETRY_EXC_ERR);
		to_error(q);
		return;
	}
	if (!is_permitted(to, IBV_ACCESS_REMOTE_READ, addr, s->wr.wr.rdma.rkey, s->sge.length)) {
		refuse(q, to, &d.reads_refused);
		return;
	}
	show(to);
	/* or was it taken back? */
	if (!is_registered(&s->sge, q->v.pd, true)) {
		sent(q, IBV_WC_LOC_PROT_ERR);
		to_error(q);
		return;
	}
	memcpy((void *)(uintptr_t)s->sge.addr, (void *)(uintptr_t)addr, s->sge.length);
	d.reads++;
	d.read_bytes += s->sge.length;
	sent(q, IBV_WC_SUCCESS);
}

/* The first message of a queue pair; false: it has to wait. */
static bool step(struct dqp *q)
{
	struct dqp *to = other(q);
	struct dsrq *srq;

	if (!to) {
		sent(q, IBV_WC_RETRY_EXC_ERR);
		to_error(q);
		return true;
	}
	if (q->sq->wr.opcode == IBV_WR_RDMA_READ || q->sq->wr.opcode == IBV_WR_RDMA_WRITE) {
		(q->sq->wr.opcode == IBV_WR_RDMA_READ ? read_it : write_it)(q, to);
		return true;
	}
	srq = (struct dsrq *)to->v.srq;
	if (!srq)
		wrong("a message to a queue pair that takes none");
	if (srq->head == srq->tail) {
		if (++q->rnr <= RNR_TRIES)
			return false;
		sent(q, IBV_WC_RNR_RETRY_EXC_ERR);
		to_error(q);
		return true;
	}
	if (d.at && !--d.at) {
		break_down(d.fault, q, to);
		return true;
	}
	deliver(q, to);
	sent(q, IBV_WC_SUCCESS);
	return true;
}

static bool is_held(const struct send *s)
{
	return s->wr.opcode == IBV_WR_RDMA_READ ? d.slow_reads : s->wr.opcode == IBV_WR_RDMA_WRITE ? d.slow_writes : d.slow_messages;
}

static void *run(void *arg)
{
	struct timespec ms = { .tv_nsec = 1000000 };

	pthread_mutex_lock(&d.lock);
	for (;;) {
		bool did = false, waits = false;

		/* one of each in turn, so that messages of two classes overtake each other */
		for (unsigned int i = 0; i < QPS; i++) {
			struct dqp *q = d.qp[(i + d.messages) % QPS];

			if (!q || !q->sq || q->v.state != IBV_QPS_RTS || is_held(q->sq))
				continue;
			if (step(q))
				did = true;
			else
				waits = true;
		}
		if (did)
			continue;
		if (waits) {
			pthread_mutex_unlock(&d.lock);
			nanosleep(&ms, NULL);
			pthread_mutex_lock(&d.lock);
		} else {
			pthread_cond_wait(&d.work, &d.lock);
		}
	}
	return NULL;
}

static void start(void)
{
	pthread_t t;

	if (d.runs)
		return;
	d.runs = true;
	if (pthread_create(&t, NULL, run, NULL))
		abort();
	pthread_detach(t);
}

/* ---- devices ---- */

/* Of d.ports, port @port of the device of this name; 0: how many it has. */
static const struct verbs_double_port *port_of(const char *name, uint32_t port, uint32_t *n)
{
	const struct verbs_double_port *found = NULL;

	*n = 0;
	for (unsigned int i = 0; d.ports && i < d.nports; i++)
		if (!strcmp(d.ports[i].device, name) && ++*n == port)
			found = &d.ports[i];
	return found;
}

static unsigned int list_several(struct ibv_device **list)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < d.nports && n < DEVICES; i++) {
		if (n && !strcmp(several[n - 1].name, d.ports[i].device))
			continue;
		several[n].node_type = IBV_NODE_CA;
		several[n].transport_type = d.ports[i].iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
		snprintf(several[n].name, sizeof(several[n].name), "%s", d.ports[i].device);
		list[n] = &several[n];
		n++;
	}
	return n;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = zeroed((DEVICES + 1) * sizeof(*list));
	unsigned int found = 1;

	pthread_mutex_lock(&d.lock);
	if (d.ports)
		found = list_several(list);
	else
		list[0] = &device;
	pthread_mutex_unlock(&d.lock);
	if (n)
		*n = (int)found;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

static void two_ends(int *from, int *to)
{
	int fd[2];

	if (pipe2(fd, O_CLOEXEC))
		abort();
	*from = fd[0];
	*to = fd[1];
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
static int req_notify_cq(struct ibv_cq *cq, int solicited);
static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
	struct dctx *c;

	pthread_mutex_lock(&d.lock);
	if (d.removed) {
		pthread_mutex_unlock(&d.lock);
		errno = ENODEV;
		return NULL;
	}
	c = object(sizeof(*c));
	c->v.device = dev;
	c->v.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	c->v.ops.poll_cq = poll_cq;
	c->v.ops.req_notify_cq = req_notify_cq;
	c->v.ops.post_srq_recv = post_srq_recv;
	c->v.ops.post_send = post_send;
	two_ends(&c->v.async_fd, &c->event_to);
	LL_PREPEND(d.ctxs, c);
	pthread_mutex_unlock(&d.lock);
	return &c->v;
}

int ibv_close_device(struct ibv_context *ctx)
{
	struct dctx *c = (struct dctx *)ctx;

	pthread_mutex_lock(&d.lock);
	LL_DELETE(d.ctxs, c);
	close(c->v.async_fd);
	close(c->v.cmd_fd);
	close(c->event_to);
	gone(c);
	pthread_mutex_unlock(&d.lock);
	return 0;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *a)
{
	uint32_t n;

	memset(a, 0, sizeof(*a));
	pthread_mutex_lock(&d.lock);
	port_of(ctx->device->name, 0, &n);
	a->phys_port_cnt = n ? n : 1;
	a->max_srq = 64;
	a->max_srq_wr = d.max_srq_wr;
	a->max_cqe = d.max_cqe;
	a->max_qp_rd_atom = 4;
	a->max_qp_init_rd_atom = 4;
	pthread_mutex_unlock(&d.lock);
	return 0;
}

int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *a = (struct ibv_port_attr *)compat;
	const struct verbs_double_port *p;
	bool up, ethernet;
	uint32_t n;

	pthread_mutex_lock(&d.lock);
	p = port_of(ctx->device->name, port, &n);
	up = d.up && (!p || !p->down);
	ethernet = p ? p->ethernet : d.ethernet;
	a->state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a->active_mtu = IBV_MTU_1024;
	a->gid_tbl_len = p ? sizeof(p->gid) / sizeof(p->gid[0]) : 2;
	a->lid = ethernet ? 0 : 7;
	a->link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
	pthread_mutex_unlock(&d.lock);
	return p || (!n && port == 1) ? 0 : EINVAL;
}

int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
	const struct verbs_double_port *p;
	int ret = 0;
	uint32_t n;

	pthread_mutex_lock(&d.lock);
	p = port_of(ctx->device->name, port, &n);
	*gid = d.gid;
	if (p && (unsigned int)index < sizeof(p->gid) / sizeof(p->gid[0]))
		memcpy(gid->raw, p->gid[index].gid, 16);
	else if (p)
		ret = EINVAL;
	pthread_mutex_unlock(&d.lock);
	return ret;
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags,
		      size_t size)
{
	const struct verbs_double_port *p;
	int ret = ENODATA;
	uint32_t n;

	pthread_mutex_lock(&d.lock);
	p = port_of(ctx->device->name, port, &n);
	if (p) {
		*e = (struct ibv_gid_entry){ .gid_index = index, .port_num = port,
					     .gid_type = p->gid[index].v2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1 };
		memcpy(e->gid.raw, p->gid[index].gid, 16);
		ret = 0;
	} else if (index == 1 && d.roce_gid) {
		*e = (struct ibv_gid_entry){ .gid = d.gid, .gid_index = index, .port_num = port, .gid_type = IBV_GID_TYPE_ROCE_V2 };
		ret = 0;
	}
	pthread_mutex_unlock(&d.lock);
	return ret;
}

/* The queue pair that an event is about, as long as it is there; under d.lock. */
static struct dqp *event_qp(const struct ibv_async_event *ev)
{
	for (unsigned int i = 0; i < QPS; i++)
		if (d.qp[i] && &d.qp[i]->v == ev->element.qp)
			return d.qp[i];
	return NULL;
}

static bool is_of_qp(const struct ibv_async_event *ev)
{
	return ev->event_type == IBV_EVENT_QP_FATAL || ev->event_type == IBV_EVENT_QP_ACCESS_ERR ||
	       ev->event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

/* With a queue pair its events go. */
int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	bool gone = true;

	while (gone) {
		struct dqp *q;

		if (read(ctx->async_fd, ev, sizeof(*ev)) != sizeof(*ev))
			return -1;
		pthread_mutex_lock(&d.lock);
		q = is_of_qp(ev) ? event_qp(ev) : NULL;
		gone = is_of_qp(ev) && !q;
		if (q)
			q->unacked++;
		pthread_mutex_unlock(&d.lock);
	}
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *ev)
{
	struct dqp *q;

	pthread_mutex_lock(&d.lock);
	q = is_of_qp(ev) ? event_qp(ev) : NULL;
	if (q)
		q->unacked--;
	pthread_mutex_unlock(&d.lock);
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	return "an event";
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" :
	       status == IBV_WC_RNR_RETRY_EXC_ERR ? "RNR retry counter exceeded" : "error";
}

/* ---- memory and queues ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd;

	pthread_mutex_lock(&d.lock);
	pd = object(sizeof(*pd));
	pd->context = ctx;
	pthread_mutex_unlock(&d.lock);
	return pd;
}

static int locked_gone(void *p)
{
	pthread_mutex_lock(&d.lock);
	gone(p);
	pthread_mutex_unlock(&d.lock);
	return 0;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return locked_gone(pd);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *m = NULL;
	uint32_t key;

	pthread_mutex_lock(&d.lock);
	/* a stale one is not another's soon */
	do {
		d.next_key = (d.next_key + 1) % MRS;
	} while (!d.next_key || d.mr[d.next_key]);
	key = d.next_key;
	if (access & ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE))
		wrong("relaxed order, or atomics");
	if ((access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) == IBV_ACCESS_REMOTE_WRITE)
		wrong("memory that can be written from outside only");
	if (!fails(&d.fails.reg_mr)) {
		m = object(sizeof(*m));
		*m = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = key, .rkey = key };
		d.mr[key] = m;
		d.mr_access[key] = access;
	}
	pthread_mutex_unlock(&d.lock);
	return m;
}

KIT_UNCOUNTED struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *m;

	kit_steps_pause();
	m = reg_mr(pd, addr, length, access);
	kit_steps_resume();
	return m;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return ibv_reg_mr(pd, addr, length, access);
}

KIT_UNCOUNTED int ibv_dereg_mr(struct ibv_mr *m)
{
	kit_steps_pause();
	pthread_mutex_lock(&d.lock);
	for (unsigned int i = 0; i < QPS; i++)
		if (d.qp[i])
			show(d.qp[i]);
	d.mr[m->lkey] = NULL;
	gone(m);
	pthread_mutex_unlock(&d.lock);
	kit_steps_resume();
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct dchan *c;

	pthread_mutex_lock(&d.lock);
	c = object(sizeof(*c));
	c->v.context = ctx;
	two_ends(&c->v.fd, &c->to);
	pthread_mutex_unlock(&d.lock);
	return &c->v;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	struct dchan *c = (struct dchan *)ch;

	close(c->v.fd);
	close(c->to);
	return locked_gone(c);
}

KIT_UNCOUNTED int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **ctx)
{
	bool some;

	kit_steps_pause();
	some = read(ch->fd, cq, sizeof(*cq)) == sizeof(*cq);
	kit_steps_resume();
	if (!some)
		return -1;
	*ctx = (*cq)->cq_context;
	return 0;
}

KIT_UNCOUNTED void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_ctx, struct ibv_comp_channel *ch, int vector)
{
	struct dcq *q = NULL;

	pthread_mutex_lock(&d.lock);
	if (cqe <= d.max_cqe && !fails(&d.fails.create_cq)) {
		q = object(sizeof(*q));
		q->v = (struct ibv_cq){ .context = ctx, .channel = ch, .cq_context = cq_ctx, .cqe = cqe };
		q->wc = zeroed((size_t)cqe * sizeof(*q->wc));
	}
	pthread_mutex_unlock(&d.lock);
	return q ? &q->v : NULL;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(((struct dcq *)cq)->wc);
	return locked_gone(cq);
}

KIT_UNCOUNTED static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct dcq *q = (struct dcq *)cq;
	int i = 0;

	kit_steps_pause();
	pthread_mutex_lock(&d.lock);
	for (; i < n && q->head != q->tail; i++)
		wc[i] = q->wc[q->head++ % cq->cqe];
	pthread_mutex_unlock(&d.lock);
	kit_steps_resume();
	return i;
}

KIT_UNCOUNTED static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	struct dcq *q = (struct dcq *)cq;

	kit_steps_pause();
	pthread_mutex_lock(&d.lock);
	d.arms++;
	if (q->armed < (solicited ? 1 : 2))
		q->armed = solicited ? 1 : 2;
	pthread_mutex_unlock(&d.lock);
	kit_steps_resume();
	return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct dsrq *s = NULL;

	pthread_mutex_lock(&d.lock);
	if ((int)a->attr.max_wr <= d.max_srq_wr && !fails(&d.fails.create_srq)) {
		s = object(sizeof(*s));
		s->v = (struct ibv_srq){ .context = pd->context, .pd = pd };
		s->max = a->attr.max_wr;
		s->r = zeroed(s->max * sizeof(*s->r));
	}
	pthread_mutex_unlock(&d.lock);
	return s ? &s->v : NULL;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	free(((struct dsrq *)srq)->r);
	return locked_gone(srq);
}

KIT_UNCOUNTED static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct dsrq *s = (struct dsrq *)srq;
	int ret = 0;

	kit_steps_pause();
	pthread_mutex_lock(&d.lock);
	if (s->tail - s->head == s->max || fails(&d.fails.post_recv)) {
		*bad = wr;
		ret = ENOMEM;
	} else {
		s->r[s->tail++ % s->max] = (struct recv){ wr->wr_id, wr->sg_list[0] };
	}
	pthread_mutex_unlock(&d.lock);
	kit_steps_resume();
	return ret;
}

/* ---- queue pairs ---- */

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct dqp *q = NULL;

	pthread_mutex_lock(&d.lock);
	start();
	if (a->cap.max_inline_data && !d.inline_data) {
		errno = EINVAL;
	} else if (!fails(&d.fails.create_qp)) {
		q = object(sizeof(*q));
		do {
			d.next_qpn = (d.next_qpn + 1) % QPS;
		} while (d.next_qpn < 2 || d.qp[d.next_qpn]);
		q->v = (struct ibv_qp){ .context = pd->context, .pd = pd, .send_cq = a->send_cq, .recv_cq = a->recv_cq,
					.srq = a->srq, .qp_num = d.next_qpn, .state = IBV_QPS_RESET, .qp_type = a->qp_type };
		q->max_send = a->cap.max_send_wr;
		d.qp[q->v.qp_num] = q;
	}
	pthread_mutex_unlock(&d.lock);
	return q ? &q->v : NULL;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct dqp *q = (struct dqp *)qp;
	int ret = 0;

	pthread_mutex_lock(&d.lock);
	if (a->qp_state == IBV_QPS_ERR) {
		to_error(q);
	} else if (fails(&d.fails.modify_qp)) {
		ret = EINVAL;
		errno = EINVAL;
	} else if (a->qp_state != qp->state + 1) {
		wrong("a queue pair skips a state");
	} else {
		if (mask & IBV_QP_ACCESS_FLAGS && a->qp_access_flags & ~(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE))
			wrong("atomics");
		if (mask & IBV_QP_ACCESS_FLAGS && a->qp_access_flags && q->v.srq)
			wrong("memory that can be read or written by queue pairs for messages");
		if (mask & IBV_QP_ACCESS_FLAGS)
			q->a.qp_access_flags = a->qp_access_flags;
		if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
			q->a.max_rd_atomic = a->max_rd_atomic;
		if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
			q->a.max_dest_rd_atomic = a->max_dest_rd_atomic;
		if (mask & IBV_QP_DEST_QPN)
			q->a.dest_qp_num = a->dest_qp_num;
		if (mask & IBV_QP_RQ_PSN)
			q->a.rq_psn = a->rq_psn & PSN_MASK;
		if (mask & IBV_QP_SQ_PSN)
			q->a.sq_psn = a->sq_psn & PSN_MASK;
		if (mask & IBV_QP_PATH_MTU)
			q->a.path_mtu = a->path_mtu;
		qp->state = a->qp_state;
		pthread_cond_signal(&d.work);
	}
	pthread_mutex_unlock(&d.lock);
	return ret;
}

/* What is left of it in a queue. */
static void forget(struct ibv_cq *cq, uint32_t qpn)
{
	struct dcq *q = (struct dcq *)cq;
	unsigned int to = q->head;

	for (unsigned int i = q->head; i != q->tail; i++)
		if (q->wc[i % cq->cqe].qp_num != qpn)
			q->wc[to++ % cq->cqe] = q->wc[i % cq->cqe];
	q->tail = to;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct dqp *q = (struct dqp *)qp;

	pthread_mutex_lock(&d.lock);
	if (q->unacked)
		wrong("a queue pair is destroyed before its events are acknowledged, which a device waits for");
	d.qp[qp->qp_num] = NULL;
	show(q);
	while (q->sq) {
		struct send *s = q->sq;

		q->sq = s->next;
		free(s);
	}
	forget(qp->send_cq, qp->qp_num);
	forget(qp->recv_cq, qp->qp_num);
	gone(q);
	pthread_mutex_unlock(&d.lock);
	return 0;
}

static int post_one(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct dqp *q = (struct dqp *)qp;
	struct send *s;
	int ret = 0;

	if ((qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR) || q->queued == q->max_send) {
		*bad = wr;
		ret = EINVAL;
	} else {
		s = zeroed(sizeof(*s));
		s->wr = *wr;
		if (wr->num_sge)
			s->sge = wr->sg_list[0];
		if (wr->send_flags & IBV_SEND_INLINE) {
			if (s->sge.length > sizeof(s->data))
				wrong("inline data that is too long");
			if (wr->num_sge)
				memcpy(s->data, (void *)(uintptr_t)s->sge.addr, s->sge.length);
		}
		LL_APPEND(q->sq, s);
		q->queued++;
		if (qp->state == IBV_QPS_ERR)
			sent(q, IBV_WC_WR_FLUSH_ERR);
		pthread_cond_signal(&d.work);
	}
	return ret;
}

KIT_UNCOUNTED static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int ret = 0;

	kit_steps_pause();
	pthread_mutex_lock(&d.lock);
	for (; wr && !ret; wr = wr->next)
		ret = post_one(qp, wr, bad);
	pthread_mutex_unlock(&d.lock);
	kit_steps_resume();
	return ret;
}

/* ---- a host ----------------------------------------------------------------------------------------------------- */

struct verbs_watched verbs_watched[VERBS_WATCHED];

void *verbs_watch(void *ctx, int fd, void (*cb)(void *arg), void *arg)
{
	unsigned int i = 0;

	while (verbs_watched[i].cb)
		i++;
	verbs_watched[i] = (struct verbs_watched){ cb, arg };
	return &verbs_watched[i];
}

void verbs_unwatch(void *ctx, void *w)
{
	*(struct verbs_watched *)w = (struct verbs_watched){ NULL };
}

void verbs_watched_look(unsigned int i)
{
	if (verbs_watched[i].cb)
		verbs_watched[i].cb(verbs_watched[i].arg);
}

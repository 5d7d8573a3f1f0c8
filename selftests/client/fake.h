/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * fake.h - a test double of the daemon, and processes that play ranks.
 *
 * The double is one forked process with one thread.  It speaks the control protocol, serves the
 * rings of all its clients, and plays several nodes at once: with `nodes' set, sessions get
 * different node ids and reach each other through it alone.  Its faults are set through memory it
 * shares with the test.  Include in one test program only; everything is static.
 */
#ifndef CLIENT_FAKE_H
#define CLIENT_FAKE_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <asyncprog/ring.h>
#include <kit/kit.h>
#include <libprogbase/apply.h>
#include <libprogbase/futex.h>
#include <libprogbase/scm.h>
#include <libprogbase/winctl.h>
#include <progclient.h>

#define CHECK(cond) do { \
	if (!(cond)) { \
		fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond); \
		_exit(1); \
	} \
} while (0)
#define CHECK_INT(a, b) do { \
	long long a_ = (long long)(a), b_ = (long long)(b); \
	if (a_ != b_) { \
		fprintf(stderr, "%s:%d: %s is %lld, not %s (%lld)\n", __FILE__, __LINE__, #a, a_, #b, \
			b_); \
		_exit(1); \
	} \
} while (0)

enum fault { FAULT_NONE, FAULT_EOF, FAULT_SHORT, FAULT_TYPE, FAULT_STATUS, FAULT_NOFDS, FAULT_REFUSE,
	     FAULT_VERSION, FAULT_ZERO, FAULT_SILENT };

struct fake_shared {
	char path[108];
	pid_t pid;
	/* set before or while it runs */
	uint32_t nodes;			/* session i is on node i % nodes */
	uint32_t workers;
	uint32_t cma;			/* reach clients by CMA; else by their helper threads */
	uint32_t hold;			/* serve no rings */
	uint32_t lazy;			/* acknowledge only to clients that wait */
	uint32_t doze;			/* dozes, and takes entries only when kicked */
	uint32_t fault_msg, fault;	/* what to do with messages of that type */
	uint32_t old;			/* a daemon that knows no two-sided messages */
	uint32_t msg_off;		/* ... that is configured not to carry them */
	uint32_t msg_hold;		/* take nothing from the rings of messages */
	uint32_t msg_stall;		/* match, but move nothing */
	uint32_t msg_silent;		/* answer no WITHDRAW */
	uint32_t pass;			/* PROG_HELP_PULL or _PUSH: private payload is copied so; else 0 */
	int32_t msg_status;		/* of messages that end */
	uint32_t msg_head_len;		/* instead of the right one, if not 0 */
	uint64_t pool;			/* size of the region for early messages to ask for */
	uint64_t offload, offload_min;	/* thresholds */
	struct prog_p2p_peer peer;	/* at PING: offload is taken from here, the rest shown */
	/* observed */
	uint32_t kicks, helper_jobs, dtypes, ops, regions, dozing;
	uint32_t msg_entries, msg_withdraws, msg_ends, passes;
	uint32_t msg_hints, cpu, blocked;	/* with the last of these entries */
};

/* ---- the double ---------------------------------------------------------------------------- */

#define FAKE_SESSIONS	16
#define FAKE_WINS	32
#define FAKE_REGIONS	64
#define FAKE_RANKS	8

struct fake_stream {
	uint64_t acked, seen;
	uint32_t queue[4096];		/* slots that arrived; consumed up to `done' */
	uint32_t in, done;
	bool lock_waits;
	struct dtype *dtypes[256];
};

struct fake_win {
	bool used;
	struct prog_ctrl_win_create msg;
	int ctl_fd, mem_fd;
	struct winctl wc;
	char *mem;			/* SHARED */
	uint32_t node_of[FAKE_RANKS];
	struct fake_stream streams[FAKE_RANKS];
};

struct fake_session {
	int sock;
	uint32_t id;
	pid_t pid;
	char *seg;
	size_t seg_size;
	struct prog_session_hdr *hdr;
	uint32_t node;
	uint32_t head[PROG_MAX_WORKERS];
	struct fake_win win[FAKE_WINS];
	struct { char *mem; size_t size; int fd; } region[FAKE_REGIONS];
	uint32_t helper_tail;
	struct fake_win *space;
	uint32_t msg_head[PROG_MAX_WORKERS];
	uint8_t msg[PROG_P2P_SLOTS];	/* FAKE_MSG_* */
};

enum { FAKE_MSG_NONE, FAKE_MSG_WAITS, FAKE_MSG_MATCHED };

static struct fake_shared *fk;
static struct fake_session fake_sessions[FAKE_SESSIONS];
static struct prog_doorbell *fake_bell;
static int fake_bell_fd, fake_kick[PROG_MAX_WORKERS];

static char *fake_map(int fd, size_t *size)
{
	struct stat st;
	void *p;

	if (fstat(fd, &st))
		return NULL;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	*size = (size_t)st.st_size;
	return p == MAP_FAILED ? NULL : p;
}

static void fake_reply(struct fake_session *s, void *rep, size_t size, uint16_t type, int status,
		       const int *fds, unsigned int nfds)
{
	SCM_BUF(1 + PROG_MAX_WORKERS) ctl;
	struct prog_ctrl_hdr *h = rep;
	struct iovec iov = { rep, size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	uint32_t fault = fk->fault_msg == type ? fk->fault : FAULT_NONE;

	h->type = type;
	h->size = (uint16_t)size;
	h->status = status;
	switch (fault) {
	case FAULT_EOF:
		shutdown(s->sock, SHUT_RDWR);
		return;
	case FAULT_SHORT:
		iov.iov_len = 3;
		break;
	case FAULT_TYPE:
		h->type = 77;
		break;
	case FAULT_STATUS:
		h->status = 5;
		break;
	case FAULT_NOFDS:
		nfds = 0;
		break;
	case FAULT_REFUSE:
		h->status = -EDQUOT;
		if (type == PROG_CTRL_HELLO)
			strcpy(((struct prog_ctrl_hello_reply *)rep)->reason, "too many of you");
		nfds = 0;
		break;
	case FAULT_VERSION:
		h->status = -EPROTO;
		((struct prog_ctrl_hello_reply *)rep)->abi_major = 9;
		nfds = 0;
		break;
	case FAULT_ZERO:
		memset((char *)rep + sizeof(*h), 0, size - sizeof(*h));
		break;
	case FAULT_SILENT:
		return;
	}
	scm_attach(&msg, ctl.buf, fds, nfds);
	(void)!sendmsg(s->sock, &msg, MSG_NOSIGNAL);
}

static void fake_hello(struct fake_session *s, const struct prog_ctrl_hello *m, int *fds, unsigned int n)
{
	struct prog_ctrl_hello_reply rep = { .abi_major = PROG_ABI_MAJOR,
		.abi_minor = fk->old ? 1 : PROG_ABI_MINOR, .session = s->id,
		.workers = fk->workers, .naddrs = 1, .features = fk->cma ? PROG_FEAT_CMA : 0 };
	int out[1 + PROG_MAX_WORKERS];
	uint32_t i;

	CHECK_INT(n, 1);
	CHECK_INT(fcntl(fds[0], F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW),
		  F_SEAL_SHRINK | F_SEAL_GROW);
	s->seg = fake_map(fds[0], &s->seg_size);
	CHECK(s->seg);
	s->hdr = (void *)s->seg;
	CHECK_INT(s->hdr->magic, PROG_SESSION_MAGIC);
	CHECK_INT(m->magic, PROG_SESSION_MAGIC);
	close(fds[0]);
	rep.guid[0] = 0xa5;
	rep.guid[1] = (uint8_t)s->node;
	out[0] = fake_bell_fd;
	for (i = 0; i < fk->workers; i++)
		out[1 + i] = fake_kick[i];
	fake_reply(s, &rep, sizeof(rep), PROG_CTRL_HELLO, 0, out, 1 + fk->workers);
}

static struct prog_p2p_area *fake_area(struct fake_session *s)
{
	return (void *)(s->seg + s->hdr->p2p_off);
}

static struct prog_sq *fake_msg_ring(struct fake_session *s, uint32_t worker)
{
	return (struct prog_sq *)(void *)(s->seg + fake_area(s)->sq_off) + worker;
}

/* The window of kind SPACE comes or goes: rings empty, slots the client's. */
static void fake_space(struct fake_session *s, struct fake_win *w)
{
	struct prog_p2p_area *area = fake_area(s);
	uint32_t i;

	s->space = w;
	memset(s->msg, 0, sizeof(s->msg));
	for (i = 0; i < fk->workers; i++) {
		struct prog_sq *sq = fake_msg_ring(s, i);

		s->msg_head[i] = __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE);
		__atomic_store_n(&sq->head, s->msg_head[i], __ATOMIC_RELEASE);
	}
	if (!w)
		return;
	CHECK_INT(area->nslots, PROG_P2P_SLOTS);
	area->offload_default = fk->offload;
	area->offload_min = fk->offload_min;
	area->pool_size = fk->pool;
}

static void fake_win_create(struct fake_session *s, const struct prog_ctrl_win_create *m, int *fds,
			    unsigned int n)
{
	struct prog_ctrl_slot rep = { 0 };
	const struct prog_win_table *t;
	struct fake_win *w = NULL;
	const char *why = "";
	size_t size;
	char *p;
	uint32_t i;

	for (i = 0; i < FAKE_WINS && !w; i++)
		if (!s->win[i].used) {
			w = &s->win[i];
			rep.slot = i;
		}
	CHECK(w);
	CHECK(n == 2 || n == 3);
	CHECK(m->nranks <= FAKE_RANKS);
	if (m->mem == PROG_MEM_MSG_CONTEXT && fk->msg_off) {
		strcpy(rep.reason, "two_sided is off");
		close(fds[0]);
		close(fds[1]);
		fake_reply(s, &rep, sizeof(rep), PROG_CTRL_WIN_CREATE, -EPERM, NULL, 0);
		return;
	}
	memset(w, 0, sizeof(*w));
	w->used = true;
	w->msg = *m;
	w->ctl_fd = fds[0];
	w->mem_fd = n == 3 ? fds[2] : -1;
	p = fake_map(fds[0], &size);
	CHECK_INT(winctl_attach(&w->wc, p, size, m->key, m->rank, m->nranks, &why), 0);
	p = fake_map(fds[1], &size);
	t = (void *)p;
	CHECK_INT(t->nranks, m->nranks);
	CHECK(size >= sizeof(*t) + t->nnodes * sizeof(struct prog_win_node) + 4 * t->nranks);
	memcpy(w->node_of, p + sizeof(*t) + t->nnodes * sizeof(struct prog_win_node), 4 * t->nranks);
	munmap(p, size);
	close(fds[1]);
	if (m->mem == PROG_MEM_SHARED) {
		if (n == 3) {
			p = fake_map(fds[2], &size);
		} else {
			CHECK(m->region < FAKE_REGIONS && s->region[m->region].mem);
			p = s->region[m->region].mem;
			size = s->region[m->region].size;
			w->mem_fd = dup(s->region[m->region].fd);
		}
		CHECK(p && m->base + m->size <= size);
		w->mem = p + m->base;
	}
	if (m->mem == PROG_MEM_MSG_CONTEXT) {
		CHECK(!s->space);
		fake_space(s, w);
	}
	fake_reply(s, &rep, sizeof(rep), PROG_CTRL_WIN_CREATE, 0, NULL, 0);
}

static struct fake_win *fake_find(uint64_t key, uint32_t rank, struct fake_session **owner)
{
	int i, j;

	for (i = 0; i < FAKE_SESSIONS; i++)
		for (j = 0; j < FAKE_WINS; j++) {
			struct fake_win *w = &fake_sessions[i].win[j];

			if (fake_sessions[i].sock > 0 && w->used && w->msg.key == key &&
			    w->msg.rank == rank) {
				*owner = &fake_sessions[i];
				return w;
			}
		}
	return NULL;
}

static void fake_win_peer(struct fake_session *s, const struct prog_ctrl_win_peer *m)
{
	struct prog_ctrl_win_peer_reply rep = { 0 };
	struct fake_session *owner;
	struct fake_win *w;
	int fds[2];

	CHECK(m->slot < FAKE_WINS && s->win[m->slot].used);
	w = fake_find(s->win[m->slot].msg.key, m->rank, &owner);
	CHECK(w);
	CHECK_INT(owner->node, s->node);
	rep.mem = w->msg.mem;
	rep.session = owner->id;
	rep.pid = owner->pid;
	rep.base = w->msg.base;
	rep.size = w->msg.size;
	fds[0] = w->ctl_fd;
	fds[1] = w->mem_fd;
	fake_reply(s, &rep, sizeof(rep), PROG_CTRL_WIN_PEER, 0, fds, w->mem_fd >= 0 ? 2 : 1);
}

/* The session @dead, which had @own, ended: what it has locked on the window of that key is free. */
static void fake_recover(uint32_t dead, const struct fake_win *own)
{
	uint64_t since = 0;
	uint32_t mask;
	bool dropped;

	if (!own->used || own->msg.mem == PROG_MEM_MSG_CONTEXT)
		return;
	for (int i = 0; i < FAKE_SESSIONS; i++)
		for (int j = 0; j < FAKE_WINS; j++) {
			struct fake_win *w = &fake_sessions[i].win[j];

			while (w->used && w->msg.key == own->msg.key &&
			       winlock_recover_soon(&w->wc, dead, own->msg.rank, &since, &mask, &dropped))
				sched_yield();
		}
}

static void fake_request(struct fake_session *s)
{
	SCM_BUF(4) ctl;
	char buf[1024];
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			      .msg_controllen = sizeof(ctl.buf) };
	struct prog_ctrl_hdr *h = (void *)buf;
	struct prog_ctrl_slot rep = { 0 };
	int fds[4], i;
	unsigned int n;
	ssize_t len = recvmsg(s->sock, &msg, MSG_CMSG_CLOEXEC);

	if (len <= 0) {

		close(s->sock);
		s->sock = 0;
		for (i = 0; i < FAKE_WINS; i++)
			fake_recover(s->id, &s->win[i]);
		memset(s->win, 0, sizeof(s->win));
		s->space = NULL;
		return;
	}
	CHECK_INT(len, h->size);
	CHECK_INT(msg.msg_flags & MSG_CTRUNC, 0);
	n = scm_take(&msg, fds, 4);
	switch (h->type) {
	case PROG_CTRL_HELLO:
		fake_hello(s, (void *)buf, fds, n);
		break;
	case PROG_CTRL_WIN_CREATE:
		fake_win_create(s, (void *)buf, fds, n);
		break;
	case PROG_CTRL_WIN_PEER:
		fake_win_peer(s, (void *)buf);
		break;
	case PROG_CTRL_WIN_FREE: {
		struct fake_win *w = &s->win[((struct prog_ctrl_slot *)(void *)buf)->slot % FAKE_WINS];

		CHECK(w->used);
		if (w == s->space)
			fake_space(s, NULL);
		munmap(w->wc.ctl, w->wc.size);
		close(w->ctl_fd);
		if (w->mem_fd >= 0)
			close(w->mem_fd);
		memset(w, 0, sizeof(*w));
		fake_reply(s, &rep, sizeof(rep), h->type, 0, NULL, 0);
		break;
	}
	case PROG_CTRL_REGION_ADD:
		for (i = 0; i < FAKE_REGIONS && s->region[i].mem; i++)
			;
		CHECK(i < FAKE_REGIONS && n == 1);
		s->region[i].mem = fake_map(fds[0], &s->region[i].size);
		s->region[i].fd = fds[0];
		rep.slot = (uint32_t)i;
		__atomic_fetch_add(&fk->regions, 1, __ATOMIC_RELAXED);
		fake_reply(s, &rep, sizeof(rep), h->type, 0, NULL, 0);
		break;
	case PROG_CTRL_REGION_DEL:
		i = (int)((struct prog_ctrl_slot *)(void *)buf)->slot;
		CHECK(i < FAKE_REGIONS && s->region[i].mem);
		munmap(s->region[i].mem, s->region[i].size);
		close(s->region[i].fd);
		s->region[i].mem = NULL;
		fake_reply(s, &rep, sizeof(rep), h->type, 0, NULL, 0);
		break;
	default:
		if (h->type == PROG_CTRL_PING && s->space) {
			struct prog_p2p_peer *peer = (struct prog_p2p_peer *)(void *)s->space->wc.peers;

			peer->offload = fk->peer.offload;
			fk->peer = *peer;
		}
		fake_reply(s, h, sizeof(*h), h->type, h->type == PROG_CTRL_PING ? 0 : -ENOSYS, NULL, 0);
	}
}

/* A job for the helper thread of @s, done at once (the fake has all the time of the world). */
static int fake_job(struct fake_session *s, struct prog_helper_job job)
{
	struct prog_helper_ring *r = (void *)(s->seg + s->hdr->helper_off);
	struct prog_helper_job *slot = &r->job[s->helper_tail % PROG_HELPER_SLOTS];

	*slot = job;
	__atomic_fetch_add(&fk->helper_jobs, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&r->tail, ++s->helper_tail, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&r->event, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&r->need_wakeup, __ATOMIC_SEQ_CST))
		futex_wake_all(&r->event);
	while (__atomic_load_n(&r->done, __ATOMIC_ACQUIRE) != s->helper_tail) {
		if (s->sock <= 0 || (kill(s->pid, 0) && errno == ESRCH))
			return -ESRCH;
		sched_yield();
	}
	return slot->status;
}

/* The origin's packed bytes, copied to or from @buf. */
static int fake_origin(struct fake_session *s, const struct prog_sqe *e, char *buf, bool write)
{
	char *p = NULL;
	uint64_t done, n;
	int err;

	switch (e->flags & PROG_SQE_LOC_MASK) {
	case PROG_SQE_INLINE:
		CHECK(!write && e->len <= PROG_SQE_INLINE_MAX);
		memcpy(buf, e->inl, e->len);
		return 0;
	case PROG_SQE_ARENA:
		CHECK(e->addr + e->len <= s->hdr->arena_size);
		p = s->seg + s->hdr->arena_off + e->addr;
		break;
	case PROG_SQE_REGION:
		CHECK(e->region < FAKE_REGIONS && s->region[e->region].mem);
		CHECK(e->addr + e->len <= s->region[e->region].size);
		p = s->region[e->region].mem + e->addr;
		break;
	}
	if (p) {
		memcpy(write ? p : buf, write ? buf : p, e->len);
		return 0;
	}
	if (fk->cma) {
		struct memref m = mem_remote(s->pid, e->addr);

		return write ? mem_write(&m, 0, buf, e->len) : mem_read(&m, 0, buf, e->len);
	}
	for (done = 0; done < e->len; done += n) {
		char *bounce = s->seg + s->hdr->bounce_off;

		n = e->len - done < s->hdr->bounce_size ? e->len - done : s->hdr->bounce_size;
		if (write)
			memcpy(bounce, buf + done, n);
		err = fake_job(s, (struct prog_helper_job){
			.kind = write ? PROG_HELP_WRITE : PROG_HELP_READ, .va = e->addr + done, .len = n });
		if (err)
			return err;
		if (!write)
			memcpy(buf + done, bounce, n);
	}
	return 0;
}

static int fake_range(const struct winctl *wc, uint64_t lo, uint64_t hi, struct apply_win *aw)
{
	uint32_t i;

	for (i = 0; i < wc->nranges; i++)
		if (wc->ranges[i].len && lo >= wc->ranges[i].base &&
		    hi <= wc->ranges[i].base + wc->ranges[i].len) {
			aw->lo = (int64_t)wc->ranges[i].base;
			aw->hi = aw->lo + (int64_t)wc->ranges[i].len;
			return 0;
		}
	return -ERANGE;
}

/* Apply a data operation at its target. @in, @out: payload and result. */
static int fake_apply(struct fake_session *to, struct fake_win *t, const struct prog_sqe *e,
		      const struct dtype *dt, char *in, char *out)
{
	const struct reduce_type *type = reduce_type(e->etype);
	bool acc = e->opcode == PROG_SQE_OP_ACC || e->opcode == PROG_SQE_OP_GET_ACC;
	uint64_t each = dt ? prog_dtype_size(dt) : acc ? type->packed : 1;
	uint64_t end = e->off + e->len, count = (end + each - 1) / each;
	struct apply_win aw = { .hi = (int64_t)t->msg.size, .stripes = t->wc.stripes,
		.stripe_mask = t->wc.stripe_mask, .owner = PROG_OWNER_WORKER, .timeout_ns = -1 };
	struct prog_helper_job job = { .kind = PROG_HELP_APPLY, .opcode = e->opcode, .op = e->op,
		.etype = e->etype, .va = e->disp, .off = e->off, .len = e->len, .dtype = ~0ull };
	char *bounce = to->seg + to->hdr->bounce_off;
	int err;

	if (t->msg.mem == PROG_MEM_SHARED || fk->cma) {
		aw.mem = t->msg.mem == PROG_MEM_SHARED ? mem_direct(t->mem) :
			 mem_remote(to->pid, t->msg.mem == PROG_MEM_VA ? t->msg.base : 0);
		if (t->msg.mem == PROG_MEM_DYNAMIC) {
			int64_t lo = 0, hi = (int64_t)(acc ? count * type->extent : e->len);

			if (dt)
				CHECK_INT(prog_dtype_span(dt, count, &lo, &hi), 0);
			err = fake_range(&t->wc, e->disp + (uint64_t)lo, e->disp + (uint64_t)hi, &aw);
			if (err)
				return err;
		}
		switch (e->opcode) {
		case PROG_SQE_OP_PUT:
			return apply_put(&aw, (int64_t)e->disp, dt, count, e->off, in, e->len);
		case PROG_SQE_OP_GET:
			return apply_get(&aw, (int64_t)e->disp, dt, count, e->off, out, e->len);
		case PROG_SQE_OP_CAS:
			return apply_cas(&aw, e->etype, (int64_t)e->disp, in, in + type->packed, out);
		default:
			return apply_acc(&aw, e->op, e->etype, (int64_t)e->disp, dt, count, e->off, in,
					 e->len, e->opcode == PROG_SQE_OP_GET_ACC ? out : NULL, NULL);
		}
	}
	/* through the target's helper thread, which gets it in pieces of at most a quarter */
	CHECK(e->len <= to->hdr->bounce_size / 4);
	job.result = to->hdr->bounce_size / 4;
	if (dt) {
		job.dtype = to->hdr->bounce_size / 2;
		job.dtype_len = (uint32_t)prog_dtype_encoded_size(dt);
		memcpy(bounce + job.dtype, prog_dtype_encoded(dt), job.dtype_len);
	}
	for (job.win = 0; &to->win[job.win] != t; job.win++)
		;
	if (in)
		memcpy(bounce, in, e->len);
	err = fake_job(to, job);
	if (!err && out)
		memcpy(out, bounce + job.result, e->opcode == PROG_SQE_OP_CAS ? type->packed : e->len);
	return err;
}

static int fake_data(struct fake_session *s, struct fake_stream *st, struct fake_session *to,
		     struct fake_win *t, const struct prog_sqe *e)
{
	const struct reduce_type *type = reduce_type(e->etype);
	bool answers = e->opcode != PROG_SQE_OP_PUT && e->opcode != PROG_SQE_OP_ACC;
	struct dtype *dt = e->dtype ? st->dtypes[e->dtype] : NULL;
	char *in = NULL, *out = NULL;
	uint64_t done, n;
	int err = 0;

	CHECK(e->dtype < 256 && (!e->dtype || dt));
	if (e->opcode != PROG_SQE_OP_GET) {
		in = malloc(e->len);
		err = fake_origin(s, e, in, false);
	}
	if (answers)
		out = calloc(1, e->len);
	for (done = 0; done < e->len && !err; done += n) {
		struct prog_sqe part = *e;

		/* as the real one: fragments, of whole elements */
		n = e->len - done;
		if (n > 96 * 1024)
			n = 96 * 1024;
		part.off = e->off + done;
		part.len = n;
		err = fake_apply(to, t, &part, dt, in ? in + done : NULL, out ? out + done : NULL);
	}
	if (!err && e->opcode == PROG_SQE_OP_GET)
		err = fake_origin(s, e, out, true);
	else if (!err && answers)
		memcpy(s->seg + s->hdr->arena_off + 8ull * e->result, out,
		       e->opcode == PROG_SQE_OP_CAS ? type->packed : e->len);
	free(in);
	free(out);
	if (e->flags & PROG_SQE_FENCE) {
		__atomic_fetch_add(&t->wc.ctl->applied[!!(e->flags & PROG_SQE_PARITY)], 1,
				   __ATOMIC_SEQ_CST);
		winctl_wake(t->wc.ctl);
	}
	return err;
}

/* One entry; false when it must wait (LOCK). */
static bool fake_op(struct fake_session *s, struct fake_win *w, struct fake_stream *st,
		    const struct prog_sqe *e)
{
	uint32_t origin = w->msg.rank, owner = PROG_OWNER_WORKER | e->target % fk->workers;
	struct fake_session *to;
	struct fake_win *t = fake_find(w->msg.key, e->target, &to);
	int err = 0;
	bool granted;

	__atomic_fetch_add(&fk->ops, 1, __ATOMIC_RELAXED);
	CHECK_INT(e->seq, st->seen + 1);
	CHECK(t);
	switch (e->opcode) {
	case PROG_SQE_OP_DTYPE: {
		char why[200] = "", *program = malloc(e->len);
		struct dtype *dt = NULL;

		__atomic_fetch_add(&fk->dtypes, 1, __ATOMIC_RELAXED);
		CHECK(e->dtype && e->dtype < 256 && e->len <= PROG_DTYPE_PROGRAM_MAX);
		CHECK_INT(fake_origin(s, e, program, false), 0);
		CHECK_INT(prog_dtype_decode(program, e->len, &dt, why, sizeof(why)), 0);
		free(program);
		prog_dtype_put(st->dtypes[e->dtype]);
		st->dtypes[e->dtype] = dt;
		break;
	}
	case PROG_SQE_OP_LOCK:
		granted = st->lock_waits ? winlock_granted(&t->wc, origin) :
			  winlock_request(&t->wc, origin, e->flags & PROG_SQE_EXCL, owner);
		st->lock_waits = !granted;
		if (!granted)
			return false;
		break;
	case PROG_SQE_OP_UNLOCK:
		winlock_release(&t->wc, origin, owner, &err);
		/* its workers are ours: the next round looks at all locks */
		break;
	case PROG_SQE_OP_POST:
		__atomic_fetch_add(&t->wc.peers[origin].posted, 1, __ATOMIC_SEQ_CST);
		winctl_wake(t->wc.ctl);
		break;
	case PROG_SQE_OP_COMPLETE:
		__atomic_fetch_add(&t->wc.peers[origin].completed, 1, __ATOMIC_SEQ_CST);
		winctl_wake(t->wc.ctl);
		break;
	default:
		err = fake_data(s, st, to, t, e);
	}
	if (err && !w->wc.streams[e->target].err_seq) {
		w->wc.streams[e->target].err = err;
		__atomic_store_n(&w->wc.streams[e->target].err_seq, e->seq, __ATOMIC_RELEASE);
	}
	st->seen = e->seq;
	return true;
}

/* Serve one session's rings once; true when something was done. */
static bool fake_serve(struct fake_session *s)
{
	struct prog_session_hdr *h = s->hdr;
	struct prog_sqe *pool;
	bool busy = false, acked = false;
	uint32_t i, j, rings;

	if (s->sock <= 0 || !h || __atomic_load_n(&fk->hold, __ATOMIC_ACQUIRE))
		return false;
	pool = (void *)(s->seg + h->sqe_off);
	rings = fk->workers;
	for (i = 0; i < rings; i++) {
		struct prog_sq *sq = (struct prog_sq *)(void *)(s->seg + h->sq_off) + i;
		uint32_t *idx = (uint32_t *)(void *)(s->seg + h->idx_off) + (size_t)i * h->slots;
		uint32_t tail = __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE);

		for (; s->head[i] != tail; s->head[i]++) {
			uint32_t slot = idx[s->head[i] % h->slots];
			struct prog_sqe *e = &pool[slot];
			struct fake_win *w;
			struct fake_stream *st;

			CHECK(slot < h->slots && e->win < FAKE_WINS && s->win[e->win].used);
			w = &s->win[e->win];
			CHECK(e->target < w->msg.nranks);
			CHECK_INT(e->target % rings, i);
			st = &w->streams[e->target];
			st->queue[st->in++ % 4096] = slot;
			busy = true;
		}
		__atomic_store_n(&sq->head, s->head[i], __ATOMIC_RELEASE);
	}
	for (i = 0; i < FAKE_WINS; i++)
		for (j = 0; s->win[i].used && j < s->win[i].msg.nranks; j++) {
			struct fake_stream *st = &s->win[i].streams[j];

			while (st->done != st->in) {
				struct prog_sqe e = pool[st->queue[st->done % 4096]];

				if (!fake_op(s, &s->win[i], st, &e))
					break;
				st->done++;
				busy = true;
			}
			if (st->acked != st->seen &&
			    (!fk->lazy || __atomic_load_n(&h->waiters, __ATOMIC_SEQ_CST))) {
				st->acked = st->seen;
				__atomic_store_n(&s->win[i].wc.streams[j].acked, st->acked,
						 __ATOMIC_RELEASE);
				acked = true;
			}
		}
	if (acked) {
		__atomic_fetch_add(&h->event, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&h->waiters, __ATOMIC_SEQ_CST))
			futex_wake_all(&h->event);
	}
	return busy || acked;
}

/* ---- two-sided messages -------------------------------------------------------------------------- */

static struct prog_p2p_slot *fake_slot(struct fake_session *s, uint32_t slot)
{
	CHECK(slot < PROG_P2P_SLOTS);
	return (struct prog_p2p_slot *)(void *)(s->seg + fake_area(s)->slot_off) + slot;
}

/* Packed [off, off + len) of a slot's buffer to or from @buf. */
static int fake_msg_copy(struct fake_session *s, const struct prog_p2p_slot *sl, uint64_t off, char *buf,
			 uint64_t len, bool write)
{
	struct prog_sqe e = { .flags = sl->loc, .region = sl->region };
	struct dtype *dt = NULL;
	struct prog_dtype_iter it;
	char why[200] = "";
	int64_t at;
	uint64_t n;
	int err = 0;

	CHECK(sl->loc == PROG_SQE_REGION || sl->loc == PROG_SQE_VA);
	if (sl->dtype == ~0ull) {
		e.addr = sl->addr + off;
		e.len = len;
		return len ? fake_origin(s, &e, buf, write) : 0;
	}
	CHECK(sl->dtype + sl->dtype_len <= s->hdr->arena_size && sl->dtype_len <= PROG_DTYPE_PROGRAM_MAX);
	CHECK_INT(prog_dtype_decode(s->seg + s->hdr->arena_off + sl->dtype, sl->dtype_len, &dt, why, sizeof(why)), 0);
	CHECK_INT(prog_dtype_iter_init(&it, dt, sl->count, off), 0);
	for (; !err && len && prog_dtype_iter_next(&it, len, &at, &n); buf += n, len -= n) {
		e.addr = sl->addr + (uint64_t)at;
		e.len = n;
		err = fake_origin(s, &e, buf, write);
	}
	prog_dtype_put(dt);
	return err;
}

static void fake_msg_event(struct fake_session *s)
{
	__atomic_fetch_add(&s->hdr->event, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&s->hdr->waiters, __ATOMIC_SEQ_CST))
		futex_wake_all(&s->hdr->event);
}

static void fake_msg_end(struct fake_session *s, uint32_t slot, uint32_t state)
{
	s->msg[slot] = FAKE_MSG_NONE;
	__atomic_store_n(&fake_slot(s, slot)->state, state, __ATOMIC_RELEASE);
	fake_msg_event(s);
	__atomic_fetch_add(&fk->msg_ends, 1, __ATOMIC_RELEASE);
}

static int fake_bad_job(struct fake_session *s, const struct prog_helper_job *job, uint32_t win, uint64_t off,
			uint64_t bounce, uint32_t head)
{
	struct prog_helper_job bad = *job;

	bad.win = win;
	bad.off = off;
	bad.bounce = bounce;
	bad.head = head;
	return fake_job(s, bad);
}

/* @n bytes, @head of them to the slot, by a helper thread from process to process; after some nonsense. */
static int fake_msg_pass(struct fake_session *to, struct prog_p2p_slot *r, struct fake_session *from,
			 const struct prog_p2p_slot *sl, uint64_t n, uint32_t head)
{
	bool pull = fk->pass == PROG_HELP_PULL;
	struct fake_session *by = pull ? to : from;
	struct prog_helper_job job = {
		.kind = (uint8_t)fk->pass, .win = pull ? sl->key.src : sl->key.dst,
		.va = pull ? r->addr : sl->addr, .off = pull ? sl->addr : r->addr, .len = n, .head = head,
	};
	int err;

	CHECK_INT(fake_bad_job(by, &job, 99, job.off, 0, head), -ENOENT);
	CHECK_INT(fake_bad_job(by, &job, pull ? sl->key.dst : sl->key.src, job.off, 0, head), -ENOENT);
	CHECK_INT(fake_bad_job(by, &job, job.win, job.off, ~0ull, head), -EINVAL);
	CHECK_INT(fake_bad_job(by, &job, job.win, job.off, 0, PROG_P2P_HEAD + 1), -EINVAL);
	CHECK_INT(fake_bad_job(by, &job, job.win, job.off, 0, (uint32_t)n + 1), -EINVAL);
	if (n > head)
		CHECK_INT(fake_bad_job(by, &job, job.win, 8, 0, head), -EFAULT);
	err = fake_job(by, job);
	memcpy(r->head, by->seg + by->hdr->bounce_off, head);
	__atomic_fetch_add(&fk->passes, 1, __ATOMIC_RELAXED);
	return err;
}

/* The payload, and both ends. */
static void fake_msg_move(struct fake_session *to, uint32_t rslot, struct fake_session *from, uint32_t sslot)
{
	struct prog_p2p_slot *r = fake_slot(to, rslot), *sl = fake_slot(from, sslot);
	uint64_t n = sl->len < r->len ? sl->len : r->len, head = 0;
	char *buf = malloc(n + 1);
	int err = 0;

	if (!(r->flags & PROG_P2PF_DROP)) {
		if (!(r->flags & PROG_P2PF_BY_ID) || r->flags & PROG_P2PF_HEAD)
			head = n < PROG_P2P_HEAD ? n : PROG_P2P_HEAD;
		if (fk->pass && from != to && sl->loc == PROG_SQE_VA && r->loc == PROG_SQE_VA &&
		    sl->dtype == ~0ull && r->dtype == ~0ull) {
			err = fake_msg_pass(to, r, from, sl, n, (uint32_t)head);
		} else {
			err = fake_msg_copy(from, sl, 0, buf, n, false);
			memcpy(r->head, buf, head);
			if (!err)
				err = fake_msg_copy(to, r, head, buf + head, n - head, true);
		}
		r->head_len = fk->msg_head_len ? fk->msg_head_len : (uint32_t)head;
		r->moved = n - head;
	}
	free(buf);
	r->msg_len = sl->len;
	r->status = sl->status = err ? err : fk->msg_status;
	fake_msg_end(to, rslot, PROG_P2P_DONE);
	fake_msg_end(from, sslot, PROG_P2P_DONE);
}

static bool fake_same_channel(const struct prog_p2p_key *a, const struct prog_p2p_key *b)
{
	return a->comm == b->comm && a->src == b->src && a->dst == b->dst && a->tag == b->tag &&
	       a->gen == b->gen;
}

/* The SEND of @r, a RECV of @to; its slot, or -1. */
static int fake_msg_find(struct fake_session *to, const struct prog_p2p_slot *r, struct fake_session **from)
{
	int i;

	if (!fake_find(to->space->msg.key, r->key.src, from) || !(*from)->space)
		return -1;
	for (i = 0; i < (int)PROG_P2P_SLOTS; i++) {
		struct prog_p2p_slot *sl = fake_slot(*from, (uint32_t)i);

		if ((*from)->msg[i] != FAKE_MSG_WAITS || sl->kind != PROG_P2P_SEND || sl->key.dst != r->key.dst)
			continue;
		if (r->flags & PROG_P2PF_BY_ID ?
		    (uint32_t)i == r->peer_slot && sl->serial == r->peer_serial && sl->len == r->peer_len :
		    fake_same_channel(&sl->key, &r->key) && sl->key.ord == r->key.ord)
			return i;
	}
	return -1;
}

static void fake_msg_withdraw(struct fake_session *s, uint32_t slot)
{
	struct prog_p2p_slot *sl = fake_slot(s, slot);
	bool all = sl->flags & PROG_P2PF_WITHDRAW_ALL, busy = s->msg[slot] != FAKE_MSG_WAITS;
	uint32_t i;

	__atomic_fetch_add(&fk->msg_withdraws, 1, __ATOMIC_RELAXED);
	if (fk->msg_silent)
		return;
	for (i = 0; all && i < PROG_P2P_SLOTS; i++) {
		struct prog_p2p_slot *o = fake_slot(s, i);

		busy |= s->msg[i] == FAKE_MSG_MATCHED && o->kind == PROG_P2P_RECV &&
			fake_same_channel(&o->key, &sl->key) && o->key.ord >= sl->key.ord;
	}
	if (busy) {
		__atomic_fetch_add(&sl->refused, 1, __ATOMIC_RELEASE);
		fake_msg_event(s);
		return;
	}
	for (i = 0; all && i < PROG_P2P_SLOTS; i++) {
		struct prog_p2p_slot *o = fake_slot(s, i);

		if (s->msg[i] == FAKE_MSG_WAITS && o->kind == PROG_P2P_RECV &&
		    fake_same_channel(&o->key, &sl->key) && o->key.ord > sl->key.ord)
			fake_msg_end(s, i, PROG_P2P_WITHDRAWN);
	}
	fake_msg_end(s, slot, PROG_P2P_WITHDRAWN);
}

/* Messages for @s without a RECV are counted; who could look for them is told. */
static void fake_msg_count(struct fake_session *s)
{
	struct prog_helper_ring *hr = (void *)(s->seg + s->hdr->helper_off);
	struct prog_p2p_area *area = fake_area(s);
	uint32_t n = 0, i, j;

	for (i = 0; i < FAKE_SESSIONS; i++) {
		struct fake_session *from = &fake_sessions[i];

		for (j = 0; from->sock > 0 && from->space && j < PROG_P2P_SLOTS; j++)
			n += from->msg[j] == FAKE_MSG_WAITS && fake_slot(from, j)->kind == PROG_P2P_SEND &&
			     fake_slot(from, j)->key.dst == s->space->msg.rank &&
			     from->space->msg.key == s->space->msg.key;
	}
	if (n == area->unmatched)
		return;
	__atomic_store_n(&area->unmatched, n, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&area->candidates, __ATOMIC_SEQ_CST) || !n)
		return;
	__atomic_fetch_add(&hr->event, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&hr->need_wakeup, __ATOMIC_SEQ_CST))
		futex_wake_all(&hr->event);
}

static bool fake_msg_take(struct fake_session *s)
{
	bool busy = false;
	uint32_t i;

	if (s->sock <= 0 || !s->space || __atomic_load_n(&fk->msg_hold, __ATOMIC_ACQUIRE))
		return false;
	for (i = 0; i < fk->workers; i++) {
		struct prog_sq *sq = fake_msg_ring(s, i);
		uint32_t *idx = (uint32_t *)(void *)(s->seg + fake_area(s)->idx_off) + i * PROG_P2P_RING;
		uint32_t tail = __atomic_load_n(&sq->tail, __ATOMIC_SEQ_CST);

		CHECK(tail - s->msg_head[i] <= PROG_P2P_RING);
		for (; s->msg_head[i] != tail; busy = true) {
			uint32_t e = idx[s->msg_head[i] % PROG_P2P_RING], slot = e & ~PROG_P2P_WITHDRAW;
			struct prog_p2p_slot *sl = fake_slot(s, slot);

			fk->msg_hints = sl->hints;
			fk->cpu = __atomic_load_n(&s->hdr->cpu, __ATOMIC_RELAXED);
			fk->blocked = __atomic_load_n(&s->hdr->blocked, __ATOMIC_RELAXED);
			__atomic_fetch_add(&fk->msg_entries, 1, __ATOMIC_RELEASE);
			CHECK_INT(i, (sl->kind == PROG_P2P_SEND ? sl->key.dst : s->space->msg.rank) % fk->workers);
			if (e & PROG_P2P_WITHDRAW) {
				CHECK_INT(sl->kind, PROG_P2P_RECV);
				fake_msg_withdraw(s, slot);
			} else {
				CHECK_INT(s->msg[slot], FAKE_MSG_NONE);
				CHECK_INT(sl->state, PROG_P2P_POSTED);
				CHECK(sl->serial && (sl->kind == PROG_P2P_SEND || sl->kind == PROG_P2P_RECV));
				s->msg[slot] = FAKE_MSG_WAITS;
			}
			__atomic_store_n(&sq->head, ++s->msg_head[i], __ATOMIC_RELEASE);
		}
	}
	return busy;
}

/* What all sessions have in their rings of messages; true when something was done. */
static bool fake_msgs(void)
{
	static uint32_t stalled;
	bool busy = fk->msg_stall != stalled;
	uint32_t i, j;

	for (i = 0; i < FAKE_SESSIONS; i++)
		busy |= fake_msg_take(&fake_sessions[i]);
	if (!busy)
		return false;
	stalled = fk->msg_stall;
	for (i = 0; i < FAKE_SESSIONS; i++) {
		struct fake_session *s = &fake_sessions[i], *from;

		for (j = 0; s->sock > 0 && s->space && j < PROG_P2P_SLOTS; j++) {
			int sslot;

			if (!s->msg[j] || fake_slot(s, j)->kind != PROG_P2P_RECV)
				continue;
			/* what was stalled is found again */
			sslot = fake_msg_find(s, fake_slot(s, j), &from);
			if (sslot < 0)
				continue;
			s->msg[j] = FAKE_MSG_MATCHED;
			if (!fk->msg_stall)
				fake_msg_move(s, j, from, (uint32_t)sslot);
		}
	}
	for (i = 0; i < FAKE_SESSIONS; i++)
		if (fake_sessions[i].sock > 0 && fake_sessions[i].space)
			fake_msg_count(&fake_sessions[i]);
	return true;
}

static void fake_main(int listener)
{
	uint32_t next = 0, i;
	bool kicked = false;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	fake_bell_fd = memfd_create("fake-bell", MFD_CLOEXEC);
	CHECK(!ftruncate(fake_bell_fd, 4096));
	fake_bell = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fake_bell_fd, 0);
	for (i = 0; i < PROG_MAX_WORKERS; i++)
		fake_kick[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	for (;;) {
		struct pollfd p[1 + FAKE_SESSIONS + PROG_MAX_WORKERS];
		bool busy = false, doze = __atomic_load_n(&fk->doze, __ATOMIC_ACQUIRE) && !kicked;
		uint64_t v;
		int n = 0;

		kicked = false;
		for (i = 0; i < FAKE_SESSIONS && !doze; i++)
			busy |= fake_serve(&fake_sessions[i]);
		if (!doze)
			busy |= fake_msgs();
		if (doze) {
			for (i = 0; i < fk->workers; i++)
				__atomic_store_n(&fake_bell->state[i].need_wakeup, PROG_WAKEUP_COALESCED,
						 __ATOMIC_SEQ_CST);
			/* and will, until it is kicked */
			__atomic_store_n(&fk->dozing, 1, __ATOMIC_RELEASE);
		} else if (!busy) {
			for (i = 0; i < fk->workers; i++)
				__atomic_store_n(&fake_bell->state[i].need_wakeup, 1, __ATOMIC_SEQ_CST);
			for (i = 0; i < FAKE_SESSIONS; i++)
				busy |= fake_serve(&fake_sessions[i]);
			busy |= fake_msgs();
		}
		p[n++] = (struct pollfd){ .fd = listener, .events = POLLIN };
		for (i = 0; i < FAKE_SESSIONS; i++)
			p[n++] = (struct pollfd){ .fd = fake_sessions[i].sock > 0 ?
						  fake_sessions[i].sock : -1, .events = POLLIN };
		for (i = 0; i < fk->workers; i++)
			p[n++] = (struct pollfd){ .fd = fake_kick[i], .events = POLLIN };
		/* locks of same-node holders, hold and lazy are polled for */
		poll(p, (nfds_t)n, busy ? 0 : 1);
		for (i = 0; i < fk->workers; i++) {
			if (!doze)
				__atomic_store_n(&fake_bell->state[i].need_wakeup, 0, __ATOMIC_RELAXED);
			if (read(fake_kick[i], &v, sizeof(v)) == sizeof(v)) {
				__atomic_store_n(&fk->dozing, 0, __ATOMIC_RELEASE);
				__atomic_fetch_add(&fk->kicks, 1, __ATOMIC_RELEASE);
				kicked = true;
			}
		}
		for (i = 0; i < FAKE_SESSIONS; i++)
			if (p[1 + i].revents && fake_sessions[i].sock > 0)
				fake_request(&fake_sessions[i]);
		if (p[0].revents) {
			struct fake_session *s = &fake_sessions[next % FAKE_SESSIONS];
			struct ucred cred;
			socklen_t len = sizeof(cred);

			CHECK(s->sock <= 0);
			memset(s, 0, sizeof(*s));
			s->sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			getsockopt(s->sock, SOL_SOCKET, SO_PEERCRED, &cred, &len);
			s->pid = cred.pid;
			s->node = next % fk->nodes;
			s->id = ++next;
		}
	}
}

/* Start it; one node, one worker, CMA. */
static __attribute__((unused)) void fake_start(uint32_t nodes, uint32_t workers, bool cma)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int listener;
	pid_t pid;

	if (!fk)
		fk = mmap(NULL, sizeof(*fk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(fk, 0, sizeof(*fk));
	fk->nodes = nodes;
	fk->workers = workers;
	fk->cma = cma;
	snprintf(fk->path, sizeof(fk->path), "/tmp/asyncprog-fake-%d.sock", (int)getpid());
	unlink(fk->path);
	strcpy(sa.sun_path, fk->path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(!bind(listener, (struct sockaddr *)&sa, sizeof(sa)));
	CHECK(!listen(listener, 16));
	fflush(NULL);
	pid = fork();
	if (!pid) {
		fake_main(listener);
		_exit(0);
	}
	fk->pid = pid;	/* by the parent only: it is shared memory */
	close(listener);
}

static __attribute__((unused)) void fake_stop(void)
{
	int st;

	kill(fk->pid, SIGKILL);
	waitpid(fk->pid, &st, 0);
	unlink(fk->path);
	if (WIFEXITED(st)) {
		fprintf(stderr, "the fake daemon failed\n");
		exit(1);
	}
}

#ifdef __SANITIZE_THREAD__
/*
 * The helper thread writes window memory on behalf of other processes; what orders that with the
 * program's own accesses passes through those processes, where the sanitizer does not look.
 */
const char *__tsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
	return "race:run_job\n";
}
#endif

/* ---- ranks -------------------------------------------------------------------------------------- */

struct ranks_shared {
	uint32_t arrived, round;
	uint8_t jobid[16], key[32];
	struct prog_endpoint ep[FAKE_RANKS];
	uint64_t value[64];		/* for the tests */
	char data[1 << 20];
};

static struct ranks_shared *rs;
static uint32_t my_rank, my_ranks;
static unsigned int rank_flags;		/* PROG_SESSION_* of every session that names none */
static char rank_path[2][108];		/* rank i connects to rank_path[i % rank_paths] */
static uint32_t rank_paths;

static void rank_barrier(void)
{
	uint32_t round = __atomic_load_n(&rs->round, __ATOMIC_ACQUIRE);

	if (__atomic_add_fetch(&rs->arrived, 1, __ATOMIC_ACQ_REL) == my_ranks) {
		__atomic_store_n(&rs->arrived, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&rs->round, round + 1, __ATOMIC_RELEASE);
		futex_wake_all(&rs->round);
	}
	while (__atomic_load_n(&rs->round, __ATOMIC_ACQUIRE) == round)
		futex_wait(&rs->round, round, 0);
}

/* Sessions in rank order, so that the fake's nodes are known. */
static __attribute__((unused)) struct prog_session *rank_session(const struct prog_session_cfg *more)
{
	struct prog_session_cfg cfg = more ? *more : (struct prog_session_cfg){ .flags = rank_flags };
	struct prog_session *s = NULL;
	const char *why = "";
	uint32_t i;
	int err;

	memcpy(cfg.jobid, rs->jobid, sizeof(cfg.jobid));
	memcpy(cfg.jobkey, rs->key, sizeof(cfg.jobkey));
	cfg.rank = my_rank;
	if (rank_paths)
		cfg.socket = rank_path[my_rank % rank_paths];
	else if (fk && !cfg.socket && !(cfg.flags & PROG_SESSION_EMBEDDED))
		cfg.socket = fk->path;
	for (i = 0; i < my_ranks; i++) {
		if (i == my_rank) {
			err = prog_session_open(&cfg, &s, &why);
			if (err)
				fprintf(stderr, "rank %u: open: %s (%s)\n", my_rank, strerror(-err), why);
			CHECK_INT(err, 0);
		}
		rank_barrier();
	}
	return s;
}

static __attribute__((unused)) struct prog_win *rank_window(struct prog_session *s, enum prog_win_kind kind,
							    uint64_t key, void *base, size_t size)
{
	struct prog_win_cfg cfg = { .kind = kind, .key = key, .rank = my_rank, .nranks = my_ranks,
				    .base = base, .size = size };
	const char *why = "";
	struct prog_win *w;
	int err;

	CHECK_INT(prog_win_open(s, &cfg, &w), 0);
	prog_win_endpoint(w, &rs->ep[my_rank]);
	rank_barrier();
	err = prog_win_connect(w, rs->ep, &why);
	if (err)
		fprintf(stderr, "rank %u: connect: %s (%s)\n", my_rank, strerror(-err), why);
	CHECK_INT(err, 0);
	rank_barrier();
	CHECK_INT(prog_win_map(w, NULL), 0);
	rank_barrier();
	return w;
}

static __attribute__((unused)) void rank_finish(struct prog_session *s, struct prog_win *w)
{
	rank_barrier();
	prog_win_close(w);
	rank_barrier();
	prog_session_close(s);
}

/* Run @fn in @n processes; all must end well. Returns false otherwise. */
static __attribute__((unused)) bool run_ranks(uint32_t n, void (*fn)(void))
{
	pid_t pid[FAKE_RANKS];
	bool ok = true;
	uint32_t i;
	int st;

	if (!rs)
		rs = mmap(NULL, sizeof(*rs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(rs, 0, sizeof(*rs));
	prog_job_key_make(rs->jobid, rs->key);
	fflush(NULL);
	for (i = 0; i < n; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			alarm(100);
			my_rank = i;
			my_ranks = n;
			fn();
			exit(0);
		}
	}
	for (i = 0; i < n; i++) {
		pid_t who = wait(&st);
		uint32_t j;

		for (j = 0; j < n && pid[j] != who; j++)
			;
		if (j == n) {
			/* the fake daemon died: the ranks will say what they saw */
			fprintf(stderr, "the fake daemon ended (status 0x%x)\n", st);
			ok = false;
			i--;
			continue;
		}
		pid[j] = 0;
		if (st) {
			fprintf(stderr, "rank %u: status 0x%x\n", j, st);
			/* the others wait for it in vain */
			for (j = 0; ok && j < n; j++)
				if (pid[j])
					kill(pid[j], SIGKILL);
			ok = false;
		}
	}
	return ok;
}

#endif

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
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

#include <libprogbase/futex.h>
#include <libprogbase/scm.h>

#include "fake_priv.h"

struct fake_shared *fk;
struct fake_session fake_sessions[FAKE_SESSIONS];
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
		.abi_minor = fk->old ? 1 : fk->minor[s->node & 1] ? fk->minor[s->node & 1] : PROG_ABI_MINOR,
		.session = s->id, .binding = fk->binding, .pid = (uint32_t)getpid(),
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

struct prog_p2p_area *fake_area(struct fake_session *s)
{
	return (void *)(s->seg + s->hdr->p2p_off);
}

struct prog_sq *fake_msg_ring(struct fake_session *s, uint32_t worker)
{
	return (struct prog_sq *)(void *)(s->seg + fake_area(s)->sq_off) + worker;
}

static void fake_win_clear(struct fake_win *w)
{
	for (unsigned int i = 0; i < PROG_MAX_WORKERS; i++)
		free(w->subs[i]);
	memset(w, 0, sizeof(*w));
}

/* Of entry @e in ring @ring. */
static struct fake_stream *fake_stream_of(struct fake_win *w, const struct prog_sqe *e, uint32_t ring)
{
	if (!(e->flags & PROG_SQE_SUB)) {
		CHECK_INT(e->target % fk->workers, ring);
		return &w->streams[e->target];
	}
	CHECK(e->target % fk->workers != ring && w->wc.subs && ring < w->wc.nsubs);
	CHECK(e->opcode == PROG_SQE_OP_PUT || e->opcode == PROG_SQE_OP_GET || e->opcode == PROG_SQE_OP_DTYPE);
	if (!w->subs[ring])
		w->subs[ring] = calloc(FAKE_RANKS, sizeof(*w->subs[ring]));
	return &w->subs[ring][e->target];
}

/* The message context comes or goes: rings empty, slots the client's. */
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

struct fake_win *fake_find(uint64_t key, uint32_t rank, struct fake_session **owner)
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
			       winlock_recover_soon(&w->wc, dead, true, own->msg.rank, &since, &mask, &dropped))
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
		for (i = 0; i < FAKE_WINS; i++)
			fake_win_clear(&s->win[i]);
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
		fake_win_clear(w);
		fake_reply(s, &rep, sizeof(rep), h->type, 0, NULL, 0);
		break;
	}
	case PROG_CTRL_WIN_KEYS: {
		struct fake_win *w = &s->win[((struct prog_ctrl_slot *)(void *)buf)->slot % FAKE_WINS];

		CHECK(w->used);
		w->wc.ctl->given_out = 0;
		__atomic_fetch_add(&fk->taken_back, 1, __ATOMIC_RELAXED);
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
int fake_job(struct fake_session *s, struct prog_helper_job job)
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
int fake_origin(struct fake_session *s, const struct prog_sqe *e, char *buf, bool write)
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

/* One entry, whose client looks at @shared; false when it must wait (LOCK). */
static bool fake_op(struct fake_session *s, struct fake_win *w, struct fake_stream *st,
		    struct prog_win_stream *shared, const struct prog_sqe *e)
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
	if (err && !shared->err_seq) {
		shared->err = err;
		__atomic_store_n(&shared->err_seq, e->seq, __ATOMIC_RELEASE);
	}
	st->seen = e->seq;
	return true;
}

/* What one stream or sub-stream has waiting. */
static void fake_serve_stream(struct fake_session *s, struct fake_win *w, struct fake_stream *st,
			      struct prog_win_stream *shared, bool *busy, bool *acked)
{
	struct prog_sqe *pool = (void *)(s->seg + s->hdr->sqe_off);

	while (st->done != st->in) {
		struct prog_sqe e = pool[st->queue[st->done % 4096]];

		if (!fake_op(s, w, st, shared, &e))
			break;
		st->done++;
		*busy = true;
	}
	if (st->acked != st->seen && (!fk->lazy || __atomic_load_n(&s->hdr->waiters, __ATOMIC_SEQ_CST))) {
		st->acked = st->seen;
		__atomic_store_n(&shared->acked, st->acked, __ATOMIC_RELEASE);
		*acked = true;
	}
}

/* Serve one session's rings once; true when something was done. */
static bool fake_serve(struct fake_session *s)
{
	struct prog_session_hdr *h = s->hdr;
	struct prog_sqe *pool;
	bool busy = false, acked = false;
	uint32_t i, j, k, rings;

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
			st = fake_stream_of(w, e, i);
			st->queue[st->in++ % 4096] = slot;
			busy = true;
		}
		__atomic_store_n(&sq->head, s->head[i], __ATOMIC_RELEASE);
	}
	for (i = 0; i < FAKE_WINS; i++)
		for (j = 0; s->win[i].used && j < s->win[i].msg.nranks; j++) {
			struct fake_win *w = &s->win[i];

			fake_serve_stream(s, w, &w->streams[j], &w->wc.streams[j], &busy, &acked);
			for (k = 0; k < rings; k++)
				if (w->subs[k])
					fake_serve_stream(s, w, &w->subs[k][j], &w->wc.subs[k * w->wc.nranks + j],
							  &busy, &acked);
		}
	if (acked) {
		__atomic_fetch_add(&h->event, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&h->waiters, __ATOMIC_SEQ_CST))
			futex_wake_all(&h->event);
	}
	return busy || acked;
}

static bool fake_serve_all(void)
{
	bool busy = false;

	for (uint32_t i = 0; i < FAKE_SESSIONS; i++)
		busy |= fake_serve(&fake_sessions[i]);
	return fake_msgs() || busy;
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
		uint32_t how = __atomic_load_n(&fk->wakeup, __ATOMIC_ACQUIRE);
		bool busy = false, by_kick = how && !kicked;
		uint64_t v;
		int n = 0;

		kicked = false;
		if (!by_kick)
			busy = fake_serve_all();
		/* once it sleeps it looks at nothing until it is kicked */
		if (!busy && !(by_kick && __atomic_load_n(&fk->asleep, __ATOMIC_RELAXED))) {
			for (i = 0; i < fk->workers; i++)
				__atomic_store_n(&fake_bell->state[i].need_wakeup, by_kick ? how : PROG_WAKEUP_NEEDED,
						 __ATOMIC_SEQ_CST);
			busy = fake_serve_all();
			__atomic_store_n(&fk->asleep, by_kick && !busy, __ATOMIC_RELEASE);
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
			if (!by_kick)
				__atomic_store_n(&fake_bell->state[i].need_wakeup, 0, __ATOMIC_RELAXED);
			if (read(fake_kick[i], &v, sizeof(v)) == sizeof(v)) {
				__atomic_store_n(&fk->asleep, 0, __ATOMIC_RELEASE);
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

void fake_start(uint32_t nodes, uint32_t workers, bool cma)
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

void fake_stop(void)
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

uint32_t fake_until_asleep(void)
{
	while (!__atomic_load_n(&fk->asleep, __ATOMIC_ACQUIRE))
		sched_yield();
	return __atomic_load_n(&fk->kicks, __ATOMIC_ACQUIRE);
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

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Two-sided messages: slots that the daemon matches and moves (ring.h, "two-sided messages").
 *
 * A slot is ours until POSTED is published and again once the daemon has stored DONE or WITHDRAWN with
 * release, and has passed every WITHDRAW entry for it in the ring.  A message that is given back before is left
 * behind: its slot is looked at now and then, and used again when the daemon is through with it.
 *
 * Everything but testing and waiting is under session.msg_lock, which look() and threads of sessions without
 * PROG_SESSION_MT take, too.
 */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>
#include <libprogbase/probe.h>

#include "client.h"

#define SLOTS_LOW	(PROG_P2P_SLOTS / 4)	/* fewer free ones: the daemon is woken for those left behind */
#define COPY_PART	(256u << 10)	/* of a message for a derived datatype, copied at a time */
#define LEAVE_RUN	4		/* of so many messages to another node one is not left, to hear of the receiver */
#define LOOK_FIRST_NS	50000u
#define LOOK_MAX_NS	5000000u

struct prog_msg {
	struct prog_p2p_slot *slot;
	uint32_t index;
	uint32_t serial;
	uint32_t next;			/* free, or left behind */
	uint32_t withdrawn_at;		/* withdrawing: ring position just behind the last WITHDRAW */
	bool withdrawing;
	uint64_t program;		/* in the arena of programs, or CLIENT_NO_ARENA */
	struct pin *pin;		/* the buffer is in it; NULL: it is not pinned */
	bool copied;			/* by ourselves; the slot is about telling its sender */
	uint64_t len, moved;		/* copied: the result */
};

struct list {
	uint32_t head, tail;		/* CLIENT_NO_SLOT: empty */
	uint32_t n;
};

struct msgs {
	struct prog_session *s;
	struct prog_win *w;
	struct prog_p2p_peer *peers;	/* [nranks], in the control segment */
	uint32_t self, nranks;
	uint32_t workers;		/* the session's, of which a forked child has none */
	uint32_t recv_ring;		/* worker of all RECVs and WITHDRAWs */
	uint32_t pool_region;		/* id + 1; 0: none */
	int pool_fd;			/* of it; -1 */
	uint64_t pool_size;
	uint8_t *waits;			/* [nranks]: relaxed; others of this node read it */
	uint8_t *run;			/* [nranks]: relaxed; messages left to the MPI library since one was not */
	struct near *near;		/* [nnear], by rank; constant once the window is mapped */
	uint32_t nnear;
	/* under msg_lock */
	struct list free, left;
	struct arena arena;		/* CLIENT_MSG_ARENA, behind the session's */
	struct prog_msg msg[PROG_P2P_SLOTS];
};

static void push(struct msgs *ms, struct list *l, struct prog_msg *m)
{
	m->next = CLIENT_NO_SLOT;
	if (l->n++)
		ms->msg[l->tail].next = m->index;
	else
		l->head = m->index;
	l->tail = m->index;
}

static struct prog_msg *pop(struct msgs *ms, struct list *l)
{
	struct prog_msg *m = &ms->msg[l->head];

	l->head = m->next;
	l->n--;
	return m;
}

/* ---- slots -------------------------------------------------------------------------------------- */

static uint32_t state_of(const struct prog_msg *m)
{
	return __atomic_load_n(&m->slot->state, __ATOMIC_ACQUIRE);
}

/* Is the daemon through with the slot? */
static bool is_over(const struct msgs *ms, const struct prog_msg *m)
{
	const struct prog_sq *sq = ms->s->msg_rings[ms->recv_ring].sq;

	return state_of(m) >= PROG_P2P_DONE &&
	       (!m->withdrawing ||
		(int32_t)(__atomic_load_n(&sq->head, __ATOMIC_ACQUIRE) - m->withdrawn_at) >= 0);
}

static void release(struct msgs *ms, struct prog_msg *m)
{
	if (m->program != CLIENT_NO_ARENA)
		arena_free(&ms->arena, m->program);
	m->program = CLIENT_NO_ARENA;
	pin_unuse(ms->s, m->pin);
	m->pin = NULL;
	m->withdrawing = false;
	m->copied = false;
	push(ms, &ms->free, m);
}

/* Look at @n of the slots left behind, those not looked at for longest. */
static void reap(struct msgs *ms, uint32_t n)
{
	for (; n && ms->left.n; n--) {
		struct prog_msg *m = pop(ms, &ms->left);

		if (is_over(ms, m))
			release(ms, m);
		else
			push(ms, &ms->left, m);
	}
}

static void wake_for_left(struct msgs *ms)
{
	const uint32_t *state = &ms->s->bell->state[ms->recv_ring].need_wakeup;

	if (ms->left.n && __atomic_load_n(state, __ATOMIC_SEQ_CST) != PROG_WAKEUP_NONE)
		session_kick(ms->s, ms->recv_ring);
}

/* ---- posting ------------------------------------------------------------------------------------ */

struct post {
	struct prog_p2p_key key;
	struct side side;
	uint8_t kind, flags, loc, hints;
	uint32_t region;
	uint64_t addr;			/* as prog_p2p_slot.addr */
	struct pin *pin;
	uint32_t peer_slot, peer_serial;
	uint64_t peer_len;
	uint32_t worker;
	enum ring_wake wake;
	const uint32_t *waits;
};

/* Where the daemon finds the buffer. */
static int locate(struct msgs *ms, struct post *p)
{
	const struct side *sd = &p->side;
	struct prog_session *s = ms->s;
	int64_t lo = 0, hi = (int64_t)sd->total;
	uint64_t off;
	int err;

	if (sd->dt) {
		err = prog_dtype_span(sd->dt, sd->count, &lo, &hi);
		if (err)
			return err;
		if (prog_dtype_encoded_size(sd->dt) > PROG_DTYPE_PROGRAM_MAX)
			return -E2BIG;
	}
	p->loc = PROG_SQE_VA;
	p->addr = (uintptr_t)sd->p;
	if (!sd->total)
		return 0;
	/* item 0 may lie before what the type covers, and so before the region */
	if (!region_lookup(s, (char *)((uintptr_t)sd->p + (uint64_t)lo), (size_t)(hi - lo), &p->region,
			   &off) && (lo <= 0 || off >= (uint64_t)lo)) {
		p->loc = PROG_SQE_REGION;
		p->addr = off - (uint64_t)lo;
		return 0;
	}
	if (!sd->dt)
		p->pin = pin_use(s, sd->p, sd->total, p->kind == PROG_P2P_RECV);
	if (p->pin) {
		p->loc = PROG_SQE_REGION;
		p->region = p->pin->id;
		p->addr = (uint64_t)(sd->p - p->pin->addr);
		return 0;
	}
	p->region = 0;
	return s->features & PROG_FEAT_CMA || s->helper_running ? 0 : -EAGAIN;
}

static int side_of_buf(struct side *sd, const struct prog_buf *b)
{
	int err = op_side(sd, b->addr, b->type, b->count);

	return err ? err : sd->total > PROG_DTYPE_MAX_BYTES ? -EOVERFLOW : 0;
}

static void fill(struct msgs *ms, struct prog_msg *m, const struct post *p)
{
	struct prog_p2p_slot *sl = m->slot;
	const struct side *sd = &p->side;

	if (!++m->serial)
		m->serial = 1;
	sl->serial = m->serial;
	sl->kind = p->kind;
	sl->flags = p->flags;
	sl->loc = p->loc;
	sl->hints = p->hints;
	sl->region = p->region;
	sl->key = p->key;
	sl->addr = p->addr;
	sl->count = sd->count;
	sl->len = sd->total;
	sl->dtype = ~0ull;
	sl->dtype_len = 0;
	if (sd->dt) {
		/* offsets are those of the session's arena, of which ours is the end */
		sl->dtype = CLIENT_ARENA + m->program;
		sl->dtype_len = (uint32_t)prog_dtype_encode(sd->dt, ms->s->arena_mem + sl->dtype,
							    prog_dtype_encoded_size(sd->dt));
	}
	sl->peer_slot = p->peer_slot;
	sl->peer_serial = p->peer_serial;
	sl->peer_len = p->peer_len;
	sl->status = 0;
	sl->head_len = 0;
	sl->msg_len = 0;
	sl->moved = 0;
	__atomic_store_n(&sl->state, PROG_P2P_POSTED, __ATOMIC_RELEASE);
}

static int post(struct msgs *ms, struct post *p, struct prog_msg **out)
{
	struct prog_session *s = ms->s;
	uint64_t program = CLIENT_NO_ARENA;
	struct prog_msg *m;
	int err;

	err = locate(ms, p);
	if (err)
		return err;
	pthread_mutex_lock(&s->msg_lock);
	err = -ECONNRESET;
	if (session_lost(s))
		goto unlock;
	reap(ms, ms->free.n ? 1 : ms->left.n);
	err = -EAGAIN;
	if (ms->free.n && p->side.dt) {
		program = arena_alloc(&ms->arena, prog_dtype_encoded_size(p->side.dt));
		if (program == CLIENT_NO_ARENA) {
			reap(ms, ms->left.n);
			program = arena_alloc(&ms->arena, prog_dtype_encoded_size(p->side.dt));
		}
	}
	if (!ms->free.n || (p->side.dt && program == CLIENT_NO_ARENA)) {
		wake_for_left(ms);
		goto unlock;
	}
	m = pop(ms, &ms->free);
	m->program = program;
	m->pin = p->pin;
	fill(ms, m, p);
	if (ms->free.n < SLOTS_LOW && ms->left.n)
		p->wake = WAKE_NOW;
	PROG_PROBE_SIDE(msg_post, p->key.comm, p->key.src, p->key.dst, p->key.ord, p->side.total,
			p->kind == PROG_P2P_RECV);
	ring_push(s, &s->msg_rings[p->worker], p->worker, m->index, p->wake, p->waits);
	*out = m;
	err = 0;
unlock:
	pthread_mutex_unlock(&s->msg_lock);
	if (err)
		pin_unuse(s, p->pin);
	return err;
}

/* Why @w cannot carry messages. */
static int unusable(const struct prog_win *w)
{
	return w->s->p2p ? -EINVAL : -EOPNOTSUPP;
}

static const struct near *near_find(const struct msgs *ms, uint32_t rank)
{
	uint32_t lo = 0, hi = ms->nnear;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (ms->near[mid].rank == rank)
			return &ms->near[mid];
		if (ms->near[mid].rank < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

bool prog_msg_same_node(const struct prog_win *w, uint32_t rank)
{
	return w->msgs && near_find(w->msgs, rank);
}

void prog_msg_set_blocking(struct prog_win *w, uint32_t rank, bool yes)
{
	struct msgs *ms = w->msgs;

	if (!ms || rank >= ms->nranks)
		return;
	__atomic_store_n(&ms->waits[rank], yes, __ATOMIC_RELAXED);
	if (!session_lost(w->s))
		__atomic_store_n(&ms->peers[rank].blocking, yes, __ATOMIC_RELAXED);
}

bool prog_msg_leave(struct prog_win *w, uint32_t rank)
{
	struct msgs *ms = w->msgs;
	const struct near *near;
	struct memref at;
	uint8_t yes = 0;

	if (!ms || rank >= ms->nranks || session_lost(w->s) ||
	    __atomic_load_n(&ms->peers[rank].offload, __ATOMIC_RELAXED) ||
	    __atomic_load_n(&w->s->p2p->flags, __ATOMIC_RELAXED) & PROG_P2PA_ALWAYS)
		return false;
	near = near_find(ms, rank);
	if (near && near->waits) {
		/* what is read of a process that has gone is at worst wrong */
		at = mem_remote(near->pid, near->waits);
		return !mem_read(&at, ms->self, &yes, sizeof(yes)) && yes == 1;
	}
	/* what the last FIN said; so now and then there must be one */
	return __atomic_load_n(&ms->peers[rank].left, __ATOMIC_RELAXED) == 1 &&
	       __atomic_add_fetch(&ms->run[rank], 1, __ATOMIC_RELAXED) % LEAVE_RUN != 0;
}

const uint8_t *msgs_waits(const struct prog_win *w)
{
	const struct msgs *ms = w->s->msgs;

	return ms && ms->w == w ? ms->waits : NULL;
}

static void set_key(struct prog_p2p_key *to, const struct prog_msg_key *key)
{
	*to = (struct prog_p2p_key){
		.comm = key->comm,
		.src = key->src,
		.dst = key->dst,
		.tag = key->tag,
		.gen = key->gen,
		.ord = key->ord,
	};
}

int prog_msg_send(struct prog_win *w, const struct prog_msg_key *key, const struct prog_buf *b,
		  unsigned int flags, struct prog_msg_id *name, prog_msg **out)
{
	struct msgs *ms = w->msgs;
	struct post p = { .kind = PROG_P2P_SEND };
	const struct near *near;
	struct prog_msg *m;
	int err;

	if (!ms)
		return unusable(w);
	if (key->src != ms->self || key->dst >= ms->nranks || flags & ~(PROG_MSGF_SYNC | PROG_MSGF_EAGER | PROG_MSGF_HINT_BLOCKING))
		return -EINVAL;
	err = side_of_buf(&p.side, b);
	if (err)
		return err;
	set_key(&p.key, key);
	/* what is taken early may be gone from where it was when the receiver comes to copy it */
	near = near_find(ms, key->dst);
	if (flags & PROG_MSGF_SYNC)
		p.flags |= PROG_P2PF_SYNC;
	if (flags & PROG_MSGF_EAGER && !near)
		p.flags |= PROG_P2PF_EAGER;
	if (flags & PROG_MSGF_HINT_BLOCKING)
		p.hints |= PROG_P2PH_BLOCKING;
	p.worker = key->dst % ms->workers;
	p.wake = p.side.total < CLIENT_KICK_BYTES ? WAKE_SLEEPER : WAKE_NOW;
	err = post(ms, &p, &m);
	if (err)
		return err;
	*name = (struct prog_msg_id){
		.src = ms->self,
		.slot = m->index,
		.serial = m->serial,
		.len = p.side.total,
		.addr = near && !p.side.dt ? (uintptr_t)p.side.p : 0,
	};
	*out = m;
	return 0;
}

int prog_msg_recv(struct prog_win *w, const struct prog_msg_key *key, const struct prog_buf *b,
		  unsigned int flags, prog_msg **out)
{
	struct msgs *ms = w->msgs;
	struct post p = { .kind = PROG_P2P_RECV };
	int err = 0;

	if (!ms)
		return unusable(w);
	if (key->dst != ms->self || key->src >= ms->nranks || flags & ~(PROG_MSGF_DROP | PROG_MSGF_URGENT | PROG_MSGF_HINT_BLOCKING))
		return -EINVAL;
	if (flags & PROG_MSGF_DROP)
		p.flags |= PROG_P2PF_DROP;
	else
		err = side_of_buf(&p.side, b);
	if (err)
		return err;
	if (flags & PROG_MSGF_HINT_BLOCKING)
		p.hints |= PROG_P2PH_BLOCKING;
	set_key(&p.key, key);
	p.worker = ms->recv_ring;
	p.wake = flags & PROG_MSGF_URGENT ? WAKE_NOW : WAKE_NOT;
	p.waits = &ms->s->p2p->unmatched;
	return post(ms, &p, out);
}

int msgs_near(struct prog_session *s, uint32_t rank, struct near *out)
{
	const struct near *near;

	pthread_mutex_lock(&s->msg_lock);
	near = s->msgs && s->msgs->w->msgs ? near_find(s->msgs, rank) : NULL;
	if (near)
		*out = *near;
	pthread_mutex_unlock(&s->msg_lock);
	return near ? 0 : -ENOENT;
}

int near_alive(const struct near *near)
{
	struct memref probe = mem_remote(near->pid, near->probe);
	uint64_t value = 0;
	int err = mem_read(&probe, 0, &value, sizeof(value));

	return err ? err : value == near->value ? 0 : -ESRCH;
}

/*
 * Copy as much of @name as fits straight from its sender.  Its memory stays as it is until somebody says that
 * it has the message, which only we can: a RECV that the daemon matches would not be named here.  0: done.
 */
static int copy_near(const struct near *near, const struct prog_msg_id *name, const struct side *sd)
{
	struct memref from = mem_remote(near->pid, name->addr);
	uint64_t len = name->len < sd->total ? name->len : sd->total, n;
	char *buf;
	int err = 0;

	if (!sd->dt) {
		err = mem_read(&from, 0, sd->p, len);
	} else {
		buf = malloc(COPY_PART);
		if (!buf)
			return -ENOMEM;
		for (uint64_t off = 0; off < len && !err; off += n) {
			n = len - off < COPY_PART ? len - off : COPY_PART;
			err = mem_read(&from, (int64_t)off, buf, n);
			if (!err)
				err = prog_dtype_unpack(sd->p, sd->dt, sd->count, off, buf, n);
		}
		free(buf);
	}
	return err ? err : near_alive(near);
}

int prog_msg_recv_by_id(struct prog_win *w, const struct prog_msg_id *name, const struct prog_buf *b,
			bool whole, unsigned int flags, prog_msg **out)
{
	struct msgs *ms = w->msgs;
	struct post p = { .kind = PROG_P2P_RECV, .flags = PROG_P2PF_BY_ID, .wake = WAKE_NOW };
	const struct near *near = NULL;
	uint64_t fits;
	int err = 0;

	if (!ms)
		return unusable(w);
	if (name->src >= ms->nranks || !name->serial || flags & ~(PROG_MSGF_DROP | PROG_MSGF_URGENT | PROG_MSGF_HINT_BLOCKING))
		return -EINVAL;
	if (flags & PROG_MSGF_DROP)
		p.flags |= PROG_P2PF_DROP;
	else
		err = side_of_buf(&p.side, b);
	if (err)
		return err;
	if (flags & PROG_MSGF_HINT_BLOCKING)
		p.hints |= PROG_P2PH_BLOCKING;
	if (!whole)
		p.flags |= PROG_P2PF_HEAD;
	fits = name->len < p.side.total ? name->len : p.side.total;
	if (whole && flags & PROG_MSGF_URGENT && !(flags & PROG_MSGF_DROP) && name->addr && fits)
		near = near_find(ms, name->src);
	if (near && !copy_near(near, name, &p.side)) {
		p.flags |= PROG_P2PF_DROP | PROG_P2PF_COPIED;
		p.side = (struct side){ 0 };
	} else {
		near = NULL;
	}
	p.key.src = name->src;
	p.key.dst = ms->self;
	p.peer_slot = name->slot;
	p.peer_serial = name->serial;
	p.peer_len = name->len;
	p.worker = ms->recv_ring;
	err = post(ms, &p, out);
	if (err || !near)
		return err;
	(*out)->copied = true;
	(*out)->len = name->len;
	(*out)->moved = fits;
	return 0;
}

/* ---- completion --------------------------------------------------------------------------------- */

static void give_result(const struct prog_msg *m, uint32_t state, struct prog_msg_result *r)
{
	const struct prog_p2p_slot *sl = m->slot;

	carried_acquire();
	if (!r)
		return;
	if (m->copied) {
		*r = (struct prog_msg_result){ .len = m->len, .moved = m->moved };
		return;
	}
	*r = (struct prog_msg_result){ .status = -ECANCELED };
	if (state != PROG_P2P_DONE)
		return;
	r->status = sl->status > 0 ? -EIO : sl->status;
	if (sl->kind == PROG_P2P_RECV) {
		r->len = sl->msg_len;
		r->moved = sl->moved + sl->head_len;
	}
}

static bool has_ended(void *arg)
{
	const struct prog_msg *m = arg;

	return m->copied || state_of(m) >= PROG_P2P_DONE;
}

int prog_msg_test(struct prog_win *w, prog_msg *m, struct prog_msg_result *r)
{
	struct prog_session *s = w->s;
	uint32_t state = m->copied ? PROG_P2P_DONE : state_of(m);

	if (state < PROG_P2P_DONE) {
		/* who goes on to sleep must not miss what happens from here on */
		__atomic_store_n(&s->event_seen, __atomic_load_n(&s->hdr->event, __ATOMIC_SEQ_CST),
				 __ATOMIC_RELAXED);
		state = state_of(m);
	}
	if (state < PROG_P2P_DONE)
		return session_lost(s) ? -ECONNRESET : 0;
	give_result(m, state, r);
	return 1;
}

int prog_msg_wait(struct prog_win *w, prog_msg *m, struct prog_msg_result *r)
{
	struct prog_session *s = w->s;
	int err = wait_until(s, &s->hdr->event, &s->hdr->waiters, has_ended, m);

	if (!err)
		give_result(m, state_of(m), r);
	return err;
}

struct patience {
	struct prog_msg *m;
	uint64_t end;			/* ns */
};

static bool has_ended_or_waited(void *arg)
{
	const struct patience *p = arg;

	return has_ended(p->m) || clock_ns() >= p->end;
}

int prog_msg_wait_for(struct prog_win *w, prog_msg *m, struct prog_msg_result *r, uint64_t timeout_ns)
{
	struct patience p = { .m = m, .end = clock_ns() + timeout_ns };
	struct prog_session *s = w->s;
	int err = wait_until(s, &s->hdr->event, &s->hdr->waiters, has_ended_or_waited, &p);

	if (err)
		return err;
	if (!has_ended(m))
		return -ETIMEDOUT;
	give_result(m, state_of(m), r);
	return 0;
}

size_t prog_msg_head(struct prog_win *w, const prog_msg *m, const void **head)
{
	const struct prog_p2p_slot *sl = m->slot;

	*head = sl->head;
	if (m->copied || state_of(m) != PROG_P2P_DONE)
		return 0;
	return sl->head_len < PROG_P2P_HEAD ? sl->head_len : PROG_P2P_HEAD;
}

/* ---- the daemon is lost --------------------------------------------------------------------------- */

/*
 * A copy of the message @name in @pool, of @size bytes; NULL: it is not there, or there is no memory.  The daemon
 * may only be thought to be lost, and still be at it: then the entry goes before anything else comes to that place.
 */
static void *copy_pooled(const struct prog_pool_dir *pool, uint64_t size, const struct prog_msg_id *name)
{
	uint64_t most = (size - sizeof(*pool)) / sizeof(pool->entry[0]);
	uint32_t count;

	if (__atomic_load_n(&pool->magic, __ATOMIC_ACQUIRE) != PROG_POOL_MAGIC)
		return NULL;
	count = pool->count < most ? pool->count : (uint32_t)most;
	for (uint32_t i = 0; i < count; i++) {
		const struct prog_pool_entry *e = &pool->entry[i];
		void *copy;

		if (__atomic_load_n(&e->serial, __ATOMIC_ACQUIRE) != name->serial || e->src != name->src ||
		    e->slot != name->slot)
			continue;
		if (e->len != name->len || e->off > size || e->len > size - e->off)
			return NULL;
		copy = malloc(name->len + 1);
		if (!copy)
			return NULL;
		memcpy(copy, (const char *)pool + e->off, name->len);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (__atomic_load_n(&e->serial, __ATOMIC_RELAXED) == name->serial)
			return copy;
		free(copy);
		return NULL;
	}
	return NULL;
}

int prog_msg_rescue(struct prog_win *w, const struct prog_msg_id *name, void **copy)
{
	struct msgs *ms = w->msgs;
	void *pool;

	*copy = NULL;
	if (!ms)
		return unusable(w);
	if (!session_lost(w->s) || !name->serial)
		return -EINVAL;
	if (ms->pool_fd < 0 || ms->pool_size < sizeof(struct prog_pool_dir))
		return -ENOENT;
	pool = mmap(NULL, ms->pool_size, PROT_READ, MAP_SHARED, ms->pool_fd, 0);
	if (pool == MAP_FAILED)
		return -errno;
	*copy = copy_pooled(pool, ms->pool_size, name);
	munmap(pool, ms->pool_size);
	return *copy ? 0 : -ENOENT;
}

/* ---- giving back --------------------------------------------------------------------------------- */

/* Under msg_lock; the daemon reads the flags when it takes the entry. */
static void withdraw(struct msgs *ms, struct prog_msg *m, bool all, enum ring_wake wake)
{
	struct ring *r = &ms->s->msg_rings[ms->recv_ring];
	uint8_t flags = m->slot->flags & (uint8_t)~PROG_P2PF_WITHDRAW_ALL;

	m->slot->flags = all ? flags | PROG_P2PF_WITHDRAW_ALL : flags;
	m->withdrawing = true;
	m->withdrawn_at = r->sq->tail + 1;
	ring_push(ms->s, r, ms->recv_ring, m->index | PROG_P2P_WITHDRAW, wake, NULL);
}

void prog_msg_free(struct prog_win *w, prog_msg *m)
{
	struct msgs *ms = w->msgs;
	struct prog_session *s = w->s;

	if (!m)
		return;
	pthread_mutex_lock(&s->msg_lock);
	if (is_over(ms, m)) {
		release(ms, m);
	} else {
		if (m->slot->kind == PROG_P2P_RECV && !(m->slot->flags & PROG_P2PF_DROP) &&
		    state_of(m) < PROG_P2P_DONE && !session_lost(s))
			withdraw(ms, m, false, WAKE_NOT);
		push(ms, &ms->left, m);
	}
	pthread_mutex_unlock(&s->msg_lock);
}

struct answer {
	struct prog_msg *m;
	uint32_t refused;		/* before */
};

static bool is_answered(void *arg)
{
	struct answer *a = arg;

	return __atomic_load_n(&a->m->slot->refused, __ATOMIC_ACQUIRE) != a->refused ||
	       state_of(a->m) >= PROG_P2P_DONE;
}

int prog_msg_withdraw(struct prog_win *w, prog_msg *m)
{
	struct msgs *ms = w->msgs;
	struct prog_session *s = w->s;
	struct answer a = { .m = m };
	int err = 0;

	if (!ms)
		return unusable(w);
	if (m->slot->kind != PROG_P2P_RECV || m->slot->flags & PROG_P2PF_BY_ID)
		return -EINVAL;
	a.refused = __atomic_load_n(&m->slot->refused, __ATOMIC_ACQUIRE);
	pthread_mutex_lock(&s->msg_lock);
	if (state_of(m) < PROG_P2P_DONE) {
		if (session_lost(s))
			err = -ECONNRESET;
		else
			withdraw(ms, m, true, WAKE_NOW);
	}
	pthread_mutex_unlock(&s->msg_lock);
	if (!err)
		err = wait_until(s, &s->hdr->event, &s->hdr->waiters, is_answered, &a);
	if (err)
		return err;
	return state_of(m) == PROG_P2P_WITHDRAWN ? 0 : -EBUSY;
}

/* ---- thresholds --------------------------------------------------------------------------------- */

uint64_t prog_msg_threshold(struct prog_win *w, uint32_t rank)
{
	const struct msgs *ms = w->msgs;
	uint64_t from, min;

	if (!ms || rank >= ms->nranks || session_lost(w->s))
		return UINT64_MAX;
	from = __atomic_load_n(&ms->peers[rank].offload, __ATOMIC_RELAXED);
	if (!from)
		from = __atomic_load_n(&w->s->p2p->offload_default, __ATOMIC_RELAXED);
	min = __atomic_load_n(&w->s->p2p->offload_min, __ATOMIC_RELAXED);
	return from < min ? min : from;
}

uint64_t prog_msg_min(struct prog_win *w)
{
	return w->msgs ? __atomic_load_n(&w->s->p2p->offload_min, __ATOMIC_RELAXED) : UINT64_MAX;
}

void prog_msg_account(struct prog_win *w, uint32_t rank, bool send, uint64_t bytes, uint64_t away_ns)
{
	const struct msgs *ms = w->msgs;
	struct prog_p2p_peer *p;

	if (!ms || rank >= ms->nranks || session_lost(w->s))
		return;
	p = &ms->peers[rank];
	__atomic_fetch_add(send ? &p->sends : &p->recvs, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&p->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&p->idle_ns, away_ns, __ATOMIC_RELAXED);
}

void prog_msg_account_miss(struct prog_win *w, uint32_t rank, bool late)
{
	const struct msgs *ms = w->msgs;

	if (!ms || rank >= ms->nranks || session_lost(w->s))
		return;
	__atomic_fetch_add(late ? &ms->peers[rank].late : &ms->peers[rank].withdrawn, 1, __ATOMIC_RELAXED);
}

/* ---- looking ------------------------------------------------------------------------------------ */

void prog_msg_set_look(struct prog_win *w, void (*look)(void *arg), void *arg)
{
	struct prog_session *s = w->s;

	if (!w->msgs)
		return;
	pthread_mutex_lock(&s->look_lock);
	s->look = look;
	s->look_arg = arg;
	pthread_mutex_unlock(&s->look_lock);
}

void prog_msg_candidates(struct prog_win *w, uint32_t n)
{
	struct prog_session *s = w->s;
	uint32_t before;

	if (!w->msgs || session_lost(s))
		return;
	/* Dekker with the daemon: it counts a message as unmatched, then looks whether there are candidates */
	before = __atomic_exchange_n(&s->p2p->candidates, n, __ATOMIC_SEQ_CST);
	if (n <= before || !__atomic_load_n(&s->p2p->unmatched, __ATOMIC_SEQ_CST))
		return;
	futex_post(&s->helper_ring->event, &s->helper_ring->need_wakeup);
}

uint64_t msgs_look(struct prog_session *s, bool fresh)
{
	uint64_t now;

	if (!s->p2p || session_lost(s) || !__atomic_load_n(&s->p2p->candidates, __ATOMIC_SEQ_CST) ||
	    !__atomic_load_n(&s->p2p->unmatched, __ATOMIC_SEQ_CST)) {
		s->look_nap = 0;
		return 0;
	}
	now = clock_ns();
	if (fresh || !s->look_nap)
		s->look_nap = LOOK_FIRST_NS;
	/* the event is also that of jobs, of which there can be many */
	if (now - s->look_last < s->look_nap)
		return s->look_nap - (now - s->look_last);
	pthread_mutex_lock(&s->look_lock);
	if (s->look)
		s->look(s->look_arg);
	pthread_mutex_unlock(&s->look_lock);
	s->look_last = clock_ns();
	if (s->look_nap < LOOK_MAX_NS)
		s->look_nap *= 2;
	return s->look_nap;
}

/* ---- open and close ------------------------------------------------------------------------------ */

int msgs_open(struct prog_win *w)
{
	struct prog_session *s = w->s;
	uint32_t i, serial;
	struct msgs *ms;
	int err;

	if (!s->p2p)
		return -EOPNOTSUPP;
	ms = calloc(1, sizeof(*ms));
	if (!ms)
		return -ENOMEM;
	ms->waits = calloc(w->nranks, sizeof(*ms->waits));
	ms->run = calloc(w->nranks, sizeof(*ms->run));
	if (!ms->waits || !ms->run) {
		err = -ENOMEM;
		goto free_waits;
	}
	err = arena_init(&ms->arena, CLIENT_MSG_ARENA);
	if (err)
		goto free_waits;
	ms->s = s;
	ms->w = w;
	ms->pool_fd = -1;
	ms->self = w->rank;
	ms->nranks = w->nranks;
	ms->workers = s->workers;
	ms->recv_ring = w->rank % s->workers;
	ms->peers = (struct prog_p2p_peer *)(void *)w->wc.peers;
	/* what was left of an earlier window is not to be taken for this one's */
	serial = randombytes_random();
	for (i = 0; i < PROG_P2P_SLOTS; i++) {
		struct prog_msg *m = &ms->msg[i];

		m->index = i;
		m->slot = (struct prog_p2p_slot *)(void *)((char *)s->seg + s->p2p->slot_off) + i;
		m->serial = serial;
		m->program = CLIENT_NO_ARENA;
		push(ms, &ms->free, m);
	}
	pthread_mutex_lock(&s->msg_lock);
	err = s->msgs ? -EEXIST : 0;
	if (!err)
		s->msgs = ms;
	pthread_mutex_unlock(&s->msg_lock);
	if (!err)
		return 0;
	arena_destroy(&ms->arena);
free_waits:
	free(ms->run);
	free(ms->waits);
	free(ms);
	return err;
}

/* Memory for messages that are taken before they are matched; without it none are. */
static void add_pool(struct msgs *ms)
{
	struct prog_session *s = ms->s;
	uint64_t size = __atomic_load_n(&s->p2p->pool_size, __ATOMIC_ACQUIRE);
	struct prog_ctrl_region_add req = { .size = size };
	struct prog_ctrl_slot rep = { 0 };
	int fd, err;
	void *mem;

	if (!size || size > PROG_DTYPE_MAX_BYTES)
		return;
	err = client_memfd("asyncprog-early", size, &fd, &mem);
	if (!err) {
		munmap(mem, size);
		err = session_request(s, PROG_CTRL_REGION_ADD, &req, sizeof(req), &fd, 1, &rep, sizeof(rep),
				      NULL, NULL);
		if (err)
			close(fd);
	}
	if (err) {
		rep.reason[PROG_REASON_SIZE - 1] = '\0';
		prog_log(PROG_LOG_INFO, "session %u: no memory for early messages: %s", s->id,
			 rep.reason[0] ? rep.reason : strerror(-err));
		return;
	}
	ms->pool_fd = fd;
	ms->pool_size = size;
	ms->pool_region = rep.slot + 1;
	__atomic_store_n(&s->p2p->pool_region, rep.slot + 1, __ATOMIC_RELEASE);
}

static int find_near(struct msgs *ms, near_fn *is_near)
{
	struct prog_win *w = ms->w;
	uint32_t i, n = 0;
	struct near near;

	for (i = 0; i < w->nranks; i++)
		n += w->node_here[i];
	ms->near = calloc(n + 1, sizeof(*ms->near));
	if (!ms->near)
		return -ENOMEM;
	for (i = 0; i < w->nranks; i++)
		if (is_near(w, i, &near))
			ms->near[ms->nnear++] = near;
	return 0;
}

int msgs_start(struct prog_win *w, near_fn *is_near)
{
	int err;

	if (w->msgs)
		return 0;
	err = find_near(w->s->msgs, is_near);
	if (err)
		return err;
	add_pool(w->s->msgs);
	pthread_mutex_lock(&w->s->msg_lock);
	w->msgs = w->s->msgs;
	pthread_mutex_unlock(&w->s->msg_lock);
	return session_lost(w->s) ? -ECONNRESET : 0;
}

static bool is_owner(const struct prog_win *w)
{
	return w->s->msgs && w->s->msgs->w == w;
}

void msgs_quiesce(struct prog_win *w)
{
	struct prog_session *s = w->s;

	if (!is_owner(w))
		return;
	pthread_mutex_lock(&s->look_lock);
	s->look = NULL;
	pthread_mutex_unlock(&s->look_lock);
	if (!session_lost(s))
		__atomic_store_n(&s->p2p->candidates, 0, __ATOMIC_SEQ_CST);
}

void msgs_close(struct prog_win *w)
{
	struct prog_session *s = w->s;
	struct msgs *ms = s->msgs;

	if (!is_owner(w))
		return;
	if (ms->pool_region && !session_lost(s)) {
		struct prog_ctrl_slot req = { .slot = ms->pool_region - 1 }, rep;

		__atomic_store_n(&s->p2p->pool_region, 0, __ATOMIC_RELEASE);
		/* nothing to be done about a failure: the daemon ends the region with the session */
		(void)session_request(s, PROG_CTRL_REGION_DEL, &req, sizeof(req), NULL, 0, &rep, sizeof(rep),
				      NULL, NULL);
	}
	w->msgs = NULL;
	pthread_mutex_lock(&s->msg_lock);
	s->msgs = NULL;
	pthread_mutex_unlock(&s->msg_lock);
	if (ms->pool_fd >= 0)
		close(ms->pool_fd);
	arena_destroy(&ms->arena);
	free(ms->run);
	free(ms->waits);
	free(ms->near);
	free(ms);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Two-sided messages: slots, posting them and giving them back. */
#include <errno.h>

#include <libprogbase/probe.h>

#include "msg.h"
#include "stream.h"

#define LEAVES		MSGS_LEAVE(UINT8_MAX)
#define RECV_CALL	(PROG_MSGF_DROP | PROG_MSGF_URGENT | PROG_MSGF_HINT_BLOCKING)	/* what calls of receives may say */
#define SLOTS_LOW	(PROG_P2P_SLOTS / 4)	/* fewer free ones: the daemon is woken for those left behind */

/* ---- slots -------------------------------------------------------------------------------------- */

/* Has the daemon not come to its last WITHDRAW yet? */
static bool is_leaving(const struct msgs *ms, const struct prog_msg *m)
{
	const struct prog_sq *sq = ms->s->msg_rings[ms->recv_ring].sq;

	return m->withdrawing && (int32_t)(__atomic_load_n(&sq->head, __ATOMIC_ACQUIRE) - m->withdrawn_at) < 0;
}

/* Is the daemon through with the slot? */
static bool is_over(const struct msgs *ms, const struct prog_msg *m)
{
	return msg_state(m) >= PROG_P2P_DONE && !is_leaving(ms, m);
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
	msg_push(ms, &ms->free, m);
}

/* Look at @n of the slots left behind, those not looked at for longest. */
static void reap(struct msgs *ms, uint32_t n)
{
	for (; n && ms->left.n; n--) {
		struct prog_msg *m = msg_pop(ms, &ms->left);

		if (is_over(ms, m))
			release(ms, m);
		else
			msg_push(ms, &ms->left, m);
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
	uint32_t leave;			/* so many slots to others */
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
	reap(ms, ms->free.n > p->leave ? 1 : ms->left.n);
	err = -EAGAIN;
	if (ms->free.n > p->leave && p->side.dt) {
		program = arena_alloc(&ms->arena, prog_dtype_encoded_size(p->side.dt));
		if (program == CLIENT_NO_ARENA) {
			reap(ms, ms->left.n);
			program = arena_alloc(&ms->arena, prog_dtype_encoded_size(p->side.dt));
		}
	}
	if (ms->free.n <= p->leave || (p->side.dt && program == CLIENT_NO_ARENA)) {
		wake_for_left(ms);
		goto unlock;
	}
	m = msg_pop(ms, &ms->free);
	m->program = program;
	m->pin = p->pin;
	fill(ms, m, p);
	if (ms->free.n < p->leave + SLOTS_LOW && ms->left.n)
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

/* The buffer, unless the message is dropped, and what of @flags the daemon has to know, if all of them are @allowed. */
static int set_buf(struct post *p, const struct prog_buf *b, unsigned int flags, unsigned int allowed)
{
	int err;

	if (flags & ~(allowed | MSGS_COLL | MSGS_QUIET | LEAVES))
		return -EINVAL;
	p->leave = flags & MSGS_COLL ? (flags & LEAVES) / MSGS_LEAVE(1) : MSGS_RESERVED;
	p->flags |= (flags & PROG_MSGF_SYNC ? PROG_P2PF_SYNC : 0) | (flags & PROG_MSGF_EAGER ? PROG_P2PF_EAGER : 0) |
		    (flags & PROG_MSGF_DROP ? PROG_P2PF_DROP : 0);
	p->hints = (flags & PROG_MSGF_HINT_BLOCKING ? PROG_P2PH_BLOCKING : 0) | (flags & MSGS_QUIET ? PROG_P2PH_QUIET : 0);
	if (flags & PROG_MSGF_DROP)
		return 0;
	err = op_side(&p->side, b->addr, b->type, b->count);
	return err ? err : p->side.total > PROG_DTYPE_MAX_BYTES ? -EOVERFLOW : 0;
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
	const struct same_node *same;
	struct prog_msg *m;
	int err;

	if (!ms)
		return msgs_unusable(w);
	if (key->src != ms->self || key->dst >= ms->nranks)
		return -EINVAL;
	same = msg_same_node_find(ms, key->dst);
	err = set_buf(&p, b, flags, PROG_MSGF_SYNC | PROG_MSGF_EAGER | PROG_MSGF_HINT_BLOCKING);
	if (err)
		return err;
	/* what is taken eagerly may be gone from where it was when the receiver comes to copy it */
	if (same)
		p.flags &= (uint8_t)~PROG_P2PF_EAGER;
	set_key(&p.key, key);
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
		.addr = same && !p.side.dt ? (uintptr_t)p.side.p : 0,
	};
	*out = m;
	return 0;
}

int prog_msg_recv(struct prog_win *w, const struct prog_msg_key *key, const struct prog_buf *b,
		  unsigned int flags, prog_msg **out)
{
	struct msgs *ms = w->msgs;
	struct post p = { .kind = PROG_P2P_RECV, .wake = flags & PROG_MSGF_URGENT ? WAKE_NOW : WAKE_NOT };
	int err;

	if (!ms)
		return msgs_unusable(w);
	if (key->dst != ms->self || key->src >= ms->nranks)
		return -EINVAL;
	set_key(&p.key, key);
	p.worker = ms->recv_ring;
	p.waits = flags & MSGS_QUIET ? NULL : &ms->s->p2p->unmatched;
	err = set_buf(&p, b, flags, RECV_CALL);
	return err ? err : post(ms, &p, out);
}

uint32_t msgs_unreceived(const struct prog_win *w)
{
	return __atomic_load_n(&w->s->p2p->unmatched, __ATOMIC_RELAXED);
}

void msgs_look_now(struct prog_win *w)
{
	struct msgs *ms = w->msgs;
	struct prog_session *s = ms->s;

	pthread_mutex_lock(&s->msg_lock);
	if (!session_lost(s))
		ring_look(s, &s->msg_rings[ms->recv_ring], ms->recv_ring, &s->p2p->unmatched);
	pthread_mutex_unlock(&s->msg_lock);
}

int prog_msg_recv_by_id(struct prog_win *w, const struct prog_msg_id *name, const struct prog_buf *b,
			bool whole, unsigned int flags, prog_msg **out)
{
	struct msgs *ms = w->msgs;
	struct post p = { .kind = PROG_P2P_RECV, .flags = PROG_P2PF_BY_ID, .wake = WAKE_NOW };
	const struct same_node *same = NULL;
	uint64_t fits;
	int err;

	if (!ms)
		return msgs_unusable(w);
	if (name->src >= ms->nranks || !name->serial)
		return -EINVAL;
	err = set_buf(&p, b, flags, RECV_CALL);
	if (err)
		return err;
	if (!whole)
		p.flags |= PROG_P2PF_HEAD;
	fits = name->len < p.side.total ? name->len : p.side.total;
	if (whole && flags & PROG_MSGF_URGENT && !(flags & PROG_MSGF_DROP) && name->addr && fits)
		same = msg_same_node_find(ms, name->src);
	if (same && !msg_same_node_copy(same, name, &p.side)) {
		p.flags |= PROG_P2PF_DROP | PROG_P2PF_COPIED;
		p.side = (struct side){ 0 };
	} else {
		same = NULL;
	}
	p.key.src = name->src;
	p.key.dst = ms->self;
	p.peer_slot = name->slot;
	p.peer_serial = name->serial;
	p.peer_len = name->len;
	p.worker = ms->recv_ring;
	err = post(ms, &p, out);
	if (err || !same)
		return err;
	(*out)->copied = true;
	(*out)->len = name->len;
	(*out)->moved = fits;
	return 0;
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

void msgs_withdraw(struct prog_win *w, struct prog_msg *m)
{
	struct prog_session *s = w->s;

	if (!m)
		return;
	pthread_mutex_lock(&s->msg_lock);
	if (!m->withdrawing && msg_state(m) < PROG_P2P_DONE && !session_lost(s))
		withdraw(w->msgs, m, false, WAKE_NOW);
	pthread_mutex_unlock(&s->msg_lock);
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
		    msg_state(m) < PROG_P2P_DONE && !is_leaving(ms, m) && !session_lost(s))
			withdraw(ms, m, false, WAKE_NOT);
		msg_push(ms, &ms->left, m);
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
	       msg_state(a->m) >= PROG_P2P_DONE;
}

int prog_msg_withdraw(struct prog_win *w, prog_msg *m)
{
	struct msgs *ms = w->msgs;
	struct prog_session *s = w->s;
	struct answer a = { .m = m };
	int err = 0;

	if (!ms)
		return msgs_unusable(w);
	if (m->slot->kind != PROG_P2P_RECV || m->slot->flags & PROG_P2PF_BY_ID)
		return -EINVAL;
	a.refused = __atomic_load_n(&m->slot->refused, __ATOMIC_ACQUIRE);
	pthread_mutex_lock(&s->msg_lock);
	if (msg_state(m) < PROG_P2P_DONE) {
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
	return msg_state(m) == PROG_P2P_WITHDRAWN ? 0 : -EBUSY;
}

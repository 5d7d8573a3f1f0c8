// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Collectives: schedules of messages, copies and reductions (coll_algo.h), and the thread that goes through them.
 *
 * Messages are those of msg.c: their keys have a negative tag, which none of the caller's has, so they match nobody else's.
 * Whoever is here moves all collectives on: the thread, when the daemon has news; a caller that posts one, for its first
 * messages; one that waits, in the thread's place, which then need not be woken.
 *
 * Something that fails at a member (no memory, another length than the others have) must neither leave them waiting nor let
 * them take what is wrong.  So that member goes through the rest of its schedule all the same: it takes no data any more, and
 * what it sends has a wrong length, which is how the others learn of it, and pass it on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>
#include <libprogbase/reduce.h>
#include <libprogbase/thread.h>

#include "coll_parts.h"
#include "coll_peers.h"
#include "coll_report.h"
#include "colls.h"
#include "msg.h"

/*
 * Strands of one collective at the same time.  A message of one is received in that of the same number, and they begin in the order
 * of their numbers: so some are enough.  Those of neighbours have one message each, in an order of their own.
 */
#define STRANDS		4u
#define EDGES		64u		/* the oldest one always has so many slots */
#define ACTIVE_MAX	64u		/* collectives at the same time; the oldest of an order always is, see same_order() */
#define SHARED_MAX	((MSGS_RESERVED - MSGS_TALK) * 2 / 3)	/* slots of all collectives, but for the oldest ones */
_Static_assert(MSGS_RESERVED - MSGS_TALK - SHARED_MAX >= EDGES, "EDGES: more than are left of the reserved slots");
_Static_assert(3 * COLL_TALKS_MAX + COLL_EARS_MAX + COLL_REPLIES_MAX <= MSGS_TALK, "MSGS_TALK: less than coll_peers.c has");
#define FOR_RECEIVES	32u		/* slots that are for receives, if there are any to be posted */
#define RESERVE_TMP	1024u		/* bytes of COLL_TMP that may be the reserve's */
#define RETRY_NS	1000000u	/* there was no slot */
#define CHECK_NS	100000000u	/* is the daemon there? */
#define IDLE_NS		1000000000u	/* does anybody ask? */
#define HOLD_NS		CHECK_NS	/* that one is held whose caller does not come */
#define ASK_AT		2u		/* looks at a round that waits, and then its members are asked for; */
#define ASK_EVERY	8u		/* again after so many */
#define LOOSE_BYTES	512u		/* of a message that goes with its announcement */
#define LOOSE_MAX	32u
#define WARN_NS		10000000000u	/* an end that takes so long is said */
#define OPERANDS	4096u		/* bytes that are reduced at a time where both orders need care */

struct strand {
	bool busy;
	uint8_t nsteps, nmsgs;
	uint8_t to_post, open;		/* bits: messages not posted yet, posted and not ended */
	uint8_t leaving, given_up;	/* bits of open ones: withdrawn, of which the daemon still says what became; for good */
	uint8_t looks;			/* that it has been waiting in this round */
	uint32_t number, round;
	struct coll_step step[COLL_STEPS_MAX];
	prog_msg *msg[COLL_STEPS_MAX];
};

_Static_assert(COLL_STEPS_MAX <= 8, "struct strand: more steps than bits");

/* What COLL_TMP is. */
struct tmp {
	struct tmp *next;
	_Alignas(16) unsigned char mem[];
};

/* A short message that was sent from here, so that its collective need not wait until it is received: that takes as long again. */
struct loose {
	prog_msg *m;			/* NULL: free */
	uint32_t to;			/* rank */
	uint8_t looks;			/* that it has been waiting; those at rounds are counted likewise */
	struct coll_question what;
	unsigned char data[LOOSE_BYTES];
};

enum phase { QUEUED, FIRST, STRANDS_GO, LAST, ENDED };

struct prog_coll {
	struct prog_coll *next, *prev;
	struct coll_mark mark;
	struct prog_coll_cfg cfg;
	struct coll_limits limits;
	uint32_t same;			/* see coll_call() */
	uint32_t kind;			/* in the keys of messages */
	unsigned char *buf[3];		/* by enum coll_buf */
	struct tmp *tmp;
	reduce_fn *wide;		/* of a type with a gap */
	uint8_t phase;			/* enum phase; under lock */
	bool oldest;			/* of its order, among the active ones */
	bool yields;			/* it gave receives back; others post first */
	uint64_t held_until;		/* ns; 0: it is not held; under lock */
	uint32_t nstrands, next_strand;
	int status;
	uint32_t ended;			/* atomic */
	uint32_t nrun;
	struct strand strand[];		/* [nrun] */
};

struct colls {
	struct colls *next, *prev;	/* of the process; under all_lock */
	struct prog_session *s;
	struct prog_win *w;
	pthread_mutex_t lock;
	/* under lock */
	struct prog_coll *queued, *active;
	uint32_t nactive;
	uint32_t nheld;			/* of those that are queued */
	uint64_t held_due;		/* ns; none of them longer than until then */
	uint32_t in_use, nrecvs;	/* message slots; of receives */
	bool blocked, freed;		/* some wait for others' slots; there are some */
	uint32_t short_recvs;		/* collectives that found no slot for a receive */
	bool short_send;		/* some found none for what they send */
	bool yielding;			/* some have given receives back */
	bool came;			/* a message has ended since make_room() */
	uint64_t room_at, room_wait;	/* ns: when it is time for it again; how long that was */
	bool fresh;			/* some that are queued may have become active */
	bool retry;			/* something could not be posted */
	bool receives;			/* some were posted, of which the daemon has not been told */
	struct coll_report report;
	uint32_t lent;			/* callers that wait in the thread's place */
	bool running;			/* there is a thread */
	bool warned;			/* there could not be one */
	bool on_event;			/* it sleeps, or is about to, on the daemon's event, and is counted there */
	uint64_t patience;		/* ns: how long it does */
	bool exit;
	pthread_t thread;
	struct coll_peers peers;
	struct tmp *kept;		/* what the daemon may write to until it has freed the window */
	struct loose loose[LOOSE_MAX];
	uint32_t loose_next;		/* place; in turn, as they end in about the order in which they were sent */
	bool loose_new;			/* some were sent since nobody looked whether there are any */
	uint32_t word;			/* futex; atomic: what it sleeps on when it is idle */
};

static struct colls *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- one step ---------------------------------------------------------------------------------- */

static void fail(struct prog_coll *c, int err)
{
	if (!c->status)
		c->status = err;
}

static void *at(const struct prog_coll *c, const struct coll_ref *r)
{
	/* where parts are given by their addresses, the buffer is NULL */
	return (void *)((uintptr_t)c->buf[r->buf] + (uintptr_t)r->off);
}

/* Is `a op b' something else than `b op a' where numbers compare equal, or do not compare? */
static bool order_matters(unsigned int op)
{
	return op == PROG_OP_MIN || op == PROG_OP_MAX;
}

static void reduce(const struct prog_coll *c, unsigned char *a, unsigned char *b, uint64_t bytes, bool left)
{
	const struct prog_coll_cfg *cfg = &c->cfg;
	unsigned char own[OPERANDS];
	uint64_t each = cfg->desc.elem, part = OPERANDS / each * each, n;

	if (c->wide) {		/* the lower index of equal values, in either order */
		c->wide(a, b, bytes / each);
		return;
	}
	if (left || !order_matters(cfg->op)) {
		reduce_apply(cfg->op, cfg->type, a, b, bytes / each);
		return;
	}
	for (; bytes; bytes -= n, a += n, b += n) {
		n = bytes < part ? bytes : part;
		memcpy(own, b, n);
		reduce_apply(cfg->op, cfg->type, own, a, n / each);
		memcpy(a, own, n);
	}
}

static void local_step(struct prog_coll *c, const struct coll_step *p)
{
	if (c->status || !p->bytes)
		return;
	switch (p->op) {
	case COLL_COPY:
		memmove(at(c, &p->a), at(c, &p->b), p->bytes);
		break;
	case COLL_OP_LEFT:
		reduce(c, at(c, &p->a), at(c, &p->b), p->bytes, true);
		break;
	case COLL_OP_RIGHT:
		reduce(c, at(c, &p->a), at(c, &p->b), p->bytes, false);
		break;
	}
}

/* Where a message of @bytes can be sent from; NULL: from where it is, and it has to be waited for. */
static struct loose *loose_place(struct colls *cs, uint64_t bytes)
{
	struct loose *l = &cs->loose[cs->loose_next];

	if (bytes > LOOSE_BYTES || (l->m && msg_state(l->m) < PROG_P2P_DONE))
		return NULL;
	prog_msg_free(cs->w, l->m);
	l->m = NULL;
	return l;
}

/*
 * *@m is NULL if it needs not be waited for.  What others send is received in the end however few slots are for that, if there are any,
 * but what is sent may stay.
 */
static int post_send(struct colls *cs, const struct prog_coll *c, const struct prog_msg_key *key, struct prog_buf *b, prog_msg **m)
{
	uint32_t leave = cs->nrecvs < FOR_RECEIVES ? FOR_RECEIVES - cs->nrecvs : 0;
	struct loose *l = loose_place(cs, b->count);
	struct prog_msg_id id;
	int err;

	if (l) {
		memcpy(l->data, b->addr, b->count);
		b->addr = l->data;
	}
	err = prog_msg_send(cs->w, key, b, PROG_MSGF_EAGER | MSGS_COLL | MSGS_LEAVE(leave) | (l ? MSGS_QUIET : 0), &id, m);
	if (err || !l)
		return err;
	l->m = *m;
	l->to = key->dst;
	l->looks = 0;
	l->what = (struct coll_question){
		.comm = key->comm, .number = key->ord, .same = c->same, .msg = (uint32_t)(-1 - key->tag) | COLL_ASKER_SENDS,
	};
	cs->loose_new = true;
	*m = NULL;
	cs->loose_next = (cs->loose_next + 1) % LOOSE_MAX;
	return 0;
}

/* 0, or -EAGAIN: there is no slot. */
static int post_msg(struct colls *cs, struct prog_coll *c, struct strand *st, unsigned int i)
{
	const struct prog_coll_cfg *cfg = &c->cfg;
	const struct prog_coll_desc *d = &cfg->desc;
	const struct coll_step *p = &st->step[i];
	bool send = p->op == COLL_SEND;
	struct prog_msg_key key = {
		.comm = cfg->comm,
		.src = cfg->world[send ? d->rank : p->peer],
		.dst = cfg->world[send ? p->peer : d->rank],
		.tag = -1 - (int32_t)p->tag,
		.gen = c->kind,
		.ord = cfg->number,
	};
	static unsigned char wrong;
	struct prog_buf b = { .count = p->bytes };

	if (c->status) {
		b.addr = &wrong;
		b.count = !p->bytes;
	} else if (p->bytes) {
		b.addr = at(c, &p->a);
	} else {
		b.addr = &wrong;
	}
	if (send)
		return post_send(cs, c, &key, &b, &st->msg[i]);
	return prog_msg_recv(cs->w, &key, &b, (c->status ? PROG_MSGF_DROP : 0) | MSGS_COLL | MSGS_QUIET, &st->msg[i]);
}

/* As prog_msg_test(), but what a caller's thread has seen last stays what it is. */
static int test_msg(struct colls *cs, prog_msg *m, struct prog_msg_result *r)
{
	if (!m->copied && msg_state(m) < PROG_P2P_DONE && !session_lost(cs->s))
		return 0;
	return prog_msg_test(cs->w, m, r);
}

/* What was awaited as message @i has come. */
static void take_msg(struct colls *cs, struct prog_coll *c, struct strand *st, unsigned int i,
		     const struct prog_msg_result *r)
{
	const struct coll_step *p = &st->step[i];
	const void *head;
	size_t n;

	if (r->status < 0)
		fail(c, r->status);
	if (c->status || p->op != COLL_RECV)
		return;
	if (r->len != p->bytes) {
		fail(c, -EMSGSIZE);
		return;
	}
	n = prog_msg_head(cs->w, st->msg[i], &head);
	if (n && n <= p->bytes)
		memcpy(at(c, &p->a), head, n);
	coll_report_received(&cs->report, r->len);
}

/* Message @i is open no more. */
static void close_msg(struct colls *cs, struct strand *st, unsigned int i)
{
	prog_msg_free(cs->w, st->msg[i]);
	st->open &= (uint8_t)~(1u << i);
	st->leaving &= (uint8_t)~(1u << i);
	st->given_up &= (uint8_t)~(1u << i);
	cs->in_use--;
	cs->nrecvs -= st->step[i].op == COLL_RECV;
	cs->freed = true;
}

/* Message @i is posted, or what it was to be cannot be.  0, or -EAGAIN. */
static int post_one(struct colls *cs, struct prog_coll *c, struct strand *st, unsigned int i)
{
	int err;

	st->msg[i] = NULL;
	err = post_msg(cs, c, st, i);
	if (err && err != -EAGAIN && !c->status) {
		/* the caller has given what cannot be: the partner is told */
		fail(c, err);
		err = post_msg(cs, c, st, i);
	}
	if (err == -EAGAIN)
		return err;
	st->to_post &= (uint8_t)~(1u << i);
	if (err)	/* the daemon is lost */
		return 0;
	if (st->step[i].op == COLL_SEND)
		coll_report_sent(&cs->report, c->status ? 0 : st->step[i].bytes);
	if (!st->msg[i])
		return 0;
	if (st->step[i].op == COLL_RECV) {
		cs->receives = true;
		cs->nrecvs++;
	}
	st->open |= (uint8_t)(1u << i);
	cs->in_use++;
	return 0;
}

/* There is no slot for it now. */
static void run_short(struct colls *cs, uint8_t op)
{
	cs->retry = true;
	if (op == COLL_RECV)
		cs->short_recvs++;
	else
		cs->short_send = true;
}

/* Messages of a round that can be posted are: @op's.  Has anything happened? */
static bool post_some(struct colls *cs, struct prog_coll *c, struct strand *st, uint8_t op)
{
	bool moved = false;

	for (unsigned int i = 0; st->to_post >> i; i++) {
		if (!(st->to_post & 1u << i) || st->step[i].op != op)
			continue;
		if (!c->oldest && cs->in_use >= SHARED_MAX) {
			cs->blocked = true;
			break;
		}
		/* who has given receives back has its turn behind those that had none */
		if ((op == COLL_RECV && c->yields) || post_one(cs, c, st, i)) {
			run_short(cs, op);
			break;
		}
		moved = true;
	}
	return moved;
}

/* Message @i has ended, as @rc and @r say. */
static void end_msg(struct colls *cs, struct prog_coll *c, struct strand *st, unsigned int i, int rc, const struct prog_msg_result *r)
{
	if (rc > 0 && r->status == -ECANCELED && st->leaving & 1u << i) {
		if (!(st->given_up & 1u << i))
			st->to_post |= (uint8_t)(1u << i);
	} else {
		cs->came = true;
		if (rc < 0)
			fail(c, rc);
		else
			take_msg(cs, c, st, i, r);
	}
	close_msg(cs, st, i);
}

/* Messages of a round: those that can be posted are, and those that have ended are taken.  Has anything happened? */
static bool move_msgs(struct colls *cs, struct prog_coll *c, struct strand *st)
{
	bool moved;

	/*
	 * The daemon sees receives when it comes for what is sent, or is told in the end.  What is sent does not wait for them to be
	 * posted: then each member could wait for the others to send.
	 */
	moved = post_some(cs, c, st, COLL_RECV);
	moved |= post_some(cs, c, st, COLL_SEND);
	for (unsigned int i = 0; st->open >> i; i++) {
		struct prog_msg_result r;
		int rc;

		if (!(st->open & 1u << i))
			continue;
		rc = test_msg(cs, st->msg[i], &r);
		if (!rc)
			continue;
		end_msg(cs, c, st, i, rc, &r);
		moved = true;
	}
	return moved;
}

/* ---- strands ----------------------------------------------------------------------------------- */

/* What its round consists of; false: the strand has ended. */
static bool begin_round(struct prog_coll *c, struct strand *st)
{
	int n = coll_round(&c->cfg.desc, st->number, st->round, st->step);

	st->busy = n >= 0;
	st->nsteps = st->busy ? (uint8_t)n : 0;
	for (st->nmsgs = 0; st->nmsgs < st->nsteps && st->step[st->nmsgs].op <= COLL_RECV; st->nmsgs++)
		;
	st->to_post = (uint8_t)((1u << st->nmsgs) - 1);
	st->open = st->leaving = st->given_up = 0;
	st->looks = 0;
	return st->busy;
}

static bool begin_strand(struct prog_coll *c, struct strand *st, uint32_t number)
{
	st->number = number;
	st->round = 0;
	return begin_round(c, st);
}

/* As far as it goes.  Has anything happened? */
static bool move_strand(struct colls *cs, struct prog_coll *c, struct strand *st)
{
	bool moved = false;

	while (st->busy) {
		moved |= move_msgs(cs, c, st);
		if (st->to_post | st->open)
			break;
		for (unsigned int i = st->nmsgs; i < st->nsteps; i++)
			local_step(c, &st->step[i]);
		st->round++;
		begin_round(c, st);
		moved = true;
	}
	return moved;
}

static bool is_busy(const struct prog_coll *c)
{
	for (unsigned int i = 0; i < c->nrun; i++)
		if (c->strand[i].busy)
			return true;
	return false;
}

/* The strands of a phase are over, or there are more of them: the next ones. */
static bool begin_more(struct prog_coll *c)
{
	switch (c->phase) {
	case QUEUED:
		c->phase = FIRST;
		begin_strand(c, &c->strand[0], COLL_FIRST);
		return true;
	case FIRST:
		if (is_busy(c))
			return false;
		c->phase = STRANDS_GO;
		return true;
	case STRANDS_GO:
		for (unsigned int i = 0; i < c->nrun; i++)
			while (!c->strand[i].busy && c->next_strand < c->nstrands)
				if (begin_strand(c, &c->strand[i], c->next_strand++))
					return true;
		if (is_busy(c))
			return false;
		c->phase = LAST;
		begin_strand(c, &c->strand[0], COLL_LAST);
		return true;
	case LAST:
		if (is_busy(c))
			return false;
		c->phase = ENDED;
		return false;
	default:
		return false;
	}
}

static void move_coll(struct colls *cs, struct prog_coll *c)
{
	bool moved;

	do {
		moved = begin_more(c);
		for (unsigned int i = 0; i < c->nrun; i++)
			moved |= move_strand(cs, c, &c->strand[i]);
	} while (moved && c->phase != ENDED);
}

/* The daemon is lost, or will be: nothing of it will come, but it may be at what has been posted. */
static void abandon(struct colls *cs, struct prog_coll *c)
{
	fail(c, -ECONNRESET);
	if (c->tmp)
		LL_PREPEND(cs->kept, c->tmp);
	c->tmp = NULL;
	for (unsigned int i = 0; i < c->nrun; i++) {
		struct strand *st = &c->strand[i];

		for (unsigned int j = 0; st->open >> j; j++)
			if (st->open & 1u << j)
				close_msg(cs, st, j);
		st->to_post = 0;
		st->busy = false;
	}
	c->phase = ENDED;
}

/* ---- all of them ------------------------------------------------------------------------------- */

static void end(struct colls *cs, struct prog_coll *c)
{
	coll_report_end(&cs->report, &c->mark, c->status);
	if (c->cfg.ended)
		c->cfg.ended(c->cfg.arg, c->status);
	prog_coll_mem_put(c->tmp);
	carried_release();
	/* the caller may free it from here on */
	__atomic_store_n(&c->ended, 1, __ATOMIC_RELEASE);
	futex_post(&cs->s->hdr->event, &cs->s->hdr->waiters);
}

/*
 * Do all members start these two in the same order?  Then the older one can end whatever becomes of the other.  Of persistent ones
 * only the starts of the same.
 */
static bool same_order(const struct prog_coll *a, const struct prog_coll *b)
{
	return a->cfg.comm == b->cfg.comm && a->cfg.number >> 32 == b->cfg.number >> 32;
}

/* Is one in @list of the order of @c, and was started before? */
static bool has_older(const struct prog_coll *list, const struct prog_coll *c)
{
	for (; list; list = list->next)
		if (same_order(list, c) && list->cfg.number < c->cfg.number)
			return true;
	return false;
}

/* From those that are queued to those that go on: as many as may, and the oldest of each order. */
static void activate(struct colls *cs)
{
	struct prog_coll *c, *next;

	DL_FOREACH_SAFE(cs->queued, c, next) {
		if (c->held_until)
			continue;
		if (cs->nactive >= ACTIVE_MAX && (has_older(cs->active, c) || has_older(cs->queued, c)))
			continue;
		DL_DELETE(cs->queued, c);
		DL_APPEND(cs->active, c);
		cs->nactive++;
	}
	DL_FOREACH(cs->active, c)
		c->oldest = c->oldest || !has_older(cs->active, c);
}

/* ---- slots go around --------------------------------------------------------------------------- */

/* Its receives that only wait go back to be posted again later.  How many? */
static uint32_t give_back(struct colls *cs, struct prog_coll *c)
{
	uint32_t n = 0;

	for (unsigned int i = 0; i < c->nrun; i++) {
		struct strand *st = &c->strand[i];

		for (unsigned int j = 0; st->open >> j; j++) {
			if (!(st->open & ~st->leaving & 1u << j) || st->step[j].op != COLL_RECV)
				continue;
			msgs_withdraw(cs->w, st->msg[j]);
			st->leaving |= (uint8_t)(1u << j);
			n++;
		}
	}
	c->yields |= n > 0;
	return n;
}

/* Those that have given receives back, and know what became of these, may post them again. */
static void end_yielding(struct colls *cs)
{
	struct prog_coll *c;

	cs->yielding = false;
	DL_FOREACH(cs->active, c) {
		bool leaving = false;

		for (unsigned int i = 0; i < c->nrun; i++)
			leaving |= c->strand[i].leaving;
		c->yields = c->yields && leaving;
		cs->yielding |= c->yields;
	}
}

/*
 * There are more collectives than slots.  Members may start them in different orders, so the slots of each could be with those that
 * others have none for.  So slots go around: who has had its receives posted for longest gives them back, and is the last one to have them
 * again.  What was sent to a receive by then it gets at once, each time that it is posted, so that all that is sent is received in the end.
 *
 * Without anything that others have sent there is no need.  If it is of no use, as what they have sent is for collectives that are late
 * here, there is more and more time in between.
 */
static void make_room(struct colls *cs)
{
	struct prog_coll *c, *next, *last = cs->active ? cs->active->prev : NULL;
	uint32_t want = msgs_unreceived(cs->w) ? cs->short_recvs : 0;
	uint64_t now;

	if (cs->short_send && cs->nrecvs > FOR_RECEIVES && want < cs->nrecvs - FOR_RECEIVES)
		want = cs->nrecvs - FOR_RECEIVES;
	now = want ? clock_ns() : 0;
	if (!want || now < cs->room_at)
		return;
	cs->room_wait = cs->came ? RETRY_NS : cs->room_wait < CHECK_NS ? 2 * cs->room_wait : CHECK_NS;
	cs->room_at = now + cs->room_wait;
	cs->came = false;
	DL_FOREACH_SAFE(cs->active, c, next) {
		uint32_t n = give_back(cs, c);

		if (n) {
			DL_DELETE(cs->active, c);
			DL_APPEND(cs->active, c);
			cs->yielding = true;
			want -= n < want ? n : want;
		}
		if (!want || c == last)
			break;
	}
}

/* ---- held ----------------------------------------------------------------------------------- */

static void hold(struct colls *cs, struct prog_coll *c)
{
	c->held_until = clock_ns() + HOLD_NS;
	if (!cs->nheld++)
		cs->held_due = c->held_until;
}

static void let_go(struct colls *cs, struct prog_coll *c)
{
	c->held_until = 0;
	cs->nheld--;
	cs->fresh = true;
}

/* Their callers do not come, or nothing comes any more. */
static void look_at_held(struct colls *cs, bool lost)
{
	uint64_t now = clock_ns(), due = UINT64_MAX;
	struct prog_coll *c;

	if (now < cs->held_due && !lost)
		return;
	DL_FOREACH(cs->queued, c) {
		if (!c->held_until)
			continue;
		if (lost || now >= c->held_until)
			let_go(cs, c);
		else if (c->held_until < due)
			due = c->held_until;
	}
	cs->held_due = due;
}

/* ---- on they go -------------------------------------------------------------------------------- */

static void move_all(struct colls *cs)
{
	bool lost = session_lost(cs->s);
	struct prog_coll *c, *next;

	cs->retry = false;
	if (cs->nheld)
		look_at_held(cs, lost);
	do {
		if (cs->fresh)
			activate(cs);
		cs->fresh = cs->blocked = cs->freed = cs->short_send = false;
		cs->short_recvs = 0;
		DL_FOREACH_SAFE(cs->active, c, next) {
			if (lost)
				abandon(cs, c);
			else
				move_coll(cs, c);
			if (c->phase != ENDED)
				continue;
			DL_DELETE(cs->active, c);
			cs->nactive--;
			cs->fresh = true;
			end(cs, c);
		}
	} while (cs->fresh || (cs->freed && (cs->blocked || cs->short_recvs || cs->short_send)));
	if (cs->receives)
		msgs_look_now(cs->w);
	cs->receives = false;
	if (cs->yielding)
		end_yielding(cs);
	if (cs->short_recvs || cs->short_send)
		make_room(cs);
}

/* The line that says it. */
static void say_differs(const struct colls *cs, uint64_t comm, uint64_t number, uint32_t rank)
{
	prog_log_limited(PROG_LOG_WARN, "session %u: collective %llx of communicator %llx: rank %u has called another one than rank %u, or "
			 "one with another root, operation, type or length", cs->s->id, (unsigned long long)number,
			 (unsigned long long)comm, rank, cs->w->rank);
}

/* How often it has been waiting: is it time to ask? */
static bool look_again(uint8_t *looks)
{
	*looks = *looks % ASK_EVERY + 1;
	return *looks == ASK_AT;
}

/*
 * Message @i is not waited for any more; false: but for the daemon to say so.  It may be writing what it receives, and who started the
 * collective may free the buffer when that has ended.
 */
static bool give_up(struct colls *cs, struct strand *st, unsigned int i)
{
	if (st->step[i].op == COLL_SEND) {
		close_msg(cs, st, i);
		return true;
	}
	msgs_withdraw(cs->w, st->msg[i]);
	st->leaving |= (uint8_t)(1u << i);
	st->given_up |= (uint8_t)(1u << i);
	return false;
}

/* A look at a round that waits: has anything ended, as its member has gone, or has called something else? */
static bool look_at_round(struct colls *cs, struct prog_coll *c, struct strand *st)
{
	bool ended = false, ask = look_again(&st->looks);

	for (unsigned int i = 0; st->open >> i; i++) {
		const struct coll_step *p = &st->step[i];
		uint32_t rank = c->cfg.world[p->peer];
		struct coll_question q = {
			.comm = c->cfg.comm, .number = c->cfg.number, .same = c->same,
			.msg = p->tag | (p->op == COLL_SEND ? COLL_ASKER_SENDS : 0),
		};

		if (!(st->open & ~st->given_up & 1u << i))
			continue;
		if (coll_peers_gone(&cs->peers, rank)) {
			fail(c, -ESRCH);
		} else if (coll_peers_differs(&cs->peers, rank, &q)) {
			if (!c->status)
				say_differs(cs, c->cfg.comm, c->cfg.number, rank);
			fail(c, -EPROTO);
		} else {
			if (ask && !coll_peers_ask(&cs->peers, cs->w, rank, &q))
				st->looks = ASK_AT - 1;
			continue;
		}
		if (give_up(cs, st, i))
			ended = true;
	}
	return ended;
}

/*
 * A look at short messages whose collectives have ended: those to members that never receive them are not waited for, and nobody else
 * may ever say what is wrong.  Are there any that have not been received?
 */
static bool look_at_loose(struct colls *cs)
{
	bool some = false;

	for (struct loose *l = cs->loose; l < cs->loose + LOOSE_MAX; l++) {
		if (!l->m || msg_state(l->m) >= PROG_P2P_DONE || coll_peers_gone(&cs->peers, l->to))
			continue;
		if (coll_peers_differs(&cs->peers, l->to, &l->what)) {
			say_differs(cs, l->what.comm, l->what.number, l->to);
			prog_msg_free(cs->w, l->m);
			l->m = NULL;
			continue;
		}
		some = true;
		if (look_again(&l->looks) && !coll_peers_ask(&cs->peers, cs->w, l->to, &l->what))
			l->looks = ASK_AT - 1;
	}
	return some;
}

/* Lengths that only those know who have a message: is there one for @asker, or from it, that meets what it says of it? */
static bool meets(const struct prog_coll *c, uint32_t asker, const struct coll_question *q)
{
	const struct prog_coll_desc *d = &c->cfg.desc;
	uint8_t op = q->msg & COLL_ASKER_SENDS ? COLL_RECV : COLL_SEND;
	struct coll_step step[COLL_STEPS_MAX];
	int n;

	if (d->kind < PROG_COLL_GATHERV || d->kind > PROG_COLL_NEIGHBOR || d->kind == PROG_COLL_ALLGATHERV)
		return true;
	for (uint32_t s = 0; s < c->nstrands; s++) {
		for (uint32_t round = 0; (n = coll_round(d, s, round, step)) >= 0; round++) {
			for (int i = 0; i < n; i++) {
				if (step[i].op == op && c->cfg.world[step[i].peer] == asker &&
				    step[i].tag == (q->msg & ~COLL_ASKER_SENDS))
					return true;
			}
		}
	}
	return false;
}

/* Somebody asks: what is there of it here? */
static enum coll_verdict judge(void *arg, uint32_t asker, const struct coll_question *q)
{
	struct colls *cs = arg;
	struct prog_coll *const list[] = { cs->active, cs->queued };
	const struct prog_coll *c;

	for (int i = 0; i < 2; i++) {
		DL_FOREACH(list[i], c) {
			if (c->cfg.comm == q->comm && c->cfg.number == q->number)
				return c->same == q->same && meets(c, asker, q) ? COLL_GOES_ON : COLL_OTHER;
		}
	}
	/* what was sent of it may come yet */
	for (const struct loose *l = cs->loose; l < cs->loose + LOOSE_MAX; l++)
		if (l->m && msg_state(l->m) < PROG_P2P_DONE && l->what.comm == q->comm && l->what.number == q->number)
			return l->what.same == q->same ? COLL_GOES_ON : COLL_OTHER;
	return coll_orders_has(&cs->peers.orders, q->comm, q->number) ? COLL_OVER : COLL_LATE;
}

/* Under lock, now and then. */
static void look_at_peers(struct colls *cs)
{
	struct prog_coll *c;
	bool ended = false;

	if (session_lost(cs->s) || !coll_peers_due(&cs->peers, cs->w))
		return;
	cs->loose_new = look_at_loose(cs);
	DL_FOREACH(cs->active, c)
		for (unsigned int i = 0; i < c->nrun; i++)
			if (c->strand[i].open)
				ended |= look_at_round(cs, c, &c->strand[i]);
	if (ended)
		move_all(cs);
}

/* ---- the thread -------------------------------------------------------------------------------- */

/*
 * The thread sleeps on the daemon's event, as long as there is something to be moved on and nobody who waits does that, or else on
 * a word of its own.  It is brought from one to the other as it sleeps: to wake it for that would cost a caller that starts a
 * collective and waits at once more than all the rest.
 */
static bool is_idle(const struct colls *cs)
{
	return !(cs->nactive | cs->nheld) || cs->lent;
}

/* On the daemon's event; and off it.  Under lock. */
static void count_waiter(struct colls *cs, bool on)
{
	struct prog_session_hdr *hdr = cs->s->hdr;

	if (on)
		__atomic_fetch_add(&hdr->waiters, 1, __ATOMIC_SEQ_CST);
	else if (cs->on_event)
		__atomic_fetch_sub(&hdr->waiters, 1, __ATOMIC_RELEASE);
	cs->on_event = on;
}

static void wake_thread(struct colls *cs)
{
	__atomic_fetch_add(&cs->word, 1, __ATOMIC_SEQ_CST);
	futex_wake_all(&cs->word);
}

/* Under lock: somebody waits, and moves all on meanwhile. */
static void thread_rest(struct colls *cs)
{
	struct prog_session_hdr *hdr = cs->s->hdr;

	/*
	 * If there is an event just now, or it does not sleep yet, then that wakes it, once.  Likewise where others sleep there, of
	 * which one could be taken for it.
	 */
	if (cs->on_event && __atomic_load_n(&hdr->waiters, __ATOMIC_SEQ_CST) == 1 &&
	    futex_requeue(&hdr->event, __atomic_load_n(&hdr->event, __ATOMIC_SEQ_CST), &cs->word))
		count_waiter(cs, false);
}

/* Under lock: what is active is the thread's again. */
static void thread_go_on(struct colls *cs)
{
	struct prog_session_hdr *hdr = cs->s->hdr;

	if (is_idle(cs) || !cs->running)
		return;
	if (cs->on_event) {
		/* it would look again too late */
		if (cs->retry && cs->patience != RETRY_NS) {
			cs->patience = RETRY_NS;
			futex_post(&hdr->event, &hdr->waiters);
		}
		return;
	}
	count_waiter(cs, true);
	/* its time-out goes with it */
	if (!cs->retry && cs->patience <= CHECK_NS && futex_requeue(&cs->word, cs->word, &hdr->event)) {
		/* what has happened before the daemon saw that somebody sleeps */
		move_all(cs);
		if (!cs->retry)
			return;
		futex_post(&hdr->event, &hdr->waiters);
		return;
	}
	count_waiter(cs, false);
	wake_thread(cs);
}

/* Who it waits for goes to the report. */
static void look(struct colls *cs)
{
	const struct prog_coll *c;

	if (!coll_report_due(&cs->report))
		return;
	DL_FOREACH(cs->active, c) {
		uint32_t n = 0, from = PROG_COLL_NO_RANK;

		if (!coll_report_has_row(&c->mark))
			continue;
		for (unsigned int i = 0; i < c->nrun * COLL_STEPS_MAX; i++) {
			const struct strand *st = &c->strand[i / COLL_STEPS_MAX];
			const struct coll_step *p = &st->step[i % COLL_STEPS_MAX];

			if (!(st->open & 1u << i % COLL_STEPS_MAX) || p->op != COLL_RECV)
				continue;
			n++;
			if (c->cfg.world[p->peer] < from)
				from = c->cfg.world[p->peer];
		}
		coll_report_awaited(&cs->report, &c->mark, n, from);
	}
}

/* Under lock, which it gives back meanwhile.  @seen: of @word, before the thread looked for something to do. */
static void thread_sleep(struct colls *cs, uint32_t *word, uint32_t seen, uint64_t patience) GUARD_UNCHECKED
{
	bool event = word != &cs->word;

	cs->patience = patience;
	pthread_mutex_unlock(&cs->lock);
	coll_report_cpu(&cs->report, false);
	if (event)
		rings_urge(cs->s);
	futex_wait(word, seen, patience);
	if (event && patience == CHECK_NS && __atomic_load_n(word, __ATOMIC_RELAXED) == seen)
		session_quiet(cs->s);
	pthread_mutex_lock(&cs->lock);
	count_waiter(cs, false);
	if (event)
		look(cs);
}

static void *coll_main(void *arg)
{
	struct colls *cs = arg;
	struct prog_session_hdr *hdr = cs->s->hdr;
	uint64_t patience = CHECK_NS;

	pthread_mutex_lock(&cs->lock);
	while (!cs->exit) {
		uint32_t seen = __atomic_load_n(&cs->word, __ATOMIC_SEQ_CST);

		if (is_idle(cs)) {
			if (cs->loose_new)
				patience = CHECK_NS;
			thread_sleep(cs, &cs->word, seen, patience);
			/* from here on it is woken, not moved: that is for those who start one after the other */
			if (!cs->nactive && __atomic_load_n(&cs->word, __ATOMIC_RELAXED) == seen) {
				look_at_peers(cs);
				patience = cs->loose_new || coll_peers_busy(&cs->peers, cs->w) ? CHECK_NS : IDLE_NS;
			}
			continue;
		}
		patience = CHECK_NS;
		count_waiter(cs, true);
		seen = __atomic_load_n(&hdr->event, __ATOMIC_SEQ_CST);
		move_all(cs);
		look_at_peers(cs);
		if (is_idle(cs))
			count_waiter(cs, false);
		else
			thread_sleep(cs, &hdr->event, seen, cs->retry ? RETRY_NS : CHECK_NS);
	}
	pthread_mutex_unlock(&cs->lock);
	coll_report_cpu(&cs->report, true);
	return NULL;
}

/* Under lock.  Without a thread collectives go on while somebody waits or tests. */
static void start_thread(struct colls *cs)
{
	cs->running = !thread_start(&cs->thread, "asyncprog-coll", coll_main, cs);
	if (cs->running)
		coll_peers_listen(cs->w);
	else if (!cs->warned)
		prog_log(PROG_LOG_WARN, "session %u: no thread for collectives: they go on in MPI calls only", cs->s->id);
	cs->warned = !cs->running;
}

/* ---- calls ------------------------------------------------------------------------------------- */

static struct colls *colls_get(struct prog_win *w)
{
	struct msgs *ms = w->msgs;
	struct colls *cs;

	pthread_mutex_lock(&all_lock);
	cs = ms->colls;
	if (!cs) {
		cs = prog_coll_mem_get(sizeof(*cs));
		if (cs) {
			pthread_mutex_init(&cs->lock, NULL);
			cs->s = w->s;
			cs->w = w;
			cs->room_wait = RETRY_NS;
			coll_report_init(&cs->report, w->s);
			coll_peers_init(&cs->peers, judge, cs);
			DL_APPEND(all, cs);
		}
		ms->colls = cs;
	}
	pthread_mutex_unlock(&all_lock);
	return cs;
}

const uint32_t *prog_win_nodes(const struct prog_win *w)
{
	return w->node;
}

static int check_cfg(const struct prog_win *w, const struct prog_coll_cfg *cfg)
{
	const struct prog_coll_desc *d = &cfg->desc;
	const struct reduce_type *t = reduce_type(cfg->type);

	if (!w->msgs)
		return msgs_unusable(w);
	if (d->kind >= PROG_COLL_KINDS || !d->size || d->rank >= d->size || d->root >= d->size || !cfg->world)
		return -EINVAL;
	/* others are looked at when messages go to them, as there may be very many */
	if (cfg->world[d->rank] != w->msgs->self)
		return -EINVAL;
	if (d->kind >= PROG_COLL_REDUCE && (!reduce_valid(cfg->op, cfg->type) || d->elem != t->extent ||
					    (reduce_type_has_gap(t) && !reduce_loop_wide(cfg->op, cfg->type))))
		return -EINVAL;
	return 0;
}

void prog_coll_costs_get(const struct prog_session *s, struct prog_coll_costs *c)
{
	*c = s->node_costs;
}

void prog_coll_costs_set(struct prog_session *s, const struct prog_coll_costs *c)
{
	s->costs = *c;
	coll_costs_bound(&s->costs);
}

static struct tmp *tmp_new(uint64_t bytes)
{
	struct tmp *t = bytes < PTRDIFF_MAX - sizeof(*t) ? malloc(sizeof(*t) + bytes) : NULL;

	return t || bytes > RESERVE_TMP ? t : prog_coll_mem_get(sizeof(*t) + bytes);
}

int prog_coll_start(struct prog_win *w, const struct prog_coll_cfg *cfg, prog_coll **out)
{
	int err = check_cfg(w, cfg);
	struct prog_coll *c;
	struct prog_coll_desc d = cfg->desc;
	struct coll_limits limits;
	struct colls *cs;
	uint64_t tmp, run;
	uint32_t n;

	if (err)
		return err;
	limits = coll_cost_limits(&w->s->costs, d.kind, d.nodes->n, d.size, coll_most(&d));
	d.limits = &limits;
	cs = colls_get(w);
	n = coll_strands(&d);
	run = cfg->desc.kind != PROG_COLL_NEIGHBOR || n < STRANDS ? STRANDS : cfg->desc.order && n > EDGES ? EDGES : n;
	c = cs ? prog_coll_mem_get(sizeof(*c) + run * sizeof(c->strand[0])) : NULL;
	if (!c)
		return -ENOMEM;
	c->nstrands = n;
	c->nrun = run;
	c->cfg = *cfg;
	c->limits = limits;
	c->cfg.desc.limits = &c->limits;
	c->same = coll_call(cfg);
	c->kind = coll_call_kind(cfg);
	c->buf[COLL_IN] = (unsigned char *)(uintptr_t)cfg->in;
	c->buf[COLL_OUT] = cfg->out;
	c->status = cfg->status;
	if (cfg->desc.kind >= PROG_COLL_REDUCE && reduce_type_has_gap(reduce_type(cfg->type)))
		c->wide = reduce_loop_wide(cfg->op, cfg->type);
	tmp = coll_tmp_bytes(&c->cfg.desc);
	if (tmp && !c->status) {
		c->tmp = tmp_new(tmp);
		if (c->tmp)
			c->buf[COLL_TMP] = c->tmp->mem;
		else
			c->status = -ENOMEM;
	}
	*out = c;
	pthread_mutex_lock(&cs->lock);
	DL_APPEND(cs->queued, c);
	cs->fresh = true;
	if (cfg->held)
		hold(cs, c);
	coll_report_start(&cs->report, &c->mark, &c->cfg);
	coll_orders_started(&cs->peers.orders, cfg->comm, cfg->number);
	move_all(cs);
	/* also if it has ended: the others may ask */
	if (d.size > 1 && !cs->running)
		start_thread(cs);
	else if (cs->running && cs->loose_new && is_idle(cs) && cs->patience > CHECK_NS)
		wake_thread(cs);	/* once: from then on it looks, until they have been received */
	if (c->held_until && !cs->running) {
		let_go(cs, c);	/* nobody else would see to it */
		move_all(cs);
	}
	thread_go_on(cs);
	pthread_mutex_unlock(&cs->lock);
	return 0;
}

int prog_coll_give(struct prog_win *w, prog_coll *c, const void *in)
{
	struct colls *cs = w->msgs->colls;
	int rc = -EALREADY;

	pthread_mutex_lock(&cs->lock);
	if (c->held_until) {
		rc = 0;
		c->buf[COLL_IN] = (unsigned char *)(uintptr_t)in;
		let_go(cs, c);
		move_all(cs);
		thread_go_on(cs);
	}
	pthread_mutex_unlock(&cs->lock);
	return rc;
}

int prog_coll_test(struct prog_win *w, prog_coll *c, int *status)
{
	struct colls *cs = w->msgs->colls;

	if (!__atomic_load_n(&c->ended, __ATOMIC_ACQUIRE) && !pthread_mutex_trylock(&cs->lock)) {
		if (!cs->running) {
			session_quiet(cs->s);
			look_at_peers(cs);
		}
		move_all(cs);
		thread_go_on(cs);
		pthread_mutex_unlock(&cs->lock);
	}
	if (!__atomic_load_n(&c->ended, __ATOMIC_ACQUIRE))
		return 0;
	carried_acquire();
	if (status)
		*status = c->status;
	return 1;
}

struct patience {
	struct colls *cs;
	struct prog_coll *c;
	uint64_t end;			/* ns */
};

static bool ended_or_waited(void *arg)
{
	const struct patience *p = arg;

	if (__atomic_load_n(&p->c->ended, __ATOMIC_ACQUIRE))
		return true;
	pthread_mutex_lock(&p->cs->lock);
	move_all(p->cs);
	look_at_peers(p->cs);
	pthread_mutex_unlock(&p->cs->lock);
	return __atomic_load_n(&p->c->ended, __ATOMIC_ACQUIRE) || clock_ns() >= p->end;
}

void prog_coll_attend(struct prog_win *w)
{
	struct colls *cs = w->msgs->colls;

	pthread_mutex_lock(&cs->lock);
	cs->lent++;
	thread_rest(cs);
	pthread_mutex_unlock(&cs->lock);
}

void prog_coll_attend_once(struct prog_win *w)
{
	struct colls *cs = w->msgs->colls;

	pthread_mutex_lock(&cs->lock);
	move_all(cs);
	look_at_peers(cs);
	look(cs);
	pthread_mutex_unlock(&cs->lock);
}

void prog_coll_attend_end(struct prog_win *w)
{
	struct colls *cs = w->msgs->colls;

	pthread_mutex_lock(&cs->lock);
	cs->lent--;
	look(cs);
	thread_go_on(cs);
	pthread_mutex_unlock(&cs->lock);
}

int prog_coll_wait_for(struct prog_win *w, prog_coll *c, int *status, uint64_t timeout_ns)
{
	struct patience p = { .cs = w->msgs->colls, .c = c, .end = clock_ns() + timeout_ns };
	struct prog_session *s = w->s;

	if (prog_coll_test(w, c, status))
		return 0;
	prog_coll_attend(w);
	/* lost: the next look ends them all */
	wait_until(s, &s->hdr->event, &s->hdr->waiters, ended_or_waited, &p);
	prog_coll_attend_end(w);
	return prog_coll_test(w, c, status) ? 0 : -ETIMEDOUT;
}

void prog_coll_free(prog_coll *c)
{
	prog_coll_mem_put(c);
}

/* ---- the end ----------------------------------------------------------------------------------- */

static struct colls *colls_of(const struct prog_win *w)
{
	return w->s->msgs && w->s->msgs->w == w ? w->s->msgs->colls : NULL;
}

struct closing {
	struct colls *cs;
	uint64_t warn_at;		/* ns; 0: somebody was */
};

/* What collectives have sent that have ended themselves: whoever is still there will receive it. */
static bool are_sent(void *arg)
{
	struct closing *g = arg;
	const struct loose *l;

	if (coll_peers_due(&g->cs->peers, g->cs->w))
		look_at_loose(g->cs);
	for (l = g->cs->loose; l < g->cs->loose + LOOSE_MAX; l++)
		if (l->m && msg_state(l->m) < PROG_P2P_DONE && !coll_peers_gone(&g->cs->peers, l->to))
			break;
	if (l == g->cs->loose + LOOSE_MAX)
		return true;
	if (g->warn_at && clock_ns() >= g->warn_at) {
		g->warn_at = 0;
		prog_log(PROG_LOG_WARN, "session %u: its end waits for rank %u to receive what a collective has sent: is that late, or were "
			 "roots or lengths not the same?", g->cs->s->id, l->to);
	}
	return false;
}

void colls_close(struct prog_win *w)
{
	struct colls *cs = colls_of(w);
	struct closing closing = { .cs = cs, .warn_at = clock_ns() + WARN_NS };
	struct prog_coll *c, *next;

	if (!cs)
		return;
	if (cs->running) {
		pthread_mutex_lock(&cs->lock);
		cs->exit = true;
		wake_thread(cs);
		pthread_mutex_unlock(&cs->lock);
		futex_post(&cs->s->hdr->event, &cs->s->hdr->waiters);
		pthread_join(cs->thread, NULL);
	}
	DL_CONCAT(cs->active, cs->queued);
	DL_FOREACH_SAFE(cs->active, c, next) {
		DL_DELETE(cs->active, c);
		abandon(cs, c);
		end(cs, c);
	}
	/* lost: they never will be */
	wait_until(cs->s, &cs->s->hdr->event, &cs->s->hdr->waiters, are_sent, &closing);
	for (uint32_t i = 0; i < LOOSE_MAX; i++)
		prog_msg_free(w, cs->loose[i].m);
	coll_peers_end(&cs->peers, w);
}

void colls_free(struct prog_win *w)
{
	struct colls *cs = colls_of(w);
	struct tmp *t, *next;

	if (!cs)
		return;
	LL_FOREACH_SAFE(cs->kept, t, next)
		prog_coll_mem_put(t);
	pthread_mutex_lock(&all_lock);
	DL_DELETE(all, cs);
	w->s->msgs->colls = NULL;
	pthread_mutex_unlock(&all_lock);
	coll_peers_free(&cs->peers);
	pthread_mutex_destroy(&cs->lock);
	prog_coll_mem_put(cs);
}

static void fork_prepare(void) GUARD_UNCHECKED
{
	struct colls *cs;

	pthread_mutex_lock(&all_lock);
	DL_FOREACH(all, cs)
		pthread_mutex_lock(&cs->lock);
}

/* The child has no thread, and its session is lost. */
static void fork_done(bool child) GUARD_UNCHECKED
{
	struct colls *cs;

	DL_FOREACH(all, cs) {
		if (child)
			cs->running = cs->on_event = false;
		pthread_mutex_unlock(&cs->lock);
	}
	pthread_mutex_unlock(&all_lock);
}

const struct fork_ops coll_fork_ops = { .prepare = fork_prepare, .done = fork_done };

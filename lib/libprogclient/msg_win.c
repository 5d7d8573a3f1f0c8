// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The message context, the window of all processes that exchange messages, and what is known of each of its ranks. */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>

#include "coll_mem.h"
#include "msg.h"

#define LEAVE_RUN	4		/* of so many messages to another node one is not left, to hear of the receiver */
#define LOOK_FIRST_NS	50000u
#define LOOK_MAX_NS	5000000u

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
		if (i != MSGS_LISTEN_SLOT)
			msg_push(ms, &ms->free, m);
		else
			__atomic_store_n(&m->slot->state, PROG_P2P_FREE, __ATOMIC_RELEASE);
	}
	pthread_mutex_lock(&s->msg_lock);
	err = s->msgs ? -EEXIST : 0;
	if (!err)
		s->msgs = ms;
	pthread_mutex_unlock(&s->msg_lock);
	if (!err) {
		coll_mem_begin();
		return 0;
	}
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
	err = client_memfd("asyncprog-eager", size, &fd, &mem);
	if (!err) {
		munmap(mem, size);
		err = session_request(s, PROG_CTRL_REGION_ADD, &req, sizeof(req), &fd, 1, &rep, sizeof(rep),
				      NULL, NULL);
		if (err)
			close(fd);
	}
	if (err) {
		rep.reason[PROG_REASON_SIZE - 1] = '\0';
		prog_log(PROG_LOG_INFO, "session %u: no memory for eager messages: %s", s->id,
			 rep.reason[0] ? rep.reason : strerror(-err));
		return;
	}
	ms->pool_fd = fd;
	ms->pool_size = size;
	ms->pool_region = rep.slot + 1;
	__atomic_store_n(&s->p2p->pool_region, rep.slot + 1, __ATOMIC_RELEASE);
}

static int find_same_node(struct msgs *ms, same_node_fn *is_same_node)
{
	struct prog_win *w = ms->w;
	uint32_t i, n = 0;
	struct same_node same;

	for (i = 0; i < w->nranks; i++)
		n += w->node_here[i];
	ms->same_node = calloc(n + 1, sizeof(*ms->same_node));
	if (!ms->same_node)
		return -ENOMEM;
	for (i = 0; i < w->nranks; i++)
		if (is_same_node(w, i, &same))
			ms->same_node[ms->nsame_node++] = same;
	return 0;
}

int msgs_start(struct prog_win *w, same_node_fn *is_same_node)
{
	int err;

	if (w->msgs)
		return 0;
	err = find_same_node(w->s->msgs, is_same_node);
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
	free(ms->same_node);
	free(ms);
}

/* ---- whether the other side waits ----------------------------------------------------------------- */

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
	const struct same_node *same;
	struct memref at;
	uint8_t yes = 0;

	if (!ms || rank >= ms->nranks || session_lost(w->s) ||
	    __atomic_load_n(&ms->peers[rank].offload, __ATOMIC_RELAXED) ||
	    __atomic_load_n(&w->s->p2p->flags, __ATOMIC_RELAXED) & PROG_P2PA_ALWAYS)
		return false;
	same = msg_same_node_find(ms, rank);
	if (same && same->waits) {
		/* what is read of a process that has gone is at worst wrong */
		at = mem_remote(same->pid, same->waits);
		return !mem_read(&at, ms->self, &yes, sizeof(yes)) && yes == 1;
	}
	/* what the last ATS said; so now and then there must be one */
	return __atomic_load_n(&ms->peers[rank].left, __ATOMIC_RELAXED) == 1 &&
	       __atomic_add_fetch(&ms->run[rank], 1, __ATOMIC_RELAXED) % LEAVE_RUN != 0;
}

const uint8_t *msgs_waits(const struct prog_win *w)
{
	const struct msgs *ms = w->s->msgs;

	return ms && ms->w == w ? ms->waits : NULL;
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
	return is_owner(w) ? __atomic_load_n(&w->s->p2p->offload_min, __ATOMIC_RELAXED) : UINT64_MAX;
}

void prog_msg_account(struct prog_win *w, uint32_t rank, bool send, uint64_t bytes, uint64_t overlap_ns)
{
	const struct msgs *ms = w->msgs;
	struct prog_p2p_peer *p;

	if (!ms || rank >= ms->nranks || session_lost(w->s))
		return;
	p = &ms->peers[rank];
	__atomic_fetch_add(send ? &p->sends : &p->recvs, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&p->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&p->idle_ns, overlap_ns, __ATOMIC_RELAXED);
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
		s->look_slice = 0;
		return 0;
	}
	now = clock_ns();
	if (fresh || !s->look_slice)
		s->look_slice = LOOK_FIRST_NS;
	/* the event is also that of jobs, of which there can be many */
	if (now - s->look_last < s->look_slice)
		return s->look_slice - (now - s->look_last);
	pthread_mutex_lock(&s->look_lock);
	if (s->look)
		s->look(s->look_arg);
	pthread_mutex_unlock(&s->look_lock);
	s->look_last = clock_ns();
	if (s->look_slice < LOOK_MAX_NS)
		s->look_slice *= 2;
	return s->look_slice;
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * msg.h - what the files of two-sided messages share: slots that the daemon matches and moves (ring.h, "two-sided
 * messages").
 *
 *   msg.c         slots: posting, giving back
 *   msg_done.c    what became of a message
 *   msg_node.c    messages of the same node, which the receiver copies by itself
 *   msg_win.c     the message context: opening, closing, what is known of each rank
 *
 * A slot is ours until POSTED is published and again once the daemon has stored DONE or WITHDRAWN with
 * release, and has passed every WITHDRAW entry for it in the ring.  A message that is given back before is left
 * behind: its slot is looked at now and then, and used again when the daemon is through with it.
 *
 * Everything but testing and waiting is under session.msg_lock, which look() and threads of sessions without
 * PROG_SESSION_MT take, too.
 */
#ifndef PROGCLIENT_MSG_H
#define PROGCLIENT_MSG_H

#include <errno.h>

#include "msgs.h"
#include "op.h"

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

struct msg_list {
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
	struct same_node *same_node;	/* [nsame_node], by rank; constant once the window is mapped */
	uint32_t nsame_node;
	struct colls *colls;		/* coll_run.h; NULL: none was started */
	/* under msg_lock */
	struct msg_list free, left;
	struct arena arena;		/* CLIENT_MSG_ARENA, behind the session's */
	struct prog_msg msg[PROG_P2P_SLOTS];
};

static inline void msg_push(struct msgs *ms, struct msg_list *l, struct prog_msg *m)
{
	m->next = CLIENT_NO_SLOT;
	if (l->n++)
		ms->msg[l->tail].next = m->index;
	else
		l->head = m->index;
	l->tail = m->index;
}

static inline struct prog_msg *msg_pop(struct msgs *ms, struct msg_list *l)
{
	struct prog_msg *m = &ms->msg[l->head];

	l->head = m->next;
	l->n--;
	return m;
}

static inline uint32_t msg_state(const struct prog_msg *m)
{
	return __atomic_load_n(&m->slot->state, __ATOMIC_ACQUIRE);
}

/* Why @w cannot carry messages. */
static inline int msgs_unusable(const struct prog_win *w)
{
	return w->s->p2p ? -EINVAL : -EOPNOTSUPP;
}

/* The process of @rank, if it is on this node and its memory can be reached; NULL: no. */
const struct same_node *msg_same_node_find(const struct msgs *ms, uint32_t rank);
/*
 * Copy as much of @id as fits straight from its sender.  Its memory stays as it is until somebody says that
 * it has the message, which only we can: a RECV that the daemon matches would not name it here.  0: done.
 */
int msg_same_node_copy(const struct same_node *same, const struct prog_msg_id *id, const struct side *sd);

#endif

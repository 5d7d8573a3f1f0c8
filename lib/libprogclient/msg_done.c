// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What became of a message: testing and waiting, and when the daemon is lost. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <libprogbase/futex.h>

#include "msg.h"

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

	return m->copied || msg_state(m) >= PROG_P2P_DONE;
}

int prog_msg_test(struct prog_win *w, prog_msg *m, struct prog_msg_result *r)
{
	struct prog_session *s = w->s;
	uint32_t state = m->copied ? PROG_P2P_DONE : msg_state(m);

	if (state < PROG_P2P_DONE) {
		/* who goes on to sleep must not miss what happens from here on */
		__atomic_store_n(&s->event_seen, __atomic_load_n(&s->hdr->event, __ATOMIC_SEQ_CST),
				 __ATOMIC_RELAXED);
		state = msg_state(m);
	}
	if (state < PROG_P2P_DONE) {
		if (!session_lost(s))
			return 0;
		/* what ended before that counts */
		state = msg_state(m);
		if (state < PROG_P2P_DONE)
			return -ECONNRESET;
	}
	give_result(m, state, r);
	return 1;
}

int prog_msg_wait(struct prog_win *w, prog_msg *m, struct prog_msg_result *r)
{
	struct prog_session *s = w->s;
	int err = wait_until(s, &s->hdr->event, &s->hdr->waiters, has_ended, m);

	if (!err)
		give_result(m, msg_state(m), r);
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
	give_result(m, msg_state(m), r);
	return 0;
}

size_t prog_msg_head(struct prog_win *w, const prog_msg *m, const void **head)
{
	const struct prog_p2p_slot *sl = m->slot;

	*head = sl->head;
	if (m->copied || msg_state(m) != PROG_P2P_DONE)
		return 0;
	return sl->head_len < PROG_P2P_HEAD ? sl->head_len : PROG_P2P_HEAD;
}

/* ---- the daemon is lost ------------------------------------------------------------------------ */

/*
 * A copy of the message @id in @pool, of @size bytes; NULL: it is not there, or there is no memory.  The daemon
 * may only be thought to be lost, and still be at it: then the entry goes before anything else comes to that place.
 */
static void *copy_pooled(const struct prog_pool_dir *pool, uint64_t size, const struct prog_msg_id *id)
{
	uint64_t most = (size - sizeof(*pool)) / sizeof(pool->entry[0]);
	uint32_t count;

	if (__atomic_load_n(&pool->magic, __ATOMIC_ACQUIRE) != PROG_POOL_MAGIC)
		return NULL;
	count = pool->count < most ? pool->count : (uint32_t)most;
	for (uint32_t i = 0; i < count; i++) {
		const struct prog_pool_entry *e = &pool->entry[i];
		void *copy;

		if (__atomic_load_n(&e->serial, __ATOMIC_ACQUIRE) != id->serial || e->src != id->src ||
		    e->slot != id->slot)
			continue;
		if (e->len != id->len || e->off > size || e->len > size - e->off)
			return NULL;
		copy = malloc(id->len + 1);
		if (!copy)
			return NULL;
		memcpy(copy, (const char *)pool + e->off, id->len);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (__atomic_load_n(&e->serial, __ATOMIC_RELAXED) == id->serial)
			return copy;
		free(copy);
		return NULL;
	}
	return NULL;
}

int prog_msg_rescue(struct prog_win *w, const struct prog_msg_id *id, void **copy)
{
	struct msgs *ms = w->msgs;
	void *pool;

	*copy = NULL;
	if (!ms)
		return msgs_unusable(w);
	if (!session_lost(w->s) || !id->serial)
		return -EINVAL;
	if (ms->pool_fd < 0 || ms->pool_size < sizeof(struct prog_pool_dir))
		return -ENOENT;
	pool = mmap(NULL, ms->pool_size, PROT_READ, MAP_SHARED, ms->pool_fd, 0);
	if (pool == MAP_FAILED)
		return -errno;
	*copy = copy_pooled(pool, ms->pool_size, id);
	munmap(pool, ms->pool_size);
	return *copy ? 0 : -ENOENT;
}

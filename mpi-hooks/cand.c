/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Candidates: receives that the helper thread, and whoever waits, look after, as their message may be a managed one of which the
 * daemon was not told.
 */
#include "hooks_gen.h"

static pthread_mutex_t cand_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rec cand_list = {
	.recv = { .cand_next = &cand_list, .cand_prev = &cand_list }
};
static uint32_t cand_count;

void cand_add(struct rec *r)
{
	pthread_mutex_lock(&cand_lock);
	r->recv.cand = true;
	r->recv.cand_prev = cand_list.recv.cand_prev;
	r->recv.cand_next = &cand_list;
	r->recv.cand_prev->recv.cand_next = r;
	cand_list.recv.cand_prev = r;
	atomic_fetch_add_explicit(&p2p_nobodys, 1, memory_order_relaxed);
	prog_msg_candidates(p2p_context, ++cand_count);
	pthread_mutex_unlock(&cand_lock);
}

void cand_del(struct rec *r)
{
	if (likely(!r->recv.cand))
		return;
	pthread_mutex_lock(&cand_lock);
	r->recv.cand_prev->recv.cand_next = r->recv.cand_next;
	r->recv.cand_next->recv.cand_prev = r->recv.cand_prev;
	r->recv.cand = false;
	atomic_fetch_sub_explicit(&p2p_nobodys, 1, memory_order_relaxed);
	prog_msg_candidates(p2p_context, --cand_count);
	pthread_mutex_unlock(&cand_lock);
}

void cand_freed(struct rec *r)
{
	pthread_mutex_lock(&cand_lock);
	r->freed = true;
	pthread_mutex_unlock(&cand_lock);
}

/* Has the descriptor of a candidate come? */
static void look_locked(void)
{
	for (struct rec *r = cand_list.recv.cand_next; r != &cand_list; r = r->recv.cand_next) {
		if (r->m || !buf_desc(r, &r->recv.d))
			continue;
		if (recv_xfer(r, r->recv.user_bounce, 0))
			r->m = NULL;	/* later, or when the library completes it */
	}
}

void cand_look(void *arg)
{
	pthread_mutex_lock(&cand_lock);
	look_locked();
	pthread_mutex_unlock(&cand_lock);
}

void cand_poll(void)
{
	if (!__atomic_load_n(&cand_count, __ATOMIC_RELAXED) || pthread_mutex_trylock(&cand_lock))
		return;
	look_locked();
	pthread_mutex_unlock(&cand_lock);
}

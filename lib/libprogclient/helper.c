// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The helper thread: copies and applies what the daemon cannot reach itself, or not cheaply.  Of the
 * caller's code it calls look() only (prog_msg_set_look()); it takes no signals but faults, and sleeps on the ring's event
 * word.  Jobs come from the daemon; still every field is read once and checked, so that a confused daemon gets an
 * error and not our memory.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/mem.h>
#include <libprogbase/thread.h>

#include "msgs.h"
#include "op.h"

#define STRIPE_TRY_NS	1000000		/* under helper_lock */
#define STRIPE_SLEEP_NS	4000000

#ifdef __SANITIZE_THREAD__
char client_carried;
#endif

static void *bounce_at(struct prog_session *s, uint64_t off, uint64_t len)
{
	return off <= CLIENT_BOUNCE && len <= CLIENT_BOUNCE - off ? s->bounce + off : NULL;
}

/*
 * Through CMA to ourselves: an address that is not mapped is an error then, not a signal.  Only
 * where the system call is forbidden the copy is plain.
 */
static int copy_self(uint64_t va, void *buf, uint64_t len, bool write)
{
	struct memref self = mem_remote(getpid(), va);
	int err = write ? mem_write(&self, 0, buf, len) : mem_read(&self, 0, buf, len);

	if (err != -EPERM && err != -ENOSYS)
		return err;
	if (write)
		memcpy((void *)(uintptr_t)va, buf, len);
	else
		memcpy(buf, (void *)(uintptr_t)va, len);
	return 0;
}

/* Packed bytes of a typed buffer of ours, for a message; as copy_self(). */
static int copy_typed(const struct prog_helper_job *j, void *payload, void *result, const struct dtype *dt,
		      uint64_t count)
{
	struct memref self = mem_remote(getpid(), 0), plain = mem_direct(NULL);
	int64_t at = (int64_t)j->va;
	int err;

	if (j->opcode == PROG_SQE_OP_PUT) {
		err = mem_write_dtype(&self, at, dt, count, j->off, payload, j->len);
		if (err == -EPERM || err == -ENOSYS)
			err = mem_write_dtype(&plain, at, dt, count, j->off, payload, j->len);
	} else {
		err = mem_read_dtype(&self, at, dt, count, j->off, result, j->len);
		if (err == -EPERM || err == -ENOSYS)
			err = mem_read_dtype(&plain, at, dt, count, j->off, result, j->len);
	}
	return err;
}

static struct prog_win *find_win(struct prog_session *s, uint32_t slot)
{
	struct prog_win *w;

	for (w = s->wins; w; w = w->next)
		if (w->connected && w->slot == slot)
			return w;
	return NULL;
}

/* *@done: of an accumulate, also with -ETIMEDOUT. */
static int apply_to(struct prog_session *s, struct prog_win *w, const struct prog_helper_job *j,
		    void *payload, void *result, const struct dtype *dt, size_t *done)
{
	struct apply_win aw = w->aw;
	const struct reduce_type *type = reduce_type(j->etype);
	bool acc = j->opcode == PROG_SQE_OP_ACC || j->opcode == PROG_SQE_OP_GET_ACC;
	uint64_t count, end = j->off + j->len, each;

	aw.timeout_ns = STRIPE_TRY_NS;
	aw.holder = w->streams[w->rank].local ? &w->streams[w->rank].local->holder : NULL;
	if (end < j->off || ((acc || j->opcode == PROG_SQE_OP_CAS) && !type))
		return -EINVAL;
	each = dt ? prog_dtype_size(dt) : acc ? type->packed : 1;
	if (!each)
		return -EINVAL;
	count = end / each + (end % each != 0);
	if (w->kind == PROG_WIN_MSG_CONTEXT)
		return !dt || (j->opcode != PROG_SQE_OP_PUT && j->opcode != PROG_SQE_OP_GET) ? -EINVAL :
		       copy_typed(j, payload, result, dt, count);
	if (w->by_address) {
		/* CAS: the payload is two elements */
		int64_t lo = 0, hi = j->opcode == PROG_SQE_OP_CAS ? type->used : (int64_t)end;
		int err = 0;

		if (dt)
			err = prog_dtype_span(dt, count, &lo, &hi);
		else if (acc)
			hi = (int64_t)reduce_span(type, count);
		if (err)
			return err;
		if (__builtin_add_overflow(lo, (int64_t)j->va, &lo) ||
		    __builtin_add_overflow(hi, (int64_t)j->va, &hi))
			return -ERANGE;
		err = local_attached(&w->wc, j->va, dt, count, j->off, j->len, (uint64_t)lo, (uint64_t)hi);
		if (err)
			return err;
		aw.lo = lo;
		aw.hi = hi;
	}
	switch (j->opcode) {
	case PROG_SQE_OP_PUT:
		return apply_put(&aw, (int64_t)j->va, dt, count, j->off, payload, j->len);
	case PROG_SQE_OP_GET:
		return apply_get(&aw, (int64_t)j->va, dt, count, j->off, result, j->len);
	case PROG_SQE_OP_ACC:
		return apply_acc(&aw, j->op, j->etype, (int64_t)j->va, dt, count, j->off, payload,
				 j->len, NULL, done);
	case PROG_SQE_OP_GET_ACC:
		return apply_acc(&aw, j->op, j->etype, (int64_t)j->va, dt, count, j->off, payload,
				 j->len, result, done);
	case PROG_SQE_OP_CAS:
		if (j->len != 2u * type->packed)
			return -EINVAL;
		return apply_cas(&aw, j->etype, (int64_t)j->va, payload, (char *)payload + type->packed,
				 result);
	default:
		return -EINVAL;
	}
}

/* The window is looked up each time: nobody else's call is to wait for a process that is stopped in an accumulate. */
static int apply_all(struct prog_session *s, const struct prog_helper_job *j, char *payload, char *result,
		     const struct dtype *dt)
{
	struct prog_helper_job rest = *j;
	struct stripe_wait p = { 0 };
	struct prog_win *w;
	int err;

	for (;;) {
		uint32_t seen = __atomic_load_n(&s->helper_ring->event, __ATOMIC_SEQ_CST);
		size_t done = 0;

		pthread_mutex_lock(&s->helper_lock);
		w = find_win(s, j->win);
		err = w ? apply_to(s, w, &rest, payload, result, dt, &done) : -ENOENT;
		if (err == -ETIMEDOUT && !local_stripe_busy(&w->streams[w->rank], &p, done))
			err = -EAGAIN;
		pthread_mutex_unlock(&s->helper_lock);
		if (err != -EAGAIN || __atomic_load_n(&s->helper_exit, __ATOMIC_ACQUIRE))
			return err;
		rest.off += done;
		rest.len -= done;
		payload = payload ? payload + done : NULL;
		result = result ? result + done : NULL;
		futex_wait(&s->helper_ring->event, seen, STRIPE_SLEEP_NS);
	}
}

static int apply_job(struct prog_session *s, const struct prog_helper_job *j)
{
	bool reads = j->opcode != PROG_SQE_OP_GET;
	bool answers = j->opcode != PROG_SQE_OP_PUT && j->opcode != PROG_SQE_OP_ACC;
	void *payload = reads ? bounce_at(s, j->bounce, j->len) : NULL;
	void *result = answers ? bounce_at(s, j->result, j->len) : NULL;
	struct dtype *dt = NULL;
	int err;

	if ((reads && !payload) || (answers && !result))
		return -EINVAL;
	if (j->dtype != ~0ull) {
		const void *program = bounce_at(s, j->dtype, j->dtype_len);

		err = program ? prog_dtype_decode(program, j->dtype_len, &dt, NULL, 0) : -EINVAL;
		if (err)
			return err;
	}
	err = apply_all(s, j, payload, result, dt);
	prog_dtype_put(dt);
	return err;
}

/*
 * From or to another process of this node, perhaps long after the daemon asked for it, if we did not run: then
 * that process may have closed its session (which changes the word that msg_same_node_alive() reads), have ended, or be
 * another one by now.  So we look before something is written there, and after something was read.
 */
static int pass_job(struct prog_session *s, const struct prog_helper_job *j)
{
	void *head = bounce_at(s, j->bounce, j->head);
	bool pull = j->kind == PROG_HELP_PULL;
	uint64_t len = j->len, skip = j->head;
	struct memref there;
	struct same_node same;
	int err;

	if (!head || skip > len || skip > PROG_P2P_HEAD)
		return -EINVAL;
	err = msgs_same_node(s, j->win, &same);
	if (!err && !pull)
		err = msg_same_node_alive(&same);
	if (err)
		return err;
	there = mem_remote(same.pid, j->off);
	if (pull)
		err = mem_read(&there, 0, head, skip);
	else
		err = copy_self(j->va, head, skip, false);
	if (err || skip == len)
		return err;
	if (!pull)
		return mem_write(&there, (int64_t)skip, (void *)(uintptr_t)(j->va + skip), len - skip);
	err = mem_read(&there, (int64_t)skip, (void *)(uintptr_t)(j->va + skip), len - skip);
	return err ? err : msg_same_node_alive(&same);
}

static int run_job(struct prog_session *s, const struct prog_helper_job *j)
{
	void *buf;

	switch (j->kind) {
	case PROG_HELP_READ:
	case PROG_HELP_WRITE:
		buf = bounce_at(s, j->bounce, j->len);
		if (!buf)
			return -EINVAL;
		return copy_self(j->va, buf, j->len, j->kind == PROG_HELP_WRITE);
	case PROG_HELP_APPLY:
		return apply_job(s, j);
	case PROG_HELP_PULL:
	case PROG_HELP_PUSH:
		return pass_job(s, j);
	default:
		return -EINVAL;
	}
}

static void *helper_main(void *arg)
{
	struct prog_session *s = arg;
	struct prog_helper_ring *ring = s->helper_ring;
	uint32_t done = 0, looked = 0;

	while (!__atomic_load_n(&s->helper_exit, __ATOMIC_ACQUIRE)) {
		uint32_t tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE), seen;
		uint64_t slice;

		if (tail != done) {
			struct prog_helper_job *slot = &ring->job[done % PROG_HELPER_SLOTS];
			struct prog_helper_job job = *slot;

			carried_acquire();
			slot->status = run_job(s, &job);
			carried_release();
			__atomic_store_n(&ring->done, ++done, __ATOMIC_RELEASE);
			session_kick(s, job.worker);
			continue;
		}
		seen = __atomic_load_n(&ring->event, __ATOMIC_SEQ_CST);
		slice = msgs_look(s, seen != looked);
		looked = seen;
		/* Dekker with who adds jobs: it bumps event, then looks at need_wakeup */
		__atomic_store_n(&ring->need_wakeup, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&ring->event, __ATOMIC_SEQ_CST) == seen &&
		    __atomic_load_n(&ring->tail, __ATOMIC_SEQ_CST) == done &&
		    !__atomic_load_n(&s->helper_exit, __ATOMIC_ACQUIRE))
			futex_wait(&ring->event, seen, slice);
		__atomic_store_n(&ring->need_wakeup, 0, __ATOMIC_RELAXED);
	}
	return NULL;
}

int helper_start(struct prog_session *s)
{
	int err = thread_start(&s->helper, "asyncprog", helper_main, s);

	if (err)
		return err;
	s->helper_running = true;
	return 0;
}

void helper_stop(struct prog_session *s)
{
	if (!s->helper_running)
		return;
	__atomic_store_n(&s->helper_exit, 1, __ATOMIC_RELEASE);
	__atomic_fetch_add(&s->helper_ring->event, 1, __ATOMIC_SEQ_CST);
	futex_wake_all(&s->helper_ring->event);
	pthread_join(s->helper, NULL);
	s->helper_running = false;
}

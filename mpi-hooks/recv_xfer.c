/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The payload of a managed receive: the daemon moves it to the buffer, of a message that it was told before (announced), or that
 * is named by its descriptor.
 */
#include <stdlib.h>
#include <string.h>

#include <libprogbase/futex.h>

#include "hooks_gen.h"

#define ANNOUNCED_MAX	512	/* at most so many of libprogclient's slots for announced receives */

static atomic_int announced;

/* Have the daemon receive the message @r->recv.d; see prog_msg_recv_by_id() for @whole. */
int recv_xfer(struct rec *r, bool whole, unsigned int flags)
{
	const struct prog_msg_id *name = &r->recv.d.name;
	struct prog_buf b = buf_prog(r);
	uint64_t len = name->len < r->cap ? name->len : r->cap;
	int rc = -E2BIG;

	if (r->cap < DESC_SIZE)
		flags |= PROG_MSGF_DROP;
	if (partner_recv_waits(name->src))
		flags |= PROG_MSGF_HINT_BLOCKING;
	if (!r->opaque_type || flags & PROG_MSGF_DROP)
		rc = prog_msg_recv_by_id(p2p_context, name, &b, whole, flags, &r->m);
	if (rc == -E2BIG) {	/* the daemon cannot place it: we do */
		if (!r->packed)
			r->packed = malloc(len);
		if (!r->packed)
			return -ENOMEM;
		b = (struct prog_buf){ .addr = r->packed, .count = len };
		whole = true;
		rc = prog_msg_recv_by_id(p2p_context, name, &b, whole, flags, &r->m);
	}
	r->recv.whole = whole;
	return rc;
}

/* A receive whose message's number is known goes to the daemon before the library has it. */
bool recv_announce(struct rec *r, bool wait)
{
	const struct prog_msg_key key = {
		.comm = r->c->id,
		.src = r->c->world[r->recv.cr.source],
		.dst = (uint32_t)hooks.world_rank,
		.tag = r->recv.cr.tag,
		.gen = r->recv.cr.pos.gen,
		.ord = r->recv.cr.pos.ord,
	};
	struct prog_buf b = buf_prog(r);

	if (r->opaque_type ||
	    atomic_load_explicit(&announced, memory_order_relaxed) >= ANNOUNCED_MAX ||
	    prog_msg_recv(p2p_context, &key, &b, wait || partner_recv_waits(key.src) ? PROG_MSGF_HINT_BLOCKING : 0, &r->m))
		return false;
	atomic_fetch_add_explicit(&announced, 1, memory_order_relaxed);
	r->recv.announced = r->recv.cr.announced = true;
	r->recv.whole = false;
	return true;
}

void recv_drop(struct rec *r)
{
	if (r->recv.announced)
		atomic_fetch_sub_explicit(&announced, 1, memory_order_relaxed);
	r->recv.announced = false;
	prog_msg_free(p2p_context, r->m);
	r->m = NULL;
}

/*
 * The daemon is lost.  What it had taken for us before is ours, and its sender was told so.  From the first byte,
 * as nobody knows what the daemon had written.
 */
static int rescue(struct rec *r, struct prog_msg_result *res)
{
	uint64_t len = r->recv.d.name.len;
	void *copy;

	if (prog_msg_rescue(p2p_context, &r->recv.d.name, &copy))
		return -ECONNRESET;
	buf_write(r, copy, len);
	free(copy);
	r->recv.whole = true;
	free(r->packed);
	r->packed = NULL;
	*res = (struct prog_msg_result){ .len = len };
	return 0;
}

/* The message that @r->m is for has ended, as @status and @res say; its descriptor is here. */
static void arrived(struct rec *r, int status, struct prog_msg_result *res)
{
	const void *head;
	size_t n;

	r->fix = true;
	if (unlikely(status == -ECONNRESET) && r->cap >= DESC_SIZE)
		status = rescue(r, res);
	if (r->cap < DESC_SIZE) {	/* dropped; nobody waits for the sender's side of that */
		r->err = MPI_ERR_TRUNCATE;
		r->len = r->cap;
	} else if (status < 0) {
		prog_log_limited(PROG_LOG_ERROR, "message from rank %d, tag %d: %s", r->recv.source, r->recv.tag,
				 strerror(-status));
		r->err = MPI_ERR_OTHER;
		r->len = 0;
		if (!r->recv.user_bounce && !r->recv.held) {
			static const unsigned char zero[DESC_SIZE];

			buf_write(r, zero, sizeof(zero));
		}
	} else {
		r->len = res->len;
		if (!r->recv.whole) {
			n = prog_msg_head(p2p_context, r->m, &head);
			buf_write(r, head, n);
		}
		if (r->packed)
			buf_write(r, r->packed, r->len);
		if (r->len > r->cap) {
			r->err = MPI_ERR_TRUNCATE;
			r->len = r->cap;
		}
		buf_check(r, res->len);
	}
	recv_drop(r);
	prog_msg_free(p2p_context, r->recv.pre_matched);
	r->recv.pre_matched = NULL;
	rec_transition(r, REC_READY);
}

/*
 * The descriptor for an announced receive is here, but the daemon does not have the message.  It may never hear of it:
 * the sender's daemon may have been lost before it could tell, and then only who asks for the message learns that.
 * So after a while it is asked for by its name as well.  One of the two at most gets it, and if it is on
 * its way for the first one already, the second one ends at once.
 */
static void doubt(struct rec *r)
{
	uint64_t now = clock_ns();

	if (r->recv.doubt_at && now >= r->recv.doubt_at) {
		r->recv.pre_matched = r->m;
		r->m = NULL;
		/* not copied by ourselves: the daemon may be at it */
		if (recv_xfer(r, true, 0)) {
			r->m = r->recv.pre_matched;
			r->recv.pre_matched = NULL;
			r->recv.whole = false;
		}
	}
	if (!r->recv.doubt_at || now >= r->recv.doubt_at)
		r->recv.doubt_at = now + RECV_DOUBT_NS;
}

/* The message was not to be had by its name, as @status says.  True: that was not the last word. */
static bool still_pre_matched(struct rec *r, int status, struct prog_msg_result *res)
{
	prog_msg_free(p2p_context, r->m);
	r->m = r->recv.pre_matched;
	r->recv.pre_matched = NULL;
	r->recv.whole = false;
	return prog_msg_test(p2p_context, r->m, res) == 1 || status == -EBUSY || status == -EEXIST;
}

/* The payload of @r is under way: is it there? */
bool recv_moving(struct rec *r)
{
	struct prog_msg_result res = { 0 };
	int rc;

	if (unlikely(!r->m)) {
		rc = recv_xfer(r, true, PROG_MSGF_URGENT);
		if (rc == -EAGAIN)
			return false;
		if (rc) {
			r->m = NULL;
			arrived(r, rc, &res);
			return true;
		}
	}
	rc = r->cap < DESC_SIZE ? 1 : prog_msg_test(p2p_context, r->m, &res);
	if (!rc) {
		if (r->recv.announced && !r->recv.pre_matched)
			doubt(r);
		return false;
	}
	if (rc == 1)
		rc = res.status;
	if (unlikely(r->recv.pre_matched && rc) && still_pre_matched(r, rc, &res)) {
		/* the next look says what became of it */
		return false;
	}
	arrived(r, rc, &res);
	return true;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Endpoints.  A stream of bytes is cut into messages, which go by the queue pair of the class they fit; each has a number in
 * its immediate data, by which the receiver puts those of both classes in order, and tells how many receive buffers of each
 * class are free again:
 *
 *	31 .. 16  number	15 .. 8  small buffers given back	7 .. 0  large ones
 *
 * A message without bytes only tells that; its number means nothing.  For one of these a small buffer is always left: so
 * neither side waits for what the other one has and cannot tell.
 *
 * Whatever a peer says is checked: its numbers, how many buffers it uses and gives back, and what it told of itself.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "verbs.h"

#define TIMEOUT_MIN	14		/* 4.096 us << this, 67 ms, until what is sent is tried again */
#define TIMEOUT_MAX	20
#define RETRIES		7		/* it is tried again so often */
#define RNR_RETRIES	6		/* a peer that has no buffer is asked again so often */
#define RNR_TIMER	24		/* 41 ms, until it is asked again */

static void touch(struct verbs_ep *e)
{
	if (e->touched)
		return;
	e->touched = true;
	e->touched_next = e->d->touched;
	e->d->touched = e;
}

static __attribute__((format(printf, 2, 3))) void fail(struct verbs_ep *e, const char *fmt, ...)
{
	va_list ap;

	if (e->failed[0] || e->dying)
		return;
	va_start(ap, fmt);
	vsnprintf(e->failed, sizeof(e->failed), fmt, ap);
	va_end(ap);
	touch(e);
}

/* ---- sending ---- */

static uint32_t credit(const struct half *h)
{
	uint32_t left = h->theirs - h->under_way;

	/* the last small one is for what has no bytes */
	return h == &h->e->half[SMALL] && left ? left - 1 : left;
}

static bool sq_room(struct half *h)
{
	if (h->sq_head - h->sq_tail == SQ_DEPTH)
		device_reap(h->e->d);
	return h->sq_head - h->sq_tail < SQ_DEPTH;
}

/* @b NULL: inline.  The caller has looked that there is room, and a buffer of the peer. */
static int post(struct half *h, struct buf *b, const void *bytes, uint32_t len, bool tell)
{
	struct verbs_ep *e = h->e;
	uint32_t give[VERBS_CLASSES];
	struct ibv_sge sge = {
		.addr = b ? (uintptr_t)b->p : (uintptr_t)bytes, .length = len, .lkey = b ? b->lkey : 0,
	};
	struct ibv_send_wr wr = {
		.wr_id = h->sq_head, .sg_list = &sge, .num_sge = len ? 1 : 0, .opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = b ? 0 : IBV_SEND_INLINE,
	}, *bad;

	for (int i = 0; i < VERBS_CLASSES; i++)
		give[i] = e->half[i].owed;
	wr.imm_data = htonl((uint32_t)e->tx_seq << 16 | give[SMALL] << 8 | give[LARGE]);
	if (tell || ++h->unsignalled >= SIGNAL_EACH) {
		wr.send_flags |= IBV_SEND_SIGNALED;
		h->unsignalled = 0;
	}
	if (ibv_post_send(h->qp, &wr, &bad)) {
		fail(e, "%s: does not take what is to be sent", e->d->name);
		return -EIO;
	}
	for (int i = 0; i < VERBS_CLASSES; i++) {
		e->half[i].held -= give[i];
		e->half[i].owed -= give[i];
	}
	h->sq[h->sq_head++ % SQ_DEPTH] = b;
	h->under_way++;
	e->tx_seq += len != 0;
	e->sent = e->began = true;
	return 0;
}

/* Tells of free buffers, if these are many and it can. */
static void give_back(struct verbs_ep *e)
{
	struct half *h = &e->half[SMALL];

	if (!e->connected || e->failed[0] ||
	    (h->owed < SMALL_LENT / 2 && e->half[LARGE].owed < LARGE_LENT / 2) || h->under_way >= h->theirs)
		return;
	if (sq_room(h))
		post(h, NULL, NULL, 0, false);
	else
		device_want_out(e->d);
}

static void want_room(struct verbs_ep *e)
{
	e->wants_room = e->d->wanting = true;
	device_want_out(e->d);
}

/* Which class the next message is of, when @left bytes are to be sent; NULL: has to wait. */
static struct half *choose(struct verbs_ep *e, size_t left)
{
	int first = left > SMALL_SIZE ? LARGE : SMALL;

	for (int i = 0; i < VERBS_CLASSES; i++) {
		struct half *h = &e->half[i ? !first : first];

		if (credit(h) && sq_room(h))
			return h;
	}
	return NULL;
}

/* @n bytes from @skip on. */
static void gather(uint8_t *to, const struct iovec *iov, size_t skip, size_t n)
{
	for (; n; iov++) {
		size_t part;

		if (skip >= iov->iov_len) {
			skip -= iov->iov_len;
			continue;
		}
		part = iov->iov_len - skip < n ? iov->iov_len - skip : n;
		memcpy(to, (const uint8_t *)iov->iov_base + skip, part);
		to += part;
		n -= part;
		skip = 0;
	}
}

static struct buf *take_out(struct device *d, int class)
{
	struct buf *b = buf_take(d, class);

	if (b)
		return b;
	device_reap(d);
	return buf_take(d, class);
}

/* One message of the bytes from @at on; how many it has, 0: has to wait, or -errno. */
static ssize_t send_some(struct verbs_ep *e, const struct iovec *iov, size_t at, size_t left)
{
	struct half *h = choose(e, left);
	uint8_t small[INLINE_WANTED];
	int class = h == &e->half[LARGE] ? LARGE : SMALL;
	struct buf *b = NULL;
	size_t n = left;
	int ret;

	if (!h)
		return 0;
	if (n > h->their_size)
		n = h->their_size;
	if (n > buf_sizes[class])
		n = buf_sizes[class];
	if (n <= h->inline_max) {
		gather(small, iov, at, n);
	} else {
		b = take_out(e->d, class);
		if (!b)
			return 0;
		gather(b->p, iov, at, n);
	}
	/* all may wait for buffers that are in sends of which nothing tells */
	ret = post(h, b, small, n, b && (n == left || buf_is_scarce(e->d, class)));
	if (ret && b)
		buf_put(b);
	return ret ? ret : (ssize_t)n;
}

ssize_t ep_send(struct verbs_ep *e, const struct iovec *iov, int n)
{
	size_t total = 0, at = 0;
	bool last = false;

	for (int i = 0; i < n; i++)
		total += iov[i].iov_len;
	if (e->failed[0] || !e->connected)
		return -EIO;
	while (at < total) {
		ssize_t ret = send_some(e, iov, at, total - at);

		if (ret < 0)
			return ret;
		at += ret;
		if (ret)
			continue;
		if (last)
			break;
		/* what has ended before this is seen now, what ends later is told */
		want_room(e);
		last = true;
	}
	return at;
}

bool ep_quiet(struct verbs_ep *e)
{
	bool quiet = true;

	want_room(e);
	device_reap(e->d);
	for (int i = 0; i < VERBS_CLASSES; i++) {
		struct half *h = &e->half[i];

		/* the last ones may be silent: one behind them tells */
		if (h->unsignalled && h->under_way < h->theirs && sq_room(h))
			post(h, NULL, NULL, 0, true);
		quiet &= h->sq_head == h->sq_tail;
	}
	return quiet;
}

static void has_room(struct verbs_ep *e)
{
	e->wants_room = false;
	e->tell_room = true;
	touch(e);
}

/* Sends have ended, well or not: all that wait may have waited for what has become free. */
static void sends_ended(struct device *d)
{
	struct verbs_ep *e;

	if (!d->wanting)
		return;
	d->wanting = false;
	DL_FOREACH(d->eps, e)
		if (e->wants_room)
			has_room(e);
}

/* All before the one of which @wc tells have ended, too. */
static void send_ended(struct half *h, const struct ibv_wc *wc)
{
	struct verbs_ep *e = h->e;
	uint32_t n = (uint32_t)wc->wr_id - h->sq_tail + 1;

	if (n > h->sq_head - h->sq_tail)
		return;
	for (; n; n--, h->sq_tail++) {
		struct buf *b = h->sq[h->sq_tail % SQ_DEPTH];

		if (b)
			buf_put(b);
	}
	if (wc->status != IBV_WC_SUCCESS)
		fail(e, "%s: send: %s", e->d->name, ibv_wc_status_str(wc->status));
	else
		give_back(e);
	sends_ended(e->d);
}

/* ---- receiving ---- */

/* Its receive buffer can be used again. */
static void recycle(struct half *h, struct buf *b)
{
	h->owed++;
	if (!buf_post(b))
		fail(h->e, "%s: does not take receive buffers", h->e->d->name);
}

static bool check(struct half *h, const struct ibv_wc *wc, const uint32_t back[VERBS_CLASSES], uint16_t ahead)
{
	struct verbs_ep *e = h->e;

	if (wc->status != IBV_WC_SUCCESS)
		fail(e, "%s: receive: %s", e->d->name, ibv_wc_status_str(wc->status));
	else if (!(wc->wc_flags & IBV_WC_WITH_IMM) || wc->byte_len > buf_sizes[h == &e->half[LARGE]])
		fail(e, "the peer sends what is no message");
	else if (h->held >= buf_lent[h == &e->half[LARGE]])
		fail(e, "the peer uses more buffers than it was lent");
	else if (back[SMALL] > e->half[SMALL].under_way || back[LARGE] > e->half[LARGE].under_way)
		fail(e, "the peer gives back buffers that it did not lend");
	else if (wc->byte_len && (ahead >= WINDOW || e->rx[(uint16_t)(e->rx_seq + ahead) % WINDOW].here))
		fail(e, "the peer's messages have wrong numbers");
	else
		return !e->failed[0];
	return false;
}

static void came(struct half *h, const struct ibv_wc *wc, struct buf *b)
{
	struct verbs_ep *e = h->e;
	uint32_t imm = ntohl(wc->imm_data), back[VERBS_CLASSES] = { imm >> 8 & 0xff, imm & 0xff };
	uint16_t ahead = (imm >> 16) - e->rx_seq;
	struct message *m = &e->rx[(imm >> 16) % WINDOW];

	if (e->dying || !check(h, wc, back, ahead)) {
		if (!buf_post(b))
			fail(e, "%s: does not take receive buffers", e->d->name);
		return;
	}
	h->held++;
	e->began = true;
	if (wc->byte_len)
		*m = (struct message){ .here = true, .buf = b, .len = wc->byte_len };
	else
		recycle(h, b);
	for (int i = 0; i < VERBS_CLASSES; i++)
		e->half[i].under_way -= back[i];
	if (e->wants_room && (back[SMALL] || back[LARGE]))
		has_room(e);
	if (e->rx[e->rx_seq % WINDOW].here) {
		e->tell_input = true;
		touch(e);
	}
	give_back(e);
}

/* The next message is taken. */
static void taken(struct verbs_ep *e)
{
	struct message *m = &e->rx[e->rx_seq % WINDOW];
	struct buf *b = m->buf;

	m->here = false;
	e->rx_seq++;
	e->rx_off = 0;
	recycle(&e->half[b->class], b);
}

size_t ep_recv(struct verbs_ep *e, const struct iovec *iov, int n)
{
	size_t got = 0, at = 0;
	struct message *m;

	while (n && !e->failed[0] && (m = &e->rx[e->rx_seq % WINDOW])->here) {
		size_t part = m->len - e->rx_off, room = iov->iov_len - at;

		if (part > room)
			part = room;
		memcpy((uint8_t *)iov->iov_base + at, m->buf->p + e->rx_off, part);
		got += part;
		at += part;
		e->rx_off += part;
		if (e->rx_off == m->len)
			taken(e);
		if (at == iov->iov_len) {
			iov++;
			n--;
			at = 0;
		}
	}
	give_back(e);
	return got;
}

/* ---- beginning and end ---- */

int ep_cannot(const struct device *d, char why[VERBS_WHY], const char *what)
{
	int err = errno ? errno : EIO;

	snprintf(why, VERBS_WHY, "%s: %s: %s", d->name, what, strerror(err));
	return -err;
}

int ep_random_psn(const struct device *d, uint32_t *psn, char why[VERBS_WHY])
{
	if (getrandom(psn, sizeof(*psn), 0) != sizeof(*psn))
		return ep_cannot(d, why, "random number");
	*psn &= QPN_MAX;
	return 0;
}

static struct ibv_qp *make_qp(struct device *d, int class, uint32_t *inline_max)
{
	struct ibv_qp_init_attr a = {
		.send_cq = d->scq, .recv_cq = d->rcq, .srq = d->srq[class], .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = SQ_DEPTH, .max_send_sge = 1, .max_inline_data = INLINE_WANTED },
	};
	struct ibv_qp *qp = ibv_create_qp(d->pd, &a);

	if (!qp) {
		a.cap.max_inline_data = 0;
		qp = ibv_create_qp(d->pd, &a);
	}
	*inline_max = a.cap.max_inline_data < INLINE_WANTED ? a.cap.max_inline_data : INLINE_WANTED;
	return qp;
}

static int half_new(struct verbs_ep *e, int class, char why[VERBS_WHY])
{
	struct half *h = &e->half[class];
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = e->d->port };

	h->e = e;
	errno = 0;
	h->qp = make_qp(e->d, class, &h->inline_max);
	if (!h->qp)
		return ep_cannot(e->d, why, "queue pair");
	device_add_qp(e->d, h);
	/* no access: nothing here can be read or written by who is at the other end */
	if (ibv_modify_qp(h->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return ep_cannot(e->d, why, "queue pair");
	return ep_random_psn(e->d, &h->psn, why);
}

/* All tries together are as long as a peer is waited for. */
static unsigned int timeout_of(const struct device *d)
{
	unsigned int timeout = TIMEOUT_MIN;

	while (timeout < TIMEOUT_MAX && (4096ull << (timeout + 1)) * (RETRIES + 1) <= d->v->o->patience_ms * 1000000ull)
		timeout++;
	return timeout;
}

static unsigned int mtu_of(const struct device *d)
{
	unsigned int mtu = d->mtu;

	while (d->v->o->mtu && mtu > IBV_MTU_256 && 128u << mtu > d->v->o->mtu)
		mtu--;
	return mtu;
}

static void describe(const struct verbs_ep *e, struct verbs_end *mine)
{
	const struct device *d = e->d;

	*mine = (struct verbs_end){ .link = d->link, .mtu = mtu_of(d), .lid = d->lid };
	memcpy(mine->gid, d->gid.raw, sizeof(mine->gid));
	for (int i = 0; i < VERBS_CLASSES; i++)
		mine->qp[i] = (struct verbs_end_qp){ .qpn = e->half[i].qp->qp_num, .psn = e->half[i].psn,
						     .buffers = buf_lent[i], .size = buf_sizes[i] };
}

static bool is_dead(const struct verbs_ep *e)
{
	return e->d->dead || e->death >= DEATH_TICKS || (e->half[SMALL].last_reached && e->half[LARGE].last_reached);
}

static void destroy(struct verbs_ep *e)
{
	struct device *d = e->d;

	/* what came for it, and the sends that have ended, while its queue pairs are known */
	e->dying = true;
	if (d->rcq)
		device_drain(d);
	if (d->scq)
		device_reap(d);
	/* a send of another one may have told all that wait for room */
	if (e->touched)
		LL_DELETE2(d->touched, e, touched_next);
	for (int i = 0; i < VERBS_CLASSES; i++) {
		struct half *h = &e->half[i];

		if (!h->qp)
			continue;
		device_remove_qp(d, h);
		ibv_destroy_qp(h->qp);
		for (; h->sq_tail != h->sq_head; h->sq_tail++) {
			struct buf *b = h->sq[h->sq_tail % SQ_DEPTH];

			if (b)
				buf_put(b);
		}
	}
	DL_DELETE(d->eps, e);
	sends_ended(d);
	d->ends--;
	free(e);
}

int ep_new(struct verbs *v, const uint8_t local[16], void *ctx, struct verbs_end *mine, struct verbs_ep **out, char why[VERBS_WHY])
{
	struct verbs_ep *e = calloc(1, sizeof(*e));
	int ret;

	if (!e) {
		snprintf(why, VERBS_WHY, "no memory");
		return -ENOMEM;
	}
	ret = device_get(v, local, &e->d, why);
	if (ret) {
		free(e);
		return ret;
	}
	DL_APPEND(e->d->eps, e);
	e->d->ends++;
	e->ctx = ctx;
	if (e->d->lent_slabs < e->d->ends)
		ret = buf_lend(e->d, why);
	for (int i = 0; !ret && i < VERBS_CLASSES; i++)
		ret = half_new(e, i, why);
	if (ret) {
		struct device *d = e->d;

		destroy(e);
		if (!d->ends)
			device_free(d);
		return ret;
	}
	describe(e, mine);
	*out = e;
	return 0;
}

static bool is_valid(const struct device *d, const struct verbs_end *peer, char why[VERBS_WHY])
{
	const char *text = NULL;
	union ibv_gid gid;

	memcpy(gid.raw, peer->gid, sizeof(gid.raw));
	if (peer->link != d->link)
		text = "the networks are of different kinds";
	else if (peer->mtu < IBV_MTU_256 || peer->mtu > IBV_MTU_4096)
		text = "the peer's MTU is none";
	else if (d->link == VERBS_LINK_ETH && (peer->gid[0] == 0xff || !(gid.global.subnet_prefix || gid.global.interface_id)))
		text = "the peer's GID is none";
	else if (d->link == VERBS_LINK_IB && (!peer->lid || gid.global.subnet_prefix != d->gid.global.subnet_prefix))
		text = "the peer is in another subnet";
	for (int i = 0; i < VERBS_CLASSES && !text; i++) {
		const struct verbs_end_qp *q = &peer->qp[i];

		if (q->qpn < 2 || q->qpn > QPN_MAX || q->psn > QPN_MAX)
			text = "the peer's queue pair is none";
		else if (q->buffers < 2 || q->buffers > VERBS_BUFFERS_MAX || q->size < SMALL_SIZE || q->size > VERBS_BUFFER_MAX)
			text = "the peer's buffers are none";
	}
	if (text)
		snprintf(why, VERBS_WHY, "%s: %s", d->name, text);
	return !text;
}

int ep_qp_connect(struct verbs_ep *e, struct ibv_qp *qp, const struct verbs_end *peer, const struct qp_path *to,
		  char why[VERBS_WHY])
{
	struct device *d = e->d;
	unsigned int mtu = mtu_of(d);
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu < peer->mtu ? mtu : peer->mtu, .dest_qp_num = to->qpn,
		.rq_psn = to->psn, .min_rnr_timer = RNR_TIMER, .max_dest_rd_atomic = to->answers,
		.ah_attr = { .dlid = peer->lid, .sl = d->v->o->service_level, .port_num = d->port },
	};

	if (d->link == VERBS_LINK_ETH) {
		a.ah_attr.is_global = 1;
		a.ah_attr.grh.sgid_index = d->gid_index;
		a.ah_attr.grh.hop_limit = 64;
		memcpy(a.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
	}
	errno = 0;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return ep_cannot(d, why, "no way to the peer");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = timeout_of(d), .retry_cnt = RETRIES, .rnr_retry = RNR_RETRIES,
				  .sq_psn = to->my_psn, .max_rd_atomic = to->asks };
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC))
		return ep_cannot(d, why, "no way to the peer");
	return 0;
}

static int half_connect(struct half *h, const struct verbs_end *peer, int class, char why[VERBS_WHY])
{
	struct qp_path to = { .qpn = peer->qp[class].qpn, .psn = peer->qp[class].psn, .my_psn = h->psn };
	int ret = ep_qp_connect(h->e, h->qp, peer, &to, why);

	if (ret)
		return ret;
	h->theirs = peer->qp[class].buffers < buf_lent[class] ? peer->qp[class].buffers : buf_lent[class];
	h->their_size = peer->qp[class].size;
	return 0;
}

int ep_connect(struct verbs_ep *e, const struct verbs_end *peer, char why[VERBS_WHY])
{
	int ret = e->connected ? -EISCONN : is_valid(e->d, peer, why) ? 0 : -EINVAL;

	for (int i = 0; !ret && i < VERBS_CLASSES; i++)
		ret = half_connect(&e->half[i], peer, i, why);
	e->connected = !ret;
	if (!ret)
		e->peer = *peer;
	return ret;
}

void ep_free(struct verbs_ep *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	if (!e)
		return;
	e->dying = true;
	e->ctx = NULL;
	for (int i = 0; i < VERBS_CLASSES; i++)
		ibv_modify_qp(e->half[i].qp, &a, IBV_QP_STATE);
	/* an end is looked at with the next event, or by the clock */
	for (unsigned int i = 0; i < WINDOW; i++) {
		if (e->rx[i].here)
			buf_post(e->rx[i].buf);
		e->rx[i].here = false;
	}
}

const char *ep_name(const struct verbs_ep *e)
{
	return e->d->name;
}

void ep_tick(struct verbs_ep *e)
{
	struct half *h = &e->half[SMALL];

	if (e->dying) {
		e->death++;
		return;
	}
	e->quiet = e->sent ? 0 : e->quiet + 1;
	e->sent = false;
	/* the peer's end may take longer to be connected than a device goes on trying; till then the lane looks after it */
	if (!e->began || e->failed[0] || e->quiet < e->d->v->o->quiet_s)
		return;
	/* if the peer is not there any more, this fails */
	if (credit(h) && sq_room(h))
		post(h, NULL, NULL, 0, true);
	e->quiet = 0;
}

static void device_failed(struct verbs_ep *e, const char *why)
{
	fail(e, "%s: %s", e->d->name, why);
}

const struct ep_events ep_events = {
	.came = came,
	.ended = send_ended,
	.failed = device_failed,
	.is_dead = is_dead,
	.destroy = destroy,
};

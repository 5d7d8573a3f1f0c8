/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Connections that are cut: what comes out of a lane is what went in, once and in order.  First the send queue and
 * reassembly alone, joined by memory; then two daemons in one thread,
 *
 *	node a (opener) ---- proxy ---- node b (acceptor)
 *
 * with a proxy between them that forwards so many bytes and then resets both connections.  PROG_SEED=N repeats a run.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include <kit/loop.h>
#include <libprogbase/log.h>

#include "xport/lane.h"

#define FRAMES	8u		/* of the script, in each direction */

static unsigned int seed;

static uint8_t byte_of(unsigned int frame, uint32_t i)
{
	return frame * 37 + i * 7 + (i >> 8);
}

/* By reference are those from LANE_REF_MIN on; received in place those from XPORT_DIRECT_MIN on, every other one. */
static uint32_t len_of(unsigned int frame)
{
	static const uint32_t len[FRAMES] = { 0, 8, 100, XPORT_DIRECT_MIN, LANE_REF_MIN, 3, 9001, 40 };

	return len[frame % FRAMES];
}

static struct wire_frame frame(uint8_t type, unsigned int number)
{
	uint32_t len = len_of(number);

	return (struct wire_frame){
		.type = type, .job = 1, .seq = number + 1, .len = len, .total = len,
		.flags = WIRE_F_LAST, .origin = 1, .target = 2, .win = 3,
	};
}

/* ---- one side ---- */

struct payload {
	struct side *of;
	bool sent, over;
	unsigned int frame;
	uint8_t bytes[];
};

struct side {
	unsigned int queued, got;	/* frames */
	unsigned int begins, ends, aborts;
	unsigned int refs, sents, overs, errors;
	unsigned int *peer_got;		/* frames that have arrived at the other side */
	uint8_t area[WIRE_MAX_PAYLOAD];
};

static void ref_sent(void *arg, int err)
{
	struct payload *p = arg;

	assert_false(p->sent);
	p->sent = true;
	p->of->sents++;
}

static void ref_over(void *arg, int err)
{
	struct payload *p = arg;

	assert_true(p->sent);
	assert_false(p->over);
	p->of->overs++;
	if (err)
		p->of->errors++;
	else if (*p->of->peer_got <= p->frame)
		fail_msg("frame %u is over, %u have arrived", p->frame, *p->of->peer_got);
	/* whoever sends it again sends this */
	memset(p->bytes, 0xdd, len_of(p->frame));
	free(p);
}

static const struct lane_ref ref = { .sent = ref_sent, .over = ref_over };

static struct payload *payload_new(struct side *s, unsigned int number)
{
	uint32_t len = len_of(number);
	struct payload *p = calloc(1, sizeof(*p) + len);

	assert_non_null(p);
	p->of = s;
	p->frame = number;
	for (uint32_t i = 0; i < len; i++)
		p->bytes[i] = byte_of(number, i);
	return p;
}

static int begin(struct side *s, const struct wire_frame *f, struct lane_sink *sink)
{
	s->begins++;
	sink->token = s;
	if (f->seq % 2)
		return 0;
	memset(s->area, 0, f->len);
	sink->iov[0] = (struct iovec){ s->area, f->len / 3 };
	sink->iov[1] = (struct iovec){ s->area + f->len / 3, f->len - f->len / 3 };
	sink->niov = 2;
	return 0;
}

static int end(struct side *s, const struct wire_frame *f, const uint8_t *payload, void *token)
{
	const uint8_t *p = payload ? payload : s->area;

	s->ends += token != NULL;
	if (s->got == UINT32_MAX)
		return 0;		/* anything */
	if (f->seq != s->got + 1)
		fail_msg("frame %llu after %u", (unsigned long long)f->seq, s->got);
	assert_int_equal(f->len, len_of(s->got));
	for (uint32_t i = 0; i < f->len; i++)
		if (p[i] != byte_of(s->got, i))
			fail_msg("frame %u, byte %u: %02x instead of %02x", s->got, i, p[i], byte_of(s->got, i));
	s->got++;
	return 0;
}

/* ---- joined by memory ---- */

static int mem_begin(void *ctx, const struct wire_frame *f, struct lane_sink *sink)
{
	return begin(ctx, f, sink);
}

static int mem_end(void *ctx, const struct wire_frame *f, const void *payload, void *token)
{
	return end(ctx, f, payload, token);
}

static void mem_abort(void *ctx, const struct wire_frame *f, void *token)
{
	((struct side *)ctx)->aborts++;
}

static bool mem_more(void *ctx)
{
	return true;
}

static const struct rx_ops mem_ops = { mem_begin, mem_end, mem_abort, mem_more };

static struct mem {
	struct tx tx;
	struct rx rx;
	struct side from, to;
	uint64_t left;			/* bytes until the next cut */
	unsigned int cuts;
} m;

static void mem_queue(void)
{
	while (m.from.queued < FRAMES) {
		unsigned int n = m.from.queued;
		struct wire_frame f = frame(WIRE_RMA_PUT, n);
		bool by_ref = f.len >= LANE_REF_MIN;
		struct payload *p;
		uint8_t *room = tx_room(&m.tx, WIRE_HDR_SIZE + (by_ref ? 0 : f.len), by_ref ? 2 : 1, false);

		if (!room)
			return;
		p = payload_new(&m.from, n);
		wire_encode(&f, room);
		if (!by_ref)
			memcpy(room + WIRE_HDR_SIZE, p->bytes, f.len);
		tx_commit(&m.tx, room, WIRE_HDR_SIZE + (by_ref ? 0 : f.len));
		if (by_ref) {
			tx_ref(&m.tx, p->bytes, f.len, &ref, p);
			m.from.refs++;
		} else {
			free(p);
		}
		m.from.queued++;
		if (rand_r(&seed) % 3 == 0)
			return;
	}
}

/* Bytes arrive, in parts of any size. */
static void mem_arrive(const uint8_t *p, size_t len)
{
	const char *why = "";
	struct iovec *iov;

	while (len) {
		int n = rx_iov(&m.rx, &iov);
		size_t part = rand_r(&seed) % 4 ? len : rand_r(&seed) % len + 1, done = 0;

		for (int i = 0; i < n && done < part; i++) {
			size_t k = part - done < iov[i].iov_len ? part - done : iov[i].iov_len;

			memcpy(iov[i].iov_base, p + done, k);
			done += k;
		}
		if (rx_input(&m.rx, done, &why))
			fail_msg("%s", why);
		p += done;
		len -= done;
	}
}

/* One send, or what a cut leaves of it. */
static void mem_send(uint64_t next_cut)
{
	int n = tx_batch(&m.tx);
	uint64_t pos = m.tx.sent;
	bool cut = false;

	for (int i = 1; i <= n && !cut; i++) {
		size_t len = m.tx.iov[i].iov_len;

		cut = len >= m.left;
		if (cut)
			len = m.left;
		mem_arrive(m.tx.iov[i].iov_base, len);
		pos += len;
		m.left -= len;
	}
	if (!cut) {
		tx_sent(&m.tx);
		return;
	}
	/* the loop may have heard that all went, or that it failed; staged bytes are lost */
	if (rand_r(&seed) % 2)
		tx_sent(&m.tx);
	m.tx.inflight = 0;
	m.cuts++;
	m.left = next_cut;
	assert_int_equal(tx_resume(&m.tx, m.rx.pos), 0);
	rx_resume(&m.rx);
}

/* Cut at byte @first, and again @second bytes later. */
static void mem_run(uint64_t first, uint64_t second)
{
	memset(&m, 0, sizeof(m));
	assert_int_equal(tx_init(&m.tx, 1u << 15, 1u << 20), 0);
	assert_int_equal(rx_init(&m.rx, WIRE_FROM_OPENER, &mem_ops, &m.to), 0);
	m.from.peer_got = &m.to.got;
	m.left = first;
	for (unsigned int i = 0; m.to.got < FRAMES; i++) {
		assert_true(i < 100000);
		mem_queue();
		mem_send(m.cuts ? UINT64_MAX : second);
		/* told late, or not at all, but never more than is true */
		if (rand_r(&seed) % 2 || !tx_queued(&m.tx))
			assert_int_equal(tx_confirm(&m.tx, m.rx.pos - (rand_r(&seed) % 2 ? rand_r(&seed) % (m.rx.pos + 1) : 0)), 0);
	}
	assert_int_equal(m.from.sents, m.from.refs);
	assert_int_equal(tx_confirm(&m.tx, m.rx.pos), 0);
	assert_int_equal(m.from.overs, m.from.refs);
	assert_int_equal(m.from.errors, 0);
	assert_int_equal(m.to.begins, m.to.ends);
	assert_int_equal(m.to.aborts, 0);
	assert_int_equal(m.tx.refs, 0);
	assert_true(m.tx.keep == m.tx.push);
	assert_int_equal(m.tx.head, m.tx.tail);
	tx_fini(&m.tx, 0);
	rx_fini(&m.rx);
}

static uint64_t script_size(void)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < FRAMES; i++)
		n += WIRE_HDR_SIZE + len_of(i);
	return n;
}

/* Each byte of the first frames, and of those behind long ones; some of the others. */
static void test_bytes(void **state)
{
	uint64_t size = script_size();

	for (uint64_t at = 1; at <= size; at += at < 1000 || at > size - 500 ? 1 : rand_r(&seed) % 9 + 1) {
		mem_run(at, UINT64_MAX);
		assert_int_equal(m.cuts, 1);
	}
}

static void test_pairs(void **state)
{
	uint64_t size = script_size();

	for (int i = 0; i < 5000; i++)
		mem_run(rand_r(&seed) % size + 1, rand_r(&seed) % (i % 2 ? 200 : size) + 1);
}

/* What cannot be: less than was confirmed, or more than was sent. */
static void test_positions(void **state)
{
	struct tx tx;
	uint8_t *p;

	assert_int_equal(tx_init(&tx, 1u << 15, 1u << 20), 0);
	for (int i = 0; i < 2; i++) {
		p = tx_room(&tx, 100, 1, false);
		assert_non_null(p);
		memset(p, i, 100);
		tx_commit(&tx, p, 100);
		if (!i)
			assert_int_equal(tx_batch(&tx), 1);
	}
	/* given to the loop, which has not said yet that they are sent */
	assert_int_equal(tx_confirm(&tx, 101), -EPROTO);
	assert_int_equal(tx_confirm(&tx, 60), 0);
	assert_int_equal(tx.kept, 0);
	tx_sent(&tx);
	assert_int_equal(tx.kept, 60);
	/* late ones say nothing new */
	assert_int_equal(tx_confirm(&tx, 10), 0);
	assert_int_equal(tx_resume(&tx, 59), -EPROTO);
	assert_int_equal(tx_resume(&tx, 101), -EPROTO);
	assert_int_equal(tx_resume(&tx, 60), 0);
	assert_int_equal(tx_queued(&tx), 140);
	assert_false(tx_at_frame(&tx));
	assert_int_equal(tx_batch(&tx), 1);
	assert_int_equal(tx.iov[1].iov_len, 140);
	assert_int_equal(((uint8_t *)tx.iov[1].iov_base)[0], 0);
	tx_sent(&tx);
	assert_true(tx_at_frame(&tx));
	tx_fini(&tx, 0);
}

static void count_over(void *arg, int err)
{
	assert_int_equal(err, 0);
	++*(int *)arg;
}

static bool is_arg(const void *arg, const void *ctx)
{
	return arg == ctx;
}

/* What was by reference and was copied is sent again as it was. */
static void test_copies(void **state)
{
	static const struct lane_ref counted = { .over = count_over };
	static uint8_t first[LANE_REF_MIN], second[LANE_REF_MIN], big[TX_COPIES_MAX];
	int overs[3] = { 0 };
	struct tx tx;

	assert_int_equal(tx_init(&tx, 1u << 15, 1u << 24), 0);
	memset(first, 1, sizeof(first));
	memset(second, 2, sizeof(second));
	tx_ref(&tx, first, sizeof(first), &counted, &overs[0]);
	tx_ref(&tx, second, sizeof(second), &counted, &overs[1]);
	tx_ref(&tx, big, sizeof(big), &counted, &overs[2]);
	/* the loop has it */
	assert_int_equal(tx_batch(&tx), 3);
	tx_copy_kept(&tx, &counted, is_arg, &overs[0]);
	assert_int_equal(overs[0], 0);
	tx_sent(&tx);
	tx_copy_kept(&tx, &counted, is_arg, &overs[0]);
	assert_int_equal(overs[0], 1);
	assert_int_equal(tx.copies, sizeof(first));
	/* too much, with the other one */
	tx_copy_kept(&tx, &counted, is_arg, &overs[2]);
	assert_int_equal(overs[2], 0);
	memset(first, 8, sizeof(first));
	memset(second, 9, sizeof(second));
	assert_int_equal(tx_resume(&tx, 10), 0);
	assert_int_equal(tx_batch(&tx), 3);
	assert_int_equal(tx.iov[1].iov_len, sizeof(first) - 10);
	assert_int_equal(*(uint8_t *)tx.iov[1].iov_base, 1);
	assert_int_equal(*(uint8_t *)tx.iov[2].iov_base, 9);
	tx_sent(&tx);
	assert_int_equal(tx_confirm(&tx, sizeof(first) + sizeof(second)), 0);
	assert_int_equal(tx.copies, 0);
	assert_int_equal(overs[0] + overs[1], 2);
	tx_copy_kept(&tx, &counted, is_arg, &overs[2]);
	assert_int_equal(overs[2], 1);
	tx_fini(&tx, 0);
	assert_int_equal(overs[2], 1);
}

/* ---- two daemons ---- */

static int loop_kind_used;
static bool sealed;
static const uint8_t *lane_key[2];	/* of a, of b */

static struct node {
	struct loop *loop;
	struct xport *x;
	struct xport_worker *xw;
	struct prog_addr addr[PROG_MAX_ADDRS];
	struct lane *lane;
	struct side side;
	uint8_t type;			/* of the frames it sends */
	unsigned int downs;
	int err;
	char why[256];
	uint32_t job;
	int job_err;
} a, b;

static int node_begin(void *ctx, struct lane *l, const struct wire_frame *f, struct lane_sink *sink)
{
	return begin(&((struct node *)ctx)->side, f, sink);
}

static int node_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload, void *token)
{
	return end(&((struct node *)ctx)->side, f, payload, token);
}

static void node_abort(void *ctx, struct lane *l, const struct wire_frame *f, void *token)
{
	((struct node *)ctx)->side.aborts++;
}

static void node_up(void *ctx, struct lane *l)
{
	((struct node *)ctx)->lane = l;
}

static void node_down(void *ctx, struct lane *l, int err, const char *why)
{
	struct node *n = ctx;

	n->downs++;
	n->err = err;
	snprintf(n->why, sizeof(n->why), "%s", why);
	if (n->lane == l)
		n->lane = NULL;
}

static bool job_key(void *ctx, const uint8_t *jobid, uint8_t *key)
{
	memset(key, 7, PROG_JOBKEY_SIZE);
	return true;
}

static const struct xport_handlers handlers = {
	.frame_begin = node_begin, .frame_end = node_end, .frame_abort = node_abort,
	.lane_up = node_up, .lane_down = node_down, .job_key = job_key,
};

static int post(void *ctx, unsigned int worker, void (*fn)(void *arg), void *arg)
{
	fn(arg);
	return 0;
}

static void node_start(struct node *n, uint8_t id, uint8_t type)
{
	struct xport_opts o = {
		.workers = 1, .transport = "tcp", .listen = "127.0.0.1", .handlers = &handlers, .post = post,
		.encrypt = sealed, .lane_key = lane_key[n == &b],
	};
	char err[XPORT_ERR];

	memset(n, 0, sizeof(*n));
	n->type = type;
	memset(o.guid, id, sizeof(o.guid));
	n->loop = kit_loop(loop_kind_used);
	assert_int_equal(xport_new(&o, &n->x, err), 0);
	assert_int_equal(xport_attach(n->x, 0, n->loop, n, &n->xw), 0);
	assert_int_equal(xport_listen(n->x, n->loop, err), 0);
	assert_int_equal(xport_addrs(n->x, n->addr), 1);
}

static void node_stop(struct node *n)
{
	xport_unlisten(n->x);
	xport_detach(n->xw, 0);
	xport_free(n->x);
	loop_free(n->loop);
	assert_int_equal(n->side.begins, n->side.ends + n->side.aborts);
}

/* ---- the proxy ---- */

static struct {
	int listen;
	struct prog_addr addr;
	int fd[2];			/* to a, to b; -1: none */
	uint64_t left[2];		/* bytes from there until the next cut */
	uint64_t next;			/* bytes of either until the one after it */
	unsigned int cuts;
	bool away;			/* connections are reset at once */
	bool mute;			/* connections are not answered */
	uint64_t at[2];			/* bytes of this connection so far */
	/* what becomes of @n bytes from there; how many go on */
	ssize_t (*alter)(int from, uint8_t *buf, ssize_t n);
	unsigned int altered;
	uint64_t answer_by;		/* ns; 0: whenever */
} proxy;

static void proxy_start(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);

	memset(&proxy, 0, sizeof(proxy));
	proxy.fd[0] = proxy.fd[1] = -1;
	proxy.left[0] = proxy.left[1] = proxy.next = UINT64_MAX;
	proxy.listen = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(proxy.listen, (struct sockaddr *)&sa, len), 0);
	assert_int_equal(listen(proxy.listen, 16), 0);
	assert_int_equal(getsockname(proxy.listen, (struct sockaddr *)&sa, &len), 0);
	proxy.addr = b.addr[0];
	proxy.addr.port = sa.sin_port;
	/* where b says to be: it is on the way, and no other node */
	b.x->told[b.x->ntold++] = proxy.addr;
}

static void reset(int *fd)
{
	const struct linger now = { .l_onoff = 1 };

	if (*fd < 0)
		return;
	setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(*fd);
	*fd = -1;
}

static void cut(void)
{
	reset(&proxy.fd[0]);
	reset(&proxy.fd[1]);
	proxy.cuts++;
	proxy.left[0] = proxy.left[1] = proxy.next;
	proxy.next = UINT64_MAX;
}

static void proxy_forward(int from)
{
	static uint8_t buf[131072];
	size_t max = proxy.left[from] < sizeof(buf) / 2 ? proxy.left[from] : sizeof(buf) / 2;
	ssize_t n;

	if (proxy.fd[0] < 0)
		return;
	n = recv(proxy.fd[from], buf, max, MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		reset(&proxy.fd[0]);
		reset(&proxy.fd[1]);
		return;
	}
	if (proxy.left[from] != UINT64_MAX)
		proxy.left[from] -= n;
	proxy.at[from] += n;
	if (proxy.alter)
		n = proxy.alter(from, buf, n);
	/* what the kernel has would be lost with a reset at once: so it is not sure to arrive, as in real life */
	assert_int_equal(send(proxy.fd[!from], buf, n, MSG_NOSIGNAL), n);
	if (!proxy.left[from])
		cut();
}

static void proxy_step(void)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int fd = proxy.mute ? -1 : accept4(proxy.listen, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0) {
		reset(&proxy.fd[0]);
		reset(&proxy.fd[1]);
		if (proxy.away) {
			reset(&fd);
			return;
		}
		proxy.fd[0] = fd;
		proxy.at[0] = proxy.at[1] = 0;
		assert_true(xport_tcp.sockaddr(&b.addr[0], &ss, &len));
		proxy.fd[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(proxy.fd[1], (struct sockaddr *)&ss, len), 0);
	}
	proxy_forward(0);
	proxy_forward(1);
}

static void step(void)
{
	assert_true(loop_run_once(a.loop, 0) >= 0);
	proxy_step();
	assert_true(loop_run_once(b.loop, 0) >= 0);
	proxy_step();
	/* an engine gives a connection up on which no answer comes: the rest of a record may be missing */
	if (proxy.answer_by && loop_now() > proxy.answer_by) {
		proxy.answer_by = 0;
		lane_redial(a.lane, -ETIMEDOUT, "no answer");
	}
}

/* A lane that hangs must not hang the test. */
#define RUN(cond) do { \
	time_t limit_ = time(NULL) + 40; \
	while (!(cond)) { \
		step(); \
		if (time(NULL) > limit_) \
			fail_msg("did not happen: %s (a has %u, b %u of %u)", #cond, a.side.got, b.side.got, a.side.queued); \
	} \
} while (0)

static void job_done(void *ctx, struct lane *l, uint32_t job, int err)
{
	a.job_err = err;
	a.job = err ? 0 : job;
}

static uint32_t ask_for_job(uint8_t number)
{
	uint8_t id[WIRE_JOBID_SIZE] = { number }, key[PROG_JOBKEY_SIZE];
	int index;

	memset(key, 7, sizeof(key));
	index = lane_job_open(a.lane, id, key, job_done, NULL);
	assert_true(index > 0);
	return index;
}

static void open_lane(void)
{
	a.job = 0;
	a.lane = lane_open(a.xw, b.x->o.guid, &proxy.addr, 1);
	assert_non_null(a.lane);
	ask_for_job(1);
}

static void nodes_start(void)
{
	node_start(&a, 1, WIRE_RMA_PUT);
	node_start(&b, 2, WIRE_RMA_DATA);
	a.side.peer_got = &b.side.got;
	b.side.peer_got = &a.side.got;
	proxy_start();
}

static void pair_start(void)
{
	nodes_start();
	open_lane();
	RUN(a.job && b.lane);
}

static void pair_stop(void)
{
	node_stop(&a);
	node_stop(&b);
	reset(&proxy.fd[0]);
	reset(&proxy.fd[1]);
	close(proxy.listen);
}

/* Frames of the script until @upto are queued; as many as have room. */
static void queue(struct node *n, unsigned int upto)
{
	while (n->side.queued < upto) {
		struct payload *p = payload_new(&n->side, n->side.queued);
		struct wire_frame f = frame(n->type, n->side.queued);
		bool by_ref = f.len >= LANE_REF_MIN;
		int err = lane_send(n->lane, &f, p->bytes, by_ref ? &ref : NULL, by_ref ? p : NULL);

		if (err || !by_ref)
			free(p);
		if (err) {
			assert_int_equal(err, -EAGAIN);
			return;
		}
		n->side.refs += by_ref;
		n->side.queued++;
	}
}

/* One more script in each direction. */
static void script(void)
{
	unsigned int upto = a.side.got + FRAMES;

	while (a.side.got < upto || b.side.got < upto) {
		queue(&a, upto);
		queue(&b, upto);
		step();
		assert_int_equal(a.downs + b.downs, 0);
		if (rand_r(&seed) % 4 == 0)
			RUN(a.side.got == upto && b.side.got == upto);
	}
}

static void test_cuts(void **state)
{
	uint64_t size = script_size();
	unsigned int resumes;

	pair_start();
	for (int from = 0; from < 2; from++) {
		/* the first frames, then here and there */
		for (uint64_t at = 1; at < size; at += at < 3 * WIRE_HDR_SIZE ? 3 : rand_r(&seed) % 401 + 1) {
			unsigned int cuts = proxy.cuts;

			proxy.left[from] = at;
			script();
			/* else it was in a CONFIRM, or none was sent there */
			if (at < size)
				assert_int_equal(proxy.cuts, cuts + 1);
			RUN(lane_state(a.lane) == LANE_UP && lane_state(b.lane) == LANE_UP);
		}
	}
	resumes = lane_stats(a.lane)->resumes;
	assert_true(resumes >= proxy.cuts);
	RUN(a.side.refs == a.side.overs && b.side.refs == b.side.overs);
	assert_int_equal(a.side.errors + b.side.errors, 0);
	print_message("# %u cuts\n", proxy.cuts);
	pair_stop();
}

/* The new connection is cut too, mostly in its handshake. */
static void test_cut_twice(void **state)
{
	uint64_t size = script_size();

	pair_start();
	for (int i = 0; i < 60; i++) {
		unsigned int cuts = proxy.cuts;

		proxy.left[rand_r(&seed) % 2] = rand_r(&seed) % size + 1;
		proxy.next = i * 7 + 1;
		script();
		assert_true(proxy.cuts > cuts);
		proxy.left[0] = proxy.left[1] = proxy.next = UINT64_MAX;
		RUN(lane_state(a.lane) == LANE_UP && lane_state(b.lane) == LANE_UP);
	}
	assert_int_equal(a.side.errors + b.side.errors, 0);
	pair_stop();
}

/* Nothing of an engine's is on a lane before a job is accepted: it begins anew. */
static void test_cut_early(void **state)
{
	unsigned int anew = 0;

	for (int from = 0; from < 2; from++) {
		for (unsigned int at = 1; at < 4 * (WIRE_HDR_SIZE + WIRE_HELLO_SIZE); at += rand_r(&seed) % 25 + 1) {
			uint32_t dropped;

			nodes_start();
			proxy.left[from] = at;
			open_lane();
			dropped = ask_for_job(2);
			lane_job_close(a.lane, dropped);
			ask_for_job(3);
			/* what the acceptor had of it goes */
			RUN(a.job == 3 && b.lane && b.xw->lanes == b.lane && !b.lane->next);
			assert_int_equal(a.downs, 0);
			anew += lane_stats(a.lane)->resumes && b.downs;
			b.downs = 0;
			script();
			RUN(lane_state(a.lane) == LANE_UP && lane_state(b.lane) == LANE_UP);
			assert_int_equal(proxy.cuts, 1);
			pair_stop();
		}
	}
	print_message("# %u anew\n", anew);
	/* the others were cut before HELLO was answered, or after a job was accepted */
	assert_true(anew > 10);
}

/* Who was reached before is waited for, though this lane never was there. */
static void test_silent(void **state)
{
	/* who never was is not */
	nodes_start();
	a.x->o.connect_timeout_ns = 200000000;
	proxy.mute = true;
	a.lane = lane_open(a.xw, b.x->o.guid, &proxy.addr, 1);
	RUN(a.downs);
	assert_int_equal(a.err, -ETIMEDOUT);
	pair_stop();

	pair_start();
	a.x->o.connect_timeout_ns = 200000000;
	lane_close(a.lane, -EIO, "test");
	RUN(a.downs == 1 && b.downs);
	proxy.mute = true;
	open_lane();
	for (uint64_t end = loop_now() + 1500000000; loop_now() < end; )
		step();
	assert_int_equal(a.downs, 1);
	assert_true(lane_away_ns(a.lane) > 0);
	proxy.mute = false;
	RUN(a.job);
	assert_int_equal(lane_away_ns(a.lane), 0);
	assert_int_equal(a.downs, 1);

	/* until it is given up */
	lane_close(a.lane, -EIO, "test");
	RUN(a.downs == 2);
	a.x->o.peer_giveup_ns = 300000000;
	proxy.mute = true;
	a.lane = lane_open(a.xw, b.x->o.guid, &proxy.addr, 1);
	RUN(a.downs == 3);
	assert_int_equal(a.err, -ETIMEDOUT);

	/* nobody listens there any more: not waited for */
	a.x->o.peer_giveup_ns = 900000000000;
	close(proxy.listen);
	a.lane = lane_open(a.xw, b.x->o.guid, &proxy.addr, 1);
	RUN(a.downs == 4);
	assert_int_equal(a.err, -ECONNREFUSED);
	proxy.listen = -1;
	pair_stop();
}

static int unheard_is;

static int unheard(int fd)
{
	return unheard_is;
}

/* The kernel waits longer each time before it sends again what was lost: a new connection is faster. */
static void test_unheard(void **state)
{
	struct xport_ops ops = xport_tcp;
	unsigned int upto;

	ops.unheard = unheard;
	for (int who = 0; who < 2; who++) {
		struct node *n = who ? &b : &a;

		unheard_is = UNHEARD;
		pair_start();
		n->x->ops = &ops;
		script();
		for (uint64_t end = loop_now() + 1500000000; loop_now() < end; )
			step();
		assert_int_equal(lane_stats(n->lane)->resumes, 0);
		unheard_is = UNHEARD_LONG;
		RUN(lane_state(n->lane) == LANE_BROKEN);
		unheard_is = HEARD_ALL;
		RUN(lane_stats(a.lane)->resumes && lane_stats(b.lane)->resumes);
		upto = a.side.got + FRAMES;
		script();
		assert_int_equal(a.side.got, upto);
		pair_stop();
	}
}

static int any_begin(void *ctx, struct lane *l, const struct wire_frame *f, struct lane_sink *sink)
{
	return 0;
}

/* As if the confirmation before had gone out when little of the payload was left. */
static int tail_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload, void *token)
{
	l->confirmed = l->rx.pos - 100;
	return 0;
}

static void any_abort(void *ctx, struct lane *l, const struct wire_frame *f, void *token)
{
}

/* A payload by reference is confirmed soon, though little of it is left since the last confirmation. */
static void test_confirm_tail(void **state)
{
	static const struct lane_ref counted = { .over = count_over };
	static const struct xport_handlers any = {
		.frame_begin = any_begin, .frame_end = tail_end, .frame_abort = any_abort,
		.lane_up = node_up, .lane_down = node_down, .job_key = job_key,
	};
	static uint8_t payload[WIRE_MAX_PAYLOAD];
	struct wire_frame f = { .type = WIRE_RMA_PUT, .flags = WIRE_F_LAST, .seq = 1, .total = sizeof(payload) };
	int over = 0;

	pair_start();
	b.x->o.handlers = &any;
	f.job = a.job;
	f.len = sizeof(payload);
	assert_int_equal(lane_send(a.lane, &f, payload, &counted, &over), 0);
	RUN(over);
	pair_stop();
}

static uint64_t frames_ended;

static int plain_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload, void *token)
{
	frames_ended++;
	return 0;
}

/* What is copied and sent takes room until it is confirmed; the peer is asked in time, and answers without time passing. */
static void test_asked(void **state)
{
	static const struct xport_handlers plain = {
		.frame_begin = any_begin, .frame_end = plain_end, .frame_abort = any_abort,
		.lane_up = node_up, .lane_down = node_down, .job_key = job_key,
	};
	static uint8_t payload[WIRE_MAX_PAYLOAD];
	struct wire_frame f = { .type = WIRE_RMA_PUT, .flags = WIRE_F_LAST, .len = sizeof(payload), .seq = 1, .total = sizeof(payload) };
	uint64_t want;

	pair_start();
	want = 4 * (uint64_t)a.lane->tx.size / sizeof(payload);
	b.x->o.handlers = &plain;
	f.job = a.job;
	frames_ended = 0;
	for (int i = 0; i < 100000 && frames_ended < want; i++) {
		if (f.seq <= want && !lane_send(a.lane, &f, payload, NULL, NULL))
			f.seq++;
		step();
		loop_timer_cancel(&b.xw->confirm);
	}
	assert_int_equal(frames_ended, want);
	assert_true(a.lane->tx.sent - a.lane->tx.confirmed <= a.lane->tx.size);
	pair_stop();
}

/* ---- the end ---- */

/* Both sides know soon that the other one is no more, though nobody could say so. */
static void test_dead(void **state)
{
	/* the acceptor's node is no more: nobody listens */
	pair_start();
	script();
	xport_unlisten(b.x);
	close(proxy.listen);
	cut();
	proxy.listen = -1;
	RUN(a.downs);
	assert_int_equal(a.err, -ECONNREFUSED);
	/* it asks, and hears that there is no such lane any more */
	RUN(b.downs);
	assert_int_equal(b.err, -ECONNRESET);
	pair_stop();

	/* the acceptor has ended the lane meanwhile */
	pair_start();
	script();
	proxy.away = true;
	cut();
	RUN(lane_state(a.lane) == LANE_BROKEN && lane_state(b.lane) == LANE_BROKEN);
	lane_close(b.lane, -EIO, "test");
	RUN(b.downs);
	assert_int_equal(a.downs, 0);
	proxy.away = false;
	RUN(a.downs);
	assert_int_equal(a.err, -ECONNRESET);
	pair_stop();

	/* the opener's daemon was started anew */
	pair_start();
	script();
	proxy.away = true;
	cut();
	RUN(lane_state(b.lane) == LANE_BROKEN);
	a.x->o.guid[0]++;
	RUN(b.downs);
	a.x->o.guid[0]--;
	proxy.away = false;
	RUN(a.downs);
	pair_stop();
}

/* A node that is only away is waited for, until it is given up. */
static void test_away(void **state)
{
	unsigned int upto;

	pair_start();
	script();
	proxy.away = true;
	cut();
	upto = a.side.got + FRAMES;
	queue(&a, upto);
	queue(&b, upto);
	for (uint64_t end = loop_now() + 1500000000; loop_now() < end; )
		step();
	assert_int_equal(a.downs + b.downs, 0);
	assert_int_equal(lane_state(a.lane), LANE_BROKEN);
	proxy.away = false;
	RUN(a.side.got == upto && b.side.got == upto);
	/* and now for too long */
	a.x->o.peer_giveup_ns = b.x->o.peer_giveup_ns = 300000000;
	proxy.away = true;
	cut();
	RUN(a.downs && b.downs);
	assert_true(a.err < 0 && b.err < 0);
	pair_stop();
}

/* ---- HELLOs that are refused ---- */

enum { CLOSED = -1 };

/* Says HELLO to b for its lane; the status of the answer, or CLOSED. */
static int say(uint16_t kind, uint64_t generation, uint64_t position, const uint8_t *secret, const uint8_t *id)
{
	struct wire_lane_info i = {
		.kind = kind, .generation = generation, .position = position, .dialled_port = ntohs(b.addr[0].port),
	};
	uint8_t private[WIRE_KEY_SIZE];
	uint8_t buf[WIRE_HDR_SIZE + WIRE_HELLO_SIZE];
	struct sockaddr_storage ss;
	struct wire_hello_info h;
	socklen_t len;
	size_t got = 0;
	ssize_t n = -1;
	int fd;

	memcpy(i.id, id, sizeof(i.id));
	memcpy(i.dialled, b.addr[0].ip, sizeof(i.dialled));
	if (sealed)
		assert_true(auth_pair(i.key, private));
	hello_write(buf, WIRE_HELLO, a.x, 0, b.x->o.guid, &i, secret);
	assert_true(xport_tcp.sockaddr(&b.addr[0], &ss, &len));
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, len), 0);
	assert_int_equal(send(fd, buf, sizeof(buf), 0), sizeof(buf));
	while (got < sizeof(buf)) {
		RUN((n = recv(fd, buf + got, sizeof(buf) - got, MSG_DONTWAIT)) >= 0 || errno != EAGAIN);
		if (n <= 0)
			break;
		got += n;
	}
	close(fd);
	if (got < sizeof(buf))
		return CLOSED;
	assert_int_equal(hello_read(buf + WIRE_HDR_SIZE, WIRE_HELLO_SIZE, &h, &i), 0);
	return i.status;
}

static void test_refused(void **state)
{
	uint8_t secret[WIRE_MAC_SIZE], id[WIRE_LANE_ID_SIZE];
	uint64_t generation;
	struct lane *lane;

	pair_start();
	lane = b.lane;
	script();
	assert_true(a.lane->has_secret && b.lane->has_secret);
	assert_memory_equal(a.lane->secret, b.lane->secret, sizeof(secret));
	memcpy(secret, b.lane->secret, sizeof(secret));
	memcpy(id, b.lane->id, sizeof(id));
	generation = b.lane->generation;
	/* a generation that was there, wrong proofs, another lane: the lane that stands does not notice */
	b.x->gate.free_at = 0;
	b.x->gate.each_ns = 3600000000000ull;
	b.x->gate.all_ns = 1000 * b.x->gate.each_ns;
	assert_int_equal(say(WIRE_LANE_RESUME, generation, b.lane->tx.end, secret, id), CLOSED);
	/* who has only heard it said is counted as a stranger */
	assert_true(b.x->gate.free_at > loop_now());
	secret[5] ^= 1;
	assert_int_equal(say(WIRE_LANE_RESUME, generation + 1, b.lane->tx.end, secret, id), CLOSED);
	assert_int_equal(say(WIRE_LANE_RESUME, generation + 1, b.lane->tx.end, NULL, id), CLOSED);
	secret[5] ^= 1;
	id[0] ^= 1;
	assert_int_equal(say(WIRE_LANE_RESUME, generation + 1, b.lane->tx.end, secret, id), ENOENT);
	assert_int_equal(say(WIRE_LANE_ASK, generation, 0, secret, id), ENOENT);
	id[0] ^= 1;
	/* b is not the opener */
	assert_int_equal(say(WIRE_LANE_ASK, generation, 0, secret, id), ENOENT);
	/* another lane of that name, which proves nothing */
	assert_int_equal(say(WIRE_LANE_NEW, generation + 1, 0, NULL, id), 0);
	RUN(b.downs == 1);
	b.lane = lane;
	b.downs = 0;
	for (int i = 0; i < 200; i++) {
		secret[i % sizeof(secret)] ^= 1;
		assert_int_equal(say(WIRE_LANE_RESUME, generation + 1 + i, b.lane->tx.end, secret, id), CLOSED);
		secret[i % sizeof(secret)] ^= 1;
	}
	script();
	assert_int_equal(lane_stats(a.lane)->resumes + lane_stats(b.lane)->resumes, 0);
	/* who knows the secret is the opener: it has seen more than was sent */
	assert_int_equal(say(WIRE_LANE_RESUME, generation + 1, b.lane->tx.given + 1, secret, id), CLOSED);
	RUN(b.downs);
	assert_int_equal(b.err, -EPROTO);
	pair_stop();
	/* likewise one that wants to see again what it has confirmed */
	pair_start();
	script();
	RUN(b.lane->tx.confirmed);
	assert_int_equal(say(WIRE_LANE_RESUME, b.lane->generation + 1, b.lane->tx.confirmed - 1, b.lane->secret, b.lane->id),
			 CLOSED);
	RUN(b.downs);
	assert_int_equal(b.err, -EPROTO);
	pair_stop();
}

/* ---- an acceptor that does not read, and has no room ---- */

static void test_full_while_held(void **state)
{
	static uint8_t bytes[60000];
	struct wire_frame f = { .type = WIRE_RMA_DATA, .job = 1, .flags = WIRE_F_LAST, .len = 1, .total = 1, .win = 3 };
	unsigned int n = 0;

	pair_start();
	a.side.got = UINT32_MAX;
	lane_hold(b.lane);
	/* something for it to refuse */
	queue(&a, FRAMES);
	f.len = f.total = sizeof(bytes);
	a.xw->ctx = &a;
	for (time_t limit = time(NULL) + 40; n < 100; ) {
		f.seq = n + 1;
		if (lane_send(b.lane, &f, bytes, NULL, NULL) == 0)
			n++;
		for (int i = 0; i < 20; i++)
			step();
		if (time(NULL) > limit)
			fail_msg("stands still after %u", n);
	}
	lane_release(b.lane);
	RUN(b.side.got == FRAMES);
	assert_int_equal(a.downs + b.downs, 0);
	pair_stop();
}

/* ---- somebody between ---- */

/* Looks for the first bytes of a frame's payload. */
static ssize_t look_for(int from, uint8_t *buf, ssize_t n)
{
	uint8_t what[32];

	for (unsigned int i = 0; i < sizeof(what); i++)
		what[i] = byte_of(4, i);
	proxy.altered += memmem(buf, n, what, sizeof(what)) != NULL;
	return n;
}

static void test_seen(void **state)
{
	pair_start();
	proxy.alter = look_for;
	script();
	if (sealed)
		assert_int_equal(proxy.altered, 0);
	else
		assert_true(proxy.altered > 0);
	pair_stop();
}

static int alter_how;

/* Now and then something happens to what was sealed: another byte, one more, one less, a part comes again. */
static ssize_t alter_some(int from, uint8_t *buf, ssize_t n)
{
	ssize_t at = rand_r(&seed) % n;

	if (proxy.at[from] - n < WIRE_HDR_SIZE + WIRE_HELLO_SIZE || n < 200 || n > 60000 || rand_r(&seed) % 20)
		return n;
	proxy.altered++;
	proxy.answer_by = loop_now() + 300000000;
	switch (alter_how) {
	case 0:
		buf[at] ^= 1 << rand_r(&seed) % 8;
		return n;
	case 1:
		memmove(buf + at + 1, buf + at, n - at);
		return n + 1;
	case 2:
		memmove(buf + at, buf + at + 1, n - at - 1);
		return n - 1;
	default:
		memcpy(buf + n, buf, at + 1);
		return n + at + 1;
	}
}

/* It is noticed, and nothing of it arrives: the lanes go on with what was sent. */
static void test_altered(void **state)
{
	pair_start();
	for (alter_how = 0; alter_how < 4; alter_how++) {
		uint64_t resumes = lane_stats(a.lane)->resumes;

		proxy.altered = 0;
		proxy.alter = alter_some;
		while (proxy.altered < 10)
			script();
		proxy.alter = NULL;
		RUN(!proxy.answer_by);
		script();
		assert_true(lane_stats(a.lane)->resumes > resumes);
	}
	assert_int_equal(a.side.errors + b.side.errors, 0);
	pair_stop();
}

#define AT(member) (WIRE_HDR_SIZE + offsetof(struct wire_hello, member))
#define AT_LANE(member) (WIRE_HDR_SIZE + sizeof(struct wire_hello) + offsetof(struct wire_hello_lane, member))

static int alter_from;
static uint64_t alter_at;

static ssize_t alter_one(int from, uint8_t *buf, ssize_t n)
{
	uint64_t begin = proxy.at[from] - n;

	if (from == alter_from && begin <= alter_at && alter_at < proxy.at[from]) {
		buf[alter_at - begin] ^= 1;
		proxy.altered++;
	}
	return n;
}

/* Whatever is altered of what both say at first, no job is accepted. */
static void test_hello_altered(void **state)
{
	static const struct {
		int from;
		uint64_t at;
	} cases[] = {
		{ 0, AT(features) }, { 1, AT(features) }, { 0, AT(features) + 7 }, { 0, AT(lane) }, { 0, AT_LANE(id) },
		{ 0, AT_LANE(position) }, { 0, AT_LANE(port) }, { 0, AT_LANE(dialled) + 3 }, { 0, AT_LANE(dialled_port) },
		{ 0, AT_LANE(key) }, { 1, AT_LANE(key) + 31 }, { 1, AT_LANE(generation) }, { 0, AT_LANE(mac) },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		nodes_start();
		alter_from = cases[i].from;
		alter_at = cases[i].at;
		proxy.alter = alter_one;
		a.x->o.connect_timeout_ns = 300000000;
		open_lane();
		a.job_err = 1;
		RUN(a.downs || a.job_err != 1);
		assert_true(proxy.altered > 0);
		assert_int_equal(a.job, 0);
		assert_true(a.job_err < 0);
		pair_stop();
	}
}

/* Says that the opener dialled b itself. */
static ssize_t alter_dialled(int from, uint8_t *buf, ssize_t n)
{
	__le32 port = ntohs(b.addr[0].port);

	if (!from && proxy.at[0] == (uint64_t)n && n >= (ssize_t)(WIRE_HDR_SIZE + WIRE_HELLO_SIZE))
		memcpy(buf + AT_LANE(dialled_port), &port, sizeof(port));
	return n;
}

/* Somebody at an address of his own passes on what both say: no job is accepted there. */
static void test_passed_on(void **state)
{
	nodes_start();
	a.x->o.connect_timeout_ns = 300000000;
	b.x->ntold--;
	a.lane = lane_open(a.xw, b.x->o.guid, &proxy.addr, 1);
	RUN(a.downs);
	assert_int_equal(a.err, -EADDRNOTAVAIL);
	proxy.alter = alter_dialled;
	open_lane();
	a.job_err = 1;
	RUN(a.job_err != 1);
	assert_int_equal(a.job_err, sealed ? a.job_err : -EACCES);
	assert_true(a.job_err < 0);
	assert_int_equal(a.job, 0);
	pair_stop();
}

/* Who knows the job's key, but not the user's. */
static void test_lane_key(void **state)
{
	static const uint8_t one[PROG_JOBKEY_SIZE] = { 1 }, other[PROG_JOBKEY_SIZE] = { 2 };
	static const uint8_t *const keys[][2] = { { one, NULL }, { NULL, one }, { one, other }, { one, one } };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		lane_key[0] = keys[i][0];
		lane_key[1] = keys[i][1];
		nodes_start();
		open_lane();
		a.job_err = 1;
		RUN(a.job_err != 1);
		assert_int_equal(a.job_err, keys[i][0] == keys[i][1] ? 0 : -EACCES);
		lane_key[0] = lane_key[1] = NULL;
		pair_stop();
	}
}

/* Who would have it another way is refused, and told so. */
static void test_differs(void **state)
{
	nodes_start();
	b.x->o.encrypt = !sealed;
	open_lane();
	RUN(a.downs);
	assert_int_equal(a.err, -EPROTONOSUPPORT);
	assert_non_null(strstr(a.why, sealed ? "has lane_security = auth, this daemon encrypt" :
					       "has lane_security = encrypt, this daemon auth"));
	assert_int_equal(a.job, 0);
	assert_null(b.xw->lanes);
	pair_stop();
}

static int setup(int kind, bool is_sealed)
{
	loop_kind_used = kind;
	sealed = is_sealed;
	return 0;
}

static int on_epoll(void **state)
{
	return setup(LOOP_EPOLL, false);
}

static int on_uring(void **state)
{
	return setup(LOOP_IO_URING, false);
}

static int on_epoll_sealed(void **state)
{
	return setup(LOOP_EPOLL, true);
}

static int on_uring_sealed(void **state)
{
	return setup(LOOP_IO_URING, true);
}

/* On each kind of loop, and sealed or not. */
#define TESTS(s) \
	{ "cuts " #s, test_cuts, on_##s, NULL, NULL }, \
	{ "confirm tail " #s, test_confirm_tail, on_##s, NULL, NULL }, \
	{ "asked " #s, test_asked, on_##s, NULL, NULL }, \
	{ "refused " #s, test_refused, on_##s, NULL, NULL }, \
	{ "full while held " #s, test_full_while_held, on_##s, NULL, NULL }, \
	{ "seen " #s, test_seen, on_##s, NULL, NULL }, \
	{ "lane key " #s, test_lane_key, on_##s, NULL, NULL }, \
	{ "differs " #s, test_differs, on_##s, NULL, NULL }

/* These take seconds each. */
#define LONG_TESTS(s) \
	{ "cut twice " #s, test_cut_twice, on_##s, NULL, NULL }, \
	{ "cut early " #s, test_cut_early, on_##s, NULL, NULL }, \
	{ "hello altered " #s, test_hello_altered, on_##s, NULL, NULL }, \
	{ "passed on " #s, test_passed_on, on_##s, NULL, NULL }

/* Nothing comes between a frame's header and its payload, however sends are cut. */
static void test_at_frame(void **state)
{
	struct side s = { 0 };
	unsigned int got = UINT32_MAX;
	struct tx tx;

	s.peer_got = &got;
	assert_int_equal(tx_init(&tx, 1u << 15, 1u << 20), 0);
	for (int i = 0; i < 40; i++) {
		struct payload *p = payload_new(&s, 4);

		if (i)
			tx_commit(&tx, tx_room(&tx, WIRE_HDR_SIZE, 2, false), WIRE_HDR_SIZE);
		tx_ref(&tx, p->bytes, len_of(4) / 32, &ref, p);
	}
	assert_int_equal(tx_batch(&tx), TX_IOV);
	tx_sent(&tx);
	assert_false(tx_at_frame(&tx));
	tx_batch(&tx);
	tx_sent(&tx);
	assert_true(tx_at_frame(&tx));
	assert_int_equal(tx_confirm(&tx, tx.end), 0);
	assert_int_equal(s.overs, 40);
	tx_fini(&tx, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_positions),
	cmocka_unit_test(test_copies),
	cmocka_unit_test(test_at_frame),
	cmocka_unit_test(test_bytes),
	cmocka_unit_test(test_pairs),
	TESTS(epoll),
	TESTS(uring),
	TESTS(epoll_sealed),
	TESTS(uring_sealed),
	LONG_TESTS(epoll),
	LONG_TESTS(uring_sealed),
	{ "silent", test_silent, on_epoll, NULL, NULL },
	{ "unheard", test_unheard, on_epoll, NULL, NULL },
	{ "dead", test_dead, on_uring, NULL, NULL },
	{ "away", test_away, on_uring, NULL, NULL },
	{ "altered", test_altered, on_epoll_sealed, NULL, NULL },
};

static int setup_all(void **state)
{
	seed = kit_seed();
	log_set_level(getenv("PROG_LOG") ? log_level() : -1);
	return auth_init();
}

KIT_SUITE(tests, .setup = setup_all);

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <string.h>

#include <libprogbase/wire.h>
#include <wire/optype.h>

#include "peer.h"
#include "xport/lane.h"

static uint8_t jobkey_of_peer[PROG_JOBKEY_SIZE];

uint8_t kit_u8(struct kit_bytes *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

uint16_t kit_u16(struct kit_bytes *in)
{
	uint8_t low = kit_u8(in);

	return low | kit_u8(in) << 8;
}

uint32_t kit_number(struct kit_bytes *in)
{
	uint8_t n = kit_u8(in);

	if (n < 0xc0)
		return n;
	return n < 0xf0 ? kit_u16(in) : (uint32_t)kit_u16(in) << (n & 15);
}

bool kit_garble(struct kit_bytes *in, uint8_t *buf, size_t n)
{
	uint8_t how = kit_u8(in), was[8];
	int changes = (how & 7) + 1;
	bool differs = false;
	size_t at[8];

	if (how < 0xc0 || !n)
		return false;
	for (int i = 0; i < changes; i++) {
		at[i] = kit_u16(in) % n;
		was[i] = buf[at[i]];
		buf[at[i]] = how & 8 ? kit_u8(in) : was[i] ^ 1u << (kit_u8(in) & 7);
	}
	/* one change may undo another */
	for (int i = 0; i < changes; i++) {
		int first = 0;

		while (at[first] != at[i])
			first++;
		differs |= buf[at[i]] != was[first];
	}
	return differs;
}

void kit_data_fill(uint8_t *buf, uint64_t off, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = kit_data(off + i);
}

bool kit_data_is(const uint8_t *buf, uint64_t off, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (buf[i] != kit_data(off + i))
			return false;
	return true;
}

static int on_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload, void *token)
{
	struct kit_peer *p = ctx;

	p->frames++;
	p->bytes += f->len;
	if (l == p->in && f->job)
		p->in_job = f->job;
	if (f->seq)
		p->last_seq = f->seq;
	if (f->type == p->data_of)
		assert_true(kit_data_is(payload, f->off, f->len));
	if (l == p->in && f->origin == p->node_rank && f->target < KIT_STREAMS && f->seq)
		p->came[f->target] = f->seq;
	if (f->type == WIRE_RNDV_GET_REQ && f->seq < KIT_TOKENS && !p->msg[f->seq].how)
		p->msg[f->seq].how = KIT_ASKED;
	return 0;
}

static void on_up(void *ctx, struct lane *l)
{
	const int room = 16384;
	struct kit_peer *p = ctx;

	/* so that frames come in parts, and are received where they belong */
	setsockopt(loop_sock_fd(l->sock), SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (!lane_is_opener(l))
		p->in = l;
}

static void on_down(void *ctx, struct lane *l, int err, const char *why)
{
	struct kit_peer *p = ctx;

	if (l == p->out) {
		p->out = NULL;
		p->proven = false;
	}
	if (l == p->liar)
		p->liar = NULL;
	if (l == p->in) {
		p->in = NULL;
		p->in_job = 0;
	}
}

static bool key_of(void *ctx, const uint8_t *id, uint8_t *key)
{
	memcpy(key, jobkey_of_peer, PROG_JOBKEY_SIZE);
	return true;
}

static void on_proven(void *arg, struct lane *l, uint32_t job, int err)
{
	struct kit_peer *p = arg;

	p->proven = !err;
}

void kit_peer_new(struct kit_peer *p, const uint8_t guid[PROG_GUID_SIZE], uint64_t key)
{
	static const struct xport_handlers handlers = {
		.frame_end = on_end, .lane_up = on_up, .lane_down = on_down, .job_key = key_of,
	};
	struct xport_opts o = { .workers = 1, .transport = "loop", .handlers = &handlers, .post = kit_post };
	char err[XPORT_ERR];

	memset(p, 0, sizeof(*p));
	p->key = key;
	memcpy(o.guid, guid, PROG_GUID_SIZE);
	assert_int_equal(loop_new(LOOP_EPOLL, &p->loop), 0);
	assert_int_equal(xport_new(&o, &p->x, err), 0);
	assert_int_equal(xport_attach(p->x, 0, p->loop, p, &p->xw), 0);
	assert_int_equal(xport_listen(p->x, p->loop, err), 0);
	p->naddrs = xport_addrs(p->x, p->addr);
}

void kit_peer_open(struct kit_peer *p, const struct kit_link *k, const uint8_t guid[PROG_GUID_SIZE],
		   const uint8_t jobid[PROG_JOBID_SIZE], const uint8_t jobkey[PROG_JOBKEY_SIZE])
{
	if (p->out)
		return;
	memcpy(jobkey_of_peer, jobkey, PROG_JOBKEY_SIZE);
	p->out = lane_open(p->xw, guid, k->addr, k->naddrs);
	assert_non_null(p->out);
	p->out_job = lane_job_open(p->out, jobid, jobkey, on_proven, p);
}

void kit_peer_step(struct kit_peer *p)
{
	loop_run_once(p->loop, 0);
}

void kit_peer_free(struct kit_peer *p)
{
	xport_unlisten(p->x);
	xport_detach(p->xw, 0);
	xport_free(p->x);
	loop_free(p->loop);
}

/* ---- frames of a fuzzer ---- */

/*
 * Bytes of a message other than the next ones: they have to be refused, and none of them may be seen.  Of one that was
 * guessed before it was asked for the peer does not know what comes next.
 */
static bool out_of_order(struct kit_peer *p, const struct wire_frame *f)
{
	if (f->seq >= KIT_TOKENS)
		return false;
	if (!p->msg[f->seq].how)
		p->msg[f->seq].how = KIT_GUESSED;
	return p->msg[f->seq].how == KIT_ASKED && p->msg[f->seq].off != f->off;
}

/* What a frame carries, unless it is bytes of the input as they are. */
static void payload_of(struct kit_peer *p, struct kit_bytes *in, const struct wire_frame *f, uint8_t *buf)
{
	uint8_t flags;
	size_t n;
	struct wire_ackrec ack = { .win = f->win ? f->win : p->key };
	struct wire_rtsrec rts = { .comm = 9, .tag = -3, .gen = 1 };
	struct wire_atsrec ats = { .status = 0 };
	struct wire_keyrec key = { .way = { .generation = 1, .round = 1, .qpn = 2, .psn = 1, .reads = 1 } };

	switch (kit_u8(in) % 8 ? f->type : 0) {
	case WIRE_RMA_ACK:
		for (uint32_t i = 0; i < wire_ack_count(f); i++) {
			ack.origin = kit_u8(in) % KIT_STREAMS;
			ack.target = kit_u8(in) % KIT_STREAMS;
			ack.seq = kit_u8(in);
			ack.status = kit_u8(in) % 16;
			wire_ack_put(buf, i, &ack);
			/* more than there is of a stream that is there */
			if (ack.origin == p->node_rank && p->came[ack.target] && ack.seq > p->posted[ack.target])
				p->liar = p->in;
		}
		return;
	case WIRE_RMA_KEY_ASK:
	case WIRE_RNDV_READ_REQ:
		key.way.qpn = kit_u8(in);
		wire_way_put(buf, &key.way);
		return;
	case WIRE_RMA_KEY:
		key.way.of = kit_u8(in) % 4;
		key.lo = p->base + kit_number(in);
		key.hi = key.lo + kit_number(in);
		key.status = kit_u8(in) % 16;
		wire_key_put(buf, &key);
		return;
	case WIRE_RNDV_KEY:
		key.lo = kit_number(in);
		key.hi = key.lo + kit_number(in);
		key.status = kit_u8(in) % 16;
		wire_key_put(buf, &key);
		return;
	case WIRE_RNDV_RTS:
		rts.ord = kit_u8(in) % 8;
		rts.len = kit_number(in);
		rts.eager = kit_number(in);
		flags = kit_u8(in);
		rts.flags = (flags & (PROG_P2PF_SYNC | PROG_P2PF_EAGER)) | (flags & 0x80 ? WIRE_RTS_SHOWN : 0);
		wire_rts_put(buf, &rts);
		return;
	case WIRE_RNDV_ATS:
		ats.status = kit_u8(in) % 16;
		ats.eager = kit_number(in);
		wire_ats_put(buf, &ats);
		return;
	default:
		/* a datatype is made of its bytes; of others they are what is moved */
		n = f->type == WIRE_RMA_DTYPE ? 256 : 8;
		n = n < f->len ? n : f->len;
		n = n < in->left ? n : in->left;
		memset(buf, 0x5a, f->len);
		memcpy(buf, in->at, n);
		if (f->type == WIRE_RNDV_DATA && out_of_order(p, f))
			memset(buf, KIT_FILL, f->len);
		else if (f->type == WIRE_RMA_DATA || f->type == WIRE_RNDV_DATA)
			kit_data_fill(buf, f->off, f->len);
		in->at += n;
		in->left -= n;
	}
}

/* Lengths that agree with each other, as the type wants them. */
static void lengths_of(struct kit_bytes *in, const struct wire_type *t, struct wire_frame *f)
{
	uint32_t n = kit_number(in), span = t->max_len - t->min_len;
	uint8_t how = kit_u8(in);

	f->len = t->min_len + (span ? n % (span + 1) : 0);
	if (f->type == WIRE_RMA_ACK)
		f->len = (1 + n % 8) * WIRE_ACK_SIZE;
	if (t->fields & WIRE_HAS_LENGTH)
		f->total = n;
	if (!(t->fields & (WIRE_HAS_RANGE | WIRE_HAS_WANT)))
		return;
	f->off = how & 1 ? kit_number(in) : 0;
	f->total = f->off + f->len;
	if (t->fields & WIRE_HAS_WANT && f->type != WIRE_RMA_CAS)
		f->total += n;
	if (f->type == WIRE_RMA_CAS)
		f->total = f->len / 2;
	if (how & 2)
		f->total += kit_number(in);
	if (t->fields & WIRE_HAS_RANGE)
		f->flags = (f->flags & ~WIRE_F_LAST) | (f->off + f->len == f->total ? WIRE_F_LAST : 0);
}

static uint64_t seq_of(struct kit_peer *p, struct kit_bytes *in, const struct wire_frame *f)
{
	uint64_t *next = &p->seq[f->origin % KIT_STREAMS][f->target % KIT_STREAMS];

	switch (kit_u8(in) % 8) {
	case 0:
		return 1 + kit_u8(in);
	case 1:
		return *next ? *next : 1;
	case 2:
		return p->last_seq ? p->last_seq : 1;
	default:
		return ++*next;
	}
}

/* A displacement in the window, or, as two bits of the input say that the flags leave, from its end or before its start. */
static uint64_t disp_of(const struct kit_peer *p, struct kit_bytes *in, uint8_t how)
{
	uint64_t n = kit_number(in);

	if (how & 0x40)
		n = p->size - n;
	return p->base + (how & 0x80 ? -n : n);
}

/* The name of a message. */
static uint64_t message_of(struct kit_bytes *in)
{
	uint32_t slot = kit_u8(in) % 8, serial = kit_u8(in) % 16;

	return WIRE_RNDV_ID(slot, serial);
}

void kit_peer_frame(struct kit_peer *p, struct kit_bytes *in, uint8_t first, uint8_t last)
{
	static uint8_t buf[WIRE_MAX_PAYLOAD];
	struct wire_frame f = { .type = first + kit_u8(in) % (last - first + 1) };
	const struct wire_type *t = wire_type(f.type);
	bool answer = t && !(t->from & WIRE_FROM_OPENER);
	uint8_t how;
	struct lane *l = answer ? p->in : p->out;

	f.job = answer ? p->in_job : p->out_job;
	if (!t || !l || !f.job || (!answer && !p->proven))
		return;
	how = kit_u8(in);
	f.flags = how & t->flags & ~(WIRE_F_PARITY | WIRE_F_SUB);
	if (t->fields & WIRE_HAS_OP)
		f.op = 1 + kit_u8(in) % (PROG_OP_END - 1);
	if (t->fields & WIRE_HAS_ETYPE)
		f.etype = 1 + kit_u8(in) % (PROG_TYPE_END - 1);
	if (t->fields & WIRE_HAS_DTYPE)
		f.dtype = f.type == WIRE_RMA_DTYPE ? 1 + kit_u8(in) % 3 : kit_u8(in) % 4;
	if (t->fields & WIRE_HAS_STREAM) {
		f.win = p->key + (kit_u8(in) > 250);
		f.origin = kit_u8(in) % KIT_STREAMS;
		f.target = kit_u8(in) % KIT_STREAMS;
	}
	/* mostly as the other frames of its stream */
	if (t->flags & WIRE_F_SUB && p->subs && !(p->subs >> f.origin & 1) == !!(how & WIRE_F_SUB))
		f.flags |= WIRE_F_SUB;
	if (t->fields & (WIRE_HAS_SEQ | WIRE_HAS_VALUE))
		f.seq = seq_of(p, in, &f);
	if (t->fields & WIRE_HAS_DISP)
		f.disp = f.type < WIRE_RNDV_RTS ? disp_of(p, in, how) : message_of(in);
	if (t->fields & WIRE_HAS_ERROR)
		f.error = 1 + kit_u8(in) % 40;
	lengths_of(in, t, &f);
	if (f.len > t->max_len)
		return;
	payload_of(p, in, &f, buf);
	/* a short message comes with it */
	if (f.type == WIRE_RNDV_RTS && f.len > sizeof(struct wire_rts))
		kit_data_fill(buf + sizeof(struct wire_rts), 0, f.len - sizeof(struct wire_rts));
	/* full: the input goes on behind it */
	if (lane_send(l, &f, f.len ? buf : NULL, NULL, NULL)) {
		if (answer)
			p->liar = NULL;
	} else if (f.type == WIRE_RNDV_DATA && f.seq < KIT_TOKENS && f.off == p->msg[f.seq].off) {
		p->msg[f.seq].off += f.len;
	}
}

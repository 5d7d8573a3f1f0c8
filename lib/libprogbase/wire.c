/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Frames between nodes: bytes to fields and back, and the table of what is allowed. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include <asyncprog/ring.h>
#include <libprogbase/wire.h>
#include <wire/dtype.h>
#include <wire/optype.h>

#define OPENER		WIRE_FROM_OPENER
#define ACCEPTOR	WIRE_FROM_ACCEPTOR
#define LANE		WIRE_LANE
#define JOB		WIRE_HAS_JOB
#define STREAM		(WIRE_HAS_JOB | WIRE_HAS_STREAM)
#define STREAM_OP	(STREAM | WIRE_HAS_SEQ)
#define FENCE		(WIRE_F_FENCE | WIRE_F_PARITY)
#define MAXP		WIRE_MAX_PAYLOAD

#define WIRE_RTS_FLAGS	(PROG_P2PF_SYNC | PROG_P2PF_EAGER | WIRE_RTS_QUIET | WIRE_RTS_SHOWN)

/* largest element of optype.h is 32 bytes; CAS carries two */
#define CAS_MAX		64

#define ROW(type, from, min, max, fields, flags) \
	[WIRE_##type] = { #type, min, max, fields, from, flags }

static const struct wire_type table[] = {
	ROW(HELLO,	   OPENER,   sizeof(struct wire_hello), 256, LANE, 0),
	ROW(HELLO_ACK,	   ACCEPTOR, sizeof(struct wire_hello), 256, LANE, 0),
	ROW(JOB_OPEN,	   OPENER,   sizeof(struct wire_job_open), sizeof(struct wire_job_open),
	    LANE | JOB, 0),
	ROW(JOB_CHALLENGE, ACCEPTOR, sizeof(struct wire_job_auth), sizeof(struct wire_job_auth),
	    LANE | JOB, 0),
	ROW(JOB_PROOF,	   OPENER,   sizeof(struct wire_job_auth), sizeof(struct wire_job_auth),
	    LANE | JOB, 0),
	ROW(JOB_ACCEPT,	   ACCEPTOR, 0, 0, LANE | JOB, 0),
	ROW(JOB_REFUSE,	   ACCEPTOR, 0, 0, LANE | JOB | WIRE_HAS_ERROR, 0),
	ROW(BYE,	   OPENER,   0, 0, LANE, 0),
	ROW(PING,	   OPENER | ACCEPTOR, 0, 0, LANE | WIRE_HAS_VALUE, 0),
	ROW(PONG,	   OPENER | ACCEPTOR, 0, 0, LANE | WIRE_HAS_VALUE, 0),
	ROW(CONFIRM,	   OPENER | ACCEPTOR, 0, 0, LANE | WIRE_HAS_VALUE, WIRE_F_ASK),
	ROW(RDMA_END,	   OPENER | ACCEPTOR, sizeof(struct wire_rdma_end), sizeof(struct wire_rdma_end), LANE, 0),
	ROW(RDMA_SWITCH,   OPENER | ACCEPTOR, 0, 0, LANE, 0),

	ROW(RMA_DTYPE,     OPENER, 1, MAXP, STREAM_OP | WIRE_HAS_DTYPE | WIRE_HAS_RANGE,
	    WIRE_F_LAST | WIRE_F_SUB),
	ROW(RMA_PUT,       OPENER, 0, MAXP,
	    STREAM_OP | WIRE_HAS_DTYPE | WIRE_HAS_DISP | WIRE_HAS_RANGE, WIRE_F_LAST | FENCE | WIRE_F_SUB),
	ROW(RMA_GET,       OPENER, 0, 0,
	    STREAM_OP | WIRE_HAS_DTYPE | WIRE_HAS_DISP | WIRE_HAS_WANT, WIRE_F_LAST | FENCE | WIRE_F_SUB),
	ROW(RMA_ACC,       OPENER, 0, MAXP,
	    STREAM_OP | WIRE_HAS_OP | WIRE_HAS_ETYPE | WIRE_HAS_DTYPE | WIRE_HAS_DISP |
	    WIRE_HAS_RANGE, WIRE_F_LAST | FENCE),
	/* NO_OP sends no operand: the range is what is wanted back */
	ROW(RMA_GET_ACC,   OPENER, 0, MAXP,
	    STREAM_OP | WIRE_HAS_OP | WIRE_HAS_ETYPE | WIRE_HAS_DTYPE | WIRE_HAS_DISP |
	    WIRE_HAS_WANT, WIRE_F_LAST | FENCE),
	ROW(RMA_CAS,       OPENER, 2, CAS_MAX,
	    STREAM_OP | WIRE_HAS_ETYPE | WIRE_HAS_DISP | WIRE_HAS_WANT, WIRE_F_LAST | FENCE),
	ROW(RMA_LOCK,      OPENER, 0, 0, STREAM_OP, WIRE_F_LAST | WIRE_F_EXCL),
	ROW(RMA_UNLOCK,    OPENER, 0, 0, STREAM_OP, WIRE_F_LAST | WIRE_F_EXCL),
	ROW(RMA_POST,      OPENER, 0, 0, STREAM_OP, WIRE_F_LAST),
	ROW(RMA_COMPLETE,  OPENER, 0, 0, STREAM_OP, WIRE_F_LAST),
	ROW(RMA_GONE,      OPENER, 0, 0, STREAM, 0),
	ROW(RMA_NOTIFY,    OPENER, 0, 0, STREAM_OP | WIRE_HAS_DISP, WIRE_F_LAST),

	ROW(RMA_KEY_ASK,   OPENER, sizeof(struct wire_way), sizeof(struct wire_way), STREAM | WIRE_HAS_DISP | WIRE_HAS_LENGTH,
	    WIRE_F_SUB),
	ROW(RMA_WAY_GONE,  OPENER, 0, 0, JOB | WIRE_HAS_SEQ, 0),

	ROW(RMA_ACK,       ACCEPTOR, WIRE_ACK_SIZE, MAXP, JOB, WIRE_F_BUSY),
	ROW(RMA_DATA,      ACCEPTOR, 0, MAXP, STREAM_OP | WIRE_HAS_RANGE, WIRE_F_LAST),
	ROW(RMA_STOP,      ACCEPTOR, 0, 0, STREAM, 0),
	ROW(RMA_GO,        ACCEPTOR, 0, 0, STREAM, 0),
	ROW(RMA_KEY,       ACCEPTOR, sizeof(struct wire_key), sizeof(struct wire_key), STREAM, 0),
	ROW(RMA_KEY_GONE,  ACCEPTOR, 0, 0, STREAM, 0),

	ROW(RNDV_RTS,      OPENER, sizeof(struct wire_rts), sizeof(struct wire_rts) + WIRE_RTS_DATA_MAX,
	    STREAM | WIRE_HAS_DISP, 0),
	ROW(RNDV_GET_REQ,  OPENER, 0, 0, STREAM_OP | WIRE_HAS_DISP | WIRE_HAS_WANT, 0),
	ROW(RNDV_ATS,      OPENER, sizeof(struct wire_ats), sizeof(struct wire_ats),
	    STREAM_OP | WIRE_HAS_DISP, 0),
	ROW(RNDV_READ_REQ, OPENER, sizeof(struct wire_way), sizeof(struct wire_way),
	    STREAM_OP | WIRE_HAS_DISP | WIRE_HAS_WANT, 0),
	ROW(RNDV_DATA,     ACCEPTOR, 1, MAXP, JOB | WIRE_HAS_SEQ | WIRE_HAS_RANGE, WIRE_F_LAST),
	ROW(RNDV_REFUSE,   ACCEPTOR, 0, 0, JOB | WIRE_HAS_SEQ | WIRE_HAS_ERROR, 0),
	ROW(RNDV_ATS_ACK,  ACCEPTOR, 0, 0, JOB | WIRE_HAS_SEQ, 0),
	ROW(RNDV_RTS_RETRY, ACCEPTOR, 0, 0, STREAM | WIRE_HAS_DISP | WIRE_HAS_ERROR, 0),
	ROW(RNDV_KEY,      ACCEPTOR, sizeof(struct wire_key), sizeof(struct wire_key), JOB | WIRE_HAS_SEQ, 0),
};

const struct wire_type *wire_type(uint8_t type)
{
	if (type >= sizeof(table) / sizeof(table[0]) || !table[type].name)
		return NULL;
	return &table[type];
}

const char *wire_type_name(uint8_t type)
{
	const struct wire_type *t = wire_type(type);

	return t ? t->name : "unknown";
}

/* Where the error of a frame stands; NULL: the type has none. */
static __le64 *error_of(struct wire_hdr *h)
{
	const struct wire_type *t = wire_type(h->type);

	if (!t || !(t->fields & WIRE_HAS_ERROR))
		return NULL;
	return t->fields & WIRE_HAS_SEQ ? &h->disp : &h->seq;
}

void wire_encode(const struct wire_frame *f, void *buf)
{
	struct wire_hdr h = {
		.type = f->type,
		.flags = f->flags,
		.op = f->op,
		.etype = f->etype,
		.len = htole32(f->len),
		.job = htole32(f->job),
		.dtype = htole32(f->dtype),
		.win = htole64(f->win),
		.origin = htole32(f->origin),
		.target = htole32(f->target),
		.seq = htole64(f->seq),
		.disp = htole64(f->disp),
		.off = htole64(f->off),
		.total = htole64(f->total),
	};
	__le64 *error = error_of(&h);

	if (error)
		*error = htole64(f->error);
	memcpy(buf, &h, sizeof(h));
}

static int refuse(const char **why, const char *text)
{
	if (why)
		*why = text;
	return -EPROTO;
}

int wire_decode(const void *buf, int from, struct wire_frame *f, const char **why)
{
	const struct wire_type *t;
	struct wire_hdr h;
	__le64 *error;

	memcpy(&h, buf, sizeof(h));
	f->type = h.type;	/* also for the message about a bad one */
	t = wire_type(h.type);
	if (!t)
		return refuse(why, "type: unknown");
	if (!(t->from & from))
		return refuse(why, "type: not allowed in this direction");
	if (h.flags & ~t->flags)
		return refuse(why, "flags: not allowed for this type");
	if ((h.flags & FENCE) == WIRE_F_PARITY)
		return refuse(why, "flags: parity without fence");

	f->error = 0;
	error = error_of(&h);
	if (error) {
		f->error = le64toh(*error);
		if (!f->error || f->error > 4095)
			return refuse(why, "error: not 1..4095");
		*error = 0;
	}
	f->flags = h.flags;
	f->op = h.op;
	f->etype = h.etype;
	f->len = le32toh(h.len);
	f->job = le32toh(h.job);
	f->dtype = le32toh(h.dtype);
	f->win = le64toh(h.win);
	f->origin = le32toh(h.origin);
	f->target = le32toh(h.target);
	f->seq = le64toh(h.seq);
	f->disp = le64toh(h.disp);
	f->off = le64toh(h.off);
	f->total = le64toh(h.total);

	if (f->len < t->min_len || f->len > t->max_len)
		return refuse(why, "len: outside the limits of this type");
	if (t->fields & JOB ? !f->job : f->job)
		return refuse(why, t->fields & JOB ? "job: 0" : "job: must be 0");
	if (t->fields & WIRE_HAS_OP ? !f->op || f->op >= PROG_OP_END : f->op)
		return refuse(why, "op: no such operation, or not used by this type");
	if (t->fields & WIRE_HAS_ETYPE ? !f->etype || f->etype >= PROG_TYPE_END : f->etype)
		return refuse(why, "etype: no such element type, or not used by this type");
	if (t->fields & WIRE_HAS_DTYPE ? f->dtype > 255 : f->dtype)
		return refuse(why, "dtype: above 255, or not used by this type");
	if (f->type == WIRE_RMA_DTYPE && !f->dtype)
		return refuse(why, "dtype: 0 cannot be defined");
	if (!(t->fields & WIRE_HAS_STREAM) && (f->win || f->origin || f->target))
		return refuse(why, "win, origin, target: must be 0");
	if (t->fields & WIRE_HAS_SEQ ? !f->seq : f->seq && !(t->fields & WIRE_HAS_VALUE))
		return refuse(why, t->fields & WIRE_HAS_SEQ ? "seq: 0" : "seq: must be 0");
	if (!(t->fields & WIRE_HAS_DISP) && f->disp)
		return refuse(why, "disp: must be 0");
	if (t->fields & (WIRE_HAS_RANGE | WIRE_HAS_WANT)) {
		if (f->off > f->total || f->total - f->off < f->len)
			/* CAS: two operands come, one value goes back */
			if (f->type != WIRE_RMA_CAS || f->off > f->total)
				return refuse(why, "off, len: beyond total");
		if (t->fields & WIRE_HAS_RANGE &&
		    !(f->flags & WIRE_F_LAST) != (f->total - f->off != f->len))
			return refuse(why, "flags: last and off + len != total, or the other way");
	} else if (f->off || (f->total && !(t->fields & WIRE_HAS_LENGTH))) {
		return refuse(why, "off, total: must be 0");
	}
	if (f->type == WIRE_RMA_ACK && f->len % WIRE_ACK_SIZE)
		return refuse(why, "len: not a multiple of one acknowledgement");
	return 0;
}

void wire_ack_put(void *buf, uint32_t i, const struct wire_ackrec *a)
{
	struct wire_ack w = {
		.win = htole64(a->win),
		.origin = htole32(a->origin),
		.target = htole32(a->target),
		.seq = htole64(a->seq),
		.status = htole32(a->status),
	};

	memcpy((char *)buf + (size_t)i * sizeof(w), &w, sizeof(w));
}

int wire_ack_get(const void *buf, uint32_t i, struct wire_ackrec *a)
{
	struct wire_ack w;

	memcpy(&w, (const char *)buf + (size_t)i * sizeof(w), sizeof(w));
	a->win = le64toh(w.win);
	a->origin = le32toh(w.origin);
	a->target = le32toh(w.target);
	a->seq = le64toh(w.seq);
	a->status = le32toh(w.status);
	if (!a->seq || a->status > 4095 || w.reserved)
		return -EPROTO;
	return 0;
}

void wire_rdma_put(void *buf, const struct wire_rdmarec *r)
{
	struct wire_rdma_end w = {
		.kind = r->kind, .link = r->link, .mtu = r->mtu, .lid = htole16(r->lid), .status = htole16(r->status),
		.round = htole64(r->round),
	};

	memcpy(w.gid, r->gid, sizeof(w.gid));
	for (int i = 0; i < 2; i++) {
		w.qp[i].qpn = htole32(r->qp[i].qpn);
		w.qp[i].psn = htole32(r->qp[i].psn);
		w.qp[i].buffers = htole32(r->qp[i].buffers);
		w.qp[i].size = htole32(r->qp[i].size);
	}
	memcpy(buf, &w, sizeof(w));
}

int wire_rdma_get(const void *buf, struct wire_rdmarec *r)
{
	struct wire_rdma_end w;

	memcpy(&w, buf, sizeof(w));
	memset(r, 0, sizeof(*r));
	r->kind = w.kind;
	r->link = w.link;
	r->mtu = w.mtu;
	r->lid = le16toh(w.lid);
	r->status = le16toh(w.status);
	r->round = le64toh(w.round);
	memcpy(r->gid, w.gid, sizeof(r->gid));
	for (int i = 0; i < 2; i++) {
		r->qp[i].qpn = le32toh(w.qp[i].qpn);
		r->qp[i].psn = le32toh(w.qp[i].psn);
		r->qp[i].buffers = le32toh(w.qp[i].buffers);
		r->qp[i].size = le32toh(w.qp[i].size);
	}
	if (!w.kind || w.kind > WIRE_RDMA_WITHDRAW || w.reserved || r->status > 4095)
		return -EPROTO;
	return r->status && w.kind == WIRE_RDMA_OFFER ? -EPROTO : 0;
}

static struct wire_way way_put(const struct wire_wayrec *r)
{
	return (struct wire_way){
		.generation = htole64(r->generation), .round = htole64(r->round), .qpn = htole32(r->qpn), .psn = htole32(r->psn),
		.reads = htole32(r->reads), .of = htole32(r->of),
	};
}

static struct wire_wayrec way_get(const struct wire_way *w)
{
	return (struct wire_wayrec){
		.generation = le64toh(w->generation), .round = le64toh(w->round), .qpn = le32toh(w->qpn), .psn = le32toh(w->psn),
		.reads = le32toh(w->reads), .of = le32toh(w->of),
	};
}

void wire_way_put(void *buf, const struct wire_wayrec *r)
{
	struct wire_way w = way_put(r);

	memcpy(buf, &w, sizeof(w));
}

int wire_way_get(const void *buf, struct wire_wayrec *r)
{
	struct wire_way w;

	memcpy(&w, buf, sizeof(w));
	*r = way_get(&w);
	return r->of ? -EPROTO : 0;
}

void wire_key_put(void *buf, const struct wire_keyrec *r)
{
	struct wire_key w = {
		.way = way_put(&r->way), .lo = htole64(r->lo), .hi = htole64(r->hi), .addr = htole64(r->addr),
		.rkey = htole32(r->rkey), .status = htole32(r->status),
	};

	memcpy(buf, &w, sizeof(w));
}

int wire_key_get(const void *buf, struct wire_keyrec *r)
{
	struct wire_key w;

	memcpy(&w, buf, sizeof(w));
	*r = (struct wire_keyrec){
		.way = way_get(&w.way), .lo = le64toh(w.lo), .hi = le64toh(w.hi), .addr = le64toh(w.addr),
		.rkey = le32toh(w.rkey), .status = le32toh(w.status),
	};
	if (r->status > 4095)
		return -EPROTO;
	/* bytes that are somewhere */
	if (!r->status && (r->lo >= r->hi || r->hi > INT64_MAX || r->addr + (r->hi - r->lo) < r->addr))
		return -EPROTO;
	return 0;
}

void wire_hello_put(void *buf, const struct wire_hello_info *h)
{
	struct wire_hello w = {
		.magic = htole32(WIRE_MAGIC),
		.version = htole16(h->version),
		.lane = htole16(h->lane),
		.features = htole64(h->features),
	};

	memcpy(w.guid, h->guid, sizeof(w.guid));
	memcpy(w.dest_guid, h->dest_guid, sizeof(w.dest_guid));
	memcpy(buf, &w, sizeof(w));
}

int wire_hello_get(const void *buf, struct wire_hello_info *h)
{
	struct wire_hello w;

	memcpy(&w, buf, sizeof(w));
	if (le32toh(w.magic) != WIRE_MAGIC)
		return -EPROTO;
	h->version = le16toh(w.version);
	h->lane = le16toh(w.lane);
	h->features = le64toh(w.features);
	memcpy(h->guid, w.guid, sizeof(h->guid));
	memcpy(h->dest_guid, w.dest_guid, sizeof(h->dest_guid));
	return 0;
}

void wire_hello_lane_put(void *buf, const struct wire_lane_info *i)
{
	struct wire_hello_lane w = {
		.generation = htole64(i->generation),
		.position = htole64(i->position),
		.port = htole32(i->port),
		.kind = htole16(i->kind),
		.status = htole16(i->status),
		.dialled_port = htole32(i->dialled_port),
	};

	memcpy(w.id, i->id, sizeof(w.id));
	memcpy(w.addr, i->addr, sizeof(w.addr));
	memcpy(w.dialled, i->dialled, sizeof(w.dialled));
	memcpy(w.key, i->key, sizeof(w.key));
	memcpy(w.mac, i->mac, sizeof(w.mac));
	memcpy(buf, &w, sizeof(w));
}

int wire_hello_lane_get(const void *buf, struct wire_lane_info *i)
{
	struct wire_hello_lane w;

	memcpy(&w, buf, sizeof(w));
	i->generation = le64toh(w.generation);
	i->position = le64toh(w.position);
	i->port = le32toh(w.port);
	i->kind = le16toh(w.kind);
	i->status = le16toh(w.status);
	memcpy(i->id, w.id, sizeof(i->id));
	memcpy(i->addr, w.addr, sizeof(i->addr));
	i->dialled_port = le32toh(w.dialled_port);
	memcpy(i->dialled, w.dialled, sizeof(i->dialled));
	memcpy(i->key, w.key, sizeof(i->key));
	memcpy(i->mac, w.mac, sizeof(i->mac));
	return i->kind > WIRE_LANE_ASK || i->status > 4095 ? -EPROTO : 0;
}

void wire_rts_put(void *buf, const struct wire_rtsrec *r)
{
	struct wire_rts w = {
		.comm = htole64(r->comm),
		.ord = htole64(r->ord),
		.tag = htole32((uint32_t)r->tag),
		.gen = htole32(r->gen),
		.len = htole64(r->len),
		.eager = htole64(r->eager),
		.flags = htole32(r->flags),
	};

	memcpy(buf, &w, sizeof(w));
}

int wire_rts_get(const void *buf, struct wire_rtsrec *r)
{
	struct wire_rts w;

	memcpy(&w, buf, sizeof(w));
	r->comm = le64toh(w.comm);
	r->ord = le64toh(w.ord);
	r->tag = (int32_t)le32toh(w.tag);
	r->gen = le32toh(w.gen);
	r->len = le64toh(w.len);
	r->eager = le64toh(w.eager);
	r->flags = le32toh(w.flags);
	if (r->len > PROG_DTYPE_MAX_BYTES || r->flags & ~WIRE_RTS_FLAGS || w.reserved)
		return -EPROTO;
	return 0;
}

void wire_ats_put(void *buf, const struct wire_atsrec *r)
{
	struct wire_ats w = {
		.status = htole32(r->status),
		.flags = htole32(r->blocking ? WIRE_ATS_HINT_BLOCKING : 0),
		.eager = htole64(r->eager),
	};

	memcpy(buf, &w, sizeof(w));
}

int wire_ats_get(const void *buf, struct wire_atsrec *r)
{
	struct wire_ats w;

	memcpy(&w, buf, sizeof(w));
	r->status = le32toh(w.status);
	r->eager = le64toh(w.eager);
	r->blocking = w.flags & htole32(WIRE_ATS_HINT_BLOCKING);
	if (r->status > 4095 || w.flags & ~htole32(WIRE_ATS_HINT_BLOCKING))
		return -EPROTO;
	return 0;
}

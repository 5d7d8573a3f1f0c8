/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kit/kit.h>

#include <libprogbase/wire.h>
#include <wire/optype.h>

/* A frame of each type that is right. */
static struct wire_frame sample(uint8_t type)
{
	const struct wire_type *t = wire_type(type);
	struct wire_frame f = { .type = type, .len = t->min_len };

	if (t->fields & WIRE_HAS_OP)
		f.op = PROG_OP_SUM;
	if (t->fields & WIRE_HAS_ETYPE)
		f.etype = PROG_TYPE_F64;
	if (t->fields & WIRE_HAS_JOB)
		f.job = 3;
	if (t->fields & WIRE_HAS_DTYPE)
		f.dtype = 7;
	if (t->fields & WIRE_HAS_STREAM) {
		f.win = 0x1122334455667788;
		f.origin = 5;
		f.target = 6;
	}
	if (t->fields & WIRE_HAS_SEQ)
		f.seq = 9;
	if (t->fields & WIRE_HAS_DISP)
		f.disp = 4096;
	if (t->fields & WIRE_HAS_ERROR)
		f.error = 12;
	if (t->fields & (WIRE_HAS_RANGE | WIRE_HAS_WANT)) {
		f.off = 64;
		f.total = 64 + f.len;
	}
	if (t->fields & WIRE_HAS_RANGE)
		f.flags |= WIRE_F_LAST;
	return f;
}

static int check(const struct wire_frame *f)
{
	const struct wire_type *t = wire_type(f->type);
	uint8_t buf[WIRE_HDR_SIZE];
	struct wire_frame out;
	const char *why = NULL;
	int ret;

	wire_encode(f, buf);
	ret = wire_decode(buf, t->from & WIRE_FROM_OPENER ? WIRE_FROM_OPENER :
							    WIRE_FROM_ACCEPTOR, &out, &why);
	if (ret)
		assert_non_null(why);
	else
		assert_memory_equal(&out, f, sizeof(out));
	return ret;
}

/* The bytes of a frame never change: another daemon must understand them. */
static void test_golden(void **state)
{
	static const uint8_t put[WIRE_HDR_SIZE] = {
		0x11, 0x05, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00,
		0x02, 0x00, 0x00, 0x00, 0xff, 0x00, 0x00, 0x00,
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
		0x01, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01, 0x00,
		0x15, 0xcd, 0x5b, 0x07, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80,
		0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x08, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00,
	};
	static const uint8_t hello[48] = {
		0x31, 0x4e, 0x50, 0x47, 0x01, 0x00, 0x02, 0x01,
		0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,
		1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
	};
	static const uint8_t ack[32] = {
		0x02, 0, 0, 0, 0, 0, 0, 0, 0x03, 0, 0, 0, 0x04, 0, 0, 0,
		0x05, 0, 0, 0, 0, 0, 0, 0, 0x0e, 0, 0, 0, 0, 0, 0, 0,
	};
	const struct wire_frame f = {
		.type = WIRE_RMA_PUT, .flags = WIRE_F_LAST | WIRE_F_FENCE, .len = 8, .job = 2,
		.dtype = 255, .win = 0x1122334455667788, .origin = 1, .target = 0x10002,
		.seq = 123456789, .disp = 0x8000000000001000, .off = 0x40000, .total = 0x40008,
	};
	struct wire_hello_info h = { .version = 1, .lane = 0x102,
				     .features = 0x0102030405060708 }, h2;
	struct wire_ackrec a = { 2, 3, 4, 5, 14 }, a2;
	uint8_t buf[WIRE_HDR_SIZE];
	struct wire_frame out;

	wire_encode(&f, buf);
	assert_memory_equal(buf, put, sizeof(put));
	assert_int_equal(wire_decode(put, WIRE_FROM_OPENER, &out, NULL), 0);
	assert_memory_equal(&out, &f, sizeof(f));

	memset(h.guid, 1, sizeof(h.guid));
	memset(h.dest_guid, 2, sizeof(h.dest_guid));
	wire_hello_put(buf, &h);
	assert_memory_equal(buf, hello, sizeof(hello));
	assert_int_equal(wire_hello_get(hello, &h2), 0);
	/* field by field: the structure has padding */
	assert_int_equal(h2.version, h.version);
	assert_int_equal(h2.lane, h.lane);
	assert_int_equal(h2.features, h.features);
	assert_memory_equal(h2.guid, h.guid, sizeof(h.guid));
	assert_memory_equal(h2.dest_guid, h.dest_guid, sizeof(h.dest_guid));
	buf[0]++;
	assert_int_equal(wire_hello_get(buf, &h2), -EPROTO);

	wire_ack_put(buf, 0, &a);
	assert_memory_equal(buf, ack, sizeof(ack));
	memset(&a2, 0, sizeof(a2));
	assert_int_equal(wire_ack_get(ack, 0, &a2), 0);
	assert_int_equal(a2.seq, 5);
	assert_int_equal(a2.status, 14);
	buf[31] = 1;
	assert_int_equal(wire_ack_get(buf, 0, &a2), -EPROTO);
	a.seq = 0;
	wire_ack_put(buf, 0, &a);
	assert_int_equal(wire_ack_get(buf, 0, &a2), -EPROTO);
}

/* The same for what two-sided messages carry. */
static void test_golden_messages(void **state)
{
	static const uint8_t pull[WIRE_HDR_SIZE] = {
		0x31, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
		0x01, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01, 0x00,
		0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0xff, 0x03, 0x00, 0x00, 0x04, 0x03, 0x02, 0x01,
		0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x08, 0x00, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00,
	};
	static const uint8_t send[48] = {
		0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x09, 0, 0, 0, 0, 0, 0, 0,
		0xfd, 0xff, 0xff, 0xff, 0x05, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0,
		0, 0x04, 0x01, 0, 0, 0, 0, 0, 0x09, 0, 0, 0, 0, 0, 0, 0,
	};
	static const uint8_t fin[16] = {
		0x0e, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	};
	const struct wire_frame f = {
		.type = WIRE_RNDV_GET_REQ, .job = 2, .win = 0x1122334455667788, .origin = 1, .target = 0x10002,
		.seq = 9, .disp = WIRE_RNDV_ID(1023, 0x01020304), .off = 0x40000, .total = 0x80008,
	};
	const struct wire_rtsrec s = {
		.comm = 0x0102030405060708, .ord = 9, .tag = -3, .gen = 5, .len = 1 << 20,
		.eager = 66560, .flags = 9,
	};
	const struct wire_atsrec n = { .status = 14, .eager = UINT64_MAX };
	struct wire_frame out;
	struct wire_rtsrec s2;
	struct wire_atsrec n2;
	uint8_t buf[WIRE_HDR_SIZE];

	wire_encode(&f, buf);
	assert_memory_equal(buf, pull, sizeof(pull));
	assert_int_equal(wire_decode(pull, WIRE_FROM_OPENER, &out, NULL), 0);
	assert_memory_equal(&out, &f, sizeof(f));

	wire_rts_put(buf, &s);
	assert_memory_equal(buf, send, sizeof(send));
	assert_int_equal(wire_rts_get(send, &s2), 0);
	assert_int_equal(s2.comm, s.comm);
	assert_int_equal(s2.ord, s.ord);
	assert_int_equal(s2.tag, s.tag);
	assert_int_equal(s2.gen, s.gen);
	assert_int_equal(s2.len, s.len);
	assert_int_equal(s2.eager, s.eager);
	assert_int_equal(s2.flags, s.flags);
	buf[44] = 1;			/* reserved */
	assert_int_equal(wire_rts_get(buf, &s2), -EPROTO);
	buf[44] = 0, buf[40] = 2;	/* flags */
	assert_int_equal(wire_rts_get(buf, &s2), -EPROTO);
	buf[40] = 0, buf[31] = 1;	/* len */
	assert_int_equal(wire_rts_get(buf, &s2), -EPROTO);

	wire_ats_put(buf, &n);
	assert_memory_equal(buf, fin, sizeof(fin));
	assert_int_equal(wire_ats_get(fin, &n2), 0);
	assert_int_equal(n2.status, n.status);
	assert_int_equal(n2.eager, n.eager);
	buf[1] = 0x10;			/* status */
	assert_int_equal(wire_ats_get(buf, &n2), -EPROTO);
	assert_false(n2.blocking);
	buf[1] = 0, buf[4] = 1;		/* flags */
	assert_int_equal(wire_ats_get(buf, &n2), 0);
	assert_true(n2.blocking);
	wire_ats_put(buf, &n2);
	assert_int_equal(buf[4], 1);
	buf[4] = 2;
	assert_int_equal(wire_ats_get(buf, &n2), -EPROTO);
	buf[4] = 1, buf[7] = 0x80;
	assert_int_equal(wire_ats_get(buf, &n2), -EPROTO);
}

static void test_rdma_end(void **state)
{
	struct wire_rdmarec r = {
		.kind = WIRE_RDMA_OFFER, .link = 2, .mtu = 3, .lid = 0x1234, .round = 0x0102030405060708, .gid = { 0xfe, [15] = 9 },
		.qp = { { 0x112233, 0x445566, 32, 4096 }, { 0x778899, 0xaabbcc, 8, 65536 } },
	}, r2;
	uint8_t buf[sizeof(struct wire_rdma_end)];

	wire_rdma_put(buf, &r);
	assert_int_equal(buf[4], 0x34);
	assert_int_equal(buf[8], 8);
	assert_int_equal(buf[32], 0x33);
	assert_int_equal(wire_rdma_get(buf, &r2), 0);
	assert_int_equal(r2.kind, r.kind);
	assert_int_equal(r2.link, r.link);
	assert_int_equal(r2.mtu, r.mtu);
	assert_int_equal(r2.lid, r.lid);
	assert_int_equal(r2.round, r.round);
	assert_memory_equal(r2.gid, r.gid, sizeof(r.gid));
	assert_memory_equal(r2.qp, r.qp, sizeof(r.qp));
	buf[3] = 1;		/* reserved */
	assert_int_equal(wire_rdma_get(buf, &r2), -EPROTO);
	buf[3] = 0, buf[0] = 0;
	assert_int_equal(wire_rdma_get(buf, &r2), -EPROTO);
	buf[0] = WIRE_RDMA_WITHDRAW + 1;
	assert_int_equal(wire_rdma_get(buf, &r2), -EPROTO);
	buf[0] = WIRE_RDMA_ANSWER, buf[6] = 1;	/* status */
	assert_int_equal(wire_rdma_get(buf, &r2), 0);
	buf[0] = WIRE_RDMA_OFFER;
	assert_int_equal(wire_rdma_get(buf, &r2), -EPROTO);
	buf[0] = WIRE_RDMA_ANSWER, buf[7] = 0x10;
	assert_int_equal(wire_rdma_get(buf, &r2), -EPROTO);
}

static void test_key(void **state)
{
	struct wire_keyrec k = {
		.way = { .generation = 0x0102030405060708, .round = 9, .qpn = 0x112233, .psn = 0x445566, .reads = 8, .of = 0x778899 },
		.lo = 4096, .hi = 8192, .addr = 0x7f0012345000, .rkey = 0xdeadbeef,
	}, k2;
	struct wire_wayrec w = k.way, w2;
	uint8_t buf[sizeof(struct wire_key)];

	wire_key_put(buf, &k);
	assert_int_equal(buf[0], 8);
	assert_int_equal(buf[16], 0x33);
	assert_int_equal(buf[28], 0x99);
	assert_int_equal(buf[33], 0x10);
	assert_int_equal(buf[56], 0xef);
	assert_int_equal(wire_key_get(buf, &k2), 0);
	assert_memory_equal(&k2.way, &k.way, sizeof(k.way));
	assert_int_equal(k2.lo, k.lo);
	assert_int_equal(k2.hi, k.hi);
	assert_int_equal(k2.addr, k.addr);
	assert_int_equal(k2.rkey, k.rkey);
	k2 = k, k2.hi = k.lo;
	wire_key_put(buf, &k2);
	assert_int_equal(wire_key_get(buf, &k2), -EPROTO);
	k2 = k, k2.hi = 1ull << 63;
	wire_key_put(buf, &k2);
	assert_int_equal(wire_key_get(buf, &k2), -EPROTO);
	k2 = k, k2.addr = UINT64_MAX - 4000;
	wire_key_put(buf, &k2);
	assert_int_equal(wire_key_get(buf, &k2), -EPROTO);
	k2 = (struct wire_keyrec){ .status = 12 };
	wire_key_put(buf, &k2);
	assert_int_equal(wire_key_get(buf, &k2), 0);
	k2.status = 4096;
	wire_key_put(buf, &k2);
	assert_int_equal(wire_key_get(buf, &k2), -EPROTO);
	wire_way_put(buf, &w);
	assert_int_equal(wire_way_get(buf, &w2), -EPROTO);
	w.of = 0;
	wire_way_put(buf, &w);
	assert_int_equal(wire_way_get(buf, &w2), 0);
	assert_memory_equal(&w2, &w, sizeof(w));
}

/* Every type as it should be, and with one thing wrong at a time. */
static void test_rules(void **state)
{
	unsigned int type, bit;
	int known = 0;

	for (type = 0; type < 256; type++) {
		const struct wire_type *t = wire_type(type);
		uint8_t buf[WIRE_HDR_SIZE] = { type };
		struct wire_frame f, g;

		if (!t) {
			assert_int_equal(wire_decode(buf, WIRE_FROM_OPENER, &f, NULL), -EPROTO);
			assert_int_equal(wire_decode(buf, WIRE_FROM_ACCEPTOR, &f, NULL), -EPROTO);
			assert_string_equal(wire_type_name(type), "unknown");
			continue;
		}
		known++;
		f = sample(type);
		assert_int_equal(check(&f), 0);

		wire_encode(&f, buf);
		assert_int_equal(wire_decode(buf, WIRE_FROM_OPENER, &g, NULL),
				 t->from & WIRE_FROM_OPENER ? 0 : -EPROTO);
		assert_int_equal(wire_decode(buf, WIRE_FROM_ACCEPTOR, &g, NULL),
				 t->from & WIRE_FROM_ACCEPTOR ? 0 : -EPROTO);

		for (bit = 0; bit < 8; bit++) {
			if (t->flags & 1u << bit)
				continue;
			g = f;
			g.flags |= 1u << bit;
			assert_int_equal(check(&g), -EPROTO);
		}
		g = f, g.len = t->max_len + 1, g.total += WIRE_MAX_PAYLOAD + 1;
		assert_int_equal(check(&g), -EPROTO);
		if (t->min_len) {
			g = f, g.len = t->min_len - 1;
			assert_int_equal(check(&g), -EPROTO);
		}
		g = f, g.job = f.job ? 0 : 1;
		assert_int_equal(check(&g), -EPROTO);
		g = f, g.op = f.op ? 0 : 1;
		assert_int_equal(check(&g), -EPROTO);
		g = f, g.op = PROG_OP_END;
		assert_int_equal(check(&g), -EPROTO);
		g = f, g.etype = f.etype ? 0 : 1;
		assert_int_equal(check(&g), -EPROTO);
		g = f, g.etype = PROG_TYPE_END;
		assert_int_equal(check(&g), -EPROTO);
		g = f, g.dtype = f.dtype ? 256 : 1;
		assert_int_equal(check(&g), -EPROTO);
		if (!(t->fields & WIRE_HAS_STREAM)) {
			g = f, g.win = 1;
			assert_int_equal(check(&g), -EPROTO);
			g = f, g.origin = 1;
			assert_int_equal(check(&g), -EPROTO);
			g = f, g.target = 1;
			assert_int_equal(check(&g), -EPROTO);
		}
		if (t->fields & WIRE_HAS_ERROR) {
			g = f, g.error = 0;
			assert_int_equal(check(&g), -EPROTO);
			g.error = 4096;
			assert_int_equal(check(&g), -EPROTO);
			g.error = 4095;
			assert_int_equal(check(&g), 0);
		} else if (!(t->fields & WIRE_HAS_VALUE)) {
			g = f, g.seq = f.seq ? 0 : 1;
			assert_int_equal(check(&g), -EPROTO);
		}
		if (!(t->fields & (WIRE_HAS_DISP | WIRE_HAS_ERROR))) {
			g = f, g.disp = 1;
			assert_int_equal(check(&g), -EPROTO);
		}
		if (t->fields & (WIRE_HAS_RANGE | WIRE_HAS_WANT)) {
			g = f, g.off = g.total + 1;
			assert_int_equal(check(&g), -EPROTO);
			g = f, g.off = UINT64_MAX;
			assert_int_equal(check(&g), -EPROTO);
		} else {
			g = f, g.off = g.total = 1;
			assert_int_equal(check(&g), -EPROTO);
			g = f, g.total = 1;
			assert_int_equal(check(&g), t->fields & WIRE_HAS_LENGTH ? 0 : -EPROTO);
		}
		if (t->fields & WIRE_HAS_RANGE) {
			g = f, g.flags &= ~WIRE_F_LAST;
			assert_int_equal(check(&g), -EPROTO);
			g.total++;
			assert_int_equal(check(&g), 0);
			g.flags |= WIRE_F_LAST;
			assert_int_equal(check(&g), -EPROTO);
		}
		if (t->flags & WIRE_F_PARITY) {
			g = f, g.flags |= WIRE_F_PARITY;
			assert_int_equal(check(&g), -EPROTO);
			g.flags |= WIRE_F_FENCE;
			assert_int_equal(check(&g), 0);
		}
	}
	assert_int_equal(known, 42);
}

static void test_special(void **state)
{
	struct wire_frame f = sample(WIRE_RMA_ACK);

	f.len = 33;
	assert_int_equal(check(&f), -EPROTO);
	f.len = 64;
	assert_int_equal(check(&f), 0);
	assert_int_equal(wire_ack_count(&f), 2);
	f = sample(WIRE_RMA_DTYPE);
	f.dtype = 0;
	assert_int_equal(check(&f), -EPROTO);
	/* an empty put, a get of nothing, a compare-and-swap that sends more than comes back */
	f = sample(WIRE_RMA_PUT);
	f.len = 0, f.total = f.off;
	assert_int_equal(check(&f), 0);
	f = sample(WIRE_RMA_GET);
	f.total = f.off + (1ull << 40);
	assert_int_equal(check(&f), 0);
	f = sample(WIRE_RMA_CAS);
	f.len = 16, f.off = 0, f.total = 8;
	assert_int_equal(check(&f), 0);
}

/* Whatever comes in: refused, or the same bytes come out again. */
static void test_random(void **state)
{
	uint8_t in[WIRE_HDR_SIZE], out[WIRE_HDR_SIZE];
	struct wire_frame f;
	unsigned int seed = 12345, good = 0;
	int i, k;

	for (i = 0; i < 500000; i++) {
		f = sample(WIRE_RMA_PUT + rand_r(&seed) % 10);
		wire_encode(&f, in);
		for (k = rand_r(&seed) % 4; k; k--)
			in[rand_r(&seed) % WIRE_HDR_SIZE] = rand_r(&seed);
		if (wire_decode(in, WIRE_FROM_OPENER, &f, NULL))
			continue;
		good++;
		wire_encode(&f, out);
		assert_memory_equal(in, out, sizeof(in));
	}
	assert_true(good > 1000);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_golden),
	cmocka_unit_test(test_golden_messages),
	cmocka_unit_test(test_rdma_end),
	cmocka_unit_test(test_key),
	cmocka_unit_test(test_rules),
	cmocka_unit_test(test_special),
	cmocka_unit_test(test_random),
};

KIT_SUITE(tests);

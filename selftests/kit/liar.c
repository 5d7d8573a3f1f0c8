/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "liar.h"

void kit_liar_hang_up(struct kit_liar *l, bool cut)
{
	if (l->fd < 0)
		return;
	if (cut)
		l->all->cut(l->id);
	close(l->fd);
	l->fd = -1;
	l->agreed = false;
	l->asked = l->due = 0;
	l->got = l->rest = 0;
}

static void put(struct kit_liar *l, const void *buf, size_t n)
{
	/* who does not read is not sent to */
	if (l->fd >= 0 && send(l->fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n)
		kit_liar_hang_up(l, true);
}

static void put_sealed(struct kit_liar *l, uint8_t *buf, size_t n, struct kit_bytes *in)
{
	struct iovec plain = { buf, n }, *out = &plain;

	if (l->all->encrypt && l->agreed && !l->garbled && l->seal.on) {
		seal_wrap(&l->seal, &plain, 1, &out);
		l->garbled |= kit_garble(in, out->iov_base, out->iov_len);
	}
	put(l, out->iov_base, out->iov_len);
}

static void job_mac(const struct kit_liar *l, uint8_t mac[WIRE_MAC_SIZE], char role)
{
	uint8_t key[PROG_JOBKEY_SIZE];
	struct auth_input in = {
		.jobid = l->jobid, .nonce_opener = l->nonce_opener, .nonce_acceptor = l->nonce_acceptor,
		.guid_opener = l->opener ? l->all->guid : l->all->node_guid, .guid_acceptor = l->opener ? l->all->node_guid : l->all->guid,
		.greeting = l->greeting,
	};

	memcpy(key, l->all->jobkey, sizeof(key));
	auth_mix(key, l->all->lane_key);
	auth_mac(mac, role, &in, key);
}

/* Both have said hello. */
static void agree(struct kit_liar *l)
{
	const uint8_t *hello = l->hello + WIRE_HDR_SIZE, *ack = l->ack + WIRE_HDR_SIZE;
	const uint8_t *theirs = l->opener ? ack : hello;
	uint8_t shared[WIRE_KEY_SIZE];
	struct wire_hello_info h;
	struct wire_lane_info i;
	struct auth_keys k;
	bool sealed = l->all->encrypt;

	l->agreed = true;
	l->garbled = false;
	if (hello_read(theirs, WIRE_HELLO_SIZE, &h, &i) || i.status ||
	    (sealed && !auth_shared(shared, l->private, i.key))) {
		kit_liar_hang_up(l, false);
		return;
	}
	auth_connection(&k, l->has_secret ? l->secret : NULL, sealed ? shared : NULL, hello, ack);
	if (!l->has_secret)
		memcpy(l->greeting, k.greeting, sizeof(l->greeting));
	if (sealed)
		assert_true(!seal_begin(&l->seal, l->opener ? k.opener : k.acceptor, l->opener ? k.acceptor : k.opener));
	if (l->opener && !l->has_secret)
		l->due = WIRE_JOB_OPEN;
}

/* A frame of the node's has come. */
static void heard(struct kit_liar *l, const struct wire_frame *f)
{
	struct wire_job_open open;
	struct wire_job_auth a;

	if (f->type != WIRE_CONFIRM)
		l->heard += WIRE_HDR_SIZE + f->len;
	switch (f->type) {
	case WIRE_JOB_OPEN:
		memcpy(&open, l->head + WIRE_HDR_SIZE, sizeof(open));
		l->job = f->job;
		memcpy(l->jobid, open.jobid, sizeof(l->jobid));
		memcpy(l->nonce_opener, open.nonce, sizeof(l->nonce_opener));
		l->due = WIRE_JOB_CHALLENGE;
		break;
	case WIRE_JOB_CHALLENGE:
		memcpy(&a, l->head + WIRE_HDR_SIZE, sizeof(a));
		memcpy(l->nonce_acceptor, a.nonce, sizeof(l->nonce_acceptor));
		l->due = WIRE_JOB_PROOF;
		break;
	case WIRE_JOB_PROOF:
		l->due = WIRE_JOB_ACCEPT;
		break;
	case WIRE_JOB_ACCEPT:
		l->proven = true;
		if (!l->has_secret)
			job_mac(l, l->secret, AUTH_LANE);
		l->has_secret = true;
		break;
	case WIRE_PING:
		l->due = WIRE_PONG;
	}
}

static void parse(struct kit_liar *l, const uint8_t *p, size_t n)
{
	int from = l->opener ? WIRE_FROM_ACCEPTOR : WIRE_FROM_OPENER;
	struct wire_frame f;
	size_t part, want;

	while (n) {
		if (l->rest) {
			part = l->rest < n ? l->rest : n;
			l->rest -= part;
			p += part;
			n -= part;
			continue;
		}
		want = WIRE_HDR_SIZE;
		if (l->got >= WIRE_HDR_SIZE) {
			wire_decode(l->head, from, &f, NULL);
			want += f.type < WIRE_RMA_DTYPE ? f.len : 0;
		}
		part = want - l->got < n ? want - l->got : n;
		memcpy(l->head + l->got, p, part);
		l->got += part;
		p += part;
		n -= part;
		if (l->got < want || l->got < WIRE_HDR_SIZE)
			continue;
		if (wire_decode(l->head, from, &f, NULL)) {
			/* it is not where the liar said to be */
			assert_true(l->lied);
			kit_liar_hang_up(l, false);
			return;
		}
		if (f.type < WIRE_RMA_DTYPE && l->got < WIRE_HDR_SIZE + f.len)
			continue;
		l->rest = f.type < WIRE_RMA_DTYPE ? 0 : f.len;
		l->got = 0;
		heard(l, &f);
	}
}

/* The node's HELLO, or its answer. */
static void greet(struct kit_liar *l)
{
	uint8_t *buf = l->called ? l->hello : l->ack;
	struct wire_hello_info h;
	struct wire_lane_info i;
	ssize_t n = recv(l->fd, buf + l->got, WIRE_HDR_SIZE + WIRE_HELLO_SIZE - l->got, MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN))
		kit_liar_hang_up(l, false);
	if (n <= 0)
		return;
	l->got += n;
	if (l->got < WIRE_HDR_SIZE + WIRE_HELLO_SIZE)
		return;
	l->got = 0;
	assert_true(!hello_read(buf + WIRE_HDR_SIZE, WIRE_HELLO_SIZE, &h, &i));
	assert_true(h.version == WIRE_VERSION && !memcmp(h.guid, l->all->node_guid, sizeof(h.guid)));
	if (!l->called) {
		agree(l);
		return;
	}
	/* it goes on with what was another's */
	if (memcmp(l->id, i.id, sizeof(l->id)))
		l->lied = true;
	l->opener = i.kind == WIRE_LANE_ASK;
	if (i.kind == WIRE_LANE_NEW) {
		l->has_secret = l->proven = l->lied = false;
		l->sent = l->heard = 0;
	}
	if (i.kind != WIRE_LANE_ASK) {
		memcpy(l->id, i.id, sizeof(l->id));
		l->generation = i.generation;
	}
	l->asked = 1 + i.kind;
	l->due = WIRE_HELLO_ACK;
}

static void listen_to(struct kit_liar *l)
{
	static uint8_t buf[65536];
	struct iovec *room, to = { buf, sizeof(buf) };
	ssize_t n;

	if (l->fd < 0 || (!l->agreed && (l->due == WIRE_HELLO_ACK)))
		return;
	if (!l->agreed) {
		greet(l);
		return;
	}
	if (l->seal.on)
		seal_room(&l->seal, &room);
	else
		room = &to;
	n = recv(l->fd, room->iov_base, room->iov_len, MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN))
		kit_liar_hang_up(l, false);
	if (n <= 0)
		return;
	if (!l->seal.on) {
		parse(l, buf, n);
		return;
	}
	seal_came(&l->seal, n);
	while ((n = seal_next(&l->seal, &to, 1)) > 0)
		parse(l, buf, n);
	/* what was agreed on is not what it should be */
	if (n < 0)
		kit_liar_hang_up(l, true);
}

static bool is_authentic(const struct kit_liar *l, char role, const uint8_t *hello)
{
	uint8_t mac[WIRE_MAC_SIZE];

	auth_hello(mac, role, hello, l->secret);
	return auth_equal(mac, hello + WIRE_HELLO_MACED);
}

void kit_liar_hello(struct kit_liar *l, struct kit_bytes *in)
{
	uint8_t how = kit_u8(in);
	struct sockaddr_storage ss;
	struct wire_lane_info i = { .kind = how & 3 };
	bool named = how & 0x10;		/* after the honest lane */
	socklen_t len;
	uint8_t *p = l->hello + WIRE_HDR_SIZE;

	kit_liar_hang_up(l, how & 4);
	l->called = false;
	if (i.kind == 3)
		i.kind = l->has_secret ? WIRE_LANE_RESUME : WIRE_LANE_NEW;
	if (i.kind == WIRE_LANE_NEW) {
		auth_id(l->id);
		l->has_secret = l->proven = l->lied = false;
		l->sent = l->heard = l->generation = 0;
		l->opener = true;
	}
	memcpy(i.id, named ? l->all->other_id : l->id, sizeof(i.id));
	i.generation = ++l->generation + (how & 0x20 ? kit_number(in) : 0);
	i.position = i.kind == WIRE_LANE_RESUME ? l->heard + (how & 0x40 ? kit_number(in) - 128 : 0) : 0;
	l->lied |= how & 0x40;
	memcpy(i.dialled, l->all->node.ip, sizeof(i.dialled));
	i.dialled_port = ntohs(l->all->node.port);
	i.port = strtoul((const char *)l->all->addr.ip + 1, NULL, 16);
	if (how & 0x80)
		i.port = kit_u8(in);
	if (l->all->encrypt && i.kind != WIRE_LANE_ASK)
		assert_true(auth_pair(i.key, l->private));
	memcpy(l->all->x.o.guid, how & 8 ? l->all->other_guid : l->all->guid, PROG_GUID_SIZE);
	hello_write(l->hello, WIRE_HELLO, &l->all->x, 0, l->all->node_guid, &i, NULL);
	l->lied |= kit_garble(in, l->hello, sizeof(l->hello) - WIRE_MAC_SIZE);
	if (i.kind != WIRE_LANE_NEW)
		auth_hello(p + WIRE_HELLO_MACED, AUTH_HELLO, p, l->secret);
	kit_garble(in, p + WIRE_HELLO_MACED, WIRE_MAC_SIZE);
	l->all->authentic += is_authentic(l, AUTH_HELLO, p);
	xport_inproc.sockaddr(&l->all->node, &ss, &len);
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(l->fd >= 0);
	if (connect(l->fd, (struct sockaddr *)&ss, len))
		kit_liar_hang_up(l, false);
	seal_fini(&l->seal);
	put(l, l->hello, sizeof(l->hello));
}

static void hello_ack(struct kit_liar *l, struct kit_bytes *in)
{
	uint8_t how = kit_u8(in), *p = l->ack + WIRE_HDR_SIZE;
	struct wire_lane_info i = { .kind = l->asked - 1, .generation = l->generation };

	memcpy(i.id, l->id, sizeof(i.id));
	i.position = l->asked - 1 == WIRE_LANE_RESUME ? l->heard + (how & 0x40 ? kit_number(in) - 128 : 0) : 0;
	l->lied |= how & 0x40;
	if (how & 0x80)
		i.status = kit_u8(in);
	if (l->all->encrypt && i.kind != WIRE_LANE_ASK)
		assert_true(auth_pair(i.key, l->private));
	memcpy(l->all->x.o.guid, how & 8 ? l->all->other_guid : l->all->guid, PROG_GUID_SIZE);
	hello_write(l->ack, WIRE_HELLO_ACK, &l->all->x, 0, l->all->node_guid, &i, NULL);
	l->lied |= kit_garble(in, l->ack, sizeof(l->ack) - WIRE_MAC_SIZE);
	if (i.kind != WIRE_LANE_NEW)
		auth_hello(p + WIRE_HELLO_MACED, AUTH_HELLO_ACK, p, l->secret);
	kit_garble(in, p + WIRE_HELLO_MACED, WIRE_MAC_SIZE);
	l->all->authentic += i.kind == WIRE_LANE_NEW || is_authentic(l, AUTH_HELLO_ACK, p);
	put(l, l->ack, sizeof(l->ack));
	if (l->fd < 0)
		return;
	l->due = l->asked = 0;
	if (i.status || i.kind == WIRE_LANE_ASK)
		kit_liar_hang_up(l, how & 1);
	else
		agree(l);
}

/* A frame, as it should be or not. */
static void say(struct kit_liar *l, struct wire_frame *f, const void *data, struct kit_bytes *in)
{
	static uint8_t buf[WIRE_HDR_SIZE + KIT_LIE_MAX];
	uint64_t win;
	size_t len;

	wire_encode(f, buf);
	if (f->len)
		memcpy(buf + WIRE_HDR_SIZE, data, f->len);
	kit_garble(in, buf, WIRE_HDR_SIZE + f->len);
	/* of some the rest does not come, or other bytes do */
	len = f->len && kit_u8(in) > 0xf0 ? WIRE_HDR_SIZE + kit_u16(in) % f->len : WIRE_HDR_SIZE + f->len;
	l->all->any_bytes |= len < WIRE_HDR_SIZE + f->len;
	put_sealed(l, buf, len, in);
	if (f->type != WIRE_CONFIRM)
		l->sent += WIRE_HDR_SIZE + f->len;
	/* the window as it was sent */
	memcpy(&win, buf + offsetof(struct wire_hdr, win), sizeof(win));
	if (!l->garbled && l->all->nsaid++ < KIT_SAID)
		l->all->said[l->all->nsaid - 1] = le64toh(win);
}

void kit_liar_go_on(struct kit_liar *l, struct kit_bytes *in)
{
	struct wire_frame f = { .type = l->due, .job = l->job };
	struct wire_job_open open;
	struct wire_job_auth a = { .mac = { 0 } };
	const void *data = NULL;

	switch (l->due) {
	case 0:
		return;
	case WIRE_HELLO_ACK:
		hello_ack(l, in);
		return;
	case WIRE_JOB_OPEN:
		l->job = f.job = 1;
		memcpy(l->jobid, kit_u8(in) > 240 ? l->all->other_jobid : l->all->jobid, PROG_JOBID_SIZE);
		auth_nonce(l->nonce_opener);
		memcpy(open.jobid, l->jobid, sizeof(open.jobid));
		memcpy(open.nonce, l->nonce_opener, sizeof(open.nonce));
		data = &open;
		f.len = sizeof(open);
		break;
	case WIRE_JOB_CHALLENGE:
	case WIRE_JOB_PROOF:
		if (!l->opener)
			auth_nonce(l->nonce_acceptor);
		memcpy(a.nonce, l->nonce_acceptor, sizeof(a.nonce));
		job_mac(l, a.mac, l->opener ? AUTH_OPENER : AUTH_ACCEPTOR);
		data = &a;
		f.len = sizeof(a);
		break;
	case WIRE_JOB_ACCEPT:
		if (!l->has_secret)
			job_mac(l, l->secret, AUTH_LANE);
		l->has_secret = l->proven = true;
		break;
	case WIRE_PONG:
		f.job = 0;
		f.seq = 1;
	}
	l->due = 0;
	say(l, &f, data, in);
}

void kit_liar_frame(struct kit_liar *l, struct kit_bytes *in)
{
	uint8_t how = kit_u8(in);
	struct wire_frame f = { .type = kit_u8(in) % (WIRE_RNDV_KEY + 1), .job = l->job };
	const struct wire_type *t = wire_type(f.type);
	static const uint8_t zeros[KIT_LIE_MAX];
	uint8_t own[WIRE_HELLO_SIZE] = { 0 };

	if (!t)
		f.type = l->opener ? WIRE_RMA_PUT : WIRE_RMA_DATA;
	t = wire_type(f.type);
	if (how & 1)
		f.job = kit_u8(in);
	if (t->fields & WIRE_LANE && (f.type < WIRE_JOB_OPEN || f.type > WIRE_JOB_REFUSE))
		f.job = 0;
	if (t->fields & (WIRE_HAS_SEQ | WIRE_HAS_VALUE))
		f.seq = (f.type == WIRE_CONFIRM ? l->heard : 1) + (how & 2 ? kit_number(in) - 64 : 0);
	if (t->fields & WIRE_HAS_ERROR)
		f.error = how & 2 ? ENOENT : EMFILE;
	f.flags = t->flags & WIRE_F_LAST;
	f.len = t->min_len;
	if (t->fields & WIRE_HAS_RANGE)
		f.len = how & 4 ? KIT_LIE_MAX : kit_number(in) % KIT_LIE_MAX;
	if (f.len > t->max_len)
		f.len = t->max_len;
	f.total = t->fields & (WIRE_HAS_RANGE | WIRE_HAS_WANT) ? f.len : 0;
	if (t->fields & WIRE_HAS_STREAM) {
		f.win = 1000 + l->all->nsaid;
		f.target = how >> 4;
	}
	for (size_t i = 0; t->fields & WIRE_LANE && i < sizeof(own) && how & 8; i++)
		own[i] = kit_u8(in);
	say(l, &f, t->fields & WIRE_LANE ? own : zeros, in);
}

void kit_liar_bytes(struct kit_liar *l, struct kit_bytes *in)
{
	uint8_t how = kit_u8(in);
	size_t n = kit_u8(in);
	uint8_t buf[256];

	if (how == 0xff) {
		shutdown(l->fd, SHUT_WR);
		return;
	}
	n = n < in->left ? n : in->left;
	memcpy(buf, in->at, n);
	in->at += n;
	in->left -= n;
	if (!n || l->fd < 0)
		return;
	if (how & 1) {
		l->all->any_bytes = true;
		put_sealed(l, buf, n, in);
	} else {
		l->garbled = true;
		put(l, buf, n);
	}
}

/* ---- all of them ---- */

/* For which lane the node dials its HELLO tells; else it is a new one. */
static struct kit_liar *liar_of(struct kit_liars *all, const uint8_t *id)
{
	for (unsigned int i = 0; i < KIT_LIARS; i++)
		if (!memcmp(all->liar[i].id, id, WIRE_LANE_ID_SIZE))
			return &all->liar[i];
	for (unsigned int i = 0; i < KIT_LIARS; i++)
		if (all->liar[i].fd < 0 && !all->liar[i].has_secret)
			return &all->liar[i];
	return NULL;
}

static void answer_calls(struct kit_liars *all)
{
	uint8_t buf[WIRE_HDR_SIZE + WIRE_HELLO_SIZE];
	struct kit_liar *l = NULL;
	ssize_t n;

	if (all->caller < 0)
		all->caller = accept4(all->listen, NULL, NULL, SOCK_CLOEXEC);
	n = all->caller < 0 ? -1 : recv(all->caller, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT);
	if (n < 0)
		return;
	if (n == sizeof(buf))
		l = liar_of(all, buf + WIRE_HDR_SIZE + sizeof(struct wire_hello));
	if (l) {
		kit_liar_hang_up(l, true);
		seal_fini(&l->seal);
		l->fd = all->caller;
		l->called = true;
	} else {
		close(all->caller);
	}
	all->caller = -1;
}

void kit_liars_step(struct kit_liars *all)
{
	answer_calls(all);
	for (unsigned int i = 0; i < KIT_LIARS; i++)
		listen_to(&all->liar[i]);
}

void kit_liars_start(struct kit_liars *all)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(un);

	all->x.o.encrypt = all->encrypt;
	for (unsigned int i = 0; i < KIT_LIARS; i++)
		all->liar[i] = (struct kit_liar){ .all = all, .fd = -1 };
	all->caller = -1;
	all->listen = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_true(all->listen >= 0);
	assert_int_equal(bind(all->listen, (struct sockaddr *)&un, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(all->listen, 16), 0);
	assert_int_equal(getsockname(all->listen, (struct sockaddr *)&un, &len), 0);
	all->addr = (struct prog_addr){
		.transport = XPORT_INPROC, .family = AF_UNIX, .scope = len - offsetof(struct sockaddr_un, sun_path),
	};
	memcpy(all->addr.ip, un.sun_path, all->addr.scope);
}

void kit_liars_end(struct kit_liars *all)
{
	for (unsigned int i = 0; i < KIT_LIARS; i++) {
		kit_liar_hang_up(&all->liar[i], false);
		seal_fini(&all->liar[i].seal);
	}
	if (all->caller >= 0)
		close(all->caller);
	close(all->listen);
}

bool kit_liars_said(const struct kit_liars *all, uint64_t win)
{
	if (all->any_bytes || all->nsaid > KIT_SAID)
		return true;
	for (unsigned int i = 0; i < all->nsaid; i++)
		if (all->said[i] == win)
			return true;
	return false;
}

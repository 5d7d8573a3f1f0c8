// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The first frame on each connection, and the answer to it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xport/lane.h"

void hello_write(uint8_t buf[WIRE_HDR_SIZE + WIRE_HELLO_SIZE], uint8_t type, const struct xport *x, uint16_t lane,
		 const uint8_t to[WIRE_GUID_SIZE], const struct wire_lane_info *i, const uint8_t *secret)
{
	struct wire_frame f = { .type = type, .len = WIRE_HELLO_SIZE };
	struct wire_hello_info h = { .version = WIRE_VERSION, .lane = lane,
				     .features = WIRE_NOTIFY | WIRE_HEARS_BUSY | WIRE_RTS_DATA |
						 (x->o.encrypt ? WIRE_SEALED : 0) |
						 (x->o.verbs ? WIRE_RDMA | WIRE_READS | WIRE_WRITES | WIRE_MSG_READS : 0) };
	uint8_t *payload = buf + WIRE_HDR_SIZE;

	memcpy(h.guid, x->o.guid, sizeof(h.guid));
	memcpy(h.dest_guid, to, sizeof(h.dest_guid));
	wire_encode(&f, buf);
	wire_hello_put(payload, &h);
	wire_hello_lane_put(payload + sizeof(struct wire_hello), i);
	if (secret)
		auth_hello(payload + WIRE_HELLO_MACED, type == WIRE_HELLO ? AUTH_HELLO : AUTH_HELLO_ACK, payload,
			   secret);
}

int hello_read(const uint8_t *payload, uint32_t len, struct wire_hello_info *h, struct wire_lane_info *i)
{
	memset(i, 0, sizeof(*i));
	if (wire_hello_get(payload, h))
		return -EPROTO;
	/* of another version only what says so */
	if (h->version != WIRE_VERSION)
		return 0;
	return len == WIRE_HELLO_SIZE && !wire_hello_lane_get(payload + sizeof(struct wire_hello), i) ? 0 : -EINVAL;
}

struct wire_lane_info hello_end(const struct wire_lane_info *asked, uint16_t status)
{
	struct wire_lane_info i = *asked;

	i.status = status;
	i.port = 0;
	i.dialled_port = 0;
	memset(i.dialled, 0, sizeof(i.dialled));
	memset(i.key, 0, sizeof(i.key));
	return i;
}

void hello_free(struct lane_hello *h)
{
	if (!h)
		return;
	if (h->fd >= 0)
		close(h->fd);
	free(h);
}

bool hello_is_authentic(const struct lane *l, char role, const uint8_t payload[WIRE_HELLO_SIZE])
{
	uint8_t mac[WIRE_MAC_SIZE];

	if (!l->has_secret)
		return false;
	auth_hello(mac, role, payload, l->secret);
	return auth_equal(mac, payload + WIRE_HELLO_MACED);
}

bool hello_send(struct lane *l, uint8_t type, const struct wire_lane_info *i, loop_io_fn *sent)
{
	struct wire_lane_info with_key = *i;

	if (l->xw->x->o.encrypt && i->kind != WIRE_LANE_ASK && !auth_pair(with_key.key, l->private))
		return false;
	hello_write(l->hello, type, l->xw->x, l->index, l->guid, &with_key,
		    i->kind == WIRE_LANE_NEW ? NULL : l->secret);
	l->hello_iov.iov_base = l->hello;
	l->hello_iov.iov_len = sizeof(l->hello);
	l->tx_pending = !loop_sock_send(l->sock, &l->hello_iov, 1, sent);
	return l->tx_pending;
}

int hello_agree(struct lane *l, const uint8_t *hello, const uint8_t *ack, const uint8_t key[WIRE_KEY_SIZE])
{
	bool sealed = l->xw->x->o.encrypt;
	uint8_t shared[WIRE_KEY_SIZE];
	struct auth_keys k;
	int ret = 0;

	if (sealed && !auth_shared(shared, l->private, key))
		return -EPROTO;
	auth_connection(&k, l->has_secret ? l->secret : NULL, sealed ? shared : NULL, hello, ack);
	if (!l->has_secret)
		memcpy(l->greeting, k.greeting, sizeof(l->greeting));
	if (sealed)
		ret = seal_begin(&l->seal, l->opener ? k.opener : k.acceptor, l->opener ? k.acceptor : k.opener);
	auth_wipe(l->private, sizeof(l->private));
	auth_wipe(shared, sizeof(shared));
	auth_wipe(&k, sizeof(k));
	return ret;
}

bool hello_security_differs(const struct xport *x, const struct wire_hello_info *h, char *why, size_t size)
{
	bool sealed = h->features & WIRE_SEALED;

	if (sealed == x->o.encrypt)
		return false;
	snprintf(why, size, "has lane_security = %s, this daemon %s", sealed ? "encrypt" : "auth",
		 x->o.encrypt ? "encrypt" : "auth");
	return true;
}

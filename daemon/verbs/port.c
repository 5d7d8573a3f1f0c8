// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Which port of which device. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

/* What speaks for a port. */
#define OWN_ADDRESS	3	/* RoCE, and the connection has its address */
#define INFINIBAND	2
#define NAMED		1	/* RoCE with some address: only where the configuration names it */

int port_init(char why[VERBS_WHY])
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	int err = errno;

	if (list)
		ibv_free_device_list(list);
	if (n)
		return 0;
	snprintf(why, VERBS_WHY, "no RDMA device that libibverbs has a driver for");
	return list || !err ? -ENODEV : -err;
}

void port_describe(char *buf, size_t size)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t at = 0;

	buf[0] = '\0';
	for (int i = 0; list && list[i] && at < size; i++)
		at += snprintf(buf + at, size - at, "%s%s", i ? " " : "", ibv_get_device_name(list[i]));
	if (list)
		ibv_free_device_list(list);
}

/* Is @device, or port @port of it, among @names (DEVICE or DEVICE:PORT)?  0: any port. */
static bool is_named(const char *names, const char *device, unsigned int port)
{
	size_t len = strlen(device);
	const char *p = names;

	while (*(p += strspn(p, " ,\t"))) {
		size_t n = strcspn(p, " ,\t");
		char *end;

		if (n == len && !strncmp(p, device, len))
			return true;
		if (n > len + 1 && !strncmp(p, device, len) && p[len] == ':' &&
		    (strtoul(p + len + 1, &end, 10) == port || !port) && end == p + n)
			return true;
		p += n;
	}
	return false;
}

/* One more reason why there is none; what has no room is left out. */
static void __attribute__((format(printf, 2, 3))) but(char why[VERBS_WHY], const char *fmt, ...)
{
	size_t at = strlen(why);
	va_list ap;

	if (at + 2 >= VERBS_WHY)
		return;
	if (at)
		memcpy(why + at, "; ", 3);
	va_start(ap, fmt);
	vsnprintf(why + at + (at ? 2 : 0), VERBS_WHY - at - (at ? 2 : 0), fmt, ap);
	va_end(ap);
}

static bool is_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

/* RoCE: the entry of the table of GIDs to use; what speaks for the port, 0: nothing. */
static int choose_gid(const struct verbs_opts *o, const uint8_t local[16], int entries, struct port *p)
{
	struct ibv_gid_entry e;
	int score = 0;

	for (int i = 0; i < entries; i++) {
		bool own;

		if (o->gid_index >= 0 && i != o->gid_index)
			continue;
		memset(&e, 0, sizeof(e));
		if (ibv_query_gid_ex(p->ctx, p->port, i, &e, 0) || is_zero(e.gid.raw, sizeof(e.gid.raw)))
			continue;
		own = !memcmp(e.gid.raw, local, sizeof(e.gid.raw));
		if (o->gid_index < 0 && (e.gid_type != IBV_GID_TYPE_ROCE_V2 || (!own && (score || !*o->devices))))
			continue;
		p->gid = e.gid;
		p->gid_index = i;
		score = own ? OWN_ADDRESS : NAMED;
		if (own)
			break;
	}
	return score;
}

/* What speaks for p->port of p->ctx; 0: nothing, and why. */
static int judge(const struct verbs_opts *o, const uint8_t local[16], struct port *p, char why[VERBS_WHY])
{
	struct ibv_port_attr a = { 0 };
	int score;

	if (ibv_query_port(p->ctx, p->port, &a)) {
		but(why, "%s: cannot be asked about its port", p->name);
		return 0;
	}
	if (a.state != IBV_PORT_ACTIVE) {
		but(why, "%s: the port is down", p->name);
		return 0;
	}
	p->mtu = a.active_mtu;
	p->lid = a.lid;
	if (a.link_layer == IBV_LINK_LAYER_ETHERNET) {
		p->link = VERBS_LINK_ETH;
		score = choose_gid(o, local, a.gid_tbl_len, p);
		if (!score && o->gid_index >= 0)
			but(why, "%s: no GID %d", p->name, o->gid_index);
		else if (!score)
			but(why, "%s: no RoCE v2 address%s", p->name, *o->devices ? "" : " that is the connection's");
		return score;
	}
	p->link = VERBS_LINK_IB;
	p->gid_index = o->gid_index >= 0 ? o->gid_index : 0;
	if (ibv_query_gid(p->ctx, p->port, p->gid_index, &p->gid)) {
		but(why, "%s: no GID %d", p->name, p->gid_index);
		return 0;
	}
	return INFINIBAND;
}

/* The best port of @dev, if it is better than *@best, which it replaces. */
static int look_at(const struct verbs_opts *o, const uint8_t local[16], struct ibv_device *dev, int best, struct port *out,
		   char why[VERBS_WHY])
{
	const char *name = ibv_get_device_name(dev);
	struct ibv_context *ctx;
	struct ibv_device_attr a;
	bool kept = false;

	if (*o->devices && !is_named(o->devices, name, 0))
		return best;
	if (dev->transport_type != IBV_TRANSPORT_IB) {
		but(why, "%.64s: is no InfiniBand or RoCE device", name);
		return best;
	}
	ctx = ibv_open_device(dev);
	if (!ctx || ibv_query_device(ctx, &a)) {
		but(why, "%.64s: cannot be opened: %s", name, strerror(errno));
		if (ctx)
			ibv_close_device(ctx);
		return best;
	}
	for (unsigned int i = 1; i <= a.phys_port_cnt; i++) {
		struct port p = { .ctx = ctx, .port = i };
		int score;

		snprintf(p.name, sizeof(p.name), "%.48s:%u", name, i);
		if (*o->devices && !is_named(o->devices, name, i))
			continue;
		if (!a.max_srq) {
			but(why, "%s: has no shared receive queues", p.name);
			continue;
		}
		score = judge(o, local, &p, why);
		if (score <= best)
			continue;
		if (out->ctx && out->ctx != ctx)
			ibv_close_device(out->ctx);
		*out = p;
		best = score;
		kept = true;
	}
	if (!kept)
		ibv_close_device(ctx);
	return best;
}

int port_find(const struct verbs_opts *o, const uint8_t local[16], struct port *p, char why[VERBS_WHY])
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int best = 0;

	memset(p, 0, sizeof(*p));
	why[0] = '\0';
	for (int i = 0; list && list[i]; i++)
		best = look_at(o, local, list[i], best, p, why);
	if (list)
		ibv_free_device_list(list);
	if (!best && !why[0])
		snprintf(why, VERBS_WHY, *o->devices ? "no RDMA device of those in net_devices" : "no RDMA device");
	return best ? 0 : -ENODEV;
}

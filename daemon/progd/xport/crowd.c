/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <utlist.h>

#include "loop/loop.h"
#include "xport/crowd.h"

#define OTHERS	4		/* each so-many-th turn is one of theirs */

static void net_of(int fd, uint8_t net[16])
{
	struct sockaddr_storage ss;
	const struct sockaddr_in *v4 = (const void *)&ss;
	const struct sockaddr_in6 *v6 = (const void *)&ss;
	socklen_t len = sizeof(ss);

	memset(net, 0, 16);
	if (getpeername(fd, (struct sockaddr *)&ss, &len))
		return;
	if (ss.ss_family == AF_INET6)
		memcpy(net, &v6->sin6_addr, 8);
	else if (ss.ss_family == AF_INET)
		memcpy(net + 12, &v4->sin_addr, 4);
}

/* So few are large that it is soon found who has the most. */
static void grow(struct crowd *c, struct crowd_net *n, int by)
{
	bool large;

	n->n += by;
	c->n += by;
	large = n->n && n->n >= c->max / CROWD_PART;
	if (large && !n->large)
		DL_APPEND(c->large, n);
	else if (!large && n->large)
		DL_DELETE(c->large, n);
	n->large = large;
}

int crowd_join(struct crowd *c, struct crowd_member *m, int fd)
{
	struct crowd_net *n;
	uint8_t net[16];

	net_of(fd, net);
	HASH_FIND(hh, c->nets, net, sizeof(net), n);
	if (!n) {
		n = calloc(1, sizeof(*n));
		if (!n)
			return -ENOMEM;
		memcpy(n->net, net, sizeof(n->net));
		HASH_ADD(hh, c->nets, net, sizeof(n->net), n);
		if (!n->hh.tbl) {
			free(n);
			return -ENOMEM;
		}
	}
	m->net = n;
	m->since = loop_now();
	DL_APPEND(n->members, m);
	DL_APPEND2(c->all, m, earlier, later);
	grow(c, n, 1);
	return 0;
}

static struct crowd_net **turn_of(struct crowd *c, const struct crowd_net *n)
{
	return &c->turn[!n->known];
}

void crowd_wait(struct crowd *c, struct crowd_member *m, bool known)
{
	struct crowd_net *n = m->net;

	if (!n->waiting) {
		n->known = known;
		DL_APPEND2(*turn_of(c, n), n, before, after);
	}
	DL_APPEND2(n->waiting, m, ahead, behind);
	m->waits = true;
}

bool crowd_waits(const struct crowd *c)
{
	return c->turn[0] || c->turn[1];
}

static void wait_no_more(struct crowd *c, struct crowd_member *m)
{
	struct crowd_net *n = m->net;

	m->waits = false;
	DL_DELETE2(n->waiting, m, ahead, behind);
	if (!n->waiting)
		DL_DELETE2(*turn_of(c, n), n, before, after);
}

struct crowd_member *crowd_next(struct crowd *c)
{
	bool others = !c->turn[0] || (c->turn[1] && ++c->turns % OTHERS == 0);
	struct crowd_net *n = c->turn[others];
	struct crowd_member *m;

	if (!n)
		return NULL;
	DL_DELETE2(c->turn[others], n, before, after);
	DL_APPEND2(c->turn[others], n, before, after);
	m = n->waiting;
	wait_no_more(c, m);
	return m;
}

void crowd_leave(struct crowd *c, struct crowd_member *m)
{
	struct crowd_net *n = m->net;

	if (!n)
		return;
	if (m->waits)
		wait_no_more(c, m);
	m->net = NULL;
	DL_DELETE(n->members, m);
	DL_DELETE2(c->all, m, earlier, later);
	grow(c, n, -1);
	if (n->n)
		return;
	HASH_DEL(c->nets, n);
	free(n);
}

struct crowd_member *crowd_victim(const struct crowd *c, int fd)
{
	struct crowd_net *n, *own, *most = c->large;
	uint8_t net[16];

	DL_FOREACH(c->large, n)
		if (n->n > most->n)
			most = n;
	if (!most)
		return c->all;
	net_of(fd, net);
	HASH_FIND(hh, c->nets, net, sizeof(net), own);
	if (own && own->n == most->n)
		return loop_now() - own->members->since < c->grace_ns ? NULL : own->members;
	return most->members;
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <utlist.h>

#include "loop/loop.h"
#include "xport/crowd.h"

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
	n->n++;
	c->n++;
	return 0;
}

void crowd_leave(struct crowd *c, struct crowd_member *m)
{
	struct crowd_net *n = m->net;

	if (!n)
		return;
	m->net = NULL;
	DL_DELETE(n->members, m);
	c->n--;
	if (--n->n)
		return;
	HASH_DEL(c->nets, n);
	free(n);
}

struct crowd_member *crowd_victim(const struct crowd *c, int fd)
{
	struct crowd_net *n, *tmp, *own, *most = NULL;
	uint8_t net[16];

	net_of(fd, net);
	HASH_FIND(hh, c->nets, net, sizeof(net), own);
	HASH_ITER(hh, c->nets, n, tmp)
		if (!most || n->n > most->n)
			most = n;
	if (own && own->n == most->n)
		return loop_now() - own->members->since < c->grace_ns ? NULL : own->members;
	return most ? most->members : NULL;
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* TCP: options of a connection. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>

#include "xport/lane.h"

_Static_assert(XPORT_ERR >= LISTEN_ERR, "what listen_open() says");

#define ROOM	(2 << 20)	/* bytes that a peer may send while those before are being copied */

static int tcp_listen(struct xport *x, char *err)
{
	struct listen_opts o = { .names = x->listen, .low = x->o.port,
				 .high = x->o.port_high ? x->o.port_high : x->o.port };

	if (x->o.nlisten)
		return listen_take(x->o.listen_fd, x->o.nlisten, x->listeners, &x->nlisteners, err);
	return listen_open(&o, x->listeners, &x->nlisteners, err);
}

static void set(int fd, int level, int option, int value)
{
	setsockopt(fd, level, option, &value, sizeof(value));
}

static void tcp_tune(const struct xport *x, int fd)
{
	int ms = x->o.peer_timeout_ns / 1000000, s = ms / 1000;

	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	/*
	 * A vanished peer: USER_TIMEOUT bounds the time that sent bytes go without acknowledgement.
	 * With nothing under way the kernel's probes find it: idle + count * interval.
	 */
	set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, s / 2 ? s / 2 : 1);
	set(fd, IPPROTO_TCP, TCP_KEEPINTVL, s / 6 ? s / 6 : 1);
	set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	/*
	 * Room from the start: we wait for much at once, and the kernel's own estimate, which begins low, would
	 * make the peer wait meanwhile.  This way to it leaves that estimate at work; SO_RCVBUF ends it.
	 */
	set(fd, SOL_SOCKET, SO_RCVLOWAT, ROOM);
	set(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
}

static void tcp_peer_name(int fd, char *buf, size_t size)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (getpeername(fd, (struct sockaddr *)&ss, &len))
		snprintf(buf, size, "unknown peer");
	else
		listen_addr_name(&ss, len, buf, size);
}

const struct xport_ops xport_tcp = {
	.name = "tcp",
	.id = PROG_TRANSPORT_TCP,
	.listen = tcp_listen,
	.sockaddr = listen_sockaddr,
	.tune = tcp_tune,
	.peer_name = tcp_peer_name,
};

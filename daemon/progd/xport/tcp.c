/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* TCP: options of a connection. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include <linux/sockios.h>

#include "xport/lane.h"

_Static_assert(XPORT_ERR >= LISTEN_ERR, "what listen_open() says");

#define SILENT_MS	1000
#define ROOM	(2 << 20)	/* bytes that a peer may send while those before are being copied */

static void set(int fd, int level, int option, int value)
{
	setsockopt(fd, level, option, &value, sizeof(value));
}

static int tcp_listen(struct xport *x, char *err)
{
	struct listen_opts o = { .names = x->listen, .low = x->o.port,
				 .high = x->o.port_high ? x->o.port_high : x->o.port };
	int ret = x->o.nlisten ? listen_take(x->o.listen_fd, x->o.nlisten, x->listeners, &x->nlisteners, err) :
				 listen_open(&o, x->listeners, &x->nlisteners, err);

	/* connections have it from there, which costs nothing for each */
	for (unsigned int i = 0; i < x->nlisteners && !ret; i++)
		set(x->listeners[i].fd, IPPROTO_TCP, TCP_NODELAY, 1);
	return ret;
}

static void tcp_tune(const struct xport *x, int fd)
{
	int ms = x->o.peer_check_ns / 1000000, s = ms / 1000;

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

/* The listener at the connection's own address, or any of its family: several addresses may lead here. */
static void tcp_tell(const struct xport *x, int fd, struct wire_lane_info *info)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct prog_addr own;

	if (getsockname(fd, (struct sockaddr *)&ss, &len) || !listen_fill_addr((struct sockaddr *)&ss, &own))
		return;
	memcpy(info->addr, own.ip, sizeof(info->addr));
	for (unsigned int i = 0; i < x->ntold; i++) {
		bool same = listen_same_ip(&x->told[i], &own);

		if (same || (!info->port && x->told[i].family == own.family))
			info->port = ntohs(x->told[i].port);
		if (same)
			break;
	}
}

static socklen_t tcp_back(int fd, const struct wire_lane_info *info, struct sockaddr_storage *ss)
{
	socklen_t len = sizeof(*ss);
	struct prog_addr seen;

	if (!info->port || info->port > 65535 || getpeername(fd, (struct sockaddr *)ss, &len) ||
	    !listen_fill_addr((struct sockaddr *)ss, &seen))
		return 0;
	/* addresses are translated on the way: who is there is not the peer, and would refuse in its name */
	if (memcmp(seen.ip, info->addr, sizeof(seen.ip)))
		return 0;
	if (ss->ss_family == AF_INET)
		((struct sockaddr_in *)ss)->sin_port = htons(info->port);
	else
		((struct sockaddr_in6 *)ss)->sin6_port = htons(info->port);
	return len;
}

/*
 * TCP waits twice as long each time before it sends again what was not acknowledged, so it goes on long after a cut is over.  A
 * window that is closed is no cut: its probes are not counted here.
 */
static int tcp_unheard(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);
	int left = 0;

	if (ioctl(fd, SIOCOUTQ, &left) || !left || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return HEARD_ALL;
	return info.tcpi_retransmits >= 2 && info.tcpi_last_ack_recv >= SILENT_MS ? UNHEARD_LONG : UNHEARD;
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
	.tell = tcp_tell,
	.back = tcp_back,
	.unheard = tcp_unheard,
	.tune = tcp_tune,
	.peer_name = tcp_peer_name,
};

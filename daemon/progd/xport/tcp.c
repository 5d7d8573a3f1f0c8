/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* TCP: which addresses to listen on, and options of a connection. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/log.h>

#include "xport/lane.h"

#define BACKLOG	SOMAXCONN	/* nodes that start a job come at once */
#define ROOM	(2 << 20)	/* bytes that a peer may send while those before are being copied */

static bool fill_addr(const struct sockaddr *sa, struct prog_addr *a)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	memset(a, 0, sizeof(*a));
	a->transport = XPORT_TCP;
	a->family = sa->sa_family;
	if (sa->sa_family == AF_INET) {
		memcpy(a->ip, &v4->sin_addr, sizeof(v4->sin_addr));
		return true;
	}
	/* a link-local address means something else on every node */
	if (sa->sa_family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
		return false;
	memcpy(a->ip, &v6->sin6_addr, sizeof(v6->sin6_addr));
	return true;
}

static bool tcp_sockaddr(const struct prog_addr *a, struct sockaddr_storage *ss, socklen_t *len)
{
	struct sockaddr_in *v4 = (void *)ss;
	struct sockaddr_in6 *v6 = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	if (a->transport != XPORT_TCP)
		return false;
	if (a->family == AF_INET) {
		v4->sin_family = AF_INET;
		v4->sin_port = a->port;
		memcpy(&v4->sin_addr, a->ip, sizeof(v4->sin_addr));
		*len = sizeof(*v4);
		return true;
	}
	if (a->family != AF_INET6)
		return false;
	v6->sin6_family = AF_INET6;
	v6->sin6_port = a->port;
	memcpy(&v6->sin6_addr, a->ip, sizeof(v6->sin6_addr));
	*len = sizeof(*v6);
	return true;
}

static bool same_ip(const struct prog_addr *a, const struct prog_addr *b)
{
	return a->family == b->family && !memcmp(a->ip, b->ip, sizeof(a->ip));
}

static void add(struct xport *x, const struct prog_addr *a)
{
	unsigned int i;

	for (i = 0; i < x->nlisteners; i++)
		if (same_ip(&x->listeners[i].addr, a))
			return;
	if (x->nlisteners == PROG_MAX_ADDRS) {
		prog_log(PROG_LOG_INFO, "lanes: more than %u addresses, using the first ones",
			 PROG_MAX_ADDRS);
		return;
	}
	x->listeners[x->nlisteners].fd = -1;
	x->listeners[x->nlisteners++].addr = *a;
}

/* Addresses of interface @name, or (NULL) of all that are loopback or not; IPv4 first. */
static unsigned int add_interfaces(struct xport *x, const struct ifaddrs *list, const char *name,
				   bool loopback)
{
	static const int families[] = { AF_INET, AF_INET6 };
	const struct ifaddrs *i;
	struct prog_addr a;
	unsigned int found = 0, f;

	for (f = 0; f < 2; f++) {
		for (i = list; i; i = i->ifa_next) {
			if (!i->ifa_addr || i->ifa_addr->sa_family != families[f] ||
			    !(i->ifa_flags & IFF_UP))
				continue;
			if (name ? strcmp(name, i->ifa_name) :
				   !(i->ifa_flags & IFF_LOOPBACK) == loopback)
				continue;
			if (!fill_addr(i->ifa_addr, &a))
				continue;
			add(x, &a);
			found++;
		}
	}
	return found;
}

static int choose(struct xport *x, char *err)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in *v4 = (void *)&ss;
	struct sockaddr_in6 *v6 = (void *)&ss;
	char *list = NULL, *word, *save = NULL;
	struct ifaddrs *ifs;
	struct prog_addr a;
	int ret = 0;

	if (getifaddrs(&ifs)) {
		ret = -errno;
		snprintf(err, XPORT_ERR, "lanes: cannot list interfaces: %s", strerror(-ret));
		return ret;
	}
	list = strdup(x->listen);
	if (!list) {
		ret = -ENOMEM;
		snprintf(err, XPORT_ERR, "lanes: no memory");
		goto out;
	}
	word = strtok_r(list, ", \t", &save);
	if (!word && !add_interfaces(x, ifs, NULL, false) && !add_interfaces(x, ifs, NULL, true)) {
		ret = -EADDRNOTAVAIL;
		snprintf(err, XPORT_ERR, "lanes: no interface with an address is up");
	}
	for (; word; word = strtok_r(NULL, ", \t", &save)) {
		if (inet_pton(AF_INET, word, &v4->sin_addr) == 1)
			ss.ss_family = AF_INET;
		else if (inet_pton(AF_INET6, word, &v6->sin6_addr) == 1)
			ss.ss_family = AF_INET6;
		else
			ss.ss_family = AF_UNSPEC;
		if (ss.ss_family != AF_UNSPEC && fill_addr((struct sockaddr *)&ss, &a)) {
			add(x, &a);
		} else if (!add_interfaces(x, ifs, word, false)) {
			ret = -EADDRNOTAVAIL;
			snprintf(err, XPORT_ERR, "lanes: listen: '%s' is no address and no "
				 "interface that is up and has one", word);
			break;
		}
	}
out:
	free(list);
	freeifaddrs(ifs);
	return ret;
}

static int open_listener(struct xport *x, struct listener *li, char *err)
{
	struct sockaddr_storage ss;
	char name[64];
	socklen_t len;
	int one = 1, ret;

	li->addr.port = htons(x->o.port);
	tcp_sockaddr(&li->addr, &ss, &len);
	xport_addr_name(&ss, len, name, sizeof(name));
	li->fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (li->fd < 0)
		goto err;
	setsockopt(li->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (ss.ss_family == AF_INET6)
		setsockopt(li->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(li->fd, (struct sockaddr *)&ss, len) || listen(li->fd, BACKLOG) ||
	    getsockname(li->fd, (struct sockaddr *)&ss, &len))
		goto err;
	li->addr.port = ss.ss_family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port :
						  ((struct sockaddr_in6 *)&ss)->sin6_port;
	xport_addr_name(&ss, len, name, sizeof(name));
	prog_log(PROG_LOG_INFO, "lanes: listening on %s", name);
	return 0;
err:
	ret = -errno;
	snprintf(err, XPORT_ERR, "lanes: cannot listen on %s: %s", name, strerror(-ret));
	return ret;
}

static int tcp_listen(struct xport *x, char *err)
{
	unsigned int i;
	int ret = choose(x, err);

	for (i = 0; i < x->nlisteners && !ret; i++)
		ret = open_listener(x, &x->listeners[i], err);
	return ret;
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
		xport_addr_name(&ss, len, buf, size);
}

const struct xport_ops xport_tcp = {
	.name = "tcp",
	.id = XPORT_TCP,
	.listen = tcp_listen,
	.sockaddr = tcp_sockaddr,
	.tune = tcp_tune,
	.peer_name = tcp_peer_name,
};

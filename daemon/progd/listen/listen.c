/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "listen/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/log.h>

#define BACKLOG	SOMAXCONN	/* nodes that start a job come at once */
#define TRIES	64u	/* somebody else may take the port that the kernel chose */

struct listening {
	struct listener *l;
	unsigned int *n;
};

bool listen_fill_addr(const struct sockaddr *sa, struct prog_addr *a)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	memset(a, 0, sizeof(*a));
	a->transport = PROG_TRANSPORT_TCP;
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

bool listen_sockaddr(const struct prog_addr *a, struct sockaddr_storage *ss, socklen_t *len)
{
	struct sockaddr_in *v4 = (void *)ss;
	struct sockaddr_in6 *v6 = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	if (a->transport != PROG_TRANSPORT_TCP)
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

void listen_addr_name(const struct sockaddr_storage *ss, socklen_t len, char *buf, size_t size)
{
	const struct sockaddr_in *v4 = (const void *)ss;
	const struct sockaddr_in6 *v6 = (const void *)ss;
	char ip[INET6_ADDRSTRLEN] = "?";

	switch (ss->ss_family) {
	case AF_INET:
		inet_ntop(AF_INET, &v4->sin_addr, ip, sizeof(ip));
		snprintf(buf, size, "%s:%u", ip, ntohs(v4->sin_port));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &v6->sin6_addr, ip, sizeof(ip));
		snprintf(buf, size, "[%s]:%u", ip, ntohs(v6->sin6_port));
		break;
	default:
		snprintf(buf, size, "local");
	}
}

static struct prog_addr local_addr(int fd, char *name, size_t size)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	struct prog_addr a = { 0 };

	if (!getsockname(fd, (struct sockaddr *)&ss, &len) && listen_fill_addr((struct sockaddr *)&ss, &a))
		a.port = ss.ss_family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port :
						   ((struct sockaddr_in6 *)&ss)->sin6_port;
	listen_addr_name(&ss, len, name, size);
	return a;
}

/* ---- which addresses --------------------------------------------------------------------------------------- */

bool listen_same_ip(const struct prog_addr *a, const struct prog_addr *b)
{
	return a->family == b->family && !memcmp(a->ip, b->ip, sizeof(a->ip));
}

static void add(struct listening *x, const struct prog_addr *a)
{
	unsigned int i;

	for (i = 0; i < *x->n; i++)
		if (listen_same_ip(&x->l[i].addr, a))
			return;
	if (*x->n == PROG_MAX_ADDRS) {
		prog_log(PROG_LOG_INFO, "lanes: more than %u addresses, using the first ones",
			 PROG_MAX_ADDRS);
		return;
	}
	x->l[*x->n].fd = -1;
	x->l[(*x->n)++].addr = *a;
}

/* Addresses of interface @name, or (NULL) of all that are loopback or not; IPv4 first. */
static unsigned int add_interfaces(struct listening *x, const struct ifaddrs *list, const char *name,
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
			if (!listen_fill_addr(i->ifa_addr, &a))
				continue;
			add(x, &a);
			found++;
		}
	}
	return found;
}

static int choose(struct listening *x, const char *names, char *err)
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
		snprintf(err, LISTEN_ERR, "lanes: cannot list interfaces: %s", strerror(-ret));
		return ret;
	}
	list = strdup(names);
	if (!list) {
		ret = -ENOMEM;
		snprintf(err, LISTEN_ERR, "lanes: no memory");
		goto out;
	}
	word = strtok_r(list, ", \t", &save);
	if (!word && !add_interfaces(x, ifs, NULL, false) && !add_interfaces(x, ifs, NULL, true)) {
		ret = -EADDRNOTAVAIL;
		snprintf(err, LISTEN_ERR, "lanes: no interface with an address is up");
	}
	for (; word; word = strtok_r(NULL, ", \t", &save)) {
		if (inet_pton(AF_INET, word, &v4->sin_addr) == 1)
			ss.ss_family = AF_INET;
		else if (inet_pton(AF_INET6, word, &v6->sin6_addr) == 1)
			ss.ss_family = AF_INET6;
		else
			ss.ss_family = AF_UNSPEC;
		if (ss.ss_family != AF_UNSPEC && listen_fill_addr((struct sockaddr *)&ss, &a)) {
			add(x, &a);
		} else if (!add_interfaces(x, ifs, word, false)) {
			ret = -EADDRNOTAVAIL;
			snprintf(err, LISTEN_ERR, "lanes: listen: '%s' is no address and no "
				 "interface that is up and has one", word);
			break;
		}
	}
out:
	free(list);
	freeifaddrs(ifs);
	return ret;
}

/* ---- sockets ----------------------------------------------------------------------------------------------- */

/* A socket bound to @a, or -errno. */
static int bind_to(const struct prog_addr *a, bool reuse)
{
	struct sockaddr_storage ss;
	int one = 1, fd, err;
	socklen_t len;

	if (!listen_sockaddr(a, &ss, &len))
		return -EAFNOSUPPORT;
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (reuse)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (ss.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (!bind(fd, (struct sockaddr *)&ss, len))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

/* A port that the kernel chose is only kept by a socket that asked for that one. */
static int bind_kept(const struct prog_addr *a)
{
	int fd = -EADDRINUSE;

	for (unsigned int i = 0; i < TRIES && fd == -EADDRINUSE; i++) {
		struct prog_addr chosen;
		char name[64];

		fd = bind_to(a, false);
		if (fd < 0 || a->port)
			break;
		chosen = local_addr(fd, name, sizeof(name));
		close(fd);
		fd = bind_to(&chosen, false);
	}
	return fd;
}

static void set_option(int fd, int option, int value)
{
	if (setsockopt(fd, SOL_SOCKET, option, &value, sizeof(value)))
		prog_log(PROG_LOG_WARN, "lanes: socket option %d: %m", option);
}

/*
 * listen_hold() comes by these: the first lets it bind beside the socket that listens, which otherwise only does who has the same uid and
 * asked for it before; the second, beside connections that were accepted there, which have the engine's uid.  A socket that listens keeps
 * others out nevertheless.
 */
static void let_hold(int fd)
{
	set_option(fd, SO_REUSEPORT, 1);
	set_option(fd, SO_REUSEADDR, 1);
}

int listen_hold(const struct prog_addr *a)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int fd, err;

	if (!a->port || !listen_sockaddr(a, &ss, &len))
		return -EAFNOSUPPORT;
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (ss.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){ 1 }, sizeof(int));
	set_option(fd, SO_REUSEPORT, 1);
	if (!bind(fd, (struct sockaddr *)&ss, len))
		return fd;
	/* not at once: who binds first with this lets others do so for as long as the port is bound */
	set_option(fd, SO_REUSEADDR, 1);
	err = bind(fd, (struct sockaddr *)&ss, len) ? -errno : 0;
	if (err) {
		close(fd);
		return err;
	}
	set_option(fd, SO_REUSEADDR, 0);
	return fd;
}

int listen_refuse(int fd)
{
	set_option(fd, SO_REUSEADDR, 0);
	/* the kernel answers connections with a reset; the port stays bound until it is closed */
	return shutdown(fd, SHUT_RDWR) && errno != ENOTCONN ? -errno : 0;
}

static int open_one(const struct listen_opts *o, struct listener *li, char *err)
{
	char name[64];
	int fd = -EADDRINUSE;

	for (unsigned int port = o->low; port <= o->high && fd == -EADDRINUSE; port++) {
		li->addr.port = htons(port);
		fd = o->keep ? bind_kept(&li->addr) : bind_to(&li->addr, true);
		if (fd >= 0 && listen(fd, BACKLOG)) {
			int r = -errno;

			close(fd);
			fd = r;
		}
	}
	if (fd < 0) {
		struct sockaddr_storage ss = { 0 };
		socklen_t len = 0;

		listen_sockaddr(&li->addr, &ss, &len);
		listen_addr_name(&ss, len, name, sizeof(name));
		snprintf(err, LISTEN_ERR, "lanes: cannot listen on %s (ports %u to %u): %s", name, o->low, o->high, strerror(-fd));
		return fd;
	}
	if (o->keep)
		let_hold(fd);
	li->fd = fd;
	li->addr = local_addr(fd, name, sizeof(name));
	prog_log(PROG_LOG_INFO, "lanes: listening on %s", name);
	return 0;
}

bool listen_addr_read(const char *name, struct prog_addr *a)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in6 *v6 = (void *)&ss;
	struct sockaddr_in *v4 = (void *)&ss;
	char ip[INET6_ADDRSTRLEN];
	unsigned int port;
	int end = 0;

	if (sscanf(name, "[%45[^]]]:%u%n", ip, &port, &end) == 2 && inet_pton(AF_INET6, ip, &v6->sin6_addr) == 1)
		ss.ss_family = AF_INET6;
	else if (sscanf(name, "%45[0-9.]:%u%n", ip, &port, &end) == 2 && inet_pton(AF_INET, ip, &v4->sin_addr) == 1)
		ss.ss_family = AF_INET;
	else
		return false;
	if (name[end] || !port || port > UINT16_MAX || !listen_fill_addr((struct sockaddr *)&ss, a))
		return false;
	a->port = htons((uint16_t)port);
	return true;
}

static void close_all(struct listener *l, unsigned int *n)
{
	while (*n)
		if (l[--*n].fd >= 0)
			close(l[*n].fd);
}

int listen_open(const struct listen_opts *o, struct listener *l, unsigned int *n, char *err)
{
	struct listening x = { l, n };
	int ret;

	*n = 0;
	ret = choose(&x, o->names, err);
	for (unsigned int i = 0; i < *n && !ret; i++)
		ret = open_one(o, &l[i], err);
	if (ret)
		close_all(l, n);
	return ret;
}

int listen_take(const int *fds, unsigned int count, struct listener *l, unsigned int *n, char *err)
{
	*n = 0;
	for (unsigned int i = 0; i < count; i++) {
		struct listener li = { .fd = fds[i] };
		char name[64];

		li.addr = local_addr(fds[i], name, sizeof(name));
		if (*n == PROG_MAX_ADDRS || !li.addr.port) {
			snprintf(err, LISTEN_ERR, "lanes: descriptor %d does not listen", fds[i]);
			while (i < count)
				close(fds[i++]);
			close_all(l, n);
			return -EINVAL;
		}
		l[(*n)++] = li;
	}
	return 0;
}

bool listen_ports(const char *text, uint16_t *low, uint16_t *high)
{
	unsigned int a, b;
	char rest;
	int n = sscanf(text, "%u-%u%c", &a, &b, &rest);

	if (n == 1 && text[strspn(text, "0123456789")] == '\0')
		b = a;
	else if (n != 2)
		return false;
	*low = a;
	*high = b;
	return a && a <= b && b <= UINT16_MAX;
}

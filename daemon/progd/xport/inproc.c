/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Lanes inside one process (or one network namespace), for tests: stream sockets of the local
 * domain with names the kernel makes up.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "xport/lane.h"

static int inproc_listen(struct xport *x, char *err)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct listener *li = &x->listeners[0];
	socklen_t len = sizeof(un);
	int ret;

	li->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	x->nlisteners = 1;
	/* a name of family only: the kernel chooses NUL and five hexadecimal digits */
	if (li->fd < 0 || bind(li->fd, (struct sockaddr *)&un, sizeof(sa_family_t)) ||
	    listen(li->fd, 128) || getsockname(li->fd, (struct sockaddr *)&un, &len)) {
		ret = -errno;
		snprintf(err, XPORT_ERR, "lanes: loop: %s", strerror(-ret));
		return ret;
	}
	memset(&li->addr, 0, sizeof(li->addr));
	li->addr.transport = XPORT_INPROC;
	li->addr.family = AF_UNIX;
	li->addr.scope = len - offsetof(struct sockaddr_un, sun_path);
	if (li->addr.scope > sizeof(li->addr.ip)) {
		snprintf(err, XPORT_ERR, "lanes: loop: socket name too long");
		return -ENAMETOOLONG;
	}
	memcpy(li->addr.ip, un.sun_path, li->addr.scope);
	return 0;
}

static bool inproc_sockaddr(const struct prog_addr *a, struct sockaddr_storage *ss,
			    socklen_t *len)
{
	struct sockaddr_un *un = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	if (a->transport != XPORT_INPROC || a->family != AF_UNIX || !a->scope ||
	    a->scope > sizeof(a->ip))
		return false;
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, a->ip, a->scope);
	*len = offsetof(struct sockaddr_un, sun_path) + a->scope;
	return true;
}

/* The kernel's names are numbers. */
static void inproc_tell(const struct xport *x, int fd, struct wire_lane_info *i)
{
	char digits[sizeof(x->told[0].ip) + 1] = "";

	if (x->ntold)
		memcpy(digits, x->told[0].ip + 1, x->told[0].scope - 1);
	i->port = strtoul(digits, NULL, 16);
}

static socklen_t inproc_back(int fd, const struct wire_lane_info *i, struct sockaddr_storage *ss)
{
	struct sockaddr_un *un = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	un->sun_family = AF_UNIX;
	return i->port ? offsetof(struct sockaddr_un, sun_path) + 1 + snprintf(un->sun_path + 1, 6, "%05x", i->port) : 0;
}

static int inproc_unheard(int fd)
{
	return HEARD_ALL;
}

static void inproc_tune(const struct xport *x, int fd)
{
}

static void inproc_peer_name(int fd, char *buf, size_t size)
{
	snprintf(buf, size, "local");
}

const struct xport_ops xport_inproc = {
	.name = "loop",
	.id = XPORT_INPROC,
	.listen = inproc_listen,
	.sockaddr = inproc_sockaddr,
	.tell = inproc_tell,
	.back = inproc_back,
	.unheard = inproc_unheard,
	.tune = inproc_tune,
	.peer_name = inproc_peer_name,
};

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* listen: where other nodes' daemons connect to, over TCP. */
#ifndef LISTEN_LISTEN_H
#define LISTEN_LISTEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <asyncprog/ring.h>

#define LISTEN_ERR	256	/* bytes of a message */

struct loop_watch;

struct listener {
	int fd;
	struct prog_addr addr;
	struct loop_watch *watch;
};

struct listen_opts {
	const char *names;	/* interfaces and addresses, separated by commas or spaces; empty: see xport_opts.listen */
	uint16_t low, high;	/* a free port of these, the same on all addresses or not; 0: one that the kernel chooses */
	/*
	 * The port stays taken when the socket is shut down, and nobody else can bind to it as long as it is open.  Without this a
	 * port can be bound to again at once.  listen_hold() can take the port as well.
	 */
	bool keep;
};

/* "LOW-HIGH" or one number; false: neither. */
bool listen_ports(const char *text, uint16_t *low, uint16_t *high);
/* Listens at PROG_MAX_ADDRS addresses at most; 0, or -errno with a line in @err and nothing open. */
int listen_open(const struct listen_opts *o, struct listener *l, unsigned int *n, char *err);
/*
 * A socket that does not listen, bound where another one that was opened with keep, by a process of this uid, may still listen:
 * who is here as long as either of them is cannot be somebody else's.  Its descriptor, or -errno.
 */
int listen_hold(const struct prog_addr *a);
/* Who connects to it is refused from now on; the port stays bound.  0 or -errno. */
int listen_refuse(int fd);
/* Sockets that listen already; they are the callee's also after an error. */
int listen_take(const int *fds, unsigned int count, struct listener *l, unsigned int *n, char *err);
/* Without a port; false: an address that others cannot use. */
bool listen_fill_addr(const struct sockaddr *sa, struct prog_addr *a);
bool listen_same_ip(const struct prog_addr *a, const struct prog_addr *b);
/* "10.0.0.2:4711" */
void listen_addr_name(const struct sockaddr_storage *ss, socklen_t len, char *buf, size_t size);
/* The reverse, of TCP; false: no such thing. */
bool listen_addr_read(const char *name, struct prog_addr *a);
/* Address to connect to; false: not one of TCP. */
bool listen_sockaddr(const struct prog_addr *a, struct sockaddr_storage *ss, socklen_t *len);

#endif

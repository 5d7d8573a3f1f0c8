/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * ports: where engines are reached by other nodes.  The supervisor binds, so that an engine needs no right to, and keeps the port when the
 * engine has ended: as long as other nodes may look for it there, no other user can answer in its place.  Which ports these are is
 * recorded, and a supervisor that comes after this one keeps them, too.
 */
#ifndef SUPERVISOR_PORTS_H
#define SUPERVISOR_PORTS_H

#include <sys/types.h>

#include "listen/listen.h"

struct loop;
struct ports;

/* Sockets of one engine: they listen, or (of an engine of a supervisor before us) only keep the ports. */
struct ports_set {
	uid_t uid;
	struct listener l[PROG_MAX_ADDRS];
	unsigned int n;
};

/*
 * @names, @low, @high: as struct listen_opts has them; kept.  @records: directory, see record.h; the ports that are there are held from
 * now on.  0 or -ENOMEM.
 */
int ports_new(struct loop *l, int records, const char *names, uint16_t low, uint16_t high, struct ports **out);
void ports_free(struct ports *p);
/* 0, or -errno with a line in @err (LISTEN_ERR bytes). */
int ports_open(struct ports *p, uid_t uid, struct ports_set *set, char *err);
/* Those of an engine of a supervisor before us, which lives. */
void ports_claim(struct ports *p, uid_t uid, struct ports_set *set);
/* The engine has ended: who connects is refused from now on, and nobody else gets the ports for a while. */
void ports_retire(struct ports *p, struct ports_set *set);
/* It goes on, without us. */
void ports_forget(struct ports_set *set);

#endif

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include <libprogbase/log.h>
#include "loop/loop.h"
#include "record.h"

#define KEEP_NS		(15 * 60 * 1000000000ull)	/* longer than any peer looks for a node that is gone */
#define MAX_KEPT	1024u				/* one of who has the most makes room */

struct kept {
	int fd;
	struct record_port port;
	bool was_live;			/* by its record: its engine may be there yet */
	struct kept *next, *prev;
};

struct ports {
	struct loop *loop;
	int records;
	struct listen_opts o;
	struct kept *kept;		/* the oldest first */
	unsigned int nkept;
	struct loop_timer timer;
};

static void unlist(struct ports *p, struct kept *k)
{
	DL_DELETE(p->kept, k);
	p->nkept--;
	free(k);
}

static void drop(struct ports *p, struct kept *k)
{
	record_port_remove(p->records, &k->port.addr);
	close(k->fd);
	unlist(p, k);
}

static unsigned int count_of(const struct ports *p, uid_t uid)
{
	const struct kept *k;
	unsigned int n = 0;

	DL_FOREACH(p->kept, k)
		n += k->port.uid == uid;
	return n;
}

/*
 * One of the ports that are kept has to go: of @uid's own the oldest, else the oldest of the user who has the most.  So nobody gets another
 * user's port free by having his engine end often.  @in_range: only one that an engine could have now.  False: there is none.
 */
static bool make_room(struct ports *p, uid_t uid, bool in_range)
{
	struct kept *k, *victim = NULL;
	unsigned int most = 0;

	DL_FOREACH(p->kept, k) {
		unsigned int port = ntohs(k->port.addr.port), n;

		if (in_range && (port < p->o.low || port > p->o.high))
			continue;
		n = k->port.uid == uid ? MAX_KEPT + 2 : count_of(p, k->port.uid);
		if (n > most) {
			most = n;
			victim = k;
		}
	}
	if (victim)
		drop(p, victim);
	return victim;
}

static void note(const struct ports *p, const struct record_port *r)
{
	int err = record_port_write(p->records, r);

	if (err)
		prog_log_limited(PROG_LOG_WARN, "port %u of uid %u: cannot be recorded: %s", ntohs(r->addr.port), (unsigned int)r->uid,
				 strerror(-err));
}

static void on_timer(void *ctx)
{
	struct ports *p = ctx;
	uint64_t now = loop_now();

	while (p->kept && p->kept->port.until <= now)
		drop(p, p->kept);
	if (p->kept)
		loop_timer_set(p->loop, &p->timer, p->kept->port.until - now, on_timer, p);
}

static int by_time(const struct kept *a, const struct kept *b)
{
	return a->port.until < b->port.until ? -1 : a->port.until > b->port.until;
}

/* Takes @fd over. */
static void keep(struct ports *p, int fd, const struct record_port *r)
{
	struct kept *k = calloc(1, sizeof(*k));
	uint64_t now = loop_now(), until = now + KEEP_NS;

	if (!k) {
		record_port_remove(p->records, &r->addr);
		close(fd);
		return;
	}
	k->fd = fd;
	k->port = *r;
	k->was_live = !r->until;
	if (!r->until || r->until > until)
		k->port.until = until;
	DL_INSERT_INORDER(p->kept, k, by_time);
	p->nkept++;
	if (p->nkept > MAX_KEPT)
		make_room(p, (uid_t)-1, false);
	if (p->kept && !loop_timer_running(&p->timer))
		loop_timer_set(p->loop, &p->timer, p->kept->port.until > now ? p->kept->port.until - now : 0, on_timer, p);
}

static void from_before(void *ctx, const struct record_port *r)
{
	struct ports *p = ctx;
	int fd = listen_hold(&r->addr);

	if (fd < 0) {
		prog_log(PROG_LOG_WARN, "port %u of uid %u: is not kept: %s", ntohs(r->addr.port), (unsigned int)r->uid, strerror(-fd));
		record_port_remove(p->records, &r->addr);
		return;
	}
	keep(p, fd, r);
}

int ports_new(struct loop *l, int records, const char *names, uint16_t low, uint16_t high, struct ports **out)
{
	struct ports *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->loop = l;
	p->records = records;
	p->o = (struct listen_opts){ .names = names, .low = low, .high = high, .keep = true };
	record_ports_each(records, from_before, p);
	*out = p;
	return 0;
}

/* What is kept stays recorded, for the next supervisor. */
void ports_free(struct ports *p)
{
	if (!p)
		return;
	loop_timer_cancel(&p->timer);
	while (p->kept) {
		close(p->kept->fd);
		unlist(p, p->kept);
	}
	free(p);
}

int ports_open(struct ports *p, uid_t uid, struct ports_set *set, char *err)
{
	int r = listen_open(&p->o, set->l, &set->n, err);

	/* rather one that an engine had than none */
	while (r == -EADDRINUSE && make_room(p, uid, true))
		r = listen_open(&p->o, set->l, &set->n, err);
	set->uid = uid;
	for (unsigned int i = 0; !r && i < set->n; i++)
		note(p, &(struct record_port){ .addr = set->l[i].addr, .uid = uid });
	return r;
}

void ports_claim(struct ports *p, uid_t uid, struct ports_set *set)
{
	struct kept *k, *tmp;

	set->uid = uid;
	DL_FOREACH_SAFE(p->kept, k, tmp) {
		if (k->port.uid != uid || !k->was_live || set->n == PROG_MAX_ADDRS)
			continue;
		set->l[set->n++] = (struct listener){ .fd = k->fd, .addr = k->port.addr };
		unlist(p, k);
	}
}

void ports_retire(struct ports *p, struct ports_set *set)
{
	for (unsigned int i = 0; i < set->n; i++) {
		struct record_port r = { .addr = set->l[i].addr, .uid = set->uid, .until = loop_now() + KEEP_NS };

		if (listen_refuse(set->l[i].fd)) {
			record_port_remove(p->records, &r.addr);
			close(set->l[i].fd);
			continue;
		}
		note(p, &r);
		keep(p, set->l[i].fd, &r);
	}
	set->n = 0;
}

void ports_forget(struct ports_set *set)
{
	while (set->n)
		close(set->l[--set->n].fd);
}

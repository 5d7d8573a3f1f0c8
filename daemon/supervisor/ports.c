// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "ports.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#include <libprogbase/log.h>
#include "loop/loop.h"

#define KEEP_NS		(15 * 60 * 1000000000ull)	/* longer than any peer looks for a node that is gone */
#define MAX_KEPT	1024u				/* the oldest makes room */

struct kept {
	int fd;
	uint64_t until;
	struct kept *next, *prev;
};

struct ports {
	struct loop *loop;
	struct listen_opts o;
	struct kept *kept;		/* the oldest first */
	unsigned int nkept;
	struct loop_timer timer;
};

static void drop(struct ports *p, struct kept *k)
{
	DL_DELETE(p->kept, k);
	p->nkept--;
	close(k->fd);
	free(k);
}

static void on_timer(void *ctx)
{
	struct ports *p = ctx;
	uint64_t now = loop_now();

	while (p->kept && p->kept->until <= now)
		drop(p, p->kept);
	if (p->kept)
		loop_timer_set(p->loop, &p->timer, p->kept->until - now, on_timer, p);
}

int ports_new(struct loop *l, const char *names, uint16_t low, uint16_t high, struct ports **out)
{
	struct ports *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->loop = l;
	p->o = (struct listen_opts){ .names = names, .low = low, .high = high, .keep = true };
	*out = p;
	return 0;
}

void ports_free(struct ports *p)
{
	if (!p)
		return;
	loop_timer_cancel(&p->timer);
	while (p->kept)
		drop(p, p->kept);
	free(p);
}

int ports_open(struct ports *p, struct ports_set *set, char *err)
{
	int r = listen_open(&p->o, set->l, &set->n, err);

	/* rather one that an engine had than none */
	while (r == -EADDRINUSE && p->kept) {
		drop(p, p->kept);
		r = listen_open(&p->o, set->l, &set->n, err);
	}
	return r;
}

void ports_retire(struct ports *p, struct ports_set *set)
{
	for (unsigned int i = 0; i < set->n; i++) {
		struct kept *k = calloc(1, sizeof(*k));

		/* the kernel answers connections with a reset; the port stays bound until it is closed */
		if (!k || shutdown(set->l[i].fd, SHUT_RDWR)) {
			close(set->l[i].fd);
			free(k);
			continue;
		}
		k->fd = set->l[i].fd;
		k->until = loop_now() + KEEP_NS;
		DL_APPEND(p->kept, k);
		p->nkept++;
	}
	set->n = 0;
	while (p->nkept > MAX_KEPT)
		drop(p, p->kept);
	if (p->kept && !loop_timer_running(&p->timer))
		on_timer(p);
}

void ports_forget(struct ports_set *set)
{
	while (set->n)
		close(set->l[--set->n].fd);
}

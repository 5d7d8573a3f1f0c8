/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include <libprogbase/guard.h>

#include "listen/listen.h"
#include "xport/reached.h"

struct reached_host {
	struct prog_addr addr;		/* port 0 */
	UT_hash_handle hh;
};

void reached_init(struct reached *r)
{
	pthread_mutex_init(&r->lock, NULL);
	r->hosts = NULL;
}

void reached_fini(struct reached *r)
{
	struct reached_host *h, *tmp;

	HASH_ITER(hh, r->hosts, h, tmp) {
		HASH_DEL(r->hosts, h);
		free(h);
	}
	pthread_mutex_destroy(&r->lock);
}

static struct reached_host *find(struct reached *r, const struct prog_addr *a) GUARD_NEEDS(r->lock)
{
	struct prog_addr key = *a;
	struct reached_host *h;

	key.port = 0;
	HASH_FIND(hh, r->hosts, &key, sizeof(key), h);
	return h;
}

void reached_add(struct reached *r, const struct prog_addr *a)
{
	struct reached_host *h;

	pthread_mutex_lock(&r->lock);
	if (!find(r, a) && HASH_COUNT(r->hosts) < REACHED_MAX) {
		h = calloc(1, sizeof(*h));
		if (h) {
			h->addr = *a;
			h->addr.port = 0;
			HASH_ADD(hh, r->hosts, addr, sizeof(h->addr), h);
			if (!h->hh.tbl)
				free(h);
		}
	}
	pthread_mutex_unlock(&r->lock);
}

bool reached_before(struct reached *r, const struct prog_addr *a)
{
	bool known;

	pthread_mutex_lock(&r->lock);
	known = find(r, a);
	pthread_mutex_unlock(&r->lock);
	return known;
}

static bool peer_addr(int fd, struct prog_addr *a)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	return !getpeername(fd, (struct sockaddr *)&ss, &len) && listen_fill_addr((struct sockaddr *)&ss, a);
}

void reached_add_peer(struct reached *r, int fd)
{
	struct prog_addr a;

	if (peer_addr(fd, &a))
		reached_add(r, &a);
}

bool reached_peer_before(struct reached *r, int fd)
{
	struct prog_addr a;

	return peer_addr(fd, &a) && reached_before(r, &a);
}

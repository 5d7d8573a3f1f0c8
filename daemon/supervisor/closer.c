// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#define HASH_NONFATAL_OOM 1
#include "closer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#include <libprogbase/log.h>

#define GATHER_NS	5000000ull	/* a job has many processes: one child for all */
#define RETRY_NS	100000000ull
#define MAX_CHILDREN	8u		/* of a user, that are not through yet; then each has as many as this: */
#define LOT_FDS		1024u		/* or less: */
#define FILES_PART	16u		/* the part of the files that may be open */
#define SPARE		4u		/* descriptors of two pipes */

/* What is to be closed of one user: what takes long in it is nobody else's trouble. */
struct lot {
	struct closer *c;
	uid_t uid;
	struct loop_timer timer;
	int *fds;			/* room for two more, which are the child's */
	unsigned int nfds, room;
	unsigned int nchildren;
	UT_hash_handle hh;
};

struct child {
	pid_t pid;
	struct lot *lot;
	struct child *next, *prev;
};

struct closer {
	struct loop *loop;
	struct lot *lots;
	struct child *children;
	unsigned int lot_fds;
	int null, spare[SPARE];		/* what a child needs is there also where no more files may be open: it is to end that */
};

static int cmp_fd(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Has what is to be closed, and nothing else from @done on; lets go of it when the parent has. */
static void child_main(struct lot *l, int go, int done)
{
	unsigned int from = 0;
	char byte;

	l->fds[l->nfds++] = go;
	l->fds[l->nfds++] = done;
	qsort(l->fds, l->nfds, sizeof(l->fds[0]), cmp_fd);
	for (unsigned int i = 0; i < l->nfds; i++) {
		unsigned int fd = l->fds[i];

		if (fd > from)
			close_range(from, fd - 1, 0);
		from = fd + 1;
	}
	close_range(from, ~0u, 0);
	close(done);
	while (read(go, &byte, 1) < 0 && errno == EINTR)
		;
	/* an ending process does not linger */
	_exit(0);
}

/* The processes that @l has already may have met files that take for ever: one more only for many connections. */
static bool may_fork(const struct lot *l)
{
	return l->nchildren < MAX_CHILDREN || l->nfds >= l->c->lot_fds;
}

static void take_spare(struct closer *c)
{
	for (unsigned int i = 0; i < SPARE; i++)
		if (c->spare[i] < 0 && c->null >= 0)
			c->spare[i] = fcntl(c->null, F_DUPFD_CLOEXEC, 0);
}

static void give_spare(struct closer *c)
{
	for (unsigned int i = 0; i < SPARE; i++) {
		if (c->spare[i] >= 0)
			close(c->spare[i]);
		c->spare[i] = -1;
	}
}

static bool two_pipes(int one[2], int two[2])
{
	if (pipe2(one, O_CLOEXEC))
		return false;
	if (!pipe2(two, O_CLOEXEC))
		return true;
	close(one[0]);
	close(one[1]);
	return false;
}

static bool flush(struct lot *l)
{
	struct child *child = calloc(1, sizeof(*child));
	int go[2], done[2];
	char byte;

	give_spare(l->c);
	if (!child || !two_pipes(go, done)) {
		take_spare(l->c);
		free(child);
		return false;
	}
	child->pid = fork();
	if (!child->pid)
		child_main(l, go[0], done[1]);
	close(go[0]);
	close(done[1]);
	/* it must not be the last to close what is not for it: other users' connections would end with it only */
	while (child->pid > 0 && read(done[0], &byte, 1) < 0 && errno == EINTR)
		;
	close(done[0]);
	if (child->pid > 0) {
		child->lot = l;
		DL_APPEND(l->c->children, child);
		l->nchildren++;
		while (l->nfds)
			close(l->fds[--l->nfds]);
	}
	close(go[1]);
	take_spare(l->c);
	if (child->pid > 0)
		return true;
	free(child);
	return false;
}

static void lot_free(struct lot *l)
{
	loop_timer_cancel(&l->timer);
	HASH_DEL(l->c->lots, l);
	free(l->fds);
	free(l);
}

static struct lot *lot_of(struct closer *c, uid_t uid)
{
	struct lot *l;

	HASH_FIND(hh, c->lots, &uid, sizeof(uid), l);
	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->c = c;
	l->uid = uid;
	HASH_ADD(hh, c->lots, uid, sizeof(l->uid), l);
	if (l->hh.tbl)
		return l;
	free(l);
	return NULL;
}

static bool make_room(struct lot *l)
{
	unsigned int room = l->room ? 2 * l->room : 64;
	int *fds;

	if (l->nfds + 2 < l->room)
		return true;
	fds = realloc(l->fds, room * sizeof(*fds));
	if (!fds)
		return false;
	l->fds = fds;
	l->room = room;
	return true;
}

static void on_timer(void *ctx)
{
	struct lot *l = ctx;

	if (!l->nfds || (may_fork(l) && flush(l)))
		return;
	prog_log_limited(PROG_LOG_WARN, "uid %u: %u connections wait for being closed (%u processes close others)",
			 (unsigned int)l->uid, l->nfds, l->nchildren);
	loop_timer_set(l->c->loop, &l->timer, RETRY_NS, on_timer, l);
}

int closer_new(struct loop *l, struct closer **out)
{
	struct closer *c = calloc(1, sizeof(*c));
	struct rlimit rl;

	if (!c)
		return -ENOMEM;
	c->loop = l;
	c->lot_fds = LOT_FDS;
	if (!getrlimit(RLIMIT_NOFILE, &rl) && rl.rlim_cur / FILES_PART < LOT_FDS)
		c->lot_fds = rl.rlim_cur / FILES_PART;
	c->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	memset(c->spare, -1, sizeof(c->spare));
	take_spare(c);
	*out = c;
	return 0;
}

void closer_add(struct closer *c, int fd, uid_t uid)
{
	struct lot *l = lot_of(c, uid);

	if (!l || !make_room(l)) {
		prog_log_limited(PROG_LOG_ERROR, "uid %u: no memory to close a connection elsewhere", (unsigned int)uid);
		close(fd);
		return;
	}
	l->fds[l->nfds++] = fd;
	if (l->nfds >= c->lot_fds && flush(l))
		return;
	if (!loop_timer_running(&l->timer))
		loop_timer_set(c->loop, &l->timer, GATHER_NS, on_timer, l);
}

bool closer_reaped(struct closer *c, pid_t pid)
{
	struct child *child;
	struct lot *l;

	DL_SEARCH_SCALAR(c->children, child, pid, pid);
	if (!child)
		return false;
	l = child->lot;
	DL_DELETE(c->children, child);
	free(child);
	l->nchildren--;
	if (!l->nchildren && !l->nfds)
		lot_free(l);
	return true;
}

void closer_free(struct closer *c)
{
	struct child *child, *next;
	struct lot *l, *tmp;

	if (!c)
		return;
	HASH_ITER(hh, c->lots, l, tmp) {
		if (l->nfds)
			flush(l);
		lot_free(l);
	}
	DL_FOREACH_SAFE(c->children, child, next)
		free(child);
	give_spare(c);
	if (c->null >= 0)
		close(c->null);
	free(c);
}

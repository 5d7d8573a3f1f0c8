// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "closer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/log.h>

#define GATHER_NS	5000000ull	/* a job has many processes: one child for all */
#define RETRY_NS	100000000ull
#define MAX_FDS		4096u
#define MAX_CHILDREN	64u		/* that are not through yet */

struct closer {
	struct loop *loop;
	struct loop_timer timer;
	int fds[MAX_FDS];
	unsigned int nfds;
	pid_t child[MAX_CHILDREN];
	unsigned int nchildren;
};

static int cmp_fd(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Has what is to be closed, and nothing else from @done on; lets go of it when the parent has. */
static void child_main(struct closer *c, int go, int done)
{
	unsigned int from = 0;
	char byte;

	c->fds[c->nfds++] = go;
	c->fds[c->nfds++] = done;
	qsort(c->fds, c->nfds, sizeof(c->fds[0]), cmp_fd);
	for (unsigned int i = 0; i < c->nfds; i++) {
		unsigned int fd = c->fds[i];

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

static bool flush(struct closer *c)
{
	int go[2], done[2];
	char byte;
	pid_t pid;

	if (c->nchildren == MAX_CHILDREN || pipe2(go, O_CLOEXEC))
		return false;
	if (pipe2(done, O_CLOEXEC)) {
		close(go[0]);
		close(go[1]);
		return false;
	}
	pid = fork();
	if (!pid)
		child_main(c, go[0], done[1]);
	close(go[0]);
	close(done[1]);
	/* it must not be the last to close what is not for it: other users' connections would end with it only */
	while (pid > 0 && read(done[0], &byte, 1) < 0 && errno == EINTR)
		;
	close(done[0]);
	if (pid > 0) {
		c->child[c->nchildren++] = pid;
		while (c->nfds)
			close(c->fds[--c->nfds]);
	}
	close(go[1]);
	return pid > 0;
}

static void on_timer(void *ctx)
{
	struct closer *c = ctx;

	if (c->nfds && !flush(c)) {
		prog_log_limited(PROG_LOG_WARN, "%u connections wait for being closed (%u processes close others)",
				 c->nfds, c->nchildren);
		loop_timer_set(c->loop, &c->timer, RETRY_NS, on_timer, c);
	}
}

int closer_new(struct loop *l, struct closer **out)
{
	struct closer *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->loop = l;
	*out = c;
	return 0;
}

void closer_add(struct closer *c, int fd)
{
	/* two places are the child's */
	if (c->nfds == MAX_FDS - 2 && !flush(c)) {
		prog_log_limited(PROG_LOG_ERROR, "%u connections cannot be closed elsewhere", c->nfds);
		close(fd);
		return;
	}
	c->fds[c->nfds++] = fd;
	if (!loop_timer_running(&c->timer))
		loop_timer_set(c->loop, &c->timer, GATHER_NS, on_timer, c);
}

bool closer_reaped(struct closer *c, pid_t pid)
{
	for (unsigned int i = 0; i < c->nchildren; i++) {
		if (c->child[i] != pid)
			continue;
		c->child[i] = c->child[--c->nchildren];
		return true;
	}
	return false;
}

void closer_free(struct closer *c)
{
	if (!c)
		return;
	loop_timer_cancel(&c->timer);
	if (c->nfds)
		flush(c);
	free(c);
}

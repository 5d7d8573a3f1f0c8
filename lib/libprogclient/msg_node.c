// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Messages of the same node: their receiver copies them out of the sender's memory by itself. */
#include <errno.h>
#include <stdlib.h>

#include "msg.h"
#include "share.h"

#define COPY_PART	(256u << 10)	/* of a message for a derived datatype, copied at a time */

const struct same_node *msg_same_node_find(const struct msgs *ms, uint32_t rank)
{
	uint32_t lo = 0, hi = ms->nsame_node;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (ms->same_node[mid].rank == rank)
			return &ms->same_node[mid];
		if (ms->same_node[mid].rank < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

bool prog_msg_same_node(const struct prog_win *w, uint32_t rank)
{
	return w->msgs && msg_same_node_find(w->msgs, rank);
}

int msgs_same_node(struct prog_session *s, uint32_t rank, struct same_node *out)
{
	const struct same_node *same;

	pthread_mutex_lock(&s->msg_lock);
	same = s->msgs && s->msgs->w->msgs ? msg_same_node_find(s->msgs, rank) : NULL;
	if (same)
		*out = *same;
	pthread_mutex_unlock(&s->msg_lock);
	return same ? 0 : -ENOENT;
}

int msg_same_node_alive(const struct same_node *same)
{
	struct memref probe = mem_remote(same->pid, same->probe);
	uint64_t value = 0;
	int err = mem_read(&probe, 0, &value, sizeof(value));

	return err ? err : value == same->value ? 0 : -ESRCH;
}

struct copy {
	struct memref from;
	const struct side *to;
};

/* Packed bytes [@off, @off + @len) of a message, in any thread. */
static int copy_piece(void *arg, uint64_t off, uint64_t len)
{
	const struct copy *c = arg;
	const struct side *sd = c->to;
	uint64_t end = off + len, n;
	char *buf;
	int err = 0;

	if (!sd->dt)
		return mem_read(&c->from, (int64_t)off, sd->p + off, len);
	buf = malloc(len < COPY_PART ? len : COPY_PART);
	if (!buf)
		return -ENOMEM;
	for (; off < end && !err; off += n) {
		n = end - off < COPY_PART ? end - off : COPY_PART;
		err = mem_read(&c->from, (int64_t)off, buf, n);
		if (!err)
			err = prog_dtype_unpack(sd->p, sd->dt, sd->count, off, buf, n);
	}
	free(buf);
	return err;
}

int msg_same_node_copy(const struct same_node *same, const struct prog_msg_id *id, const struct side *sd)
{
	struct copy c = { .from = mem_remote(same->pid, id->addr), .to = sd };
	uint64_t len = id->len < sd->total ? id->len : sd->total;
	int err;

	if (!share_worth(len) || share_overlaps(sd->dt, sd->count))
		err = copy_piece(&c, 0, len);
	else
		err = share_run(&(struct share){
			.part = copy_piece, .arg = &c, .len = len, .unit = prog_threads_unit(sd->dt),
		});
	return err ? err : msg_same_node_alive(same);
}

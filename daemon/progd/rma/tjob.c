// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Operations that the helper thread of a window's process does: the daemon does not reach its memory, or not as well. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rma/target.h"

static void tjob_fill(void *arg, void *mem)
{
	struct tjob *j = arg;

	if (j->f.len)
		memcpy(mem, j->payload, j->f.len);
	if (j->dt)
		prog_dtype_encode(j->dt, (char *)mem + j->dtype, prog_dtype_encoded_size(j->dt));
}

static void tjob_done(void *arg, int status, void *bounce)
{
	struct tjob *j = arg;
	struct tstream *ts = j->ts;

	ts->jobs--;
	LL_DELETE(ts->job_list, j);
	if (!ts->from) {
		ts_put(ts);
		free(j);
		return;
	}
	if (ts->job_seq != j->f.seq) {
		ts->job_seq = j->f.seq;
		ts->job_status = 0;
	}
	if (j->want && !status) {
		struct wire_frame d = reply_frame(ts, j->f.seq, j->f.off, j->want, j->f.total);

		status = ts->tl->chan->data(ts, &d, (char *)bounce + j->result);
		if (status > 0)
			status = 0;
	}
	if (status && !ts->job_status)
		ts->job_status = status;
	stats_add(&ts->stats->applied_bytes[rma_opcode_of(j->f.type)],
		  j->f.len ? j->f.len : j->want);
	if (ts->state == TS_SEND) {
		if (ts->job_status)
			ts->status = ts->job_status;
		free(j);
		ts_resume(ts);
		return;
	}
	if (j->f.flags & WIRE_F_LAST)
		ts_finish(ts, &j->f, ts->job_status);
	free(j);
	ts_settled(ts);
}

int ts_job_post(struct tstream *ts, const struct wire_frame *f, const struct target *t, const void *payload,
		uint64_t want)
{
	struct rma *r = ts->tl->r;
	struct helper *h = ts->win->access.helper;
	struct prog_helper_job job = {
		.kind = PROG_HELP_APPLY, .opcode = rma_opcode_of(f->type), .op = f->op,
		.etype = f->etype, .va = f->disp, .off = f->off,
		.len = f->type == WIRE_RMA_GET || (f->type == WIRE_RMA_GET_ACC && !f->len) ? want : f->len,
		.dtype = ~0ull,
	};
	struct tjob *j = malloc(sizeof(*j));
	uint64_t size;
	int err;

	if (!j)
		return -ENOMEM;
	*j = (struct tjob){ .ts = ts, .f = *f, .want = want, .dt = t->dt, .payload = payload };
	j->result = ((uint64_t)f->len + 63) & ~63ull;
	j->dtype = (j->result + want + 63) & ~63ull;
	size = j->dtype;
	job.result = j->result;
	if (t->dt) {
		job.dtype = j->dtype;
		job.dtype_len = prog_dtype_encoded_size(t->dt);
		size += job.dtype_len;
	}
	/* the client knows its windows by its own slots */
	job.win = ts->win->slot;
	err = helper_post(h, r->index, &job, size, tjob_fill, tjob_done, j);
	if (err) {
		free(j);
		return err;
	}
	link_helper_watch(r->link, h);
	ts->jobs++;
	LL_APPEND(ts->job_list, j);
	stats_add(&ts->stats->helper_jobs, 1);
	stats_add(&ts->stats->helper_bytes, f->len + want);
	return 0;
}

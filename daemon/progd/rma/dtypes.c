// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* DTYPE: datatypes that an origin defines for its later operations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rma/target.h"

#define FINE_BLOCK	2048u	/* CMA pays per block: below this average, the helper is cheaper */
#define DTYPE_MAX_LEN	(sizeof(struct prog_dtype_hdr) + \
			 (uint64_t)PROG_DTYPE_MAX_OPS * sizeof(struct prog_dtype_op))

static bool dtype_is_fine(const struct dtype *dt)
{
	struct prog_dtype_iter it;
	uint64_t len, bytes = 0;
	unsigned int n = 0;
	int64_t off;

	if (prog_dtype_contig(dt) || prog_dtype_iter_init(&it, dt, 1, 0))
		return false;
	while (n < 64 && prog_dtype_iter_next(&it, UINT64_MAX, &off, &len)) {
		bytes += len;
		n++;
	}
	return n && bytes / n < FINE_BLOCK;
}

static void type_drop(struct tstream *ts, unsigned int id)
{
	struct dtype *dt = ts->dtypes[id].dt;

	if (!dt)
		return;
	ts->dtypes[id].dt = NULL;
	win_type_uncharge(ts->win->job->user, prog_dtype_encoded_size(dt));
	prog_dtype_put(dt);
}

/* What arrives in fragments: no more. */
static void buf_drop(struct tstream *ts)
{
	if (!ts->dt_buf)
		return;
	free(ts->dt_buf);
	ts->dt_buf = NULL;
	win_type_uncharge(ts->win->job->user, ts->dt_total);
}

void target_dtypes_free(struct tstream *ts)
{
	for (unsigned int i = 0; ts->dtypes && i < 256; i++)
		type_drop(ts, i);
	free(ts->dtypes);
	buf_drop(ts);
}

static int fragment(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload)
{
	int err;

	if (!f->off) {
		buf_drop(ts);
		err = win_type_charge(ts->win->job->user, f->total);
		if (err)
			return err;
		ts->dt_buf = malloc(f->total);
		if (!ts->dt_buf) {
			win_type_uncharge(ts->win->job->user, f->total);
			return -ENOMEM;
		}
		ts->dt_total = f->total;
		ts->dt_len = 0;
	}
	/* the first one may have been refused */
	if (!ts->dt_buf)
		return -EINVAL;
	/* each frame says the total: another one than the buffer was made for is a lie */
	if (f->off != ts->dt_len || f->total != ts->dt_total)
		return -EINVAL;
	memcpy(ts->dt_buf + f->off, payload, f->len);
	ts->dt_len += f->len;
	return 0;
}

/* The complete type of @f's number: @len bytes at @enc, which are charged already. */
static int define(struct tstream *ts, const struct wire_frame *f, const void *enc, uint32_t len)
{
	struct dtype *dt;
	char why[160];
	int err = prog_dtype_decode(enc, len, &dt, why, sizeof(why));

	if (err) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: datatype of rank %u refused: %s",
				 ts->tl->lane ? lane_name(ts->tl->lane) : "local", ts->key.origin,
				 why);
		return err;
	}
	ts->dtypes[f->dtype].dt = dt;
	ts->dtypes[f->dtype].fine = dtype_is_fine(dt);
	return 0;
}

int target_exec_dtype(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	int err;

	if (f->total > DTYPE_MAX_LEN)
		return -E2BIG;
	if (!ts->dtypes) {
		ts->dtypes = calloc(256, sizeof(*ts->dtypes));
		if (!ts->dtypes)
			return -ENOMEM;
	}
	/* also if the new one is refused: no later operation may mean the old one */
	type_drop(ts, f->dtype);
	if (!f->off && f->flags & WIRE_F_LAST) {
		err = win_type_charge(ts->win->job->user, f->len);
		if (err)
			return err;
		err = define(ts, f, payload, f->len);
		if (err)
			win_type_uncharge(ts->win->job->user, f->len);
		return err;
	}
	err = fragment(ts, f, payload);
	if (err || !(f->flags & WIRE_F_LAST))
		return err;
	/* as long as what was charged */
	err = ts->dt_len == ts->dt_total ? define(ts, f, ts->dt_buf, ts->dt_len) : -EINVAL;
	if (err) {
		buf_drop(ts);
		return err;
	}
	free(ts->dt_buf);
	ts->dt_buf = NULL;
	return 0;
}

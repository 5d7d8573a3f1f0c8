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

int exec_dtype(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	struct dtype *dt;
	char why[160];
	int err;

	if (f->total > DTYPE_MAX_LEN)
		return -E2BIG;
	if (!ts->dtypes) {
		ts->dtypes = calloc(256, sizeof(*ts->dtypes));
		if (!ts->dtypes)
			return -ENOMEM;
	}
	if (f->off || !(f->flags & WIRE_F_LAST)) {
		if (!f->off) {
			free(ts->dt_buf);
			ts->dt_buf = malloc(f->total);
			ts->dt_total = f->total;
			ts->dt_len = 0;
		}
		if (!ts->dt_buf)
			return -ENOMEM;
		/* each frame says the total: another one than the buffer was made for is a lie */
		if (f->off != ts->dt_len || f->total != ts->dt_total)
			return -EINVAL;
		memcpy(ts->dt_buf + f->off, payload, f->len);
		ts->dt_len += f->len;
		if (!(f->flags & WIRE_F_LAST))
			return 0;
		err = prog_dtype_decode(ts->dt_buf, ts->dt_len, &dt, why, sizeof(why));
		free(ts->dt_buf);
		ts->dt_buf = NULL;
	} else {
		err = prog_dtype_decode(payload, f->len, &dt, why, sizeof(why));
	}
	if (err) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: datatype of rank %u refused: %s",
				 ts->tl->lane ? lane_name(ts->tl->lane) : "local", ts->key.origin,
				 why);
		return err;
	}
	prog_dtype_put(ts->dtypes[f->dtype].dt);
	ts->dtypes[f->dtype].dt = dt;
	ts->dtypes[f->dtype].fine = dtype_is_fine(dt);
	return 0;
}

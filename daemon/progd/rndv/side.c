// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * One end of a message in a client's memory: mapped (a region), reached by CMA, or by the client's
 * helper thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

static bool inside(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

static int type_of(struct side *sd, struct rndv_space *sp, const struct prog_p2p_slot *s, const char **why)
{
	const struct rndv_client *c = &sp->c;
	uint64_t total;
	int err;

	*why = "its datatype lies outside the arena";
	if (!inside(s->dtype, s->dtype_len, c->view.arena_size))
		return -EPROTO;
	*why = "the user's quota of datatypes is used up (quota_types)";
	err = win_type_charge(sp->win->job->user, s->dtype_len);
	if (err)
		return err;
	*why = "its datatype is not valid";
	err = prog_dtype_decode(c->view.arena + s->dtype, s->dtype_len, &sd->dt, NULL, 0);
	if (err) {
		win_type_uncharge(sp->win->job->user, s->dtype_len);
		return err == -ENOMEM ? err : -EPROTO;
	}
	sd->charged = sp->win->job->user;
	*why = "len is not that of count items";
	if (prog_dtype_total(sd->dt, s->count, &total) || total != s->len)
		return -EPROTO;
	sd->count = s->count;
	return 0;
}

static void type_put(struct side *sd)
{
	if (!sd->dt)
		return;
	win_type_uncharge(sd->charged, prog_dtype_encoded_size(sd->dt));
	prog_dtype_put(sd->dt);
	sd->dt = NULL;
}

int rndv_side_init(struct side *sd, struct rndv_space *sp, const struct prog_p2p_slot *s, const char **why)
{
	struct rndv_client *c = &sp->c;
	int64_t lo = 0, hi = s->len;
	uint64_t addr = s->addr;
	int err;

	*sd = (struct side){ .sp = sp, .len = s->len };
	*why = "len is out of range";
	if (s->len > PROG_DTYPE_MAX_BYTES)
		return -EPROTO;
	if (s->dtype != ~0ull) {
		err = type_of(sd, sp, s, why);
		if (err)
			goto fail;
		*why = "the items reach too far";
		err = -EPROTO;
		if (prog_dtype_span(sd->dt, sd->count, &lo, &hi))
			goto fail;
		if (prog_dtype_contig(sd->dt)) {
			addr += (uint64_t)prog_dtype_true_lb(sd->dt);
			hi -= lo;
			lo = 0;
			type_put(sd);
		}
	}
	if (s->loc == PROG_SQE_REGION) {
		int64_t first, end;

		*why = "its region is not there";
		err = -EPROTO;
		sd->map = win_region(&c->view.regions, s->region);
		if (!sd->map)
			goto fail;
		win_map_get(sd->map);
		*why = "it lies outside its region";
		if (__builtin_add_overflow((int64_t)addr, lo, &first) ||
		    __builtin_add_overflow((int64_t)addr, hi, &end) ||
		    (s->len && (first < 0 || end < first || (uint64_t)end > sd->map->size)))
			goto fail;
		if (win_map_serves(sd->map, s->kind != PROG_P2P_SEND)) {
			sd->ref = mem_direct((uint8_t *)sd->map->mem + addr);
			return 0;
		}
		/* pinned memory that is not that any more, or not for this: by its address */
		addr += sd->map->addr;
		win_map_put(sd->map);
		sd->map = NULL;
	} else if (s->loc != PROG_SQE_VA) {
		*why = "loc is neither REGION nor VA";
		err = -EPROTO;
		goto fail;
	}
	*why = "it wraps around the address space";
	err = -EPROTO;
	if (!sd->dt && addr + s->len < addr)
		goto fail;
	sd->ref = mem_remote(c->view.pid, addr);
	sd->helper = !c->view.cma;
	if (sd->helper && s->len && (!c->view.helper || !rndv_side_helper_max(sd))) {
		err = -EPERM;
		goto fail;
	}
	return 0;
fail:
	rndv_side_fini(sd);
	return err;
}

void rndv_side_fini(struct side *sd)
{
	win_map_put(sd->map);
	sd->map = NULL;
	type_put(sd);
}

void *rndv_side_ptr(const struct side *sd, uint64_t off)
{
	return sd->map && !sd->dt ? mem_ptr(&sd->ref, off) : NULL;
}

static int state(const struct side *sd)
{
	return !sd->map || win_map_alive(sd->map) ? 0 : -EFAULT;
}

int rndv_side_read(const struct side *sd, uint64_t off, void *to, size_t len)
{
	int err = sd->dt ? mem_read_dtype(&sd->ref, 0, sd->dt, sd->count, off, to, len) :
			   mem_read(&sd->ref, off, to, len);

	return err ? err : state(sd);
}

int rndv_side_write(const struct side *sd, uint64_t off, const void *from, size_t len)
{
	int err = sd->dt ? mem_write_dtype(&sd->ref, 0, sd->dt, sd->count, off, from, len) :
			   mem_write(&sd->ref, off, from, len);

	return err ? err : state(sd);
}

/* ---- by the helper thread ---- */

static uint64_t type_room(const struct side *sd)
{
	return sd->dt ? prog_dtype_encoded_size(sd->dt) + 64 : 0;
}

uint64_t rndv_side_helper_max(const struct side *sd)
{
	uint64_t max = helper_max(sd->sp->c.view.helper), type = type_room(sd);

	max = max > type ? max - type : 0;
	return max < CHUNK ? max : CHUNK;
}

struct fill {				/* of rndv_side_post(), while it runs; then what done needs */
	helper_done_fn *done;
	void *arg;
	struct conn *c;
	const struct side *sd;
	const void *from;
	uint64_t len, type;
};

static void fill(void *arg, void *mem)
{
	struct fill *f = arg;

	if (f->from)
		memcpy(mem, f->from, f->len);
	if (f->sd->dt)
		prog_dtype_encode(f->sd->dt, (char *)mem + f->type, prog_dtype_encoded_size(f->sd->dt));
}

static void filled(void *arg, int status, void *bounce)
{
	struct fill *f = arg;
	struct conn *c = f->c;

	f->done(f->arg, status, bounce);
	free(f);
	rndv_conn_job_done(c);
}

int rndv_side_post(const struct side *sd, struct conn *c, uint64_t off, uint64_t len, const void *from,
		   helper_done_fn *done, void *arg)
{
	struct prog_helper_job job = {
		.kind = from ? PROG_HELP_WRITE : PROG_HELP_READ, .va = sd->ref.addr + off, .len = len,
		.dtype = ~0ull,
	};
	struct fill *f = malloc(sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	*f = (struct fill){ .done = done, .arg = arg, .c = c, .sd = sd, .from = from, .len = len,
			    .type = (len + 63) & ~63ull };
	if (sd->dt) {
		job.kind = PROG_HELP_APPLY;
		job.opcode = from ? PROG_SQE_OP_PUT : PROG_SQE_OP_GET;
		job.win = c->sp->win->slot;
		job.va = sd->ref.addr;
		job.off = off;
		job.dtype = f->type;
		job.dtype_len = prog_dtype_encoded_size(sd->dt);
	}
	err = helper_post(sd->sp->c.view.helper, c->r->link->o.index, &job, f->type + job.dtype_len, fill, filled, f);
	if (err) {
		free(f);
		return err;
	}
	link_helper_watch(c->r->link, sd->sp->c.view.helper);
	c->jobs++;
	return 0;
}

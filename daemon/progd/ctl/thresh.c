// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Thresholds of pairs of ranks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <libprogbase/log.h>

#include "ctl/priv.h"
#include "thresh/thresh.h"
#include "win/win.h"

static void set_overlap(json_t *row, const char *side, const struct thresh_info *i)
{
	char key[32];

	snprintf(key, sizeof(key), "%s_overlap", side);
	json_object_set_new(row, key, i->overlap < 0 ? json_null() : json_real(i->overlap));
}

/* A direction is one row, also when both of its ranks are here and each tells its side of it. */
static void add_thresh(void *arg, const struct thresh_info *i)
{
	json_t *rows = arg, *row;
	bool out = i->dir == THRESH_OUT, fresh;
	char key[64];

	snprintf(key, sizeof(key), "%u %u %u", i->job, i->from, i->to);
	row = json_object_get(rows, key);
	fresh = !row;
	if (fresh) {
		row = json_pack("{s:I,s:I,s:I}", "job", (json_int_t)i->job, "from", (json_int_t)i->from,
				"to", (json_int_t)i->to);
		json_object_set_new(rows, key, row);
		for (const char *const *k = (const char *const[]){ "offload", "eager", "sender_overlap",
		     "receiver_overlap", "bandwidth", "latency_ns", NULL }; *k; k++)
			json_object_set_new(row, *k, json_null());
		json_object_set_new(row, "offload_pinned", json_false());
		json_object_set_new(row, "eager_pinned", json_false());
	}
	if (out) {
		json_object_set_new(row, "offload", i->offload == THRESH_NONE ? json_string("none") :
							   json_integer((json_int_t)i->offload));
		json_object_set_new(row, "offload_pinned", json_boolean(i->offload_pinned));
	} else {
		json_object_set_new(row, "eager_pinned", json_boolean(i->eager_pinned));
	}
	set_overlap(row, out ? "sender" : "receiver", i);
	/* the rest is the receiver's to say, if it is here */
	if (out && !fresh)
		return;
	ctl_put_u64(row, "eager", i->eager);
	ctl_put_u64(row, "messages", i->messages);
	ctl_put_u64(row, "bytes", i->bytes);
	ctl_put_u64(row, "mean_bytes", i->messages ? i->bytes / i->messages : 0);
	ctl_put_u64(row, "rendezvous", i->rendezvous);
	if (i->bandwidth > 0) {
		json_object_set_new(row, "bandwidth", json_real(i->bandwidth));
		json_object_set_new(row, "latency_ns", json_real(i->latency_ns));
	}
	ctl_put_u64(row, "switches", i->switches);
	ctl_put_u64(row, "refused", i->refused);
	json_object_set_new(row, "no_memory_now", json_boolean(i->marked));
}

json_t *ctl_do_thresh(struct ctl *c, json_t *req, const char **why)
{
	json_t *rows = json_object(), *list = json_array(), *job = json_object_get(req, "job"), *row;
	const char *key;

	thresh_each(add_thresh, rows);
	json_object_foreach(rows, key, row)
		if (!job || json_equal(job, json_object_get(row, "job")))
			json_array_append(list, row);
	json_decref(rows);
	return list;
}

/* Member @name of a request as a number that fits into @max; false: it is something else. */
static bool number(json_t *req, const char *name, uint64_t max, uint64_t *out)
{
	json_t *v = json_object_get(req, name);

	if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max)
		return false;
	*out = json_integer_value(v);
	return true;
}

struct find_job {
	uint32_t number;
	bool found;
};

static void match_job(struct win_job *job, void *arg)
{
	struct find_job *f = arg;

	f->found |= job->number == f->number;
}

struct pin {
	const char *what;		/* NULL: not asked for */
	uint64_t value;
};

static int do_pin(const uint64_t *who, int dir, const struct pin *p, bool dry, char *err, size_t size)
{
	bool out = dir == THRESH_OUT;
	uint64_t rank = who[out ? 1 : 2], peer = who[out ? 2 : 1];
	struct thresh_conf tc;
	int r;

	if (!p->what)
		return 0;
	thresh_conf_get(&tc);
	r = thresh_pin(who[0], rank, peer, dir, p->value, dry);
	if (r == -ENOENT)
		snprintf(err, size, "thresh: %s is set where rank %u of job %u runs, which is not on this node",
			 p->what, (unsigned int)rank, (unsigned int)who[0]);
	else if (r == -EINVAL)
		snprintf(err, size, "thresh: job %u has no rank %u", (unsigned int)who[0], (unsigned int)peer);
	else if (r == -ERANGE && out)
		snprintf(err, size, "thresh: offload %llu: less than p2p_offload_min, which is %llu",
			 (unsigned long long)p->value, (unsigned long long)tc.offload_min);
	else if (r == -ERANGE)
		snprintf(err, size, "thresh: %s %llu: more than p2p_eager_max, which is %llu",
			 p->what, (unsigned long long)p->value, (unsigned long long)tc.eager_max);
	else if (r)
		snprintf(err, size, "thresh: %s", strerror(-r));
	return r;
}

static json_t *thresh_change(struct ctl *c, json_t *req, const char **why, bool set)
{
	static const char *const names[] = { "job", "from", "to" };
	static char err[256];
	const char *name;
	json_t *offload = json_object_get(req, "offload"), *eager;
	struct pin out = { NULL, THRESH_UNPIN }, in = { NULL, THRESH_UNPIN };
	struct find_job f;
	uint64_t who[3];

	/* "early" is its name before schema 3 */
	name = json_object_get(req, "eager") ? "eager" : "early";
	eager = json_object_get(req, name);
	*why = err;
	for (unsigned int i = 0; i < 3; i++)
		if (!number(req, names[i], UINT32_MAX, &who[i])) {
			snprintf(err, sizeof(err), "thresh: \"%s\" is no number from 0 to %u", names[i],
				 UINT32_MAX);
			return NULL;
		}
	f = (struct find_job){ .number = who[0] };
	win_job_each(match_job, &f);
	if (!f.found) {
		snprintf(err, sizeof(err), "thresh: no job %u on this node", f.number);
		return NULL;
	}
	if (set && !offload && !eager) {
		snprintf(err, sizeof(err), "thresh: nothing to set: neither \"offload\" nor \"eager\"");
		return NULL;
	}
	if (offload)
		out.what = "offload";
	if (eager)
		in.what = name;
	if (set && offload && json_is_string(offload) && !strcmp(json_string_value(offload), "none")) {
		out.value = THRESH_NONE;
	} else if (set && offload && !number(req, "offload", 1ull << 62, &out.value)) {
		snprintf(err, sizeof(err), "thresh: \"offload\" is neither a number of bytes nor \"none\"");
		return NULL;
	}
	if (set && eager && !number(req, name, 1ull << 62, &in.value)) {
		snprintf(err, sizeof(err), "thresh: \"%s\" is no number of bytes", name);
		return NULL;
	}
	/* both or none */
	for (int dry = 1; dry >= 0; dry--)
		if (do_pin(who, THRESH_OUT, &out, dry, err, sizeof(err)) ||
		    do_pin(who, THRESH_IN, &in, dry, err, sizeof(err)))
			return NULL;
	*why = NULL;
	prog_log_limited(PROG_LOG_INFO, "progctl: thresholds of job %u from rank %u to rank %u %s",
			 (unsigned int)who[0], (unsigned int)who[1], (unsigned int)who[2],
			 set ? "pinned" : "not pinned any more");
	return ctl_do_thresh(c, req, why);
}

json_t *ctl_do_thresh_set(struct ctl *c, json_t *req, const char **why)
{
	return thresh_change(c, req, why, true);
}

json_t *ctl_do_thresh_unset(struct ctl *c, json_t *req, const char **why)
{
	return thresh_change(c, req, why, false);
}

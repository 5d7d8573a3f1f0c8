// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What replies consist of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/priv.h"
#include "stats/stats.h"

/* The first three since schema 2, the others since 3.  The old names go with the next release. */
static const struct {
	const char *name, *old;
} renamed[] = {
	{ "held_bytes", "parked_bytes" },
	{ "sender_overlap", "sender_away" },
	{ "receiver_overlap", "receiver_away" },
	{ "eager", "early" },
	{ "eager_bytes", "early_bytes" },
	{ "eager_pinned", "early_pinned" },
	{ "pre_matched", "predicted" },
	{ "not_pre_matched", "not_predicted" },
	{ "pre_matched_wrongly", "predicted_wrongly" },
	{ "by_id", "named" },
};

bool ctl_asks_old(const json_t *req)
{
	return json_integer_value(json_object_get(req, "schema")) < CTL_SCHEMA;
}

void ctl_old_names(json_t *j)
{
	const char *key;
	json_t *v;
	size_t i;

	json_array_foreach(j, i, v)
		ctl_old_names(v);
	json_object_foreach(j, key, v)
		ctl_old_names(v);
	for (i = 0; json_is_object(j) && i < sizeof(renamed) / sizeof(renamed[0]); i++) {
		v = json_object_get(j, renamed[i].name);
		if (v)
			json_object_set(j, renamed[i].old, v);
	}
}

json_t *ctl_hex(const uint8_t *p, size_t n)
{
	char s[65];

	for (size_t i = 0; i < n && i < 32; i++)
		snprintf(s + 2 * i, 3, "%02x", p[i]);
	return json_string(s);
}

json_t *ctl_text(const char *s)
{
	json_t *j = json_string(s);
	char *copy = j ? NULL : strdup(s);

	if (!copy)
		return j;
	for (char *p = copy; *p; p++)
		if (*p & 0x80)
			*p = '?';
	j = json_string(copy);
	free(copy);
	return j;
}

void ctl_put_u64(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

uint64_t ctl_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

json_t *ctl_copiers(const uint64_t *copies, const uint64_t *bytes)
{
	json_t *o = json_object();

	for (unsigned int i = 0; i < STATS_COPIERS; i++) {
		json_t *p = json_object();

		ctl_put_u64(p, "copies", copies[i]);
		ctl_put_u64(p, "bytes", bytes[i]);
		json_object_set_new(o, stats_copiers[i], p);
	}
	return o;
}

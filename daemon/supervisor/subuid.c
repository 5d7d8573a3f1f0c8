// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "subuid.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/log.h>

/* A number of @text, which ends with @end. */
static bool number(const char *text, char end, uint64_t *v, const char **next)
{
	char *p;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*v = strtoull(text, &p, 10);
	*next = p + 1;
	return !errno && *v <= UINT32_MAX && *p == end;
}

static bool range_of(char *line, struct subuid_range *r)
{
	const char *p = strchr(line, ':');
	uint64_t first, count;

	line[strcspn(line, "\n")] = '\0';
	if (!p || !number(p + 1, ':', &first, &p) || !number(p, '\0', &count, &p) || !count)
		return false;
	r->first = first;
	r->last = first + count - 1 > UINT32_MAX ? UINT32_MAX : first + count - 1;
	return true;
}

int subuids_load(struct subuids *s, const char *path)
{
	FILE *f = *path ? fopen(path, "re") : NULL;
	struct subuids new = { 0 };
	size_t size = 0;
	char *line = NULL;
	int err = 0;

	if (!f && *path && errno != ENOENT)
		return -errno;
	while (f && !err && getline(&line, &size, f) > 0) {
		struct subuid_range r, *more;

		if (!range_of(line, &r)) {
			if (line[0] && line[0] != '#')
				prog_log(PROG_LOG_WARN, "%s: not understood: %s", path, line);
			continue;
		}
		more = realloc(new.range, (new.n + 1) * sizeof(*more));
		if (more) {
			new.range = more;
			new.range[new.n++] = r;
		} else {
			err = -ENOMEM;
		}
	}
	if (f && !err && ferror(f))
		err = -EIO;
	free(line);
	if (f)
		fclose(f);
	if (err) {
		free(new.range);
		return err;
	}
	free(s->range);
	*s = new;
	return 0;
}

void subuids_free(struct subuids *s)
{
	free(s->range);
	*s = (struct subuids){ 0 };
}

bool subuids_have(const struct subuids *s, uid_t uid)
{
	for (unsigned int i = 0; i < s->n; i++)
		if (uid >= s->range[i].first && uid <= s->range[i].last)
			return true;
	return false;
}

uid_t subuids_unmapped(void)
{
	unsigned int overflow = 65534, inside = 0, outside, count = 0;
	FILE *f = fopen("/proc/sys/kernel/overflowuid", "re");

	if (f) {
		if (fscanf(f, "%u", &overflow) != 1)
			overflow = 65534;
		fclose(f);
	}
	f = fopen("/proc/self/uid_map", "re");
	if (f) {
		if (fscanf(f, "%u %u %u", &inside, &outside, &count) != 3)
			count = 0;
		fclose(f);
	}
	return count == ~0u ? (uid_t)-1 : overflow;
}

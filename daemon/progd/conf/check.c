// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "conf/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "conf/keys.h"
#include "listen/listen.h"

/* Not by hwloc_bitmap_list_sscanf(), for which "3-1" and "7x" are no processor at all, and no mistake. */
int conf_cpus_parse(const char *list, cpu_set_t *out)
{
	const char *p = list;
	char *end;
	long a, b;

	CPU_ZERO(out);
	while (*p == ' ' || *p == '\t')
		p++;
	if (!*p)
		return -ENOENT;
	for (;;) {
		if (*p < '0' || *p > '9')
			return -EINVAL;
		a = b = strtol(p, &end, 10);
		if (*end == '-') {
			p = end + 1;
			if (*p < '0' || *p > '9')
				return -EINVAL;
			b = strtol(p, &end, 10);
		}
		if (a > b)
			return -EINVAL;
		if (b >= CPU_SETSIZE)
			return -ERANGE;
		for (; a <= b; a++)
			CPU_SET(a, out);
		p = end;
		if (!*p)
			return 0;
		if (*p++ != ',')
			return -EINVAL;
	}
}

int conf_check(const struct conf *next, char *err, size_t size, void *arg)
{
	const char *cpus = conf_str(next, KEY_CPUS), *ports = conf_str(next, KEY_PORTS);
	uint16_t low, high;
	cpu_set_t set;
	int r = *cpus ? conf_cpus_parse(cpus, &set) : 0;

	if (*ports && !listen_ports(ports, &low, &high)) {
		snprintf(err, size, "%s: ports: \"%s\": not LOW-HIGH with 1 <= LOW <= HIGH <= 65535", conf_source(next, "ports"), ports);
		return -EINVAL;
	}
	if (r)
		snprintf(err, size, "%s: cpus: \"%.100s\": %s", conf_source(next, "cpus"), cpus,
			 r == -ERANGE ? "a number is too large" : "not a list such as 0-3,8");
	return r;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "conf/args.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <libprogbase/log.h>

static int set(struct conf *c, const char *program, const char *key, const char *value, const char *who)
{
	char err[CONF_ERR];

	if (!conf_set(c, key, value, who, false, err))
		return 0;
	fprintf(stderr, "%s: %s\n", program, err);
	return -EINVAL;
}

int conf_args_set(struct conf *c, const char *program, const char *arg)
{
	const char *eq = strchr(arg, '=');
	char key[64];

	if (!eq || eq == arg || (size_t)(eq - arg) >= sizeof(key)) {
		fprintf(stderr, "%s: --set %s: not of the form KEY=VALUE\n", program, arg);
		return -EINVAL;
	}
	snprintf(key, sizeof(key), "%.*s", (int)(eq - arg), arg);
	return set(c, program, key, eq + 1, "--set");
}

int conf_args_key(struct conf *c, const char *program, const char *key, const char *value)
{
	char who[64];

	snprintf(who, sizeof(who), "--%s", key);
	return set(c, program, key, value, who);
}

int conf_args_load(struct conf *c, const char *file, bool running)
{
	char dropin[PATH_MAX], err[CONF_ERR];
	int r;

	if (file)
		snprintf(dropin, sizeof(dropin), "%s.d", file);
	r = conf_load(c, file, file ? dropin : NULL, running, err);
	if (r < 0) {
		prog_log(PROG_LOG_ERROR, "%s", err);
		return r;
	}
	if (r > 0)
		prog_log(PROG_LOG_WARN, "%s", err);
	return 0;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The supervisor: all engines of the node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "progctl.h"

bool node_each(void (*fn)(void *ctx, unsigned int uid, int pid, const char *state), void *ctx)
{
	char *text = ask_node("list"), *copy = text ? strdup(text) : NULL, *line, *save = NULL;
	bool known = copy;

	for (line = copy ? strtok_r(copy, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		unsigned int uid;
		char state[32];
		int pid;

		if (sscanf(line, "engine %u %d %31s", &uid, &pid, state) == 3)
			fn(ctx, uid, pid, state);
	}
	free(copy);
	return known;
}

static void show_engine(void *ctx, unsigned int uid, int pid, const char *state)
{
	if (!opt.json)
		printf("uid %-8u pid %-8d %s\n", uid, pid, state);
	json_array_append_new(ctx, json_pack("{s:I,s:i,s:s}", "uid", (json_int_t)uid, "pid", pid, "state", state));
}

int cmd_engines(int argc, char **argv)
{
	json_t *all = json_array();
	bool known = node_each(show_engine, all);

	if (known && opt.json)
		print_json(all);
	json_decref(all);
	return known ? 0 : 1;
}

int cmd_drain(int argc, char **argv)
{
	return ask_node("drain") ? 0 : 1;
}

int cmd_reload(int argc, char **argv)
{
	return ask_node("reload") ? 0 : 1;
}

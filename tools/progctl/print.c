// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Results: as JSON, or for people. */
#include <stdio.h>
#include <string.h>

#include "progctl.h"

json_t *print_into;

void print_json(json_t *j)
{
	if (print_into) {
		json_array_append(print_into, j);
		return;
	}
	json_dumpf(j, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
	putchar('\n');
}

static void scalar(const json_t *v, char *buf, size_t size)
{
	switch (json_typeof(v)) {
	case JSON_STRING:
		snprintf(buf, size, "%s", json_string_value(v));
		break;
	case JSON_INTEGER:
		snprintf(buf, size, "%lld", (long long)json_integer_value(v));
		break;
	case JSON_REAL:
		snprintf(buf, size, "%.2f", json_real_value(v));
		break;
	case JSON_TRUE:
		snprintf(buf, size, "yes");
		break;
	case JSON_FALSE:
		snprintf(buf, size, "no");
		break;
	default:
		snprintf(buf, size, "-");
	}
}

void print_tree(json_t *j, int depth)
{
	const char *key;
	json_t *v;
	size_t i;
	char buf[4096];

	if (json_is_array(j)) {
		json_array_foreach(j, i, v) {
			if (json_is_object(v)) {
				printf("%*s-\n", 2 * depth, "");
				print_tree(v, depth + 1);
			} else {
				scalar(v, buf, sizeof(buf));
				printf("%*s%s\n", 2 * depth, "", buf);
			}
		}
		return;
	}
	json_object_foreach(j, key, v) {
		if (json_is_object(v) || json_is_array(v)) {
			if (!(json_is_object(v) ? json_object_size(v) : json_array_size(v)))
				continue;
			printf("%*s%s:\n", 2 * depth, "", key);
			print_tree(v, depth + 1);
		} else {
			scalar(v, buf, sizeof(buf));
			printf("%*s%-22s %s\n", 2 * depth, "", key, buf);
		}
	}
}

void print_table(json_t *rows, const char *const *cols)
{
	char buf[4096];
	size_t i, c;
	json_t *row;
	int width[32];

	for (c = 0; cols[c]; c++) {
		width[c] = strlen(cols[c]);
		json_array_foreach(rows, i, row) {
			json_t *v = json_object_get(row, cols[c]);

			scalar(v ? v : json_null(), buf, sizeof(buf));
			if ((int)strlen(buf) > width[c])
				width[c] = strlen(buf);
		}
	}
	for (c = 0; cols[c]; c++)
		printf("%-*s%s", width[c], cols[c], cols[c + 1] ? "  " : "\n");
	json_array_foreach(rows, i, row) {
		for (c = 0; cols[c]; c++) {
			json_t *v = json_object_get(row, cols[c]);

			scalar(v ? v : json_null(), buf, sizeof(buf));
			printf("%-*s%s", width[c], buf, cols[c + 1] ? "  " : "\n");
		}
	}
}

int print_result(json_t *res)
{
	if (!res)
		return 1;
	if (opt.json)
		print_json(res);
	else
		print_tree(res, 0);
	json_decref(res);
	return 0;
}

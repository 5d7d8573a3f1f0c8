// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Numbers of a configuration as text: units, choices, ranges. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "conf_priv.h"

struct unit {
	const char *name;
	int64_t mult;
};

static const struct unit sizes[] = {
	{ "T", 1ll << 40 }, { "G", 1ll << 30 }, { "M", 1ll << 20 }, { "K", 1ll << 10 }, { "", 1 },
};

static const struct unit durations[] = {
	{ "h", 3600000000000ll }, { "min", 60000000000ll }, { "s", 1000000000ll },
	{ "ms", 1000000ll }, { "us", 1000ll }, { "ns", 1 },
};

#define N_SIZES		(sizeof(sizes) / sizeof(sizes[0]))
#define N_DURATIONS	(sizeof(durations) / sizeof(durations[0]))

size_t conf_word(const char **p, const char *sep, const char **word)
{
	size_t len;

	*p += strspn(*p, sep);
	*word = *p;
	len = strcspn(*p, sep);
	*p += len;
	return len;
}

int conf_format_num(const struct conf_item *it, int64_t v, char *buf, size_t size)
{
	const struct unit *u = sizes;
	const char *p, *word;
	size_t n = 0, len;

	switch (it->type) {
	case CONF_BOOL:
		return snprintf(buf, size, "%s", v ? "yes" : "no");
	case CONF_ENUM:
		for (p = it->choices; (len = conf_word(&p, " ", &word)); n++) {
			if ((int64_t)n == v)
				return snprintf(buf, size, "%.*s", (int)len, word);
		}
		return snprintf(buf, size, "?");
	case CONF_SIZE:
		n = N_SIZES;
		break;
	case CONF_DURATION:
		u = durations;
		n = N_DURATIONS;
		break;
	default:
		return snprintf(buf, size, "%lld", (long long)v);
	}
	if (!v)
		return snprintf(buf, size, "0");
	for (; n > 1 && v % u->mult; n--)
		u++;
	return snprintf(buf, size, "%lld%s", (long long)(v / u->mult), u->name);
}

/* "an integer from 1 to 64": ends the sentence "expected ...". */
const char *conf_range_text(const struct conf_item *it, char *buf, size_t size)
{
	char lo[32], hi[32];
	const char *what = "";

	conf_format_num(it, it->min, lo, sizeof(lo));
	conf_format_num(it, it->max, hi, sizeof(hi));
	switch (it->type) {
	case CONF_BOOL:
		snprintf(buf, size, "yes or no");
		return buf;
	case CONF_ENUM:
		snprintf(buf, size, "one of: %s", it->choices);
		return buf;
	case CONF_INT:
		what = "an integer";
		break;
	case CONF_SIZE:
		what = "a size (suffix K, M, G, T)";
		break;
	case CONF_DURATION:
		what = "a duration (ns, us, ms, s, min, h)";
		break;
	case CONF_STRING:
		snprintf(buf, size, "a string of %lld to %lld bytes", (long long)it->min,
			 (long long)it->max);
		return buf;
	case CONF_LIST:
		snprintf(buf, size, "a list of %lld to %lld words", (long long)it->min,
			 (long long)it->max);
		return buf;
	}
	snprintf(buf, size, "%s from %s to %s", what, lo, hi);
	return buf;
}

static int parse_unit(const char *suffix, const struct unit *u, size_t n, int64_t *mult)
{
	for (; n; n--, u++) {
		if (!strcmp(suffix, u->name)) {
			*mult = u->mult;
			return 0;
		}
	}
	return -EINVAL;
}

/* A number with a unit. -EINVAL: not one, -ERANGE: too large for 64 bits. */
int conf_parse_num(const struct conf_item *it, const char *text, int64_t *num)
{
	char suffix[8] = "", *end;
	int64_t v, mult = 1;
	size_t len;
	int ret;

	if (!isdigit((unsigned char)text[0]) && !(text[0] == '-' && isdigit((unsigned char)text[1])))
		return -EINVAL;
	errno = 0;
	v = strtoll(text, &end, 10);
	ret = errno;
	end += strspn(end, " \t");
	len = strlen(end);
	if (len >= sizeof(suffix))
		return -EINVAL;
	memcpy(suffix, end, len + 1);
	if (it->type == CONF_SIZE) {
		suffix[0] = toupper((unsigned char)suffix[0]);
		if (!strcmp(suffix, "B"))
			suffix[0] = '\0';
		else if (suffix[0] && (!strcmp(suffix + 1, "B") || !strcmp(suffix + 1, "iB")))
			suffix[1] = '\0';
		if (parse_unit(suffix, sizes, N_SIZES, &mult))
			return -EINVAL;
	} else if (it->type == CONF_DURATION) {
		if (!(v == 0 && !suffix[0]) && parse_unit(suffix, durations, N_DURATIONS, &mult))
			return -EINVAL;
	} else if (suffix[0]) {
		return -EINVAL;
	}
	if (ret == ERANGE || __builtin_mul_overflow(v, mult, num))
		return -ERANGE;
	return 0;
}

int conf_parse_bool(const char *text, int64_t *num)
{
	static const char *const words[][2] = {
		{ "no", "yes" }, { "false", "true" }, { "off", "on" }, { "0", "1" },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		for (int v = 0; v < 2; v++) {
			if (!strcasecmp(text, words[i][v])) {
				*num = v;
				return 0;
			}
		}
	}
	return -EINVAL;
}

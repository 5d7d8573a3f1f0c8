// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "conf.h"

#define LINE_LIMIT	4096

/*
 * Strings are kept until conf_free, so that readers need no lock. Equal ones are kept once:
 * switching between settings does not grow the list.
 */
struct text {
	struct text *next;
	char s[];
};

struct value {
	int64_t num;		/* atomic */
	const char *str;	/* atomic; strings and lists */
	const char *source;
};

struct conf {
	const struct conf_item *items;
	size_t n;
	struct value *now;	/* what readers see */
	struct value *base;	/* what the files, or the table, say */
	bool *forced;		/* set with conf_set: `now` is not `base` */
	struct text *texts;
	conf_check_fn *check;
	void *check_arg;
};

__attribute__((format(printf, 3, 4)))
static int fail(char *err, int error, const char *fmt, ...)
{
	va_list ap;

	if (err) {
		va_start(ap, fmt);
		vsnprintf(err, CONF_ERR, fmt, ap);
		va_end(ap);
	}
	return error;
}

static const char *keep(struct conf *c, const char *s, size_t len)
{
	struct text *t;

	for (t = c->texts; t; t = t->next) {
		if (!strncmp(t->s, s, len) && !t->s[len])
			return t->s;
	}
	t = malloc(sizeof(*t) + len + 1);
	if (!t)
		return NULL;
	memcpy(t->s, s, len);
	t->s[len] = '\0';
	t->next = c->texts;
	c->texts = t;
	return t->s;
}

/* Free what was kept after @mark: nobody has seen it. */
static void forget(struct conf *c, struct text *mark)
{
	while (c->texts != mark) {
		struct text *t = c->texts;

		c->texts = t->next;
		free(t);
	}
}

/* --- values as text ------------------------------------------------------------------ */

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

/* The word at *@p between any of @sep; its length, and *@p behind it. 0: no more. */
static size_t next_word(const char **p, const char *sep, const char **word)
{
	size_t len;

	*p += strspn(*p, sep);
	*word = *p;
	len = strcspn(*p, sep);
	*p += len;
	return len;
}

static int format_num(const struct conf_item *it, int64_t v, char *buf, size_t size)
{
	const struct unit *u = sizes;
	const char *p, *word;
	size_t n = 0, len;

	switch (it->type) {
	case CONF_BOOL:
		return snprintf(buf, size, "%s", v ? "yes" : "no");
	case CONF_ENUM:
		for (p = it->choices; (len = next_word(&p, " ", &word)); n++) {
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
static const char *range_text(const struct conf_item *it, char *buf, size_t size)
{
	char lo[32], hi[32];
	const char *what = "";

	format_num(it, it->min, lo, sizeof(lo));
	format_num(it, it->max, hi, sizeof(hi));
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
static int parse_num(const struct conf_item *it, const char *text, int64_t *num)
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

static int parse_bool(const char *text, int64_t *num)
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

/* Text to value; @v is set on success only. -EINVAL, -ERANGE, -ENOMEM. */
static int parse_value(struct conf *c, const struct conf_item *it, const char *text,
		       struct value *v)
{
	const char *p = text, *word, *str = NULL;
	int64_t num = 0;
	size_t len;
	int ret = 0;

	switch (it->type) {
	case CONF_BOOL:
		ret = parse_bool(text, &num);
		break;
	case CONF_INT:
	case CONF_SIZE:
	case CONF_DURATION:
		ret = parse_num(it, text, &num);
		if (!ret && (num < it->min || num > it->max))
			ret = -ERANGE;
		break;
	case CONF_ENUM:
		ret = -EINVAL;
		for (p = it->choices; (len = next_word(&p, " ", &word)); num++) {
			if (strlen(text) == len && !strncmp(text, word, len)) {
				ret = 0;
				break;
			}
		}
		break;
	case CONF_STRING:
		num = strlen(text);
		if (num < it->min || num > it->max)
			return -ERANGE;
		str = keep(c, text, num);
		if (!str)
			return -ENOMEM;
		break;
	case CONF_LIST: {
		char *list = malloc(strlen(text) + 1), *q = list;

		if (!list)
			return -ENOMEM;
		for (; (len = next_word(&p, ", \t", &word)); num++) {
			if (num)
				*q++ = ',';
			memcpy(q, word, len);
			q += len;
		}
		if (num < it->min || num > it->max)
			ret = -ERANGE;
		else if (!(str = keep(c, list, q - list)))
			ret = -ENOMEM;
		free(list);
		break;
	}
	default:
		ret = -EINVAL;
	}
	if (ret)
		return ret;
	v->num = num;
	v->str = str;
	return 0;
}

/* parse_value with the error told. @where: "file:line" or who. */
static int set_value(struct conf *c, size_t i, const char *text, const char *where,
		     struct value *v, char *err)
{
	const struct conf_item *it = &c->items[i];
	struct value next = { 0 };
	char range[256];
	int ret;

	ret = parse_value(c, it, text, &next);
	if (!ret) {
		next.source = keep(c, where, strlen(where));
		if (!next.source)
			ret = -ENOMEM;
	}
	if (ret == -ENOMEM)
		return fail(err, ret, "%.200s: %s: out of memory", where, it->name);
	if (ret)
		return fail(err, ret, "%.150s: %s: \"%.64s\" is %s: expected %s", where, it->name,
			    text, ret == -ERANGE ? "out of range" : "not valid",
			    range_text(it, range, sizeof(range)));
	*v = next;
	return 0;
}

/* --- table --------------------------------------------------------------------------- */

static bool name_ok(const char *name)
{
	if (!name || !*name)
		return false;
	for (; *name; name++) {
		if (!isalnum((unsigned char)*name) && !strchr("_-.", *name))
			return false;
	}
	return true;
}

int conf_new(const struct conf_item *items, size_t n, struct conf **out, char *err)
{
	struct conf *c = calloc(1, sizeof(*c));
	int ret = -ENOMEM;

	if (!c)
		return fail(err, -ENOMEM, "configuration: out of memory");
	c->items = items;
	c->n = n;
	c->now = calloc(n + 1, sizeof(*c->now));
	c->base = calloc(n + 1, sizeof(*c->base));
	c->forced = calloc(n + 1, sizeof(*c->forced));
	if (!c->now || !c->base || !c->forced) {
		fail(err, ret, "configuration: out of memory");
		goto fail;
	}
	for (size_t i = 0; i < n; i++) {
		ret = -EINVAL;
		if (!name_ok(items[i].name) || !items[i].def || !items[i].doc ||
		    (items[i].type == CONF_ENUM && !items[i].choices)) {
			fail(err, ret, "configuration table: item %zu (%s) is not complete", i,
			     items[i].name ? items[i].name : "no name");
			goto fail;
		}
		if ((size_t)conf_find(c, items[i].name) != i) {
			fail(err, ret, "configuration table: %s is there twice", items[i].name);
			goto fail;
		}
		ret = set_value(c, i, items[i].def, "default", &c->base[i], err);
		if (ret)
			goto fail;
		c->now[i] = c->base[i];
	}
	*out = c;
	return 0;

fail:
	conf_free(c);
	return ret;
}

void conf_free(struct conf *c)
{
	if (!c)
		return;
	forget(c, NULL);
	free(c->now);
	free(c->base);
	free(c->forced);
	free(c);
}

void conf_set_check(struct conf *c, conf_check_fn *check, void *arg)
{
	c->check = check;
	c->check_arg = arg;
}

int conf_find(const struct conf *c, const char *name)
{
	for (size_t i = 0; i < c->n; i++) {
		if (c->items[i].name && !strcmp(c->items[i].name, name))
			return i;
	}
	return -ENOENT;
}

size_t conf_count(const struct conf *c)
{
	return c->n;
}

const struct conf_item *conf_item(const struct conf *c, size_t i)
{
	return i < c->n ? &c->items[i] : NULL;
}

/* --- changing ------------------------------------------------------------------------ */

static bool value_equal(const struct value *a, const struct value *b)
{
	/* kept strings are equal when their addresses are */
	return a->num == b->num && a->str == b->str;
}

/* Let the rules between keys look at @now. */
static int check_values(const struct conf *c, struct value *now, char *err)
{
	struct conf next = *c;
	char text[CONF_ERR] = "";
	int ret;

	if (!c->check)
		return 0;
	next.now = now;
	ret = c->check(&next, text, sizeof(text), c->check_arg);
	if (ret)
		fail(err, ret, "%s", text);
	return ret;
}

/* Show readers a new value. */
static void publish(struct value *to, const struct value *from)
{
	__atomic_store_n(&to->num, from->num, __ATOMIC_RELAXED);
	__atomic_store_n(&to->str, from->str, __ATOMIC_RELEASE);
	__atomic_store_n(&to->source, from->source, __ATOMIC_RELEASE);
}

/* Cut a comment off and white space off both ends. */
static char *trim(char *s)
{
	bool quoted = false;
	char *p;

	for (p = s; *p; p++) {
		if (quoted && *p == '\\' && p[1])
			p++;
		else if (*p == '"')
			quoted = !quoted;
		else if (*p == '#' && !quoted && (p == s || isspace((unsigned char)p[-1])))
			break;
	}
	while (p > s && isspace((unsigned char)p[-1]))
		p--;
	*p = '\0';
	return s + strspn(s, " \t\r\n\f\v");
}

/* Take the quotes off a value. -EINVAL if they do not match. */
static int unquote(char *s)
{
	char *to = s, *p = s + 1;

	if (*s != '"')
		return strchr(s, '"') ? -EINVAL : 0;
	for (; *p && *p != '"'; p++) {
		if (*p == '\\' && (p[1] == '"' || p[1] == '\\'))
			p++;
		*to++ = *p;
	}
	if (*p != '"' || p[1])
		return -EINVAL;
	*to = '\0';
	return 0;
}

static int load_line(struct conf *c, char *line, const char *where, struct value *next,
		     unsigned int *seen, unsigned int lineno, char *err)
{
	char *key = trim(line), *value, *end;
	int i;

	if (!*key)
		return 0;
	value = strchr(key, '=');
	if (!value)
		return fail(err, -EINVAL, "%.200s: \"%.64s\": expected key = value", where, key);
	for (end = value; end > key && isspace((unsigned char)end[-1]); end--)
		;
	*value++ = '\0';
	*end = '\0';
	value += strspn(value, " \t");
	i = conf_find(c, key);
	if (i < 0)
		return fail(err, -ENOENT, "%.200s: %.64s: no such key", where, key);
	if (unquote(value))
		return fail(err, -EINVAL, "%.200s: %s: quotes do not match", where, key);
	if (seen[i])
		return fail(err, -EINVAL, "%.200s: %s: set already in line %u", where, key, seen[i]);
	seen[i] = lineno;
	return set_value(c, i, value, where, &next[i], err);
}

static int load_file(struct conf *c, const char *path, struct value *next, char *err)
{
	unsigned int *seen, lineno = 0;
	char line[LINE_LIMIT + 2], where[PATH_MAX + 16];
	FILE *f;
	int ret = 0;

	f = fopen(path, "re");
	if (!f) {
		ret = -errno;
		return fail(err, ret, "%.300s: %s", path, strerror(-ret));
	}
	seen = calloc(c->n + 1, sizeof(*seen));
	if (!seen)
		ret = fail(err, -ENOMEM, "%.300s: out of memory", path);
	while (!ret) {
		size_t len;
		int ch;

		/* a byte at a time: fgets hides zero bytes */
		for (len = 0; (ch = getc(f)) != EOF && ch != '\n' && ch && len <= LINE_LIMIT; )
			line[len++] = ch;
		if (ch == EOF && !len)
			break;
		line[len] = '\0';
		snprintf(where, sizeof(where), "%s:%u", path, ++lineno);
		if (ch == 0)
			ret = fail(err, -EINVAL, "%.300s: a zero byte", where);
		else if (len > LINE_LIMIT)
			ret = fail(err, -EINVAL, "%.300s: longer than %d bytes", where, LINE_LIMIT);
		else
			ret = load_line(c, line, where, next, seen, lineno, err);
	}
	if (!ret && ferror(f)) {
		ret = errno ? -errno : -EIO;
		fail(err, ret, "%.300s: %s", path, strerror(-ret));
	}
	free(seen);
	fclose(f);
	return ret;
}

static int is_dropin(const struct dirent *d)
{
	size_t len = strlen(d->d_name);

	return d->d_name[0] != '.' && len > 5 && !strcmp(d->d_name + len - 5, ".conf");
}

/* Byte order: the same on every node, whatever its locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int load_dir(struct conf *c, const char *dir, struct value *next, char *err)
{
	struct dirent **names;
	char path[PATH_MAX];
	int n, ret = 0;

	n = scandir(dir, &names, is_dropin, by_name);
	if (n < 0) {
		ret = -errno;
		if (ret == -ENOENT)
			return 0;
		return fail(err, ret, "%.300s: %s", dir, strerror(-ret));
	}
	for (int i = 0; i < n; i++) {
		if (!ret && snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name) >=
			    (int)sizeof(path))
			ret = fail(err, -ENAMETOOLONG, "%.300s: name too long", dir);
		if (!ret)
			ret = load_file(c, path, next, err);
		free(names[i]);
	}
	free(names);
	return ret;
}

int conf_load(struct conf *c, const char *file, const char *dir, bool running, char *err)
{
	struct value *base = calloc(c->n + 1, sizeof(*base));
	struct value *now = calloc(c->n + 1, sizeof(*now));
	struct text *mark = c->texts;
	int ret = 0, refused = 0;

	if (!base || !now)
		ret = fail(err, -ENOMEM, "configuration: out of memory");
	for (size_t i = 0; i < c->n && !ret; i++)
		ret = set_value(c, i, c->items[i].def, "default", &base[i], err);
	if (!ret && file)
		ret = load_file(c, file, base, err);
	if (!ret && dir)
		ret = load_dir(c, dir, base, err);
	for (size_t i = 0; i < c->n && !ret; i++) {
		bool fixed = running && c->items[i].when == CONF_START;

		now[i] = c->forced[i] || fixed ? c->now[i] : base[i];
		if (fixed && !c->forced[i] && !value_equal(&base[i], &c->now[i]) && !refused++)
			fail(err, 0, "%.300s: %s: a change needs a restart", base[i].source,
			     c->items[i].name);
	}
	if (!ret)
		ret = check_values(c, now, err);
	if (ret) {
		forget(c, mark);
	} else {
		for (size_t i = 0; i < c->n; i++) {
			/* a fixed item that is unset later must not jump either */
			if (!(running && c->items[i].when == CONF_START))
				c->base[i] = base[i];
			publish(&c->now[i], &now[i]);
		}
		ret = refused;
	}
	free(base);
	free(now);
	return ret;
}

/* Replace one value after the rules between keys agreed. */
static int change(struct conf *c, size_t i, const struct value *v, char *err)
{
	struct value *now = malloc((c->n + 1) * sizeof(*now));
	int ret;

	if (!now)
		return fail(err, -ENOMEM, "%s: out of memory", c->items[i].name);
	memcpy(now, c->now, c->n * sizeof(*now));
	now[i] = *v;
	ret = check_values(c, now, err);
	if (!ret)
		publish(&c->now[i], v);
	free(now);
	return ret;
}

static int find_changeable(struct conf *c, const char *name, const char *who, bool running,
			   char *err)
{
	int i = conf_find(c, name);

	if (i < 0)
		return fail(err, -ENOENT, "%.200s: %.64s: no such key", who, name);
	if (running && c->items[i].when == CONF_START)
		return fail(err, -EROFS, "%.200s: %s: a change needs a restart", who, name);
	return i;
}

int conf_set(struct conf *c, const char *name, const char *text, const char *who, bool running,
	     char *err)
{
	struct text *mark = c->texts;
	struct value v;
	int i, ret;

	i = find_changeable(c, name, who, running, err);
	if (i < 0)
		return i;
	ret = set_value(c, i, text, who, &v, err);
	if (!ret)
		ret = change(c, i, &v, err);
	if (ret)
		forget(c, mark);
	else
		c->forced[i] = true;
	return ret;
}

int conf_unset(struct conf *c, const char *name, bool running, char *err)
{
	int i, ret;

	i = find_changeable(c, name, "unset", running, err);
	if (i < 0)
		return i;
	ret = change(c, i, &c->base[i], err);
	if (!ret)
		c->forced[i] = false;
	return ret;
}

/* --- reading ------------------------------------------------------------------------- */

bool conf_bool(const struct conf *c, size_t i)
{
	return conf_int(c, i) != 0;
}

int64_t conf_int(const struct conf *c, size_t i)
{
	return __atomic_load_n(&c->now[i].num, __ATOMIC_RELAXED);
}

const char *conf_str(const struct conf *c, size_t i)
{
	const char *s = __atomic_load_n(&c->now[i].str, __ATOMIC_ACQUIRE);

	return s ? s : "";
}

bool conf_list_word(const struct conf *c, size_t i, size_t k, char *buf, size_t size)
{
	const char *p = conf_str(c, i), *word;
	size_t len;

	while ((len = next_word(&p, ",", &word))) {
		if (k--)
			continue;
		if (len >= size)
			return false;
		memcpy(buf, word, len);
		buf[len] = '\0';
		return true;
	}
	return false;
}

int conf_get(const struct conf *c, const char *name, char *buf, size_t size)
{
	int i = conf_find(c, name);

	if (i < 0)
		return i;
	if (c->items[i].type == CONF_STRING || c->items[i].type == CONF_LIST)
		return snprintf(buf, size, "%s", conf_str(c, i));
	return format_num(&c->items[i], conf_int(c, i), buf, size);
}

const char *conf_source(const struct conf *c, const char *name)
{
	int i = conf_find(c, name);

	return i < 0 ? NULL : __atomic_load_n(&c->now[i].source, __ATOMIC_ACQUIRE);
}

/* --- texts made from the table ------------------------------------------------------- */

/* @text in lines of at most 79 columns, each after @indent. */
static void print_wrapped(FILE *f, const char *indent, const char *text)
{
	const char *p = text, *word;
	size_t len, col = 0;

	while ((len = next_word(&p, " \n", &word))) {
		if (col && col + 1 + len > 79) {
			fputc('\n', f);
			col = 0;
		}
		col += col ? fprintf(f, " %.*s", (int)len, word) :
			     fprintf(f, "%s%.*s", indent, (int)len, word);
	}
	if (col)
		fputc('\n', f);
}

static const char *when_text(const struct conf_item *it)
{
	return it->when == CONF_START ? "read at start" : "can change while running";
}

void conf_print_help(const struct conf *c, FILE *f)
{
	char range[256];

	for (size_t i = 0; i < c->n; i++) {
		const struct conf_item *it = &c->items[i];

		fprintf(f, "  %s = %s\n", it->name, *it->def ? it->def : "\"\"");
		fprintf(f, "        %s; %s\n", range_text(it, range, sizeof(range)), when_text(it));
		print_wrapped(f, "        ", it->doc);
	}
}

void conf_print_file(const struct conf *c, FILE *f)
{
	char range[256];

	for (size_t i = 0; i < c->n; i++) {
		const struct conf_item *it = &c->items[i];

		if (i)
			fputc('\n', f);
		print_wrapped(f, "# ", it->doc);
		fprintf(f, "# %s; %s\n", range_text(it, range, sizeof(range)), when_text(it));
		fprintf(f, "#%s = ", it->name);
		if (!*it->def || strpbrk(it->def, "#\"\\") || isspace((unsigned char)it->def[0])) {
			fputc('"', f);
			for (const char *p = it->def; *p; p++) {
				if (*p == '"' || *p == '\\')
					fputc('\\', f);
				fputc(*p, f);
			}
			fputs("\"\n", f);
		} else {
			fprintf(f, "%s\n", it->def);
		}
	}
}

/* troff reads a leading '.' or '\'' and every '\' and '-' its own way. */
static void print_troff(FILE *f, const char *s)
{
	if (*s == '.' || *s == '\'')
		fputs("\\&", f);
	for (; *s; s++) {
		if (*s == '\\')
			fputs("\\e", f);
		else if (*s == '-')
			fputs("\\-", f);
		else
			fputc(*s, f);
	}
}

void conf_print_man(const struct conf *c, FILE *f)
{
	char range[256];

	for (size_t i = 0; i < c->n; i++) {
		const struct conf_item *it = &c->items[i];

		fputs(".TP\n\\fB", f);
		print_troff(f, it->name);
		fputs("\\fR = ", f);
		print_troff(f, *it->def ? it->def : "\"\"");
		fputc('\n', f);
		print_troff(f, it->doc);
		fputs("\nValue: ", f);
		print_troff(f, range_text(it, range, sizeof(range)));
		fprintf(f, "; %s.\n", when_text(it));
	}
}

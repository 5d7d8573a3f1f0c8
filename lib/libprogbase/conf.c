// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "conf_priv.h"

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

/* --- values -------------------------------------------------------------------------- */

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
		ret = conf_parse_bool(text, &num);
		break;
	case CONF_INT:
	case CONF_SIZE:
	case CONF_DURATION:
		ret = conf_parse_num(it, text, &num);
		if (!ret && (num < it->min || num > it->max))
			ret = -ERANGE;
		break;
	case CONF_ENUM:
		ret = -EINVAL;
		for (p = it->choices; (len = conf_word(&p, " ", &word)); num++) {
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
		for (; (len = conf_word(&p, ", \t", &word)); num++) {
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
			    conf_range_text(it, range, sizeof(range)));
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
		if ((size_t)conf_find(c, items[i].name) != i ||
		    (items[i].old && (size_t)conf_find(c, items[i].old) != i)) {
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
		const struct conf_item *it = &c->items[i];

		if ((it->name && !strcmp(it->name, name)) || (it->old && !strcmp(it->old, name)))
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
	for (size_t i = 0; i < c->n && !ret; i++)
		now[i] = c->forced[i] ? c->now[i] : base[i];
	/* what a restart would begin with is refused now, and not then */
	if (!ret)
		ret = check_values(c, now, err);
	for (size_t i = 0; i < c->n && !ret && running; i++) {
		if (c->items[i].when != CONF_START)
			continue;
		if (!value_equal(&now[i], &c->now[i]) && !refused++)
			fail(err, 0, "%.300s: %s: a change needs a restart", base[i].source,
			     c->items[i].name);
		now[i] = c->now[i];
	}
	if (!ret && refused)
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

	while ((len = conf_word(&p, ",", &word))) {
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
	return conf_format_num(&c->items[i], conf_int(c, i), buf, size);
}

const char *conf_source(const struct conf *c, const char *name)
{
	int i = conf_find(c, name);

	return i < 0 ? NULL : __atomic_load_n(&c->now[i].source, __ATOMIC_ACQUIRE);
}

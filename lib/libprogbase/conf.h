/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * conf: the configuration table. One array of items is the only place where a key is named;
 * the file parser, get and set by name, the help text, the commented default file and the
 * man page come from it.
 *
 * File: lines of `key = value`, `#` starts a comment at the start of a line or after white
 * space, a value may stand in double quotes (\" and \\ inside). A key may occur once per
 * file; files read later win. Drop-in directory: the files whose names end in ".conf", in
 * the order of their names; a missing directory is empty.
 *
 * Concurrency: one thread at a time changes a struct conf (load, set); any number may read.
 * Numbers are read atomically, and a string returned stays valid until conf_free. A reader
 * may see one key of a reload before another: keys that belong together are one list.
 */
#ifndef PROGBASE_CONF_H
#define PROGBASE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CONF_BOOL	1	/* yes/no, true/false, on/off, 1/0 */
#define CONF_INT	2
#define CONF_SIZE	3	/* bytes; suffix K, M, G, T (1024), optional "iB" or "B" */
#define CONF_DURATION	4	/* ns; suffix ns, us, ms, s, min, h (needed unless 0) */
#define CONF_STRING	5	/* min and max: of the length in bytes */
#define CONF_LIST	6	/* words between commas or spaces; min and max: how many */
#define CONF_ENUM	7	/* one of choices; its number is the position */

#define CONF_START	0	/* read at start; a change needs a restart */
#define CONF_RUNTIME	1	/* can change at any time */
#define CONF_NODE	2	/* likewise, but it is for who runs the node to say: this is for who asks conf_set() to heed */

struct conf_item {
	const char *name;	/* letters, digits, '_', '-', '.' */
	int type;		/* CONF_BOOL... */
	int64_t min, max;	/* both ends allowed */
	const char *def;	/* default as text, valid for the item */
	const char *choices;	/* CONF_ENUM: words between spaces */
	const char *doc;	/* one or more sentences */
	int when;		/* CONF_START to CONF_NODE */
	const char *old;	/* its name until the next release, which works as well; NULL: none */
};

struct conf;

/*
 * Errors: functions that can fail put one line in @err (CONF_ERR bytes are always enough)
 * that names file:line (or who set it), key, reason and the range. @err may be NULL.
 */
#define CONF_ERR	512

/*
 * Check looked at after all values are parsed and before any is applied: for rules between
 * keys. @next holds the values to be; returns 0 or a negative errno with @err filled.
 */
typedef int conf_check_fn(const struct conf *next, char *err, size_t err_size, void *arg);

/*
 * A configuration with all defaults. @items is kept and not copied. -EINVAL if the table
 * itself is wrong (duplicate key or old name, bad default), -ENOMEM.
 */
int conf_new(const struct conf_item *items, size_t n, struct conf **out, char *err);
void conf_free(struct conf *c);
void conf_set_check(struct conf *c, conf_check_fn *check, void *arg);

/*
 * Read @file, then the drop-ins in @dir (either may be NULL; a missing @file is
 * -ENOENT). Values not named get their default, unless set with conf_set since the start
 * (such a setting lasts until conf_unset). All or nothing: on an error nothing has changed.
 * @running: CONF_START items keep their value; if the files want another one, the number of
 * such keys is returned (> 0) and @err names the first. 0 otherwise, or a negative errno.
 * The check is asked of what the files say as well, which is what the next start would have.
 */
int conf_load(struct conf *c, const char *file, const char *dir, bool running, char *err);

/*
 * Set one key from text. @who is named in errors ("progctl", "--option", ...). @running:
 * -EROFS for CONF_START items. -ENOENT unknown key, -EINVAL, -ERANGE.
 */
int conf_set(struct conf *c, const char *name, const char *text, const char *who, bool running,
	     char *err);
/* Forget conf_set: back to what the files (or the table) say. -ENOENT, -EROFS. */
int conf_unset(struct conf *c, const char *name, bool running, char *err);

/* Value as text that conf_set would take. Returns the length (as snprintf) or -ENOENT. */
int conf_get(const struct conf *c, const char *name, char *buf, size_t size);
/* Where the value came from: "default", "file:line" or who set it. NULL: no such key. */
const char *conf_source(const struct conf *c, const char *name);

/* Index of a key, by its name or its old one, in the table, or -ENOENT. */
int conf_find(const struct conf *c, const char *name);
size_t conf_count(const struct conf *c);
const struct conf_item *conf_item(const struct conf *c, size_t i);

/* Values by index into the table; the caller knows the type. Cheap, any thread. */
bool conf_bool(const struct conf *c, size_t i);
int64_t conf_int(const struct conf *c, size_t i);	/* also size, duration, enum */
const char *conf_str(const struct conf *c, size_t i);	/* string, and list in normal form */
/* Word @k of a list into @buf; false if there is none or it does not fit. */
bool conf_list_word(const struct conf *c, size_t i, size_t k, char *buf, size_t size);

/* All keys with type, range, default and text, for --help. */
void conf_print_help(const struct conf *c, FILE *f);
/* A configuration file in which every key is commented out at its default. */
void conf_print_file(const struct conf *c, FILE *f);
/* The options section of a manual page (man(7) macros). */
void conf_print_man(const struct conf *c, FILE *f);

#endif

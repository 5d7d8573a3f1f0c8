// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Texts made from the table: --help, a file with all defaults, a man page. */
#include <ctype.h>
#include <string.h>

#include "conf_priv.h"

/* @text in lines of at most 79 columns, each after @indent. */
static void print_wrapped(FILE *f, const char *indent, const char *text)
{
	const char *p = text, *word;
	size_t len, col = 0;

	while ((len = conf_word(&p, " \n", &word))) {
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

	for (size_t i = 0; i < conf_count(c); i++) {
		const struct conf_item *it = conf_item(c, i);

		fprintf(f, "  %s = %s\n", it->name, *it->def ? it->def : "\"\"");
		fprintf(f, "        %s; %s\n", conf_range_text(it, range, sizeof(range)), when_text(it));
		print_wrapped(f, "        ", it->doc);
	}
}

void conf_print_file(const struct conf *c, FILE *f)
{
	char range[256];

	for (size_t i = 0; i < conf_count(c); i++) {
		const struct conf_item *it = conf_item(c, i);

		if (i)
			fputc('\n', f);
		print_wrapped(f, "# ", it->doc);
		fprintf(f, "# %s; %s\n", conf_range_text(it, range, sizeof(range)), when_text(it));
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

	for (size_t i = 0; i < conf_count(c); i++) {
		const struct conf_item *it = conf_item(c, i);

		fputs(".TP\n\\fB", f);
		print_troff(f, it->name);
		fputs("\\fR = ", f);
		print_troff(f, *it->def ? it->def : "\"\"");
		fputc('\n', f);
		print_troff(f, it->doc);
		fputs("\nValue: ", f);
		print_troff(f, conf_range_text(it, range, sizeof(range)));
		fprintf(f, "; %s.\n", when_text(it));
	}
}

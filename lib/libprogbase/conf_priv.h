/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* conf_priv.h - what the files of the configuration share: numbers as text. */
#ifndef LIBPROGBASE_CONF_PRIV_H
#define LIBPROGBASE_CONF_PRIV_H

#include "conf.h"

/* The word at *@p between any of @sep; its length, and *@p behind it. 0: no more. */
size_t conf_word(const char **p, const char *sep, const char **word);
int conf_format_num(const struct conf_item *it, int64_t v, char *buf, size_t size);
/* What @it may be, in words; @buf. */
const char *conf_range_text(const struct conf_item *it, char *buf, size_t size);
/* 0, -EINVAL or -ERANGE. */
int conf_parse_num(const struct conf_item *it, const char *text, int64_t *num);
int conf_parse_bool(const char *text, int64_t *num);

#endif

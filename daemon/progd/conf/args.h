/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* args: the configuration as the command lines of progd and progd-supervisor give it. */
#ifndef PROGD_CONF_ARGS_H
#define PROGD_CONF_ARGS_H

#include <stdbool.h>

#include <libprogbase/conf.h>

/* --set KEY=VALUE.  0, or -EINVAL after a line of @program's on standard error. */
int conf_args_set(struct conf *c, const char *program, const char *arg);
/* An option of its own for a key: --@key VALUE.  Likewise. */
int conf_args_key(struct conf *c, const char *program, const char *key, const char *value);
/*
 * @file and @file.d; NULL: neither.  0, or as conf_load(): what is wrong, or needs a restart (@running), is logged.
 */
int conf_args_load(struct conf *c, const char *file, bool running);

#endif

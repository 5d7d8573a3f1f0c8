/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* check: what the table of keys cannot say of their values. */
#ifndef PROGD_CONF_CHECK_H
#define PROGD_CONF_CHECK_H

#include <sched.h>

#include <libprogbase/conf.h>

/* For conf_set_check(): cpus and ports are what they should be. */
int conf_check(const struct conf *next, char *err, size_t size, void *arg);
/* CPUs from a list such as "0-3,8" (or "" for none: -ENOENT); -EINVAL, -ERANGE. */
int conf_cpus_parse(const char *list, cpu_set_t *out);

#endif

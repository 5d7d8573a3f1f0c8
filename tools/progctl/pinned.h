/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* pinned: what the kernel module asyncprog tells by generic netlink (asyncprog(4)). */
#ifndef PROGCTL_PINNED_H
#define PROGCTL_PINNED_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum pinned_what { PINNED_STATS, PINNED_USERS, PINNED_REGIONS };

/*
 * An object (stats: counters and limits) or an array of objects (users, regions: root only), to be
 * released; NULL and a negative errno in *@err: -ENOENT is that there is no module, or that this is not
 * the initial network namespace.
 */
json_t *pinned_ask(enum pinned_what what, int *err);

/* Set the limit "max_bytes", "uid_max_bytes" or "uid_max_regions".  -EINVAL: there is no such one. */
int pinned_set(const char *limit, uint64_t value);

#endif

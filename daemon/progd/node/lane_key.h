/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* lane_key: a file of the user's that is the same on all nodes, without which nobody proves a job's key. */
#ifndef PROGD_NODE_LANE_KEY_H
#define PROGD_NODE_LANE_KEY_H

#include <stddef.h>
#include <stdint.h>

#include <asyncprog/ring.h>

#define LANE_KEY_MIN	32
#define LANE_KEY_MAX	65536

/*
 * What the file at @path says, "~/" for the home directory of the process's user. 0, or a negative errno and one line in @err:
 * not a file of its own that nobody else may read, or not LANE_KEY_MIN to LANE_KEY_MAX bytes.
 */
int node_lane_key_read(const char *path, uint8_t key[PROG_JOBKEY_SIZE], char *err, size_t size);

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * win.h - the files that a client hands to its daemon, and what tests of two nodes in one thread need.
 * What goes wrong fails the test.
 */
#ifndef SELFTESTS_KIT_WIN_H
#define SELFTESTS_KIT_WIN_H

#include "kit.h"
#include "win/win.h"

#define KIT_NODES	2u
#define KIT_RANGES	4u		/* that can be attached to a window */
#define KIT_SUBS	2u		/* rings with sub-streams */

/* xport_opts.post: all workers are this thread. */
int kit_post(void *ctx, unsigned int worker, void (*fn)(void *arg), void *arg);
/* A file as clients make them, and where it is mapped here. */
int kit_memfd(size_t size, void **p);
/* One, as the daemon maps it. */
struct win_map *kit_map(size_t size);
/* A window's control segment; attached to @wc, which is to be unmapped with kit_ctl_free. */
int kit_ctl(struct winctl *wc, uint64_t key, uint32_t rank, uint32_t nranks);
void kit_ctl_free(struct winctl *wc, uint32_t nranks);
/* The table of a window of @nranks: ranks from @first_b on live on nodes[1], those before on nodes[0]. */
int kit_table(const struct prog_win_node nodes[KIT_NODES], uint32_t nranks, uint32_t first_b);
/* What the table says of a node. */
struct prog_win_node kit_node(const uint8_t guid[PROG_GUID_SIZE], const struct prog_addr *addr, unsigned int naddrs);

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_mem.h - memory that starting a collective takes (prog_coll_mem_get()).  A member that has none cannot tell the others, who would
 * wait for it: so there is a reserve, which is address space until it is needed.  Any thread.
 */
#ifndef CLIENT_COLL_MEM_H
#define CLIENT_COLL_MEM_H

struct fork_ops;

/* Before the first collective, while there is memory; any number of times.  Without it there is no reserve. */
void coll_mem_begin(void);
extern const struct fork_ops coll_mem_fork_ops;

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * desc.h - descriptors, which the MPI library brings in place of the payload (desc.c).
 */
#ifndef HOOKS_DESC_H
#define HOOKS_DESC_H

#include "chan.h"
#include "hooks.h"

#pragma GCC visibility push(hidden)

struct hcomm;

#define DESC_SIZE	240u

struct desc {
	uint64_t magic;
	uint64_t len;			/* of the message, packed bytes */
	uint64_t ord;
	uint32_t gen;
	uint32_t src;			/* rank in MPI_COMM_WORLD */
	uint32_t slot, serial;
	uint64_t addr;			/* see prog_msg_id */
	uint8_t hash[16];
	uint8_t rest[DESC_SIZE - 64];	/* zero */
};

struct desc_says {
	struct prog_msg_id name;
	struct chan_pos pos;
};

int desc_init(void);
/* @dst: rank in MPI_COMM_WORLD */
void desc_make(struct desc *d, const struct hcomm *c, uint32_t dst, const struct prog_msg_id *name,
	       const struct chan_pos *pos);
/* Are the DESC_SIZE bytes @bytes a descriptor for this process, sent on @c?  Then *@d is what it says. */
bool desc_check(const void *bytes, const struct hcomm *c, struct desc_says *d);

#pragma GCC visibility pop

#endif

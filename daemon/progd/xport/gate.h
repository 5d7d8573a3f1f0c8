/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * gate: how often something may happen in the long run, and how often at once.
 *
 * Any thread: where two look at once, both may pass.  Time is loop_now()'s, ns.
 */
#ifndef PROGD_XPORT_GATE_H
#define PROGD_XPORT_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gate {
	_Atomic uint64_t free_at;	/* when all of it is there again */
	uint64_t each_ns, all_ns;	/* how long one takes, and as many as may pass at once */
};

/* @rate a second, after @at_once. */
void gate_init(struct gate *g, unsigned int rate, unsigned int at_once);
/* Until the next may pass; 0: now. */
uint64_t gate_wait(const struct gate *g, uint64_t now);
/* One passes. */
void gate_pass(struct gate *g, uint64_t now);
/* One passes, if half of all are left then: so nobody who waits does so for that. */
bool gate_try(struct gate *g, uint64_t now);
/* One that passed is not to be counted. */
void gate_give_back(struct gate *g);

#endif

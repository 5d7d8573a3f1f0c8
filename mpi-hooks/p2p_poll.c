/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What nobody waits for is looked after by whoever is in an MPI call. */
#include "hooks_gen.h"

atomic_int p2p_nobodys;
static _Thread_local bool held_off;

void p2p_poll_slow(void)
{
	if (held_off)
		return;
	held_off = true;
	for (void (*const *p)(void) = p2p_polled; *p; p++)
		(*p)();
	held_off = false;
}

void p2p_poll_hold(bool hold)
{
	held_off = hold;
}

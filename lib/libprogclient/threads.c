// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Learning of threads that the program has idle. */
#include "op.h"
#include "share.h"

void prog_threads_set(const struct prog_threads *t)
{
	const struct prog_threads *none = NULL;

	if (!__atomic_compare_exchange_n(&share_threads, &none, t, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&share_least, t->always ? 1 : PROG_THREADS_LEAST, __ATOMIC_RELEASE);
	__atomic_store_n(&share_move, share_move_long, __ATOMIC_RELEASE);
	__atomic_store_n(&local_acc, local_acc_long, __ATOMIC_RELEASE);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What keeps the library usable in both processes after fork(). */
#include <pthread.h>

#include "coll_mem.h"
#include "colls.h"
#include "region.h"

/* In the order in which their locks are taken; given back the other way round. */
static const struct fork_ops *const table[] = { &coll_fork_ops, &coll_mem_fork_ops, &region_fork_ops, &session_fork_ops };
#define NTABLE (sizeof(table) / sizeof(table[0]))

static void prepare(void)
{
	for (size_t i = 0; i < NTABLE; i++)
		table[i]->prepare();
}

static void parent(void)
{
	for (size_t i = NTABLE; i--;)
		table[i]->done(false);
}

static void child(void)
{
	for (size_t i = NTABLE; i--;)
		table[i]->done(true);
}

static void install(void)
{
	pthread_atfork(prepare, parent, child);
}

void fork_install(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}

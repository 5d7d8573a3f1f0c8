// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Memory that starting a collective takes: see coll_mem.h. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <progclient.h>

#include "client.h"
#include "coll_mem.h"

#define RESERVE		(8u << 20)	/* some 1,000 collectives of few members */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *reserve;		/* constant once it is there; NULL: there is none */
static struct arena arena;		/* under lock */

void coll_mem_begin(void)
{
	void *mem;

	pthread_mutex_lock(&lock);
	if (!reserve && !arena_init(&arena, RESERVE)) {
		mem = mmap(NULL, RESERVE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (mem != MAP_FAILED)
			__atomic_store_n(&reserve, mem, __ATOMIC_RELEASE);
		else
			arena_destroy(&arena);
	}
	pthread_mutex_unlock(&lock);
}

static void *from_reserve(size_t n)
{
	unsigned char *base = __atomic_load_n(&reserve, __ATOMIC_ACQUIRE);
	uint64_t off;

	if (!base || n > RESERVE)
		return NULL;
	pthread_mutex_lock(&lock);
	off = arena_alloc(&arena, n);
	pthread_mutex_unlock(&lock);
	return off == CLIENT_NO_ARENA ? NULL : memset(base + off, 0, n);
}

void *prog_coll_mem_get(size_t n)
{
	void *p = calloc(1, n);

	return p ? p : from_reserve(n);
}

void prog_coll_mem_put(void *p)
{
	unsigned char *base = __atomic_load_n(&reserve, __ATOMIC_ACQUIRE);
	uintptr_t off = (uintptr_t)p - (uintptr_t)base;

	if (!base || off >= RESERVE) {
		free(p);
		return;
	}
	pthread_mutex_lock(&lock);
	arena_free(&arena, off);
	pthread_mutex_unlock(&lock);
}

static void fork_prepare(void) GUARD_UNCHECKED
{
	pthread_mutex_lock(&lock);
}

static void fork_done(bool child) GUARD_UNCHECKED
{
	pthread_mutex_unlock(&lock);
}

const struct fork_ops coll_mem_fork_ops = { .prepare = fork_prepare, .done = fork_done };

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Alloc_mem and Free_mem: memory that the daemon can map, so that origin buffers in it cost
 * nothing.  It becomes known to the daemon only when a session exists.
 */
#include <string.h>

#include "hooks_gen.h"

/* set once; while unset Free_mem need not ask whose memory it is given */
static atomic_bool mem_used;

int hook_alloc_mem(MPI_Aint size, MPI_Info info, void *baseptr)
{
	void *mem;

	/* without MPI_Init it may be freed when the job is over and MPI has begun anew */
	if (!hooks.on || hooks.by_sessions || size <= 0 || !baseptr ||
	    prog_mem_alloc(hooks.session, (size_t)size, &mem))
		return PMPI_Alloc_mem(size, info, baseptr);
	atomic_store_explicit(&mem_used, true, memory_order_relaxed);
	memcpy(baseptr, &mem, sizeof(mem));
	return MPI_SUCCESS;
}

int hook_free_mem(void *base)
{
	if (base && atomic_load_explicit(&mem_used, memory_order_relaxed) &&
	    prog_mem_free(hooks.session, base) != -ENOENT)
		return MPI_SUCCESS;
	return PMPI_Free_mem(base);
}

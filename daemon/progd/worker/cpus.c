/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Processors of a NUMA node, and those of a process. */
#include <errno.h>
#include <hwloc.h>

#include <libprogbase/procfs.h>

#include "worker/worker.h"

int worker_cpus_numa(unsigned int index, cpu_set_t *out)
{
	hwloc_topology_t topo;
	hwloc_obj_t node;
	int n, ret = -ENOENT;
	unsigned int cpu;

	if (hwloc_topology_init(&topo))
		return -ENOMEM;
	if (hwloc_topology_load(topo))
		goto out;
	n = hwloc_get_nbobjs_by_type(topo, HWLOC_OBJ_NUMANODE);
	if (n < 2)
		goto out;
	node = hwloc_get_obj_by_type(topo, HWLOC_OBJ_NUMANODE, index % n);
	CPU_ZERO(out);
	hwloc_bitmap_foreach_begin(cpu, node->cpuset)
		if (cpu < CPU_SETSIZE)
			CPU_SET(cpu, out);
	hwloc_bitmap_foreach_end();
	if (CPU_COUNT(out))
		ret = 0;
out:
	hwloc_topology_destroy(topo);
	return ret;
}

#define THREADS_MAX	64	/* looked at: what it takes is bounded, whatever a process has */

struct looked {
	int n;
	cpu_set_t *out;
};

static bool look(void *ctx, pid_t tid)
{
	struct looked *l = ctx;
	cpu_set_t of;

	/* one that has ended meanwhile adds nothing */
	if (!sched_getaffinity(tid, sizeof(of), &of))
		CPU_OR(l->out, l->out, &of);
	return ++l->n < THREADS_MAX;
}

int worker_cpus_process(pid_t pid, bool threads, cpu_set_t *out)
{
	struct looked l = { .out = out };

	CPU_ZERO(out);
	/* 0 would be the caller */
	if (pid <= 0)
		return -ESRCH;
	if (sched_getaffinity(pid, sizeof(*out), out))
		return -errno;
	if (!threads)
		return 0;
	return procfs_threads(pid, look, &l);
}

int worker_cpu_process(pid_t pid)
{
	struct procfs_stat st;

	return procfs_stat(pid, 0, &st) && st.state == 'R' ? st.cpu : -1;
}

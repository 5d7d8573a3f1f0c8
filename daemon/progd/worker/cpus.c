/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Processors of a NUMA node, and those of a process. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>

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

int worker_cpus_process(pid_t pid, bool threads, cpu_set_t *out)
{
	char path[32];
	struct dirent *e;
	cpu_set_t of;
	DIR *dir;

	CPU_ZERO(out);
	/* 0 would be the caller */
	if (pid <= 0)
		return -ESRCH;
	if (sched_getaffinity(pid, sizeof(*out), out))
		return -errno;
	if (!threads)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	for (int n = 0; n < THREADS_MAX && (e = readdir(dir));) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		n++;
		/* one that has ended meanwhile adds nothing */
		if (!sched_getaffinity((pid_t)strtol(e->d_name, NULL, 10), sizeof(of), &of))
			CPU_OR(out, out, &of);
	}
	closedir(dir);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kernel threads that copy where no engine does.
 */
#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "internal.h"

static unsigned int threads = 2;
module_param(threads, uint, 0444);
MODULE_PARM_DESC(threads, "kernel threads that copy, without cpus= (default 2)");

static char *cpus;
module_param(cpus, charp, 0444);
MODULE_PARM_DESC(cpus, "list of processors that get a copying thread each, e.g. 2-3 (default: none)");

static struct kthread_worker **workers;
static unsigned int nworkers;
static atomic_t turn;

static void destroy_workers(void)
{
	while (nworkers)
		kthread_destroy_worker(workers[--nworkers]);
	kfree(workers);
}

int ic_cpu_init(void)
{
	unsigned int cpu = nr_cpu_ids, want = clamp(threads, 1U, 64U);
	cpumask_var_t mask;
	int ret = 0;

	if (!zalloc_cpumask_var(&mask, GFP_KERNEL))
		return -ENOMEM;
	if (cpus) {
		ret = cpulist_parse(cpus, mask);
		if (!ret && !cpumask_intersects(mask, cpu_online_mask))
			ret = -EINVAL;
		if (ret) {
			pr_err("ioat_copy: cpus=%s: no list of online processors\n", cpus);
			goto free;
		}
		cpumask_and(mask, mask, cpu_online_mask);
		want = cpumask_weight(mask);
		cpu = cpumask_first(mask);
	}
	workers = kcalloc(want, sizeof(*workers), GFP_KERNEL);
	if (!workers) {
		ret = -ENOMEM;
		goto free;
	}
	while (nworkers < want) {
		struct kthread_worker *w;

		if (cpus) {
			w = kthread_create_worker_on_cpu(cpu, 0, "ioat_copy/%u", cpu);
			cpu = cpumask_next(cpu, mask);
		} else {
			w = kthread_create_worker(0, "ioat_copy/u%u", nworkers);
		}
		if (IS_ERR(w)) {
			ret = PTR_ERR(w);
			destroy_workers();
			goto free;
		}
		workers[nworkers++] = w;
	}
free:
	free_cpumask_var(mask);
	return ret;
}

/* Every file is closed. */
void ic_cpu_exit(void)
{
	destroy_workers();
}

/* Any context. */
void ic_cpu_queue(struct ic_op *op)
{
	unsigned int i = (unsigned int)atomic_inc_return(&turn) % nworkers;

	kthread_queue_work(workers[i], &op->work);
}

u32 ic_cpu_count(void)
{
	return nworkers;
}

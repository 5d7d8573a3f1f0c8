// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kernel threads that copy where no engine does, for all users in turn.
 */
#include <linux/cpumask.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "internal.h"

static unsigned int threads = 2;
module_param(threads, uint, 0444);
MODULE_PARM_DESC(threads, "kernel threads that copy, without cpus= (default 2)");

static char *cpus;
module_param(cpus, charp, 0444);
MODULE_PARM_DESC(cpus, "list of processors that get a copying thread each, e.g. 2-3 (default: none)");

struct worker {
	struct asyncprog_fair_runner runner;
	struct kthread_work work;
	struct kthread_worker *thread;
};

static struct asyncprog_fair queue;
static struct worker *workers;
static unsigned int nworkers;

static void run(struct kthread_work *work)
{
	asyncprog_fair_run(&queue, &container_of(work, struct worker, work)->runner);
}

static void wake(struct asyncprog_fair_runner *runner)
{
	struct worker *w = container_of(runner, struct worker, runner);

	kthread_queue_work(w->thread, &w->work);
}

static void destroy_workers(void)
{
	while (nworkers)
		kthread_destroy_worker(workers[--nworkers].thread);
	kfree(workers);
}

int ic_cpu_init(bool (*step)(struct asyncprog_fair_job *, u64 *))
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
	asyncprog_fair_init(&queue, step, wake);
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
		workers[nworkers].thread = w;
		kthread_init_work(&workers[nworkers].work, run);
		asyncprog_fair_add_runner(&queue, &workers[nworkers].runner);
		nworkers++;
	}
free:
	free_cpumask_var(mask);
	return ret;
}

/* Every file is closed. */
void ic_cpu_stop(void)
{
	destroy_workers();
}

/* What was left of the files has gone, too. */
void ic_cpu_exit(void)
{
	asyncprog_fair_exit(&queue);
}

struct asyncprog_fair_user *ic_cpu_user_get(kuid_t uid)
{
	return asyncprog_fair_user_get(&queue, uid);
}

void ic_cpu_user_put(struct asyncprog_fair_user *user)
{
	asyncprog_fair_user_put(&queue, user);
}

/* Any context. */
void ic_cpu_queue(struct ic_op *op)
{
	asyncprog_fair_add(&queue, op->ctx->sharer, &op->job);
}

u32 ic_cpu_count(void)
{
	return nworkers;
}

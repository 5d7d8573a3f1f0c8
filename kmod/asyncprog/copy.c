// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copies by handle on the CPU: in the caller, or in kernel threads that all users share.
 */
#include <linux/file.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"
#include "trace.h"

#define COPY_CHUNK	(256UL << 10)	/* bytes between two looks at signals and state */

static unsigned int copy_threads;
module_param(copy_threads, uint, 0444);
MODULE_PARM_DESC(copy_threads, "queued copies at a time (default 0: half of the processors)");

/* what one call queued: its copies are done one after the other */
struct copy_job {
	struct asyncprog_fair_job job;
	struct ap_ctx *ctx;
	u32 nops;
	u32 at;				/* ops[at] is the first that is not done, */
	u64 from;			/* but for so many bytes */
	struct {
		struct asyncprog_pair pair;
		u64 cookie;
	} ops[];
};

struct copy_runner {
	struct asyncprog_fair_runner runner;
	struct work_struct work;
};

struct asyncprog_fair ap_copy_queue;
static struct workqueue_struct *copy_wq;
static struct copy_runner *copy_runners;

struct file *asyncprog_file_get(int fd)
{
	struct file *file = fget(fd);

	if (!file)
		return ERR_PTR(-EBADF);
	if (file->f_op != &ap_fops) {
		fput(file);
		return ERR_PTR(-EINVAL);
	}
	return file;
}
EXPORT_SYMBOL_GPL(asyncprog_file_get);

static int check_range(const struct ap_region *r, u64 off, u64 len)
{
	return off > r->length || len > r->length - off ? -ERANGE : 0;
}

static int pair_get(struct ap_ctx *ctx, const struct asyncprog_copy *op,
		    struct asyncprog_pair *pair)
{
	int ret;

	if (!op->len)
		return -EINVAL;
	ret = ap_region_use(ctx, op->src, ASYNCPROG_ACCESS_READ, &pair->src);
	if (ret)
		return ret;
	ret = ap_region_use(ctx, op->dst, ASYNCPROG_ACCESS_WRITE, &pair->dst);
	if (ret)
		goto unuse;
	ret = check_range(pair->src, op->src_off, op->len);
	if (!ret)
		ret = check_range(pair->dst, op->dst_off, op->len);
	if (!ret && pair->src == pair->dst && op->src_off < op->dst_off + op->len &&
	    op->dst_off < op->src_off + op->len)
		ret = -EINVAL;
	if (ret) {
		ap_region_unuse(pair->dst);
		goto unuse;
	}
	pair->src_off = op->src_off;
	pair->dst_off = op->dst_off;
	pair->len = op->len;
	return 0;

unuse:
	ap_region_unuse(pair->src);
	return ret;
}

int asyncprog_pair_get(struct file *file, const struct asyncprog_copy *op,
		       struct asyncprog_pair *pair)
{
	return pair_get(ap_file_ctx(file), op, pair);
}
EXPORT_SYMBOL_GPL(asyncprog_pair_get);

void asyncprog_pair_put(struct asyncprog_pair *pair)
{
	ap_region_unuse(pair->src);
	ap_region_unuse(pair->dst);
}
EXPORT_SYMBOL_GPL(asyncprog_pair_put);

bool asyncprog_pair_live(const struct asyncprog_pair *pair)
{
	return atomic_read(&pair->src->state) != AP_DEAD &&
	       atomic_read(&pair->dst->state) != AP_DEAD;
}
EXPORT_SYMBOL_GPL(asyncprog_pair_live);

/* how many bytes from the first page on, at most @len, are contiguous in memory */
static unsigned long run_length(struct page **pages, unsigned int in_page, unsigned long len)
{
	unsigned long have = PAGE_SIZE - in_page;
	unsigned long i;

	for (i = 1; have < len && page_to_pfn(pages[i]) == page_to_pfn(pages[0]) + i; i++)
		have += PAGE_SIZE;
	return min(have, len);
}

static void copy_chunk(const struct asyncprog_pair *pair, u64 from, unsigned long len)
{
	while (len) {
		unsigned int src_in, dst_in;
		unsigned long n, left, in;
		struct page **src, **dst;

		src = asyncprog_region_pages(pair->src, pair->src_off + from, &src_in);
		dst = asyncprog_region_pages(pair->dst, pair->dst_off + from, &dst_in);
		n = run_length(dst, dst_in, run_length(src, src_in, len));
		memcpy(page_address(*dst) + dst_in, page_address(*src) + src_in, n);
		for (left = n, in = dst_in; left; dst++, in = 0) {
			flush_dcache_page(*dst);
			left -= min(left, PAGE_SIZE - in);
		}
		from += n;
		len -= n;
	}
}

int asyncprog_pair_copy(const struct asyncprog_pair *pair, u64 from, u64 len, bool killable)
{
	while (len) {
		unsigned long n = min_t(u64, len, COPY_CHUNK);

		if (!asyncprog_pair_live(pair))
			return -ESTALE;
		if (killable && fatal_signal_pending(current))
			return -EINTR;
		copy_chunk(pair, from, n);
		cond_resched();
		from += n;
		len -= n;
	}
	return 0;
}
EXPORT_SYMBOL_GPL(asyncprog_pair_copy);

void asyncprog_pair_account(const struct asyncprog_pair *pair, u64 bytes, int status)
{
	trace_asyncprog_copied(pair->src->handle, pair->dst->handle, bytes, status);
	if (status) {
		atomic64_inc(&ap_stats.copy_errors);
		return;
	}
	atomic64_inc(&ap_stats.copies);
	atomic64_add(bytes, &ap_stats.copy_bytes);
	atomic64_inc(&pair->src->copies);
	atomic64_add(bytes, &pair->src->copy_bytes);
	if (pair->dst == pair->src)
		return;
	atomic64_inc(&pair->dst->copies);
	atomic64_add(bytes, &pair->dst->copy_bytes);
}
EXPORT_SYMBOL_GPL(asyncprog_pair_account);

/* go on with the copy that a job is at; returns whether it is done */
static bool copy_op(struct copy_job *job, u64 *left)
{
	struct asyncprog_pair *pair = &job->ops[job->at].pair;
	u64 n = min(pair->len - job->from, *left);
	int ret = READ_ONCE(job->ctx->closing) ? -ECANCELED :
						 asyncprog_pair_copy(pair, job->from, n, false);

	asyncprog_fair_charge(left, ret ? 0 : n);
	job->from += n;
	if (!ret && job->from < pair->len)
		return false;
	asyncprog_pair_account(pair, pair->len, ret);
	asyncprog_pair_put(pair);
	asyncprog_ring_post(job->ctx->ring, job->ops[job->at].cookie, ret, ASYNCPROG_CQE_CPU,
			    ret ? 0 : pair->len);
	return true;
}

static bool copy_step(struct asyncprog_fair_job *fair_job, u64 *left)
{
	struct copy_job *job = container_of(fair_job, struct copy_job, job);
	struct ap_ctx *ctx = job->ctx;

	while (*left && job->at < job->nops) {
		if (!copy_op(job, left))
			continue;
		job->at++;
		job->from = 0;
	}
	if (job->at < job->nops)
		return false;
	kvfree(job);
	ap_ctx_put(ctx);
	return true;
}

static void copy_work(struct work_struct *work)
{
	asyncprog_fair_run(&ap_copy_queue, &container_of(work, struct copy_runner, work)->runner);
}

static void copy_wake(struct asyncprog_fair_runner *runner)
{
	queue_work(copy_wq, &container_of(runner, struct copy_runner, runner)->work);
}

static int copy_queued(struct ap_ctx *ctx, const struct asyncprog_copy *ops, u32 nops)
{
	struct ap_ring *ring = ap_ctx_ring(ctx);
	struct copy_job *job;
	u32 i;
	int ret;

	if (!ring)
		return -ENXIO;
	job = kvmalloc(struct_size(job, ops, nops), GFP_KERNEL_ACCOUNT);
	if (!job)
		return -ENOMEM;
	for (i = 0; i < nops; i++) {
		ret = pair_get(ctx, &ops[i], &job->ops[i].pair);
		if (ret)
			goto unwind;
		job->ops[i].cookie = ops[i].cookie;
	}
	ret = asyncprog_ring_reserve(ring, nops);
	if (ret)
		goto unwind;
	kref_get(&ctx->ref);
	job->ctx = ctx;
	job->nops = nops;
	job->at = 0;
	job->from = 0;
	asyncprog_fair_add(&ap_copy_queue, ctx->sharer, &job->job);
	return 0;

unwind:
	while (i--)
		asyncprog_pair_put(&job->ops[i].pair);
	kvfree(job);
	return ret;
}

static int copy_one(struct ap_ctx *ctx, const struct asyncprog_copy *op)
{
	struct asyncprog_pair pair;
	int ret = pair_get(ctx, op, &pair);

	if (ret)
		return ret;
	ret = asyncprog_pair_copy(&pair, 0, pair.len, true);
	asyncprog_pair_account(&pair, pair.len, ret);
	asyncprog_pair_put(&pair);
	return ret;
}

int ap_copy_ioctl(struct file *file, struct asyncprog_ioc_copy *arg)
{
	struct ap_ctx *ctx = ap_file_ctx(file);
	struct asyncprog_copy one, *ops = &one;
	int ret = 0;
	u32 i;

	arg->done = 0;
	if ((arg->flags & ~ASYNCPROG_COPY_QUEUED) || !arg->nops || arg->nops > ASYNCPROG_MAX_OPS)
		return -EINVAL;
	if (arg->nops > 1) {
		ops = kvmalloc_array(arg->nops, sizeof(*ops), GFP_KERNEL_ACCOUNT);
		if (!ops)
			return -ENOMEM;
	}
	if (copy_from_user(ops, u64_to_user_ptr(arg->ops), arg->nops * sizeof(*ops))) {
		ret = -EFAULT;
		goto free;
	}
	if (arg->flags & ASYNCPROG_COPY_QUEUED) {
		ret = copy_queued(ctx, ops, arg->nops);
		if (!ret)
			arg->done = arg->nops;
	} else {
		for (i = 0; i < arg->nops; i++) {
			ret = copy_one(ctx, &ops[i]);
			if (ret)
				break;
			arg->done++;
		}
	}
free:
	if (ops != &one)
		kvfree(ops);
	return ret;
}

int ap_copy_init(void)
{
	unsigned int threads = copy_threads ? copy_threads : max(num_online_cpus() / 2, 1U);
	unsigned int i;

	threads = min_t(unsigned int, threads, WQ_MAX_ACTIVE);
	copy_runners = kcalloc(threads, sizeof(*copy_runners), GFP_KERNEL);
	if (!copy_runners)
		return -ENOMEM;
	copy_wq = alloc_workqueue("asyncprog_copy", WQ_UNBOUND, threads);
	if (!copy_wq) {
		kfree(copy_runners);
		return -ENOMEM;
	}
	asyncprog_fair_init(&ap_copy_queue, copy_step, copy_wake);
	for (i = 0; i < threads; i++) {
		INIT_WORK(&copy_runners[i].work, copy_work);
		asyncprog_fair_add_runner(&ap_copy_queue, &copy_runners[i].runner);
	}
	return 0;
}

/* Runs what is queued: the files are closed, so it is cancelled. */
void ap_copy_exit(void)
{
	destroy_workqueue(copy_wq);
	kfree(copy_runners);
}

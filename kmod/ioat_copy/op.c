// SPDX-License-Identifier: GPL-2.0-only
/*
 * The life of a copy: submitted, issued (to the engine or to a kernel thread), completed.
 *
 * An engine's callbacks carry a number, not a pointer, so one that comes too late finds nothing.  A
 * copy that an engine does not complete in time is completed towards the user, but its pages stay
 * mapped and pinned, and the module stays, until the engine says that it is done with them.
 */
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "internal.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

#define PREP_TRIES	8
#define PREP_WAIT_US	50
/* some drivers take descriptors back in their interrupt handler only */
#define QUIET_MAX	128
#define WATCH_DELAY	(HZ / 10)
#define CALLBACK_TIME	HZ	/* that the interrupt of a finished copy may take */
#define NO_ORDER_TIMES	10	/* timeout_ms, at most, for a copy of an engine that has no order */

static unsigned int timeout_ms = 10000;
module_param(timeout_ms, uint, 0644);
MODULE_PARM_DESC(timeout_ms, "milliseconds after which a copy that the engine did not complete has failed (default 10000)");

unsigned int ic_min_bytes = 4096;
module_param_named(min_bytes, ic_min_bytes, uint, 0644);
MODULE_PARM_DESC(min_bytes, "shorter copies are done by a CPU (default 4096)");

/* callbacks take its lock only to erase, with interrupts off */
static DEFINE_XARRAY_FLAGS(dma_ops, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_IRQ);
static u32 dma_ops_next;

static DEFINE_SPINLOCK(zombie_lock);	/* state to and from IC_ZOMBIE, and the list */
static LIST_HEAD(zombies);
static atomic_t zombies_gone;		/* module references to give back */

/* ---- completion ------------------------------------------------------------------------- */

static void op_unmap(struct ic_op *op)
{
	if (!op->mapped)
		return;
	dma_unmap_sgtable(op->chan->dev, &op->src, DMA_TO_DEVICE, 0);
	dma_unmap_sgtable(op->chan->dev, &op->dst, DMA_FROM_DEVICE, 0);
	sg_free_table(&op->src);
	sg_free_table(&op->dst);
	op->mapped = false;
}

/* Any context.  The copy is not used after this. */
static void op_complete(struct ic_op *op, int status)
{
	struct ic_ctx *ctx = op->ctx;
	u64 dma = op->dma_end - op->dma_from;
	u64 len = op->pair.len;
	u32 flags = (dma ? ASYNCPROG_CQE_DMA : 0) | (dma < len ? ASYNCPROG_CQE_CPU : 0);
	unsigned long irq;

	trace_ioat_copy_complete(op->cookie, op->seq, len, dma, status);
	asyncprog_pair_account(&op->pair, len, status);
	asyncprog_pair_put(&op->pair);
	asyncprog_ring_post(ctx->ring, op->cookie, status, flags, status ? 0 : len);

	spin_lock_irqsave(&ctx->lock, irq);
	list_del(&op->link);
	ctx->completed++;
	if (status) {
		ctx->failed++;
	} else {
		ctx->dma_bytes += dma;
		ctx->cpu_bytes += len - dma;
	}
	spin_unlock_irqrestore(&ctx->lock, irq);
	wake_up_all(&ctx->wait);
	kfree_rcu(op, rcu);
	ic_ctx_put(ctx);
}

/* What the engine does not copy, before and after its part; until the file is closed. */
bool ic_op_cpu(struct asyncprog_fair_job *job, u64 *left)
{
	struct ic_op *op = container_of(job, struct ic_op, job);
	int ret = 0;

	while (!ret) {
		u64 end, n;

		if (op->cpu_at == op->dma_from)
			op->cpu_at = op->dma_end;
		end = op->cpu_at < op->dma_from ? op->dma_from : op->pair.len;
		if (op->cpu_at == end)
			break;
		if (!*left)
			return false;
		n = min(end - op->cpu_at, *left);
		if (READ_ONCE(op->ctx->closing))
			ret = -ECANCELED;
		else
			ret = asyncprog_pair_copy(&op->pair, op->cpu_at, n, false);
		asyncprog_fair_charge(left, ret ? 0 : n);
		op->cpu_at += n;
	}
	op_complete(op, ret);
	return true;
}

static void op_forget(struct ic_op *op)
{
	unsigned long irq;

	xa_lock_irqsave(&dma_ops, irq);
	__xa_erase(&dma_ops, op->id);
	xa_unlock_irqrestore(&dma_ops, irq);
}

/* The engine is done with a copy whose state the caller has moved to IC_DONE.  Any context. */
static void op_engine_done(struct ic_op *op)
{
	int status = atomic_read(&op->status);

	op_forget(op);
	op_unmap(op);
	if (!status && (op->dma_from || op->dma_end < op->pair.len))
		ic_cpu_queue(op);
	else
		op_complete(op, status);
}

/* Whether it was one; it is gone then.  Any context. */
static bool zombie_reap(struct ic_op *op)
{
	unsigned long irq;
	bool mine;

	spin_lock_irqsave(&zombie_lock, irq);
	mine = atomic_cmpxchg(&op->state, IC_ZOMBIE, IC_DONE) == IC_ZOMBIE;
	if (mine)
		list_del(&op->link);
	spin_unlock_irqrestore(&zombie_lock, irq);
	if (!mine)
		return false;
	op_forget(op);
	op_unmap(op);
	asyncprog_pair_put(&op->pair);
	atomic_dec(&op->chan->zombies);
	atomic_inc(&zombies_gone);
	kfree_rcu(op, rcu);
	return true;
}

/* All descriptors of a copy are done.  Any context, under RCU. */
static void op_done(struct ic_op *op)
{
	if (atomic_cmpxchg(&op->state, IC_RUNNING, IC_DONE) == IC_RUNNING)
		op_engine_done(op);
	else
		zombie_reap(op);
}

static void dma_callback(void *param, const struct dmaengine_result *result)
{
	struct ic_op *op;

	rcu_read_lock();
	op = xa_load(&dma_ops, (unsigned long)param);
	if (op) {
		WRITE_ONCE(op->chan->progress, get_jiffies_64());
		if (result && result->result != DMA_TRANS_NOERROR)
			atomic_cmpxchg(&op->status, 0, result->result == DMA_TRANS_ABORTED ?
				       -ECANCELED : -EIO);
		if (atomic_dec_and_test(&op->left))
			op_done(op);
	}
	rcu_read_unlock();
}

/* Complete a copy towards the user that the engine keeps. */
static void op_abandon(struct ic_op *op)
{
	struct ic_ctx *ctx = op->ctx;
	unsigned long irq;
	bool mine;

	spin_lock_irqsave(&zombie_lock, irq);
	mine = atomic_cmpxchg(&op->state, IC_RUNNING, IC_ZOMBIE) == IC_RUNNING;
	if (mine) {
		__module_get(THIS_MODULE);
		atomic_inc(&op->chan->zombies);
		asyncprog_ring_post(ctx->ring, op->cookie, -ETIMEDOUT, ASYNCPROG_CQE_DMA, 0);
		spin_lock(&ctx->lock);
		list_move(&op->link, &zombies);
		ctx->completed++;
		ctx->failed++;
		spin_unlock(&ctx->lock);
	}
	spin_unlock_irqrestore(&zombie_lock, irq);
	if (!mine)
		return;
	pr_warn_ratelimited("ioat_copy: %s: a copy was not completed in %u ms\n",
			    dma_chan_name(op->chan->chan), timeout_ms);
	wake_up_all(&ctx->wait);
	ic_ctx_put(ctx);
}

void ic_op_reap(struct ic_chan *chan)
{
	struct ic_op *op;
	unsigned long irq;

	do {
		rcu_read_lock();
		spin_lock_irqsave(&zombie_lock, irq);
		list_for_each_entry(op, &zombies, link) {
			if (op->chan == chan)
				break;
		}
		if (list_entry_is_head(op, &zombies, link))
			op = NULL;
		spin_unlock_irqrestore(&zombie_lock, irq);
		if (op)
			zombie_reap(op);
		rcu_read_unlock();
	} while (op);
}

void ic_op_put_modules(void)
{
	int n = atomic_xchg(&zombies_gone, 0);

	while (n--)
		module_put(THIS_MODULE);
}

u64 ic_op_done_seq(struct ic_ctx *ctx)
{
	unsigned long irq;
	u64 seq;

	spin_lock_irqsave(&ctx->lock, irq);
	seq = list_empty(&ctx->inflight) ? ctx->submitted :
	      list_first_entry(&ctx->inflight, struct ic_op, link)->seq - 1;
	spin_unlock_irqrestore(&ctx->lock, irq);
	return seq;
}

/*
 * Whether the engine has had its time.  It gets it anew with whatever it completes, as what others
 * gave it before may take long; who closes the file waits no longer.  One that does not work in
 * order may go on with others' for ever after it lost this one, so it does not get it for ever.
 */
static bool op_late(const struct ic_op *op)
{
	const struct ic_ctx *ctx = op->ctx;
	u64 now = get_jiffies_64(), time = msecs_to_jiffies(READ_ONCE(timeout_ms));
	bool ordered = op->chan->ordered;
	u64 progress = ordered ? ctx->progress : READ_ONCE(op->chan->progress);

	lockdep_assert_held(&ctx->lock);
	if (time_before64(now, op->since + time))
		return false;
	if (!ordered && time_after_eq64(now, op->since + NO_ORDER_TIMES * time))
		return true;
	return READ_ONCE(ctx->closing) || time_after_eq64(now, progress + time);
}

/* The first copy that the engine has, or NULL.  Under RCU. */
static struct ic_op *first_running(struct ic_ctx *ctx, bool late)
{
	struct ic_op *op, *found = NULL;
	unsigned long irq;

	spin_lock_irqsave(&ctx->lock, irq);
	list_for_each_entry(op, &ctx->inflight, link) {
		/* pairs with the release in op_start(): the fields of a prepared copy are valid */
		if (!smp_load_acquire(&op->prepared) || atomic_read(&op->state) != IC_RUNNING)
			continue;
		if (late && !op_late(op))
			continue;
		found = op;
		break;
	}
	spin_unlock_irqrestore(&ctx->lock, irq);
	return found;
}

bool ic_op_polled(struct ic_ctx *ctx)
{
	struct ic_op *op;
	bool polled;

	rcu_read_lock();
	op = first_running(ctx, false);
	polled = op && op->chan->ordered && (op->flags & IOAT_COPY_POLLED);
	rcu_read_unlock();
	return polled;
}

/*
 * Whether a copy that the engine says is done is to be completed.  Errors come with the interrupt,
 * so one that is to come gets its time, together with all others that are done.  Under RCU.
 */
static bool op_settled(struct ic_op *op, dma_cookie_t last, dma_cookie_t used)
{
	struct ic_ctx *ctx = op->ctx;
	struct ic_op *other;
	unsigned long irq, found;

	if (op->flags & IOAT_COPY_POLLED)
		return true;
	spin_lock_irqsave(&ctx->lock, irq);
	found = op->found;
	if (!found) {
		list_for_each_entry(other, &ctx->inflight, link) {
			/* pairs with the release in op_start() */
			if (smp_load_acquire(&other->prepared) && !other->found &&
			    dma_async_is_complete(other->last, last, used) == DMA_COMPLETE)
				other->found = jiffies | 1;
		}
	}
	spin_unlock_irqrestore(&ctx->lock, irq);
	return found && time_after_eq(jiffies, found + CALLBACK_TIME);
}

bool ic_op_ask(struct ic_ctx *ctx)
{
	struct ic_op *op;
	unsigned long irq;

	for (;;) {
		enum dma_status st = DMA_IN_PROGRESS;
		dma_cookie_t last = 0, used = 0;

		rcu_read_lock();
		op = first_running(ctx, false);
		if (op && op->chan->ordered) {
			st = dma_async_is_tx_complete(op->chan->chan, op->last, &last, &used);
			spin_lock_irqsave(&ctx->lock, irq);
			ctx->status_reads++;
			if (last != ctx->last_done) {
				ctx->last_done = last;
				ctx->progress = get_jiffies_64();
			}
			spin_unlock_irqrestore(&ctx->lock, irq);
		}
		if (st == DMA_ERROR)
			atomic_cmpxchg(&op->status, 0, -EIO);
		if (st == DMA_COMPLETE && !op_settled(op, last, used))
			st = DMA_IN_PROGRESS;
		if ((st == DMA_COMPLETE || st == DMA_ERROR) &&
		    atomic_cmpxchg(&op->state, IC_RUNNING, IC_DONE) == IC_RUNNING)
			op_engine_done(op);
		rcu_read_unlock();
		if (!op)
			return false;
		if (st != DMA_COMPLETE && st != DMA_ERROR)
			return true;
	}
}

void ic_op_watch(struct work_struct *work)
{
	struct ic_ctx *ctx = container_of(to_delayed_work(work), struct ic_ctx, watch);
	struct ic_op *op;

	if (!ic_op_ask(ctx))
		return;
	do {
		rcu_read_lock();
		op = first_running(ctx, true);
		if (op)
			op_abandon(op);
		rcu_read_unlock();
	} while (op);
	queue_delayed_work(ic_wq, &ctx->watch, WATCH_DELAY);
}

/* ---- issue ------------------------------------------------------------------------------ */

/* Decide which bytes the engine copies. */
static void op_plan(struct ic_op *op)
{
	struct ic_chan *c = op->ctx->chan;
	unsigned int src_in, dst_in;
	u64 head, len = op->pair.len;

	if (!c || (op->flags & IOAT_COPY_CPU) || atomic_read(&c->zombies) ||
	    (len < ic_min_bytes && !(op->flags & IOAT_COPY_DMA)))
		return;
	/* nobody copies it; a kernel thread says so */
	if (!asyncprog_pair_live(&op->pair))
		return;
	asyncprog_region_pages(op->pair.src, op->pair.src_off, &src_in);
	asyncprog_region_pages(op->pair.dst, op->pair.dst_off, &dst_in);
	if ((src_in ^ dst_in) & (c->align - 1))
		return;
	head = -src_in & (c->align - 1);
	if (len < head + c->align)
		return;
	op->chan = c;
	op->dma_from = head;
	op->dma_end = head + round_down(len - head, c->align);
}

static int map_one(struct ic_op *op, struct ap_region *r, u64 off, struct sg_table *sgt,
		   enum dma_data_direction dir)
{
	u64 len = op->dma_end - op->dma_from;
	unsigned int in, max = op->chan->max_seg;
	struct page **pages = asyncprog_region_pages(r, off + op->dma_from, &in);
	int ret;

	max = max_t(unsigned int, round_down(max, PAGE_SIZE), PAGE_SIZE);
	ret = sg_alloc_table_from_pages_segment(sgt, pages, DIV_ROUND_UP(in + len, PAGE_SIZE), in,
						len, max, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (ret)
		return ret;
	ret = dma_map_sgtable(op->chan->dev, sgt, dir, 0);
	if (ret)
		sg_free_table(sgt);
	return ret;
}

static int op_map(struct ic_op *op)
{
	int ret = map_one(op, op->pair.src, op->pair.src_off, &op->src, DMA_TO_DEVICE);

	if (ret)
		return ret;
	ret = map_one(op, op->pair.dst, op->pair.dst_off, &op->dst, DMA_FROM_DEVICE);
	if (ret) {
		dma_unmap_sgtable(op->chan->dev, &op->src, DMA_TO_DEVICE, 0);
		sg_free_table(&op->src);
		return ret;
	}
	op->mapped = true;
	return 0;
}

/* One descriptor, if the driver has one: 0, -EAGAIN, or another error. */
static int submit_one(struct ic_op *op, dma_addr_t dst, dma_addr_t src, u32 n, bool interrupt)
{
	struct ic_chan *c = op->chan;
	struct dma_async_tx_descriptor *tx;
	unsigned long flags = DMA_CTRL_ACK;
	dma_cookie_t cookie;

	lockdep_assert_held(&c->lock);
	if (!c->ordered || interrupt || c->quiet >= QUIET_MAX)
		flags |= DMA_PREP_INTERRUPT;
	tx = dmaengine_prep_dma_memcpy(c->chan, dst, src, n, flags);
	if (!tx)
		return -EAGAIN;
	tx->callback_result = dma_callback;
	tx->callback_param = (void *)(unsigned long)op->id;
	atomic_inc(&op->left);
	cookie = dmaengine_submit(tx);
	if (dma_submit_error(cookie)) {
		atomic_dec(&op->left);
		return -EIO;
	}
	op->last = cookie;
	c->quiet = flags & DMA_PREP_INTERRUPT ? 0 : c->quiet + 1;
	return 0;
}

/*
 * One descriptor.  A driver that has none left gets some time, with its channel started; one that
 * cannot take the length gets a shorter one, which *@n tells then.  Others of the channel are let
 * in meanwhile, and between two descriptors.
 */
static int prep_one(struct ic_op *op, dma_addr_t dst, dma_addr_t src, u32 *n, u64 rest,
		    bool interrupt)
{
	struct ic_chan *c = op->chan;
	unsigned int tries;

	for (tries = 0; tries < PREP_TRIES; tries++) {
		int ret;

		mutex_lock(&c->lock);
		ret = submit_one(op, dst, src, *n, interrupt && *n == rest);
		mutex_unlock(&c->lock);
		if (ret != -EAGAIN)
			return ret;
		dma_async_issue_pending(c->chan);
		/* a batch may have thousands that wait here */
		if (fatal_signal_pending(current))
			return -EINTR;
		usleep_range(PREP_WAIT_US, 2 * PREP_WAIT_US);
		if (tries >= PREP_TRIES / 2 && *n / 2 >= PAGE_SIZE)
			*n = round_up(*n / 2, c->align);
	}
	return -EBUSY;
}

/* All descriptors; sets how far they reach.  Returns whether the last one interrupts. */
static bool op_prepare(struct ic_op *op, bool interrupt)
{
	struct scatterlist *ssg = op->src.sgl, *dsg = op->dst.sgl;
	u64 rest = op->dma_end - op->dma_from;
	u32 soff = 0, doff = 0;

	while (rest) {
		u32 n = min3(sg_dma_len(ssg) - soff, sg_dma_len(dsg) - doff, op->chan->max_seg);

		n = min_t(u64, n, rest);
		if (prep_one(op, sg_dma_address(dsg) + doff, sg_dma_address(ssg) + soff, &n, rest,
			     interrupt))
			break;
		rest -= n;
		soff += n;
		doff += n;
		if (soff == sg_dma_len(ssg)) {
			ssg = sg_next(ssg);
			soff = 0;
		}
		if (doff == sg_dma_len(dsg)) {
			dsg = sg_next(dsg);
			doff = 0;
		}
	}
	op->dma_end -= rest;
	return interrupt && !rest;
}

static void op_to_cpu(struct ic_op *op)
{
	op->chan = NULL;
	op->dma_from = 0;
	op->dma_end = 0;
	ic_cpu_queue(op);
}

static void count_fallback(struct ic_ctx *ctx)
{
	unsigned long irq;

	spin_lock_irqsave(&ctx->lock, irq);
	ctx->fallbacks++;
	spin_unlock_irqrestore(&ctx->lock, irq);
}

/* Give a planned copy to the engine.  Returns whether it will interrupt after it. */
static bool op_start(struct ic_op *op, bool interrupt)
{
	struct ic_ctx *ctx = op->ctx;
	u64 end = op->dma_end;
	bool interrupts;

	if (op_map(op)) {
		count_fallback(ctx);
		op_to_cpu(op);
		return false;
	}
	if (xa_alloc_cyclic_irq(&dma_ops, &op->id, op, xa_limit_32b, &dma_ops_next,
				GFP_KERNEL) < 0) {
		op_unmap(op);
		count_fallback(ctx);
		op_to_cpu(op);
		return false;
	}
	interrupts = op_prepare(op, interrupt);
	if (op->dma_end < end)
		count_fallback(ctx);
	if (op->dma_end == op->dma_from) {
		/* nothing was taken, so no callback comes */
		op_forget(op);
		op_unmap(op);
		op_to_cpu(op);
		return false;
	}
	op->since = get_jiffies_64();
	/* who finds it prepared may ask for it; a callback may have completed it before */
	smp_store_release(&op->prepared, true);
	rcu_read_lock();
	if (atomic_dec_and_test(&op->left))
		op_done(op);
	rcu_read_unlock();
	return interrupts;
}

void ic_op_issue(struct ic_ctx *ctx)
{
	struct ic_op *op, *next, *last = NULL;
	unsigned long irq;
	bool polled = false, interrupts = false, started = false;

	mutex_lock(&ctx->issue_lock);
	list_for_each_entry(op, &ctx->pending, pending_link) {
		op_plan(op);
		if (op->chan)
			last = op;
	}
	list_for_each_entry_safe(op, next, &ctx->pending, pending_link) {
		bool is_last = op == last;
		bool wants = !(op->flags & IOAT_COPY_POLLED);

		/* it may be gone as soon as it is started */
		list_del(&op->pending_link);
		if (!op->chan) {
			ic_cpu_queue(op);
			continue;
		}
		polled |= is_last && !wants;
		interrupts |= op_start(op, is_last && wants);
		started = true;
	}
	if (started) {
		if (interrupts) {
			spin_lock_irqsave(&ctx->lock, irq);
			ctx->interrupts++;
			spin_unlock_irqrestore(&ctx->lock, irq);
		}
		dma_async_issue_pending(ctx->chan->chan);
		/* without an interrupt for what was started, ask soon; never put it off */
		if (interrupts || polled || !ctx->chan->ordered)
			queue_delayed_work(ic_wq, &ctx->watch, WATCH_DELAY);
		else
			mod_delayed_work(ic_wq, &ctx->watch, 1);
	}
	mutex_unlock(&ctx->issue_lock);
}

/* ---- submission ------------------------------------------------------------------------- */

int ic_op_submit(struct ic_ctx *ctx, const struct asyncprog_copy *ops, u32 nops, u32 flags,
		 u64 *seq)
{
	struct ic_op *op, *next;
	unsigned long irq;
	LIST_HEAD(list);
	u32 i;
	int ret;

	for (i = 0; i < nops; i++) {
		op = kzalloc(sizeof(*op), GFP_KERNEL_ACCOUNT);
		if (!op) {
			ret = -ENOMEM;
			goto unwind;
		}
		ret = asyncprog_pair_get(ctx->file, &ops[i], &op->pair);
		if (ret) {
			kfree(op);
			goto unwind;
		}
		op->ctx = ctx;
		op->cookie = ops[i].cookie;
		op->flags = flags;
		atomic_set(&op->state, IC_RUNNING);
		atomic_set(&op->left, 1);
		list_add_tail(&op->pending_link, &list);
	}
	ret = asyncprog_ring_reserve(ctx->ring, nops);
	if (ret)
		goto unwind;

	mutex_lock(&ctx->issue_lock);
	spin_lock_irqsave(&ctx->lock, irq);
	list_for_each_entry(op, &list, pending_link) {
		kref_get(&ctx->ref);
		op->seq = ++ctx->submitted;
		trace_ioat_copy_submit(op->cookie, op->seq, op->pair.len);
		list_add_tail(&op->link, &ctx->inflight);
	}
	*seq = ctx->submitted;
	spin_unlock_irqrestore(&ctx->lock, irq);
	list_splice_tail(&list, &ctx->pending);
	mutex_unlock(&ctx->issue_lock);
	return 0;

unwind:
	list_for_each_entry_safe(op, next, &list, pending_link) {
		asyncprog_pair_put(&op->pair);
		kfree(op);
	}
	return ret;
}

void ic_op_cancel(struct ic_ctx *ctx)
{
	struct ic_op *op, *next;

	mutex_lock(&ctx->issue_lock);
	list_for_each_entry_safe(op, next, &ctx->pending, pending_link) {
		list_del(&op->pending_link);
		op_complete(op, -ECANCELED);
	}
	mutex_unlock(&ctx->issue_lock);
}

void ic_op_exit(void)
{
	WARN_ON(!xa_empty(&dma_ops) || !list_empty(&zombies));
	xa_destroy(&dma_ops);
}

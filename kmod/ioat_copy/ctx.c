// SPDX-License-Identifier: GPL-2.0-only
/*
 * Contexts: one per open file, which live until the last of their copies has completed.
 */
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/slab.h>

#include "internal.h"

struct workqueue_struct *ic_wq;

static void ctx_free_work(struct work_struct *work)
{
	struct ic_ctx *ctx = container_of(work, struct ic_ctx, free_work);

	asyncprog_ring_destroy(ctx->ring);
	if (ctx->file)
		fput(ctx->file);
	ic_cpu_user_put(ctx->sharer);
	kfree(ctx);
}

/* a work, because the last copy may complete in an interrupt */
static void ctx_release(struct kref *ref)
{
	queue_work(ic_wq, &container_of(ref, struct ic_ctx, ref)->free_work);
}

void ic_ctx_put(struct ic_ctx *ctx)
{
	kref_put(&ctx->ref, ctx_release);
}

struct ic_ctx *ic_ctx_new(void)
{
	struct ic_ctx *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);

	if (!ctx)
		return NULL;
	ctx->sharer = ic_cpu_user_get(current_euid());
	if (!ctx->sharer) {
		kfree(ctx);
		return NULL;
	}
	kref_init(&ctx->ref);
	INIT_WORK(&ctx->free_work, ctx_free_work);
	init_waitqueue_head(&ctx->wait);
	mutex_init(&ctx->issue_lock);
	INIT_LIST_HEAD(&ctx->pending);
	spin_lock_init(&ctx->lock);
	INIT_LIST_HEAD(&ctx->inflight);
	return ctx;
}

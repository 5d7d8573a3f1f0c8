// SPDX-License-Identifier: GPL-2.0-only
/*
 * Contexts: one per open file, and who may use the regions of whom.
 */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "internal.h"

static void ctx_free(struct kref *ref)
{
	struct ap_ctx *ctx = container_of(ref, struct ap_ctx, ref);

	asyncprog_ring_destroy(ctx->ring);
	asyncprog_fair_user_put(&ap_copy_queue, ctx->sharer);
	vfree(ctx->marks);
	kfree(ctx);
}

void ap_ctx_put(struct ap_ctx *ctx)
{
	kref_put(&ctx->ref, ctx_free);
}

struct ap_ctx *ap_ctx_new(void)
{
	struct ap_ctx *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);

	if (!ctx)
		return NULL;
	ctx->marks = vmalloc_user(AP_MARKS_SIZE);
	if (!ctx->marks)
		goto free;
	ctx->opener = current_euid();
	ctx->sharer = asyncprog_fair_user_get(&ap_copy_queue, ctx->opener);
	if (!ctx->sharer)
		goto marks;
	ctx->marks->nslots = AP_CTX_REGIONS;
	kref_init(&ctx->ref);
	mutex_init(&ctx->lock);
	spin_lock_init(&ctx->mark_lock);
	INIT_LIST_HEAD(&ctx->regions);
	mutex_init(&ctx->attach_lock);
	INIT_LIST_HEAD(&ctx->attached);
	init_waitqueue_head(&ctx->wait);
	return ctx;

marks:
	vfree(ctx->marks);
free:
	kfree(ctx);
	return NULL;
}

bool ap_ctx_attached(struct ap_ctx *ctx, const struct ap_ctx *other)
{
	struct ap_attached *a;
	bool found = false;

	mutex_lock(&ctx->attach_lock);
	list_for_each_entry(a, &ctx->attached, link) {
		if (a->ctx == other) {
			found = true;
			break;
		}
	}
	mutex_unlock(&ctx->attach_lock);
	return found;
}

static void attached_free(struct ap_ctx *ctx, struct ap_attached *a)
{
	list_del(&a->link);
	ctx->nattached--;
	ap_ctx_put(a->ctx);
	kfree(a);
}

/* Also takes out those whose files are gone. */
int ap_ctx_attach(struct ap_ctx *ctx, struct ap_ctx *other)
{
	struct ap_attached *a, *next, *new;
	int ret = 0;

	new = kmalloc(sizeof(*new), GFP_KERNEL_ACCOUNT);
	if (!new)
		return -ENOMEM;
	mutex_lock(&ctx->attach_lock);
	list_for_each_entry_safe(a, next, &ctx->attached, link) {
		if (a->ctx == other)
			goto unlock;
		if (READ_ONCE(a->ctx->closing))
			attached_free(ctx, a);
	}
	if (ctx->nattached == ASYNCPROG_MAX_ATTACHED) {
		ret = -ENOSPC;
		goto unlock;
	}
	kref_get(&other->ref);
	new->ctx = other;
	list_add(&new->link, &ctx->attached);
	ctx->nattached++;
	new = NULL;
unlock:
	mutex_unlock(&ctx->attach_lock);
	kfree(new);
	return ret;
}

void ap_ctx_detach_all(struct ap_ctx *ctx)
{
	struct ap_attached *a, *next;

	mutex_lock(&ctx->attach_lock);
	list_for_each_entry_safe(a, next, &ctx->attached, link)
		attached_free(ctx, a);
	mutex_unlock(&ctx->attach_lock);
}

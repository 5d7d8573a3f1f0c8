// SPDX-License-Identifier: GPL-2.0-only
/*
 * DMA channels: taken with the first open file, given back with the last, so that an engine's
 * driver can be loaded and removed as long as nobody copies.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "internal.h"

#define MAX_CHANNELS	64

static unsigned int channels = 8;
module_param(channels, uint, 0444);
MODULE_PARM_DESC(channels, "DMA channels to take at most, 0 for none (default 8)");

static char *engine;
module_param(engine, charp, 0444);
MODULE_PARM_DESC(engine, "take only channels whose device name begins so, e.g. 0000:00:04 (default: all)");

static int node = NUMA_NO_NODE;
module_param(node, int, 0444);
MODULE_PARM_DESC(node, "take only channels of this NUMA node (default -1: all)");

static unsigned int align;
module_param(align, uint, 0444);
MODULE_PARM_DESC(align, "bytes, a power of two: alignment of copies, besides what the driver demands; 0: a cache line for DMA that is not coherent with caches (default 0)");

static DEFINE_MUTEX(chan_lock);		/* everything below */
static struct ic_chan *chans[MAX_CHANNELS];
static unsigned int nchans;
static unsigned int users;
static bool public_users;		/* dmaengine_get() was called */
static unsigned int turn;

static u32 chan_align(struct dma_chan *chan)
{
	struct device *dev = dmaengine_get_dma_device(chan);
	u32 bytes = 1U << chan->device->copy_align;

	/* what a processor writes beside a copy must not be in a line that the copy invalidates */
	if (align)
		return max(bytes, align);
	return dev_is_dma_coherent(dev) ? bytes : max_t(u32, bytes, dma_get_cache_alignment());
}

static bool chan_wanted(struct dma_chan *chan, void *param)
{
	struct device *dev = chan->device->dev;
	u32 bytes = chan_align(chan);

	if (!chan->device->device_prep_dma_memcpy || !chan->device->device_tx_status)
		return false;
	/* alignment is told by the offset in a page, and a piece is at least so long */
	if (bytes > PAGE_SIZE || dma_get_max_seg_size(dmaengine_get_dma_device(chan)) < bytes)
		return false;
	if (engine && strncmp(dev_name(dev), engine, strlen(engine)))
		return false;
	return node == NUMA_NO_NODE || dev_to_node(dev) == node;
}

static int chan_add(struct dma_chan *chan, bool public)
{
	struct ic_chan *c = kzalloc(sizeof(*c), GFP_KERNEL);

	if (!c)
		return -ENOMEM;
	c->chan = chan;
	c->dev = dmaengine_get_dma_device(chan);
	c->public = public;
	c->ordered = !dma_has_cap(DMA_COMPLETION_NO_ORDER, chan->device->cap_mask);
	c->align = chan_align(chan);
	c->max_seg = round_down(dma_get_max_seg_size(c->dev), c->align);
	mutex_init(&c->lock);
	chans[nchans++] = c;
	return 0;
}

int ic_chan_init(void)
{
	if (!align || (is_power_of_2(align) && align <= PAGE_SIZE))
		return 0;
	pr_err("ioat_copy: align=%u: neither 0 nor a power of two up to %lu\n", align, PAGE_SIZE);
	return -EINVAL;
}

/* Channels of our own, or else the one that the kernel's users share. */
static void take_channels(void)
{
	dma_cap_mask_t mask;
	struct dma_chan *chan;

	lockdep_assert_held(&chan_lock);
	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	while (nchans < min_t(unsigned int, channels, MAX_CHANNELS)) {
		chan = dma_request_channel(mask, chan_wanted, NULL);
		if (!chan)
			break;
		if (chan_add(chan, false)) {
			dma_release_channel(chan);
			break;
		}
	}
	if (nchans || !channels)
		return;
	dmaengine_get();
	chan = dma_find_channel(DMA_MEMCPY);
	if (chan && chan_wanted(chan, NULL) && !chan_add(chan, true))
		public_users = true;
	else
		dmaengine_put();
}

/*
 * What an engine still may write stays as it is: neither its pages nor its driver can go.  One of
 * our own can be stopped first.
 */
static void give_channels(void)
{
	unsigned int i, kept = 0;

	lockdep_assert_held(&chan_lock);
	for (i = 0; i < nchans; i++) {
		struct ic_chan *c = chans[i];

		if (atomic_read(&c->zombies) && !c->public && !dmaengine_terminate_sync(c->chan))
			ic_op_reap(c);
		if (atomic_read(&c->zombies)) {
			pr_warn("ioat_copy: %s: %d copies have never completed: it is not given back\n",
				dma_chan_name(c->chan), atomic_read(&c->zombies));
			chans[kept++] = c;
			continue;
		}
		if (!c->public)
			dma_release_channel(c->chan);
		kfree_rcu(c, rcu);
	}
	nchans = kept;
	if (public_users && !kept) {
		dmaengine_put();
		public_users = false;
	}
}

void ic_chan_get_all(void)
{
	mutex_lock(&chan_lock);
	/* also when there were none before: the engine's driver may have come since */
	users++;
	if (users == 1 || !nchans)
		take_channels();
	mutex_unlock(&chan_lock);
}

void ic_chan_put_all(void)
{
	mutex_lock(&chan_lock);
	if (--users == 0)
		give_channels();
	mutex_unlock(&chan_lock);
}

struct ic_chan *ic_chan_pick(void)
{
	struct ic_chan *best = NULL;
	unsigned int i;

	mutex_lock(&chan_lock);
	for (i = 0; i < nchans; i++) {
		struct ic_chan *c = chans[(turn + i) % nchans];
		int at = dev_to_node(c->dev);

		if (atomic_read(&c->zombies))
			continue;
		if (!best)
			best = c;
		if (at == NUMA_NO_NODE || at == numa_node_id()) {
			best = c;
			break;
		}
	}
	turn++;
	mutex_unlock(&chan_lock);
	return best;
}

u32 ic_chan_count(void)
{
	u32 n;

	mutex_lock(&chan_lock);
	n = nchans;
	mutex_unlock(&chan_lock);
	return n;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * A DMA engine in software, for tests: it copies with a CPU, takes as long as it is told, and can
 * be told to misbehave.  As hardware does, it calls back for a copy that asked for no interrupt
 * only with the next one that did.
 */
#include <linux/delay.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

static unsigned int channels = 2;
module_param(channels, uint, 0444);
MODULE_PARM_DESC(channels, "channels");

static unsigned int copy_align;
module_param(copy_align, uint, 0444);
MODULE_PARM_DESC(copy_align, "log2 of the alignment that copies must have");

static unsigned int max_seg = 65536;
module_param(max_seg, uint, 0444);
MODULE_PARM_DESC(max_seg, "longest copy, bytes; longer ones are refused");

static bool no_order;
module_param(no_order, bool, 0444);
MODULE_PARM_DESC(no_order, "say that copies complete out of order, and do so");

static unsigned int delay_us;
module_param(delay_us, uint, 0644);
MODULE_PARM_DESC(delay_us, "a copy takes so long");

static unsigned int error_nth;
module_param(error_nth, uint, 0644);
MODULE_PARM_DESC(error_nth, "every so manieth copy fails");

static bool give_up;
module_param(give_up, bool, 0644);
MODULE_PARM_DESC(give_up, "a copy that fails was given up, instead of having failed to write");

static unsigned int lose_nth;
module_param(lose_nth, uint, 0644);
MODULE_PARM_DESC(lose_nth, "every so manieth copy never completes, until lost is written");

static unsigned int mute_nth;
module_param(mute_nth, uint, 0644);
MODULE_PARM_DESC(mute_nth, "every so manieth interrupt is lost");

static unsigned int null_nth;
module_param(null_nth, uint, 0644);
MODULE_PARM_DESC(null_nth, "every so manieth preparation gives nothing");

static unsigned int descs = 256;
module_param(descs, uint, 0644);
MODULE_PARM_DESC(descs, "descriptors of a channel");

static int get_count(char *buf, const struct kernel_param *kp)
{
	return sysfs_emit(buf, "%d\n", atomic_read((atomic_t *)kp->arg));
}

static const struct kernel_param_ops count_ops = {
	.get = get_count,
};

static atomic_t copies;
module_param_cb(copies, &count_ops, &copies, 0444);
MODULE_PARM_DESC(copies, "copies done");

static atomic_t interrupts;
module_param_cb(interrupts, &count_ops, &interrupts, 0444);
MODULE_PARM_DESC(interrupts, "interrupts raised");

static atomic_t errors;
module_param_cb(bad, &count_ops, &errors, 0444);
MODULE_PARM_DESC(bad, "copies that were not what this engine can do");

struct prov_desc {
	struct dma_async_tx_descriptor tx;
	struct list_head link;
	dma_addr_t dst;
	dma_addr_t src;
	size_t len;
	bool failed;
};

struct prov_chan {
	struct dma_chan chan;
	spinlock_t lock;		/* the lists, cookies */
	struct list_head submitted;
	struct list_head issued;
	struct list_head done;		/* no interrupt yet */
	struct list_head lost;
	unsigned int used;		/* descriptors */
	struct work_struct work;
};

static struct platform_device *pdev;
static struct dma_device prov;
static struct prov_chan *chans;
static struct workqueue_struct *wq;
static atomic_t prepared, copied, raised;

static struct prov_chan *to_prov(struct dma_chan *chan)
{
	return container_of(chan, struct prov_chan, chan);
}

static bool nth(atomic_t *count, unsigned int n)
{
	return n && (unsigned int)atomic_inc_return(count) % n == 0;
}

/* cookies as drivers/dma/dmaengine.h has them, which is not for modules outside of the tree */
static dma_cookie_t prov_submit(struct dma_async_tx_descriptor *tx)
{
	struct prov_chan *c = to_prov(tx->chan);
	struct prov_desc *d = container_of(tx, struct prov_desc, tx);
	unsigned long irq;

	spin_lock_irqsave(&c->lock, irq);
	tx->cookie = c->chan.cookie + 1 < DMA_MIN_COOKIE ? DMA_MIN_COOKIE : c->chan.cookie + 1;
	c->chan.cookie = tx->cookie;
	list_add_tail(&d->link, &c->submitted);
	spin_unlock_irqrestore(&c->lock, irq);
	return tx->cookie;
}

static struct dma_async_tx_descriptor *prov_prep(struct dma_chan *chan, dma_addr_t dst,
						 dma_addr_t src, size_t len, unsigned long flags)
{
	struct prov_chan *c = to_prov(chan);
	struct prov_desc *d;
	unsigned long irq;
	bool room;

	if (nth(&prepared, null_nth))
		return NULL;
	if (len > max_seg)
		return NULL;
	if (!len || !is_dma_copy_aligned(chan->device, src, dst, len))
		atomic_inc(&errors);
	spin_lock_irqsave(&c->lock, irq);
	room = c->used < descs;
	if (room)
		c->used++;
	spin_unlock_irqrestore(&c->lock, irq);
	if (!room)
		return NULL;
	d = kzalloc(sizeof(*d), GFP_NOWAIT);
	if (!d) {
		spin_lock_irqsave(&c->lock, irq);
		c->used--;
		spin_unlock_irqrestore(&c->lock, irq);
		return NULL;
	}
	dma_async_tx_descriptor_init(&d->tx, chan);
	d->tx.tx_submit = prov_submit;
	d->tx.flags = flags;
	d->dst = dst;
	d->src = src;
	d->len = len;
	return &d->tx;
}

static void prov_issue(struct dma_chan *chan)
{
	struct prov_chan *c = to_prov(chan);
	unsigned long irq;

	spin_lock_irqsave(&c->lock, irq);
	list_splice_tail_init(&c->submitted, &c->issued);
	if (!list_empty(&c->issued))
		queue_work(wq, &c->work);
	spin_unlock_irqrestore(&c->lock, irq);
}

static enum dma_status prov_status(struct dma_chan *chan, dma_cookie_t cookie,
				   struct dma_tx_state *state)
{
	struct prov_chan *c = to_prov(chan);
	dma_cookie_t last, used;
	unsigned long irq;

	spin_lock_irqsave(&c->lock, irq);
	last = chan->completed_cookie;
	used = chan->cookie;
	spin_unlock_irqrestore(&c->lock, irq);
	dma_set_tx_state(state, last, used, 0);
	return no_order ? DMA_OUT_OF_ORDER : dma_async_is_complete(cookie, last, used);
}

/* The interrupt: callbacks of what is done, as a tasklet would make them. */
static void prov_call_back(struct prov_chan *c, struct list_head *list)
{
	struct prov_desc *d, *next;

	list_for_each_entry_safe(d, next, list, link) {
		struct dmaengine_result result = {
			.result = !d->failed ? DMA_TRANS_NOERROR :
				  give_up ? DMA_TRANS_ABORTED : DMA_TRANS_WRITE_FAILED,
		};
		dma_async_tx_callback_result callback = d->tx.callback_result;
		unsigned long irq;

		local_bh_disable();
		if (callback)
			callback(d->tx.callback_param, &result);
		local_bh_enable();
		spin_lock_irqsave(&c->lock, irq);
		c->used--;
		spin_unlock_irqrestore(&c->lock, irq);
		kfree(d);
	}
}

static void prov_copy(struct prov_desc *d)
{
	void *dst = phys_to_virt(dma_to_phys(&pdev->dev, d->dst));
	void *src = phys_to_virt(dma_to_phys(&pdev->dev, d->src));

	if (delay_us)
		usleep_range(delay_us, delay_us + delay_us / 16);
	d->failed = nth(&copied, error_nth);
	if (d->failed)
		return;
	memcpy(dst, src, d->len);
	atomic_inc(&copies);
}

/* One descriptor a time. */
static void prov_work(struct work_struct *work)
{
	struct prov_chan *c = container_of(work, struct prov_chan, work);
	static atomic_t lose;
	struct prov_desc *d;
	unsigned long irq;
	LIST_HEAD(call);

	spin_lock_irqsave(&c->lock, irq);
	d = NULL;
	if (!list_empty(&c->issued)) {
		d = no_order ? list_last_entry(&c->issued, struct prov_desc, link) :
			       list_first_entry(&c->issued, struct prov_desc, link);
		list_del_init(&d->link);
	}
	spin_unlock_irqrestore(&c->lock, irq);
	if (!d)
		return;

	if (nth(&lose, lose_nth)) {
		spin_lock_irqsave(&c->lock, irq);
		list_add_tail(&d->link, &c->lost);
		spin_unlock_irqrestore(&c->lock, irq);
	} else {
		prov_copy(d);
		spin_lock_irqsave(&c->lock, irq);
		/* a lost one before it keeps those after it from being told complete */
		if (list_empty(&c->lost))
			c->chan.completed_cookie = d->tx.cookie;
		list_add_tail(&d->link, &c->done);
		if ((d->tx.flags & DMA_PREP_INTERRUPT) && !nth(&raised, mute_nth)) {
			atomic_inc(&interrupts);
			list_splice_init(&c->done, &call);
		}
		spin_unlock_irqrestore(&c->lock, irq);
		prov_call_back(c, &call);
	}

	spin_lock_irqsave(&c->lock, irq);
	if (!list_empty(&c->issued))
		queue_work(wq, &c->work);
	spin_unlock_irqrestore(&c->lock, irq);
}

/* Writing anything: the lost copies complete after all. */
static int find_lost(const char *val, const struct kernel_param *kp)
{
	unsigned int i;

	for (i = 0; i < channels; i++) {
		struct prov_chan *c = &chans[i];
		struct prov_desc *d;
		unsigned long irq;
		LIST_HEAD(call);

		spin_lock_irqsave(&c->lock, irq);
		list_splice_init(&c->lost, &call);
		list_for_each_entry(d, &call, link)
			c->chan.completed_cookie = max(c->chan.completed_cookie, d->tx.cookie);
		list_splice_tail_init(&c->done, &call);
		spin_unlock_irqrestore(&c->lock, irq);
		list_for_each_entry(d, &call, link)
			c->chan.completed_cookie = max(c->chan.completed_cookie, d->tx.cookie);
		prov_call_back(c, &call);
	}
	return 0;
}

static const struct kernel_param_ops lost_ops = {
	.set = find_lost,
};

module_param_cb(lost, &lost_ops, NULL, 0200);
MODULE_PARM_DESC(lost, "written: lost copies complete");

static int prov_terminate(struct dma_chan *chan)
{
	struct prov_chan *c = to_prov(chan);
	struct prov_desc *d, *next;
	unsigned long irq;
	LIST_HEAD(all);

	spin_lock_irqsave(&c->lock, irq);
	list_splice_init(&c->submitted, &all);
	list_splice_init(&c->issued, &all);
	list_splice_init(&c->done, &all);
	list_splice_init(&c->lost, &all);
	c->chan.completed_cookie = c->chan.cookie;
	spin_unlock_irqrestore(&c->lock, irq);
	list_for_each_entry_safe(d, next, &all, link) {
		spin_lock_irqsave(&c->lock, irq);
		c->used--;
		spin_unlock_irqrestore(&c->lock, irq);
		kfree(d);
	}
	return 0;
}

static void prov_synchronize(struct dma_chan *chan)
{
	flush_work(&to_prov(chan)->work);
}

static int prov_alloc(struct dma_chan *chan)
{
	chan->cookie = DMA_MIN_COOKIE;
	chan->completed_cookie = DMA_MIN_COOKIE;
	return 1;
}

static void prov_free(struct dma_chan *chan)
{
	prov_terminate(chan);
	cancel_work_sync(&to_prov(chan)->work);
}

static int __init prov_probe(struct platform_device *dev)
{
	unsigned int i;
	int ret;

	ret = dma_coerce_mask_and_coherent(&dev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	dma_set_max_seg_size(&dev->dev, max_seg);
	pdev = dev;

	INIT_LIST_HEAD(&prov.channels);
	dma_cap_set(DMA_MEMCPY, prov.cap_mask);
	if (no_order)
		dma_cap_set(DMA_COMPLETION_NO_ORDER, prov.cap_mask);
	prov.dev = &dev->dev;
	prov.copy_align = copy_align;
	prov.directions = BIT(DMA_MEM_TO_MEM);
	prov.device_alloc_chan_resources = prov_alloc;
	prov.device_free_chan_resources = prov_free;
	prov.device_prep_dma_memcpy = prov_prep;
	prov.device_issue_pending = prov_issue;
	prov.device_tx_status = prov_status;
	prov.device_terminate_all = prov_terminate;
	prov.device_synchronize = prov_synchronize;
	for (i = 0; i < channels; i++) {
		struct prov_chan *c = &chans[i];

		spin_lock_init(&c->lock);
		INIT_LIST_HEAD(&c->submitted);
		INIT_LIST_HEAD(&c->issued);
		INIT_LIST_HEAD(&c->done);
		INIT_LIST_HEAD(&c->lost);
		INIT_WORK(&c->work, prov_work);
		c->chan.device = &prov;
		list_add_tail(&c->chan.device_node, &prov.channels);
	}
	return dma_async_device_register(&prov);
}

static struct platform_driver prov_driver = {
	.driver = {
		.name = "dmaprov",
	},
};

static int __init prov_init(void)
{
	struct platform_device *dev;

	wq = alloc_workqueue("dmaprov", WQ_UNBOUND, 0);
	if (!wq)
		return -ENOMEM;
	chans = kcalloc(channels, sizeof(*chans), GFP_KERNEL);
	if (!chans) {
		destroy_workqueue(wq);
		return -ENOMEM;
	}
	dev = platform_create_bundle(&prov_driver, prov_probe, NULL, 0, NULL, 0);
	if (IS_ERR(dev)) {
		kfree(chans);
		destroy_workqueue(wq);
		return PTR_ERR(dev);
	}
	return 0;
}

static void __exit prov_exit(void)
{
	dma_async_device_unregister(&prov);
	platform_device_unregister(pdev);
	platform_driver_unregister(&prov_driver);
	destroy_workqueue(wq);
	kfree(chans);
}

module_init(prov_init);
module_exit(prov_exit);

MODULE_AUTHOR("The asyncprog developers");
MODULE_DESCRIPTION("dmaprov: a DMA engine in software, for tests");
MODULE_LICENSE("GPL");

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Generic netlink family "asyncprog": statistics, limits, events.
 */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <net/genetlink.h>

#include "compat.h"
#include "internal.h"

static struct genl_family family;

enum {
	GROUP_EVENTS,
};

static const struct genl_multicast_group groups[] = {
	[GROUP_EVENTS] = { .name = ASYNCPROG_GENL_EVENTS, .flags = AP_GENL_GROUP_ADMIN },
};

static int put_u64(struct sk_buff *msg, int attr, u64 value)
{
	return nla_put_u64_64bit(msg, attr, value, ASYNCPROG_ATTR_PAD);
}

static int put_stats(struct sk_buff *msg)
{
	static const struct {
		int attr;
		atomic64_t *count;
	} counts[] = {
		{ ASYNCPROG_ATTR_REGIONS, &ap_stats.regions },
		{ ASYNCPROG_ATTR_REGISTERED, &ap_stats.registered },
		{ ASYNCPROG_ATTR_REFUSED, &ap_stats.refused },
		{ ASYNCPROG_ATTR_STALED, &ap_stats.staled },
		{ ASYNCPROG_ATTR_GONE, &ap_stats.gone },
		{ ASYNCPROG_ATTR_COPIES, &ap_stats.copies },
		{ ASYNCPROG_ATTR_COPY_BYTES, &ap_stats.copy_bytes },
		{ ASYNCPROG_ATTR_COPY_ERRORS, &ap_stats.copy_errors },
		{ ASYNCPROG_ATTR_FAULTS, &ap_stats.faults },
	};
	struct ap_limits limits;
	size_t i;

	ap_account_limits(&limits);
	if (nla_put_string(msg, ASYNCPROG_ATTR_VERSION, AP_VERSION) ||
	    put_u64(msg, ASYNCPROG_ATTR_BYTES, ap_account_total() << PAGE_SHIFT) ||
	    put_u64(msg, ASYNCPROG_ATTR_MAX_BYTES, limits.max_pages << PAGE_SHIFT) ||
	    put_u64(msg, ASYNCPROG_ATTR_UID_MAX_BYTES, limits.uid_max_pages << PAGE_SHIFT) ||
	    put_u64(msg, ASYNCPROG_ATTR_UID_MAX_REGIONS, limits.uid_max_regions))
		return -EMSGSIZE;
	for (i = 0; i < ARRAY_SIZE(counts); i++) {
		if (put_u64(msg, counts[i].attr, atomic64_read(counts[i].count)))
			return -EMSGSIZE;
	}
	return 0;
}

static int do_stats(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *msg = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	void *hdr;

	if (!msg)
		return -ENOMEM;
	hdr = genlmsg_put_reply(msg, info, &family, 0, ASYNCPROG_CMD_STATS);
	if (!hdr || put_stats(msg)) {
		nlmsg_free(msg);
		return -EMSGSIZE;
	}
	genlmsg_end(msg, hdr);
	return genlmsg_reply(msg, info);
}

static u64 limit_pages(struct nlattr *attr, u64 old)
{
	return attr ? nla_get_u64(attr) >> PAGE_SHIFT : old;
}

static int do_limits(struct sk_buff *skb, struct genl_info *info)
{
	struct ap_limits limits;

	ap_account_limits(&limits);
	limits.max_pages = limit_pages(info->attrs[ASYNCPROG_ATTR_MAX_BYTES], limits.max_pages);
	limits.uid_max_pages = limit_pages(info->attrs[ASYNCPROG_ATTR_UID_MAX_BYTES],
					   limits.uid_max_pages);
	if (info->attrs[ASYNCPROG_ATTR_UID_MAX_REGIONS])
		limits.uid_max_regions = nla_get_u64(info->attrs[ASYNCPROG_ATTR_UID_MAX_REGIONS]);
	ap_account_set_limits(&limits);
	return 0;
}

static void *dump_hdr(struct sk_buff *skb, struct netlink_callback *cb, u8 cmd)
{
	return genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &family,
			   NLM_F_MULTI, cmd);
}

/* args[0]: users told, or left out: others are no business of who is not privileged */
static int dump_uids(struct sk_buff *skb, struct netlink_callback *cb)
{
	bool all = netlink_capable(cb->skb, CAP_NET_ADMIN);
	struct ap_uid_stat stat;

	for (; ap_account_nth(cb->args[0], &stat); cb->args[0]++) {
		void *hdr;

		if (!all && !uid_eq(stat.uid, NETLINK_CREDS(cb->skb)->uid))
			continue;
		hdr = dump_hdr(skb, cb, ASYNCPROG_CMD_UIDS);
		if (!hdr)
			break;
		if (nla_put_u32(skb, ASYNCPROG_ATTR_UID, from_kuid(&init_user_ns, stat.uid)) ||
		    put_u64(skb, ASYNCPROG_ATTR_BYTES, stat.pages << PAGE_SHIFT) ||
		    put_u64(skb, ASYNCPROG_ATTR_REGIONS, stat.regions)) {
			genlmsg_cancel(skb, hdr);
			break;
		}
		genlmsg_end(skb, hdr);
	}
	return skb->len;
}

static int put_region(struct sk_buff *skb, const struct ap_region *r)
{
	u32 state = atomic_read(&r->state) == AP_LIVE ? ASYNCPROG_STATE_LIVE :
							ASYNCPROG_STATE_STALE;

	if (put_u64(skb, ASYNCPROG_ATTR_HANDLE, r->handle) ||
	    nla_put_u32(skb, ASYNCPROG_ATTR_UID, from_kuid(&init_user_ns, r->uid)) ||
	    nla_put_u32(skb, ASYNCPROG_ATTR_PID, pid_nr(r->pid)) ||
	    nla_put_u32(skb, ASYNCPROG_ATTR_STATE, state) ||
	    nla_put_u32(skb, ASYNCPROG_ATTR_ACCESS, r->access) ||
	    put_u64(skb, ASYNCPROG_ATTR_BYTES, r->length) ||
	    put_u64(skb, ASYNCPROG_ATTR_COPIES, atomic64_read(&r->copies)) ||
	    put_u64(skb, ASYNCPROG_ATTR_COPY_BYTES, atomic64_read(&r->copy_bytes)))
		return -EMSGSIZE;
	return 0;
}

/* args[0]: table index of the last region told */
static int dump_regions(struct sk_buff *skb, struct netlink_callback *cb)
{
	unsigned long index = cb->args[0];
	struct ap_region *r;

	while ((r = ap_region_next(&index))) {
		void *hdr = dump_hdr(skb, cb, ASYNCPROG_CMD_REGIONS);
		int ret = hdr ? put_region(skb, r) : -EMSGSIZE;

		ap_region_put(r);
		if (ret) {
			if (hdr)
				genlmsg_cancel(skb, hdr);
			break;
		}
		genlmsg_end(skb, hdr);
		cb->args[0] = index;
	}
	return skb->len;
}

void ap_netlink_event(u32 event, kuid_t uid, u64 handle, u64 bytes)
{
	struct sk_buff *msg;
	void *hdr;

	if (!genl_has_listeners(&family, &init_net, GROUP_EVENTS))
		return;
	msg = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!msg)
		return;
	hdr = genlmsg_put(msg, 0, 0, &family, 0, ASYNCPROG_CMD_EVENT);
	if (!hdr || nla_put_u32(msg, ASYNCPROG_ATTR_EVENT, event) ||
	    nla_put_u32(msg, ASYNCPROG_ATTR_UID, from_kuid(&init_user_ns, uid)) ||
	    put_u64(msg, ASYNCPROG_ATTR_BYTES, bytes) ||
	    (handle && put_u64(msg, ASYNCPROG_ATTR_HANDLE, handle))) {
		nlmsg_free(msg);
		return;
	}
	genlmsg_end(msg, hdr);
	genlmsg_multicast(&family, msg, 0, GROUP_EVENTS, GFP_KERNEL);
}

static const struct nla_policy policy[ASYNCPROG_ATTR_MAX + 1] = {
	[ASYNCPROG_ATTR_MAX_BYTES] = { .type = NLA_U64 },
	[ASYNCPROG_ATTR_UID_MAX_BYTES] = { .type = NLA_U64 },
	[ASYNCPROG_ATTR_UID_MAX_REGIONS] = { .type = NLA_U64 },
};

static const struct genl_small_ops ops[] = {
	{
		.cmd = ASYNCPROG_CMD_STATS,
		.doit = do_stats,
	},
	{
		.cmd = ASYNCPROG_CMD_UIDS,
		.dumpit = dump_uids,
	},
	{
		.cmd = ASYNCPROG_CMD_REGIONS,
		.flags = GENL_ADMIN_PERM,
		.dumpit = dump_regions,
	},
	{
		.cmd = ASYNCPROG_CMD_LIMITS,
		.flags = GENL_ADMIN_PERM,
		.doit = do_limits,
	},
};

static struct genl_family family = {
	.name = ASYNCPROG_GENL_NAME,
	.version = ASYNCPROG_GENL_VERSION,
	.module = THIS_MODULE,
	.maxattr = ASYNCPROG_ATTR_MAX,
	.policy = policy,
	.small_ops = ops,
	.n_small_ops = ARRAY_SIZE(ops),
	.resv_start_op = ASYNCPROG_CMD_EVENT,
	.mcgrps = groups,
	.n_mcgrps = ARRAY_SIZE(groups),
};

int ap_netlink_init(void)
{
	return genl_register_family(&family);
}

void ap_netlink_exit(void)
{
	genl_unregister_family(&family);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Generic netlink: statistics, dumps, limits, events.
 */
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include "kmodtest.h"

#define LEN	(16 * PAGE)

/* the attributes of the last message that came, and how many came */
struct answer {
	uint64_t value[ASYNCPROG_ATTR_MAX + 1];
	bool given[ASYNCPROG_ATTR_MAX + 1];
	int messages;
	uint64_t wanted;		/* dumps: look for this handle or uid */
	bool found;
	uint64_t found_bytes;
	int cmd;
};

FIXTURE(netlink)
{
	int fd;
	uint8_t *mem;
	struct nl_sock *sk;
	int family;
	struct answer ans;
};

static int on_message(struct nl_msg *msg, void *arg)
{
	struct answer *ans = arg;
	struct nlattr *tb[ASYNCPROG_ATTR_MAX + 1];
	int i;

	ans->cmd = genlmsg_hdr(nlmsg_hdr(msg))->cmd;
	if (genlmsg_parse(nlmsg_hdr(msg), 0, tb, ASYNCPROG_ATTR_MAX, NULL) < 0)
		return NL_STOP;
	ans->messages++;
	for (i = 1; i <= ASYNCPROG_ATTR_MAX; i++) {
		ans->given[i] = tb[i];
		ans->value[i] = 0;
		if (tb[i] && nla_len(tb[i]) == 8)
			ans->value[i] = nla_get_u64(tb[i]);
		else if (tb[i] && nla_len(tb[i]) == 4)
			ans->value[i] = nla_get_u32(tb[i]);
	}
	if (ans->given[ASYNCPROG_ATTR_HANDLE] ?
	    ans->value[ASYNCPROG_ATTR_HANDLE] == ans->wanted :
	    ans->value[ASYNCPROG_ATTR_UID] == ans->wanted) {
		ans->found = true;
		ans->found_bytes = ans->value[ASYNCPROG_ATTR_BYTES];
	}
	return NL_OK;
}

static struct nl_sock *connect_genl(struct answer *ans, int *family)
{
	struct nl_sock *sk = nl_socket_alloc();

	if (!sk || genl_connect(sk))
		return NULL;
	*family = genl_ctrl_resolve(sk, ASYNCPROG_GENL_NAME);
	nl_socket_modify_cb(sk, NL_CB_VALID, NL_CB_CUSTOM, on_message, ans);
	return sk;
}

FIXTURE_SETUP(netlink)
{
	self->fd = dev_open();
	ASSERT_GE(self->fd, 0);
	self->mem = anon(LEN);
	ASSERT_NE(MAP_FAILED, self->mem);
	self->sk = connect_genl(&self->ans, &self->family);
	ASSERT_NE(NULL, self->sk);
	ASSERT_GT(self->family, 0);
}

FIXTURE_TEARDOWN(netlink)
{
	nl_socket_free(self->sk);
	close(self->fd);
}

/* one request and all of its answer; 0 or a libnl error */
static int ask(struct nl_sock *sk, int family, int cmd, int flags, struct answer *ans,
	       uint64_t wanted, int attr, uint64_t value)
{
	struct nl_msg *msg = nlmsg_alloc();
	int ret;

	memset(ans, 0, sizeof(*ans));
	ans->wanted = wanted;
	genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, flags, cmd,
		    ASYNCPROG_GENL_VERSION);
	if (attr)
		nla_put_u64(msg, attr, value);
	ret = nl_send_auto(sk, msg);
	nlmsg_free(msg);
	if (ret < 0)
		return ret;
	/* a reply, then its ack */
	return cmd == ASYNCPROG_CMD_STATS ? nl_recvmsgs_default(sk) ?: nl_wait_for_ack(sk) :
	       flags & NLM_F_DUMP ? nl_recvmsgs_default(sk) : nl_wait_for_ack(sk);
}

static int stats(struct _test_data_netlink *self)
{
	return ask(self->sk, self->family, ASYNCPROG_CMD_STATS, 0, &self->ans, 0, 0, 0);
}

TEST_F(netlink, stats)
{
	uint64_t registered, copies, bytes;
	uint64_t a, b;

	ASSERT_EQ(0, stats(self));
	EXPECT_EQ(1, self->ans.messages);
	EXPECT_TRUE(self->ans.given[ASYNCPROG_ATTR_VERSION]);
	registered = self->ans.value[ASYNCPROG_ATTR_REGISTERED];
	copies = self->ans.value[ASYNCPROG_ATTR_COPIES];
	bytes = self->ans.value[ASYNCPROG_ATTR_COPY_BYTES];
	EXPECT_EQ(0, self->ans.value[ASYNCPROG_ATTR_BYTES]);
	EXPECT_EQ(0, self->ans.value[ASYNCPROG_ATTR_REGIONS]);
	EXPECT_GT(self->ans.value[ASYNCPROG_ATTR_MAX_BYTES], 1 << 20);

	ASSERT_NE(0, (a = reg(self->fd, self->mem, LEN, RW, 0)));
	ASSERT_NE(0, (b = reg(self->fd, self->mem, PAGE, RW, 0)));
	ASSERT_EQ(0, copy_one(self->fd, a, LEN - 100, b, 0, 100));
	ASSERT_EQ(0, stats(self));
	EXPECT_EQ(LEN + PAGE, self->ans.value[ASYNCPROG_ATTR_BYTES]);
	EXPECT_EQ(2, self->ans.value[ASYNCPROG_ATTR_REGIONS]);
	EXPECT_EQ(registered + 2, self->ans.value[ASYNCPROG_ATTR_REGISTERED]);
	EXPECT_EQ(copies + 1, self->ans.value[ASYNCPROG_ATTR_COPIES]);
	EXPECT_EQ(bytes + 100, self->ans.value[ASYNCPROG_ATTR_COPY_BYTES]);
}

TEST_F(netlink, dumps)
{
	uint64_t h = 0;
	int i;

	/* more than one message of the dump holds */
	for (i = 0; i < 500; i++)
		ASSERT_NE(0, (h = reg(self->fd, self->mem, LEN, RW, 0)));
	ASSERT_EQ(0, ask(self->sk, self->family, ASYNCPROG_CMD_REGIONS, NLM_F_DUMP, &self->ans, h,
			 0, 0));
	EXPECT_EQ(500, self->ans.messages);
	EXPECT_TRUE(self->ans.found);
	EXPECT_EQ(LEN, self->ans.found_bytes);
	EXPECT_EQ(getpid(), self->ans.value[ASYNCPROG_ATTR_PID]);
	ASSERT_EQ(0, ask(self->sk, self->family, ASYNCPROG_CMD_UIDS, NLM_F_DUMP, &self->ans, 0, 0,
			 0));
	EXPECT_EQ(1, self->ans.messages);
	EXPECT_TRUE(self->ans.found);
	EXPECT_EQ(500 * LEN, self->ans.found_bytes);
}

/* limits are root's to set; what is over them is refused and told */
TEST_F(netlink, limits)
{
	static const int attrs[] = { ASYNCPROG_ATTR_MAX_BYTES, ASYNCPROG_ATTR_UID_MAX_BYTES };
	uint64_t old, h, refused;
	struct answer events = { .wanted = 0 };
	struct asyncprog_ioc_register r;
	int family, group;
	struct nl_sock *ev;
	size_t i;

	ev = connect_genl(&events, &family);
	ASSERT_NE(NULL, ev);
	group = genl_ctrl_resolve_grp(ev, ASYNCPROG_GENL_NAME, ASYNCPROG_GENL_EVENTS);
	ASSERT_GT(group, 0);
	ASSERT_EQ(0, nl_socket_add_membership(ev, group));
	nl_socket_disable_seq_check(ev);

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, stats(self));
		old = self->ans.value[attrs[i]];
		refused = self->ans.value[ASYNCPROG_ATTR_REFUSED];
		ASSERT_EQ(0, ask(self->sk, self->family, ASYNCPROG_CMD_LIMITS, NLM_F_ACK,
				 &self->ans, 0, attrs[i], LEN + PAGE));
		ASSERT_NE(0, (h = reg(self->fd, self->mem, LEN, RW, 0)));
		EXPECT_EQ(-EDQUOT, reg_full(self->fd, self->mem, 2 * PAGE, RW, 0, &r));
		ASSERT_EQ(0, nl_recvmsgs_default(ev));
		EXPECT_EQ(ASYNCPROG_CMD_EVENT, events.cmd);
		EXPECT_EQ(ASYNCPROG_EVENT_LIMIT, events.value[ASYNCPROG_ATTR_EVENT]);
		EXPECT_EQ(2 * PAGE, events.value[ASYNCPROG_ATTR_BYTES]);
		EXPECT_EQ(0, reg_full(self->fd, self->mem, PAGE, RW, 0, &r));
		EXPECT_EQ(0, unreg(self->fd, r.handle));
		EXPECT_EQ(0, unreg(self->fd, h));
		ASSERT_EQ(0, stats(self));
		EXPECT_EQ(refused + 1, self->ans.value[ASYNCPROG_ATTR_REFUSED]);
		EXPECT_EQ(LEN + PAGE, self->ans.value[attrs[i]]);
		ASSERT_EQ(0, ask(self->sk, self->family, ASYNCPROG_CMD_LIMITS, NLM_F_ACK,
				 &self->ans, 0, attrs[i], old));
	}
	ASSERT_EQ(0, stats(self));
	old = self->ans.value[ASYNCPROG_ATTR_UID_MAX_REGIONS];
	ASSERT_EQ(0, ask(self->sk, self->family, ASYNCPROG_CMD_LIMITS, NLM_F_ACK, &self->ans, 0,
			 ASYNCPROG_ATTR_UID_MAX_REGIONS, 1));
	ASSERT_NE(0, (h = reg(self->fd, self->mem, LEN, RW, 0)));
	EXPECT_EQ(-EDQUOT, reg_full(self->fd, self->mem, 1, RW, 0, &r));
	EXPECT_EQ(0, unreg(self->fd, h));
	ASSERT_EQ(0, ask(self->sk, self->family, ASYNCPROG_CMD_LIMITS, NLM_F_ACK, &self->ans, 0,
			 ASYNCPROG_ATTR_UID_MAX_REGIONS, old));
	nl_socket_free(ev);
}

TEST_F(netlink, only_root)
{
	pid_t pid;

	ASSERT_NE(0, reg(self->fd, self->mem, LEN, RW, 0));
	pid = fork();
	if (!pid) {
		struct answer ans;
		struct nl_sock *sk;
		int family, group;
		void *mem;

		if (become(NOBODY))
			_exit(1);
		/* its own: what the parent has pinned is not there for it */
		mem = anon(LEN);
		sk = connect_genl(&ans, &family);
		if (!sk || ask(sk, family, ASYNCPROG_CMD_STATS, 0, &ans, 0, 0, 0) ||
		    ans.messages != 1)
			_exit(2);
		if (ask(sk, family, ASYNCPROG_CMD_LIMITS, NLM_F_ACK, &ans, 0,
			ASYNCPROG_ATTR_MAX_BYTES, 1ull << 60) != -NLE_PERM)
			_exit(3);
		if (ask(sk, family, ASYNCPROG_CMD_REGIONS, NLM_F_DUMP, &ans, 0, 0, 0) != -NLE_PERM)
			_exit(4);
		/* what others have, and what becomes of it */
		if (ask(sk, family, ASYNCPROG_CMD_UIDS, NLM_F_DUMP, &ans, 0, 0, 0) || ans.messages)
			_exit(5);
		group = genl_ctrl_resolve_grp(sk, ASYNCPROG_GENL_NAME, ASYNCPROG_GENL_EVENTS);
		if (group <= 0 || nl_socket_add_membership(sk, group) != -NLE_PERM)
			_exit(6);
		/* but what it has itself */
		if (!reg(self->fd, mem, LEN, RW, 0) ||
		    ask(sk, family, ASYNCPROG_CMD_UIDS, NLM_F_DUMP, &ans, NOBODY, 0, 0) ||
		    ans.messages != 1 || !ans.found || ans.found_bytes != LEN)
			_exit(7);
		_exit(0);
	}
	EXPECT_EQ(0, reap(pid));
	ASSERT_EQ(0, ask(self->sk, self->family, ASYNCPROG_CMD_UIDS, NLM_F_DUMP, &self->ans, 0, 0, 0));
	EXPECT_TRUE(self->ans.found);
}

/* a request with an attribute of @len bytes; 0 or a libnl error */
static int request(struct _test_data_netlink *self, int cmd, int flags, int attr, int len)
{
	static const uint8_t zeros[16];
	struct nl_msg *msg = nlmsg_alloc();
	int ret;

	genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, self->family, 0, flags | NLM_F_ACK, cmd,
		    ASYNCPROG_GENL_VERSION);
	if (attr)
		nla_put(msg, attr, len, zeros);
	ret = nl_send_auto(self->sk, msg);
	nlmsg_free(msg);
	return ret < 0 ? ret : nl_wait_for_ack(self->sk);
}

TEST_F(netlink, bad_requests)
{
	uint64_t max;
	int cmd;

	ASSERT_EQ(0, stats(self));
	max = self->ans.value[ASYNCPROG_ATTR_MAX_BYTES];
	for (cmd = ASYNCPROG_CMD_EVENT; cmd < 256; cmd++)
		ASSERT_EQ(-NLE_OPNOTSUPP, request(self, cmd, 0, 0, 0));
	EXPECT_EQ(-NLE_OPNOTSUPP, request(self, ASYNCPROG_CMD_UNSPEC, 0, 0, 0));
	/* what dumps does not answer, what answers does not dump */
	EXPECT_EQ(-NLE_OPNOTSUPP, request(self, ASYNCPROG_CMD_UIDS, 0, 0, 0));
	EXPECT_EQ(-NLE_OPNOTSUPP, request(self, ASYNCPROG_CMD_REGIONS, 0, 0, 0));
	EXPECT_EQ(-NLE_OPNOTSUPP, request(self, ASYNCPROG_CMD_STATS, NLM_F_DUMP, 0, 0));
	EXPECT_EQ(-NLE_OPNOTSUPP, request(self, ASYNCPROG_CMD_LIMITS, NLM_F_DUMP, 0, 0));
	/* attributes of another length, that are no limit, or unknown */
	EXPECT_EQ(-NLE_INVAL, request(self, ASYNCPROG_CMD_LIMITS, 0, ASYNCPROG_ATTR_MAX_BYTES, 4));
	EXPECT_EQ(-NLE_INVAL, request(self, ASYNCPROG_CMD_LIMITS, 0, ASYNCPROG_ATTR_MAX_BYTES, 16));
	EXPECT_EQ(-NLE_INVAL, request(self, ASYNCPROG_CMD_LIMITS, 0, ASYNCPROG_ATTR_BYTES, 8));
	EXPECT_EQ(-NLE_INVAL, request(self, ASYNCPROG_CMD_LIMITS, 0, ASYNCPROG_ATTR_MAX + 1, 8));
	EXPECT_EQ(0, request(self, ASYNCPROG_CMD_LIMITS, 0, 0, 0));
	ASSERT_EQ(0, stats(self));
	EXPECT_EQ(max, self->ans.value[ASYNCPROG_ATTR_MAX_BYTES]);
}

TEST_F(netlink, events)
{
	struct answer events = { .messages = 0 };
	struct nl_sock *ev;
	int family, group, up[2];
	uint64_t *h;
	pid_t pid;

	h = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ev = connect_genl(&events, &family);
	ASSERT_NE(NULL, ev);
	group = genl_ctrl_resolve_grp(ev, ASYNCPROG_GENL_NAME, ASYNCPROG_GENL_EVENTS);
	ASSERT_EQ(0, nl_socket_add_membership(ev, group));
	nl_socket_disable_seq_check(ev);

	*h = reg(self->fd, self->mem, LEN, RW, 0);
	ASSERT_NE(0, *h);
	ASSERT_EQ(0, munmap(self->mem, PAGE));
	ASSERT_EQ(0, nl_recvmsgs_default(ev));
	EXPECT_EQ(ASYNCPROG_EVENT_STALE, events.value[ASYNCPROG_ATTR_EVENT]);
	EXPECT_EQ(*h, events.value[ASYNCPROG_ATTR_HANDLE]);
	EXPECT_EQ(LEN, events.value[ASYNCPROG_ATTR_BYTES]);

	ASSERT_EQ(0, pipe(up));
	pid = fork();
	if (!pid) {
		*h = reg(self->fd, anon(LEN), LEN, RW, 0);
		_exit(*h ? 0 : 1);
	}
	EXPECT_EQ(0, reap(pid));
	ASSERT_EQ(0, nl_recvmsgs_default(ev));
	EXPECT_EQ(ASYNCPROG_EVENT_GONE, events.value[ASYNCPROG_ATTR_EVENT]);
	EXPECT_EQ(*h, events.value[ASYNCPROG_ATTR_HANDLE]);
	nl_socket_free(ev);
}

TEST_HARNESS_MAIN

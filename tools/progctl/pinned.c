// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "pinned.h"

#include <errno.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <stdio.h>
#include <string.h>

#include <asyncprog/asyncprog.h>

#include "progctl.h"

static const char *const names[ASYNCPROG_ATTR_MAX + 1] = {
	[ASYNCPROG_ATTR_VERSION] = "version", [ASYNCPROG_ATTR_UID] = "uid",
	[ASYNCPROG_ATTR_BYTES] = "bytes", [ASYNCPROG_ATTR_REGIONS] = "regions",
	[ASYNCPROG_ATTR_MAX_BYTES] = "max_bytes", [ASYNCPROG_ATTR_UID_MAX_BYTES] = "uid_max_bytes",
	[ASYNCPROG_ATTR_UID_MAX_REGIONS] = "uid_max_regions",
	[ASYNCPROG_ATTR_REGISTERED] = "registered", [ASYNCPROG_ATTR_REFUSED] = "refused",
	[ASYNCPROG_ATTR_STALED] = "staled", [ASYNCPROG_ATTR_GONE] = "gone",
	[ASYNCPROG_ATTR_COPIES] = "copies", [ASYNCPROG_ATTR_COPY_BYTES] = "copy_bytes",
	[ASYNCPROG_ATTR_COPY_ERRORS] = "copy_errors", [ASYNCPROG_ATTR_FAULTS] = "faults",
	[ASYNCPROG_ATTR_PID] = "pid",
};

struct reply {
	json_t *list;
	int err;			/* what the kernel said, negative errno */
	bool over;
};

static void put_attr(json_t *o, int i, const struct nlattr *a)
{
	static const char *const access[] = { "-", "read", "write", "read write" };
	uint64_t v = nla_len(a) == 8 ? nla_get_u64(a) : nla_len(a) == 4 ? nla_get_u32(a) : 0;

	if (i == ASYNCPROG_ATTR_HANDLE)
		json_object_set_new(o, "handle", json_sprintf("%llx", (unsigned long long)v));
	else if (i == ASYNCPROG_ATTR_STATE)
		json_object_set_new(o, "state", json_string(v == ASYNCPROG_STATE_LIVE ? "live" : "stale"));
	else if (i == ASYNCPROG_ATTR_ACCESS)
		json_object_set_new(o, "access", json_string(access[v & 3]));
	else if (i == ASYNCPROG_ATTR_VERSION)
		json_object_set_new(o, names[i], json_string(nla_get_string(a)));
	else if (names[i])
		json_object_set_new(o, names[i], json_integer((json_int_t)v));
}

static int on_message(struct nl_msg *msg, void *arg)
{
	struct nlattr *tb[ASYNCPROG_ATTR_MAX + 1];
	struct reply *r = arg;
	json_t *o;

	if (genlmsg_parse(nlmsg_hdr(msg), 0, tb, ASYNCPROG_ATTR_MAX, NULL) < 0)
		return NL_SKIP;
	o = json_object();
	for (int i = 1; i <= ASYNCPROG_ATTR_MAX; i++)
		if (tb[i])
			put_attr(o, i, tb[i]);
	json_array_append_new(r->list, o);
	return NL_OK;
}

static int on_over(struct nl_msg *msg, void *arg)
{
	struct reply *r = arg;

	r->over = true;
	return NL_STOP;
}

static int on_error(struct sockaddr_nl *nla, struct nlmsgerr *e, void *arg)
{
	struct reply *r = arg;

	r->err = e->error;
	r->over = true;
	return NL_STOP;
}

/* Send @msg and take all that comes, until the kernel says that this was it. */
static int talk(struct nl_sock *sk, struct nl_msg *msg, struct reply *r)
{
	struct nl_cb *cb = nl_cb_alloc(NL_CB_DEFAULT);
	int n;

	if (!cb)
		return -ENOMEM;
	nl_cb_set(cb, NL_CB_VALID, NL_CB_CUSTOM, on_message, r);
	nl_cb_set(cb, NL_CB_FINISH, NL_CB_CUSTOM, on_over, r);
	nl_cb_set(cb, NL_CB_ACK, NL_CB_CUSTOM, on_over, r);
	nl_cb_err(cb, NL_CB_CUSTOM, on_error, r);
	n = nl_send_auto(sk, msg);
	while (n >= 0 && !r->over)
		n = nl_recvmsgs(sk, cb);
	nl_cb_put(cb);
	if (r->err)
		return r->err;
	return n < 0 ? -EIO : 0;
}

/* One request; @limit: attribute to send along, with @value; 0: none */
static int request(int cmd, int flags, int limit, uint64_t value, struct reply *r)
{
	struct nl_sock *sk = nl_socket_alloc();
	struct nl_msg *msg = nlmsg_alloc();
	int family, err = -ENOMEM;

	if (!sk || !msg)
		goto out;
	err = -EIO;
	if (genl_connect(sk))
		goto out;
	err = -ENOENT;
	family = genl_ctrl_resolve(sk, ASYNCPROG_GENL_NAME);
	if (family < 0)
		goto out;
	err = -ENOMEM;
	if (!genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, flags, (uint8_t)cmd,
			 ASYNCPROG_GENL_VERSION) || (limit && nla_put_u64(msg, limit, value)))
		goto out;
	err = talk(sk, msg, r);
out:
	nlmsg_free(msg);
	nl_socket_free(sk);
	return err;
}

json_t *pinned_ask(enum pinned_what what, int *err)
{
	static const int cmd[] = {
		[PINNED_STATS] = ASYNCPROG_CMD_STATS, [PINNED_USERS] = ASYNCPROG_CMD_UIDS,
		[PINNED_REGIONS] = ASYNCPROG_CMD_REGIONS,
	};
	struct reply r = { .list = json_array() };
	json_t *res = r.list;

	*err = request(cmd[what], what == PINNED_STATS ? NLM_F_ACK : NLM_F_DUMP, 0, 0, &r);
	if (!*err && what == PINNED_STATS) {
		res = json_incref(json_array_get(r.list, 0));
		json_decref(r.list);
		if (!res)
			*err = -EIO;
	}
	if (*err) {
		json_decref(res);
		res = NULL;
	}
	return res;
}

int pinned_set(const char *limit, uint64_t value)
{
	struct reply r = { .list = json_array() };
	int attr = 0, err;

	for (int i = ASYNCPROG_ATTR_MAX_BYTES; i <= ASYNCPROG_ATTR_UID_MAX_REGIONS; i++)
		if (!strcmp(names[i], limit))
			attr = i;
	err = attr ? request(ASYNCPROG_CMD_LIMITS, NLM_F_ACK, attr, value, &r) : -EINVAL;
	json_decref(r.list);
	return err;
}

static const char *pinned_error(int err)
{
	return err == -ENOENT ? "no kernel module asyncprog, or not in the first network namespace" :
	       err == -EPERM ? "only root may do that" : strerror(-err);
}

static int pinned_usage(void)
{
	fprintf(stderr, "usage: progctl pinned [users | regions | set max_bytes|uid_max_bytes|uid_max_regions "
		"VALUE]\n");
	return 2;
}

/* Asks the kernel, not the daemon. */
int cmd_pinned(int argc, char **argv)
{
	static const char *const user_cols[] = { "uid", "bytes", "regions", NULL };
	static const char *const region_cols[] = {
		"handle", "uid", "pid", "state", "access", "bytes", "copies", "copy_bytes", NULL,
	};
	enum pinned_what what = PINNED_STATS;
	uint64_t value;
	json_t *res;
	int err;

	if (argc && !strcmp(argv[0], "set")) {
		if (argc != 3 || !parse_number(argv[2], "KMGT", &value))
			return pinned_usage();
		err = pinned_set(argv[1], value);
		if (err == -EINVAL)
			return pinned_usage();
		if (err)
			fprintf(stderr, "progctl: pinned: %s\n", pinned_error(err));
		return err ? 1 : 0;
	}
	if (argc > 1 || (argc && strcmp(argv[0], "users") && strcmp(argv[0], "regions")))
		return pinned_usage();
	if (argc)
		what = argv[0][0] == 'u' ? PINNED_USERS : PINNED_REGIONS;
	res = pinned_ask(what, &err);
	if (!res) {
		fprintf(stderr, "progctl: pinned: %s\n", pinned_error(err));
		return 1;
	}
	if (opt.json || what == PINNED_STATS)
		return print_result(res);
	print_table(res, what == PINNED_USERS ? user_cols : region_cols);
	json_decref(res);
	return 0;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Bytes of a lane on its connection. */
#include "xport/lane.h"

static ssize_t sock_send(struct lane *l, struct iovec *iov, int n)
{
	return loop_sock_send(l->sock, iov, n, lane_sent);
}

static int sock_recv(struct lane *l, struct iovec *iov, int n, uint32_t missing)
{
	/* the network brings it in many small parts, each of which would wake us */
	loop_sock_expect(l->sock, missing < RX_EXPECT_MAX ? missing : RX_EXPECT_MAX);
	return loop_sock_recv(l->sock, iov, n, lane_received);
}

static void sock_end(struct lane *l)
{
	shutdown(loop_sock_fd(l->sock), SHUT_WR);
}

const struct carrier carrier_sock = {
	.name = "tcp",
	.send = sock_send,
	.recv = sock_recv,
	.end = sock_end,
};

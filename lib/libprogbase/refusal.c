// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "refusal.h"

#include <asyncprog/ring.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

int refusal_send(int fd, const char *why)
{
	struct prog_ctrl_hello_reply r = {
		.hdr = { .type = PROG_CTRL_HELLO, .size = sizeof(r), .status = -EUSERS },
		.abi_major = PROG_ABI_MAJOR, .abi_minor = PROG_ABI_MINOR,
	};

	snprintf(r.reason, sizeof(r.reason), "%s", why);
	return send(fd, &r, sizeof(r), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

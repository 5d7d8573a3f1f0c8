// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Addresses as text. */
#include <arpa/inet.h>
#include <stdio.h>

#include "xport/lane.h"

void xport_addr_name(const struct sockaddr_storage *ss, socklen_t len, char *buf, size_t size)
{
	const struct sockaddr_in *v4 = (const void *)ss;
	const struct sockaddr_in6 *v6 = (const void *)ss;
	char ip[INET6_ADDRSTRLEN] = "?";

	switch (ss->ss_family) {
	case AF_INET:
		inet_ntop(AF_INET, &v4->sin_addr, ip, sizeof(ip));
		snprintf(buf, size, "%s:%u", ip, ntohs(v4->sin_port));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &v6->sin6_addr, ip, sizeof(ip));
		snprintf(buf, size, "[%s]:%u", ip, ntohs(v6->sin6_port));
		break;
	default:
		snprintf(buf, size, "local");
	}
}

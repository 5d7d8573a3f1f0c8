// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <libprogbase/log.h>

#define FIRST_FD 3	/* SD_LISTEN_FDS_START */

void service_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd;

	/* "@" begins a name that is in no file system */
	if (!len || len >= sizeof(sa.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(sa.sun_path, path, len);
	if (path[0] == '@')
		sa.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&sa,
			     offsetof(struct sockaddr_un, sun_path) + len) < 0)
		prog_log(PROG_LOG_WARN, "the service manager cannot be told %s: %s", state, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static int is_at(int fd, const char *path)
{
	struct sockaddr_un sa = { 0 };
	socklen_t len = sizeof(sa), size = sizeof(int);
	int type = 0, listens = 0;

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_SEQPACKET &&
	       !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) && listens &&
	       !getsockname(fd, (struct sockaddr *)&sa, &len) && sa.sun_family == AF_UNIX &&
	       !strncmp(sa.sun_path, path, sizeof(sa.sun_path));
}

int service_socket(const char *path)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	int n = pid && fds && atol(pid) == getpid() ? atoi(fds) : 0;

	for (int fd = FIRST_FD; fd < FIRST_FD + n; fd++)
		if (is_at(fd, path) && !fcntl(fd, F_SETFD, FD_CLOEXEC) &&
		    !fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK))
			return fd;
	return -1;
}

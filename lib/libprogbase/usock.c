// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "usock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int usock_listen(const char *path, mode_t mode, int backlog)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX }, tmp;
	size_t len = strlen(path);
	struct stat st;
	int fd, probe, r;

	if (!len || len >= sizeof(sa.sun_path))
		return len ? -ENAMETOOLONG : -ENOENT;
	strcpy(sa.sun_path, path);
	tmp = sa;
	tmp.sun_path[len - 1] = '~';
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || probe < 0) {
		r = -errno;
	} else if (!connect(probe, (struct sockaddr *)&sa, sizeof(sa)) || errno == EAGAIN) {
		r = -EADDRINUSE;
	} else if (!lstat(path, &st) && !S_ISSOCK(st.st_mode)) {
		r = -EEXIST;
	} else {
		unlink(tmp.sun_path);
		r = bind(fd, (struct sockaddr *)&tmp, sizeof(tmp)) || chmod(tmp.sun_path, mode) || listen(fd, backlog) ||
		    rename(tmp.sun_path, path) ? -errno : fd;
		if (r < 0)
			unlink(tmp.sun_path);
	}
	if (probe >= 0)
		close(probe);
	if (r < 0 && fd >= 0)
		close(fd);
	return r;
}

bool usock_stands(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISSOCK(st.st_mode) && (!st.st_uid || st.st_uid == geteuid());
}

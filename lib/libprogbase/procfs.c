// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool procfs_stat(pid_t pid, pid_t tid, struct procfs_stat *st)
{
	char path[64], buf[1024], *p;
	ssize_t n = -1;
	int fd;

	if (pid <= 0 || tid < 0)
		return false;
	if (tid)
		snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	else
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, buf, sizeof(buf) - 1);
		close(fd);
	}
	buf[n > 0 ? n : 0] = '\0';
	/* field 2 is a name in parentheses that can have any bytes; then 3 state, 14 utime, 15 stime, 22 starttime, 39 processor */
	p = strrchr(buf, ')');
	return p && sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64
			   " %*d %*d %*d %*d %*d %*d %" SCNu64
			   " %*u %*d %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d %d",
			   &st->state, &st->user, &st->sys, &st->began, &st->cpu) == 5;
}

int procfs_threads(pid_t pid, bool (*see)(void *ctx, pid_t tid), void *ctx)
{
	struct dirent *e;
	char path[32];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while ((e = readdir(dir))) {
		pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);

		/* not "." and ".." */
		if (tid > 0 && !see(ctx, tid))
			break;
	}
	closedir(dir);
	return 0;
}

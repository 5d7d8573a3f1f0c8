// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "endless.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST	2u			/* node of file 0 */
#define PAGE	4096u
#define HOUR	3600u			/* names and attributes are asked for once */

static void answer(int fd, uint64_t unique, int error, const void *what, size_t len)
{
	struct fuse_out_header h = { .len = sizeof(h) + len, .error = error, .unique = unique };
	struct iovec iov[2] = { { &h, sizeof(h) }, { (void *)(uintptr_t)what, len } };

	if (writev(fd, iov, 2) < 0 && errno != ENOENT)
		_exit(1);
}

static struct fuse_attr attr_of(uint64_t node)
{
	return (struct fuse_attr){
		.ino = node, .size = node >= FIRST ? PAGE : 0, .nlink = 1, .blksize = PAGE,
		.mode = node >= FIRST ? S_IFREG | 0666 : S_IFDIR | 0777,
	};
}

/* Answers all but writes. */
static void serve(int fd)
{
	static char buf[65536 + PAGE];
	struct fuse_in_header *in = (void *)buf;

	while (read(fd, buf, sizeof(buf)) > 0) {
		struct fuse_init_out init = {
			.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .flags = FUSE_WRITEBACK_CACHE,
			.max_write = PAGE, .max_readahead = PAGE, .time_gran = 1,
		};
		struct fuse_entry_out entry = {
			.nodeid = FIRST + atoi((char *)(in + 1)), .entry_valid = HOUR, .attr_valid = HOUR,
		};
		struct fuse_attr_out attr = { .attr_valid = HOUR, .attr = attr_of(in->nodeid) };
		struct fuse_open_out opened = { .fh = 1 };

		switch (in->opcode) {
		case FUSE_INIT:
			answer(fd, in->unique, 0, &init, sizeof(init));
			break;
		case FUSE_LOOKUP:
			entry.attr = attr_of(entry.nodeid);
			answer(fd, in->unique, 0, &entry, sizeof(entry));
			break;
		case FUSE_GETATTR:
		case FUSE_SETATTR:
			answer(fd, in->unique, 0, &attr, sizeof(attr));
			break;
		case FUSE_OPEN:
			answer(fd, in->unique, 0, &opened, sizeof(opened));
			break;
		case FUSE_RELEASE:
			answer(fd, in->unique, 0, NULL, 0);
			break;
		case FUSE_WRITE:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
			break;
		default:
			answer(fd, in->unique, -ENOSYS, NULL, 0);
		}
	}
	_exit(0);
}

int endless_begin(struct endless *e)
{
	char options[96];
	int fd;

	e->n = 0;
	e->server = 0;
	strcpy(e->dir, "/tmp/progd-endless-XXXXXX");
	if (!mkdtemp(e->dir))
		return -1;
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40777,user_id=0,group_id=0,allow_other", fd);
	if (fd < 0 || mount("fuse", e->dir, "fuse", 0, options)) {
		close(fd);
		rmdir(e->dir);
		return -1;
	}
	e->server = fork();
	if (!e->server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fd);
	}
	close(fd);
	return e->server < 0 ? -1 : 0;
}

int endless_open(struct endless *e, unsigned int file)
{
	char path[80];

	snprintf(path, sizeof(path), "%s/%u", e->dir, file);
	return open(path, O_RDWR | O_CLOEXEC);
}

int endless_dirty(struct endless *e, unsigned int file)
{
	static const char page[PAGE];
	int ready[2], fd;
	bool done = false;
	pid_t pid;

	if (e->n == ENDLESS_FILES || pipe2(ready, O_CLOEXEC))
		return -1;
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ready[1], 0);
		close_range(1, ~0u, 0);
		fd = endless_open(e, file);
		done = fd >= 0 && pwrite(fd, page, PAGE, 0) == PAGE;
		if (write(0, &done, sizeof(done)) == sizeof(done))
			pause();
		_exit(1);
	}
	close(ready[1]);
	if (pid > 0) {
		e->keeper[e->n++] = pid;
		if (read(ready[0], &done, sizeof(done)) != sizeof(done))
			done = false;
	}
	close(ready[0]);
	return done ? 0 : -1;
}

void endless_end(struct endless *e)
{
	kill(e->server, SIGKILL);
	waitpid(e->server, NULL, 0);
	while (e->n) {
		kill(e->keeper[--e->n], SIGKILL);
		waitpid(e->keeper[e->n], NULL, 0);
	}
	umount2(e->dir, MNT_DETACH);
	rmdir(e->dir);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <libprogbase/log.h>

#include "loop/loop.h"

#define TMP	"new"
#define PORT	"port "			/* and address and port */

static ssize_t read_file(int dir, const char *name, char *buf, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return n;
}

int record_dir(const char *path)
{
	struct stat st;
	int fd;

	if (mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_uid != geteuid() || st.st_mode & 077) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

int record_lock(int dir, uint64_t patience_ns)
{
	static const struct timespec sleep_slice = { .tv_nsec = 10000000 };
	uint64_t end = loop_now() + patience_ns;

	while (flock(dir, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (loop_now() > end)
			return -EBUSY;
		nanosleep(&sleep_slice, NULL);
	}
	return 0;
}

static int write_file(int dir, const char *name, const char *text)
{
	ssize_t n = (ssize_t)strlen(text);
	int fd, err = 0;

	fd = openat(dir, TMP, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, text, n) != n)
		err = -EIO;
	close(fd);
	if (!err && renameat(dir, TMP, dir, name))
		err = -errno;
	return err;
}

int record_write(int dir, const struct record *r)
{
	char name[16], text[64];

	snprintf(name, sizeof(name), "%u", (unsigned int)r->uid);
	snprintf(text, sizeof(text), "%d %" PRIu64 "\n", (int)r->pid, r->began);
	return write_file(dir, name, text);
}

void record_remove(int dir, uid_t uid)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", (unsigned int)uid);
	unlinkat(dir, name, 0);
}

void record_each(int dir, void (*fn)(void *ctx, const struct record *r), void *ctx)
{
	DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *e;

	while (d && (e = readdir(d))) {
		struct record r = { 0 };
		char text[64], *end;
		int pid;

		r.uid = strtoul(e->d_name, &end, 10);
		if (*end || end == e->d_name || read_file(dir, e->d_name, text, sizeof(text)) <= 0)
			continue;
		if (sscanf(text, "%d %" SCNu64, &pid, &r.began) != 2) {
			prog_log(PROG_LOG_WARN, "record of uid %u: cannot be read", (unsigned int)r.uid);
			continue;
		}
		r.pid = pid;
		fn(ctx, &r);
	}
	if (d)
		closedir(d);
}

/* ---- ports ------------------------------------------------------------------------------------------------- */

static void port_name(const struct prog_addr *a, char *name, size_t size)
{
	struct sockaddr_storage ss;
	char where[64] = "?";
	socklen_t len;

	if (listen_sockaddr(a, &ss, &len))
		listen_addr_name(&ss, len, where, sizeof(where));
	snprintf(name, size, PORT "%s", where);
}

int record_port_write(int dir, const struct record_port *r)
{
	char name[80], text[64];

	port_name(&r->addr, name, sizeof(name));
	snprintf(text, sizeof(text), "%u %" PRIu64 "\n", (unsigned int)r->uid, r->until);
	return write_file(dir, name, text);
}

void record_port_remove(int dir, const struct prog_addr *addr)
{
	char name[80];

	port_name(addr, name, sizeof(name));
	unlinkat(dir, name, 0);
}

void record_ports_each(int dir, void (*fn)(void *ctx, const struct record_port *r), void *ctx)
{
	DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *e;

	while (d && (e = readdir(d))) {
		struct record_port r = { 0 };
		unsigned int uid;
		char text[64];

		if (strncmp(e->d_name, PORT, strlen(PORT)) || !listen_addr_read(e->d_name + strlen(PORT), &r.addr))
			continue;
		if (read_file(dir, e->d_name, text, sizeof(text)) <= 0 || sscanf(text, "%u %" SCNu64, &uid, &r.until) != 2) {
			prog_log(PROG_LOG_WARN, "record of %s: cannot be read", e->d_name);
			continue;
		}
		r.uid = uid;
		fn(ctx, &r);
	}
	if (d)
		closedir(d);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/lane_key.h"

static int refuse(const char *path, int ret, const char *what, char *err, size_t size)
{
	snprintf(err, size, "lane_key: %.200s: %s", path, what);
	return ret;
}

static int whole_path(const char *path, char *buf, size_t size)
{
	const struct passwd *pw = NULL;
	bool home = !strncmp(path, "~/", 2);

	if (home)
		pw = getpwuid(geteuid());
	if (home && !pw)
		return -ENOENT;
	return snprintf(buf, size, "%s%s", home ? pw->pw_dir : "", home ? path + 1 : path) < (int)size ? 0 : -ENAMETOOLONG;
}

/* Reads what @fd has; how much, or a negative errno. */
static ssize_t read_all(int fd, uint8_t *buf, size_t size)
{
	size_t got = 0;
	ssize_t n;

	while (got < size && (n = read(fd, buf + got, size - got))) {
		if (n < 0 && errno != EINTR)
			return -errno;
		got += n > 0 ? n : 0;
	}
	return got;
}

static int check_and_read(int fd, const char *path, uint8_t key[PROG_JOBKEY_SIZE], char *err, size_t size)
{
	uint8_t buf[LANE_KEY_MAX + 1];
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st))
		return refuse(path, -errno, strerror(errno), err, size);
	if (!S_ISREG(st.st_mode))
		return refuse(path, -EINVAL, "not a file", err, size);
	if (st.st_uid != geteuid() || st.st_mode & 077)
		return refuse(path, -EPERM, "has to be the user's, and nobody else's to read or write (chmod 600)", err, size);
	n = read_all(fd, buf, sizeof(buf));
	if (n >= LANE_KEY_MIN && n <= LANE_KEY_MAX)
		crypto_generichash(key, PROG_JOBKEY_SIZE, buf, n, NULL, 0);
	sodium_memzero(buf, sizeof(buf));
	if (n < 0)
		return refuse(path, n, strerror((int)-n), err, size);
	if (n < LANE_KEY_MIN || n > LANE_KEY_MAX)
		return refuse(path, -EINVAL, "has to have 32 to 65536 bytes", err, size);
	return 0;
}

int node_lane_key_read(const char *path, uint8_t key[PROG_JOBKEY_SIZE], char *err, size_t size)
{
	char whole[PATH_MAX];
	int fd, ret = whole_path(path, whole, sizeof(whole));

	if (ret)
		return refuse(path, ret, strerror(-ret), err, size);
	fd = open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return refuse(path, -errno, strerror(errno), err, size);
	ret = check_and_read(fd, path, key, err, size);
	close(fd);
	return ret;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libprogbase/log.h>

#define MOUNT	"/sys/fs/cgroup"
#define UNIT	"progd-engines.service"
#define HOLD	"hold"

static void name_of(uid_t uid, char name[16])
{
	snprintf(name, 16, "uid-%u", (unsigned int)uid);
}

/* 0 or -errno. */
static int put(int dir, const char *file, const char *text)
{
	int fd = openat(dir, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW), err = 0;

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		err = -errno;
	if (fd >= 0)
		close(fd);
	return err;
}

/* Our own path; false: we are in none of the one hierarchy. */
static bool own(char path[PATH_MAX])
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		found = !strncmp(line, "0::/", 4) && snprintf(path, PATH_MAX, MOUNT "%s", line + 3) < PATH_MAX;
	}
	if (f)
		fclose(f);
	return found;
}

/* Controllers for what is below @dir.  One that is not there is missed only by who sets a limit. */
static void enable(int dir, const char *path)
{
	static const char *const controllers[] = { "+memory", "+cpu", "+pids" };

	for (size_t i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++) {
		int err = put(dir, "cgroup.subtree_control", controllers[i]);

		if (err)
			prog_log(PROG_LOG_INFO, "cgroup %s: %s: %s", path, controllers[i], strerror(-err));
	}
}

int cgroup_open(const char *where)
{
	bool chosen = strcmp(where, "auto");
	char path[PATH_MAX];
	int dir;

	if (!strcmp(where, "none"))
		return -1;
	if (!chosen) {
		if (!own(path) || strlen(path) + sizeof("/" UNIT) > sizeof(path) || !strrchr(path, '/'))
			return -1;
		strcpy(strrchr(path, '/'), "/" UNIT);
		where = path;
	}
	dir = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		prog_log(chosen ? PROG_LOG_WARN : PROG_LOG_INFO, "cgroup %s: %m: engines have none of their own", where);
		return -1;
	}
	enable(dir, where);
	return dir;
}

int cgroup_hold(void)
{
	char path[PATH_MAX];
	int dir, err;

	dir = own(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (dir < 0) {
		prog_log(PROG_LOG_ERROR, "no cgroup to hold: %m");
		return -ENOENT;
	}
	err = mkdirat(dir, HOLD, 0755) && errno != EEXIST ? -errno : put(dir, HOLD "/cgroup.procs", "0");
	if (err)
		prog_log(PROG_LOG_ERROR, "cgroup %s: %s: %s", path, HOLD, strerror(-err));
	else
		enable(dir, path);
	close(dir);
	return err;
}

int cgroup_make(int dir, uid_t uid, uint64_t memory_max)
{
	char name[16], limit[24] = "max";
	int fd, err = 0;

	if (dir < 0)
		return 0;
	name_of(uid, name);
	if (mkdirat(dir, name, 0755) && errno != EEXIST)
		return -errno;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (memory_max)
		snprintf(limit, sizeof(limit), "%llu", (unsigned long long)memory_max);
	err = put(fd, "memory.max", limit);
	/* without a limit that file need not be there */
	if (err == -ENOENT && !memory_max)
		err = 0;
	close(fd);
	return err;
}

int cgroup_enter(int dir, uid_t uid)
{
	char name[16], file[32];

	if (dir < 0)
		return 0;
	name_of(uid, name);
	snprintf(file, sizeof(file), "%s/cgroup.procs", name);
	return put(dir, file, "0");
}

unsigned int cgroup_sweep(int dir)
{
	DIR *d = dir < 0 ? NULL : fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *e;
	unsigned int n = 0;

	while (d && (e = readdir(d)))
		n += !strncmp(e->d_name, "uid-", 4) && unlinkat(dir, e->d_name, AT_REMOVEDIR);
	if (d)
		closedir(d);
	return n;
}

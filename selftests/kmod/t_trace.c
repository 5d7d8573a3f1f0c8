// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tracepoints: the life of a region, and a copy.
 */
#include <sys/mount.h>
#include <sys/stat.h>

#include "kmodtest.h"

#define LEN	(4 * PAGE)

static int put(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_TRUNC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	if (fd >= 0)
		close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* Lines with @event whose arguments begin with @args. */
static int lines(const char *file, const char *event, const char *args)
{
	char line[512], want[256];
	FILE *f = fopen(file, "r");
	int n = 0;

	snprintf(want, sizeof(want), " %s: %s", event, args);
	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, want) != NULL;
	if (f)
		fclose(f);
	return n;
}

TEST(events)
{
	const char *on = "tracing/events/asyncprog/enable", *trace = "tracing/trace";
	struct asyncprog_ioc_register r, other;
	char dir[] = "/tmp/trace-XXXXXX", args[128];
	uint8_t *mem, *gone;
	int fd;

	ASSERT_NE(NULL, mkdtemp(dir));
	ASSERT_EQ(0, chdir(dir));
	ASSERT_EQ(0, mkdir("tracing", 0700));
	if (mount("tracefs", "tracing", "tracefs", 0, NULL))
		SKIP(return, "no tracefs in this kernel");
	ASSERT_EQ(0, put(trace, ""));
	ASSERT_EQ(0, put(on, "1"));

	fd = dev_open();
	ASSERT_GE(fd, 0);
	mem = anon(LEN);
	gone = anon(LEN);
	fill(mem, LEN, 1);
	ASSERT_EQ(0, reg_full(fd, mem, LEN, RWM, 0, &r));
	ASSERT_EQ(0, reg_full(fd, gone, LEN, RWM, 0, &other));
	ASSERT_EQ(0, copy_one(fd, r.handle, 0, r.handle, 2 * PAGE, PAGE));
	munmap(gone, LEN);
	ASSERT_EQ(0, unreg(fd, r.handle));
	ASSERT_EQ(0, unreg(fd, other.handle));
	ASSERT_EQ(0, put(on, "0"));
	close(fd);

	snprintf(args, sizeof(args), "handle=%llx addr=%llx length=%llu ", (unsigned long long)r.handle,
		 (unsigned long long)(uintptr_t)mem, (unsigned long long)LEN);
	EXPECT_EQ(1, lines(trace, "asyncprog_register", args));
	EXPECT_EQ(2, lines(trace, "asyncprog_register", ""));
	snprintf(args, sizeof(args), "src=%llx dst=%llx length=%llu status=0\n", (unsigned long long)r.handle,
		 (unsigned long long)r.handle, (unsigned long long)PAGE);
	EXPECT_EQ(1, lines(trace, "asyncprog_copied", args));
	snprintf(args, sizeof(args), "handle=%llx ", (unsigned long long)other.handle);
	EXPECT_EQ(1, lines(trace, "asyncprog_stale", args));
	EXPECT_EQ(1, lines(trace, "asyncprog_stale", ""));
	EXPECT_EQ(1, lines(trace, "asyncprog_end", args));
	EXPECT_EQ(2, lines(trace, "asyncprog_end", ""));

	EXPECT_EQ(0, put(trace, ""));
	EXPECT_EQ(0, umount("tracing"));
	EXPECT_EQ(0, chdir("/"));
	snprintf(args, sizeof(args), "%s/tracing", dir);
	EXPECT_EQ(0, rmdir(args));
	EXPECT_EQ(0, rmdir(dir));
}

TEST_HARNESS_MAIN

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "badmem.h"

#define BADMEM_NAME	"bad"
#define BADMEM_POOL	"/sys/kernel/mm/hugepages/hugepages-2048kB/"

static long badmem_read(const char *name)
{
	FILE *f = fopen(name, "r");
	long v = -1;

	if (f) {
		if (fscanf(f, "%ld", &v) != 1)
			v = -1;
		fclose(f);
	}
	return v;
}

static int badmem_pool(const struct badmem *b, long pages)
{
	return dprintf(b->pool, "%ld", pages) < 0 ||
	       badmem_read(BADMEM_POOL "nr_hugepages") != pages;
}

static int badmem_open(struct badmem *b, unsigned int flags)
{
	b->fd = memfd_create(BADMEM_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	if (b->fd >= 0 && !ftruncate(b->fd, BADMEM_SIZE) && !fcntl(b->fd, F_ADD_SEALS, F_SEAL_SHRINK)) {
		b->mem = mmap(NULL, BADMEM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
		if (b->mem != MAP_FAILED) {
			b->mem[0] = 0;
			return 0;
		}
	}
	if (b->fd >= 0)
		close(b->fd);
	return -1;
}

int badmem_make(struct badmem *b)
{
	b->pool = open(BADMEM_POOL "nr_hugepages", O_RDWR | O_CLOEXEC);
	if (b->pool < 0)
		return badmem_open(b, 0);
	flock(b->pool, LOCK_EX);
	b->before = badmem_read(BADMEM_POOL "nr_hugepages");
	if (badmem_read(BADMEM_POOL "free_hugepages") == 0 &&
	    badmem_read(BADMEM_POOL "nr_overcommit_hugepages") == 0) {
		if (!badmem_pool(b, b->before + 1) && !badmem_open(b, MFD_HUGETLB | 21u << 26))
			return 0;
		badmem_pool(b, b->before);
	}
	close(b->pool);
	b->pool = -1;
	return badmem_open(b, 0);
}

/* Tell the main thread of @pid what it would be told if it touched its mapping. */
static int badmem_signal(pid_t pid)
{
	char path[64], line[4096];
	unsigned long start = 0;
	siginfo_t si;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return -1;
	while (!start && fgets(line, sizeof(line), f))
		if (strstr(line, "/memfd:" BADMEM_NAME " "))
			start = strtoul(line, NULL, 16);
	fclose(f);
	if (!start)
		return -1;
	memset(&si, 0, sizeof(si));
	si.si_signo = SIGBUS;
	si.si_code = SI_QUEUE;		/* only the kernel may say BUS_ADRERR */
	si.si_addr = (void *)(start + 64);
	return syscall(SYS_rt_tgsigqueueinfo, pid, pid, SIGBUS, &si) ? -1 : 0;
}

int badmem_break(struct badmem *b, pid_t pid)
{
	int r;

	if (b->pool < 0)
		return pid ? badmem_signal(pid) : 0;
	r = fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BADMEM_SIZE);
	r |= badmem_pool(b, b->before);
	close(b->pool);
	return r ? -1 : 0;
}

void badmem_free(struct badmem *b)
{
	munmap((void *)(uintptr_t)b->mem, BADMEM_SIZE);
	close(b->fd);
}

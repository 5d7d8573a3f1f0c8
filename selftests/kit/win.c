/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "win.h"

int kit_post(void *ctx, unsigned int worker, void (*fn)(void *arg), void *arg)
{
	fn(arg);
	return 0;
}

int kit_memfd(size_t size, void **p)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	*p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(*p != MAP_FAILED);
	return fd;
}

struct win_map *kit_map(size_t size)
{
	struct win_map *m;
	const char *why;
	void *p;

	assert_int_equal(win_map_fd(NULL, kit_memfd(size, &p), 0, false, &m, &why), 0);
	munmap(p, size);
	return m;
}

static size_t ctl_size(uint32_t nranks)
{
	return winctl_size(nranks, KIT_RANGES) + winctl_subs_size(nranks, KIT_SUBS);
}

int kit_ctl(struct winctl *wc, uint64_t key, uint32_t rank, uint32_t nranks)
{
	const char *why = "";
	void *ctl;
	int fd = kit_memfd(ctl_size(nranks), &ctl);

	winctl_format(ctl, key, rank, nranks, KIT_RANGES);
	winctl_format_subs(ctl, KIT_SUBS);
	assert_int_equal(winctl_attach(wc, ctl, ctl_size(nranks), key, rank, nranks, &why), 0);
	return fd;
}

void kit_ctl_free(struct winctl *wc, uint32_t nranks)
{
	munmap(wc->ctl, ctl_size(nranks));
}

int kit_table(const struct prog_win_node nodes[KIT_NODES], uint32_t nranks, uint32_t first_b)
{
	struct {
		struct prog_win_table t;
		struct prog_win_node n[KIT_NODES];
		uint32_t of[];
	} *t;
	size_t size = (sizeof(*t) + nranks * sizeof(t->of[0]) + 4095) & ~4095ull;
	void *p;
	int fd = kit_memfd(size, &p);

	t = p;
	t->t.nranks = nranks;
	t->t.nnodes = KIT_NODES;
	memcpy(t->n, nodes, sizeof(t->n));
	for (uint32_t r = first_b; r < nranks; r++)
		t->of[r] = 1;
	munmap(p, size);
	return fd;
}

struct prog_win_node kit_node(const uint8_t guid[PROG_GUID_SIZE], const struct prog_addr *addr, unsigned int naddrs)
{
	struct prog_win_node n;

	memset(&n, 0, sizeof(n));
	memcpy(n.guid, guid, PROG_GUID_SIZE);
	if (naddrs)
		memcpy(n.addr, addr, naddrs * sizeof(*addr));
	n.naddrs = naddrs;
	return n;
}

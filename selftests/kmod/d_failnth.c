// SPDX-License-Identifier: GPL-2.0-only
/*
 * For kernels with fault injection: every call with its first, second, third... allocation or user
 * access failing, until one goes through unharmed.  A failed call says why, and leaves nothing.
 */
#include <asyncprog/ioat_copy.h>

#include "dmaimp/dmaimp.h"
#include "kmodtest.h"

#define LEN	(40 * PAGE)
#define LIMIT	2000

struct state {
	int fd, ioat;
	uint8_t *a, *b;
	uint64_t ha, hb;
	uint64_t seq;
};

static int write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	int ret = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return ret;
}

static int nth_fd;
static int nth_left;

/* the @nth allocation or access from here on fails */
static int inject(int nth)
{
	char text[16];

	nth_left = -1;
	snprintf(text, sizeof(text), "%d", nth);
	return pwrite(nth_fd, text, strlen(text), 0) < 0 ? -errno : 0;
}

/* no more; what was left to go is 0 when one has failed */
static void inject_end(void)
{
	char text[16] = "";

	if (nth_left >= 0)
		return;
	/* this may be what fails; then nothing failed before */
	nth_left = pread(nth_fd, text, sizeof(text) - 1, 0) > 0 ? atoi(text) : 1;
	while (pwrite(nth_fd, "0", 1, 0) < 0)
		;
}

/* let failures happen where a task asks for them, and nowhere else */
static int arm(void)
{
	static const char * const kinds[] = { "failslab", "fail_page_alloc", "fail_usercopy" };
	char path[128];
	size_t i;

	for (i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/ignore-gfp-wait", kinds[i]);
		write_to(path, "N");
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/verbose", kinds[i]);
		if (write_to(path, "0"))
			return -1;
	}
	return 0;
}

static void setup_state(struct state *s)
{
	memset(s, 0, sizeof(*s));
	s->fd = dev_open();
	s->ioat = -1;
	s->a = anon(LEN);
	s->b = anon(LEN);
	fill(s->a, LEN, 1);
	fill(s->b, LEN, 2);
	s->ha = reg(s->fd, s->a, LEN, RWM, 0);
	s->hb = reg(s->fd, s->b, LEN, RWM, 0);
}

static int ioat_setup(struct state *s)
{
	struct ioat_copy_ioc_setup i = { .size = sizeof(i), .asyncprog_fd = s->fd, .eventfd = -1,
					 .entries = 64 };

	return do_ioctl(s->ioat, IOAT_COPY_IOC_SETUP, &i);
}

/* ---- what is tried; 0 or a negative errno ------------------------------------------------ */

static int try_open(struct state *s)
{
	int fd = dev_open();

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static int try_register(struct state *s)
{
	struct asyncprog_ioc_register r;

	return reg_full(s->fd, s->a + 5, LEN - 5, RWM, 15, &r) ?: unreg(s->fd, r.handle);
}

static int try_register_fresh(struct state *s)
{
	struct asyncprog_ioc_register r;
	uint8_t *m = anon(LEN);
	int ret = reg_full(s->fd, m, LEN, ROM, 0, &r);

	/* on a failure in between munmap leaves it to the end of the file */
	munmap(m, LEN);
	return ret ?: unreg(s->fd, r.handle);
}

static int try_map(struct state *s)
{
	struct asyncprog_ioc_query q;
	int ret = query(s->fd, s->ha, &q);
	uint8_t *p;

	if (ret)
		return ret;
	p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, q.map_offset);
	if (p == MAP_FAILED)
		return -errno;
	ret = touch(p + LEN / 2, 1) ? -ENOMEM : 0;
	/* a mapping that stays would keep the file */
	inject_end();
	munmap(p, LEN);
	return ret;
}

static int try_ring(struct state *s)
{
	struct asyncprog_ioc_ring r;
	int fd = dev_open();
	int ret = fd < 0 ? fd : make_ring(fd, 256, -1, &r);

	if (fd >= 0)
		close(fd);
	return ret;
}

static int try_copy(struct state *s)
{
	struct asyncprog_copy op[8];
	int i;

	for (i = 0; i < 8; i++)
		op[i] = (struct asyncprog_copy){ s->ha, i, s->hb, i * PAGE, PAGE, i };
	return copy_ops(s->fd, op, 8, 0, NULL);
}

static int try_queued(struct state *s)
{
	struct asyncprog_copy op[8];
	struct asyncprog_ioc_ring r;
	int i, ret = make_ring(s->fd, 256, -1, &r);

	if (ret && ret != -EEXIST)
		return ret;
	for (i = 0; i < 8; i++)
		op[i] = (struct asyncprog_copy){ s->ha, i, s->hb, i * PAGE, PAGE, i };
	return copy_ops(s->fd, op, 8, ASYNCPROG_COPY_QUEUED, NULL);
}

static int try_attach(struct state *s)
{
	struct asyncprog_ioc_attach a = { .size = sizeof(a), .fd = dev_open() };
	int ret = a.fd < 0 ? a.fd : do_ioctl(s->fd, ASYNCPROG_IOC_ATTACH, &a);

	if (a.fd >= 0)
		close(a.fd);
	return ret;
}

static int try_dmabuf(struct state *s, uint32_t kind)
{
	struct asyncprog_ioc_dmabuf d = {
		.size = sizeof(d), .handle = s->ha, .length = LEN, .access = RW,
	};
	struct dmaimp_attach a = { .kind = kind };
	struct dmaimp_access io = { .off = 5, .len = 2 * PAGE, .data = (uintptr_t)s->b };
	int ret, imp = open("/dev/dmaimp", O_RDWR);

	if (imp < 0)
		return -errno;
	ret = do_ioctl(s->fd, ASYNCPROG_IOC_DMABUF, &d);
	if (ret)
		goto close;
	a.fd = d.fd;
	ret = do_ioctl(imp, DMAIMP_IOC_ATTACH, &a);
	if (!ret)
		ret = do_ioctl(imp, DMAIMP_IOC_MAP, (void *)DMAIMP_BOTH);
	if (!ret)
		ret = do_ioctl(imp, DMAIMP_IOC_ACCESS, &io);
	if (!ret && memcmp(s->a + 5, s->b, 2 * PAGE))
		ret = -EIO;
	/* waits for who has it pinned */
	if (!ret && kind == DMAIMP_FOLLOWS)
		ret = unreg(s->fd, s->ha);
	close(d.fd);
close:
	close(imp);
	return ret;
}

static int try_dmabuf_pinned(struct state *s)
{
	return try_dmabuf(s, DMAIMP_PINNED);
}

static int try_dmabuf_followed(struct state *s)
{
	return try_dmabuf(s, DMAIMP_FOLLOWS);
}

static int try_ioat(struct state *s)
{
	struct asyncprog_copy op[4];
	struct ioat_copy_ioc_submit sub = {
		.size = sizeof(sub), .flags = IOAT_COPY_ISSUE | IOAT_COPY_DMA,
		.ops = (uintptr_t)op, .nops = 4,
	};
	struct ioat_copy_ioc_wait w = { .size = sizeof(w), .timeout_ns = UINT64_MAX };
	int i, ret;

	for (i = 0; i < 4; i++)
		op[i] = (struct asyncprog_copy){ s->ha, 0, s->hb, i * 2 * PAGE, 2 * PAGE, i };
	s->ioat = open("/dev/ioat_copy", O_RDWR);
	if (s->ioat < 0)
		return -errno;
	ret = ioat_setup(s);
	if (!ret)
		ret = do_ioctl(s->ioat, IOAT_COPY_IOC_SUBMIT, &sub);
	w.seq = sub.seq;
	if (!ret)
		ret = do_ioctl(s->ioat, IOAT_COPY_IOC_WAIT, &w);
	close(s->ioat);
	return ret;
}

static const struct {
	const char *name;
	int (*run)(struct state *s);
} tries[] = {
	{ "open", try_open },
	{ "register", try_register },
	{ "register fresh memory", try_register_fresh },
	{ "map", try_map },
	{ "ring", try_ring },
	{ "copy", try_copy },
	{ "queued copy", try_queued },
	{ "attach", try_attach },
	{ "pinned dma-buf", try_dmabuf_pinned },
	{ "followed dma-buf", try_dmabuf_followed },
	{ "ioat_copy", try_ioat },
};

/* number of failures until it worked, -1: never, -2: an error that is none of an injected fault */
static int sweep(int (*run)(struct state *s), int *error)
{
	struct asyncprog_ioc_info i;
	struct state s;
	int nth, ret;

	for (nth = 1; nth < LIMIT; nth++) {
		setup_state(&s);
		if (inject(nth))
			return -1;
		ret = run(&s);
		inject_end();
		close(s.fd);
		munmap(s.a, LEN);
		munmap(s.b, LEN);
		*error = ret;
		if (ret && ret != -ENOMEM && ret != -EFAULT && ret != -EAGAIN)
			return -2;
		s.fd = dev_open();
		if (!EVENTUALLY(!info(s.fd, &i) && i.total_bytes == 0))
			return -3;
		close(s.fd);
		/* not reached: all of them have failed once */
		if (nth_left > 0)
			return ret ? -2 : nth - 1;
	}
	return -1;
}

FIXTURE(failnth)
{
	char unused;
};

FIXTURE_SETUP(failnth)
{
}

FIXTURE_TEARDOWN(failnth)
{
}

TEST_F_TIMEOUT(failnth, every_failure, 600)
{
	char cmd[512];
	size_t i;

	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
	ASSERT_EQ(0, arm())
		TH_LOG("no fault injection in this kernel");
	snprintf(cmd, sizeof(cmd), "insmod %s", getenv("KMOD_DMAPROV"));
	ASSERT_EQ(0, system(cmd));
	snprintf(cmd, sizeof(cmd), "insmod %s", getenv("KMOD_DMAIMP"));
	ASSERT_EQ(0, system(cmd));
	for (i = 0; i < sizeof(tries) / sizeof(*tries); i++) {
		int error = 0, n = sweep(tries[i].run, &error);

		EXPECT_GT(n, 0)
			TH_LOG("%s: %d, last error %d", tries[i].name, n, error);
		TH_LOG("%s: %d points", tries[i].name, n);
	}
	EXPECT_TRUE(EVENTUALLY(system("rmmod dmaprov 2>/dev/null") == 0));
	EXPECT_TRUE(EVENTUALLY(system("rmmod dmaimp 2>/dev/null") == 0));
}

TEST_HARNESS_MAIN

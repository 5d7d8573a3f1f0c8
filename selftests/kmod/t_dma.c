// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/ioat_copy with the engine in software (dmaprov), well-behaved and not, and without any
 * engine.
 *
 * Each test loads the engine as it needs it; the module takes channels only while the device is
 * open.
 */
#include <asyncprog/ioat_copy.h>

#include <sys/time.h>

#include "kmodtest.h"

#define DEV_IOAT	"/dev/ioat_copy"
#define LEN	(128 * PAGE)
#define MIB	(1UL << 20)
#define RING	1024
#define PIECE	(LEN / RING)
#define RING_BYTES	((sizeof(struct asyncprog_ring) + RING * sizeof(struct asyncprog_cqe) + \
			  PAGE - 1) / PAGE * PAGE)
#define PROV	"/sys/module/dmaprov/parameters/"
#define IOAT	"/sys/module/ioat_copy/parameters/"

FIXTURE(dma)
{
	int ap, fd, efd;
	uint8_t *a, *b, *model;
	uint64_t ha, hb;
	struct asyncprog_ring *ring;
	bool prov;
};

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	int ret = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	close(fd);
	return ret;
}

static long read_number(const char *path)
{
	char text[32] = "";
	int fd = open(path, O_RDONLY);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return -1;
	close(fd);
	return atol(text);
}

static int set(const char *param, long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", value);
	return write_file(param, text);
}

/* $KMOD_DMAPROV is the module's file */
static int load(const char *params)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd), "insmod %s %s", getenv("KMOD_DMAPROV"), params);
	return system(cmd);
}

/* the driver goes when its channels have been given back */
static int unload(void)
{
	return EVENTUALLY(system("rmmod dmaprov 2>/dev/null") == 0) ? 0 : -1;
}

FIXTURE_SETUP(dma)
{
	memset(self, 0, sizeof(*self));
	self->fd = -1;
	/* of a test that was killed */
	if (!access("/sys/module/dmaprov", F_OK))
		unload();
	self->ap = dev_open();
	ASSERT_GE(self->ap, 0);
	self->a = anon(LEN + PAGE);
	self->b = anon(LEN + PAGE);
	self->model = anon(LEN + PAGE);
	fill(self->a, LEN + PAGE, 1);
	fill(self->b, LEN + PAGE, 2);
	ASSERT_NE(0, (self->ha = reg(self->ap, self->a, LEN, RW, 0)));
	ASSERT_NE(0, (self->hb = reg(self->ap, self->b, LEN, RW, 0)));
	ASSERT_EQ(0, set(IOAT "min_bytes", 1));
	ASSERT_EQ(0, set(IOAT "timeout_ms", 10000));
}

/* the mapping of the ring holds the file, too */
static void finish(struct _test_data_dma *self)
{
	if (self->ring)
		munmap(self->ring, RING_BYTES);
	self->ring = NULL;
	close(self->fd);
	self->fd = -1;
}

FIXTURE_TEARDOWN(dma)
{
	finish(self);
	close(self->ap);
	if (self->prov)
		ASSERT_EQ(0, unload());
}

static int setup(int fd, int ap, int efd, uint32_t entries, struct ioat_copy_ioc_setup *s)
{
	*s = (struct ioat_copy_ioc_setup){
		.size = sizeof(*s), .asyncprog_fd = ap, .eventfd = efd, .entries = entries,
	};
	return do_ioctl(fd, IOAT_COPY_IOC_SETUP, s);
}

/* load the engine (unless params is NULL), open the device, make the ring */
#define START(params) do {								\
	struct ioat_copy_ioc_setup s_;							\
	if (params) {									\
		ASSERT_EQ(0, load((params) ? (params) : ""));				\
		self->prov = true;							\
	}										\
	self->fd = open("/dev/ioat_copy", O_RDWR | O_CLOEXEC);				\
	ASSERT_GE(self->fd, 0);								\
	self->efd = eventfd(0, EFD_NONBLOCK);						\
	ASSERT_EQ(0, setup(self->fd, self->ap, self->efd, RING, &s_));			\
	self->ring = mmap(NULL, s_.ring_size, PROT_READ | PROT_WRITE, MAP_SHARED,	\
			  self->fd, s_.ring_offset);					\
	ASSERT_NE(MAP_FAILED, self->ring);						\
} while (0)

static int submit(int fd, const struct asyncprog_copy *ops, uint32_t n, uint32_t flags,
		  uint64_t *seq)
{
	struct ioat_copy_ioc_submit s = {
		.size = sizeof(s), .flags = flags, .ops = (uintptr_t)ops, .nops = n,
	};
	int ret = do_ioctl(fd, IOAT_COPY_IOC_SUBMIT, &s);

	if (seq)
		*seq = s.seq;
	return ret;
}

static int wait_seq(int fd, uint64_t seq, uint64_t timeout_ns)
{
	struct ioat_copy_ioc_wait w = { .size = sizeof(w), .seq = seq, .timeout_ns = timeout_ns };

	return do_ioctl(fd, IOAT_COPY_IOC_WAIT, &w);
}

static struct ioat_copy_ioc_query ask(int fd)
{
	struct ioat_copy_ioc_query q = { .size = sizeof(q) };

	if (do_ioctl(fd, IOAT_COPY_IOC_QUERY, &q))
		memset(&q, 0xff, sizeof(q));
	return q;
}

static bool take(struct asyncprog_ring *ring, struct asyncprog_cqe *cqe)
{
	if (__atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) == ring->head)
		return false;
	*cqe = ring->cqe[ring->head & (ring->entries - 1)];
	__atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
	return true;
}

/* random copies in batches, every byte compared; returns the failed ones, or -1 */
static int random_copies(struct _test_data_dma *self, int rounds, uint32_t align, uint32_t flags,
			 int expect)
{
	struct asyncprog_copy ops[16];
	struct asyncprog_cqe cqe;
	uint32_t seed = 4711;
	int round, i, failed = 0;
	uint64_t seq;

	memcpy(self->model, self->b, LEN);
	for (round = 0; round < rounds; round++) {
		uint32_t n = 1 + rnd(&seed) % 16, slice = LEN / 16 / align * align;

		for (i = 0; i < (int)n; i++) {
			uint64_t len = 1 + rnd(&seed) % slice, from, to;

			if (align > 1)
				len = (len + align - 1) / align * align;
			from = rnd(&seed) % (LEN - len + 1) / align * align;
			to = i * slice + rnd(&seed) % (slice - len + 1) / align * align;
			ops[i] = (struct asyncprog_copy){ self->ha, from, self->hb, to, len, i };
		}
		if (submit(self->fd, ops, n, flags | IOAT_COPY_ISSUE, &seq) ||
		    wait_seq(self->fd, seq, UINT64_MAX))
			return -1;
		for (i = 0; i < (int)n; i++) {
			if (!take(self->ring, &cqe) || cqe.cookie >= n)
				return -1;
			if (cqe.status) {
				if (cqe.status != expect) {
					printf("# round %d: status %d\n", round, cqe.status);
					return -1;
				}
				failed++;
				/* its contents are undefined */
				memcpy(self->model + ops[cqe.cookie].dst_off,
				       self->b + ops[cqe.cookie].dst_off, ops[cqe.cookie].len);
				continue;
			}
			if (cqe.bytes != ops[cqe.cookie].len)
				return -1;
			memcpy(self->model + ops[cqe.cookie].dst_off,
			       self->a + ops[cqe.cookie].src_off, ops[cqe.cookie].len);
		}
		if (memcmp(self->model, self->b, LEN)) {
			for (i = 0; self->model[i] == self->b[i]; i++)
				;
			printf("# round %d: first wrong byte %d\n", round, i);
			return -1;
		}
	}
	return failed;
}

TEST_F(dma, no_engine)
{
	struct ioat_copy_ioc_info i = { .size = sizeof(i) };
	struct ioat_copy_ioc_query q;

	START(NULL);
	ASSERT_EQ(0, do_ioctl(self->fd, IOAT_COPY_IOC_INFO, &i));
	EXPECT_EQ(IOAT_COPY_ABI, i.abi);
	EXPECT_EQ(0, i.channels);
	EXPECT_EQ(0, i.features);
	EXPECT_GE(i.threads, 1);
	EXPECT_EQ(0, random_copies(self, 50, 1, 0, 0));
	q = ask(self->fd);
	EXPECT_EQ(0, q.dma_bytes);
	EXPECT_NE(0, q.cpu_bytes);
	EXPECT_EQ(q.submitted, q.completed);
	EXPECT_EQ(q.submitted, q.done_seq);
}

TEST_F(dma, engine)
{
	struct ioat_copy_ioc_info i = { .size = sizeof(i) };
	struct ioat_copy_ioc_query q;

	START("");
	ASSERT_EQ(0, do_ioctl(self->fd, IOAT_COPY_IOC_INFO, &i));
	EXPECT_EQ(2, i.channels);
	EXPECT_EQ(IOAT_COPY_FEAT_DMA | IOAT_COPY_FEAT_ORDERED, i.features);
	EXPECT_EQ(0, strncmp((char *)i.engine, "dmaprov", 7));
	EXPECT_EQ(65536, i.max_seg);
	EXPECT_EQ(1, i.copy_align);
	/* a driver in use stays */
	EXPECT_NE(0, system("rmmod dmaprov 2>/dev/null"));
	EXPECT_EQ(0, random_copies(self, 100, 1, 0, 0));
	q = ask(self->fd);
	EXPECT_EQ(0, q.cpu_bytes);
	EXPECT_NE(0, q.dma_bytes);
	EXPECT_EQ(0, q.fallbacks);
	EXPECT_EQ(100, q.interrupts);
	EXPECT_EQ(0, read_number(PROV "bad"));
}

/* 64 copies of a page each: one ioctl, one interrupt */
TEST_F(dma, one_interrupt_per_batch)
{
	struct asyncprog_copy ops[64];
	uint64_t seq, count;
	struct timespec t[2];
	long before;
	int i;

	START("");
	for (i = 0; i < 64; i++)
		ops[i] = (struct asyncprog_copy){ self->ha, i * PAGE, self->hb, (63 - i) * PAGE,
						  PAGE, i };
	before = read_number(PROV "interrupts");
	clock_gettime(CLOCK_MONOTONIC, &t[0]);
	ASSERT_EQ(0, submit(self->fd, ops, 64, IOAT_COPY_ISSUE, &seq));
	EXPECT_EQ(64, seq);
	ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	clock_gettime(CLOCK_MONOTONIC, &t[1]);
	EXPECT_EQ(before + 1, read_number(PROV "interrupts"));
	EXPECT_EQ(64, self->ring->tail);
	ASSERT_EQ(8, read(self->efd, &count, 8));
	EXPECT_EQ(64, count);
	for (i = 0; i < 64; i++)
		EXPECT_EQ(0, memcmp(self->a + i * PAGE, self->b + (63 - i) * PAGE, PAGE));
	/* nobody asks in the first tenth of a second */
	if ((t[1].tv_sec - t[0].tv_sec) * 1000 + (t[1].tv_nsec - t[0].tv_nsec) / 1000000 < 90)
		EXPECT_EQ(0, ask(self->fd).status_reads);
}

/* several submissions are one batch when they are issued together */
TEST_F(dma, explicit_issue)
{
	struct ioat_copy_ioc_issue is = { .size = sizeof(is) };
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
	long before, done;
	uint64_t seq;
	int i;

	START("");
	before = read_number(PROV "interrupts");
	done = read_number(PROV "copies");
	for (i = 0; i < 10; i++) {
		op.dst_off = i * PAGE;
		ASSERT_EQ(0, submit(self->fd, &op, 1, 0, &seq));
		EXPECT_EQ(i + 1, seq);
	}
	EXPECT_EQ(done, read_number(PROV "copies"));
	EXPECT_EQ(0, ask(self->fd).done_seq);
	ASSERT_EQ(0, do_ioctl(self->fd, IOAT_COPY_IOC_ISSUE, &is));
	EXPECT_TRUE(EVENTUALLY(ask(self->fd).done_seq == 10));
	EXPECT_EQ(done + 10, read_number(PROV "copies"));
	EXPECT_EQ(before + 1, read_number(PROV "interrupts"));
	/* waiting issues, too */
	ASSERT_EQ(0, submit(self->fd, &op, 1, 0, &seq));
	EXPECT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	EXPECT_EQ(-EINVAL, wait_seq(self->fd, seq + 1, 0));
}

TEST_F(dma, aligned_engine)
{
	struct ioat_copy_ioc_query q;

	START("copy_align=6 max_seg=8192");
	EXPECT_EQ(0, random_copies(self, 100, 1, 0, 0));
	q = ask(self->fd);
	EXPECT_NE(0, q.cpu_bytes);
	EXPECT_EQ(0, q.failed);
	/* when both ends allow it the engine does all but head and tail */
	EXPECT_EQ(0, random_copies(self, 50, 64, 0, 0));
	EXPECT_EQ(q.cpu_bytes, ask(self->fd).cpu_bytes);
	EXPECT_LT(q.dma_bytes, ask(self->fd).dma_bytes);
	EXPECT_EQ(0, read_number(PROV "bad"));
}

TEST_F(dma, head_and_tail)
{
	struct asyncprog_copy op = { self->ha, 3, self->hb, 3 + 8 * PAGE, 3 * PAGE, 1 };
	struct asyncprog_cqe cqe;
	uint64_t seq;

	START("copy_align=2");
	memcpy(self->model, self->b, LEN);
	memcpy(self->model + op.dst_off, self->a + 3, op.len);
	ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_ISSUE, &seq));
	ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	EXPECT_EQ(0, memcmp(self->model, self->b, LEN));
	EXPECT_EQ(4, ask(self->fd).cpu_bytes);
	EXPECT_EQ(3 * PAGE - 4, ask(self->fd).dma_bytes);
	ASSERT_TRUE(take(self->ring, &cqe));
	EXPECT_EQ(ASYNCPROG_CQE_DMA | ASYNCPROG_CQE_CPU, cqe.flags);
	EXPECT_EQ(0, read_number(PROV "bad"));
}

TEST_F(dma, out_of_order)
{
	struct ioat_copy_ioc_info i = { .size = sizeof(i) };

	START("no_order=1");
	ASSERT_EQ(0, do_ioctl(self->fd, IOAT_COPY_IOC_INFO, &i));
	EXPECT_EQ(IOAT_COPY_FEAT_DMA, i.features);
	EXPECT_EQ(0, random_copies(self, 100, 1, 0, 0));
	/* there is nothing to ask there */
	EXPECT_EQ(0, random_copies(self, 20, 1, IOAT_COPY_POLLED, 0));
	EXPECT_EQ(0, ask(self->fd).status_reads);
}

TEST_F(dma, errors)
{
	int failed;

	START("error_nth=7");
	failed = random_copies(self, 100, 1, 0, -EIO);
	EXPECT_GT(failed, 0);
	EXPECT_EQ(failed, ask(self->fd).failed);
	ASSERT_EQ(0, set(PROV "error_nth", 0));
	EXPECT_EQ(0, random_copies(self, 20, 1, 0, 0));
}

TEST_F(dma, aborted)
{
	int failed;

	START("error_nth=5 give_up=1");
	failed = random_copies(self, 30, 1, 0, -ECANCELED);
	EXPECT_GT(failed, 0);
	EXPECT_EQ(failed, ask(self->fd).failed);
}

/* what it could not be given as it demands is not asked of it */
TEST_F(dma, unusable_engines)
{
	static const char * const params[] = { "copy_align=13", "copy_align=12 max_seg=2048" };
	struct ioat_copy_ioc_info info_;
	size_t i;

	for (i = 0; i < 2; i++) {
		START(params[i]);
		info_ = (struct ioat_copy_ioc_info){ .size = sizeof(info_) };
		ASSERT_EQ(0, do_ioctl(self->fd, IOAT_COPY_IOC_INFO, &info_));
		EXPECT_EQ(0, info_.channels)
			TH_LOG("%s", params[i]);
		EXPECT_EQ(0, random_copies(self, 10, 1, 0, 0));
		EXPECT_EQ(0, ask(self->fd).dma_bytes);
		finish(self);
		ASSERT_EQ(0, unload());
		self->prov = false;
	}
}

/* no descriptor, now and then or for good: the data arrives all the same */
TEST_F(dma, few_descriptors)
{
	START("null_nth=3");
	EXPECT_EQ(0, random_copies(self, 30, 1, 0, 0));
	ASSERT_EQ(0, set(PROV "null_nth", 1));
	EXPECT_EQ(0, random_copies(self, 3, 1, 0, 0));
	EXPECT_GT(ask(self->fd).fallbacks, 0);
	ASSERT_EQ(0, set(PROV "null_nth", 0));
	ASSERT_EQ(0, set(PROV "descs", 2));
	EXPECT_EQ(0, random_copies(self, 10, 1, 0, 0));
	EXPECT_EQ(0, ask(self->fd).failed);
}

TEST_F(dma, lost_interrupts)
{
	START("mute_nth=2");
	EXPECT_EQ(0, random_copies(self, 10, 1, 0, 0));
	EXPECT_EQ(0, ask(self->fd).failed);
}

/* also while new copies come in all the time */
TEST_F(dma, lost_interrupts_amid_others)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PIECE, 1 };
	int i;

	START("mute_nth=1 descs=2000");
	for (i = 0; i < RING && !ask(self->fd).completed; i++) {
		op.dst_off = i * PIECE;
		ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_ISSUE, NULL));
		usleep(3000);
	}
	EXPECT_LT(i, RING);
	TH_LOG("%d copies, %lu status reads", i, (unsigned long)ask(self->fd).status_reads);
	EXPECT_EQ(0, ask(self->fd).failed);
}

TEST_F(dma, polled)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, LEN, 1 };
	struct ioat_copy_ioc_query q;
	uint64_t seq;

	START("delay_us=5000");
	ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_ISSUE | IOAT_COPY_POLLED, &seq));
	ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	q = ask(self->fd);
	EXPECT_EQ(0, q.interrupts);
	EXPECT_EQ(0, read_number(PROV "interrupts"));
	TH_LOG("%ld pieces of 5 ms, polled: %lu status reads", read_number(PROV "copies"),
	       (unsigned long)q.status_reads);
	EXPECT_GT(q.status_reads, 0);
	/* 8 ln(20 s / 2 us) */
	EXPECT_LT(q.status_reads, 130);
	EXPECT_EQ(0, memcmp(self->a, self->b, LEN));
	ASSERT_EQ(0, set(PROV "delay_us", 0));
	self->ring->head = self->ring->tail;
	EXPECT_EQ(0, random_copies(self, 50, 1, IOAT_COPY_POLLED, 0));
}

/* the engine takes descriptors back when it interrupts: without any it would soon have none */
TEST_F(dma, polled_for_long)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
	struct ioat_copy_ioc_query q;
	uint64_t seq;
	int i;

	START("");
	for (i = 0; i < 600; i++) {
		ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_ISSUE | IOAT_COPY_POLLED, &seq));
		ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
		self->ring->head = self->ring->tail;
	}
	q = ask(self->fd);
	EXPECT_EQ(0, q.fallbacks);
	EXPECT_EQ(0, q.cpu_bytes);
	EXPECT_EQ(600, read_number(PROV "copies"));
	EXPECT_LE(read_number(PROV "interrupts"), 600 / 128);
}

/* so do large batches, with one interrupt per batch otherwise */
TEST_F(dma, large_batch)
{
	static struct asyncprog_copy ops[RING];
	struct ioat_copy_ioc_query q;
	uint64_t seq;
	int i;

	START("");
	for (i = 0; i < RING; i++)
		ops[i] = (struct asyncprog_copy){ self->ha, i * PIECE, self->hb, i * PIECE, 256, i };
	ASSERT_EQ(0, submit(self->fd, ops, RING, IOAT_COPY_ISSUE, &seq));
	ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	q = ask(self->fd);
	EXPECT_EQ(RING, q.completed);
	EXPECT_EQ(0, q.failed);
	EXPECT_EQ(RING * 256, q.dma_bytes + q.cpu_bytes);
	EXPECT_GT(q.dma_bytes, q.cpu_bytes);
	for (i = 0; i < RING; i++)
		EXPECT_EQ(0, memcmp(self->a + i * PIECE, self->b + i * PIECE, 256));
}

/* the completion that never comes: an error in time, and the pages stay until it does come */
TEST_F(dma, late_completion)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
	struct asyncprog_ioc_info i;
	struct asyncprog_cqe cqe;
	uint64_t seq;

	START("lose_nth=1");
	ASSERT_EQ(0, set(IOAT "timeout_ms", 200));
	ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_ISSUE, &seq));
	EXPECT_EQ(-ETIME, wait_seq(self->fd, seq, 1000000));
	ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	ASSERT_TRUE(take(self->ring, &cqe));
	EXPECT_EQ(-ETIMEDOUT, cqe.status);
	EXPECT_EQ(0, cqe.bytes);
	EXPECT_EQ(1, ask(self->fd).failed);
	/* the engine is not trusted meanwhile */
	ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_ISSUE, &seq));
	ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	ASSERT_TRUE(take(self->ring, &cqe));
	EXPECT_EQ(0, cqe.status);
	EXPECT_EQ(ASYNCPROG_CQE_CPU, cqe.flags);

	ASSERT_EQ(0, set("/sys/module/asyncprog/parameters/drain_ms", 100));
	EXPECT_EQ(-EINPROGRESS, unreg(self->ap, self->hb));
	ASSERT_EQ(0, info(self->ap, &i));
	EXPECT_EQ(2 * LEN, i.uid_bytes);
	EXPECT_EQ(-ENOENT, unreg(self->ap, self->hb));

	ASSERT_EQ(0, set(PROV "lose_nth", 0));
	ASSERT_EQ(0, set(PROV "lost", 1));
	EXPECT_TRUE(EVENTUALLY(!info(self->ap, &i) && i.uid_bytes == LEN));
	ASSERT_EQ(0, set("/sys/module/asyncprog/parameters/drain_ms", 5000));
}

/* the same, but the file is closed first: the engine is stopped, and everything goes */
TEST_F(dma, lost_then_closed)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
	struct asyncprog_ioc_info i;
	uint64_t seq;

	START("lose_nth=2");
	ASSERT_EQ(0, set(IOAT "timeout_ms", 200));
	ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_ISSUE, &seq));
	op.dst_off = PAGE;
	ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_ISSUE, &seq));
	finish(self);
	EXPECT_EQ(0, unreg(self->ap, self->ha));
	EXPECT_EQ(0, unreg(self->ap, self->hb));
	EXPECT_TRUE(EVENTUALLY(!info(self->ap, &i) && i.uid_bytes == 0));
}

#define AHEAD	64

/* another context, whose copies the engine is given */
static int queue_ahead(struct _test_data_dma *self)
{
	int fd = open(DEV_IOAT, O_RDWR | O_CLOEXEC), i;
	struct asyncprog_copy ops[AHEAD];
	struct ioat_copy_ioc_setup s;

	for (i = 0; i < AHEAD; i++)
		ops[i] = (struct asyncprog_copy){ self->ha, 0, self->hb, i * PAGE, PAGE, i };
	if (fd < 0 || setup(fd, self->ap, -1, AHEAD, &s) ||
	    submit(fd, ops, AHEAD, IOAT_COPY_DMA | IOAT_COPY_ISSUE, NULL))
		return -1;
	return fd;
}

/* an engine that works has not failed, however much others gave it before */
TEST_F(dma, behind_others)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, AHEAD * PAGE, PAGE, 1 };
	struct asyncprog_cqe cqe;
	uint64_t seq;
	int other;

	/* longer than timeout_ms, together */
	START("channels=1 delay_us=200000");
	ASSERT_GE((other = queue_ahead(self)), 0);
	ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_DMA | IOAT_COPY_ISSUE, &seq));
	ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	ASSERT_TRUE(take(self->ring, &cqe));
	EXPECT_EQ(0, cqe.status);
	EXPECT_EQ(ASYNCPROG_CQE_DMA, cqe.flags);
	ASSERT_EQ(0, wait_seq(other, AHEAD, UINT64_MAX));
	EXPECT_EQ(0, ask(other).failed);
	close(other);
}

/* likewise where what came last may be first */
TEST_F(dma, among_others_out_of_order)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, AHEAD * PAGE, PAGE, 1 };
	uint64_t seq;
	int other;

	/* longer than timeout_ms, together */
	START("channels=1 no_order=1 delay_us=50000");
	ASSERT_EQ(0, set(IOAT "timeout_ms", 1000));
	ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_DMA | IOAT_COPY_ISSUE, &seq));
	ASSERT_GE((other = queue_ahead(self)), 0);
	ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	ASSERT_EQ(0, wait_seq(other, AHEAD, UINT64_MAX));
	EXPECT_EQ(0, ask(self->fd).failed);
	EXPECT_EQ(0, ask(other).failed);
	close(other);
}

/* which then hears in the end of a copy that was lost, whatever else is copied */
TEST_F(dma, lost_out_of_order)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
	struct ioat_copy_ioc_setup s;
	int other, i;
	uint64_t seq;

	START("channels=1 no_order=1 lose_nth=2");
	ASSERT_EQ(0, set(IOAT "timeout_ms", 100));
	for (i = 0; i < 3; i++) {
		op.dst_off = i * PAGE;
		ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_DMA | IOAT_COPY_ISSUE, NULL));
	}
	/* the engine has had all three, and lost one: no other is to be lost */
	ASSERT_TRUE(EVENTUALLY(read_number(PROV "copies") == 2));
	ASSERT_EQ(0, set(PROV "lose_nth", 0));
	ASSERT_GE((other = open(DEV_IOAT, O_RDWR | O_CLOEXEC)), 0);
	ASSERT_EQ(0, setup(other, self->ap, -1, 4096, &s));
	while (!ask(self->fd).failed) {
		ASSERT_EQ(0, submit(other, &op, 1, IOAT_COPY_DMA | IOAT_COPY_ISSUE, &seq));
		ASSERT_EQ(0, wait_seq(other, seq, UINT64_MAX));
		usleep(10000);
	}
	EXPECT_EQ(1, ask(self->fd).failed);
	EXPECT_EQ(0, ask(other).failed);
	close(other);
	ASSERT_EQ(0, set(PROV "lost", 1));
}

/* but who closes waits for timeout_ms, not for them */
TEST_F(dma, closed_behind_others)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, AHEAD * PAGE, PAGE, 1 };
	int other;

	START("channels=1 delay_us=200000");
	ASSERT_EQ(0, set(IOAT "timeout_ms", 1000));
	ASSERT_GE((other = queue_ahead(self)), 0);
	ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_DMA | IOAT_COPY_ISSUE, NULL));
	finish(self);
	EXPECT_LT(read_number(PROV "copies"), AHEAD);
	ASSERT_EQ(0, set(PROV "delay_us", 0));
	close(other);
}

TEST_F(dma, killed_in_a_batch)
{
	struct asyncprog_ioc_info i;
	int round;

	START("delay_us=300");
	for (round = 0; round < 10; round++) {
		int up[2];
		pid_t pid;

		ASSERT_EQ(0, pipe(up));
		pid = fork();
		if (!pid) {
			struct ioat_copy_ioc_setup s;
			uint8_t *m = anon(LEN), *n = anon(LEN);
			uint64_t hm = reg(self->ap, m, LEN, RW, 0);
			uint64_t hn = reg(self->ap, n, LEN, RW, 0);
			struct asyncprog_copy op = { hm, 0, hn, 0, PAGE, 1 };
			int fd = open("/dev/ioat_copy", O_RDWR), ret, n_copies = 0;
			struct asyncprog_ring *ring;

			/* fewer than pages, so that none goes where another one does */
			if (setup(fd, self->ap, -1, 64, &s))
				_exit(1);
			ring = mmap(NULL, s.ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
				    s.ring_offset);
			if (ring == MAP_FAILED)
				_exit(1);
			post(up[1]);
			do {
				op.dst_off = n_copies % (LEN / PAGE) * PAGE;
				ret = submit(fd, &op, 1, IOAT_COPY_ISSUE, NULL);
				n_copies += !ret;
				ring->head = ring->tail;
			} while (!ret || ret == -EBUSY);
			_exit(2);
		}
		ASSERT_EQ(0, await(up[0]));
		usleep(500 * round);
		kill(pid, SIGKILL);
		ASSERT_EQ(-SIGKILL, reap(pid));
		close(up[0]);
		close(up[1]);
	}
	EXPECT_TRUE(EVENTUALLY(!info(self->ap, &i) && i.uid_bytes == 2 * LEN));
}

TEST_F(dma, unregister_while_running)
{
	struct asyncprog_copy ops[32];
	struct asyncprog_cqe cqe;
	uint64_t seq;
	uint8_t saved;
	int i;

	START("delay_us=1000");
	for (i = 0; i < 32; i++)
		ops[i] = (struct asyncprog_copy){ self->ha, 0, self->hb, i * PAGE, PAGE, i };
	ASSERT_EQ(0, submit(self->fd, ops, 32, IOAT_COPY_ISSUE, &seq));
	ASSERT_EQ(0, unreg(self->ap, self->hb));
	/* the engine has done what it was given before the memory was let go */
	saved = self->b[31 * PAGE] ^ 0xff;
	self->b[31 * PAGE] = saved;
	ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	for (i = 0; i < 32; i++) {
		ASSERT_TRUE(take(self->ring, &cqe));
		EXPECT_EQ(0, cqe.status);
	}
	EXPECT_EQ(saved, self->b[31 * PAGE]);
	EXPECT_EQ(-ENOENT, submit(self->fd, ops, 1, IOAT_COPY_ISSUE, &seq));
}

/* what was only submitted is not copied any more when a region has ended */
TEST_F(dma, ended_before_issue)
{
	static const uint32_t by[] = { IOAT_COPY_CPU, IOAT_COPY_DMA };
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
	struct asyncprog_cqe cqe;
	uint64_t seq;
	size_t i;

	START("");
	memcpy(self->model, self->b, LEN);
	ASSERT_EQ(0, set("/sys/module/asyncprog/parameters/drain_ms", 10));
	for (i = 0; i < 2; i++) {
		ASSERT_NE(0, (op.dst = reg(self->ap, self->b, PAGE, RW, 0)));
		ASSERT_EQ(0, submit(self->fd, &op, 1, by[i], &seq));
		EXPECT_EQ(-EINPROGRESS, unreg(self->ap, op.dst));
		ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
		ASSERT_TRUE(take(self->ring, &cqe));
		EXPECT_EQ(-ESTALE, cqe.status);
		EXPECT_EQ(0, cqe.bytes);
	}
	ASSERT_EQ(0, set("/sys/module/asyncprog/parameters/drain_ms", 5000));
	EXPECT_EQ(0, read_number(PROV "copies"));
	EXPECT_EQ(0, memcmp(self->model, self->b, LEN));
}

TEST_F(dma, closed_before_issue)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };

	START("");
	memcpy(self->model, self->b, LEN);
	ASSERT_EQ(0, submit(self->fd, &op, 1, 0, NULL));
	finish(self);
	EXPECT_EQ(0, memcmp(self->model, self->b, LEN));
	EXPECT_EQ(0, unreg(self->ap, self->hb));
}

TEST_F(dma, arguments)
{
	struct asyncprog_copy ops[2] = {
		{ self->ha, 0, self->hb, 0, PAGE, 1 }, { self->ha, LEN, self->hb, 0, PAGE, 1 },
	};
	struct ioat_copy_ioc_setup s;
	struct ioat_copy_ioc_query q = { .size = sizeof(q) };
	struct ioat_copy_ioc_issue is = { .size = sizeof(is) };
	uint8_t *other = anon(2 * PAGE);
	uint64_t seq;
	uint32_t nr;

	EXPECT_EQ(-1, open("/dev/ioat_copy", O_RDONLY));
	EXPECT_EQ(EACCES, errno);
	self->fd = open("/dev/ioat_copy", O_RDWR);
	EXPECT_EQ(-ENXIO, submit(self->fd, ops, 1, IOAT_COPY_ISSUE, &seq));
	EXPECT_EQ(-ENXIO, wait_seq(self->fd, 0, 0));
	EXPECT_EQ(-ENXIO, do_ioctl(self->fd, IOAT_COPY_IOC_QUERY, &q));
	EXPECT_EQ(-ENXIO, do_ioctl(self->fd, IOAT_COPY_IOC_ISSUE, &is));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, self->fd, 0));
	EXPECT_EQ(ENXIO, errno);
	EXPECT_EQ(-EBADF, setup(self->fd, 1000, -1, 8, &s));
	EXPECT_EQ(-EINVAL, setup(self->fd, self->fd, -1, 8, &s));
	EXPECT_EQ(-EINVAL, setup(self->fd, self->ap, -1, 7, &s));
	EXPECT_EQ(-EBADF, setup(self->fd, self->ap, 1000, 8, &s));
	EXPECT_EQ(-EINVAL, setup(self->fd, self->ap, self->ap, 8, &s));
	EXPECT_EQ(0, setup(self->fd, self->ap, -1, 2, &s));
	EXPECT_EQ(-EEXIST, setup(self->fd, self->ap, -1, 2, &s));
	EXPECT_EQ(-EINVAL, submit(self->fd, ops, 0, IOAT_COPY_ISSUE, &seq));
	EXPECT_EQ(-EINVAL, submit(self->fd, ops, IOAT_COPY_MAX_OPS + 1, 0, &seq));
	EXPECT_EQ(-EINVAL, submit(self->fd, ops, 1, 16, &seq));
	EXPECT_EQ(-EINVAL, submit(self->fd, ops, 1, IOAT_COPY_CPU | IOAT_COPY_DMA, &seq));
	EXPECT_EQ(-EFAULT, submit(self->fd, NULL, 1, 0, &seq));
	EXPECT_EQ(-ERANGE, submit(self->fd, ops, 2, 0, &seq));
	ops[1] = (struct asyncprog_copy){ self->ha, 0, self->ha, PAGE - 1, PAGE, 1 };
	EXPECT_EQ(-EINVAL, submit(self->fd, ops, 2, 0, &seq));
	ops[1] = (struct asyncprog_copy){ self->ha, 0, self->hb, 0, 0, 1 };
	EXPECT_EQ(-EINVAL, submit(self->fd, ops, 2, 0, &seq));
	/* a stale region */
	ops[1] = (struct asyncprog_copy){ self->ha, 0, reg(self->ap, other, PAGE, RW, 0), 0, 8, 1 };
	ASSERT_EQ(0, munmap(other, PAGE));
	EXPECT_EQ(-ESTALE, submit(self->fd, ops, 2, 0, &seq));
	EXPECT_EQ(0, ask(self->fd).submitted);
	ops[1] = (struct asyncprog_copy){ self->ha, PAGE, self->hb, PAGE, PAGE, 1 };
	EXPECT_EQ(0, submit(self->fd, ops, 2, 0, &seq));
	EXPECT_EQ(-EBUSY, submit(self->fd, ops, 1, 0, &seq));
	EXPECT_EQ(0, wait_seq(self->fd, 2, UINT64_MAX));
	for (nr = 0x46; nr < 256; nr++)
		ASSERT_EQ(-ENOTTY, do_ioctl(self->fd, _IO(IOAT_COPY_IOC_TYPE, nr), &q));
	for (nr = 0; nr < 0x40; nr++)
		ASSERT_EQ(-ENOTTY, do_ioctl(self->fd, _IO(IOAT_COPY_IOC_TYPE, nr), &q));
	for (nr = 0; nr < sizeof(q); nr++) {
		q.size = nr;
		ASSERT_EQ(-EINVAL, do_ioctl(self->fd, IOAT_COPY_IOC_QUERY, &q));
	}
}

TEST_F(dma, mappings_of_the_ring)
{
	START(NULL);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, self->fd, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, self->fd, 0));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, self->fd, PAGE));
	EXPECT_EQ(ENXIO, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, RING_BYTES + PAGE, PROT_READ, MAP_SHARED, self->fd, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, mprotect(self->ring, PAGE, PROT_READ | PROT_EXEC));
	EXPECT_EQ(EACCES, errno);
}

static void on_alarm(int sig)
{
}

/* a signal ends the wait, not the copies */
TEST_F(dma, interrupted_wait)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval soon = { .it_value.tv_usec = 20000, .it_interval.tv_usec = 20000 };
	struct itimerval never = { .it_value.tv_sec = 0 };
	uint64_t seq;

	START("lose_nth=1");
	ASSERT_EQ(0, sigaction(SIGALRM, &sa, NULL));
	ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_ISSUE, &seq));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &soon, NULL));
	EXPECT_EQ(-EINTR, wait_seq(self->fd, seq, UINT64_MAX));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
	EXPECT_EQ(0, ask(self->fd).completed);
	ASSERT_EQ(0, set(PROV "lost", 1));
	EXPECT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
	EXPECT_EQ(0, ask(self->fd).failed);
}

/* neither an engine nor a CPU writes to what may only be read, nor reads what may only be written */
TEST_F(dma, read_only)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
	uint32_t flags;

	START("");
	ASSERT_NE(0, (op.dst = reg(self->ap, self->b, LEN, ROM, 0)));
	memcpy(self->model, self->b, LEN);
	for (flags = 0; flags < 16; flags++) {
		if ((flags & IOAT_COPY_CPU) && (flags & IOAT_COPY_DMA))
			continue;
		EXPECT_EQ(-EACCES, submit(self->fd, &op, 1, flags, NULL));
	}
	EXPECT_EQ(0, ask(self->fd).submitted);
	EXPECT_EQ(0, memcmp(self->model, self->b, LEN));
	op.dst = self->hb;
	ASSERT_NE(0, (op.src = reg(self->ap, self->a, LEN, ASYNCPROG_ACCESS_WRITE, 0)));
	EXPECT_EQ(-EACCES, submit(self->fd, &op, 1, IOAT_COPY_ISSUE, NULL));
}

/* rights are those of the asyncprog file that was bound */
TEST_F(dma, other_owner)
{
	pid_t pid;

	pid = fork();
	if (!pid) {
		struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
		struct ioat_copy_ioc_setup s;
		int fd = open("/dev/ioat_copy", O_RDWR);

		if (setup(fd, self->ap, -1, 8, &s))
			_exit(1);
		_exit(-submit(fd, &op, 1, IOAT_COPY_ISSUE, NULL));
	}
	EXPECT_EQ(EACCES, reap(pid));
}

/* The same of contexts that are attached to it, also when they were attached later. */
TEST_F(dma, attached)
{
	struct asyncprog_ioc_attach at = { .size = sizeof(at), .fd = self->ap };
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
	uint64_t h = reg(self->ap, self->a, LEN, RW, ASYNCPROG_CONSENT_FD);
	uint64_t g = reg(self->ap, self->b, LEN, RW, ASYNCPROG_CONSENT_FD);
	pid_t pid;

	START("");
	ASSERT_NE(0, h);
	ASSERT_NE(0, g);
	op.src = h;
	op.dst = g;
	pid = fork();
	if (!pid) {
		int fd = open("/dev/ioat_copy", O_RDWR), ap = dev_open();
		struct ioat_copy_ioc_setup s;
		uint64_t seq;

		if (setup(fd, ap, -1, 8, &s))
			_exit(1);
		if (submit(fd, &op, 1, IOAT_COPY_ISSUE, NULL) != -EACCES)
			_exit(2);
		if (do_ioctl(ap, ASYNCPROG_IOC_ATTACH, &at))
			_exit(3);
		if (submit(fd, &op, 1, IOAT_COPY_ISSUE, &seq))
			_exit(4);
		_exit(wait_seq(fd, seq, -1) ? 5 : 0);
	}
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(0, memcmp(self->a, self->b, PAGE));
}

/* ---- users that share ------------------------------------------------------------------- */

/* another user, with one small copy by a CPU: of the window */
static int small_copy(const struct crowd *c, struct crowd_seen *seen, int ready, int go)
{
	struct asyncprog_copy op = { .len = c->n };
	struct ioat_copy_ioc_setup s;
	uint8_t *to = anon(PAGE);
	uint64_t seq;
	int fd, ap;

	if (become(NOBODY))
		return 1;
	ap = dev_open();
	fd = open(DEV_IOAT, O_RDWR | O_CLOEXEC);
	if (ap < 0 || fd < 0 || setup(fd, ap, -1, 1, &s))
		return 2;
	op.src = reg(ap, c->dst + c->len, PAGE, RW, 0);
	op.dst = reg(ap, to, PAGE, RW, 0);
	if (!op.src || !op.dst)
		return 3;
	post(ready);
	if (await(go))
		return 4;
	seen->before = crowd_done(c->dst + c->len, c->n);
	if (submit(fd, &op, 1, IOAT_COPY_CPU | IOAT_COPY_ISSUE, &seq))
		return 5;
	if (wait_seq(fd, seq, UINT64_MAX) || ask(fd).failed)
		return 6;
	seen->then = crowd_done(to, c->n);
	return 0;
}

static void dma_open(struct __test_metadata *_metadata, const struct crowd *c, struct crowd_file *f)
{
	struct ioat_copy_ioc_setup s;

	ASSERT_GE((f->ap = dev_open()), 0);
	ASSERT_GE((f->fd = open(DEV_IOAT, O_RDWR | O_CLOEXEC)), 0);
	ASSERT_EQ(0, setup(f->fd, f->ap, -1, f->n, &s));
	ASSERT_NE(0, (f->src = crowd_reg_src(c, f->ap)));
	ASSERT_NE(0, (f->dst = crowd_reg_dst(c, f->ap)));
}

static void dma_queue(struct __test_metadata *_metadata, const struct crowd_file *f,
		      const struct asyncprog_copy *ops)
{
	ASSERT_EQ(0, submit(f->fd, ops, f->n, IOAT_COPY_CPU | IOAT_COPY_ISSUE, NULL));
}

static void dma_await(struct __test_metadata *_metadata, const struct crowd *c,
		      const struct crowd_file *f)
{
	ASSERT_EQ(0, wait_seq(f->fd, f->n, UINT64_MAX));
	ASSERT_EQ(0, ask(f->fd).failed);
	ASSERT_EQ(f->n * c->len, ask(f->fd).cpu_bytes);
}

static void dma_close(const struct crowd_file *f)
{
	close(f->fd);
	close(f->ap);
}

static void dma_among_others(struct __test_metadata *_metadata, int files, int n, size_t len, bool end)
{
	static const struct crowd_ops by_dma = {
		.open = dma_open, .queue = dma_queue, .await = dma_await, .close = dma_close,
	};
	mode_t mode = open_to_all(DEV_IOAT);

	ASSERT_NE(0, mode);
	among_others(_metadata, &by_dma, small_copy, files, n, len, end);
	ASSERT_EQ(0, chmod(DEV_IOAT, mode));
}

TEST(long_copies_of_another_user)
{
	dma_among_others(_metadata, 1, 64, 2 * MIB, false);
}

/* files are no users */
TEST(files_of_another_user)
{
	dma_among_others(_metadata, MAX_FILES, 128, MIB, false);
}

TEST(another_user_ends)
{
	dma_among_others(_metadata, 4, 64, 2 * MIB, true);
}

/* when nobody else wants it, a second thread copies for the same user: a long copy is overtaken */
TEST_F(dma, threads_of_one_user)
{
	struct ioat_copy_ioc_info i = { .size = sizeof(i) };
	struct crowd c = crowd_make(32 * MIB, 1);
	struct asyncprog_copy ops[2];
	struct asyncprog_cqe cqe[2];
	bool overtaken = false;
	int round;

	START(NULL);
	ASSERT_EQ(0, do_ioctl(self->fd, IOAT_COPY_IOC_INFO, &i));
	if (i.threads < 2)
		SKIP(return, "one thread");
	ops[0] = crowd_copy(&c, crowd_reg_src(&c, self->ap), crowd_reg_dst(&c, self->ap), 0);
	ops[1] = (struct asyncprog_copy){ self->ha, 0, self->hb, 0, PAGE, 1 };
	/* on a busy machine the second thread may come late */
	for (round = 0; round < 20 && !overtaken; round++) {
		uint64_t seq;

		ASSERT_EQ(0, submit(self->fd, ops, 2, IOAT_COPY_CPU | IOAT_COPY_ISSUE, &seq));
		ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
		ASSERT_TRUE(take(self->ring, &cqe[0]) && take(self->ring, &cqe[1]));
		ASSERT_EQ(0, cqe[0].status | cqe[1].status);
		ASSERT_EQ(1, cqe[0].cookie + cqe[1].cookie);
		overtaken = cqe[0].cookie == 1;
	}
	EXPECT_TRUE(overtaken);
	crowd_free(&c);
}

/* head, tail, both and neither by a CPU; all of it, and what the engine leaves, in several turns */
TEST_F(dma, parts_by_cpu)
{
	static const struct { uint64_t at, len, cpu; } cases[] = {
		{ 0, 3 * PAGE, 0 },
		{ 3, 61 + PAGE, 61 },
		{ 64, PAGE + 5, 5 },
		{ 3, 61 + PAGE + 7, 61 + 7 },
		{ 1, 60, 60 },
		{ 3, 4 * MIB + 77, 4 * MIB + 77 },
		{ 3, 4 * MIB + 77, 0 },
	};
	size_t size = 5 * MIB, i;
	uint8_t *a = anon(size), *b = anon(size);
	struct asyncprog_copy op = { .cookie = 1 };
	struct ioat_copy_ioc_query was, is;
	struct asyncprog_cqe cqe;
	uint64_t seq;

	START("copy_align=6");
	fill(a, size, 5);
	ASSERT_NE(0, (op.src = reg(self->ap, a, size, RW, 0)));
	ASSERT_NE(0, (op.dst = reg(self->ap, b, size, RW, 0)));
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		bool part = i == ARRAY_SIZE(cases) - 1;

		memset(b, 0, size);
		op.src_off = cases[i].at;
		op.dst_off = cases[i].at;
		op.len = cases[i].len;
		/* the engine takes nothing, then a little and is slow */
		ASSERT_EQ(0, set(PROV "null_nth", cases[i].cpu > MIB));
		if (part)
			ASSERT_EQ(0, set(PROV "descs", 3) | set(PROV "delay_us", 100000));
		was = ask(self->fd);
		ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_DMA | IOAT_COPY_ISSUE, &seq));
		ASSERT_EQ(0, wait_seq(self->fd, seq, UINT64_MAX));
		is = ask(self->fd);
		ASSERT_TRUE(take(self->ring, &cqe));
		EXPECT_EQ(0, cqe.status);
		EXPECT_EQ(op.len, cqe.bytes);
		EXPECT_EQ(op.len, is.cpu_bytes - was.cpu_bytes + is.dma_bytes - was.dma_bytes);
		if (part) {
			EXPECT_LT(was.dma_bytes, is.dma_bytes);
		} else {
			EXPECT_EQ(cases[i].cpu, is.cpu_bytes - was.cpu_bytes)
				TH_LOG("case %zu", i);
		}
		EXPECT_EQ(0, memcmp(a + op.src_off, b + op.dst_off, op.len));
		EXPECT_EQ(0, b[op.dst_off + op.len]);
	}
}

/* a copy of many pieces that waits for descriptors, in another process: 0 when it is done */
static int many_pieces(size_t size)
{
	int ap = dev_open(), fd = open(DEV_IOAT, O_RDWR | O_CLOEXEC);
	uint8_t *a = anon(size), *b = anon(size);
	struct asyncprog_copy op = { .len = size };
	struct ioat_copy_ioc_setup s;
	uint64_t seq;

	fill(a, size, 6);
	if (ap < 0 || fd < 0 || setup(fd, ap, -1, 1, &s))
		return 1;
	op.src = reg(ap, a, size, RW, 0);
	op.dst = reg(ap, b, size, RW, 0);
	if (!op.src || !op.dst || submit(fd, &op, 1, IOAT_COPY_DMA | IOAT_COPY_ISSUE, &seq))
		return 2;
	if (wait_seq(fd, seq, UINT64_MAX) || ask(fd).failed)
		return 3;
	return memcmp(a, b, size) ? 4 : 0;
}

/*
 * Others get pieces of theirs to the engine while a long copy waits for descriptors, for each of its
 * pieces.  On a busy machine it may be over before they come, so it may take several rounds to
 * see that.
 */
TEST_F(dma, others_meanwhile)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, PAGE, 1 };
	size_t size = 8 * MIB;
	int round, n = 0;

	START("channels=1 max_seg=4096 descs=100000 null_nth=2");
	for (round = 0; round < 5 && n < 3; round++) {
		long begun = read_number(PROV "copies"), pieces = size / PAGE;
		pid_t pid = fork();

		if (!pid)
			_exit(many_pieces(size));
		ASSERT_TRUE(EVENTUALLY(read_number(PROV "copies") > begun));
		for (n = 0; n < 3; n++) {
			ASSERT_EQ(0, submit(self->fd, &op, 1, IOAT_COPY_DMA | IOAT_COPY_ISSUE, NULL));
			if (read_number(PROV "copies") - begun > pieces / 2)
				break;
		}
		ASSERT_EQ(0, reap(pid));
		ASSERT_EQ(0, wait_seq(self->fd, ask(self->fd).submitted, UINT64_MAX));
		self->ring->head = self->ring->tail;
	}
	EXPECT_EQ(3, n);
	EXPECT_EQ(0, ask(self->fd).failed);
}

TEST_HARNESS_MAIN

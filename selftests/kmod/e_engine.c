// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/ioat_copy with a real (here: emulated) engine: random copies, every byte compared, every
 * interrupt counted.
 *
 *	KMOD_COPIES	how many copies, 10000
 *	KMOD_SEED	of what is random
 *	KMOD_CHANNELS	channels that the engine has, 1
 *	KMOD_ALIGN	alignment that is demanded of its copies, 1
 *	KMOD_IRQ	how its lines in /proc/interrupts can be told
 */
#include <asyncprog/ioat_copy.h>

#include "kmodtest.h"

#define LEN	(64 * PAGE)
#define BATCH	16
#define SLICE	(LEN / BATCH)
#define RING	64
#define FILES	8
#define INTERRUPTS "/proc/interrupts"

struct file {
	int fd;
	struct asyncprog_ring *ring;
	size_t ring_size;
};

static uint32_t env(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 0) : otherwise;
}

static int file_open(struct file *f, int ap)
{
	struct ioat_copy_ioc_setup s = {
		.size = sizeof(s), .asyncprog_fd = ap, .eventfd = -1, .entries = RING,
	};

	f->fd = open("/dev/ioat_copy", O_RDWR | O_CLOEXEC);
	if (f->fd < 0)
		return -errno;
	if (do_ioctl(f->fd, IOAT_COPY_IOC_SETUP, &s))
		return -errno;
	f->ring_size = s.ring_size;
	f->ring = mmap(NULL, s.ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd,
		       s.ring_offset);
	return f->ring == MAP_FAILED ? -errno : 0;
}

static void file_close(struct file *f)
{
	munmap(f->ring, f->ring_size);
	close(f->fd);
}

static int submit(struct file *f, const struct asyncprog_copy *ops, uint32_t n, uint64_t *seq)
{
	struct ioat_copy_ioc_submit s = {
		.size = sizeof(s), .flags = IOAT_COPY_ISSUE | IOAT_COPY_DMA,
		.ops = (uintptr_t)ops, .nops = n,
	};
	int ret = do_ioctl(f->fd, IOAT_COPY_IOC_SUBMIT, &s);

	*seq = s.seq;
	return ret;
}

/* the engine's interrupts so far, all processors and channels together; -1 when it has no line */
static long interrupts(void)
{
	const char *mark = getenv("KMOD_IRQ");
	FILE *f = fopen(INTERRUPTS, "r");
	char line[1024], *p, *end;
	long sum = 0;
	int lines = 0;

	while (f && mark && fgets(line, sizeof(line), f)) {
		if (!strstr(line, mark))
			continue;
		lines++;
		p = strchr(line, ':');
		if (!p)
			continue;
		for (p++;; p = end) {
			long n = strtol(p, &end, 10);

			if (end == p)
				break;
			sum += n;
		}
	}
	if (f)
		fclose(f);
	return lines ? sum : -1;
}

TEST(description)
{
	struct ioat_copy_ioc_info i = { .size = sizeof(i) };
	int fd = open("/dev/ioat_copy", O_RDWR);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, do_ioctl(fd, IOAT_COPY_IOC_INFO, &i));
	TH_LOG("%s: %u channels, alignment %u, longest piece %llu", (char *)i.engine, i.channels,
	       i.copy_align, (unsigned long long)i.max_seg);
	EXPECT_EQ(env("KMOD_CHANNELS", 1), i.channels);
	EXPECT_EQ(env("KMOD_ALIGN", 1), i.copy_align);
	EXPECT_NE(0, i.features & IOAT_COPY_FEAT_DMA);
	close(fd);
}

/*
 * From a and b to b.  A copy of a batch writes to a part of b that no other one of the batch
 * touches, so that their order does not matter.
 */
TEST(random_copies)
{
	uint32_t total = env("KMOD_COPIES", 10000), seed = env("KMOD_SEED", 4711);
	uint32_t done = 0, batches = 0, refused = 0, bad = 0, i;
	uint64_t dma = 0, cpu = 0, fallbacks = 0, asked = 0, told = 0, all = 0;
	uint8_t *a = anon(LEN), *b = anon(LEN), *model = anon(LEN), *before = anon(LEN);
	struct asyncprog_copy ops[BATCH];
	struct file files[FILES];
	int ap = dev_open();
	long irqs;
	uint64_t ha, hb, seq;

	ASSERT_GE(ap, 0);
	TH_LOG("%u copies, KMOD_SEED=%u", total, seed);
	fill(a, LEN, 1);
	fill(b, LEN, 2);
	memcpy(model, b, LEN);
	ASSERT_NE(0, (ha = reg(ap, a, LEN, RW, 0)));
	ASSERT_NE(0, (hb = reg(ap, b, LEN, RW, 0)));
	/* each open file takes the next channel */
	for (i = 0; i < FILES; i++)
		ASSERT_EQ(0, file_open(&files[i], ap));
	/* a driver may have them only while somebody has its channels */
	irqs = interrupts();
	EXPECT_NE(-1, irqs);

	while (done < total) {
		struct file *f = &files[rnd(&seed) % FILES];
		struct ioat_copy_ioc_wait w = { .size = sizeof(w), .timeout_ns = UINT64_MAX };
		uint32_t n = 1 + rnd(&seed) % BATCH;

		memcpy(before, model, LEN);
		for (i = 0; i < n; i++) {
			/* half of them short */
			uint32_t len = 1 + rnd(&seed) % (rnd(&seed) % 2 ? 128 : SLICE);
			uint32_t to = i * SLICE + rnd(&seed) % (SLICE - len + 1), from;
			bool within = n < BATCH && rnd(&seed) % 4 == 0;

			/* within b from what this batch does not write: the part after the last */
			if (within)
				from = n * SLICE + rnd(&seed) % (LEN - n * SLICE - len + 1);
			else
				from = rnd(&seed) % (LEN - len + 1);
			/* half of them such that the engine can do it when it demands alignment */
			if (rnd(&seed) % 2 && (from & ~63u) + (to & 63) + len <= LEN)
				from = (from & ~63u) + (to & 63);
			ops[i] = (struct asyncprog_copy){ within ? hb : ha, from, hb, to, len, i };
			memcpy(model + to, (within ? before : a) + from, len);
			all += len;
		}
		ASSERT_EQ(0, submit(f, ops, n, &seq));
		w.seq = seq;
		ASSERT_EQ(0, do_ioctl(f->fd, IOAT_COPY_IOC_WAIT, &w));
		for (i = 0; i < n; i++) {
			struct asyncprog_ring *r = f->ring;
			struct asyncprog_cqe *c = &r->cqe[r->head & (r->entries - 1)];

			ASSERT_NE(__atomic_load_n(&r->tail, __ATOMIC_ACQUIRE), r->head);
			ASSERT_LT(c->cookie, n);
			ASSERT_EQ(0, c->status);
			ASSERT_EQ(ops[c->cookie].len, c->bytes);
			__atomic_store_n(&r->head, r->head + 1, __ATOMIC_RELEASE);
		}
		if (memcmp(model, b, LEN)) {
			for (i = 0; model[i] == b[i]; i++)
				;
			TH_LOG("batch %u of %u copies: first wrong byte %u", batches, n, i);
			bad++;
			memcpy(model, b, LEN);
		}
		done += n;
		batches++;

		/* a copy onto itself, now and then */
		if (rnd(&seed) % 8 == 0) {
			uint32_t len = 2 + rnd(&seed) % 4000, at = rnd(&seed) % (LEN / 2);

			ops[0] = (struct asyncprog_copy){ hb, at, hb, at + rnd(&seed) % len, len,
							  0 };
			ASSERT_EQ(-EINVAL, submit(f, ops, 1, &seq));
			refused++;
		}
	}
	irqs = interrupts() - irqs;
	for (i = 0; i < FILES; i++) {
		struct ioat_copy_ioc_query q = { .size = sizeof(q) };

		ASSERT_EQ(0, do_ioctl(files[i].fd, IOAT_COPY_IOC_QUERY, &q));
		EXPECT_EQ(q.submitted, q.completed);
		EXPECT_EQ(0, q.failed);
		dma += q.dma_bytes;
		cpu += q.cpu_bytes;
		told += q.interrupts;
		asked += q.status_reads;
		fallbacks += q.fallbacks;
		file_close(&files[i]);
	}
	EXPECT_EQ(0, bad);
	EXPECT_EQ(0, memcmp(model, b, LEN));
	EXPECT_EQ(all, dma + cpu);
	EXPECT_NE(0, dma);
	/* a slow engine may run out of descriptors now and then */
	EXPECT_LE(fallbacks, total / 100 + 1);
	if (env("KMOD_ALIGN", 1) == 1 && !fallbacks)
		EXPECT_EQ(0, cpu);
	/*
	 * A batch is over before the next one starts, so no two share an interrupt.  These
	 * engines' drivers see the end of a copy in their interrupt handlers only: a lost one
	 * would have been a time-out.
	 */
	EXPECT_NE(0, told);
	EXPECT_GE(irqs, (long)told);
	TH_LOG("%u copies in %u batches, %llu bytes by the engine, %llu by a CPU, %llu fallbacks",
	       done, batches, (unsigned long long)dma, (unsigned long long)cpu,
	       (unsigned long long)fallbacks);
	TH_LOG("%u overlaps refused, %llu batches that interrupt, %ld interrupts, %llu reads",
	       refused, (unsigned long long)told, irqs, (unsigned long long)asked);
	close(ap);
}

/* the engine gets whole aligned pieces only; a CPU does head and tail, or all of what cannot be aligned */
TEST(whole_pieces)
{
	uint32_t align = env("KMOD_ALIGN", 1), head = -3 & (align - 1), len = 5 * PAGE, i;
	uint8_t *a = anon(LEN), *b = anon(LEN), *model = anon(LEN);
	struct ioat_copy_ioc_query q[3] = { { .size = sizeof(*q) }, { .size = sizeof(*q) },
					    { .size = sizeof(*q) } };
	struct asyncprog_copy ops[2] = {
		{ .src_off = 3, .dst_off = 3, .len = len },
		{ .src_off = 0, .dst_off = 8 * PAGE + align / 2, .len = len },
	};
	int ap = dev_open();
	struct file f;
	uint64_t seq;

	ASSERT_GE(ap, 0);
	fill(a, LEN, 3);
	fill(b, LEN, 4);
	memcpy(model, b, LEN);
	ops[0].src = reg(ap, a, LEN, RW, 0);
	ops[0].dst = reg(ap, b, LEN, RW, 0);
	ASSERT_NE(0, ops[0].src);
	ASSERT_NE(0, ops[0].dst);
	ops[1].src = ops[0].src;
	ops[1].dst = ops[0].dst;
	ASSERT_EQ(0, file_open(&f, ap));
	for (i = 0; i < 2; i++) {
		struct ioat_copy_ioc_wait w = { .size = sizeof(w), .timeout_ns = UINT64_MAX };

		ASSERT_EQ(0, do_ioctl(f.fd, IOAT_COPY_IOC_QUERY, &q[i]));
		ASSERT_EQ(0, submit(&f, &ops[i], 1, &seq));
		w.seq = seq;
		ASSERT_EQ(0, do_ioctl(f.fd, IOAT_COPY_IOC_WAIT, &w));
		memcpy(model + ops[i].dst_off, a + ops[i].src_off, len);
	}
	ASSERT_EQ(0, do_ioctl(f.fd, IOAT_COPY_IOC_QUERY, &q[2]));
	EXPECT_EQ((len - head) / align * align, q[1].dma_bytes - q[0].dma_bytes);
	EXPECT_EQ(len - (len - head) / align * align, q[1].cpu_bytes - q[0].cpu_bytes);
	EXPECT_EQ(align == 1 ? len : 0, q[2].dma_bytes - q[1].dma_bytes);
	EXPECT_EQ(align == 1 ? 0 : len, q[2].cpu_bytes - q[1].cpu_bytes);
	EXPECT_EQ(0, memcmp(model, b, LEN));
	file_close(&f);
	close(ap);
}

TEST_HARNESS_MAIN

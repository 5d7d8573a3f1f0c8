// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copies by handle: data, errors, queued copies, the completion ring.
 */
#include "kmodtest.h"

#define LEN	(96 * PAGE)
#define RING	64
#define MIB	(1UL << 20)

FIXTURE(copy)
{
	int fd;
	uint8_t *a, *b, *model;
	uint64_t ha, hb;
	struct asyncprog_ring *ring;
	int efd;
};

FIXTURE_SETUP(copy)
{
	self->fd = dev_open();
	ASSERT_GE(self->fd, 0);
	self->a = anon(LEN + PAGE);
	self->b = anon(LEN + PAGE);
	self->model = anon(LEN + PAGE);
	fill(self->a, LEN, 1);
	fill(self->b, LEN, 2);
	/* neither begins at a page */
	self->a += 123;
	self->b += 2000;
	ASSERT_NE(0, (self->ha = reg(self->fd, self->a, LEN, RW, 0)));
	ASSERT_NE(0, (self->hb = reg(self->fd, self->b, LEN, RW, 0)));
}

FIXTURE_TEARDOWN(copy)
{
	close(self->fd);
}

#define SETUP_RING(entries, want_eventfd) do {						\
	struct asyncprog_ioc_ring ring_;						\
	self->efd = (want_eventfd) ? eventfd(0, EFD_NONBLOCK) : -1;			\
	ASSERT_EQ(0, make_ring(self->fd, entries, self->efd, &ring_));			\
	self->ring = mmap(NULL, ring_.ring_size, PROT_READ | PROT_WRITE, MAP_SHARED,	\
			  self->fd, ring_.ring_offset);					\
	ASSERT_NE(MAP_FAILED, self->ring);						\
} while (0)

/* the next completion; waits for it, 10 s at most */
static bool next_cqe(int fd, struct asyncprog_ring *ring, struct asyncprog_cqe *cqe)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (poll(&p, 1, 10000) != 1 || !(p.revents & POLLIN))
		return false;
	if (__atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) == ring->head)
		return false;
	*cqe = ring->cqe[ring->head & (ring->entries - 1)];
	__atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
	return true;
}

TEST_F(copy, random)
{
	uint32_t seed = 20261121;
	int i;

	TH_LOG("seed %u", seed);
	memcpy(self->model, self->b, LEN);
	for (i = 0; i < 500; i++) {
		uint64_t len = 1 + rnd(&seed) % (i % 2 ? 200 : LEN / 4);
		uint64_t so = rnd(&seed) % (LEN - len + 1), d = rnd(&seed) % (LEN - len + 1);

		ASSERT_EQ(0, copy_one(self->fd, self->ha, so, self->hb, d, len));
		memcpy(self->model + d, self->a + so, len);
		ASSERT_EQ(0, memcmp(self->model, self->b, LEN))
			TH_LOG("copy %d: %lu bytes from %lu to %lu", i, len, so, d);
	}
}

TEST_F(copy, within_a_region)
{
	memcpy(self->model, self->a, LEN);
	EXPECT_EQ(0, copy_one(self->fd, self->ha, 0, self->ha, LEN / 2, LEN / 2));
	EXPECT_EQ(0, memcmp(self->model, self->a + LEN / 2, LEN / 2));
	EXPECT_EQ(-EINVAL, copy_one(self->fd, self->ha, 0, self->ha, LEN / 2 - 1, LEN / 2));
	EXPECT_EQ(-EINVAL, copy_one(self->fd, self->ha, LEN / 2 - 1, self->ha, 0, LEN / 2));
	EXPECT_EQ(-EINVAL, copy_one(self->fd, self->ha, 0, self->ha, 0, 1));
	EXPECT_EQ(0, copy_one(self->fd, self->ha, 0, self->ha, 1, 1));
}

TEST_F(copy, errors)
{
	uint64_t ro = reg(self->fd, self->a, PAGE, ASYNCPROG_ACCESS_READ, 0);
	uint64_t wo = reg(self->fd, self->a, PAGE, ASYNCPROG_ACCESS_WRITE, 0);
	struct asyncprog_copy ops[3] = {
		{ self->ha, 0, self->hb, 0, 8, 0 },
		{ self->ha, 0, 12345, 0, 8, 0 },
		{ self->ha, 0, self->hb, 0, 8, 0 },
	};
	uint32_t done;

	EXPECT_EQ(-EINVAL, copy_one(self->fd, self->ha, 0, self->hb, 0, 0));
	EXPECT_EQ(-ENOENT, copy_one(self->fd, self->ha, 0, self->hb + 1, 0, 8));
	EXPECT_EQ(-ENOENT, copy_one(self->fd, 0, 0, self->hb, 0, 8));
	EXPECT_EQ(-ERANGE, copy_one(self->fd, self->ha, 0, self->hb, 0, LEN + 1));
	EXPECT_EQ(-ERANGE, copy_one(self->fd, self->ha, LEN, self->hb, 0, 1));
	EXPECT_EQ(-ERANGE, copy_one(self->fd, self->ha, LEN - 7, self->hb, 0, 8));
	EXPECT_EQ(-ERANGE, copy_one(self->fd, self->ha, 0, self->hb, LEN - 7, 8));
	EXPECT_EQ(-ERANGE, copy_one(self->fd, self->ha, UINT64_MAX, self->hb, 0, 2));
	EXPECT_EQ(-ERANGE, copy_one(self->fd, self->ha, UINT64_MAX - 7, self->hb, 0, 8));
	EXPECT_EQ(-ERANGE, copy_one(self->fd, self->ha, 1, self->hb, 0, UINT64_MAX));
	EXPECT_EQ(0, copy_one(self->fd, self->ha, LEN - 8, self->hb, LEN - 8, 8));
	ASSERT_NE(0, ro);
	ASSERT_NE(0, wo);
	EXPECT_EQ(-EACCES, copy_one(self->fd, self->hb, 0, ro, 0, 8));
	EXPECT_EQ(-EACCES, copy_one(self->fd, wo, 0, self->hb, 0, 8));
	EXPECT_EQ(0, copy_one(self->fd, ro, 0, self->hb, 0, 8));
	EXPECT_EQ(0, copy_one(self->fd, self->hb, 0, wo, 0, 8));

	EXPECT_EQ(-ENOENT, copy_ops(self->fd, ops, 3, 0, &done));
	EXPECT_EQ(1, done);
	EXPECT_EQ(-EINVAL, copy_ops(self->fd, ops, 0, 0, &done));
	EXPECT_EQ(0, done);
	EXPECT_EQ(-EINVAL, copy_ops(self->fd, ops, ASYNCPROG_MAX_OPS + 1, 0, &done));
	EXPECT_EQ(-EFAULT, copy_ops(self->fd, NULL, 1, 0, &done));
	EXPECT_EQ(-EFAULT, copy_ops(self->fd, (void *)-PAGE, 3, 0, &done));
	EXPECT_EQ(-ENXIO, copy_ops(self->fd, ops, 1, ASYNCPROG_COPY_QUEUED, &done));
	EXPECT_EQ(0, done);
}

TEST_F(copy, vector)
{
	struct asyncprog_copy *ops = calloc(ASYNCPROG_MAX_OPS, sizeof(*ops));
	uint32_t i, done;

	for (i = 0; i < ASYNCPROG_MAX_OPS; i++)
		ops[i] = (struct asyncprog_copy){ self->ha, i * 100, self->hb,
						  (ASYNCPROG_MAX_OPS - 1 - i) * 100, 100, i };
	ASSERT_EQ(0, copy_ops(self->fd, ops, ASYNCPROG_MAX_OPS, 0, &done));
	EXPECT_EQ(ASYNCPROG_MAX_OPS, done);
	for (i = 0; i < ASYNCPROG_MAX_OPS; i++)
		ASSERT_EQ(0, memcmp(self->a + i * 100,
				    self->b + (ASYNCPROG_MAX_OPS - 1 - i) * 100, 100));
	free(ops);
}

TEST_F(copy, ring_arguments)
{
	struct asyncprog_ioc_ring r;

	EXPECT_EQ(-EINVAL, make_ring(self->fd, 0, -1, &r));
	EXPECT_EQ(-EINVAL, make_ring(self->fd, 3, -1, &r));
	EXPECT_EQ(-EINVAL, make_ring(self->fd, 2 * ASYNCPROG_RING_MAX, -1, &r));
	EXPECT_EQ(-EINVAL, make_ring(self->fd, 8, -2, &r));
	EXPECT_EQ(-EBADF, make_ring(self->fd, 8, 1000, &r));
	EXPECT_EQ(-EINVAL, make_ring(self->fd, 8, self->fd, &r));
	EXPECT_EQ(0, make_ring(self->fd, ASYNCPROG_RING_MAX, -1, &r));
	EXPECT_EQ(-EEXIST, make_ring(self->fd, 8, -1, &r));
}

TEST_F(copy, queued)
{
	struct asyncprog_copy ops[RING];
	struct asyncprog_cqe cqe;
	uint64_t count, signals = 0;
	uint32_t done, i, round;

	SETUP_RING(RING, true);
	EXPECT_EQ(RING, self->ring->entries);
	for (round = 0; round < 10; round++) {
		for (i = 0; i < RING; i++)
			ops[i] = (struct asyncprog_copy){ self->ha, i * PAGE, self->hb,
							  ((i + round) % RING) * PAGE, PAGE,
							  round * 1000 + i };
		ASSERT_EQ(0, copy_ops(self->fd, ops, RING, ASYNCPROG_COPY_QUEUED, &done));
		ASSERT_EQ(RING, done);
		for (i = 0; i < RING; i++) {
			ASSERT_TRUE(next_cqe(self->fd, self->ring, &cqe));
			ASSERT_EQ(round * 1000 + i, cqe.cookie);
			ASSERT_EQ(0, cqe.status);
			ASSERT_EQ(PAGE, cqe.bytes);
			ASSERT_EQ(ASYNCPROG_CQE_CPU, cqe.flags);
			ASSERT_EQ(0, memcmp(self->a + i * PAGE,
					    self->b + ((i + round) % RING) * PAGE, PAGE));
		}
	}
	if (read(self->efd, &count, sizeof(count)) == sizeof(count))
		signals = count;
	EXPECT_EQ(10 * RING, signals);
}

TEST_F(copy, ring_full)
{
	struct asyncprog_copy op = { self->ha, 0, self->hb, 0, 8, 5 };
	struct asyncprog_copy ops[5] = { op, op, op, op, op };
	struct asyncprog_cqe cqe;
	uint32_t done, i;

	SETUP_RING(4, false);
	EXPECT_EQ(-EBUSY, copy_ops(self->fd, ops, 5, ASYNCPROG_COPY_QUEUED, &done));
	EXPECT_EQ(0, done);
	ASSERT_EQ(0, copy_ops(self->fd, ops, 3, ASYNCPROG_COPY_QUEUED, &done));
	EXPECT_EQ(-EBUSY, copy_ops(self->fd, ops, 2, ASYNCPROG_COPY_QUEUED, &done));
	ASSERT_EQ(0, copy_ops(self->fd, ops, 1, ASYNCPROG_COPY_QUEUED, &done));
	for (i = 0; i < 4; i++) {
		EXPECT_EQ(-EBUSY, copy_ops(self->fd, ops, 1 + i, ASYNCPROG_COPY_QUEUED, &done));
		ASSERT_TRUE(next_cqe(self->fd, self->ring, &cqe));
		EXPECT_EQ(0, cqe.status);
	}
	/* a head that lies is not believed */
	ASSERT_TRUE(EVENTUALLY(self->ring->tail == 4));
	self->ring->head += 1000;
	EXPECT_EQ(-EBUSY, copy_ops(self->fd, ops, 1, ASYNCPROG_COPY_QUEUED, &done));
	self->ring->head -= 1000;
	/* nor is a tail or a size */
	self->ring->tail = 77;
	self->ring->entries = 1 << 30;
	EXPECT_EQ(0, copy_ops(self->fd, ops, 4, ASYNCPROG_COPY_QUEUED, &done));
	EXPECT_TRUE(EVENTUALLY(self->ring->tail == 8));
}

TEST_F(copy, queued_all_or_none)
{
	struct asyncprog_copy ops[2] = {
		{ self->ha, 0, self->hb, 0, 8, 1 },
		{ self->ha, LEN, self->hb, 0, 8, 2 },
	};
	uint32_t done;

	SETUP_RING(2, false);
	EXPECT_EQ(-ERANGE, copy_ops(self->fd, ops, 2, ASYNCPROG_COPY_QUEUED, &done));
	EXPECT_EQ(0, done);
	ops[1].src_off = 0;
	EXPECT_EQ(0, copy_ops(self->fd, ops, 2, ASYNCPROG_COPY_QUEUED, &done));
	EXPECT_TRUE(EVENTUALLY(self->ring->tail == 2));
}

/* the end of a region in the middle of queued copies: each is either done or says so */
TEST_F(copy, unregister_while_queued)
{
	struct asyncprog_copy ops[RING];
	struct asyncprog_cqe cqe;
	uint32_t i, done;
	uint8_t saved;

	SETUP_RING(RING, false);
	for (i = 0; i < RING; i++)
		ops[i] = (struct asyncprog_copy){ self->ha, 0, self->hb, 0, LEN, i };
	ASSERT_EQ(0, copy_ops(self->fd, ops, RING, ASYNCPROG_COPY_QUEUED, &done));
	ASSERT_EQ(0, unreg(self->fd, self->hb));
	saved = self->b[0] ^ 0xff;
	self->b[0] = saved;
	for (i = 0; i < RING; i++) {
		ASSERT_TRUE(next_cqe(self->fd, self->ring, &cqe));
		ASSERT_EQ(i, cqe.cookie);
		ASSERT_TRUE(cqe.status == 0 || cqe.status == -ESTALE);
		ASSERT_EQ(cqe.status ? 0 : LEN, cqe.bytes);
	}
	/* nobody wrote after unregister */
	EXPECT_EQ(saved, self->b[0]);
}

TEST_F(copy, close_while_queued)
{
	struct asyncprog_copy ops[RING];
	uint32_t i, done;
	int round;

	for (round = 0; round < 20; round++) {
		int fd = dev_open();
		struct asyncprog_ioc_ring r;
		uint64_t ha, hb;

		ASSERT_EQ(0, make_ring(fd, RING, -1, &r));
		ASSERT_NE(0, (ha = reg(fd, self->a, LEN, RW, 0)));
		ASSERT_NE(0, (hb = reg(fd, self->b, LEN, RW, 0)));
		for (i = 0; i < RING; i++)
			ops[i] = (struct asyncprog_copy){ ha, 0, hb, 0, LEN, i };
		ASSERT_EQ(0, copy_ops(fd, ops, RING, ASYNCPROG_COPY_QUEUED, &done));
		close(fd);
	}
}

/*
 * Of one user: copies around the length of a turn, in many calls.  Each completes once, and those
 * of a call in order.
 */
TEST_F(copy, queued_long)
{
	static const size_t lens[] = { 1, MIB, 3 * MIB + 7, PAGE, MIB - 1, MIB + 1, 2 * MIB, 77 };
	enum { CALLS = 12, N = ARRAY_SIZE(lens) };
	size_t size = 8 * MIB, i, j;
	uint8_t *a = anon(size), *b = anon(size), *model = anon(size);
	bool seen[CALLS * N] = { false };
	struct asyncprog_copy ops[N];
	struct asyncprog_cqe cqe;
	uint32_t seed = 42, done;
	int next[CALLS] = { 0 };
	uint64_t ha, hb;

	SETUP_RING(128, false);
	fill(a, size, 3);
	ASSERT_NE(0, (ha = reg(self->fd, a, size, RW, 0)));
	ASSERT_NE(0, (hb = reg(self->fd, b, size, RW, 0)));
	for (i = 0; i < CALLS; i++) {
		for (j = 0; j < N; j++) {
			size_t at = rnd(&seed) % (size - lens[j] + 1);

			ops[j] = (struct asyncprog_copy){ ha, at, hb, at, lens[j], i * N + j };
			memcpy(model + at, a + at, lens[j]);
		}
		ASSERT_EQ(0, copy_ops(self->fd, ops, N, ASYNCPROG_COPY_QUEUED, &done));
	}
	for (i = 0; i < CALLS * N; i++) {
		ASSERT_TRUE(next_cqe(self->fd, self->ring, &cqe));
		ASSERT_LT(cqe.cookie, CALLS * N);
		EXPECT_FALSE(seen[cqe.cookie]);
		seen[cqe.cookie] = true;
		EXPECT_EQ(0, cqe.status);
		EXPECT_EQ(lens[cqe.cookie % N], cqe.bytes);
		EXPECT_EQ(next[cqe.cookie / N]++, cqe.cookie % N);
	}
	EXPECT_EQ(0, memcmp(model, b, size));
	EXPECT_EQ(self->ring->tail, self->ring->head);
	ASSERT_EQ(0, unreg(self->fd, ha) | unreg(self->fd, hb));
	munmap(a, size);
	munmap(b, size);
	munmap(model, size);
}

/* another user, with one small copy: of the window */
static int small_copy(const struct crowd *c, struct crowd_seen *seen, int ready, int go)
{
	struct asyncprog_ioc_ring r;
	struct asyncprog_ring *ring;
	struct asyncprog_copy op = { .len = c->n };
	struct asyncprog_cqe cqe;
	uint8_t *to = anon(PAGE);
	uint32_t done;
	int fd;

	if (become(NOBODY))
		return 1;
	fd = dev_open();
	if (fd < 0 || make_ring(fd, 1, -1, &r))
		return 2;
	ring = mmap(NULL, r.ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, r.ring_offset);
	op.src = reg(fd, c->dst + c->len, PAGE, RW, 0);
	op.dst = reg(fd, to, PAGE, RW, 0);
	if (ring == MAP_FAILED || !op.src || !op.dst)
		return 3;
	post(ready);
	if (await(go))
		return 4;
	seen->before = crowd_done(c->dst + c->len, c->n);
	if (copy_ops(fd, &op, 1, ASYNCPROG_COPY_QUEUED, &done))
		return 5;
	if (!next_cqe(fd, ring, &cqe) || cqe.status)
		return 6;
	seen->then = crowd_done(to, c->n);
	return 0;
}

/* another user, who ends a region of which much is queued; then is when nothing of that is left */
static int end_region(const struct crowd *c, struct crowd_seen *seen, int ready, int go)
{
	size_t len = MIB;
	uint8_t *src = anon(len), *dst = anon(len);
	struct asyncprog_copy ops[64];
	struct asyncprog_ioc_ring r;
	uint32_t i, done;
	int fd, ret;

	if (become(NOBODY))
		return 1;
	fd = dev_open();
	if (fd < 0 || make_ring(fd, 64, -1, &r))
		return 2;
	ops[0] = (struct asyncprog_copy){
		.src = reg(fd, src, len, RW, 0), .dst = reg(fd, dst, len, RW, 0), .len = len,
	};
	if (!ops[0].src || !ops[0].dst)
		return 3;
	for (i = 1; i < 64; i++)
		ops[i] = ops[0];
	post(ready);
	if (await(go))
		return 4;
	if (copy_ops(fd, ops, 64, ASYNCPROG_COPY_QUEUED, &done))
		return 5;
	seen->before = crowd_done(c->dst + c->len, c->n);
	ret = unreg(fd, ops[0].src);
	seen->then = ret ? c->n : crowd_done(c->dst + c->len, c->n);
	return ret && ret != -EINPROGRESS ? 6 : 0;
}

static void copy_open(struct __test_metadata *_metadata, const struct crowd *c, struct crowd_file *f)
{
	struct asyncprog_ioc_ring r;

	ASSERT_GE((f->fd = dev_open()), 0);
	ASSERT_EQ(0, make_ring(f->fd, f->n, -1, &r));
	f->ring_size = r.ring_size;
	f->ring = mmap(NULL, r.ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, r.ring_offset);
	ASSERT_NE(MAP_FAILED, f->ring);
	ASSERT_NE(0, (f->src = crowd_reg_src(c, f->fd)));
	ASSERT_NE(0, (f->dst = crowd_reg_dst(c, f->fd)));
}

static void copy_queue(struct __test_metadata *_metadata, const struct crowd_file *f,
		       const struct asyncprog_copy *ops)
{
	uint32_t taken;

	ASSERT_EQ(0, copy_ops(f->fd, ops, f->n, ASYNCPROG_COPY_QUEUED, &taken));
}

static void copy_await(struct __test_metadata *_metadata, const struct crowd *c,
		       const struct crowd_file *f)
{
	struct asyncprog_cqe cqe;
	int k;

	for (k = 0; k < f->n; k++) {
		ASSERT_TRUE(next_cqe(f->fd, f->ring, &cqe));
		ASSERT_EQ(0, cqe.status);
		ASSERT_EQ(c->len, cqe.bytes);
		ASSERT_EQ(f->first + k, cqe.cookie);
	}
}

static void copy_close(const struct crowd_file *f)
{
	munmap(f->ring, f->ring_size);
	close(f->fd);
}

static const struct crowd_ops by_copy = {
	.open = copy_open, .queue = copy_queue, .await = copy_await, .close = copy_close,
};

TEST(long_copies_of_another_user)
{
	among_others(_metadata, &by_copy, small_copy, 1, 64, 2 * MIB, false);
}

/* files are no users */
TEST(files_of_another_user)
{
	among_others(_metadata, &by_copy, small_copy, MAX_FILES, 128, MIB, false);
}

TEST(another_user_ends)
{
	among_others(_metadata, &by_copy, small_copy, 4, 64, 2 * MIB, true);
}

/* what is not copied takes no turns */
TEST(region_ends_among_others)
{
	among_others(_metadata, &by_copy, end_region, 1, 64, 2 * MIB, false);
}

TEST_F(copy, killed_while_copying)
{
	struct asyncprog_ioc_info i;
	int round;

	for (round = 0; round < 10; round++) {
		pid_t pid;
		int up[2];

		ASSERT_EQ(0, pipe(up));
		pid = fork();
		if (!pid) {
			uint8_t *m = anon(LEN), *n = anon(LEN);
			uint64_t hm = reg(self->fd, m, LEN, RW, 0);
			uint64_t hn = reg(self->fd, n, LEN, RW, 0);

			post(up[1]);
			while (!copy_one(self->fd, hm, 0, hn, 0, LEN))
				;
			_exit(1);
		}
		ASSERT_EQ(0, await(up[0]));
		usleep(1000 * round);
		kill(pid, SIGKILL);
		ASSERT_EQ(-SIGKILL, reap(pid));
		close(up[0]);
		close(up[1]);
	}
	EXPECT_TRUE(EVENTUALLY(!info(self->fd, &i) && i.uid_bytes == 2 * (LEN + PAGE)));
}

/* between two processes, by a third */
TEST_F(copy, three_processes)
{
	uint64_t *h = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int up[2], down[2];
	pid_t pid[2];
	int i;

	ASSERT_EQ(0, pipe(up) | pipe(down));
	for (i = 0; i < 2; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			uint8_t *m = anon(LEN), *want = anon(LEN);

			close(down[1]);
			fill(m, LEN, 50 + i);
			fill(want, LEN, 50);
			h[i] = reg(self->fd, m, LEN, RW, ASYNCPROG_CONSENT_FD);
			post(up[1]);
			await(down[0]);
			_exit(memcmp(m, want, LEN) ? 1 : 0);
		}
	}
	ASSERT_EQ(0, await(up[0]) | await(up[0]));
	ASSERT_NE(0, h[0]);
	ASSERT_NE(0, h[1]);
	EXPECT_EQ(0, copy_one(self->fd, h[0], 0, h[1], 0, LEN));
	/* not without consent */
	EXPECT_EQ(0, copy_one(self->fd, self->ha, 0, self->hb, 0, LEN));
	close(down[1]);
	EXPECT_EQ(0, reap(pid[0]));
	EXPECT_EQ(0, reap(pid[1]));
}

/*
 * Two processes with a file each, and one that holds both and attaches them to a third: it may copy between
 * their regions, and nothing else, until a file ends.
 */
TEST_F(copy, attached)
{
	uint64_t *h = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct asyncprog_ioc_attach at = { .size = sizeof(at) };
	int file[2], up[2], down[2], third = dev_open(), i;
	struct asyncprog_ioc_query q;
	uint32_t done;
	pid_t pid[2];

	ASSERT_GE(third, 0);
	ASSERT_EQ(0, pipe(up) | pipe(down));
	for (i = 0; i < 2; i++) {
		file[i] = dev_open();
		pid[i] = fork();
		if (!pid[i]) {
			uint8_t *m = anon(LEN), *want = anon(LEN);

			close(down[1]);
			close(third);
			fill(m, LEN, 50 + i);
			fill(want, LEN, 50);
			h[i] = reg(file[i], m, LEN, RW, ASYNCPROG_CONSENT_FD);
			h[2 + i] = reg(file[i], m, LEN, RW, 0);
			if (i)
				close(file[0]);
			post(up[1]);
			await(down[0]);
			_exit(memcmp(m, want, LEN) ? 1 : 0);
		}
	}
	ASSERT_EQ(0, await(up[0]) | await(up[0]));
	for (i = 0; i < 4; i++)
		ASSERT_NE(0, h[i]);
	/* neither file alone has both, and the third none */
	EXPECT_EQ(-EACCES, copy_one(file[0], h[0], 0, h[1], 0, LEN));
	EXPECT_EQ(-EACCES, copy_one(third, h[0], 0, h[1], 0, LEN));
	at.fd = 1000;
	EXPECT_EQ(-EBADF, do_ioctl(third, ASYNCPROG_IOC_ATTACH, &at));
	at.fd = up[0];
	EXPECT_EQ(-EINVAL, do_ioctl(third, ASYNCPROG_IOC_ATTACH, &at));
	at.fd = third;
	EXPECT_EQ(-EINVAL, do_ioctl(third, ASYNCPROG_IOC_ATTACH, &at));
	at.fd = file[0];
	ASSERT_EQ(0, do_ioctl(third, ASYNCPROG_IOC_ATTACH, &at));
	EXPECT_EQ(-EACCES, copy_one(third, h[0], 0, h[1], 0, LEN));
	at.fd = file[1];
	ASSERT_EQ(0, do_ioctl(third, ASYNCPROG_IOC_ATTACH, &at));
	ASSERT_EQ(0, do_ioctl(third, ASYNCPROG_IOC_ATTACH, &at));
	EXPECT_EQ(0, copy_one(third, h[0], 0, h[1], 0, LEN));
	/* what consents to nobody stays as it is */
	EXPECT_EQ(-EACCES, copy_one(third, h[2], 0, h[1], 0, LEN));
	EXPECT_EQ(-EACCES, copy_one(third, h[0], 0, h[3], 0, LEN));
	/* copies only, and one way only */
	EXPECT_EQ(-EACCES, query(third, h[0], &q));
	EXPECT_EQ(0, query(file[0], h[0], &q));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, q.map_length, PROT_READ, MAP_SHARED, third, (off_t)q.map_offset));
	EXPECT_EQ(-EACCES, copy_one(file[0], h[0], 0, h[1], 0, LEN));
	/* each other: nothing is left of them when they are closed, see unpinned below */
	at.fd = third;
	EXPECT_EQ(0, do_ioctl(file[0], ASYNCPROG_IOC_ATTACH, &at));
	EXPECT_EQ(0, copy_ops(third, &(struct asyncprog_copy){ h[0], 0, h[1], 0, LEN, 0 }, 1, 0, &done));
	EXPECT_EQ(1, done);
	close(down[1]);
	EXPECT_EQ(0, reap(pid[0]));
	EXPECT_EQ(0, reap(pid[1]));
	/* with their processes the regions are gone */
	EXPECT_TRUE(EVENTUALLY(copy_one(third, h[0], 0, h[1], 0, LEN) == -ENOENT));
	close(file[0]);
	close(file[1]);
	close(third);
	close(up[0]);
	close(up[1]);
	close(down[0]);
}

/* files that are gone take no room */
TEST_F(copy, attached_many)
{
	struct asyncprog_ioc_attach at = { .size = sizeof(at) };
	int i;

	for (i = 0; i < ASYNCPROG_MAX_ATTACHED + 10; i++) {
		at.fd = dev_open();
		ASSERT_GE(at.fd, 0);
		ASSERT_EQ(0, do_ioctl(self->fd, ASYNCPROG_IOC_ATTACH, &at));
		close(at.fd);
	}
}

TEST_HARNESS_MAIN

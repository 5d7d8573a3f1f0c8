// SPDX-License-Identifier: GPL-2.0-only
/*
 * Everything at once: threads and processes register, map, touch, copy, give to devices, unmap, fork,
 * exit and close in random order under a seed that is printed ($KMOD_SEED sets it, $KMOD_STEPS how many steps).
 * What is checked is that nothing is left, that every kind of step works now and then, and the
 * kernel's own opinion.
 */
#include <asyncprog/ioat_copy.h>
#include <pthread.h>

#include "dmaimp/dmaimp.h"
#include "kmodtest.h"

#define SLOTS	24
#define THREADS	4
#define KINDS	15
#define MAXLEN	(40 * PAGE)
#define DRAIN	"/sys/module/asyncprog/parameters/drain_ms"

/* what all threads work on, without any lock: the kernel has to bear it */
struct slot {
	uint8_t *mem;
	size_t len;
	uint64_t handle;
	uint64_t off;
};

struct world {
	struct slot slot[SLOTS];
	int fd[3];
	int ioat;
	int imp[4];			/* importers that have something mapped */
	long steps, last;
	uint32_t seed;
	/* per kind of step, how often it worked */
	long worked[KINDS];
};

static struct world *world;
/* of this thread: where a fault goes */
static __thread sigjmp_buf here;

static void on_fault(int sig)
{
	siglongjmp(here, sig);
}

static void poke(uint8_t *p, bool write)
{
	if (sigsetjmp(here, 1))
		return;
	if (write)
		__atomic_store_n(p, 1, __ATOMIC_RELAXED);
	else
		(void)__atomic_load_n(p, __ATOMIC_RELAXED);
}

static void step(uint32_t *seed)
{
	struct world *w = world;
	struct slot *s = &w->slot[rnd(seed) % SLOTS], *t = &w->slot[rnd(seed) % SLOTS];
	int fd = __atomic_load_n(&w->fd[rnd(seed) % 3], __ATOMIC_RELAXED);
	struct asyncprog_ioc_register r;
	struct asyncprog_ioc_query q;
	struct asyncprog_copy op[4];
	uint32_t done = 0;
	size_t len, i;
	uint8_t *p;
	uint32_t kind = rnd(seed) % KINDS;
	bool ok = false;
	int old;

	switch (kind) {
	case 0:
		len = (1 + rnd(seed) % (MAXLEN / PAGE)) * PAGE;
		p = anon(len);
		if (p == MAP_FAILED)
			break;
		if (rnd(seed) % 4 == 0)
			memset(p, 0x77, len);
		s->mem = p;
		s->len = len;
		ok = true;
		break;
	case 1:
	case 2:
	case 3:
		if (!s->mem)
			break;
		len = s->len - 100;
		if (!reg_full(fd, s->mem + rnd(seed) % 100, len - rnd(seed) % 2 * (len / 2),
			      rnd(seed) % 8 ? RWM : ROM,
			      ASYNCPROG_CONSENT_FD | ASYNCPROG_CONSENT_UID, &r)) {
			s->handle = r.handle;
			s->off = r.map_offset;
			ok = true;
		}
		break;
	case 4:
		if (rnd(seed) % 2)
			break;
		ok = !unreg(fd, s->handle);
		break;
	case 5:
		/* the other threads go on with what was there */
		if (!s->mem || rnd(seed) % 4)
			break;
		ok = !munmap(s->mem + rnd(seed) % (s->len / PAGE) * PAGE, PAGE);
		s->mem = NULL;
		break;
	case 6:
		if (s->mem && rnd(seed) % 4 == 0)
			ok = !madvise(s->mem, s->len, rnd(seed) % 2 ? MADV_DONTNEED :
				      MADV_PAGEOUT);
		break;
	case 7:
	case 8:
		if (query(fd, s->handle, &q))
			break;
		p = mmap(NULL, q.map_length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, s->off);
		if (p == MAP_FAILED)
			break;
		ok = true;
		for (i = 0; i < 20; i++)
			poke(p + rnd(seed) % q.map_length, rnd(seed) % 2);
		if (rnd(seed) % 4 == 0)
			mprotect(p, PAGE, PROT_READ);
		/* one in eight stays, to be revoked */
		if (rnd(seed) % 8)
			munmap(p, q.map_length);
		break;
	case 9:
	case 10:
		for (i = 0; i < 4; i++)
			op[i] = (struct asyncprog_copy){ s->handle, rnd(seed) % PAGE, t->handle,
							 rnd(seed) % PAGE, 1 + rnd(seed) % PAGE,
							 i };
		if (rnd(seed) % 4 == 0) {
			struct asyncprog_ioc_attach a = { .size = sizeof(a) };

			a.fd = w->fd[rnd(seed) % 3];
			do_ioctl(fd, ASYNCPROG_IOC_ATTACH, &a);
		}
		copy_ops(fd, op, 4, rnd(seed) % 2 ? ASYNCPROG_COPY_QUEUED : 0, &done);
		ok = done;
		break;
	case 11: {
		struct ioat_copy_ioc_submit sub = {
			.size = sizeof(sub), .flags = rnd(seed) % 4, .ops = (uintptr_t)op,
			.nops = 4,
		};

		for (i = 0; i < 4; i++)
			op[i] = (struct asyncprog_copy){ s->handle, 0, t->handle, 0,
							 1 + rnd(seed) % PAGE, i };
		ok = !do_ioctl(w->ioat, IOAT_COPY_IOC_SUBMIT, &sub);
		break;
	}
	case 12:
		if (rnd(seed) % 8)
			break;
		/* a child that dies in the middle of its own registrations */
		old = fork();
		if (!old) {
			for (i = 0; i < 6; i++)
				reg_full(fd, anon(MAXLEN), MAXLEN, RWM, ASYNCPROG_CONSENT_FD, &r);
			if (rnd(seed) % 2)
				kill(getpid(), SIGKILL);
			if (rnd(seed) % 2)
				execl("/bin/true", "true", NULL);
			_exit(0);
		}
		if (old > 0)
			reap(old);
		ok = true;
		break;
	case 13:
		if (rnd(seed) % 8)
			break;
		old = dev_open();
		if (old < 0)
			break;
		if (rnd(seed) % 2) {
			struct asyncprog_ioc_ring ring;

			make_ring(old, 64, -1, &ring);
		}
		old = __atomic_exchange_n(&w->fd[rnd(seed) % 3], old, __ATOMIC_RELAXED);
		close(old);
		ok = true;
		break;
	case 14: {
		struct asyncprog_ioc_dmabuf d = {
			.size = sizeof(d), .handle = s->handle, .length = PAGE, .access = RW,
		};
		struct dmaimp_attach a = { .kind = rnd(seed) % (DMAIMP_BY_KERNEL + 1) };
		struct dmaimp_access io = { .len = 8, .data = (uintptr_t)&io.off, .write = 1 };
		int imp;

		if (do_ioctl(fd, ASYNCPROG_IOC_DMABUF, &d))
			break;
		imp = open("/dev/dmaimp", O_RDWR | O_CLOEXEC);
		a.fd = d.fd;
		if (!do_ioctl(imp, DMAIMP_IOC_ATTACH, &a) &&
		    !do_ioctl(imp, DMAIMP_IOC_MAP, (void *)DMAIMP_BOTH))
			ok = !do_ioctl(imp, DMAIMP_IOC_ACCESS, &io);
		close(d.fd);
		/* it stays until another one takes its place */
		if (rnd(seed) % 2)
			imp = __atomic_exchange_n(&w->imp[rnd(seed) % 4], imp, __ATOMIC_RELAXED);
		if (imp >= 0)
			close(imp);
		break;
	}
	}
	if (ok)
		__atomic_fetch_add(&w->worked[kind], 1, __ATOMIC_RELAXED);
}

static void *racer(void *arg)
{
	uint32_t seed = world->seed * 2654435761u + (uint32_t)(uintptr_t)arg * 97 + 1;

	while (__atomic_add_fetch(&world->steps, 1, __ATOMIC_RELAXED) <= world->last)
		step(&seed);
	/* half of the time everything ends under the other threads, in the middle of their steps */
	if (world->seed % 2)
		_exit(0);
	return NULL;
}

static long env(const char *name, long def)
{
	const char *s = getenv(name);

	return s ? atol(s) : def;
}

/* one process of racing threads; its end takes everything with it */
static void race(uint32_t seed, long steps)
{
	struct sigaction sa = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	struct asyncprog_ioc_ring ring;
	struct ioat_copy_ioc_setup s = { .size = sizeof(s), .eventfd = -1, .entries = 256 };
	pthread_t t[THREADS];
	long i;

	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	memset(world->slot, 0, sizeof(world->slot));
	world->steps = 0;
	world->last = steps;
	world->seed = seed;
	for (i = 0; i < 4; i++)
		world->imp[i] = -1;
	for (i = 0; i < 3; i++) {
		world->fd[i] = dev_open();
		make_ring(world->fd[i], 64, -1, &ring);
	}
	world->ioat = open("/dev/ioat_copy", O_RDWR | O_CLOEXEC);
	s.asyncprog_fd = world->fd[0];
	do_ioctl(world->ioat, IOAT_COPY_IOC_SETUP, &s);
	for (i = 0; i < THREADS; i++) {
		if (pthread_create(&t[i], NULL, racer, (void *)i))
			_exit(1);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	_exit(0);
}

FIXTURE(race)
{
	char unused;
};

FIXTURE_SETUP(race)
{
}

FIXTURE_TEARDOWN(race)
{
}

TEST_F(race, random_steps)
{
	uint32_t seed = env("KMOD_SEED", time(NULL));
	long steps = env("KMOD_STEPS", 1500), i;
	struct asyncprog_ioc_info info_;
	int fd = dev_open();
	char cmd[512];

	ASSERT_GE(fd, 0);
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	ASSERT_NE(MAP_FAILED, world);
	TH_LOG("seed %u", seed);
	snprintf(cmd, sizeof(cmd), "insmod %s && echo 20 >%s", getenv("KMOD_DMAIMP"), DRAIN);
	ASSERT_EQ(0, system(cmd));
	for (i = 0; i < 8; i++) {
		pid_t pid = fork();

		if (!pid)
			race(seed + i, steps);
		EXPECT_EQ(0, reap(pid));
		EXPECT_TRUE(EVENTUALLY(!info(fd, &info_) && info_.total_bytes == 0))
			TH_LOG("seed %u leaves %lu bytes", seed + (uint32_t)i,
			       (unsigned long)info_.total_bytes);
	}
	for (i = 0; i < KINDS; i++)
		EXPECT_GT(world->worked[i], 0)
			TH_LOG("step %ld never worked", i);
	TH_LOG("%ld registrations, %ld mappings, %ld copies, %ld of ioat_copy, %ld imports",
	       world->worked[1], world->worked[7], world->worked[9], world->worked[11],
	       world->worked[14]);
	EXPECT_TRUE(EVENTUALLY(system("rmmod dmaimp 2>/dev/null") == 0));
	EXPECT_EQ(0, system("echo 5000 >" DRAIN));
}

TEST_HARNESS_MAIN

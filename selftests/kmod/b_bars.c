// SPDX-License-Identifier: GPL-2.0-only
/*
 * Figures, not tests: only ratios within one run mean something, in a virtual machine even less.
 *
 *	selftests/kmod/run 6.1 b_bars
 */
#include <asyncprog/ioat_copy.h>

#include "kmodtest.h"

#define MB	1048576ul

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *t, int n)
{
	qsort(t, n, sizeof(*t), by_value);
	return t[n / 2];
}

static double registering(int fd, uint8_t *m, size_t len)
{
	struct asyncprog_ioc_register r;
	double t[9];
	int i;

	for (i = 0; i < 9; i++) {
		double start = now();

		if (reg_full(fd, m, len, RWM, 0, &r))
			return -1;
		t[i] = now() - start;
		unreg(fd, r.handle);
	}
	return median(t, 9);
}

TEST(registration)
{
	size_t len = 64 * MB;
	int fd = dev_open();
	uint8_t *small, *huge;
	FILE *f = fopen("/proc/sys/vm/nr_hugepages", "w");
	double s, h;

	fprintf(f, "40\n");
	fclose(f);
	small = anon(len);
	madvise(small, len, MADV_NOHUGEPAGE);
	memset(small, 1, len);
	huge = mmap(NULL, len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	ASSERT_NE(MAP_FAILED, huge);
	memset(huge, 1, len);
	s = registering(fd, small, len);
	h = registering(fd, huge, len);
	TH_LOG("64 MiB: 4 KiB pages %.0f us, 2 MiB pages %.0f us, %.1f times faster", s * 1e6,
	       h * 1e6, s / h);
}

TEST(copy)
{
	static const size_t sizes[] = { 8, 4096, 65536, MB, 8 * MB };
	int fd = dev_open(), i, k;
	uint8_t *a = anon(8 * MB), *b = anon(8 * MB);
	uint64_t ha, hb;

	memset(a, 1, 8 * MB);
	memset(b, 2, 8 * MB);
	ha = reg(fd, a, 8 * MB, RW, 0);
	hb = reg(fd, b, 8 * MB, RW, 0);
	for (k = 0; k < 5; k++) {
		double user[31], kern[31], start, u, h;

		for (i = 0; i < 31; i++) {
			start = now();
			memcpy(b, a, sizes[k]);
			__asm__ volatile("" ::: "memory");
			user[i] = now() - start;
			start = now();
			copy_one(fd, ha, 0, hb, 0, sizes[k]);
			kern[i] = now() - start;
		}
		u = median(user, 31);
		h = median(kern, 31);
		TH_LOG("%zu bytes: memcpy %.1f us, by handle %.1f us, ratio %.2f", sizes[k],
		       u * 1e6, h * 1e6, u / h);
	}
}

/* busy and idle ticks of all processors */
static void ticks(long *busy, long *idle)
{
	long user, nice, sys, id, iowait, irq, soft;
	FILE *f = fopen("/proc/stat", "r");

	if (fscanf(f, "cpu %ld %ld %ld %ld %ld %ld %ld", &user, &nice, &sys, &id, &iowait, &irq,
		   &soft) != 7)
		exit(1);
	fclose(f);
	*busy = user + nice + sys + irq + soft;
	*idle = id + iowait;
}

TEST(idle_while_the_engine_copies)
{
	struct ioat_copy_ioc_setup s = { .size = sizeof(s), .eventfd = -1, .entries = 4096 };
	struct asyncprog_copy op;
	struct ioat_copy_ioc_submit sub = { .size = sizeof(sub), .ops = (uintptr_t)&op, .nops = 1,
					    .flags = IOAT_COPY_ISSUE };
	long busy[2], idle[2];
	int fd, ap = dev_open(), i, k;
	uint8_t *a = anon(2 * PAGE), *b = a + PAGE;
	char cmd[512];

	snprintf(cmd, sizeof(cmd), "insmod %s delay_us=5000", getenv("KMOD_DMAPROV"));
	ASSERT_EQ(0, system(cmd));
	op = (struct asyncprog_copy){ reg(ap, a, PAGE, RW, 0), 0, reg(ap, b, PAGE, RW, 0), 0,
				      PAGE, 0 };
	fd = open("/dev/ioat_copy", O_RDWR);
	s.asyncprog_fd = ap;
	ASSERT_EQ(0, do_ioctl(fd, IOAT_COPY_IOC_SETUP, &s));
	/* a task that sleeps as long is what the machine itself costs */
	for (k = 0; k < 3; k++) {
		static const char * const how[] = { "interrupts", "polled", "asleep instead" };

		ticks(&busy[0], &idle[0]);
		for (i = 0; i < 400; i++) {
			struct ioat_copy_ioc_wait w = { .size = sizeof(w),
							.timeout_ns = UINT64_MAX };

			if (k == 2) {
				usleep(5000);
				continue;
			}
			sub.flags = IOAT_COPY_ISSUE | (k ? IOAT_COPY_POLLED : 0);
			ASSERT_EQ(0, do_ioctl(fd, IOAT_COPY_IOC_SUBMIT, &sub));
			w.seq = sub.seq;
			ASSERT_EQ(0, do_ioctl(fd, IOAT_COPY_IOC_WAIT, &w));
		}
		ticks(&busy[1], &idle[1]);
		TH_LOG("400 copies of 5 ms, %s: idle %.1f %%", how[k],
		       100.0 * (idle[1] - idle[0]) /
		       (idle[1] - idle[0] + busy[1] - busy[0]));
	}
	close(fd);
	close(ap);
	EXPECT_TRUE(EVENTUALLY(system("rmmod dmaprov 2>/dev/null") == 0));
}

TEST_HARNESS_MAIN

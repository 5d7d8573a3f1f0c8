// SPDX-License-Identifier: GPL-2.0-only
/*
 * Figures, not tests: only ratios within one run mean something, in a virtual machine even less.
 * Documentation/testing.md tells how to read them.
 *
 *	selftests/kmod/run 6.1 b_bars
 *	KMOD_ICOUNT=1 selftests/kmod/run 6.1 b_bars	time is the number of instructions
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

/* what memcpy() may be made of; an emulated processor makes them very unlike each other */
static void by_libc(void *to, const void *from, size_t n)
{
	memcpy(to, from, n);
}

#ifdef __x86_64__
static void by_movsb(void *to, const void *from, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static void by_movsq(void *to, const void *from, size_t n)
{
	n /= 8;
	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}
#endif

/* registers of 8 bytes, as the kernel does without string instructions */
static void by_words(void *to, const void *from, size_t n)
{
	const uint64_t *s = from;
	uint64_t *d = to;

	for (; n >= 32; n -= 32, s += 4, d += 4) {
		uint64_t a = s[0], b = s[1], c = s[2], e = s[3];

		/* no wider ones */
		__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(e));
		d[0] = a;
		d[1] = b;
		d[2] = c;
		d[3] = e;
	}
	memcpy(d, s, n);
}

static const struct {
	const char *name;
	void (*copy)(void *to, const void *from, size_t n);
} ways[] = {
	{ "libc", by_libc },
#ifdef __x86_64__
	{ "rep movsb", by_movsb },
	{ "rep movsq", by_movsq },
#endif
	{ "words", by_words },
};

#define WAYS	(sizeof(ways) / sizeof(ways[0]))

/* the flags of the processor by which a kernel chooses among them */
static void say_flags(struct __test_metadata *_metadata)
{
	static const char * const flags[] = { " rep_good", " erms", " fsrm" };
	FILE *f = fopen("/proc/cpuinfo", "r");
	char line[8192], have[64] = "";
	unsigned int i;

	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "flags", 5))
			continue;
		for (i = 0; i < 3; i++) {
			if (strstr(line, flags[i]))
				strcat(have, flags[i]);
		}
		break;
	}
	fclose(f);
	TH_LOG("processor:%s", have[0] ? have : " no rep_good, erms, fsrm");
}

TEST(copy)
{
	static const size_t sizes[] = { 8, 4096, 65536, MB, 8 * MB };
	int fd = dev_open(), i, k;
	uint8_t *a = anon(8 * MB), *b = anon(8 * MB);
	uint64_t ha, hb;
	unsigned int w;

	memset(a, 1, 8 * MB);
	memset(b, 2, 8 * MB);
	ha = reg(fd, a, 8 * MB, RW, 0);
	hb = reg(fd, b, 8 * MB, RW, 0);
	say_flags(_metadata);
	for (k = 0; k < 5; k++) {
		double user[WAYS][31], kern[31], start, h;
		char text[256];
		int at = 0;

		for (i = 0; i < 31; i++) {
			for (w = 0; w < WAYS; w++) {
				start = now();
				ways[w].copy(b, a, sizes[k]);
				__asm__ volatile("" ::: "memory");
				user[w][i] = now() - start;
			}
			start = now();
			copy_one(fd, ha, 0, hb, 0, sizes[k]);
			kern[i] = now() - start;
		}
		h = median(kern, 31);
		for (w = 0; w < WAYS; w++) {
			double u = median(user[w], 31);

			at += snprintf(text + at, sizeof(text) - at, "; %s %.1f us, ratio %.2f",
				       ways[w].name, u * 1e6, u / h);
		}
		TH_LOG("%zu bytes: by handle %.1f us%s", sizes[k], h * 1e6, text);
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
	long busy[2], idle[2], cpus = sysconf(_SC_NPROCESSORS_ONLN);
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
		double start = now(), all;

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
		all = (now() - start) * cpus * sysconf(_SC_CLK_TCK);
		/* idle time is measured; busy time is what the ticks happened to find */
		TH_LOG("400 copies of 5 ms, %s: %.2f ms each, idle %.1f %% of the time (of ticks %.1f %%)",
		       how[k], all / cpus / sysconf(_SC_CLK_TCK) / 400 * 1000,
		       100.0 * (idle[1] - idle[0]) / all,
		       100.0 * (idle[1] - idle[0]) / (idle[1] - idle[0] + busy[1] - busy[0]));
	}
	close(fd);
	close(ap);
	EXPECT_TRUE(EVENTUALLY(system("rmmod dmaprov 2>/dev/null") == 0));
}

TEST_HARNESS_MAIN

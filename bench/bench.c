// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "bench.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

void bench_spin_until(int64_t t)
{
	while (bench_now() < t)
		;
}

void bench_compute(uint64_t iters)
{
	uint64_t x = iters | 1;

	for (uint64_t i = 0; i < iters; i++) {
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
		/* the compiler may neither drop the chain nor compute it in closed form */
		__asm__ volatile("" : "+r"(x));
	}
}

uint64_t bench_calibrate(void)
{
	const uint64_t n = 200000;
	int64_t best = INT64_MAX;

	for (int i = 0; i < 400; i++) {
		int64_t t0 = bench_now(), dt;

		bench_compute(n);
		dt = bench_now() - t0;
		if (dt < best)
			best = dt;
	}
	return n * 1000000ULL / (uint64_t)best;
}

uint64_t bench_rand(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

void bench_samples_add(struct bench_samples *s, int64_t ns)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 256;
		int64_t *v = realloc(s->v, cap * sizeof(*v));

		if (!v)
			bench_die("no memory for %zu samples", cap);
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n++] = ns;
}

void bench_samples_reset(struct bench_samples *s)
{
	s->n = 0;
}

void bench_samples_free(struct bench_samples *s)
{
	free(s->v);
	memset(s, 0, sizeof(*s));
}

static int by_value(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

int64_t bench_median(const struct bench_samples *s)
{
	int64_t *v = bench_alloc(s->n * sizeof(*v)), m;

	memcpy(v, s->v, s->n * sizeof(*v));
	qsort(v, s->n, sizeof(*v), by_value);
	m = v[s->n / 2];
	free(v);
	return m;
}

void bench_emit(const char *key, const char *unit, const struct bench_samples *s)
{
	printf("BENCH {\"key\":\"%s\",\"unit\":\"%s\",\"samples\":[", key, unit);
	for (size_t i = 0; i < s->n; i++)
		printf("%s%lld", i ? "," : "", (long long)s->v[i]);
	printf("]}\n");
	fflush(stdout);
}

void bench_emit_one(const char *key, const char *unit, int64_t value)
{
	struct bench_samples s = { .v = &value, .n = 1, .cap = 1 };

	bench_emit(key, unit, &s);
}

void bench_emit_of(int owner, const char *key, const char *unit, struct bench_samples *s)
{
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (owner && rank == owner)
		MPI_Send(s->v, (int)s->n, MPI_INT64_T, 0, 2, MPI_COMM_WORLD);
	else if (owner && !rank)
		MPI_Recv(s->v, (int)s->n, MPI_INT64_T, owner, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (!rank)
		bench_emit(key, unit, s);
}

void bench_done(void)
{
	const char *path = getenv("BENCH_DONE");
	FILE *f;

	fflush(stdout);
	if (!path)
		return;
	f = fopen(path, "w");
	if (!f || fclose(f))
		bench_die("%s: %s", path, strerror(errno));
}

void *bench_alloc(size_t bytes)
{
	void *p = NULL;

	if (posix_memalign(&p, 4096, bytes ? bytes : 1))
		bench_die("no memory for %zu bytes", bytes);
	memset(p, 0, bytes);
	return p;
}

void bench_die(const char *fmt, ...)
{
	int up = 0, down = 0;
	va_list ap;

	fputs("bench: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	MPI_Initialized(&up);
	MPI_Finalized(&down);
	if (up && !down) {
		/* launchers drop what they have not forwarded when the job aborts */
		nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	exit(1);
}

uint64_t bench_opt(int argc, char **argv, const char *name, uint64_t dflt)
{
	for (int i = 1; i + 1 < argc; i++) {
		unsigned long long v;
		char *end;

		if (strcmp(argv[i], name))
			continue;
		errno = 0;
		v = strtoull(argv[i + 1], &end, 10);
		if (errno || end == argv[i + 1] || *end)
			bench_die("%s %s: not a number", name, argv[i + 1]);
		return v;
	}
	return dflt;
}

char *bench_arg(int argc, char **argv, int *at)
{
	while (++*at < argc) {
		if (strncmp(argv[*at], "--", 2))
			return argv[*at];
		++*at;
	}
	return NULL;
}

static long status_field(const char *path, const char *field)
{
	size_t len = strlen(field);
	char line[256];
	long v = 0;
	FILE *f = fopen(path, "r");

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, field, len) && line[len] == ':')
			v = strtol(line + len + 1, NULL, 10);
	fclose(f);
	return v;
}

static int64_t first_number(const char *path)
{
	FILE *f = fopen(path, "r");
	long long v = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%lld", &v) != 1)
		v = 0;
	fclose(f);
	return v;
}

static bool is_progd(int pid)
{
	char path[64], comm[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	f = fopen(path, "r");
	if (!f)
		return false;
	if (!fgets(comm, sizeof(comm), f))
		comm[0] = '\0';
	fclose(f);
	return !strncmp(comm, "progd", 5);
}

static void daemon_read(struct bench_daemon *d, int pid)
{
	char path[300];
	struct dirent *e;
	DIR *dir;

	memset(d, 0, sizeof(*d));
	d->pid = pid;
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	d->rss_kib = status_field(path, "VmRSS");
	d->shmem_kib = status_field(path, "RssShmem");
	d->peak_kib = status_field(path, "VmHWM");
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", pid, e->d_name);
		d->switches += status_field(path, "voluntary_ctxt_switches") +
			       status_field(path, "nonvoluntary_ctxt_switches");
		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", pid, e->d_name);
		d->cpu_ns += first_number(path);
		d->threads++;
	}
	if (dir)
		closedir(dir);
}

void bench_daemons_read(struct bench_daemons *ds)
{
	struct dirent *e;
	DIR *dir = opendir("/proc");

	ds->n = 0;
	while (dir && (e = readdir(dir)) && ds->n < BENCH_MAX_DAEMONS) {
		int pid = atoi(e->d_name);

		if (pid > 0 && is_progd(pid))
			daemon_read(&ds->d[ds->n++], pid);
	}
	if (dir)
		closedir(dir);
}

void bench_daemons_once(struct bench_daemons *ds)
{
	char mine[MPI_MAX_PROCESSOR_NAME] = "", *all;
	int rank, size, len, first = 0;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Get_processor_name(mine, &len);
	all = bench_alloc((size_t)size * sizeof(mine));
	MPI_Allgather(mine, sizeof(mine), MPI_CHAR, all, sizeof(mine), MPI_CHAR, MPI_COMM_WORLD);
	while (strcmp(all + (size_t)first * sizeof(mine), mine))
		first++;
	free(all);
	ds->n = 0;
	if (rank == first)
		bench_daemons_read(ds);
}

long bench_peak_kib(void)
{
	return status_field("/proc/self/status", "VmHWM");
}

static void reset_peak(const char *path)
{
	FILE *f = fopen(path, "w");

	if (f) {
		fputs("5", f);
		fclose(f);
	}
}

void bench_peak_reset(const struct bench_daemons *ds)
{
	char path[64];

	reset_peak("/proc/self/clear_refs");
	for (int i = 0; i < ds->n; i++) {
		snprintf(path, sizeof(path), "/proc/%d/clear_refs", ds->d[i].pid);
		reset_peak(path);
	}
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "random.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "done.h"
#include "fault.h"

int nthreads = 1, rank, nranks;
bool show;
uint64_t seed_now;

static const struct random_program *program;
static char *threads;
static bool regions;
static int timeout_s = 30;

static struct random_thread *thread(int i)
{
	return (struct random_thread *)(void *)(threads + (size_t)i * program->thread_size);
}

/* splitmix64 */
uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t z = a * 0xd1342543de82ef95ull + b + 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* Who, where; the value is the length. */
static int place(const struct random_thread *th, const char *what, char *b, size_t size)
{
	const void *event = th->at;
	char w[100] = "at the end";

	if (event)
		program->where(event, w, sizeof(w));
	return snprintf(b, size, "%s seed %llu rank %d thread %d step %d %s", what,
			(unsigned long long)seed_now, rank, th->no, th->step, w);
}

void random_fail(struct random_thread *th, const char *fmt, ...)
{
	char b[900];
	va_list ap;
	int n;

	if (th->failures++ >= 4)
		return;
	n = place(th, "FAIL", b, 300);
	n += snprintf(b + n, sizeof(b) - (size_t)n, ": ");
	va_start(ap, fmt);
	vsnprintf(b + n, sizeof(b) - (size_t)n, fmt, ap);
	va_end(ap);
	puts(b);
	fflush(stdout);
}

int random_check(struct random_thread *th, const char *call, int rc)
{
	char s[MPI_MAX_ERROR_STRING] = "?";
	int len;

	if (rc == MPI_SUCCESS)
		return rc;
	MPI_Error_string(rc, s, &len);
	s[strcspn(s, "\n")] = 0;
	random_fail(th, "%.160s: %s", call, s);
	return rc;
}

void random_region(struct random_thread *th, int step)
{
	int n = 1 + (int)(mix(seed_now, (uint64_t)step) % 4), here = 0;

	if (!regions || step % 4)
		return;
	#pragma omp parallel num_threads(n) reduction(+ : here)
	here++;
	if (here != n)
		random_fail(th, "%d threads instead of %d", here, n);
}

/* Where all threads are, to @fd. */
static void say_where(int fd, const char *what)
{
	char b[300];

	for (int i = 0; i < nthreads; i++) {
		int n = place(thread(i), what, b, sizeof(b) - 1);

		b[n++] = '\n';
		if (write(fd, b, (size_t)n) < 0)
			break;
	}
}

static void on_alarm(int sig)
{
	(void)sig;
	say_where(1, "HANG");
	_exit(124);
}

static void on_fault(void)
{
	say_where(2, "FAULT");
}

/* one program; the value is the number of failures of all ranks */
static int run_seed(uint64_t seed)
{
	pthread_t id[MAX_THREADS];
	uint64_t mine[2] = { 0, 0 }, all[2];

	seed_now = seed;
	alarm((unsigned int)timeout_s);
	for (int i = 0; i < nthreads; i++)
		thread(i)->failures = 0;
	program->before();
	for (int i = 1; i < nthreads; i++)
		if (pthread_create(&id[i], NULL, program->run, thread(i)))
			abort();
	program->run(thread(0));
	for (int i = 1; i < nthreads; i++)
		pthread_join(id[i], NULL);
	mine[0] = program->after();
	for (int i = 0; i < nthreads; i++)
		mine[1] += (uint64_t)thread(i)->failures;
	MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("P %llu %016llx\n", (unsigned long long)seed, (unsigned long long)all[0]);
		fflush(stdout);
	}
	return (int)all[1];
}

/* False: the arguments are wrong. */
static bool parse(int argc, char **argv, uint64_t *first, uint64_t *count)
{
	int pos = 0, words;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--threads") && i + 1 < argc) {
			nthreads = atoi(argv[++i]);
		} else if (!strcmp(argv[i], "--timeout") && i + 1 < argc) {
			timeout_s = atoi(argv[++i]);
		} else if (!strcmp(argv[i], "--regions")) {
			regions = true;
		} else if (!strcmp(argv[i], "--show")) {
			show = true;
		} else {
			words = program->option(argv + i, argc - i);
			if (words)
				i += words - 1;
			else
				*(pos++ ? count : first) = strtoull(argv[i], NULL, 0);
		}
	}
	return pos == 2 && nthreads >= 1 && nthreads <= MAX_THREADS;
}

int random_main(int argc, char **argv, const struct random_program *p)
{
	uint64_t first = 0, count = 0, s;
	int provided, bad = 0;

	program = p;
	if (!parse(argc, argv, &first, &count)) {
		fprintf(stderr, "usage: %s [--threads 1..%d] [--regions] [--timeout S] [--show]%s FIRST COUNT\n", p->name,
			MAX_THREADS, p->options);
		return 2;
	}
	threads = calloc((size_t)nthreads, p->thread_size);
	if (!threads)
		return 2;
	fault_install(on_fault);
	signal(SIGALRM, on_alarm);
	alarm((unsigned int)timeout_s);
	setvbuf(stdout, NULL, _IOLBF, 0);
	MPI_Init_thread(&argc, &argv, nthreads > 1 ? MPI_THREAD_MULTIPLE : regions ? MPI_THREAD_FUNNELED : MPI_THREAD_SINGLE,
			&provided);
	fault_install(on_fault);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	if (nranks < 2 || nranks > MAX_RANKS || (nthreads > 1 && provided < MPI_THREAD_MULTIPLE)) {
		fprintf(stderr, "%s: 2 to %d ranks, and MPI_THREAD_MULTIPLE for threads\n", p->name, MAX_RANKS);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	for (int i = 0; i < nthreads; i++)
		thread(i)->no = i;
	p->begin(threads);
	for (s = first; s < first + count && bad < 8; s++)
		bad += run_seed(s);
	if (s < first + count && rank == 0)
		printf("STOP seed %llu\n", (unsigned long long)s);
	alarm((unsigned int)timeout_s);
	if (p->end)
		p->end();
	MPI_Barrier(MPI_COMM_WORLD);
	done_arm();
	MPI_Finalize();
	return bad ? 1 : 0;
}

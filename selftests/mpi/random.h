/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * What the programs that make random MPI programs from seeds share: arguments, threads, failures, hangs.
 *
 *	NAME [--threads N] [--regions] [--timeout S] [--show] [options of its own] FIRST COUNT
 *
 * With --regions every thread runs a parallel region of OpenMP now and then, of one to four threads.
 *
 * Each seed from FIRST on makes one program.  Rank 0 prints "P SEED DIGEST" when it came to its end; a rank that
 * finds something wrong prints "FAIL seed S rank R thread T step N ...", and one that does not end within S
 * seconds "HANG seed ...".  RandomTest.pm reads this.
 */
#ifndef MPITEST_RANDOM_H
#define MPITEST_RANDOM_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_RANKS	8
#define MAX_THREADS	4

/* The first member of each program's struct thread. */
struct random_thread {
	int no, failures;
	volatile int step;
	const void *volatile at;	/* the event that it executes; NULL: none */
};

struct random_program {
	const char *name, *options;	/* and how those of its own are to be used */
	size_t thread_size;
	/* Takes an option of its own: the number of words, 0 when it is none. */
	int (*option)(char **argv, int words);
	/* Once, after MPI_Init: @threads have their numbers. */
	void (*begin)(void *threads);
	/* For each seed: before the threads run; what each does; after that: this rank's part of the digest. */
	void (*before)(void);
	void *(*run)(void *thread);
	uint64_t (*after)(void);
	/* Once, before MPI_Finalize; or NULL. */
	void (*end)(void);
	/* An event in words, also from a signal handler. */
	void (*where)(const void *event, char *b, size_t size);
};

extern int nthreads, rank, nranks;
extern bool show;
extern uint64_t seed_now;

uint64_t mix(uint64_t a, uint64_t b);

/* Something is wrong.  The first four of a thread and a program are printed. */
void random_fail(struct random_thread *th, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Before event @step of @th. */
void random_region(struct random_thread *th, int step);
/* Of a call's return code; the value is @rc. */
int random_check(struct random_thread *th, const char *call, int rc);

#define fail(th, ...) random_fail(&(th)->base, __VA_ARGS__)
#define CK(call) random_check(&th->base, #call, (call))
/* the call with large counts, where the library has one, if @p says so */
#if MPI_VERSION >= 4
#define HAVE_LARGE 1
#define L(p, name, ...) \
	random_check(&th->base, #name, (p)->large ? MPI_##name##_c(__VA_ARGS__) : MPI_##name(__VA_ARGS__))
#else
#define HAVE_LARGE 0
#define L(p, name, ...) random_check(&th->base, #name, MPI_##name(__VA_ARGS__))
#endif

/* The whole of main(). */
int random_main(int argc, char **argv, const struct random_program *program);

#endif

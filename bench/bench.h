/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * What the benchmark programs share: time, nominal work, samples, and the line format that
 * bench/run reads. Every program is single threaded; nothing here may be called from two threads.
 *
 * A program reports by printing one line per result on stdout:
 *
 *	BENCH {"key":"...","unit":"ns","samples":[1,2,3]}
 *
 * bench/run merges the samples of several runs by key; see Documentation/bench.md.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Samples of one measured point. v is owned by the struct; bench_samples_free releases it. */
struct bench_samples {
	int64_t *v;
	size_t n;
	size_t cap;
};

/* CLOCK_MONOTONIC in nanoseconds. */
int64_t bench_now(void);

/* Spin until bench_now() reaches @t; stands for an origin that is busy between operations. */
void bench_spin_until(int64_t t);

/*
 * Execute @iters steps of a serial dependency chain in registers. The amount of work depends on
 * @iters only: a thread that takes the core away makes this take longer, and that is what gets
 * measured. (A loop that runs until a clock says stop would hide it.)
 */
void bench_compute(uint64_t iters);

/* Steps of bench_compute() that take 1 ms on this core now: the fastest of many short trials. */
uint64_t bench_calibrate(void);

/* Next value of a fixed pseudo-random sequence (splitmix64), so that runs are comparable. */
uint64_t bench_rand(uint64_t *state);

/* Append @ns. Memory is exhausted: ends the program with a message. */
void bench_samples_add(struct bench_samples *s, int64_t ns);
void bench_samples_reset(struct bench_samples *s);
void bench_samples_free(struct bench_samples *s);
/* Of at least one sample. */
int64_t bench_median(const struct bench_samples *s);

/* Print the result line for @key. @unit is the unit of the samples. */
void bench_emit(const char *key, const char *unit, const struct bench_samples *s);
/* Same for a single number. */
void bench_emit_one(const char *key, const char *unit, int64_t value);
/*
 * Rank 0 of MPI_COMM_WORLD prints the samples of rank @owner. To be called by at least these two;
 * rank 0's @s has as many samples, which are overwritten.
 */
void bench_emit_of(int owner, const char *key, const char *unit, struct bench_samples *s);

/* What /proc says about one progd beside this process (the ranks of a virtual node see only its own). */
struct bench_daemon {
	int pid;
	int threads;
	long switches;		/* voluntary and involuntary, all threads */
	long rss_kib, peak_kib;	/* resident set, and its largest size since the last reset */
	long shmem_kib;		/* of rss: shared memory, i.e. windows and rings of the clients */
	int64_t cpu_ns;		/* processor time, all threads */
};
#define BENCH_MAX_DAEMONS 4
struct bench_daemons {
	int n;
	struct bench_daemon d[BENCH_MAX_DAEMONS];
};
void bench_daemons_read(struct bench_daemons *ds);
/*
 * The same for the lowest rank of each node, none for the others: a sum over all ranks counts each daemon
 * once. Collective over MPI_COMM_WORLD.
 */
void bench_daemons_once(struct bench_daemons *ds);

/* Largest resident set of this process since the last reset, KiB. */
long bench_peak_kib(void);
/* Begin anew with the present size: of this process and of the daemons in @ds. */
void bench_peak_reset(const struct bench_daemons *ds);

/*
 * All results are out: to be called by one rank, before MPI_Finalize. Writes the file that the
 * environment's BENCH_DONE names, if it names one (MPICH's MPI_Finalize over TCP hangs now and
 * then, and bench/run need not wait for it natively).
 */
void bench_done(void);

/* malloc() and friends that end the program with a message instead of returning NULL. */
void *bench_alloc(size_t bytes);

/* Print "bench: ..." on stderr and end the whole job (MPI_Abort when MPI is up). */
void bench_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/*
 * Value of "--name V" in argv as an unsigned number, or @dflt when it is not there.
 * A value that is no number ends the program with a message.
 */
uint64_t bench_opt(int argc, char **argv, const char *name, uint64_t dflt);

/* The next argument behind argv[*@at] that is no option and no option's value, where *@at is moved to; NULL: there is none. */
char *bench_arg(int argc, char **argv, int *at);

#endif

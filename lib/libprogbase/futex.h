/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * futex: sleeping on a 32-bit word in memory that processes share, a full barrier and a pause for
 * spin loops.  All functions are thread-safe and keep errno out of their results: callers re-check
 * their condition whatever the reason of the return was.
 */
#ifndef PROGBASE_FUTEX_H
#define PROGBASE_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleep while *@word == @seen, at most @timeout_ns (0: no limit). */
static inline void futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(timeout_ns / 1000000000u),
		.tv_nsec = (long)(timeout_ns % 1000000000u),
	};
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout_ns ? &ts : NULL, NULL, 0);
	errno = saved;
}

/* Wake at most @n sleepers. */
static inline void futex_wake(uint32_t *word, int n)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);
	errno = saved;
}

static inline void futex_wake_all(uint32_t *word)
{
	futex_wake(word, INT_MAX);
}

/* One sleeper on @word, if that is @seen, sleeps on @other from now on.  False: there was none, or it is not. */
static inline bool futex_requeue(uint32_t *word, uint32_t seen, uint32_t *other)
{
	int saved = errno;
	long n = syscall(SYS_futex, word, FUTEX_CMP_REQUEUE, 0, 1, other, seen);

	errno = saved;
	return n == 1;
}

/*
 * Something that sleepers on @event wait for has happened.  Dekker: who sleeps counts itself in @sleepers, reads
 * @event, looks whether it has happened, and only then waits.
 */
static inline void futex_post(uint32_t *event, const uint32_t *sleepers)
{
	__atomic_fetch_add(event, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(sleepers, __ATOMIC_SEQ_CST))
		futex_wake_all(event);
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

/* Full barrier. The thread sanitizer knows no fences, but a read-modify-write is as strong. */
static inline void full_barrier(void)
{
#ifdef __SANITIZE_THREAD__
	uint32_t dummy = 0;

	__atomic_fetch_add(&dummy, 1, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <ucontext.h>

#include "steps.h"

#if KIT_STEPS

#define TRAP_FLAG	0x100	/* of the flags register */

/* of the thread that is counted; its signal handler's, too */
static _Thread_local volatile uint64_t counted;
static _Thread_local volatile greg_t next;	/* instruction */
static _Thread_local volatile unsigned int paused;
static struct sigaction before;
static uint64_t empty;		/* what is counted of nothing */
/* the linker's: from where to where KIT_UNCOUNTED functions are */
extern const char __start_kit_uncounted[], __stop_kit_uncounted[];

static bool is_counted(greg_t at)
{
	return !paused && (at < (greg_t)(uintptr_t)__start_kit_uncounted || at >= (greg_t)(uintptr_t)__stop_kit_uncounted);
}

/* An instruction that repeats itself traps each time. */
static void trapped(int sig, siginfo_t *info, void *context)
{
	greg_t at = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

	if (at != next && is_counted(at))
		counted++;
	next = at;
}

/* The red zone is the caller's: nothing is pushed there. */
static inline __attribute__((always_inline)) void trap_on(void)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\torq %0, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp"
			 : : "i"(TRAP_FLAG) : "memory", "cc");
}

static inline __attribute__((always_inline)) void trap_off(void)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\tandq %0, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp"
			 : : "i"(~TRAP_FLAG) : "memory", "cc");
}

void kit_steps_begin(void)
{
	struct sigaction sa = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO };

	sigaction(SIGTRAP, &sa, &before);
	counted = 0;
	trap_on();
}

static uint64_t stop(void)
{
	trap_off();
	sigaction(SIGTRAP, &before, NULL);
	return counted;
}

uint64_t kit_steps_end(void)
{
	uint64_t n = stop();

	if (!empty) {
		kit_steps_begin();
		empty = stop();
	}
	return n > empty ? n - empty : 0;
}

KIT_UNCOUNTED void kit_steps_pause(void)
{
	paused++;
}

KIT_UNCOUNTED void kit_steps_resume(void)
{
	paused--;
}

#else

void kit_steps_pause(void)
{
}

void kit_steps_resume(void)
{
}

#endif

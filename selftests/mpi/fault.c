// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "fault.h"

#include <execinfo.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define FRAMES	40

static const struct {
	int sig;
	const char *name;
	bool again;		/* who goes on where it came has it again, with its address */
} faults[] = {
	{ SIGSEGV, "SIGSEGV", true }, { SIGBUS, "SIGBUS", true }, { SIGFPE, "SIGFPE", true }, { SIGILL, "SIGILL", true },
	{ SIGTRAP, "SIGTRAP", false }, { SIGSYS, "SIGSYS", false }, { SIGABRT, "SIGABRT", false },
};

#define NFAULTS (sizeof(faults) / sizeof(faults[0]))

static struct sigaction before[NFAULTS];
static void (*tell_where)(void);
static _Thread_local bool spoke;

static char *put(char *to, const char *text)
{
	size_t n = strlen(text);

	memcpy(to, text, n);
	return to + n;
}

static char *put_number(char *to, uintptr_t value, unsigned int base)
{
	char digits[24], *p = digits + sizeof(digits);

	do
		*--p = "0123456789abcdef"[value % base];
	while (value /= base);
	memcpy(to, p, (size_t)(digits + sizeof(digits) - p));
	return to + (digits + sizeof(digits) - p);
}

/* Nothing but calls that are allowed in a signal handler. */
static void speak(int sig, const char *name, const siginfo_t *info)
{
	char line[128], thread[17] = "", *p = line;
	void *frames[FRAMES];

	prctl(PR_GET_NAME, thread);
	p = put(p, "# fault: signal ");
	p = put_number(p, (uintptr_t)sig, 10);
	p = put(p, " (");
	p = put(p, name);
	p = put(p, "), thread ");
	p = put(p, thread);
	if (info->si_code > 0) {
		p = put(p, ", address 0x");
		p = put_number(p, (uintptr_t)info->si_addr, 16);
	} else {
		p = put(p, ", sent by pid ");
		p = put_number(p, (uintptr_t)info->si_pid, 10);
	}
	p = put(p, "\n");
	if (write(2, line, (size_t)(p - line)) < 0)
		return;
	if (tell_where)
		tell_where();
	backtrace_symbols_fd(frames, backtrace(frames, FRAMES), 2);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	const struct sigaction by_default = { .sa_handler = SIG_DFL };

	(void)context;
	for (size_t i = 0; i < NFAULTS; i++) {
		if (faults[i].sig != sig)
			continue;
		/* a handler that was there before may come back to this one */
		sigaction(sig, spoke ? &by_default : &before[i], NULL);
		if (!spoke) {
			spoke = true;
			speak(sig, faults[i].name, info);
		}
		if (info->si_code <= 0 || !faults[i].again)
			raise(sig);
	}
}

void fault_install(void (*where)(void))
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, old;
	void *frame;

	tell_where = where;
	/* what it loads is there when there is no time for that */
	backtrace(&frame, 1);
	for (size_t i = 0; i < NFAULTS; i++) {
		sigaction(faults[i].sig, &sa, &old);
		if (!(old.sa_flags & SA_SIGINFO) || old.sa_sigaction != on_fault)
			before[i] = old;
	}
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * silence - a daemon that does not answer: is it dead?
 *
 * It is when it has said nothing for CLIENT_CTRL_TIMEOUT_MS in which it could have answered, and this process heard it.  A job may be
 * stopped for hours, or its machine, and the daemon with it; who goes on first must not take that for silence.  And on a machine
 * that is full of processes which poll, a daemon may get no processor for longer than that.
 */
#ifndef CLIENT_SILENCE_H
#define CLIENT_SILENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct silence {
	int sock;			/* where it answers */
	pid_t daemon;			/* 0: not known */
	uint64_t waited, looked;	/* ns */
	bool watched;			/* since the first look: */
	uint64_t ran, main_ran;		/* time of processors that it, and its first thread, had got then, in clock ticks */
};

/* From @now on, of clock_ns(), at @sock.  @daemon: its process as seen from here, 0: not known. */
void silence_begin(struct silence *q, int sock, pid_t daemon, uint64_t now);
/*
 * It still lasts; at most CLIENT_LOOK_NS count since the last look.  True: the daemon is taken for dead.  It is not if there is an answer
 * now, which the caller finds when it looks again.
 */
bool silence_ends_it(struct silence *q, uint64_t now);

#endif

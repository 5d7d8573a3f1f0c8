/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * notifyq.h - queues of notifications in a window's control segment (struct prog_win_notify), one for each origin.
 *
 * An origin's queue has one producer at a time and one consumer, the owner of the segment; who is several threads takes a lock
 * of its own.  Nothing waits here.  What is read from the segment may be anything: no index leaves the queue.  There is
 * nothing that a producer could leave half done: one that is killed has published a notification, or has not.  All
 * functions take a view that has queues (wc->notify).
 */
#ifndef PROGBASE_NOTIFYQ_H
#define PROGBASE_NOTIFYQ_H

#include <stdbool.h>
#include <stdint.h>

#include <libprogbase/winctl.h>

/* ---- producers: the origin itself, or a worker of the owner's node */

/*
 * The next notification of @origin, after all of its stores before.  False: the queue is full.  After true the caller
 * wakes who waits (winctl_wake()); of a window whose owner takes none any more, it is counted and forgotten.
 */
bool notifyq_push(struct winctl *wc, uint32_t origin, uint32_t tag);
/* The same; after false the owner will wake @worker when there is room. */
bool notifyq_push_or_stop(struct winctl *wc, uint32_t origin, uint32_t tag, unsigned int worker);

/* ---- the consumer */

/* The oldest one of @origin, which stays; false: there is none. */
bool notifyq_peek(const struct winctl *wc, uint32_t origin, uint32_t *tag);
/* It is taken. */
void notifyq_drop(struct winctl *wc, uint32_t origin);
/* Some were taken: the worker + 1 that waited for it and must be woken, or 0. */
unsigned int notifyq_resume(struct winctl *wc, uint32_t origin);
/* Bit i: origin 64 * @word + i may have given some since it was asked last. */
uint64_t notifyq_some(struct winctl *wc, uint32_t word);
/*
 * From now on nobody takes any.  @kick is called with each worker that may be waiting, and is to wake it.
 */
void notifyq_discard(struct winctl *wc, void (*kick)(void *arg, unsigned int worker), void *arg);
/* How many are in the queues. */
uint64_t notifyq_left(const struct winctl *wc);
/* As new; nobody else may use the queues now. */
void notifyq_reset(struct winctl *wc);

#endif

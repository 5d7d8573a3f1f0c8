/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * colls.h - what the rest of the library calls of collectives (coll.c).
 */
#ifndef CLIENT_COLLS_H
#define CLIENT_COLLS_H

struct fork_ops;
struct prog_win;

/* @w, a message context, closes: the thread ends; collectives that have not ended never will. */
void colls_close(struct prog_win *w);
/* The daemon has freed it. */
void colls_free(struct prog_win *w);
extern const struct fork_ops coll_fork_ops;

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* refusal: what a client hears that is not served here; its library starts a private daemon then. */
#ifndef PROG_REFUSAL_H
#define PROG_REFUSAL_H

/*
 * Tells the client at @fd, of which nothing has to have been read, why.  Never waits; the descriptor stays the caller's.  0 or
 * -errno: it cannot be told.
 */
int refusal_send(int fd, const char *why);

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* usock: SOCK_SEQPACKET sockets in the file system. */
#ifndef PROG_USOCK_H
#define PROG_USOCK_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * A non-blocking socket that listens at @path, which gets @mode: its descriptor, or -errno; -EADDRINUSE: somebody serves there,
 * -EEXIST: something else than a socket stands there, -ENAMETOOLONG.  It takes the place of one that nobody answers at, as a
 * process that was killed leaves it, when it is ready: who waits there sees one of them at any time.  Its name until then has
 * another last character.
 */
int usock_listen(const char *path, mode_t mode, int backlog);

/* Is there a socket at @path, whether or not somebody serves it, that root or this process's user made?  Any thread. */
bool usock_stands(const char *path);

#endif

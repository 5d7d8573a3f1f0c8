/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* scm: descriptors that go with a message of a Unix socket (SCM_RIGHTS). */
#ifndef PROGBASE_SCM_H
#define PROGBASE_SCM_H

#include <sys/socket.h>

/* Control data of a message with up to @n descriptors. */
#define SCM_BUF(n) union { struct cmsghdr align; char buf[CMSG_SPACE((n) * sizeof(int))]; }

/* @mh is sent with @n descriptors; 0: with none.  @buf: of an SCM_BUF(@n) or a larger one; lives until it was sent. */
void scm_attach(struct msghdr *mh, char *buf, const int *fds, unsigned int n);
/*
 * The descriptors that @mh was received with: the first @max go to @fds, further ones are closed.  Returns how many
 * are in @fds.
 */
unsigned int scm_take(struct msghdr *mh, int *fds, unsigned int max);

#endif

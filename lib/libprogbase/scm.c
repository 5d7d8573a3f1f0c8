// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "scm.h"

#include <string.h>
#include <unistd.h>

void scm_attach(struct msghdr *mh, char *buf, const int *fds, unsigned int n)
{
	struct cmsghdr *c;

	mh->msg_control = NULL;
	mh->msg_controllen = 0;
	if (!n)
		return;
	mh->msg_control = buf;
	mh->msg_controllen = CMSG_SPACE(n * sizeof(int));
	/* what pads it is sent, too */
	memset(buf, 0, mh->msg_controllen);
	c = CMSG_FIRSTHDR(mh);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
}

unsigned int scm_take(struct msghdr *mh, int *fds, unsigned int max)
{
	unsigned int n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		size_t came;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		came = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < came; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (n < max)
				fds[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

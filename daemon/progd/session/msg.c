// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Messages of the control socket, and the descriptors that come and go with them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <libprogbase/scm.h>

#include "session/priv.h"

#define TEXT_OF(x)	#x
#define TEXT(x)		TEXT_OF(x)

void session_msg_close_fds(struct msg *m)
{
	while (m->nfds) {
		int fd = m->fds[--m->nfds];

		if (fd >= 0)
			close(fd);
	}
}

int session_msg_take_fd(struct msg *m, unsigned int i)
{
	int fd = i < m->nfds ? m->fds[i] : -1;

	if (i < m->nfds)
		m->fds[i] = -1;
	return fd;
}

int session_msg_receive(int fd, struct msg *m)
{
	SCM_BUF(MAX_FDS) ctl;
	struct iovec iov = { .iov_base = m->bytes, .iov_len = sizeof(m->bytes) };
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
		.msg_controllen = sizeof(ctl.buf),
	};
	ssize_t n;

	memset(m, 0, sizeof(*m));
	do {
		n = recvmsg(fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -EAGAIN : errno == ECONNRESET ? 0 : -errno;
	m->nfds = scm_take(&mh, m->fds, MAX_FDS);
	m->size = n;
	if (!n) {
		session_msg_close_fds(m);
		return 0;
	}
	if (mh.msg_flags & MSG_TRUNC) {
		session_msg_close_fds(m);
		return -EMSGSIZE;
	}
	/* the message itself is whole, so this request alone fails */
	if (mh.msg_flags & MSG_CTRUNC) {
		m->fd_err = m->nfds == MAX_FDS ? -EPROTO : -EMFILE;
		m->fd_why = m->nfds == MAX_FDS ? "more than " TEXT(MAX_FDS) " descriptors" :
			    "the daemon has no descriptor left (its limit of open files, LimitNOFILE)";
		session_msg_close_fds(m);
	}
	return 1;
}

int session_msg_reply(struct session *s, void *msg, size_t size, uint16_t type, int status, const int *fds,
		      unsigned int nfds)
{
	SCM_BUF(PROG_MAX_WORKERS + 1) ctl;
	struct prog_ctrl_hdr *h = msg;
	struct iovec iov = { .iov_base = msg, .iov_len = size };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	h->type = type;
	h->size = size;
	h->status = status;
	scm_attach(&mh, ctl.buf, fds, nfds);
	do {
		n = sendmsg(s->fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)size ? 0 : n < 0 ? -errno : -EIO;
}

void session_msg_reason(char *to, const char *why)
{
	snprintf(to, PROG_REASON_SIZE, "%s", why ? why : "");
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* fake_priv.h - what the files of the double share: fake.c sessions, windows and operations, fake_msg.c messages. */
#ifndef SELFTESTS_KIT_FAKE_PRIV_H
#define SELFTESTS_KIT_FAKE_PRIV_H

#include <libprogbase/apply.h>
#include <libprogbase/winctl.h>

#include "fake.h"

#define FAKE_SESSIONS	16
#define FAKE_WINS	32
#define FAKE_REGIONS	64

struct fake_stream {
	uint64_t acked, seen;
	uint32_t queue[4096];		/* slots that arrived; consumed up to `done' */
	uint32_t in, done;
	bool lock_waits;
	struct dtype *dtypes[256];
};

struct fake_win {
	bool used;
	struct prog_ctrl_win_create msg;
	int ctl_fd, mem_fd;
	struct winctl wc;
	char *mem;			/* SHARED */
	uint32_t node_of[FAKE_RANKS];
	struct fake_stream streams[FAKE_RANKS];
	struct fake_stream *subs[PROG_MAX_WORKERS];	/* [FAKE_RANKS], of rings that had any; else NULL */
};

struct fake_session {
	int sock;
	uint32_t id;
	pid_t pid;
	char *seg;
	size_t seg_size;
	struct prog_session_hdr *hdr;
	uint32_t node;
	uint32_t head[PROG_MAX_WORKERS];
	struct fake_win win[FAKE_WINS];
	struct { char *mem; size_t size; int fd; } region[FAKE_REGIONS];
	uint32_t helper_tail;
	struct fake_win *space;
	uint32_t msg_head[PROG_MAX_WORKERS];
	uint8_t msg[PROG_P2P_SLOTS];	/* FAKE_MSG_* */
};

enum { FAKE_MSG_NONE, FAKE_MSG_WAITS, FAKE_MSG_MATCHED };

extern struct fake_session fake_sessions[FAKE_SESSIONS];

struct prog_p2p_area *fake_area(struct fake_session *s);
struct prog_sq *fake_msg_ring(struct fake_session *s, uint32_t worker);
int fake_origin(struct fake_session *s, const struct prog_sqe *e, char *buf, bool write);
int fake_job(struct fake_session *s, struct prog_helper_job job);
struct fake_win *fake_find(uint64_t key, uint32_t rank, struct fake_session **owner);
/* What all sessions have in their rings of messages; true when something was done. */
bool fake_msgs(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * priv.h - what the files of session/ share.  Each calls those above it only:
 *
 *	msg.c		messages of the control socket
 *	tell.c		the workers
 *	unlock.c	locks of those that are gone
 *	colls.c		what clients say of their collectives
 *	hello.c		a client attaches
 *	wins.c		its windows and regions
 *	session.c	its connection, its end
 */
#ifndef PROGD_SESSION_PRIV_H
#define PROGD_SESSION_PRIV_H

#include <pthread.h>

#include <utlist.h>

#include "session/session.h"

#define MAX_WINS	16384u
#define MAX_REGIONS	16384u
#define MAX_FDS		8	/* in one message; the kernel closes more */
#define MSG_MAX		1024
#define SESSION_LINES	200u	/* of each kind in 5 s: several jobs start at once */

struct session {
	struct sessions *all;
	int fd;
	struct loop_watch *watch;
	struct loop_timer hello_timer;
	pid_t pid;
	int pidfd;			/* with `process' */
	struct loop_watch *process;	/* as long as pid is the client's; NULL: that is not known */
	uid_t uid;
	bool attached;			/* HELLO done */
	uint32_t id;
	uint32_t rank;
	struct rma_client c;		/* given to the workers */
	struct rndv_client n;		/* area NULL: it has no messages */
	/* [worker] by which it wakes them; of nobody else */
	int wake_fd[PROG_MAX_WORKERS];
	struct loop_watch *wake[PROG_MAX_WORKERS];
	unsigned int nwakes;
	const struct prog_coll_area *colls;	/* in its segment; NULL: it says nothing of collectives */
	struct stats_colls counted;	/* of these, for the job */
	struct rndv_space *space;	/* its message context; NULL: none */
	struct win_device *device;	/* of its pinned regions; NULL: none */
	uint64_t pinned;		/* their bytes, as registered */
	uint32_t space_slot;
	uint32_t nwins, nregions;
	uint32_t win_hint, region_hint;	/* lowest slot that may be free */
	struct session *next, *prev;
};

struct bad {
	struct bad *next;
	uint32_t id;			/* the session may have ended since: looked up by id */
	char why[PROG_REASON_SIZE];
};

struct sessions {
	struct session_opts o;
	int fd;
	struct loop_watch *watch;
	struct session *list;
	bool ending;			/* the daemon ends; the clients live on */
	uint32_t next_id;
	struct session_counts counts;
	struct win *unlocks;		/* freed, and their owners' locks could not be released yet; held */
	struct loop_timer unlock_timer;
	int bad_fd;			/* eventfd: bad_list is not empty */
	struct loop_watch *bad_watch;
	pthread_mutex_t lock;		/* bad_list */
	struct bad *bad_list;
};

/* ---- msg.c ---------------------------------------------------------------------------------- */

struct msg {
	union {
		struct prog_ctrl_hdr hdr;
		struct prog_ctrl_hello hello;
		struct prog_ctrl_win_create win_create;
		struct prog_ctrl_win_peer win_peer;
		struct prog_ctrl_slot slot;
		struct prog_ctrl_region_add region_add;
		struct prog_ctrl_note note;
		struct prog_ctrl_pin_add pin_add;
		uint8_t bytes[MSG_MAX];
	};
	size_t size;
	int fds[MAX_FDS];
	unsigned int nfds;
	int fd_err;		/* not all descriptors came, and the others are closed */
	const char *fd_why;
};

void session_msg_close_fds(struct msg *m);
/* Give descriptor @i away; -1 if there is none. */
int session_msg_take_fd(struct msg *m, unsigned int i);
/* 1: a message; 0: the client is gone; -EAGAIN; else the connection is of no use. */
int session_msg_receive(int fd, struct msg *m);
/* 0 or -errno: a client that does not read its replies is not served any more. */
int session_msg_reply(struct session *s, void *msg, size_t size, uint16_t type, int status, const int *fds,
		      unsigned int nfds);
/* PROG_REASON_SIZE bytes at @to. */
void session_msg_reason(char *to, const char *why);

/* ---- tell.c: all workers; 0 or the first error ---------------------------------------------- */

int session_tell_attach(struct session *s);
void session_tell_detach(struct session *s);
void session_tell_win_gone(struct sessions *all, struct win *w);
void session_tell_region_gone(struct sessions *all, const struct win_map *map);
void session_tell_keys_end(struct sessions *all, struct win *w);
void session_tell_job_gone(struct sessions *all, struct win_job *job);
int session_tell_space(struct session *s);
void session_tell_space_gone(struct session *s);
/* Wake some. */
void session_tell_kick(struct sessions *all, uint32_t mask);

/* ---- unlock.c ------------------------------------------------------------------------------- */

/*
 * @w is about to be freed.  As win_owner_gone(), and it comes back to what could not be done, also after the session's end.
 * Once @left has SESSION_UNLOCK_STEPS, that is all of it: the end of a process that is many ranks of a window would cost the
 * square of their number, and in the loop's next rounds they are no ranks of it any more.
 */
#define SESSION_UNLOCK_STEPS	65536u
void session_unlock_win(struct sessions *all, struct win *w, bool dead, struct win_left *left);
/* Nobody waits any more. */
void session_unlock_end(struct sessions *all);

/* ---- colls.c -------------------------------------------------------------------------------- */

/* What the client has counted since the last time is its job's; also as the last thing before it goes. */
void session_count_colls(struct session *s);

/* ---- hello.c -------------------------------------------------------------------------------- */

/* The number of clients changed, or may have. */
void session_count(struct sessions *all);
struct session *session_by_id(struct sessions *all, uint32_t id);
/* Segment, tables and helper, when no worker has them any more. */
void session_client_free(struct session *s);
/* A request is answered: 0, or the connection must end. */
int session_hello(struct session *s, struct msg *m);

/* ---- wins.c: requests, as above ------------------------------------------------------------- */

int session_win_create(struct session *s, struct msg *m);
int session_win_peer(struct session *s, struct msg *m);
int session_win_free(struct session *s, struct msg *m);
int session_win_keys(struct session *s, struct msg *m);
int session_region_add(struct session *s, struct msg *m);
int session_region_del(struct session *s, struct msg *m);
int session_pin_device(struct session *s, struct msg *m);
int session_pin_add(struct session *s, struct msg *m);
/* What is left of windows and regions when the session ends; messages end first. */
void session_space_end(struct session *s);
void session_wins_end(struct session *s);

#endif

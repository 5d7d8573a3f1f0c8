// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Engines that say anything to their supervisor, users who come and go, and processes that say to be engines;
 * the supervisor is started anew meanwhile, and time passes.
 *
 *	users -- engines.c -- channels -- engines of two hostile users, and of one who keeps to the protocol
 *
 * A connection goes to engines of its user only, and is closed only when it was taken or its user has been told
 * why not. All of the honest user's are taken, in order, also those that an engine had not confirmed when it
 * ended. Processes, records and ports are this file's: nothing is started, and nobody killed.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kit/again.h>
#include <kit/peer.h>
#include <libprogbase/log.h>
#include <libprogbase/scm.h>
#include <wire/super.h>

#include "engines.h"
#include "record.h"
#include "spawn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define USERS		3u		/* the first is honest */
#define MAX_CRASHES	3u		/* of an input: one more soon after, and the user is refused for a while */
#define CONNS		256u		/* of an input */
#define FIRST_UID	1001u
#define FIRST_PID	0x40000000	/* the kernel gives none such */
#define FILES		1024		/* that the process never has open at once */

struct user {
	uid_t uid;
	pid_t pid;			/* of its engine */
	bool lives;
	int sock, pipe;			/* the engine's half of the channel; -1 */
	bool ready;			/* on this channel */
	uint64_t last;			/* connection that the engine was given */
	unsigned int blind;		/* messages that may have been TAKEN of what it has not read */
	struct record record;
	bool recorded;
};

struct came {
	ino_t ino;
	uid_t uid;
	int far;
	bool client, taken, closed;	/* client: or of the control socket; else of who says to be an engine */
};

static struct user users[USERS];
static struct came came[CONNS];
static unsigned int ncame;
static pid_t last_pid;
static struct loop *loop;
static struct engines *engines;
static struct subuids subuids;
static unsigned int crashes;
static bool ends;			/* the supervisor: it lets go of all */

static void demand(bool ok)
{
	if (!ok)
		abort();
}

static struct user *user_of(uid_t uid)
{
	demand(uid >= FIRST_UID && uid < FIRST_UID + USERS);
	return &users[uid - FIRST_UID];
}

static struct came *came_of(int fd)
{
	struct stat st;

	demand(!fstat(fd, &st));
	for (unsigned int i = 0; i < ncame; i++)
		if (came[i].ino == st.st_ino)
			return &came[i];
	abort();
}

static void hang_up(struct user *u)
{
	if (u->sock >= 0)
		close(u->sock);
	if (u->pipe >= 0)
		close(u->pipe);
	u->sock = u->pipe = -1;
	u->ready = false;
}

/* ---- what the supervisor has of the system ---- */

uid_t geteuid(void)
{
	return 0;
}

uint64_t proc_began(pid_t pid)
{
	for (unsigned int i = 0; i < USERS; i++)
		if (users[i].lives && users[i].pid == pid)
			return pid;
	return 0;
}

uint64_t proc_realtime_ns(pid_t pid)
{
	return 0;
}

unsigned int proc_no_realtime(pid_t pid)
{
	return 0;
}

int record_write(int dir, const struct record *r)
{
	user_of(r->uid)->record = *r;
	user_of(r->uid)->recorded = true;
	return 0;
}

void record_remove(int dir, uid_t uid)
{
	user_of(uid)->recorded = false;
}

void record_each(int dir, void (*fn)(void *ctx, const struct record *r), void *ctx)
{
	for (unsigned int i = 0; i < USERS; i++)
		if (users[i].recorded)
			fn(ctx, &users[i].record);
}

int ports_open(struct ports *p, uid_t uid, struct ports_set *set, char *err)
{
	demand(!set->n);
	return 0;
}

void ports_claim(struct ports *p, uid_t uid, struct ports_set *set)
{
}

void ports_retire(struct ports *p, struct ports_set *set)
{
}

void ports_forget(struct ports_set *set)
{
}

/* Of a hostile user the one before is no more: the supervisor has put it down. */
pid_t spawn_engine(const struct spawn_opts *o)
{
	struct user *u = user_of(o->uid);

	demand(u != users || !u->lives);
	hang_up(u);
	u->sock = fcntl(o->sock, F_DUPFD_CLOEXEC, 0);
	u->pipe = fcntl(o->pipe, F_DUPFD_CLOEXEC, 0);
	demand(u->sock >= 0 && u->pipe >= 0);
	u->pid = ++last_pid;
	u->lives = true;
	u->last = 0;
	return u->pid;
}

void closer_add(struct closer *c, int fd, uid_t uid)
{
	struct came *m = came_of(fd);
	char byte;

	demand(m->uid == uid && !m->closed);
	if (m->client && !m->taken && !ends && recv(m->far, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
		/* the engine has said so of what it had not read yet */
		demand(user_of(uid)->blind);
		user_of(uid)->blind--;
	}
	m->closed = true;
	close(fd);
}

/* ---- what engines do ---- */

static void say(struct user *u, uint16_t type, uint64_t id)
{
	struct super_msg m = { .type = type, .value = SUPER_VERSION, .id = id };

	if (u->pipe >= 0 && write(u->pipe, &m, sizeof(m)) < 0)
		hang_up(u);
}

/* One message, with what comes with it: false: there is none. */
static bool hear(struct user *u, int sock, struct super_msg *m, int fds[2], unsigned int *nfds)
{
	SCM_BUF(2) ctl;
	struct iovec iov = { .iov_base = m, .iov_len = sizeof(*m) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			     .msg_controllen = sizeof(ctl.buf) };

	if (sock < 0 || recvmsg(sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != sizeof(*m))
		return false;
	*nfds = scm_take(&mh, fds, 2);
	return true;
}

/* What the engine of @u is given is the user's own, and the next one.  False: there is nothing. */
static bool given(struct user *u, bool take)
{
	struct super_msg m;
	unsigned int nfds;
	struct came *c;
	int fds[2];

	if (!hear(u, u->sock, &m, fds, &nfds))
		return false;
	if (m.type == SUPER_BYE) {
		u->lives = false;
		hang_up(u);
	}
	demand(nfds == (m.type == SUPER_CLIENT || m.type == SUPER_CONTROL));
	if (!nfds)
		return true;
	c = came_of(fds[0]);
	demand(c->uid == u->uid && !c->taken);
	close(fds[0]);
	/* of a hostile one it may be closed: he has said blindly that it was taken */
	demand(u != users || (m.id == u->last + 1 && !c->closed));
	u->last = m.id;
	if (take) {
		c->taken = true;
		say(u, SUPER_TAKEN, m.id);
	}
	return true;
}

static void back(struct user *u, pid_t pid)
{
	struct ucred cred = { .pid = pid, .uid = u->uid, .gid = u->uid };
	struct super_msg m;
	unsigned int nfds;
	struct stat st;
	int sv[2], fds[2];

	if (ncame == CONNS)
		return;
	demand(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) && !fstat(sv[0], &st));
	came[ncame++] = (struct came){ .ino = st.st_ino, .uid = u->uid, .far = sv[1] };
	engines_back(engines, sv[0], &cred);
	if (!hear(u, sv[1], &m, fds, &nfds))
		return;
	demand(m.type == SUPER_CHANNEL && nfds == 2 && u->lives && pid == u->pid);
	hang_up(u);
	u->sock = fds[0];
	u->pipe = fds[1];
}

static void run(void)
{
	while (loop_run_once(loop, 0) > 0)
		;
}

static void serve_honest(bool take)
{
	struct user *u = &users[0];

	for (int i = 0; i < 3; i++) {
		run();
		if (u->lives && u->sock >= 0 && !u->ready) {
			say(u, SUPER_READY, u->last);
			u->ready = true;
			run();
		}
		while (given(u, take))
			run();
	}
}

static void come(struct user *u, bool control)
{
	struct ucred cred = { .pid = 1, .uid = u->uid, .gid = u->uid };
	struct stat st;
	int sv[2];

	if (ncame == CONNS)
		return;
	demand(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) && !fstat(sv[0], &st));
	came[ncame++] = (struct came){ .ino = st.st_ino, .uid = u->uid, .far = sv[1], .client = true };
	(control ? engines_control : engines_client)(engines, sv[0], &cred);
}

/* The honest user's engine ends with a connection that it has not confirmed: the next one is given it. */
static void crash(void)
{
	struct user *u = &users[0];

	if (crashes == MAX_CRASHES)
		return;
	come(u, false);
	serve_honest(false);
	if (!u->lives)
		return;
	crashes++;
	u->lives = false;
	hang_up(u);
	engines_reaped(engines, u->pid, SIGKILL);
}

/* ---- the supervisor ---- */

static void begin(void)
{
	struct engines_opts o = { .loop = loop, .progd = "progd", .records = -1, .cgroups = -1,
				  .subuids = &subuids };

	demand(!engines_new(&o, &engines));
}

static void end(void)
{
	ends = true;
	engines_free(engines);
	ends = false;
	for (unsigned int i = 0; i < USERS; i++)
		hang_up(&users[i]);
}

static void act(struct kit_bytes *in)
{
	struct user *u = &users[1 + kit_u8(in) % (USERS - 1)];
	uint8_t what = kit_u8(in), bytes[3 * sizeof(struct super_msg)];
	size_t n = 0;

	switch (what % 16) {
	case 0:
	case 1:
		come(u, what & 16);
		break;
	case 2:
		if (what & 16)
			crash();
		else
			come(&users[0], false);
		break;
	case 3:
	case 4:
		say(u, SUPER_READY, kit_number(in));
		break;
	case 5:
		given(u, what & 16);
		break;
	case 6:
		u->blind++;
		say(u, SUPER_TAKEN, what & 16 ? u->last : kit_number(in));
		break;
	case 7:
		for (unsigned int i = 0; i < 1 + (what >> 4) * 8u; i++)
			say(u, SUPER_LEAVE, what & 16 ? u->last : kit_number(in));
		break;
	case 8:
		while (n < sizeof(bytes) && in->left)
			bytes[n++] = kit_u8(in);
		u->blind += n / sizeof(struct super_msg);
		if (u->pipe >= 0 && n && write(u->pipe, bytes, n) < 0)
			hang_up(u);
		break;
	case 9:
		if (u->sock >= 0)
			demand(send(u->sock, &what, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0);
		break;
	case 10:
		hang_up(u);
		break;
	case 11:
		u->lives = false;
		hang_up(u);
		engines_reaped(engines, u->pid, kit_u8(in));
		break;
	case 12:
		back(u, what & 16 ? u->pid : users[kit_u8(in) % USERS].pid);
		break;
	case 13:
		end();
		begin();
		back(&users[0], users[0].pid);
		break;
	case 14:
		(what & 16 ? engines_reload : engines_drain)(engines);
		break;
	default:
		kit_pass(kit_number(in) % 200 * 100000000ull);
	}
	if (what & 32 && users[0].lives)
		say(&users[0], SUPER_LEAVE, users[0].last);
	serve_honest(true);
}

static unsigned int files(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < FILES; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kit_bytes in = { data, size };
	unsigned int before;

	if (!loop) {
		kit_again_init();
		log_set_level(PROG_LOG_ERROR - 1);
		signal(SIGPIPE, SIG_IGN);
		demand(!loop_new(LOOP_EPOLL, &loop));
	}
	kit_again();
	before = files();
	last_pid = FIRST_PID;
	ncame = crashes = 0;
	for (unsigned int i = 0; i < USERS; i++)
		users[i] = (struct user){ .uid = FIRST_UID + i, .sock = -1, .pipe = -1 };
	begin();
	while (in.left && ncame + 1 < CONNS)
		act(&in);
	come(&users[0], false);
	serve_honest(true);
	for (unsigned int i = 0; i < ncame; i++)
		demand(came[i].uid != users[0].uid || !came[i].client || (came[i].taken && came[i].closed));
	end();
	for (unsigned int i = 0; i < ncame; i++) {
		demand(came[i].closed);
		close(came[i].far);
	}
	run();
	demand(files() == before);
	return 0;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "engines_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

#include <libprogbase/log.h>
#include <libprogbase/refusal.h>
#include <libprogbase/scm.h>
#include <wire/super.h>

#include "cgroup.h"
#include "proc.h"
#include "spawn.h"

#define SEC		1000000000ull
#define SLICE_NS	(SEC / 2)	/* patience has an end after so many of them: */
#define START_SLICES	20u		/* for the first READY */
#define BACK_SLICES	10u		/* for coming back to a supervisor that was started anew */
#define HEAR_NS		(SEC / 20)	/* and this, to hear what was said */
#define STARTS		5u		/* one after the other, then the user is refused, */
#define TRY_NS		(10 * SEC)	/* each within this time of the one before */
#define MAX_WAITING	4096u		/* connections of a user that no engine has taken; fewer where few files may be open */
#define FILES_PART	8u		/* the most that they take of those */
#define GIVE_NS		(SEC / 20)	/* until a connection that could not be given is tried again */
#define MAX_LEAVES	64u		/* in vain, one after the other: one crosses a connection, which it takes then */
#define MAX_ENGINES	1024u
#define SWEEP_NS	(SEC / 10)	/* until it is looked for empty cgroups; doubled each time */
#define SWEEP_MAX_NS	(64 * SEC)	/* the longest */

static void start(struct engine *e);

/* ---- connections that are not served ----------------------------------------------------------------------- */

/* Tell who is there why, without reading what he says. */
static void refuse(struct engines *all, int fd, bool control, uid_t uid, const char *why)
{
	char text[LISTEN_ERR + 64];
	int err = 0;

	prog_log_limited(PROG_LOG_WARN, "uid %u: refused: %s", (unsigned int)uid, why);
	snprintf(text, sizeof(text), "{\"ok\":false,\"error\":\"%s\"}", why);
	if (!control)
		err = refusal_send(fd, why);
	else if (send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		err = -errno;
	if (err)
		prog_log(PROG_LOG_DEBUG, "uid %u: cannot be told: %s", (unsigned int)uid, strerror(-err));
	closer_add(all->o.closer, fd, uid);
}

static void conn_free(struct engine *e, struct conn *c)
{
	DL_DELETE(e->conns, c);
	e->nconns--;
	e->given -= c->id != 0;
	free(c);
}

static void refuse_all(struct engine *e, const char *why)
{
	struct conn *c, *tmp;

	DL_FOREACH_SAFE(e->conns, c, tmp) {
		refuse(e->all, c->fd, c->control, e->uid, why);
		conn_free(e, c);
	}
}

/* ---- the table --------------------------------------------------------------------------------------------- */

static struct engine *find(struct engines *all, uid_t uid)
{
	struct engine *e;

	HASH_FIND(hh, all->table, &uid, sizeof(uid), e);
	return e;
}

static void engine_free(struct engine *e)
{
	HASH_DEL(e->all->table, e);
	free(e);
}

/* Users who have no engine, and have had none for a while; those who lost their real-time priority only if it must be. */
static void forget_old(struct engines *all, bool lost)
{
	struct engine *e, *tmp;

	HASH_ITER(hh, all->table, e, tmp)
		if (e->state == ENGINE_NONE && !e->nconns && loop_now() - e->tried_at > TRY_NS &&
		    (lost || engines_may_realtime(e)))
			engine_free(e);
}

static struct engine *get(struct engines *all, uid_t uid)
{
	struct engine *e = find(all, uid);

	if (e)
		return e;
	if (HASH_COUNT(all->table) >= MAX_ENGINES)
		forget_old(all, false);
	if (HASH_COUNT(all->table) >= MAX_ENGINES)
		forget_old(all, true);
	if (HASH_COUNT(all->table) >= MAX_ENGINES)
		return NULL;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->all = all;
	e->uid = e->gid = uid;
	e->sock = e->pipe = e->pidfd = -1;
	HASH_ADD(hh, all->table, uid, sizeof(e->uid), e);
	if (e->hh.tbl)
		return e;
	free(e);
	return NULL;
}

/* ---- channel ----------------------------------------------------------------------------------------------- */

static int say(struct engine *e, uint16_t type, uint64_t id, int fd)
{
	struct super_msg m = { .type = type, .id = id };
	SCM_BUF(1) ctl;
	struct iovec iov = { .iov_base = &m, .iov_len = sizeof(m) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	scm_attach(&mh, ctl.buf, &fd, fd >= 0);
	do {
		n = sendmsg(e->sock, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n == sizeof(m) ? 0 : n < 0 ? -errno : -EIO;
}

static void give(struct engine *e);

static void on_give(void *ctx)
{
	give(ctx);
}

/* As many as the channel holds. */
static void give(struct engine *e)
{
	struct conn *c;
	int err;

	if (e->state != ENGINE_UP)
		return;
	DL_FOREACH(e->conns, c) {
		if (c->id)
			continue;
		if (e->given == SUPER_IN_FLIGHT)
			return;
		err = say(e, c->control ? SUPER_CONTROL : SUPER_CLIENT, e->last_id + 1, c->fd);
		if (err) {
			/* an engine that ends is told by its pipe; else there is no memory, or too much is under way, now */
			if (err != -EPIPE && err != -ECONNRESET)
				loop_timer_set(e->all->o.loop, &e->timer, GIVE_NS, on_give, e);
			return;
		}
		c->id = ++e->last_id;
		e->given++;
	}
}

static void close_channel(struct engine *e)
{
	loop_unwatch(e->watch);
	e->watch = NULL;
	if (e->sock >= 0)
		close(e->sock);
	if (e->pipe >= 0)
		close(e->pipe);
	e->sock = e->pipe = -1;
}

/* Who has told us that he ends, or closed the channel, is in his cgroup for a moment yet. */
static void on_sweep(void *ctx)
{
	struct engines *all = ctx;
	struct engine *e, *tmp;
	unsigned int known = 0;

	HASH_ITER(hh, all->table, e, tmp)
		known += e->state != ENGINE_NONE;
	if (cgroup_sweep(all->o.cgroups) <= known)
		return;
	all->sweep_ns = 2 * all->sweep_ns < SWEEP_MAX_NS ? 2 * all->sweep_ns : SWEEP_MAX_NS;
	loop_timer_set(all->o.loop, &all->sweep, all->sweep_ns, on_sweep, all);
}

static void sweep_soon(struct engines *all)
{
	if (all->o.cgroups < 0)
		return;
	all->sweep_ns = SWEEP_NS;
	loop_timer_set(all->o.loop, &all->sweep, SWEEP_NS, on_sweep, all);
}

/* The engine is no more, or not ours any more; what it has not taken is for the next one. */
static void gone(struct engine *e)
{
	struct conn *c;

	loop_timer_cancel(&e->timer);
	close_channel(e);
	if (e->pidfd >= 0)
		close(e->pidfd);
	e->pidfd = -1;
	ports_retire(e->all->o.ports, &e->ports);
	if (e->state != ENGINE_NONE)
		record_remove(e->all->o.records, e->uid);
	e->state = ENGINE_NONE;
	e->record = (struct record){ .uid = e->uid };
	e->reload = e->fair = false;
	e->cpu_at = 0;
	DL_FOREACH(e->conns, c)
		c->id = 0;
	e->given = 0;
	sweep_soon(e->all);
	if (e->nconns)
		start(e);
}

/* It does not keep to the rules, or does not begin. */
static void put_down(struct engine *e, const char *why)
{
	prog_log(PROG_LOG_WARN, "engine of uid %u (pid %d): %s", (unsigned int)e->uid, (int)e->record.pid, why);
	if (e->pidfd >= 0)
		pidfd_send_signal(e->pidfd, SIGKILL, NULL, 0);
	else if (record_lives(&e->record))
		/* there was no memory for it, say; a child of ours keeps its number until we are back in the loop */
		kill(e->record.pid, SIGKILL);
	gone(e);
}

static void on_taken(struct engine *e, uint64_t id)
{
	struct conn *c = e->conns;

	if (!c || !c->id || c->id != id) {
		put_down(e, "took a connection that it was not given");
		return;
	}
	e->leaves = 0;
	closer_add(e->all->o.closer, c->fd, e->uid);
	conn_free(e, c);
	give(e);
}

static void on_leave(struct engine *e, uint64_t id)
{
	if (id == e->last_id && !e->nconns) {
		say(e, SUPER_BYE, 0, -1);
		/* to be ready and to take connections is no success yet: they may be what ends it */
		e->tries = 0;
		prog_log(PROG_LOG_INFO, "engine of uid %u (pid %d): ends", (unsigned int)e->uid, (int)e->record.pid);
		gone(e);
	} else if (++e->leaves > MAX_LEAVES) {
		put_down(e, "asks for leave all the time");
	}
}

static void on_said(struct engine *e, const struct super_msg *m)
{
	switch (m->type) {
	case SUPER_READY:
		if (e->state == ENGINE_UP) {
			put_down(e, "ready twice");
			break;
		}
		loop_timer_cancel(&e->timer);
		e->state = ENGINE_UP;
		e->last_id = m->id;
		e->leaves = 0;
		prog_log(PROG_LOG_INFO, "engine of uid %u (pid %d): ready", (unsigned int)e->uid, (int)e->record.pid);
		if (e->all->drain)
			say(e, SUPER_DRAIN, 0, -1);
		if (e->reload)
			say(e, SUPER_RELOAD, 0, -1);
		e->reload = false;
		engines_share(e->all);
		give(e);
		break;
	case SUPER_TAKEN:
		on_taken(e, m->id);
		break;
	case SUPER_LEAVE:
		on_leave(e, m->id);
		break;
	default:
		put_down(e, "says what is not known");
	}
}

static void on_pipe(void *ctx)
{
	struct engine *e = ctx;
	struct super_msg m;
	ssize_t n = read(e->pipe, &m, sizeof(m));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n == sizeof(m)) {
		on_said(e, &m);
		return;
	}
	if (n > 0) {
		put_down(e, "says half of something");
		return;
	}
	if (e->state == ENGINE_AWAY && record_lives(&e->record)) {
		/* it had not waited for this channel, and asks for another one */
		close_channel(e);
		return;
	}
	prog_log(PROG_LOG_WARN, "engine of uid %u (pid %d): ended", (unsigned int)e->uid, (int)e->record.pid);
	gone(e);
}

/* A channel for @e: the engine's half, in @sock and @pipe.  0 or -errno. */
static int make_channel(struct engine *e, int *sock, int *pipe)
{
	int sv[2], pv[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	if (pipe2(pv, O_CLOEXEC)) {
		err = -errno;
		close(sv[0]);
		close(sv[1]);
		return err;
	}
	/* what is sent to us here would be closed by us */
	shutdown(sv[0], SHUT_RD);
	fcntl(pv[0], F_SETFL, O_NONBLOCK);
	fcntl(pv[1], F_SETFL, O_NONBLOCK);
	e->watch = loop_fd_watch(e->all->o.loop, pv[0], 0, on_pipe, e);
	if (!e->watch) {
		close(sv[0]);
		close(sv[1]);
		close(pv[0]);
		close(pv[1]);
		return -ENOMEM;
	}
	e->sock = sv[0];
	e->pipe = pv[0];
	*sock = sv[1];
	*pipe = pv[1];
	return 0;
}

/* ---- starting ---------------------------------------------------------------------------------------------- */

static void on_late(void *ctx)
{
	struct engine *e = ctx;

	if (e->state == ENGINE_STARTING) {
		/* the next one would not either, and who waits has done so for long */
		refuse_all(e, "an engine of this user does not start");
		put_down(e, "does not start");
		return;
	}
	/* it serves whom it has, if it still does */
	prog_log(PROG_LOG_WARN, "engine of uid %u (pid %d): did not come back", (unsigned int)e->uid,
		 (int)e->record.pid);
	gone(e);
}

static void next_slice(struct engine *e);

/*
 * However long a slice took, it is one: who was stopped himself, by a signal, a debugger or the host of his machine, has
 * not heard what was said meanwhile, but who only gets little of a processor comes to an end, too.  Timers are looked at
 * before what was said, which is therefore heard once more after the last one.
 */
static void on_slice(void *ctx)
{
	struct engine *e = ctx;

	if (--e->slices)
		next_slice(e);
	else
		loop_timer_set(e->all->o.loop, &e->timer, HEAR_NS, on_late, e);
}

static void next_slice(struct engine *e)
{
	loop_timer_set(e->all->o.loop, &e->timer, SLICE_NS, on_slice, e);
}

static void be_patient(struct engine *e, unsigned int slices)
{
	e->slices = slices;
	next_slice(e);
}

/*
 * May one more be started?  They end by themselves when something is wrong, or their user ends them.  A busy machine takes
 * seconds for each of them: there is no time for all together.
 */
static bool may_try(struct engine *e)
{
	uint64_t now = loop_now();

	if (now - e->tried_at > TRY_NS)
		e->tries = 0;
	if (e->tries >= STARTS)
		return false;
	e->tries++;
	e->tried_at = now;
	return true;
}

static void start(struct engine *e)
{
	struct spawn_opts o = {
		.progd = e->all->o.progd, .args = e->all->o.args, .uid = e->uid, .gid = e->gid,
		.realtime = engines_may_realtime(e) ? e->all->o.realtime : 0, .ports = &e->ports,
		.cgroups = e->all->o.cgroups,
	};
	char why[LISTEN_ERR] = "";
	pid_t pid;
	int err;

	if (!may_try(e)) {
		refuse_all(e, "engines of this user end as soon as they start");
		return;
	}
	err = cgroup_make(o.cgroups, e->uid, e->all->o.memory_max);
	if (err)
		prog_log_limited(PROG_LOG_WARN, "engine of uid %u: cgroup: %s", (unsigned int)e->uid, strerror(-err));
	err = ports_open(e->all->o.ports, e->uid, &e->ports, why);
	if (!err)
		err = make_channel(e, &o.sock, &o.pipe);
	if (!err) {
		pid = spawn_engine(&o);
		err = pid < 0 ? pid : 0;
		close(o.sock);
		close(o.pipe);
	}
	if (err) {
		prog_log_limited(PROG_LOG_ERROR, "engine of uid %u: cannot be started: %s", (unsigned int)e->uid,
				 why[0] ? why : strerror(-err));
		refuse_all(e, why[0] ? why : "an engine cannot be started on this node");
		gone(e);
		return;
	}
	e->state = ENGINE_STARTING;
	e->fair = !o.realtime;
	/* not reaped before we are back in the loop, so the number is still its own */
	e->pidfd = pidfd_open(pid, 0);
	e->record = (struct record){ .uid = e->uid, .pid = pid, .began = proc_began(pid) };
	err = record_write(e->all->o.records, &e->record);
	if (err)
		prog_log_limited(PROG_LOG_ERROR, "engine of uid %u: cannot be recorded: %s", (unsigned int)e->uid,
				 strerror(-err));
	be_patient(e, START_SLICES);
}

/* ---- who connects ------------------------------------------------------------------------------------------ */

static const char *why_not(const struct engines *all, uid_t uid)
{
	if (!uid && !all->o.allow_root)
		return "root is not served (allow_root)";
	if (subuids_have(all->o.subuids, uid))
		return "the uid is one of those that a user has for containers (subuids)";
	if (uid == all->unmapped)
		return "the user is not known in the supervisor's user namespace";
	if (geteuid() && uid != geteuid())
		return "this supervisor has no right to serve other users";
	return NULL;
}

static void add(struct engines *all, int fd, bool control, const struct ucred *cred)
{
	const char *why = why_not(all, cred->uid);
	struct engine *e = NULL;
	struct conn *c = NULL;

	if (!why) {
		e = control ? find(all, cred->uid) : get(all, cred->uid);
		if (control && (!e || (e->state == ENGINE_NONE && !e->nconns)))
			why = "no engine of yours runs on this node";
		else if (!e)
			why = "too many users, or no memory, on this node";
		else if (e->nconns >= all->max_waiting)
			why = "the user's engine does not take connections";
	}
	if (!why) {
		c = calloc(1, sizeof(*c));
		if (!c)
			why = "no memory on this node";
	}
	if (why) {
		refuse(all, fd, control, cred->uid, why);
		return;
	}
	if (!control && !e->gid_known) {
		e->gid = cred->gid;
		e->gid_known = true;
	}
	c->fd = fd;
	c->control = control;
	DL_APPEND(e->conns, c);
	e->nconns++;
	if (e->state == ENGINE_NONE)
		start(e);
	else
		give(e);
}

void engines_client(struct engines *all, int fd, const struct ucred *cred)
{
	add(all, fd, false, cred);
}

void engines_control(struct engines *all, int fd, const struct ucred *cred)
{
	add(all, fd, true, cred);
}

void engines_back(struct engines *all, int fd, const struct ucred *cred)
{
	struct super_msg m = { .type = SUPER_CHANNEL };
	struct engine *e = find(all, cred->uid);
	SCM_BUF(2) ctl;
	struct iovec iov = { .iov_base = &m, .iov_len = sizeof(m) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[2];

	if (!e || e->state != ENGINE_AWAY || e->record.pid != cred->pid || !record_lives(&e->record)) {
		prog_log_limited(PROG_LOG_WARN, "pid %d of uid %u: is no engine that is missed", (int)cred->pid,
				 (unsigned int)cred->uid);
	} else if (e->watch) {
		/* it asks again: it has not waited for the answer, which is about to be seen, or still has it */
	} else if (!make_channel(e, &fds[0], &fds[1])) {
		scm_attach(&mh, ctl.buf, fds, 2);
		if (sendmsg(fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			prog_log(PROG_LOG_DEBUG, "pid %d: cannot be told: %m", (int)cred->pid);
		close(fds[0]);
		close(fds[1]);
	}
	closer_add(all->o.closer, fd, cred->uid);
}

/* ------------------------------------------------------------------------------------------------------------ */

/* What a process that was reaped came to: signals that its user ends it by are his affair. */
static bool ended_badly(int status)
{
	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	return WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGTERM;
}

bool engines_reaped(struct engines *all, pid_t pid, int status)
{
	const char *how = WIFSIGNALED(status) ? "signal" : "status";
	int what = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
	struct engine *e, *tmp;

	HASH_ITER(hh, all->table, e, tmp) {
		if (e->record.pid != pid)
			continue;
		if (e->state == ENGINE_STARTING) {
			prog_log(PROG_LOG_WARN, "engine of uid %u (pid %d): ended at its start (%s %d)", (unsigned int)e->uid,
				 (int)pid, how, what);
			return true;
		}
		break;
	}
	/* its channel may have told that it is no more, or it asked for leave */
	if (ended_badly(status))
		prog_log_limited(PROG_LOG_WARN, "engine (pid %d): ended badly (%s %d)", (int)pid, how, what);
	return e;
}

/* Those that start, or are not back yet, may have read the files before: they are told when they are ready. */
void engines_reload(struct engines *all)
{
	struct engine *e, *tmp;

	HASH_ITER(hh, all->table, e, tmp)
		e->reload = e->state != ENGINE_NONE && (e->state != ENGINE_UP || say(e, SUPER_RELOAD, 0, -1));
}

void engines_drain(struct engines *all)
{
	struct engine *e, *tmp;

	all->drain = true;
	HASH_ITER(hh, all->table, e, tmp)
		if (e->state == ENGINE_UP)
			say(e, SUPER_DRAIN, 0, -1);
}

void engines_each(struct engines *all, void (*fn)(void *ctx, uid_t uid, pid_t pid, const char *state), void *ctx)
{
	static const char *const name[] = {
		[ENGINE_NONE] = "none", [ENGINE_STARTING] = "starting", [ENGINE_AWAY] = "away", [ENGINE_UP] = "up",
	};
	struct engine *e, *tmp;

	HASH_ITER(hh, all->table, e, tmp)
		if (e->state != ENGINE_NONE)
			fn(ctx, e->uid, e->record.pid, name[e->state]);
}

static void from_before(void *ctx, const struct record *r)
{
	struct engines *all = ctx;
	int pidfd = pidfd_open(r->pid, 0);
	struct engine *e;

	if (!record_lives(r)) {
		record_remove(all->o.records, r->uid);
		if (pidfd >= 0)
			close(pidfd);
		return;
	}
	e = get(all, r->uid);
	if (!e) {
		if (pidfd >= 0)
			close(pidfd);
		return;
	}
	e->state = ENGINE_AWAY;
	e->pidfd = pidfd;
	e->record = *r;
	ports_claim(all->o.ports, e->uid, &e->ports);
	be_patient(e, BACK_SLICES);
}

/* A user who has his engine stopped must not take the descriptors that others' connections need. */
static unsigned int max_waiting(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_cur / FILES_PART >= MAX_WAITING)
		return MAX_WAITING;
	return rl.rlim_cur / FILES_PART;
}

int engines_new(const struct engines_opts *o, struct engines **out)
{
	struct engines *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	all->o = *o;
	all->unmapped = subuids_unmapped();
	all->max_waiting = max_waiting();
	record_each(o->records, from_before, all);
	sweep_soon(all);
	*out = all;
	return 0;
}

void engines_free(struct engines *all)
{
	struct engine *e, *tmp;

	if (!all)
		return;
	loop_timer_cancel(&all->fair);
	loop_timer_cancel(&all->sweep);
	HASH_ITER(hh, all->table, e, tmp) {
		struct conn *c, *ctmp;

		DL_FOREACH_SAFE(e->conns, c, ctmp) {
			closer_add(all->o.closer, c->fd, e->uid);
			conn_free(e, c);
		}
		loop_timer_cancel(&e->timer);
		close_channel(e);
		if (e->pidfd >= 0)
			close(e->pidfd);
		ports_forget(&e->ports);
		engine_free(e);
	}
	free(all);
}

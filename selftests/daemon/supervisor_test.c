// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A supervisor and processes of several users: each user has an engine of his own, which comes and goes with him, and
 * lives when its supervisor does not.  What one user does is nothing to the other.  Needs root.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/endless.h>
#include <kit/users.h>
#include <libprogbase/scm.h>
#include <libprogbase/usock.h>
#include <libprogclient/win.h>
#include <progclient.h>
#include <wire/super.h>

#define SEC	1000000000ull
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED	true
#else
#define SANITIZED	false
#endif

struct answer {
	int err;
	uint8_t guid[PROG_GUID_SIZE];
	char reason[256];
};

struct client {
	pid_t pid;
	int to, from;
};

static struct node node;

/* ---- a process of a user ----------------------------------------------------------------------------- */

static void client_main(int from, int to, uid_t uid, struct prog_session_cfg cfg)
{
	struct prog_session *s = NULL;
	char cmd;

	user_become(uid);
	prctl(PR_SET_DUMPABLE, 1);
	while (read(from, &cmd, 1) == 1 && cmd != 'q') {
		struct answer a = { 0 };
		const char *why = "";
		int engine;

		if (cmd == 'o') {
			a.err = prog_session_open(&cfg, &s, &why);
			snprintf(a.reason, sizeof(a.reason), "%s", why);
		} else if (cmd == 'c') {
			prog_session_close(s);
			s = NULL;
		} else if (cmd == 'p') {
			a.err = prog_session_ping(s);
		} else if (cmd == 'f') {	/* keeps the worker busy until it hears something */
			struct pollfd pfd = { .fd = from, .events = POLLIN };

			while (!a.err && poll(&pfd, 1, 50) == 0)
				a.err = eventfd_write(s->kick[0], 1) ? -errno : 0;
		} else if (cmd == 'K') {	/* followed by a pid */
			if (read(from, &engine, sizeof(engine)) != sizeof(engine))
				_exit(8);
			a.err = kill(engine, SIGKILL) ? -errno : 0;
		} else if (cmd == 'M') {	/* likewise */
			char path[64];
			int fd;

			if (read(from, &engine, sizeof(engine)) != sizeof(engine))
				_exit(8);
			snprintf(path, sizeof(path), "/proc/%d/fd", engine);
			fd = open(path, O_RDONLY | O_DIRECTORY);
			a.err = fd < 0 ? -errno : 0;
		}
		if (s)
			memcpy(a.guid, s->guid, sizeof(a.guid));
		if (write(to, &a, sizeof(a)) != sizeof(a))
			_exit(7);
	}
	prog_session_close(s);
	_exit(0);
}

static void client_start(struct client *c, uid_t uid)
{
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_NO_HELPER };
	int to[2], from[2];

	assert_int_equal(prog_job_key_make(cfg.jobid, cfg.jobkey), 0);
	cfg.socket = node.sock;
	cfg.progd = users_progd;
	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from, O_CLOEXEC), 0);
	fflush(NULL);
	c->pid = fork();
	if (!c->pid) {
		close(to[1]);
		close(from[0]);
		client_main(to[0], from[1], uid, cfg);
	}
	close(to[0]);
	close(from[1]);
	c->to = to[1];
	c->from = from[0];
}

static void client_tell(struct client *c, char cmd)
{
	assert_int_equal(write(c->to, &cmd, 1), 1);
}

static struct answer client_hear(struct client *c)
{
	struct answer a;

	assert_int_equal(read(c->from, &a, sizeof(a)), sizeof(a));
	return a;
}

static struct answer client_do(struct client *c, char cmd)
{
	client_tell(c, cmd);
	return client_hear(c);
}

static void client_end(struct client *c)
{
	int st;

	client_tell(c, 'q');
	close(c->to);
	close(c->from);
	waitpid(c->pid, &st, 0);
	assert_int_equal(st, 0);
}

static struct answer client_do_pid(struct client *c, char cmd, pid_t pid)
{
	client_tell(c, cmd);
	assert_int_equal(write(c->to, &pid, sizeof(pid)), sizeof(pid));
	return client_hear(c);
}

static bool runs(pid_t pid)
{
	char path[64], line[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	return line[0] && !strstr(line, ") Z ");
}

static void await_end(pid_t pid)
{
	uint64_t end = nodes_now() + 20 * SEC;

	while (runs(pid)) {
		if (nodes_now() > end)
			fail_msg("engine %d still runs: %s", (int)pid, node_log(&node));
		usleep(1000);
	}
}

static const char *sets[4];

static void start(const char *one, const char *two)
{
	unsigned int n = 0;

	sets[n++] = "log_level=info";
	if (one)
		sets[n++] = one;
	if (two)
		sets[n++] = two;
	sets[n] = NULL;
	assert_int_equal(node_start_supervisor(&node, users_progd, sets), 0);
}

static void stop_supervisor(int sig)
{
	kill(node.pid, sig);
	while (waitpid(node.pid, NULL, 0) < 0 && errno == EINTR)
		;
	node.pid = 0;
}

static unsigned int uid_of(pid_t pid)
{
	char path[64];
	struct stat st;
	FILE *f;
	char line[256];
	unsigned int uid = ~0u, e = ~0u, s = ~0u, fs = ~0u;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Uid: %u %u %u %u", &uid, &e, &s, &fs) == 4)
			break;
	fclose(f);
	assert_true(uid == e && uid == s && uid == fs);
	/* what is not dumpable is root's in /proc */
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 0);
	return uid;
}

static unsigned int realtime_threads(pid_t pid)
{
	char path[64];
	struct dirent *e;
	unsigned int n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d)))
		n += atoi(e->d_name) && (sched_getscheduler(atoi(e->d_name)) & ~SCHED_RESET_ON_FORK) == SCHED_RR;
	if (d)
		closedir(d);
	return n;
}

/* Filters of system calls that all threads of @pid have; fails where they differ. */
static int filters_of(pid_t pid)
{
	char path[300], line[256];
	int all = -1, n;
	struct dirent *e;
	DIR *d;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
		while (f && fgets(line, sizeof(line), f)) {
			if (sscanf(line, "Seccomp_filters: %d", &n) != 1)
				continue;
			if (all >= 0)
				assert_int_equal(n, all);
			all = n;
		}
		if (f)
			fclose(f);
	}
	closedir(d);
	return all;
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

/* Supervisor and engines, all threads, refuse themselves what they do not need, unless they are told not to. */
static void test_confined(void **state)
{
	int ours = filters_of(getpid());
	struct client a;

	for (int yes = 1; yes >= 0; yes--) {
		start(yes ? "seccomp=yes" : "seccomp=no", NULL);
		client_start(&a, USER_A);
		assert_int_equal(client_do(&a, 'o').err, 0);
		assert_int_equal(filters_of(node.pid), ours + yes);
		assert_int_equal(filters_of(user_engine(&node, USER_A)), ours + 2 * yes);
		client_end(&a);
		assert_int_equal(node_stop(&node, SIGTERM), 0);
	}
}

static void test_one_each(void **state)
{
	struct client a, a2, b, root;
	struct answer x, y;
	pid_t ea, eb;

	start(NULL, NULL);
	client_start(&a, USER_A);
	client_start(&a2, USER_A);
	client_start(&b, USER_B);
	client_start(&root, 0);
	x = client_do(&a, 'o');
	assert_int_equal(x.err, 0);
	y = client_do(&a2, 'o');
	assert_int_equal(y.err, 0);
	assert_memory_equal(x.guid, y.guid, sizeof(x.guid));
	y = client_do(&b, 'o');
	assert_int_equal(y.err, 0);
	assert_memory_not_equal(x.guid, y.guid, sizeof(x.guid));
	ea = user_engine(&node, USER_A);
	eb = user_engine(&node, USER_B);
	assert_int_equal(uid_of(ea), USER_A);
	assert_int_equal(uid_of(eb), USER_B);
	/* it has the right to its user's memory, and no more: what its processes keep to themselves needs no helper */
	assert_non_null(strstr(node_progctl(&node, "--uid 65532 --json sessions"), "\"cma\": true"));
	assert_null(strstr(node_progctl(&node, "--uid 65532 --json sessions"), "\"cma\": false"));
	/* its descriptors are its own, also for its user */
	assert_int_equal(client_do_pid(&a, 'M', ea).err, -EACCES);
	assert_int_equal(client_do_pid(&b, 'K', ea).err, -EPERM);
	/* root has none unless it is allowed */
	y = client_do(&root, 'o');
	assert_int_equal(y.err, -EUSERS);
	assert_non_null(strstr(y.reason, "allow_root"));
	/* a user ends his own: it is his harm, and the next one serves him */
	assert_int_equal(client_do_pid(&a, 'K', ea).err, 0);
	assert_true(client_do(&a, 'p').err < 0);
	assert_int_equal(client_do(&b, 'p').err, 0);
	client_do(&a, 'c');
	y = client_do(&a, 'o');
	assert_int_equal(y.err, 0);
	assert_memory_not_equal(x.guid, y.guid, sizeof(x.guid));
	assert_int_equal(user_engine(&node, USER_B), eb);
	client_end(&a);
	client_end(&a2);
	client_end(&b);
	client_end(&root);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

static void test_root(void **state)
{
	struct client root;
	pid_t e;

	start("allow_root=yes", "engine_linger=0");
	client_start(&root, 0);
	assert_int_equal(client_do(&root, 'o').err, 0);
	e = user_engine(&node, 0);
	assert_true(runs(e));
	assert_non_null(strstr(node_progctl(&node, "--json sessions"), "\"uid\": 0"));
	client_end(&root);
	await_end(e);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* It goes when nobody is there, and nobody who comes just then is lost. */
static void test_leave(void **state)
{
	struct client a, b;
	pid_t e;

	start("engine_linger=0", NULL);
	client_start(&a, USER_A);
	client_start(&b, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	e = user_engine(&node, USER_A);
	client_do(&a, 'c');
	await_end(e);
	for (int i = 0; i < 100; i++) {
		struct answer x;

		client_tell(&a, i % 2 ? 'o' : 'c');
		x = client_do(&b, i % 2 ? 'c' : 'o');
		if (!(i % 2) && x.err)
			fail_msg("round %d: %s", i, x.reason);
		x = client_hear(&a);
		if (i % 2 && x.err)
			fail_msg("round %d: %s", i, x.reason);
	}
	client_end(&a);
	client_end(&b);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* The supervisor is killed or stopped and started again while processes come: sessions live, none is refused. */
static void test_restart(void **state)
{
	struct client a, b, held;
	struct answer x, y;
	pid_t e;

	start(NULL, NULL);
	client_start(&held, USER_A);
	client_start(&a, USER_A);
	client_start(&b, USER_B);
	x = client_do(&held, 'o');
	assert_int_equal(x.err, 0);
	e = user_engine(&node, USER_A);
	for (int i = 0; i < 20; i++) {
		stop_supervisor(i & 1 ? SIGTERM : SIGKILL);
		client_tell(&a, 'o');
		client_tell(&b, 'o');
		usleep(i * 7919 % 20000);
		assert_int_equal(node_supervise(&node, users_progd, sets), 0);
		y = client_hear(&a);
		if (y.err)
			fail_msg("round %d: %s\n%s", i, y.reason, node_log(&node));
		if (memcmp(x.guid, y.guid, sizeof(x.guid)))
			fail_msg("round %d: another engine\n%s", i, node_log(&node));
		y = client_hear(&b);
		if (y.err)
			fail_msg("round %d: %s\n%s", i, y.reason, node_log(&node));
		assert_int_equal(client_do(&held, 'p').err, 0);
		client_do(&a, 'c');
		client_do(&b, 'c');
	}
	assert_int_equal(user_engine(&node, USER_A), e);
	client_end(&a);
	client_end(&b);
	client_end(&held);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* A child of a supervisor that was killed still has its sockets: the next one waits for its end. */
static void test_take_over(void **state)
{
	char path[128], byte;
	struct client a;
	int ready[2], st;
	pid_t child;

	start(NULL, NULL);
	stop_supervisor(SIGKILL);
	snprintf(path, sizeof(path), "%s.node", node.sock);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (!child) {
		struct pollfd there = { .fd = usock_listen(path, 0600, 8), .events = POLLIN };

		if (there.fd < 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		/* until the next supervisor has found it */
		_exit(poll(&there, 1, 20000) != 1);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(node_supervise(&node, users_progd, sets), 0);
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	client_end(&a);
	assert_int_equal(waitpid(child, &st, 0), child);
	assert_int_equal(st, 0);
	close(ready[0]);
	close(ready[1]);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

static bool peer_is(int fd, pid_t pid)
{
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len), 0);
	return cred.pid == pid;
}

/* Such a child of the one before is not taken for the one that was started: it accepts, until the next supervisor has looked. */
static void test_who_serves(void **state)
{
	int ready[2], fd, st;
	pid_t child;
	char byte;

	start(NULL, NULL);
	stop_supervisor(SIGKILL);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (!child) {
		int there = usock_listen(node.sock, 0600, 8);
		struct pollfd pfd = { .fd = there, .events = POLLIN };

		if (there < 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		while (poll(&pfd, 1, 20000) == 1) {
			fd = accept(there, NULL, NULL);
			if (!peer_is(fd, getppid()))
				_exit(0);
			close(fd);
		}
		_exit(1);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(node_supervise(&node, users_progd, sets), 0);
	fd = nodes_connect(node.sock, SOCK_SEQPACKET);
	assert_true(fd >= 0);
	assert_true(peer_is(fd, node.pid));
	close(fd);
	assert_int_equal(waitpid(child, &st, 0), child);
	assert_int_equal(st, 0);
	close(ready[0]);
	close(ready[1]);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* `progctl engines', with nothing said on a terminal; its pid. */
static pid_t progctl_start(int out)
{
	char path[4096 + 16];
	pid_t pid = fork();

	if (pid)
		return pid;
	snprintf(path, sizeof(path), "%.*s/progctl", (int)(strrchr(nodes_progd(), '/') - nodes_progd()), nodes_progd());
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(out, 1);
	dup2(out, 2);
	execl(path, path, "--socket", node.sock, "engines", (char *)NULL);
	_exit(127);
}

/* Does it wait for a while, as who looks again and again does?  Returns when it does, or has ended. */
static bool comes_to_sleep(pid_t pid)
{
	uint64_t end = nodes_now() + 20 * SEC;
	char path[64], line[256];

	snprintf(path, sizeof(path), "/proc/%d/syscall", (int)pid);
	while (runs(pid) && nodes_now() < end) {
		FILE *f = fopen(path, "r");

		if (f && fgets(line, sizeof(line), f) && strtol(line, NULL, 10) == SYS_clock_nanosleep) {
			fclose(f);
			return true;
		}
		if (f)
			fclose(f);
	}
	return false;
}

/* progctl waits for a supervisor that is being restarted, and for no other one. */
static void test_progctl_restart(void **state)
{
	char said[256], want[64], path[128];
	int out[2], st;
	struct client a;
	ssize_t n;
	pid_t pid;

	start(NULL, NULL);
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	snprintf(want, sizeof(want), "uid %-8d pid %-8d ", USER_A, (int)user_engine(&node, USER_A));
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	for (int i = 0; i < 3; i++) {
		stop_supervisor(i & 1 ? SIGTERM : SIGKILL);
		pid = progctl_start(out[1]);
		assert_true(comes_to_sleep(pid));
		if (i < 2) {
			assert_int_equal(node_supervise(&node, users_progd, sets), 0);
		} else {
			/* there will be none */
			snprintf(path, sizeof(path), "%s.node", node.sock);
			assert_int_equal(unlink(path), 0);
		}
		assert_int_equal(waitpid(pid, &st, 0), pid);
		n = read(out[0], said, sizeof(said) - 1);
		said[n > 0 ? n : 0] = '\0';
		if (!strstr(said, i < 2 ? want : "no supervisor serves it"))
			fail_msg("round %d: %s", i, said);
		assert_int_equal(st, i < 2 ? 0 : 1 << 8);
	}
	pid = progctl_start(out[1]);
	assert_false(comes_to_sleep(pid));
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 1 << 8);
	close(out[0]);
	close(out[1]);
	assert_int_equal(node_supervise(&node, users_progd, sets), 0);
	client_end(&a);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* @n descriptors that are sent and not received. */
static void put_under_way(int sock, unsigned int n)
{
	struct iovec iov = { .iov_base = "x", .iov_len = 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	SCM_BUF(1) ctl;

	while (n--) {
		scm_attach(&mh, ctl.buf, &sock, 1);
		assert_int_equal(sendmsg(sock, &mh, 0), 1);
	}
}

/* What can be sent of descriptors is used up, which is the user's where a supervisor is: connections wait for that, not for others. */
static void few_under_way(void)
{
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_NO_HELPER, .socket = node.sock, .progd = users_progd };
	struct prog_session *s[2];
	const char *why = "";
	int sv[2], go[2], st;
	char byte;
	pid_t pid;

	start(NULL, NULL);
	assert_int_equal(prog_job_key_make(cfg.jobid, cfg.jobkey), 0);
	assert_int_equal(prog_session_open(&cfg, &s[0], &why), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	put_under_way(sv[0], node.files + 8);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		close(sv[0]);
		close(sv[1]);
		cfg.rank = 1;
		if (write(go[1], "", 1) != 1)
			_exit(2);
		_exit(prog_session_open(&cfg, &s[1], &why) != 0);
	}
	assert_int_equal(read(go[0], &byte, 1), 1);
	/* it waits there, or does in a moment */
	usleep(500000);
	assert_int_equal(waitpid(pid, &st, WNOHANG), 0);
	close(sv[0]);
	close(sv[1]);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
	prog_session_close(s[0]);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

static void test_few_under_way(void **state)
{
	int st;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		/* what is under way is counted by user: of nobody else, as the same test of another build, which may run now */
		user_become(30000 + (uid_t)getpid() % 20000);
		prctl(PR_SET_DUMPABLE, 1);
		node.files = 128;
		few_under_way();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
}

/* While one supervisor has the records, another one that comes to the same place takes no sockets, even if nobody serves them yet. */
static void test_at_once(void **state)
{
	struct client a;
	char path[128];
	int dir;

	start(NULL, NULL);
	stop_supervisor(SIGKILL);
	snprintf(path, sizeof(path), "%s.records", node.sock);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	assert_int_equal(flock(dir, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(node_supervise(&node, users_progd, sets), -ECHILD);
	assert_int_equal(nodes_connect(node.sock, SOCK_SEQPACKET), -1);
	assert_non_null(strstr(node_log(&node), "s.records: another supervisor has it"));
	close(dir);
	assert_int_equal(node_supervise(&node, users_progd, sets), 0);
	/* which it keeps */
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(dir, LOCK_EX | LOCK_NB), -1);
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	assert_int_equal(flock(dir, LOCK_EX | LOCK_NB), -1);
	close(dir);
	client_end(&a);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

static void test_drain(void **state)
{
	struct client a;
	pid_t e;

	start("engine_linger=1h", NULL);
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	e = user_engine(&node, USER_A);
	assert_string_equal(node_progctl(&node, "drain"), "");
	assert_int_equal(client_do(&a, 'p').err, 0);
	client_end(&a);
	await_end(e);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

static void test_no_engine(void **state)
{
	struct answer x;
	struct client a;

	sets[0] = NULL;
	assert_int_equal(node_start_supervisor(&node, "/bin/false", sets), 0);
	client_start(&a, USER_A);
	x = client_do(&a, 'o');
	assert_int_equal(x.err, -EUSERS);
	assert_non_null(strstr(x.reason, "end as soon as they start"));
	client_end(&a);
	node.bad_ends = true;
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* A socket whose close() takes @secs: what it was given cannot be sent. */
static int slow_to_close(int secs, int *peer)
{
	struct linger lin = { .l_onoff = 1, .l_linger = secs };
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	static char block[65536];
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(l, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&sin, &len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	*peer = accept(l, NULL, NULL);
	close(l);
	while (send(fd, block, sizeof(block), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin)), 0);
	return fd;
}

/* Whom the supervisor refuses has left descriptors with it that it must not close by itself. */
static void test_slow_descriptors(void **state)
{
	uint64_t began;
	struct client b;

	start(NULL, NULL);
	client_start(&b, USER_B);
	for (int i = 0; i < 3; i++) {
		int peer, fd = slow_to_close(20, &peer), sock;
		struct iovec iov = { .iov_base = "x", .iov_len = 1 };
		struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
		SCM_BUF(1) ctl;

		/* stopped, so that it is there before it is refused: this process is root's */
		kill(node.pid, SIGSTOP);
		sock = nodes_connect(node.sock, SOCK_SEQPACKET);
		assert_true(sock >= 0);
		scm_attach(&mh, ctl.buf, &fd, 1);
		assert_int_equal(sendmsg(sock, &mh, 0), 1);
		/* not the last references: that one is under way */
		close(fd);
		close(sock);
		kill(node.pid, SIGCONT);
		began = nodes_now();
		assert_int_equal(client_do(&b, 'o').err, 0);
		client_do(&b, 'c');
		assert_true(nodes_now() - began < 5 * SEC);
		close(peer);
	}
	client_end(&b);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* Connections that nobody takes are a few of the files that the supervisor may have open: others are served meanwhile. */
static void test_few_files(void **state)
{
	struct client a, b;
	char byte = 0;
	pid_t e, pid;
	int p[2];

	node.files = 256;
	start(NULL, NULL);
	node.files = 0;
	client_start(&a, USER_A);
	client_start(&b, USER_B);
	assert_int_equal(client_do(&b, 'o').err, 0);
	e = user_engine(&node, USER_B);
	kill(e, SIGSTOP);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	fflush(NULL);
	/* so that all come at once */
	kill(node.pid, SIGSTOP);
	pid = fork();
	if (!pid) {
		close(p[0]);
		user_become(USER_B);
		for (int i = 0; i < 700; i++)
			if (nodes_connect(node.sock, SOCK_SEQPACKET) < 0)
				_exit(1);
		if (write(p[1], &byte, 1) == 1)
			pause();
		_exit(1);
	}
	close(p[1]);
	assert_int_equal(read(p[0], &byte, 1), 1);
	close(p[0]);
	kill(node.pid, SIGCONT);
	assert_int_equal(client_do(&a, 'o').err, 0);
	assert_int_equal(client_do(&a, 'p').err, 0);
	assert_non_null(strstr(node_log(&node), "the user's engine does not take connections"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	kill(e, SIGCONT);
	assert_int_equal(client_do(&b, 'p').err, 0);
	client_end(&a);
	client_end(&b);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

static void number_of(pid_t pid, const char *name, unsigned long *v)
{
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "r");
	assert_non_null(f);
	*v = ~0ul;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			*v = strtoul(line + strlen(name), NULL, 10);
	fclose(f);
	assert_true(*v != ~0ul);
}

/* How often the threads of @pid went to sleep so far. */
static unsigned long slept(pid_t pid)
{
	unsigned long sum = 0, v;
	struct dirent *e;
	char path[64];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d))) {
		if (!atoi(e->d_name))
			continue;
		number_of(atoi(e->d_name), "voluntary_ctxt_switches:", &v);
		sum += v;
	}
	closedir(d);
	return sum;
}

/* While nobody comes or goes it sleeps, and it is small; an engine whose processes do nothing sleeps as well. */
static void test_idle(void **state)
{
	unsigned long before, after = 0, own;
	struct client a;
	pid_t e;

	start(NULL, NULL);
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	e = user_engine(&node, USER_A);
	before = 1;
	/* what the start left to do takes a while; a sanitizer has a thread of its own that wakes up */
	for (int i = 0; i < 60 && after != before && !SANITIZED; i++) {
		before = slept(node.pid) + slept(e);
		usleep(1000000);
		after = slept(node.pid) + slept(e);
	}
	if (!SANITIZED)
		assert_int_equal(after, before);
	/* the rest are pages of the C library, which all processes share */
	number_of(node.pid, "RssAnon:", &own);
	if (own > 1024 && !SANITIZED)
		fail_msg("%lu KiB", own);
	client_end(&a);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* Uids that somebody has for containers are no users of the node. */
static void test_subuids(void **state)
{
	char path[160], set[192];
	struct client a, b;
	struct answer x;
	FILE *f;

	snprintf(path, sizeof(path), "%.*s/subuid", (int)(strrchr(users_progd, '/') - users_progd), users_progd);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "# none\nbroken\nx:-1:2\nx:0:0\nx:0:99999999999999999999\nx:100000:65536\nx:%u:1\ny:4294967290:100000", USER_B);
	assert_int_equal(fclose(f), 0);
	snprintf(set, sizeof(set), "subuids=%s", path);
	start(set, NULL);
	client_start(&a, USER_A);
	client_start(&b, USER_B);
	assert_int_equal(client_do(&a, 'o').err, 0);
	x = client_do(&b, 'o');
	assert_int_equal(x.err, -EUSERS);
	assert_non_null(strstr(x.reason, "subuids"));
	assert_int_equal(user_engine(&node, USER_B), 0);
	assert_non_null(strstr(node_log(&node), "not understood: x:0:0"));
	/* as many as it likes */
	assert_int_equal(unlink(path), 0);
	assert_string_equal(node_progctl(&node, "reload"), "");
	assert_int_equal(client_do(&b, 'o').err, 0);
	client_end(&a);
	client_end(&b);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* Whatever an engine says, of its own or because its user made it: to the terminal of who asks it is text. */
static void test_said_to_terminals(void **state)
{
#define TEXT	"\"a \\u001b[2J\\u007f\\u009b2J\\r\\nfree: \\u00e9\\u0007\""
	static const char *const says[] = {
		"{\"ok\":false,\"error\":" TEXT "}",
		"{\"ok\":true,\"result\":{\"a \\u001b[2J\":[\"\\u001b\"],\"b\":[" TEXT "]}}",
	};
#undef TEXT
	struct node fake = { 0 };
	char path[128], buf[4096];
	const char *text;
	pid_t pid;
	int l, fd;

	snprintf(fake.sock, sizeof(fake.sock), "%.*s/fake.sock", (int)(strrchr(users_progd, '/') - users_progd), users_progd);
	snprintf(path, sizeof(path), "%s.ctl", fake.sock);
	l = usock_listen(path, 0600, 8);
	assert_true(l >= 0);
	assert_int_equal(fcntl(l, F_SETFL, 0), 0);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (unsigned int i = 0; ; i++) {
			fd = accept(l, NULL, NULL);
			if (recv(fd, buf, sizeof(buf), 0) <= 0 || send(fd, says[i % 2], strlen(says[i % 2]), MSG_NOSIGNAL) < 0)
				_exit(1);
			close(fd);
		}
	}
	for (int i = 0; i < 2; i++) {
		text = node_progctl(&fake, i ? "--json status" : "status");
		if (!strstr(text, "a ?[2J???2J??free: \xc3\xa9?"))
			fail_msg("%s", text);
		assert_null(strchr(text, '\x1b'));
		assert_null(strstr(text, "u001b"));
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(l);
	unlink(path);
}

/* A connection that is refused, with a file in it. */
static void refused_with(int fd)
{
	int sock = nodes_connect(node.sock, SOCK_SEQPACKET);
	struct iovec iov = { .iov_base = "x", .iov_len = 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	SCM_BUF(1) ctl;

	assert_true(sock >= 0);
	scm_attach(&mh, ctl.buf, &fd, 1);
	assert_int_equal(sendmsg(sock, &mh, 0), 1);
	close(fd);
	close(sock);
}

static unsigned int children(pid_t of)
{
	char cmd[64];
	unsigned int n = 0;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "ps --ppid %d -o pid= | wc -l", (int)of);
	f = popen(cmd, "r");
	assert_non_null(f);
	if (fscanf(f, "%u", &n) != 1)
		n = 0;
	pclose(f);
	return n;
}

/*
 * A user's files that are never closed: processes for that are few, and another user's connections end when they should, so his
 * process hears at once when its engine has ended.
 */
static void test_endless_descriptors(void **state)
{
	enum { LOTS = 30, EACH = 20 };
	struct endless endless;
	uint64_t began;
	unsigned int n;
	struct client b;
	pid_t e;

	if (endless_begin(&endless)) {
		print_message("# no FUSE here\n");
		return;
	}
	start(NULL, NULL);
	client_start(&b, USER_B);
	for (int i = 0; i < LOTS; i++) {
		/* so that they are there before they are refused, and those of both users at once */
		kill(node.pid, SIGSTOP);
		for (int k = 0; k < EACH; k++)
			refused_with(endless_open(&endless, i));
		assert_int_equal(endless_dirty(&endless, i), 0);
		client_do(&b, 'c');
		client_tell(&b, 'o');
		kill(node.pid, SIGCONT);
		assert_int_equal(client_hear(&b).err, 0);
		usleep(20000);
	}
	e = user_engine(&node, USER_B);
	n = children(node.pid);
	print_message("# %u processes\n", n);
	/* the engine, those that close, and one that is about to end */
	assert_in_range(n, 5, 12);
	began = nodes_now();
	kill(e, SIGKILL);
	assert_int_not_equal(client_do(&b, 'p').err, 0);
	client_do(&b, 'c');
	assert_int_equal(client_do(&b, 'o').err, 0);
	assert_true(nodes_now() - began < 5 * SEC);
	client_end(&b);
	began = nodes_now();
	stop_supervisor(SIGTERM);
	assert_true(nodes_now() - began < 5 * SEC);
	endless_end(&endless);
	node_stop(&node, SIGTERM);
}

static void test_stopped_engine(void **state)
{
	struct client a, a2, b;
	pid_t e;

	start(NULL, NULL);
	client_start(&a, USER_A);
	client_start(&a2, USER_A);
	client_start(&b, USER_B);
	assert_int_equal(client_do(&a, 'o').err, 0);
	e = user_engine(&node, USER_A);
	kill(e, SIGSTOP);
	client_tell(&a2, 'o');
	assert_int_equal(client_do(&b, 'o').err, 0);
	assert_int_equal(client_do(&b, 'p').err, 0);
	kill(e, SIGCONT);
	assert_int_equal(client_hear(&a2).err, 0);
	client_end(&a);
	client_end(&a2);
	client_end(&b);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* Where users meet, who keeps his engine busy has no real-time priority any more, and cannot take it back. */
static void test_fair(void **state)
{
	struct client a, b;
	uint64_t end;
	pid_t ea, eb;

	/* who is woken now and then is busy all the time */
	start("poll_us=300000", NULL);
	client_start(&b, USER_B);
	assert_int_equal(client_do(&b, 'o').err, 0);
	eb = user_engine(&node, USER_B);
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	ea = user_engine(&node, USER_A);
	if (!realtime_threads(ea)) {
		print_message("# no real-time priority is permitted here\n");
	} else {
		assert_true(realtime_threads(eb) > 0);
		client_tell(&a, 'f');
		for (end = nodes_now() + 60 * SEC; realtime_threads(ea) && nodes_now() < end; usleep(10000))
			;
		assert_int_equal(realtime_threads(ea), 0);
		assert_true(realtime_threads(eb) > 0);
		assert_int_equal(client_do(&b, 'p').err, 0);
		client_tell(&a, 'p');
		assert_int_equal(client_hear(&a).err, 0);
		assert_int_equal(client_hear(&a).err, 0);
		/* nor by another engine */
		client_end(&a);
		kill(ea, SIGKILL);
		await_end(ea);
		client_start(&a, USER_A);
		assert_int_equal(client_do(&a, 'o').err, 0);
		assert_int_not_equal(user_engine(&node, USER_A), ea);
		assert_int_equal(realtime_threads(user_engine(&node, USER_A)), 0);
		assert_true(realtime_threads(eb) > 0);
	}
	client_end(&a);
	client_end(&b);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* ---- engines that do not keep to the rules ---- */

#define FIRST_BAD	61000u
#define SILENT		4u		/* the first whose engine says nothing */
#define BAD_USERS	60u

static void bad_say(uint16_t type, uint64_t id)
{
	struct super_msg m = { .type = type, .value = SUPER_VERSION, .id = id };

	while (write(4, &m, sizeof(m)) < 0 && errno == EAGAIN)
		usleep(100);
}

static void run_progd(char **argv)
{
	char progd[256];

	snprintf(progd, sizeof(progd), "%.*s/progd", (int)(strrchr(argv[0], '/') - argv[0]), argv[0]);
	execv(progd, argv);
}

/* What the supervisor runs in test_stopped_supervisor(): progd, for one user as soon as there is a certain file. */
static int slow_engine(char **argv)
{
	char go[256];

	snprintf(go, sizeof(go), "%.*s/go", (int)(strrchr(argv[0], '/') - argv[0]), argv[0]);
	while (getuid() == USER_A && access(go, F_OK))
		usleep(10000);
	run_progd(argv);
	return 127;
}

/* What the supervisor runs in test_hopeless_engine(): it is ready, and ends, as late as on a busy machine. */
static int hopeless_engine(char **argv)
{
	bad_say(SUPER_READY, 0);
	usleep(2200000);
	return 1;
}

/* What the supervisor runs in test_crashing_engine(): it confirms a connection, and ends by it; progd for a good user. */
static int crashing_engine(char **argv)
{
	struct pollfd given = { .fd = SUPER_FD_SOCK, .events = POLLIN };

	if (getuid() == USER_B) {
		run_progd(argv);
		return 127;
	}
	bad_say(SUPER_READY, 0);
	if (poll(&given, 1, 60000) != 1)
		return 2;
	bad_say(SUPER_TAKEN, 1);
	return 1;
}

/* What the supervisor runs in test_no_pidfd(): it lies, and stays. */
static int staying_engine(char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bad_say(SUPER_READY, 0);
	bad_say(SUPER_TAKEN, 2);
	pause();
	return 0;
}

/* What the supervisor runs in test_bad_engines(): progd for a good user. */
static int bad_engine(char **argv)
{
	static const uint16_t said[] = { SUPER_READY, SUPER_TAKEN, SUPER_LEAVE, SUPER_CLIENT, SUPER_BYE, 0, 99, UINT16_MAX };
	char junk[64], buf[256];
	struct iovec iov = { junk, sizeof(struct super_msg) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	SCM_BUF(1) ctl;
	int null = 0;

	if (getuid() == USER_B) {
		run_progd(argv);
		return 127;
	}
	/* with its supervisor */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rnd_state = getuid() * 0x9e3779b97f4a7c15ull;
	signal(SIGPIPE, SIG_IGN);
	sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
	switch (getuid() % 7) {
	case 0:	/* says anything */
		for (int i = 0; i < 10000; i++)
			bad_say(said[rnd() % 8], rnd() % 4 ? rnd() % 3 : rnd());
		break;
	case 1:	/* a part of a message */
		if (write(4, junk, 1 + rnd() % 15) < 0)
			return 1;
		break;
	case 2:	/* confirms what it does not have */
		bad_say(SUPER_READY, 0);
		bad_say(SUPER_TAKEN, 2);
		break;
	case 3:	/* leaves while somebody comes, and says more after it */
		bad_say(SUPER_READY, 0);
		bad_say(SUPER_LEAVE, 0);
		bad_say(SUPER_LEAVE, 1);
		for (int i = 0; i < 1000; i++)
			bad_say(SUPER_READY, UINT64_MAX);
		break;
	case 4:	/* sends descriptors where it should only read */
		bad_say(SUPER_READY, 0);
		scm_attach(&mh, ctl.buf, &null, 1);
		if (sendmsg(3, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			bad_say(99, 0);
		break;
	case 5:	/* asks for leave all the time, and takes nothing */
		bad_say(SUPER_READY, 0);
		for (;;)
			bad_say(SUPER_LEAVE, 7);
	default: /* says nothing and takes nothing */
		pause();
	}
	/* until we are ended, or a while */
	for (int i = 0; i < 100; i++) {
		recv(3, buf, sizeof(buf), MSG_DONTWAIT);
		usleep(10000);
	}
	return 0;
}

/* This program under another name, which says what it is: what the supervisor is to run. */
static void copy_self(const char *name, char path[160])
{
	char cmd[4400];

	snprintf(path, 160, "%.*s/%s", (int)(strrchr(users_progd, '/') - users_progd), users_progd, name);
	snprintf(cmd, sizeof(cmd), "cp /proc/%d/exe '%s' && chmod 755 '%s'", (int)getpid(), path, path);
	assert_int_equal(system(cmd), 0);
}

/* A supervisor that runs it, and @b, a user who has a good engine. */
static void start_fake(const char *name, char path[160], struct client *b)
{
	copy_self(name, path);
	sets[0] = "log_level=info";
	sets[1] = NULL;
	assert_int_equal(node_start_supervisor(&node, path, sets), 0);
	client_start(b, USER_B);
	assert_int_equal(client_do(b, 'o').err, 0);
}

static bool is_up(uid_t uid, pid_t pid)
{
	char line[64];

	snprintf(line, sizeof(line), "uid %-8u pid %-8d up\n", (unsigned int)uid, (int)pid);
	return strstr(node_progctl(&node, "engines"), line);
}

/*
 * A supervisor that was stopped for longer than it has patience gives up neither an engine that begins meanwhile, nor one
 * that could not come back to it.
 */
static void test_stopped_supervisor(void **state)
{
	char fake[160], go[160];
	pid_t ea = 0, eb, comes;
	struct client b;

	start_fake("slow", fake, &b);
	snprintf(go, sizeof(go), "%.*s/go", (int)(strrchr(fake, '/') - fake), fake);
	eb = user_engine(&node, USER_B);
	kill(eb, SIGSTOP);
	stop_supervisor(SIGKILL);
	assert_int_equal(node_supervise(&node, fake, sets), 0);
	fflush(NULL);
	comes = fork();
	if (!comes) {
		user_become(USER_A);
		_exit(nodes_connect(node.sock, SOCK_SEQPACKET) < 0 || pause());
	}
	while (!ea)
		ea = user_engine(&node, USER_A);
	kill(node.pid, SIGSTOP);
	sleep(11);
	kill(node.pid, SIGCONT);
	kill(eb, SIGCONT);
	close(open(go, O_CREAT | O_WRONLY, 0644));
	for (uint64_t end = nodes_now() + 30 * SEC; !(is_up(USER_A, ea) && is_up(USER_B, eb)); usleep(10000))
		if (nodes_now() > end)
			fail_msg("%s%s", node_progctl(&node, "engines"), node_log(&node));
	assert_int_equal(client_do(&b, 'p').err, 0);
	kill(comes, SIGKILL);
	waitpid(comes, NULL, 0);
	client_end(&b);
	unlink(go);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* One that gets little of a processor, so that each of its slices takes long, comes to the end of its patience as well. */
static void test_starved_supervisor(void **state)
{
	unsigned int rounds = 0;
	pid_t eng;
	struct client b;

	start(NULL, NULL);
	client_start(&b, USER_B);
	assert_int_equal(client_do(&b, 'o').err, 0);
	eng = user_engine(&node, USER_B);
	kill(eng, SIGSTOP);
	stop_supervisor(SIGKILL);
	assert_int_equal(node_supervise(&node, users_progd, sets), 0);
	while (!strstr(node_log(&node), "did not come back")) {
		if (++rounds > 30)
			fail_msg("the engine is still waited for\n%s", node_log(&node));
		kill(node.pid, SIGSTOP);
		usleep(1100000);
		kill(node.pid, SIGCONT);
		usleep(20000);
	}
	/* neither was it given up before it had its slices */
	assert_true(rounds > 5);
	kill(eng, SIGKILL);
	client_end(&b);
	node.bad_ends = true;
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* How often the supervisor has said @what of engines of @uid. */
static unsigned int said_of(uid_t uid, const char *what)
{
	char of[32], *line, *next;
	unsigned int n = 0;
	char *log = strdup(node_log(&node));

	assert_non_null(log);
	snprintf(of, sizeof(of), "engine of uid %u ", (unsigned int)uid);
	for (line = strtok_r(log, "\n", &next); line; line = strtok_r(NULL, "\n", &next))
		n += strstr(line, of) && strstr(line, what);
	free(log);
	return n;
}

/* A client that no engine takes: it is told @why. */
static int refused_client(int sock, const char *why)
{
	char text[512];
	ssize_t n;

	alarm(150);
	n = recv(sock, text, sizeof(text), 0);
	return n <= 0 || !memmem(text, n, why, strlen(why));
}

/* Engines that say that they are ready, and end, are not started for ever while somebody waits, however long each takes. */
static void test_hopeless_engine(void **state)
{
	char fake[160];
	pid_t pid;
	int st;

	copy_self("hopeless", fake);
	sets[0] = NULL;
	assert_int_equal(node_start_supervisor(&node, fake, sets), 0);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		int sock;

		user_become(USER_A);
		sock = nodes_connect(node.sock, SOCK_SEQPACKET);
		_exit(sock < 0 ? 8 : refused_client(sock, "end as soon as they start"));
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
	node.bad_ends = true;
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* Nor are engines that end by each connection that they have confirmed, while their user comes again. */
static void test_crashing_engine(void **state)
{
	struct client a, b;
	char fake[160];
	struct answer x;
	pid_t e;

	start_fake("crashing", fake, &b);
	e = user_engine(&node, USER_B);
	client_start(&a, USER_A);
	x = client_do(&a, 'o');
	assert_int_equal(x.err, -EUSERS);
	assert_non_null(strstr(x.reason, "end as soon as they start"));
	assert_int_equal(said_of(USER_A, "ready"), 5);
	/* nobody else notices */
	assert_int_equal(client_do(&b, 'p').err, 0);
	client_do(&b, 'c');
	assert_int_equal(client_do(&b, 'o').err, 0);
	assert_int_equal(user_engine(&node, USER_B), e);
	client_end(&a);
	client_end(&b);
	node.bad_ends = true;
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* From now on no process of ours gets a pidfd. */
static void refuse_pidfds(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(f) / sizeof(f[0]), .filter = f };

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(9);
}

/* An engine that has to be ended is, also when there was no pidfd for it; and its supervisor has waited for each. */
static void test_no_pidfd(void **state)
{
	char fake[160];
	pid_t pid;
	int st;

	copy_self("staying", fake);
	sets[0] = NULL;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		pid_t comes;
		int sock;

		refuse_pidfds();
		if (node_start_supervisor(&node, fake, sets))
			_exit(1);
		comes = fork();
		if (!comes) {
			user_become(USER_A);
			sock = nodes_connect(node.sock, SOCK_SEQPACKET);
			_exit(sock < 0 ? 8 : refused_client(sock, "end as soon as they start"));
		}
		if (waitpid(comes, &st, 0) != comes || st)
			_exit(2);
		for (uint64_t end = nodes_now() + 20 * SEC; children(node.pid); usleep(1000))
			if (nodes_now() > end)
				_exit(3);
		node.bad_ends = true;
		_exit(node_stop(&node, SIGTERM) ? 4 : 0);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
}

/* The supervisor has seen it, of one of the engines: they take a while where it is busy with many. */
static void await_said(const char *what)
{
	uint64_t end = nodes_now() + 60 * SEC;

	while (!strstr(node_log(&node), what) && nodes_now() < end)
		usleep(100000);
	if (!strstr(node_log(&node), what))
		fail_msg("no engine of %u %s", BAD_USERS, what);
}

/* Each of many users has one of them; the others' engines do not notice. */
static void test_bad_engines(void **state)
{
	static const char *const said[] = {
		"took a connection that it was not given", "says half of something", "says what is not known", "ready twice",
		"asks for leave all the time",
	};
	pid_t pids[BAD_USERS];
	struct client b;
	char fake[160];
	int st;

	start_fake("fake", fake, &b);
	for (unsigned int i = 0; i < BAD_USERS; i++) {
		fflush(NULL);
		pids[i] = fork();
		if (!pids[i]) {
			int sock = -1;

			user_become(FIRST_BAD + i);
			for (int k = 0; k < 3; k++) {
				sock = nodes_connect(node.sock, SOCK_SEQPACKET);
				if (sock < 0)
					_exit(8);
			}
			if (i == SILENT)
				/* and not that the next one is waited for, which would not start either */
				_exit(refused_client(sock, "does not start"));
			pause();
		}
		if (i % 4)
			continue;
		client_do(&b, 'c');
		assert_int_equal(client_do(&b, 'o').err, 0);
		assert_int_equal(client_do(&b, 'p').err, 0);
	}
	waitpid(pids[SILENT], &st, 0);
	assert_int_equal(st, 0);
	assert_int_equal(user_engine(&node, FIRST_BAD + SILENT), 0);
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
		await_said(said[i]);
	for (unsigned int i = 0; i < BAD_USERS; i++) {
		if (i == SILENT)
			continue;
		kill(pids[i], SIGKILL);
		waitpid(pids[i], &st, 0);
		assert_true(WIFSIGNALED(st));
	}
	assert_int_equal(client_do(&b, 'p').err, 0);
	client_end(&b);
	node.bad_ends = true;
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* ---- as a service ---- */

static char config[160];

static void write_config(const char *text)
{
	FILE *f = fopen(config, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(config, 0644), 0);
}

static void assert_quota(const char *value)
{
	const char *said;
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "--uid %u conf get quota_windows", USER_A);
	said = node_progctl(&node, cmd);
	if (!strstr(said, value))
		fail_msg("not%s: %s\n%s", value, said, node_log(&node));
}

/* A file that has changed: all engines read it, also one that was not there at that moment; a bad one changes nothing. */
static void test_reload(void **state)
{
	char text[256];
	struct client a;
	pid_t e;

	snprintf(config, sizeof(config), "%.*s/conf", (int)(strrchr(users_progd, '/') - users_progd), users_progd);
	write_config("quota_windows = 77\n");
	node.config = config;
	start(NULL, NULL);
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	assert_quota(" 77 ");
	write_config("quota_windows = 78\n");
	assert_string_equal(node_progctl(&node, "reload"), "");
	assert_quota(" 78 ");
	write_config("quota_windows = many\n");
	node_progctl(&node, "reload");
	assert_non_null(strstr(node_log(&node), "configuration not changed"));
	assert_quota(" 78 ");
	/* nor one that would have the next engine fail, and not those that are there */
	write_config("quota_windows = 79\ncpus = 0-x\n");
	node_progctl(&node, "reload");
	snprintf(text, sizeof(text), "progd-supervisor[%d]: error: %s:2: cpus: \"0-x\": not a list", (int)node.pid, config);
	assert_non_null(strstr(node_log(&node), text));
	assert_quota(" 78 ");
	write_config("quota_windows = 79\n");
	e = user_engine(&node, USER_A);
	kill(e, SIGSTOP);
	stop_supervisor(SIGKILL);
	assert_int_equal(node_supervise(&node, users_progd, sets), 0);
	write_config("quota_windows = 80\n");
	assert_string_equal(node_progctl(&node, "reload"), "");
	kill(e, SIGCONT);
	assert_quota(" 80 ");
	assert_int_equal(user_engine(&node, USER_A), e);
	client_end(&a);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
	node.config = NULL;
}

/* Of user A's: @text is asked of his engine, and the answer has to have @part. */
static void user_asks(const char *text, const char *part)
{
	char path[160], reply[65536 + 1];
	ssize_t n;
	int st, fd;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		user_become(USER_A);
		snprintf(path, sizeof(path), "%s.ctl", node.sock);
		fd = nodes_connect(path, SOCK_SEQPACKET);
		if (fd < 0 || send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
			_exit(1);
		n = recv(fd, reply, sizeof(reply) - 1, 0);
		reply[n > 0 ? n : 0] = '\0';
		if (strstr(reply, part))
			_exit(0);
		fprintf(stderr, "%s: %s\n", text, reply);
		_exit(2);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
}

/* What an engine may have, how long it stays and what it writes to the node's log is not its user's to say. */
static void test_keys_of_the_node(void **state)
{
	static const char *const set[] = { "engine_linger=1h", "quota_windows=77", NULL };
	struct client a;
	char cmd[64];

	assert_int_equal(node_start_supervisor(&node, users_progd, set), 0);
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	user_asks("{\"cmd\":\"conf-set\",\"key\":\"quota_windows\",\"value\":\"1000\"}", "only root");
	user_asks("{\"cmd\":\"conf-set\",\"key\":\"quota_windows\"}", "only root");
	user_asks("{\"cmd\":\"conf-set\",\"key\":\"engine_linger\",\"value\":\"0\"}", "only root");
	user_asks("{\"cmd\":\"conf-set\",\"key\":\"log_level\",\"value\":\"debug\"}", "only root");
	user_asks("{\"cmd\":\"conf-get\",\"key\":\"quota_windows\"}", "\"77\"");
	user_asks("{\"cmd\":\"conf-set\",\"key\":\"p2p_offload\",\"value\":\"1M\"}", "\"ok\":true");
	snprintf(cmd, sizeof(cmd), "--uid %u conf set quota_windows 78", USER_A);
	assert_non_null(strstr(node_progctl(&node, cmd), " 78 "));
	client_end(&a);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* Engines get all that the supervisor was told, and follow it when it changes. */
static void test_options(void **state)
{
	const char *set[101];
	char cmd[64];
	struct client a;
	pid_t e;

	for (unsigned int i = 0; i < 98; i++)
		set[i] = "log_level=info";
	set[98] = "engine_linger=1h";
	set[99] = "quota_windows=77";
	set[100] = NULL;
	assert_int_equal(node_start_supervisor(&node, users_progd, set), 0);
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	e = user_engine(&node, USER_A);
	snprintf(cmd, sizeof(cmd), "--uid %u conf get quota_windows", USER_A);
	assert_non_null(strstr(node_progctl(&node, cmd), " 77 "));
	client_end(&a);
	assert_true(runs(e));
	/* it waits already */
	snprintf(cmd, sizeof(cmd), "--uid %u conf set engine_linger 0", USER_A);
	node_progctl(&node, cmd);
	await_end(e);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

static char cgroup[256];

/* False: it cannot be made here. */
static bool make_cgroup(void)
{
	char line[512], at[200];
	FILE *f = fopen("/proc/self/mounts", "r");

	while (f && !cgroup[0] && fgets(line, sizeof(line), f))
		if (sscanf(line, "cgroup2 %199s cgroup2 ", at) == 1)
			snprintf(cgroup, sizeof(cgroup), "%s/progd-test-%d", at, (int)getpid());
	if (f)
		fclose(f);
	return cgroup[0] && !mkdir(cgroup, 0755);
}

/* Each engine is in a cgroup of its user's, which goes with it. */
static void test_cgroup(void **state)
{
	char set[300], path[300], line[300] = "";
	struct client a;
	pid_t e;
	FILE *f;

	snprintf(set, sizeof(set), "engines_cgroup=%s", cgroup);
	start(set, "engine_linger=0");
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	e = user_engine(&node, USER_A);
	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)e);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) && strncmp(line, "0::", 3))
		;
	fclose(f);
	snprintf(path, sizeof(path), "%s/uid-%u", cgroup, USER_A);
	line[strcspn(line, "\n")] = '\0';
	assert_string_equal(strrchr(line, '/'), strrchr(path, '/'));
	assert_non_null(strstr(line, strrchr(cgroup, '/')));
	client_end(&a);
	await_end(e);
	/* the supervisor hears of its end after us */
	for (uint64_t end = nodes_now() + 20 * SEC; !access(path, F_OK) && nodes_now() < end;)
		usleep(1000);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* A service manager's part: sockets that are there before and after the supervisor, and the notification. */
static void test_service(void **state)
{
	static const char *const suffix[] = { "", ".ctl", SUPER_SOCKET };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char path[128], text[64], supervisor[4200], pid[16];
	struct client a, b;
	int fds[3], notify;
	ssize_t n;

	/* for its directory, and nothing else */
	start(NULL, NULL);
	stop_supervisor(SIGTERM);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/notify", node.dir);
	notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(notify, (struct sockaddr *)&sa, sizeof(sa)), 0);
	setenv("NOTIFY_SOCKET", sa.sun_path, 1);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s%s", node.sock, suffix[i]);
		snprintf(sa.sun_path, sizeof(sa.sun_path), "%.*s", (int)sizeof(sa.sun_path) - 1, path);
		fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(fds[i], (struct sockaddr *)&sa, sizeof(sa)) | chmod(path, 0666) | listen(fds[i], 64), 0);
	}
	snprintf(supervisor, sizeof(supervisor), "%s-supervisor", nodes_progd());
	client_start(&a, USER_A);
	client_start(&b, USER_B);
	for (int round = 0; round < 2; round++) {
		/* who comes before it is served by it */
		client_tell(&a, 'o');
		fflush(NULL);
		node.pid = fork();
		if (!node.pid) {
			for (int i = 0; i < 3; i++)
				fds[i] = fcntl(fds[i], F_DUPFD, 10);
			for (int i = 0; i < 3; i++)
				dup2(fds[i], 3 + i);
			snprintf(pid, sizeof(pid), "%d", (int)getpid());
			setenv("LISTEN_PID", pid, 1);
			setenv("LISTEN_FDS", "3", 1);
			execl(supervisor, supervisor, "--socket", node.sock, "--set", "listen=127.0.0.1", "--progd", users_progd,
			      NULL);
			_exit(127);
		}
		n = recv(notify, text, sizeof(text) - 1, 0);
		text[n > 0 ? n : 0] = '\0';
		assert_string_equal(text, "READY=1");
		assert_int_equal(client_hear(&a).err, 0);
		assert_int_equal(client_do(&b, 'o').err, 0);
		client_do(&b, 'c');
		client_do(&a, 'c');
		stop_supervisor(SIGTERM);
		n = recv(notify, text, sizeof(text) - 1, 0);
		text[n > 0 ? n : 0] = '\0';
		assert_string_equal(text, "STOPPING=1");
		/* they are the manager's */
		snprintf(path, sizeof(path), "%s", node.sock);
		assert_int_equal(access(path, F_OK), 0);
	}
	unsetenv("NOTIFY_SOCKET");
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	close(notify);
	client_end(&a);
	client_end(&b);
	node_stop(&node, SIGTERM);
}

/* The port at which other nodes reach the user's engine. */
static unsigned int port_of(uid_t uid)
{
	char cmd[64], *p;
	const char *text;

	snprintf(cmd, sizeof(cmd), "--uid %u --json status", (unsigned int)uid);
	text = node_progctl(&node, cmd);
	p = strstr(text, "127.0.0.1:");
	if (!p)
		fail_msg("no address: %s", text);
	return atoi(p + strlen("127.0.0.1:"));
}

static int connect_to(unsigned int port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!connect(fd, (struct sockaddr *)&sin, sizeof(sin)))
		return fd;
	close(fd);
	return -errno;
}

/* What another user gets who wants that port, and who wants to connect to it: errno, or 0. */
static void try_port(unsigned int port, int *to_bind, int *to_connect)
{
	static const int ways[][2] = { { 0, 0 }, { SO_REUSEADDR, 0 }, { SO_REUSEPORT, 0 }, { SO_REUSEADDR, SO_REUSEPORT } };
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = connect_to(port), one = 1;

	*to_connect = fd < 0 ? -fd : 0;
	if (fd >= 0)
		close(fd);
	*to_bind = EADDRINUSE;
	/* whose a socket is decides as well */
	assert_int_equal(seteuid(USER_B), 0);
	for (unsigned int i = 0; i < sizeof(ways) / sizeof(ways[0]) && *to_bind; i++) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		for (int k = 0; k < 2; k++)
			if (ways[i][k])
				assert_int_equal(setsockopt(fd, SOL_SOCKET, ways[i][k], &one, sizeof(one)), 0);
		*to_bind = bind(fd, (struct sockaddr *)&sin, sizeof(sin)) ? errno : 0;
		close(fd);
	}
	assert_int_equal(seteuid(0), 0);
}

/* Where an engine was that ended nobody else can answer, and nobody waits there. */
static void test_port_kept(void **state)
{
	int to_bind, to_connect;
	unsigned int port;
	struct client a;
	pid_t e;

	start(NULL, NULL);
	client_start(&a, USER_A);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(client_do(&a, 'o').err, 0);
		e = user_engine(&node, USER_A);
		port = port_of(USER_A);
		try_port(port, &to_bind, &to_connect);
		assert_int_equal(to_connect, 0);
		kill(e, SIGKILL);
		await_end(e);
		client_do(&a, 'c');
		for (uint64_t end = nodes_now() + 20 * SEC; user_engine(&node, USER_A); usleep(1000))
			assert_true(nodes_now() < end);
		try_port(port, &to_bind, &to_connect);
		assert_int_equal(to_connect, ECONNREFUSED);
		assert_int_equal(to_bind, EADDRINUSE);
	}
	client_end(&a);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* The supervisor's successors keep the port, too: that of an engine that they found, and those of engines that have ended. */
static void test_port_kept_restart(void **state)
{
	int to_bind, to_connect, there;
	unsigned int port;
	struct client a;
	pid_t e;

	start(NULL, NULL);
	client_start(&a, USER_A);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(client_do(&a, 'o').err, 0);
		e = user_engine(&node, USER_A);
		port = port_of(USER_A);
		/* a connection that was accepted has the port as well, and is the engine's */
		there = connect_to(port);
		assert_true(there >= 0);
		for (int k = 0; k < 3; k++) {
			stop_supervisor(i & 1 ? SIGKILL : SIGTERM);
			assert_int_equal(node_supervise(&node, users_progd, sets), 0);
			try_port(port, &to_bind, &to_connect);
			assert_int_equal(to_connect, 0);
			assert_int_equal(to_bind, EADDRINUSE);
		}
		assert_int_equal(user_engine(&node, USER_A), e);
		if (i & 2) {
			stop_supervisor(SIGKILL);
			kill(e, SIGKILL);
			await_end(e);
			assert_int_equal(node_supervise(&node, users_progd, sets), 0);
		} else {
			kill(e, SIGKILL);
			await_end(e);
		}
		close(there);
		client_do(&a, 'c');
		for (uint64_t end = nodes_now() + 20 * SEC; user_engine(&node, USER_A); usleep(1000))
			assert_true(nodes_now() < end);
		for (int k = 0; k < 2; k++) {
			try_port(port, &to_bind, &to_connect);
			assert_int_equal(to_connect, ECONNREFUSED);
			assert_int_equal(to_bind, EADDRINUSE);
			stop_supervisor(SIGKILL);
			assert_int_equal(node_supervise(&node, users_progd, sets), 0);
		}
	}
	client_end(&a);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* The first of @n ports that nobody has. */
static unsigned int free_ports(unsigned int n)
{
	unsigned int low = 20000 + getpid() % 10000, found = 0;
	int in_use, refused;

	while (found < n) {
		try_port(low + found, &in_use, &refused);
		low = in_use ? low + found + 1 : low;
		found = in_use ? 0 : found + 1;
	}
	return low;
}

/* Who has his engine end often gets his own ports again, also where there are few, and nobody else's. */
static void test_port_fair(void **state)
{
	unsigned int low = free_ports(3), port;
	int to_bind, to_connect;
	struct client a, b;
	char ports[32];

	snprintf(ports, sizeof(ports), "ports=%u-%u", low, low + 2);
	start(ports, NULL);
	client_start(&a, USER_A);
	client_start(&b, USER_B);
	assert_int_equal(client_do(&a, 'o').err, 0);
	port = port_of(USER_A);
	kill(user_engine(&node, USER_A), SIGKILL);
	client_do(&a, 'c');
	for (int i = 0; i < 5; i++) {
		assert_int_equal(client_do(&b, 'o').err, 0);
		assert_true(port_of(USER_B) != port);
		kill(user_engine(&node, USER_B), SIGKILL);
		client_do(&b, 'c');
		for (uint64_t end = nodes_now() + 20 * SEC; user_engine(&node, USER_B); usleep(1000))
			assert_true(nodes_now() < end);
		try_port(port, &to_bind, &to_connect);
		assert_int_equal(to_connect, ECONNREFUSED);
		assert_int_equal(to_bind, EADDRINUSE);
	}
	client_end(&a);
	client_end(&b);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* A range: each user's engine has one of its ports, one that an ended engine had if there is no other. */
static void test_port_range(void **state)
{
	unsigned int low, pa, pb;
	struct client a, b, c;
	struct answer x;
	char ports[32];

	low = free_ports(2);
	snprintf(ports, sizeof(ports), "ports=%u-%u", low, low + 1);
	start(ports, NULL);
	client_start(&a, USER_A);
	client_start(&b, USER_B);
	client_start(&c, USER_B - 2);
	assert_int_equal(client_do(&a, 'o').err, 0);
	assert_int_equal(client_do(&b, 'o').err, 0);
	pa = port_of(USER_A);
	pb = port_of(USER_B);
	assert_true(pa != pb && pa - low < 2 && pb - low < 2);
	x = client_do(&c, 'o');
	assert_int_equal(x.err, -EUSERS);
	assert_non_null(strstr(x.reason, "cannot listen"));
	assert_non_null(strstr(x.reason, "ports"));
	kill(user_engine(&node, USER_A), SIGKILL);
	client_do(&a, 'c');
	assert_int_equal(client_do(&a, 'o').err, 0);
	assert_int_equal(port_of(USER_A), pa);
	client_end(&a);
	client_end(&b);
	client_end(&c);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* The capabilities of progd.service, as setpriv has them. */
static void capabilities_of_service(char *text, size_t size)
{
	char path[4200], line[512], *word, *save = NULL;
	FILE *f;

	snprintf(path, sizeof(path), "%s/packaging/systemd/progd.service", getenv("PROG_SRC") ?: ".");
	f = fopen(path, "r");
	assert_non_null(f);
	snprintf(text, size, "-all");
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "CapabilityBoundingSet=", strlen("CapabilityBoundingSet=")))
			continue;
		for (word = strtok_r(strchr(line, '=') + 1, " \n", &save); word; word = strtok_r(NULL, " \n", &save))
			snprintf(text + strlen(text), size - strlen(text), ",+%s", word + strlen("CAP_"));
	}
	fclose(f);
}

static unsigned int free_low_port(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	unsigned int port = 1023;

	for (int r = -1; r; port--) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		assert_true(port > 512);
		sin.sin_port = htons(port);
		r = bind(fd, (struct sockaddr *)&sin, sizeof(sin));
		close(fd);
	}
	return port + 1;
}

/* With no more capabilities than the service has, also at ports that no user can take. */
static void test_port_low(void **state)
{
	char caps[256], ports[32], supervisor[4200];
	unsigned int port = free_low_port();
	struct client a;
	int fd;

	capabilities_of_service(caps, sizeof(caps));
	snprintf(ports, sizeof(ports), "ports=%u-%u", port, port);
	snprintf(supervisor, sizeof(supervisor), "%s-supervisor", nodes_progd());
	/* for its directory, and nothing else */
	start(NULL, NULL);
	stop_supervisor(SIGTERM);
	fflush(NULL);
	node.pid = fork();
	if (!node.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp("setpriv", "setpriv", "--bounding-set", caps, supervisor, "--socket", node.sock, "--set", "listen=127.0.0.1",
		       "--set", ports, "--progd", users_progd, (char *)NULL);
		_exit(127);
	}
	for (uint64_t end = nodes_now() + 20 * SEC; (fd = nodes_connect(node.sock, SOCK_SEQPACKET)) < 0; usleep(1000))
		assert_true(nodes_now() < end);
	close(fd);
	client_start(&a, USER_A);
	assert_int_equal(client_do(&a, 'o').err, 0);
	assert_int_equal(port_of(USER_A), port);
	client_end(&a);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* ------------------------------------------------------------------------------------------------------------- */

static int setup(void **state)
{
	return users_begin();
}

static int teardown(void **state)
{
	rmdir(cgroup);
	return users_end();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_one_each),
	cmocka_unit_test(test_root),
	cmocka_unit_test(test_confined),
	cmocka_unit_test(test_leave),
	cmocka_unit_test(test_restart),
	cmocka_unit_test(test_take_over),
	cmocka_unit_test(test_who_serves),
	cmocka_unit_test(test_progctl_restart),
	cmocka_unit_test(test_few_under_way),
	cmocka_unit_test(test_at_once),
	cmocka_unit_test(test_drain),
	cmocka_unit_test(test_no_engine),
	cmocka_unit_test(test_slow_descriptors),
	cmocka_unit_test(test_endless_descriptors),
	cmocka_unit_test(test_few_files),
	cmocka_unit_test(test_idle),
	cmocka_unit_test(test_subuids),
	cmocka_unit_test(test_said_to_terminals),
	cmocka_unit_test(test_stopped_engine),
	cmocka_unit_test(test_fair),
	cmocka_unit_test(test_stopped_supervisor),
	cmocka_unit_test(test_starved_supervisor),
	cmocka_unit_test(test_hopeless_engine),
	cmocka_unit_test(test_crashing_engine),
	cmocka_unit_test(test_no_pidfd),
	cmocka_unit_test(test_bad_engines),
	cmocka_unit_test(test_options), cmocka_unit_test(test_keys_of_the_node),
	cmocka_unit_test(test_reload),
	cmocka_unit_test(test_service),
	cmocka_unit_test(test_port_kept),
	cmocka_unit_test(test_port_kept_restart),
	cmocka_unit_test(test_port_range),
	cmocka_unit_test(test_port_low),
	cmocka_unit_test(test_port_fair),
	cmocka_unit_test(test_cgroup),	/* last: left out where there is none */
};

/* Engines that tests have, by the name that this program has then: none runs the tests, whatever it returns. */
static void __attribute__((noreturn)) engine(char **argv)
{
	static const struct {
		const char *name;
		int (*run)(char **argv);
	} engines[] = {
		{ "slow", slow_engine }, { "hopeless", hopeless_engine }, { "crashing", crashing_engine }, { "staying", staying_engine },
		{ "fake", bad_engine },
	};
	const char *name = strrchr(argv[0], '/');

	for (size_t i = 0; name && i < sizeof(engines) / sizeof(engines[0]); i++)
		if (!strcmp(name + 1, engines[i].name))
			_exit(engines[i].run(argv));
	_exit(127);
}

static int begin(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--engine"))
		engine(argv);
	if (geteuid())
		kit_skip("needs root, to be several users");
	kit_suite.ntests -= !make_cgroup();
	return 0;
}

KIT_SUITE(tests, .begin = begin, .setup = setup, .teardown = teardown);

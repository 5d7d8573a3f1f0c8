// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Two users of two nodes, one of them hostile.  The other's job goes on: right data, no error, no call that takes long,
 * sessions that begin, with the attack in force.  Needs root.
 *
 *	victim (uid A)   rank 0 -- supervisor 0 -- engine A0 ==== engine A1 -- supervisor 1 -- rank 1
 *	attacker (uid B)           supervisor 0 -- engine B0      engine B1 -- supervisor 1
 *
 * An attack is a function that a process of B runs.  It returns when it is in force, and what it holds stays until the victim has
 * been looked at; or it goes on by itself meanwhile.  One that does not come about fails the test as well.
 *
 * Its argument says which attacks, by a pattern.  HOSTILE_ROUNDS=N measures: the victim works N times alone, beside two processes
 * that spin, as anybody may, and with each attack, in turn.  The figures are for people, on a machine that has nothing else to do.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/users.h>
#include <libprogbase/scm.h>
#include <libprogclient/win.h>
#include <progclient.h>
#include <wire/super.h>
#include <wire/wire.h>

#define SEC	1000000000ull
#define SIZE	65536u
#define ROUNDS	50
#define GREETERS	64		/* connections of a process that greets */
#define WORKS	10		/* times that, for a figure */
#define SLOW	(5 * SEC)		/* no call of the victim's takes this long, however busy the machine */

/* What attackers know of the victim: all that a user of these nodes can find out, and its job's id. */
static struct {
	pid_t pid, supervisor, engine[2];
	uint8_t guid[2][PROG_GUID_SIZE], jobid[PROG_JOBID_SIZE];
	struct prog_addr addr[2];
} known;

static struct node node[2];

/* ---- the victim -------------------------------------------------------------------------------------------- */

struct job {
	struct prog_session *s[2];
	struct prog_win *w[2];
	uint8_t id[PROG_JOBID_SIZE];
	uint64_t value;
};

struct news {
	char why[256];			/* empty: all is well */
	uint64_t longest;		/* ns of a call */
	uint64_t took;			/* ns of the command */
	uint8_t guid[2][PROG_GUID_SIZE], jobid[PROG_JOBID_SIZE];
	struct prog_addr addr[2];
};

static int to_victim, from_victim;

static bool bad(struct news *n, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!n->why[0])
		vsnprintf(n->why, sizeof(n->why), fmt, ap);
	va_end(ap);
	return false;
}

static void job_close(struct job *j)
{
	for (int i = 0; i < 2; i++) {
		prog_win_close(j->w[i]);
		prog_session_close(j->s[i]);
	}
	memset(j, 0, sizeof(*j));
}

static bool job_open(struct job *j, struct news *n)
{
	struct prog_endpoint all[2];
	uint8_t key[PROG_JOBKEY_SIZE];
	const char *why = "";

	if (prog_job_key_make(j->id, key))
		return bad(n, "no key");
	for (uint32_t i = 0; i < 2; i++) {
		struct prog_session_cfg c = { .flags = PROG_SESSION_NO_HELPER, .rank = i, .socket = node[i].sock };
		struct prog_win_cfg wc = { .kind = PROG_WIN_ALLOCATE, .key = 1, .rank = i, .nranks = 2, .size = SIZE };
		uint64_t began = nodes_now();

		memcpy(c.jobid, j->id, sizeof(c.jobid));
		memcpy(c.jobkey, key, sizeof(c.jobkey));
		if (prog_session_open(&c, &j->s[i], &why))
			return bad(n, "session %u: %s", i, why);
		if (prog_win_open(j->s[i], &wc, &j->w[i]))
			return bad(n, "window %u", i);
		prog_win_endpoint(j->w[i], &all[i]);
		if (nodes_now() - began > n->longest)
			n->longest = nodes_now() - began;
	}
	for (int i = 0; i < 2; i++)
		if (prog_win_connect(j->w[i], all, &why))
			return bad(n, "connect: %s", why);
	for (int i = 0; i < 2; i++)
		if (prog_win_map(j->w[i], NULL))
			return bad(n, "map");
	return true;
}

/* Puts, gets and locks of both ranks, checked. */
static bool job_work(struct job *j, struct news *n)
{
	for (int round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < 2; i++) {
			uint64_t put[64], got[64] = { 0 }, seq, began = nodes_now();
			struct prog_buf from = { put, NULL, sizeof(put) }, to = { got, NULL, sizeof(got) };
			struct prog_dst at = { !i, 8 * (round % 100), NULL, sizeof(put) };
			int r;

			for (int k = 0; k < 64; k++)
				put[k] = ++j->value;
			r = prog_lock(j->w[i], !i, PROG_LOCKF_EXCL) ?: prog_put(j->w[i], &from, &at, 0, &seq) ?:
			    prog_flush(j->w[i], !i) ?: prog_get(j->w[i], &to, &at, 0, &seq) ?:
			    prog_flush(j->w[i], !i) ?: prog_unlock(j->w[i], !i) ?: prog_win_error(j->w[i], !i);
			if (r)
				return bad(n, "round %d of rank %u: %s", round, i, strerror(-r));
			if (memcmp(put, got, sizeof(put)))
				return bad(n, "round %d of rank %u: other data", round, i);
			if (nodes_now() - began > n->longest)
				n->longest = nodes_now() - began;
		}
	}
	return true;
}

/* Commands: w works, n does so in a job that begins now, k ends its engine on node 0 and begins again. */
static void victim_main(int in, int out)
{
	struct job held = { 0 }, other = { 0 };
	struct news n = { 0 };
	pid_t engine;
	char cmd;

	prctl(PR_SET_DUMPABLE, 1);
	job_open(&held, &n);
	while (read(in, &cmd, 1) == 1 && cmd != 'q') {
		uint64_t began = nodes_now();

		memset(&n.why, 0, sizeof(n.why));
		n.longest = 0;
		if (cmd == 'w') {
			job_work(&held, &n);
		} else if (cmd == 'n') {
			if (job_open(&other, &n))
				job_work(&other, &n);
			job_close(&other);
		} else if (cmd == 'k') {
			job_close(&held);
			if (read(in, &engine, sizeof(engine)) != sizeof(engine) || kill(engine, SIGKILL))
				bad(&n, "cannot end its own engine");
			/* gone: the supervisor has another one for who comes now */
			while (!kill(engine, 0))
				usleep(1000);
			if (job_open(&held, &n))
				job_work(&held, &n);
		}
		n.took = nodes_now() - began;
		for (int i = 0; i < 2 && held.s[i]; i++) {
			memcpy(n.guid[i], held.s[i]->guid, PROG_GUID_SIZE);
			n.addr[i] = held.s[i]->addr[0];
		}
		memcpy(n.jobid, held.id, sizeof(n.jobid));
		if (write(out, &n, sizeof(n)) != sizeof(n))
			_exit(1);
	}
	job_close(&held);
	_exit(0);
}

static void victim_tell(char cmd)
{
	assert_int_equal(write(to_victim, &cmd, 1), 1);
}

static struct news victim_hear(void)
{
	struct news n;

	assert_int_equal(read(from_victim, &n, sizeof(n)), sizeof(n));
	memcpy(known.guid, n.guid, sizeof(known.guid));
	memcpy(known.jobid, n.jobid, sizeof(known.jobid));
	memcpy(known.addr, n.addr, sizeof(known.addr));
	return n;
}

/* It does what it is told, without error and soon. */
static void victim_does(char cmd)
{
	struct news n;

	victim_tell(cmd);
	if (cmd == 'k')
		assert_int_equal(write(to_victim, &known.engine[0], sizeof(pid_t)), sizeof(pid_t));
	n = victim_hear();
	if (n.why[0] || n.longest > SLOW)
		fail_msg("victim (%c): %s, %.1f s\n%s", cmd, n.why, n.longest / 1e9, node_log(&node[0]));
}

/* ---- what attackers use ------------------------------------------------------------------------------------- */

#define MUST(what)	do { \
				if (!(what)) { \
					fprintf(stderr, "attack: line %d: %s: %s\n", __LINE__, #what, strerror(errno)); \
					_exit(1); \
				} \
			} while (0)

/* NULL: refused, or an engine that just ends was to serve it. */
static struct prog_session *try_session(int on, uint8_t jobid[PROG_JOBID_SIZE])
{
	struct prog_session_cfg c = { .flags = PROG_SESSION_NO_HELPER, .socket = node[on].sock };
	struct prog_session *s = NULL;
	const char *why = "";

	if (prog_job_key_make(c.jobid, c.jobkey))
		_exit(91);
	if (jobid)
		memcpy(c.jobid, jobid, sizeof(c.jobid));
	if (prog_session_open(&c, &s, &why)) {
		fprintf(stderr, "attack: session: %s\n", why);
		return NULL;
	}
	return s;
}

/*
 * Of an engine of its own: what attacks before did to theirs may have the supervisor refuse the user, for ten seconds at
 * most, and none goes without having been tried.
 */
static struct prog_session *session_of_b(int on, uint8_t jobid[PROG_JOBID_SIZE])
{
	uint64_t end = nodes_now() + 60 * SEC;
	struct prog_session *s;

	while (!(s = try_session(on, jobid)) && nodes_now() < end)
		usleep(100000);
	return s;
}

static pid_t own_engine(struct prog_session *s)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	char path[64], line[512];
	pid_t found = 0;
	FILE *f;

	/* the socket's other end is the supervisor's, so it is looked for */
	MUST(!getsockopt(s->sock, SOL_SOCKET, SO_PEERCRED, &peer, &len));
	f = popen("ps -o pid=,args= -u 65533", "r");
	MUST(f);
	while (fgets(line, sizeof(line), f))
		if (strstr(line, "--engine") && strstr(line, node[0].sock))
			found = atoi(line);
	pclose(f);
	snprintf(path, sizeof(path), "/proc/%d", (int)found);
	MUST(found && !access(path, F_OK));
	return found;
}

/* @from: an address of this machine's in the host's order; 0: any. */
static int tcp_from(uint32_t from, int which)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(from) };
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = known.addr[which].port };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(&sin.sin_addr, known.addr[which].ip, 4);
	if (fd >= 0 && ((from && bind(fd, (struct sockaddr *)&own, sizeof(own))) ||
			connect(fd, (struct sockaddr *)&sin, sizeof(sin)))) {
		close(fd);
		return -1;
	}
	return fd;
}

static int tcp_to_victim(int which)
{
	return tcp_from(0, which);
}

static void many_files(void)
{
	struct rlimit rl = { 0 };

	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
}

/* Once, and then again and again in a process of its own. */
static void go_on(void (*once)(void *ctx), void *ctx)
{
	pid_t pid;

	once(ctx);
	pid = fork();
	MUST(pid >= 0);
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		once(ctx);
}

/* ---- attacks: the other's processes ------------------------------------------------------------------------- */

/* All that a process can do to another must be refused. */
static void attack_process(pid_t pid, bool may_kill)
{
	struct sched_param sp = { 0 };
	struct rlimit rl = { 0, 0 };
	char path[64], buf[8];
	struct iovec here = { buf, sizeof(buf) }, there = { (void *)0x400000, sizeof(buf) };
	static const char *const files[] = { "mem", "maps", "environ", "fd", "auxv", "syscall", "stack" };
	cpu_set_t cpus;
	int pidfd;

	MUST(pid > 0);
	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i]);
		MUST(open(path, O_RDONLY) < 0 && (errno == EACCES || errno == EPERM));
	}
	MUST(ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0 && errno == EPERM);
	MUST(process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 && errno == EPERM);
	pidfd = pidfd_open(pid, 0);
	MUST(pidfd >= 0);
	for (int fd = 0; fd < 16; fd++)
		MUST(pidfd_getfd(pidfd, fd, 0) < 0 && errno == EPERM);
	close(pidfd);
	if (may_kill)
		return;
	MUST(kill(pid, SIGSTOP) < 0 && errno == EPERM);
	MUST(kill(pid, SIGKILL) < 0 && errno == EPERM);
	MUST(sched_setaffinity(pid, sizeof(cpus), &cpus) < 0 && errno == EPERM);
	MUST(sched_setscheduler(pid, SCHED_IDLE, &sp) < 0 && errno == EPERM);
	MUST(setpriority(PRIO_PROCESS, pid, 19) < 0 && errno == EPERM);
	MUST(prlimit(pid, RLIMIT_NOFILE, &rl, NULL) < 0 && errno == EPERM);
}

static void attack_processes(void)
{
	attack_process(known.supervisor, false);
	attack_process(known.engine[0], false);
	attack_process(known.engine[1], false);
	attack_process(known.pid, false);
}

/* Of its own engine it can be the end, not the reader: that has descriptors of the devices and the network. */
static void attack_own_engine(void)
{
	struct prog_session *s = session_of_b(0, NULL);

	MUST(s);
	attack_process(own_engine(s), true);
}

/* ---- attacks: the node's sockets ----------------------------------------------------------------------------- */

static int raw(const char *suffix)
{
	char path[256];

	snprintf(path, sizeof(path), "%s%s", node[0].sock, suffix);
	return nodes_connect(path, SOCK_SEQPACKET);
}

static void attack_places(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char path[sizeof(node[0].sock) + 32];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	MUST(raw(".node") < 0 && errno == EACCES);
	MUST(unlink(node[0].sock) < 0 && errno == EACCES);
	snprintf(path, sizeof(path), "%s.other", node[0].sock);
	MUST(rename(node[0].sock, path) < 0 && errno == EACCES);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%.*s~", (int)sizeof(sa.sun_path) - 2, node[0].sock);
	MUST(bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 && errno == EACCES);
	snprintf(path, sizeof(path), "%s.records/%u", node[0].sock, USER_A);
	MUST(open(path, O_RDWR) < 0 && errno == EACCES);
}

/* What an engine says to its supervisor, said by somebody else; with a descriptor to be closed. */
static void attack_channel(void)
{
	static const uint16_t types[] = { SUPER_READY, SUPER_TAKEN, SUPER_LEAVE, SUPER_CHANNEL, 77 };
	struct super_msg m = { 0 };
	struct iovec iov = { &m, sizeof(m) };
	SCM_BUF(1) ctl;
	char buf[64];

	for (int i = 0; i < 200; i++) {
		struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
		int fd = raw(SUPER_SOCKET), sent = open("/dev/null", O_RDONLY);

		MUST(fd >= 0);
		m.type = types[i % 5];
		m.id = i;
		scm_attach(&mh, ctl.buf, &sent, 1);
		if (sendmsg(fd, &mh, MSG_NOSIGNAL) < 0)
			MUST(errno == EPIPE || errno == ECONNRESET);
		close(sent);
		MUST(recv(fd, buf, sizeof(buf), 0) <= 0);
		close(fd);
	}
}

/* It cannot ask for another user's engine, and nobody waits for what it says. */
static void attack_control(void)
{
	static const char *const words[] = { "list", "engine 65532", "drain", "{\"cmd\":\"status\",\"uid\":65532}", "reload" };
	struct prog_session *s = session_of_b(0, NULL);
	char buf[4096], victim[32];
	ssize_t n;

	MUST(s);
	snprintf(victim, sizeof(victim), "\"uid\":%u", USER_A);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		int fd = raw(".ctl");

		MUST(fd >= 0);
		MUST(send(fd, words[i], strlen(words[i]), MSG_NOSIGNAL) > 0);
		n = recv(fd, buf, sizeof(buf) - 1, 0);
		buf[n > 0 ? n : 0] = '\0';
		MUST(!strstr(buf, victim));
		close(fd);
	}
	for (int i = 0; i < 300; i++)
		MUST(raw(".ctl") >= 0);
}

static void attack_connections(void)
{
	many_files();
	/* held, and nothing is said; the last of them wait at the listener */
	for (int i = 0; i < 3000; i++)
		MUST(raw("") >= 0);
}

static void come_and_go(void *ctx)
{
	int fd = raw(ctx);

	MUST(fd >= 0);
	close(fd);
}

static void attack_coming_and_going(void)
{
	go_on(come_and_go, "");
}

static void attack_asking(void)
{
	MUST(session_of_b(0, NULL));
	go_on(come_and_go, ".ctl");
}

static void attack_coming_back(void)
{
	go_on(come_and_go, SUPER_SOCKET);
}

/* ---- attacks: its own engine ---------------------------------------------------------------------------------- */

static void attack_crashes(void)
{
	/* until it is refused */
	for (int i = 0; i < 20; i++) {
		struct prog_session *s = try_session(0, NULL);

		if (!s)
			return;
		MUST(!kill(own_engine(s), SIGKILL));
		prog_session_close(s);
	}
}

static void crash(void *ctx)
{
	struct prog_session *s = try_session(0, NULL);

	/* one that has just ended may have been given the connection */
	if (!s)
		return;
	kill(own_engine(s), SIGKILL);
	prog_session_close(s);
}

static void attack_crashing(void)
{
	go_on(crash, NULL);
}

/* What any process of its may do; not an attack, but what those are to be compared with. */
static void spin(void *ctx)
{
	for (volatile unsigned int i = 0; i < 1000000; i++)
		;
}

static void attack_spinning(void)
{
	go_on(spin, NULL);
	go_on(spin, NULL);
}

/* Its workers have always something to look at, with the priority that workers have. */
static void keep_busy(void *ctx)
{
	struct prog_session **s = ctx;

	for (int i = 0; i < 2; i++)
		eventfd_write(s[i]->kick[0], 1);
}

static void attack_busy(void)
{
	static struct prog_session *s[2];

	for (int i = 0; i < 2; i++) {
		s[i] = session_of_b(i, NULL);
		MUST(s[i]);
	}
	go_on(keep_busy, s);
}

static void attack_stopped(void)
{
	struct prog_session *s = session_of_b(0, NULL);

	many_files();
	MUST(s);
	MUST(!kill(own_engine(s), SIGSTOP));
	for (int i = 0; i < 2000; i++)
		MUST(raw("") >= 0);
}

static void attack_garbage(void)
{
	struct prog_session *s = session_of_b(0, NULL);
	char byte;

	MUST(s);
	for (uint32_t i = 0; i < s->hdr->slots; i++)
		MUST(getrandom((char *)s->hdr + s->hdr->sqe_off + 64 * i, 64, 0) == 64);
	for (unsigned int w = 0; w < s->workers; w++) {
		struct prog_sq *sq = (struct prog_sq *)((char *)s->hdr + s->hdr->sq_off) + w;

		__atomic_store_n(&sq->tail, sq->head + 64, __ATOMIC_RELEASE);
		eventfd_write(s->kick[w], 1);
	}
	/* it is found out and ended */
	MUST(recv(s->sock, &byte, 1, 0) <= 0);
}

/* It takes its wake-ups away from the worker, which must not wait for one. */
static void attack_wakeups(void)
{
	struct prog_session *s = session_of_b(0, NULL);
	eventfd_t v;

	MUST(s);
	MUST(!fcntl(s->kick[0], F_SETFL, fcntl(s->kick[0], F_GETFL) & ~O_NONBLOCK));
	for (int i = 0; i < 20000; i++) {
		MUST(!eventfd_write(s->kick[0], 1));
		fcntl(s->kick[0], F_SETFL, O_NONBLOCK);
		eventfd_read(s->kick[0], &v);
		fcntl(s->kick[0], F_SETFL, 0);
	}
	MUST(!prog_session_ping(s));
}

static void attack_quota(void)
{
	unsigned int n = 0;

	many_files();
	MUST(session_of_b(0, NULL));
	while (n < 2000 && try_session(0, NULL))
		n++;
	MUST(n >= 64);
	printf("# %u sessions\n", n);
}

/* ---- attacks: lanes -------------------------------------------------------------------------------------------- */

/* Strangers on the network: connections to the victim's engines that stay silent. */
static void attack_silent_lanes(void)
{
	many_files();
	for (int i = 0; i < 1500; i++)
		MUST(tcp_to_victim(1) >= 0);
	for (int i = 0; i < 200; i++)
		MUST(tcp_to_victim(0) >= 0);
}

/* Somebody has very many addresses: again and again two connections from each, which stay as long as they may. */
static void come_from(void *ctx)
{
	static int fd[5000];
	static uint32_t at;
	unsigned int i = at % 5000;

	if (fd[i] > 0)
		close(fd[i]);
	fd[i] = tcp_from(0x7f000100 + at / 2 % 0xffff00, at / 2 % 2);
	at++;
}

static void attack_addresses(void)
{
	many_files();
	for (int i = 0; i < 5000; i++)
		come_from(NULL);
	go_on(come_from, NULL);
}

static ssize_t frame(int fd, uint8_t type, uint32_t job, const void *payload, uint32_t len)
{
	struct wire_hdr h = { .type = type, .len = htole32(len), .job = htole32(job) };
	struct iovec iov[2] = { { &h, sizeof(h) }, { (void *)(uintptr_t)payload, len } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };

	return sendmsg(fd, &mh, MSG_NOSIGNAL);
}

struct first {
	struct wire_hello hello;
	struct wire_hello_lane lane;
};

/* HELLO of node @from to node @to. */
static struct first first_of(int from, int to, uint16_t kind)
{
	struct first f = {
		.hello = { .magic = htole32(WIRE_MAGIC), .version = htole16(WIRE_VERSION) },
		.lane = { .kind = htole16(kind) },
	};

	f.lane.dialled_port = htole32(ntohs(known.addr[to].port));
	memcpy(f.lane.dialled, known.addr[to].ip, sizeof(f.lane.dialled));
	memcpy(f.hello.guid, known.guid[from], sizeof(f.hello.guid));
	memcpy(f.hello.dest_guid, known.guid[to], sizeof(f.hello.dest_guid));
	return f;
}

/* HELLOs to both engines of the victim's, many at a time; a connection ends when it is answered. */
static void greet(void *ctx)
{
	static int fd[GREETERS];
	static unsigned int at;
	struct first hello;
	char buf[4096];

	for (int i = 0; i < GREETERS; i++, at++) {
		if (fd[i] > 0) {
			/* or refused, or there was no port left for another one */
			recv(fd[i], buf, sizeof(buf), 0);
			setsockopt(fd[i], SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
			close(fd[i]);
		}
		fd[i] = tcp_to_victim(at % 2);
		hello = first_of(!(at % 2), at % 2, WIRE_LANE_NEW);
		getrandom(&hello.lane.id, sizeof(hello.lane.id), 0);
		if (fd[i] > 0)
			frame(fd[i], WIRE_HELLO, 0, &hello, sizeof(hello));
	}
}

static void attack_greeting(void)
{
	/* more than there may be at once of those who prove nothing */
	for (int i = 0; i < 2500 / GREETERS; i++)
		greet(NULL);
	go_on(greet, NULL);
	go_on(greet, NULL);
}

/* Somebody says to be the victim's other node, opens its job without the key, and sends frames of it. */
static void attack_impostor(void)
{
	struct first hello = first_of(0, 1, WIRE_LANE_NEW);
	struct wire_job_open open = { 0 };
	struct wire_job_auth auth = { 0 };
	char buf[4096];

	memcpy(open.jobid, known.jobid, sizeof(open.jobid));
	for (int i = 0; i < 50; i++) {
		int fd = tcp_to_victim(1);

		MUST(fd >= 0);
		MUST(frame(fd, WIRE_HELLO, 0, &hello, sizeof(hello)) > 0);
		MUST(recv(fd, buf, sizeof(buf), 0) > 0);
		frame(fd, WIRE_JOB_OPEN, 1, &open, sizeof(open));
		frame(fd, WIRE_JOB_PROOF, 1, &auth, sizeof(auth));
		for (uint8_t type = 16; type < 60; type++)
			frame(fd, type, 1, NULL, 0);
		frame(fd, WIRE_RMA_ACK, 1, buf, 32);
	}
}

/* Somebody goes on with lanes of the victim's, or asks for them, as either node, many times. */
static void attack_resume(void)
{
	for (int i = 0; i < 2000; i++) {
		int to = i % 2, fd = tcp_to_victim(to);
		struct first hello = first_of(i / 4 % 2 ? to : !to, to, i / 2 % 2 ? WIRE_LANE_RESUME : WIRE_LANE_ASK);
		char buf[512];

		MUST(fd >= 0);
		MUST(getrandom(&hello.lane.id, sizeof(hello.lane.id), 0) == sizeof(hello.lane.id));
		hello.lane.generation = htole64(i % 3 ? UINT64_MAX : (uint64_t)i);
		hello.lane.position = htole64(i % 5 ? UINT64_MAX : 0);
		MUST(frame(fd, WIRE_HELLO, 0, &hello, sizeof(hello)) > 0);
		/* some do not wait for the answer */
		MUST(i % 4 == 3 || recv(fd, buf, sizeof(buf), 0) > 0);
		close(fd);
	}
}

/* Its own job says that the victim's node is at its own address, and that the victim's addresses are another node. */
static void attack_claims(void)
{
	struct prog_session *s[2] = { session_of_b(0, NULL), NULL };
	int own = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);

	MUST(s[0] && !bind(own, (struct sockaddr *)&sin, sizeof(sin)) && !listen(own, 64) &&
	     !getsockname(own, (struct sockaddr *)&sin, &len));
	for (uint64_t key = 1; key <= 2; key++) {
		struct prog_win_cfg wc = { .kind = PROG_WIN_ALLOCATE, .key = key, .rank = 0, .nranks = 2, .size = SIZE };
		struct prog_endpoint all[2];
		struct prog_win *w;
		uint64_t v = 666, seq;
		struct prog_buf from = { &v, NULL, 8 };
		struct prog_dst at = { 1, 0, NULL, 8 };
		const char *why = "";
		uint8_t *p;

		MUST(!prog_win_open(s[0], &wc, &w));
		prog_win_endpoint(w, &all[0]);
		all[1] = all[0];
		/* rank 1 of the same window, elsewhere; see struct endpoint */
		((uint32_t *)all[1].bytes)[4] = 1;
		p = memmem(all[1].bytes, sizeof(all[1].bytes), s[0]->guid, PROG_GUID_SIZE);
		MUST(p);
		if (key == 1)
			memcpy(p, known.guid[1], PROG_GUID_SIZE);
		else
			MUST(getrandom(p, PROG_GUID_SIZE, 0) == PROG_GUID_SIZE);
		p = memmem(all[1].bytes, sizeof(all[1].bytes), &s[0]->addr[0], sizeof(s[0]->addr[0]));
		MUST(p);
		memcpy(p, &known.addr[1], sizeof(known.addr[1]));
		if (key == 1)
			memcpy(p + offsetof(struct prog_addr, port), &sin.sin_port, 2);
		MUST(!prog_win_connect(w, all, &why) && !prog_win_map(w, NULL));
		MUST(!prog_put(w, &from, &at, 0, &seq));
		if (key == 1)
			MUST(accept(own, NULL, NULL) >= 0);
		else
			MUST(prog_flush(w, 1) < 0 || prog_win_error(w, 1) < 0);
	}
}

/* The victim's job by its id, without its key. */
static void attack_job(void)
{
	struct prog_session *s = session_of_b(1, known.jobid);
	struct prog_win_cfg wc = { .kind = PROG_WIN_ALLOCATE, .key = 1, .rank = 1, .nranks = 2, .size = SIZE };
	struct prog_win *w;

	/* at its own engine there is no such job, so it can have one of that name */
	MUST(s && !prog_win_open(s, &wc, &w));
}

/* ---- attacks: what private daemons need ------------------------------------------------------------------------ */

static void attack_squat(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/tmp/asyncprog-%u", USER_A);
	MUST(!mkdir(path, 0777) || errno == EEXIST);
}

/* ---------------------------------------------------------------------------------------------------------------- */

struct attack {
	const char *name;
	void (*run)(void);
	bool new_lane;			/* the victim's engine has to make a lane while it is in force */
};

static const struct attack attacks[] = {
	{ "processes", attack_processes, false },
	{ "own engine", attack_own_engine, false },
	{ "places", attack_places, false },
	{ "channel", attack_channel, false },
	{ "control", attack_control, false },
	{ "connections", attack_connections, false },
	{ "crashes", attack_crashes, false },
	{ "stopped engine", attack_stopped, false },
	{ "garbage", attack_garbage, false },
	{ "wake-ups", attack_wakeups, false },
	{ "quota", attack_quota, false },
	{ "silent lanes", attack_silent_lanes, true },
	{ "impostor", attack_impostor, false },
	{ "resume", attack_resume, false },
	{ "claims", attack_claims, true },
	{ "job", attack_job, false },
	{ "squat", attack_squat, false },
	{ "spinning", attack_spinning, false },
	{ "coming and going", attack_coming_and_going, false },
	{ "asking", attack_asking, false },
	{ "coming back", attack_coming_back, false },
	{ "crashing", attack_crashing, false },
	{ "busy", attack_busy, false },
	{ "greeting", attack_greeting, true },
	{ "addresses", attack_addresses, true },
};

/* A process of the attacker's in which @a is in force. */
static pid_t attack_begin(const struct attack *a, int *hold)
{
	int ready[2], go[2];
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		close(go[1]);
		close(ready[0]);
		user_become(USER_B);
		a->run();
		if (write(ready[1], "r", 1) != 1 || read(go[0], &byte, 1))
			_exit(1);
		_exit(0);
	}
	close(ready[1]);
	close(go[0]);
	*hold = go[1];
	if (read(ready[0], &byte, 1) != 1)
		fail_msg("attack \"%s\" did not come about", a->name);
	close(ready[0]);
	return pid;
}

static void attack_end(pid_t pid, int hold)
{
	pid_t e;
	int st;

	close(hold);
	kill(pid, SIGKILL);
	waitpid(pid, &st, 0);
	/* its engine is stopped, or spoilt: the next attack has its own, and is not given to this one */
	for (int on = 0; on < 2; on++) {
		while ((e = user_engine(&node[on], USER_B))) {
			kill(e, SIGKILL);
			usleep(1000);
		}
	}
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Processor time of the victim's process and its engines, ns. */
static uint64_t victim_ran(void)
{
	pid_t pids[] = { known.pid, known.engine[0], known.engine[1] };
	unsigned long long sum = 0, v;
	struct dirent *e;
	char path[300];
	DIR *d;
	FILE *f;

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "/proc/%d/task", (int)pids[i]);
		d = opendir(path);
		assert_non_null(d);
		while ((e = readdir(d))) {
			snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pids[i], e->d_name);
			f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
			if (f && fscanf(f, "%llu", &v) == 1)
				sum += v;
			if (f)
				fclose(f);
		}
		closedir(d);
	}
	return sum;
}

/* The victim's work in one round of a measurement: long enough for what others cost to show. */
static void work_measured(uint64_t *took, uint64_t *ran)
{
	uint64_t before = victim_ran();

	for (int i = 0; i < WORKS; i++) {
		victim_tell('w');
		*took += victim_hear().took;
	}
	*ran += victim_ran() - before;
}

static void measure(const struct attack *a, unsigned int rounds)
{
	const struct attack spinning = { "spinning", attack_spinning, false };
	const struct attack *const in_force[] = { NULL, &spinning, a };
	uint64_t *took[3], ran[3] = { 0 };
	pid_t pid;
	int hold;

	for (int k = 0; k < 3; k++)
		took[k] = calloc(rounds, sizeof(**took));
	for (unsigned int i = 0; i < rounds; i++) {
		for (int k = 0; k < 3; k++) {
			pid = k ? attack_begin(in_force[k], &hold) : 0;
			work_measured(&took[k][i], &ran[k]);
			if (k)
				attack_end(pid, hold);
		}
	}
	for (int k = 0; k < 3; k++)
		qsort(took[k], rounds, sizeof(**took), by_size);
	print_message("# %-18s %8.2f ms alone, %8.2f beside processes that spin, %8.2f with: %.2f, %.2f; processor time of the "
		      "victim's %.2f, %.2f\n", a->name, took[0][rounds / 2] / 1e6, took[1][rounds / 2] / 1e6,
		      took[2][rounds / 2] / 1e6, (double)took[2][rounds / 2] / took[0][rounds / 2],
		      (double)took[2][rounds / 2] / took[1][rounds / 2], (double)ran[2] / ran[0], (double)ran[2] / ran[1]);
	for (int k = 0; k < 3; k++)
		free(took[k]);
}

static void test_attack(void **state)
{
	unsigned int rounds = atoi(getenv("HOSTILE_ROUNDS") ?: "0");
	const struct attack *a = *state;
	pid_t pid;
	int hold;

	known.engine[0] = user_engine(&node[0], USER_A);
	known.engine[1] = user_engine(&node[1], USER_A);
	assert_true(known.engine[0] && known.engine[1]);
	victim_tell('w');
	victim_hear();
	if (rounds)
		measure(a, rounds);
	pid = attack_begin(a, &hold);
	victim_does('w');
	victim_does('n');
	if (a->new_lane)
		victim_does('k');
	attack_end(pid, hold);
	victim_does('w');
	for (int on = 0; on < 2 && !a->new_lane; on++)
		assert_int_equal(user_engine(&node[on], USER_A), known.engine[on]);
}

/* ---------------------------------------------------------------------------------------------------------------- */

static int setup(void **state)
{
	static const char *const sets[] = { "log_level=info", "engine_linger=1h", "peer_timeout=2s", NULL };
	int to[2], from[2];

	if (users_begin() || pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		return -1;
	for (int i = 0; i < 2; i++)
		if (node_start_supervisor(&node[i], users_progd, sets))
			return -1;
	fflush(NULL);
	known.pid = fork();
	if (!known.pid) {
		close(to[1]);
		close(from[0]);
		user_become(USER_A);
		victim_main(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	to_victim = to[1];
	from_victim = from[0];
	known.supervisor = node[0].pid;
	victim_does('w');
	return 0;
}

static int teardown(void **state)
{
	int st;

	victim_tell('q');
	waitpid(known.pid, &st, 0);
	for (int i = 0; i < 2; i++) {
		node_progctl(&node[i], "drain");
		for (int k = 0; k < 1000 && *node_progctl(&node[i], "engines"); k++)
			usleep(10000);
		if (node_stop(&node[i], SIGTERM))
			st = 1;
	}
	return users_end() || st ? -1 : 0;
}

static struct CMUnitTest tests[sizeof(attacks) / sizeof(attacks[0])];

static int begin(int argc, char **argv)
{
	if (geteuid())
		kit_skip("needs root, to be several users");
	for (size_t i = 0; i < kit_suite.ntests; i++)
		tests[i] = (struct CMUnitTest){
			.name = attacks[i].name, .test_func = test_attack, .initial_state = (void *)(uintptr_t)&attacks[i],
		};
	return 0;
}

KIT_SUITE(tests, .begin = begin, .setup = setup, .teardown = teardown);

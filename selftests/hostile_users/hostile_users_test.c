// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * What a user does to another one's processes and engines, to the node's service, to his own engine, and to the other's lanes: see
 * kit/hostile.h.  What an attack holds stays until the victim has been looked at; or it goes on by itself meanwhile.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <kit/hostile.h>
#include <libprogbase/scm.h>
#include <wire/super.h>

#define GREETERS	64		/* connections of a process that greets */

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
	attack_process(hostile.supervisor, false);
	attack_process(hostile.engine[0], false);
	attack_process(hostile.engine[1], false);
	attack_process(hostile.pid, false);
}

/* Of its own engine it can be the end, not the reader: that has descriptors of the devices and the network. */
static void attack_own_engine(void)
{
	struct prog_session *s = hostile_session(0, NULL);

	MUST(s);
	attack_process(hostile_own_engine(s), true);
}

/* ---- attacks: the node's sockets ----------------------------------------------------------------------------- */

static void attack_places(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char path[sizeof(hostile.node[0].sock) + 32];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	MUST(hostile_connect(".node") < 0 && errno == EACCES);
	MUST(unlink(hostile.node[0].sock) < 0 && errno == EACCES);
	snprintf(path, sizeof(path), "%s.other", hostile.node[0].sock);
	MUST(rename(hostile.node[0].sock, path) < 0 && errno == EACCES);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%.*s~", (int)sizeof(sa.sun_path) - 2, hostile.node[0].sock);
	MUST(bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 && errno == EACCES);
	snprintf(path, sizeof(path), "%s.records/%u", hostile.node[0].sock, USER_A);
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
		int fd = hostile_connect(SUPER_SOCKET), sent = open("/dev/null", O_RDONLY);

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
	struct prog_session *s = hostile_session(0, NULL);
	char buf[4096], victim[32];
	ssize_t n;

	MUST(s);
	snprintf(victim, sizeof(victim), "\"uid\":%u", USER_A);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		int fd = hostile_connect(".ctl");

		MUST(fd >= 0);
		MUST(send(fd, words[i], strlen(words[i]), MSG_NOSIGNAL) > 0);
		n = recv(fd, buf, sizeof(buf) - 1, 0);
		buf[n > 0 ? n : 0] = '\0';
		MUST(!strstr(buf, victim));
		close(fd);
	}
	for (int i = 0; i < 300; i++)
		MUST(hostile_connect(".ctl") >= 0);
}

static void attack_connections(void)
{
	hostile_many_files();
	/* held, and nothing is said; the last of them wait at the listener */
	for (int i = 0; i < 3000; i++)
		MUST(hostile_connect("") >= 0);
}

static void come_and_go(void *ctx)
{
	int fd = hostile_connect(ctx);

	MUST(fd >= 0);
	close(fd);
}

static void attack_coming_and_going(void)
{
	hostile_go_on(come_and_go, "");
}

static void attack_asking(void)
{
	MUST(hostile_session(0, NULL));
	hostile_go_on(come_and_go, ".ctl");
}

static void attack_coming_back(void)
{
	hostile_go_on(come_and_go, SUPER_SOCKET);
}

/* ---- attacks: its own engine ---------------------------------------------------------------------------------- */

static void attack_crashes(void)
{
	/* until it is refused */
	for (int i = 0; i < 20; i++) {
		struct prog_session *s = hostile_try_session(0, NULL);

		if (!s)
			return;
		MUST(!kill(hostile_own_engine(s), SIGKILL));
		prog_session_close(s);
	}
}

static void crash(void *ctx)
{
	struct prog_session *s = hostile_try_session(0, NULL);

	/* one that has just ended may have been given the connection */
	if (!s)
		return;
	kill(hostile_own_engine(s), SIGKILL);
	prog_session_close(s);
}

static void attack_crashing(void)
{
	hostile_go_on(crash, NULL);
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
		s[i] = hostile_session(i, NULL);
		MUST(s[i]);
	}
	hostile_go_on(keep_busy, s);
}

static void attack_stopped(void)
{
	struct prog_session *s = hostile_session(0, NULL);

	hostile_many_files();
	MUST(s);
	MUST(!kill(hostile_own_engine(s), SIGSTOP));
	for (int i = 0; i < 2000; i++)
		MUST(hostile_connect("") >= 0);
}

static void attack_garbage(void)
{
	struct prog_session *s = hostile_session(0, NULL);
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
	struct prog_session *s = hostile_session(0, NULL);
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

	hostile_many_files();
	MUST(hostile_session(0, NULL));
	while (n < 2000 && hostile_try_session(0, NULL))
		n++;
	MUST(n >= 64);
	printf("# %u sessions\n", n);
}

/* ---- attacks: lanes -------------------------------------------------------------------------------------------- */

/* Strangers on the network: connections to the victim's engines that stay silent. */
static void attack_silent_lanes(void)
{
	hostile_many_files();
	for (int i = 0; i < 1500; i++)
		MUST(hostile_tcp(1) >= 0);
	for (int i = 0; i < 200; i++)
		MUST(hostile_tcp(0) >= 0);
}

/* Somebody has very many addresses: again and again two connections from each, which stay as long as they may. */
static void come_from(void *ctx)
{
	static int fd[5000];
	static uint32_t at;
	unsigned int i = at % 5000;

	if (fd[i] > 0)
		close(fd[i]);
	fd[i] = hostile_tcp_from(0x7f000100 + at / 2 % 0xffff00, at / 2 % 2);
	at++;
}

static void attack_addresses(void)
{
	hostile_many_files();
	for (int i = 0; i < 5000; i++)
		come_from(NULL);
	hostile_go_on(come_from, NULL);
}

/* A connection to node @to, on which a new lane's HELLO of the other one was said; < 0: there is none. */
static int greeted(int to)
{
	struct hostile_hello hello = hostile_hello(!to, to, WIRE_LANE_NEW);
	int fd = hostile_tcp(to);

	getrandom(&hello.lane.id, sizeof(hello.lane.id), 0);
	if (fd > 0)
		hostile_frame(fd, WIRE_HELLO, 0, &hello, sizeof(hello));
	return fd;
}

/* HELLOs to both engines of the victim's, many at a time; a connection ends when it is answered. */
static void greet(void *ctx)
{
	static int fd[GREETERS];
	static unsigned int at;
	char buf[4096];

	for (int i = 0; i < GREETERS; i++, at++) {
		if (fd[i] > 0) {
			/* or refused, or there was no port left for another one */
			recv(fd[i], buf, sizeof(buf), 0);
			setsockopt(fd[i], SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
			close(fd[i]);
		}
		fd[i] = greeted(at % 2);
	}
}

static void attack_greeting(void)
{
	/* more than there may be at once of those who prove nothing */
	for (int i = 0; i < 2500 / GREETERS; i++)
		greet(NULL);
	hostile_go_on(greet, NULL);
	hostile_go_on(greet, NULL);
}

/* Lanes that prove nothing, and on which as much is said as they take: pings, and the victim's job that is asked for. */
static void chatter(void *ctx)
{
	static uint8_t bytes[64 * 1024];
	static size_t len, said[GREETERS];
	static int fd[GREETERS];
	static unsigned int at;
	struct wire_job_open open = { 0 };
	struct wire_hdr ping = { .type = WIRE_PING };
	struct wire_hdr ask = { .type = WIRE_JOB_OPEN, .len = htole32(sizeof(open)), .job = htole32(1) };
	char buf[4096];

	memcpy(open.jobid, hostile.jobid, sizeof(open.jobid));
	while (len + sizeof(ping) + sizeof(ask) + sizeof(open) <= sizeof(bytes)) {
		memcpy(bytes + len, &ping, sizeof(ping));
		memcpy(bytes + len + sizeof(ping), &ask, sizeof(ask));
		memcpy(bytes + len + sizeof(ping) + sizeof(ask), &open, sizeof(open));
		len += sizeof(ping) + sizeof(ask) + sizeof(open);
	}
	for (int i = 0; i < GREETERS; i++, at++) {
		ssize_t n = fd[i] > 0 ? send(fd[i], bytes + said[i], len - said[i], MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

		if (n > 0) {
			said[i] = (said[i] + n) % len;
		} else if (fd[i] > 0 && errno != EAGAIN) {
			close(fd[i]);
			fd[i] = 0;
		}
		while (fd[i] > 0 && recv(fd[i], buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
		if (fd[i] > 0)
			continue;
		said[i] = 0;
		fd[i] = greeted(at % 2);
	}
}

static void attack_chatter(void)
{
	hostile_go_on(chatter, NULL);
}

/* Somebody says to be the victim's other node, opens its job without the key, and sends frames of it. */
static void attack_impostor(void)
{
	struct hostile_hello hello = hostile_hello(0, 1, WIRE_LANE_NEW);
	struct wire_job_open open = { 0 };
	struct wire_job_auth auth = { 0 };
	char buf[4096];

	memcpy(open.jobid, hostile.jobid, sizeof(open.jobid));
	for (int i = 0; i < 50; i++) {
		int fd = hostile_tcp(1);

		MUST(fd >= 0);
		MUST(hostile_frame(fd, WIRE_HELLO, 0, &hello, sizeof(hello)) > 0);
		MUST(recv(fd, buf, sizeof(buf), 0) > 0);
		hostile_frame(fd, WIRE_JOB_OPEN, 1, &open, sizeof(open));
		hostile_frame(fd, WIRE_JOB_PROOF, 1, &auth, sizeof(auth));
		for (uint8_t type = 16; type < 60; type++)
			hostile_frame(fd, type, 1, NULL, 0);
		hostile_frame(fd, WIRE_RMA_ACK, 1, buf, 32);
	}
}

/* Somebody goes on with lanes of the victim's, or asks for them, as either node, many times. */
static void attack_resume(void)
{
	for (int i = 0; i < 2000; i++) {
		int to = i % 2, fd = hostile_tcp(to);
		struct hostile_hello hello = hostile_hello(i / 4 % 2 ? to : !to, to, i / 2 % 2 ? WIRE_LANE_RESUME : WIRE_LANE_ASK);
		char buf[512];

		MUST(fd >= 0);
		MUST(getrandom(&hello.lane.id, sizeof(hello.lane.id), 0) == sizeof(hello.lane.id));
		hello.lane.generation = htole64(i % 3 ? UINT64_MAX : (uint64_t)i);
		hello.lane.position = htole64(i % 5 ? UINT64_MAX : 0);
		MUST(hostile_frame(fd, WIRE_HELLO, 0, &hello, sizeof(hello)) > 0);
		/* some do not wait for the answer */
		MUST(i % 4 == 3 || recv(fd, buf, sizeof(buf), 0) > 0);
		close(fd);
	}
}

/* Its own job says that the victim's node is at its own address, and that the victim's addresses are another node. */
static void attack_claims(void)
{
	struct prog_session *s[2] = { hostile_session(0, NULL), NULL };
	int own = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);

	MUST(s[0] && !bind(own, (struct sockaddr *)&sin, sizeof(sin)) && !listen(own, 64) &&
	     !getsockname(own, (struct sockaddr *)&sin, &len));
	for (uint64_t key = 1; key <= 2; key++) {
		struct prog_win_cfg wc = { .kind = PROG_WIN_ALLOCATE, .key = key, .rank = 0, .nranks = 2, .size = HOSTILE_SIZE };
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
			memcpy(p, hostile.guid[1], PROG_GUID_SIZE);
		else
			MUST(getrandom(p, PROG_GUID_SIZE, 0) == PROG_GUID_SIZE);
		p = memmem(all[1].bytes, sizeof(all[1].bytes), &s[0]->addr[0], sizeof(s[0]->addr[0]));
		MUST(p);
		memcpy(p, &hostile.addr[1], sizeof(hostile.addr[1]));
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
	struct prog_session *s = hostile_session(1, hostile.jobid);
	struct prog_win_cfg wc = { .kind = PROG_WIN_ALLOCATE, .key = 1, .rank = 1, .nranks = 2, .size = HOSTILE_SIZE };
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

static const struct hostile_attack attacks[] = {
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
	{ "spinning", hostile_spin, false },
	{ "coming and going", attack_coming_and_going, false },
	{ "asking", attack_asking, false },
	{ "coming back", attack_coming_back, false },
	{ "crashing", attack_crashing, false },
	{ "busy", attack_busy, false },
	{ "greeting", attack_greeting, true },
	{ "chatter", attack_chatter, true },
	{ "addresses", attack_addresses, true },
};

HOSTILE_SUITE(attacks, NULL);

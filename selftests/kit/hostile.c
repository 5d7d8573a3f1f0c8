// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "hostile.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define ROUNDS	50
#define WORKS_NS	SEC		/* it works again and again for so long, for a figure */
#define SLOW	(5 * SEC)		/* no call of the victim's takes this long, however busy the machine */

struct hostile hostile;

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
		struct prog_session_cfg c = { .flags = PROG_SESSION_NO_HELPER, .rank = i, .socket = hostile.node[i].sock };
		struct prog_win_cfg wc = { .kind = PROG_WIN_ALLOCATE, .key = 1, .rank = i, .nranks = 2, .size = HOSTILE_SIZE };
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
	memcpy(hostile.guid, n.guid, sizeof(hostile.guid));
	memcpy(hostile.jobid, n.jobid, sizeof(hostile.jobid));
	memcpy(hostile.addr, n.addr, sizeof(hostile.addr));
	return n;
}

/* It does what it is told, without error and soon. */
static void victim_does(char cmd)
{
	struct news n;

	victim_tell(cmd);
	if (cmd == 'k')
		assert_int_equal(write(to_victim, &hostile.engine[0], sizeof(pid_t)), sizeof(pid_t));
	n = victim_hear();
	if (n.why[0] || n.longest > SLOW)
		fail_msg("victim (%c): %s, %.1f s\n%s", cmd, n.why, n.longest / 1e9, node_log(&hostile.node[0]));
}

/* ---- what attackers use ------------------------------------------------------------------------------------- */

struct prog_session *hostile_try_session(int on, uint8_t jobid[PROG_JOBID_SIZE])
{
	struct prog_session_cfg c = { .flags = PROG_SESSION_NO_HELPER, .socket = hostile.node[on].sock };
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

struct prog_session *hostile_session(int on, uint8_t jobid[PROG_JOBID_SIZE])
{
	uint64_t end = nodes_now() + 60 * SEC;
	struct prog_session *s;

	while (!(s = hostile_try_session(on, jobid)) && nodes_now() < end)
		usleep(100000);
	return s;
}

pid_t hostile_own_engine(struct prog_session *s)
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
		if (strstr(line, "--engine") && strstr(line, hostile.node[0].sock))
			found = atoi(line);
	pclose(f);
	snprintf(path, sizeof(path), "/proc/%d", (int)found);
	MUST(found && !access(path, F_OK));
	return found;
}

int hostile_tcp_from(uint32_t from, int which)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(from) };
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = hostile.addr[which].port };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(&sin.sin_addr, hostile.addr[which].ip, 4);
	if (fd >= 0 && ((from && bind(fd, (struct sockaddr *)&own, sizeof(own))) ||
			connect(fd, (struct sockaddr *)&sin, sizeof(sin)))) {
		close(fd);
		return -1;
	}
	return fd;
}

int hostile_tcp(int which)
{
	return hostile_tcp_from(0, which);
}

void hostile_many_files(void)
{
	struct rlimit rl = { 0 };

	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
}

void hostile_go_on(void (*once)(void *ctx), void *ctx)
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

/* ---- the node's sockets */
int hostile_connect(const char *suffix)
{
	char path[256];

	snprintf(path, sizeof(path), "%s%s", hostile.node[0].sock, suffix);
	return nodes_connect(path, SOCK_SEQPACKET);
}

ssize_t hostile_frame(int fd, uint8_t type, uint32_t job, const void *payload, uint32_t len)
{
	struct wire_hdr h = { .type = type, .len = htole32(len), .job = htole32(job) };
	struct iovec iov[2] = { { &h, sizeof(h) }, { (void *)(uintptr_t)payload, len } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };

	return sendmsg(fd, &mh, MSG_NOSIGNAL);
}

struct hostile_hello hostile_hello(int from, int to, uint16_t kind)
{
	struct hostile_hello f = {
		.hello = { .magic = htole32(WIRE_MAGIC), .version = htole16(WIRE_VERSION) },
		.lane = { .kind = htole16(kind) },
	};

	f.lane.dialled_port = htole32(ntohs(hostile.addr[to].port));
	memcpy(f.lane.dialled, hostile.addr[to].ip, sizeof(f.lane.dialled));
	memcpy(f.hello.guid, hostile.guid[from], sizeof(f.hello.guid));
	memcpy(f.hello.dest_guid, hostile.guid[to], sizeof(f.hello.dest_guid));
	return f;
}

static void spin(void *ctx)
{
	for (volatile unsigned int i = 0; i < 1000000; i++)
		;
}

void hostile_spin(void)
{
	hostile_go_on(spin, NULL);
	hostile_go_on(spin, NULL);
}

/* A process of the attacker's in which @a is in force. */
static pid_t attack_begin(const struct hostile_attack *a, int *hold)
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

static void engines_of_attacker_end(void)
{
	pid_t e;

	for (int on = 0; on < 2; on++) {
		while ((e = user_engine(&hostile.node[on], USER_B))) {
			kill(e, SIGKILL);
			usleep(1000);
		}
	}
}

static void attack_end(pid_t pid, int hold)
{
	int st;

	close(hold);
	kill(pid, SIGKILL);
	waitpid(pid, &st, 0);
	/* its engine is stopped, or spoilt: the next attack has its own, and is not given to this one */
	engines_of_attacker_end();
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Processor time of the victim's process and its engines, ns. */
static uint64_t victim_ran(void)
{
	pid_t pids[] = { hostile.pid, hostile.engine[0], hostile.engine[1] };
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

enum { ALONE, BESIDE_SPINNERS, ATTACKED, WAYS };
#define NODES	2

/* One round of a measurement, ns for each time that it works. */
struct round {
	uint64_t took[WAYS], ran[WAYS];
};

/* The victim's work in one way: long enough for what others cost to show. */
static void work_measured(struct round *r, int way)
{
	uint64_t before = victim_ran(), took = 0;
	unsigned int n;

	for (n = 0; took < WORKS_NS; n++) {
		victim_tell('w');
		took += victim_hear().took;
	}
	r->took[way] = took / n;
	r->ran[way] = (victim_ran() - before) / n;
}

static uint64_t middle(const uint64_t *v, size_t stride, unsigned int n)
{
	uint64_t sorted[n];

	for (unsigned int i = 0; i < n; i++)
		sorted[i] = *(const uint64_t *)((const char *)v + i * stride);
	qsort(sorted, n, sizeof(*sorted), by_size);
	return sorted[n / 2];
}

static int by_share(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/*
 * What the attack costs the victim on a node, in processor time that it and its engine need more for the same work, as a share of the time
 * that this takes, in %; compared with work beside processes that spin, as anybody's may.
 */
static double lost(const struct round *r, unsigned int n)
{
	double sorted[n];

	for (unsigned int i = 0; i < n; i++)
		sorted[i] = ((double)r[i].ran[ATTACKED] - r[i].ran[BESIDE_SPINNERS]) / NODES / r[i].took[ATTACKED];
	qsort(sorted, n, sizeof(*sorted), by_share);
	return 100 * sorted[n / 2];
}

static void measure(const struct hostile_attack *a, unsigned int rounds)
{
	const struct hostile_attack spinning = { "spinning", hostile_spin, false };
	const struct hostile_attack *const in_force[WAYS] = { NULL, &spinning, a };
	const char *most = getenv("HOSTILE_MOST");
	struct round *r = calloc(rounds, sizeof(*r));
	double took[WAYS], ran[WAYS], share;
	pid_t pid;
	int hold;

	assert_non_null(r);
	for (unsigned int i = 0; i < rounds; i++) {
		for (int way = 0; way < WAYS; way++) {
			pid = way ? attack_begin(in_force[way], &hold) : 0;
			/* strangers may have much at first, and then a little all the time */
			work_measured(&r[i], way);
			work_measured(&r[i], way);
			if (way)
				attack_end(pid, hold);
		}
	}
	for (int way = 0; way < WAYS; way++) {
		took[way] = middle(&r[0].took[way], sizeof(*r), rounds);
		ran[way] = middle(&r[0].ran[way], sizeof(*r), rounds);
	}
	share = lost(r, rounds);
	print_message("# %-18s %8.2f ms alone, %8.2f beside processes that spin, %8.2f with: %.2f, %.2f; processor time of the "
		      "victim's %.2f, %.2f; lost %.1f %%\n", a->name, took[ALONE] / 1e6, took[BESIDE_SPINNERS] / 1e6,
		      took[ATTACKED] / 1e6, took[ATTACKED] / took[ALONE], took[ATTACKED] / took[BESIDE_SPINNERS],
		      ran[ATTACKED] / ran[ALONE], ran[ATTACKED] / ran[BESIDE_SPINNERS], share);
	free(r);
	if (most && share > atof(most))
		fail_msg("%.1f %% of the time are lost, at most %s wanted", share, most);
}

static unsigned int entries(const char *dir, const char *prefix)
{
	unsigned int n = 0;
	struct dirent *e;
	DIR *d = opendir(dir);

	assert_non_null(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
	closedir(d);
	return n;
}

static unsigned int open_files(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	return entries(path, "");
}

static unsigned int children(pid_t pid)
{
	char path[64], word[32];
	unsigned int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fscanf(f, "%31s", word) == 1)
		n++;
	fclose(f);
	return n;
}

/* What the supervisor has, but for the ports of engines that have ended, which it keeps for a while; and the victim's engines. */
struct had {
	unsigned int files, children, engine[2];
};

static struct had had_now(bool engines)
{
	struct had h = { .files = open_files(hostile.supervisor), .children = children(hostile.supervisor) };
	char path[160];

	snprintf(path, sizeof(path), "%s.records", hostile.node[0].sock);
	h.files -= entries(path, "port ");
	for (int i = 0; i < 2 && engines; i++)
		h.engine[i] = open_files(hostile.engine[i]);
	return h;
}

/*
 * When nobody but the victim has an engine, and nothing changes: one may begin for an attacker who has gone, whose connection was not
 * looked at before.
 */
static struct had had_before(bool engines)
{
	uint64_t end = nodes_now() + 60 * SEC;
	struct had h = had_now(engines), last;

	do {
		assert_true(nodes_now() < end);
		engines_of_attacker_end();
		last = h;
		usleep(10000);
		h = had_now(engines);
	} while (h.children > 1 || memcmp(&h, &last, sizeof(h)));
	return h;
}

/* Of what attackers brought nothing is left, soon after they are gone. */
static void settles(const struct had *before, bool engines)
{
	uint64_t end = nodes_now() + 60 * SEC;
	struct had h;

	while (h = had_now(engines), h.files > before->files || h.children > before->children ||
	       h.engine[0] > before->engine[0] || h.engine[1] > before->engine[1]) {
		if (nodes_now() > end)
			fail_msg("open files of the supervisor %u, before %u; its children %u, %u; open files of engines %u, %u and %u, %u",
				 h.files, before->files, h.children, before->children, h.engine[0], before->engine[0], h.engine[1],
				 before->engine[1]);
		engines_of_attacker_end();
		usleep(10000);
	}
}

static void attacked(void **state)
{
	unsigned int rounds = atoi(getenv("HOSTILE_ROUNDS") ?: "0");
	const struct hostile_attack *a = *state;
	struct had before;
	pid_t pid;
	int hold;

	hostile.engine[0] = user_engine(&hostile.node[0], USER_A);
	hostile.engine[1] = user_engine(&hostile.node[1], USER_A);
	assert_true(hostile.engine[0] && hostile.engine[1]);
	victim_tell('w');
	victim_hear();
	if (rounds)
		measure(a, rounds);
	before = had_before(!a->new_lane);
	pid = attack_begin(a, &hold);
	victim_does('w');
	assert_string_equal(node_progctl(&hostile.node[0], "reload"), "");
	victim_does('n');
	if (a->new_lane)
		victim_does('k');
	attack_end(pid, hold);
	victim_does('w');
	settles(&before, !a->new_lane);
	for (int on = 0; on < 2 && !a->new_lane; on++)
		assert_int_equal(user_engine(&hostile.node[on], USER_A), hostile.engine[on]);
}

/* ---------------------------------------------------------------------------------------------------------------- */

int hostile_setup(const char *set)
{
	const char *const sets[] = { "log_level=info", "engine_linger=1h", "peer_timeout=2s", set, NULL };
	int to[2], from[2];

	if (users_begin() || pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		return -1;
	for (int i = 0; i < 2; i++)
		if (node_start_supervisor(&hostile.node[i], users_progd, sets))
			return -1;
	fflush(NULL);
	hostile.pid = fork();
	if (!hostile.pid) {
		close(to[1]);
		close(from[0]);
		user_become(USER_A);
		victim_main(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	to_victim = to[1];
	from_victim = from[0];
	hostile.supervisor = hostile.node[0].pid;
	victim_does('w');
	return 0;
}

int hostile_teardown(void **state)
{
	int st;

	victim_tell('q');
	waitpid(hostile.pid, &st, 0);
	for (int i = 0; i < 2; i++) {
		node_progctl(&hostile.node[i], "drain");
		for (int k = 0; k < 1000 && *node_progctl(&hostile.node[i], "engines"); k++)
			usleep(10000);
		if (node_stop(&hostile.node[i], SIGTERM))
			st = 1;
	}
	return users_end() || st ? -1 : 0;
}

int hostile_begin(const struct hostile_attack *a, struct CMUnitTest *tests, size_t n)
{
	if (geteuid())
		kit_skip("needs root, to be several users");
	for (size_t i = 0; i < n; i++)
		tests[i] = (struct CMUnitTest){
			.name = a[i].name, .test_func = attacked, .initial_state = (void *)(uintptr_t)&a[i],
		};
	return 0;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * One daemon and processes of several users: they are served one after the other, nothing of one is left
 * for the next, and the processes of a job find the same daemon whatever happens meanwhile.  Needs root.
 *
 * users_test --hold SOCKET: stay attached until standard input ends, for other tests.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kit/nodes.h>
#include <libprogclient/win.h>
#include <progclient.h>

#define USER_A	65534u
#define USER_B	65533u
#define RANKS	3u
#define ROUNDS	25u

struct answer {
	int err;
	uint8_t guid[PROG_GUID_SIZE];
	struct prog_addr addr;
	unsigned int eventfd_id;	/* of the first worker's wake-up, as the kernel counts them */
	char reason[256];
};

struct client {
	pid_t pid;
	int to, from;
};

static struct node node;
static char progd_copy[128];		/* where every user can run it */

/* ---- a process of a user ----------------------------------------------------------------------------- */

static unsigned int eventfd_id(const char *pid, const char *fd)
{
	char path[64], line[128];
	unsigned int id = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/fdinfo/%s", pid, fd);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "eventfd-id: %u", &id) == 1)
			break;
	if (f)
		fclose(f);
	return id;
}

static void client_main(int from, int to, uid_t uid, struct prog_session_cfg cfg)
{
	struct prog_session *s = NULL;
	char cmd, fd[16];

	if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		_exit(9);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_DUMPABLE, 1);
	while (read(from, &cmd, 1) == 1 && cmd != 'q') {
		struct answer a = { 0 };
		const char *why = "";

		if (cmd == 'o') {
			a.err = prog_session_open(&cfg, &s, &why);
			snprintf(a.reason, sizeof(a.reason), "%s", why);
		} else if (cmd == 'k') {	/* closes, and keeps what it was given */
			if (dup(s->kick[0]) < 0)
				_exit(8);
			prog_session_close(s);
			s = NULL;
		} else if (cmd == 'c') {
			prog_session_close(s);
			s = NULL;
		}
		if (s && !a.err) {
			memcpy(a.guid, s->guid, sizeof(a.guid));
			a.addr = s->addr[0];
			snprintf(fd, sizeof(fd), "%d", s->kick[0]);
			a.eventfd_id = eventfd_id("self", fd);
		}
		if (write(to, &a, sizeof(a)) != sizeof(a))
			_exit(7);
	}
	prog_session_close(s);
	_exit(0);
}

static void client_start(struct client *c, uid_t uid, const struct prog_session_cfg *like)
{
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_NO_HELPER };
	int to[2], from[2];

	if (like)
		cfg = *like;
	else
		assert_int_equal(prog_job_key_make(cfg.jobid, cfg.jobkey), 0);
	cfg.socket = node.sock;
	cfg.progd = progd_copy;
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

/* until the daemon knows that a client has gone, as it learns some time after it */
static void await_nobody(void)
{
	while (!strstr(node_progctl(&node, "--json status"), "\"now\": 0"))
		usleep(1000);
}

static bool daemon_has_eventfd(unsigned int id)
{
	char path[64], pid[16];
	struct dirent *e;
	bool found = false;
	DIR *d;

	snprintf(pid, sizeof(pid), "%d", (int)node.pid);
	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d)))
		found |= eventfd_id(pid, e->d_name) == id;
	closedir(d);
	return found;
}

static int dial(const struct prog_addr *a)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = a->port };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(&sin.sin_addr, a->ip, sizeof(sin.sin_addr));
	if (connect(fd, (struct sockaddr *)&sin, sizeof(sin))) {
		close(fd);
		return -errno;
	}
	return fd;
}

static unsigned int count(const char *text, const char *what)
{
	unsigned int n = 0;

	while ((text = strstr(text, what))) {
		text += strlen(what);
		n++;
	}
	return n;
}

static void start(const char *set)
{
	const char *sets[] = { "log_level=info", set, NULL };

	assert_int_equal(node_start(&node, sets), 0);
	assert_int_equal(chmod(node.dir, 0755), 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

static void test_one_at_a_time(void **state)
{
	struct client a, a2, b, root;
	struct answer x, y;

	start(NULL);
	client_start(&a, USER_A, NULL);
	client_start(&a2, USER_A, NULL);
	client_start(&b, USER_B, NULL);
	client_start(&root, 0, NULL);
	x = client_do(&a, 'o');
	assert_int_equal(x.err, 0);
	y = client_do(&a2, 'o');
	assert_int_equal(y.err, 0);
	assert_memory_equal(x.guid, y.guid, sizeof(x.guid));
	for (int i = 0; i < 40; i++) {
		y = client_do(i % 2 ? &root : &b, 'o');
		assert_int_equal(y.err, -EUSERS);
		assert_non_null(strstr(y.reason, "it serves uid 65534 now, and one user at a time (multi_user)"));
	}
	/* the daemon says so, to a bounded number of lines, and root may look all the time */
	assert_non_null(strstr(node_log(&node), "of uid 65533: refused: uid 65534 is served, and one user at a time "
			       "(multi_user)"));
	assert_in_range(count(node_log(&node), ": refused: uid 65534"), 2, 22);
	assert_non_null(strstr(node_progctl(&node, "--json status"), "\"serves_uid\": 65534"));
	assert_non_null(strstr(node_progctl(&node, "--json status"), "\"other_user\": 40"));
	assert_non_null(strstr(node_progctl(&node, "doctor"), "serves uid 65534 now"));
	/* as long as any process of the user is there */
	client_do(&a, 'c');
	assert_int_equal(client_do(&b, 'o').err, -EUSERS);
	client_do(&a2, 'c');
	await_nobody();
	assert_int_equal(client_do(&b, 'o').err, 0);
	assert_int_equal(client_do(&a, 'o').err, -EUSERS);
	client_do(&b, 'c');
	await_nobody();
	assert_int_equal(client_do(&root, 'o').err, 0);
	assert_int_equal(client_do(&b, 'o').err, -EUSERS);
	client_end(&root);
	client_end(&a2);
	client_end(&b);
	client_end(&a);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

static void test_nothing_is_left(void **state)
{
	struct answer x, y, z;
	struct client a, b;
	uint8_t byte;
	int lane;

	start("workers=2");
	client_start(&a, USER_A, NULL);
	client_start(&b, USER_B, NULL);
	x = client_do(&a, 'o');
	assert_int_equal(x.err, 0);
	assert_true(daemon_has_eventfd(x.eventfd_id));
	lane = dial(&x.addr);
	assert_in_range(lane, 0, 1 << 20);
	client_do(&a, 'k');
	await_nobody();
	/* the same user again: it is what it was */
	y = client_do(&a, 'o');
	assert_int_equal(y.err, 0);
	assert_memory_equal(x.guid, y.guid, sizeof(x.guid));
	assert_int_equal(x.eventfd_id, y.eventfd_id);
	client_do(&a, 'k');
	await_nobody();
	/* who only asks changes nothing */
	assert_non_null(strstr(node_progctl(&node, "--json status"), "\"renewed\": 0"));
	y = client_do(&b, 'o');
	assert_int_equal(y.err, 0);
	assert_memory_not_equal(x.guid, y.guid, sizeof(x.guid));
	assert_false(daemon_has_eventfd(x.eventfd_id));
	assert_true(daemon_has_eventfd(y.eventfd_id));
	/* connections from other nodes are gone, and nobody listens where the user before said */
	assert_true(recv(lane, &byte, 1, 0) <= 0);
	close(lane);
	assert_int_not_equal(x.addr.port, y.addr.port);
	assert_int_equal(dial(&x.addr), -ECONNREFUSED);
	lane = dial(&y.addr);
	assert_in_range(lane, 0, 1 << 20);
	close(lane);
	client_do(&b, 'c');
	await_nobody();
	z = client_do(&a, 'o');
	assert_int_equal(z.err, 0);
	assert_memory_not_equal(x.guid, z.guid, sizeof(x.guid));
	assert_non_null(strstr(node_progctl(&node, "--json status"), "\"renewed\": 2"));
	client_end(&a);
	client_end(&b);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

static void test_insecure(void **state)
{
	struct answer x, y;
	struct client a, b;

	start("multi_user=insecure");
	client_start(&a, USER_A, NULL);
	client_start(&b, USER_B, NULL);
	x = client_do(&a, 'o');
	y = client_do(&b, 'o');
	assert_int_equal(x.err, 0);
	assert_int_equal(y.err, 0);
	assert_memory_equal(x.guid, y.guid, sizeof(x.guid));
	assert_non_null(strstr(node_progctl(&node, "--json status"), "\"serves_uid\": null"));
	assert_non_null(strstr(node_progctl(&node, "doctor"), "insecure: users of this node can read"));
	client_end(&a);
	client_end(&b);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* A job starts while the other user's process comes and goes: all its ranks attach to the same daemon. */
static void test_ranks_decide_alike(void **state)
{
	struct prog_session_cfg cfg;
	struct client a, b[RANKS];
	unsigned int shared = 0, private = 0;

	start(NULL);
	client_start(&a, USER_A, NULL);
	for (unsigned int round = 0; round < ROUNDS || !shared || !private; round++) {
		struct answer x, first;

		assert_in_range(round, 0, 40 * ROUNDS);
		cfg = (struct prog_session_cfg){ .flags = PROG_SESSION_NO_HELPER | PROG_SESSION_EMBEDDED };
		assert_int_equal(prog_job_key_make(cfg.jobid, cfg.jobkey), 0);
		for (unsigned int i = 0; i < RANKS; i++)
			client_start(&b[i], USER_B, &cfg);
		x = client_do(&a, 'o');
		assert_int_equal(x.err, 0);
		for (unsigned int i = 0; i < RANKS; i++) {
			client_tell(&b[i], 'o');
			if (i == round % (RANKS + 1))
				client_tell(&a, 'c');
			usleep(round * 53 % 700);
		}
		if (round % (RANKS + 1) == RANKS)
			client_tell(&a, 'c');
		for (unsigned int i = 0; i < RANKS; i++) {
			struct answer y = client_hear(&b[i]);

			if (y.err)
				fail_msg("round %u, rank %u: %s (%s)", round, i, strerror(-y.err), y.reason);
			if (!i)
				first = y;
			assert_memory_equal(y.guid, first.guid, sizeof(y.guid));
		}
		client_hear(&a);
		/* the one that all have: is it the system's? */
		if (strstr(node_progctl(&node, "--json status"), "\"serves_uid\": 65533"))
			shared++;
		else
			private++;
		for (unsigned int i = 0; i < RANKS; i++)
			client_end(&b[i]);
		await_nobody();
	}
	print_message("# %u rounds with the system daemon, %u with private ones\n", shared, private);
	client_end(&a);
	assert_int_equal(node_stop(&node, SIGTERM), 0);
}

/* ------------------------------------------------------------------------------------------------------------- */

static int hold(const char *path)
{
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_NO_HELPER, .socket = path };
	const char *why = "";
	struct prog_session *s;
	char c;

	if (prog_job_key_make(cfg.jobid, cfg.jobkey) || prog_session_open(&cfg, &s, &why)) {
		fprintf(stderr, "%s: %s\n", path, why);
		return 1;
	}
	printf("held\n");
	fflush(stdout);
	while (read(0, &c, 1) == 1)
		;
	prog_session_close(s);
	return 0;
}

static int setup(void **state)
{
	char cmd[4400];

	strcpy(progd_copy, "/tmp/progd-users-XXXXXX");
	if (!mkdtemp(progd_copy) || chmod(progd_copy, 0755))
		return -1;
	snprintf(cmd, sizeof(cmd), "cp '%s' '%s/progd'", nodes_progd(), progd_copy);
	strcat(progd_copy, "/progd");
	return system(cmd);
}

static int teardown(void **state)
{
	char cmd[256];

	*strrchr(progd_copy, '/') = '\0';
	snprintf(cmd, sizeof(cmd), "rm -rf '%s' /tmp/asyncprog-%u", progd_copy, USER_B);
	return system(cmd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_at_a_time),
		cmocka_unit_test(test_nothing_is_left),
		cmocka_unit_test(test_insecure),
		cmocka_unit_test(test_ranks_decide_alike),
	};

	if (argc == 3 && !strcmp(argv[1], "--hold"))
		return hold(argv[2]);
	if (geteuid()) {
		printf("1..0 # SKIP needs root, to be several users\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Processes and nodes that vanish.  Three ranks: 0 and 2 are processes of node A, 1 of node B
 * (nodes.h).  Rank 2 is a child process, to be killed.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/nodes.h>
#include <progclient.h>

#define SIZE	(2 << 20)		/* more than is staged when there is no CMA */
#define PIECE	65536
#define KEY	7

static struct node node[2];
static struct prog_session *sess[2];
static struct prog_win *win[2];
static uint8_t jobid[16], jobkey[32];
static bool private_memory;		/* windows are of memory that only its owner can reach */

struct child {
	pid_t pid;
	int to, from;			/* pipes */
	struct prog_endpoint ep;
};

static struct child kid;

static int open_session(int on, uint32_t rank, struct prog_session **s)
{
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_MT, .rank = rank,
					.socket = node[on].sock };
	const char *why = "";
	int r;

	memcpy(cfg.jobid, jobid, 16);
	memcpy(cfg.jobkey, jobkey, 32);
	r = prog_session_open(&cfg, s, &why);
	if (r)
		fprintf(stderr, "session of rank %u: %s\n", rank, why);
	return r;
}

static int open_win(struct prog_session *s, uint32_t rank, struct prog_win **w,
		    struct prog_endpoint *ep)
{
	struct prog_win_cfg cfg = { .kind = PROG_WIN_ALLOCATE, .key = KEY, .rank = rank, .nranks = 3,
				    .size = SIZE };
	static uint64_t mem[3][SIZE / 8];
	int r;

	if (private_memory) {
		cfg.kind = PROG_WIN_CREATE;
		cfg.base = mem[rank];
	}
	r = prog_win_open(s, &cfg, w);
	if (!r)
		prog_win_endpoint(*w, ep);
	return r;
}

static int connect_win(struct prog_win *w, const struct prog_endpoint *all)
{
	const char *why = "";
	int r = prog_win_connect(w, all, &why);

	if (r)
		fprintf(stderr, "connect: %s\n", why);
	return r;
}

static void full_read(int fd, void *buf, size_t n)
{
	while (n) {
		ssize_t k = read(fd, buf, n);

		if (k <= 0)
			_exit(9);
		buf = (char *)buf + k;
		n -= k;
	}
}

static void full_write(int fd, const void *buf, size_t n)
{
	if (write(fd, buf, n) != (ssize_t)n)
		_exit(9);
}

/*
 * Rank 2: connects, then does what letters tell it: x and s lock rank 1 exclusively or shared,
 * X rank 0, p puts, f flushes rank 1, g gets much of it and stops itself before that is here.  Answers
 * each with a letter.
 */
static void run_child(int in, int out)
{
	struct prog_endpoint all[3];
	struct prog_session *s;
	struct prog_win *w;
	uint64_t v = 1, seq;
	struct prog_buf o = { &v, NULL, 8 };
	struct prog_dst t = { 1, 0, NULL, 8 }, all_of_it = { 1, 0, NULL, SIZE };
	static char much[SIZE];
	struct prog_buf into = { much, NULL, SIZE };
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (open_session(0, 2, &s) || open_win(s, 2, &w, &all[2]))
		_exit(1);
	full_write(out, &all[2], sizeof(all[2]));
	full_read(in, all, sizeof(all));
	if (connect_win(w, all))
		_exit(2);
	full_write(out, "c", 1);
	full_read(in, &c, 1);
	if (prog_win_map(w, NULL))
		_exit(3);
	full_write(out, "m", 1);
	for (;;) {
		int r = 0;

		full_read(in, &c, 1);
		switch (c) {
		case 'x':
			r = prog_lock(w, 1, PROG_LOCKF_EXCL) ?: prog_flush(w, 1);
			break;
		case 'X':
			r = prog_lock(w, 0, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT);
			break;
		case 's':
			r = prog_lock(w, 1, 0) ?: prog_flush(w, 1);
			break;
		case 'q':	/* queue behind a lock that is held: returns at once */
			r = prog_lock(w, 1, PROG_LOCKF_EXCL) ?: prog_put(w, &o, &t, 0, &seq);
			break;
		case 'p':
			r = prog_put(w, &o, &t, 0, &seq);
			break;
		case 'f':
			r = prog_flush(w, 1);
			break;
		case 'g':
			for (int i = 0; i < 10 && !r; i++)
				r = prog_get(w, &into, &all_of_it, 0, &seq);
			full_write(out, r ? "!" : &c, 1);
			raise(SIGSTOP);
			continue;
		}
		full_write(out, r ? "!" : &c, 1);
	}
}

static int tell(char c)
{
	char got;

	full_write(kid.to, &c, 1);
	full_read(kid.from, &got, 1);
	return got == c ? 0 : -1;
}

static int setup_with(const char *const *sets)
{
	struct prog_endpoint all[3];
	int to[2], from[2];
	char c;

	assert_int_equal(prog_job_key_make(jobid, jobkey), 0);
	for (int i = 0; i < 2; i++)
		if (node_start(&node[i], sets))
			return -1;
	if (pipe(to) || pipe(from))
		return -1;
	kid.pid = fork();
	if (!kid.pid) {
		close(to[1]);
		close(from[0]);
		run_child(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	kid.to = to[1];
	kid.from = from[0];
	for (int i = 0; i < 2; i++)
		if (open_session(i, i, &sess[i]) || open_win(sess[i], i, &win[i], &all[i]))
			return -1;
	full_read(kid.from, &all[2], sizeof(all[2]));
	full_write(kid.to, all, sizeof(all));
	for (int i = 0; i < 2; i++)
		if (connect_win(win[i], all))
			return -1;
	full_read(kid.from, &c, 1);
	full_write(kid.to, "m", 1);
	for (int i = 0; i < 2; i++)
		if (prog_win_map(win[i], NULL))
			return -1;
	full_read(kid.from, &c, 1);
	return c == 'm' ? 0 : -1;
}

static int setup(void **state)
{
	static const char *const sets[] = { "peer_timeout=2s", "peer_giveup=1s", "log_level=info", NULL };

	private_memory = false;
	return setup_with(sets);
}

static int setup_private(void **state)
{
	static const char *const sets[] = { "peer_timeout=2s", "peer_giveup=1s", "log_level=info", "cma=no", NULL };

	private_memory = true;
	return setup_with(sets);
}

static int teardown(void **state)
{
	int r = 0;

	for (int i = 0; i < 2; i++) {
		prog_win_close(win[i]);
		prog_session_close(sess[i]);
	}
	if (kid.pid > 0) {
		kill(kid.pid, SIGKILL);
		waitpid(kid.pid, NULL, 0);
	}
	close(kid.to);
	close(kid.from);
	for (int i = 0; i < 2; i++)
		r |= node_stop(&node[i], SIGTERM);
	return r ? -1 : 0;
}

static void kill_child(void)
{
	kill(kid.pid, SIGKILL);
	waitpid(kid.pid, NULL, 0);
	kid.pid = 0;
}

/* Open descriptors of a daemon: what it keeps of anybody. */
static int descriptors(const struct node *n)
{
	char path[64];
	int count = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)n->pid);
	d = opendir(path);
	while (d && readdir(d))
		count++;
	if (d)
		closedir(d);
	return count;
}

static void rank0_can_lock(int rank)
{
	uint64_t v = 42, seq;
	struct prog_buf o = { &v, NULL, 8 };
	struct prog_dst t = { rank, 8, NULL, 8 };

	assert_int_equal(prog_lock(win[0], rank, PROG_LOCKF_EXCL), 0);
	assert_int_equal(prog_put(win[0], &o, &t, 0, &seq), 0);
	assert_int_equal(prog_unlock(win[0], rank), 0);
	assert_int_equal(prog_win_error(win[0], rank), 0);
	assert_int_equal(((uint64_t *)prog_win_base(win[rank]))[1], 42);
}

static void test_killed_holding_remote_lock(void **state)
{
	int before;

	assert_int_equal(tell('x'), 0);
	before = descriptors(&node[0]);
	kill_child();
	/* its session took a socket, its process and its wake-up, a window two descriptors */
	for (int i = 0; i < 2000 && descriptors(&node[0]) > before - 5; i++)
		usleep(1000);
	assert_int_equal(descriptors(&node[0]), before - 5);
	/* waits until the daemon of the dead process has told the other */
	rank0_can_lock(1);
	rank0_can_lock(1);
}

static void test_killed_holding_local_lock(void **state)
{
	assert_int_equal(tell('X'), 0);
	kill_child();
	rank0_can_lock(0);
}

static void test_killed_waiting_for_lock(void **state)
{
	assert_int_equal(prog_lock(win[1], 1, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT), 0);
	assert_int_equal(tell('q'), 0);
	kill_child();
	assert_int_equal(prog_unlock(win[1], 1), 0);
	rank0_can_lock(1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(prog_lock(win[1], 1, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT) ?:
				 prog_unlock(win[1], 1), 0);
}

static void test_killed_sharing(void **state)
{
	assert_int_equal(tell('s'), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(tell('p'), 0);
	kill_child();
	rank0_can_lock(1);
}

/* The other node's daemon is killed with operations under way: they fail, nothing hangs. */
static void test_daemon_killed(void **state)
{
	static char big[SIZE];
	struct prog_buf o = { big, NULL, SIZE };
	struct prog_dst t = { 1, 0, NULL, SIZE };
	uint64_t seq, start;
	int r;

	assert_int_equal(prog_lock(win[0], 1, 0), 0);
	assert_int_equal(prog_put(win[0], &o, &t, 0, &seq), 0);
	assert_int_equal(prog_flush(win[0], 1), 0);
	start = nodes_now();
	node_stop(&node[1], SIGKILL);
	for (int i = 0; i < 20; i++)
		if (prog_put(win[0], &o, &t, 0, &seq))
			break;
	r = prog_flush(win[0], 1);
	/* bound: noticing (peer_timeout) and one attempt to connect; far less when the socket closes */
	assert_true(nodes_now() - start < 60000000000ull);
	if (!r)
		r = prog_win_error(win[0], 1);
	assert_true(r < 0);
	print_message("# an error after %llu ms\n", (unsigned long long)(nodes_now() - start) / 1000000);
	/* and again, for a node that cannot be connected to any more */
	prog_put(win[0], &o, &t, 0, &seq);
	r = prog_flush(win[0], 1);
	if (!r)
		r = prog_win_error(win[0], 1);
	assert_true(r < 0);
	/* the node itself is well */
	assert_int_equal(prog_session_ping(sess[0]), 0);
	prog_unlock(win[0], 1);
	assert_int_equal(waitpid(node[0].pid, NULL, WNOHANG), 0);
}

/*
 * A program that goes on with operations for a node that is gone gets an error for each, but the
 * daemon does not try to connect as often, nor write as often that it could not.
 */
static void test_daemon_gone_for_good(void **state)
{
	enum { OPS = 2000 };
	uint64_t v = 1, seq, start;
	struct prog_buf o = { &v, NULL, 8 };
	struct prog_dst t = { 1, 0, NULL, 8 };
	unsigned int tried, limit, lines = 0;
	const char *p;

	assert_int_equal(prog_lock(win[0], 1, 0) ?: prog_flush(win[0], 1), 0);
	node_stop(&node[1], SIGKILL);
	start = nodes_now();
	for (int i = 0; i < OPS; i++) {
		int r = prog_put(win[0], &o, &t, 0, &seq) ?: prog_flush(win[0], 1);

		assert_true(r < 0 || prog_win_error(win[0], 1) < 0);
	}
	/* the lane that was there; then 50, 100, ... and at last 800 ms after each other */
	limit = 7 + (nodes_now() - start) / 800000000;
	tried = node_stat(&node[0], "lost_lanes");
	if (!tried || tried > limit)
		fail_msg("%u lanes lost, at most %u expected", tried, limit);
	for (p = node_log(&node[0]); (p = strstr(p, ": down: ")); p++)
		lines++;
	assert_in_range(lines, 1, tried);
	assert_int_equal(prog_session_ping(sess[0]), 0);
	prog_unlock(win[0], 1);
}

/* The daemon of a remote lock holder is killed: its locks go to others. */
static void test_origin_daemon_killed(void **state)
{
	assert_int_equal(tell('x'), 0);
	node_stop(&node[0], SIGKILL);
	assert_int_equal(prog_lock(win[1], 1, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT), 0);
	assert_int_equal(prog_unlock(win[1], 1), 0);
	for (int i = 0; i < 2000 && !strstr(node_log(&node[1]), "released"); i++)
		usleep(1000);
	if (!strstr(node_log(&node[1]), "released"))
		fail_msg("the log does not record it:\n%s", node_log(&node[1]));
}

/*
 * A process is stopped (by a debugger, say) whose help the daemon needs to reach its memory: what is
 * for it waits, what is for others does not, and nobody takes its node for gone.
 */
static void test_process_stopped(void **state)
{
	enum { PUTS = 64 };
	uint64_t v = 0, seq, end;
	struct prog_buf small = { &v, NULL, 8 }, big = { NULL, NULL, PIECE };
	struct prog_dst to0 = { 0, 16, NULL, 8 }, to2 = { 2, 0, NULL, PIECE };

	/* sent from where it is, so that it takes nothing of what the session has for payloads */
	assert_int_equal(prog_mem_alloc(sess[1], PIECE, &big.addr), 0);
	memset(big.addr, 5, PIECE);
	assert_int_equal(prog_put(win[1], &big, &to2, 0, &seq), 0);
	assert_int_equal(prog_flush(win[1], 2), 0);
	kill(kid.pid, SIGSTOP);
	for (int i = 0; i < PUTS; i++) {
		for (int k = 0; k < 4; k++)
			assert_int_equal(prog_put(win[1], &big, &to2, 0, &seq), 0);
		v++;
		assert_int_equal(prog_put(win[1], &small, &to0, 0, &seq), 0);
		assert_int_equal(prog_flush(win[1], 0), 0);
		assert_int_equal(prog_win_error(win[1], 0), 0);
	}
	/* longer than it takes to find a node dead */
	for (end = nodes_now() + 5000000000ull; nodes_now() < end; usleep(20000)) {
		v++;
		assert_int_equal(prog_put(win[1], &small, &to0, 0, &seq), 0);
		assert_int_equal(prog_flush(win[1], 0), 0);
		assert_int_equal(prog_win_error(win[1], 0), 0);
	}
	assert_int_equal(*((uint64_t *)prog_win_base(win[0]) + 2), v);
	kill(kid.pid, SIGCONT);
	assert_int_equal(prog_flush(win[1], 2), 0);
	assert_int_equal(prog_win_error(win[1], 2), 0);
	assert_int_equal(node_stat(&node[1], "lost_lanes"), 0);
	memset(big.addr, 0, PIECE);
	assert_int_equal(prog_get(win[1], &big, &to2, 0, &seq), 0);
	assert_int_equal(prog_flush(win[1], 2), 0);
	for (size_t i = 0; i < PIECE; i++)
		assert_int_equal(((uint8_t *)big.addr)[i], 5);
	assert_int_equal(prog_mem_free(sess[1], big.addr), 0);
}

/* The same with one that waits for what it asked for: it is kept, and others get theirs. */
static void test_process_stopped_getting(void **state)
{
	static uint8_t much[SIZE], want[SIZE];
	struct prog_buf from = { want, NULL, SIZE }, into = { much, NULL, SIZE };
	struct prog_dst t = { 1, 0, NULL, SIZE };
	uint64_t seq;

	for (size_t i = 0; i < SIZE; i++)
		want[i] = i * 13 + i / 251;
	assert_int_equal(prog_put(win[0], &from, &t, 0, &seq), 0);
	assert_int_equal(prog_flush(win[0], 1), 0);
	assert_int_equal(tell('g'), 0);
	assert_int_equal(waitpid(kid.pid, NULL, WUNTRACED), kid.pid);
	for (int i = 0; i < 10; i++) {
		memset(much, 0, SIZE);
		assert_int_equal(prog_get(win[0], &into, &t, 0, &seq), 0);
		assert_int_equal(prog_flush(win[0], 1), 0);
		assert_int_equal(prog_win_error(win[0], 1), 0);
		assert_memory_equal(much, want, SIZE);
	}
	kill(kid.pid, SIGCONT);
	assert_int_equal(tell('f'), 0);
}

/* A stopped node: nothing answers, no socket closes. */
static void test_daemon_stopped(void **state)
{
	uint64_t v = 1, seq, start = nodes_now();
	struct prog_buf o = { &v, NULL, 8 };
	struct prog_dst t = { 1, 0, NULL, 8 };
	int r;

	assert_int_equal(prog_lock(win[0], 1, 0), 0);
	assert_int_equal(prog_flush(win[0], 1), 0);
	kill(node[1].pid, SIGSTOP);
	assert_int_equal(waitpid(node[1].pid, NULL, WUNTRACED), node[1].pid);
	assert_int_equal(prog_put(win[0], &o, &t, 0, &seq), 0);
	r = prog_flush(win[0], 1);
	if (!r)
		r = prog_win_error(win[0], 1);
	kill(node[1].pid, SIGCONT);
	assert_true(r < 0);
	assert_true(nodes_now() - start < 60000000000ull);
	prog_unlock(win[0], 1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_killed_holding_remote_lock, setup, teardown),
	cmocka_unit_test_setup_teardown(test_killed_holding_local_lock, setup, teardown),
	cmocka_unit_test_setup_teardown(test_killed_waiting_for_lock, setup, teardown),
	cmocka_unit_test_setup_teardown(test_killed_sharing, setup, teardown),
	cmocka_unit_test_setup_teardown(test_daemon_killed, setup, teardown),
	cmocka_unit_test_setup_teardown(test_daemon_gone_for_good, setup, teardown),
	cmocka_unit_test_setup_teardown(test_origin_daemon_killed, setup, teardown),
	cmocka_unit_test_setup_teardown(test_daemon_stopped, setup, teardown),
	cmocka_unit_test_setup_teardown(test_process_stopped, setup_private, teardown),
	cmocka_unit_test_setup_teardown(test_process_stopped_getting, setup_private, teardown),
};

static int setup_all(void **state)
{
	signal(SIGPIPE, SIG_IGN);
	return 0;
}

KIT_SUITE(tests, .setup = setup_all);

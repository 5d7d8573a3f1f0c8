// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * An engine is killed, with everything as it is shipped: ranks that need it hear of it within two seconds, others do not, of their job
 * nothing is left, and their user's next one works.  Needs root.
 *
 *	ranks 0, 2, 3, 4 -- supervisor 0 -- engine A0 ==== engine A1 -- supervisor 1 -- rank 1
 *
 *	rank 0, 1   put to each other		rank 2   waits for a lock that rank 1 has
 *	rank 3      has a message for rank 1	rank 4   asks its engine whether it is there
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <asyncprog/ring.h>
#include <kit/users.h>
#include <progclient.h>

#define SEC		1000000000ull
#define SOON		(2 * SEC)	/* the middle of ROUNDS: once in a while the machine has other things to do */
#define ROUNDS		3		/* more, and the supervisor takes them for engines that end as soon as they start */
#define RANKS		5u
#define SIZE		65536u
#define BIG		(4u << 20)	/* of a message */
#define ENDED		1		/* in place of an error: what was to be done is done */
#define NO_ERROR	2		/* in place of an error: what was waited for came */

enum { WINDOW, MESSAGES, WINDOWS };

static struct node node[2];
static pid_t engine[2];

/* What a job's processes tell each other and the test. */
static struct job {
	uint8_t id[PROG_JOBID_SIZE], key[PROG_JOBKEY_SIZE];
	struct prog_endpoint at[WINDOWS][RANKS];
	atomic_uint met, locked, works[RANKS], over;
	bool in_order;			/* nobody is killed: all have worked a while */
	struct {
		int err;
		uint64_t when;
	} heard[RANKS];
} *job;

static pid_t rank_pid[RANKS];

/* ---- a rank ------------------------------------------------------------------------------------------------- */

static void must(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "rank: %s\n", what);
	_exit(1);
}

#define MUST(what)	must(what, #what)

static void meet(void)
{
	unsigned int to = (atomic_fetch_add(&job->met, 1) / RANKS + 1) * RANKS;

	while (atomic_load(&job->met) < to)
		usleep(200);
}

static int put_on(struct prog_win *w, uint32_t me, uint32_t to)
{
	uint64_t put[64], got[64] = { 0 }, seq;
	struct prog_buf from = { put, NULL, sizeof(put) }, into = { got, NULL, sizeof(got) };
	struct prog_dst at = { to, 0, NULL, sizeof(put) };
	int r;

	do {
		for (int i = 0; i < 64; i++)
			put[i] = job->works[me] + i;
		r = prog_put(w, &from, &at, 0, &seq) ?: prog_flush(w, to) ?: prog_get(w, &into, &at, 0, &seq) ?: prog_flush(w, to) ?:
		    prog_win_error(w, to);
		MUST(r < 0 || !memcmp(put, got, sizeof(put)));
		atomic_fetch_add(&job->works[me], 1);
	} while (!r && (!job->in_order || job->works[me] < 100));
	return r ?: ENDED;
}

static int wait_for_lock(struct prog_win *w, uint32_t me)
{
	int r;

	while (!job->locked)
		usleep(200);
	job->works[me] = 1;
	if (job->in_order)
		return ENDED;
	r = prog_lock(w, 1, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT) ?: prog_win_error(w, 1);
	return r ?: prog_unlock(w, 1) ?: prog_win_error(w, 1);
}

static int send_on(struct prog_win *w, uint32_t me)
{
	struct prog_msg_key key = { .comm = 1, .src = me, .dst = 1 };
	static char bytes[BIG];
	struct prog_buf b = { .addr = bytes, .count = sizeof(bytes) };
	struct prog_msg_result res = { 0 };
	struct prog_msg_id id;
	prog_msg *m;
	int r;

	r = prog_msg_send(w, &key, &b, PROG_MSGF_SYNC, &id, &m);
	if (r)
		return r;
	job->works[me] = 1;
	if (!job->in_order)
		r = prog_msg_wait(w, m, &res) ?: res.status;
	prog_msg_free(w, m);
	return job->in_order ? ENDED : r;
}

static int ask_on(struct prog_session *s, uint32_t me)
{
	int r;

	do {
		r = prog_session_ping(s);
		job->works[me] = 1;
		usleep(1000);
	} while (!r && !job->over && !job->in_order);
	return r ?: ENDED;
}

static void rank_main(uint32_t me)
{
	struct prog_session_cfg c = { .flags = PROG_SESSION_NO_HELPER, .rank = me, .socket = node[me == 1].sock };
	struct prog_session *s;
	struct prog_win *w[WINDOWS];
	const char *why = "";
	int r;

	user_become(USER_A);
	prctl(PR_SET_DUMPABLE, 1);
	memcpy(c.jobid, job->id, sizeof(c.jobid));
	memcpy(c.jobkey, job->key, sizeof(c.jobkey));
	r = prog_session_open(&c, &s, &why);
	must(!r, why);
	for (uint64_t i = 0; i < WINDOWS; i++) {
		struct prog_win_cfg wc = {
			.kind = i == MESSAGES ? PROG_WIN_MSG_CONTEXT : PROG_WIN_ALLOCATE, .key = 1 + i, .rank = me, .nranks = RANKS,
			.size = i == MESSAGES ? 0 : SIZE,
		};

		MUST(!prog_win_open(s, &wc, &w[i]));
		prog_win_endpoint(w[i], &job->at[i][me]);
	}
	meet();
	for (int i = 0; i < WINDOWS; i++) {
		r = prog_win_connect(w[i], job->at[i], &why);
		must(!r, why);
	}
	meet();
	for (int i = 0; i < WINDOWS; i++)
		MUST(!prog_win_map(w[i], NULL));
	meet();
	if (me == 1) {
		MUST(!prog_lock(w[WINDOW], 1, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT));
		job->locked = 1;
	}
	r = me == 2 ? wait_for_lock(w[WINDOW], me) : me == 3 ? send_on(w[MESSAGES], me) :
	    me == 4 ? ask_on(s, me) : put_on(w[WINDOW], me, !me);
	job->heard[me].when = nodes_now();
	__atomic_store_n(&job->heard[me].err, r ?: NO_ERROR, __ATOMIC_RELEASE);
	while (!job->over)
		usleep(1000);
	for (int i = 0; i < WINDOWS; i++)
		prog_win_close(w[i]);
	prog_session_close(s);
	_exit(0);
}

/* ---- jobs ---------------------------------------------------------------------------------------------------- */

static void job_begin(bool in_order)
{
	memset(job, 0, sizeof(*job));
	job->in_order = in_order;
	assert_int_equal(prog_job_key_make(job->id, job->key), 0);
	fflush(NULL);
	for (uint32_t i = 0; i < RANKS; i++) {
		rank_pid[i] = fork();
		if (!rank_pid[i])
			rank_main(i);
	}
}

/* Does @cond hold before ranks end that must not, and in a minute? */
#define AWAIT(cond) do { \
	uint64_t end_ = nodes_now() + 60 * SEC; \
	while (!(cond)) { \
		if (waitpid(-1, NULL, WNOHANG) > 0 || nodes_now() > end_) \
			fail_msg("did not happen: %s\n%s", #cond, node_log(&node[0])); \
		usleep(200); \
	} \
} while (0)

static bool heard(uint32_t rank)
{
	return __atomic_load_n(&job->heard[rank].err, __ATOMIC_ACQUIRE);
}

static void job_end(void)
{
	int st;

	job->over = 1;
	for (uint32_t i = 0; i < RANKS; i++) {
		assert_int_equal(waitpid(rank_pid[i], &st, 0), rank_pid[i]);
		assert_int_equal(st, 0);
	}
}

static void job_in_order(void)
{
	job_begin(true);
	for (uint32_t i = 0; i < RANKS; i++) {
		AWAIT(heard(i));
		assert_int_equal(job->heard[i].err, ENDED);
	}
	job_end();
	for (int i = 0; i < 2; i++) {
		engine[i] = user_engine(&node[i], USER_A);
		assert_true(engine[i]);
	}
}

/* ---- what they leave ----------------------------------------------------------------------------------------- */

static unsigned int entries(const char *dir, const char *prefix)
{
	unsigned int n = 0;
	struct dirent *e;
	DIR *d = opendir(dir);

	/* of a process that has ended */
	if (!d)
		return 0;
	while ((e = readdir(d)))
		n += e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
	closedir(d);
	return n;
}

struct had {
	unsigned int supervisor[2], engine[2];
};

/* Open files; ports of engines that have ended are kept for a while. */
static struct had had_now(void)
{
	struct had h;
	char path[160];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s.records", node[i].sock);
		h.supervisor[i] = -entries(path, "port ");
		snprintf(path, sizeof(path), "/proc/%d/fd", (int)node[i].pid);
		h.supervisor[i] += entries(path, "");
		snprintf(path, sizeof(path), "/proc/%d/fd", (int)engine[i]);
		h.engine[i] = entries(path, "");
	}
	return h;
}

/* When nothing changes any more. */
static struct had had_before(void)
{
	struct had h = had_now(), last;

	do {
		last = h;
		usleep(20000);
		h = had_now();
	} while (memcmp(&h, &last, sizeof(h)));
	return h;
}

static const char *said(int on, const char *what)
{
	char args[64];

	snprintf(args, sizeof(args), "--uid %u --json %s", USER_A, what);
	return node_progctl(&node[on], args);
}

/* The engine of @on has nothing of any job, and no process has more files open than @before. */
static void nothing_is_left(int on, const struct had *before)
{
	static const char *const nothing[][2] = {
		{ "sessions", "[]" }, { "windows", "[]" }, { "stats", "\"jobs\": []" }, { "status", "\"clients\": 0," },
		{ "status", "\"streams\": 0," }, { "status", "\"target_streams\": 0," }, { "status", "\"lock_waits\": 0," },
		{ "status", "\"held_bytes\": 0," },
	};
	struct had h;

	for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
		AWAIT(strstr(said(on, nothing[i][0]), nothing[i][1]));
	for (uint64_t end = nodes_now() + 60 * SEC; h = had_now(), h.supervisor[0] > before->supervisor[0] ||
	     h.supervisor[1] > before->supervisor[1] || h.engine[on] > before->engine[on]; usleep(10000))
		if (nodes_now() > end)
			fail_msg("open files of the supervisors %u and %u, before %u and %u; of the engine %u, before %u", h.supervisor[0],
				 h.supervisor[1], before->supervisor[0], before->supervisor[1], h.engine[on], before->engine[on]);
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Of node @on; until the last one who needs it has heard. */
static uint64_t kill_engine(int on)
{
	struct had before = had_before();
	uint64_t began, last = 0;
	pid_t other = engine[!on];

	job_begin(false);
	for (uint32_t i = 0; i < RANKS; i++)
		AWAIT(job->works[i] > 0);
	began = nodes_now();
	assert_int_equal(kill(engine[on], SIGKILL), 0);
	for (uint32_t i = 0; i < RANKS; i++) {
		/* who only talks to the other one */
		if (i == 4 && on)
			continue;
		AWAIT(heard(i));
		if (job->heard[i].err >= 0)
			fail_msg("rank %u has no error", i);
		if (job->heard[i].when > last)
			last = job->heard[i].when;
	}
	assert_true(last > began);
	if (on)
		assert_false(heard(4));
	job_end();
	if (on)
		assert_int_equal(job->heard[4].err, ENDED);
	nothing_is_left(!on, &before);
	AWAIT(kill(engine[on], 0));
	job_in_order();
	assert_int_equal(engine[!on], other);
	return last - began;
}

static void test_killed(void **state)
{
	int on = *(const int *)*state;
	uint64_t took[ROUNDS];

	/* it is there, with lanes */
	job_in_order();
	for (int i = 0; i < ROUNDS; i++) {
		took[i] = kill_engine(on);
		print_message("# errors at all ranks concerned after %llu ms\n", (unsigned long long)(took[i] / 1000000));
	}
	qsort(took, ROUNDS, sizeof(took[0]), by_size);
	assert_true(took[ROUNDS / 2] <= SOON);
}

static int begin(int argc, char **argv)
{
	if (geteuid())
		kit_skip("needs root, to be another user");
	return 0;
}

static int setup(void **state)
{
	static const char *const sets[] = { "engine_linger=1h", NULL };

	job = mmap(NULL, sizeof(*job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (job == MAP_FAILED || users_begin())
		return -1;
	for (int i = 0; i < 2; i++)
		if (node_start_supervisor(&node[i], users_progd, sets))
			return -1;
	return 0;
}

static int teardown(void **state)
{
	int st = 0;

	for (int i = 0; i < 2; i++) {
		node_progctl(&node[i], "drain");
		for (int k = 0; k < 1000 && *node_progctl(&node[i], "engines"); k++)
			usleep(10000);
		/* those that were killed */
		node[i].bad_ends = true;
		if (node_stop(&node[i], SIGTERM))
			st = -1;
	}
	return users_end() || st ? -1 : 0;
}

static int nodes[] = { 0, 1 };

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_prestate(test_killed, &nodes[1]),
	cmocka_unit_test_prestate(test_killed, &nodes[0]),
};

KIT_SUITE(tests, .begin = begin, .setup = setup, .teardown = teardown);

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * One-sided communication without MPI: this program forks RANKS processes, which make a window,
 * hand out numbers from a shared counter, pass a token under a lock and put a strided block into
 * their neighbour.  Endpoints and agreement go through pipes to the parent; a real program uses
 * whatever its processes have to talk to each other.
 *
 *	cc client.c $(pkg-config --cflags --libs libprogclient) -o client
 *	./client [RANKS [SOCKET...]]
 *
 * Rank i uses SOCKET number i modulo their number: with the sockets of two daemons half of the
 * ranks are "remote".  Without a SOCKET the usual search applies, with a private daemon at last.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <libprogbase/dtype.h>
#include <progclient.h>
#include <wire/optype.h>

#define MAX_RANKS	64
#define ROUNDS		1000

struct area {			/* the window of each rank */
	int64_t counter;	/* of rank 0 is used */
	int64_t token[2];	/* always equal when nobody holds the lock */
	int32_t matrix[8][8];
};

static uint32_t rank, nranks;
static int to_parent, from_parent;

static void die(const char *what, int err, const char *why)
{
	fprintf(stderr, "rank %u: %s: %s%s%s\n", rank, what, strerror(-err), why && *why ? ": " : "",
		why ? why : "");
	exit(1);
}

static void must(const char *what, int err)
{
	if (err)
		die(what, err, NULL);
}

static void all_write(int fd, const void *buf, size_t len)
{
	if (write(fd, buf, len) != (ssize_t)len)
		die("write", -errno, NULL);
}

static void all_read(int fd, void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = read(fd, p, len);

		if (n <= 0)
			die("a peer is gone", n ? -errno : -EPIPE, NULL);
		p += n;
		len -= (size_t)n;
	}
}

/* Everybody gives one endpoint and gets all; with a dummy it is a barrier. */
static void allgather(struct prog_endpoint *all)
{
	all_write(to_parent, &all[rank], sizeof(*all));
	all_read(from_parent, all, nranks * sizeof(*all));
}

static void barrier(void)
{
	static struct prog_endpoint dummy[MAX_RANKS];

	allgather(dummy);
}

/* A shared counter: each number is handed out once.  The sum of ours. */
static int64_t draw_numbers(struct prog_win *w)
{
	int64_t one = 1, number, sum = 0;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct prog_buf add = { .addr = &one, .count = sizeof(one) };
		struct prog_buf old = { .addr = &number, .count = sizeof(number) };
		struct prog_dst at = { .rank = 0, .disp = offsetof(struct area, counter),
				       .count = sizeof(number) };

		must("fetch_and_op", prog_accumulate(w, &add, &old, &at, PROG_OP_SUM, PROG_TYPE_I64, 0,
						     NULL));
		must("flush", prog_flush(w, 0));
		sum += number;
	}
	return sum;
}

/* Read, change, write back under an exclusive lock. */
static void pass_token(struct prog_win *w)
{
	int64_t token[2];

	for (uint32_t i = 0; i < ROUNDS / 10; i++) {
		struct prog_buf o = { .addr = token, .count = sizeof(token) };
		struct prog_dst at = { .rank = 0, .disp = offsetof(struct area, token),
				       .count = sizeof(token) };

		must("lock", prog_lock(w, 0, PROG_LOCKF_EXCL));
		must("get", prog_get(w, &o, &at, 0, NULL));
		must("flush", prog_flush_local(w, 0));
		if (token[0] != token[1])
			die("lock", -EPROTO, "saw a half-done update");
		token[0]++;
		token[1]++;
		must("put", prog_put(w, &o, &at, 0, NULL));
		must("unlock", prog_unlock(w, 0));
	}
}

/* A row of ours becomes a column of @next's matrix. */
static void put_column(struct prog_win *w, uint32_t next)
{
	struct prog_dst at = { .rank = next, .disp = offsetof(struct area, matrix[0][3]), .count = 1 };
	int32_t row[8];
	struct prog_buf o = { .addr = row, .count = sizeof(row) };
	struct dtype *i32, *column;

	must("type", prog_dtype_new_basic(PROG_TYPE_I32, &i32));
	must("type", prog_dtype_new_hvector(8, 1, sizeof(((struct area *)NULL)->matrix[0]), i32, &column));
	at.type = column;
	for (uint32_t i = 0; i < 8; i++)
		row[i] = (int32_t)(100 * rank + i);
	must("put", prog_put(w, &o, &at, 0, NULL));
	must("flush", prog_flush(w, next));
	prog_dtype_put(column);
	prog_dtype_put(i32);
}

static void run(const struct prog_session_cfg *cfg)
{
	struct prog_win_cfg wcfg = { .kind = PROG_WIN_ALLOCATE, .key = 1, .rank = rank,
				     .nranks = nranks, .size = sizeof(struct area) };
	static struct prog_endpoint eps[MAX_RANKS];
	uint32_t next = (rank + 1) % nranks, i;
	struct prog_session *s;
	struct prog_win *w;
	struct area *mine;
	const char *why;
	int64_t sum;
	int err;

	err = prog_session_open(cfg, &s, &why);
	if (err)
		die("open", err, why);

	/* collective: open, exchange, connect, agree, map, agree */
	must("window", prog_win_open(s, &wcfg, &w));
	prog_win_endpoint(w, &eps[rank]);
	allgather(eps);
	err = prog_win_connect(w, eps, &why);
	if (err)
		die("connect", err, why);
	barrier();
	must("map", prog_win_map(w, NULL));
	barrier();
	mine = prog_win_base(w);

	sum = draw_numbers(w);
	pass_token(w);
	put_column(w, next);
	barrier();
	for (i = 0; i < 8; i++)
		if (mine->matrix[i][3] != (int32_t)(100 * ((rank + nranks - 1) % nranks) + i))
			die("put", -EPROTO, "a column element is wrong");
	if (!rank && (mine->counter != (int64_t)ROUNDS * nranks ||
		      mine->token[0] != (int64_t)(ROUNDS / 10) * nranks))
		die("check", -EPROTO, "an update was lost");
	printf("rank %u: ok, numbers drawn sum to %lld, rank %u is reached %s\n", rank, (long long)sum,
	       next, prog_win_is_local(w, next) ? "in the call" : "through the daemon");
	fflush(stdout);

	barrier();
	prog_win_close(w);
	prog_session_close(s);
}

int main(int argc, char **argv)
{
	static struct prog_endpoint eps[MAX_RANKS];
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_EMBEDDED };
	int up[MAX_RANKS][2], down[MAX_RANKS][2], failed = 0, st;
	uint32_t i;

	nranks = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 4;
	if (!nranks || nranks > MAX_RANKS) {
		fprintf(stderr, "usage: client [RANKS (1..%d) [SOCKET...]]\n", MAX_RANKS);
		return 2;
	}
	must("key", prog_job_key_make(cfg.jobid, cfg.jobkey));
	for (i = 0; i < nranks; i++)
		if (pipe(up[i]) || pipe(down[i]))
			die("pipe", -errno, NULL);
	for (rank = 0; rank < nranks; rank++) {
		if (fork())
			continue;
		to_parent = up[rank][1];
		from_parent = down[rank][0];
		for (i = 0; i < nranks; i++) {
			close(up[i][0]);
			close(down[i][1]);
			if (i != rank) {
				close(up[i][1]);
				close(down[i][0]);
			}
		}
		cfg.rank = rank;
		if (argc > 2)
			cfg.socket = argv[2 + rank % (uint32_t)(argc - 2)];
		run(&cfg);
		exit(0);
	}
	for (i = 0; i < nranks; i++) {
		close(up[i][1]);
		close(down[i][0]);
	}
	/* the parent only passes endpoints around, until the ranks hang up */
	for (;;) {
		for (i = 0; i < nranks; i++)
			if (read(up[i][0], &eps[i], sizeof(*eps)) != sizeof(*eps))
				goto end;
		for (i = 0; i < nranks; i++)
			all_write(down[i][1], eps, nranks * sizeof(*eps));
	}
end:
	for (i = 0; i < nranks; i++) {
		close(up[i][0]);
		close(down[i][1]);
	}
	while (wait(&st) > 0)
		failed |= st;
	return failed ? 1 : 0;
}

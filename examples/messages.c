// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Two-sided messages without MPI: two processes, which exchange ROUNDS messages each way while they compute.
 * What a message is matched by is agreed on beforehand: the n-th one of a channel.  One that the receiver did
 * not expect is announced through a socket, as an MPI library's small message would.
 *
 *	cc messages.c $(pkg-config --cflags --libs libprogclient) -o messages
 *	./messages [MIB [SOCKET [SOCKET]]]
 *
 * With the SOCKETs of two daemons the processes are on two "nodes"; without one the usual search applies, with a
 * private daemon at last.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <progclient.h>

#define ROUNDS	20

static uint32_t rank;
static int peer;			/* socket to the other process */

static void die(const char *what, int err, const char *why)
{
	fprintf(stderr, "rank %u: %s: %s%s%s\n", rank, what, strerror(-err), why && *why ? ": " : "",
		why ? why : "");
	exit(1);
}

static void must(const char *what, int err)
{
	if (err < 0)
		die(what, err, NULL);
}

/* Give the other @len bytes and get as many of it. */
static void exchange(const void *mine, void *its, size_t len)
{
	if (write(peer, mine, len) != (ssize_t)len || recv(peer, its, len, MSG_WAITALL) != (ssize_t)len)
		die("the other process is gone", -EPIPE, NULL);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void compute(double seconds)
{
	double end = now() + seconds;

	while (now() < end)
		;
}

/* Message @i to the other rank and one from it.  Was it there after computing? */
static bool exchange_while_computing(struct prog_win *w, uint32_t i, char *in, char *out, size_t bytes)
{
	uint32_t other = 1 - rank;
	struct prog_msg_key to = { .src = rank, .dst = other, .ord = i };
	struct prog_msg_key from = { .src = other, .dst = rank, .ord = i };
	struct prog_buf ib = { .addr = in, .count = bytes }, ob = { .addr = out, .count = bytes };
	struct prog_msg_result res;
	struct prog_msg_id id;
	prog_msg *sent, *recvd;
	const void *head;
	size_t kept;
	bool there;

	memset(out, (int)(i + rank), bytes);
	must("recv", prog_msg_recv(w, &from, &ib, 0, &recvd));
	must("send", prog_msg_send(w, &to, &ob, 0, &id, &sent));
	compute(0.005);
	/* all the time nobody was in a call of the library */
	there = prog_msg_test(w, recvd, &res) == 1;
	must("wait", prog_msg_wait(w, recvd, &res));
	if (res.status || res.len != bytes)
		die("recv", res.status, "wrong status or length");
	/* the beginning was kept apart, see prog_msg_recv() */
	kept = prog_msg_head(w, recvd, &head);
	memcpy(in, head, kept);
	prog_msg_free(w, recvd);
	must("wait", prog_msg_wait(w, sent, &res));
	if (res.status)
		die("send", res.status, NULL);
	prog_msg_free(w, sent);
	if (in[0] != (char)(i + other) || in[bytes - 1] != (char)(i + other))
		die("check", -EPROTO, "wrong data");
	return there;
}

/* Not announced: who gets the id can receive it.  @out has what the last round left there. */
static void exchange_by_id(struct prog_win *w, char *in, char *out, size_t bytes)
{
	struct prog_msg_key to = { .src = rank, .dst = 1 - rank, .tag = 1 };
	struct prog_buf ib = { .addr = in, .count = bytes }, ob = { .addr = out, .count = bytes };
	struct prog_msg_id id, its;
	struct prog_msg_result res;
	prog_msg *sent, *recvd;

	memset(in, 0, bytes);
	must("send", prog_msg_send(w, &to, &ob, 0, &id, &sent));
	exchange(&id, &its, sizeof(id));
	must("recv", prog_msg_recv_by_id(w, &its, &ib, true, 0, &recvd));
	must("wait", prog_msg_wait(w, recvd, &res));
	if (res.status || res.moved != bytes || in[0] != (char)(ROUNDS - 1 + to.dst))
		die("recv", res.status, "wrong status, length or data");
	prog_msg_free(w, recvd);
	must("wait", prog_msg_wait(w, sent, NULL));
	prog_msg_free(w, sent);
}

static void run(const struct prog_session_cfg *cfg, size_t bytes)
{
	struct prog_win_cfg wcfg = { .kind = PROG_WIN_MSG_CONTEXT, .key = 1, .rank = rank, .nranks = 2 };
	uint32_t other = 1 - rank, i, there = 0;
	struct prog_endpoint eps[2];
	struct prog_session *s;
	struct prog_win *w;
	const char *why;
	char *in, *out, c = 0;
	int err;

	err = prog_session_open(cfg, &s, &why);
	if (err)
		die("open", err, why);

	/* collective: open, exchange, connect, agree, map, agree */
	must("window", prog_win_open(s, &wcfg, &w));
	prog_win_endpoint(w, &eps[rank]);
	exchange(&eps[rank], &eps[other], sizeof(eps[0]));
	err = prog_win_connect(w, eps, &why);
	if (err)
		die("connect", err, why);
	exchange(&c, &c, 1);
	must("map", prog_win_map(w, NULL));
	exchange(&c, &c, 1);

	/* any memory will do; this kind is reached without a system call */
	must("memory", prog_mem_alloc(s, bytes, (void **)&in));
	must("memory", prog_mem_alloc(s, bytes, (void **)&out));

	for (i = 0; i < ROUNDS; i++)
		there += exchange_while_computing(w, i, in, out, bytes);
	exchange_by_id(w, in, out, bytes);
	printf("rank %u: ok, %u of %u messages of %zu bytes arrived while it computed\n", rank, there, ROUNDS,
	       bytes);
	fflush(stdout);

	exchange(&c, &c, 1);
	prog_win_close(w);
	must("free", prog_mem_free(s, in));
	must("free", prog_mem_free(s, out));
	prog_session_close(s);
}

int main(int argc, char **argv)
{
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_EMBEDDED };
	size_t mib = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
	int pair[2], st = 0, st2 = 0;

	if (!mib || mib > 1024 || argc > 4) {
		fprintf(stderr, "usage: messages [MIB (1..1024) [SOCKET [SOCKET]]]\n");
		return 2;
	}
	must("key", prog_job_key_make(cfg.jobid, cfg.jobkey));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair", -errno, NULL);
	for (rank = 0; rank < 2; rank++) {
		if (fork())
			continue;
		peer = pair[rank];
		close(pair[1 - rank]);
		cfg.rank = rank;
		if (argc > 2)
			cfg.socket = argv[argc > 3 ? 2 + rank : 2];
		run(&cfg, mib << 20);
		exit(0);
	}
	close(pair[0]);
	close(pair[1]);
	wait(&st);
	wait(&st2);
	return st || st2 ? 1 : 0;
}

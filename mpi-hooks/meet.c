/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * What ranks tell each other when a job starts: by collective calls, or in MPI_Init by the launcher.
 *
 * MPICH connects two nodes when they first communicate, which takes tens of milliseconds, and its MPI_Finalize may hang over
 * UCX and TCP when there is such a connection (Documentation/mpi-hooks.md).  A program that needs none should get none from
 * us.  Its launcher Hydra keeps values for the processes that it started: PMI, version 1, lines over a socket, each
 * answered by one.  The library is not using it while we are in MPI_Init, and Hydra knows by the first
 * characters of a line which version it is of.
 */
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "hooks_gen.h"

/* Each rank asks for the values of all others, one by one: those of a node take their turns. */
#define MOST_RANKS	256
#define MOST_BYTES	512		/* Hydra's limit is 1,024 characters */
#define LINE		2048

/* Of the thread that starts a job: MPI_Init may be called by one while another has a communicator made from a session. */
static _Thread_local int launcher = -1;	/* its socket; -1: collective calls */
static _Thread_local MPI_Comm ranks;
static _Thread_local int own;		/* rank in it */
static char space[257];			/* the name that Hydra has for the job's values */
static unsigned int rounds;		/* the same on all ranks */

static bool is_env(const char *name, int value)
{
	const char *v = getenv(name);

	return v && atoi(v) == value;
}

/* Ask @line, which the answer takes the place of.  Is it a @want? */
static bool ask(char line[LINE], const char *want)
{
	struct pollfd p = { .fd = launcher, .events = POLLIN };
	size_t len = strlen(line);
	int flag, ms = 1;
	ssize_t got;

	if (send(launcher, line, len, MSG_NOSIGNAL) != (ssize_t)len)
		return false;
	for (len = 0; !len || line[len - 1] != '\n'; len += (size_t)got) {
		/*
		 * Who is still in the library's MPI_Init may need us; more rarely the longer it takes, as a hundred ranks of
		 * a node that look every millisecond leave no processor to those that are waited for.
		 */
		for (; poll(&p, 1, ms) <= 0; ms = ms < 64 ? 2 * ms : ms)
			PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ranks, &flag, MPI_STATUS_IGNORE);
		got = recv(launcher, line + len, LINE - 1 - len, 0);
		if (got <= 0)
			return false;
	}
	line[len - 1] = '\0';
	return !strncmp(line, want, strlen(want));
}

/* This round's value of @rank. */
static bool put(int rank, const void *data, size_t bytes)
{
	char hex[2 * MOST_BYTES + 1], line[LINE];

	sodium_bin2hex(hex, sizeof(hex), data, bytes);
	snprintf(line, sizeof(line), "cmd=put kvsname=%s key=asyncprog-%u-%d value=%s\n", space, rounds, rank, hex);
	return ask(line, "cmd=put_result rc=0");
}

static bool get(int rank, void *data, size_t bytes)
{
	const char *value;
	char line[LINE];
	size_t len;

	snprintf(line, sizeof(line), "cmd=get kvsname=%s key=asyncprog-%u-%d\n", space, rounds, rank);
	if (!ask(line, "cmd=get_result rc=0"))
		return false;
	value = strstr(line, "value=");
	return value && !sodium_hex2bin(data, bytes, value + 6, strlen(value + 6), " ", &len, NULL) && len == bytes;
}

/* All have put what they had to. */
static bool barrier(void)
{
	char line[LINE] = "cmd=barrier_in\n";

	return ask(line, "cmd=barrier_out");
}

/*
 * Is the other end of @fd Hydra's?  Not by what it sets in the environment, as programs may change that, and one rank alone; but there
 * is nothing else where it is in a PID namespace that this rank does not see.
 */
static bool is_hydra(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	char path[32], name[17] = "";
	FILE *f;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/comm", peer.pid);
	f = fopen(path, "re");
	if (!f)
		return getenv("MPI_LOCALNRANKS");
	if (!fgets(name, sizeof(name), f))
		name[0] = '\0';
	fclose(f);
	return !strcmp(name, "hydra_pmi_proxy\n");
}

/* Has the job more nodes than one?  Hydra lists (first node, nodes, ranks of each). */
static bool on_nodes(void)
{
	int first, nodes, ranks, len;
	char line[LINE], *at;
	bool more = false;

	snprintf(line, sizeof(line), "cmd=get kvsname=%s key=PMI_process_mapping\n", space);
	at = ask(line, "cmd=get_result rc=0") ? strstr(line, "(vector") : NULL;
	if (!at)
		return false;
	for (at += strlen("(vector"); sscanf(at, ",(%d,%d,%d)%n", &first, &nodes, &ranks, &len) == 3; at += len)
		more = more || first + nodes > 1;
	return more;
}

/* The same on all ranks: what the library needs itself, and what Hydra knows. */
void meet_begin(MPI_Comm comm, int n)
{
	char line[LINE] = "cmd=get_my_kvsname\n";

	ranks = comm;
	PMPI_Comm_rank(comm, &own);
	launcher = -1;
	if (IS_OMPI || comm != MPI_COMM_WORLD || !getenv("PMI_FD") || n > MOST_RANKS || !is_env("PMI_SIZE", n) ||
	    !is_env("PMI_RANK", own) || !is_hydra(atoi(getenv("PMI_FD"))))
		return;
	launcher = atoi(getenv("PMI_FD"));
	/* on one node the library connects nothing */
	if (!ask(line, "cmd=my_kvsname") || sscanf(line, "cmd=my_kvsname kvsname=%256s", space) != 1 || !on_nodes())
		launcher = -1;
}

bool meet_first(void *data, size_t bytes)
{
	bool ok;

	if (launcher < 0)
		return !PMPI_Bcast(data, (int)bytes, MPI_BYTE, 0, ranks);
	ok = own || put(0, data, bytes);
	ok = barrier() && ok && (!own || get(0, data, bytes));
	rounds++;
	return ok;
}

bool meet_agree(bool ok)
{
	int mine = ok, least = 0;
	uint8_t no = 1;

	if (launcher < 0)
		return !PMPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, ranks) && least;
	if (!ok)
		put(0, &no, sizeof(no));
	ok = barrier() && !get(0, &no, sizeof(no));
	rounds++;
	return ok;
}

bool meet_all(void *all, size_t bytes, int n)
{
	bool ok = all;

	if (launcher < 0)
		/* each adds its own: an MPI_Allgather would connect more processes of different nodes */
		return meet_agree(ok) && !PMPI_Allreduce(MPI_IN_PLACE, all, n * (int)(bytes / sizeof(uint64_t)), MPI_UINT64_T,
							 MPI_BOR, ranks);
	ok = ok && put(own, (char *)all + (size_t)own * bytes, bytes);
	ok = barrier() && ok;
	for (int i = 0; ok && i < n; i++)
		ok = get(i, (char *)all + (size_t)i * bytes, bytes);
	rounds++;
	return ok;
}

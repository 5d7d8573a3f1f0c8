// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * MPI_Init sends nothing to other nodes: where processes of MPICH have done so over UCX, MPI_Finalize may hang, which a program
 * that sends nothing must not know.  The harness communicates, so the messages are counted in a tool's MPI_Init.  And what an
 * intercommunicator costs.
 *
 * TEST_OTHER_PIDS=R: rank R is in another PID namespace than its launcher, as in a container.  Over UCX_TLS=tcp only: natively UCX
 * has no other way to such a process.
 */
#include "mpitest.h"

#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static int sends;		/* to other nodes, by UCX */
static int in_init;		/* of these when MPI_Init had returned */

/* MPICH sends by this, and within a node by other means. */
void *ucp_tag_send_nbx(void *ep, const void *buf, size_t count, uint64_t tag, const void *param);
void *ucp_tag_send_nbx(void *ep, const void *buf, size_t count, uint64_t tag, const void *param)
{
	__typeof__(&ucp_tag_send_nbx) real = (__typeof__(&ucp_tag_send_nbx))dlsym(RTLD_NEXT, "ucp_tag_send_nbx");

	sends++;
	return real(ep, buf, count, tag, param);
}

/* The launcher takes its time with the first answer: so the hooks look for it, and wait for so many milliseconds at most. */
static int waits[9], nwaits;

int poll(struct pollfd *p, nfds_t n, int ms)
{
	__typeof__(&poll) real = (__typeof__(&poll))dlsym(RTLD_NEXT, "poll");
	const char *launcher = getenv("PMI_FD");

	if (n != 1 || !launcher || p->fd != atoi(launcher) || nwaits == ARRAY_SIZE(waits))
		return real(p, n, ms);
	waits[nwaits++] = ms;
	return 0;
}

int MPI_Init(int *argc, char ***argv)
{
	int rc = PMPI_Init(argc, argv);

	in_init = sends;
	return rc;
}

static void init_sends_nothing(void)
{
	T_EQ(in_init, 0);
}

static void sends_are_counted(void)
{
	int before = sends, far = (t_rank + t_size / 2) % t_size, got = -1;

	M(MPI_Sendrecv(&t_rank, 1, MPI_INT, far, 0, &got, 1, MPI_INT, far, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
	T_EQ(got, far);
	T_EQ(sends, before + 1);
}

/* its members have agreed on it with one reduction more than the library does */
static void intercomm_by_one_reduction(void)
{
	int peer = 1 - t_rank % 2, count[4], all[4];
	MPI_Comm halves, inter;
	uint64_t a = 1, b;

	M(MPI_Comm_split(MPI_COMM_WORLD, t_rank % 2, 0, &halves));
	count[0] = sends;
	M(T_LIBRARY(MPI_Intercomm_create)(halves, 0, MPI_COMM_WORLD, peer, 3, &inter));
	count[1] = sends;
	M(T_LIBRARY(MPI_Allreduce)(&a, &b, 1, MPI_UINT64_T, MPI_MAX, inter));
	count[2] = sends;
	M(T_LIBRARY(MPI_Comm_free)(&inter));
	count[3] = sends;
	M(MPI_Intercomm_create(halves, 0, MPI_COMM_WORLD, peer, 3, &inter));
	count[3] = sends - count[3];
	M(MPI_Allreduce(count, all, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
	T_OK(all[2] > all[1], "%d and %d messages", all[1], all[2]);
	T_OK(all[3] <= all[2] - all[0], "%d messages, natively %d, and %d of a reduction", all[3], all[1] - all[0],
	     all[2] - all[1]);
	M(MPI_Comm_free(&inter));
	M(MPI_Comm_free(&halves));
}

static void launcher_is_waited_for(void)
{
	static const int want[ARRAY_SIZE(waits)] = { 1, 2, 4, 8, 16, 32, 64, 64, 64 };

	if (!t_expect_progress) {
		t_skip("without the hooks nobody asks the launcher");
		return;
	}
	if (T_EQ(nwaits, ARRAY_SIZE(want)))
		T_BYTES("milliseconds", waits, want, sizeof(want));
}

static void other_pids(void)
{
	pid_t child;
	int status;

	if (unshare(CLONE_NEWPID)) {
		printf("Bail out! unshare: %m\n");
		exit(1);
	}
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		return;
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		abort();
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int main(int argc, char **argv)
{
	const char *rank = getenv("PMI_RANK"), *other = getenv("TEST_OTHER_PIDS");

	if (rank && other && !strcmp(rank, other))
		other_pids();

	/* a program's environment is its own, and what a rank does with its own not the others' */
	if (rank && !strcmp(rank, "0"))
		unsetenv("MPI_LOCALNRANKS");
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(init_sends_nothing, 4);
	T_RUN(sends_are_counted, 4);
	T_RUN(intercomm_by_one_reduction, 4);
	T_RUN(launcher_is_waited_for, 4);
	return t_fini();
}

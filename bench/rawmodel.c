// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * rawmodel: what the machine could do at best, measured beside the real thing.
 *
 *	rawmodel --work ITERS_PER_MS [--budget-ms N]
 *
 * Two ranks on two nodes; MPI only starts them and tells rank 0 the address of rank 1.
 *
 *	rank 0 (pinned) --eventfd--> relay process --TCP--> echo process (blocked in recv)
 *	       ^------- eventfd ---------'   ^-----------------'    on rank 1's node, while rank 1
 *	                                                            computes on its core
 *
 *	model/B    the round trip of B bytes out and 8 back over that path: two wake-ups on the
 *	           origin's node and two blocking TCP hops. Relay and echo run on any core, as
 *	           daemons do. Back to back, target computing.
 *	model_single/8  the same, one per 2 ms at a random time
 *	spin/B     rank 0 and rank 1 exchange over TCP themselves, both polling, nobody computes
 *	stream     4 MiB pieces one way over one connection; a sample is the time of one piece
 *	           as the receiver sees it (mean over 16)
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_BYTES	(4UL << 20)
#define PIECES		16

static const size_t sizes[] = { 8, 4096, 262144, 4194304 };
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Shared between a rank and the process it forked. */
struct shared {
	_Atomic int stop;	/* set by the echo process: rank 1 may stop computing */
	size_t bytes;		/* of the next request; written by rank 0 before its wake-up */
	char payload[MAX_BYTES];
};

static struct shared *sh;
static int rank;

static void send_all(int fd, const void *buf, size_t n, int flags)
{
	const char *p = buf;

	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL | flags);

		if (k < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (k <= 0)
			bench_die("send: %s", strerror(errno));
		p += k;
		n -= (size_t)k;
	}
}

/* Returns false at end of stream. */
static bool recv_all(int fd, void *buf, size_t n, int flags)
{
	char *p = buf;

	while (n) {
		ssize_t k = recv(fd, p, n, flags);

		if (k < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (k < 0)
			bench_die("recv: %s", strerror(errno));
		if (!k)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

static void wake(int efd)
{
	uint64_t one = 1;

	if (write(efd, &one, sizeof(one)) != sizeof(one))
		bench_die("eventfd: %s", strerror(errno));
}

static void wait_wake(int efd)
{
	uint64_t v;

	while (read(efd, &v, sizeof(v)) < 0)
		if (errno != EINTR)
			bench_die("eventfd: %s", strerror(errno));
}

/* First IPv4 address that is up and not loopback: a virtual node has exactly one. */
static struct in_addr own_address(void)
{
	struct in_addr found = { 0 };
	struct ifaddrs *list, *i;

	if (getifaddrs(&list))
		bench_die("getifaddrs: %s", strerror(errno));
	for (i = list; i; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
		    !(i->ifa_flags & IFF_LOOPBACK) && (i->ifa_flags & IFF_UP)) {
			found = ((struct sockaddr_in *)i->ifa_addr)->sin_addr;
			break;
		}
	freeifaddrs(list);
	if (!found.s_addr)
		bench_die("no network address but loopback");
	return found;
}

static void nodelay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* A child that may run on any core, as a daemon does, and ends with its parent. */
static pid_t fork_free(void)
{
	pid_t pid = fork();
	cpu_set_t all;

	if (pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CPU_ZERO(&all);
	for (long c = sysconf(_SC_NPROCESSORS_CONF); c-- > 0;)
		CPU_SET((int)c, &all);
	sched_setaffinity(0, sizeof(all), &all);
	return 0;
}

/* Frame of the model: payload size, then that many bytes; the answer is 8 bytes. */
static void echo_loop(int listener)
{
	uint64_t bytes = 0;
	int fd = accept(listener, NULL, NULL);

	if (fd < 0)
		bench_die("accept: %s", strerror(errno));
	nodelay(fd);
	while (recv_all(fd, &bytes, sizeof(bytes), 0)) {
		if (bytes > MAX_BYTES || !recv_all(fd, sh->payload, bytes, 0))
			break;
		send_all(fd, &bytes, sizeof(bytes), 0);
	}
	atomic_store(&sh->stop, 1);
	_exit(0);
}

static void relay_loop(int fd, int to_relay, int to_rank)
{
	for (;;) {
		uint64_t bytes, reply;

		wait_wake(to_relay);
		bytes = sh->bytes;
		if (bytes == SIZE_MAX)
			_exit(0);
		send_all(fd, &bytes, sizeof(bytes), bytes ? MSG_MORE : 0);
		send_all(fd, sh->payload, bytes, 0);
		if (!recv_all(fd, &reply, sizeof(reply), 0))
			bench_die("relay: the echo process is gone");
		wake(to_rank);
	}
}

static int connect_to(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof(*to)))
		bench_die("connect: %s", strerror(errno));
	nodelay(fd);
	return fd;
}

static void model_origin(const struct sockaddr_in *to, int64_t budget_ns)
{
	int to_relay = eventfd(0, EFD_CLOEXEC), to_rank = eventfd(0, EFD_CLOEXEC);
	int fd = connect_to(to);
	struct bench_samples s = { 0 };
	uint64_t rng = 1;
	pid_t relay = fork_free();

	if (!relay)
		relay_loop(fd, to_relay, to_rank);
	close(fd);
	for (size_t i = 0; i <= NSIZES; i++) {
		bool single = i == NSIZES;
		int64_t end = bench_now() + budget_ns * (single ? 3 : 1);
		char key[32];

		sh->bytes = single ? 8 : sizes[i];
		bench_samples_reset(&s);
		for (int k = -3; bench_now() < end && k < 2000; k++) {
			int64_t t0 = bench_now();

			if (single) {
				bench_spin_until(t0 + (int64_t)(bench_rand(&rng) % 4000000));
				t0 = bench_now();
			}
			wake(to_relay);
			wait_wake(to_rank);
			if (k >= 0)
				bench_samples_add(&s, bench_now() - t0);
		}
		snprintf(key, sizeof(key), "model%s/%zu", single ? "_single" : "", sh->bytes);
		bench_emit(key, "ns", &s);
	}
	sh->bytes = SIZE_MAX;
	wake(to_relay);
	waitpid(relay, NULL, 0);
	bench_samples_free(&s);
}

static void spin_origin(int fd)
{
	const size_t spin_sizes[] = { 8, 4096 };
	struct bench_samples s = { 0 };

	for (size_t i = 0; i < 2; i++) {
		char key[32];

		bench_samples_reset(&s);
		for (int k = -10; k < 1000; k++) {
			uint64_t bytes = spin_sizes[i];
			int64_t t0 = bench_now();

			send_all(fd, &bytes, sizeof(bytes), MSG_MORE);
			send_all(fd, sh->payload, bytes, 0);
			recv_all(fd, &bytes, sizeof(bytes), MSG_DONTWAIT);
			if (k >= 0)
				bench_samples_add(&s, bench_now() - t0);
		}
		snprintf(key, sizeof(key), "spin/%zu", spin_sizes[i]);
		bench_emit(key, "ns", &s);
	}
	bench_samples_free(&s);
}

static void spin_target(int fd)
{
	for (int k = 0; k < 2 * 1010; k++) {
		uint64_t bytes;

		if (!recv_all(fd, &bytes, sizeof(bytes), MSG_DONTWAIT) || bytes > MAX_BYTES ||
		    !recv_all(fd, sh->payload, bytes, MSG_DONTWAIT))
			bench_die("spin: connection closed");
		send_all(fd, &bytes, sizeof(bytes), 0);
	}
}

/* One acknowledgement per PIECES, as a flush would want. */
static void stream(int fd, int64_t budget_ns)
{
	struct bench_samples s = { 0 };
	int64_t end = bench_now() + budget_ns;
	uint64_t more = 1;

	do {
		int64_t t0 = bench_now();

		if (rank) {
			for (int i = 0; i < PIECES; i++)
				if (!recv_all(fd, sh->payload, MAX_BYTES, 0))
					bench_die("stream: connection closed");
			send_all(fd, &more, sizeof(more), 0);
			recv_all(fd, &more, sizeof(more), 0);
		} else {
			for (int i = 0; i < PIECES; i++)
				send_all(fd, sh->payload, MAX_BYTES, 0);
			recv_all(fd, &more, sizeof(more), 0);
			bench_samples_add(&s, (bench_now() - t0) / PIECES);
			more = bench_now() < end;
			send_all(fd, &more, sizeof(more), 0);
		}
	} while (more);
	if (!rank)
		bench_emit("stream", "ns", &s);
	bench_samples_free(&s);
}

static int listen_any(struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*at);

	memset(at, 0, sizeof(*at));
	at->sin_family = AF_INET;
	at->sin_addr = own_address();
	if (fd < 0 || bind(fd, (struct sockaddr *)at, len) || listen(fd, 4) ||
	    getsockname(fd, (struct sockaddr *)at, &len))
		bench_die("listen: %s", strerror(errno));
	return fd;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at[2];
	uint64_t work;
	int64_t budget_ns;
	pid_t echo = -1;
	int size, listener = -1, fd;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		bench_die("rawmodel wants 2 ranks, not %d", size);
	work = bench_opt(argc, argv, "--work", 0);
	if (!work)
		bench_die("--work ITERS_PER_MS is missing");
	budget_ns = (int64_t)bench_opt(argc, argv, "--budget-ms", 300) * 1000000;

	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		bench_die("mmap: %s", strerror(errno));
	memset(sh, 1, sizeof(*sh));
	atomic_store(&sh->stop, 0);

	/* at[0]: the echo process; at[1]: rank 1 itself */
	if (rank) {
		listener = listen_any(&at[0]);
		echo = fork_free();
		if (!echo)
			echo_loop(listener);
		close(listener);
		listener = listen_any(&at[1]);
	}
	MPI_Bcast(at, sizeof(at), MPI_BYTE, 1, MPI_COMM_WORLD);
	if (rank) {
		while (!atomic_load(&sh->stop))
			bench_compute(work);
		waitpid(echo, NULL, 0);
		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			bench_die("accept: %s", strerror(errno));
		nodelay(fd);
		spin_target(fd);
	} else {
		model_origin(&at[0], budget_ns);
		fd = connect_to(&at[1]);
		spin_origin(fd);
	}
	stream(fd, budget_ns);
	close(fd);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}

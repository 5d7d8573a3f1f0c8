// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What a process that has confined itself can do and cannot, each time in a child. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_alg.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/kit.h>

#include "confine/confine.h"
#include "loop/loop.h"

/* A sanitizer's run-time needs some calls that the product refuses itself. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED	1
#else
#define SANITIZED	0
#endif

/* The line of the child's first failure, 0: none. */
static void in_child(int who, int (*fn)(void))
{
	pid_t pid = fork();
	int st;

	if (!pid) {
		int r = confine(who);

		_exit(r ? 250 : fn());
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	if (!WIFEXITED(st) || WEXITSTATUS(st))
		fail_msg("%s", WIFEXITED(st) && WEXITSTATUS(st) == 250 ? "cannot be confined" : WIFSIGNALED(st) ? strsignal(WTERMSIG(st)) :
			 "something was not as it should be: see above");
}

#define EXPECT(cond) do { \
	if (!(cond)) { \
		print_error("%s:%d: %s: errno %d\n", __FILE__, __LINE__, #cond, errno); \
		return 1; \
	} \
} while (0)

/* -1, and it is the filter that says so */
#define REFUSED(call)	(errno = 0, (long)(call) == -1 && errno == EPERM)

static int family(int af, int type, int protocol)
{
	int fd = socket(af, type, protocol);

	if (fd >= 0)
		close(fd);
	return fd < 0 ? -1 : 0;
}

static int programs(void)
{
	char *argv[] = { "true", NULL };

	EXPECT(REFUSED(execve("/bin/true", argv, NULL)));
	EXPECT(REFUSED(syscall(SYS_execveat, AT_FDCWD, "/bin/true", argv, NULL, 0)));
	EXPECT(SANITIZED || REFUSED(fork()));
	EXPECT(SANITIZED || REFUSED(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL)));
	EXPECT(REFUSED(unshare(CLONE_NEWUSER)));
	return 0;
}

static int other_processes(void)
{
	EXPECT(SANITIZED || REFUSED(ptrace(PTRACE_TRACEME, 0, NULL, NULL)));
	EXPECT(REFUSED(kill(getppid(), 0)));
	EXPECT(SANITIZED || REFUSED(syscall(SYS_tgkill, getppid(), getppid(), 0)));
	EXPECT(!syscall(SYS_tgkill, getpid(), gettid(), 0));
	EXPECT(REFUSED(syscall(SYS_pidfd_getfd, 0, 0, 0)));
	EXPECT(REFUSED(syscall(SYS_process_madvise, 0, NULL, 0, 0, 0)));
	EXPECT(SANITIZED || REFUSED(prlimit(getppid(), RLIMIT_NOFILE, &(struct rlimit){ 9, 9 }, NULL)));
	EXPECT(REFUSED(sched_setscheduler(getppid(), SCHED_OTHER, &(struct sched_param){ 0 })));
	EXPECT(REFUSED(setpriority(PRIO_PROCESS, getppid(), 19)));
	return 0;
}

static int sockets(void)
{
	EXPECT(REFUSED(family(AF_PACKET, SOCK_DGRAM, 0)));
	EXPECT(REFUSED(family(AF_ALG, SOCK_SEQPACKET, 0)));
	EXPECT(REFUSED(family(AF_VSOCK, SOCK_STREAM, 0)));
	EXPECT(REFUSED(family(AF_NETLINK, SOCK_RAW, 9)));	/* NETLINK_AUDIT */
	EXPECT(!family(AF_UNIX, SOCK_SEQPACKET, 0) && !family(AF_INET, SOCK_STREAM, 0) && !family(AF_NETLINK, SOCK_RAW, 0));
	EXPECT(REFUSED(listen(0, 1)));
	return 0;
}

static int memory_and_kernel(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char params[256] = "";

	EXPECT(p != MAP_FAILED && !mprotect(p, 4096, PROT_READ) && !madvise(p, 4096, MADV_DONTNEED));
	EXPECT(SANITIZED || REFUSED(mprotect(p, 4096, PROT_READ | PROT_EXEC)));
	EXPECT(SANITIZED || REFUSED(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
	EXPECT(REFUSED(syscall(SYS_io_uring_setup, 8, params)));
	EXPECT(REFUSED(syscall(SYS_io_uring_register, 0, 0, NULL, 0)));
	EXPECT(REFUSED(syscall(SYS_bpf, 0, NULL, 0)) && REFUSED(syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0)));
	EXPECT(REFUSED(syscall(SYS_userfaultfd, 0)) && REFUSED(syscall(SYS_add_key, NULL, NULL, NULL, 0, 0)));
	/* somebody at the terminal would have typed this */
	EXPECT(SANITIZED || REFUSED(ioctl(0, TIOCSTI, "x")));
	return 0;
}

/* What serving needs. */
static int allowed(void)
{
	uint64_t value = 7, copy = 0;
	struct iovec from = { &value, sizeof(value) }, to = { &copy, sizeof(copy) };
	int fd[2], left = 0;
	cpu_set_t cpus;

	EXPECT(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof(value) && copy == 7);
	fd[0] = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
	EXPECT(fd[0] >= 0 && read(fd[0], &copy, 1) == 1 && !close(fd[0]));
	fd[0] = pidfd_open(getpid(), 0);
	EXPECT(fd[0] >= 0 && !close(fd[0]));
	fd[0] = eventfd(0, EFD_CLOEXEC);
	EXPECT(fd[0] >= 0 && write(fd[0], &value, sizeof(value)) == sizeof(value) && !close(fd[0]));
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	EXPECT(!ioctl(fd[0], TIOCOUTQ, &left) || errno != EPERM);
	EXPECT(!sched_getaffinity(0, sizeof(cpus), &cpus) && !sched_setaffinity(0, sizeof(cpus), &cpus));
	EXPECT(getrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0 }) == 0);
	return 0;
}

static void test_daemon(void **state)
{
	in_child(CONFINE_DAEMON, programs);
	in_child(CONFINE_DAEMON, other_processes);
	in_child(CONFINE_DAEMON, sockets);
	in_child(CONFINE_DAEMON, memory_and_kernel);
	in_child(CONFINE_DAEMON, allowed);
}

/* ---- threads ---- */

static int go[2];

static void *try_later(void *arg)
{
	char *argv[] = { "true", NULL };
	char byte;

	if (read(go[0], &byte, 1) != 1)
		return "no byte";
	errno = 0;
	execve("/bin/true", argv, NULL);
	return errno == EPERM ? NULL : "not refused";
}

/* A thread that was there before. */
static int with_thread(void)
{
	pthread_t t;
	void *why;

	if (pipe(go) || pthread_create(&t, NULL, try_later, NULL) || confine(CONFINE_DAEMON) || write(go[1], "", 1) != 1 ||
	    pthread_join(t, &why))
		return 1;
	return why ? 2 : 0;
}

static void test_threads(void **state)
{
	pid_t pid = fork();
	int st;

	if (!pid)
		_exit(with_thread());
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
}

/* ---- event loops ---- */

static void got(void *ctx)
{
	*(int *)ctx = 1;
}

static int run_loop(struct loop *l)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), seen = 0;
	struct loop_watch *w = loop_fd_watch(l, fd, 0, got, &seen);
	uint64_t one = 1;

	EXPECT(w && write(fd, &one, sizeof(one)) == sizeof(one));
	for (int i = 0; i < 100 && !seen; i++)
		EXPECT(loop_run_once(l, 10000000) >= 0);
	EXPECT(seen);
	loop_unwatch(w);
	loop_free(l);
	close(fd);
	return 0;
}

static void test_loops(void **state)
{
	for (int kind = LOOP_AUTO; kind <= LOOP_EPOLL; kind++) {
		pid_t pid = fork();
		int st;

		if (!pid) {
			struct loop *l = NULL;

			/* a loop has run once when a daemon has started */
			if (loop_new(kind, &l))
				_exit(kind == LOOP_IO_URING ? 0 : 1);
			if (loop_run_once(l, 0) < 0 || confine(CONFINE_DAEMON))
				_exit(2);
			_exit(run_loop(l));
		}
		assert_int_equal(waitpid(pid, &st, 0), pid);
		assert_int_equal(st, 0);
	}
}

/* ---- the supervisor ---- */

static int supervisor(void)
{
	int st;
	pid_t pid;

	EXPECT(SANITIZED || REFUSED(ptrace(PTRACE_TRACEME, 0, NULL, NULL)));
	EXPECT(REFUSED(syscall(SYS_pidfd_getfd, 0, 0, 0)) && REFUSED(unshare(CLONE_NEWUSER)) && REFUSED(family(AF_PACKET, SOCK_DGRAM, 0)));
	EXPECT(REFUSED(syscall(SYS_bpf, 0, NULL, 0)) && REFUSED(mount("none", "/", "tmpfs", 0, NULL)));
	/* what it starts confines itself further */
	pid = fork();
	if (!pid) {
		if (confine(CONFINE_DAEMON))
			_exit(2);
		_exit(programs());
	}
	EXPECT(pid > 0 && waitpid(pid, &st, 0) == pid && !st);
	pid = fork();
	if (!pid) {
		execl("/bin/sh", "sh", "-c", "exit 7", NULL);
		_exit(1);
	}
	EXPECT(pid > 0 && waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 7);
	return 0;
}

static void test_supervisor(void **state)
{
	in_child(CONFINE_SUPERVISOR, supervisor);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_daemon), cmocka_unit_test(test_threads), cmocka_unit_test(test_loops),
	cmocka_unit_test(test_supervisor),
};

KIT_SUITE(tests);

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * What a user who knows the kernel well tries: names made first, descriptors that are strange, connections that are shared, given on and
 * left half open, namespaces, limits, and bytes at the lanes' ports, with lanes that are encrypted.  See kit/hostile.h.
 */
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include <kit/hostile.h>
#include <libprogbase/scm.h>
#include <wire/super.h>

#define MANY	253		/* descriptors with one message: as many as the kernel lets */

static const char *const doors[] = { "", ".ctl", SUPER_SOCKET };
#define DOORS	(sizeof(doors) / sizeof(doors[0]))

static ssize_t say(int fd, const void *what, size_t len, const int *fds, unsigned int n)
{
	struct iovec iov = { (void *)(uintptr_t)what, len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	SCM_BUF(MANY) ctl;

	scm_attach(&mh, ctl.buf, fds, n);
	return sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static struct prog_ctrl_hello hello_of(void)
{
	struct prog_ctrl_hello q = {
		.hdr = { .type = PROG_CTRL_HELLO, .size = sizeof(q) }, .magic = PROG_SESSION_MAGIC,
		.abi_major = PROG_ABI_MAJOR, .abi_minor = PROG_ABI_MINOR,
	};

	getrandom(q.jobid, sizeof(q.jobid), 0);
	getrandom(q.jobkey, sizeof(q.jobkey), 0);
	return q;
}

/* ---- other processes -------------------------------------------------------------------------------------------- */

static void refused(pid_t pid, const char *file, int how)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	MUST(open(path, how) < 0 && (errno == EACCES || errno == EPERM));
}

/* What else the kernel can do to a process for another one. */
static void meddle_with(pid_t pid)
{
	static const char *const files[] = { "pagemap", "map_files", "ns/net", "personality", "stack", "io" };
	static const char *const written[] = { "oom_score_adj", "clear_refs", "coredump_filter", "comm" };
	struct perf_event_attr attr = { .size = sizeof(attr), .type = PERF_TYPE_SOFTWARE };
	int pidfd = pidfd_open(pid, 0), to[1] = { 0 }, status[1], fd;
	char path[64];
	struct iovec iov = { (void *)0x400000, 4096 };
	void *page[1] = { (void *)0x400000 }, *head;
	size_t len;
	siginfo_t si = { .si_code = SI_QUEUE };

	MUST(pidfd >= 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		refused(pid, files[i], O_RDONLY);
	for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++)
		refused(pid, written[i], O_WRONLY);
	snprintf(path, sizeof(path), "/proc/%d/timerslack_ns", (int)pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	MUST(fd < 0 || write(fd, "1000000000", 10) < 0);
	close(fd);
	MUST(syscall(SYS_kcmp, getpid(), pid, KCMP_FILE, 0, 0) < 0 && errno == EPERM);
	MUST(syscall(SYS_process_madvise, pidfd, &iov, 1, MADV_PAGEOUT, 0) < 0 && (errno == EPERM || errno == EACCES));
	MUST(syscall(SYS_process_mrelease, pidfd, 0) < 0);
	MUST(syscall(SYS_move_pages, pid, 1, page, to, status, 0) < 0 && errno == EPERM);
	MUST(syscall(SYS_get_robust_list, pid, &head, &len) < 0 && errno == EPERM);
	MUST(syscall(SYS_perf_event_open, &attr, pid, -1, -1, 0) < 0);
	MUST(syscall(SYS_ioprio_set, 1, pid, 3 << 13) < 0 && errno == EPERM);
	MUST(syscall(SYS_rt_sigqueueinfo, pid, SIGTERM, &si) < 0 && errno == EPERM);
	MUST(syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0) < 0 && errno == EPERM);
	MUST(setns(pidfd, CLONE_NEWNET) < 0 && errno == EPERM);
	MUST(setpgid(pid, 0) < 0);
	close(pidfd);
}

static void attack_meddling(void)
{
	meddle_with(hostile.supervisor);
	meddle_with(hostile.engine[0]);
	meddle_with(hostile.engine[1]);
	meddle_with(hostile.pid);
	/* all that it may reach, but itself */
	signal(SIGTERM, SIG_IGN);
	kill(-1, SIGTERM);
}

/* Signals that descriptors send to who is said to own them. */
static void attack_owners(void)
{
	const pid_t pids[] = { hostile.supervisor, hostile.engine[0], hostile.engine[1], hostile.pid };

	for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++) {
		int sv[2], p[2];

		MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv) && !pipe(p));
		for (int k = 0; k < 2; k++) {
			int fd = k ? p[0] : sv[0], to = k ? p[1] : sv[1];

			fcntl(fd, F_SETOWN, pids[i]);
			fcntl(fd, F_SETSIG, SIGKILL);
			MUST(!fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK));
			for (int n = 0; n < 10; n++)
				MUST(write(to, "x", 1) == 1);
		}
	}
	for (size_t i = 0; i < DOORS; i++) {
		int fd = hostile_connect(doors[i]);

		MUST(fd >= 0);
		fcntl(fd, F_SETOWN, hostile.supervisor);
		fcntl(fd, F_SETSIG, SIGKILL);
		fcntl(fd, F_SETFL, O_ASYNC);
	}
}

/* Messages of the kernel's that are none; connections that others have, to be ended by it. */
static void attack_netlink(void)
{
	const pid_t pids[] = { hostile.supervisor, hostile.engine[0], hostile.engine[1], hostile.pid };
	static const int protos[] = { NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT, NETLINK_GENERIC };
	struct {
		struct nlmsghdr h;
		struct rtgenmsg g;
	} m = { .h = { .nlmsg_len = sizeof(m), .nlmsg_type = RTM_NEWADDR } };

	for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++) {
		for (size_t k = 0; k < sizeof(protos) / sizeof(protos[0]); k++) {
			struct sockaddr_nl to = { .nl_family = AF_NETLINK, .nl_pid = pids[i] }, all = to;
			int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protos[k]);

			if (fd < 0)
				continue;
			MUST(sendto(fd, &m, sizeof(m), 0, (struct sockaddr *)&to, sizeof(to)) < 0);
			all.nl_pid = 0;
			all.nl_groups = ~0u;
			MUST(sendto(fd, &m, sizeof(m), 0, (struct sockaddr *)&all, sizeof(all)) < 0);
			close(fd);
		}
	}
}

/* ---- names -------------------------------------------------------------------------------------------------------- */

/* What private daemons of the victim's would be at, as whatever a name can be; and names beside the service's. */
static void attack_names(void)
{
	static const char *const others[] = { "/tmp/progd", "/tmp/progd.sock", "/dev/shm/progd", "/dev/shm/asyncprog-session" };
	char path[64], own[64];
	int fd;

	snprintf(path, sizeof(path), "/tmp/asyncprog-%u", USER_A);
	snprintf(own, sizeof(own), "/tmp/asyncprog-%u", USER_B);
	MUST(symlink("/etc", path) == 0 || errno == EEXIST);
	unlink(path);
	MUST(mkfifo(path, 0666) == 0 || errno == EEXIST);
	unlink(path);
	MUST(symlink(own, path) == 0 || errno == EEXIST);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		MUST(symlink("/etc/passwd", others[i]) == 0 || errno == EEXIST);
	/* another name for the victim's door, and a lock on it */
	snprintf(path, sizeof(path), "/tmp/asyncprog-link-%d", (int)getpid());
	MUST(link(hostile.node[0].sock, path) < 0);
	fd = open(hostile.node[0].dir, O_RDONLY | O_DIRECTORY);
	MUST(fd >= 0);
	MUST(fchmod(fd, 0777) < 0 && openat(fd, "x", O_CREAT | O_WRONLY, 0600) < 0);
	MUST(inotify_add_watch(inotify_init1(IN_CLOEXEC), hostile.node[0].dir, IN_ALL_EVENTS) >= 0);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		unlink(others[i]);
}

/* The ports of the victim's engines in all ways that may be had, and beside them. */
static void attack_ports(void)
{
	static const int ways[][2] = { { 0, 0 }, { SO_REUSEADDR, 0 }, { SO_REUSEPORT, 0 }, { SO_REUSEADDR, SO_REUSEPORT } };

	for (int which = 0; which < 2; which++) {
		const struct prog_addr *a = &hostile.addr[which];
		struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = a->port };
		struct sockaddr_in6 any6 = { .sin6_family = AF_INET6, .sin6_port = a->port };

		for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
			for (int k = 0; k < 4; k++) {
				int fd = socket(k == 3 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, r;

				if (fd < 0)
					continue;
				for (int o = 0; o < 2; o++)
					if (ways[i][o])
						setsockopt(fd, SOL_SOCKET, ways[i][o], &one, sizeof(one));
				/* there, everywhere, at another address, everywhere by IPv6 */
				memcpy(&at.sin_addr, a->ip, 4);
				if (k)
					at.sin_addr.s_addr = k == 1 ? htonl(INADDR_ANY) : htonl(INADDR_LOOPBACK + 7);
				r = k == 3 ? bind(fd, (struct sockaddr *)&any6, sizeof(any6)) :
					     bind(fd, (struct sockaddr *)&at, sizeof(at));
				MUST(r < 0 || k == 2 || listen(fd, 1) < 0);
				if (k == 2)
					listen(fd, 1);
				else
					close(fd);
			}
		}
	}
}

/* ---- descriptors ---------------------------------------------------------------------------------------------------- */

/* One of each kind that there is; the last time something else: *@n is how many there are. */
static int strange(unsigned int which, unsigned int *n)
{
	static const char *const files[] = { "/proc/self/mem", "/dev/ptmx", "/dev/zero", "/dev/full", "/proc/self/pagemap", "/",
					     "/proc/self/ns/user" };
	const unsigned int nfiles = sizeof(files) / sizeof(files[0]);
	int fd, p[2], sv[2];
	sigset_t set;

	*n = nfiles + 13;
	if (which < nfiles)
		return open(files[which], (which < 4 ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY);
	switch (which - nfiles) {
	case 0:
		MUST(!pipe2(p, O_CLOEXEC));
		return p[0];
	case 1:
		MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
		return sv[0];
	case 2:
		/* a set that has others, up to where the kernel ends it */
		fd = epoll_create1(EPOLL_CLOEXEC);
		for (int i = 0; i < 3; i++) {
			struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
			int outer = epoll_create1(EPOLL_CLOEXEC);

			MUST(!epoll_ctl(outer, EPOLL_CTL_ADD, fd, &ev));
			fd = outer;
		}
		return fd;
	case 3:
		return eventfd(0, EFD_SEMAPHORE);
	case 4:
		return timerfd_create(CLOCK_REALTIME, 0);
	case 5:
		sigfillset(&set);
		return signalfd(-1, &set, 0);
	case 6:
		return inotify_init1(0);
	case 7:
		return pidfd_open(hostile.pid, 0);
	case 8:
		return pidfd_open(hostile.supervisor, 0);
	case 9:
		return open(hostile.node[0].sock, O_PATH | O_CLOEXEC);
	case 10:
		fd = memfd_create("x", 0);	/* may shrink */
		MUST(!ftruncate(fd, 1 << 24));
		return fd;
	case 11:
		fd = memfd_create("x", MFD_ALLOW_SEALING);
		MUST(!ftruncate(fd, 1ll << 40) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE));
		return fd;
	default:
		return syscall(SYS_userfaultfd, O_CLOEXEC | 1) < 0 ? dup(0) : (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);
	}
}

/* Each as the segment of a session, and as what comes with it: refused by an engine that goes on. */
static void attack_strange(void)
{
	struct prog_session *s = hostile_session(0, NULL);
	unsigned int n = 1;
	uint64_t end;
	ssize_t r;

	/* its own memory is a file of its own again */
	MUST(s && !prctl(PR_SET_DUMPABLE, 1));
	for (unsigned int i = 0; i < n; i++) {
		struct prog_ctrl_hello q = hello_of();
		int fd = strange(i, &n), conn = hostile_connect(""), fds[MANY];
		char reply[512];

		MUST(fd >= 0 && conn >= 0);
		/* when those that others have closed are closed */
		for (end = nodes_now() + 20 * SEC; (r = say(conn, &q, sizeof(q), &fd, 1)) < 0 && errno == ETOOMANYREFS; usleep(1000))
			MUST(nodes_now() < end);
		MUST(r == sizeof(q));
		MUST(recv(conn, reply, sizeof(reply), 0) <= 0 || ((struct prog_ctrl_hdr *)reply)->status < 0);
		close(conn);
		for (int k = 0; k < MANY; k++)
			fds[k] = fd;
		for (size_t k = 0; k < DOORS; k++) {
			conn = hostile_connect(doors[k]);
			MUST(conn >= 0);
			while (say(conn, &q, sizeof(q), fds, MANY) > 0)
				;
			close(conn);
		}
		MUST(!prog_session_ping(s));
		close(fd);
	}
}

/* Connections that wait in themselves, in each other, and in sets that watch them; then nobody has them any more. */
static void cycle(void *ctx)
{
	int fd[8], sv[2], ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT };

	for (int i = 0; i < 8; i++) {
		fd[i] = hostile_connect(doors[i % DOORS]);
		MUST(fd[i] >= 0);
		epoll_ctl(ep, EPOLL_CTL_ADD, fd[i], &ev);
	}
	for (int i = 0; i < 8; i++)
		for (int k = 0; k < 4 && say(fd[i], "x", 1, fd, 8) > 0 && say(fd[i], "x", 1, &ep, 1) > 0; k++)
			;
	MUST(!socketpair(AF_UNIX, SOCK_DGRAM, 0, sv));
	say(sv[0], "x", 1, sv, 2);
	say(sv[1], "x", 1, fd, 8);
	say(fd[0], "x", 1, sv, 2);
	for (int i = 0; i < 8; i++)
		close(fd[i]);
	close(sv[0]);
	close(sv[1]);
	close(ep);
}

static void attack_cycles(void)
{
	for (int i = 0; i < 50; i++)
		cycle(NULL);
	hostile_go_on(cycle, NULL);
}

/* The memory of its session is thrown away again and again, and is there anew, with what makes no sense. */
static void punch(void *ctx)
{
	struct prog_session *s = ctx;

	madvise(s->seg, s->seg_size, MADV_REMOVE);
	for (size_t i = 0; i < s->seg_size; i += 4096)
		memset((char *)s->seg + i, 0xff, 64);
	for (uint32_t i = 0; i < s->workers; i++)
		eventfd_write(s->kick[i], 1);
}

static void attack_punched(void)
{
	struct prog_session *s = hostile_session(0, NULL);

	MUST(s);
	hostile_go_on(punch, s);
}

/* ---- connections ------------------------------------------------------------------------------------------------------ */

/* So many who connect that the door has always as many before it as fit. */
static void attack_crowd(void)
{
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();

		MUST(pid >= 0);
		if (pid)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			int fd[64];

			for (int k = 0; k < 64; k++)
				fd[k] = hostile_connect(doors[k % DOORS]);
			for (int k = 0; k < 64; k++)
				close(fd[k]);
		}
	}
}

/* Half closed, nothing said or nothing heard, all at once. */
static void attack_half_closed(void)
{
	hostile_many_files();
	for (int i = 0; i < 900; i++) {
		int fd = hostile_connect(doors[i % DOORS]), small = 1;
		struct prog_ctrl_hello q = hello_of();

		MUST(fd >= 0);
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		if (i / 3 % 4 < 3)
			shutdown(fd, i / 3 % 4);
		say(fd, "", 0, NULL, 0);
		say(fd, &q, sizeof(q), NULL, 0);
		say(fd, "", 0, NULL, 0);
	}
}

/* A connection that many processes have, which end one after the other; who made it goes first. */
static void shared(void *ctx)
{
	pid_t pid = fork();

	MUST(pid >= 0);
	if (!pid) {
		struct prog_ctrl_hello q = hello_of();
		int fd[DOORS];

		for (size_t i = 0; i < DOORS; i++)
			fd[i] = hostile_connect(doors[i]);
		for (int i = 0; i < 8; i++) {
			if (_Fork())
				continue;
			usleep(1000 * i);
			for (size_t k = 0; k < DOORS; k++)
				say(fd[k], &q, sizeof(q), NULL, 0);
			usleep(10000);
			_exit(0);
		}
		kill(getpid(), SIGKILL);
	}
	waitpid(pid, NULL, 0);
}

static void attack_shared(void)
{
	for (int i = 0; i < 20; i++)
		shared(NULL);
	hostile_go_on(shared, NULL);
}

struct rank {
	struct prog_session *s;
	struct prog_win *w;
};

/* A rank of two of a job, with a window over @mem; the ranks tell each other by @in and @out. */
static struct rank rank_open(const struct prog_session_cfg *job, uint32_t rank, void *mem, int in, int out)
{
	struct prog_win_cfg wc = { .kind = PROG_WIN_CREATE, .key = 1, .rank = rank, .nranks = 2, .base = mem, .size = 4096 };
	struct prog_session_cfg c = *job;
	struct prog_endpoint all[2];
	const char *why = "";
	struct rank r;

	c.rank = rank;
	MUST(!prog_session_open(&c, &r.s, &why) && !prog_win_open(r.s, &wc, &r.w));
	prog_win_endpoint(r.w, &all[rank]);
	MUST(write(out, &all[rank], sizeof(all[0])) == sizeof(all[0]) && read(in, &all[!rank], sizeof(all[0])) == sizeof(all[0]));
	/* it is mapped when all have it, and used when all have mapped it */
	MUST(!prog_win_connect(r.w, all, &why));
	MUST(write(out, "", 1) == 1 && read(in, &rank, 1) == 1);
	MUST(!prog_win_map(r.w, NULL));
	MUST(write(out, "", 1) == 1 && read(in, &rank, 1) == 1);
	return r;
}

/* A process of which the engine has a window becomes one of root's: nobody reads or writes it any more. */
static void attack_becomes_another(void)
{
	static uint64_t mem[512];
	struct prog_session_cfg job = { .flags = PROG_SESSION_NO_HELPER, .socket = hostile.node[0].sock };
	struct prog_buf buf = { mem, NULL, sizeof(mem) };
	struct prog_dst at = { 0, 0, NULL, sizeof(mem) };
	int to[2], from[2], keep[2], r;
	uint64_t seq, end;
	struct rank own;
	char path[64];
	struct stat st;
	pid_t pid;

	/* the engine reads who is as any other process */
	MUST(!prctl(PR_SET_DUMPABLE, 1));
	MUST(hostile_session(0, NULL) && !prog_job_key_make(job.jobid, job.jobkey) && !pipe(to) && !pipe(from) && !pipe(keep));
	pid = fork();
	MUST(pid >= 0);
	/* who fails is noticed by the other one */
	close(pid ? to[0] : to[1]);
	close(pid ? from[1] : from[0]);
	if (!pid) {
		close(keep[1]);
		mem[0] = 77;
		own = rank_open(&job, 0, mem, to[0], from[1]);
		MUST(read(to[0], path, 1) == 1 && !fcntl(own.s->sock, F_SETFD, 0) && dup2(keep[0], 0) == 0);
		/* it asks for a password, and waits */
		execl("/bin/su", "su", (char *)NULL);
		_exit(1);
	}
	own = rank_open(&job, 1, mem, from[0], to[1]);
	MUST(!prog_get(own.w, &buf, &at, 0, &seq) && !prog_flush(own.w, 0) && !prog_win_error(own.w, 0) && mem[0] == 77);
	MUST(write(to[1], "", 1) == 1);
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	for (end = nodes_now() + 10 * SEC; !stat(path, &st) && st.st_uid == USER_B; usleep(1000))
		MUST(nodes_now() < end);
	MUST(!stat(path, &st) && !st.st_uid && !kill(pid, 0));
	r = prog_get(own.w, &buf, &at, 0, &seq) ?: prog_flush(own.w, 0) ?: prog_win_error(own.w, 0);
	print_message("# reading a process that has become root's: %s\n", strerror(-r));
	MUST(r < 0);
	r = prog_put(own.w, &buf, &at, 0, &seq) ?: prog_flush(own.w, 0) ?: prog_win_error(own.w, 0);
	MUST(r < 0);
}

/* A user namespace in which it is root, and one of processes, where it has another number. */
static void attack_namespaces(void)
{
	char text[64];
	int fd, st;
	pid_t pid;

	/* who may not have them has nothing to try */
	if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC)) {
		print_message("# no namespaces for users: %s\n", strerror(errno));
		return;
	}
	prctl(PR_SET_DUMPABLE, 1);
	fd = open("/proc/self/uid_map", O_WRONLY);
	snprintf(text, sizeof(text), "0 %u 1", USER_B);
	MUST(fd >= 0 && write(fd, text, strlen(text)) > 0);
	MUST(!setuid(0) && hostile_connect(".node") < 0);
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		struct prog_ctrl_hello q = hello_of();
		int seg = memfd_create("x", MFD_ALLOW_SEALING);

		MUST(getpid() == 1 && hostile_connect(".node") < 0 && kill(hostile.pid, 0) < 0);
		/* the library does not believe a server of a uid that it cannot know */
		MUST(!hostile_try_session(0, NULL));
		for (int i = 0; i < 30; i++) {
			fd = hostile_connect(doors[i % DOORS]);
			MUST(fd >= 0 && say(fd, &q, sizeof(q), &seg, 1) > 0);
		}
		_exit(0);
	}
	MUST(waitpid(pid, &st, 0) == pid && !st);
}

/* Whose it says to be. */
static void attack_credentials(void)
{
	static const uid_t uids[] = { USER_A, 0 };

	for (size_t i = 0; i < DOORS * 2; i++) {
		struct ucred c = { .pid = hostile.pid, .uid = uids[i % 2], .gid = uids[i % 2] };
		struct iovec iov = { "list", 4 };
		union {
			struct cmsghdr h;
			char buf[CMSG_SPACE(sizeof(struct ucred))];
		} ctl = { .h = { .cmsg_len = CMSG_LEN(sizeof(c)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS } };
		struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof(ctl) };
		int fd = hostile_connect(doors[i / 2]);

		memcpy(CMSG_DATA(&ctl.h), &c, sizeof(c));
		MUST(fd >= 0 && sendmsg(fd, &mh, MSG_NOSIGNAL) < 0 && errno == EPERM);
	}
}

/* ---- its own engine -------------------------------------------------------------------------------------------------- */

/* Limits, processors and a memory policy of its engine, such that it can do little of what it is asked for. */
static void attack_limits(void)
{
	static const int which[] = { RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_MEMLOCK, RLIMIT_NPROC };
	struct prog_session *s = hostile_session(0, NULL);
	struct rlimit none = { 0, 0 };
	struct sched_param sp = { 0 };
	pid_t e = hostile_own_engine(s);

	for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
		MUST(!prlimit(e, which[i], &none, NULL));
	sched_setscheduler(e, SCHED_IDLE, &sp);
	setpriority(PRIO_PROCESS, e, 19);
	for (int i = 0; i < 300; i++) {
		struct prog_ctrl_hello q = hello_of();
		int fd = hostile_connect(doors[i % 2]), seg = memfd_create("x", 0);

		MUST(fd >= 0);
		say(fd, &q, sizeof(q), &seg, 1);
		close(seg);
	}
}

static pid_t flickers;

static void flicker(void *ctx)
{
	kill(flickers, SIGSTOP);
	close(hostile_connect(""));
	kill(flickers, SIGCONT);
	close(hostile_connect(".ctl"));
}

static void attack_flicker(void)
{
	flickers = hostile_own_engine(hostile_session(0, NULL));
	hostile_go_on(flicker, NULL);
}

/* Requests to its engine that are no requests, and answers that it does not read. */
static void attack_requests(void)
{
	static const char *const odd[] = {
		"{\"cmd\":\"status\"}", "{\"cmd\":\"stats\"}", "{\"cmd\":\"sessions\",\"a\":1e999}",
		"{\"cmd\":\"conf-set\",\"workers\":-1}",
		"{\"cmd\":\"conf-set\",\"key\":\"log_level\",\"value\":\"debug\"}", "{\"cmd\":7}", "{}", "\"", "null", "{\"cmd\":\"coll\"}",
		"{\"cmd\":\"thresh-set\",\"job\":\"\",\"bytes\":18446744073709551616}", "\x80\xff", "{\"cmd\":\"ping\",\"cmd\":\"ping\"}",
	};
	static char deep[60000];
	int fd;

	MUST(hostile_session(0, NULL));
	memset(deep, '[', sizeof(deep));
	for (int i = 0; i < 400; i++) {
		fd = hostile_connect(".ctl");
		MUST(fd >= 0);
		for (int k = 0; k < 20; k++) {
			const char *text = odd[(i + k) % (sizeof(odd) / sizeof(odd[0]))];

			say(fd, text, strlen(text) + i % 2, NULL, 0);
			if (k % 8 == 7)
				say(fd, deep, sizeof(deep), NULL, 0);
		}
		if (i % 2)
			close(fd);
	}
}

/* ---- lanes ------------------------------------------------------------------------------------------------------------- */

static struct hostile_hello stranger(int to, bool key)
{
	struct hostile_hello h = hostile_hello(!to, to, WIRE_LANE_NEW);

	getrandom(&h.lane.id, sizeof(h.lane.id), 0);
	h.hello.features = htole64(WIRE_SEALED);
	/* any 32 bytes are some point's */
	if (key)
		getrandom(h.lane.key, sizeof(h.lane.key), 0);
	return h;
}

static int greeted(int to, const struct hostile_hello *h)
{
	int fd = hostile_tcp(to);

	if (fd >= 0 && hostile_frame(fd, WIRE_HELLO, 0, h, sizeof(*h)) > 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Keys that agree on nothing, with everybody. */
static void attack_points(void)
{
	static const uint8_t low[][WIRE_KEY_SIZE] = {
		{ 0 }, { 1 },
		{ 0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a,
		  0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00 },
		{ 0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		  0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f },
	};
	char buf[512];

	for (int i = 0; i < 40; i++) {
		struct hostile_hello h = stranger(i % 2, false);
		int fd;

		memcpy(h.lane.key, low[i / 2 % 4], WIRE_KEY_SIZE);
		fd = greeted(i % 2, &h);
		MUST(fd >= 0);
		/* an answer, or none; no lane */
		while (recv(fd, buf, sizeof(buf), 0) > 0)
			;
		close(fd);
	}
}

/* Records that nobody sealed: of all lengths, cut short, the peer's own said back to it. */
static void attack_records(void)
{
	static uint8_t bytes[1 << 17], back[4096];

	getrandom(bytes, sizeof(bytes), 0);
	for (int i = 0; i < 60; i++) {
		struct hostile_hello h = stranger(i % 2, true);
		int fd = greeted(i % 2, &h);
		ssize_t n;

		MUST(fd >= 0);
		n = recv(fd, back, sizeof(back), 0);
		memset(bytes, i % 5 * 0x3f, 4);
		if (i % 3 == 0)
			send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		else if (i % 3 == 1 && n > 0)
			send(fd, back, n, MSG_NOSIGNAL);
		else
			send(fd, bytes, 1 + i, MSG_NOSIGNAL);
		if (i % 2)
			close(fd);
	}
}

/* From who may not have another security, or none at all, down to what lanes were before. */
static void attack_downgrade(void)
{
	for (int i = 0; i < 40; i++) {
		struct hostile_hello h = stranger(i % 2, i % 4 < 2);
		struct wire_job_open open = { 0 };
		char buf[512];
		int fd;

		h.hello.features = htole64(i % 8 < 4 ? 0 : ~WIRE_SEALED);
		h.hello.version = htole16(i % 3 ? WIRE_VERSION : (unsigned int)i);
		fd = greeted(i % 2, &h);
		MUST(fd >= 0);
		memcpy(open.jobid, hostile.jobid, sizeof(open.jobid));
		hostile_frame(fd, WIRE_JOB_OPEN, 1, &open, sizeof(open));
		while (recv(fd, buf, sizeof(buf), 0) > 0)
			;
		close(fd);
	}
}

/* Headers at their extremes, in place of HELLO and behind it. */
static void attack_extremes(void)
{
	static const uint32_t lens[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff };

	for (int i = 0; i < 400; i++) {
		struct hostile_hello h = stranger(i % 2, true);
		int fd = i % 4 < 2 ? hostile_tcp(i % 2) : greeted(i % 2, &h);
		struct wire_hdr f;

		MUST(fd >= 0);
		memset(&f, i % 3 ? 0xff : 0, sizeof(f));
		f.type = i;
		f.len = htole32(lens[i % 5]);
		send(fd, &f, sizeof(f), MSG_NOSIGNAL);
		send(fd, &f, sizeof(f) - 1, MSG_NOSIGNAL);
		if (i % 8 < 6)
			close(fd);
	}
}

/* A byte at a time, urgent ones among them, and resets in the middle. */
static void dribble(void *ctx)
{
	static unsigned int at;
	struct hostile_hello h = stranger(at % 2, true);
	struct wire_hdr f = { .type = WIRE_HELLO, .len = htole32(sizeof(h)) };
	uint8_t bytes[sizeof(f) + sizeof(h)];
	int fd = hostile_tcp(at % 2), one = 1;

	if (fd < 0)
		return;
	memcpy(bytes, &f, sizeof(f));
	memcpy(bytes + sizeof(f), &h, sizeof(h));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (size_t i = 0; i < sizeof(bytes) - at % sizeof(bytes); i++)
		if (send(fd, bytes + i, 1, MSG_NOSIGNAL | (i % 17 == 5 ? MSG_OOB : 0)) < 0)
			break;
	if (at % 3)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
	close(fd);
	at++;
}

static void attack_dribble(void)
{
	for (int i = 0; i < 100; i++)
		dribble(NULL);
	hostile_go_on(dribble, NULL);
}

/* As much as fits into connections that are not served yet, from one who reads nothing. */
static void attack_unread(void)
{
	static uint8_t bytes[1 << 20];

	hostile_many_files();
	for (int i = 0; i < 3000; i++) {
		struct hostile_hello h = stranger(i % 2, true);
		int fd = hostile_tcp(i % 2), small = 2048;

		MUST(fd >= 0);
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		if (i % 3)
			hostile_frame(fd, WIRE_HELLO, 0, &h, sizeof(h));
		fcntl(fd, F_SETFL, O_NONBLOCK);
		while (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0)
			;
	}
}

/* ------------------------------------------------------------------------------------------------------------------------ */

static const struct hostile_attack attacks[] = {
	{ "meddling", attack_meddling, false },
	{ "owners", attack_owners, false },
	{ "netlink", attack_netlink, false },
	{ "names", attack_names, false },
	{ "ports", attack_ports, false },
	{ "strange", attack_strange, false },
	{ "cycles", attack_cycles, false },
	{ "punched", attack_punched, false },
	{ "crowd", attack_crowd, false },
	{ "half closed", attack_half_closed, false },
	{ "shared", attack_shared, false },
	{ "becomes another", attack_becomes_another, false },
	{ "namespaces", attack_namespaces, false },
	{ "credentials", attack_credentials, false },
	{ "limits", attack_limits, false },
	{ "flicker", attack_flicker, false },
	{ "requests", attack_requests, false },
	{ "points", attack_points, false },
	{ "records", attack_records, true },
	{ "downgrade", attack_downgrade, false },
	{ "extremes", attack_extremes, false },
	{ "dribble", attack_dribble, true },
	{ "unread", attack_unread, true },
};

HOSTILE_SUITE(attacks, "lane_security=encrypt");

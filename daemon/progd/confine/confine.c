// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The lists say what is let through.  Who gets into the process has no program, no other process, no socket of another kind
 * and no memory to execute; that he has no files but his user's is the kernel's part.
 */
#include "confine/confine.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <linux/netlink.h>
#include <malloc.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asyncprog/asyncprog.h>

#define VERBS_IOC_TYPE	0x1b		/* <rdma/rdma_user_ioctl_cmds.h> */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED	1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED	1
#endif
#endif

/* One that is not known where this is compiled is nobody's need there. */
#define END	__NR_SCMP_ERROR

/* While it serves.  Who adds a call names what for, unless its neighbours say so. */
static const int serving[] = {
	/* clients, other nodes' daemons, the supervisor, the service manager, log lines */
	SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(pread64), SCMP_SYS(pwrite64),
	SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(recvfrom), SCMP_SYS(sendto), SCMP_SYS(recvmmsg), SCMP_SYS(sendmmsg),
	SCMP_SYS(accept), SCMP_SYS(accept4), SCMP_SYS(connect), SCMP_SYS(shutdown), SCMP_SYS(getsockname), SCMP_SYS(getpeername),
	SCMP_SYS(getsockopt), SCMP_SYS(setsockopt),
	/* event loops; io_uring_setup and io_uring_register are over */
	SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(epoll_pwait2), SCMP_SYS(poll), SCMP_SYS(ppoll),
	SCMP_SYS(select), SCMP_SYS(pselect6), SCMP_SYS(io_uring_enter), SCMP_SYS(eventfd2), SCMP_SYS(timerfd_settime),
	SCMP_SYS(pidfd_open),
	/* descriptors and files: the configuration, /proc, devices */
	SCMP_SYS(close), SCMP_SYS(close_range), SCMP_SYS(dup), SCMP_SYS(fcntl), SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(lseek),
	SCMP_SYS(fstat), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(access),
	SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(getdents64), SCMP_SYS(readlink), SCMP_SYS(readlinkat),
	SCMP_SYS(unlink), SCMP_SYS(unlinkat), SCMP_SYS(fallocate), SCMP_SYS(ftruncate), SCMP_SYS(fadvise64),
	/* memory of its own and of clients; mmap and mprotect below */
	SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(mincore), SCMP_SYS(mlock), SCMP_SYS(munlock),
	SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
	/* threads and time */
	SCMP_SYS(futex), SCMP_SYS(futex_waitv), SCMP_SYS(sched_yield), SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_setaffinity),
	SCMP_SYS(getcpu), SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),
	SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(times), SCMP_SYS(getrusage), SCMP_SYS(restart_syscall), SCMP_SYS(membarrier),
	SCMP_SYS(rseq), SCMP_SYS(set_robust_list), SCMP_SYS(gettid), SCMP_SYS(exit), SCMP_SYS(exit_group),
	/* signals, also for abort() */
	SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigpending), SCMP_SYS(rt_sigtimedwait),
	SCMP_SYS(sigaltstack),
	/* who and where it is */
	SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid), SCMP_SYS(getegid),
	SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getcwd), SCMP_SYS(getrandom), SCMP_SYS(getrlimit),
	END
};

/* Until it serves, and to start others. */
static const int starting[] = {
	SCMP_SYS(execve), SCMP_SYS(clone), SCMP_SYS(clone3), SCMP_SYS(fork), SCMP_SYS(vfork), SCMP_SYS(wait4), SCMP_SYS(waitid),
	SCMP_SYS(arch_prctl), SCMP_SYS(set_tid_address), SCMP_SYS(prctl), SCMP_SYS(seccomp), SCMP_SYS(prlimit64), SCMP_SYS(setrlimit),
	SCMP_SYS(mmap), SCMP_SYS(mprotect), SCMP_SYS(ioctl), SCMP_SYS(memfd_create), SCMP_SYS(mlock2), SCMP_SYS(get_mempolicy),
	SCMP_SYS(epoll_create), SCMP_SYS(epoll_create1), SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_register), SCMP_SYS(signalfd4),
	SCMP_SYS(timerfd_create), SCMP_SYS(pipe), SCMP_SYS(pipe2), SCMP_SYS(dup2), SCMP_SYS(dup3),
	SCMP_SYS(socketpair), SCMP_SYS(bind), SCMP_SYS(listen), SCMP_SYS(chdir), SCMP_SYS(umask), SCMP_SYS(setsid), SCMP_SYS(setpgid),
	SCMP_SYS(statfs), SCMP_SYS(fstatfs), SCMP_SYS(getgroups), SCMP_SYS(getresuid), SCMP_SYS(getresgid), SCMP_SYS(getpgrp),
	SCMP_SYS(getsid),
	SCMP_SYS(sched_getparam), SCMP_SYS(sched_setparam), SCMP_SYS(sched_getscheduler), SCMP_SYS(sched_setscheduler),
	SCMP_SYS(sched_getattr), SCMP_SYS(sched_setattr), SCMP_SYS(sched_get_priority_max), SCMP_SYS(sched_get_priority_min),
	SCMP_SYS(getpriority), SCMP_SYS(setpriority), SCMP_SYS(tgkill), SCMP_SYS(tkill), SCMP_SYS(pause), SCMP_SYS(rt_sigsuspend),
	SCMP_SYS(alarm),
	SCMP_SYS(setitimer), SCMP_SYS(flock), SCMP_SYS(sync), SCMP_SYS(fsync), SCMP_SYS(fdatasync),
	END
};

/* What a supervisor does besides: users' rights, sockets and records, cgroups, the end of engines. */
static const int supervising[] = {
	SCMP_SYS(setuid), SCMP_SYS(setgid), SCMP_SYS(setreuid), SCMP_SYS(setregid), SCMP_SYS(setresuid), SCMP_SYS(setresgid),
	SCMP_SYS(setgroups), SCMP_SYS(capget), SCMP_SYS(capset), SCMP_SYS(kill), SCMP_SYS(pidfd_send_signal),
	SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir), SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2),
	SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(fchmodat), SCMP_SYS(chown), SCMP_SYS(fchown), SCMP_SYS(fchownat), SCMP_SYS(lchown),
	END
};

/* Of a sanitizer's run-time, for which the product has no use: its thread, and the tracer by which it looks for leaks at the end. */
static const int sanitizing[] = {
#ifdef SANITIZED
	SCMP_SYS(clone), SCMP_SYS(clone3), SCMP_SYS(ptrace), SCMP_SYS(wait4), SCMP_SYS(prctl), SCMP_SYS(arch_prctl), SCMP_SYS(mmap),
	SCMP_SYS(mprotect), SCMP_SYS(tgkill), SCMP_SYS(msync), SCMP_SYS(pipe), SCMP_SYS(pipe2), SCMP_SYS(prlimit64), SCMP_SYS(ioctl),
	SCMP_SYS(personality), SCMP_SYS(getdents),
#endif
	END
};

static int allow(scmp_filter_ctx c, const int *calls)
{
	int r = 0;

	/* a negative number is a call that this processor's kernel does not have */
	for (; !r && *calls != END; calls++)
		if (*calls >= 0)
			r = seccomp_rule_add(c, SCMP_ACT_ALLOW, *calls, 0);
	return r;
}

/* A call for some of what it can do: that argument @arg, but for bits that are not in @mask, is @value. */
struct part {
	int call;
	unsigned int arg;
	scmp_datum_t mask, value;
};

#define ALL	(~(scmp_datum_t)0)

static int allow_part(scmp_filter_ctx c, const struct part *p, const struct part *and)
{
	struct scmp_arg_cmp is[2] = {
		{ .arg = p->arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = p->mask, .datum_b = p->value },
	};

	if (and)
		is[1] = (struct scmp_arg_cmp){ .arg = and->arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = and->mask, .datum_b = and->value };
	return seccomp_rule_add_array(c, SCMP_ACT_ALLOW, p->call, and ? 2 : 1, is);
}

static int allow_sockets(scmp_filter_ctx c)
{
	static const struct part family[] = {
		{ SCMP_SYS(socket), 0, 0xffffffff, AF_UNIX }, { SCMP_SYS(socket), 0, 0xffffffff, AF_INET },
		{ SCMP_SYS(socket), 0, 0xffffffff, AF_INET6 },
	};
	/* addresses and devices of the node */
	static const struct part netlink = { SCMP_SYS(socket), 0, 0xffffffff, AF_NETLINK };
	static const struct part protocol[] = {
		{ SCMP_SYS(socket), 2, 0xffffffff, NETLINK_ROUTE }, { SCMP_SYS(socket), 2, 0xffffffff, NETLINK_RDMA },
	};
	int r = 0;

	for (size_t i = 0; !r && i < sizeof(family) / sizeof(family[0]); i++)
		r = allow_part(c, &family[i], NULL);
	for (size_t i = 0; !r && i < sizeof(protocol) / sizeof(protocol[0]); i++)
		r = allow_part(c, &netlink, &protocol[i]);
	return r;
}

static int allow_parts(scmp_filter_ctx c)
{
	const struct part parts[] = {
		{ SCMP_SYS(mmap), 2, PROT_EXEC, 0 }, { SCMP_SYS(mprotect), 2, PROT_EXEC, 0 },
		/* itself only */
		{ SCMP_SYS(tgkill), 0, ALL, (scmp_datum_t)getpid() },
		/* looks at a limit, and sets none */
		{ SCMP_SYS(prlimit64), 2, ALL, 0 },
		{ SCMP_SYS(ioctl), 1, 0xffffffff, TIOCOUTQ }, { SCMP_SYS(ioctl), 1, 0xffffffff, FIONREAD },
		{ SCMP_SYS(ioctl), 1, 0xff00, ASYNCPROG_IOC_TYPE << 8 }, { SCMP_SYS(ioctl), 1, 0xff00, VERBS_IOC_TYPE << 8 },
	};
	int r = 0;

	for (size_t i = 0; !r && i < sizeof(parts) / sizeof(parts[0]); i++)
		r = allow_part(c, &parts[i], NULL);
	return r;
}

int confine(int who)
{
	scmp_filter_ctx c = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r;

	if (!c)
		return -ENOMEM;
	/* threads that run already; a tree, so that a call costs few comparisons; no slower branches for it */
	r = seccomp_attr_set(c, SCMP_FLTATR_CTL_TSYNC, 1);
	r = r ? r : seccomp_attr_set(c, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	r = r ? r : seccomp_attr_set(c, SCMP_FLTATR_CTL_SSB, 1);
	r = r ? r : allow(c, serving);
	r = r ? r : allow(c, sanitizing);
	r = r ? r : allow_sockets(c);
	if (who == CONFINE_SUPERVISOR) {
		r = r ? r : allow(c, starting);
		r = r ? r : allow(c, supervising);
	} else {
		r = r ? r : allow_parts(c);
	}
	r = r ? r : seccomp_load(c);
	seccomp_release(c);
	/* some 200 KiB, and nothing will need as much again */
	malloc_trim(0);
	return r;
}

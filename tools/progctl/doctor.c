// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Why something is not, or would not be, managed. */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <asyncprog/ring.h>
#include <progclient.h>

#include "pinned.h"
#include "progctl.h"

static json_t *findings;
static int problems;

enum { GOOD, NOTE, BAD };

static void say(int level, const char *what, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(int level, const char *what, const char *fmt, ...)
{
	static const char *const names[] = { "ok", "note", "problem" };
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	problems += level == BAD;
	json_array_append_new(findings, json_pack("{s:s,s:s,s:s}", "check", what, "result",
						  names[level], "text", text));
	if (!opt.json)
		printf("%-8s %-14s %s\n", names[level], what, text);
}

/* How many collectives were left to the MPI library, of all jobs that the daemon remembers, and why. */
static void check_colls(json_t *res)
{
	static const char *const lists[] = { "jobs", "ended_jobs" };
	json_t *text, *job;
	const char *name;
	size_t i;

	json_object_foreach(json_object_get(res, "left_to_library_texts"), name, text) {
		long long calls = 0, jobs = 0;

		for (size_t l = 0; l < 2; l++)
			json_array_foreach(json_object_get(res, lists[l]), i, job) {
				json_t *left = json_object_get(json_object_get(job, "collectives"), "left_to_library");
				long long n = json_integer_value(json_object_get(left, name));

				calls += n > 0 && calls <= INT64_MAX - n ? n : 0;
				jobs += n > 0;
			}
		if (calls)
			say(NOTE, "collectives", "%lld of %lld job%s left to the MPI library: %s", calls, jobs,
			    jobs == 1 ? "" : "s", json_string_value(text) ?: "?");
	}
}

/* What jobs were refused or got in another way than the best, of all that the daemon remembers. */
static void check_jobs(int fd)
{
	static const char *const lists[] = { "jobs", "ended_jobs" };
	json_t *req = json_pack("{s:s}", "cmd", "stats"), *rep = ask_exchange(fd, req);
	json_t *res = json_object_get(rep, "result"), *text, *job, *r;
	json_t *seen = json_object();
	const char *name;
	size_t i, k;

	json_decref(req);
	json_object_foreach(json_object_get(res, "fallback_texts"), name, text) {
		long long ops = 0, jobs = 0;

		for (size_t l = 0; l < 2; l++)
			json_array_foreach(json_object_get(res, lists[l]), i, job) {
				long long n = json_integer_value(json_object_get(
					json_object_get(job, "fallbacks"), name));

				ops += n;
				jobs += n > 0;
			}
		if (ops)
			say(NOTE, "operations", "%lld of %lld job%s: %s", ops, jobs,
			    jobs == 1 ? "" : "s", json_string_value(text));
	}
	for (size_t l = 0; l < 2; l++)
		json_array_foreach(json_object_get(res, lists[l]), i, job)
			json_array_foreach(json_object_get(job, "refusals"), k, r) {
				const char *why = json_string_value(json_object_get(r, "reason"));
				json_int_t n = json_integer_value(json_object_get(r, "count"));

				if (why)
					json_object_set_new(seen, why, json_integer(n +
						json_integer_value(json_object_get(seen, why))));
			}
	json_object_foreach(seen, name, r)
		say(NOTE, "jobs", "%s (%lld times)", name, (long long)json_integer_value(r));
	json_decref(seen);
	check_colls(res);
	json_decref(rep);
}

/* Is there what copy_engine names? */
static void check_copy_engine(json_t *res)
{
	json_t *e = json_object_get(res, "copy_engine");
	const char *want = json_string_value(json_object_get(e, "configured"));
	const char *name = json_string_value(json_object_get(e, "engine"));
	const char *problem = json_string_value(json_object_get(e, "problem"));

	if (!want || !strcmp(want, "cpu"))
		return;
	if (!problem)
		say(GOOD, "copy engine", "copy_engine is %s: %s", want, name ? name : "kernel threads");
	else if (!strcmp(want, "auto"))
		say(GOOD, "copy engine", "none, the workers copy: %s", problem);
	else
		say(BAD, "copy engine", "copy_engine is %s, but %s: the workers or kernel threads copy", want,
		    problem);
}

/* Can lanes go by RDMA, and do those that could? */
static void check_rdma(json_t *status, int fd)
{
	json_t *o = json_object_get(status, "rdma"), *req, *rep, *p;
	const char *want = json_string_value(json_object_get(o, "configured"));
	const char *problem = json_string_value(json_object_get(o, "problem"));
	size_t i;

	if (!want)
		return;
	if (problem) {
		say(GOOD, "RDMA", "transport is %s, lanes go by TCP: %s", want, problem);
		return;
	}
	say(GOOD, "RDMA", "transport is %s: %s", want, json_string_value(json_object_get(o, "devices")));
	req = json_pack("{s:s}", "cmd", "stats");
	rep = ask_exchange(fd, req);
	json_array_foreach(json_object_get(json_object_get(rep, "result"), "peers"), i, p) {
		const char *carrier = json_string_value(json_object_get(p, "carrier"));
		const char *why = json_string_value(json_object_get(p, "carrier_why"));
		const char *lacks = json_string_value(json_object_get(p, "rdma_why"));
		const char *lane = json_string_value(json_object_get(p, "lane"));

		if (carrier && !strcmp(carrier, "tcp") && why && *why)
			say(NOTE, "RDMA", "lane %s goes by TCP: %s", lane, why);
		if (carrier && !strcmp(carrier, "verbs") && lacks && *lacks)
			say(NOTE, "RDMA", "lane %s goes by RDMA, but some bytes in frames, or copied: %s", lane, lacks);
	}
	json_decref(req);
	json_decref(rep);
}

static bool read_word(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return true;
}

static void check_daemon(void)
{
	const char *path = ask_path(), *why = "";
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_NO_HELPER, .socket = path };
	struct prog_session *s;
	int fd, r;

	fd = ask_connect(path, "");
	if (fd < 0) {
		say(path == opt.socket || getenv("PROGD_SOCKET") ? BAD : NOTE, "socket",
		    "%s: %s; %s", path,
		    fd == -ENOENT ? "there is no daemon" : strerror(-fd),
		    getenv("PROG_EMBEDDED") && !strcmp(getenv("PROG_EMBEDDED"), "0") ?
		    "PROG_EMBEDDED=0 forbids private ones: programs run natively" :
		    "a job's first process on the node starts a private one");
		return;
	}
	close(fd);
	say(GOOD, "socket", "%s answers", path);
	r = prog_job_key_make(cfg.jobid, cfg.jobkey);
	if (!r)
		r = prog_session_open(&cfg, &s, &why);
	if (r == -EUSERS) {
		say(NOTE, "session", "%s; %s", why, getenv("PROG_EMBEDDED") &&
		    !strcmp(getenv("PROG_EMBEDDED"), "0") ?
		    "PROG_EMBEDDED=0 forbids private ones: programs of yours run natively now" :
		    "jobs of yours that start now get private daemons on this node");
	} else if (r) {
		say(BAD, "session", "refused: %s", *why ? why : strerror(-r));
		return;
	} else {
		say(GOOD, "session", "opened and answered, ABI %d.%d", PROG_ABI_MAJOR, PROG_ABI_MINOR);
		prog_session_close(s);
	}
	fd = ask_control(path);
	if (fd < 0) {
		say(NOTE, "control", "%s.ctl: %s", path, fd == -EACCES ?
		    "only root and the daemon's user may ask it" : strerror(-fd));
		return;
	}
	json_t *req = json_pack("{s:s,s:b}", "cmd", "status", "probe", 1), *rep = ask_exchange(fd, req);
	json_t *res = json_object_get(rep, "result"), *w;
	size_t i;

	json_decref(req);
	if (!res) {
		say(NOTE, "control", "%s.ctl: no answer: %s", path, json_string_value(json_object_get(rep, "error")) ?: ask_why(errno));
		close(fd);
		json_decref(rep);
		return;
	}
	if (strcmp(json_string_value(json_object_get(res, "version")) ?: "", PROG_VERSION))
		say(NOTE, "version", "the daemon is version %s, this program %s",
		    json_string_value(json_object_get(res, "version")), PROG_VERSION);
	else
		say(GOOD, "version", "%s, %s daemon, pid %lld", PROG_VERSION,
		    json_string_value(json_object_get(res, "mode")),
		    (long long)json_integer_value(json_object_get(res, "pid")));
	json_array_foreach(json_object_get(res, "workers"), i, w)
		say(strncmp(json_string_value(json_object_get(w, "loop")) ?: "", "epoll", 5) ? GOOD : NOTE,
		    "worker", "%zu: %s", i, json_string_value(json_object_get(w, "loop")));
	if (!json_array_size(json_object_get(res, "addresses")))
		say(BAD, "addresses", "the daemon listens on no address: other nodes cannot reach it");
	json_array_foreach(json_object_get(res, "addresses"), i, w)
		say(GOOD, "address", "%s", json_string_value(w));
	if ((uid_t)json_integer_value(json_object_get(res, "uid")) != geteuid())
		say(NOTE, "private memory", "the daemon is of another user: windows of the program's own "
		    "memory (MPI_Win_create) go through the process's helper thread, unless they are pinned");
	check_copy_engine(res);
	check_rdma(res, fd);
	check_jobs(fd);
	close(fd);
	json_decref(rep);
}

static void check_cma(void)
{
	char yama[16] = "0";
	volatile uint64_t probe = 0x5ca1ab1e;
	uint64_t got = 0;
	struct iovec here = { &got, 8 }, there = { (void *)(uintptr_t)&probe, 8 };
	int ready[2], st;
	char c;
	pid_t pid;

	if (read_word("/proc/sys/kernel/yama/ptrace_scope", yama, sizeof(yama)))
		say(atoi(yama) >= 2 ? BAD : GOOD, "yama", "ptrace_scope is %s%s", yama,
		    atoi(yama) >= 2 ? ": processes cannot reach each other's memory (CMA); private "
				      "memory goes through helper threads" :
		    atoi(yama) == 1 ? ": the client library permits it for its process" : "");
	else
		say(GOOD, "yama", "not active");
	/* as the client library does when Yama asks for it */
	if (atoi(yama) == 1)
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	/* what a daemon does: read a process of the same user that is not a child: here, the parent */
	if (pipe(ready))
		return;
	pid = fork();
	if (!pid) {
		ssize_t n = process_vm_readv(getppid(), &here, 1, &there, 1, 0);

		_exit(n == 8 && got == probe ? 0 : n < 0 ? errno & 0x7f : 1);
	}
	close(ready[1]);
	while (read(ready[0], &c, 1) < 0 && errno == EINTR)
		;
	close(ready[0]);
	if (pid < 0 || waitpid(pid, &st, 0) != pid || !WIFEXITED(st))
		return;
	if (WEXITSTATUS(st))
		say(NOTE, "cma", "process_vm_readv: %s; private memory goes through helper threads",
		    strerror(WEXITSTATUS(st)));
	else
		say(GOOD, "cma", "process_vm_readv works");
}

static void check_kernel(void)
{
	struct io_uring_params p = { 0 };
	struct rlimit rl;
	char word[32];
	int fd;

	fd = syscall(SYS_io_uring_setup, 4, &p);
	if (fd >= 0) {
		say(GOOD, "io_uring", "permitted");
		close(fd);
	} else {
		say(NOTE, "io_uring", "%s%s: the daemon uses epoll", strerror(errno),
		    read_word("/proc/sys/kernel/io_uring_disabled", word, sizeof(word)) &&
		    strcmp(word, "0") ? " (kernel.io_uring_disabled)" : "");
	}
	fd = memfd_create("progctl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0 && !ftruncate(fd, 4096) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		say(GOOD, "memfd", "memfd_create and seals work");
	else
		say(BAD, "memfd", "%s: nothing can be shared with the daemon", strerror(errno));
	if (fd >= 0)
		close(fd);
	if (!getrlimit(RLIMIT_NOFILE, &rl))
		say(rl.rlim_max < 1024 ? BAD : GOOD, "open files", "limit %llu, at most %llu; a window "
		    "takes 2 in the daemon", (unsigned long long)rl.rlim_cur,
		    (unsigned long long)rl.rlim_max);
}

/* The module, its device, and what this user may pin. */
static void check_module(void)
{
	char version[32];
	struct rlimit rl;
	json_t *stats;
	int fd, err;

	if (!read_word("/sys/module/asyncprog/version", version, sizeof(version))) {
		say(NOTE, "pinned memory", "the kernel module asyncprog is not loaded: private memory of programs is "
		    "reached by CMA or through helper threads");
		return;
	}
	say(GOOD, "module", "asyncprog %s", version);
	fd = open("/dev/asyncprog", O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		say(GOOD, "device", "/dev/asyncprog can be opened");
	else
		say(errno == EACCES ? GOOD : BAD, "device", "/dev/asyncprog: %s%s", strerror(errno),
		    errno == EACCES ? ": the daemon opens it, if it may" : "");
	if (fd >= 0)
		close(fd);
	if (!getrlimit(RLIMIT_MEMLOCK, &rl) && rl.rlim_cur != RLIM_INFINITY)
		say(geteuid() && rl.rlim_cur < 64u << 20 ? NOTE : GOOD, "memlock", "%llu KiB may be pinned "
		    "(ulimit -l)", (unsigned long long)rl.rlim_cur / 1024);
	stats = pinned_ask(PINNED_STATS, &err);
	if (stats) {
		json_int_t bytes = json_integer_value(json_object_get(stats, "bytes"));
		json_int_t max = json_integer_value(json_object_get(stats, "max_bytes"));
		json_int_t refused = json_integer_value(json_object_get(stats, "refused"));

		say(refused || bytes > max / 10 * 9 ? NOTE : GOOD, "pinned memory", "%lld of at most %lld MiB; %lld "
		    "registrations were refused for a limit", (long long)(bytes >> 20),
		    (long long)(max >> 20), (long long)refused);
	}
	json_decref(stats);
}

static void check_hooks(void)
{
	static const char *const libs[] = { "libprogmpi-ompi.so", "libprogmpi-mpich.so", "libprogmpi-abi.so" };
	const char *preload = getenv("LD_PRELOAD");
	char exe[4096], path[8192];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n <= 0)
		return;
	exe[n] = '\0';
	*strrchr(exe, '/') = '\0';
	for (size_t i = 0; i < sizeof(libs) / sizeof(libs[0]); i++) {
		snprintf(path, sizeof(path), "%s/../lib/%s", exe, libs[i]);
		if (!access(path, R_OK))
			say(GOOD, "hooks", "%s", path);
		else
			say(NOTE, "hooks", "%s: %s", path, strerror(errno));
	}
	if (preload && strstr(preload, "libprogmpi"))
		say(GOOD, "preload", "LD_PRELOAD=%s", preload);
	else
		say(NOTE, "preload", "LD_PRELOAD names no libprogmpi: start programs with progrun");
}

/* Programs may bring others. */
static void check_mpi(void)
{
	static const char *const files[] = { "libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1",
					     "libmpi_abi.so.0" };
	bool any = false;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct mpi_version v;
		int err = mpi_library(files[i], &v);

		any |= err != -ENOENT;
		if (err == -ENOENT)
			continue;
		if (err)
			say(NOTE, "MPI library", "%s: does not tell its version: %s", files[i], strerror(-err));
		else if (v.family == MPI_FAMILY_NONE)
			say(NOTE, "MPI library", "%s: %s: there is no hook library for it", files[i], v.name);
		else if (!v.known)
			say(NOTE, "MPI library", "%s: %s: libprogmpi-%s.so is made for %s: programs run natively, unless "
			    "PROG_FORCE=1", files[i], v.name, mpi_family_short(v.family), mpi_family_versions(v.family));
		else
			say(GOOD, "MPI library", "%s: %s: libprogmpi-%s.so", files[i], v.name, mpi_family_short(v.family));
	}
	if (!any)
		say(NOTE, "MPI library", "the dynamic linker finds none, by the names of Open MPI, MPICH and the standard's ABI");
}

int cmd_doctor(int argc, char **argv)
{
	findings = json_array();
	check_daemon();
	check_cma();
	check_kernel();
	check_module();
	check_hooks();
	check_mpi();
	if (opt.json)
		print_json(findings);
	else
		printf("%d problem%s\n", problems, problems == 1 ? "" : "s");
	json_decref(findings);
	return problems ? 1 : 0;
}

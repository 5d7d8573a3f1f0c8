/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nodes.h"

#define MAX_ARGS 256	/* of a daemon */

uint64_t nodes_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

const char *nodes_progd(void)
{
	static char path[4096];
	const char *build = getenv("PROG_BUILD");

	snprintf(path, sizeof(path), "%s/bin/progd", build ? build : "build");
	return path;
}

int nodes_connect(const char *path, int type)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Does @n's own process serve?  Not a child of one before it that was killed, which has its sockets for a moment. */
static bool serves(const struct node *n)
{
	int fd = nodes_connect(n->sock, SOCK_SEQPACKET);
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	bool does;

	if (fd < 0)
		return false;
	does = !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.pid == n->pid;
	close(fd);
	return does;
}

/* @argv with room for more; until it can be connected to. */
static int run(struct node *n, const char **argv, int argc, const char *const *sets)
{
	uint64_t end = nodes_now() + 20000000000ull;
	int fd, st;

	for (; sets && *sets && argc + 3 <= MAX_ARGS; sets++) {
		argv[argc++] = "--set";
		argv[argc++] = *sets;
	}
	n->pid = fork();
	if (!n->pid) {
		/* a test that dies takes its daemons along */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (n->files && setrlimit(RLIMIT_NOFILE, &(struct rlimit){ n->files, n->files }))
			_exit(126);
		fd = open(n->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
		dup2(fd, 1);
		dup2(fd, 2);
		execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	while (nodes_now() < end) {
		if (waitpid(n->pid, &st, WNOHANG) == n->pid) {
			n->pid = 0;
			return -ECHILD;
		}
		if (serves(n))
			return 0;
		usleep(2000);
	}
	return -ETIMEDOUT;
}

static int make_dir(struct node *n)
{
	strcpy(n->dir, "/tmp/progd-test-XXXXXX");
	if (!mkdtemp(n->dir))
		return -errno;
	snprintf(n->sock, sizeof(n->sock), "%s/s", n->dir);
	snprintf(n->log, sizeof(n->log), "%s/log", n->dir);
	return 0;
}

int node_start(struct node *n, const char *const *sets)
{
	const char *argv[MAX_ARGS] = { nodes_progd(), "--socket", n->sock, "--set", "listen=127.0.0.1" };

	return make_dir(n) ?: run(n, argv, 5, sets);
}

int node_supervise(struct node *n, const char *progd, const char *const *sets)
{
	char supervisor[4096 + 16];
	const char *argv[MAX_ARGS] = { supervisor, "--socket", n->sock, "--set", "listen=127.0.0.1", "--progd", progd,
				       n->config ? "--config" : NULL, n->config };

	snprintf(supervisor, sizeof(supervisor), "%s-supervisor", nodes_progd());
	return run(n, argv, n->config ? 9 : 7, sets);
}

int node_start_supervisor(struct node *n, const char *progd, const char *const *sets)
{
	int r = make_dir(n);

	return r ? r : chmod(n->dir, 0755) ? -errno : node_supervise(n, progd, sets);
}

const char *node_log(const struct node *n)
{
	static char text[16 << 20];
	int fd = open(n->log, O_RDONLY);
	ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;

	if (fd >= 0)
		close(fd);
	text[got > 0 ? got : 0] = '\0';
	return text;
}

const char *node_progctl(const struct node *n, const char *args)
{
	static char text[262144];
	char cmd[512];
	FILE *f;

	snprintf(cmd, sizeof(cmd), "'%.*s/progctl' --socket '%s' %s 2>&1",
		 (int)(strrchr(nodes_progd(), '/') - nodes_progd()), nodes_progd(), n->sock, args);
	f = popen(cmd, "r");
	text[f ? fread(text, 1, sizeof(text) - 1, f) : 0] = '\0';
	if (f)
		pclose(f);
	return text;
}

unsigned long node_stat(const struct node *n, const char *name)
{
	const char *text = node_progctl(n, "--json stats"), *p = text;
	unsigned long sum = 0;
	bool found = false;
	char key[64];

	snprintf(key, sizeof(key), "\"%s\":", name);
	while ((p = strstr(p, key))) {
		p += strlen(key);
		sum += strtoul(p, NULL, 10);
		found = true;
	}
	if (!found)
		fail_msg("progctl stats has no %s:\n%s", name, text);
	return sum;
}

int node_stop(struct node *n, int sig)
{
	char cmd[1024];
	int st = 0;

	if (n->pid > 0) {
		kill(n->pid, sig);
		while (waitpid(n->pid, &st, 0) < 0 && errno == EINTR)
			;
		n->pid = 0;
	}
	st = WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
	/* an engine that ended by itself as it should not, after all that it was asked for */
	snprintf(cmd, sizeof(cmd), "grep -a 'ended badly' '%s' >&2", n->log);
	if (!st && !n->bad_ends && !system(cmd))
		st = 1000 + SIGABRT;
	n->bad_ends = false;
	if (st && !(sig == SIGKILL && st == 1000 + SIGKILL))
		fprintf(stderr, "%s", node_log(n));
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", n->dir);
	if (system(cmd))
		fprintf(stderr, "cannot remove %s\n", n->dir);
	return st;
}

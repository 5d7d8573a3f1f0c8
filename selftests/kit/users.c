/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "users.h"

char users_progd[128];

/* Users, and their places in /tmp, are the machine's: one test at a time, also of other builds.  Held until the end. */
static int alone(void)
{
	int fd = open("/tmp/progd-users.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -1;
	while (flock(fd, LOCK_EX))
		if (errno != EINTR)
			return -1;
	return 0;
}

int users_begin(void)
{
	char cmd[4400];

	if (alone())
		return -1;
	strcpy(users_progd, "/tmp/progd-users-XXXXXX");
	if (!mkdtemp(users_progd) || chmod(users_progd, 0755))
		return -1;
	snprintf(cmd, sizeof(cmd), "cp '%s' '%s/progd' && chmod 711 '%s/progd'", nodes_progd(), users_progd, users_progd);
	strcat(users_progd, "/progd");
	return system(cmd);
}

int users_end(void)
{
	char cmd[256];

	*strrchr(users_progd, '/') = '\0';
	/* and what clients leave for the next */
	snprintf(cmd, sizeof(cmd), "rm -rf '%s' /tmp/asyncprog-%u /tmp/asyncprog-%u", users_progd, USER_A, USER_B);
	return system(cmd);
}

void user_become(uid_t uid)
{
	if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		_exit(90);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

pid_t user_engine(const struct node *n, uid_t uid)
{
	const char *line = node_progctl(n, "engines");
	unsigned int u;
	int pid;

	for (; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (sscanf(line, "uid %u pid %d", &u, &pid) == 2 && u == uid)
			return pid;
	return 0;
}

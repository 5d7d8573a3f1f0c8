/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * subuid: uids that are nobody's account but another user's, to have in his containers (subuid(5)).  One user who has 65,536 of them is
 * not as many users.
 */
#ifndef SUPERVISOR_SUBUID_H
#define SUPERVISOR_SUBUID_H

#include <stdbool.h>
#include <sys/types.h>

struct subuids {
	struct subuid_range {
		uid_t first, last;
	} *range;
	unsigned int n;
};

/*
 * Reads @path instead of what was there before; lines that are not of the form NAME:FIRST:COUNT are left out.  "" or no such file:
 * there are none.  0, or -errno and nothing has changed.
 */
int subuids_load(struct subuids *s, const char *path);
void subuids_free(struct subuids *s);
bool subuids_have(const struct subuids *s, uid_t uid);
/* What all uids look like that our user namespace does not have; -1: it has all. */
uid_t subuids_unmapped(void);

#endif

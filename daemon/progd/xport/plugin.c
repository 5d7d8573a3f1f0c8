// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "xport/plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEVICES	"/sys/class/infiniband"

/* From the directory of progd: where it is installed, and where it is built. */
static const char *const places[] = { "../lib/asyncprog/" VERBS_PLUGIN, "../lib/" VERBS_PLUGIN };

/* Without a device nothing is loaded. */
static bool has_device(void)
{
	DIR *d = opendir(DEVICES);
	struct dirent *e;
	bool has = false;

	if (!d)
		return false;
	while (!has && (e = readdir(d)))
		has = e->d_name[0] != '.';
	closedir(d);
	return has;
}

static bool find(char path[PATH_MAX])
{
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	char *slash;

	if (n <= 0)
		return false;
	exe[n] = '\0';
	slash = strrchr(exe, '/');
	if (!slash)
		return false;
	slash[1] = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if ((size_t)snprintf(path, PATH_MAX, "%s%s", exe, places[i]) < PATH_MAX && !access(path, R_OK))
			return true;
	return false;
}

const struct verbs_api *verbs_load(char why[VERBS_WHY])
{
	const struct verbs_api *a;
	char path[PATH_MAX];
	void *so;

	if (!has_device()) {
		snprintf(why, VERBS_WHY, "this node has no RDMA device");
		return NULL;
	}
	if (!find(path)) {
		snprintf(why, VERBS_WHY, "the plug-in " VERBS_PLUGIN " is not installed");
		return NULL;
	}
	so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!so) {
		snprintf(why, VERBS_WHY, "%s", dlerror());
		return NULL;
	}
	a = dlsym(so, VERBS_API_SYMBOL);
	if (!a || a->version != VERBS_API_VERSION || a->size != sizeof(*a))
		snprintf(why, VERBS_WHY, VERBS_PLUGIN " is of another version");
	else if (!a->init(why))
		return a;
	dlclose(so);
	return NULL;
}

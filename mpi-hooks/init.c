/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Start and end.  In MPI_Init rank 0 tells all ranks 49 bytes (meet.c), and on more than one rank come the session and what
 * two-sided messages need (p2p.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "hooks_gen.h"

static bool switched_off(void)
{
	const char *v = getenv("PROG_ASYNC");

	return v && (!strcasecmp(v, "off") || !strcasecmp(v, "no") || !strcmp(v, "0"));
}

/*
 * Runs at the start of MPI_Finalize, while MPI still works: attributes of MPI_COMM_SELF go in
 * reverse order of setting, so a program's own (which may free windows) come before this one.
 */
static int self_deleted(MPI_Comm comm, int keyval, void *val, void *extra)
{
	p2p_end();
	hwin_drop_all();
	hooks.on = false;
	hooks_session_end();
	return MPI_SUCCESS;
}

/* A tool behind us gets no calls, which only the user can mend.  Files' names may be cut. */
static void look_for_tools(void)
{
	char what[128], note[192];

	if (!real_tool_behind(what, sizeof(what)))
		return;
	snprintf(note, sizeof(note), "nothing, but a tool sees no calls: %s", what);
	hooks_session_note(note);
	prog_log(hooks.world_rank ? PROG_LOG_INFO : PROG_LOG_WARN, "a tool sees no calls, as it is behind asyncprog: %s; "
		 "progrun preloads it in front, where it does", what);
}

/* Is this rank 0, or one that its launcher told nothing? */
static bool speaks(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *v = getenv(names[i]);

		if (v)
			return !strcmp(v, "0");
	}
	return true;
}

/*
 * Rank 0 says why not.  A version that the hooks are not made for may have other constants, and calls that pass by.  One that
 * lacks something is not asked for the rank, either.
 */
static bool is_usable(void)
{
	const struct mpi_version *v = real_version();
	const char *lacks = real_lacks(), *force = getenv("PROG_FORCE");
	const bool forced = force && !strcmp(force, "1");

	if (lacks && speaks())
		prog_log(PROG_LOG_WARN, "%s lacks %s, which asyncprog needs: the job runs natively", v->name, lacks);
	if (lacks)
		return false;
	PMPI_Comm_rank(MPI_COMM_WORLD, &hooks.world_rank);
	if (v->known || forced)
		return true;
	if (!hooks.world_rank)
		prog_log(PROG_LOG_WARN, "%s is not known to asyncprog, which is made for %s: the job runs natively; PROG_FORCE=1 tries",
			 v->name, mpi_family_versions(v->family));
	return false;
}

/* PROG_ASYNC must be alike on all ranks, as launchers make it: off is off, without a word. */
void hooks_start(void)
{
	uint8_t msg[1 + sizeof(hooks.jobid) + sizeof(hooks.jobkey)] = { 0 };
	int provided = MPI_THREAD_SINGLE, keyval, n = 1;

	if (switched_off())
		return;
	log_set_prefix("progmpi");
	if (!is_usable())
		return;
	PMPI_Query_thread(&provided);
	PMPI_Comm_size(MPI_COMM_WORLD, &n);
	look_for_tools();
	if (!hooks.world_rank)
		msg[0] = !prog_job_key_make(msg + 1, msg + 1 + sizeof(hooks.jobid));
	meet_begin(n);
	if (!meet_first(msg, sizeof(msg)) || !msg[0])
		return;
	memcpy(hooks.jobid, msg + 1, sizeof(hooks.jobid));
	memcpy(hooks.jobkey, msg + 1 + sizeof(hooks.jobid), sizeof(hooks.jobkey));
	if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, self_deleted, &keyval, NULL))
		return;
	if (PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, &hooks))
		return;
	PMPI_Comm_free_keyval(&keyval);
	hooks.mt = provided == MPI_THREAD_MULTIPLE;
	hooks.on = true;
	p2p_start(n);
}

int hook_init(int *argc, char ***argv)
{
	int rc;

	hooks.entered = true;
	rc = PMPI_Init(argc, argv);
	if (!rc)
		hooks_start();
	return rc;
}

int hook_init_thread(int *argc, char ***argv, int required, int *provided)
{
	int rc;

	hooks.entered = true;
	rc = PMPI_Init_thread(argc, argv, required, provided);
	if (!rc)
		hooks_start();
	return rc;
}

/*
 * A program that looks up MPI_Init in the library itself never comes here, nor does one that has none, as it uses MPI sessions, and
 * nobody would notice.  Everything that is preloaded ends here, also launchers and shells: they have no MPI library, and nothing
 * happens.
 */
static __attribute__((destructor)) void tell_bypassed(void)
{
	char file[512];

	if (hooks.entered || switched_off() || !speaks())
		return;
	log_set_prefix("progmpi");
	if (real_was_used(file, sizeof(file)))
		prog_log(PROG_LOG_WARN, "this program's MPI calls did not come by asyncprog and ran natively: it has them from %s "
			 "itself, not by name (dlsym() with a handle, RTLD_DEEPBIND, or a library that is preloaded in front)", file);
	else if (hooks.caller == getpid())
		prog_log(PROG_LOG_WARN, "this program does not call MPI_Init, but uses MPI sessions, and ran natively: asyncprog "
			 "serves communicators that come from MPI_COMM_WORLD");
}

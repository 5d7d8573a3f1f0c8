/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Start and end.  MPI_Init costs one broadcast of 48 bytes, and on more than one rank the session and what
 * two-sided messages need (comm.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "hooks_gen.h"

struct hooks hooks = { .self = MPI_COMM_NULL };

static pthread_mutex_t session_lock = PTHREAD_MUTEX_INITIALIZER;
static int session_rc;		/* outcome of the only attempt; under session_lock */
static char session_reason[256];
static bool session_tried;
static char blind_tool[192];	/* that sees no calls; or empty */

static bool switched_off(void)
{
	const char *v = getenv("PROG_ASYNC");

	return v && (!strcasecmp(v, "off") || !strcasecmp(v, "no") || !strcmp(v, "0"));
}

/*
 * A probe would do for Open MPI, but MPICH looks only where the probed communicator's messages
 * come in.  The status of an incomplete request is asked for after general progress in both, and
 * several threads may do it at once.
 */
void hooks_progress(void *arg)
{
	int flag;

	PMPI_Request_get_status(hooks.idle, &flag, MPI_STATUS_IGNORE);
	if (hp2p_space)
		p2p_poll();
}

static int idle_query(void *extra, MPI_Status *status)
{
	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	return MPI_SUCCESS;
}

static int idle_free(void *extra)
{
	return MPI_SUCCESS;
}

static int idle_cancel(void *extra, int complete)
{
	return MPI_SUCCESS;
}

/* What needs no daemon; undone by native_end(). */
static int native_begin(void)
{
	/* not dup: that would run the program's attribute copy functions */
	if (PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &hooks.self))
		return -EIO;
	PMPI_Comm_set_errhandler(hooks.self, MPI_ERRORS_RETURN);
	if (PMPI_Grequest_start(idle_query, idle_free, idle_cancel, NULL, &hooks.idle)) {
		PMPI_Comm_free(&hooks.self);
		return -EIO;
	}
	return 0;
}

static void native_end(void)
{
	if (hooks.self == MPI_COMM_NULL)
		return;
	PMPI_Grequest_complete(hooks.idle);
	PMPI_Wait(&hooks.idle, MPI_STATUS_IGNORE);
	PMPI_Comm_free(&hooks.self);
}

/*
 * Runs at the start of MPI_Finalize, while MPI still works: attributes of MPI_COMM_SELF go in
 * reverse order of setting, so a program's own (which may free windows) come before this one.
 */
static int self_deleted(MPI_Comm comm, int keyval, void *val, void *extra)
{
	hp2p_end();
	hwin_drop_all();
	hooks.on = false;
	prog_session_close(hooks.session);
	hooks.session = NULL;
	native_end();
	return MPI_SUCCESS;
}

/* A tool behind us gets no calls, which only the user can mend.  Files' names may be cut. */
static void look_for_tools(void)
{
	char what[128];

	if (!real_tool_behind(what, sizeof(what)))
		return;
	snprintf(blind_tool, sizeof(blind_tool), "nothing, but a tool sees no calls: %s", what);
	prog_log(hooks.world_rank ? PROG_LOG_INFO : PROG_LOG_WARN, "a tool sees no calls, as it is behind asyncprog: %s; "
		 "progrun preloads it in front, where it does", what);
}

/* PROG_ASYNC must be alike on all ranks, as launchers make it: off is off, without a broadcast. */
void hooks_start(void)
{
	uint8_t msg[1 + sizeof(hooks.jobid) + sizeof(hooks.jobkey)] = { 0 };
	int provided = MPI_THREAD_SINGLE, keyval;

	if (switched_off())
		return;
	log_set_prefix("progmpi");
	PMPI_Query_thread(&provided);
	PMPI_Comm_rank(MPI_COMM_WORLD, &hooks.world_rank);
	look_for_tools();
	if (!hooks.world_rank)
		msg[0] = !prog_job_key_make(msg + 1, msg + 1 + sizeof(hooks.jobid));
	if (PMPI_Bcast(msg, sizeof(msg), MPI_BYTE, 0, MPI_COMM_WORLD) || !msg[0])
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
	hp2p_start();
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

static int session_open(void)
{
	struct prog_session_cfg cfg = {
		.flags = PROG_SESSION_EMBEDDED | (hooks.mt ? PROG_SESSION_MT : 0),
		.rank = (uint32_t)hooks.world_rank,
		.progress = hooks_progress,
	};
	const char *why = NULL;
	int rc;

	memcpy(cfg.jobid, hooks.jobid, sizeof(cfg.jobid));
	memcpy(cfg.jobkey, hooks.jobkey, sizeof(cfg.jobkey));
	rc = htype_init();
	if (rc) {
		snprintf(session_reason, sizeof(session_reason), "out of memory");
		return rc;
	}
	rc = native_begin();
	if (rc) {
		snprintf(session_reason, sizeof(session_reason),
			 "the MPI library gave no communicator");
		return rc;
	}
	rc = prog_session_open(&cfg, &hooks.session, &why);
	if (rc) {
		hooks.session = NULL;
		snprintf(session_reason, sizeof(session_reason), "%s", why ? why : strerror(-rc));
		native_end();
	} else if (*blind_tool) {
		prog_session_note(hooks.session, blind_tool);
	}
	return rc;
}

int hooks_session(const char **reason)
{
	int rc;

	pthread_mutex_lock(&session_lock);
	if (!session_tried) {
		session_tried = true;
		session_rc = session_open();
	}
	rc = session_rc;
	*reason = session_reason;
	if (!rc && !prog_session_alive(hooks.session)) {
		rc = -EPIPE;
		*reason = "the daemon was lost";
	}
	pthread_mutex_unlock(&session_lock);
	return rc;
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
 * A program that looks up MPI_Init in the library itself never comes here, and nobody would notice.  Everything that is
 * preloaded ends here, also launchers and shells: they have no MPI library, and nothing happens.
 */
static __attribute__((destructor)) void tell_bypassed(void)
{
	char file[512];

	if (hooks.entered || switched_off() || !speaks() || !real_was_used(file, sizeof(file)))
		return;
	log_set_prefix("progmpi");
	prog_log(PROG_LOG_WARN, "this program's MPI calls did not come by asyncprog and ran natively: it has them from %s "
		 "itself, not by name (dlsym() with a handle, RTLD_DEEPBIND, or a library that is preloaded in front)", file);
}

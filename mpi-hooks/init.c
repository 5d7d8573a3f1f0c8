/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Start and end.  In MPI_Init rank 0 tells all ranks 49 bytes (meet.c), and on more than one rank come the session and what
 * two-sided messages need (p2p.c).  Without MPI_Init the same is done when all have a communicator from a session (mpi_sessions.c).
 */
#include <sched.h>
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

/* ---- who starts and ends the job ------------------------------------------------------------------ */

static pthread_mutex_t job_lock = PTHREAD_MUTEX_INITIALIZER;
static enum job job;
static bool in_world;		/* between MPI_Init and MPI_Finalize */
static void (*sessions_ended)(void);

bool hooks_job_move(enum job from, enum job to)
{
	bool is;

	pthread_mutex_lock(&job_lock);
	is = job == from;
	if (is)
		job = to;
	pthread_mutex_unlock(&job_lock);
	return is;
}

static void end(void)
{
	p2p_end();
	hwin_drop_all();
	hooks.on = false;
	hooks_session_end();
}

/* A job by sessions serves threads whose sessions are others: it ends when there is nobody left. */
static void end_by_sessions(void)
{
	bool last, ends;

	pthread_mutex_lock(&job_lock);
	last = !hooks.sessions && !in_world;
	ends = last && job == JOB_BY_SESSIONS;
	if (ends)
		job = JOB_OVER;
	pthread_mutex_unlock(&job_lock);
	if (ends)
		end();
	/* a thread that begins a session meanwhile needs what this ends */
	pthread_mutex_lock(&job_lock);
	if (last && !hooks.sessions && sessions_ended)
		sessions_ended();
	pthread_mutex_unlock(&job_lock);
}

void hooks_job_session(int change, void (*ended)(void))
{
	int finalized = 0;

	/* MPICH deletes what MPI_COMM_SELF has with the last session, not in an MPI_Finalize before */
	if (PMPI_Finalized(&finalized))
		finalized = 0;
	pthread_mutex_lock(&job_lock);
	in_world &= !finalized;
	hooks.sessions += change;
	sessions_ended = ended;
	pthread_mutex_unlock(&job_lock);
	if (change < 0)
		end_by_sessions();
}

/*
 * Runs at the start of MPI_Finalize, while MPI still works: attributes of MPI_COMM_SELF go in
 * reverse order of setting, so a program's own (which may free windows) come before this one.
 */
static int self_deleted(MPI_Comm comm, int keyval, void *val, void *extra)
{
	pthread_mutex_lock(&job_lock);
	in_world = false;
	pthread_mutex_unlock(&job_lock);
	if (hooks_job_move(JOB_BY_WORLD, JOB_OVER))
		end();
	end_by_sessions();
	return MPI_SUCCESS;
}

static bool begin_world(void)
{
	int keyval;

	if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, self_deleted, &keyval, NULL))
		return false;
	if (PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, &hooks))
		return false;
	PMPI_Comm_free_keyval(&keyval);
	pthread_mutex_lock(&job_lock);
	in_world = true;
	pthread_mutex_unlock(&job_lock);
	return true;
}

/* ---- start ------------------------------------------------------------------------------------- */

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
static bool is_usable(MPI_Comm comm, int *rank)
{
	const struct mpi_version *v = real_version();
	const char *lacks = real_lacks(), *force = getenv("PROG_FORCE");
	const bool forced = force && !strcmp(force, "1");
	static atomic_bool asked;	/* each communicator of a session asks */
	const bool first = !atomic_exchange(&asked, true);

	if (lacks && first && speaks())
		prog_log(PROG_LOG_WARN, "%s lacks %s, which asyncprog needs: the job runs natively", v->name, lacks);
	if (lacks)
		return false;
	PMPI_Comm_rank(comm, rank);
	if (v->known || forced)
		return true;
	if (!*rank && first)
		prog_log(PROG_LOG_WARN, "%s is not known to asyncprog, which is made for %s: the job runs natively; PROG_FORCE=1 tries",
			 v->name, mpi_family_versions(v->family));
	return false;
}

/* PROG_ASYNC must be alike on all ranks, as launchers make it: off is off, without a word. */
bool hooks_job_is_possible(MPI_Comm comm, int *rank)
{
	if (switched_off())
		return false;
	log_set_prefix("progmpi");
	return is_usable(comm, rank);
}

/* What rank 0 tells: is there a job, its id and key. */
#define JOB_BYTES	(1 + sizeof(hooks.jobid) + sizeof(hooks.jobkey))

static void job_make(uint8_t msg[JOB_BYTES])
{
	msg[0] = !prog_job_key_make(msg + 1, msg + 1 + sizeof(hooks.jobid));
}

static void job_begin(const uint8_t msg[JOB_BYTES], MPI_Comm world, int rank, bool mt)
{
	memcpy(hooks.jobid, msg + 1, sizeof(hooks.jobid));
	memcpy(hooks.jobkey, msg + 1 + sizeof(hooks.jobid), sizeof(hooks.jobkey));
	hooks.world = world;
	hooks.world_rank = rank;
	hooks.mt = mt;
	look_for_tools();
}

/*
 * A session's threads are its own, whatever MPI_Init was asked for, and what is outstanding here is what each of them looks at.  From
 * MPICH no session that comes later gets more threads than MPI_Init did.
 */
static bool sessions_bring_threads(void)
{
	const int number = real_version()->number;
	/* Open MPI before 5.0 has none */
	const bool bring = hooks.sessions || (IS_OMPI && (number < 0 || number >= 500) && real_may_have_sessions());

	if (bring)
		prog_log(PROG_LOG_DEBUG, "sessions: calls lock as with MPI_THREAD_MULTIPLE");
	return bring;
}

/*
 * Rank 0 has started none by sessions, nor does a thread of it ask others.  So those that ask here will be told no, and who was starting
 * one has failed, and needs nobody to find that out.
 */
static bool follow(void)
{
	while (!hooks_job_move(JOB_NONE, JOB_BY_WORLD) && !hooks_job_move(JOB_ASKED, JOB_BY_WORLD)) {
		if (hooks_job_move(JOB_OVER, JOB_OVER))
			return false;
		sched_yield();
	}
	return true;
}

void hooks_start(void)
{
	int provided = MPI_THREAD_SINGLE, n = 1, rank;
	uint8_t msg[JOB_BYTES] = { 0 };

	if (!hooks_job_is_possible(MPI_COMM_WORLD, &rank) || !begin_world())
		return;
	PMPI_Query_thread(&provided);
	PMPI_Comm_size(MPI_COMM_WORLD, &n);
	if (!rank && hooks_job_move(JOB_NONE, JOB_BY_WORLD))
		job_make(msg);
	meet_begin(MPI_COMM_WORLD, n);
	if (!meet_first(msg, sizeof(msg)) || !msg[0] || (rank && !follow()))
		return;
	job_begin(msg, MPI_COMM_WORLD, rank, provided == MPI_THREAD_MULTIPLE || sessions_bring_threads());
	hooks.on = true;
	p2p_start(n);
}

bool hooks_job_start(int n)
{
	uint8_t msg[JOB_BYTES] = { 0 };
	int rank = 0;

	hooks.entered = true;
	PMPI_Comm_rank(hooks.world, &rank);
	if (!rank)
		job_make(msg);
	meet_begin(hooks.world, n);
	if (!meet_first(msg, sizeof(msg)) || !msg[0])
		return false;
	/* sessions that come later may have any level of threads */
	job_begin(msg, hooks.world, rank, true);
	p2p_start(n);
	hooks.on = p2p_context;
	if (!hooks.on)
		hooks_session_end();
	return hooks.on;
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
 * makes no communicator of all processes: nobody would notice.  Everything that is preloaded ends here, also launchers and shells:
 * they have no MPI library, and nothing happens.
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
			 "serves those that make a communicator of all processes, and others then");
}

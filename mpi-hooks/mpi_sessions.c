/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Programs of MPI's sessions model, whose communicators come from groups, without a parent.
 *
 * The members of each tell each other by a reduction whether they are in the same job: then it is managed.  The first one
 * that all processes have starts the job, as MPI_Init does, if nobody has one.  What the hooks need comes from a session of
 * their own, so that the program may finalize its sessions in any order; the job ends with the last one.  In a job that MPI_Init
 * has started such communicators are the library's, as they may outlive MPI_Finalize.
 *
 * No lock is held while others are waited for: they may wait for another thread of this process.
 */
#include <stdlib.h>
#include <string.h>

#include "hooks_gen.h"

static struct hmap known = { .lock = PTHREAD_MUTEX_INITIALIZER };	/* the program's sessions */
static atomic_bool multiple;		/* one of them was asked for MPI_THREAD_MULTIPLE */

static MPI_Session own;			/* of who has made it JOB_ASKED, until the last session ends; if .. */
static bool has_own;
static MPI_Group all;			/* .. all processes */

/* ---- a session of our own ----------------------------------------------------------------------- */

/* Libraries may take a lower level of threads for that of the process. */
static int own_init(void)
{
	MPI_Info info = MPI_INFO_NULL;
	int rc;

	if (atomic_load(&multiple) && !PMPI_Info_create(&info))
		PMPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE");
	rc = PMPI_Session_init(info, MPI_ERRORS_RETURN, &own);
	if (info != MPI_INFO_NULL)
		PMPI_Info_free(&info);
	return rc;
}

static bool own_begin(void)
{
	if (has_own)
		return true;
	if (own_init())
		return false;
	has_own = !PMPI_Group_from_session_pset(own, "mpi://WORLD", &all);
	if (!has_own)
		PMPI_Session_finalize(&own);
	return has_own;
}

static void own_end(void)
{
	if (!has_own)
		return;
	has_own = false;
	if (hooks.by_sessions && hooks.world != MPI_COMM_NULL)
		PMPI_Comm_free(&hooks.world);
	PMPI_Group_free(&all);
	PMPI_Session_finalize(&own);
}

/* ---- the program's ------------------------------------------------------------------------------ */

/* MPI_Init knew of no sessions (real_may_have_sessions()), and nothing is locked; with MPICH this one has no more threads than that. */
static void note_threads(void)
{
	static atomic_bool told;

	if (hooks.on && !hooks.mt && IS_OMPI && !atomic_exchange(&told, true))
		prog_log(PROG_LOG_WARN, "a session with MPI_THREAD_MULTIPLE was begun by what was loaded after an MPI_Init without it: "
			 "calls of its threads beside others are not safe with asyncprog");
}

int hook_session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session *session)
{
	int rc = PMPI_Session_init(info, errhandler, session), found = 0;
	char level[32] = "";

	if (rc)
		return rc;
	if (info != MPI_INFO_NULL && !PMPI_Info_get(info, "thread_level", sizeof(level) - 1, level, &found) && found &&
	    !strcmp(level, "MPI_THREAD_MULTIPLE")) {
		atomic_store(&multiple, true);
		note_threads();
	}
	hooks_job_session(1, own_end);
	/* one that is not known is never finalized, and the job does not end before the process */
	if (hmap_add(&known, HMAP_KEY(*session), &known))
		prog_log(PROG_LOG_ERROR, "session: out of memory");
	return rc;
}

int hook_session_finalize(MPI_Session *session)
{
	bool is = session && hmap_find(&known, HMAP_KEY(*session));

	if (is) {
		hmap_del(&known, HMAP_KEY(*session));
		hooks_job_session(-1, own_end);
	}
	return PMPI_Session_finalize(session);
}

/* Has @comm, of @n processes, all of them? */
static bool has_all(MPI_Comm comm, int n)
{
	MPI_Group group = MPI_GROUP_NULL;
	int in = 0, *ranks = NULL;
	bool is;

	is = !PMPI_Group_size(all, &in) && in == n && !PMPI_Comm_group(comm, &group) && !hcomm_ranks_in(all, group, &ranks, &n);
	for (int i = 0; is && i < n; i++)
		is = ranks[i] != MPI_UNDEFINED;
	if (group != MPI_GROUP_NULL)
		PMPI_Group_free(&group);
	free(ranks);
	return is;
}

/* What members say, each bit: all do. */
struct say {
	uint64_t knows;			/* it is in a job that has messages; which, and the same inverted: all are in the same */
	uint64_t id[2], not_id[2];
	uint64_t starts;		/* it can start one, of these processes */
};

static bool is_same(const struct say *all_say)
{
	return all_say->knows && !~(all_say->id[0] | all_say->not_id[0]) && !~(all_say->id[1] | all_say->not_id[1]);
}

/* Collective over @comm, which has all @n processes, and each of them can start the job. */
static bool start(MPI_Comm comm, int n)
{
	int ok, least = 0;

	ok = !PMPI_Comm_create_from_group(all, "org.asyncprog", MPI_INFO_NULL, MPI_ERRORS_RETURN, &hooks.world);
	if (!ok)
		hooks.world = MPI_COMM_NULL;
	hooks.by_sessions = true;
	if (PMPI_Allreduce(&ok, &least, 1, MPI_INT, MPI_MIN, comm))
		least = 0;
	ok = least && hooks_job_start(n);
	hooks_job_move(JOB_STARTS, ok ? JOB_BY_SESSIONS : JOB_OVER);
	return ok;
}

/* A new communicator of @n processes: is it to be managed?  Collective over it; the same on all. */
static bool decide(MPI_Comm comm, int n)
{
	struct say say = { 0 };
	bool asks = hooks_job_move(JOB_NONE, JOB_ASKED);

	say.starts = asks && own_begin() && has_all(comm, n);
	say.knows = hooks_job_move(JOB_BY_SESSIONS, JOB_BY_SESSIONS);
	memcpy(say.id, hooks.jobid, sizeof(say.id));
	for (int i = 0; i < 2; i++)
		say.not_id[i] = ~say.id[i];
	if (PMPI_Allreduce(MPI_IN_PLACE, &say, sizeof(say) / sizeof(uint64_t), MPI_UINT64_T, MPI_BAND, comm))
		say = (struct say){ 0 };
	if (say.starts && hooks_job_move(JOB_ASKED, JOB_STARTS))
		return start(comm, n);
	if (asks)
		hooks_job_move(JOB_ASKED, JOB_NONE);
	return is_same(&say);
}

int hook_comm_create_from_group(MPI_Group group, const char *stringtag, MPI_Info info, MPI_Errhandler errhandler,
				MPI_Comm *newcomm)
{
	int rc = PMPI_Comm_create_from_group(group, stringtag, info, errhandler, newcomm), n, rank;

	if (rc || *newcomm == MPI_COMM_NULL || PMPI_Comm_size(*newcomm, &n) || n < 2 ||
	    !hooks_job_is_possible(*newcomm, &rank) || !decide(*newcomm, n))
		return rc;
	return hcomm_made_group(NULL, newcomm, info, "MPI_Comm_create_from_group");
}

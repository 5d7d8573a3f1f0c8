/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What the hooks have in this process, and the session with the daemon. */
#include <stdio.h>
#include <string.h>

#include "hooks_gen.h"

/* How long a wait sleeps at most before it looks after native traffic again. */
#define SLICE_NS	100000ull

struct hooks hooks = { .world = MPI_COMM_WORLD, .self = MPI_COMM_NULL };

static pthread_mutex_t session_lock = PTHREAD_MUTEX_INITIALIZER;
static int session_rc;		/* outcome of the only attempt; under session_lock */
static char session_reason[256];
static bool session_tried;
static char session_note[192];	/* for progctl doctor; or empty */

void hooks_session_note(const char *note)
{
	snprintf(session_note, sizeof(session_note), "%s", note);
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
	if (p2p_context)
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

/*
 * In MPICH 4.2 a persistent request is inactive once MPI_Request_get_status has said that it is complete, and what completes it
 * gives an empty status.  A message of this process to itself tells whether it is so here.
 */
static bool does_asking_end(void)
{
	MPI_Request recv = MPI_REQUEST_NULL, send = MPI_REQUEST_NULL;
	MPI_Status st = { .MPI_TAG = 0 };
	int flag = 0, rc;

	rc = PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, 1, hooks.self, &recv) || PMPI_Start(&recv) ||
		PMPI_Isend(NULL, 0, MPI_BYTE, 0, 1, hooks.self, &send);
	while (!rc && !flag)
		rc = PMPI_Request_get_status(recv, &flag, MPI_STATUS_IGNORE);
	if (!rc)
		rc = PMPI_Wait(&recv, &st);
	if (send != MPI_REQUEST_NULL)
		PMPI_Wait(&send, MPI_STATUS_IGNORE);
	if (recv != MPI_REQUEST_NULL)
		PMPI_Request_free(&recv);
	return !rc && st.MPI_TAG != 1;
}

/* Alone; not by dup, which would run the program's attribute copy functions. */
static int self_make(void)
{
	MPI_Group all = MPI_GROUP_NULL, one = MPI_GROUP_NULL;
	int rc;

	if (!hooks.by_sessions)
		return PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &hooks.self);
	rc = PMPI_Comm_group(hooks.world, &all) || PMPI_Group_incl(all, 1, &hooks.world_rank, &one) ||
		PMPI_Comm_create_group(hooks.world, one, 0, &hooks.self);
	if (all != MPI_GROUP_NULL)
		PMPI_Group_free(&all);
	if (one != MPI_GROUP_NULL)
		PMPI_Group_free(&one);
	return rc;
}

/* What needs no daemon; undone by native_end(). */
static int native_begin(void)
{
	if (self_make())
		return -EIO;
	PMPI_Comm_set_errhandler(hooks.self, MPI_ERRORS_RETURN);
	if (PMPI_Grequest_start(idle_query, idle_free, idle_cancel, NULL, &hooks.idle)) {
		PMPI_Comm_free(&hooks.self);
		return -EIO;
	}
	hooks.asked_ends = does_asking_end();
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
	} else if (*session_note) {
		prog_session_note(hooks.session, session_note);
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

void hooks_session_end(void)
{
	prog_session_close(hooks.session);
	hooks.session = NULL;
	native_end();
}

void hooks_sleep_slice(void)
{
	prog_session_wait(hooks.session, SLICE_NS);
	hooks_progress(NULL);
}

void hooks_polled(void)
{
	static atomic_uint calls;
	unsigned int n = atomic_load_explicit(&calls, memory_order_relaxed);

	/* not one after the other: threads that count at once may lose some */
	atomic_store_explicit(&calls, n + 1, memory_order_relaxed);
	if (n % 64 == 0)
		prog_session_alive(hooks.session);
}

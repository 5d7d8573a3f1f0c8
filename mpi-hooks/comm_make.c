/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Communicators: which of them are managed, their ids and members; making and freeing them.
 *
 * The hooks manage MPI_COMM_WORLD, what is made of managed communicators, and intercommunicators all of whose members are in
 * MPI_COMM_WORLD.  All members of a communicator decide alike without asking each other: whether p2p_context
 * exists was agreed in MPI_Init, the rest follows from the parent and the members.  Only of one that comes from a session the members
 * ask each other (mpi_sessions.c); where sessions have started the job, hooks.world stands for MPI_COMM_WORLD, and
 * is no communicator of the program's.
 *
 * Ids need no agreement either where the call is collective over the parent: each of its members counts the calls
 * that succeeded (MPI has all members make them in the same order), also those that gave it MPI_COMM_NULL; communicators
 * of one call differ in their lowest member.  MPI_Comm_create_group and MPI_Intercomm_create are not, and tell
 * the id, or half of it, through the new communicator; they block anyway.
 *
 * A process that finds no memory for the record returns MPI_ERR_NO_MEM and MPI_COMM_NULL: the call has failed on it, as
 * any collective call may that the others succeeded in.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hooks_gen.h"

static MPI_Group world_group = MPI_GROUP_NULL;

/* Finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators). */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static uint64_t id_of(uint64_t a, uint64_t b, uint64_t c)
{
	return mix(mix(mix(a) + b) + c);
}

/* Different for each call in the job. */
static uint64_t id_fresh(void)
{
	static atomic_uint count;

	return id_of(P2P_CONTEXT_KEY, (uint64_t)hooks.world_rank, atomic_fetch_add(&count, 1));
}

int hcomm_ranks_in(MPI_Group in, MPI_Group group, int **ranks, int *n)
{
	int *own, rc;

	*ranks = NULL;
	rc = PMPI_Group_size(group, n);
	if (rc)
		return rc;
	own = malloc(((size_t)*n + 1) * 2 * sizeof(*own));
	if (!own)
		return MPI_ERR_NO_MEM;
	for (int i = 0; i < *n; i++)
		own[*n + i] = i;
	rc = PMPI_Group_translate_ranks(group, *n, own + *n, in, own);
	if (rc) {
		free(own);
		return rc;
	}
	*ranks = own;
	return MPI_SUCCESS;
}

/* The lowest of @ranks, or -1 when one of them is not in MPI_COMM_WORLD. */
static int lowest(const int *ranks, int n)
{
	int low = INT_MAX;

	for (int i = 0; i < n; i++) {
		if (ranks[i] == MPI_UNDEFINED)
			return -1;
		if (ranks[i] < low)
			low = ranks[i];
	}
	return low;
}

struct members {
	int *local, *remote;		/* remote NULL: an intracommunicator */
	int nlocal, nremote;
	int low;			/* lowest of all; -1: not all are in MPI_COMM_WORLD */
};

static void members_free(struct members *m)
{
	free(m->local);
	free(m->remote);
}

static int members_get(MPI_Comm comm, struct members *m)
{
	int inter = 0, rc, low;
	MPI_Group group;

	memset(m, 0, sizeof(*m));
	rc = PMPI_Comm_test_inter(comm, &inter);
	if (!rc)
		rc = PMPI_Comm_group(comm, &group);
	if (rc)
		return rc;
	rc = hcomm_ranks_in(world_group, group, &m->local, &m->nlocal);
	PMPI_Group_free(&group);
	if (rc)
		return rc;
	m->low = lowest(m->local, m->nlocal);
	if (!inter)
		return MPI_SUCCESS;
	rc = PMPI_Comm_remote_group(comm, &group);
	if (!rc) {
		rc = hcomm_ranks_in(world_group, group, &m->remote, &m->nremote);
		PMPI_Group_free(&group);
	}
	if (rc) {
		members_free(m);
		return rc;
	}
	low = lowest(m->remote, m->nremote);
	if (low < m->low)
		m->low = low;
	return MPI_SUCCESS;
}

/* This process cannot keep @newcomm. */
static int refuse(struct hcomm *parent, MPI_Comm *newcomm, int class, const char *call)
{
	*newcomm = MPI_COMM_NULL;
	if (parent)
		return hcomm_raise(parent, class, call);
	herror_nobodys(class, call);
	return class;
}

/*
 * Of the hints that a communicator can have, one takes away what pre-matching stands on: that the library matches
 * in order.  Duplicates may inherit it.
 */
static bool may_overtake(MPI_Info hints)
{
	char value[8] = "";
	int found = 0;

	if (hints == MPI_INFO_NULL)
		return false;
	PMPI_Info_get(hints, "mpi_assert_allow_overtaking", sizeof(value) - 1, value, &found);
	return found && strcasecmp(value, "false");
}

static void set_unordered(struct hcomm *c)
{
	if (c->unordered)
		return;
	c->unordered = true;
	hooks_lock(&c->lock);
	chans_forget_order(c->chans);
	hooks_unlock(&c->lock);
}

int hook_comm_set_info(struct hcomm *c, MPI_Info info)
{
	if (may_overtake(info))
		set_unordered(c);
	return PMPI_Comm_set_info(c->handle, info);
}

static int made(struct hcomm *parent, MPI_Comm *newcomm, MPI_Info hints, const struct members *m, uint64_t id,
		const char *call)
{
	const int *peers = m->remote ? m->remote : m->local;
	int n = m->remote ? m->nremote : m->nlocal;
	struct hcomm *c = hcomm_new(*newcomm, id, (uint32_t)n);

	if (!c)
		return refuse(parent, newcomm, MPI_ERR_NO_MEM, call);
	PMPI_Comm_rank(*newcomm, &c->rank);
	for (int i = 0; i < n; i++)
		c->world[i] = (uint32_t)peers[i];
	if (!m->remote)
		c->self = c->rank;
	if (may_overtake(hints))
		set_unordered(c);
	prog_log(PROG_LOG_DEBUG, "communicator: managed, id %016llx, %u peers", (unsigned long long)id,
		 c->npeers);
	if (hcomm_show(c))
		return refuse(parent, newcomm, MPI_ERR_NO_MEM, call);
	return MPI_SUCCESS;
}

int hcomm_made(struct hcomm *parent, MPI_Comm *newcomm, MPI_Info hints, const char *call)
{
	uint64_t nth = parent->children++;
	struct members m;
	int rc;

	if (*newcomm == MPI_COMM_NULL)
		return MPI_SUCCESS;
	rc = members_get(*newcomm, &m);
	if (rc)
		return refuse(parent, newcomm, rc, call);
	rc = made(parent, newcomm, hints, &m, id_of(parent->id, nth, (uint64_t)m.low), call);
	members_free(&m);
	return rc;
}

/*
 * A duplicate: the members are the parent's.  The new handle is not asked about anything, it may be one that
 * MPI_Comm_idup has not completed; both libraries give the handle at once, and one that did not would
 * leave it unmanaged everywhere.
 */
int hcomm_made_dup(struct hcomm *parent, MPI_Comm *newcomm, MPI_Info hints, const char *call)
{
	uint64_t nth = parent->children++;
	struct hcomm *c;

	if (*newcomm == MPI_COMM_NULL)
		return MPI_SUCCESS;
	c = hcomm_new(*newcomm, id_of(parent->id, nth, UINT64_MAX), parent->npeers);
	if (!c)
		return refuse(parent, newcomm, MPI_ERR_NO_MEM, call);
	memcpy(c->world, parent->world, parent->npeers * sizeof(*c->world));
	c->rank = parent->rank;
	c->self = parent->self;
	if (parent->unordered || may_overtake(hints))
		set_unordered(c);
	prog_log(PROG_LOG_DEBUG, "communicator: managed, id %016llx, %u peers", (unsigned long long)c->id,
		 c->npeers);
	if (hcomm_show(c))
		return refuse(parent, newcomm, MPI_ERR_NO_MEM, call);
	return MPI_SUCCESS;
}

int hcomm_made_group(struct hcomm *parent, MPI_Comm *newcomm, MPI_Info hints, const char *call)
{
	struct members m;
	uint64_t id;
	int rc;

	if (*newcomm == MPI_COMM_NULL)
		return MPI_SUCCESS;
	id = id_fresh();
	rc = PMPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, *newcomm);
	if (!rc)
		rc = members_get(*newcomm, &m);
	if (rc)
		return refuse(parent, newcomm, rc, call);
	rc = made(parent, newcomm, hints, &m, id, call);
	members_free(&m);
	return rc;
}

/* In what a side of an intercommunicator says of itself: all of its members say that. */
#define SIDE_KNOWN	1ull

/*
 * What the id is made of is what the two sides say of themselves.  The members of a managed local communicator know
 * that of their own side, as this call is collective over it, and so does who is alone; so one reduction tells each side what the
 * other one says.  Else a side has it from its first, and hears by a second reduction what the other side has heard.
 */
int hcomm_made_inter(struct hcomm *local, MPI_Comm *newcomm, MPI_Info hints, const char *call)
{
	uint64_t nth = local ? local->children++ : 0, own = 0, theirs = 0;
	struct members m;
	int rank, rc;

	if (*newcomm == MPI_COMM_NULL)
		return MPI_SUCCESS;
	rc = members_get(*newcomm, &m);
	if (rc)
		return refuse(local, newcomm, rc, call);
	if (m.low < 0) {		/* both sides see that */
		members_free(&m);
		return MPI_SUCCESS;
	}
	PMPI_Comm_rank(*newcomm, &rank);
	if (local)
		own = id_of(local->id, nth, UINT64_MAX) | SIDE_KNOWN;
	else if (m.nlocal == 1)
		own = id_fresh() | SIDE_KNOWN;
	else if (!rank)
		own = id_fresh() & ~SIDE_KNOWN;
	rc = PMPI_Allreduce(&own, &theirs, 1, MPI_UINT64_T, MPI_MAX, *newcomm);
	if (!rc && !(own & theirs & SIDE_KNOWN))
		rc = PMPI_Allreduce(&theirs, &own, 1, MPI_UINT64_T, MPI_MAX, *newcomm);
	if (rc)
		rc = refuse(local, newcomm, rc, call);
	else
		rc = made(local, newcomm, hints, &m, id_of(mix(own) + mix(theirs), 0, (uint64_t)m.low), call);
	members_free(&m);
	return rc;
}

static bool errors_return(MPI_Comm comm)
{
	MPI_Errhandler handler = MPI_ERRORS_ARE_FATAL;
	bool quiet;

	PMPI_Comm_get_errhandler(comm, &handler);
	quiet = handler == MPI_ERRORS_RETURN;
	herror_handler_put(handler);
	return quiet;
}

/* The attributes' delete functions run inside of the library's call and may still communicate. */
static int freeing(MPI_Comm *comm, int (*call)(MPI_Comm *comm))
{
	struct hcomm *c = comm ? hcomm_find(*comm) : NULL;
	bool quiet;
	int rc;

	if (!c)
		return call(comm);
	quiet = errors_return(*comm);
	rc = call(comm);
	if (rc)
		return rc;
	c->quiet = quiet;
	if (!hooks.mt)
		rec_all_whole(c);
	atomic_store_explicit(&c->freed, true, memory_order_release);
	hcomm_hide(c);
	return MPI_SUCCESS;
}

int hook_comm_free(MPI_Comm *comm)
{
	return freeing(comm, PMPI_Comm_free);
}

int hook_comm_disconnect(MPI_Comm *comm)
{
	struct hcomm *c = comm ? hcomm_find(*comm) : NULL;

	/* afterwards the buffers of what the program has freed are its own again */
	if (c) {
		hcoll_drain(c);
		orphan_wait(c);
	}
	return freeing(comm, PMPI_Comm_disconnect);
}

int hcomm_make_world(int n)
{
	struct hcomm *c;

	if (hooks.by_sessions)
		return 0;
	c = hcomm_new(MPI_COMM_WORLD, mix(0), (uint32_t)n);
	if (!c)
		return -ENOMEM;
	c->rank = c->self = hooks.world_rank;
	for (int i = 0; i < n; i++)
		c->world[i] = (uint32_t)i;
	return hcomm_show(c);
}

int hcomm_make_begin(void)
{
	return PMPI_Comm_group(hooks.world, &world_group);
}

void hcomm_make_end(void)
{
	if (world_group != MPI_GROUP_NULL)
		PMPI_Group_free(&world_group);
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Communicators: which of them are managed, their ids and members; start and end of two-sided messages.
 *
 * Managed are MPI_COMM_WORLD and what is made of managed ones, and intercommunicators all of whose members are in
 * MPI_COMM_WORLD.  All members of a communicator decide alike without asking each other: whether hp2p_space
 * exists was agreed in MPI_Init, the rest follows from the parent and the members.
 *
 * Ids need no agreement either where the call is collective over the parent: each of its members counts the calls
 * that succeeded (MPI has all members make them in the same order), also those that gave it MPI_COMM_NULL; communicators
 * of one call differ in their lowest member.  MPI_Comm_create_group and MPI_Intercomm_create are not, and tell
 * the id through the new communicator; they block anyway.
 *
 * A process that finds no memory for the record returns MPI_ERR_NO_MEM and MPI_COMM_NULL: the call has failed on it, as
 * any collective call may that the others succeeded in.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hooks_gen.h"

#define SPACE_KEY	UINT64_MAX	/* no window of the program has it, see new_key() */

struct prog_win *hp2p_space;
static struct hmap hcomm_map = { .lock = PTHREAD_MUTEX_INITIALIZER };
static struct hcomm no_comm = { .shown = HCOMM_NO_HANDLE };
_Thread_local struct hcomm *hcomm_last = &no_comm, *hcomm_last_threads = &no_comm;
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;	/* who is in the map */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hcomm *unused;		/* under pool_lock */
static struct hcomm *waiting;		/* .. not referenced, but plain receives may be outstanding */
static MPI_Group world_group = MPI_GROUP_NULL;

/* ---- ids ------------------------------------------------------------------------------------- */

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

	return id_of(SPACE_KEY, (uint64_t)hooks.world_rank, atomic_fetch_add(&count, 1));
}

/* ---- records --------------------------------------------------------------------------------- */

/* Ranks in MPI_COMM_WORLD of @group's members, MPI_UNDEFINED included; an MPI class. */
static int world_ranks(MPI_Group group, int **ranks, int *n)
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
	rc = PMPI_Group_translate_ranks(group, *n, own + *n, world_group, own);
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
	rc = world_ranks(group, &m->local, &m->nlocal);
	PMPI_Group_free(&group);
	if (rc)
		return rc;
	m->low = lowest(m->local, m->nlocal);
	if (!inter)
		return MPI_SUCCESS;
	rc = PMPI_Comm_remote_group(comm, &group);
	if (!rc) {
		rc = world_ranks(group, &m->remote, &m->nremote);
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

/* Nothing refers to @c any more. */
static void record_end(struct hcomm *c)
{
	held_free(c->held);
	c->held = NULL;
	chans_free(c->chans);
	c->chans = NULL;
	free(c->world);
	c->world = NULL;
	c->next = unused;
	unused = c;
}

/* Those end of which the last plain receive has.  A record that becomes a whole one takes its reference first. */
static void records_poll(void)
{
	struct hcomm **p, *c;
	bool idle;

	for (p = &waiting; (c = *p);) {
		pthread_mutex_lock(&c->lock);
		idle = chans_idle(c->chans) && !atomic_load_explicit(&c->refs, memory_order_acquire);
		pthread_mutex_unlock(&c->lock);
		if (!idle) {
			p = &c->next;
			continue;
		}
		*p = c->next;
		record_end(c);
	}
}

static struct hcomm *record_take(void)
{
	struct hcomm *c;

	pthread_mutex_lock(&pool_lock);
	records_poll();
	c = unused;
	if (c)
		unused = c->next;
	pthread_mutex_unlock(&pool_lock);
	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (c) {
		pthread_mutex_init(&c->lock, NULL);
		c->shown = HCOMM_NO_HANDLE;
	}
	return c;
}

static struct hcomm *record_new(MPI_Comm handle, uint64_t id, uint32_t npeers)
{
	struct hcomm *c = record_take();

	if (!c)
		return NULL;
	atomic_store_explicit(&c->freed, false, memory_order_relaxed);
	c->quiet = c->unordered = c->waits = false;
	c->id = id;
	c->npeers = npeers;
	c->rank = 0;
	c->self = -1;
	c->children = 0;
	c->world = calloc((size_t)npeers + 1, sizeof(*c->world));
	c->chans = chans_new(CHAN_MAX);
	atomic_store_explicit(&c->refs, 1, memory_order_relaxed);
	if (!c->world || !c->chans) {
		pthread_mutex_lock(&pool_lock);
		record_end(c);
		pthread_mutex_unlock(&pool_lock);
		return NULL;
	}
	if (hooks.mt)
		chans_threads(c->chans);
	hcomm_set_quick(c);
	c->handle = handle;
	return c;
}

void hcomm_set_quick(struct hcomm *c)
{
	c->quick_peers = hooks.mt || c->held ? 0 : c->npeers;
	if (!hooks.mt)
		return;
	if (c->held)
		chans_hold(c->chans);
	else
		chans_unhold(c->chans);
}

void hcomm_put(struct hcomm *c)
{
	if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
		return;
	pthread_mutex_lock(&pool_lock);
	if (!hooks.mt) {
		record_end(c);
	} else if (!c->waits) {
		c->waits = true;
		c->next = waiting;
		waiting = c;
	}
	records_poll();
	pthread_mutex_unlock(&pool_lock);
}

struct chan *hcomm_send_enter_slow(struct hcomm *c, int dest, int tag)
{
	struct chan *ch;

	pthread_mutex_lock(&c->lock);
	ch = chan_send_enter_locked(c->chans, dest, tag);
	pthread_mutex_unlock(&c->lock);
	return ch;
}

struct chan *hcomm_recv_enter_slow(struct hcomm *c, int source, int tag)
{
	struct chan *ch;

	pthread_mutex_lock(&c->lock);
	ch = chan_recv_enter_locked(c->chans, source, tag);
	pthread_mutex_unlock(&c->lock);
	return ch;
}

void hcomm_took(struct hcomm *c, int source, int tag)
{
	if (likely(chan_took(c->chans, source, tag)))
		return;
	pthread_mutex_lock(&c->lock);
	chan_took_locked(c->chans, source, tag);
	pthread_mutex_unlock(&c->lock);
}

struct hcomm *hcomm_find_slow(MPI_Comm comm)
{
	struct hcomm *c = hcomm_last_threads;

	if (comm == hcomm_handle(c))
		return c;
	c = hp2p_space ? hmap_find(&hcomm_map, HMAP_KEY(comm)) : NULL;
	if (c && hooks.mt)
		hcomm_last_threads = c;
	else if (c)
		hcomm_last = c;
	return c;
}

static void set_shown(struct hcomm *c, MPI_Comm handle)
{
	__atomic_store_n(&c->shown, handle, __ATOMIC_RELAXED);
}

static void unshow(struct hcomm *c, uint64_t key)
{
	hmap_del(&hcomm_map, key);
	set_shown(c, HCOMM_NO_HANDLE);
}

/* From now on messages on the handle are ours.  Takes the reference. */
static int show(struct hcomm *c)
{
	uint64_t key = HMAP_KEY(c->handle);
	struct hcomm *old;
	int rc;

	pthread_mutex_lock(&map_lock);
	/* the handle of one that another thread has freed but not yet taken out */
	old = hmap_find(&hcomm_map, key);
	if (old)
		unshow(old, key);
	rc = hmap_add(&hcomm_map, key, c);
	if (!rc)
		set_shown(c, c->handle);
	pthread_mutex_unlock(&map_lock);
	if (rc)
		hcomm_put(c);
	return rc;
}

static void hide(struct hcomm *c)
{
	uint64_t key = HMAP_KEY(c->handle);

	pthread_mutex_lock(&map_lock);
	if (hmap_find(&hcomm_map, key) == c)
		unshow(c, key);
	pthread_mutex_unlock(&map_lock);
	hcomm_put(c);
}

int hcomm_raise(struct hcomm *c, int class, const char *call)
{
	if (!atomic_load_explicit(&c->freed, memory_order_acquire))
		herror_comm(c->handle, class, call);
	else if (!c->quiet)
		herror_comm(MPI_COMM_WORLD, class, call);
	return class;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* This process cannot keep @newcomm. */
static int refuse(struct hcomm *parent, MPI_Comm *newcomm, int class, const char *call)
{
	*newcomm = MPI_COMM_NULL;
	if (parent)
		return hcomm_raise(parent, class, call);
	herror_comm(MPI_COMM_SELF, class, call);
	return class;
}

/*
 * Of the hints that a communicator can have, one takes away what prediction stands on: that the library matches
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
	chans_float(c->chans);
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
	struct hcomm *c = record_new(*newcomm, id, (uint32_t)n);

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
	if (show(c))
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
	c = record_new(*newcomm, id_of(parent->id, nth, UINT64_MAX), parent->npeers);
	if (!c)
		return refuse(parent, newcomm, MPI_ERR_NO_MEM, call);
	memcpy(c->world, parent->world, parent->npeers * sizeof(*c->world));
	c->rank = parent->rank;
	c->self = parent->self;
	if (parent->unordered || may_overtake(hints))
		set_unordered(c);
	prog_log(PROG_LOG_DEBUG, "communicator: managed, id %016llx, %u peers", (unsigned long long)c->id,
		 c->npeers);
	if (show(c))
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

int hcomm_made_inter(struct hcomm *local, MPI_Comm *newcomm, MPI_Info hints, const char *call)
{
	uint64_t mine = 0, theirs = 0, own = 0;
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
	if (!rank)
		mine = id_fresh();
	/* what the other side's first said, then what it heard of our side's first */
	rc = PMPI_Allreduce(&mine, &theirs, 1, MPI_UINT64_T, MPI_MAX, *newcomm);
	if (!rc)
		rc = PMPI_Allreduce(&theirs, &own, 1, MPI_UINT64_T, MPI_MAX, *newcomm);
	if (rc)
		rc = refuse(local, newcomm, rc, call);
	else
		rc = made(local, newcomm, hints, &m, id_of(mix(own) + mix(theirs), 0, (uint64_t)m.low), call);
	members_free(&m);
	return rc;
}

/* ---- freeing --------------------------------------------------------------------------------- */

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
	hide(c);
	return MPI_SUCCESS;
}

int hook_comm_free(MPI_Comm *comm)
{
	return freeing(comm, PMPI_Comm_free);
}

int hook_comm_disconnect(MPI_Comm *comm)
{
	return freeing(comm, PMPI_Comm_disconnect);
}

/* ---- start and end --------------------------------------------------------------------------- */

static bool two_sided_off(void)
{
	const char *v = getenv("PROG_TWO_SIDED");

	return v && (!strcasecmp(v, "off") || !strcasecmp(v, "no") || !strcmp(v, "0"));
}

static bool all_ok(bool ok)
{
	int mine = ok, all = 0;

	if (PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD))
		return false;
	return all;
}

static int record_world(int n)
{
	struct hcomm *c = record_new(MPI_COMM_WORLD, mix(0), (uint32_t)n);

	if (!c)
		return -ENOMEM;
	c->rank = c->self = hooks.world_rank;
	for (int i = 0; i < n; i++)
		c->world[i] = (uint32_t)i;
	return show(c);
}

/* The window; NULL with *@why. @n + 1 endpoints. */
static struct prog_win *space_open(int n, struct prog_endpoint *eps, const char **why)
{
	struct prog_win_cfg cfg = {
		.kind = PROG_WIN_SPACE,
		.key = SPACE_KEY,
		.rank = (uint32_t)hooks.world_rank,
		.nranks = (uint32_t)n,
	};
	struct prog_win *w = NULL;
	const char *reason;
	int rc;

	if (!*why && hooks_session(&reason))
		*why = reason;
	if (!all_ok(!*why))
		return NULL;
	rc = prog_win_open(hooks.session, &cfg, &w);
	if (rc) {
		w = NULL;
		*why = strerror(-rc);
	}
	if (!all_ok(w != NULL))
		goto fail;
	prog_win_endpoint(w, &eps[n]);
	rc = PMPI_Allgather(&eps[n], sizeof(*eps), MPI_BYTE, eps, sizeof(*eps), MPI_BYTE,
			    MPI_COMM_WORLD);
	if (!all_ok(!rc && !prog_win_connect(w, eps, why)))
		goto fail;
	rc = prog_win_map(w, NULL);
	if (!rc)
		rc = record_world(n);
	if (rc)
		*why = strerror(-rc);
	if (all_ok(!rc) && !p2p_begin(w))
		return w;
fail:
	prog_win_close(w);
	return NULL;
}

static void drop_records(void)
{
	for (size_t i = 0; i < sizeof(hcomm_map.bucket) / sizeof(hcomm_map.bucket[0]); i++) {
		struct hmap_node *n = &hcomm_map.bucket[i];

		for (; n; n = n->next) {
			if (!n->key)
				continue;
			n->key = 0;
			set_shown(n->val, HCOMM_NO_HANDLE);
			hcomm_put(n->val);
		}
	}
	if (world_group != MPI_GROUP_NULL)
		PMPI_Group_free(&world_group);
}

void hp2p_start(void)
{
	const char *why = NULL;
	struct prog_endpoint *eps;
	struct prog_win *w;
	int n = 0;

	if (!hooks.on)
		return;
	PMPI_Comm_size(MPI_COMM_WORLD, &n);
	if (n < 2)
		return;
	if (two_sided_off())
		why = "PROG_TWO_SIDED is off";
	else if (PMPI_Comm_group(MPI_COMM_WORLD, &world_group))
		why = "the MPI library gave no group";
	eps = calloc((size_t)n + 1, sizeof(*eps));
	if (!eps && !why)
		why = strerror(ENOMEM);
	w = space_open(n, eps, &why);
	free(eps);
	if (w) {
		hp2p_space = w;
		return;
	}
	drop_records();
	if (!why)
		why = "another rank cannot";
	/* windows, which may follow, say it aloud */
	prog_log(PROG_LOG_INFO, "two-sided messages: left to the MPI library: %s", why);
	if (hooks.session && !two_sided_off()) {
		char note[160];

		snprintf(note, sizeof(note), "two-sided messages: %s", why);
		prog_session_note(hooks.session, note);
	}
}

void hp2p_end(void)
{
	struct prog_win *w = hp2p_space;

	if (!w)
		return;
	if (!hooks.mt)
		rec_all_whole(NULL);
	p2p_end();
	hp2p_space = NULL;
	drop_records();
	prog_win_close(w);
}

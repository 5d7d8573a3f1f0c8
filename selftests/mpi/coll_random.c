// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * coll_random: random programs of non-blocking collectives.
 *
 *	coll_random [--threads N] [--timeout S] [--show] [--natively] [--prompt] FIRST COUNT
 *
 * Each seed from FIRST on makes one program, the same on all ranks of MPI_COMM_WORLD: a list of events, each of which is a
 * collective on one of several communicators, which overlap and have their members in other orders; a message; a blocking
 * collective; or another run of a persistent one.  With --threads, N threads of each rank run a program each, on communicators of
 * their own.  --natively leaves out what the MPI libraries get wrong by themselves.  With --prompt most ranks wait for each
 * collective at once, for some programs in a row, and then for some they do not; what the libraries get wrong is left out, too, as
 * some are theirs then.  What is printed: see random.h.
 *
 * Each rank starts its events in an order of its own, in which only those of one communicator stay in order, and completes them
 * in another one.  Why no program deadlocks: a rank waits for an event only when it has started all that are before it in the list and
 * concern it.  So one that it waits for is missed by a rank only that waits for an earlier one.  Blocking collectives, and runs after the
 * first, which have to be waited for between, are started when all before them are.
 *
 * Every buffer is compared (collcase.h).  Sums with rounding errors have to have the same bits at all members; they are no part of
 * the digest.
 */
#include "collcase.h"
#include "random.h"

#define MAX_COMMS	8
#define MAX_EVENTS	64
#define WINDOW		12	/* how far ahead of the first event that is not started a rank looks for another */
#define UNITS		6000

enum kind { COLLECTIVE, PERSISTENT, AGAIN, MESSAGE, BLOCKING, KINDS };
static const char *const kind_names[KINDS] = { "", "persistent ", "again ", "message", "blocking" };

struct event {
	enum kind kind;
	int no, comm, first;	/* first: of AGAIN, the event that it is a run of */
	uint64_t seed;
	bool mine, started, complete;
	struct coll c;
	MPI_Request q;
	int from, to, len;	/* of a message: integers */
	int *data;
	uint64_t run;
};

struct thread {
	struct random_thread base;
	int ncomms, nevents;
	MPI_Comm comm[MAX_COMMS];
	bool topology[MAX_COMMS];
	struct event ev[MAX_EVENTS];
	uint64_t digest, rounded[MAX_EVENTS];
	struct t_rng own;
};

static struct thread *threads;
static bool natively, prompt;

/* ---- events ---- */

static void make_event(struct thread *th, struct event *e, struct t_rng *r)
{
	int k = t_rndn(r, 16);

	*e = (struct event){ .no = (int)(e - th->ev), .seed = t_rnd(r), .q = MPI_REQUEST_NULL };
	e->kind = k == 0 ? BLOCKING : k < 3 ? MESSAGE : k < 6 && T_HAS_COLL_INIT && !natively ? PERSISTENT : COLLECTIVE;
	/* MPICH's own do not end when started in other orders: those of all ranks are ours */
	e->comm = t_rndn(r, prompt && e->kind == PERSISTENT ? 2 : th->ncomms);
	e->from = t_rndn(r, nranks);
	e->to = t_rndn(r, nranks);
	e->len = t_rndn(r, 1 << t_rndn(r, 14));
	e->first = e->no;
	/* another run of the last persistent one */
	for (int i = e->no - 1; k >= 13 && i >= 0; i--) {
		if (th->ev[i].kind != PERSISTENT && th->ev[i].kind != AGAIN)
			continue;
		e->kind = AGAIN;
		e->first = th->ev[i].first;
		e->run = th->ev[i].run + 1;
		e->comm = th->ev[i].comm;
		break;
	}
	e->mine = e->kind == MESSAGE ? rank == e->from || rank == e->to : th->comm[e->comm] != MPI_COMM_NULL;
	/* one that is nobody's here needs neither */
	e->started = e->complete = !e->mine;
}

/* What it is, from its own seed, as the ranks that do not take part know nothing of it. */
static void make_collective(struct thread *th, struct event *e)
{
	struct t_rng r = { e->seed };

	coll_choose(&e->c, &r, th->comm[e->comm], UNITS, natively || prompt);
	if (th->topology[e->comm] && t_rndn(&r, 2)) {
		e->c.kind = C_NEIGHBOR_ALLGATHER + t_rndn(&r, C_KINDS - C_NEIGHBOR_ALLGATHER - (natively || prompt));
		e->c.in_place = false;
	}
	if (e->c.kind == C_ALLREDUCE && e->comm == 0 && t_rndn(&r, 2)) {
		const struct acc_type *types;
		int n = acc_types(&types);

		for (int i = 0; i < n; i++)
			if (types[i].type == MPI_DOUBLE)
				e->c.type = &types[i];
		e->c.op = O_SUM;
		e->c.fractions = true;
	}
	coll_make(&e->c);
}

static void complete(struct thread *th, struct event *e);

static void start_message(struct thread *th, struct event *e)
{
	int both = e->from == rank && e->to == rank;

	e->data = malloc(sizeof(int) * (size_t)(2 * e->len + 1));
	if (!e->data)
		abort();
	t_fill(e->data, sizeof(int) * (size_t)e->len, e->seed);
	if (both) {
		e->complete = true;
		free(e->data);
	} else if (rank == e->from) {
		CK(MPI_Isend(e->data, e->len, MPI_INT, e->to, e->no, th->comm[0], &e->q));
	} else {
		CK(MPI_Irecv(e->data + e->len, e->len, MPI_INT, e->no % 2 ? MPI_ANY_SOURCE : e->from, e->no, th->comm[0], &e->q));
	}
}

static void start(struct thread *th, struct event *e)
{
	int v = e->no + rank, most;

	th->base.at = e;
	th->base.step = e->no;
	random_region(&th->base, e->no);
	e->started = true;
	if (show)
		printf("rank %d thread %d: event %d %s%s comm %d\n", rank, th->base.no, e->no, kind_names[e->kind],
		       e->kind <= PERSISTENT ? "collective" : "", e->comm);
	switch (e->kind) {
	case COLLECTIVE:
		make_collective(th, e);
		coll_fill(&e->c, 0);
		CK(coll_start(&e->c, &e->q));
		/* as programs do */
		if (e->seed % 3 == 0)
			coll_free_types(&e->c);
		break;
	case PERSISTENT:
	case AGAIN:
#if T_HAS_COLL_INIT
		if (e->kind == PERSISTENT) {
			make_collective(th, e);
			coll_fill(&e->c, 0);
			CK(coll_init(&e->c, &e->q));
			coll_free_types(&e->c);
			CK(MPI_Start(&e->q));
			break;
		}
		/* its previous run is another event, which this one ends */
		for (int i = e->no - 1; i >= e->first; i--)
			if (th->ev[i].first == e->first && !th->ev[i].complete)
				complete(th, &th->ev[i]);
		coll_fill(&th->ev[e->first].c, e->run);
		CK(MPI_Start(&th->ev[e->first].q));
#endif
		break;
	case MESSAGE:
		start_message(th, e);
		break;
	default:
		CK(MPI_Allreduce(&v, &most, 1, MPI_INT, MPI_MAX, th->comm[e->comm]));
		if (most < v)
			fail(th, "a largest value of %d, ours is %d", most, v);
		e->complete = true;
	}
	th->base.at = NULL;
}

/* Its request is complete. */
static void check(struct thread *th, struct event *e)
{
	struct event *f = &th->ev[e->first];
	const char *why;

	e->complete = true;
	if (e->kind == MESSAGE) {
		if (rank == e->to && memcmp(e->data, e->data + e->len, sizeof(int) * (size_t)e->len))
			fail(th, "a message of %d integers is wrong", e->len);
		free(e->data);
		return;
	}
	why = coll_wrong(&f->c);
	if (why)
		fail(th, "%s", why);
	if (f->c.fractions)
		th->rounded[e->no] = coll_digest(&f->c);
	else
		th->digest += mix(coll_digest(&f->c), (uint64_t)e->no);
	if (e->kind == COLLECTIVE)
		coll_free(&e->c);
}

static void complete(struct thread *th, struct event *e)
{
	MPI_Request *q = &th->ev[e->first].q;
	MPI_Status st;
	int flag = 0, i;

	th->base.at = e;
	th->base.step = e->no;
	switch (t_rndn(&th->own, 5)) {
	case 0:
		while (!flag)
			CK(MPI_Test(q, &flag, &st));
		break;
	case 1:
		CK(MPI_Waitany(1, q, &i, MPI_STATUS_IGNORE));
		break;
	case 2:
		while (!flag)
			CK(MPI_Request_get_status(*q, &flag, &st));
		/* fall through */
	default:
		CK(MPI_Wait(q, MPI_STATUS_IGNORE));
	}
	check(th, e);
	th->base.at = NULL;
}

/* ---- the order of a rank ---- */

static int first_not_started(const struct thread *th)
{
	int i = 0;

	while (i < th->nevents && th->ev[i].started)
		i++;
	return i;
}

/* One that may be started now: the first of its communicator among the next ones. */
static struct event *next_to_start(struct thread *th, int first)
{
	int at = first + t_rndn(&th->own, WINDOW);
	struct event *e;

	if (at >= th->nevents)
		return &th->ev[first];
	e = &th->ev[at];
	if (e->started || e->kind >= BLOCKING || e->kind == AGAIN)
		return &th->ev[first];
	for (int i = first; i < at; i++)
		if (!th->ev[i].started && th->ev[i].comm == e->comm)
			return &th->ev[first];
	return e;
}

/* All that may be waited for at once, or those that happen to be complete. */
static void complete_several(struct thread *th, int first, bool all)
{
	MPI_Request q[MAX_EVENTS];
	struct event *e[MAX_EVENTS];
	int n = 0, done[MAX_EVENTS], k = 0;

	for (int i = 0; i < first; i++) {
		if (th->ev[i].complete || th->ev[i].kind == PERSISTENT || th->ev[i].kind == AGAIN)
			continue;
		q[n] = th->ev[i].q;
		e[n++] = &th->ev[i];
	}
	if (!n)
		return;
	if (all) {
		CK(MPI_Waitall(n, q, MPI_STATUSES_IGNORE));
		for (int i = 0; i < n; i++)
			check(th, e[i]);
		return;
	}
	CK(MPI_Testsome(n, q, &k, done, MPI_STATUSES_IGNORE));
	for (int i = 0; i < n; i++)
		e[i]->q = q[i];
	for (int i = 0; i < k; i++)
		check(th, e[done[i]]);
}

static void complete_one(struct thread *th, int first)
{
	int at = first ? t_rndn(&th->own, first) : 0;

	for (int i = 0; i < first; i++, at = (at + 1) % first) {
		if (th->ev[at].complete)
			continue;
		complete(th, &th->ev[at]);
		return;
	}
}

/* All before it are started, so that nobody waits in a circle. */
static void run_prompt(struct thread *th)
{
	for (int i = 0; i < th->nevents; i++) {
		struct event *e = &th->ev[i];

		if (e->started)
			continue;
		start(th, e);
		if (e->kind != COLLECTIVE)
			continue;
		th->base.at = e;
		if (e->no % 3)
			CK(MPI_Wait(&e->q, MPI_STATUS_IGNORE));
		else
			CK(MPI_Waitall(1, &e->q, MPI_STATUSES_IGNORE));
		check(th, e);
		th->base.at = NULL;
	}
}

static void *run_program(void *arg)
{
	struct thread *th = arg;

	if (prompt && seed_now % 8 < 6 && mix(seed_now, (uint64_t)rank) % 16)
		run_prompt(th);
	for (;;) {
		int first = first_not_started(th), what = t_rndn(&th->own, 10);

		if (first == th->nevents)
			break;
		if (what < 7)
			start(th, next_to_start(th, first));
		else if (what < 9)
			complete_one(th, first);
		else
			complete_several(th, first, t_rndn(&th->own, 3) == 0);
	}
	for (int i = 0; i < th->nevents; i++)
		if (!th->ev[i].complete)
			complete(th, &th->ev[i]);
	for (int i = 0; i < th->nevents; i++) {
		if (th->ev[i].kind != PERSISTENT || !th->ev[i].mine)
			continue;
		CK(MPI_Request_free(&th->ev[i].q));
		coll_free(&th->ev[i].c);
	}
	return NULL;
}

/* ---- communicators ---- */

static MPI_Comm subset(MPI_Comm of, uint64_t seed)
{
	MPI_Comm c;

	/* somebody has to be in it; in any order */
	MPI_Comm_split(of, rank == (int)(seed % (uint64_t)nranks) || mix(seed, (uint64_t)rank) % 3 ? 0 : MPI_UNDEFINED,
		       (int)(mix(seed, 100 + (uint64_t)rank) % 1000), &c);
	return c;
}

static void make_comms(struct thread *th)
{
	int ring = nranks, yes = 1, n = 0, from[MAX_RANKS], to[MAX_RANKS], weights[MAX_RANKS], nfrom = 0, nto = 0;

	MPI_Comm_dup(MPI_COMM_WORLD, &th->comm[n++]);
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &th->comm[n++]);
	MPI_Comm_split(MPI_COMM_WORLD, rank / 2, -rank, &th->comm[n++]);
	MPI_Comm_split(MPI_COMM_WORLD, rank == nranks - 1 ? MPI_UNDEFINED : 0, (rank * 5 + 3) % nranks, &th->comm[n++]);
	th->topology[n] = nranks > 2 || !natively;
	MPI_Cart_create(MPI_COMM_WORLD, 1, &ring, &yes, 0, &th->comm[n++]);
	th->topology[n] = true;
	for (int r = 0; r < nranks; r++) {
		weights[r] = 1;
		if ((rank * 3 + r) % 4 && r != rank)
			to[nto++] = r;
		if ((r * 3 + rank) % 4 && r != rank)
			from[nfrom++] = r;
	}
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, nfrom, from, weights, nto, to, weights, MPI_INFO_NULL, 0, &th->comm[n++]);
	th->ncomms = n;
}

static void before(void)
{
	for (int i = 0; i < nthreads; i++) {
		struct thread *th = &threads[i];
		struct t_rng r = { mix(seed_now, (uint64_t)i) };

		th->comm[th->ncomms++] = subset(th->comm[0], t_rnd(&r));
		th->own.s = mix(seed_now, 1000 + (uint64_t)(rank * MAX_THREADS + i));
		th->digest = 0;
		memset(th->rounded, 0, sizeof(th->rounded));
		th->nevents = 8 + t_rndn(&r, MAX_EVENTS - 8);
		for (int k = 0; k < th->nevents; k++)
			make_event(th, &th->ev[k], &r);
	}
}

static uint64_t after(void)
{
	uint64_t digest = 0, most[MAX_EVENTS];

	for (int i = 0; i < nthreads; i++) {
		struct thread *th = &threads[i];
		MPI_Comm *last = &th->comm[--th->ncomms];

		if (*last != MPI_COMM_NULL)
			MPI_Comm_free(last);
		MPI_Allreduce(th->rounded, most, th->nevents, MPI_UINT64_T, MPI_MAX, th->comm[0]);
		for (int k = 0; k < th->nevents; k++)
			if (most[k] != th->rounded[k])
				fail(th, "event %d: a sum has other bits than at another member", k);
		if (t_failures())
			fail(th, "a type could not be made");
		digest += mix(th->digest, (uint64_t)(rank * MAX_THREADS + i));
	}
	return digest;
}

static int option(char **argv, int words)
{
	(void)words;
	if (!strcmp(*argv, "--natively"))
		natively = true;
	else if (!strcmp(*argv, "--prompt"))
		prompt = true;
	else
		return 0;
	return 1;
}

static void begin(void *all)
{
	const struct acc_type *types;

	threads = all;
	acc_types(&types);
	for (int i = 0; i < nthreads; i++)
		make_comms(&threads[i]);
}

static void end(void)
{
	for (int i = 0; i < nthreads; i++)
		for (int k = 0; k < threads[i].ncomms; k++)
			if (threads[i].comm[k] != MPI_COMM_NULL)
				MPI_Comm_free(&threads[i].comm[k]);
}

static void where(const void *event, char *b, size_t size)
{
	const struct event *e = event;

	snprintf(b, size, "%s%s comm %d", kind_names[e->kind], e->kind <= PERSISTENT ? coll_names[e->c.kind] : "", e->comm);
}

int main(int argc, char **argv)
{
	static const struct random_program program = {
		.name = "coll_random", .options = " [--natively] [--prompt]", .thread_size = sizeof(struct thread), .option = option,
		.begin = begin, .before = before, .run = run_program, .after = after, .end = end, .where = where,
	};

	return random_main(argc, argv, &program);
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * rma_random: random legal one-sided programs.
 *
 *	rma_random [--threads N] [--timeout S] [--show] [--native] [--windows MASK] FIRST COUNT
 *
 * Each seed from FIRST on makes one program: some windows on communicators of all kinds, each with
 * rounds of epochs, and messages and collectives in between.  All members of a window make the
 * window's whole program, from a stream of random numbers of its own; a rank executes its own events
 * in the order of their time.  With --threads, N threads of each rank run a program each, with
 * windows of their own.  --windows leaves out the windows whose bit is not set.  --native leaves out what
 * the MPI libraries get wrong by themselves (may_native() and its callers).  What is printed: see random.h.
 *
 * Why no program deadlocks: a call that blocks at time t needs from other ranks only calls at times
 * <= t.  Locks that may have to wait for one another (stages of kind CRITICAL) are taken, used and
 * released by one rank without any other blocking call in between, those of several targets in the
 * order of the targets.  All other locks are shared, or exclusive where nobody else locks.
 *
 * What the right results are: the memory of each member is divided into slots, whose elements have one
 * type for the window's life.  In each stage (an epoch of all members, separated from the next one by
 * a synchronization of all, or of all that share a slot) a slot has one role:
 *	PRIVATE	 one origin does what it likes; what MPI does not order is separated by a flush, or
 *		 not done.  So the order is the program's.
 *	READERS	 anybody reads.
 *	SHARED	 anybody accumulates with one commutative operation, on values for which it is exact.
 *		 A fetched value has to be what some of the others' operations and all of one's own
 *		 earlier ones make of the first value.
 *	MUTABLE	 who has locked the target exclusively does what it likes.  It takes a ticket from the
 *		 target first; the tickets say in which order.
 *	DIRECT	 PRIVATE by load and store, in shared windows.
 * At the end of a round all members simulate all of it on shadows of all memory.  Each compares what it
 * got, and its own memory; also as it was when a fence or a wait had just returned, as what comes too late
 * has arrived by the end of the round.  In some stages all origins meet: each accumulates many times to the
 * same element, alone or as the first one of a block, as soon as it may.  In some only one origin does
 * anything, so that the others have nothing to wait for but what comes from it.  Besides, the first cells of
 * each memory are a counter, of which the values fetched have to be a permutation, and a cell for
 * compare-and-swap, whose successes have to be a chain.
 */
#include "rma_random.h"

static const char *const ekind_names[] = {
	"make", "free", "fence", "post", "start", "complete", "wait", "lock", "unlock", "lock_all",
	"unlock_all", "flush", "sync", "operation", "look", "barrier", "gather", "check", "requests",
	"message", "collective", "pause",
};

bool native;
unsigned int windows_mask = ~0u;
const struct acc_type *types;
int ntypes;
static struct thread *threads;

/* ---- running ---- */

static void do_flush(struct thread *th, struct window *w, int how, int t)
{
	switch (how) {
	case FLUSH: CK(MPI_Win_flush(t, w->win)); break;
	case FLUSH_ALL: CK(MPI_Win_flush_all(w->win)); break;
	case FLUSH_LOCAL: CK(MPI_Win_flush_local(t, w->win)); break;
	default: CK(MPI_Win_flush_local_all(w->win)); break;
	}
	/* MPICH's flush_local natively returns before the result of a get is there */
	if (!native || how < FLUSH_LOCAL)
		complete_ops(th, w, -1, how == FLUSH || how == FLUSH_LOCAL ? t : -1);
}

static void look(struct window *w, int stage)
{
	const struct member *m = &w->m[w->me];
	unsigned char *seen = xalloc((size_t)m->size);

	for (int s = 0; s < m->nsegs; s++)
		memcpy(seen + m->seg[s].off, w->mem[s], (size_t)m->seg[s].len);
	w->stage[stage].seen = seen;
}

static void do_post(struct thread *th, struct window *w, int stage)
{
	int a = w->stage[stage].nocheck ? MPI_MODE_NOCHECK : 0;
	MPI_Group g = group_of(th, w, stage, false);

	if (!w->stored && w->r.s & 1)
		a |= MPI_MODE_NOSTORE;
	if (!updated(w, stage))
		a |= MPI_MODE_NOPUT;
	w->stored = false;
	CK(MPI_Win_post(g, a, w->win));
	CK(MPI_Group_free(&g));
}

static void run_window_event(struct thread *th, struct window *w, const struct event *e)
{
	MPI_Group g;
	int flag = 0;

	switch (e->kind) {
	case W_MAKE:
		if (w->win == MPI_WIN_NULL)
			make_window(th, w);
		break;
	case W_FREE:
		free_window(th, w);
		break;
	case E_FENCE:
		CK(MPI_Win_fence(fence_asserts(w, e->a, e->b), w->win));
		if (e->a >= 0)
			complete_ops(th, w, e->a, -1);
		break;
	case E_POST:
		do_post(th, w, e->a);
		break;
	case E_START:
		g = group_of(th, w, e->a, true);
		CK(MPI_Win_start(g, w->stage[e->a].nocheck ? MPI_MODE_NOCHECK : 0, w->win));
		CK(MPI_Group_free(&g));
		break;
	case E_COMPLETE:
		CK(MPI_Win_complete(w->win));
		complete_ops(th, w, e->a, -1);
		break;
	case E_WAIT:
		if (!w->stage[e->a].wait_test) {
			CK(MPI_Win_wait(w->win));
			break;
		}
		while (!flag)
			if (CK(MPI_Win_test(w->win, &flag)))
				break;
		break;
	case E_LOCK:
		CK(MPI_Win_lock(e->b, e->a, e->c, w->win));
		break;
	case E_UNLOCK:
		CK(MPI_Win_unlock(e->a, w->win));
		complete_ops(th, w, -1, e->a);
		break;
	case E_LOCK_ALL:
		CK(MPI_Win_lock_all(e->a, w->win));
		break;
	case E_UNLOCK_ALL:
		CK(MPI_Win_unlock_all(w->win));
		complete_ops(th, w, -1, -1);
		break;
	case E_FLUSH:
		do_flush(th, w, e->a, e->b);
		break;
	case E_SYNC:
		CK(MPI_Win_sync(w->win));
		break;
	case E_OP:
		do_op(th, w, &w->op[e->a]);
		break;
	case E_LOOK:
		look(w, e->a);
		break;
	case E_BARRIER:
		CK(MPI_Barrier(th->comm[w->comm].sync));
		break;
	case E_GATHER:
		gather(th, w, e->a);
		break;
	case E_CHECK:
		check_round(th, w, e->a, e->b, e->c);
		break;
	default:
		do_requests(th, e->a);
		break;
	}
}

static void show_event(struct thread *th, const struct event *e)
{
	char d[600] = "";

	if (e->w >= 0 && e->kind == E_OP)
		describe(&th->win[e->w], &th->win[e->w].op[e->a], d, sizeof(d));
	else
		snprintf(d, sizeof(d), "%d %d %d", e->a, e->b, e->c);
	printf("# rank %d thread %d step %d time %.2f window %d: %s %s\n", t_rank, th->base.no, th->base.step, e->t,
	       e->w, ekind_names[e->kind], d);
	fflush(stdout);
}

static void *run_program(void *arg)
{
	struct thread *th = arg;

	for (int i = 0; i < th->nevents; i++) {
		const struct event *e = &th->event[i];

		th->base.step = i;
		th->base.at = e;
		random_region(&th->base, i);
		if (show)
			show_event(th, e);
		if (e->w >= 0 && th->win[e->w].win == MPI_WIN_NULL && e->kind != W_MAKE)
			continue;
		switch (e->w >= 0 ? W_MAKE : e->kind) {
		case W_MAKE: run_window_event(th, &th->win[e->w], e); break;
		case E_MESSAGE: do_message(th, e); break;
		case E_COLLECTIVE: do_collective(th, e->a); break;
		case E_PAUSE: usleep((unsigned int)e->a); break;
		default: do_requests(th, e->a); break;
		}
	}
	th->base.at = NULL;
	for (int i = 0; i < th->nwins; i++) {
		struct window *w = &th->win[i];

		for (int k = 0; k < w->nops; k++)
			forget(&w->op[k]);
		for (int k = 0; k < w->n; k++) {
			for (int s = 0; s < w->m[k].nslots; s++)
				free(w->m[k].slot[s].marks);
			free(w->m[k].shadow);
		}
		free(w->op);
		free(w->gathered);
	}
	return NULL;
}

/* ---- communicators ---- */

/* everybody learns who is with whom, and in which order */
static void add_comm(struct thread *th, MPI_Comm h, bool one_node)
{
	struct comm *c = &th->comm[th->ncomms++];
	int me[2] = { -1, -1 }, all[2 * MAX_RANKS];

	c->h = h;
	c->one_node = one_node;
	c->sync = MPI_COMM_NULL;
	if (h != MPI_COMM_NULL) {
		MPI_Comm_dup(h, &c->sync);
		MPI_Comm_rank(h, &me[1]);
		me[0] = t_rank;
		MPI_Bcast(&me[0], 1, MPI_INT, 0, h);
	}
	MPI_Allgather(me, 2, MPI_INT, all, 2, MPI_INT, th->sync);
	for (int i = 0; i < t_size; i++) {
		c->color[i] = all[2 * i];
		c->crank[i] = all[2 * i + 1];
	}
}

static void make_comms(struct thread *th)
{
	struct t_rng r = { 4711 };
	int out, n;
	MPI_Comm h, node;

	MPI_Comm_dup(MPI_COMM_WORLD, &th->sync);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, t_rank, MPI_INFO_NULL, &node);
	MPI_Comm_size(node, &n);
	MPI_Comm_dup(MPI_COMM_WORLD, &h);
	add_comm(th, h, n == t_size);
	add_comm(th, node, true);
	/* all in falling order; halves by parity; all but one in some order; everybody alone */
	MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &h);
	add_comm(th, h, n == t_size);
	MPI_Comm_split(MPI_COMM_WORLD, t_rank & 1, -t_rank, &h);
	add_comm(th, h, n == t_size);
	out = t_rndn(&r, t_size);
	MPI_Comm_split(MPI_COMM_WORLD, t_rank == out ? MPI_UNDEFINED : 0, (t_rank * 5 + 3) % 7, &h);
	add_comm(th, h, n == t_size);
	MPI_Comm_dup(MPI_COMM_SELF, &h);
	add_comm(th, h, true);
}

/* ---- the job ---- */

static void where(const void *event, char *b, size_t size)
{
	const struct event *e = event;

	snprintf(b, size, "window %d %s %d %d", e->w, ekind_names[e->kind], e->a, e->b);
}

static int failures_before;

/*
 * All windows of a thread, in the order of their time.  Open MPI 4.1 now and then hangs when threads of a rank make
 * communicators at the same time (all are in its ompi_comm_nextcid() then), and windows have one, natively too.
 */
static void make_windows(struct thread *th)
{
	for (int i = 0; i < th->nevents; i++) {
		const struct event *e = &th->event[i];

		th->base.at = e;
		if (e->w >= 0 && e->kind == W_MAKE)
			make_window(th, &th->win[e->w]);
	}
	th->base.at = NULL;
}

static void before(void)
{
	failures_before = t_failures();
	for (int i = 0; i < nthreads; i++)
		gen_program(&threads[i]);
	for (int i = 0; i < nthreads && nthreads > 1 && IS_OPEN_MPI; i++)
		make_windows(&threads[i]);
}

static uint64_t after(void)
{
	uint64_t events = 0;

	if (t_failures() != failures_before)
		fail(&threads[0], "a derived type differs from its typemap");
	for (int i = 0; i < nthreads; i++)
		events += (uint64_t)threads[i].nevents;
	return events;
}

static int option(char **argv, int words)
{
	if (!strcmp(*argv, "--native")) {
		native = true;
		return 1;
	}
	if (!strcmp(*argv, "--windows") && words > 1) {
		windows_mask = (unsigned int)strtoul(argv[1], NULL, 0);
		return 2;
	}
	return 0;
}

static void begin(void *all)
{
	threads = all;
	t_rank = rank;
	t_size = nranks;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	ntypes = acc_types(&types);
	for (int i = 0; i < nthreads; i++)
		make_comms(&threads[i]);
}

int main(int argc, char **argv)
{
	static const struct random_program program = {
		.name = "rma_random", .options = " [--native] [--windows MASK]",
		.thread_size = sizeof(struct thread), .option = option, .begin = begin, .before = before,
		.run = run_program, .after = after, .where = where,
	};

	return random_main(argc, argv, &program);
}

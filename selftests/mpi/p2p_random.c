// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * p2p_random: random legal two-sided programs.
 *
 *	p2p_random [--threads N] [--timeout S] [--show] [--rma] FIRST COUNT
 *
 * Each seed from FIRST on makes one program, the same on all ranks of MPI_COMM_WORLD: a list of
 * messages and a list of events with a time. A rank executes its own events in the order of time.
 * With --threads, N threads of each rank run a program each, on communicators of their own.
 * What is printed: see random.h.
 *
 * Why no program deadlocks: message i has a time T(i), unique but for exchanges. Blocking calls for
 * it stand at T(i) on both sides, non-blocking ones at or before T(i), waits after T(i). So a call
 * that blocks at time t needs from other ranks only calls at times <= t. A matched message may be
 * received later than it was matched: its send does not block, and is waited for after that.
 *
 * Which receive gets which message: the calls for messages of one sender to one receiver on one
 * communicator are in the order of the messages on both sides (in "loose" phases only those of
 * one tag), so the n-th send matches the n-th receive, also when the receive says MPI_ANY_TAG.
 * Where a receiver uses MPI_ANY_SOURCE on a communicator it does so for the whole phase (a "pool"),
 * and either all receives are posted before anybody sends, or all sends before the first receive.
 * Which sender a receive gets is then open, but that the messages of one sender come in
 * order is not, and that is checked. A phase with pools ends with a barrier.
 *
 * The digest is over what MPI defines: for each message received, by sender and number: the bytes,
 * source, tag and length.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "random.h"

/*
 * What the libraries get wrong by themselves and programs therefore do not contain.
 * Open MPI 4.1: persistent buffered sends of more than a few kilobytes send what is in the attached
 * buffer at some other time. MPICH 4.0: MPI_Isendrecv and MPI_Isendrecv_replace leave the status
 * unset and lose references of derived types; MPI_Irecv and MPI_Recv_init of MPI_PROC_NULL leave the
 * status unset or empty; buffered sends of MPI_SHORT_INT are truncated from 8 KiB on.
 */
#ifdef OPEN_MPI
#define GAP_BSEND_INIT	1
#define GAP_ISENDRECV	1
#define GAP_IRECV_NULL	0
#define GAP_PACK_PAIRS	0
#define GAP_FREE_SELF	0
#else
#define GAP_BSEND_INIT	0
#define GAP_ISENDRECV	1
#define GAP_IRECV_NULL	1
#define GAP_PACK_PAIRS	1
#define GAP_FREE_SELF	1
#endif

#define ARRAY_SIZE(a)	((int)(sizeof(a) / sizeof((a)[0])))
#define MAX_MSGS	160
#define MAX_EVENTS	2000
#define MAX_COMMS	8
#define MAX_STARTS	8
#define MAX_TAGS	4
#define GUARD		64
#define FILLER		0xa5
#define BSEND_ROOM	(512 << 10)	/* of each thread */
#define UNUSED_TAG	500
#define RMA_BYTES	4096

/* times within a phase */
#define PHASE		1e6
#define AT_CANCEL	5
#define AT_CANCELLED	20
#define AT_PRE		30
#define AT_POSTED	1000
#define AT_MSGS		2000
#define STEP		100
#define AT_LAST		900000
#define AT_END		950000

enum smode { STD, SYNC, READY, BUF };
enum rmode { RECV, PROBE, IPROBE, MPROBE, IMPROBE, MPROBE_I, RETRY };
enum done { WAIT, TEST, GET_STATUS, FREE, BATCH };
enum kind { SEND, RECEIVE, TAKE, S_DONE, R_DONE, BATCH_DONE, BARRIER, EXCHANGE, NULL_PROC, CANCEL_POST,
	    CANCEL, PRE_CANCEL, PAUSE, POOLS, RMA };
static const char *const kind_names[] = {
	"send", "receive", "receive matched", "complete send", "complete receive", "complete batch", "barrier",
	"exchange", "MPI_PROC_NULL", "post for cancel", "cancel", "cancel before", "pause", "pools",
	"one-sided request",
};
enum exchange { SENDRECV, REPLACE, IRECV_SEND, ISEND_RECV, ISENDRECV, IREPLACE };

/* significant bytes of a basic type, in its extent */
struct base {
	MPI_Datatype type;
	int extent, size, parts;
	struct { int off, len; } part[2];
};
struct dint { double a; int b; };
struct sint { short a; int b; };
struct ldint { long double a; int b; };
struct fint { float a; int b; };
static struct base bases[] = {
	{ .extent = 1, .size = 1, .parts = 1, .part = { { 0, 1 } } },
	{ .extent = 4, .size = 4, .parts = 1, .part = { { 0, 4 } } },
	{ .extent = 8, .size = 8, .parts = 1, .part = { { 0, 8 } } },
	{ .extent = sizeof(struct fint), .size = 8, .parts = 2, .part = { { 0, 4 }, { 4, 4 } } },
	{ .extent = sizeof(struct dint), .size = 12, .parts = 2, .part = { { 0, 8 }, { 8, 4 } } },
	{ .extent = sizeof(struct sint), .size = 6, .parts = 2, .part = { { 0, 2 }, { 4, 4 } } },
	/* the x87 format has 10 significant bytes; 16 travel */
	{ .extent = sizeof(struct ldint), .size = 20, .parts = 2,
	  .part = { { 0, 16 }, { 16, 4 } } },
};

/* an item is @units blocks of @run elements at disp[] blocks, @ext blocks long; run 0: no type */
struct layout {
	int run, units, ext;
	int disp[5];
	bool regular;	/* made by MPI_Type_vector */
};

struct msg {
	int comm, src, dst, tag, tagno, phase, pool;
	int base;
	long nel, cap;	/* elements sent, and that fit into the receive buffer */
	struct layout sl, rl;
	bool later, take_i;	/* matched, and received by an event of its own, with MPI_Imrecv */
	bool s_block, r_block, s_pers, r_pers, any_tag, large, exchanged, ignore;
	enum smode smode;
	enum rmode rmode;
	enum done sdone, rdone;
	int sbatch, rbatch;
	int sroot, rroot;	/* whose request and buffer; itself, unless a restarted one */
	double st, rt, t;
	uint64_t seed;
	/* of the rank that runs */
	unsigned char *sbuf, *rbuf;
	MPI_Datatype stype, rtype;
	MPI_Request sreq, rreq;
	MPI_Message match;
	bool s_made, r_made;	/* persistent requests exist */
	bool claimed;		/* pool: some receive got it */
	int from;		/* pool: whose message came */
	MPI_Status status;
};

struct event {
	double t;
	int seq, rank, phase;
	enum kind kind;
	int m, m2;		/* messages, or the arguments of the event */
	int how;
};

struct pool {
	int comm, dst, base;
	bool late, any_tag, used;
	long cap;
};

struct comm {
	MPI_Comm h;
	int color[MAX_RANKS], crank[MAX_RANKS];
	bool inter;
};

struct rng {
	uint64_t s;
};

struct thread {
	struct random_thread base;
	uint64_t seed;
	struct comm comm[MAX_COMMS];
	int ncomms;
	MPI_Comm sync;
	struct msg msg[MAX_MSGS];
	int nmsgs;
	struct event event[MAX_EVENTS];
	int nevents;
	struct pool pools[64];
	int npools, nphases;
	int posted[MAX_MSGS];	/* receives of pools in the order of posting */
	int nposted;
	struct msg *starting[MAX_STARTS];	/* whose persistent requests the next call starts */
	bool starting_recv[MAX_STARTS];
	int nstarting;
	MPI_Request cancelling, rma_req[8];
	MPI_Datatype base_type;
	unsigned char none[8], *rma_buf[8];
	int nrma, rma_target[8];
	bool rma_put[8];
	int rma_batch[8];
	uint64_t digest;
};

static bool with_rma;
static struct thread *threads;
static MPI_Win rma_win = MPI_WIN_NULL;
static unsigned char *rma_mem;
static const int tags[MAX_TAGS] = { 0, 7, 240, 32767 };

static uint64_t rnd(struct rng *r)
{
	uint64_t z = r->s += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static int below(struct rng *r, int n)
{
	return (int)(rnd(r) % (uint64_t)n);
}

static bool chance(struct rng *r, int percent)
{
	return below(r, 100) < percent;
}

/* ---- making programs ---- */

static bool may_send(const struct comm *c, int a, int b)
{
	if (c->color[a] < 0 || c->color[b] < 0)
		return false;
	return (c->color[a] == c->color[b]) != c->inter;
}

static long pick_bytes(struct rng *r)
{
	static const long few[] = { 0, 1, 8, 16, 239, 240, 240, 241, 256, 479, 480, 1023, 1024,
				    1025, 2048 };
	static const long mid[] = { 4095, 4096, 4097, 8191, 8192, 8193, 16383, 16384, 16385 };
	static const long big[] = { 65535, 65536, 65537, 131072, 262144 };
	int p = below(r, 1000);

	if (p < 8)
		return 1 << 20;
	if (p < 90)
		return big[below(r, ARRAY_SIZE(big))];
	if (p < 330)
		return mid[below(r, ARRAY_SIZE(mid))];
	return few[below(r, ARRAY_SIZE(few))];
}

/* a layout for @nel elements; with @exact they must fill whole items */
static void pick_layout(struct rng *r, struct layout *l, long nel, bool exact)
{
	static const int runs[] = { 1, 2, 3, 4, 8, 16, 64 };

	memset(l, 0, sizeof(*l));
	if (chance(r, 45))
		return;
	for (int try = 0; try < 6; try++) {
		int run = runs[below(r, ARRAY_SIZE(runs))], units = 1 + below(r, 5);

		if ((exact && nel % (run * units)) || nel / run > 20000)
			continue;
		l->run = run;
		l->units = units;
		l->regular = chance(r, 40);
		l->ext = units * 2 + below(r, 2);
		for (int i = 0; i < units; i++)
			l->disp[i] = i * 2;
		for (int i = units - 1; !l->regular && i > 0; i--) {
			int j = below(r, i + 1), x = l->disp[i];

			l->disp[i] = l->disp[j];
			l->disp[j] = x;
		}
		return;
	}
}

/* the capacity of a receive buffer for messages of up to @nel elements */
static long pick_cap(struct rng *r, const struct layout *l, long nel)
{
	long unit = l->run ? (long)l->run * l->units : 1;
	long cap = chance(r, 40) ? nel + 1 + below(r, 300) : nel;

	return (cap + unit - 1) / unit * unit;
}

static void add_event(struct thread *th, double t, int who, int phase, enum kind kind, int m,
		      int m2, int how)
{
	struct event *e = &th->event[th->nevents];

	if (th->nevents == MAX_EVENTS)
		abort();
	*e = (struct event){ t, th->nevents++, who, phase, kind, m, m2, how };
}

struct gen {
	struct rng r;
	struct thread *th;
	int phase;
	double base;
	bool loose, pre_barrier;
	struct pool *pool[MAX_COMMS][MAX_RANKS];
	double last_s[MAX_COMMS][MAX_RANKS][MAX_RANKS][MAX_TAGS];
	double last_r[MAX_COMMS][MAX_RANKS][MAX_RANKS][MAX_TAGS];
	long bsend_used[MAX_RANKS];
	int batches[MAX_RANKS];
};

/* when a non-blocking call for a message of time @t is made */
static double early(struct gen *g, double t)
{
	int p = below(&g->r, 100);

	if (p < 20)
		return g->base + AT_PRE + below(&g->r, AT_POSTED - AT_PRE - 1);
	if (p < 60)
		return g->base + AT_POSTED + 100 +
			below(&g->r, (int)(t - g->base) - AT_POSTED - 100);
	return t;
}

/* keep the order of the channel; in strict phases of all tags, and at the receiver of all senders */
static double ordered(struct gen *g, double (*last)[MAX_RANKS][MAX_RANKS][MAX_TAGS],
		      const struct msg *m, bool all_senders, double t)
{
	for (int s = 0; s < nranks; s++) {
		if (s != m->src && !(all_senders && !g->loose))
			continue;
		for (int k = 0; k < MAX_TAGS; k++)
			if ((!g->loose || k == m->tagno) && last[m->comm][s][m->dst][k] > t)
				t = last[m->comm][s][m->dst][k];
	}
	last[m->comm][m->src][m->dst][m->tagno] = t;
	return t;
}

/* when a message that is matched at @t is received: with others of its rank in any order */
static double late(struct gen *g, double t)
{
	int p = below(&g->r, 100);

	if (p < 50)
		return t + 20 + STEP * below(&g->r, 4);
	if (p < 85)
		return t + 20 + STEP * below(&g->r, 12);
	return g->base + AT_LAST - 300 + below(&g->r, 100);
}

/* there is a request for the receive of @m, to be completed later */
static bool r_request(const struct msg *m)
{
	return !m->r_block || m->take_i;
}

static bool padded(const struct msg *m)
{
	return bases[m->base].size != bases[m->base].extent;
}

static enum smode pick_smode(struct gen *g, struct msg *m)
{
	bool ready = g->pre_barrier && m->rt < g->base + AT_POSTED && m->st > g->base + AT_POSTED;
	long room = 2 * (m->nel * bases[m->base].size + 512);
	int p = below(&g->r, 100);

	if (p < 25)
		return SYNC;
	if (p < 45 && ready && !m->r_block)
		return READY;
	if (p < 60 && !(m->s_pers && GAP_BSEND_INIT) &&
	    !(padded(m) && GAP_PACK_PAIRS) && m->nel * bases[m->base].size <= 65536 &&
	    g->bsend_used[m->src] + room <= BSEND_ROOM) {
		g->bsend_used[m->src] += room;
		return BUF;
	}
	return STD;
}

static enum done pick_done(struct gen *g, int who, int *batch)
{
	int p = below(&g->r, 100);

	*batch = -1;
	if (p < 20)
		return WAIT;
	if (p < 32)
		return TEST;
	if (p < 42)
		return GET_STATUS;
	*batch = below(&g->r, g->batches[who]);
	return BATCH;
}

static bool pick_ends(struct gen *g, struct msg *m)
{
	struct thread *th = g->th;

	for (int try = 0; try < 50; try++) {
		m->comm = below(&g->r, th->ncomms);
		m->src = below(&g->r, nranks);
		m->dst = below(&g->r, nranks);
		if (may_send(&th->comm[m->comm], m->src, m->dst))
			return true;
	}
	return false;
}

static void pick_payload(struct gen *g, struct msg *m)
{
	m->base = chance(&g->r, 45) ? 0 : below(&g->r, ARRAY_SIZE(bases));
	m->nel = pick_bytes(&g->r) / bases[m->base].size;
	pick_layout(&g->r, &m->sl, m->nel, true);
	pick_layout(&g->r, &m->rl, m->nel, false);
	m->cap = pick_cap(&g->r, &m->rl, m->nel);
}

/* an earlier message whose persistent requests this one may start again, or -1 */
static int pick_root(struct gen *g)
{
	struct thread *th = g->th;

	for (int try = 0; try < 4 && th->nmsgs; try++) {
		int j = below(&g->r, th->nmsgs);
		const struct msg *o = &th->msg[j];
		bool busy = false;

		if (o->phase == g->phase || o->pool >= 0 || o->exchanged || o->smode == READY || o->sdone == FREE ||
		    !(o->s_pers || o->r_pers) || o->sroot != j || o->rroot != j ||
		    g->pool[o->comm][o->dst] || (g->loose && o->any_tag))
			continue;
		for (int i = 0; i < th->nmsgs; i++)
			busy |= th->msg[i].phase == g->phase &&
				(th->msg[i].sroot == j || th->msg[i].rroot == j);
		if (!busy)
			return j;
	}
	return -1;
}

static void gen_message(struct gen *g, double t)
{
	struct thread *th = g->th;
	int no = th->nmsgs, root = -1;
	struct msg *m = &th->msg[no];
	struct pool *pool = NULL;
	double taken = t;

	memset(m, 0, sizeof(*m));
	m->phase = g->phase;
	m->t = t;
	m->sroot = m->rroot = no;
	m->pool = -1;
	m->seed = rnd(&g->r);
	m->large = HAVE_LARGE && chance(&g->r, 30);
	m->ignore = chance(&g->r, 25);
	if (chance(&g->r, 25))
		root = pick_root(g);
	if (root >= 0) {
		const struct msg *o = &th->msg[root];

		m->comm = o->comm;
		m->src = o->src;
		m->dst = o->dst;
		m->tagno = o->tagno;
		m->base = o->base;
		m->nel = o->nel;
		m->cap = o->cap;
		m->sl = o->sl;
		m->rl = o->rl;
		m->any_tag = o->any_tag;
	} else {
		if (!pick_ends(g, m))
			return;
		m->tagno = below(&g->r, MAX_TAGS);
		pick_payload(g, m);
		pool = g->pool[m->comm][m->dst];
		m->any_tag = !g->loose && chance(&g->r, 30);
	}
	m->tag = tags[m->tagno];
	if (pool) {
		pool->used = true;
		m->pool = (int)(pool - th->pools);
		m->base = pool->base;
		m->any_tag = pool->any_tag;
		m->nel = pick_bytes(&g->r) / bases[m->base].size;
		if (m->nel > pool->cap)
			m->nel = pool->cap - below(&g->r, 2);
		pick_layout(&g->r, &m->sl, m->nel, true);
		pick_layout(&g->r, &m->rl, pool->cap, false);
		m->cap = pick_cap(&g->r, &m->rl, pool->cap);
		m->ignore = false;
	}
	m->s_block = chance(&g->r, 45);
	m->r_block = chance(&g->r, 45);
	if (pool)
		m->r_block = pool->late;
	if (pool && pool->late)
		m->s_block = false;
	if (root >= 0 && th->msg[root].s_pers) {
		m->s_block = false;
		m->sroot = root;
	}
	if (root >= 0 && th->msg[root].r_pers) {
		m->r_block = false;
		m->rroot = root;
	}
	if (m->src == m->dst && m->s_block && m->r_block)
		m->s_block = false;
	m->rmode = !m->r_block ? RECV : (enum rmode)below(&g->r, pool ? RETRY : RETRY + 1);
	m->later = (m->rmode == MPROBE || m->rmode == IMPROBE) && chance(&g->r, 75);
	if (m->later) {
		m->s_block = false;
		m->take_i = chance(&g->r, 50);
		taken = late(g, t);
	}
	m->s_pers = !m->s_block && (m->sroot != no || chance(&g->r, 30));
	m->r_pers = !m->r_block && (m->rroot != no || chance(&g->r, 30));

	m->st = m->s_block ? t : early(g, t);
	m->rt = m->r_block ? t : early(g, t);
	if (pool && pool->late)
		m->st = g->base + AT_PRE;
	else if (pool)
		m->rt = g->base + AT_PRE;
	m->st = ordered(g, g->last_s, m, false, m->st);
	m->rt = ordered(g, g->last_r, m, true, m->rt);
	/* the mode of a persistent send is that of its request */
	if (m->sroot == no)
		m->smode = pick_smode(g, m);
	else
		m->smode = th->msg[root].smode;
	if (m->sroot != no && m->smode == BUF) {
		long room = 2 * (m->nel * bases[m->base].size + 512);

		if (g->bsend_used[m->src] + room > BSEND_ROOM)
			return;
		g->bsend_used[m->src] += room;
	}
	th->nmsgs++;

	/* a rank that sends to itself makes the call that does not block first */
	if (!m->r_block)
		add_event(th, m->rt, m->dst, g->phase, RECEIVE, no, 0, 0);
	add_event(th, m->st, m->src, g->phase, SEND, no, 0, 0);
	if (m->r_block)
		add_event(th, m->rt, m->dst, g->phase, RECEIVE, no, 0, 0);
	if (m->later)
		add_event(th, taken, m->dst, g->phase, TAKE, no, 0, 0);
	if (!m->s_block) {
		double w = pool ? g->base + AT_LAST - 1 : taken + 50 + STEP * below(&g->r, 4);

		if (w >= g->base + AT_LAST)
			w = g->base + AT_LAST - 1;
		m->sdone = pick_done(g, m->src, &m->sbatch);
		if (m->sroot == no && chance(&g->r, 10) && !(m->src == m->dst && GAP_FREE_SELF)) {
			m->sdone = FREE;
			m->sbatch = -1;
		}
		if (m->sdone < FREE)
			add_event(th, w, m->src, g->phase, S_DONE, no, 0, 0);
	}
	if (r_request(m)) {
		double w = pool ? g->base + AT_LAST - 1 : taken + 50 + STEP * below(&g->r, 4);

		if (w >= g->base + AT_LAST)
			w = g->base + AT_LAST - 1;
		m->rdone = pick_done(g, m->dst, &m->rbatch);
		if (m->rdone < FREE)
			add_event(th, w, m->dst, g->phase, R_DONE, no, 0, 0);
	}
}

/* a ring of ranks, each sends to the next one, all at the same time */
static void gen_exchange(struct gen *g, double t)
{
	struct thread *th = g->th;
	int member[MAX_RANKS], n = 0, c = below(&g->r, th->ncomms), first = th->nmsgs;
	struct comm *cm = &th->comm[c];
	bool alike = chance(&g->r, 50), pooled = false;
	struct msg one = { 0 };

	int start = below(&g->r, nranks);

	for (int i = 0; i < nranks; i++) {
		int r = (start + i) % nranks;

		if (!n ? cm->color[r] >= 0 : cm->inter ? n < 2 && may_send(cm, member[0], r) :
					     may_send(cm, member[0], r) && chance(&g->r, 75))
			member[n++] = r;
	}
	if (!n || (cm->inter && n < 2))
		return;
	for (int i = 0; i < n; i++)
		pooled |= g->pool[c][member[i]] != NULL;
	if (pooled)
		return;
	pick_payload(g, &one);
	one.rl = one.sl;
	one.cap = one.nel;
	for (int i = 0; i < n; i++) {
		struct msg *m = &th->msg[th->nmsgs];

		memset(m, 0, sizeof(*m));
		pick_payload(g, m);
		if (alike)
			*m = one;
		m->phase = g->phase;
		m->comm = c;
		m->src = member[i];
		m->dst = member[(i + 1) % n];
		m->tagno = below(&g->r, MAX_TAGS);
		m->tag = tags[m->tagno];
		m->any_tag = !g->loose && chance(&g->r, 30);
		m->pool = -1;
		m->sroot = m->rroot = th->nmsgs;
		m->seed = rnd(&g->r);
		m->large = HAVE_LARGE && chance(&g->r, 30);
		m->ignore = chance(&g->r, 25);
		m->exchanged = true;
		m->sbatch = m->rbatch = -1;
		m->t = t;
		m->st = ordered(g, g->last_s, m, false, t);
		m->rt = ordered(g, g->last_r, m, true, t);
		th->nmsgs++;
	}
	for (int i = 0; i < n; i++) {
		enum exchange how = (enum exchange)below(&g->r, HAVE_LARGE && !GAP_ISENDRECV ? 6 : 4);

		if ((how == REPLACE || how == IREPLACE) &&
		    (!alike || (padded(&one) && GAP_PACK_PAIRS)))
			how = SENDRECV;
		add_event(th, t, member[i], g->phase, EXCHANGE, first + i,
			  first + (i + n - 1) % n, how);
	}
}

static void gen_pools(struct gen *g)
{
	struct thread *th = g->th;
	int n = chance(&g->r, 45) ? 1 + below(&g->r, 4) : 0;

	for (int i = 0; i < n; i++) {
		struct pool *p = &th->pools[th->npools];

		p->comm = below(&g->r, th->ncomms);
		p->dst = below(&g->r, nranks);
		if (th->comm[p->comm].color[p->dst] < 0 || g->pool[p->comm][p->dst])
			continue;
		p->base = below(&g->r, 3);
		p->late = chance(&g->r, 50);
		p->any_tag = chance(&g->r, 50);
		p->cap = (chance(&g->r, 30) ? 70000 : 2048) / bases[p->base].size;
		p->used = false;
		g->pool[p->comm][p->dst] = p;
		th->npools++;
	}
}

static bool gen_phase(struct gen *g, bool after_barrier)
{
	struct thread *th = g->th;
	int n = 4 + below(&g->r, 12), first_pool = th->npools;
	bool used = false, barrier;
	double t;

	g->base = g->phase * PHASE;
	g->loose = chance(&g->r, 30);
	g->pre_barrier = chance(&g->r, 50);
	memset(g->pool, 0, sizeof(g->pool));
	/* pools need their order within one sender */
	if (!g->loose)
		gen_pools(g);
	for (int r = 0; r < nranks; r++)
		g->batches[r] = 1 + below(&g->r, 3);
	if (after_barrier && chance(&g->r, 30)) {
		for (int r = 0; r < nranks; r++) {
			int c = below(&g->r, th->ncomms);

			if (chance(&g->r, 60) && th->comm[c].color[r] >= 0)
				add_event(th, g->base + AT_CANCEL, r, g->phase, PRE_CANCEL, c,
					  below(&g->r, MAX_TAGS), below(&g->r, 2));
		}
		for (int r = 0; r < nranks; r++)
			add_event(th, g->base + AT_CANCELLED, r, g->phase, BARRIER, 0, 0, 0);
	}
	if (g->pre_barrier)
		for (int r = 0; r < nranks; r++)
			add_event(th, g->base + AT_POSTED, r, g->phase, BARRIER, 0, 0, 0);
	for (int i = 0; i < n && th->nmsgs < MAX_MSGS - MAX_RANKS; i++) {
		int p = below(&g->r, 100), who = below(&g->r, nranks);

		t = g->base + AT_MSGS + i * STEP;
		if (p < 12) {
			gen_exchange(g, t);
			continue;
		}
		gen_message(g, t);
		if (p < 16) {
			for (int r = 0; r < nranks; r++)
				add_event(th, t + 10, r, g->phase, BARRIER, 0, 0, 0);
		} else if (p < 24) {
			add_event(th, t + 10, who, g->phase, NULL_PROC, below(&g->r, th->ncomms),
				  below(&g->r, 2), below(&g->r, 12));
		} else if (p < 29) {
			add_event(th, t + 10, who, g->phase, PAUSE, 0, 0, below(&g->r, 400));
		} else if (p < 36 && with_rma && th->base.no == 0) {
			add_event(th, t - 20, who, g->phase, RMA, below(&g->r, nranks),
				  chance(&g->r, 50), below(&g->r, g->batches[who]));
		}
	}
	for (int r = 0; r < nranks; r++) {
		int c = below(&g->r, th->ncomms);

		if (chance(&g->r, 20) && th->comm[c].color[r] >= 0) {
			add_event(th, g->base + AT_PRE + below(&g->r, AT_MSGS - AT_PRE), r, g->phase,
				  CANCEL_POST, c, 0, 0);
			add_event(th, g->base + AT_MSGS + 2 + below(&g->r, n * STEP), r, g->phase,
				  CANCEL, c, 0, below(&g->r, 2));
		}
		for (int k = 0; k < g->batches[r]; k++)
			add_event(th, g->base + AT_LAST + k, r, g->phase, BATCH_DONE, k, 0,
				  below(&g->r, 6) + 10 * (int)(rnd(&g->r) % 100000));
		add_event(th, g->base + AT_LAST + 100, r, g->phase, POOLS, 0, 0, 0);
	}
	for (int i = first_pool; i < th->npools; i++)
		used |= th->pools[i].used;
	barrier = used || chance(&g->r, 50);
	if (barrier)
		for (int r = 0; r < nranks; r++)
			add_event(th, g->base + AT_END, r, g->phase, BARRIER, 0, 0, 0);
	return barrier;
}

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->t != y->t)
		return x->t < y->t ? -1 : 1;
	return x->seq - y->seq;
}

static void make_program(struct thread *th, uint64_t seed)
{
	static __thread struct gen gen;
	struct gen *g = &gen;
	bool barrier = true;

	memset(g, 0, sizeof(*g));
	g->r.s = th->seed = mix(seed, (uint64_t)th->base.no);
	g->th = th;
	th->nmsgs = th->nevents = th->npools = th->nposted = th->nrma = 0;
	th->digest = 0;
	th->nphases = 1 + below(&g->r, 5);
	for (g->phase = 0; g->phase < th->nphases; g->phase++)
		barrier = gen_phase(g, barrier);
	qsort(th->event, (size_t)th->nevents, sizeof(th->event[0]), by_time);
}

/* ---- data ---- */

static size_t layout_bytes(const struct msg *m, const struct layout *l, long nel)
{
	long blocks = nel;

	if (l->run)
		blocks = (nel + (long)l->run * l->units - 1) / ((long)l->run * l->units) *
			l->ext * l->run;
	return (size_t)blocks * (size_t)bases[m->base].extent;
}

static long element_at(const struct layout *l, long i)
{
	long item = (long)l->run * l->units;

	if (!l->run)
		return i;
	return (i / item * l->ext + l->disp[i % item / l->run]) * l->run + i % l->run;
}

static MPI_Datatype make_type(struct thread *th, const struct msg *m, const struct layout *l)
{
	MPI_Datatype t, u, run;
	MPI_Aint ext = (MPI_Aint)l->ext * l->run * bases[m->base].extent;
	int disp[5];

	if (!l->run)
		return bases[m->base].type;
	if (l->regular) {
		CK(MPI_Type_vector(l->units, l->run, 2 * l->run, bases[m->base].type, &t));
	} else if (m->seed & 1) {
		for (int i = 0; i < l->units; i++)
			disp[i] = l->disp[i] * l->run;
		CK(MPI_Type_create_indexed_block(l->units, l->run, disp, bases[m->base].type, &t));
	} else {
		MPI_Aint at[5];
		MPI_Datatype types[5];
		int len[5];

		CK(MPI_Type_contiguous(l->run, bases[m->base].type, &run));
		for (int i = 0; i < l->units; i++) {
			at[i] = (MPI_Aint)l->disp[i] * l->run * bases[m->base].extent;
			types[i] = run;
			len[i] = 1;
		}
		CK(MPI_Type_create_struct(l->units, len, at, types, &t));
		CK(MPI_Type_free(&run));
	}
	CK(MPI_Type_create_resized(t, 0, ext, &u));
	CK(MPI_Type_commit(&u));
	CK(MPI_Type_free(&t));
	return u;
}

static void drop_type(struct thread *th, const struct layout *l, MPI_Datatype *t)
{
	if (l->run)
		CK(MPI_Type_free(t));
}

/* the elements of @m into the image @to, which is laid out as @l */
static void put_elements(const struct msg *m, const struct layout *l, unsigned char *to)
{
	const struct base *b = &bases[m->base];
	struct rng r = { m->seed };
	uint64_t word = 0;
	int left = 0;

	if (!l->run && b->parts == 1) {
		size_t n = (size_t)m->nel * (size_t)b->size, i;

		for (i = 0; i + 8 <= n; i += 8) {
			word = rnd(&r);
			memcpy(to + i, &word, 8);
		}
		word = rnd(&r);
		memcpy(to + i, &word, n - i);
		return;
	}
	for (long e = 0; e < m->nel; e++) {
		unsigned char *at = to + element_at(l, e) * b->extent;

		for (int p = 0; p < b->parts; p++) {
			for (int k = 0; k < b->part[p].len; k++) {
				if (!left) {
					word = rnd(&r);
					left = 8;
				}
				at[b->part[p].off + k] = (unsigned char)word;
				word >>= 8;
				left--;
			}
		}
	}
}

/* padding inside of received pairs is nobody's business */
static void take_padding(const struct msg *m, const struct layout *l, unsigned char *to,
			 const unsigned char *from)
{
	const struct base *b = &bases[m->base];

	if (b->size == b->extent)
		return;
	for (long e = 0; e < m->nel; e++) {
		long at = element_at(l, e) * b->extent;
		int end = 0;

		for (int p = 0; p < b->parts; p++) {
			memcpy(to + at + end, from + at + end, (size_t)(b->part[p].off - end));
			end = b->part[p].off + b->part[p].len;
		}
		memcpy(to + at + end, from + at + end, (size_t)(b->extent - end));
	}
}

static uint64_t hash_bytes(uint64_t h, const unsigned char *p, size_t n)
{
	for (; n >= 8; p += 8, n -= 8) {
		uint64_t w;

		memcpy(&w, p, 8);
		h = (h ^ w) * 0x9fb21c651e98df25ull;
		h ^= h >> 29;
	}
	while (n--)
		h = (h ^ *p++) * 0x100000001b3ull;
	return h;
}

/* digest of the elements received, in the order of the message, however they are laid out */
static uint64_t hash_elements(const struct msg *m, const struct layout *l,
			      const unsigned char *from)
{
	const struct base *b = &bases[m->base];
	size_t n = (size_t)m->nel * (size_t)b->size;
	unsigned char *all = malloc(n + 1), *to = all;
	uint64_t h;

	if (!all)
		abort();
	for (long e = 0; e < m->nel; e++) {
		const unsigned char *at = from + element_at(l, e) * b->extent;

		for (int p = 0; p < b->parts; p++) {
			memcpy(to, at + b->part[p].off, (size_t)b->part[p].len);
			to += b->part[p].len;
		}
	}
	h = hash_bytes(0xcbf29ce484222325ull, all, n);
	free(all);
	return h;
}

static void compare(struct thread *th, const char *what, const struct msg *m,
		    const unsigned char *got, const unsigned char *want, size_t n)
{
	size_t i = 0, bad = 0, first = 0;

	if (!memcmp(got, want, n))
		return;
	for (; i < n; i++)
		if (got[i] != want[i] && !bad++)
			first = i;
	fail(th, "message %d from %d to %d tag %d, %ld elements of type %d: %s: %zu of %zu bytes "
	     "wrong, first at %zu: 0x%02x, expected 0x%02x", (int)(m - th->msg), m->src, m->dst,
	     m->tag, m->nel, m->base, what, bad, n, first, got[first], want[first]);
}

/* @m came into the buffer of the receive @r, which is of another message only in pools */
static void check_data(struct thread *th, const struct msg *m, const struct msg *r)
{
	const struct msg *root = &th->msg[r->rroot];
	size_t n = layout_bytes(r, &r->rl, r->cap) + GUARD;
	unsigned char *want = malloc(n);

	if (!want)
		abort();
	memset(want, FILLER, n);
	put_elements(m, &r->rl, want);
	take_padding(m, &r->rl, want, root->rbuf);
	compare(th, "receive buffer", m, root->rbuf, want, n);
	th->digest += mix(hash_elements(m, &r->rl, root->rbuf),
			  (uint64_t)(m - th->msg) << 32 ^ (uint64_t)m->tag);
	free(want);
}

static void check_status(struct thread *th, const struct msg *m, const struct msg *r,
			 MPI_Status *st)
{
	const struct base *b = &bases[m->base];
	int unit = r->rl.run ? r->rl.run * r->rl.units : 1, n, flag;
	MPI_Datatype type = th->msg[r->rroot].rtype;
	MPI_Count x = 0;

	if (st->MPI_SOURCE != th->comm[m->comm].crank[m->src] || st->MPI_TAG != m->tag)
		fail(th, "message %d: status has source %d tag %d, expected %d and %d",
		     (int)(m - th->msg), st->MPI_SOURCE, st->MPI_TAG,
		     th->comm[m->comm].crank[m->src], m->tag);
	CK(MPI_Get_count(st, type, &n));
	if (n != (m->nel % unit ? MPI_UNDEFINED : m->nel / unit))
		fail(th, "message %d of %ld elements, %d in a type: count %d",
		     (int)(m - th->msg), m->nel, unit, n);
	/* of pairs, MPICH 4.0 crashes here, and Open MPI 4.1 counts one or two, as it comes */
	if (b->parts == 1) {
		CK(MPI_Get_elements(st, type, &n));
		CK(MPI_Get_elements_x(st, type, &x));
		if (n != m->nel || x != n)
			fail(th, "message %d of %ld elements of type %d: MPI_Get_elements gives "
			     "%d, _x %lld", (int)(m - th->msg), m->nel, m->base, n, (long long)x);
	}
	CK(MPI_Test_cancelled(st, &flag));
	if (flag)
		fail(th, "message %d: status says cancelled", (int)(m - th->msg));
	/* the count is in the type of the receive, which in pools is one of several */
	th->digest += mix((uint64_t)(st->MPI_SOURCE + 1) << 32 ^ (uint64_t)st->MPI_TAG,
			  (uint64_t)(b->parts == 1 ? x : n) * MAX_MSGS + (uint64_t)(m - th->msg));
}

/* a receive is complete; @st may be NULL */
static void received(struct thread *th, struct msg *r, MPI_Status *st)
{
	if (r->pool >= 0) {
		r->status = *st;
		return;
	}
	if (st && st != MPI_STATUS_IGNORE)
		check_status(th, r, r, st);
	check_data(th, r, r);
}

static void sent(struct thread *th, struct msg *m)
{
	size_t n = layout_bytes(m, &m->sl, m->nel) + GUARD;
	unsigned char *want = malloc(n);

	if (!want)
		abort();
	memset(want, FILLER, n);
	put_elements(m, &m->sl, want);
	compare(th, "send buffer", m, th->msg[m->sroot].sbuf, want, n);
	free(want);
}

/* ---- execution ---- */

static void ready_sbuf(struct thread *th, struct msg *m)
{
	struct msg *root = &th->msg[m->sroot];
	size_t n = layout_bytes(m, &m->sl, m->nel) + GUARD;

	if (!root->sbuf) {
		root->sbuf = malloc(n);
		if (!root->sbuf)
			abort();
		root->stype = make_type(th, m, &m->sl);
	}
	memset(root->sbuf, FILLER, n);
	put_elements(m, &m->sl, root->sbuf);
}

static void ready_rbuf(struct thread *th, struct msg *m)
{
	struct msg *root = &th->msg[m->rroot];
	size_t n = layout_bytes(m, &m->rl, m->cap) + GUARD;

	if (!root->rbuf) {
		root->rbuf = malloc(n);
		if (!root->rbuf)
			abort();
		root->rtype = make_type(th, m, &m->rl);
	}
	memset(root->rbuf, FILLER, n);
}

static long items(const struct layout *l, long nel)
{
	return l->run ? nel / ((long)l->run * l->units) : nel;
}

/* The start of a persistent request can be left for one call with others. */
static void start(struct thread *th, struct msg *m, bool recv)
{
	th->starting[th->nstarting] = m;
	th->starting_recv[th->nstarting++] = recv;
}

static bool is_start(const struct event *e, const struct msg *m)
{
	return (e->kind == SEND && m->s_pers) || (e->kind == RECEIVE && m->r_pers);
}

/* MPI_Startall may start requests in any order: none of two with an order between them. */
static bool joins(const struct thread *th, const struct event *e, const struct msg *m)
{
	if (!is_start(e, m) || th->nstarting == MAX_STARTS)
		return false;
	for (int i = 0; i < th->nstarting; i++)
		if (th->starting_recv[i] == (e->kind == RECEIVE) && th->starting[i]->comm == m->comm)
			return false;
	return true;
}

static void start_all(struct thread *th)
{
	MPI_Request q[MAX_STARTS + 1], null = MPI_REQUEST_NULL;
	int n = th->nstarting;

	th->nstarting = 0;
	for (int i = 0; i < n; i++) {
		struct msg *m = th->starting[i];

		q[i] = th->starting_recv[i] ? th->msg[m->rroot].rreq : th->msg[m->sroot].sreq;
	}
	if (n == 1 && th->starting[0]->seed & 2) {
		CK(MPI_Start(q));
	} else if (n && th->starting[0]->seed & 4) {
		CK(MPI_Send_init(th->none, 1, MPI_BYTE, MPI_PROC_NULL, 1, th->sync, &null));
		q[n] = q[0];
		q[0] = null;
		CK(MPI_Startall(n + 1, q));
		CK(MPI_Wait(&null, MPI_STATUS_IGNORE));
		CK(MPI_Request_free(&null));
	} else if (n) {
		CK(MPI_Startall(n, q));
	}
	for (int i = 0; i < n; i++) {
		struct msg *m = th->starting[i];

		if (th->starting_recv[i] || m->sdone != FREE)
			continue;
		CK(MPI_Request_free(&m->sreq));
		m->s_made = false;
	}
}

static void do_send(struct thread *th, struct msg *m)
{
	struct msg *o = &th->msg[m->sroot];
	MPI_Comm c = th->comm[m->comm].h;
	int to = th->comm[m->comm].crank[m->dst], n = (int)items(&m->sl, m->nel);

	ready_sbuf(th, m);
	if (m->s_block) {
		switch (m->smode) {
		case STD: L(m, Send, o->sbuf, n, o->stype, to, m->tag, c); break;
		case SYNC: L(m, Ssend, o->sbuf, n, o->stype, to, m->tag, c); break;
		case READY: L(m, Rsend, o->sbuf, n, o->stype, to, m->tag, c); break;
		case BUF: L(m, Bsend, o->sbuf, n, o->stype, to, m->tag, c); break;
		}
		sent(th, m);
		return;
	}
	if (m->s_pers) {
		MPI_Request *q = &o->sreq;

		if (!o->s_made) {
			switch (m->smode) {
			case STD: L(m, Send_init, o->sbuf, n, o->stype, to, m->tag, c, q); break;
			case SYNC: L(m, Ssend_init, o->sbuf, n, o->stype, to, m->tag, c, q); break;
			case READY: L(m, Rsend_init, o->sbuf, n, o->stype, to, m->tag, c, q); break;
			case BUF: L(m, Bsend_init, o->sbuf, n, o->stype, to, m->tag, c, q); break;
			}
			o->s_made = true;
		}
		start(th, m, false);
		return;
	}
	switch (m->smode) {
	case STD: L(m, Isend, o->sbuf, n, o->stype, to, m->tag, c, &o->sreq); break;
	case SYNC: L(m, Issend, o->sbuf, n, o->stype, to, m->tag, c, &o->sreq); break;
	case READY: L(m, Irsend, o->sbuf, n, o->stype, to, m->tag, c, &o->sreq); break;
	case BUF: L(m, Ibsend, o->sbuf, n, o->stype, to, m->tag, c, &o->sreq); break;
	}
	if (m->sdone == FREE)
		CK(MPI_Request_free(&o->sreq));
}

/* what a probe says of the message that comes */
static void check_probe(struct thread *th, const struct msg *m, MPI_Status *st)
{
	int n;

	if (m->pool >= 0)
		return;
	CK(MPI_Get_count(st, bases[m->base].type, &n));
	if (n != m->nel || st->MPI_SOURCE != th->comm[m->comm].crank[m->src] ||
	    st->MPI_TAG != m->tag)
		fail(th, "message %d: probe gives source %d tag %d count %d, expected %d, %d, %ld",
		     (int)(m - th->msg), st->MPI_SOURCE, st->MPI_TAG, n,
		     th->comm[m->comm].crank[m->src], m->tag, m->nel);
}

/* receive what was matched, with a request or not */
static void take(struct thread *th, struct msg *m, bool request, MPI_Status *st)
{
	int n = (int)items(&m->rl, m->cap);

	if (request)
		L(m, Imrecv, m->rbuf, n, m->rtype, &m->match, &m->rreq);
	else
		L(m, Mrecv, m->rbuf, n, m->rtype, &m->match, st);
	if (m->match != MPI_MESSAGE_NULL)
		fail(th, "the message handle is not MPI_MESSAGE_NULL after the receive");
}

static void do_take(struct thread *th, struct msg *m)
{
	MPI_Status st, *stp = m->ignore ? MPI_STATUS_IGNORE : &st;

	take(th, m, m->take_i, stp);
	if (!m->take_i)
		received(th, m, stp);
}

static void do_receive(struct thread *th, struct msg *m)
{
	struct msg *o = &th->msg[m->rroot];
	MPI_Comm c = th->comm[m->comm].h;
	int from = m->pool >= 0 ? MPI_ANY_SOURCE : th->comm[m->comm].crank[m->src];
	int tag = m->any_tag ? MPI_ANY_TAG : m->tag, n = (int)items(&m->rl, m->cap), flag = 0;
	MPI_Status st, pst, *stp = m->ignore ? MPI_STATUS_IGNORE : &st;
	MPI_Request q;

	ready_rbuf(th, m);
	if (m->pool >= 0)
		th->posted[th->nposted++] = (int)(m - th->msg);
	if (!m->r_block && m->r_pers) {
		if (!o->r_made)
			L(m, Recv_init, o->rbuf, n, o->rtype, from, tag, c, &o->rreq);
		o->r_made = true;
		start(th, m, true);
		return;
	}
	if (!m->r_block) {
		L(m, Irecv, o->rbuf, n, o->rtype, from, tag, c, &o->rreq);
		return;
	}
	switch (m->rmode) {
	case RECV:
		L(m, Recv, o->rbuf, n, o->rtype, from, tag, c, stp);
		break;
	case PROBE:
	case IPROBE:
		if (m->rmode == PROBE)
			CK(MPI_Probe(from, tag, c, &pst));
		while (m->rmode == IPROBE && !flag)
			if (CK(MPI_Iprobe(from, tag, c, &flag, &pst)))
				break;
		check_probe(th, m, &pst);
		L(m, Recv, o->rbuf, n, o->rtype, pst.MPI_SOURCE, pst.MPI_TAG, c, stp);
		break;
	case MPROBE:
	case IMPROBE:
	case MPROBE_I:
		m->match = MPI_MESSAGE_NULL;
		if (m->rmode != IMPROBE)
			CK(MPI_Mprobe(from, tag, c, &m->match, &pst));
		while (m->rmode == IMPROBE && !flag)
			if (CK(MPI_Improbe(from, tag, c, &flag, &m->match, &pst)))
				break;
		check_probe(th, m, &pst);
		if (m->later)
			return;
		take(th, m, m->rmode == MPROBE_I, stp);
		if (m->rmode == MPROBE_I)
			CK(MPI_Wait(&m->rreq, stp));
		break;
	case RETRY:
		/* either the message has come, or the receive is cancelled and made again */
		L(m, Irecv, o->rbuf, n, o->rtype, from, tag, c, &q);
		CK(MPI_Cancel(&q));
		CK(MPI_Wait(&q, &st));
		CK(MPI_Test_cancelled(&st, &flag));
		stp = &st;
		if (flag)
			L(m, Recv, o->rbuf, n, o->rtype, from, tag, c, stp);
		break;
	}
	received(th, m, stp);
}

static void do_exchange(struct thread *th, struct msg *s, struct msg *r, int how)
{
	struct comm *cm = &th->comm[s->comm];
	int to = cm->crank[s->dst], from = cm->crank[r->src];
	int tag = r->any_tag ? MPI_ANY_TAG : r->tag;
	int sn = (int)items(&s->sl, s->nel), rn = (int)items(&r->rl, r->cap);
	MPI_Status st, *stp = r->ignore ? MPI_STATUS_IGNORE : &st;
	MPI_Request q;

	ready_sbuf(th, s);
	ready_rbuf(th, r);
	switch (how) {
	case SENDRECV:
		L(s, Sendrecv, s->sbuf, sn, s->stype, to, s->tag, r->rbuf, rn, r->rtype, from, tag,
		  cm->h, stp);
		break;
	case REPLACE:
		memcpy(r->rbuf, s->sbuf, layout_bytes(s, &s->sl, s->nel) + GUARD);
		L(s, Sendrecv_replace, r->rbuf, sn, s->stype, to, s->tag, from, tag, cm->h, stp);
		break;
	case IRECV_SEND:
		L(r, Irecv, r->rbuf, rn, r->rtype, from, tag, cm->h, &q);
		L(s, Send, s->sbuf, sn, s->stype, to, s->tag, cm->h);
		CK(MPI_Wait(&q, stp));
		break;
	case ISEND_RECV:
		L(s, Isend, s->sbuf, sn, s->stype, to, s->tag, cm->h, &q);
		L(r, Recv, r->rbuf, rn, r->rtype, from, tag, cm->h, stp);
		CK(MPI_Wait(&q, MPI_STATUS_IGNORE));
		break;
#if HAVE_LARGE
	case ISENDRECV:
		L(s, Isendrecv, s->sbuf, sn, s->stype, to, s->tag, r->rbuf, rn, r->rtype, from,
		  tag, cm->h, &q);
		CK(MPI_Wait(&q, stp));
		break;
	case IREPLACE:
		memcpy(r->rbuf, s->sbuf, layout_bytes(s, &s->sl, s->nel) + GUARD);
		L(s, Isendrecv_replace, r->rbuf, sn, s->stype, to, s->tag, from, tag, cm->h, &q);
		CK(MPI_Wait(&q, stp));
		break;
#endif
	}
	received(th, r, stp);
	sent(th, s);
}

static void complete_one(struct thread *th, MPI_Request *q, enum done how, MPI_Status *st)
{
	int flag = 0;

	switch (how) {
	case TEST:
		while (!flag)
			if (CK(MPI_Test(q, &flag, st)))
				break;
		break;
	case GET_STATUS:
		while (!flag)
			if (CK(MPI_Request_get_status(*q, &flag, st)))
				break;
		CK(MPI_Test(q, &flag, st));
		if (!flag)
			fail(th, "MPI_Test after a true MPI_Request_get_status gives false");
		break;
	default:
		CK(MPI_Wait(q, st));
		break;
	}
}

/* a request in a call for several: a send, a receive, a one-sided one, or none */
struct slot {
	struct msg *m;
	int rma;	/* -1: none */
	bool recv, done;
};

static void rma_done(struct thread *th, int i)
{
	unsigned char want[RMA_BYTES];

	if (!th->rma_put[i]) {
		memset(want, 0x40 + th->rma_target[i], sizeof(want));
		if (memcmp(want, th->rma_buf[i], sizeof(want)))
			fail(th, "MPI_Rget from rank %d: wrong data", th->rma_target[i]);
	}
}

static void slot_done(struct thread *th, struct slot *s, MPI_Status *st)
{
	int flag;

	if (s->done)
		fail(th, "request completed twice");
	s->done = true;
	if (s->rma >= 0) {
		rma_done(th, s->rma);
	} else if (!s->m) {
		fail(th, "an inactive request was completed");
	} else if (s->recv) {
		received(th, s->m, st);
	} else {
		if (st) {
			CK(MPI_Test_cancelled(st, &flag));
			if (flag)
				fail(th, "a send is said to be cancelled");
		}
		sent(th, s->m);
	}
}

static void do_batch(struct thread *th, const struct event *e)
{
	struct slot slot[MAX_MSGS * 2 + 16];
	MPI_Request q[MAX_MSGS * 2 + 16];
	MPI_Status st[MAX_MSGS * 2 + 16];
	int idx[MAX_MSGS * 2 + 16], n = 0, active = 0, flag = 0, out, at;
	struct rng r = { mix(th->seed, (uint64_t)e->how) };
	bool ignore = true;

	for (int i = 0; i < th->nmsgs; i++) {
		struct msg *m = &th->msg[i];

		/* inactive persistent requests may stand anywhere */
		if (m->phase < e->phase && chance(&r, 10)) {
			bool s_idle = m->s_made, r_idle = m->r_made;

			for (int j = 0; j < th->nmsgs; j++) {
				s_idle &= th->msg[j].phase != e->phase || th->msg[j].sroot != i;
				r_idle &= th->msg[j].phase != e->phase || th->msg[j].rroot != i;
			}
			if (s_idle) {
				q[n] = m->sreq;
				slot[n++] = (struct slot){ NULL, -1, false, false };
			}
			if (r_idle) {
				q[n] = m->rreq;
				slot[n++] = (struct slot){ NULL, -1, false, false };
			}
		}
		if (m->phase != e->phase || m->exchanged)
			continue;
		if (m->src == rank && !m->s_block && m->sdone == BATCH && m->sbatch == e->m) {
			q[n] = th->msg[m->sroot].sreq;
			slot[n++] = (struct slot){ m, -1, false, false };
			active++;
		}
		if (m->dst == rank && r_request(m) && m->rdone == BATCH && m->rbatch == e->m) {
			q[n] = th->msg[m->rroot].rreq;
			slot[n++] = (struct slot){ m, -1, true, false };
			ignore &= m->ignore;
			active++;
		}
		if (chance(&r, 5)) {
			q[n] = MPI_REQUEST_NULL;
			slot[n++] = (struct slot){ NULL, -1, false, false };
		}
	}
	for (int i = 0; i < th->nrma; i++) {
		if (th->rma_batch[i] != e->m)
			continue;
		q[n] = th->rma_req[i];
		slot[n++] = (struct slot){ NULL, i, false, false };
		th->rma_batch[i] = -1;
		active++;
	}
	for (int i = n - 1; i > 0; i--) {
		int j = below(&r, i + 1);
		struct slot s = slot[i];
		MPI_Request x = q[i];

		slot[i] = slot[j];
		slot[j] = s;
		q[i] = q[j];
		q[j] = x;
	}
	switch (e->how % 10) {
	case 0:
		CK(MPI_Waitall(n, q, ignore ? MPI_STATUSES_IGNORE : st));
		flag = 1;
		break;
	case 1:
		while (!flag)
			if (CK(MPI_Testall(n, q, &flag, ignore ? MPI_STATUSES_IGNORE : st)))
				break;
		break;
	case 2:
	case 3:
		for (int left = active; left > 0; left--) {
			flag = 1;
			at = -2;
			if (e->how % 10 == 2)
				CK(MPI_Waitany(n, q, &at, &st[0]));
			else
				do
					flag = 0;
				while (!CK(MPI_Testany(n, q, &at, &flag, &st[0])) && !flag);
			if (at < 0 || at >= n) {
				fail(th, "index %d of %d requests, %d active", at, n, left);
				break;
			}
			slot_done(th, &slot[at], &st[0]);
		}
		CK(MPI_Waitany(n, q, &at, &st[0]));
		if (at != MPI_UNDEFINED)
			fail(th, "MPI_Waitany without active requests gives index %d", at);
		flag = -1;
		break;
	case 4:
	case 5:
		for (int left = active; left > 0;) {
			out = 0;
			if (e->how % 10 == 4)
				CK(MPI_Waitsome(n, q, &out, idx, st));
			else
				while (!CK(MPI_Testsome(n, q, &out, idx, st)) && !out)
					;
			if (out <= 0 || out > left) {
				fail(th, "%d completed of %d active requests", out, left);
				break;
			}
			for (int i = 0; i < out; i++)
				slot_done(th, &slot[idx[i]], &st[i]);
			left -= out;
		}
		CK(MPI_Testsome(n, q, &out, idx, st));
		if (out != MPI_UNDEFINED)
			fail(th, "MPI_Testsome without active requests gives outcount %d", out);
		flag = -1;
		break;
	}
	for (int i = 0; i < n; i++) {
		struct slot *s = &slot[i];
		bool pers = s->m && (s->recv ? s->m->r_pers : s->m->s_pers);

		if (s->m || s->rma >= 0) {
			if (flag == 1)
				slot_done(th, s, ignore ? NULL : &st[i]);
			if (!s->done)
				fail(th, "a request was never completed");
			if ((q[i] == MPI_REQUEST_NULL) == pers)
				fail(th, "handle after completion of a %spersistent request",
				     pers ? "" : "non-");
		}
	}
}

/* which messages the receives of pools must have got, given their senders */
static void check_pools(struct thread *th, int phase)
{
	for (int i = 0; i < th->nposted; i++) {
		struct msg *r = &th->msg[th->posted[i]], *got = NULL;
		struct comm *cm = &th->comm[r->comm];
		double first = 0;

		if (r->phase != phase)
			continue;
		for (int j = 0; j < th->nmsgs; j++) {
			struct msg *m = &th->msg[j];

			if (m->pool != r->pool || m->claimed || m->phase != phase ||
			    cm->crank[m->src] != r->status.MPI_SOURCE ||
			    (!r->any_tag && m->tag != r->tag) || (got && m->st >= first))
				continue;
			got = m;
			first = m->st;
		}
		if (!got) {
			fail(th, "receive %d from any source: a message too many from %d, tag %d",
			     (int)(r - th->msg), r->status.MPI_SOURCE, r->status.MPI_TAG);
			continue;
		}
		got->claimed = true;
		check_status(th, got, r, &r->status);
		check_data(th, got, r);
	}
}

static void do_null_proc(struct thread *th, const struct event *e)
{
	MPI_Comm c = th->comm[e->m].color[rank] < 0 ? th->sync : th->comm[e->m].h;
	char b[4] = { 1, 2, 3, 4 }, d[4] = { 1, 2, 3, 4 };
	MPI_Message msg = MPI_MESSAGE_NULL;
	MPI_Status st;
	MPI_Request q = MPI_REQUEST_NULL;
	int n, flag = 1, nul = MPI_PROC_NULL;
	bool recv = false;

	switch (e->how) {
	case 0: CK(MPI_Send(b, 4, MPI_CHAR, nul, 1, c)); break;
	case 1: CK(MPI_Ssend(b, 4, MPI_CHAR, nul, 1, c)); break;
	case 2: CK(MPI_Isend(b, 4, MPI_CHAR, nul, 1, c, &q)); break;
	case 3: CK(MPI_Rsend(b, 4, MPI_CHAR, nul, 1, c)); break;
	case 4: CK(MPI_Send_init(b, 4, MPI_CHAR, nul, 1, c, &q)); CK(MPI_Start(&q)); break;
	case 5: CK(MPI_Recv(b, 4, MPI_CHAR, nul, 1, c, &st)); recv = true; break;
	case 6:
		CK(MPI_Irecv(b, 4, MPI_CHAR, nul, MPI_ANY_TAG, c, &q));
		recv = !GAP_IRECV_NULL;
		break;
	case 7: CK(MPI_Probe(nul, 1, c, &st)); recv = true; break;
	case 8: CK(MPI_Iprobe(nul, 1, c, &flag, &st)); recv = true; break;
	case 9:
		CK(MPI_Mprobe(nul, 1, c, &msg, &st));
		if (msg != MPI_MESSAGE_NO_PROC)
			fail(th, "MPI_Mprobe of MPI_PROC_NULL: not MPI_MESSAGE_NO_PROC");
		CK(MPI_Mrecv(b, 4, MPI_CHAR, &msg, &st));
		recv = true;
		break;
	case 10:
		CK(MPI_Sendrecv(b, 4, MPI_CHAR, nul, 1, d, 4, MPI_CHAR, nul, 1, c, &st));
		recv = true;
		break;
	case 11:
		CK(MPI_Recv_init(b, 4, MPI_CHAR, nul, 1, c, &q));
		CK(MPI_Start(&q));
		recv = !GAP_IRECV_NULL;
		break;
	}
	if (q != MPI_REQUEST_NULL) {
		CK(MPI_Wait(&q, &st));
		if (q != MPI_REQUEST_NULL)
			CK(MPI_Request_free(&q));
	}
	if (!flag)
		fail(th, "MPI_Iprobe of MPI_PROC_NULL gives false");
	if (recv) {
		CK(MPI_Get_count(&st, MPI_CHAR, &n));
		if (st.MPI_SOURCE != MPI_PROC_NULL || st.MPI_TAG != MPI_ANY_TAG || n)
			fail(th, "MPI_PROC_NULL, call %d: source %d tag %d count %d", e->how,
			     st.MPI_SOURCE, st.MPI_TAG, n);
	}
	if (b[0] != 1 || d[3] != 4)
		fail(th, "MPI_PROC_NULL, call %d: a buffer was written", e->how);
}

static void do_cancel(struct thread *th, MPI_Request *q, bool free_first)
{
	MPI_Status st;
	int flag;

	CK(MPI_Cancel(q));
	if (free_first) {
		CK(MPI_Request_free(q));
		return;
	}
	CK(MPI_Wait(q, &st));
	CK(MPI_Test_cancelled(&st, &flag));
	if (!flag)
		fail(th, "a receive that nothing was sent to could not be cancelled");
}

static void do_pre_cancel(struct thread *th, const struct event *e)
{
	struct comm *cm = &th->comm[e->m];
	MPI_Request q;

	CK(MPI_Irecv(th->none, sizeof(th->none), MPI_BYTE, MPI_ANY_SOURCE,
		     e->how ? MPI_ANY_TAG : tags[e->m2], cm->h, &q));
	do_cancel(th, &q, false);
}

static void do_rma(struct thread *th, const struct event *e)
{
	int i = th->nrma;
	MPI_Request *q = &th->rma_req[i];

	if (i == ARRAY_SIZE(th->rma_req))
		return;
	for (int j = 0; j < i; j++)	/* one put of each origin to each target */
		if (e->m2 && th->rma_put[j] && th->rma_target[j] == e->m)
			return;
	th->nrma++;
	th->rma_buf[i] = malloc(RMA_BYTES);
	if (!th->rma_buf[i])
		abort();
	th->rma_put[i] = e->m2;
	th->rma_target[i] = e->m;
	th->rma_batch[i] = e->how;
	if (e->m2) {
		memset(th->rma_buf[i], (int)(seed_now + (uint64_t)rank) & 0xff, RMA_BYTES);
		CK(MPI_Rput(th->rma_buf[i], RMA_BYTES, MPI_BYTE, e->m,
			    (MPI_Aint)(rank + 1) * RMA_BYTES, RMA_BYTES, MPI_BYTE, rma_win, q));
	} else {
		memset(th->rma_buf[i], 0, RMA_BYTES);
		CK(MPI_Rget(th->rma_buf[i], RMA_BYTES, MPI_BYTE, e->m, 0, RMA_BYTES, MPI_BYTE,
			    rma_win, q));
	}
}

static void run_event(struct thread *th, const struct event *e)
{
	struct msg *m = &th->msg[e->m];
	MPI_Status st, *stp = &st;

	switch (e->kind) {
	case SEND:
		do_send(th, m);
		break;
	case RECEIVE:
		do_receive(th, m);
		break;
	case TAKE:
		do_take(th, m);
		break;
	case S_DONE:
		complete_one(th, &th->msg[m->sroot].sreq, m->sdone, MPI_STATUS_IGNORE);
		sent(th, m);
		break;
	case R_DONE:
		if (m->ignore)
			stp = MPI_STATUS_IGNORE;
		complete_one(th, &th->msg[m->rroot].rreq, m->rdone, stp);
		received(th, m, stp);
		break;
	case BATCH_DONE:
		do_batch(th, e);
		break;
	case BARRIER:
		CK(MPI_Barrier(th->sync));
		break;
	case EXCHANGE:
		do_exchange(th, m, &th->msg[e->m2], e->how);
		break;
	case NULL_PROC:
		do_null_proc(th, e);
		break;
	case CANCEL_POST:
		CK(MPI_Irecv(th->none, sizeof(th->none), MPI_BYTE, MPI_ANY_SOURCE, UNUSED_TAG,
			     th->comm[e->m].h, &th->cancelling));
		break;
	case CANCEL:
		do_cancel(th, &th->cancelling, e->how);
		break;
	case PRE_CANCEL:
		do_pre_cancel(th, e);
		break;
	case PAUSE:
		usleep((unsigned int)e->how);
		break;
	case POOLS:
		check_pools(th, e->phase);
		break;
	case RMA:
		do_rma(th, e);
		break;
	}
}

static void finish_rma(struct thread *th)
{
	unsigned char got[RMA_BYTES];

	for (int i = 0; i < th->nrma; i++) {
		if (th->rma_put[i]) {
			CK(MPI_Win_flush(th->rma_target[i], rma_win));
			CK(MPI_Get(got, RMA_BYTES, MPI_BYTE, th->rma_target[i],
				   (MPI_Aint)(rank + 1) * RMA_BYTES, RMA_BYTES, MPI_BYTE, rma_win));
			CK(MPI_Win_flush(th->rma_target[i], rma_win));
			if (memcmp(got, th->rma_buf[i], RMA_BYTES))
				fail(th, "MPI_Rput to rank %d: wrong data", th->rma_target[i]);
		}
		free(th->rma_buf[i]);
	}
}

static const char *describe(const struct thread *th, const struct event *e, char *b, size_t size)
{
	const struct msg *m = &th->msg[e->m];

	if (e->kind > R_DONE && e->kind != EXCHANGE)
		snprintf(b, size, "%d %d %d", e->m, e->m2, e->how);
	else
		snprintf(b, size, "message %d comm %d %d->%d tag %d%s pool %d, %ld of type %d, "
			 "send mode %d %s%s done %d, receive mode %d %s%s%s done %d, how %d", e->m, m->comm,
			 m->src, m->dst, m->tag, m->any_tag ? " (any)" : "", m->pool, m->nel,
			 m->base, m->smode, m->s_block ? "blocking" : "posted",
			 m->s_pers ? " persistent" : "", m->sdone, m->rmode,
			 m->r_block ? "blocking" : "posted", m->r_pers ? " persistent" : "",
			 m->take_i ? " posted later" : m->later ? " later" : "",
			 m->rdone, e->how);
	return b;
}

static void *run_program(void *arg)
{
	struct thread *th = arg;
	char b[256];

	for (int i = 0; i < th->nevents; i++) {
		const struct event *e = &th->event[i];

		if (e->rank != rank)
			continue;
		if (!joins(th, e, &th->msg[e->m]))
			start_all(th);
		th->base.step = i;
		th->base.at = e;
		random_region(&th->base, i);
		if (show)
			printf("# rank %d thread %d step %d phase %d: %s %s\n", rank, th->base.no, i,
			       e->phase, kind_names[e->kind], describe(th, e, b, sizeof(b)));
		run_event(th, e);
	}
	start_all(th);
	th->base.at = NULL;
	/* the sender of a freed request cannot know when its buffer is free; now it is */
	CK(MPI_Barrier(th->sync));
	if (with_rma && th->base.no == 0)
		finish_rma(th);
	for (int i = 0; i < th->nmsgs; i++) {
		struct msg *m = &th->msg[i];

		if (m->s_made)
			CK(MPI_Request_free(&m->sreq));
		if (m->r_made)
			CK(MPI_Request_free(&m->rreq));
		if (m->sbuf)
			drop_type(th, &m->sl, &m->stype);
		if (m->rbuf)
			drop_type(th, &m->rl, &m->rtype);
		free(m->sbuf);
		free(m->rbuf);
	}
	return NULL;
}

/* ---- communicators ---- */

static void set_map(struct comm *c, MPI_Comm h)
{
	MPI_Comm_set_errhandler(h, MPI_ERRORS_RETURN);
	c->h = h;
	c->inter = false;
}

static void whole(struct comm *c, MPI_Comm h)
{
	set_map(c, h);
	for (int r = 0; r < nranks; r++) {
		c->color[r] = 0;
		c->crank[r] = r;
	}
}

/* halves by parity, the ranks of each in falling order */
static void halves(struct comm *c, MPI_Comm from)
{
	MPI_Comm h;
	int at[2] = { 0, 0 };

	MPI_Comm_split(from, rank & 1, -rank, &h);
	set_map(c, h);
	for (int r = nranks - 1; r >= 0; r--) {
		c->color[r] = r & 1;
		c->crank[r] = at[r & 1]++;
	}
}

static void make_comms(struct thread *th)
{
	int size = nranks, yes = 1;
	struct comm *c = th->comm;
	MPI_Comm h;

	MPI_Comm_dup(MPI_COMM_WORLD, &th->sync);
	MPI_Comm_set_errhandler(th->sync, MPI_ERRORS_RETURN);
	if (th->base.no == 0) {
		whole(&c[0], MPI_COMM_WORLD);
	} else {
		MPI_Comm_dup(MPI_COMM_WORLD, &h);
		whole(&c[0], h);
	}
	halves(&c[1], MPI_COMM_WORLD);
	MPI_Intercomm_create(c[1].h, 0, MPI_COMM_WORLD,
			     rank & 1 ? (nranks - 1) & ~1 : ((nranks - 2) | 1), 3 + th->base.no, &h);
	c[2] = c[1];
	set_map(&c[2], h);
	c[2].inter = true;
	MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &yes, 0, &h);
	whole(&c[3], h);
	if (th->base.no == 0)
		h = MPI_COMM_SELF;
	else
		MPI_Comm_dup(MPI_COMM_SELF, &h);
	set_map(&c[4], h);
	for (int r = 0; r < nranks; r++) {
		c[4].color[r] = r;
		c[4].crank[r] = 0;
	}
	th->ncomms = 5;
}

/* the communicator that one program has for itself */
static void make_temp(struct thread *th, uint64_t seed)
{
	struct comm *c = &th->comm[5];
	MPI_Request q;
	MPI_Group g;
	MPI_Comm h;

	th->ncomms = 6;
	switch (mix(seed, 77) % 8) {
	case 0:
		MPI_Comm_dup(th->sync, &h);
		whole(c, h);
		break;
	case 1:
		MPI_Comm_idup(th->sync, &h, &q);
		MPI_Wait(&q, MPI_STATUS_IGNORE);
		whole(c, h);
		break;
	case 2:
		MPI_Comm_group(th->sync, &g);
		MPI_Comm_create(th->sync, g, &h);
		MPI_Group_free(&g);
		whole(c, h);
		break;
	case 3:
		MPI_Comm_group(th->sync, &g);
		MPI_Comm_create_group(th->sync, g, 5, &h);
		MPI_Group_free(&g);
		whole(c, h);
		break;
	case 4:
		halves(c, th->sync);
		break;
	case 5:
		MPI_Comm_dup_with_info(th->sync, MPI_INFO_NULL, &h);
		whole(c, h);
		break;
	default:
		th->ncomms = 5;
	}
}

/* ---- the job ---- */

static void where(const void *event, char *b, size_t size)
{
	const struct event *e = event;

	snprintf(b, size, "phase %d %s", e->phase, kind_names[e->kind]);
}

static void make_rma(void)
{
	MPI_Win_allocate((MPI_Aint)RMA_BYTES * (nranks + 1), 1, MPI_INFO_NULL, MPI_COMM_WORLD,
			 &rma_mem, &rma_win);
	memset(rma_mem, 0x40 + rank, RMA_BYTES);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, rma_win);
}

static void *bsend_room;

static void before(void)
{
	bsend_room = malloc((size_t)nthreads * BSEND_ROOM);
	if (!bsend_room)
		abort();
	MPI_Buffer_attach(bsend_room, nthreads * BSEND_ROOM);
	for (int i = 0; i < nthreads; i++) {
		make_temp(&threads[i], mix(seed_now, (uint64_t)i));
		make_program(&threads[i], seed_now);
	}
}

static uint64_t after(void)
{
	uint64_t digest = 0;
	void *old;
	int size;

	MPI_Buffer_detach(&old, &size);
	if (old != bsend_room || size != nthreads * BSEND_ROOM)
		fail(&threads[0], "MPI_Buffer_detach gives another buffer");
	free(bsend_room);
	for (int i = 0; i < nthreads; i++) {
		if (threads[i].ncomms > 5)
			MPI_Comm_free(&threads[i].comm[5].h);
		digest += mix(threads[i].digest, (uint64_t)(rank * MAX_THREADS + i));
	}
	return digest;
}

static int option(char **argv, int words)
{
	(void)words;
	if (strcmp(*argv, "--rma"))
		return 0;
	with_rma = true;
	return 1;
}

static void begin(void *all)
{
	threads = all;
	bases[0].type = MPI_BYTE;
	bases[1].type = MPI_INT;
	bases[2].type = MPI_DOUBLE;
	bases[3].type = MPI_FLOAT_INT;
	bases[4].type = MPI_DOUBLE_INT;
	bases[5].type = MPI_SHORT_INT;
	bases[6].type = MPI_LONG_DOUBLE_INT;
	for (int i = 0; i < nthreads; i++)
		make_comms(&threads[i]);
	if (with_rma)
		make_rma();
}

static void end(void)
{
	if (!with_rma)
		return;
	MPI_Win_unlock_all(rma_win);
	MPI_Win_free(&rma_win);
}

int main(int argc, char **argv)
{
	static const struct random_program program = {
		.name = "p2p_random", .options = " [--rma]", .thread_size = sizeof(struct thread),
		.option = option, .begin = begin, .before = before, .run = run_program, .after = after,
		.end = end, .where = where,
	};

	return random_main(argc, argv, &program);
}

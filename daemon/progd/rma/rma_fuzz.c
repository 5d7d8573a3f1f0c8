// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The one-sided engine against a peer whose job is proven, and against its own client: any frames, in any order, and
 * any entries of a ring.
 *
 *	ranks 0, 1: the fuzzer ==== in-process lanes, one each way ==== node B, rank 2: a window, and a client with a ring
 *
 * The first byte says how the memory of the window and of the client is reached.  Nothing else may be written than the
 * window and what results of the client's operations go to, and helper threads may be asked for nothing else.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kit/peer.h>
#include <kit/rma.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEY	0x1122334455667788ull
#define SIZE	65536u			/* of the window, and of what stands before and behind it */
#define GAP	4096u			/* not attached to a dynamic window */
#define BOUNCE	(512u << 10)
#define RANKS	3u
#define ME	2u

/* bits of the first byte */
#define HOW_MEM		0x03		/* index of mems */
#define HOW_CMA		0x04		/* the client's memory is reached by CMA, not by its helper thread */
#define HOW_SUBS	0x08		/* one of two engines: its stream of target 1, and the peer's of origin 1, are sub-streams */

static const uint32_t mems[] = { PROG_MEM_SHARED, PROG_MEM_VA, PROG_MEM_VA, PROG_MEM_DYNAMIC };
#define BY_HELPER	2		/* the window's memory, of those */

struct helped {
	struct segment s;
	struct prog_helper_ring ring __attribute__((aligned(64)));
	uint8_t bounce[BOUNCE] __attribute__((aligned(64)));
};

static struct kit_link b;
static struct rma *rma;
static struct win_job *job;
static struct win *win;			/* NULL: freed */
static struct winctl wc;
static struct rma_client client;
static struct helped *helped;
static _Atomic(struct win *) wins[2];
static _Atomic(struct win_map *) regions[2];
static bool bad;			/* the client's session is to end */
static struct kit_peer peer;
static uint8_t *mem;			/* of the window: between SIZE bytes that are not */
static uint8_t private[3 * SIZE], origin[3 * SIZE];	/* of the process: the window, of which SIZE; buffers */
static struct {				/* where the client's results go */
	uint8_t *at;
	size_t len;
	uint64_t off;			/* of its first byte in the operation's data */
	uint8_t was;
	uint32_t target;
	uint64_t seq;
} result[512];
static unsigned int results;

static const uint8_t guid_a[PROG_GUID_SIZE] = { 1 }, guid_b[PROG_GUID_SIZE] = { 2 };
static const uint8_t jobid[PROG_JOBID_SIZE] = { 3 }, jobkey[PROG_JOBKEY_SIZE] = { 4 };

static void kick(struct link_host *h, uint32_t mask)
{
}

static void client_bad(struct link_host *h, const struct client_view *c, const char *why)
{
	bad = true;
}

static struct link_host host = { .kick = kick, .client_bad = client_bad };

/* ---- the helper thread of rank 2 ---- */

static bool within(uint64_t at, uint64_t len, const uint8_t *start)
{
	return at >= (uintptr_t)start && len <= SIZE && at - (uintptr_t)start <= SIZE - len;
}

/* Contiguous bytes of the window; what else there is to apply is known to be right, and only answered. */
static void play_apply(const struct prog_helper_job *j)
{
	uint64_t at = (uintptr_t)mem + j->va + j->off;

	if (j->dtype != ~0ull || (j->opcode != PROG_SQE_OP_PUT && j->opcode != PROG_SQE_OP_GET))
		return;
	assert_true(within(at, j->len, mem));
	if (j->opcode == PROG_SQE_OP_PUT)
		memcpy((void *)(uintptr_t)at, helped->bounce + j->bounce, j->len);
	else
		memcpy(helped->bounce + j->result, (void *)(uintptr_t)at, j->len);
}

static void play_helper(void)
{
	struct prog_helper_ring *ring = &helped->ring;

	for (; ring->done != ring->tail; ring->done++) {
		struct prog_helper_job *j = &ring->job[ring->done % PROG_HELPER_SLOTS];

		j->status = 0;
		if (j->kind == PROG_HELP_APPLY) {
			play_apply(j);
			continue;
		}
		assert_true(within(j->va, j->len, origin + SIZE));
		if (j->kind == PROG_HELP_READ)
			memcpy(helped->bounce + j->bounce, (void *)(uintptr_t)j->va, j->len);
		else
			memcpy((void *)(uintptr_t)j->va, helped->bounce + j->bounce, j->len);
	}
}

/* ---- one run ---- */

static void step(unsigned int n)
{
	for (; n; n--) {
		kit_peer_step(&peer);
		loop_run_once(b.loop, 0);
		link_poll(b.link);
		play_helper();
	}
}

static void make_client(bool cma)
{
	kit_client(&client, job, sizeof(*helped));
	helped = client.view.seg->mem;
	client.wins = wins;
	client.max_wins = 2;
	client.view.regions.map = regions;
	client.view.regions.max = 2;
	client.view.cma = cma;
	client.view.helper = helper_new(client.view.seg, &helped->ring, helped->bounce, BOUNCE);
	assert_non_null(client.view.helper);
	regions[0] = kit_map(2 * SIZE);
	memset(helped->s.arena, KIT_FILL, KIT_ARENA);
	results = 0;
	memset(origin, 0, sizeof(origin));
	bad = false;
	assert_int_equal(rma_client_attach(rma, &client), 0);
}

static void make_window(uint32_t kind)
{
	struct win_create c = { .job = job, .key = KEY, .rank = ME, .nranks = RANKS, .mem = mems[kind], .size = SIZE,
				.session = 1, .pid = getpid(), .mem_fd = -1, .cma = kind != BY_HELPER,
				.helper = client.view.helper };
	struct prog_win_node nodes[KIT_NODES] = {
		kit_node(guid_a, peer.addr, peer.naddrs), kit_node(guid_b, b.addr, b.naddrs),
	};
	const char *why = "";
	void *p;

	c.ctl_fd = kit_ctl(&wc, KEY, ME, RANKS);
	c.table_fd = kit_table(nodes, RANKS, ME);
	mem = private + SIZE;
	memset(private, 0, sizeof(private));
	switch (c.mem) {
	case PROG_MEM_SHARED:
		c.mem_fd = kit_memfd(3 * SIZE, &p);
		munmap(p, 3 * SIZE);
		c.base = SIZE;
		break;
	case PROG_MEM_VA:
		c.base = (uintptr_t)mem;
		break;
	default:
		c.size = 0;
		wc.ranges[0] = (struct prog_win_range){ .base = (uintptr_t)mem, .len = SIZE / 4 };
		wc.ranges[1] = (struct prog_win_range){ .base = (uintptr_t)mem + SIZE / 4, .len = SIZE / 4 };
		wc.ranges[2] = (struct prog_win_range){ .base = (uintptr_t)mem + SIZE / 2 + GAP, .len = SIZE / 2 - GAP };
	}
	assert_int_equal(win_new(&c, &win, &why), 0);
	if (c.mem == PROG_MEM_SHARED)
		mem = (uint8_t *)win->mem_map->mem + SIZE;
	peer.base = c.mem == PROG_MEM_DYNAMIC ? (uintptr_t)mem : 0;
	peer.size = SIZE;
	peer.node_rank = ME;
	wins[0] = win;
}

static void set_up(uint8_t how)
{
	const char *why = "";

	kit_link_new(&b, guid_b, how & HOW_SUBS ? 2 : 1, &host);
	assert_int_equal(rma_new(b.link, NULL, &rma), 0);
	kit_link_listen(&b);
	kit_peer_new(&peer, guid_a, KEY);
	peer.subs = how & HOW_SUBS ? 1u << 1 : 0;
	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &job, &why), 0);
	make_client(how & HOW_CMA);
	make_window(how & HOW_MEM);
}

static bool all_are(const uint8_t *p, uint8_t value, size_t n)
{
	return p[0] == value && !memcmp(p, p + 1, n - 1);
}

/* A result that the client is told of is there as a whole. */
static void check_results(void)
{
	for (unsigned int i = 0; i < results; i++) {
		const struct prog_win_stream *s;

		if (result[i].target >= ME)
			continue;
		s = peer.subs >> result[i].target & 1 ? &wc.subs[result[i].target] : &wc.streams[result[i].target];
		/* nothing has number 0 */
		if (s->err || !result[i].seq || result[i].seq > s->acked)
			continue;
		for (size_t j = 0; j < result[i].len; j++)
			assert_true(result[i].at[j] != result[i].was);
	}
}

/* The byte is of the data of an operation to the peer, where it belongs, or of any to this node's own window. */
static bool is_result(const uint8_t *p)
{
	for (unsigned int i = 0; i < results; i++)
		if (p >= result[i].at && p < result[i].at + result[i].len &&
		    (result[i].target >= ME || *p == kit_data(result[i].off + (p - result[i].at))))
			return true;
	return false;
}

/* What has come of results, of some perhaps a part, is where it belongs. */
static void check_places(void)
{
	for (unsigned int i = 0; i < results; i++)
		for (const uint8_t *p = result[i].at; p < result[i].at + result[i].len; p++)
			assert_true(*p == result[i].was || is_result(p));
}

/* Nothing is written around the window, and of the client's memory only what results go to. */
static void check_untouched(void)
{
	assert_true(all_are(mem - SIZE, 0, SIZE) && all_are(mem + SIZE, 0, SIZE));
	if (peer.base)
		assert_true(all_are(mem + SIZE / 2, 0, GAP));
	check_places();
	for (unsigned int i = 0; i < results; i++)
		memset(result[i].at, result[i].was, result[i].len);
	assert_true(all_are(helped->s.arena, KIT_FILL, KIT_ARENA));
	assert_true(all_are(regions[0]->mem, 0, 2 * SIZE));
	assert_true(all_are(origin, 0, sizeof(origin)));
}

static void free_window(void)
{
	struct win *w = win_get(win);

	wins[0] = NULL;
	win_free(win);
	rma_win_gone(rma, w);
	step(4);
	check_untouched();
	win_put(w);
	win = NULL;
}

static void tear_down(void)
{
	rma_client_detach(rma, &client);
	helper_kill(client.view.helper);
	if (win)
		free_window();
	if (peer.out)
		lane_close(peer.out, 0, NULL);
	win_job_get(job);
	if (win_job_leave(job))
		link_job_gone(b.link, job);
	win_job_put(job);
	step(20);
	kit_peer_free(&peer);
	kit_link_close(&b);
	helper_put(client.view.helper);
	win_map_put(client.view.seg);
	win_map_put(regions[0]);
	rma_free(rma);
	kit_link_free(&b);
	kit_ctl_free(&wc, RANKS);
}

/* ---- what the input says ---- */

static void mark(const struct prog_sqe *e, uint8_t *start, uint64_t at, uint64_t len, size_t n, uint8_t was)
{
	if (at >= n)
		return;
	result[results].at = start + at;
	result[results].len = len < n - at ? len : n - at;
	result[results].off = e->off;
	result[results].target = e->target;
	result[results].seq = e->seq;
	result[results++].was = was;
}

/* Where the client says that results go to. */
static void mark_result(const struct prog_sqe *e)
{
	if (e->opcode == PROG_SQE_OP_GET_ACC)
		mark(e, helped->s.arena, 8ull * e->result, e->len, KIT_ARENA, KIT_FILL);
	if (e->opcode == PROG_SQE_OP_CAS)
		mark(e, helped->s.arena, 8ull * e->result, e->len / 2, KIT_ARENA, KIT_FILL);
	if (e->opcode != PROG_SQE_OP_GET)
		return;
	switch (e->flags & PROG_SQE_LOC_MASK) {
	case PROG_SQE_ARENA:
		mark(e, helped->s.arena, e->addr, e->len, KIT_ARENA, KIT_FILL);
		break;
	case PROG_SQE_REGION:
		mark(e, regions[0]->mem, e->addr, e->len, 2 * SIZE, 0);
		break;
	case PROG_SQE_VA:
		mark(e, origin + SIZE, e->addr - (uintptr_t)(origin + SIZE), e->len, SIZE, 0);
	}
}

/* An entry of the client's ring. */
static void entry(struct kit_bytes *in)
{
	struct segment *seg = &helped->s;
	struct prog_sqe e = { .opcode = kit_u8(in) % (PROG_SQE_OP_NOTIFY + 1) };

	if (bad || results == sizeof(result) / sizeof(result[0]) ||
	    seg->sq.tail - __atomic_load_n(&seg->sq.head, __ATOMIC_ACQUIRE) >= KIT_SLOTS)
		return;
	e.flags = kit_u8(in);
	e.op = kit_u8(in) % (PROG_OP_END + 1);
	e.etype = kit_u8(in) % (PROG_TYPE_END + 1);
	e.win = kit_u8(in) > 240;
	e.target = kit_u8(in) % KIT_STREAMS;
	if (peer.subs >> e.target & 1)
		e.flags ^= PROG_SQE_SUB;
	e.dtype = kit_u8(in) % 4;
	e.seq = kit_u8(in) > 240 ? kit_u8(in) : ++peer.posted[e.target];
	e.disp = kit_number(in);
	e.len = kit_number(in);
	e.off = kit_u8(in) > 200 ? kit_number(in) : 0;
	e.addr = kit_number(in);
	e.region = kit_u8(in) > 200;
	e.result = kit_u8(in);
	if (e.target == ME)
		e.disp += peer.base;
	/* the client may name any address, the fuzzer only some of this process */
	if ((e.flags & PROG_SQE_LOC_MASK) == PROG_SQE_VA) {
		if (e.addr > SIZE || e.len > SIZE - e.addr)
			e.flags &= ~PROG_SQE_LOC_MASK;
		else
			e.addr += (uintptr_t)(origin + SIZE);
	}
	mark_result(&e);
	kit_submit(seg, &e);
}

static void no_peer(void *arg, const struct rma_peer_info *i)
{
}

/* Time goes by, or something ends; or frames about keys, which have no numbers in the ranges of the others. */
static void pass(struct kit_bytes *in)
{
	uint8_t n = kit_u8(in);
	struct rma_info info;

	switch (n) {
	case 0xf0:
		if (win)
			free_window();
		break;
	case 0xf1:
		if (peer.out)
			lane_close(peer.out, 0, NULL);
		break;
	case 0xf2:
		if (peer.in)
			lane_close(peer.in, 0, NULL);
		break;
	case 0xf3:
		rma_info(rma, &info);
		rma_each_peer(rma, no_peer, NULL);
		break;
	case 0xf4:
		rma_client_detach(rma, &client);
		peer.liar = NULL;
		bad = true;
		break;
	case 0xf5:
		kit_peer_frame(&peer, in, WIRE_RMA_KEY_ASK, WIRE_RMA_WAY_GONE);
		break;
	case 0xf6:
		kit_peer_frame(&peer, in, WIRE_RMA_KEY, WIRE_RMA_KEY_GONE);
		break;
	default:
		step(1 + n % 8);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kit_bytes in = { data, size };

	log_set_level(PROG_LOG_ERROR - 1);
	set_up(kit_u8(&in));
	kit_peer_open(&peer, &b, guid_b, jobid, jobkey);
	for (int i = 0; i < 100 && !peer.proven; i++)
		step(1);
	assert_true(peer.proven);
	while (in.left) {
		switch (kit_u8(&in) % 8) {
		case 0:
			pass(&in);
			break;
		case 1:
		case 2:
			entry(&in);
			break;
		case 3:
			kit_peer_frame(&peer, &in, WIRE_RMA_ACK, WIRE_RMA_GO);
			break;
		default:
			kit_peer_frame(&peer, &in, WIRE_RMA_DTYPE, WIRE_RMA_NOTIFY);
		}
		if (!peer.out) {
			kit_peer_open(&peer, &b, guid_b, jobid, jobkey);
			step(10);
		}
	}
	step(20);
	/* a lie may be behind much else */
	for (int i = 0; i < 2000 && peer.liar && lane_state(peer.liar) == LANE_UP; i++)
		step(1);
	if (win) {
		/* broken: the node has closed it while the peer was sending */
		assert_true(!peer.liar || lane_state(peer.liar) == LANE_BROKEN);
		check_results();
		check_untouched();
	}
	tear_down();
	return 0;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The one-sided engine against a peer whose job is proven, and against its own client: any frames, in any order, and
 * any entries of a ring.
 *
 *	ranks 0, 1: the fuzzer ==== in-process lanes, one each way ==== node B, rank 2: a window, and a client with a ring
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kit/peer.h>
#include <kit/rma.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEY	0x1122334455667788ull
#define SIZE	65536u			/* of the window, which is the first half of its memory */
#define REGION	65536u
#define RANKS	3u
#define ME	2u

static struct kit_link b;
static struct rma *rma;
static struct win_job *job;
static struct win *win;
static struct winctl wc;
static struct rma_client client;
static struct segment *seg;
static _Atomic(struct win *) wins[2];
static _Atomic(struct win_map *) regions[2];
static bool bad;			/* the client's session is to end */
static struct kit_peer peer;
static uint64_t seq[KIT_STREAMS];

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

static void step(unsigned int n)
{
	for (; n; n--) {
		kit_peer_step(&peer);
		loop_run_once(b.loop, 0);
		link_poll(b.link);
	}
}

static void set_up(void)
{
	struct prog_win_node nodes[KIT_NODES];
	struct win_create c = { .key = KEY, .rank = ME, .nranks = RANKS, .mem = PROG_MEM_SHARED, .size = SIZE,
				.session = 1, .pid = getpid() };
	const char *why = "";
	void *mem;

	kit_link_new(&b, guid_b, 1, &host);
	assert_int_equal(rma_new(b.link, NULL, &rma), 0);
	kit_link_listen(&b);
	kit_peer_new(&peer, guid_a, KEY);
	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &job, &why), 0);
	nodes[0] = kit_node(guid_a, peer.addr, peer.naddrs);
	nodes[1] = kit_node(guid_b, b.addr, b.naddrs);
	c.job = job;
	c.ctl_fd = kit_ctl(&wc, KEY, ME, RANKS);
	c.table_fd = kit_table(nodes, RANKS, ME);
	c.mem_fd = kit_memfd(2 * SIZE, &mem);
	munmap(mem, 2 * SIZE);
	assert_int_equal(win_new(&c, &win, &why), 0);
	seg = kit_client(&client, job, sizeof(*seg));
	client.wins = wins;
	client.max_wins = 2;
	client.view.regions.map = regions;
	client.view.regions.max = 2;
	wins[0] = win;
	regions[0] = kit_map(REGION);
	assert_int_equal(rma_client_attach(rma, &client), 0);
	memset(seq, 0, sizeof(seq));
	bad = false;
}

static void tear_down(void)
{
	struct win *w = win_get(win);

	rma_client_detach(rma, &client);
	wins[0] = NULL;
	win_free(win);
	rma_win_gone(rma, w);
	win_put(w);
	if (peer.out)
		lane_close(peer.out, 0, NULL);
	win_job_get(job);
	if (win_job_leave(job))
		link_job_gone(b.link, job);
	win_job_put(job);
	step(20);
	kit_peer_free(&peer);
	kit_link_close(&b);
	win_map_put(client.view.seg);
	win_map_put(regions[0]);
	rma_free(rma);
	kit_link_free(&b);
	kit_ctl_free(&wc, RANKS);
}

/* An entry of the client's ring. */
static void entry(struct kit_bytes *in)
{
	uint32_t tail = seg->sq.tail, slot = tail % KIT_SLOTS;
	struct prog_sqe e = { .opcode = kit_u8(in) % (PROG_SQE_OP_COMPLETE + 1) };

	if (bad || tail - __atomic_load_n(&seg->sq.head, __ATOMIC_ACQUIRE) >= KIT_SLOTS)
		return;
	e.flags = kit_u8(in);
	e.op = kit_u8(in) % (PROG_OP_END + 1);
	e.etype = kit_u8(in) % (PROG_TYPE_END + 1);
	e.win = kit_u8(in) > 240;
	e.target = kit_u8(in) % KIT_STREAMS;
	e.dtype = kit_u8(in) % 4;
	e.seq = kit_u8(in) > 240 ? kit_u8(in) : ++seq[e.target];
	e.disp = kit_number(in);
	e.len = kit_number(in);
	e.off = kit_u8(in) > 200 ? kit_number(in) : 0;
	e.addr = kit_number(in);
	e.region = kit_u8(in) > 200;
	e.result = kit_u8(in);
	/* an address would be one of this process, which the client may name, and the fuzzer must not */
	if ((e.flags & PROG_SQE_LOC_MASK) == PROG_SQE_VA)
		e.flags &= ~PROG_SQE_LOC_MASK;
	seg->sqe[slot] = e;
	seg->idx[tail % KIT_SLOTS] = slot;
	__atomic_store_n(&seg->sq.tail, tail + 1, __ATOMIC_RELEASE);
}

/* Nothing is written behind the window. */
static void check_untouched(void)
{
	const uint8_t *p = (uint8_t *)win->mem_map->mem + SIZE;

	assert_true(!p[0] && !memcmp(p, p + 1, SIZE - 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kit_bytes in = { data, size };

	log_set_level(PROG_LOG_ERROR - 1);
	set_up();
	kit_peer_open(&peer, &b, guid_b, jobid, jobkey);
	for (int i = 0; i < 100 && !peer.proven; i++)
		step(1);
	assert_true(peer.proven);
	while (in.left) {
		switch (kit_u8(&in) % 8) {
		case 0:
			step(1 + kit_u8(&in) % 8);
			break;
		case 1:
		case 2:
			entry(&in);
			break;
		case 3:
			kit_peer_frame(&peer, &in, WIRE_RMA_ACK, WIRE_RMA_GO);
			break;
		default:
			kit_peer_frame(&peer, &in, WIRE_RMA_DTYPE, WIRE_RMA_GONE);
		}
		if (!peer.out) {
			kit_peer_open(&peer, &b, guid_b, jobid, jobkey);
			step(10);
		}
	}
	step(20);
	check_untouched();
	tear_down();
	return 0;
}

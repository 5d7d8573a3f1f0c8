// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Clients that say anything: requests, the files that come with them (segments, control segments, tables of windows, memory),
 * entries of both kinds of rings, and what they write into shared memory meanwhile.
 *
 *	clients, of two jobs -- control sockets -- main thread, and a worker's -- one good session
 *
 * A window of the good session has the key that theirs have, and one of them names its job.  Each time its operation is done, its
 * memory is what it wrote, it is answered, and of what the others had nothing is left: sessions, quotas, descriptors.
 * Memory by address is reached by helper threads only, which no client has: it is all of this process.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kit/peer.h>
#include <libprogbase/log.h>
#include <libprogbase/scm.h>
#include <libprogbase/winctl.h>

#include "conf/args.h"
#include "conf/keys.h"
#include "link/link.h"
#include "session/priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLIENTS	3u
#define WINS	4u
#define SLOTS	64u
#define ARENA	16384u
#define BOUNCE	16384u
#define MEM	65536u
#define RANKS	3u
#define KEY	0x1122334455667788ull
#define FILES	128		/* that the process never has open at once */

struct seg {
	struct prog_session_hdr h;
	struct prog_sq sq[PROG_MAX_WORKERS] __attribute__((aligned(64)));
	uint32_t idx[PROG_MAX_WORKERS][SLOTS];
	struct prog_sqe sqe[SLOTS];
	uint8_t arena[ARENA] __attribute__((aligned(64)));
	struct prog_helper_ring helper __attribute__((aligned(64)));
	uint8_t bounce[BOUNCE] __attribute__((aligned(64)));
	struct prog_p2p_area area __attribute__((aligned(64)));
	struct prog_sq p2p_sq[PROG_MAX_WORKERS] __attribute__((aligned(64)));
	uint32_t p2p_idx[PROG_MAX_WORKERS][PROG_P2P_RING];
	struct prog_p2p_slot slot[PROG_P2P_SLOTS] __attribute__((aligned(64)));
	struct prog_coll_area colls __attribute__((aligned(64)));
};

struct client {
	int fd, seg_fd;			/* fd -1: not connected */
	struct seg *seg;
	struct prog_win_ctl *ctl[WINS];	/* of windows that it asked for */
	uint64_t posted[RANKS];
};

static struct node node;
static struct sessions *sessions;
static struct client clients[CLIENTS], good;
static uint64_t *good_mem, good_is[16], good_seq;
static struct win_user was;
static size_t ctl_size;

static const uint8_t good_job[PROG_JOBID_SIZE] = { 1 };

static void demand(bool ok)
{
	if (!ok)
		abort();
}

static void client_bad(void *ctx, const struct client_view *c, const char *why)
{
	sessions_client_bad(sessions, c, why);
}

static void nothing(void *arg)
{
}

/* The worker has seen what is there. */
static void sync_worker(void)
{
	for (int i = 0; i < 2; i++) {
		worker_kick(node.worker[0]);
		demand(!worker_call(node.worker[0], nothing, NULL));
	}
}

static void run_main(void)
{
	while (loop_run_once(node.loop, 0) > 0)
		;
}

/* ---- files ---- */

static int new_file(size_t size, void **p)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	demand(fd >= 0 && !ftruncate(fd, size) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	*p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	demand(*p != MAP_FAILED);
	return fd;
}

/* Another one instead, that is none of those that clients should send. */
static int wrong_file(uint8_t kind)
{
	int fd[2] = { -1, -1 };

	switch (kind % 6) {
	case 0:
		fd[0] = eventfd(0, EFD_CLOEXEC);
		break;
	case 1:
		demand(!pipe2(fd, O_CLOEXEC));
		close(fd[1]);
		break;
	case 2:
		fd[0] = open("/dev/zero", O_RDWR | O_CLOEXEC);
		break;
	case 3:
		fd[0] = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		demand(!ftruncate(fd[0], MEM));
		break;
	case 4:
		fd[0] = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		demand(!ftruncate(fd[0], MEM) && !fcntl(fd[0], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE));
		break;
	default:
		fd[0] = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		demand(!ftruncate(fd[0], kind) && !fcntl(fd[0], F_ADD_SEALS, F_SEAL_SHRINK));
	}
	demand(fd[0] >= 0);
	return fd[0];
}

static uint64_t at(const struct seg *s, const void *p)
{
	return (uint64_t)((const uint8_t *)p - (const uint8_t *)s);
}

static void make_segment(struct client *c)
{
	void *p;

	c->seg_fd = new_file(sizeof(struct seg), &p);
	c->seg = p;
	c->seg->h = (struct prog_session_hdr){
		.magic = PROG_SESSION_MAGIC, .abi_major = PROG_ABI_MAJOR, .abi_minor = PROG_ABI_MINOR,
		.seg_size = sizeof(struct seg), .nrings = PROG_MAX_WORKERS, .slots = SLOTS,
		.sq_off = at(p, c->seg->sq), .idx_off = at(p, c->seg->idx), .sqe_off = at(p, c->seg->sqe),
		.arena_off = at(p, c->seg->arena), .arena_size = ARENA, .helper_off = at(p, &c->seg->helper),
		.bounce_off = at(p, c->seg->bounce), .bounce_size = BOUNCE, .p2p_off = at(p, &c->seg->area),
		.coll_off = at(p, &c->seg->colls),
	};
	c->seg->area.nslots = PROG_P2P_SLOTS;
	c->seg->area.sq_off = at(p, c->seg->p2p_sq);
	c->seg->area.idx_off = at(p, c->seg->p2p_idx);
	c->seg->area.slot_off = at(p, c->seg->slot);
	memset(c->posted, 0, sizeof(c->posted));
}

/* Who is where: a rank here, others at addresses of this machine where nobody listens. */
static int make_table(struct kit_bytes *in, uint32_t nranks)
{
	struct {
		struct prog_win_table t;
		struct prog_win_node n[2];
		uint32_t of[RANKS];
	} t = { .t = { .nranks = nranks, .nnodes = nranks > 1 ? 2 : 1 }, .of = { 0, 1, 0 } };
	size_t len = sizeof(t);
	void *p;
	int fd;

	memcpy(t.n[0].guid, node.guid, PROG_GUID_SIZE);
	t.n[1].guid[0] = 9;
	t.n[0].naddrs = t.n[1].naddrs = 1;
	if (nranks == 1)
		memmove(&t.n[1], t.of, sizeof(t.of));
	if (nranks > 1 && kit_u8(in) > 0xe0) {
		uint32_t *of = &t.of[kit_u8(in) % RANKS];

		*of = kit_u8(in);
	}
	kit_garble(in, (uint8_t *)&t, sizeof(t));
	for (int i = 0; i < 2 * PROG_MAX_ADDRS && nranks > 1; i++) {
		struct prog_addr *a = &t.n[i / PROG_MAX_ADDRS].addr[i % PROG_MAX_ADDRS];

		*a = (struct prog_addr){ .transport = PROG_TRANSPORT_TCP, .family = AF_INET, .port = htons(1),
					 .ip = { 127, 0, 0, 1 } };
	}
	if (kit_u8(in) > 0xf0)
		len = kit_u16(in) % len;
	fd = new_file(4096, &p);
	memcpy(p, &t, len);
	munmap(p, 4096);
	return fd;
}

/* ---- requests ---- */

static void hang_up(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	run_main();
	if (c->seg) {
		munmap(c->seg, sizeof(struct seg));
		close(c->seg_fd);
	}
	c->seg = NULL;
	for (unsigned int i = 0; i < WINS; i++)
		if (c->ctl[i])
			munmap(c->ctl[i], ctl_size);
	memset(c->ctl, 0, sizeof(c->ctl));
}

static void call(struct client *c)
{
	int fd[2];

	hang_up(c);
	demand(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd));
	c->fd = fd[0];
	make_segment(c);
	sessions_add(sessions, fd[1]);
}

/* The last reply's status, or 1: the daemon has hung up. */
static int replies(struct client *c)
{
	union {
		struct prog_ctrl_hdr hdr;
		uint8_t bytes[MSG_MAX];
	} r;
	int fds[PROG_MAX_WORKERS + 1], status = 0;

	for (;;) {
		SCM_BUF(PROG_MAX_WORKERS + 1) ctl;
		struct iovec iov = { &r, sizeof(r) };
		struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof(ctl.buf) };
		ssize_t n = recvmsg(c->fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		unsigned int nfds;

		if (n < 0)
			return status;
		nfds = scm_take(&mh, fds, PROG_MAX_WORKERS + 1);
		while (nfds)
			close(fds[--nfds]);
		if (!n)
			return 1;
		demand(n >= (ssize_t)sizeof(r.hdr) && r.hdr.size == n && r.hdr.status <= 0 && r.hdr.status > -4096);
		status = r.hdr.status;
	}
}

/* @fds are closed. */
static int request(struct client *c, const void *msg, size_t size, int *fds, unsigned int nfds)
{
	SCM_BUF(MAX_FDS + 2) ctl;
	struct iovec iov = { (void *)(uintptr_t)msg, size };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	int status = 1;

	scm_attach(&mh, ctl.buf, fds, nfds);
	if (c->fd >= 0 && sendmsg(c->fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
		run_main();
		status = replies(c);
	}
	while (nfds)
		close(fds[--nfds]);
	if (status == 1)
		hang_up(c);
	return status;
}

/* The message and its files may be not what they should be. */
static int send_garbled(struct client *c, struct kit_bytes *in, void *msg, size_t size, int *fds, unsigned int nfds)
{
	static uint8_t buf[2 * MSG_MAX];
	uint8_t how = kit_u8(in);
	size_t n = size;

	memset(buf, 0, sizeof(buf));
	memcpy(buf, msg, size);
	if (how >= 0xe0) {
		n = how & 1 ? kit_u16(in) % sizeof(buf) : size + how % 16 - 8;
		if (how & 2)
			((struct prog_ctrl_hdr *)buf)->size = (uint16_t)n;
	}
	kit_garble(in, buf, n);
	if (how < 0xd0)
		return request(c, buf, n, fds, nfds);
	/* one is missing, another one, one too many */
	if (how & 4 && nfds)
		close(fds[--nfds]);
	if (how & 8 && nfds) {
		close(fds[nfds - 1]);
		fds[nfds - 1] = wrong_file(kit_u8(in));
	}
	for (int i = how & 0x10 ? kit_u8(in) % MAX_FDS : 0; i > 0 && nfds < MAX_FDS + 2; i--)
		fds[nfds++] = wrong_file(kit_u8(in));
	return request(c, buf, n, fds, nfds);
}

static void hello(struct client *c, struct kit_bytes *in)
{
	uint8_t how = kit_u8(in);
	struct prog_ctrl_hello m = {
		.hdr = { .type = PROG_CTRL_HELLO, .size = sizeof(m) }, .magic = PROG_SESSION_MAGIC,
		.abi_major = PROG_ABI_MAJOR, .abi_minor = PROG_ABI_MINOR, .features = PROG_FEAT_HELPER,
		.jobid = { 2 + how % 2 }, .rank = how >> 4,
	};
	int fds[MAX_FDS + 2];

	if (c->fd < 0)
		call(c);
	/* of its key it knows nothing */
	if (how & 8)
		memcpy(m.jobid, good_job, sizeof(m.jobid));
	kit_garble(in, (uint8_t *)&c->seg->h, sizeof(c->seg->h));
	kit_garble(in, (uint8_t *)&c->seg->area, sizeof(c->seg->area));
	fds[0] = dup(c->seg_fd);
	demand(fds[0] >= 0);
	send_garbled(c, in, &m, sizeof(m), fds, 1);
}

static void window(struct client *c, struct kit_bytes *in)
{
	uint8_t how = kit_u8(in);
	struct prog_ctrl_win_create m = {
		.hdr = { .type = PROG_CTRL_WIN_CREATE, .size = sizeof(m) }, .key = KEY + (how & 1), .nranks = RANKS,
		.rank = how >> 1 & 1 ? 2 : 0, .mem = how >> 2 & 7, .region = how >> 5,
	};
	int fds[MAX_FDS + 2];
	unsigned int nfds = 2;
	void *p;

	if (c->fd < 0)
		return;
	if (m.mem != PROG_MEM_MSG_CONTEXT && m.mem != PROG_MEM_NONE)
		m.size = MEM / 2;
	if (m.mem == PROG_MEM_DYNAMIC && kit_u8(in) > 0xc0)
		m.flags = (uint64_t)(1 + kit_u8(in) % 3) << PROG_WINF_COPIES_SHIFT;
	fds[0] = new_file(ctl_size, &p);
	winctl_format(p, m.key, m.rank, RANKS, KIT_RANGES);
	if (kit_u8(in) > 0x40)
		kit_garble(in, p, sizeof(struct prog_win_ctl));
	else
		kit_garble(in, p, ctl_size);
	if (c->ctl[how % WINS])
		munmap(c->ctl[how % WINS], ctl_size);
	c->ctl[how % WINS] = p;
	fds[1] = make_table(in, kit_u8(in) > 0xe0 ? 1 : RANKS);
	if (m.mem == PROG_MEM_SHARED && how < 0xe0) {
		fds[nfds++] = new_file(MEM, &p);
		munmap(p, MEM);
	}
	send_garbled(c, in, &m, sizeof(m), fds, nfds);
}

static void region(struct client *c, struct kit_bytes *in)
{
	struct prog_ctrl_region_add m = { .hdr = { .type = PROG_CTRL_REGION_ADD, .size = sizeof(m) }, .size = MEM };
	int fds[MAX_FDS + 2];
	void *p;

	fds[0] = new_file(MEM, &p);
	munmap(p, MEM);
	send_garbled(c, in, &m, sizeof(m), fds, 1);
}

/* Those without files. */
static void other(struct client *c, struct kit_bytes *in)
{
	static const uint16_t sizes[] = {
		[PROG_CTRL_WIN_PEER] = sizeof(struct prog_ctrl_win_peer), [PROG_CTRL_WIN_FREE] = sizeof(struct prog_ctrl_slot),
		[PROG_CTRL_REGION_DEL] = sizeof(struct prog_ctrl_slot), [PROG_CTRL_PING] = sizeof(struct prog_ctrl_hdr),
		[PROG_CTRL_NOTE] = sizeof(struct prog_ctrl_note), [PROG_CTRL_PIN_DEVICE] = sizeof(struct prog_ctrl_pin_device),
		[PROG_CTRL_PIN_ADD] = sizeof(struct prog_ctrl_pin_add), [PROG_CTRL_WIN_KEYS] = sizeof(struct prog_ctrl_slot),
	};
	union {
		struct prog_ctrl_hdr hdr;
		struct prog_ctrl_win_peer peer;
		struct prog_ctrl_pin_add pin;
		uint8_t bytes[MSG_MAX];
	} m;
	int fds[MAX_FDS + 2];

	memset(&m, 0, sizeof(m));
	/* the newest stands where no input of the corpus has its byte */
	m.hdr.type = kit_u8(in);
	m.hdr.type = m.hdr.type >= 22 * PROG_CTRL_WIN_KEYS ? PROG_CTRL_WIN_KEYS : m.hdr.type % PROG_CTRL_WIN_KEYS;
	m.hdr.size = sizes[m.hdr.type] ? sizes[m.hdr.type] : sizeof(m.hdr);
	m.peer.slot = kit_u8(in) % 8;
	if (m.hdr.type == PROG_CTRL_WIN_PEER)
		m.peer.rank = kit_u8(in) % 4;
	if (m.hdr.type == PROG_CTRL_PIN_ADD)
		m.pin.handle = m.pin.addr = m.pin.size = kit_u8(in);
	send_garbled(c, in, &m, m.hdr.size, fds, 0);
}

/* ---- rings ---- */

static void publish(struct prog_sq *sq, uint32_t *idx, uint32_t n, uint32_t entry)
{
	idx[sq->tail % n] = entry;
	__atomic_store_n(&sq->tail, sq->tail + 1, __ATOMIC_RELEASE);
}

static void operation(struct client *c, struct kit_bytes *in)
{
	struct prog_sqe e = { .opcode = kit_u8(in) % (PROG_SQE_OP_NOTIFY + 2) };
	uint32_t slot = kit_u8(in);

	if (!c->seg)
		return;
	e.flags = kit_u8(in);
	e.op = kit_u8(in) % 16;
	e.etype = kit_u8(in) % 32;
	e.win = kit_u8(in) % WINS;
	e.target = kit_u8(in) % (RANKS + 1);
	e.dtype = kit_u8(in) % 4;
	e.seq = kit_u8(in) > 240 ? kit_u8(in) : ++c->posted[e.target % RANKS];
	e.disp = kit_number(in);
	e.len = kit_number(in);
	e.addr = kit_number(in);
	e.region = kit_u8(in) % 4;
	e.result = kit_u8(in);
	kit_garble(in, (uint8_t *)&e, sizeof(e));
	c->seg->sqe[slot % SLOTS] = e;
	publish(&c->seg->sq[0], c->seg->idx[0], SLOTS, slot < 0xf0 ? slot % SLOTS : slot << 16);
	sync_worker();
}

static void message(struct client *c, struct kit_bytes *in)
{
	uint8_t how = kit_u8(in);
	uint32_t n = kit_u8(in);
	struct prog_p2p_slot *s;

	if (!c->seg)
		return;
	s = &c->seg->slot[n % 8];
	s->serial++;
	s->kind = 1 + (how & 1);
	s->flags = kit_u8(in);
	s->loc = how & 2 ? PROG_SQE_VA : PROG_SQE_REGION;
	s->region = kit_u8(in) % 4;
	s->key = (struct prog_p2p_key){ .comm = 1, .src = kit_u8(in) % 4, .dst = kit_u8(in) % 4, .tag = kit_u8(in) % 2,
					.gen = 1, .ord = kit_u8(in) % 4 };
	s->addr = kit_number(in);
	s->count = s->len = kit_number(in);
	s->dtype = how & 4 ? kit_number(in) : ~0ull;
	s->dtype_len = how & 4 ? kit_number(in) : 0;
	s->peer_slot = kit_u8(in) % 8;
	s->peer_serial = kit_u8(in) % 8;
	s->peer_len = kit_number(in);
	kit_garble(in, (uint8_t *)s, sizeof(*s));
	__atomic_store_n(&s->state, PROG_P2P_POSTED, __ATOMIC_RELEASE);
	publish(&c->seg->p2p_sq[0], c->seg->p2p_idx[0], PROG_P2P_RING,
		(n < 0xf0 ? n % 8 : n << 8) | (how & 0xc0 ? 0 : PROG_P2P_WITHDRAW));
	sync_worker();
}

/* What is shared is not what it was. */
static void scribble(struct client *c, struct kit_bytes *in)
{
	uint8_t how = kit_u8(in);

	if (!c->seg)
		return;
	switch (how % 8) {
	case 0:
		kit_garble(in, (uint8_t *)c->seg->sq, 128);
		break;
	case 1:
		kit_garble(in, (uint8_t *)&c->seg->helper, sizeof(c->seg->helper));
		break;
	case 2:
		__atomic_store_n(&c->seg->helper.done, c->seg->helper.done + how / 64, __ATOMIC_RELEASE);
		break;
	case 3:
		kit_garble(in, c->seg->arena, 512);
		break;
	case 4:
		if (c->ctl[how / 7 % WINS])
			kit_garble(in, (uint8_t *)c->ctl[how / 7 % WINS], ctl_size);
		break;
	case 5:
		/* hints: where it is, whether it waits */
		kit_garble(in, (uint8_t *)&c->seg->h.cpu, sizeof(c->seg->h) - offsetof(struct prog_session_hdr, cpu));
		__atomic_store_n(&c->seg->h.waits, c->seg->h.waits + how / 7, __ATOMIC_RELAXED);
		break;
	case 6:
		kit_garble(in, (uint8_t *)&c->seg->colls, sizeof(c->seg->colls));
		break;
	default:
		kit_garble(in, (uint8_t *)&c->seg->area, sizeof(c->seg->area) + 128);
	}
	sync_worker();
}

static void demand_coll(void *arg, const struct session_coll *c)
{
	demand(c->since && c->session);
}

static void demand_info(void *arg, const struct session_info *i)
{
	demand(i->colls.started <= INT64_MAX && i->colls.left[0] <= INT64_MAX);
}

/* What they say of collectives is looked at as for progctl. */
static void report(void)
{
	sessions_count_colls(sessions);
	sessions_each_coll(sessions, demand_coll, NULL);
	sessions_each(sessions, demand_info, NULL);
}

/* A program of a datatype, in the arena. */
static void datatype(struct client *c, struct kit_bytes *in)
{
	size_t off = kit_u8(in) * 8u, n = kit_u8(in);

	n = n < in->left ? n : in->left;
	if (c->seg)
		memcpy(c->seg->arena + off, in->at, n);
	in->at += n;
	in->left -= n;
}

/* ---- the good session ---- */

static void good_request(const void *msg, size_t size, int *fds, unsigned int nfds)
{
	demand(request(&good, msg, size, fds, nfds) == 0);
}

static void check_good(void)
{
	struct prog_ctrl_hdr ping = { .type = PROG_CTRL_PING, .size = sizeof(ping) };
	uint64_t value = 0x5a5a000000000000ull + ++good_seq;
	struct prog_win_stream *s = (struct prog_win_stream *)((uint8_t *)good.ctl[0] + good.ctl[0]->stream_off);
	struct prog_sqe *e = &good.seg->sqe[0];

	*e = (struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_INLINE, .seq = good_seq, .len = 8,
				.disp = good_seq % 16 * 8 };
	memcpy(e->inl, &value, sizeof(value));
	good_is[good_seq % 16] = value;
	publish(&good.seg->sq[0], good.seg->idx[0], SLOTS, 0);
	/* the fuzzer's own time-out ends this */
	for (sync_worker(); __atomic_load_n(&s->acked, __ATOMIC_ACQUIRE) < good_seq; sync_worker())
		run_main();
	demand(s->acked == good_seq && !s->err);
	demand(!memcmp(good_mem, good_is, sizeof(good_is)));
	for (size_t i = 16; i < MEM / 8; i++)
		demand(!good_mem[i]);
	good_request(&ping, sizeof(ping), NULL, 0);
}

static void good_begin(void)
{
	struct prog_ctrl_hello h = {
		.hdr = { .type = PROG_CTRL_HELLO, .size = sizeof(h) }, .magic = PROG_SESSION_MAGIC,
		.abi_major = PROG_ABI_MAJOR, .abi_minor = PROG_ABI_MINOR,
	};
	struct prog_ctrl_win_create w = {
		.hdr = { .type = PROG_CTRL_WIN_CREATE, .size = sizeof(w) }, .key = KEY, .nranks = 1, .mem = PROG_MEM_SHARED,
		.size = MEM,
	};
	struct kit_bytes none = { NULL, 0 };
	void *p;
	int fds[3];

	good.fd = -1;
	call(&good);
	memcpy(h.jobid, good_job, sizeof(h.jobid));
	memset(h.jobkey, 0xc3, sizeof(h.jobkey));
	fds[0] = dup(good.seg_fd);
	good_request(&h, sizeof(h), fds, 1);
	fds[0] = new_file(ctl_size, &p);
	winctl_format(p, KEY, 0, 1, KIT_RANGES);
	good.ctl[0] = p;
	fds[1] = make_table(&none, 1);
	fds[2] = new_file(MEM, &p);
	good_mem = p;
	good_request(&w, sizeof(w), fds, 3);
	check_good();
}

/* ---- one run ---- */

static void note_user(struct win_job *job, void *arg)
{
	*(struct win_user *)arg = *job->user;
}

static unsigned int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

static void start(void)
{
	static const char *const set[] = { "workers=1", "loop=epoll", "listen=127.0.0.1", "priority=none", "poll_us=0" };
	struct session_opts o = { .node = &node, .hello_timeout_ns = 3600000000000ull };
	struct win_limits lim = { .sessions = 16, .regions = 64, .windows = 64, .bytes = 1u << 28, .streams = 256,
				  .types = 1u << 20, .tables = 1u << 26, .pin = 1u << 20, .pin_cache = 1u << 20 };
	struct conf *conf;
	char err[CONF_ERR];

	log_set_level(PROG_LOG_ERROR - 1);
	demand(!win_sigbus_init() && !conf_new(conf_keys, KEY_COUNT, &conf, err));
	for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++)
		demand(!conf_args_set(conf, "fuzz", set[i]));
	win_limits_set(&lim);
	node = (struct node){ .conf = conf, .client_bad = client_bad, .doorbell_fd = -1,
			      .rndv_conf = { .pool_bytes = 1u << 20, .max_sends = 64 } };
	demand(!loop_new(LOOP_EPOLL, &node.loop) && !node_begin(&node) && !sessions_new(&o, &sessions, err));
	for (unsigned int i = 0; i < CLIENTS; i++)
		clients[i].fd = -1;
	ctl_size = winctl_size(RANKS, KIT_RANGES);
	good_begin();
	win_job_each(note_user, &was);
}

/* Of those who are gone nothing is left. */
static void check_left(void)
{
	struct session_counts n;
	struct win_user now;

	for (unsigned int i = 0; i < CLIENTS; i++)
		hang_up(&clients[i]);
	run_main();
	sync_worker();
	sessions_counts(sessions, &n);
	demand(n.now == 1 && n.connections == 1);
	win_job_each(note_user, &now);
	/* but nodes that something was sent to, which the engines know from then on */
	demand(now.used[USER_TABLES] >= was.used[USER_TABLES]);
	was.used[USER_TABLES] += (now.used[USER_TABLES] - was.used[USER_TABLES]) / LINK_PEER_BYTES * LINK_PEER_BYTES;
	for (int i = 0; i < USER_ITEMS; i++)
		demand(now.used[i] == was.used[i]);
	demand(open_files() < FILES);
}

static void act(struct kit_bytes *in)
{
	uint8_t what = kit_u8(in);
	struct client *c = &clients[(what >> 4) % CLIENTS];

	switch (what % 16) {
	case 0:
		hang_up(c);
		break;
	case 1:
	case 2:
		hello(c, in);
		break;
	case 3:
	case 4:
	case 5:
		window(c, in);
		break;
	case 6:
		region(c, in);
		break;
	case 7:
		other(c, in);
		break;
	case 8:
		scribble(c, in);
		report();
		break;
	case 9:
		datatype(c, in);
		break;
	case 10:
	case 11:
		message(c, in);
		break;
	default:
		operation(c, in);
	}
	run_main();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kit_bytes in = { data, size };

	if (!sessions)
		start();
	while (in.left)
		act(&in);
	report();
	check_good();
	check_left();
	return 0;
}

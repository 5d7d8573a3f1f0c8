// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A hostile client: malformed requests, wrong descriptors, segments that lie, rings full of
 * garbage.  Each time the offender's connection ends or gets an error, the daemon lives, and a
 * well-behaved session beside it goes on.
 *
 * Seeds are printed; PROG_SEED=N repeats one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <asyncprog/ring.h>
#include <kit/badmem.h>
#include <kit/nodes.h>
#include <libprogbase/scm.h>
#include <libprogbase/winctl.h>
#include <progclient.h>
#include <wire/optype.h>

#define SLOTS	64u
#define ARENA	65536u
#define BOUNCE	65536u
#define WIN_BYTES	8192u
#define MEM_BYTES	(1u << 20)

static struct node node;
static struct prog_session *good;
static struct prog_win *good_win;
static uint64_t good_mem[64];
static const char *suppressions;
/* ---- a raw client ---- */

struct raw {
	int sock, seg_fd, ctl_fd, table_fd, bell_fd, kick[PROG_MAX_WORKERS];
	unsigned int workers;
	uint32_t session;
	uint8_t *seg;
	size_t seg_size;
	struct prog_session_hdr *hdr;
	struct prog_p2p_area *area;
	struct prog_coll_area *colls;
	uint8_t guid[16];
	uint32_t win;
	struct prog_win_ctl *ctl;
	uint64_t *mem;			/* window, and room behind it for what the daemon writes */
	uint64_t probe;
};

static int memfd(size_t size, unsigned int seals, void **mem)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	if (mem) {
		*mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_true(*mem != MAP_FAILED);
	}
	return fd;
}

static int send_fds(int sock, const void *msg, size_t size, const int *fds, unsigned int n)
{
	SCM_BUF(32) ctl;
	struct iovec iov = { (void *)(uintptr_t)msg, size };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

	scm_attach(&mh, ctl.buf, fds, n);
	return sendmsg(sock, &mh, MSG_NOSIGNAL) == (ssize_t)size ? 0 : -errno;
}

/* Reply's status; 1: the daemon closed. Descriptors go to @fds (at most 32). */
static int get_reply(int sock, void *rep, size_t size, int *fds, unsigned int *nfds)
{
	SCM_BUF(32) ctl;
	struct iovec iov = { rep, size };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			     .msg_controllen = sizeof(ctl.buf) };
	struct pollfd p = { .fd = sock, .events = POLLIN };
	unsigned int k;

	memset(rep, 0, size);
	assert_int_equal(poll(&p, 1, 20000), 1);
	if (recvmsg(sock, &mh, 0) <= 0)
		return 1;
	k = scm_take(&mh, fds, fds ? 32 : 0);
	if (nfds)
		*nfds = k;
	return ((struct prog_ctrl_hdr *)rep)->status;
}

/* The area for messages, at offset @at. */
static void raw_area(struct raw *r, uint64_t at)
{
	struct prog_p2p_area *a = (struct prog_p2p_area *)(r->seg + at);

	r->hdr->abi_minor = PROG_ABI_MINOR;
	r->hdr->p2p_off = at;
	r->area = a;
	a->nslots = PROG_P2P_SLOTS;
	a->sq_off = at += (sizeof(*a) + 63) & ~63ull;
	a->idx_off = at += PROG_MAX_WORKERS * sizeof(struct prog_sq);
	a->slot_off = at += PROG_MAX_WORKERS * PROG_P2P_RING * 4;
	at += PROG_P2P_SLOTS * sizeof(struct prog_p2p_slot);
	assert_true(at + sizeof(*r->colls) <= r->seg_size);
	r->hdr->coll_off = at;
	r->colls = (struct prog_coll_area *)(r->seg + at);
}

static void raw_segment(struct raw *r)
{
	uint64_t at = 4096;
	void *mem;

	memset(r, 0, sizeof(*r));
	r->sock = nodes_connect(node.sock, SOCK_SEQPACKET);
	if (r->sock < 0)
		fail_msg("cannot connect: %s\n%s", strerror(errno), node_log(&node));
	r->seg_size = 1 << 20;
	r->seg_fd = memfd(r->seg_size, F_SEAL_SHRINK | F_SEAL_GROW, &mem);
	r->seg = mem;
	r->hdr = mem;
	*r->hdr = (struct prog_session_hdr){
		.magic = PROG_SESSION_MAGIC, .abi_major = PROG_ABI_MAJOR, .seg_size = r->seg_size,
		.nrings = PROG_MAX_WORKERS, .slots = SLOTS,
	};
	r->hdr->sq_off = at;
	at += 4096;
	r->hdr->idx_off = at;
	at += PROG_MAX_WORKERS * SLOTS * 4;
	r->hdr->sqe_off = at;
	at += SLOTS * 64;
	at = (at + 4095) & ~4095ull;
	r->hdr->helper_off = at;
	at = (at + sizeof(struct prog_helper_ring) + 4095) & ~4095ull;
	r->hdr->arena_off = at;
	r->hdr->arena_size = ARENA;
	r->hdr->bounce_off = at + ARENA;
	r->hdr->bounce_size = BOUNCE;
	raw_area(r, at + ARENA + BOUNCE);
	r->ctl_fd = r->table_fd = r->bell_fd = -1;
	r->probe = 0x1234567;
	r->mem = mmap(NULL, MEM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(r->mem != MAP_FAILED);
}

static struct prog_ctrl_hello hello_for(struct raw *r)
{
	struct prog_ctrl_hello h = {
		.hdr = { PROG_CTRL_HELLO, sizeof(h), 0 }, .magic = PROG_SESSION_MAGIC,
		.abi_major = PROG_ABI_MAJOR, .cma_probe = (uintptr_t)&r->probe, .cma_value = r->probe,
	};

	memset(h.jobid, 7, sizeof(h.jobid));
	memset(h.jobkey, 9, sizeof(h.jobkey));
	return h;
}

static int raw_hello(struct raw *r, struct prog_ctrl_hello *h)
{
	struct prog_ctrl_hello_reply rep;
	unsigned int nfds = 0;
	int fds[32], st;

	assert_int_equal(send_fds(r->sock, h, sizeof(*h), &r->seg_fd, 1), 0);
	st = get_reply(r->sock, &rep, sizeof(rep), fds, &nfds);
	if (st)
		return st;
	assert_int_equal(nfds, rep.workers + 1);
	r->workers = rep.workers;
	r->session = rep.session;
	r->bell_fd = fds[0];
	for (unsigned int i = 0; i < rep.workers; i++)
		r->kick[i] = fds[i + 1];
	memcpy(r->guid, rep.guid, 16);
	return 0;
}

static int make_table(const uint8_t *guid, uint32_t nranks)
{
	struct { struct prog_win_table t; struct prog_win_node n; uint32_t of[16]; } t;

	memset(&t, 0, sizeof(t));
	t.t.nranks = nranks;
	t.t.nnodes = 1;
	memcpy(t.n.guid, guid, 16);
	void *mem;
	int fd = memfd(4096, F_SEAL_SHRINK, &mem);

	memcpy(mem, &t, sizeof(t));
	munmap(mem, 4096);
	return fd;
}

/*
 * One window of 2 ranks, of which this process is rank @rank, of private memory, or of the memfd
 * @mem_fd if that is not -1.
 */
static int raw_window(struct raw *r, uint64_t key, uint32_t rank, int mem_fd)
{
	size_t size = winctl_size(2, 0);
	struct prog_ctrl_win_create q = {
		.hdr = { PROG_CTRL_WIN_CREATE, sizeof(q), 0 }, .key = key, .rank = rank, .nranks = 2,
		.mem = PROG_MEM_VA, .base = (uintptr_t)r->mem, .size = WIN_BYTES,
		.flags = PROG_WINF_MULTINODE,
	};
	struct prog_ctrl_slot rep;
	void *mem;
	int fds[3] = { -1, -1, mem_fd };

	if (mem_fd >= 0) {
		q.mem = PROG_MEM_SHARED;
		q.base = 0;
	}
	r->ctl_fd = memfd(size, F_SEAL_SHRINK, &mem);
	r->ctl = mem;
	winctl_format(mem, key, rank, 2, 0);
	r->table_fd = make_table(r->guid, 2);
	fds[0] = r->ctl_fd;
	fds[1] = r->table_fd;
	assert_int_equal(send_fds(r->sock, &q, sizeof(q), fds, mem_fd < 0 ? 2 : 3), 0);
	int st = get_reply(r->sock, &rep, sizeof(rep), NULL, NULL);

	r->win = rep.slot;
	return st;
}

static void raw_close(struct raw *r)
{
	close(r->sock);
	close(r->seg_fd);
	if (r->ctl_fd >= 0)
		close(r->ctl_fd);
	if (r->table_fd >= 0)
		close(r->table_fd);
	if (r->bell_fd >= 0)
		close(r->bell_fd);
	for (unsigned int i = 0; i < r->workers; i++)
		close(r->kick[i]);
	munmap(r->seg, r->seg_size);
	munmap(r->mem, MEM_BYTES);
	if (r->ctl)
		munmap(r->ctl, winctl_size(2, 0));
}

static void raw_kick(struct raw *r)
{
	uint64_t one = 1;

	for (unsigned int i = 0; i < r->workers; i++)
		assert_int_equal(write(r->kick[i], &one, 8), 8);
}

static struct prog_sq *raw_sq(struct raw *r, unsigned int w)
{
	return (struct prog_sq *)(r->seg + r->hdr->sq_off) + w;
}

static uint32_t *raw_idx(struct raw *r, unsigned int w)
{
	return (uint32_t *)(r->seg + r->hdr->idx_off) + w * SLOTS;
}

static struct prog_sqe *raw_sqe(struct raw *r)
{
	return (struct prog_sqe *)(r->seg + r->hdr->sqe_off);
}

/* Did the daemon end the connection? */
static bool closed(int sock, int timeout_ms)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	char c;

	return poll(&p, 1, timeout_ms) == 1 && recv(sock, &c, 1, MSG_DONTWAIT) <= 0;
}

/* ---- the good one ---- */

static void still_good(void)
{
	static uint64_t v;
	struct prog_buf o = { &v, NULL, 8 };
	struct prog_dst t = { 0, 8, NULL, 8 };
	uint64_t seq;

	assert_int_equal(waitpid(node.pid, NULL, WNOHANG), 0);
	assert_int_equal(prog_session_ping(good), 0);
	v++;
	assert_int_equal(prog_put(good_win, &o, &t, 0, &seq), 0);
	assert_int_equal(prog_flush(good_win, 0), 0);
	assert_int_equal(good_mem[1], v);
}

/*
 * A client that gives two workers the same buffer gets a race in its own memory, which is its own
 * business: the thread sanitizer of the daemon must not report it.
 */
static void suppress_client_races(void)
{
	static char path[] = "/tmp/progd-tsan-XXXXXX", text[64];
	int fd = mkstemp(path);

	if (fd < 0)
		return;
	dprintf(fd, "race:^origin_data$\nrace:^exec_write$\nrace:^send_one$\nrace:^ts_send$\n");
	close(fd);
	snprintf(text, sizeof(text), "suppressions=%s", path);
	setenv("TSAN_OPTIONS", text, 1);
	suppressions = path;
}

static int setup(void **state)
{
	static const char *const sets[] = { "workers=2", "hello_timeout=300ms", "quota_windows=20",
					    "p2p_eager=1M", "p2p_eager_max=1M",
					    "quota_regions=20", "quota_sessions=20", NULL };
	struct prog_session_cfg cfg = { .socket = node.sock };
	struct prog_win_cfg wc = { .kind = PROG_WIN_CREATE, .key = 1, .nranks = 1, .base = good_mem,
				   .size = sizeof(good_mem) };
	struct prog_endpoint ep;
	const char *why = "";

	suppress_client_races();
	if (node_start(&node, sets))
		return -1;
	prog_job_key_make(cfg.jobid, cfg.jobkey);
	if (prog_session_open(&cfg, &good, &why)) {
		fprintf(stderr, "%s\n", why);
		return -1;
	}
	if (prog_win_open(good, &wc, &good_win))
		return -1;
	prog_win_endpoint(good_win, &ep);
	if (prog_win_connect(good_win, &ep, &why) || prog_win_map(good_win, NULL))
		return -1;
	return 0;
}

static int teardown(void **state)
{
	int r;

	prog_win_close(good_win);
	prog_session_close(good);
	r = node_stop(&node, SIGTERM);
	if (suppressions)
		unlink(suppressions);
	/* cmocka does not count this */
	return r ? -1 : 0;
}

/* ---- tests ---- */

static void test_hello(void **state)
{
	struct prog_ctrl_hello h;
	struct raw r;

#define BAD_HELLO(change) do { \
		raw_segment(&r); \
		h = hello_for(&r); \
		change; \
		assert_true(raw_hello(&r, &h) != 0); \
		raw_close(&r); \
		still_good(); \
	} while (0)
	BAD_HELLO(h.magic++);
	BAD_HELLO(h.abi_major++);
	BAD_HELLO(h.hdr.size--);
	BAD_HELLO(h.hdr.size++);
	BAD_HELLO(h.hdr.type = 99);
	BAD_HELLO(h.hdr.type = 0);
	BAD_HELLO(h.hdr.type = PROG_CTRL_WIN_CREATE);
	BAD_HELLO(r.hdr->magic++);
	BAD_HELLO(r.hdr->abi_major++);
	BAD_HELLO(r.hdr->seg_size = r.seg_size + 1);
	BAD_HELLO(r.hdr->seg_size = 0);
	BAD_HELLO(r.hdr->nrings = 1);
	BAD_HELLO(r.hdr->nrings = PROG_MAX_WORKERS + 1);
	BAD_HELLO(r.hdr->slots = 0);
	BAD_HELLO(r.hdr->slots = 65);
	BAD_HELLO(r.hdr->slots = 1u << 31);
	BAD_HELLO(r.hdr->sq_off = r.seg_size);
	BAD_HELLO(r.hdr->sq_off = ~0ull);
	BAD_HELLO(r.hdr->sq_off += 4);
	BAD_HELLO(r.hdr->idx_off = r.seg_size - 4);
	BAD_HELLO(r.hdr->idx_off = ~3ull);
	BAD_HELLO(r.hdr->sqe_off = r.seg_size - 64);
	BAD_HELLO(r.hdr->sqe_off++);
	BAD_HELLO(r.hdr->arena_size = ~0ull);
	BAD_HELLO(r.hdr->arena_off = ~7ull);
	BAD_HELLO(h.features = PROG_FEAT_HELPER; r.hdr->helper_off = r.seg_size - 64);
	BAD_HELLO(h.features = PROG_FEAT_HELPER; r.hdr->bounce_size = ~0ull);
	BAD_HELLO(r.hdr->p2p_off = r.seg_size - 64);
	BAD_HELLO(r.hdr->p2p_off += 8);
	BAD_HELLO(r.hdr->p2p_off = ~63ull);
	BAD_HELLO(r.area->nslots--);
	BAD_HELLO(r.area->nslots = 0);
	BAD_HELLO(r.area->sq_off = ~63ull);
	BAD_HELLO(r.area->sq_off += 4);
	BAD_HELLO(r.area->idx_off = r.seg_size - 4);
	BAD_HELLO(r.area->idx_off = ~3ull);
	BAD_HELLO(r.area->slot_off = r.seg_size - 512);
	BAD_HELLO(r.area->slot_off++);
	BAD_HELLO(r.area->slot_off = ~7ull);
	BAD_HELLO(r.hdr->coll_off = r.seg_size - 64);
	BAD_HELLO(r.hdr->coll_off += 8);
	BAD_HELLO(r.hdr->coll_off = ~63ull);
	BAD_HELLO(close(r.seg_fd); r.seg_fd = memfd(1 << 20, 0, NULL));
	BAD_HELLO(close(r.seg_fd); r.seg_fd = memfd(1 << 20, F_SEAL_GROW, NULL));
	BAD_HELLO(close(r.seg_fd); r.seg_fd = memfd(64, F_SEAL_SHRINK, NULL));
	BAD_HELLO(close(r.seg_fd); r.seg_fd = memfd(1 << 20, F_SEAL_SHRINK | F_SEAL_WRITE, NULL));
	BAD_HELLO(close(r.seg_fd); r.seg_fd = open("/dev/null", O_RDWR));
	BAD_HELLO(close(r.seg_fd); r.seg_fd = open("/proc/self/exe", O_RDONLY));
	BAD_HELLO(close(r.seg_fd); r.seg_fd = eventfd(0, 0));
	BAD_HELLO(close(r.seg_fd); r.seg_fd = dup(r.sock));

	/* said twice */
	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	assert_true(send_fds(r.sock, &h, sizeof(h), &r.seg_fd, 1) == 0);
	struct prog_ctrl_hello_reply rep;

	assert_true(get_reply(r.sock, &rep, sizeof(rep), NULL, NULL) != 0);
	assert_true(closed(r.sock, 20000));
	raw_close(&r);
	still_good();

	/* other key, same job */
	struct raw a;

	raw_segment(&a);
	h = hello_for(&a);
	assert_int_equal(raw_hello(&a, &h), 0);
	raw_segment(&r);
	h = hello_for(&r);
	h.jobkey[31]++;
	assert_int_equal(raw_hello(&r, &h), -EACCES);
	raw_close(&r);
	raw_close(&a);
	still_good();

	/* nothing said */
	raw_segment(&r);
	assert_true(closed(r.sock, 20000));
	raw_close(&r);
	still_good();
}

static void test_messages(void **state)
{
	struct prog_ctrl_slot slot = { .hdr = { 0, sizeof(slot), 0 } };
	struct prog_ctrl_hello h;
	uint8_t junk[4096];
	int fds[20];
	struct raw r;
	int st;

	for (int k = 0; k < 200; k++) {
		size_t n = 1 + rnd() % (k % 10 ? 256 : sizeof(junk));
		unsigned int nfds = rnd() % 4 ? 0 : 1 + rnd() % 12;

		raw_segment(&r);
		h = hello_for(&r);
		assert_int_equal(raw_hello(&r, &h), 0);
		for (size_t i = 0; i < n; i++)
			junk[i] = rnd() % 3 ? 0 : rnd();
		if (n >= 8 && rnd() % 4) {
			((struct prog_ctrl_hdr *)junk)->size = n;
			((struct prog_ctrl_hdr *)junk)->type = 1 + rnd() % 8;
		}
		for (unsigned int i = 0; i < nfds; i++)
			fds[i] = rnd() % 2 ? r.seg_fd : r.sock;
		send_fds(r.sock, junk, n, fds, nfds);
		get_reply(r.sock, junk, sizeof(junk), NULL, NULL);
		raw_close(&r);
		if (k % 20 == 0)
			still_good();
	}
	/* valid requests about things that are not there */
	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	for (int k = 0; k < 2; k++) {
		slot.hdr.type = k ? PROG_CTRL_WIN_FREE : PROG_CTRL_REGION_DEL;
		for (uint64_t s = 0; s < 33; s++) {
			slot.slot = s ? 1ull << (s - 1) : 0;
			slot.hdr.status = 0;
			assert_int_equal(send_fds(r.sock, &slot, sizeof(slot), NULL, 0), 0);
			struct prog_ctrl_slot rep;

			st = get_reply(r.sock, &rep, sizeof(rep), NULL, NULL);
			assert_int_equal(st, -ENOENT);
		}
	}
	raw_close(&r);
	still_good();
}

static void test_windows(void **state)
{
	struct prog_ctrl_hello h;
	struct raw r;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	assert_int_equal(raw_window(&r, 5, 0, -1), 0);
	/* the same again */
	assert_int_equal(raw_window(&r, 5, 0, -1), -EEXIST);
	/* a table that takes as long to read as its user likes, or for ever: it is not read */
	char path[] = "/tmp/progd-table-XXXXXX";
	uint8_t bytes[4096];
	int kept = r.table_fd, file = mkstemp(path);

	assert_true(file >= 0);
	unlink(path);
	assert_int_equal(pread(kept, bytes, sizeof(bytes), 0), sizeof(bytes));
	assert_int_equal(write(file, bytes, sizeof(bytes)), sizeof(bytes));
	{
		struct prog_ctrl_win_create q = {
			.hdr = { PROG_CTRL_WIN_CREATE, sizeof(q), 0 }, .key = 6, .nranks = 2,
		};
		int fds[2] = { memfd(winctl_size(2, 0), F_SEAL_SHRINK, NULL), file };
		struct prog_ctrl_slot rep;
		void *mem = mmap(NULL, winctl_size(2, 0), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);

		winctl_format(mem, 6, 0, 2, 0);
		munmap(mem, winctl_size(2, 0));
		assert_int_equal(send_fds(r.sock, &q, sizeof(q), fds, 2), 0);
		assert_int_equal(get_reply(r.sock, &rep, sizeof(rep), NULL, NULL), -EINVAL);
		assert_string_equal(rep.reason, "the window's table is not a memfd");
		close(fds[0]);
	}
	close(file);
	/* one that lies in every field of its control segment in turn */
	for (size_t field = 0; field < 200; field++) {
		size_t size = winctl_size(2, 4);
		struct prog_ctrl_win_create q = {
			.hdr = { PROG_CTRL_WIN_CREATE, sizeof(q), 0 }, .key = 100 + field, .rank = 1,
			.nranks = 2, .mem = PROG_MEM_VA, .base = (uintptr_t)r.mem,
			.size = WIN_BYTES,
		};
		struct prog_ctrl_slot rep;
		int fds[2];
		void *mem;

		fds[0] = memfd(size, F_SEAL_SHRINK, &mem);
		winctl_format(mem, 100 + field, 1, 2, 4);
		((uint8_t *)mem)[rnd() % sizeof(struct prog_win_ctl)] ^= 1u << rnd() % 8;
		((uint64_t *)mem)[rnd() % (sizeof(struct prog_win_ctl) / 8)] = rnd() % 2 ? rnd() : ~0ull;
		fds[1] = make_table(r.guid, field % 5 ? 2 : rnd());
		if (field % 7 == 0)
			q.rank = rnd();
		if (field % 11 == 0)
			q.mem = rnd() % 8;
		if (field % 13 == 0)
			q.nranks = rnd();
		assert_int_equal(send_fds(r.sock, &q, sizeof(q), fds, 2), 0);
		if (!get_reply(r.sock, &rep, sizeof(rep), NULL, NULL)) {
			struct prog_ctrl_slot f = {
				.hdr = { PROG_CTRL_WIN_FREE, sizeof(f), 0 }, .slot = rep.slot,
			};

			assert_int_equal(send_fds(r.sock, &f, sizeof(f), NULL, 0), 0);
			assert_int_equal(get_reply(r.sock, &rep, sizeof(rep), NULL, NULL), 0);
		}
		munmap(mem, size);
		close(fds[0]);
		close(fds[1]);
	}
	raw_close(&r);
	still_good();
}

/* @n windows by one request, the control segment of @bad (if it is one) of another rank. */
static int raw_copies(struct raw *r, const struct prog_ctrl_win_create *base, uint32_t n, size_t each, uint32_t bad,
		      uint32_t *slot)
{
	struct prog_ctrl_win_create q = *base;
	struct prog_ctrl_slot rep;
	int fds[2], st;
	void *mem;

	fds[0] = memfd(n * each, F_SEAL_SHRINK, &mem);
	for (uint32_t i = 0; i < n && each >= winctl_size(2, 4); i++)
		winctl_format((char *)mem + i * each, q.key + i, i != bad, 2, 4);
	fds[1] = make_table(r->guid, 2);
	q.flags |= (uint64_t)(n - 1) << PROG_WINF_COPIES_SHIFT;
	assert_int_equal(send_fds(r->sock, &q, sizeof(q), fds, 2), 0);
	st = get_reply(r->sock, &rep, sizeof(rep), NULL, NULL);
	if (slot)
		*slot = rep.slot;
	munmap(mem, n * each);
	close(fds[0]);
	close(fds[1]);
	return st;
}

/* Several windows by one request: all or none, with what belongs to them. */
static void test_copies(void **state)
{
	size_t each = winctl_size(2, 4);
	struct prog_ctrl_hello h;
	struct raw r;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	/* the daemon's quota is 20 windows: what a refused request leaves would soon be noticed */
	for (uint32_t i = 0; i < 30; i++) {
		struct prog_ctrl_win_create q = {
			.hdr = { PROG_CTRL_WIN_CREATE, sizeof(q), 0 }, .key = 7000, .rank = 1, .nranks = 2,
			.mem = PROG_MEM_DYNAMIC,
		};
		uint32_t slot;

		assert_int_equal(raw_copies(&r, &q, 8, each, i % 8, NULL), -EPROTO);
		assert_int_equal(raw_copies(&r, &q, 8, each - 64, 9, NULL), -EPROTO);
		assert_int_equal(raw_copies(&r, &q, 64, each, 64, NULL), -EDQUOT);
		assert_int_equal(raw_copies(&r, &q, 65, each, 65, NULL), -EINVAL);
		q.key = ~0ull - 2;
		assert_int_equal(raw_copies(&r, &q, 8, each, 8, NULL), -EINVAL);
		q.key = 7000;
		q.mem = i % 2 ? PROG_MEM_VA : PROG_MEM_MSG_CONTEXT;
		assert_int_equal(raw_copies(&r, &q, 8, each, 8, NULL), -EINVAL);
		q.mem = PROG_MEM_DYNAMIC;
		/* one of the keys is taken */
		assert_int_equal(raw_copies(&r, &q, 4, each, 4, &slot), 0);
		q.key = 6998;
		assert_int_equal(raw_copies(&r, &q, 8, each, 8, NULL), -EEXIST);
		for (uint32_t k = 0; k < 4; k++) {
			struct prog_ctrl_slot f = {
				.hdr = { PROG_CTRL_WIN_FREE, sizeof(f), 0 }, .slot = slot + k,
			}, rep;

			assert_int_equal(send_fds(r.sock, &f, sizeof(f), NULL, 0), 0);
			assert_int_equal(get_reply(r.sock, &rep, sizeof(rep), NULL, NULL), 0);
		}
	}
	raw_close(&r);
	still_good();
}

static void free_slot(struct raw *r, uint32_t slot)
{
	struct prog_ctrl_slot f = { .hdr = { PROG_CTRL_WIN_FREE, sizeof(f), 0 }, .slot = slot }, rep;

	assert_int_equal(send_fds(r->sock, &f, sizeof(f), NULL, 0), 0);
	assert_int_equal(get_reply(r->sock, &rep, sizeof(rep), NULL, NULL), 0);
}

/* A window's slot is the lowest that is free, those of several at once are the lowest in a row: no slot is lost. */
static void test_slots(void **state)
{
	size_t each = winctl_size(2, 4);
	struct prog_ctrl_win_create q = {
		.hdr = { PROG_CTRL_WIN_CREATE, sizeof(q), 0 }, .key = 7000, .rank = 1, .nranks = 2, .mem = PROG_MEM_DYNAMIC,
	};
	struct prog_ctrl_hello h;
	struct raw r;
	uint32_t slot;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	assert_int_equal(raw_copies(&r, &q, 4, each, 4, &slot), 0);
	assert_int_equal(slot, 0);
	free_slot(&r, 1);
	free_slot(&r, 2);
	/* the gap is too small for these, and stays */
	q.key = 8000;
	assert_int_equal(raw_copies(&r, &q, 4, each, 4, &slot), 0);
	assert_int_equal(slot, 4);
	/* nor is it lost to some that fail */
	q.key = 9000;
	assert_int_equal(raw_copies(&r, &q, 2, each, 1, NULL), -EPROTO);
	assert_int_equal(raw_copies(&r, &q, 2, each, 2, &slot), 0);
	assert_int_equal(slot, 1);
	q.key = 10000;
	assert_int_equal(raw_copies(&r, &q, 2, each, 2, &slot), 0);
	assert_int_equal(slot, 8);
	free_slot(&r, 3);
	q.key = 11000;
	assert_int_equal(raw_copies(&r, &q, 1, each, 1, &slot), 0);
	assert_int_equal(slot, 3);
	raw_close(&r);
	still_good();
}

static void test_quotas(void **state)
{
	struct prog_ctrl_hello h;
	struct raw r, more[40];
	int st = 0, n;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	for (n = 0; !st && n < 40; n++) {
		struct prog_ctrl_region_add q = { { PROG_CTRL_REGION_ADD, sizeof(q), 0 }, 4096 };
		struct prog_ctrl_slot rep;
		int fd = memfd(4096, F_SEAL_SHRINK, NULL);

		assert_int_equal(send_fds(r.sock, &q, sizeof(q), &fd, 1), 0);
		st = get_reply(r.sock, &rep, sizeof(rep), NULL, NULL);
		close(fd);
		if (st)
			assert_non_null(strstr(rep.reason, "quota_regions"));
	}
	assert_int_equal(st, -EDQUOT);
	assert_int_equal(n, 21);
	raw_close(&r);
	for (n = 0, st = 0; n < 40; n++) {
		raw_segment(&more[n]);
		h = hello_for(&more[n]);
		st = raw_hello(&more[n], &h);
		if (st)
			break;
	}
	assert_int_equal(st, -EDQUOT);
	assert_true(n < 20);
	for (int i = 0; i <= n; i++)
		raw_close(&more[i]);
	still_good();
	/* all of it is free again, as soon as the daemon has seen the ends */
	for (int i = 0; i < 1000; i++) {
		raw_segment(&r);
		h = hello_for(&r);
		st = raw_hello(&r, &h);
		raw_close(&r);
		if (!st)
			break;
		usleep(1000);
	}
	assert_int_equal(st, 0);
}

static void set_limit(const char *key, const char *value)
{
	char args[64];

	snprintf(args, sizeof(args), "conf set %s %s", key, value);
	if (!strstr(node_progctl(&node, args), value))
		fail_msg("%s: %s", args, node_progctl(&node, args));
}

/* A region of @size; its slot, or a negative errno and *@rep. */
static int add_region(struct raw *r, int fd, size_t size, struct prog_ctrl_slot *rep)
{
	struct prog_ctrl_region_add q = { { PROG_CTRL_REGION_ADD, sizeof(q), 0 }, size };
	int st;

	assert_int_equal(send_fds(r->sock, &q, sizeof(q), &fd, 1), 0);
	st = get_reply(r->sock, rep, sizeof(*rep), NULL, NULL);
	return st ? st : (int)rep->slot;
}

/* Limits that an operator sets, and those of the daemon itself: what is refused says which, and nothing is lost by it. */
static void test_limits(void **state)
{
	int small = memfd(4096, F_SEAL_SHRINK, NULL), large = memfd(65 << 20, F_SEAL_SHRINK, NULL), n;
	struct prog_ctrl_slot rep, bare = { .hdr = { PROG_CTRL_WIN_FREE, sizeof(bare), 0 } };
	struct prog_ctrl_hello h;
	struct raw r;

	raw_segment(&r);
	assert_int_equal(send_fds(r.sock, &bare, sizeof(bare), NULL, 0), 0);
	assert_true(closed(r.sock, 10000));
	raw_close(&r);

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	set_limit("quota_bytes", "64M");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(add_region(&r, large, 65 << 20, &rep), -EDQUOT);
		assert_non_null(strstr(rep.reason, "quota_bytes"));
	}
	assert_int_equal(add_region(&r, small, 4096, &rep), 0);
	set_limit("quota_bytes", "64T");
	assert_int_equal(add_region(&r, large, 65 << 20, &rep), 1);
	set_limit("quota_regions", "65536");
	for (n = 2; n < 65536; n++)
		if (add_region(&r, small, 4096, &rep) != n)
			break;
	assert_int_equal(n, 16384);
	assert_int_equal(rep.hdr.status, -ENOSPC);
	assert_non_null(strstr(rep.reason, "too many regions of one process"));
	set_limit("quota_regions", "20");
	raw_close(&r);

	/* the good one is there, and this would be another job of its user */
	set_limit("quota_sessions", "1");
	raw_segment(&r);
	memset(h.jobid, 8, sizeof(h.jobid));
	assert_int_equal(raw_hello(&r, &h), -EDQUOT);
	raw_close(&r);
	set_limit("quota_sessions", "20");
	raw_segment(&r);
	h.cma_probe = (uintptr_t)&r.probe;
	assert_int_equal(raw_hello(&r, &h), 0);
	raw_close(&r);
	close(small);
	close(large);
	still_good();
}

/* ---- descriptors ---- */

static void files_limit(pid_t pid, rlim_t cur, struct rlimit *old)
{
	struct rlimit rl;

	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, old), 0);
	rl = *old;
	rl.rlim_cur = cur;
	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &rl, NULL), 0);
}

/* A request of @type with @n descriptors too many is refused with a reason that names it. */
static void too_many(struct raw *r, uint16_t type, size_t size, unsigned int n, size_t reason)
{
	union { struct prog_ctrl_hdr hdr; char bytes[512]; } q = { .hdr = { type, size, 0 } }, rep;
	int fds[32];

	for (unsigned int i = 0; i < n; i++)
		fds[i] = r->seg_fd;
	assert_int_equal(send_fds(r->sock, &q, size, fds, n), 0);
	assert_int_equal(get_reply(r->sock, &rep, sizeof(rep), NULL, NULL), -EPROTO);
	assert_int_equal(rep.hdr.type, type);
	if (reason)
		assert_non_null(strstr(rep.bytes + reason, n > 8 ? "more than 8 descriptors" :
				       "more descriptors than this request has"));
}

/* The request fails, nothing else: neither the session, nor its windows, nor the daemon's descriptors. */
static void test_descriptors_many(void **state)
{
	static const struct { uint16_t type; size_t size; unsigned int max; size_t reason; } kinds[] = {
		{ PROG_CTRL_WIN_CREATE, sizeof(struct prog_ctrl_win_create), 3,
		  offsetof(struct prog_ctrl_slot, reason) },
		{ PROG_CTRL_WIN_PEER, sizeof(struct prog_ctrl_win_peer), 0,
		  offsetof(struct prog_ctrl_win_peer_reply, reason) },
		{ PROG_CTRL_WIN_FREE, sizeof(struct prog_ctrl_slot), 0, offsetof(struct prog_ctrl_slot, reason) },
		{ PROG_CTRL_REGION_ADD, sizeof(struct prog_ctrl_region_add), 1,
		  offsetof(struct prog_ctrl_slot, reason) },
		{ PROG_CTRL_REGION_DEL, sizeof(struct prog_ctrl_slot), 0, offsetof(struct prog_ctrl_slot, reason) },
		{ PROG_CTRL_PIN_DEVICE, sizeof(struct prog_ctrl_pin_device), 1,
		  offsetof(struct prog_ctrl_slot, reason) },
		{ PROG_CTRL_PIN_ADD, sizeof(struct prog_ctrl_pin_add), 0, offsetof(struct prog_ctrl_slot, reason) },
		{ PROG_CTRL_NOTE, sizeof(struct prog_ctrl_note), 0, 0 },
		{ PROG_CTRL_PING, sizeof(struct prog_ctrl_hdr), 0, 0 },
	};
	struct prog_ctrl_hello h;
	struct rlimit old;
	struct raw r, twin;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	assert_int_equal(raw_window(&r, 5, 0, -1), 0);
	/* one that stays behind for each request would be noticed */
	files_limit(node.pid, 512, &old);
	for (unsigned int i = 0; i < 600; i++) {
		unsigned int k = i % (sizeof(kinds) / sizeof(kinds[0]));

		too_many(&r, kinds[k].type, kinds[k].size, kinds[k].max + 1 + i % (20 - kinds[k].max),
			 kinds[k].reason);
	}
	/* the window is there as before: other ranks of this node find it */
	raw_segment(&twin);
	h = hello_for(&twin);
	assert_int_equal(raw_hello(&twin, &h), 0);
	assert_int_equal(raw_window(&twin, 5, 1, -1), 0);
	assert_int_equal(raw_window(&r, 6, 0, -1), 0);
	raw_close(&twin);
	raw_close(&r);

	/* no session without its segment */
	raw_segment(&r);
	h = hello_for(&r);
	int fds[12] = { r.seg_fd, r.seg_fd, 0 };
	struct prog_ctrl_hello_reply rep;

	assert_int_equal(send_fds(r.sock, &h, sizeof(h), fds, 12), 0);
	assert_int_equal(get_reply(r.sock, &rep, sizeof(rep), NULL, NULL), -EPROTO);
	assert_non_null(strstr(rep.reason, "more than 8 descriptors"));
	assert_true(closed(r.sock, 20000));
	raw_close(&r);
	files_limit(node.pid, old.rlim_cur, &old);
	still_good();
}

/* A daemon at its limit of open files refuses what comes with descriptors, and goes on. */
static void test_descriptors_daemon(void **state)
{
	struct prog_ctrl_hdr ping = { PROG_CTRL_PING, sizeof(ping), 0 };
	unsigned int refused = 0;
	struct prog_ctrl_hello h;
	struct raw r, late;
	struct rlimit old;
	int st = -EMFILE;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	assert_int_equal(raw_window(&r, 5, 0, -1), 0);
	/* connected, not attached */
	raw_segment(&late);
	assert_int_equal(send_fds(late.sock, &ping, sizeof(ping), NULL, 0), 0);
	assert_int_equal(get_reply(late.sock, &ping, sizeof(ping), NULL, NULL), 0);

	files_limit(node.pid, 3, &old);
	h = hello_for(&late);
	assert_int_equal(raw_hello(&late, &h), -EMFILE);
	assert_true(closed(late.sock, 20000));
	raw_close(&late);
	/* from none that is left to enough: one of two may come through */
	for (rlim_t left = 3; st == -EMFILE && left < 400; left++) {
		struct prog_ctrl_win_create q = {
			.hdr = { PROG_CTRL_WIN_CREATE, sizeof(q), 0 }, .key = 6, .rank = 0, .nranks = 2,
			.mem = PROG_MEM_VA, .base = (uintptr_t)r.mem, .size = WIN_BYTES,
		};
		int fds[2] = { memfd(winctl_size(2, 0), F_SEAL_SHRINK, NULL), make_table(r.guid, 2) };
		struct prog_ctrl_slot rep;
		void *mem = mmap(NULL, winctl_size(2, 0), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);

		winctl_format(mem, 6, 0, 2, 0);
		munmap(mem, winctl_size(2, 0));
		files_limit(node.pid, left, &(struct rlimit){ 0 });
		assert_int_equal(send_fds(r.sock, &q, sizeof(q), fds, 2), 0);
		st = get_reply(r.sock, &rep, sizeof(rep), NULL, NULL);
		if (st) {
			assert_int_equal(st, -EMFILE);
			assert_non_null(strstr(rep.reason, "no descriptor left"));
			refused++;
			assert_int_equal(prog_session_ping(good), 0);
		}
		close(fds[0]);
		close(fds[1]);
	}
	files_limit(node.pid, old.rlim_cur, &old);
	assert_int_equal(st, 0);
	assert_true(refused > 1);
	/* the first window has lived through it */
	assert_int_equal(raw_window(&r, 5, 0, -1), -EEXIST);
	raw_close(&r);
	still_good();
}

/* A client at its limit does not get the answer's descriptors: the request fails, the session goes on. */
static void test_descriptors_client(void **state)
{
	struct prog_session_cfg cfg = { .socket = node.sock };
	struct prog_session *s[2];
	struct prog_endpoint ep[2];
	struct prog_win *w[2];
	const char *why = "";
	struct rlimit old;

	prog_job_key_make(cfg.jobid, cfg.jobkey);
	for (uint32_t i = 0; i < 2; i++) {
		struct prog_win_cfg wc = { .kind = PROG_WIN_ALLOCATE, .key = 1, .rank = i, .nranks = 2,
					   .size = 4096 };

		assert_int_equal(prog_session_open(&cfg, &s[i], &why), 0);
		assert_int_equal(prog_win_open(s[i], &wc, &w[i]), 0);
		prog_win_endpoint(w[i], &ep[i]);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(prog_win_connect(w[i], ep, &why), 0);
	files_limit(0, 3, &old);
	int err = prog_win_map(w[0], NULL), ping = prog_session_ping(s[0]);

	files_limit(0, old.rlim_cur, &old);
	assert_int_equal(err, -EMFILE);
	assert_int_equal(ping, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(prog_win_map(w[i], NULL), 0);
	for (int i = 0; i < 2; i++)
		prog_win_close(w[i]);
	for (int i = 0; i < 2; i++)
		prog_session_close(s[i]);
	still_good();
}

/* Each kind of corruption ends the session with one line that names it. */
static void test_ring(void **state)
{
	struct prog_ctrl_hello h;
	struct raw r;
	static const struct prog_sqe ok = {
		.opcode = PROG_SQE_OP_PUT, .target = 0, .seq = 1, .len = 8,
	};
	struct {
		const char *what;
		struct prog_sqe e;
		uint32_t slot, tail;
	} bad[] = {
		{ "slot 64 of 64", ok, 64, 1 },
		{ "entries ahead", ok, 0, 65 },
		{ "opcode 200", ok, 0, 1 },
		{ "flags 0xff", ok, 0, 1 },
		{ "no window", ok, 0, 1 },
		{ "target 2 of 2", ok, 0, 1 },
		{ "target 1 in ring 0", ok, 0, 1 },
		{ "no sub-stream of target 1", ok, 0, 1 },
		{ "bytes inline", ok, 0, 1 },
		{ "outside the arena", ok, 0, 1 },
		{ "outside region 5", ok, 0, 1 },
		{ "wraps around", ok, 0, 1 },
		{ "operation 99 on type 0", ok, 0, 1 },
		{ "part of an element", ok, 0, 1 },
		{ "out of range", ok, 0, 1 },
		{ "compare-and-swap", ok, 0, 1 },
		{ "result outside", ok, 0, 1 },
		{ "empty datatype", ok, 0, 1 },
		{ "opcode 7 with a length", ok, 0, 1 },
		{ "number 7 after 0", ok, 0, 1 },
	};

	bad[2].e.opcode = 200;
	bad[3].e.flags = 0xff;
	bad[4].e.win = 1234;
	bad[5].e.target = 2;
	bad[6].e.target = 1;
	bad[7].e.target = 1;
	bad[7].e.flags = PROG_SQE_SUB;
	bad[8].e.len = 17;
	bad[9].e.flags = PROG_SQE_ARENA;
	bad[9].e.addr = ARENA - 7;
	bad[10].e.flags = PROG_SQE_REGION;
	bad[10].e.region = 5;
	bad[11].e.flags = PROG_SQE_VA;
	bad[11].e.addr = ~0ull;
	bad[12].e.opcode = PROG_SQE_OP_ACC;
	bad[12].e.op = 99;
	bad[13].e.opcode = PROG_SQE_OP_ACC;
	bad[13].e.op = PROG_OP_SUM;
	bad[13].e.etype = PROG_TYPE_I64;
	bad[13].e.len = 7;
	bad[14].e.len = ~0ull;
	bad[15].e.opcode = PROG_SQE_OP_CAS;
	bad[15].e.etype = PROG_TYPE_I64;
	bad[16].e.opcode = PROG_SQE_OP_GET_ACC;
	bad[16].e.op = PROG_OP_SUM;
	bad[16].e.etype = PROG_TYPE_I64;
	bad[16].e.flags = PROG_SQE_ARENA;
	bad[16].e.result = ~0u;
	bad[17].e.opcode = PROG_SQE_OP_DTYPE;
	bad[18].e.opcode = PROG_SQE_OP_LOCK;
	bad[19].e.seq = 7;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		raw_segment(&r);
		h = hello_for(&r);
		assert_int_equal(raw_hello(&r, &h), 0);
		assert_int_equal(raw_window(&r, 5, 1, -1), 0);
		if (bad[i].e.win == 0)
			bad[i].e.win = r.win;
		raw_sqe(&r)[0] = bad[i].e;
		raw_idx(&r, 0)[0] = bad[i].slot;
		__atomic_store_n(&raw_sq(&r, 0)->tail, bad[i].tail, __ATOMIC_RELEASE);
		raw_kick(&r);
		if (!closed(r.sock, 20000))
			fail_msg("not closed: %s", bad[i].what);
		raw_close(&r);
		still_good();
	}
	/* a slot that is in flight: target 0 of the window exists nowhere, so the first one fails,
	 * but a lock of our own window stays under way */
	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	assert_int_equal(raw_window(&r, 5, 1, -1), 0);
	raw_sqe(&r)[0] = (struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .win = r.win, .target = 1, .seq = 1 };
	raw_idx(&r, 1)[0] = 0;
	raw_idx(&r, 1)[1] = 0;
	__atomic_store_n(&raw_sq(&r, 1)->tail, 2, __ATOMIC_RELEASE);
	raw_kick(&r);
	assert_true(closed(r.sock, 20000));
	raw_close(&r);
	still_good();
	for (size_t i = 2; i < 7; i++)
		if (!strstr(node_log(&node), bad[i].what))
			fail_msg("log does not name \"%s\":\n%s", bad[i].what, node_log(&node));
}

/* Operation number @seq through the daemon on the own memory: 8 bytes at @disp. */
static void own_put(struct raw *r, struct winctl *wc, uint64_t seq, uint64_t disp)
{
	uint64_t end = nodes_now() + 20000000000ull;
	uint32_t slot = seq % SLOTS;
	struct prog_sqe e = { .opcode = PROG_SQE_OP_PUT, .win = r->win, .target = 0, .seq = seq,
			      .disp = disp, .len = 8 };

	memcpy(e.inl, &seq, 8);
	raw_sqe(r)[slot] = e;
	raw_idx(r, 0)[(seq - 1) % SLOTS] = slot;
	__atomic_store_n(&raw_sq(r, 0)->tail, seq, __ATOMIC_SEQ_CST);
	raw_kick(r);
	while (__atomic_load_n(&wc->streams[0].acked, __ATOMIC_ACQUIRE) < seq)
		if (nodes_now() > end)
			fail_msg("operation %llu not acknowledged", (unsigned long long)seq);
}

/* The valid form of what is fuzzed. */
static void test_valid(void **state)
{
	struct prog_ctrl_hello h;
	struct winctl wc;
	const char *why;
	struct raw r;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	assert_int_equal(raw_window(&r, 5, 0, -1), 0);
	assert_int_equal(winctl_attach(&wc, r.ctl, winctl_size(2, 0), 5, 0, 2, &why), 0);
	for (uint64_t seq = 1; seq <= 300; seq++) {
		own_put(&r, &wc, seq, 8 * (seq % 100));
		assert_int_equal(r.mem[seq % 100], seq);
	}
	raw_close(&r);
	still_good();
}

/* Window memory whose page cannot be provided: an error for who uses it, and nothing else. */
static void test_bad_memory(void **state)
{
	struct prog_ctrl_hello h;
	struct badmem bad = { .fd = -1 };
	struct winctl wc;
	const char *why;
	struct raw r;

	assert_int_equal(badmem_make(&bad), 0);
	raw_segment(&r);
	h = hello_for(&r);
	if (raw_hello(&r, &h) || raw_window(&r, 5, 0, bad.fd) ||
	    winctl_attach(&wc, r.ctl, winctl_size(2, 0), 5, 0, 2, &why)) {
		badmem_break(&bad, 0);
		fail();
	}
	own_put(&r, &wc, 1, 64);
	assert_int_equal(*(volatile uint64_t *)(bad.mem + 64), 1);
	assert_int_equal(wc.streams[0].err_seq, 0);
	assert_int_equal(badmem_break(&bad, node.pid), 0);
	still_good();			/* whoever answers has taken its signals before */
	own_put(&r, &wc, 2, 64);
	assert_int_equal(wc.streams[0].err_seq, 2);
	assert_int_equal(wc.streams[0].err, -EFAULT);
	still_good();
	own_put(&r, &wc, 3, 64);
	assert_int_equal(wc.streams[0].acked, 3);
	raw_close(&r);
	badmem_free(&bad);
	still_good();
}

/* Reasons that are no text, and more of them than are kept. */
static void test_notes(void **state)
{
	struct prog_ctrl_note n = { .hdr = { PROG_CTRL_NOTE, sizeof(n), 0 } };
	struct prog_ctrl_hello h;
	struct prog_ctrl_hdr rep;
	struct raw r;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	for (unsigned int i = 0; i < 20; i++) {
		memset(n.reason, i ? 0xff : '\n', sizeof(n.reason));
		n.reason[0] = '"';
		n.reason[1] = 'a' + i;
		assert_int_equal(send_fds(r.sock, &n, sizeof(n), NULL, 0), 0);
		assert_int_equal(get_reply(r.sock, &rep, sizeof(rep), NULL, NULL), 0);
	}
	if (!strstr(node_progctl(&node, "--json stats"), "\"reason\": \"other reasons\"") ||
	    !strstr(node_progctl(&node, "--json stats"), "\"count\": 13"))
		fail_msg("%s", node_progctl(&node, "--json stats"));
	raw_close(&r);
	still_good();
}

static int ask_pin(struct raw *r, void *q, size_t size, const int *fds, unsigned int nfds, uint32_t *slot)
{
	struct prog_ctrl_slot rep;
	int st;

	assert_int_equal(send_fds(r->sock, q, size, fds, nfds), 0);
	st = get_reply(r->sock, &rep, sizeof(rep), NULL, NULL);
	assert_true(st <= 0);
	assert_int_equal(!st, !rep.reason[0]);
	if (slot)
		*slot = rep.slot;
	return st;
}

/* A window of private memory that is said to be pinned as @region. */
static int pinned_window(struct raw *r, uint32_t region)
{
	struct prog_ctrl_win_create q = {
		.hdr = { PROG_CTRL_WIN_CREATE, sizeof(q), 0 }, .key = 9, .nranks = 2,
		.mem = PROG_MEM_VA, .region = region, .base = (uintptr_t)r->mem, .size = WIN_BYTES,
		.flags = PROG_WINF_MULTINODE | PROG_WINF_PINNED,
	};
	int fds[2], st;
	void *mem;

	fds[0] = memfd(winctl_size(2, 0), F_SEAL_SHRINK, &mem);
	winctl_format(mem, 9, 0, 2, 0);
	munmap(mem, winctl_size(2, 0));
	fds[1] = make_table(r->guid, 2);
	st = ask_pin(r, &q, sizeof(q), fds, 2, NULL);
	close(fds[0]);
	close(fds[1]);
	return st;
}

/* What it says of its collectives is shown, whatever it is; a row that changes all the time is not. */
static void test_collectives(void **state)
{
	struct raw r;
	struct prog_ctrl_hello h;
	struct prog_coll_row *row;
	const char *text;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	assert_string_equal(node_progctl(&node, "--json colls"), "[]\n");
	memset(r.colls, 0xff, sizeof(*r.colls));
	if (strcmp(node_progctl(&node, "--json colls"), "[]\n"))
		fail_msg("%s", node_progctl(&node, "--json colls"));
	for (unsigned int i = 0; i < PROG_COLL_ROWS; i++)
		r.colls->row[i].gen = 2;
	text = node_progctl(&node, "--json colls");
	if (!strstr(text, "\"kind\": \"?\"") || !strstr(text, "\"age_ns\": 0") || strstr(text, "\"missing\": 4"))
		fail_msg("%s", text);
	/* a circle: it waits for itself */
	row = r.colls->row;
	memset(r.colls, 0, sizeof(*r.colls));
	*row = (struct prog_coll_row){ .since = 1, .kind = PROG_COLL_ROW_REDUCE, .awaited = 1, .from = h.rank };
	text = node_progctl(&node, "--json colls");
	if (!strstr(text, "\"kind\": \"reduce\"") || !strstr(text, "\"missing\": null"))
		fail_msg("%s", text);
	r.colls->started = r.colls->left[PROG_COLL_WHY_OP] = UINT64_MAX;
	text = node_progctl(&node, "--json stats");
	if (!strstr(text, "\"operation\": 9223372036854775807") || !strstr(text, "\"under_way\": 9223372036854775807"))
		fail_msg("%s", text);
	if (!strstr(node_progctl(&node, "doctor"), "left to the MPI library: with an operation of the program's own"))
		fail_msg("%s", node_progctl(&node, "doctor"));
	still_good();
	raw_close(&r);
	still_good();
}

/* Pinned memory, by whoever has none: descriptors of other things, handles of nothing. */
static void test_pinned(void **state)
{
	struct prog_ctrl_pin_device dev = { { PROG_CTRL_PIN_DEVICE, sizeof(dev), 0 } };
	struct prog_ctrl_pin_add add = { .hdr = { PROG_CTRL_PIN_ADD, sizeof(add), 0 } };
	struct prog_ctrl_region_add region = { { PROG_CTRL_REGION_ADD, sizeof(region), 0 }, 4096 };
	struct prog_ctrl_hello h;
	int fds[2], pipes[2];
	struct raw r;
	uint32_t id;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	add.handle = 0x123456789ull;
	add.addr = (uintptr_t)r.mem;
	add.size = WIN_BYTES;
	assert_int_equal(ask_pin(&r, &add, sizeof(add), NULL, 0, NULL), -EPROTO);
	fds[0] = fds[1] = memfd(4096, F_SEAL_SHRINK, NULL);
	assert_int_equal(ask_pin(&r, &dev, sizeof(dev), fds, 2, NULL), -EPROTO);
	assert_int_equal(ask_pin(&r, &dev, sizeof(dev), fds, 1, NULL), -EINVAL);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(ask_pin(&r, &dev, sizeof(dev), pipes, 1, NULL), -EINVAL);
	close(pipes[0]);
	close(pipes[1]);
	pipes[0] = open("/dev/zero", O_RDWR);
	assert_int_equal(ask_pin(&r, &dev, sizeof(dev), pipes, 1, NULL), -EINVAL);
	close(pipes[0]);
	assert_int_equal(ask_pin(&r, &add, sizeof(add), NULL, 0, NULL), -EPROTO);
	/* a window in a region that is not pinned, or not there */
	assert_int_equal(pinned_window(&r, 0), -EINVAL);
	assert_int_equal(ask_pin(&r, &region, sizeof(region), fds, 1, &id), 0);
	assert_int_equal(pinned_window(&r, id), -ERANGE);
	assert_int_equal(pinned_window(&r, ~0u), -EINVAL);
	close(fds[0]);
	/* why a client could not pin is counted, whatever it says */
	for (int i = 0; i < 20; i++) {
		add.handle = 0;
		add.error = i ? (int)rnd() : -ENOMEM;
		assert_int_equal(ask_pin(&r, &add, sizeof(add), NULL, 0, NULL), 0);
	}
	if (!strstr(node_progctl(&node, "--json stats"), "memory not pinned: over RLIMIT_MEMLOCK"))
		fail_msg("%s", node_progctl(&node, "--json stats"));
	raw_close(&r);
	still_good();
}

/*
 * The guard word of a window's lock is kept by nobody we know, and a process with a lock on the window
 * ends: the daemon waits before it takes the guard, but not with everybody else.
 */
static void test_guard_kept(void **state)
{
	enum { NOBODY = 0x3ffffff };
	uint64_t limit;
	struct prog_ctrl_hello h;
	struct raw r, holder;
	struct winctl wc;
	const char *why;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	assert_int_equal(raw_window(&r, 5, 0, -1), 0);
	assert_int_equal(winctl_attach(&wc, r.ctl, winctl_size(2, 0), 5, 0, 2, &why), 0);
	raw_segment(&holder);
	h = hello_for(&holder);
	assert_int_equal(raw_hello(&holder, &h), 0);
	assert_int_equal(raw_window(&holder, 5, 1, -1), 0);
	assert_true(winlock_request(&wc, 1, true, holder.session));
	__atomic_store_n(&wc.ctl->lock.guard, NOBODY, __ATOMIC_RELAXED);
	raw_close(&holder);
	still_good();
	assert_int_equal(__atomic_load_n(&wc.ctl->lock.guard, __ATOMIC_RELAXED), NOBODY);
	for (limit = nodes_now() + 20000000000ull;
	     __atomic_load_n(&wc.peers[1].lock_state, __ATOMIC_RELAXED) != PROG_LOCK_NONE;)
		assert_true(nodes_now() < limit);
	/* and one whose window goes with it */
	__atomic_store_n(&wc.ctl->lock.guard, NOBODY, __ATOMIC_RELAXED);
	close(r.sock);
	still_good();
	assert_int_equal(__atomic_load_n(&wc.ctl->lock.guard, __ATOMIC_RELAXED), NOBODY);
	r.sock = -1;
	raw_close(&r);
	still_good();
}

static void *drain(void *arg)
{
	const int *fd = arg;
	uint64_t n;

	/* more than one kick is the end */
	while (read(*fd, &n, sizeof(n)) == sizeof(n) && n < 1u << 30)
		;
	return NULL;
}

/*
 * A client makes the files of its wake-ups ones that block, empties them all the time, and then fills them: no worker waits
 * for it, and the wake-ups of others are other files.
 */
static void test_wakeups(void **state)
{
	uint64_t most = UINT64_MAX - 1, end = 1u << 30;
	struct prog_ctrl_hello h;
	pthread_t drainer[PROG_MAX_WORKERS];
	struct raw r, twin;

	raw_segment(&r);
	h = hello_for(&r);
	assert_int_equal(raw_hello(&r, &h), 0);
	raw_segment(&twin);
	h = hello_for(&twin);
	assert_int_equal(raw_hello(&twin, &h), 0);
	for (unsigned int i = 0; i < r.workers; i++) {
		assert_int_equal(fcntl(r.kick[i], F_SETFL, 0), 0);
		assert_true(fcntl(twin.kick[i], F_GETFL) & O_NONBLOCK);
		assert_int_equal(pthread_create(&drainer[i], NULL, drain, &r.kick[i]), 0);
	}
	for (unsigned int i = 0; i < 300; i++) {
		raw_kick(&r);
		still_good();
	}
	for (unsigned int i = 0; i < r.workers; i++) {
		assert_int_equal(write(r.kick[i], &end, sizeof(end)), 8);
		pthread_join(drainer[i], NULL);
		assert_int_equal(fcntl(r.kick[i], F_SETFL, O_NONBLOCK), 0);
		while (write(r.kick[i], &most, sizeof(most)) != 8)
			assert_int_equal(read(r.kick[i], &(uint64_t){ 0 }, 8), 8);
		assert_int_equal(write(r.kick[i], &end, sizeof(end)), -1);
	}
	still_good();
	raw_kick(&twin);
	raw_close(&twin);
	raw_close(&r);
	still_good();
}

/*
 * A process that has attached ends, and another one has its connection.  The daemon would go on to use the number of the
 * first to reach its memory, whoever gets that number next: the session ends.
 */
static void test_process_gone(void **state)
{
	int pair[2], sock = -1, st;
	struct prog_ctrl_hdr ping = { PROG_CTRL_PING, sizeof(ping), 0 };
	unsigned int nfds;
	pid_t pid;
	char c;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	if (!pid) {
		struct prog_ctrl_hello h;
		struct raw r;

		raw_segment(&r);
		h = hello_for(&r);
		if (raw_hello(&r, &h) || send_fds(pair[1], "s", 1, &r.sock, 1) || recv(pair[1], &c, 1, 0) != 1)
			_exit(1);
		_exit(0);
	}
	assert_true(pid > 0);
	close(pair[1]);
	{
		struct prog_ctrl_hdr msg;

		get_reply(pair[0], &msg, sizeof(msg), &sock, &nfds);
		assert_int_equal(nfds, 1);
	}
	/* as long as it lives it may share what is its own */
	assert_int_equal(send_fds(sock, &ping, sizeof(ping), NULL, 0), 0);
	assert_int_equal(get_reply(sock, &ping, sizeof(ping), NULL, NULL), 0);
	assert_false(closed(sock, 0));
	assert_int_equal(send(pair[0], "e", 1, 0), 1);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
	assert_true(closed(sock, 20000));
	close(sock);
	close(pair[0]);
	still_good();
}

enum { CROWD = 64, CROWD_RANKS = 100000 };
/* For all that they leave, and for who comes meanwhile; where everything is watched that takes several times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CROWD_NS	5000000000ull
#else
#define CROWD_NS	1000000000ull
#endif

/* Who is where: the first ranks here, the others on a node that is not there. */
static int crowd_table(const uint8_t *guid)
{
	size_t size = sizeof(struct prog_win_table) + 2 * sizeof(struct prog_win_node) + CROWD_RANKS * 4;
	struct prog_win_table *t;
	void *mem;
	int fd = memfd(size, F_SEAL_SHRINK, &mem);

	t = mem;
	*t = (struct prog_win_table){ .nranks = CROWD_RANKS, .nnodes = 2 };
	struct prog_win_node *n = (struct prog_win_node *)(t + 1);
	uint32_t *of = (uint32_t *)(n + 2);

	memcpy(n[0].guid, guid, sizeof(n[0].guid));
	memset(n[1].guid, 0x55, sizeof(n[1].guid));
	for (uint32_t i = CROWD + 1; i < CROWD_RANKS; i++)
		of[i] = 1;
	munmap(mem, size);
	return fd;
}

/* Rank @rank of a window without memory. */
static void crowd_window(struct raw *r, uint64_t key, uint32_t rank, struct winctl *wc)
{
	size_t size = winctl_size(CROWD_RANKS, 0);
	struct prog_ctrl_win_create q = {
		.hdr = { PROG_CTRL_WIN_CREATE, sizeof(q), 0 }, .key = key, .rank = rank, .nranks = CROWD_RANKS,
		.mem = PROG_MEM_NONE,
	};
	struct prog_ctrl_slot rep;
	const char *why = "";
	void *mem;
	int fds[2];

	fds[0] = memfd(size, F_SEAL_SHRINK, &mem);
	winctl_format(mem, key, rank, CROWD_RANKS, 0);
	fds[1] = crowd_table(r->guid);
	assert_int_equal(send_fds(r->sock, &q, sizeof(q), fds, 2), 0);
	assert_int_equal(get_reply(r->sock, &rep, sizeof(rep), NULL, NULL), 0);
	assert_int_equal(winctl_attach(wc, mem, size, key, rank, CROWD_RANKS, &why), 0);
	close(fds[0]);
	close(fds[1]);
}

/*
 * 65 processes with locks on each other's windows, of which all but the last end at the same moment: how long until that one has all
 * locks, or until somebody who comes meanwhile is answered.
 */
static uint64_t many_die(void)
{
	static const char *const sets[] = { "workers=2", NULL };
	static struct raw r[CROWD + 1];
	static struct winctl wc[2][CROWD + 1];
	uint64_t start, now, hello, longest = 0;
	struct node shared = node;
	struct prog_ctrl_hello h;

	assert_int_equal(node_start(&node, sets), 0);
	for (uint32_t i = 0; i <= CROWD; i++) {
		raw_segment(&r[i]);
		h = hello_for(&r[i]);
		assert_int_equal(raw_hello(&r[i], &h), 0);
		for (uint64_t k = 0; k < 2; k++)
			crowd_window(&r[i], k, i, &wc[k][i]);
	}
	for (uint32_t k = 0; k < 2; k++)
		for (uint32_t target = 0; target <= CROWD; target++) {
			for (uint32_t i = 0; i < CROWD; i++)
				assert_true(winlock_request(&wc[k][target], i, false, r[i].session));
			assert_false(winlock_request(&wc[k][target], CROWD, true, r[CROWD].session));
		}
	start = nodes_now();
	for (uint32_t i = 0; i < CROWD; i++)
		close(r[i].sock);
	do {
		struct raw other;

		hello = nodes_now();
		raw_segment(&other);
		h = hello_for(&other);
		assert_int_equal(raw_hello(&other, &h), 0);
		now = nodes_now();
		raw_close(&other);
		if (now - hello > longest)
			longest = now - hello;
		if (now - start > 60000000000ull)
			fail_msg("not over after a minute");
	} while (!winlock_granted(&wc[0][CROWD], CROWD) || !winlock_granted(&wc[1][CROWD], CROWD));
	print_message("recovered after %llu ms, longest HELLO meanwhile %llu ms\n",
		      (unsigned long long)(now - start) / 1000000, (unsigned long long)longest / 1000000);
	for (uint32_t i = 0; i <= CROWD; i++) {
		r[i].sock = i < CROWD ? -1 : r[i].sock;
		raw_close(&r[i]);
		for (uint32_t k = 0; k < 2; k++)
			munmap(wc[k][i].ctl, wc[k][i].size);
	}
	assert_int_equal(node_stop(&node, SIGTERM), 0);
	node = shared;
	return now - start > longest ? now - start : longest;
}

/* What is done then depends on what they held and not on the number of ranks.  The machine may have other things to do, once. */
static void test_many_die(void **state)
{
	uint64_t least = UINT64_MAX, took;

	for (int i = 0; i < 3 && least > CROWD_NS; i++) {
		took = many_die();
		least = took < least ? took : least;
	}
	assert_in_range(least, 0, CROWD_NS);
}

/* What test_fuzz() has made that is not as it should be, or only nearly. */
enum { RING_ENTRIES, MESSAGES, DATATYPES, REQUESTS, SEGMENTS, TABLES, MUTATED };

static unsigned int mutations[MUTATED];

/* Entries that are nearly valid, in rings whose words change while the daemon reads. */
static void fuzz_ring(uint64_t seed)
{
	struct prog_ctrl_hello h;
	uint64_t seq[2] = { 1, 1 };
	struct raw r;

	rnd_state = seed * 0x9e3779b97f4a7c15ull + 1;
	raw_segment(&r);
	h = hello_for(&r);
	if (rnd() % 2)
		h.features = PROG_FEAT_HELPER;
	if (rnd() % 4 == 0)
		h.cma_value++;
	assert_int_equal(raw_hello(&r, &h), 0);
	if (raw_window(&r, 5, 0, -1)) {
		raw_close(&r);
		return;
	}
	for (unsigned int k = 0; k < 400; k++) {
		unsigned int w = rnd() % 2, n = 1 + rnd() % 8;
		uint32_t tail = raw_sq(&r, w)->tail;

		for (unsigned int i = 0; i < n; i++) {
			uint32_t slot = rnd() % 1000 ? (tail + i) % SLOTS : rnd();
			struct prog_sqe e = {
				.opcode = 1 + rnd() % 10, .flags = rnd() % 64, .op = 1 + rnd() % 14,
				.etype = 1 + rnd() % 33, .win = r.win, .target = rnd() % 100 ? w : !w,
				.dtype = rnd() % 4 ? 0 : rnd() % 256, .seq = seq[w],
				.disp = rnd() % 9000, .off = rnd() % 8 ? 0 : rnd() % 100,
				.len = rnd() % 3 ? 8 * (rnd() % 3) : rnd() % 70000,
				.addr = rnd() % 60000,
			};

			/* most are valid, or a session would not live long enough for the rest */
			if (rnd() % 100) {
				static const uint8_t types[] = {
					PROG_TYPE_I64, PROG_TYPE_U8, PROG_TYPE_DOUBLE_INT, PROG_TYPE_I32,
				};
				unsigned int size[] = { 8, 1, 12, 4 }, t = rnd() % 4;

				if (e.opcode >= PROG_SQE_OP_LOCK)
					e.len = e.off = 0;
				if (e.opcode == PROG_SQE_OP_DTYPE) {
					e.dtype = 1 + rnd() % 255;
					e.off = 0;
					e.len = 1 + rnd() % 300;
				}
				if (e.opcode == PROG_SQE_OP_CAS && t == 2)
					t = 0;
				if (e.opcode == PROG_SQE_OP_ACC || e.opcode == PROG_SQE_OP_GET_ACC ||
				    e.opcode == PROG_SQE_OP_CAS) {
					e.etype = types[t];
					e.op = t == 2 ? PROG_OP_MAXLOC : rnd() % 2 ? PROG_OP_SUM :
					       rnd() % 2 ? PROG_OP_NO_OP : PROG_OP_REPLACE;
					e.len -= e.len % size[t];
					e.off -= e.off % size[t];
				}
				if (e.opcode == PROG_SQE_OP_CAS) {
					e.len = 2 * size[t];
					e.off = 0;
				}
				e.flags &= ~3u;
				e.flags |= rnd() % 2 ? PROG_SQE_ARENA : PROG_SQE_VA;
				e.addr = rnd() % (ARENA - 1);
				if (e.len > ARENA - e.addr)
					e.addr = 0, e.len %= ARENA, e.len -= e.len % 24;
			}
			if ((e.flags & 3) == PROG_SQE_VA && rnd() % 2)
				e.addr = (uintptr_t)r.mem + rnd() % 9000;
			if (e.opcode == PROG_SQE_OP_GET_ACC || e.opcode == PROG_SQE_OP_CAS)
				e.result = rnd() % (rnd() % 100 && e.len < ARENA ?
						    (ARENA - e.len) / 8 + 1 : ~0u);
			if (rnd() % 200 == 0)
				((uint8_t *)&e)[rnd() % 64] = rnd();
			if (e.opcode == PROG_SQE_OP_DTYPE && e.len) {
				for (unsigned int b = 0; b < 256; b++)
					r.seg[r.hdr->arena_off + rnd() % ARENA] = rnd();
				mutations[DATATYPES]++;
			}
			mutations[RING_ENTRIES]++;
			if (slot < SLOTS)
				raw_sqe(&r)[slot] = e;
			raw_idx(&r, w)[(tail + i) % SLOTS] = slot;
			seq[w]++;
		}
		__atomic_store_n(&raw_sq(&r, w)->tail, tail + n + (rnd() % 500 ? 0 : rnd()),
				 __ATOMIC_SEQ_CST);
		raw_kick(&r);
		/* an "helper" that does nonsense, and a control segment that changes */
		if (rnd() % 4 == 0) {
			struct prog_helper_ring *hr = (void *)(r.seg + r.hdr->helper_off);

			__atomic_store_n(&hr->done, rnd() % 8 ? hr->tail : (uint32_t)rnd(),
					 __ATOMIC_SEQ_CST);
			hr->job[rnd() % PROG_HELPER_SLOTS].status = rnd() % 3 ? 0 : rnd();
			raw_kick(&r);
		}
		if (rnd() % 16 == 0) {
			size_t off = sizeof(struct prog_win_ctl) - sizeof(struct prog_lockq);

			((uint8_t *)r.ctl)[off + rnd() % (winctl_size(2, 0) - off)] = rnd();
		}
		if (rnd() % 8 == 0)
			sched_yield();
		if (closed(r.sock, 0))
			break;
	}
	raw_close(&r);
}

/* ---- messages ---- */

#define MSG_LEN		5000u

/* The window for messages: this process is rank 0 of 2. */
static void raw_space(struct raw *r)
{
	static uint64_t key = 1000;	/* the one before may not be gone yet */
	size_t size = winctl_size(2, 0);
	struct prog_ctrl_win_create q = {
		.hdr = { PROG_CTRL_WIN_CREATE, sizeof(q), 0 }, .key = ++key, .nranks = 2,
		.mem = PROG_MEM_MSG_CONTEXT, .flags = PROG_WINF_MULTINODE,
	};
	struct prog_ctrl_slot rep;
	void *mem;
	int fds[2];

	r->ctl_fd = memfd(size, F_SEAL_SHRINK, &mem);
	r->ctl = mem;
	winctl_format(mem, q.key, 0, 2, 0);
	r->table_fd = make_table(r->guid, 2);
	fds[0] = r->ctl_fd;
	fds[1] = r->table_fd;
	assert_int_equal(send_fds(r->sock, &q, sizeof(q), fds, 2), 0);
	assert_int_equal(get_reply(r->sock, &rep, sizeof(rep), NULL, NULL), 0);
	r->win = rep.slot;
}

static void raw_messages(struct raw *r)
{
	struct prog_ctrl_hello h;

	raw_segment(r);
	h = hello_for(r);
	assert_int_equal(raw_hello(r, &h), 0);
	raw_space(r);
}

static struct prog_p2p_slot *raw_slot(struct raw *r, uint32_t i)
{
	return (struct prog_p2p_slot *)(r->seg + r->area->slot_off) + i;
}

static struct prog_sq *raw_msg_sq(struct raw *r, unsigned int w)
{
	return (struct prog_sq *)(r->seg + r->area->sq_off) + w;
}

/* Publish @entry in ring @w. */
static void raw_post(struct raw *r, unsigned int w, uint32_t entry)
{
	struct prog_sq *sq = raw_msg_sq(r, w);

	((uint32_t *)(r->seg + r->area->idx_off))[w * PROG_P2P_RING + sq->tail % PROG_P2P_RING] = entry;
	__atomic_store_n(&sq->tail, sq->tail + 1, __ATOMIC_SEQ_CST);
}

/* Message @ord from this rank to itself: a valid one in slots 0, SEND, and 1, RECV. */
static void raw_pair(struct raw *r, uint64_t ord)
{
	struct prog_p2p_slot s = {
		.serial = ord + 1, .kind = PROG_P2P_SEND, .loc = PROG_SQE_VA, .key.ord = ord,
		.addr = (uintptr_t)r->mem, .count = MSG_LEN, .len = MSG_LEN, .dtype = ~0ull,
	};

	*raw_slot(r, 0) = s;
	s.kind = PROG_P2P_RECV;
	s.addr += MEM_BYTES / 2;
	*raw_slot(r, 1) = s;
}

static void raw_go(struct raw *r, uint32_t slot)
{
	__atomic_store_n(&raw_slot(r, slot)->state, PROG_P2P_POSTED, __ATOMIC_RELEASE);
	raw_post(r, 0, slot);
	raw_kick(r);
}

static int32_t raw_ended(struct raw *r, uint32_t slot)
{
	uint64_t end = nodes_now() + 20000000000ull;

	while (__atomic_load_n(&raw_slot(r, slot)->state, __ATOMIC_ACQUIRE) != PROG_P2P_DONE)
		if (nodes_now() > end)
			fail_msg("message in slot %u does not end", slot);
	return raw_slot(r, slot)->status;
}

/* The valid form of what follows. */
static void test_message_valid(void **state)
{
	uint8_t *mem;
	struct raw r;

	raw_messages(&r);
	mem = (uint8_t *)r.mem;
	for (uint64_t ord = 0; ord < 200; ord++) {
		for (unsigned int i = 0; i < MSG_LEN; i++)
			mem[i] = i * 7 + ord;
		raw_pair(&r, ord);
		raw_go(&r, ord % 2);
		raw_go(&r, !(ord % 2));
		assert_int_equal(raw_ended(&r, 1), 0);
		assert_int_equal(raw_ended(&r, 0), 0);
		assert_int_equal(raw_slot(&r, 1)->head_len, PROG_P2P_HEAD);
		assert_memory_equal(raw_slot(&r, 1)->head, mem, PROG_P2P_HEAD);
		assert_memory_equal(mem + MEM_BYTES / 2 + PROG_P2P_HEAD, mem + PROG_P2P_HEAD,
				    MSG_LEN - PROG_P2P_HEAD);
	}
	raw_close(&r);
	still_good();
}

/* One field after the other lies: the session ends (of its lines only some are written: they are many). */
static void test_message_slots(void **state)
{
	struct prog_p2p_slot *send, *recv;
	unsigned int posted = 2;
	struct raw r;

#define BAD_SLOT(what, change) do { \
		raw_messages(&r); \
		raw_pair(&r, 0); \
		send = raw_slot(&r, 0); \
		recv = raw_slot(&r, 1); \
		(void)send; \
		(void)recv; \
		change; \
		for (unsigned int i_ = 0; i_ < posted; i_++) \
			raw_go(&r, i_); \
		if (!closed(r.sock, 20000)) \
			fail_msg("not closed: %s: %s", what, #change); \
		raw_close(&r); \
		still_good(); \
	} while (0)

	BAD_SLOT("serial 0", send->serial = 0);
	BAD_SLOT("flags 0x80", send->flags = 0x80);
	BAD_SLOT("kind 0", send->kind = 0);
	BAD_SLOT("kind 77", recv->kind = 77);
	BAD_SLOT("SEND from rank 1", send->key.src = 1);
	BAD_SLOT("to rank 2", send->key.dst = 2);
	BAD_SLOT("to rank 4294967294", send->key.dst = ~1u);
	BAD_SLOT("RECV at rank 1", recv->key.dst = 1);
	BAD_SLOT("RECV at rank 0 from rank 2", recv->key.src = 2);
	BAD_SLOT("len 18446744073709551615", send->len = ~0ull);
	BAD_SLOT("len 18446744073709551615", recv->len = ~0ull);
	BAD_SLOT("loc is neither", send->loc = 9);
	BAD_SLOT("loc is neither", recv->loc = 0);
	BAD_SLOT("wraps around", send->addr = ~0ull);
	BAD_SLOT("wraps around", recv->addr = ~0ull);
	BAD_SLOT("region is not there", send->loc = PROG_SQE_REGION);
	BAD_SLOT("region is not there", recv->loc = PROG_SQE_REGION; recv->region = ~0u);
	BAD_SLOT("outside the arena", send->dtype = ARENA; send->dtype_len = 8);
	BAD_SLOT("outside the arena", recv->dtype = 0; recv->dtype_len = ~0u);
	BAD_SLOT("datatype is not valid", send->dtype = 0; send->dtype_len = 64);
	BAD_SLOT("datatype is not valid", recv->dtype = 0; recv->dtype_len = 0);
	BAD_SLOT("peer_slot", recv->flags = PROG_P2PF_BY_ID);
	BAD_SLOT("peer_slot", recv->flags = PROG_P2PF_BY_ID; recv->peer_serial = 1; recv->peer_slot = 1024);
	BAD_SLOT("peer_len", recv->flags = PROG_P2PF_BY_ID; recv->peer_serial = 1; recv->peer_len = ~0ull);
	posted = 0;
	BAD_SLOT("slot 1024 of", raw_post(&r, 0, 1024); raw_kick(&r));
	BAD_SLOT("slot 2147483647 of", raw_post(&r, 1, ~0u); raw_kick(&r));
	BAD_SLOT("entries ahead", raw_msg_sq(&r, 0)->tail = PROG_P2P_RING + 1; raw_kick(&r));
	BAD_SLOT("entries ahead", raw_msg_sq(&r, 1)->tail = ~0u; raw_kick(&r));
#undef BAD_SLOT
}

/* What is right, and what never comes: sessions that end with messages in all states. */
static void test_message_left(void **state)
{
	for (unsigned int n = 0; n < 40; n++) {
		struct raw r;

		raw_messages(&r);
		for (uint32_t i = 0; i < PROG_P2P_SLOTS; i++) {
			raw_pair(&r, i);
			*raw_slot(&r, i) = *raw_slot(&r, i % 2 ? 1 : 0);
			raw_slot(&r, i)->state = PROG_P2P_POSTED;
			/* the other half of a pair, a rank that is not there, or early */
			if (n % 4 == 1)
				raw_slot(&r, i)->key.ord = i / 2;
			if (n % 4 == 2 && i % 2 == 0)
				raw_slot(&r, i)->key.dst = 1;
			if (n % 4 == 3)
				raw_slot(&r, i)->flags = i % 2 ? 0 : PROG_P2PF_EAGER;
			raw_post(&r, n % 4 == 2 && i % 2 == 0 ? 1 : 0, i);
		}
		raw_kick(&r);
		if (n % 8 == 0)
			sched_yield();
		raw_close(&r);
	}
	still_good();
}

/* A region for messages, of which a page cannot be provided: to receive into, or as the pool. */
static void bad_region(bool pool)
{
	struct prog_ctrl_region_add q = { { PROG_CTRL_REGION_ADD, sizeof(q), 0 }, BADMEM_SIZE };
	struct badmem bad = { .fd = -1 };
	struct prog_p2p_slot *s;
	struct prog_ctrl_slot rep;
	struct raw r;

	assert_int_equal(badmem_make(&bad), 0);
	raw_messages(&r);
	if (send_fds(r.sock, &q, sizeof(q), &bad.fd, 1) || get_reply(r.sock, &rep, sizeof(rep), NULL, NULL)) {
		badmem_break(&bad, 0);
		fail();
	}
	if (pool)
		__atomic_store_n(&r.area->pool_region, rep.slot + 1, __ATOMIC_RELEASE);
	assert_int_equal(badmem_break(&bad, node.pid), 0);
	still_good();			/* whoever answers has taken its signals before */
	for (uint64_t ord = 0; ord < 4; ord++) {
		raw_pair(&r, ord);
		if (pool) {
			/* it ends when it is in the pool, or was to be; nobody receives it */
			raw_slot(&r, 0)->flags = PROG_P2PF_EAGER;
			raw_go(&r, 0);
			assert_int_equal(raw_ended(&r, 0), -EFAULT);
			continue;
		}
		s = raw_slot(&r, 1);
		s->loc = PROG_SQE_REGION;
		s->region = rep.slot;
		s->addr = 0;
		raw_go(&r, 0);
		raw_go(&r, 1);
		assert_int_equal(raw_ended(&r, 1), -EFAULT);
		assert_int_equal(raw_ended(&r, 0), -EFAULT);
	}
	raw_close(&r);
	badmem_free(&bad);
	still_good();
}

static void test_message_bad_memory(void **state)
{
	bad_region(false);
	bad_region(true);
}

/* Slots, rings and the area itself, mostly right, change while the daemon looks at them. */
static void fuzz_messages(uint64_t seed)
{
	struct raw r;

	rnd_state = seed * 0x9e3779b97f4a7c15ull + 1;
	raw_messages(&r);
	for (int step = 0; step < 200 && !closed(r.sock, 0); step++) {
		unsigned int n = 1 + rnd() % 16;

		for (unsigned int i = 0; i < n; i++) {
			uint32_t slot = rnd() % 32, w = 0;
			struct prog_p2p_slot *p = raw_slot(&r, slot), s = {
				.serial = 1 + rnd() % 1000, .kind = 1 + rnd() % 2, .loc = PROG_SQE_VA,
				.flags = rnd() % 2 ? 0 : rnd() & 0x7f,
				.key = { .tag = rnd() % 2, .ord = rnd() % 8 }, .dtype = ~0ull,
				.addr = (uintptr_t)r.mem + rnd() % 1000, .len = rnd() % 4 ? rnd() % 9000 : 0,
				.peer_slot = rnd() % 32, .peer_serial = 1 + rnd() % 1000, .peer_len = rnd() % 9000,
			};

			s.count = s.len;
			if (s.kind == PROG_P2P_SEND && rnd() % 8 == 0)
				s.key.dst = w = 1;
			if (s.kind == PROG_P2P_RECV)
				s.addr += MEM_BYTES / 2;
			if (rnd() % 16 == 0) {
				s.dtype = rnd() % ARENA;
				s.dtype_len = rnd() % 200;
				for (unsigned int b = 0; b < 200; b++)
					r.seg[r.hdr->arena_off + (s.dtype + b) % ARENA] = rnd() % 16;
				mutations[DATATYPES]++;
			}
			mutations[MESSAGES]++;
			if (rnd() % 300 == 0)
				((uint8_t *)&s)[rnd() % offsetof(struct prog_p2p_slot, reserved)] = rnd();
			memcpy(p, &s, offsetof(struct prog_p2p_slot, reserved));
			__atomic_store_n(&p->state, rnd() % 16 ? PROG_P2P_POSTED : rnd() % 6, __ATOMIC_RELEASE);
			raw_post(&r, rnd() % 50 ? w : rnd() % 2,
				 (rnd() % 500 ? slot : (uint32_t)rnd()) | (rnd() % 8 ? 0 : PROG_P2P_WITHDRAW));
		}
		if (rnd() % 16 == 0) {
			/* read once, at HELLO; or the client's all the time */
			uint32_t *word = (uint32_t *)r.area;
			uint32_t keep[sizeof(*r.area) / 4];
			size_t at = rnd() % (sizeof(*r.area) / 4);

			memcpy(keep, r.area, sizeof(*r.area));
			__atomic_store_n(&word[at], (uint32_t)rnd(), __ATOMIC_RELAXED);
			raw_kick(&r);
			sched_yield();
			/* we need the offsets */
			for (at = 0; at < sizeof(keep) / 4; at++)
				__atomic_store_n(&word[at], keep[at], __ATOMIC_RELAXED);
		}
		raw_kick(&r);
		if (rnd() % 8 == 0)
			sched_yield();
	}
	raw_close(&r);
}

static const uint8_t fuzz_guid[16] = { 0x77 };

/* Something else in some place of [@p, @p + @n), mostly; that counts as @kind. */
static void mutate(void *p, size_t n, unsigned int kind)
{
	static const uint64_t odd[] = { 0, 1, ~0ull, 1ull << 63, 1ull << 31, 1ull << 32, 4096, 0x7fffffffffffffffull };
	uint64_t v = rnd() % 2 ? odd[rnd() % 8] : rnd();
	size_t len = (size_t)1 << rnd() % 4, at;

	if (rnd() % 4 == 0)
		return;
	at = rnd() % n & ~(len - 1);
	memcpy((uint8_t *)p + at, &v, len < n - at ? len : n - at);
	mutations[kind]++;
}

static unsigned int granted;		/* requests of fuzz_control() */

/* A request with up to four descriptors; false: the daemon ended the connection. */
static bool try_request(struct raw *r, const void *q, size_t size, unsigned int nfds)
{
	int all[4] = { r->ctl_fd, r->table_fd, r->seg_fd, r->bell_fd }, fds[4], got[32];
	union { struct prog_ctrl_hdr hdr; char bytes[1024]; } rep;
	unsigned int n = 0;
	int st;

	for (unsigned int i = 0; i < nfds; i++)
		fds[i] = all[rnd() % 8 ? i : rnd() % 4];
	if (send_fds(r->sock, q, size, fds, nfds))
		return false;
	st = get_reply(r->sock, &rep, sizeof(rep), got, &n);
	for (unsigned int i = 0; st != 1 && i < n; i++)
		close(got[i]);
	granted += !st;
	return st != 1;
}

/*
 * HELLO and what follows it, nearly as it should be: requests, the session's segment, control segments, tables.  Each
 * is answered, or ends the connection.
 */
static unsigned int fuzz_control(uint64_t seed)
{
	static const struct { uint16_t type, size; } kinds[] = {
		{ PROG_CTRL_WIN_PEER, sizeof(struct prog_ctrl_win_peer) },
		{ PROG_CTRL_WIN_FREE, sizeof(struct prog_ctrl_slot) },
		{ PROG_CTRL_REGION_ADD, sizeof(struct prog_ctrl_region_add) },
		{ PROG_CTRL_REGION_DEL, sizeof(struct prog_ctrl_slot) },
		{ PROG_CTRL_NOTE, sizeof(struct prog_ctrl_note) },
		{ PROG_CTRL_PIN_DEVICE, sizeof(struct prog_ctrl_pin_device) },
		{ PROG_CTRL_PIN_ADD, sizeof(struct prog_ctrl_pin_add) },
		{ PROG_CTRL_PING, sizeof(struct prog_ctrl_hdr) },
	};
	size_t size = winctl_size(2, 4);
	unsigned int n = 0;
	struct prog_ctrl_hello h;
	struct raw r;
	bool open;
	void *mem, *table;

	rnd_state = seed * 2654435761u + 1;
	raw_segment(&r);
	h = hello_for(&r);
	r.ctl_fd = memfd(size, F_SEAL_SHRINK, &mem);
	r.table_fd = make_table(fuzz_guid, 2);
	r.bell_fd = memfd(MEM_BYTES, F_SEAL_SHRINK, NULL);
	table = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r.table_fd, 0);
	assert_true(table != MAP_FAILED);
	if (rnd() % 2)
		mutate(r.hdr, sizeof(*r.hdr), SEGMENTS);
	if (rnd() % 4 == 0)
		mutate(&h, sizeof(h), REQUESTS);
	/* its one descriptor stands first here */
	int ctl_fd = r.ctl_fd;

	r.ctl_fd = r.seg_fd;
	open = try_request(&r, &h, sizeof(h), rnd() % 16 ? 1 : rnd() % 4);
	r.ctl_fd = ctl_fd;
	for (n++; open && n < 24; n++) {
		union {
			struct prog_ctrl_hdr hdr;
			struct prog_ctrl_win_create win;
			struct prog_ctrl_region_add region;
			uint8_t bytes[1024];
		} q = { .hdr = { PROG_CTRL_WIN_CREATE, sizeof(q.win), 0 } };
		unsigned int k = rnd() % 16, nfds = 0;

		if (k < 8) {
			q.hdr.type = kinds[k].type;
			q.hdr.size = kinds[k].size;
			nfds = kinds[k].type == PROG_CTRL_REGION_ADD;
			if (nfds)
				q.region.size = 4096;
		} else {
			q.win = (struct prog_ctrl_win_create){
				.hdr = q.hdr, .key = rnd() % 4, .rank = rnd() % 2, .nranks = 2, .mem = k % 6,
				.base = k % 6 == PROG_MEM_SHARED ? 0 : (uintptr_t)r.mem,
				.size = k % 6 == PROG_MEM_SHARED || k % 6 == PROG_MEM_VA ? 4096 : 0,
			};
			nfds = k % 6 == PROG_MEM_SHARED ? 3 : 2;
			winctl_format(mem, q.win.key, q.win.rank, 2, 4);
			mutate(mem, sizeof(struct prog_win_ctl), SEGMENTS);
			mutate(table, sizeof(struct prog_win_table) + sizeof(struct prog_win_node) + 8, TABLES);
		}
		/* another type or size is the end: not always */
		mutate(q.bytes + (rnd() % 8 ? sizeof(q.hdr) : 0), q.hdr.size, REQUESTS);
		open = try_request(&r, &q, q.hdr.size < sizeof(q) ? q.hdr.size : sizeof(q),
				   rnd() % 8 ? nfds : rnd() % 5);
	}
	munmap(table, 4096);
	munmap(mem, size);
	raw_close(&r);
	return n;
}

/* 10,000 in all, however slow the machine. */
static const struct {
	const char *name;
	unsigned int least;
} kinds_mutated[MUTATED] = {
	[RING_ENTRIES] = { "entries of rings", KIT_MANY(3000) }, [MESSAGES] = { "messages", KIT_MANY(2000) },
	[DATATYPES] = { "datatypes", KIT_MANY(1000) }, [REQUESTS] = { "requests", KIT_MANY(2000) },
	[SEGMENTS] = { "segments", KIT_MANY(1000) }, [TABLES] = { "tables of windows", KIT_MANY(1000) },
};

static bool mutated_enough(void)
{
	for (unsigned int i = 0; i < MUTATED; i++)
		if (mutations[i] < kinds_mutated[i].least)
			return false;
	return true;
}

static void test_fuzz(void **state)
{
	const char *one = getenv("PROG_SEED"), *secs = getenv("FUZZ_SECONDS");
	uint64_t seed = one ? strtoull(one, NULL, 0) : nodes_now();
	uint64_t end = nodes_now() + (secs ? strtoull(secs, NULL, 0) : 5) * 1000000000ull;
	unsigned int runs = 0, requests = 0;

	print_message("first seed %llu (PROG_SEED)\n", (unsigned long long)seed);
	do {
		if (runs % 3 == 0)
			fuzz_ring(seed + runs);
		else if (runs % 3 == 1)
			fuzz_messages(seed + runs);
		else
			requests += fuzz_control(seed + runs);
		if (waitpid(node.pid, NULL, WNOHANG)) {
			node.pid = 0;
			fail_msg("seed %llu: the daemon died:\n%s", (unsigned long long)seed + runs,
				 node_log(&node));
		}
		if (runs++ % 16 == 0)
			still_good();
	} while (!one && (nodes_now() < end || !mutated_enough()));
	print_message("%u rings, %u requests, %u granted; not as they should be:", runs - runs / 3, requests, granted);
	for (unsigned int i = 0; i < MUTATED; i++)
		print_message(" %u %s", mutations[i], kinds_mutated[i].name);
	print_message("\n");
	assert_true(one || mutated_enough());
	still_good();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_hello),
	cmocka_unit_test(test_messages),
	cmocka_unit_test(test_windows),
	cmocka_unit_test(test_copies), cmocka_unit_test(test_slots),
	cmocka_unit_test(test_quotas),
	cmocka_unit_test(test_limits),
	cmocka_unit_test(test_descriptors_many),
	cmocka_unit_test(test_descriptors_daemon),
	cmocka_unit_test(test_descriptors_client),
	cmocka_unit_test(test_ring),
	cmocka_unit_test(test_valid),
	cmocka_unit_test(test_bad_memory),
	cmocka_unit_test(test_guard_kept), cmocka_unit_test(test_wakeups),
	cmocka_unit_test(test_process_gone), cmocka_unit_test(test_many_die),
	cmocka_unit_test(test_notes),
	cmocka_unit_test(test_collectives),
	cmocka_unit_test(test_pinned),
	cmocka_unit_test(test_message_valid),
	cmocka_unit_test(test_message_slots),
	cmocka_unit_test(test_message_left),
	cmocka_unit_test(test_message_bad_memory),
	cmocka_unit_test(test_fuzz),
};

KIT_SUITE(tests, .setup = setup, .teardown = teardown);

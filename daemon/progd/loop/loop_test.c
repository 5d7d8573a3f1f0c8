/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Every test runs over both backends. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include "loop/impl.h"

static struct loop *L;
static int kind;

static int setup(int k)
{
	int ret = loop_new(k, &L);

	kind = k;
	if (ret)
		L = NULL;
	return ret && k == LOOP_EPOLL ? ret : 0;
}

static int on_epoll(void **state)
{
	return setup(LOOP_EPOLL);
}

static int on_uring(void **state)
{
	return setup(LOOP_IO_URING);
}

static int teardown(void **state)
{
	loop_free(L);
	L = NULL;
	return 0;
}

#define NEED_LOOP() do { \
	if (!L) { \
		print_message("# io_uring is not permitted here\n"); \
		skip(); \
	} \
	assert_int_equal(loop_kind(L), kind); \
} while (0)

#define RUN(cond) do { \
	time_t limit_ = time(NULL) + 30; \
	while (!(cond)) { \
		assert_true(loop_run_once(L, 1000000) >= 0); \
		if (time(NULL) > limit_) \
			fail_msg("did not happen: %s", #cond); \
	} \
} while (0)

static void idle(int n)
{
	while (n--)
		assert_true(loop_run_once(L, 0) >= 0);
}

static void bump(void *ctx)
{
	++*(int *)ctx;
}

/* ---- watches ------------------------------------------------------------------------------ */

static void test_level(void **state)
{
	struct loop_watch *w;
	int calls = 0, seen, p[2];
	char c;

	NEED_LOOP();
	assert_int_equal(pipe(p), 0);
	w = loop_fd_watch(L, p[0], 0, bump, &calls);
	assert_non_null(w);
	idle(20);
	assert_int_equal(calls, 0);
	assert_int_equal(write(p[1], "ab", 2), 2);
	RUN(calls >= 5);		/* as long as something is there */
	assert_int_equal(read(p[0], &c, 1), 1);
	seen = calls;
	RUN(calls > seen);
	assert_int_equal(read(p[0], &c, 1), 1);
	idle(3);			/* one that was under way */
	seen = calls;
	idle(50);
	assert_int_equal(calls, seen);
	close(p[1]);			/* hung up counts as readable */
	RUN(calls > seen);
	loop_unwatch(w);
	seen = calls;
	idle(20);
	assert_int_equal(calls, seen);
	close(p[0]);
}

static void test_edge(void **state)
{
	struct loop_watch *w;
	int calls = 0, i, fd = eventfd(0, EFD_NONBLOCK);
	uint64_t one = 1;

	NEED_LOOP();
	w = loop_fd_watch(L, fd, LOOP_EDGE, bump, &calls);
	for (i = 1; i < 200; i++) {
		assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
		RUN(calls == i);
		idle(3);
		assert_int_equal(calls, i);
	}
	loop_unwatch(w);
	close(fd);
}

/* Dropped between the wake-up and the callback: not called, and the loop does not wait for it for ever. */
static void test_unwatch_woken(void **state)
{
	int flags[] = { LOOP_EDGE, 0 }, calls = 0;
	uint64_t one = 1;

	NEED_LOOP();
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		int fd = eventfd(0, EFD_NONBLOCK);
		struct loop_watch *w = loop_fd_watch(L, fd, flags[i], bump, &calls);

		idle(3);
		assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
		loop_unwatch(w);
		idle(3);
		assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
		idle(3);
		assert_int_equal(calls, 0);
		close(fd);
	}
	alarm(30);
	loop_free(L);
	alarm(0);
	L = NULL;
}

struct self {
	struct loop_watch *w, *other;
	int calls;
};

static void unwatch_both(void *ctx)
{
	struct self *s = ctx;

	s->calls++;
	loop_unwatch(s->w);
	loop_unwatch(s->other);
	loop_unwatch(NULL);
}

/* Two descriptors are ready at once, and the first callback drops both watches. */
static void test_unwatch_inside(void **state)
{
	struct self a = { 0 }, b = { 0 };
	int p[2], q[2];

	NEED_LOOP();
	assert_int_equal(pipe(p), 0);
	assert_int_equal(pipe(q), 0);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(write(q[1], "x", 1), 1);
	a.w = b.other = loop_fd_watch(L, p[0], 0, unwatch_both, &a);
	b.w = a.other = loop_fd_watch(L, q[0], 0, unwatch_both, &b);
	RUN(a.calls + b.calls);
	idle(20);
	assert_int_equal(a.calls + b.calls, 1);
	/* dropped before it ever ran, and its descriptor closed at once */
	loop_unwatch(loop_fd_watch(L, p[0], 0, bump, &a.calls));
	close(p[0]);
	idle(5);
	assert_int_equal(a.calls + b.calls, 1);
	close(p[1]);
	close(q[0]);
	close(q[1]);
}

/* ---- timers ------------------------------------------------------------------------------- */

struct tick {
	struct loop_timer t;
	int order;
	uint64_t at;
};

static int ticks;

static void ticked(void *ctx)
{
	struct tick *t = ctx;

	t->order = ++ticks;
	t->at = loop_now();
}

static void test_timers(void **state)
{
	struct tick t[4] = { 0 };
	uint64_t start = loop_now();

	NEED_LOOP();
	ticks = 0;
	loop_timer_set(L, &t[0].t, 30000000, ticked, &t[0]);
	loop_timer_set(L, &t[1].t, 10000000, ticked, &t[1]);
	loop_timer_set(L, &t[2].t, 20000000, ticked, &t[2]);
	loop_timer_set(L, &t[3].t, 5000000, ticked, &t[3]);
	loop_timer_cancel(&t[3].t);
	loop_timer_set(L, &t[2].t, 40000000, ticked, &t[2]);
	assert_true(loop_timer_running(&t[0].t));
	assert_false(loop_timer_running(&t[3].t));
	while (ticks < 3)	/* blocks: only the timers can wake it */
		assert_true(loop_run_once(L, -1) >= 0);
	assert_int_equal(t[1].order, 1);
	assert_int_equal(t[0].order, 2);
	assert_int_equal(t[2].order, 3);
	assert_int_equal(t[3].order, 0);
	assert_true(t[1].at >= start + 10000000);
	assert_true(t[0].at >= start + 30000000);
	assert_true(t[2].at >= start + 40000000);
	/* a wait ends at its own limit */
	start = loop_now();
	assert_int_equal(loop_run_once(L, 3000000), 0);
	assert_true(loop_now() >= start + 2000000);
}

/* ---- sockets ------------------------------------------------------------------------------ */

struct end {
	struct loop_sock *s;
	struct iovec iov[8];
	uint8_t *buf;
	size_t done, total;
	ssize_t last;
	int calls, closed;
};

static unsigned int seed;

static void send_more(void *ctx, ssize_t res);
static void recv_more(void *ctx, ssize_t res);

static size_t slice(struct end *e, int *n, size_t max)
{
	size_t at = e->done, len, sum = 0;
	int i;

	for (i = 0; i < 8 && at < e->total && sum < max; i++) {
		len = rand_r(&seed) % 4 ? rand_r(&seed) % 300 + 1 : rand_r(&seed) % 200000 + 1;
		if (len > e->total - at)
			len = e->total - at;
		e->iov[i] = (struct iovec){ e->buf + at, len };
		at += len;
		sum += len;
	}
	*n = i;
	return sum;
}

static void send_next(struct end *e)
{
	int n;

	e->last = slice(e, &n, SIZE_MAX);
	if (n) {
		assert_int_equal(loop_sock_send(e->s, e->iov, n, send_more), 0);
		assert_int_equal(loop_sock_send(e->s, e->iov, n, send_more), -EBUSY);
	}
}

static void send_more(void *ctx, ssize_t res)
{
	struct end *e = ctx;

	assert_int_equal(res, e->last);		/* all of it, always */
	e->done += res;
	send_next(e);
}

static void recv_next(struct end *e)
{
	int n;

	slice(e, &n, SIZE_MAX);
	if (n)
		assert_int_equal(loop_sock_recv(e->s, e->iov, n, recv_more), 0);
}

static void recv_more(void *ctx, ssize_t res)
{
	struct end *e = ctx;

	assert_true(res > 0);
	e->done += res;
	recv_next(e);
}

static void one_io(void *ctx, ssize_t res)
{
	struct end *e = ctx;

	e->calls++;
	e->last = res;
}

static void on_closed(void *ctx)
{
	((struct end *)ctx)->closed++;
}

/* More than the sockets hold, in random pieces, checked byte by byte; then the end of it. */
static void test_stream(void **state)
{
	struct end a = { .total = 8 << 20 }, b = { .total = 8 << 20 };
	int p[2], small = 4096;
	size_t i;

	NEED_LOOP();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	setsockopt(p[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	a.buf = malloc(a.total);
	b.buf = calloc(1, b.total);
	for (i = 0; i < a.total; i++)
		a.buf[i] = i * 31 + (i >> 10);
	a.s = loop_sock_new(L, p[0], &a);
	b.s = loop_sock_new(L, p[1], &b);
	assert_int_equal(loop_sock_fd(a.s), p[0]);
	send_next(&a);
	recv_next(&b);
	RUN(a.done == a.total && b.done == b.total);
	assert_memory_equal(a.buf, b.buf, a.total);
	b.iov[0] = (struct iovec){ b.buf, 100 };
	assert_int_equal(loop_sock_recv(b.s, b.iov, 1, one_io), 0);
	loop_sock_close(a.s, on_closed);
	assert_int_equal(a.closed, 0);		/* never from inside a call */
	assert_int_equal(loop_sock_recv(a.s, a.iov, 1, one_io), -ENOTCONN);
	RUN(a.closed && b.calls);
	assert_int_equal(b.last, 0);
	loop_sock_close(b.s, on_closed);
	loop_sock_close(b.s, on_closed);
	RUN(b.closed);
	idle(5);
	assert_int_equal(b.closed, 1);
	free(a.buf);
	free(b.buf);
}

/* Closing with both directions under way: both callbacks come, then the last one. */
static void test_close_busy(void **state)
{
	int p[2], round;

	NEED_LOOP();
	for (round = 0; round < 50; round++) {
		const size_t len = 4 << 20;
		struct end e = { .buf = malloc(len) };
		struct iovec in = { malloc(100), 100 }, out = { e.buf, len };

		memset(e.buf, 1, len);
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
		e.s = loop_sock_new(L, p[0], &e);
		assert_int_equal(loop_sock_recv(e.s, &in, 1, one_io), 0);
		assert_int_equal(loop_sock_send(e.s, &out, 1, one_io), 0);
		assert_int_equal(loop_sock_release(e.s), -EBUSY);
		idle(round % 5);
		assert_int_equal(e.calls, 0);
		loop_sock_close(e.s, on_closed);
		RUN(e.closed);
		assert_int_equal(e.calls, 2);
		assert_true(e.last < 0);
		/* the kernel has let go: the peer sees the end behind what was sent */
		while (recv(p[1], e.buf, len, 0) > 0)
			;
		close(p[1]);
		free(e.buf);
		free(in.iov_base);
	}
}

static uint8_t *bad;
static size_t bad_len;
static volatile sig_atomic_t faults;

static void on_sigbus(int sig, siginfo_t *si, void *ctx)
{
	uint8_t *p = si->si_addr;

	faults = faults + 1;
	if (p < bad || p >= bad + bad_len ||
	    mmap(bad, bad_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		abort();
}

/* Pages behind the end of a file: whoever touches them gets SIGBUS, and the kernel EFAULT. */
static void make_bad(int fd)
{
	bad = mmap(NULL, bad_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(bad != MAP_FAILED);
	faults = 0;
}

/* Memory that cannot be provided is the handler's affair, and the connection's bytes go on. */
static void test_bad_memory(void **state)
{
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER }, old;
	struct end a = { 0 }, b = { 0 };
	uint8_t head[10], buf[30000];
	struct iovec in[2], out[2];
	int p[2], fd = memfd_create("bad", MFD_CLOEXEC);

	NEED_LOOP();
	bad_len = 16384;
	assert_true(fd >= 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	a.s = loop_sock_new(L, p[0], &a);
	b.s = loop_sock_new(L, p[1], &b);
	assert_int_equal(sigaction(SIGBUS, &sa, &old), 0);
	/* received into */
	make_bad(fd);
	memset(buf, 7, 100);
	out[0] = (struct iovec){ buf, 100 };
	in[0] = (struct iovec){ head, sizeof(head) };
	in[1] = (struct iovec){ bad + 4090, 90 };	/* over a page's end */
	assert_int_equal(loop_sock_recv(b.s, in, 2, one_io), 0);
	assert_int_equal(loop_sock_send(a.s, out, 1, one_io), 0);
	RUN(a.calls && b.calls);
	assert_int_equal(a.last, 100);
	/* the kernel may stop where it cannot go on: the rest is still there */
	if (b.last == sizeof(head)) {
		b.calls = 0;
		in[0] = (struct iovec){ bad + 4090, 90 };
		assert_int_equal(loop_sock_recv(b.s, in, 1, one_io), 0);
		RUN(b.calls);
		b.last += sizeof(head);
	}
	assert_int_equal(b.last, 100);
	assert_int_equal(faults, 1);
	assert_memory_equal(bad + 4090, buf, 90);
	munmap(bad, bad_len);
	/* sent from, behind good bytes */
	make_bad(fd);
	a.calls = b.calls = 0;
	out[1] = (struct iovec){ bad, bad_len };
	assert_int_equal(loop_sock_send(a.s, out, 2, one_io), 0);
	RUN(a.calls);
	assert_int_equal(a.last, 100 + bad_len);
	assert_int_equal(recv(p[1], buf, sizeof(buf), MSG_DONTWAIT), 100 + bad_len);
	assert_int_equal(buf[99], 7);
	for (size_t i = 100; i < 100 + bad_len; i++)
		assert_int_equal(buf[i], 0);
	assert_int_equal(faults, 1);
	munmap(bad, bad_len);
	assert_int_equal(sigaction(SIGBUS, &old, NULL), 0);
	loop_sock_close(a.s, on_closed);
	loop_sock_close(b.s, on_closed);
	RUN(a.closed && b.closed);
	close(fd);
}

/* loop_free with operations and watches under way frees all and closes the sockets. */
static void test_free_busy(void **state)
{
	struct end e = { 0 };
	uint8_t buf[100];
	struct iovec in = { buf, sizeof(buf) };
	struct loop_timer t = { 0 };
	int p[2], q[2], calls = 0;

	NEED_LOOP();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	assert_int_equal(pipe(q), 0);
	e.s = loop_sock_new(L, p[0], &e);
	assert_int_equal(loop_sock_recv(e.s, &in, 1, one_io), 0);
	assert_non_null(loop_fd_watch(L, q[0], 0, bump, &calls));
	loop_timer_set(L, &t, 1000000000000ull, bump, &calls);
	idle(3);
	loop_free(L);
	L = NULL;
	assert_int_equal(e.calls + calls, 0);
	assert_int_equal(recv(p[1], buf, sizeof(buf), 0), 0);
	close(p[1]);
	close(q[0]);
	close(q[1]);
}

static void released(void *ctx, ssize_t res)
{
	struct end *e = ctx;

	e->last = loop_sock_release(e->s);
	e->calls++;
}

static void test_release(void **state)
{
	struct end e = { 0 };
	uint8_t buf[4];
	struct iovec in = { buf, 4 };
	int p[2];

	NEED_LOOP();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	e.s = loop_sock_new(L, p[0], &e);
	assert_int_equal(loop_sock_recv(e.s, &in, 1, released), 0);
	assert_int_equal(send(p[1], "abcdefgh", 8, 0), 8);
	RUN(e.calls);
	assert_int_equal(e.last, p[0]);
	idle(5);
	/* what was not asked for is still there, and another loop object can have it */
	e.s = loop_sock_new(L, p[0], &e);
	assert_non_null(e.s);
	assert_int_equal(loop_sock_recv(e.s, &in, 1, one_io), 0);
	RUN(e.calls == 2);
	assert_memory_equal(buf, "efgh", 4);
	loop_sock_close(e.s, on_closed);
	RUN(e.closed);
	close(p[1]);
}

/* ---- listening and connecting --------------------------------------------------------------- */

struct conn {
	int fd, err, calls;
};

static void on_connect(void *ctx, int fd, int err)
{
	struct conn *c = ctx;

	c->fd = fd;
	c->err = err;
	c->calls++;
}

static int accepted_fds[64], naccepted;

static void on_accept(void *ctx, int fd)
{
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	accepted_fds[naccepted++] = fd;
}

static void test_connect(void **state)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	struct conn c = { 0 };
	struct loop_watch *w;
	struct loop_connect *lc;
	int i, ls = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	NEED_LOOP();
	naccepted = 0;
	assert_int_equal(bind(ls, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(getsockname(ls, (struct sockaddr *)&sa, &len), 0);
	/* bound and not listening: refused */
	assert_non_null(loop_connect(L, socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&sa,
				     sizeof(sa), 5000000000ull, on_connect, &c));
	assert_int_equal(c.calls, 0);
	RUN(c.calls);
	assert_int_equal(c.err, -ECONNREFUSED);
	assert_int_equal(c.fd, -1);

	assert_int_equal(listen(ls, 64), 0);
	w = loop_accept(L, ls, on_accept, NULL);
	assert_non_null(w);
	for (i = 0; i < 20; i++) {
		c.calls = 0;
		assert_non_null(loop_connect(L, socket(AF_INET, SOCK_STREAM, 0),
					     (struct sockaddr *)&sa, sizeof(sa), 5000000000ull,
					     on_connect, &c));
		RUN(c.calls && naccepted == i + 1);
		assert_int_equal(c.err, 0);
		close(c.fd);
		close(accepted_fds[i]);
	}
	c.calls = 0;
	lc = loop_connect(L, socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&sa, sizeof(sa),
			  5000000000ull, on_connect, &c);
	loop_connect_cancel(lc);
	loop_connect_cancel(NULL);
	idle(10);
	assert_int_equal(c.calls, 0);
	loop_unwatch(w);
	idle(2);
	close(ls);
	while (naccepted > 20)
		close(accepted_fds[--naccepted]);
}

/* A backlog that is full makes connecting hang: the time is bounded. */
static void test_connect_timeout(void **state)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	struct conn c[8] = { 0 };
	int i, timeouts = 0, ls = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	NEED_LOOP();
	assert_int_equal(bind(ls, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(ls, 0), 0);
	assert_int_equal(getsockname(ls, (struct sockaddr *)&sa, &len), 0);
	for (i = 0; i < 8; i++)
		assert_non_null(loop_connect(L, socket(AF_INET, SOCK_STREAM, 0),
					     (struct sockaddr *)&sa, sizeof(sa), 50000000,
					     on_connect, &c[i]));
	for (i = 0; i < 8; i++) {
		RUN(c[i].calls);
		if (!c[i].err) {
			close(c[i].fd);
			continue;
		}
		assert_int_equal(c[i].err, -ETIMEDOUT);
		timeouts++;
	}
	assert_true(timeouts > 0);
	close(ls);
}

/* Two ends of a TCP connection. */
static void tcp_pair(int p[2])
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	int ls = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(ls, (struct sockaddr *)&sin, len), 0);
	assert_int_equal(listen(ls, 1), 0);
	assert_int_equal(getsockname(ls, (struct sockaddr *)&sin, &len), 0);
	p[0] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(p[0], (struct sockaddr *)&sin, len), 0);
	p[1] = accept(ls, NULL, NULL);
	assert_true(p[1] >= 0);
	close(ls);
}

/* Bytes that have come, once there are as many as @n. */
static void arrived(int fd, int n)
{
	int there = 0;

	while (there < n)
		assert_int_equal(ioctl(fd, FIONREAD, &there), 0);
	assert_int_equal(there, n);
}

/* Fewer bytes than are expected wake nobody; all of them do, and so does the end of the stream. */
static void test_expect(void **state)
{
	struct end e = { 0 };
	char sent[3000], got[4000];
	int p[2], i;

	NEED_LOOP();
	for (i = 0; i < (int)sizeof(sent); i++)
		sent[i] = i * 7;
	tcp_pair(p);
	e.s = loop_sock_new(L, p[1], &e);
	e.iov[0] = (struct iovec){ got, sizeof(got) };
	loop_sock_expect(e.s, 1000);
	assert_int_equal(loop_sock_recv(e.s, e.iov, 1, one_io), 0);
	idle(3);
	for (i = 0; i < 3; i++) {
		assert_int_equal(write(p[0], sent + 300 * i, 300), 300);
		arrived(p[1], 300 * (i + 1));
		idle(20);
		assert_int_equal(e.calls, 0);
	}
	assert_int_equal(write(p[0], sent + 900, 100), 100);
	RUN(e.calls);
	assert_int_equal(e.last, 1000);
	assert_memory_equal(got, sent, 1000);
	/* less is expected while a little is there already */
	loop_sock_expect(e.s, 2000);
	e.iov[0] = (struct iovec){ got, sizeof(got) };
	assert_int_equal(write(p[0], sent, 10), 10);
	arrived(p[1], 10);
	loop_sock_expect(e.s, 0);
	assert_int_equal(loop_sock_recv(e.s, e.iov, 1, one_io), 0);
	RUN(e.calls == 2);
	assert_int_equal(e.last, 10);
	/* the end */
	loop_sock_expect(e.s, 2000);
	e.iov[0] = (struct iovec){ got, sizeof(got) };
	assert_int_equal(loop_sock_recv(e.s, e.iov, 1, one_io), 0);
	assert_int_equal(write(p[0], sent, 20), 20);
	arrived(p[1], 20);
	idle(20);
	assert_int_equal(e.calls, 2);
	close(p[0]);
	RUN(e.calls == 3);
	assert_int_equal(e.last, 20);
	e.iov[0] = (struct iovec){ got, sizeof(got) };
	assert_int_equal(loop_sock_recv(e.s, e.iov, 1, one_io), 0);
	RUN(e.calls == 4);
	assert_int_equal(e.last, 0);
	loop_sock_close(e.s, on_closed);
	RUN(e.closed);
}

/* Out of descriptors: the loop rests instead of spinning, and goes on when there are some. */
static void test_accept_limit(void **state)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	struct rlimit old, now;
	struct loop_watch *w;
	int c, i, runs = 0, ls = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	NEED_LOOP();
	naccepted = 0;
	assert_int_equal(bind(ls, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(ls, 8), 0);
	assert_int_equal(getsockname(ls, (struct sockaddr *)&sa, &len), 0);
	w = loop_accept(L, ls, on_accept, NULL);
	c = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(c, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	now = old;
	now.rlim_cur = c + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	for (i = 0; i < 20; i++)
		runs += loop_run_once(L, 1000000) > 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(naccepted, 0);
	assert_true(runs < 10);
	RUN(naccepted == 1);
	loop_unwatch(w);
	idle(2);
	close(accepted_fds[0]);
	close(c);
	close(ls);
}

static void test_prepare(void **state)
{
	int a = 0, b = 0, i;

	NEED_LOOP();
	assert_int_equal(loop_prepare(L, bump, &a), 0);
	assert_int_equal(loop_prepare(L, bump, &b), 0);
	idle(3);
	loop_unprepare(L, bump, &a);
	idle(2);
	assert_int_equal(a, 3);
	assert_int_equal(b, 5);
	for (i = 0; i < 7; i++)
		assert_int_equal(loop_prepare(L, bump, &a), 0);
	assert_int_equal(loop_prepare(L, bump, &a), -ENOSPC);
}

static void test_kinds(void **state)
{
	struct loop *l;

	assert_int_equal(loop_kind_parse("auto"), LOOP_AUTO);
	assert_int_equal(loop_kind_parse("io_uring"), LOOP_IO_URING);
	assert_int_equal(loop_kind_parse("epoll"), LOOP_EPOLL);
	assert_int_equal(loop_kind_parse("kqueue"), -EINVAL);
	assert_int_equal(loop_new(99, &l), -EINVAL);
	assert_int_equal(loop_new(LOOP_AUTO, &l), 0);
	assert_string_equal(loop_kind_name(l),
			    loop_kind(l) == LOOP_EPOLL ? "epoll" : "io_uring");
	loop_free(l);
	loop_free(NULL);
}

/* A ring does what the loop needs, and is no way round a filter of system calls. */
static void test_ring(void **state)
{
	struct io_uring *ring;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;

	NEED_LOOP();
	assert_true(loop_run_once(L, 0) >= 0);
	ring = L->backend;
	for (int i = 0; i < 3; i++) {
		sqe = io_uring_get_sqe(ring);
		assert_non_null(sqe);
		if (i == 0)
			io_uring_prep_openat(sqe, AT_FDCWD, "/dev/null", O_RDONLY, 0);
		else if (i == 1)
			io_uring_prep_connect(sqe, 0, NULL, 0);
		else
			io_uring_prep_poll_add(sqe, -1, POLLIN);
		assert_int_equal(io_uring_submit_and_wait(ring, 1), 1);
		assert_int_equal(io_uring_peek_cqe(ring, &cqe), 0);
		assert_int_equal(cqe->res, i < 2 ? -EACCES : -EBADF);
		io_uring_cqe_seen(ring, cqe);
	}
}

#define BOTH(t) \
	{ #t " epoll", t, on_epoll, teardown, NULL }, \
	{ #t " io_uring", t, on_uring, teardown, NULL }

#ifdef PROG_CHECKS
static void *use_it(void *arg)
{
	struct loop_timer t = { 0 };

	loop_timer_set(arg, &t, 1, NULL, NULL);
	return NULL;
}

/* A thread that does not run the loop is caught. */
static void test_other_thread(void **state)
{
	int st;
	pid_t pid;

	NEED_LOOP();
	loop_run_once(L, 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		pthread_t other;

		close(2);
		if (!pthread_create(&other, NULL, use_it, L))
			pthread_join(other, NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFSIGNALED(st));
	assert_int_equal(WTERMSIG(st), SIGABRT);
}
#endif

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_kinds),
	BOTH(test_level), BOTH(test_edge), BOTH(test_unwatch_woken), BOTH(test_unwatch_inside),
	cmocka_unit_test_setup_teardown(test_ring, on_uring, teardown),
	BOTH(test_timers), BOTH(test_stream), BOTH(test_close_busy), BOTH(test_bad_memory),
	BOTH(test_free_busy), BOTH(test_release), BOTH(test_connect),
	BOTH(test_connect_timeout), BOTH(test_expect), BOTH(test_accept_limit), BOTH(test_prepare),
#ifdef PROG_CHECKS
	BOTH(test_other_thread),
#endif
};

static int setup_all(void **state)
{
	seed = kit_seed();
	return 0;
}

KIT_SUITE(tests, .setup = setup_all);

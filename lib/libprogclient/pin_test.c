// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Pinned memory of a client: with a device and a daemon of our own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/kit.h>

#include <kit/pin_fake.h>
#include <libprogbase/scm.h>

#include "client.h"

#define PAGE	4096
#define SIZE	(1024 * PAGE)
#define REGIONS	64

/* The daemon: a thread that answers; what it was told. */
static struct {
	int sock;
	pthread_t thread;
	int device_err;			/* what it says about the context */
	int add_err;
	unsigned int stale;		/* so many regions end before it looks at them */
	bool opens;			/* it may open the device, for clients that may not */
	unsigned int devices, sent_fds, adds, dels, notes;
	int note;			/* the last one */
	uint64_t handle[REGIONS];
} d;

static char *mem;

static void answer(int sock, uint16_t type, int status, uint32_t slot, int fd)
{
	struct prog_ctrl_slot rep = { .hdr = { type, sizeof(rep), status }, .slot = slot };
	SCM_BUF(1) ctl;
	struct iovec iov = { &rep, sizeof(rep) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

	scm_attach(&mh, ctl.buf, &fd, fd >= 0);
	(void)!sendmsg(sock, &mh, MSG_NOSIGNAL);
}

static void *serve(void *arg)
{
	union {
		struct prog_ctrl_hdr hdr;
		struct prog_ctrl_pin_add add;
		struct prog_ctrl_slot slot;
		char bytes[1024];
	} m;
	SCM_BUF(4) ctl;
	struct iovec iov = { &m, sizeof(m) };
	uint32_t i;

	for (;;) {
		struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
				     .msg_controllen = sizeof(ctl.buf) };
		int fd = -1;

		if (recvmsg(d.sock, &mh, 0) <= 0)
			return NULL;
		scm_take(&mh, &fd, 1);
		switch (m.hdr.type) {
		case PROG_CTRL_PIN_DEVICE:
			d.devices++;
			d.sent_fds += fd >= 0;
			if (fd >= 0)
				close(fd);
			if (d.opens)
				pin_fake.open_err = 0;
			fd = fd < 0 && d.opens ? pin_fake_open() : -1;
			answer(d.sock, m.hdr.type, d.device_err, 0, d.device_err ? -1 : fd);
			if (fd >= 0)
				close(fd);
			break;
		case PROG_CTRL_PIN_ADD:
			if (!m.add.handle) {
				d.notes++;
				d.note = m.add.error;
				answer(d.sock, m.hdr.type, 0, 0, -1);
				break;
			}
			d.adds++;
			for (i = 0; d.handle[i]; i++)
				;
			if (d.stale) {
				d.stale--;
				pin_fake_stale(m.add.handle);
				answer(d.sock, m.hdr.type, -ESTALE, 0, -1);
				break;
			}
			if (!d.add_err)
				d.handle[i] = m.add.handle;
			answer(d.sock, m.hdr.type, d.add_err, i, -1);
			break;
		case PROG_CTRL_REGION_DEL:
			d.dels++;
			d.handle[m.slot.slot] = 0;
			answer(d.sock, m.hdr.type, 0, 0, -1);
			break;
		default:
			answer(d.sock, m.hdr.type, -EPROTO, 0, -1);
		}
	}
}

/* The daemon is to have let go of a region before its registration ends. */
static void on_unregister(const struct pin_fake_region *r)
{
	for (uint32_t i = 0; i < REGIONS; i++)
		assert_int_not_equal(d.handle[i], r->handle);
}

static struct prog_session *open_session(void)
{
	struct prog_session *s = calloc(1, sizeof(*s));
	int sv[2];

	memset(&d, 0, sizeof(d));
	pin_fake.registered = pin_fake.unregistered = 0;
	pin_fake.on_unregister = on_unregister;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv), 0);
	d.sock = sv[1];
	assert_int_equal(pthread_create(&d.thread, NULL, serve, NULL), 0);
	s->sock = sv[0];
	s->features = PROG_FEAT_PINNED;
	s->pin_max = 1ull << 40;
	s->pin_cache = 1ull << 40;
	pthread_mutex_init(&s->ctrl_lock, NULL);
	pins_init(&s->pins);
	return s;
}

static void close_session(struct prog_session *s)
{
	pins_destroy(s);
	close(s->sock);
	pthread_join(d.thread, NULL);
	close(d.sock);
	pthread_mutex_destroy(&s->ctrl_lock);
	free(s);
	assert_int_equal(pin_fake.registered, pin_fake.unregistered);
}

static void test_window(void **state)
{
	struct prog_session *s = open_session();
	struct pin *a, *b;

	assert_int_equal(pin_get(s, mem + 5, 3 * PAGE, &a), 0);
	assert_int_equal(pin_get(s, mem + PAGE, 3 * PAGE, &b), 0);
	assert_int_equal(d.devices, 1);
	assert_int_equal(d.sent_fds, 1);
	assert_int_not_equal(a->id, b->id);
	assert_int_equal(d.handle[a->id], a->r.handle);
	assert_int_equal(s->pins.bytes, 6 * PAGE);
	pin_put(s, a);
	assert_int_equal(d.dels, 1);
	assert_int_equal(pin_fake.unregistered, 1);
	pin_put(s, b);
	pin_put(s, NULL);
	assert_int_equal(s->pins.bytes, 0);
	close_session(s);
}

/* What cannot be pinned is told, and nothing else comes of it. */
static void test_refused(void **state)
{
	static const int errors[] = { -ENOMEM, -EDQUOT, -EOPNOTSUPP, -EFAULT, -EAGAIN };
	struct prog_session *s = open_session();
	struct pin *p = NULL;
	unsigned int i;

	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		pin_fake.register_err = errors[i];
		assert_int_equal(pin_get(s, mem, PAGE, &p), errors[i]);
		assert_null(p);
		assert_int_equal(d.notes, i + 1);
		assert_int_equal(d.note, errors[i]);
	}
	/* memory that is none of what can be pinned */
	assert_int_equal(pin_get(s, &d, sizeof(d), &p), -EFAULT);
	/* the daemon does not want it: the registration ends */
	d.add_err = -EDQUOT;
	assert_int_equal(pin_get(s, mem, PAGE, &p), -ECONNREFUSED);
	assert_int_equal(d.notes, i + 1);
	assert_int_equal(pin_fake.unregistered, 1);
	d.add_err = 0;
	/* more than this process should */
	s->pin_max = 10 * PAGE;
	assert_int_equal(pin_get(s, mem, 11 * PAGE, &p), -EDQUOT);
	assert_int_equal(pin_get(s, mem, 10 * PAGE, &p), 0);
	assert_int_equal(pin_get(s, mem, 1, &p), -EDQUOT);
	pin_put(s, p);
	assert_int_equal(s->pins.bytes, 0);
	close_session(s);
}

/* Memory that the kernel moves before the daemon has looked at it is pinned where it is then. */
static void test_moved(void **state)
{
	struct prog_session *s = open_session();
	struct pin *p = NULL;

	d.stale = 3;
	assert_int_equal(pin_get(s, mem, PAGE, &p), 0);
	assert_int_equal(d.adds, 4);
	assert_int_equal(d.notes, 0);
	assert_int_equal(pin_fake.unregistered, 3);
	assert_int_equal(d.handle[p->id], p->r.handle);
	assert_true(pin_fresh(p->r.mark, p->r.handle));
	pin_put(s, p);
	/* it moves all the time */
	d.stale = 100;
	assert_int_equal(pin_get(s, mem, PAGE, &p), -ESTALE);
	assert_int_equal(d.stale, 100 - 4);
	assert_int_equal(d.notes, 1);
	assert_int_equal(d.note, -ESTALE);
	assert_int_equal(s->pins.bytes, 0);
	close_session(s);
}

static void test_device(void **state)
{
	struct prog_session *s = open_session();
	struct pin *p;

	/* ours to open it is not, but the daemon's */
	pin_fake.open_err = -EACCES;
	d.device_err = -EACCES;
	assert_int_equal(pin_get(s, mem, PAGE, &p), -ENODEV);
	assert_int_equal(d.devices, 1);
	/* asked once */
	assert_int_equal(pin_get(s, mem, PAGE, &p), -ENODEV);
	assert_int_equal(d.devices, 1);
	close_session(s);

	s = open_session();
	assert_int_equal(pin_get(s, mem, PAGE, &p), -ENODEV);	/* says yes, sends nothing */
	close_session(s);

	s = open_session();
	d.opens = true;
	assert_int_equal(pin_get(s, mem, PAGE, &p), 0);
	assert_int_equal(d.sent_fds, 0);
	pin_put(s, p);
	close_session(s);

	s = open_session();
	s->features = 0;		/* an older daemon, or no module */
	assert_int_equal(pin_get(s, mem, PAGE, &p), -ENODEV);
	assert_int_equal(d.devices, 0);
	close_session(s);

	s = open_session();
	setenv("PROG_PIN", "off", 1);
	assert_int_equal(pin_get(s, mem, PAGE, &p), -ENODEV);
	unsetenv("PROG_PIN");
	close_session(s);
}

#define BUF	(64 * 1024)

static struct pin *use(struct prog_session *s, char *p, size_t n, bool write)
{
	struct pin *pin = pin_use(s, p, n, write);

	if (pin) {
		assert_true(pin->addr <= p && p + n <= pin->addr + pin->size);
		assert_true(pin->r.writable || !write);
		assert_true(pin_fresh(pin->r.mark, pin->r.handle));
		assert_int_equal(d.handle[pin->id], pin->r.handle);
	}
	return pin;
}

/* Pinned with the second use, kept for the third. */
static void test_buffer(void **state)
{
	struct prog_session *s = open_session();
	struct pin *a, *b, *w;

	assert_null(use(s, mem, BUF, false));
	assert_null(use(s, mem, BUF - 1, false));	/* small */
	assert_int_equal(d.adds, 0);
	a = use(s, mem, BUF, false);
	assert_non_null(a);
	assert_int_equal(d.adds, 1);
	/* once more at the same time, and a part of it */
	assert_ptr_equal(use(s, mem, BUF, true), a);
	pin_unuse(s, a);
	pin_unuse(s, a);
	assert_int_equal(d.dels, 0);
	b = use(s, mem, BUF, true);
	assert_ptr_equal(a, b);
	pin_unuse(s, b);
	pin_unuse(s, NULL);
	/* beyond its end: another buffer */
	assert_null(use(s, mem + PAGE, BUF, true));
	assert_int_equal(s->pins.buffers, BUF);

	/* memory of a window is there already; an operation may outlast the window */
	assert_int_equal(pin_get(s, mem + 100 * PAGE, 2 * BUF, &w), 0);
	assert_ptr_equal(use(s, mem + 100 * PAGE + BUF, BUF, true), w);
	pin_put(s, w);
	assert_int_equal(d.dels, 0);
	pin_unuse(s, w);
	assert_int_equal(d.dels, 1);
	assert_int_equal(s->pins.bytes, BUF);
	d.dels = 0;
	memset(d.handle, 0, sizeof(d.handle));	/* a session that ends ends its regions */
	close_session(s);
}

/* munmap() and the like under a buffer: what is there now is registered anew. */
static void test_stale(void **state)
{
	struct prog_session *s = open_session();
	struct pin *a, *b;
	uint64_t handle;

	use(s, mem, BUF, false);
	a = use(s, mem, BUF, false);
	assert_non_null(a);
	handle = a->r.handle;
	/* while it is used it stays; who asks then gets another one */
	pin_fake_stale(handle);
	b = use(s, mem, BUF, false);
	assert_non_null(b);
	assert_ptr_not_equal(a, b);
	assert_int_not_equal(b->r.handle, handle);
	pin_unuse(s, a);
	pin_unuse(s, b);
	/* the marks say that something changed: what is stale is given back, though nobody asks for it again */
	pin_fake_stale(b->r.handle);
	pin_fake_changed(s->pins.dev.fd);
	assert_null(use(s, mem + 200 * PAGE, BUF, false));
	assert_int_equal(d.dels, 2);
	assert_int_equal(pin_fake.unregistered, 2);
	assert_int_equal(s->pins.buffers, 0);
	close_session(s);
}

/* No more than so many bytes are kept, of those used last; what is in use stays. */
static void test_bound(void **state)
{
	struct prog_session *s = open_session();
	struct pin *held, *a;
	char *buf[6];

	s->pin_cache = 4 * BUF;
	for (int i = 0; i < 6; i++) {
		buf[i] = mem + i * 32 * PAGE;
		use(s, buf[i], BUF, false);
	}
	for (int i = 0; i < 4; i++)
		pin_unuse(s, use(s, buf[i], BUF, false));
	assert_int_equal(s->pins.buffers, 4 * BUF);
	/* round and round more buffers than may be pinned: nothing is thrown out */
	for (int i = 0; i < 20; i++)
		pin_unuse(s, use(s, buf[i % 6], BUF, false));
	assert_int_equal(d.adds, 4);
	assert_int_equal(d.dels, 0);
	/* two that are not used for long make room; one that is in use does not */
	held = use(s, buf[0], BUF, false);
	assert_non_null(held);
	for (int i = 0; i < 300; i++)
		pin_unuse(s, use(s, buf[1 + i % 2], BUF, false));
	a = use(s, buf[4], BUF, false);
	assert_non_null(a);
	pin_unuse(s, a);
	assert_int_equal(d.dels, 1);
	assert_true(pin_fresh(held->r.mark, held->r.handle));
	assert_null(use(s, buf[5], BUF, false));
	assert_int_equal(s->pins.buffers, 4 * BUF);
	pin_unuse(s, held);
	/* larger than all of it */
	assert_null(use(s, mem, 5 * BUF, false));
	assert_null(use(s, mem, 5 * BUF, false));
	s->pin_cache = 0;
	assert_null(use(s, buf[1], BUF, false));
	memset(d.handle, 0, sizeof(d.handle));
	close_session(s);
}

/* Memory for reading can be read; what cannot be pinned is tried once. */
static void test_read_only(void **state)
{
	struct prog_session *s = open_session();
	struct pin *a, *b;

	use(s, mem, BUF, false);
	pin_fake.register_err = -EFAULT;	/* for writing */
	a = use(s, mem, BUF, false);
	assert_non_null(a);
	assert_false(a->r.writable);
	pin_unuse(s, a);
	/* for a get it is no good */
	b = use(s, mem, BUF, true);
	assert_non_null(b);
	assert_ptr_not_equal(a, b);
	pin_unuse(s, b);
	use(s, mem + 100 * PAGE, BUF, true);
	pin_fake.register_err = -EOPNOTSUPP;
	assert_null(use(s, mem + 100 * PAGE, BUF, true));
	assert_int_equal(d.note, -EOPNOTSUPP);
	assert_int_equal(d.notes, 1);
	assert_null(use(s, mem + 100 * PAGE, BUF, true));
	assert_int_equal(d.notes, 1);
	memset(d.handle, 0, sizeof(d.handle));
	close_session(s);
}

/* The daemon is gone: what is pinned can still be given back. */
static void test_lost(void **state)
{
	struct prog_session *s = open_session();
	struct pin *a, *b;

	assert_int_equal(pin_get(s, mem, PAGE, &a), 0);
	shutdown(d.sock, SHUT_RDWR);
	pin_fake.on_unregister = NULL;
	pin_put(s, a);
	assert_int_equal(pin_fake.unregistered, 1);
	assert_true(session_lost(s));
	assert_int_equal(pin_get(s, mem, PAGE, &b), -ENODEV);
	close_session(s);
}

/* A child has no part in what its parent registered. */
static void test_fork(void **state)
{
	struct prog_session *s = open_session();
	struct pin *a;
	int status;
	pid_t pid;

	assert_int_equal(pin_get(s, mem, PAGE, &a), 0);
	pins_fork_prepare(&s->pins);
	pid = fork();
	if (!pid) {
		pins_fork_child(&s->pins);
		pin_put(s, a);
		_exit(pin_fake.unregistered || s->pins.dev.fd >= 0 ? 1 : 0);
	}
	pins_fork_parent(&s->pins);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(pin_fresh(a->r.mark, a->r.handle));
	pin_put(s, a);
	close_session(s);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_window),
	cmocka_unit_test(test_refused),
	cmocka_unit_test(test_moved),
	cmocka_unit_test(test_device),
	cmocka_unit_test(test_buffer),
	cmocka_unit_test(test_stale),
	cmocka_unit_test(test_bound),
	cmocka_unit_test(test_read_only),
	cmocka_unit_test(test_lost),
	cmocka_unit_test(test_fork),
};

static int setup_all(void **state)
{
	pin_fake_on();
	mem = pin_fake_mem(SIZE);
	return mem ? 0 : -1;
}

KIT_SUITE(tests, .setup = setup_all);

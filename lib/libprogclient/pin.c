// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Pinned memory: private memory of the program that /dev/asyncprog lets the daemon map, so that it
 * gets there without system calls, and without being asked for.
 *
 * Memory of windows is pinned as long as they need it.  Large buffers that are used again are, too, and
 * stay pinned for the next time, up to a number of bytes; those not used for longest make room.  A
 * registration is used only while its mark is there: after munmap(), mremap(), free() and the like the
 * address is other memory, or none.
 *
 * All of it is under pins.lock, which requests to the daemon are made under, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <utlist.h>

#include "client.h"

#define BUFFER_MIN	(64u << 10)	/* smaller ones are not worth it */
/*
 * A buffer makes room for others when it was not among so many that were used last: a program that goes round more
 * buffers than may be pinned has some of them pinned, and does not pay for pinning each of them each time.
 */
#define BUFFER_AGE	256u
/* So often is memory registered that the kernel moves, for a huge page say, before the daemon has looked at it. */
#define TRIES		4

enum { PINS_NEW, PINS_ON, PINS_OFF };

void pins_init(struct pins *p)
{
	pthread_mutex_init(&p->lock, NULL);
	p->state = PINS_NEW;
	p->dev = (struct pin_dev)PIN_DEV_NONE;
}

/* Why something is not pinned, for the daemon's reports. */
static void tell(struct prog_session *s, int error)
{
	struct prog_ctrl_pin_add req = { .error = error };
	struct prog_ctrl_slot rep;

	/* nothing depends on it */
	(void)session_request(s, PROG_CTRL_PIN_ADD, &req, sizeof(req), NULL, 0, &rep, sizeof(rep), NULL,
			      NULL);
}

/* The context: our own, or, where the device is the daemon's only, one that it opens. */
static int start(struct prog_session *s)
{
	struct prog_ctrl_pin_device req = { 0 };
	struct pins *p = &s->pins;
	struct prog_ctrl_slot rep = { 0 };
	unsigned int nfds = 1;
	int err, fd = -1;

	if (!pin_dev_open(&p->dev)) {
		err = session_request(s, PROG_CTRL_PIN_DEVICE, &req, sizeof(req), &p->dev.fd, 1, &rep,
				      sizeof(rep), NULL, NULL);
		if (err)
			pin_dev_close(&p->dev);
		return err;
	}
	err = session_request(s, PROG_CTRL_PIN_DEVICE, &req, sizeof(req), NULL, 0, &rep, sizeof(rep), &fd,
			      &nfds);
	if (err)
		return err;
	return nfds == 1 ? pin_dev_attach(&p->dev, fd) : -EPROTO;
}

static bool started(struct prog_session *s)
{
	struct pins *p = &s->pins;
	const char *env;
	int err;

	if (p->state == PINS_NEW) {
		env = getenv("PROG_PIN");
		p->state = PINS_OFF;
		if (s->features & PROG_FEAT_PINNED && (!env || strcmp(env, "off"))) {
			err = start(s);
			if (!err)
				p->state = PINS_ON;
			else
				prog_log(PROG_LOG_INFO, "session %u: no pinned memory: %s", s->id,
					 strerror(-err));
		}
	}
	return p->state == PINS_ON && !session_lost(s);
}

/* Registers it, and tells the daemon; -ESTALE: it was other memory, or moved, before the daemon looked. */
static int try_pin(struct prog_session *s, void *addr, size_t size, bool write, struct pin *pin)
{
	struct prog_ctrl_pin_add req = { .addr = (uintptr_t)addr, .size = size };
	struct prog_ctrl_slot rep = { 0 };
	struct pins *p = &s->pins;
	int err = pin_register(&p->dev, addr, size, write, &pin->r);

	if (err)
		return err;
	req.handle = pin->r.handle;
	err = session_request(s, PROG_CTRL_PIN_ADD, &req, sizeof(req), NULL, 0, &rep, sizeof(rep), NULL,
			      NULL);
	if (err)
		pin_unregister(&p->dev, pin->r.handle);
	pin->id = rep.slot;
	/* the daemon has counted all others */
	return err && err != -ESTALE ? -ECONNREFUSED : err;
}

/* Under the lock. */
static int pin_new(struct prog_session *s, void *addr, size_t size, bool write, struct pin **out)
{
	struct pins *p = &s->pins;
	struct pin *pin;
	int err = -ESTALE;

	if (size > s->pin_max || p->bytes > s->pin_max - size)
		return -EDQUOT;
	pin = calloc(1, sizeof(*pin));
	if (!pin)
		return -ENOMEM;
	for (unsigned int i = 0; err == -ESTALE && i < TRIES; i++)
		err = try_pin(s, addr, size, write, pin);
	if (err) {
		free(pin);
		return err;
	}
	pin->addr = addr;
	pin->size = size;
	pin->users = 1;
	p->bytes += size;
	LL_PREPEND(p->list, pin);
	*out = pin;
	return 0;
}

/* Under the lock; nobody uses it. */
static void pin_end(struct prog_session *s, struct pin *pin)
{
	struct prog_ctrl_slot req = { .slot = pin->id }, rep;
	struct pins *p = &s->pins;

	LL_DELETE(p->list, pin);
	if (pin->buffer)
		p->buffers -= pin->size;
	if (p->state == PINS_ON) {
		/* the daemon must not look at it when it ends */
		if (!session_lost(s))
			(void)session_request(s, PROG_CTRL_REGION_DEL, &req, sizeof(req), NULL, 0, &rep,
					      sizeof(rep), NULL, NULL);
		pin_unregister(&p->dev, pin->r.handle);
	}
	p->bytes -= pin->size;
	free(pin);
}

int pin_get(struct prog_session *s, void *addr, size_t size, struct pin **out)
{
	int err = -ENODEV;

	pthread_mutex_lock(&s->pins.lock);
	if (size && started(s)) {
		err = pin_new(s, addr, size, true, out);
		if (err && err != -ECONNREFUSED)
			tell(s, err);
	}
	pthread_mutex_unlock(&s->pins.lock);
	return err;
}

/* ---- buffers ---- */

static uint32_t users_of(const struct pin *pin)
{
	/* who sees the last user gone sees what it did */
	return __atomic_load_n(&pin->users, __ATOMIC_ACQUIRE);
}

static bool unused_buffer(const struct pin *pin)
{
	return pin->buffer && !users_of(pin);
}

static void end_stale(struct prog_session *s)
{
	struct pin *pin, *next;

	for (pin = s->pins.list; pin; pin = next) {
		next = pin->next;
		if (unused_buffer(pin) && !pin_fresh(pin->r.mark, pin->r.handle))
			pin_end(s, pin);
	}
}

/* End the registration of the buffer that was not used for longest; false: there is none to end. */
static bool end_oldest(struct prog_session *s)
{
	struct pin *pin, *last = NULL;

	for (pin = s->pins.list; pin; pin = pin->next)
		if (unused_buffer(pin))
			last = pin;
	if (!last || s->pins.uses - last->used <= BUFFER_AGE)
		return false;
	pin_end(s, last);
	return true;
}

/* A buffer of which no registration is known: is it used again?  Then pin it. */
static struct pin *buffer_new(struct prog_session *s, void *addr, size_t size, bool write)
{
	struct pins *p = &s->pins;
	struct pin *pin = NULL;
	struct seen *seen;
	unsigned int i;
	int err;

	for (i = 0; i < PINS_SEEN && p->seen[i].addr != addr; i++)
		;
	seen = &p->seen[i < PINS_SEEN ? i : p->seen_next++ % PINS_SEEN];
	if (i == PINS_SEEN || size > seen->size) {
		*seen = (struct seen){ .addr = addr, .size = size };
		return NULL;
	}
	if (seen->refused || size > s->pin_cache)
		return NULL;
	while (p->buffers > s->pin_cache - size || size > s->pin_max || p->bytes > s->pin_max - size)
		if (!end_oldest(s))
			return NULL;
	err = pin_new(s, addr, size, true, &pin);
	if (err == -EFAULT && !write)
		err = pin_new(s, addr, size, false, &pin);
	seen->refused = err;
	if (err && err != -ECONNREFUSED)
		tell(s, err);
	if (err)
		return NULL;
	pin->buffer = true;
	pin->used = p->uses;
	p->buffers += size;
	return pin;
}

struct pin *pin_use(struct prog_session *s, void *addr, size_t size, bool write)
{
	struct pins *p = &s->pins;
	struct pin **at, *pin = NULL;
	uint64_t changes;

	if (size < BUFFER_MIN || !(s->features & PROG_FEAT_PINNED) || !s->pin_cache)
		return NULL;
	pthread_mutex_lock(&p->lock);
	if (!started(s))
		goto unlock;
	p->uses++;
	changes = __atomic_load_n(&p->dev.marks->changes, __ATOMIC_ACQUIRE);
	if (changes != p->changes) {
		p->changes = changes;
		end_stale(s);
	}
	for (at = &p->list; *at; at = &(*at)->next) {
		pin = *at;
		if (pin->addr <= (char *)addr && size <= pin->size &&
		    (size_t)((char *)addr - pin->addr) <= pin->size - size &&
		    (pin->r.writable || !write) && pin_fresh(pin->r.mark, pin->r.handle))
			break;
	}
	if (*at) {
		*at = pin->next;
		pin->next = p->list;
		p->list = pin;
		pin->used = p->uses;
		__atomic_add_fetch(&pin->users, 1, __ATOMIC_RELAXED);
	} else {
		pin = buffer_new(s, addr, size, write);
	}
unlock:
	pthread_mutex_unlock(&p->lock);
	return pin;
}

void pin_unuse(struct prog_session *s, struct pin *pin)
{
	/* a window's may have been kept by us alone */
	if (pin && pin->buffer)
		__atomic_sub_fetch(&pin->users, 1, __ATOMIC_RELEASE);
	else
		pin_put(s, pin);
}

void pin_put(struct prog_session *s, struct pin *pin)
{
	if (!pin)
		return;
	pthread_mutex_lock(&s->pins.lock);
	if (!__atomic_sub_fetch(&pin->users, 1, __ATOMIC_ACQ_REL))
		pin_end(s, pin);
	pthread_mutex_unlock(&s->pins.lock);
}

void pins_fork_prepare(struct pins *p)
{
	pthread_mutex_lock(&p->lock);
}

void pins_fork_parent(struct pins *p)
{
	pthread_mutex_unlock(&p->lock);
}

/* Registrations and the mapping of marks are the parent's alone. */
void pins_fork_child(struct pins *p)
{
	if (p->dev.fd >= 0)
		close(p->dev.fd);
	p->dev = (struct pin_dev)PIN_DEV_NONE;
	p->state = PINS_OFF;
	pthread_mutex_unlock(&p->lock);
}

void pins_destroy(struct prog_session *s)
{
	struct pin *pin;

	/* only buffers are left; the daemon has been left, too */
	while ((pin = s->pins.list)) {
		s->pins.list = pin->next;
		if (s->pins.state == PINS_ON)
			pin_unregister(&s->pins.dev, pin->r.handle);
		free(pin);
	}
	pin_dev_close(&s->pins.dev);
	pthread_mutex_destroy(&s->pins.lock);
}

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * pins.h - memory of the program that is pinned for the daemon.
 */
#ifndef CLIENT_PINS_H
#define CLIENT_PINS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libprogbase/guard.h>
#include <libprogbase/pin.h>

struct prog_session;

/* Memory of the program that is pinned for the daemon. */
struct pin {
	char *addr;
	size_t size;
	struct pin_region r;
	uint32_t id;			/* region at the daemon */
	bool buffer;			/* kept for its next use; else a window's, ended with its last user */
	uint32_t users;			/* atomic; grows under the lock only */
	uint64_t used;			/* pins.uses at its last use */
	struct pin *next;
};

#define PINS_SEEN	32		/* buffers that were used once */

struct pins {
	pthread_mutex_t lock;		/* everything here */
	int state;
	struct pin_dev dev;
	size_t bytes;			/* pinned now */
	size_t buffers;			/* of these, of buffers */
	struct pin *list;		/* last used first */
	uint64_t uses;			/* buffers that were asked for */
	uint64_t changes;		/* of marks when they were last looked through */
	struct seen {
		void *addr;
		size_t size;
		bool refused;		/* not tried again */
	} seen[PINS_SEEN];
	unsigned int seen_next;
};

void pins_init(struct pins *p);
void pins_destroy(struct prog_session *s);	/* nothing is pinned any more */
/*
 * Pin [@addr, @addr + @size) and make it known to the daemon.  An errno says why it is not: the memory
 * is reached by its address then, as it is when it stops to be what was pinned.
 */
int pin_get(struct prog_session *s, void *addr, size_t size, struct pin **out);
void pin_put(struct prog_session *s, struct pin *pin);	/* NULL is fine */
/*
 * A buffer for an operation that the daemon carries out: what is pinned of it, if it is worth that and was
 * used before; NULL: by its address.  Until pin_unuse(), when the operation is over; NULL is fine.
 */
struct pin *pin_use(struct prog_session *s, void *addr, size_t size, bool write);
void pin_unuse(struct prog_session *s, struct pin *pin);
void pins_fork_prepare(struct pins *p) GUARD_ACQUIRES(p->lock);
void pins_fork_parent(struct pins *p) GUARD_RELEASES(p->lock);
void pins_fork_child(struct pins *p) GUARD_RELEASES(p->lock);

#endif

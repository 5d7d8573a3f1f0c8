/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * pin: memory of a process that /dev/asyncprog pins and lets others map (asyncprog(4)).
 *
 * A context is an open file of the device and its marks.  Who registers memory and who maps it each
 * attach to the same file, which travels over their socket: regions are registered with the consent
 * of whoever holds it, and a handle is accepted only where this file's marks have it.
 *
 * Return values: 0 or a negative errno.  Concurrency: a context is constant between open or attach
 * and close; everything else is a system call, or the load of a mark.
 */
#ifndef PROGBASE_PIN_H
#define PROGBASE_PIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <asyncprog/asyncprog.h>

#define PIN_DEVICE	"/dev/asyncprog"

/* The system calls below this; tests put others in their place. */
struct pin_sys {
	bool (*present)(void);			/* is the module loaded? */
	int (*open)(void);			/* the device: a descriptor or -errno */
	bool (*is_device)(int fd);		/* does not block, whatever fd is */
	int (*ioctl)(int fd, unsigned long request, void *arg);	/* 0 or -errno */
	void *(*map)(int fd, uint64_t off, size_t len, bool write);	/* NULL: see errno */
	/* for copier.h: the other module, and its device */
	bool (*copies_present)(void);
	int (*copies_open)(void);
};
extern const struct pin_sys *pin_sys;

struct pin_dev {
	int fd;					/* -1: closed */
	const struct asyncprog_marks *marks;
	size_t marks_size;
	uint32_t nslots;
};

#define PIN_DEV_NONE	{ .fd = -1 }

/* Is the module loaded?  Whether it may be used open says. */
bool pin_present(void);
/* Open the device: -ENOENT (no module), -EACCES, -EPROTO (of another ABI), ... */
int pin_dev_open(struct pin_dev *d);
/* Take over @fd (closed on errors, too) that somebody sent: -EINVAL when it is not the device. */
int pin_dev_attach(struct pin_dev *d, int fd);
void pin_dev_close(struct pin_dev *d);		/* closed already is fine */

struct pin_region {
	uint64_t handle;
	const __u64 *mark;			/* in the context's marks: lives as long as they */
	uint64_t len;				/* bytes registered */
	uint64_t map_off, map_len;		/* whole pages, for pin_map() */
	uint32_t skip;				/* where in the first page it begins */
	bool writable;
};

/*
 * Pin [@addr, @addr + @len) of this process for who holds the context to map: for reading and,
 * with @write, writing.  Errors as ASYNCPROG_IOC_REGISTER; pin_why() says them in words.
 */
int pin_register(const struct pin_dev *d, const void *addr, size_t len, bool write,
		 struct pin_region *out);
/* Mappings of it raise SIGBUS from now on.  -ENOENT, -EPERM: not this process's. */
int pin_unregister(const struct pin_dev *d, uint64_t handle);
/* What @handle is, if it was registered through this context and is not stale: else -ESTALE. */
int pin_query(const struct pin_dev *d, uint64_t handle, struct pin_region *out);
/* Map all of @r; NULL: see errno.  *@mem is the registered first byte; munmap() what is returned. */
void *pin_map(const struct pin_dev *d, const struct pin_region *r, void **mem);

/* Is the memory still what was registered?  Becomes false before munmap() and the like return. */
static inline bool pin_fresh(const __u64 *mark, uint64_t handle)
{
	return __atomic_load_n(mark, __ATOMIC_ACQUIRE) == handle;
}

/* Why pin_register() failed, for people. */
const char *pin_why(int err);

#endif

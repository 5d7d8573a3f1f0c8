/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * verbs_api: between progd and its plug-in progd-verbs.so, which is linked to libibverbs so that progd is not.
 *
 * The plug-in has, for each worker, the devices that are in use (struct verbs) and endpoints: a pair of reliable connected
 * queue pairs to an endpoint of another node, which carries a stream of bytes in each direction.  How: Documentation/rdma.md.
 * By these no memory of one side can be read or written by the other.
 *
 * Beside an endpoint there may be ways, one for each job: a queue pair by which one side reads and writes memory that the other one
 * has given out.  What is given out belongs to its job: it has a protection domain of its own on each device, so a key is worth
 * nothing on the queue pairs of other jobs, and on those of endpoints.
 *
 * All but `init' and `describe' is called on the worker's thread, and what the host has is called on it, from inside of
 * callbacks of `watch', of `tick' and of `look', never from inside another call made to the plug-in.
 */
#ifndef PROGD_VERBS_API_H
#define PROGD_VERBS_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define VERBS_API_VERSION	6
#define VERBS_API_SYMBOL	"progd_verbs_api"
#define VERBS_PLUGIN		"progd-verbs.so"

#define VERBS_WHY	160		/* bytes of a line for people */
#define VERBS_CLASSES	2		/* sizes of receive buffers, each with a queue pair: small ones, large ones */
#define VERBS_BUFFERS_MAX	255u	/* of a class, that one side lends the other */
#define VERBS_BUFFER_MAX	(1u << 20)	/* bytes */

#define VERBS_JOB	16		/* bytes of a job's name */
#define VERBS_READ_MAX	(64u << 10)	/* bytes that one READ brings to a buffer of the way, or a WRITE takes from it */
#define VERBS_LAND_MAX	(512u << 10)	/* the same to and from other memory */
#define VERBS_READS	8u		/* of both that are under way on a queue pair */

/* What a side of a way is for. */
#define VERBS_WAY_USES	0		/* it reads and writes */
#define VERBS_WAY_GIVES	1		/* its memory is read and written */
#define VERBS_WAY_SHOWS	2		/* its memory is read only */

/* What memory is registered for. */
#define VERBS_MEM_LANDS	0		/* to be read to and written from by ways that use */
#define VERBS_MEM_GIVEN	1		/* to be read and written by peers */
#define VERBS_MEM_SHOWN	2		/* to be read by peers only */

#define VERBS_LINK_IB	1
#define VERBS_LINK_ETH	2

struct verbs;
struct verbs_ep;

struct verbs_opts {
	const char *devices;	/* DEVICE or DEVICE:PORT, separated by spaces or commas; empty: any */
	int gid_index;		/* -1: that of the connection's own address (RoCE), the first (InfiniBand) */
	unsigned int mtu;	/* bytes; 0: as the port says */
	unsigned int service_level;
	unsigned int patience_ms;	/* a peer that does not acknowledge for about so long is gone; 0: half a second */
	unsigned int quiet_s;	/* so long nothing was sent: something is, so that a dead peer is noticed */
};

/* What the other side needs to know of an endpoint. */
struct verbs_end {
	uint8_t link;		/* VERBS_LINK_* */
	uint8_t mtu;		/* 1..5: 256..4096 bytes */
	uint16_t lid;		/* InfiniBand */
	uint8_t gid[16];
	struct verbs_end_qp {
		uint32_t qpn, psn;	/* 24 bits */
		uint32_t buffers;	/* messages that may be under way to it */
		uint32_t size;		/* bytes of each of these */
	} qp[VERBS_CLASSES];
};

struct verbs_way;

/* What the other side needs to know of a way, beside the endpoint that it belongs to. */
struct verbs_way_end {
	uint32_t qpn, psn;	/* 24 bits */
	uint32_t reads;		/* that it answers at a time */
};

struct verbs_host {
	/* Calls @cb(@arg) in the worker's loop whenever @fd is readable; NULL: no memory. */
	void *(*watch)(void *ctx, int fd, void (*cb)(void *arg), void *arg);
	void (*unwatch)(void *ctx, void *watch);
	/* Of an endpoint, which may be freed from inside: bytes have come; more can be sent, or all that was sent is there; it has
	 * failed, and does nothing any more. */
	void (*input)(void *ep_ctx);
	void (*room)(void *ep_ctx);
	void (*failed)(void *ep_ctx, const char *why);
	/*
	 * Of a way, which may be freed from inside: what was read, there until the next way_read(), or NULL: it is where it was to be;
	 * what was written is with the peer's device, or, with @seen of way_write(), it and all before it is in the peer's memory;
	 * it has failed, and nothing more is heard of what was under way, but until it is freed that may still be done.
	 */
	void (*read_done)(void *way_ctx, void *cookie, const void *bytes, uint32_t n);
	void (*write_done)(void *way_ctx, void *cookie, uint32_t n);
	void (*way_failed)(void *way_ctx, const char *why);
};

struct verbs_api {
	uint32_t version;	/* VERBS_API_VERSION */
	uint32_t size;		/* of this table */
	/* Loads the drivers of this node's devices.  0, or -errno and a line: no device can be used. */
	int (*init)(char why[VERBS_WHY]);
	/* Devices and ports, for people.  Any thread, after init. */
	void (*describe)(char *buf, size_t size);
	/* 0 or -ENOMEM; opens no device.  @o and @host are kept. */
	int (*open)(const struct verbs_opts *o, const struct verbs_host *host, void *ctx, struct verbs **out);
	/* Ends endpoints that are left. NULL allowed. */
	void (*close)(struct verbs *v);
	/* Once in a second from the first endpoint on, until it says that nothing is left of them. */
	bool (*tick)(struct verbs *v);
	/* The host is told of all that has come by now. */
	void (*look)(struct verbs *v);
	/*
	 * An endpoint near the address @local (IPv6, or IPv4 mapped; all 0: not known), and what the peer has to know.
	 * 0, or -errno and a line.
	 */
	int (*ep_new)(struct verbs *v, const uint8_t local[16], void *ep_ctx, struct verbs_end *mine, struct verbs_ep **out,
		      char why[VERBS_WHY]);
	/* Each end once; @peer may be anything.  What the peer sends from then on arrives.  0, or -errno and a line. */
	int (*ep_connect)(struct verbs_ep *e, const struct verbs_end *peer, char why[VERBS_WHY]);
	/* No call of the host follows. NULL allowed. */
	void (*ep_free)(struct verbs_ep *e);
	/* The number of bytes taken, from the front of @iov, fewer than all: `room' follows; or -errno: it has failed. */
	ssize_t (*ep_send)(struct verbs_ep *e, const struct iovec *iov, int n);
	/* Bytes that have come, as far as there are any: how many. */
	size_t (*ep_recv)(struct verbs_ep *e, const struct iovec *iov, int n);
	/* Its device and port; lives as long as it does. */
	const char *(*ep_name)(const struct verbs_ep *e);
	/* Has the peer's device all that was sent?  If not, `room' follows. */
	bool (*ep_quiet)(struct verbs_ep *e);
	/*
	 * A way of @job beside an endpoint that is connected, for @use (VERBS_WAY_*); freed before its endpoint.  0, or -errno and a
	 * line.
	 */
	int (*way_new)(struct verbs_ep *e, const uint8_t job[VERBS_JOB], int use, void *way_ctx, struct verbs_way_end *mine,
		       struct verbs_way **out, char why[VERBS_WHY]);
	/* Once; @peer may be anything.  0, or -errno and a line. */
	int (*way_connect)(struct verbs_way *w, const struct verbs_way_end *peer, char why[VERBS_WHY]);
	/* No call of the host follows, and nothing is read or written by it any more, of this side's memory. NULL allowed. */
	void (*way_free)(struct verbs_way *w);
	/*
	 * Read @len bytes, at most VERBS_READ_MAX, of the peer's memory, of which @addr and @key are what it says: `read_done'
	 * follows, in order, or `way_failed'.  @to: to there, of which @to_key is what mem_add() said, and at most VERBS_LAND_MAX; NULL:
	 * to a buffer of the way.  0; -EAGAIN: VERBS_READS are under way; -EIO: it has failed.
	 */
	int (*way_read)(struct verbs_way *w, uint64_t addr, uint32_t key, uint32_t len, void *to, uint32_t to_key, void *cookie);
	/* A buffer of VERBS_READ_MAX bytes for the next way_write(); NULL: VERBS_READS are under way, or it has failed. */
	void *(*way_room)(struct verbs_way *w);
	/*
	 * Write @len bytes to the peer's memory, likewise: from @from, or, NULL, from what way_room() gave.  `write_done' follows, in
	 * order with `read_done', or `way_failed'.  @seen: not before the peer's processors see the bytes.
	 */
	int (*way_write)(struct verbs_way *w, uint64_t addr, uint32_t key, uint32_t len, const void *from, uint32_t from_key,
			 bool seen, void *cookie);
	/*
	 * Memory for @use (VERBS_MEM_*) by ways of this job and device, these @len bytes and no others, until mem_del() or the last of
	 * them is freed.  It must be mapped until then, to be written unless it is shown.  @id is never another's.  0, or -errno and a
	 * line.
	 */
	int (*mem_add)(struct verbs_way *w, void *addr, size_t len, int use, uint64_t *id, uint32_t *key, char why[VERBS_WHY]);
	/* Does it serve this way, too? */
	bool (*mem_serves)(const struct verbs_way *w, uint64_t id);
	/* Nobody reads it, or writes it, when this returns.  Nothing, if it is not there any more. */
	void (*mem_del)(struct verbs *v, uint64_t id);
};

/* Of the plug-in; tests are linked with it. */
extern const struct verbs_api progd_verbs_api;

#endif

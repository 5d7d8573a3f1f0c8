/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Inside of the plug-in: devices (device.c), ports (port.c), receive and send buffers (buf.c), endpoints (ep.c), ways (way.c). */
#ifndef PROGD_VERBS_H
#define PROGD_VERBS_H

#include <infiniband/verbs.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "xport/verbs_api.h"

#define SMALL		0
#define LARGE		1
#define SMALL_SIZE	4096u
#define LARGE_SIZE	65536u
#define SMALL_LENT	32u		/* receive buffers for each endpoint */
#define LARGE_LENT	8u
#define SMALL_OUT	64u		/* send buffers of a device */
#define LARGE_OUT	16u
#define SQ_DEPTH	64u		/* of each queue pair; a power of two */
#define INLINE_WANTED	128u		/* bytes: a small operation, header and value */
#define SIGNAL_EACH	8u		/* sends: one tells of its end */
#define WINDOW		64u		/* messages under way to an endpoint, all classes: a power of two, above what is lent */
#define MAX_ENDS	64u		/* of a device */
#define QPN_MAX		0xffffffu
#define MAX_WAYS	64u		/* of a device */
#define WAY_SENDS	(2 * VERBS_READS)	/* in a way's queue: a WRITE may have a READ behind it */
#define MAX_MEMS	16384u		/* of a device: pieces of memory given out */
#define DEATH_TICKS	2u		/* so long a queue pair may have buffers after its end */

_Static_assert(SMALL_LENT + LARGE_LENT <= WINDOW, "WINDOW");
_Static_assert(SMALL_LENT <= SQ_DEPTH / 2 && LARGE_LENT <= SQ_DEPTH / 2, "SQ_DEPTH");

extern const uint32_t buf_sizes[VERBS_CLASSES], buf_lent[VERBS_CLASSES];

struct buf {
	struct device *d;
	uint8_t *p;
	uint32_t lkey;
	uint8_t class;
	struct buf *next;	/* free send buffers of its class */
};

/* Registered memory in which a number of buffers are. */
struct slab {
	struct slab *next;
	struct ibv_mr *mr;
	void *mem;
	struct buf buf[];
};

struct half;

/* A port that is in use by a worker. */
struct device {
	struct verbs *v;
	struct device *next;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *rcq, *scq;
	struct ibv_srq *srq[VERBS_CLASSES];
	void *watch_cq, *watch_async;
	struct slab *slabs;
	struct buf *out[VERBS_CLASSES];		/* free send buffers */
	uint32_t left[VERBS_CLASSES];		/* how many these are */
	unsigned int lent_slabs;		/* each has what one endpoint lends */
	unsigned int ends, max_ends;
	unsigned int revents, sevents;		/* to be acknowledged */
	uint8_t port;
	uint8_t link;
	uint8_t mtu;
	uint16_t lid;
	int gid_index;
	union ibv_gid gid;
	bool dead;
	bool out_wanted;			/* the next send that ends is told */
	bool wanting;				/* an endpoint waits for one */
	char name[64];
	struct verbs_ep *eps;			/* all, those that die as well */
	struct verbs_ep *touched;		/* of which the host is to be told */
	struct half *by_qpn[256];
	/* ways */
	struct ibv_cq *wcq;			/* what ends of ways; with the first one */
	struct dom *doms;
	struct verbs_way *ways;
	unsigned int nways, nmems, wevents;
	uint32_t way_serial;
};

/* A job on a device. */
struct dom {
	struct dom *next;
	uint8_t job[VERBS_JOB];
	struct ibv_pd *pd;
	unsigned int ways;		/* the last one ends it */
	struct mem *mems;		/* by id */
};

/* Memory that is given out. */
struct mem {
	UT_hash_handle hh;
	struct ibv_mr *mr;
	uint64_t id;
};

/* A READ or WRITE under way. */
struct part {
	void *cookie;
	uint32_t len;
	bool write;
	bool lands;			/* read: not in the way's buffer */
};

struct verbs_way {
	struct verbs_ep *e;
	struct dom *dom;
	struct verbs_way *next, *prev;
	void *ctx;
	struct ibv_qp *qp;
	uint32_t psn, serial;
	uint32_t served;		/* reads that the device answers at a time */
	uint32_t depth;			/* parts that may be under way */
	bool connected, failed;
	const char *event;		/* NULL: none; else it says so, and the host is to be told */
	uint32_t head, tail;		/* free-running: parts posted, ended */
	struct part part[VERBS_READS];
	uint8_t *buf;			/* user: VERBS_READS times VERBS_READ_MAX bytes, and one for each READ behind a WRITE */
	struct ibv_mr *mr;		/* of buf */
};

/* A queue pair of an endpoint. */
struct half {
	struct verbs_ep *e;
	struct half *by_qpn;			/* next in the device's table */
	struct ibv_qp *qp;
	uint32_t psn;
	uint32_t inline_max;
	struct buf *sq[SQ_DEPTH];		/* send buffers by place in the queue; NULL: inline */
	uint32_t sq_head, sq_tail;		/* free-running: posted, ended */
	uint32_t unsignalled;			/* posted since one that tells of its end */
	uint32_t theirs, their_size;		/* receive buffers lent to us */
	uint32_t under_way;			/* of these, not given back */
	uint32_t held;				/* of ours: come, and not given back */
	uint32_t owed;				/* of these: free again, to be told with what is sent next */
	bool last_reached;			/* dying: it has no receive buffer any more */
};

struct message {
	bool here;
	struct buf *buf;
	uint32_t len;
};

struct verbs_ep {
	struct device *d;
	struct verbs_ep *next, *prev;
	struct verbs_ep *touched_next;
	void *ctx;
	struct half half[VERBS_CLASSES];
	bool touched, tell_input, tell_room, connected, dying;
	bool wants_room;		/* a send was refused, or ep_quiet() */
	bool sent;			/* since the last look */
	bool began;			/* something was sent or has come: the peer's end is connected, too */
	unsigned int quiet, death;	/* ticks */
	char failed[VERBS_WHY];		/* not empty: it has */
	struct verbs_end peer;		/* connected */
	uint16_t tx_seq, rx_seq;
	uint32_t rx_off;		/* bytes of the next message that were taken */
	struct message rx[WINDOW];
};

struct verbs {
	const struct verbs_opts *o;
	const struct verbs_host *host;
	void *ctx;
	const struct ep_events *ep;
	const struct way_events *way;
	struct device *devices;
	uint64_t last_mem;
};

/* port.c: which one. */
struct port {
	struct ibv_context *ctx;	/* the caller's to close */
	uint8_t port, link, mtu;
	uint16_t lid;
	int gid_index;
	union ibv_gid gid;
	char name[64];
};

/* 0, or -errno and a line. */
int port_find(const struct verbs_opts *o, const uint8_t local[16], struct port *p, char why[VERBS_WHY]);
int port_init(char why[VERBS_WHY]);
void port_describe(char *buf, size_t size);

/* buf.c */
/* What one more endpoint lends, posted; 0, or -errno and a line. */
int buf_lend(struct device *d, char why[VERBS_WHY]);
int buf_make_out(struct device *d, char why[VERBS_WHY]);
/* To the peers again; false: the device does not take it. */
bool buf_post(struct buf *b);
/* A send buffer; NULL: none is free.  And back. */
struct buf *buf_take(struct device *d, int class);
void buf_put(struct buf *b);
/* So few are free that who waits for one has to be told of each that will be. */
bool buf_is_scarce(const struct device *d, int class);
void buf_free_all(struct device *d);
/* After ibv_reg_mr(): -errno and a line. */
int buf_cannot_register(const struct device *d, char why[VERBS_WHY], size_t bytes);

/* device.c */
int device_get(struct verbs *v, const uint8_t local[16], struct device **out, char why[VERBS_WHY]);
/* One that has no endpoint goes, or one that must. */
void device_free(struct device *d);
void device_add_qp(struct device *d, struct half *h);
void device_remove_qp(struct device *d, struct half *h);
/* Sends that have ended. */
void device_reap(struct device *d);
/* Be told of the next one that ends. */
void device_want_out(struct device *d);
/* Endpoints whose host is to be told are, and those that have died go. */
void device_tell(struct device *d);
/* What has come of messages. */
void device_drain(struct device *d);
/* The queue of what ends of ways; 0, or -errno and a line. */
int device_make_wcq(struct device *d, char why[VERBS_WHY]);
/* Reads and writes that have ended. */
void device_reads(struct device *d);
/* Is it still there? */
void device_look(struct device *d);

/* ep.c: what devices tell their endpoints. */
struct ep_events {
	void (*came)(struct half *h, const struct ibv_wc *wc, struct buf *b);
	void (*ended)(struct half *h, const struct ibv_wc *wc);		/* a send */
	void (*failed)(struct verbs_ep *e, const char *why);
	/* Has nothing of it to be waited for? */
	bool (*is_dead)(const struct verbs_ep *e);
	void (*destroy)(struct verbs_ep *e);
};
extern const struct ep_events ep_events;
void ep_tick(struct verbs_ep *e);

/* A queue pair that is made, up to sending, to one beside the peer's endpoint. */
struct qp_path {
	uint32_t qpn, psn;		/* the peer's */
	uint32_t my_psn;
	uint32_t answers, asks;		/* reads at a time: of the peer, and of ours */
};
int ep_qp_connect(struct verbs_ep *e, struct ibv_qp *qp, const struct verbs_end *peer, const struct qp_path *to,
		  char why[VERBS_WHY]);
/* A first packet's number; -errno and a line. */
int ep_random_psn(const struct device *d, uint32_t *psn, char why[VERBS_WHY]);
int ep_cannot(const struct device *d, char why[VERBS_WHY], const char *what);

int ep_new(struct verbs *v, const uint8_t local[16], void *ctx, struct verbs_end *mine, struct verbs_ep **out, char why[VERBS_WHY]);
int ep_connect(struct verbs_ep *e, const struct verbs_end *peer, char why[VERBS_WHY]);
void ep_free(struct verbs_ep *e);
ssize_t ep_send(struct verbs_ep *e, const struct iovec *iov, int n);
size_t ep_recv(struct verbs_ep *e, const struct iovec *iov, int n);
bool ep_quiet(struct verbs_ep *e);
const char *ep_name(const struct verbs_ep *e);

/* way.c: what devices tell their ways. */
struct way_events {
	void (*ended)(struct verbs_way *w, const struct ibv_wc *wc);
	void (*failed)(struct verbs_way *w, const char *why);
};
extern const struct way_events way_events;

int way_new(struct verbs_ep *e, const uint8_t job[VERBS_JOB], int use, void *ctx, struct verbs_way_end *mine,
	    struct verbs_way **out, char why[VERBS_WHY]);
int way_connect(struct verbs_way *w, const struct verbs_way_end *peer, char why[VERBS_WHY]);
void way_free(struct verbs_way *w);
int way_read(struct verbs_way *w, uint64_t addr, uint32_t key, uint32_t len, void *to, uint32_t to_key, void *cookie);
void *way_room(struct verbs_way *w);
int way_write(struct verbs_way *w, uint64_t addr, uint32_t key, uint32_t len, const void *from, uint32_t from_key, bool seen,
	      void *cookie);
int way_mem_add(struct verbs_way *w, void *addr, size_t len, int use, uint64_t *id, uint32_t *key, char why[VERBS_WHY]);
bool way_mem_serves(const struct verbs_way *w, uint64_t id);
void way_mem_del(struct verbs *v, uint64_t id);

#endif

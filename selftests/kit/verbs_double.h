/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A double of libibverbs: the functions that progd-verbs.so uses, over a device of one port whose queue pairs reach each other
 * within this process.  A thread is the device: it reads what is sent when it is sent, long after it was posted perhaps, and
 * writes into receive buffers.  It checks what a device would: keys, lengths, states, numbers of the first packets; of READs and
 * WRITEs also protection domains, bounds and what is permitted.  What was written is seen as late as a device may let it: when a
 * READ comes behind it, or when its queue pair or memory ends.
 *
 * Who tests tells it what to do wrong.  All of this may be called from any thread.
 */
#ifndef KIT_VERBS_DOUBLE_H
#define KIT_VERBS_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {	/* what happens to the message that verbs_double_at() names */
	DOUBLE_RETRY,		/* it does not reach the peer: retries are exhausted */
	DOUBLE_RNR,		/* the peer has no receive buffer, for too long */
	DOUBLE_LOST_ACK,	/* it reaches the peer, and the sender's retries are exhausted all the same */
	DOUBLE_QP_FATAL,	/* an event says that the receiver's queue pair is in error */
	DOUBLE_PORT_DOWN,	/* the port goes down, of all who have it open */
	DOUBLE_FATAL,		/* the device is removed */
	DOUBLE_FAULTS
};

/* As it is at first: nothing goes wrong, InfiniBand.  Only with nothing open. */
void verbs_double_reset(void);
/* The @n'th message from now on, 1 the next; 0: none. */
void verbs_double_at(uint64_t n, int fault);
/* Did that happen? */
bool verbs_double_happened(void);
/* Messages that reached their peers. */
uint64_t verbs_double_messages(void);
/* READs that reached their peers' memory, their bytes, and those that the peer's device refused. */
uint64_t verbs_double_reads(uint64_t *bytes, uint64_t *refused);
uint64_t verbs_double_writes(uint64_t *bytes, uint64_t *refused);

static inline uint64_t verbs_double_reads_done(void)
{
	return verbs_double_reads(NULL, NULL);
}

static inline uint64_t verbs_double_reads_refused(void)
{
	uint64_t n;

	verbs_double_reads(NULL, &n);
	return n;
}

/* How often completion queues were armed. */
uint64_t verbs_double_arms(void);
/* Messages, READs, or WRITEs, take until they are let go. */
void verbs_double_hold_messages(bool hold);
void verbs_double_hold_reads(bool hold);
void verbs_double_hold_writes(bool hold);
/* The @n'th READ from now on does not reach the peer; 0: none. */
void verbs_double_fail_read(uint64_t n);
/* The sender of the @n'th WRITE from now on gets no acknowledgement, and gives it up ... */
enum {
	DOUBLE_WRITE_LOST = 1,		/* it does not reach the peer */
	DOUBLE_WRITE_UNACKED,		/* it has reached it */
	DOUBLE_WRITE_LATE,		/* it comes with verbs_double_late() */
};
void verbs_double_fail_write(uint64_t n, int how);
/* Queue pairs by which memory is read or written fail at the side whose memory it is, and only that side is told. */
void verbs_double_break_given(void);
/* Has it been sent?  And does the peer's device take it? */
bool verbs_double_is_late(void);
bool verbs_double_late(void);
/* Changes immediate data of the message that verbs_double_at() would name: XOR. */
void verbs_double_alter(uint64_t n, uint32_t bits);
/* Ethernet, with this address as entry 1 of the table of GIDs; NULL: none. */
void verbs_double_ethernet(const uint8_t gid[16]);

/* Devices and ports, instead of the one of InfiniBand: nothing else of them is different, until verbs_double_reset(). */
struct verbs_double_port {
	const char *device;		/* ports of one are together */
	bool down, ethernet, iwarp;
	struct {
		uint8_t gid[16];	/* all 0: none */
		bool v2;		/* RoCE: version */
	} gid[3];
};
void verbs_double_ports(const struct verbs_double_port *p, unsigned int n);

/* Counted down with each call that could fail; the one that reaches 0 does.  -1: none does. */
struct verbs_double_fails {
	int reg_mr, create_cq, create_srq, create_qp, modify_qp, post_recv;
};
void verbs_double_fail(const struct verbs_double_fails *f);
void verbs_double_limits(int max_cqe, int max_srq_wr, bool inline_data);
/* The device is removed, and waits until nobody has it open; or one is there. */
void verbs_double_removed(bool removed);
/* The port is up, or down from the beginning. */
void verbs_double_port(bool up);

/*
 * What a plug-in has its host watch, in the order in which it asked.  Descriptors do not block: who tests looks whether there is
 * something.
 */
#define VERBS_WATCHED	8u
struct verbs_watched {
	void (*cb)(void *arg);
	void *arg;
};
extern struct verbs_watched verbs_watched[VERBS_WATCHED];
/* struct verbs_host's. */
void *verbs_watch(void *ctx, int fd, void (*cb)(void *arg), void *arg);
void verbs_unwatch(void *ctx, void *w);
/* Is there something at the @i'th? */
void verbs_watched_look(unsigned int i);

/* Is some of these bytes registered? */
bool verbs_double_covers(const void *p, size_t len);
/* Contexts, protection domains, registrations, queues and so on that are not given back. */
unsigned int verbs_double_open(void);

#endif

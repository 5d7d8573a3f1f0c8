/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * super.h - what the supervisor of a node and the engines (progd --engine) of its users say to each other.
 *
 * An engine has two descriptors of its supervisor: a SOCK_SEQPACKET socket that it reads, and a pipe that it
 * writes.  The pipe, because nobody can send a descriptor through it: closing one can take as long as its owner
 * likes, and the supervisor serves everybody.  Each message is one struct super_msg, in the byte order of the node.
 *
 * After a restart the supervisor has neither.  The engine connects to <socket>.engines, where it is told both
 * (SUPER_CHANNEL) if it is who the supervisor's record says, and says SUPER_READY again.  Supervisor and engine may
 * then be of different versions of the software: what is here only grows.
 */
#ifndef _WIRE_SUPER_H
#define _WIRE_SUPER_H

#include <linux/types.h>

#define SUPER_VERSION		1
#define SUPER_SOCKET		".engines"	/* added to the path of the clients' socket */

/* Where an engine finds what it is started with: the channel, and the sockets that listen (--listeners). */
#define SUPER_FD_SOCK		3
#define SUPER_FD_PIPE		4
#define SUPER_FD_LISTENERS	5

/* Connections that an engine was given and has not said TAKEN of: so many fit the socket and the pipe. */
#define SUPER_IN_FLIGHT		64u

enum {	/* super_msg.type */
	/* supervisor -> engine */
	SUPER_CLIENT		= 1,	/* a descriptor: connection of a client; id: 1, 2, 3, ... with CONTROL */
	SUPER_CONTROL		= 2,	/* a descriptor: connection to the control socket */
	SUPER_BYE		= 3,	/* answer to LEAVE: nothing follows */
	SUPER_RELOAD		= 4,	/* read the configuration again */
	SUPER_DRAIN		= 5,	/* end with the last session, without waiting for another one */
	SUPER_CHANNEL		= 6,	/* at <socket>.engines: two descriptors, the new channel */
	/* engine -> supervisor */
	SUPER_READY		= 32,	/* first on each channel; value: SUPER_VERSION */
	SUPER_TAKEN		= 33,	/* connection id is the engine's: the supervisor's copy can go */
	SUPER_LEAVE		= 34,	/* nobody has been here for a while; id: last one that was given.  If there
					 * was none since, the answer is BYE, else none */
};

struct super_msg {
	__u16	type;
	__u16	reserved;
	__u32	value;
	__u64	id;
};

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * probe: places in the libraries and the daemon where a tracer can look (USDT, provider asyncprog).
 *
 * Each is a nop, and a note in the file that says where its arguments are; nothing is computed for it that is not there
 * anyway.  All have the same arguments, so that a script can follow one operation (tools/trace/way):
 *
 *	probe			where			what happened
 *	post			client			an operation is in the ring
 *	send			origin's daemon		a frame of it was handed to the lane, or to the target on this node
 *	apply			target's daemon		it was applied; bytes: a status, 0 or -errno
 *	ack			origin's daemon		it and all before it are acknowledged; bytes: a status, as on the wire
 *	done			client			the program's side has seen that; operations before it, too
 *		(key of the window, origin's rank, target's rank, number in the stream, bytes)
 *	msg_post		client			a send (side 0) or a receive (side 1) is in the ring
 *	match			receiver's daemon	both have met
 *	get_req			receiver's daemon	bytes are asked for; bytes: up to where
 *	msg_done		receiver's daemon	the message has ended; bytes: that arrived
 *		(communicator, sender's rank, receiver's rank, number on the channel, bytes[, side])
 *
 * Without <sys/sdt.h> (systemtap-sdt-dev) there are none.
 */
#ifndef PROGBASE_PROBE_H
#define PROGBASE_PROBE_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define PROG_PROBE(name, key, from, to, seq, bytes) DTRACE_PROBE5(asyncprog, name, key, from, to, seq, bytes)
#define PROG_PROBE_SIDE(name, key, from, to, seq, bytes, side) \
	DTRACE_PROBE6(asyncprog, name, key, from, to, seq, bytes, side)
#endif
#endif
#ifndef PROG_PROBE
#define PROG_PROBE(name, key, from, to, seq, bytes) ((void)0)
#define PROG_PROBE_SIDE(name, key, from, to, seq, bytes, side) ((void)0)
#endif

#endif

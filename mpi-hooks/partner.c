/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * What is known of the other ranks of MPI_COMM_WORLD: whether the program waits for their messages at once, and whether a message
 * to them has failed.
 */
#include <stdlib.h>

#include <libprogbase/futex.h>

#include "hooks_gen.h"

#define QUARANTINE_NS	10000000000ull

#define WAITS_SURE	2	/* so many messages in a row */
#define SAME_BYTES_NS	2	/* bytes for a nanosecond of computation; see partner_received() */
#define FAR_BYTES_NS	8	/* between nodes: half of the time that a fast network takes */

/*
 * The last large messages with a rank that were waited for at once, WAITS_SURE at most.  Approximate: threads may mix their
 * updates.
 */
static struct partner {
	bool same_node;			/* .. and reached by CMA */
	uint8_t received, sent;		/* of those sent only managed ones */
} *partners;				/* NULL: no memory */
static _Atomic(uint64_t) *quarantined_until;	/* [rank]: see partner_quarantine(); NULL: no memory */

void partner_begin(const struct prog_win *context)
{
	int n;

	if (PMPI_Comm_size(hooks.world, &n))
		return;
	quarantined_until = calloc((size_t)n, sizeof(*quarantined_until));
	partners = calloc((size_t)n, sizeof(*partners));
	for (int i = 0; partners && i < n; i++)
		partners[i].same_node = prog_msg_same_node(context, (uint32_t)i);
}

void partner_end(void)
{
	free(partners);
	partners = NULL;
	free(quarantined_until);
	quarantined_until = NULL;
}

bool partner_send_waits(uint32_t rank)
{
	return partners && partners[rank].sent == WAITS_SURE;
}

bool partner_recv_waits(uint32_t rank)
{
	return partners && partners[rank].received == WAITS_SURE;
}

bool partner_copies(uint32_t rank, bool wait)
{
	return partners && partners[rank].same_node && (wait || partner_recv_waits(rank));
}

bool partner_is_left(uint32_t rank)
{
	return partners && (partners[rank].same_node || partner_send_waits(rank)) &&
	       prog_msg_leave(p2p_context, rank);
}

void partner_received(uint32_t rank, uint64_t bytes, uint64_t overlap)
{
	struct partner *p = partners ? &partners[rank] : NULL;

	if (!p)
		return;
	if (overlap > bytes / (p->same_node ? SAME_BYTES_NS : FAR_BYTES_NS))
		p->received = 0;
	else if (p->received < WAITS_SURE)
		p->received++;
	prog_msg_set_blocking(p2p_context, rank, p->received == WAITS_SURE);
}

void partner_sent(uint32_t rank, uint64_t bytes, uint64_t overlap)
{
	struct partner *p = partners ? &partners[rank] : NULL;

	if (!p)
		return;
	if (overlap > bytes / FAR_BYTES_NS)
		p->sent = 0;
	else if (p->sent < WAITS_SURE)
		p->sent++;
}

void partner_quarantine(uint32_t rank, int err)
{
	if (quarantined_until)
		atomic_store_explicit(&quarantined_until[rank],
				      err == -ENOMEM ? clock_ns() + QUARANTINE_NS : UINT64_MAX,
				      memory_order_relaxed);
}

bool partner_is_quarantined(uint32_t rank)
{
	uint64_t until = quarantined_until ?
			 atomic_load_explicit(&quarantined_until[rank], memory_order_relaxed) : 0;

	return unlikely(until) && clock_ns() < until;
}

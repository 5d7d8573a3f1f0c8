/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Held messages.  A probe must give the length of the payload, which the descriptor says, and only
 * who receives a message can read it.  So a message of a descriptor's length that a probe sees is taken out of
 * the library and held, and with it all that came before it from the same source: what is held of a source is then
 * always older than what the library has, and receives, probes and wildcards look there first, oldest first.
 *
 * Held messages are counted on their channels when they are taken out, so the memory for one is of the reserve if need be.
 */
#include <stdlib.h>
#include <string.h>

#include "hooks_gen.h"

int held_set(struct held *h, struct hcomm *c, MPI_Message msg, const MPI_Status *st, bool taken)
{
	MPI_Status own;
	int rc;

	h->next = NULL;
	h->c = c;
	h->kind = HELD_LIBRARY;
	h->source = st->MPI_SOURCE;
	h->tag = st->MPI_TAG;
	h->len = status_bytes(st);
	h->msg = msg;
	if (h->len == DESC_SIZE) {
		rc = PMPI_Mrecv(h->bytes, DESC_SIZE, MPI_BYTE, &h->msg, &own);
		if (rc)
			return rc;
		h->kind = HELD_BYTES;
		if (desc_check(h->bytes, c, &h->d) && h->d.name.src == c->world[h->source]) {
			h->kind = HELD_DESC;
			h->len = h->d.name.len;
		}
	}
	if (!taken)
		chan_recv_now(c->chans, h->source, h->tag, h->kind == HELD_DESC ? &h->d.pos : NULL);
	return MPI_SUCCESS;
}

void held_recv(struct held *h, struct rec *r)
{
	MPI_Status st;
	int rc;

	r->proxy_req = r->recv.held = true;
	r->recv.source = h->source;
	r->recv.tag = h->tag;
	switch (h->kind) {
	case HELD_DESC:
		r->recv.d = h->d;
		r->managed = true;
		rec_transition(r, REC_MOVING);
		break;
	case HELD_BYTES:
		buf_write(r, h->bytes, DESC_SIZE);
		r->len = r->cap < DESC_SIZE ? r->cap : DESC_SIZE;
		r->err = r->cap < DESC_SIZE ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
		buf_check(r, DESC_SIZE);
		rec_transition(r, REC_READY);
		break;
	case HELD_LIBRARY:
		/* through memory of ours: of the datatype there may be no handle any more */
		r->packed = malloc(h->len + 1);
		if (r->packed) {
			rc = NATIVE(Imrecv, r->packed, (MPI_Count)h->len, MPI_BYTE, &h->msg, &r->inner);
			rec_transition(r, REC_POSTED);
		} else {
			rc = PMPI_Mrecv(NULL, 0, MPI_BYTE, &h->msg, &st);
			rc = MPI_ERR_NO_MEM;
		}
		if (rc) {
			r->err = herror_native(rc);
			rec_transition(r, REC_READY);
		}
		break;
	}
	prog_coll_mem_put(h);
	rec_poll(r);
}

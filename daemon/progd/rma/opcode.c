// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What each one-sided operation is: the table, and what entries of rings have to look like. */
#include "rma/priv.h"

static bool no_bytes(struct conn *c, uint32_t slot, const struct prog_sqe *e)
{
	if (!e->len && !e->off)
		return true;
	link_client_bad(&c->lc, "slot %u: opcode %u with a length", slot, e->opcode);
	return false;
}

static bool tag_and_number(struct conn *c, uint32_t slot, const struct prog_sqe *e)
{
	if (no_bytes(c, slot, e) && (uint32_t)e->disp <= INT32_MAX)
		return true;
	link_client_bad(&c->lc, "slot %u: notification of tag 0x%x", slot, (uint32_t)e->disp);
	return false;
}

static bool any_bytes(struct conn *c, uint32_t slot, const struct prog_sqe *e)
{
	return true;
}

static bool whole_datatype(struct conn *c, uint32_t slot, const struct prog_sqe *e)
{
	if (e->dtype && e->len && !e->off)
		return true;
	link_client_bad(&c->lc, "slot %u: empty datatype, or without number", slot);
	return false;
}

static bool whole_elements(struct conn *c, uint32_t slot, const struct prog_sqe *e)
{
	uint64_t unit;

	if (!reduce_valid(e->op, e->etype)) {
		link_client_bad(&c->lc, "slot %u: operation %u on type %u", slot, e->op, e->etype);
		return false;
	}
	unit = reduce_type(e->etype)->packed;
	if (e->len % unit || e->off % unit) {
		link_client_bad(&c->lc, "slot %u: part of an element", slot);
		return false;
	}
	return true;
}

static bool two_elements(struct conn *c, uint32_t slot, const struct prog_sqe *e)
{
	if (apply_cas_valid(e->etype) && e->len == 2 * reduce_type(e->etype)->packed && !e->off)
		return true;
	link_client_bad(&c->lc, "slot %u: compare-and-swap of %llu bytes of type %u", slot,
			(unsigned long long)e->len, e->etype);
	return false;
}

const struct rma_opcode rma_opcodes[RMA_OPCODES] = {
	[PROG_SQE_OP_DTYPE] = { .payload = PAYLOAD_ALL, .pieces = true, .validate = whole_datatype,
			    .execute = target_exec_dtype },
	[PROG_SQE_OP_PUT] = { .payload = PAYLOAD_ALL, .pieces = true, .validate = any_bytes, .execute = target_exec_put },
	[PROG_SQE_OP_GET] = { .want = WANT_ALL, .validate = any_bytes, .execute = target_exec_get, .resume = target_get_resume },
	[PROG_SQE_OP_ACC] = { .payload = PAYLOAD_ALL, .elements = true, .pieces = true, .validate = whole_elements,
			  .execute = target_exec_acc },
	[PROG_SQE_OP_GET_ACC] = { .payload = PAYLOAD_OPERAND, .want = WANT_ALL, .result = true, .elements = true,
			      .pieces = true, .validate = whole_elements, .execute = target_exec_get_acc,
			      .resume = target_get_resume },
	[PROG_SQE_OP_CAS] = { .payload = PAYLOAD_ALL, .want = WANT_HALF, .result = true, .elements = true,
			  .validate = two_elements, .execute = target_exec_cas },
	[PROG_SQE_OP_LOCK] = { .validate = no_bytes, .execute = target_exec_lock, .resume = target_lock_resume },
	[PROG_SQE_OP_UNLOCK] = { .validate = no_bytes, .execute = target_exec_unlock },
	[PROG_SQE_OP_POST] = { .validate = no_bytes, .execute = target_exec_post },
	[PROG_SQE_OP_COMPLETE] = { .validate = no_bytes, .execute = target_exec_complete },
	[PROG_SQE_OP_NOTIFY] = { .validate = tag_and_number, .execute = target_exec_notify, .resume = target_notify_resume },
};

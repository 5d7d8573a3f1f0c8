// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The table of one-sided operations says the same as that of frames. */
#include <string.h>

#include <kit/kit.h>

#include "rma/priv.h"

static void test_table(void **state)
{
	for (unsigned int i = PROG_SQE_OP_DTYPE; i < RMA_OPCODES; i++) {
		const struct rma_opcode *o = &rma_opcodes[i];
		const struct wire_type *t = wire_type(WIRE_RMA_DTYPE + i - PROG_SQE_OP_DTYPE);

		assert_non_null(t);
		assert_ptr_equal(rma_opcode(WIRE_RMA_DTYPE + i - PROG_SQE_OP_DTYPE), o);
		print_message("%s\n", t->name);
		/* has no number: not an operation */
		if (WIRE_RMA_DTYPE + i - PROG_SQE_OP_DTYPE == WIRE_RMA_GONE) {
			assert_null(o->execute);
			continue;
		}
		assert_non_null(o->validate);
		assert_non_null(o->execute);
		assert_int_equal(o->payload != PAYLOAD_NONE, t->max_len > 0);
		assert_int_equal(o->elements, !!(t->fields & WIRE_HAS_ETYPE));
		assert_int_equal(o->want != WANT_NONE, !!(t->fields & WIRE_HAS_WANT));
		/* what has none of these is one frame */
		assert_true(!o->pieces || t->fields & (WIRE_HAS_RANGE | WIRE_HAS_WANT));
		assert_true(!o->result || o->want);
	}
	assert_null(rma_opcodes[PROG_SQE_OP_NOP].execute);
	assert_int_equal(WIRE_RMA_DTYPE + PROG_SQE_OP_COMPLETE - PROG_SQE_OP_DTYPE, WIRE_RMA_COMPLETE);
	assert_int_equal(WIRE_RMA_DTYPE + PROG_SQE_OP_NOTIFY - PROG_SQE_OP_DTYPE, WIRE_RMA_NOTIFY);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_table),
};

KIT_SUITE(tests);

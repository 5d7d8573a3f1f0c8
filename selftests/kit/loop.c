// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "loop.h"

struct loop *kit_loop(int kind)
{
	struct loop *l = NULL;
	int ret = loop_new(kind, &l);

	if (ret && kind == LOOP_IO_URING) {
		print_message("# io_uring is not permitted here\n");
		skip();
	}
	assert_int_equal(ret, 0);
	return l;
}

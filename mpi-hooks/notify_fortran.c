/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What the Fortran modules beside <asyncprog/notify.h> find by name: handles are Fortran's, arguments by value. */
#include <asyncprog/notify.h>

#include "hooks.h"

#ifndef HOOK_ABI	/* which has no Fortran */

#define PUT_ARGS(origin_ptr) origin_ptr, MPI_Fint origin_count, MPI_Fint origin_type, MPI_Fint rank, MPI_Aint disp, \
	MPI_Fint target_count, MPI_Fint target_type
#define F(ret, name, ...) HOOK_EXPORT ret name(__VA_ARGS__); ret name(__VA_ARGS__)

extern const struct asyncprog_notify_calls asyncprog_notify_v1;

F(int, asyncprog_f_put_notify, PUT_ARGS(const void *origin), MPI_Fint tag, MPI_Fint win)
{
	return asyncprog_notify_v1.put_notify(origin, origin_count, TYPE_F2C(origin_type), rank, disp, target_count,
					      TYPE_F2C(target_type), tag, WIN_F2C(win));
}

F(int, asyncprog_f_get_notify, PUT_ARGS(void *origin), MPI_Fint tag, MPI_Fint win)
{
	return asyncprog_notify_v1.get_notify(origin, origin_count, TYPE_F2C(origin_type), rank, disp, target_count,
					      TYPE_F2C(target_type), tag, WIN_F2C(win));
}

F(int, asyncprog_f_accumulate_notify, PUT_ARGS(const void *origin), MPI_Fint op, MPI_Fint tag, MPI_Fint win)
{
	return asyncprog_notify_v1.accumulate_notify(origin, origin_count, TYPE_F2C(origin_type), rank, disp, target_count,
						     TYPE_F2C(target_type), OP_F2C(op), tag, WIN_F2C(win));
}

/* @want[@n] and @got are pairs of integers there, too. */
F(int, asyncprog_f_notify_test, MPI_Fint n, const struct asyncprog_notification *want, MPI_Fint win, MPI_Fint take,
  MPI_Fint *flag, MPI_Fint *which, struct asyncprog_notification *got)
{
	return asyncprog_notify_v1.notify_test(n, want, WIN_F2C(win), take, flag, which, got);
}

F(int, asyncprog_f_notify_wait, MPI_Fint n, const struct asyncprog_notification *want, MPI_Fint win, MPI_Fint *which,
  struct asyncprog_notification *got)
{
	return asyncprog_notify_v1.notify_wait(n, want, WIN_F2C(win), which, got);
}

F(int, asyncprog_f_win_progress_keyval, void)
{
	return asyncprog_notify_v1.win_progress_keyval();
}

#endif

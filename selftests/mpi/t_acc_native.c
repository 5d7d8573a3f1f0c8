// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Every operation on every predefined type by every call that accumulates: what the library does natively, asked through
 * PMPI on a window that nothing else knows, must work on the program's window and give the same. Where MPI defines
 * the result, or acctypes.h a better one than the library's, that counts as well: libraries have faults. One point for
 * each type; the calls go to the right neighbour, natively to the process itself.
 */
#include "acctypes.h"

enum call { C_ACC, C_RACC, C_GET_ACC, C_RGET_ACC, C_FETCH, C_CAS, C_CALLS };
static const char *const call_names[C_CALLS] = {
	"accumulate", "raccumulate", "get_accumulate", "rget_accumulate", "fetch_and_op", "compare_and_swap",
};

#define MAXN 3
#define SLOT (MAXN * 32)
#define SIZE (O_OPS * C_CALLS * SLOT)
#define KINDS 3

static struct twin wins[KINDS];
static MPI_Win native;
static char *native_mem;
static int right;

/* What came out of one call. */
struct outcome {
	int class;
	char window[SLOT], result[SLOT];
};

/* Values of a slot of rank @target before, and what the calls send. */
static void values(const struct acc_type *t, enum acc_op op, enum call call, int target, char *before, char *sent)
{
	struct t_rng r = t_rng_common();

	r.s += op * 7919 + call * 77 + target * 104729;
	memset(before, 0, SLOT);
	memset(sent, 0, SLOT);
	for (int i = 0; i < MAXN; i++) {
		acc_value(t, op, &r, before + i * t->size);
		acc_value(t, op, &r, sent + i * t->size);
	}
}

/* compare_and_swap has no operation: it finds the same value with half of them, and another with the others */
static void compared(const struct acc_type *t, enum acc_op op, const char *before, char *compare)
{
	memcpy(compare, before, t->size);
	compare[0] ^= op % 2;
}

/* By the hooks and by the library. */
#define CALLS(name, FN) \
static int name(const struct acc_type *t, enum acc_op op, enum call call, const char *before, const char *sent, \
		   char *result, int target, MPI_Aint disp, MPI_Win win) \
{ \
	int n = call == C_FETCH || call == C_CAS ? 1 : MAXN, rc; \
	MPI_Request req = MPI_REQUEST_NULL; \
	MPI_Datatype d = t->type; \
	char compare[32]; \
	\
	switch (call) { \
	case C_ACC: \
		return FN(MPI_Accumulate)(sent, n, d, target, disp, n, d, acc_op(op), win); \
	case C_RACC: \
		rc = FN(MPI_Raccumulate)(sent, n, d, target, disp, n, d, acc_op(op), win, &req); \
		break; \
	case C_GET_ACC: \
		return FN(MPI_Get_accumulate)(sent, n, d, result, n, d, target, disp, n, d, acc_op(op), win); \
	case C_RGET_ACC: \
		rc = FN(MPI_Rget_accumulate)(sent, n, d, result, n, d, target, disp, n, d, acc_op(op), win, &req); \
		break; \
	case C_FETCH: \
		return FN(MPI_Fetch_and_op)(sent, result, d, target, disp, acc_op(op), win); \
	default: \
		compared(t, op, before, compare); \
		return FN(MPI_Compare_and_swap)(sent, compare, result, d, target, disp, win); \
	} \
	return rc ? rc : FN(MPI_Wait)(&req, MPI_STATUS_IGNORE); \
}

#define HOOKED(fn) fn
CALLS(ask_hooked, HOOKED)
CALLS(ask_library, T_LIBRARY)

static int class_of(int rc)
{
	int class = MPI_SUCCESS;

	if (rc)
		MPI_Error_class(rc, &class);
	return class;
}

/*
 * What the library does not refuse, but crash, hang or abort the job with. Such a call cannot be made to ask.
 */
static bool native_ends(const struct acc_type *t, enum acc_op op, enum call call)
{
	bool loc = op == O_MINLOC || op == O_MAXLOC;

	if (call == C_CAS)
		return false;
#ifdef OPEN_MPI
	return t->class == A_PAIR && loc;
#else
	bool logical = op == O_LAND || op == O_LOR, bits = op == O_BAND || op == O_BOR || op == O_BXOR;
	bool any = op == O_REPLACE || op == O_NO_OP;

	if (loc != (t->class == A_PAIR) || t->class == A_COMPLEX)
		return !any && !(t->class == A_COMPLEX && (op == O_SUM || op == O_PROD));
	if (t->type == MPI_FLOAT)
		return logical;
	return (t->type == MPI_DOUBLE || t->type == MPI_LONG_DOUBLE) && (logical || bits);
#endif
}

static void ask_native(const struct acc_type *t, enum acc_op op, enum call call, const char *before,
		       const char *sent, struct outcome *o)
{
	memcpy(native_mem, before, SLOT);
	memset(o->result, 0x77, SLOT);
	T_LIBRARY(MPI_Win_lock)(MPI_LOCK_EXCLUSIVE, 0, 0, native);
#ifdef OPEN_MPI
	/* fetch_and_op crashes where accumulate refuses; the operations are the same */
	if (call == C_FETCH && op != O_NO_OP) {
		o->class = class_of(ask_library(t, op, C_ACC, before, sent, NULL, 0, 0, native));
		T_LIBRARY(MPI_Win_flush)(0, native);
		memcpy(native_mem, before, SLOT);
	}
	if (call != C_FETCH || op == O_NO_OP || !o->class)
#endif
		o->class = class_of(ask_library(t, op, call, before, sent, o->result, 0, 0, native));
	T_LIBRARY(MPI_Win_unlock)(0, native);
	memcpy(o->window, native_mem, SLOT);
}

static bool equal(const struct acc_type *t, int n, const char *a, const char *b)
{
	for (int i = 0; i < n; i++)
		if (!acc_equal(t, a + i * t->size, b + i * t->size))
			return false;
	return true;
}

static const char *hex(const struct acc_type *t, int n, const char *p, char *out)
{
	for (int i = 0; i < n * t->size; i++)
		sprintf(out + 2 * i, "%02x", (unsigned char)p[i]);
	return out;
}

static void compare(const struct acc_type *t, enum acc_op op, enum call call, int kind, const char *before,
		    const char *sent, const struct outcome *got)
{
	int n = call == C_FETCH || call == C_CAS ? 1 : MAXN;
	char what[80], gs[2 * SLOT + 1], ws[2 * SLOT + 1];
	char want[SLOT], cmp[32];
	struct outcome o;
	bool ok;

	snprintf(what, sizeof(what), "%s %s %s", call_names[call], call == C_CAS ? "" : acc_op_names[op],
		 tw_names[wins[kind].flavor]);
	memcpy(want, before, SLOT);
	for (int i = 0; call != C_CAS && i < n; i++)
		acc_apply(t, op, want + i * t->size, sent + i * t->size);
	if (native_ends(t, op, call)) {
		if (got->class == MPI_ERR_OP || (got->class == MPI_SUCCESS && acc_permitted(t, op)))
			return;
		t_fail(__FILE__, __LINE__, "%s: error class %d, natively the program ends", what, got->class);
		return;
	}
	ask_native(t, op, call, before, sent, &o);
	/* Open MPI compares the first bytes of pairs, as many as they have without their gap; that is not imitated */
	if (call == C_CAS && t->class == A_PAIR && got->class == MPI_ERR_TYPE && !o.class)
		return;
	if (o.class || got->class) {
		/* more than the library has is no fault, if the result is right: Open MPI's MPI_INTEGER has no logical operations */
		if (got->class == o.class || (!got->class && (acc_permitted(t, op) || t->class == A_FINT) &&
					      equal(t, n, got->window, want)))
			return;
		t_fail(__FILE__, __LINE__, "%s: error class %d, natively %d", what, got->class, o.class);
		return;
	}
	if (call == C_CAS) {
		compared(t, op, before, cmp);
		memcpy(want, op % 2 ? before : sent, t->size);
	}
	ok = equal(t, n, got->window, o.window) ||
	     ((call == C_CAS || acc_permitted(t, op)) && equal(t, n, got->window, want));
	if (!ok)
		t_fail(__FILE__, __LINE__, "%s: the window has %s, natively %s", what,
		       hex(t, n, got->window, gs), hex(t, n, o.window, ws));
	if (call >= C_GET_ACC && !equal(t, n, got->result, o.result) && !equal(t, n, got->result, before))
		t_fail(__FILE__, __LINE__, "%s: the result is %s, natively %s", what,
		       hex(t, n, got->result, gs), hex(t, n, o.result, ws));
}

/* All operations by all calls, each in a slot of its own. */
static void do_type(const struct acc_type *t, int kind)
{
	static struct outcome outcomes[O_OPS][C_CALLS];
	struct twin *w = &wins[kind];
	char before[SLOT], sent[SLOT];

	for (int op = 0; op < O_OPS; op++)
		for (int call = 0; call < C_CALLS; call++) {
			values(t, op, call, t_rank, before, sent);
			memcpy(w->mem + (op * C_CALLS + call) * SLOT, before, SLOT);
		}
	M(MPI_Win_lock_all(0, w->win));
	M(MPI_Win_sync(w->win));
	t_barrier();
	for (int op = 0; op < O_OPS; op++)
		for (int call = 0; call < C_CALLS; call++) {
			MPI_Aint disp = tw_disp(w, right, (op * C_CALLS + call) * SLOT);
			struct outcome *o = &outcomes[op][call];

			values(t, op, call, right, before, sent);
			memset(o->result, 0x77, SLOT);
			o->class = class_of(ask_hooked(t, op, call, before, sent, o->result, right, disp, w->win));
			M(MPI_Win_flush(right, w->win));
			M(MPI_Get(o->window, SLOT, MPI_BYTE, right, disp, SLOT, MPI_BYTE, w->win));
			M(MPI_Win_flush(right, w->win));
		}
	M(MPI_Win_unlock_all(w->win));
	t_barrier();
	for (int op = 0; op < O_OPS; op++)
		for (int call = 0; call < C_CALLS; call++) {
			values(t, op, call, right, before, sent);
			compare(t, op, call, kind, before, sent, &outcomes[op][call]);
		}
}

int main(int argc, char **argv)
{
	static const enum tw_flavor flavors[KINDS] = { TW_ALLOCATE, TW_CREATE, TW_DYNAMIC };
	const struct acc_type *types;
	int n;

	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	right = (t_rank + 1) % t_size;
	for (int k = 0; k < KINDS; k++)
		tw_make(&wins[k], flavors[k], MPI_COMM_WORLD, SIZE, 1, MPI_INFO_NULL);
	T_LIBRARY(MPI_Win_allocate)(SLOT, 1, MPI_INFO_NULL, MPI_COMM_SELF, &native_mem, &native);
	T_LIBRARY(MPI_Win_set_errhandler)(native, MPI_ERRORS_RETURN);
	n = acc_types(&types);
	for (int i = 0; i < n; i++)
		if (t_begin("%s", types[i].name)) {
			for (int k = 0; k < KINDS; k++)
				do_type(&types[i], k);
			t_end();
		}
	T_LIBRARY(MPI_Win_free)(&native);
	for (int k = 0; k < KINDS; k++)
		tw_free(&wins[k]);
	return t_fini();
}

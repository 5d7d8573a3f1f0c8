// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What a window answers: attributes, keyvals, group, name, info, error handlers. */
#include "mpitest.h"

static void predefined(void)
{
	static const int flavor[TW_FLAVORS] = {
		MPI_WIN_FLAVOR_ALLOCATE, MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_DYNAMIC,
		MPI_WIN_FLAVOR_CREATE,
	};

	for (int f = 0; f < TW_FLAVORS; f++) {
		struct twin w;
		MPI_Aint *size;
		int flag, *unit, *fl, *model, du = f == TW_DYNAMIC ? 1 : 4 + t_rank;
		void *base, *again;

		tw_make(&w, f, MPI_COMM_WORLD, 64 + 16 * t_rank, du, MPI_INFO_NULL);
		M(MPI_Win_get_attr(w.win, MPI_WIN_BASE, &base, &flag));
		T_OK(flag, "base");
		T_OK(base == (f == TW_DYNAMIC ? MPI_BOTTOM : (void *)w.mem), "base %p, memory %p",
		     base, (void *)w.mem);
		M(MPI_Win_get_attr(w.win, MPI_WIN_BASE, &again, &flag));
		T_OK(base == again, "%p %p", base, again);
		M(MPI_Win_get_attr(w.win, MPI_WIN_SIZE, &size, &flag));
		T_OK(flag, "size");
		T_EQ(*size, f == TW_DYNAMIC ? 0 : 64 + 16 * t_rank);
		M(MPI_Win_get_attr(w.win, MPI_WIN_DISP_UNIT, &unit, &flag));
		T_OK(flag, "disp unit");
		T_EQ(*unit, du);
		M(MPI_Win_get_attr(w.win, MPI_WIN_CREATE_FLAVOR, &fl, &flag));
		T_OK(flag, "flavor");
		T_EQ(*fl, flavor[f]);
		M(MPI_Win_get_attr(w.win, MPI_WIN_MODEL, &model, &flag));
		T_OK(flag, "model");
		T_OK(*model == MPI_WIN_UNIFIED || *model == MPI_WIN_SEPARATE, "model %d", *model);
		tw_free(&w);
	}
}

static int copies, deletes;
static MPI_Win seen_win;
static void *seen_val, *seen_extra;

static int on_delete(MPI_Win win, int keyval, void *val, void *extra)
{
	(void)keyval;
	deletes++;
	seen_win = win;
	seen_val = val;
	seen_extra = extra;
	return MPI_SUCCESS;
}

static int on_copy(MPI_Win win, int keyval, void *extra, void *in, void *out, int *flag)
{
	(void)win, (void)keyval, (void)extra, (void)in, (void)out;
	copies++;
	*flag = 0;
	return MPI_SUCCESS;
}

static void keyvals(void)
{
	int key, key2, extra, a, b, flag;
	struct twin w;
	MPI_Win win;
	void *v;

	deletes = copies = 0;
	M(MPI_Win_create_keyval(on_copy, on_delete, &key, &extra));
	M(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &key2, NULL));
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
	win = w.win;
	M(MPI_Win_get_attr(w.win, key, &v, &flag));
	T_EQ(flag, 0);
	M(MPI_Win_set_attr(w.win, key, &a));
	M(MPI_Win_set_attr(w.win, key2, &b));
	M(MPI_Win_get_attr(w.win, key, &v, &flag));
	T_OK(flag && v == &a, "value");
	M(MPI_Win_get_attr(w.win, key2, &v, &flag));
	T_OK(flag && v == &b, "second value");
	/* replacing calls delete for the old value */
	M(MPI_Win_set_attr(w.win, key, &b));
	T_EQ(deletes, 1);
	T_OK(seen_win == win && seen_val == &a && seen_extra == &extra, "delete's arguments");
	M(MPI_Win_delete_attr(w.win, key));
	T_EQ(deletes, 2);
	M(MPI_Win_get_attr(w.win, key, &v, &flag));
	T_EQ(flag, 0);
	/* a key freed while in use lives until the window ends */
	M(MPI_Win_set_attr(w.win, key, &a));
	M(MPI_Win_free_keyval(&key));
	T_EQ(key, MPI_KEYVAL_INVALID);
	tw_free(&w);
	T_EQ(deletes, 3);
	T_OK(seen_win == win && seen_val == &a, "delete at free");
	T_EQ(copies, 0);
	M(MPI_Win_free_keyval(&key2));
}

static int refuse;

static int on_delete_refused(MPI_Win win, int keyval, void *val, void *extra)
{
	(void)win, (void)keyval, (void)val, (void)extra;
	deletes++;
	return refuse ? MPI_ERR_ARG : MPI_SUCCESS;
}

/* A delete function that fails: MPICH keeps the window, Open MPI does not; what is there afterwards works. */
static void delete_refused(void)
{
	int key, value = 40 + t_rank, *mem;
	struct twin w;
	bool kept;

	M(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete_refused, &key, NULL));
	for (int f = 0; f < TW_FLAVORS; f++) {
		tw_make(&w, f, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
		mem = (int *)(void *)w.mem;
		*mem = 0;
		M(MPI_Win_set_attr(w.win, key, &key));
		deletes = 0;
		refuse = 1;
		kept = MPI_Win_free(&w.win) != MPI_SUCCESS;
		T_OK(deletes, "not called");
		T_EQ(w.win != MPI_WIN_NULL, kept);
		refuse = 0;
		t_barrier();
		if (w.win == MPI_WIN_NULL)
			break;		/* tw_free() would free it once more */
		M(MPI_Win_fence(0, w.win));
		M(MPI_Put(&value, 1, MPI_INT, (t_rank + 1) % t_size, tw_disp(&w, (t_rank + 1) % t_size, 0), 1, MPI_INT, w.win));
		M(MPI_Win_fence(0, w.win));
		T_EQ(*mem, 40 + (t_rank + t_size - 1) % t_size);
		t_barrier();
		tw_free(&w);
		T_OK(w.win == MPI_WIN_NULL, "not freed");
	}
	M(MPI_Win_free_keyval(&key));
}

static void group(void)
{
	MPI_Group g, cg;
	MPI_Comm c;
	struct twin w;
	int res;

	M(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &c));
	for (int f = 0; f < TW_FLAVORS; f++) {
		tw_make(&w, f, c, 64, 1, MPI_INFO_NULL);
		M(MPI_Win_get_group(w.win, &g));
		M(MPI_Comm_group(c, &cg));
		M(MPI_Group_compare(g, cg, &res));
		T_EQ(res, MPI_IDENT);
		M(MPI_Group_free(&g));
		M(MPI_Group_free(&cg));
		tw_free(&w);
	}
	M(MPI_Comm_free(&c));
}

static void names(void)
{
	char s[MPI_MAX_OBJECT_NAME], longest[MPI_MAX_OBJECT_NAME];
	struct twin w;
	int n;

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
	M(MPI_Win_get_name(w.win, s, &n));
	T_EQ(n, (int)strlen(s));
	M(MPI_Win_set_name(w.win, "blue"));
	M(MPI_Win_get_name(w.win, s, &n));
	T_EQ(n, 4);
	T_OK(!strcmp(s, "blue"), "name is '%s'", s);
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	M(MPI_Win_set_name(w.win, longest));
	M(MPI_Win_get_name(w.win, s, &n));
	T_EQ(n, MPI_MAX_OBJECT_NAME - 1);
	tw_free(&w);
}

static int calls, last_class;
static MPI_Win last_win;

static void handler(MPI_Win *win, int *err, ...)
{
	calls++;
	last_win = *win;
	MPI_Error_class(*err, &last_class);
}

static void errhandlers(void)
{
	MPI_Errhandler eh, got;
	struct twin a, b;
	int v = 0;

	M(MPI_Win_create_errhandler(handler, &eh));
	tw_make(&a, TW_ALLOCATE, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
	tw_make(&b, TW_CREATE, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
	M(MPI_Win_get_errhandler(a.win, &got));
	T_OK(got == MPI_ERRORS_RETURN, "set by tw_make");
	M(MPI_Win_set_errhandler(a.win, eh));
	M(MPI_Win_set_errhandler(b.win, eh));
	M(MPI_Win_get_errhandler(a.win, &got));
	T_OK(got == eh, "user handler");
	M(MPI_Errhandler_free(&got));
	M(MPI_Errhandler_free(&eh));
	calls = 0;
	M(MPI_Win_fence(0, a.win));
	T_CLASS(MPI_Put(&v, 1, MPI_INT, t_size, 0, 1, MPI_INT, a.win), MPI_ERR_RANK);
	T_EQ(calls, 1);
	T_EQ(last_class, MPI_ERR_RANK);
	T_OK(last_win == a.win, "the first window");
	M(MPI_Win_fence(0, a.win));
	M(MPI_Win_fence(0, b.win));
	T_CLASS(MPI_Get(&v, 1, MPI_DATATYPE_NULL, 0, 0, 1, MPI_INT, b.win), MPI_ERR_TYPE);
	T_EQ(calls, 2);
	T_EQ(last_class, MPI_ERR_TYPE);
	T_OK(last_win == b.win, "the second window");
	M(MPI_Win_call_errhandler(b.win, MPI_ERR_OTHER));
	T_EQ(calls, 3);
	T_EQ(last_class, MPI_ERR_OTHER);
	M(MPI_Win_fence(0, b.win));
	tw_free(&a);
	tw_free(&b);
	T_EQ(calls, 3);
}

static void default_errhandler(void)
{
	MPI_Errhandler got;
	MPI_Win win;
	void *mem;

	M(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win));
	M(MPI_Win_get_errhandler(win, &got));
	T_OK(got == MPI_ERRORS_ARE_FATAL, "the default");
	M(MPI_Win_free(&win));
}

static void info(void)
{
	struct twin w;
	MPI_Info in, out;
	char v[MPI_MAX_INFO_VAL + 1];
	int flag;

	M(MPI_Info_create(&in));
	M(MPI_Info_set(in, "no_locks", "false"));
	M(MPI_Info_set(in, "accumulate_ordering", "none"));
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 1, in);
	M(MPI_Win_get_info(w.win, &out));
	T_OK(out != in && out != MPI_INFO_NULL, "a new info object");
	M(MPI_Info_get(out, "no_locks", MPI_MAX_INFO_VAL, v, &flag));
	if (flag)
		T_OK(!strcmp(v, "false"), "no_locks is %s", v);
	M(MPI_Info_get(out, "accumulate_ordering", MPI_MAX_INFO_VAL, v, &flag));
	if (flag)
		T_OK(!strcmp(v, "none"), "accumulate_ordering is %s", v);
	M(MPI_Info_free(&out));
	M(MPI_Win_set_info(w.win, in));
	M(MPI_Info_free(&in));
	tw_free(&w);
}

#ifndef TEST_ABI	/* which has no Fortran */
/* MPI_Win_c2f and back give the same window */
static void handles(void)
{
	struct twin w;
	MPI_Fint f;

	tw_make(&w, TW_CREATE, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
	f = MPI_Win_c2f(w.win);
	T_OK(MPI_Win_f2c(f) == w.win, "round trip");
	T_OK(MPI_Win_f2c(MPI_Win_c2f(MPI_WIN_NULL)) == MPI_WIN_NULL, "null round trip");
	tw_free(&w);
}
#endif

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(predefined, 1);
	T_RUN(keyvals, 1);
	T_RUN(delete_refused, 1);
	T_RUN(group, 1);
	T_RUN(names, 1);
	T_RUN(errhandlers, 1);
	T_RUN(default_errhandler, 1);
	T_RUN(info, 1);
#ifndef TEST_ABI
	T_RUN(handles, 1);
#endif
	return t_fini();
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * MPI calls of programs with OpenMP: MPI_Pack, MPI_Unpack and one-sided operations of all lengths and types, outside of
 * parallel regions and in them, by several threads.  Rank 0 runs regions, rank 1 none before the last points: so what
 * one packs with a team the other unpacks without, and the other way round.
 *
 * Threads of a team sleep while they have nothing to do (OMP_WAIT_POLICY=passive): their processor time tells whether they
 * took part.  With hooks and PROG_THREADS=always they have to where they may, and never where not.
 */
#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

#include "dtmap.h"

#define TEAM	3
#define LONG	(1 << 18)

/* Runs a region of @n threads by another runtime, and in its first thread @fn. */
typedef void plugin_fn(int n, void (*fn)(void));

static enum { UNKNOWN, NEVER, WHERE_THEY_MAY } teams;	/* when they have to be used */
static struct {
	clockid_t clock;
	pid_t tid;
} times[TEAM];
static pthread_t threads[TEAM];
static int team_size = 1;
static int mine;			/* of each thread of a team */
#pragma omp threadprivate(mine)

/* Of @n threads, or as many as there may be. */
static void region(int n)
{
	#pragma omp parallel num_threads(n)
	{
		int i = omp_get_thread_num();

		#pragma omp masked
		team_size = omp_get_num_threads();
		if (i < TEAM) {
			threads[i] = pthread_self();
			pthread_getcpuclockid(pthread_self(), &times[i].clock);
			times[i].tid = (pid_t)syscall(SYS_gettid);
		}
	}
}

/* Has the thread nothing to do, and not only no processor? */
static bool sleeps(pid_t tid)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	f = fopen(path, "r");
	/* the name between the parentheses is a program's, without any */
	if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (f)
		fclose(f);
	return state == 'S';
}

/* Of the last team but its first thread, ns.  Gives what does not change any more for some ms, when all of them sleep. */
static long long others_time(void)
{
	long long last = -1, sum = 0;
	int same = 0;

	for (int tries = 0; same < 5 && tries < 5000; tries++) {
		struct timespec ts, nap = { .tv_nsec = 1000000 };
		bool all = true;

		sum = 0;
		for (int i = 1; i < team_size; i++) {
			all = all && sleeps(times[i].tid);
			clock_gettime(times[i].clock, &ts);
			sum += ts.tv_sec * 1000000000ll + ts.tv_nsec;
		}
		same = all && sum == last ? same + 1 : 0;
		last = sum;
		nanosleep(&nap, NULL);
	}
	return sum;
}

static double *src, *dst, *back;
static MPI_Datatype every_other;

/* One call of each, of LONG doubles of every other place. */
static void pack_and_unpack(void)
{
	int at = 0;

	memset(dst, 0, LONG * sizeof(*dst));
	M(MPI_Pack(src, 1, every_other, dst, LONG * (int)sizeof(*dst), &at, MPI_COMM_WORLD));
	T_EQ(at, LONG * (int)sizeof(*dst));
	for (int i = 0; i < LONG; i++)
		if (dst[i] != src[2 * i]) {
			T_OK(false, "packed element %d", i);
			break;
		}
	at = 0;
	memset(back, 0, 2 * LONG * sizeof(*back));
	M(MPI_Unpack(dst, LONG * (int)sizeof(*dst), &at, back, 1, every_other, MPI_COMM_WORLD));
	T_EQ(at, LONG * (int)sizeof(*dst));
	for (int i = 0; i < 2 * LONG; i++)
		if (back[i] != (i % 2 ? 0 : src[i])) {
			T_OK(false, "unpacked element %d", i);
			break;
		}
}

static void check_used(const char *call, int line, long long before, bool may)
{
	long long ran = others_time() - before;

	if (teams != UNKNOWN && (ran != 0) != (may && teams == WHERE_THEY_MAY))
		t_fail(__FILE__, line, "%s: others ran for %lld ns", call, ran);
}

#define T_USED(may, call) \
	do { \
		long long t0_ = others_time(); \
		call; \
		check_used(#call, __LINE__, t0_, may); \
	} while (0)

static void make_buffers(void)
{
	src = malloc(2 * LONG * sizeof(*src));
	dst = malloc(LONG * sizeof(*dst));
	back = malloc(2 * LONG * sizeof(*back));
	if (!src || !dst || !back)
		abort();
	for (int i = 0; i < 2 * LONG; i++)
		src[i] = i + 1;
	M(MPI_Type_vector(LONG, 1, 2, MPI_DOUBLE, &every_other));
	M(MPI_Type_commit(&every_other));
}

static void no_region_yet(void)
{
	pack_and_unpack();
}

static void outside(void)
{
	if (t_rank)
		return;
	region(TEAM);
	T_USED(true, pack_and_unpack());
	region(2);
	T_USED(true, pack_and_unpack());
	/* one that wants one thread */
	#pragma omp parallel if (t_size < 0)
	mine = 1;
	T_USED(false, pack_and_unpack());
	region(TEAM);
	T_USED(true, pack_and_unpack());
	omp_set_dynamic(1);
	T_USED(false, pack_and_unpack());
	omp_set_dynamic(0);
	T_USED(true, pack_and_unpack());
}

static void inside(void)
{
	if (t_rank)
		return;
	#pragma omp parallel num_threads(TEAM)
	{
		#pragma omp single
		pack_and_unpack();
		#pragma omp masked
		pack_and_unpack();
		#pragma omp barrier
		#pragma omp critical
		pack_and_unpack();
		#pragma omp barrier
		#pragma omp single
		{
			#pragma omp task
			pack_and_unpack();
			#pragma omp taskwait
		}
	}
	T_USED(true, pack_and_unpack());
	omp_set_max_active_levels(2);
	#pragma omp parallel num_threads(2)
	#pragma omp single
	{
		#pragma omp parallel num_threads(2)
		#pragma omp single
		pack_and_unpack();
		pack_and_unpack();
	}
	omp_set_max_active_levels(1);
	region(TEAM);
	T_USED(true, pack_and_unpack());
}

/* In a region the others have to wait, and sleep: who takes part is seen. */
static void single_is_alone(void)
{
	long long t0 = 0, t1 = 0;

	if (t_rank)
		return;
	region(TEAM);
	#pragma omp parallel num_threads(TEAM)
	#pragma omp single
	{
		/* whoever is here is not counted, and the first is looked at as well */
		__typeof__(times[0]) had[TEAM];
		int k = 1;

		memcpy(had, times, sizeof(had));
		for (int i = 0; i < TEAM; i++)
			if (!pthread_equal(threads[i], pthread_self()))
				times[k++] = had[i];
		t0 = others_time();
		pack_and_unpack();
		t1 = others_time();
		memcpy(times, had, sizeof(had));
	}
	if (teams != UNKNOWN)
		T_EQ(t1 - t0, 0);
}

static void keeps_threads(void)
{
	pthread_t had[TEAM];
	int kept = 0;

	if (t_rank)
		return;
	region(TEAM);
	memcpy(had, threads, sizeof(had));
	#pragma omp parallel num_threads(TEAM)
	mine = 100 + omp_get_thread_num();
	T_USED(true, pack_and_unpack());
	#pragma omp parallel num_threads(TEAM) reduction(+ : kept)
	{
		int i = omp_get_thread_num();

		kept += mine == 100 + i && pthread_equal(had[i], pthread_self());
	}
	T_EQ(kept, team_size);
}

/* Random types: packed on rank 0 with its team and on rank 1 without, unpacked at the other one. */
static void random_types(void)
{
	static const struct {
		MPI_Datatype type;
		int size;
	} basic[] = {
		{ MPI_CHAR, 1 }, { MPI_SHORT, 2 }, { MPI_INT, 4 }, { MPI_DOUBLE, 8 },
	};
	struct t_rng r = t_rng_common();

	if (!t_rank)
		region(TEAM);
	for (int round = 0; round < t_iters(60); round++) {
		int b = t_rndn(&r, ARRAY_SIZE(basic)), count = 1 + t_rndn(&r, 8), at = 0, elems, bytes;
		struct dtmap unit = dt_basic(basic[b].type, basic[b].size, "unit");
		struct dtmap m = dt_random(&r, &unit, 1 + t_rndn(&r, 3), count, 20000, basic[b].size);
		unsigned char *typed, *packed, *got, *want;
		MPI_Aint lo, hi, span;
		uint64_t seed = t_rnd(&r);

		dt_range(&m, count, &lo, &hi);
		span = hi - lo;
		elems = m.n * count;
		bytes = elems * basic[b].size;
		typed = malloc((size_t)span + 1);
		want = malloc((size_t)span + 1);
		packed = malloc((size_t)bytes + 17);
		got = malloc((size_t)bytes + 17);
		if (!typed || !want || !packed || !got)
			abort();
		t_fill(typed, (size_t)span, seed);
		memset(packed, 0x5a, (size_t)bytes + 17);
		at = 5;
		M(MPI_Pack(typed - lo, count, m.type, packed, bytes + 17, &at, MPI_COMM_WORLD));
		T_EQ(at, bytes + 5);
		for (int i = 0; i < elems; i++)
			T_BYTES(m.desc, packed + 5 + i * basic[b].size, dt_at(&m, typed - lo, i), (size_t)basic[b].size);
		for (int i = 0; i < 17; i++)
			T_EQ(packed[i < 5 ? i : bytes + i], 0x5a);
		M(MPI_Sendrecv(packed, bytes + 17, MPI_PACKED, t_rank ^ 1, 1, got, bytes + 17, MPI_PACKED, t_rank ^ 1, 1,
			       MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		T_BYTES("what both packed", got, packed, (size_t)bytes + 17);
		memset(want, 0x77, (size_t)span);
		for (int i = 0; i < elems; i++)
			memcpy(dt_at(&m, want - lo, i), dt_at(&m, typed - lo, i), (size_t)basic[b].size);
		memset(typed, 0x77, (size_t)span);
		at = 5;
		M(MPI_Unpack(got, bytes + 17, &at, typed - lo, count, m.type, MPI_COMM_WORLD));
		T_EQ(at, bytes + 5);
		T_BYTES(m.desc, typed, want, (size_t)span);
		free(typed);
		free(want);
		free(packed);
		free(got);
		dt_free(&m);
		dt_free(&unit);
	}
}

/* Elements with gaps, and such that are moved as numbers: what one rank packs is what the other one does. */
static void odd_elements(void)
{
	static const MPI_Datatype types[] = {
		MPI_SHORT_INT, MPI_DOUBLE_INT, MPI_LONG_DOUBLE_INT, MPI_LONG_DOUBLE, MPI_C_BOOL, MPI_BYTE,
	};
	enum { N = 300 };

	if (!t_rank)
		region(TEAM);
	for (int i = 0; i < ARRAY_SIZE(types); i++)
		for (int v = 0; v < 3; v++) {
			unsigned char typed[3 * N * 32 + 32], packed[N * 32], got[N * 32], again[sizeof(typed)];
			int lens[2] = { 1, 1 }, at = 0, at2 = 0, back_at = 0;
			MPI_Datatype t = types[i], parts[2] = { MPI_CHAR, types[i] };
			MPI_Aint disps[2] = { 0, 32 };
			int count = N;

			if (v == 1) {
				M(MPI_Type_vector(N, 1, 2, types[i], &t));
				count = 1;
			} else if (v == 2) {
				M(MPI_Type_create_struct(2, lens, disps, parts, &t));
				count = N / 2;
			}
			if (v)
				M(MPI_Type_commit(&t));
			t_fill(typed, sizeof(typed), 9);
			memset(packed, 3, sizeof(packed));
			M(MPI_Pack(typed, count, t, packed, sizeof(packed), &at, MPI_COMM_WORLD));
			M(MPI_Sendrecv(packed, sizeof(packed), MPI_BYTE, t_rank ^ 1, 1, got, sizeof(got), MPI_BYTE, t_rank ^ 1, 1,
				       MPI_COMM_WORLD, MPI_STATUS_IGNORE));
			M(MPI_Sendrecv(&at, 1, MPI_INT, t_rank ^ 1, 2, &at2, 1, MPI_INT, t_rank ^ 1, 2, MPI_COMM_WORLD,
				       MPI_STATUS_IGNORE));
			T_EQ(at2, at);
			T_BYTES("packed alike", got, packed, sizeof(packed));
			memset(typed, 4, sizeof(typed));
			M(MPI_Unpack(got, sizeof(got), &back_at, typed, count, t, MPI_COMM_WORLD));
			T_EQ(back_at, at);
			M(MPI_Sendrecv(typed, sizeof(typed), MPI_BYTE, t_rank ^ 1, 3, again, sizeof(again), MPI_BYTE, t_rank ^ 1, 3,
				       MPI_COMM_WORLD, MPI_STATUS_IGNORE));
			T_BYTES("unpacked alike", again, typed, sizeof(typed));
			if (v)
				M(MPI_Type_free(&t));
		}
}

/* The library finds what is wrong, with a team or without. */
static void errors(void)
{
	int at = 0, bytes = LONG * (int)sizeof(*dst);
	MPI_Datatype raw;
	MPI_Errhandler had;

	M(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &had));
	M(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
	if (!t_rank)
		region(TEAM);
	/* MPICH does what fits, and says nothing */
	T_CLASS(MPI_Pack(src, 1, every_other, dst, bytes - 8, &at, MPI_COMM_WORLD), MPI_ERR_ARG, MPI_ERR_TRUNCATE, MPI_SUCCESS);
	T_OK(at <= bytes - 8, "at %d", at);
	at = 0;
	back[2 * LONG - 2] = -1;
	T_CLASS(MPI_Unpack(dst, bytes - 8, &at, back, 1, every_other, MPI_COMM_WORLD), MPI_ERR_ARG, MPI_ERR_TRUNCATE,
		MPI_ERR_OTHER, MPI_ERR_UNKNOWN, MPI_SUCCESS);
	T_EQ(back[2 * LONG - 2], -1);
	at = 0;
	T_CLASS(MPI_Pack(src, -1, every_other, dst, bytes, &at, MPI_COMM_WORLD), MPI_ERR_COUNT, MPI_ERR_ARG);
	T_CLASS(MPI_Pack(src, 1, MPI_DATATYPE_NULL, dst, bytes, &at, MPI_COMM_WORLD), MPI_ERR_TYPE);
	M(MPI_Type_vector(LONG, 1, 2, MPI_DOUBLE, &raw));
	T_CLASS(MPI_Pack(src, 1, raw, dst, bytes, &at, MPI_COMM_WORLD), MPI_ERR_TYPE);
	M(MPI_Type_free(&raw));
	T_CLASS(MPI_Pack(src, 1, every_other, dst, bytes, &at, MPI_COMM_NULL), MPI_ERR_COMM);
	at = 0;
	M(MPI_Pack(src, 0, every_other, dst, bytes, &at, MPI_COMM_WORLD));
	T_EQ(at, 0);
#if MPI_VERSION >= 4
	{
		MPI_Count large = 0;

		M(MPI_Pack_c(src, 1, every_other, dst, bytes, &large, MPI_COMM_WORLD));
		T_EQ(large, bytes);
		large = 0;
		M(MPI_Unpack_c(dst, bytes, &large, back, 1, every_other, MPI_COMM_WORLD));
		T_EQ(large, bytes);
		T_OK(!memcmp(&back[2 * LONG - 2], &src[2 * LONG - 2], sizeof(*src)), "last element");
	}
#endif
	M(MPI_Comm_set_errhandler(MPI_COMM_WORLD, had));
	if (had != MPI_ERRORS_ARE_FATAL && had != MPI_ERRORS_RETURN)
		M(MPI_Errhandler_free(&had));
}

/* Put, get, accumulate and get_accumulate from rank 0 to rank @target of @w; derived types on one side, and on both. */
static void one_sided(struct twin *w, int target)
{
	long long t0 = others_time();

	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w->win));
	M(MPI_Put(src, LONG, MPI_DOUBLE, target, tw_disp(w, target, 0), LONG, MPI_DOUBLE, w->win));
	M(MPI_Win_flush(target, w->win));
	M(MPI_Get(back, 1, every_other, target, tw_disp(w, target, 0), LONG, MPI_DOUBLE, w->win));
	M(MPI_Win_flush(target, w->win));
	for (int i = 0; i < LONG; i++)
		if (!T_OK(back[2 * i] == src[i], "got element %d", i))
			break;
	M(MPI_Put(src, 1, every_other, target, tw_disp(w, target, 0), 1, every_other, w->win));
	M(MPI_Win_flush(target, w->win));
	M(MPI_Accumulate(src, LONG, MPI_DOUBLE, target, tw_disp(w, target, 0), LONG, MPI_DOUBLE, MPI_SUM, w->win));
	M(MPI_Accumulate(src, 1, every_other, target, tw_disp(w, target, 0), 1, every_other, MPI_SUM, w->win));
	M(MPI_Win_flush(target, w->win));
	memset(dst, 0, LONG * sizeof(*dst));
	M(MPI_Get_accumulate(src, LONG, MPI_DOUBLE, dst, LONG, MPI_DOUBLE, target, tw_disp(w, target, 0), LONG, MPI_DOUBLE,
			     MPI_REPLACE, w->win));
	M(MPI_Win_flush(target, w->win));
	/* places of even number: put, src[i] added, src[i] added; the others have src[i] of the first put, up to LONG */
	for (int i = 0; i < LONG; i++)
		if (!T_OK(dst[i] == (i % 2 ? 2 : 3) * src[i], "result %d is %g", i, dst[i]))
			break;
	M(MPI_Win_unlock(target, w->win));
	if (teams == NEVER)
		T_EQ(others_time() - t0, 0);
}

static void windows(void)
{
	for (int flavor = 0; flavor < TW_FLAVORS; flavor++) {
		struct twin w;

		tw_make(&w, (enum tw_flavor)flavor, MPI_COMM_WORLD, 2 * LONG * sizeof(*src), 1, MPI_INFO_NULL);
		if (!t_rank) {
			region(TEAM);
			one_sided(&w, 1);
			one_sided(&w, 0);
		}
		t_barrier();
		tw_free(&w);
	}
}

static void messages(void)
{
	MPI_Request q[2];

	if (!t_rank)
		region(TEAM);
	for (int i = 0; i < 6; i++) {
		memset(back, 0, 2 * LONG * sizeof(*back));
		M(MPI_Irecv(back, 1, every_other, t_rank ^ 1, 7, MPI_COMM_WORLD, &q[0]));
		M(MPI_Isend(src, 1, every_other, t_rank ^ 1, 7, MPI_COMM_WORLD, &q[1]));
		if (i % 2)
			usleep(2000);
		M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
		for (int k = 0; k < 2 * LONG; k++)
			if (!T_OK(back[k] == (k % 2 ? 0 : src[k]), "message %d, element %d", i, k))
				break;
	}
}

/* ---- threads ----------------------------------------------------------------------------------- */

struct caller {
	pthread_t thread;
	bool own;			/* has a team */
	int wrong;
};

static void *call_in_thread(void *arg)
{
	struct caller *c = arg;
	int bytes = LONG * (int)sizeof(*src), sum = 0;
	double *to = malloc((size_t)bytes);

	if (!to)
		abort();
	if (c->own) {
		#pragma omp parallel num_threads(2) reduction(+ : sum)
		sum += 1;
		c->wrong += sum < 1 || sum > 2;
	}
	for (int k = 0; k < 5; k++) {
		int at = 0;

		memset(to, 0, (size_t)bytes);
		if (MPI_Pack(src, 1, every_other, to, bytes, &at, MPI_COMM_WORLD) || at != bytes)
			c->wrong++;
		for (int i = 0; i < LONG; i++)
			c->wrong += to[i] != src[2 * i];
	}
	free(to);
	return NULL;
}

static void several_threads(void)
{
	struct caller c[3] = { { .own = true }, { .own = true }, { .own = false } };

	if (t_provided < MPI_THREAD_MULTIPLE) {
		t_skip("no MPI_THREAD_MULTIPLE");
		return;
	}
	for (int i = 0; i < 3; i++)
		if (pthread_create(&c[i].thread, NULL, call_in_thread, &c[i]))
			abort();
	for (int i = 0; i < 3; i++) {
		pthread_join(c[i].thread, NULL);
		T_EQ(c[i].wrong, 0);
	}
}

/* A thread that has run no region has no team, whatever others have. */
static void thread_without(void)
{
	struct caller c = { .own = false };
	long long t0;

	if (t_provided < MPI_THREAD_MULTIPLE) {
		t_skip("no MPI_THREAD_MULTIPLE");
		return;
	}
	if (t_rank)
		return;
	region(TEAM);
	t0 = others_time();
	if (pthread_create(&c.thread, NULL, call_in_thread, &c))
		abort();
	pthread_join(c.thread, NULL);
	T_EQ(c.wrong, 0);
	if (teams != UNKNOWN)
		T_EQ(others_time() - t0, 0);
}

/* ---- two runtimes ------------------------------------------------------------------------------ */

static void other_runtime(void)
{
	plugin_fn *plugin = NULL;
	char file[4096];
	ssize_t n = readlink("/proc/self/exe", file, sizeof(file) - 1);
	void *lib;

	file[n < 0 ? 0 : n] = '\0';
	for (int up = 0; up < 2 && strrchr(file, '/'); up++)
		*strrchr(file, '/') = '\0';
	strncat(file, "/team_plugin.so", sizeof(file) - strlen(file) - 1);
	lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!T_OK(lib, "%s", dlerror()))
		return;
	*(void **)&plugin = dlsym(lib, "plugin_region");
	if (!T_OK(plugin, "%s", dlerror()))
		return;
	/* in a region of either none is used, also where the last one was the other's; outside the last one's */
	region(TEAM);
	plugin(TEAM, pack_and_unpack);
	T_USED(false, plugin(TEAM, pack_and_unpack));
	pack_and_unpack();
	region(TEAM);
	T_USED(true, pack_and_unpack());
	#pragma omp parallel num_threads(TEAM)
	#pragma omp single
	{
		plugin(2, pack_and_unpack);
		pack_and_unpack();
	}
	region(TEAM);
	T_USED(true, pack_and_unpack());
	/* the runtime is not ours to unload, and what we know of it stays good */
	dlclose(lib);
	pack_and_unpack();
}

static bool is_hooked(void)
{
	Dl_info info;

	return dladdr(dlsym(RTLD_DEFAULT, "MPI_Pack"), &info) && strstr(info.dli_fname, "libprogmpi");
}

/* Threads with small stacks; libomp's regions where somebody else watches them. */
static bool must_stand_aside(void)
{
#ifdef __clang__
	if (getenv("OMP_TOOL_LIBRARIES"))
		return true;
#endif
	return getenv("OMP_STACKSIZE");
}

int main(int argc, char **argv)
{
	const char *mode;

	t_init(&argc, &argv, MPI_THREAD_MULTIPLE);
	mode = getenv("PROG_THREADS");
	if (!is_hooked() || (mode && !strcmp(mode, "off")) || must_stand_aside())
		teams = NEVER;
	else if (mode && !strcmp(mode, "always"))
		teams = WHERE_THEY_MAY;
	make_buffers();
	T_RUN(no_region_yet, 1);
	T_RUN(outside, 1);
	T_RUN(inside, 1);
	T_RUN(single_is_alone, 1);
	T_RUN(keeps_threads, 1);
	T_RUN(random_types, 2);
	T_RUN(odd_elements, 2);
	T_RUN(errors, 1);
	T_RUN(windows, 2);
	T_RUN(messages, 2);
	T_RUN(thread_without, 1);
	/* else the program's own runtime is the plugin's */
	if (!dlsym(RTLD_DEFAULT, "__kmpc_fork_call"))
		T_RUN(other_runtime, 1);
	T_RUN(several_threads, 1);
	M(MPI_Type_free(&every_other));
	free(src);
	free(dst);
	free(back);
	return t_fini();
}

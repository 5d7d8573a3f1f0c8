/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The program's own OpenMP team, which is idle while its first thread is in an MPI call outside of parallel regions.
 *
 * The runtime is the one that the program brings: nothing is linked.  Only a thread that has been seen to run a region has a
 * team here, of exactly the size that it had last, as a smaller one would end threads of libgomp's pool with their
 * threadprivate variables, and a larger one would start some.  Seen are regions
 *  - that are begun by libgomp's entry points, which libomp has as well, as we stand in front of them;
 *  - of libomp by OMPT (OpenMP 5.0, chapter 4), whose tool we are unless somebody else is.
 * A region of one thread says that the program wants one.
 *
 * The team is used by the runtime's GOMP_parallel(), as the program's own code would, with the last region's
 * binding.  Not where the runtime says that we are in a region, may choose the number of threads, or has a lower limit.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "team.h"

#define RUNTIMES	8		/* a process with more of them ends */
#define CALLERS		64		/* a power of two */
#define STACK_LEAST	(512ul << 10)	/* of the team's threads */

typedef void task_fn(void *);

/* Entry points that begin regions: what they return, arguments after function and data, and their names. */
#define LOOP_ARGS	unsigned int n, long start, long end, long incr, long chunk, unsigned int flags
#define LOOP_NAMES	n, start, end, incr, chunk, flags
#define OWN_LOOP_ARGS	unsigned int n, long start, long end, long incr, unsigned int flags
#define OWN_LOOP_NAMES	n, start, end, incr, flags
#define WHOLE_REGIONS(X)									\
	X(parallel, (unsigned int n, unsigned int flags), (n, flags))				\
	X(parallel_loop_static, (LOOP_ARGS), (LOOP_NAMES))					\
	X(parallel_loop_dynamic, (LOOP_ARGS), (LOOP_NAMES))					\
	X(parallel_loop_guided, (LOOP_ARGS), (LOOP_NAMES))					\
	X(parallel_loop_nonmonotonic_dynamic, (LOOP_ARGS), (LOOP_NAMES))			\
	X(parallel_loop_nonmonotonic_guided, (LOOP_ARGS), (LOOP_NAMES))				\
	X(parallel_loop_runtime, (OWN_LOOP_ARGS), (OWN_LOOP_NAMES))				\
	X(parallel_loop_nonmonotonic_runtime, (OWN_LOOP_ARGS), (OWN_LOOP_NAMES))		\
	X(parallel_loop_maybe_nonmonotonic_runtime, (OWN_LOOP_ARGS), (OWN_LOOP_NAMES))		\
	X(parallel_sections, (unsigned int n, unsigned int count, unsigned int flags), (n, count, flags))
/* These come back within the region, of which the program then calls the function itself (programs of before 2013). */
#define BEGUN_REGIONS(X)									\
	X(parallel_start, (unsigned int n), (n))						\
	X(parallel_loop_static_start, (unsigned int n, long start, long end, long incr, long chunk),	\
	  (n, start, end, incr, chunk))								\
	X(parallel_loop_dynamic_start, (unsigned int n, long start, long end, long incr, long chunk),	\
	  (n, start, end, incr, chunk))								\
	X(parallel_loop_guided_start, (unsigned int n, long start, long end, long incr, long chunk),	\
	  (n, start, end, incr, chunk))								\
	X(parallel_loop_runtime_start, (unsigned int n, long start, long end, long incr), (n, start, end, incr)) \
	X(parallel_sections_start, (unsigned int n, unsigned int count), (n, count))

#define UNPACK(...)	__VA_ARGS__

struct runtime {
	struct link_map *map;		/* where it is; held */
	unsigned int number;
	bool usable;			/* it has all that a team needs */
	int (*get_level)(void);
	int (*get_num_threads)(void);
	int (*get_thread_num)(void);
	int (*get_dynamic)(void);
	int (*get_thread_limit)(void);
	unsigned int (*parallel_reductions)(task_fn *fn, void *data, unsigned int n, unsigned int flags);
#define POINTER(name, args, names)	void (*name)(task_fn *fn, void *data, UNPACK args);
	WHOLE_REGIONS(POINTER)
	BEGUN_REGIONS(POINTER)
#undef POINTER
};

int team_seen;
bool team_always;
static struct runtime runtimes[RUNTIMES];
static unsigned int n_runtimes;			/* atomic; those below are complete */
static struct runtime *in_global_scope;		/* atomic */
static struct {
	const void *caller;			/* atomic */
	struct runtime *rt;			/* atomic */
} callers[CALLERS];				/* of objects with a scope of their own */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;	/* who adds to these */

/* What is known of this thread. */
static _Thread_local struct {
	const struct runtime *rt;	/* of its last outermost region */
	unsigned int size, flags;	/* of that region: threads, how they are bound */
	unsigned int used;		/* a bit for each runtime that has run a region's code here */
	unsigned int depth;		/* libomp: implicit tasks that have begun here and not ended */
} team;

/* ---- switching off ------------------------------------------------------------------------------- */

/* A thread's stack as the environment gives it, or @otherwise. */
static unsigned long stack_of(const char *name, unsigned long otherwise)
{
	const char *v = getenv(name);
	unsigned long n;
	char *end;

	if (!v)
		return otherwise;
	n = strtoul(v, &end, 10);
	end += strspn(end, " \t");
	switch (*end) {
	case 'b': case 'B':
		return n;
	case 'm': case 'M':
		return n << 20;
	case 'g': case 'G':
		return n << 30;
	default:
		return n << 10;
	}
}

static bool is_off(void)
{
	static int off = -1;	/* atomic; not known yet */
	int is = __atomic_load_n(&off, __ATOMIC_RELAXED);

	if (is < 0) {
		const char *v = getenv("PROG_THREADS");

		is = (v && (!strcasecmp(v, "off") || !strcasecmp(v, "no") || !strcmp(v, "0"))) ||
			stack_of("OMP_STACKSIZE", STACK_LEAST) < STACK_LEAST ||
			stack_of("GOMP_STACKSIZE", STACK_LEAST) < STACK_LEAST ||
			stack_of("KMP_STACKSIZE", STACK_LEAST) < STACK_LEAST;
		__atomic_store_n(&off, is, __ATOMIC_RELAXED);
	}
	return is;
}

/* ---- runtimes ------------------------------------------------------------------------------------ */

/* The object with @addr in it, held from now on, and for good; NULL: the program itself. */
static void *hold(const void *addr, struct link_map **map)
{
	Dl_info info;

	if (!dladdr1(addr, &info, (void **)map, RTLD_DL_LINKMAP) || !*(*map)->l_name)
		return NULL;
	return dlopen((*map)->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static void bind_all(struct runtime *rt, void *object)
{
	*(void **)&rt->get_level = dlsym(object, "omp_get_level");
	*(void **)&rt->get_num_threads = dlsym(object, "omp_get_num_threads");
	*(void **)&rt->get_thread_num = dlsym(object, "omp_get_thread_num");
	*(void **)&rt->get_dynamic = dlsym(object, "omp_get_dynamic");
	*(void **)&rt->get_thread_limit = dlsym(object, "omp_get_thread_limit");
	*(void **)&rt->parallel_reductions = dlsym(object, "GOMP_parallel_reductions");
#define BIND(name, args, names)	*(void **)&rt->name = dlsym(object, "GOMP_" #name);
	WHOLE_REGIONS(BIND)
	BEGUN_REGIONS(BIND)
#undef BIND
	rt->usable = rt->get_level && rt->get_num_threads && rt->get_thread_num && rt->get_dynamic && rt->get_thread_limit &&
		rt->parallel;
}

/*
 * The runtime that @addr lies in; NULL: there are too many, or it is in the program itself, where looking for its functions
 * would find ours.  The dynamic linker is not asked under lock: it may be at work elsewhere, and come here for a constructor.
 */
static struct runtime *runtime_at(const void *addr)
{
	struct runtime new = { 0 }, *rt = NULL;
	void *object = hold(addr, &new.map);

	if (!object)
		return NULL;
	bind_all(&new, object);
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < n_runtimes && !rt; i++)
		if (runtimes[i].map == new.map)
			rt = &runtimes[i];
	if (!rt && n_runtimes < RUNTIMES) {
		new.number = n_runtimes;
		rt = &runtimes[n_runtimes];
		*rt = new;
		__atomic_store_n(&n_runtimes, n_runtimes + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return rt;
}

/* What @name means in the object with @caller in it, where that has a scope of its own. */
static void *find_for(const void *caller, const char *name)
{
	struct link_map *map;
	Dl_info info;
	void *object, *at = NULL;

	if (!dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) || !*map->l_name)
		return NULL;
	object = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
	if (object) {
		at = dlsym(object, name);
		dlclose(object);
	}
	return at;
}

static void remember(unsigned int i, const void *caller, struct runtime *rt)
{
	pthread_mutex_lock(&lock);
	__atomic_store_n(&callers[i].caller, NULL, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&callers[i].rt, rt, __ATOMIC_RELAXED);
	__atomic_store_n(&callers[i].caller, rt ? caller : NULL, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
}

/* Behind us in the global scope, which comes first for everybody, or else in the caller's own. */
static __attribute__((noinline)) struct runtime *find_runtime(const void *caller, const char *name)
{
	unsigned int i = (unsigned int)(((uintptr_t)caller * 0x9e3779b97f4a7c15ull) >> 58) % CALLERS;
	struct runtime *rt;
	void *at;

	if (__atomic_load_n(&callers[i].caller, __ATOMIC_ACQUIRE) == caller) {
		rt = __atomic_load_n(&callers[i].rt, __ATOMIC_RELAXED);
		/* the same place as before, so that nobody has put another there */
		if (__atomic_load_n(&callers[i].caller, __ATOMIC_ACQUIRE) == caller)
			return rt;
	}
	at = dlsym(RTLD_NEXT, name);
	rt = at ? runtime_at(at) : NULL;
	if (rt) {
		__atomic_store_n(&in_global_scope, rt, __ATOMIC_RELEASE);
	} else if (!at) {
		at = find_for(caller, name);
		rt = at ? runtime_at(at) : NULL;
		remember(i, caller, rt);
	}
	if (!rt) {
		log_set_prefix("progmpi");
		prog_log(PROG_LOG_ERROR, "%s was called, and no OpenMP runtime is found that has it", name);
		abort();
	}
	return rt;
}

static inline struct runtime *runtime_for(const void *caller, const char *name)
{
	struct runtime *rt = __atomic_load_n(&in_global_scope, __ATOMIC_ACQUIRE);

	return likely(rt) ? rt : find_runtime(caller, name);
}

static _Noreturn void lacks(const char *name)
{
	log_set_prefix("progmpi");
	prog_log(PROG_LOG_ERROR, "%s was called, and the OpenMP runtime does not have it", name);
	abort();
}

/* ---- the team ------------------------------------------------------------------------------------ */

/* The child has this thread only. */
static void forked(void)
{
	team.size = 0;
}

static unsigned int team_count(void)
{
	unsigned int n = __atomic_load_n(&n_runtimes, __ATOMIC_ACQUIRE);

	if (team.size < 2 || team.depth || !hooks.on)
		return 1;
	for (unsigned int i = 0; i < n; i++)
		if (team.used >> i & 1 && runtimes[i].get_level())
			return 1;
	if (team.rt->get_dynamic() || (unsigned int)team.rt->get_thread_limit() < team.size)
		return 1;
	return team.size;
}

struct region {
	const struct runtime *rt;
	task_fn *fn;
	void *data;
	unsigned int flags;
};

static void team_note(const struct runtime *rt, unsigned int size, unsigned int flags);

/* In each thread of an outermost region. */
static void in_region(void *arg)
{
	const struct region *r = arg;
	task_fn *fn = r->fn;
	void *data = r->data;

	team.used |= 1u << r->rt->number;
	if (!r->rt->get_thread_num())
		team_note(r->rt, (unsigned int)r->rt->get_num_threads(), r->flags);
	fn(data);
}

static void team_run(task_fn *fn, void *arg)
{
	struct region r = { .rt = team.rt, .fn = fn, .data = arg, .flags = team.flags };

	r.rt->parallel(in_region, &r, team.size, r.flags);
}

static void first_team(void)
{
	static struct prog_threads threads = { .count = team_count, .run = team_run };
	const char *v = getenv("PROG_THREADS");

	team_always = threads.always = v && !strcasecmp(v, "always");
	pthread_atfork(NULL, NULL, forked);
	prog_threads_set(&threads);
	__atomic_store_n(&team_seen, 1, __ATOMIC_RELEASE);
}

/* The calling thread is the first one of a region of @size threads that is in no other. */
static void team_note(const struct runtime *rt, unsigned int size, unsigned int flags)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	team.rt = rt;
	team.size = size;
	team.flags = flags;
	if (size > 1 && unlikely(!team_possible()))
		pthread_once(&once, first_team);
}

/* ---- libgomp's entry points ---------------------------------------------------------------------- */

/* Nothing is seen of a region that is in another one. */
static inline bool is_outermost(const struct runtime *rt)
{
	return !is_off() && rt->usable && !rt->get_level();
}

/* The last argument of those that take one says how threads are bound. */
#define WHOLE(name, args, names)								\
void GOMP_##name(task_fn *fn, void *data, UNPACK args);						\
HOOK_EXPORT void GOMP_##name(task_fn *fn, void *data, UNPACK args)				\
{												\
	const struct runtime *rt = runtime_for(__builtin_return_address(0), "GOMP_" #name);	\
	struct region r = { .rt = rt, .fn = fn, .data = data, .flags = flags & 7 };		\
												\
	if (unlikely(!rt->name))								\
		lacks("GOMP_" #name);								\
	if (is_outermost(rt))									\
		rt->name(in_region, &r, UNPACK names);						\
	else											\
		rt->name(fn, data, UNPACK names);						\
}
WHOLE_REGIONS(WHOLE)

#define BEGUN(name, args, names)								\
void GOMP_##name(task_fn *fn, void *data, UNPACK args);						\
HOOK_EXPORT void GOMP_##name(task_fn *fn, void *data, UNPACK args)				\
{												\
	const struct runtime *rt = runtime_for(__builtin_return_address(0), "GOMP_" #name);	\
	bool outermost = is_outermost(rt);							\
												\
	if (unlikely(!rt->name))								\
		lacks("GOMP_" #name);								\
	rt->name(fn, data, UNPACK names);							\
	if (outermost) {									\
		team.used |= 1u << rt->number;							\
		team_note(rt, (unsigned int)rt->get_num_threads(), 0);				\
	}											\
}
BEGUN_REGIONS(BEGUN)

/* Its data are the runtime's as well as the program's; it says itself how many threads there were. */
unsigned int GOMP_parallel_reductions(task_fn *fn, void *data, unsigned int n, unsigned int flags);
HOOK_EXPORT unsigned int GOMP_parallel_reductions(task_fn *fn, void *data, unsigned int n, unsigned int flags)
{
	const struct runtime *rt = runtime_for(__builtin_return_address(0), "GOMP_parallel_reductions");
	bool outermost = is_outermost(rt);
	unsigned int size;

	if (unlikely(!rt->parallel_reductions))
		lacks("GOMP_parallel_reductions");
	size = rt->parallel_reductions(fn, data, n, flags);
	if (outermost) {
		team.used |= 1u << rt->number;
		team_note(rt, size, flags & 7);
	}
	return size;
}

/* ---- libomp by OMPT ------------------------------------------------------------------------------ */

/* Of omp-tools.h, which belongs to a compiler: layout and numbers are the standard's. */
union ompt_data {
	uint64_t value;
	void *ptr;
};

struct ompt_start {
	int (*initialize)(void *(*lookup)(const char *name), int device, union ompt_data *tool);
	void (*finalize)(union ompt_data *tool);
	union ompt_data tool;
};

#define OMPT_IMPLICIT_TASK	7
#define OMPT_SCOPE_BEGIN	1
#define OMPT_TASK_INITIAL	1

static struct runtime *by_ompt;		/* set once, before its calls come: one runtime has us as its tool */

static void on_implicit_task(int scope, union ompt_data *parallel, union ompt_data *task, unsigned int size,
			     unsigned int index, int flags)
{
	if (flags & OMPT_TASK_INITIAL)
		return;
	if (scope != OMPT_SCOPE_BEGIN) {
		if (team.depth)
			team.depth--;
		return;
	}
	team.used |= 1u << by_ompt->number;
	if (!team.depth++ && !index)
		team_note(by_ompt, size, 0);
}

static int on_initialize(void *(*lookup)(const char *name), int device, union ompt_data *tool)
{
	int (*set)(int event, void (*fn)(void));

	*(void **)&set = lookup("ompt_set_callback");
	return set && set(OMPT_IMPLICIT_TASK, (void (*)(void))on_implicit_task) > 0;
}

static void on_finalize(union ompt_data *tool)
{
}

/*
 * Called by the runtime when it starts.  Behind us may be a tool, the runtime's own function of this name, which looks for
 * one behind itself, or nobody.
 */
struct ompt_start *ompt_start_tool(unsigned int version, const char *runtime);
HOOK_EXPORT struct ompt_start *ompt_start_tool(unsigned int version, const char *runtime)
{
	static struct ompt_start ours = { .initialize = on_initialize, .finalize = on_finalize };
	const char *libraries = getenv("OMP_TOOL_LIBRARIES");
	struct ompt_start *(*next)(unsigned int, const char *), *theirs;
	struct runtime *rt, *none = NULL;

	*(void **)&next = dlsym(RTLD_NEXT, "ompt_start_tool");
	theirs = next ? next(version, runtime) : NULL;
	if (theirs || (libraries && *libraries) || is_off())
		return theirs;
	rt = runtime_at(__builtin_return_address(0));
	if (!rt || !rt->usable || !__atomic_compare_exchange_n(&by_ompt, &none, rt, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return NULL;
	return &ours;
}

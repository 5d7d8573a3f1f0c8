// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "mpitest.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <time.h>

#include "done.h"
#include "fault.h"

#define MSG_MAX 4096
#define KEPT 8
#define GUARD 256
#define GUARD_BYTE 0xa5

MPI_Comm t_world, t_self;
int t_rank, t_size, t_provided;
bool t_expect_progress, t_sessions;
uint64_t t_seed;

static struct env {
	uint64_t seed;
	double scale;
	int timeout;
	int expect_progress;
	char skip[2048];
	char only[512];
} env;

static MPI_Comm t_comm;
static int points, failed_points;
static char point[128];
static time_t point_at;		/* when it began */
/* the last M() call; written without a lock, read by signal handlers: a torn pair only
 * makes the message less exact */
static const char *volatile at_file = "-", *volatile at_call = "-";
static volatile int at_line;

/* Random programs use them without t_init(). */
static __attribute__((constructor)) void real_ones(void)
{
	t_world = t_real_world();
	t_self = t_real_self();
}

/* verdict of the running point on this rank; the lock is for tests with threads */
static struct verdict {
	int failures;
	int skipped;
	int len;
	char msg[MSG_MAX];
} cur;
static pthread_mutex_t cur_lock = PTHREAD_MUTEX_INITIALIZER;

static void say_where(const char *what)
{
	char b[512];
	int n = snprintf(b, sizeof(b), "# rank %d: %s in test point %s, after %d s of it, last call %s:%d %s\n",
			 t_rank, what, point[0] ? point : "(none)", point_at ? (int)(time(NULL) - point_at) : 0, at_file, at_line,
			 at_call);

	if (n > (int)sizeof(b))
		n = sizeof(b);
	if (write(2, b, n) < 0)
		return;
	if (write(2, cur.msg, cur.len) < 0)
		return;
}

static void on_alarm(int sig)
{
	(void)sig;
	say_where("hung");
	_exit(124);
}

static void on_fault(void)
{
	say_where("fault");
}

static void copy_env(char *to, size_t size, const char *name)
{
	const char *s = getenv(name);

	snprintf(to, size, "%s", s ? s : "");
}

#if T_HAS_SESSIONS
static MPI_Session session = MPI_SESSION_NULL;

static MPI_Comm from_session(const char *set)
{
	MPI_Group group;
	MPI_Comm comm;

	MPI_Group_from_session_pset(session, set, &group);
	MPI_Comm_create_from_group(group, set, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
	MPI_Group_free(&group);
	return comm;
}

static void begin_session(int required)
{
	int (*init)(MPI_Info info, MPI_Errhandler errhandler, MPI_Session *session);
	MPI_Info info;

	at_call = "MPI_Session_init";
	/* the hooks lock in programs with its name, which those that have no sessions are not to be */
	init = (int (*)(MPI_Info, MPI_Errhandler, MPI_Session *))dlsym(RTLD_DEFAULT, at_call);
	MPI_Info_create(&info);
	MPI_Info_set(info, "thread_level", required == MPI_THREAD_MULTIPLE ? "MPI_THREAD_MULTIPLE" : "MPI_THREAD_SINGLE");
	init(info, MPI_ERRORS_ARE_FATAL, &session);
	MPI_Info_free(&info);
	t_provided = required;
	t_world = from_session("mpi://WORLD");
	t_self = from_session("mpi://SELF");
}

static void end_session(void)
{
	MPI_Comm_free(&t_self);
	MPI_Comm_free(&t_world);
	t_at(__FILE__, __LINE__, "MPI_Session_finalize");
	MPI_Session_finalize(&session);
}
#else
static void begin_session(int required)
{
	(void)required;
	printf("Bail out! the library has no sessions\n");
	exit(1);
}

static void end_session(void)
{
}
#endif

static bool is_set(const char *name)
{
	const char *s = getenv(name);

	return s && atoi(s);
}

void t_init(int *argc, char ***argv, int required)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	const char *s;

	fault_install(on_fault);
	sigaction(SIGALRM, &sa, NULL);
	alarm(60);
	setvbuf(stdout, NULL, _IOLBF, 0);
	at_file = __FILE__;
	at_call = "MPI_Init_thread";
	if (is_set("TEST_MULTIPLE"))
		required = MPI_THREAD_MULTIPLE;
	t_sessions = is_set("TEST_SESSIONS");
	if (t_sessions) {
		begin_session(required);
	} else if (required == MPI_THREAD_SINGLE) {
		MPI_Init(argc, argv);
		MPI_Query_thread(&t_provided);
	} else {
		MPI_Init_thread(argc, argv, required, &t_provided);
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &t_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &t_size);
	MPI_Comm_dup(MPI_COMM_WORLD, &t_comm);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

	s = getenv("TEST_SEED");
	env.seed = s && *s ? strtoull(s, NULL, 0) : (uint64_t)time(NULL) * 1000 + getpid() % 1000;
	s = getenv("TEST_SCALE");
	env.scale = s && *s ? atof(s) : 1;
	s = getenv("TEST_TIMEOUT");
	env.timeout = s && *s ? atoi(s) : 60;
	env.expect_progress = is_set("TEST_EXPECT_PROGRESS");
	copy_env(env.skip, sizeof(env.skip), "TEST_SKIP");
	copy_env(env.only, sizeof(env.only), "TEST_ONLY");
	MPI_Bcast(&env, sizeof(env), MPI_BYTE, 0, t_comm);
	t_seed = env.seed;
	t_expect_progress = env.expect_progress;
	alarm(env.timeout);

	fault_install(on_fault);
	if (t_rank == 0)
		printf("# seed %llu ranks %d\n", (unsigned long long)t_seed, t_size);
}

int t_fini(void)
{
	snprintf(point, sizeof(point), "MPI_Finalize");
	point_at = time(NULL);
	alarm(env.timeout);
	t_barrier();
	if (t_rank == 0) {
		printf("1..%d\n", points);
		fflush(stdout);
	}
	MPI_Bcast(&failed_points, 1, MPI_INT, 0, t_comm);
	MPI_Comm_free(&t_comm);
	if (t_sessions) {
		end_session();
	} else {
		done_arm();
		t_at(__FILE__, __LINE__, "MPI_Finalize");
		MPI_Finalize();
	}
	return failed_points ? 1 : 0;
}

/* is @name in the comma-separated @list; an entry may end or begin with *, for any rest */
static bool listed(const char *list, const char *name)
{
	size_t len = strlen(name);

	while (*list) {
		size_t n = strcspn(list, ",");

		if (n && list[n - 1] == '*' ? !strncmp(list, name, n - 1) :
		    n && list[0] == '*' ? len >= n - 1 &&
					  !strncmp(list + 1, name + len - (n - 1), n - 1) :
		    n == len && !strncmp(list, name, n))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

bool t_begin(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(point, sizeof(point), fmt, ap);
	va_end(ap);
	point_at = time(NULL);
	alarm(env.timeout);
	cur.failures = 0;
	cur.skipped = 0;
	cur.len = 0;
	at_file = "-";
	at_call = "(none yet)";
	at_line = 0;
	if (*env.only && !listed(env.only, point))
		return false;
	if (listed(env.skip, point)) {
		t_skip("TEST_SKIP");
		t_end();
		return false;
	}
	return true;
}

void t_end(void)
{
	struct verdict *all = NULL;
	int failures = 0, skipped = 0;

	t_at(__FILE__, __LINE__, "gathering the verdicts");
	if (t_rank == 0) {
		all = calloc(t_size, sizeof(*all));
		if (!all)
			abort();
	}
	MPI_Gather(&cur, sizeof(cur), MPI_BYTE, all, sizeof(cur), MPI_BYTE, 0, t_comm);
	if (t_rank == 0) {
		for (int r = 0; r < t_size; r++) {
			failures += all[r].failures;
			skipped += all[r].skipped;
		}
		points++;
		if (failures)
			failed_points++;
		printf("%sok %d - %s%s", failures ? "not " : "", points, point,
		       skipped && !failures ? " # SKIP " : "\n");
		for (int r = 0; r < t_size; r++) {
			if (skipped && !failures) {
				printf("%s", all[0].msg);
				break;
			}
			printf("%.*s", all[r].len, all[r].msg);
			if (all[r].failures > KEPT)
				printf("# rank %d: %d more\n", r, all[r].failures - KEPT);
		}
		fflush(stdout);
		free(all);
	}
	MPI_Barrier(t_comm);
	point[0] = 0;
}

void t_run(const char *name, void (*fn)(void), int ranks)
{
	if (!t_begin("%s", name))
		return;
	if (t_size < ranks)
		t_skip("needs %d ranks, has %d", ranks, t_size);
	else
		fn();
	t_end();
}

static void add_msg(const char *head, const char *fmt, va_list ap)
{
	int room = (int)sizeof(cur.msg) - cur.len;
	int n = snprintf(cur.msg + cur.len, room, "%s", head);

	if (n < room)
		n += vsnprintf(cur.msg + cur.len + n, room - n, fmt, ap);
	if (n > room - 2)
		n = room - 2;
	if (n < 0)
		return;
	cur.len += n;
	cur.msg[cur.len++] = '\n';
	cur.msg[cur.len] = 0;
	if (cur.len > (int)sizeof(cur.msg) - 2)
		cur.len = sizeof(cur.msg) - 2;
}

void t_skip(const char *fmt, ...)
{
	va_list ap;

	cur.len = 0;
	va_start(ap, fmt);
	add_msg("", fmt, ap);
	va_end(ap);
	cur.skipped = 1;
}

void t_note(const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&cur_lock);
	va_start(ap, fmt);
	add_msg("# ", fmt, ap);
	va_end(ap);
	pthread_mutex_unlock(&cur_lock);
}

int t_failures(void)
{
	int n;

	pthread_mutex_lock(&cur_lock);
	n = cur.failures;
	pthread_mutex_unlock(&cur_lock);
	return n;
}

void t_fail(const char *file, int line, const char *fmt, ...)
{
	char head[128];
	va_list ap;

	pthread_mutex_lock(&cur_lock);
	if (cur.failures++ < KEPT) {
		snprintf(head, sizeof(head), "# rank %d %s:%d: ", t_rank, file, line);
		va_start(ap, fmt);
		add_msg(head, fmt, ap);
		va_end(ap);
	}
	pthread_mutex_unlock(&cur_lock);
}

void t_at(const char *file, int line, const char *call)
{
	at_file = file;
	at_line = line;
	at_call = call;
}

bool t_bytes(const char *file, int line, const char *what, const void *got, const void *want,
	     size_t len)
{
	const unsigned char *g = got, *w = want;
	size_t first = 0, bad = 0;

	if (!memcmp(g, w, len))
		return true;
	for (size_t i = 0; i < len; i++) {
		if (g[i] == w[i])
			continue;
		if (!bad++)
			first = i;
	}
	if (!bad)
		t_fail(file, line, "%s: differed, now equal: memory still changes", what);
	else
		t_fail(file, line,
		       "%s: %zu of %zu bytes differ, first at %zu: 0x%02x, expected 0x%02x", what,
		       bad, len, first, g[first], w[first]);
	return false;
}

bool t_mpi(const char *file, int line, const char *call, int err)
{
	char s[MPI_MAX_ERROR_STRING] = "?";
	int n, class = -1;

	if (err == MPI_SUCCESS)
		return true;
	MPI_Error_class(err, &class);
	MPI_Error_string(err, s, &n);
	s[strcspn(s, "\n")] = 0;
	t_fail(file, line, "%s gave class %d (%s), expected success", call, class, s);
	return false;
}

bool t_class(const char *file, int line, const char *call, int err, const int *classes, int n)
{
	int class = MPI_SUCCESS;
	char want[128];
	int len = 0;

	if (err != MPI_SUCCESS)
		MPI_Error_class(err, &class);
	for (int i = 0; i < n; i++) {
		if (class == classes[i])
			return true;
		len += snprintf(want + len, sizeof(want) - len, "%s%d", i ? " or " : "",
				classes[i]);
	}
	t_fail(file, line, "%s gave error class %d, expected %s", call, class, want);
	return false;
}

void t_barrier(void)
{
	MPI_Barrier(t_comm);
}

int t_iters(int n)
{
	double v = n * env.scale;

	return v < 1 ? 1 : (int)v;
}

void *t_library(const char *name)
{
	static void *library;
	Dl_info info;
	void *fn;

	/* the library is where a function is that nobody wraps */
	if (!library && dladdr(dlsym(RTLD_DEFAULT, "MPI_Get_version"), &info))
		library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	fn = library ? dlsym(library, name) : NULL;
	if (!fn) {
		fprintf(stderr, "# the MPI library has no %s\n", name);
		abort();
	}
	return fn;
}

uint64_t t_rnd(struct t_rng *r)
{
	uint64_t z = (r->s += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* streams depend on the point's name, so that TEST_ONLY reproduces a failure */
static uint64_t point_seed(void)
{
	uint64_t h = t_seed ^ 1469598103934665603ull;

	for (const char *p = point; *p; p++)
		h = (h ^ (unsigned char)*p) * 1099511628211ull;
	return h;
}

struct t_rng t_rng_common(void)
{
	return (struct t_rng){ point_seed() };
}

struct t_rng t_rng_own(void)
{
	struct t_rng r = { point_seed() + 0x1234567 * (t_rank + 1) };

	t_rnd(&r);
	return r;
}

void t_fill(void *buf, size_t len, uint64_t seed)
{
	struct t_rng r = { seed };
	unsigned char *p = buf;

	for (; len >= 8; len -= 8, p += 8) {
		uint64_t v = t_rnd(&r);

		memcpy(p, &v, 8);
	}
	if (len) {
		uint64_t v = t_rnd(&r);

		memcpy(p, &v, len);
	}
}

const char *const tw_names[TW_FLAVORS] = { "allocate", "create", "dynamic", "alloc_mem" };
const char *const te_names[TE_MODES] = { "fence", "pscw", "lock", "lockx", "lock_all" };

void tw_make(struct twin *w, enum tw_flavor flavor, MPI_Comm comm, size_t size, int disp_unit,
	     MPI_Info info)
{
	memset(w, 0, sizeof(*w));
	w->flavor = flavor;
	w->comm = comm;
	w->size = size;
	w->disp_unit = flavor == TW_DYNAMIC ? 1 : disp_unit;
	MPI_Comm_rank(comm, &w->rank);
	MPI_Comm_size(comm, &w->nranks);
	switch (flavor) {
	case TW_CREATE:
	case TW_DYNAMIC:
		w->raw = malloc(size + 2 * GUARD);
		break;
	case TW_ALLOC_MEM:
		M(MPI_Alloc_mem(size + 2 * GUARD, MPI_INFO_NULL, &w->raw));
		break;
	default:
		break;
	}
	if (flavor != TW_ALLOCATE) {
		if (!w->raw)
			abort();
		memset(w->raw, GUARD_BYTE, size + 2 * GUARD);
		w->mem = w->raw + GUARD;
	}
	switch (flavor) {
	case TW_ALLOCATE:
		M(MPI_Win_allocate(size, disp_unit, info, comm, &w->mem, &w->win));
		break;
	case TW_DYNAMIC:
		M(MPI_Win_create_dynamic(info, comm, &w->win));
		break;
	default:
		M(MPI_Win_create(w->mem, size, disp_unit, info, comm, &w->win));
		break;
	}
	M(MPI_Win_set_errhandler(w->win, MPI_ERRORS_RETURN));
	if (flavor == TW_DYNAMIC) {
		MPI_Aint a;

		if (size)
			M(MPI_Win_attach(w->win, w->mem, size));
		w->addr = calloc(w->nranks, sizeof(*w->addr));
		if (!w->addr)
			abort();
		M(MPI_Get_address(w->mem, &a));
		M(MPI_Allgather(&a, 1, MPI_AINT, w->addr, 1, MPI_AINT, comm));
	}
	if (size)
		memset(w->mem, 0, size);
	M(MPI_Barrier(comm));
}

void tw_free(struct twin *w)
{
	if (w->flavor == TW_DYNAMIC) {
		M(MPI_Barrier(w->comm));
		if (w->size)
			M(MPI_Win_detach(w->win, w->mem));
	}
	M(MPI_Win_free(&w->win));
	T_OK(w->win == MPI_WIN_NULL, "after MPI_Win_free");
	if (w->raw) {
		for (int i = 0; i < GUARD; i++) {
			unsigned char a = w->raw[i], b = w->raw[GUARD + w->size + i];

			if (a == GUARD_BYTE && b == GUARD_BYTE)
				continue;
			t_fail(__FILE__, __LINE__,
			       "guard zone of the %s window written: 0x%02x before, 0x%02x after, expected 0x%02x",
			       tw_names[w->flavor], a, b, GUARD_BYTE);
			break;
		}
		if (w->flavor == TW_ALLOC_MEM)
			M(MPI_Free_mem(w->raw));
		else
			free(w->raw);
	}
	free(w->addr);
	memset(w, 0, sizeof(*w));
	w->win = MPI_WIN_NULL;
}

void tw_points(struct twin *w, const struct t_point *points, int n, size_t size, int disp_unit, int ranks,
	       void (*first)(const char *flavor))
{
	for (int f = TW_ALLOCATE; f <= TW_CREATE; f++) {
		tw_make(w, f, MPI_COMM_WORLD, size, disp_unit, MPI_INFO_NULL);
		if (first)
			first(tw_names[f]);
		for (int i = 0; i < n; i++) {
			if (!t_begin("%s.%s", points[i].name, tw_names[f]))
				continue;
			if (t_size < ranks)
				t_skip("needs %d ranks, has %d", ranks, t_size);
			else
				points[i].fn();
			t_end();
		}
		tw_free(w);
	}
}

MPI_Aint tw_disp(const struct twin *w, int target, size_t off)
{
	if (w->flavor == TW_DYNAMIC)
		return MPI_Aint_add(w->addr[target], off);
	return off / w->disp_unit;
}

static MPI_Group one_of(struct twin *w, int rank)
{
	MPI_Group all, one;

	M(MPI_Comm_group(w->comm, &all));
	M(MPI_Group_incl(all, 1, &rank, &one));
	M(MPI_Group_free(&all));
	return one;
}

void te_open(struct twin *w, enum te_mode mode, int origin, int target)
{
	MPI_Group g;

	switch (mode) {
	case TE_FENCE:
		M(MPI_Win_fence(0, w->win));
		break;
	case TE_PSCW:
		if (w->rank == target) {
			g = one_of(w, origin);
			M(MPI_Win_post(g, 0, w->win));
			M(MPI_Group_free(&g));
		}
		if (w->rank == origin) {
			g = one_of(w, target);
			M(MPI_Win_start(g, 0, w->win));
			M(MPI_Group_free(&g));
		}
		break;
	default:
		/* the target's stores are published by a lock epoch of its own */
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, w->rank, 0, w->win));
		M(MPI_Win_unlock(w->rank, w->win));
		M(MPI_Barrier(w->comm));
		if (w->rank != origin)
			break;
		if (mode == TE_LOCK_ALL)
			M(MPI_Win_lock_all(0, w->win));
		else
			M(MPI_Win_lock(mode == TE_LOCK_SHARED ? MPI_LOCK_SHARED :
				       MPI_LOCK_EXCLUSIVE, target, 0, w->win));
		break;
	}
}

void te_close(struct twin *w, enum te_mode mode, int origin, int target)
{
	switch (mode) {
	case TE_FENCE:
		M(MPI_Win_fence(0, w->win));
		break;
	case TE_PSCW:
		if (w->rank == origin)
			M(MPI_Win_complete(w->win));
		if (w->rank == target)
			M(MPI_Win_wait(w->win));
		/* epochs that follow one another at once are the business of t_pscw.c alone */
		M(MPI_Barrier(w->comm));
		break;
	default:
		if (w->rank == origin) {
			if (mode == TE_LOCK_ALL) {
				M(MPI_Win_flush(target, w->win));
				M(MPI_Win_unlock_all(w->win));
			} else {
				M(MPI_Win_unlock(target, w->win));
			}
		}
		M(MPI_Barrier(w->comm));
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, w->rank, 0, w->win));
		M(MPI_Win_unlock(w->rank, w->win));
		break;
	}
}

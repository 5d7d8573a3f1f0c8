// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * MPI_THREAD_MULTIPLE: other threads receive at given moments of a probe. These are the moments at which the probing thread lets go
 * of a lock, of the MPI library or the hooks; each point is run for every one of the first of them. So this program has functions of
 * the C library's that lock. The probe goes on when the other thread has received, or needs a lock that somebody has. A receive can
 * also be made to wait where it is about to take a lock for the first time.
 */
#include "mpitest.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

#define MOMENTS	12
#define TAG	5
#define LAST	9		/* tag of the message behind all others */
#define LIKE	240		/* as long as what stands for a message */
#define LONG	5000
#define SHORT	16

static _Thread_local bool probing;
static _Thread_local sem_t *busy;	/* posted when this thread has to wait for a lock */
static int moment;
static void (*meanwhile)(int moment);

/* Of a thread that is about to receive: it says so and waits at its next lock. */
static _Thread_local struct gate {
	sem_t here, open;
} *gate;

static void gate_wait(void)
{
	struct gate *g = gate;

	if (!g)
		return;
	gate = NULL;
	sem_post(&g->here);
	sem_wait(&g->open);
}

#define LIBC(fn) ({									\
	static __typeof__(&(fn)) libc_;							\
	__typeof__(&(fn)) f_ = __atomic_load_n(&libc_, __ATOMIC_RELAXED);		\
											\
	if (!f_) {									\
		f_ = (__typeof__(&(fn)))dlsym(RTLD_NEXT, #fn);				\
		__atomic_store_n(&libc_, f_, __ATOMIC_RELAXED);				\
	}										\
	f_;										\
})

int pthread_mutex_lock(pthread_mutex_t *m)
{
	gate_wait();
	if (busy) {
		if (!LIBC(pthread_mutex_trylock)(m))
			return 0;
		sem_post(busy);
	}
	return LIBC(pthread_mutex_lock)(m);
}

int pthread_mutex_trylock(pthread_mutex_t *m)
{
	gate_wait();
	return LIBC(pthread_mutex_trylock)(m);
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
	int rc = LIBC(pthread_mutex_unlock)(m);

	if (probing) {
		probing = false;
		meanwhile(moment++);
		probing = true;
	}
	return rc;
}

static MPI_Comm comm;
static int to, from;

static bool begin(void)
{
	if (t_provided != MPI_THREAD_MULTIPLE) {
		t_skip("MPI_THREAD_MULTIPLE is not provided (level %d)", t_provided);
		return false;
	}
	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	M(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
	to = (t_rank + 1) % t_size;
	from = (t_rank + t_size - 1) % t_size;
	return true;
}

static unsigned char out[8][LONG];
static MPI_Request sends[8];
static int nsends;

static void post(int tag, int bytes)
{
	t_fill(out[nsends], (size_t)bytes, (uint64_t)(1000 * tag + bytes));
	M(MPI_Isend(out[nsends], bytes, MPI_BYTE, to, tag, comm, &sends[nsends]));
	nsends++;
}

/* All that was posted before has come. */
static void sent(void)
{
	M(MPI_Send(NULL, 0, MPI_BYTE, to, LAST, comm));
	M(MPI_Recv(NULL, 0, MPI_BYTE, from, LAST, comm, MPI_STATUS_IGNORE));
}

/* What is sent from now on comes later than what others have received. */
static void round_end(void)
{
	M(MPI_Waitall(nsends, sends, MPI_STATUSES_IGNORE));
	nsends = 0;
	t_barrier();
}

static int took(const unsigned char *in, const MPI_Status *st)
{
	unsigned char want[LONG];
	int bytes;

	M(MPI_Get_count(st, MPI_BYTE, &bytes));
	if (!T_OK(bytes >= 0 && bytes <= LONG, "%d", bytes))
		return 0;
	t_fill(want, (size_t)bytes, (uint64_t)(1000 * st->MPI_TAG + bytes));
	T_BYTES("message", in, want, (size_t)bytes);
	return bytes;
}

static int receive(int tag, int room)
{
	unsigned char in[LONG];
	MPI_Status st;

	M(MPI_Recv(in, room, MPI_BYTE, from, tag, comm, &st));
	return took(in, &st);
}

/* ---- of two messages, another thread receives one ------------------------------------------------ */

enum probe { PROBE, IPROBE, MPROBE, IMPROBE, PROBES };

static struct {
	sem_t go, done;
	int when, bytes;
} taker;

static void *take(void *arg)
{
	sem_wait(&taker.go);
	busy = &taker.done;
	taker.bytes = receive(TAG, LONG);
	busy = NULL;
	sem_post(&taker.done);
	return NULL;
}

static void take_now(int now)
{
	if (now != taker.when)
		return;
	sem_post(&taker.go);
	sem_wait(&taker.done);
}

static int probe_now(enum probe how, MPI_Message *msg, MPI_Status *st)
{
	int flag = 1, rc;

	moment = 0;
	probing = true;
	switch (how) {
	case PROBE:
		rc = MPI_Probe(from, TAG, comm, st);
		break;
	case IPROBE:
		rc = MPI_Iprobe(from, TAG, comm, &flag, st);
		break;
	case MPROBE:
		rc = MPI_Mprobe(from, TAG, comm, msg, st);
		break;
	default:
		rc = MPI_Improbe(from, TAG, comm, &flag, msg, st);
	}
	probing = false;
	M(rc);
	return flag;
}

static void taken(enum probe how)
{
	static const int pair[][2] = { { 4, 8 }, { LIKE, 8 }, { 4, LIKE }, { LONG, 8 }, { 4, LONG }, { LONG, LIKE } };
	unsigned char in[LONG];
	MPI_Message msg;
	MPI_Status st;
	pthread_t id;
	int bytes;

	if (!begin())
		return;
	for (int i = 0; i < ARRAY_SIZE(pair) * MOMENTS; i++) {
		int a = pair[i % ARRAY_SIZE(pair)][0], b = pair[i % ARRAY_SIZE(pair)][1];

		post(TAG, a);
		post(TAG, b);
		sent();
		taker.when = i / ARRAY_SIZE(pair);
		sem_init(&taker.go, 0, 0);
		sem_init(&taker.done, 0, 0);
		if (pthread_create(&id, NULL, take, NULL))
			abort();
		T_OK(probe_now(how, &msg, &st), "%d", i);
		/* one moment at least is before the end of the call */
		if (moment <= taker.when) {
			T_OK(taker.when, "no lock was let go of");
			take_now(taker.when);
		}
		pthread_join(id, NULL);
		T_EQ(st.MPI_SOURCE, from);
		T_EQ(st.MPI_TAG, TAG);
		M(MPI_Get_count(&st, MPI_BYTE, &bytes));
		T_OK(bytes == a || bytes == b, "%d bytes of %d and %d at %d", bytes, a, b, taker.when);
		if (how >= MPROBE) {
			M(MPI_Mrecv(in, sizeof(in), MPI_BYTE, &msg, &st));
			T_EQ(took(in, &st), bytes);
		} else {
			bytes = receive(TAG, LONG);
		}
		T_EQ(taker.bytes + bytes, a + b);
		round_end();
	}
	M(MPI_Comm_free(&comm));
}

static void taken_probe(void)
{
	taken(PROBE);
}

static void taken_iprobe(void)
{
	taken(IPROBE);
}

static void taken_mprobe(void)
{
	taken(MPROBE);
}

static void taken_improbe(void)
{
	taken(IMPROBE);
}

/* ---- threads that are about to receive what is before the message that is probed for ---------------- */

static struct late {
	pthread_t id;
	int tag, when;
	struct gate gate;
	sem_t posted, end;
	bool let;
	int bytes;
} late[2];

/* The first message is only for this thread to have all that it needs. */
static void *receive_late(void *arg)
{
	struct late *l = arg;
	unsigned char in[SHORT];
	MPI_Request q;
	MPI_Status st;

	receive(l->tag, SHORT);
	gate = &l->gate;
	busy = &l->posted;
	M(MPI_Irecv(in, sizeof(in), MPI_BYTE, from, l->tag, comm, &q));
	busy = NULL;
	sem_post(&l->posted);
	sem_wait(&l->end);
	M(MPI_Wait(&q, &st));
	l->bytes = took(in, &st);
	return NULL;
}

static void let(struct late *l)
{
	if (l->let)
		return;
	l->let = true;
	sem_post(&l->gate.open);
	sem_wait(&l->posted);
}

static void let_late(int now)
{
	for (int i = 0; i < ARRAY_SIZE(late); i++)
		if (now >= late[i].when)
			let(&late[i]);
}

static void late_receives(void)
{
	MPI_Status st;
	int flag, bytes;

	if (!begin())
		return;
	meanwhile = let_late;
	for (int i = 0; i < MOMENTS; i++) {
		for (int k = 0; k < 2; k++)
			post(1 + k, 4);
		for (int k = 0; k < 2; k++)
			post(1 + k, 8);
		post(TAG, LIKE);
		sent();
		for (int k = 0; k < 2; k++) {
			late[k] = (struct late){ .tag = 1 + k, .when = i + k };
			sem_init(&late[k].gate.here, 0, 0);
			sem_init(&late[k].gate.open, 0, 0);
			sem_init(&late[k].posted, 0, 0);
			sem_init(&late[k].end, 0, 0);
			if (pthread_create(&late[k].id, NULL, receive_late, &late[k]))
				abort();
			sem_wait(&late[k].gate.here);
		}
		T_OK(probe_now(IPROBE, NULL, &st), "%d", i);
		M(MPI_Get_count(&st, MPI_BYTE, &bytes));
		T_EQ(bytes, LIKE);
		for (int k = 0; k < 2; k++)
			let(&late[k]);
		t_barrier();
		/* what a receive got that was posted when its message had been taken from it */
		for (int k = 0; k < 2; k++)
			post(1 + k, 16);
		sent();
		for (int k = 0; k < 2; k++) {
			sem_post(&late[k].end);
			pthread_join(late[k].id, NULL);
			T_OK(late[k].bytes == 8, "%d bytes at %d, of tag %d", late[k].bytes, i, 1 + k);
			if (late[k].bytes)
				T_EQ(receive(1 + k, SHORT), late[k].bytes == 8 ? 16 : 8);
		}
		T_EQ(receive(TAG, LIKE), LIKE);
		M(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE));
		T_EQ(flag, 0);
		round_end();
	}
	M(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_MULTIPLE);
	meanwhile = take_now;
	T_RUN(taken_probe, 2);
	T_RUN(taken_iprobe, 2);
	T_RUN(taken_mprobe, 2);
	T_RUN(taken_improbe, 2);
	T_RUN(late_receives, 2);
	return t_fini();
}

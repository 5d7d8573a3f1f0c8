// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * calls: how many instructions an MPI call takes.
 *
 *	calls [--rounds N] [--bytes N] [--multiple]
 *
 * What is to be counted is executed instruction by instruction: the thread traps after each, and counts in the signal's
 * handler (x86-64).  So it needs no hardware counters and gives the same number every time, but for what the MPI library
 * does now and then; and no other process, for which it would have to wait at each instruction on a busy machine.  All
 * messages go from rank 0 to itself: nothing waits, and no other process has a part in it.  Calls are counted as the
 * process executes them, in the kernel nothing is; nor in what it has put into the process (vDSO): clock_gettime() begins
 * again there when the clock ticks, which it does while it is executed step by step.
 *
 * A sample is one call, less what an empty section takes; of calls for several requests, the call divided by their number.
 * Keys are CALL/BYTES: bytes of the message, 8 and 4096, or those of --bytes.  --multiple: MPI_THREAD_MULTIPLE.
 */
#include "bench.h"

#include <errno.h>
#include <link.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <ucontext.h>

#define WARM	100		/* rounds before those that are counted */
#define MANY	16		/* requests of calls for several */
#define MAX	4096
#define LARGE	1048576		/* of a receive with room for a large message */
#define TRAP_FLAG	0x100	/* of the flags register: a trap after each instruction */

/* ---- instructions, one by one ---------------------------------------------------------------- */

static volatile int64_t counted;	/* of this section */

#ifdef __x86_64__
static uintptr_t vdso;			/* what the kernel has put into the process */
static size_t vdso_size;

static void find_vdso(void)
{
	const ElfW(Ehdr) *e;
	const ElfW(Phdr) *ph;

	vdso = getauxval(AT_SYSINFO_EHDR);
	if (!vdso)
		return;
	e = (const ElfW(Ehdr) *)vdso;
	ph = (const ElfW(Phdr) *)(vdso + e->e_phoff);
	for (int i = 0; i < e->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD && vdso_size < ph[i].p_offset + ph[i].p_memsz)
			vdso_size = ph[i].p_offset + ph[i].p_memsz;
}

/* Before the next instruction.  In here the flag is off. */
static void stepped(int sig, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

	counted += at - vdso >= vdso_size;
}

/* The red zone is the caller's: nothing is pushed there. */
static inline __attribute__((always_inline)) void count_on(void)
{
	counted = 0;
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\torq %0, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp"
			 : : "i"(TRAP_FLAG) : "memory", "cc");
}

static inline __attribute__((always_inline)) void count_off(void)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\tandq %0, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp"
			 : : "i"(~TRAP_FLAG) : "memory", "cc");
}

static void count_prepare(void)
{
	struct sigaction sa = { .sa_sigaction = stepped, .sa_flags = SA_SIGINFO };

	find_vdso();
	if (sigaction(SIGTRAP, &sa, NULL))
		bench_die("sigaction: %s", strerror(errno));
}
#else
static void count_prepare(void)
{
	bench_die("instructions are counted on x86-64 only");
}

static void count_on(void)
{
}

static void count_off(void)
{
}
#endif

/* ---- what is counted ------------------------------------------------------------------------- */

static int bytes, rounds;
static char to[MANY][MAX], from[MANY][MAX];
static char large[LARGE];
static MPI_Request req[2 * MANY], persistent[2];
static MPI_Status st[2 * MANY];
static int flag, some, indices[MANY], found;
static MPI_Message msg;
static char stamp;

static void nothing(void)
{
}

static void isend_n(int n)
{
	stamp++;
	for (int i = 0; i < n; i++) {
		memset(from[i], stamp + i, (size_t)bytes);
		MPI_Isend(from[i], bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &req[MANY + i]);
	}
}

static void irecv_n(int n)
{
	for (int i = 0; i < n; i++) {
		memset(to[i], 0, (size_t)bytes);
		MPI_Irecv(to[i], bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &req[i]);
	}
}

static void check(int n)
{
	for (int i = 0; i < n; i++)
		if (to[i][0] != (char)(stamp + i) || to[i][bytes - 1] != (char)(stamp + i))
			bench_die("message %d of %d bytes: %d and %d, not %d", i, bytes, to[i][0], to[i][bytes - 1],
				  (char)(stamp + i));
}

static void end_sends(int n)
{
	MPI_Waitall(n, &req[MANY], &st[MANY]);
	check(n);
}

static void end_all(int n)
{
	MPI_Waitall(n, req, st);
	end_sends(n);
}

static void isend_1(void)
{
	isend_n(1);
}

static void irecv_1(void)
{
	irecv_n(1);
}

static void both_1(void)
{
	irecv_n(1);
	isend_n(1);
}

static void both_many(void)
{
	irecv_n(MANY);
	isend_n(MANY);
}

static void irecv_many(void)
{
	irecv_n(MANY);
}

static void end_1(void)
{
	end_all(1);
}

static void end_send_1(void)
{
	end_sends(1);
}

static void end_many(void)
{
	end_all(MANY);
}

static void end_sends_many(void)
{
	end_sends(MANY);
}

/* The receives are there, the messages not yet. */
static void come_1(void)
{
	isend_n(1);
	end_all(1);
}

static void come_many(void)
{
	isend_n(MANY);
	end_all(MANY);
}

static void call_send(void)
{
	MPI_Send(from[0], bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
}

static void before_send(void)
{
	irecv_n(1);
	memset(from[0], ++stamp, (size_t)bytes);
}

static void after_send(void)
{
	MPI_Wait(&req[0], &st[0]);
	check(1);
}

static void call_isend(void)
{
	MPI_Isend(from[0], bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &req[MANY]);
}

static void call_recv(void)
{
	MPI_Recv(to[0], bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &st[0]);
}

static void call_recv_ignore(void)
{
	MPI_Recv(to[0], bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void call_recv_any(void)
{
	MPI_Recv(to[0], bytes, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &st[0]);
}

static void call_irecv(void)
{
	MPI_Irecv(to[0], bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &req[0]);
}

static void call_irecv_any(void)
{
	MPI_Irecv(to[0], bytes, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &req[0]);
}

static void any_1(void)
{
	call_irecv_any();
	isend_n(1);
}

static void call_sendrecv(void)
{
	MPI_Sendrecv(from[0], bytes, MPI_CHAR, 0, 1, to[0], bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &st[0]);
}

static void before_sendrecv(void)
{
	memset(from[0], ++stamp, (size_t)bytes);
}

static void check_1(void)
{
	check(1);
}

static void call_wait(void)
{
	MPI_Wait(&req[0], &st[0]);
}

static void call_wait_ignore(void)
{
	MPI_Wait(&req[0], MPI_STATUS_IGNORE);
}

static void call_wait_send(void)
{
	MPI_Wait(&req[MANY], &st[0]);
}

static void call_test(void)
{
	MPI_Test(&req[0], &flag, &st[0]);
}

static void call_get_status(void)
{
	MPI_Request_get_status(req[0], &flag, &st[0]);
}

static void call_waitall(void)
{
	MPI_Waitall(MANY, req, st);
}

static void call_waitall_ignore(void)
{
	/* a variable: gcc takes the constant of one of the libraries for an array */
	MPI_Status *volatile ignore = MPI_STATUSES_IGNORE;

	MPI_Waitall(MANY, req, ignore);
}

static void call_waitall_sends(void)
{
	MPI_Waitall(MANY, &req[MANY], &st[MANY]);
}

static void call_waitall_both(void)
{
	MPI_Waitall(2 * MANY, req, st);
}

static void call_testall(void)
{
	MPI_Testall(MANY, req, &flag, st);
}

static void call_waitany(void)
{
	MPI_Waitany(MANY, req, indices, st);
}

static void call_testany(void)
{
	MPI_Testany(MANY, req, indices, &flag, st);
}

/* with room for a large message, which may come from anybody */
static void irecv_large(void)
{
	MPI_Irecv(large, LARGE, MPI_CHAR, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &req[0]);
}

static void come_large(void)
{
	isend_n(1);
	MPI_Wait(&req[0], &st[0]);
	memcpy(to[0], large, (size_t)bytes);
	end_sends(1);
}

static void call_testany_1(void)
{
	MPI_Testany(1, req, indices, &flag, st);
}

static void call_testsome_1(void)
{
	MPI_Testsome(1, req, &some, indices, st);
}

static void call_waitsome(void)
{
	MPI_Waitsome(MANY, req, &some, indices, st);
}

static void call_testsome(void)
{
	MPI_Testsome(MANY, req, &some, indices, st);
}

static void persistent_new(void)
{
	MPI_Recv_init(to[0], bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &persistent[0]);
	MPI_Send_init(from[0], bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &persistent[1]);
}

static void persistent_free(void)
{
	MPI_Request_free(&persistent[0]);
	MPI_Request_free(&persistent[1]);
}

static void call_start_recv(void)
{
	MPI_Start(&persistent[0]);
}

static void call_start_send(void)
{
	MPI_Start(&persistent[1]);
}

static void start_both(void)
{
	memset(from[0], ++stamp, (size_t)bytes);
	MPI_Startall(2, persistent);
}

static void start_send(void)
{
	memset(from[0], ++stamp, (size_t)bytes);
	MPI_Start(&persistent[1]);
}

static void start_recv(void)
{
	memset(from[0], ++stamp, (size_t)bytes);
	MPI_Start(&persistent[0]);
}

static void end_persistent(void)
{
	MPI_Waitall(2, persistent, st);
	check(1);
}

static void call_wait_persistent(void)
{
	MPI_Wait(&persistent[0], &st[0]);
}

static void call_iprobe(void)
{
	MPI_Iprobe(0, 1, MPI_COMM_WORLD, &found, &st[0]);
}

static void after_iprobe(void)
{
	if (!found)
		bench_die("MPI_Iprobe found nothing");
	call_recv();
	end_sends(1);
}

static void call_improbe(void)
{
	MPI_Improbe(0, 1, MPI_COMM_WORLD, &found, &msg, &st[0]);
}

static void after_improbe(void)
{
	MPI_Mrecv(to[0], bytes, MPI_CHAR, &msg, &st[0]);
	end_sends(1);
}

static void call_mrecv(void)
{
	MPI_Mrecv(to[0], bytes, MPI_CHAR, &msg, &st[0]);
}

static void before_mrecv(void)
{
	isend_n(1);
	call_improbe();
}

struct section {
	const char *key;
	void (*before)(void), (*call)(void), (*after)(void);
	int per;		/* requests */
};

static const struct section sections[] = {
	{ "Send", before_send, call_send, after_send, 1 },
	{ "Isend", before_send, call_isend, end_1, 1 },
	{ "Recv", isend_1, call_recv, end_send_1, 1 },
	{ "Recv_ignore", isend_1, call_recv_ignore, end_send_1, 1 },
	{ "Recv_any", isend_1, call_recv_any, end_send_1, 1 },
	{ "Irecv", nothing, call_irecv, come_1, 1 },
	{ "Irecv_came", isend_1, call_irecv, end_1, 1 },
	{ "Irecv_any", nothing, call_irecv_any, come_1, 1 },
	{ "Sendrecv", before_sendrecv, call_sendrecv, check_1, 1 },
	{ "Wait", both_1, call_wait, end_send_1, 1 },
	{ "Wait_ignore", both_1, call_wait_ignore, end_send_1, 1 },
	{ "Wait_any", any_1, call_wait, end_send_1, 1 },
	{ "Wait_send", both_1, call_wait_send, end_1, 1 },
	{ "Test", both_1, call_test, end_send_1, 1 },
	{ "Test_not", irecv_1, call_test, come_1, 1 },
	{ "Request_get_status", both_1, call_get_status, end_1, 1 },
	{ "Waitall", both_many, call_waitall, end_sends_many, MANY },
	{ "Waitall_ignore", both_many, call_waitall_ignore, end_sends_many, MANY },
	{ "Waitall_sends", both_many, call_waitall_sends, end_many, MANY },
	{ "Waitall_both", both_many, call_waitall_both, end_many, 2 * MANY },
	{ "Testall", both_many, call_testall, end_many, MANY },
	{ "Testall_not", irecv_many, call_testall, come_many, 1 },
	{ "Waitany", both_many, call_waitany, end_many, 1 },
	{ "Testany", both_many, call_testany, end_many, 1 },
	{ "Testany_not", irecv_many, call_testany, come_many, 1 },
	{ "Waitsome", both_many, call_waitsome, end_many, MANY },
	{ "Testsome", both_many, call_testsome, end_many, MANY },
	{ "Testsome_not", irecv_many, call_testsome, come_many, 1 },
	{ "Test_large_not", irecv_large, call_test, come_large, 1 },
	{ "Testany_large_not", irecv_large, call_testany_1, come_large, 1 },
	{ "Testsome_large_not", irecv_large, call_testsome_1, come_large, 1 },
	{ "Start_recv", nothing, call_start_recv, start_send, 1 },
	{ "Start_send", start_recv, call_start_send, nothing, 1 },
	{ "Wait_persistent", start_both, call_wait_persistent, nothing, 1 },
	{ "Iprobe", isend_1, call_iprobe, after_iprobe, 1 },
	{ "Iprobe_not", nothing, call_iprobe, nothing, 1 },
	{ "Improbe", isend_1, call_improbe, after_improbe, 1 },
	{ "Mrecv", before_mrecv, call_mrecv, end_send_1, 1 },
};

static int64_t count_one(const struct section *s, bool persist, bool counting)
{
	int64_t n = 0;

	s->before();
	if (counting) {
		count_on();
		s->call();
		count_off();
		n = counted;
	} else {
		s->call();
	}
	s->after();
	if (persist)
		end_persistent();
	return n;
}

static void count(const struct section *s, int64_t empty)
{
	bool persist = strstr(s->key, "Start") || strstr(s->key, "persistent");
	struct bench_samples v = { 0 };
	char key[64];

	if (persist)
		persistent_new();
	for (int i = 0; i < WARM + rounds; i++) {
		int64_t n = count_one(s, persist, i >= WARM);

		if (i >= WARM)
			bench_samples_add(&v, (n - empty) / s->per);
	}
	if (persist)
		persistent_free();
	snprintf(key, sizeof(key), "%s/%d", s->key, bytes);
	bench_emit(key, "instructions", &v);
	bench_samples_free(&v);
}

/* The others leave rank 0 the processors. */
static void finish(int rank)
{
	const struct timespec sleep_slice = { 0, 5000000 };
	int size, over = 0;

	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 1; !rank && i < size; i++)
		MPI_Send(NULL, 0, MPI_CHAR, i, 2, MPI_COMM_WORLD);
	while (rank && !over) {
		nanosleep(&sleep_slice, NULL);
		MPI_Iprobe(0, 2, MPI_COMM_WORLD, &over, MPI_STATUS_IGNORE);
	}
	if (rank)
		MPI_Recv(NULL, 0, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		bench_done();
}

int main(int argc, char **argv)
{
	static const struct section none = { "", nothing, nothing, nothing, 1 };
	static const int sizes[] = { 8, MAX };
	int rank, provided, want = MPI_THREAD_SINGLE, only;

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--multiple"))
			want = MPI_THREAD_MULTIPLE;
	rounds = (int)bench_opt(argc, argv, "--rounds", 5);
	only = (int)bench_opt(argc, argv, "--bytes", 0);
	if (rounds < 1 || only > MAX)
		bench_die("want one round at least, and %d bytes at most", MAX);
	MPI_Init_thread(&argc, &argv, want, &provided);
	if (provided < want)
		bench_die("the MPI library has no MPI_THREAD_MULTIPLE");
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	count_prepare();
	for (size_t b = 0; !rank && b < sizeof(sizes) / sizeof(sizes[0]); b++) {
		int64_t empty;

		bytes = only ? only : sizes[b];
		if (only && b)
			break;
		count_one(&none, false, true);
		empty = count_one(&none, false, true);
		for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
			count(&sections[i], empty);
	}
	finish(rank);
	MPI_Finalize();
	return 0;
}

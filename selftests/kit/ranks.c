// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <libprogbase/futex.h>

#include "fake.h"

struct ranks_shared *rs;
uint32_t my_rank, my_ranks;
unsigned int rank_flags;
char rank_path[2][108];
uint32_t rank_paths;
enum prog_binding rank_binding;

void rank_barrier(void)
{
	uint32_t round = __atomic_load_n(&rs->round, __ATOMIC_ACQUIRE);

	if (__atomic_add_fetch(&rs->arrived, 1, __ATOMIC_ACQ_REL) == my_ranks) {
		__atomic_store_n(&rs->arrived, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&rs->round, round + 1, __ATOMIC_RELEASE);
		futex_wake_all(&rs->round);
	}
	while (__atomic_load_n(&rs->round, __ATOMIC_ACQUIRE) == round)
		futex_wait(&rs->round, round, 0);
}

struct prog_session *rank_session(const struct prog_session_cfg *more)
{
	struct prog_session_cfg cfg = more ? *more : (struct prog_session_cfg){ .flags = rank_flags };
	struct prog_session *s = NULL;
	const char *why = "";
	uint32_t i;
	int err;

	memcpy(cfg.jobid, rs->jobid, sizeof(cfg.jobid));
	memcpy(cfg.jobkey, rs->key, sizeof(cfg.jobkey));
	cfg.rank = my_rank;
	if (rank_paths)
		cfg.socket = rank_path[my_rank % rank_paths];
	else if (fk && !cfg.socket && !(cfg.flags & PROG_SESSION_EMBEDDED))
		cfg.socket = fk->path;
	for (i = 0; i < my_ranks; i++) {
		if (i == my_rank) {
			err = prog_session_open(&cfg, &s, &why);
			if (err)
				fprintf(stderr, "rank %u: open: %s (%s)\n", my_rank, strerror(-err), why);
			CHECK_INT(err, 0);
		}
		rank_barrier();
	}
	return s;
}

struct prog_win *rank_window(struct prog_session *s, enum prog_win_kind kind,
							    uint64_t key, void *base, size_t size)
{
	struct prog_win_cfg cfg = { .kind = kind, .key = key, .rank = my_rank, .nranks = my_ranks,
				    .base = base, .size = size, .binding = rank_binding };
	const char *why = "";
	struct prog_win *w;
	int err;

	CHECK_INT(prog_win_open(s, &cfg, &w), 0);
	prog_win_endpoint(w, &rs->ep[my_rank]);
	rank_barrier();
	err = prog_win_connect(w, rs->ep, &why);
	if (err)
		fprintf(stderr, "rank %u: connect: %s (%s)\n", my_rank, strerror(-err), why);
	CHECK_INT(err, 0);
	rank_barrier();
	CHECK_INT(prog_win_map(w, NULL), 0);
	rank_barrier();
	return w;
}

void rank_finish(struct prog_session *s, struct prog_win *w)
{
	rank_barrier();
	prog_win_close(w);
	rank_barrier();
	prog_session_close(s);
}

bool run_ranks(uint32_t n, void (*fn)(void))
{
	pid_t pid[FAKE_RANKS];
	bool ok = true;
	uint32_t i;
	int st;

	if (!rs)
		rs = mmap(NULL, sizeof(*rs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(rs, 0, sizeof(*rs));
	prog_job_key_make(rs->jobid, rs->key);
	fflush(NULL);
	for (i = 0; i < n; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			alarm(100);
			my_rank = i;
			my_ranks = n;
			fn();
			exit(0);
		}
	}
	for (i = 0; i < n; i++) {
		pid_t who = wait(&st);
		uint32_t j;

		for (j = 0; j < n && pid[j] != who; j++)
			;
		if (j == n) {
			/* the fake daemon died: the ranks will say what they saw */
			fprintf(stderr, "the fake daemon ended (status 0x%x)\n", st);
			ok = false;
			i--;
			continue;
		}
		pid[j] = 0;
		if (st) {
			fprintf(stderr, "rank %u: status 0x%x\n", j, st);
			/* the others wait for it in vain */
			for (j = 0; ok && j < n; j++)
				if (pid[j])
					kill(pid[j], SIGKILL);
			ok = false;
		}
	}
	return ok;
}

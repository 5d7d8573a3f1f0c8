// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Ranks of these programs are more than there are processors.  MPICH polls while it waits, and gives no processor away: a
 * rank keeps the one that it waits for off it for a time slice at each message.  So POLLS polls of UCX in turn that find nothing
 * end in a nap.  With sched_yield() instead, ranks hardly run beside others that compute (Linux 6.18).  The program's symbol
 * comes before the library's.
 */
#include <dlfcn.h>
#include <time.h>

#define POLLS	64	/* some 10 us */
#define NAP_NS	50000	/* and as much again of timer slack */

unsigned int ucp_worker_progress(void *worker);

unsigned int ucp_worker_progress(void *worker)
{
	static unsigned int (*next)(void *);
	static __thread unsigned int idle;
	unsigned int n;

	/* what each thread finds out is the same */
	if (!__atomic_load_n(&next, __ATOMIC_RELAXED))
		__atomic_store_n(&next, (unsigned int (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_progress"), __ATOMIC_RELAXED);
	n = next(worker);
	idle = n ? 0 : idle + 1;
	if (idle == POLLS) {
		idle = 0;
		nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
	}
	return n;
}

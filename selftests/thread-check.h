/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Included before everything else by `make thread-check`: the locks of pthread as clang's analysis wants them.  Nothing
 * of it is run, or compiled at any other time.
 */
#include <pthread.h>

#define PROG_THREAD_CHECK
#include <libprogbase/guard.h>

typedef struct __attribute__((capability("mutex"))) { pthread_mutex_t m; } checked_mutex;
typedef struct __attribute__((capability("rwlock"))) { pthread_rwlock_t l; } checked_rwlock;

int checked_mutex_lock(checked_mutex *m) __attribute__((acquire_capability(*m)));
int checked_mutex_trylock(checked_mutex *m) __attribute__((try_acquire_capability(0, *m)));
int checked_mutex_unlock(checked_mutex *m) __attribute__((release_capability(*m)));
int checked_mutex_init(checked_mutex *m, const pthread_mutexattr_t *a);
int checked_mutex_destroy(checked_mutex *m) __attribute__((locks_excluded(*m)));
int checked_cond_wait(pthread_cond_t *c, checked_mutex *m) __attribute__((requires_capability(*m)));
int checked_rdlock(checked_rwlock *l) __attribute__((acquire_shared_capability(*l)));
int checked_wrlock(checked_rwlock *l) __attribute__((acquire_capability(*l)));
int checked_rwunlock(checked_rwlock *l) __attribute__((release_generic_capability(*l)));

#define pthread_mutex_t		checked_mutex
#define pthread_rwlock_t	checked_rwlock
#define pthread_mutex_lock	checked_mutex_lock
#define pthread_mutex_trylock	checked_mutex_trylock
#define pthread_mutex_unlock	checked_mutex_unlock
#define pthread_mutex_init	checked_mutex_init
#define pthread_mutex_destroy	checked_mutex_destroy
#define pthread_cond_wait	checked_cond_wait
#define pthread_rwlock_rdlock	checked_rdlock
#define pthread_rwlock_wrlock	checked_wrlock
#define pthread_rwlock_unlock	checked_rwunlock
#undef PTHREAD_MUTEX_INITIALIZER
#define PTHREAD_MUTEX_INITIALIZER	{ .m = { { 0 } } }
#undef PTHREAD_RWLOCK_INITIALIZER
#define PTHREAD_RWLOCK_INITIALIZER	{ .l = { { 0 } } }

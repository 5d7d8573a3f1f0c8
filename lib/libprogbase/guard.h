/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * guard.h - which lock guards what, for `make thread-check`: clang's analysis of locks.  Empty for every compiler.
 *
 * A function gives back the locks that it takes, on all of its ways, unless GUARD_ACQUIRES or GUARD_RELEASES says
 * otherwise.  In C the analysis knows no guarded members of structures; functions that use them say GUARD_NEEDS.
 */
#ifndef LIBPROGBASE_GUARD_H
#define LIBPROGBASE_GUARD_H

#ifdef PROG_THREAD_CHECK
#define GUARD(x)	__attribute__((x))
#else
#define GUARD(x)
#endif

/* a variable of a file */
#define GUARDED_BY(lock)		GUARD(guarded_by(lock))
/* functions: called with the lock held, or held for reading at least; that take it; that give it back */
#define GUARD_NEEDS(lock)		GUARD(requires_capability(lock))
#define GUARD_NEEDS_SHARED(lock)	GUARD(requires_shared_capability(lock))
#define GUARD_ACQUIRES(lock)		GUARD(acquire_capability(lock))
#define GUARD_RELEASES(lock)		GUARD(release_capability(lock))
/* functions: not looked at; the comment says why */
#define GUARD_UNCHECKED			GUARD(no_thread_safety_analysis)

#endif

/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * copy_engine: copies between pinned memory of two clients of this node that an engine does while the worker goes on:
 * a DMA engine (ioat_copy) or a kernel thread (asyncprog).  One struct copy_engine per worker.
 *
 * It only ever spares the worker a memcpy() between two mappings: whatever is wrong with an engine, the caller is
 * told, and copies by itself.  Devices are opened when there is something to copy, and closed when there has
 * been nothing for a while, so that modules and channels are not held by a daemon that does not need them.
 *
 * Concurrency: a copy engine belongs to its worker's thread; the configuration may be set by any thread at any time.
 */
#ifndef PROGD_COPY_ENGINE_H
#define PROGD_COPY_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include <libprogbase/copier.h>

#include "stats/stats.h"
#include "win/win.h"
#include "loop/loop.h"

/* in the order of the key copy_engine */
enum { COPY_ENGINE_AUTO, COPY_ENGINE_CPU, COPY_ENGINE_KERNEL, COPY_ENGINE_DMA };

struct copy_engine_conf {
	int engine;			/* COPY_ENGINE_* */
	uint64_t min;			/* bytes: shorter copies are the CPU's */
};
void copy_engine_conf_set(const struct copy_engine_conf *c);
void copy_engine_conf_get(struct copy_engine_conf *c);
/*
 * From how many bytes on an engine does a copy for a worker that has nothing else to do, as things are configured
 * and as far as an engine can be had; 0: none.  Asked for by whoever could copy by itself.  Main thread.
 */
uint64_t copy_engine_least(void);

struct copy_engine;
struct copy_req;			/* a copy under way */

/* @worker: index, below PROG_MAX_WORKERS.  0 or -ENOMEM.  Before the worker runs. */
int copy_engine_new(unsigned int worker, struct loop *loop, struct copy_engine **out);
/*
 * A worker that runs frees its loop when it stops: on it, before that.  Completions are then seen by copy_engine_poll()
 * only.  NULL is fine.
 */
void copy_engine_detach(struct copy_engine *m);
/* With the worker stopped.  What is under way ends with -ECANCELED.  NULL is fine. */
void copy_engine_free(struct copy_engine *m);

/*
 * @status: 0, or the copy is the caller's: nothing writes to its target any more, whose contents are undefined.
 * Not called from inside copy_engine_submit() or copy_engine_cancel().
 */
typedef void copy_engine_done_fn(void *arg, int status);

/*
 * Have @len bytes copied from byte @src_off of @src to byte @dst_off of @dst, if that is worth it and possible;
 * @busy: the worker has other work.  The maps are held until nothing uses them.  NULL: the caller copies; also
 * when @m, or one of the maps, is NULL, or one is not pinned.  The ranges must lie in the maps and not overlap.
 *
 * Copies of two pinned regions are counted in @st by who does them.
 */
struct copy_req *copy_engine_submit(struct copy_engine *m, struct win_map *dst, uint64_t dst_off, struct win_map *src,
			     uint64_t src_off, uint64_t len, bool busy, struct stats_block *st,
			     copy_engine_done_fn *done, void *arg);
/* Nobody is to be told of its end; memory is in use until then. */
void copy_engine_cancel(struct copy_engine *m, struct copy_req *r);

/* Progress source (worker_add_source), context struct copy_engine; after those that call copy_engine_submit(). */
int copy_engine_poll(void *ctx);

struct copy_engine_info {
	bool open;
	enum copier_kind kind;		/* of what is or was last open */
	bool engine;			/* it is a DMA engine */
	char name[IOAT_COPY_NAME_SIZE];
	int why;			/* why nothing is open: a negative errno, 0: not needed */
	uint32_t flying, queued;	/* pieces that are being copied, copies that wait for their turn */
};
void copy_engine_info(const struct copy_engine *m, struct copy_engine_info *i);

/* Copies of two pinned regions since start, of all copy engines and jobs, by STATS_COPY_*.  Any thread. */
struct copy_engine_totals {
	uint64_t copies[STATS_COPIERS], bytes[STATS_COPIERS];
	uint64_t fallbacks;		/* that an engine failed to do; among those of the CPU */
};
void copy_engine_totals(struct copy_engine_totals *t);

/*
 * Try what is configured now.  Any thread.  0, also when nothing is to be tried; or as copier_open(), and -ENXIO:
 * ioat_copy has no engine.  @name: of the engine.
 */
int copy_engine_probe(char name[IOAT_COPY_NAME_SIZE]);
/* What an error of copy_engine_probe() or copy_engine_info.why means, for people. */
const char *copy_engine_why(int err);

#endif

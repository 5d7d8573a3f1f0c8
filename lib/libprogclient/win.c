// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Windows: control segment, endpoints, registration, mapping of same-node peers, ranges. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>

#include "client.h"

#define ENDPOINT_MAGIC		0x45475250u	/* "PRGE" */
#define DEFAULT_RANGES		1024u
#define MAX_RANGES		(1u << 20)
#define MAX_RANKS		(1u << 20)
#define STRIPE_TIMEOUT_NS	100000000

/* What travels in struct prog_endpoint; between processes of one job, maybe of other byte order. */
struct endpoint {
	uint32_t magic;
	uint16_t abi_major;
	uint16_t abi_minor;
	uint64_t key;
	uint32_t rank;
	uint32_t nranks;
	uint32_t kind;
	uint32_t mem;			/* PROG_MEM_* */
	uint64_t size;
	uint64_t base;			/* VA: address; SPACE: of msgs_waits() */
	uint64_t pidns;			/* pid means something to processes of the same one */
	uint64_t probe;			/* address of a u64 ... */
	uint64_t probe_value;		/* ... with this value: CMA works when it can be read */
	uint32_t pid;
	uint32_t naddrs;
	uint8_t guid[PROG_GUID_SIZE];
	struct prog_addr addr[PROG_MAX_ADDRS];
};

_Static_assert(sizeof(struct endpoint) <= sizeof(struct prog_endpoint), "endpoint");

static void get_endpoint(const struct prog_endpoint *from, struct endpoint *ep)
{
	memcpy(ep, from->bytes, sizeof(*ep));
}

static uint64_t pid_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino;
}

/* ---- open ------------------------------------------------------------------------------------ */

static int open_memory(struct prog_win *w, const struct prog_win_cfg *cfg)
{
	uint64_t off;
	uint32_t id;

	w->mem_fd = -1;
	switch (cfg->kind) {
	case PROG_WIN_ALLOCATE:
		w->size = cfg->size;
		w->mem = PROG_MEM_SHARED;
		return region_new(cfg->size, &w->region, &w->base, &w->mem_fd);
	case PROG_WIN_CREATE:
		w->base = cfg->base;
		w->size = cfg->size;
		if (!w->size) {
			w->mem = PROG_MEM_NONE;
			return 0;
		}
		if (!w->base)
			return -EINVAL;
		w->mem = PROG_MEM_VA;
		/* a region that the daemon refuses is as good as other memory */
		if (!region_lookup(w->s, w->base, w->size, &id, &off)) {
			w->mem = PROG_MEM_SHARED;
			w->mem_region = id;
			w->mem_off = off;
		}
		return 0;
	case PROG_WIN_DYNAMIC:
		w->mem = PROG_MEM_DYNAMIC;
		return 0;
	case PROG_WIN_SPACE:
		w->mem = PROG_MEM_SPACE;
		return msgs_open(w);
	}
	return -EINVAL;
}

static void own_apply(struct prog_win *w)
{
	w->aw = (struct apply_win){
		.mem = mem_direct(w->kind == PROG_WIN_DYNAMIC ? NULL : w->base),
		.lo = 0,
		.hi = (int64_t)w->size,
		.stripes = w->wc.stripes,
		.stripe_mask = w->wc.stripe_mask,
		.owner = w->s->id,
		.timeout_ns = STRIPE_TIMEOUT_NS,
	};
}

int prog_win_open(struct prog_session *s, const struct prog_win_cfg *cfg, struct prog_win **out)
{
	uint32_t nranges = 0, i;
	const char *why = "";
	struct prog_win *w;
	size_t ctl_size;
	void *ctl;
	int err;

	if (!s || !cfg || !out || !cfg->nranks || cfg->rank >= cfg->nranks ||
	    cfg->nranks > MAX_RANKS || cfg->size > PROG_DTYPE_MAX_BYTES)
		return -EINVAL;
	if (cfg->kind == PROG_WIN_DYNAMIC)
		nranges = cfg->max_ranges ? cfg->max_ranges : DEFAULT_RANGES;
	if (nranges > MAX_RANGES)
		return -EINVAL;
	if (session_lost(s))
		return -ECONNRESET;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->s = s;
	w->kind = cfg->kind;
	w->key = cfg->key;
	w->rank = cfg->rank;
	w->nranks = cfg->nranks;
	w->ntargets = cfg->kind == PROG_WIN_SPACE ? 0 : cfg->nranks;
	w->ctl_fd = -1;
	pthread_mutex_init(&w->range_lock, NULL);
	w->streams = aligned_alloc(PROG_CACHELINE, ((size_t)w->nranks * sizeof(*w->streams) +
				   PROG_CACHELINE - 1) & ~(size_t)(PROG_CACHELINE - 1));
	w->node_here = calloc(w->nranks, 1);
	err = -ENOMEM;
	if (!w->streams || !w->node_here)
		goto fail;
	memset(w->streams, 0, (size_t)w->nranks * sizeof(*w->streams));

	ctl_size = winctl_size(w->nranks, nranges);
	err = client_memfd("asyncprog-window", ctl_size, &w->ctl_fd, &ctl);
	if (err)
		goto fail;
	winctl_format(ctl, w->key, w->rank, w->nranks, nranges);
	err = winctl_attach(&w->wc, ctl, ctl_size, w->key, w->rank, w->nranks, &why);
	if (err) {
		munmap(ctl, ctl_size);
		goto fail;
	}
	err = open_memory(w, cfg);
	if (err)
		goto fail;
	own_apply(w);
	for (i = 0; i < w->nranks; i++) {
		struct stream *st = &w->streams[i];

		st->win = w;
		st->rank = i;
		st->head = st->tail = CLIENT_NO_SLOT;
		st->shared = &w->wc.streams[i];
	}
	pthread_mutex_lock(&s->helper_lock);
	w->next = s->wins;
	s->wins = w;
	pthread_mutex_unlock(&s->helper_lock);
	*out = w;
	return 0;
fail:
	prog_win_close(w);
	return err;
}

void prog_win_endpoint(const struct prog_win *w, struct prog_endpoint *out)
{
	const struct prog_session *s = w->s;
	struct endpoint ep = {
		.magic = ENDPOINT_MAGIC,
		.abi_major = PROG_ABI_MAJOR,
		.abi_minor = PROG_ABI_MINOR,
		.key = w->key,
		.rank = w->rank,
		.nranks = w->nranks,
		.kind = w->kind,
		.mem = w->mem,
		.size = w->size,
		.base = w->mem == PROG_MEM_VA ? (uintptr_t)w->base :
			w->kind == PROG_WIN_SPACE ? (uintptr_t)msgs_waits(w) : 0,
		.pidns = pid_namespace(),
		.probe = (uintptr_t)&s->cma_value,
		.probe_value = s->cma_value,
		.pid = (uint32_t)s->pid,
		.naddrs = s->naddrs,
	};

	memcpy(ep.guid, s->guid, sizeof(ep.guid));
	memcpy(ep.addr, s->addr, sizeof(ep.addr));
	memset(out, 0, sizeof(*out));
	memcpy(out->bytes, &ep, sizeof(ep));
}

/* ---- connect --------------------------------------------------------------------------------- */

static int check_endpoint(const struct prog_win *w, uint32_t rank, const struct endpoint *ep,
			  const char **reason)
{
	if (ep->magic != ENDPOINT_MAGIC) {
		*reason = client_reason("endpoint %u: not an endpoint (or of other byte order)", rank);
	} else if (ep->abi_major != PROG_ABI_MAJOR) {
		*reason = client_reason("endpoint %u: ABI version %u, this library has %u", rank,
					ep->abi_major, PROG_ABI_MAJOR);
	} else if (ep->key != w->key || ep->nranks != w->nranks || ep->kind != w->kind) {
		*reason = client_reason("endpoint %u: of another window (key, ranks or kind)", rank);
	} else if (ep->rank != rank) {
		*reason = client_reason("endpoint %u: is of rank %u; they must be in rank order", rank,
					ep->rank);
	} else if (ep->naddrs > PROG_MAX_ADDRS || ep->mem > PROG_MEM_SPACE ||
		   ep->size > PROG_DTYPE_MAX_BYTES) {
		*reason = client_reason("endpoint %u: addresses, memory kind or size out of range",
					rank);
	} else {
		return 0;
	}
	return -EPROTO;
}

struct guid_slot {
	uint8_t guid[PROG_GUID_SIZE];
	uint32_t node;			/* + 1; 0: free */
};

/* Number of the endpoint's node, in an open-addressed table of @mask + 1 entries. */
static uint32_t node_number(struct guid_slot *table, uint32_t mask, const uint8_t *guid,
			    uint32_t *nnodes, bool *fresh)
{
	uint64_t h = 0xcbf29ce484222325ull;
	uint32_t i, at;

	for (i = 0; i < PROG_GUID_SIZE; i++)
		h = (h ^ guid[i]) * 0x100000001b3ull;
	for (at = (uint32_t)(h >> 20) & mask;; at = (at + 1) & mask) {
		if (!table[at].node) {
			memcpy(table[at].guid, guid, PROG_GUID_SIZE);
			table[at].node = ++*nnodes;
			*fresh = true;
			return *nnodes - 1;
		}
		if (!memcmp(table[at].guid, guid, PROG_GUID_SIZE)) {
			*fresh = false;
			return table[at].node - 1;
		}
	}
}

/* The table of ranks and nodes for the daemon, in a sealed memory file. */
static int make_table(struct prog_win *w, const struct prog_endpoint *all, int *fd,
		      uint32_t *nnodes_out, const char **reason)
{
	uint32_t mask = 15, nnodes = 0, i, *node_of;
	struct prog_win_node *nodes = NULL;
	struct prog_win_table head;
	struct guid_slot *guids;
	size_t size;
	void *mem;
	char *p;
	int err;

	while (mask < 2 * w->nranks)
		mask = 2 * mask + 1;
	guids = calloc((size_t)mask + 1, sizeof(*guids));
	node_of = calloc(w->nranks, sizeof(*node_of));
	nodes = calloc(w->nranks, sizeof(*nodes));
	err = -ENOMEM;
	if (!guids || !node_of || !nodes)
		goto out;
	for (i = 0; i < w->nranks; i++) {
		struct endpoint ep;
		uint32_t node;
		bool fresh;

		get_endpoint(&all[i], &ep);
		err = check_endpoint(w, i, &ep, reason);
		if (err)
			goto out;
		node = node_number(guids, mask, ep.guid, &nnodes, &fresh);
		node_of[i] = node;
		if (fresh) {
			memcpy(nodes[node].guid, ep.guid, PROG_GUID_SIZE);
			nodes[node].naddrs = ep.naddrs;
			memcpy(nodes[node].addr, ep.addr, sizeof(ep.addr));
		}
	}
	size = sizeof(head) + (size_t)nnodes * sizeof(*nodes) + (size_t)w->nranks * sizeof(*node_of);
	err = client_memfd("asyncprog-table", size, fd, &mem);
	if (err)
		goto out;
	head = (struct prog_win_table){ .nranks = w->nranks, .nnodes = nnodes };
	p = mem;
	memcpy(p, &head, sizeof(head));
	p += sizeof(head);
	memcpy(p, nodes, (size_t)nnodes * sizeof(*nodes));
	p += (size_t)nnodes * sizeof(*nodes);
	memcpy(p, node_of, (size_t)w->nranks * sizeof(*node_of));
	munmap(mem, size);
	*nnodes_out = nnodes;
out:
	free(guids);
	free(node_of);
	free(nodes);
	return err;
}

/*
 * Will the daemon access our memory?  Ranks of the same node do so by themselves where they can, unless there is an
 * engine for it.
 */
static bool pins_useful(const struct prog_win *w)
{
	uint32_t i;

	if (w->multinode || !(w->s->features & PROG_FEAT_CMA))
		return true;
	for (i = 0; w->s->move_min && i < w->nranks; i++)
		if (i != w->rank && w->node_here[i])
			return true;
	return false;
}

int prog_win_connect(struct prog_win *w, const struct prog_endpoint *all, const char **reason)
{
	struct prog_msg_win_create req = { 0 };
	struct prog_msg_slot rep = { 0 };
	uint32_t nnodes = 0, i;
	const char *unused;
	bool all_shared = true;
	int fds[3], nfds = 2, table, err;

	if (!reason)
		reason = &unused;
	*reason = "";
	if (w->connected) {
		*reason = "window is connected already";
		return -EALREADY;
	}
	err = make_table(w, all, &table, &nnodes, reason);
	if (err) {
		if (err != -EPROTO)
			*reason = client_reason("no memory for the table of ranks: %s", strerror(-err));
		return err;
	}
	for (i = 0; i < w->nranks; i++) {
		struct endpoint ep;

		get_endpoint(&all[i], &ep);
		w->streams[i].size = ep.size;
		w->node_here[i] = !memcmp(ep.guid, w->s->guid, PROG_GUID_SIZE);
		if (ep.mem != PROG_MEM_SHARED && ep.mem != PROG_MEM_NONE)
			all_shared = false;
	}
	w->multinode = nnodes > 1;
	/* same answer on all ranks: it depends on the endpoints alone */
	w->native = !w->multinode && all_shared;
	w->aw.native = w->native;
	w->peers = malloc(w->nranks * sizeof(*w->peers));
	if (!w->peers) {
		close(table);
		return -ENOMEM;
	}
	memcpy(w->peers, all, w->nranks * sizeof(*w->peers));

	fds[0] = w->ctl_fd;
	fds[1] = table;
	if (w->mem_fd >= 0)
		fds[nfds++] = w->mem_fd;
	req.key = w->key;
	req.rank = w->rank;
	req.nranks = w->nranks;
	req.mem = w->mem;
	req.region = w->mem_region;
	req.base = w->mem == PROG_MEM_VA ? (uintptr_t)w->base : w->mem_off;
	req.size = w->size;
	req.flags = w->native ? 0 : PROG_WIN_MULTINODE;
	if (w->mem == PROG_MEM_VA && pins_useful(w) && !pin_get(w->s, w->base, w->size, &w->pin)) {
		req.region = w->pin->id;
		req.flags |= PROG_WIN_PINNED;
	}
	err = session_request(w->s, PROG_MSG_WIN_CREATE, &req, sizeof(req), fds, (unsigned int)nfds,
			      &rep, sizeof(rep), NULL, NULL);
	close(table);
	if (err) {
		rep.reason[PROG_REASON_SIZE - 1] = '\0';
		*reason = client_reason("the daemon refused the window: %s",
					rep.reason[0] ? rep.reason : strerror(-err));
		free(w->peers);
		w->peers = NULL;
		pin_put(w->s, w->pin);
		w->pin = NULL;
		return err;
	}
	close(w->ctl_fd);
	w->ctl_fd = -1;
	pthread_mutex_lock(&w->s->helper_lock);
	w->slot = rep.slot;
	w->connected = true;
	pthread_mutex_unlock(&w->s->helper_lock);
	return 0;
}

/* ---- map -------------------------------------------------------------------------------------- */

static bool cma_works(const struct endpoint *ep)
{
	uint64_t value = 0;
	struct iovec here = { &value, sizeof(value) };
	struct iovec there = { (void *)(uintptr_t)ep->probe, sizeof(value) };

	if (!ep->pidns || ep->pidns != pid_namespace())
		return false;
	return process_vm_readv((pid_t)ep->pid, &here, 1, &there, 1, 0) == sizeof(value) &&
	       value == ep->probe_value;
}

bool win_near(const struct prog_win *w, uint32_t rank, struct near *n)
{
	struct endpoint ep;

	if (rank == w->rank || !w->node_here[rank])
		return false;
	get_endpoint(&w->peers[rank], &ep);
	*n = (struct near){
		.rank = rank, .pid = (pid_t)ep.pid, .probe = ep.probe, .value = ep.probe_value, .waits = ep.base,
	};
	return cma_works(&ep);
}

/* Map @size bytes at @off of @fd, where off need not be aligned. */
static int map_at(int fd, uint64_t off, uint64_t size, struct local_peer *lp, char **mem)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = off % page;
	struct stat st;
	void *p;

	if (fstat(fd, &st))
		return -errno;
	if (size > PROG_DTYPE_MAX_BYTES || off > (uint64_t)st.st_size ||
	    size > (uint64_t)st.st_size - off)
		return -EPROTO;
	p = mmap(NULL, size + skip, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(off - skip));
	if (p == MAP_FAILED)
		return -errno;
	lp->mem_map = p;
	lp->mem_map_size = size + skip;
	*mem = (char *)p + skip;
	return 0;
}

static int map_ctl(struct prog_win *w, uint32_t rank, int fd, struct local_peer *lp)
{
	const char *why = "";
	struct stat st;
	void *p;
	int err;

	if (fstat(fd, &st))
		return -errno;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	err = winctl_attach(&lp->wc, p, (size_t)st.st_size, w->key, rank, w->nranks, &why);
	if (err) {
		prog_log(PROG_LOG_ERROR, "window %llx: rank %u: %s", (unsigned long long)w->key, rank,
			 why);
		munmap(p, (size_t)st.st_size);
		return err;
	}
	lp->own_ctl = true;
	return 0;
}

static void peer_free(struct local_peer *lp)
{
	if (!lp)
		return;
	if (lp->own_ctl)
		munmap(lp->wc.ctl, lp->wc.size);
	if (lp->mem_map)
		munmap(lp->mem_map, lp->mem_map_size);
	free(lp);
}

static int map_peer(struct prog_win *w, uint32_t rank, void *direct)
{
	struct stream *st = &w->streams[rank];
	struct prog_msg_win_peer req = { .slot = w->slot, .rank = rank };
	struct prog_msg_win_peer_reply rep = { 0 };
	unsigned int nfds = 2, i;
	struct local_peer *lp;
	struct endpoint ep;
	char *mem = direct;
	int fds[2], err;

	get_endpoint(&w->peers[rank], &ep);
	lp = calloc(1, sizeof(*lp));
	if (!lp)
		return -ENOMEM;
	if (rank == w->rank) {
		lp->wc = w->wc;
		lp->aw = w->aw;
		st->local = lp;
		st->reach = REACH_MEM;
		/* dynamic windows and empty ones have no base: the general path checks them */
		st->mem = w->kind == PROG_WIN_DYNAMIC ? NULL : w->base;
		return 0;
	}
	err = session_request(w->s, PROG_MSG_WIN_PEER, &req, sizeof(req), NULL, 0, &rep, sizeof(rep),
			      fds, &nfds);
	if (err)
		goto free_peer;
	err = nfds < 1 ? -EPROTO : map_ctl(w, rank, fds[0], lp);
	if (!err && !direct && ep.size && ep.mem == PROG_MEM_SHARED)
		err = nfds < 2 || rep.size != ep.size ? -EPROTO :
		      map_at(fds[1], rep.base, rep.size, lp, &mem);
	for (i = 0; i < nfds; i++)
		close(fds[i]);
	if (err)
		goto free_peer;
	lp->aw = (struct apply_win){
		.lo = 0,
		.hi = (int64_t)ep.size,
		.stripes = lp->wc.stripes,
		.stripe_mask = lp->wc.stripe_mask,
		.owner = w->s->id,
		.native = w->native,
		.timeout_ns = STRIPE_TIMEOUT_NS,
	};
	if (mem || !ep.size) {
		lp->aw.mem = mem_direct(mem);
		st->mem = mem;
		st->reach = REACH_MEM;
	}
	if ((!mem && ep.size) || w->kind == PROG_WIN_DYNAMIC) {
		st->mem = NULL;
		st->reach = REACH_RING;
		if (cma_works(&ep)) {
			st->reach = REACH_CMA;
			lp->aw.mem = mem_remote((pid_t)ep.pid,
						w->kind == PROG_WIN_DYNAMIC ? 0 : ep.base);
			st->movable = w->s->move_min && rep.flags & PROG_PEER_PINNED;
		}
	}
	st->local = lp;
	return 0;
free_peer:
	peer_free(lp);
	return err;
}

int prog_win_map(struct prog_win *w, void *const *direct)
{
	uint32_t i;
	int err;

	if (!w->connected || !w->peers)
		return -EINVAL;
	if (w->kind == PROG_WIN_SPACE) {
		err = msgs_start(w);
		if (err)
			return err;
	}
	for (i = 0; i < w->ntargets; i++) {
		if (!w->node_here[i] || w->streams[i].local)
			continue;
		err = map_peer(w, i, direct ? direct[i] : NULL);
		if (err)
			return err;
	}
	free(w->peers);
	w->peers = NULL;
	return 0;
}

void prog_win_close(struct prog_win *w)
{
	struct prog_session *s;
	struct prog_win **p;
	uint32_t i;

	if (!w)
		return;
	s = w->s;
	pthread_mutex_lock(&s->helper_lock);
	for (p = &s->wins; *p && *p != w; p = &(*p)->next)
		;
	if (*p)
		*p = w->next;
	pthread_mutex_unlock(&s->helper_lock);
	if (w->kind == PROG_WIN_SPACE)
		msgs_quiesce(w);
	if (w->connected && !session_lost(s)) {
		struct prog_msg_slot req = { .slot = w->slot }, rep;
		int err = session_request(s, PROG_MSG_WIN_FREE, &req, sizeof(req), NULL, 0, &rep,
					  sizeof(rep), NULL, NULL);

		if (err && err != -ECONNRESET)
			prog_log(PROG_LOG_WARN, "window %llx: the daemon did not free it: %s",
				 (unsigned long long)w->key, strerror(-err));
	}
	pin_put(s, w->pin);
	for (i = 0; w->range_pin && i < w->wc.nranges; i++)
		pin_put(s, w->range_pin[i]);
	free(w->range_pin);
	if (w->kind == PROG_WIN_SPACE)
		msgs_close(w);
	for (i = 0; w->streams && i < w->nranks; i++) {
		if (w->streams[i].win)
			stream_drop(&w->streams[i]);
		peer_free(w->streams[i].local);
		free(w->streams[i].dtype_gen);
	}
	for (i = 0; w->dtypes && i < CLIENT_DTYPES; i++)
		dtype_put(w->dtypes[i].dt);
	free(w->dtypes);
	if (w->wc.ctl)
		munmap(w->wc.ctl, w->wc.size);
	if (w->ctl_fd >= 0)
		close(w->ctl_fd);
	region_free(w->region);
	free(w->peers);
	free(w->node_here);
	free(w->streams);
	pthread_mutex_destroy(&w->range_lock);
	free(w);
}

/* ---- queries ---------------------------------------------------------------------------------- */

void *prog_win_base(const struct prog_win *w)
{
	return w->base;
}

size_t prog_win_size(const struct prog_win *w, uint32_t rank)
{
	if (rank >= w->nranks)
		return 0;
	return rank == w->rank ? w->size : w->streams[rank].size;
}

bool prog_win_is_local(const struct prog_win *w, uint32_t rank)
{
	return rank < w->nranks && w->streams[rank].reach != REACH_RING;
}

bool prog_win_multinode(const struct prog_win *w)
{
	return w->multinode;
}

void prog_win_sync(struct prog_win *w)
{
	full_barrier();
	carried_acquire();
}

/* ---- ranges of dynamic windows ------------------------------------------------------------------ */

/*
 * A consistent copy of an entry; false when it is being changed or not live.  Its owner makes gen
 * odd, changes the fields, makes it even again.
 */
static bool read_range(const struct prog_win_range *r, uint64_t *base, uint64_t *len)
{
	uint32_t gen = __atomic_load_n(&r->gen, __ATOMIC_ACQUIRE);

	if (gen & 1)
		return false;
	*len = __atomic_load_n(&r->len, __ATOMIC_ACQUIRE);
	*base = __atomic_load_n(&r->base, __ATOMIC_ACQUIRE);
	return *len && __atomic_load_n(&r->gen, __ATOMIC_ACQUIRE) == gen;
}

int win_find_range(const struct winctl *wc, uint64_t lo, uint64_t hi, uint64_t *out_lo,
		   uint64_t *out_hi)
{
	uint32_t i;

	for (i = 0; i < wc->nranges; i++) {
		uint64_t base, len;

		if (!read_range(&wc->ranges[i], &base, &len) || lo < base || hi < lo ||
		    hi - base > len)
			continue;
		if (base > INT64_MAX || len > INT64_MAX - base)
			continue;
		*out_lo = base;
		*out_hi = base + len;
		return 0;
	}
	return -ERANGE;
}

int win_find_ranges(const struct winctl *wc, uint64_t disp, const struct dtype *dt, uint64_t count,
		    uint64_t off, uint64_t len, uint64_t lo, uint64_t hi, uint64_t *out_lo,
		    uint64_t *out_hi)
{
	uint64_t rlo = 0, rhi = 0, from, n;
	struct dtype_iter it;
	int64_t at;
	int err = win_find_range(wc, lo, hi, out_lo, out_hi);

	if (!err || !dt || hi < lo || hi > INT64_MAX)
		return err;
	err = dtype_iter_init(&it, dt, count, off);
	for (; !err && len && dtype_iter_next(&it, len, &at, &n); len -= n) {
		from = disp + (uint64_t)at;
		/* neighbouring blocks mostly share a range */
		if (from < rlo || from >= rhi || n > rhi - from)
			err = win_find_range(wc, from, from + n, &rlo, &rhi);
	}
	if (err)
		return err;
	*out_lo = lo;
	*out_hi = hi;
	return 0;
}

static void write_range(struct prog_win_range *r, uint64_t base, uint64_t len, uint32_t region,
			uint64_t region_off)
{
	uint32_t gen = r->gen;

	__atomic_store_n(&r->gen, gen + 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&r->base, base, __ATOMIC_RELEASE);
	__atomic_store_n(&r->region, region, __ATOMIC_RELEASE);
	__atomic_store_n(&r->region_off, region_off, __ATOMIC_RELEASE);
	__atomic_store_n(&r->len, len, __ATOMIC_RELEASE);
	__atomic_store_n(&r->gen, gen + 2, __ATOMIC_RELEASE);
}

int prog_win_attach(struct prog_win *w, void *base, size_t size)
{
	uint64_t lo = (uintptr_t)base, region_off = 0;
	struct prog_win_range *slot = NULL;
	struct pin *pin = NULL;
	uint32_t id, region = 0, i;
	int err = 0;

	if (w->kind != PROG_WIN_DYNAMIC || size > PROG_DTYPE_MAX_BYTES || lo + size < lo)
		return -EINVAL;
	if (!size)
		return 0;	/* nothing can be accessed there */
	if (!region_lookup(w->s, base, size, &id, &region_off))
		region = id + 1;
	else if (w->connected && pins_useful(w) && !pin_get(w->s, base, size, &pin))
		region = pin->id + 1;
	pthread_mutex_lock(&w->range_lock);
	if (pin && !w->range_pin) {
		w->range_pin = calloc(w->wc.nranges, sizeof(*w->range_pin));
		if (!w->range_pin)
			err = -ENOMEM;
	}
	for (i = 0; i < w->wc.nranges && !err; i++) {
		struct prog_win_range *r = &w->wc.ranges[i];

		if (!r->len) {
			slot = slot ? slot : r;
		} else if (lo < r->base + r->len && r->base < lo + size) {
			err = -EEXIST;
		}
	}
	if (!err && !slot)
		err = -ENOSPC;
	if (!err) {
		write_range(slot, lo, size, region, region_off);
		if (pin)
			w->range_pin[slot - w->wc.ranges] = pin;
	}
	pthread_mutex_unlock(&w->range_lock);
	if (err)
		pin_put(w->s, pin);
	return err;
}

int prog_win_detach(struct prog_win *w, void *base)
{
	struct pin *pin = NULL;
	int err = -ENOENT;
	uint32_t i;

	if (w->kind != PROG_WIN_DYNAMIC)
		return -EINVAL;
	pthread_mutex_lock(&w->range_lock);
	for (i = 0; i < w->wc.nranges && err; i++) {
		struct prog_win_range *r = &w->wc.ranges[i];

		if (r->len && r->base == (uintptr_t)base) {
			write_range(r, 0, 0, 0, 0);
			if (w->range_pin) {
				pin = w->range_pin[i];
				w->range_pin[i] = NULL;
			}
			err = 0;
		}
	}
	pthread_mutex_unlock(&w->range_lock);
	pin_put(w->s, pin);
	return err;
}

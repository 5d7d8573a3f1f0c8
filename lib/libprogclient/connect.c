// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Windows: endpoints, the table of ranks, registration at the daemon, mapping of same-node peers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <libprogbase/mem.h>

#include "bind.h"
#include "msgs.h"

#define ENDPOINT_MAGIC		0x45475250u	/* "PRGE" */

/* What travels in struct prog_endpoint; between processes of one job, maybe of other byte order. */
struct endpoint {
	uint32_t magic;
	uint16_t abi_major;
	uint16_t abi_minor;		/* of library and daemon, the lower one */
	uint64_t key;
	uint32_t rank;
	uint32_t nranks;
	uint32_t kind;
	uint32_t mem;			/* PROG_MEM_* */
	uint64_t size;
	uint64_t base;			/* VA: address; MSG_CONTEXT: of msgs_waits() */
	uint64_t pidns;			/* pid means something to processes of the same one */
	uint64_t probe;			/* address of a u64 */
	uint64_t probe_value;		/* what is there: CMA works when it can be read */
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

void prog_win_endpoint(const struct prog_win *w, struct prog_endpoint *out)
{
	const struct prog_session *s = w->s;
	struct endpoint ep = {
		.magic = ENDPOINT_MAGIC,
		.abi_major = PROG_ABI_MAJOR,
		.abi_minor = (uint16_t)(s->abi_minor < PROG_ABI_MINOR ? s->abi_minor : PROG_ABI_MINOR),
		.key = w->key,
		.rank = w->rank,
		.nranks = w->nranks,
		.kind = w->kind,
		.mem = w->mem,
		.size = w->size,
		.base = w->mem == PROG_MEM_VA ? (uintptr_t)w->base :
			w->kind == PROG_WIN_MSG_CONTEXT ? (uintptr_t)msgs_waits(w) : 0,
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
	} else if (ep->naddrs > PROG_MAX_ADDRS || ep->mem > PROG_MEM_MSG_CONTEXT ||
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
	if (w->node)
		memcpy(w->node, node_of, (size_t)w->nranks * sizeof(*node_of));
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

bool win_pins_useful(const struct prog_win *w)
{
	uint32_t i;

	if (w->multinode || !(w->s->features & PROG_FEAT_CMA))
		return true;
	for (i = 0; w->s->move_min && i < w->nranks; i++)
		if (i != w->rank && w->node_here[i])
			return true;
	return false;
}

/* As prog_win_connect() has done with @w; under helper_lock. */
static void connect_copy(const struct prog_win *w, struct prog_win *copy, uint32_t i)
{
	uint32_t k;

	for (k = 0; k < w->nranks; k++) {
		copy->streams[k].size = w->streams[k].size;
		copy->streams[k].special = w->streams[k].special & STREAM_MAY_BIND;
	}
	memcpy(copy->node_here, w->node_here, w->nranks);
	copy->multinode = w->multinode;
	copy->neighbours = w->neighbours;
	copy->singles = w->singles;
	copy->notify = w->notify;
	copy->slot = w->slot + i;
	copy->connected = true;
}

/* What all ranks say of their memory and versions.  *@all_shared, *@minor, the oldest version: the same on all of them. */
static void take_endpoints(struct prog_win *w, const struct prog_endpoint *all, bool *all_shared, uint32_t *minor)
{
	*all_shared = true;
	*minor = PROG_ABI_MINOR;
	for (uint32_t i = 0; i < w->nranks; i++) {
		struct endpoint ep;

		get_endpoint(&all[i], &ep);
		w->streams[i].size = ep.size;
		w->node_here[i] = !memcmp(ep.guid, w->s->guid, PROG_GUID_SIZE);
		if (ep.mem != PROG_MEM_SHARED && ep.mem != PROG_MEM_NONE)
			*all_shared = false;
		if (ep.abi_minor < *minor)
			*minor = ep.abi_minor;
		if (ep.abi_minor >= 8)
			w->streams[i].special |= STREAM_MAY_BIND;
	}
}

int prog_win_connect(struct prog_win *w, const struct prog_endpoint *all, const char **reason)
{
	struct prog_ctrl_win_create req = { 0 };
	struct prog_ctrl_slot rep = { 0 };
	uint32_t nnodes = 0, minor, i;
	const char *unused;
	bool all_shared;
	int fds[2], table, err;

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
	take_endpoints(w, all, &all_shared, &minor);
	w->multinode = nnodes > 1;
	w->neighbours = nnodes < w->nranks;
	w->singles = minor >= 6;
	w->notify = minor >= 7;
	/* same answer on all ranks: it depends on the endpoints alone */
	w->native = !w->multinode && all_shared && w->singles;
	w->peers = malloc(w->nranks * sizeof(*w->peers));
	if (!w->peers) {
		close(table);
		return -ENOMEM;
	}
	memcpy(w->peers, all, w->nranks * sizeof(*w->peers));

	fds[0] = w->ctl_fd;
	fds[1] = table;
	req.key = w->key;
	req.rank = w->rank;
	req.nranks = w->nranks;
	req.mem = w->mem;
	req.region = w->mem_region;
	req.base = w->mem == PROG_MEM_VA ? (uintptr_t)w->base : w->mem_off;
	req.size = w->size;
	req.flags = (w->native ? 0 : PROG_WINF_MULTINODE) | (uint64_t)w->ncopies << PROG_WINF_COPIES_SHIFT;
	if (w->mem == PROG_MEM_VA && win_pins_useful(w) && !pin_get(w->s, w->base, w->size, &w->pin)) {
		req.region = w->pin->id;
		req.flags |= PROG_WINF_PINNED;
	}
	err = session_request(w->s, PROG_CTRL_WIN_CREATE, &req, sizeof(req), fds, 2, &rep, sizeof(rep), NULL, NULL);
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
	for (i = 0; i < w->ncopies; i++)
		connect_copy(w, w->copy[i], i + 1);
	pthread_mutex_unlock(&w->s->helper_lock);
	return 0;
}

/* ---- map -------------------------------------------------------------------------------------- */

static bool cma_works(const struct endpoint *ep)
{
	return ep->pidns && ep->pidns == pid_namespace() && mem_holds((pid_t)ep->pid, ep->probe, ep->probe_value);
}

static bool win_same_node(const struct prog_win *w, uint32_t rank, struct same_node *n)
{
	struct endpoint ep;

	if (rank == w->rank || !w->node_here[rank])
		return false;
	get_endpoint(&w->peers[rank], &ep);
	*n = (struct same_node){
		.rank = rank, .pid = (pid_t)ep.pid, .probe = ep.probe, .value = ep.probe_value, .waits = ep.base,
	};
	return cma_works(&ep);
}

int win_peer_map_at(int fd, uint64_t off, uint64_t size, struct local_peer *lp, char **mem)
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

/* The control segment @i of @n in @map, of @rank of @w. */
static int peer_ctl(struct prog_win *w, uint32_t rank, struct ctl_map *map, uint32_t i, uint32_t n,
		    struct local_peer *lp)
{
	const char *why = "";
	size_t size = map->size / n;
	int err;

	err = winctl_attach(&lp->wc, (char *)map->mem + i * size, size, w->key, rank, w->nranks, &why);
	if (err) {
		prog_log(PROG_LOG_ERROR, "window %llx: rank %u: %s", (unsigned long long)w->key, rank,
			 why);
		return err;
	}
	lp->ctl = ctl_map_get(map);
	return 0;
}

static int map_ctl(struct prog_win *w, uint32_t rank, int fd, struct local_peer *lp)
{
	uint32_t n = w->ncopies + 1;
	struct ctl_map *map = NULL;
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_size <= 0 || (uint64_t)st.st_size % (n * 4096ull))
		return -EPROTO;
	err = ctl_map_new(fd, (size_t)st.st_size, &map);
	if (err)
		return err;
	err = peer_ctl(w, rank, map, 0, n, lp);
	ctl_map_put(map);
	return err;
}

void win_peer_free(struct local_peer *lp)
{
	if (!lp)
		return;
	ctl_map_put(lp->ctl);
	if (lp->mem_map)
		munmap(lp->mem_map, lp->mem_map_size);
	free(lp);
}

/* A process of this node, or its daemon: what has ended is cleaned up by the daemon. */
static bool lock_lives(const void *ctx, uint32_t owner)
{
	const struct prog_win *w = ctx;

	if (session_check(w->s))
		return false;
	if (owner & PROG_OWNER_WORKER)
		return owner == WINLOCK_RECOVERY || (owner ^ PROG_OWNER_WORKER) < w->s->workers;
	for (uint32_t i = 0; i < w->nranks; i++)
		if (w->streams[i].local && w->streams[i].local->session == owner)
			return true;
	return false;
}

/* Once its control segment is there. */
static void know_others(const struct prog_win *w, struct local_peer *lp)
{
	lp->singles = (struct stripe_singles){ .peer = lp->wc.peers, .max = lp->wc.nranks, .count = &lp->wc.ctl->nsingles };
	lp->wc.lives = lock_lives;
	lp->wc.lives_ctx = w;
}

/* As map_peer() has done for @w. */
static int map_copy(const struct prog_win *w, struct prog_win *copy, uint32_t i, uint32_t rank)
{
	const struct stream *from = &w->streams[rank];
	struct stream *st = &copy->streams[rank];
	struct local_peer *lp = calloc(1, sizeof(*lp));
	int err = 0;

	if (!lp)
		return -ENOMEM;
	lp->aw = from->local->aw;
	lp->aw.holder = &lp->holder;
	lp->pid = from->local->pid;
	lp->session = from->local->session;
	lp->process = from->local->process;
	if (rank == w->rank)
		lp->wc = copy->wc;
	else
		err = peer_ctl(copy, rank, from->local->ctl, i, w->ncopies + 1, lp);
	if (err) {
		win_peer_free(lp);
		return err;
	}
	know_others(copy, lp);
	lp->aw.stripes = lp->wc.stripes;
	lp->aw.stripe_mask = lp->wc.stripe_mask;
	st->reach = from->reach;
	st->local = lp;
	return 0;
}

static int map_peer(struct prog_win *w, uint32_t rank, void *direct)
{
	struct stream *st = &w->streams[rank];
	struct prog_ctrl_win_peer req = { .slot = w->slot, .rank = rank };
	struct prog_ctrl_win_peer_reply rep = { 0 };
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
		know_others(w, lp);
		lp->aw = w->aw;
		lp->aw.singles = w->native ? &lp->singles : NULL;
		lp->aw.holder = &lp->holder;
		lp->session = w->s->id;
		lp->process = getpid();
		st->local = lp;
		st->reach = REACH_MEM;
		/* dynamic windows and empty ones have no base: the general path checks them */
		st->mem = w->kind == PROG_WIN_DYNAMIC ? NULL : w->base;
		return 0;
	}
	err = session_request(w->s, PROG_CTRL_WIN_PEER, &req, sizeof(req), NULL, 0, &rep, sizeof(rep),
			      fds, &nfds);
	if (err)
		goto free_peer;
	err = nfds < 1 ? -EPROTO : map_ctl(w, rank, fds[0], lp);
	if (!err && !direct && ep.size && ep.mem == PROG_MEM_SHARED)
		err = nfds < 2 || rep.size != ep.size ? -EPROTO :
		      win_peer_map_at(fds[1], rep.base, rep.size, lp, &mem);
	for (i = 0; i < nfds; i++)
		close(fds[i]);
	if (err)
		goto free_peer;
	know_others(w, lp);
	lp->aw = (struct apply_win){
		.lo = 0,
		.hi = (int64_t)ep.size,
		.stripes = lp->wc.stripes,
		.stripe_mask = lp->wc.stripe_mask,
		.owner = w->s->id,
		.singles = w->native ? &lp->singles : NULL,
		.timeout_ns = CLIENT_STRIPE_NS,
		.holder = &lp->holder,
	};
	lp->session = rep.session;
	lp->process = (pid_t)rep.pid;
	if (mem || !ep.size) {
		lp->aw.mem = mem_direct(mem);
		st->mem = mem;
		st->reach = REACH_MEM;
	}
	if ((!mem && ep.size) || w->kind == PROG_WIN_DYNAMIC) {
		st->mem = NULL;
		st->reach = REACH_RING;
		if (cma_works(&ep)) {
			lp->pid = (pid_t)ep.pid;
			st->reach = REACH_CMA;
			lp->aw.mem = mem_remote((pid_t)ep.pid,
						w->kind == PROG_WIN_DYNAMIC ? 0 : ep.base);
			if (w->s->move_min && rep.flags & PROG_PEER_PINNED)
				st->special |= STREAM_MOVABLE;
		}
	}
	st->local = lp;
	return 0;
free_peer:
	win_peer_free(lp);
	return err;
}

int prog_win_map(struct prog_win *w, void *const *direct)
{
	uint32_t i, k;
	int err;

	if (!w->connected || !w->peers)
		return -EINVAL;
	if (w->kind == PROG_WIN_MSG_CONTEXT) {
		err = msgs_start(w, win_same_node);
		if (err)
			return err;
	}
	for (i = 0; i < w->ntargets; i++) {
		if (!w->node_here[i] || w->streams[i].local)
			continue;
		err = map_peer(w, i, direct ? direct[i] : NULL);
		for (k = 0; !err && k < w->ncopies; k++)
			err = map_copy(w, w->copy[k], k + 1, i);
		if (err)
			return err;
	}
	free(w->peers);
	w->peers = NULL;
	bind_window(w);
	return 0;
}

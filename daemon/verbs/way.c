// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Ways: queue pairs by which one side reads and writes what the other one has given out of a job's memory.
 *
 * The job has a protection domain of its own on each device.  Its queue pairs of the side that gives out permit reads and writes
 * from outside and no atomics, those of the side that uses them permit nothing.  So a key is worth something on the job's own queue
 * pairs only, and as long as the memory is given out.
 *
 * What is read comes to buffers here, or to memory that was registered for that; what is written goes from there.  A way that has
 * failed is of no use any more: what was under way is lost, or is not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

/* no relaxed ordering, by which a READ would not see what a WRITE before it has written */
static const int mem_access[] = {
	[VERBS_MEM_LANDS] = IBV_ACCESS_LOCAL_WRITE,
	[VERBS_MEM_GIVEN] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	[VERBS_MEM_SHOWN] = IBV_ACCESS_REMOTE_READ,
};

static const int way_access[] = {
	[VERBS_WAY_USES] = 0,
	[VERBS_WAY_GIVES] = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	[VERBS_WAY_SHOWS] = IBV_ACCESS_REMOTE_READ,
};

/* ---- domains, and memory that is given out ---- */

static int dom_get(struct device *d, const uint8_t job[VERBS_JOB], struct dom **out, char why[VERBS_WHY])
{
	struct dom *m;

	LL_FOREACH(d->doms, m)
		if (!memcmp(m->job, job, VERBS_JOB))
			break;
	if (!m) {
		m = calloc(1, sizeof(*m));
		errno = ENOMEM;
		if (m)
			m->pd = ibv_alloc_pd(d->ctx);
		if (!m || !m->pd) {
			free(m);
			return ep_cannot(d, why, "protection domain of a job");
		}
		memcpy(m->job, job, VERBS_JOB);
		LL_PREPEND(d->doms, m);
	}
	m->ways++;
	*out = m;
	return 0;
}

static void mem_free(struct device *d, struct dom *m, struct mem *mem)
{
	ibv_dereg_mr(mem->mr);
	HASH_DELETE(hh, m->mems, mem);
	d->nmems--;
	free(mem);
}

static void dom_put(struct device *d, struct dom *m)
{
	if (--m->ways)
		return;
	while (m->mems)
		mem_free(d, m, m->mems);
	ibv_dealloc_pd(m->pd);
	LL_DELETE(d->doms, m);
	free(m);
}

static struct mem *find(const struct dom *m, uint64_t id)
{
	struct mem *mem;

	HASH_FIND(hh, m->mems, &id, sizeof(id), mem);
	return mem;
}

int way_mem_add(struct verbs_way *w, void *addr, size_t len, int use, uint64_t *id, uint32_t *key, char why[VERBS_WHY])
{
	struct device *d = w->e->d;
	struct mem *mem;

	if (d->nmems == MAX_MEMS) {
		snprintf(why, VERBS_WHY, "%s: %u pieces of memory are registered already", d->name, MAX_MEMS);
		return -EMFILE;
	}
	mem = calloc(1, sizeof(*mem));
	if (!mem) {
		snprintf(why, VERBS_WHY, "no memory");
		return -ENOMEM;
	}
	errno = ENOMEM;
	mem->mr = ibv_reg_mr(w->dom->pd, addr, len, mem_access[use]);
	if (!mem->mr) {
		int err = buf_cannot_register(d, why, len);

		free(mem);
		return err;
	}
	mem->id = ++d->v->last_mem;
	HASH_ADD(hh, w->dom->mems, id, sizeof(mem->id), mem);
	if (!mem->hh.tbl) {
		ibv_dereg_mr(mem->mr);
		free(mem);
		snprintf(why, VERBS_WHY, "no memory");
		return -ENOMEM;
	}
	d->nmems++;
	*id = mem->id;
	*key = use == VERBS_MEM_LANDS ? mem->mr->lkey : mem->mr->rkey;
	return 0;
}

bool way_mem_serves(const struct verbs_way *w, uint64_t id)
{
	return find(w->dom, id);
}

void way_mem_del(struct verbs *v, uint64_t id)
{
	struct device *d;
	struct dom *m;

	LL_FOREACH(v->devices, d) {
		LL_FOREACH(d->doms, m) {
			struct mem *mem = find(m, id);

			if (mem) {
				mem_free(d, m, mem);
				return;
			}
		}
	}
}

/* ---- reading and writing ---- */

static uint8_t *buffer(const struct verbs_way *w, uint32_t at)
{
	return w->buf + (size_t)at * VERBS_READ_MAX;
}

/* Where a READ behind a WRITE goes: nobody looks at it. */
static uint8_t *behind(const struct verbs_way *w, uint32_t at)
{
	return buffer(w, VERBS_READS) + at;
}

static bool is_full(const struct verbs_way *w)
{
	return w->head - w->tail == w->depth;
}

/* May @len bytes go by it, to or from @mem? */
static bool is_good(const struct verbs_way *w, uint32_t len, const void *mem)
{
	return w->connected && !w->failed && w->buf && len && len <= (mem ? VERBS_LAND_MAX : VERBS_READ_MAX);
}

int way_read(struct verbs_way *w, uint64_t addr, uint32_t key, uint32_t len, void *to, uint32_t to_key, void *cookie)
{
	uint32_t at = w->head % VERBS_READS;
	struct ibv_sge sge = {
		.addr = (uintptr_t)(to ? to : w->buf ? buffer(w, at) : NULL), .length = len,
		.lkey = to ? to_key : w->mr ? w->mr->lkey : 0,
	};
	struct ibv_send_wr wr = {
		.wr_id = (uint64_t)w->serial << 32 | at, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { .remote_addr = addr, .rkey = key },
	}, *bad;

	if (!is_good(w, len, to))
		return -EIO;
	if (is_full(w))
		return -EAGAIN;
	if (ibv_post_send(w->qp, &wr, &bad))
		return -EIO;
	w->part[at] = (struct part){ .cookie = cookie, .len = len, .lands = to };
	w->head++;
	return 0;
}

void *way_room(struct verbs_way *w)
{
	return is_good(w, 1, NULL) && !is_full(w) ? buffer(w, w->head % VERBS_READS) : NULL;
}

/*
 * That a WRITE has ended says that the peer's device has it, not that a processor there sees it.  A READ behind it, of its last
 * byte, is answered when that is so.
 */
int way_write(struct verbs_way *w, uint64_t addr, uint32_t key, uint32_t len, const void *from, uint32_t from_key, bool seen,
	      void *cookie)
{
	uint32_t at = w->head % VERBS_READS;
	struct ibv_sge sge[2];
	struct ibv_send_wr wr[2], *bad;

	if (!is_good(w, len, from))
		return -EIO;
	if (is_full(w))
		return -EAGAIN;
	sge[0] = (struct ibv_sge){ .addr = from ? (uintptr_t)from : (uintptr_t)buffer(w, at), .length = len,
				   .lkey = from ? from_key : w->mr->lkey };
	sge[1] = (struct ibv_sge){ .addr = (uintptr_t)behind(w, at), .length = 1, .lkey = w->mr->lkey };
	for (int i = 0; i <= seen; i++)
		wr[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)w->serial << 32 | at, .sg_list = &sge[i], .num_sge = 1,
					      .opcode = i ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
					      .send_flags = i == seen ? IBV_SEND_SIGNALED : 0,
					      .wr.rdma = { .remote_addr = i ? addr + len - 1 : addr, .rkey = key } };
	if (seen)
		wr[0].next = &wr[1];
	if (ibv_post_send(w->qp, &wr[0], &bad))
		return -EIO;
	w->part[at] = (struct part){ .cookie = cookie, .len = len, .write = true };
	w->head++;
	return 0;
}

static void fail(struct verbs_way *w, const char *why)
{
	if (w->failed)
		return;
	w->failed = true;
	w->e->d->v->host->way_failed(w->ctx, why);
}

static void ended(struct verbs_way *w, const struct ibv_wc *wc)
{
	uint32_t at = w->tail % VERBS_READS;
	const struct verbs_host *host = w->e->d->v->host;
	struct part p = w->part[at];

	if (w->failed)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		char why[VERBS_WHY];

		snprintf(why, sizeof(why), "%s: %s: %s", w->e->d->name, p.write ? "write" : "read", ibv_wc_status_str(wc->status));
		fail(w, why);
		return;
	}
	if (w->tail == w->head || (uint32_t)wc->wr_id != at) {
		fail(w, "reads or writes end that were not begun");
		return;
	}
	w->tail++;
	if (p.write)
		host->write_done(w->ctx, p.cookie, p.len);
	else
		host->read_done(w->ctx, p.cookie, p.lands ? NULL : buffer(w, at), p.len);
}

const struct way_events way_events = {
	.ended = ended,
	.failed = fail,
};

/* ---- beginning and end ---- */

static int make_qp(struct verbs_way *w, int use, char why[VERBS_WHY])
{
	struct device *d = w->e->d;
	struct ibv_qp_init_attr ia = {
		.send_cq = d->wcq, .recv_cq = d->wcq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = WAY_SENDS, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = d->port,
				 .qp_access_flags = way_access[use] };

	errno = 0;
	w->qp = ibv_create_qp(w->dom->pd, &ia);
	if (!w->qp || ibv_modify_qp(w->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return ep_cannot(d, why, "queue pair of a way");
	return ep_random_psn(d, &w->psn, why);
}

/* Where to read to, and to write from. */
static int make_buffers(struct verbs_way *w, char why[VERBS_WHY])
{
	size_t bytes = (size_t)VERBS_READS * VERBS_READ_MAX + 4096;

	errno = ENOMEM;
	w->buf = aligned_alloc(4096, bytes);
	if (!w->buf)
		return ep_cannot(w->e->d, why, "buffers of a way");
	w->mr = ibv_reg_mr(w->dom->pd, w->buf, bytes, IBV_ACCESS_LOCAL_WRITE);
	return w->mr ? 0 : buf_cannot_register(w->e->d, why, bytes);
}

void way_free(struct verbs_way *w)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct device *d;

	if (!w)
		return;
	d = w->e->d;
	if (w->qp) {
		ibv_modify_qp(w->qp, &a, IBV_QP_STATE);
		/* after this the device neither reads nor writes for it; what it completed is nobody's, by its serial */
		ibv_destroy_qp(w->qp);
	}
	if (w->mr)
		ibv_dereg_mr(w->mr);
	free(w->buf);
	DL_DELETE(d->ways, w);
	d->nways--;
	dom_put(d, w->dom);
	free(w);
}

int way_new(struct verbs_ep *e, const uint8_t job[VERBS_JOB], int use, void *ctx, struct verbs_way_end *mine,
	    struct verbs_way **out, char why[VERBS_WHY])
{
	struct device *d = e->d;
	struct ibv_device_attr da;
	struct verbs_way *w;
	int ret;

	if (!e->connected || e->failed[0]) {
		snprintf(why, VERBS_WHY, "%s: the endpoint is not connected", d->name);
		return -ENOTCONN;
	}
	if (d->nways == MAX_WAYS) {
		snprintf(why, VERBS_WHY, "%s: %u jobs and lanes have ways of it already", d->name, MAX_WAYS);
		return -EMFILE;
	}
	ret = device_make_wcq(d, why);
	if (ret)
		return ret;
	if (ibv_query_device(d->ctx, &da) || da.max_qp_rd_atom < 1 || da.max_qp_init_rd_atom < 1) {
		snprintf(why, VERBS_WHY, "%s: cannot read", d->name);
		return -EOPNOTSUPP;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		snprintf(why, VERBS_WHY, "no memory");
		return -ENOMEM;
	}
	w->e = e;
	ret = dom_get(d, job, &w->dom, why);
	if (ret) {
		free(w);
		return ret;
	}
	DL_APPEND(d->ways, w);
	d->nways++;
	w->ctx = ctx;
	w->serial = ++d->way_serial;
	w->served = da.max_qp_rd_atom < (int)VERBS_READS ? (uint32_t)da.max_qp_rd_atom : VERBS_READS;
	w->depth = da.max_qp_init_rd_atom < (int)VERBS_READS ? (uint32_t)da.max_qp_init_rd_atom : VERBS_READS;
	ret = make_qp(w, use, why);
	if (!ret && use == VERBS_WAY_USES)
		ret = make_buffers(w, why);
	if (ret) {
		way_free(w);
		return ret;
	}
	*mine = (struct verbs_way_end){ .qpn = w->qp->qp_num, .psn = w->psn, .reads = w->served };
	*out = w;
	return 0;
}

int way_connect(struct verbs_way *w, const struct verbs_way_end *peer, char why[VERBS_WHY])
{
	struct qp_path to = { .qpn = peer->qpn, .psn = peer->psn, .my_psn = w->psn, .answers = w->served };
	int ret;

	if (w->connected)
		return -EISCONN;
	if (peer->qpn < 2 || peer->qpn > QPN_MAX || peer->psn > QPN_MAX || !peer->reads || peer->reads > 255) {
		snprintf(why, VERBS_WHY, "%s: the peer's queue pair of the way is none", w->e->d->name);
		return -EINVAL;
	}
	if (w->depth > peer->reads)
		w->depth = peer->reads;
	to.asks = w->depth;
	ret = ep_qp_connect(w->e, w->qp, &w->e->peer, &to, why);
	w->connected = !ret;
	return ret;
}

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Lanes against liars: peers that know a job's key, keep to the protocol as far as they like, and then say anything.
 *
 *	honest node ==== lane, another job ====\
 *	                                        node whose lanes are tested
 *	liars: HELLO of all kinds, answers, ===/
 *	proofs, records, frames, cuts
 *
 * Of the honest job's key liars know nothing.  Its lane must not notice them: all that is sent on it comes, once and in
 * order.  What is given to the lanes by reference is given back, once; who asks for a job is answered, once; no frame comes
 * of a job that was not proven, and no lane goes on for who does not know its secret.  With `encrypt' no frame comes that was
 * not said, or after a byte that its connection's key did not seal.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include <kit/again.h>
#include <kit/liar.h>
#include <libprogbase/log.h>

#include "xport/lane.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LANES	32u
#define REFS	64u
#define JOBS	64u
#define BIG	9000u		/* bytes of a payload that is received where it goes */
#define BY_REF	LANE_REF_MIN

/* bits of the first byte */
#define HOW_SEALED	0x01
#define HOW_LANE_KEY	0x02

/* A lane of the node to a liar. */
struct held {
	struct lane *lane;
	uint32_t job;		/* that it asked for */
	unsigned int holds;
};

struct sent {			/* by reference */
	bool used, sent, over;
};

static struct {
	struct loop *loop;
	struct xport *x;
	struct xport_worker *xw;
	struct prog_addr addr;
	struct lane *honest;		/* the other end of the honest node's */
	struct held lanes[LANES];
	struct sent refs[REFS];
	unsigned int nrefs;
	unsigned int asked, answered;	/* jobs, with a callback */
	unsigned int ups;		/* first connections of lanes that it opened */
	unsigned int resumes;		/* later ones, of lanes that are gone */
	unsigned int got;		/* of the honest one's */
	unsigned int begun;
} node;

static struct {
	struct loop *loop;
	struct xport *x;
	struct xport_worker *xw;
	struct lane *lane;
	uint32_t job;
	unsigned int put, got;		/* frames sent, and answers */
} honest;

static struct kit_liars liars;
static uint8_t area[WIRE_MAX_PAYLOAD], payload[BY_REF];

static const uint8_t node_guid[PROG_GUID_SIZE] = { 1 }, honest_guid[PROG_GUID_SIZE] = { 2 }, liars_guid[PROG_GUID_SIZE] = { 3 };
static const uint8_t honest_job[PROG_JOBID_SIZE] = { 1 }, liars_job[PROG_JOBID_SIZE] = { 2 };
static const uint8_t honest_key[PROG_JOBKEY_SIZE] = { 11 }, liars_key[PROG_JOBKEY_SIZE] = { 12 }, lane_key[PROG_JOBKEY_SIZE] = { 13 };

static void demand(bool ok)
{
	if (!ok)
		abort();
}

/* Of frame @seq of the honest job. */
static const uint8_t *data_of(uint64_t seq)
{
	static uint8_t data[BIG + 256];

	if (!data[0])
		kit_data_fill(data, 0, sizeof(data));
	return data + seq % 151;
}

/* ---- the node ---- */

static struct held *held_of(const struct lane *l)
{
	for (unsigned int i = 0; i < LANES; i++)
		if (node.lanes[i].lane == l)
			return &node.lanes[i];
	return NULL;
}

static void check_frame(struct lane *l, const struct wire_frame *f)
{
	const uint8_t *id = lane_jobid(l, f->job);

	/* an opener may have closed it since */
	demand(id || lane_is_opener(l) || lane_state(l) == LANE_CLOSING);
	if (l != node.honest && !lane_is_opener(l) && id)
		demand(!memcmp(id, liars_job, PROG_JOBID_SIZE));
}

static int on_begin(void *ctx, struct lane *l, const struct wire_frame *f, struct lane_sink *sink)
{
	check_frame(l, f);
	sink->token = &node;
	if (f->target % 4 == 3 && l != node.honest)
		return -EPROTO;
	node.begun++;
	if (f->target % 4 == 2)
		return 0;
	sink->iov[0] = (struct iovec){ area, f->len / 3 };
	sink->iov[1] = (struct iovec){ area + f->len / 3, f->len - f->len / 3 };
	sink->niov = 2;
	return 0;
}

static int on_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *p, void *token)
{
	check_frame(l, f);
	demand(!token || token == &node);
	if (token)
		node.begun--;
	if (l != node.honest) {
		demand(!liars.encrypt || kit_liars_said(&liars, f->win));
		return f->target % 8 == 7 ? -EPROTO : 0;
	}
	demand(f->seq == node.got + 1 && f->total == f->len);
	demand(!memcmp(p ? p : area, data_of(f->seq), f->len));
	node.got++;
	return 0;
}

static void on_abort(void *ctx, struct lane *l, const struct wire_frame *f, void *token)
{
	demand(token == &node && node.begun);
	node.begun--;
}

static void on_up(void *ctx, struct lane *l)
{
	if (lane_is_opener(l)) {
		node.ups++;
		return;
	}
	if (!node.honest) {
		node.honest = l;
		return;
	}
	for (unsigned int i = 0; i < LANES; i++) {
		if (node.lanes[i].lane)
			continue;
		node.lanes[i] = (struct held){ .lane = l };
		return;
	}
}

static void on_down(void *ctx, struct lane *l, int err, const char *why)
{
	struct held *h = held_of(l);

	demand(l != node.honest);
	node.resumes += lane_stats(l)->resumes;
	if (h)
		h->lane = NULL;
}

static bool on_key(void *ctx, const uint8_t *id, uint8_t *key)
{
	bool known = !memcmp(id, honest_job, PROG_JOBID_SIZE);

	if (!known && memcmp(id, liars_job, PROG_JOBID_SIZE))
		return false;
	memcpy(key, known ? honest_key : liars_key, PROG_JOBKEY_SIZE);
	return true;
}

static void on_proven(void *ctx, struct lane *l, uint32_t job)
{
	demand(memcmp(lane_jobid(l, job), honest_job, PROG_JOBID_SIZE) == 0 ? l == node.honest : l != node.honest);
}

static void on_job(void *ctx, struct lane *l, uint32_t job, int err)
{
	node.answered++;
}

static void ref_sent(void *arg, int err)
{
	struct sent *s = arg;

	demand(s->used && !s->sent && !s->over);
	s->sent = true;
}

static void ref_over(void *arg, int err)
{
	struct sent *s = arg;

	demand(s->sent && !s->over);
	s->over = true;
}

static const struct lane_ref ref = { .sent = ref_sent, .over = ref_over };

static bool is_any(const void *arg, const void *ctx)
{
	return true;
}

static void cut(const uint8_t *id)
{
	for (unsigned int i = 0; i < LANES; i++)
		if (node.lanes[i].lane && !memcmp(node.lanes[i].lane->id, id, WIRE_LANE_ID_SIZE))
			lane_redial(node.lanes[i].lane, -ECONNRESET, "cut");
}

/* The node's engine sends on a lane to a liar, and whatever else it may do with it. */
static void engine(struct kit_bytes *in)
{
	struct held *h = &node.lanes[kit_u8(in) % LANES];
	uint8_t what = kit_u8(in);
	struct wire_frame f = { .seq = 1, .job = 1 + (what >> 5), .win = 3, .flags = WIRE_F_LAST };

	/* of the few that there are */
	for (unsigned int i = 0; !h->lane && i < LANES; i++)
		h = &node.lanes[i];
	if (!h->lane)
		return;
	f.type = lane_is_opener(h->lane) ? WIRE_RMA_PUT : WIRE_RMA_DATA;
	switch (what % 16) {
	case 0:
		lane_close(h->lane, what & 0x80 ? -EIO : 0, NULL);
		break;
	case 1:
		lane_redial(h->lane, -ETIMEDOUT, "no answer");
		break;
	case 2:
		lane_ping(h->lane, NULL, NULL);
		break;
	case 3:
		h->holds++;
		lane_hold(h->lane);
		break;
	case 4:
		if (!h->holds)
			break;
		h->holds--;
		lane_release(h->lane);
		break;
	case 5:
		lane_confirm(h->lane, 1);
		break;
	case 6:
		lane_job_close(h->lane, h->job);
		break;
	case 7:
		lane_copy_kept(h->lane, &ref, is_any, NULL);
		break;
	case 8:
	case 9:
	case 10:
	case 11:
		f.len = f.total = BY_REF;
		if (node.nrefs == REFS)
			break;
		node.refs[node.nrefs].used = true;
		if (lane_send(h->lane, &f, payload, &ref, &node.refs[node.nrefs]))
			node.refs[node.nrefs].used = false;
		else
			node.nrefs++;
		break;
	default:
		f.len = f.total = kit_number(in) % BIG;
		lane_send(h->lane, &f, payload, NULL, NULL);
	}
}

static void on_ping(void *ctx, int64_t rtt_ns)
{
}

/* We open a lane to a liar. */
static void open_lane(struct kit_bytes *in)
{
	uint8_t how = kit_u8(in);
	struct prog_addr addr[2] = { liars.addr, liars.addr };
	struct lane *l;
	int job = 0;

	for (unsigned int i = 0; i < LANES; i++) {
		if (node.lanes[i].lane)
			continue;
		l = lane_open(node.xw, liars_guid, addr, 1 + (how & 1));
		demand(l);
		for (int n = how >> 1 & 3; n >= 0 && node.asked < JOBS; n--) {
			job = lane_job_open(l, liars_job, liars_key, on_job, NULL);
			demand(job > 0);
			node.asked++;
		}
		if (how & 0x10)
			lane_ping(l, on_ping, NULL);
		node.lanes[i] = (struct held){ .lane = l, .job = job > 0 ? job : 0 };
		return;
	}
}

/* ---- the honest node ---- */

static int honest_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *p, void *token)
{
	demand(f->type == WIRE_RMA_DATA && f->seq == honest.got + 1 && !memcmp(p, data_of(f->seq), f->len));
	honest.got++;
	return 0;
}

static void honest_down(void *ctx, struct lane *l, int err, const char *why)
{
	demand(!honest.lane);
}

static void honest_job_cb(void *ctx, struct lane *l, uint32_t job, int err)
{
	demand(!err);
	honest.job = job;
}

/* ---- one run ---- */

static void step(unsigned int n)
{
	for (; n; n--) {
		demand(loop_run_once(node.loop, 0) >= 0);
		demand(loop_run_once(honest.loop, 0) >= 0);
		if (liars.node_guid)
			kit_liars_step(&liars);
	}
}

/* A frame each way, on the honest lane, of a length that is received in place or not. */
static void exchange(void)
{
	uint64_t seq = ++honest.put;
	struct wire_frame f = { .type = WIRE_RMA_PUT, .job = honest.job, .seq = seq, .flags = WIRE_F_LAST, .win = 3 };

	f.len = f.total = seq % 3 == 2 ? BIG : 100 + seq;
	demand(!lane_send(honest.lane, &f, data_of(seq), NULL, NULL));
	f.type = WIRE_RMA_DATA;
	f.job = 1;
	demand(!lane_send(node.honest, &f, data_of(seq), NULL, NULL));
	for (int i = 0; i < 100 && (node.got < seq || honest.got < seq); i++)
		step(1);
	demand(node.got == seq && honest.got == seq);
}

static void xport_start(struct xport **x, struct loop **loop, struct xport_worker **xw, const uint8_t *guid,
			const struct xport_handlers *handlers, uint8_t how, struct prog_addr *addr)
{
	struct xport_opts o = {
		.workers = 1, .transport = "loop", .handlers = handlers, .post = kit_post, .encrypt = how & HOW_SEALED,
		.lane_key = how & HOW_LANE_KEY ? lane_key : NULL,
	};
	struct prog_addr all[PROG_MAX_ADDRS];
	char err[XPORT_ERR];

	memcpy(o.guid, guid, sizeof(o.guid));
	demand(!loop_new(LOOP_EPOLL, loop) && !xport_new(&o, x, err) && !xport_attach(*x, 0, *loop, NULL, xw) &&
	       !xport_listen(*x, *loop, err));
	demand(xport_addrs(*x, all) == 1);
	*addr = all[0];
}

static void xport_end(struct xport *x, struct loop *loop, struct xport_worker *xw)
{
	xport_unlisten(x);
	xport_detach(xw, 0);
	xport_free(x);
	loop_free(loop);
}

static void set_up(uint8_t how)
{
	static const struct xport_handlers of_node = {
		.frame_begin = on_begin, .frame_end = on_end, .frame_abort = on_abort, .lane_up = on_up,
		.lane_down = on_down, .job_key = on_key, .job_proven = on_proven,
	}, of_honest = { .frame_end = honest_end, .lane_down = honest_down, .job_key = on_key };
	struct prog_addr addr;

	memset(&node, 0, sizeof(node));
	memset(&honest, 0, sizeof(honest));
	memset(&liars, 0, sizeof(liars));
	xport_start(&node.x, &node.loop, &node.xw, node_guid, &of_node, how, &node.addr);
	xport_start(&honest.x, &honest.loop, &honest.xw, honest_guid, &of_honest, how, &addr);
	honest.lane = lane_open(honest.xw, node_guid, &node.addr, 1);
	demand(honest.lane && lane_job_open(honest.lane, honest_job, honest_key, honest_job_cb, NULL) > 0);
	for (int i = 0; i < 50 && !honest.job; i++)
		step(1);
	demand(honest.job);
	exchange();
	liars = (struct kit_liars){
		.encrypt = how & HOW_SEALED, .lane_key = how & HOW_LANE_KEY ? lane_key : NULL,
		.guid = liars_guid, .other_guid = honest_guid, .node_guid = node_guid, .node = node.addr,
		.jobid = liars_job, .jobkey = liars_key, .other_jobid = honest_job, .cut = cut,
	};
	memcpy(liars.other_id, node.honest->id, sizeof(liars.other_id));
	kit_liars_start(&liars);
}

static void tear_down(void)
{
	struct lane *l = node.honest;

	demand(lane_state(l) == LANE_UP && lane_state(honest.lane) == LANE_UP && !lane_stats(l)->resumes);
	for (unsigned int i = 0; i < LANES; i++)
		if (node.lanes[i].lane)
			node.resumes += lane_stats(node.lanes[i].lane)->resumes;
	demand(node.ups + node.resumes <= liars.authentic);
	node.honest = honest.lane = NULL;
	xport_end(honest.x, honest.loop, honest.xw);
	xport_end(node.x, node.loop, node.xw);
	for (unsigned int i = 0; i < node.nrefs; i++)
		demand(node.refs[i].over);
	demand(!node.begun && node.asked >= node.answered);
	kit_liars_end(&liars);
}

static void act(struct kit_bytes *in)
{
	static const uint64_t ms[] = { 1, 20, 60, 300, 1000, 3000, 6000, 60000 };
	uint8_t what = kit_u8(in);
	struct kit_liar *l = &liars.liar[what >> 4 & (KIT_LIARS - 1)];

	switch (what % 12) {
	case 0:
		kit_pass(ms[what >> 5] * 1000000u);
		break;
	case 1:
		kit_liar_hello(l, in);
		break;
	case 2:
		kit_liar_frame(l, in);
		break;
	case 3:
		kit_liar_bytes(l, in);
		break;
	case 4:
		kit_liar_hang_up(l, what & 0x80);
		break;
	case 5:
		open_lane(in);
		break;
	case 6:
	case 7:
		engine(in);
		break;
	case 8:
		exchange();
		break;
	default:
		for (int i = 0; i < 4; i++) {
			kit_liar_go_on(l, in);
			step(3);
		}
	}
	step(1 + (what >> 6));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool again;
	struct kit_bytes in = { data, size };
	uint8_t how = kit_u8(&in);

	if (!again)
		kit_again_init();
	again = true;
	kit_again();
	log_set_level(PROG_LOG_ERROR - 1);
	set_up(how);
	while (in.left)
		act(&in);
	step(10);
	exchange();
	tear_down();
	return 0;
}

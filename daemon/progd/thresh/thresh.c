// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Pairs of ranks: what their programs did, what their transfers took, and what follows from it. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "thresh/thresh.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include <libprogbase/guard.h>
#include <wire/wire.h>

#include "win/user.h"

#define WINDOW		4u		/* rendezvous messages from one look at a direction to the next */
#define OVERLAP_MIN	0.5		/* overlap time over the time of the transfer: the threshold rises from here on */
#define EXTRA		1024u		/* what a threshold has beyond the power of two */
#define DECAY		0.875		/* weight of what was measured before the last transfer */
/* until the first transfer ends */
#define GUESS_NS	50e3
#define GUESS_NS_PER_B	1.0

struct dir {
	uint64_t eager;			/* IN: in force unless pinned; OUT: what we wish */
	uint64_t agreed;		/* OUT: as the receiver said last */
	uint64_t pin;			/* OUT: offload, IN: eager */
	bool pinned;
	uint64_t marked;		/* refused: until then, ns; 0: not */
	uint64_t messages, bytes;
	uint64_t rdv, rdv_bytes;
	uint32_t switches, refused;
	/* at the last look */
	uint64_t was_rdv, was_rdv_bytes;
	uint64_t was_msgs, was_bytes, was_idle;
};

struct pair {
	uint32_t peer;
	UT_hash_handle hh;
	/* least squares of time over bytes, older transfers weigh less */
	double w, x, y, xx, xy;
	struct dir dir[2];
};

struct thresh {
	pthread_mutex_t lock;		/* everything below that changes */
	struct thresh_opts o;
	struct thresh_conf conf;
	struct pair *pairs;
	struct thresh *next, *prev;	/* all_lock */
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;	/* taken before a struct's */
static struct thresh *all GUARDED_BY(all_lock);
static struct thresh_conf conf GUARDED_BY(all_lock);
static struct ended {
	uint32_t job;			/* 0: free */
	struct thresh_sum sum;
} ended[THRESH_ENDED] GUARDED_BY(all_lock);
static unsigned int next_ended GUARDED_BY(all_lock);

static uint64_t client_u64(const __u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void publish(__u64 *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/* ---- values in force ---- */

static uint64_t eager_of(const struct thresh *t, const struct dir *d)
{
	uint64_t v = d->pinned ? d->pin : d->eager > t->conf.eager ? d->eager : t->conf.eager;

	return v < t->conf.eager_max ? v : t->conf.eager_max;
}

static uint64_t offload_default(const struct thresh_conf *c)
{
	if (!c->on)
		return THRESH_NONE;
	return c->offload > c->offload_min ? c->offload : c->offload_min;
}

static uint64_t offload_of(const struct thresh *t, const struct dir *d)
{
	if (!t->conf.on || !d->pinned)
		return offload_default(&t->conf);
	return d->pin > t->conf.offload_min ? d->pin : t->conf.offload_min;
}

static void publish_pair(struct thresh *t, struct pair *p)
{
	struct prog_p2p_peer *c = &t->o.peers[p->peer];
	const struct dir *out = &p->dir[THRESH_OUT];

	publish(&c->offload, out->pinned ? offload_of(t, out) : 0);
	publish(&c->eager, eager_of(t, &p->dir[THRESH_IN]));
}

static void publish_all(struct thresh *t) GUARD_NEEDS(all_lock)
{
	struct pair *p, *tmp;

	publish(&t->o.area->offload_default, offload_default(&t->conf));
	publish(&t->o.area->offload_min, t->conf.offload_min);
	__atomic_store_n(&t->o.area->flags, t->conf.always ? PROG_P2PA_ALWAYS : 0, __ATOMIC_RELAXED);
	HASH_ITER(hh, t->pairs, p, tmp)
		publish_pair(t, p);
}

void thresh_conf_set(const struct thresh_conf *c)
{
	struct thresh *t;

	pthread_mutex_lock(&all_lock);
	conf = *c;
	DL_FOREACH(all, t) {
		pthread_mutex_lock(&t->lock);
		t->conf = *c;
		publish_all(t);
		pthread_mutex_unlock(&t->lock);
	}
	pthread_mutex_unlock(&all_lock);
}

void thresh_conf_get(struct thresh_conf *c)
{
	pthread_mutex_lock(&all_lock);
	*c = conf;
	pthread_mutex_unlock(&all_lock);
}

int thresh_new(const struct thresh_opts *o, struct thresh **out)
{
	struct thresh *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	t->o = *o;
	pthread_mutex_lock(&all_lock);
	t->conf = conf;
	publish_all(t);
	DL_APPEND(all, t);
	pthread_mutex_unlock(&all_lock);
	*out = t;
	return 0;
}

static void add_sum(const struct thresh *t, struct thresh_sum *s) GUARD_NEEDS(all_lock)
{
	const struct pair *p;

	for (p = t->pairs; p; p = p->hh.next) {
		const struct prog_p2p_peer *c = &t->o.peers[p->peer];

		for (int dir = 0; dir < 2; dir++) {
			s->switches += p->dir[dir].switches;
			s->refused += p->dir[dir].refused;
		}
		s->sends += client_u64(&c->sends);
		s->recvs += client_u64(&c->recvs);
		s->bytes += client_u64(&c->bytes);
		s->idle_ns += client_u64(&c->idle_ns);
		s->late += __atomic_load_n(&c->late, __ATOMIC_RELAXED);
		s->withdrawn += __atomic_load_n(&c->withdrawn, __ATOMIC_RELAXED);
	}
}

static struct ended *ended_of(uint32_t job) GUARD_NEEDS(all_lock)
{
	for (unsigned int i = 0; i < THRESH_ENDED; i++)
		if (ended[i].job == job)
			return &ended[i];
	return NULL;
}

void thresh_free(struct thresh *t)
{
	struct pair *p, *tmp;
	struct ended *e;

	if (!t)
		return;
	pthread_mutex_lock(&all_lock);
	DL_DELETE(all, t);
	e = ended_of(t->o.job);
	if (!e) {
		e = &ended[next_ended++ % THRESH_ENDED];
		*e = (struct ended){ .job = t->o.job };
	}
	add_sum(t, &e->sum);
	pthread_mutex_unlock(&all_lock);
	win_user_uncharge(t->o.user, USER_TABLES, HASH_COUNT(t->pairs) * sizeof(*p));
	HASH_ITER(hh, t->pairs, p, tmp) {
		HASH_DEL(t->pairs, p);
		free(p);
	}
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static struct pair *pair_get(struct thresh *t, uint32_t peer) GUARD_NEEDS(t->lock)
{
	struct pair *p;

	if (peer >= t->o.nranks)
		return NULL;
	HASH_FIND(hh, t->pairs, &peer, sizeof(peer), p);
	if (p)
		return p;
	if (win_kept_charge(t->o.user, sizeof(*p)))
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		goto fail;
	p->peer = peer;
	HASH_ADD(hh, t->pairs, peer, sizeof(peer), p);
	if (!p->hh.tbl)
		goto fail;
	publish_pair(t, p);
	return p;
fail:
	free(p);
	win_user_uncharge(t->o.user, USER_TABLES, sizeof(*p));
	return NULL;
}

/* ---- how long a transfer takes ---- */

static void estimate(const struct pair *p, double *ns, double *ns_per_byte)
{
	double det = p->w * p->xx - p->x * p->x;

	*ns = GUESS_NS;
	*ns_per_byte = GUESS_NS_PER_B;
	if (p->x <= 0)
		return;
	/* sizes that are all about the same tell the sum only, and so does noise that is larger than the rest */
	if (det > 1e-3 * p->w * p->xx) {
		*ns_per_byte = (p->w * p->xy - p->x * p->y) / det;
		*ns = (p->y - *ns_per_byte * p->x) / p->w;
		if (*ns_per_byte > 0 && *ns >= 0)
			return;
	}
	*ns = 0;
	*ns_per_byte = p->y / p->x;
}

void thresh_moved(struct thresh *t, uint32_t peer, uint64_t bytes, uint64_t ns)
{
	struct pair *p;
	double x = bytes, y = ns ? ns : 1;

	if (!bytes)
		return;
	pthread_mutex_lock(&t->lock);
	p = pair_get(t, peer);
	if (p) {
		p->w = DECAY * p->w + 1;
		p->x = DECAY * p->x + x;
		p->y = DECAY * p->y + y;
		p->xx = DECAY * p->xx + x * x;
		p->xy = DECAY * p->xy + x * y;
	}
	pthread_mutex_unlock(&t->lock);
}

/* Overlap time, outside of MPI, over the estimated time of @msgs transfers of together @bytes; < 0: there were none. */
static double overlap(const struct pair *p, uint64_t msgs, uint64_t bytes, uint64_t idle)
{
	double ns, ns_per_byte;

	estimate(p, &ns, &ns_per_byte);
	ns = msgs * ns + bytes * ns_per_byte;
	return msgs && ns > 0 ? idle / ns : -1;
}

/* ---- adaptation ---- */

static uint64_t threshold_for(uint64_t mean)
{
	uint64_t v = 1;

	while (v < mean && v < 1ull << 62)
		v <<= 1;
	return v + EXTRA;
}

static bool marked(struct dir *d, uint64_t now)
{
	if (d->marked && now >= d->marked)
		d->marked = 0;
	return d->marked;
}

static void mark(struct thresh *t, struct dir *d, uint64_t now) GUARD_NEEDS(t->lock)
{
	d->refused++;
	d->marked = now + (t->conf.retry_ns ? t->conf.retry_ns : 1);
}

static void raise_to(struct thresh *t, struct pair *p, struct dir *d, uint64_t value) GUARD_NEEDS(t->lock)
{
	if (value > t->conf.eager_max)
		value = t->conf.eager_max;
	if (value <= d->eager || value <= t->conf.eager)
		return;
	d->eager = value;
	d->switches++;
	publish_pair(t, p);
}

/* Has the program computed while messages above the threshold moved? */
static void look(struct thresh *t, struct pair *p, struct dir *d) GUARD_NEEDS(t->lock)
{
	const struct prog_p2p_peer *c = &t->o.peers[p->peer];
	uint64_t n = d->rdv - d->was_rdv, mean, msgs, bytes, idle;

	if (n < WINDOW)
		return;
	msgs = client_u64(&c->sends) + client_u64(&c->recvs);
	bytes = client_u64(&c->bytes);
	idle = client_u64(&c->idle_ns);
	/* the program tells of a message when it completes it: later than we see it */
	if (msgs - d->was_msgs < WINDOW)
		return;
	mean = (d->rdv_bytes - d->was_rdv_bytes) / n + WIRE_HDR_SIZE;
	if (overlap(p, msgs - d->was_msgs, bytes - d->was_bytes, idle - d->was_idle) >= OVERLAP_MIN)
		raise_to(t, p, d, threshold_for(mean));
	d->was_rdv = d->rdv;
	d->was_rdv_bytes = d->rdv_bytes;
	d->was_msgs = msgs;
	d->was_bytes = bytes;
	d->was_idle = idle;
}

static void message(struct thresh *t, struct pair *p, struct dir *d, uint64_t len, uint64_t eager)
	GUARD_NEEDS(t->lock)
{
	d->messages++;
	d->bytes += len;
	if (len <= eager)
		return;
	d->rdv++;
	d->rdv_bytes += len;
	look(t, p, d);
}

int64_t thresh_wish(struct thresh *t, uint32_t peer, uint64_t len, uint64_t now)
{
	struct pair *p;
	int64_t wish = 0;

	pthread_mutex_lock(&t->lock);
	p = pair_get(t, peer);
	if (p) {
		struct dir *d = &p->dir[THRESH_OUT];

		message(t, p, d, len, d->agreed);
		if (!marked(d, now))
			wish = d->eager;
	}
	pthread_mutex_unlock(&t->lock);
	return wish;
}

void thresh_ats(struct thresh *t, uint32_t peer, int64_t value, uint64_t now)
{
	struct pair *p;

	pthread_mutex_lock(&t->lock);
	p = pair_get(t, peer);
	if (p) {
		struct dir *d = &p->dir[THRESH_OUT];

		if (value >= 0) {
			d->agreed = value;
		} else {
			d->agreed = 0;
			/* those under way when the first refusal came bring it again */
			if (!marked(d, now))
				mark(t, d, now);
		}
	}
	pthread_mutex_unlock(&t->lock);
}

bool thresh_arrived(struct thresh *t, uint32_t peer, uint64_t len, int64_t wish, uint64_t now)
{
	struct pair *p;
	bool take = false;

	pthread_mutex_lock(&t->lock);
	p = pair_get(t, peer);
	if (p) {
		struct dir *d = &p->dir[THRESH_IN];
		bool no = marked(d, now);

		message(t, p, d, len, no ? 0 : eager_of(t, d));
		if (wish > 0 && !d->pinned && !no) {
			if (t->conf.eager_max)
				raise_to(t, p, d, wish);
			else
				mark(t, d, now);
		}
		take = !no && len <= eager_of(t, d);
	}
	pthread_mutex_unlock(&t->lock);
	return take;
}

void thresh_no_pool(struct thresh *t, uint32_t peer, uint64_t now)
{
	struct pair *p;

	pthread_mutex_lock(&t->lock);
	p = pair_get(t, peer);
	if (p && !marked(&p->dir[THRESH_IN], now))
		mark(t, &p->dir[THRESH_IN], now);
	pthread_mutex_unlock(&t->lock);
}

int64_t thresh_answer(struct thresh *t, uint32_t peer, uint64_t now)
{
	struct pair *p;
	int64_t v = 0;

	pthread_mutex_lock(&t->lock);
	p = pair_get(t, peer);
	if (p)
		v = marked(&p->dir[THRESH_IN], now) ? THRESH_REFUSED :
						      (int64_t)eager_of(t, &p->dir[THRESH_IN]);
	pthread_mutex_unlock(&t->lock);
	return v;
}

bool thresh_waits(const struct thresh *t, uint32_t peer)
{
	return peer < t->o.nranks && __atomic_load_n(&t->o.peers[peer].blocking, __ATOMIC_RELAXED) == 1;
}

void thresh_left(struct thresh *t, uint32_t peer, bool waits)
{
	if (peer < t->o.nranks)
		__atomic_store_n(&t->o.peers[peer].left, waits, __ATOMIC_RELAXED);
}

/* ---- reports and pins ---- */

static void fill(const struct thresh *t, const struct pair *p, int dir, struct thresh_info *i)
	GUARD_NEEDS(t->lock)
{
	const struct prog_p2p_peer *c = &t->o.peers[p->peer];
	const struct dir *d = &p->dir[dir];
	double ns_per_byte;

	*i = (struct thresh_info){
		.job = t->o.job, .dir = dir,
		.from = dir == THRESH_OUT ? t->o.rank : p->peer,
		.to = dir == THRESH_OUT ? p->peer : t->o.rank,
		.offload = dir == THRESH_OUT ? offload_of(t, d) : 0,
		.eager = dir == THRESH_OUT ? d->agreed : eager_of(t, d),
		.offload_pinned = dir == THRESH_OUT && d->pinned,
		.eager_pinned = dir == THRESH_IN && d->pinned,
		.marked = d->marked, .messages = d->messages, .bytes = d->bytes,
		.rendezvous = d->rdv, .rendezvous_bytes = d->rdv_bytes,
		.switches = d->switches, .refused = d->refused,
	};
	i->overlap = overlap(p, client_u64(&c->sends) + client_u64(&c->recvs), client_u64(&c->bytes),
		       client_u64(&c->idle_ns));
	if (p->x > 0) {
		estimate(p, &i->latency_ns, &ns_per_byte);
		i->bandwidth = 1e9 / ns_per_byte;
	}
}

void thresh_each(void (*fn)(void *arg, const struct thresh_info *i), void *arg)
{
	struct thresh_info i;
	struct pair *p, *tmp;
	struct thresh *t;

	pthread_mutex_lock(&all_lock);
	DL_FOREACH(all, t) {
		pthread_mutex_lock(&t->lock);
		HASH_ITER(hh, t->pairs, p, tmp)
			for (int dir = 0; dir < 2; dir++) {
				if (!p->dir[dir].messages && !p->dir[dir].pinned)
					continue;
				fill(t, p, dir, &i);
				fn(arg, &i);
			}
		pthread_mutex_unlock(&t->lock);
	}
	pthread_mutex_unlock(&all_lock);
}

static int pin(struct thresh *t, uint32_t peer, int dir, uint64_t value, bool dry) GUARD_NEEDS(t->lock)
{
	struct pair *p;

	if (peer >= t->o.nranks)
		return -EINVAL;
	if (value != THRESH_UNPIN &&
	    (dir == THRESH_OUT ? value < t->conf.offload_min : value > t->conf.eager_max))
		return -ERANGE;
	p = pair_get(t, peer);
	if (!p)
		return -ENOMEM;
	if (dry)
		return 0;
	p->dir[dir].pinned = value != THRESH_UNPIN;
	p->dir[dir].pin = value;
	publish_pair(t, p);
	return 0;
}

int thresh_pin(uint32_t job, uint32_t rank, uint32_t peer, int dir, uint64_t value, bool dry)
{
	struct thresh *t;
	int r = -ENOENT;

	pthread_mutex_lock(&all_lock);
	DL_FOREACH(all, t) {
		if (t->o.job != job || t->o.rank != rank)
			continue;
		pthread_mutex_lock(&t->lock);
		r = pin(t, peer, dir, value, dry);
		pthread_mutex_unlock(&t->lock);
		break;
	}
	pthread_mutex_unlock(&all_lock);
	return r;
}

void thresh_sum(uint32_t job, struct thresh_sum *s)
{
	const struct ended *e;
	struct thresh *t;

	pthread_mutex_lock(&all_lock);
	e = ended_of(job);
	*s = e ? e->sum : (struct thresh_sum){ 0 };
	DL_FOREACH(all, t) {
		if (t->o.job != job)
			continue;
		pthread_mutex_lock(&t->lock);
		add_sum(t, s);
		pthread_mutex_unlock(&t->lock);
	}
	pthread_mutex_unlock(&all_lock);
}

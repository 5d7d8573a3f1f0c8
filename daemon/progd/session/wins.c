// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Windows and regions of a client. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/log.h>

#include "session/priv.h"

static uint32_t free_slot(_Atomic(struct win *) *wins, _Atomic(struct win_map *) *regions,
			  uint32_t from, uint32_t max)
{
	while (from < max && (wins ? (void *)atomic_load_explicit(&wins[from], memory_order_relaxed) :
			      (void *)atomic_load_explicit(&regions[from], memory_order_relaxed)))
		from++;
	return from;
}

/* The client's messages begin or end. */
static int space_begin(struct session *s, struct win *w)
{
	int err = rndv_space_new(s->all->o.node->rndv[0], &s->n, w, &s->space);

	if (err)
		return err;
	err = session_tell_space(s);
	if (!err)
		return 0;
	session_tell_space_gone(s);
	rndv_space_put(s->space);
	s->space = NULL;
	return err;
}

void session_space_end(struct session *s)
{
	if (!s->space)
		return;
	session_tell_space_gone(s);
	rndv_space_put(s->space);
	s->space = NULL;
}

static void drop_win(struct session *s, uint32_t slot, bool dead, struct win_left *left)
{
	struct win *w = atomic_exchange(&s->c.wins[slot], NULL);

	if (slot == s->space_slot)
		session_space_end(s);
	if (slot < s->win_hint)
		s->win_hint = slot;
	s->nwins--;
	/* else the client lives, and may be in its critical section still */
	if (!s->all->ending)
		session_unlock_win(s->all, w, dead, left);
	win_get(w);
	win_free(w);
	session_tell_win_gone(s->all, w);
	win_put(w);
}

/* The client gives it back, or never had it. */
static void give_up_win(struct session *s, uint32_t slot)
{
	struct win_left left = { 0 };

	drop_win(s, slot, false, &left);
	session_tell_kick(s->all, left.kick);
}

static void keep_win(struct session *s, uint32_t slot, struct win *w)
{
	atomic_store_explicit(&s->c.wins[slot], w, memory_order_release);
	s->win_hint = slot + 1;
	s->nwins++;
}

/* The first of @n slots in a row that are free, or MAX_WINS. */
static uint32_t free_slots(const struct session *s, uint32_t n)
{
	uint32_t from, at;

	for (from = s->win_hint; from + n <= MAX_WINS; from = at + 1) {
		for (at = from; at < from + n; at++)
			if (atomic_load_explicit(&s->c.wins[at], memory_order_relaxed))
				break;
		if (at == from + n)
			return from;
	}
	return MAX_WINS;
}

/*
 * All @n windows of PROG_WIN_COPIES, or none.  @c is that of the first; its descriptors are taken over.
 * *@first: its slot.
 */
static int create_copies(struct session *s, struct win_create *c, uint32_t n, uint32_t *first, const char **why)
{
	uint32_t hint = s->win_hint, made = 0;
	struct win_map *map = NULL;
	int err;

	err = win_map_fd(s->c.view.job->user, c->ctl_fd, n * sizeof(struct prog_win_ctl), true, &map, why);
	if (!err && map->size % (n * 4096ull)) {
		*why = "the control segments of several windows are not of whole pages";
		err = -EPROTO;
	}
	*first = free_slots(s, n);
	if (!err && *first == MAX_WINS) {
		*why = "too many windows of one process";
		err = -ENOSPC;
	}
	c->ctl_map = map;
	for (; !err && made < n; c->key++) {
		struct win *w;

		c->slot = *first + made;
		c->ctl_size = map->size / n;
		c->ctl_off = made * c->ctl_size;
		err = win_new(c, &w, why);
		if (!err) {
			keep_win(s, c->slot, w);
			made++;
		}
	}
	close(c->table_fd);
	win_map_put(map);
	while (err && made)
		give_up_win(s, *first + --made);
	/* there may be free slots before the first */
	s->win_hint = !err && *first == hint ? hint + n : hint;
	return err;
}

/* May the request be?  Then the region that its memory is in, if it is in one, is in @c. */
static int win_create_check(const struct session *s, const struct msg *m, uint32_t copies, struct win_create *c,
			    const char **why)
{
	const struct prog_ctrl_win_create *q = &m->win_create;
	bool shared = q->mem == PROG_MEM_SHARED, pinned = q->mem == PROG_MEM_VA && q->flags & PROG_WINF_PINNED;

	if (copies && (q->mem != PROG_MEM_DYNAMIC || copies >= PROG_WIN_COPIES_MAX || q->key + copies < q->key)) {
		*why = "a request for several windows is not for dynamic ones, or for too many";
		return -EINVAL;
	}
	if (q->mem == PROG_MEM_MSG_CONTEXT && (s->space || !s->n.area)) {
		*why = s->space ? "a process has one window for messages" :
				  "a window for messages without an area for them";
		return s->space ? -EEXIST : -EOPNOTSUPP;
	}
	if ((shared && m->nfds == 2) || pinned) {
		c->mem_map = win_region(&s->c.view.regions, q->region);
		if (!c->mem_map) {
			*why = pinned ? "a window names a pinned region that is not there" :
					"a window names a region that is not there";
			return -EINVAL;
		}
	}
	return 0;
}

/* One window; @c's descriptors are taken over. */
static int create_one(struct session *s, const struct win_create *c, const char **why)
{
	struct win *w;
	int err = win_new(c, &w, why);

	if (err)
		return err;
	keep_win(s, c->slot, w);
	if (c->mem == PROG_MEM_MSG_CONTEXT) {
		err = space_begin(s, w);
		if (err) {
			*why = "the daemon is out of memory";
			give_up_win(s, c->slot);
			return err;
		}
		s->space_slot = c->slot;
	}
	prog_log(PROG_LOG_DEBUG, "session %u: window %u: key %llx, rank %u of %u, %llu bytes", s->id,
		 c->slot, (unsigned long long)w->key, w->rank, w->nranks, (unsigned long long)w->size);
	return 0;
}

/* What became of a new window or region: @what names the refusal to those who look at the job, or the log. */
static int reply_slot(struct session *s, struct prog_ctrl_slot *r, uint16_t type, const char *what, int err,
		      const char *why)
{
	if (err) {
		session_msg_reason(r->reason, why);
		win_job_reason(s->c.view.job, what, why);
		prog_log_limited(PROG_LOG_WARN, "session %u: %s: %s", s->id, what, why);
	}
	return session_msg_reply(s, r, sizeof(*r), type, err, NULL, 0);
}

int session_win_create(struct session *s, struct msg *m)
{
	uint32_t copies = (uint32_t)(m->win_create.flags >> PROG_WINF_COPIES_SHIFT & PROG_WINF_COPIES_MASK);
	struct prog_ctrl_win_create *q = &m->win_create;
	struct prog_ctrl_slot r = { 0 };
	struct win_create c = {
		.job = s->c.view.job, .key = q->key, .rank = q->rank, .nranks = q->nranks, .mem = q->mem,
		.base = q->base, .size = q->size, .flags = q->flags, .session = s->id, .pid = s->pid,
		.cma = s->c.view.cma, .helper = s->c.view.helper, .regions = &s->c.view.regions,
	};
	const char *why = "";
	int err;

	if (m->nfds != 2 && !(m->nfds == 3 && q->mem == PROG_MEM_SHARED)) {
		why = "a window comes with control segment, table and, if it is shared, memory";
		err = -EPROTO;
		goto out;
	}
	c.slot = free_slot(s->c.wins, NULL, s->win_hint, MAX_WINS);
	if (c.slot == MAX_WINS) {
		why = "too many windows of one process";
		err = -ENOSPC;
		goto out;
	}
	err = win_create_check(s, m, copies, &c, &why);
	if (err)
		goto out;
	r.slot = c.slot;
	c.ctl_fd = session_msg_take_fd(m, 0);
	c.table_fd = session_msg_take_fd(m, 1);
	c.mem_fd = session_msg_take_fd(m, 2);
	err = copies ? create_copies(s, &c, copies + 1, &r.slot, &why) : create_one(s, &c, &why);
out:
	return reply_slot(s, &r, PROG_CTRL_WIN_CREATE, "window refused", err, why);
}

int session_win_free(struct session *s, struct msg *m)
{
	struct prog_ctrl_slot r = { .slot = m->slot.slot };
	int err = 0;

	if (r.slot >= MAX_WINS || !atomic_load(&s->c.wins[r.slot])) {
		session_msg_reason(r.reason, "no such window");
		err = -ENOENT;
	} else {
		give_up_win(s, r.slot);
	}
	return session_msg_reply(s, &r, sizeof(r), PROG_CTRL_WIN_FREE, err, NULL, 0);
}

int session_win_keys(struct session *s, struct msg *m)
{
	struct prog_ctrl_slot r = { .slot = m->slot.slot };
	struct win *w = r.slot < MAX_WINS ? atomic_load(&s->c.wins[r.slot]) : NULL;
	int err = 0;

	if (w) {
		session_tell_keys_end(s->all, w);
	} else {
		session_msg_reason(r.reason, "no such window");
		err = -ENOENT;
	}
	return session_msg_reply(s, &r, sizeof(r), PROG_CTRL_WIN_KEYS, err, NULL, 0);
}

int session_win_peer(struct session *s, struct msg *m)
{
	struct prog_ctrl_win_peer_reply r = { 0 };
	struct win *own, *w = NULL;
	int fds[2], err = 0;
	unsigned int nfds = 0;

	own = m->win_peer.slot < MAX_WINS ? atomic_load(&s->c.wins[m->win_peer.slot]) : NULL;
	if (!own) {
		session_msg_reason(r.reason, "no such window");
		err = -ENOENT;
		goto out;
	}
	w = win_find(s->c.view.job, own->key, m->win_peer.rank);
	if (!w) {
		session_msg_reason(r.reason, "that rank of the window is not on this node");
		err = -ENOENT;
		goto out;
	}
	r.mem = w->access.mem;
	r.session = w->session;
	r.pid = w->pid;
	r.base = w->base;
	r.size = w->size;
	r.flags = w->mem_map && w->mem_map->device ? PROG_PEER_PINNED : 0;
	fds[nfds++] = w->ctl_map->fd;
	if (w->mem_map && w->mem_map->fd >= 0)
		fds[nfds++] = w->mem_map->fd;
out:
	err = session_msg_reply(s, &r, sizeof(r), PROG_CTRL_WIN_PEER, err, fds, nfds);
	win_put(w);
	return err;
}

/* A slot for one more region, charged to the user. */
static int region_reserve(struct session *s, uint32_t *slot, const char **why)
{
	*slot = free_slot(NULL, s->c.view.regions.map, s->region_hint, MAX_REGIONS);
	if (*slot == MAX_REGIONS) {
		*why = "too many regions of one process";
		return -ENOSPC;
	}
	return win_region_charge(s->c.view.job->user, why);
}

static void region_keep(struct session *s, uint32_t slot, struct win_map *map)
{
	atomic_store_explicit(&s->c.view.regions.map[slot], map, memory_order_release);
	s->region_hint = slot + 1;
	s->nregions++;
	if (map->device)
		s->pinned += map->size;
}

int session_region_add(struct session *s, struct msg *m)
{
	struct prog_ctrl_slot r = { 0 };
	struct win_map *map;
	const char *why = "";
	int err;

	if (m->nfds != 1) {
		why = "a region comes with exactly one descriptor";
		err = -EPROTO;
	} else {
		err = region_reserve(s, &r.slot, &why);
	}
	if (err)
		goto out;
	err = win_map_fd(s->c.view.job->user, session_msg_take_fd(m, 0), m->region_add.size, true, &map, &why);
	if (err)
		win_region_uncharge(s->c.view.job->user);
	else
		region_keep(s, r.slot, map);
out:
	return reply_slot(s, &r, PROG_CTRL_REGION_ADD, "region refused", err, why);
}

int session_region_del(struct session *s, struct msg *m)
{
	struct prog_ctrl_slot r = { .slot = m->slot.slot };
	struct win_map *map = r.slot < MAX_REGIONS ? atomic_exchange(&s->c.view.regions.map[r.slot], NULL) : NULL;
	int err = 0;

	if (!map) {
		session_msg_reason(r.reason, "no such region");
		err = -ENOENT;
	} else {
		/* after this no worker looks at it but through a reference of its own */
		session_tell_region_gone(s->all, map);
		if (map->device)
			s->pinned -= map->size;
		win_map_put(map);
		win_region_uncharge(s->c.view.job->user);
		if (r.slot < s->region_hint)
			s->region_hint = r.slot;
		s->nregions--;
	}
	return session_msg_reply(s, &r, sizeof(r), PROG_CTRL_REGION_DEL, err, NULL, 0);
}

int session_pin_device(struct session *s, struct msg *m)
{
	struct prog_ctrl_slot r = { 0 };
	const char *why = "";
	unsigned int nfds = 0;
	int err, fd = -1;

	if (!s->all->o.pinned) {
		why = "pinned memory is not used by this daemon (pinned=no)";
		err = -EOPNOTSUPP;
	} else if (s->device) {
		why = "a session has one context of " PIN_DEVICE;
		err = -EEXIST;
	} else if (m->nfds > 1) {
		why = "one descriptor at most, a context of " PIN_DEVICE;
		err = -EPROTO;
	} else {
		err = win_device_new(session_msg_take_fd(m, 0), &s->device, &why);
		if (!err && !m->nfds) {
			fd = s->device->dev.fd;
			nfds = 1;
		}
	}
	if (err) {
		session_msg_reason(r.reason, why);
		win_job_reason(s->c.view.job, "memory not pinned", why);
		prog_log_limited(PROG_LOG_INFO, "session %u: %s: %s", s->id, why, strerror(-err));
	}
	return session_msg_reply(s, &r, sizeof(r), PROG_CTRL_PIN_DEVICE, err, &fd, nfds);
}

int session_pin_add(struct session *s, struct msg *m)
{
	struct prog_ctrl_pin_add *q = &m->pin_add;
	struct prog_ctrl_slot r = { 0 };
	struct win_limits lim;
	struct win_map *map;
	const char *why = "";
	int err;

	if (!q->handle) {
		/* told for the reports */
		win_job_reason(s->c.view.job, "memory not pinned", pin_why(q->error));
		return session_msg_reply(s, &r, sizeof(r), PROG_CTRL_PIN_ADD, 0, NULL, 0);
	}
	win_limits_get(&lim);
	if (m->nfds || !s->device) {
		why = "a pinned region comes without descriptor, after the context";
		err = -EPROTO;
	} else if (q->size > lim.pin || s->pinned > lim.pin - q->size) {
		why = "a process pins more than it should (pin_max)";
		err = -EDQUOT;
	} else {
		err = region_reserve(s, &r.slot, &why);
	}
	if (err)
		goto out;
	err = win_map_pin(s->c.view.job->user, s->device, q->handle, q->addr, q->size, &map, &why);
	if (err)
		win_region_uncharge(s->c.view.job->user);
	else
		region_keep(s, r.slot, map);
out:
	if (err) {
		session_msg_reason(r.reason, why);
		/* it ended meanwhile: the client tries again, and tells us in the end */
		if (err != -ESTALE)
			win_job_reason(s->c.view.job, "memory not pinned", why);
		prog_log_limited(PROG_LOG_WARN, "session %u: pinned region refused: %s", s->id, why);
	}
	return session_msg_reply(s, &r, sizeof(r), PROG_CTRL_PIN_ADD, err, NULL, 0);
}

void session_wins_end(struct session *s)
{
	struct win_left left = { 0 };

	for (uint32_t i = 0; i < MAX_WINS && s->nwins; i++)
		if (atomic_load(&s->c.wins[i]))
			drop_win(s, i, true, &left);
	session_tell_kick(s->all, left.kick);
	if (left.locks || left.stripes)
		prog_log_limited(PROG_LOG_WARN, "session %u: ended holding %u locks and %u stripes: released",
				 s->id, left.locks, left.stripes);
	for (uint32_t i = 0; i < MAX_REGIONS && s->nregions; i++) {
		struct win_map *map = atomic_exchange(&s->c.view.regions.map[i], NULL);

		if (!map)
			continue;
		win_map_put(map);
		win_region_uncharge(s->c.view.job->user);
		s->nregions--;
	}
}

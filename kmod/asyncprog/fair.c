// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that copy for all users: those who have jobs take turns, so nobody waits for everything
 * that another one has queued.
 *
 * A free thread serves who has waited longest of those whom no other thread serves.  Only when
 * there is none it is given, in turn, to those who have others already.
 */
#include <linux/hash.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "internal.h"

/* all of it by the lock of its queue */
struct asyncprog_fair_user {
	struct hlist_node node;
	kuid_t uid;
	unsigned int refs;
	unsigned int served;		/* by so many runners */
	struct list_head jobs;		/* asyncprog_fair_job.link: what no runner has in hand */
	struct list_head link;		/* a list of the queue, while there are jobs */
};

/* what a runner has: at most @left bytes more of @user's jobs, then another's */
struct turn {
	struct asyncprog_fair_user *user;
	u64 left;
};

void asyncprog_fair_init(struct asyncprog_fair *q, bool (*step)(struct asyncprog_fair_job *, u64 *),
			 void (*wake)(struct asyncprog_fair_runner *))
{
	spin_lock_init(&q->lock);
	hash_init(q->users);
	INIT_LIST_HEAD(&q->waiting);
	INIT_LIST_HEAD(&q->served);
	INIT_LIST_HEAD(&q->idle);
	q->step = step;
	q->wake = wake;
}
EXPORT_SYMBOL_GPL(asyncprog_fair_init);

void asyncprog_fair_add_runner(struct asyncprog_fair *q, struct asyncprog_fair_runner *runner)
{
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	list_add_tail(&runner->idle, &q->idle);
	spin_unlock_irqrestore(&q->lock, flags);
}
EXPORT_SYMBOL_GPL(asyncprog_fair_add_runner);

/* ---- users ------------------------------------------------------------------------------ */

static struct asyncprog_fair_user *user_find(struct asyncprog_fair *q, kuid_t uid)
{
	struct asyncprog_fair_user *u;

	lockdep_assert_held(&q->lock);
	hash_for_each_possible(q->users, u, node, __kuid_val(uid)) {
		if (uid_eq(u->uid, uid))
			return u;
	}
	return NULL;
}

struct asyncprog_fair_user *asyncprog_fair_user_get(struct asyncprog_fair *q, kuid_t uid)
{
	struct asyncprog_fair_user *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT);
	struct asyncprog_fair_user *u;
	unsigned long flags;

	if (!fresh)
		return NULL;
	fresh->uid = uid;
	INIT_LIST_HEAD(&fresh->jobs);
	INIT_LIST_HEAD(&fresh->link);

	spin_lock_irqsave(&q->lock, flags);
	u = user_find(q, uid);
	if (!u) {
		u = fresh;
		hash_add(q->users, &u->node, __kuid_val(uid));
		fresh = NULL;
	}
	u->refs++;
	spin_unlock_irqrestore(&q->lock, flags);
	kfree(fresh);
	return u;
}
EXPORT_SYMBOL_GPL(asyncprog_fair_user_get);

/* a runner whose turn it is may have completed the last job, and all that held the user with it */
static void user_drop(struct asyncprog_fair *q, struct asyncprog_fair_user *u)
{
	lockdep_assert_held(&q->lock);
	if (u->refs || u->served)
		return;
	hash_del(&u->node);
	kfree(u);
}

void asyncprog_fair_user_put(struct asyncprog_fair *q, struct asyncprog_fair_user *u)
{
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	u->refs--;
	user_drop(q, u);
	spin_unlock_irqrestore(&q->lock, flags);
}
EXPORT_SYMBOL_GPL(asyncprog_fair_user_put);

/* to the end of the list where it belongs */
static void user_place(struct asyncprog_fair *q, struct asyncprog_fair_user *u)
{
	lockdep_assert_held(&q->lock);
	if (list_empty(&u->jobs))
		list_del_init(&u->link);
	else
		list_move_tail(&u->link, u->served ? &q->served : &q->waiting);
}

/* ---- jobs ------------------------------------------------------------------------------- */

void asyncprog_fair_add(struct asyncprog_fair *q, struct asyncprog_fair_user *u,
			struct asyncprog_fair_job *job)
{
	struct asyncprog_fair_runner *runner;
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	list_add_tail(&job->link, &u->jobs);
	/* one that is in a list keeps its place there */
	if (list_empty(&u->link))
		user_place(q, u);
	runner = list_first_entry_or_null(&q->idle, struct asyncprog_fair_runner, idle);
	if (runner)
		list_del(&runner->idle);
	spin_unlock_irqrestore(&q->lock, flags);
	if (runner)
		q->wake(runner);
}
EXPORT_SYMBOL_GPL(asyncprog_fair_add);

static void turn_end(struct asyncprog_fair *q, struct turn *turn)
{
	struct asyncprog_fair_user *u = turn->user;

	lockdep_assert_held(&q->lock);
	turn->user = NULL;
	u->served--;
	user_place(q, u);
	user_drop(q, u);
}

static void turn_begin(struct asyncprog_fair *q, struct turn *turn)
{
	struct list_head *from = list_empty(&q->waiting) ? &q->served : &q->waiting;

	lockdep_assert_held(&q->lock);
	turn->user = list_first_entry_or_null(from, struct asyncprog_fair_user, link);
	if (!turn->user)
		return;
	turn->user->served++;
	turn->left = ASYNCPROG_FAIR_TURN;
}

/*
 * Give back the job @unfinished, if any, which stays before the others of its user, and take one.
 * NULL: there is none, and the runner is idle; no job is added without waking one that is, so there
 * is none idle while there are jobs.
 */
static struct asyncprog_fair_job *next_job(struct asyncprog_fair *q,
					   struct asyncprog_fair_runner *runner, struct turn *turn,
					   struct asyncprog_fair_job *unfinished)
{
	struct asyncprog_fair_job *job = NULL;
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	if (unfinished)
		list_add(&unfinished->link, &turn->user->jobs);
	if (turn->user && (!turn->left || list_empty(&turn->user->jobs)))
		turn_end(q, turn);
	if (!turn->user)
		turn_begin(q, turn);
	if (turn->user) {
		job = list_first_entry(&turn->user->jobs, struct asyncprog_fair_job, link);
		list_del(&job->link);
		user_place(q, turn->user);
	} else {
		list_add_tail(&runner->idle, &q->idle);
	}
	spin_unlock_irqrestore(&q->lock, flags);
	return job;
}

void asyncprog_fair_run(struct asyncprog_fair *q, struct asyncprog_fair_runner *runner)
{
	struct asyncprog_fair_job *job = NULL;
	struct turn turn = { .user = NULL };

	while ((job = next_job(q, runner, &turn, job))) {
		if (q->step(job, &turn.left))
			job = NULL;
		/* there may be jobs for ever */
		cond_resched_tasks_rcu_qs();
	}
}
EXPORT_SYMBOL_GPL(asyncprog_fair_run);

void asyncprog_fair_exit(struct asyncprog_fair *q)
{
	WARN_ON(!hash_empty(q->users));
}
EXPORT_SYMBOL_GPL(asyncprog_fair_exit);

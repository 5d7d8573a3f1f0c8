// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Who of a crowd has to go: connections from addresses of this machine's loopback. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kit/kit.h>

#include "xport/crowd.h"

#define MAX	64u

static int listener;
static struct sockaddr_in at;

struct one {
	struct crowd_member m;		/* first */
	int there, here;
};

/* A connection from 127.0.0.0 + @host. */
static void come(struct one *o, uint32_t host)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 + host) };

	memset(o, 0, sizeof(*o));
	o->there = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(o->there, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(o->there, (struct sockaddr *)&at, sizeof(at)), 0);
	o->here = accept(listener, NULL, NULL);
	assert_true(o->here >= 0);
}

static void join(struct crowd *c, struct one *o, uint32_t host)
{
	come(o, host);
	assert_int_equal(crowd_join(c, &o->m, o->here), 0);
}

static void leave(struct crowd *c, struct one *o)
{
	crowd_leave(c, &o->m);
	close(o->here);
	close(o->there);
}

/* Who goes for a connection from @host. */
static struct one *victim(struct crowd *c, uint32_t host)
{
	struct one o;
	struct crowd_member *m;

	come(&o, host);
	m = crowd_victim(c, o.here);
	close(o.here);
	close(o.there);
	return (struct one *)m;
}

/* Somebody with very many addresses does not put out who has two connections. */
static void test_addresses(void **state)
{
	struct crowd c = { .max = MAX };
	struct one all[MAX], *v;

	/* strangers that have one each, around an honest node with two */
	for (uint32_t i = 0; i < MAX; i++)
		join(&c, &all[i], i == 30 || i == 31 ? 1 : 1000 + i);
	for (uint32_t i = 0; i < 30; i++) {
		v = victim(&c, 5000 + i);
		assert_ptr_equal(v, &all[i]);
		leave(&c, v);
		join(&c, v, 5000 + i);
	}
	/* these are the oldest now, and go; those who came for the first stay */
	assert_ptr_equal(victim(&c, 6000), &all[30]);
	for (uint32_t i = 0; i < MAX; i++)
		leave(&c, &all[i]);
	assert_int_equal(c.n, 0);
	assert_null(c.all);
	assert_null(c.nets);
}

/* Who has an eighth makes room himself, for others at once. */
static void test_large(void **state)
{
	struct crowd c = { .max = MAX };
	struct one all[MAX];

	/* one less than an eighth, older, and an eighth */
	for (uint32_t i = 0; i < MAX; i++)
		join(&c, &all[i], i < MAX / 8 - 1 ? 1 : i >= MAX / 2 && i < MAX / 2 + MAX / 8 ? 2 : 1000 + i);
	assert_ptr_equal(victim(&c, 5000), &all[MAX / 2]);
	/* for himself as well, if he had the time to prove himself */
	assert_ptr_equal(victim(&c, 2), &all[MAX / 2]);
	c.grace_ns = 3600000000000ull;
	assert_null(victim(&c, 2));
	assert_ptr_equal(victim(&c, 5000), &all[MAX / 2]);
	/* and no more when there are fewer of his */
	leave(&c, &all[MAX / 2]);
	assert_ptr_equal(victim(&c, 5000), &all[0]);
	/* two that are large: who has more, or was so first */
	join(&c, &all[MAX / 2], 2);
	leave(&c, &all[MAX - 1]);
	join(&c, &all[MAX - 1], 1);
	assert_ptr_equal(victim(&c, 5000), &all[MAX / 2 + 1]);
	leave(&c, &all[MAX - 2]);
	join(&c, &all[MAX - 2], 1);
	assert_ptr_equal(victim(&c, 5000), &all[0]);
	for (uint32_t i = 0; i < MAX; i++)
		leave(&c, &all[i]);
	assert_int_equal(c.n, 0);
	assert_null(c.large);
}

/* Those who wait: each network in turn, and three times as often those where somebody is known. */
static void test_turns(void **state)
{
	/* networks of those that join, in order; below 10: known.  And of those whose turn it is. */
	static const uint32_t come[] = { 1, 1, 1, 1, 1, 2, 50, 50, 50, 60, 70 };
	static const uint32_t turn[] = { 1, 2, 1, 50, 1, 1, 1, 60, 70, 50, 50 };
	enum { N = sizeof(come) / sizeof(come[0]) };
	struct crowd c = { .max = MAX };
	struct one all[N], *o;
	int last[100] = { 0 };

	for (unsigned int i = 0; i < N; i++) {
		join(&c, &all[i], come[i]);
		crowd_wait(&c, &all[i].m, come[i] < 10);
	}
	for (unsigned int i = 0; i < N; i++) {
		assert_true(crowd_waits(&c));
		o = (struct one *)crowd_next(&c);
		assert_in_range(o - all, 0, N - 1);
		assert_int_equal(come[o - all], turn[i]);
		/* of a network who came first */
		assert_true(o - all >= last[turn[i]]);
		last[turn[i]] = o - all + 1;
	}
	assert_false(crowd_waits(&c));
	assert_null(crowd_next(&c));
	/* who leaves, or has to, waits no more */
	crowd_wait(&c, &all[0].m, true);
	crowd_wait(&c, &all[10].m, false);
	for (unsigned int i = 0; i < N; i++)
		leave(&c, &all[i]);
	assert_false(crowd_waits(&c));
}

static int setup(void **state)
{
	socklen_t len = sizeof(at);

	at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	listener = socket(AF_INET, SOCK_STREAM, 0);
	return bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 16) ||
	       getsockname(listener, (struct sockaddr *)&at, &len);
}

static int teardown(void **state)
{
	return close(listener);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_addresses),
	cmocka_unit_test(test_large),
	cmocka_unit_test(test_turns),
};

KIT_SUITE(tests, .setup = setup, .teardown = teardown);

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Values that look like what the table asks for, and are not. */
#include <errno.h>
#include <string.h>

#include <kit/kit.h>

#include "conf/check.h"
#include "conf/keys.h"

static void test_cpus(void **state)
{
	cpu_set_t s;

	assert_int_equal(conf_cpus_parse("0-2,5,7-7", &s), 0);
	assert_int_equal(CPU_COUNT(&s), 5);
	assert_true(CPU_ISSET(0, &s) && CPU_ISSET(2, &s) && CPU_ISSET(5, &s) && CPU_ISSET(7, &s));
	assert_int_equal(conf_cpus_parse("", &s), -ENOENT);
	assert_int_equal(conf_cpus_parse("x", &s), -EINVAL);
	assert_int_equal(conf_cpus_parse("3-1", &s), -EINVAL);
	assert_int_equal(conf_cpus_parse("1,", &s), -EINVAL);
	assert_int_equal(conf_cpus_parse("1 2", &s), -EINVAL);
	assert_int_equal(conf_cpus_parse("7x", &s), -EINVAL);
	assert_int_equal(conf_cpus_parse("2-", &s), -EINVAL);
	assert_int_equal(conf_cpus_parse("-1", &s), -EINVAL);
	assert_int_equal(conf_cpus_parse("0-99999999", &s), -ERANGE);
	assert_int_equal(conf_cpus_parse("99999999999999999999", &s), -ERANGE);
}

static void test_keys(void **state)
{
	static const struct {
		const char *key, *value, *why;		/* NULL: it is right */
	} list[] = {
		{ "cpus", "", NULL }, { "cpus", "0-3,8", NULL },
		{ "cpus", "0-x", "\"0-x\": not a list" }, { "cpus", "99999999", "\"99999999\": a number is too large" },
		{ "ports", "", NULL }, { "ports", "7000-7063", NULL },
		{ "ports", "9-1", "\"9-1\": not LOW-HIGH" }, { "ports", "7000-", "\"7000-\": not LOW-HIGH" },
	};
	struct conf *c;
	char err[CONF_ERR];

	assert_int_equal(conf_new(conf_keys, KEY_COUNT, &c, err), 0);
	conf_set_check(c, conf_check, NULL);
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		int r = conf_set(c, list[i].key, list[i].value, "somebody", false, err);

		assert_int_equal(!r, !list[i].why);
		if (r && (!strstr(err, list[i].why) || strncmp(err, "somebody: ", 10) || !strstr(err, list[i].key)))
			fail_msg("%s", err);
	}
	conf_free(c);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_cpus),
	cmocka_unit_test(test_keys),
};

KIT_SUITE(tests);

// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kit/kit.h>

#include "conf.h"

enum { WORKERS, SPIN, BUFFER, NAME, PEERS, LOOP, EAGER, N_ITEMS };

static const struct conf_item items[] = {
	[WORKERS] = { "workers", CONF_INT, 1, 64, "2", NULL, "Worker threads.", CONF_START },
	[SPIN] = { "worker.spin", CONF_DURATION, 0, 1000000000, "50us", NULL,
		   "How long a worker polls before it sleeps.", CONF_RUNTIME },
	[BUFFER] = { "xport.buffer", CONF_SIZE, 4096, 1ll << 30, "1M", NULL,
		     "Socket buffer.", CONF_RUNTIME },
	[NAME] = { "name", CONF_STRING, 0, 20, "", NULL, "Name of the node.", CONF_RUNTIME },
	[PEERS] = { "peers", CONF_LIST, 0, 3, "", NULL, "Addresses of peers.", CONF_RUNTIME },
	[LOOP] = { "loop", CONF_ENUM, 0, 0, "auto", "auto uring epoll", "Event loop.", CONF_START },
	[EAGER] = { "eager", CONF_BOOL, 0, 0, "yes", NULL, "Send early.", CONF_RUNTIME },
};

static char dir[64], file[96], dropin[96], err[CONF_ERR];

static void put(const char *name, const char *fmt, ...)
{
	char path[160];
	va_list ap;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	fclose(f);
}

static void gone(const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
}

static struct conf *fresh(void)
{
	struct conf *c = NULL;

	if (conf_new(items, N_ITEMS, &c, err))
		fail_msg("%s", err);
	return c;
}

static void expect(const struct conf *c, const char *name, const char *text)
{
	char buf[64];

	assert_int_equal(conf_get(c, name, buf, sizeof(buf)), strlen(text));
	assert_string_equal(buf, text);
}

static void test_defaults(void **state)
{
	struct conf *c = fresh();

	assert_int_equal(conf_int(c, WORKERS), 2);
	assert_int_equal(conf_int(c, SPIN), 50000);
	assert_int_equal(conf_int(c, BUFFER), 1 << 20);
	assert_string_equal(conf_str(c, NAME), "");
	assert_int_equal(conf_int(c, LOOP), 0);
	assert_true(conf_bool(c, EAGER));
	expect(c, "worker.spin", "50us");
	expect(c, "xport.buffer", "1M");
	expect(c, "loop", "auto");
	expect(c, "eager", "yes");
	assert_string_equal(conf_source(c, "eager"), "default");
	assert_null(conf_source(c, "nope"));
	assert_int_equal(conf_get(c, "nope", NULL, 0), -ENOENT);
	assert_int_equal(conf_count(c), N_ITEMS);
	assert_null(conf_item(c, N_ITEMS));
	conf_free(c);
	conf_free(NULL);
}

static void test_values(void **state)
{
	static const struct {
		const char *key, *text, *out;
		int error;
	} cases[] = {
		{ "workers", "64", "64", 0 }, { "workers", "1", "1", 0 },
		{ "workers", "65", NULL, -ERANGE }, { "workers", "0", NULL, -ERANGE },
		{ "workers", "-1", NULL, -ERANGE }, { "workers", "", NULL, -EINVAL },
		{ "workers", "2x", NULL, -EINVAL }, { "workers", "2.5", NULL, -EINVAL },
		{ "workers", "0x10", NULL, -EINVAL }, { "workers", "two", NULL, -EINVAL },
		{ "workers", "99999999999999999999", NULL, -ERANGE },
		{ "worker.spin", "0", "0", 0 }, { "worker.spin", "1s", "1s", 0 },
		{ "worker.spin", "1500us", "1500us", 0 }, { "worker.spin", "2000 us", "2ms", 0 },
		{ "worker.spin", "1001ms", NULL, -ERANGE }, { "worker.spin", "5", NULL, -EINVAL },
		{ "worker.spin", "5 parsecs", NULL, -EINVAL }, { "worker.spin", "-5us", NULL, -ERANGE },
		{ "worker.spin", "9223372036854775807h", NULL, -ERANGE },
		{ "xport.buffer", "4096", "4K", 0 }, { "xport.buffer", "64k", "64K", 0 },
		{ "xport.buffer", "2MiB", "2M", 0 }, { "xport.buffer", "1GB", "1G", 0 },
		{ "xport.buffer", "5000B", "5000", 0 }, { "xport.buffer", "4095", NULL, -ERANGE },
		{ "xport.buffer", "2G", NULL, -ERANGE }, { "xport.buffer", "1P", NULL, -EINVAL },
		{ "xport.buffer", "99999999T", NULL, -ERANGE },
		{ "name", "a b", "a b", 0 }, { "name", "123456789012345678901", NULL, -ERANGE },
		{ "peers", "a, b,,c", "a,b,c", 0 }, { "peers", "a b c d", NULL, -ERANGE },
		{ "peers", "", "", 0 },
		{ "loop", "epoll", "epoll", 0 }, { "loop", "poll", NULL, -EINVAL },
		{ "loop", "", NULL, -EINVAL }, { "loop", "auto uring", NULL, -EINVAL },
		{ "eager", "off", "no", 0 }, { "eager", "TRUE", "yes", 0 },
		{ "eager", "2", NULL, -EINVAL }, { "nothing", "1", NULL, -ENOENT },
	};
	struct conf *c = fresh();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char before[64] = "";
		int ret;

		conf_get(c, cases[i].key, before, sizeof(before));
		err[0] = '\0';
		ret = conf_set(c, cases[i].key, cases[i].text, "progctl", false, err);
		if (ret != cases[i].error)
			fail_msg("%s = \"%s\": got %d (%s)", cases[i].key, cases[i].text, ret, err);
		if (!ret) {
			expect(c, cases[i].key, cases[i].out);
			assert_string_equal(conf_source(c, cases[i].key), "progctl");
			continue;
		}
		if (ret != -ENOENT)
			expect(c, cases[i].key, before);
		if (strncmp(err, "progctl: ", 9) || !strstr(err, cases[i].key) ||
		    (ret != -ENOENT && !strstr(err, "expected ")))
			fail_msg("message \"%s\"", err);
	}
	conf_set(c, "workers", "65", "x", false, err);
	assert_string_equal(err, "x: workers: \"65\" is out of range: expected an integer from 1 to 64");
	conf_set(c, "peers", "h1 h22", "x", false, NULL);
	{
		char w[4];

		assert_true(conf_list_word(c, PEERS, 0, w, sizeof(w)));
		assert_string_equal(w, "h1");
		assert_true(conf_list_word(c, PEERS, 1, w, sizeof(w)));
		assert_string_equal(w, "h22");
		assert_false(conf_list_word(c, PEERS, 1, w, 3));
		assert_false(conf_list_word(c, PEERS, 2, w, sizeof(w)));
	}
	conf_free(c);
}

static void test_file(void **state)
{
	struct conf *c = fresh();
	char want[200];

	put("main.conf", "# comment\n\n  workers = 3 # why\nname = \"a # \\\"b\\\"\"\n"
	    "worker.spin=1ms\r\npeers = x#y z");
	mkdir(dropin, 0700);
	put("drop/10-a.conf", "workers = 5\nloop = epoll\n");
	put("drop/20-b.conf", "workers = 7");
	put("drop/30-c.conf.bak", "rubbish\n");
	put("drop/.40-d.conf", "rubbish\n");
	if (conf_load(c, file, dropin, false, err))
		fail_msg("%s", err);
	assert_int_equal(conf_int(c, WORKERS), 7);
	assert_string_equal(conf_str(c, NAME), "a # \"b\"");
	assert_int_equal(conf_int(c, SPIN), 1000000);
	assert_string_equal(conf_str(c, PEERS), "x#y,z");
	expect(c, "loop", "epoll");
	snprintf(want, sizeof(want), "%s/20-b.conf:1", dropin);
	assert_string_equal(conf_source(c, "workers"), want);
	snprintf(want, sizeof(want), "%s:5", file);
	assert_string_equal(conf_source(c, "worker.spin"), want);

	/* a reload: what is no longer named is at its default again */
	put("main.conf", "xport.buffer = 2M\n");
	gone("drop/10-a.conf");
	assert_int_equal(conf_load(c, file, dropin, false, err), 0);
	expect(c, "loop", "auto");
	expect(c, "worker.spin", "50us");
	expect(c, "xport.buffer", "2M");
	expect(c, "workers", "7");

	/* while running: items of the start stay and are told */
	put("main.conf", "loop = uring\nworkers = 9\neager = no\n");
	gone("drop/20-b.conf");
	assert_int_equal(conf_load(c, file, dropin, true, err), 2);
	assert_non_null(strstr(err, "main.conf:2: workers: a change needs a restart"));
	expect(c, "workers", "7");
	expect(c, "loop", "auto");
	expect(c, "eager", "no");
	assert_int_equal(conf_set(c, "loop", "epoll", "progctl", true, err), -EROFS);
	assert_int_equal(conf_unset(c, "workers", true, err), -EROFS);

	/* conf_set outlives a reload, until unset */
	assert_int_equal(conf_set(c, "worker.spin", "7us", "progctl", true, err), 0);
	put("main.conf", "worker.spin = 9us\nloop = auto\nworkers=7\n");
	assert_int_equal(conf_load(c, file, NULL, true, err), 0);
	expect(c, "worker.spin", "7us");
	assert_int_equal(conf_unset(c, "worker.spin", true, err), 0);
	expect(c, "worker.spin", "9us");
	assert_int_equal(conf_unset(c, "nope", true, err), -ENOENT);

	/* missing directory is empty, missing file is an error, a directory is no file */
	gone("main.conf");
	assert_int_equal(conf_load(c, file, "/nonexistent/dir", true, err), -ENOENT);
	assert_non_null(strstr(err, "main.conf"));
	assert_int_equal(conf_load(c, NULL, "/nonexistent/dir", true, err), 1);
	assert_int_equal(conf_load(c, dropin, NULL, true, err), -EISDIR);
	conf_free(c);
	gone("drop/30-c.conf.bak");
	gone("drop/.40-d.conf");
	rmdir(dropin);
}

static void test_errors(void **state)
{
	static const struct {
		const char *text, *line, *word;
	} cases[] = {
		{ "workers = 4\nworkers = 5\n", ":2: ", "set already in line 1" },
		{ "\n\nworkers 5\n", ":3: ", "expected key = value" },
		{ "eager = no\n= 5\n", ":2: ", "no such key" },
		{ "eager = no\nspeed = 5\n", ":2: ", "speed: no such key" },
		{ "eager = no\nworkers = many\n", ":2: ", "workers: \"many\" is not valid" },
		{ "name = \"x\n", ":1: ", "quotes" },
		{ "name = \"x\" y\n", ":1: ", "quotes" },
		{ "name = x\"y\n", ":1: ", "quotes" },
		{ "eager = no\nworkers =\n", ":2: ", "expected an integer" },
		{ "[section]\n", ":1: ", "expected key = value" },
	};
	struct conf *c = fresh();
	char path[160];
	FILE *f;

	snprintf(path, sizeof(path), "%s/main.conf", dir);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		put("main.conf", "%s", cases[i].text);
		if (conf_load(c, file, NULL, false, err) >= 0)
			fail_msg("accepted: %s", cases[i].text);
		if (!strstr(err, cases[i].line) || !strstr(err, cases[i].word) || !strstr(err, file))
			fail_msg("message \"%s\"", err);
		/* nothing was applied, not the good line before either */
		expect(c, "eager", "yes");
		expect(c, "workers", "2");
		assert_string_equal(conf_source(c, "eager"), "default");
	}
	/* zero bytes and endless lines */
	f = fopen(path, "w");
	fwrite("eager = no\nname = a\0b\n", 1, 22, f);
	fclose(f);
	assert_int_equal(conf_load(c, file, NULL, false, err), -EINVAL);
	assert_non_null(strstr(err, ":2: a zero byte"));
	f = fopen(path, "w");
	for (int i = 0; i < 100000; i++)
		fputc('x', f);
	fclose(f);
	assert_int_equal(conf_load(c, file, NULL, false, err), -EINVAL);
	assert_non_null(strstr(err, "longer than"));
	expect(c, "eager", "yes");
	gone("main.conf");
	conf_free(c);
}

static int rule(const struct conf *next, char *text, size_t size, void *arg)
{
	++*(int *)arg;
	if (conf_int(next, WORKERS) > 8 && !conf_bool(next, EAGER)) {
		snprintf(text, size, "more than 8 workers need eager");
		return -EINVAL;
	}
	return 0;
}

static void test_check(void **state)
{
	struct conf *c = fresh();
	int calls = 0;

	conf_set_check(c, rule, &calls);
	put("main.conf", "workers = 9\neager = no\nname = n\n");
	assert_int_equal(conf_load(c, file, NULL, false, err), -EINVAL);
	assert_string_equal(err, "more than 8 workers need eager");
	expect(c, "name", "");
	expect(c, "workers", "2");
	assert_int_equal(conf_set(c, "eager", "no", "x", false, err), 0);
	assert_int_equal(conf_set(c, "workers", "9", "x", false, err), -EINVAL);
	expect(c, "workers", "2");
	assert_int_equal(calls, 3);
	/* also when only the next start would have it */
	assert_int_equal(conf_load(c, file, NULL, true, err), -EINVAL);
	assert_string_equal(err, "more than 8 workers need eager");
	put("main.conf", "workers = 8\nname = n\n");
	assert_int_equal(conf_load(c, file, NULL, true, err), 1);
	expect(c, "workers", "2");
	gone("main.conf");
	conf_free(c);
}

static void test_table(void **state)
{
	const struct conf_item twice[] = {
		{ "a", CONF_BOOL, 0, 0, "no", NULL, "A.", 0, NULL },
		{ "a", CONF_BOOL, 0, 0, "no", NULL, "A.", 0, NULL },
	};
	const struct conf_item renamed[] = {
		{ "b", CONF_INT, 0, 9, "1", NULL, "A.", CONF_RUNTIME, "a" },
		{ "c", CONF_BOOL, 0, 0, "no", NULL, "A.", 0, NULL },
	};
	const struct conf_item takes_old[] = { renamed[0], twice[0] }, takes_new[] = { twice[0], renamed[0] };
	const struct conf_item bad = { "a", CONF_INT, 5, 6, "7", NULL, "A.", 0, NULL };
	const struct conf_item no_doc = { "a", CONF_INT, 5, 6, "5", NULL, NULL, 0, NULL };
	const struct conf_item odd = { "a b", CONF_INT, 5, 6, "5", NULL, "A.", 0, NULL };
	struct conf *c = NULL;

	assert_int_equal(conf_new(twice, 2, &c, err), -EINVAL);
	assert_int_equal(conf_new(&bad, 1, &c, err), -ERANGE);
	assert_int_equal(conf_new(&no_doc, 1, &c, err), -EINVAL);
	assert_int_equal(conf_new(&odd, 1, &c, err), -EINVAL);
	assert_int_equal(conf_new(takes_old, 2, &c, err), -EINVAL);
	assert_int_equal(conf_new(takes_new, 2, &c, err), -EINVAL);
	assert_null(c);
	/* a key is found by its old name, and is one with its new one */
	assert_int_equal(conf_new(renamed, 2, &c, err), 0);
	assert_int_equal(conf_find(c, "a"), 0);
	assert_int_equal(conf_find(c, "b"), 0);
	put("main.conf", "a = 2\nc = yes\n");
	assert_int_equal(conf_load(c, file, NULL, false, err), 0);
	expect(c, "b", "2");
	put("main.conf", "a = 2\nb = 3\n");
	assert_int_equal(conf_load(c, file, NULL, false, err), -EINVAL);
	assert_non_null(strstr(err, "set already in line 1"));
	assert_int_equal(conf_set(c, "a", "4", "x", true, err), 0);
	expect(c, "b", "4");
	gone("main.conf");
	conf_free(c);
}

/* The texts name every key; the default file, comments taken off, loads as the defaults. */
static void test_texts(void **state)
{
	struct conf *c = fresh(), *d = fresh();
	char *help, *man, *def, path[160];
	size_t len;
	FILE *f, *g;

	f = open_memstream(&help, &len);
	conf_print_help(c, f);
	fclose(f);
	f = open_memstream(&man, &len);
	conf_print_man(c, f);
	fclose(f);
	f = open_memstream(&def, &len);
	conf_print_file(c, f);
	fclose(f);
	for (int i = 0; i < N_ITEMS; i++) {
		assert_non_null(strstr(help, items[i].name));
		assert_non_null(strstr(help, items[i].doc));
		assert_non_null(strstr(man, items[i].doc));
		assert_non_null(strstr(def, items[i].doc));
	}
	assert_non_null(strstr(help, "an integer from 1 to 64; read at start"));
	assert_non_null(strstr(man, ".TP\n\\fBworker.spin\\fR = 50us\n"));

	snprintf(path, sizeof(path), "%s/main.conf", dir);
	f = fmemopen(def, strlen(def), "r");
	g = fopen(path, "w");
	for (char line[300]; fgets(line, sizeof(line), f); )
		fputs(line[0] == '#' && line[1] != ' ' ? line + 1 : line, g);
	fclose(f);
	fclose(g);
	if (conf_load(d, file, NULL, false, err))
		fail_msg("%s", err);
	for (int i = 0; i < N_ITEMS; i++) {
		char a[64], b[64];

		conf_get(c, items[i].name, a, sizeof(a));
		conf_get(d, items[i].name, b, sizeof(b));
		assert_string_equal(a, b);
		assert_non_null(strstr(conf_source(d, items[i].name), "main.conf:"));
	}
	gone("main.conf");
	free(help);
	free(man);
	free(def);
	conf_free(c);
	conf_free(d);
}

struct reader {
	struct conf *c;
	int stop, bad;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;

	while (!__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
		const char *s = conf_str(r->c, NAME);
		int64_t v = conf_int(r->c, SPIN);

		if ((strcmp(s, "") && strcmp(s, "one") && strcmp(s, "two")) ||
		    (v != 50000 && v != 1000 && v != 2000))
			r->bad = 1;
	}
	return NULL;
}

static void test_readers(void **state)
{
	struct reader r = { .c = fresh() };
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, read_all, &r), 0);
	for (int i = 0; i < 3000; i++) {
		assert_int_equal(conf_set(r.c, "name", i % 2 ? "one" : "two", "x", true, err), 0);
		assert_int_equal(conf_set(r.c, "worker.spin", i % 2 ? "1us" : "2us", "x", true, err),
				 0);
	}
	__atomic_store_n(&r.stop, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	assert_int_equal(r.bad, 0);
	conf_free(r.c);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_defaults),
	cmocka_unit_test(test_values),
	cmocka_unit_test(test_file),
	cmocka_unit_test(test_errors),
	cmocka_unit_test(test_check),
	cmocka_unit_test(test_table),
	cmocka_unit_test(test_texts),
	cmocka_unit_test(test_readers),
};

static int setup(void **state)
{
	strcpy(dir, "/tmp/conf_test.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/main.conf", dir);
	snprintf(dropin, sizeof(dropin), "%s/drop", dir);
	return 0;
}

static int teardown(void **state)
{
	return rmdir(dir);
}

KIT_SUITE(tests, .setup = setup, .teardown = teardown);

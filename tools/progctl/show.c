// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What the daemon replies, and its configuration. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <asyncprog/ring.h>

#include "progctl.h"

int cmd_status(int argc, char **argv)
{
	return print_result(ask(json_pack("{s:s}", "cmd", "status")));
}

int cmd_stats(int argc, char **argv)
{
	static const char *const peer_cols[] = {
		"node", "direction", "state", "streams", "operations", "bytes", "latency_ns", "tx_bytes",
		"rx_bytes", "rx_direct", "lost_lanes", "resumed", "away_ns", "carrier",
		"rdma_tx_bytes", "rdma_rx_bytes", "rdma_read_bytes", "rdma_write_bytes",
		"carrier_why", "rdma_why", "lane", NULL,
	};
	json_t *res = ask(json_pack("{s:s}", "cmd", "stats"));

	if (!res || opt.json)
		return print_result(res);
	printf("jobs:\n");
	print_tree(json_object_get(res, "jobs"), 1);
	printf("ended jobs:\n");
	print_tree(json_object_get(res, "ended_jobs"), 1);
	printf("peers:\n");
	print_table(json_object_get(res, "peers"), peer_cols);
	json_decref(res);
	return 0;
}

int cmd_windows(int argc, char **argv)
{
	static const char *const cols[] = {
		"job", "key", "rank", "ranks", "nodes", "session", "pid", "memory", "bytes",
		"reached_by", NULL,
	};
	json_t *res = ask(json_pack("{s:s}", "cmd", "windows")), *w, *l;
	size_t i, k;

	if (!res || opt.json)
		return print_result(res);
	print_table(res, cols);
	json_array_foreach(res, i, w) {
		json_array_foreach(json_object_get(w, "locks"), k, l)
			printf("window %s rank %lld: lock: %s\n",
			       json_string_value(json_object_get(w, "key")),
			       (long long)json_integer_value(json_object_get(w, "rank")),
			       json_string_value(l));
	}
	json_decref(res);
	return 0;
}

int cmd_sessions(int argc, char **argv)
{
	static const char *const cols[] = {
		"session", "pid", "uid", "job", "rank", "cma", "helper", "windows", "regions", "pinned_bytes", NULL,
	};
	json_t *res = ask(json_pack("{s:s}", "cmd", "sessions"));

	if (!res || opt.json)
		return print_result(res);
	print_table(res, cols);
	json_decref(res);
	return 0;
}

int cmd_colls(int argc, char **argv)
{
	static const char *const cols[] = {
		"job", "comm", "number", "kind", "members", "rank", "pid", "seconds", "awaited", "from", "missing", "missing_is", NULL,
	};
	json_t *res = ask(json_pack("{s:s}", "cmd", "colls")), *row;
	size_t i;

	if (!res || opt.json)
		return print_result(res);
	json_array_foreach(res, i, row)
		json_object_set_new(row, "seconds", json_real((double)json_integer_value(json_object_get(row, "age_ns")) / 1e9));
	print_table(res, cols);
	json_decref(res);
	return 0;
}

int cmd_conf(int argc, char **argv)
{
	static const char *const cols[] = { "key", "value", "default", "source", "changes", NULL };
	json_t *res, *req;

	if (argc >= 1 && argc <= 2 && !strcmp(argv[0], "get")) {
		req = argc == 2 ? json_pack("{s:s,s:s}", "cmd", "conf-get", "key", argv[1]) :
				  json_pack("{s:s}", "cmd", "conf-get");
	} else if (argc == 3 && !strcmp(argv[0], "set")) {
		req = json_pack("{s:s,s:s,s:s}", "cmd", "conf-set", "key", argv[1], "value", argv[2]);
	} else if (argc == 2 && !strcmp(argv[0], "unset")) {
		req = json_pack("{s:s,s:s}", "cmd", "conf-set", "key", argv[1]);
	} else {
		fprintf(stderr, "usage: progctl conf get [KEY] | set KEY VALUE | unset KEY\n");
		return 2;
	}
	res = ask(req);
	if (!res || opt.json)
		return print_result(res);
	print_table(res, cols);
	json_decref(res);
	return 0;
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e6 + ts.tv_nsec / 1e3;
}

int cmd_ping(int argc, char **argv)
{
	double t = now_us();
	json_t *res = ask(json_pack("{s:s}", "cmd", "ping"));

	if (!res)
		return 1;
	t = now_us() - t;
	if (opt.json)
		json_object_set_new(res, "us", json_real(t));
	if (opt.json)
		print_json(res);
	else
		printf("%s: version %s answers in %.0f us\n", ask_path(),
		       json_string_value(json_object_get(res, "version")), t);
	json_decref(res);
	return 0;
}

int cmd_version(int argc, char **argv)
{
	json_t *j = json_object();
	json_t *rep = NULL;
	int fd = ask_control(ask_path());

	if (fd >= 0) {
		json_t *req = json_pack("{s:s}", "cmd", "ping");

		rep = ask_exchange(fd, req);
		json_decref(req);
		close(fd);
	}
	json_object_set_new(j, "progctl", json_string(PROG_VERSION));
	json_object_set_new(j, "abi", json_sprintf("%d.%d", PROG_ABI_MAJOR, PROG_ABI_MINOR));
	json_object_set(j, "progd", json_object_get(json_object_get(rep, "result"), "version") ?:
				    json_null());
	json_decref(rep);
	return print_result(j);
}

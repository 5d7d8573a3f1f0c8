// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Thresholds of pairs of ranks. */
#include <stdio.h>
#include <string.h>

#include "progctl.h"

/* A number, with @suffix also of K, M or G bytes, into the request; false after a line on stderr. */
static bool add_number(json_t *req, const char *name, const char *text, bool suffix)
{
	uint64_t v;

	if (!parse_number(text, suffix ? "KMG" : "", &v) || v > 1ull << 62) {
		fprintf(stderr, "progctl: thresh: --%s %s: not a number%s\n", name, text,
			suffix ? " of bytes (K, M, G may follow)" : "");
		return false;
	}
	json_object_set_new(req, name, json_integer((json_int_t)v));
	return true;
}

static int show_thresh(json_t *res)
{
	static const char *const cols[] = {
		"job", "from", "to", "offload", "eager", "pinned", "messages", "mean_bytes", "rendezvous",
		"sender_overlap", "receiver_overlap", "switches", "refused", NULL,
	};
	json_t *row;
	size_t i;

	if (!res || opt.json)
		return print_result(res);
	json_array_foreach(res, i, row) {
		bool o = json_is_true(json_object_get(row, "offload_pinned"));
		bool e = json_is_true(json_object_get(row, "eager_pinned"));

		json_object_set_new(row, "pinned", json_string(o && e ? "both" : o ? "offload" :
							       e ? "eager" : "-"));
	}
	print_table(res, cols);
	json_decref(res);
	return 0;
}

static int thresh_usage(void)
{
	fprintf(stderr, "usage: progctl thresh [--job J]\n"
		"       progctl thresh set --job J --from RANK --to RANK [--offload BYTES|none] [--eager BYTES]\n"
		"       progctl thresh unset --job J --from RANK --to RANK [offload] [eager]\n");
	return 2;
}

int cmd_thresh(int argc, char **argv)
{
	bool set = argc && !strcmp(argv[0], "set"), unset = argc && !strcmp(argv[0], "unset");
	json_t *req = json_object();
	bool ok = true;

	if (opt.job)
		ok = add_number(req, "job", opt.job, false);
	if (!argc) {
		if (opt.from || opt.to || opt.offload || opt.eager)
			goto bad;
		json_object_set_new(req, "cmd", json_string("thresh"));
	} else {
		if ((!set && !unset) || !opt.job || !opt.from || !opt.to || (set && argc > 1) ||
		    (set && !opt.offload && !opt.eager) || (unset && (opt.offload || opt.eager)))
			goto bad;
		json_object_set_new(req, "cmd", json_string(set ? "thresh-set" : "thresh-unset"));
		ok = ok && add_number(req, "from", opt.from, false) && add_number(req, "to", opt.to, false);
		if (ok && opt.offload && !strcmp(opt.offload, "none"))
			json_object_set_new(req, "offload", json_string("none"));
		else if (ok && opt.offload)
			ok = add_number(req, "offload", opt.offload, true);
		if (ok && opt.eager)
			ok = add_number(req, "eager", opt.eager, true);
		for (int i = 1; i < argc; i++) {
			bool eager = !strcmp(argv[i], "eager") || !strcmp(argv[i], "early");	/* its old name */

			if (!eager && strcmp(argv[i], "offload"))
				goto bad;
			json_object_set_new(req, eager ? "eager" : "offload", json_true());
		}
		if (unset && argc == 1) {
			json_object_set_new(req, "offload", json_true());
			json_object_set_new(req, "eager", json_true());
		}
	}
	if (!ok) {
		json_decref(req);
		return 2;
	}
	return show_thresh(ask(req));
bad:
	json_decref(req);
	return thresh_usage();
}

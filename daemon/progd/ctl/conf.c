// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The configuration. */
#include <libprogbase/log.h>

#include "conf/keys.h"
#include "ctl/priv.h"

static json_t *conf_row(const struct conf *conf, size_t i)
{
	const struct conf_item *it = conf_item(conf, i);
	json_t *o = json_object();
	char val[4096];

	if (conf_get(conf, it->name, val, sizeof(val)) < 0)
		val[0] = '\0';
	json_object_set_new(o, "key", json_string(it->name));
	json_object_set_new(o, "value", ctl_text(val));
	json_object_set_new(o, "default", json_string(it->def));
	json_object_set_new(o, "source", ctl_text(conf_source(conf, it->name)));
	json_object_set_new(o, "changes", json_string(it->when != CONF_START ? "at any time" :
								       "with a restart"));
	json_object_set_new(o, "doc", json_string(it->doc));
	return o;
}

/* Member @name of a request; NULL: it has none.  False: it is no text. */
static bool text(json_t *req, const char *name, const char **out, const char **why)
{
	json_t *v = json_object_get(req, name);

	*out = json_string_value(v);
	if (v && !*out)
		*why = "conf: key and value are texts";
	return !v || *out;
}

json_t *ctl_do_conf_get(struct ctl *c, json_t *req, const char **why)
{
	const char *key;
	json_t *a;
	int i;

	if (!text(req, "key", &key, why))
		return NULL;
	if (key) {
		i = conf_find(c->o.conf, key);
		if (i < 0) {
			*why = "no such key";
			return NULL;
		}
		return json_pack("[o]", conf_row(c->o.conf, i));
	}
	a = json_array();
	for (size_t k = 0; k < conf_count(c->o.conf); k++)
		json_array_append_new(a, conf_row(c->o.conf, k));
	return a;
}

json_t *ctl_do_conf_set(struct ctl *c, json_t *req, const char **why)
{
	static char err[CONF_ERR];
	const char *key, *value;
	int r, k;

	if (!text(req, "key", &key, why) || !text(req, "value", &value, why))
		return NULL;
	if (!key) {
		*why = "conf set: no key given";
		return NULL;
	}
	k = conf_find(c->o.conf, key);
	if (k >= 0 && conf_keys[k].when == CONF_NODE && c->o.mode == CTL_ENGINE && !c->root) {
		*why = "conf: only root changes this key of an engine: it is the node's";
		return NULL;
	}
	r = value ? conf_set(c->o.conf, key, value, "progctl", true, err) :
		    conf_unset(c->o.conf, key, true, err);
	if (r) {
		*why = err;
		return NULL;
	}
	c->o.conf_changed(c->o.ctx);
	prog_log_limited(PROG_LOG_INFO, "progctl: %s %s", key, value ? value : "unset");
	return ctl_do_conf_get(c, req, why);
}

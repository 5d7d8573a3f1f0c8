/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * ctl: the control socket that progctl talks to: SOCK_SEQPACKET at <socket>.ctl, for root and the
 * daemon's own user; an engine gets the connections of its supervisor.  One JSON object per message:
 *
 *	request   {"cmd": "status", "schema": 2, ...}
 *	reply     {"ok": true, "schema": 2, "result": ...} or {"ok": false, "error": "a sentence"}
 *
 * Schema 2 has new names for some members.  Who does not ask for it gets these under their old names, too, until
 * the next release.
 *
 * A reply that is longer than CTL_CHUNK bytes comes in several messages; all but the last are
 * exactly CTL_CHUNK bytes long, and a reply of a multiple of it ends with an empty line ("\n").
 * Everything runs on the main thread.
 */
#ifndef PROGD_CTL_H
#define PROGD_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include <libprogbase/conf.h>

#include "session/session.h"
#include "xport/xport.h"

#define CTL_SCHEMA	3
#define CTL_CHUNK	65536u
#define CTL_MAX_REQUEST	65536u

struct ctl;

struct ctl_opts {
	const char *socket;		/* of the clients; kept */
	const char *config;		/* file read, or NULL; kept */
	enum { CTL_SYSTEM, CTL_EMBEDDED, CTL_ENGINE } mode;	/* ENGINE: no socket, ctl_add() tells of connections */
	struct conf *conf;
	void (*conf_changed)(void *ctx);
	void (*count)(void *ctx, unsigned int connections);	/* it changed; may be NULL */
	void *ctx;
	const struct node *node;	/* kept */
	struct sessions *sessions;
};

/* Errors in @err (256 bytes). */
int ctl_new(const struct ctl_opts *o, struct ctl **out, char *err);
/* Somebody connected elsewhere; takes @fd over. */
void ctl_add(struct ctl *c, int fd);
void ctl_free(struct ctl *c);		/* NULL is fine */

#endif

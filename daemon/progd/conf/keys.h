/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* keys: the daemon's configuration keys.  The table in keys.c is the only place that names them. */
#ifndef PROGD_CONF_KEYS_H
#define PROGD_CONF_KEYS_H

#include <stddef.h>

#include <libprogbase/conf.h>

enum {	/* index in the table */
	KEY_SOCKET,
	KEY_LISTEN,
	KEY_PORT,
	KEY_WORKERS,
	KEY_LOOP,
	KEY_POLL_US,
	KEY_CPUS,
	KEY_PRIORITY,
	KEY_CMA,
	KEY_QUOTA_SESSIONS,
	KEY_QUOTA_REGIONS,
	KEY_QUOTA_WINDOWS,
	KEY_QUOTA_BYTES,
	KEY_QUOTA_STREAMS,
	KEY_TWO_SIDED,
	KEY_P2P_OFFLOAD,
	KEY_P2P_OFFLOAD_MIN,
	KEY_P2P_EARLY,
	KEY_P2P_EARLY_MAX,
	KEY_P2P_POOL_BYTES,
	KEY_P2P_POOL_IDLE,
	KEY_P2P_RETRY,
	KEY_QUOTA_MESSAGES,
	KEY_PEER_TIMEOUT,
	KEY_CONNECT_TIMEOUT,
	KEY_HELLO_TIMEOUT,
	KEY_DRAIN_TIMEOUT,
	KEY_EMBEDDED_WAIT,
	KEY_LOG_LEVEL,
	KEY_COUNT
};

extern const struct conf_item conf_keys[KEY_COUNT];

#endif

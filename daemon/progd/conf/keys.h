/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* keys: the daemon's configuration keys.  The table in keys.c is the only place that names them. */
#ifndef PROGD_CONF_KEYS_H
#define PROGD_CONF_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include <libprogbase/conf.h>

enum {	/* index in the table */
	KEY_SOCKET,
	KEY_MULTI_USER,
	KEY_LISTEN,
	KEY_PORT,
	KEY_PORTS,
	KEY_WORKERS,
	KEY_BINDING,
	KEY_LOOP,
	KEY_POLL_US,
	KEY_CPUS,
	KEY_PRIORITY,
	KEY_CMA,
	KEY_PINNED,
	KEY_PIN_MAX,
	KEY_PIN_CACHE,
	KEY_COPY_ENGINE,
	KEY_COPY_ENGINE_MIN,
	KEY_QUOTA_SESSIONS,
	KEY_QUOTA_REGIONS,
	KEY_QUOTA_WINDOWS,
	KEY_QUOTA_BYTES,
	KEY_QUOTA_STREAMS,
	KEY_QUOTA_TYPES,
	KEY_QUOTA_TABLES,
	KEY_TWO_SIDED,
	KEY_P2P_OFFLOAD,
	KEY_P2P_OFFLOAD_MIN,
	KEY_P2P_WAITING,
	KEY_P2P_EAGER,
	KEY_P2P_EAGER_MAX,
	KEY_P2P_POOL_BYTES,
	KEY_P2P_POOL_IDLE,
	KEY_P2P_RETRY,
	KEY_QUOTA_MESSAGES,
	KEY_COLL_NET_LATENCY,
	KEY_COLL_NODE_LATENCY,
	KEY_COLL_NET_RATE,
	KEY_COLL_NODE_RATE,
	KEY_COLL_REDUCE_RATE,
	KEY_PEER_TIMEOUT,
	KEY_PEER_GIVEUP,
	KEY_CONNECT_TIMEOUT,
	KEY_LANE_SECURITY,
	KEY_LANE_KEY,
	KEY_TRANSPORT,
	KEY_NET_DEVICES,
	KEY_RDMA_GID,
	KEY_RDMA_MTU,
	KEY_RDMA_SERVICE_LEVEL,
	KEY_HELLO_TIMEOUT,
	KEY_DRAIN_TIMEOUT,
	KEY_EMBEDDED_WAIT,
	KEY_ENGINE_LINGER,
	KEY_ENGINES_CGROUP,
	KEY_ENGINE_MEMORY_MAX,
	KEY_ALLOW_ROOT,
	KEY_SUBUIDS,
	KEY_SECCOMP,
	KEY_LOG_LEVEL,
	KEY_COUNT
};

/* values of lane_security */
#define LANE_SECURITY_AUTH	0
#define LANE_SECURITY_ENCRYPT	1

/* values of transport */
#define TRANSPORT_AUTO	0
#define TRANSPORT_TCP	1
#define TRANSPORT_VERBS	2

extern const struct conf_item conf_keys[KEY_COUNT];
/* Is it for who runs the node to say, and for nobody who only has an engine there: what users may have, what is written to its log? */
bool conf_key_is_node(size_t key);

#endif

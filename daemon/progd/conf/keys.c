// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "conf/keys.h"

#define SEC 1000000000ll

const struct conf_item conf_keys[KEY_COUNT] = {
	[KEY_SOCKET] = {
		"socket", CONF_STRING, 1, 107, "/run/progd/progd.sock", NULL,
		"Path of the socket that clients connect to. The control socket of progctl stands "
		"beside it, with \".ctl\" added.", CONF_START,
	},
	[KEY_MULTI_USER] = {
		"multi_user", CONF_ENUM, 0, 0, "no", "no insecure",
		"Changes nothing any more: a daemon serves the user that it runs as and refuses all others, "
		"whatever this says.", CONF_START,
	},
	[KEY_LISTEN] = {
		"listen", CONF_LIST, 0, 16, "", NULL,
		"Interfaces or addresses on which other nodes' daemons are accepted. Empty: all "
		"interfaces that are up but loopback, or loopback if there is no other.", CONF_START,
	},
	[KEY_PORT] = {
		"port", CONF_INT, 0, 65535, "0", NULL,
		"TCP port for other nodes' daemons. 0: chosen by the kernel; clients tell each other.",
		CONF_START,
	},
	[KEY_PORTS] = {
		"ports", CONF_STRING, 0, 11, "", NULL,
		"TCP ports for other nodes' daemons, such as \"7000-7063\": each daemon takes a free one. With a "
		"supervisor every user has a daemon, and the port of one that ended stays taken for 15 minutes. "
		"Empty: as port says.", CONF_START,
	},
	[KEY_WORKERS] = {
		"workers", CONF_INT, 1, 16, "1", NULL,
		"Threads that move data. Targets are divided among them by rank, and what binding says is shared.", CONF_START,
	},
	[KEY_BINDING] = {
		"binding", CONF_ENUM, 0, 0, "auto", "rank segment random ops bytes auto",
		"Which of several workers serve puts and gets between one origin and one target; all else is always done by that of the "
		"target's rank. rank: that one. segment: one for each part of the target's memory. random. ops, bytes: the one "
		"that the origin gave the fewest operations, or bytes, lately. auto: that of the rank, or, while it has no time "
		"left, as bytes. A window can say another by its info asyncprog_binding.", CONF_START,
	},
	[KEY_LOOP] = {
		"loop", CONF_ENUM, 0, 0, "auto", "auto io_uring epoll",
		"Event loop of the workers. auto: io_uring where the kernel permits it, else epoll.",
		CONF_START,
	},
	[KEY_POLL_US] = {
		"poll_us", CONF_INT, -1, 1000000, "-1", NULL,
		"Microseconds a worker looks for more work before it sleeps. -1: up to 50 while events "
		"come at shorter intervals and a core has nothing else to run, else 0.", CONF_START,
	},
	[KEY_CPUS] = {
		"cpus", CONF_STRING, 0, 255, "", NULL,
		"Processors the workers may run on, such as \"0-3,8\". Empty: left to the scheduler.",
		CONF_START,
	},
	[KEY_PRIORITY] = {
		"priority", CONF_ENUM, 0, 0, "auto", "auto none nice rr",
		"How a woken worker gets a core from a computing process: rr is lowest real-time "
		"priority, nice the best nice value permitted, auto the first of these that is "
		"permitted.", CONF_START,
	},
	[KEY_CMA] = {
		"cma", CONF_BOOL, 0, 0, "yes", NULL,
		"Read and write private memory of clients of the daemon's own user with process_vm_readv "
		"and process_vm_writev. no: always through the clients' helper threads.", CONF_START,
	},
	[KEY_PINNED] = {
		"pinned", CONF_BOOL, 0, 0, "yes", NULL,
		"Map private memory of clients that they pin by the kernel module asyncprog, where that is "
		"loaded. no, or without the module: as cma says.", CONF_START,
	},
	[KEY_PIN_MAX] = {
		"pin_max", CONF_SIZE, 0, 1ll << 50, "1G", NULL,
		"How much of its private memory a process pins at most. What is pinned is in memory as a "
		"whole, and counts against RLIMIT_MEMLOCK of the process and the limits of the module "
		"asyncprog.", CONF_NODE,
	},
	[KEY_PIN_CACHE] = {
		"pin_cache", CONF_SIZE, 0, 1ll << 50, "64M", NULL,
		"Of that, buffers of large operations and messages that a process keeps pinned because it "
		"used them more than once. 0: only windows are pinned.", CONF_RUNTIME,
	},
	[KEY_COPY_ENGINE] = {
		"copy_engine", CONF_ENUM, 0, 0, "auto", "auto cpu kernel dma",
		"Who copies between pinned memory of two processes of a node. cpu: the worker. dma: the DMA "
		"engine of the kernel module ioat_copy, while the worker goes on; without an engine that "
		"module's kernel threads. kernel: kernel threads of the module asyncprog. auto: the "
		"DMA engine if there is one and the worker has other work or the copy is four times as long "
		"as copy_engine_min, else the worker, which also copies what an engine fails to.",
		CONF_RUNTIME,
	},
	[KEY_COPY_ENGINE_MIN] = {
		"copy_engine_min", CONF_SIZE, 4096, 1ll << 40, "256K", NULL,
		"Shorter copies than this are made by the worker, whatever copy_engine says: handing one over "
		"and being told of its end takes two system calls and a wake-up.", CONF_RUNTIME,
	},
	[KEY_QUOTA_SESSIONS] = {
		"quota_sessions", CONF_INT, 1, 1 << 20, "4096", NULL,
		"Sessions (attached processes) per user.", CONF_NODE,
	},
	[KEY_QUOTA_REGIONS] = {
		"quota_regions", CONF_INT, 0, 1 << 24, "65536", NULL,
		"Memory regions per user.", CONF_NODE,
	},
	[KEY_QUOTA_WINDOWS] = {
		"quota_windows", CONF_INT, 0, 1 << 24, "65536", NULL,
		"Window ranks per user.", CONF_NODE,
	},
	[KEY_QUOTA_BYTES] = {
		"quota_bytes", CONF_SIZE, 0, 1ll << 50, "64T", NULL,
		"Bytes of clients' shared memory mapped per user. It is the clients' own memory: the "
		"limit keeps the address space of the daemon free.", CONF_NODE,
	},
	[KEY_QUOTA_STREAMS] = {
		"quota_streams", CONF_INT, 1, 1 << 28, "4194304", NULL,
		"Pairs of origin and target rank of a window per user, between which operations went "
		"through the daemon.", CONF_NODE,
	},
	[KEY_QUOTA_TYPES] = {
		"quota_types", CONF_SIZE, 0, 1ll << 50, "1G", NULL,
		"Memory for derived datatypes of targets and of messages per user, five times their encoded size: "
		"160 bytes for each block that follows no regular pattern.", CONF_NODE,
	},
	[KEY_QUOTA_TABLES] = {
		"quota_tables", CONF_SIZE, 0, 1ll << 50, "4G", NULL,
		"Memory for windows' tables of who is where per user: 4 bytes for each rank and 120 for each node, "
		"of each window of each process. Also for each node that anything is sent to: 1 KB, and 256 bytes for each job "
		"that does so, with each worker; and for each two ranks that messages go between: 344 bytes at each of them.", CONF_NODE,
	},
	[KEY_TWO_SIDED] = {
		"two_sided", CONF_BOOL, 0, 0, "yes", NULL,
		"Move large two-sided messages. no: they are left to the MPI library, from the next one "
		"that is sent.", CONF_RUNTIME,
	},
	[KEY_P2P_OFFLOAD] = {
		"p2p_offload", CONF_SIZE, 1024, 1ll << 40, "512K", NULL,
		"Two-sided messages of at least this size are moved, smaller ones are left to the MPI "
		"library. Of pairs of ranks for which \"progctl thresh set\" has not said another.",
		CONF_RUNTIME,
	},
	[KEY_P2P_OFFLOAD_MIN] = {
		"p2p_offload_min", CONF_SIZE, 1024, 1ll << 40, "32K", NULL,
		"No pair of ranks gets a lower p2p_offload than this.", CONF_RUNTIME,
	},
	[KEY_P2P_WAITING] = {
		"p2p_waiting", CONF_ENUM, 0, 0, "adaptive", "adaptive always",
		"adaptive: messages to a rank that waits for them at once, without computing, are left to "
		"the MPI library, which is quicker then: within a node all of them, between nodes three of "
		"four, if their sender waits as well. always: they are moved like others. Of pairs of ranks "
		"for which \"progctl thresh set\" has not said an offload threshold.", CONF_RUNTIME,
	},
	[KEY_P2P_EAGER] = {
		"p2p_eager", CONF_SIZE, 0, 12 << 20, "0", NULL,
		"Two-sided messages up to this size are taken to the receiver's pool before they are "
		"matched, from a pair's first one on; adaptation can only raise it.", CONF_RUNTIME, "p2p_early",
	},
	[KEY_P2P_EAGER_MAX] = {
		"p2p_eager_max", CONF_SIZE, 0, 12 << 20, "6M", NULL,
		"No two-sided message larger than this is taken to the receiver's pool before it is "
		"matched. Up to which size that is done adapts to the program. 0: none is.", CONF_RUNTIME, "p2p_early_max",
	},
	[KEY_P2P_POOL_BYTES] = {
		"p2p_pool_bytes", CONF_SIZE, 0, 1ll << 36, "64M", NULL,
		"Memory of a process for messages that are taken before they are matched, used only when "
		"and as far as there are any. A process that attached before a change keeps at most what "
		"it had.", CONF_RUNTIME,
	},
	[KEY_P2P_POOL_IDLE] = {
		"p2p_pool_idle", CONF_DURATION, SEC / 100, 3600 * SEC, "5s", NULL,
		"Memory of that pool that was not needed for two to three times as long is given back.",
		CONF_RUNTIME,
	},
	[KEY_P2P_RETRY] = {
		"p2p_retry", CONF_DURATION, SEC / 100, 3600 * SEC, "1s", NULL,
		"When there was no memory to take a pair's message eagerly, it is not tried again for so long.",
		CONF_RUNTIME,
	},
	[KEY_QUOTA_MESSAGES] = {
		"quota_messages", CONF_INT, 1, 1 << 24, "65536", NULL,
		"Messages to one rank that are known before it receives them; each takes some 300 bytes of "
		"the daemon's memory. One beyond it moves only once its receive has found it.",
		CONF_NODE,
	},
	[KEY_COLL_NET_LATENCY] = {
		"coll_net_latency", CONF_DURATION, 0, SEC / 10, "0", NULL,
		"What a message between two nodes takes until who waits for it goes on. Algorithms of collectives are chosen by this and the "
		"following ones, in a job by those of rank 0's node when it starts; \"progctl coll\" shows how. 0: as measured, and "
		"40us for reductions, whose results are the same bits from run to run, and until something has been measured.",
		CONF_RUNTIME,
	},
	[KEY_COLL_NODE_LATENCY] = {
		"coll_node_latency", CONF_DURATION, 100, SEC / 10, "20us", NULL,
		"The same within a node.", CONF_RUNTIME,
	},
	[KEY_COLL_NET_RATE] = {
		"coll_net_rate", CONF_SIZE, 0, 1ll << 40, "0", NULL,
		"Bytes per second between two nodes, 1M and more. 0: as measured, and 1G for reductions and until something has been measured.",
		CONF_RUNTIME,
	},
	[KEY_COLL_NODE_RATE] = {
		"coll_node_rate", CONF_SIZE, 1 << 20, 1ll << 40, "4G", NULL,
		"Bytes per second between two processes of a node.", CONF_RUNTIME,
	},
	[KEY_COLL_REDUCE_RATE] = {
		"coll_reduce_rate", CONF_SIZE, 1 << 20, 1ll << 40, "4G", NULL,
		"Bytes per second that a process reduces.", CONF_RUNTIME,
	},
	[KEY_PEER_TIMEOUT] = {
		"peer_timeout", CONF_DURATION, SEC / 10, 3600 * SEC, "10s", NULL,
		"A connection to a node that does not answer for this long is given up, and made again.",
		CONF_START,
	},
	[KEY_PEER_GIVEUP] = {
		"peer_giveup", CONF_DURATION, SEC / 10, 86400 * SEC, "15min", NULL,
		"A node that cannot be reached for this long is taken for gone: operations on it fail. One that is known "
		"to have ended is not waited for.", CONF_START,
	},
	[KEY_CONNECT_TIMEOUT] = {
		"connect_timeout", CONF_DURATION, SEC / 10, 3600 * SEC, "5s", NULL,
		"Time to connect to one address of another node.", CONF_START,
	},
	[KEY_LANE_SECURITY] = {
		"lane_security", CONF_ENUM, 0, 0, "auth", "auth encrypt",
		"What protects the bytes between nodes. auth: both sides prove a job's key, and the network is trusted from then on. "
		"encrypt: all bytes are encrypted and authenticated as well, by the processor. The same on all nodes: a daemon refuses "
		"one that says another.", CONF_START,
	},
	[KEY_LANE_KEY] = {
		"lane_key", CONF_STRING, 0, 4000, "", NULL,
		"File of 32 bytes and more, the user's own and readable by nobody else, the same on all nodes, such as "
		"\"~/.progd.key\". Who does not have it cannot stand between two daemons, even if he reads a job's key on "
		"the network. Empty: none.",
		CONF_START,
	},
	[KEY_TRANSPORT] = {
		"transport", CONF_ENUM, 0, 0, "tcp", "auto tcp verbs",
		"How bytes go between nodes. tcp: by TCP. auto: by RDMA (libibverbs; InfiniBand and RoCE) where both nodes have it and "
		"lane_security is not encrypt, else by TCP. verbs: as auto, and a daemon without an RDMA device that it can use does "
		"not start. Connections are always made by TCP.", CONF_START,
	},
	[KEY_NET_DEVICES] = {
		"net_devices", CONF_LIST, 0, 16, "", NULL,
		"RDMA devices that may be used, as \"mlx5_0\" or, for one port, \"mlx5_0:1\". Empty: of RoCE devices that which has the "
		"address of the lane's connection, and InfiniBand ports that are active.", CONF_START,
	},
	[KEY_RDMA_GID] = {
		"rdma_gid", CONF_INT, -1, 65535, "-1", NULL,
		"Entry of the port's table of GIDs that lanes use. -1: with RoCE the one of version 2 that is the address of the lane's "
		"connection, with InfiniBand the first.", CONF_START,
	},
	[KEY_RDMA_MTU] = {
		"rdma_mtu", CONF_INT, 0, 4096, "0", NULL,
		"Largest packet that lanes use with RDMA, in bytes: 256, 512, 1024, 2048 or 4096; the next smaller one of these is taken, "
		"and no more than both ports have. 0: that.", CONF_START,
	},
	[KEY_RDMA_SERVICE_LEVEL] = {
		"rdma_service_level", CONF_INT, 0, 15, "0", NULL,
		"Service level of lanes with RDMA; with RoCE 0 to 7, the priority.", CONF_START,
	},
	[KEY_HELLO_TIMEOUT] = {
		"hello_timeout", CONF_DURATION, SEC / 10, 3600 * SEC, "10s", NULL,
		"A client connection that has not introduced itself by then is closed.", CONF_START,
	},
	[KEY_DRAIN_TIMEOUT] = {
		"drain_timeout", CONF_DURATION, 0, 60 * SEC, "2s", NULL,
		"At the end, time to send what is queued to other nodes.", CONF_RUNTIME,
	},
	[KEY_EMBEDDED_WAIT] = {
		"embedded_wait", CONF_DURATION, SEC / 10, 3600 * SEC, "30s", NULL,
		"A private daemon (--embedded) to which nobody connects ends after this.", CONF_START,
	},
	[KEY_ENGINE_LINGER] = {
		"engine_linger", CONF_DURATION, 0, 3600 * SEC, "10s", NULL,
		"An engine of the supervisor to which nobody has been connected for so long ends.", CONF_NODE,
	},
	[KEY_ENGINES_CGROUP] = {
		"engines_cgroup", CONF_STRING, 0, 4000, "auto", NULL,
		"Directory of the cgroup below which the supervisor makes one for each engine. auto: that of progd-engines.service "
		"where the supervisor is a service of systemd. none: engines stay in the supervisor's.", CONF_START,
	},
	[KEY_ENGINE_MEMORY_MAX] = {
		"engine_memory_max", CONF_SIZE, 0, 1ll << 60, "0", NULL,
		"Memory of a user's engine, with the pages of clients that it is the first to touch, if it has a cgroup; the kernel ends one "
		"that needs more. 0: no limit.", CONF_START,
	},
	[KEY_ALLOW_ROOT] = {
		"allow_root", CONF_BOOL, 0, 0, "no", NULL,
		"The supervisor starts an engine for root, too. no: processes of root start private daemons.",
		CONF_START,
	},
	[KEY_SUBUIDS] = {
		"subuids", CONF_STRING, 0, 4000, "/etc/subuid", NULL,
		"File of the uids that users have for their containers; read again at a reload. The supervisor starts no engine for one of "
		"these, as all of them are one user: processes with such a uid start private daemons. Empty: it does.", CONF_START,
	},
	[KEY_SECCOMP] = {
		"seccomp", CONF_BOOL, 0, 0, "yes", NULL,
		"The supervisor and daemons, once they have started, have the kernel refuse them all system calls but those that they need, with "
		"EPERM. no: where a debugger, a profiler or a preloaded library needs others.", CONF_START,
	},
	[KEY_LOG_LEVEL] = {
		"log_level", CONF_ENUM, 0, 0, "warn", "error warn info debug",
		"What is logged: this level and all before it.", CONF_NODE,
	},
};

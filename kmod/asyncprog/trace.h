/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM asyncprog

#if !defined(_AP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _AP_TRACE_H

#include <linux/tracepoint.h>

/* the life of a region: registered, stale, ended; handles are in hexadecimal everywhere */
TRACE_EVENT(asyncprog_register,
	TP_PROTO(u64 handle, u64 addr, u64 length, unsigned int page_shift),
	TP_ARGS(handle, addr, length, page_shift),
	TP_STRUCT__entry(
		__field(u64, handle)
		__field(u64, addr)
		__field(u64, length)
		__field(unsigned int, page_shift)
	),
	TP_fast_assign(
		__entry->handle = handle;
		__entry->addr = addr;
		__entry->length = length;
		__entry->page_shift = page_shift;
	),
	TP_printk("handle=%llx addr=%llx length=%llu page_shift=%u", __entry->handle,
		  __entry->addr, __entry->length, __entry->page_shift)
);

DECLARE_EVENT_CLASS(asyncprog_region,
	TP_PROTO(u64 handle, u64 length),
	TP_ARGS(handle, length),
	TP_STRUCT__entry(
		__field(u64, handle)
		__field(u64, length)
	),
	TP_fast_assign(
		__entry->handle = handle;
		__entry->length = length;
	),
	TP_printk("handle=%llx length=%llu", __entry->handle, __entry->length)
);

DEFINE_EVENT(asyncprog_region, asyncprog_stale,
	TP_PROTO(u64 handle, u64 length),
	TP_ARGS(handle, length)
);

DEFINE_EVENT(asyncprog_region, asyncprog_end,
	TP_PROTO(u64 handle, u64 length),
	TP_ARGS(handle, length)
);

/* a copy has ended, whoever made it */
TRACE_EVENT(asyncprog_copied,
	TP_PROTO(u64 src, u64 dst, u64 length, int status),
	TP_ARGS(src, dst, length, status),
	TP_STRUCT__entry(
		__field(u64, src)
		__field(u64, dst)
		__field(u64, length)
		__field(int, status)
	),
	TP_fast_assign(
		__entry->src = src;
		__entry->dst = dst;
		__entry->length = length;
		__entry->status = status;
	),
	TP_printk("src=%llx dst=%llx length=%llu status=%d", __entry->src, __entry->dst,
		  __entry->length, __entry->status)
);

#endif /* _AP_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>

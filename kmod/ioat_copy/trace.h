/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ioat_copy

#if !defined(_IC_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _IC_TRACE_H

#include <linux/tracepoint.h>

/* a copy: submitted, and completed; seq counts those of a file, cookie is the user's */
TRACE_EVENT(ioat_copy_submit,
	TP_PROTO(u64 cookie, u64 seq, u64 length),
	TP_ARGS(cookie, seq, length),
	TP_STRUCT__entry(
		__field(u64, cookie)
		__field(u64, seq)
		__field(u64, length)
	),
	TP_fast_assign(
		__entry->cookie = cookie;
		__entry->seq = seq;
		__entry->length = length;
	),
	TP_printk("cookie=%llx seq=%llu length=%llu", __entry->cookie, __entry->seq,
		  __entry->length)
);

TRACE_EVENT(ioat_copy_complete,
	TP_PROTO(u64 cookie, u64 seq, u64 length, u64 dma, int status),
	TP_ARGS(cookie, seq, length, dma, status),
	TP_STRUCT__entry(
		__field(u64, cookie)
		__field(u64, seq)
		__field(u64, length)
		__field(u64, dma)
		__field(int, status)
	),
	TP_fast_assign(
		__entry->cookie = cookie;
		__entry->seq = seq;
		__entry->length = length;
		__entry->dma = dma;
		__entry->status = status;
	),
	TP_printk("cookie=%llx seq=%llu length=%llu dma=%llu status=%d", __entry->cookie,
		  __entry->seq, __entry->length, __entry->dma, __entry->status)
);

#endif /* _IC_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>

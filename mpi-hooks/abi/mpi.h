/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * mpi.h - the application binary interface of the MPI standard (MPI-5.0, chapter 20 and appendix A.1), as much of it as the
 * hooks use.  It is the same for all MPI libraries that have it, so this is for libprogmpi-abi.so what the header of an MPI
 * library is for the others; abi_test compares it with the headers that are installed.
 *
 * Handles are pointers to nothing that is known.  Values of predefined ones, below 4096, tell the kind of the object, and of
 * datatypes of a fixed size that.
 */
#ifndef HOOKS_ABI_MPI_H
#define HOOKS_ABI_MPI_H

#include <stdint.h>

#define MPI_VERSION	5
#define MPI_SUBVERSION	0
#define MPI_ABI_VERSION	1
#define MPI_ABI_SUBVERSION	0

typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;
typedef int64_t MPI_Offset;

typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef struct MPI_ABI_Group *MPI_Group;
typedef struct MPI_ABI_Info *MPI_Info;
typedef struct MPI_ABI_Message *MPI_Message;
typedef struct MPI_ABI_Op *MPI_Op;
typedef struct MPI_ABI_Request *MPI_Request;
typedef struct MPI_ABI_Session *MPI_Session;
typedef struct MPI_ABI_Win *MPI_Win;

typedef struct {
	int MPI_SOURCE;
	int MPI_TAG;
	int MPI_ERROR;
	int MPI_internal[5];	/* the library's own */
} MPI_Status;

typedef int MPI_Comm_copy_attr_function(MPI_Comm, int, void *, void *, void *, int *);
typedef int MPI_Comm_delete_attr_function(MPI_Comm, int, void *, void *);
typedef int MPI_Type_copy_attr_function(MPI_Datatype, int, void *, void *, void *, int *);
typedef int MPI_Type_delete_attr_function(MPI_Datatype, int, void *, void *);
typedef int MPI_Win_copy_attr_function(MPI_Win, int, void *, void *, void *, int *);
typedef int MPI_Win_delete_attr_function(MPI_Win, int, void *, void *);
typedef int MPI_Grequest_query_function(void *, MPI_Status *);
typedef int MPI_Grequest_free_function(void *);
typedef int MPI_Grequest_cancel_function(void *, int);

#define MPI_COMM_NULL				((MPI_Comm)0x100)
#define MPI_COMM_WORLD				((MPI_Comm)0x101)
#define MPI_COMM_SELF				((MPI_Comm)0x102)

#define MPI_DATATYPE_NULL			((MPI_Datatype)0x200)
#define MPI_AINT				((MPI_Datatype)0x201)
#define MPI_COUNT				((MPI_Datatype)0x202)
#define MPI_OFFSET				((MPI_Datatype)0x203)
#define MPI_PACKED				((MPI_Datatype)0x207)
#define MPI_SHORT				((MPI_Datatype)0x208)
#define MPI_INT					((MPI_Datatype)0x209)
#define MPI_LONG				((MPI_Datatype)0x20a)
#define MPI_LONG_LONG_INT			((MPI_Datatype)0x20b)
#define MPI_UNSIGNED_SHORT			((MPI_Datatype)0x20c)
#define MPI_UNSIGNED				((MPI_Datatype)0x20d)
#define MPI_UNSIGNED_LONG			((MPI_Datatype)0x20e)
#define MPI_UNSIGNED_LONG_LONG			((MPI_Datatype)0x20f)
#define MPI_FLOAT				((MPI_Datatype)0x210)
#define MPI_C_FLOAT_COMPLEX			((MPI_Datatype)0x212)
#define MPI_CXX_FLOAT_COMPLEX			((MPI_Datatype)0x213)
#define MPI_DOUBLE				((MPI_Datatype)0x214)
#define MPI_C_DOUBLE_COMPLEX			((MPI_Datatype)0x216)
#define MPI_CXX_DOUBLE_COMPLEX			((MPI_Datatype)0x217)
#define MPI_LOGICAL				((MPI_Datatype)0x218)
#define MPI_INTEGER				((MPI_Datatype)0x219)
#define MPI_REAL				((MPI_Datatype)0x21a)
#define MPI_COMPLEX				((MPI_Datatype)0x21b)
#define MPI_DOUBLE_PRECISION			((MPI_Datatype)0x21c)
#define MPI_DOUBLE_COMPLEX			((MPI_Datatype)0x21d)
#define MPI_CHARACTER				((MPI_Datatype)0x21e)
#define MPI_LONG_DOUBLE				((MPI_Datatype)0x220)
#define MPI_C_LONG_DOUBLE_COMPLEX		((MPI_Datatype)0x224)
#define MPI_CXX_LONG_DOUBLE_COMPLEX		((MPI_Datatype)0x225)
#define MPI_FLOAT_INT				((MPI_Datatype)0x228)
#define MPI_DOUBLE_INT				((MPI_Datatype)0x229)
#define MPI_LONG_INT				((MPI_Datatype)0x22a)
#define MPI_2INT				((MPI_Datatype)0x22b)
#define MPI_SHORT_INT				((MPI_Datatype)0x22c)
#define MPI_LONG_DOUBLE_INT			((MPI_Datatype)0x22d)
#define MPI_2REAL				((MPI_Datatype)0x230)
#define MPI_2DOUBLE_PRECISION			((MPI_Datatype)0x231)
#define MPI_2INTEGER				((MPI_Datatype)0x232)
#define MPI_C_BOOL				((MPI_Datatype)0x238)
#define MPI_CXX_BOOL				((MPI_Datatype)0x239)
#define MPI_WCHAR				((MPI_Datatype)0x23c)
#define MPI_INT8_T				((MPI_Datatype)0x240)
#define MPI_UINT8_T				((MPI_Datatype)0x241)
#define MPI_CHAR				((MPI_Datatype)0x243)
#define MPI_SIGNED_CHAR				((MPI_Datatype)0x244)
#define MPI_UNSIGNED_CHAR			((MPI_Datatype)0x245)
#define MPI_BYTE				((MPI_Datatype)0x247)
#define MPI_INT16_T				((MPI_Datatype)0x248)
#define MPI_UINT16_T				((MPI_Datatype)0x249)
#define MPI_INT32_T				((MPI_Datatype)0x250)
#define MPI_UINT32_T				((MPI_Datatype)0x251)
#define MPI_INT64_T				((MPI_Datatype)0x258)
#define MPI_UINT64_T				((MPI_Datatype)0x259)
#define MPI_LOGICAL1				((MPI_Datatype)0x2c0)
#define MPI_INTEGER1				((MPI_Datatype)0x2c1)
#define MPI_LOGICAL2				((MPI_Datatype)0x2c8)
#define MPI_INTEGER2				((MPI_Datatype)0x2c9)
#define MPI_REAL2				((MPI_Datatype)0x2ca)
#define MPI_LOGICAL4				((MPI_Datatype)0x2d0)
#define MPI_INTEGER4				((MPI_Datatype)0x2d1)
#define MPI_REAL4				((MPI_Datatype)0x2d2)
#define MPI_COMPLEX4				((MPI_Datatype)0x2d3)
#define MPI_LOGICAL8				((MPI_Datatype)0x2d8)
#define MPI_INTEGER8				((MPI_Datatype)0x2d9)
#define MPI_REAL8				((MPI_Datatype)0x2da)
#define MPI_COMPLEX8				((MPI_Datatype)0x2db)
#define MPI_INTEGER16				((MPI_Datatype)0x2e1)
#define MPI_REAL16				((MPI_Datatype)0x2e2)
#define MPI_COMPLEX16				((MPI_Datatype)0x2e3)
#define MPI_COMPLEX32				((MPI_Datatype)0x2eb)

#define MPI_ERRHANDLER_NULL			((MPI_Errhandler)0x140)
#define MPI_ERRORS_ARE_FATAL			((MPI_Errhandler)0x141)
#define MPI_ERRORS_ABORT			((MPI_Errhandler)0x142)
#define MPI_ERRORS_RETURN			((MPI_Errhandler)0x143)

#define MPI_GROUP_NULL				((MPI_Group)0x108)
#define MPI_GROUP_EMPTY				((MPI_Group)0x109)

#define MPI_INFO_NULL				((MPI_Info)0x130)
#define MPI_INFO_ENV				((MPI_Info)0x131)

#define MPI_MESSAGE_NULL			((MPI_Message)0x128)
#define MPI_MESSAGE_NO_PROC			((MPI_Message)0x129)

#define MPI_SUM					((MPI_Op)0x021)
#define MPI_MIN					((MPI_Op)0x022)
#define MPI_MAX					((MPI_Op)0x023)
#define MPI_PROD				((MPI_Op)0x024)
#define MPI_BAND				((MPI_Op)0x028)
#define MPI_BOR					((MPI_Op)0x029)
#define MPI_BXOR				((MPI_Op)0x02a)
#define MPI_LAND				((MPI_Op)0x030)
#define MPI_LOR					((MPI_Op)0x031)
#define MPI_LXOR				((MPI_Op)0x032)
#define MPI_MINLOC				((MPI_Op)0x038)
#define MPI_MAXLOC				((MPI_Op)0x039)
#define MPI_REPLACE				((MPI_Op)0x03c)
#define MPI_NO_OP				((MPI_Op)0x03d)

#define MPI_REQUEST_NULL			((MPI_Request)0x180)

#define MPI_WIN_NULL				((MPI_Win)0x110)

#define MPI_COMM_NULL_COPY_FN			((MPI_Comm_copy_attr_function *)0)

#define MPI_STATUSES_IGNORE			((MPI_Status *)0)
#define MPI_STATUS_IGNORE			((MPI_Status *)0)

#define MPI_IN_PLACE				((void *)1)

#define MPI_TYPE_NULL_COPY_FN			((MPI_Type_copy_attr_function *)0)
#define MPI_WIN_NULL_COPY_FN			((MPI_Win_copy_attr_function *)0)
#define MPI_WIN_NULL_DELETE_FN			((MPI_Win_delete_attr_function *)0)

#define MPI_SUCCESS				0
#define MPI_ERR_BUFFER				1
#define MPI_ERR_COUNT				2
#define MPI_ERR_TYPE				3
#define MPI_ERR_TAG				4
#define MPI_ERR_RANK				6
#define MPI_ERR_REQUEST				7
#define MPI_ERR_ROOT				8
#define MPI_ERR_GROUP				9
#define MPI_ERR_OP				10
#define MPI_ERR_ARG				13
#define MPI_ERR_TRUNCATE			15
#define MPI_ERR_OTHER				16
#define MPI_ERR_PENDING				18
#define MPI_ERR_IN_STATUS			19
#define MPI_ERR_ASSERT				22
#define MPI_ERR_DISP				26
#define MPI_ERR_LOCKTYPE			37
#define MPI_ERR_NO_MEM				39
#define MPI_ERR_RMA_ATTACH			46
#define MPI_ERR_RMA_RANGE			48
#define MPI_ERR_RMA_SYNC			50
#define MPI_ERR_SIZE				52
#define MPI_ERR_UNSUPPORTED_OPERATION		55
#define MPI_ERR_WIN				56
#define MPI_ERR_RMA_FLAVOR			57

#define MPI_COMBINER_NAMED			101
#define MPI_COMBINER_DUP			102
#define MPI_COMBINER_CONTIGUOUS			103
#define MPI_COMBINER_VECTOR			104
#define MPI_COMBINER_HVECTOR			105
#define MPI_COMBINER_INDEXED			106
#define MPI_COMBINER_HINDEXED			107
#define MPI_COMBINER_INDEXED_BLOCK		108
#define MPI_COMBINER_HINDEXED_BLOCK		109
#define MPI_COMBINER_STRUCT			110
#define MPI_COMBINER_SUBARRAY			111
#define MPI_COMBINER_DARRAY			112
#define MPI_COMBINER_F90_REAL			113
#define MPI_COMBINER_F90_COMPLEX		114
#define MPI_COMBINER_F90_INTEGER		115
#define MPI_COMBINER_RESIZED			116

#define MPI_LOCK_EXCLUSIVE			301
#define MPI_LOCK_SHARED				302
#define MPI_WIN_FLAVOR_CREATE			311
#define MPI_WIN_FLAVOR_ALLOCATE			312
#define MPI_WIN_FLAVOR_DYNAMIC			313
#define MPI_WIN_FLAVOR_SHARED			314
#define MPI_WIN_UNIFIED				321

#define MPI_WIN_BASE				601
#define MPI_WIN_DISP_UNIT			602
#define MPI_WIN_SIZE				603
#define MPI_WIN_CREATE_FLAVOR			604
#define MPI_WIN_MODEL				605

#define MPI_MODE_NOCHECK			1024
#define MPI_MODE_NOPRECEDE			2048
#define MPI_MODE_NOPUT				4096
#define MPI_MODE_NOSTORE			8192
#define MPI_MODE_NOSUCCEED			16384

#define MPI_MAX_ERROR_STRING			512
#define MPI_MAX_LIBRARY_VERSION_STRING		8192

#define MPI_THREAD_SINGLE			0
#define MPI_THREAD_FUNNELED			1024
#define MPI_THREAD_SERIALIZED			2048
#define MPI_THREAD_MULTIPLE			4096

#define MPI_ORDER_C				12
#define MPI_DISTRIBUTE_NONE			16
#define MPI_DISTRIBUTE_BLOCK			17
#define MPI_DISTRIBUTE_CYCLIC		18
#define MPI_DISTRIBUTE_DFLT_DARG		19

#define MPI_UNDEFINED				(-32766)
#define MPI_CART				211
#define MPI_GRAPH				212
#define MPI_DIST_GRAPH				213
#define MPI_PROC_NULL				(-3)
#define MPI_ANY_TAG				(-2)
#define MPI_ANY_SOURCE				(-1)
#define MPI_KEYVAL_INVALID			0

int PMPI_Abi_get_version(int *, int *);
int PMPI_Abort(MPI_Comm, int);
int PMPI_Accumulate(const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Op,
		MPI_Win);
int PMPI_Accumulate_c(const void *, MPI_Count, MPI_Datatype, int, MPI_Aint, MPI_Count,
		MPI_Datatype, MPI_Op, MPI_Win);
int PMPI_Allgather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
int PMPI_Allgather_init(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Allgather_init_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
		MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Allgatherv_init(const void *, int, MPI_Datatype, void *, const int *, const int *,
		MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Allgatherv_init_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const
		MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Alloc_mem(MPI_Aint, MPI_Info, void *);
int PMPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Allreduce_init(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
		MPI_Request *);
int PMPI_Allreduce_init_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Alltoall_init(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Alltoall_init_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
		MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Alltoallv_init(const void *, const int *, const int *, MPI_Datatype, void *, const int *,
		const int *, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Alltoallv_init_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
		const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request
		*);
int PMPI_Alltoallw_init(const void *, const int *, const int *, const MPI_Datatype *, void *,
		const int *, const int *, const MPI_Datatype *, MPI_Comm, MPI_Info, MPI_Request
		*);
int PMPI_Alltoallw_init_c(const void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *,
		void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Barrier(MPI_Comm);
int PMPI_Barrier_init(MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Bcast(void *, int, MPI_Datatype, int, MPI_Comm);
int PMPI_Bcast_init(void *, int, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Bcast_init_c(void *, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Bsend(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Bsend_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Bsend_init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Bsend_init_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Cancel(MPI_Request *);
int PMPI_Cart_create(MPI_Comm, int, const int *, const int *, int, MPI_Comm *);
int PMPI_Cart_shift(MPI_Comm, int, int, int *, int *);
int PMPI_Cart_sub(MPI_Comm, const int *, MPI_Comm *);
int PMPI_Cartdim_get(MPI_Comm, int *);
int PMPI_Comm_call_errhandler(MPI_Comm, int);
int PMPI_Comm_create(MPI_Comm, MPI_Group, MPI_Comm *);
int PMPI_Comm_create_from_group(MPI_Group, const char *, MPI_Info, MPI_Errhandler, MPI_Comm *);
int PMPI_Comm_create_group(MPI_Comm, MPI_Group, int, MPI_Comm *);
int PMPI_Comm_create_keyval(MPI_Comm_copy_attr_function *, MPI_Comm_delete_attr_function *, int *,
		void *);
int PMPI_Comm_disconnect(MPI_Comm *);
int PMPI_Comm_dup(MPI_Comm, MPI_Comm *);
int PMPI_Comm_dup_with_info(MPI_Comm, MPI_Info, MPI_Comm *);
int PMPI_Comm_free(MPI_Comm *);
int PMPI_Comm_free_keyval(int *);
int PMPI_Comm_get_attr(MPI_Comm, int, void *, int *);
int PMPI_Comm_get_errhandler(MPI_Comm, MPI_Errhandler *);
int PMPI_Comm_group(MPI_Comm, MPI_Group *);
int PMPI_Comm_idup(MPI_Comm, MPI_Comm *, MPI_Request *);
int PMPI_Comm_idup_with_info(MPI_Comm, MPI_Info, MPI_Comm *, MPI_Request *);
int PMPI_Comm_rank(MPI_Comm, int *);
int PMPI_Comm_remote_group(MPI_Comm, MPI_Group *);
int PMPI_Comm_set_attr(MPI_Comm, int, void *);
int PMPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler);
int PMPI_Comm_set_info(MPI_Comm, MPI_Info);
int PMPI_Comm_size(MPI_Comm, int *);
int PMPI_Comm_split(MPI_Comm, int, int, MPI_Comm *);
int PMPI_Comm_split_type(MPI_Comm, int, int, MPI_Info, MPI_Comm *);
int PMPI_Comm_test_inter(MPI_Comm, int *);
int PMPI_Compare_and_swap(const void *, const void *, void *, MPI_Datatype, int, MPI_Aint,
		MPI_Win);
int PMPI_Dist_graph_create(MPI_Comm, int, const int *, const int *, const int *, const int *,
		MPI_Info, int, MPI_Comm *);
int PMPI_Dist_graph_create_adjacent(MPI_Comm, int, const int *, const int *, int, const int *,
		const int *, MPI_Info, int, MPI_Comm *);
int PMPI_Dist_graph_neighbors(MPI_Comm, int, int *, int *, int, int *, int *);
int PMPI_Dist_graph_neighbors_count(MPI_Comm, int *, int *, int *);
int PMPI_Errhandler_free(MPI_Errhandler *);
int PMPI_Error_class(int, int *);
int PMPI_Error_string(int, char *, int *);
int PMPI_Exscan_init(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
		MPI_Request *);
int PMPI_Exscan_init_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
		MPI_Request *);
int PMPI_Fetch_and_op(const void *, void *, MPI_Datatype, int, MPI_Aint, MPI_Op, MPI_Win);
int PMPI_Finalized(int *);
int PMPI_Free_mem(void *);
int PMPI_Gather_init(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Gather_init_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
		int, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Gatherv_init(const void *, int, MPI_Datatype, void *, const int *, const int *,
		MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Gatherv_init_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const
		MPI_Aint *, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Get(void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win);
int PMPI_Get_accumulate(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Aint,
		int, MPI_Datatype, MPI_Op, MPI_Win);
int PMPI_Get_accumulate_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
		int, MPI_Aint, MPI_Count, MPI_Datatype, MPI_Op, MPI_Win);
int PMPI_Get_c(void *, MPI_Count, MPI_Datatype, int, MPI_Aint, MPI_Count, MPI_Datatype, MPI_Win);
int PMPI_Get_count_c(const MPI_Status *, MPI_Datatype, MPI_Count *);
int PMPI_Get_elements_c(const MPI_Status *, MPI_Datatype, MPI_Count *);
int PMPI_Get_elements_x(const MPI_Status *, MPI_Datatype, MPI_Count *);
int PMPI_Get_library_version(char *, int *);
int PMPI_Graph_create(MPI_Comm, int, const int *, const int *, int, MPI_Comm *);
int PMPI_Graph_neighbors(MPI_Comm, int, int, int *);
int PMPI_Graph_neighbors_count(MPI_Comm, int, int *);
int PMPI_Grequest_complete(MPI_Request);
int PMPI_Grequest_start(MPI_Grequest_query_function *, MPI_Grequest_free_function *,
		MPI_Grequest_cancel_function *, void *, MPI_Request *);
int PMPI_Group_free(MPI_Group *);
int PMPI_Group_from_session_pset(MPI_Session, const char *, MPI_Group *);
int PMPI_Group_incl(MPI_Group, int, const int *, MPI_Group *);
int PMPI_Group_size(MPI_Group, int *);
int PMPI_Group_translate_ranks(MPI_Group, int, const int *, MPI_Group, int *);
int PMPI_Iallgather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm,
		MPI_Request *);
int PMPI_Iallgather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
		MPI_Comm, MPI_Request *);
int PMPI_Iallgatherv(const void *, int, MPI_Datatype, void *, const int *, const int *,
		MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Iallgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const
		MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Iallreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Iallreduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request
		*);
int PMPI_Ialltoall(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm,
		MPI_Request *);
int PMPI_Ialltoall_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
		MPI_Comm, MPI_Request *);
int PMPI_Ialltoallv(const void *, const int *, const int *, MPI_Datatype, void *, const int *,
		const int *, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ialltoallv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
		const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ialltoallw(const void *, const int *, const int *, const MPI_Datatype *, void *, const
		int *, const int *, const MPI_Datatype *, MPI_Comm, MPI_Request *);
int PMPI_Ialltoallw_c(const void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *,
		void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm,
		MPI_Request *);
int PMPI_Ibarrier(MPI_Comm, MPI_Request *);
int PMPI_Ibcast(void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Ibcast_c(void *, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Ibsend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Ibsend_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Iexscan(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Iexscan_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request
		*);
int PMPI_Igather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm,
		MPI_Request *);
int PMPI_Igather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int,
		MPI_Comm, MPI_Request *);
int PMPI_Igatherv(const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype,
		int, MPI_Comm, MPI_Request *);
int PMPI_Igatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const
		MPI_Aint *, MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Improbe(int, int, MPI_Comm, int *, MPI_Message *, MPI_Status *);
int PMPI_Imrecv(void *, int, MPI_Datatype, MPI_Message *, MPI_Request *);
int PMPI_Imrecv_c(void *, MPI_Count, MPI_Datatype, MPI_Message *, MPI_Request *);
int PMPI_Ineighbor_allgather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm,
		MPI_Request *);
int PMPI_Ineighbor_allgather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count,
		MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_allgatherv(const void *, int, MPI_Datatype, void *, const int *, const int *,
		MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_allgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *,
		const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_alltoall(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm,
		MPI_Request *);
int PMPI_Ineighbor_alltoall_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count,
		MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_alltoallv(const void *, const int *, const int *, MPI_Datatype, void *, const
		int *, const int *, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_alltoallv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype,
		void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request
		*);
int PMPI_Ineighbor_alltoallw(const void *, const int *, const MPI_Aint *, const MPI_Datatype *,
		void *, const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm, MPI_Request
		*);
int PMPI_Ineighbor_alltoallw_c(const void *, const MPI_Count *, const MPI_Aint *, const
		MPI_Datatype *, void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *,
		MPI_Comm, MPI_Request *);
int PMPI_Info_create(MPI_Info *);
int PMPI_Info_free(MPI_Info *);
int PMPI_Info_get(MPI_Info, const char *, int, char *, int *);
int PMPI_Info_set(MPI_Info, const char *, const char *);
int PMPI_Init(int *, char ***);
int PMPI_Init_thread(int *, char ***, int, int *);
int PMPI_Initialized(int *);
int PMPI_Intercomm_create(MPI_Comm, int, MPI_Comm, int, int, MPI_Comm *);
int PMPI_Intercomm_merge(MPI_Comm, int, MPI_Comm *);
int PMPI_Iprobe(int, int, MPI_Comm, int *, MPI_Status *);
int PMPI_Irecv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Irecv_c(void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Ireduce(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request *);
int PMPI_Ireduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm,
		MPI_Request *);
int PMPI_Ireduce_scatter(const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm,
		MPI_Request *);
int PMPI_Ireduce_scatter_block(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm,
		MPI_Request *);
int PMPI_Ireduce_scatter_block_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm,
		MPI_Request *);
int PMPI_Ireduce_scatter_c(const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op,
		MPI_Comm, MPI_Request *);
int PMPI_Irsend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Irsend_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Iscan(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Iscan_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Iscatter(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm,
		MPI_Request *);
int PMPI_Iscatter_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int,
		MPI_Comm, MPI_Request *);
int PMPI_Iscatterv(const void *, const int *, const int *, MPI_Datatype, void *, int,
		MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Iscatterv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
		MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Isend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Isend_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Isendrecv(const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int, int,
		MPI_Comm, MPI_Request *);
int PMPI_Isendrecv_c(const void *, MPI_Count, MPI_Datatype, int, int, void *, MPI_Count,
		MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Isendrecv_replace(void *, int, MPI_Datatype, int, int, int, int, MPI_Comm, MPI_Request
		*);
int PMPI_Isendrecv_replace_c(void *, MPI_Count, MPI_Datatype, int, int, int, int, MPI_Comm,
		MPI_Request *);
int PMPI_Issend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Issend_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Mprobe(int, int, MPI_Comm, MPI_Message *, MPI_Status *);
int PMPI_Mrecv(void *, int, MPI_Datatype, MPI_Message *, MPI_Status *);
int PMPI_Mrecv_c(void *, MPI_Count, MPI_Datatype, MPI_Message *, MPI_Status *);
int PMPI_Neighbor_allgather_init(const void *, int, MPI_Datatype, void *, int, MPI_Datatype,
		MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Neighbor_allgather_init_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count,
		MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Neighbor_allgatherv_init(const void *, int, MPI_Datatype, void *, const int *, const int
		*, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Neighbor_allgatherv_init_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count
		*, const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Neighbor_alltoall_init(const void *, int, MPI_Datatype, void *, int, MPI_Datatype,
		MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Neighbor_alltoall_init_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count,
		MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Neighbor_alltoallv_init(const void *, const int *, const int *, MPI_Datatype, void *,
		const int *, const int *, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Neighbor_alltoallv_init_c(const void *, const MPI_Count *, const MPI_Aint *,
		MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Neighbor_alltoallw_init(const void *, const int *, const MPI_Aint *, const MPI_Datatype
		*, void *, const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Neighbor_alltoallw_init_c(const void *, const MPI_Count *, const MPI_Aint *, const
		MPI_Datatype *, void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *,
		MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Pack(const void *, int, MPI_Datatype, void *, int, int *, MPI_Comm);
int PMPI_Pack_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Count *, MPI_Comm);
int PMPI_Probe(int, int, MPI_Comm, MPI_Status *);
int PMPI_Put(const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win);
int PMPI_Put_c(const void *, MPI_Count, MPI_Datatype, int, MPI_Aint, MPI_Count, MPI_Datatype,
		MPI_Win);
int PMPI_Query_thread(int *);
int PMPI_Raccumulate(const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Op,
		MPI_Win, MPI_Request *);
int PMPI_Raccumulate_c(const void *, MPI_Count, MPI_Datatype, int, MPI_Aint, MPI_Count,
		MPI_Datatype, MPI_Op, MPI_Win, MPI_Request *);
int PMPI_Recv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int PMPI_Recv_c(void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int PMPI_Recv_init(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Recv_init_c(void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Reduce_init(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Info,
		MPI_Request *);
int PMPI_Reduce_init_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Reduce_scatter_block_init(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Reduce_scatter_block_init_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op,
		MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Reduce_scatter_init(const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Reduce_scatter_init_c(const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op,
		MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Request_free(MPI_Request *);
int PMPI_Request_get_status(MPI_Request, int *, MPI_Status *);
int PMPI_Request_get_status_all(int, const MPI_Request *, int *, MPI_Status *);
int PMPI_Request_get_status_any(int, const MPI_Request *, int *, int *, MPI_Status *);
int PMPI_Request_get_status_some(int, const MPI_Request *, int *, int *, MPI_Status *);
int PMPI_Rget(void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win, MPI_Request
		*);
int PMPI_Rget_accumulate(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int,
		MPI_Aint, int, MPI_Datatype, MPI_Op, MPI_Win, MPI_Request *);
int PMPI_Rget_accumulate_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
		int, MPI_Aint, MPI_Count, MPI_Datatype, MPI_Op, MPI_Win, MPI_Request *);
int PMPI_Rget_c(void *, MPI_Count, MPI_Datatype, int, MPI_Aint, MPI_Count, MPI_Datatype, MPI_Win,
		MPI_Request *);
int PMPI_Rput(const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win,
		MPI_Request *);
int PMPI_Rput_c(const void *, MPI_Count, MPI_Datatype, int, MPI_Aint, MPI_Count, MPI_Datatype,
		MPI_Win, MPI_Request *);
int PMPI_Rsend(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Rsend_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Rsend_init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Rsend_init_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Scan_init(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
		MPI_Request *);
int PMPI_Scan_init_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
		MPI_Request *);
int PMPI_Scatter_init(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm,
		MPI_Info, MPI_Request *);
int PMPI_Scatter_init_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
		int, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Scatterv_init(const void *, const int *, const int *, MPI_Datatype, void *, int,
		MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Scatterv_init_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
		MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Send_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Send_init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Send_init_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Sendrecv(const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int, int,
		MPI_Comm, MPI_Status *);
int PMPI_Sendrecv_c(const void *, MPI_Count, MPI_Datatype, int, int, void *, MPI_Count,
		MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int PMPI_Sendrecv_replace(void *, int, MPI_Datatype, int, int, int, int, MPI_Comm, MPI_Status *);
int PMPI_Sendrecv_replace_c(void *, MPI_Count, MPI_Datatype, int, int, int, int, MPI_Comm,
		MPI_Status *);
int PMPI_Ssend(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Ssend_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Ssend_init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Ssend_init_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Session_finalize(MPI_Session *);
int PMPI_Session_init(MPI_Info, MPI_Errhandler, MPI_Session *);
int PMPI_Start(MPI_Request *);
int PMPI_Startall(int, MPI_Request *);
int PMPI_Status_set_cancelled(MPI_Status *, int);
int PMPI_Status_set_elements(MPI_Status *, MPI_Datatype, int);
int PMPI_Status_set_elements_x(MPI_Status *, MPI_Datatype, MPI_Count);
int PMPI_Test(MPI_Request *, int *, MPI_Status *);
int PMPI_Test_cancelled(const MPI_Status *, int *);
int PMPI_Testall(int, MPI_Request *, int *, MPI_Status *);
int PMPI_Testany(int, MPI_Request *, int *, int *, MPI_Status *);
int PMPI_Testsome(int, MPI_Request *, int *, int *, MPI_Status *);
int PMPI_Topo_test(MPI_Comm, int *);
int PMPI_Type_create_keyval(MPI_Type_copy_attr_function *, MPI_Type_delete_attr_function *, int *,
		void *);
int PMPI_Type_dup(MPI_Datatype, MPI_Datatype *);
int PMPI_Type_free(MPI_Datatype *);
int PMPI_Type_get_attr(MPI_Datatype, int, void *, int *);
int PMPI_Type_get_contents(MPI_Datatype, int, int, int, int *, MPI_Aint *, MPI_Datatype *);
int PMPI_Type_get_contents_c(MPI_Datatype, MPI_Count, MPI_Count, MPI_Count, MPI_Count, int *,
		MPI_Aint *, MPI_Count *, MPI_Datatype *);
int PMPI_Type_get_envelope(MPI_Datatype, int *, int *, int *, int *);
int PMPI_Type_get_envelope_c(MPI_Datatype, MPI_Count *, MPI_Count *, MPI_Count *, MPI_Count *, int
		*);
int PMPI_Type_get_extent(MPI_Datatype, MPI_Aint *, MPI_Aint *);
int PMPI_Type_get_extent_x(MPI_Datatype, MPI_Count *, MPI_Count *);
int PMPI_Type_set_attr(MPI_Datatype, int, void *);
int PMPI_Type_size(MPI_Datatype, int *);
int PMPI_Type_size_x(MPI_Datatype, MPI_Count *);
int PMPI_Unpack(const void *, int, int *, void *, int, MPI_Datatype, MPI_Comm);
int PMPI_Unpack_c(const void *, MPI_Count, MPI_Count *, void *, MPI_Count, MPI_Datatype, MPI_Comm);
int PMPI_Wait(MPI_Request *, MPI_Status *);
int PMPI_Waitall(int, MPI_Request *, MPI_Status *);
int PMPI_Waitany(int, MPI_Request *, int *, MPI_Status *);
int PMPI_Waitsome(int, MPI_Request *, int *, int *, MPI_Status *);
int PMPI_Win_allocate(MPI_Aint, int, MPI_Info, MPI_Comm, void *, MPI_Win *);
int PMPI_Win_allocate_c(MPI_Aint, MPI_Aint, MPI_Info, MPI_Comm, void *, MPI_Win *);
int PMPI_Win_allocate_shared(MPI_Aint, int, MPI_Info, MPI_Comm, void *, MPI_Win *);
int PMPI_Win_allocate_shared_c(MPI_Aint, MPI_Aint, MPI_Info, MPI_Comm, void *, MPI_Win *);
int PMPI_Win_attach(MPI_Win, void *, MPI_Aint);
int PMPI_Win_call_errhandler(MPI_Win, int);
int PMPI_Win_complete(MPI_Win);
int PMPI_Win_create(void *, MPI_Aint, int, MPI_Info, MPI_Comm, MPI_Win *);
int PMPI_Win_create_c(void *, MPI_Aint, MPI_Aint, MPI_Info, MPI_Comm, MPI_Win *);
int PMPI_Win_create_dynamic(MPI_Info, MPI_Comm, MPI_Win *);
int PMPI_Win_create_keyval(MPI_Win_copy_attr_function *, MPI_Win_delete_attr_function *, int *, void *);
int PMPI_Win_detach(MPI_Win, const void *);
int PMPI_Win_fence(int, MPI_Win);
int PMPI_Win_flush(int, MPI_Win);
int PMPI_Win_flush_all(MPI_Win);
int PMPI_Win_flush_local(int, MPI_Win);
int PMPI_Win_flush_local_all(MPI_Win);
int PMPI_Win_free(MPI_Win *);
int PMPI_Win_get_attr(MPI_Win, int, void *, int *);
int PMPI_Win_get_errhandler(MPI_Win, MPI_Errhandler *);
int PMPI_Win_get_group(MPI_Win, MPI_Group *);
int PMPI_Win_get_info(MPI_Win, MPI_Info *);
int PMPI_Win_lock(int, int, int, MPI_Win);
int PMPI_Win_lock_all(int, MPI_Win);
int PMPI_Win_post(MPI_Group, int, MPI_Win);
int PMPI_Win_shared_query(MPI_Win, int, MPI_Aint *, int *, void *);
int PMPI_Win_shared_query_c(MPI_Win, int, MPI_Aint *, MPI_Aint *, void *);
int PMPI_Win_start(MPI_Group, int, MPI_Win);
int PMPI_Win_sync(MPI_Win);
int PMPI_Win_test(MPI_Win, int *);
int PMPI_Win_unlock(int, MPI_Win);
int PMPI_Win_unlock_all(MPI_Win);
int PMPI_Win_wait(MPI_Win);

#endif

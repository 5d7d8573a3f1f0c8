/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Sends, receives and probes on managed communicators. */
#include "hooks_gen.h"

#if MPI_VERSION >= 4
#define SIZED(name, ...)	PMPI_##name##_c(__VA_ARGS__)
#define N(count)		(count)
#else
#define SIZED(name, ...)	PMPI_##name(__VA_ARGS__)
#define N(count)		((int)(count))
#endif

#define SEND(low, Name)								\
	int hook_##low(struct hcomm *c, const void *buf, MPI_Count count,	\
		       MPI_Datatype type, int dest, int tag)			\
	{									\
		return SIZED(Name, buf, N(count), type, dest, tag, c->handle);	\
	}
#define ISEND(low, Name)							\
	int hook_##low(struct hcomm *c, const void *buf, MPI_Count count,	\
		       MPI_Datatype type, int dest, int tag, MPI_Request *req)	\
	{									\
		return SIZED(Name, buf, N(count), type, dest, tag, c->handle, req);	\
	}
#define IRECV(low, Name)							\
	int hook_##low(struct hcomm *c, void *buf, MPI_Count count,		\
		       MPI_Datatype type, int source, int tag, MPI_Request *req)	\
	{									\
		return SIZED(Name, buf, N(count), type, source, tag, c->handle, req);	\
	}

SEND(send, Send)
SEND(ssend, Ssend)
SEND(rsend, Rsend)
SEND(bsend, Bsend)
ISEND(isend, Isend)
ISEND(issend, Issend)
ISEND(irsend, Irsend)
ISEND(ibsend, Ibsend)
ISEND(send_init, Send_init)
ISEND(ssend_init, Ssend_init)
ISEND(rsend_init, Rsend_init)
ISEND(bsend_init, Bsend_init)
IRECV(irecv, Irecv)
IRECV(recv_init, Recv_init)

int hook_recv(struct hcomm *c, void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
	      MPI_Status *status)
{
	return SIZED(Recv, buf, N(count), type, source, tag, c->handle, status);
}

int hook_sendrecv(struct hcomm *c, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
		  int dest, int sendtag, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
		  int source, int recvtag, MPI_Status *status)
{
	return SIZED(Sendrecv, sendbuf, N(sendcount), sendtype, dest, sendtag, recvbuf, N(recvcount),
		     recvtype, source, recvtag, c->handle, status);
}

int hook_sendrecv_replace(struct hcomm *c, void *buf, MPI_Count count, MPI_Datatype type, int dest,
			  int sendtag, int source, int recvtag, MPI_Status *status)
{
	return SIZED(Sendrecv_replace, buf, N(count), type, dest, sendtag, source, recvtag, c->handle,
		     status);
}

#if MPI_VERSION >= 4
int hook_isendrecv(struct hcomm *c, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
		   int dest, int sendtag, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
		   int source, int recvtag, MPI_Request *request)
{
	return PMPI_Isendrecv_c(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
				recvtype, source, recvtag, c->handle, request);
}

int hook_isendrecv_replace(struct hcomm *c, void *buf, MPI_Count count, MPI_Datatype type, int dest,
			   int sendtag, int source, int recvtag, MPI_Request *request)
{
	return PMPI_Isendrecv_replace_c(buf, count, type, dest, sendtag, source, recvtag, c->handle,
					request);
}
#endif

int hook_probe(struct hcomm *c, int source, int tag, MPI_Status *status)
{
	return PMPI_Probe(source, tag, c->handle, status);
}

int hook_iprobe(struct hcomm *c, int source, int tag, int *flag, MPI_Status *status)
{
	return PMPI_Iprobe(source, tag, c->handle, flag, status);
}

int hook_mprobe(struct hcomm *c, int source, int tag, MPI_Message *message, MPI_Status *status)
{
	return PMPI_Mprobe(source, tag, c->handle, message, status);
}

int hook_improbe(struct hcomm *c, int source, int tag, int *flag, MPI_Message *message,
		 MPI_Status *status)
{
	return PMPI_Improbe(source, tag, c->handle, flag, message, status);
}

int hook_mrecv(void *buf, MPI_Count count, MPI_Datatype type, MPI_Message *message,
	       MPI_Status *status)
{
	return SIZED(Mrecv, buf, N(count), type, message, status);
}

int hook_imrecv(void *buf, MPI_Count count, MPI_Datatype type, MPI_Message *message,
		MPI_Request *request)
{
	return SIZED(Imrecv, buf, N(count), type, message, request);
}

int hook_start(MPI_Request *request)
{
	return PMPI_Start(request);
}

int hook_startall(int count, MPI_Request *requests)
{
	return PMPI_Startall(count, requests);
}

int hook_cancel(MPI_Request *request)
{
	return PMPI_Cancel(request);
}

int hook_request_free(MPI_Request *request)
{
	return PMPI_Request_free(request);
}

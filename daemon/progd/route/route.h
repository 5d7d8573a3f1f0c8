/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * route: which engine a frame is for.  The lanes of a worker serve both: one-sided operations (rma) and
 * messages (rndv); neither knows of the other.
 */
#ifndef PROGD_ROUTE_H
#define PROGD_ROUTE_H

#include "rma/rma.h"
#include "rndv/rndv.h"
#include "xport/xport.h"

struct route {				/* context of xport_attach(): the engines of one worker */
	struct rma *rma;
	struct rndv *rndv;
};

extern const struct xport_handlers route_handlers;

#endif

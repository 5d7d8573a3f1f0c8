/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* plugin: finds progd-verbs.so. */
#ifndef PROGD_PLUGIN_H
#define PROGD_PLUGIN_H

#include "xport/verbs_api.h"

/*
 * The plug-in's table, with the drivers of this node's devices loaded: before the process is confined.  NULL: this node goes
 * without RDMA, and a line why.  It stays loaded.
 */
const struct verbs_api *verbs_load(char why[VERBS_WHY]);

#endif

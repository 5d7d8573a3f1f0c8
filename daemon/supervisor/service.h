/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * service: what a service manager and we say to each other (sd_notify(3), sd_listen_fds(3)), without libsystemd: that brings seven
 * libraries into a process of root's that needs none of them.
 */
#ifndef SUPERVISOR_SERVICE_H
#define SUPERVISOR_SERVICE_H

/* @state: such as "READY=1"; nothing without a service manager. */
void service_notify(const char *state);
/* The descriptor of a listening SOCK_SEQPACKET socket at @path that we were started with, now non-blocking; -1: none. */
int service_socket(const char *path);

#endif

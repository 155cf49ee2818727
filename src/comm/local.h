/* SPDX-License-Identifier: MIT */
/*
 * A job whose ranks are threads of this process (COMM_MODE=local_tensor, and most tests).
 *
 * comm_local_create makes all ranks' communicators at once; the caller then gives each to a thread of its
 * own. Each is destroyed by its thread. A thread that ends on an error must call comm_abort first, else the
 * others find out by their time-out; destroying a communicator others still wait on gives them ERR_PEER.
 */
#ifndef COMM_LOCAL_H
#define COMM_LOCAL_H

#include "comm/comm.h"

enum { COMM_LOCAL_MAX_RANKS = 4096 };

/* out: size pointers, filled with ranks 0..size-1; all NULL on error. options NULL: the defaults. */
err_t comm_local_create(int size, const struct comm_options *options, struct comm **out, struct error *e) MUST_CHECK;

#endif

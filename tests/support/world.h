/* SPDX-License-Identifier: MIT */
/* Runs one function as every rank of a job whose ranks are threads, and collects their failures. */
#ifndef SUPPORT_WORLD_H
#define SUPPORT_WORLD_H

#include "comm/comm.h"

typedef err_t (*world_task)(struct comm *world, void *arg, struct error *e);

/* Fails the running test with the first message when any rank returns an error. size 1 works too. */
void world_run(int size, world_task task, void *arg);

/* The same, but hands the first error back: *e is filled and its code returned. */
err_t world_try(int size, world_task task, void *arg, struct error *e);

#endif

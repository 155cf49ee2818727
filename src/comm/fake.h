/* SPDX-License-Identifier: MIT */
/*
 * A communicator that claims any size and moves nothing: one process plays one rank of a job that does not
 * exist (dry runs, plans).
 *
 * Every other rank is taken to hold what this one holds, so numbers stay finite and of the right size:
 * all_gather copies the own part into every slot, a sum is the own value times the size, a minimum, maximum
 * or broadcast is the own value. Groups are made by comm_split_ranks; comm_split takes every rank to have
 * given the same colour.
 */
#ifndef COMM_FAKE_H
#define COMM_FAKE_H

#include "comm/comm.h"

err_t comm_fake_create(int size, int rank, struct comm **out, struct error *e) MUST_CHECK;

/* The same, but not even the own part is touched: buffers may be addresses without memory (device/dry.h). */
err_t comm_dry_create(int size, int rank, struct comm **out, struct error *e) MUST_CHECK;

#endif

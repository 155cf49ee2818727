/* SPDX-License-Identifier: MIT */
/* The cores of every rank of a job: base/affinity.h with the masks that the ranks tell each other. */
#ifndef COMM_PLACE_H
#define COMM_PLACE_H

#include "base/affinity.h"
#include "comm/comm.h"

/* Collective over the world. Plans only: affinity_apply binds. */
err_t comm_place(struct comm *world, int wanted_threads, struct affinity *out, struct error *e) MUST_CHECK;

#endif

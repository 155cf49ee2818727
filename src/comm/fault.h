/* SPDX-License-Identifier: MIT */
/* A decorator that makes the n-th collective of a rank go wrong, for tests of what the others and the layers
 * above do. */
#ifndef COMM_FAULT_H
#define COMM_FAULT_H

#include <stdatomic.h>

#include "comm/comm.h"

enum comm_fault_action {
    COMM_FAULT_FAIL,  /* the call returns ERR_COMM without taking place, and aborts the job as a failing
                         backend does */
    COMM_FAULT_DELAY, /* the rank sleeps delay_s before the call */
    COMM_FAULT_KILL,  /* SIGKILL to this process */
    COMM_FAULT_LEAVE  /* the call returns ERR_STOPPED without taking place and tells nobody: a rank that walks
                         away */
};

struct comm_fault { /* shared by a communicator and those split from it; may be shared by ranks that are
                       threads */
    enum comm_fault_action action;
    int world_rank; /* whose calls count */
    int nth;        /* 1 = its first collective from now; splits do not count */
    double delay_s;
    atomic_int calls; /* made so far by that rank */
};

/* Owns inner, also on error. */
err_t comm_fault_create(struct comm *inner, struct comm_fault *fault, struct comm **out, struct error *e) MUST_CHECK;

#endif

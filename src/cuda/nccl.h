/* SPDX-License-Identifier: MIT */
/*
 * Communicators for device memory: comm.h's table over NCCL, made out of a communicator for host memory.
 *
 * Collectives are enqueued on the stream that is given (NULL = the device's main stream) and return at once. A group of
 * one rank copies on the device and needs no NCCL. barrier, abort and time-outs are the host communicator's. Sums are
 * taken in NCCL's order, which is the same in every run on the same machines, and not the rank order of comm.h.
 *
 * Failures of work on the device show later: comm_check (comm.h) tells of NCCL's asynchronous errors and names the
 * first collective that has not finished.
 */
#ifndef CUDA_NCCL_H
#define CUDA_NCCL_H

#include "comm/comm.h"
#include "device/device.h"

/* Collective over `host`, which is borrowed and must outlive *out. ERR_UNSUPPORTED: NCCL is not installed, the same on
 * every rank. */
err_t nccl_comm_open(struct device *d, struct comm *host, struct comm **out, struct error *e) MUST_CHECK;

#endif

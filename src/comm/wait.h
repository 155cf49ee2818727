/* SPDX-License-Identifier: MIT */
/* Waiting for a device without being lost when a collective on it never ends. */
#ifndef COMM_WAIT_H
#define COMM_WAIT_H

#include "comm/comm.h"
#include "device/device.h"

/*
 * Returns when `event` has happened. comms[n] are the communicators whose work it may have to wait for: their failures
 * end the wait. ERR_TIMEOUT after timeout_s (<= 0: never), naming the first collective that has not finished; what is
 * on the device then never ends, and the job can only be given up. ERR_DEVICE when the device failed.
 */
err_t comm_wait_event(struct device *d, struct event *event, struct comm *const *comms, int n, double timeout_s,
                      struct error *e) MUST_CHECK;

#endif

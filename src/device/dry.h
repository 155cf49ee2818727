/* SPDX-License-Identifier: MIT */
/*
 * A device whose memory is only counted: blocks have addresses but nothing behind them, copies and fills do nothing (a
 * copy to the host leaves zeros there). With kernels_dry() and comm_dry_create() the trainer's own code runs on it to
 * find out what it will need.
 */
#ifndef DEVICE_DRY_H
#define DEVICE_DRY_H

#include "device/device.h"

/* like: whose properties it claims, and with them whether it has a pool of memory for each stream. limit_bytes as in
 * device_options; 0 = none. Closed by device_close. */
err_t device_dry_open(struct device **out, const struct device_properties *like, int64_t limit_bytes,
                      struct error *e) MUST_CHECK;

#endif

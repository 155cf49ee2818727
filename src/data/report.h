/* SPDX-License-Identifier: MIT */
/* How long works on data tell how far they are, and hear that they shall end. */
#ifndef DATA_REPORT_H
#define DATA_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* How far a long work is, in units of `total` (which may be 0: not known). Called often and from the caller's thread;
 * false ends the work with ERR_INTERRUPTED. A NULL function is fine. */
typedef bool (*data_report)(void *arg, const char *what, int64_t done, int64_t total);

/* For the works themselves: calls report. */
err_t data_tell(data_report report, void *arg, const char *what, int64_t done, int64_t total,
                struct error *e) MUST_CHECK;

#endif

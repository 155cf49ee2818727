/* SPDX-License-Identifier: MIT */
/* The end of a work on request; see report.h. */
#include "data/report.h"

#include <stddef.h>

err_t data_tell(data_report report, void *arg, const char *what, int64_t done, int64_t total, struct error *e)
{
    if (!report || report(arg, what, done, total)) return ERR_NONE;
    return FAIL(e, ERR_INTERRUPTED, "stopped on request while %s; nothing was saved", what);
}

/* SPDX-License-Identifier: MIT */
/* The schedules of a job without a pipeline; see action.h. */
#include "parallel/action.h"

err_t schedule_forward(struct action_list *out, int n_units, int n_microbatches, struct error *e)
{
    err_t rc = ERR_NONE;

    for (int m = 0; m < n_microbatches; m++)
        for (int u = 0; u < n_units && !rc; u++) rc = action_list_add(out, ACTION_FORWARD, u, m, e);
    return rc;
}

err_t schedule_sequential(struct action_list *out, int n_units, int n_microbatches, struct error *e)
{
    err_t rc = ERR_NONE;

    for (int m = 0; m < n_microbatches && !rc; m++) {
        for (int u = 0; u < n_units && !rc; u++) rc = action_list_add(out, ACTION_FORWARD, u, m, e);
        for (int u = n_units - 1; u >= 0 && !rc; u--) {
            rc = action_list_add(out, ACTION_BACKWARD_INPUT, u, m, e);
            if (!rc) rc = action_list_add(out, ACTION_BACKWARD_WEIGHT, u, m, e);
        }
    }
    return rc;
}

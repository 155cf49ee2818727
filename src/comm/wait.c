/* SPDX-License-Identifier: MIT */
/* Waiting for an event; see wait.h. Polls often at first, since steps are short, then rests between two looks. */
#include "comm/wait.h"

#include <time.h>

#include "base/clock.h"

enum { REST_LEAST_NS = 5000, REST_MOST_NS = 500000, CHECK_EVERY_NS = 20000000 };

static err_t check_all(struct comm *const *comms, int n, struct str *pending, struct error *e)
{
    err_t rc = ERR_NONE;

    for (int i = 0; i < n && !rc; i++) rc = comm_check(comms[i], pending && !pending->length ? pending : NULL, e);
    return rc;
}

static err_t timed_out(struct comm *const *comms, int n, double timeout_s, struct error *e)
{
    struct str pending = {0};
    err_t rc = check_all(comms, n, &pending, e);

    if (!rc && pending.length)
        rc = FAIL(e, ERR_TIMEOUT, "%s did not finish within %g s: a rank of the group is away or slower than that",
                  pending.text, timeout_s);
    else if (!rc)
        rc = FAIL(e, ERR_TIMEOUT, "the device did not finish its work within %g s", timeout_s);
    str_release(&pending);
    return rc;
}

err_t comm_wait_event(struct device *d, struct event *event, struct comm *const *comms, int n, double timeout_s,
                      struct error *e)
{
    int64_t start = clock_ns(), checked = start, now, rest = REST_LEAST_NS;
    err_t rc;

    while (!d->ops->event_is_done(d, event)) {
        struct timespec pause = {.tv_nsec = rest};

        now = clock_ns();
        if (timeout_s > 0 && (double)(now - start) * 1e-9 > timeout_s) return timed_out(comms, n, timeout_s, e);
        if (now - checked > CHECK_EVERY_NS) {
            checked = now;
            rc = check_all(comms, n, NULL, e);
            if (rc) return rc;
        }
        nanosleep(&pause, NULL);
        if (rest < REST_MOST_NS) rest += rest / 2;
    }
    return d->ops->event_synchronize(d, event, e); /* tells what failed */
}

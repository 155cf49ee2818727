/* SPDX-License-Identifier: MIT */
/*
 * Requests to stop, as flags. TERM, INT and USR1 ask for an orderly stop: the handler only sets a flag, and
 * the loop asks signals_pending() once a step (and reduces the answer over the ranks, so that all stop after
 * the same step). A second INT ends the process at once with 130. PIPE and XFSZ are ignored: a terminal that is gone or
 * a file that may not grow is an error of that write, not the end of the training.
 *
 * Signals belong to the process: where ranks are threads they share one struct signals, installed once by the
 * thread that started them.
 */
#ifndef TRAIN_SIGNALS_H
#define TRAIN_SIGNALS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"

enum { SIGNALS_COUNT = 3, SIGNALS_IGNORED = 2 };

struct signals {
    atomic_int pending;    /* number of the last signal, 0 = none */
    atomic_int interrupts; /* INTs so far */
    struct sigaction former[SIGNALS_COUNT], former_ignored[SIGNALS_IGNORED];
    bool installed;
};

/* s must stay where it is until signals_restore. ERR_BUSY when another struct signals is installed in this
 * process. */
err_t signals_install(struct signals *s, struct error *e) MUST_CHECK;
void signals_restore(struct signals *s); /* puts the former handlers back; zeroed or restored: nothing happens */

/* 0, or the number of the signal that asked to stop; any thread may ask. s NULL: 0. */
int signals_pending(const struct signals *s);
const char *signals_name(int signal_number); /* "SIGTERM"; "signal" for unknown ones */

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What every communicator must do, checked on its ranks against a serial computation in rank order, bit for
 * bit. The same bodies run on threads (tests/comm) and on processes (tests/mpi), which is how both are shown
 * to give the same bits. See rank.h.
 */
#ifndef SUPPORT_COMM_CASES_H
#define SUPPORT_COMM_CASES_H

#include "tests/support/rank.h"

void case_all_reduce(struct rank_test *t); /* each operator, type and many counts */
void case_reduce_scatter(struct rank_test *t);
void case_all_gather(struct rank_test *t); /* each type; also in place */
void case_broadcast(struct rank_test *t);  /* each root */
void case_mixed_sizes(
    struct rank_test *t);             /* small and large messages in turn: windows are never overwritten too early */
void case_split(struct rank_test *t); /* odd and even, reversed, nested, of one; traffic on several groups in turn */
void case_split_ranks(struct rank_test *t);
void case_not_a_number(struct rank_test *t);  /* a NaN wins minima and maxima, on whichever rank it is */
void case_bad_arguments(struct rank_test *t); /* refused on the spot; the communicator goes on working */

#endif

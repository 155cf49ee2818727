/* SPDX-License-Identifier: MIT */
/* Comparing arrays of numbers in tests: the message names the worst element. */
#ifndef SUPPORT_CLOSE_H
#define SUPPORT_CLOSE_H

#include <stddef.h>

#include "base/dtype.h"

double relative_l2(enum dtype type, const void *got, const void *want,
                   size_t n); /* |got - want| / |want|; |got| if want is 0 */

/* Fails the running cmocka test unless relative_l2 <= tolerance. */
void assert_l2_close(const char *what, enum dtype type, const void *got, const void *want, size_t n, double tolerance);
void assert_bits_equal(const char *what, enum dtype type, const void *got, const void *want, size_t n);

#endif

/* SPDX-License-Identifier: MIT */
/* Comparing arrays of numbers in tests; see close.h. */
#include "tests/support/close.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static double at(enum dtype type, const void *data, size_t i)
{
    return type == DTYPE_FLOAT64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

double relative_l2(enum dtype type, const void *got, const void *want, size_t n)
{
    double difference = 0, norm = 0;

    for (size_t i = 0; i < n; i++) {
        double d = at(type, got, i) - at(type, want, i), w = at(type, want, i);

        difference += d * d;
        norm += w * w;
    }
    return sqrt(difference) / (norm > 0 ? sqrt(norm) : 1.0);
}

void assert_l2_close(const char *what, enum dtype type, const void *got, const void *want, size_t n, double tolerance)
{
    double distance = relative_l2(type, got, want, n), worst = -1;
    size_t worst_i = 0;

    if (distance <= tolerance) return;
    for (size_t i = 0; i < n; i++) {
        double d = fabs(at(type, got, i) - at(type, want, i));

        if (!(d <= worst)) worst = d, worst_i = i;
    }
    fail_msg("%s: relative L2 distance %.3g > %.3g; worst element %zu of %zu: got %.17g, want %.17g", what, distance,
             tolerance, worst_i, n, at(type, got, worst_i), at(type, want, worst_i));
}

void assert_bits_equal(const char *what, enum dtype type, const void *got, const void *want, size_t n)
{
    size_t width = dtype_bytes(type);

    for (size_t i = 0; i < n; i++)
        if (memcmp((const char *)got + i * width, (const char *)want + i * width, width) != 0)
            fail_msg("%s: element %zu of %zu differs: got %.17g, want %.17g", what, i, n, at(type, got, i),
                     at(type, want, i));
}

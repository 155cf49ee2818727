/* SPDX-License-Identifier: MIT */
/*
 * bfloat16 as a storage type: the upper half of a float's bits. There is no arithmetic in it: numbers are widened,
 * computed with, and rounded once when stored, to nearest even. A structure, so that no expression takes its bits for a
 * number.
 */
#ifndef BASE_BFLOAT16_H
#define BASE_BFLOAT16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint16_t bits;
} bfloat16;

static inline float bfloat16_to_float(bfloat16 x)
{
    uint32_t bits = (uint32_t)x.bits << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

/* What is beyond the largest bfloat16 becomes infinite; a NaN stays one. */
static inline bfloat16 bfloat16_of_float(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    if (isnan(x)) return (bfloat16){(uint16_t)(bits >> 16 | 0x40)};
    return (bfloat16){(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

/* Rounded once: the float between is rounded to odd (Boldo, Melquiond 2008), which never makes a tie. */
static inline bfloat16 bfloat16_of_double(double x)
{
    float near = (float)x;
    uint32_t bits;

    memcpy(&bits, &near, sizeof bits);
    if ((double)near != x && !isnan(x)) {
        if (fabs((double)near) > fabs(x)) bits--; /* towards zero, also from infinity */
        bits |= 1;
        memcpy(&near, &bits, sizeof near);
    }
    return bfloat16_of_float(near);
}

#endif

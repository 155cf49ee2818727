/* SPDX-License-Identifier: MIT */
/*
 * Rotary position embedding tables (Su et al. 2021), half-split layout: pair (i, i + head_dim/2) turns by position *
 * theta^(-2i/head_dim).
 *
 * Scaling "llama3" (Llama 3.1): wavelengths longer than original_length / low_frequency_factor are stretched by
 * `factor`, shorter than original_length / high_frequency_factor are left as they are, in between the two are blended
 * linearly.
 */
#ifndef NN_ROPE_H
#define NN_ROPE_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "device/device.h"

struct rope_scaling {
    double factor; /* 0 or 1: none */
    double low_frequency_factor, high_frequency_factor;
    double original_length;
};

struct rope {
    struct device *device; /* borrowed */
    void *cos, *sin;       /* device memory, [positions, head_dim/2] of the type of rope_open */
    int64_t positions, head_dim;
};

/* Angles are computed in double and rounded once to `type`. */
err_t rope_open(struct rope *r, struct device *d, enum dtype type, int64_t positions, int64_t head_dim, double theta,
                const struct rope_scaling *scaling, struct error *e) MUST_CHECK;
void rope_close(struct rope *r);

/* The frequency of pair i, in radians per position. */
double rope_frequency(int64_t i, int64_t head_dim, double theta, const struct rope_scaling *scaling);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The learning rate over the steps: linear warm-up, constant, decay (WSD; torchtitan's formula).
 *
 * With T = total steps, W = warm-up, D = decay steps, S = T + 1 - W - D and the step s counted from 0, the factor on
 * the peak rate is
 *   (s + 1) / W                          for s < W
 *   1                                    for s < W + S
 *   min + (1 - min) f(p)                 after it, p = (s + 1 - W - S) / D,
 *   f(p) = 1 - p | 1 - sqrt(p) | (1 + cos(pi p)) / 2.
 * The one virtual step keeps the rate of the last real step above its end point.
 */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H

#include <stdint.h>

#include "base/str.h"

enum decay { DECAY_LINEAR, DECAY_SQRT, DECAY_COSINE };

struct lr_schedule {
    double peak; /* optimizer.lr */
    int64_t total_steps, warmup_steps, decay_steps;
    enum decay decay;
    double min_factor;
};

/* decay_ratio < 0: all steps after the warm-up decay; else the nearest whole number of steps, a half to the even one. A
 * warm-up or decay that does not fit is cut; `warning` gets a line then. */
void lr_schedule_init(struct lr_schedule *s, double peak, int64_t total_steps, int64_t warmup_steps, double decay_ratio,
                      enum decay decay, double min_factor, struct str *warning);

double lr_schedule_at(const struct lr_schedule *s, int64_t step); /* step counted from 1, as everywhere in ctitan */

#endif

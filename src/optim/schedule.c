/* SPDX-License-Identifier: MIT */
/* Learning rate schedules; see schedule.h. */
#include "optim/schedule.h"

#include <math.h>

void lr_schedule_init(struct lr_schedule *s, double peak, int64_t total_steps, int64_t warmup_steps, double decay_ratio,
                      enum decay decay, double min_factor, struct str *warning)
{
    /* rint: a half to the even number, as torchtitan's round() does */
    int64_t decay_steps =
        decay_ratio < 0 ? total_steps - warmup_steps : (int64_t)rint((double)total_steps * decay_ratio);

    if (warmup_steps > total_steps) {
        str_addf(warning, "lr_scheduler.warmup_steps=%lld is more than the %lld steps of the schedule: cut to %lld",
                 (long long)warmup_steps, (long long)total_steps, (long long)total_steps);
        warmup_steps = total_steps;
        if (decay_steps < 0) decay_steps = 0;
    }
    if (warmup_steps + decay_steps > total_steps) {
        str_addf(
            warning,
            "%slr_scheduler: warm-up %lld + decay %lld are more than the %lld steps of the schedule: decay cut to %lld",
            warning->length ? "; " : "", (long long)warmup_steps, (long long)decay_steps, (long long)total_steps,
            (long long)(total_steps - warmup_steps));
        decay_steps = total_steps - warmup_steps;
    }
    *s = (struct lr_schedule){.peak = peak,
                              .total_steps = total_steps,
                              .warmup_steps = warmup_steps,
                              .decay_steps = decay_steps,
                              .decay = decay,
                              .min_factor = min_factor};
}

static double decayed(enum decay decay, double p)
{
    switch (decay) {
    case DECAY_LINEAR: return 1.0 - p;
    case DECAY_SQRT: return 1.0 - sqrt(p);
    case DECAY_COSINE: return 0.5 * (1.0 + cos(M_PI * p));
    }
    BUG("decay %d", (int)decay);
}

double lr_schedule_at(const struct lr_schedule *s, int64_t step)
{
    int64_t from_zero = step - 1, stable = s->total_steps + 1 - s->warmup_steps - s->decay_steps;
    double p;

    if (from_zero < s->warmup_steps) return s->peak * (double)(from_zero + 1) / (double)s->warmup_steps;
    if (from_zero < s->warmup_steps + stable) return s->peak;
    p = s->decay_steps ? (double)(from_zero + 1 - s->warmup_steps - stable) / (double)s->decay_steps : 0.0;
    if (p > 1.0) p = 1.0; /* a run that was extended past its schedule stays at the end point */
    return s->peak * (s->min_factor + (1.0 - s->min_factor) * decayed(s->decay, p));
}

/* SPDX-License-Identifier: MIT */
/* Rotary tables; see rope.h. */
#include "nn/rope.h"

#include <math.h>

#include "base/mem.h"

double rope_frequency(int64_t i, int64_t head_dim, double theta, const struct rope_scaling *s)
{
    double frequency = pow(theta, -2.0 * (double)i / (double)head_dim), wavelength = 2.0 * M_PI / frequency, blend;

    if (s->factor <= 0.0 || s->factor == 1.0 || wavelength < s->original_length / s->high_frequency_factor)
        return frequency;
    if (wavelength > s->original_length / s->low_frequency_factor) return frequency / s->factor;
    blend = (s->original_length / wavelength - s->low_frequency_factor) /
            (s->high_frequency_factor - s->low_frequency_factor);
    return (1.0 - blend) * frequency / s->factor + blend * frequency;
}

static void store(enum dtype type, void *table, int64_t i, double value)
{
    if (type == DTYPE_FLOAT64)
        ((double *)table)[i] = value;
    else
        ((float *)table)[i] = (float)value;
}

err_t rope_open(struct rope *r, struct device *d, enum dtype type, int64_t positions, int64_t head_dim, double theta,
                const struct rope_scaling *scaling, struct error *e)
{
    int64_t half = head_dim / 2;
    size_t bytes = (size_t)(positions * half) * dtype_bytes(type);
    void *host_cos = NULL, *host_sin = NULL;
    err_t rc;

    *r = (struct rope){.device = d, .positions = positions, .head_dim = head_dim};
    rc = device_alloc(d, bytes, MEMORY_BUFFERS, "rope cos", NULL, &r->cos, e);
    if (!rc) rc = device_alloc(d, bytes, MEMORY_BUFFERS, "rope sin", NULL, &r->sin, e);
    if (rc || d->ops->is_dry) goto out;
    host_cos = mem_alloc(bytes);
    host_sin = mem_alloc(bytes);
    if (!host_cos || !host_sin) {
        rc = FAIL(e, ERR_MEMORY, "out of memory for rotary tables of %lld positions", (long long)positions);
        goto out;
    }
    for (int64_t i = 0; i < half; i++) {
        double frequency = rope_frequency(i, head_dim, theta, scaling);

        for (int64_t p = 0; p < positions; p++) {
            store(type, host_cos, p * half + i, cos((double)p * frequency));
            store(type, host_sin, p * half + i, sin((double)p * frequency));
        }
    }
    rc = device_write(d, r->cos, host_cos, bytes, e);
    if (!rc) rc = device_write(d, r->sin, host_sin, bytes, e);
out:
    mem_free(host_cos);
    mem_free(host_sin);
    if (rc) rope_close(r);
    return rc;
}

void rope_close(struct rope *r)
{
    if (!r->device) return;
    device_free(r->device, r->cos);
    device_free(r->device, r->sin);
    *r = (struct rope){0};
}

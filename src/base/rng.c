/* SPDX-License-Identifier: MIT */
/* Counter-based random numbers; see rng.h. Compiled with -ffp-contract=off, like everything that must give the same bits. */
#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"

struct rng_key rng_key_of(uint64_t seed, const char *purpose)
{
    uint64_t h = hash_mix(hash_fnv_text(hash_mix(seed + 0x9e3779b97f4a7c15u), purpose));

    return (struct rng_key){{(uint32_t)h, (uint32_t)(h >> 32)}};
}

void rng_block(struct rng_key key, uint64_t element, uint64_t attempt, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)element, c1 = (uint32_t)(element >> 32), c2 = (uint32_t)attempt, c3 = (uint32_t)(attempt >> 32);
    uint32_t k0 = key.word[0], k1 = key.word[1];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

static double unit_interval(uint32_t high, uint32_t low)
{
    return (double)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}

double rng_uniform(struct rng_key key, uint64_t element, uint64_t attempt)
{
    uint32_t r[4];

    rng_block(key, element, attempt, r);
    return unit_interval(r[0], r[1]);
}

uint64_t rng_below(struct rng_key key, uint64_t element, uint64_t bound)
{
    uint64_t limit, x, attempt = 0;
    uint32_t r[4];

    if (bound < 2) return 0;
    limit = UINT64_MAX - UINT64_MAX % bound; /* reject the uneven tail */
    do {
        rng_block(key, element, attempt++, r);
        x = ((uint64_t)r[0] << 32) | r[1];
    } while (x >= limit);
    return x % bound;
}

/* Natural logarithm of x in (0, 1], to about 2 ulp: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m-1)/(m+1)). */
static double portable_log(double x)
{
    uint64_t bits;
    double m, t, t2, series;
    int exponent, k;

    memcpy(&bits, &x, sizeof bits);
    exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    t = (m - 1.0) / (m + 1.0);
    t2 = t * t;
    series = 0.0;
    for (k = 23; k >= 1; k -= 2) series = series * t2 + 1.0 / (double)k; /* |t| < 0.172: the rest is below 1e-18 */
    return (double)exponent * 0.6931471805599453 + 2.0 * t * series;
}

double rng_normal(struct rng_key key, uint64_t element, double std, double cut)
{
    uint32_t r[4];
    double u, v, s, z;

    for (uint64_t attempt = 0;; attempt++) {
        rng_block(key, element, attempt, r);
        u = 2.0 * unit_interval(r[0], r[1]) - 1.0;
        v = 2.0 * unit_interval(r[2], r[3]) - 1.0;
        s = u * u + v * v;
        if (s >= 1.0 || s < 0x1p-60) continue;
        z = std * (u * sqrt(-2.0 * portable_log(s) / s));
        if (cut <= 0.0 || (z >= -cut && z <= cut)) return z;
    }
}

/* SPDX-License-Identifier: MIT */
/* Counter-based random numbers; see rng.h. Compiled with -ffp-contract=off, like everything that must give the same
 * bits. */
#include "base/rng.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/hash.h"

struct rng_key rng_key_of(uint64_t seed, const char *purpose)
{
    uint64_t h = hash_mix(hash_fnv_text(hash_mix(seed + 0x9e3779b97f4a7c15u), purpose));

    return (struct rng_key){{(uint32_t)h, (uint32_t)(h >> 32)}};
}

enum { ROUNDS = 10 };

static inline void round_of(struct rng_key key, uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3)
{
    uint64_t p0 = (uint64_t)0xd2511f53u * *c0, p1 = (uint64_t)0xcd9e8d57u * *c2;

    *c0 = (uint32_t)(p1 >> 32) ^ *c1 ^ key.word[0];
    *c1 = (uint32_t)p1;
    *c2 = (uint32_t)(p0 >> 32) ^ *c3 ^ key.word[1];
    *c3 = (uint32_t)p0;
}

static inline void next_key(struct rng_key *key)
{
    key->word[0] += 0x9e3779b9u;
    key->word[1] += 0xbb67ae85u;
}

void rng_block(struct rng_key key, uint64_t element, uint64_t attempt, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)element, c1 = (uint32_t)(element >> 32), c2 = (uint32_t)attempt,
             c3 = (uint32_t)(attempt >> 32);

    for (int r = 0; r < ROUNDS; r++, next_key(&key)) round_of(key, &c0, &c1, &c2, &c3);
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* 53 bits, in two steps that are exact: the conversion of 64 at once has no vector instruction everywhere. */
static inline double unit_interval(uint32_t high, uint32_t low)
{
    return ((double)high * 0x1p21 + (double)(low >> 11)) * 0x1p-53;
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

/* Normal deviates are made in batches, each step of the formula for the whole batch: a single one waits for every
 * addition of its series, which takes five times as long. */
enum { BATCH = 256 };

/* Natural logarithms of x in (0, 1], to about 2 ulp: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2
 * atanh((m-1)/(m+1)). */
static void portable_logs(int n, const double *x, double *out)
{
    static const double coefficient[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                         1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    double t[BATCH], t2[BATCH], series[BATCH], exponent[BATCH];

    for (int i = 0; i < n; i++) {
        uint64_t bits;
        double m;
        int is_high;

        memcpy(&bits, &x[i], sizeof bits);
        exponent[i] = (int)(bits >> 52) - 1023;
        bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
        memcpy(&m, &bits, sizeof m);
        is_high = m > 1.4142135623730951;
        m = is_high ? m * 0.5 : m;
        exponent[i] += is_high;
        t[i] = (m - 1.0) / (m + 1.0);
        t2[i] = t[i] * t[i];
        series[i] = 0.0;
    }
    for (size_t k = 0; k < sizeof coefficient / sizeof *coefficient; k++) /* |t| < 0.172: the rest is below 1e-18 */
        for (int i = 0; i < n; i++) series[i] = series[i] * t2[i] + coefficient[k];
    for (int i = 0; i < n; i++) out[i] = exponent[i] * 0.6931471805599453 + 2.0 * t[i] * series[i];
}

/* rng_block for first + index[0..n), word by word. */
static void blocks(struct rng_key key, uint64_t first, uint64_t attempt, int n, const int *index,
                   uint32_t out[4][BATCH])
{
    for (int i = 0; i < n; i++) {
        uint64_t element = first + (uint64_t)index[i];

        out[0][i] = (uint32_t)element;
        out[1][i] = (uint32_t)(element >> 32);
        out[2][i] = (uint32_t)attempt;
        out[3][i] = (uint32_t)(attempt >> 32);
    }
    for (int r = 0; r < ROUNDS; r++, next_key(&key))
        for (int i = 0; i < n; i++) round_of(key, &out[0][i], &out[1][i], &out[2][i], &out[3][i]);
}

/* One attempt for `n` elements, first + index[0..n). Those that it rejects stay in index; their number is returned. */
static int attempt_normals(struct rng_key key, uint64_t first, uint64_t attempt, int n, int *index, double std,
                           double cut, double *out)
{
    uint32_t r[4][BATCH];
    double u[BATCH], s[BATCH], log_s[BATCH];
    int accepted[BATCH], n_accepted = 0, n_rejected = 0;

    blocks(key, first, attempt, n, index, r);
    for (int i = 0; i < n; i++) {
        double v = 2.0 * unit_interval(r[2][i], r[3][i]) - 1.0;

        u[i] = 2.0 * unit_interval(r[0][i], r[1][i]) - 1.0;
        s[i] = u[i] * u[i] + v * v;
    }
    for (int i = 0; i < n; i++) {
        bool is_inside = s[i] < 1.0 && s[i] >= 0x1p-60;

        u[n_accepted] = u[i];
        s[n_accepted] = s[i];
        accepted[n_accepted] = index[i];
        index[n_rejected] = index[i];
        n_accepted += is_inside;
        n_rejected += !is_inside;
    }
    portable_logs(n_accepted, s, log_s);
    for (int i = 0; i < n_accepted; i++) s[i] = std * (u[i] * sqrt(-2.0 * log_s[i] / s[i]));
    for (int i = 0; i < n_accepted; i++) {
        if (cut <= 0.0 || (s[i] >= -cut && s[i] <= cut))
            out[accepted[i]] = s[i];
        else
            index[n_rejected++] = accepted[i];
    }
    return n_rejected;
}

void rng_normals(struct rng_key key, uint64_t first, size_t n, double std, double cut, double *out)
{
    for (size_t done = 0; done < n; done += BATCH) {
        int index[BATCH], left = n - done < BATCH ? (int)(n - done) : BATCH;

        for (int i = 0; i < left; i++) index[i] = i;
        for (uint64_t attempt = 0; left > 0; attempt++)
            left = attempt_normals(key, first + done, attempt, left, index, std, cut, out + done);
    }
}

double rng_normal(struct rng_key key, uint64_t element, double std, double cut)
{
    double z;

    rng_normals(key, element, 1, std, cut, &z);
    return z;
}

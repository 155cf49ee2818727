/* SPDX-License-Identifier: MIT */
/* Sums, minima and maxima over ranks; see reduce.h. Blocks of an accumulator that stays in the first cache
 * let `out` be a source. */
#include "comm/reduce.h"

#include <stdint.h>
#include <string.h>

/* The loops below are the whole speed of a reduction: have them vectorised also at -O2. `out` may equal a
 * source, never be shifted against it, so there is no dependence between iterations. */
#ifdef __clang__
#define VECTORISED
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define VECTORISED __attribute__((optimize("O3")))
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define SUM(a, b) ((a) + (b))
#define MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define SUM_WRAPPING(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define MIN_INT(a, b) ((a) < (b) ? (a) : (b))
#define MAX_INT(a, b) ((a) > (b) ? (a) : (b))

/* function, type, combination */
#define PAIRS(X)                                                                                                       \
    X(sum_float32, float, SUM)                                                                                         \
    X(min_float32, float, MIN)                                                                                         \
    X(max_float32, float, MAX)                                                                                         \
    X(sum_float64, double, SUM)                                                                                        \
    X(min_float64, double, MIN)                                                                                        \
    X(max_float64, double, MAX)                                                                                        \
    X(sum_int64, int64_t, SUM_WRAPPING)                                                                                \
    X(min_int64, int64_t, MIN_INT)                                                                                     \
    X(max_int64, int64_t, MAX_INT)

#define PAIR_FUNCTION(name, T, combine)                                                                                \
    VECTORISED static void name(void *out_, const void *a_, const void *b_, size_t n)                                  \
    {                                                                                                                  \
        T *out = out_;                                                                                                 \
        const T *a = a_, *b = b_;                                                                                      \
                                                                                                                       \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < n; i++) out[i] = combine(a[i], b[i]);                                                   \
    }
PAIRS(PAIR_FUNCTION)

typedef void (*pair_function)(void *out, const void *a, const void *b, size_t n);

static pair_function pair_of(enum dtype type, enum comm_operator op)
{
    static const pair_function float32[] = {sum_float32, min_float32, max_float32};
    static const pair_function float64[] = {sum_float64, min_float64, max_float64};
    static const pair_function int64[] = {sum_int64, min_int64, max_int64};

    return type == DTYPE_FLOAT32 ? float32[op] : type == DTYPE_FLOAT64 ? float64[op] : int64[op];
}

bool reduce_has_type(enum dtype type) { return type == DTYPE_FLOAT32 || type == DTYPE_FLOAT64 || type == DTYPE_INT64; }

void reduce_in_order(void *out, const void *const *sources, int n, size_t count, enum dtype type, enum comm_operator op)
{
    enum { BLOCK_BYTES = 8 << 10 };
    _Alignas(64) char sum[BLOCK_BYTES];
    pair_function pair = pair_of(type, op);
    size_t width = dtype_bytes(type), block = BLOCK_BYTES / width;

    if (count == 0) return;
    if (n == 1 && out != sources[0]) memcpy(out, sources[0], count * width);
    if (n == 1) return;
    if (n == 2) {
        pair(out, sources[0], sources[1], count);
        return;
    }
    for (size_t start = 0; start < count; start += block) {
        size_t m = count - start < block ? count - start : block, at = start * width;

        pair(sum, (const char *)sources[0] + at, (const char *)sources[1] + at, m);
        for (int q = 2; q < n - 1; q++) pair(sum, sum, (const char *)sources[q] + at, m);
        pair((char *)out + at, sum, (const char *)sources[n - 1] + at, m);
    }
}

/* SPDX-License-Identifier: MIT */
/* Reductions of NCCL by type. A sum is rounded to its type after each rank, as on the way round a ring. */
#include "group.h"

#include <nccl.h>
#include <string.h>

size_t reduce_type_bytes(int type)
{
    static const uint8_t bytes[ncclNumTypes] = {
        [ncclInt8] = 1,   [ncclUint8] = 1,   [ncclInt32] = 4,   [ncclUint32] = 4,  [ncclInt64] = 8,
        [ncclUint64] = 8, [ncclFloat16] = 2, [ncclFloat32] = 4, [ncclFloat64] = 8, [ncclBfloat16] = 2};
    return (unsigned)type < ncclNumTypes ? bytes[type] : 0;
}

static float from_bfloat16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return f;
}

static uint16_t to_bfloat16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return f != f ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define SAME(x) (x)
/* One loop a type and operator; WIDE is the type in which one step is computed. */
#define LOOP(EXPRESSION, T, WIDE, LOAD, STORE)                                                                         \
    for (uint64_t i = 0; i < n; i++) {                                                                                 \
        WIDE a = LOAD(((T *)out)[i]), b = LOAD(((const T *)in)[i]);                                                    \
        ((T *)out)[i] = (T)STORE(EXPRESSION);                                                                          \
    }                                                                                                                  \
    break

#define TYPE(T, WIDE, LOAD, STORE)                                                                                     \
    switch (op) {                                                                                                      \
    case ncclProd: LOOP(a *b, T, WIDE, LOAD, STORE);                                                                   \
    case ncclMax: LOOP(a > b ? a : b, T, WIDE, LOAD, STORE);                                                           \
    case ncclMin: LOOP(a < b ? a : b, T, WIDE, LOAD, STORE);                                                           \
    default: LOOP(a + b, T, WIDE, LOAD, STORE);                                                                        \
    }                                                                                                                  \
    break

void reduce_into(int type, int op, void *out, const void *in, uint64_t n)
{
    switch (type) {
    case ncclInt8: TYPE(int8_t, int, SAME, SAME);
    case ncclUint8: TYPE(uint8_t, unsigned, SAME, SAME);
    case ncclInt32: TYPE(uint32_t, int32_t, (int32_t), SAME);
    case ncclUint32: TYPE(uint32_t, uint32_t, SAME, SAME);
    case ncclInt64: TYPE(uint64_t, int64_t, (int64_t), SAME);
    case ncclUint64: TYPE(uint64_t, uint64_t, SAME, SAME);
    case ncclFloat16: TYPE(_Float16, float, SAME, SAME);
    case ncclFloat32: TYPE(float, float, SAME, SAME);
    case ncclFloat64: TYPE(double, double, SAME, SAME);
    case ncclBfloat16: TYPE(uint16_t, float, from_bfloat16, to_bfloat16);
    default: sim_die("NCCL: reductions of the type %d are not simulated", type);
    }
}

void reduce_divide(int type, void *out, int by, uint64_t n)
{
#define DIVIDE(T, LOAD, STORE)                                                                                         \
    for (uint64_t i = 0; i < n; i++) ((T *)out)[i] = (T)STORE(LOAD(((T *)out)[i]) / (float)by);                        \
    break
    switch (type) {
    case ncclFloat16: DIVIDE(_Float16, (float), SAME);
    case ncclFloat32: DIVIDE(float, SAME, SAME);
    case ncclFloat64: DIVIDE(double, SAME, SAME);
    case ncclBfloat16: DIVIDE(uint16_t, from_bfloat16, to_bfloat16);
    default: sim_die("NCCL: averages of the type %d are not simulated", type);
    }
}

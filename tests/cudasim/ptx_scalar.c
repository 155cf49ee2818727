/* SPDX-License-Identifier: MIT */
/* Arithmetic of lanes: ptx_scalar.inc makes the functions, then the table of their names. */
#include "ptx.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

/* ---- what takes more than an expression ---- */

static inline int32_t saturated(int64_t x)
{
    return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : (int32_t)x;
}

static inline uint32_t dot4(uint32_t a, uint32_t b, uint32_t c, bool a_is_signed, bool b_is_signed)
{
    for (int k = 0; k < 4; k++) {
        uint8_t x = (uint8_t)(a >> 8 * k), y = (uint8_t)(b >> 8 * k);
        c += (uint32_t)((a_is_signed ? (int8_t)x : x) * (b_is_signed ? (int8_t)y : y));
    }
    return c;
}

static inline uint32_t reversed(uint32_t x)
{
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(x);
}

static inline uint32_t highest(uint32_t x) { return x ? 31 - (uint32_t)__builtin_clz(x) : UINT32_MAX; }

static inline uint64_t extracted(uint64_t a, uint32_t position, uint32_t length, unsigned bits, bool is_signed)
{
    position &= 0xff;
    length &= 0xff;
    unsigned last = position + length - 1 < bits - 1 ? position + length - 1 : bits - 1;
    bool sign = is_signed && length && (a >> last & 1);
    uint64_t shifted = position < bits ? a >> position : 0;
    unsigned kept = length < bits ? length : bits;
    if (position + kept > bits) kept = position < bits ? bits - position : 0;
    if (!kept) return sign && length ? UINT64_MAX : 0;
    uint64_t mask = kept == 64 ? UINT64_MAX : (UINT64_C(1) << kept) - 1;
    return (shifted & mask) | (sign ? ~mask : 0);
}

/* a into b. */
static inline uint64_t inserted(uint64_t a, uint64_t b, uint32_t position, uint32_t length, unsigned bits)
{
    position &= 0xff;
    length &= 0xff;
    if (position >= bits || !length) return b;
    if (length > bits - position) length = bits - position;
    uint64_t mask = (length == 64 ? UINT64_MAX : (UINT64_C(1) << length) - 1) << position;
    return (b & ~mask) | (a << position & mask);
}

static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t all = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t s = selector >> 4 * k;
        uint32_t byte = (uint8_t)(all >> 8 * (s & 7));
        if (s & 8) byte = byte & 0x80 ? 0xff : 0;
        r |= byte << 8 * k;
    }
    return r;
}

static inline uint32_t looked_up(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
    uint32_t r = 0;
    for (uint32_t k = 0; k < 8; k++)
        if (table >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return r;
}

static inline float unit(float x) { return x >= 1 ? 1 : x > 0 ? x : 0; }

/* The one that is a number, if one is; -0 is less than 0. */
static inline float least(float a, float b)
{
    return a != a ? b : b != b ? a : a == b ? (signbit(a) ? a : b) : a < b ? a : b;
}
static inline float most(float a, float b)
{
    return a != a ? b : b != b ? a : a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}

/* a * b + c, rounded as asked: through volatile, so that it is computed where it stands. */
static float directed(float a, float b, float c, int mode)
{
    volatile float x = a, y = b, z = c;
    int before = fegetround();
    fesetround(mode);
    volatile float r = fmaf(x, y, z);
    fesetround(before);
    return r;
}

/* ---- functions ---- */
typedef ptx_u16 T_h;
typedef ptx_s16 T_H;
typedef ptx_u32 T_i;
typedef ptx_s32 T_I;
typedef ptx_u64 T_l;
typedef ptx_s64 T_L;
typedef ptx_f32 T_f;
typedef ptx_f64 T_d;

/* With all lanes on, one loop that the compiler makes vectors of; else lane by lane. */
#define LANES(body)                                                                                                    \
    if (mask == PTX_ALL) {                                                                                             \
        _Pragma("GCC ivdep") for (unsigned lane = 0; lane < PTX_LANES; lane++) body                                    \
    } else                                                                                                             \
        PTX_EACH(lane, mask) body
#define HANDLER(id) static void id(struct ptx_warp *w, const struct ptx_insn *insn, uint32_t mask)
#define OP1(id, name, D, A, value)                                                                                     \
    HANDLER(id)                                                                                                        \
    {                                                                                                                  \
        T_##D *to = PTX_SLOT(w, insn, 0);                                                                              \
        const T_##A *as = PTX_SLOT(w, insn, 1);                                                                        \
        LANES({                                                                                                        \
            T_##A a = as[lane];                                                                                        \
            to[lane] = (T_##D)(value);                                                                                 \
        })                                                                                                             \
    }
#define OP2(id, name, D, A, B, value)                                                                                  \
    HANDLER(id)                                                                                                        \
    {                                                                                                                  \
        T_##D *to = PTX_SLOT(w, insn, 0);                                                                              \
        const T_##A *as = PTX_SLOT(w, insn, 1);                                                                        \
        const T_##B *bs = PTX_SLOT(w, insn, 2);                                                                        \
        LANES({                                                                                                        \
            T_##A a = as[lane];                                                                                        \
            T_##B b = bs[lane];                                                                                        \
            to[lane] = (T_##D)(value);                                                                                 \
        })                                                                                                             \
    }
#define OP3(id, name, D, A, B, C, value)                                                                               \
    HANDLER(id)                                                                                                        \
    {                                                                                                                  \
        T_##D *to = PTX_SLOT(w, insn, 0);                                                                              \
        const T_##A *as = PTX_SLOT(w, insn, 1);                                                                        \
        const T_##B *bs = PTX_SLOT(w, insn, 2);                                                                        \
        const T_##C *cs = PTX_SLOT(w, insn, 3);                                                                        \
        LANES({                                                                                                        \
            T_##A a = as[lane];                                                                                        \
            T_##B b = bs[lane];                                                                                        \
            T_##C c = cs[lane];                                                                                        \
            to[lane] = (T_##D)(value);                                                                                 \
        })                                                                                                             \
    }
#define OP4(id, name, D, A, B, C, E, value)                                                                            \
    HANDLER(id)                                                                                                        \
    {                                                                                                                  \
        T_##D *to = PTX_SLOT(w, insn, 0);                                                                              \
        const T_##A *as = PTX_SLOT(w, insn, 1);                                                                        \
        const T_##B *bs = PTX_SLOT(w, insn, 2);                                                                        \
        const T_##C *cs = PTX_SLOT(w, insn, 3);                                                                        \
        const T_##E *es = (const void *)(w->registers + *insn->list);                                                  \
        LANES({                                                                                                        \
            T_##A a = as[lane];                                                                                        \
            T_##B b = bs[lane];                                                                                        \
            T_##C c = cs[lane];                                                                                        \
            T_##E e = es[lane];                                                                                        \
            to[lane] = (T_##D)(value);                                                                                 \
        })                                                                                                             \
    }
#define SELECT(id, name, T)                                                                                            \
    HANDLER(id)                                                                                                        \
    {                                                                                                                  \
        T_##T *to = PTX_SLOT(w, insn, 0);                                                                              \
        const T_##T *as = PTX_SLOT(w, insn, 1), *bs = PTX_SLOT(w, insn, 2);                                            \
        uint32_t p = *(const ptx_u32 *)PTX_SLOT(w, insn, 3);                                                           \
        LANES({ to[lane] = p >> lane & 1 ? as[lane] : bs[lane]; })                                                     \
    }
#define PREDICATE1(id, name, value)                                                                                    \
    HANDLER(id)                                                                                                        \
    {                                                                                                                  \
        ptx_u32 *to = PTX_SLOT(w, insn, 0), a = *(const ptx_u32 *)PTX_SLOT(w, insn, 1);                                \
        *to = (*to & ~mask) | ((value)&mask);                                                                          \
    }
#define PREDICATE2(id, name, value)                                                                                    \
    HANDLER(id)                                                                                                        \
    {                                                                                                                  \
        ptx_u32 *to = PTX_SLOT(w, insn, 0), a = *(const ptx_u32 *)PTX_SLOT(w, insn, 1),                                \
                b = *(const ptx_u32 *)PTX_SLOT(w, insn, 2);                                                            \
        *to = (*to & ~mask) | ((value)&mask);                                                                          \
    }
#define TEST(id, name, A, value)                                                                                       \
    HANDLER(id)                                                                                                        \
    {                                                                                                                  \
        ptx_u32 *to = PTX_SLOT(w, insn, 0), r = 0;                                                                     \
        const T_##A *as = PTX_SLOT(w, insn, 1);                                                                        \
        for (unsigned lane = 0; lane < PTX_LANES; lane++) {                                                            \
            T_##A a = as[lane];                                                                                        \
            r |= (uint32_t) !!(value) << lane;                                                                         \
        }                                                                                                              \
        *to = (*to & ~mask) | (r & mask);                                                                              \
    }
#define COMPARE(id, name, A, value)                                                                                    \
    static uint32_t id(const void *x, const void *y)                                                                   \
    {                                                                                                                  \
        const T_##A *as = x, *bs = y;                                                                                  \
        uint32_t r = 0;                                                                                                \
        for (unsigned lane = 0; lane < PTX_LANES; lane++) {                                                            \
            T_##A a = as[lane], b = bs[lane];                                                                          \
            r |= (uint32_t)(value) << lane;                                                                            \
        }                                                                                                              \
        return r;                                                                                                      \
    }

/* One half of a and the others, in double, and back. */
#define FROM(format, bits) ptx_decode_number((uint16_t)(bits), format)
#define TO(format, value) ptx_encode(value, format, 'n', false)
#define HALF(id, name, format, T, n, value)                                                                            \
    HANDLER(id)                                                                                                        \
    {                                                                                                                  \
        T_##T *to = PTX_SLOT(w, insn, 0);                                                                              \
        PTX_EACH(lane, mask)                                                                                           \
        {                                                                                                              \
            T_##T r = 0;                                                                                               \
            for (unsigned k = 0; k < 8 * sizeof(T_##T); k += 16) {                                                     \
                double x = FROM(format, ((const T_##T *)PTX_SLOT(w, insn, 1))[lane] >> k);                             \
                double y = n > 1 ? FROM(format, ((const T_##T *)PTX_SLOT(w, insn, n > 1 ? 2 : 1))[lane] >> k) : 0;     \
                double z = n > 2 ? FROM(format, ((const T_##T *)PTX_SLOT(w, insn, n > 2 ? 3 : 1))[lane] >> k) : 0;     \
                (void)y, (void)z;                                                                                      \
                r |= (T_##T)((uint32_t)TO(format, value) << k);                                                        \
            }                                                                                                          \
            to[lane] = r;                                                                                              \
        }                                                                                                              \
    }
#define HALVES(id, name, n, value)                                                                                     \
    HALF(id##_f16, name ".f16", PTX_F16, h, n, value)                                                                  \
    HALF(id##_f16x2, name ".f16x2", PTX_F16, i, n, value)                                                              \
    HALF(id##_bf16, name ".bf16", PTX_BF16, h, n, value)                                                               \
    HALF(id##_bf16x2, name ".bf16x2", PTX_BF16, i, n, value)
#define HALVES1(id, value) HALVES(id, #id, 1, value)
#define HALVES2(id, value) HALVES(id, #id, 2, value)
#define HALVES2_NAMED(id, name, value) HALVES(id, name, 2, value)
#define HALVES3(id, name, value) HALVES(id, name, 3, value)
#include "ptx_scalar.inc"

/* ---- the table ---- */
#undef OP1
#undef OP2
#undef OP3
#undef OP4
#undef SELECT
#undef PREDICATE1
#undef PREDICATE2
#undef TEST
#undef COMPARE
#undef HALF
#define OP1(id, name, D, A, value) {name, #D #A, id},
#define OP2(id, name, D, A, B, value) {name, #D #A #B, id},
#define OP3(id, name, D, A, B, C, value) {name, #D #A #B #C, id},
#define OP4(id, name, D, A, B, C, E, value) {name, #D #A #B #C #E, id},
#define SELECT(id, name, T) {name, #T #T #T "p", id},
#define PREDICATE1(id, name, value) {name, "pp", id},
#define PREDICATE2(id, name, value) {name, "ppp", id},
#define TEST(id, name, A, value) {name, "p" #A, id},
#define LETTERS_1(T) #T #T
#define LETTERS_2(T) #T #T #T
#define LETTERS_3(T) #T #T #T #T
#define HALF(id, name, format, T, n, value) {name, LETTERS_##n(T), id},
#define COMPARE(id, name, A, value)
static const struct ptx_op ops[] = {
#include "ptx_scalar.inc"
};

const struct ptx_op *ptx_scalar_find(const char *name)
{
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(ops[i].name, name)) return &ops[i];
    return NULL;
}

/* ---- and that of comparisons ---- */
#undef OP1
#undef OP2
#undef OP3
#undef OP4
#undef SELECT
#undef PREDICATE1
#undef PREDICATE2
#undef TEST
#undef HALF
#undef COMPARE
#define OP1(id, name, D, A, value)
#define OP2(id, name, D, A, B, value)
#define OP3(id, name, D, A, B, C, value)
#define OP4(id, name, D, A, B, C, E, value)
#define SELECT(id, name, T)
#define PREDICATE1(id, name, value)
#define PREDICATE2(id, name, value)
#define TEST(id, name, A, value)
#define HALF(id, name, format, T, n, value)
#define COMPARE(id, name, A, value) {name, id, #A},
static const struct ptx_compare_op compares[] = {
#include "ptx_scalar.inc"
};

const struct ptx_compare_op *ptx_compare_find(const char *name)
{
    for (size_t i = 0; i < sizeof compares / sizeof *compares; i++)
        if (!strcmp(compares[i].name, name)) return &compares[i];
    return NULL;
}

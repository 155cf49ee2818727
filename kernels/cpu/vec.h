/* SPDX-License-Identifier: MIT */
/*
 * Vectors of the instruction set a file is compiled for, so that one source serves AVX2 and AVX-512.
 *
 * A `vec` holds VEC_WIDTH floats, a `vecd` VECD_WIDTH doubles. vec_load, vec_store, vec_load_n and vec_store_n take
 * arrays of float or of bfloat16, which is widened, and rounded to nearest even when stored. The functions are single
 * instructions or short fixed sequences of them; sums across a vector always add in the same tree, so results differ
 * between widths but never between runs. Included only by <family>_fast.c, which the Makefile compiles once for each
 * instruction set; VEC_LEVEL(name) is name_avx2 or name_avx512.
 */
#ifndef KERNELS_CPU_VEC_H
#define KERNELS_CPU_VEC_H

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "base/bfloat16.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)

#define VEC_LEVEL(name) name##_avx512
enum { VEC_WIDTH = 16, VECD_WIDTH = 8 };
typedef __m512 vec;
typedef __m512d vecd;
typedef __mmask16 vec_mask;

INLINE vec vec_zero(void) { return _mm512_setzero_ps(); }
INLINE vec vec_of(float x) { return _mm512_set1_ps(x); }
INLINE vec vec_load_float32(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vec_store_float32(float *p, vec x) { _mm512_storeu_ps(p, x); }
INLINE vec_mask vec_first(int64_t n) { return (vec_mask)((1u << n) - 1); } /* lanes [0, n) */
INLINE vec vec_load_some(const float *p, vec_mask m) { return _mm512_maskz_loadu_ps(m, p); }
INLINE void vec_store_some(float *p, vec_mask m, vec x) { _mm512_mask_storeu_ps(p, m, x); }
INLINE vec vec_of_bfloat16(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
INLINE __m256i vec_to_bfloat16(vec x)
{
    __m512i bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
    __m512i half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), _mm512_and_si512(upper, _mm512_set1_epi32(1)));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    __m512i nan = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));

    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), rounded, nan));
}
INLINE vec vec_load_bfloat16(const bfloat16 *p) { return vec_of_bfloat16(_mm256_loadu_si256((const __m256i *)p)); }
INLINE void vec_store_bfloat16(bfloat16 *p, vec x) { _mm256_storeu_si256((__m256i *)p, vec_to_bfloat16(x)); }
INLINE vec vec_load_some_bfloat16(const bfloat16 *p, int64_t n)
{
    return vec_of_bfloat16(_mm256_maskz_loadu_epi16(vec_first(n), p));
}
INLINE void vec_store_some_bfloat16(bfloat16 *p, int64_t n, vec x)
{
    _mm256_mask_storeu_epi16(p, vec_first(n), vec_to_bfloat16(x));
}
INLINE vec vec_load_half_bfloat16(const bfloat16 *p)
{
    return vec_of_bfloat16(_mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)p)));
}
INLINE void vec_store_half_bfloat16(bfloat16 *p, vec x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(vec_to_bfloat16(x)));
}
INLINE vec vec_load_half(const float *p) { return _mm512_zextps256_ps512(_mm256_loadu_ps(p)); }
INLINE void vec_store_half(float *p, vec x) { _mm256_storeu_ps(p, _mm512_castps512_ps256(x)); }
INLINE vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
INLINE vec vec_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
INLINE vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
INLINE vec vec_div(vec a, vec b) { return _mm512_div_ps(a, b); }
INLINE vec vec_sqrt(vec a) { return _mm512_sqrt_ps(a); }
INLINE vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); } /* b where either is NaN */
INLINE vec vec_min(vec a, vec b) { return _mm512_min_ps(a, b); }
INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }   /* a b + c */
INLINE vec vec_fnma(vec a, vec b, vec c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a b */
INLINE vec_mask vec_le(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
INLINE vec_mask vec_lt(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE vec_mask vec_and(vec_mask a, vec_mask b) { return a & b; }
INLINE vec vec_select(vec_mask m, vec yes, vec no) { return _mm512_mask_blend_ps(m, no, yes); }
INLINE vec vec_round(vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* 2^n for whole n in [-126, 127] */
INLINE vec vec_power_of_2(vec n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
INLINE __m256 vec_halves_added(vec a) { return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)); }
INLINE __m256 vec_halves_max(vec a) { return _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)); }

INLINE vecd vecd_zero(void) { return _mm512_setzero_pd(); }
INLINE vecd vecd_of(double x) { return _mm512_set1_pd(x); }
INLINE vecd vecd_load(const double *p) { return _mm512_loadu_pd(p); }
INLINE vecd vecd_load_floats(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
INLINE void vecd_store(double *p, vecd x) { _mm512_storeu_pd(p, x); }
INLINE vecd vecd_add(vecd a, vecd b) { return _mm512_add_pd(a, b); }
INLINE vecd vecd_fma(vecd a, vecd b, vecd c) { return _mm512_fmadd_pd(a, b, c); }

#else

#define VEC_LEVEL(name) name##_avx2
enum { VEC_WIDTH = 8, VECD_WIDTH = 4 };
typedef __m256 vec;
typedef __m256d vecd;
typedef __m256 vec_mask; /* all bits of a lane set or clear */

INLINE vec vec_zero(void) { return _mm256_setzero_ps(); }
INLINE vec vec_of(float x) { return _mm256_set1_ps(x); }
INLINE vec vec_load_float32(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vec_store_float32(float *p, vec x) { _mm256_storeu_ps(p, x); }
INLINE vec_mask vec_first(int64_t n) /* lanes [0, n) */
{
    return _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}
INLINE vec vec_load_some(const float *p, vec_mask m) { return _mm256_maskload_ps(p, _mm256_castps_si256(m)); }
INLINE void vec_store_some(float *p, vec_mask m, vec x) { _mm256_maskstore_ps(p, _mm256_castps_si256(m), x); }
INLINE vec vec_of_bfloat16(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
INLINE __m128i vec_to_bfloat16(vec x)
{
    __m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
    __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), _mm256_and_si256(upper, _mm256_set1_epi32(1)));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    __m256i nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i packed = _mm256_packus_epi32(_mm256_blendv_epi8(rounded, nan, is_nan), _mm256_setzero_si256());

    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
INLINE vec vec_load_bfloat16(const bfloat16 *p) { return vec_of_bfloat16(_mm_loadu_si128((const __m128i *)p)); }
INLINE void vec_store_bfloat16(bfloat16 *p, vec x) { _mm_storeu_si128((__m128i *)p, vec_to_bfloat16(x)); }
INLINE vec vec_load_some_bfloat16(const bfloat16 *p, int64_t n)
{
    bfloat16 room[VEC_WIDTH] = {{0}};

    memcpy(room, p, (size_t)n * sizeof *p);
    return vec_load_bfloat16(room);
}
INLINE void vec_store_some_bfloat16(bfloat16 *p, int64_t n, vec x)
{
    bfloat16 room[VEC_WIDTH];

    vec_store_bfloat16(room, x);
    memcpy(p, room, (size_t)n * sizeof *p);
}
INLINE vec vec_load_half_bfloat16(const bfloat16 *p) { return vec_of_bfloat16(_mm_loadl_epi64((const __m128i *)p)); }
INLINE void vec_store_half_bfloat16(bfloat16 *p, vec x) { _mm_storel_epi64((__m128i *)p, vec_to_bfloat16(x)); }
INLINE vec vec_load_half(const float *p) { return _mm256_zextps128_ps256(_mm_loadu_ps(p)); }
INLINE void vec_store_half(float *p, vec x) { _mm_storeu_ps(p, _mm256_castps256_ps128(x)); }
INLINE vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
INLINE vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
INLINE vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
INLINE vec vec_div(vec a, vec b) { return _mm256_div_ps(a, b); }
INLINE vec vec_sqrt(vec a) { return _mm256_sqrt_ps(a); }
INLINE vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); } /* b where either is NaN */
INLINE vec vec_min(vec a, vec b) { return _mm256_min_ps(a, b); }
INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }   /* a b + c */
INLINE vec vec_fnma(vec a, vec b, vec c) { return _mm256_fnmadd_ps(a, b, c); } /* c - a b */
INLINE vec_mask vec_le(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
INLINE vec_mask vec_lt(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE vec_mask vec_and(vec_mask a, vec_mask b) { return _mm256_and_ps(a, b); }
INLINE vec vec_select(vec_mask m, vec yes, vec no) { return _mm256_blendv_ps(no, yes, m); }
INLINE vec vec_round(vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* 2^n for whole n in [-126, 127] */
INLINE vec vec_power_of_2(vec n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
INLINE __m256 vec_halves_added(vec a) { return a; }
INLINE __m256 vec_halves_max(vec a) { return a; }

INLINE vecd vecd_zero(void) { return _mm256_setzero_pd(); }
INLINE vecd vecd_of(double x) { return _mm256_set1_pd(x); }
INLINE vecd vecd_load(const double *p) { return _mm256_loadu_pd(p); }
INLINE vecd vecd_load_floats(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
INLINE void vecd_store(double *p, vecd x) { _mm256_storeu_pd(p, x); }
INLINE vecd vecd_add(vecd a, vecd b) { return _mm256_add_pd(a, b); }
INLINE vecd vecd_fma(vecd a, vecd b, vecd c) { return _mm256_fmadd_pd(a, b, c); }

#endif

/* The first n numbers at p, zero for the others. Halves have a way of their own: stores through masks are slow on some
 * processors. */
INLINE vec vec_load_n_float32(const float *p, int64_t n)
{
    if (n >= VEC_WIDTH) return vec_load_float32(p);
    return n == VEC_WIDTH / 2 ? vec_load_half(p) : vec_load_some(p, vec_first(n));
}

INLINE void vec_store_n_float32(float *p, int64_t n, vec x)
{
    if (n >= VEC_WIDTH)
        vec_store_float32(p, x);
    else if (n == VEC_WIDTH / 2)
        vec_store_half(p, x);
    else
        vec_store_some(p, vec_first(n), x);
}

INLINE vec vec_load_n_bfloat16(const bfloat16 *p, int64_t n)
{
    if (n >= VEC_WIDTH) return vec_load_bfloat16(p);
    return n == VEC_WIDTH / 2 ? vec_load_half_bfloat16(p) : vec_load_some_bfloat16(p, n);
}

INLINE void vec_store_n_bfloat16(bfloat16 *p, int64_t n, vec x)
{
    if (n >= VEC_WIDTH)
        vec_store_bfloat16(p, x);
    else if (n == VEC_WIDTH / 2)
        vec_store_half_bfloat16(p, x);
    else
        vec_store_some_bfloat16(p, n, x);
}

INLINE __m256 load_8_float32(const float *p) { return _mm256_loadu_ps(p); }
INLINE __m256 load_8_bfloat16(const bfloat16 *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

#define OF_TYPE(function, p) _Generic(*(p), float : function##_float32, bfloat16 : function##_bfloat16)
#define vec_load(p) OF_TYPE(vec_load, p)(p)
#define vec_store(p, x) OF_TYPE(vec_store, p)(p, x)
#define vec_load_n(p, n) OF_TYPE(vec_load_n, p)(p, n)
#define vec_store_n(p, n, x) OF_TYPE(vec_store_n, p)(p, n, x)
#define load_8(p) OF_TYPE(load_8, p)(p) /* 8 floats, whatever the width of a vec */

INLINE float vec_sum(vec a)
{
    __m256 x = vec_halves_added(a);
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
}

INLINE float vec_largest(vec a)
{
    __m256 x = vec_halves_max(a);
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_shuffle_ps(y, y, 1)));
}

INLINE double vecd_sum(vecd a)
{
    double lane[VECD_WIDTH], sum = 0;

    vecd_store(lane, a);
    for (int i = 0; i < VECD_WIDTH; i++) sum += lane[i];
    return sum;
}

/* 8 rows of 8 floats become 8 columns. */
INLINE void transpose_8x8(__m256 r[8])
{
    __m256 t[8], s[8];

    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            s[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
            s[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x31);
    }
}

/* 2^r for |r| <= 1/2, relative error below 2e-7: a polynomial fitted for the least relative error. */
INLINE vec vec_exp2_small(vec r)
{
    vec p = vec_of(0x1.5bba14p-10f);

    p = vec_fma(p, r, vec_of(0x1.3cea88p-7f));
    p = vec_fma(p, r, vec_of(0x1.c6b752p-5f));
    p = vec_fma(p, r, vec_of(0x1.ebf9bcp-3f));
    p = vec_fma(p, r, vec_of(0x1.62e42ap-1f));
    return vec_fma(p, r, vec_of(1.0f));
}

/* 2^x for x <= 127: 0 below -126.5 (no denormals), NaN for NaN. */
INLINE vec vec_exp2(vec x)
{
    vec y = vec_max(vec_of(-127.0f), x), n = vec_round(y);

    return vec_mul(vec_exp2_small(vec_sub(y, n)), vec_power_of_2(n));
}

/* e^x: 0 below -87.6, at most 2^127, NaN for NaN. ln 2 is taken off in two parts (Cody, Waite 1980), so that large |x|
 * keep their digits. */
INLINE vec vec_exp(vec x)
{
    vec y = vec_min(vec_of(88.0f), vec_max(vec_of(-88.0f), x)), n = vec_round(vec_mul(y, vec_of(0x1.715476p+0f)));
    vec r = vec_fnma(n, vec_of(-0x1.05c61p-29f), vec_fnma(n, vec_of(0x1.62e43p-1f), y));

    return vec_mul(vec_exp2_small(vec_mul(r, vec_of(0x1.715476p+0f))), vec_power_of_2(n));
}

#endif
#endif

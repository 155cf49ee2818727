/* SPDX-License-Identifier: MIT */
/* Numbers of few bits: bf16, f16, fp8, tf32. */
#include "ptx.h"

#include <math.h>
#include <string.h>

/* e4m3 has no infinity: its largest exponent is in use but for the mantissa of all ones. */
static const struct {
    int mantissa_bits, bias, shift; /* shift: where the bits stand in their word */
    uint32_t largest, infinity, nan, sign;
} formats[PTX_FORMATS] = {
    [PTX_F16] = {10, 15, 0, 0x7bff, 0x7c00, 0x7fff, 0x8000},
    [PTX_BF16] = {7, 127, 0, 0x7f7f, 0x7f80, 0x7fff, 0x8000},
    [PTX_E4M3] = {3, 7, 0, 0x7e, 0x7f, 0x7f, 0x80},
    [PTX_E5M2] = {2, 15, 0, 0x7b, 0x7c, 0x7f, 0x80},
    [PTX_TF32] = {10, 127, 13, 0x3fbff, 0x3fc00, 0x3ffff, 0x40000},
};

float ptx_from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t ptx_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float ptx_from_f16(uint16_t x)
{
    /* the exponent is moved by a product, which also makes a normal number of a subnormal one */
    uint32_t bits = (uint32_t)(x & 0x7fff) << 13;
    float f;
    if (bits >= 0x7c00u << 13)
        bits |= 0xffu << 23;
    else {
        memcpy(&f, &bits, sizeof f);
        f *= 0x1p112f;
        memcpy(&bits, &f, sizeof f);
    }
    bits |= (uint32_t)(x & 0x8000) << 16;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t ptx_to_f16(float x) { return (uint16_t)ptx_encode(x, PTX_F16, 'n', false); }

uint32_t ptx_encode(double x, enum ptx_format format, char rounding, bool is_finite)
{
    int m = formats[format].mantissa_bits, bias = formats[format].bias, shift = formats[format].shift, exponent;
    uint32_t sign = signbit(x) ? formats[format].sign : 0, bits;
    double a = fabs(x);
    if (x != x) return format == PTX_TF32 ? INT32_MAX : formats[format].nan;
    if (isinf(x))
        bits = is_finite ? formats[format].largest : formats[format].infinity;
    else if (a == 0)
        bits = 0;
    else {
        frexp(a, &exponent);
        exponent--; /* of the leading one */
        if (exponent < 1 - bias) exponent = 1 - bias;
        double q = ldexp(a, m - exponent); /* exact: in units of the last place */
        uint64_t r = (uint64_t)(rounding == 'z' ? floor(q) : rounding == 'a' ? floor(q + 0.5) : nearbyint(q));
        uint64_t all;
        if (exponent > bias + 1)
            all = UINT32_MAX;
        else /* a carry of the mantissa goes on into the exponent; a subnormal has exponent 1 without its one */
            all = ((uint64_t)(exponent + bias - 1) << m) + r;
        bits = all > formats[format].largest
                   ? (is_finite || rounding == 'z' ? formats[format].largest : formats[format].infinity)
                   : (uint32_t)all;
    }
    return (sign | bits) << shift;
}

double ptx_decode_number(uint32_t bits, enum ptx_format format)
{
    int m = formats[format].mantissa_bits, bias = formats[format].bias;
    bits >>= formats[format].shift;
    uint32_t magnitude = bits & (formats[format].sign - 1);
    bool is_negative = bits & formats[format].sign;
    double x;
    if (magnitude > formats[format].largest)
        x = magnitude == formats[format].infinity && format != PTX_E4M3 ? INFINITY : NAN;
    else {
        int exponent = (int)(magnitude >> m);
        double mantissa = magnitude & ((1u << m) - 1);
        x = exponent ? ldexp(mantissa + (1u << m), exponent - bias - m) : ldexp(mantissa, 1 - bias - m);
    }
    return is_negative ? -x : x;
}

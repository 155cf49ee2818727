/* SPDX-License-Identifier: MIT */
/*
 * Compiles the body of a reference twin once per compute type.
 *
 * kernels/cpu/<family>.c includes this header with FAMILY set to its own path; it is then included again for float32
 * (where NAME(k) is k_float32), for float64 and, unless all that the family's kernels see is wide (ALL_WIDE), for
 * bfloat16. REAL is the compute type as it is stored, WIDE the wide type; IS_WIDE says that they are one. GET(x) is the
 * number that a stored x means, PUT(y) the double y rounded to a REAL. The idea of every reference: read, compute in
 * double in plain loops, round once when storing.
 */
#ifdef FAMILY
#define IS_WIDE
#define GET(x) (x)
#define PUT(y) ((REAL)(y))
#define REAL float
#define WIDE float
#define NAME(name) name##_float32
#include FAMILY
#undef REAL
#undef WIDE
#undef NAME
#define REAL double
#define WIDE double
#define NAME(name) name##_float64
#include FAMILY
#undef REAL
#undef WIDE
#undef NAME
#undef IS_WIDE
#undef GET
#undef PUT
#ifndef ALL_WIDE
#define GET(x) bfloat16_to_float(x)
#define PUT(y) bfloat16_of_double(y)
#define REAL bfloat16
#define WIDE float
#define NAME(name) name##_bfloat16
#include FAMILY
#undef REAL
#undef WIDE
#undef NAME
#undef GET
#undef PUT
#endif
#endif

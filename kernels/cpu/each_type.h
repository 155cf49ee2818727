/* SPDX-License-Identifier: MIT */
/*
 * Compiles the body of a reference twin once per element type.
 *
 * kernels/cpu/<family>.c includes this header with FAMILY set to its own path; it is then included again with REAL =
 * float, where NAME(k) is k_float32, and with REAL = double, where NAME(k) is k_float64. The idea of every reference:
 * read, compute in double in plain loops, round once when storing.
 */
#ifdef FAMILY
#define REAL float
#define NAME(name) name##_float32
#include FAMILY
#undef REAL
#undef NAME
#define REAL double
#define NAME(name) name##_float64
#include FAMILY
#undef REAL
#undef NAME
#endif

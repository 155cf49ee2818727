/* SPDX-License-Identifier: MIT */
/*
 * Compiles the body of a fast twin for float32 and for bfloat16, as each_type.h does with references.
 *
 * Vectors are of floats in both: vec_load and the others widen and round as the type of the pointer asks, GET and PUT
 * do the same for single numbers. The wide type is float. REFERENCE(k) is the reference twin of k.
 */
#ifdef FAMILY
#define IS_WIDE
#define REAL float
#define GET(x) (x)
#define PUT(y) ((float)(y))
#define NAME(name) VEC_LEVEL(name##_float32)
#define REFERENCE(name) name##_float32
#include FAMILY
#undef IS_WIDE
#undef REAL
#undef GET
#undef PUT
#undef NAME
#undef REFERENCE
#define REAL bfloat16
#define GET(x) bfloat16_to_float(x)
#define PUT(y) bfloat16_of_float((float)(y))
#define NAME(name) VEC_LEVEL(name##_bfloat16)
#define REFERENCE(name) name##_bfloat16
#include FAMILY
#undef REAL
#undef GET
#undef PUT
#undef NAME
#undef REFERENCE
#endif

/* SPDX-License-Identifier: MIT */
/* Element types of tensors, on every device and in every file. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

/* enum name, bytes, name in configurations and messages, name in safetensors files */
#define DTYPES(X)                                                                                                      \
    X(DTYPE_FLOAT32, 4, "float32", "F32")                                                                              \
    X(DTYPE_FLOAT64, 8, "float64", "F64")                                                                              \
    X(DTYPE_BFLOAT16, 2, "bfloat16", "BF16")                                                                           \
    X(DTYPE_INT32, 4, "int32", "I32")                                                                                  \
    X(DTYPE_INT64, 8, "int64", "I64")                                                                                  \
    X(DTYPE_UINT8, 1, "uint8", "U8")

enum dtype {
#define X(id, bytes, name, file_name) id,
    DTYPES(X)
#undef X
        DTYPE_COUNT
};

size_t dtype_bytes(enum dtype t);
const char *dtype_name(enum dtype t);
const char *dtype_file_name(enum dtype t);
bool dtype_parse(const char *name, enum dtype *out); /* "float32" */

/* The type in which what is computed in `compute` is summed and kept: float32 for bfloat16, else the type itself. */
enum dtype dtype_wide(enum dtype compute);

#endif

/* SPDX-License-Identifier: MIT */
/* Element types; see dtype.h. */
#include "base/dtype.h"

#include <string.h>

static const struct {
    size_t bytes;
    const char *name, *file_name;
} rows[DTYPE_COUNT] = {
#define X(id, bytes, name, file_name) [id] = {bytes, name, file_name},
    DTYPES(X)
#undef X
};

size_t dtype_bytes(enum dtype t) { return rows[t].bytes; }
enum dtype dtype_wide(enum dtype compute) { return compute == DTYPE_BFLOAT16 ? DTYPE_FLOAT32 : compute; }
const char *dtype_name(enum dtype t) { return rows[t].name; }
const char *dtype_file_name(enum dtype t) { return rows[t].file_name; }

bool dtype_parse(const char *name, enum dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0) return *out = (enum dtype)i, true;
    return false;
}

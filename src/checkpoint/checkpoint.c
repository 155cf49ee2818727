/* SPDX-License-Identifier: MIT */
/* Sizes and names of what a checkpoint holds; see checkpoint.h. */
#include "checkpoint/checkpoint.h"

#include <string.h>

static const char *const kind_names[] = {
#define X(id, name) name,
    CHECKPOINT_KINDS(X)
#undef X
};

const char *checkpoint_kind_name(enum checkpoint_kind kind) { return kind_names[kind]; }

bool checkpoint_kind_parse(const char *name, enum checkpoint_kind *out)
{
    for (int k = 0; k < CHECKPOINT_KIND_COUNT; k++) {
        if (strcmp(name, kind_names[k]) != 0) continue;
        *out = (enum checkpoint_kind)k;
        return true;
    }
    return false;
}

bool checkpoint_id_ok(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");

    return n > 0 && n < CHECKPOINT_ID_BYTES && !id[n];
}

int64_t checkpoint_tensor_rows(const struct checkpoint_tensor *t) { return t->n_dims ? t->dim[0] : 1; }

int64_t checkpoint_tensor_row_bytes(const struct checkpoint_tensor *t)
{
    int64_t bytes = (int64_t)dtype_bytes(t->type);

    for (int d = 1; d < t->n_dims; d++) bytes *= t->dim[d];
    return bytes;
}

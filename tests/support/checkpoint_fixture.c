/* SPDX-License-Identifier: MIT */
/* A small model for checkpoints; see checkpoint_fixture.h. */
#include "tests/support/checkpoint_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"

static const struct {
    const char *name;
    enum checkpoint_kind kind;
    enum dtype type;
    int n_dims;
    int64_t dim[PARAMETER_MAX_DIMS];
} shapes[FIXTURE_TENSORS] = {
    {"tok_embeddings.weight", CHECKPOINT_PARAMETERS, DTYPE_FLOAT32, 2, {17, 5}},
    {"layers.0.attention.wq.weight", CHECKPOINT_PARAMETERS, DTYPE_BFLOAT16, 2, {7, 3}},
    {"layers.0.attention_norm.weight", CHECKPOINT_PARAMETERS, DTYPE_FLOAT32, 1, {3}},
    {"layers.0.moe.experts", CHECKPOINT_PARAMETERS, DTYPE_FLOAT64, 4, {4, 2, 3, 2}},
    {"norm.weight", CHECKPOINT_PARAMETERS, DTYPE_FLOAT32, 1, {1}},
    {"empty", CHECKPOINT_PARAMETERS, DTYPE_FLOAT32, 2, {0, 4}},
    {"scale", CHECKPOINT_PARAMETERS, DTYPE_FLOAT32, 0, {0}},
    {"tok_embeddings.weight.exp_avg", CHECKPOINT_OPTIMIZER, DTYPE_FLOAT32, 2, {17, 5}},
    {"tok_embeddings.weight.step", CHECKPOINT_OPTIMIZER, DTYPE_INT64, 1, {2}},
};

static void fill(const struct checkpoint_tensor *t, int version, unsigned char *out)
{
    struct rng_key key = rng_key_of((uint64_t)version, t->name);
    int64_t row_bytes = checkpoint_tensor_row_bytes(t), first = t->first_row * row_bytes, n = t->n_rows * row_bytes;

    for (int64_t i = 0; i < n; i++) {
        out[i] = (unsigned char)rng_below(key, (uint64_t)(first + i), 256);
        if (t->type != DTYPE_INT64 && out[i] >= 0x70) out[i] &= 0x3f; /* finite, whatever the element's type */
    }
}

void fixture_make(struct fixture *f, int index, int n, int version)
{
    memset(f->data, 0xee, sizeof f->data);
    for (int i = 0; i < FIXTURE_TENSORS; i++) {
        struct checkpoint_tensor *t = &f->tensors[i];
        int64_t rows, chunk, end;

        *t = (struct checkpoint_tensor){.name = shapes[i].name, .kind = shapes[i].kind, .type = shapes[i].type};
        t->n_dims = shapes[i].n_dims;
        memcpy(t->dim, shapes[i].dim, sizeof t->dim);
        rows = checkpoint_tensor_rows(t);
        chunk = (rows + n - 1) / n;
        t->first_row = chunk * index < rows ? chunk * index : rows;
        end = chunk * (index + 1) < rows ? chunk * (index + 1) : rows;
        t->n_rows = end - t->first_row;
        t->data = f->data[i];
        if (version >= 0) fill(t, version, f->data[i]);
    }
}

bool fixture_equals(const struct fixture *f, int version)
{
    unsigned char wanted[FIXTURE_BYTES];

    for (int i = 0; i < FIXTURE_TENSORS; i++) {
        memset(wanted, 0xee, sizeof wanted); /* also what lies behind the rows must not have been touched */
        fill(&f->tensors[i], version, wanted);
        if (memcmp(wanted, f->data[i], sizeof wanted) != 0) return false;
    }
    return true;
}

struct checkpoint_state fixture_state(int64_t step)
{
    return (struct checkpoint_state){.step = step,
                                     .tokens_seen = 1000 * step,
                                     .epoch = step / 100,
                                     .sample = 8 * step,
                                     .shuffle_seed = UINT64_MAX - 5,
                                     .seed = 42,
                                     .optimizer_step = step ? step - 1 : 0,
                                     .schedule_step = step};
}

struct checkpoint_spec fixture_spec(const struct fixture *f, const char *folder, int64_t step)
{
    static const struct checkpoint_axis axes[] = {{"pp", 1}, {"dp_replicate", 1}, {"dp_shard", 2}};

    return (struct checkpoint_spec){.folder = folder,
                                    .run_id = "aaaa1111",
                                    .model = "llama3/debugmodel",
                                    .binary = "0.1.0",
                                    .config_json = "{\"training\":{\"steps\":10,\"lr\":0.1}}",
                                    .axes = axes,
                                    .n_axes = 3,
                                    .state = fixture_state(step),
                                    .tensors = f->tensors,
                                    .n_tensors = FIXTURE_TENSORS,
                                    .is_writer = true};
}

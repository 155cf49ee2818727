/* SPDX-License-Identifier: MIT */
/* Any bytes as a safetensors file: refused, or every tensor's bytes can be read. */
#include <stdlib.h>

#include "checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s;
    struct error e;
    unsigned sum = 0;

    if (safetensors_parse(&s, data, size, "fuzz", &e)) return 0;
    for (int i = 0; i < s.n_entries; i++) {
        const struct safetensors_entry *t = &s.entries[i];

        if (safetensors_find(&s, t->name) != t) abort();
        for (uint64_t k = 0; k < t->bytes; k++) sum += s.data[t->offset + k];
        for (int d = 0; d < t->n_dims; d++) sum += (unsigned)t->dim[d];
    }
    safetensors_close(&s);
    *(volatile unsigned *)&sum = sum; /* keeps the reads */
    return 0;
}

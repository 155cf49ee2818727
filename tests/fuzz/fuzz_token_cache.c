/* SPDX-License-Identifier: MIT */
/* A token cache of any bytes, its checksums put right so that they hide nothing: refused, or read without an id out of
 * range. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "data/sampler.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { T = 5 };
    int32_t scratch[T + 1], tokens[T], labels[T], positions[T], start[T];
    struct token_cache_header h = {0};
    struct token_cache *c;
    struct sampler s;
    struct error e;
    char path[64];
    int64_t valid = 0;
    FILE *f;

    memcpy(&h, data, size < sizeof h ? size : sizeof h);
    h.header_crc = hash_crc32c(0, &h, offsetof(struct token_cache_header, header_crc));
    snprintf(path, sizeof path, "/tmp/ctitan-fuzz-%d.bin", (int)getpid());
    f = fopen(path, "wb");
    if (!f || fwrite(&h, sizeof h, 1, f) != 1) abort();
    if (size > sizeof h && fwrite(data + sizeof h, 1, size - sizeof h, f) != size - sizeof h) abort();
    fclose(f);
    if (token_cache_open(&c, path, 0, &e) == ERR_NONE) {
        if (token_cache_verify(c, &e)) valid = 0;
        if (!sampler_init(&s, c, T, true, true, 1, false, &e))
            for (int64_t i = 0; i < s.n_samples; i++)
                if (sampler_fill(&s, i, scratch, tokens, labels, positions, start, &valid, &e)) break;
        token_cache_close(c);
    }
    unlink(path);
    return 0;
}

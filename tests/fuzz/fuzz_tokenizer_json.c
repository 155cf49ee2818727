/* SPDX-License-Identifier: MIT */
/* Any bytes as a tokenizer.json (and, after a NUL, as its tokenizer_config.json): what is accepted encodes and decodes
 * byte for byte. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct tokenizer *t)
{
    static const char text[] = "The cat's 123 <s> ab\xFF\xC0 \xE4\xB8\xAD\n\n  end";
    struct tokenizer_scratch *s = NULL;
    struct token_list ids = {0};
    struct str out = {0};
    struct error e;

    if (tokenizer_scratch_create(&s, t, &e)) return;
    if (!tokenizer_encode(t, s, text, sizeof text - 1, false, &ids, &e))
        BUG_ON(tokenizer_decode(t, ids.ids, ids.count, &out, &e));
    token_list_release(&ids);
    str_release(&out);
    tokenizer_scratch_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *json = (const char *)data, *config = memchr(data, 0, size);
    size_t n = config ? (size_t)(config - json) : size;
    char *copy = config ? mem_zalloc(size - n, 1) : NULL;
    struct tokenizer *t = NULL;
    struct error e;

    if (copy) memcpy(copy, config + 1, size - n - 1);
    if (!tokenizer_parse(&t, json, n, copy, "fuzz", &e)) use(t);
    tokenizer_close(t);
    mem_free(copy);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* A source of one file, JSONL or text (the first byte chooses), read to its end: an error or records that lie in their
 * batch. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "data/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const ends[] = {"jsonl", "txt", "jsonl.gz", "txt"};
    int kind = size ? data[0] & 3 : 0;
    char path[64];
    const char *given = path;
    struct source_spec spec = {.paths = &given, .n_paths = 1, .separator = kind == 1 ? "%" : ""};
    struct source *s = NULL;
    struct source_reader *r = NULL;
    struct source_batch b = {0};
    struct str scratch = {0};
    enum source_skip reason;
    const char *text;
    size_t n;
    struct error e;
    FILE *f;
    err_t rc;

    snprintf(path, sizeof path, "/tmp/ctitan-fuzz-%d.%s", (int)getpid(), ends[kind]);
    f = fopen(path, "wb");
    if (!f || (size > 1 && fwrite(data + 1, 1, size - 1, f) != size - 1) || fclose(f)) abort();
    rc = source_open(&s, &spec, &e);
    if (!rc) rc = source_reader_open(&r, s, &e);
    while (!rc && !(rc = source_read(r, 16, &b, &e)) && b.n_records)
        for (int64_t i = 0; !rc && i < b.n_records; i++) rc = source_text(s, &b, i, &scratch, &text, &n, &reason, &e);
    str_release(&scratch);
    source_batch_release(&b);
    source_reader_close(r);
    source_close(s);
    unlink(path);
    return 0;
}

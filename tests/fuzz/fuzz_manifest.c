/* SPDX-License-Identifier: MIT */
/* Any bytes as manifest.json: refused, or written out again they mean the same. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str once = {0}, twice = {0};
    struct manifest m;
    struct error e;

    if (manifest_parse(&m, (const char *)data, size, "fuzz", &e)) return 0;
    manifest_write(&m, &once);
    manifest_release(&m);
    if (manifest_parse(&m, str_text(&once), once.length, "again", &e)) abort();
    manifest_write(&m, &twice);
    if (strcmp(str_text(&once), str_text(&twice)) != 0) abort();
    manifest_release(&m);
    str_release(&once);
    str_release(&twice);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* Any bytes as run.json: refused, or written out again they mean the same. */
#include <stdlib.h>
#include <string.h>

#include "train/run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str once = {0}, twice = {0};
    struct arena a = {0};
    struct run_info info;
    struct error e;

    if (!run_parse(&info, &a, (const char *)data, size, "fuzz", &e)) {
        run_write(&info, &once);
        if (run_parse(&info, &a, str_text(&once), once.length, "again", &e)) abort();
        run_write(&info, &twice);
        if (strcmp(str_text(&once), str_text(&twice)) != 0) abort();
    }
    arena_release(&a);
    str_release(&once);
    str_release(&twice);
    return 0;
}

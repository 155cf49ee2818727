/* SPDX-License-Identifier: MIT */
/* Splitting a run.jsonl that anything may have happened to: nothing is lost, and a second split finds nothing
 * to cut. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "sinks/kinds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str kept = {0}, cut = {0}, again = {0}, none = {0};
    int64_t n, n_again, step;

    if (size < 1) return 0;
    step = (int8_t)data[0];
    data++, size--;
    jsonl_split((const char *)data, size, step, &kept, &cut, &n);
    BUG_ON(kept.length + cut.length != size + (size && data[size - 1] != '\n'));
    BUG_ON((n == 0) != (cut.length == 0));
    jsonl_split(str_text(&kept), kept.length, step, &again, &none, &n_again);
    BUG_ON(n_again || again.length != kept.length || (kept.length && memcmp(again.text, kept.text, kept.length)));
    str_release(&kept);
    str_release(&cut);
    str_release(&again);
    str_release(&none);
    return 0;
}

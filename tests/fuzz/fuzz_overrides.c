/* SPDX-License-Identifier: MIT */
/* Any bytes as a command line, one argument a line; the result is written as JSON and compared with itself,
 * as on resume. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 64 };
    char *text = mem_zalloc(size + 1, 1), *argv[MOST];
    struct config_problems problems = {0};
    struct error e = {0};
    struct str json = {0}, told = {0};
    struct config *c;
    int argc = 0;

    memcpy(text, data, size);
    for (char *line = text; line && argc < MOST; argc++) {
        argv[argc] = line;
        line = strchr(line, '\n');
        if (line) *line++ = '\0';
    }
    if (config_load(&c, argc, argv, &problems, &e) == ERR_NONE) {
        config_write_json(c, &json);
        config_compare(c, str_text(&json), json.length, "itself", CONFIG_EARLIER_RUN, &problems, &told);
        BUG_ON(problems.n || told.length);
        config_resolve(c, 4, &problems);
        config_missing_features(c, &json);
        config_destroy(c);
    }
    config_problems_release(&problems);
    str_release(&json);
    str_release(&told);
    mem_free(text);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* Opening the GPU for tests; see gpu.h. */
#include "tests/support/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Test programs lie in <build>/tests/<folder>, the plugin in <build>. */
static err_t open_it(struct device **out, int64_t memory_limit_bytes, struct error *e)
{
    struct device_options options = {
        .kind = "cuda", .local_size = 1, .threads = 1, .memory_limit_bytes = memory_limit_bytes};
    const char *build = getenv("BUILD");

    setenv("CTITAN_PLUGIN_PATH", build && *build ? build : "build/release", 0);
    return device_open(out, &options, e);
}

bool gpu_is_here(void)
{
    struct device *d;
    struct error e = {0};

    if (open_it(&d, 0, &e)) {
        const char *cuda = getenv("CTITAN_CUDA");

        printf("%s\n", e.message);
        if (!cuda || strcmp(cuda, "real") != 0) exit(1);
        return false;
    }
    device_close(d);
    return true;
}

struct device *gpu_open(int64_t memory_limit_bytes)
{
    struct device *d;
    struct error e = {0};

    if (open_it(&d, memory_limit_bytes, &e)) fail_msg("%s", e.message);
    return d;
}

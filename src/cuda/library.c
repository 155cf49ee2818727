/* SPDX-License-Identifier: MIT */
/* Opening libraries at run time; see library.h. */
#include "cuda/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"

static void *open_pattern(const char *pattern)
{
    void *library = NULL;
    glob_t found;

    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !library; i++)
            library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return library;
}

/* Where pip puts NVIDIA's packages: one folder a package, or one for a major version of CUDA. */
static void *open_in_environment(const char *root, const char *file, const char *package)
{
    struct str pattern = {0};
    void *library = NULL;

    for (int i = 0; i < 2 && !library; i++) {
        str_clear(&pattern);
        str_addf(&pattern, "%s/lib/python3.*/site-packages/nvidia/%s/lib/%s", root, i ? "cu13" : package, file);
        library = open_pattern(str_text(&pattern));
    }
    str_release(&pattern);
    return library;
}

err_t cuda_library_open(const char *file, const char *package, const char *purpose, void **out, struct error *e)
{
    static const char *const roots[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    const char *reason;
    char first[256];

    *out = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (*out) return ERR_NONE;
    reason = dlerror();
    snprintf(first, sizeof first, "%s", reason ? reason : file);
    for (size_t i = 0; i < sizeof roots / sizeof roots[0] && !*out; i++) {
        const char *root = getenv(roots[i]);

        if (root && root[0]) *out = open_in_environment(root, file, package);
    }
    if (*out) return ERR_NONE;
    return FAIL(e, ERR_UNSUPPORTED,
                "%s needs %s, which cannot be opened (%s): install it (the %s package for CUDA 13), or set "
                "LD_LIBRARY_PATH to its folder",
                purpose, file, first, package);
}

err_t cuda_library_symbol(void *library, const char *file, const char *name, void **out, struct error *e)
{
    *out = dlsym(library, name);
    if (*out) return ERR_NONE;
    return FAIL(e, ERR_UNSUPPORTED, "%s lacks the function %s: it is too old; install a newer one", file, name);
}

/* SPDX-License-Identifier: MIT */
/* Opening libraries at run time; see library.h. */
#include "cuda/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

static void *open_pattern(const char *pattern)
{
    void *library = NULL;
    glob_t found = {0};

    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !library; i++)
            library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return library;
}

/* Where pip puts NVIDIA's packages: one folder a package, or one for a major version of CUDA; Debian's Python has
 * dist-packages. */
static void *open_in_environment(const char *root, const char *file, const char *package, struct str *tried)
{
    static const char *const pythons[] = {"python3.*/site-packages", "python3.*/dist-packages",
                                          "python3/dist-packages"};
    const char *folders[] = {package, "cu13"};
    struct str pattern = {0};
    void *library = NULL;

    if (!root || !root[0]) return NULL;
    str_addf(tried, ", %s", root);
    for (int i = 0; i < 6 && !library; i++) {
        str_clear(&pattern);
        str_addf(&pattern, "%s/lib/%s/nvidia/%s/lib/%s", root, pythons[i / 2], folders[i % 2], file);
        if (!pattern.failed) library = open_pattern(str_text(&pattern));
    }
    str_release(&pattern);
    return library;
}

/* The folder above the one of the first python3 of $PATH, as it is called there: a virtual environment has links. */
static void python_root(struct str *out)
{
    const char *path = getenv("PATH");

    for (const char *p = path ? path : ""; *p;) {
        size_t n = strcspn(p, ":");
        char program[PATH_MAX];

        if (n > 4 && n + sizeof "/python3" <= sizeof program && memcmp(p + n - 4, "/bin", 4) == 0) {
            memcpy(program, p, n);
            memcpy(program + n, "/python3", sizeof "/python3");
            if (access(program, X_OK) == 0) {
                str_add_bytes(out, p, n - 4);
                return;
            }
        }
        p += n + (p[n] == ':');
    }
}

static void *open_in_environments(const char *file, const char *package, struct str *tried)
{
    struct str python = {0}, local = {0};
    const char *home = getenv("HOME");
    void *library;

    python_root(&python);
    if (home) str_addf(&local, "%s/.local", home);
    library = open_in_environment(getenv("VIRTUAL_ENV"), file, package, tried);
    if (!library) library = open_in_environment(getenv("CONDA_PREFIX"), file, package, tried);
    if (!library) library = open_in_environment(str_text(&python), file, package, tried);
    if (!library) library = open_in_environment(str_text(&local), file, package, tried);
    str_release(&python);
    str_release(&local);
    return library;
}

err_t cuda_library_open(const char *file, const char *package, const char *purpose, void **out, struct error *e)
{
    struct str tried = {0};
    const char *reason;
    char first[256];
    err_t rc = ERR_NONE;

    *out = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (*out) return ERR_NONE;
    reason = dlerror();
    snprintf(first, sizeof first, "%s", reason ? reason : file);
    if (!package)
        return FAIL(e, ERR_UNSUPPORTED, "%s needs %s, which cannot be opened (%s): it comes with NVIDIA's driver",
                    purpose, file, first);
    *out = open_in_environments(file, package, &tried);
    if (!*out)
        rc = FAIL(
            e, ERR_UNSUPPORTED,
            "%s needs %s, which cannot be opened (%s; nor in a Python environment%s): install it (the %s package for "
            "CUDA 13), or set LD_LIBRARY_PATH to its folder",
            purpose, file, first, str_text(&tried), package);
    str_release(&tried);
    return rc;
}

err_t cuda_library_symbol(void *library, const char *file, const char *name, void **out, struct error *e)
{
    *out = dlsym(library, name);
    if (*out) return ERR_NONE;
    return FAIL(e, ERR_UNSUPPORTED, "%s lacks the function %s: it is too old; install a newer one", file, name);
}

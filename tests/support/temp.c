/* SPDX-License-Identifier: MIT */
/* Folders for tests; see temp.h. */
#include "tests/support/temp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/io.h"

void temp_make(struct temp *t)
{
    const char *base = getenv("TMPDIR");

    snprintf(t->folder, sizeof t->folder, "%s/ctitan-test-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(t->folder)) fail_msg("cannot make %s", t->folder);
}

void temp_remove(struct temp *t)
{
    struct error e;

    if (io_remove_tree(t->folder, &e)) fail_msg("%s", e.message);
}

const char *temp_path(struct temp *t, const char *name)
{
    snprintf(t->path, sizeof t->path, "%s/%s", t->folder, name);
    return t->path;
}

const char *temp_write(struct temp *t, const char *name, const void *bytes, size_t n)
{
    struct error e;
    char *slash;
    FILE *f;

    temp_path(t, name);
    slash = strrchr(t->path, '/');
    *slash = '\0';
    if (io_make_folders(t->path, &e)) fail_msg("%s", e.message);
    *slash = '/';
    f = fopen(t->path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) fail_msg("cannot write %s", t->path);
    return t->path;
}

const char *temp_write_text(struct temp *t, const char *name, const char *text)
{
    return temp_write(t, name, text, strlen(text));
}

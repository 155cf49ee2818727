/* SPDX-License-Identifier: MIT */
/* The folders of plugins; see plugin.h. */
#include "base/plugin.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

enum { N_PLACES = 3 };

/* Folders to look in, most special first; relative ones from the folder of this program. */
static void list_places(struct str places[N_PLACES])
{
    const char *own = getenv("CTITAN_PLUGIN_PATH");
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash;

    program[n > 0 ? n : 0] = '\0';
    slash = strrchr(program, '/');
    if (slash) *slash = '\0';
    if (own && *own) str_add(&places[0], own);
    str_addf(&places[1], "%s", slash ? program : ".");
    str_addf(&places[2], "%s/../lib/ctitan", slash ? program : ".");
}

bool plugin_find(const char *file, struct str *path, struct str *tried)
{
    struct str places[N_PLACES] = {{0}};
    bool found = false;

    list_places(places);
    for (int i = 0; i < N_PLACES && !found; i++) {
        if (!places[i].length) continue;
        str_clear(path);
        str_addf(path, "%s/%s", str_text(&places[i]), file);
        found = io_exists(str_text(path));
        if (tried) str_addf(tried, "%s%s", tried->length ? ", " : "", str_text(&places[i]));
    }
    for (int i = 0; i < N_PLACES; i++) str_release(&places[i]);
    return found;
}

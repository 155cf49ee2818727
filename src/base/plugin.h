/* SPDX-License-Identifier: MIT */
/* Where the program's plugins are: shared libraries that are opened at run time. */
#ifndef BASE_PLUGIN_H
#define BASE_PLUGIN_H

#include <stdbool.h>

#include "base/str.h"

/*
 * Looks for `file` in the folder that CTITAN_PLUGIN_PATH names, beside the program, and in ../lib/ctitan from there;
 * the first one is put into path. false: it is in none of them, or there was no memory (str_ok of path). tried (may be
 * NULL): the folders that were looked into, for a message.
 */
bool plugin_find(const char *file, struct str *path, struct str *tried);

#endif

/* SPDX-License-Identifier: MIT */
/* Configurations in tests: made from YAML text or arguments, expected to be good or to be refused for a
 * reason. */
#ifndef SUPPORT_CONFIGS_H
#define SUPPORT_CONFIGS_H

#include "config/config.h"

/* Fail the running cmocka test when there is a problem. The caller destroys the result. */
struct config *config_of_text(const char *yaml);
struct config *config_of_text_and(const char *yaml, const char *const *arguments); /* both; through a file of its own */
struct config *
config_of_arguments(const char *const *arguments); /* ends with NULL; CONFIG and MODULE are as they are */

/* Fail the running test unless the problems, one line each, hold every one of the texts (ends with NULL) and
 * number `n`. */
void assert_text_refused(const char *yaml, int n, const char *const *texts);
void assert_arguments_refused(const char *const *arguments, int n, const char *const *texts);
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif

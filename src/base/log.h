/* SPDX-License-Identifier: MIT */
/*
 * Lines for people: one `struct log` per rank, passed in contexts. A line goes to the rank's file (plain) and, when
 * this rank is shown (LOG_RANK), to the terminal with the prefix "[rankN]: ". Each line is one write(2), so lines of
 * ranks never mix. All functions may be called from any thread; a NULL log swallows everything.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

struct log {
    int file_fd;     /* -1: none */
    int terminal_fd; /* -1: this rank is not shown */
    int rank;        /* -1: no prefix (a program outside a job) */
    bool use_colour; /* of the terminal */
    bool can_redraw; /* the terminal accepts a status line that is drawn again below the last line */
    enum log_level level;
    pthread_mutex_t lock;
    char status[256]; /* drawn now, "" = none */
};

void log_init(struct log *l, int terminal_fd, int rank); /* no file; colours and redrawing off */
err_t log_open_file(struct log *l, const char *path, struct error *e) MUST_CHECK; /* appends; closes an earlier file */
void log_release(struct log *l);

/* "[ctitan] 2026-01-31 12:00:00,123 - INFO - <text>" */
void log_debug(struct log *l, const char *format, ...) PRINTF_LIKE(2, 3);
void log_info(struct log *l, const char *format, ...) PRINTF_LIKE(2, 3);
void log_warning(struct log *l, const char *format, ...) PRINTF_LIKE(2, 3);
void log_error(struct log *l, const char *format, ...) PRINTF_LIKE(2, 3);

/* A line of its own, with `before` at its head, for each line of text that is not empty. */
void log_lines(struct log *l, enum log_level level, const char *before, const char *text);

/* The same line in two dresses: `plain` for files and terminals without colour, `coloured` else. */
void log_info_coloured(struct log *l, const char *plain, const char *coloured);

/* A status line (progress, time left) below the last line; "" removes it. Nothing happens unless can_redraw. */
void log_status(struct log *l, const char *text);

#endif

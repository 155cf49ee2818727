/* SPDX-License-Identifier: MIT */
/* Lines for people; see log.h. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"

void log_init(struct log *l, int terminal_fd, int rank)
{
    *l = (struct log){.file_fd = -1, .terminal_fd = terminal_fd, .rank = rank, .level = LOG_INFO};
    pthread_mutex_init(&l->lock, NULL);
}

err_t log_open_file(struct log *l, const char *path, struct error *e)
{
    int fd;

    if (!l) return ERR_NONE;
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return FAIL(e, ERR_IO, "cannot open the log file %s: %s", path, strerror(errno));
    pthread_mutex_lock(&l->lock); /* other threads may be writing lines */
    if (l->file_fd >= 0) close(l->file_fd);
    l->file_fd = fd;
    pthread_mutex_unlock(&l->lock);
    return ERR_NONE;
}

void log_release(struct log *l)
{
    if (!l) return;
    if (l->file_fd >= 0) close(l->file_fd);
    l->file_fd = -1;
    pthread_mutex_destroy(&l->lock);
}

/* A log that cannot be written must not stop the run: errors are swallowed here on purpose. */
static void write_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t done = write(fd, bytes, n);

        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return;
        bytes += done;
        n -= (size_t)done;
    }
}

static void stamp(char *out, size_t size, enum log_level level)
{
    static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
    struct timespec now;
    struct tm tm;
    char date[24];

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &tm);
    snprintf(out, size, "[ctitan] %s,%03ld - %s - ", date, now.tv_nsec / 1000000, names[level]);
}

/* Adds text; on the terminal every line of it bears the rank, so that lines of several ranks can be told apart. */
static void add_lines(struct str *line, const struct log *l, const char *text)
{
    const char *end;

    for (; l->rank >= 0 && (end = strchr(text, '\n')); text = end + 1) {
        str_add_bytes(line, text, (size_t)(end - text));
        str_addf(line, "\n[rank%d]: ", l->rank);
    }
    str_add(line, text);
}

static void emit(struct log *l, enum log_level level, const char *plain, const char *coloured)
{
    struct str line = {0};
    char head[64];

    if (!l || level < l->level) return;
    stamp(head, sizeof head, level);
    pthread_mutex_lock(&l->lock);
    if (l->file_fd >= 0) {
        str_add(&line, head);
        str_add(&line, plain);
        str_add_char(&line, '\n');
        write_all(l->file_fd, str_text(&line), line.length);
    }
    if (l->terminal_fd >= 0) {
        str_clear(&line);
        if (l->status[0]) str_add(&line, "\r\033[K");
        if (l->rank >= 0) str_addf(&line, "[rank%d]: ", l->rank);
        str_add(&line, head);
        add_lines(&line, l, l->use_colour ? coloured : plain);
        str_add_char(&line, '\n');
        if (l->status[0]) str_add(&line, l->status);
        write_all(l->terminal_fd, str_text(&line), line.length);
    }
    pthread_mutex_unlock(&l->lock);
    str_release(&line);
}

static void emit_format(struct log *l, enum log_level level, const char *format, va_list args)
{
    char text[ERROR_MESSAGE_BYTES + 256];

    if (!l || level < l->level) return;
    vsnprintf(text, sizeof text, format, args);
    emit(l, level, text, text);
}

#define LEVEL_FUNCTION(name, level)                                                                                    \
    void name(struct log *l, const char *format, ...)                                                                  \
    {                                                                                                                  \
        va_list args;                                                                                                  \
                                                                                                                       \
        va_start(args, format);                                                                                        \
        emit_format(l, level, format, args);                                                                           \
        va_end(args);                                                                                                  \
    }
LEVEL_FUNCTION(log_debug, LOG_DEBUG)
LEVEL_FUNCTION(log_info, LOG_INFO)
LEVEL_FUNCTION(log_warning, LOG_WARNING)
LEVEL_FUNCTION(log_error, LOG_ERROR)

static void emit_one(struct log *l, enum log_level level, const char *format, ...) PRINTF_LIKE(3, 4);
static void emit_one(struct log *l, enum log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    emit_format(l, level, format, args);
    va_end(args);
}

void log_lines(struct log *l, enum log_level level, const char *before, const char *text)
{
    for (int n; *text; text += n + (text[n] == '\n')) {
        n = (int)strcspn(text, "\n");
        if (n) emit_one(l, level, "%s%.*s", before, n, text);
    }
}

void log_info_coloured(struct log *l, const char *plain, const char *coloured) { emit(l, LOG_INFO, plain, coloured); }

void log_status(struct log *l, const char *text)
{
    struct str out = {0};

    if (!l || l->terminal_fd < 0 || !l->can_redraw) return;
    pthread_mutex_lock(&l->lock);
    if (l->status[0] || text[0]) {
        snprintf(l->status, sizeof l->status, "%s", text);
        str_add(&out, "\r\033[K");
        str_add(&out, l->status);
        write_all(l->terminal_fd, str_text(&out), out.length);
    }
    pthread_mutex_unlock(&l->lock);
    str_release(&out);
}

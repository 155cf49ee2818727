/* SPDX-License-Identifier: MIT */
/*
 * Event files; see kinds.h. TensorBoard reads the files of a folder in the order of their names and drops, at
 * a SessionLog START, what it has at that step and later. So each life of a run opens a new file, named after
 * all files before it, and begins it with a START at its first step: the curve goes on and never zig-zags.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "sinks/append.h"
#include "sinks/kinds.h"
#include "sinks/tfevents_encode.h"

#define FILE_PREFIX "events.out.tfevents."

enum { MAX_TRIES = 1000 };

struct tfevents {
    struct append file;
};

err_t tfevents_make_folder(const char *dump_folder, const char *tb_folder, time_t now, struct str *out, struct error *e)
{
    struct arena a = {0};
    char *parent = io_join(&a, dump_folder, tb_folder), *path = NULL;
    char stamp[32], name[48];
    struct tm tm;
    err_t rc;

    if (!parent)
        rc = FAIL(e, ERR_MEMORY, "out of memory for the name of a folder");
    else
        rc = io_make_folders(parent, e);
    localtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M", &tm);
    for (int k = 1; !rc; k++) {
        if (k == 1)
            snprintf(name, sizeof name, "%s", stamp);
        else
            snprintf(name, sizeof name, "%s-%d", stamp, k);
        path = io_join(&a, parent, name);
        if (!path) {
            rc = FAIL(e, ERR_MEMORY, "out of memory for the name of a folder");
        } else if (!mkdir(path, 0755)) {
            str_addf(out, "%s/%s", tb_folder, name);
            rc = str_ok(out, e);
            break;
        } else if (errno != EEXIST || k == MAX_TRIES) {
            rc = FAIL(e, ERR_IO, "cannot make the folder %s for event files: %s", path, strerror(errno));
        }
    }
    arena_release(&a);
    return rc;
}

/* The largest time stamp in the names of the folder's event files; 0: none. */
static err_t newest_stamp(const char *folder, struct arena *a, long long *out, struct error *e)
{
    char **names;
    int n;
    err_t rc = io_list(folder, a, &names, &n, e);

    *out = 0;
    for (int i = 0; !rc && i < n; i++) {
        const char *at = strstr(names[i], FILE_PREFIX);
        long long stamp = at ? strtoll(at + strlen(FILE_PREFIX), NULL, 10) : 0;

        if (stamp > *out && stamp < 9999999999) *out = stamp; /* ten digits, or the order of names breaks */
    }
    return rc;
}

static err_t open_file(struct append *file, const struct tfevents_options *o, struct arena *a, struct error *e)
{
    long long stamp = (long long)clock_wall_s(), newest = 0;
    char host[256] = "host";
    err_t rc = io_make_folders(o->folder, e);

    if (!rc) rc = newest_stamp(o->folder, a, &newest, e);
    if (rc) return rc;
    gethostname(host, sizeof host - 1);
    for (char *p = host; *p; p++)
        if (*p == '/') *p = '_';
    if (stamp <= newest) stamp = newest + 1;
    for (int k = 0; k < MAX_TRIES; k++, stamp++) {
        char *path = arena_printf(a, "%s/" FILE_PREFIX "%010lld.%s.%ld.0", o->folder, stamp, host, (long)getpid());

        if (!path) return FAIL(e, ERR_MEMORY, "out of memory for the name of an event file");
        rc = append_open(file, path, O_CREAT | O_EXCL, e);
        if (!rc || errno != EEXIST) break;
    }
    return rc;
}

static void add_head(struct str *out, const struct tfevents_options *o)
{
    double now = clock_wall_s();
    struct str text = {0};

    tfevents_add_version(out, now);
    tfevents_add_start(out, now, o->first_step);
    if (o->config_text) {
        str_addf(&text, "```yaml\n%s\n```\n", o->config_text);
        tfevents_add_text(
            out, &(struct sink_text){.step = o->first_step, .wall_s = now, .tag = "config", .text = str_text(&text)});
        if (text.failed) out->failed = true;
        str_release(&text);
    }
    if (o->n_hparams) tfevents_add_hparams(out, now, o);
}

static void tfevents_close(void *sink)
{
    struct tfevents *t = sink;

    append_close(&t->file);
    mem_free(t);
}

static err_t tfevents_open(void **out, const void *options, struct error *e)
{
    const struct tfevents_options *o = options;
    struct tfevents *t = mem_zalloc(1, sizeof *t);
    struct arena a = {0};
    err_t rc;

    if (!t) return FAIL(e, ERR_MEMORY, "out of memory for event files in %s", o->folder);
    rc = open_file(&t->file, o, &a, e);
    if (!rc) {
        add_head(&t->file.buffer, o);
        rc = append_flush(&t->file, e);
        if (rc) unlink(t->file.path); /* a file without its head would be a file without START */
    }
    arena_release(&a);
    if (rc)
        tfevents_close(t);
    else
        *out = t;
    return rc;
}

static err_t tfevents_write(void *sink, const struct metric_row *row, struct error *e)
{
    struct tfevents *t = sink;

    (void)e; /* running out of memory shows in the flush */
    tfevents_add_row(&t->file.buffer, row);
    return ERR_NONE;
}

static err_t tfevents_text(void *sink, const struct sink_text *text, struct error *e)
{
    struct tfevents *t = sink;

    (void)e;
    tfevents_add_text(&t->file.buffer, text);
    return ERR_NONE;
}

static err_t tfevents_flush(void *sink, struct error *e)
{
    struct tfevents *t = sink;

    return append_flush(&t->file, e);
}

const struct sink_ops sink_ops_tfevents = {
    .name = "tfevents",
    .open = tfevents_open,
    .write = tfevents_write,
    .text = tfevents_text,
    .flush = tfevents_flush,
    .close = tfevents_close,
};

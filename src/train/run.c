/* SPDX-License-Identifier: MIT */
/* The lock and the life of a run; see run.h. The text of run.json is run_json.c's. */
#include "train/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"

enum { RUN_JSON_MAX_BYTES = 1 << 28 };

static err_t no_memory(const struct run *r, struct error *e)
{
    return FAIL(e, ERR_MEMORY, "out of memory for the records of the run in %s", r->dump_folder);
}

err_t run_make_id(char out[RUN_ID_LENGTH + 1], struct error *e)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char byte;

    for (int i = 0; i < RUN_ID_LENGTH;) {
        if (getrandom(&byte, 1, 0) != 1) {
            if (errno == EINTR) continue;
            return FAIL(e, ERR_IO, "cannot get random bytes for the run's id: %s", strerror(errno));
        }
        if (byte < 252) out[i++] = digits[byte % 36]; /* 252 = 7 * 36: every digit as likely */
    }
    out[RUN_ID_LENGTH] = '\0';
    return ERR_NONE;
}

/* ---- the lock ---- */
static err_t refuse(struct run *r, const char *path, struct error *e)
{
    struct str text = {0};
    err_t rc;

    if (io_read_file(path, &text, NULL) || !text.length) str_add(&text, "(no details)");
    rc = FAIL(e, ERR_BUSY, "%s is in use by a live run (%s): stop it first, or set job.dump_folder to another folder",
              r->dump_folder, str_text(&text));
    str_release(&text);
    return rc;
}

static err_t sign_lock(int fd, const char *path, struct error *e)
{
    char host[256] = "", start[CLOCK_ISO_BYTES], text[400];
    int n;

    clock_iso(clock_wall_s(), start);
    gethostname(host, sizeof host - 1);
    n = snprintf(text, sizeof text, "pid %ld on %s since %s", (long)getpid(), host, start);
    if (ftruncate(fd, 0)) return io_fail(e, "empty", path);
    return io_write_all(fd, text, (size_t)n, path, e);
}

static err_t take_lock(struct run *r, struct error *e)
{
    char *path = io_join(&r->arena, r->dump_folder, "run.lock");
    int fd, rc;

    if (!path) return no_memory(r, e);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return io_fail(e, "open", path);
    do {
        rc = flock(fd, LOCK_EX | LOCK_NB);
    } while (rc && errno == EINTR);
    if (rc && errno == EWOULDBLOCK) {
        close(fd);
        return refuse(r, path, e);
    }
    if (rc) { /* ENOSYS, ENOLCK..: some network file systems have no locks; that must not keep anybody from
                 training */
        r->warning = arena_printf(&r->arena, "cannot lock %s (%s): make sure that no other run uses %s", path,
                                  strerror(errno), r->dump_folder);
        close(fd);
        return r->warning ? ERR_NONE : no_memory(r, e);
    }
    r->lock_fd_plus_one = fd + 1;
    return sign_lock(fd, path, e);
}

/* ---- start ---- */
static err_t read_former(struct run *r, struct error *e)
{
    char *path = io_join(&r->arena, r->dump_folder, "run.json");
    struct str text = {0};
    err_t rc;

    if (!path) return no_memory(r, e);
    if (!io_exists(path)) return ERR_NONE;
    rc = io_read_file_up_to(path, RUN_JSON_MAX_BYTES, &text, e);
    if (!rc) rc = run_parse(&r->former, &r->arena, str_text(&text), text.length, path, e);
    if (rc == ERR_FORMAT)
        error_prefix(e, rc, "cannot tell whose folder this is (move the file away to start a new run)");
    str_release(&text);
    return rc;
}

err_t run_open(struct run *r, const char *dump_folder, struct error *e)
{
    err_t rc;

    memset(r, 0, sizeof *r);
    r->dump_folder = arena_strdup(&r->arena, dump_folder);
    if (!r->dump_folder) {
        r->dump_folder = dump_folder;
        rc = no_memory(r, e);
    } else {
        rc = io_make_folders(dump_folder, e);
    }
    if (!rc) rc = take_lock(r, e);
    if (!rc) rc = read_former(r, e);
    if (rc) run_close(r);
    return rc;
}

void run_close(struct run *r)
{
    if (r->lock_fd_plus_one) close(r->lock_fd_plus_one - 1); /* drops the lock; the file stays, its text is harmless */
    arena_release(&r->arena);
    memset(r, 0, sizeof *r);
}

char *run_former_folder(struct run *r) { return io_join(&r->arena, r->dump_folder, "runs"); }

/* Moves <dump>/<name>, if it is there, to <target>/<name>, or to name-2.. where that is taken. */
static err_t move_record(struct run *r, const char *name, const char *target, struct error *e)
{
    char *from = io_join(&r->arena, r->dump_folder, name), *to = io_join(&r->arena, target, name);

    if (!from || !to) return no_memory(r, e);
    if (!io_exists(from)) return ERR_NONE;
    for (int k = 2; to && io_exists(to); k++) to = arena_printf(&r->arena, "%s/%s-%d", target, name, k);
    if (!to) return no_memory(r, e);
    if (rename(from, to)) return io_fail(e, "rename to", to);
    return io_sync_folder(target, e);
}

/* run.json goes last: were the move cut short, the next start would find it and finish the move. */
static err_t move_former(struct run *r, struct error *e)
{
    static const char *const records[] = {"run.jsonl", "superseded.jsonl", "run.json"};
    char *runs = run_former_folder(r), *target;
    bool any = false;
    err_t rc;

    target = runs ? io_join(&r->arena, runs, r->former.id[0] ? r->former.id : "unknown") : NULL;
    if (!target) return no_memory(r, e);
    for (int i = 0; i < 3; i++) {
        char *path = io_join(&r->arena, r->dump_folder, records[i]);

        if (!path) return no_memory(r, e);
        any |= io_exists(path);
    }
    if (!any) return ERR_NONE;
    rc = io_make_folders(target, e);
    for (int i = 0; !rc && i < 3; i++) rc = move_record(r, records[i], target, e);
    return rc;
}

static err_t write_info(struct run *r, struct error *e)
{
    char *path = io_join(&r->arena, r->dump_folder, "run.json");
    struct str text = {0};
    err_t rc;

    if (!path) return no_memory(r, e);
    run_write(&r->info, &text);
    rc = str_ok(&text, e);
    if (!rc) rc = io_write_atomic(path, str_text(&text), text.length, e);
    str_release(&text);
    return rc;
}

/* The new segment, in r's arena, behind the former ones. */
static err_t add_segment(struct run *r, const struct run_start *start, struct error *e)
{
    int n = r->info.n_segments;
    struct run_segment *all = arena_array(&r->arena, (size_t)n + 1, sizeof *all), *s;
    const char **hosts = arena_array(&r->arena, (size_t)start->n_hosts + 1, sizeof *hosts);
    char now[CLOCK_ISO_BYTES];
    const char *tb_folder = start->tb_folder ? start->tb_folder : "";

    if (!all || !hosts) return no_memory(r, e);
    for (int i = n - 1; i >= 0; i--) {
        all[i] = r->info.segments[i];
        if (all[i].tb_folder[0]) tb_folder = all[i].tb_folder; /* the first one that had any: the curve goes on there */
    }
    for (int i = 0; i < start->n_hosts; i++) {
        hosts[i] = arena_strdup(&r->arena, start->hosts[i]);
        if (!hosts[i]) return no_memory(r, e);
    }
    clock_iso(clock_wall_s(), now);
    s = &all[n];
    s->start = arena_strdup(&r->arena, now);
    s->description = arena_strdup(&r->arena, start->description ? start->description : "");
    s->first_step = start->first_step ? start->first_step : start->resume_step < 0 ? 1 : start->resume_step + 1;
    s->tb_folder = arena_strdup(&r->arena, tb_folder);
    s->hosts = hosts;
    s->n_hosts = start->n_hosts;
    s->world = start->world;
    s->config_hash = arena_strdup(&r->arena, start->config_hash);
    s->binary = arena_strdup(&r->arena, start->binary);
    if (!s->start || !s->description || !s->tb_folder || !s->config_hash || !s->binary) return no_memory(r, e);
    r->info.segments = all;
    r->info.n_segments = n + 1;
    return ERR_NONE;
}

err_t run_begin(struct run *r, const struct run_start *start, struct error *e)
{
    err_t rc = ERR_NONE;

    r->is_resumed = start->resume_step >= 0;
    if (r->is_resumed && start->refusal)
        return FAIL(e, ERR_CONFIG,
                    "%s holds checkpoints of run %s that this start cannot go on from: %s; set job.dump_folder to "
                    "another folder, or change the configuration back",
                    r->dump_folder, r->former.id, start->refusal);
    if (r->is_resumed && !r->former.id[0])
        return FAIL(e, ERR_MISSING, "there is no run to resume in %s: it has no run.json", r->dump_folder);
    if (r->is_resumed) {
        r->info = r->former;
        r->info.last_step = start->resume_step;
    } else {
        memset(&r->info, 0, sizeof r->info);
        rc = run_make_id(r->info.id, e);
        if (!rc) rc = move_former(r, e);
        if (rc) return rc;
    }
    r->info.model = arena_strdup(&r->arena, start->model);
    r->info.status = RUN_RUNNING;
    r->info.reason = "";
    if (!r->info.model) return no_memory(r, e);
    rc = add_segment(r, start, e);
    return rc ? rc : write_info(r, e);
}

err_t run_record(struct run *r, enum run_status status, int64_t last_step, const char *reason, struct error *e)
{
    r->info.status = status;
    r->info.last_step = last_step;
    r->info.reason = arena_strdup(&r->arena, reason ? reason : "");
    if (!r->info.reason) {
        r->info.reason = "";
        return no_memory(r, e);
    }
    return write_info(r, e);
}

/* SPDX-License-Identifier: MIT */
/*
 * Saving, in the three stages of save.h. write_rank_files() touches no communicator and no state of the run
 * but the tensors' bytes, so that it can run on a thread over copies; what needs agreement stands in
 * checkpoint_save() alone.
 */
#include "checkpoint/save.h"

#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "checkpoint/agree.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
#include "checkpoint/safetensors.h"

struct save {
    const struct checkpoint_spec *spec;
    struct comm *c;
    struct arena arena;
    char *final, *temporary, *spare; /* paths: step-N, while it is written, a second name for a replaced one */
    struct manifest part;            /* what this rank wrote; arrays in the arena */
    char *reports;                   /* every rank's part as text: [size] blocks of report_bytes */
    size_t report_bytes;
};

static err_t no_memory(const struct save *s, struct error *e)
{
    return FAIL(e, ERR_MEMORY, "out of memory while saving step %lld into %s", (long long)s->spec->state.step,
                s->spec->folder);
}

static err_t name_paths(struct save *s, struct error *e)
{
    const struct checkpoint_spec *spec = s->spec;
    long long step = spec->state.step;

    if (!checkpoint_id_ok(spec->run_id) || step < 0)
        return FAIL(e, ERR_RANGE, "cannot save step %lld of run '%s': the step must be >= 0, the id letters and digits",
                    step, spec->run_id);
    s->final = arena_printf(&s->arena, "%s/step-%lld", spec->folder, step);
    s->temporary = arena_printf(&s->arena, "%s/step-%lld.tmp-%s", spec->folder, step, spec->run_id);
    s->spare = arena_printf(&s->arena, "%s/step-%lld.old-%s", spec->folder, step, spec->run_id);
    return s->final && s->temporary && s->spare ? ERR_NONE : no_memory(s, e);
}

/* Rank 0: an empty temporary folder; what earlier, killed saves of this run left behind goes. */
static err_t make_temporary(struct save *s, struct error *e)
{
    const struct checkpoint_spec *spec = s->spec;
    err_t rc = io_make_folders(spec->folder, e);

    if (!rc) rc = checkpoint_remove_leftovers(spec->files, spec->folder, spec->run_id, e);
    return rc ? rc : file_make_folder(spec->files, s->temporary, e);
}

/* ---- stage 1: this rank's files ---- */

/* Whether a value that is infinite or not a number is among the n elements: all exponent bits set. */
static bool has_non_finite(const void *data, enum dtype type, int64_t n)
{
    const uint16_t *half = data;
    const uint32_t *single = data;
    const uint64_t *wide = data;
    int64_t found = 0;

    if (type == DTYPE_BFLOAT16)
        for (int64_t i = 0; i < n; i++) found += (half[i] & 0x7f80u) == 0x7f80u;
    else if (type == DTYPE_FLOAT32)
        for (int64_t i = 0; i < n; i++) found += (single[i] & 0x7f800000u) == 0x7f800000u;
    else if (type == DTYPE_FLOAT64)
        for (int64_t i = 0; i < n; i++) found += (wide[i] & 0x7ff0000000000000u) == 0x7ff0000000000000u;
    return found > 0;
}

/* The part's record of one item after it was written into file number `file`. */
static err_t record_piece(struct save *s, const struct checkpoint_tensor *t, const struct safetensors_item *item,
                          int file, struct error *e)
{
    struct manifest_tensor *m = &s->part.tensors[s->part.n_tensors++];

    *m = (struct manifest_tensor){.name = t->name, .kind = t->kind, .type = t->type, .n_dims = t->n_dims};
    memcpy(m->dim, t->dim, sizeof m->dim);
    if (!t->n_rows) return ERR_NONE;
    m->pieces = arena_alloc(&s->arena, sizeof *m->pieces);
    if (!m->pieces) return no_memory(s, e);
    m->n_pieces = 1;
    *m->pieces = (struct manifest_piece){file, t->first_row, t->n_rows, item->offset, item->bytes, item->crc32c};
    return ERR_NONE;
}

/* Items of one kind that have rows here; the index of each one's tensor goes to owner. */
static int collect_items(const struct checkpoint_spec *spec, enum checkpoint_kind kind,
                         int64_t (*dims)[PARAMETER_MAX_DIMS], struct safetensors_item *items)
{
    int n = 0;

    for (int i = 0; i < spec->n_tensors; i++) {
        const struct checkpoint_tensor *t = &spec->tensors[i];

        if (t->kind != kind || !t->n_rows) continue;
        memcpy(dims[n], t->dim, sizeof t->dim);
        if (t->n_dims) dims[n][0] = t->n_rows;
        items[n] = (struct safetensors_item){
            .name = t->name, .type = t->type, .n_dims = t->n_dims, .dim = dims[n], .data = t->data};
        n++;
    }
    return n;
}

static const struct safetensors_item *item_named(const struct safetensors_item *items, int n, const void *data,
                                                 const char *name)
{
    for (int i = 0; i < n; i++)
        if (items[i].data == data && strcmp(items[i].name, name) == 0) return &items[i];
    return NULL;
}

static err_t write_kind(struct save *s, enum checkpoint_kind kind, struct error *e)
{
    const struct checkpoint_spec *spec = s->spec;
    int64_t(*dims)[PARAMETER_MAX_DIMS] = arena_array(&s->arena, (size_t)spec->n_tensors + 1, sizeof *dims);
    struct safetensors_item *items = arena_array(&s->arena, (size_t)spec->n_tensors + 1, sizeof *items);
    struct manifest_file *f = &s->part.files[s->part.n_files];
    struct safetensors_written written = {0};
    char *name, *path;
    err_t rc = ERR_NONE;
    int n;

    name =
        arena_printf(&s->arena, "rank_%05d_of_%05d.%s.safetensors", s->c->rank, s->c->size, checkpoint_kind_name(kind));
    path = name ? io_join(&s->arena, s->temporary, name) : NULL;
    if (!dims || !items || !path) return no_memory(s, e);
    n = collect_items(spec, kind, dims, items);
    if (n) rc = safetensors_write(spec->files, path, items, n, NULL, &written, e);
    for (int i = 0; !rc && i < spec->n_tensors; i++) {
        const struct checkpoint_tensor *t = &spec->tensors[i];

        if (t->kind != kind) continue;
        rc = record_piece(s, t, t->n_rows ? item_named(items, n, t->data, t->name) : NULL, s->part.n_files, e);
        if (kind == CHECKPOINT_PARAMETERS && t->n_rows)
            s->part.state.unhealthy |= has_non_finite(
                t->data, t->type, t->n_rows * checkpoint_tensor_row_bytes(t) / (int64_t)dtype_bytes(t->type));
    }
    if (rc || !n) return rc;
    *f = (struct manifest_file){name, written.bytes, written.crc32c};
    s->part.n_files++;
    return ERR_NONE;
}

static err_t write_rank_files(struct save *s, struct error *e)
{
    const struct checkpoint_spec *spec = s->spec;
    err_t rc;

    s->part.state.unhealthy = spec->state.unhealthy;
    s->part.files = arena_array(&s->arena, CHECKPOINT_KIND_COUNT, sizeof *s->part.files);
    s->part.tensors = arena_array(&s->arena, (size_t)spec->n_tensors + 1, sizeof *s->part.tensors);
    if (!s->part.files || !s->part.tensors) return no_memory(s, e);
    if (!spec->is_writer) return ERR_NONE;
    rc = write_kind(s, CHECKPOINT_PARAMETERS, e);
    if (!rc && !spec->parameters_only) rc = write_kind(s, CHECKPOINT_OPTIMIZER, e);
    return rc;
}

/* ---- stage 2: every rank's part, on rank 0 (and, since that is what there is, on all) ---- */
static err_t gather_reports(struct save *s, struct error *e)
{
    struct str part = {0};
    err_t rc;

    manifest_part_write(&s->part, &part);
    rc = checkpoint_agree(s->c, str_ok(&part, e), e);
    if (!rc) rc = checkpoint_gather_texts(s->c, &part, &s->reports, &s->report_bytes, e);
    str_release(&part);
    return rc;
}

/* ---- stage 3, rank 0: the manifest, then the name ---- */
static err_t merge_reports(struct save *s, struct str *out, struct error *e)
{
    const struct checkpoint_spec *spec = s->spec;
    struct manifest m = {.run_id = spec->run_id,
                         .model = spec->model,
                         .binary = spec->binary,
                         .config_json = spec->config_json,
                         .state = spec->state,
                         .n_axes = spec->n_axes,
                         .world = s->c->size};
    char now[CLOCK_ISO_BYTES];
    err_t rc = ERR_NONE;

    clock_iso(clock_wall_s(), now);
    m.saved_at = now;
    m.axes = arena_array(&s->arena, (size_t)spec->n_axes + 1, sizeof *m.axes);
    if (!m.axes) return no_memory(s, e);
    if (spec->n_axes) memcpy(m.axes, spec->axes, (size_t)spec->n_axes * sizeof *m.axes);
    for (int r = 0; !rc && r < s->c->size; r++) {
        const char *text = s->reports + (size_t)r * s->report_bytes;

        rc = manifest_part_merge(&m, text, strlen(text), e);
    }
    if (!rc) rc = manifest_finish(&m, s->temporary, e);
    if (!rc) {
        manifest_write(&m, out);
        rc = str_ok(out, e);
    }
    arena_release(&m.arena);
    return rc;
}

static err_t write_manifest(struct save *s, struct error *e)
{
    const struct file_ops *files = s->spec->files;
    char *path = io_join(&s->arena, s->temporary, "manifest.json");
    struct str text = {0};
    int fd = -1;
    err_t rc;

    rc = path ? merge_reports(s, &text, e) : no_memory(s, e);
    if (!rc) rc = file_create(files, path, &fd, e);
    if (!rc) rc = file_write(files, fd, text.text, text.length, path, e);
    if (rc)
        file_abandon(files, fd);
    else
        rc = file_finish(files, fd, path, e);
    str_release(&text);
    return rc;
}

/* step-N becomes what was written. What has the name already is replaced if it is the same run's, else moved
 * aside. */
static err_t take_name(struct save *s, struct str *notes, struct error *e)
{
    const struct checkpoint_spec *spec = s->spec;
    struct checkpoint_found *former = arena_alloc(&s->arena, sizeof *former);
    char *superseded = checkpoint_superseded_folder(&s->arena, spec->folder);
    err_t rc;

    if (!former || !superseded) return no_memory(s, e);
    if (io_exists(s->final)) {
        if (!checkpoint_find(spec->folder, spec->state.step, spec->run_id, former, NULL, NULL))
            return file_replace_folder(spec->files, s->temporary, s->final, s->spare, e);
        rc = checkpoint_move_aside(spec->files, spec->folder, strrchr(s->final, '/') + 1, superseded, notes, e);
        if (rc) return rc;
    }
    return file_rename(spec->files, s->temporary, s->final, e);
}

static err_t commit(struct save *s, struct error *e)
{
    const struct checkpoint_spec *spec = s->spec;
    struct str notes = {0};
    err_t rc;

    rc = write_manifest(s, e);
    if (!rc) rc = file_sync_folder(spec->files, s->temporary, e);
    if (!rc) rc = checkpoint_supersede(spec->files, spec->folder, spec->run_id, spec->state.step, &notes, e);
    if (!rc) rc = take_name(s, &notes, e);
    if (!rc) rc = file_sync_folder(spec->files, spec->folder, e);
    log_lines(spec->log, LOG_WARNING, "checkpoint: ", str_text(&notes));
    str_release(&notes);
    return rc;
}

/* What is left under the two other names: after a failure the unfinished checkpoint, after success the one
 * that was replaced. */
static void remove_temporary(struct save *s)
{
    struct error why;
    err_t rc = io_remove_tree(s->temporary, &why);

    if (!rc && io_exists(s->final)) rc = io_remove_tree(s->spare, &why);
    if (rc) log_warning(s->spec->log, "checkpoint: %s; the next save tries again", why.message);
}

err_t checkpoint_save(const struct checkpoint_spec *spec, struct comm *c, struct error *e)
{
    struct save s = {.spec = spec, .c = c};
    bool is_started = false; /* rank 0: the temporary folder exists */
    err_t rc;

    rc = name_paths(&s, e);
    if (!rc && c->rank == 0) {
        rc = make_temporary(&s, e);
        is_started = !rc;
    }
    rc = checkpoint_agree(c, rc, e);
    if (!rc) rc = checkpoint_agree(c, write_rank_files(&s, e), e);
    if (!rc) rc = gather_reports(&s, e);
    if (!rc) rc = checkpoint_agree(c, c->rank == 0 ? commit(&s, e) : ERR_NONE, e);
    if (is_started) remove_temporary(&s);
    if (!rc && c->rank == 0)
        checkpoint_apply_retention(spec->files, spec->folder, spec->run_id, spec->state.step, spec->keep_latest_k,
                                   spec->log);
    mem_free(s.reports);
    arena_release(&s.arena);
    return rc;
}

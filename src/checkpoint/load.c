/* SPDX-License-Identifier: MIT */
/*
 * Loading with resharding. Rank 0 reads the manifest and shares it, so all ranks decide from the same text;
 * then each rank makes the list of pieces that overlap its rows, sorts it by file, and reads file after file.
 */
#include "checkpoint/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "checkpoint/agree.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_reader.h"

bool checkpoint_part_parse(const char *name, enum checkpoint_part *out)
{
#define X(id, bit, text)                                                                                               \
    if (strcmp(name, text) == 0) {                                                                                     \
        *out = id;                                                                                                     \
        return true;                                                                                                   \
    }
    CHECKPOINT_PARTS(X)
#undef X
    return false;
}

struct load {
    const char *path;
    const struct checkpoint_tensor *tensors;
    int n_tensors;
    unsigned parts;
    struct comm *c;
    struct manifest m;
    struct arena arena;
    int64_t *is_wanted; /* [m.n_tensors]: some rank has this tensor */
};

static err_t no_memory(const struct load *l, struct error *e)
{
    return FAIL(e, ERR_MEMORY, "out of memory while loading %s", l->path);
}

static err_t share_manifest(struct load *l, struct error *e)
{
    struct str text = {0};
    err_t rc;

    rc = checkpoint_agree(l->c, l->c->rank == 0 ? manifest_read_text(l->path, &text, e) : ERR_NONE, e);
    if (!rc) rc = checkpoint_share_text(l->c, &text, e);
    if (!rc) rc = checkpoint_agree(l->c, manifest_parse(&l->m, str_text(&text), text.length, l->path, e), e);
    str_release(&text);
    return rc;
}

static bool is_asked_for(const struct load *l, enum checkpoint_kind kind)
{
    return kind == CHECKPOINT_PARAMETERS || (l->parts & CHECKPOINT_PART_OPTIMIZER);
}

/* A checkpoint of the model only has no optimizer to load: fine for a seed, to be said aloud for any other.
 * The same on every rank. */
static err_t settle_optimizer(struct load *l, struct error *e)
{
    bool is_there = false;
    int64_t is_needed = 0;
    err_t rc;

    for (int i = 0; i < l->m.n_tensors; i++) is_there |= l->m.tensors[i].kind == CHECKPOINT_OPTIMIZER;
    for (int i = 0; i < l->n_tensors; i++) is_needed |= l->tensors[i].kind == CHECKPOINT_OPTIMIZER;
    rc = comm_all_reduce(l->c, "is an optimizer needed", &is_needed, 1, DTYPE_INT64, COMM_MAX, NULL, e);
    if (rc || is_there || !is_needed || !(l->parts & CHECKPOINT_PART_OPTIMIZER)) return rc;
    if (l->m.state.step > 0)
        return FAIL(e, ERR_CONFIG,
                    "%s holds the model only (checkpoint.last_save_model_only): to go on with a new optimizer, set "
                    "checkpoint.exclude_from_loading=optimizer",
                    l->path);
    l->parts &= ~(unsigned)CHECKPOINT_PART_OPTIMIZER;
    return ERR_NONE;
}

/* Marks the tensors that any rank wants, for what no rank wants is unexpected. */
static err_t mark_wanted(struct load *l, struct error *e)
{
    err_t rc;

    l->is_wanted = arena_array(&l->arena, (size_t)l->m.n_tensors + 1, sizeof *l->is_wanted);
    rc = checkpoint_agree(l->c, l->is_wanted ? ERR_NONE : no_memory(l, e), e);
    if (rc) return rc;
    for (int i = 0; i < l->n_tensors; i++) {
        const struct manifest_tensor *t = manifest_find(&l->m, l->tensors[i].kind, l->tensors[i].name);

        if (t) l->is_wanted[t - l->m.tensors] = 1;
    }
    if (!l->m.n_tensors) return ERR_NONE;
    return comm_all_reduce(l->c, "tensors wanted", l->is_wanted, (size_t)l->m.n_tensors, DTYPE_INT64, COMM_MAX, NULL,
                           e);
}

/* ---- what does not fit, all in one message ---- */
enum { REPORT_MAX_NAMES = 6 };

struct complaint {
    const char *heading;
    struct str text;
    int n;
};

static void complain(struct complaint *c, const char *name, const char *detail)
{
    if (c->n++ < REPORT_MAX_NAMES) str_addf(&c->text, "%s %s%s", c->n > 1 ? "," : "", name, detail);
}

static void shape_text(struct str *out, enum dtype type, const int64_t *dim, int n_dims)
{
    str_addf(out, "%s [", dtype_name(type));
    for (int d = 0; d < n_dims; d++) str_addf(out, "%s%lld", d ? ", " : "", (long long)dim[d]);
    str_add(out, "]");
}

static void compare(const struct load *l, const struct checkpoint_tensor *t, struct complaint *missing,
                    struct complaint *different)
{
    const struct manifest_tensor *m = manifest_find(&l->m, t->kind, t->name);
    struct str detail = {0};

    if (!m) {
        complain(missing, t->name, "");
        return;
    }
    if (m->type == t->type && m->n_dims == t->n_dims && memcmp(m->dim, t->dim, (size_t)t->n_dims * sizeof *t->dim) == 0)
        return;
    str_add(&detail, " (");
    shape_text(&detail, m->type, m->dim, m->n_dims);
    str_add(&detail, " instead of ");
    shape_text(&detail, t->type, t->dim, t->n_dims);
    str_add(&detail, ")");
    complain(different, t->name, str_text(&detail));
    if (detail.failed) different->text.failed = true;
    str_release(&detail);
}

static err_t check_fit(const struct load *l, struct error *e)
{
    struct complaint all[] = {{.heading = "missing in the checkpoint"},
                              {.heading = "in the checkpoint, but not in this model"},
                              {.heading = "with another shape or type"}};
    struct str report = {0};
    err_t rc;
    int n = 0;

    for (int i = 0; i < l->n_tensors; i++)
        if (is_asked_for(l, l->tensors[i].kind)) compare(l, &l->tensors[i], &all[0], &all[2]);
    for (int i = 0; i < l->m.n_tensors; i++)
        if (is_asked_for(l, l->m.tensors[i].kind) && !l->is_wanted[i]) complain(&all[1], l->m.tensors[i].name, "");
    for (int k = 0; k < 3; k++) {
        if (!all[k].n) continue;
        str_addf(&report, "%s%d %s:%s", n ? "; " : "", all[k].n, all[k].heading, str_text(&all[k].text));
        if (all[k].n > REPORT_MAX_NAMES) str_addf(&report, " and %d more", all[k].n - REPORT_MAX_NAMES);
        n += all[k].n;
        report.failed |= all[k].text.failed;
    }
    rc = str_ok(&report, e);
    if (!rc && n)
        rc = FAIL(e, ERR_CONFIG, "%s (model %s) does not fit this model: %s", l->path, l->m.model, str_text(&report));
    for (int k = 0; k < 3; k++) str_release(&all[k].text);
    str_release(&report);
    return rc;
}

/* ---- reading ---- */
struct wanted {
    const struct checkpoint_tensor *to;
    const struct manifest_tensor *from;
    const struct manifest_piece *piece;
};

static int by_file(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;

    if (x->piece->file != y->piece->file) return x->piece->file < y->piece->file ? -1 : 1;
    return x->piece->offset < y->piece->offset ? -1 : x->piece->offset > y->piece->offset;
}

static bool overlaps(const struct manifest_piece *p, const struct checkpoint_tensor *t)
{
    return p->first_row < t->first_row + t->n_rows && t->first_row < p->first_row + p->n_rows;
}

/* The pieces this rank needs, by file and offset. out NULL: only counts. */
static int list_wanted(const struct load *l, struct wanted *out)
{
    int n = 0;

    for (int i = 0; i < l->n_tensors; i++) {
        const struct checkpoint_tensor *to = &l->tensors[i];
        const struct manifest_tensor *from;

        if (!is_asked_for(l, to->kind) || !to->n_rows) continue;
        from = manifest_find(&l->m, to->kind, to->name);
        for (int k = 0; k < from->n_pieces; k++) {
            if (!overlaps(&from->pieces[k], to)) continue;
            if (out) out[n] = (struct wanted){to, from, &from->pieces[k]};
            n++;
        }
    }
    return n;
}

static err_t read_rows(struct load *l, struct error *e)
{
    int n = list_wanted(l, NULL), open_file = -1;
    struct wanted *list = arena_array(&l->arena, (size_t)n + 1, sizeof *list);
    struct piece_reader reader = {0};
    err_t rc;

    if (!list) return no_memory(l, e);
    rc = piece_reader_init(&reader, &l->m, l->path, e);
    list_wanted(l, list);
    qsort(list, (size_t)n, sizeof *list, by_file);
    for (int i = 0; !rc && i < n; i++) {
        const struct wanted *w = &list[i];
        struct row_range rows = {w->to->first_row, w->to->n_rows, w->to->data};

        if (w->piece->file != open_file) rc = piece_reader_open(&reader, open_file = w->piece->file, e);
        if (!rc) rc = piece_reader_read(&reader, w->from, w->piece, &rows, e);
    }
    piece_reader_release(&reader);
    return rc;
}

static void take_state(const struct load *l, struct checkpoint_state *state)
{
    const struct checkpoint_state *s = &l->m.state;

    if (l->parts & CHECKPOINT_PART_OPTIMIZER) state->optimizer_step = s->optimizer_step;
    if (l->parts & CHECKPOINT_PART_SCHEDULE) state->schedule_step = s->schedule_step;
    if (l->parts & CHECKPOINT_PART_DATA) {
        state->epoch = s->epoch;
        state->sample = s->sample;
        state->shuffle_seed = s->shuffle_seed;
    }
    if (l->parts & CHECKPOINT_PART_TRAIN) {
        state->step = s->step;
        state->tokens_seen = s->tokens_seen;
        state->seed = s->seed;
        state->unhealthy = s->unhealthy;
    }
}

err_t checkpoint_load(const char *path, const struct checkpoint_tensor *tensors, int n_tensors, unsigned parts,
                      struct checkpoint_state *state, struct comm *c, struct error *e)
{
    struct load l = {.path = path, .tensors = tensors, .n_tensors = n_tensors, .parts = parts, .c = c};
    err_t rc;

    rc = share_manifest(&l, e);
    if (!rc) rc = settle_optimizer(&l, e);
    if (!rc) rc = mark_wanted(&l, e);
    if (!rc) rc = checkpoint_agree(c, check_fit(&l, e), e);
    if (!rc) rc = checkpoint_agree(c, read_rows(&l, e), e);
    if (!rc) take_state(&l, state);
    manifest_release(&l.m);
    arena_release(&l.arena);
    return rc;
}

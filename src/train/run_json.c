/* SPDX-License-Identifier: MIT */
/* The text of run.json; see run.h. */
#include <jansson.h>
#include <string.h>

#include "base/json.h"
#include "train/run.h"

static const char *const status_names[] = {
#define X(id, name) name,
    RUN_STATUSES(X)
#undef X
};

const char *run_status_name(enum run_status status) { return status_names[status]; }

void run_write(const struct run_info *info, struct str *out)
{
    json_open(out, '{');
    json_member_int(out, "ctitan_run", RUN_VERSION);
    json_member_text(out, "id", info->id);
    json_member_text(out, "model", info->model);
    json_member_text(out, "status", run_status_name(info->status));
    json_member_text(out, "reason", info->reason);
    json_member_int(out, "last_step", info->last_step);
    json_key(out, "segments");
    json_open(out, '[');
    for (int i = 0; i < info->n_segments; i++) {
        const struct run_segment *s = &info->segments[i];

        str_add(out, i ? ",\n" : "\n");
        json_open(out, '{');
        json_member_text(out, "start", s->start);
        json_member_text(out, "description", s->description);
        json_member_int(out, "first_step", s->first_step);
        json_member_text(out, "tb_folder", s->tb_folder);
        json_key(out, "hosts");
        json_open(out, '[');
        for (int h = 0; h < s->n_hosts; h++) json_text(out, s->hosts[h]);
        json_close(out, ']');
        json_member_int(out, "world", s->world);
        json_member_text(out, "config_hash", s->config_hash);
        json_member_text(out, "binary", s->binary);
        json_close(out, '}');
    }
    json_close(out, ']');
    json_close(out, '}');
    str_add(out, "\n");
}

static err_t no_memory(const char *path, struct error *e)
{
    return FAIL(e, ERR_MEMORY, "out of memory while reading %s", path);
}

static err_t read_segment(struct run_segment *s, json_t *v, struct arena *a, const char *path, struct error *e)
{
    const char *start, *description, *tb_folder, *config_hash, *binary, **hosts;
    json_int_t first_step, world;
    json_error_t why;
    json_t *list, *host;
    size_t i;

    if (json_unpack_ex(v, &why, 0, "{s:s, s:s, s:I, s:s, s:o, s:I, s:s, s:s}", "start", &start, "description",
                       &description, "first_step", &first_step, "tb_folder", &tb_folder, "hosts", &list, "world",
                       &world, "config_hash", &config_hash, "binary", &binary))
        return FAIL(e, ERR_FORMAT, "%s: segments: %s", path, why.text);
    if (first_step < 0 || world < 1 || world > INT32_MAX || !json_is_array(list))
        return FAIL(e, ERR_FORMAT, "%s: segments: first_step or world is out of range, or hosts is not a list", path);
    hosts = arena_array(a, json_array_size(list) + 1, sizeof *hosts);
    if (!hosts) return no_memory(path, e);
    json_array_foreach(list, i, host)
    {
        if (!json_is_string(host)) return FAIL(e, ERR_FORMAT, "%s: segments: a host is not a text", path);
        hosts[i] = arena_strdup(a, json_string_value(host));
        if (!hosts[i]) return no_memory(path, e);
    }
    *s = (struct run_segment){.start = arena_strdup(a, start),
                              .description = arena_strdup(a, description),
                              .first_step = first_step,
                              .tb_folder = arena_strdup(a, tb_folder),
                              .hosts = hosts,
                              .n_hosts = (int)json_array_size(list),
                              .world = (int)world,
                              .config_hash = arena_strdup(a, config_hash),
                              .binary = arena_strdup(a, binary)};
    return s->start && s->description && s->tb_folder && s->config_hash && s->binary ? ERR_NONE : no_memory(path, e);
}

static err_t read_root(struct run_info *out, json_t *root, struct arena *a, const char *path, struct error *e)
{
    const char *id, *model, *status, *reason;
    json_int_t version, last_step;
    json_error_t why;
    json_t *segments, *v;
    int k = 0;
    size_t i;

    if (json_unpack_ex(root, &why, 0, "{s:I}", "ctitan_run", &version))
        return FAIL(e, ERR_FORMAT, "%s: not a record of a run: %s", path, why.text);
    if (version != RUN_VERSION)
        return FAIL(e, ERR_FORMAT, "%s: format version %lld, this program reads version %d", path, (long long)version,
                    RUN_VERSION);
    if (json_unpack_ex(root, &why, 0, "{s:s, s:s, s:s, s:s, s:I, s:o}", "id", &id, "model", &model, "status", &status,
                       "reason", &reason, "last_step", &last_step, "segments", &segments))
        return FAIL(e, ERR_FORMAT, "%s: %s", path, why.text);
    while (k < RUN_STATUS_COUNT && strcmp(status_names[k], status) != 0) k++;
    if (strlen(id) != RUN_ID_LENGTH || strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") != RUN_ID_LENGTH ||
        k == RUN_STATUS_COUNT || last_step < 0 || !json_is_array(segments))
        return FAIL(e, ERR_FORMAT, "%s: id '%s', status '%s' or last_step is out of range, or segments is not a list",
                    path, id, status);
    memcpy(out->id, id, RUN_ID_LENGTH + 1);
    out->model = arena_strdup(a, model);
    out->status = (enum run_status)k;
    out->last_step = last_step;
    out->reason = arena_strdup(a, reason);
    out->segments = arena_array(a, json_array_size(segments) + 1, sizeof *out->segments);
    if (!out->model || !out->reason || !out->segments) return no_memory(path, e);
    json_array_foreach(segments, i, v)
    {
        err_t rc = read_segment(&out->segments[i], v, a, path, e);

        if (rc) return rc;
        out->n_segments++;
    }
    return ERR_NONE;
}

err_t run_parse(struct run_info *out, struct arena *a, const char *text, size_t n, const char *path, struct error *e)
{
    json_error_t why;
    json_t *root;
    err_t rc;

    memset(out, 0, sizeof *out);
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!root) return FAIL(e, ERR_FORMAT, "%s: line %d: %s", path, why.line, why.text);
    rc = read_root(out, root, a, path, e);
    json_decref(root);
    if (rc) memset(out, 0, sizeof *out);
    return rc;
}

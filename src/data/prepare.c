/* SPDX-License-Identifier: MIT */
/* Preparing data before a run; see prepare.h. The fast way is warm_start(); all else happens under a lock of the
 * description. */
#include "data/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "data/tokenizer.h"

enum { STAMP_VERSION = 1, LOCK_POLL_NS = 20000000 };
#define STAMP_MIN_AGE_S 2.0 /* a file that changed later than this before it was read might change again unseen */

/* One call of data_prepare. */
struct preparation {
    const struct data_spec *spec;
    struct arena arena;
    struct source *source;
    struct pool *pool;
    data_report report;
    void *report_arg;
    const char *folder; /* of the cache */
    const char *stamp_path;
    uint64_t files_state; /* of all files listed, looked at when they were */
    bool settled;         /* none of them changed so lately that a further change could go unseen */
    struct data_prepared *out;
};

static err_t no_memory(struct error *e) { return FAIL(e, ERR_MEMORY, "out of memory while preparing the data"); }

/* ---- where things are ---- */
static err_t find_folder(struct preparation *p, struct error *e)
{
    const char *given = p->spec->cache_folder, *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (given && given[0])
        p->folder = arena_strdup(&p->arena, given);
    else if (xdg && xdg[0] == '/')
        p->folder = arena_printf(&p->arena, "%s/ctitan", xdg);
    else if (home && home[0] == '/')
        p->folder = arena_printf(&p->arena, "%s/.cache/ctitan", home);
    else
        return FAIL(e, ERR_CONFIG, "no folder for the token cache: set training.cache_folder, HOME or XDG_CACHE_HOME");
    if (!p->folder) return no_memory(e);
    return io_make_folders(p->folder, e);
}

static err_t open_paths(struct preparation *p, const char *const *paths, int n, struct error *e)
{
    struct source_spec s = p->spec->source;
    const char **joined = arena_array(&p->arena, (size_t)n + 1, sizeof *joined);

    if (!joined) return no_memory(e);
    for (int i = 0; i < n; i++) {
        joined[i] = io_join(&p->arena, p->spec->folder ? p->spec->folder : "", paths[i]);
        if (!joined[i]) return no_memory(e);
    }
    s.paths = joined;
    s.n_paths = n;
    return source_list(&p->source, &s, e);
}

/* The fallback stands in for all of the data, never for a part that is missing. */
static err_t find_source_or_fallback(struct preparation *p, struct error *e)
{
    const struct data_spec *s = p->spec;
    err_t rc = open_paths(p, s->source.paths, s->source.n_paths, e);
    struct error ignored;

    if (rc != ERR_MISSING || s->n_fallback == 0) return rc;
    for (int i = 0; i < s->source.n_paths; i++) {
        err_t one = open_paths(p, s->source.paths + i, 1, &ignored);

        source_close(p->source);
        p->source = NULL;
        if (one != ERR_MISSING) return rc;
    }
    p->out->used_fallback = true;
    rc = open_paths(p, s->fallback, s->n_fallback, e);
    return rc ? error_prefix(
                    e, rc, "there is no file of training.dataset (first entry '%s'), and as training.dataset_fallback",
                    s->source.paths[0])
              : ERR_NONE;
}

/* What names no text is a wrong configuration. */
static err_t find_source(struct preparation *p, struct error *e)
{
    err_t rc = find_source_or_fallback(p, e);

    if (rc == ERR_MISSING) rc = e->code = ERR_CONFIG;
    return rc;
}

static err_t open_named_tokenizer(struct tokenizer **out, const char *path, struct error *e)
{
    err_t rc = tokenizer_open(out, path, e);

    if (!rc || strcmp(path, TOKENIZER_BYTE) == 0) return rc;
    return error_prefix(e, rc == ERR_MISSING ? ERR_CONFIG : rc, "training.tokenizer");
}

/* ---- locks ---- */
static err_t lock_file(struct preparation *p, const char *path, int *fd, struct error *e)
{
    err_t rc;

    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*fd < 0) return io_fail(e, "create", path);
    while (flock(*fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return FAIL(e, ERR_IO, "cannot lock %s: %s; choose a training.cache_folder on a file system with locks",
                        path, strerror(errno));
        rc = data_tell(p->report, p->report_arg, "waiting for another process that prepares the same data", 0, 0, e);
        if (rc) return rc;
        clock_sleep_ns(LOCK_POLL_NS);
    }
    return ERR_NONE;
}

static void unlock(int fd)
{
    if (fd >= 0) close(fd);
}

/* ---- stamps ---- */
static uint64_t add_state(uint64_t h, const char *path, const struct stat *st)
{
    int64_t words[] = {st->st_size,         st->st_mtim.tv_sec,  st->st_mtim.tv_nsec, st->st_ctim.tv_sec,
                       st->st_ctim.tv_nsec, (int64_t)st->st_dev, (int64_t)st->st_ino};

    return hash_fnv(hash_fnv(h, path, strlen(path) + 1), words, sizeof words);
}

/* The files that a tokenizer at this path may be read from: whichever are there. */
static uint64_t tokenizer_state(uint64_t h, struct preparation *p, const char *path)
{
    const char *slash = strrchr(path, '/');
    int folder_length = slash ? (int)(slash - path) : 1;
    const char *near[] = {path, arena_printf(&p->arena, "%s/tokenizer.json", path),
                          arena_printf(&p->arena, "%s/tokenizer_config.json", path),
                          arena_printf(&p->arena, "%.*s/tokenizer_config.json", folder_length, slash ? path : ".")};
    struct stat st;

    for (size_t i = 0; i < sizeof near / sizeof *near; i++)
        if (near[i] && stat(near[i], &st) == 0 && S_ISREG(st.st_mode)) h = add_state(h, near[i], &st);
    return h;
}

/* Everything the description says is the stamp's name, the state of its files the stamp's content. */
static err_t look_at_files(struct preparation *p, struct error *e)
{
    const struct data_spec *s = p->spec;
    double now = clock_wall_s();
    uint64_t name = HASH_FNV_START, state = HASH_FNV_START;
    char where[4096]; /* PATH_MAX */

    if (!getcwd(where, sizeof where)) return io_fail(e, "find", "the working folder");
    name = hash_fnv(name, where, strlen(where) + 1);
    p->settled = true;
    for (int64_t i = 0; i < p->source->n_files; i++) {
        const struct source_file *f = &p->source->files[i];
        int64_t words[] = {f->bytes, f->modified_ns, f->changed_ns, (int64_t)f->device, (int64_t)f->inode};
        int64_t newer = f->modified_ns > f->changed_ns ? f->modified_ns : f->changed_ns;

        name = hash_fnv(hash_fnv(name, f->path, strlen(f->path) + 1), f->found ? "f" : "n", 1);
        state = hash_fnv(state, words, sizeof words);
        if ((double)newer * 1e-9 > now - STAMP_MIN_AGE_S) p->settled = false;
    }
    name = hash_fnv(name, p->source->separator, strlen(p->source->separator) + 1);
    name = hash_fnv(name, p->source->text_field, strlen(p->source->text_field) + 1);
    name = hash_fnv(name, s->tokenizer, strlen(s->tokenizer) + 1);
    name = hash_fnv(name, &s->tokenizer_vocab_size, sizeof s->tokenizer_vocab_size);
    p->files_state = state;
    p->stamp_path = arena_printf(&p->arena, "%s/stamp-%016" PRIx64, p->folder, hash_mix(name + TOKEN_BUILD_RULES));
    return p->stamp_path ? ERR_NONE : no_memory(e);
}

static const char *cache_path(struct preparation *p, uint64_t key)
{
    return arena_printf(&p->arena, "%s/tokens-%016" PRIx64 ".bin", p->folder, key);
}

static err_t give(struct preparation *p, const struct token_cache *c, const char *path, const char *tokenizer_path,
                  struct error *e)
{
    const struct token_cache_header *h = token_cache_header(c);

    p->out->key = h->key;
    p->out->content_hash = h->content_hash;
    p->out->vocab_size = (int32_t)h->vocab_size;
    p->out->cache_path = mem_strdup(path);
    p->out->tokenizer_path = mem_strdup(tokenizer_path);
    return p->out->cache_path && p->out->tokenizer_path ? ERR_NONE : no_memory(e);
}

/* Uses the stamp if it still holds; *warm says whether. A stamp that is torn, old or for other files is no error. */
static err_t warm_start(struct preparation *p, bool *warm, struct error *e)
{
    struct str text = {0};
    struct token_cache *c = NULL;
    struct error ignored;
    uint64_t state, key;
    int version, tokenizer_at = 0;
    const char *path = NULL, *newline;
    err_t rc = ERR_NONE;

    *warm = false;
    if (io_read_file(p->stamp_path, &text, &ignored)) goto out;
    if (sscanf(str_text(&text), "ctitan-stamp %d %" SCNx64 " %" SCNx64 " %n", &version, &state, &key, &tokenizer_at) !=
        3)
        goto out;
    newline = strchr(text.text + tokenizer_at, '\n');
    if (version != STAMP_VERSION || !tokenizer_at || !newline) goto out;
    text.text[newline - text.text] = '\0';
    path = cache_path(p, key);
    if (!path)
        rc = no_memory(e);
    else if (tokenizer_state(p->files_state, p, text.text + tokenizer_at) != state)
        goto out;
    else if (token_cache_open(&c, path, key, &ignored))
        goto out;
    if (!rc) rc = give(p, c, path, text.text + tokenizer_at, e);
    *warm = !rc;
out:
    token_cache_close(c);
    str_release(&text);
    return rc;
}

static err_t write_stamp(struct preparation *p, struct error *e)
{
    struct str text = {0};
    uint64_t state = tokenizer_state(p->files_state, p, p->out->tokenizer_path);
    err_t rc;

    if (!p->settled || strchr(p->out->tokenizer_path, '\n')) return ERR_NONE;
    str_addf(&text, "ctitan-stamp %d %016" PRIx64 " %016" PRIx64 " %s\n", STAMP_VERSION, state, p->out->key,
             p->out->tokenizer_path);
    rc = str_ok(&text, e);
    if (!rc) rc = io_write_atomic(p->stamp_path, text.text, text.length, e);
    str_release(&text);
    return rc;
}

/* ---- the slow way ---- */
static err_t learn_tokenizer(struct preparation *p, struct tokenizer **out, char **path, struct error *e)
{
    struct tokenizer_spec spec = {.vocab_size = p->spec->tokenizer_vocab_size};
    uint64_t words[] = {p->out->content_hash, (uint64_t)spec.vocab_size, TOKEN_BUILD_RULES};
    uint64_t key = hash_mix(hash_fnv(HASH_FNV_START, words, sizeof words));
    char *lock_path = arena_printf(&p->arena, "%s/tokenizer-%016" PRIx64 ".lock", p->folder, key);
    struct error ignored;
    int fd = -1;
    err_t rc;

    *path = arena_printf(&p->arena, "%s/tokenizer-%016" PRIx64 ".json", p->folder, key);
    if (!*path || !lock_path) return no_memory(e);
    rc = lock_file(p, lock_path, &fd, e);
    if (!rc && tokenizer_open(out, *path, &ignored)) { /* not there, or damaged: made (again) */
        rc = token_build_tokenizer(out, p->source, &spec, p->report, p->report_arg, e);
        if (rc == ERR_RANGE) rc = error_prefix(e, ERR_CONFIG, "training.tokenizer_vocab_size=%d", spec.vocab_size);
        if (!rc) rc = tokenizer_save(*out, *path, e);
        p->out->made_tokenizer = !rc;
    }
    unlock(fd);
    return rc;
}

/* The files were read twice, for their hash and for their text: they must have been the same. */
static err_t check_unchanged(struct preparation *p, struct error *e)
{
    for (int64_t i = 0; i < p->source->n_files; i++) {
        const struct source_file *f = &p->source->files[i];
        struct stat st;

        if (stat(f->path, &st)) return io_fail(e, "look at", f->path);
        if (st.st_size != f->bytes || (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec != f->modified_ns)
            return FAIL(e, ERR_BUSY, "%s changed while it was read: start again when it is complete", f->path);
    }
    return ERR_NONE;
}

static err_t make_cache(struct preparation *p, const struct tokenizer *t, const char *tokenizer_path, struct error *e)
{
    uint64_t words[] = {p->out->content_hash, tokenizer_hash(t), TOKEN_BUILD_RULES, TOKEN_CACHE_VERSION};
    struct token_cache_header h = {.key = hash_mix(hash_fnv(HASH_FNV_START, words, sizeof words)),
                                   .content_hash = words[0]};
    const char *path = cache_path(p, h.key), *lock_path = arena_printf(&p->arena, "%s.lock", path ? path : "");
    struct token_cache *c = NULL;
    struct error ignored;
    int fd = -1;
    err_t rc;

    if (!path || !lock_path) return no_memory(e);
    rc = lock_file(p, lock_path, &fd, e);
    if (!rc && token_cache_open(&c, path, h.key, &ignored)) { /* not there, torn or foreign: made (again) */
        rc = token_build(path, p->source, t, p->pool, p->report, p->report_arg, &h, e);
        if (!rc) rc = check_unchanged(p, e);
        if (rc)
            unlink(path);
        else
            rc = token_cache_open(&c, path, h.key, e);
        p->out->made_cache = !rc;
    }
    if (!rc) rc = give(p, c, path, tokenizer_path, e);
    token_cache_close(c);
    unlock(fd);
    return rc;
}

static err_t cold_start(struct preparation *p, struct error *e)
{
    struct tokenizer *t = NULL;
    const char *lock_path = arena_printf(&p->arena, "%s.lock", p->stamp_path);
    char *tokenizer_path = NULL;
    bool warm = false;
    int fd = -1;
    err_t rc = lock_path ? lock_file(p, lock_path, &fd, e) : no_memory(e);

    if (!rc) rc = warm_start(p, &warm, e); /* whoever held the lock may have done it */
    if (rc || warm) goto out;
    rc = source_look(p->source, e);
    if (!rc) rc = source_hash(p->source, p->pool, p->report, p->report_arg, &p->out->content_hash, e);
    if (rc) goto out;
    if (strcmp(p->spec->tokenizer, DATA_TOKENIZER_AUTO) == 0) {
        rc = learn_tokenizer(p, &t, &tokenizer_path, e);
    } else {
        tokenizer_path = arena_strdup(&p->arena, p->spec->tokenizer);
        rc = tokenizer_path ? open_named_tokenizer(&t, tokenizer_path, e) : no_memory(e);
    }
    if (!rc) rc = make_cache(p, t, tokenizer_path, e);
    if (!rc) rc = write_stamp(p, e);
out:
    tokenizer_close(t);
    unlock(fd);
    return rc;
}

/* Synthetic ids fill the vocabulary of the tokenizer, if one is named. */
static err_t prepare_synthetic(const struct data_spec *s, struct data_prepared *out, struct error *e)
{
    struct tokenizer *t = NULL;
    err_t rc;

    out->seed = s->seed;
    out->vocab_size = s->tokenizer_vocab_size;
    if (strcmp(s->tokenizer, DATA_TOKENIZER_AUTO) == 0) return ERR_NONE;
    rc = open_named_tokenizer(&t, s->tokenizer, e);
    if (rc) return rc;
    out->vocab_size = tokenizer_vocab_size(t);
    tokenizer_close(t);
    out->tokenizer_path = mem_strdup(s->tokenizer);
    return out->tokenizer_path ? ERR_NONE : no_memory(e);
}

err_t data_prepare(const struct data_spec *spec, struct pool *pool, data_report report, void *report_arg,
                   struct data_prepared *out, struct error *e)
{
    struct preparation p = {.spec = spec, .pool = pool, .report = report, .report_arg = report_arg, .out = out};
    bool warm = false;
    err_t rc;

    memset(out, 0, sizeof *out);
    if (spec->source.n_paths == 1 && strcmp(spec->source.paths[0], DATA_SYNTHETIC) == 0) {
        rc = prepare_synthetic(spec, out, e);
    } else {
        rc = find_folder(&p, e);
        if (!rc) rc = find_source(&p, e);
        if (!rc) rc = look_at_files(&p, e);
        if (!rc) rc = warm_start(&p, &warm, e);
        if (!rc && !warm) rc = cold_start(&p, e);
    }
    source_close(p.source);
    arena_release(&p.arena);
    if (rc) data_prepared_release(out);
    return rc;
}

void data_prepared_release(struct data_prepared *p)
{
    mem_free(p->cache_path);
    mem_free(p->tokenizer_path);
    memset(p, 0, sizeof *p);
}

err_t data_open(struct token_cache **out, const struct data_prepared *p, struct error *e)
{
    if (p->cache_path) return token_cache_open(out, p->cache_path, p->key, e);
    return token_cache_open_synthetic(out, p->vocab_size, DATA_SYNTHETIC_TOKENS, p->seed, e);
}

/* ---- from the configuration ---- */
static struct data_spec common_spec(const struct config *c)
{
    struct data_spec s = {.tokenizer = c->training.tokenizer,
                          .tokenizer_vocab_size = (int32_t)c->training.tokenizer_vocab_size};

    s.cache_folder = c->training.cache_folder;
    s.seed = (uint64_t)c->debug.seed;
    s.source.exclude = c->training.dataset_exclude.item;
    s.source.n_exclude = c->training.dataset_exclude.n;
    s.source.separator = c->training.document_separator;
    s.source.text_field = c->training.text_field;
    return s;
}

struct data_spec data_spec_training(const struct config *c)
{
    struct data_spec s = common_spec(c);

    s.source.paths = c->training.dataset.item;
    s.source.n_paths = c->training.dataset.n;
    s.folder = c->training.dataset_path;
    s.fallback = c->training.dataset_fallback.item;
    s.n_fallback = c->training.dataset_fallback.n;
    return s;
}

struct data_spec data_spec_validation(const struct config *c)
{
    struct data_spec s = common_spec(c);

    s.source.paths = c->validation.dataset.item;
    s.source.n_paths = c->validation.dataset.n;
    s.folder = c->validation.dataset_path;
    return s;
}

/* SPDX-License-Identifier: MIT */
/*
 * A YAML file into a configuration: libyaml makes the document, this walks it.
 *
 * A key is an option ("steps" in "training", or "training.steps"), a section or the start of one
 * ("quantize"), or `include` at the top, whose files are read first so that this file's keys override theirs.
 * Only scalars' texts come from libyaml: what a text means is the option's business (value.c). Every problem
 * is noted with its line and column, and reading goes on.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "base/io.h"
#include "config/table.h"

enum {
    FILE_MAX_BYTES = 1 << 20,
    MAPPING_MAX_KEYS = 1000,
    INCLUDE_MAX_FILES = 64, /* in all, against files that include each other twice and twice again */
    DEPTH_MAX = 50,         /* of lists and mappings in each other; libyaml's time grows with the square of */
    MARKS_MAX = 100,        /* this, and of the number of anchors and of %TAG directives */
    PROBLEMS_MOST = 100
};

/* One file being read; its parent includes it. */
struct yaml_file {
    struct config_reader *reader;
    const char *name;
    dev_t device;
    ino_t inode;
    bool has_inode;
    struct yaml_file *parent;
    int *n_included;
    yaml_document_t *document;
    size_t seen_line[CONFIG_N_ROWS]; /* where each option stands in this file, 0 = nowhere */
};

static void read_path(struct config_reader *r, const char *path, struct yaml_file *parent, int *n_included,
                      const yaml_mark_t *included_at);

static void problem_at(struct yaml_file *f, const yaml_mark_t *mark, const char *text)
{
    config_problem(f->reader->p, "%s:%zu:%zu: %s", f->name, mark->line + 1, mark->column + 1, text);
}

static const char *scalar_text(const yaml_node_t *node) { return (const char *)node->data.scalar.value; }

static bool is_null_node(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           config_is_null(scalar_text(node));
}

/* libyaml gives nodes without a tag these three, so any other was written by hand */
static bool has_foreign_tag(const yaml_node_t *node)
{
    const char *tag = (const char *)node->tag;

    return tag && strcmp(tag, YAML_STR_TAG) != 0 && strcmp(tag, YAML_SEQ_TAG) != 0 && strcmp(tag, YAML_MAP_TAG) != 0;
}

_Static_assert(DEPTH_MAX == 50 && MARKS_MAX == 100, "the texts below say so");

/* What a file that may be hostile has too much of, at `at`; NULL = nothing. Ends at the first that is too much, so
 * it is fast where libyaml's loader is not; what is no YAML is left to the loader. */
static const char *too_much(const char *yaml, size_t n, yaml_mark_t *at)
{
    const char *what = NULL;
    int depth = 0, n_marks = 0;
    bool is_end = false;
    yaml_parser_t parser;
    yaml_token_t token;

    if (!yaml_parser_initialize(&parser)) return NULL; /* nor can the loader's, which says so */
    yaml_parser_set_input_string(&parser, (const unsigned char *)yaml, n);
    while (!what && !is_end && yaml_parser_scan(&parser, &token)) {
        switch (token.type) {
        case YAML_FLOW_SEQUENCE_START_TOKEN:
        case YAML_FLOW_MAPPING_START_TOKEN:
        case YAML_BLOCK_SEQUENCE_START_TOKEN:
        case YAML_BLOCK_MAPPING_START_TOKEN: depth++; break;
        case YAML_FLOW_SEQUENCE_END_TOKEN:
        case YAML_FLOW_MAPPING_END_TOKEN:
        case YAML_BLOCK_END_TOKEN: depth--; break;
        case YAML_ANCHOR_TOKEN:
        case YAML_TAG_DIRECTIVE_TOKEN: n_marks++; break;
        default: break;
        }
        is_end = token.type == YAML_STREAM_END_TOKEN || token.type == YAML_NO_TOKEN;
        if (depth > DEPTH_MAX)
            what = "lists and mappings stand in each other more than 50 deep";
        else if (n_marks > MARKS_MAX)
            what = "more than 100 anchors and %TAG directives";
        *at = token.start_mark;
        yaml_token_delete(&token);
    }
    yaml_parser_delete(&parser);
    return what;
}

static bool set_sequence(struct config *c, const struct config_row *row, yaml_document_t *document,
                         const yaml_node_t *node, struct str *why)
{
    int n = (int)(node->data.sequence.items.top - node->data.sequence.items.start);
    const char **items = arena_array(&c->sources->arena, (size_t)n + 1, sizeof *items);

    if (!items) return str_add(why, "out of memory"), false;
    for (int i = 0; i < n; i++) {
        const yaml_node_t *item = yaml_document_get_node(document, node->data.sequence.items.start[i]);

        if (item->type != YAML_SCALAR_NODE || has_foreign_tag(item) || is_null_node(item) ||
            strlen(scalar_text(item)) != item->data.scalar.length)
            return str_addf(why, "entry %d of the list is not a text", i + 1), false;
        items[i] = scalar_text(item);
    }
    return config_set_items(c, row, items, n, why);
}

static void set_option(struct yaml_file *f, int index, const yaml_node_t *node)
{
    const struct config_row *row = config_row(index);
    struct config *c = f->reader->c;
    struct str why = {0};
    bool is_set = false;

    if (has_foreign_tag(node))
        str_addf(&why, "the tag %.60s is not understood; drop it", (const char *)node->tag);
    else if (node->type == YAML_SCALAR_NODE)
        is_set = config_set(c, row, scalar_text(node), node->data.scalar.length,
                            node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? STYLE_PLAIN : STYLE_QUOTED, &why);
    else if (node->type == YAML_SEQUENCE_NODE && row->kind == CONFIG_LIST)
        is_set = set_sequence(c, row, f->document, node, &why);
    else
        str_addf(&why, "a %s stands where one value is expected",
                 node->type == YAML_SEQUENCE_NODE ? "list" : "mapping");
    if (is_set) {
        c->sources->origin[index] = (struct config_origin){.kind = FROM_FILE,
                                                           .name = f->name,
                                                           .line = (int)node->start_mark.line + 1,
                                                           .column = (int)node->start_mark.column + 1};
    } else {
        struct str whole = {0};

        str_addf(&whole, "%s.%s: %s", row->section, row->key, str_text(&why));
        problem_at(f, &node->start_mark, str_text(&whole));
        str_release(&whole);
    }
    str_release(&why);
}

static void unknown_key(struct yaml_file *f, const yaml_node_t *key, const struct str *path)
{
    const char *instead = config_replacement(str_text(path), path->length);
    struct str text = {0};

    str_addf(&text, "%.*s: there is no such option", CONFIG_PATH_BYTES, str_text(path));
    if (instead)
        str_addf(&text, "; %s", instead);
    else if (f->reader->p->n < PROBLEMS_MOST)
        config_suggest(str_text(path), path->length, &text);
    problem_at(f, &key->start_mark, str_text(&text));
    str_release(&text);
}

/* An option may stand once in a file, however it is written: in its section or as "section.key". */
static void note_place(struct yaml_file *f, int row, const yaml_node_t *key)
{
    struct str text = {0};

    if (f->seen_line[row]) {
        str_addf(&text, "%s.%s stands on line %zu already", config_row(row)->section, config_row(row)->key,
                 f->seen_line[row]);
        problem_at(f, &key->start_mark, str_text(&text));
    } else {
        f->seen_line[row] = key->start_mark.line + 1;
    }
    str_release(&text);
}

/* Notes a key that an earlier one of the mapping says already; - and _ are one. Options are note_place()'s.
 */
static void check_duplicate(struct yaml_file *f, const yaml_node_t *mapping, const yaml_node_pair_t *pair)
{
    const yaml_node_t *key = yaml_document_get_node(f->document, pair->key);

    for (const yaml_node_pair_t *earlier = mapping->data.mapping.pairs.start; earlier < pair; earlier++) {
        const yaml_node_t *other = yaml_document_get_node(f->document, earlier->key);
        struct str text = {0};

        if (other->type != YAML_SCALAR_NODE ||
            !config_name_equal(scalar_text(other), scalar_text(key), key->data.scalar.length))
            continue;
        str_addf(&text, "the key \"%.60s\" stands on line %zu already", scalar_text(key), other->start_mark.line + 1);
        problem_at(f, &key->start_mark, str_text(&text));
        str_release(&text);
        return;
    }
}

static void walk(struct yaml_file *f, const yaml_node_t *mapping, const char *prefix);

static void take_pair(struct yaml_file *f, const yaml_node_t *mapping, const yaml_node_pair_t *pair, const char *prefix)
{
    const yaml_node_t *key = yaml_document_get_node(f->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(f->document, pair->value);
    struct str path = {0};
    int row;

    str_addf(&path, "%s%s%s", prefix, *prefix ? "." : "", scalar_text(key));
    row = config_row_find(str_text(&path), path.length);
    if (row < 0) check_duplicate(f, mapping, pair);
    if (row >= 0) {
        note_place(f, row, key);
        set_option(f, row, value);
    } else if (config_section_find(str_text(&path), path.length) < 0 &&
               !config_is_section_prefix(str_text(&path), path.length)) {
        if (config_replacement(str_text(&path), path.length) || value->type != YAML_MAPPING_NODE || *prefix)
            unknown_key(f, key, &path);
        else
            walk(f, value, str_text(&path)); /* a section that is not there: each key may have its replacement */
    } else if (value->type == YAML_MAPPING_NODE && !has_foreign_tag(value)) {
        walk(f, value, str_text(&path));
    } else if (!is_null_node(value)) {
        struct str text = {0};

        str_addf(&text, "%s is a section: its options stand below it, indented", str_text(&path));
        problem_at(f, &value->start_mark, str_text(&text));
        str_release(&text);
    }
    str_release(&path);
}

static void walk(struct yaml_file *f, const yaml_node_t *mapping, const char *prefix)
{
    const yaml_node_pair_t *pairs = mapping->data.mapping.pairs.start, *end = mapping->data.mapping.pairs.top;

    if (end - pairs > MAPPING_MAX_KEYS) {
        problem_at(f, &mapping->start_mark, "too many keys");
        return;
    }
    for (const yaml_node_pair_t *pair = pairs; pair < end; pair++) {
        const yaml_node_t *key = yaml_document_get_node(f->document, pair->key);

        if (key->type != YAML_SCALAR_NODE || strlen(scalar_text(key)) != key->data.scalar.length)
            problem_at(f, &key->start_mark, "a key must be a word");
        else if (*prefix || strcmp(scalar_text(key), "include") != 0)
            take_pair(f, mapping, pair, prefix);
        else
            check_duplicate(f, mapping, pair);
    }
}

/* ---- include ---- */
static void include_one(struct yaml_file *f, const yaml_node_t *node)
{
    const char *slash = strrchr(f->name, '/');
    struct arena *a = &f->reader->c->sources->arena;
    char *folder = slash ? arena_strndup(a, f->name, (size_t)(slash - f->name)) : NULL, *path;

    if (node->type != YAML_SCALAR_NODE || !*scalar_text(node) ||
        strlen(scalar_text(node)) != node->data.scalar.length) {
        problem_at(f, &node->start_mark, "include: expected the name of a file, or a list of names");
        return;
    }
    path = folder ? io_join(a, *folder ? folder : "/", scalar_text(node)) : arena_strdup(a, scalar_text(node));
    if (!path)
        problem_at(f, &node->start_mark, "include: out of memory");
    else
        read_path(f->reader, path, f, f->n_included, &node->start_mark);
}

static void read_includes(struct yaml_file *f, const yaml_node_t *root)
{
    for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(f->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(f->document, pair->value);

        if (key->type != YAML_SCALAR_NODE || strcmp(scalar_text(key), "include") != 0) continue;
        if (value->type != YAML_SEQUENCE_NODE) {
            include_one(f, value);
            continue;
        }
        for (const yaml_node_item_t *item = value->data.sequence.items.start; item < value->data.sequence.items.top;
             item++)
            include_one(f, yaml_document_get_node(f->document, *item));
    }
}

/* ---- documents ---- */
static void parser_problem(struct yaml_file *f, const yaml_parser_t *parser)
{
    struct str text = {0};

    if (parser->error == YAML_READER_ERROR) {
        config_problem(f->reader->p, "%s: byte %zu: %s", f->name, parser->problem_offset,
                       parser->problem ? parser->problem : "cannot be read");
        return;
    }
    str_add(&text, parser->error == YAML_MEMORY_ERROR ? "out of memory"
                   : parser->problem                  ? parser->problem
                                                      : "not YAML");
    if (parser->context)
        str_addf(&text, " (%s that starts on line %zu)", parser->context, parser->context_mark.line + 1);
    problem_at(f, &parser->problem_mark, str_text(&text));
    str_release(&text);
}

static void read_document(struct yaml_file *f, yaml_parser_t *parser)
{
    yaml_document_t document, second;
    const yaml_node_t *root;

    if (!yaml_parser_load(parser, &document)) {
        parser_problem(f, parser);
        return;
    }
    f->document = &document;
    root = yaml_document_get_root_node(&document);
    if (root && root->type == YAML_MAPPING_NODE) {
        read_includes(f, root);
        walk(f, root, "");
    } else if (root && !is_null_node(root)) {
        problem_at(f, &root->start_mark, "expected sections such as `training:`");
    }
    if (root) {
        if (!yaml_parser_load(parser, &second)) {
            parser_problem(f, parser);
        } else {
            root = yaml_document_get_root_node(&second);
            if (root) problem_at(f, &root->start_mark, "a second document in the file; a configuration is one");
            yaml_document_delete(&second);
        }
    }
    yaml_document_delete(&document);
}

static void read_content(struct yaml_file *f, const char *yaml, size_t n)
{
    const char *excess;
    yaml_parser_t parser;
    yaml_mark_t at;

    if (n > FILE_MAX_BYTES) {
        config_problem(f->reader->p, "%s: more than %d bytes are no configuration", f->name, FILE_MAX_BYTES);
        return;
    }
    excess = too_much(yaml, n, &at);
    if (excess) {
        problem_at(f, &at, excess);
        return;
    }
    if (!yaml_parser_initialize(&parser)) {
        config_problem(f->reader->p, "%s: out of memory", f->name);
        return;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)yaml, n);
    read_document(f, &parser);
    yaml_parser_delete(&parser);
}

static void read_path(struct config_reader *r, const char *path, struct yaml_file *parent, int *n_included,
                      const yaml_mark_t *included_at)
{
    struct yaml_file f = {.reader = r, .name = path, .parent = parent, .n_included = n_included};
    struct str content = {0}, text = {0};
    struct error e = {0};
    struct stat st;

    if (stat(path, &st) != 0)
        str_addf(&text, "cannot read %s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        str_addf(&text, "%s is not a file", path);
    else if (st.st_size > FILE_MAX_BYTES)
        str_addf(&text, "%s: more than %d bytes are no configuration", path, FILE_MAX_BYTES);
    else if (++*n_included > INCLUDE_MAX_FILES)
        str_addf(&text, "%s would be file number %d; something is included again and again", path, *n_included);
    for (struct yaml_file *up = parent; up && !text.length; up = up->parent)
        if (up->has_inode && up->device == st.st_dev && up->inode == st.st_ino)
            str_addf(&text, "%s includes itself through this file", path);
    if (!text.length && io_read_file(path, &content, &e)) str_add(&text, e.message);
    if (text.length) {
        if (parent)
            problem_at(parent, included_at, str_text(&text));
        else
            config_problem(r->p, "%s", str_text(&text));
    } else {
        f.device = st.st_dev;
        f.inode = st.st_ino;
        f.has_inode = true;
        read_content(&f, str_text(&content), content.length);
    }
    str_release(&text);
    str_release(&content);
}

void config_read_file(struct config_reader *r, const char *path)
{
    int n_included = 0;

    read_path(r, path, NULL, &n_included, NULL);
}

void config_read_text(struct config_reader *r, const char *yaml, size_t n, const char *name)
{
    int n_included = 0;
    struct yaml_file f = {.reader = r, .n_included = &n_included};

    f.name = arena_strdup(&r->c->sources->arena, name);
    if (f.name)
        read_content(&f, yaml, n);
    else
        config_problem(r->p, "%s: out of memory", name);
}

bool config_read_flow(struct config *c, const struct config_row *row, const char *text, struct str *why)
{
    yaml_parser_t parser;
    yaml_document_t document;
    const yaml_node_t *root;
    bool is_set = false;
    yaml_mark_t at;

    if (too_much(text, strlen(text), &at)) return str_add(why, "expected a list like [a, \"b, c\"]"), false;
    if (!yaml_parser_initialize(&parser)) return str_add(why, "out of memory"), false;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
    if (yaml_parser_load(&parser, &document)) {
        root = yaml_document_get_root_node(&document);
        if (root && root->type == YAML_SEQUENCE_NODE && root->end_mark.index == strlen(text))
            is_set = set_sequence(c, row, &document, root, why);
        else
            str_add(why, "expected a list like [a, \"b, c\"] and nothing behind it");
        yaml_document_delete(&document);
    } else {
        str_addf(why, "not a list like [a, \"b, c\"]: %s", parser.problem ? parser.problem : "out of memory");
    }
    yaml_parser_delete(&parser);
    return is_set;
}

/* SPDX-License-Identifier: MIT */
/*
 * Reading tokenizer.json (Hugging Face's `tokenizers`).
 *
 * The rule: a file either gives the reference's ids or is refused with the key that stands in the way. Keys that cannot
 * change the ids of text (the decoder, offsets, what a template adds around a text) are read only for which tokens
 * begin and end a document.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer_parts.h"

enum { JSON_MAX_BYTES = 1 << 30 };

struct reader {
    struct tokenizer *t;
    const char *name;                   /* of the file, for messages */
    int16_t byte_of[BYTE_ALPHABET_END]; /* the byte a code point stands for, -1: none */
    struct str left, right;             /* texts being decoded */
    struct error *e;
};

#define REFUSE(r, ...) refuse((r)->e, (r)->name, __FILE__, __LINE__, __VA_ARGS__)
static err_t refuse(struct error *e, const char *name, const char *file, int line, const char *format, ...)
    PRINTF_LIKE(5, 6);
static err_t refuse(struct error *e, const char *name, const char *file, int line, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_fill(e, ERR_UNSUPPORTED, file, line,
                      "%s: %s is not supported (byte-level BPE in the manner of GPT-2, Llama-3 and "
                      "Qwen is)",
                      name, text);
}

static err_t malformed(struct reader *r, const char *what) { return FAIL(r->e, ERR_FORMAT, "%s: %s", r->name, what); }

/* A value shortened for a message. */
static const char *shown(const json_t *value, char out[120])
{
    size_t n = json_dumpb(value, out, 119, JSON_ENCODE_ANY | JSON_COMPACT);

    if (n > 119)
        memcpy(out + 100, "...", 4);
    else
        out[n] = '\0';
    return out;
}

static bool is_absent(const json_t *value) { return !value || json_is_null(value); }

static const char *type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));

    return type ? type : "";
}

/* ---- vocabulary and merges ---- */

/* The bytes that a token's text stands for; false: some character is not in the byte alphabet. Lack of memory shows in
 * out. */
static bool decode_alphabet(const struct reader *r, const char *text, size_t n, struct str *out)
{
    char *to;

    str_clear(out);
    str_add_bytes(out, text, n); /* decoded in place: each character gives one byte */
    if (out->failed) return true;
    to = out->text;
    for (size_t at = 0, step; at < n; at += step) {
        uint32_t code = utf8_code(text + at, &step);

        if (code >= BYTE_ALPHABET_END || r->byte_of[code] < 0) return false;
        *to++ = (char)r->byte_of[code];
    }
    out->length = (size_t)(to - out->text);
    *to = '\0';
    return true;
}

static err_t read_vocabulary(struct reader *r, json_t *vocab)
{
    size_t n = json_object_size(vocab);
    const char *text;
    json_t *value;

    if (!json_is_object(vocab) || !n) return malformed(r, "\"model.vocab\" must be an object with at least one token");
    json_object_foreach(vocab, text, value)
    {
        json_int_t id = json_integer_value(value);
        size_t bytes = strlen(text);
        bool is_raw = !decode_alphabet(r, text, bytes, &r->left);
        err_t rc;

        if (!json_is_integer(value) || id < 0 || id >= TOKENIZER_MAX_VOCAB || (size_t)id > 4 * n + 65536)
            return FAIL(r->e, ERR_FORMAT, "%s: \"model.vocab\" gives \"%.40s\" no id that fits its %zu tokens", r->name,
                        text, n);
        rc = str_ok(&r->left, r->e);
        if (!rc)
            rc = bpe_set_token(&r->t->bpe, (int32_t)id, is_raw ? text : r->left.text, is_raw ? bytes : r->left.length,
                               is_raw, r->e);
        if (rc) return error_prefix(r->e, rc, "%s: \"model.vocab\"", r->name);
    }
    return ERR_NONE;
}

static err_t read_merge(struct reader *r, const json_t *entry, size_t index)
{
    const char *left = NULL, *right = NULL;
    size_t n_left = 0;
    int32_t a, b, both;

    if (json_is_array(entry) && json_array_size(entry) == 2) {
        left = json_string_value(json_array_get(entry, 0));
        right = json_string_value(json_array_get(entry, 1));
        n_left = left ? strlen(left) : 0;
    } else if (json_is_string(entry)) {
        left = json_string_value(entry);
        right = strchr(left, ' ');
        if (right) n_left = (size_t)(right++ - left);
        if (right && strchr(right, ' ')) right = NULL;
    }
    if (!left || !right)
        return FAIL(r->e, ERR_FORMAT, "%s: \"model.merges\"[%zu] must be \"left right\" or [\"left\", \"right\"]",
                    r->name, index);
    if (!decode_alphabet(r, left, n_left, &r->left) || !decode_alphabet(r, right, strlen(right), &r->right))
        return REFUSE(r, "\"model.merges\"[%zu] with a token that is not made of the byte alphabet", index);
    a = bpe_find(&r->t->bpe, str_text(&r->left), r->left.length);
    b = bpe_find(&r->t->bpe, str_text(&r->right), r->right.length);
    str_add_bytes(&r->left, str_text(&r->right), r->right.length);
    if (str_ok(&r->left, r->e) || str_ok(&r->right, r->e)) return r->e ? r->e->code : ERR_MEMORY;
    both = bpe_find(&r->t->bpe, str_text(&r->left), r->left.length);
    if (a < 0 || b < 0 || both < 0)
        return FAIL(r->e, ERR_FORMAT,
                    "%s: \"model.merges\"[%zu] joins or makes a token that \"model.vocab\" does not have", r->name,
                    index);
    return bpe_add_merge(&r->t->bpe, a, b, both, r->e);
}

static err_t check_model(struct reader *r, const json_t *model)
{
    static const char *const empty_keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *value = json_object_get(model, "dropout");
    char text[120];

    if (!json_is_object(model)) return malformed(r, "it has no \"model\" object, so it is not a tokenizer.json");
    if (*type_of(model) && strcmp(type_of(model), "BPE") != 0)
        return REFUSE(r, "\"model.type\": \"%.40s\"", type_of(model));
    if (!is_absent(value) && json_number_value(value) != 0)
        return REFUSE(r, "\"model.dropout\": %s", shown(value, text));
    for (size_t i = 0; i < sizeof empty_keys / sizeof *empty_keys; i++) {
        value = json_object_get(model, empty_keys[i]);
        if (!is_absent(value) && json_string_length(value) + !json_is_string(value))
            return REFUSE(r, "\"model.%s\": %s", empty_keys[i], shown(value, text));
    }
    if (json_is_true(json_object_get(model, "byte_fallback"))) return REFUSE(r, "\"model.byte_fallback\": true");
    return ERR_NONE;
}

static err_t read_model(struct reader *r, const json_t *model)
{
    const json_t *merges = json_object_get(model, "merges"), *unknown = json_object_get(model, "unk_token");
    char text[120];
    err_t rc = check_model(r, model);

    if (!rc) rc = read_vocabulary(r, json_object_get(model, "vocab"));
    if (rc) return rc;
    if (!json_is_array(merges)) return malformed(r, "\"model.merges\" must be an array");
    if (json_array_size(merges) > TOKENIZER_MAX_VOCAB) return malformed(r, "\"model.merges\" is too long");
    rc = bpe_index(&r->t->bpe, (int32_t)json_array_size(merges), r->e);
    if (rc) return error_prefix(r->e, rc, "%s: \"model.vocab\"", r->name);
    for (size_t i = 0; !rc && i < json_array_size(merges); i++) rc = read_merge(r, json_array_get(merges, i), i);
    r->t->bpe.ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    for (int byte = 0; !rc && !is_absent(unknown) && byte < 256; byte++)
        if (r->t->bpe.byte_id[byte] < 0 && !(byte == 0xC0 || byte == 0xC1 || byte > 0xF4)) /* never in valid text */
            return REFUSE(r, "\"model.unk_token\": %s with a vocabulary that lacks the byte 0x%02X",
                          shown(unknown, text), byte);
    return rc;
}

/* ---- how text is cut ---- */

static err_t add_level(struct reader *r, const char *pattern)
{
    err_t rc = splitter_add(&r->t->splitter, pattern, r->e);

    return rc ? error_prefix(r->e, rc, "%s: \"pre_tokenizer\"", r->name) : ERR_NONE;
}

static err_t read_split(struct reader *r, const json_t *step)
{
    const json_t *pattern = json_object_get(step, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *literal = json_string_value(json_object_get(pattern, "String"));
    const char *behavior = json_string_value(json_object_get(step, "behavior"));
    struct str escaped = {0};
    err_t rc;

    if (!behavior || strcmp(behavior, "Isolated") != 0)
        return REFUSE(r, "\"behavior\": \"%.40s\" of a Split in \"pre_tokenizer\"", behavior ? behavior : "");
    if (!regex && !literal)
        return malformed(r, "a Split in \"pre_tokenizer\" needs \"pattern\": {\"Regex\": ...} or {\"String\": ...}");
    if (regex) return add_level(r, regex);
    for (; *literal; literal++) {
        if (strchr("\\[](){}|*+?.^$", *literal)) str_add_char(&escaped, '\\');
        str_add_char(&escaped, *literal);
    }
    rc = str_ok(&escaped, r->e);
    if (!rc) rc = add_level(r, str_text(&escaped));
    str_release(&escaped);
    return rc;
}

/* *is_bytes: set by the ByteLevel step, which must be the last. */
static err_t read_pre_tokenizer(struct reader *r, const json_t *step, int depth, bool *is_bytes)
{
    const char *type = type_of(step);
    err_t rc = ERR_NONE;

    if (strcmp(type, "Sequence") == 0 && depth < 4) {
        const json_t *steps = json_object_get(step, "pretokenizers");

        if (!json_is_array(steps))
            return malformed(r, "a Sequence in \"pre_tokenizer\" needs \"pretokenizers\": [...]");
        for (size_t i = 0; !rc && i < json_array_size(steps); i++)
            rc = read_pre_tokenizer(r, json_array_get(steps, i), depth + 1, is_bytes);
        return rc;
    }
    if (*is_bytes) return REFUSE(r, "\"pre_tokenizer\" with \"%.40s\" after ByteLevel", type);
    if (strcmp(type, "Split") == 0) return read_split(r, step);
    if (strcmp(type, "Digits") == 0)
        return add_level(r, json_is_true(json_object_get(step, "individual_digits")) ? "\\p{N}" : "\\p{N}+");
    if (strcmp(type, "ByteLevel") != 0) return REFUSE(r, "\"pre_tokenizer\" of type \"%.40s\"", type);
    /* both are true where the file does not say */
    if (!json_is_false(json_object_get(step, "add_prefix_space")))
        return REFUSE(r, "\"add_prefix_space\": true of ByteLevel in \"pre_tokenizer\"");
    if (!json_is_false(json_object_get(step, "use_regex"))) rc = add_level(r, SPLIT_GPT2);
    *is_bytes = true;
    return rc;
}

static err_t check_normalizer(struct reader *r, const json_t *normalizer)
{
    char text[120];

    if (is_absent(normalizer)) return ERR_NONE;
    if (strcmp(type_of(normalizer), "Sequence") == 0 &&
        json_array_size(json_object_get(normalizer, "normalizers")) == 0)
        return ERR_NONE;
    return REFUSE(r, "\"normalizer\": %s, which rewrites text before it is tokenized,", shown(normalizer, text));
}

/* ---- added tokens ---- */

static err_t read_added(struct reader *r, const json_t *model_vocab, const json_t *entry, size_t index,
                        struct added_token *out)
{
    const json_t *content = json_object_get(entry, "content"), *id = json_object_get(entry, "id"), *in_model;
    const char *text = json_string_value(content);
    json_int_t limit = (json_int_t)r->t->bpe.n_tokens * 4 + 65536;

    if (!text || !*text || !json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= TOKENIZER_MAX_VOCAB || json_integer_value(id) > limit)
        return FAIL(r->e, ERR_FORMAT,
                    "%s: \"added_tokens\"[%zu] needs a \"content\" and an \"id\" that fits the vocabulary", r->name,
                    index);
    if (json_is_true(json_object_get(entry, "single_word")))
        return REFUSE(r, "\"single_word\": true of the added token \"%.80s\"", text);
    in_model = json_object_get(model_vocab, text);
    if (in_model && json_integer_value(in_model) != json_integer_value(id))
        return FAIL(r->e, ERR_FORMAT, "%s: the added token \"%.80s\" has the id %d, but \"model.vocab\" gives it %d",
                    r->name, text, (int)json_integer_value(id), (int)json_integer_value(in_model));
    if (!in_model && json_integer_value(id) < r->t->bpe.n_tokens && r->t->bpe.tokens[json_integer_value(id)].bytes)
        return FAIL(r->e, ERR_FORMAT, "%s: the added token \"%.80s\" has the id %d of another token", r->name, text,
                    (int)json_integer_value(id));
    *out = (struct added_token){
        .text = arena_strdup(&r->t->arena, text),
        .n = (uint32_t)strlen(text),
        .id = (int32_t)json_integer_value(id),
        .is_special = json_is_true(json_object_get(entry, "special")),
        .is_normalized = json_is_true(json_object_get(entry, "normalized")),
        .strips_left = json_is_true(json_object_get(entry, "lstrip")),
        .strips_right = json_is_true(json_object_get(entry, "rstrip")),
    };
    return out->text ? ERR_NONE : FAIL(r->e, ERR_MEMORY, "out of memory for added tokens");
}

static err_t read_all_added(struct reader *r, const json_t *root)
{
    const json_t *list = json_object_get(root, "added_tokens");
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    size_t n = json_array_size(list);

    if (!is_absent(list) && !json_is_array(list)) return malformed(r, "\"added_tokens\" must be an array");
    if (n > TOKENIZER_MAX_VOCAB) return malformed(r, "\"added_tokens\" is too long");
    r->t->added = arena_array(&r->t->arena, n ? n : 1, sizeof *r->t->added);
    if (!r->t->added) return FAIL(r->e, ERR_MEMORY, "out of memory for added tokens");
    for (size_t i = 0; i < n; i++) {
        err_t rc = read_added(r, vocab, json_array_get(list, i), i, &r->t->added[i]);

        if (rc) return rc;
        r->t->n_added++;
    }
    return ERR_NONE;
}

/* ---- which tokens begin and end a document ---- */

static int32_t added_id(const struct reader *r, const char *text)
{
    int at = text ? tokenizer_find_added(r->t, text) : -1;

    return at < 0 ? -1 : r->t->added[at].id;
}

/* A TemplateProcessing's "single" says it best: [BOS, the text, EOS], any of the two left out. */
static void read_template(struct reader *r, const json_t *post, int depth)
{
    const json_t *parts = json_object_get(post, "single"), *nested = json_object_get(post, "processors");
    bool is_after_text = false;

    for (size_t i = 0; depth < 4 && i < json_array_size(nested); i++)
        read_template(r, json_array_get(nested, i), depth + 1);
    if (strcmp(type_of(post), "TemplateProcessing") != 0) return;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *special = json_object_get(json_array_get(parts, i), "SpecialToken");
        int32_t id = added_id(r, json_string_value(json_object_get(special, "id")));

        if (!special)
            is_after_text = true;
        else if (id >= 0)
            *(is_after_text ? &r->t->eos : &r->t->bos) = id;
    }
}

/* "bos_token" or "eos_token" of a tokenizer_config.json: a text, {"content": text}, or null for none. */
static err_t read_config_token(struct reader *r, const json_t *config, const char *key, int32_t *id)
{
    const json_t *value = json_object_get(config, key);
    const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    int32_t found = added_id(r, text);

    if (!value) return ERR_NONE;
    if (text && found < 0)
        return FAIL(r->e, ERR_FORMAT,
                    "%s: its tokenizer_config.json names \"%.80s\" as %s, which is not among its added tokens", r->name,
                    text, key);
    *id = found;
    return ERR_NONE;
}

static err_t read_specials(struct reader *r, const json_t *root, const char *config_text)
{
    json_error_t where;
    int32_t bos, eos;
    json_t *config;
    err_t rc;

    tokenizer_known_specials(r->t, &bos, &eos);
    read_template(r, json_object_get(root, "post_processor"), 0);
    if (r->t->bos < 0) r->t->bos = bos;
    if (r->t->eos < 0) r->t->eos = eos;
    if (!config_text) return ERR_NONE;
    config = json_loads(config_text, 0, &where);
    if (!config)
        return FAIL(r->e, ERR_FORMAT, "%s: its tokenizer_config.json is not JSON (line %d: %s)", r->name, where.line,
                    where.text);
    rc = read_config_token(r, config, "bos_token", &r->t->bos);
    if (!rc) rc = read_config_token(r, config, "eos_token", &r->t->eos);
    json_decref(config);
    return rc;
}

/* ---- the file ---- */

static err_t read_root(struct reader *r, const json_t *root, const char *config)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    bool is_bytes = false;
    err_t rc;

    if (!json_is_object(root)) return malformed(r, "it is not a JSON object, so it is not a tokenizer.json");
    if (!is_absent(json_object_get(root, "truncation"))) return REFUSE(r, "\"truncation\"");
    if (!is_absent(json_object_get(root, "padding"))) return REFUSE(r, "\"padding\"");
    rc = check_model(r, json_object_get(root, "model"));
    if (!rc) rc = check_normalizer(r, json_object_get(root, "normalizer"));
    if (!rc) rc = read_pre_tokenizer(r, pre, 0, &is_bytes);
    if (!rc && !is_bytes) rc = REFUSE(r, "\"pre_tokenizer\" without ByteLevel");
    if (!rc) rc = read_model(r, json_object_get(root, "model"));
    if (!rc) rc = read_all_added(r, root);
    if (!rc) rc = read_specials(r, root, config);
    return rc ? rc : tokenizer_finish(r->t, r->e);
}

err_t tokenizer_parse(struct tokenizer **out, const char *json, size_t n, const char *config, const char *name,
                      struct error *e)
{
    struct reader r = {.name = name, .e = e};
    uint16_t codes[256];
    json_error_t where;
    json_t *root = NULL;
    err_t rc = tokenizer_make(&r.t, e);

    *out = NULL;
    if (rc) return rc;
    memset(r.byte_of, 0xFF, sizeof r.byte_of);
    byte_alphabet(codes);
    for (int byte = 0; byte < 256; byte++) r.byte_of[codes[byte]] = (int16_t)byte;
    root = json_loadb(json ? json : "", n, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        rc = FAIL(e, ERR_FORMAT, "%s is not JSON (line %d, column %d: %s)", name, where.line, where.column, where.text);
    if (!rc) rc = read_root(&r, root, config);
    json_decref(root);
    str_release(&r.left);
    str_release(&r.right);
    if (rc)
        tokenizer_close(r.t);
    else
        *out = r.t;
    return rc;
}

static err_t open_byte(struct tokenizer **out, struct error *e)
{
    struct tokenizer *t = NULL;
    err_t rc = tokenizer_make(&t, e);

    for (int byte = 0; !rc && byte < 256; byte++) {
        char c = (char)byte;

        rc = bpe_set_token(&t->bpe, byte, &c, 1, false, e);
    }
    if (!rc) rc = bpe_index(&t->bpe, 0, e);
    if (!rc) {
        t->added = arena_array(&t->arena, 2, sizeof *t->added);
        if (!t->added) rc = FAIL(e, ERR_MEMORY, "out of memory for a tokenizer");
    }
    if (!rc) {
        t->added[0] =
            (struct added_token){.text = TOKENIZER_BOS, .n = sizeof TOKENIZER_BOS - 1, .id = 256, .is_special = true};
        t->added[1] =
            (struct added_token){.text = TOKENIZER_EOS, .n = sizeof TOKENIZER_EOS - 1, .id = 257, .is_special = true};
        t->n_added = 2;
        t->bos = 256;
        t->eos = 257;
        rc = tokenizer_finish(t, e);
    }
    if (rc)
        tokenizer_close(t);
    else
        *out = t;
    return rc;
}

err_t tokenizer_open(struct tokenizer **out, const char *path, struct error *e)
{
    struct str json = {0}, config = {0};
    struct arena a = {0};
    char *file, *folder, *config_file;
    err_t rc = ERR_NONE;

    *out = NULL;
    if (strcmp(path, TOKENIZER_BYTE) == 0) return open_byte(out, e);
    file = io_is_folder(path) ? io_join(&a, path, "tokenizer.json") : arena_strdup(&a, path);
    folder = file ? io_folder_of(&a, file) : NULL;
    config_file = folder ? io_join(&a, folder, "tokenizer_config.json") : NULL;
    if (!config_file) rc = FAIL(e, ERR_MEMORY, "out of memory for the tokenizer's path");
    if (!rc) rc = io_read_file_up_to(file, JSON_MAX_BYTES, &json, e);
    if (!rc && io_exists(config_file)) rc = io_read_file_up_to(config_file, JSON_MAX_BYTES, &config, e);
    if (!rc) rc = tokenizer_parse(out, json.text, json.length, config.text, file, e);
    str_release(&json);
    str_release(&config);
    arena_release(&a);
    return rc;
}

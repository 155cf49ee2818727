/* SPDX-License-Identifier: MIT */
/* Writing tokenizer.json, in the form that the reference's own Llama-3 and GPT-2 files have; see tokenizer_json.c for
 * reading. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer_parts.h"

/* The text of a model token: its bytes in the byte alphabet. */
static const char *alphabet_text(const struct bpe_token *token, const uint16_t codes[256], struct str *out)
{
    if (token->is_raw) return token->bytes;
    str_clear(out);
    for (uint32_t i = 0; i < token->n; i++) {
        unsigned code = codes[(unsigned char)token->bytes[i]];

        if (code >= 0x80) str_add_char(out, (char)(0xC0 | code >> 6));
        str_add_char(out, (char)(code >= 0x80 ? 0x80 | (code & 0x3F) : code));
    }
    return str_text(out);
}

static int by_id(const void *pa, const void *pb)
{
    const struct added_token *a = *(const struct added_token *const *)pa, *b = *(const struct added_token *const *)pb;

    return (a->id > b->id) - (a->id < b->id);
}

/* By id: the reference numbers them in the order of the file. */
static err_t write_added(const struct tokenizer *t, struct str *s, struct error *e)
{
    const struct added_token **sorted = mem_zalloc((size_t)t->n_added + 1, sizeof *sorted);

    if (!sorted) return FAIL(e, ERR_MEMORY, "out of memory for writing a tokenizer");
    for (int i = 0; i < t->n_added; i++) sorted[i] = &t->added[i];
    qsort(sorted, (size_t)t->n_added, sizeof *sorted, by_id);
    json_key(s, "added_tokens");
    json_open(s, '[');
    for (int i = 0; i < t->n_added; i++) {
        json_open(s, '{');
        json_member_int(s, "id", sorted[i]->id);
        json_member_text(s, "content", sorted[i]->text);
        json_member_bool(s, "single_word", false);
        json_member_bool(s, "lstrip", sorted[i]->strips_left);
        json_member_bool(s, "rstrip", sorted[i]->strips_right);
        json_member_bool(s, "normalized", sorted[i]->is_normalized);
        json_member_bool(s, "special", sorted[i]->is_special);
        json_close(s, '}');
    }
    json_close(s, ']');
    mem_free(sorted);
    return ERR_NONE;
}

static void write_byte_level(struct str *s, bool use_regex)
{
    json_open(s, '{');
    json_member_text(s, "type", "ByteLevel");
    json_member_bool(s, "add_prefix_space", false);
    json_member_bool(s, "trim_offsets", true);
    json_member_bool(s, "use_regex", use_regex);
    json_close(s, '}');
}

static void write_pre_tokenizer(const struct splitter *splitter, struct str *s)
{
    int n_splits = splitter->n_levels;
    bool use_regex = n_splits > 0 && splitter->levels[n_splits - 1].kind == SPLIT_KIND_GPT2;

    json_key(s, "pre_tokenizer");
    if (use_regex) n_splits--;
    if (n_splits) {
        json_open(s, '{');
        json_member_text(s, "type", "Sequence");
        json_key(s, "pretokenizers");
        json_open(s, '[');
    }
    for (int i = 0; i < n_splits; i++) {
        json_open(s, '{');
        json_member_text(s, "type", "Split");
        json_key(s, "pattern");
        json_open(s, '{');
        json_member_text(s, "Regex", splitter->levels[i].pattern);
        json_close(s, '}');
        json_member_text(s, "behavior", "Isolated");
        json_member_bool(s, "invert", false);
        json_close(s, '}');
    }
    write_byte_level(s, use_regex);
    if (n_splits) {
        json_close(s, ']');
        json_close(s, '}');
    }
}

static void write_part(struct str *s, const char *kind, const char *id)
{
    json_open(s, '{');
    json_key(s, kind);
    json_open(s, '{');
    json_member_text(s, "id", id);
    json_member_int(s, "type_id", 0);
    json_close(s, '}');
    json_close(s, '}');
}

static void write_template_token(struct str *s, const char *text, int32_t id)
{
    json_key(s, text);
    json_open(s, '{');
    json_member_text(s, "id", text);
    json_key(s, "ids");
    json_open(s, '[');
    json_int(s, id);
    json_close(s, ']');
    json_key(s, "tokens");
    json_open(s, '[');
    json_text(s, text);
    json_close(s, ']');
    json_close(s, '}');
}

/* Llama-3's template puts BOS before a text. EOS stands in it only where its name would not be recognised. */
static void write_post_processor(const struct tokenizer *t, struct str *s)
{
    int32_t known_bos, known_eos, eos;

    tokenizer_known_specials(t, &known_bos, &known_eos);
    eos = t->eos == known_eos ? -1 : t->eos;
    json_key(s, "post_processor");
    if (t->bos < 0 && eos < 0) {
        write_byte_level(s, true);
        return;
    }
    json_open(s, '{');
    json_member_text(s, "type", "TemplateProcessing");
    json_key(s, "single");
    json_open(s, '[');
    if (t->bos >= 0) write_part(s, "SpecialToken", t->texts[t->bos].bytes);
    write_part(s, "Sequence", "A");
    if (eos >= 0) write_part(s, "SpecialToken", t->texts[eos].bytes);
    json_close(s, ']');
    json_key(s, "pair");
    json_open(s, '[');
    write_part(s, "Sequence", "A");
    write_part(s, "Sequence", "B");
    json_close(s, ']');
    json_key(s, "special_tokens");
    json_open(s, '{');
    if (t->bos >= 0) write_template_token(s, t->texts[t->bos].bytes, t->bos);
    if (eos >= 0 && eos != t->bos) write_template_token(s, t->texts[eos].bytes, eos);
    json_close(s, '}');
    json_close(s, '}');
}

static void write_model(const struct bpe *b, struct str *s, struct str *a, struct str *c)
{
    uint16_t codes[256];

    byte_alphabet(codes);
    json_key(s, "model");
    json_open(s, '{');
    json_member_text(s, "type", "BPE");
    json_member_text(s, "dropout", NULL);
    json_member_text(s, "unk_token", NULL);
    json_member_text(s, "continuing_subword_prefix", NULL);
    json_member_text(s, "end_of_word_suffix", NULL);
    json_member_bool(s, "fuse_unk", false);
    json_member_bool(s, "byte_fallback", false);
    json_member_bool(s, "ignore_merges", b->ignore_merges);
    json_key(s, "vocab");
    json_open(s, '{');
    for (int32_t id = 0; id < b->n_tokens; id++) {
        if (!b->tokens[id].bytes) continue;
        json_member_int(s, alphabet_text(&b->tokens[id], codes, a), id);
    }
    json_close(s, '}');
    json_key(s, "merges");
    json_open(s, '[');
    for (int32_t i = 0; i < b->n_merges; i++) {
        json_open(s, '[');
        json_text(s, alphabet_text(&b->tokens[b->merges[i].left], codes, a));
        json_text(s, alphabet_text(&b->tokens[b->merges[i].right], codes, c));
        json_close(s, ']');
    }
    json_close(s, ']');
    json_close(s, '}');
}

err_t tokenizer_save(const struct tokenizer *t, const char *path, struct error *e)
{
    struct str s = {0}, a = {0}, c = {0};
    err_t rc;

    json_open(&s, '{');
    json_member_text(&s, "version", "1.0");
    json_member_text(&s, "truncation", NULL);
    json_member_text(&s, "padding", NULL);
    rc = write_added(t, &s, e);
    json_member_text(&s, "normalizer", NULL);
    write_pre_tokenizer(&t->splitter, &s);
    write_post_processor(t, &s);
    json_key(&s, "decoder");
    write_byte_level(&s, true);
    write_model(&t->bpe, &s, &a, &c);
    json_close(&s, '}');
    str_add_char(&s, '\n');
    if (!rc && (a.failed || c.failed)) rc = FAIL(e, ERR_MEMORY, "out of memory for writing %s", path);
    if (!rc) rc = str_ok(&s, e);
    if (!rc) rc = io_write_atomic(path, s.text, s.length, e);
    str_release(&s);
    str_release(&a);
    str_release(&c);
    return rc;
}

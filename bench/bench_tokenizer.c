/* SPDX-License-Identifier: MIT */
/*
 * Times the tokenizer on one thread: one JSON line with the best of several runs. The text is read as one document.
 *
 * usage: bench_tokenizer [[--repeat N] TOKENIZER FILE]
 * Without arguments: on the tests' vocabulary of 702 tokens and its text.
 *
 * load_ms: opening the tokenizer; encode_first_MB_s: the first pass of a fresh scratch (an empty cache of pieces),
 * encode_MB_s: a later pass; MB are 10^6 bytes of text. bench/peers/tokenizers_peer.py measures the `tokenizers`
 * package the same way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "data/tokenizer.h"

struct times {
    int64_t load_ns, first_ns, encode_ns, decode_ns; /* the best of all runs */
};

static void keep_best(int64_t *best, int64_t ns)
{
    if (!*best || ns < *best) *best = ns;
}

/* One run of everything. */
static err_t run(const char *path, const struct str *text, struct token_list *ids, struct str *back,
                 struct times *times, struct error *e)
{
    struct tokenizer_scratch *s = NULL;
    struct tokenizer *t = NULL;
    int64_t start = clock_ns();
    err_t rc = tokenizer_open(&t, path, e);

    if (!rc) keep_best(&times->load_ns, clock_ns() - start);
    if (!rc) rc = tokenizer_scratch_create(&s, t, e);
    for (int pass = 0; !rc && pass < 2; pass++) {
        ids->count = 0;
        start = clock_ns();
        rc = tokenizer_encode(t, s, text->text, text->length, false, ids, e);
        keep_best(pass ? &times->encode_ns : &times->first_ns, clock_ns() - start);
    }
    str_clear(back);
    start = clock_ns();
    if (!rc) rc = tokenizer_decode(t, ids->ids, ids->count, back, e);
    keep_best(&times->decode_ns, clock_ns() - start);
    if (!rc && (back->length != text->length || memcmp(back->text, text->text, text->length) != 0))
        rc = FAIL(e, ERR_FORMAT, "decoding did not give the text back");
    tokenizer_scratch_destroy(s);
    tokenizer_close(t);
    return rc;
}

static void report(const char *path, const struct str *text, const struct token_list *ids, const struct times *times)
{
    double bytes = (double)text->length;
    struct str line = {0};

    json_open(&line, '{');
    json_member_text(&line, "bench", "tokenizer");
    json_member_text(&line, "tokenizer", path);
    json_member_int(&line, "bytes", (int64_t)text->length);
    json_member_int(&line, "tokens", (int64_t)ids->count);
    json_member_number(&line, "load_ms", (double)times->load_ns / 1e6);
    json_member_number(&line, "encode_first_MB_s", bytes * 1e3 / (double)times->first_ns);
    json_member_number(&line, "encode_MB_s", bytes * 1e3 / (double)times->encode_ns);
    json_member_number(&line, "decode_MB_s", bytes * 1e3 / (double)times->decode_ns);
    json_close(&line, '}');
    puts(str_text(&line));
    str_release(&line);
}

#define GOLDEN "tests/golden/tokenizer/"

int main(int argc, char **argv)
{
    int repeat = argc == 5 && strcmp(argv[1], "--repeat") == 0 ? atoi(argv[2]) : 5;
    const char *tokenizer = argc == 1 ? GOLDEN "ctitan.json" : argv[argc - 2];
    const char *file = argc == 1 ? GOLDEN "train.txt" : argv[argc - 1];
    struct str text = {0}, back = {0};
    struct token_list ids = {0};
    struct times times = {0};
    struct error e = {0};
    err_t rc;

    if ((argc != 1 && argc != 3 && argc != 5) || repeat < 1)
        return fputs("usage: bench_tokenizer [[--repeat N] TOKENIZER FILE]\n", stderr), 2;
    rc = io_read_file(file, &text, &e);
    for (int i = 0; !rc && i < repeat; i++) rc = run(tokenizer, &text, &ids, &back, &times, &e);
    if (!rc)
        report(tokenizer, &text, &ids, &times);
    else
        fprintf(stderr, "bench_tokenizer: %s\n", e.message);
    str_release(&text);
    str_release(&back);
    token_list_release(&ids);
    return rc ? 1 : 0;
}

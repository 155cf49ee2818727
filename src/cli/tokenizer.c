/* SPDX-License-Identifier: MIT */
/* ctitan tokenizer: train a byte-level BPE vocabulary, turn text into ids and ids into text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cli.h"
#include "data/tokenizer.h"

#define STDIN_PATH "/dev/stdin"

static const char help_all[] =
    "usage: ctitan tokenizer train --vocab-size N --output FILE [options] INPUT...\n"
    "       ctitan tokenizer encode [--special] TOKENIZER [FILE]\n"
    "       ctitan tokenizer decode TOKENIZER [FILE]\n"
    "\n"
    "TOKENIZER is a tokenizer.json (byte-level BPE), a folder that holds one, or the word byte for the built-in\n"
    "tokenizer of bytes. `ctitan tokenizer train --help` (encode, decode) says more.\n";
static const char help_train[] =
    "usage: ctitan tokenizer train --vocab-size N --output FILE [options] INPUT...\n"
    "\n"
    "Learns a byte-level BPE vocabulary from text files and writes it as a tokenizer.json. The same text gives the\n"
    "same file, byte for byte.\n"
    "\n"
    "  --vocab-size N     tokens in all: 256 bytes, learned ones, and the two special tokens\n"
    "  --output FILE      where to write\n"
    "  --pattern NAME     how text is cut into words first: llama3 (default), gpt2, qwen\n"
    "  --separator LINE   a line that holds just this ends a document (fortune files: %)\n"
    "  --bos TEXT         token that begins a document (default " TOKENIZER_BOS "; \"\" for none)\n"
    "  --eos TEXT         token that ends a document (default " TOKENIZER_EOS "; \"\" for none)\n";
static const char help_encode[] =
    "usage: ctitan tokenizer encode [--special] TOKENIZER [FILE]\n"
    "\n"
    "Prints the ids of the text in FILE (standard input without one) on one line, without tokens for its beginning\n"
    "and end. Any bytes are accepted; what is not UTF-8 is kept byte for byte.\n"
    "\n"
    "  --special          text that spells a special token becomes that token; else it is ordinary text\n";
static const char help_decode[] = "usage: ctitan tokenizer decode TOKENIZER [FILE]\n"
                                  "\n"
                                  "Reads ids (decimal numbers between white space) from FILE or standard input and "
                                  "writes the bytes they stand for.\n";

/* ---- command lines ---- */

struct options {
    const char *vocab_size, *output, *pattern, *separator, *bos, *eos;
    bool special, help;
    char **rest; /* what is not an option, in argv */
    int n_rest;
};

struct option {
    const char *name;
    const char **value; /* NULL: a flag */
    bool *flag;
};

/* Sorts argv into options and the rest; "--" ends the options, "--name=value" works too. */
static err_t read_options(int argc, char **argv, const struct option *known, struct options *o, struct error *e)
{
    bool is_open = true;

    o->rest = argv;
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        size_t n = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        const struct option *k = known;

        if (!is_open || argv[i][0] != '-' || !argv[i][1]) {
            o->rest[o->n_rest++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            is_open = false;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            o->help = true;
        } else {
            while (k->name && (strlen(k->name) != n || memcmp(k->name, argv[i], n) != 0)) k++;
            if (!k->name)
                return FAIL(e, ERR_USAGE, "%s: unknown option %s (see ctitan tokenizer %s --help)", argv[0], argv[i],
                            argv[0]);
            if (k->flag && equals) return FAIL(e, ERR_USAGE, "%s: %s takes no value", argv[0], k->name);
            if (k->flag)
                *k->flag = true;
            else if (equals)
                *k->value = equals + 1;
            else if (i + 1 < argc)
                *k->value = argv[++i];
            else
                return FAIL(e, ERR_USAGE, "%s: %s needs a value", argv[0], k->name);
        }
    }
    return ERR_NONE;
}

static err_t read_number(const char *text, int32_t *out, struct error *e)
{
    char *end = NULL;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (!*text || *end || errno || value < 1 || value > TOKENIZER_MAX_VOCAB)
        return FAIL(e, ERR_USAGE, "train: --vocab-size is \"%s\"; it must be a number from 256 to %d", text,
                    (int)TOKENIZER_MAX_VOCAB);
    *out = (int32_t)value;
    return ERR_NONE;
}

/* ---- train ---- */

struct corpus {
    struct str *texts; /* a file each */
    struct tokenizer_document *documents;
    size_t n, capacity;
};

static err_t add_document(struct corpus *c, const char *bytes, size_t n, struct error *e)
{
    if (n == 0) return ERR_NONE;
    if (c->n == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 64;
        struct tokenizer_document *grown = mem_resize(c->documents, capacity, sizeof *grown);

        if (!grown) return FAIL(e, ERR_MEMORY, "out of memory for %zu documents", capacity);
        c->documents = grown;
        c->capacity = capacity;
    }
    c->documents[c->n++] = (struct tokenizer_document){bytes, n};
    return ERR_NONE;
}

/* Cuts a text at the lines that hold `separator` alone (NULL: one document). */
static err_t add_text(struct corpus *c, const struct str *text, const char *separator, struct error *e)
{
    const char *p = str_text(text), *end = p + text->length, *begin = p;
    size_t n = separator ? strlen(separator) : 0;
    err_t rc = ERR_NONE;

    while (!rc && separator && p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const char *next = newline ? newline + 1 : end;
        size_t line = (size_t)((newline ? newline : end) - p);

        if (line && p[line - 1] == '\r') line--;
        if (line == n && memcmp(p, separator, n) == 0) {
            rc = add_document(c, begin, (size_t)(p - begin), e);
            begin = next;
        }
        p = next;
    }
    return rc ? rc : add_document(c, begin, (size_t)(end - begin), e);
}

static err_t train_on(const struct options *o, const struct tokenizer_spec *spec, struct corpus *c, struct error *e)
{
    struct tokenizer *t = NULL;
    err_t rc = ERR_NONE;

    for (int i = 0; !rc && i < o->n_rest; i++) {
        if (io_is_folder(o->rest[i]))
            return FAIL(e, ERR_USAGE, "train: %s is a folder: name the files in it", o->rest[i]);
        rc = io_read_stream(o->rest[i], &c->texts[i], e);
        if (!rc) rc = add_text(c, &c->texts[i], o->separator, e);
    }
    if (!rc) rc = tokenizer_train(&t, spec, c->documents, c->n, e);
    if (!rc) rc = tokenizer_save(t, o->output, e);
    if (!rc)
        fprintf(stderr, "%s: %d tokens from %zu documents in %d file%s\n", o->output, tokenizer_vocab_size(t), c->n,
                o->n_rest, o->n_rest == 1 ? "" : "s");
    tokenizer_close(t);
    return rc;
}

static err_t train(int argc, char **argv, struct error *e)
{
    struct options o = {0};
    const struct option known[] = {{"--vocab-size", &o.vocab_size, NULL},
                                   {"--output", &o.output, NULL},
                                   {"--pattern", &o.pattern, NULL},
                                   {"--separator", &o.separator, NULL},
                                   {"--bos", &o.bos, NULL},
                                   {"--eos", &o.eos, NULL},
                                   {NULL, NULL, NULL}};
    struct tokenizer_spec spec = {0};
    struct corpus c = {0};
    err_t rc = read_options(argc, argv, known, &o, e);

    if (rc) return rc;
    if (o.help) return fputs(help_train, stdout), ERR_NONE;
    if (!o.vocab_size || !o.output || !o.n_rest)
        return FAIL(
            e, ERR_USAGE,
            "train: it needs --vocab-size, --output and at least one text file (see ctitan tokenizer train --help)");
    spec = (struct tokenizer_spec){.pattern = o.pattern, .bos = o.bos, .eos = o.eos};
    rc = read_number(o.vocab_size, &spec.vocab_size, e);
    if (rc) return rc;
    c.texts = mem_zalloc((size_t)o.n_rest, sizeof *c.texts);
    rc = c.texts ? train_on(&o, &spec, &c, e) : FAIL(e, ERR_MEMORY, "out of memory for %d files", o.n_rest);
    for (int i = 0; c.texts && i < o.n_rest; i++) str_release(&c.texts[i]);
    mem_free(c.texts);
    mem_free(c.documents);
    return rc;
}

/* ---- encode, decode ---- */

static err_t encode_text(const struct tokenizer *t, const struct str *text, bool special, struct error *e)
{
    struct tokenizer_scratch *scratch = NULL;
    struct token_list ids = {0};
    struct str line = {0};
    err_t rc = tokenizer_scratch_create(&scratch, t, e);

    if (!rc) rc = tokenizer_encode(t, scratch, str_text(text), text->length, special, &ids, e);
    for (size_t i = 0; !rc && i < ids.count; i++) str_addf(&line, i ? " %d" : "%d", ids.ids[i]);
    str_add_char(&line, '\n');
    if (!rc) rc = cli_print(&line, e);
    str_release(&line);
    token_list_release(&ids);
    tokenizer_scratch_destroy(scratch);
    return rc;
}

static err_t read_ids(const struct str *text, struct token_list *ids, struct error *e)
{
    const char *p = str_text(text), *end = p + text->length;
    err_t rc = ERR_NONE;

    while (!rc) {
        char *stop = NULL;
        long value;
        int32_t id;

        p += strspn(p, " \t\r\n");
        if (p == end) break;
        errno = 0;
        value = strtol(p, &stop, 10);
        if (stop == p || errno || value < 0 || value > INT32_MAX || (stop < end && !strchr(" \t\r\n", *stop)) ||
            (stop < end && !*stop))
            return FAIL(e, ERR_FORMAT, "decode: \"%.20s\" at byte %zu is not a token id", p,
                        (size_t)(p - str_text(text)));
        id = (int32_t)value;
        rc = token_list_add(ids, &id, 1, e);
        p = stop;
    }
    return rc;
}

static err_t decode_text(const struct tokenizer *t, const struct str *text, struct error *e)
{
    struct token_list ids = {0};
    struct str bytes = {0};
    err_t rc = read_ids(text, &ids, e);

    if (!rc) rc = tokenizer_decode(t, ids.ids, ids.count, &bytes, e);
    if (!rc) rc = cli_print(&bytes, e);
    str_release(&bytes);
    token_list_release(&ids);
    return rc;
}

static err_t convert(int argc, char **argv, bool is_encode, struct error *e)
{
    struct options o = {0};
    const struct option with_flag[] = {{"--special", NULL, &o.special}, {NULL, NULL, NULL}};
    struct tokenizer *t = NULL;
    struct str text = {0};
    err_t rc = read_options(argc, argv, is_encode ? with_flag : with_flag + 1, &o, e);

    if (rc) return rc;
    if (o.help) return fputs(is_encode ? help_encode : help_decode, stdout), ERR_NONE;
    if (o.n_rest < 1 || o.n_rest > 2)
        return FAIL(e, ERR_USAGE, "%s: it needs a tokenizer and at most one file (see ctitan tokenizer %s --help)",
                    argv[0], argv[0]);
    rc = tokenizer_open(&t, o.rest[0], e);
    if (!rc) rc = io_read_stream(o.n_rest == 2 && strcmp(o.rest[1], "-") != 0 ? o.rest[1] : STDIN_PATH, &text, e);
    if (!rc) rc = is_encode ? encode_text(t, &text, o.special, e) : decode_text(t, &text, e);
    str_release(&text);
    tokenizer_close(t);
    return rc;
}

int cli_tokenizer(int argc, char **argv, struct error *e)
{
    const char *verb = argc >= 2 ? argv[1] : "";

    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) return fputs(help_all, stdout), CLI_OK;
    if (strcmp(verb, "train") == 0) return cli_exit_code(train(argc - 1, argv + 1, e));
    if (strcmp(verb, "encode") == 0) return cli_exit_code(convert(argc - 1, argv + 1, true, e));
    if (strcmp(verb, "decode") == 0) return cli_exit_code(convert(argc - 1, argv + 1, false, e));
    if (*verb) return cli_exit_code(FAIL(e, ERR_USAGE, "\"%.40s\" is not train, encode or decode", verb));
    fputs(help_all, stderr);
    return CLI_USAGE;
}

/* SPDX-License-Identifier: MIT */
/* From a description of data to a cache: right tokens, made once, kept, made again when anything that matters changed.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/io.h"
#include "base/mem.h"
#include "data/prepare.h"
#include "data/tokenizer.h"
#include "tests/support/configs.h"
#include "tests/support/temp.h"

enum { BOS = 256, EOS = 257 };

/* A folder with data, a cache folder, and the description of both. */
struct scene {
    struct temp t;
    char data[TEMP_PATH_BYTES], cache[TEMP_PATH_BYTES + 128];
    const char *path;
    struct data_spec spec;
    struct pool *pool;
};

static void scene_make(struct scene *s)
{
    struct error e;

    memset(s, 0, sizeof *s);
    temp_make(&s->t);
    snprintf(s->data, sizeof s->data, "%.400s/data", s->t.folder);
    snprintf(s->cache, sizeof s->cache, "%s/cache/deep", s->t.folder);
    s->path = s->data;
    s->spec = (struct data_spec){.tokenizer = "byte", .tokenizer_vocab_size = 300, .cache_folder = s->cache};
    s->spec.source.paths = &s->path;
    s->spec.source.n_paths = 1;
    assert_int_equal(pool_create(&s->pool, 3, &e), ERR_NONE);
}

static void scene_remove(struct scene *s)
{
    pool_destroy(s->pool);
    temp_remove(&s->t);
}

static struct data_prepared prepare(struct scene *s)
{
    struct data_prepared p;
    struct error e;

    if (data_prepare(&s->spec, s->pool, NULL, NULL, &p, &e)) fail_msg("%s", e.message);
    return p;
}

/* Prepares and says whether the cache was made by this call. */
static bool was_made(struct scene *s)
{
    struct data_prepared p = prepare(s);
    bool made = p.made_cache;

    data_prepared_release(&p);
    return made;
}

/* Dates of all files into the past, so that stamps are trusted. */
static void age(const char *path)
{
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};

    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
}

static void expect_tokens(struct scene *s, const int32_t *want, int n)
{
    struct data_prepared p = prepare(s);
    struct token_cache *c;
    struct error e;
    int32_t got[256];

    if (data_open(&c, &p, &e)) fail_msg("%s", e.message);
    assert_int_equal(token_cache_tokens(c), n);
    assert_int_equal(token_cache_read(c, 0, n, got, &e), ERR_NONE);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    assert_int_equal(token_cache_verify(c, &e), ERR_NONE);
    assert_int_equal(token_cache_vocab_size(c), p.vocab_size);
    token_cache_close(c);
    data_prepared_release(&p);
}

static void test_documents_become_tokens(void **state)
{
    static const int32_t want[] = {BOS, 'a', 'b', EOS, BOS, 'c', '\n', EOS, BOS, 0xff, '<', 's', '>', EOS};
    struct scene s;
    struct data_prepared p;
    struct token_cache *c;
    const struct token_cache_header *h;
    struct error e;

    (void)state;
    scene_make(&s);
    temp_write_text(&s.t, "data/1.txt", "ab");
    temp_write_text(&s.t, "data/2.txt",
                    "\xef\xbb\xbf"
                    "c\n");
    temp_write_text(&s.t, "data/3.jsonl", "{\"text\":\"\"}\n{\"text\":\"  \"}\n{}\n");
    temp_write_text(&s.t, "data/4.txt", "\xff<s>");
    expect_tokens(&s, want, sizeof want / sizeof *want);
    p = prepare(&s);
    assert_int_equal(p.vocab_size, 258);
    assert_string_equal(p.tokenizer_path, "byte");
    assert_int_equal(data_open(&c, &p, &e), ERR_NONE);
    h = token_cache_header(c);
    assert_int_equal(h->n_documents, 3);
    assert_int_equal(h->n_files, 4);
    assert_int_equal(h->n_text_bytes, 2 + 2 + 4);
    assert_int_equal(h->skipped[SOURCE_SKIP_EMPTY], 1);
    assert_int_equal(h->skipped[SOURCE_SKIP_BLANK], 1);
    assert_int_equal(h->skipped[SOURCE_SKIP_NO_FIELD], 1);
    token_cache_close(c);
    data_prepared_release(&p);
    scene_remove(&s);
}

/* The file is the same for any number of threads. */
static void test_threads_do_not_matter(void **state)
{
    struct str many = {0}, one = {0}, three = {0};
    struct scene s;
    struct data_prepared p;
    struct error e;

    (void)state;
    scene_make(&s);
    for (int i = 0; i < 300000; i++) str_addf(&many, i % 97 ? "line %d\n" : "%%\n%d\n", i);
    temp_write(&s.t, "data/many.txt", many.text, many.length);
    s.spec.source.separator = "%";
    p = prepare(&s);
    assert_true(p.made_cache);
    assert_int_equal(io_read_file(p.cache_path, &three, &e), ERR_NONE);
    assert_int_equal(unlink(p.cache_path), 0);
    data_prepared_release(&p);
    pool_destroy(s.pool);
    s.pool = NULL;
    p = prepare(&s);
    assert_true(p.made_cache);
    assert_int_equal(io_read_file(p.cache_path, &one, &e), ERR_NONE);
    assert_int_equal(one.length, three.length);
    assert_memory_equal(one.text, three.text, one.length);
    data_prepared_release(&p);
    str_release(&many);
    str_release(&one);
    str_release(&three);
    scene_remove(&s);
}

static void test_made_once(void **state)
{
    struct scene s;
    char file[TEMP_PATH_BYTES + 16];

    (void)state;
    scene_make(&s);
    snprintf(file, sizeof file, "%s/a.txt", s.data);
    temp_write_text(&s.t, "data/a.txt", "hello");
    assert_true(was_made(&s));
    assert_false(was_made(&s));
    age(file);
    assert_false(was_made(&s)); /* another date, the same content */
    temp_write_text(&s.t, "data/a.txt", "hallo");
    assert_true(was_made(&s)); /* the same size */
    temp_write_text(&s.t, "data/a.txt", "hello");
    assert_false(was_made(&s)); /* and back: both are kept */
    temp_write_text(&s.t, "data/b.txt", "more");
    assert_true(was_made(&s));
    s.spec.source.separator = "%";
    assert_true(was_made(&s));
    scene_remove(&s);
}

/* The warm way itself: with a stamp, the files are not even opened. */
static void test_a_stamp_spares_reading(void **state)
{
    struct data_prepared p;
    struct scene s;
    char file[TEMP_PATH_BYTES + 16], stamp[1024] = "";
    struct arena a = {0};
    struct str text = {0};
    struct error e;
    char **names;
    int n;

    (void)state;
    scene_make(&s);
    snprintf(file, sizeof file, "%s/a.txt", s.data);
    temp_write_text(&s.t, "data/a.txt", "hello");
    assert_true(was_made(&s));
    assert_int_equal(io_list(s.cache, &a, &names, &n, &e), ERR_NONE);
    for (int i = 0; i < n; i++)
        assert_true(strncmp(names[i], "stamp-", 6) != 0 || strstr(names[i], ".lock")); /* too fresh to trust */
    sleep(3);
    assert_false(was_made(&s));
    assert_int_equal(io_list(s.cache, &a, &names, &n, &e), ERR_NONE);
    for (int i = 0; i < n; i++)
        if (strncmp(names[i], "stamp-", 6) == 0 && !strstr(names[i], ".lock"))
            snprintf(stamp, sizeof stamp, "%s/%s", s.cache, names[i]);
    assert_true(stamp[0]);
    /* a stamp that leads elsewhere is followed: proof that the content was not read */
    p = prepare(&s);
    assert_int_equal(io_read_file(stamp, &text, &e), ERR_NONE);
    assert_non_null(strstr(text.text, " byte\n"));
    strcpy(strstr(text.text, " byte\n"), " else\n");
    temp_write_text(&s.t, "stamp", text.text);
    assert_int_equal(rename(temp_path(&s.t, "stamp"), stamp), 0);
    data_prepared_release(&p);
    p = prepare(&s);
    assert_string_equal(p.tokenizer_path, "else");
    data_prepared_release(&p);
    /* torn stamps are made again */
    for (size_t length = 0; length < text.length; length += 5) {
        assert_int_equal(truncate(stamp, (off_t)length), 0);
        p = prepare(&s);
        assert_string_equal(p.tokenizer_path, "byte");
        data_prepared_release(&p);
    }
    str_release(&text);
    arena_release(&a);
    scene_remove(&s);
}

static void test_torn_and_foreign_caches_are_made_again(void **state)
{
    static const int32_t want[] = {BOS, 'h', 'i', EOS};
    struct data_prepared p;
    struct scene s;

    (void)state;
    scene_make(&s);
    temp_write_text(&s.t, "data/a.txt", "hi");
    p = prepare(&s);
    for (int k = 0; k < 4; k++) {
        FILE *f;

        if (k == 0) assert_int_equal(truncate(p.cache_path, 170), 0);
        if (k == 1) assert_int_equal(truncate(p.cache_path, 0), 0);
        if (k == 2) assert_int_equal(unlink(p.cache_path), 0);
        if (k == 3) {
            f = fopen(p.cache_path, "wb");
            for (int i = 0; i < 500; i++) fputs("not a cache ", f);
            fclose(f);
        }
        assert_true(was_made(&s));
        expect_tokens(&s, want, 4);
    }
    data_prepared_release(&p);
    scene_remove(&s);
}

static void test_automatic_tokenizer(void **state)
{
    struct data_prepared p, again;
    struct tokenizer *t;
    struct scene s;
    struct error e;
    struct str text = {0};

    (void)state;
    scene_make(&s);
    for (int i = 0; i < 400; i++) str_addf(&text, "the quick brown fox %d jumps over the lazy dog %d\n", i % 7, i);
    temp_write_text(&s.t, "data/a.txt", text.text);
    s.spec.tokenizer = DATA_TOKENIZER_AUTO;
    p = prepare(&s);
    assert_true(p.made_tokenizer && p.made_cache);
    assert_int_equal(p.vocab_size, 300);
    if (tokenizer_open(&t, p.tokenizer_path, &e)) fail_msg("%s", e.message);
    assert_int_equal(tokenizer_vocab_size(t), 300);
    tokenizer_close(t);
    again = prepare(&s);
    assert_false(again.made_tokenizer || again.made_cache);
    assert_string_equal(again.tokenizer_path, p.tokenizer_path);
    data_prepared_release(&again);
    s.spec.tokenizer_vocab_size = 290;
    again = prepare(&s);
    assert_true(again.made_tokenizer && again.made_cache);
    assert_string_not_equal(again.tokenizer_path, p.tokenizer_path);
    data_prepared_release(&again);
    /* a damaged one is learnt again, to the same file and cache */
    s.spec.tokenizer_vocab_size = 300;
    assert_int_equal(truncate(p.tokenizer_path, 100), 0);
    again = prepare(&s);
    assert_true(again.made_tokenizer && !again.made_cache);
    assert_true(again.key == p.key);
    data_prepared_release(&again);
    data_prepared_release(&p);
    str_release(&text);
    scene_remove(&s);
}

/* Processes and threads that start together: all succeed, exactly one makes the cache. */
static void *prepare_in_thread(void *arg)
{
    struct scene *s = arg;
    struct data_prepared p;
    struct error e;
    long made = -1;

    if (data_prepare(&s->spec, NULL, NULL, NULL, &p, &e) == ERR_NONE) {
        made = p.made_cache;
        data_prepared_release(&p);
    }
    return (void *)made;
}

static void test_concurrent_builders(void **state)
{
    enum { N = 4 };
    pthread_t threads[N];
    struct scene s;
    pid_t children[N];
    long made = 0;

    (void)state;
    scene_make(&s);
    temp_write_text(&s.t, "data/a.txt", "some text that all of them want");
    for (int i = 0; i < N; i++) {
        children[i] = fork();
        if (children[i] == 0) _exit((int)(long)prepare_in_thread(&s) & 0xff);
    }
    for (int i = 0; i < N; i++) {
        int status;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
        made += WEXITSTATUS(status);
    }
    assert_int_equal(made, 1);
    made = 0;
    temp_write_text(&s.t, "data/b.txt", "and some more");
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&threads[i], NULL, prepare_in_thread, &s), 0);
    for (int i = 0; i < N; i++) {
        void *result;

        pthread_join(threads[i], &result);
        assert_true((long)result >= 0);
        made += (long)result;
    }
    assert_int_equal(made, 1);
    scene_remove(&s);
}

/* Asks for the end at call number `at`. */
struct stop {
    int at, calls;
    char what[64];
};

static bool stop_at(void *arg, const char *what, int64_t done, int64_t total)
{
    struct stop *s = arg;

    (void)done, (void)total;
    if (s->calls++ < s->at) return true;
    snprintf(s->what, sizeof s->what, "%s", what);
    return false;
}

/* Whatever is under way, the work ends with the next report, and the one that comes after it finds nothing half done.
 */
static void test_stopped_anywhere(void **state)
{
    static const char *const works[] = {"reading the data", "reading text for the tokenizer", "learning the tokenizer",
                                        "tokenizing"};
    int n_seen[4] = {0};
    struct data_prepared p;
    struct scene s;
    struct error e;
    err_t rc;

    (void)state;
    scene_make(&s);
    temp_write_text(&s.t, "data/a.txt", "a text a text, and text again and again and again");
    s.spec.tokenizer = DATA_TOKENIZER_AUTO;
    s.spec.tokenizer_vocab_size = 262;
    for (int at = 0;; at++) {
        struct stop stop = {.at = at};

        rc = data_prepare(&s.spec, s.pool, stop_at, &stop, &p, &e);
        if (!rc) break;
        assert_int_equal(rc, ERR_INTERRUPTED);
        assert_non_null(strstr(e.message, "nothing was saved"));
        assert_int_equal(stop.calls, at + 1);
        for (int i = 0; i < 4; i++) n_seen[i] += strcmp(stop.what, works[i]) == 0;
        if (n_seen[3] && io_remove_tree(s.cache, &e)) fail_msg("%s", e.message); /* else the tokenizer stays */
    }
    for (int i = 0; i < 4; i++) assert_true(n_seen[i] > 0);
    assert_true(n_seen[2] > 4); /* also between merges */
    data_prepared_release(&p);
    scene_remove(&s);
}

static void test_failures(void **state)
{
    struct rlimit old, small = {.rlim_cur = 4000};
    struct data_prepared p;
    struct scene s;
    struct error e;
    struct str text = {0};
    err_t rc;

    (void)state;
    scene_make(&s);
    temp_write_text(&s.t, "data/a.txt", " \n");
    temp_write_text(&s.t, "data/b.txt", "");
    assert_int_equal(data_prepare(&s.spec, s.pool, NULL, NULL, &p, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "1 empty, 1 only white space"));
    s.spec.tokenizer = DATA_TOKENIZER_AUTO;
    assert_int_equal(data_prepare(&s.spec, s.pool, NULL, NULL, &p, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "1 empty, 1 only white space"));
    temp_write_text(&s.t, "data/a.txt", "too short for that vocabulary");
    s.spec.tokenizer_vocab_size = 2048;
    assert_int_equal(data_prepare(&s.spec, s.pool, NULL, NULL, &p, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "training.tokenizer_vocab_size=2048"));
    temp_write_text(&s.t, "data/a.txt", " \n");
    s.spec.tokenizer = "byte";
    temp_write_text(&s.t, "data/bad.jsonl", "{\"text\":\"ok\"}\n{\"text\":}\n");
    assert_int_equal(data_prepare(&s.spec, s.pool, NULL, NULL, &p, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, "bad.jsonl, line 2"));
    temp_write_text(&s.t, "data/bad.jsonl", "{\"text\":\"ok\"}\n");
    s.spec.tokenizer = "/no/such/tokenizer.json";
    assert_int_not_equal(data_prepare(&s.spec, s.pool, NULL, NULL, &p, &e), ERR_NONE);
    assert_non_null(strstr(e.message, "/no/such/tokenizer.json"));
    s.spec.tokenizer = "byte";
    /* a full disk: a clear error, and it works once there is room */
    for (int i = 0; i < 1000; i++) str_add(&text, "a lot of text ");
    temp_write_text(&s.t, "data/c.txt", text.text);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    rc = data_prepare(&s.spec, s.pool, NULL, NULL, &p, &e);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(rc, ERR_IO);
    assert_non_null(strstr(e.message, s.cache));
    assert_true(was_made(&s));
    str_release(&text);
    scene_remove(&s);
}

/* Memory runs out at each allocation in turn: an error that says so, or success where it could be done without. */
static void test_out_of_memory(void **state)
{
    struct data_prepared p;
    struct scene s;
    struct error e;
    long n = 0, failed = 0;
    bool fired = true;

    (void)state;
    scene_make(&s);
    temp_write_text(&s.t, "data/a.txt", "some text");
    temp_write_text(&s.t, "data/b.jsonl", "{\"text\":\"more\"}\n");
    for (n = 0; fired; n++) {
        err_t rc;

        assert_int_equal(io_remove_tree(s.cache, &e), ERR_NONE);
        mem_fault_arm(n);
        rc = data_prepare(&s.spec, NULL, NULL, NULL, &p, &e);
        fired = mem_fault_fired();
        mem_fault_arm(-1);
        if (rc) {
            assert_true(fired);
            assert_int_equal(rc, ERR_MEMORY);
            assert_null(p.cache_path);
            failed++;
        }
        data_prepared_release(&p);
    }
    assert_true(failed > 20);
    scene_remove(&s);
}

static void test_places_and_fallback(void **state)
{
    static const int32_t want[] = {BOS, 'x', EOS};
    const char *given = "rel.txt", *fallback = "other.txt", *absent = "absent.txt", *both[] = {"other.txt", "rel.txt"};
    struct data_prepared p;
    struct scene s;
    struct error e;
    char xdg[TEMP_PATH_BYTES + 32], home[TEMP_PATH_BYTES + 32];

    (void)state;
    scene_make(&s);
    temp_write_text(&s.t, "other.txt", "x");
    s.spec.source.paths = &given;
    s.spec.folder = s.t.folder;
    assert_int_equal(data_prepare(&s.spec, NULL, NULL, NULL, &p, &e), ERR_CONFIG);
    s.spec.fallback = &absent;
    s.spec.n_fallback = 1;
    assert_int_equal(data_prepare(&s.spec, NULL, NULL, NULL, &p, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "rel.txt"));
    assert_non_null(strstr(e.message, "absent.txt"));
    s.spec.fallback = &fallback;
    s.spec.n_fallback = 1;
    expect_tokens(&s, want, 3);
    p = prepare(&s);
    assert_true(p.used_fallback);
    data_prepared_release(&p);
    s.spec.source.paths = both; /* a part that is missing is an error */
    s.spec.source.n_paths = 2;
    assert_int_equal(data_prepare(&s.spec, NULL, NULL, NULL, &p, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "rel.txt"));
    s.spec.source.paths = &given;
    s.spec.source.n_paths = 1;
    snprintf(xdg, sizeof xdg, "%s/xdg", s.t.folder);
    snprintf(home, sizeof home, "%s/home", s.t.folder);
    setenv("XDG_CACHE_HOME", xdg, 1);
    setenv("HOME", home, 1);
    s.spec.cache_folder = "";
    p = prepare(&s);
    assert_memory_equal(p.cache_path, xdg, strlen(xdg));
    assert_non_null(strstr(p.cache_path, "/xdg/ctitan/tokens-"));
    data_prepared_release(&p);
    unsetenv("XDG_CACHE_HOME");
    p = prepare(&s);
    assert_non_null(strstr(p.cache_path, "/home/.cache/ctitan/tokens-"));
    data_prepared_release(&p);
    unsetenv("HOME");
    assert_int_equal(data_prepare(&s.spec, NULL, NULL, NULL, &p, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "training.cache_folder"));
    scene_remove(&s);
}

static void test_synthetic(void **state)
{
    const char *given = DATA_SYNTHETIC;
    struct data_prepared p;
    struct token_cache *c;
    struct scene s;
    struct error e;

    (void)state;
    scene_make(&s);
    s.spec.source.paths = &given;
    s.spec.tokenizer = DATA_TOKENIZER_AUTO;
    p = prepare(&s);
    assert_null(p.cache_path);
    assert_int_equal(data_open(&c, &p, &e), ERR_NONE);
    assert_int_equal(token_cache_vocab_size(c), 300);
    assert_int_equal(token_cache_tokens(c), DATA_SYNTHETIC_TOKENS);
    token_cache_close(c);
    data_prepared_release(&p);
    s.spec.tokenizer = "byte";
    p = prepare(&s);
    assert_int_equal(p.vocab_size, 258);
    data_prepared_release(&p);
    assert_false(io_exists(s.cache)); /* nothing was written */
    scene_remove(&s);
}

/* Every option of the data, each with a value of its own: none may be read and then forgotten. */
static void test_options_reach_the_description(void **state)
{
    struct config *c =
        config_of_text("training: {dataset: [a, b], dataset_path: in, dataset_exclude: [x, y], dataset_fallback: [f],\n"
                       "  text_field: body, document_separator: '%', tokenizer: byte, tokenizer_vocab_size: 777,\n"
                       "  cache_folder: kept}\n"
                       "validation: {enable: true, dataset: [v], dataset_path: other}\n"
                       "debug: {seed: 9}\n");
    struct data_spec both[] = {data_spec_training(c), data_spec_validation(c)};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_string_equal(both[i].source.text_field, "body");
        assert_string_equal(both[i].source.separator, "%");
        assert_int_equal(both[i].source.n_exclude, 2);
        assert_string_equal(both[i].source.exclude[1], "y");
        assert_string_equal(both[i].tokenizer, "byte");
        assert_int_equal(both[i].tokenizer_vocab_size, 777);
        assert_string_equal(both[i].cache_folder, "kept");
        assert_int_equal(both[i].seed, 9);
    }
    assert_int_equal(both[0].source.n_paths, 2);
    assert_string_equal(both[0].source.paths[1], "b");
    assert_string_equal(both[0].folder, "in");
    assert_int_equal(both[0].n_fallback, 1);
    assert_string_equal(both[0].fallback[0], "f");
    assert_int_equal(both[1].source.n_paths, 1);
    assert_string_equal(both[1].source.paths[0], "v");
    assert_string_equal(both[1].folder, "other");
    assert_int_equal(both[1].n_fallback, 0);
    config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents_become_tokens),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_made_once),
        cmocka_unit_test(test_a_stamp_spares_reading),
        cmocka_unit_test(test_torn_and_foreign_caches_are_made_again),
        cmocka_unit_test(test_automatic_tokenizer),
        cmocka_unit_test(test_concurrent_builders),
        cmocka_unit_test(test_stopped_anywhere),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_places_and_fallback),
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_options_reach_the_description),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

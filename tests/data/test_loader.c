/* SPDX-License-Identifier: MIT */
/* The stream of microbatches: independent of how a step is split, resumable at any place, finite passes that ranks
 * agree on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "data/loader.h"
#include "tests/support/temp.h"
#include "tests/support/token_file.h"

enum { T = 8, VOCAB = 60000 };

/* A run of n_samples samples (and `extra` tokens), in which a sample is known by its first token: sample s starts with
 * id 1 + s*T. */
static struct token_cache *samples_file(struct temp *t, int64_t n_samples, int64_t extra)
{
    return token_file_run(t, "tokens.bin", n_samples * T + 1 + extra, VOCAB);
}

static struct loader_spec spec_of(const struct token_cache *c, int D, int B, int A)
{
    return (struct loader_spec){.cache = c,
                                .seq_len = T,
                                .local_batch = B,
                                .n_microbatches = A,
                                .dp_size = D,
                                .seed = 42,
                                .shuffle = true,
                                .repeat = true,
                                .prefetch = 2};
}

static struct loader *open_loader(const struct loader_spec *spec)
{
    struct loader *l;
    struct error e;

    if (loader_open(&l, spec, &e)) fail_msg("%s", e.message);
    return l;
}

static struct batch *next(struct loader *l)
{
    struct batch *b;
    struct error e;

    if (loader_next(l, &b, &e)) fail_msg("%s", e.message);
    return b;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The samples of steps [0, n_steps), sorted within each step, as all ranks together see them; out[n_steps * D*B*A]. */
static void samples_of_steps(struct loader_spec spec, int n_steps, int64_t *out, struct data_cursor *cursor)
{
    int D = spec.dp_size, B = spec.local_batch, A = spec.n_microbatches, n = 0, per_step = D * B * A;

    for (int step = 0; step < n_steps; step++) {
        for (int r = 0; r < D; r++) {
            struct loader_spec mine = spec;
            struct loader *l;

            mine.dp_rank = r;
            mine.start = *cursor;
            l = open_loader(&mine);
            for (int m = 0; m < A; m++) {
                struct batch *b = next(l);

                for (int row = 0; row < B; row++) out[n++] = (b->tokens[row * T] - 1) / T;
                loader_release(l, b);
            }
            if (r == D - 1) *cursor = loader_cursor(l);
            loader_close(l);
        }
        qsort(out + n - per_step, (size_t)per_step, sizeof *out, by_value);
    }
}

/* Global batch 12 over 100 samples: also over the end of an epoch. */
static void test_a_step_does_not_depend_on_its_split(void **state)
{
    static const int splits[][3] = {{1, 12, 1}, {1, 1, 12}, {12, 1, 1}, {2, 3, 2},
                                    {3, 2, 2},  {4, 1, 3},  {2, 2, 3},  {6, 2, 1}};
    enum { STEPS = 20 };
    int64_t want[STEPS * 12], got[STEPS * 12];
    struct temp t;
    struct token_cache *c;

    (void)state;
    temp_make(&t);
    c = samples_file(&t, 100, 3);
    for (int shuffle = 0; shuffle < 2; shuffle++)
        for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
            struct loader_spec spec = spec_of(c, splits[i][0], splits[i][1], splits[i][2]);
            struct data_cursor cursor = {0, 0};

            spec.shuffle = shuffle;
            samples_of_steps(spec, STEPS, i ? got : want, &cursor);
            if (i) assert_memory_equal(got, want, sizeof want);
            assert_int_equal(cursor.epoch, STEPS * 12 / 100);
            assert_int_equal(cursor.sample, STEPS * 12 % 100);
        }
    token_cache_close(c);
    temp_remove(&t);
}

/* Every epoch holds each sample once; orders differ between epochs. */
static void test_epochs(void **state)
{
    enum { N = 30, EPOCHS = 4 };
    int seen[EPOCHS][N] = {{0}}, place[EPOCHS][N], same = 0;
    struct temp t;
    struct token_cache *c;
    struct loader_spec spec;
    struct loader *l;

    (void)state;
    temp_make(&t);
    c = samples_file(&t, N, T - 1);
    spec = spec_of(c, 1, 4, 1);
    l = open_loader(&spec);
    assert_int_equal(loader_samples(l), N);
    for (int i = 0; i < N * EPOCHS / 4; i++) {
        struct batch *b = next(l);

        assert_int_equal(b->epoch, i * 4 / N);
        assert_int_equal(b->first_sample, i * 4 % N);
        assert_int_equal(b->n_tokens, 4 * T);
        assert_int_equal(b->n_valid, 4 * T);
        assert_null(b->document_start);
        for (int row = 0; row < 4; row++) {
            int at = i * 4 + row, sample = (b->tokens[row * T] - 1) / T;

            seen[at / N][sample]++;
            place[at / N][at % N] = sample;
        }
        loader_release(l, b);
    }
    loader_close(l);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        for (int i = 0; i < N; i++) {
            assert_int_equal(seen[epoch][i], 1);
            same += epoch && place[epoch][i] == place[epoch - 1][i];
        }
    assert_true(same < N);
    token_cache_close(c);
    temp_remove(&t);
}

static void assert_batches_equal(const struct batch *a, const struct batch *b)
{
    size_t bytes = (size_t)a->rows * (size_t)a->seq_len * sizeof *a->tokens;

    assert_memory_equal(a->tokens, b->tokens, bytes);
    assert_memory_equal(a->labels, b->labels, bytes);
    assert_memory_equal(a->positions, b->positions, bytes);
    assert_int_equal(!a->document_start, !b->document_start);
    if (a->document_start) assert_memory_equal(a->document_start, b->document_start, bytes);
    assert_int_equal(a->n_valid, b->n_valid);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->first_sample, b->first_sample);
}

/* A loader opened at the cursor of every microbatch goes on exactly as the one that ran through. */
static void test_resume_anywhere(void **state)
{
    static const int64_t lengths[] = {5, 40, 3, 100, 1, 1, 60, 33};
    struct temp t;
    struct token_cache *c;
    struct loader_spec spec;
    struct loader *straight;

    (void)state;
    temp_make(&t);
    c = token_file(&t, "a.bin", lengths, 8, VOCAB);
    spec = spec_of(c, 3, 2, 2);
    spec.dp_rank = 1;
    spec.document_mask = true;
    straight = open_loader(&spec);
    for (int i = 0; i < 25; i++) {
        struct loader_spec again = spec;
        struct loader *resumed;
        struct batch *a, *b;

        again.start = loader_cursor(straight);
        again.prefetch = 1 + i % 3;
        resumed = open_loader(&again);
        a = next(straight);
        b = next(resumed);
        assert_non_null(a->document_start);
        assert_batches_equal(a, b);
        assert_int_equal(loader_cursor(straight).sample, loader_cursor(resumed).sample);
        loader_release(straight, a);
        loader_close(resumed); /* with a batch in use */
    }
    loader_close(straight);
    token_cache_close(c);
    temp_remove(&t);
}

/* A cursor far into a run of 2^40 tokens: reading over what came before would never end. */
static void test_a_far_cursor_costs_nothing(void **state)
{
    struct token_cache *c;
    struct loader_spec spec;
    struct loader *l;
    struct batch *b;
    struct error e;

    (void)state;
    assert_int_equal(token_cache_open_synthetic(&c, 1000, (int64_t)1 << 40, 1, &e), ERR_NONE);
    spec = spec_of(c, 1024, 2, 1);
    spec.dp_rank = 1023;
    spec.start = (struct data_cursor){12, ((int64_t)1 << 37) - 5};
    l = open_loader(&spec);
    b = next(l);
    assert_int_equal(b->epoch, 13);
    assert_int_equal(b->first_sample, 1023 * 2 - 5 + 1); /* 2^40 tokens make 2^37 - 1 samples */
    loader_close(l);
    token_cache_close(c);
}

/* n_samples over ranks and rows that do not divide them: equally many batches, every label once, the rest ignored. */
static void test_finite_pass(void **state)
{
    struct temp t;

    (void)state;
    temp_make(&t);
    for (int64_t n_samples = 1; n_samples <= 9; n_samples++)
        for (int D = 1; D <= 4; D++)
            for (int B = 1; B <= 3; B++) {
                int64_t extra = (n_samples * 3 + D) % T, n_labels = n_samples * T + extra, valid = 0, real = 0,
                        batches = 0;
                struct token_cache *c = samples_file(&t, n_samples, extra);
                char *seen = mem_zalloc((size_t)n_labels + 2, 1);

                for (int r = 0; r < D; r++) {
                    struct loader_spec spec = spec_of(c, D, B, 1);
                    struct loader *l;
                    struct batch *b;
                    int64_t n = 0;

                    spec.repeat = false;
                    spec.dp_rank = r;
                    l = open_loader(&spec);
                    while ((b = next(l))) {
                        int64_t scored = 0;

                        for (int i = 0; i < B * T; i++) {
                            if (b->labels[i] == LABEL_IGNORED) continue;
                            assert_int_equal(b->labels[i], b->tokens[i] + 1);
                            assert_int_equal(seen[b->labels[i] - 1]++, 0);
                            scored++;
                        }
                        assert_int_equal(b->n_valid, scored);
                        valid += scored;
                        real += b->n_tokens;
                        n++;
                        loader_release(l, b);
                    }
                    assert_null(next(l)); /* and stays at the end */
                    assert_true(r == 0 || n == batches);
                    batches = n;
                    loader_close(l);
                }
                assert_int_equal(valid, n_labels);
                assert_int_equal(real, (n_labels + T - 1) / T * T);
                mem_free(seen);
                token_cache_close(c);
            }
    temp_remove(&t);
}

/* All microbatches of a step may be held at once and come back in any order; one too many is an error, not a hang. */
static void test_batches_in_use(void **state)
{
    struct batch *b[6], *more;
    struct temp t;
    struct token_cache *c;
    struct loader_spec spec;
    struct loader *l;
    struct error e;

    (void)state;
    temp_make(&t);
    c = samples_file(&t, 50, 0);
    spec = spec_of(c, 1, 1, 4);
    spec.shuffle = false;
    l = open_loader(&spec);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 6; i++) {
            b[i] = next(l);
            assert_int_equal(b[i]->tokens[0], 1 + (round * 6 + i) * T);
        }
        assert_int_equal(loader_next(l, &more, &e), ERR_RANGE);
        assert_null(more);
        for (int i = 0; i < 6; i++) /* not overwritten while in use */
            assert_int_equal(b[i]->tokens[T - 1], (round * 6 + i + 1) * T);
        for (int i = 0; i < 6; i++) loader_release(l, b[(i * 5 + round) % 6]);
    }
    loader_close(l);
    token_cache_close(c);
    temp_remove(&t);
}

static void test_errors_of_the_thread(void **state)
{
    int32_t bad = 0x7fffffff;
    struct batch *b;
    struct temp t;
    struct token_cache *c;
    struct loader_spec spec;
    struct loader *l;
    struct error e;
    FILE *f;

    (void)state;
    temp_make(&t);
    token_cache_close(samples_file(&t, 50, 0));
    f = fopen(t.path, "r+b");
    fseek(f, sizeof(struct token_cache_header) + 2 * 20 * T, SEEK_SET);
    fwrite(&bad, sizeof bad, 1, f);
    fclose(f);
    assert_int_equal(token_cache_open(&c, t.path, 1, &e), ERR_NONE);
    spec = spec_of(c, 1, 5, 1);
    spec.shuffle = false;
    l = open_loader(&spec);
    for (int i = 0; i < 3; i++) loader_release(l, next(l)); /* sample 19's last label is the damaged token */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(loader_next(l, &b, &e), ERR_FORMAT);
        assert_non_null(strstr(e.message, "is damaged"));
    }
    assert_int_equal(loader_cursor(l).sample, 15);
    loader_close(l);
    token_cache_close(c);
    temp_remove(&t);
}

static void test_bad_specs(void **state)
{
    struct temp t;
    struct token_cache *c;
    struct loader_spec spec;
    struct loader *l;
    struct error e;

    (void)state;
    temp_make(&t);
    c = samples_file(&t, 10, 0);
    spec = spec_of(c, 2, 1, 1);
    spec.start.sample = 10;
    assert_int_equal(loader_open(&l, &spec, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "sample 10"));
    assert_null(l);
    spec.start.sample = 0;
    spec.dp_rank = 2;
    assert_int_equal(loader_open(&l, &spec, &e), ERR_RANGE);
    spec.dp_rank = 0;
    spec.prefetch = 0;
    assert_int_equal(loader_open(&l, &spec, &e), ERR_RANGE);
    spec.prefetch = 1;
    spec.seq_len = 10 * T + 1;
    assert_int_equal(loader_open(&l, &spec, &e), ERR_CONFIG);
    spec.seq_len = 10 * T; /* exactly one sample */
    assert_int_equal(loader_open(&l, &spec, &e), ERR_NONE);
    assert_int_equal(loader_samples(l), 1);
    loader_close(l);
    token_cache_close(c);
    temp_remove(&t);
}

static void test_out_of_memory(void **state)
{
    struct token_cache *c;
    struct loader_spec spec;
    struct loader *l;
    struct error e;
    long n = 0;

    (void)state;
    assert_int_equal(token_cache_open_synthetic(&c, 1000, 1 << 20, 1, &e), ERR_NONE);
    spec = spec_of(c, 1, 1, 1);
    for (;; n++) {
        err_t rc;

        mem_fault_arm(n);
        rc = loader_open(&l, &spec, &e);
        if (!mem_fault_fired()) break;
        assert_int_equal(rc, ERR_MEMORY);
        assert_null(l);
    }
    mem_fault_arm(-1);
    assert_true(n > 4);
    loader_close(l);
    token_cache_close(c);
}

static void test_close_at_any_moment(void **state)
{
    struct token_cache *c;
    struct loader_spec spec;
    struct error e;

    (void)state;
    assert_int_equal(token_cache_open_synthetic(&c, 1000, 1 << 20, 1, &e), ERR_NONE);
    spec = spec_of(c, 2, 4, 3);
    loader_close(NULL);
    for (int i = 0; i < 60; i++) {
        struct loader *l = open_loader(&spec);

        for (int k = 0; k < i % 5; k++) {
            struct batch *b = next(l);

            if (k % 2) loader_release(l, b);
        }
        if (i % 3 == 0) clock_sleep_ns(i * 1000);
        loader_close(l);
    }
    token_cache_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_does_not_depend_on_its_split),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_resume_anywhere),
        cmocka_unit_test(test_a_far_cursor_costs_nothing),
        cmocka_unit_test(test_finite_pass),
        cmocka_unit_test(test_batches_in_use),
        cmocka_unit_test(test_errors_of_the_thread),
        cmocka_unit_test(test_bad_specs),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_close_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

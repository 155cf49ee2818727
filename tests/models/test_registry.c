/* SPDX-License-Identifier: MIT */
/* The flavours: published numbers of parameters and FLOPs, torchtitan's names, initial values; overrides and
 * what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "device/device.h"
#include "metrics/flops.h"
#include "models/model.h"
#include "tests/support/configs.h"

static struct device *open_cpu(void)
{
    struct device_options options = {.kind = "cpu", .local_size = 1, .threads = 1};
    struct device *d;
    struct error e = {0};

    if (device_open(&d, &options, &e)) fail_msg("%s", e.message);
    return d;
}

static struct model_spec resolve(const char *yaml)
{
    struct config_problems problems = {0};
    struct config *c = config_of_text(yaml);
    struct model_spec spec = {0};

    model_spec_resolve(&spec, c, &problems);
    if (problems.n) fail_msg("%s", str_text(&problems.text));
    config_problems_release(&problems);
    config_destroy(c);
    return spec;
}

static struct model_spec flavor(const char *name)
{
    char yaml[64];

    snprintf(yaml, sizeof yaml, "model: {flavor: %s}\n", name);
    return resolve(yaml);
}

static struct model *build(struct device *d, const struct model_spec *spec)
{
    struct model *m;
    struct error e = {0};

    if (model_create(&m, spec, d, DTYPE_FLOAT32, 8, &e)) fail_msg("%s", e.message);
    return m;
}

/* As torchtitan counts and prints them; ffn is what its rule 2/3 * 4 dim, times a factor, rounded up, gives.
 */
static const struct published {
    const char *name;
    int64_t parameters, ffn, seq_len;
    double flops;
    bool is_tied;
    double ffn_factor;
    int64_t multiple_of;
} published[] = {
    {"debugmodel", 6163712, 768, 2048, 7.159e7, false, 1.0, 256},
    {"1B", 1235814400, 8192, 8192, 1.0636e10, true, 1.5, 1024},
    {"3B", 3212749824, 8192, 8192, 2.7732e10, true, 1.0, 1024},
    {"8B", 8030261248, 14336, 8192, 5.79144e10, false, 1.3, 1024},
    {"70B", 70553706496, 28672, 8192, 4.81443e11, false, 1.3, 4096},
    {"405B", 405853388800, 53248, 8192, 2.625449e12, false, 1.2, 4096},
};
enum { N_PUBLISHED = sizeof published / sizeof *published };

static void test_published_numbers(void **state)
{
    struct device *d = open_cpu();

    (void)state;
    for (int i = 0; i < N_PUBLISHED; i++) {
        const struct published *p = &published[i];
        struct model_spec s = flavor(p->name);
        struct model *m = build(d, &s);
        struct flops_facts facts = {.n_parameters = model_parameters(m),
                                    .n_embedding_parameters = model_embedding_parameters(m),
                                    .is_tied = s.is_tied,
                                    .n_layers = (int)s.n_layers,
                                    .n_heads = (int)s.n_heads,
                                    .d_qk = (int)s.head_dim,
                                    .d_v = (int)s.head_dim,
                                    .seq_len = p->seq_len};
        int64_t hidden = (int64_t)(p->ffn_factor * (double)(int64_t)(2 * 4 * s.dim / 3));

        assert_int_equal(model_parameters(m), p->parameters);
        assert_int_equal(s.ffn_dim, p->ffn);
        assert_int_equal((hidden + p->multiple_of - 1) / p->multiple_of * p->multiple_of, p->ffn);
        assert_int_equal(s.is_tied, p->is_tied);
        assert_int_equal(s.max_seq_len, 131072);
        if (fabs(flops_per_token(&facts) / p->flops - 1) > 1e-4)
            fail_msg("%s: %g FLOPs", p->name, flops_per_token(&facts));
        model_destroy(m);
    }
    device_close(d);
}

/* The names that torchtitan's checkpoints and the conversion to Hugging Face's names know. */
static void test_names_and_shapes(void **state)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } in_block[] = {
        {"attention.wq.weight", 12, 12},    {"attention.wk.weight", 4, 12},     {"attention.wv.weight", 4, 12},
        {"attention.wo.weight", 12, 12},    {"feed_forward.w1.weight", 20, 12}, {"feed_forward.w2.weight", 12, 20},
        {"feed_forward.w3.weight", 20, 12}, {"attention_norm.weight", 12, 1},   {"ffn_norm.weight", 12, 1},
    };
    struct model_spec s =
        resolve("model: {dim: 12, n_heads: 3, n_kv_heads: 1, n_layers: 2, ffn_dim: 20, vocab_size: 300}\n"
                "training: {tokenizer_vocab_size: 257}\n");
    struct device *d = open_cpu();
    struct model *m = build(d, &s);
    struct parameter **p = m->parameters.items;

    (void)state;
    assert_int_equal(m->parameters.n, 1 + 2 * 9 + 2);
    assert_string_equal(p[0]->name, "tok_embeddings.weight");
    assert_int_equal(p[0]->dim[0], 300);
    assert_int_equal(p[0]->dim[1], 12);
    for (int i = 0; i < 18; i++) {
        char name[64];

        snprintf(name, sizeof name, "layers.%d.%s", i / 9, in_block[i % 9].name);
        assert_string_equal(p[1 + i]->name, name);
        assert_int_equal(p[1 + i]->dim[0], in_block[i % 9].rows);
        assert_int_equal(p[1 + i]->dim[1], in_block[i % 9].columns);
        assert_int_equal(p[1 + i]->n_dims, in_block[i % 9].columns > 1 ? 2 : 1);
        assert_true(p[1 + i]->trainable);
        assert_int_equal(m->group_of[1 + i], 1 + i / 9);
    }
    assert_string_equal(p[19]->name, "norm.weight");
    assert_string_equal(p[20]->name, "output.weight");
    assert_int_equal(p[20]->dim[0], 300);
    assert_int_equal(m->group_of[19], 3);
    assert_int_equal(m->group_of[20], 3); /* norm and output are gathered as one */
    assert_int_equal(m->n_units, 4);
    assert_int_equal(m->n_groups, 4);
    assert_string_equal(m->units[0].name, "embedding");
    assert_string_equal(m->units[2].name, "layers.1");
    assert_string_equal(m->units[3].name, "head");
    assert_int_equal(m->units[3].out_width, 0);
    model_destroy(m);
    device_close(d);
}

/* A tied matrix is one parameter, counted once, and the embedding and the head are gathered together. */
static void test_tied(void **state)
{
    struct model_spec s = resolve("model: {tie_embeddings: true}\n");
    struct device *d = open_cpu();
    struct model *m = build(d, &s);

    (void)state;
    assert_int_equal(model_parameters(m), 6163712 - 2048 * 256);
    assert_string_equal(m->parameters.items[m->parameters.n - 1]->name, "norm.weight");
    assert_int_equal(m->units[0].group, 0);
    assert_int_equal(m->units[m->n_units - 1].group, 0);
    assert_int_equal(m->n_groups, 7);
    assert_int_equal(m->group_of[m->parameters.n - 1], 0);
    model_destroy(m);
    device_close(d);
}

/* Deviations and cuts: embeddings 1; wq, wk, wv, w1 0.02; wo, w2, w3 0.02 / sqrt(2 (layer + 1)); output
 * dim^-1/2 cut at 3 of them. */
static void test_initial_deviations(void **state)
{
    static const double by_part[] = {0.02, 0.02, 0.02, 0, 0.02, 0, 0};
    struct device *d = open_cpu();

    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct model_spec s = flavor(tied ? "1B" : "8B");
        struct model *m = build(d, &s);
        struct parameter **p = m->parameters.items;
        double output = 1 / sqrt((double)s.dim);

        assert_true(p[0]->init == INIT_NORMAL && p[0]->init_std == (tied ? output : 1.0));
        assert_true(p[0]->init_cut == (tied ? 3 * output : 0.0));
        for (int64_t layer = 0; layer < s.n_layers; layer++) {
            struct parameter **q = p + 1 + 9 * layer;

            for (int i = 0; i < 7; i++) {
                assert_true(q[i]->init == INIT_NORMAL && q[i]->init_cut == 2.0);
                assert_true(q[i]->init_std == (by_part[i] > 0 ? by_part[i] : 0.02 / sqrt(2.0 * (double)(layer + 1))));
            }
            assert_true(q[7]->init == INIT_ONE && q[8]->init == INIT_ONE);
        }
        if (!tied) {
            assert_true(p[m->parameters.n - 2]->init == INIT_ONE);
            assert_true(p[m->parameters.n - 1]->init_std == output && p[m->parameters.n - 1]->init_cut == 3 * output);
        }
        model_destroy(m);
    }
    device_close(d);
}

static void assert_refused(const char *yaml, int n, const char *text)
{
    struct config_problems problems = {0};
    struct config *c = config_of_text(yaml);
    struct model_spec spec = {0};

    model_spec_resolve(&spec, c, &problems);
    if (problems.n != n || !strstr(str_text(&problems.text), text))
        fail_msg("%d: %s", problems.n, str_text(&problems.text));
    config_problems_release(&problems);
    config_destroy(c);
}

/* A refusal lists every flavour that there is: exactly the published ones. */
static void test_every_flavor_is_published(void **state)
{
    struct config *c = config_of_text("model: {flavor: unknown}\n");
    struct config_problems problems = {0};
    struct model_spec spec;
    struct str want = {0};

    (void)state;
    str_add(&want, "model.flavor=unknown: llama3 has ");
    for (int i = 0; i < N_PUBLISHED; i++) str_addf(&want, "%s%s", i ? ", " : "", published[i].name);
    model_spec_resolve(&spec, c, &problems);
    assert_string_equal(str_text(&problems.text), str_text(&want));
    str_release(&want);
    config_problems_release(&problems);
    config_destroy(c);
}

static void test_refused(void **state)
{
    (void)state;
    assert_refused("model: {name: llama2}\n", 1, "this build has the family llama3");
    assert_refused("model: {flavor: 7B}\n", 1, "did you mean ");
    assert_refused("model: {flavor: debugmodle}\n", 1, "did you mean debugmodel?");
    assert_refused("model: {dim: 100}\n", 1, "model.dim=100 must be a multiple of model.n_heads=16");
    assert_refused("model: {dim: 48}\n", 1, "must be even");
    assert_refused("model: {n_kv_heads: 3}\n", 1, "model.n_heads=16 must be a multiple of model.n_kv_heads=3");
    assert_refused("training: {seq_len: 131073}\nvalidation: {enable: true, dataset: [a], seq_len: 131074}\n", 2,
                   "longer than the context of llama3 debugmodel, 131072");
    assert_refused("model: {dim: 100, n_kv_heads: 3}\n", 2, "model.dim=100"); /* all at once */
}

/* An override of the heads alone keeps attention without groups; others keep what the flavour says. */
static void test_overrides(void **state)
{
    struct model_spec s = resolve("model: {n_heads: 4}\n");

    (void)state;
    assert_int_equal(s.n_kv_heads, 4);
    assert_int_equal(s.head_dim, 64);
    s = resolve("model: {flavor: 8B, n_kv_heads: 4, n_layers: 3, rope_theta: 1e4, norm_eps: 1e-6}\n");
    assert_int_equal(s.n_heads, 32);
    assert_int_equal(s.n_kv_heads, 4);
    assert_int_equal(s.n_layers, 3);
    assert_int_equal(s.ffn_dim, 14336);
    assert_true(s.rope_theta == 1e4 && s.norm_eps == 1e-6);
}

/* Every allocation of the build fails once: an error and nothing is kept, or (a block of the device's
 * allocator that is not split) the whole model all the same. */
static void test_out_of_memory(void **state)
{
    struct model_spec s = flavor("70B");
    struct device *d = open_cpu();
    struct memory_stats stats;
    struct model *m;
    struct error e = {0};

    (void)state;
    for (int n = 0;; n++) {
        err_t rc;

        mem_fault_arm(n);
        rc = model_create(&m, &s, d, DTYPE_FLOAT32, 8, &e);
        if (!mem_fault_fired()) {
            assert_int_equal(rc, ERR_NONE);
            assert_true(n > 10);
            break;
        }
        if (!rc) {
            assert_int_equal(model_parameters(m), 70553706496);
            model_destroy(m);
            continue;
        }
        assert_int_equal(rc, ERR_MEMORY);
        assert_null(m);
        device_memory_stats(d, &stats);
        assert_int_equal(stats.active_bytes, 0);
    }
    mem_fault_arm(-1);
    model_destroy(m);
    model_destroy(NULL);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_numbers),  cmocka_unit_test(test_every_flavor_is_published),
        cmocka_unit_test(test_names_and_shapes),   cmocka_unit_test(test_tied),
        cmocka_unit_test(test_initial_deviations), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_overrides),          cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

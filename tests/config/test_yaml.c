/* SPDX-License-Identifier: MIT */
/* YAML files: what each scalar means under the 1.2 core schema, structure, places in messages, include. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/io.h"
#include "tests/support/configs.h"

static void test_scalars_by_kind(void **state)
{
    struct config *c = config_of_text("training:\n"
                                      "  steps: 010\n" /* decimal in 1.2 */
                                      "  seq_len: 0x100\n"
                                      "  local_batch_size: 0o20\n"
                                      "  global_batch_size: +32\n"
                                      "  max_norm: 1\n"
                                      "optimizer:\n"
                                      "  lr: 1e-4\n"
                                      "  beta1: .5\n"
                                      "  eps: 1.E-9\n"
                                      "debug: {deterministic: TRUE, seed: 9223372036854775807}\n"
                                      "lr_scheduler:\n"
                                      "  total_steps: ~\n"
                                      "  decay_ratio: 0.25\n"
                                      "model: {dim: null, tie_embeddings: false}\n");

    (void)state;
    assert_int_equal(c->training.steps, 10);
    assert_int_equal(c->training.seq_len, 256);
    assert_int_equal(c->training.local_batch_size, 16);
    assert_int_equal(c->training.global_batch_size, 32);
    assert_true(c->training.max_norm == 1.0);
    assert_true(c->optimizer.lr == 1e-4 && c->optimizer.beta1 == 0.5 && c->optimizer.eps == 1e-9);
    assert_true(c->debug.deterministic);
    assert_true(c->debug.seed == INT64_MAX);
    assert_false(c->lr_scheduler.total_steps.is_set);
    assert_true(c->lr_scheduler.decay_ratio.is_set && c->lr_scheduler.decay_ratio.value == 0.25);
    assert_false(c->model.dim.is_set);
    assert_true(c->model.tie_embeddings.is_set && !c->model.tie_embeddings.value);
    config_destroy(c);
}

/* A text option keeps what YAML 1.1 would turn into booleans, octal numbers and minutes. */
static void test_texts_stay_texts(void **state)
{
    static const char *const texts[] = {"NO",   "on",  "y",    "010",        "1:30",
                                        "0x1F", "1e3", "true", "2001-01-01", "9223372036854775808"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char yaml[128];
        struct config *c;

        snprintf(yaml, sizeof yaml, "job: {description: %s}\n", texts[i]);
        c = config_of_text(yaml);
        assert_string_equal(c->job.description, texts[i]);
        config_destroy(c);
        snprintf(yaml, sizeof yaml, "metrics:\n  tags:\n  - a=%s\n", texts[i]);
        c = config_of_text(yaml);
        assert_string_equal(c->metrics.tags.item[0] + 2, texts[i]);
        config_destroy(c);
    }
}

static void test_nothing_and_quotes(void **state)
{
    struct config *c = config_of_text("job:\n  description:\ntraining: # nothing\ncheckpoint: {folder: \"null\"}\n"
                                      "model: {flavor: 'it''s'}\nmetrics: {tags: }\n");

    (void)state;
    assert_string_equal(c->job.description, "");
    assert_string_equal(c->checkpoint.folder, "null");
    assert_string_equal(c->model.flavor, "it's");
    assert_int_equal(c->metrics.tags.n, 0);
    config_destroy(c);
    c = config_of_text("");
    assert_int_equal(c->training.steps, 10000);
    config_destroy(c);
    c = config_of_text("# only words\n");
    config_destroy(c);
}

static void test_lists(void **state)
{
    struct config *c =
        config_of_text("training:\n  dataset: /a/b,c\n  dataset_exclude: []\n"
                       "optimizer:\n  param_groups:\n  - 'norm|bias: weight_decay=0'\n  - \".*: lr_factor=2\"\n");

    (void)state;
    assert_int_equal(c->training.dataset.n, 1);
    assert_string_equal(c->training.dataset.item[0], "/a/b,c");
    assert_int_equal(c->training.dataset_exclude.n, 0);
    assert_int_equal(c->optimizer.param_groups.n, 2);
    config_destroy(c);
    assert_text_refused("metrics: {tags: [a=1, [b=2]]}\n", 1, TEXTS("entry 2 of the list is not a text"));
    assert_text_refused("metrics: {tags: [a=1, null]}\n", 1, TEXTS("entry 2 of the list is not a text"));
    assert_text_refused("metrics: {tags: [a=1, Null]}\n", 1, TEXTS("entry 2 of the list is not a text"));
    assert_text_refused("training: {steps: [1]}\n", 1, TEXTS("a list stands where one value is expected"));
    assert_text_refused("training: {steps: {a: 1}}\n", 1, TEXTS("a mapping stands where one value"));
}

static void test_sections_with_dots(void **state)
{
    struct config *c =
        config_of_text("quantize:\n  linear:\n    float8: {recipe_name: rowwise}\n    mx.recipe_name: mxfp8_cublas\n"
                       "  grouped-mm:\n    mx: {fqns: [y]}\n"
                       "training.steps: 7\nquantize.grouped_mm.float8: {fqns: [x]}\n");

    (void)state;
    assert_int_equal(c->quantize_linear_float8.recipe_name, CONFIG_FLOAT8_ROWWISE);
    assert_int_equal(c->quantize_linear_mx.recipe_name, CONFIG_MX_CUBLAS);
    assert_int_equal(c->quantize_grouped_mm_float8.fqns.n, 1);
    assert_int_equal(c->quantize_grouped_mm_mx.fqns.n, 1); /* - and _ are alike */
    assert_int_equal(c->training.steps, 7);
    config_destroy(c);
}

static void test_nearest_key(void **state)
{
    (void)state;
    assert_text_refused("validatio: {seq_len: 5, freg: 3}\nwandb: {enable: true}\nzzz: 5\n", 4,
                        TEXTS("did you mean validation.seq_len?", "did you mean validation.freq?",
                              "wandb.enable: there is no such option; did you mean", "zzz: there is no such option"));
}

/* All problems of one file, each where it is. */
static void test_all_at_once_with_places(void **state)
{
    (void)state;
    assert_text_refused(
        "training:\n"
        "  stepz: 5\n"
        "  seq_len: many\n"
        "  shuffle: no\n"
        "  steps: 1e3\n"
        "  local_batch_size: \"4\"\n"
        "trainin: {steps: 5}\n"
        "optimizer: 3\n"
        "lr_scheduler:\n"
        "  decay_type: cosin\n"
        "  min_lr_factor: 1.5\n"
        "debug: {seed: 9223372036854775808}\n",
        10,
        TEXTS("test.yaml:2:3: training.stepz: there is no such option; did you mean training.steps?",
              "test.yaml:3:12: training.seq_len: \"many\" is not an integer",
              "test.yaml:4:12: training.shuffle: \"no\" is neither true nor false",
              "test.yaml:5:10: training.steps: \"1e3\" is not an integer; write 1000",
              "test.yaml:6:21: training.local_batch_size: \"4\" is a text because of its quotes",
              "test.yaml:7:11: trainin.steps: there is no such option; did you mean training.steps?",
              "test.yaml:8:12: optimizer is a section",
              "test.yaml:10:15: lr_scheduler.decay_type: \"cosin\" is not one of linear, sqrt, cosine; did "
              "you mean cosine?",
              "test.yaml:11:18: lr_scheduler.min_lr_factor: 1.5 is outside of 0 to 1",
              "test.yaml:12:15: debug.seed: 9223372036854775808 is outside of 0 to 9223372036854775807"));
}

static void test_duplicates(void **state)
{
    (void)state;
    assert_text_refused("training:\n  steps: 1\n  steps: 2\n", 1,
                        TEXTS("test.yaml:3:3: training.steps stands on line 2 already"));
    assert_text_refused("training:\n  seq_len: 1\n  seq-len: 2\n", 1,
                        TEXTS("training.seq_len stands on line 2 already"));
    assert_text_refused("training: {steps: 1}\ntraining: {seq_len: 2}\n", 1,
                        TEXTS("test.yaml:2:1: the key \"training\" stands on line 1"));
    assert_text_refused("training: {steps: 1}\ntraining.steps: 2\n", 1,
                        TEXTS("test.yaml:2:1: training.steps stands on line 1"));
}

static void test_not_yaml(void **state)
{
    (void)state;
    assert_text_refused("training: [1, 2\n", 1, TEXTS("test.yaml:2:1: did not find expected ',' or ']'", "line 1"));
    assert_text_refused("training:\n\tsteps: 1\n", 1, TEXTS("test.yaml:2:1: "));
    assert_text_refused("job: {description: \"\xff\"}\n", 1, TEXTS("test.yaml: byte 20: "));
    assert_text_refused("- training\n", 1, TEXTS("test.yaml:1:1: expected sections"));
    assert_text_refused("training\n", 1, TEXTS("expected sections"));
    assert_text_refused("training: {steps: 1}\n---\ntraining: {steps: 2}\n", 1,
                        TEXTS("test.yaml:3:1: a second document"));
    assert_text_refused("? [a, b]\n: 1\n", 1, TEXTS("test.yaml:1:3: a key must be a word"));
    assert_text_refused("job: {description: !secret x}\n", 1, TEXTS("the tag !secret is not understood"));
    assert_text_refused("job: {description: \"a\\0b\"}\n", 1, TEXTS("a text cannot hold a zero byte"));
    assert_text_refused("training: &a {steps: 1, x: *a}\n", 1, TEXTS("training.x: there is no such option"));
    assert_text_refused("quantize: &a {linear: *a}\n", 1, TEXTS("quantize.linear.linear: there is no such option"));
}

/* The text of `before`, n times `again`, and `after` is refused for this reason alone. */
static void assert_excess(const char *before, int n, const char *again, const char *after, const char *why)
{
    struct str text = {0};

    str_add(&text, before);
    for (int i = 0; i < n; i++) str_add(&text, again);
    str_add(&text, after);
    assert_text_refused(str_text(&text), 1, TEXTS(why));
    str_release(&text);
}

/* What libyaml takes time for with its square: such files once took minutes. */
static void test_excess(void **state)
{
    struct str text = {0};

    (void)state;
    assert_excess("", 1000, "[", "", "test.yaml:1:51: lists and mappings stand in each other more than 50 deep");
    assert_excess("a: ", 60, "{a: ", "", "more than 50 deep");
    assert_excess("", 60, "- ", "a", "more than 50 deep");
    assert_excess("", 60, "? ", "a", "more than 50 deep");
    assert_excess("a:\n", 101, "- &a x\n", "", "test.yaml:102:3: more than 100 anchors");
    assert_excess("", 101, "%TAG !a! a\n", "---\na: b\n", "more than 100 anchors and %TAG directives");
    str_add(&text, "training.dataset=");
    for (int i = 0; i < 1000; i++) str_add(&text, "[");
    assert_arguments_refused(TEXTS(str_text(&text)), 1, TEXTS("training.dataset: expected a list like [a, \"b, c\"]"));
    str_release(&text);
}

/* torchtitan's own options that are not here are answered by name. */
static void test_replaced_options(void **state)
{
    (void)state;
    assert_text_refused(
        "training: {batch_size: 8, gc_freq: 50}\ncompile: {enable: true}\nfault_tolerance:\n  enable: true\n"
        "model: {tokenizer_path: x}\nactivation_checkpoint: {early_stop: true}\n",
        6,
        TEXTS("training.batch_size: there is no such option; it is training.local_batch_size here",
              "training.gc_freq: there is no such option; C has no garbage collector", "ctitan has no compiler",
              "fault_tolerance.enable: there is no such option; ctitan has none", "training.tokenizer",
              "recomputation stops"));
}

/* ---- include ---- */
static char folder[64];

static void put(const char *name, const char *text)
{
    struct error e = {0};
    char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (io_write_atomic(path, text, strlen(text), &e)) fail_msg("%s", e.message);
}

static int make_folder(void **state)
{
    const char *base = getenv("TMPDIR");
    struct error e = {0};
    char below[80];

    (void)state;
    unsetenv("CONFIG");
    unsetenv("MODULE");
    snprintf(folder, sizeof folder, "%.40s/ctitan-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder)) return -1;
    snprintf(below, sizeof below, "%s/base", folder);
    return io_make_folders(below, &e);
}

static int remove_folder(void **state)
{
    struct error e = {0};

    (void)state;
    return io_remove_tree(folder, &e);
}

static const char *argument(const char *name)
{
    static char text[128];

    snprintf(text, sizeof text, "--config=%s/%s", folder, name);
    return text;
}

static void test_include(void **state)
{
    struct config *c;
    struct str printed = {0};

    (void)state;
    put("base/common.yaml", "training: {steps: 1, seq_len: 64}\n");
    put("base/second.yaml", "include: common.yaml\ntraining:\n  steps: 2\n");
    put("top.yaml", "training:\n  local_batch_size: 3\ninclude: [base/second.yaml]\n");
    c = config_of_arguments(TEXTS(argument("top.yaml")));
    assert_int_equal(c->training.steps, 2);
    assert_int_equal(c->training.seq_len, 64);
    assert_int_equal(c->training.local_batch_size, 3);
    config_print(c, true, &printed);
    assert_non_null(strstr(str_text(&printed), "base/second.yaml:3:10"));
    assert_non_null(strstr(str_text(&printed), "base/common.yaml:1:31"));
    assert_string_equal(config_file(c), argument("top.yaml") + strlen("--config="));
    str_release(&printed);
    config_destroy(c);
}

static void test_include_cycles_and_gaps(void **state)
{
    (void)state;
    put("a.yaml", "include: b.yaml\n");
    put("b.yaml", "training: {steps: 4}\ninclude: ./a.yaml\n");
    assert_arguments_refused(TEXTS(argument("a.yaml")), 1, TEXTS("b.yaml:2:10: ", "includes itself"));
    put("self.yaml", "include: self.yaml\n");
    assert_arguments_refused(TEXTS(argument("self.yaml")), 1, TEXTS("self.yaml:1:10: ", "includes itself"));
    put("gap.yaml", "include:\n- nowhere.yaml\n- base\n- [x]\n");
    assert_arguments_refused(
        TEXTS(argument("gap.yaml")), 3,
        TEXTS("gap.yaml:2:3: cannot read ", "No such file", "is not a file", "expected the name of a file"));
    /* each reads the next twice: the number of files is bounded */
    for (char name[8] = "0.yaml"; name[0] < '9'; name[0]++) {
        char text[64];

        snprintf(text, sizeof text, "include: [%c.yaml, %c.yaml]\n", name[0] + 1, name[0] + 1);
        put(name, text);
    }
    put("9.yaml", "training: {steps: 9}\n");
    assert_text_refused("include: /dev/zero\n", 1, TEXTS("is not a file"));
}

static void test_include_is_bounded(void **state)
{
    struct config_problems problems = {0};
    struct error e = {0};
    struct config *c;
    char text[128], *arguments[] = {text};

    (void)state;
    snprintf(text, sizeof text, "%s", argument("0.yaml"));
    assert_int_equal(config_load(&c, 1, arguments, &problems, &e), ERR_CONFIG);
    assert_non_null(strstr(str_text(&problems.text), "again and again"));
    config_problems_release(&problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars_by_kind),
        cmocka_unit_test(test_texts_stay_texts),
        cmocka_unit_test(test_nothing_and_quotes),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_sections_with_dots),
        cmocka_unit_test(test_nearest_key),
        cmocka_unit_test(test_all_at_once_with_places),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_not_yaml),
        cmocka_unit_test(test_excess),
        cmocka_unit_test(test_replaced_options),
        cmocka_unit_test(test_include),
        cmocka_unit_test(test_include_cycles_and_gaps),
        cmocka_unit_test(test_include_is_bounded),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* SPDX-License-Identifier: MIT */
/* What is written reads back: YAML, JSON; the hash and the comparison on resume; help and documentation;
 * memory that runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "tests/support/configs.h"

/* Something of every kind, with texts that need care. */
static const char MIXED[] =
    "job: {description: \"q\\\"uo\\\\te # \\t\\n\\x7f\\u2028\\u00e4\\U0001f642 \"}\n"
    "model: {dim: 64, tie_embeddings: true, flavor: 'null'}\n"
    "training: {dataset: ['a, b', '[c', '- d', ''], tokenizer: '010', document_separator: '%'}\n"
    "optimizer: {lr: 0.1, eps: 1e-300}\n"
    "lr_scheduler: {decay_ratio: 0.3, decay_type: sqrt}\n"
    "quantize: {linear: {mx: {recipe_name: mxfp8_cublas}}}\n"
    "metrics: {http_token: hunter2}\n";

static void test_print_reads_back(void **state)
{
    struct config *c = config_of_text(MIXED), *again;
    struct str first = {0}, second = {0}, bare = {0};

    (void)state;
    config_print(c, true, &first);
    assert_non_null(strstr(str_text(&first), "  http_token: \"***\""));
    assert_null(strstr(str_text(&first), "hunter2"));
    again = config_of_text(str_text(&first));
    assert_string_equal(again->job.description, c->job.description);
    assert_int_equal(again->training.dataset.n, 4);
    for (int i = 0; i < 4; i++) assert_string_equal(again->training.dataset.item[i], c->training.dataset.item[i]);
    assert_true(again->optimizer.lr == c->optimizer.lr && again->optimizer.eps == c->optimizer.eps);
    config_print(again, false, &second);
    config_print(c, false, &bare);
    assert_string_equal(str_text(&second), str_text(&bare));
    str_release(&first);
    str_release(&second);
    str_release(&bare);
    config_destroy(again);
    config_destroy(c);
}

static const char *text_at(const json_t *root, const char *a, const char *b)
{
    return json_string_value(json_object_get(json_object_get(root, a), b));
}

static void test_json(void **state)
{
    struct config *c = config_of_text(MIXED);
    struct str out = {0};
    json_error_t e;
    json_t *root, *linear;

    (void)state;
    config_write_json(c, &out);
    root = json_loadb(str_text(&out), out.length, JSON_REJECT_DUPLICATES, &e);
    if (!root) fail_msg("%s\n%s", e.text, str_text(&out));
    assert_string_equal(text_at(root, "job", "description"), c->job.description);
    assert_string_equal(text_at(root, "metrics", "http_token"), "***");
    assert_string_equal(text_at(root, "lr_scheduler", "decay_type"), "sqrt");
    assert_true(json_is_null(json_object_get(json_object_get(root, "model"), "n_layers")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "model"), "dim")), 64);
    assert_true(json_is_true(json_object_get(json_object_get(root, "model"), "tie_embeddings")));
    assert_int_equal(json_array_size(json_object_get(json_object_get(root, "training"), "dataset")), 4);
    linear = json_object_get(json_object_get(root, "quantize"), "linear");
    assert_string_equal(text_at(linear, "mx", "recipe_name"), "mxfp8_cublas");
    assert_int_equal(json_object_size(json_object_get(root, "quantize")), 2);
    assert_int_equal(json_object_size(linear), 2);
    json_decref(root);
    str_release(&out);
    config_destroy(c);
}

static void test_hash_is_of_fixed_options(void **state)
{
    struct config_problems problems = {0};
    struct config *a = config_of_text(""),
                  *b = config_of_text("training: {steps: 5, local_batch_size: 3}\nmetrics: {log_freq: 1}\n");
    struct config *other = config_of_text("model: {dim: 64}\n"), *data = config_of_text("training: {seq_len: 9}\n");
    uint64_t before = config_hash(a);

    (void)state;
    assert_true(config_hash(b) == before);
    assert_true(config_hash(other) != before);
    assert_true(config_hash(data) != before && config_hash(data) != config_hash(other));
    config_resolve(a, 2, &problems);
    assert_true(config_hash(a) == before);
    config_destroy(a);
    config_destroy(b);
    config_destroy(other);
    config_destroy(data);
}

/* Problems and told lines, as one text. */
static void compared_with(enum config_earlier earlier, const char *now, const char *then_json, int n,
                          const char *const *texts)
{
    struct config_problems problems = {0};
    struct config *c = config_of_text(now);
    struct str told = {0};

    config_compare(c, then_json, strlen(then_json), "step-10", earlier, &problems, &told);
    if (problems.n) str_addf(&told, "%s", str_text(&problems.text));
    for (; *texts; texts++)
        if (!strstr(str_text(&told), *texts)) fail_msg("\"%s\" is missing in:\n%s", *texts, str_text(&told));
    if (problems.n != n) fail_msg("%d problems, not %d: %s", problems.n, n, str_text(&problems.text));
    str_release(&told);
    config_problems_release(&problems);
    config_destroy(c);
}

static void compared(const char *now, const char *then_json, int n, const char *const *texts)
{
    compared_with(CONFIG_EARLIER_RUN, now, then_json, n, texts);
}

/* Another learning rate, data order and model: who is told, who is refused. */
static void test_compare_by_purpose(void **state)
{
    static const char now[] = "optimizer: {lr: 0.5}\ndebug: {seed: 1}\nmodel: {n_heads: 2}\njob: {description: x}\n";
    static const char then[] = "{\"optimizer\": {\"lr\": 0.25}, \"debug\": {\"seed\": 2}, \"model\": {\"n_heads\": 4}}";
    static const char quiet[] = "{\"optimizer\": {\"lr\": 0.25}, \"debug\": {\"seed\": 2}}";

    (void)state;
    compared_with(
        CONFIG_EARLIER_RUN, now, then, 2,
        TEXTS("optimizer.lr=0.5 (test.yaml:1:17), but step-10 has 0.25\n", "debug.seed=1", "model.n_heads=2"));
    compared_with(CONFIG_EARLIER_SEED, now, then, 1,
                  TEXTS("model.n_heads=2 (test.yaml:3:18), but step-10 has 4: a run cannot"));
    compared_with(CONFIG_EARLIER_PARAMETERS, now, then, 0,
                  TEXTS("model.n_heads=2 (test.yaml:3:18), but step-10 has 4\n"));
    compared_with(CONFIG_EARLIER_SEED, "optimizer: {lr: 0.5}\n", quiet, 0, TEXTS(""));
}

static void test_compare(void **state)
{
    struct config *then = config_of_text(MIXED);
    struct str json = {0};

    (void)state;
    config_write_json(then, &json);
    compared(MIXED, str_text(&json), 0, TEXTS(""));
    config_destroy(then);
    str_release(&json);
    compared("training: {steps: 3}\n", "{}", 0, TEXTS(""));
    compared("training: {seq_len: 64}\nmodel: {dim: 32}\n",
             "{\"training\": {\"seq_len\": 128, \"steps\": 9}, \"model\": {\"dim\": null}, \"later\": 1}", 2,
             TEXTS("training.seq_len=64 (test.yaml:1:21), but step-10 has 128", "exclude_from_loading has dataloader",
                   "model.dim=32 (test.yaml:2:14), but step-10 has null: a run cannot change it"));
    compared("training: {seq_len: 64}\ncheckpoint: {exclude_from_loading: [dataloader]}\n",
             "{\"training\": {\"seq_len\": 128}}", 0, TEXTS(""));
    compared(
        "", "{\"training\": {\"seq_len\": \"x\", \"dataset\": [1], \"tokenizer\": {}}}", 3,
        TEXTS("step-10: training.seq_len: \"x\" is a text", "an entry of the list is not a text", "it is not a value"));
    compared("", "{", 1, TEXTS("step-10: the configuration in it cannot be read"));
    compared("", "[]", 1, TEXTS("not a JSON object"));
}

static void test_help_and_docs_name_every_option(void **state)
{
    struct config *c = config_of_text("");
    struct str help = {0}, docs = {0}, yaml = {0};

    (void)state;
    config_help(&help);
    config_docs(&docs);
    config_print(c, false, &yaml);
    assert_non_null(strstr(str_text(&help), "training.local_batch_size (integer) = 8"));
    assert_non_null(strstr(str_text(&help), "activation_checkpoint.mode (none|full|selective|memory_budget) = none"));
    for (const char *line = str_text(&yaml); *line; line = strchr(line, '\n') + 1) {
        char key[160] = "| `";

        if (*line != ' ') continue;
        strncat(key, line + 2, strcspn(line + 2, ":"));
        strcat(key, "` |");
        if (!strstr(str_text(&docs), key)) fail_msg("docs/config.md has no %s", key);
    }
    str_release(&help);
    str_release(&docs);
    str_release(&yaml);
    config_destroy(c);
}

/* Whichever allocation fails: an error, and nothing is lost (AddressSanitizer looks for leaks). */
static void test_out_of_memory(void **state)
{
    int n_failed = 0;

    (void)state;
    for (long n = 0;; n++) {
        struct config_problems problems = {0};
        struct error e = {0};
        struct config *c = NULL;
        int fired;
        err_t rc;

        mem_fault_arm(n);
        rc = config_from_text(&c, MIXED, sizeof MIXED - 1, "test.yaml", &problems, &e);
        fired = mem_fault_fired();
        mem_fault_arm(-1);
        if (rc) assert_true(rc == ERR_MEMORY || problems.n > 0);
        n_failed += rc != ERR_NONE;
        config_destroy(c);
        config_problems_release(&problems);
        if (!fired) break;
    }
    assert_true(n_failed > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_print_reads_back),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_hash_is_of_fixed_options),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_compare_by_purpose),
        cmocka_unit_test(test_help_and_docs_name_every_option),
        cmocka_unit_test(test_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

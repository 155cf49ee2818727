/* SPDX-License-Identifier: MIT */
/* Rules across options, what depends on the number of ranks, and what this build lacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/configs.h"

/* A frequency of 0 or less is an error; a limit of 1 keeps one good checkpoint; an interval may be longer
 * than the run. */
static void test_limits_and_frequencies(void **state)
{
    struct config *c;

    (void)state;
    assert_text_refused("metrics: {log_freq: 0}\n", 1,
                        TEXTS("test.yaml:1:21: metrics.log_freq must be greater than 0."));
    assert_text_refused("metrics: {log_freq: -1}\n", 1, TEXTS("metrics.log_freq must be greater than 0."));
    assert_text_refused(
        "validation: {freq: 0}\ncheckpoint: {interval: 0, keep_latest_k: -1}\n", 3,
        TEXTS("validation.freq: 0 is outside of 1", "checkpoint.interval: 0 is outside", "keep_latest_k: -1"));
    c = config_of_text("training: {steps: 10}\ncheckpoint: {enable: true, interval: 500, keep_latest_k: 1}\n");
    assert_int_equal(c->checkpoint.keep_latest_k, 1);
    config_destroy(c);
    c = config_of_text("checkpoint: {keep_latest_k: 0}\n");
    config_destroy(c);
}

static void test_rules_name_both_options(void **state)
{
    (void)state;
    assert_text_refused("training: {global_batch_size: 7, local_batch_size: 4}\n", 1,
                        TEXTS("training.global_batch_size=7 (test.yaml:1:31) is not a multiple of "
                              "training.local_batch_size=4 (test.yaml:1:52)"));
    assert_text_refused("validation: {enable: true}\n", 1,
                        TEXTS("validation.enable=true (test.yaml:1:22) needs validation.dataset=[] (default)"));
    assert_text_refused(
        "checkpoint: {load_only: true, load_step: 5, initial_load_path: a, create_seed_checkpoint: true}\n", 5,
        TEXTS("checkpoint.load_only=true (test.yaml:1:25) does nothing while checkpoint.enable=false (default)",
              "checkpoint.load_step=5", "checkpoint.initial_load_path=a", "checkpoint.create_seed_checkpoint=true",
              "which checkpoint.load_only=true (test.yaml:1:25) forbids"));
    assert_text_refused("checkpoint: {enable: true, create_seed_checkpoint: true}\nparallelism: "
                        "{data_parallel_shard_degree: 2}\n",
                        1, TEXTS("parallelism.data_parallel_shard_degree=2 (test.yaml:2:43) must be 1"));
    assert_text_refused("checkpoint: {exclude_from_loading: [optimiser]}\n", 1,
                        TEXTS("\"optimiser\" is none of optimizer"));
    assert_text_refused("model: {vocab_size: 1000}\n", 1,
                        TEXTS("training.tokenizer_vocab_size=2048 (default) is more than model.vocab_size=1000"));
    assert_text_refused("profiling: {enable_profiling: true, profile_freq: 3}\n", 1,
                        TEXTS("profiling.profiler_warmup=3 (default)"));
}

/* A dataset named on the command line is never replaced by what a file keeps for another one. */
static void test_fallback_belongs_to_its_dataset(void **state)
{
    static const char file[] = "training: {dataset: a.txt, dataset_fallback: b.txt}\n";
    struct config *c;

    (void)state;
    c = config_of_text_and(file, TEXTS("training.steps=3"));
    assert_int_equal(c->training.dataset_fallback.n, 1);
    config_destroy(c);
    c = config_of_text_and(file, TEXTS("training.dataset=c.txt"));
    assert_int_equal(c->training.dataset_fallback.n, 0);
    config_destroy(c);
    c = config_of_text_and(file, TEXTS("training.dataset_path=elsewhere"));
    assert_int_equal(c->training.dataset_fallback.n, 0);
    config_destroy(c);
    c = config_of_text_and(file, TEXTS("training.dataset=c.txt", "training.dataset_fallback=d.txt"));
    assert_int_equal(c->training.dataset_fallback.n, 1);
    assert_string_equal(c->training.dataset_fallback.item[0], "d.txt");
    config_destroy(c);
    c = config_of_text_and(file, TEXTS("training.dataset_fallback=d.txt"));
    assert_int_equal(c->training.dataset_fallback.n, 1);
    config_destroy(c);
}

static void test_each_given_value_means_something(void **state)
{
    (void)state;
    assert_text_refused("parallelism: {data_parallel_shard_degree: 0}\ntraining: {global_batch_size: "
                        "0}\nvalidation: {steps: 0}\n",
                        3, TEXTS("must be greater than 0, or -1"));
    assert_text_refused("job: {dump_folder: }\ncheckpoint: {folder: ''}\nmetrics: {save_tb_folder: ~}\n", 3,
                        TEXTS("job.dump_folder=\"\" (test.yaml:1:20) must not be empty"));
    assert_text_refused("training: {dataset: []}\n", 1, TEXTS("name the text to train on"));
    assert_text_refused("training: {dataset: [synthetic, b], document_separator: \"a\\nb\"}\n", 2,
                        TEXTS("stands alone", "one line"));
    assert_text_refused("metrics: {tags: [a=1, b, =c, a=2]}\n", 3,
                        TEXTS("\"b\" is not name=value", "\"=c\"", "\"a=2\" is given twice"));
}

/* What the profiler is told matters once it is on. */
static void test_traces_fit_their_interval(void **state)
{
    (void)state;
    config_destroy(config_of_text("profiling: {profile_freq: 3}\n")); /* fails the test where it is refused */
}

static void test_tags_are_few(void **state)
{
    struct str text = {0};

    (void)state;
    str_add(&text, "metrics: {tags: [");
    for (int i = 0; i <= 100; i++) str_addf(&text, "a%d=1, ", i);
    str_add(&text, "]}\n");
    assert_text_refused(str_text(&text), 1, TEXTS("metrics.tags has 101 entries", "100 are allowed"));
    str_release(&text);
}

static void test_float64_is_whole(void **state)
{
    struct config *c = config_of_text("training: {dtype: float64}\n");
    struct str printed = {0};

    (void)state;
    assert_int_equal(c->training.dtype, DTYPE_FLOAT64);
    assert_int_equal(c->training.mixed_precision_param, DTYPE_FLOAT64);
    assert_int_equal(c->training.mixed_precision_reduce, DTYPE_FLOAT64);
    config_print(c, true, &printed);
    assert_non_null(strstr(str_text(&printed), "# from training.dtype"));
    str_release(&printed);
    config_destroy(c);
    assert_text_refused("training: {dtype: float64, mixed_precision_param: float32}\n", 1,
                        TEXTS("training.mixed_precision_param=float32 (test.yaml:1:51) does not go with "
                              "training.dtype=float64"));
    assert_text_refused("training: {mixed_precision_param: float64}\n", 1, TEXTS("training.dtype=float32 (default)"));
    assert_text_refused("training: {dtype: float64, mixed_precision_param: bfloat16}\n", 1,
                        TEXTS("training.mixed_precision_param=bfloat16", "training.dtype=float64"));
    assert_text_refused("training: {mixed_precision_param: bfloat16, mixed_precision_reduce: float64}\n", 1,
                        TEXTS("training.mixed_precision_reduce=float64", "training.dtype=float32"));
}

static void test_parameter_groups(void **state)
{
    struct config_param_group group;
    struct error e = {0};

    (void)state;
    assert_int_equal(config_param_group(&group, "norm: x|bias$: weight_decay=0  lr_factor=.5 ", &e), ERR_NONE);
    assert_int_equal(group.pattern_length, strlen("norm: x|bias$"));
    assert_true(group.weight_decay.is_set && group.weight_decay.value == 0.0 && group.lr_factor.value == 0.5);
    assert_int_equal(config_param_group(&group, "norm: weight_decay=1e-2", &e), ERR_NONE);
    assert_true(group.weight_decay.value == 0.01 && !group.lr_factor.is_set);
    assert_text_refused("optimizer:\n  param_groups: ['norm', 'a: ', ': lr_factor=1', 'a: lr=1', 'a: "
                        "lr_factor=-1', 'a: weight_decay=0 weight_decay=1', '(a: lr_factor=1']\n",
                        7,
                        TEXTS("entry 1: \"norm\" has not the form REGEX: weight_decay=0 lr_factor=0.5", "entry 2: ",
                              "nothing stands after", "entry 3: ", "\"lr=1\" is neither", "expected a number from 0",
                              "weight_decay= is given twice", "entry 7: ", "not a regular expression"));
}

/* ---- the number of ranks ---- */
static void resolved(const char *yaml, int world, int64_t shard, int64_t global)
{
    struct config_problems problems = {0};
    struct config *c = config_of_text(yaml);

    config_resolve(c, world, &problems);
    if (problems.n) fail_msg("%s", str_text(&problems.text));
    assert_int_equal(c->parallelism.data_parallel_shard_degree, shard);
    assert_int_equal(c->training.global_batch_size, global);
    config_destroy(c);
}

static void not_resolved(const char *yaml, int world, const char *text)
{
    struct config_problems problems = {0};
    struct config *c = config_of_text(yaml);

    config_resolve(c, world, &problems);
    assert_int_equal(problems.n, 1);
    if (!strstr(str_text(&problems.text), text)) fail_msg("\"%s\" is missing in: %s", text, str_text(&problems.text));
    config_problems_release(&problems);
    config_destroy(c);
}

static void test_resolve(void **state)
{
    (void)state;
    resolved("", 1, 1, 8);
    resolved("", 6, 6, 48);
    resolved("parallelism: {data_parallel_replicate_degree: 2}\n", 8, 4, 64);
    resolved("parallelism: {data_parallel_shard_degree: 2, data_parallel_replicate_degree: 2}\n", 4, 2, 32);
    resolved("parallelism: {tensor_parallel_degree: 2, pipeline_parallel_degree: 2}\n", 8, 2, 16);
    resolved("training: {global_batch_size: 64}\n", 2, 2, 64);
    not_resolved("parallelism: {data_parallel_replicate_degree: 3}\n", 4,
                 "4 ranks cannot be divided by parallelism.data_parallel_replicate_degree=3 (test.yaml:1:47), "
                 "parallelism.data_parallel_shard_degree=-1 (default)");
    not_resolved("parallelism: {data_parallel_shard_degree: 2}\n", 4, "change a degree or NGPU");
    not_resolved("parallelism: {data_parallel_replicate_degree: 1048576, tensor_parallel_degree: 1048576,"
                 " pipeline_parallel_degree: 1048576, context_parallel_degree: 1048576}\n",
                 4, "cannot be divided");
    not_resolved("training: {global_batch_size: 24}\n", 2,
                 "is not a multiple of training.local_batch_size=8 (default) times 2 data ranks, 16");
    not_resolved("checkpoint: {enable: true, create_seed_checkpoint: true}\n", 2, "start it with NGPU=1");
}

/* ---- what this build lacks ---- */
static void test_missing_features(void **state)
{
    static const char *const lacking[] = {"parallelism: {tensor_parallel_degree: 2}",
                                          "parallelism: {pipeline_parallel_degree: 2}",
                                          "parallelism: {context_parallel_degree: 2}",
                                          "parallelism: {expert_parallel_degree: 2}",
                                          "parallelism: {pipeline_parallel_schedule: ZBVZeroBubble}",
                                          "metrics: {enable_wandb: true}",
                                          "quantize: {linear: {mx: {recipe_name: mxfp8_cublas}}}",
                                          "profiling: {enable_profiling: true}",
                                          "profiling: {enable_memory_snapshot: true}",
                                          "activation_checkpoint: {mode: full}",
                                          "training: {enable_cpu_offload: true}",
                                          "checkpoint: {async_mode: async}",
                                          "checkpoint: {last_save_in_hf: true}",
                                          "training: {dtype: bfloat16}",
                                          "debug: {moe_force_load_balance: true}",
                                          "comm: {trace_buf_size: 5}",
                                          "metrics: {http_token: abc}"};
    static const char *const built[] = {
        "parallelism: {data_parallel_replicate_degree: 2, fsdp_reshard_after_forward: never}",
        "training: {global_batch_size: 64, dtype: float64}",
        "training: {mixed_precision_param: bfloat16}",
        "validation: {enable: true, dataset: [a]}",
        "metrics: {enable_tensorboard: true}",
        "checkpoint: {enable: true, create_seed_checkpoint: true}",
        "device: {kind: cpu, kernels: reference}",
        "comm: {mode: local_tensor}"};

    (void)state;
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++) {
        struct config *c = config_of_text(lacking[i]);
        struct str out = {0};

        if (config_missing_features(c, &out) != 1) fail_msg("%s: %s", lacking[i], str_text(&out));
        assert_non_null(strstr(str_text(&out), "(test.yaml:1:"));
        assert_null(strstr(str_text(&out), "abc"));
        str_release(&out);
        config_destroy(c);
    }
    for (size_t i = 0; i < sizeof built / sizeof *built; i++) {
        struct config *c = config_of_text(built[i]);
        struct str out = {0};

        if (config_missing_features(c, &out) != 0) fail_msg("%s: %s", built[i], str_text(&out));
        str_release(&out);
        config_destroy(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_and_frequencies),
        cmocka_unit_test(test_rules_name_both_options),
        cmocka_unit_test(test_fallback_belongs_to_its_dataset),
        cmocka_unit_test(test_each_given_value_means_something),
        cmocka_unit_test(test_traces_fit_their_interval),
        cmocka_unit_test(test_float64_is_whole),
        cmocka_unit_test(test_tags_are_few),
        cmocka_unit_test(test_parameter_groups),
        cmocka_unit_test(test_resolve),
        cmocka_unit_test(test_missing_features),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

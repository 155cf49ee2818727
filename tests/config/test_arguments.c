/* SPDX-License-Identifier: MIT */
/* The command line: every form of an override, byte-exact values, the environment, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/configs.h"

static void test_every_form(void **state)
{
    struct config *c = config_of_arguments(
        TEXTS("training.steps=1", "--training.seq-len", "64", "--optimizer.lr=1e-4", "--debug.deterministic",
              "--checkpoint.enable", "true", "--training.no-shuffle", "--metrics.enable-tensorboard", "TRUE",
              "--metrics.disable_color_printing", "debug.seed=7", "--training.document-mask", "false",
              "--checkpoint.load_step", "-1", "--model.tie_embeddings", "lr-scheduler.decay-type=cosine",
              "--metrics.no-save-for-all-ranks"));

    (void)state;
    assert_int_equal(c->training.steps, 1);
    assert_int_equal(c->training.seq_len, 64);
    assert_true(c->optimizer.lr == 1e-4);
    assert_true(c->debug.deterministic && c->checkpoint.enable && c->metrics.enable_tensorboard);
    assert_true(!c->training.shuffle && !c->training.document_mask && c->metrics.disable_color_printing);
    assert_int_equal(c->debug.seed, 7);
    assert_int_equal(c->checkpoint.load_step, -1);
    assert_true(c->model.tie_embeddings.is_set && c->model.tie_embeddings.value);
    assert_int_equal(c->lr_scheduler.decay_type, CONFIG_DECAY_COSINE);
    assert_false(c->metrics.save_for_all_ranks);
    config_destroy(c);
}

static void test_last_one_wins(void **state)
{
    struct config *c = config_of_arguments(TEXTS("training.steps=1", "--training.steps", "2", "--debug.deterministic",
                                                 "debug.deterministic=false", "training.steps=3"));

    (void)state;
    assert_int_equal(c->training.steps, 3);
    assert_false(c->debug.deterministic);
    config_destroy(c);
}

/* Everything after the first = is the value. */
static void test_values_are_byte_exact(void **state)
{
    static const char *const values[] = {"a=b 50% #1, x:y",
                                         " spaces  around ",
                                         "\"quoted\" 'twice'",
                                         "",
                                         "=",
                                         "no",
                                         "010",
                                         "null",
                                         "~",
                                         "[1, 2",
                                         "\xe6\xa8\xa1\xe5\x9e\x8b \xf0\x9f\x99\x82",
                                         "back\\slash\ttab\nline",
                                         "\xff\xfe"};

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[128] = "job.description=", dashed[128] = "--job.description=";
        struct config *c;

        c = config_of_arguments(TEXTS(strcat(text, values[i])));
        assert_string_equal(c->job.description, values[i]);
        config_destroy(c);
        c = config_of_arguments(TEXTS(strcat(dashed, values[i])));
        assert_string_equal(c->job.description, values[i]);
        config_destroy(c);
        c = config_of_arguments(TEXTS("--job.description", values[i]));
        assert_string_equal(c->job.description, values[i]);
        config_destroy(c);
    }
}

static void test_lists(void **state)
{
    struct config *c =
        config_of_arguments(TEXTS("training.dataset=/a, /b c/*", "--checkpoint.exclude_from_loading",
                                  "dataloader,lr_scheduler", "metrics.tags=[\"a=1, 2\", 'b=#', c=d]",
                                  "training.dataset_exclude=", "optimizer.param_groups=norm: lr_factor=1"));

    (void)state;
    assert_int_equal(c->training.dataset.n, 2);
    assert_string_equal(c->training.dataset.item[0], "/a");
    assert_string_equal(c->training.dataset.item[1], "/b c/*");
    assert_int_equal(c->checkpoint.exclude_from_loading.n, 2);
    assert_int_equal(c->metrics.tags.n, 3);
    assert_string_equal(c->metrics.tags.item[0], "a=1, 2");
    assert_string_equal(c->metrics.tags.item[1], "b=#");
    assert_int_equal(c->training.dataset_exclude.n, 0);
    config_destroy(c);
    assert_arguments_refused(TEXTS("training.dataset=a,,b", "metrics.tags=[a=1", "training.dataset_fallback=[a] b"), 3,
                             TEXTS("an entry between commas is empty", "not a list like", "nothing behind it"));
}

static void test_nullable(void **state)
{
    struct config *c = config_of_arguments(TEXTS("model.dim=128", "model.n_layers=3", "model.n_layers=null",
                                                 "lr_scheduler.decay_ratio=~", "metrics.peak_tflops=312"));

    (void)state;
    assert_true(c->model.dim.is_set && c->model.dim.value == 128);
    assert_false(c->model.n_layers.is_set);
    assert_false(c->lr_scheduler.decay_ratio.is_set);
    assert_true(c->metrics.peak_tflops.value == 312.0);
    config_destroy(c);
}

static void test_refused_all_at_once(void **state)
{
    (void)state;
    assert_arguments_refused(
        TEXTS("trainig.steps=5", "--training.steps", "many", "steps", "--training.lr", "3", "--debug.seed",
              "--debug.deterministic=maybe", "--metrics.no-enable-tensorboard=true",
              "training.seq_len=", "--training.stepps", "training.shuffle=no", "--config"),
        11,
        TEXTS("argument 1, trainig.steps=5: there is no such option; did you mean training.steps?",
              "argument 2, --training.steps: training.steps: \"many\" is not an integer",
              "argument 4, steps: expected section.key=value",
              "argument 5, --training.lr: there is no such option; did you mean optimizer.lr?",
              "argument 7, --debug.seed: a value is missing",
              "argument 8, --debug.deterministic=maybe: debug.deterministic: \"maybe\" is neither true nor "
              "false",
              "argument 9, --metrics.no-enable-tensorboard=true: a switch with no- takes no value",
              "argument 10, training.seq_len=: training.seq_len: \"\" is not an integer",
              "argument 11, --training.stepps: there is no such option; did you mean training.steps?",
              "\"no\" is neither true nor false", "argument 13, --config: a name is missing"));
}

/* A slip in the name of a secret must not print what was to stay hidden. */
static void test_misspelt_secret(void **state)
{
    const char *arguments[] = {"metrics.http_tokn=hunter2", "--metrics.http-toke=hunter2"};
    struct config_problems problems = {0};
    struct error e = {0};
    struct config *c;

    (void)state;
    assert_int_equal(config_load(&c, 2, (char **)arguments, &problems, &e), ERR_CONFIG);
    assert_int_equal(problems.n, 2);
    assert_non_null(strstr(str_text(&problems.text), "argument 1, metrics.http_tokn=***: there is no such option"));
    assert_non_null(strstr(str_text(&problems.text), "did you mean metrics.http_token?"));
    assert_null(strstr(str_text(&problems.text), "hunter2"));
    assert_null(strstr(e.message, "hunter2"));
    config_problems_release(&problems);
}

static void test_numbers_out_of_range(void **state)
{
    (void)state;
    assert_arguments_refused(
        TEXTS("training.steps=9223372036854775808", "training.local_batch_size=0", "optimizer.lr=1e999",
              "optimizer.lr=.nan", "optimizer.beta2=1", "optimizer.lr=0x1p3", "training.steps=1_000",
              "training.steps= 5", "training.seq_len=-1", "optimizer.lr=1e", "optimizer.lr=."),
        11, TEXTS("9223372036854775808 is outside of 0 to 1000000000000", "0 is outside of 1 to 1048576"));
}

/* torchtitan's documents give these; each is taken, or refused by name. */
static void test_commands_of_the_field(void **state)
{
    struct config *c = config_of_arguments(TEXTS("--debug.seed", "42", "--debug.deterministic"));
    struct str missing = {0};

    (void)state;
    assert_true(c->debug.seed == 42 && c->debug.deterministic);
    assert_int_equal(config_missing_features(c, &missing), 0);
    config_destroy(c);

    c = config_of_arguments(
        TEXTS("--checkpoint.enable", "--checkpoint.create_seed_checkpoint",
              "--parallelism.data_parallel_replicate_degree", "1", "--parallelism.data_parallel_shard_degree", "1",
              "--parallelism.tensor_parallel_degree", "1", "--parallelism.pipeline_parallel_degree", "1",
              "--parallelism.context_parallel_degree", "1", "--parallelism.expert_parallel_degree", "1"));
    assert_true(c->checkpoint.enable && c->checkpoint.create_seed_checkpoint);
    assert_int_equal(config_missing_features(c, &missing), 0);
    config_destroy(c);

    c = config_of_arguments(
        TEXTS("--profiling.enable_memory_snapshot", "--profiling.save_memory_snapshot_folder", "memory_snapshot"));
    assert_int_equal(config_missing_features(c, &missing), 1);
    assert_string_equal(str_text(&missing),
                        "profiling.enable_memory_snapshot=true (argument 1): not built yet: memory snapshots\n");
    config_destroy(c);

    c = config_of_arguments(TEXTS("--metrics.no-enable-wandb", "debug.deterministic=false"));
    config_destroy(c);
    str_release(&missing);
}

static void test_torchtitans_later_forms(void **state)
{
    (void)state;
    assert_arguments_refused(TEXTS("--training.batch_size", "8", "activation-checkpoint:full", "--compile.enable",
                                   "--job.config_file", "x.toml", "--memory_estimation.enable"),
                             5,
                             TEXTS("it is training.local_batch_size here",
                                   "use activation_checkpoint.mode=", "no compiler", "give the file with --config",
                                   "memory_estimation.enable: there is no such option; ctitan has none"));
}

/* clang-format off */
static const char *const torchtitan_options[] = {
    "job.config_file", "job.dump_folder", "job.description", "job.print_config", "job.save_config_file",
    "job.custom_config_module", "model.name", "model.flavor", "model.hf_assets_path",
    "model.tokenizer_path", "model.converters", "model.print_after_conversion",
    "profiling.enable_profiling", "profiling.save_traces_folder", "profiling.profile_freq",
    "profiling.profiler_active", "profiling.profiler_warmup", "profiling.profiler_repeat",
    "profiling.profiler_skip_first", "profiling.profiler_skip_first_wait",
    "profiling.enable_memory_snapshot", "profiling.memory_snapshot_freq",
    "profiling.save_memory_snapshot_folder", "profiling.memory_snapshot_max_entries",
    "profiler.profiler_active", "metrics.log_freq", "metrics.enable_tensorboard",
    "metrics.disable_color_printing", "metrics.save_tb_folder", "metrics.save_for_all_ranks",
    "metrics.enable_wandb", "optimizer.name", "optimizer.lr", "optimizer.beta1", "optimizer.beta2",
    "optimizer.eps", "optimizer.weight_decay", "optimizer.implementation",
    "optimizer.early_step_in_backward", "optimizer.param_groups", "lr_scheduler.warmup_steps",
    "lr_scheduler.total_steps", "lr_scheduler.decay_ratio", "lr_scheduler.decay_type",
    "lr_scheduler.min_lr_factor", "training.dataset", "training.dataset_path", "training.local_batch_size",
    "training.global_batch_size", "training.seq_len", "training.max_norm", "training.steps",
    "training.enable_cpu_offload", "training.dtype", "training.mixed_precision_param",
    "training.mixed_precision_reduce", "training.gc_freq", "training.gc_debug",
    "training.dataloader.num_workers", "training.dataloader.persistent_workers",
    "training.dataloader.pin_memory", "training.dataloader.prefetch_factor",
    "training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step",
    "training.max_context_length", "training.disable_cuda_graphs",
    "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree",
    "parallelism.fsdp_reshard_after_forward", "parallelism.tensor_parallel_degree",
    "parallelism.pipeline_parallel_degree", "parallelism.module_fqns_per_model_part",
    "parallelism.pipeline_parallel_first_stage_less_layers",
    "parallelism.pipeline_parallel_last_stage_less_layers",
    "parallelism.pipeline_parallel_layers_per_stage", "parallelism.pipeline_parallel_schedule",
    "parallelism.pipeline_parallel_schedule_csv", "parallelism.context_parallel_degree",
    "parallelism.context_parallel_load_balancer", "parallelism.expert_parallel_degree",
    "parallelism.disable_loss_parallel", "parallelism.enable_async_tensor_parallel",
    "parallelism.pipeline_parallel_microbatch_size",
    "parallelism.pipeline_parallel_expert_parallel_overlap", "parallelism.context_parallel_rotate_method",
    "parallelism.expert_tensor_parallel_degree", "parallelism.expert_parallel_comm_backend",
    "parallelism.enable_fsdp_symm_mem", "parallelism.enable_sequence_parallel", "parallelism.spmd_backend",
    "parallelism.num_pp_microbatches", "parallelism.context_parallel_ptrr_mask_key", "checkpoint.enable",
    "checkpoint.folder", "checkpoint.interval", "checkpoint.initial_load_path",
    "checkpoint.initial_load_model_only", "checkpoint.initial_load_in_hf",
    "checkpoint.initial_load_in_hf_quantized", "checkpoint.last_save_model_only",
    "checkpoint.last_save_in_hf", "checkpoint.export_dtype", "checkpoint.async_mode",
    "checkpoint.keep_latest_k", "checkpoint.load_step", "checkpoint.exclude_from_loading",
    "checkpoint.enable_first_step_checkpoint", "checkpoint.create_seed_checkpoint", "checkpoint.load_only",
    "checkpoint.enable_ft_dataloader_checkpoints", "activation_checkpoint.mode",
    "activation_checkpoint.selective_ac_option",
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
    "activation_checkpoint.early_stop", "activation_checkpoint.memory_budget",
    "activation_checkpoint.visualize_memory_budget_pareto", "activation_checkpoint.preserve_rng_state",
    "activation_checkpoint.determinism_check", "activation_checkpoint.debug", "compile.enable",
    "compile.components", "compile.backend", "compile.enable_async_tensor_parallel",
    "quantize.linear.float8.enable_fsdp_float8_all_gather",
    "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", "quantize.linear.float8.recipe_name",
    "quantize.linear.float8.filter_fqns", "quantize.linear.float8.emulate",
    "quantize.grouped_mm.float8.fqns", "quantize.linear.mx.mxfp8_dim1_cast_kernel_choice",
    "quantize.linear.mx.recipe_name", "quantize.linear.mx.filter_fqns",
    "quantize.grouped_mm.mx.recipe_name", "quantize.grouped_mm.mx.fqns", "comm.init_timeout_seconds",
    "comm.train_timeout_seconds", "comm.trace_buf_size", "comm.save_traces_folder",
    "comm.save_traces_file_prefix", "comm.mode", "debug.seed", "debug.deterministic",
    "debug.deterministic_warn_only", "debug.moe_force_load_balance", "debug.detect_anomaly",
    "debug.batch_invariant", "debug.print_config", "debug.save_config_file", "debug.spmd_typechecking",
    "debug.enable_structured_logging", "validation.enable", "validation.dataset", "validation.dataset_path",
    "validation.local_batch_size", "validation.seq_len", "validation.freq", "validation.steps",
    "validator.freq", "memory_estimation.enable", "memory_estimation.disable_fake_mode",
    "fault_tolerance.enable", "fault_tolerance.process_group", "fault_tolerance.semi_sync_method",
    "experimental.custom_import", "experimental.custom_args_module", "override.imports", "loss.name",
    "dataloader.seed", "dataloader.shuffle", "dataloader.repeat",
};
/* clang-format on */

/* Every option of torchtitan 0.2, and those that its later development added: taken, or answered by name. */
static void test_every_torchtitan_option(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof torchtitan_options / sizeof *torchtitan_options; i++) {
        struct config_problems problems = {0};
        struct error e = {0};
        struct config *c;
        char text[160], *argument = text;

        strcat(strcpy(text, torchtitan_options[i]), "=1");
        if (config_load(&c, 1, &argument, &problems, &e) == ERR_CONFIG &&
            strstr(str_text(&problems.text), "no such option") &&
            (!strstr(str_text(&problems.text), "no such option; ") || strstr(str_text(&problems.text), "did you mean")))
            fail_msg("%s", str_text(&problems.text));
        config_destroy(c);
        config_problems_release(&problems);
    }
}

static void test_environment(void **state)
{
    struct config *c;

    (void)state;
    setenv("MODULE", "qwen3", 1);
    c = config_of_arguments(TEXTS("training.steps=1"));
    assert_string_equal(c->model.name, "qwen3");
    config_destroy(c);
    c = config_of_arguments(TEXTS("--module", "llama4", "--module=llama3"));
    assert_string_equal(c->model.name, "llama3");
    config_destroy(c);
    unsetenv("MODULE");
    setenv("CONFIG", "no_such_configuration", 1);
    assert_arguments_refused(TEXTS("training.steps=1"), 1,
                             TEXTS("there is no configuration named \"no_such_configuration\""));
    setenv("CONFIG", "llama3_debugmodel", 1);
    c = config_of_arguments(TEXTS("training.seq_len=512"));
    assert_int_equal(c->training.steps, 10);
    assert_int_equal(c->training.seq_len, 512);
    config_destroy(c);
    /* the argument wins, and of two arguments the last */
    c = config_of_arguments(TEXTS("--config", "no_such_configuration", "--config=llama3_debugmodel_ci"));
    assert_int_equal(c->training.steps, 200);
    assert_int_equal(c->validation.local_batch_size, 4);
    config_destroy(c);
    unsetenv("CONFIG");
    assert_arguments_refused(TEXTS("--config", "lama3_debugmodel"), 1,
                             TEXTS("did you mean llama3_debugmodel?", "llama3_405b"));
    assert_arguments_refused(TEXTS("--config", "configs/none.yaml"), 1,
                             TEXTS("cannot read configs/none.yaml: No such file"));
    assert_arguments_refused(TEXTS("--config", "configs/base/"), 1, TEXTS("is not a file"));
}

static int without_environment(void **state)
{
    (void)state;
    return unsetenv("CONFIG") || unsetenv("MODULE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form),
        cmocka_unit_test(test_last_one_wins),
        cmocka_unit_test(test_values_are_byte_exact),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_nullable),
        cmocka_unit_test(test_refused_all_at_once),
        cmocka_unit_test(test_misspelt_secret),
        cmocka_unit_test(test_numbers_out_of_range),
        cmocka_unit_test(test_commands_of_the_field),
        cmocka_unit_test(test_torchtitans_later_forms),
        cmocka_unit_test(test_every_torchtitan_option),
        cmocka_unit_test(test_environment),
    };

    return cmocka_run_group_tests(tests, without_environment, NULL);
}

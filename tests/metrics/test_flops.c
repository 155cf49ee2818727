/* SPDX-License-Identifier: MIT */
/* FLOPs per token against published figures, and that a peak is never guessed from part of a name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "metrics/flops.h"

static void assert_near(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want))) fail_msg("got %.17g, want %.17g", got, want);
}

static const struct flops_facts debug_model = {.n_parameters = 6163712,
                                               .n_embedding_parameters = 2048 * 256,
                                               .n_layers = 6,
                                               .n_heads = 16,
                                               .d_qk = 16,
                                               .d_v = 16,
                                               .seq_len = 2048};
static const struct flops_facts llama_8b = {.n_parameters = 8030261248,
                                            .n_embedding_parameters = 128256LL * 4096,
                                            .n_layers = 32,
                                            .n_heads = 32,
                                            .d_qk = 128,
                                            .d_v = 128,
                                            .seq_len = 8192};
static const struct flops_facts llama_1b = {.n_parameters = 1235814400,
                                            .n_embedding_parameters = 128256LL * 2048,
                                            .is_tied = true,
                                            .n_layers = 16,
                                            .n_heads = 32,
                                            .d_qk = 64,
                                            .d_v = 64,
                                            .seq_len = 8192};

/* torchtitan's own figures for the three models. */
static void test_palm_formula(void **state)
{
    (void)state;
    assert_near(flops_per_token(&debug_model), 71585280, 1e-12);
    assert_near(flops_per_token(&llama_8b), 5.79144e10, 1e-5);
    assert_near(flops_per_token(&llama_1b), 1.0636e10, 1e-4);
}

/* Figure 5: the PaLM count overstates a causal model; both are said. 8B at 8192: by 12.5 %. */
static void test_causal_beside_palm(void **state)
{
    struct flops_facts one = debug_model;
    struct str text = {0};

    (void)state;
    assert_near(flops_per_token(&llama_8b) / flops_per_token_causal(&llama_8b), 1.125, 1e-3);
    one.seq_len = 1; /* a single position sees itself: both agree */
    assert_near(flops_per_token(&one), flops_per_token_causal(&one), 0);
    flops_describe(&text, &llama_8b);
    assert_non_null(strstr(str_text(&text), "5.7914e+10"));
    assert_non_null(strstr(str_text(&text), "5.1473e+10, 11.1% less"));
    assert_non_null(strstr(str_text(&text), "8030261248 parameters - 525336576 of the embedding"));
    str_release(&text);
}

/* Figure 7: names are compared whole and in their own spelling. */
static void test_peak_by_exact_name(void **state)
{
    (void)state;
    assert_near(flops_peak("NVIDIA H100 80GB HBM3", DTYPE_BFLOAT16), 989e12, 0);
    assert_near(flops_peak("NVIDIA H100 PCIe", DTYPE_BFLOAT16), 756e12, 0);
    assert_near(flops_peak("NVIDIA L40S", DTYPE_BFLOAT16), 362e12, 0);
    assert_near(flops_peak("NVIDIA A100-SXM4-80GB", DTYPE_BFLOAT16), 312e12, 0);
    assert_true(flops_peak("NVIDIA RTX A1000", DTYPE_BFLOAT16) == 0);
    assert_true(flops_peak("NVIDIA GeForce RTX 4090", DTYPE_BFLOAT16) == 0);
    assert_true(flops_peak("l40s", DTYPE_BFLOAT16) == 0);
    assert_true(flops_peak("", DTYPE_BFLOAT16) == 0);
    assert_true(flops_peak("NVIDIA H200", DTYPE_INT32) == 0);
}

/* As nvidia-smi prints them: three H100 with three peaks; each type has its own; what a sheet leaves out is unknown. */
static void test_peaks(void **state)
{
    static const struct {
        const char *name;
        double bfloat16, float32, float64;
    } want[] = {
        {"NVIDIA H200", 989, 67, 67},
        {"NVIDIA H100 80GB HBM3", 989, 67, 67},
        {"NVIDIA H100 PCIe", 756, 51, 51},
        {"NVIDIA H100 NVL", 835, 60, 60},
        {"NVIDIA A100-SXM4-80GB", 312, 19.5, 19.5},
        {"NVIDIA A100-SXM4-40GB", 312, 19.5, 19.5},
        {"NVIDIA A100 80GB PCIe", 312, 19.5, 19.5},
        {"NVIDIA B200", 2250, 75, 37},
        {"NVIDIA L40S", 362, 91.6, 0},
        {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0, 0, 0}, /* a part of one */
        {"H200", 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_near(flops_peak(want[i].name, DTYPE_BFLOAT16), want[i].bfloat16 * 1e12, 1e-12);
        assert_near(flops_peak(want[i].name, DTYPE_FLOAT32), want[i].float32 * 1e12, 1e-12);
        assert_near(flops_peak(want[i].name, DTYPE_FLOAT64), want[i].float64 * 1e12, 1e-12);
    }
}

static void test_choice_of_peak(void **state)
{
    struct str line = {0};

    (void)state;
    assert_near(flops_choose_peak(&line, 123, 5e12, "NVIDIA H200", DTYPE_BFLOAT16), 123e12, 0);
    assert_non_null(strstr(str_text(&line), "metrics.peak_tflops"));
    assert_near(flops_choose_peak(&line, 0, 5e12, "NVIDIA H200", DTYPE_BFLOAT16), 5e12, 0);
    assert_near(flops_choose_peak(&line, 0, 0, "NVIDIA H200", DTYPE_BFLOAT16), 989e12, 0);
    str_clear(&line);
    assert_true(flops_choose_peak(&line, 0, 0, "AMD EPYC 7713", DTYPE_FLOAT32) == 0);
    assert_string_equal(str_text(&line), "Peak FLOPS of AMD EPYC 7713 in float32 are not known: mfu is N/A; "
                                         "metrics.peak_tflops sets them");
    str_release(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_palm_formula),       cmocka_unit_test(test_causal_beside_palm),
        cmocka_unit_test(test_peak_by_exact_name), cmocka_unit_test(test_peaks),
        cmocka_unit_test(test_choice_of_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* timeout: 300 */
/*
 * The real cuDNN plans attention for a GPU of sm_90, without one: heads of every flavour and configuration, forward and
 * backward, with and without documents. Its engines look at the shapes, and its kernels are compiled; only running them
 * needs a GPU (test_cudnn_numbers.c). The driver they are given to is tests/cudasim/driver.c.
 */
#include <dlfcn.h>
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/str.h"
#include "cuda/cudnn.h"
#include "models/model.h"

/* An H200. */
static const char h200[] =
    "{\"deviceVer\":900,\"multiProcessorCount\":132,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"regsPerBlock\":65536,"
    "\"totalGlobalMem\":150754820096,\"smClockRateKHz\":1980000,\"l2CacheSize\":62914560,"
    "\"maxBlockSize\":[1024,1024,64],\"memClockRateKHz\":3201000,\"maxGridSize\":[2147483647,65535,65535],"
    "\"supportCoopLaunch\":1,\"pciDeviceId\":0,\"isTccDriver\":0,\"cudaDeviceId\":0,\"driverVer\":13000,"
    "\"deviceName\":\"NVIDIA H200\"}";

static const int32_t documents; /* plans ask only whether there are any */

/* Before cuDNN looks for a driver: ours, unless there is a real one. And its compiler, which cuDNN opens and closes for
 * each plan: what a closed library keeps looks like a leak. */
static void load_driver(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    struct str driver = {0};

    dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_NODELETE);
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) return;
    assert_true(n > 0);
    path[n] = '\0';
    *strstr(path, "/tests/cuda/") = '\0';
    str_addf(&driver, "%s/cudasim/libcuda.so.1", path);
    if (!dlopen(str_text(&driver), RTLD_NOW | RTLD_GLOBAL)) fail_msg("%s", dlerror());
    str_release(&driver);
}

/* For a GPU of this compute capability, 90 = 9.0, else as an H200. Skips the running test where there is no cuDNN. */
static struct cudnn *open_plans_for(int capability, bool fixed_order)
{
    static const char version[] = "\"deviceVer\":900";
    char properties[sizeof h200 + 16];
    struct cudnn_options options = {.fixed_order_bytes = fixed_order ? SIZE_MAX : 0, .properties = properties};
    struct error e = {0};
    struct cudnn *c;
    err_t rc;

    load_driver();
    assert_memory_equal(h200 + 1, version, sizeof version - 1);
    snprintf(properties, sizeof properties, "{\"deviceVer\":%d%s", 10 * capability, h200 + sizeof version);
    rc = cudnn_open(&c, &options, &e);
    if (rc == ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", e.message);
        skip();
    }
    if (rc) fail_msg("%s", e.message);
    return c;
}

static struct cudnn *open_plans(bool fixed_order) { return open_plans_for(90, fixed_order); }

static struct attention shape_of(int64_t sequences, int64_t length, int64_t heads, int64_t kv_heads, int64_t head_dim,
                                 bool has_documents)
{
    return (struct attention){.sequences = sequences,
                              .length = length,
                              .heads = heads,
                              .kv_heads = kv_heads,
                              .d_qk = head_dim,
                              .d_v = head_dim,
                              .ld_q = heads * head_dim,
                              .ld_k = kv_heads * head_dim,
                              .ld_v = kv_heads * head_dim,
                              .ld_out = heads * head_dim,
                              .scale = 1 / sqrt((double)head_dim),
                              .causal = true,
                              .document_start = has_documents ? &documents : NULL};
}

static void assert_plans(struct cudnn *c, const struct attention *a, const char *who)
{
    struct error e = {0};

    if (cudnn_attention_prepare(c, a, DTYPE_BFLOAT16, true, &e))
        fail_msg("%s: %lld sequences of %lld, %lld/%lld heads of %lld%s: %s", who, (long long)a->sequences,
                 (long long)a->length, (long long)a->heads, (long long)a->kv_heads, (long long)a->d_qk,
                 a->document_start ? ", documents" : "", e.message);
    assert_true(cudnn_attention_workspace_bytes(c, a, true) > cudnn_attention_workspace_bytes(c, a, false));
}

/* A configuration's shape; plans that another one had are not made again. */
static void plan_configuration(struct cudnn *c, char *path)
{
    char option[] = "--config", *argv[] = {option, path};
    struct config_problems problems = {0};
    struct model_spec spec = {0};
    struct attention a;
    struct config *cfg;
    struct error e = {0};

    if (config_load(&cfg, 2, argv, &problems, &e)) fail_msg("%s", e.message);
    model_spec_resolve(&spec, cfg, &problems);
    if (problems.n) fail_msg("%s: %s", path, str_text(&problems.text));
    a = shape_of(cfg->training.local_batch_size, cfg->training.seq_len, spec.n_heads, spec.n_kv_heads, spec.head_dim,
                 false);
    assert_plans(c, &a, path);
    config_problems_release(&problems);
    config_destroy(cfg);
}

static void test_configurations(void **state)
{
    struct cudnn *c = open_plans(false);
    glob_t found = {0};

    (void)state;
    assert_int_equal(glob("configs/*.yaml", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) plan_configuration(c, found.gl_pathv[i]);
    globfree(&found);
    cudnn_close(c);
}

/* Documents, two sequences, and a length that is no multiple of a block, for the heads of each flavour. */
static void test_flavors(void **state)
{
    struct cudnn *c = open_plans(false);
    const struct model_spec *s;

    (void)state;
    for (int i = 0; (s = model_flavor(i)); i++) {
        struct attention a = shape_of(2, 1000 + 24 * (i % 2), s->n_heads, s->n_kv_heads, s->dim / s->n_heads, true);

        assert_plans(c, &a, s->flavor);
    }
    assert_non_null(model_flavor(0));
    cudnn_close(c);
}

/* Rows with gaps, values of another width than keys, one token, and many. */
static void test_other_shapes(void **state)
{
    struct cudnn *c = open_plans(false);
    struct attention gaps = shape_of(1, 256, 4, 2, 64, true), widths = shape_of(1, 512, 4, 4, 192, false),
                     single = shape_of(3, 1, 4, 4, 64, false), longest = shape_of(1, 131072, 4, 1, 128, false);

    (void)state;
    gaps.ld_q += 64;
    gaps.ld_k += 8;
    gaps.ld_v += 16;
    gaps.ld_out += 128;
    widths.d_v = 128;
    widths.ld_v = widths.ld_out = 4 * 128;
    assert_plans(c, &gaps, "gaps");
    assert_plans(c, &widths, "widths");
    assert_plans(c, &single, "one token");
    assert_plans(c, &longest, "long");
    cudnn_close(c);
}

/* The same bits in each run cost a workspace of length^2, and no float32 sum of dq. */
static void test_fixed_order(void **state)
{
    struct attention a = shape_of(2, 1024, 8, 2, 128, true);
    int64_t square = a.sequences * a.heads * a.length * a.length * 2;
    struct cudnn *c = open_plans(true);

    (void)state;
    assert_plans(c, &a, "fixed order");
    assert_true(cudnn_attention_workspace_bytes(c, &a, true) >= (size_t)square);
    cudnn_close(c);
}

/* Ampere has no backward pass with documents; Blackwell has all. */
static void test_other_gpus(void **state)
{
    struct attention plain = shape_of(2, 1024, 8, 2, 128, false), packed = shape_of(2, 1024, 8, 2, 128, true);
    struct cudnn *c = open_plans_for(80, false);

    (void)state;
    assert_plans(c, &plain, "8.0");
    cudnn_close(c);
    c = open_plans_for(100, false);
    assert_plans(c, &packed, "10.0");
    cudnn_close(c);
}

static void test_cache(void **state)
{
    struct attention a = shape_of(1, 64, 2, 2, 64, false), other = a;
    struct cudnn *c = open_plans(false);
    struct error e = {0};

    (void)state;
    assert_int_equal(cudnn_attention_workspace_bytes(c, &a, false), 0);
    assert_int_equal(cudnn_attention_prepare(c, &a, DTYPE_BFLOAT16, false, &e), 0);
    assert_true(cudnn_attention_workspace_bytes(c, &a, false) > 0);
    assert_int_equal(cudnn_attention_workspace_bytes(c, &a, true), 0); /* only what was asked for */
    other.scale = 3;
    assert_true(cudnn_attention_workspace_bytes(c, &other, false) > 0); /* the scale is no part of it */
    other.document_start = &documents;
    assert_int_equal(cudnn_attention_workspace_bytes(c, &other, false), 0);
    /* too small a workspace is noticed before anything is touched */
    assert_int_equal(cudnn_attention_forward(c, &a, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, &e), ERR_RANGE);
    cudnn_close(c);
}

/* By cuDNN: its reason is said, and said again without asking it. */
static void test_refused(void **state)
{
    struct attention a = shape_of(1, 256, 2, 2, 320, false), odd = shape_of(1, 256, 4, 3, 64, false);
    struct cudnn *c = open_plans(false);

    (void)state;
    for (int again = 0; again < 2; again++) {
        struct error e = {0};

        assert_int_equal(cudnn_attention_prepare(c, &a, DTYPE_BFLOAT16, true, &e), ERR_UNSUPPORTED);
        if (!strstr(e.message, "256")) fail_msg("no reason: %s", e.message);
        assert_null(strchr(e.message, '\n'));
        assert_int_equal(cudnn_attention_workspace_bytes(c, &a, true), 0);
        assert_int_not_equal(cudnn_attention_prepare(c, &odd, DTYPE_BFLOAT16, false, &e), 0);
    }
    cudnn_close(c);
}

/* By rules, without cuDNN. */
static void test_not_supported(void **state)
{
    struct attention good = shape_of(1, 256, 2, 2, 64, true), a;
    struct error e = {0};

    (void)state;
    assert_int_equal(cudnn_attention_supports(&good, DTYPE_BFLOAT16, &e), 0);
    assert_int_equal(cudnn_attention_supports(&good, DTYPE_FLOAT32, &e), ERR_UNSUPPORTED);
    a = good, a.causal = false;
    assert_int_equal(cudnn_attention_supports(&a, DTYPE_BFLOAT16, &e), ERR_UNSUPPORTED);
    a = good, a.window = 128;
    assert_int_equal(cudnn_attention_supports(&a, DTYPE_BFLOAT16, &e), ERR_UNSUPPORTED);
    a = good, a.d_v = 60;
    assert_int_equal(cudnn_attention_supports(&a, DTYPE_BFLOAT16, &e), ERR_UNSUPPORTED);
    a = good, a.ld_k += 2;
    assert_int_equal(cudnn_attention_supports(&a, DTYPE_BFLOAT16, &e), ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_supported), cmocka_unit_test(test_configurations), cmocka_unit_test(test_flavors),
        cmocka_unit_test(test_other_shapes),  cmocka_unit_test(test_fixed_order),    cmocka_unit_test(test_other_gpus),
        cmocka_unit_test(test_cache),         cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

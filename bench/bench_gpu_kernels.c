/* SPDX-License-Identifier: MIT */
/*
 * Times the GPU's kernels at the shapes of one 8B-wide layer, beside their bounds: one JSON line per kernel with the
 * time, and `of_bound`, the time that an H200 would need at its peak (989 TFLOP/s dense bfloat16, 4.8 TB/s) over it.
 *
 * usage: bench_gpu_kernels [--kernel NAME] [--type bfloat16|float32] [--tokens N] [--elements N]
 * --kernel takes those whose names contain the text; --tokens of a microbatch (default 8192), --elements of what the
 * optimizer goes over (default 64 Mi).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/pool.h"
#include "tests/kernels/cases.h"

#define H200_FLOPS 989e12
#define H200_BYTES 4.8e12

enum {
    WIDTH = 4096,
    HIDDEN = 14336,
    KV_WIDTH = 1024,
    HEADS = 32,
    KV_HEADS = 8,
    HEAD_DIM = 128,
    VOCABULARY = 128256,
    TABLE_ROWS = 16384
};
enum { WARM_UP = 3, LEAST_NS = 20 * 1000 * 1000, MOST_CALLS = 200, LOGIT_TOKENS = 2048, ATTENTION_LENGTH = 2048 };

struct options {
    const char *kernel, *type;
    int64_t tokens, elements;
};

static bool parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){.kernel = "", .type = "bfloat16", .tokens = 8192, .elements = 64 << 20};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return false;
        if (strcmp(argv[i], "--kernel") == 0)
            o->kernel = argv[i + 1];
        else if (strcmp(argv[i], "--type") == 0)
            o->type = argv[i + 1];
        else if (strcmp(argv[i], "--tokens") == 0)
            o->tokens = atoll(argv[i + 1]);
        else if (strcmp(argv[i], "--elements") == 0)
            o->elements = atoll(argv[i + 1]);
        else
            return false;
    }
    return o->tokens > 0 && o->elements > 0;
}

static void number(struct str *s, const char *key, double value)
{
    json_key(s, key);
    json_number(s, value);
}

static void text(struct str *s, const char *key, const char *value)
{
    json_key(s, key);
    json_text(s, value);
}

/* Nanoseconds a call: many are issued, then waited for. */
static err_t time_calls(struct kernel_run *r, const struct kernels *k, double *ns, struct error *e)
{
    struct device *d = r->context->device;
    int n = WARM_UP;
    err_t rc = ERR_NONE;

    for (int64_t took = 0; took < LEAST_NS && !rc; n = n * 4 < MOST_CALLS ? n * 4 : MOST_CALLS) {
        int64_t start = clock_ns();

        for (int i = 0; i < n; i++) kernel_run_call(r, k);
        rc = kernel_context_check(r->context, e);
        if (!rc) rc = d->ops->synchronize(d, e);
        took = clock_ns() - start;
        *ns = (double)took / n;
        if (n == MOST_CALLS) break;
    }
    return rc;
}

/* A case, and the bytes that must be read and written at least. */
struct timed {
    struct kernel_case c;
    double bytes;
};

static err_t bench(const struct timed *timed, const struct kernels *k, const struct kernels *host_kernels,
                   struct kernel_context *on_device, struct kernel_context *on_host, struct error *e)
{
    const struct kernel_case *c = &timed->c;
    double ns = 0, flops = kernel_case_flops(c), bytes = timed->bytes, bound;
    struct kernel_run host, run;
    char shape[CASE_TEXT_BYTES];
    struct str s = {0};
    err_t rc;

    kernel_run_init(&host, c, host_kernels, on_host);
    rc = kernel_run_upload(&run, &host, on_device, 0, e);
    kernel_run_release(&host);
    if (rc) return rc;
    rc = time_calls(&run, k, &ns, e);
    kernel_run_drop(&run);
    if (rc) return rc;
    kernel_case_text(c, shape);
    bound = flops / H200_FLOPS > bytes / H200_BYTES ? flops / H200_FLOPS : bytes / H200_BYTES;
    json_open(&s, '{');
    text(&s, "kernel", c->kernel);
    text(&s, "shape", shape);
    text(&s, "type", dtype_name(k->type));
    number(&s, "microseconds", ns / 1e3);
    if (flops > 0) number(&s, "tflop_per_s", flops / ns / 1e3);
    number(&s, "gb_per_s", bytes / ns);
    number(&s, "of_bound", bound * 1e9 / ns);
    json_close(&s, '}');
    printf("%s\n", str_text(&s));
    fflush(stdout);
    str_release(&s);
    return ERR_NONE;
}

/* Both need e and w, the bytes of an element of the compute type and of the wide type. */
#define PRODUCT(m_, n_, k_, tb)                                                                                        \
    {                                                                                                                  \
        {.kernel = "gemm", .m = m_, .n = n_, .k = k_, .transpose_b = tb},                                              \
            e *((double)m_ * k_ + (double)k_ * n_ + (double)m_ * n_)                                                   \
    }
#define PRODUCT_WIDE(m_, n_, k_)                                                                                       \
    {                                                                                                                  \
        {.kernel = "gemm_wide", .m = m_, .n = n_, .k = k_, .transpose_a = true, .accumulate = true},                   \
            e *((double)m_ * k_ + (double)k_ * n_) + 2 * w *m_ *n_                                                     \
    }
/* bytes_: of each of the t * d elements */
#define ROWS(kernel_, t_, d_, bytes_, ...)                                                                             \
    {                                                                                                                  \
        {.kernel = kernel_, .t = t_, .d = d_, __VA_ARGS__}, (bytes_) * (double)(t_) * (double)(d_)                     \
    }

static err_t bench_all(const struct options *o, const struct kernels *k, const struct kernels *host_kernels,
                       struct kernel_context *on_device, struct kernel_context *on_host, struct error *error)
{
    int64_t t = o->tokens, length = t < ATTENTION_LENGTH ? t : ATTENTION_LENGTH,
            logits = t < LOGIT_TOKENS ? t : LOGIT_TOKENS, n = o->elements;
    double e = (double)dtype_bytes(k->type), w = (double)dtype_bytes(dtype_wide(k->type));
    const struct attention attention = {.sequences = t / length,
                                        .length = length,
                                        .heads = HEADS,
                                        .kv_heads = KV_HEADS,
                                        .d_qk = HEAD_DIM,
                                        .d_v = HEAD_DIM,
                                        .causal = true};
    const struct timed cases[] = {
        PRODUCT(t, WIDTH, WIDTH, true),
        PRODUCT(t, KV_WIDTH, WIDTH, true),
        PRODUCT(t, HIDDEN, WIDTH, true),
        PRODUCT(t, WIDTH, HIDDEN, true),
        PRODUCT(t, WIDTH, HIDDEN, false),
        PRODUCT(logits, VOCABULARY, WIDTH, true),
        PRODUCT_WIDE(HIDDEN, WIDTH, t),
        PRODUCT_WIDE(WIDTH, WIDTH, t),
        /* q, k, v, out; then with dout, dq, dk, dv */
        {{.kernel = "attention_forward", .attention = attention}, e * 2 * (double)t * (WIDTH + KV_WIDTH)},
        {{.kernel = "attention_backward", .attention = attention}, e * (double)t * (4 * WIDTH + 4 * KV_WIDTH)},
        ROWS("rmsnorm_forward", t, WIDTH, 2 * e),
        ROWS("rmsnorm_backward_input", t, WIDTH, 3 * e),
        ROWS("rmsnorm_backward_weight", t, WIDTH, 2 * e),
        ROWS("rope", t, HEAD_DIM, 2 * e * HEADS, .n = HEADS),
        ROWS("swiglu_forward", t, HIDDEN, 3 * e),
        ROWS("swiglu_backward", t, HIDDEN, 5 * e),
        ROWS("add", t, WIDTH, 3 * e),
        ROWS("embedding_forward", t, WIDTH, 2 * e, .v = TABLE_ROWS),
        ROWS("embedding_backward_weight", t, WIDTH, e + 2 * w, .v = TABLE_ROWS),
        {{.kernel = "cross_entropy", .t = logits, .v = VOCABULARY, .accumulate = true},
         2 * e * (double)logits * VOCABULARY},
        ROWS("narrow", 1, n, e + w),
        ROWS("accumulate", 1, n, 3 * w),
        ROWS("adamw", 1, n, 7 * w),
        ROWS("sum_squares", 1, n, w),
    };
    err_t rc = ERR_NONE;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && !rc; i++)
        if (strstr(cases[i].c.kernel, o->kernel)) rc = bench(&cases[i], k, host_kernels, on_device, on_host, error);
    return rc;
}

int main(int argc, char **argv)
{
    struct device_options gpu = {.kind = "cuda", .local_size = 1}, cpu = {.kind = "cpu", .local_size = 1};
    struct device *device = NULL, *host = NULL;
    struct kernel_context on_device = {0}, on_host = {0};
    const struct kernels *k, *host_kernels;
    struct options o;
    struct error e;
    enum dtype type;
    err_t rc;

    if (!parse(&o, argc, argv) || !dtype_parse(o.type, &type)) {
        fprintf(stderr, "usage: bench_gpu_kernels [--kernel NAME] [--type bfloat16|float32] [--tokens N] "
                        "[--elements N]\n");
        return 2;
    }
    setenv("CTITAN_PLUGIN_PATH", "build/release", 0);
    rc = device_open(&device, &gpu, &e);
    if (!rc) rc = device_open(&host, &cpu, &e);
    if (!rc) rc = kernels_for(&k, device, type, "auto", &e);
    if (!rc) rc = kernels_for(&host_kernels, host, type, "auto", &e);
    if (!rc) rc = kernel_context_open(&on_device, device, k, NULL, true, &e);
    if (!rc) rc = kernel_context_open(&on_host, host, host_kernels, NULL, true, &e);
    if (!rc) rc = bench_all(&o, k, host_kernels, &on_device, &on_host, &e);
    if (rc) fprintf(stderr, "bench_gpu_kernels: %s\n", e.message);
    kernel_context_close(&on_device);
    kernel_context_close(&on_host);
    device_close(device);
    device_close(host);
    return rc != ERR_NONE;
}

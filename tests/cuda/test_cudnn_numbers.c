/* SPDX-License-Identifier: MIT */
/* timeout: 300 */
/*
 * What cuDNN computes on a GPU, against the reference kernel in float64 on the same numbers: the heads of every
 * flavour, with and without documents, with gaps between rows. How far the bfloat16 reference of the CPU is off, which
 * rounds at the same stores, says what is good. Then the times of the largest shapes, for the reader.
 */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <cuda_runtime_api.h>

#include "base/bfloat16.h"
#include "base/mem.h"
#include "cuda/cudnn.h"
#include "kernels/cpu/cpu.h"
#include "models/model.h"

/* The arrays of attention, in the order of kernels.def. */
enum { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, ARRAYS };
static const char *const names[ARRAYS] = {"q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv"};

struct numbers {
    struct attention a;
    int64_t rows[ARRAYS], width[ARRAYS], ld[ARRAYS];
    int32_t *starts;                     /* NULL: no documents */
    double *want[ARRAYS];                /* the reference in float64 */
    void *host[ARRAYS], *device[ARRAYS]; /* bfloat16, lse float32 */
    int32_t *device_starts;
    void *workspace;
    size_t workspace_bytes;
};

static struct {
    struct cudnn *cudnn, *fixed;
    struct device device;
    struct kernel_context context;
    cudaStream_t stream;
} gpu;

static void check(cudaError_t code, const char *what)
{
    if (code != cudaSuccess) fail_msg("%s: %s", what, cudaGetErrorString(code));
}
#define CUDA(call) check(call, #call)

/* Skips the running test without a GPU that cuDNN can use. The simulator is none: it does not run cuDNN's kernels. */
static void need_gpu(void)
{
    struct cudnn_options options = {0};
    struct error e = {0};
    int n = 0;
    err_t rc;

    if (gpu.cudnn) return;
    if (dlsym(RTLD_DEFAULT, "cudasim_reports") || cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        print_message("skipped: no GPU\n");
        skip();
    }
    CUDA(cudaSetDevice(0));
    rc = cudnn_open(&gpu.cudnn, &options, &e);
    if (rc == ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", e.message);
        skip();
    }
    if (rc) fail_msg("%s", e.message);
    options.fixed_order_bytes = SIZE_MAX;
    if (cudnn_open(&gpu.fixed, &options, &e)) fail_msg("%s", e.message);
    CUDA(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
    if (pool_create(&gpu.device.pool, (int)sysconf(_SC_NPROCESSORS_ONLN), &e)) fail_msg("%s", e.message);
    gpu.context.device = &gpu.device;
}

static int close_gpu(void **state)
{
    (void)state;
    cudnn_close(gpu.cudnn);
    cudnn_close(gpu.fixed);
    if (gpu.stream) cudaStreamDestroy(gpu.stream);
    pool_destroy(gpu.device.pool);
    return 0;
}

/* ---- numbers ---- */
static size_t bytes_of(const struct numbers *n, int i)
{
    return (size_t)(n->rows[i] * n->ld[i]) * (i == LSE ? sizeof(float) : sizeof(bfloat16));
}

static double host_value(const struct numbers *n, int i, int64_t k)
{
    return i == LSE ? (double)((const float *)n->host[i])[k] : bfloat16_to_float(((const bfloat16 *)n->host[i])[k]);
}

static void describe(struct numbers *n, int64_t sequences, int64_t length, int64_t heads, int64_t kv_heads,
                     int64_t head_dim, int64_t gap)
{
    int64_t tokens = sequences * length, q = heads * head_dim, kv = kv_heads * head_dim;
    const int64_t width[ARRAYS] = {
        [Q] = q, [K] = kv, [V] = kv, [OUT] = q, [LSE] = length, [DQ] = q, [DK] = kv, [DV] = kv, [DOUT] = q};

    memset(n, 0, sizeof *n);
    n->a = (struct attention){.sequences = sequences,
                              .length = length,
                              .heads = heads,
                              .kv_heads = kv_heads,
                              .d_qk = head_dim,
                              .d_v = head_dim,
                              .ld_q = q + gap,
                              .ld_k = kv + 2 * gap,
                              .ld_v = kv + 3 * gap,
                              .ld_out = q + 4 * gap,
                              .scale = 1 / sqrt((double)head_dim),
                              .causal = true};
    for (int i = 0; i < ARRAYS; i++) {
        n->rows[i] = i == LSE ? sequences * heads : tokens;
        n->width[i] = width[i];
        n->ld[i] = i == LSE            ? length
                   : i == Q || i == DQ ? n->a.ld_q
                   : i == K || i == DK ? n->a.ld_k
                   : i == V || i == DV ? n->a.ld_v
                                       : n->a.ld_out;
    }
}

static bool is_input(int i) { return i == Q || i == K || i == V || i == DOUT; }

/* Inputs are numbers that bfloat16 has; what else there is holds NaN, gaps too. */
static void fill(struct numbers *n, int64_t document_length)
{
    uint64_t seed = 1;

    for (int i = 0; i < ARRAYS; i++) {
        int64_t count = n->rows[i] * n->ld[i];

        n->want[i] = mem_alloc((size_t)count * sizeof(double));
        n->host[i] = mem_alloc(bytes_of(n, i));
        assert_true(n->want[i] && n->host[i]);
        memset(n->host[i], 0xff, bytes_of(n, i));
        for (int64_t k = 0; k < count; k++) {
            n->want[i][k] = NAN;
            if (!is_input(i) || k % n->ld[i] >= n->width[i]) continue;
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            ((bfloat16 *)n->host[i])[k] = bfloat16_of_double(((double)(seed >> 33) / 0x1p30 - 1) * 1.7);
            n->want[i][k] = host_value(n, i, k);
        }
    }
    if (!document_length) return;
    n->starts = mem_alloc((size_t)(n->a.sequences * n->a.length) * sizeof *n->starts);
    assert_non_null(n->starts);
    for (int64_t k = 0; k < n->a.sequences * n->a.length; k++) {
        int64_t within = k % n->a.length;

        n->starts[k] = (int32_t)(within - within % (document_length + k / n->a.length));
    }
    n->a.document_start = n->starts;
}

static void release(struct numbers *n)
{
    for (int i = 0; i < ARRAYS; i++) {
        mem_free(n->want[i]);
        mem_free(n->host[i]);
        cudaFree(n->device[i]);
    }
    mem_free(n->starts);
    cudaFree(n->device_starts);
    cudaFree(n->workspace);
}

/* ---- the GPU ---- */
static void to_device(struct numbers *n, struct cudnn *c)
{
    struct error e = {0};

    for (int i = 0; i < ARRAYS; i++) {
        CUDA(cudaMalloc(&n->device[i], bytes_of(n, i)));
        if (n->host[i]) CUDA(cudaMemcpy(n->device[i], n->host[i], bytes_of(n, i), cudaMemcpyHostToDevice));
    }
    if (n->starts) {
        size_t bytes = (size_t)(n->a.sequences * n->a.length) * sizeof *n->starts;

        CUDA(cudaMalloc((void **)&n->device_starts, bytes));
        CUDA(cudaMemcpy(n->device_starts, n->starts, bytes, cudaMemcpyHostToDevice));
    }
    if (cudnn_attention_prepare(c, &n->a, DTYPE_BFLOAT16, true, &e)) fail_msg("%s", e.message);
    n->workspace_bytes = cudnn_attention_workspace_bytes(c, &n->a, true);
    CUDA(cudaMalloc(&n->workspace, n->workspace_bytes));
    CUDA(cudaMemset(n->workspace, 0xff, n->workspace_bytes));
    CUDA(cudaDeviceSynchronize());
}

static void forward(struct numbers *n, struct cudnn *c)
{
    struct attention a = n->a;
    struct error e = {0};

    a.document_start = n->device_starts;
    if (cudnn_attention_forward(c, &a, n->device[Q], n->device[K], n->device[V], n->device[OUT], n->device[LSE],
                                n->workspace, n->workspace_bytes, gpu.stream, &e))
        fail_msg("%s", e.message);
}

static void backward(struct numbers *n, struct cudnn *c)
{
    struct attention a = n->a;
    struct error e = {0};

    a.document_start = n->device_starts;
    if (cudnn_attention_backward(c, &a, n->device[Q], n->device[K], n->device[V], n->device[OUT], n->device[LSE],
                                 n->device[DOUT], n->device[DQ], n->device[DK], n->device[DV], n->workspace,
                                 n->workspace_bytes, gpu.stream, &e))
        fail_msg("%s", e.message);
}

static void from_device(struct numbers *n)
{
    CUDA(cudaStreamSynchronize(gpu.stream));
    for (int i = 0; i < ARRAYS; i++) CUDA(cudaMemcpy(n->host[i], n->device[i], bytes_of(n, i), cudaMemcpyDeviceToHost));
}

/* ---- comparing ---- */

/* Relative L2 difference of the host's array from the reference; gaps must have been left alone. */
static double difference(const struct numbers *n, int i)
{
    double apart = 0, size = 0;

    for (int64_t k = 0; k < n->rows[i] * n->ld[i]; k++) {
        double got = host_value(n, i, k), want = n->want[i][k];

        if (isnan(got) != isnan(want)) return INFINITY;
        if (isnan(want)) continue;
        apart += (got - want) * (got - want);
        size += want * want;
    }
    return size > 0 ? sqrt(apart / size) : sqrt(apart);
}

static void reference(struct numbers *n)
{
    double **w = n->want;

    attention_forward_float64(&gpu.context, &n->a, w[Q], w[K], w[V], w[OUT], w[LSE]);
    attention_backward_float64(&gpu.context, &n->a, w[Q], w[K], w[V], w[OUT], w[LSE], w[DOUT], w[DQ], w[DK], w[DV]);
}

static void reference_bfloat16(struct numbers *n)
{
    void **h = n->host;

    attention_forward_bfloat16(&gpu.context, &n->a, h[Q], h[K], h[V], h[OUT], h[LSE]);
    attention_backward_bfloat16(&gpu.context, &n->a, h[Q], h[K], h[V], h[OUT], h[LSE], h[DOUT], h[DQ], h[DK], h[DV]);
}

static void compare(struct numbers *n, struct cudnn *c, const char *who)
{
    double own[ARRAYS];

    reference(n);
    to_device(n, c);
    reference_bfloat16(n);
    for (int i = 0; i < ARRAYS; i++) own[i] = difference(n, i);
    forward(n, c);
    backward(n, c);
    from_device(n);
    for (int i = 0; i < ARRAYS; i++) {
        /* the GPU also rounds probabilities and their gradients to bfloat16, before products; lse it does not round */
        double got = difference(n, i), most = is_input(i) ? 0 : i == LSE ? 1e-5 : 2.5 * own[i] + 2e-3;

        if (!is_input(i))
            print_message("  %-12s %lldx%lld %lld/%lldx%lld%s %-4s %.2e (CPU %.2e)\n", who, (long long)n->a.sequences,
                          (long long)n->a.length, (long long)n->a.heads, (long long)n->a.kv_heads, (long long)n->a.d_qk,
                          n->starts ? " documents" : "", names[i], got, own[i]);
        if (!(got <= most)) fail_msg("%s: %s differs by %g, at most %g is fine", who, names[i], got, most);
    }
    release(n);
}

/* Of each flavour two groups of heads at most: the others are alike. */
static void test_flavors(void **state)
{
    const struct model_spec *s;

    (void)state;
    need_gpu();
    for (int i = 0; (s = model_flavor(i)); i++) {
        int64_t kv_heads = s->n_kv_heads < 2 ? s->n_kv_heads : 2, heads = s->n_heads / s->n_kv_heads * kv_heads;

        for (int documents = 0; documents < 2; documents++) {
            struct numbers n;

            describe(&n, 2, documents ? 200 : 256, heads, kv_heads, s->dim / s->n_heads, 0);
            fill(&n, documents ? 37 : 0);
            compare(&n, gpu.cudnn, s->flavor);
        }
    }
}

static void test_other_shapes(void **state)
{
    static const struct {
        int64_t sequences, length, heads, kv_heads, head_dim, gap, document_length;
    } shapes[] = {{1, 1, 2, 1, 64, 0, 0},     {1, 77, 4, 2, 128, 8, 0},    {3, 130, 4, 4, 64, 16, 1},
                  {1, 640, 2, 1, 128, 0, 64}, {1, 300, 2, 2, 256, 64, 99}, {1, 64, 1, 1, 8, 0, 0}};

    (void)state;
    need_gpu();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int fixed = 0; fixed < 2; fixed++) {
            struct numbers n;

            describe(&n, shapes[i].sequences, shapes[i].length, shapes[i].heads, shapes[i].kv_heads, shapes[i].head_dim,
                     shapes[i].gap);
            fill(&n, shapes[i].document_length);
            compare(&n, fixed ? gpu.fixed : gpu.cudnn, fixed ? "fixed order" : "other");
        }
}

/* Long enough for many blocks to add to one dq; the workspace holds what the run before left. */
static void test_fixed_order(void **state)
{
    struct numbers n;
    void *first[ARRAYS];

    (void)state;
    need_gpu();
    describe(&n, 1, 2048, 8, 2, 128, 0);
    fill(&n, 300);
    to_device(&n, gpu.fixed);
    for (int run = 0; run < 3; run++) {
        forward(&n, gpu.fixed);
        backward(&n, gpu.fixed);
        from_device(&n);
        for (int i = 0; i < ARRAYS; i++) {
            if (run == 0) {
                first[i] = mem_alloc(bytes_of(&n, i));
                assert_non_null(first[i]);
                memcpy(first[i], n.host[i], bytes_of(&n, i));
            }
            if (memcmp(first[i], n.host[i], bytes_of(&n, i)) != 0)
                fail_msg("%s has other bits in run %d", names[i], run);
        }
    }
    for (int i = 0; i < ARRAYS; i++) mem_free(first[i]);
    release(&n);
}

static double milliseconds(struct numbers *n, struct cudnn *c, void (*call)(struct numbers *, struct cudnn *))
{
    enum { TIMES = 5 };
    cudaEvent_t begin, end;
    float ms = 0;

    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    call(n, c);
    CUDA(cudaEventRecord(begin, gpu.stream));
    for (int i = 0; i < TIMES; i++) call(n, c);
    CUDA(cudaEventRecord(end, gpu.stream));
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms / TIMES;
}

/* Nothing is asserted: figures for whoever reads the log. 4 T^2/2 H D operations forward, 2.5 times that backward. */
static void test_times(void **state)
{
    (void)state;
    need_gpu();
    for (int fixed = 0; fixed < 2; fixed++)
        for (int64_t length = 2048; length <= 8192; length *= 2) {
            struct cudnn *c = fixed ? gpu.fixed : gpu.cudnn;
            struct numbers n;
            double flops = 2.0 * (double)length * (double)length * 32 * 128, f, b;

            describe(&n, 1, length, 32, 8, 128, 0);
            to_device(&n, c); /* what is in memory does not matter */
            for (int i = 0; i < ARRAYS; i++) CUDA(cudaMemset(n.device[i], 0, bytes_of(&n, i)));
            f = milliseconds(&n, c, forward);
            b = milliseconds(&n, c, backward);
            print_message("  1x%lld 32/8x128%s: forward %.3f ms %.0f TFLOP/s, backward %.3f ms %.0f TFLOP/s\n",
                          (long long)length, fixed ? " fixed order" : "", f, flops / f / 1e9, b, 2.5 * flops / b / 1e9);
            release(&n);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flavors),
        cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_fixed_order),
        cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, close_gpu);
}

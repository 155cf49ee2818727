/* SPDX-License-Identifier: MIT */
/* Products of matrices on the GPU: every type, transposition and leading dimension against a sum in double; batches;
 * empty sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "cuda/gemm.h"
#include "tests/support/gpu.h"

enum { MOST = 40000 };

/* A matrix on the host in double, as the type holds it, and on the device. */
struct matrix {
    double host[MOST];
    char bytes[MOST * 8];
    void *device;
    enum dtype type;
    int64_t n;
};

static struct matrix a, b, out;

static double as_bfloat16(double x)
{
    float f = (float)x;
    uint32_t bits;

    memcpy(&bits, &f, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &bits, 4);
    return f;
}

static void put(struct matrix *m, int64_t i, double x)
{
    float f = (float)x;
    uint32_t bits;

    memcpy(&bits, &f, 4);
    if (m->type == DTYPE_BFLOAT16) {
        uint16_t half = (uint16_t)(bits >> 16);

        memcpy(m->bytes + 2 * i, &half, 2);
    } else if (m->type == DTYPE_FLOAT32) {
        memcpy(m->bytes + 4 * i, &f, 4);
    } else {
        memcpy(m->bytes + 8 * i, &x, 8);
    }
}

static double get(const struct matrix *m, int64_t i)
{
    uint16_t half;
    uint32_t bits;
    float f;
    double x;

    if (m->type == DTYPE_FLOAT64) {
        memcpy(&x, m->bytes + 8 * i, 8);
        return x;
    }
    if (m->type == DTYPE_FLOAT32) {
        memcpy(&f, m->bytes + 4 * i, 4);
        return f;
    }
    memcpy(&half, m->bytes + 2 * i, 2);
    bits = (uint32_t)half << 16;
    memcpy(&f, &bits, 4);
    return f;
}

static void ok(err_t rc, const struct error *e)
{
    if (rc) fail_msg("%s", e->message);
}

static void draw(struct device *d, struct matrix *m, enum dtype type, int64_t n, uint64_t seed)
{
    struct rng_key key = rng_key_of(seed, "gemm");
    struct error e = {0};

    assert_in_range(n, 1, MOST);
    m->type = type;
    m->n = n;
    for (int64_t i = 0; i < n; i++) {
        m->host[i] = (double)rng_below(key, (uint64_t)i, 2001) / 1000 - 1;
        if (type == DTYPE_BFLOAT16) m->host[i] = as_bfloat16(m->host[i]);
        if (type == DTYPE_FLOAT32) m->host[i] = (double)(float)m->host[i];
        put(m, i, m->host[i]);
    }
    ok(device_alloc(d, (size_t)n * dtype_bytes(type), MEMORY_STASH, "matrix", NULL, &m->device, &e), &e);
    ok(device_write(d, m->device, m->bytes, (size_t)n * dtype_bytes(type), &e), &e);
}

static void check(struct device *d, const struct cuda_gemm *g)
{
    int64_t rows_a = g->transpose_a ? g->k : g->m, rows_b = g->transpose_b ? g->n : g->k;
    int batch = g->batch ? g->batch : 1;
    double tolerance = g->out_type == DTYPE_BFLOAT16 ? 1e-2 : g->type == DTYPE_FLOAT64 ? 1e-13 : 1e-5;
    struct kernels none = {.workspace_bytes = 1 << 20};
    struct kernel_context c;
    struct error e = {0};

    draw(d, &a, g->type, (batch - 1) * g->stride_a + (rows_a ? rows_a : 1) * g->lda, 1);
    draw(d, &b, g->type, (batch - 1) * g->stride_b + (rows_b ? rows_b : 1) * g->ldb, 2);
    draw(d, &out, g->out_type, (batch - 1) * g->stride_out + g->m * g->ldo, 3);
    ok(kernel_context_open(&c, d, &none, NULL, true, &e), &e);
    cuda_gemm(&c, g, a.device, b.device, out.device);
    ok(kernel_context_check(&c, &e), &e);
    ok(device_read(d, out.bytes, out.device, (size_t)out.n * dtype_bytes(out.type), &e), &e);
    for (int64_t i = 0; i < out.n; i++) {
        int64_t q = g->stride_out ? i / g->stride_out : 0, at = i - q * g->stride_out, row = at / g->ldo,
                column = at % g->ldo;
        double want = out.host[i], sum = 0;

        if (q < batch && row < g->m && column < g->n) { /* else what lies between rows stays as it is */
            for (int64_t k = 0; k < g->k; k++)
                sum += a.host[q * g->stride_a + (g->transpose_a ? k * g->lda + row : row * g->lda + k)] *
                       b.host[q * g->stride_b + (g->transpose_b ? column * g->ldb + k : k * g->ldb + column)];
            want = g->alpha * sum + (g->accumulate ? want : 0);
        }
        if (!(fabs(get(&out, i) - want) <= tolerance * (1 + fabs(want))))
            fail_msg("%s%s [%d,%d,%d] element %d: %.9g instead of %.9g", dtype_name(g->type),
                     g->accumulate ? ", added" : "", (int)g->m, (int)g->n, (int)g->k, (int)i, get(&out, i), want);
    }
    kernel_context_close(&c);
    device_free(d, a.device);
    device_free(d, b.device);
    device_free(d, out.device);
}

static const enum dtype types[][2] = {{DTYPE_BFLOAT16, DTYPE_BFLOAT16},
                                      {DTYPE_BFLOAT16, DTYPE_FLOAT32},
                                      {DTYPE_FLOAT32, DTYPE_FLOAT32},
                                      {DTYPE_FLOAT64, DTYPE_FLOAT64}};

static void test_shapes(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {16, 32, 64}, {5, 7, 3}, {33, 17, 40}};
    struct device *d = gpu_open(0);

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (int way = 0; way < 16; way++) {
                struct cuda_gemm g = {.type = types[t][0],
                                      .out_type = types[t][1],
                                      .transpose_a = way & 1,
                                      .transpose_b = way >> 1 & 1,
                                      .accumulate = way >> 2 & 1,
                                      .m = shapes[s][0],
                                      .n = shapes[s][1],
                                      .k = shapes[s][2],
                                      .alpha = 1};
                int64_t beside = way >> 3 & 1 ? 8 : 0; /* wider rows */

                g.lda = (g.transpose_a ? g.m : g.k) + beside;
                g.ldb = (g.transpose_b ? g.k : g.n) + beside;
                g.ldo = g.n + beside;
                check(d, &g);
            }
        }
    }
    device_close(d);
}

static void test_batches_and_empty_sums(void **state)
{
    struct device *d = gpu_open(0);

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct cuda_gemm g = {.type = types[t][0],
                              .out_type = types[t][1],
                              .m = 8,
                              .n = 16,
                              .k = 24,
                              .lda = 24,
                              .ldb = 16,
                              .ldo = 16,
                              .batch = 3,
                              .stride_a = 8 * 24,
                              .stride_b = 24 * 16,
                              .stride_out = 8 * 16,
                              .alpha = 0.5};

        check(d, &g);
        g.k = 0;
        check(d, &g);
        g.accumulate = true;
        check(d, &g);
    }
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_batches_and_empty_sums),
    };
    return gpu_is_here() ? cmocka_run_group_tests(tests, NULL, NULL) : GPU_SKIPPED;
}

/* SPDX-License-Identifier: MIT */
/* Which attention runs: cuDNN, which is played by this file, where it takes the shape; the plain kernels elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "cuda/attention.h"
#include "cuda/cudnn.h"

/* ---- cuDNN, and what a device's files give ---- */
static struct {
    err_t open, prepare, run; /* its answers */
    int n_open, n_prepared, n_forward, n_backward, n_plain, n_failed;
    size_t fixed_order_bytes;
    char failure[128];
} played;

static char a_cudnn;

err_t cudnn_open(struct cudnn **out, const struct cudnn_options *options, struct error *e)
{
    played.n_open++;
    played.fixed_order_bytes = options->fixed_order_bytes;
    *out = played.open ? NULL : (struct cudnn *)&a_cudnn;
    return played.open ? FAIL(e, played.open, "no cuDNN here") : ERR_NONE;
}

void cudnn_close(struct cudnn *c) { played.n_open -= c != NULL; }

void cudnn_version(const struct cudnn *c, char *text, size_t bytes)
{
    (void)c;
    snprintf(text, bytes, "9.99.0");
}

err_t cudnn_attention_prepare(struct cudnn *c, const struct attention *a, enum dtype compute, bool with_backward,
                              struct error *e)
{
    (void)c, (void)a, (void)with_backward;
    assert_int_equal(compute, DTYPE_BFLOAT16);
    played.n_prepared++;
    return played.prepare ? FAIL(e, played.prepare, "not this shape") : ERR_NONE;
}

size_t cudnn_attention_workspace_bytes(const struct cudnn *c, const struct attention *a, bool is_backward)
{
    (void)c, (void)a;
    return is_backward ? 2000 : 1000;
}

err_t cudnn_attention_forward(struct cudnn *c, const struct attention *a, const void *q, const void *k, const void *v,
                              void *out, void *lse, void *workspace, size_t workspace_bytes, struct CUstream_st *stream,
                              struct error *e)
{
    const void *unused[] = {c, a, q, k, v, out, lse, workspace, stream};

    (void)unused, (void)workspace_bytes;
    played.n_forward++;
    return played.run ? FAIL(e, played.run, "it broke") : ERR_NONE;
}

err_t cudnn_attention_backward(struct cudnn *c, const struct attention *a, const void *q, const void *k, const void *v,
                               const void *out, const void *lse, const void *dout, void *dq, void *dk, void *dv,
                               void *workspace, size_t workspace_bytes, struct CUstream_st *stream, struct error *e)
{
    const void *unused[] = {c, a, q, k, v, out, lse, dout, dq, dk, dv, workspace, stream};

    (void)unused, (void)workspace_bytes;
    played.n_backward++;
    return played.run ? FAIL(e, played.run, "it broke") : ERR_NONE;
}

cudaStream_t kernel_stream(const struct kernel_context *c) { return (void)c, (cudaStream_t)NULL; }

void kernel_fail(struct kernel_context *c, const char *what, const char *reason)
{
    (void)c;
    played.n_failed++;
    snprintf(played.failure, sizeof played.failure, "%s: %s", what, reason);
}

static void plain_forward(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                          const void *v, void *out, wide *lse)
{
    const void *unused[] = {c, a, q, k, v, out, lse};

    (void)unused;
    played.n_plain++;
}

static void plain_backward(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                           const void *v, const void *out, const wide *lse, const void *dout, void *dq, void *dk,
                           void *dv)
{
    const void *unused[] = {c, a, q, k, v, out, lse, dout, dq, dk, dv};

    (void)unused;
    played.n_plain++;
}

/* ---- the choice ---- */
static const struct kernels plain = {
    .level = "cuda", .attention_forward = plain_forward, .attention_backward = plain_backward};
static const struct attention shape = {.sequences = 1, .length = 8, .heads = 1, .kv_heads = 1, .d_qk = 8, .d_v = 8};

static struct cuda_device start(void)
{
    memset(&played, 0, sizeof played);
    return (struct cuda_device){.base = {.properties = {.memory_bytes = 1600}}};
}

static void run(const struct kernels *k, struct cuda_device *d)
{
    struct kernel_context c = {.device = &d->base};

    k->attention_forward(&c, &shape, NULL, NULL, NULL, NULL, NULL);
    k->attention_backward(&c, &shape, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
}

static void test_cudnn_is_taken(void **state)
{
    struct cuda_device d = start();
    const struct kernels *k = cuda_attention_table(&d.base, &plain);
    size_t bytes = 0;
    struct error e;

    (void)state;
    assert_string_equal(k->level, "cuda, attention by cuDNN 9.99.0");
    assert_int_equal(played.fixed_order_bytes, 100);
    assert_ptr_equal(cuda_attention_table(&d.base, &plain), k); /* once a device */
    assert_int_equal(played.n_open, 1);
    assert_int_equal(k->prepare_attention(k->owner, &shape, true, &bytes, &e), 0);
    assert_int_equal(bytes, 2000);
    run(k, &d);
    assert_true(played.n_forward == 1 && played.n_backward == 1 && played.n_plain == 0 && played.n_failed == 0);
    played.run = ERR_DEVICE; /* a failure is one */
    run(k, &d);
    assert_true(played.n_plain == 0 && played.n_failed == 2);
    assert_string_equal(played.failure, "the gradient of attention: it broke");
    cuda_attention_destroy(d.attention);
    assert_int_equal(played.n_open, 0);
}

static void test_refused_shapes(void **state)
{
    static const err_t refusals[] = {ERR_UNSUPPORTED, ERR_RANGE};
    struct cuda_device d = start();
    const struct kernels *k = cuda_attention_table(&d.base, &plain);
    size_t bytes = 7;
    struct error e;

    (void)state;
    for (int i = 0; i < 2; i++) {
        played.run = refusals[i];
        run(k, &d);
    }
    assert_true(played.n_plain == 4 && played.n_failed == 0);
    played.prepare = ERR_UNSUPPORTED;
    assert_int_equal(k->prepare_attention(k->owner, &shape, false, &bytes, &e), 0);
    assert_int_equal(bytes, 0);
    assert_string_equal(k->level, "cuda, attention without cuDNN (not this shape)");
    played.prepare = ERR_MEMORY;
    assert_int_equal(k->prepare_attention(k->owner, &shape, false, &bytes, &e), ERR_MEMORY);
    assert_string_equal(e.message, "not this shape");
    cuda_attention_destroy(d.attention);
}

static void test_no_cudnn(void **state)
{
    struct cuda_device d = start();
    const struct kernels *k;

    (void)state;
    played.open = ERR_UNSUPPORTED;
    k = cuda_attention_table(&d.base, &plain);
    assert_string_equal(k->level, "cuda, attention without cuDNN (no cuDNN here)");
    assert_null(k->prepare_attention);
    run(k, &d);
    assert_true(played.n_plain == 2 && played.n_forward == 0);
    cuda_attention_destroy(d.attention);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cudnn_is_taken),
        cmocka_unit_test(test_refused_shapes),
        cmocka_unit_test(test_no_cudnn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * One generic check that every module must pass, in double precision: gradients of the input and of each parameter
 * agree with central finite differences of forward; the two backward parts together give the whole gradient; a second
 * pass gives the same bits; the memory that a dry run measures is exactly what a real pass takes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/head.h"

enum {
    SEQUENCES = 2,
    LENGTH = 5,
    TOKENS = SEQUENCES * LENGTH,
    WIDTH = 12,
    VOCABULARY = 19,
    HEADS = 3,
    KV_HEADS = 1,
    HIDDEN = 14
};

struct fixture {
    struct device *device;
    const struct kernels *kernels;
    struct kernel_context kernel;
    struct arena arena;
    struct parameter_list list;
    struct rope rope;
    int32_t tokens[TOKENS], labels[TOKENS], positions[TOKENS], document_start[TOKENS];
    bool with_documents;
};

struct pass {
    double loss; /* sum of out * probe, or the head's scaled loss */
    double *out, *din;
    size_t stash, kept, scratch;
};

static void setup_fixture(struct fixture *f)
{
    struct device_options options = {.kind = "cpu", .local_size = 1, .threads = 1};
    struct rope_scaling scaling = {8, 1, 4, 16};
    struct error e = {0};
    struct rng_key key = rng_key_of(1, "tokens");

    memset(f, 0, sizeof *f);
    f->list.arena = &f->arena;
    assert_int_equal(device_open(&f->device, &options, &e), 0);
    assert_int_equal(kernels_for(&f->kernels, f->device, DTYPE_FLOAT64, "reference", &e), 0);
    f->kernel.device = f->device;
    f->kernel.workspace_bytes = kernels_workspace_bytes(f->kernels, 1);
    assert_int_equal(
        device_alloc(f->device, f->kernel.workspace_bytes, MEMORY_SCRATCH, "workspace", NULL, &f->kernel.workspace, &e),
        0);
    assert_int_equal(rope_open(&f->rope, f->device, DTYPE_FLOAT64, LENGTH, WIDTH / HEADS, 100.0, &scaling, &e), 0);
    for (int i = 0; i < TOKENS; i++) {
        f->tokens[i] = (int32_t)rng_below(key, (uint64_t)i, VOCABULARY);
        f->labels[i] = i % 4 == 3 ? -100 : (int32_t)rng_below(key, (uint64_t)(100 + i), VOCABULARY);
        f->document_start[i] = i % LENGTH >= 3 ? 3 : 0;
        f->positions[i] = i % LENGTH;
    }
}

static void teardown_fixture(struct fixture *f)
{
    for (int i = 0; i < f->list.n; i++) {
        mem_free(f->list.items[i]->value);
        mem_free(f->list.items[i]->gradient);
    }
    rope_close(&f->rope);
    device_free(f->device, f->kernel.workspace);
    device_close(f->device);
    arena_release(&f->arena);
}

/* Storage and random values for every parameter; norms get values around one. */
static void fill_parameters(struct fixture *f)
{
    for (int i = 0; i < f->list.n; i++) {
        struct parameter *p = f->list.items[i];
        int64_t n = parameter_elements(p);
        struct rng_key key = rng_key_of(2, p->name);

        p->value = mem_zalloc((size_t)n, sizeof(double));
        p->gradient = mem_zalloc((size_t)n, sizeof(double));
        for (int64_t j = 0; j < n; j++)
            ((double *)p->value)[j] = (p->n_dims == 1) + rng_normal(key, (uint64_t)j, 0.4, 0);
    }
}

static void fill_random(double *x, int64_t n, const char *name)
{
    struct rng_key key = rng_key_of(3, name);

    for (int64_t i = 0; i < n; i++) x[i] = rng_normal(key, (uint64_t)i, 1.0, 0);
}

/* Forward (and both backward parts). out_width 0: the module adds to the loss itself. */
static void run_pass(struct fixture *f, const struct module *m, int64_t in_width, int64_t out_width, double *in,
                     const double *probe, bool backward, struct pass *p)
{
    enum { ROOM = 1 << 20 };
    void *frame = mem_zalloc(1, m->ops->frame_bytes), *stash = mem_zalloc(1, ROOM), *kept = mem_zalloc(1, ROOM),
         *scratch = mem_zalloc(1, ROOM);
    double loss = 0;
    struct exec x = {.k = f->kernels,
                     .kernel = &f->kernel,
                     .type = DTYPE_FLOAT64,
                     .stash = {stash, ROOM, 0, 0},
                     .kept = {kept, ROOM, 0, 0},
                     .scratch = {scratch, ROOM, 0, 0},
                     .with_gradient = backward,
                     .loss_scale = 0.25,
                     .loss_sum = &loss};

    x.batch = (struct batch_view){SEQUENCES, LENGTH,       f->tokens,
                                  f->labels, f->positions, f->with_documents ? f->document_start : NULL};
    module_forward(m, &x, frame, in, p->out);
    p->loss = 0.25 * loss;
    for (int64_t i = 0; i < TOKENS * out_width; i++) p->loss += p->out[i] * probe[i];
    if (backward) {
        module_backward_input(m, &x, frame, out_width ? probe : NULL, in_width ? p->din : NULL);
        module_backward_weight(m, &x, frame);
    }
    p->stash = x.stash.peak, p->kept = x.kept.peak, p->scratch = x.scratch.peak;
    mem_free(frame);
    mem_free(stash);
    mem_free(kept);
    mem_free(scratch);
}

/* d loss / d *x by a central difference. */
static double difference(struct fixture *f, const struct module *m, int64_t in_width, int64_t out_width, double *in,
                         const double *probe, struct pass *p, double *x)
{
    double h = 1e-5, old = *x, high, low;

    *x = old + h;
    run_pass(f, m, in_width, out_width, in, probe, false, p);
    high = p->loss;
    *x = old - h;
    run_pass(f, m, in_width, out_width, in, probe, false, p);
    low = p->loss;
    *x = old;
    return (high - low) / (2 * h);
}

static void assert_near(const char *what, int64_t i, double got, double want)
{
    if (!(fabs(got - want) <= 1e-7 * (1 + fabs(want))))
        fail_msg("%s[%lld]: gradient %.12g, finite difference %.12g", what, (long long)i, got, want);
}

static void check_memory(struct fixture *f, const struct module *m, const struct pass *p)
{
    void *frame = mem_zalloc(1, m->ops->frame_bytes);
    struct kernels nothing = kernels_dry(f->kernels);
    struct exec x;

    exec_init_dry(&x, &nothing, &f->kernel, DTYPE_FLOAT64);
    x.batch = (struct batch_view){.sequences = SEQUENCES, .length = LENGTH};
    module_forward(m, &x, frame, NULL, NULL);
    module_backward_input(m, &x, frame, NULL, NULL);
    module_backward_weight(m, &x, frame);
    assert_int_equal(x.stash.peak, p->stash);
    assert_int_equal(x.kept.peak, p->kept);
    assert_int_equal(x.scratch.peak, p->scratch);
    mem_free(frame);
}

static void check_module(struct fixture *f, const struct module *m, int64_t in_width, int64_t out_width)
{
    double in[TOKENS * WIDTH], probe[TOKENS * HIDDEN], out[TOKENS * HIDDEN], din[TOKENS * WIDTH], again[TOKENS * WIDTH];
    struct pass p = {.out = out, .din = din};

    fill_parameters(f);
    fill_random(in, TOKENS * WIDTH, "in");
    fill_random(probe, TOKENS * HIDDEN, "probe");
    run_pass(f, m, in_width, out_width, in, probe, true, &p);
    check_memory(f, m, &p);
    for (int i = 0; i < f->list.n; i++) {
        struct parameter *q = f->list.items[i];
        int64_t n = parameter_elements(q);
        double *gradient = q->gradient;

        for (int64_t j = 0; j < n; j += 1 + n / 40)
            assert_near(q->name, j, gradient[j],
                        difference(f, m, in_width, out_width, in, probe, &p, (double *)q->value + j));
    }
    for (int64_t j = 0; j < TOKENS * in_width; j++)
        assert_near("in", j, din[j], difference(f, m, in_width, out_width, in, probe, &p, in + j));
    p.din = again;
    run_pass(f, m, in_width, out_width, in, probe, true, &p);
    if (in_width) assert_memory_equal(din, again, sizeof(double) * (size_t)(TOKENS * in_width));
}

static const struct attention_spec attention_spec = {
    .width = WIDTH, .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = WIDTH / HEADS, .std = 0.1, .std_out = 0.1};
static const struct mlp_spec mlp_spec = {.width = WIDTH, .hidden = HIDDEN, .std = 0.1, .std_out = 0.1};

static void test_linear(void **state)
{
    struct fixture f;
    struct linear m;

    (void)state;
    setup_fixture(&f);
    linear_init(&m, &f.list, "linear", WIDTH, HIDDEN, 0.1, 0);
    check_module(&f, &m.module, WIDTH, HIDDEN);
    teardown_fixture(&f);
}

static void test_norm(void **state)
{
    struct fixture f;
    struct norm m;

    (void)state;
    setup_fixture(&f);
    norm_init(&m, &f.list, "norm", WIDTH, 1e-3);
    check_module(&f, &m.module, WIDTH, WIDTH);
    teardown_fixture(&f);
}

static void test_embedding(void **state)
{
    struct fixture f;
    struct embedding m;

    (void)state;
    setup_fixture(&f);
    embedding_init(&m, &f.list, "embedding", VOCABULARY, WIDTH, 1.0, 0);
    check_module(&f, &m.module, 0, WIDTH);
    teardown_fixture(&f);
}

static void test_attention(void **state)
{
    for (int documents = 0; documents < 2; documents++) {
        struct fixture f;
        struct self_attention m;

        (void)state;
        setup_fixture(&f);
        f.with_documents = documents;
        self_attention_init(&m, &f.list, "attention", &attention_spec, &f.rope);
        check_module(&f, &m.module, WIDTH, WIDTH);
        teardown_fixture(&f);
    }
}

static void test_mlp(void **state)
{
    struct fixture f;
    struct mlp m;

    (void)state;
    setup_fixture(&f);
    mlp_init(&m, &f.list, "mlp", &mlp_spec);
    check_module(&f, &m.module, WIDTH, WIDTH);
    teardown_fixture(&f);
}

static void test_block(void **state)
{
    struct fixture f;
    struct block m;
    struct block_spec spec = {attention_spec, mlp_spec, 1e-4};

    (void)state;
    setup_fixture(&f);
    block_init(&m, &f.list, "layers.0", &spec, &f.rope);
    assert_int_equal(f.list.n, 9);
    check_module(&f, &m.module, WIDTH, WIDTH);
    teardown_fixture(&f);
}

static void test_head(void **state)
{
    struct fixture f;
    struct head m;
    struct head_spec spec = {.width = WIDTH, .vocabulary = VOCABULARY, .norm_eps = 1e-4, .std = 0.1};

    (void)state;
    setup_fixture(&f);
    head_init(&m, &f.list, &spec);
    check_module(&f, &m.module, WIDTH, 0);
    teardown_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),    cmocka_unit_test(test_norm), cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_mlp),  cmocka_unit_test(test_block),
        cmocka_unit_test(test_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Host memory: overflow and the armed fault give NULL, results are aligned and zeroed as promised, arenas
 * hand out disjoint pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"

static void test_sizes(void **state)
{
    unsigned char *p = mem_zalloc(3, 7), *q;

    (void)state;
    for (int i = 0; i < 21; i++) assert_int_equal(p[i], 0);
    memset(p, 5, 21);
    q = mem_resize(p, 1000, 3);
    assert_non_null(q);
    for (int i = 0; i < 21; i++) assert_int_equal(q[i], 5);
    mem_free(q);
    mem_free(NULL);

    /* nothing is a size, too */
    p = mem_alloc(0);
    assert_non_null(p);
    mem_free(p);
    p = mem_zalloc(0, 8);
    assert_non_null(p);
    p = mem_resize(p, 0, 8);
    assert_non_null(p);
    mem_free(p);

    /* products that do not fit must not wrap around to small ones */
    assert_null(mem_zalloc(SIZE_MAX / 2 + 1, 2));
    assert_null(mem_resize(NULL, SIZE_MAX / 4 + 1, 4));
    assert_null(mem_alloc(SIZE_MAX));
}

static void test_alignment(void **state)
{
    (void)state;
    for (size_t alignment = 16; alignment <= 4096; alignment *= 2) {
        void *p = mem_aligned(alignment, alignment / 2 + 1), *empty = mem_aligned(alignment, 0);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignment, 0);
        assert_non_null(empty);
        mem_free(p);
        mem_free(empty);
    }
}

static void test_text(void **state)
{
    char *s = mem_strdup("layers.0");

    (void)state;
    assert_string_equal(s, "layers.0");
    mem_free(s);
}

/* Every function fails once at the armed call, and works again afterwards. */
static void test_fault(void **state)
{
    void *p;

    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        mem_fault_arm(1);
        p = mem_alloc(1);
        assert_non_null(p);
        mem_free(p);
        assert_false(mem_fault_fired());
        p = kind == 0   ? mem_alloc(8)
            : kind == 1 ? mem_zalloc(1, 8)
            : kind == 2 ? mem_resize(NULL, 1, 8)
            : kind == 3 ? mem_aligned(64, 8)
                        : (void *)mem_strdup("8");
        assert_null(p);
        assert_true(mem_fault_fired());
        p = mem_alloc(8);
        assert_non_null(p);
        mem_free(p);
    }
    mem_fault_arm(0);
    mem_fault_arm(-1);
    p = mem_alloc(8);
    assert_non_null(p);
    assert_false(mem_fault_fired());
    mem_free(p);
}

/* Pieces of random sizes are aligned, zeroed, disjoint and stay as written. */
static void test_arena_pieces(void **state)
{
    enum { N = 2000 };
    struct rng_key key = rng_key_of(4, "arena");
    struct arena a = {0};
    unsigned char *piece[N];
    size_t size[N], total = 0;

    (void)state;
    for (int round = 0; round < 2; round++) { /* a released arena serves again */
        a.block_bytes = round ? 64 : 0;
        for (int i = 0; i < N; i++) {
            size[i] = (size_t)rng_below(key, (uint64_t)i, i % 50 ? 100 : 40000);
            piece[i] = arena_alloc(&a, size[i]);
            assert_non_null(piece[i]);
            assert_int_equal((uintptr_t)piece[i] % 16, 0);
            for (size_t j = 0; j < size[i]; j++) assert_int_equal(piece[i][j], 0);
            memset(piece[i], 1 + i % 255, size[i]);
        }
        for (int i = 0; i < N; i++)
            for (size_t j = 0; j < size[i]; j++) assert_int_equal(piece[i][j], 1 + i % 255);
        if (!round) total = a.used_bytes;
        assert_int_equal(a.used_bytes, total);
        arena_release(&a);
        assert_int_equal(a.used_bytes, 0);
    }
    arena_release(&a);
}

static void test_arena_text(void **state)
{
    struct arena a = {0};
    char long_text[40000];

    (void)state;
    memset(long_text, 'y', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    assert_string_equal(arena_strdup(&a, ""), "");
    assert_string_equal(arena_strdup(&a, "tok_embeddings"), "tok_embeddings");
    assert_string_equal(arena_strndup(&a, "layers.0.attention", 8), "layers.0");
    assert_string_equal(arena_printf(&a, "%s.%d", "layers", 31), "layers.31");
    assert_string_equal(arena_printf(&a, "%s", long_text), long_text);
    arena_release(&a);
}

static void test_arena_limits(void **state)
{
    struct arena a = {0};

    (void)state;
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 20));
    assert_null(arena_array(&a, SIZE_MAX / 8 + 1, 8));
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    mem_fault_arm(0);
    assert_null(arena_alloc(&a, 8));
    mem_fault_arm(0);
    assert_null(arena_printf(&a, "%d", 8));
    mem_fault_arm(0);
    assert_null(arena_strdup(&a, "8"));
    mem_fault_arm(-1);
    assert_non_null(arena_alloc(&a, 8)); /* a failure leaves it usable */
    assert_int_equal(a.used_bytes, 16);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),        cmocka_unit_test(test_alignment),    cmocka_unit_test(test_text),
        cmocka_unit_test(test_fault),        cmocka_unit_test(test_arena_pieces), cmocka_unit_test(test_arena_text),
        cmocka_unit_test(test_arena_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

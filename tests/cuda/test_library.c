/* SPDX-License-Identifier: MIT */
/* Libraries of NVIDIA are found in Python environments, and it is said where one that is missing was looked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "cuda/library.h"
#include "tests/support/temp.h"

#define FILE_NAME "libctitan_test_library.so.3"

/* Stands for a library: the loader takes it, and nothing of it is called. */
static void add_library(struct temp *t, const char *folder)
{
    char path[sizeof t->path + 64], target[4096];
    ssize_t n = readlink("/proc/self/exe", target, sizeof target - 1);

    assert_true(n > 0);
    target[n] = '\0';
    *strstr(target, "/tests/cuda/") = '\0';
    strcat(target, "/cudasim/libcuda.so.1");
    snprintf(path, sizeof path, "%s/x", folder);
    temp_write_text(t, path, "");
    snprintf(path, sizeof path, "%s/%s/" FILE_NAME, t->folder, folder);
    assert_int_equal(symlink(target, path), 0);
}

static void forget_environment(void)
{
    unsetenv("VIRTUAL_ENV");
    unsetenv("CONDA_PREFIX");
    setenv("HOME", "/nowhere", 1);
    setenv("PATH", "/usr/bin", 1);
}

static void assert_found(bool found)
{
    struct error e = {0};
    void *library;
    err_t rc = cuda_library_open(FILE_NAME, "thing", "testing", &library, &e);

    if (found) {
        if (rc) fail_msg("%s", e.message);
        return;
    }
    assert_int_equal(rc, ERR_UNSUPPORTED);
    assert_null(library);
    assert_non_null(strstr(e.message, "testing needs " FILE_NAME));
    assert_non_null(strstr(e.message, "the thing package"));
}

static void test_python_environments(void **state)
{
    struct temp t;
    char path[2 * TEMP_PATH_BYTES];

    (void)state;
    forget_environment();
    assert_found(false);
    temp_make(&t);
    add_library(&t, "venv/lib/python3.99/site-packages/nvidia/thing/lib");
    assert_found(false);
    snprintf(path, sizeof path, "%s/venv", t.folder);
    setenv("VIRTUAL_ENV", path, 1);
    assert_found(true);
    unsetenv("VIRTUAL_ENV");
    setenv("CONDA_PREFIX", path, 1);
    assert_found(true);
    unsetenv("CONDA_PREFIX");
    /* the python3 that a shell would start */
    snprintf(path, sizeof path, "/nowhere:%s/venv/bin:/usr/bin", t.folder);
    setenv("PATH", path, 1);
    assert_found(false);
    temp_write_text(&t, "venv/bin/python3", "#!/bin/sh\n");
    assert_int_equal(chmod(temp_path(&t, "venv/bin/python3"), 0755), 0);
    assert_found(true);
    temp_remove(&t);
}

static void test_home(void **state)
{
    struct temp t;

    (void)state;
    forget_environment();
    temp_make(&t);
    add_library(&t, ".local/lib/python3.9/site-packages/nvidia/thing/lib");
    setenv("HOME", t.folder, 1);
    assert_found(true);
    temp_remove(&t);
}

static void test_of_the_driver(void **state)
{
    struct error e = {0};
    void *library;

    (void)state;
    assert_int_equal(cuda_library_open(FILE_NAME, NULL, "testing", &library, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "driver"));
}

static void test_symbols(void **state)
{
    __typeof__(&strlen) length;
    struct error e = {0};
    void *library;

    (void)state;
    assert_int_equal(cuda_library_open("libc.so.6", "libc", "testing", &library, &e), 0);
    assert_int_equal(cuda_library_symbol(library, "libc.so.6", "strlen", (void **)&length, &e), 0);
    assert_int_equal(length("three"), 5);
    assert_int_equal(cuda_library_symbol(library, "libc.so.6", "no_such_function", (void **)&length, &e),
                     ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "no_such_function"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_python_environments),
        cmocka_unit_test(test_home),
        cmocka_unit_test(test_of_the_driver),
        cmocka_unit_test(test_symbols),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

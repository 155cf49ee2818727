/* SPDX-License-Identifier: MIT */
/* ctitan checkpoint inspect|verify: what it says about whole, damaged and missing checkpoints, and its exit codes. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/io.h"
#include "cli/cli.h"
#include "comm/self.h"
#include "tests/support/checkpoint_fixture.h"
#include "tests/support/temp.h"

struct world {
    struct temp t;
    struct str out; /* of the last command */
    struct error e;
};

static void save(struct world *w, int64_t step)
{
    struct checkpoint_spec spec;
    struct fixture f;
    struct comm *c;

    fixture_make(&f, 0, 1, 1);
    spec = fixture_spec(&f, w->t.folder, step);
    assert_int_equal(comm_self_create(&c, &w->e), ERR_NONE);
    if (checkpoint_save(&spec, c, &w->e)) fail_msg("%s", w->e.message);
    comm_destroy(c);
}

static int command(struct world *w, const char *verb, const char *path)
{
    char *argv[] = {(char *)"checkpoint", (char *)verb, (char *)path, NULL};
    char capture[TEMP_PATH_BYTES + 16];
    int kept = dup(1), fd, status;

    snprintf(capture, sizeof capture, "%s.out", w->t.folder);
    fd = open(capture, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(kept >= 0 && fd >= 0);
    fflush(stdout);
    assert_int_equal(dup2(fd, 1), 1);
    memset(&w->e, 0, sizeof w->e);
    status = cli_checkpoint(path ? 3 : 2, argv, &w->e);
    fflush(stdout);
    dup2(kept, 1);
    close(kept);
    close(fd);
    str_clear(&w->out);
    assert_int_equal(io_read_file(capture, &w->out, NULL), ERR_NONE);
    remove(capture);
    return status;
}

static void test_commands(void **state)
{
    struct world w = {0};
    char path[TEMP_PATH_BYTES + 128], file[TEMP_PATH_BYTES + 256];
    int fd;

    (void)state;
    temp_make(&w.t);
    assert_int_equal(command(&w, "inspect", w.t.folder), CLI_FAILURE);
    assert_non_null(strstr(w.e.message, "neither a checkpoint"));
    save(&w, 10);
    save(&w, 20);
    snprintf(path, sizeof path, "%s/step-10", w.t.folder);

    assert_int_equal(command(&w, "inspect", path), CLI_OK);
    assert_non_null(strstr(w.out.text, "step 10 of run aaaa1111, model llama3/debugmodel"));
    assert_non_null(strstr(w.out.text, "mesh dp_shard 2 (1 rank)"));
    assert_non_null(strstr(w.out.text, "parameters  bfloat16   [7, 3]  layers.0.attention.wq.weight"));
    assert_int_equal(command(&w, "verify", path), CLI_OK);
    assert_non_null(strstr(w.out.text, "step-10: whole, "));
    assert_int_equal(command(&w, "verify", w.t.folder), CLI_OK);
    assert_non_null(strstr(w.out.text, "step-20: whole, "));

    snprintf(file, sizeof file, "%s/rank_00000_of_00001.parameters.safetensors", path);
    fd = open(file, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "?", 1, io_file_bytes(file) - 1), 1);
    close(fd);
    assert_int_equal(command(&w, "verify", path), CLI_FAILURE);
    assert_non_null(strstr(w.e.message, "parameters.safetensors is damaged"));
    assert_int_equal(command(&w, "verify", w.t.folder), CLI_FAILURE);
    assert_non_null(strstr(w.e.message, "1 of 2 checkpoints"));
    assert_non_null(strstr(w.out.text, "step-20: whole, ")); /* the others are looked at all the same */

    /* a dump folder stands for the checkpoints in it */
    snprintf(file, sizeof file, "%s/checkpoint", w.t.folder);
    assert_int_equal(mkdir(file, 0700), 0);
    snprintf(file, sizeof file, "%s/checkpoint/step-10", w.t.folder);
    assert_int_equal(rename(path, file), 0);
    assert_int_equal(command(&w, "verify", w.t.folder), CLI_OK); /* it has a checkpoint of its own, and no run.json */
    assert_non_null(strstr(w.out.text, "step-20: whole, "));
    snprintf(path, sizeof path, "%s/run.json", w.t.folder);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(command(&w, "inspect", w.t.folder), CLI_OK);
    assert_non_null(strstr(w.out.text, "checkpoint/step-10\n"));
    assert_null(strstr(w.out.text, "step-20"));

    assert_int_equal(command(&w, "inspect", "/nowhere"), CLI_FAILURE);
    assert_int_equal(command(&w, "weigh", path), CLI_USAGE);
    assert_int_equal(command(&w, "convert", path), CLI_USAGE);
    assert_non_null(strstr(w.e.message, "not built yet"));
    assert_int_equal(command(&w, "inspect", NULL), CLI_USAGE);
    assert_int_equal(command(&w, "--help", NULL), CLI_OK);
    assert_non_null(strstr(w.out.text, "usage: ctitan checkpoint"));
    str_release(&w.out);
    temp_remove(&w.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_commands)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Who a run is, across starts: one live run per folder, a resume goes on as the same run, a new one moves the
 * old records aside. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/io.h"
#include "tests/support/temp.h"
#include "train/run.h"

struct world {
    struct temp t;
    struct run r;
    struct error e;
};

static int set_up(void **state)
{
    static struct world w;

    memset(&w, 0, sizeof w);
    temp_make(&w.t);
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    run_close(&w->r);
    temp_remove(&w->t);
    return 0;
}

static struct run_start start_of(int64_t resume_step)
{
    static const char *const hosts[] = {"node1", "node2"};

    return (struct run_start){.model = "llama3/debugmodel",
                              .description = "the \"first\" try",
                              .config_hash = "0123456789abcdef",
                              .binary = "0.1.0",
                              .tb_folder = "tb/20260131-1200",
                              .hosts = hosts,
                              .n_hosts = 2,
                              .world = 4,
                              .resume_step = resume_step};
}

static void begin(struct world *w, const struct run_start *start)
{
    if (run_open(&w->r, w->t.folder, &w->e) || run_begin(&w->r, start, &w->e)) fail_msg("%s", w->e.message);
}

static char *read_text(struct world *w, const char *name)
{
    static char text[4096];
    struct str s = {0};

    if (io_read_file(temp_path(&w->t, name), &s, &w->e)) fail_msg("%s", w->e.message);
    snprintf(text, sizeof text, "%s", str_text(&s));
    str_release(&s);
    return text;
}

static void test_new_run(void **state)
{
    struct run_start start = start_of(-1);
    struct world *w = *state;
    struct run_segment *s;
    char id[16];

    begin(w, &start);
    assert_false(w->r.is_resumed);
    assert_null(w->r.warning);
    assert_int_equal(strlen(w->r.info.id), 8);
    assert_int_equal(strspn(w->r.info.id, "abcdefghijklmnopqrstuvwxyz0123456789"), 8);
    snprintf(id, sizeof id, "%s", w->r.info.id);
    if (run_record(&w->r, RUN_FINISHED, 10, NULL, &w->e)) fail_msg("%s", w->e.message);
    run_close(&w->r);

    if (run_open(&w->r, w->t.folder, &w->e)) fail_msg("%s", w->e.message);
    assert_string_equal(w->r.former.id, id);
    assert_string_equal(w->r.former.model, "llama3/debugmodel");
    assert_int_equal(w->r.former.status, RUN_FINISHED);
    assert_int_equal(w->r.former.last_step, 10);
    assert_int_equal(w->r.former.n_segments, 1);
    s = &w->r.former.segments[0];
    assert_int_equal(s->first_step, 1);
    assert_int_equal(s->world, 4);
    assert_int_equal(s->n_hosts, 2);
    assert_string_equal(s->hosts[1], "node2");
    assert_string_equal(s->tb_folder, "tb/20260131-1200");
    assert_string_equal(s->config_hash, "0123456789abcdef");
    assert_string_equal(s->binary, "0.1.0");
    assert_string_equal(s->description, "the \"first\" try");
}

static void test_resume_is_the_same_run(void **state)
{
    struct run_start start = start_of(-1);
    struct world *w = *state;
    char id[16];

    begin(w, &start);
    snprintf(id, sizeof id, "%s", w->r.info.id);
    run_close(&w->r); /* without a last word: as if killed */
    temp_write_text(&w->t, "run.jsonl", "{\"step\":1}\n");

    start = start_of(100);
    start.tb_folder = "tb/20260201-0900";
    start.world = 2;
    begin(w, &start);
    assert_int_equal(w->r.former.status, RUN_RUNNING);
    assert_true(w->r.is_resumed);
    assert_string_equal(w->r.info.id, id);
    assert_int_equal(w->r.info.n_segments, 2);
    assert_int_equal(w->r.info.segments[1].first_step, 101);
    assert_string_equal(w->r.info.segments[1].tb_folder, "tb/20260131-1200"); /* the curve goes on where it was */
    assert_int_equal(w->r.info.segments[0].world, 4);
    assert_int_equal(w->r.info.segments[1].world, 2);
    assert_true(io_exists(temp_path(&w->t, "run.jsonl")));
    assert_false(io_exists(temp_path(&w->t, "runs")));
}

static void test_tb_folder_of_a_run_that_had_none(void **state)
{
    struct run_start start = start_of(-1);
    struct world *w = *state;

    start.tb_folder = NULL;
    begin(w, &start);
    run_close(&w->r);
    start = start_of(5);
    begin(w, &start);
    assert_string_equal(w->r.info.segments[1].tb_folder, "tb/20260131-1200");
}

static void test_new_run_moves_the_old_records(void **state)
{
    struct run_start start = start_of(-1);
    struct world *w = *state;
    char first[16], path[64];

    begin(w, &start);
    snprintf(first, sizeof first, "%s", w->r.info.id);
    run_close(&w->r);
    temp_write_text(&w->t, "run.jsonl", "first");
    temp_write_text(&w->t, "superseded.jsonl", "tail");
    begin(w, &start);
    assert_string_not_equal(w->r.info.id, first);
    assert_int_equal(w->r.info.n_segments, 1);
    run_close(&w->r);
    assert_false(io_exists(temp_path(&w->t, "run.jsonl")));
    snprintf(path, sizeof path, "runs/%s/run.jsonl", first);
    assert_string_equal(read_text(w, path), "first");
    snprintf(path, sizeof path, "runs/%s/superseded.jsonl", first);
    assert_string_equal(read_text(w, path), "tail");
    snprintf(path, sizeof path, "runs/%s/run.json", first);
    assert_non_null(strstr(read_text(w, path), first));
}

/* Cut short between the moves, the next start finishes them; what is there already is not overwritten. */
static void test_move_cut_short(void **state)
{
    struct run_start start = start_of(-1);
    struct world *w = *state;
    char first[16], path[64];

    begin(w, &start);
    snprintf(first, sizeof first, "%s", w->r.info.id);
    run_close(&w->r);
    snprintf(path, sizeof path, "runs/%s/run.jsonl", first);
    temp_write_text(&w->t, path, "moved before");
    temp_write_text(&w->t, "run.jsonl", "second");
    begin(w, &start);
    assert_string_equal(read_text(w, path), "moved before");
    snprintf(path, sizeof path, "runs/%s/run.jsonl-2", first);
    assert_string_equal(read_text(w, path), "second");
}

static void test_rows_without_a_run(void **state)
{
    struct run_start start = start_of(-1);
    struct world *w = *state;

    temp_write_text(&w->t, "run.jsonl", "orphan");
    begin(w, &start);
    assert_string_equal(read_text(w, "runs/unknown/run.jsonl"), "orphan");
}

static void test_refuses_what_it_must(void **state)
{
    struct run_start start = start_of(-1);
    struct world *w = *state;
    char before[4096];

    begin(w, &start);
    run_close(&w->r);
    snprintf(before, sizeof before, "%s", read_text(w, "run.json"));
    /* a checkpoint of another model */
    start = start_of(100);
    start.refusal = "model.flavor: 8B there, debugmodel here";
    assert_int_equal(run_open(&w->r, w->t.folder, &w->e), ERR_NONE);
    assert_int_equal(run_begin(&w->r, &start, &w->e), ERR_CONFIG);
    assert_non_null(strstr(w->e.message, "model.flavor: 8B there, debugmodel here"));
    assert_non_null(strstr(w->e.message, "job.dump_folder"));
    run_close(&w->r);
    assert_string_equal(read_text(w, "run.json"), before);
    /* a record that does not read is not thrown away */
    temp_write_text(&w->t, "run.json", "{");
    assert_int_equal(run_open(&w->r, w->t.folder, &w->e), ERR_FORMAT);
    assert_non_null(strstr(w->e.message, "run.json"));
    assert_string_equal(read_text(w, "run.json"), "{");
    /* a resume needs a run */
    assert_int_equal(remove(temp_path(&w->t, "run.json")), 0);
    start = start_of(100);
    assert_int_equal(run_open(&w->r, w->t.folder, &w->e), ERR_NONE);
    assert_int_equal(run_begin(&w->r, &start, &w->e), ERR_MISSING);
}

static void test_lock(void **state)
{
    struct run_start start = start_of(-1);
    struct world *w = *state;
    char host[256] = "", pid[32];
    struct run other;

    gethostname(host, sizeof host - 1);
    snprintf(pid, sizeof pid, "pid %ld on ", (long)getpid());
    begin(w, &start);
    assert_int_equal(run_open(&other, w->t.folder, &w->e), ERR_BUSY);
    assert_non_null(strstr(w->e.message, pid));
    assert_non_null(strstr(w->e.message, host));
    assert_non_null(strstr(w->e.message, " since 2"));
    assert_non_null(strstr(w->e.message, w->t.folder));
    run_close(&other); /* after failure: nothing to do, and w still holds it */
    assert_int_equal(run_open(&other, w->t.folder, &w->e), ERR_BUSY);
    run_close(&w->r);
    assert_int_equal(run_open(&other, w->t.folder, &w->e), ERR_NONE);
    run_close(&other);
}

/* The lock of a killed process is nobody's, whatever its file says; a live one's is respected across
 * processes. */
static void test_lock_of_a_killed_process(void **state)
{
    struct world *w = *state;
    int to_parent[2], status;
    char ready;
    pid_t pid;

    assert_int_equal(pipe(to_parent), 0);
    pid = fork();
    if (pid == 0) {
        struct run_start start = start_of(-1);
        struct run r;

        if (run_open(&r, w->t.folder, NULL) || run_begin(&r, &start, NULL)) _exit(1);
        if (write(to_parent[1], "x", 1) != 1) _exit(1);
        clock_sleep_ns(60 * INT64_C(1000000000));
        _exit(0);
    }
    close(to_parent[1]);
    assert_int_equal(read(to_parent[0], &ready, 1), 1);
    close(to_parent[0]);
    assert_int_equal(run_open(&w->r, w->t.folder, &w->e), ERR_BUSY);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(io_exists(temp_path(&w->t, "run.lock")));
    if (run_open(&w->r, w->t.folder, &w->e)) fail_msg("%s", w->e.message);
    assert_int_equal(w->r.former.status, RUN_RUNNING);
    assert_int_equal(strlen(w->r.former.id), 8);
}

static void test_makes_the_folder_or_says_why(void **state)
{
    struct world *w = *state;
    char path[TEMP_PATH_BYTES + 128];

    snprintf(path, sizeof path, "%s/a/b", w->t.folder);
    if (run_open(&w->r, path, &w->e)) fail_msg("%s", w->e.message);
    run_close(&w->r);
    temp_write_text(&w->t, "file", "x");
    snprintf(path, sizeof path, "%s/file/b", w->t.folder);
    assert_int_equal(run_open(&w->r, path, &w->e), ERR_IO);
    assert_non_null(strstr(w->e.message, w->t.path));
}

static void test_ids_differ(void **state)
{
    char a[RUN_ID_LENGTH + 1], b[RUN_ID_LENGTH + 1];

    (void)state;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(run_make_id(a, NULL), ERR_NONE);
        assert_int_equal(run_make_id(b, NULL), ERR_NONE);
        assert_string_not_equal(a, b);
    }
}

static void test_texts_survive(void **state)
{
    static const char *const hosts[] = {"h\"\\\n"};
    struct run_segment segment = {.start = "s",
                                  .description = "\x01",
                                  .first_step = 7,
                                  .tb_folder = "t/\xe4\xb8\xad",
                                  .hosts = hosts,
                                  .n_hosts = 1,
                                  .world = 1,
                                  .config_hash = "c",
                                  .binary = "b"};
    struct run_info info = {.id = "abcd1234",
                            .model = "m",
                            .status = RUN_FAILED,
                            .last_step = 3,
                            .reason = "rank 1: disk \"full\"",
                            .segments = &segment,
                            .n_segments = 1},
                    back;
    struct arena a = {0};
    struct str text = {0};
    struct error e;

    (void)state;
    run_write(&info, &text);
    if (run_parse(&back, &a, str_text(&text), text.length, "run.json", &e)) fail_msg("%s", e.message);
    assert_string_equal(back.reason, info.reason);
    assert_string_equal(back.segments[0].hosts[0], hosts[0]);
    assert_string_equal(back.segments[0].tb_folder, segment.tb_folder);
    assert_int_equal(back.segments[0].first_step, 7);
    assert_int_equal(back.status, RUN_FAILED);
    for (size_t n = 0; n + 2 < text.length; n++) {
        char *exact = malloc(n + 1);

        assert_non_null(exact);
        memcpy(exact, text.text, n);
        assert_int_equal(run_parse(&back, &a, exact, n, "run.json", &e), ERR_FORMAT);
        free(exact);
    }
    str_release(&text);
    arena_release(&a);
}

static void test_refused_records(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "line"},
        {"[]", "not a record"},
        {"{\"ctitan_run\":2}", "version 2"},
        {"{\"ctitan_run\":1,\"id\":\"abcd1234\"}", "model"},
#define RECORD(id, status, step, segments)                                                                             \
    "{\"ctitan_run\":1,\"id\":\"" id "\",\"model\":\"m\",\"status\":\"" status                                         \
    "\",\"reason\":\"\",\"last_step\":" #step ",\"segments\":" segments "}"
        {RECORD("abcd123", "failed", 1, "[]"), "abcd123"},
        {RECORD("abcd123/", "failed", 1, "[]"), "abcd123/"},
        {RECORD("abcd1234", "lost", 1, "[]"), "lost"},
        {RECORD("abcd1234", "failed", -1, "[]"), "last_step"},
        {RECORD("abcd1234", "failed", 1, "{}"), "segments"},
        {RECORD("abcd1234", "failed", 1, "[7]"), "segments"},
    };
    static const char good[] = RECORD("abcd1234", "failed", 1, "[]");
    struct arena a = {0};
    struct run_info info;
    struct error e;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(run_parse(&info, &a, cases[i].text, strlen(cases[i].text), "run.json", &e), ERR_FORMAT);
        if (!strstr(e.message, cases[i].says)) fail_msg("case %d: the message is '%s'", (int)i, e.message);
    }
    assert_int_equal(run_parse(&info, &a, good, sizeof good - 1, "run.json", &e), ERR_NONE);
    arena_release(&a);
}

static void test_out_of_memory(void **state)
{
    struct run_start start = start_of(-1);
    struct world *w = *state;
    bool fired = true;

    begin(w, &start);
    run_close(&w->r);
    for (long n = 0; fired; n++) {
        err_t rc;

        start = start_of(n % 2 ? 10 : -1);
        mem_fault_arm(n);
        rc = run_open(&w->r, w->t.folder, &w->e);
        if (!rc) rc = run_begin(&w->r, &start, &w->e);
        if (!rc) rc = run_record(&w->r, RUN_STOPPED, 5, "SIGTERM", &w->e);
        fired = mem_fault_fired();
        mem_fault_arm(-1);
        if (rc && rc != ERR_MEMORY && rc != ERR_MISSING) fail_msg("fault %ld: %s", n, w->e.message);
        if (!fired && rc != ERR_MISSING) assert_int_equal(rc, ERR_NONE);
        run_close(&w->r);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_new_run),
        T(test_resume_is_the_same_run),
        T(test_tb_folder_of_a_run_that_had_none),
        T(test_new_run_moves_the_old_records),
        T(test_move_cut_short),
        T(test_rows_without_a_run),
        T(test_refuses_what_it_must),
        T(test_lock),
        T(test_lock_of_a_killed_process),
        T(test_makes_the_folder_or_says_why),
        cmocka_unit_test(test_ids_differ),
        cmocka_unit_test(test_texts_survive),
        cmocka_unit_test(test_refused_records),
        T(test_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * Whatever fails, wherever: no step-N that is not whole, earlier checkpoints as they were, nothing temporary
 * left, and all ranks told the same. Also after SIGKILL at every call, and on a disk that is really full.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/io.h"
#include "checkpoint/folder.h"
#include "comm/self.h"
#include "tests/support/checkpoint_fixture.h"
#include "tests/support/fault_files.h"
#include "tests/support/rank.h"
#include "tests/support/temp.h"

#define RUN "aaaa1111"

/* Version of the values that step is saved with: 1000 * attempt + step, so that a replaced checkpoint can be
 * told from the old one. */
struct job {
    const char *folder;
    int64_t step;
    int version, keep;
    int failing_rank;          /* -1: none */
    struct fault_files faults; /* of that rank */
    err_t rc[4];
    char message[4][ERROR_MESSAGE_BYTES];
};

static void save_body(struct rank_test *t)
{
    struct job *job = t->arg;
    struct fault_files quick;
    struct checkpoint_spec spec;
    struct error e = {0};
    struct fixture f;
    int r = t->comm->rank;

    fault_files_init(&quick, -1, 0);
    quick.no_sync = true;
    fixture_make(&f, r, t->comm->size, job->version);
    spec = fixture_spec(&f, job->folder, job->step);
    spec.keep_latest_k = job->keep;
    spec.files = r == job->failing_rank ? &job->faults.ops : &quick.ops;
    job->rc[r] = checkpoint_save(&spec, t->comm, &e);
    snprintf(job->message[r], sizeof job->message[r], "%s", e.message);
}

static void save(const char *folder, int n_ranks, int64_t step, int version)
{
    struct job job = {.folder = folder, .step = step, .version = version, .failing_rank = -1};

    ranks_as_threads(n_ranks, 0, save_body, &job);
    if (job.rc[0]) fail_msg("%s", job.message[0]);
}

/* Every step-N is whole and the newest loads as one of two versions; *out_step says which step it was. */
static int check_folder(const char *folder, const char *what, int version, int other_version)
{
    struct checkpoint_state state = {0};
    struct checkpoint_listed *list;
    struct checkpoint_found found;
    struct comm *c;
    struct fixture f;
    struct arena a = {0};
    struct str notes = {0};
    struct error e;
    int64_t bytes;
    int n, loaded;

    assert_int_equal(comm_self_create(&c, &e), ERR_NONE);
    if (checkpoint_list(folder, &a, &list, &n, &notes, &e)) fail_msg("%s: %s", what, e.message);
    if (notes.length) fail_msg("%s: %s", what, str_text(&notes));
    if (checkpoint_find(folder, -1, RUN, &found, NULL, &e)) fail_msg("%s: %s", what, e.message);
    if (found.step < 0) fail_msg("%s: no checkpoint left", what);
    if (checkpoint_verify(found.path, &bytes, &e)) fail_msg("%s: %s", what, e.message);
    fixture_make(&f, 0, 1, -1);
    if (checkpoint_load(found.path, f.tensors, FIXTURE_TENSORS, CHECKPOINT_PARTS_ALL, &state, c, &e))
        fail_msg("%s: %s", what, e.message);
    loaded = fixture_equals(&f, version) ? version : other_version;
    if (!fixture_equals(&f, loaded)) fail_msg("%s: the values are neither the old nor the new ones", what);
    comm_destroy(c);
    str_release(&notes);
    arena_release(&a);
    return loaded;
}

static int count_temporary(const char *folder)
{
    struct arena a = {0};
    struct error e;
    char **names;
    int n, count = 0;

    assert_int_equal(io_list(folder, &a, &names, &n, &e), ERR_NONE);
    for (int i = 0; i < n; i++) count += strstr(names[i], ".tmp-") || strstr(names[i], ".old-");
    arena_release(&a);
    return count;
}

/* Lets every file call of `rank` fail in turn while step 20 is saved over step 10 (and over an older step 20,
 * if there is one). */
static void sweep(int rank, bool replace, bool no_exchange)
{
    bool fired = true;
    long n;

    for (n = 0; fired; n++) {
        struct job job = {.step = 20, .version = 2, .keep = 2, .failing_rank = rank};
        int old_version = replace ? 3 : 1, loaded;
        char what[80];
        struct temp t;

        temp_make(&t);
        job.folder = t.folder;
        snprintf(what, sizeof what, "rank %d, call %ld%s%s", rank, n, replace ? ", replacing" : "",
                 no_exchange ? ", without exchange" : "");
        save(t.folder, 2, 5, 5);
        save(t.folder, 2, 10, 1);
        if (replace) save(t.folder, 2, 20, 3);
        fault_files_init(&job.faults, n, ENOSPC);
        job.faults.no_exchange = no_exchange;
        job.faults.no_sync = true;
        ranks_as_threads(2, 0, save_body, &job);
        fired = job.faults.fired;
        if (job.rc[0] != job.rc[1]) fail_msg("%s: the ranks disagree: %d and %d", what, job.rc[0], job.rc[1]);
        /* only what retention could not rename is no failure of the save */
        if (fired && !job.rc[0] && strcmp(job.faults.call, "rename") != 0)
            fail_msg("%s: a failing %s went unnoticed", what, job.faults.call);
        if (!fired && job.rc[0]) fail_msg("%s: %s", what, job.message[0]);
        if (job.rc[0]) {
            char who[16];

            snprintf(who, sizeof who, "rank %d: ", rank);
            assert_string_equal(job.message[0], job.message[1]);
            if (!str_starts(job.message[0], who) || !strstr(job.message[0], "No space left on device") ||
                !strstr(job.message[0], t.folder))
                fail_msg("%s: the message is '%s'", what, job.message[0]);
        }
        loaded = check_folder(t.folder, what, 2, old_version);
        if (!job.rc[0] && loaded != 2) fail_msg("%s: the save succeeded, but the old values are there", what);
        /* one left by a failing retention is tidied by the next save */
        if (job.rc[0] && count_temporary(t.folder)) fail_msg("%s: something temporary is left", what);
        save(t.folder, 2, 30, 4);
        assert_int_equal(check_folder(t.folder, what, 4, 4), 4);
        assert_int_equal(count_temporary(t.folder), 0);
        temp_remove(&t);
    }
    if (n < 7) fail_msg("only %ld calls were made: the sweep does not see the calls", n);
}

static void test_failing_calls_of_rank_0(void **state)
{
    (void)state;
    sweep(0, false, false);
}

static void test_failing_calls_of_rank_1(void **state)
{
    (void)state;
    sweep(1, false, false);
}

static void test_failing_calls_while_replacing(void **state)
{
    (void)state;
    sweep(0, true, false);
    sweep(0, true, true);
}

/* ---- SIGKILL ---- */

/* Saves step after step until it is killed, or at call n of one save. */
static void child_saves(const char *folder, int64_t first, int n_steps, long kill_at)
{
    struct fault_files faults;
    struct comm *c;
    struct error e;

    if (comm_self_create(&c, &e)) _exit(2);
    fault_files_init(&faults, kill_at, 0);
    faults.kill = true;
    for (int64_t step = first; step < first + n_steps; step++) {
        struct checkpoint_spec spec;
        struct fixture f;

        fixture_make(&f, 0, 1, (int)step);
        spec = fixture_spec(&f, folder, step);
        spec.keep_latest_k = 2;
        spec.files = &faults.ops;
        if (checkpoint_save(&spec, c, &e)) _exit(3);
    }
    _exit(0);
}

static int64_t newest(const char *folder)
{
    struct checkpoint_found found;
    struct error e;

    assert_int_equal(checkpoint_find(folder, -1, RUN, &found, NULL, &e), ERR_NONE);
    return found.step;
}

static void test_killed_at_every_call(void **state)
{
    bool killed = true;

    (void)state;
    for (long n = 0; killed; n++) {
        char what[64];
        struct temp t;
        int status;
        pid_t pid;

        temp_make(&t);
        save(t.folder, 1, 1, 1);
        save(t.folder, 1, 2, 2);
        pid = fork();
        if (pid == 0) child_saves(t.folder, 3, 1, n);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        killed = WIFSIGNALED(status);
        if (!killed) assert_int_equal(WEXITSTATUS(status), 0);
        snprintf(what, sizeof what, "killed at call %ld", n);
        check_folder(t.folder, what, 2, 3);
        save(t.folder, 1, 4, 4);
        assert_int_equal(check_folder(t.folder, what, 4, 4), 4);
        assert_int_equal(count_temporary(t.folder), 0);
        temp_remove(&t);
    }
}

static void test_killed_ten_times_in_the_middle(void **state)
{
    struct temp t;
    int64_t step = 1;

    (void)state;
    temp_make(&t);
    save(t.folder, 1, step, (int)step);
    for (int k = 0; k < 10; k++) {
        char what[64];
        int status;
        pid_t pid = fork();

        if (pid == 0) child_saves(t.folder, step + 1, 10000, -1);
        clock_sleep_ns((5 + 7 * k) * 1000 * 1000);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_true(newest(t.folder) >= step);
        step = newest(t.folder);
        snprintf(what, sizeof what, "kill %d at step %d", k, (int)step);
        assert_int_equal(check_folder(t.folder, what, (int)step, (int)step), step);
    }
    save(t.folder, 1, step + 1, 7);
    assert_int_equal(count_temporary(t.folder), 0);
    temp_remove(&t);
}

/* ---- a real full disk ---- */
enum { DISK_SKIP = 77 };

/* In a process of its own: a disk of four pages, on which one checkpoint has room, but not two. Exits 0 if
 * all is as it should be. */
static void child_fills_disk(const char *folder)
{
    struct checkpoint_found found;
    struct checkpoint_spec spec;
    struct fixture f;
    struct comm *c;
    struct error e;

    if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS)) _exit(DISK_SKIP);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("tmpfs", folder, "tmpfs", 0, "size=16k"))
        _exit(DISK_SKIP);
    if (comm_self_create(&c, &e)) _exit(1);
    fixture_make(&f, 0, 1, 1);
    spec = fixture_spec(&f, folder, 1);
    if (checkpoint_save(&spec, c, &e)) _exit(2);
    spec = fixture_spec(&f, folder, 2);
    if (checkpoint_save(&spec, c, &e) != ERR_IO) _exit(3);
    if (!strstr(e.message, "the disk is full") || !strstr(e.message, "step-2.tmp-")) _exit(4);
    if (checkpoint_find(folder, -1, RUN, &found, NULL, &e) || found.step != 1) _exit(5);
    if (count_temporary(folder)) _exit(6);
    if (io_remove_tree(found.path, &e)) _exit(7);
    if (checkpoint_save(&spec, c, &e)) _exit(8); /* room again: saving goes on */
    _exit(0);
}

static void test_full_disk(void **state)
{
    struct temp t;
    int status;
    pid_t pid;

    (void)state;
    temp_make(&t);
    pid = fork();
    if (pid == 0) child_fills_disk(t.folder);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    temp_remove(&t);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == DISK_SKIP) skip(); /* no right to mount */
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_calls_of_rank_0),        cmocka_unit_test(test_failing_calls_of_rank_1),
        cmocka_unit_test(test_failing_calls_while_replacing),  cmocka_unit_test(test_killed_at_every_call),
        cmocka_unit_test(test_killed_ten_times_in_the_middle), cmocka_unit_test(test_full_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

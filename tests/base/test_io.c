/* SPDX-License-Identifier: MIT */
/* Files and folders on a real file system: short writes, full disks, signals in mid-write, and an old file
 * that survives a failed write. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/io.h"
#include "tests/support/temp.h"

static struct temp t;

static int set_up(void **state)
{
    (void)state;
    temp_make(&t);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_remove(&t);
    return 0;
}

static void assert_file(const char *path, const char *want)
{
    struct str s = {0};
    struct error e = {0};

    if (io_read_file(path, &s, &e)) fail_msg("%s", e.message);
    assert_string_equal(str_text(&s), want);
    str_release(&s);
}

static int count_names(const char *folder)
{
    struct arena a = {0};
    struct error e = {0};
    char **names;
    int n;

    if (io_list(folder, &a, &names, &n, &e)) fail_msg("%s", e.message);
    arena_release(&a);
    return n;
}

static void test_reading(void **state)
{
    enum { BYTES = 200001 }; /* more than one read, and not a multiple of it */
    char *bytes = calloc(1, BYTES);
    struct str s = {0};
    struct error e = {0};

    (void)state;
    for (int i = 0; i < BYTES; i++) bytes[i] = (char)(i % 251);
    temp_write(&t, "big", bytes, BYTES);
    str_add(&s, "head");
    assert_int_equal(io_read_file(temp_path(&t, "big"), &s, &e), ERR_NONE);
    assert_int_equal(s.length, 4 + BYTES);
    assert_memory_equal(s.text, "head", 4);
    assert_memory_equal(s.text + 4, bytes, BYTES);
    assert_int_equal(io_file_bytes(t.path), BYTES);
    free(bytes);
    str_release(&s);

    temp_write_text(&t, "empty", "");
    assert_file(t.path, "");
    assert_int_equal(io_read_file(temp_path(&t, "none"), &s, &e), ERR_MISSING);
    assert_non_null(strstr(e.message, "/none"));
    assert_int_equal(io_read_file(t.folder, &s, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, t.folder));
    temp_path(&t, "big");
    mem_fault_arm(0);
    assert_int_equal(io_read_file(t.path, &s, &e), ERR_MEMORY);
    mem_fault_arm(-1);
    str_release(&s);
    assert_int_equal(io_file_bytes(temp_path(&t, "none")), -1);
}

static void test_atomic(void **state)
{
    mode_t mask = umask(0);
    struct error e = {0};
    struct stat st;

    (void)state;
    umask(mask);
    temp_path(&t, "run.json");
    assert_int_equal(io_write_atomic(t.path, "old", 3, &e), ERR_NONE);
    assert_file(t.path, "old");
    assert_int_equal(io_write_atomic(t.path, "newer", 5, &e), ERR_NONE);
    assert_file(t.path, "newer");
    assert_int_equal(io_write_atomic(t.path, "", 0, &e), ERR_NONE);
    assert_file(t.path, "");
    assert_int_equal(stat(t.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644 & ~mask);
    assert_int_equal(count_names(t.folder), 1); /* no temporary file is left */
    assert_int_equal(io_write_atomic(temp_path(&t, "none/run.json"), "x", 1, &e), ERR_MISSING);
    assert_non_null(strstr(e.message, "none/run.json"));
    for (int n = 0;; n++) {
        err_t rc;

        temp_path(&t, "run.json");
        mem_fault_arm(n);
        rc = io_write_atomic(t.path, "last", 4, &e);
        if (!mem_fault_fired()) break;
        assert_int_equal(rc, ERR_MEMORY);
        assert_file(t.path, "");
    }
    mem_fault_arm(-1);
    assert_file(t.path, "last");
    assert_int_equal(count_names(t.folder), 1);
}

/* Relative paths have a folder, too. */
static void test_atomic_in_this_folder(void **state)
{
    struct error e = {0};
    char *old = getcwd(NULL, 0);

    (void)state;
    assert_int_equal(chdir(t.folder), 0);
    assert_int_equal(io_write_atomic("here.json", "{}", 2, &e), ERR_NONE);
    assert_file("here.json", "{}");
    assert_int_equal(chdir(old), 0);
    free(old);
}

/* A limit on the size of files lets a write end early and the next one fail: the old content stays, no half
 * is left behind. */
static int write_beyond_limit(const char *path, bool atomic)
{
    enum { BYTES = 100000, LIMIT = 30000 };
    struct rlimit limit = {LIMIT, LIMIT};
    char *bytes = calloc(1, BYTES);
    struct error e = {0};
    int fd = -1;
    err_t rc;

    signal(SIGXFSZ, SIG_IGN);
    if (!bytes || setrlimit(RLIMIT_FSIZE, &limit)) return 10;
    if (atomic) {
        rc = io_write_atomic(path, bytes, BYTES, &e);
    } else {
        fd = open(path, O_WRONLY | O_CREAT, 0644);
        rc = io_write_all(fd, bytes, BYTES, path, &e);
        if (io_file_bytes(path) != LIMIT) return 11; /* the short write was not used up */
        close(fd);
    }
    free(bytes);
    if (rc != ERR_IO) return 12;
    if (!strstr(e.message, path) || !strstr(e.message, "cannot write")) return 13;
    return 0;
}

static void in_child(int (*body)(const char *, bool), const char *path, bool flag)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) _exit(body(path, flag));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_short_write_and_failure(void **state)
{
    (void)state;
    temp_write_text(&t, "kept", "old");
    in_child(write_beyond_limit, t.path, true);
    assert_file(t.path, "old");
    assert_int_equal(count_names(t.folder), 1);
    in_child(write_beyond_limit, temp_path(&t, "plain"), false);
}

/* ENOSPC, by the device that always has it. */
static void test_full_disk(void **state)
{
    struct error e = {0};
    int fd = open("/dev/full", O_WRONLY);

    (void)state;
    if (fd < 0) skip();
    assert_int_equal(io_write_all(fd, "x", 1, "/data/step-5", &e), ERR_IO);
    assert_non_null(strstr(e.message, "/data/step-5"));
    assert_non_null(strstr(e.message, "the disk is full: free space or choose another folder"));
    assert_int_equal(io_write_all(fd, "", 0, "/data/step-5", &e), ERR_NONE);
    close(fd);
}

static void test_advice(void **state)
{
    struct error e = {0};

    (void)state;
    errno = ENOENT;
    assert_int_equal(io_fail(&e, "open", "a/b"), ERR_MISSING);
    assert_string_equal(e.message, "cannot open a/b: No such file or directory");
    errno = EDQUOT;
    assert_int_equal(io_fail(&e, "write", "a/b"), ERR_IO);
    assert_non_null(strstr(e.message, "quota"));
    errno = EROFS;
    assert_int_equal(io_fail(&e, "write", "a/b"), ERR_IO);
    assert_non_null(strstr(e.message, "read-only"));
    errno = EACCES;
    assert_int_equal(io_fail(&e, "write", "a/b"), ERR_IO);
    assert_non_null(strstr(e.message, "check the permissions"));
}

static void do_nothing(int number) { (void)number; }

struct interrupted {
    int fd;
    size_t n;
    const char *bytes;
    err_t rc;
    atomic_bool is_done;
};

static void *write_to_pipe(void *arg)
{
    struct interrupted *w = arg;
    struct error e = {0};

    w->rc = io_write_all(w->fd, w->bytes, w->n, "pipe", &e);
    atomic_store(&w->is_done, true);
    close(w->fd);
    return NULL;
}

/* Signals without SA_RESTART cut a blocking write short, or refuse it: every byte still arrives once, in
 * order. */
static void test_signals_during_a_write(void **state)
{
    enum { BYTES = 3 << 20 };
    struct sigaction action = {.sa_handler = do_nothing}, old;
    char *bytes = calloc(1, BYTES), *got = calloc(1, BYTES + 1);
    struct interrupted w = {.n = BYTES, .bytes = bytes};
    pthread_t thread;
    size_t n = 0;
    int ends[2];

    (void)state;
    for (int i = 0; i < BYTES; i++) bytes[i] = (char)(i % 253);
    assert_int_equal(sigaction(SIGUSR2, &action, &old), 0);
    assert_int_equal(pipe(ends), 0);
    w.fd = ends[1];
    assert_int_equal(pthread_create(&thread, NULL, write_to_pipe, &w), 0);
    for (;;) {
        ssize_t done;

        /* the first signal may find a write that has moved some bytes, the second one that waits with none */
        for (int i = 0; i < 2; i++) {
            if (!atomic_load(&w.is_done)) pthread_kill(thread, SIGUSR2);
            clock_sleep_ns(20000);
        }
        done = read(ends[0], got + n, BYTES + 1 - n < 10000 ? BYTES + 1 - n : 10000);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) break;
        n += (size_t)done;
    }
    pthread_join(thread, NULL);
    close(ends[0]);
    assert_int_equal(sigaction(SIGUSR2, &old, NULL), 0);
    assert_int_equal(w.rc, ERR_NONE);
    assert_int_equal(n, BYTES);
    assert_memory_equal(got, bytes, BYTES);
    free(bytes);
    free(got);
}

static void test_folders(void **state)
{
    struct error e = {0};

    (void)state;
    assert_int_equal(io_make_folders(temp_path(&t, "a/b//c/"), &e), ERR_NONE);
    assert_true(io_is_folder(temp_path(&t, "a/b/c")));
    assert_int_equal(io_make_folders(temp_path(&t, "a/b/c"), &e), ERR_NONE); /* there already */
    assert_int_equal(io_make_folders("/", &e), ERR_NONE);
    assert_int_equal(io_make_folders("", &e), ERR_MISSING);
    temp_write_text(&t, "a/file", "x");
    assert_int_equal(io_make_folders(temp_path(&t, "a/file/d"), &e), ERR_IO);
    assert_non_null(strstr(e.message, "a/file"));
    assert_int_equal(io_make_folders(temp_path(&t, "a/file"), &e), ERR_IO);
    temp_path(&t, "z");
    mem_fault_arm(0);
    assert_int_equal(io_make_folders(t.path, &e), ERR_MEMORY);
    mem_fault_arm(-1);
    assert_int_equal(io_sync_folder(t.folder, &e), ERR_NONE);
    assert_int_equal(io_sync_folder(temp_path(&t, "none"), &e), ERR_MISSING);
    assert_int_equal(io_sync_folder(temp_path(&t, "a/file"), &e), ERR_IO);
    assert_true(io_exists(temp_path(&t, "a/file")));
    assert_false(io_is_folder(t.path));
    assert_false(io_exists(temp_path(&t, "none")));
    assert_false(io_is_folder(t.path));
}

/* What a link points to stays. */
static void test_removing(void **state)
{
    struct error e = {0};
    char target[TEMP_PATH_BYTES + 128];

    (void)state;
    temp_write_text(&t, "kept/file", "kept");
    snprintf(target, sizeof target, "%s/kept", t.folder);
    temp_write_text(&t, "tree/a/b/c", "x");
    temp_write_text(&t, "tree/d", "x");
    assert_int_equal(symlink(target, temp_path(&t, "tree/a/link")), 0);
    assert_int_equal(symlink("/nowhere", temp_path(&t, "tree/dangling")), 0);
    for (int n = 0;; n++) { /* what could not be removed can be removed later */
        err_t rc;

        temp_path(&t, "tree");
        mem_fault_arm(n);
        rc = io_remove_tree(t.path, &e);
        if (!mem_fault_fired()) {
            assert_int_equal(rc, ERR_NONE);
            break;
        }
        assert_int_equal(rc, ERR_MEMORY);
    }
    mem_fault_arm(-1);
    assert_false(io_exists(temp_path(&t, "tree")));
    assert_file(temp_path(&t, "kept/file"), "kept");
    assert_int_equal(io_remove_tree(temp_path(&t, "tree"), &e), ERR_NONE); /* nothing there */
    assert_int_equal(io_remove_tree(temp_path(&t, "kept/file"), &e), ERR_NONE);
    assert_int_equal(io_remove_tree(temp_path(&t, "kept"), &e), ERR_NONE);
}

static void test_joining(void **state)
{
    struct arena a = {0};

    (void)state;
    assert_string_equal(io_join(&a, "a", "b"), "a/b");
    assert_string_equal(io_join(&a, "a/", "b"), "a/b");
    assert_string_equal(io_join(&a, "", "b"), "b");
    assert_string_equal(io_join(&a, "a", "/b"), "/b");
    assert_string_equal(io_join(&a, "/", "b"), "/b");
    assert_string_equal(io_join(&a, "a", ""), "a/");
    assert_string_equal(io_folder_of(&a, "a/b/c"), "a/b");
    assert_string_equal(io_folder_of(&a, "c"), ".");
    assert_string_equal(io_folder_of(&a, "/c"), "/");
    mem_fault_arm(0);
    arena_release(&a);
    assert_null(io_join(&a, "a", "b"));
    mem_fault_arm(-1);
    arena_release(&a);
}

static void test_listing(void **state)
{
    struct arena a = {0};
    struct error e = {0};
    char **names, name[32];
    int n;

    (void)state;
    assert_int_equal(io_list(t.folder, &a, &names, &n, &e), ERR_NONE);
    assert_int_equal(n, 0);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "step-%d", i * 37 % 100);
        temp_write_text(&t, name, "");
    }
    temp_write_text(&t, ".hidden", "");
    temp_write_text(&t, "Z", "");
    for (int k = 0;; k++) {
        err_t rc;

        mem_fault_arm(k);
        rc = io_list(t.folder, &a, &names, &n, &e);
        if (!mem_fault_fired()) break;
        assert_int_equal(rc, ERR_MEMORY);
        assert_int_equal(n, 0);
        assert_null(names);
        arena_release(&a);
    }
    mem_fault_arm(-1);
    assert_int_equal(n, 102);
    assert_string_equal(names[0], ".hidden");
    assert_string_equal(names[1], "Z");
    for (int i = 1; i < n; i++) assert_true(strcmp(names[i - 1], names[i]) < 0);
    assert_int_equal(io_list(temp_path(&t, "none"), &a, &names, &n, &e), ERR_MISSING);
    assert_int_equal(io_list(temp_path(&t, "Z"), &a, &names, &n, &e), ERR_IO);
    assert_int_equal(n, 0);
    arena_release(&a);
}

/* A pipe without a writer, or a device without an end, must not hold up who expects a file. */
static void test_what_is_no_file(void **state)
{
    struct str s = {0};
    struct error e = {0};
    char *pipe_path = strdup(temp_path(&t, "pipe"));
    int fd = 5;

    (void)state;
    alarm(20);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(io_read_file(pipe_path, &s, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, "pipe is a pipe or device, not a file"));
    assert_int_equal(io_read_file("/dev/zero", &s, &e), ERR_FORMAT);
    assert_int_equal(io_open_file(t.folder, &fd, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, "is a folder, not a file"));
    assert_int_equal(fd, -1);
    assert_int_equal(io_open_file(temp_path(&t, "none"), &fd, &e), ERR_MISSING);

    assert_int_equal(io_write_atomic(temp_path(&t, "file"), "four", 4, &e), ERR_NONE);
    assert_int_equal(io_read_file_up_to(temp_path(&t, "file"), 3, &s, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, "has 4 bytes; more than 3"));
    assert_int_equal(s.length, 0);
    assert_int_equal(io_read_file_up_to(temp_path(&t, "file"), 4, &s, &e), ERR_NONE);
    assert_string_equal(str_text(&s), "four");
    assert_int_equal(io_make_folders(temp_path(&t, "file/below"), &e), ERR_IO);
    assert_non_null(strstr(e.message, "Not a directory"));
    assert_int_equal(io_make_folders(temp_path(&t, "file"), &e), ERR_IO);
    assert_non_null(strstr(e.message, "Not a directory"));
    str_release(&s);
    free(pipe_path);
    alarm(0);
}

/* What a user names to be read to its end may be a pipe. */
static void test_streams(void **state)
{
    struct str s = {0};
    struct error e = {0};
    char path[32];
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "text", 4), 4);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(io_read_stream(path, &s, &e), ERR_NONE);
    assert_string_equal(str_text(&s), "text");
    close(ends[0]);
    str_release(&s);
}

#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(test_reading),
        IN_A_FOLDER(test_what_is_no_file),
        IN_A_FOLDER(test_streams),
        IN_A_FOLDER(test_atomic),
        IN_A_FOLDER(test_atomic_in_this_folder),
        IN_A_FOLDER(test_short_write_and_failure),
        IN_A_FOLDER(test_full_disk),
        IN_A_FOLDER(test_advice),
        IN_A_FOLDER(test_signals_during_a_write),
        IN_A_FOLDER(test_folders),
        IN_A_FOLDER(test_removing),
        IN_A_FOLDER(test_joining),
        IN_A_FOLDER(test_listing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* What was saved on one mesh comes back bit for bit on any; what does not fit, or is damaged, is refused with
 * the whole story. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/io.h"
#include "base/json.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
#include "comm/self.h"
#include "tests/support/checkpoint_fixture.h"
#include "tests/support/rank.h"
#include "tests/support/temp.h"

struct job {
    const char *folder, *path;
    int n_replicas;
    unsigned parts;
    bool parameters_only;
};

static void save_body(struct rank_test *t)
{
    const struct job *job = t->arg;
    int n_shards = t->comm->size / job->n_replicas;
    struct fixture f;
    struct checkpoint_spec spec;
    struct error e = {0};

    fixture_make(&f, t->comm->rank % n_shards, n_shards, 1);
    spec = fixture_spec(&f, job->folder, 10);
    spec.is_writer = t->comm->rank < n_shards;
    spec.parameters_only = job->parameters_only;
    rank_check_ok(t, checkpoint_save(&spec, t->comm, &e));
}

static void load_body(struct rank_test *t)
{
    const struct job *job = t->arg;
    struct checkpoint_state state = {0}, wanted = fixture_state(10);
    struct fixture f;
    struct error e = {0};

    fixture_make(&f, t->comm->rank, t->comm->size, -1);
    rank_check_ok(t, checkpoint_load(job->path, f.tensors, FIXTURE_TENSORS, job->parts, &state, t->comm, &e));
    rank_check(t, fixture_equals(&f, 1));
    rank_check(t, memcmp(&state, &wanted, sizeof state) == 0);
}

static void test_any_mesh_to_any_mesh(void **state)
{
    static const int sizes[] = {1, 2, 3, 4, 6};
    struct job job = {.n_replicas = 1, .parts = CHECKPOINT_PARTS_ALL};
    char path[TEMP_PATH_BYTES + 128];
    struct temp t;

    (void)state;
    for (int i = 0; i < 5; i++) {
        temp_make(&t);
        job.folder = t.folder;
        ranks_as_threads(sizes[i], 0, save_body, &job);
        snprintf(path, sizeof path, "%s/step-10", t.folder);
        job.path = path;
        for (int k = 0; k < 5; k++) ranks_as_threads(sizes[k], 0, load_body, &job);
        temp_remove(&t);
    }
}

static void test_replicas_write_once(void **state)
{
    struct job job = {.n_replicas = 2, .parts = CHECKPOINT_PARTS_ALL};
    struct manifest m;
    struct temp t;
    struct error e;

    (void)state;
    temp_make(&t);
    job.folder = t.folder;
    ranks_as_threads(4, 0, save_body, &job);
    job.path = temp_path(&t, "step-10");
    ranks_as_threads(3, 0, load_body, &job);
    if (manifest_read(&m, temp_path(&t, "step-10"), &e)) fail_msg("%s", e.message);
    assert_int_equal(m.n_files, 4); /* two kinds of two shards */
    assert_string_equal(m.files[0].name, "rank_00000_of_00004.parameters.safetensors");
    assert_int_equal(m.world, 4);
    manifest_release(&m);
    temp_remove(&t);
}

/* ---- one rank from here on ---- */
struct alone {
    struct temp t;
    struct comm *c;
    struct fixture f;
    struct error e;
    char path[TEMP_PATH_BYTES + 128]; /* of step-10 */
};

static int set_up(void **state)
{
    static struct alone a;

    memset(&a, 0, sizeof a);
    temp_make(&a.t);
    if (comm_self_create(&a.c, &a.e)) return -1;
    fixture_make(&a.f, 0, 1, 1);
    snprintf(a.path, sizeof a.path, "%s/step-10", a.t.folder);
    *state = &a;
    return 0;
}

static int tear_down(void **state)
{
    struct alone *a = *state;

    comm_destroy(a->c);
    temp_remove(&a->t);
    return 0;
}

static void save(struct alone *a, int64_t step, bool parameters_only)
{
    struct checkpoint_spec spec = fixture_spec(&a->f, a->t.folder, step);

    spec.parameters_only = parameters_only;
    if (checkpoint_save(&spec, a->c, &a->e)) fail_msg("%s", a->e.message);
}

static void test_manifest_says_everything(void **state)
{
    struct alone *a = *state;
    const struct manifest_tensor *t;
    struct str mesh = {0};
    struct manifest m;

    save(a, 10, false);
    if (manifest_read(&m, a->path, &a->e)) fail_msg("%s", a->e.message);
    assert_string_equal(m.run_id, "aaaa1111");
    assert_string_equal(m.model, "llama3/debugmodel");
    assert_string_equal(m.binary, "0.1.0");
    assert_non_null(strstr(m.config_json, "\"steps\":10"));
    assert_int_equal(m.n_tensors, FIXTURE_TENSORS);
    assert_int_equal(m.state.shuffle_seed, UINT64_MAX - 5);
    assert_false(m.state.unhealthy);
    manifest_mesh_text(m.axes, m.n_axes, m.world, &mesh);
    assert_string_equal(str_text(&mesh), "dp_shard 2 (1 rank)");
    t = manifest_find(&m, CHECKPOINT_PARAMETERS, "layers.0.moe.experts");
    assert_non_null(t);
    assert_int_equal(t->n_dims, 4);
    assert_int_equal(t->dim[3], 2);
    assert_int_equal(t->n_pieces, 1);
    assert_int_equal(t->pieces[0].n_rows, 4);
    assert_null(manifest_find(&m, CHECKPOINT_OPTIMIZER, "layers.0.moe.experts"));
    assert_int_equal(manifest_find(&m, CHECKPOINT_PARAMETERS, "empty")->n_pieces, 0);
    str_release(&mesh);
    manifest_release(&m);
}

static void test_parts_left_out_keep_their_values(void **state)
{
    struct alone *a = *state;
    struct checkpoint_state s = {.step = 3, .epoch = 5, .schedule_step = 7, .optimizer_step = 9};

    save(a, 10, false);
    fixture_make(&a->f, 0, 1, -1);
    assert_int_equal(checkpoint_load(a->path, a->f.tensors, FIXTURE_TENSORS, CHECKPOINT_PART_TRAIN, &s, a->c, &a->e),
                     ERR_NONE);
    assert_int_equal(s.step, 10);
    assert_int_equal(s.seed, 42);
    assert_int_equal(s.epoch, 5);
    assert_int_equal(s.schedule_step, 7);
    assert_int_equal(s.optimizer_step, 9);
    assert_int_equal(a->f.data[7][0], 0xee); /* the optimizer's tensor */
    assert_int_not_equal(a->f.data[0][0], 0xee);
    assert_int_equal(checkpoint_load(a->path, a->f.tensors, FIXTURE_TENSORS, 0, &s, a->c, &a->e), ERR_NONE);
}

static void test_model_only(void **state)
{
    struct checkpoint_state s = {.optimizer_step = 1};
    struct alone *a = *state;
    char seed[TEMP_PATH_BYTES + 128];

    save(a, 0, true);
    save(a, 10, true);
    /* a seed loads without an optimizer */
    snprintf(seed, sizeof seed, "%s/step-0", a->t.folder);
    fixture_make(&a->f, 0, 1, -1);
    if (checkpoint_load(seed, a->f.tensors, FIXTURE_TENSORS, CHECKPOINT_PARTS_ALL, &s, a->c, &a->e))
        fail_msg("%s", a->e.message);
    assert_int_equal(s.step, 0);
    assert_int_equal(a->f.data[7][0], 0xee);
    /* a last save of the model only says what to do, and does it */
    assert_int_equal(checkpoint_load(a->path, a->f.tensors, FIXTURE_TENSORS, CHECKPOINT_PARTS_ALL, &s, a->c, &a->e),
                     ERR_CONFIG);
    assert_non_null(strstr(a->e.message, "exclude_from_loading"));
    assert_int_equal(checkpoint_load(a->path, a->f.tensors, FIXTURE_TENSORS,
                                     CHECKPOINT_PARTS_ALL & ~CHECKPOINT_PART_OPTIMIZER, &s, a->c, &a->e),
                     ERR_NONE);
    assert_int_equal(s.step, 10);
}

static void test_lists_all_that_does_not_fit(void **state)
{
    struct alone *a = *state;
    struct checkpoint_state s = {0};

    save(a, 10, false);
    a->f.tensors[0].name = "tok_embeddings.wait";
    a->f.tensors[1].dim[0] = 8;
    a->f.tensors[2].type = DTYPE_FLOAT64;
    assert_int_equal(checkpoint_load(a->path, a->f.tensors, FIXTURE_TENSORS, CHECKPOINT_PARTS_ALL, &s, a->c, &a->e),
                     ERR_CONFIG);
    assert_non_null(strstr(a->e.message, "1 missing in the checkpoint: tok_embeddings.wait"));
    assert_non_null(strstr(a->e.message, "1 in the checkpoint, but not in this model: tok_embeddings.weight"));
    assert_non_null(strstr(a->e.message, "layers.0.attention.wq.weight (bfloat16 [7, 3] instead of bfloat16 [8, 3])"));
    assert_non_null(strstr(a->e.message, "(float32 [3] instead of float64 [3])"));
    assert_non_null(strstr(a->e.message, a->path));
}

static void test_many_misfits_are_counted(void **state)
{
    struct alone *a = *state;
    struct checkpoint_state s = {0};

    save(a, 10, false);
    assert_int_equal(checkpoint_load(a->path, a->f.tensors, 0, CHECKPOINT_PARTS_ALL, &s, a->c, &a->e), ERR_CONFIG);
    assert_non_null(strstr(a->e.message, "9 in the checkpoint"));
    assert_non_null(strstr(a->e.message, "and 3 more"));
}

/* Flips one byte, or cuts the file, in every file and many places: load refuses and names the file; verify
 * too. */
static void test_damage_is_found(void **state)
{
    struct checkpoint_state s = {0};
    struct alone *a = *state;
    struct arena arena = {0};
    int64_t bytes;
    char **names;
    int n;

    save(a, 10, false);
    assert_int_equal(io_list(a->path, &arena, &names, &n, &a->e), ERR_NONE);
    assert_int_equal(n, 3);
    if (checkpoint_verify(a->path, &bytes, &a->e)) fail_msg("%s", a->e.message);
    assert_true(bytes > 500);
    for (int i = 0; i < n; i++) {
        char *path = io_join(&arena, a->path, names[i]);
        int64_t size = io_file_bytes(path);
        int fd = open(path, O_RDWR);

        assert_true(fd >= 0);
        for (int64_t at = 0; at < size; at += i == 0 ? 7 : 13) {
            unsigned char byte;

            assert_int_equal(pread(fd, &byte, 1, at), 1);
            byte ^= 0x40;
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
            if (checkpoint_verify(a->path, &bytes, &a->e) == ERR_NONE) fail_msg("%s byte %d", names[i], (int)at);
            if (strstr(names[i], "parameters") && at > 700)
                assert_int_equal(
                    checkpoint_load(a->path, a->f.tensors, FIXTURE_TENSORS, CHECKPOINT_PARTS_ALL, &s, a->c, &a->e),
                    ERR_FORMAT);
            byte ^= 0x40;
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        }
        assert_int_equal(ftruncate(fd, size - 1), 0);
        assert_int_not_equal(checkpoint_verify(a->path, &bytes, &a->e), ERR_NONE);
        assert_int_not_equal(
            checkpoint_load(a->path, a->f.tensors, FIXTURE_TENSORS, CHECKPOINT_PARTS_ALL, &s, a->c, &a->e), ERR_NONE);
        assert_non_null(strstr(a->e.message, names[i]));
        save(a, 10, false); /* a damaged one does not keep its place */
        close(fd);
    }
    arena_release(&arena);
}

/* On two ranks the one that fails is named, and both get the same message. */
static void wrong_shape_body(struct rank_test *t)
{
    const struct job *job = t->arg;
    struct checkpoint_state state = {0};
    struct fixture f;
    struct error e = {0};

    fixture_make(&f, t->comm->rank, t->comm->size, -1);
    if (t->comm->rank == 1) f.tensors[3].dim[1] = 9;
    rank_check(t,
               checkpoint_load(job->path, f.tensors, FIXTURE_TENSORS, job->parts, &state, t->comm, &e) == ERR_CONFIG);
    rank_check(t, strstr(e.message, "rank 1: ") == e.message && strstr(e.message, "layers.0.moe.experts"));
    memset(&e, 0, sizeof e);
    rank_check(t, checkpoint_load("/nowhere/step-3", f.tensors, FIXTURE_TENSORS, job->parts, &state, t->comm, &e) ==
                      ERR_MISSING);
    rank_check(t, strstr(e.message, "rank 0: ") == e.message && strstr(e.message, "/nowhere/step-3/manifest.json"));
}

static void test_failure_of_one_rank_is_everybodys(void **state)
{
    struct job job = {.n_replicas = 1, .parts = CHECKPOINT_PARTS_ALL};
    struct temp t;

    (void)state;
    temp_make(&t);
    job.folder = t.folder;
    ranks_as_threads(2, 0, save_body, &job);
    job.path = temp_path(&t, "step-10");
    ranks_as_threads(2, 0, wrong_shape_body, &job);
    temp_remove(&t);
}

static void test_out_of_memory(void **state)
{
    struct checkpoint_spec spec;
    struct checkpoint_state s = {0};
    struct checkpoint_found found;
    struct alone *a = *state;
    bool fired = true;

    save(a, 10, false);
    for (long n = 0; fired; n++) {
        err_t rc;

        fixture_make(&a->f, 0, 1, -1);
        mem_fault_arm(n);
        rc = checkpoint_load(a->path, a->f.tensors, FIXTURE_TENSORS, CHECKPOINT_PARTS_ALL, &s, a->c, &a->e);
        fired = mem_fault_fired();
        mem_fault_arm(-1);
        assert_int_equal(rc, fired ? ERR_MEMORY : ERR_NONE);
    }
    assert_true(fixture_equals(&a->f, 1));
    fired = true;
    for (long n = 0; fired; n++) {
        err_t rc;

        spec = fixture_spec(&a->f, a->t.folder, 20 + n);
        spec.keep_latest_k = 2;
        mem_fault_arm(n);
        rc = checkpoint_save(&spec, a->c, &a->e);
        fired = mem_fault_fired();
        mem_fault_arm(-1);
        if (rc) assert_int_equal(rc, ERR_MEMORY);
        if (!fired) assert_int_equal(rc, ERR_NONE);
        /* whatever failed: the newest one is whole */
        assert_int_equal(checkpoint_find(a->t.folder, -1, "aaaa1111", &found, NULL, &a->e), ERR_NONE);
        assert_true(rc ? found.step < 20 + n : found.step == 20 + n);
        checkpoint_apply_retention(NULL, a->t.folder, "aaaa1111", found.step, 2, NULL); /* what the fault left undone */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_mesh_to_any_mesh),
        cmocka_unit_test(test_replicas_write_once),
        cmocka_unit_test_setup_teardown(test_manifest_says_everything, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parts_left_out_keep_their_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_model_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lists_all_that_does_not_fit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_misfits_are_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_is_found, set_up, tear_down),
        cmocka_unit_test(test_failure_of_one_rank_is_everybodys),
        cmocka_unit_test_setup_teardown(test_out_of_memory, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

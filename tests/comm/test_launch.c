/* SPDX-License-Identifier: MIT */
/* Who started this process, from launchers' variables as they were seen in the wild; and that a rank never
 * runs alone by mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "comm/launch.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_RANK",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "CTITAN_PLUGIN_PATH"};

static int clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    return 0;
}

/* "NAME=value NAME=value" */
static struct comm_launch detect(const char *environment)
{
    struct comm_launch launch;
    char copy[512], *at = copy, *word;

    clear(NULL);
    snprintf(copy, sizeof copy, "%s", environment);
    while ((word = strsep(&at, " "))) {
        char *value = strchr(word, '=');

        if (!value) continue;
        *value = '\0';
        setenv(word, value + 1, 1);
    }
    comm_launch_detect(&launch);
    return launch;
}

static void check(const char *environment, const char *launcher, int rank, int size, int local_rank, int local_size)
{
    struct comm_launch l = detect(environment);

    if (launcher)
        assert_string_equal(l.launcher, launcher);
    else
        assert_null(l.launcher);
    assert_int_equal(l.rank, rank);
    assert_int_equal(l.size, size);
    assert_int_equal(l.local_rank, local_rank);
    assert_int_equal(l.local_size, local_size);
}

static void test_detect(void **state)
{
    (void)state;
    check("", NULL, 0, 1, 0, 1);
    check("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
          "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=3",
          "mpirun", 3, 4, 1, 2);
    /* mpirun inside sbatch: Slurm's variables describe the daemons */
    check("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
          "OMPI_COMM_WORLD_LOCAL_SIZE=2 SLURM_PROCID=1 "
          "SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0",
          "mpirun", 2, 4, 0, 2);
    check("PMIX_RANK=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1", "srun --mpi=pmix", 1, 4, 1, -1);
    check("PMIX_RANK=1", "a PMIx launcher", 1, -1, -1, -1);
    check("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "a PMI launcher", 1, 2, 1, 2);
    check("PMI_RANK=1 PMI_SIZE=2 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0", "srun --mpi=pmi2", 1, 2, 0, -1);
    check("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1", "srun", 1, 2, 1, -1);
    assert_true(detect("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2").lacks_mpi);
    check("SLURM_PROCID=0 SLURM_NTASKS=4", NULL, 0, 1, 0, 1);         /* the batch script itself */
    check("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", NULL, 0, 1, 0, 1); /* srun of one */
    check("OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=4", NULL, 0, 1, 0, 1);
    check("OMPI_COMM_WORLD_RANK=99999999999 OMPI_COMM_WORLD_SIZE=4", NULL, 0, 1, 0, 1);
}

static void test_alone(void **state)
{
    struct comm_world w;
    struct error e = {0};

    (void)state;
    assert_int_equal(comm_world_open(&w, NULL, &e), ERR_NONE);
    assert_int_equal(w.comm->size, 1);
    assert_string_equal(w.comm->ops->name, "self");
    assert_int_equal(comm_world_close(&w, false, &e), ERR_NONE);
    assert_int_equal(comm_world_close(&w, false, &e), ERR_NONE);
}

static void test_never_alone_by_mistake(void **state)
{
    struct comm_world w;
    struct error e = {0};
    char path[64] = "/tmp/ctitan-test-XXXXXX", file[128];
    FILE *f;

    (void)state;
    detect("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2");
    assert_int_equal(comm_world_open(&w, NULL, &e), ERR_USAGE);
    assert_non_null(strstr(e.message, "srun --mpi=pmix"));
    /* the plugin is missing: this program lies elsewhere than it */
    detect("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2");
    assert_non_null(mkdtemp(path));
    setenv("CTITAN_PLUGIN_PATH", path, 1);
    assert_int_equal(comm_world_open(&w, NULL, &e), ERR_MISSING);
    assert_non_null(strstr(e.message, path));
    assert_non_null(strstr(e.message, "apt-get install"));
    assert_int_equal(comm_world_close(&w, true, &e), ERR_NONE);
    /* something else bears its name */
    snprintf(file, sizeof file, "%s/libctitan_mpi.so", path);
    assert_non_null(f = fopen(file, "w"));
    fputs("no library", f);
    fclose(f);
    assert_int_equal(comm_world_open(&w, NULL, &e), ERR_MISSING);
    assert_non_null(strstr(e.message, "cannot load"));
    unlink(file);
    rmdir(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_detect, clear),
        cmocka_unit_test_setup(test_alone, clear),
        cmocka_unit_test_setup(test_never_alone_by_mistake, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

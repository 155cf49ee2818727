/* SPDX-License-Identifier: MIT */
/* See scenario.h. */
#include "scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 8, REPORT_CODE = 86, SECONDS = 60 };

static const char *program;

int scenario_rank(void) { return (int)strtol(getenv("SCENARIO_RANK"), NULL, 10); }

const char *scenario_file(void) { return getenv("SCENARIO_FILE"); }

/* In the child, before it starts the program again. */
static void become(const struct scenario *s, int rank, int output, const char *file)
{
    char number[16], environment[512];
    snprintf(number, sizeof number, "%d", rank);
    setenv("SCENARIO_RANK", number, 1);
    setenv("SCENARIO_FILE", file, 1);
    snprintf(environment, sizeof environment, "%s", s->environment ? s->environment : "");
    char *rest = NULL;
    for (char *word = strtok_r(environment, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) putenv(word);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    alarm(SECONDS);
    execl(program, program, "--run", s->name, (char *)NULL);
    _exit(127);
}

/* Reads until all children have closed the pipe. */
static char *read_all(int descriptor)
{
    size_t n = 0, capacity = 4096;
    char *text = malloc(capacity);
    for (ssize_t got; (got = read(descriptor, text + n, capacity - n - 1)) > 0;) {
        n += (size_t)got;
        if (capacity - n < 1024) text = realloc(text, capacity *= 2);
    }
    text[n] = 0;
    return text;
}

static void run_scenario(void **state)
{
    const struct scenario *s = *state;
    int n = s->processes ? s->processes : 1, ends[2], codes[PROCESSES];
    pid_t pids[PROCESSES];
    char file[] = "/tmp/ctitan-scenario-XXXXXX";
    close(mkstemp(file));
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    for (int rank = 0; rank < n; rank++) {
        pids[rank] = fork();
        if (!pids[rank]) become(s, rank, ends[1], file);
    }
    close(ends[1]);
    char *output = read_all(ends[0]);
    close(ends[0]);
    bool is_reported = false, is_right = true;
    for (int rank = 0; rank < n; rank++) {
        int status;
        waitpid(pids[rank], &status, 0);
        codes[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        is_reported |= codes[rank] == REPORT_CODE;
        is_right &= codes[rank] == 0 || (s->report && codes[rank] == REPORT_CODE);
    }
    unlink(file);
    if (s->report)
        is_right = is_right && is_reported && strstr(output, s->report);
    else
        is_right = is_right && !strstr(output, "cudasim:");
    if (!is_right) {
        print_error("%s: wanted %s%s%s; got the codes", s->name, s->report ? "a report with \"" : "silence",
                    s->report ? s->report : "", s->report ? "\"" : "");
        for (int rank = 0; rank < n; rank++) print_error(" %d", codes[rank]);
        print_error(" and:\n%s", output);
        free(output);
        fail();
    }
    free(output);
}

int scenarios_main(int argc, char **argv, const struct scenario *all, size_t n)
{
    program = "/proc/self/exe";
    const char *only = argc == 2 ? argv[1] : "";
    struct CMUnitTest *tests = calloc(n, sizeof *tests);
    size_t chosen = 0;
    for (size_t i = 0; i < n; i++) {
        if (argc == 3 && !strcmp(argv[1], "--run") && !strcmp(argv[2], all[i].name)) {
            free(tests);
            all[i].run();
            return 0;
        }
        if (strstr(all[i].name, only))
            tests[chosen++] = (struct CMUnitTest){
                .name = all[i].name, .test_func = run_scenario, .initial_state = (void *)(uintptr_t)&all[i]};
    }
    int failed = _cmocka_run_group_tests(argv[0], tests, chosen, NULL, NULL);
    free(tests);
    return failed;
}

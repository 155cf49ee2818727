/* SPDX-License-Identifier: MIT */
/*
 * The one list of kernel cases: each kernel with the shapes at which its twins are compared (tests/kernels) and timed
 * (bench).
 *
 * A case is only shapes. A kernel_run holds the arrays of a case for one element type, filled by a fixed rule that
 * gives the same numbers for every type; kernel_run_call() puts them through one table of kernels.
 */
#ifndef TESTS_KERNELS_CASES_H
#define TESTS_KERNELS_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum { CASE_ARRAYS = 10, CASE_SCALARS = 3, CASE_MEMORY = CASE_ARRAYS + 2, CASE_TEXT_BYTES = 160 };

/* Which members matter depends on the kernel; tests/kernels/cases.c says it in one place per kernel. */
struct kernel_case {
    const char *kernel; /* name in kernels.def */
    bool is_bench;      /* a shape of real training: timed; too slow for the reference to be compared in the tests */
    int64_t m, n, k;    /* gemm */
    bool transpose_a, transpose_b, accumulate;
    int64_t t, d, v;            /* tokens, width, vocabulary */
    int64_t pad;                /* added to every leading dimension */
    struct attention attention; /* without strides and document_start */
    int64_t document_length;    /* 0 = no document_start; else documents of this many tokens */
    bool has_hidden_rows;       /* some queries see no key at all */
};

extern const struct kernel_case kernel_cases[];
extern const int kernel_cases_count;

struct kernel_run {
    const struct kernel_case *c;
    enum dtype type;                /* the compute type */
    struct kernel_context *context; /* borrowed */
    void *array[CASE_ARRAYS];       /* owned; of the compute type or its wide type, as the kernel wants them */
    int64_t count[CASE_ARRAYS];     /* elements */
    int32_t *indices;               /* owned; tokens, labels, positions or document starts */
    struct attention attention;
    double *sum;               /* owned; of kernels that add to a double */
    double *scalar;            /* behind sum: CASE_SCALARS, of kernels that read or write single doubles */
    void *memory[CASE_MEMORY]; /* owned; of a run on a device: what its pointers point into */
    size_t memory_bytes[CASE_MEMORY];
};

/* Memory running out is BUG. reference: of the same type, for inputs that are another kernel's results (lse, rstd). */
void kernel_run_init(struct kernel_run *r, const struct kernel_case *c, const struct kernels *reference,
                     struct kernel_context *context);
void kernel_run_release(struct kernel_run *r);
void kernel_run_call(struct kernel_run *r, const struct kernels *k);
void kernel_run_copy(struct kernel_run *to, const struct kernel_run *from); /* the numbers of the same case */

/* A run like another of the host's, with its arrays in the memory of the context's device: to call kernels of that
 * device with. Each array has a segment of its own, that ends where the array ends, and begins `shift` elements into
 * it. */
err_t kernel_run_upload(struct kernel_run *r, const struct kernel_run *host, struct kernel_context *context,
                        int64_t shift, struct error *e) MUST_CHECK;
/* The arrays come back into the host's run; what was before them must be as it was. Then kernel_run_drop. */
err_t kernel_run_download(struct kernel_run *host, const struct kernel_run *r, struct error *e) MUST_CHECK;
void kernel_run_drop(struct kernel_run *r); /* of one that was uploaded; the device has done its work */

/* Rounds each number to what a run of that compute type would hold in its place. */
void kernel_run_round(struct kernel_run *r, enum dtype type);

/* The largest relative L2 difference of any output, gaps between rows included; types may differ. *worst: which array
 * (-1: sum). */
double kernel_run_difference(const struct kernel_run *got, const struct kernel_run *want, int *worst);
bool kernel_run_same_bits(const struct kernel_run *a, const struct kernel_run *b);

double kernel_case_tolerance(const struct kernel_case *c, enum dtype type); /* of a twin against the reference */
double kernel_case_flops(const struct kernel_case *c);                      /* of matrix products; 0 for the others */
double kernel_case_bytes(const struct kernel_case *c, enum dtype type);     /* that must be read and written at least */
void kernel_case_text(const struct kernel_case *c, char text[CASE_TEXT_BYTES]);

#endif

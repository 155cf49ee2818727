/* SPDX-License-Identifier: MIT */
/*
 * Arithmetic per token and a device's peak: the two numbers behind tflops and mfu.
 *
 * flops_per_token is the PaLM convention (Chowdhery et al. 2022, appendix B), which torchtitan and most
 * published MFU figures use: every token is counted as if it attended to the whole context.
 * flops_per_token_causal counts the (T + 1) / 2 positions that a token sees on average; it is printed beside
 * the other at start, so nobody has to guess which one a figure means.
 */
#ifndef METRICS_FLOPS_H
#define METRICS_FLOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/str.h"

struct flops_facts {
    int64_t n_parameters;           /* all, a tied matrix once */
    int64_t n_embedding_parameters; /* of the token embedding */
    bool is_tied;                   /* the embedding is the head too: it does arithmetic and is not subtracted */
    int n_layers, n_heads;
    int d_qk, d_v;   /* per head */
    int64_t seq_len; /* configured context, also when packed documents are shorter */
};

/* 6 (N - N_embedding) + 6 L H (d_qk + d_v) T; tied: 6 N + ... */
double flops_per_token(const struct flops_facts *f);
double flops_per_token_causal(const struct flops_facts *f);        /* with (T + 1) / 2 in place of T */
void flops_describe(struct str *out, const struct flops_facts *f); /* appends the line printed at start */

/* Dense peak of a device in FLOP/s, looked up by its exact name as CUDA reports it; 0 = unknown (never a
 * guess). */
double flops_peak(const char *device_name, enum dtype compute);

/* The peak mfu uses and the line that says where it comes from: override_tflops (metrics.peak_tflops) > 0
 * wins, then what the device itself knows (device_properties.peak_flops), then the table; else 0 and a line
 * that says how to set it. */
double flops_choose_peak(struct str *line, double override_tflops, double device_peak, const char *device_name,
                         enum dtype compute);

#endif

/* SPDX-License-Identifier: MIT */
/* FLOPs per token and peaks by device; see flops.h. */
#include "metrics/flops.h"

#include <string.h>

/* Forward 2, backward 4 operations for each weight that multiplies a token. */
static double weights_flops(const struct flops_facts *f)
{
    return 6.0 * (double)(f->n_parameters - (f->is_tied ? 0 : f->n_embedding_parameters));
}

/* Per position attended to: q.k takes 2 d_qk, weighting v 2 d_v; times 3 for forward and backward. */
static double attention_flops(const struct flops_facts *f)
{
    return 6.0 * f->n_layers * f->n_heads * (double)(f->d_qk + f->d_v);
}

double flops_per_token(const struct flops_facts *f)
{
    return weights_flops(f) + attention_flops(f) * (double)f->seq_len;
}

double flops_per_token_causal(const struct flops_facts *f)
{
    return weights_flops(f) + attention_flops(f) * (double)(f->seq_len + 1) / 2;
}

void flops_describe(struct str *out, const struct flops_facts *f)
{
    double palm = flops_per_token(f), causal = flops_per_token_causal(f);

    str_addf(out, "FLOPs per token: %.4e = ", palm);
    if (f->is_tied)
        str_addf(out, "6 * %lld parameters", (long long)f->n_parameters);
    else
        str_addf(out, "6 * (%lld parameters - %lld of the embedding)", (long long)f->n_parameters,
                 (long long)f->n_embedding_parameters);
    str_addf(out,
             " + 6 * %d layers * %d heads * (%d + %d) * %lld positions (PaLM's formula: tflops and mfu count every"
             " token as attending to the whole context); with causal attention counted exactly: %.4e, %.1f%% less",
             f->n_layers, f->n_heads, f->d_qk, f->d_v, (long long)f->seq_len, causal, 100 * (1 - causal / palm));
}

/* Dense bfloat16 peaks from the vendors' data sheets, TFLOP/s. Names are exact, as cudaGetDeviceProperties
 * gives them: parts of names mislead ("NVIDIA RTX A1000" is no A100). */
static const struct {
    const char *name;
    double tflops;
} bfloat16_peaks[] = {
    {"NVIDIA A100-SXM4-40GB", 312},
    {"NVIDIA A100-SXM4-80GB", 312},
    {"NVIDIA A100-PCIE-40GB", 312},
    {"NVIDIA A100 80GB PCIe", 312},
    {"NVIDIA RTX A6000", 154.85},
    {"NVIDIA L40S", 362},
    {"NVIDIA H20", 148},
    {"NVIDIA H100 PCIe", 756},
    {"NVIDIA H100 NVL", 835},
    {"NVIDIA H100 80GB HBM3", 989},
    {"NVIDIA H200", 989},
    {"NVIDIA B200", 2250},
    {"NVIDIA B300", 2250},
    {"NVIDIA GB200", 2500},
    {"NVIDIA GB300", 2500},
};

double flops_peak(const char *device_name, enum dtype compute)
{
    if (compute != DTYPE_BFLOAT16) return 0;
    for (size_t i = 0; i < sizeof bfloat16_peaks / sizeof *bfloat16_peaks; i++)
        if (!strcmp(device_name, bfloat16_peaks[i].name)) return bfloat16_peaks[i].tflops * 1e12;
    return 0;
}

double flops_choose_peak(struct str *line, double override_tflops, double device_peak, const char *device_name,
                         enum dtype compute)
{
    double peak;

    if (override_tflops > 0) {
        str_addf(line, "Peak FLOPS used for mfu: %.3e (metrics.peak_tflops)", override_tflops * 1e12);
        return override_tflops * 1e12;
    }
    peak = device_peak > 0 ? device_peak : flops_peak(device_name, compute);
    if (peak > 0)
        str_addf(line, "Peak FLOPS used for mfu: %.3e (%s, %s, dense)", peak, device_name, dtype_name(compute));
    else
        str_addf(line, "Peak FLOPS of %s in %s are not known: mfu is N/A; metrics.peak_tflops sets them", device_name,
                 dtype_name(compute));
    return peak;
}

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

/* Dense peaks from the vendors' data sheets, TFLOP/s, as the kernels compute: bfloat16 on tensor cores, float32 without
 * them (not TF32), float64 on those that have it. 0 = the sheet does not say. Names are exact, as
 * cudaGetDeviceProperties and nvidia-smi give them: parts of names mislead ("NVIDIA RTX A1000" is no A100). */
static const struct {
    const char *name;
    double bfloat16, float32, float64;
} peaks[] = {
    {"NVIDIA A100-SXM4-40GB", 312, 19.5, 19.5},
    {"NVIDIA A100-SXM4-80GB", 312, 19.5, 19.5},
    {"NVIDIA A100-PCIE-40GB", 312, 19.5, 19.5},
    {"NVIDIA A100 80GB PCIe", 312, 19.5, 19.5},
    {"NVIDIA A800-SXM4-80GB", 312, 19.5, 9.7},
    {"NVIDIA A800 80GB PCIe", 312, 19.5, 9.7},
    {"NVIDIA A30", 165, 10.3, 10.3},
    {"NVIDIA A10", 125, 31.2, 0},
    {"NVIDIA A40", 149.7, 37.4, 0},
    {"NVIDIA RTX A6000", 154.85, 38.7, 0},
    {"NVIDIA L4", 121, 30.3, 0},
    {"NVIDIA L40", 181, 90.5, 0},
    {"NVIDIA L40S", 362, 91.6, 0},
    {"NVIDIA H20", 148, 44, 1},
    {"NVIDIA H800", 989, 67, 1},
    {"NVIDIA H100 PCIe", 756, 51, 51},
    {"NVIDIA H100 NVL", 835, 60, 60},
    {"NVIDIA H100 80GB HBM3", 989, 67, 67},
    {"NVIDIA H200", 989, 67, 67},
    {"NVIDIA H200 NVL", 835, 60, 60},
    {"NVIDIA GH200 480GB", 989, 67, 67},
    {"NVIDIA GH200 144G HBM3e", 989, 67, 67},
    {"NVIDIA B200", 2250, 75, 37},
    {"NVIDIA B300", 2250, 75, 1.2},
    {"NVIDIA GB200", 2500, 80, 40},
    {"NVIDIA GB300", 2500, 80, 1.3},
};

double flops_peak(const char *device_name, enum dtype compute)
{
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        if (strcmp(device_name, peaks[i].name) != 0) continue;
        if (compute == DTYPE_BFLOAT16) return peaks[i].bfloat16 * 1e12;
        if (compute == DTYPE_FLOAT32) return peaks[i].float32 * 1e12;
        if (compute == DTYPE_FLOAT64) return peaks[i].float64 * 1e12;
    }
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

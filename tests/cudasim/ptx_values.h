/* SPDX-License-Identifier: MIT */
/* The tests of ptx_values.cu and ptx_programs.cu: each returns how many values are wrong, and names the first. */
#ifndef CUDASIM_PTX_VALUES_H
#define CUDASIM_PTX_VALUES_H

#ifdef __cplusplus
extern "C" {
#endif
int ptx_values_scalar(void);
int ptx_functions(void);
int ptx_divergence(void);
int ptx_lanes(void);
int ptx_halves(void);
int ptx_atomics(void);
int ptx_products(void);
int ptx_shared(void);
#ifdef __cplusplus
}
#endif
#endif

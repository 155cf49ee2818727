/* SPDX-License-Identifier: MIT */
/* The one agreement between data, kernels and metrics about labels. */
#ifndef BASE_LABEL_H
#define BASE_LABEL_H

enum { LABEL_IGNORED = -100 }; /* the label of a place that is not scored (PyTorch's ignore_index) */

#endif

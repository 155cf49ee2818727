/* SPDX-License-Identifier: MIT */
/* The Llama 3 family: token embedding, pre-norm blocks with grouped-query attention and SwiGLU, final norm and output
 * projection. */
#ifndef MODELS_LLAMA_H
#define MODELS_LLAMA_H

#include "models/model.h"

/* Fills m->units, m->parameters and m->group_of from m->spec. */
err_t llama_build(struct model *m, struct error *e) MUST_CHECK;

#endif

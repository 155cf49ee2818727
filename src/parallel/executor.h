/* SPDX-License-Identifier: MIT */
/*
 * The executor runs action lists: it owns the groups' storage, the activations in flight and the streams, and nothing
 * else.
 *
 * Activations: the output of a unit, what its modules stash and what they keep between the two backward parts are
 * blocks from the device's allocator, of sizes that were measured when the executor was opened (exec_init_dry); they
 * are freed with the last action that reads them. Compute runs on one stream, gathers and reductions on another; events
 * order them.
 */
#ifndef PARALLEL_EXECUTOR_H
#define PARALLEL_EXECUTOR_H

#include "base/trace.h"
#include "mesh/mesh.h"
#include "models/model.h"
#include "parallel/action.h"
#include "parallel/group.h"

/* One microbatch on the host. tokens = sequences * length. */
struct microbatch {
    int64_t sequences, length;
    const int32_t *tokens, *labels, *positions; /* [tokens] */
    const int32_t *document_start;              /* [tokens] or NULL */
};

struct unit_sizes {
    size_t frame_bytes, stash_bytes, kept_bytes, out_bytes;
};

struct executor_spec {
    struct model *model; /* borrowed, like the rest */
    struct device *device;
    const struct kernels *kernels;
    struct mesh *mesh;
    struct trace *trace; /* may be NULL */
    enum dtype type;     /* the compute type */
    enum reshard_policy reshard;
    int n_microbatches;                              /* of a training step */
    int64_t sequences, length;                       /* largest microbatch of training */
    int64_t validation_sequences, validation_length; /* 0: no validation */
};

struct executor {
    struct executor_spec spec;
    struct parameter_group *groups;     /* [model->n_groups] */
    struct action_list train, validate; /* lists of a step, and of one validation batch */
    struct kernel_context kernel;
    struct exec exec;
    struct stream *compute, *comm;
    struct unit_sizes *sizes; /* [units], of the largest microbatch */
    struct slot *slots;       /* [n_microbatches][units] */
    struct event *computed;   /* compute work that communication must wait for */
    void *scratch;
    size_t scratch_bytes;
    double *loss_sum;              /* device, [1] */
    struct batch_buffers *buffers; /* [n_microbatches] */
    void *inputs;                  /* device: what the buffers point into */
};

err_t executor_open(struct executor *x, const struct executor_spec *spec, struct error *e) MUST_CHECK;
void executor_close(struct executor *x);

err_t executor_initialise(struct executor *x, uint64_t seed, struct error *e) MUST_CHECK; /* initial parameters */

/*
 * One step's forward and backward passes over n_microbatches microbatches: afterwards every parameter's shard_gradient
 * holds this rank's rows of the gradient, summed over all ranks and microbatches, of sum(loss) * loss_scale. *loss_sum:
 * this rank's summed cross-entropy, unscaled. After a failure nothing of the step is kept, and the executor is as it
 * was between two steps: memory that ran out on every rank alike may be there in the next call. A failure of
 * communication is for good (comm.h).
 */
err_t executor_train(struct executor *x, const struct microbatch *microbatches, double loss_scale, double *loss_sum,
                     struct error *e) MUST_CHECK;

/* The loss of one microbatch, forward only. Every rank calls it as often as the others. */
err_t executor_validate(struct executor *x, const struct microbatch *microbatch, double *loss_sum,
                        struct error *e) MUST_CHECK;

#endif

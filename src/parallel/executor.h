/* SPDX-License-Identifier: MIT */
/*
 * The executor runs action lists: it owns the groups' storage, the activations in flight and the streams, and nothing
 * else.
 *
 * Activations: the output of a unit, what its modules stash and what they keep between the two backward parts are
 * blocks from the device's allocator, of sizes that were measured when the executor was opened (exec_init_dry); they
 * are freed with the last action that reads them.
 *
 * Computation runs on the device's main stream, gathers and reductions on a stream of their own. At the start of a list
 * communication waits for all that the main stream was given before, the optimizer's update among it; at the end the
 * main stream waits for all communication, so that the optimizer finds its gradients. In between, a unit waits for the
 * gather of its parameters, a reduction for the computation before it, and memory for its last user (group.h).
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
    bool has_documents;                              /* microbatches have document_start */
};

/* Where inputs wait for their copy to the device; unused where copies are done when they return. */
struct staging {
    char *inputs;         /* host memory for copies, as large as the executor's inputs */
    struct event *copied; /* it may be filled again */
};

struct executor {
    struct executor_spec spec;
    struct parameter_group *groups;            /* [model->n_groups] */
    struct action_list train, validate;        /* lists of a step, and of one validation batch */
    struct kernel_context kernel, comm_kernel; /* on the main stream; on comm */
    struct exec exec;
    struct stream *comm;
    struct unit_sizes *sizes; /* [units], of the largest microbatch */
    struct slot *slots;       /* [n_microbatches][units] */
    struct event *order;      /* between the main stream and comm */
    void *scratch;
    size_t scratch_bytes;
    double *loss_sum;              /* device, [1]: of the last call */
    struct batch_buffers *buffers; /* [n_microbatches] */
    char *inputs;                  /* device: what the buffers point into */
    struct staging staging[2];     /* by turns: one is copied from while the next step's is filled */
    int turn;
};

err_t executor_open(struct executor *x, const struct executor_spec *spec, struct error *e) MUST_CHECK;
void executor_close(struct executor *x);

err_t executor_initialise(struct executor *x, uint64_t seed, struct error *e) MUST_CHECK; /* initial parameters */

/*
 * One step's forward and backward passes over n_microbatches microbatches: afterwards every parameter's shard_gradient
 * holds this rank's rows of the gradient, summed over all ranks and microbatches, of sum(loss) * loss_scale, and
 * *x->loss_sum this rank's summed cross-entropy, unscaled. The work is issued, not waited for: later work of the main
 * stream finds the results. The microbatches may be overwritten when it returns.
 *
 * After a failure nothing of the step is kept, and the executor is as it was between two steps: memory that ran out on
 * every rank alike may be there in the next call. A failure of communication is for good (comm.h).
 */
err_t executor_train(struct executor *x, const struct microbatch *microbatches, double loss_scale,
                     struct error *e) MUST_CHECK;

/* The loss of one microbatch, forward only, in *x->loss_sum. Every rank calls it as often as the others. */
err_t executor_validate(struct executor *x, const struct microbatch *microbatch, struct error *e) MUST_CHECK;

#endif

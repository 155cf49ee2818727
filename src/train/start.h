/* SPDX-License-Identifier: MIT */
/*
 * How this life of a run begins: decided by rank 0 from run.json and the checkpoint folder, then the same on every
 * rank.
 *
 *   own checkpoints in the folder      the run resumes: same id, same TensorBoard folder, a new segment
 *   checkpoint.initial_load_path       a new run that starts from somebody's checkpoint
 *   else                               a new run from initial values
 */
#ifndef TRAIN_START_H
#define TRAIN_START_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "comm/comm.h"
#include "config/config.h"
#include "data/loader.h"
#include "data/token_cache.h"
#include "mesh/mesh.h"
#include "train/run.h"

enum { START_PATH_BYTES = 4096, START_FOLDER_BYTES = 512 };

struct train_start {
    char run_id[RUN_ID_LENGTH + 1];
    int segment; /* 0 = first life of the run */
    bool is_resumed;
    char load_path[START_PATH_BYTES];   /* checkpoint to load; "" = none */
    unsigned load_parts;                /* CHECKPOINT_PART_* mask: what besides the parameters */
    int64_t step;                       /* steps done before this life */
    bool lacks_validation;              /* run.jsonl has none for that step */
    char tb_folder[START_FOLDER_BYTES]; /* relative to the dump folder; "" = TensorBoard is off */
    int64_t tokens_seen;                /* these two are read from the checkpoint by trainer_load */
    struct data_cursor cursor;
};

/* Collective. Rank 0 opens `run` (lock and run.json); all ranks get its decision or its error: on the other ranks the
 * code is ERR_PEER. text: what is trained on, to be compared with a checkpoint's. is_dry: no folder is touched, a run
 * id is made up. */
err_t train_start_decide(struct train_start *s, struct run *run, const struct config *cfg, const struct mesh *mesh,
                         const struct token_cache *text, struct log *log, bool is_dry, struct error *e) MUST_CHECK;

#endif

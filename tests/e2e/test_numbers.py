#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 240
"""The numbers that the real trainer shows: the first loss of the main job, and a loss, gradient norm and curve that do not depend on how the
same global batch is cut into microbatches and over ranks, also where the cuts hold different numbers of labels."""
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()

# ---- the main job, one step of it with shorter sequences: what is shown first is the loss of drawn parameters, whatever their length.
# Near ln(2048) = 7.62 plus half the variance of the logits, which the initialisation makes 1.
dump = place.new_dump()
code, out, errors = place.run(dump, ["--config", "llama3_debugmodel", "metrics.enable_tensorboard=true", "training.steps=1", "training.seq_len=256"])
place.check(code == 0, f"the main job runs, not exit code {code}", out[-1500:] + errors[-1500:])
first = place.curve(dump)[0][1]
place.check(abs(first - 8.1) <= 0.3, f"its first loss is 8.1 +- 0.3, not {first}", out[-1500:])
place.check("6163712 parameters" in out, "its model has 6163712 parameters", out[-1500:])
place.check(1 in place.event_steps(dump), "TensorBoard gets the step")

# ---- one global batch of 8 sequences, cut in every way. Documents end within sequences (document_mask), so that labels are missing unevenly.
SAME = [*e2e.SMALL, "checkpoint.enable=false", "training.global_batch_size=8", "training.document_mask=true", "training.dtype=float64",
        "training.steps=4", "training.document_separator=%"]
CUTS = {  # (ranks, replicas, sequences at once)
    "one rank, 8 at once": (1, 1, 8), "one rank, 2 times 4": (1, 1, 4), "one rank, 8 times 1": (1, 1, 1), "dp_shard 2, 2 times 2": (2, 1, 2),
    "dp_shard 2, 4 times 1": (2, 1, 1), "dp_replicate 2, 1 time 4": (2, 2, 4), "dp_replicate 2 x dp_shard 2, 2 times 1": (4, 2, 1)}


def curve(ranks, replicas, at_once, *arguments):
    dump = place.new_dump()
    code, out, errors = place.run(dump, [*SAME, f"training.local_batch_size={at_once}", f"parallelism.data_parallel_replicate_degree={replicas}",
                                         *arguments], NGPU=ranks, COMM_MODE="local_tensor" if ranks > 2 else None)
    place.check(code == 0, f"exit code 0, not {code}", out[-1500:] + errors[-1500:])
    return place.curve(dump)


def close(curve, other, tolerance):
    return len(curve) == len(other) == 4 and all(math.isclose(a, b, rel_tol=tolerance) for x, y in zip(curve, other) for a, b in zip(x, y))


wanted = curve(*CUTS["one rank, 8 at once"])
for what, cut in CUTS.items():
    got = curve(*cut)
    place.check(close(got, wanted, 1e-9), f"{what}: losses, gradient norms, rates and tokens are those of one rank at once to 1e-9", f"{got}\n{wanted}")
single = curve(1, 1, 8, "training.dtype=float32")
place.check(close(single, wanted, 1e-5), "float32 agrees with float64 to 1e-5", f"{single}\n{wanted}")
for cut in ((1, 1, 2), (2, 1, 1)):
    got = curve(*cut, "training.dtype=float32")
    place.check(close(got, single, 1e-5), f"float32, cut {cut}: to 1e-5", f"{got}\n{single}")

# the labels really are uneven: without the mask there are more of them, so the loss is another
place.check(not close(curve(1, 1, 8, "training.document_mask=false"), wanted, 1e-3), "document_mask leaves labels out")

# validation: the same loss whatever the number of ranks and of sequences at once, over all of the text
VALIDATION = ["validation.enable=true", "validation.freq=1", "validation.seq_len=32", "validation.steps=-1", "training.steps=1",
              f"validation.dataset={place.folder}/few.txt"]
(place.folder / "few.txt").write_text("".join(f"document {n} of a few\n%\n" * (1 + n % 3) for n in range(29)))
losses = {}
for ranks, at_once in ((1, 1), (1, 7), (2, 1), (2, 3), (4, 1)):
    dump = place.new_dump()
    code, out, errors = place.run(dump, [*SAME, *VALIDATION, "training.local_batch_size=1", f"validation.local_batch_size={at_once}"], NGPU=ranks,
                                  COMM_MODE="local_tensor" if ranks > 2 else None)
    place.check(code == 0, f"validation on {ranks} ranks: exit code 0, not {code}", out[-1500:] + errors[-1500:])
    losses[ranks, at_once] = [loss for _, loss in place.validation(dump)]
place.check(all(len(loss) == 1 and math.isclose(loss[0], losses[1, 1][0], rel_tol=1e-9) for loss in losses.values()),
            "the validation's loss does not depend on ranks or batches", json.dumps({str(key): loss for key, loss in losses.items()}))

place.close()

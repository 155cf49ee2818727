#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 600
"""The real trainer on the GPU (or the simulator of one): losses, gradient norms and validation of the CPU, on one rank and on two, in float32
and bfloat16; rows in order although results come a step late; a resumed run goes on with the same bits; where there is no GPU it says so."""
import math
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
STEPS = 4
RUN = [*e2e.TINY, "model.dim=64", "model.n_layers=2", "model.n_heads=4", "model.n_kv_heads=2", "model.ffn_dim=96",
       "model.vocab_size=300", "training.tokenizer=byte", "training.global_batch_size=2", f"training.steps={STEPS}", "lr_scheduler.total_steps=100", "lr_scheduler.warmup_steps=2", "validation.enable=true",
       "validation.seq_len=32", "validation.local_batch_size=1", "validation.steps=2", "validation.freq=2", "debug.seed=5", "device.threads=1"]


def run(kind, *arguments, dump=None, ranks=1):
    dump = dump or place.new_dump()
    code, out, errors = place.run(dump, [*RUN, f"device.kind={kind}", *arguments], seconds=250, NGPU=ranks)
    return dump, code, out + errors


def numbers(dump):
    """(kind of row, step, loss, gradient norm) of the rows, in their order."""
    return [("validation" if "validation_metrics/loss" in row else "training", row["step"],
             row.get("validation_metrics/loss", row.get("loss_metrics/global_avg_loss")), row.get("grad_norm", 0)) for row in place.rows(dump)]


def close(rows, others, tolerance):
    return len(rows) == len(others) > 0 and all(a[:2] == b[:2] and all(math.isclose(x, y, rel_tol=tolerance) for x, y in zip(a[2:], b[2:]))
                                                for a, b in zip(rows, others))


dump, code, text = run("cuda", "checkpoint.enable=false")
if code == 2 and "device.kind=cuda: " in text and os.environ.get("CTITAN_CUDA") == "real":
    place.remove()
    e2e.skip(text.strip().splitlines()[-1])
place.check(code == 0, f"a run on the GPU ends with 0, not {code}", text[-3000:])
place.check("compute capability" in text, "the GPU is announced", text[-3000:])
on_gpu = numbers(dump)
dump, code, text = run("cpu", "checkpoint.enable=false", "device.kernels=reference")
on_cpu = numbers(dump)
place.check(code == 0 and len(on_cpu) == STEPS + 3, f"{STEPS} steps, and 3 validations of the CPU", f"{on_cpu}\n{text[-2000:]}")
place.check(close(on_gpu, on_cpu, 1e-4), "the GPU's rows are the CPU's, in the same order", f"{on_gpu}\n{on_cpu}")

for ranks, replicas in ((2, 1), (2, 2)):
    dump, code, text = run("cuda", "checkpoint.enable=false", f"parallelism.data_parallel_replicate_degree={replicas}", "validation.steps=1", ranks=ranks)
    if code == 2 and "no GPU for local rank" in text:
        break  # a machine with one GPU
    place.check(code == 0, f"{ranks} ranks, {replicas} replicas: exit code 0, not {code}", text[-3000:])
    place.check(close(numbers(dump), on_cpu, 1e-4), f"{ranks} ranks, {replicas} replicas: the numbers of one", f"{numbers(dump)}\n{on_cpu}")

LONG = ["checkpoint.enable=false", "training.steps=20", "validation.enable=false"]
both = []
for kind in ("cuda", "cpu"):
    dump, code, text = run(kind, *LONG, *(["device.kernels=reference"] if kind == "cpu" else []))
    place.check(code == 0, f"20 steps on {kind}: exit code 0, not {code}", text[-2000:])
    both.append(numbers(dump))
place.check(len(both[0]) == 20 and close(*both, 1e-4), "20 steps that each go on from their own weights: losses and norms within 1e-4", f"{both}")

SAVE = ["checkpoint.enable=true", "checkpoint.interval=2", "training.mixed_precision_param=bfloat16"]
whole, code, text = run("cuda", *SAVE)
place.check(code == 0, f"bfloat16: exit code 0, not {code}", text[-3000:])
dump, code, text = run("cpu", "checkpoint.enable=false", "device.kernels=reference", "training.mixed_precision_param=bfloat16")
place.check(close(numbers(whole), numbers(dump), 1e-2), "bfloat16: the CPU's numbers to two digits", f"{numbers(whole)}\n{numbers(dump)}")
part, code, text = run("cuda", *SAVE, "training.steps=2")
place.check(code == 0, f"half of it: exit code 0, not {code}", text[-3000:])
part, code, text = run("cuda", *SAVE, dump=part)
place.check(code == 0 and "step 2" in text, f"the other half: exit code 0, not {code}", text[-3000:])
place.check(numbers(part)[-3:] == numbers(whole)[-3:] and len(numbers(part)) >= 6, "a resumed run has the bits of one that was not stopped",
            f"{numbers(part)}\n{numbers(whole)}")
place.close()

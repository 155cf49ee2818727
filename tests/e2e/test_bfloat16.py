#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 240
"""training.mixed_precision_param=bfloat16 in the real trainer: the curve of float32 within the digits of bfloat16, the same bits for
processes and threads and over a resume, checkpoints that either precision goes on from, and what the run says of itself."""
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
RUN = [*e2e.SMALL, "training.global_batch_size=4", "checkpoint.interval=5"]
HALF = [*RUN, "training.mixed_precision_param=bfloat16"]
STEPS = 20


def finish(dump, arguments, steps=STEPS, **environment):
    code, out, errors = place.run(dump, [*arguments, f"training.steps={steps}"], **environment)
    place.check(code == 0, f"{dump.name} comes to step {steps}, not exit code {code}", out[-1500:] + errors[-1500:])
    return out + errors


def run(arguments, **environment):
    dump = place.new_dump()
    return dump, finish(dump, arguments, **environment)


def close(curve, other, tolerance):
    return len(curve) == len(other) and all(math.isclose(a[1], b[1], rel_tol=tolerance) for a, b in zip(curve, other))


# a run in float32, and one in bfloat16 on each number of ranks. A loss is a mean over 128 labels, whose logits are off by 1e-2 at most;
# measured: 1e-4
single, _ = run(RUN, NGPU=1)
alone, text = run(HALF, NGPU=1)
place.check("bfloat16 with parameters in float32" in text, "the announcement names both types", text[:2000])
place.check("in bfloat16 are not known" in text, "the peak for mfu is that of bfloat16", text[:2000])
place.check(close(place.curve(alone), place.curve(single), 1e-3) and place.curve(alone) != place.curve(single),
            "the curve is float32's to 1e-3, but not the same", f"{place.curve(alone)[-3:]}\n{place.curve(single)[-3:]}")
pair, _ = run(HALF, NGPU=2)
place.check(close(place.curve(pair), place.curve(alone), 1e-3), "two ranks: the curve of one to 1e-3", f"{place.curve(pair)[-3:]}")

# ranks as threads give the bits of ranks as processes
threads, _ = run(HALF, NGPU=2, COMM_MODE="local_tensor")
place.check(place.curve(threads) == place.curve(pair), "threads and processes: the same curve, bit for bit")
place.check(place.difference(threads, pair, STEPS) is None, "and the same checkpoints", str(place.difference(threads, pair, STEPS)))
reference, _ = run([*HALF, "device.kernels=reference"], NGPU=2)
place.check(close(place.curve(reference), place.curve(pair), 1e-3), "the reference's kernels: the same curve to 1e-3", f"{place.curve(reference)[-3:]}")

# a resume, on one rank and on two
for ranks, straight in ((1, alone), (2, pair)):
    dump = place.new_dump()
    finish(dump, HALF, 7, NGPU=ranks)
    finish(dump, HALF, NGPU=ranks)
    place.check(place.curve(dump) == place.curve(straight), f"{ranks} ranks, resumed after step 7: bit for bit the run left alone")
    place.check(place.difference(dump, straight, STEPS) is None, "and its last checkpoint", str(place.difference(dump, straight, STEPS)))

# checkpoints hold float32, so that either precision goes on from them, and says so
for what, first, then, other in (("float32 to bfloat16", RUN, HALF, single), ("bfloat16 to float32", HALF, [*RUN, "training.mixed_precision_param=float32"], alone)):
    dump = place.new_dump()
    finish(dump, first, 10, NGPU=1)
    for path in dump.glob("**/*.safetensors"):
        data = path.read_bytes()
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        kinds = {tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"}
        place.check(kinds == {"F32"}, f"{what}: {path.name} holds float32 alone, not {kinds}")
    text = finish(dump, then, NGPU=1)
    place.check("training.mixed_precision_param" in text, f"{what}: the change is told", text[-1500:])
    place.check(place.curve(dump)[:10] == place.curve(other)[:10], f"{what}: until then it is the other's curve")
    place.check(close(place.curve(dump), place.curve(single), 1e-3), f"{what}: and goes on within 1e-3 of float32's", f"{place.curve(dump)[-3:]}")

# what does not go together is refused before anything runs
for option in ("training.dtype=bfloat16", "training.dtype=float64", "training.mixed_precision_reduce=float64"):
    dump = place.new_dump()
    code, out, errors = place.run(dump, [*HALF, option, "training.steps=1"])
    place.check(code == 2 and option in out + errors and not place.rows(dump), f"{option} is refused: exit code 2, not {code}", out[-800:] + errors[-800:])

place.close()

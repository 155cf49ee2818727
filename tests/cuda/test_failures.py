#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 600
"""What a GPU or its libraries can refuse, refused once, in the real trainer on the simulator: at every kind of call, early and late in a run,
the run ends with an error that says which call failed, leaks nothing, hangs nowhere, and leaves a checkpoint that is whole and resumes."""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

if os.environ.get("CTITAN_CUDA") == "real":
    e2e.skip("a real device does not fail on demand")
e2e.need("train")
place = e2e.Place()
SMALL = [*e2e.SMALL, "model.dim=16", "model.ffn_dim=32", "training.seq_len=16", "device.kind=cuda", "checkpoint.interval=1"]
RUNS_OF_A_KIND = 24
# kind of call, its counter of the simulator or how many of them are tried, what the message must say one of
KINDS = {
    "malloc": ("allocations", ["cudaMalloc", "out of memory"]),
    "hostalloc": ("host_allocations", ["the host gives no"]),
    "memcpy": ("copies", ["cudaMemcpy"]),
    "memset": ("memsets", ["cudaMemset", "embedding_backward_weight"]),  # a kernel's launcher that clears its workspace
    "launch": ("launches", ["launch", "kernel"]),
    "kernel": ("launches", ["cuda"]),  # asynchronous: the next call that looks tells of it
    "gemm": ("gemms", ["cublasLt"]),
    "event": (3, ["cudaEvent"]),
    "stream": (2, ["cudaStream"]),
    "sync": (3, ["cuda"]),
}


def train(dump, *arguments, ranks=1, **environment):
    """(exit code, output) of the program; without data, which makes it quick and calls what it would call."""
    program = [e2e.PROGRAM, "train", *SMALL, *arguments, f"job.dump_folder={dump}"]
    if ranks > 1:
        program = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *program]
    values = place.environment(**{"CUDASIM_DATA": 0, "CUDASIM_LEAKS": "always", "CUDA_VISIBLE_DEVICES": 0, **environment})
    try:
        done = subprocess.run(program, env=values, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, cwd=e2e.ROOT)
    except subprocess.TimeoutExpired:
        return None, "no end within 60 s"
    return done.returncode, done.stdout


def chosen(n):
    """At most RUNS_OF_A_KIND of the numbers 1..n: the first half of them one by one, the others spread over the rest."""
    first = min(n, RUNS_OF_A_KIND // 2)
    return sorted({*range(1, first + 1), *(first + (n - first) * i // (RUNS_OF_A_KIND // 2) for i in range(1, RUNS_OF_A_KIND // 2 + 1) if n > first)})


def errors(text):
    return [line for line in text.splitlines() if "ERROR" in line or "error" in line]


def fails_well(what, kind, code, text, says):
    place.check(code is not None and 0 < code < 86, f"{what}: it ends with an error, not with {code}", text[-1500:])
    place.check("cudasim:" not in text, f"{what}: nothing leaks, nothing is used wrongly", text[-1500:])
    place.check(any(word in line for line in errors(text) for word in says), f"{what}: the error names the call ({kind})", text[-1500:])


stats = place.folder / "stats"
whole = place.new_dump()
code, text = train(whole, "training.steps=2", CUDASIM_STATS=stats)
place.check(code == 0 and "cudasim:" not in text, f"without a failure: exit code 0, not {code}", text[-3000:])
if code:
    place.close()
counters = json.loads(stats.read_text())

for kind, (counter, says) in KINDS.items():
    for number in chosen(counters.get(counter, counter)):
        dump = place.new_dump()
        # kernels fail when they run
        code, text = train(dump, "training.steps=2", CUDASIM_FAIL=f"{kind}:{number}", CUDASIM_DATA=int(kind == "kernel"))
        # memory that is refused once is there when the cache was given back
        if not (kind == "malloc" and code == 0 and "cudasim:" not in text):
            fails_well(f"{kind} {number}", kind, code, text, says)

# a failure after a checkpoint: it is whole, and the run goes on from it
for kind in ("memcpy", "launch", "gemm"):
    counter, says = KINDS[kind]
    dump = place.new_dump()
    code, text = train(dump, "training.steps=4", CUDASIM_FAIL=f"{kind}:{int(counters[counter] * 0.9)}")
    fails_well(f"late {kind}", kind, code, text, says)
    steps = sorted(dump.glob("checkpoint/step-*"))
    place.check(steps, f"late {kind}: a checkpoint was there before", str(list(dump.rglob("*")))[:600])
    for step in steps:
        done = subprocess.run([e2e.PROGRAM, "checkpoint", "verify", step], capture_output=True, text=True, timeout=60)
        place.check(done.returncode == 0, f"late {kind}: {step.name} is whole", done.stdout + done.stderr)
    code, text = train(dump, "training.steps=4")
    place.check(code == 0 and "step 4 of 4" in text, f"late {kind}: the run goes on, to exit code 0, not {code}", text[-2000:])

# a collective, on two ranks: both end
for number in (1, 2, 5):
    code, text = train(place.new_dump(), "training.steps=2", ranks=2, CUDASIM_FAIL=f"nccl:{number}")
    place.check(code, f"nccl {number}: two ranks end with an error, not with {code}", text[-1500:])
    place.check("NCCL" in text, f"nccl {number}: the error names NCCL", text[-1500:])
place.close()

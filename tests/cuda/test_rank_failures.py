#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 400
"""What goes wrong on the GPUs of two ranks, or of one of them, ends the run soon, with code 1 and a message that says what failed: nobody waits for
the time-out of collectives that never come."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
if os.environ.get("CTITAN_CUDA") == "real":
    e2e.skip("a real GPU does not fail when it is asked to")
place = e2e.Place()
RUN = [*e2e.TINY, "model.dim=32", "model.n_layers=1", "model.n_heads=2", "model.ffn_dim=64", "model.vocab_size=300", "training.tokenizer=byte",
       "training.global_batch_size=2", "training.steps=3", "device.threads=1", "checkpoint.enable=true", "checkpoint.interval=2", "device.kind=cuda"]
wrapper = place.folder / "ctitan"
wrapper.write_text(f"""#!/bin/bash
[[ ${{OMPI_COMM_WORLD_RANK:-}} != 1 || -z ${{FAIL_RANK_1:-}} ]] || export CUDASIM_FAIL=$FAIL_RANK_1
exec {e2e.PROGRAM} "$@"
""")
wrapper.chmod(0o755)


def run(what, ranks, **environment):
    code, out, errors = place.run(place.new_dump(), RUN, seconds=90, NGPU=ranks, CTITAN_PROGRAM=wrapper, **environment)
    place.check(code is not None, f"{what}, {ranks} ranks: an end within 90 s", (out + errors)[-1500:])
    return code, out + errors


code, text = run("nothing fails", 2)
place.check(code == 0, f"what does not fail ends with 0, not {code}", text[-2000:])
for fault, words in {"kernel:30": "cudaErrorIllegalAddress", "launch:20": "cudaErrorLaunch", "malloc:3": "out of memory", "sync:3": "waiting for the GPU"}.items():
    for both in (True, False):
        environment = {"CUDASIM_FAIL": fault} if both else {"FAIL_RANK_1": fault}
        code, text = run(fault, 2, **environment)
        place.check(code == 1 and words in text and "cudasim: " not in text, f"{fault} on {'both ranks' if both else 'rank 1'}: code 1 and \"{words}\", not {code}", text[-1500:])
place.close()

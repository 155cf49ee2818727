#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 180
"""Who says what on many ranks: one rank has the step lines and no other makes up a loss; ranks on two hosts are one run, with one identity."""
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
REPLICATE, SHARD = "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree"
SHORT = [*e2e.TINY, "training.steps=2", "validation.enable=true", "validation.steps=1", "validation.freq=1", "validation.seq_len=32",
         "validation.local_batch_size=1"]

# ---- whatever the mesh and whichever ranks are shown: no number stands for a loss that a rank does not have ----
for mesh in ([f"{SHARD}=4"], [f"{REPLICATE}=4"], [f"{REPLICATE}=2", f"{SHARD}=2"]):
    for wanted in ("0", "3,1"):
        what = f"{mesh}, LOG_RANK={wanted}"
        dump = place.new_dump()
        code, out, errors = place.run(dump, SHORT + mesh, NGPU=4, COMM_MODE="local_tensor", LOG_RANK=wanted)
        shown = re.findall(r"^\[rank(\d+)\]:", out, flags=re.M)
        steps = re.findall(r"^\[rank(\d+)\]:.* - step: +(\d+)  loss: +([^ ]+)  grad_norm: +([^ ]+) ", out, flags=re.M)
        place.check(code == 0 and set(shown) == set(wanted.split(",")), f"{what}: those ranks are shown, not {set(shown)}", out + errors)
        place.check([line[:2] for line in steps] == ([("0", "1"), ("0", "2")] if wanted == "0" else []), f"{what}: step lines {steps}", out)
        place.check(all(float(line[2]) > 0 and float(line[3]) > 0 for line in steps), f"{what}: real numbers, not {steps}", out)
        place.check(not re.search(r"loss: +-", out), f"{what}: no loss below zero", out)
        place.check(out.count("to see them: LOG_RANK=") == (wanted != "0"), f"{what}: how to see the step lines is told once, if it must be", out)
        losses = [row.get("loss_metrics/global_avg_loss", row.get("validation_metrics/loss")) for row in place.rows(dump)]
        place.check(len(losses) == 4 and all(loss and loss > 0 for loss in losses), f"{what}: rows with real losses, not {losses}")

# ---- two hosts of two ranks each, by their names: one run ----
if os.geteuid() == 0 and subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode == 0:
    dump = place.new_dump()
    train = [str(e2e.PROGRAM), "train", *SHORT, "metrics.enable_tensorboard=true", f"job.dump_folder={dump}"]
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    parts = []
    for name in ("alpha", "beta"):
        parts += [":"] * bool(parts) + ["-n", "2", "unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$0" "$@"', *train]
    done = subprocess.run(mpirun + parts, env=place.environment(CTITAN_MPI_HOSTS=2, OMP_NUM_THREADS=1), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, cwd=e2e.ROOT, timeout=90)
    place.check(done.returncode == 0, f"two hosts: exit code {done.returncode}", done.stdout + done.stderr)
    rows, records = place.rows(dump), [json.loads(path.read_text()) for path in dump.rglob("run.json")]
    place.check(len(records) == 1 and len({row["run"] for row in rows}) == 1, f"two hosts: one run, not {len(records)}")
    place.check(records and records[0]["id"] == rows[0]["run"], "two hosts: the rows are of that run")
    place.check(records and records[0]["segments"][0]["hosts"] == ["alpha", "beta"], f"two hosts: both are named in {records}")
    place.check(records and records[0]["segments"][0]["world"] == 4, f"two hosts: four ranks in {records}")
    place.check(len(list(dump.glob("tb/*"))) == 1 and len(list(dump.rglob("events.out.*"))) == 1, "two hosts: one folder and file of events")
    place.check([row["step"] for row in rows] == [1, 1, 2, 2], f"two hosts: each step once and its validation, not {[row['step'] for row in rows]}")

place.close()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 300
"""Signals to the script, to mpirun and to single ranks: one agreed step is saved, the exit code is 75 and no process is left."""
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
RUN = [*e2e.TINY, *e2e.FOREVER, "--checkpoint.enable", "checkpoint.interval=1000000", "--metrics.enable_tensorboard"]


def started(arguments=RUN, **environment):
    dump = place.new_dump()
    process = place.start(dump, arguments, **environment)
    if not place.check(place.wait_for_step(dump, 3), "the run comes to step 3", place.text(dump, "err")):
        place.close()
    return dump, process


def stopped_well(what, dump, code):
    shown = place.text(dump, "out")[-1500:] + place.text(dump, "err")[-1500:]
    place.check(code == 75, f"{what}: exit code 75, not {code}", shown)
    place.check(place.none_left(dump), f"{what}: no process is left", str(place.processes(dump)))
    saved, rows = place.checkpoints(dump), place.rows(dump)
    place.check(len(saved) == 1, f"{what}: one checkpoint, not {sorted(saved)}", shown)
    if saved and rows:
        step = max(saved)
        place.check(rows[-1]["step"] == step, f"{what}: run.jsonl ends with the saved step {step}, not {rows[-1]['step']}")
        events = place.event_steps(dump)
        place.check(events and max(events) == step, f"{what}: TensorBoard's file ends with the saved step {step}, not {max(events or [0])}")
        place.check(re.search(rf"step: +{step} ", place.text(dump, "out")), f"{what}: the console shows step {step}", shown)


for name in ("TERM", "INT", "USR1"):
    number = getattr(signal, f"SIG{name}")
    dump, process = started()
    process.send_signal(number)
    stopped_well(f"{name} to run_train.sh", dump, place.wait(process))
    for rank in (0, 1):
        dump, process = started()
        ranks = place.ranks(dump)
        if place.check(len(ranks) == 2, f"two ranks run, not {ranks}"):
            os.kill(ranks[rank], number)
        stopped_well(f"{name} to one of the ranks", dump, place.wait(process))

dump, process = started()
os.kill(place.mpirun(dump), signal.SIGUSR1)
stopped_well("USR1 to mpirun", dump, place.wait(process))

# four ranks, one of them told
dump, process = started(NGPU=4)
os.kill(place.ranks(dump)[2], signal.SIGUSR1)
stopped_well("USR1 to one rank of four", dump, place.wait(process))

# one process, no mpirun; ranks as threads
dump, process = started(NGPU=1)
process.send_signal(signal.SIGTERM)
stopped_well("TERM to a job of one process", dump, place.wait(process))
dump, process = started(COMM_MODE="local_tensor")
process.send_signal(signal.SIGINT)
stopped_well("INT to ranks that are threads", dump, place.wait(process))

# nothing to go on from: not 75, or a queue would start the job again for ever
dump, process = started([*e2e.TINY, *e2e.FOREVER])
process.send_signal(signal.SIGTERM)
code, text = place.wait(process), place.text(dump, "out") + place.text(dump, "err")
place.check(code == 1 and "nothing was saved" in text, f"TERM to a run without checkpoints: exit code 1, not {code}, and it says so", text[-1500:])
place.check(json.loads((dump / "run.json").read_text())["status"] == "stopped", "its run.json says stopped")
place.check(place.none_left(dump), "TERM to a run without checkpoints: no process is left", str(place.processes(dump)))

# mpirun itself: no process stays, and the checkpoint that was there stays whole
for name in ("TERM", "INT", "KILL"):
    dump, process = started([*e2e.TINY, *e2e.FOREVER, "--checkpoint.enable", "checkpoint.interval=2"])
    os.kill(place.mpirun(dump), getattr(signal, f"SIG{name}"))
    code = place.wait(process)
    place.check(code in (1, 75), f"{name} to mpirun: exit code 1 or 75, not {code}", place.text(dump, "err"))
    place.check(place.none_left(dump), f"{name} to mpirun: no process is left", str(place.processes(dump)))
    place.check(place.checkpoints(dump), f"{name} to mpirun: there is a whole checkpoint")
    code, _, errors = place.run(dump, [*e2e.TINY, f"training.steps={max(place.checkpoints(dump)) + 1}", "--checkpoint.enable"])
    place.check(code == 0, f"after {name} to mpirun the run resumes, not exit code {code}", errors)

# the second interrupt ends at once, the script's own death ends the job
dump, process = started()
process.send_signal(signal.SIGINT)
time.sleep(0.3)
process.send_signal(signal.SIGINT)
begin = time.monotonic()
code = place.wait(process)
place.check(code in (1, 75), f"a second INT: exit code 1, or 75 when the first was faster, not {code}", place.text(dump, "err"))
place.check(time.monotonic() - begin < 5, "a second INT ends at once")
place.check(place.none_left(dump), "a second INT: no process is left", str(place.processes(dump)))
dump, process = started()
process.kill()
process.wait()
place.check(place.none_left(dump, 20), "KILL to run_train.sh: no process is left", str(place.processes(dump)))


# while the data is prepared: there is nothing to go on from yet. The locks of the cache are held here, so that it takes as long as it must.
def catches(pid, number):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (number - 1) & 1
    except (OSError, TypeError):
        return False


text = place.folder / "text"
text.write_text("a text of some words\n" * 1000)
DATA = [*e2e.TINY, f"training.dataset={text}", "training.tokenizer=byte"]
subprocess.run([e2e.PROGRAM, "data", "prepare", *DATA], env=place.environment(), check=True, capture_output=True)
text.write_text("another text of some words\n" * 1000)
locks = [open(path) for path in (place.folder / "cache").glob("**/*.lock")]
for lock in locks:
    fcntl.flock(lock, fcntl.LOCK_EX)
place.check(locks, "the cache has locks")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
for name, launcher, command, number in (("data prepare", [], ["data", "prepare"], signal.SIGTERM), ("train", [], ["train"], signal.SIGTERM),
                                        ("train", [], ["train"], signal.SIGINT), ("train under mpirun", MPIRUN, ["train"], signal.SIGUSR1)):
    dump = place.new_dump()
    process = subprocess.Popen([*launcher, e2e.PROGRAM, *command, *DATA, f"job.dump_folder={dump}"], env=place.environment(NGPU=None),
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 30
    ready = []
    while time.monotonic() < end and len(ready) < (2 if launcher else 1):
        time.sleep(0.05)
        ready = [pid for pid, line in place.processes(dump).items() if "mpirun" not in line and catches(pid, number)]
    process.send_signal(number)
    try:
        shown = process.communicate(timeout=30)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        shown = "it goes on: " + process.communicate()[0]
    what = f"{number.name} to {name} that prepares data"
    place.check(process.returncode == 1 and "nothing was saved" in shown, f"{what}: exit code 1, not {process.returncode}, and it says so", shown)
    place.check(place.none_left(dump), f"{what}: no process is left", str(place.processes(dump)))
for lock in locks:
    lock.close()

place.close()

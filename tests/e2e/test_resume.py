#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 240
"""n steps = k steps + any end + a resume + n - k steps: bit for bit on the same mesh, to tolerance on another; the curve in run.jsonl goes
on without a gap and without a point twice, with validation too. A changed configuration is refused with both values, or told."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
RUN = [*e2e.SMALL, "checkpoint.interval=5"]
VALIDATED = ["validation.enable=true", "validation.freq=7", "validation.steps=1", "validation.seq_len=32", "validation.local_batch_size=1"]


def finish(dump, steps, arguments=RUN, **environment):
    """The run goes on to its end; its output."""
    code, out, errors = place.run(dump, [*arguments, f"training.steps={steps}"], **environment)
    place.check(code == 0, f"{dump.name} comes to step {steps}, not exit code {code}", out[-1500:] + errors[-1500:])
    return out + errors


def whole(dump, steps, what):
    """Every step once, in order, and what was cut off lies beside it."""
    shown = [point[0] for point in place.curve(dump)]
    return place.check(shown == list(range(1, steps + 1)), f"{what}: run.jsonl has each of {steps} steps once", str(shown))


# ---- killed ----

def killed(who, **environment):
    """A run of which some processes are killed between two checkpoints, some steps after step 12."""
    dump = place.new_dump()
    process = place.start(dump, [*RUN, *e2e.FOREVER], **environment)
    if not place.check(place.wait_for_step(dump, 12), "the run comes to step 12", place.text(dump, "err")):
        place.close()
    victims = {"one rank": place.ranks(dump)[-1:], "all ranks": place.ranks(dump), "mpirun": [place.mpirun(dump)]}[who]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    code = place.wait(process)
    place.check(code == 1, f"kill -9 of {who}: exit code 1, not {code}", place.text(dump, "err"))
    place.check(place.none_left(dump), f"kill -9 of {who}: no process is left", str(place.processes(dump)))
    return dump


cases = {"one rank": killed("one rank"), "all ranks": killed("all ranks"), "mpirun": killed("mpirun"),
         "all ranks, as threads": killed("all ranks", COMM_MODE="local_tensor")}
N = max(max(place.checkpoints(dump)) for dump in cases.values()) + 8
alone = place.new_dump()
finish(alone, N)
expected = place.curve(alone)
whole(alone, N, "a run left alone")

for what, dump in cases.items():
    saved, before = max(place.checkpoints(dump)), place.curve(dump)
    environment = {"COMM_MODE": "local_tensor"} if "threads" in what else {}
    if what == "one rank":
        shutil.copytree(dump, place.folder / "killed")  # for the other meshes
    text = finish(dump, N, **environment)
    what = f"kill -9 of {what}"
    place.check(before == expected[:len(before)], f"{what}: until then the run was the other")
    whole(dump, N, what)
    place.check(place.curve(dump) == expected, f"{what}: losses, norms, rates and tokens are those of the run left alone, bit for bit")
    place.check(place.difference(dump, alone, N) is None, f"{what}: the last checkpoints are the same files", str(place.difference(dump, alone, N)))
    cut = place.curve(dump, "superseded.jsonl") if (dump / "superseded.jsonl").exists() else []
    place.check(cut == before[saved:], f"{what}: superseded.jsonl has the {len(before) - saved} rows after step {saved}", str(cut))
    record = json.loads((dump / "run.json").read_text())
    firsts = [segment["first_step"] for segment in record["segments"]]
    place.check(firsts == [1, saved + 1] and record["status"] == "finished" and record["last_step"] == N, f"{what}: run.json", str(record))
    place.check(len({row["run"] for row in place.rows(dump)}) == 1, f"{what}: it is one run")
    place.check({row["segment"] for row in place.rows(dump) if row["step"] > saved} == {1}, f"{what}: the new rows are of segment 1")
    place.check(f"training steps {saved + 1} to {N}" in text, f"{what}: the console says where it goes on", text[-1500:])

# ---- on other meshes ----

def close(a, b, tolerance):
    return len(a) == len(b) and all(x[0] == y[0] and x[3:] == y[3:] and all(abs(p - q) <= tolerance * abs(q) for p, q in zip(x[1:3], y[1:3]))
                                    for x, y in zip(a, b))


MESHES = (("dp_shard 2 to one rank", 1, 1, 1), ("dp_shard 2 to dp_replicate 2", 2, 2, 1), ("dp_shard 2 to 2 x 2, as threads", 4, 2, 2))
for what, ranks, replicas, shards in MESHES:
    dump = place.new_dump()
    shutil.copytree(place.folder / "killed", dump)
    finish(dump, N, [*RUN, f"parallelism.data_parallel_replicate_degree={replicas}", f"parallelism.data_parallel_shard_degree={shards}",
                     f"training.global_batch_size={max(2, ranks)}"], NGPU=ranks, COMM_MODE="local_tensor" if ranks == 4 else None)
    whole(dump, N, what)
    if ranks < 4:  # else the batch is another
        place.check(close(place.curve(dump), expected, 1e-5), f"{what}: the curve goes on as on the first mesh", str(place.curve(dump)[-3:]))

# in float64 the way back, from replicas to shards, agrees to 1e-9
DOUBLE = [*RUN, "training.dtype=float64"]
straight, dump = place.new_dump(), place.new_dump()
finish(straight, 12, DOUBLE)
finish(dump, 5, [*DOUBLE, "parallelism.data_parallel_replicate_degree=2", "parallelism.data_parallel_shard_degree=1"])
finish(dump, 12, DOUBLE)
place.check(close(place.curve(dump), place.curve(straight), 1e-9), "dp_replicate 2 to dp_shard 2 in float64: the same curve to 1e-9",
            f"{place.curve(dump)[-3:]}\n{place.curve(straight)[-3:]}")

# ---- stopped, with validation ----
LIFE = [*RUN, *VALIDATED, "validation.freq=1", "checkpoint.interval=1000000"]
dump = place.new_dump()
for life in range(2):
    process = place.start(dump, [*LIFE, *e2e.FOREVER])
    target = 6 if life == 0 else max(place.checkpoints(dump)) + 3
    place.check(place.wait_for_step(dump, target), f"life {life} comes to step {target}", place.text(dump, "err"))
    process.send_signal(signal.SIGUSR1)
    place.check(place.wait(process) == 75, f"life {life} is stopped", place.text(dump, "err"))
steps = max(place.checkpoints(dump)) + 4
finish(dump, steps, LIFE)
straight = place.new_dump()
finish(straight, steps, LIFE)
whole(dump, steps, "stopped twice")
place.check(place.curve(dump) == place.curve(straight), "stopped twice: bit for bit the run left alone")
place.check(place.validation(dump) == place.validation(straight), "stopped twice: the validation's curve is the other's, also at the steps where the "
            "run was stopped", str(set(place.validation(dump)) ^ set(place.validation(straight))))
place.check(place.difference(dump, straight, steps) is None, "stopped twice: the last checkpoints are the same", str(place.difference(dump, straight, steps)))

# rows and validation with two rhythms, over a resume
dump = place.new_dump()
RHYTHMS = [*RUN, *VALIDATED, "metrics.log_freq=5"]
finish(dump, 12, RHYTHMS)
finish(dump, 22, RHYTHMS)
place.check([point[0] for point in place.curve(dump)] == [1, 5, 10, 15, 20], "log_freq 5", str(place.curve(dump)))
place.check([step for step, _ in place.validation(dump)] == [1, 7, 14, 21], "validation.freq 7", str(place.validation(dump)))
tokens = [(row["step"], row["n_tokens_seen"]) for row in place.rows(dump) if "n_tokens_seen" in row]
place.check(tokens == [(step, step * 64) for step, _ in tokens], "tokens seen go on over the resume", str(tokens))

# ---- changed configurations ----
FIXED = (("model.norm_eps=0.001", "null"), ("training.seq_len=16", "32"), ("debug.seed=7", "42"), ("training.dtype=float64", "float32"),
         ("model.ffn_dim=96", "64"))
for option, old in FIXED:
    before = {path: path.read_bytes() for path in (dump / "run.json", dump / "run.jsonl")}
    code, out, errors = place.run(dump, [*RHYTHMS, "training.steps=30", option])
    text = out + errors
    place.check(code == 2, f"{option} on resume: exit code 2, not {code}", text)
    place.check(option in text and f"but the checkpoint has {old}" in text and "step-22" in text, f"{option} on resume: the message has both values and the checkpoint", text)
    place.check(text.count("was made with another configuration") == 1, f"{option} on resume: told once", text)
    place.check(all(path.read_bytes() == content for path, content in before.items()), f"{option} on resume: the run is as it was")
code, out, errors = place.run(dump, [*RHYTHMS, "training.steps=24", "optimizer.lr=0.001", "lr_scheduler.total_steps=900"])
text = out + errors
place.check(code == 0 and all(word in text for word in ("optimizer.lr", "0.0008", "lr_scheduler.total_steps=900", "1000")),
            "a changed learning rate or schedule is allowed, and told with both values", text)
place.check("training.cache_folder" not in text, "options that do not change the curve are not told")

# ---- two runs: one folder holds one, and the death of one is not the other's business ----
runs = [place.new_dump(), place.new_dump()]
processes = [place.start(dump, [*RUN, *e2e.FOREVER]) for dump in runs]
for dump in runs:
    place.check(place.wait_for_step(dump, 7), "two runs beside each other", place.text(dump, "err"))
twice = pathlib.Path(f"{runs[0]}.twice")
with open(twice, "w") as output:
    code = subprocess.run([e2e.PROGRAM, "train", *RUN, "training.steps=5", f"job.dump_folder={runs[0]}"], env=place.environment(NGPU=1),
                          cwd=e2e.ROOT, stdout=output, stderr=output).returncode
text = twice.read_text()
place.check(code == 1 and f"{runs[0]} is in use by a live run (pid " in text, f"a folder in use is refused: exit code 1, not {code}", text)
for pid in [*place.ranks(runs[0]), place.mpirun(runs[0])]:
    os.kill(pid, signal.SIGKILL)
place.wait(processes[0])
seen = place.rows(runs[1])[-1]["step"]
place.check(place.wait_for_step(runs[1], seen + 20), "the other run goes on", place.text(runs[1], "err"))
processes[1].send_signal(signal.SIGTERM)
place.check(place.wait(processes[1]) == 75, "and can be stopped", place.text(runs[1], "err"))
for dump in runs:
    steps = max(place.checkpoints(dump)) + 3
    finish(dump, steps)
    whole(dump, steps, "one of two runs")

# ---- ends that leave something undelivered or half-done ----
# files that cannot grow: sinks fail, the training does not, and its end does not wait for them longer than metrics.close_timeout
dump = place.new_dump()
command = [e2e.PROGRAM, "train", *RUN, "training.steps=100", "checkpoint.enable=false", "metrics.enable_tensorboard=true", "metrics.close_timeout=1",
           f"job.dump_folder={dump}"]
done = subprocess.run(command, env=place.environment(NGPU=1), cwd=e2e.ROOT, capture_output=True, text=True, timeout=60,
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
text = done.stdout + done.stderr
place.check(done.returncode == 0, f"metrics that cannot be written do not end the training: exit code 0, not {done.returncode}", text[-2000:])
place.check(re.search(r"metrics sink jsonl: .*File too large.*training goes on", text), "the sink says why", text[-2000:])
lost = re.search(r"metrics sink jsonl: (\d+) rows not delivered", text)
shown = [point[0] for point in place.curve(dump)]
place.check(lost and shown == list(range(1, 101 - int(lost[1]))), "what is there is whole, and the rest is counted", f"{shown} {lost}")

# a second interrupt: what is there parses, and the run goes on
dump = place.new_dump()
ARGUMENTS = [*RUN, "metrics.enable_tensorboard=true"]
process = place.start(dump, [*ARGUMENTS, *e2e.FOREVER])
place.check(place.wait_for_step(dump, 12), "a run that will be interrupted twice", place.text(dump, "err"))
process.send_signal(signal.SIGINT)
time.sleep(0.25)
process.send_signal(signal.SIGINT)
place.check(place.wait(process) in (1, 75), "interrupted twice", place.text(dump, "err"))
place.check(place.none_left(dump), "interrupted twice: no process is left", str(place.processes(dump)))
lines = (dump / "run.jsonl").read_text().splitlines()
place.check(all("step" in json.loads(line) for line in lines) and place.event_steps(dump), "interrupted twice: the files parse")
verified = subprocess.run([e2e.PROGRAM, "checkpoint", "verify", dump / "checkpoint"], capture_output=True, text=True)
place.check(verified.returncode == 0, "interrupted twice: the checkpoints are whole", verified.stdout + verified.stderr)
saved = max(place.checkpoints(dump))
finish(dump, saved + 3, ARGUMENTS)
whole(dump, saved + 3, "interrupted twice")

place.close()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 240
"""Every command line of the documentation runs, or is refused with exit code 2 and the name of what this build lacks.

Runs are cut short by what is appended: the tiny shapes come after the documented arguments, and the last one given wins.
"""
import pathlib
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
CUT = ["training.seq_len=32", "training.local_batch_size=1", "training.steps=1"]

TRAIN = r"""
./run_train.sh
./run_train.sh --config llama3_debugmodel
./run_train.sh --config configs/llama3_debugmodel.yaml
./run_train.sh --config llama3_debugmodel metrics.enable_tensorboard=true
./run_train.sh --config=llama3_debugmodel_ci
./run_train.sh --debug.seed 42 --debug.deterministic
./run_train.sh --debug.seed=42 debug.deterministic=false
./run_train.sh --debug.deterministic true
./run_train.sh --checkpoint.enable
./run_train.sh --metrics.no-enable-wandb
./run_train.sh --metrics.enable_tensorboard --metrics.save_for_all_ranks
./run_train.sh --metrics.enable_wandb
./run_train.sh --validation.enable --validation.freq 1 --validation.steps 1
./run_train.sh --lr_scheduler.warmup_steps 1 --lr_scheduler.decay_type cosine
./run_train.sh --training.global_batch_size 4
./run_train.sh --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 1
./run_train.sh --parallelism.data_parallel_shard_degree 2 --parallelism.fsdp_reshard_after_forward never
./run_train.sh --parallelism.tensor_parallel_degree 2
./run_train.sh --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule Interleaved1F1B
./run_train.sh --parallelism.context_parallel_degree 2
./run_train.sh --activation_checkpoint.mode full
./run_train.sh --profiling.enable_memory_snapshot --profiling.save_memory_snapshot_folder memory_snapshot
./run_train.sh --profiling.enable_profiling
./run_train.sh --device.kind cuda
NGPU=1 ./run_train.sh --checkpoint.enable --checkpoint.create_seed_checkpoint --parallelism.data_parallel_replicate_degree 1 --parallelism.data_parallel_shard_degree 1 --parallelism.tensor_parallel_degree 1 --parallelism.pipeline_parallel_degree 1 --parallelism.context_parallel_degree 1 --parallelism.expert_parallel_degree 1
NGPU=1 ./run_train.sh
LOG_RANK=0,1 ./run_train.sh
MODULE=llama3 CONFIG=llama3_debugmodel ./run_train.sh
COMM_MODE=fake_backend NGPU=32 ./run_train.sh
COMM_MODE=local_tensor NGPU=4 ./run_train.sh
"""

OTHER = r"""
ctitan --help
ctitan --version
ctitan train --help
ctitan config check --config llama3_debugmodel
ctitan config check --config llama3_8b --training.steps 5
ctitan config print --config llama3_debugmodel training.steps=5
ctitan config docs
ctitan tokenizer --help
ctitan data show --config llama3_debugmodel
ctitan plan --config llama3_8b --world 8
ctitan doctor
ctitan sample --config llama3_debugmodel
ctitan runs
ctitan dashboard --port 8080
ctitan replay outputs
ctitan checkpoint inspect outputs
ctitan checkpoint verify outputs
ctitan checkpoint verify outputs/checkpoint
ctitan checkpoint verify outputs/checkpoint/step-1
ctitan checkpoint convert outputs/checkpoint/step-1
"""


def refused(code, text):
    return code == 2 and any(words in text for words in ("not built yet", "this build lacks", "not in this build", "device.kind=cuda: "))


def words(line):
    """(environment, arguments) of a shell line."""
    parts = shlex.split(line)
    environment = dict(part.split("=", 1) for part in parts[:next(i for i, p in enumerate(parts) if "=" not in p)])
    return environment, parts[len(environment):]


for line in TRAIN.strip().splitlines():
    environment, arguments = words(line)
    dump = place.new_dump()
    code, out, errors = place.run(dump, arguments[1:] + CUT, **environment)
    text = out + errors
    place.check(code == 0 or refused(code, text), f"`{line}` runs or is refused by name, not exit code {code}", text[-2000:])
    if "create_seed_checkpoint" in line:
        place.check(set(place.checkpoints(dump)) == {0} and not place.rows(dump), "a seed checkpoint is step-0, without a step", text[-2000:])
        code, out, errors = place.run(place.new_dump(), [*CUT, "--checkpoint.enable", f"checkpoint.initial_load_path={dump}/checkpoint/step-0"])
        place.check(code == 0, f"two ranks begin from the seed checkpoint, not exit code {code}", out + errors)

# where a run has left its default dump folder; it is no clone, so names of configurations are found beside the program
code, out, errors = place.run(place.folder / "outputs", ["--config", "llama3_debugmodel", *CUT, "--checkpoint.enable"])
place.check(code == 0, f"a run makes outputs, not exit code {code}", out + errors)
for line in OTHER.strip().splitlines():
    done = subprocess.run([e2e.PROGRAM, *shlex.split(line)[1:]], env=place.environment(), capture_output=True, text=True, cwd=place.folder)
    place.check(done.returncode == 0 or refused(done.returncode, done.stderr), f"`{line}` runs or is refused by name, not exit code "
                f"{done.returncode}", done.stderr[-2000:])

# the same, when the training commands of the README are read from it
fences, done_before = False, set(TRAIN.strip().splitlines())
for line in (e2e.ROOT / "README.md").read_text().splitlines() if (e2e.ROOT / "README.md").exists() else []:
    fences = not fences if line.startswith("```") else fences
    command = line.split("#")[0].strip()
    if fences and command.startswith("./ctitan "):
        done = subprocess.run([e2e.PROGRAM, *shlex.split(command)[1:]], env=place.environment(), capture_output=True, text=True, cwd=place.folder)
        place.check(done.returncode == 0, f"README: `{command}`, not exit code {done.returncode}", done.stderr[-2000:])
    if fences and "./run_train.sh" in command:
        environment, arguments = words(command)
        if arguments[:1] == ["./run_train.sh"] and "HOSTFILE" not in environment and command not in done_before:
            code, out, errors = place.run(place.new_dump(), arguments[1:] + CUT, **environment)
            place.check(code == 0 or refused(code, out + errors), f"README: `{line}`, not exit code {code}", (out + errors)[-2000:])

place.close()

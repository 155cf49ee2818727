#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 240
"""Every option of the section checkpoint has the effect that its help tells, with the real trainer; damage, a full disk and a slow rank leave
what was saved before as it was, and say what happened."""
import os
import pathlib
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
RUN = [*e2e.SMALL, "checkpoint.interval=4"]
STRAIGHT = 16


def train(dump, *arguments, wanted=0, **environment):
    """run_train.sh with one rank, a checkpoint every 4 steps; its output."""
    code, out, errors = place.run(dump, [*RUN, *arguments], **{"NGPU": 1, **environment})
    place.check(code == wanted, f"{dump.name} {' '.join(arguments)}: exit code {wanted}, not {code}", out[-1500:] + errors[-1500:])
    return out + errors


def copy(dump):
    new = place.new_dump()
    shutil.copytree(dump, new)
    return new


def steps(dump):
    return sorted(place.checkpoints(dump))


def shown(dump):
    return [point[0] for point in place.curve(dump)]


def kinds(dump, step):
    return {path.name.split(".")[1] for path in place.checkpoints(dump)[step].glob("*.safetensors")}


def is_expected(holds, what, dump):
    return place.check(holds, what, f"checkpoints {steps(dump)}, steps {shown(dump)}\n{place.text(dump, 'out')[-1000:]}{place.text(dump, 'err')[-1000:]}")


straight, base = place.new_dump(), place.new_dump()
train(straight, f"training.steps={STRAIGHT}")
train(base, "training.steps=12")
expected, by_step = place.curve(straight), {point[0]: point for point in place.curve(straight)}

# ---- when: interval, the last step, the first step, enable; how many: keep_latest_k; where: folder ----
is_expected(steps(base) == [4, 8, 12] and kinds(base, 8) == {"parameters", "optimizer"}, "interval 4: checkpoints 4, 8, 12", base)
for option, saved in (("training.steps=6", [4, 6]), ("checkpoint.interval=5", [5, 10, 12]), ("checkpoint.enable_first_step_checkpoint=true", [1, 4, 8, 12]),
                      ("checkpoint.keep_latest_k=2", [8, 12]), ("checkpoint.keep_latest_k=1", [12])):
    dump = place.new_dump()
    train(dump, "training.steps=12", option)
    is_expected(steps(dump) == saved, f"{option}: checkpoints {saved}", dump)
dump = place.new_dump()
train(dump, "training.steps=4", "checkpoint.enable=false")
is_expected(steps(dump) == [] and not (dump / "checkpoint").exists(), "checkpoint.enable=false saves nothing", dump)
train(dump, "training.steps=4", "checkpoint.enable=false")
is_expected(shown(dump) == [1, 2, 3, 4] and len(list((dump / "runs").iterdir())) == 1, "a second start without checkpoints is a new run", dump)
dump = place.new_dump()
train(dump, "training.steps=4", "checkpoint.folder=elsewhere")
train(dump, "training.steps=5", "checkpoint.folder=elsewhere")
is_expected((dump / "elsewhere/step-5").is_dir() and not (dump / "checkpoint").exists() and shown(dump) == [1, 2, 3, 4, 5],
            "checkpoint.folder is where they go and come from", dump)

# ---- a run that is done: again, and extended ----
dump = copy(base)
text = train(dump, "training.steps=12")
is_expected("has done its 12 steps" in text and shown(dump) == list(range(1, 13)), "a run that is done has nothing more to do", dump)
train(dump, f"training.steps={STRAIGHT}")
is_expected(place.curve(dump) == expected and place.difference(dump, straight, STRAIGHT) is None, "extended by training.steps: bit for bit", dump)

# ---- load_step: back to an earlier one; what came after it is given up, at once ----
dump = copy(base)
text = train(dump, "training.steps=10", "checkpoint.load_step=4", "checkpoint.interval=100")
is_expected(steps(dump) == [4, 10] and sorted(p.name for p in (dump / "checkpoint/superseded").iterdir()) == ["step-12", "step-8"],
            "load_step 4: later checkpoints are superseded", dump)
is_expected(place.curve(dump) == expected[:10] and place.curve(dump, "superseded.jsonl") == expected[4:12], "load_step 4: the curve goes on from there", dump)
train(dump, f"training.steps={STRAIGHT}")
is_expected(place.curve(dump) == expected and place.difference(dump, straight, STRAIGHT) is None, "load_step 4, and on without it", dump)
dump = copy(base)
slow = ["training.global_batch_size=1000"]  # steps that a kill can hit
process = place.start(dump, [*RUN, "checkpoint.load_step=4", "checkpoint.interval=1000000", *e2e.FOREVER, *slow], NGPU=1)
while not any(row["segment"] == 1 and row["step"] >= 6 for row in place.rows(dump)) and process.poll() is None:
    time.sleep(0.01)
for pid in place.ranks(dump):
    os.kill(pid, signal.SIGKILL)
place.check(place.wait(process) == 1 and max(shown(dump)) < 12, "load_step 4, killed before the former steps were reached", str(shown(dump)))
train(dump, f"training.steps={STRAIGHT}")
is_expected(shown(dump) == list(range(1, STRAIGHT + 1)), "load_step 4, killed, on without it: no gap", dump)
dump = copy(base)
text = train(dump, "checkpoint.load_step=5", "training.steps=20", wanted=1)
is_expected("no step-5" in text and "4, 8, 12" in text and shown(dump) == list(range(1, 13)), "a load_step that is not there is refused, with what is", dump)
dump = place.new_dump()
text = train(dump, "checkpoint.load_step=4", wanted=1)
place.check("checkpoint.load_step=4" in text and not steps(dump), "load_step where there is no run is refused", text)

# ---- exclude_from_loading: each part of the state ----
def first_after(exclusion, *arguments):
    """(first new row, state of the checkpoint after two steps) of a run that resumes from step 12 without the part."""
    dump = copy(base)
    text = train(dump, "training.steps=14", f"checkpoint.exclude_from_loading={exclusion}", *arguments)
    place.check(f"not loaded: {exclusion.replace(',', ', ')}" in text and shown(dump)[12:] == [13, 14], f"without {exclusion}: said, and steps 13, 14", text)
    return dump, place.curve(dump)[12], place.manifest(dump, 14)["state"]


def state_of(**changed):
    state = dict(place.manifest(straight, 16)["state"])
    state.update({"step": 14, "tokens_seen": 14 * 64, "sample": 28, "optimizer_step": 14, "schedule_step": 14, **changed})
    return state


dump, row, state = first_after("optimizer")
place.check(row == by_step[13] and place.curve(dump)[13] != by_step[14] and state == state_of(optimizer_step=2),
            "without optimizer: the same gradient at step 13, another update", f"{row} {state}")
dump, row, state = first_after("lr_scheduler")
place.check(row[3] == by_step[1][3] != by_step[13][3] and row[1:3] == by_step[13][1:3] and state == state_of(schedule_step=2),
            "without lr_scheduler: the rate begins its warm-up anew", f"{row} {state}")
dump, row, state = first_after("dataloader")
place.check(row[1] != by_step[13][1] and row[3:] == by_step[13][3:] and state == state_of(sample=4), "without dataloader: the text begins anew",
            f"{row} {state}")
dump, row, state = first_after("train_state")
place.check(row[:4] == by_step[13][:4] and row[4] == 64 and state == state_of(tokens_seen=2 * 64), "without train_state: tokens are counted anew",
            f"{row} {state}")
dump, anew, state = first_after("optimizer,lr_scheduler,dataloader,train_state")
dump, row, state = first_after("dataloader", "training.seq_len=16")
place.check(row[4] == by_step[12][4] + 32, "without dataloader options of the data may change", f"{row} {state}")
text = train(copy(base), "checkpoint.exclude_from_loading=optimiser", wanted=2)
place.check("optimizer, lr_scheduler, dataloader, train_state" in text, "an unknown part is refused with the known ones", text)

# ---- initial_load_path: another run's parameters, or all its state ----
for path in (base / "checkpoint/step-12", base / "checkpoint"):
    dump = place.new_dump()
    train(dump, "training.steps=2", f"checkpoint.initial_load_path={path}")
    is_expected(shown(dump) == [1, 2] and place.curve(dump)[0][1:] == anew[1:], f"initial_load_path={path.name}: a new run with its parameters", dump)
train(dump, "training.steps=3", "checkpoint.initial_load_path=/nowhere")
is_expected(shown(dump) == [1, 2, 3] and len({row["run"] for row in place.rows(dump)}) == 1, "a run that has checkpoints goes on from those", dump)
dump = place.new_dump()
train(dump, f"training.steps={STRAIGHT}", f"checkpoint.initial_load_path={base}/checkpoint/step-12", "checkpoint.initial_load_model_only=false")
is_expected(place.curve(dump) == expected[12:] and place.difference(dump, straight, STRAIGHT) is None, "initial_load_model_only=false: its state too", dump)
place.check('"first_step":13' in (dump / "run.json").read_text(), "and run.json says that it begins with step 13", (dump / "run.json").read_text())
text = train(place.new_dump(), "checkpoint.initial_load_path=/nowhere", wanted=1)
place.check("/nowhere" in text, "an initial_load_path that is not there is refused", text)
text = train(place.new_dump(), f"checkpoint.initial_load_path={base}/checkpoint", "model.dim=64", wanted=2)
place.check("with another shape" in text and text.count("does not fit this model") == 1, "parameters that do not fit are refused, once", text)
text = train(place.new_dump(), f"checkpoint.initial_load_path={base}/checkpoint", "model.n_heads=4", "training.steps=1")
place.check("model.n_heads=4" in text and "but the checkpoint has 2" in text, "the same shapes with another meaning are told", text)
dump = copy(base)
train(dump, "training.steps=1", "checkpoint.enable=false")  # another run, beside the first one's checkpoints
text = train(dump, f"checkpoint.initial_load_path={dump}/checkpoint/step-8", wanted=2)
is_expected("checkpoint.initial_load_path" in text and steps(dump) == [4, 8, 12], "a new run does not move away what it is to load", dump)

# ---- load_only, last_save_model_only ----
dump = copy(base)
train(dump, f"training.steps={STRAIGHT}", "checkpoint.load_only=true")
is_expected(steps(dump) == [4, 8, 12] and place.curve(dump) == expected, "load_only: loads and never saves", dump)
text = train(dump, "training.steps=10", "checkpoint.load_only=true", "checkpoint.load_step=4", wanted=2)
is_expected("initial_load_path" in text and shown(dump) == list(range(1, STRAIGHT + 1)), "load_only with an earlier load_step: refused, with another way", dump)
train(dump, f"training.steps={STRAIGHT}")
is_expected(place.curve(dump) == expected and place.difference(dump, straight, STRAIGHT) is None, "after load_only the run goes on", dump)
dump = place.new_dump()
for _ in range(2):
    train(dump, "training.steps=6", "checkpoint.last_save_model_only=true")
    is_expected(steps(dump) == [4, 6] and kinds(dump, 6) == {"parameters"} and kinds(dump, 4) == {"parameters", "optimizer"},
                "last_save_model_only: the last has no optimizer, and the same command again is done", dump)
text = train(dump, "training.steps=8", wanted=2)
place.check("step-6 holds the model only" in text and "exclude_from_loading=optimizer" in text, "it cannot be extended, and how it can", text)
train(dump, "training.steps=8", "checkpoint.exclude_from_loading=optimizer")

# ---- what this build lacks is refused ----
for option in ("checkpoint.initial_load_in_hf=true", "checkpoint.initial_load_in_hf_quantized=true", "checkpoint.last_save_in_hf=true",
               "checkpoint.export_dtype=bfloat16", "checkpoint.async_mode=async"):
    text = train(place.new_dump(), option, wanted=2)
    place.check(option.split("=")[0] in text and "lacks" in text, f"{option} is refused by name", text)

# ---- create_seed_checkpoint ----
SEED = ["checkpoint.create_seed_checkpoint=true", "parallelism.data_parallel_shard_degree=1"]
seed = place.new_dump()
text = train(seed, *SEED)
is_expected(steps(seed) == [0] and kinds(seed, 0) == {"parameters"} and shown(seed) == [], "a seed is step 0, and nothing is trained", seed)
text = train(place.new_dump(), *SEED, wanted=2, NGPU=2)
place.check("NGPU=1" in text, "a seed is one rank's work", text)
dump = copy(seed)
train(dump, f"training.steps={STRAIGHT}")
is_expected(place.curve(dump) == expected and place.difference(dump, straight, STRAIGHT) is None, "from its seed a run is bit for bit the one without", dump)
text = train(dump, *SEED, wanted=2)
is_expected(steps(dump)[0] == 0 and len(steps(dump)) == 5 and "another job.dump_folder" in text, "no seed in the place of a run that has begun", dump)
for what, ranks, replicas in (("dp_shard 2", 2, 1), ("dp_replicate 2", 2, 2), ("dp_replicate 2 x dp_shard 2, as threads", 4, 2)):
    dump = copy(seed)
    train(dump, "training.steps=3", f"parallelism.data_parallel_replicate_degree={replicas}", "training.global_batch_size=4", "debug.seed=7",
          NGPU=ranks, COMM_MODE="local_tensor" if ranks == 4 else None)
    losses = [point[1] for point in place.curve(dump)]
    if ranks == 2 and replicas == 1:
        first = losses
    place.check(len(losses) == 3 and all(abs(a - b) < 1e-5 * b for a, b in zip(losses, first)), f"{what} starts from the seed, also in another order of "
                "the data", f"{losses} {first}")
dump = copy(seed)
train(dump, *SEED, "debug.seed=7")
is_expected(steps(dump) == [0] and len(list((dump / "runs").glob("*/checkpoint/step-0"))) == 1, "a second seed sets the first one aside", dump)
place.check(place.difference(dump, seed, 0) is not None, "the seed of another debug.seed has other parameters")

# ---- the text changed behind the options ----
corpus = place.folder / "corpus.txt"
corpus.write_text("a line of text to learn from\n" * 200)
TEXT = [f"training.dataset={corpus}", "training.dataset_exclude="]
dump = place.new_dump()
train(dump, "training.steps=4", *TEXT)
corpus.write_text("".join(f"another text of another length, {n * n} lines of it\n" for n in range(2000)))
text = train(dump, "training.steps=8", *TEXT, wanted=2)
place.check("the text that training.dataset names has changed" in text, "a changed text is no continuation", text)
train(dump, "training.steps=8", *TEXT, "checkpoint.exclude_from_loading=dataloader")
text = train(dump, "training.steps=9", *TEXT, "training.tokenizer=auto", "training.tokenizer_vocab_size=300", "checkpoint.exclude_from_loading=dataloader")
place.check("is another tokenizer than the checkpoint's" in text, "another tokenizer is told", text)

# ---- a text of some samples: a run goes on in the middle of an epoch as without the stop ----
corpus.write_text("".join(f"{n} is {n * 37 % 101}\n" for n in range(20)))  # 7 samples: an epoch ends within the 4th step
dump, other = place.new_dump(), place.new_dump()
train(other, "training.steps=12", *TEXT)
for last in (2, 5, 9, 12):
    train(dump, f"training.steps={last}", *TEXT)
is_expected(place.curve(dump) == place.curve(other) and place.difference(dump, other, 12) is None, "stopped in several epochs: bit for bit", dump)
place.check(place.manifest(dump, 12)["state"]["epoch"] >= 2, "there were several epochs", str(place.manifest(dump, 12)["state"]))

# ---- damage ----
def damaged(what, spoil, wanted, words, resumed_from, *arguments):
    dump = copy(base)
    spoil(dump / "checkpoint")
    text = train(dump, f"training.steps={STRAIGHT}", *arguments, wanted=wanted)
    is_expected(all(word in text for word in words), f"{what}: the message has {words}", dump)
    if wanted == 0:
        place.check(f"training steps {resumed_from + 1} to" in text, f"{what}: it goes on from step {resumed_from}", text)
        is_expected(place.curve(dump) == expected and place.difference(dump, straight, STRAIGHT) is None, f"{what}: bit for bit", dump)
    return dump


def flip(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


SHARD = "step-12/rank_00000_of_00001.parameters.safetensors"
dump = damaged("a flipped bit in a shard", lambda folder: flip(folder / SHARD), 1, [SHARD, "damaged", "checkpoint.load_step"], 0)
train(dump, f"training.steps={STRAIGHT}", "checkpoint.load_step=8")
is_expected(place.curve(dump) == expected, "the way that the message names works", dump)
damaged("a shard cut short", lambda folder: os.truncate(folder / SHARD, 1000), 0, [SHARD, "has 1000 bytes"], 8)
damaged("a shard that is gone", lambda folder: (folder / SHARD).unlink(), 0, [SHARD, "is missing"], 8)
damaged("a manifest cut short", lambda folder: os.truncate(folder / "step-12/manifest.json", 500), 0, ["step-12/manifest.json is damaged"], 8)
damaged("a manifest that is gone", lambda folder: (folder / "step-12/manifest.json").unlink(), 0, ["step-12/manifest.json"], 8)
# what is no file must not be waited for
damaged("a manifest that is a pipe", lambda folder: ((folder / "step-12/manifest.json").unlink(), os.mkfifo(folder / "step-12/manifest.json")),
        0, ["step-12/manifest.json is a pipe"], 8)
damaged("a manifest of terabytes", lambda folder: os.truncate(folder / "step-12/manifest.json", 1 << 40), 0, ["step-12/manifest.json has"], 8)
dump = copy(base)
(dump / "run.jsonl").unlink()
os.mkfifo(dump / "run.jsonl")
text = train(dump, f"training.steps={STRAIGHT}", wanted=1)
place.check("run.jsonl is a pipe" in text, "run.jsonl is a pipe: the message says so", text)
# a folder of checkpoints that cannot be is told before the first step, not after the last
dump = place.new_dump()
dump.mkdir()
(dump / "checkpoint").write_text("")
is_expected("checkpoint.folder" in train(dump, "training.steps=4", wanted=1) and not place.rows(dump), "nothing is trained", dump)
damaged("a renamed checkpoint", lambda folder: (folder / "step-12").rename(folder / "step-99"), 0, ["step-99", "was the folder renamed?"], 8)


def half_written(folder):
    shutil.copytree(folder / "step-12", folder / "step-16.tmp-abcd1234")
    run = next(row["run"] for row in place.rows(folder.parent))
    (folder / "step-12").rename(folder / f"step-12.tmp-{run}")


dump = damaged("a checkpoint that was being written", half_written, 0, [], 8)
place.check(sorted(path.name for path in (dump / "checkpoint").glob("*.tmp-*")) == ["step-16.tmp-abcd1234"], "it is removed, but not another run's")
for step in (4, 8, 12):
    flip(base / f"checkpoint/step-{step}/manifest.json")
text = train(base, "training.steps=13", wanted=1)
place.check("holds no checkpoint that can be loaded" in text and shown(base) == list(range(1, 13)), "nothing but damage is no reason to begin anew", text)

# ---- a run that has gone wrong: its checkpoints never push out the last good one ----
dump = place.new_dump()
train(dump, "training.steps=4")
train(dump, "training.steps=40", "optimizer.lr=1e6", "checkpoint.keep_latest_k=2")
healthy = [step for step in steps(dump) if place.manifest(dump, step)["state"]["healthy"]]
is_expected(steps(dump)[-2:] == [36, 40] and len(steps(dump)) == 3 and healthy == steps(dump)[:1], "the last healthy checkpoint stays beside keep_latest_k=2", dump)
text = train(dump, "training.steps=44")
place.check(f"training steps {healthy[0] + 1} to" in text and "not finite" in text, "the run goes on from there, and says why", text)
is_expected(shown(dump) == list(range(1, 45)), "its curve is whole", dump)

# ---- a full disk ----
def full(dump, limit, steps_wanted, *arguments):
    """A run under a limit of the size of files, which fails as a full disk does."""
    command = [e2e.PROGRAM, "train", *RUN, *arguments, f"training.steps={steps_wanted}", f"job.dump_folder={dump}"]
    return subprocess.run(command, env=place.environment(NGPU=1), cwd=e2e.ROOT, capture_output=True, text=True, timeout=60,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))


dump = place.new_dump()
train(dump, "training.steps=4")
done = full(dump, 100_000, 11)
text = done.stdout + done.stderr
place.check(done.returncode == 1 and "no checkpoint of step 8: " in text and "File too large" in text and "training goes on" in text,
            f"files that cannot be written: said, and training goes on; exit code 1, not {done.returncode}", text[-2000:])
is_expected(steps(dump) == [4] and shown(dump) == list(range(1, 12)), "the former checkpoint is there, and the curve", dump)
place.check("done after step 11, but its checkpoint cannot be saved" in text, "the last one counts", text[-2000:])
place.check(not list((dump / "checkpoint").glob("*.tmp-*")), "nothing half-written is left")
train(dump, f"training.steps={STRAIGHT}")
is_expected(place.curve(dump) == expected and place.difference(dump, straight, STRAIGHT) is None, "with room again: from step 4, bit for bit", dump)

disk = place.new_dump()
disk.mkdir()
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode == 0:
    try:
        code, out, errors = place.run(disk, [*RUN, "training.steps=14"])
        saved, left = steps(disk), list((disk / "checkpoint").glob("*.tmp-*"))
        verified = subprocess.run([e2e.PROGRAM, "checkpoint", "verify", disk / "checkpoint"], capture_output=True, text=True)
    finally:
        subprocess.run(["umount", "-l", disk])
    place.check(code == 1 and "No space left on device" in out, f"a full disk: exit code 1, not {code}, and the reason", out[-1500:] + errors[-1500:])
    place.check(saved and saved == list(range(4, 4 * len(saved) + 1, 4)) and verified.returncode == 0 and not left,
                f"a full disk: checkpoints {saved} are whole, {left} is not left", verified.stdout + verified.stderr)
    place.check((out + errors).count("done after step 14, but") == 1, "a full disk: the end is told once", out + errors)

# ---- a rank that takes long to save is waited for ----
dump = place.new_dump()
process = place.start(dump, [*RUN, "checkpoint.interval=2", "comm.train_timeout_seconds=1", *e2e.FOREVER])
is_held = False
for _ in range(2000):
    ranks = place.ranks(dump)
    if len(ranks) == 2 and list((dump / "checkpoint").glob("*.tmp-*")):
        os.kill(ranks[0], signal.SIGSTOP)
        is_held = bool(list((dump / "checkpoint").glob("*.tmp-*")))  # it is rank 0 that gives it its name
        if is_held:
            break
        os.kill(ranks[0], signal.SIGCONT)
    time.sleep(0.001)
place.check(is_held, "rank 0 is stopped while it saves")
time.sleep(2.5)
os.kill(ranks[0], signal.SIGCONT)
reached = max(place.checkpoints(dump), default=0) + 4
place.check(place.wait_for_checkpoint(dump, reached), "after it a run goes on", place.text(dump, "out")[-1000:] + place.text(dump, "err")[-1000:])
process.send_signal(signal.SIGTERM)
place.check(place.wait(process) == 75, "and can be stopped", place.text(dump, "err"))

place.close()

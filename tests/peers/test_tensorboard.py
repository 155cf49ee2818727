#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 300
"""TensorBoard's two readers return every key at every logged step, and a resumed run's curve goes on without a zig-zag in both.

usage: test_tensorboard.py [DUMP_FOLDER]      a folder: checks that run; none: one made of two lives by write_run, then trainings: one
                                              rank killed between two checkpoints and resumed; two ranks of which one is killed, then
                                              stopped, resumed both times, with rows and validation in two rhythms; stopped where a
                                              validation was due; with files of each rank

What run.jsonl says is the truth; event files hold it in float32. CTITAN_PEERS_PYTHON (else python3) must have tensorboard; without
it the test is skipped.
"""
import contextlib
import json
import math
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PYTHON = os.environ.get("CTITAN_PEERS_PYTHON", "python3")
BUILD = os.environ.get("BUILD", "build/release")
HEAD = {"run", "segment", "step", "wall_s", "tags", "tag", "text"}  # of a line of run.jsonl; the rest are metrics


def float32(value):
    value = float(value)  # "NaN", "Infinity", "-Infinity" too
    if math.isfinite(value):
        limit = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
        value = struct.unpack("<f", struct.pack("<f", max(-limit, min(limit, value))))[0]
    return value


def expected(dump_folder):
    """{tag: [(step, value)]} of run.jsonl."""
    series = {}
    for line in (dump_folder / "run.jsonl").read_text().splitlines():
        row = json.loads(line)
        for tag, value in row.items():
            if tag not in HEAD:
                series.setdefault(tag, []).append((row["step"], float32(value)))
    return series


def same(a, b):
    return len(a) == len(b) and all(s == t and (v == w or (math.isnan(v) and math.isnan(w))) for (s, v), (t, w) in zip(a, b))


class Board:
    def __init__(self, url):
        self.url = url

    def get(self, path, body=None, **query):
        request = urllib.request.Request(f"{self.url}{path}?{urllib.parse.urlencode(query)}", data=body,
                                         headers={"Content-Type": "application/json"} if body else {})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def series(self, run, tag):
        return [(step, float32(value)) for _, step, value in self.get("data/plugin/scalars/scalars", run=run, tag=tag)]


def has_data_server(pid):
    """Is the fast reader at work? It is a child process."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == pid and b"tensorboard_data_server" in (entry / "cmdline").read_bytes():
                return True
    return False


@contextlib.contextmanager
def board(folder, fast):
    command = [PYTHON, "-m", "tensorboard.main", "--logdir", str(folder), f"--load_fast={'true' if fast else 'false'}", "--host", "127.0.0.1",
               "--port", "0", "--samples_per_plugin", "scalars=1000000", "--reload_interval", "1"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            deadline, url = time.monotonic() + 60, None
            while not url:
                log.seek(0)
                text = log.read()
                found = re.search(r"http://127\.0\.0\.1:\d+/", text)
                url = found and found[0]
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"tensorboard did not start:\n{text[-2000:]}")
                time.sleep(0.1)
            yield Board(url), process.pid
        finally:
            process.terminate()
            process.wait(20)


def check_reader(tb_folder, run, want, fast):
    name = "fast reader" if fast else "python reader"
    with board(tb_folder, fast) as (b, pid):
        deadline, wrong = time.monotonic() + 60, None
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # 404 until the run is read
                wrong = [tag for tag, series in want.items() if not same(b.series(run, tag), series)]
                if not wrong:
                    break
            time.sleep(0.3)
        if wrong is None or wrong:
            tag = wrong[0] if wrong else "any"
            got = b.series(run, tag) if wrong else []
            raise SystemExit(f"{name}: {tag}: got {got[:60]}, want {want.get(tag, [])[:60]}")
        tags = set(b.get("data/plugin/scalars/tags")[run])
        if tags != set(want):
            raise SystemExit(f"{name}: unexpected tags {sorted(tags ^ set(want))}")
        for tag in want:
            steps = [step for step, _ in b.series(run, tag)]
            if steps != sorted(set(steps)):
                raise SystemExit(f"{name}: {tag}: the steps go back: {steps}")
        if fast != has_data_server(pid):
            raise SystemExit(f"{name}: the data server is {'not ' if fast else ''}running: the other reader was tested")
        texts = b.get("data/plugin/text/text", run=run, tag="config/text_summary")
        if not texts or "training:" not in texts[0]["text"]:
            raise SystemExit(f"{name}: the configuration is not in the text tab: {texts}")
        check_hparams(b, name, run)
    print(f"{name}: {len(want)} keys, {sum(len(s) for s in want.values())} points")


def check_hparams(b, name, run):
    body = json.dumps({"startIndex": 0, "sliceSize": 10, "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE",
                       "STATUS_RUNNING"], "colParams": []}).encode()
    groups = b.get("data/plugin/hparams/session_groups", body=body).get("sessionGroups", [])
    if len(groups) != 1 or "optimizer.lr" not in groups[0]["hparams"] or groups[0]["sessions"][0]["name"] != run:
        raise SystemExit(f"{name}: hyperparameters: {json.dumps(groups)[:1000]}")


def check(dump_folder):
    folders = sorted((dump_folder / "tb").iterdir())
    if len(folders) != 1:
        raise SystemExit(f"{len(folders)} folders in {dump_folder}/tb: a run has one")
    want = expected(dump_folder)
    for fast in (True, False):
        check_reader(dump_folder / "tb", folders[0].name, want, fast)


def written_by_sinks(dump):
    program = ROOT / BUILD / "tests/peers/write_run"
    subprocess.run(["make", "-s", str(program.relative_to(ROOT))], cwd=ROOT, check=True)
    for first, last in ((1, 40), (21, 60)):  # stopped at 40, resumed from a checkpoint at 20
        subprocess.run([program, dump, str(first), str(last)], check=True)
    check(dump)
    steps = [json.loads(line)["step"] for line in (dump / "superseded.jsonl").read_text().splitlines()]
    if steps != sorted(list(range(21, 41)) + [21, 28, 35]):
        raise SystemExit(f"superseded.jsonl holds {steps}")


def last_step(dump):
    with contextlib.suppress(OSError, ValueError, IndexError):
        return json.loads((dump / "run.jsonl").read_text().splitlines()[-1])["step"]
    return 0


def trained_and_killed(dump):
    steps, killed_at = 30, 10
    command = [ROOT / BUILD / "ctitan", "train", "--config", "llama3_debugmodel_ci", "training.local_batch_size=1", "training.global_batch_size=1",
               "training.seq_len=64", f"training.steps={steps}", "metrics.log_freq=1", "metrics.enable_tensorboard=true",
               "checkpoint.enable=true", "checkpoint.interval=4", "validation.enable=true", "validation.freq=7", "validation.steps=1",
               f"job.dump_folder={dump}"]
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while last_step(dump) < killed_at and first.poll() is None:
        time.sleep(0.01)
    if first.poll() is not None:
        raise SystemExit(f"the training ended with {first.returncode} before it could be killed")
    first.kill()
    first.wait()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the resumed training ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    series = expected(dump)["loss_metrics/global_avg_loss"]
    if [step for step, _ in series] != list(range(1, steps + 1)):
        raise SystemExit(f"run.jsonl holds the steps {[step for step, _ in series]}")
    if len(list((dump / "tb").glob("*/events*"))) != 2:
        raise SystemExit("the resumed run did not open a file of its own beside the first")
    check(dump)


def trained_in_lives(place, rhythm, endings, *more):
    """A job of two ranks; each life but the last is ended at some step by a kill of one rank or by a request to stop."""
    dump = place.new_dump()
    arguments = [*e2e.SMALL, "metrics.enable_tensorboard=true", "checkpoint.interval=6", "validation.enable=true", "validation.steps=1",
                 "validation.seq_len=32", "validation.local_batch_size=1", *rhythm, *more]
    for ending in endings:
        process = place.start(dump, [*arguments, *e2e.FOREVER])
        if not place.wait_for_step(dump, max(place.checkpoints(dump), default=0) + 15):
            raise SystemExit(f"no step:\n{place.text(dump, 'out')[-2000:]}{place.text(dump, 'err')[-2000:]}")
        if ending == "kill":
            os.kill(place.ranks(dump)[1], signal.SIGKILL)
        else:
            process.send_signal(signal.SIGUSR1)
        code = place.wait(process)
        if code != {"kill": 1, "stop": 75}[ending]:
            raise SystemExit(f"a life ended by {ending} left {code}:\n{place.text(dump, 'err')[-2000:]}")
    steps = max(place.checkpoints(dump)) + 11
    code, out, errors = place.run(dump, [*arguments, f"training.steps={steps}"])
    if code:
        raise SystemExit(f"the last life ended with {code}:\n{out[-2000:]}{errors[-2000:]}")
    log_freq, freq = (int(option.split("=")[1]) for option in rhythm)
    for tag, every in (("loss_metrics/global_avg_loss", log_freq), ("validation_metrics/loss", freq)):
        got, want = [step for step, _ in expected(dump)[tag]], sorted({1, *range(every, steps + 1, every)})
        if got != want:
            raise SystemExit(f"{endings}: run.jsonl has {tag} at {got}, not at {want}")
    return dump


def check_each_rank(dump, n_ranks):
    """metrics.save_for_all_ranks: each rank has files of its own, whose global figures are the run's."""
    folder, want = next((dump / "tb").iterdir()), expected(dump)
    runs = {f"{folder.name}/rank_{rank}" for rank in range(n_ranks)}
    for fast in (True, False):
        with board(dump / "tb", fast) as (b, _):
            deadline, wrong = time.monotonic() + 60, True
            while wrong and time.monotonic() < deadline:
                time.sleep(0.3)
                with contextlib.suppress(OSError):
                    found = set(b.get("data/plugin/scalars/tags"))
                    wrong = {(run, tag) for run in runs for tag in ("loss_metrics/global_avg_loss", "n_tokens_seen", "validation_metrics/loss")
                             if not same(b.series(run, tag), want[tag])} or found ^ runs
            if wrong:
                raise SystemExit(f"files of each rank: {wrong} is not as in run.jsonl")
    print(f"files of {n_ranks} ranks: as in run.jsonl")


def main():
    if subprocess.run([PYTHON, "-c", "import tensorboard"], capture_output=True).returncode:
        print(f"{PYTHON} has no tensorboard (CTITAN_PEERS_PYTHON names another python)")
        sys.exit(77)
    if len(sys.argv) > 1:
        return check(pathlib.Path(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="ctitan-peers.") as name:
        written_by_sinks(pathlib.Path(name) / "sinks")
        trained_and_killed(pathlib.Path(name) / "training")
    place = e2e.Place()
    try:
        check(trained_in_lives(place, ["metrics.log_freq=5", "validation.freq=7"], ["kill", "stop"]))
        check(trained_in_lives(place, ["metrics.log_freq=1", "validation.freq=1"], ["stop"]))
        check_each_rank(trained_in_lives(place, ["metrics.log_freq=5", "validation.freq=7"], ["kill"], "metrics.save_for_all_ranks=true"), 2)
    finally:
        place.remove()


if __name__ == "__main__":
    main()

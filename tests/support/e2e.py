# SPDX-License-Identifier: MIT
"""What the end-to-end scripts share: a folder of their own, run_train.sh with the program under test, and a look at what it left.

A script makes one Place, calls its methods, and counts with check(); Place.close() ends the script with the right exit code.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = (ROOT / os.environ.get("BUILD", "build/release") / "ctitan").resolve()
# a step of some milliseconds: what is tested here is not the model
TINY = ["--config", "llama3_debugmodel", "training.seq_len=32", "training.local_batch_size=1", "metrics.log_freq=1"]
FOREVER = ["training.steps=1000000"]
# what is tested is the life of a run: checkpoints of some hundred kB, and a schedule that does not depend on training.steps
SMALL = [*TINY, "model.dim=32", "model.n_layers=2", "model.n_heads=2", "model.ffn_dim=64", "model.vocab_size=300", "training.tokenizer=byte",
         "training.global_batch_size=2", "lr_scheduler.warmup_steps=10", "lr_scheduler.total_steps=1000", "device.threads=1",
         "checkpoint.enable=true", "checkpoint.keep_latest_k=0"]


def skip(reason):
    print(reason)
    sys.exit(77)


def need(command):
    """Skips the script where the program lacks the subcommand."""
    if not PROGRAM.exists():
        skip(f"{PROGRAM} is not built")
    shown = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True).stdout
    if not any(line.split()[:1] == [command] for line in shown.splitlines()):
        skip(f"this build has no `ctitan {command}`")


class Place:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ctitan-e2e.", dir=os.environ.get("TMPDIR", "/tmp")))
        self.count = self.failures = 0
        self.dumps = 0

    def remove(self):
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self):
        self.remove()
        print(f"{self.count - self.failures} of {self.count} checks hold")
        sys.exit(1 if self.failures else 0)

    def check(self, holds, what, detail=""):
        self.count += 1
        if not holds:
            self.failures += 1
            print(f"does not hold: {what}\n{detail}".rstrip(), flush=True)
        return holds

    def new_dump(self):
        """A dump folder that no run used; its path also marks the processes of the run."""
        self.dumps += 1
        return self.folder / f"dump{self.dumps}"

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if k not in ("CONFIG", "MODULE", "LOG_RANK", "COMM_MODE", "NGPU", "RANK", "HOSTFILE", "NNODES")}
        kept.update(CTITAN_PROGRAM=str(PROGRAM), XDG_CACHE_HOME=str(self.folder / "cache"), TMPDIR=str(self.folder), NGPU="2")
        kept.update({k: str(v) for k, v in more.items() if v is not None})
        return kept

    def start(self, dump, arguments, **environment):
        """run_train.sh in the background, its output in dump.out and dump.err."""
        streams = [open(f"{dump}.{kind}", "w") for kind in ("out", "err")]
        process = subprocess.Popen([ROOT / "run_train.sh", *arguments, f"job.dump_folder={dump}"], env=self.environment(**environment),
                                   stdin=subprocess.DEVNULL, stdout=streams[0], stderr=streams[1], cwd=ROOT)
        for stream in streams:
            stream.close()
        return process

    def run(self, dump, arguments, seconds=100, **environment):
        """(exit code, stdout, stderr) of run_train.sh."""
        process = self.start(dump, arguments, **environment)
        return self.wait(process, seconds), self.text(dump, "out"), self.text(dump, "err")

    def wait(self, process, seconds=60):
        """Its exit code; None, and it is killed, when it does not end in time."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def text(self, dump, kind):
        return pathlib.Path(f"{dump}.{kind}").read_text(errors="replace")

    def rows(self, dump, file="run.jsonl"):
        """The rows of run.jsonl that have a step."""
        path = dump / file
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [row for row in rows if "step" in row]

    def event_steps(self, dump):
        """The steps of the events in TensorBoard files, whose records are length, checksum, event, checksum; what is cut off is left out."""
        steps = []
        for path in dump.glob("tb/**/events.out.tfevents.*"):
            data, at = path.read_bytes(), 0
            while at + 12 <= len(data):
                length = int.from_bytes(data[at:at + 8], "little")
                event = data[at + 12:at + 12 + length]
                at += length + 16
                if at <= len(data) and event[:1] == b"\x09" and event[9:10] == b"\x10":  # wall time, then step as a varint
                    step, shift = 0, 0
                    for byte in event[10:]:
                        step |= (byte & 127) << shift
                        shift += 7
                        if byte < 128:
                            break
                    steps.append(step)
        return steps

    def wait_for_step(self, dump, step, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if any(row["step"] >= step for row in self.rows(dump)):
                    return True
            except ValueError:
                pass  # a row that is just being written
            time.sleep(0.05)
        return False

    def processes(self, dump=None):
        """{pid: command line} of the processes that have the folder in their arguments, except this one's relatives that only test."""
        mark, found = str(dump or self.folder).encode(), {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes()
                    state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                except OSError:
                    continue
                if mark in line and state != "Z":
                    found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace")
        return found

    def ranks(self, dump):
        return sorted(pid for pid, line in self.processes(dump).items() if line.startswith(f"{PROGRAM} train"))

    def mpirun(self, dump):
        return next((pid for pid, line in self.processes(dump).items() if line.startswith("mpirun ")), None)

    def none_left(self, dump, seconds=10):
        end = time.monotonic() + seconds
        while self.processes(dump) and time.monotonic() < end:
            time.sleep(0.1)
        return not self.processes(dump)

    def checkpoints(self, dump):
        """{step: folder} of the complete checkpoints."""
        folders = (dump / "checkpoint").glob("step-*") if (dump / "checkpoint").is_dir() else []
        return {int(path.name[5:]): path for path in folders if path.name[5:].isdigit()}

    def wait_for_checkpoint(self, dump, step, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if any(found >= step for found in self.checkpoints(dump)):
                return True
            time.sleep(0.01)
        return False

    def curve(self, dump, file="run.jsonl"):
        """[(step, loss, gradient norm, learning rate, tokens seen)] of the training rows, in full precision and in the file's order."""
        keys = ("step", "loss_metrics/global_avg_loss", "grad_norm", "lr", "n_tokens_seen")
        return [tuple(row[key] for key in keys) for row in self.rows(dump, file) if keys[1] in row]

    def validation(self, dump):
        """[(step, loss)] of the validation rows."""
        key = "validation_metrics/loss"
        return [(row["step"], row[key]) for row in self.rows(dump) if key in row]

    def manifest(self, dump, step):
        return json.loads((dump / "checkpoint" / f"step-{step}" / "manifest.json").read_text())

    def difference(self, dump, other, step):
        """What is not bit for bit the same in the two runs' checkpoints of a step; None when nothing is."""
        a, b = (folder / "checkpoint" / f"step-{step}" for folder in (dump, other))
        names = [sorted(path.name for path in folder.glob("*")) for folder in (a, b)]
        if not names[0] or names[0] != names[1]:
            return f"files {names[0]} and {names[1]}"
        changed = [name for name in names[0] if name != "manifest.json" and (a / name).read_bytes() != (b / name).read_bytes()]
        manifests = [self.manifest(folder, step) for folder in (dump, other)]
        changed += [key for key in ("state", "tensors", "files") if manifests[0][key] != manifests[1][key]]
        return f"step {step}: {changed} differ" if changed else None

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 180
"""Exit codes, which rank's lines are shown, the ranks' logs, and the kinds of launch."""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
SHORT = [*e2e.TINY, "training.steps=2"]


def prefixes(text):
    return set(re.findall(r"^\[rank(\d+)\]:", text, flags=re.M))


# a good run: exit code 0 and nothing on stderr but the script's own notes, whatever the number of ranks
for ranks in (1, 2, 4):
    dump = place.new_dump()
    code, out, errors = place.run(dump, SHORT, NGPU=ranks)
    place.check(code == 0, f"{ranks} ranks: exit code 0, not {code}", errors)
    foreign = [line for line in errors.splitlines() if not line.startswith("run_train.sh: ") and "WARNING" not in line]
    place.check(not foreign, f"{ranks} ranks: nothing strange on stderr", "\n".join(foreign))
    place.check(prefixes(out) == {"0"}, f"{ranks} ranks: rank 0 alone is shown, not {prefixes(out)}", out)
    place.check(re.search(r"step: +2 ", out), f"{ranks} ranks: step 2 is on the console", out)
    place.check(place.none_left(dump), f"{ranks} ranks: no process is left")
    logs = sorted(path.name for path in dump.glob("logs/*/rank_*.log"))
    place.check(logs == [f"rank_{n}.log" for n in range(ranks)], f"{ranks} ranks: a log each, not {logs}")

# LOG_RANK; one without the rank of the step lines gets the command that would show them, once, where it can be seen
for wanted, shown in (("1", {"1"}), ("0,1", {"0", "1"})):
    dump = place.new_dump()
    code, out, errors = place.run(dump, SHORT, LOG_RANK=wanted)
    place.check(code == 0 and prefixes(out) == shown, f"LOG_RANK={wanted} shows {shown}, not {prefixes(out)}", out + errors)
    hints = out.count("LOG_RANK=1,0 ./run_train.sh --config llama3_debugmodel training.")
    place.check(hints == (1 if wanted == "1" else 0), f"LOG_RANK={wanted}: {hints} hints how to see the step lines", out + errors)

# the kinds of launch
dump = place.new_dump()
code, out, errors = place.run(dump, SHORT, COMM_MODE="local_tensor")
place.check(code == 0 and len(list(dump.glob("logs/*/rank_*.log"))) == 2, "local_tensor: two ranks in one process", out + errors)
dump = place.new_dump()
code, out, errors = place.run(dump, e2e.TINY, COMM_MODE="fake_backend", NGPU=16, RANK=3)
place.check(code == 0, f"fake_backend: one dry step of one of 16 ranks, exit code {code}", out + errors)

no_hosts = place.folder / "no_hosts"
no_hosts.write_text("# none\n")
nothing = place.folder / "nothing"
nothing.mkdir()
# usage: 2, said once, and nothing was started
for arguments, environment, text in (
        (["training.stepz=3"], {}, "training.steps"),
        (["--config", "nowhere"], {}, "nowhere"),
        (["parallelism.data_parallel_replicate_degree=3", "parallelism.data_parallel_shard_degree=1"], {}, "data_parallel_replicate_degree"),
        ([], {"NGPU": "none"}, "NGPU=none"),
        ([], {"NGPU": "0"}, "NGPU=0"),
        ([], {"COMM_MODE": "mpi"}, "COMM_MODE=mpi"),
        ([], {"NNODES": "3", "SLURM_JOB_ID": ""}, "NNODES=3"),
        ([], {"HOSTFILE": "/nowhere/hosts"}, "HOSTFILE=/nowhere/hosts"),
        ([], {"HOSTFILE": "/tmp"}, "HOSTFILE=/tmp cannot be read"),
        ([], {"HOSTFILE": no_hosts}, "names no host"),
        ([], {"NGPU": "99999"}, "NGPU=99999"),
        ([], {"LOG_RANK": "all"}, "LOG_RANK=all is not a list of ranks"),
        ([], {"LOG_RANK": "-1"}, "LOG_RANK=-1 is not a list of ranks"),
        ([], {"LOG_RANK": "2,3"}, "LOG_RANK=2,3 shows nothing: the ranks are 0 to 1"),
        ([], {"LOG_RANK": "2", "COMM_MODE": "local_tensor"}, "LOG_RANK=2 shows nothing"),
        ([], {"RANK": "2", "COMM_MODE": "fake_backend"}, "RANK=2 is not a rank"),
        ([], {"RANK": "x", "COMM_MODE": "fake_backend"}, "RANK=x is not a rank"),
        (["training.dataset=/nowhere"], {}, "/nowhere"),
        ([f"training.dataset={nothing}"], {}, "holds no text file"),
        (["training.tokenizer=/nowhere"], {}, "training.tokenizer: cannot open /nowhere")):
    dump = place.new_dump()
    code, out, errors = place.run(dump, [*arguments], **environment)
    place.check(code == 2, f"{arguments} {environment}: exit code 2, not {code}", out + errors)
    place.check(text in out + errors, f"{arguments} {environment}: the message names {text}", out + errors)
    place.check((out + errors).count("unknown") <= 1, f"{arguments} {environment}: the message comes once", out + errors)

done = subprocess.run([e2e.PROGRAM, "train", *SHORT], env=place.environment(LOG_RANK="all"), cwd=place.folder, capture_output=True, text=True)
place.check(done.returncode == 2 and "LOG_RANK=all" in done.stderr, "ctitan train too wants a list in LOG_RANK", done.stdout + done.stderr)

# streams that are closed, a reader that leaves: the training goes on to its end
for ranks in (1, 2):
    for streams in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-", "| head -1", "2>&1 | head -1"):
        dump = place.new_dump()
        command = f'"$0" "$@" {streams}\nexit ${{PIPESTATUS[0]}}'
        done = subprocess.run(["bash", "-c", command, e2e.ROOT / "run_train.sh", *e2e.SMALL, "training.steps=40", f"job.dump_folder={dump}"],
                              env=place.environment(NGPU=ranks), capture_output=True, text=True, timeout=60)
        place.check(done.returncode == 0, f"{ranks} ranks {streams}: exit code 0, not {done.returncode}", done.stdout[-500:] + done.stderr[-2000:])
        place.check([row["step"] for row in place.rows(dump)][-1:] == [40], f"{ranks} ranks {streams}: all steps are done")
        place.check("failed" not in done.stderr and "Segmentation" not in done.stderr, f"{ranks} ranks {streams}: no complaint", done.stderr)
        place.check(place.none_left(dump), f"{ranks} ranks {streams}: no process is left")

for arguments in (["--help"], ["--version"]):
    done = subprocess.run([e2e.ROOT / "run_train.sh", *arguments], env=place.environment(), capture_output=True, text=True)
    place.check(done.returncode == 0 and done.stdout, f"{arguments} says something", done.stderr)

place.close()

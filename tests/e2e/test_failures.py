#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 180
"""A rank that is killed, stopped or fails by itself ends the whole job with code 1, and a message on the terminal names it."""
import os
import pathlib
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
TIMEOUT = 2
RUN = [*e2e.TINY, *e2e.FOREVER, f"comm.train_timeout_seconds={TIMEOUT}"]


def ended(what, dump, process, text, begin):
    """The job's output, once it has ended as it should: long before a rank gives up by the time-out of the start, 300 s."""
    code = place.wait(process, 60)
    shown = place.text(dump, "out") + place.text(dump, "err")
    place.check(code == 1, f"{what}: exit code 1, not {code}", shown[-3000:])
    place.check(time.monotonic() - begin < 40, f"{what}: the job ends at once")
    place.check(place.none_left(dump), f"{what}: no process is left", str(place.processes(dump)))
    place.check(re.search(text, shown), f"{what}: the terminal says `{text}`", shown[-3000:])
    return shown


def hit(name, rank, text, ranks=2):
    dump = place.new_dump()
    process = place.start(dump, RUN, NGPU=ranks)
    if not place.check(place.wait_for_step(dump, 2), f"{ranks} ranks come to step 2", place.text(dump, "err")):
        place.close()
    begin = time.monotonic()
    os.kill(place.ranks(dump)[rank], getattr(signal, f"SIG{name}"))
    return ended(f"{name} to rank {rank} of {ranks}", dump, process, text, begin)


for rank in (0, 1):
    for _ in range(3):  # at different places of a step
        hit("STOP", rank, rf"rank {rank} did not arrive within {TIMEOUT} s")
    hit("KILL", rank, f"rank {rank} (on .* )?(died|was ended by signal 9)")
shown = hit("STOP", 2, f"rank 2 did not arrive within {TIMEOUT} s", ranks=4)
place.check(shown.count("rank 2 did not arrive") <= 2, "what all ranks say is shown once, and once more by the rank that is shown", shown)

# one rank fails by itself at the start, the other waits for it: its message comes first, and the other does not repeat it
wrapper = place.folder / "wrapper"
wrapper.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && set -- "$@" device.memory_limit_gib=0.001\nexec {e2e.PROGRAM} "$@"\n')
wrapper.chmod(0o755)
dump = place.new_dump()
shown = ended("a rank that fails", dump, place.start(dump, RUN, CTITAN_PROGRAM=wrapper), r"(?m)^\[rank1\]: .* ERROR .*memory", time.monotonic())
errors = [line for line in shown.splitlines() if " - ERROR - " in line]
place.check(errors and errors[0].startswith("[rank1]"), "the failing rank speaks first", shown)
place.check(len(errors) == 1, "nobody repeats it", shown)

# one leaves without a word before there is an MPI, as when a library calls exit; mpirun tells which only when it comes to it
wrapper.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exit 9\nexec {e2e.PROGRAM} "$@"\n')
dump = place.new_dump()
ended("a rank that leaves", dump, place.start(dump, RUN, CTITAN_PROGRAM=wrapper), r"rank 1 left with exit code 9|the job failed \(exit code 9\)", time.monotonic())

# one process that holds all ranks
dump = place.new_dump()
process = place.start(dump, RUN, COMM_MODE="local_tensor")
place.check(place.wait_for_step(dump, 2), "ranks that are threads come to step 2", place.text(dump, "err"))
os.kill(place.ranks(dump)[0], signal.SIGKILL)
ended("KILL to the process of all ranks", dump, process, r"the job was ended by signal 9 \(SIGKILL\)", time.monotonic())

place.close()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 180
"""Every rank keeps to its own cores, as processes and as threads, and says so when threads must take turns on them."""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
CORES = sorted(os.sched_getaffinity(0))
SHARING = re.compile(r"WARNING - \d+ ranks? with \d+ threads? each shares? ")
RUN = [*e2e.TINY, *e2e.FOREVER]


def cores_of_threads(pid):
    """{set of cores} over the threads of a process that trains; MPI's own threads are older than the binding."""
    found = set()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found.add(tuple(sorted(os.sched_getaffinity(int(task.name)))))
        except ProcessLookupError:
            pass
    return found


def running(arguments, look, cores=None, **environment):
    """look(dump) while the run trains; its whole output."""
    dump = place.new_dump()
    if cores:
        os.sched_setaffinity(0, cores)
    process = place.start(dump, [*RUN, *arguments], **environment)
    os.sched_setaffinity(0, CORES)
    if place.check(place.wait_for_step(dump, 2), f"{arguments} {environment}: the run comes to step 2", place.text(dump, "err")):
        look(dump)
    process.terminate()
    place.wait(process)
    return place.text(dump, "out") + place.text(dump, "err")


def share(n, size):
    return tuple(CORES[n * len(CORES) // size:(n + 1) * len(CORES) // size]) if len(CORES) >= size else tuple(CORES)


def look_at_processes(size):
    def look(dump):
        ranks = place.ranks(dump)
        place.check(len(ranks) == size, f"{size} ranks run, not {ranks}")
        main = sorted(tuple(sorted(os.sched_getaffinity(pid))) for pid in ranks)
        wanted = sorted(share(n, size) for n in range(size))
        place.check(main == wanted, f"the ranks' main threads are on {wanted}, not {main}")
        for pid in ranks:
            foreign = {cores for cores in cores_of_threads(pid) if cores not in (tuple(sorted(os.sched_getaffinity(pid))), tuple(CORES))}
            place.check(not foreign, f"no thread of rank {pid} is on another's cores: {foreign}")
    return look


def look_at_threads(dump):
    found = set().union(*(cores_of_threads(pid) for pid in place.ranks(dump)))
    wanted = {share(0, 2), share(1, 2)}
    place.check(wanted <= found, f"ranks that are threads are on {wanted}, not {found}")


for size in (1, 2):
    text = running([], look_at_processes(size), NGPU=size)
    place.check(bool(SHARING.search(text)) == (size > len(CORES)), f"{size} ranks on {len(CORES)} cores: a warning only if they share", text)
running([], look_at_threads, COMM_MODE="local_tensor")

# more threads than cores: of many ranks, of one rank, of two ranks on one core
size = len(CORES) + 1
text = running([], look_at_processes(size), NGPU=size)
place.check(SHARING.search(text), f"{size} ranks on {len(CORES)} cores: a warning", text)
text = running([f"device.threads={size}"], lambda dump: None, NGPU=1)
place.check(f"1 rank with {size} threads each" in text, f"{size} threads on {len(CORES)} cores: a warning", text)
text = running([], lambda dump: None, cores=CORES[:1], NGPU=2)
place.check("2 ranks with 1 thread each share 1 core:" in text, "two ranks on one core: a warning", text)

place.close()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TensorBoard's side of the sinks benchmark: what 15 scalars cost the training thread, as bench/bench_sinks.c measures it.

Writes with torch's SummaryWriter, the usual way, or where torch is missing with tensorboard's own event writer, which does less. Runs
build/release/bench/bench_sinks too and prints the ratio: one JSON line.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS, SCALARS, PACE_S = 1000, 15, 0.001
TAGS = [f"group/scalar_{i}" for i in range(SCALARS)]


def torch_writer(folder):
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder, max_queue=1000)  # torchtitan's setting

    def step(number):
        for i, tag in enumerate(TAGS):
            writer.add_scalar(tag, 1.0 / (number + i), number)

    return "torch SummaryWriter", step, writer.close


def plain_writer(folder):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(folder, max_queue_size=1000)

    def step(number):
        for i, tag in enumerate(TAGS):
            value = Summary.Value(tag=tag, simple_value=1.0 / (number + i))
            writer.add_event(Event(wall_time=time.time(), step=number, summary=Summary(value=[value])))

    return "tensorboard EventFileWriter", step, writer.close


def measure(folder):
    try:
        name, step, close = torch_writer(folder)
    except ImportError:
        name, step, close = plain_writer(folder)
    costs = []
    for number in range(1, STEPS + 1):
        time.sleep(PACE_S)
        start = time.perf_counter()
        step(number)
        costs.append(time.perf_counter() - start)
    close()
    return name, 1e6 * statistics.median(costs)


def main():
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        sys.exit("logger_bench: this python has no tensorboard")
    program = ROOT / "build/release/bench/bench_sinks"
    ours = json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)
    with tempfile.TemporaryDirectory() as folder:
        name, peer_us = measure(folder)
    ratio = peer_us / ours["write_us"]
    print(json.dumps(dict(ours, peer=name, peer_us=round(peer_us, 2), peer_times_write=round(ratio, 1),
                          peer_times_collect_and_write=round(peer_us / ours["collect_and_write_us"], 1))))


main()

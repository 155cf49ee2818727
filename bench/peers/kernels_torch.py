#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's side of the kernel benchmark: the same operations at the same shapes, float32, with as many threads.

usage: kernels_torch.py [--threads N] [--rounds N] [--kernel NAME]

Takes the cases from `bench_kernels --list`. Each round runs bench_kernels on a case and then PyTorch; the best time of all rounds
counts. Times with one thread are CPU time, which others on the machine disturb less; with several they are wall time. Prints one JSON
line per case (ratio: PyTorch's time / ctitan's) and one of geometric means. Where PyTorch offers several ways the fastest counts. Its
backward pass of a norm is one operation, two of ctitan's kernels: their times are added.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import time

import torch
import torch.nn.functional as F

from llama_torch import rotate

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build/release/bench/bench_kernels"
REPEAT, LEAST_S = 5, 0.03  # as bench_kernels repeats
NORM_BACKWARD = ("rmsnorm_backward_input", "rmsnorm_backward_weight")


def random(*shape, grad=False):
    return torch.empty(*shape).uniform_(-1, 1).requires_grad_(grad)


def labels(count, below):
    return torch.randint(0, below, (count,))


def backward(out, inputs, dout):
    return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)


def gemm(s):
    a = random(s["k"], s["m"]).t() if s["transposed"][0] == "T" else random(s["m"], s["k"])
    b = random(s["n"], s["k"]).t() if s["transposed"][1] == "T" else random(s["k"], s["n"])
    out = random(s["m"], s["n"])
    return [lambda: out.addmm_(a, b)] if s["accumulate"] else [lambda: torch.mm(a, b, out=out)]


def norm(s, is_backward):
    x, weight, dy = random(s["t"], s["d"], grad=is_backward), random(s["d"], grad=is_backward), random(s["t"], s["d"])
    if not is_backward:
        return [lambda: F.rms_norm(x, (s["d"],), weight, 1e-5)]
    return [backward(F.rms_norm(x, (s["d"],), weight, 1e-5), (x, weight), dy)]


def rope(s):
    x, table = random(1, s["t"], s["heads"], s["d"]), random(1, s["t"], 1, s["d"] // 2)
    return [lambda: rotate(x, table, table)]


def attention(s, is_backward):
    def heads(count, d):
        return random(s["sequences"], s["length"], count, d, grad=is_backward).transpose(1, 2)

    q, k, v = heads(s["heads"], s["d_qk"]), heads(s["kv_heads"], s["d_qk"]), heads(s["kv_heads"], s["d_v"])
    group = s["heads"] // s["kv_heads"]
    ways = [lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=group > 1)]
    if group > 1:
        ways.append(lambda: F.scaled_dot_product_attention(q, *(x.repeat_interleave(group, 1) for x in (k, v)), is_causal=True))
    dout = random(s["sequences"], s["heads"], s["length"], s["d_v"])
    return [backward(way(), (q, k, v), dout) for way in ways] if is_backward else ways


def swiglu(s, is_backward):
    gate, up, dh = (random(s["t"], s["d"], grad=is_backward) for _ in range(3))
    return [backward(F.silu(gate) * up, (gate, up), dh.detach())] if is_backward else [lambda: F.silu(gate) * up]


def add(s):
    x, y, out = (random(s["t"], s["d"]) for _ in range(3))
    return [lambda: torch.add(x, y, out=out)]


def embedding(s, is_backward):
    tokens, table, dy = labels(s["t"], s["v"]), random(s["v"], s["d"]), random(s["t"], s["d"])
    if is_backward:
        return [lambda: torch.ops.aten.embedding_dense_backward(dy, tokens, s["v"], -1, False)]
    return [lambda: F.embedding(tokens, table)]


def cross_entropy(s):
    logits, wanted = random(s["t"], s["v"], grad=s["accumulate"]), labels(s["t"], s["v"])

    def loss():
        value = F.cross_entropy(logits, wanted)
        return torch.autograd.grad(value, logits) if s["accumulate"] else value

    return [loss]


def adamw(s):
    parameter = random(s["t"] * s["d"], grad=True)
    parameter.grad = random(s["t"] * s["d"])
    return [torch.optim.AdamW([parameter], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True).step]


def sum_squares(s):
    x = random(s["t"] * s["d"])
    return [lambda: torch.linalg.vector_norm(x)]


PEERS = {
    "gemm": gemm, "rmsnorm_forward": lambda s: norm(s, False), NORM_BACKWARD[0]: lambda s: norm(s, True), "rope": rope,
    "attention_forward": lambda s: attention(s, False), "attention_backward": lambda s: attention(s, True),
    "swiglu_forward": lambda s: swiglu(s, False), "swiglu_backward": lambda s: swiglu(s, True), "add": add,
    "embedding_forward": lambda s: embedding(s, False), "embedding_backward_weight": lambda s: embedding(s, True),
    "cross_entropy": cross_entropy, "adamw": adamw, "sum_squares": sum_squares,
}


def parse(text):
    """The numbers in a case's text; see kernel_case_text in tests/kernels/cases.c."""
    shape = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text)}
    shape.update(transposed=text[:2], accumulate="accumulate" in text)
    found = re.match(r"(\d+) x (\d+) tokens, heads (\d+)/(\d+), dims (\d+)/(\d+)", text)
    if found:
        shape.update(zip(("sequences", "length", "heads", "kv_heads", "d_qk", "d_v"), map(int, found.groups())))
    return shape


def run_program(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def time_ours(case, threads):
    kernels = NORM_BACKWARD if case["kernel"] == NORM_BACKWARD[0] else (case["kernel"],)
    lines = [line for kernel in kernels
             for line in run_program("--kernel", kernel, "--shape", case["shape"], "--threads", threads, "--repeat", REPEAT)
             if line["kernel"] == kernel and line["shape"] == case["shape"]]
    return sum(line["cpu_milliseconds" if threads == 1 else "milliseconds"] for line in lines), lines[0]


def time_peer(ways, threads):
    clock, best = time.thread_time if threads == 1 else time.perf_counter, math.inf
    for way in ways:
        way()
        count, end = 0, time.perf_counter() + LEAST_S
        while count < REPEAT or time.perf_counter() < end:
            start = clock()
            way()
            best = min(best, clock() - start)
            count += 1
    return 1e3 * best


def measure(case, options):
    ways, ours, peers = PEERS[case["kernel"]](parse(case["shape"])), [], []
    for _ in range(options.rounds):
        ours.append(time_ours(case, options.threads))
        peers.append(time_peer(ways, options.threads))
    milliseconds, line = min(ours, key=lambda run: run[0])
    name = "+".join(NORM_BACKWARD) if case["kernel"] == NORM_BACKWARD[0] else case["kernel"]
    result = {"bench": "kernel", "kernel": name, "shape": case["shape"], "level": line["level"], "threads": options.threads,
              "ctitan_ms": round(milliseconds, 4), "peer": f"torch {torch.__version__}", "peer_ms": round(min(peers), 4)}
    for rate in ("gflop_per_s", "gb_per_s"):
        if rate in line and (rate == "gflop_per_s" or "gflop_per_s" not in line):
            amount = line[rate] * line["milliseconds"]
            result.update({"ctitan_" + rate: round(amount / milliseconds, 1), "peer_" + rate: round(amount / min(peers), 1)})
    return dict(result, ratio=round(min(peers) / milliseconds, 3))


def mean(ratios):
    return round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--kernel", default="")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    results = []
    for case in run_program("--list", "--kernel", options.kernel):
        if case["kernel"] in PEERS:
            results.append(measure(case, options))
            print(json.dumps(results[-1]), flush=True)
        elif case["kernel"] not in NORM_BACKWARD:
            raise SystemExit(f"kernels_torch: no peer for the kernel {case['kernel']}")
    least = min(results, key=lambda result: result["ratio"])
    products = [result["ratio"] for result in results if result["kernel"] == "gemm"]
    print(json.dumps({"bench": "kernels", "threads": options.threads, "cases": len(results),
                      "ratio_geometric_mean": mean([result["ratio"] for result in results]),
                      "gemm_ratio_geometric_mean": mean(products) if products else None,
                      "least_ratio": least["ratio"], "least": f"{least['kernel']} {least['shape']}"}), flush=True)


if __name__ == "__main__":
    main()

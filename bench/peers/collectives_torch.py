#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's side of the collectives benchmark: gloo, timed as bench_collectives times ours. Prints one JSON line on rank 0.

OMP_NUM_THREADS=1 torchrun --nproc_per_node 2 collectives_torch.py
"""
import json
import time

import torch
import torch.distributed as dist

SIZES = [1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
ROUNDS = 12


def best_seconds(call):
    """The slowest rank's time counts, the first round does not."""
    best = float("inf")
    for number in range(ROUNDS):
        dist.barrier()
        start = time.perf_counter()
        call()
        seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        if number:
            best = min(best, seconds.item())
    return best


def main():
    dist.init_process_group("gloo")
    result = {"bench": "collectives", "backend": f"gloo of torch {torch.__version__}"}
    for size in SIZES:
        whole = torch.full((size // 4,), 1e-3)
        part = torch.full((size // 4 // dist.get_world_size(),), 1e-3)
        for name, call in {
            "all_reduce": lambda: dist.all_reduce(whole),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
            "broadcast": lambda: dist.broadcast(whole, 0),
        }.items():
            result.setdefault(name, []).append({"bytes": size, "microseconds": round(1e6 * best_seconds(call), 2)})
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

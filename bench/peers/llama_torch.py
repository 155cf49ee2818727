#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's side of the step benchmark: Llama 3 with the shapes, dtype, optimizer and clipping of ctitan's presets.

one process:    OMP_NUM_THREADS=2 python llama_torch.py --model debugmodel --batch 1
two processes:  OMP_NUM_THREADS=1 torchrun --nproc_per_node 2 llama_torch.py --parallel fsdp --batch 1     (batch is per rank)
one GPU:        python llama_torch.py --device cuda --model 8b --layers 4 --dtype bfloat16 --compile

Tokens are random: neither side reads text. Prints one JSON line on rank 0.
"""
import argparse
import contextlib
import json
import os
import resource
import time

import torch
import torch.nn.functional as F
from torch import nn

MODELS = {
    "debugmodel": dict(dim=256, layers=6, heads=16, kv_heads=16, hidden=768, vocab=2048, seq=2048, theta=5e5),
    "125m": dict(dim=768, layers=12, heads=12, kv_heads=4, hidden=2048, vocab=32000, seq=1024, theta=5e5),
    "1b": dict(dim=2048, layers=16, heads=32, kv_heads=8, hidden=8192, vocab=128256, seq=8192, theta=5e5),
    "3b": dict(dim=3072, layers=28, heads=24, kv_heads=8, hidden=8192, vocab=128256, seq=8192, theta=5e5),
    "8b": dict(dim=4096, layers=32, heads=32, kv_heads=8, hidden=14336, vocab=128256, seq=8192, theta=5e5),
}


def rotate(x, cos, sin):
    """Half-split rotary embedding of x [batch, tokens, heads, head_dim]; cos and sin are [1, tokens, 1, head_dim/2]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).type_as(x)


class Attention(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = m["heads"], m["kv_heads"], m["dim"] // m["heads"]
        self.wqkv = nn.Linear(m["dim"], (self.heads + 2 * self.kv_heads) * self.head_dim, bias=False)
        self.wo = nn.Linear(self.heads * self.head_dim, m["dim"], bias=False)

    def forward(self, x, cos, sin):
        batch, tokens, _ = x.shape
        sizes = [count * self.head_dim for count in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (part.view(batch, tokens, -1, self.head_dim) for part in self.wqkv(x).split(sizes, -1))
        q, k, v = (part.transpose(1, 2) for part in (rotate(q, cos, sin), rotate(k, cos, sin), v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads != self.heads)
        return self.wo(out.transpose(1, 2).reshape(batch, tokens, -1))


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.attention_norm = nn.RMSNorm(m["dim"], eps=1e-5)
        self.attention = Attention(m)
        self.ffn_norm = nn.RMSNorm(m["dim"], eps=1e-5)
        self.w1 = nn.Linear(m["dim"], m["hidden"], bias=False)
        self.w3 = nn.Linear(m["dim"], m["hidden"], bias=False)
        self.w2 = nn.Linear(m["hidden"], m["dim"], bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        y = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Llama(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.embedding = nn.Embedding(m["vocab"], m["dim"])
        self.layers = nn.ModuleList(Block(m) for _ in range(m["layers"]))
        self.norm = nn.RMSNorm(m["dim"], eps=1e-5)
        self.head = nn.Linear(m["dim"], m["vocab"], bias=False)
        head_dim = m["dim"] // m["heads"]
        frequencies = 1 / m["theta"] ** (torch.arange(0, head_dim, 2).float() / head_dim)
        angles = torch.outer(torch.arange(m["seq"]).float(), frequencies)[None, :, None]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.trunc_normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.embedding(tokens)
        cos, sin = self.cos[:, :tokens.shape[1]], self.sin[:, :tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def distribute(model, options, ranks):
    """The model as each rank calls it."""
    if options.parallel == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if options.parallel == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        mesh = init_device_mesh(options.device, (ranks,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if options.dtype == "bfloat16" else None, reduce_dtype=torch.float32)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", default="debugmodel", choices=MODELS)
    arguments.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    arguments.add_argument("--parallel", default="none", choices=["none", "ddp", "fsdp"])
    arguments.add_argument("--batch", type=int, default=1, help="sequences per rank and step")
    arguments.add_argument("--seq", type=int)
    arguments.add_argument("--layers", type=int)
    arguments.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments.add_argument("--steps", type=int, default=6)
    arguments.add_argument("--compile", action="store_true")
    options = arguments.parse_args()
    shape = dict(MODELS[options.model])
    shape["seq"] = options.seq or shape["seq"]
    shape["layers"] = options.layers or shape["layers"]
    on_gpu = options.device == "cuda"
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))

    torch.manual_seed(0)
    if options.parallel != "none":
        torch.distributed.init_process_group("nccl" if on_gpu else "gloo")
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    with torch.device(options.device):
        plain = Llama(shape)
    parameters = sum(p.numel() for p in plain.parameters())
    if options.compile:
        for layer in plain.layers:
            layer.compile()
    model = distribute(plain, options, ranks)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    autocast = options.dtype == "bfloat16" and options.parallel != "fsdp"

    seconds, cpu_seconds = [], []
    for _ in range(options.steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        text = torch.randint(0, shape["vocab"], (options.batch, shape["seq"] + 1)).to(options.device)
        with torch.autocast(options.device, torch.bfloat16) if autocast else contextlib.nullcontext():
            logits = model(text[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        last_loss = loss.item()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)

    steady = sorted(seconds[1:]) or seconds
    tokens = ranks * options.batch * shape["seq"]
    if rank == 0:
        print(json.dumps({
            "peer": f"torch {torch.__version__}", "model": options.model, "dtype": options.dtype, "parallel": options.parallel,
            "ranks": ranks, "threads": torch.get_num_threads(), "batch": options.batch, "seq": shape["seq"], "parameters": parameters,
            "loss": round(last_loss, 4), "first_step_s": round(seconds[0], 3), "best_step_s": round(steady[0], 4),
            "cpu_s_per_step": round(ranks * min(cpu_seconds[1:] or cpu_seconds), 4),
            "device": torch.cuda.get_device_name() if on_gpu else "cpu", "compiled": options.compile, "layers": shape["layers"],
            "max_device_mib": round(torch.cuda.max_memory_allocated() / 2**20, 1) if on_gpu else None,
            "median_step_s": round(steady[len(steady) // 2], 4), "tokens_per_s": round(tokens / steady[0], 1),
            "max_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)}), flush=True)
    if options.parallel != "none":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

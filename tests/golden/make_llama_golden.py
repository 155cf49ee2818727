#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/golden/llama/*.safetensors: a tiny Llama 3 computed by PyTorch in float64.

Each file holds the model's sizes (metadata), its initial parameters ("init/<name>"), tokens, labels and document starts, the logits, the loss
(mean over labels that are not -100), every gradient ("gradient/<name>"), and the parameters after ten AdamW steps on the same
batch with clipping ("final/<name>"), with loss and gradient norm of each step.

usage: python tests/golden/make_llama_golden.py     (needs torch and numpy; run from the top of the tree)
"""
import json, math, pathlib, struct
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
STEPS, LR, BETAS, EPS, DECAY, MAX_NORM = 10, 1e-2, (0.9, 0.95), 1e-8, 0.1, 1.0


def frequencies(c):
    """Rotary frequencies with Llama 3.1's scaling, in float64."""
    out = []
    for i in range(c["head_dim"] // 2):
        f = c["rope_theta"] ** (-2 * i / c["head_dim"])
        if c["rope_factor"] > 1:
            wavelength, original = 2 * math.pi / f, c["rope_original_length"]
            if wavelength > original / c["rope_low"]:
                f /= c["rope_factor"]
            elif wavelength >= original / c["rope_high"]:
                blend = (original / wavelength - c["rope_low"]) / (c["rope_high"] - c["rope_low"])
                f = (1 - blend) * f / c["rope_factor"] + blend * f
        out.append(f)
    return torch.tensor(out)


def rotate(x, cos, sin):
    """Half-split layout; x [B, H, T, head_dim], cos and sin [B, 1, T, head_dim/2]."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def forward(p, c, tokens, start):
    B, T = tokens.shape
    H, KV, D = c["n_heads"], c["n_kv_heads"], c["head_dim"]
    place = torch.arange(T)[None].expand(B, T)
    angle = (place - start)[..., None] * frequencies(c)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    allowed = (place[:, None, :] <= place[:, :, None]) & (place[:, None, :] >= start[:, :, None])
    x = p["tok_embeddings.weight"][tokens]
    for i in range(c["n_layers"]):
        w = lambda name: p[f"layers.{i}.{name}.weight"]
        y = norm(x, w("attention_norm"), c["norm_eps"])
        q, k, v = (F.linear(y, w(f"attention.{n}")).view(B, T, -1, D).transpose(1, 2) for n in ("wq", "wk", "wv"))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(H // KV, 1) for t in (k, v))
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(D)
        scores = scores.masked_fill(~allowed[:, None], -math.inf)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, -1)
        x = x + F.linear(y, w("attention.wo"))
        y = norm(x, w("ffn_norm"), c["norm_eps"])
        x = x + F.linear(F.silu(F.linear(y, w("feed_forward.w1"))) * F.linear(y, w("feed_forward.w3")), w("feed_forward.w2"))
    x = norm(x, p["norm.weight"], c["norm_eps"])
    return F.linear(x, p["tok_embeddings.weight"] if c["is_tied"] else p["output.weight"])


def shapes(c):
    d, kv = c["dim"], c["n_kv_heads"] * c["head_dim"]
    out = {"tok_embeddings.weight": (c["vocab_size"], d)}
    for i in range(c["n_layers"]):
        for name, shape in {"attention.wq": (d, d), "attention.wk": (kv, d), "attention.wv": (kv, d), "attention.wo": (d, d),
                            "feed_forward.w1": (c["ffn_dim"], d), "feed_forward.w2": (d, c["ffn_dim"]), "feed_forward.w3": (c["ffn_dim"], d),
                            "attention_norm": (d,), "ffn_norm": (d,)}.items():
            out[f"layers.{i}.{name}.weight"] = shape
    out["norm.weight"] = (d,)
    if not c["is_tied"]:
        out["output.weight"] = (c["vocab_size"], d)
    return out


def write(path, tensors, metadata):
    kinds = {torch.float64: "F64", torch.int32: "I32"}
    header, data = {"__metadata__": metadata}, b""
    for name, t in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        raw = t.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": kinds[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make(name, seed, with_documents, **sizes):
    c = dict(norm_eps=1e-5, rope_theta=500000.0, rope_factor=8.0, rope_low=1.0, rope_high=4.0, rope_original_length=64.0, **sizes)
    c["head_dim"] = c["dim"] // c["n_heads"]
    B, T = 2, 16
    random = torch.Generator().manual_seed(seed)
    init = {n: torch.randn(s, generator=random) * (0.1 if len(s) == 1 else 0.3) + (len(s) == 1) for n, s in shapes(c).items()}
    tokens, labels = (torch.randint(0, c["vocab_size"], (B, T), generator=random) for _ in range(2))
    labels[:, 5::7] = -100
    start = torch.zeros(B, T, dtype=torch.int64)
    if with_documents:
        start[0, 6:], start[1, 3:], start[1, 11:] = 6, 3, 11
    p = {n: t.clone().requires_grad_() for n, t in init.items()}
    optimizer = torch.optim.AdamW(p.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    losses, norms, out = [], [], {}
    for step in range(STEPS):
        logits = forward(p, c, tokens, start)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            out.update({f"gradient/{n}": t.grad.clone() for n, t in p.items()}, logits=logits.detach())
        norms.append(torch.nn.utils.clip_grad_norm_(p.values(), MAX_NORM))
        losses.append(loss.detach())
        optimizer.step()
    out.update({f"init/{n}": t for n, t in init.items()}, losses=torch.stack(losses), norms=torch.stack(norms),
               tokens=tokens.int(), labels=labels.int(), document_start=start.int())
    out.update({f"final/{n}": t.detach() for n, t in p.items()})
    metadata = {k: repr(int(v) if isinstance(v, bool) else v) for k, v in c.items()}
    metadata.update(sequences=str(B), length=str(T), with_documents=str(int(with_documents)), steps=str(STEPS), lr=repr(LR), beta1=repr(BETAS[0]),
                    beta2=repr(BETAS[1]), eps=repr(EPS), weight_decay=repr(DECAY), max_norm=repr(MAX_NORM))
    write(pathlib.Path("tests/golden/llama") / f"{name}.safetensors", out, metadata)
    print(name, "loss", losses[0].item(), "->", losses[-1].item())


make("gqa_untied", 1, False, dim=24, n_layers=2, n_heads=4, n_kv_heads=2, ffn_dim=40, vocab_size=48, is_tied=False)
make("tied", 2, False, dim=16, n_layers=1, n_heads=2, n_kv_heads=2, ffn_dim=32, vocab_size=40, is_tied=True)
make("documents", 3, True, dim=16, n_layers=2, n_heads=4, n_kv_heads=1, ffn_dim=24, vocab_size=32, is_tied=False)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The `tokenizers` package, measured as bench_tokenizer measures ctitan: one thread, one JSON line, the best of several runs.

usage: tokenizers_peer.py TOKENIZER FILE [BENCH_TOKENIZER]
With the path of bench_tokenizer, that runs too, on the same files, and the line holds both and the ratios..
"""
import json
import os
import subprocess
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer, __version__  # noqa: E402 (the environment comes first)

REPEAT = 3


def best(call):
    times = []
    for _ in range(REPEAT):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return min(times), result


def main():
    tokenizer_path, text_path = sys.argv[1:3]
    with open(text_path, encoding="utf-8", newline="") as file:
        text = file.read()
    n_bytes = os.path.getsize(text_path)
    load_s, tokenizer = best(lambda: Tokenizer.from_file(tokenizer_path))
    tokenizer.encode_special_tokens = True
    encode_s, encoding = best(lambda: tokenizer.encode(text, add_special_tokens=False))
    result = {"bench": "tokenizer", "peer": f"tokenizers {__version__}", "bytes": n_bytes, "tokens": len(encoding.ids),
              "load_ms": load_s * 1e3, "encode_MB_s": n_bytes / encode_s / 1e6}
    if len(sys.argv) > 3:
        mine = json.loads(subprocess.run([sys.argv[3], tokenizer_path, text_path], check=True, capture_output=True).stdout)
        result = {"ctitan": mine, "peer": result, "same_number_of_tokens": mine["tokens"] == result["tokens"],
                  "encode_first_ratio": mine["encode_first_MB_s"] / result["encode_MB_s"],
                  "encode_ratio": mine["encode_MB_s"] / result["encode_MB_s"], "load_ratio": result["load_ms"] / mine["load_ms"]}
    print(json.dumps(result))


if __name__ == "__main__":
    main()

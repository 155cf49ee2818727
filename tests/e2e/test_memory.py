#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 120
"""The forecast of memory is what the run then takes, on every mesh; what cannot fit is refused before anything is allocated."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
RUN = e2e.TINY + ["training.steps=2", "training.seq_len=256"]


def table(text):
    """{row: (forecast, measured)} of the lines of rank 0 after the headline."""
    found, rows = False, {}
    for line in text.splitlines():
        found = found or "memory of this rank" in line
        row = re.fullmatch(r"(?:\[rank0\]: )?  (\w[\w ]*?) +([\d.]+) +([\d.]+)", line)
        if found and row:
            rows[row[1]] = (float(row[2]), float(row[3]))
    return rows


HALF = "training.mixed_precision_param=bfloat16"
REPLICATE, SHARD = "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree"
for ranks, options in ((1, []),
                       (1, ["training.global_batch_size=3", "training.document_mask=true"]),
                       (4, [f"{SHARD}=4"]),
                       (4, [f"{SHARD}=4", "parallelism.fsdp_reshard_after_forward=never"]),
                       (4, [f"{SHARD}=4", "parallelism.fsdp_reshard_after_forward=always", "training.global_batch_size=8"]),
                       (4, [f"{SHARD}=2", f"{REPLICATE}=2"]),
                       (3, [f"{SHARD}=3"]),
                       (1, [HALF, "training.global_batch_size=3"]),
                       (4, [f"{SHARD}=4", HALF]),
                       (4, [f"{SHARD}=2", f"{REPLICATE}=2", HALF, "parallelism.fsdp_reshard_after_forward=never"]),
                       (2, [f"{SHARD}=2", "validation.enable=true", "validation.freq=2", "validation.steps=1", "validation.seq_len=512",
                            "validation.local_batch_size=2"])):
    dump = place.new_dump()
    code, out, errors = place.run(dump, RUN + options, COMM_MODE="local_tensor", NGPU=ranks)
    rows = table(out)
    kinds = {"parameters", "gradients", "optimizer", "stash", "scratch", "together at most", "reserved"} | ({"gathered"} if ranks > 1 or HALF in options else set())
    place.check(code == 0 and kinds <= set(rows), f"{ranks} ranks, {options}: the table has its rows", out + errors)
    # validation comes after the table, and may need more than training
    wrong = {k: v for k, v in rows.items() if abs(v[0] - v[1]) > 0.05 + 0.01 * v[1]}
    if "validation.enable=true" in options:
        wrong = {k: v for k, v in rows.items() if v[0] < v[1] - 0.05}
    place.check(not wrong, f"{ranks} ranks, {options}: forecast = measured, not {wrong}", out)
    if ranks == 4 and options[0].endswith("=4"):
        place.check(rows.get("optimizer", (99, 99))[0] < 13, "four shards hold a quarter of the 47 MiB of moments each", out)

dump = place.new_dump()
code, out, errors = place.run(dump, RUN + ["device.memory_limit_gib=0.05"])
text = out + errors
place.check(code == 1 and "would need" in text and "device.memory_limit_gib" in text and "optimizer" in text,
            "a configuration that needs more than device.memory_limit_gib is refused with the table", text)
place.check(not place.rows(dump), "nothing was trained", text)
place.close()

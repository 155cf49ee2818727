#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 120
"""Batches that do not divide are refused; numbers that are not finite are shown as such and told once."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

e2e.need("train")
place = e2e.Place()
MODEL = ["--config", "llama3_debugmodel", "training.seq_len=48", "metrics.log_freq=1", "model.n_layers=2", "model.dim=64", "model.ffn_dim=96",
         "training.document_mask=true"]
# what does not divide is a wrong configuration: nothing is trained
for options, environment, text in (
        (["training.global_batch_size=6", "training.local_batch_size=4"], {"NGPU": 1}, "training.global_batch_size=6"),
        (["training.global_batch_size=6", "training.local_batch_size=2"], {"NGPU": 2}, "2 data ranks"),
        (["training.global_batch_size=2", "training.local_batch_size=4"], {"NGPU": 1}, "training.local_batch_size=4"),
        (["training.global_batch_size=0"], {"NGPU": 1}, "must be greater than 0, or -1")):
    dump = place.new_dump()
    code, out, errors = place.run(dump, MODEL + options, **environment)
    place.check(code == 2 and text in out + errors, f"{options}: exit code 2 and \"{text}\", not {code}", out + errors)
    place.check(not place.rows(dump), f"{options}: nothing was trained")

# a rate that breaks the model: the run goes on, says so once although only step 1 and the 4th are logged, and the rows hold what is not a number
dump = place.new_dump()
code, out, errors = place.run(dump, MODEL + ["training.steps=8", "metrics.log_freq=4", "checkpoint.enable=true", "checkpoint.interval=8",
                                             "optimizer.lr=1e6", "optimizer.weight_decay=1e6", "lr_scheduler.warmup_steps=0"], NGPU=2)
text = out + errors
rows = {row["step"]: row for row in place.rows(dump)}
place.check(code == 0 and sorted(rows) == [1, 4, 8], f"a run that is not finite ends as usual, exit code {code}", text)
place.check(rows.get(8, {}).get("loss_metrics/global_avg_loss") in ("NaN", "Infinity"), "its loss is shown as what it is", json.dumps(rows))
place.check("loss: NaN" in text or "loss: Inf" in text, "on the console too", text)
place.check(text.count("is not finite") == 1 and "step 8: the loss" not in text, "it is told once, when it begins", text)
place.check('"healthy":false' in "".join(path.read_text() for path in dump.glob("checkpoint/step-8/manifest.json")), "its checkpoint is marked")

place.close()

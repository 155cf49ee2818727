#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# timeout: 1500
"""The preset for continuous integration, as it stands: 200 steps on two ranks show the losses they always did, amid those of other seeds.

usage: test_ci_preset.py                    a run of the preset's own seed, held against tests/golden/ci_preset.json
       test_ci_preset.py --measure SEED...  runs the preset and those seeds, and writes that file (some minutes each)

The own seed's figures must be met to 0.001: kernels for AVX2 and AVX-512 differ by 1e-6 after 200 steps, a wrong gradient, schedule or order
of the data by far more. A change that is meant to alter numbers measures anew, and then the bands tell whether the new figures are still
those of the same training: the mean of the seeds and four of their standard deviations to both sides.
"""
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import e2e  # noqa: E402

BANDS = e2e.ROOT / "tests/golden/ci_preset.json"
STEPS = 200


def figures(place, *arguments):
    """{name: loss} of a run."""
    dump = place.new_dump()
    code, out, errors = place.run(dump, ["--config", "llama3_debugmodel_ci", "comm.train_timeout_seconds=600", *arguments], seconds=1400)
    if not place.check(code == 0, f"the preset runs, not exit code {code}", out[-1500:] + errors[-1500:]):
        place.close()
    losses = [(point[0], point[1]) for point in place.curve(dump)]
    place.check([step for step, _ in losses] == [1, *range(10, STEPS + 1, 10)], "it logs step 1 and every tenth", str(losses))
    return {"first": losses[0][1], "step 50": dict(losses)[50], "step 100": dict(losses)[100], "last": losses[-1][1],
            "mean of the last five rows": statistics.fmean(loss for _, loss in losses[-5:])}


def measure(place, seeds):
    runs, own = {}, figures(place)
    for seed in seeds:
        runs[seed] = figures(place, f"debug.seed={seed}")
        print(seed, runs[seed], flush=True)
    bands = {}
    for name in next(iter(runs.values())):
        values = [run[name] for run in runs.values()]
        margin = 4 * statistics.stdev(values)
        bands[name] = [round(statistics.fmean(values) - margin, 4), round(statistics.fmean(values) + margin, 4)]
    text = {"made by": f"tests/long/test_ci_preset.py --measure {' '.join(seeds)}", "own": own, "runs": runs, "bands": bands}
    BANDS.write_text(json.dumps(text, indent=1) + "\n")


e2e.need("train")
if not pathlib.Path("/usr/share/games/fortunes").is_dir():
    e2e.skip("the preset's text is not installed (package fortunes)")
place = e2e.Place()
if sys.argv[1:2] == ["--measure"]:
    measure(place, sys.argv[2:])
else:
    shown = figures(place)
    print(shown)
    golden = json.loads(BANDS.read_text())
    for name, (low, high) in golden["bands"].items():
        place.check(abs(shown[name] - golden["own"][name]) <= 0.001, f"loss, {name}: {shown[name]:.4f} is {golden['own'][name]:.4f}")
        place.check(low <= shown[name] <= high, f"loss, {name}: {shown[name]:.4f} lies in {low} .. {high}")
place.close()

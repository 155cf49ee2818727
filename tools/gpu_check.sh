#!/bin/bash
# SPDX-License-Identifier: MIT
#
# usage: tools/gpu_check.sh [RESULTS]        RESULTS: a folder, default gpu_results
#
# Everything about a real GPU that the simulator cannot tell, in at most 8 minutes on one H200: the tests of tests/cuda
# on the device, compute-sanitizer over the kernels where it runs, kernels against their bounds, then blocks of 1B, 3B and
# 8B width beside the same model in PyTorch, eager and compiled, in turn. Runs in the folder that `make gpu-bundle` made,
# or in the tree after `make`. RESULTS/gpu_check.jsonl has a line for each section, and for each measurement; logs lie
# beside it. Ends with a line "N passed, N failed, N skipped" of sections; exit 1 when one failed.
#
# CTITAN_GPU_PYTHON   python with PyTorch, default python3; without PyTorch ctitan is measured alone
# CTITAN_GPU_SECONDS  the time for all of it, default 480
# CTITAN_CUDA=simulator rehearses it on the simulator: tiny models, no sanitizer, no peer
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 2
results=$(realpath -m "${1:-gpu_results}")
build=build/release
python=${CTITAN_GPU_PYTHON:-python3}
budget=${CTITAN_GPU_SECONDS:-480}
rehearsal=0
[[ ${CTITAN_CUDA:-real} != simulator ]] || rehearsal=1
mkdir -p "$results"
out=$results/gpu_check.jsonl
: >"$out"
SECONDS=0 passed=0 failed=0 skipped=0

# ---- libraries: the bundle's own, then CUDA's: a toolkit's folder, or the packages that python has ----
libraries=$PWD/lib
for folder in /usr/local/cuda/lib64 ${CUDA_HOME:+"$CUDA_HOME/lib64"}; do
    [[ ! -d $folder ]] || libraries+=:$folder
done
packages=$("$python" -c 'import glob, nvidia
print(":".join(sorted(f for p in nvidia.__path__ for f in glob.glob(p + "/*/lib"))))' 2>/dev/null || true)
export LD_LIBRARY_PATH=$libraries${packages:+:$packages}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CTITAN_CUDA=real
if ((rehearsal)); then
    export CTITAN_CUDA=simulator LD_LIBRARY_PATH=$PWD/$build/cudasim:$LD_LIBRARY_PATH
fi

# section NAME SECONDS COMMAND...: runs it within its time and what is left of all; its output goes into NAME.log, lines
# of it that are JSON also into the results. Exit code 77 is a skip.
section() {
    local name=$1 limit=$2 start=$SECONDS code left=$((budget - SECONDS)) verdict
    shift 2
    ((limit <= left)) || limit=$left
    if ((limit < 5)); then
        code=77
        echo "no time is left" >"$results/$name.log"
    else
        timeout -k 5 "$limit" "$@" >"$results/$name.log" 2>&1
        code=$?
    fi
    case $code in
    0) verdict=passed passed=$((passed + 1)) ;;
    77) verdict=skipped skipped=$((skipped + 1)) ;;
    *) verdict=failed failed=$((failed + 1)) ;;
    esac
    grep -h '^{' "$results/$name.log" | sed "s/^{/{\"section\": \"$name\", /" >>"$out"
    printf '{"section": "%s", "verdict": "%s", "exit": %d, "seconds": %d}\n' "$name" "$verdict" "$code" \
        $((SECONDS - start)) | tee -a "$out"
    [[ $verdict == passed ]] || tail -n 15 "$results/$name.log"
    return "$code"
}

# ---- what machine ----
facts() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm --format=csv || return 77
    nvcc --version | tail -2
    "$python" -c 'import torch; print("torch", torch.__version__, torch.cuda.get_device_name())' || true
}

# ---- ctitan on the model's shape: tokens per second, MFU, memory planned and measured ----
# train NAME STEPS BATCH SEQ OPTION...
train() {
    local name=$1 steps=$2 batch=$3 seq=$4
    shift 4
    rm -rf "$results/run_$name"
    "$build/ctitan" train --config llama3_debugmodel "$@" device.kind=cuda job.dump_folder="$results/run_$name" \
        training.dataset='[docs]' training.dataset_exclude='[]' training.document_separator='' \
        training.steps="$steps" training.local_batch_size="$batch" training.global_batch_size="$batch" \
        training.seq_len="$seq" training.mixed_precision_param=bfloat16 metrics.log_freq=1 || return 1
    "$python" - "$results/run_$name" "$name" <<'END'
import json, pathlib, statistics, sys

folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
rows = [json.loads(line) for path in folder.rglob("run.jsonl") for line in path.read_text().splitlines()]
last = {}
for row in rows:
    for key, value in row.items():
        if isinstance(value, (int, float)):
            last.setdefault(key, []).append(value)
# the first two steps choose plans and warm the caches
print(json.dumps({"name": name, "of": "ctitan", "rows": len(rows),
                  **{key: round(statistics.median(values[2:] or values), 6) for key, values in last.items()}}))
END
}

peer() {
    "$python" -c 'import torch' 2>/dev/null || return 77
    "$python" bench/peers/llama_torch.py --device cuda --dtype bfloat16 "$@"
}

sanitizer() {
    local tool
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || return 77
    "$tool" --error-exitcode 9 "$@"
}

((rehearsal)) || section facts 20 facts
section tests 150 "$python" tools/run_tests --build "$build" tests/cuda
if ((!rehearsal)); then
    section memcheck 45 bash -c "$(declare -f sanitizer); sanitizer --tool memcheck $build/tests/cuda/test_kernels"
    section racecheck 45 bash -c "$(declare -f sanitizer); sanitizer --tool racecheck $build/tests/cuda/test_kernels"
fi
if ((rehearsal)); then
    section kernels 100 env CUDASIM_DATA=0 CUDASIM_MEMORY=40G "$build/bench/bench_gpu_kernels" --tokens 32 --elements 65536 --kernel e
else
    section kernels 60 "$build/bench/bench_gpu_kernels"
fi
export -f train peer
export results build python
if ((rehearsal)); then
    section tiny 120 bash -c 'train tiny 3 1 32 model.dim=64 model.n_layers=2 model.n_heads=2 model.n_kv_heads=1 model.ffn_dim=128'
else
    # name, layers, batch: as much of each as one step of a second needs
    while read -r name layers batch; do
        flavor=${name^^}
        section "ctitan_$name" 40 bash -c "train $name 12 $batch 8192 model.flavor=$flavor model.n_layers=$layers"
        section "eager_$name" 40 bash -c "peer --model $name --layers $layers --batch $batch --seq 8192 --steps 10"
        section "compiled_$name" 75 bash -c "peer --model $name --layers $layers --batch $batch --seq 8192 --steps 10 --compile"
    done <<<"1b 16 2
3b 8 2
8b 4 2"
fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))

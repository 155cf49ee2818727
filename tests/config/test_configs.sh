#!/bin/bash
# SPDX-License-Identifier: MIT
# The program's side of configurations: the shipped ones are good, exit codes, output where it belongs, names found from anywhere.
set -u
unset CONFIG MODULE
root=$PWD
ctitan=$(realpath "$BUILD/ctitan")
work=$(mktemp -d "${TMPDIR:-/tmp}/ctitan-XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }

expect() { # CODE ARGUMENT... : exit code of `ctitan config`, output in $work/out and $work/err
    local code=$1
    shift
    "$ctitan" config "$@" >"$work/out" 2>"$work/err"
    local got=$?
    ((got == code)) || fail "ctitan config $*: exit code $got, not $code: $(cat "$work/err")"
}

for file in configs/*.yaml; do
    name=$(basename "$file" .yaml)
    expect 0 check --config "$name"
    [[ -s $work/err ]] && fail "check --config $name writes to stderr: $(cat "$work/err")"
    expect 0 print --config "$file"
    "$ctitan" config print --config "$file" >"$work/$name.yaml"
    expect 0 print --config "$work/$name.yaml"
    diff <(sed 's/ *#.*//' "$work/$name.yaml") <(sed 's/ *#.*//' "$work/out") >&2 || fail "print of $name does not read back"
done

# a debug model can be trained by this build
for name in llama3_debugmodel llama3_debugmodel_ci llama3_debugmodel_docs llama3_1b llama3_3b; do
    expect 0 check --config "$name"
    grep -q refuse "$work/out" && fail "$name needs what is not built: $(cat "$work/out")"
done
expect 0 check --config llama3_70b
grep -q '^parallelism.tensor_parallel_degree=8 (configs/llama3_70b.yaml:[0-9]*:[0-9]*): not built yet: tensor parallelism$' "$work/out" ||
    fail "check does not list what is not built: $(cat "$work/out")"

# a name is found beside the program from any folder
cd "$work" || exit 1
expect 0 print --config llama3_debugmodel training.steps=7
grep -q '^  steps: 7 *# argument 3$' "$work/out" || fail "print shows no origin: $(grep steps: "$work/out")"
cd "$root" || exit 1

expect 2 check trainig.steps=1 metrics.log_freq=0
[[ -s $work/out ]] && fail "problems are on stdout"
grep -q 'did you mean training.steps' "$work/err" || fail "no nearest key"
grep -q 'metrics.log_freq must be greater than 0\.$' "$work/err" || fail "only the first problem is told"
expect 2 check --config none
expect 2
expect 2 frobnicate
expect 0 check --help
grep -q 'training.local_batch_size' "$work/out" || fail "--help does not list options"
expect 0 docs
grep -q '^| .local_batch_size. |' "$work/out" || fail "docs has no table"
"$ctitan" config docs >/dev/full 2>/dev/null && fail "a full disk is no error"

# bytes pass through the shell and the program unchanged
expect 0 print 'job.description=a=b 50% #1, x:y "模型"'
grep -qF 'description: "a=b 50% #1, x:y \"模型\""' "$work/out" || fail "description: $(grep description "$work/out")"
exit $failed

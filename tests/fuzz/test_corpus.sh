#!/bin/bash
# SPDX-License-Identifier: MIT
# Every fuzz target runs its corpus: the seeds, and the inputs that once broke it.
set -eu
n=0
for source in tests/fuzz/fuzz_*.c; do
    name=${source##*/fuzz_}
    name=${name%.c}
    [[ -e $source ]] || { echo "no fuzz targets"; exit 77; }
    "$BUILD/tests/fuzz/fuzz_$name" "tests/fuzz/corpus/$name" || { echo "fuzz_$name fails on its corpus"; exit 1; }
    n=$((n + 1))
done
echo "$n targets"

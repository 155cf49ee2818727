#!/bin/bash
# SPDX-License-Identifier: MIT
# ctitan config from outside: what check finds is what train would refuse, also where only the model's rules are broken.
set -u
program=$BUILD/ctitan
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

says() { # CODE TEXT ARGUMENTS...: ctitan exits with the code and says the text
    local code=$1 text=$2
    shift 2
    "$program" "$@" >"$folder/said" 2>&1 </dev/null
    local got=$?
    if [[ $got != "$code" ]] || ! grep -qF -- "$text" "$folder/said"; then
        echo "FAILED: $* exits $got, says: $(cat "$folder/said")"
        failures=$((failures + 1))
    fi
}

says 0 "no problems" config check
for verb in "config check" "train"; do
    read -ra command <<<"$verb"
    says 2 "model.flavor=9B: llama3 has debugmodel, 1B, 3B, 8B, 70B, 405B; did you mean 1B?" "${command[@]}" model.flavor=9B
    says 2 "model.name=gpt9: this build has the family llama3" "${command[@]}" model.name=gpt9
    says 2 "model.dim=100 must be a multiple of model.n_heads=16" "${command[@]}" model.dim=100
    says 2 "training.sequence_len" "${command[@]}" training.sequence_len=5
done
says 0 'flavor: 9B' config print model.flavor=9B # print shows what was asked for, whether or not it can be built
for line in "config check" "config print" "config docs" "config --help" "train --help" "--help" "--version" "data --help" "checkpoint --help" "tokenizer --help"; do
    read -ra command <<<"$line"
    "$program" "${command[@]}" >/dev/full 2>"$folder/said"
    if [[ $? != 1 ]] || ! grep -q "cannot write to standard output: No space left" "$folder/said"; then
        echo "FAILED: $line on a full disk says: $(cat "$folder/said")"
        failures=$((failures + 1))
    fi
done
exit $((failures > 0))

#!/bin/bash
# SPDX-License-Identifier: MIT
# ctitan data prepare|show: makes the cache once, shows what is in it, and says what is wrong.
set -eu
folder=$(mktemp -d "${TMPDIR:-/tmp}/ctitan-test-XXXXXX")
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache
ctitan=$PWD/$BUILD/ctitan
cd "$folder"

fail() { echo "$*"; exit 1; }
expect() { # PATTERN COMMAND...: the command's output holds the pattern
    local pattern=$1 output
    shift
    output=$("$@" 2>&1) || true
    grep -q -- "$pattern" <<<"$output" || fail "no '$pattern' in the output of $*: $output"
}
code() { # CODE COMMAND...
    local want=$1 got=0
    shift
    "$@" >/dev/null 2>&1 || got=$?
    ((got == want)) || fail "exit code $got instead of $want: $*"
}

for i in $(seq 300); do printf 'text number %d of some words\n%%\n' "$i"; done >text
printf '{"text":"of validation"}\n{"text":null}\n' >v.jsonl
options=(training.dataset=text training.document_separator=% training.tokenizer_vocab_size=280 training.seq_len=16)

expect 'training: made, .* samples of 16 tokens' "$ctitan" data prepare "${options[@]}"
expect 'training: ready' "$ctitan" data prepare "${options[@]}"
expect 'documents *300 in 1 files' "$ctitan" data show "${options[@]}"
expect 'vocabulary *280' "$ctitan" data show "${options[@]}"
expect 'checksum is right' "$ctitan" data show --verify "${options[@]}"
expect 'begin_of_text|>text number 1 ' "$ctitan" data show --sample 0 "${options[@]}" training.shuffle=false training.tokenizer=byte training.seq_len=20

# validation takes the tokenizer of the training data, and reads all of its text
options+=(validation.enable=true validation.dataset=v.jsonl validation.seq_len=64)
expect 'skipped *1 documents: text field is not a string' "$ctitan" data show "${options[@]}"
expect '^  samples *1 of 64 tokens in an epoch$' "$ctitan" data show "${options[@]}"
(($("$ctitan" data show "${options[@]}" | grep -c 'vocabulary.*tokenizer-') == 2)) || fail "two vocabularies"
(($(find cache -name 'tokenizer-*.json' | wc -l) == 1)) || fail "not one tokenizer"

# bytes changed in the cache
cache=$("$ctitan" data show "${options[@]}" | sed -n 's/^  cache *//p' | head -n 1)
printf '\1' | dd of="$cache" bs=1 seek=200 conv=notrunc status=none
expect 'does not match its checksum' "$ctitan" data show --verify "${options[@]}"

expect 'tokens, which is not one sample' "$ctitan" data prepare "${options[@]}" training.seq_len=100000
expect "data source 'nothing\*'" "$ctitan" data prepare training.dataset='nothing*'
code 0 "$ctitan" data --help
code 2 "$ctitan" data
code 2 "$ctitan" data prepare --sample 1
code 2 "$ctitan" data show --sample
code 2 "$ctitan" data show --sample x
code 2 "$ctitan" data prepare training.seq_len=x
code 1 "$ctitan" data show --sample 100000 "${options[@]}"

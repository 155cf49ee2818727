#!/bin/bash
# SPDX-License-Identifier: MIT
# ctitan tokenizer from outside: train, encode, decode, their help, and what they say when something is wrong.
set -u
program=$BUILD/ctitan
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

check() { # WHAT COMMAND...: the command must succeed
    local what=$1
    shift
    "$@" || { echo "FAILED: $what"; failures=$((failures + 1)); }
}

refuses() { # CODE TEXT ARGUMENTS...: ctitan tokenizer exits with the code, a message with the text, and nothing on stdout
    local code=$1 text=$2
    shift 2
    "$program" tokenizer "$@" >"$folder/out" 2>"$folder/err" </dev/null
    local got=$?
    if [[ $got != "$code" || -s $folder/out ]] || ! grep -qF -- "$text" "$folder/err"; then
        echo "FAILED: tokenizer $* exits $got, says: $(cat "$folder/err")"
        failures=$((failures + 1))
    fi
}

text=tests/golden/tokenizer/train.txt
file=$folder/t.json
check "train" "$program" tokenizer train --vocab-size 702 --separator % --output "$file" $text 2>"$folder/err"
check "train says what it made" grep -q "702 tokens from 420 documents in 1 file" "$folder/err"
check "train gives the committed file" cmp "$file" tests/golden/tokenizer/ctitan.json
check "train in another order of options" "$program" tokenizer train $text --output="$folder/u.json" --vocab-size=300 --pattern gpt2 2>/dev/null

for tokenizer in byte "$file" "$folder/u.json"; do
    { cat $text; printf 'bytes \377\300\200 and \000 \360\237\230'; } >"$folder/in"
    "$program" tokenizer encode "$tokenizer" "$folder/in" >"$folder/ids"
    "$program" tokenizer decode "$tokenizer" "$folder/ids" >"$folder/back"
    check "round trip with $tokenizer" cmp "$folder/in" "$folder/back"
    check "standard input and output" cmp <("$program" tokenizer encode "$tokenizer" <"$folder/in" | "$program" tokenizer decode "$tokenizer") "$folder/in"
done
check "bytes" [ "$(printf 'Hi' | "$program" tokenizer encode byte)" = "72 105" ]
check "special text is text" [ "$(printf '<|end_of_text|>' | "$program" tokenizer encode byte | wc -w)" = 15 ]
check "special text when asked" [ "$(printf '<|end_of_text|>' | "$program" tokenizer encode --special byte)" = 257 ]
check "no text" [ -z "$("$program" tokenizer encode byte </dev/null)" ]
for verb in "" train encode decode; do
    # shellcheck disable=SC2086
    check "help of $verb" grep -q "usage: ctitan tokenizer $verb" <("$program" tokenizer $verb --help)
done

refuses 2 "usage: ctitan tokenizer"
refuses 2 '"learn" is not train, encode or decode' learn
refuses 2 "needs --vocab-size" train --output "$folder/x" $text
refuses 2 "--vocab-size needs a value" train --vocab-size
refuses 2 '"12k"' train --vocab-size 12k --output "$folder/x" $text
refuses 2 "unknown option --vocab" train --vocab 300 --output "$folder/x" $text
refuses 2 "gpt5" train --vocab-size 300 --pattern gpt5 --output "$folder/x" $text
refuses 2 "is a folder" train --vocab-size 300 --output "$folder/x" tests
refuses 1 "ask for" train --vocab-size 100000 --output "$folder/x" $text
refuses 1 "No such file" train --vocab-size 300 --output "$folder/x" "$folder/none"
refuses 1 "No such file" train --vocab-size 300 --output "$folder/none/x" $text
refuses 2 "needs a tokenizer" encode
refuses 2 "--special takes no value" encode --special=yes byte
refuses 2 "unknown option --special" decode --special byte
refuses 1 "No such file" encode "$folder/none.json"
refuses 1 "is not JSON" encode $text
echo "1 2 x3" >"$folder/bad"
refuses 1 '"x3' decode byte "$folder/bad"
echo "1 258" >"$folder/bad"
refuses 1 "token 1 is 258" decode byte "$folder/bad"
echo "99999999999999999999" >"$folder/bad"
refuses 1 "not a token id" decode byte "$folder/bad"
"$program" tokenizer encode byte "$folder/in" >/dev/full 2>"$folder/err"
check "a full disk" grep -q "cannot write to standard output" "$folder/err"
[[ ! -e $folder/x ]] || { echo "FAILED: a refused command left a file"; failures=$((failures + 1)); }
exit $((failures > 0))

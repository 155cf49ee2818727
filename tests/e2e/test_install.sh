#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
# What `make install` puts under a prefix trains, in a folder that is no clone, with two ranks and by name of a configuration; what it put
# there `make uninstall` takes away.
set -u
command -v mpirun >/dev/null || { echo "mpirun is not installed"; exit 77; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/ctitan-install-XXXXXX")
trap 'rm -rf "$folder"' EXIT
prefix="$folder/a prefix"
failures=0

expect() { # WHAT COMMAND...
    mv -f "$folder/out" "$folder/before" 2>/dev/null
    "${@:2}" >"$folder/out" 2>&1 && return
    echo "does not hold: $1"
    tail -n 20 "$folder/out"
    failures=$((failures + 1))
}

expect "install" tools/install_to "$prefix" "${BUILD:?}"
mkdir "$folder/elsewhere"
cd "$folder/elsewhere" || exit 1
unset CTITAN_PROGRAM CONFIG MODULE LOG_RANK COMM_MODE HOSTFILE NNODES
export XDG_CACHE_HOME=$folder/cache PATH="$prefix/bin:$PATH"
expect "the script trains with two ranks" env NGPU=2 ctitan-run training.steps=2 training.seq_len=32 training.local_batch_size=1 --checkpoint.enable
expect "the second step is shown" grep -q 'step:  *2 ' "$folder/before"
expect "outputs lie where the command was given" test -f outputs/run.jsonl
expect "ctitan reads what was saved" ctitan checkpoint verify outputs
expect "a configuration is found by its name" ctitan config check --config llama3_8b
expect "--version" ctitan-run --version
cd "$OLDPWD" || exit 1
expect "uninstall" tools/install_to --remove "$prefix" "$BUILD"
expect "nothing is left" test -z "$(find "$prefix" ! -type d)"
exit $((failures > 0))

#!/bin/bash
# SPDX-License-Identifier: MIT
# How jobs end: quietly when all is well; within seconds, with the guilty rank's name and no process left, when a rank fails, exits, hangs
# or is killed, or when mpirun is killed. Each on one host and as two.
set -u
program=$(realpath "${BUILD:?}/tests/mpi/test_comm")
[ -x "$program" ] || { echo "$program is not built"; exit 1; }
command -v mpirun >/dev/null || { echo "mpirun is not installed"; exit 77; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/ctitan-ends-XXXXXX")
trap 'rm -rf "$folder"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    sed 's/^/    /' "$folder/out" "$folder/err"
    failures=$((failures + 1))
}

launch() { exec timeout 30 mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$@"; }

# process numbers that the ranks of the last job printed, those that still run
left_over() {
    sed -n 's/^running [0-9]* //p' "$folder/out" | while read -r pid; do
        kill -0 "$pid" 2>/dev/null && grep -q test_comm "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
    done
}

# expect NAME TEXT: the job is over, TEXT is in its output, the ranks are gone within 3 s
expect() {
    local tries=0
    grep -q -- "$2" "$folder/out" "$folder/err" || fail "$1: \"$2\" was not said"
    while [ -n "$(left_over)" ] && [ $tries -lt 30 ]; do sleep 0.1; tries=$((tries + 1)); done
    [ -z "$(left_over)" ] || fail "$1: these ranks still run: $(left_over)"
}

wait_until_running() { # RANKS
    local tries=0
    while [ "$(grep -c '^running' "$folder/out")" -lt "$1" ] && [ $tries -lt 100 ]; do sleep 0.05; tries=$((tries + 1)); done
}

for ranks in 1 2 4; do
    (launch "$ranks" "$program" end) >"$folder/out" 2>"$folder/err" || fail "good end with $ranks ranks: exit code $?"
    [ ! -s "$folder/err" ] || fail "good end with $ranks ranks: stderr is not empty"
done

for hosts in 0 3 2x x; do
    (CTITAN_MPI_HOSTS=$hosts launch 2 "$program" end) >"$folder/out" 2>"$folder/err" && fail "CTITAN_MPI_HOSTS=$hosts: exit code 0"
    expect "CTITAN_MPI_HOSTS=$hosts" "CTITAN_MPI_HOSTS=$hosts: want a number"
done

# a start without memory: before and after the rank has taken its lock on memory of the host
held=0
for n in 9 10 11 12; do
    (CTITAN_MPI_HOSTS=1 launch 2 "$program" poor $n) >"$folder/out" 2>"$folder/err" && fail "start without allocation $n: exit code 0"
    expect "start without allocation $n" "out of memory"
    grep -qi 'segmentation\|signal 11' "$folder/err" && fail "start without allocation $n: its lock is gone"
    grep -q '(1 locks are held)' "$folder/err" && held=$((held + 1))
done
[ $held -gt 0 ] || fail "no start without memory came as far as its lock"

for hosts in 1 2; do
    export CTITAN_MPI_HOSTS=$hosts
    (launch 3 "$program" end) >"$folder/out" 2>"$folder/err" || fail "good end on $hosts hosts: exit code $?"
    [ ! -s "$folder/err" ] || fail "good end on $hosts hosts: stderr is not empty"

    for action in fail exit hang; do
        (launch 3 "$program" loop 1 $action) >"$folder/out" 2>"$folder/err" && fail "$action on $hosts hosts: exit code 0"
        case $action in
        fail) expect "$action on $hosts hosts" "rank 1: planted failure" ;;
        # or mpirun was faster
        exit) expect "$action on $hosts hosts" 'rank 1 died\|Process name: \[\[[0-9]*,1\],1\]' ;;
        hang) expect "$action on $hosts hosts" "rank 1 .*within 2 s" ;;
        esac
        # the failing rank speaks, and nobody repeats it
        [ $action != fail ] || [ "$(grep -c '^rank' "$folder/err")" = 1 ] || fail "other ranks spoke too"
    done

    : >"$folder/out" # before the job starts: what it says is waited for
    (launch 3 "$program" loop) >"$folder/out" 2>"$folder/err" &
    job=$!
    wait_until_running 3
    kill -KILL "$(sed -n 's/^running 2 //p' "$folder/out")"
    wait $job && fail "kill of a rank on $hosts hosts: exit code 0"
    # its neighbours say so, unless mpirun was faster to end them: then it is mpirun that names the rank
    expect "kill of a rank on $hosts hosts" 'rank 2 died\|process rank 2 .* signal 9'

    : >"$folder/out"
    (exec mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 "$program" loop) >"$folder/out" 2>"$folder/err" &
    job=$!
    wait_until_running 3
    kill -KILL $job
    wait $job 2>/dev/null
    expect "kill of mpirun on $hosts hosts" "running 0"
done
[ $failures = 0 ]

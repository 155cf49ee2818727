#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: stop.sh DIR     ends the daemons that start.sh started there, and waits until they are gone
set -u
pids=()
for file in "$1"/run/*.pid; do
    [[ -e $file ]] && pids+=("$(cat "$file")")
done
((${#pids[@]} > 0)) || exit 0
kill "${pids[@]}" 2>/dev/null
for pid in "${pids[@]}"; do
    for ((tries = 50; tries > 0; tries--)); do
        # gone, or dead and not yet collected by whoever should
        [[ -d /proc/$pid && $(cut -d ' ' -f 3 "/proc/$pid/stat" 2>/dev/null) != Z ]] || continue 2
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null
done
exit 0

#!/bin/bash
# SPDX-License-Identifier: MIT
# The checks of test_comm with the ranks of this machine acting as two, three and four hosts: messages instead of shared memory.
set -u
program=${BUILD:?}/tests/mpi/test_comm
[ -x "$program" ] || { echo "$program is not built"; exit 1; }
command -v mpirun >/dev/null || { echo "mpirun is not installed"; exit 77; }

for job in "2 2" "4 2" "4 3" "4 4"; do
    read -r ranks hosts <<<"$job"
    CTITAN_MPI_HOSTS=$hosts timeout 60 mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$ranks" "$program" ||
        { echo "failed with $ranks ranks as $hosts hosts"; exit 1; }
done

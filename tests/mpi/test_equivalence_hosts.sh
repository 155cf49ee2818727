#!/bin/bash
# SPDX-License-Identifier: MIT
# The equivalence of processes and threads once more with four ranks that act as two hosts: what crosses hosts goes through MPI.
set -eu
CTITAN_MPI_HOSTS=2 exec mpirun --allow-run-as-root --oversubscribe --bind-to none -n 4 "$BUILD/tests/mpi/test_equivalence"

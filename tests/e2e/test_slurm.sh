#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 180
# The batch script on a Slurm of two nodes on this machine: warned, the ranks save one step, the job goes back into the queue and resumes.
set -u
program=$PWD/$BUILD/ctitan
"$program" --help 2>/dev/null | grep -q '^ *train ' || { echo "this build has no \`ctitan train\`"; exit 77; }
for command in slurmctld slurmd sbatch munged; do
    command -v "$command" >/dev/null || { echo "$command is not installed (packages slurm-wlm, munge)"; exit 77; }
done
case $(stat -f -c %T /sys/fs/cgroup 2>/dev/null) in
tmpfs | cgroup2fs) ;;
*) echo "slurmd needs a file system of control groups at /sys/fs/cgroup"; exit 77 ;;
esac
((EUID == 0)) || { echo "starting a Slurm needs root"; exit 77; }

work=$(mktemp -d "${TMPDIR:-/tmp}/ctitan-slurm.XXXXXX")
export SLURM_CONF=$work/slurm/slurm.conf
job=

# shellcheck disable=SC2317 # called by trap
clean() {
    [[ -z $job ]] || scancel "$job" 2>/dev/null
    for ((i = 0; i < 60; i++)); do
        [[ -z $(squeue -h 2>/dev/null) ]] && break
        sleep 0.5
    done
    tests/support/slurm/stop.sh "$work/slurm"
    rm -rf "$work"
}
trap clean EXIT

fail() {
    echo "$1"
    cat "$work/log" 2>/dev/null
    tail -n 20 "$work"/slurm/log/d-*.log
    exit 1
}

# wait_until SECONDS WHAT COMMAND...
wait_until() {
    local end=$((SECONDS + $1))
    until "${@:3}"; do
        ((SECONDS < end)) || fail "within $1 s it did not come to this: $2"
        sleep 0.2
    done
}

last_step() {
    sed -n 's/.*"step": *\([0-9]*\).*/\1/p' "$work/out/run.jsonl" 2>/dev/null | tail -n 1
}
has_step() { # STEP
    (($(last_step || echo 0) + 0 >= $1))
}
is_queued_again() {
    [[ $(squeue -h -j "$job" -o '%t %r') == 'PD BeginTime' ]]
}
# the daemons still hold the former start's steps for a moment, and a new one that comes too early fails to launch
steps_are_gone() {
    ! grep -qsa "slurmstepd: \[$job\." /proc/[0-9]*/cmdline
}
newest_checkpoint() {
    find "$work/out/checkpoint" -maxdepth 1 -name 'step-*' -printf '%f\n' 2>/dev/null | sed 's/step-//' | sort -n | tail -n 1
}

tests/support/slurm/start.sh "$work/slurm" || { cat "$work"/slurm/log/*; exit 1; }
export CTITAN_PROGRAM=$program XDG_CACHE_HOME=$work/cache OMPI_MCA_btl=tcp,self
job=$(sbatch --parsable --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --time=10 --output="$work/log" configs/slurm/train.sbatch \
    --config llama3_debugmodel training.seq_len=32 training.local_batch_size=1 training.steps=1000000 metrics.log_freq=1 \
    --checkpoint.enable checkpoint.interval=1000000 job.dump_folder="$work/out") || fail "sbatch failed"

wait_until 60 "step 3" has_step 3
scancel --signal=USR1 --batch "$job"
wait_until 60 "the job waits in the queue again" is_queued_again
saved=$(newest_checkpoint)
[[ -n $saved && $saved == $(last_step) ]] || fail "the checkpoint is of step ${saved:-none}, the last row of step $(last_step)"

for ((i = 0; i < 50; i++)); do
    steps_are_gone && break
    sleep 0.2
done
sleep 1
scontrol update jobid="$job" StartTime=now # Slurm would hold it for two minutes
wait_until 60 "a step after the saved one" has_step $((saved + 2))
steps=$(sed -n 's/.*"step": *\([0-9]*\).*/\1/p' "$work/out/run.jsonl")
[[ $(sort -n <<<"$steps" | uniq -d) == "" ]] || fail "steps were logged twice"
grep -q 'back into the queue (restart 1 of' "$work/log" || fail "the log does not tell of the restart"

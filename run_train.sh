#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Trains a model: installs and builds what is missing, prepares the text, then starts the ranks of `ctitan train` under mpirun.
# `./run_train.sh --help` lists what it takes. It ends with 0 done, 1 failure, 2 usage or configuration, 75 stopped on request with a
# checkpoint (start again to go on).
#
# How a run is stopped: mpirun answers TERM and INT with KILL to its ranks two seconds later, too soon for a checkpoint. So this script
# keeps mpirun in a session of its own, takes the signals itself, and sends USR1, which mpirun hands on to every rank.
# shellcheck disable=SC2317 # traps call functions
set -u

usage() {
    cat <<'TEXT'
usage: ./run_train.sh [--config NAME|PATH] [section.key=value ...] [--section.key value ...]

  NAME is a file of configs/ without its .yaml (default: llama3_debugmodel). Options may be given in any of the forms
  section.key=value, --section.key=value, --section.key value, --section.flag, --section.no-flag; the last one given wins.
  `ctitan config docs` explains every option, `ctitan config print` shows where each value comes from.

Environment:
  NGPU       ranks on this host (default: the GPUs found, else 2 on a CPU with two or more cores)
  CONFIG     as --config              MODULE    as model.name
  LOG_RANK   ranks whose lines are shown here, as 0 or 0,3 (default 0); every rank's lines are in <dump_folder>/logs/
  COMM_MODE  fake_backend: one process plays rank RANK (default 0) of NGPU for one step, a dry run
             local_tensor: the NGPU ranks are threads of one process
  HOSTFILE   hosts to train on, one a line, NGPU ranks on each;  NNODES  how many of them (default: all)
  CTITAN_PROGRAM   the ctitan to run; nothing is installed or built then
TEXT
}

say() {
    echo "run_train.sh: $*" >&2
}

fail() { # CODE TEXT...
    say "${@:2}"
    exit "$1"
}

# ---- what is missing: packages, then the program ----

find_program() {
    program=${CTITAN_PROGRAM:-}
    [[ -n $program ]] && return
    if [[ ! -f $here/Makefile ]]; then # installed: this script lies in PREFIX/lib/ctitan
        program=$here/../../bin/ctitan
        return
    fi
    program=$here/build/release/ctitan
    [[ $here/build/packages-needed.stamp -nt $here/third_party/packages.txt ]] || "$here/third_party/install" || exit 2
    local stamp=$here/build/release/run_train.stamp
    if [[ -x $program && -f $stamp ]]; then
        local newer
        newer=$(find "$here/Makefile" "$here/src" "$here/kernels" "$here/third_party/proto" -type f -newer "$stamp" -print -quit 2>/dev/null)
        [[ -z $newer ]] && return
    fi
    build "$stamp"
}

build() { # STAMP
    local log=$here/build/make.log lock
    mkdir -p "$here/build/release" || exit 1
    [[ -x $program ]] || say "building ctitan (once; $cores cores)"
    exec {lock}>"$here/build/lock"
    flock "$lock" # two starts at once build once
    # a file saved while make runs must be newer than the stamp, so the stamp is set before
    : >"$1.new"
    env -u MAKEFLAGS -u MAKELEVEL make -s -C "$here" -j "$cores" all </dev/null >"$log" 2>&1 || {
        rm -f "$1.new"
        tail -n 20 "$log" >&2
        fail 1 "the build failed; the whole output is in $log"
    }
    mv "$1.new" "$1"
    exec {lock}>&-
}

# ---- how many ranks, and where ----

# The cores that this process may use, in `cores`; without a fork, and unlike nproc whatever OMP_NUM_THREADS says.
count_cores() {
    local key list range
    cores=0
    while read -r key list; do
        [[ $key == Cpus_allowed_list: ]] || continue
        for range in ${list//,/ }; do
            cores=$((cores + ${range#*-} - ${range%-*} + 1))
        done
    done </proc/self/status
    ((cores > 0)) || cores=1
}

default_ranks() {
    if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then
        local devices
        IFS=, read -ra devices <<<"$CUDA_VISIBLE_DEVICES"
        echo "${#devices[@]}"
        return
    fi
    local gpus
    mapfile -t gpus < <(compgen -G '/dev/nvidia[0-9]*')
    if ((${#gpus[@]} > 0)); then
        echo "${#gpus[@]}"
    else
        echo $((cores >= 2 ? 2 : 1))
    fi
}

count_hosts() {
    [[ -f $HOSTFILE && -r $HOSTFILE ]] || fail 2 "HOSTFILE=$HOSTFILE cannot be read; name a file with one host a line, or unset it"
    awk '!/^[ \t]*(#|$)/ {hosts[$1]} END {for (h in hosts) n++; print n + 0}' "$HOSTFILE"
}

check_ranks() { # NAME VALUE
    [[ $2 =~ ^[0-9]{1,6}(,[0-9]{1,6})*$ ]] || fail 2 "$1=$2 is not a list of ranks, such as 0 or 0,3"
}

check_shown() { # RANKS
    local rank
    for rank in ${LOG_RANK//,/ }; do
        ((10#$rank >= $1)) || return 0
    done
    fail 2 "LOG_RANK=$LOG_RANK shows nothing: the ranks are 0 to $(($1 - 1))"
}

check_number() { # NAME VALUE
    [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || fail 2 "$1=$2 is not a number of at least 1"
}

# The command line of the job, in the array `command`.
compose_command() {
    if [[ -n ${COMM_MODE:-} ]]; then
        case $COMM_MODE in
        fake_backend)
            [[ ${RANK:-0} =~ ^[0-9]{1,6}$ && $((10#${RANK:-0})) -lt $NGPU ]] || fail 2 "RANK=$RANK is not a rank of NGPU=$NGPU: 0 to $((NGPU - 1))"
            arguments+=(--comm.mode=fake_backend training.steps=1)
            ;;
        local_tensor)
            check_shown "$NGPU"
            arguments+=(--comm.mode=local_tensor)
            ;;
        *) fail 2 "COMM_MODE=$COMM_MODE is unknown; it is fake_backend or local_tensor, or not set" ;;
        esac
        command=("$program" train "${arguments[@]}")
        return
    fi
    local hosts=1
    if [[ -n ${HOSTFILE:-} ]]; then
        hosts=$(count_hosts) || exit 2
        ((hosts > 0)) || fail 2 "HOSTFILE=$HOSTFILE names no host; write one a line, or unset it"
    fi
    NNODES=${NNODES:-$hosts}
    check_number NNODES "$NNODES"
    check_shown $((NGPU * NNODES))
    if ((NNODES > 1 && hosts < NNODES)) && [[ -z ${SLURM_JOB_ID:-} ]]; then
        fail 2 "NNODES=$NNODES needs HOSTFILE with as many hosts; ${HOSTFILE:-HOSTFILE is not set, it} names $hosts"
    fi
    if ((NGPU * NNODES == 1)) && [[ -z ${HOSTFILE:-} ]]; then
        command=("$program" train "${arguments[@]}")
        return
    fi
    command -v mpirun >/dev/null || fail 2 "mpirun is not installed (package openmpi-bin); COMM_MODE=local_tensor needs none: its ranks are threads"
    # mpirun starts them one by one, and would go on for hours with what the host cannot hold
    ((NGPU <= 1024)) || fail 2 "NGPU=$NGPU processes on a host are more than 1024; COMM_MODE=fake_backend plays one of that many"
    launcher=(--bind-to none --oversubscribe -n $((NGPU * NNODES)))
    ((EUID == 0)) && launcher+=(--allow-run-as-root)
    if [[ -n ${HOSTFILE:-} ]] || ((NNODES > 1)); then
        launcher+=(--map-by "ppr:$NGPU:node" ${HOSTFILE:+--hostfile "$HOSTFILE"})
        launcher+=(${CONFIG:+-x CONFIG} ${MODULE:+-x MODULE} -x LOG_RANK -x NGPU -x CTITAN_START_STAMP -x CTITAN_TERMINAL -x CTITAN_OUTCOME_FILE)
    else
        # measured for two ranks on one host: these halve the time MPI takes to start
        launcher+=(--mca pml ob1 --mca btl "self,vader")
        export HWLOC_COMPONENTS=${HWLOC_COMPONENTS-no_os,stop}
    fi
    # setpriv: a rank dies with its mpirun, however that died
    command=(mpirun "${launcher[@]}" setpriv --pdeathsig KILL "$program" train "${arguments[@]}")
}

# ---- the running job and its signals ----

catches_usr1() { # PID
    local key value
    while read -r key value; do
        [[ $key == SigCgt: ]] && { (((16#$value >> 9) & 1)) && return 0; return 1; }
    done 2>/dev/null <"/proc/$1/status"
    return 1
}

ranks_here() { # prints the process ids of the ranks that mpirun started on this host
    cat /proc/"$job"/task/*/children 2>/dev/null
}

# USR1 kills a process that has not yet said what to do with it, so it is held back until everyone has.
ready_for_usr1() {
    catches_usr1 "$job" || return 1
    ((${#launcher[@]} > 0 && NNODES == 1)) || return 0
    local pid count=0
    for pid in $(ranks_here); do
        catches_usr1 "$pid" || return 1
        count=$((count + 1))
    done
    ((count == NGPU))
}

# Runs beside the script, so that a second signal finds it listening.
ask_to_stop() {
    local tries=100
    trap '' INT TERM HUP USR1
    while [[ -d /proc/$job ]] && ! ready_for_usr1 && ((tries-- > 0)); do sleep 0.1; done
    kill -USR1 "$job" 2>/dev/null
}

end_job() {
    local ranks tries=20
    ranks=$(ranks_here)
    # shellcheck disable=SC2086 # a list of numbers
    [[ -z $ranks ]] || kill -KILL $ranks 2>/dev/null
    kill -TERM "$job" 2>/dev/null
    while [[ -d /proc/$job ]] && ((tries-- > 0)); do sleep 0.05; done
    kill -KILL "$job" 2>/dev/null
}

on_signal() { # NAME
    woken=1
    if ((!stop_wanted)); then
        stop_wanted=1
        stop_time_us=${EPOCHREALTIME/./}
        if [[ $phase == train ]]; then
            say "SIG$1: the ranks finish their step, save a checkpoint and leave (a second Ctrl-C ends them at once)"
            ask_to_stop &
        elif [[ -n $job ]]; then
            kill -TERM "$job" 2>/dev/null
        fi
    elif [[ $1 == INT ]] && ((${EPOCHREALTIME/./} - stop_time_us > 200000)); then # not the same signal come by two ways
        end_now=1
        end_job
    fi
}

# mpirun crashes when the reader of its stdout leaves, as head does; between them, this goes on reading.
relay_lines() {
    trap '' INT TERM HUP USR1 PIPE
    cat 2>/dev/null
    cat >/dev/null
}

# Beside mpirun, its stderr on stdin: lines of ranks pass. mpirun's own screens stand between lines of dashes. Of the one about a rank that
# was killed, or left with a code that is none of ctitan's, a line stays, since that rank has said nothing; those about ctitan's exit codes
# go; others pass. What several ranks say of one failure is shown once.
filter_screens() {
    local line screen='' inside=0 dashes told=''
    trap '' INT TERM HUP USR1 PIPE
    printf -v dashes '%074d' 0
    dashes=${dashes//0/-}
    while IFS= read -r line || [[ -n $line ]]; do
        if [[ $line == "$dashes" ]]; then
            ((inside)) && show_screen "$screen"
            inside=$((!inside)) screen=
        elif ((inside)) && [[ $line != \[rank[0-9]* ]]; then
            screen+=$line$'\n'
        elif [[ $line != *' - ERROR - '* || ${line#* - ERROR - } != "$told" ]]; then
            printf '%s\n' "$line" >&2
            [[ $line != *' - ERROR - '* ]] || told=${line#* - ERROR - }
        fi
    done
    show_screen "$screen"
}

show_screen() { # TEXT
    if [[ $1 =~ process\ rank\ ([0-9]+)\ with\ PID\ [0-9]+\ on\ node\ ([^ ]+)\ exited\ on\ (signal\ .*)\.$'\n' ]]; then
        say "rank ${BASH_REMATCH[1]} on ${BASH_REMATCH[2]} was ended by ${BASH_REMATCH[3]}"
    elif [[ $1 =~ Process\ name:\ +\[\[[0-9]+,[0-9]+\],([0-9]+)\].*Exit\ code:\ +([0-9]+) && ${BASH_REMATCH[2]} != @(1|2|75) ]]; then
        say "rank ${BASH_REMATCH[1]} left with exit code ${BASH_REMATCH[2]}"
    elif [[ $1 != *"non-zero exit code"* && $1 != *"non-zero status"* ]]; then
        printf '%s' "$1" >&2
    fi
}

# Runs a command beside the script, which so hears signals; its exit code in `code`.
run() { # PHASE COMMAND...
    ((stop_wanted)) && stopped_early
    phase=$1
    if [[ -n $screens ]]; then
        "${@:2}" </dev/null >&"$lines" 2>&"$screens" {screens}>&- &
    else
        "${@:2}" </dev/null &
    fi
    job=$!
    while woken=0; do
        wait "$job" 2>/dev/null # a trap ends it early
        ((woken)) && [[ -d /proc/$job ]] && continue
        break
    done
    wait "$job" 2>/dev/null # once more, for the exit code in any case: bash keeps it
    code=$?
    job=
}

stopped_early() {
    rm -f "$CTITAN_OUTCOME_FILE"
    fail 1 "stopped before the first step"
}

# What the job's end means: rank 0 leaves its exit code in the outcome file, because mpirun's own says little.
exit_code() {
    local outcome=
    read -r outcome <"$CTITAN_OUTCOME_FILE"
    rm -f "$CTITAN_OUTCOME_FILE"
    ((end_now)) && fail 1 "ended at once; the last checkpoint is whole"
    case $outcome:$code in
    0:0 | :0) exit 0 ;;
    1:* | 2:* | 75:*) exit "$outcome" ;;
    :2 | :75) exit "$code" ;;
    esac
    if ((stop_wanted)); then
        fail 1 "the job was gone before it could save a checkpoint (exit code $code)"
    fi
    ((code > 128)) && [[ ${#launcher[@]} -eq 0 ]] && say "the job was ended by signal $((code - 128)) (SIG$(kill -l "$code"))"
    fail 1 "the job failed (exit code $code); each rank's last lines are in <dump_folder>/logs/$CTITAN_START_STAMP/"
}

main() {
    local source=${BASH_SOURCE[0]} name argument config filter screens='' lines=1 relay=''
    # closed, they would be the next files opened
    [[ -e /dev/fd/0 ]] || exec </dev/null
    [[ -e /dev/fd/1 ]] || exec >/dev/null
    [[ -e /dev/fd/2 ]] || exec 2>/dev/null
    phase=start job='' stop_wanted=0 end_now=0 CTITAN_OUTCOME_FILE=''
    for name in INT TERM HUP USR1; do
        # shellcheck disable=SC2064 # the name of now
        trap "on_signal $name" "$name"
    done
    [[ -L $source ]] && source=$(readlink -f "$source")
    [[ $source == /* ]] || source=$PWD/$source
    here=${source%/*}
    here=${here%/.}
    count_cores
    launcher=()
    arguments=("$@") # ctitan itself looks at CONFIG and MODULE
    config=${CONFIG:-}
    for argument in "$@"; do
        [[ $argument != --config && $argument != --config=* ]] || config=$argument
    done
    [[ -n $config ]] || arguments=(--config llama3_debugmodel "$@")

    if [[ ${1:-} == --help || ${1:-} == -h ]]; then
        usage
        exit 0
    fi
    NGPU=${NGPU:-$(default_ranks)}
    check_number NGPU "$NGPU"
    find_program
    if [[ ${1:-} == --version ]]; then
        exec "$program" --version
    fi

    printf -v CTITAN_START_STAMP '%(%Y%m%d-%H%M%S)T' -1
    LOG_RANK=${LOG_RANK:-0}
    check_ranks LOG_RANK "$LOG_RANK"
    CTITAN_OUTCOME_FILE=$(mktemp "${TMPDIR:-/tmp}/ctitan-outcome.XXXXXX") ||
        fail 1 "a file of some bytes is needed in ${TMPDIR:-/tmp}; set TMPDIR to a folder that takes one"
    CTITAN_TERMINAL=0
    [[ -t 1 ]] && CTITAN_TERMINAL=1
    export NGPU LOG_RANK CTITAN_START_STAMP CTITAN_OUTCOME_FILE CTITAN_TERMINAL
    compose_command

    run prepare "$program" data prepare "${arguments[@]}"
    ((stop_wanted)) && stopped_early
    if ((code != 0)); then
        rm -f "$CTITAN_OUTCOME_FILE"
        exit "$code"
    fi
    (($# > 0)) || [[ -n $config ]] || say "training the debug model: 10 steps, some minutes on two cores"
    if ((${#launcher[@]} > 0)); then
        if [[ -p /dev/fd/1 ]]; then
            exec {lines}> >(relay_lines)
            relay=$!
        fi
        exec {screens}> >(filter_screens)
        filter=$!
    fi
    # a session of its own: Ctrl-C reaches this script alone. Should this script be killed, the job is told to end.
    run train setsid setpriv --pdeathsig TERM "${command[@]}"
    if [[ -n $screens ]]; then
        exec {screens}>&-
        wait "$filter"
        if [[ -n $relay ]]; then
            exec {lines}>&-
            wait "$relay"
        fi
    fi
    exit_code
}

main "$@"

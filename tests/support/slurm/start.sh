#!/bin/bash
# SPDX-License-Identifier: MIT
#
# usage: start.sh DIR     (as root; packages slurm-wlm and munge)
#
# A Slurm cluster of two "nodes" on this machine, without systemd, cgroups or accounting, with everything it writes in DIR.
# Afterwards: SLURM_CONF=DIR/slurm.conf sbatch|srun|squeue ...; stop.sh DIR ends it. Two nodes on one host cannot share memory over
# Open MPI, so ranks need OMPI_MCA_btl=tcp,self.
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
host=$(hostname -s)
port=$((20000 + $$ % 10000 * 4))
mkdir -p "$dir"/{run,log,state} "$dir"/{spool,tmpfs}/{n1,n2}

cat >"$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldPidFile=$dir/run/ctld.pid
SlurmdPidFile=$dir/run/d-%n.pid
SlurmdSpoolDir=$dir/spool/%n
StateSaveLocation=$dir/state
SlurmctldLogFile=$dir/log/ctld.log
SlurmdLogFile=$dir/log/d-%n.log
SlurmctldPort=$port
SlurmctldParameters=enable_configless
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
JobRequeue=1
KillWait=10
# the folder of a node's own: else the pmix folders of the two nodes are the same one
TmpFS=$dir/tmpfs/%n
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2 RealMemory=1000
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2 RealMemory=1000
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=1:00:00 State=UP
CONF

# a munge of its own: key, socket and pid file in DIR
head -c 1024 /dev/urandom >"$dir/run/munge.key"
chmod 600 "$dir/run/munge.key"
munged --force --key-file="$dir/run/munge.key" --socket="$dir/run/munge.socket" --pid-file="$dir/run/munged.pid" \
    --log-file="$dir/log/munged.log" --seed-file="$dir/run/munge.seed" 2>"$dir/log/munged.err"

export SLURM_CONF=$dir/slurm.conf
slurmctld
slurmd -N n1
slurmd -N n2
for _ in $(seq 60); do
    [[ $(sinfo -h -t idle -o %D 2>/dev/null) == 2 ]] && exit 0
    sleep 0.5
done
echo "the two nodes did not become idle within 30 s; see $dir/log" >&2
exit 1

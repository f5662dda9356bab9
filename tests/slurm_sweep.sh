#!/usr/bin/env bash
# A sweep on a real Slurm of one's own: munge, a controller and three nodes on this machine, of which two die.
#
#   tests/slurm_sweep.sh PROGRAM     exit status 0: as it must be; 1: not so; 77: Slurm cannot be run here
#
# The sweep runs as a job array. While it does, one node dies with all that it runs, and of another only the
# daemon, so that a task that Slurm takes for lost goes on while its successor starts. Results must be those of
# one process, with every cell run once.
set -uo pipefail
program=$(realpath -- "$1")

skip() { printf '%s\n' "$*"; exit 77; }
for command in munged slurmctld slurmd sbatch scontrol squeue; do
  command -v "$command" >/dev/null || skip "no $command here: Debian's packages are munge, slurmctld, slurmd and slurm-client"
done
[ "$(id -u)" -eq 0 ] || skip 'slurmd wants to be root'

# Sockets have short names.
here=$(mktemp -d -t lakebed-slurm.XXXXXX)
cd -- "$here" || exit 1
mkdir -- state spool-n1 spool-n2 spool-n3 munge
chmod 755 "$here" munge

pid_of() { cat -- "$1" 2>/dev/null; }
finish() {
  local file pid
  scancel --name=lakebed-sweep >/dev/null 2>&1
  for file in slurmd-n1.pid slurmd-n2.pid slurmd-n3.pid slurmctld.pid munge/pid; do
    pid=$(pid_of "$file") && kill -9 "$pid" 2>/dev/null
  done
  for pid in $(processes_with "SLURM_CONF=$here/slurm.conf"); do kill -9 "$pid" 2>/dev/null; done
  cd /
  rm -rf -- "$here"
}
fail() {
  printf 'FAILED: %s\n' "$*"
  squeue 2>&1
  sinfo 2>&1
  tail -n 5 -- sweep/slurm-*.log log-* 2>&1
  exit 1
}

# All processes that were started with a setting in their environment.
processes_with() { grep -lzxsF -- "$1" /proc/[0-9]*/environ | cut -d / -f 3; }
trap finish EXIT

wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.1
  done
}

# ---- Slurm ----

# Ports that nobody listens on.
ports=()
for ((port = 20000 + RANDOM % 20000; ${#ports[@]} < 4; port++)); do
  (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || ports+=("$port")
done

head -c 64 /dev/urandom >munge.key
chmod 400 munge.key
munged --key-file="$here/munge.key" --socket="$here/munge/socket" --log-file="$here/log-munge" \
  --pid-file="$here/munge/pid" --seed-file="$here/munge/seed" >log-start 2>&1 || skip "munged does not start: $(tail -n 1 log-start)"

cat >slurm.conf <<CONF
ClusterName=lakebed
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$here/munge/socket
SlurmctldPort=${ports[0]}
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool-%n
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd-%n.pid
SlurmctldLogFile=$here/log-slurmctld
SlurmdLogFile=$here/log-slurmd-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdTimeout=3
MessageTimeout=2
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=1
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=1
NodeName=n3 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[3]} CPUs=1
PartitionName=all Nodes=n1,n2,n3 Default=YES State=UP MaxTime=INFINITE
CONF
export SLURM_CONF=$here/slurm.conf
slurmctld -c >log-start 2>&1 || skip "slurmctld does not start: $(tail -n 1 log-start)"
for node in n1 n2 n3; do
  slurmd -N "$node" >log-start 2>&1 || skip "slurmd does not start: $(tail -n 1 log-start)"
done
idle() { [ "$(sinfo -h -t idle -o %D)" = 3 ]; }
wait_until 30 idle || skip "Slurm's nodes do not come up: $(tail -n 1 log-slurmctld)"

# ---- the sweep ----

LAKEBED_ROOT=$(pwd)
export LAKEBED_ROOT
cp -- "$program" lakebed
cat >grid <<'GRID'
trace    made.txt
policy   bfc gmlake aliasheap
laps     {500,501,502,503,504,505,506,507,508,509,510,511,512,513}
GRID
awk 'BEGIN { for (i = 1; i <= 400; i++) print "a", i, 1000000 + i * 7919 % 5000000, 0; for (i = 1; i <= 400; i++) print "f", i * 7 % 401 ? i * 7 % 401 : 401 }' >made.txt

./lakebed sweep grid -o alone --jobs 2 --quiet || fail 'the sweep does not run without Slurm'
cells=$(./lakebed sweep grid -o alone --status | tail -n 1)
./lakebed sweep grid -o sweep --slurm --shards 4 || fail 'the job was refused'

# ---- nodes die ----

# Cells that a shard has logged.
logged() { cat -- "sweep/cells-$1-of-4.jsonl" 2>/dev/null | wc -l; }
# Holds up the task of a node once it has logged a cell, so that it is still there when Slurm has noticed. Prints
# its shard and its processes.
hold_up() {
  local deadline=$((SECONDS + 60)) tasks shard
  while [ "$SECONDS" -lt "$deadline" ]; do
    tasks=$(processes_with "SLURMD_NODENAME=$1" | tr '\n' ' ')
    shard=$(tr '\0' '\n' 2>/dev/null <"/proc/${tasks%% *}/environ" | sed -n 's/^SLURM_ARRAY_TASK_ID=//p')
    [ -n "$shard" ] && [ "$(logged "$shard")" -ge 1 ] || continue
    # shellcheck disable=SC2086 # several words
    kill -STOP $tasks 2>/dev/null && echo "$shard $tasks" && return
  done
}
hold_up n1 >held-n1 &
hold_up n2 >held-n2 &
wait %1 %2
read -r dead tasks <held-n1 || fail 'no task of n1 was caught'
read -r lost orphans <held-n2 || fail 'no task of n2 was caught'
# The first: its daemon, the shepherd of its task, and the task.
kill -9 "$(pid_of slurmd-n1.pid)"
shepherds=$(for pid in $tasks; do awk '/^PPid:/ { print $2 }' "/proc/$pid/status"; done 2>/dev/null | sort -u)
for pid in $shepherds $tasks; do kill -9 "$pid" 2>/dev/null; done
echo "n1 died in shard $dead after $(logged "$dead") cells: daemon, shepherd and task"
# The second: its daemon alone, which somebody notices at once.
kill -9 "$(pid_of slurmd-n2.pid)"
scontrol update nodename=n2 state=down reason=died || fail 'n2 cannot be taken down'
echo "n2 lost its daemon in shard $lost after $(logged "$lost") cells"

# Slurm lets a task rest for two minutes before it begins again.
job=$(squeue -h -o %F | head -n 1)
hurry() { scontrol update jobid="${job}_$1" starttime=now; }
requeued() { squeue -h -t pending -o '%K %r' | grep -qx "$1 BeginTime"; }
wait_until 30 requeued "$lost" || fail "shard $lost is not queued again"
hurry "$lost" || fail "shard $lost cannot be hurried"
waits() { grep -q 'waits for' "sweep/slurm-$lost.log"; }
wait_until 60 waits || fail "no successor waits for the task of shard $lost"
echo "its successor waits for it"
# shellcheck disable=SC2086
kill -CONT $orphans

wait_until 60 requeued "$dead" || fail "shard $dead is not queued again"
hurry "$dead" || fail "shard $dead cannot be hurried"
ended() { [ -z "$(squeue -h)" ]; }
wait_until 120 ended || fail 'the job does not end'

# ---- what came of it ----

./lakebed sweep grid -o sweep --merge || fail 'cells are missing or have failed'
cmp alone/results.json sweep/results.json || fail 'JSON differs from that of one process'
cmp alone/results.csv sweep/results.csv || fail 'CSV differs from that of one process'
run=$(cat sweep/cells-*.jsonl | wc -l)
once=$(cat sweep/cells-*.jsonl | cut -d '"' -f 4 | sort -u | wc -l)
[ "$run" = "$once" ] || fail "$run results of $once cells"
echo "as alone: $cells; $run results in $(ls sweep/cells-*.jsonl | wc -l) logs; $SECONDS s"

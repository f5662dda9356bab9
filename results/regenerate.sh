#!/usr/bin/env bash
# Measures what lies under results/ anew, on a machine with a GPU, and draws the figures.
#
#   results/regenerate.sh [SECTION...]     default: all that this machine can do; torch, training under policies,
#                                          only when it is named
#
# LAKEBED_BIN      the program; default: the launcher ./lakebed
# LAKEBED_RESULTS  the folder that is written; default: results/h200
# LAKEBED_OPTIONS  options for every measurement, such as "--driver sim" to try the script without a GPU
# LAKEBED_TRACES   a folder with recordings to replay; default: workloads/bundled
# LAKEBED_BENCH    a folder with the built benchmarks of tests/bench; default: bazel run -c opt builds them
# LAKEBED_MINIMALLOC  a folder with minimalloc's cases; default: ../shared/public beside the project
# shellcheck disable=SC2317 # sections are called by their names
set -uo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
lakebed=$(realpath -- "${LAKEBED_BIN:-$here/../lakebed}")
out=${LAKEBED_RESULTS:-$here/h200}
read -r -a options <<<"${LAKEBED_OPTIONS:---driver cuda}"
simulated=$here/sim
failed=0

say() { printf 'regenerate: %s\n' "$*" >&2; }

# measure NAME COMMAND...: NAME.txt for people, NAME.csv and NAME.json for programs.
measure() {
  local name=$1 begin=$SECONDS
  shift
  # In the folder itself, so that the command in the files' headers names no other.
  if (cd -- "$out" && "$lakebed" "$@" "${options[@]}" --quiet --csv "$name.csv" --json "$name.json" >"$name.txt"); then
    say "$name: $((SECONDS - begin)) s"
  else
    say "$name: '$*' failed with status $?"
    failed=1
  fi
}

policies=native,async,bfc,expandable,tfbfc,gmlake,aliasheap,planned
heavy=rawvmm # minutes on a device: replayed on the simulated one only

recordings() {
  find "$(realpath -- "${LAKEBED_TRACES:-$here/../workloads/bundled}")" -name '*.xz' | sort
}

# What every file begins with: header COMMAND DEVICE DRIVER SECTION
header() {
  printf '# program: %s, %s\n# device: %s\n# driver: %s\n' "$("$lakebed" --version)" "$1" "$2" "$3"
  printf '# date: %s\n# command: results/regenerate.sh %s\n' "$(date -u +%FT%TZ)" "$4"
}

# Without host timing a replay leaves out when and how it was made, so that the same replay gives the same bytes; a file
# says it: dated FILE SECTION
dated() {
  local lines
  grep -q '^# command: ' -- "$1" && return
  lines=$(grep -c '^#' -- "$1")
  sed -i "${lines}a # date: $(date -u +%FT%TZ)\n# command: results/regenerate.sh $2" -- "$1"
}

# Replays of all recordings whose names match: replay_recordings SCRATCH SECTION PATTERN OPTION...; run.txt, run.csv and
# run.json lie in SCRATCH then. In there are links, so that the command in the files' headers names no folder.
replay_recordings() {
  local scratch=$1 section=$2 pattern=$3 recording traces=()
  shift 3
  while IFS= read -r recording; do
    [[ -e $scratch/${recording##*/} ]] || ln -s -- "$recording" "$scratch/"
    traces+=("${recording##*/}")
  done < <(recordings | grep -e "$pattern")
  (cd -- "$scratch" && "$lakebed" replay "${traces[@]}" "$@" --quiet --csv run.csv --json run.json >run.txt) || return
  dated "$scratch/run.csv" "$section"
}

# Every policy over every recording. replay_into FOLDER NAME SECTION OPTION...
replay_into() {
  local folder=$1 name=$2 section=$3 begin=$SECONDS scratch
  shift 3
  scratch=$(mktemp -d)
  if replay_recordings "$scratch" "$section" . "$@"; then
    { grep '^#' "$scratch/run.csv" && printf '\n' && cat "$scratch/run.txt"; } >"$folder/$name.txt"
    mv -- "$scratch/run.csv" "$folder/$name.csv"
    mv -- "$scratch/run.json" "$folder/$name.json"
    say "$name: $((SECONDS - begin)) s"
  else
    say "$name: failed with status $?"
    failed=1
  fi
  rm -rf -- "$scratch"
}

# The recordings whose memory is drawn over their events.
drawn=(opt-1.3b-LR-b16-s512-w4-v0-i8 opt-1.3b-LR-b16-s1024-w1-v1 opt-1.3b-N-b8-s512-w4-v1)

# A CSV whose quoted fields, which hold commas, are replaced by a word.
plain_csv() { sed 's/"[^"]*"/quoted/g' -- "$1"; }

# The sections, by subject; tables are the .awk files beside them.
# shellcheck source=results/regenerate/device.sh
source "$here/regenerate/device.sh"
# shellcheck source=results/regenerate/simulated.sh
source "$here/regenerate/simulated.sh"
# shellcheck source=results/regenerate/faults.sh
source "$here/regenerate/faults.sh"
# shellcheck source=results/regenerate/aliasheap.sh
source "$here/regenerate/aliasheap.sh"
# shellcheck source=results/regenerate/loads.sh
source "$here/regenerate/loads.sh"
# shellcheck source=results/regenerate/gmlake.sh
source "$here/regenerate/gmlake.sh"
# shellcheck source=results/regenerate/tables.sh
source "$here/regenerate/tables.sh"
# shellcheck source=results/regenerate/figures.sh
source "$here/regenerate/figures.sh"

# Real training under PyTorch's allocators and our policies, on all GPUs; the plugin is built by './lakebed torch'.
section_torch() {
  local bench=$here/../harness/torch/bench folder=$out/torch run gpus begin=$SECONDS
  mkdir -p -- "$folder"
  run=$(mktemp -d)
  gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)
  if python3 "$bench/plan.py" >"$run/plan.json" &&
    python3 "$bench/live_matrix.py" "$run/plan.json" "$run/runs.jsonl" --gpus "$gpus" --seconds "${LAKEBED_SECONDS:-3000}" &&
    python3 "$bench/tables.py" "$folder" "$run/runs.jsonl" --replay "$lakebed"; then
    say "torch: $((SECONDS - begin)) s"
  else
    say "torch: failed"
    failed=1
  fi
  rm -rf -- "$run"
}

sections=(vmm axes profile access alloc replay verify soak sim oom delays aliasheap loads minimalloc faults stress generated iterations gmlake_limits gmlake_variants gmlake_sim compare headline paper figures)
mkdir -p -- "$out" || exit 2
out=$(cd -- "$out" && pwd)
(($#)) || set -- "${sections[@]}"
for section in "$@"; do
  if ! declare -F "section_$section" >/dev/null; then
    say "no section '$section'; there are: ${sections[*]}"
    exit 2
  fi
done
for section in "$@"; do "section_$section"; done
exit "$failed"

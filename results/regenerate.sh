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

# Every policy over every recording. replay_into FOLDER NAME OPTION...
replay_into() {
  local folder=$1 name=$2 begin=$SECONDS traces
  shift 2
  mapfile -t traces < <(recordings)
  if "$lakebed" replay "${traces[@]}" "$@" --quiet --csv "$folder/$name.csv" --json "$folder/$name.json" >"$folder/$name.txt"; then
    say "$name: $((SECONDS - begin)) s"
  else
    say "$name: failed with status $?"
    failed=1
  fi
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

sections=(vmm axes profile access alloc replay verify soak sim oom faults stress generated iterations gmlake_limits gmlake_variants gmlake_sim compare headline paper figures)
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

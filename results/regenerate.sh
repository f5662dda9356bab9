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
set -uo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
lakebed=$(realpath -- "${LAKEBED_BIN:-$here/../lakebed}")
out=${LAKEBED_RESULTS:-$here/h200}
read -r -a options <<<"${LAKEBED_OPTIONS:---driver cuda}"
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

# Table 1 and Figure 6 of the GMLake paper.
section_vmm() { measure vmm bench vmm table1 figure6; }

# What the conditions change: one run each, gathered in one table. On a device that cannot do one, the others go on.
section_axes() {
  local scratch
  scratch=$(mktemp -d)
  axis() {
    local label=$1
    shift
    if ! (cd -- "$scratch" && "$lakebed" bench vmm table1 --factor 8 --iterations 5 --warmup 1 "$@" \
      "${options[@]}" --quiet --csv run.csv >run.txt); then
      say "axes: $label: failed"
      failed=1
      return
    fi
    [[ -s $scratch/head ]] || grep '^#' "$scratch/run.csv" | grep -E '^# (program|device|driver|date):' >"$scratch/head"
    sed -n "s/^# command: /# run $label: /p" "$scratch/run.csv" >>"$scratch/head"
    [[ -s $scratch/columns ]] || sed -n '/^#/!{s/^/run,/p;q}' "$scratch/run.csv" >"$scratch/columns"
    sed -e '/^#/d' "$scratch/run.csv" | sed -e 1d -e "s/^/$label,/" >>"$scratch/rows"
    { printf '\n## %s\n' "$label" && cat "$scratch/run.txt"; } >>"$scratch/text"
  }
  axis plain
  axis range --access range
  axis settled --memory settled
  axis cold --memory cold
  axis handles-16384 --live-handles 16384
  axis handles-full --live-handles full
  axis plain-512MiB --total 512MiB
  axis aliases-4 --aliases 4 --total 512MiB
  axis aliases-16 --aliases 16 --total 512MiB
  axis aliases-64 --aliases 64 --total 512MiB --iterations 3
  axis threads-2 --threads 2
  axis threads-4 --threads 4
  axis threads-8 --threads 8
  axis kernel-512MiB --during kernel --total 512MiB
  axis traffic-512MiB --during traffic --total 512MiB
  axis posix-fd --handle-type posix_fd
  axis gpu-direct --gpu-direct on
  if [[ -s $scratch/rows ]]; then
    cat "$scratch/head" "$scratch/columns" "$scratch/rows" >"$out/vmm_axes.csv"
    { cat "$scratch/head" && axes_table "$out/vmm_axes.csv" && cat "$scratch/text"; } >"$out/vmm_axes.txt"
  fi
  rm -rf -- "$scratch"
}

# One row a run and chunk: microseconds of each stage.
axes_table() {
  printf '\n# Microseconds of whole stages (medians)\n'
  awk -F, '
    /^#/ { next }
    !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
    $at["method"] == "chunks" && ($at["chunk_bytes"] == 2097152 || $at["chunk_bytes"] == 134217728 || $at["chunk_bytes"] == 1073741824) {
      key = $at["run"] "," $at["total_bytes"] / 1048576 "," $at["chunk_bytes"] / 1048576
      if (!(key in seen)) { seen[key] = 1; order[++rows] = key }
      time[key, $at["call"]] = $at["p50_us"]
    }
    END {
      split("reserve create map set_access build unmap release address_free teardown", calls, " ")
      printf "%-14s %9s %9s", "run", "total MiB", "chunk MiB"
      for (i = 1; i <= 9; i++) printf " %12s", calls[i]
      printf "\n"
      for (row = 1; row <= rows; row++) {
        split(order[row], part, ",")
        printf "%-14s %9s %9s", part[1], part[2], part[3]
        for (i = 1; i <= 9; i++) printf " %12.1f", time[order[row], calls[i]]
        printf "\n"
      }
    }' "$1"
}

# The latency profile that the simulated device charges.
section_profile() { measure profile bench vmm --save-profile h200.profile --iterations 7 --warmup 2; }

section_access() { measure access bench access; }

section_alloc() {
  measure alloc bench alloc --seconds 1
  measure alloc_mixed bench alloc --seconds 1 --sizes mixed --live 256 --min 64KiB
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

section_replay() { replay_into "$out" replay -p "$policies" "${options[@]}"; }

# The same, every allocation filled with its own pattern and checked before its free.
section_verify() { replay_into "$out" verify -p "$policies" "${options[@]}" --verify; }

# The smallest simulated device on which each policy serves each recording.
section_oom() {
  local traces run
  mkdir -p -- "$simulated"
  run=$(mktemp -d)
  mapfile -t traces < <(recordings | grep '\.pickle')
  if "$lakebed" oom "${traces[@]}" -p "$policies,$heavy" --quiet --csv "$run/oom.csv" >"$run/oom.txt"; then
    printf '# program: %s, oom\n# driver: sim\n# date: %s\n# command: results/regenerate.sh oom\n' "$("$lakebed" --version)" "$(date -u +%F)" >"$run/head"
    cat "$run/head" "$run/oom.csv" >"$simulated/oom.csv"
    cat "$run/head" "$run/oom.txt" >"$simulated/oom.txt"
    say "oom: done"
  else
    say "oom: failed with status $?"
    failed=1
  fi
  rm -rf -- "$run"
}

# Eight threads with random programs on the device, slow kernels in flight, every block compared: five minutes.
section_soak() {
  measure soak stress -p native,async,bfc,expandable,tfbfc,gmlake,aliasheap --verify --slow-kernels --threads 8 --streams 3 --limit 100GiB \
    --duration 40 --seed 1
}

# The recordings whose memory is drawn over their events.
drawn=(opt-1.3b-LR-b16-s512-w4-v0-i8 opt-1.3b-LR-b16-s1024-w1-v1 opt-1.3b-N-b8-s512-w4-v1)

# The same on the simulated H200: needs no GPU. Timelines of three recordings too.
section_sim() {
  mkdir -p -- "$simulated"
  replay_into "$simulated" replay -p "$policies,$heavy" --driver sim --no-host-timing
  local recording paths=()
  for recording in "${drawn[@]}"; do paths+=("$here/../workloads/bundled/$recording.pickle.xz"); done
  "$lakebed" replay "${paths[@]}" -p "$policies,$heavy" --driver sim --quiet \
    --timeline "$simulated/timeline.csv" --timeline-points 600 >/dev/null || failed=1
}

# Real training under PyTorch's allocators and our policies, on all GPUs; the plugin is built by './lakebed torch'.
section_torch() {
  local bench=$here/../harness/torch/bench folder=$out/torch run gpus begin=$SECONDS
  mkdir -p -- "$folder"
  run=$(mktemp -d)
  gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)
  {
    printf 'device: %s\n' "$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | sed 's/^ *//')"
    printf 'driver: %s, %s\n' "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)" \
      "$(python3 -c 'import torch, transformers; print("CUDA", torch.version.cuda + ", PyTorch", torch.__version__ + ", transformers", transformers.__version__)')"
    printf 'date: %s\n' "$(date -u +%F)"
    printf 'command: results/regenerate.sh torch\n'
  } >"$run/header"
  if python3 "$bench/plan.py" >"$run/plan.json" &&
    python3 "$bench/live_matrix.py" "$run/plan.json" "$run/runs.jsonl" --gpus "$gpus" --seconds "${LAKEBED_SECONDS:-3000}" &&
    python3 "$bench/tables.py" "$run/header" "$folder" "$run/runs.jsonl"; then
    say "torch: $((SECONDS - begin)) s"
  else
    say "torch: failed"
    failed=1
  fi
  rm -rf -- "$run"
}

# What gmlake does in each iteration of the recorded runs, by rule and option, and from which one on it has settled;
# other policies beside it. On the simulated H200.
iterated=(gmlake gmlake:stitching=views gmlake:stitching=eager gmlake:variant=published gmlake:frag_limit=32MiB
  gmlake:frag_limit=128MiB gmlake:tolerance=16MiB gmlake:chunk=32MiB gmlake:stitch=after_growing gmlake:stitch_count=200
  gmlake:stitch_bytes=4GiB gmlake:cross_stream=wait aliasheap expandable bfc)
section_iterations() {
  local traces run
  mkdir -p -- "$simulated"
  run=$(mktemp -d)
  mapfile -t traces < <(recordings | grep '\.pickle')
  if ! "$lakebed" replay "${traces[@]}" "${iterated[@]/#/-p}" --driver sim --no-host-timing --quiet \
    --csv "$run/runs.csv" --iterations="$run/measures.csv" >/dev/null; then
    say "iterations: failed with status $?"
    failed=1
  else
    { grep '^#' "$run/runs.csv" && printf '# date: %s\n# command: results/regenerate.sh iterations\n' "$(date -u +%F)"; } >"$run/head"
    { cat "$run/head" && iterations_columns "$run/measures.csv"; } >"$simulated/iterations.csv"
    { cat "$run/head" && iterations_table "$simulated/iterations.csv"; } >"$simulated/iterations.txt"
    say "iterations: done"
  fi
  rm -rf -- "$run"
}

# A row an iteration, from one a measure.
iterations_columns() {
  awk -F, '
    BEGIN {
      count = split("events failed_allocs S1_count S2_count S3_count S4_count S5_count split_count stitch_count stitch_free_count " \
        "S1_driver_us S2_driver_us S3_driver_us S4_driver_us S5_driver_us split_driver_us stitch_driver_us stitch_free_driver_us " \
        "driver_calls memory_calls driver_us live_peak_bytes reserved_peak_bytes", measures, " ")
      printf "trace,policy,iteration"
      for (i = 1; i <= count; i++) printf ",%s", measures[i]
      printf "\n"
    }
    function flush() {
      if (key == "") return
      printf "%s", key
      for (i = 1; i <= count; i++) printf ",%s", value[measures[i]]
      printf "\n"
      delete value
    }
    FNR > 1 { if ($1 "," $2 "," $4 != key) { flush(); key = $1 "," $2 "," $4 } value[$5] = $6 }
    END { flush() }' "$1"
}

# A row a run: the first iteration from which on there is S1 alone, no driver call for memory; these calls, by iteration.
iterations_table() {
  awk -F, '
    /^#/ { next }
    !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
    {
      key = $at["policy"] SUBSEP $at["trace"]
      if (!(key in last)) { order[++rows] = key; exact[key] = quiet[key] = 1; states[key] = $at["S1_count"] != "" }
      last[key] = $at["iteration"]
      if ($at["S2_count"] + $at["S3_count"] + $at["S4_count"] + $at["S5_count"] > 0) exact[key] = $at["iteration"] + 1
      if ($at["memory_calls"] > 0) quiet[key] = $at["iteration"] + 1
      calls[key] = calls[key] " " $at["memory_calls"]; ms[key] += $at["driver_us"] / 1000
      if ($at["live_peak_bytes"] > live[key]) live[key] = $at["live_peak_bytes"]
      if ($at["reserved_peak_bytes"] > held[key]) held[key] = $at["reserved_peak_bytes"]
    }
    function from(first, end) { return first > end ? "-" : first }
    END {
      format = "%-26s %-42s %11s %8s %8s %12s   %s\n"
      printf format, "policy", "trace", "utilisation", "S1 only", "no calls", "driver ms", "driver calls for memory in each iteration"
      for (row = 1; row <= rows; row++) {
        key = order[row]; split(key, part, SUBSEP)
        printf format, part[1], part[2], sprintf("%.3f", live[key] / held[key]), states[key] ? from(exact[key], last[key]) : "", \
          from(quiet[key], last[key]), sprintf("%.0f", ms[key]), calls[key]
      }
    }' "$1" | { IFS= read -r head; printf '%s\n' "$head"; sort -s -k1,1; }
}

# The trainings that were recorded: name of the recording, and what 'trace generate finetune' needs to be told to make the
# same. Lengths that vary were drawn by the recording script (seed 7), one an iteration.
recorded_trainings() {
  cat <<'TRAININGS'
opt-1.3b-N-b16-s512-w4-v0-i8 -m opt-1.3b -S N -b 16 -s 512 -w 4 -i 8
opt-1.3b-R-b16-s512-w4-v0-i8 -m opt-1.3b -S R -b 16 -s 512 -w 4 -i 8
opt-1.3b-LR-b16-s512-w4-v0-i8 -m opt-1.3b -S LR -b 16 -s 512 -w 4 -i 8
opt-1.3b-LRO-b16-s512-w4-v0-i8 -m opt-1.3b -S LRO -b 16 -s 512 -w 4 -i 8
opt-1.3b-LR-b16-s512-w1-v0-i8 -m opt-1.3b -S LR -b 16 -s 512 -w 1 -i 8
opt-1.3b-LR-b16-s512-w16-v0-i8 -m opt-1.3b -S LR -b 16 -s 512 -w 16 -i 8
opt-1.3b-LR-b32-s512-w4-v0 -m opt-1.3b -S LR -b 32 -s 512 -w 4 -i 6
opt-1.3b-LR-b16-s1024-w1-v1 -m opt-1.3b -S LR -b 16 -s 336,548,309,769 -w 1 -i 4
opt-1.3b-LRO-b16-s512-w4-v1 -m opt-1.3b -S LRO -b 16 -s 336,512,309,512,512,490 -w 4 -i 6
opt-1.3b-N-b8-s512-w4-v1 -m opt-1.3b -S N -b 8 -s 236,336,512,379,309,242 -w 4 -i 6
opt-13b-LR-b8-s512-w1-v1 -m opt-13b -S LR -b 8 -s 236,336,512,379,309,242 -w 1 -i 6
opt-13b-LR-b8-s512-w4-v1 -m opt-13b -S LR -b 8 -s 236,336,512,379,309,242 -w 4 -i 6
gpt2-xl-LR-b16-s512-w4-v1 -m gpt2-xl -S LR -b 16 -s 336,512,309,512,512,490 -w 4 -i 6
gpt-neox-20b-LR-b24-s512-w4-v0 -m gpt-neox-20b -S LR -b 24 -s 512 -w 4 -i 6
TRAININGS
}

# Generated traces beside the recordings of the same trainings, those that are there.
section_generated() {
  local scratch name options pairs=() strategies=()
  scratch=$(mktemp -d)
  mkdir -p -- "$simulated"
  while read -r name options; do
    [[ -e $(recordings | grep -F "/$name.pickle.xz") ]] || continue
    ln -s -- "$(recordings | grep -F "/$name.pickle.xz")" "$scratch/$name.pickle.xz"
    # shellcheck disable=SC2086
    if ! (cd -- "$scratch" && "$lakebed" trace generate finetune --quiet $options "$name.generated"); then
      failed=1
      continue
    fi
    printf '# %s.generated: trace generate finetune %s\n' "$name" "$options" >>"$scratch/head"
    pairs+=("$name.pickle.xz" "$name.generated")
    [[ $name != opt-1.3b-*-b16-s512-w4-v0-i8 ]] || strategies+=("$name.pickle.xz" "$name.generated")
  done < <(recorded_trainings)
  if ((${#pairs[@]} == 0)); then
    say "generated: none of the recordings is there"
    rm -rf -- "$scratch"
    return
  fi
  if (cd -- "$scratch" && {
    printf '# Traces of trace generate finetune beside recordings of the same trainings, on the simulated H200\n'
    cat head
    printf '\n## All\n\n'
    "$lakebed" trace compare --quiet -p bfc "${pairs[@]}"
    printf '\n## Strategies of OPT-1.3B on four ranks\n\n'
    "$lakebed" trace compare --quiet -p bfc,expandable,gmlake,aliasheap "${strategies[@]}"
  } >generated.txt && "$lakebed" trace compare --quiet -p bfc,expandable,gmlake,aliasheap --csv generated.csv "${pairs[@]}" >/dev/null); then
    cp -- "$scratch/generated.txt" "$scratch/generated.csv" "$simulated/"
    say "generated: $((${#pairs[@]} / 2)) recordings"
  else
    say "generated: failed"
    failed=1
  fi
  rm -rf -- "$scratch"
}

# The paper's evaluation over generated workloads (docs/paper.md). Its logs stay behind, so that a second run is quick.
section_paper() {
  local begin=$SECONDS
  # In the folder itself, so that the command in the files' headers names no other.
  if (cd -- "$here" && "$lakebed" paper --quiet -o paper >/dev/null); then
    say "paper: $((SECONDS - begin)) s"
  else
    say "paper: failed with status $?"
    failed=1
  fi
}

# A CSV whose quoted fields, which hold commas, are replaced by a word.
plain_csv() { sed 's/"[^"]*"/quoted/g' -- "$1"; }

# Means over recordings of training runs (RECORDINGS) or over those and made-up event files (ALL):
# policy,utilisation,driver ms,frontier,oracle. frontier: 1 where no other policy, oracles left out, holds
# less in less time.
means() {
  plain_csv "$2" | awk -F, -v which="$1" '
    /^#/ { next }
    $1 == "trace" { for (i = 1; i <= NF; i++) at[$i] = i; next }
    {
      policy = $at["policy"]
      if ($at["utilization"] == "" || (which == "RECORDINGS" && $at["trace"] !~ /\.pickle/)) next
      util[policy] += $at["utilization"]; ms[policy] += $at["driver_us"] / 1000; n[policy]++
    }
    END {
      for (policy in n) { util[policy] /= n[policy]; ms[policy] /= n[policy] }
      for (policy in n) {
        oracle = policy == "planned"
        best = !oracle
        for (other in n)
          if (other != "planned" && other != policy && util[other] >= util[policy] && ms[other] <= ms[policy] &&
              (util[other] > util[policy] || ms[other] < ms[policy])) best = 0
        printf "%s,%.4f,%.3f,%d,%d\n", policy, util[policy], ms[policy], best, oracle
      }
    }' | sort -t, -k3,3g
}

# The table that README.md opens with: policy, mean and worst utilisation, mean reserved peak in GiB, mean driver ms,
# mean smallest device in GiB (section oom).
headline() {
  awk -F, '
    /^#/ { next }
    $1 == "trace" { files++; delete at; for (i = 1; i <= NF; i++) at[$i] = i; next }
    files == 1 { smallest[$at["policy"]] += $at["smallest_capacity_bytes"] / 1073741824; found[$at["policy"]]++; next }
    $at["trace"] ~ /\.pickle/ {
      policy = $at["policy"]; util = $at["utilization"]
      if (!(policy in n) || util < worst[policy]) worst[policy] = util
      n[policy]++; sum[policy] += util; held[policy] += $at["reserved_peak_bytes"] / 1073741824; ms[policy] += $at["driver_us"] / 1000
    }
    END {
      for (policy in n)
        printf "%-12s %6.3f %6.3f %8.2f %10.1f %8s\n", policy, sum[policy] / n[policy], worst[policy], held[policy] / n[policy], ms[policy] / n[policy],
          policy in found ? sprintf("%.2f", smallest[policy] / found[policy]) : "-"
    }' <(plain_csv "$simulated/oom.csv") <(plain_csv "$1") | sort -k2,2nr
}

section_headline() {
  local csv
  for csv in "$out"/replay.csv "$simulated"/replay.csv; do
    [[ ! -s $csv ]] || { printf '%s\n' "${csv#"$here/"}" && headline "$csv"; }
  done
}

# ---- gmlake: what its limits and variants do ----

# The header of a CSV, without its column names.
provenance_of() { grep '^# ' -- "$1"; }

# One table with a row a trace and a column a policy, in the order in which they were replayed: wide_table CSV COLUMN DIVISOR FORMAT LABEL...
# Then the mean and the extreme over the recordings of training runs.
wide_table() {
  local csv=$1 column=$2 divisor=$3 format=$4
  shift 4
  awk -F, -v labels="$*" -v column="$column" -v divisor="$divisor" -v format="$format" '
    function cells(row, i) { for (i = 1; i <= count; i++) printf format, row[i]; printf "\n" }
    /^#/ { next }
    !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; count = split(labels, label, " "); next }
    {
      if ($at["trace"] != trace) { trace = $at["trace"]; name[++traces] = trace; place = 0 }
      value[traces, ++place] = $at[column] / divisor
    }
    END {
      printf "%-40s", "trace"
      for (i = 1; i <= count; i++) printf "%11s", label[i]
      printf "\n"
      for (t = 1; t <= traces; t++) {
        shown = name[t]
        sub(/\.xz$/, "", shown); sub(/\.(pickle|txt)$/, "", shown)
        printf "%-40s", shown
        for (i = 1; i <= count; i++) {
          row[i] = value[t, i]
          if (name[t] !~ /\.pickle/) continue
          sum[i] += row[i]
          if (!recordings || row[i] < least[i]) least[i] = row[i]
          if (!recordings || row[i] > most[i]) most[i] = row[i]
        }
        recordings += name[t] ~ /\.pickle/
        cells(row)
      }
      if (!recordings) exit
      for (i = 1; i <= count; i++) mean[i] = sum[i] / recordings
      printf "%-40s", "mean of " recordings " recordings"; cells(mean)
      printf "%-40s", "least"; cells(least)
      printf "%-40s", "most"; cells(most)
    }' <(plain_csv "$csv")
}

# On how many traces each policy reserves more than the first one.
more_than_first() {
  local csv=$1
  shift
  awk -F, -v labels="$*" '
    /^#/ { next }
    !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; count = split(labels, label, " "); next }
    {
      if ($at["trace"] != trace) { trace = $at["trace"]; place = 0; recordings += trace ~ /\.pickle/; traces++; first = $at["reserved_peak_bytes"] + 0 }
      place++
      if ($at["reserved_peak_bytes"] + 0 > first) { if (trace ~ /\.pickle/) more[place]++; all[place]++ }
    }
    END {
      printf "%-40s", "of " recordings " recordings"
      for (i = 1; i <= count; i++) printf "%11d", more[i]
      printf "\n%-40s", "of all " traces " traces"
      for (i = 1; i <= count; i++) printf "%11d", all[i]
      printf "\n"
    }' <(plain_csv "$csv")
}

# gmlake_replay FOLDER NAME POLICIES OPTION...: the CSV.
gmlake_replay() {
  local folder=$1 name=$2 policies=$3 begin=$SECONDS traces
  shift 3
  mapfile -t traces < <(recordings)
  if (cd -- "$folder" && "$lakebed" replay "${traces[@]}" -p "$policies" "$@" --quiet --csv "$name.csv" >/dev/null); then
    say "$name: $((SECONDS - begin)) s"
  else
    say "$name: failed with status $?"
    failed=1
    return 1
  fi
}

fragmentation_limits=(2 4 8 16 32 64 128 256 512) # MiB

limits_into() {
  local folder=$1 list=bfc,gmlake:variant=published labels=(bfc published) limit csv=$1/gmlake_frag_limit.csv
  shift
  for limit in "${fragmentation_limits[@]}"; do
    list+=",gmlake:frag_limit=${limit}MiB"
    labels+=("${limit}MiB")
  done
  gmlake_replay "$folder" gmlake_frag_limit "$list" "$@" || return
  {
    provenance_of "$csv"
    printf '\n# Utilisation: live peak / reserved peak\n'
    wide_table "$csv" utilization 1 '%11.4f' "${labels[@]}"
    printf '\n# Driver time in ms\n'
    wide_table "$csv" driver_us 1000 '%11.1f' "${labels[@]}"
    printf '\n# Traces on which more is reserved than by bfc\n'
    more_than_first "$csv" "${labels[@]}"
  } >"$folder/gmlake_frag_limit.txt"
}

# What the authors' code did (tests/golden/gmlake_published_h200.jsonl) beside variant=published and the paper's
# rules, a row for each trace and request limit.
published_table() {
  printf '%-40s %6s %12s %12s %9s %9s %9s %9s %9s %9s %9s\n' trace limit authors published ratio gmlake ratio authors published gmlake ratio
  printf '%-40s %6s %12s %12s %9s %9s %9s %9s %9s %9s %9s\n' '' MiB MiB MiB '' MiB '' ms ms ms ''
  awk -F, '
    FNR == NR {
      line = $0
      match(line, /"trace": "[^"]*"/); trace = substr(line, RSTART + 10, RLENGTH - 11)
      match(line, /"request_limit": [0-9]+/); limit = substr(line, RSTART + 17, RLENGTH - 17) / 1048576
      match(line, /"peak_reserved": [0-9]+/); reserved[trace, limit] = substr(line, RSTART + 17, RLENGTH - 17) + 0
      match(line, /"driver_us": [0-9.]+/); us[trace, limit] = substr(line, RSTART + 13, RLENGTH - 13) + 0
      next
    }
    /^#/ { next }
    !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
    {
      name = $at["trace"]; recording = name ~ /\.pickle/
      sub(/\.xz$/, "", name); sub(/\.(pickle|txt)$/, "", name)
      place = name == before ? place + 1 : 1
      before = name
      if (place == 2) { ours = $at["reserved_peak_bytes"] + 0; our_us = $at["driver_us"] + 0 }
      limit = place == 6 ? 2 : place == 7 ? 128 : place == 8 ? 512 : 0
      if (!limit || !((name, limit) in reserved)) next
      theirs = reserved[name, limit]; mine = $at["reserved_peak_bytes"] + 0
      printf "%-40s %6d %12.0f %12.0f %9.4f %9.0f %9.4f %9.1f %9.1f %9.1f %9.3f\n", name, limit, theirs / 1048576, mine / 1048576, mine / theirs,
        ours / 1048576, ours / theirs, us[name, limit] / 1000, $at["driver_us"] / 1000, our_us / 1000, our_us / us[name, limit]
      lines++; same += mine == theirs
      if (!recording) next
      compared++; fewer += ours < theirs; faster += our_us < us[name, limit]
      if (!(name in seen)) { seen[name] = 1; names++; all_fewer[name] = 1 }
      if (ours >= theirs) all_fewer[name] = 0
    }
    END {
      for (name in all_fewer) better += all_fewer[name]
      printf "# variant=published reserves the same bytes as the authors in %d of %d rows\n", same, lines
      printf "# gmlake reserves fewer bytes than the authors in %d of the %d rows of recordings, on %d of %d recordings whatever the limit\n", fewer, compared, better, names
      printf "# gmlake spends less time in the driver in %d of %d of these rows\n", faster, compared
    }' "$here/../tests/golden/gmlake_published_h200.jsonl" <(plain_csv "$1")
}

variants_into() {
  local folder=$1 list=bfc,gmlake,gmlake:largest_chunk=2MiB,gmlake:stitching=views,gmlake:stitching=eager limit csv=$1/gmlake_variants.csv
  local labels=(bfc gmlake 2MiB views eager pub2 pub128 pub512)
  shift
  for limit in 2 128 512; do list+=",gmlake:variant=published,request_limit=${limit}MiB,stitch_bytes=80GiB"; done
  gmlake_replay "$folder" gmlake_variants "$list" "$@" || return
  {
    provenance_of "$csv"
    printf '\n# gmlake: default options (deferred, largest_chunk=4MiB); 2MiB: largest_chunk=2MiB; views, eager: stitching=; pubN: variant=published,request_limit=N MiB\n'
    printf '\n# Utilisation: live peak / reserved peak\n'
    wide_table "$csv" utilization 1 '%11.4f' "${labels[@]}"
    printf '\n# Driver time in ms\n'
    wide_table "$csv" driver_us 1000 '%11.1f' "${labels[@]}"
    printf '\n# Driver calls\n'
    wide_table "$csv" driver_calls 1 '%11.0f' "${labels[@]}"
    printf '\n# Traces on which more is reserved than by bfc\n'
    more_than_first "$csv" "${labels[@]}"
    printf '\n# The code that the authors published: reserved peak and time in driver calls as measured on an H200, at its request limit (fragLimit),\n'
    printf '# variant=published with the same limit, and gmlake with default options; ratios to the authors'"'"' numbers\n'
    published_table "$csv"
  } >"$folder/gmlake_variants.txt"
}

# One line an option, with everything else at its default: means over the recordings of training runs.
gmlake_options=(default tolerance=2MiB tolerance=16MiB cross_stream=seen cross_stream=wait stitch=after_growing small_limit=8MiB room=0 room=512MiB largest_chunk=2MiB
  largest_chunk=8MiB largest_chunk=16MiB largest_chunk=32MiB largest_chunk=128MiB chunk=4MiB chunk=16MiB chunk=32MiB stitching=views stitching=views,candidates=smallest
  stitching=views,candidates=oldest stitching=eager stitch_ratio=2 stitch_ratio=1 stitch_count=200 stitch_bytes=4GiB)

options_into() {
  local folder=$1 list=bfc,gmlake option csv=$1/gmlake_options.csv
  shift
  for option in "${gmlake_options[@]:1}"; do list+=",gmlake:$option"; done
  gmlake_replay "$folder" gmlake_options "$list" "$@" || return
  {
    provenance_of "$csv"
    printf '\n%-40s %11s %11s %11s %12s\n' option utilisation least 'driver ms' calls
    awk -F, -v labels="bfc ${gmlake_options[*]}" '
      /^#/ { next }
      !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; count = split(labels, label, " "); next }
      $at["trace"] !~ /\.pickle/ { next }
      {
        if ($at["trace"] != trace) { trace = $at["trace"]; place = 0; traces++ }
        place++
        value = $at["utilization"] + 0
        if (traces == 1 || value < least[place]) least[place] = value
        util[place] += value; ms[place] += $at["driver_us"] / 1000; calls[place] += $at["driver_calls"]
      }
      END { for (i = 1; i <= count; i++) printf "%-40s %11.4f %11.4f %11.1f %12.0f\n", label[i], util[i] / traces, least[i], ms[i] / traces, calls[i] / traces }' \
      <(plain_csv "$csv")
  } >"$folder/gmlake_options.txt"
}

# On the device: each less than a minute for the recordings of training runs; the made-up traces double that.
section_gmlake_limits() { limits_into "$out" "${options[@]}"; }
section_gmlake_variants() { variants_into "$out" "${options[@]}"; }

# The same on the simulated H200: needs no GPU.
section_gmlake_sim() {
  mkdir -p -- "$simulated"
  limits_into "$simulated" --driver sim --no-host-timing
  variants_into "$simulated" --driver sim --no-host-timing
  options_into "$simulated" --driver sim --no-host-timing
}

# Measured on the device beside what the model charges: needs both replays.
section_compare() {
  [[ -s $out/replay.csv && -s $simulated/replay.csv ]] || { say "compare: needs the sections replay and sim"; return; }
  {
    printf '# Driver time measured, and as the simulated device charges it; reserved peaks and call counts of both\n'
    awk -F, '
      /^#/ { next }
      !(FILENAME in seen) { seen[FILENAME]; delete at; for (i = 1; i <= NF; i++) at[$i] = i; next }
      { key = $at["trace"] SUBSEP $at["policy"] }
      $at["policy"] == "async" { next } # placement in that pool is not public: only a model
      NR == FNR { us[key] = $at["driver_us"]; reserved[key] = $at["reserved_peak_bytes"]; calls[key] = $at["driver_calls"]; next }
      !header++ { printf "%-44s %-12s %12s %12s %8s %10s %6s\n", "trace", "policy", "measured ms", "model ms", "ratio", "reserved", "calls" }
      key in us {
        ratio = $at["driver_us"] / us[key]
        off += ratio < 0.75 || ratio > 1.25; rows++
        printf "%-44s %-12s %12.1f %12.1f %8.2f %10s %6s\n", $at["trace"], $at["policy"], us[key] / 1000, $at["driver_us"] / 1000, ratio,
          reserved[key] == $at["reserved_peak_bytes"] ? "equal" : "DIFFERS", calls[key] == $at["driver_calls"] ? "equal" : "differ"
      }
      END { printf "# %d of %d are off by more than 25 %%\n", off, rows }' <(plain_csv "$out/replay.csv") <(plain_csv "$simulated/replay.csv")
  } >"$out/model.txt"
  say "compare: $(tail -n 1 "$out/model.txt")"
}

# One picture from the replays: draw FIGURE OUTPUT VARIABLE=VALUE...
draw() {
  local figure=$1 output=$2 kind variable settings
  shift 2
  for kind in svg png; do
    settings="out='$output.$kind'"
    for variable in "$@"; do settings+="; ${variable%%=*}='${variable#*=}'"; done
    gnuplot -e "$settings" "$here/$figure.gp" || failed=1
  done
}

# Utilisation against driver time, from the replays in FOLDER: draw_frontier FOLDER HEADING SECTION
draw_frontier() {
  local folder=$1 heading=$2 section=$3 scratch recordings all
  [[ -s $folder/replay.csv ]] || return
  scratch=$(mktemp -d)
  means RECORDINGS "$folder/replay.csv" >"$scratch/recordings"
  means ALL "$folder/replay.csv" >"$scratch/all"
  all=$(grep -v '^#' "$folder/replay.csv" | tail -n +2 | cut -d, -f1 | sort -u | wc -l)
  recordings=$(grep -v '^#' "$folder/replay.csv" | cut -d, -f1 | sort -u | grep -c pickle)
  draw frontier "$folder/frontier" "recordings=$scratch/recordings" "all=$scratch/all" "heading=$heading" \
    "heading_recordings=$recordings recorded training runs" "heading_all=these and $((all - recordings)) made-up traces" \
    "provenance=results/regenerate.sh $section figures"
  rm -rf -- "$scratch"
}

draw_replays() {
  if [[ -s $simulated/timeline.csv ]]; then
    draw memory "$simulated/memory" "csv=$simulated/timeline.csv" "traces=${drawn[*]}" \
      'provenance=simulated H200; results/regenerate.sh sim figures'
  fi
  draw_frontier "$simulated" 'Memory against driver time on the simulated H200' sim
  draw_frontier "$out" 'Memory against driver time on an H200' replay
}

# Utilisation over the fragmentation limit, a line a recording: 'LIMIT,utilisation' lines, an empty line and a name between traces.
draw_limits() {
  local csv=$1/gmlake_frag_limit.csv scratch
  [[ -s $csv ]] || return 0
  scratch=$(mktemp)
  awk -F, -v limits="${fragmentation_limits[*]}" '
    /^#/ { next }
    !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; count = split(limits, limit, " "); next }
    $at["trace"] !~ /\.pickle/ { next }
    {
      if ($at["trace"] != trace) { trace = $at["trace"]; place = 0; traces++; shown = trace; sub(/\.pickle\.xz$/, "", shown); if (traces > 1) printf "\n\n"; print "\"" shown "\"" }
      place++
      sum[place] += $at["utilization"]
      if (place > 2) print limit[place - 2] "," $at["utilization"]
    }
    END {
      printf "\n\n\"mean\"\n"
      for (i = 1; i <= count; i++) print limit[i] "," sum[i + 2] / traces
      printf "\n\n\"mean of bfc\"\n"
      for (i = 1; i <= count; i++) print limit[i] "," sum[1] / traces
      printf "\n\n\"mean of variant=published\"\n"
      for (i = 1; i <= count; i++) print limit[i] "," sum[2] / traces
    }' <(plain_csv "$csv") >"$scratch"
  draw gmlake_frag_limit "$1/gmlake_frag_limit" "data=$scratch" 'heading=gmlake: utilisation by fragmentation limit' \
    "provenance=$(sed -n 's/^# device: //p' "$csv"), $(sed -n 's/^# driver: //p' "$csv"); results/regenerate.sh $2 figures"
  rm -f -- "$scratch"
}

# Memory over the steps of two training runs.
draw_training() {
  local csv=$out/torch/memory.csv
  [[ -s $csv ]] || return 0
  for kind in svg png; do
    (cd -- "$here" && gnuplot -e "csv='$csv'; out='$out/torch/memory.$kind'" torch_memory.gp) || failed=1
  done
}

# Draws what was measured; needs no GPU.
section_figures() {
  local figure csv
  if ! command -v gnuplot >/dev/null; then
    say "figures: no gnuplot here; run 'results/regenerate.sh figures' where there is one"
    return
  fi
  for figure in table1:vmm figure6:vmm live_handles:profile access:access alloc:alloc; do
    csv=$out/${figure#*:}.csv
    [[ -s $csv ]] || continue
    for kind in svg png; do
      (cd -- "$here" && gnuplot -e "csv='$csv'; out='$out/${figure%:*}.$kind'" "${figure%:*}.gp") || failed=1
    done
  done
  draw_replays
  draw_training
  draw_limits "$simulated" gmlake_sim
  draw_limits "$out" gmlake_limits
}

# What becomes of every driver call that fails, over the bundled traces and random programs. Needs no GPU.
section_faults() {
  local begin=$SECONDS
  mkdir -p -- "$simulated"
  if (cd -- "$here/.." && "$lakebed" faults --pairs --events 200 --random 3 --quiet --csv results/sim/faults.csv edge loguniform_1B_1G multi_stream \
    opt-1.3b-LR-b16-s1024-w1-v1 opt-1.3b-LR-b16-s512-w4-v0-i8 opt-1.3b-N-b8-s512-w4-v1 sawtooth_seq >results/sim/faults.txt); then
    say "faults: $((SECONDS - begin)) s"
  else
    say "faults: failed with status $?"
    failed=1
  fi
}

# Random programs through every policy, and variants that stitch much or little: against a model, with data, with threads. Needs no GPU.
stress_policies=native,async,bfc,expandable,tfbfc,rawvmm,gmlake,aliasheap,null,gmlake:largest_chunk=2MiB,stitch_mappings=20,cross_stream=wait,gmlake:stitching=eager,stitch_count=12,gmlake:stitching=views,stitch_bytes=48MiB
stress_policies+=,gmlake:variant=published,request_limit=4MiB
stress_policies+=,aliasheap:huge=4MiB,medium=1MiB,handle_start=4MiB,handle_edge=2MiB,handle_limit=4MiB,edge_minimum=4096
section_stress() {
  mkdir -p -- "$simulated"
  stress() {
    local name=$1 begin=$SECONDS
    shift
    if (cd -- "$here/.." && "$lakebed" stress --policy "$stress_policies" --seed 1 --quiet --csv "results/sim/$name.csv" "$@" >"results/sim/$name.txt"); then
      say "$name: $((SECONDS - begin)) s"
    else
      say "$name: failed with status $?"
      failed=1
    fi
  }
  stress stress --operations 1000000
  stress stress_verify --operations 20000 --verify --capacity 64MiB
  stress stress_threads --operations 40000 --verify --threads 8 --capacity 256MiB --room 64MiB --largest 4MiB
}

simulated=$here/sim
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

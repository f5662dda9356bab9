#!/usr/bin/env bash
# Measures what lies under results/ anew, on a machine with a GPU, and draws the figures.
#
#   results/regenerate.sh [SECTION...]     default: all that this machine can do
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

policies=native,bfc,expandable,tfbfc,gmlake,aliasheap
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

# The same on the simulated H200: needs no GPU. Timeline of the first recording of OPT-1.3B, and means a policy.
section_sim() {
  mkdir -p -- "$simulated"
  replay_into "$simulated" replay -p "$policies,$heavy" --driver sim --no-host-timing
  "$lakebed" replay "$here/../workloads/bundled/opt-1.3b-LR-b16-s512-w4-v0-i8.pickle.xz" -p "$policies" --driver sim --quiet \
    --timeline "$simulated/timeline.csv" --timeline-points 600 >/dev/null || failed=1
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

# A CSV whose quoted fields, which hold commas, are replaced by a word.
plain_csv() { sed 's/"[^"]*"/quoted/g' -- "$1"; }

# Means over the recordings of training runs (not the made-up event files): policy,utilisation,driver ms.
means() {
  awk -F, '
    /^#/ { next }
    !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
    $at["trace"] ~ /\.pickle/ { util[$at["policy"]] += $at["utilization"]; ms[$at["policy"]] += $at["driver_us"] / 1000; n[$at["policy"]]++ }
    END { for (policy in n) printf "%s,%.4f,%.2f\n", policy, util[policy] / n[policy], ms[policy] / n[policy] }' <(plain_csv "$1") | sort
}

# The table that README.md opens with: policy, mean and worst utilisation, mean reserved peak in GiB, mean driver ms.
headline() {
  awk -F, '
    /^#/ { next }
    !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
    $at["trace"] ~ /\.pickle/ {
      policy = $at["policy"]; util = $at["utilization"]
      if (!(policy in n) || util < worst[policy]) worst[policy] = util
      n[policy]++; sum[policy] += util; held[policy] += $at["reserved_peak_bytes"] / 1073741824; ms[policy] += $at["driver_us"] / 1000
    }
    END { for (policy in n) printf "%-12s %6.3f %6.3f %8.2f %10.1f\n", policy, sum[policy] / n[policy], worst[policy], held[policy] / n[policy], ms[policy] / n[policy] }' \
    <(plain_csv "$1") | sort -k2,2nr
}

section_headline() {
  local csv
  for csv in "$out"/replay.csv "$out"/async.csv "$simulated"/replay.csv; do
    [[ ! -s $csv ]] || { printf '%s\n' "${csv#"$here/"}" && headline "$csv"; }
  done
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

draw_replays() {
  local scratch
  scratch=$(mktemp)
  if [[ -s $simulated/timeline.csv ]]; then
    draw memory "$simulated/memory" "csv=$simulated/timeline.csv" 'heading=OPT-1.3B, LoRA and recomputation, 4 ranks: memory over eight iterations' \
      'provenance=simulated H200; results/regenerate.sh sim figures'
  fi
  if [[ -s $simulated/replay.csv ]]; then
    means "$simulated/replay.csv" >"$scratch"
    draw frontier "$simulated/frontier" "data=$scratch" 'heading=Recorded training runs on the simulated H200' \
      "provenance=$(grep -v '^#' "$simulated/replay.csv" | cut -d, -f1 | sort -u | grep -c pickle) recordings; results/regenerate.sh sim figures"
  fi
  if [[ -s $out/replay.csv ]]; then
    means "$out/replay.csv" >"$scratch"
    draw frontier "$out/frontier" "data=$scratch" 'heading=Recorded training runs on an H200' \
      "provenance=$(grep -v '^#' "$out/replay.csv" | cut -d, -f1 | sort -u | grep -c pickle) recordings; results/regenerate.sh replay figures"
  fi
  rm -f -- "$scratch"
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
}

simulated=$here/sim
sections=(vmm axes profile access alloc replay verify sim iterations compare headline figures)
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

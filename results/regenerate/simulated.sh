# What needs no GPU: replays on the simulated device, generated workloads, failures and random programs.
# shellcheck shell=bash

# The smallest simulated device on which each policy serves each recording.
section_oom() {
  local recording traces=() begin=$SECONDS run
  mkdir -p -- "$simulated"
  run=$(mktemp -d)
  while IFS= read -r recording; do
    ln -s -- "$recording" "$run/"
    traces+=("${recording##*/}")
  done < <(recordings | grep '\.pickle')
  if (cd -- "$run" && "$lakebed" oom "${traces[@]}" -p "$policies,$heavy" --quiet --csv oom.csv >oom.txt); then
    header oom 'NVIDIA H200, as small as it may be' sim oom >"$run/head"
    cat "$run/head" "$run/oom.csv" >"$simulated/oom.csv"
    cat "$run/head" "$run/oom.txt" >"$simulated/oom.txt"
    say "oom: $((SECONDS - begin)) s"
  else
    say "oom: failed with status $?"
    failed=1
  fi
  rm -rf -- "$run"
}

# The same on the simulated H200: needs no GPU. Timelines of three recordings too.
section_sim() {
  local run recording paths=()
  mkdir -p -- "$simulated"
  replay_into "$simulated" replay sim -p "$policies,$heavy" --driver sim --no-host-timing
  run=$(mktemp -d)
  for recording in "${drawn[@]}"; do paths+=("$here/../workloads/bundled/$recording.pickle.xz"); done
  if "$lakebed" replay "${paths[@]}" -p "$policies,$heavy" --driver sim --quiet \
    --timeline "$run/timeline.csv" --timeline-points 600 >/dev/null; then
    { header replay 'NVIDIA H200' sim sim && cat "$run/timeline.csv"; } >"$simulated/timeline.csv"
  else
    failed=1
  fi
  rm -rf -- "$run"
}

# Recordings again where the device's work ends so many events after it was asked for: whether memory that is held, or the
# driver's time, depends on it.
delays=(0 1 20 200 2000)
section_delays() {
  local delay run begin=$SECONDS
  mkdir -p -- "$simulated"
  run=$(mktemp -d)
  for delay in "${delays[@]}"; do
    if ! replay_recordings "$run" delays '\.pickle' -p expandable,bfc,gmlake,aliasheap --driver sim --no-host-timing --event-delay "$delay"; then
      say "delays: failed with status $?"
      failed=1
      break
    fi
    [[ -s $run/head ]] || grep '^#' "$run/run.csv" | grep -v '^# event_delay_events' >"$run/head"
    [[ -s $run/columns ]] || sed -n '/^#/!{s/^/event_delay_events,/p;q}' "$run/run.csv" >"$run/columns"
    sed -e '/^#/d' "$run/run.csv" | sed -e 1d -e "s/^/$delay,/" >>"$run/rows"
  done
  cat "$run/head" "$run/columns" "$run/rows" >"$simulated/event_delay.csv"
  {
    cat "$run/head"
    printf '\n# Means over the recordings by the events after which work asked for has ended; driver time of all, and beside the first policy\n'
    awk -F, -f "$here/regenerate/delays_table.awk" <(plain_csv "$simulated/event_delay.csv")
  } >"$simulated/event_delay.txt"
  say "delays: $((SECONDS - begin)) s"
  rm -rf -- "$run"
}

# minimalloc's eleven cases, each known to fit 1 MiB, through the oracle. Its cases are not in the tree.
section_minimalloc() {
  local folder=${LAKEBED_MINIMALLOC:-$here/../../shared/public} run begin=$SECONDS
  if [[ ! -e $folder/A.1048576.csv ]]; then
    say "minimalloc: its cases are not in $folder; LAKEBED_MINIMALLOC names another folder"
    return
  fi
  mkdir -p -- "$simulated"
  run=$(mktemp -d)
  ln -s -- "$(realpath -- "$folder")"/[A-K].1048576.csv "$run/"
  if (cd -- "$run" && "$lakebed" replay [A-K].1048576.csv -p planned:precision=1MiB,effort=8000 --details --quiet --csv run.csv >run.txt); then
    { grep '^#' "$run/run.csv" && printf '\n' && cat "$run/run.txt"; } >"$simulated/minimalloc.txt"
    say "minimalloc: $((SECONDS - begin)) s"
  else
    say "minimalloc: failed with status $?"
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
  local run begin=$SECONDS
  mkdir -p -- "$simulated"
  run=$(mktemp -d)
  if ! replay_recordings "$run" iterations '\.pickle' "${iterated[@]/#/-p}" --driver sim --no-host-timing --iterations=measures.csv; then
    say "iterations: failed with status $?"
    failed=1
  else
    grep '^#' "$run/run.csv" >"$run/head"
    { cat "$run/head" && iterations_columns "$run/measures.csv"; } >"$simulated/iterations.csv"
    { cat "$run/head" && iterations_table "$simulated/iterations.csv"; } >"$simulated/iterations.txt"
    say "iterations: $((SECONDS - begin)) s"
  fi
  rm -rf -- "$run"
}

# A row an iteration, from one a measure.
iterations_columns() {
  awk -F, -f "$here/regenerate/iterations_columns.awk" "$1"
}

# A row a run: the first iteration from which on there is S1 alone, no driver call for memory; these calls, by iteration.
iterations_table() {
  awk -F, -f "$here/regenerate/iterations_table.awk" "$1" | { IFS= read -r head; printf '%s\n' "$head"; sort -s -k1,1; }
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
    header 'trace compare' 'NVIDIA H200' sim generated
    printf '# Traces of trace generate finetune beside recordings of the same trainings, on the simulated H200\n'
    cat head
    printf '\n## All\n\n'
    "$lakebed" trace compare --quiet -p bfc "${pairs[@]}"
    printf '\n## Strategies of OPT-1.3B on four ranks\n\n'
    "$lakebed" trace compare --quiet -p bfc,expandable,gmlake,aliasheap "${strategies[@]}"
  } >generated.txt && "$lakebed" trace compare --quiet -p bfc,expandable,gmlake,aliasheap --csv generated.csv "${pairs[@]}" >/dev/null); then
    cp -- "$scratch/generated.txt" "$simulated/"
    { header 'trace compare' 'NVIDIA H200' sim generated && grep -v '^# ' "$scratch/generated.csv"; } >"$simulated/generated.csv"
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
  if (cd -- "$here" && LAKEBED_ROOT=$(realpath -- "$here/..") "$lakebed" paper --quiet -o paper >/dev/null); then
    say "paper: $((SECONDS - begin)) s"
  else
    say "paper: failed with status $?"
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

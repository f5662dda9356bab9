# What becomes of every driver call that fails. Needs no GPU.
# shellcheck shell=bash

# What 'lakebed faults' is told, a line a run, and below which heading its tables stand. Loading weights, with which a recording
# begins, stitches nothing: so pieces of it from further behind, which a policy begins with nothing. Near the limit: a device
# that is barely large enough, from the beginning, because only handles that were made before memory was short are split.
faults_tuned=aliasheap:huge=4MiB,medium=1MiB,handle_start=4MiB,handle_edge=2MiB,handle_limit=4MiB,edge_minimum=4096
faults_stitching=gmlake,gmlake:stitching=eager,stitch_count=12,gmlake:stitching=views,stitch_bytes=48MiB,gmlake:variant=published,request_limit=4MiB,aliasheap,$faults_tuned
faults_recorded='opt-1.3b-LR-b16-s1024-w1-v1.pickle.xz opt-1.3b-LR-b16-s512-w4-v0-i8.pickle.xz opt-1.3b-N-b8-s512-w4-v1.pickle.xz'
faults_made_up='edge.txt.xz loguniform_1B_1G.txt.xz multi_stream.txt.xz sawtooth_seq.txt.xz'
faults_runs() {
  cat <<RUNS
begin|every policy, the first 200 events|--pairs --events 200 --random 3 $faults_made_up $faults_recorded
behind|what stitches, 200 events from the 5,000th on|--pairs --skip 5000 --events 200 --random 0 -p expandable,gmlake,aliasheap $faults_recorded
later|what stitches, 300 events from the 8,000th on|--pairs --skip 8000 --events 300 --random 0 -p expandable,gmlake,aliasheap $faults_recorded
settled|what stitches, 300 events from the 30,000th on|--pairs --skip 30000 --events 300 --random 0 -p gmlake,aliasheap opt-1.3b-LR-b16-s512-w4-v0-i8.pickle.xz
options|options with which much is stitched and dropped, random programs|--pairs --random 6 --seed 4 -p $faults_stitching
windows|a single window, so that it is evicted, random programs|--pairs --random 30 --seed 10 -p $faults_tuned,windows=1
short|a device that is nearly too small, random programs|--pairs --capacity 64MiB --random 6 --seed 4 -p gmlake,aliasheap
near|near the device's end, one failure|--events 20000 --capacity 6800MiB --random 0 -p aliasheap opt-1.3b-LR-b16-s512-w4-v0-i8.pickle.xz
near_pairs|near the device's end, every tenth failure|--pairs --part 1/10 --events 20000 --capacity 6800MiB --random 0 -p aliasheap opt-1.3b-LR-b16-s512-w4-v0-i8.pickle.xz
RUNS
}

section_faults() {
  local begin=$SECONDS run name heading told sound=yes
  mkdir -p -- "$simulated"
  run=$(mktemp -d)
  ln -s -- "$(realpath -- "$here/../workloads/bundled")"/*.xz "$run/"
  while IFS='|' read -r name heading told; do
    read -r -a told <<<"$told"
    (cd -- "$run" && "$lakebed" faults "${told[@]}" --quiet --csv run.csv >run.txt) || sound=no
    sed -n "s/^# command: /# run $name: /p" "$run/run.csv" >>"$run/commands"
    [[ -s $run/columns ]] || sed -n '/^#/!{s/^/run,/p;q}' "$run/run.csv" >"$run/columns"
    sed -e '/^#/d' "$run/run.csv" | sed -e 1d -e "s/^/$name,/" >>"$run/rows"
    { printf '\n## %s: %s\n\n' "$name" "$heading" && grep -v '^# ' "$run/run.txt"; } >>"$run/text"
  done < <(faults_runs)
  { header faults 'NVIDIA H200' sim faults && cat "$run/commands"; } >"$run/head"
  cat "$run/head" "$run/columns" "$run/rows" >"$simulated/faults.csv"
  cat "$run/head" "$run/text" >"$simulated/faults.txt"
  [[ $sound == yes ]] || failed=1
  say "faults: $((SECONDS - begin)) s, sound: $sound"
  rm -rf -- "$run"
}

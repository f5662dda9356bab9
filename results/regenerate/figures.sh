# Figures of what is there, drawn by gnuplot.
# shellcheck shell=bash

# One picture: draw FIGURE OUTPUT VARIABLE=VALUE...; the scripts load what they share from their own folder.
draw() {
  local figure=$1 output=$2 kind variable settings
  shift 2
  for kind in svg png; do
    settings="out='$output.$kind'"
    for variable in "$@"; do settings+="; ${variable%%=*}='${variable#*=}'"; done
    (cd -- "$here" && gnuplot -e "$settings" "$figure.gp") || failed=1
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
  awk -F, -v limits="${fragmentation_limits[*]}" -f "$here/regenerate/limits_points.awk" <(plain_csv "$csv") >"$scratch"
  draw gmlake_frag_limit "$1/gmlake_frag_limit" "data=$scratch" 'heading=gmlake: utilisation by fragmentation limit' \
    "provenance=$(sed -n 's/^# device: //p' "$csv"), $(sed -n 's/^# driver: //p' "$csv"); results/regenerate.sh $2 figures"
  rm -f -- "$scratch"
}

# Memory over the steps of two training runs.
draw_training() {
  local csv=$out/torch/memory.csv
  [[ ! -s $csv ]] || draw torch_memory "$out/torch/memory" "csv=$csv"
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
    draw "${figure%:*}" "$out/${figure%:*}" "csv=$csv"
  done
  draw_replays
  draw_training
  draw_limits "$simulated" gmlake_sim
  draw_limits "$out" gmlake_limits
}

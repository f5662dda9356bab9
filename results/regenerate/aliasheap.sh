# What docs/aliasheap.md says in numbers: over recordings, copies of them with other sizes, limits, laps, and by option.
# shellcheck shell=bash

# A benchmark of tests/bench: bench NAME ARGUMENT..., in the folder where it is called.
bench() {
  local name=$1 folder=$PWD
  shift
  if [[ -n ${LAKEBED_BENCH:-} ]]; then
    "$LAKEBED_BENCH/$name" "$@"
  else
    (cd -- "$here/.." && bazel build -c opt "//tests/bench:$name" >&2) && (cd -- "$folder" && "$here/../bazel-bin/tests/bench/$name" "$@")
  fi
}

# The policy as it was first designed.
study_first=aliasheap:huge=320MiB,small_job=0,handle_least=16MiB,handle_edge=16MiB,handle_limit=32MiB,middle_share=1,start_share=1,keep=0,near=0,settled=0,pieces=longest,waste_live=0.95,waste_low=1.02
study_small_handles=aliasheap:handle_start=2MiB,handle_least=2MiB,handle_edge=2MiB,handle_limit=2MiB,edge_minimum=512
study_frontier="-p expandable -p aliasheap:middle_share=0.125,handle_start=128MiB,huge=700MiB -p aliasheap:handle_least=16MiB,handle_edge=16MiB -p aliasheap"
study_frontier+=" -p aliasheap:handle_least=6MiB,middle_share=0.0625 -p aliasheap:handle_least=4MiB,middle_share=0.04"
study_options="-p expandable -p aliasheap -p aliasheap:pieces=longest -p aliasheap:middle_share=0 -p aliasheap:small_job=0 -p aliasheap:settled=0"
study_options+=" -p aliasheap:near=0 -p aliasheap:keep=0 -p aliasheap:edges=false -p aliasheap:reuse=clean -p aliasheap:huge=320MiB -p aliasheap:huge=400MiB"
study_options+=" -p aliasheap:huge=700MiB -p aliasheap:huge=1GiB"
study_usual="-p expandable -p aliasheap -p $study_first -p gmlake -p bfc"
study_limited="-p expandable -p aliasheap -p $study_small_handles"
# group|traces|options of policy_study_bench
study_groups() {
  cat <<GROUPS
recordings|recorded|$study_usual
copies|recorded|-c 21,22,23,24 $study_usual
later copies|recorded|-c 31,32,33,34 -p expandable -p aliasheap
made up|made_up|$study_usual
small jobs|small|$study_usual
small jobs, copies|small|-c 21,22,23,24 $study_usual
frontier|recorded|$study_frontier
frontier, copies|recorded|-c 21,22,23,24 $study_frontier
options|recorded|$study_options
options, copies|recorded|-c 21,22,23,24 $study_options
limit 1.01|all|-m 1.01 $study_limited
limit 1.02|all|-m 1.02 $study_limited
limit 1.03|all|-m 1.03 $study_limited
limit 1.05|all|-m 1.05 $study_limited
limit 1.02, copies|all|-c 21,22,23,24 -m 1.02 $study_limited
GROUPS
}

# Trainings that hold 1 to 5 GiB.
small_jobs() {
  cat <<'JOBS'
small-gpt2-124m-N --family gpt2 --hidden 768 --layers 12 --heads 12 --vocab 50257 -S N -b 4 -s 512 -i 6
small-opt-350m-LR --family opt --hidden 1024 --layers 24 --heads 16 --vocab 50272 -S LR -b 8 -s 236,336,512,379,309,242 -i 6
small-llama-500m-R --family llama --hidden 1024 --layers 24 --heads 16 --kv-heads 4 --vocab 32000 -S R -w 4 -b 4 -s 512 -i 6
JOBS
}

section_aliasheap() {
  local begin=$SECONDS run group list traces told name options sound=yes
  local -A lists
  mkdir -p -- "$simulated"
  run=$(mktemp -d)
  while IFS= read -r name; do ln -s -- "$name" "$run/"; done < <(recordings)
  cd -- "$run" || return
  while read -r name options; do
    # shellcheck disable=SC2086
    "$lakebed" trace generate finetune --quiet $options "$name" || sound=no
    printf '# %s: lakebed trace generate finetune %s\n' "$name" "$options" >>head
  done < <(small_jobs)
  lists=([recorded]=$(echo *.pickle.xz) [made_up]=$(echo *.txt.xz) [all]=$(echo *.xz) [small]=$(echo small-*))
  printf 'group,traces,options,runs,mean,least,below_098,more_than_first,driver_ms,times_first,slowest,unserved_runs,unserved_requests,host_waits,policy\n' >rows
  while IFS='|' read -r group list told; do
    read -r -a told <<<"$told"
    read -r -a traces <<<"${lists[$list]}"
    if ! bench policy_study_bench "${told[@]}" "${traces[@]}" >table; then
      sound=no
      continue
    fi
    options=$(printf '%s ' "${told[@]}" | grep -o -e '-[cm] [0-9.,]*' | paste -sd' ')
    printf '\n## %s: %s traces, policy_study_bench %s -p POLICY...\n\n' "$group" "${#traces[@]}" "$options" | tr -s ' ' >>text
    cat table >>text
    awk -v group="\"$group\"" -v traces="${#traces[@]}" -v options="\"$options\"" 'NR > 1 {
      printf "%s,%s,%s", group, traces, options
      for (i = 1; i < NF; i++) printf ",%s", $i
      printf ",\"%s\"\n", $NF }' table >>rows
  done < <(study_groups)
  if "$lakebed" replay *.pickle.xz -p aliasheap --laps 10 --driver sim --no-host-timing --quiet --iterations=laps.csv >/dev/null; then
    { printf '\n## ten laps: lakebed replay --laps 10 -p aliasheap --iterations, recordings\n\n' && awk -F, -f "$here/regenerate/laps_table.awk" laps.csv; } >>text
  else
    sound=no
  fi
  {
    printf '\n## host: policy_bench expandable gmlake aliasheap; replay_bench 7, all traces; %s\n\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort | uniq -c | sed 's/^ *//')"
    bench policy_bench expandable gmlake aliasheap && printf '\n' && bench replay_bench 7 *.xz
  } >>text || sound=no
  { header aliasheap 'NVIDIA H200' sim aliasheap && cat head; } >"$simulated/aliasheap.head"
  { cat "$simulated/aliasheap.head" rows; } >"$simulated/aliasheap.csv"
  {
    cat "$simulated/aliasheap.head"
    printf '# runs: traces times copies; mean, least: utilisation; <0.98: runs below; >first: runs that hold more than the first policy; x first, slowest: driver\n'
    printf '# time of all, and of the slowest run, beside the first policy; unserved: runs with requests that failed; -c: copies; -m: limit, in live peaks\n'
    cat text
  } >"$simulated/aliasheap.txt"
  rm -f -- "$simulated/aliasheap.head"
  cd -- "$here" || return
  rm -rf -- "$run"
  [[ $sound == yes ]] || failed=1
  say "aliasheap: $((SECONDS - begin)) s, all ran: $sound"
}

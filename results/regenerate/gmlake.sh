# What gmlake's limits, variants and options do.
# shellcheck shell=bash

# The header of a CSV, without its column names.
provenance_of() { grep '^# ' -- "$1"; }

# One table with a row a trace and a column a policy, in the order in which they were replayed: wide_table CSV COLUMN DIVISOR FORMAT LABEL...
# Then the mean and the extreme over the recordings of training runs.
wide_table() {
  local csv=$1 column=$2 divisor=$3 format=$4
  shift 4
  awk -F, -v labels="$*" -v column="$column" -v divisor="$divisor" -v format="$format" -f "$here/regenerate/wide_table.awk" <(plain_csv "$csv")
}

# On how many traces each policy reserves more than the first one.
more_than_first() {
  local csv=$1
  shift
  awk -F, -v labels="$*" -f "$here/regenerate/more_than_first.awk" <(plain_csv "$csv")
}

# gmlake_replay FOLDER NAME SECTION POLICIES OPTION...: the CSV.
gmlake_replay() {
  local folder=$1 name=$2 section=$3 policies=$4 begin=$SECONDS scratch
  shift 4
  scratch=$(mktemp -d)
  if replay_recordings "$scratch" "$section" . -p "$policies" "$@"; then
    mv -- "$scratch/run.csv" "$folder/$name.csv"
    rm -rf -- "$scratch"
    say "$name: $((SECONDS - begin)) s"
  else
    say "$name: failed with status $?"
    rm -rf -- "$scratch"
    failed=1
    return 1
  fi
}

fragmentation_limits=(2 4 8 16 32 64 128 256 512) # MiB

limits_into() {
  local folder=$1 section=$2 list=bfc,gmlake:variant=published labels=(bfc published) limit csv=$1/gmlake_frag_limit.csv
  shift 2
  for limit in "${fragmentation_limits[@]}"; do
    list+=",gmlake:frag_limit=${limit}MiB"
    labels+=("${limit}MiB")
  done
  gmlake_replay "$folder" gmlake_frag_limit "$section" "$list" "$@" || return
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
  awk -F, -f "$here/regenerate/published_table.awk" "$here/../tests/golden/gmlake_published_h200.jsonl" <(plain_csv "$1")
}

variants_into() {
  local folder=$1 section=$2 list=bfc,gmlake,gmlake:largest_chunk=2MiB,gmlake:stitching=views,gmlake:stitching=eager limit csv=$1/gmlake_variants.csv
  local labels=(bfc gmlake 2MiB views eager pub2 pub128 pub512)
  shift 2
  for limit in 2 128 512; do list+=",gmlake:variant=published,request_limit=${limit}MiB,stitch_bytes=80GiB"; done
  gmlake_replay "$folder" gmlake_variants "$section" "$list" "$@" || return
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
gmlake_options=(default tolerance=2MiB tolerance=16MiB cross_stream=seen cross_stream=wait stitch=after_growing small_limit=2MiB small_limit=8MiB small_limit=20MiB room=0 room=512MiB largest_chunk=2MiB
  largest_chunk=8MiB largest_chunk=16MiB largest_chunk=32MiB largest_chunk=128MiB chunk=4MiB chunk=16MiB chunk=32MiB stitching=views stitching=views,candidates=smallest
  stitching=views,candidates=oldest stitching=eager stitch_ratio=2 stitch_ratio=1 stitch_count=200 stitch_bytes=4GiB stitch_mappings=2000 stitch_mappings=200
  variant=published,request_limit=2MiB variant=published,request_limit=2MiB,reuse_factor=1 variant=published,request_limit=2MiB,reuse_factor=2
  variant=published,request_limit=2MiB,reuse_factor=100)

options_into() {
  local folder=$1 section=$2 list=bfc,gmlake option csv=$1/gmlake_options.csv
  shift 2
  for option in "${gmlake_options[@]:1}"; do list+=",gmlake:$option"; done
  gmlake_replay "$folder" gmlake_options "$section" "$list" "$@" || return
  {
    provenance_of "$csv"
    printf '\n%-56s %11s %11s %11s %12s\n' option utilisation least 'driver ms' calls
    awk -F, -v labels="bfc ${gmlake_options[*]}" -f "$here/regenerate/options_table.awk" \
      <(plain_csv "$csv")
  } >"$folder/gmlake_options.txt"
}

# On the device: each less than a minute for the recordings of training runs; the made-up traces double that.
section_gmlake_limits() { limits_into "$out" gmlake_limits "${options[@]}"; }
section_gmlake_variants() { variants_into "$out" gmlake_variants "${options[@]}"; }

# The same on the simulated H200: needs no GPU.
section_gmlake_sim() {
  mkdir -p -- "$simulated"
  limits_into "$simulated" gmlake_sim --driver sim --no-host-timing
  variants_into "$simulated" gmlake_sim --driver sim --no-host-timing
  options_into "$simulated" gmlake_sim --driver sim --no-host-timing
}

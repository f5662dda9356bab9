# What is measured on a device: driver calls, stitched memory, allocators, replays, a soak.
# shellcheck shell=bash

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
    [[ -s $scratch/head ]] || {
      grep -E '^# (program|device|driver|date):' "$scratch/run.csv"
      printf '# command: results/regenerate.sh axes\n'
    } >"$scratch/head"
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
  awk -F, -f "$here/regenerate/axes_table.awk" "$1"
}

# The latency profile that the simulated device charges.
section_profile() { measure profile bench vmm --save-profile h200.profile --iterations 7 --warmup 2; }

section_access() { measure access bench access; }

section_alloc() {
  measure alloc bench alloc --seconds 1
  measure alloc_mixed bench alloc --seconds 1 --sizes mixed --live 256 --min 64KiB
}

section_replay() { replay_into "$out" replay replay -p "$policies" "${options[@]}"; }

# The same, every allocation filled with its own pattern and checked before its free.
section_verify() { replay_into "$out" verify verify -p "$policies" "${options[@]}" --verify; }

# Eight threads with random programs on the device, slow kernels in flight, every block compared: five minutes.
section_soak() {
  measure soak stress -p native,async,bfc,expandable,tfbfc,gmlake,aliasheap --verify --slow-kernels --threads 8 --streams 3 --limit 100GiB \
    --duration 40 --seed 1
}

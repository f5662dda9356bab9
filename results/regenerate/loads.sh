# Loads that no recording is like: requests that are all small, sizes and lifetimes at random, serving. Three seeds each.
# shellcheck shell=bash

# load options of lakebed trace generate, but for the seed
loads() {
  cat <<'LOADS'
small-64KiB random -n 50000 --max 64KiB --live 200MiB
small-1MiB random -n 20000 --max 1MiB --live 300MiB
small-4MiB random -n 20000 --max 4MiB --live 2GiB
small-16MiB random -n 20000 --max 16MiB --live 8GiB
small-64MiB random -n 20000 --max 64MiB --live 20GiB
any-1GiB random -n 4000 --live 20GiB
oldest-1GiB random -n 4000 --victim oldest --live 20GiB
uniform-1GiB random -n 4000 --distribution uniform --live 20GiB
serving-opt-1.3b serving
serving-opt-13b serving -m opt-13b
serving-vicuna-13b serving -m vicuna-13b
LOADS
}

# aliasheap's second setting is for small requests: holes hardly longer than they are come first.
load_policies='expandable
bfc
gmlake
gmlake:small_limit=8MiB
aliasheap
aliasheap:near=1.2,near_least=0,near_limit=64MiB'

section_loads() {
  local load options seed run begin=$SECONDS traces=()
  mkdir -p -- "$simulated"
  run=$(mktemp -d)
  while read -r load options; do
    for seed in 1 2 3; do
      # shellcheck disable=SC2086
      "$lakebed" trace generate $options --seed "$seed" --quiet "$run/$load.$seed" || failed=1
      traces+=("$load.$seed")
    done
    printf '# %s.N: lakebed trace generate %s --seed N\n' "$load" "$options" >>"$run/made"
  done < <(loads)
  if (cd -- "$run" && "$lakebed" replay "${traces[@]}" -p "$(paste -sd, <<<"$load_policies")" --driver sim --no-host-timing --quiet --csv run.csv >run.txt); then
    dated "$run/run.csv" loads
    { grep '^#' "$run/run.csv" && cat "$run/made"; } >"$run/head"
    { cat "$run/head" && grep -v '^#' "$run/run.csv"; } >"$simulated/loads.csv"
    {
      cat "$run/head"
      printf '\n# Utilisation, mean of three seeds and least; driver time of all three; seeds on which more is held than by expandable and by bfc\n'
      awk -F, -v policies="$(paste -sd'|' <<<"$load_policies")" -f "$here/regenerate/loads_table.awk" <(plain_csv "$simulated/loads.csv")
    } >"$simulated/loads.txt" || failed=1
    say "loads: $((SECONDS - begin)) s"
  else
    say "loads: failed"
    failed=1
  fi
  rm -rf -- "$run"
}

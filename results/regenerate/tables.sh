# Tables of replays that are there: the headline, the model beside the device.
# shellcheck shell=bash

# means RECORDINGS|ALL CSV: a line a policy.
means() {
  plain_csv "$2" | awk -F, -v which="$1" -f "$here/regenerate/means.awk" | sort -t, -k3,3g
}

# The table that README.md opens with, from the CSV of a replay and of the section oom.
headline() {
  awk -F, -f "$here/regenerate/headline.awk" <(plain_csv "$simulated/oom.csv") <(plain_csv "$1") | sort -k2,2nr
}

section_headline() {
  local csv
  for csv in "$out"/replay.csv "$simulated"/replay.csv; do
    [[ ! -s $csv ]] || { printf '%s\n' "${csv#"$here/"}" && headline "$csv"; }
  done
}

# Measured on the device beside what the model charges: needs both replays.
section_compare() {
  [[ -s $out/replay.csv && -s $simulated/replay.csv ]] || { say "compare: needs the sections replay and sim"; return; }
  {
    header compare "$(sed -n 's/^# device: //p' "$out/replay.csv"); simulated: $(sed -n 's/^# device: //p' "$simulated/replay.csv")" \
      "$(sed -n 's/^# source: //p' "$out/replay.csv"); sim" compare
    sed -n 's/^# date: /# measured: /p' "$out/replay.csv"
    printf '# Driver time measured, and as the simulated device charges it; reserved peaks and call counts of both\n'
    awk -F, -f "$here/regenerate/compare.awk" <(plain_csv "$out/replay.csv") <(plain_csv "$simulated/replay.csv")
  } >"$out/model.txt"
  say "compare: $(tail -n 1 "$out/model.txt")"
}

# Driver time measured (the first CSV) beside what the model charges (the second).
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
END { printf "# %d of %d are off by more than 25 %%\n", off, rows }

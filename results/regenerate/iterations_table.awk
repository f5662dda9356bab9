# A row a run: the first iteration from which on there is S1 alone, no driver call for memory; these calls, by
# iteration. Input: iterations.csv.
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
}

# A row a load and policy: mean and least utilisation over the seeds, driver time of all of them, and on how many of them more
# is held than by the first and by the second policy. policies: as they were given, with | between; the rows of a trace come in that
# order. Input: the CSV of a replay, quoted fields made plain.
/^#/ { next }
!columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; kinds = split(policies, names, "|"); next }
{
  if ($1 != trace) place = 0
  trace = $1; place++
  load = trace; sub(/\.[0-9]+$/, "", load)
  if (!(load in seen)) { seen[load] = 1; loads[++count] = load }
  key = load SUBSEP place; value = $at["utilization"] + 0; held[place] = $at["reserved_peak_bytes"] + 0
  if (!(key in runs) || value < least[key]) least[key] = value
  runs[key]++; util[key] += value; ms[key] += $at["driver_us"] / 1000
  for (other = 1; other <= 2; other++) more[key, other] += place > other && held[place] > held[other]
}
END {
  format = "%-19s %11s %7s %10s %8s %12s %6s  %s\n"
  printf format, "load", "utilisation", "least", "driver ms", "x first", ">expandable", ">bfc", "policy"
  for (l = 1; l <= count; l++)
    for (p = 1; p <= kinds; p++) {
      key = loads[l] SUBSEP p
      printf format, loads[l], sprintf("%.4f", util[key] / runs[key]), sprintf("%.4f", least[key]), sprintf("%.1f", ms[key]),
        sprintf("%.2f", ms[key] / ms[loads[l] SUBSEP 1]), (p > 1 ? more[key, 1] : ""), (p > 2 ? more[key, 2] : ""), names[p]
    }
}

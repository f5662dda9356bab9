# Utilisation over the fragmentation limit, for gnuplot: a name, 'LIMIT,utilisation' lines and two empty lines a trace.
/^#/ { next }
!columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; count = split(limits, limit, " "); next }
$at["trace"] !~ /\.pickle/ { next }
{
  if ($at["trace"] != trace) { trace = $at["trace"]; place = 0; traces++; shown = trace; sub(/\.pickle\.xz$/, "", shown); if (traces > 1) printf "\n\n"; print "\"" shown "\"" }
  place++
  sum[place] += $at["utilization"]
  if (place > 2) print limit[place - 2] "," $at["utilization"]
}
END {
  printf "\n\n\"mean\"\n"
  for (i = 1; i <= count; i++) print limit[i] "," sum[i + 2] / traces
  printf "\n\n\"mean of bfc\"\n"
  for (i = 1; i <= count; i++) print limit[i] "," sum[1] / traces
  printf "\n\n\"mean of variant=published\"\n"
  for (i = 1; i <= count; i++) print limit[i] "," sum[2] / traces
}

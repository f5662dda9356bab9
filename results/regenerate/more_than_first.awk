# On how many traces each policy reserves more than the first one. labels: of the policies.
/^#/ { next }
!columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; count = split(labels, label, " "); next }
{
  if ($at["trace"] != trace) { trace = $at["trace"]; place = 0; recordings += trace ~ /\.pickle/; traces++; first = $at["reserved_peak_bytes"] + 0 }
  place++
  if ($at["reserved_peak_bytes"] + 0 > first) { if (trace ~ /\.pickle/) more[place]++; all[place]++ }
}
END {
  printf "%-40s", "of " recordings " recordings"
  for (i = 1; i <= count; i++) printf "%11d", more[i]
  printf "\n%-40s", "of all " traces " traces"
  for (i = 1; i <= count; i++) printf "%11d", all[i]
  printf "\n"
}

# Policy, mean and worst utilisation, mean reserved peak in GiB, mean driver ms, mean smallest device in GiB. Input:
# the CSV of the section oom, then that of a replay, quoted fields made plain.
/^#/ { next }
$1 == "trace" { files++; delete at; for (i = 1; i <= NF; i++) at[$i] = i; next }
files == 1 { smallest[$at["policy"]] += $at["smallest_capacity_bytes"] / 1073741824; found[$at["policy"]]++; next }
$at["trace"] ~ /\.pickle/ {
  policy = $at["policy"]; util = $at["utilization"]
  if (!(policy in n) || util < worst[policy]) worst[policy] = util
  n[policy]++; sum[policy] += util; held[policy] += $at["reserved_peak_bytes"] / 1073741824; ms[policy] += $at["driver_us"] / 1000
}
END {
  for (policy in n)
    printf "%-12s %6.3f %6.3f %8.2f %10.1f %8s\n", policy, sum[policy] / n[policy], worst[policy], held[policy] / n[policy], ms[policy] / n[policy],
      policy in found ? sprintf("%.2f", smallest[policy] / found[policy]) : "-"
}

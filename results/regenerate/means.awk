# Means of each policy over recordings of training runs (which=RECORDINGS) or over those and made-up event files
# (which=ALL): policy,utilisation,driver ms,frontier,oracle. frontier: 1 where no other policy, oracles left out,
# holds less in less time. Input: the CSV of a replay, quoted fields made plain.
/^#/ { next }
$1 == "trace" { for (i = 1; i <= NF; i++) at[$i] = i; next }
{
  policy = $at["policy"]
  if ($at["utilization"] == "" || (which == "RECORDINGS" && $at["trace"] !~ /\.pickle/)) next
  util[policy] += $at["utilization"]; ms[policy] += $at["driver_us"] / 1000; n[policy]++
}
END {
  for (policy in n) { util[policy] /= n[policy]; ms[policy] /= n[policy] }
  for (policy in n) {
    oracle = policy == "planned"
    best = !oracle
    for (other in n)
      if (other != "planned" && other != policy && util[other] >= util[policy] && ms[other] <= ms[policy] &&
          (util[other] > util[policy] || ms[other] < ms[policy])) best = 0
    printf "%s,%.4f,%.3f,%d,%d\n", policy, util[policy], ms[policy], best, oracle
  }
}

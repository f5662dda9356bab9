# A row a policy and delay: mean and least utilisation over the recordings, driver time of all beside the first policy's.
/^#/ { next }
!columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
{
  policy = $at["policy"]; delay = $at["event_delay_events"]; key = policy SUBSEP delay
  if (!(policy in seen)) { seen[policy] = 1; policies[++kinds] = policy }
  if (!(delay in met)) { met[delay] = 1; delays[++times] = delay }
  value = $at["utilization"] + 0
  if (!(key in runs) || value < least[key]) least[key] = value
  runs[key]++; util[key] += value; ms[key] += $at["driver_us"] / 1000; calls[key] += $at["driver_calls"]
}
END {
  format = "%-12s %8s %11s %8s %11s %9s %12s\n"
  printf format, "policy", "events", "utilisation", "least", "driver ms", "x first", "driver calls"
  for (p = 1; p <= kinds; p++)
    for (d = 1; d <= times; d++) {
      key = policies[p] SUBSEP delays[d]
      printf format, policies[p], delays[d], sprintf("%.4f", util[key] / runs[key]), sprintf("%.4f", least[key]), sprintf("%.1f", ms[key]),
        sprintf("%.3f", ms[key] / ms[policies[1] SUBSEP delays[d]]), calls[key]
    }
}

# A row an option: means over the recordings of training runs. labels: of the policies.
/^#/ { next }
!columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; count = split(labels, label, " "); next }
$at["trace"] !~ /\.pickle/ { next }
{
  if ($at["trace"] != trace) { trace = $at["trace"]; place = 0; traces++ }
  place++
  value = $at["utilization"] + 0
  if (traces == 1 || value < least[place]) least[place] = value
  util[place] += value; ms[place] += $at["driver_us"] / 1000; calls[place] += $at["driver_calls"]
}
END { for (i = 1; i <= count; i++) printf "%-56s %11.4f %11.4f %11.1f %12.0f\n", label[i], util[i] / traces, least[i], ms[i] / traces, calls[i] / traces }

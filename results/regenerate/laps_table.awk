# A row a recording: what is held at the most in each lap, and how much more after the third than up to it.
BEGIN { printf "%-42s %s\n", "trace", "reserved peak of each lap, MiB; growth after the third" }
FNR == 1 || $5 != "reserved_peak_bytes" { next }
{
  name = $1; lap = $3 + 0
  if (!(name in laps)) { order[++count] = name; laps[name] = 0 }
  if (lap > laps[name]) laps[name] = lap
  if ($6 / 1048576 > most[name, lap]) most[name, lap] = $6 / 1048576
}
END {
  for (i = 1; i <= count; i++) {
    name = order[i]; early = late = 0
    printf "%-42s", name
    for (lap = 1; lap <= laps[name]; lap++) {
      printf " %8.0f", most[name, lap]
      if (lap <= 3 && most[name, lap] > early) early = most[name, lap]
      if (lap > 3 && most[name, lap] > late) late = most[name, lap]
    }
    printf "   +%.0f\n", (late > early ? late - early : 0)
  }
}

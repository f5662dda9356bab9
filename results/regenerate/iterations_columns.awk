# A row an iteration, from one a measure. Input: what replay --iterations writes.
BEGIN {
  count = split("events failed_allocs S1_count S2_count S3_count S4_count S5_count split_count stitch_count stitch_free_count " \
    "S1_driver_us S2_driver_us S3_driver_us S4_driver_us S5_driver_us split_driver_us stitch_driver_us stitch_free_driver_us " \
    "driver_calls memory_calls driver_us live_peak_bytes reserved_peak_bytes", measures, " ")
  printf "trace,policy,iteration"
  for (i = 1; i <= count; i++) printf ",%s", measures[i]
  printf "\n"
}
function flush() {
  if (key == "") return
  printf "%s", key
  for (i = 1; i <= count; i++) printf ",%s", value[measures[i]]
  printf "\n"
  delete value
}
FNR > 1 { if ($1 "," $2 "," $4 != key) { flush(); key = $1 "," $2 "," $4 } value[$5] = $6 }
END { flush() }

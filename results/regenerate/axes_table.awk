# One row a run and chunk: microseconds of each stage. Input: vmm_axes.csv.
/^#/ { next }
!columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
$at["method"] == "chunks" && ($at["chunk_bytes"] == 2097152 || $at["chunk_bytes"] == 134217728 || $at["chunk_bytes"] == 1073741824) {
  key = $at["run"] "," $at["total_bytes"] / 1048576 "," $at["chunk_bytes"] / 1048576
  if (!(key in seen)) { seen[key] = 1; order[++rows] = key }
  time[key, $at["call"]] = $at["p50_us"]
}
END {
  split("reserve create map set_access build unmap release address_free teardown", calls, " ")
  printf "%-14s %9s %9s", "run", "total MiB", "chunk MiB"
  for (i = 1; i <= 9; i++) printf " %12s", calls[i]
  printf "\n"
  for (row = 1; row <= rows; row++) {
    split(order[row], part, ",")
    printf "%-14s %9s %9s", part[1], part[2], part[3]
    for (i = 1; i <= 9; i++) printf " %12.1f", time[order[row], calls[i]]
    printf "\n"
  }
}

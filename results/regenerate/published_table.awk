# What the authors' code did (tests/golden/gmlake_published_h200.jsonl, the first file) beside variant=published and
# the paper's rules (gmlake_variants.csv), a row for each trace and request limit.
FNR == NR {
  line = $0
  match(line, /"trace": "[^"]*"/); trace = substr(line, RSTART + 10, RLENGTH - 11)
  match(line, /"request_limit": [0-9]+/); limit = substr(line, RSTART + 17, RLENGTH - 17) / 1048576
  match(line, /"peak_reserved": [0-9]+/); reserved[trace, limit] = substr(line, RSTART + 17, RLENGTH - 17) + 0
  match(line, /"driver_us": [0-9.]+/); us[trace, limit] = substr(line, RSTART + 13, RLENGTH - 13) + 0
  next
}
/^#/ { next }
!columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
{
  name = $at["trace"]; recording = name ~ /\.pickle/
  sub(/\.xz$/, "", name); sub(/\.(pickle|txt)$/, "", name)
  place = name == before ? place + 1 : 1
  before = name
  if (place == 2) { ours = $at["reserved_peak_bytes"] + 0; our_us = $at["driver_us"] + 0 }
  limit = place == 6 ? 2 : place == 7 ? 128 : place == 8 ? 512 : 0
  if (!limit || !((name, limit) in reserved)) next
  theirs = reserved[name, limit]; mine = $at["reserved_peak_bytes"] + 0
  printf "%-40s %6d %12.0f %12.0f %9.4f %9.0f %9.4f %9.1f %9.1f %9.1f %9.3f\n", name, limit, theirs / 1048576, mine / 1048576, mine / theirs,
    ours / 1048576, ours / theirs, us[name, limit] / 1000, $at["driver_us"] / 1000, our_us / 1000, our_us / us[name, limit]
  lines++; same += mine == theirs
  if (!recording) next
  compared++; fewer += ours < theirs; faster += our_us < us[name, limit]
  if (!(name in seen)) { seen[name] = 1; names++; all_fewer[name] = 1 }
  if (ours >= theirs) all_fewer[name] = 0
}
END {
  for (name in all_fewer) better += all_fewer[name]
  printf "# variant=published reserves the same bytes as the authors in %d of %d rows\n", same, lines
  printf "# gmlake reserves fewer bytes than the authors in %d of the %d rows of recordings, on %d of %d recordings whatever the limit\n", fewer, compared, better, names
  printf "# gmlake spends less time in the driver in %d of %d of these rows\n", faster, compared
}

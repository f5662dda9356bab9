# A row a trace and a column a policy, in the order in which they were replayed; then the mean and the extremes over
# the recordings of training runs. Variables: labels of the policies, column, divisor, format.
function cells(row, i) { for (i = 1; i <= count; i++) printf format, row[i]; printf "\n" }
/^#/ { next }
!columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; count = split(labels, label, " "); next }
{
  if ($at["trace"] != trace) { trace = $at["trace"]; name[++traces] = trace; place = 0 }
  value[traces, ++place] = $at[column] / divisor
}
END {
  printf "%-40s", "trace"
  for (i = 1; i <= count; i++) printf "%11s", label[i]
  printf "\n"
  for (t = 1; t <= traces; t++) {
    shown = name[t]
    sub(/\.xz$/, "", shown); sub(/\.(pickle|txt)$/, "", shown)
    printf "%-40s", shown
    for (i = 1; i <= count; i++) {
      row[i] = value[t, i]
      if (name[t] !~ /\.pickle/) continue
      sum[i] += row[i]
      if (!recordings || row[i] < least[i]) least[i] = row[i]
      if (!recordings || row[i] > most[i]) most[i] = row[i]
    }
    recordings += name[t] ~ /\.pickle/
    cells(row)
  }
  if (!recordings) exit
  for (i = 1; i <= count; i++) mean[i] = sum[i] / recordings
  printf "%-40s", "mean of " recordings " recordings"; cells(mean)
  printf "%-40s", "least"; cells(least)
  printf "%-40s", "most"; cells(most)
}

# What malloc and free cost in the policies themselves: 1 MiB blocks, 256 of them live.
load 'common.gp'
set title 'malloc and free in a steady state: 256 blocks of 1 MiB (without the driver''s calls)' noenhanced
set style data histogram
set style histogram clustered gap 1
set style fill solid border -1
set ylabel 'nanoseconds'
set yrange [0:]
set xtics rotate by -30 noenhanced
set key top left Left reverse

table = sprintf("< awk -F, '/^#/ { next } !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next } $at[\"size_bytes\"] == 1048576 && $at[\"live\"] == 256 { print $at[\"policy\"] \",\" $at[\"malloc_host_p50_ns\"] \",\" $at[\"malloc_host_p99_ns\"] \",\" $at[\"free_host_p50_ns\"] \",\" $at[\"free_host_p99_ns\"] }' '%s'", csv)
plot table using 2:xtic(1) linestyle 1 title 'malloc, median', \
     '' using 3 linestyle 5 title 'malloc, p99', \
     '' using 4 linestyle 3 title 'free, median', \
     '' using 5 linestyle 2 title 'free, p99'

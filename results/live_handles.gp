# What one call on a 2 MiB handle costs while other handles live.
load 'common.gp'
set title 'One call on a 2 MiB handle, by how many handles live' noenhanced
set xlabel 'live handles'
set ylabel 'microseconds'
set yrange [0:]
set format x '%.0f'
set key outside right top Left reverse noenhanced
set xtics 10000

cost(call) = (is('benchmark', 'profile') && is('call', call) && column('size_bytes') == 2097152) ? column('p50_us') : NaN
calls = 'set_access unmap create release map'
names = 'cuMemSetAccess cuMemUnmap cuMemCreate cuMemRelease cuMemMap'
plot for [i = 1:5] csv using (column('live_handles')):(cost(word(calls, i))) with linespoints linestyle i title word(names, i)

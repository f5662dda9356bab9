# GMLake's Figure 6: time to allocate 512 MiB, 1 GiB and 2 GiB from chunks, and by the driver's own allocators.
load 'common.gp'
set title 'Time to allocate, from chunks and by the driver itself' noenhanced
set logscale x 2
set logscale y
set format y '%g'
eval "set xtics ".size_tics
set xlabel 'chunk'
set ylabel 'microseconds'
set key outside right top Left reverse
set xrange [1.6:2560]

MIB = 1048576.0
from_chunks(total) = (is('benchmark', 'figure6') && is('method', 'chunks') && is('call', 'build') && column('total_bytes') == total * MIB) ? column('p50_us') : NaN
# The driver's own way is one time, whatever the chunk: a level line.
level(method, total) = lookup(sprintf('$at["benchmark"] == "figure6" && $at["method"] == "%s" && $at["total_bytes"] == "%.0f" && $at["call"] == "malloc"', method, total * MIB), 'p50_us')
array totals[3] = ['512 MiB', '1 GiB', '2 GiB']
methods = "'cuMemAlloc' 'cuMemAllocAsync cold' 'cuMemAllocAsync warm'"
chunk = "bytes_mib(column('chunk_bytes'))"

plot for [i = 1:3] csv using (@chunk):(from_chunks(256 * 2 ** i)) with linespoints linestyle i title totals[i].' from chunks', \
     for [j = 1:3] for [i = 1:3] shown(level(word(methods, j), 256 * 2 ** i)) with lines linestyle i dashtype 1 + j title totals[i].', '.word(methods, j)

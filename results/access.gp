# Bandwidth of memory stitched from chunks, against one cuMemAlloc of the same size.
load 'common.gp'
set title 'Bandwidth of stitched memory (dashed: one cuMemAlloc)' noenhanced
set logscale x 2
eval "set xtics ".size_tics
set xlabel 'chunk'
set ylabel 'GB/s'
set yrange [0:]
set xrange [1.6:1280]
set key outside right top Left reverse noenhanced

rate(access, order) = (is('benchmark', 'bandwidth') && is('memory', 'stitched') && is('access', access) && is('order', order)) ? column('gigabytes_per_second') : NaN
level(access) = lookup(sprintf('$at["benchmark"] == "bandwidth" && $at["memory"] == "cuMemAlloc" && $at["access"] == "%s"', access), 'gigabytes_per_second')
kinds = 'read write copy random'
array open[4] = [6, 4, 8, 12]
chunk = "bytes_mib(column('chunk_bytes'))"
plot for [i = 1:4] csv using (@chunk):(rate(word(kinds, i), 'in order')) with points linestyle i title word(kinds, i).', in order', \
     for [i = 1:4] csv using (@chunk):(rate(word(kinds, i), 'shuffled')) with points linestyle i pointtype open[i] pointsize 1.8 title word(kinds, i).', shuffled', \
     for [i = 1:4] level(word(kinds, i)) with lines linestyle i dashtype 2 title word(kinds, i).', cuMemAlloc'

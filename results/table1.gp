# GMLake's Table 1: 2 GiB built from chunks, relative to one cuMemAlloc, beside the paper's A100.
load 'common.gp'
set title 'Building 2 GiB from chunks, relative to one cuMemAlloc of 2 GiB' noenhanced
set logscale x 2
set logscale y
set format y '%g'
eval "set xtics ".size_tics
set xlabel 'chunk'
set ylabel 'time / cuMemAlloc'
set key outside right top Left reverse title header('device') noenhanced
set xrange [1.6:2560]

ours(call) = (is('benchmark', 'table1') && is('method', 'chunks') && is('call', call)) ? column('normalized') : NaN
paper(call) = (is('benchmark', 'table1') && is('method', 'chunks') && is('call', call) && strlen(strcol('paper_normalized'))) ? column('paper_normalized') : NaN
chunk = "bytes_mib(column('chunk_bytes'))"
plot csv using (@chunk):(ours('build')) with linespoints linestyle 4 title 'all', \
     csv using (@chunk):(ours('set_access')) with linespoints linestyle 2 title 'cuMemSetAccess', \
     csv using (@chunk):(ours('create')) with linespoints linestyle 1 title 'cuMemCreate', \
     csv using (@chunk):(ours('map')) with linespoints linestyle 3 title 'cuMemMap', \
     csv using (@chunk):(ours('reserve')) with linespoints linestyle 5 title 'cuMemAddressReserve', \
     csv using (@chunk):(paper('build')) with points linestyle 4 pointtype 12 pointsize 2 title 'A100: all', \
     csv using (@chunk):(paper('set_access')) with points linestyle 2 pointtype 4 pointsize 1.6 title 'A100: cuMemSetAccess', \
     csv using (@chunk):(paper('create')) with points linestyle 1 pointtype 6 pointsize 1.6 title 'A100: cuMemCreate', \
     csv using (@chunk):(paper('map')) with points linestyle 3 pointtype 8 pointsize 1.6 title 'A100: cuMemMap', \
     csv using (@chunk):(paper('reserve')) with points linestyle 5 pointtype 10 pointsize 1.6 title 'A100: cuMemAddressReserve'

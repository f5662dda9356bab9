# Memory over a run: what each policy holds, above what is live.
# csv: the file that lakebed replay --timeline wrote for one trace.
set datafile separator comma
set datafile commentschars '#'
if (out[strlen(out) - 3:] eq '.svg') {
  set terminal svg size 900,480 font 'DejaVu Sans,14' background '#ffffff' name 'lakebed'
} else {
  set terminal pngcairo size 1350,720 font 'DejaVu Sans,14' background '#ffffff'
}
set output out
set label 1 provenance at screen 0.99,0.012 right font ',10' textcolor rgb '#666666' noenhanced
set title heading noenhanced
set grid xtics ytics linecolor rgb '#dddddd'
set border 3
set bmargin 5
set tics nomirror out
set key outside right top Left reverse title 'reserved' noenhanced
set xlabel 'event (thousands)'
set ylabel 'GiB'
set yrange [0:*]
set autoscale xfix
gib(bytes) = bytes / 1073741824.0
reserved(policy) = strcol('policy') eq policy ? gib(column('reserved_bytes')) : NaN
live(policy) = strcol('policy') eq policy ? gib(column('live_bytes')) : NaN
event = "(column('event') / 1000.0)"
plot csv using @event:(live('bfc')) with filledcurves y1=0 linecolor rgb '#c9dff0' title 'live', \
     csv using @event:(reserved('bfc')) with lines linewidth 2 linecolor rgb '#d55e00' title 'bfc (PyTorch)', \
     csv using @event:(reserved('expandable')) with lines linewidth 2 linecolor rgb '#cc79a7' title 'expandable (PyTorch)', \
     csv using @event:(reserved('tfbfc')) with lines linewidth 2 linecolor rgb '#e69f00' title 'tfbfc (TensorFlow)', \
     csv using @event:(reserved('gmlake')) with lines linewidth 2 linecolor rgb '#009e73' title 'gmlake', \
     csv using @event:(reserved('aliasheap')) with lines linewidth 2.5 linecolor rgb '#000000' title 'aliasheap (ours)'

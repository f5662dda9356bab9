# Figure 14: memory over events; a run ends at its first request that finds no memory.
columns = 1
width = 980
height = 480
load 'paper_common.gp'
set label 1 provenance at screen 0.99,0.012 right font ',9' textcolor rgb '#666666' noenhanced
set bmargin 5
set title header('title') noenhanced font ',12'
set xlabel 'event (thousands)'
set ylabel 'GiB'
set yrange [0:90]
set key outside right top Left reverse title 'reserved'
set autoscale xfix
event = "(column('event') / 1000.0)"
plot csv using @event:(is('policy', 'gmlake') ? column('live_gib') : NaN) with filledcurves y1=0 linecolor rgb '#dddddd' title 'live', \
     for [i = 1:4] csv using @event:(is('policy', word(policies, i)) ? column('reserved_gib') : NaN) with lines linestyle i title title_of(word(policies, i)), \
     80 with lines dashtype 2 linecolor rgb '#666666' title 'the device'

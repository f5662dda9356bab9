# Memory over three runs: what each policy holds, above what is live.
# csv: the file that lakebed replay --timeline wrote. traces: the names of three recordings in it, without their ending.
set datafile separator comma
set datafile commentschars '#'
if (out[strlen(out) - 3:] eq '.svg') {
  set terminal svg size 1000,1150 font 'DejaVu Sans,14' background '#ffffff' name 'lakebed'
} else {
  set terminal pngcairo size 1500,1725 font 'DejaVu Sans,14' background '#ffffff'
}
set output out
set datafile missing NaN
set grid xtics ytics linecolor rgb '#dddddd'
set border 3
set tics nomirror out
set key at screen 0.985,0.955 right top Left reverse title 'reserved' noenhanced
set ylabel 'GiB'
set yrange [0:*]
set autoscale xfix
gib(bytes) = bytes / 1073741824.0
policies = 'native async bfc expandable tfbfc rawvmm gmlake aliasheap planned'
names = "'native' 'async (a model)' 'bfc (PyTorch)' 'expandable (PyTorch)' 'tfbfc (TensorFlow)' 'rawvmm' 'gmlake' 'aliasheap (ours)' 'planned (oracle)'"
array colors[9] = ['#999999', '#0072b2', '#d55e00', '#cc79a7', '#e69f00', '#a6761d', '#009e73', '#000000', '#7570b3']
array widths[9] = [1.2, 1.5, 1.8, 1.8, 1.8, 1.2, 1.8, 2.4, 1.8]
array dashes[9] = [1, 1, 1, 1, 1, 3, 1, 1, 2]
set multiplot layout 3,1 margins 0.075,0.74,0.075,0.955 spacing 0.1,0.075
do for [panel = 1:3] {
  name = word(traces, panel)
  set title name noenhanced
  if (panel == 3) {
    set xlabel 'event (thousands)'
    set label 1 provenance at screen 0.99,0.012 right font ',10' textcolor rgb '#666666' noenhanced
  }
  if (panel == 2) { unset key }
  one(policy) = sprintf("< awk -F, '$1 ~ /^%s\\./ && $2 == \"%s\" { print $3 / 1000 \",\" $5 \",\" $7 }' '%s'", name, policy, csv)
  plot one('planned') using 1:(gib($2)) with filledcurves y1=0 linecolor rgb '#c9dff0' title 'live', \
       for [i = 1:9] one(word(policies, i)) using 1:(gib($3)) with lines linewidth widths[i] linecolor rgb colors[i] dashtype dashes[i] title word(names, i)
}
unset multiplot

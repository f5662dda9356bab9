# Utilisation against driver time: one point a policy, means over runs. The line joins policies that no other one
# beats in both; an oracle, which knows the trace in advance, is hollow and not compared.
# recordings, all: 'POLICY,mean utilisation,mean driver ms,on the frontier,oracle' lines that results/regenerate.sh
# makes from the replays, in ascending order of time.
set datafile separator comma
if (out[strlen(out) - 3:] eq '.svg') {
  set terminal svg size 1200,520 font 'DejaVu Sans,14' background '#ffffff' name 'lakebed'
} else {
  set terminal pngcairo size 1800,780 font 'DejaVu Sans,14' background '#ffffff'
}
set output out
set label 1 provenance at screen 0.99,0.012 right font ',10' textcolor rgb '#666666' noenhanced
set grid xtics ytics linecolor rgb '#dddddd'
set border 3
set tics nomirror out
set logscale x
set format x '%g'
set xlabel 'driver time of a run (ms, mean)'
set yrange [0.5:1.03]
set offsets graph 0.02, graph 0.18, 0, 0
set nokey
frontier(best, util) = best == 1 ? util : NaN
ordinary(oracle, util) = oracle == 0 ? util : NaN
hollow(oracle, util) = oracle == 1 ? util : NaN
# Some lie close to each other: aliasheap's name stands on the left, gmlake's on the right, async's below; the others' above.
side(policy) = policy eq 'aliasheap' ? 1 : policy eq 'gmlake' ? 2 : policy eq 'async' ? 3 : 0
named(policy, oracle) = oracle == 1 ? policy.' (oracle)' : policy
set datafile missing NaN
set multiplot layout 1,2 title heading noenhanced margins 0.07,0.98,0.15,0.86 spacing 0.08,0.1
do for [panel in 'recordings all'] {
  data = panel eq 'recordings' ? recordings : all
  set title (panel eq 'recordings' ? heading_recordings : heading_all) noenhanced
  if (panel eq 'recordings') { set ylabel 'utilisation: live peak / reserved peak (mean)' } else { unset ylabel }
  plot sprintf("< awk -F, '$4 == 1' '%s'", data) using 3:2 with lines linewidth 2 linecolor rgb '#d55e00', \
       data using 3:(ordinary($5, $2)) with points pointtype 7 pointsize 1.2 linecolor rgb '#0072b2', \
       data using 3:(hollow($5, $2)) with points pointtype 6 pointsize 1.5 linewidth 2 linecolor rgb '#0072b2', \
       data using 3:(side(strcol(1)) == 0 ? $2 : NaN):(named(strcol(1), $5)) with labels left offset 0.8,0.7 noenhanced, \
       data using 3:(side(strcol(1)) == 1 ? $2 : NaN):(named(strcol(1), $5)) with labels right offset -0.8,0 noenhanced, \
       data using 3:(side(strcol(1)) == 2 ? $2 : NaN):(named(strcol(1), $5)) with labels left offset 0.8,0 noenhanced, \
       data using 3:(side(strcol(1)) == 3 ? $2 : NaN):(named(strcol(1), $5)) with labels right offset 0.6,-0.8 noenhanced
}
unset multiplot

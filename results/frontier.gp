# Utilisation against driver time: one point a policy, means over the recordings in csv.
# data: 'POLICY,mean utilisation,mean driver ms' lines that results/regenerate.sh makes from the replays.
set datafile separator comma
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
set rmargin 12
set tics nomirror out
set logscale x
set format x '%g'
set xlabel 'driver time of a run (ms, mean)'
set ylabel 'utilisation: live peak / reserved peak (mean)'
set yrange [0.5:1.02]
set nokey
plot data using 3:2 with points pointtype 7 pointsize 1.2 linecolor rgb '#0072b2', \
     data using 3:2:1 with labels left offset 1,0.4 noenhanced

# Utilisation over gmlake's fragmentation limit, a line a recording.
# data: blocks of 'LIMIT in MiB,utilisation' lines, each under its name, that results/regenerate.sh makes; the
# last three are means.
set datafile separator comma
if (out[strlen(out) - 3:] eq '.svg') {
  set terminal svg size 900,600 font 'DejaVu Sans,14' background '#ffffff' name 'lakebed'
} else {
  set terminal pngcairo size 1350,900 font 'DejaVu Sans,14' background '#ffffff'
}
set output out
set label 1 provenance at screen 0.99,0.012 right font ',10' textcolor rgb '#666666' noenhanced
set title heading noenhanced
set grid xtics ytics linecolor rgb '#dddddd'
set border 3
set bmargin 5
set tics nomirror out
set logscale x 2
set xtics (2, 4, 8, 16, 32, 64, 128, 256, 512)
set xlabel 'fragmentation limit (MiB)'
set ylabel 'utilisation: live peak / reserved peak'
set xrange [1.9:560]
set yrange [0.4:1.02]
set key outside right top Left reverse noenhanced font ',10' samplen 2
stats data using 2 nooutput
recordings = STATS_blocks - 3
plot for [i = 0:recordings - 1] data index i using 1:2 with linespoints linewidth 1 pointtype (i < 8 ? 7 : 4) pointsize (i < 8 ? 0.5 : 0.8) \
       linecolor i + 1 title columnheader(1), \
     data index recordings using 1:2 with lines linewidth 4 linecolor rgb '#000000' title columnheader(1), \
     data index recordings + 1 using 1:2 with lines linewidth 3 dashtype 2 linecolor rgb '#d55e00' title columnheader(1), \
     data index recordings + 2 using 1:2 with lines linewidth 3 dashtype 2 linecolor rgb '#0072b2' title columnheader(1)

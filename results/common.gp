# What the figures share. Called with: gnuplot -e "csv='FILE.csv'; out='FILE.svg'" FIGURE.gp
# The terminal follows from the name of the output: .svg or .png.
set datafile separator comma
set datafile commentschars '#'
if (out[strlen(out) - 3:] eq '.svg') {
  set terminal svg size 900,560 font 'DejaVu Sans,14' background '#ffffff' name 'lakebed'
} else {
  set terminal pngcairo size 1350,840 font 'DejaVu Sans,14' background '#ffffff'
}
set output out

header(key) = system(sprintf("sed -n 's/^# %s: //p' '%s' | head -n 1", key, csv))
provenance = header('device').', '.header('driver').', '.header('date')
set label 1 provenance at screen 0.99,0.012 right font ',10' textcolor rgb '#666666' noenhanced

set grid xtics ytics linecolor rgb '#dddddd'
set border 3
set bmargin 5.5
set tics nomirror out
set key noenhanced
bytes_mib(bytes) = bytes / 1048576.0
size_tics = "('2 MiB' 2, '4' 4, '8' 8, '16' 16, '32' 32, '64' 64, '128' 128, '256' 256, '512' 512, '1 GiB' 1024, '2 GiB' 2048)"

set datafile missing NaN
is(column, value) = strcol(column) eq value
# The first value of a column in a row that awk finds with $at["COLUMN"]; 0: there is none.
lookup(where, column) = real('0'.system(sprintf("awk -F, '/^#/ { next } !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next } %s { print $at[\"%s\"]; exit }' '%s'", where, column, csv)))
# Nothing is drawn of what was not measured.
shown(value) = value > 0 ? value : NaN

set style line 1 linecolor rgb '#0072b2' linewidth 2 pointtype 7 pointsize 0.9
set style line 2 linecolor rgb '#d55e00' linewidth 2 pointtype 5 pointsize 0.9
set style line 3 linecolor rgb '#009e73' linewidth 2 pointtype 9 pointsize 1.0
set style line 4 linecolor rgb '#000000' linewidth 2.5 pointtype 13 pointsize 1.1
set style line 5 linecolor rgb '#cc79a7' linewidth 2 pointtype 11 pointsize 1.0

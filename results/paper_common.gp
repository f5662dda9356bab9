# What the figures of lakebed paper share. Called with: gnuplot -e "csv='FILE.csv'; out='FILE.svg'; ..." FIGURE.gp
# width, height: of one panel. columns: of panels.
set datafile separator comma
set datafile commentschars '#'
set datafile missing NaN
if (out[strlen(out) - 3:] eq '.svg') {
  eval sprintf("set terminal svg size %d,%d font 'DejaVu Sans,13' background '#ffffff' name 'lakebed'", width * columns, height)
} else {
  eval sprintf("set terminal pngcairo size %d,%d font 'DejaVu Sans,13' background '#ffffff' fontscale 1.25", width * columns * 1.5, height * 1.5)
}
set output out
header(key) = system(sprintf("sed -n 's/^# %s: //p' '%s' | head -n 1", key, csv))
provenance = header('device').' simulated, '.header('capacity').', generated workloads, '.header('date')
is(name, value) = strcol(name) eq value
# What is not there lies below every axis, where nothing is drawn.
known(name) = strlen(strcol(name)) ? column(name) : -100
# The rows of a panel (empty: of all) and a policy, under their columns.
rows(panel, policy) = sprintf("< awk -F, '/^#/ { next } !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = 1; print; next } (\"%s\" == \"\" || $at[\"panel\"] == \"%s\") && $at[\"policy\"] == \"%s\"' '%s'", panel, panel, policy, csv)
set grid ytics linecolor rgb '#dddddd'
set border 3
set tics nomirror out
set key noenhanced

# The policies that are drawn: PyTorch's two, GMLake and ours.
policies = 'bfc expandable gmlake aliasheap'
title_of(policy) = policy eq 'bfc' ? 'bfc (PyTorch)' : policy eq 'expandable' ? 'expandable (PyTorch)' : policy eq 'aliasheap' ? 'aliasheap (ours)' : policy
set style line 1 linecolor rgb '#d55e00' linewidth 2 pointtype 5 pointsize 0.7
set style line 2 linecolor rgb '#cc79a7' linewidth 2 pointtype 11 pointsize 0.8
set style line 3 linecolor rgb '#009e73' linewidth 2 pointtype 9 pointsize 0.8
set style line 4 linecolor rgb '#0072b2' linewidth 2 pointtype 7 pointsize 0.7
set style fill solid 0.85 noborder

# A legend in one line above all panels, of coloured words.
array legend_x[7] = [0.06, 0.17, 0.31, 0.39, 0.52, 0.67, 0.82]
legend(number, text, colour) = sprintf("set label %d '%s' at screen %.3f,%.3f left textcolor rgb '%s' noenhanced front", 100 + number, text, legend_x[number], 1 - 45.0 / height, colour)
array colours[4] = ['#d55e00', '#cc79a7', '#009e73', '#0072b2']
legend_policies = ''
do for [i = 1:4] { legend_policies = legend_policies.legend(i, '■ '.title_of(word(policies, i)), colours[i]).'; ' }
legend_paper = legend(5, '□ the paper: PyTorch', '#000000').'; '.legend(6, '△ the paper: GMLake', '#000000')
